"""From a recording, or from trials of unequal length, to a tensor with a mode of trials."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp.checks import BoolcpWarning
from boolcp.extras import load_extra
from boolcp.memory import available_memory, float_bytes
from boolcp.prepare.choose import find_rows
from boolcp.prepare.common import DataArray, floating, need_mode, noted, sampling_rate, segments
from boolcp.prepare.tables import Table, add_table, list_events, read_events

ALL = "all"  # the events of a recording, whatever their condition


def cut_trials(
    X: DataArray,
    ms: float | tuple[float, float] | None = None,
    *,
    events: Table | str | None = None,
    align: str | ArrayLike | None = None,
    n_trials: int | None = None,
) -> DataArray:
    """Return a recording cut into trials, channel x time x trial: consecutive ones, or one for each event.

    Trials may differ in length: what a shorter one lacks is NaN, which counts as missing.

    Parameters
    ----------
    X : DataArray
        The recording, with a mode "time". No trial crosses the boundary between two segments.
    ms : float or (float, float), optional
        Length of a trial in milliseconds or, with `events`, its start and stop around each event. Without it, each
        trial lasts from the onset of its event to its stop.
    events : DataFrame, mapping or str, optional
        A table with one row for each trial: its `onset` and, unless `ms` is given, its `stop` or `duration`, in
        seconds of the recording. All other columns become coordinates of the trials. A string is a condition of the
        events of the recording (see `list_events`), or "all". Without events, trials of `ms`
        milliseconds follow each other, and the remainder at the end of a segment is dropped.
    align : str or sequence of float, optional
        What becomes time 0 of each trial, in seconds of the recording: a column of the table, or one value for each
        event. By default the onset.
    n_trials : int, optional
        Keep only the first `n_trials`; it is an error if there are fewer.

    Returns
    -------
    DataArray
        With time in seconds from time 0 of each trial, and the onset of each trial in the recording as the coordinate
        "onset" (s).

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.zeros((2, 1000)), {"time": np.arange(1000) / 100}, ("channel", "time"))
    >>> dict(prepare.cut_trials(X, 3000).sizes)
    {'channel': 2, 'time': 300, 'trial': 3}

    Around events, and from onset to stop, aligned to a movement:

    >>> table = {"onset": [1.0, 4.0], "stop": [2.5, 5.0], "move": [1.5, 4.2], "cue": ["left", "right"]}
    >>> Y = prepare.cut_trials(X, (-200, 800), events=table)
    >>> dict(Y.sizes), float(Y["time"][0]), Y["cue"].values.tolist()
    ({'channel': 2, 'time': 100, 'trial': 2}, -0.2, ['left', 'right'])
    >>> Y = prepare.cut_trials(X, events=table, align="move")
    >>> [round(float(t), 2) for t in Y["time"][[0, -1]]], int(Y.isel(channel=0).isnull().sum())
    ([-0.5, 0.99], 50)
    """
    need_mode(X, "time", "cutting into trials")
    if "trial" in X.dims:
        raise ValueError("The data already has a mode 'trial': do not cut it again (omit --bin-ms, --cut).")
    if events is None:
        if ms is None or np.ndim(ms) != 0:
            raise ValueError(
                "Give the length of the trials in milliseconds (ms=, --bin-ms), or events to cut at (events=, --cut)."
            )
        return _consecutive(X, float(ms), n_trials)  # type: ignore[arg-type]
    columns = choose_events(X, events) if isinstance(events, str) else read_events(events)
    return _around(X, columns, ms, align, n_trials)


def _consecutive(X: DataArray, ms: float, n_trials: int | None) -> DataArray:
    """Return trials that follow each other."""
    rate = sampling_rate(X)
    size = round(ms * rate / 1000)
    if size < 1:
        raise ValueError(f"A trial of {ms} ms is shorter than one sample at {rate:g} Hz.")
    arrays, onsets = [], []
    for piece in segments(X):
        count = piece.sizes["time"] // size
        values = np.moveaxis(piece.values, piece.dims.index("time"), -1)[..., : count * size]
        arrays.append(values.reshape(*values.shape[:-1], count, size))
        times = piece["time"].values if "time" in piece.coords else np.arange(piece.sizes["time"]) / rate
        onsets.append(times[: count * size : size])
    onset = np.concatenate(onsets)
    if len(onset) == 0 or len(onset) < (n_trials or 0):
        length = X.sizes["time"] / rate
        raise ValueError(f"{length:g} s of data give {len(onset)} trials of {ms:g} ms, but {n_trials or 1} are needed.")
    values = np.concatenate(arrays, axis=-2)[..., : n_trials or len(onset), :]
    result = _with_trials(X, np.swapaxes(values, -1, -2), np.arange(size) / rate)
    result = result.assign_coords(onset=("trial", onset[: values.shape[-2]], {"units": "s"}))
    return noted(result, X, f"cut into {values.shape[-2]} trials of {ms:g} ms")


def _around(
    X: DataArray, columns: dict[str, np.ndarray], ms: Any, align: str | ArrayLike | None, n_trials: int | None
) -> DataArray:
    """Return one trial for each event of a table."""
    rate = sampling_rate(X)
    zero, starts, stops = spans(columns, ms, align)
    pieces, firsts, kept = _pieces(X, zero, starts, stops, rate, is_whole=ms is not None)
    if len(kept) == 0 or len(kept) < (n_trials or 0):
        raise ValueError(f"{len(kept)} of {len(zero)} trials lie within the recording, but {n_trials or 1} are needed.")
    if len(kept) < len(zero):
        warnings.warn(
            f"{len(zero) - len(kept)} of {len(zero)} trials lie outside of the recording.", BoolcpWarning, stacklevel=3
        )
    kept = kept[:n_trials]
    values, first = padded(pieces[:n_trials], firsts[:n_trials])
    result = _with_trials(X, values, (first + np.arange(values.shape[-2])) / rate)
    table = {name: column[kept] for name, column in columns.items()}
    result = add_table(result, table | {"trial": np.arange(len(kept))})
    result["onset"].attrs["units"] = "s"
    length = "their own length" if ms is None else f"{starts[0] - zero[0]:g} to {stops[0] - zero[0]:g} s"
    how = f", time 0 at {align}" if isinstance(align, str) else ""
    return noted(result, X, f"cut into {len(kept)} trials at events, {length}{how}")


def choose_events(X: DataArray, condition: str) -> dict[str, np.ndarray]:
    """Return the events of a recording with one condition, or all."""
    columns = list_events(X)
    if not columns:
        raise ValueError("The recording has no events to cut at: pass a table (events=, --trials).")
    if condition == ALL:
        return read_events(columns)
    rows = find_rows(columns, condition)[1]
    return read_events({name: values[rows] for name, values in columns.items()})


def spans(columns: dict[str, np.ndarray], ms: Any, align: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return time 0, start and stop of each trial, in seconds of the recording."""
    zero = columns["onset"]
    if isinstance(align, str):
        if align not in columns or columns[align].dtype.kind not in "fiu":
            numeric = [name for name, values in columns.items() if values.dtype.kind in "fiu"]
            raise ValueError(f"align names {align!r}, but the columns with times are {', '.join(numeric)}.")
        zero = columns[align].astype(float)
    elif align is not None:
        zero = np.asarray(align, dtype=float)
        if zero.shape != columns["onset"].shape:
            raise ValueError(f"align has shape {zero.shape}, but there are {len(columns['onset'])} events.")
    if ms is None:
        if "stop" not in columns:
            raise ValueError("Give the length of the trials in milliseconds, or a column stop or duration.")
        return zero, columns["onset"], columns["stop"]
    start, stop = (0.0, float(ms)) if np.ndim(ms) == 0 else (float(edge) for edge in ms)
    if not start < stop:
        raise ValueError(f"A trial from {start:g} to {stop:g} ms has no length: give start before stop.")
    return zero, zero + start / 1000, zero + stop / 1000


