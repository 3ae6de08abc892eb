"""The words and numbers of the page: data, fit, atoms, origin."""

import base64
import json
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from boolcp import plotting
from boolcp.bmp import BMP
from boolcp.fit.state import STOP_REASONS
from boolcp.plotting.mode_labels import MAX_STATES, further_names, is_named, quantity_of, unit_of
from boolcp.result.atoms import BooleanCP
from boolcp.result.summary import apart_text, explained_word, percent, proved_percent, shape_text
from boolcp.result.trust import Trust, p_text, sure_share
from boolcp.trust.verdict import verdicts

MAX_NAMES, MAX_RUNS = 60, 30  # that are listed
MAX_SEARCHED = 50_000  # labels of a mode that the page holds for the search
FEW_OFF = 6  # up to this many entries that are off are named instead of those that are on
NO_BREAK = "\u00a0"
# what the page shows elsewhere, or not as a parameter
SHOWN_APART = {"history", "parameters", "versions", "data", "command", "random_state", "stop_reason", "is_partial"}
SHOWN_APART |= {"tests", "residual_check"}


def describe_modes(W: BooleanCP) -> Any:
    """Return the name, size and coordinates of each mode, one dict each."""
    rows = []
    for n, size in enumerate(W.shape):
        labels = plotting.coordinate_text(W, n)
        has_coords = W.labels is not None and W.labels.dims[n] in W.labels.coords
        rows.append(
            {
                "number": n,
                "name": plotting.mode_text(W, n),
                "size": size,
                "range": _range_text(labels, unit_of(W, n)) if has_coords and size else "-",
                "further": ", ".join(further_names(W, n)) or "-",
                "n_atoms": int(np.sum(W.boolean_mode == n)),
            }
        )
    return rows


def _range_text(labels: Any, unit: str) -> Any:
    """Return the first and the last label of a mode, or all of a few."""
    text = ", ".join(labels) if len(labels) <= MAX_STATES else f"{labels[0]} to {labels[-1]}"
    return f"{text} {unit}".strip()


def describe_data(W: BooleanCP, provenance: dict[str, Any]) -> Any:
    """Describe the decomposed tensor, as pairs of a name and a text."""
    pairs = [("Shape", shape_text(W))]
    if value_label(W) != "size":
        pairs.append(("Quantity", value_label(W)))
    if W.data_norm2 is not None:
        n_entries = int(np.prod(W.shape, dtype=object))
        n_missing = 0 if W.data_gram is None else provenance.get("data", {}).get("n_missing")
        if n_missing is not None:
            size = np.sqrt(W.data_norm2 / max(n_entries - n_missing, 1))
            pairs.append(("Scale (root mean square)", _with_unit(W, f"{size:.4g}")))
        pairs.append(("Missing entries", missing_text(n_missing, n_entries)))
    for n, slices in (W.undetermined or {}).items():
        names = [text for text, is_empty in zip(plotting.coordinate_text(W, n), slices, strict=True) if is_empty]
        if names:
            pairs.append((f"Without any data, {plotting.mode_text(W, n)}", _listing(names)))
    data = provenance.get("data", {})
    pairs += [("Source", data["source"])] if data.get("source") else []
    pairs += [("Preparation", "; ".join(map(str, data["preparation"])))] if data.get("preparation") else []
    pairs += [("Type", data["dtype"])] if data.get("dtype") else []
    pairs += [("SHA-256", data["fingerprint"])] if data.get("fingerprint") else []
    return pairs


def describe_residual(W: BooleanCP, check: Any) -> Any:
    """Describe the residual, as pairs of a name and a text."""
    if check is None:
        return []
    names = [plotting.mode_text(W, n) for n in range(W.ndim)]
    edges = ", ".join(f"{name} {edge:.3f}" for name, edge in zip(names, check.structure, strict=True))
    lags = ", ".join(f"{name} {lag:+z.2f}" for name, lag in zip(names, check.lag_correlation, strict=True))
    leftover = "no pattern stands out" if check.is_noise else "structure is left"
    return [
        ("Residual", leftover),
        ("Residual, root mean square", _with_unit(W, f"{check.rms:.4g}")),
        ("Residual, excess kurtosis", f"{check.kurtosis:z.2f}"),
        ("Residual, largest singular value by mode (white noise: at most 1)", edges),
        ("Residual, correlation of neighbors by mode (white noise: 0)", lags),
    ]


