"""The words and numbers of the page: headline, a sentence for each atom, tables of data, fit, atoms and origin."""

import base64
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np

from boolcp.bmp import BMP
from boolcp.fit.neighbors import pieces
from boolcp.plotting import mode_labels as modes
from boolcp.plotting.look import shortened
from boolcp.plotting.patterns import EQUAL, real_columns
from boolcp.report.conditions import Tests, adjective, best_test, p_words
from boolcp.result import summary
from boolcp.result.atoms import BooleanCP
from boolcp.result.summary import percent
from boolcp.result.trust import Trust, p_text, rival_words, sure_share
from boolcp.trust.degeneracy import degeneracy
from boolcp.trust.replication import ALIKE
from boolcp.trust.verdict import Verdict, is_noise, next_words, runs_words, verdicts

MAX_NAMES, MAX_RUNS = 60, 30  # entries, and runs of entries, that a card lists
MAX_LISTED, MAX_STRETCHES, MAX_GROUPS_TOLD = 8, 2, 4  # entries, runs and groups that a sentence lists
MAX_SEARCHED = 50_000  # labels of a mode that the page holds for the search
FEW_OFF = 6  # up to this many entries that are off are named instead of those that are on
CORRELATED = 0.1  # of neighbors, worth a word; not tuned
STANDS_OUT, MAX_PEAKS = 3, 2  # a peak is so many times the median size, and at most so many names share it; not tuned
NO_BREAK = "\u00a0"
# parts of the provenance that the page shows elsewhere
SHOWN_APART = {"history", "parameters", "versions", "data", "command", "stop_reason", "is_partial"}
SHOWN_APART |= {"tests", "residual_check", "seconds"}


def title_of(W: BooleanCP, provenance: dict[str, Any]) -> str:
    """Return the title of the page: the name of the recording, or of the measured quantity."""
    first, *more = str(provenance.get("data", {}).get("source") or "").split(" and ", 1)
    stem = " and ".join([PurePath(first).name.partition(".")[0], *more])
    return stem or modes.quantity_of(W) or f"A tensor of {summary.shape_text(W)}"


def subtitle_of(W: BooleanCP) -> str:
    """Return what was decomposed, in one line."""
    name = "" if modes.value_label(W) == "size" else f"{modes.value_label(W)}, "
    sizes = " x ".join(f"{d} {modes.plural(W, n)}" if modes.is_named(W, n) else str(d) for n, d in enumerate(W.shape))
    return f"{name}{sizes}, in {summary.apart_text(W)}"


def headline(W: BooleanCP, provenance: dict[str, Any]) -> str:
    """Return how many atoms were found, what they explain, and how many pass the tests that were made."""
    if not W.n_atoms:
        return "No atom was found."
    ending = "s" * (W.n_atoms == 1)
    what = f"make{ending} up this tensor"
    if summary.has_shares(W):
        observed = " of the observed entries" * bool(provenance.get("data", {}).get("n_missing"))
        what = f"explain{ending} {100 * W.explained():.0f} % of the {summary.explained_word(W)}{observed}"
    judged, n_small, trust = verdicts(W), int(is_noise(W).sum()), "not tested against noise yet"
    if any(verdict.replicates is not None for verdict in judged):
        n_passed = sum(verdict.passes for verdict in judged)
        trust = f"{'all' if n_passed == W.n_atoms else f'{n_passed} of {W.n_atoms}'} passed all tests"
    elif n_small:
        trust = f"{n_small} of {W.n_atoms} {'is' if n_small == 1 else 'are'} no larger than noise"
    return f"{summary.apart_text(W)} {what}; {trust}."


def remarks(W: BooleanCP, residual: Any) -> list[str]:
    """Return what a reader must know of the whole: the mean, missing atoms, rivals, and what is left."""
    left, advice = "", next_words(W)
    is_said = W.noise is not None or any("residual" in text for text in advice)  # a ridge leaves some correlation
    if residual is not None and not is_said:
        at, next_to = int(np.argmax(residual.structure)), int(np.argmax(np.abs(residual.lag_correlation)))
        lag, where = residual.lag_correlation[next_to], modes.mode_text(W, next_to)
        left = "The residual looks like white noise."
        if not residual.is_noise:
            left = f"Structure is left in the residual, most along {modes.mode_text(W, at)}."
        elif abs(lag) > CORRELATED:
            left = f"No pattern is left in the residual, but neighbors along {where} are correlated ({lag:+.2f})."
    said = [*advice, summary.mean_words(W), summary.asked_words(W), rival_words(W.trust or Trust()), left]
    return [text for text in said if text]


