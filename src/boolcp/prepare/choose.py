"""Parts of a recording: by label, by condition, and without what is bad."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from boolcp.prepare.common import DataArray, floating, labels_of, need_mode, noted
from boolcp.prepare.tables import Table, read_columns
from boolcp.result.labels import label_text
from boolcp.system import load_extra

MAX_KNOWN = 20  # labels that an error lists
PERIOD = ("condition_label", "condition_start", "condition_stop")  # attributes with the periods of a recording


def select(X: DataArray, dim: str, values: Iterable[Any]) -> DataArray:
    """Return the part of X at these labels of one mode, in the order given; text matches numbers too.

    Examples
    --------
    >>> X = xr.DataArray(np.zeros((3, 5)), {"channel": [1, 2, 3]}, ("channel", "time"))
    >>> boolcp.prepare.select(X, "channel", ["3", 1])["channel"].values.tolist()
    [3, 1]
    """
    values = list(values)
    return noted(X.isel({dim: positions(X, dim, values)}), X, f"select {dim} {', '.join(map(str, values))}")


def positions(X: DataArray, dim: str, values: Iterable[Any]) -> list[int]:
    """Return the positions of labels of one mode, or raise a ValueError that names the first unknown one."""
    need_mode(X, dim, "the selection")
    labels, wanted = labels_of(X, dim), [label_text(value) for value in values]
    known = {label_text(label): n for n, label in reversed(list(enumerate(labels)))}
    if unknown := [text for text in wanted if text not in known]:
        raise ValueError(f"Mode {dim!r} has no {unknown[0]}; its labels run from {labels[0]} to {labels[-1]}.")
    return [known[text] for text in wanted]


def select_condition(X: DataArray, condition: str) -> DataArray:
    """Return the part of a recording under one condition.

    A condition is a period of the recording (see `list_conditions`), or a value of a coordinate: a label is searched
    first in the coordinate "condition", then in all others, and "name=label" in one of them. Case does not matter; for
    a label with tags such as "go/left", one tag is enough.

    Examples
    --------
    >>> X = xr.DataArray(np.zeros((2, 4)), {"condition": ("trial", ["a", "b", "a", "b"])}, ("channel", "trial"))
    >>> boolcp.prepare.select_condition(X, "b").shape
    (2, 2)
    """
    periods = list_conditions(X)
    chosen = [(start, stop) for label, start, stop in periods if is_condition(label, condition)]
    if chosen:
        times = X["time"].values
        pieces = [np.flatnonzero((times >= start) & (times < stop)) for start, stop in chosen]
        part = X.isel(time=np.concatenate(pieces))
        if len(pieces) > 1:
            part = part.assign_coords(segment=("time", np.repeat(np.arange(len(pieces)), [len(p) for p in pieces])))
        part = noted(part, X, f"condition {condition}")
        part.attrs = {name: value for name, value in part.attrs.items() if name not in PERIOD}
        return part
    columns = {str(n): c.values for n, c in X.coords.items() if c.ndim == 1 and str(n) not in (*X.dims, "segment")}
    is_uncut = "event_onset" in X.attrs and "trial" not in X.dims
    advice = " To cut at events, use cut_trials (--cut)." if is_uncut else ""
    name, rows = find_rows(columns, condition, [label for label, _, _ in periods], advice)
    return noted(X.isel({X.coords[name].dims[0]: rows}), X, f"condition {condition}")


def find_rows(
    columns: Mapping[str, np.ndarray], condition: str, periods: Iterable[str] = (), advice: str = ""
) -> tuple[str, np.ndarray]:
    """Return the column that contains a condition, and its rows; the labels of periods and an advice are for errors."""
    wanted = {name: condition for name, values in columns.items() if values.dtype.kind in "USOb"}
    column, _, label = condition.partition("=")
    found: dict[str, np.ndarray] = {}
    for choice in (wanted, {column: label} if label and column in columns else {}):
        rows = {name: [is_condition(label_text(v), text) for v in columns[name]] for name, text in choice.items()}
        found = found or {name: np.flatnonzero(is_on) for name, is_on in rows.items() if any(is_on)}
    if not found:
        labels = columns.get("condition", next(iter(columns.values()), ()))
        known = sorted(set(periods) or {str(label) for label in labels})
        if not known:
            raise ValueError(f"No conditions are known, so {condition!r} cannot be selected.{advice}")
        listing = ", ".join(known[:MAX_KNOWN]) + (", .." if known[MAX_KNOWN:] else "")
        others = ", ".join(name for name in columns if name != "condition") if "condition" in columns else ""
        further = f"; other columns: {others}" if others else ""
        raise ValueError(f"There is no condition {condition!r}; the conditions are {listing}{further}.{advice}")
    if len(found) > 1 and "condition" not in found:
        names = " or ".join(f"{name}={condition}" for name in found)
        raise ValueError(f"Several columns contain the condition {condition!r}: write {names}.")
    name = "condition" if "condition" in found else next(iter(found))
    return name, found[name]


def is_condition(label: str, condition: str) -> bool:
    """Return True if a label is the condition, or has it as one of its tags."""
    label, condition = label.lower(), condition.lower()
    return condition == label or condition in label.split("/")


def list_conditions(X: DataArray) -> list[tuple[str, float, float]]:
    """Return the conditions of a recording: the label, start and end (s) of each period.

    Examples
    --------
    >>> attrs = {"condition_label": ["rest"], "condition_start": [0.0], "condition_stop": [2.0]}
    >>> boolcp.prepare.list_conditions(xr.DataArray(np.zeros((1, 3)), dims=("channel", "time"), attrs=attrs))
    [('rest', 0.0, 2.0)]
    """
    attrs = [np.atleast_1d(X.attrs.get(name, [])) for name in PERIOD]
    return [(str(label), float(start), float(stop)) for label, start, stop in zip(*attrs, strict=True)]


def reject(X: DataArray, *, peak_to_peak: float | None = None, table: Table | None = None) -> DataArray:
    """Return X with its bad parts as NaN: a channel that is bad in one trial is lost in that trial only.

    Reject after filtering, which cannot handle NaN.

    Parameters
    ----------
    peak_to_peak : float, optional
        The largest plausible range of a channel in a trial, in the unit of X.
    table : DataFrame or mapping, optional
        Bad parts by the labels of modes, one in each row (columns channel and trial, say).

    Examples
    --------
    >>> X = xr.DataArray(np.zeros((2, 50, 3)), dims=("channel", "time", "trial"))
    >>> X[1, 20, 2] = 900
    >>> Y = boolcp.prepare.reject(X, peak_to_peak=150)
    >>> np.isnan(Y.values).any(axis=1).tolist()
    [[False, False, False], [False, False, True]]
    """
    need_mode(X, None, "rejecting")
    Y, bad = floating(X), {}
    if peak_to_peak is not None:
        need_mode(X, "time", "rejecting by amplitude")
        bad[f"peak to peak above {peak_to_peak:g}"] = Y.max("time") - Y.min("time") > peak_to_peak
    if table is not None:
        columns = read_columns(table)
        dims = [str(dim) for dim in X.dims if dim in columns]
        if not dims:
            raise ValueError(f"The table of bad parts names no mode: its columns are {', '.join(columns) or 'none'}.")
        is_bad = np.zeros([X.sizes[dim] for dim in dims], dtype=bool)
        is_bad[tuple(positions(X, dim, columns[dim]) for dim in dims)] = True
        bad["table"] = load_extra("xarray", "files").DataArray(is_bad, dims=dims)
    if not bad:
        raise ValueError("Say what to reject: peak_to_peak or table (--reject, --reject-table).")
    before, rules = int(Y.count()), ", ".join(bad)
    for part in bad.values():
        Y = Y.where(~part)
    if not int(Y.count()):
        raise ValueError(f"Nothing is left of the data after rejecting ({rules}): check the limits.")
    share = 100 * (before - int(Y.count())) / X.size
    return noted(Y.transpose(*X.dims), X, f"reject: {share:.1f} % of the entries ({rules})")
