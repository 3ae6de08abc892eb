"""Tables of trials and events: one row for each, every column a coordinate of the trials."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from boolcp.prepare.common import DataArray, labels_of, need_mode, noted
from boolcp.result.labels import label_text, plain_values

ONSETS, STOPS = ("onset", "start_time", "start"), ("stop", "stop_time", "end")
TIMES = (*ONSETS, *STOPS, "duration")
CONDITIONS = ("condition", "trial_type", "description")  # their names in the tables of BIDS and MNE
EVENT = "event_"  # prefix of the attributes that are columns of the table of events

Table = Any  # a pandas DataFrame, or a mapping of names to columns


def read_columns(table: Table) -> dict[str, np.ndarray]:
    """Return the columns of a DataFrame or mapping by name; missing text is empty, missing numbers are NaN."""
    table = table.as_dataframe() if hasattr(table, "as_dataframe") else table  # an IntervalSet of pynapple
    if not hasattr(table, "columns") and not isinstance(table, Mapping):
        raise TypeError(f"A table is a pandas DataFrame or a dict of columns, got {type(table).__name__}.")
    columns = {str(n): plain_column(np.asarray(seconds(c) if n in TIMES else c)) for n, c in table.items()}
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        listing = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise ValueError(f"The columns of a table must have the same length, got {listing}.")
    return columns


def seconds(times: Any) -> Any:
    """Return times in seconds: those of neo have a unit, a Ts of pynapple has them apart."""
    return times.rescale("s").magnitude if hasattr(times, "rescale") else getattr(times, "t", times)


def plain_column(values: np.ndarray) -> np.ndarray:
    """Return a column as numbers, dates or text."""
    values = np.atleast_1d(values)
    if values.ndim != 1:
        raise ValueError(f"A column of a table must have one value for each row, got an array of shape {values.shape}.")
    if values.dtype.kind not in "OT":
        return values
    values = values.astype(object)
    is_missing = np.array([v is None or type(v).__name__ == "NAType" or bool(v != v) for v in values], dtype=bool)
    kept = values[~is_missing]  # NAType is the NA of pandas, which has no truth value
    if len(kept) == len(values) and all(isinstance(value, bool | np.bool_) for value in kept):
        return values.astype(bool)
    if len(kept) and all(isinstance(value, int | float | np.number) for value in kept):
        return np.where(is_missing, np.nan, values).astype(float)
    return plain_values(np.where(is_missing, "", values).astype(object))


def add_table(X: DataArray, table: Table, dim: str | None = None) -> DataArray:
    """Return X with the columns of a table as coordinates along one mode: conditions, reaction times, areas.

    A name that is already in use is prefixed with that of the mode.

    Parameters
    ----------
    table : DataFrame or mapping of str to sequence
        One row for each entry of the mode, in its order, or with a column that has the name and the labels of the mode.
    dim : str, optional
        The mode; by default "trial", otherwise the only mode with as many entries as the table has rows.

    Examples
    --------
    >>> X = xr.DataArray(np.zeros((4, 3)), dims=("channel", "trial"))
    >>> X = boolcp.prepare.add_table(X, {"condition": ["go", "stop", "go"], "reaction_time": [0.3, 0.5, 0.2]})
    >>> boolcp.prepare.select_condition(X, "go")["reaction_time"].values.tolist()
    [0.3, 0.2]
    """
    need_mode(X, None, "a table of trials")
    columns = read_columns(table)
    n_rows = len(next(iter(columns.values()), ()))
    dim = _mode_of_table(X, columns, n_rows) if dim is None else dim
    if dim not in X.dims:
        raise ValueError(f"The table is for mode {dim!r}, but the modes are {', '.join(map(str, X.dims))}.")
    order = _row_order(X, dim, columns, n_rows)
    named = {name: values[order] for name, values in columns.items() if name != dim}
    if "trial_type" in named and "condition" not in {*named, *X.coords}:
        named["condition"] = named.pop("trial_type")  # the name in BIDS
    taken = {str(name) for name in (*X.dims, *X.coords)}
    coords = {f"{dim}_{name}" if name in taken else name: (dim, values) for name, values in named.items()}
    return noted(X.assign_coords(coords), X, f"table of {dim}s: {', '.join(coords)}")


def _mode_of_table(X: DataArray, columns: Mapping[str, np.ndarray], n_rows: int) -> str:
    fitting = [str(dim) for dim, size in X.sizes.items() if dim in columns or size == n_rows]
    if "trial" in X.dims or len(fitting) == 1:
        return "trial" if "trial" in X.dims else fitting[0]
    sizes = ", ".join(f"{size} {dim}" for dim, size in X.sizes.items())
    advice = 'name the mode of the trials "trial" (dims=, --dims), with one row for each'
    raise ValueError(f"The table has {n_rows} rows, and the tensor is {sizes}: {advice}.")


def _row_order(X: DataArray, dim: str, columns: Mapping[str, np.ndarray], n_rows: int) -> np.ndarray:
    """Return the row of each entry of a mode."""
    labels = [label_text(label) for label in labels_of(X, dim)]
    if dim not in columns:
        if n_rows != len(labels):
            sizes = f"{n_rows} rows, but there are {len(labels)} entries of mode {dim!r}"
            raise ValueError(f"The table has {sizes}: give one row for each, or a column {dim!r} with their labels.")
        return np.arange(n_rows)
    rows = {label_text(label): n for n, label in enumerate(columns[dim])}
    if len(rows) < n_rows:
        raise ValueError(f"The column {dim!r} of the table names some {dim} twice: give one row for each.")
    if missing := [label for label in labels if label not in rows]:
        raise ValueError(f"The table has no row for {len(missing)} of the {dim}s, for example {missing[0]}.")
    return np.array([rows[label] for label in labels], dtype=int)


def list_events(X: DataArray) -> dict[str, np.ndarray]:
    """Return the table of events of a recording, {column: values}: their onset (s), stop, condition and more.

    It comes from MNE annotations, BIDS events or NWB trials; `cut_trials` cuts at these events.

    Examples
    --------
    >>> X = boolcp.prepare.set_events(xr.DataArray(np.zeros((2, 3)), dims=("channel", "time")), {"onset": [0.5, 1.5]})
    >>> boolcp.prepare.list_events(X)["onset"].tolist()
    [0.5, 1.5]
    """
    found = {str(name).removeprefix(EVENT): value for name, value in X.attrs.items() if str(name).startswith(EVENT)}
    return {name: np.atleast_1d(value) for name, value in found.items()}


def set_events(X: DataArray, table: Table) -> DataArray:
    """Return a recording with a table of its events, which must have a column "onset", in seconds.

    Columns of BIDS and NWB (`duration`, `trial_type`, `start_time`, `stop_time`) are understood.

    Examples
    --------
    >>> X = xr.DataArray(np.zeros((2, 300)), dims=("channel", "time"))
    >>> X = boolcp.prepare.set_events(X, {"onset": [0.5], "duration": [1.0], "trial_type": ["go"]})
    >>> {name: values.tolist() for name, values in boolcp.prepare.list_events(X).items()}
    {'onset': [0.5], 'stop': [1.5], 'condition': ['go']}
    """
    columns = read_events(table)
    result = X.copy(deep=False)
    result.attrs = {name: value for name, value in X.attrs.items() if not str(name).startswith(EVENT)}
    return result.assign_attrs({f"{EVENT}{name}": values.tolist() for name, values in columns.items()})


def read_events(table: Table) -> dict[str, np.ndarray]:
    """Return the columns of a table of events under boolcp's names: onset, stop, condition first."""
    columns = read_columns(table)
    found = {
        name: next((known for known in names if known in columns), None)
        for name, names in (("onset", ONSETS), ("stop", (*STOPS, "duration")), ("condition", CONDITIONS))
    }
    if found["onset"] is None:
        raise ValueError(f"A table of events needs a column 'onset' (s); it has {', '.join(columns) or 'none'}.")
    named = {name: columns.pop(known) for name, known in found.items() if known is not None}
    for name in ("onset", "stop"):
        if name in named and named[name].dtype.kind not in "fiu":
            raise ValueError(f"The column {found[name]!r} must hold seconds, but it holds {named[name].dtype}.")
    named["onset"] = named["onset"].astype(float)
    if "stop" in named:
        named["stop"] = named["stop"] + (named["onset"] if found["stop"] == "duration" else 0.0)
    if "condition" in named:
        named["condition"] = named["condition"].astype(str)
    return named | columns
