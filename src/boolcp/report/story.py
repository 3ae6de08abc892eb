"""The story of a decomposition: a few sentences in plain words, written from its numbers."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from boolcp import plotting
from boolcp.plotting.mode_labels import further_of, group_names, is_named, is_unordered, quantity_of, unit_of
from boolcp.plotting.patterns import EQUAL, leading_column, real_columns
from boolcp.report.tested import ALPHA, Tests, best_test, p_words
from boolcp.report.words import adjective, entries_text, has_names, has_shares, on_text, plural, title_of
from boolcp.result.atoms import BooleanCP
from boolcp.result.summary import explained_word
from boolcp.result.trust import Trust, rival_words
from boolcp.trust.conditions import ConditionTest
from boolcp.trust.degeneracy import CANCELED, TOGETHER, degeneracy
from boolcp.trust.verdict import STABLE, Verdict, is_noise, verdicts

MAX_TOLD = 4  # atoms that the story tells of
MAX_LISTED = 8  # entries that a sentence names
MAX_RUNS = 2  # stretches of neighbors that a sentence names
CORRELATED = 0.1  # neighbors in a residual that are correlated more than this are no white noise; not tuned
SURE = 0.95  # as in the column of sure bits
WEAK = 0.3  # rank correlation; a smaller one is hard to see even if it is certain; not tuned
STANDS_OUT = 3  # a peak is worth a word if it is so many times the median size; a flat pattern has none
MAX_PEAKS = 2  # more names than this with about the largest size are no peak
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def tell(W: BooleanCP, provenance: dict[str, Any], tests: Tests, residual: Any = None) -> list[str]:
    """Return the sentences: what was found, whether it can be trusted, each atom, and what is left."""
    if not W.n_atoms:
        return ["No atom was found."]
    told = _order(W)
    sentences = [_opening(W, provenance), _trust(W), rival_words(W.trust or Trust())]
    sentences += [atom_sentence(W, k, tests) for k in told] + _canceling(W, told)
    if len(told) < W.n_atoms:
        left = sorted(set(range(W.n_atoms)) - set(told))
        names = f"atom {left[0]}" if len(left) == 1 else f"the other {number(len(left))} atoms"
        noise = ", which may be noise" if is_noise(W)[left].all() else ""
        sentences.append(f"The cards below also show {names}{noise}.")
    sentences += [_nothing(name, test) for name, test in tests.items() if name in provenance.get("tests", {})]
    return [sentence for sentence in [*sentences, _leftover(W, residual)] if sentence]


def paragraphs(sentences: Sequence[str]) -> list[str]:
    """Return the sentences as paragraphs: one for each atom, and what is said before and after them."""
    parts: list[str] = []
    for sentence in sentences:
        is_new = not parts or sentence.startswith("Atom ") or parts[-1].startswith("Atom ")
        parts = [*parts, sentence] if is_new else [*parts[:-1], f"{parts[-1]} {sentence}"]
    return parts


def _order(W: BooleanCP) -> list[int]:
    """Return the atoms to describe: those that explain most, without noise if there are others."""
    sizes = W.explained_unique() if has_shares(W) else np.abs(W.weights)
    ranked = np.argsort(-sizes, kind="stable")
    noise = is_noise(W)
    return sorted((ranked if noise.all() else ranked[~noise[ranked]])[:MAX_TOLD].tolist())


def _canceling(W: BooleanCP, told: list[int]) -> list[str]:
    """Return a sentence for each two of the atoms to describe that cancel each other, and each that others cancel."""
    reasons = degeneracy(W).reasons
    pairs = [(k, l) for k, l in combinations(told, 2) if f"{CANCELED}{l}" in reasons[k].split(", ")]
    who = [f"Atoms {k} and {l} largely cancel each other" for k, l in pairs]
    who += [f"Atom {k} is {TOGETHER}" for k in told if TOGETHER in reasons[k]]
    return [f"{one} and should not be interpreted alone." for one in who]


def _opening(W: BooleanCP, provenance: dict[str, Any]) -> str:
    n_baselines = sum(atom.is_baseline for atom in W.atoms)
    counts = [(W.n_atoms - n_baselines, "atom", ""), (n_baselines, "baseline", " (on almost everywhere)")]
    parts = [f"{number(n)} {name}{'' if n == 1 else 's'}{more}" for n, name, more in counts if n]
    atoms = " and ".join(parts).capitalize()
    if not has_shares(W):
        return f"{atoms} {'makes' if W.n_atoms == 1 else 'make'} up this tensor."
    verb, name = "explains" if W.n_atoms == 1 else "explain", quantity_of(W)
    is_file = bool(provenance.get("data", {}).get("source")) and name == title_of(W, provenance)
    quantity = "the counts" if name == "count" else "the data" if is_file or not name else f"the {name}"
    n_entries, n_missing = float(np.prod(W.shape, dtype=float)), provenance.get("data", {}).get("n_missing") or 0
    share = (n_entries - n_missing) / n_entries
    missing = f", over the {100 * share:.0f} % of the entries that are observed" if share < 1 else ""
    n_asked = provenance.get("parameters", {}).get("n_atoms")
    is_fewer = isinstance(n_asked, int) and n_asked > W.n_atoms and not provenance.get("is_partial")
    asked = f" {number(n_asked).capitalize()} were asked for." if is_fewer else ""
    return f"{atoms} {verb} {100 * W.explained():.0f} % of the {explained_word(W)} of {quantity}{missing}.{asked}"


def _trust(W: BooleanCP) -> str:
    """Return how many atoms pass the tests that were made."""
    known, judged = W.trust or Trust(), verdicts(W)
    if known.p_adjusted is None and known.stability is None:
        n_small = sum(verdict.is_significant is False for verdict in judged)
        who = "It" if W.n_atoms == 1 else f"{number(n_small).capitalize()} of them"
        small = f"{who} {'is' if n_small == 1 else 'are'} no larger than noise can be. "
        asked = "Whether the atoms are" if W.n_atoms > 1 else "Whether it is"
        hint = f"{asked} more than noise has not been tested (boolcp fit --assess, or boolcp.assess in Python)."
        return (small if n_small else "") + hint
    passed = [k for k, verdict in enumerate(judged) if stands(verdict)]
    if W.n_atoms == 1:
        return f"It {'passes all tests' if passed else 'does not pass all tests'}: {judged[0].text}."
    if len(passed) == W.n_atoms:
        back = f"come back in at least {100 * STABLE:.0f} % of {known.stable_over}"
        made = ["are more than noise"] * (known.p_adjusted is not None) + [back] * (known.stability is not None)
        who = "Both" if W.n_atoms == 2 else f"All {number(W.n_atoms)}"
        return f"{who} pass all tests: they {_and([*made, 'are informative'])}."
    counts = [
        _count(judged, "is_stable", "come", "comes", f"back in at least {100 * STABLE:.0f} % of {known.stable_over}"),
        _count(judged, "is_significant", "are", "is", "significantly more than noise"),
        _count(judged, "is_informative", "are", "is", "informative"),
    ]
    who = f"Atom{'s' if len(passed) > 1 else ''} {_and([str(k) for k in passed])}" if passed else "No atom"
    verb = "pass" if len(passed) > 1 else "passes"
    return f"Of the atoms, {_and([text for text in counts if text])}. {who} {verb} all tests."


def _count(judged: Sequence[Verdict], name: str, many: str, one: str, what: str) -> str:
    """Return how many atoms pass a test, in words, or nothing if it was not made."""
    answers = [getattr(verdict, name) for verdict in judged]
    n = sum(answer is True for answer in answers)
    every = "both" if n == 2 else f"all {number(n)}"
    count = "none" if not n else every if n == len(answers) else number(n)
    return "" if None in answers else f"{count} {one if n < 2 else many} {what}"


def stands(verdict: Verdict) -> bool:
    """Return True if an atom was tested and nothing speaks against it."""
    made = [answer for answer in (verdict.is_stable, verdict.is_significant) if answer is not None]
    return bool(made) and all(made) and verdict.is_informative


def atom_sentence(W: BooleanCP, k: int, tests: Tests) -> str:
    """Return one atom in a few sentences: where it is on, in which conditions, and where it is largest."""
    atom, detail = W.atoms[k], detail_text(W, k, tests)
    known = None if W.trust is None else W.trust.stability
    back = 1.0 if known is None else known[k]
    count = f"all {len(atom.z)}" if atom.z.all() else f"{atom.n_ones} of {len(atom.z)}"
    where = f"Atom {k} is {'a baseline, ' if atom.is_baseline else ''}on in {count} {plural(W, atom.mode)}"
    first = f"{where}{f': {detail}' if detail else ''}."
    lost = f"It is not stable: it comes back in {100 * back:.0f} % of other fits." if back < STABLE else ""
    return " ".join(filter(None, [first, lost, doubt_text(W, k), differ_text(W, k, tests), peak_text(W, k)]))


def card_text(W: BooleanCP, k: int, tests: Tests) -> str:
    """Return what the card of an atom says below its heading, which has told in how many entries it is on."""
    detail = detail_text(W, k, tests)
    is_label = detail and detail == on_text(W, k) and not detail.startswith("all")
    mode = W.atoms[k].mode
    place = "at" if unit_of(W, mode) or not is_named(W, mode) else f"in {plural(W, mode)}"
    first = detail and (f"On {place} {detail}." if is_label else f"{detail[0].upper()}{detail[1:]}.")
    return " ".join(filter(None, [first, doubt_text(W, k), differ_text(W, k, tests), peak_text(W, k)]))


def doubt_text(W: BooleanCP, k: int) -> str:
    """Return which bits of an atom are in doubt, if they are few and it is no noise."""
    if W.trust is None or W.trust.rise is None or is_noise(W)[k]:
        return ""
    atom, is_open = W.atoms[k], W.bit_confidence()[k] < SURE
    if not 0 < np.count_nonzero(is_open) <= MAX_LISTED // 2:
        return ""
    return f"Bits in doubt: {entries_text(W, atom.mode, is_open)} {unit_of(W, atom.mode)}".rstrip() + "."


def detail_text(W: BooleanCP, k: int, tests: Tests) -> str:
    """Describe where an atom is on: in which conditions, or the labels themselves if they are few."""
    atom = W.atoms[k]
    found = best_test({name: test for name, test in tests.items() if test.conditions}, k, atom.mode)
    if found is not None:
        name, test = found
        return f"{group_text(W, k, name)} ({p_words(test.p_adjusted[k])})"
    is_few = 0 < atom.n_ones <= MAX_LISTED or on_text(W, k).startswith("all but ")
    n_edges = np.count_nonzero(np.diff(atom.z, prepend=False, append=False))
    is_run = not has_names(W, atom.mode) and n_edges <= 2 * MAX_RUNS
    return on_text(W, k) if (is_few or is_run) and not atom.z.all() else ""


def differ_text(W: BooleanCP, k: int, tests: Tests) -> str:
    """Return a sentence about what the real part of an atom differs in, or follows, most clearly."""
    rest = {name: test for name, test in tests.items() if not (test.conditions and test.is_boolean[k])}
    found = best_test(rest, k)
    if found is None:
        return ""
    name, test = found
    how = p_words(test.p_adjusted[k])
    if not test.conditions:
        size, verb = ("larger", "rises") if test.effect[k] > 0 else ("smaller", "falls")
        slight = "slightly " if abs(test.effect[k]) < WEAK else ""
        bits, real = f"It is on {slight}more often where {name} is {size}", f"Its real part {verb} {slight}with {name}"
        return f"{bits if test.is_boolean[k] else real} (rank correlation {test.effect[k]:+.2f}, {how})."
    ends = [test.conditions[pick(test.mean[k])] for pick in (np.argmax, np.argmin)]
    names = _and([f"{adjective(name, one)} {plural(W, test.mode)}" for one in ends])
    most = "most " if len(test.conditions) > 2 else ""
    means = f"mean {test.mean[k].max():z.2f} and {test.mean[k].min():z.2f} of its largest size"
    return f"Its real part differs {most}between {names} ({means}, {how})."


def group_text(W: BooleanCP, k: int, name: str) -> str:
    """Describe in which groups an atom is on, those with the largest share first."""
    atom = W.atoms[k]
    labels = np.array([str(value) for value in further_of(W, atom.mode, name)])
    names = group_names(labels)
    counts = {one: (int(atom.z[labels == one].sum()), int(np.sum(labels == one))) for one in names}
    shares = {one: n_on / n for one, (n_on, n) in counts.items()}
    entries = plural(W, atom.mode)
    ranked = sorted(names, key=lambda one: -shares[one])
    if set(shares.values()) <= {0.0, 1.0}:
        full = [one for one in ranked if shares[one] == 1]
        return f"{_and([_part(*counts[one], adjective(name, one), entries) for one in full])}, and no others"
    parts = [_part(*counts[one], adjective(name, one), entries) for one in ranked[:3]]
    if len(ranked) > 3:
        n_on, n = (sum(counts[one][i] for one in ranked[3:]) for i in (0, 1))
        parts.append(_part(n_on, n, "other", entries))
    return _and(parts)


def _part(n_on: int, n: int, group: str, entries: str) -> str:
    """Return how many of a group, in words."""
    if n_on == n:
        return f"all {n} {group} {entries}"
    if n_on == 0:
        return f"none of the {n} {group} {entries}"
    return f"{f'all but one of the {n}' if n_on == n - 1 and n > 3 else f'{n_on} of the {n}'} {group} {entries}"


def peak_text(W: BooleanCP, k: int) -> str:
    """Return where the real part of an atom has a peak, along its real modes, and its smallest and largest value there.

    A peak along a second mode is one within the peak of the first: the strongest slices of an atom need not meet.
    """
    peaks: dict[int, np.ndarray] = {}
    places, others = [], []
    for mode in (n for n in range(W.ndim) if n != W.atoms[k].mode):
        found = peaks_along(W, mode, real_sizes(W, k, mode, peaks))
        if not len(found):
            others.append(plural(W, mode))
            continue
        peaks[mode] = found
        for label in np.array(plotting.coordinate_text(W, mode))[found]:
            unit = unit_of(W, mode)
            is_bare = not unit and label.lstrip("-").replace(".", "").isdigit()
            places.append(f"{plotting.mode_text(W, mode)} {label}" if is_bare else f"{label} {unit}".rstrip())
    if not places:
        return ""
    unit = "" if W.labels is None else W.labels.value_unit or "counts" * (W.labels.name == "count")
    low, high = ends_at(W, k, peaks)
    digits = max(0, 2 - int(np.floor(np.log10(max(-low, high, 1e-300)))))  # three figures of the larger one
    ends = [f"{v:+.0f}" if 1000 <= abs(v) < 1e6 else f"{round(v, digits):+z.3g}" for v in (low, high)]
    values = f"{' to '.join(dict.fromkeys(ends))} {unit}".rstrip() + (f" over {_and(others)}" if others else "")
    return f"Its pattern is strongest at {_and(places)} ({values})."


def peaks_along(W: BooleanCP, mode: int, sizes: np.ndarray) -> np.ndarray:
    """Return the entries of a mode with a peak of given sizes: one, or a few names that are about equal, or none."""
    none, coords = np.zeros(0, dtype=int), plotting.coordinates_of(W, mode)
    if W.labels is None or coords is None or not sizes.any() or sizes.max() < STANDS_OUT * np.median(sizes):
        return none
    equal = np.flatnonzero(sizes >= EQUAL * sizes.max())
    if has_names(W, mode) or is_unordered(W, mode):  # numbers of channels are names
        return equal if len(equal) <= MAX_PEAKS else none
    is_one = equal[-1] - equal[0] < len(equal) and not is_counted(coords)
    return np.argmax(sizes, keepdims=True) if is_one else none


def real_sizes(W: BooleanCP, k: int, mode: int, peaks: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return the norm of each slice of the real part along a mode, at given places of others; 0 where unknown."""
    if W.atoms[k].rank == 1:
        return np.abs(np.nan_to_num(leading_column(W, k, mode)))
    part, at = part_at(W, k, peaks), mode - (mode > W.atoms[k].mode)
    sizes = np.zeros(W.shape[mode])
    sizes[known_entries(W, mode)] = np.linalg.norm(np.moveaxis(part, at, 0).reshape(part.shape[at], -1), axis=1)
    return sizes


