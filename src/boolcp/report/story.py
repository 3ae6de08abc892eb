"""The story of a decomposition: a few sentences in plain words, made from its numbers."""

from typing import Any

import numpy as np

from boolcp import plotting
from boolcp.plotting.mode_labels import further_of, unit_of
from boolcp.plotting.patterns import leading_column
from boolcp.report.tested import Tests, best_test, p_words
from boolcp.report.words import has_shares, on_text, plural, value_label
from boolcp.result.atoms import BooleanCP
from boolcp.result.trust import Trust
from boolcp.trust.verdict import Verdict, verdicts

MAX_TOLD = 4  # atoms that the story tells of
MAX_LISTED = 8  # entries that a sentence names
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def tell(W: BooleanCP, provenance: dict[str, Any], tests: Tests, residual: Any = None) -> list[str]:
    """Return the sentences: what was found, whether it can be trusted, atom by atom, and what is left."""
    if not W.n_atoms:
        return ["No atom was found."]
    told = _order(W)[:MAX_TOLD]
    sentences = [_opening(W, provenance), _trust(W), *(atom_sentence(W, k, tests) for k in told)]
    if len(told) < W.n_atoms:
        n = W.n_atoms - len(told)
        sentences.append(f"The other {'one is' if n == 1 else f'{number(n)} are'} below.")
    return [sentence for sentence in [*sentences, _leftover(residual)] if sentence]


def _order(W: BooleanCP) -> list[int]:
    """Return the atoms, those first without which most of the variance is lost."""
    sizes = W.explained_unique() if has_shares(W) else np.abs(W.weights)
    return sorted(np.argsort(-sizes, kind="stable")[:MAX_TOLD].tolist())


def _opening(W: BooleanCP, provenance: dict[str, Any]) -> str:
    atoms = f"{number(W.n_atoms).capitalize()} {'atom' if W.n_atoms == 1 else 'atoms'}"
    if not has_shares(W):
        return f"{atoms} make up this tensor."
    verb, name = "explains" if W.n_atoms == 1 else "explain", value_label(W).partition(" (")[0]
    quantity = {"size": "the tensor", "count": "the counts"}.get(name, name)
    n_missing = provenance.get("data", {}).get("n_missing") or 0
    share = n_missing / np.prod(W.shape, dtype=float)
    missing = f", over the {100 * (1 - share):.0f} % of its entries that are observed" if n_missing else ""
    return f"{atoms} {verb} {100 * W.explained():.0f} % of the variance of {quantity}{missing}."


def _trust(W: BooleanCP) -> str:
    """Return how many atoms stand the tests that were made."""
    known = W.trust or Trust()
    made = ["are more than noise"] if known.p_adjusted is not None else []
    made += [f"come back in at least 80 % of {known.stable_over}"] if known.stability is not None else []
    if not made:
        return "Whether they are more than noise has not been tested (boolcp fit --assess, boolcp.assess)."
    n = sum(stands(verdict) for verdict in verdicts(W))
    if W.n_atoms == 1:
        return f"It {'stands' if n else 'does not stand'} the tests."
    who = {0: "None", W.n_atoms: "All"}.get(n, number(n).capitalize())
    verb = "stands" if n in (0, 1) else "stand"
    return f"{who} of them {verb} the tests: to {' and to '.join(_infinitive(text) for text in made)}."


def _infinitive(text: str) -> str:
    return text.replace("are more", "be more")


def stands(verdict: Verdict) -> bool:
    """Return True if an atom was tested and nothing speaks against it."""
    made = [answer for answer in (verdict.is_stable, verdict.is_significant) if answer is not None]
    return bool(made) and all(made) and verdict.is_informative


def atom_sentence(W: BooleanCP, k: int, tests: Tests) -> str:
    """Return one atom in a sentence or two: where it is on, in which conditions, and where it is largest."""
    atom = W.atoms[k]
    where = f"Atom {k} is on in {atom.n_ones} of {len(atom.z)} {plural(W, atom.mode)}"
    detail, peak = detail_text(W, k, tests), peak_text(W, k)
    return f"{where}{f': {detail}' if detail else ''}.{f' {peak}' if peak else ''}"


def card_text(W: BooleanCP, k: int, tests: Tests) -> str:
    """Return what the card of an atom says below its heading, which has told in how many entries it is on."""
    detail = detail_text(W, k, tests)
    return " ".join(filter(None, [detail and f"{detail[0].upper()}{detail[1:]}.", peak_text(W, k)]))


def detail_text(W: BooleanCP, k: int, tests: Tests) -> str:
    """Return where an atom is on beyond the number: in which conditions, or the labels themselves if they are few."""
    atom = W.atoms[k]
    found = best_test(tests, k, atom.mode)
    if found is not None:
        name, test = found
        return f"{group_text(W, k, name)} ({p_words(test.p_adjusted[k])})"
    is_few = 0 < atom.n_ones <= MAX_LISTED or 0 < len(atom.z) - atom.n_ones <= 3
    return on_text(W, k) if is_few else ""


def group_text(W: BooleanCP, k: int, name: str) -> str:
    """Return in words in which groups an atom is on, those with most of it first."""
    atom = W.atoms[k]
    labels = np.array([str(value) for value in further_of(W, atom.mode, name)])
    names = [one for one in dict.fromkeys(labels.tolist()) if one]
    counts = {one: (int(atom.z[labels == one].sum()), int(np.sum(labels == one))) for one in names}
    shares = {one: n_on / n for one, (n_on, n) in counts.items()}
    entries = plural(W, atom.mode)
    ranked = sorted(names, key=lambda one: -shares[one])
    if set(shares.values()) <= {0.0, 1.0}:
        full = [one for one in ranked if shares[one] == 1]
        return f"{_and([_part(*counts[one], _adjective(name, one), entries) for one in full])}, and no others"
    parts = [_part(*counts[one], _adjective(name, one), entries) for one in ranked[:3]]
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


def _adjective(name: str, value: str) -> str:
    """Return a value as it is said before a noun: with the name of its column if it means nothing alone."""
    return f"{name}={value}" if value in ("True", "False") or value.replace(".", "").isdigit() else value


def peak_text(W: BooleanCP, k: int) -> str:
    """Return where the pattern of an atom is largest, along its real modes."""
    places = []
    for mode in (n for n in range(W.ndim) if n != W.atoms[k].mode):
        column = leading_column(W, k, mode)
        if W.labels is None or plotting.coordinates_of(W, mode) is None or not np.isfinite(column).any():
            continue
        label, unit = plotting.coordinate_text(W, mode)[int(np.nanargmax(np.abs(column)))], unit_of(W, mode)
        is_bare = not unit and label.lstrip("-").replace(".", "").isdigit()
        places.append(f"{plotting.mode_text(W, mode)} {label}" if is_bare else f"{label} {unit}".rstrip())
    return f"Its pattern is largest at {_and(places)}." if places else ""


def _leftover(residual: Any) -> str:
    if residual is None:
        return ""
    if residual.is_noise:
        return "What the atoms leave looks like white noise."
    edges = dict(zip(residual.mode_names, residual.structure, strict=True))
    return f"What the atoms leave is not white noise: structure remains, most along {max(edges, key=edges.get)}."  # type: ignore[arg-type]


def number(n: int) -> str:
    """Return a small number as a word."""
    return NUMBERS[n] if n < len(NUMBERS) else str(n)


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
