"""Signal processing of a recording: reference, filters, envelope, scale."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from boolcp.extras import load_extra
from boolcp.prepare.common import DataArray, floating, labels_of, need_mode, noted, sampling_rate, segments
from boolcp.prepare.trials import join


def common_average(X: DataArray) -> DataArray:
    """Return X minus the mean over its channels at each time.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.array([[1.0, 2.0], [3.0, 6.0]]), dims=("channel", "time"))
    >>> prepare.common_average(X).values.tolist()
    [[-1.0, -2.0], [1.0, 2.0]]
    """
    need_mode(X, "channel", "re-referencing")
    X = floating(X)
    return noted(X - X.mean("channel"), X, "common average reference")


def bipolar(X: DataArray, pairs: Iterable[tuple[Any, Any]]) -> DataArray:
    """Return the differences between pairs of channels, named "a-b" and placed at the midpoint of the two electrodes.

    Parameters
    ----------
    X : DataArray
        The recording; its coordinates "x" and "y" (positions) and "area" are carried over where they exist.
    pairs : sequence of pairs
        Labels of the two channels of each pair, as `read_pairs` returns them. Pairs with a channel that X lacks
        are left out.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.array([[1, 2], [3, 6]], dtype="int16"), {"channel": [7, 8]}, ("channel", "time"))
    >>> prepare.bipolar(X, [(8, 7)]).to_series().tolist()
    [2.0, 4.0]
    """
    need_mode(X, "channel", "re-referencing")
    pairs = list(pairs)
    known = {str(value): n for n, value in enumerate(labels_of(X, "channel"))}
    used = [(known[str(a)], known[str(b)]) for a, b in pairs if str(a) in known and str(b) in known]
    if not used:
        raise ValueError("None of the pairs has both of its channels in the data.")
    plus, minus = (X.isel(channel=list(positions)) for positions in zip(*used, strict=True))
    names = [f"{a}-{b}" for a, b in zip(labels_of(plus, "channel"), labels_of(minus, "channel"), strict=True)]
    values = floating(plus).values - floating(minus).values
    coords = {"channel": ("channel", names)}
    for name in ("x", "y"):
        if name in X.coords and X.coords[name].dims == ("channel",):
            coords[name] = "channel", (plus[name].values + minus[name].values) / 2
    if "area" in X.coords and X.coords["area"].dims == ("channel",):
        coords["area"] = "channel", plus["area"].values
    result = plus.drop_vars([n for n, c in plus.coords.items() if "channel" in c.dims]).copy(data=values)
    return noted(result.assign_coords(coords), X, f"bipolar reference, {len(used)} of {len(pairs)} pairs")


def band_pass(X: DataArray, low: float | None, high: float | None, *, order: int = 4) -> DataArray:
    """Return X band-passed along time from low to high (Hz), forward and backward, and so without delay.

    Parameters
    ----------
    X : DataArray
        The recording.
    low, high : float or None
        The edges of the band; None leaves that side open.
    order : int
        Order of the Butterworth filter.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> time = np.arange(1000) / 100
    >>> wave = np.sin(2 * np.pi * 10 * time) + np.sin(2 * np.pi * 40 * time)
    >>> X = xr.DataArray(wave[None], {"time": time}, ("channel", "time"))
    >>> round(float(prepare.band_pass(X, 5, 15).std() ** 2), 2)
    0.5
    """
    rate = sampling_rate(X)
    edges = [edge for edge in (low, high) if edge is not None]
    if not edges or not all(0 < edge < rate / 2 for edge in edges) or (len(edges) == 2 and edges[0] >= edges[1]):
        raise ValueError(f"The band {low} to {high} Hz must lie between 0 and half the sampling rate, {rate / 2:g} Hz.")
    kind = "bandpass" if len(edges) == 2 else ("highpass" if high is None else "lowpass")
    from scipy import signal  # slow to import, and most files are read without a filter

    sos = signal.butter(order, edges if len(edges) == 2 else edges[0], kind, fs=rate, output="sos")
    result = _along_time(X, lambda x: signal.sosfiltfilt(sos, x, padlen=min(len(x) - 1, int(3 * rate / edges[0]))))
    return noted(result, X, f"band-pass {low} to {high} Hz, Butterworth of order {order}, zero phase")


def notch(X: DataArray, frequency: float, *, width: float = 2.0) -> DataArray:
    """Return X without a narrow band (Hz) around the frequency of the power line.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> time = np.arange(4000) / 1000
    >>> X = xr.DataArray(np.sin(2 * np.pi * 50 * time)[None], {"time": time}, ("channel", "time"))
    >>> float(abs(prepare.notch(X, 50)).isel(time=slice(1000, 3000)).max()) < 0.02
    True
    """
    rate = sampling_rate(X)
    if not 0 < frequency < rate / 2:
        raise ValueError(
            f"The frequency {frequency} Hz must lie between 0 and half the sampling rate, {rate / 2:g} Hz."
        )
    from scipy import signal

    b, a = signal.iirnotch(frequency, frequency / width, fs=rate)
    result = _along_time(X, lambda x: signal.filtfilt(b, a, x, padlen=min(len(x) - 1, int(rate))))
    return noted(result, X, f"notch {frequency} Hz")


def envelope(X: DataArray, kind: str = "amplitude") -> DataArray:
    """Return the envelope of X along time, |x + i Hilbert(x)|: its amplitude, its square "power", or its "log".

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> time = np.arange(1000) / 100
    >>> X = xr.DataArray(3 * np.sin(2 * np.pi * 10 * time)[None], {"time": time}, ("channel", "time"))
    >>> float(prepare.envelope(X).median().round(2))
    3.0
    """
    if kind not in ("amplitude", "power", "log"):
        raise ValueError(f'kind must be "amplitude", "power" or "log", got {kind!r}.')
    from scipy import fft, signal

    def change(x: np.ndarray) -> np.ndarray:
        amplitude = np.abs(signal.hilbert(x, fft.next_fast_len(len(x)))[: len(x)])
        if kind == "log":
            return _safe_log10(amplitude)
        return amplitude**2 if kind == "power" else amplitude

    unit = {"amplitude": "{}", "power": "{}²", "log": "log10 {}"}[kind]
    return noted(_along_time(X, change), X, f"envelope ({kind})", unit)


def resample(X: DataArray, rate: float) -> DataArray:
    """Return X at a different sampling rate (Hz), by polyphase filtering (without aliasing).

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.ones((2, 3000)), {"time": np.arange(3000) / 1000}, ("channel", "time"))
    >>> prepare.resample(X, 100).shape
    (2, 300)
    """
    old = sampling_rate(X)
    if not 0 < rate < np.inf:
        raise ValueError(f"The sampling rate must be a positive number of Hz, got {rate}.")
    ratio = Fraction(rate / old).limit_denominator(10_000)
    from scipy import signal

    def change(x: np.ndarray) -> np.ndarray:
        return signal.resample_poly(x, ratio.numerator, ratio.denominator, padtype="line")

    pieces = []
    for piece in segments(X):
        values = _map_rows(piece, change)
        n_times = values.shape[piece.dims.index("time")]
        coords = {name: coord for name, coord in piece.coords.items() if "time" not in coord.dims}
        coords["time"] = "time", float(piece["time"][0]) + np.arange(n_times) / rate, piece["time"].attrs
        if "segment" in piece.coords:
            coords["segment"] = "time", np.full(n_times, piece["segment"].values[0])
        pieces.append(load_extra("xarray", "labels").DataArray(values, coords, piece.dims, name=X.name))
    result = noted(join(pieces, "time"), X, f"resample {old:g} to {rate:g} Hz")
    result.attrs["sampling_rate"] = float(rate)
    return result


def log10(X: DataArray) -> DataArray:
    """Return the decimal logarithm of X, whose entries must be positive (spectra, say).

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> prepare.log10(xr.DataArray(np.array([[1.0, 100.0]]))).values.tolist()
    [[0.0, 2.0]]
    """
    n_bad = int((X <= 0).sum())
    if n_bad:
        raise ValueError(
            f"A logarithm needs positive entries, but {n_bad} are not (for an envelope use --envelope log)."
        )
    return noted(np.log10(floating(X)), X, "log10", "log10 {}")


def center(X: DataArray, dim: str) -> DataArray:
    """Return X minus its mean along one mode: centering along "state" keeps only what differs between states.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> prepare.center(xr.DataArray(np.array([[1.0, 3.0]]), dims=("channel", "state")), "state").values.tolist()
    [[-1.0, 1.0]]
    """
    need_mode(X, dim, "centering")
    X = floating(X)
    return noted(X - X.mean(dim), X, f"center along {dim}")


def zscore(X: DataArray, dim: str = "channel") -> DataArray:
    """Return X scaled to mean zero and standard deviation one for each label of a mode; missing entries are ignored.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> prepare.zscore(xr.DataArray(np.array([[1.0, 3.0]]), dims=("channel", "time"))).values.tolist()
    [[-1.0, 1.0]]
    """
    need_mode(X, dim, "standardizing")
    X = floating(X)
    others = [name for name in X.dims if name != dim]
    mean, deviation = X.mean(others, dtype=np.float64), X.std(others, dtype=np.float64)
    flat = np.flatnonzero(~(deviation.values > 0))
    if len(flat):
        names = ", ".join(str(labels_of(X, dim)[n]) for n in flat[:5])
        raise ValueError(f"{len(flat)} entries of mode {dim!r} are constant and cannot be scaled ({names}): drop them.")
    result = (X - mean.astype(X.dtype)) / deviation.astype(X.dtype)
    return noted(result, X, f"z-score per {dim}", "standard deviations")


def baseline(X: DataArray, start: float | None = None, stop: float | None = 0.0) -> DataArray:
    """Return X minus its mean from start to stop (s, stop excluded) for each channel in each trial.

    None leaves a side open: the default is everything before time 0.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.array([[5.0, 5.0, 7.0, 8.0]]), {"time": [-0.2, -0.1, 0.0, 0.1]}, ("channel", "time"))
    >>> prepare.baseline(X).values.tolist()
    [[0.0, 0.0, 2.0, 3.0]]
    """
    need_mode(X, "time", "the baseline")
    times = labels_of(X, "time")
    inside = (times >= (-np.inf if start is None else start)) & (times < (np.inf if stop is None else stop))
    if not inside.any():
        raise ValueError(f"The baseline {start} to {stop} s has no sample: times run from {times[0]} to {times[-1]} s.")
    X = floating(X)
    ends = ["start" if start is None else f"{start:g}", "end" if stop is None else f"{stop:g}"]
    return noted(X - X.isel(time=inside).mean("time"), X, f"baseline {ends[0]} to {ends[1]} s")


def _along_time(X: DataArray, change: Callable[[np.ndarray], np.ndarray]) -> DataArray:
    """Return X with a function applied to each time series, segment by segment."""
    sampling_rate(X)
    pieces = [piece.copy(data=_map_rows(piece, change)) for piece in segments(X)]
    return join(pieces, "time")


def _map_rows(X: DataArray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the transformed time series as an array, one at a time to avoid a second copy in double precision."""
    if X.dtype.kind == "f" and bool(X.isnull().any()):
        raise ValueError("Filters and resampling need data without missing entries (NaN): filter first, then reject.")
    position = X.dims.index("time")
    rows = np.moveaxis(X.values, position, -1)
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
    result = np.empty(0, dtype)
    for index in np.ndindex(rows.shape[:-1]):
        row = np.asarray(change(rows[index].astype(np.float64)))
        if result.size == 0:
            result = np.empty((*rows.shape[:-1], len(row)), dtype)
        result[index] = row
    return np.moveaxis(result, -1, position)


def _safe_log10(x: np.ndarray) -> np.ndarray:
    """Return log10 x, with exact zeros (silence) set to the smallest positive value."""
    positive = x[x > 0]
    return np.log10(np.maximum(x, positive.min() if len(positive) else 1.0))