def plain_words(W: BooleanCP, k: int, verdict: Verdict) -> str:
    """Return in one sentence whether an atom may be read as on and off; nothing if nothing is known."""
    if verdict.passes:
        return "It passes all tests: it comes back in parts of the data, and it is on or off rather than graded"
    if verdict.replicates is None:
        return f"Careful: {verdict.text}" if verdict.text and not W.atoms[k].is_baseline else ""
    if not verdict.replicates:
        return "It does not come back in parts of the data: do not interpret it"
    if "not more than noise" in verdict.text:
        return "It is not more than noise: do not interpret it"
    if verdict.is_on_off is False:
        return "It comes back, but nothing shows two groups, on and off: its strength may be graded"
    if verdict.is_on_off and W.trust and W.trust.has_runs is not None and W.trust.has_runs[k]:
        return f"It comes back, but neighboring {modes.plural(W, W.atoms[k].mode)} are alike: {runs_words(W, k)}"
    if degeneracy(W).reasons[k]:
        return (
            "It comes back in parts of the data" if W.atoms[k].is_baseline else f"Do not read it alone: {verdict.text}"
        )
    return "It comes back in parts of the data; whether it is on or off rather than graded was not tested"


def detail_text(W: BooleanCP, k: int, tests: Tests) -> str:
    """Return in which conditions an atom is on, the largest share first, or the labels themselves if they are few."""
    atom = W.atoms[k]
    found = best_test({name: test for name, test in tests.items() if test.conditions and test.is_boolean[k]}, k)
    if found is None:
        is_few = 0 < atom.n_ones <= MAX_LISTED or on_text(W, k).startswith("all but ")
        n_edges = np.count_nonzero(np.diff(atom.z, prepend=False, append=False))
        is_run = not modes.has_names(W, atom.mode) and n_edges <= 2 * MAX_STRETCHES
        return on_text(W, k) if (is_few or is_run) and not atom.z.all() else ""
    name, test = found
    order = np.argsort(-np.nan_to_num(test.mean[k]), kind="stable")
    on, counts = np.rint(test.mean[k] * test.counts)[order].astype(int), np.asarray(test.counts)[order]
    n_named = len(order) if len(order) <= MAX_GROUPS_TOLD else 2
    parts = [f"{on[i]} of {counts[i]} {adjective(name, test.conditions[order[i]])}" for i in range(n_named)]
    parts += [f"{on[n_named:].sum()} of {counts[n_named:].sum()} other"] if n_named < len(order) else []
    return f"{_and(parts)} {modes.plural(W, test.mode)} ({p_words(test.p_adjusted[k])})"


def differ_text(W: BooleanCP, k: int, tests: Tests) -> str:
    """Return what else an atom differs in, or follows, most clearly."""
    found = best_test({name: test for name, test in tests.items() if not (test.conditions and test.is_boolean[k])}, k)
    if found is None:
        return ""
    (name, test), p = found, p_words(found[1].p_adjusted[k])
    if not test.conditions:
        verb = "on more often" if test.is_boolean[k] else "larger"
        size = "large" if test.effect[k] > 0 else "small"
        return f"{verb} where {name} is {size} (rank correlation {test.effect[k]:+.2f}, {p})"
    ends = [adjective(name, test.conditions[pick(test.mean[k])]) for pick in (np.argmax, np.argmin)]
    return f"larger in {ends[0]} than in {ends[1]} {modes.plural(W, test.mode)} ({p})"


