"""What the page says in words and numbers: data, fit, atoms, origin."""

import json

import numpy as np

from boolcp import plotting
from boolcp.plotting.mode_labels import unit_of
from boolcp.result.summary import proved_percent, shape_text

MAX_NAMES = 60
MAX_GROUPS, MAX_STATES = 12, 6  # groups of a coordinate; entries of a mode that are each a group
SURE = 0.05  # a bit is sure if it differs in at most this share of the fits
# what the page shows elsewhere, or not as a parameter
SHOWN_APART = {"history", "parameters", "versions", "data", "command", "random_state", "stop_reason", "is_partial"}
SHOWN_APART |= {"stability", "residual_check"}


def describe_modes(W):
    """Return name, size and coordinates of each mode, one dict for each."""
    rows = []
    for n, size in enumerate(W.shape):
        labels = plotting.coordinate_text(W, n)
        has_coords = W.labels is not None and W.labels.dims[n] in W.labels.coords
        further = [] if W.labels is None else [name for name, (dim, _) in W.labels.extra.items() if dim == W.dims[n]]
        rows.append(
            {
                "number": n,
                "name": plotting.mode_text(W, n),
                "size": size,
                "range": _range_text(labels, unit_of(W, n)) if has_coords and size else "-",
                "further": ", ".join(further) or "-",
                "n_atoms": int(np.sum(W.boolean_mode == n)),
            }
        )
    return rows


def _range_text(labels, unit):
    """Return the first and the last label of a mode, or all of a few."""
    text = ", ".join(labels) if len(labels) <= MAX_STATES else f"{labels[0]} to {labels[-1]}"
    return f"{text} {unit}".strip()


def describe_data(W, provenance):
    """Return what is known of the decomposed tensor, as pairs of a name and a text."""
    pairs = [("Shape", shape_text(W))]
    if W.labels is not None and W.labels.name:
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


def describe_residual(W, check):
    """Return what is left over, as pairs of a name and a text."""
    if check is None:
        return []
    edges = ", ".join(f"{name} {edge:.2f}" for name, edge in zip(check.mode_names, check.structure, strict=True))
    lags = ", ".join(f"{name} {lag:+.2f}" for name, lag in zip(check.mode_names, check.lag_correlation, strict=True))
    return [
        ("Residual", "no structure above white noise" if check.is_noise else "structure is left"),
        ("Residual, root mean square", _with_unit(W, f"{check.rms:.4g}")),
        ("Residual, excess kurtosis", f"{check.kurtosis:.2f}"),
        ("Residual, largest singular value by mode (white noise: at most 1)", edges),
        ("Residual, correlation of neighbors by mode (white noise: 0)", lags),
    ]


def missing_text(n_missing, n_entries):
    """Return how many entries are missing, in words; None stands for some."""
    if n_missing == 0:
        return "none"
    count = "some" if n_missing is None else f"{n_missing} of {n_entries} ({percent(n_missing / n_entries)})"
    return f"{count}; the fit is over the observed ones"


def describe_fit(W, provenance):
    """Return how good the fit is, as pairs of a name and a text."""
    pairs = [("Atoms", str(W.n_atoms))]
    if has_shares(W):
        pairs += [
            ("Variance explained", f"{100 * W.explained():.2f} %"),
            ("Relative error", f"{result_error(W):.4f}"),
        ]
    if provenance.get("is_partial"):
        pairs.append(("Note", "stopped early: a valid but partial result"))
    if provenance.get("stop_reason"):
        pairs.append(("The pursuit stopped because", provenance["stop_reason"]))
    return pairs


def result_error(W):
    """Return the relative error of the result, or None if the data are not known."""
    return float(np.sqrt(max(1 - W.explained(), 0.0))) if has_shares(W) else None


def describe_atoms(W, diagnosis, stability=None):
    """Return numbers and words on each atom, that with the largest share first; sort keys end in `_order`."""
    known = has_shares(W)
    alone, unique = (W.explained_alone(), W.explained_unique()) if known else np.full((2, W.n_atoms), np.nan)
    rows = []
    for k in np.argsort(-alone if known else -np.abs(W.weights), kind="stable").tolist():
        atom = W.atoms[k]
        came_back = np.nan if stability is None else stability.recurrence[k]
        shares = {"alone": alone[k], "unique": unique[k], "certificate": atom.certificate, "stability": came_back}
        rows.append(
            {
                "number": k,
                "mode": plotting.mode_text(W, atom.mode),
                "mode_number": atom.mode,
                "ones": f"{atom.n_ones} of {len(atom.z)}",
                "ones_order": atom.n_ones,
                "rank": "block" if atom.rank is None else str(atom.rank),
                "rank_order": 0 if atom.rank is None else atom.rank,
                "weight": f"{W.weights[k]:.4g}",
                "weight_order": float(W.weights[k]),
                "on": on_text(W, k),
                "verdict": "" if diagnosis is None else f"{diagnosis.verdicts[k]} ({diagnosis.reasons[k]})",
                "proved": "" if np.isnan(atom.certificate) else f"proved: {proved_words(atom.certificate)}",
                "stability_text": "" if stability is None else stability_text(stability, k),
                **{name: percent(share) for name, share in shares.items()},
                "certificate": proved_percent(atom.certificate),
                **{f"{name}_order": -1.0 if np.isnan(share) else float(share) for name, share in shares.items()},
            }
        )
    return rows


