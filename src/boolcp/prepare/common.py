"""Helpers that the preparation steps share."""

from itertools import pairwise
from typing import Any

import numpy as np

from boolcp.result.labels import is_labelled

DataArray = Any  # of xarray, which is imported only where it is used


def sampling_rate(X: DataArray) -> float:
    """Return the number of samples per second along "time".

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> prepare.sampling_rate(xr.DataArray(np.zeros(4), {"time": np.arange(4) / 250}, ("time",)))
    250.0
    """
    need_mode(X, "time", "this step")
    if "sampling_rate" in X.attrs:
        return float(X.attrs["sampling_rate"])
    if "time" not in X.coords or X.sizes["time"] < 2:
        raise ValueError("The sampling rate is unknown: pass it (sampling_rate=, --sampling-rate).")
    steps = np.diff(X["time"].values.astype(float))
    step = np.median(steps)
    if not step > 0 or np.mean(np.abs(steps - step) > 0.01 * step) > 0.01:
        raise ValueError("The times are not evenly spaced and increasing, so there is no sampling rate.")
    return float(round(1 / step, 6))


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


def label_text(label: Any) -> str:
    """Return a label as text, whole numbers without a point: 3 and 3.0 are one trial."""
    is_whole = isinstance(label, float | np.floating) and float(label).is_integer()
    return str(int(label)) if is_whole else str(label)


def need_labels(X: DataArray, what: str) -> None:
    """Raise unless X is a DataArray."""
    if not is_labelled(X):
        raise TypeError(f"{what.capitalize()} needs an xarray DataArray with named modes, got {type(X).__name__}.")


def need_mode(X: DataArray, dim: str, what: str) -> None:
    """Raise unless X is labelled and has the mode."""
    need_labels(X, what)
    if dim not in X.dims:
        names = ", ".join(map(str, X.dims))
        raise ValueError(
            f"{what.capitalize()} needs the mode {dim!r}; the modes are {names}. Name them (dims=, --dims)."
        )


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
