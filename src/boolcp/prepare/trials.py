"""From a recording, trials of unequal length, or spikes to a tensor with a mode of trials."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp.checks import BoolcpWarning
from boolcp.prepare.choose import find_rows
from boolcp.prepare.common import DataArray, floating, need_mode, noted, sampling_rate, segments, times_of
from boolcp.prepare.tables import Table, add_table, list_events, read_events, seconds
from boolcp.result.labels import aligned, label_order
from boolcp.system import available_memory, float_bytes, load_extra

ALL = "all"  # the events of a recording, whatever their condition
SHORT = 1.5  # ms; windows that are shorter are in seconds
SLACK = 1e-6  # of a bin, so that rounding does not move an event across an edge


def cut_trials(
    X: DataArray,
    ms: float | tuple[float, float] | None = None,
    *,
    events: Table | str | None = None,
    align: str | None = None,
    n_trials: int | None = None,
) -> DataArray:
    """Return a recording cut into trials, channel x time x trial: consecutive ones, or one for each event.

    What a shorter trial lacks is NaN. Times are in seconds from time 0 of each trial; the coordinate "onset" is where
    it begins in the recording. No trial crosses the boundary between two segments.

    Parameters
    ----------
    ms : float or (float, float), optional
        Length of a trial in milliseconds or, with `events`, its start and stop around each event; by default from the
        onset of its event to its stop.
    events : DataFrame, mapping or str, optional
        A table with the `onset` of each trial and, unless `ms` is given, its `stop` or `duration`, in seconds; other
        columns become coordinates of the trials. A string is a condition of the events of the recording (see
        `list_events`), or "all". Without events, trials of `ms` milliseconds follow each other.
    align : str, optional
        The column of the table with time 0 of each trial, in seconds of the recording; by default the onset.
    n_trials : int, optional
        Keep only the first `n_trials`; it is an error if there are fewer.

    Examples
    --------
    >>> X = xr.DataArray(np.zeros((2, 1000)), {"time": np.arange(1000) / 100}, ("channel", "time"))
    >>> dict(boolcp.prepare.cut_trials(X, 3000).sizes)
    {'channel': 2, 'time': 300, 'trial': 3}
    >>> Y = boolcp.prepare.cut_trials(X, (-200, 800), events={"onset": [1.0, 4.0], "cue": ["left", "right"]})
    >>> dict(Y.sizes), float(Y["time"][0]), Y["cue"].values.tolist()
    ({'channel': 2, 'time': 100, 'trial': 2}, -0.2, ['left', 'right'])
    """
    need_mode(X, "time", "cutting into trials")
    if "trial" in X.dims:
        raise ValueError("The data already has a mode 'trial': do not cut it again (omit --bin-ms, --cut).")
    rate = sampling_rate(X)
    if events is None:
        if ms is None or np.ndim(ms) != 0:
            advice = "(ms=, --bin-ms), or events to cut at (events=, --cut)"
            raise ValueError(f"Give the length of the trials in milliseconds {advice}.")
        columns, how = {"onset": _consecutive(X, float(ms), rate, n_trials)}, f"of {ms:g} ms"  # type: ignore[arg-type]
    else:
        columns, how = read_events(choose_events(X, events) if isinstance(events, str) else events), "at events"
    zero, before, after = spans(columns, ms, align)
    if events is not None and ms is not None and len(zero) and (after[0] - before[0]) * rate < 1.5:
        raise ValueError(f"The window {ms} ms has less than two samples at {rate:g} Hz: seconds are meant, times 1000?")
    pieces, firsts, kept = _pieces(X, zero, before, after, rate, is_whole=ms is not None)
    if len(kept) < (n_trials or 1):
        text = f"{len(kept)} of {len(zero)} trials lie within the recording, but {n_trials or 1} are needed: onsets run"
        text += f" from {np.min(zero, initial=np.inf):g} to {np.max(zero, initial=-np.inf):g} s, the recording"
        raise ValueError(f"{text} from {times_of(X)[0]:g} to {times_of(X)[-1]:g} s.")
    if len(kept) < len(zero):
        text = f"{len(zero) - len(kept)} of {len(zero)} trials lie outside of the recording."
        warnings.warn(text, BoolcpWarning, stacklevel=2)
    kept = kept[:n_trials]
    values, first = padded(pieces[:n_trials], firsts[:n_trials])
    coords = {name: coord for name, coord in X.coords.items() if "time" not in coord.dims}
    coords["time"] = "time", (first + np.arange(values.shape[-2])) / rate, {"units": "s"}
    dims = [*(dim for dim in X.dims if dim != "time"), "time", "trial"]
    result = load_extra("xarray", "files").DataArray(values, coords, dims, name=X.name)
    table = {name: column[kept] for name, column in columns.items()} | ({"time_zero": zero[kept]} if align else {})
    result = add_table(result.assign_coords(trial=np.arange(len(kept))), table, "trial")
    result["onset"].attrs["units"] = "s"
    if events is not None:
        how += ", their own length" if ms is None else f", {before[0]:g} to {after[0]:g} s"
        how += f", time 0 at {align}" if align else ""
    return noted(result, X, f"cut into {len(kept)} trials {how}")


def _consecutive(X: DataArray, ms: float, rate: float, n_trials: int | None) -> np.ndarray:
    """Return the onsets of trials that follow each other within each segment."""
    size, X = round(ms * rate / 1000), X.assign_coords(time=times_of(X))
    if size < 1:
        raise ValueError(f"A trial of {ms} ms is shorter than one sample at {rate:g} Hz.")
    times = [piece["time"].values for piece in segments(X)]
    onset = np.concatenate([t[: len(t) // size * size : size] for t in times]).astype(float)
    if len(onset) < (n_trials or 1):
        length = X.sizes["time"] / rate
        raise ValueError(f"{length:g} s of data give {len(onset)} trials of {ms:g} ms, but {n_trials or 1} are needed.")
    return onset


def choose_events(X: DataArray, condition: str) -> dict[str, np.ndarray]:
    """Return the events of a recording with one condition, or all."""
    columns = list_events(X)
    if not columns:
        raise ValueError("The recording has no events to cut at: pass a table (events=, --trials).")
    rows = slice(None) if condition == ALL else find_rows(columns, condition)[1]
    return {name: values[rows] for name, values in columns.items()}


def spans(columns: dict[str, np.ndarray], ms: Any, align: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return time 0 of each trial in seconds of the recording, and its start and stop in seconds from time 0."""
    zero = columns["onset"]
    if align is not None:
        if align not in columns or columns[align].dtype.kind not in "fiu":
            numeric = [name for name, values in columns.items() if values.dtype.kind in "fiu"]
            raise ValueError(f"align names {align!r}, but the columns with times are {', '.join(numeric)}.")
        zero = columns[align].astype(float)
    if ms is None:
        if "stop" not in columns:
            raise ValueError("Give the length of the trials in milliseconds, or a column stop or duration.")
        return zero, columns["onset"] - zero, columns["stop"] - zero
    start, stop = (0.0, float(ms)) if np.ndim(ms) == 0 else (float(edge) for edge in ms)
    if not start < stop:
        raise ValueError(f"A trial from {start:g} to {stop:g} ms has no length: give start before stop.")
    if stop - start < SHORT:
        raise ValueError(f"The window {ms} ms is shorter than {SHORT:g} ms: seconds are meant, times 1000?")
    return zero, np.full(len(zero), start / 1000), np.full(len(zero), stop / 1000)


