"""Signal processing of a recording: reference, band, envelope, sampling rate, scale, baseline."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from boolcp.prepare.common import DataArray, floating, labels_of, need_mode, noted, sampling_rate, segments, times_of
from boolcp.result.labels import label_text
from boolcp.system import load_extra


def common_average(X: DataArray) -> DataArray:
    """Return X minus the mean over its channels at each time.

    Examples
    --------
    >>> X = xr.DataArray(np.array([[1.0, 2.0], [3.0, 6.0]]), dims=("channel", "time"))
    >>> boolcp.prepare.common_average(X).values.tolist()
    [[-1.0, -2.0], [1.0, 2.0]]
    """
    need_mode(X, "channel", "re-referencing")
    X = floating(X)
    return noted(X - X.mean("channel"), X, "common average reference")


def bipolar(X: DataArray, pairs: Iterable[tuple[Any, Any]]) -> DataArray:
    """Return the differences between pairs of channels, named "a-b" and placed at the midpoint of the two electrodes.

    Positions ("x" and "y") and "area" are carried over. Pairs with a channel that X lacks are left out.

    Examples
    --------
    >>> X = xr.DataArray(np.array([[1, 2], [3, 6]], dtype="int16"), {"channel": [7, 8]}, ("channel", "time"))
    >>> boolcp.prepare.bipolar(X, [(8, 7)]).to_series().tolist()
    [2.0, 4.0]
    """
    need_mode(X, "channel", "re-referencing")
    pairs = [(label_text(a), label_text(b)) for a, b in pairs]
    known = {label_text(value): n for n, value in enumerate(labels_of(X, "channel"))}
    used = [pair for pair in pairs if set(pair) <= set(known)]
    if not used:
        raise ValueError("None of the pairs has both of its channels in the data.")
    plus, minus = (X.isel(channel=[known[name] for name in names]) for names in zip(*used, strict=True))
    own = [name for name, coord in X.coords.items() if "channel" in coord.dims]
    coords = {"channel": ("channel", [f"{a}-{b}" for a, b in used])}
    coords |= {name: ("channel", (plus[name].values + minus[name].values) / 2) for name in ("x", "y") if name in own}
    coords |= {"area": ("channel", plus["area"].values)} if "area" in own else {}
    result = plus.drop_vars(own).copy(data=floating(plus).values - floating(minus).values)
    return noted(result.assign_coords(coords), X, f"bipolar reference, {len(used)} of {len(pairs)} pairs")


def band_pass(X: DataArray, low: float | None, high: float | None, *, order: int = 4) -> DataArray:
    """Return X band-passed along time from low to high (Hz, None leaves a side open) without delay.

    The Butterworth filter of this order runs forward and backward.

    Examples
    --------
    >>> time = np.arange(1000) / 100
    >>> wave = np.sin(2 * np.pi * 10 * time) + np.sin(2 * np.pi * 40 * time)
    >>> X = xr.DataArray(wave[None], {"time": time}, ("channel", "time"))
    >>> round(float(boolcp.prepare.band_pass(X, 5, 15).std() ** 2), 2)
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


def envelope(X: DataArray, kind: str = "amplitude") -> DataArray:
    """Return the envelope of X along time, |x + i Hilbert(x)|: its amplitude, its square "power", or its "log".

    Examples
    --------
    >>> time = np.arange(1000) / 100
    >>> X = xr.DataArray(3 * np.sin(2 * np.pi * 10 * time)[None], {"time": time}, ("channel", "time"))
    >>> float(boolcp.prepare.envelope(X).median().round(2))
    3.0
    """
    if kind not in ("amplitude", "power", "log"):
        raise ValueError(f'kind must be "amplitude", "power" or "log", got {kind!r}.')
    from scipy import fft, signal

    def change(x: np.ndarray) -> np.ndarray:
        amplitude = np.abs(signal.hilbert(x, fft.next_fast_len(len(x)))[: len(x)])
        if kind == "log":
            least = amplitude.min(where=amplitude > 0, initial=np.inf)  # stands for silence
            return np.log10(np.maximum(amplitude, least if np.isfinite(least) else 1.0))
        return amplitude**2 if kind == "power" else amplitude

    unit = {"amplitude": "{}", "power": "{}²", "log": "log10 {}"}[kind]
    return noted(_along_time(X, change), X, f"envelope ({kind})", unit)