def peak_text(W: BooleanCP, k: int) -> str:
    """Return where an atom of rank one has its largest entry, and its size, if it stands out along a mode."""
    if W.atoms[k].rank != 1:
        return ""
    columns = {n: np.nan_to_num(column[:, 0]) for n, column in real_columns(W, k).items()}
    value = float(np.prod([np.abs(column).max() for column in columns.values()]))
    places = [text for n, column in columns.items() for text in _peaks(W, n, np.abs(column))]
    unit = "" if W.labels is None else W.labels.value_unit or "counts" * (W.labels.name == "count")
    size = f"{value:.0f}" if 1000 <= value < 1e6 else f"{value:.3g}"
    return f"strongest at {_and(places)} ({f'{size} {unit}'.rstrip()})" if places else ""


def _peaks(W: BooleanCP, mode: int, sizes: np.ndarray) -> list[str]:
    """Return the labels of a mode with a peak of given sizes: one, or a few names that are about equal, or none."""
    coords = modes.coordinates_of(W, mode)
    if coords is None or not sizes.any() or sizes.max() < STANDS_OUT * np.median(sizes):
        return []
    equal = np.flatnonzero(sizes >= EQUAL * sizes.max())
    if modes.has_names(W, mode) or modes.is_unordered(W, mode):  # numbers of channels are names
        found = equal if len(equal) <= MAX_PEAKS else equal[:0]
    else:
        is_counted = coords.dtype.kind in "iu" and np.array_equal(coords - coords[0], np.arange(len(coords)))
        is_peak = equal[-1] - equal[0] < len(equal) and not is_counted
        found = equal[[np.argmax(sizes[equal])]] if is_peak else equal[:0]
    texts, unit = modes.coordinate_text(W, mode), modes.unit_of(W, mode)
    is_bare = not unit and all(texts[i].lstrip("-").replace(".", "").isdigit() for i in found)
    return [f"{modes.mode_text(W, mode)} {texts[i]}" if is_bare else f"{texts[i]} {unit}".rstrip() for i in found]


