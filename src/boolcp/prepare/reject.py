"""Bad parts of a recording become NaN, which counts as missing: nothing else of a trial or channel is lost."""

from typing import Any

import numpy as np

from boolcp.extras import load_extra
from boolcp.prepare.common import DataArray, floating, label_text, labels_of, need_labels, need_mode, noted
from boolcp.prepare.tables import Table, list_events, read_columns


def reject(
    X: DataArray,
    *,
    peak_to_peak: float | None = None,
    flat: float | None = None,
    table: Table | None = None,
    label: str | None = None,
) -> DataArray:
    """Return X with its bad parts as NaN: a channel that is bad in one trial is lost in that trial only.

    Parameters
    ----------
    X : DataArray
        The tensor, or a continuous recording (filter it first: filters cannot handle NaN).
    peak_to_peak : float, optional
        The largest plausible range along "time", in the unit of X: a channel that exceeds it in a trial
        is rejected, as by `reject` of MNE.
    flat : float, optional
        The smallest plausible range along "time".
    table : DataFrame, mapping or DataArray of bool, optional
        What is bad: columns with the names of modes (channel and trial) and one row for each bad part, given by
        its labels; or an array over some of the modes of X, True where X is bad.
    label : str, optional
        Reject the time of events whose condition begins with this text (case is ignored): "bad" for MNE's annotations.

    Returns
    -------
    DataArray
        In floating point. What was rejected is noted in ``attrs["preparation"]``.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.zeros((2, 50, 3)), dims=("channel", "time", "trial"))
    >>> X[1, 20, 2] = 900
    >>> Y = prepare.reject(X, peak_to_peak=150)
    >>> np.isnan(Y.values).any(axis=1).tolist()
    [[False, False, False], [False, False, True]]
    >>> Y.attrs["preparation"]
    ['reject: 16.7 % of the entries (peak to peak above 150)']
    """
    need_labels(X, "rejecting")
    if all(value is None for value in (peak_to_peak, flat, table, label)):
        raise ValueError("Say what to reject: peak_to_peak, flat, table or label (--reject, --reject-table, ..).")
    Y, rules, bad = floating(X), [], []
    if peak_to_peak is not None or flat is not None:
        need_mode(X, "time", "rejecting by amplitude")
        height = Y.max("time") - Y.min("time")
        for limit, rule in ((peak_to_peak, "above"), (flat, "below")):
            if limit is not None:
                bad.append(height > limit if rule == "above" else height < limit)
                rules.append(f"peak to peak {rule} {limit:g}")
    if table is not None:
        bad.append(read_bad(X, table))
        rules.append("table")
    if label is not None:
        bad.append(bad_times(X, label))
        rules.append(f"events {label}")
    before = int(Y.count())
    for part in bad:
        Y = Y.where(~part)
    if not int(Y.count()):
        raise ValueError(f"Nothing is left of the data after rejecting ({', '.join(rules)}): check the limits.")
    share = 100 * (before - int(Y.count())) / X.size
    return noted(Y.transpose(*X.dims), X, f"reject: {share:.1f} % of the entries ({', '.join(rules)})")


def read_bad(X: DataArray, table: Any) -> DataArray:
    """Return what a table says is bad, as a DataArray of Booleans over the modes that it names."""
    xarray = load_extra("xarray", "labels")
    if hasattr(table, "dims"):
        if not set(table.dims) <= set(X.dims) or table.dtype != bool:
            raise ValueError(f"The array of what is bad must be Boolean over modes of X, got {table.dims}.")
        return table.drop_vars(table.coords)
    columns = read_columns(table)
    dims = [str(dim) for dim in X.dims if dim in columns]
    if not dims:
        raise ValueError(f"The table of bad parts names no mode: its columns are {', '.join(columns) or 'none'}.")
    bad = np.zeros([X.sizes[dim] for dim in dims], dtype=bool)
    places = [_places(X, dim, columns[dim]) for dim in dims]
    bad[tuple(places)] = True
    return xarray.DataArray(bad, dims=dims)


def _places(X: DataArray, dim: str, labels: np.ndarray) -> list[int]:
    known = {label_text(label): n for n, label in enumerate(labels_of(X, dim))}
    unknown = [label for label in labels if label_text(label) not in known]
    if unknown:
        raise ValueError(f"The table of bad parts names {unknown[0]!r}, which mode {dim!r} does not have.")
    return [known[label_text(label)] for label in labels]


def bad_times(X: DataArray, label: str) -> DataArray:
    """Return where the time of a recording lies in events whose condition begins with a label."""
    need_mode(X, "time", "rejecting by events")
    if "trial" in X.dims:
        raise ValueError("Events are rejected before the recording is cut into trials: reject first, then cut.")
    events = list_events(X)
    named = [str(name).lower().startswith(label.lower()) for name in events.get("condition", [])]
    if not any(named):
        raise ValueError(f"No event of the recording begins with {label!r}.")
    times, is_bad = X["time"].values, np.zeros(X.sizes["time"], dtype=bool)
    for n in np.flatnonzero(named):
        is_bad |= (times >= events["onset"][n]) & (times < events["stop"][n])
    return load_extra("xarray", "labels").DataArray(is_bad, dims="time")
