"""Helpers that the preparation steps share."""

from itertools import pairwise
from typing import Any

import numpy as np

from boolcp.result.labels import is_labelled

DataArray = Any  # of xarray, which is imported only where it is used
MIN_CHANNELS, TIMES, N_DEVIATIONS = 4, 3.0, 6.0  # how far a channel is from the others to be named; not tuned


def sampling_rate(X: DataArray) -> float:
    """Return the number of samples per second along "time": from its coordinate, else from ``attrs["sampling_rate"]``.

    Examples
    --------
    >>> boolcp.prepare.sampling_rate(xr.DataArray(np.zeros(4), {"time": np.arange(4) / 250}, ("time",)))
    250.0
    """
    need_mode(X, "time", "this step")
    said = float(X.attrs.get("sampling_rate", np.nan))
    steps = np.concatenate([np.diff(np.asarray(piece["time"], float)) for piece in segments(X)])
    if "time" not in X.coords or not len(steps):
        if not said > 0:
            raise ValueError("The sampling rate is unknown: pass it (sampling_rate=, --sampling-rate).")
        return said
    step = np.median(steps)
    if abs(step * said - 1) < 1e-3:  # the times are rounded, the attribute is not
        return said
    if not step > 0 or np.mean(np.abs(steps - step) > 0.01 * step) > 0.01:
        raise ValueError("The times are not evenly spaced and increasing, so there is no sampling rate.")
    return float(round(1 / step, 6))


def times_of(X: DataArray) -> np.ndarray:
    """Return the times of a recording in seconds; without a coordinate they begin at 0."""
    return X["time"].values if "time" in X.coords else np.arange(X.sizes["time"]) / sampling_rate(X)


def segments(X: DataArray) -> list[DataArray]:
    """Return the parts of X without a gap in time."""
    need_mode(X, "time", "this step")
    if "segment" not in X.coords:
        return [X]
    segment = X["segment"].values
    borders = [0, *(np.flatnonzero(segment[1:] != segment[:-1]) + 1), len(segment)]
    return [X.isel(time=slice(a, b)) for a, b in pairwise(borders)]


def labels_of(X: DataArray, dim: str) -> np.ndarray:
    """Return the coordinates of a mode, or the positions 0, 1, .. if it has none."""
    return X.coords[dim].values if dim in X.coords else np.arange(X.sizes[dim])


def need_mode(X: DataArray, dim: str | None, what: str) -> None:
    """Raise if X has no labels, or not this mode."""
    if not is_labelled(X):
        raise TypeError(f"{what.capitalize()} needs an xarray DataArray with named modes, got {type(X).__name__}.")
    if dim is not None and dim not in X.dims:
        advice = f"the modes are {', '.join(map(str, X.dims))}. Name them (dims=, --dims)"
        raise ValueError(f"{what.capitalize()} needs the mode {dim!r}; {advice}.")


def outlier_lines(X: DataArray) -> list[str]:
    """Return a sentence that names channels whose spread is far from the other channels', or nothing."""
    if "channel" not in X.dims or X.chunks is not None or not MIN_CHANNELS <= X.sizes["channel"] < X.size:
        return []
    spread = X.std([dim for dim in X.dims if dim != "channel"], dtype=np.float64).values
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = spread / np.nanmedian(spread)
        far = np.abs(np.log(ratio))
    limit = max(float(np.log(TIMES)), N_DEVIATIONS * 1.4826 * float(np.nanmedian(far)))
    words = [f"{labels_of(X, 'channel')[n]} ({ratio[n]:.2g} times the median)" for n in np.flatnonzero(far > limit)]
    return [f"Channels of outlying standard deviation: {', '.join(words)}."] if words else []


def floating(X: DataArray) -> DataArray:
    """Return X in floating point, so that differences of int16 do not overflow."""
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float32 if X.dtype.itemsize <= 2 else np.float64)


def noted(result: DataArray, X: DataArray, step: str, unit: str | None = None) -> DataArray:
    """Return the result with the attributes of X, the step added to its preparation, and the unit if it changed.

    `unit` may contain the unit of X, as in "log10 {}"; it is omitted if that is unknown.
    """
    attrs = {name: value for name, value in X.attrs.items() if name != "preparation"}
    if unit is not None and ("units" in attrs or "{" not in unit):
        attrs["units"] = unit.format(attrs.get("units"))
    result = result.assign_attrs(attrs)
    result.attrs["preparation"] = [*map(str, np.atleast_1d(X.attrs.get("preparation", []))), step]
    result.name = X.name
    return result