def on_text(W: BooleanCP, k: int) -> str:
    """Return where an atom is on: runs of neighboring numbers as ranges, names one by one."""
    atom = W.atoms[k]
    n_off = len(atom.z) - atom.n_ones
    if not atom.n_ones or not n_off:
        return "nowhere" if n_off else f"all {len(atom.z)} {modes.plural(W, atom.mode)}"
    is_most = n_off <= min(FEW_OFF, len(atom.z) // 4)
    names, z = modes.coordinate_text(W, atom.mode), ~atom.z if is_most else atom.z
    listed = _listing([names[i] for i in np.flatnonzero(z)])
    if not modes.has_names(W, atom.mode):
        edges = np.flatnonzero(np.diff(z, prepend=False, append=False)).reshape(-1, 2)
        runs = [", ".join(names[a:b]) if b - a < 3 else f"{names[a]} to {names[b - 1]}" for a, b in edges[:MAX_RUNS]]
        n_more = int(sum(b - a for a, b in edges[MAX_RUNS:]))
        listed = ", ".join(runs) + (f" and {n_more} more" if n_more else "")
    return f"{'all but ' * is_most}{listed} {modes.unit_of(W, atom.mode)}".rstrip()


def atom_columns(W: BooleanCP) -> list[tuple[str, str, list[str], list[float]]]:
    """Return what is known about the atoms: heading, explanation, and for each a text and the number to sort by."""
    known, sure, what, rough = W.trust or Trust(), sure_share(W), summary.explained_word(W), partial(percent, digits=0)
    alone, unique = (W.explained_alone(), W.explained_unique()) if summary.has_shares(W) else (None, None)
    apart = W.on_off and W.on_off.d_prime
    sure = sure if sure is None else np.where(is_noise(W), np.nan, sure)  # the bits of an atom of noise mean nothing
    proved = np.array([atom.certificate for atom in W.atoms], dtype=float)
    tested = "is the atom more than noise that is independent between slices (false discoveries controlled)"
    groups = "evidence that amplitudes in slices a fit has not seen are two groups: 10 and more is on/off"
    again = None if known.by_session is None else np.mean(known.by_session >= ALIKE, axis=1)
    reached = "share of the best possible score that its bits are proved to reach"
    columns: list[tuple[str, str, Any, Callable[[float], str]]] = [
        ("sure bits", "share of the bits that are at least 95 % sure", sure, rough),
        ("replication", f"share of {known.parts} that find its pattern again", known.replication, rough),
        ("sessions", "share of the sessions in which a fit to that session alone finds it again", again, rough),
        ("on/off", groups, known.on_off, lambda x: "-" if np.isnan(x) else f"{x:.0f}"),
        ("d'", "distance of the groups in standard deviations", apart, lambda x: "-" if np.isnan(x) else f"{x:.1f}"),
        ("p", tested, known.p_adjusted, lambda p: "-" if np.isnan(p) else p_text(p)),
        ("alone", f"share of the {what} that the atom explains by itself", alone, percent),
        ("unique", f"share of the {what} lost without the atom", unique, lambda x: "> 100 %" if x > 1 else percent(x)),
        ("certificate", reached, proved if np.isfinite(proved).any() else None, summary.proved_percent),
    ]
    return [
        (head, note, [show(x) for x in values], np.nan_to_num(values, nan=-1.0).tolist())
        for head, note, values, show in columns
        if values is not None and not np.isnan(values).all()
    ]


def describe_atoms(W: BooleanCP, tests: Tests) -> list[dict[str, Any]]:
    """Return words and numbers about each atom, for its row and its card; those that pass first, baselines last."""
    columns, rows = atom_columns(W), []
    for k, (atom, verdict) in enumerate(zip(W.atoms, verdicts(W), strict=True)):
        detail, on, count = detail_text(W, k, tests), on_text(W, k), f"{atom.n_ones} of {len(atom.z)}"
        where = f"on in {f'all {len(atom.z)}' if atom.z.all() else count} {modes.plural(W, atom.mode)}"
        n, piece = pieces(W, k)
        where += f" in {n} {piece}{'s' * (n > 1)}" * (n > 0 and not atom.is_baseline)
        where = "a baseline, " * atom.is_baseline + where + (f": {detail}" if detail else "")
        row = {"number": k, "is_baseline": atom.is_baseline, "n_ones": atom.n_ones, "ones": count}
        row |= {"mode": modes.mode_text(W, atom.mode), "mode_number": atom.mode, "weight": f"{W.weights[k]:.4g}"}
        row |= {"rank": "a block" if atom.rank is None else f"of rank {atom.rank}", "verdict": verdict.text}
        row |= {"bits": base64.b64encode(np.packbits(atom.z, bitorder="little").tobytes()).decode()}
        row |= {"text": "; ".join(filter(None, [where, differ_text(W, k, tests), peak_text(W, k)]))}
        row |= {"plain": plain_words(W, k, verdict), "passes": verdict.passes}
        row |= {"on": "" if atom.z.all() or detail == on else on}
        rows.append(row | {"cells": [(texts[k], numbers[k]) for _, _, texts, numbers in columns]})
    return sorted(rows, key=lambda row: (not row["passes"], bool(row["is_baseline"])))


def search_labels(W: BooleanCP) -> dict[str, list[str]]:
    """Return the labels of the Boolean modes, by which the page searches atoms; without very long modes."""
    return {str(n): modes.coordinate_text(W, n) for n in W.members if W.shape[n] <= MAX_SEARCHED}


def describe_modes(W: BooleanCP) -> list[dict[str, Any]]:
    """Return the name, size and coordinates of each mode, one dict each."""
    rows = []
    for n, size in enumerate(W.shape):
        labels = modes.coordinate_text(W, n)
        ends = ", ".join(labels) if size <= modes.MAX_STATES else f"{labels[0]} to {labels[-1]}"
        has_coords = modes.coordinates_of(W, n) is not None and size
        row = {"number": n, "name": modes.mode_text(W, n), "size": size, "n_atoms": int(np.sum(W.boolean_mode == n))}
        row |= {"range": f"{ends} {modes.unit_of(W, n)}".strip() if has_coords else "-"}
        rows.append(row | {"further": ", ".join(modes.further_names(W, n)) or "-"})
    return rows


def describe_data(W: BooleanCP, provenance: dict[str, Any]) -> list[tuple[str, str]]:
    """Describe the decomposed tensor, as pairs of a name and a text."""
    pairs, data = [], provenance.get("data", {})
    if W.data_norm2 is not None:
        n_entries = int(np.prod(W.shape, dtype=object))
        n_missing = 0 if W.data_gram is None else data.get("n_missing")
        if n_missing is not None:
            size = np.sqrt(W.data_norm2 / max(n_entries - n_missing, 1))
            pairs.append(("Scale (root mean square)", _with_unit(W, f"{size:.4g}")))
        count = "some" if n_missing is None else f"{n_missing} of {n_entries} ({percent(n_missing / n_entries)})"
        pairs.append(("Missing entries", "none" if n_missing == 0 else f"{count}; the fit is over the observed ones"))
    for n, slices in (W.undetermined or {}).items():
        names = [text for text, is_empty in zip(modes.coordinate_text(W, n), slices, strict=True) if is_empty]
        pairs += [(f"Without any data, {modes.mode_text(W, n)}", _listing(names))] if names else []
    found = {"Source": data.get("source"), "Preparation": "; ".join(map(str, data.get("preparation") or ()))}
    found |= {"Type": data.get("dtype"), "SHA-256": data.get("fingerprint")}
    return pairs + [(name, str(value)) for name, value in found.items() if value]


def describe_fit(W: BooleanCP, provenance: dict[str, Any], residual: Any = None) -> list[tuple[str, str]]:
    """Describe the quality of the fit and its residual, as pairs of a name and a text."""
    pairs = []
    if summary.has_shares(W):
        pairs.append((f"{summary.explained_word(W).capitalize()} explained", f"{100 * W.explained():.2f} %"))
    if summary.has_shares(W) and W.deviance is None:
        pairs.append(("Relative error", f"{np.sqrt(max(1 - W.explained(), 0.0)):.4f}"))
    pairs += [("Note", "stopped early: a valid but partial result")] if provenance.get("is_partial") else []
    pairs += [("The pursuit stopped because", reason)] if (reason := provenance.get("stop_reason")) else []
    if residual is not None:
        edges = ", ".join(f"{modes.mode_text(W, n)} {edge:.3f}" for n, edge in enumerate(residual.structure))
        lags = ", ".join(f"{modes.mode_text(W, n)} {lag:+z.2f}" for n, lag in enumerate(residual.lag_correlation))
        pairs.append(("Residual, root mean square", _with_unit(W, f"{residual.rms:.4g}")))
        pairs.append(("Residual, excess kurtosis", f"{residual.kurtosis:z.2f}"))
        pairs.append(("Residual, largest singular value by mode (white noise: at most 1)", edges))
        pairs.append(("Residual, correlation of neighbors by mode (white noise: 0)", lags))
    return pairs


def describe_origin(provenance: dict[str, Any]) -> list[tuple[str, str]]:
    """Return date, seed, versions and the rest of the provenance, as pairs of a name and a text."""
    pairs = [(name, str(v).replace("+00:00", " UTC")) for name, v in provenance.items() if name not in SHOWN_APART]
    pairs += [("seconds of the fit", f"{provenance['seconds']:.1f}")] if "seconds" in provenance else []
    pairs += [(f"version of {package}", str(number)) for package, number in provenance.get("versions", {}).items()]
    return pairs


def python_code(provenance: dict[str, Any]) -> str:
    """Return the Python code that repeats the fit, if the parameters are known."""
    parameters, method = provenance.get("parameters"), provenance.get("method")
    usual = (BMP().get_params() if method == "BMP" else {}) | {"verbose": (parameters or {}).get("verbose")}
    kept = [f"{name}={value!r}" for name, value in (parameters or {}).items() if (name, value) not in usual.items()]
    return shortened(f"boolcp.{method}({', '.join(kept)}).fit(X)", 500) if parameters and method else ""


def unbroken(text: Any) -> str:
    """Return a text whose numbers stay on one line with their units, and whose unnamed modes are written as words."""
    text = re.sub(r"(?<=\d) (?=%|(?:[mµμn]?s|k?Hz|[mµμn]?V|counts)\b)", NO_BREAK, str(text))
    text = re.sub(r"\bp ([<=]) (?=\d)", rf"p{NO_BREAK}\1{NO_BREAK}", text)
    return re.sub(r"(?<![\w./\"'-])mode ?(\d+)(?!\.?\w)", rf"mode{NO_BREAK}\1", text)


def _with_unit(W: BooleanCP, number: str) -> str:
    return number if W.labels is None else f"{number} {W.labels.value_unit or ''}".rstrip()


def _listing(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