def _pieces(
    X: DataArray, zero: np.ndarray, before: np.ndarray, after: np.ndarray, rate: float, *, is_whole: bool
) -> tuple[list[np.ndarray], list[int], np.ndarray]:
    """Return the samples of each trial, the number of its first sample after time 0, and the trials that exist.

    `is_whole` drops trials that extend beyond the recording; otherwise they are cut off.
    """
    values, times = np.moveaxis(floating(X).values, X.dims.index("time"), -1), times_of(X)
    borders = np.cumsum([0, *(piece.sizes["time"] for piece in segments(X))])
    pieces, firsts, kept = [], [], []
    for n in np.flatnonzero(np.isfinite(zero) & np.isfinite(before) & np.isfinite(after)):
        start = zero[n] + before[n]
        at = int(np.clip(np.searchsorted(times, start - 0.5 / rate), 0, len(times) - 1))
        low, high = borders[np.searchsorted(borders, at, side="right") - 1 :][:2]  # the segment that it starts in
        first = at + round((start - times[at]) * rate)
        last = first + round((after[n] - before[n]) * rate)  # events between two samples do not change the length
        begin, end = max(first, low), min(last, high)
        if begin < end and not (is_whole and (begin, end) != (first, last)):
            pieces.append(values[..., begin:end])
            firsts.append(round(before[n] * rate) + begin - first)
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
        text = f"The trials, padded to the longest of them, need {need / 1e9:.1f} GB"
        raise MemoryError(f"{text}: check the longest, or resample.")
    result = np.full(shape, np.nan, dtype)
    for n, (piece, begin) in enumerate(zip(pieces, firsts, strict=True)):
        result[..., begin - first : begin - first + piece.shape[-1], n] = piece
    return result, first