def resample(X: DataArray, rate: float) -> DataArray:
    """Return X at a different sampling rate (Hz), by polyphase filtering (without aliasing).

    Examples
    --------
    >>> X = xr.DataArray(np.ones((2, 3000)), {"time": np.arange(3000) / 1000}, ("channel", "time"))
    >>> boolcp.prepare.resample(X, 100).shape
    (2, 300)
    """
    old = sampling_rate(X)
    if not 0 < rate < np.inf:
        raise ValueError(f"The sampling rate must be a positive number of Hz, got {rate}.")
    ratio = Fraction(rate / old).limit_denominator(10_000)
    from scipy import signal

    def change(x: np.ndarray) -> np.ndarray:
        return signal.resample_poly(x, ratio.numerator, ratio.denominator, padtype="line")

    result = noted(_along_time(X, change, float(rate)), X, f"resample {old:g} to {rate:g} Hz")
    result.attrs["sampling_rate"] = float(rate)
    return result


def zscore(X: DataArray, dim: str = "channel") -> DataArray:
    """Return X scaled to mean zero and standard deviation one for each label of a mode; missing entries are ignored.

    Examples
    --------
    >>> boolcp.prepare.zscore(xr.DataArray(np.array([[1.0, 3.0]]), dims=("channel", "time"))).values.tolist()
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


def baseline(X: DataArray, start: Any = None, stop: float | None = 0.0) -> DataArray:
    """Return X minus its mean from start to stop (s, stop excluded) for each channel in each trial.

    None leaves a side open: the default is everything before time 0. The pair of MNE, (start, stop), is taken too.

    Examples
    --------
    >>> X = xr.DataArray(np.array([[5.0, 5.0, 7.0, 8.0]]), {"time": [-0.2, -0.1, 0.0, 0.1]}, ("channel", "time"))
    >>> boolcp.prepare.baseline(X).values.tolist()
    [[0.0, 0.0, 2.0, 3.0]]
    """
    need_mode(X, "time", "the baseline")
    start, stop = start if isinstance(start, tuple | list) else (start, stop)
    times, edges = labels_of(X, "time"), [edge for edge in (start, stop) if edge is not None]
    step = float(np.median(np.diff(times))) if len(times) > 1 else np.inf
    is_outside = len(edges) > 0 and (min(edges) < times[0] - step or max(edges) > times[-1] + step)
    inside = (times >= (-np.inf if start is None else start)) & (times < (np.inf if stop is None else stop))
    if is_outside or not inside.any():
        problem = "lies outside of the data" if is_outside else "has no sample"
        raise ValueError(f"The baseline {start} to {stop} s {problem}: times run from {times[0]} to {times[-1]} s.")
    X = floating(X)
    ends = ["start" if start is None else f"{start:g}", "end" if stop is None else f"{stop:g}"]
    return noted(X - X.isel(time=inside).mean("time"), X, f"baseline {ends[0]} to {ends[1]} s")


def _along_time(X: DataArray, change: Callable[[np.ndarray], np.ndarray], rate: float | None = None) -> DataArray:
    """Return X with a function applied to each time series, segment by segment, perhaps at a new sampling rate."""
    sampling_rate(X)  # an error if the times are no series
    if X.dtype.kind == "f" and bool(X.isnull().any()):
        raise ValueError("Filters and resampling need data without missing entries (NaN): filter first, then reject.")
    xarray, pieces = load_extra("xarray", "files"), []
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
    for piece in segments(X):
        rows = np.moveaxis(piece.values, X.dims.index("time"), -1)
        found = [change(row.astype(float)).astype(dtype) for row in rows.reshape(-1, rows.shape[-1])]
        values = np.moveaxis(np.reshape(found, (*rows.shape[:-1], -1)), -1, X.dims.index("time"))
        coords = dict(piece.coords)
        if rate is not None:
            times = float(times_of(piece)[0]) + np.arange(len(found[0])) / rate
            coords = {name: coord for name, coord in coords.items() if "time" not in coord.dims}
            coords["time"] = "time", times, {"units": "s"}
            if "segment" in piece.coords:
                coords["segment"] = "time", np.full(len(times), piece["segment"].values[0])
        pieces.append(xarray.DataArray(values, coords, piece.dims))
    if len(pieces) == 1:
        return pieces[0]
    return xarray.concat(pieces, "time", coords="minimal", compat="override", join="override")