def missing_text(n_missing: int, n_entries: int) -> str:
    """Return how many entries are missing, in words; None means an unknown number."""
    if n_missing == 0:
        return "none"
    count = "some" if n_missing is None else f"{n_missing} of {n_entries} ({percent(n_missing / n_entries)})"
    return f"{count}; the fit is over the observed ones"


def describe_fit(W: BooleanCP, provenance: dict[str, Any]) -> Any:
    """Describe the quality of the fit, as pairs of a name and a text."""
    n_asked = provenance.get("parameters", {}).get("n_atoms")
    is_fewer = isinstance(n_asked, int) and n_asked > W.n_atoms
    count = apart_text(W) if any(atom.is_baseline for atom in W.atoms) else str(W.n_atoms)
    pairs = [("Atoms", f"{count} of {n_asked} that were asked for" if is_fewer else count)]
    if has_shares(W):
        pairs.append((f"{explained_word(W).capitalize()} explained", f"{100 * W.explained():.2f} %"))
        if (error := result_error(W)) is not None:
            pairs.append(("Relative error", f"{error:.4f}"))
    if provenance.get("is_partial"):
        pairs.append(("Note", "stopped early: a valid but partial result"))
    if provenance.get("stop_reason"):
        reason = provenance["stop_reason"]
        dropped = "; not all of them were kept" if is_fewer and reason == STOP_REASONS["n_atoms"] else ""
        pairs.append(("The pursuit stopped because", reason + dropped))
    return pairs


def result_error(W: BooleanCP) -> Any:
    """Return the relative error of the result, or None if the data are not known or squares were not fitted."""
    return float(np.sqrt(max(1 - W.explained(), 0.0))) if has_shares(W) and W.deviance is None else None


def describe_atoms(W: BooleanCP) -> list[dict[str, Any]]:
    """Return numbers and words about each atom, in order; sort keys end in `_order`."""
    known, nothing = W.trust or Trust(), np.full(W.n_atoms, np.nan)
    alone, unique = (W.explained_alone(), W.explained_unique()) if has_shares(W) else (nothing, nothing)
    judged, sure = verdicts(W), sure_share(W)
    if sure is not None:  # the bits of an atom of noise mean nothing
        sure = np.where([verdict.is_significant is False for verdict in judged], np.nan, sure)
    shares = {
        "alone": alone,
        "unique": unique,
        "certificate": np.array([atom.certificate for atom in W.atoms], dtype=float),
        "stability": nothing if known.stability is None else known.stability,
        "sure": nothing if sure is None else sure,
    }
    digits = {"stability": 0, "sure": 0}
    p = nothing if known.p_adjusted is None else known.p_adjusted
    rows = []
    for k, atom in enumerate(W.atoms):
        numbers = {"ones": atom.n_ones, "p": 2.0 if np.isnan(p[k]) else float(p[k])}
        numbers |= {name: -1.0 if np.isnan(values[k]) else float(values[k]) for name, values in shares.items()}
        rows.append(
            {
                "number": k,
                "is_baseline": atom.is_baseline,
                "mode": plotting.mode_text(W, atom.mode),
                "mode_number": atom.mode,
                "ones": f"{atom.n_ones} of {len(atom.z)}",
                "rank": "block" if atom.rank is None else str(atom.rank),
                "weight": f"{W.weights[k]:.4g}",
                "p": "-" if np.isnan(p[k]) else p_text(p[k]),
                "on": on_text(W, k),
                "entries": plural(W, atom.mode),
                "bits": packed(atom.z),
                "verdict": judged[k].text,
                **{name: percent(values[k], digits.get(name, 1)) for name, values in shares.items()},
                "certificate": proved_percent(atom.certificate),
                **{f"{name}_order": value for name, value in numbers.items()},
            }
        )
    return rows


def trust_columns(W: BooleanCP) -> list[tuple[str, str]]:
    """Return the key and heading of each column on trust in the table of atoms."""
    known = W.trust or Trust()
    found = [("sure", "sure bits")] if sure_share(W) is not None else []
    found += [("stability", "stability")] if known.stability is not None else []
    return found + ([("p", "p")] if known.p_adjusted is not None else [])