def stack_trials(
    arrays: Sequence[Any],
    *,
    sampling_rate: float | None = None,
    times: Sequence[Any] | None = None,
    channels: ArrayLike | None = None,
    table: Table | None = None,
) -> DataArray:
    """Return trials of unequal length as one tensor, channel x time x trial, with NaN where a trial has no samples.

    Parameters
    ----------
    arrays : sequence of array-like of shape (channel, time)
        One for each trial.
    sampling_rate, times : float, sequence of array-like, optional
        Samples per second, or the times of each trial in seconds; by default each trial begins at 0.
    channels, table : sequence, DataFrame or mapping, optional
        Labels of the channels, and the columns of the trials (see `add_table`).

    Examples
    --------
    >>> trials = [np.ones((2, 50)), np.ones((2, 80)), np.ones((2, 60))]
    >>> X = boolcp.prepare.stack_trials(trials, sampling_rate=100, table={"condition": ["a", "b", "a"]})
    >>> dict(X.sizes), int(np.isnan(X.values[0]).sum(axis=0)[0])
    ({'channel': 2, 'time': 80, 'trial': 3}, 30)
    """
    values = [np.asarray(array) for array in arrays]
    shapes = sorted({array.shape for array in values})
    if not values or any(len(shape) != 2 or shape[0] != shapes[0][0] or shape[1] == 0 for shape in shapes):
        raise ValueError(f"Trials must be arrays channel x time with the same channels, got the shapes {shapes[:5]}.")
    if any(array.dtype.kind not in "fiub" for array in values):
        raise ValueError(f"Trials must be arrays of real numbers, got {values[0].dtype}.")
    if times is None and sampling_rate is None:
        raise ValueError("The sampling rate is unknown: pass sampling_rate, or the times of each trial.")
    given = [np.arange(array.shape[1]) / sampling_rate for array in values] if times is None else times  # type: ignore[operator]
    vectors = [np.ravel(t).astype(float) for t in given]
    if [len(t) for t in vectors] != [array.shape[1] for array in values]:
        raise ValueError("times must have one vector for each trial, with one time for each of its samples.")
    steps = np.concatenate([np.diff(t) for t in vectors])
    if not len(steps) or not np.median(steps) > 0 or not np.allclose(steps, np.median(steps), rtol=0.01):
        raise ValueError("The times of the trials are not evenly spaced and increasing: resample the trials first.")
    rate = float(round(1 / np.median(steps), 6))
    tensor, first = padded(values, [round(t[0] * rate) for t in vectors])
    coords: dict[str, Any] = {"time": ("time", (first + np.arange(tensor.shape[1])) / rate, {"units": "s"})}
    coords |= {"trial": np.arange(tensor.shape[2])} | ({} if channels is None else {"channel": np.asarray(channels)})
    X = load_extra("xarray", "files").DataArray(tensor, coords, ("channel", "time", "trial"))
    what = f"{len(values)} trials of {shapes[0][1]} to {shapes[-1][1]} samples"
    X = noted(X, X.assign_attrs(sampling_rate=rate), what)
    return X if table is None else add_table(X, table, "trial")