def _pieces(
    X: DataArray, zero: np.ndarray, starts: np.ndarray, stops: np.ndarray, rate: float, *, is_whole: bool
) -> tuple[list[np.ndarray], list[int], np.ndarray]:
    """Return the samples of each trial, the number of its first sample after time 0, and the trials that exist.

    `is_whole` drops trials that extend beyond the recording; otherwise they are cut off.
    """
    values = np.moveaxis(floating(X).values, X.dims.index("time"), -1)
    times = X["time"].values if "time" in X.coords else np.arange(X.sizes["time"]) / rate
    borders = np.cumsum([0, *(piece.sizes["time"] for piece in segments(X))])
    pieces, firsts, kept = [], [], []
    for n, moments in enumerate(zip(zero, starts, stops, strict=True)):
        if not np.isfinite(moments).all():
            continue
        at = int(np.clip(np.searchsorted(times, moments[1] - 0.5 / rate), 0, len(times) - 1))
        low, high = borders[np.searchsorted(borders, at, side="right") - 1 :][:2]  # the segment that it starts in
        first, last = (round((moment - times[at]) * rate) + at for moment in moments[1:])
        begin, end = max(first, low), min(last, high)
        if begin < end and not (is_whole and (begin, end) != (first, last)):
            pieces.append(values[..., begin:end])
            firsts.append(round((times[begin] - moments[0]) * rate))
            kept.append(n)
    return pieces, firsts, np.array(kept, dtype=int)