def share_notes(W: BooleanCP, shares: Sequence[str]) -> list[str]:
    """Explain those columns of shares that the table has."""
    notes = {
        "alone": f"share of the {explained_word(W)} that the atom explains by itself",
        "unique": f"share of the {explained_word(W)} that is lost without the atom",
        "certificate": "share of the best possible score that its bits are proved to reach, at least",
    }
    return [f"{name}: {notes[name]}" for name in shares]


def trust_notes(W: BooleanCP) -> list[str]:
    """Explain the columns on trust."""
    known = W.trust or Trust()
    notes = ["sure bits: share of the bits that the data leave at least 95 % sure"] if sure_share(W) is not None else []
    if known.stability is not None:
        notes.append(f"stability: share of {known.stable_over} that find the atom again")
    if known.p_adjusted is not None or known.stability is not None:
        notes.append(
            "informative: no test speaks against it, and it is neither (almost) always on, nor on once only, nor "
            "doubled or canceled by other atoms"
        )
    if known.p_adjusted is not None:
        notes.append(f"p: is the atom more than noise ({known.tested_by}, false discoveries controlled)")
    return notes


def packed(z: np.ndarray) -> str:
    """Return bits as text, eight in each byte, the first in the lowest position."""
    return base64.b64encode(np.packbits(z, bitorder="little").tobytes()).decode()


def search_labels(W: BooleanCP) -> dict[str, list[str]]:
    """Return the labels of the Boolean modes, by which the page searches atoms; without very long modes."""
    modes = sorted({atom.mode for atom in W.atoms})
    return {str(n): plotting.coordinate_text(W, n) for n in modes if W.shape[n] <= MAX_SEARCHED}