def join(
    arrays: Sequence[DataArray], dim: str, names: Sequence[str] | None = None, *, is_sessions: bool = False
) -> DataArray:
    """Join several arrays: one after the other along a mode that they have, or side by side along a new one.

    Along the other modes, arrays are brought into the order of the labels of the first; other labels are an error, as
    are other sampling rates and units.
    Parts joined along "time" are segments. Names become the coordinate of a new mode, or "part" along an existing one.
    Sessions have a coordinate "session" instead, and a label that some of them lack, a channel say, is missing there.

    Examples
    --------
    >>> X = xr.DataArray(np.zeros((2, 3)), {"channel": ["Fz", "Cz"]}, ("channel", "freq"))
    >>> boolcp.prepare.join([X, X[::-1]], "state", ["awake", "asleep"])["channel"].values.tolist()
    ['Fz', 'Cz']
    """
    first, *others = arrays
    is_new = dim not in first.dims
    if not others and not is_new:
        return first
    for n, other in enumerate(others):
        which = f"Array {n + 2} of those joined along {dim!r}"
        # labels that are those of the first up to rounding, as times may be, are the same
        for mode in {*first.coords} & {*other.coords} & {*first.dims} - {dim} if is_sessions else ():
            if (order := label_order(first[mode].values, other[mode].values)) is not None:
                other = other.isel({mode: order}).assign_coords({mode: first[mode].values})
        others[n] = other = other if is_sessions else aligned(other, first, name=which, free=[dim])
        for ours, theirs, advice in zip(traits(first), traits(other), ("resample", "convert"), strict=True):
            if ours != theirs and None not in (ours, theirs):
                raise ValueError(f"{which} has {theirs} instead of {ours}: {advice} it.")
    parts = [first, *others]
    how = {"coords": "minimal", "compat": "override", "combine_attrs": "override"}
    X = load_extra("xarray", "files").concat(parts, dim, join="outer" if is_sessions else "override", **how)
    for name in [name for name in first.dims if name != dim and name in X.coords and is_sessions]:
        X = X.sel({name: list(dict.fromkeys(label for array in parts for label in array[name].values.tolist()))})
    counts = ["" if is_new else f" ({array.sizes[dim]})" for array in parts]
    listing = ", ".join(f"{name}{size}" for name, size in zip(names or (), counts, strict=False))
    X = noted(X, first, f"join {len(parts)} along {dim}{f': {listing}' if listing else ''}")
    sources = list(dict.fromkeys(str(array.attrs["source"]) for array in parts if array.attrs.get("source")))
    if len(sources) > 1:
        X.attrs = X.attrs | {"source": f"{sources[0]} and {len(sources) - 1} more"}
    if is_new:
        X = X.transpose(*first.dims, dim)
        return X if names is None else X.assign_coords({dim: list(names)})
    which_part = np.repeat(np.arange(len(parts)), [array.sizes[dim] for array in parts])
    if dim == "time" and "segment" not in X.coords:
        X = X.assign_coords(segment=(dim, which_part))
    if names is not None:
        X = X.assign_coords({"session" if is_sessions else "part": (dim, np.array(names)[which_part])})
        if dim in X.coords and dim != "time":
            X = X.assign_coords({dim: np.arange(X.sizes[dim])})
    return X


def traits(X: DataArray) -> tuple[str | None, str | None]:
    """Return the sampling rate and the unit of X as texts, None where they are unknown."""
    try:
        return f"{sampling_rate(X):.6g} Hz", X.attrs.get("units")
    except ValueError:  # no times, or uneven ones
        return None, X.attrs.get("units")


def count_events(
    units: Any, times: Any, trials: Any, *, bin_ms: float, start: float | None = None, stop: float | None = None
) -> DataArray:
    """Return the number of spikes of each unit in each bin of each trial: a tensor unit x time x trial.

    Parameters
    ----------
    units, times, trials : array-like of shape (n_events,)
        Unit, time (ms) and trial of each event.
    bin_ms, start, stop : float
        Length of the bins (ms), whose time is their left edge; first and last time (ms), by default 0 or the first
        event if that is earlier, and the last event.

    Examples
    --------
    >>> X = boolcp.prepare.count_events([0, 0, 1], [1.0, 7.0, 12.0], [0, 0, 1], bin_ms=5, stop=15)
    >>> X.sel(unit=0, trial=0).values.tolist()
    [1.0, 1.0, 0.0]
    """
    units, times, trials = (np.ravel(values) for values in (units, times, trials))
    if not len(units) == len(times) == len(trials) or not len(units):
        sizes = f"{len(units)}, {len(times)} and {len(trials)}"
        raise ValueError(f"The vectors of events must be equally long and not empty, got {sizes}.")
    if not bin_ms > 0 or not np.isfinite(times.astype(float)).all():
        raise ValueError("Events need finite times and bins of positive length.")
    rounding = np.finfo(times.dtype).eps * np.abs(times) / bin_ms if times.dtype.kind == "f" else 0.0
    times, slack = times.astype(float), np.clip(rounding, SLACK, 0.5)
    start = min(0.0, float(times.min())) if start is None else float(start)
    bins = np.floor((times - start) / bin_ms + slack).astype(int)
    n_bins = int(bins.max()) + 1 if stop is None else max(int(np.ceil((stop - start) / bin_ms - SLACK)), 1)
    inside = (bins >= 0) & (bins < n_bins) & (times < (np.inf if stop is None else stop))
    if np.sum(inside) > 1 and np.ptp(bins[inside]) == 0:
        text = f"All events lie in one bin of {bin_ms:g} ms, from {times.min():g} to {times.max():g} ms."
        warnings.warn(f"{text} Times are in ms: multiply seconds by 1000.", BoolcpWarning, stacklevel=2)
    unit_names, unit_index = np.unique(units[inside], return_inverse=True)
    trial_names, trial_index = np.unique(trials[inside], return_inverse=True)
    counts = np.zeros((len(unit_names), n_bins, len(trial_names)))
    np.add.at(counts, (unit_index, bins[inside], trial_index), 1)
    return _labelled(counts, unit_names, trial_names, start + bin_ms * np.arange(n_bins), bin_ms, "events")