def padded(pieces: Sequence[np.ndarray], firsts: Sequence[int]) -> tuple[np.ndarray, int]:
    """Return pieces (.., n_i) that begin at given samples as one array (.., n, trials), and its first sample."""
    first = min(firsts)
    size = max(begin + piece.shape[-1] for piece, begin in zip(pieces, firsts, strict=True)) - first
    shape = (*pieces[0].shape[:-1], size, len(pieces))
    dtype = np.result_type(np.float32, *(piece.dtype for piece in pieces))
    need = float_bytes(shape, dtype)
    if need > available_memory():
        raise MemoryError(
            f"The trials, padded to the longest of them, need {need / 1e9:.1f} GB: check the longest, or resample."
        )
    result = np.full(shape, np.nan, dtype)
    for n, (piece, begin) in enumerate(zip(pieces, firsts, strict=True)):
        result[..., begin - first : begin - first + piece.shape[-1], n] = piece
    return result, first


def _with_trials(X: DataArray, values: np.ndarray, times: np.ndarray) -> DataArray:
    """Return an array (.., time, trial) with the other labels of X."""
    others = [dim for dim in X.dims if dim != "time"]
    coords = {name: coord for name, coord in X.coords.items() if "time" not in coord.dims}
    coords |= {"time": ("time", times, {"units": "s"}), "trial": ("trial", np.arange(values.shape[-1]))}
    return load_extra("xarray", "labels").DataArray(values, coords, [*others, "time", "trial"], name=X.name)


def stack_trials(
    arrays: Sequence[Any],
    *,
    sampling_rate: float | None = None,
    times: Sequence[Any] | None = None,
    align: ArrayLike | None = None,
    channels: ArrayLike | None = None,
    table: Table | None = None,
) -> DataArray:
    """Return trials of unequal length as one tensor, channel x time x trial, with NaN where a trial has no samples.

    Parameters
    ----------
    arrays : sequence of array-like of shape (channel, time)
        One for each trial; or DataArrays with these modes, whose times and channels are kept.
    sampling_rate : float, optional
        Samples per second; not needed where times are given.
    times : sequence of array-like, optional
        The times of each trial in seconds; by default each trial begins at 0.
    align : sequence of float, optional
        The time in each trial, in seconds, that becomes 0: a movement, say.
    channels : sequence, optional
        Labels of the channels.
    table : DataFrame or mapping, optional
        One row for each trial; its columns become coordinates (see `add_table`).

    Returns
    -------
    DataArray
        The tensor. NaN counts as missing: a fit uses the samples that exist.

    Examples
    --------
    >>> import numpy as np
    >>> from boolcp import prepare
    >>> trials = [np.ones((2, 50)), np.ones((2, 80)), np.ones((2, 60))]
    >>> X = prepare.stack_trials(trials, sampling_rate=100, table={"condition": ["a", "b", "a"]})
    >>> dict(X.sizes), int(np.isnan(X.values[0]).sum(axis=0)[0])
    ({'channel': 2, 'time': 80, 'trial': 3}, 30)
    """
    arrays = list(arrays)
    labels = arrays[0] if arrays and hasattr(arrays[0], "dims") else None
    if labels is not None:
        times = [array["time"].values for array in arrays] if times is None and "time" in labels.coords else times
        channels = labels["channel"].values if channels is None and "channel" in labels.coords else channels
        sampling_rate = labels.attrs.get("sampling_rate") if sampling_rate is None else sampling_rate
        arrays = [array.transpose("channel", "time").values for array in arrays]
    values = [np.asarray(array) for array in arrays]
    shapes = sorted({array.shape for array in values})
    if not values or any(len(shape) != 2 or shape[0] != shapes[0][0] or shape[1] == 0 for shape in shapes):
        raise ValueError(f"Trials must be arrays channel x time with the same channels, got the shapes {shapes[:5]}.")
    if any(array.dtype.kind not in "fiub" for array in values):
        raise ValueError(f"Trials must be arrays of real numbers, got {values[0].dtype}.")
    rate = _common_rate(values, times) if sampling_rate is None else float(sampling_rate)
    begins = np.zeros(len(values)) if times is None else np.array([np.ravel(t)[0] for t in times], dtype=float)
    begins = begins if align is None else begins - _one_each(align, len(values))
    tensor, first = padded(values, [round(begin * rate) for begin in begins])
    coords: dict[str, Any] = {"time": ("time", (first + np.arange(tensor.shape[1])) / rate, {"units": "s"})}
    coords |= {"trial": ("trial", np.arange(tensor.shape[2]))}
    coords |= {} if channels is None else {"channel": ("channel", np.asarray(channels))}
    X = load_extra("xarray", "labels").DataArray(tensor, coords, ("channel", "time", "trial"))
    X.name = None if labels is None else labels.name
    X.attrs = {"sampling_rate": rate} if labels is None else labels.attrs | {"sampling_rate": rate}
    X = noted(X, X, f"{len(values)} trials of {shapes[0][1]} to {max(s[1] for s in shapes)} samples")
    return X if table is None else add_table(X, table, "trial")


