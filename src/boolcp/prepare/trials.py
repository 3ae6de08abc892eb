"""From a recording, or a list of events, to a tensor with a mode of trials."""

import numpy as np

from boolcp.extras import load_extra
from boolcp.prepare.common import noted, sampling_rate, segments


def cut_trials(X, ms, *, n_trials=None):
    """Return a recording cut into consecutive trials of so many milliseconds: channel x time x trial.

    Parameters
    ----------
    X : DataArray
        The recording, with a mode "time". A rest shorter than a trial is left out, at the end of each segment.
    ms : float
        Length of a trial.
    n_trials : int, optional
        Keep only the first ones; an error if there are fewer.

    Returns
    -------
    DataArray
        With time in seconds from the start of each trial, and the start of each trial in the recording as the
        coordinate "onset" (s).

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.zeros((2, 1000)), {"time": np.arange(1000) / 100}, ("channel", "time"))
    >>> dict(prepare.cut_trials(X, 3000).sizes)
    {'channel': 2, 'time': 300, 'trial': 3}
    """
    if "trial" in X.dims:
        raise ValueError("The data already has a mode 'trial': leave the cutting (--bin-ms) out.")
    rate = sampling_rate(X)
    size = round(ms * rate / 1000)
    if size < 1:
        raise ValueError(f"A trial of {ms} ms is shorter than one sample at {rate:g} Hz.")
    arrays, onsets = [], []
    for piece in segments(X):
        count = piece.sizes["time"] // size
        values = np.moveaxis(piece.values, piece.dims.index("time"), -1)[..., : count * size]
        arrays.append(values.reshape(*values.shape[:-1], count, size))
        onsets.append(piece["time"].values[: count * size : size])
    onset = np.concatenate(onsets)
    if len(onset) == 0 or len(onset) < (n_trials or 0):
        length = X.sizes["time"] / rate
        raise ValueError(f"{length:g} s of data give {len(onset)} trials of {ms:g} ms; {n_trials or 1} are needed.")
    values = np.concatenate(arrays, axis=-2)[..., : n_trials or len(onset), :]
    others = [dim for dim in X.dims if dim != "time"]
    coords = {name: coord for name, coord in X.coords.items() if "time" not in coord.dims}
    coords["time"] = "time", np.arange(size) / rate, {"units": "s"}
    coords["trial"] = "trial", np.arange(values.shape[-2])
    coords["onset"] = "trial", onset[: values.shape[-2]], {"units": "s"}
    result = load_extra("xarray", "labels").DataArray(
        np.swapaxes(values, -1, -2), coords, [*others, "time", "trial"], name=X.name
    )
    return noted(result, X, f"cut into {values.shape[-2]} trials of {ms:g} ms")


def count_events(units, times, trials, *, bin_ms, start=None, stop=None):
    """Return how often each unit fired in each bin of each trial: a tensor unit x time x trial of counts.

    Parameters
    ----------
    units, times, trials : array-like of shape (n_events,)
        Unit, time (ms) and trial of each event.
    bin_ms : float
        Length of the bins.
    start, stop : float, optional
        First and last time (ms); by default 0 or the first event if that is earlier, and the last event.

    Returns
    -------
    DataArray
        Counts as float64; the time of a bin is its left edge, in seconds.

    Examples
    --------
    >>> from boolcp import prepare
    >>> X = prepare.count_events([0, 0, 1], [1.0, 7.0, 12.0], [0, 0, 1], bin_ms=5, stop=15)
    >>> X.sel(unit=0, trial=0).values.tolist()
    [1.0, 1.0, 0.0]
    """
    units, times, trials = (np.ravel(values) for values in (units, times, trials))
    if not len(units) == len(times) == len(trials) or not len(units):
        raise ValueError(f"Events need vectors of one length, got {len(units)}, {len(times)} and {len(trials)}.")
    if not bin_ms > 0 or not np.isfinite(times.astype(float)).all():
        raise ValueError("Events need finite times and bins of positive length.")
    start = min(0.0, float(times.min())) if start is None else float(start)
    stop = np.nextafter(float(times.max()), np.inf) if stop is None else float(stop)
    n_bins = max(int(np.ceil((stop - start) / bin_ms)), 1)
    inside = (times >= start) & (times < stop)
    unit_names, unit_index = np.unique(units[inside], return_inverse=True)
    trial_names, trial_index = np.unique(trials[inside], return_inverse=True)
    bins = np.minimum(((times[inside] - start) / bin_ms).astype(int), n_bins - 1)
    counts = np.zeros((len(unit_names), n_bins, len(trial_names)))
    np.add.at(counts, (unit_index, bins, trial_index), 1)
    edges = (start + bin_ms * np.arange(n_bins)) / 1000
    coords = {"unit": unit_names, "time": ("time", edges, {"units": "s"}), "trial": trial_names}
    X = load_extra("xarray", "labels").DataArray(counts, coords, ("unit", "time", "trial"), name="count")
    X.attrs = {"preparation": [f"count events in bins of {bin_ms:g} ms"], "sampling_rate": 1000 / bin_ms}
    return X


def join(arrays, dim, names=None):
    """Return several arrays as one: one after the other along a mode that they have, else side by side along a new one.

    Parameters
    ----------
    arrays : sequence of DataArray
        Arrays of the same modes and sizes, except along `dim` if they have it.
    dim : str
        The mode to join along.
    names : sequence of str, optional
        One name for each array: the coordinate of a new mode, else a coordinate "part" along the joined one.

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
                f"Arrays of different modes or sizes cannot be joined along {dim!r}: {shapes[0]}; {shapes[1]}."
            )
    if len(arrays) == 1 and not is_new:
        return arrays[0]
    X = load_extra("xarray", "labels").concat(
        arrays, dim, coords="minimal", compat="override", join="override", combine_attrs="override"
    )
    if is_new:
        X = X.transpose(*arrays[0].dims, dim)
        return X if names is None else X.assign_coords({dim: list(names)})
    if names is not None:
        X = X.assign_coords(part=(dim, np.repeat(list(names), [array.sizes[dim] for array in arrays])))
        if dim in X.coords and dim != "time":
            X = X.assign_coords({dim: np.arange(X.sizes[dim])})
    return X