def count_spikes(
    spike_times: Sequence[Any] | Mapping[Any, Any],
    events: Table,
    *,
    bin_ms: float,
    window_ms: tuple[float, float] | float | None = None,
    align: str | None = None,
    units: ArrayLike | None = None,
) -> DataArray:
    """Return the number of spikes of each unit in each bin of each trial, from spike times of the whole session.

    Parameters
    ----------
    spike_times : sequence of array-like, or mapping of unit to array-like
        For each unit the times of its spikes in the session, in seconds; ``segment.spiketrains`` of neo and a TsGroup
        of pynapple are taken as they are.
    events, window_ms, align : DataFrame, mapping or IntervalSet of pynapple, float or (float, float), str
        As `events`, `ms` and `align` in `cut_trials`. Bins beyond the ends of a trial are NaN.
    bin_ms, units : float, sequence
        Length of the bins, and labels of the units.

    Examples
    --------
    >>> table = {"onset": [1.0, 3.0], "stop": [1.2, 3.3]}
    >>> X = boolcp.prepare.count_spikes([[1.01, 1.02, 3.2], [3.0]], table, bin_ms=100)
    >>> X.sel(unit=0).values.T.tolist()
    [[2.0, 0.0, nan], [0.0, 0.0, 1.0]]
    """
    if isinstance(spike_times, Mapping):
        units, spike_times = list(spike_times), list(spike_times.values())
    trains = [np.sort(np.ravel(seconds(train)).astype(float)) for train in spike_times]
    if not trains or not bin_ms > 0:
        raise ValueError(f"Counting needs units and bins of positive length, got {len(trains)} units and {bin_ms} ms.")
    if bin_ms < 0.1:
        raise ValueError(f"Bins of {bin_ms:g} ms hold no two spikes of a unit: seconds are meant, times 1000?")
    columns, width = read_events(events), bin_ms / 1000
    zero, before, after = spans(columns, window_ms, align)
    firsts, lasts = np.ceil(before / width - SLACK), np.floor(after / width + SLACK)
    kept = np.flatnonzero(lasts > firsts)
    if not len(kept):
        raise ValueError(f"No trial is as long as one bin of {bin_ms:g} ms.")
    if len(kept) < len(zero):
        text = f"{len(zero) - len(kept)} of {len(zero)} trials are shorter than one bin."
        warnings.warn(text, BoolcpWarning, stacklevel=2)
    pieces = []
    for n in kept:
        edges = zero[n] + width * (np.arange(firsts[n], lasts[n] + 1) - SLACK)
        pieces.append(np.array([np.diff(np.searchsorted(train, edges)) for train in trains], dtype=float))
    if not any(piece.any() for piece in pieces) and any(map(len, trains)):
        (first, last), *_ = ((train[0], train[-1]) for train in trains if len(train))
        text = f"No spike lies in a trial: one unit's run from {first:g} to {last:g}, onsets from {min(zero):g} to"
        warnings.warn(f"{text} {max(zero):g}. Both are in seconds.", BoolcpWarning, stacklevel=2)
    counts, first = padded(pieces, firsts[kept].astype(int).tolist())
    names = np.arange(len(trains)) if units is None else np.asarray(units)
    lefts = (first + np.arange(counts.shape[1])) * bin_ms
    X = _labelled(counts, names, np.arange(len(kept)), lefts, bin_ms, "spikes")
    columns |= {"time_zero": zero} if align else {}
    return add_table(X, {name: values[kept] for name, values in columns.items()}, "trial")


def _labelled(
    counts: np.ndarray, units: np.ndarray, trials: np.ndarray, ms: np.ndarray, bin_ms: float, what: str
) -> DataArray:
    """Return counts with their labels; `ms` are the left edges of the bins."""
    coords = {"unit": units, "time": ("time", ms / 1000, {"units": "s"}), "trial": trials}
    X = load_extra("xarray", "files").DataArray(counts, coords, ("unit", "time", "trial"), name="count")
    X.attrs = {"preparation": [f"count {what} in bins of {bin_ms:g} ms"], "sampling_rate": 1000 / bin_ms}
    return X