def proved_words(certificate):
    """Return in words what the certificate of an atom proves about its bits."""
    return f"its bits reach at least {proved_percent(certificate)} of the best possible score"


def stability_text(stability, k):
    """Return in words how often an atom came back and how sure its bits are."""
    text = f"came back in {percent(stability.recurrence[k])} of {stability.n_fits} fits ({stability.scheme})"
    p = np.asarray(stability.bit_probability[k], dtype=float)
    if not np.isfinite(p).any():
        return text
    return f"{text}, {percent(np.nanmean((p <= SURE) | (p >= 1 - SURE)))} of its bits sure"


def find_groups(W):
    """Return the coordinates that sort the entries of a mode into a few groups, as pairs of mode and name.

    Conditions of trials and areas of channels are such; so is a mode that is itself a few named states.
    """
    if W.labels is None:
        return []
    found = []
    for n, dim in enumerate(W.labels.dims):
        own = {dim: W.labels.coords[dim]} if dim in W.labels.coords else {}
        further = {name: values for name, (where, values) in W.labels.extra.items() if where == dim}
        for name, values in (own | further).items():
            values = np.asarray(values)
            n_groups = len({str(value) for value in values})
            top = MAX_STATES if n_groups == len(values) else MAX_GROUPS
            if values.dtype.kind in "USb" and 2 <= n_groups <= top:
                found.append((n, name))
    return found


def on_text(W, k):
    """Return where an atom is on, as words: runs of neighbors as ranges."""
    atom = W.atoms[k]
    names = plotting.coordinate_text(W, atom.mode)
    if not atom.n_ones:
        return "no entry"
    if atom.n_ones == len(atom.z):
        return f"all {len(atom.z)} entries"
    edges = np.flatnonzero(np.diff(np.concatenate([[0], atom.z.astype(int), [0]])))
    runs = [
        ", ".join(names[start:stop]) if stop - start < 3 else f"{names[start]} to {names[stop - 1]}"
        for start, stop in edges.reshape(-1, 2)
    ]
    return f"{_listing(runs)} {unit_of(W, atom.mode)}".rstrip()


def verdict(diagnosis):
    """Return in words whether the decomposition is the only one, or nothing where that is too costly to tell."""
    if diagnosis is None:
        return ""
    return f"{diagnosis.words} {diagnosis.reasons[0]}." if diagnosis else diagnosis.words


def describe_origin(provenance):
    """Return parameters, seed, versions and the rest of the provenance, as pairs of a name and a text."""
    parameters = provenance.get("parameters", {})
    pairs = [(name, _text(value)) for name, value in provenance.items() if name not in SHOWN_APART]
    if "random_state" in provenance:
        pairs.append(("seed", _text(provenance["random_state"])))
    pairs += [(f"version of {package}", str(number)) for package, number in provenance.get("versions", {}).items()]
    pairs += [(name, _text(value)) for name, value in parameters.items() if name not in ("random_state", "verbose")]
    return pairs


def python_code(provenance):
    """Return the Python that makes the fit again, if the parameters are known."""
    parameters = provenance.get("parameters")
    if not parameters or not provenance.get("method"):
        return ""
    options = ", ".join(f"{name}={value!r}" for name, value in parameters.items() if name != "verbose")
    return f"boolcp.{provenance['method']}({options}).fit(X)"


def has_shares(W):
    """Return True if shares of variance are known."""
    return bool(W.data_norm2) and W.data_inner is not None and W.n_atoms > 0


def title_of(W):
    """Return the title of the page."""
    name = W.labels.name if W.labels is not None and W.labels.name else "tensor"
    return f"{W.n_atoms} {'atom' if W.n_atoms == 1 else 'atoms'} of {name}"


def value_label(W):
    """Return what the numbers of the tensor are, with their unit if it is known."""
    name, unit = (None, None) if W.labels is None else (W.labels.name, W.labels.value_unit)
    return f"{name or 'size'} ({unit or 'arbitrary units'})"


def _with_unit(W, number):
    return number if W.labels is None else f"{number} {W.labels.value_unit or ''}".rstrip()


def _listing(names):
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def percent(share):
    """Return a share as text."""
    return "-" if np.isnan(share) else f"{100 * share:.1f} %"


def _text(value):
    return value if isinstance(value, str) else json.dumps(value, default=str)