def on_text(W: BooleanCP, k: int) -> str:
    """Describe where an atom is on: runs of neighboring numbers as ranges, names one by one."""
    atom = W.atoms[k]
    unit, n_off = unit_of(W, atom.mode), len(atom.z) - atom.n_ones
    if not atom.n_ones or not n_off:
        return "nowhere" if n_off else f"all {len(atom.z)} {plural(W, atom.mode)}"
    if n_off <= min(FEW_OFF, len(atom.z) // 4):
        return f"all but {entries_text(W, atom.mode, ~atom.z)} {unit}".rstrip()
    return f"{entries_text(W, atom.mode, atom.z)} {unit}".rstrip()


def entries_text(W: BooleanCP, mode: int, z: np.ndarray) -> str:
    """Return the labels of some entries of a mode: runs of neighboring numbers as ranges, names one by one."""
    names = plotting.coordinate_text(W, mode)
    if has_names(W, mode):
        return _listing([names[i] for i in np.flatnonzero(z)])
    edges = np.flatnonzero(np.diff(np.concatenate([[0], z.astype(int), [0]])))
    runs = [
        ", ".join(names[start:stop]) if stop - start < 3 else f"{names[start]} to {names[stop - 1]}"
        for start, stop in edges.reshape(-1, 2)
    ]
    n_more = int(sum(stop - start for start, stop in edges.reshape(-1, 2)[MAX_RUNS:]))
    return ", ".join(runs[:MAX_RUNS]) + (f" and {n_more} more" if n_more else "")


def has_names(W: BooleanCP, mode: int) -> bool:
    """Return True if the entries of a mode have names, not numbers in order."""
    return plotting.coordinates_of(W, mode) is not None and plotting.line_places(W, mode) is None


def plural(W: BooleanCP, mode: int) -> str:
    """Return the plural for entries of a mode."""
    if not is_named(W, mode):
        return f"entries of mode {mode}"
    name = W.mode_name(mode)
    if name == "time":
        return "time points"
    return f"{name[:-1]}ies" if name.endswith("y") else (name if name.endswith("s") else f"{name}s")


def adjective(name: str, value: str) -> str:
    """Return a value as an adjective: with the name of its column if it means nothing by itself."""
    return f"{name}={value}" if value in ("True", "False") or value.replace(".", "").isdigit() else value


def verdict(diagnosis: Any) -> Any:
    """Say whether the decomposition is unique, or nothing if that was not examined."""
    if diagnosis is None:
        return ""
    is_open = set(diagnosis.verdicts) == {"not guaranteed"}
    return diagnosis.words + ("" if is_open else " This is about the sum of the atoms; noise is a different matter.")


def describe_origin(provenance: dict[str, Any]) -> Any:
    """Return parameters, seed, versions and the rest of the provenance, as pairs of a name and a text."""
    parameters = provenance.get("parameters", {})
    shown = {name: _text(value) for name, value in provenance.items() if name not in (*SHOWN_APART, "seconds")}
    if "created" in shown:
        shown["created"] = shown["created"].replace("T", " ").replace("+00:00", " UTC")
    pairs = list(shown.items())
    pairs += [("seconds of the fit", f"{provenance['seconds']:.1f}")] if "seconds" in provenance else []
    if "random_state" in provenance:
        pairs.append(("seed", _text(provenance["random_state"])))
    pairs += [(f"version of {package}", str(number)) for package, number in provenance.get("versions", {}).items()]
    given = {name: value for name, value in parameters.items() if name not in ("random_state", "verbose")}
    pairs += [(name, "default" if value is None else _text(value)) for name, value in given.items()]
    return pairs


def python_code(provenance: dict[str, Any]) -> str:
    """Return the Python code that repeats the fit, if the parameters are known."""
    parameters = provenance.get("parameters")
    if not parameters or not provenance.get("method"):
        return ""
    usual = BMP().get_params() if provenance["method"] == "BMP" else {}
    kept = {name: value for name, value in parameters.items() if name not in usual or usual[name] != value}
    options = ", ".join(f"{name}={value!r}" for name, value in kept.items() if name != "verbose")
    return f"boolcp.{provenance['method']}({options}).fit(X)"


def has_shares(W: BooleanCP) -> Any:
    """Return True if shares of variance are known."""
    return bool(W.data_norm2) and W.data_inner is not None and W.n_atoms > 0


def title_of(W: BooleanCP, provenance: dict[str, Any]) -> str:
    """Return the title of the page: the name of the recording, or of the measured quantity."""
    first, _, more = str(provenance.get("data", {}).get("source") or "").partition(" and ")
    stem = PurePath(first).name.partition(".")[0]
    stem = f"{stem} and {more}" if more else stem
    return stem or quantity_of(W) or f"A tensor of {shape_text(W)}"


def subtitle_of(W: BooleanCP) -> str:
    """Return what was decomposed, in one line."""
    name = "" if value_label(W) == "size" else f"{value_label(W)}, "
    sizes = " x ".join(f"{d} {plural(W, n)}" if is_named(W, n) else str(d) for n, d in enumerate(W.shape))
    return f"{name}{sizes}, in {apart_text(W)}"


def value_label(W: BooleanCP) -> str:
    """Return the measured quantity with its unit if known."""
    name, unit = quantity_of(W) or "size", "" if W.labels is None else W.labels.value_unit
    return f"{name} ({unit})" if unit else name


def _with_unit(W: BooleanCP, number: Any) -> Any:
    return number if W.labels is None else f"{number} {W.labels.value_unit or ''}".rstrip()


def _listing(names: Any) -> Any:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def unbroken(text: Any) -> str:
    """Return a text whose numbers stay on one line with their units, and whose unnamed modes are written as words.

    Examples
    --------
    >>> from boolcp.report.words import NO_BREAK, unbroken
    >>> unbroken("30 % of mode1 (p < 0.001)").replace(NO_BREAK, "_")
    '30_% of mode_1 (p_<_0.001)'
    """
    text = re.sub(r"(?<=\d) (?=%|(?:[mµμn]?s|k?Hz|[mµμn]?V|counts)\b)", NO_BREAK, str(text))
    text = re.sub(r"\bp ([<=]) (?=\d)", rf"p{NO_BREAK}\1{NO_BREAK}", text)
    return re.sub(r"(?<![\w./\"'-])mode ?(\d+)(?!\.?\w)", rf"mode{NO_BREAK}\1", text)


def _text(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return value if isinstance(value, str) else json.dumps(value, default=str)