def _common_rate(values: Sequence[np.ndarray], times: Sequence[Any] | None) -> float:
    """Return the sampling rate common to the times of all trials."""
    if times is None:
        raise ValueError("The sampling rate is unknown: pass sampling_rate, or the times of each trial.")
    vectors = [np.ravel(t).astype(float) for t in times]
    if [len(t) for t in vectors] != [array.shape[1] for array in values]:
        raise ValueError("times must have one vector for each trial, with one time for each of its samples.")
    steps = np.concatenate([np.diff(t) for t in vectors])
    if not len(steps) or not np.median(steps) > 0 or not np.allclose(steps, np.median(steps), rtol=0.01):
        raise ValueError("The times of the trials are not evenly spaced and increasing: resample the trials first.")
    return float(round(1 / np.median(steps), 6))


def _one_each(align: ArrayLike, n_trials: int) -> np.ndarray:
    moments = np.asarray(align, dtype=float)
    if moments.shape != (n_trials,) or not np.isfinite(moments).all():
        raise ValueError(f"align must have one finite time for each of the {n_trials} trials.")
    return moments


def join(arrays: Sequence[DataArray], dim: str, names: Sequence[str] | None = None) -> DataArray:
    """Join several arrays: one after the other along a mode that they have, or side by side along a new one.

    Parameters
    ----------
    arrays : sequence of DataArray
        Arrays of the same modes and sizes, except along `dim` if they have it.
    dim : str
        The mode to join along.
    names : sequence of str, optional
        One name for each array: the coordinate of the new mode, or a coordinate "part" along an existing one.

    Returns
    -------
    DataArray
        The joined array, with the coordinates of the first along the other modes.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.zeros((2, 3)), dims=("channel", "freq"))
    >>> prepare.join([X, X], "state", ["awake", "asleep"]).sizes["state"]
    2
    """
    arrays = list(arrays)
    is_new = dim not in arrays[0].dims
    for other in arrays[1:]:
        sizes = [{d: n for d, n in X.sizes.items() if d != dim} for X in (arrays[0], other)]
        if other.dims != arrays[0].dims or sizes[0] != sizes[1]:
            shapes = [", ".join(f"{n} {d}" for d, n in X.sizes.items()) for X in (arrays[0], other)]
            raise ValueError(
                f"Arrays with different modes or sizes cannot be joined along {dim!r}: {shapes[0]}; {shapes[1]}."
            )
    if len(arrays) == 1 and not is_new:
        return arrays[0]
    X = load_extra("xarray", "labels").concat(
        arrays, dim, coords="minimal", compat="override", join="override", combine_attrs="override"
    )
    counts = ["" if is_new else f" ({array.sizes[dim]})" for array in arrays]
    parts = ", ".join(f"{name}{size}" for name, size in zip(names or (), counts, strict=False))
    X = noted(X, arrays[0], f"join {len(arrays)} along {dim}{f': {parts}' if parts else ''}")
    sources = list(dict.fromkeys(str(array.attrs["source"]) for array in arrays if array.attrs.get("source")))
    if len(sources) > 1:
        X.attrs = X.attrs | {"source": f"{sources[0]} and {len(sources) - 1} more"}
    if is_new:
        X = X.transpose(*arrays[0].dims, dim)
        return X if names is None else X.assign_coords({dim: list(names)})
    if names is not None:
        X = X.assign_coords(part=(dim, np.repeat(list(names), [array.sizes[dim] for array in arrays])))
        if dim in X.coords and dim != "time":
            X = X.assign_coords({dim: np.arange(X.sizes[dim])})
    return X