def ends_at(W: BooleanCP, k: int, peaks: Mapping[int, np.ndarray]) -> tuple[float, float]:
    """Return the smallest and the largest entry of the real part of an atom, with its weight, at given places."""
    if W.atoms[k].rank != 1:
        part = part_at(W, k, peaks)
        return float(part.min()), float(part.max())
    ends = np.ones(1)
    for mode, columns in real_columns(W, k).items():
        column = columns[peaks.get(mode, known_entries(W, mode)), 0]
        ends = np.outer(ends, (column.min(), column.max())).ravel()
    return float(ends.min()), float(ends.max())


def part_at(W: BooleanCP, k: int, peaks: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return the real part of an atom with its weight at given places of modes, and all that is known of others."""
    modes = [n for n in range(W.ndim) if n != W.atoms[k].mode]
    rows = np.ix_(*(peaks.get(n, known_entries(W, n)) for n in modes))
    return np.asarray(W.weights[k] * W.atoms[k].dense_block()[rows])


def known_entries(W: BooleanCP, mode: int) -> np.ndarray:
    """Return the entries of a mode for which there are data."""
    return np.flatnonzero(~(W.undetermined or {}).get(mode, np.zeros(W.shape[mode], dtype=bool)))


def is_counted(coords: np.ndarray) -> bool:
    """Return True if coordinates only count the entries."""
    return coords.dtype.kind in "iu" and bool(np.array_equal(coords - coords[0], np.arange(len(coords))))


def _nothing(name: str, test: ConditionTest) -> str:
    """Return that no atom differs in, or follows, a column that was to be tested; nothing if one does."""
    if test.p_adjusted.min() <= ALPHA:
        return ""
    what = f"differs clearly by {name}" if test.conditions else f"clearly follows {name}"
    return f"No atom {what} (smallest {p_words(test.p_adjusted.min())})."


def _leftover(W: BooleanCP, residual: Any) -> str:
    """Return whether something is left, if there is enough of a residual to tell."""
    if residual is None:
        return ""
    lag = max(residual.lag_correlation, key=abs)
    if residual.is_noise and abs(lag) > CORRELATED:
        where = plotting.mode_text(W, list(residual.lag_correlation).index(lag))
        return f"No pattern stands out of the residual, but neighbors along {where} are correlated ({lag:+.2f})."
    if residual.is_noise:
        return "The residual looks like white noise."
    most = plotting.mode_text(W, int(np.argmax(residual.structure)))
    where = f", most along {most}" if len(residual.structure) > 2 else ""  # both modes of a matrix have the same
    return f"The residual is not white noise: structure remains{where}."


def number(n: int) -> str:
    """Return a small number as a word."""
    return NUMBERS[n] if n < len(NUMBERS) else str(n)


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
