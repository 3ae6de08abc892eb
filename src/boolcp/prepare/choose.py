"""Parts of a recording: by label, by condition."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from boolcp.prepare.common import DataArray, label_text, labels_of, need_mode, noted

MAX_KNOWN = 20  # labels that an error lists


def select(X: DataArray, dim: str, values: Iterable[Any]) -> DataArray:
    """Return the part of X at these labels of one mode, in the order given.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.zeros((3, 5)), {"channel": [1, 2, 3]}, ("channel", "time"))
    >>> prepare.select(X, "channel", [3, 1])["channel"].values.tolist()
    [3, 1]
    """
    values = list(values)
    positions = [_position(X, dim, value) for value in values]
    return noted(X.isel({dim: positions}), X, f"select {dim} {', '.join(map(str, values))}")


def drop(X: DataArray, dim: str, values: Iterable[Any]) -> DataArray:
    """Return X without these labels of one mode (bad channels, say).

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.zeros((3, 5)), {"channel": [1, 2, 3]}, ("channel", "time"))
    >>> prepare.drop(X, "channel", [2])["channel"].values.tolist()
    [1, 3]
    """
    values = list(values)
    positions = {_position(X, dim, value) for value in values}
    keep = [n for n in range(X.sizes[dim]) if n not in positions]
    if not keep:
        raise ValueError(f"Nothing is left of mode {dim!r}: all {X.sizes[dim]} labels were dropped.")
    return noted(X.isel({dim: keep}), X, f"drop {dim} {', '.join(map(str, values))}")


def select_condition(X: DataArray, condition: str) -> DataArray:
    """Return the part of a recording under one condition.

    A condition is a value of a coordinate along some mode (events of MNE epochs, a column of a table of trials), or a
    period listed in ``attrs`` (NeuroTycho recordings, MNE annotations). Case does not matter; for a label
    with tags such as "go/left", one tag is enough.

    Parameters
    ----------
    X : DataArray
        The recording.
    condition : str
        Its label, searched first in the coordinate "condition", then in all others; or "name=label" for the
        coordinate of that name.

    Returns
    -------
    DataArray
        The part; periods separated in time get a coordinate "segment".

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.zeros((2, 4)), {"condition": ("trial", ["a", "b", "a", "b"])}, ("channel", "trial"))
    >>> prepare.select_condition(X, "b").shape
    (2, 2)
    >>> X = prepare.add_table(X, {"correct": [True, True, False, True]})
    >>> prepare.select_condition(X, "correct=True").shape
    (2, 3)
    """
    step = f"condition {condition}"
    chosen = [(start, stop) for label, start, stop in list_conditions(X) if is_condition(label, condition)]
    if not chosen:
        name, rows = find_rows(_columns(X, condition), condition)
        return noted(X.isel({X.coords[name].dims[0]: rows}), X, step)
    times = X["time"].values
    pieces = [np.flatnonzero((times >= start) & (times < stop)) for start, stop in chosen]
    selected = X.isel(time=np.concatenate(pieces))
    if len(pieces) > 1:
        selected = selected.assign_coords(segment=("time", np.repeat(np.arange(len(pieces)), [len(p) for p in pieces])))
    selected = noted(selected, X, step)
    for name in ("condition_label", "condition_start", "condition_stop"):
        selected.attrs.pop(name, None)
    return selected


def _columns(X: DataArray, condition: str) -> dict[str, np.ndarray]:
    """Return the coordinates that may hold a condition, or raise an error that says where it can be found."""
    columns = {str(n): c.values for n, c in X.coords.items() if c.ndim == 1 and str(n) not in (*X.dims, "segment")}
    if columns_with(columns, condition):
        return columns
    known = sorted({label for label, _, _ in list_conditions(X)})
    if "event_onset" in X.attrs and "trial" not in X.dims:
        lasting = f" (the conditions are {', '.join(known)})" if known else ""
        raise ValueError(
            f"No period of the recording has the condition {condition!r}{lasting}. To cut at events, use "
            f"cut_trials (--cut {condition})."
        )
    if known:
        raise ValueError(f"There is no condition {condition!r}; the conditions are {', '.join(known)}.")
    if not columns:
        raise ValueError(f"No conditions are known, so {condition!r} cannot be selected.")
    return columns


def find_rows(columns: Mapping[str, np.ndarray], condition: str) -> tuple[str, np.ndarray]:
    """Return the column that contains a condition, and its rows."""
    found = columns_with(columns, condition)
    if not found:
        labels = columns.get("condition", next(iter(columns.values())))
        known = sorted({str(label) for label in labels})
        listing = ", ".join(known[:MAX_KNOWN]) + (f" and {len(known) - MAX_KNOWN} more" if known[MAX_KNOWN:] else "")
        others = [name for name in columns if name != "condition"] if "condition" in columns else []
        further = f"; other columns: {', '.join(others)}" if others else ""
        raise ValueError(f"There is no condition {condition!r}; the conditions are {listing}{further}.")
    if len(found) > 1 and "condition" not in found:
        names = " or ".join(f"{name}={condition}" for name in found)
        raise ValueError(f"Several columns contain the condition {condition!r}: write {names}.")
    name = "condition" if "condition" in found else next(iter(found))
    return name, found[name]


def columns_with(columns: Mapping[str, np.ndarray], condition: str) -> dict[str, np.ndarray]:
    """Return the rows with a condition for each column that contains it; "name=label" looks in one column only."""
    found = {name: _rows(values, condition) for name, values in columns.items() if values.dtype.kind in "USOb"}
    found = {name: rows for name, rows in found.items() if len(rows)}
    name, _, label = condition.partition("=")
    if found or not label or name not in columns:
        return found
    rows = _rows(columns[name], label)
    return {name: rows} if len(rows) else {}


def _rows(values: np.ndarray, condition: str) -> np.ndarray:
    return np.flatnonzero([is_condition(label_text(value), condition) for value in values])


def is_condition(label: str, condition: str) -> bool:
    """Return True if a label is the condition, or has it as one of its tags."""
    label, condition = label.lower(), condition.lower()
    return condition == label or condition in label.split("/")


def list_conditions(X: DataArray) -> list[tuple[str, float, float]]:
    """Return the conditions of a recording: the label, start and end (s) of each period.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> attrs = {"condition_label": ["rest"], "condition_start": [0.0], "condition_stop": [2.0]}
    >>> prepare.list_conditions(xr.DataArray(np.zeros((1, 3)), dims=("channel", "time"), attrs=attrs))
    [('rest', 0.0, 2.0)]
    """
    attrs = [np.atleast_1d(X.attrs.get(f"condition_{name}", [])) for name in ("label", "start", "stop")]
    return [(str(label), float(start), float(stop)) for label, start, stop in zip(*attrs, strict=True)]


def _position(X: DataArray, dim: str, value: Any) -> int:
    """Return the position of a label of one mode; text matches numbers too."""
    need_mode(X, dim, "the selection")
    labels = labels_of(X, dim)
    matches = [n for n, label in enumerate(labels) if str(label) == str(value)]
    if not matches:
        first, last = labels[0], labels[-1]
        raise ValueError(f"Mode {dim!r} has no {value!r}; its labels run from {first} to {last}.")
    return matches[0]
