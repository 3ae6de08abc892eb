"""Names, coordinates and units of the modes: they travel beside the array, never through the algorithm."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class Labels:
    """Names of the modes with, where known, the coordinates along them and their units.

    Parameters
    ----------
    dims : tuple of str
        One name for each mode.
    coords : mapping of str to ndarray
        Coordinates (d_n,) by the name of the mode; a mode may have none.
    units : mapping of str to str
        Units of the coordinates by the name of the mode.
    """

    dims: tuple[str, ...]
    coords: Mapping[str, np.ndarray] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)


def read_labels(X):
    """Return the array of X and its Labels: those of an xarray DataArray, else None."""
    if not (type(X).__module__.startswith("xarray") and hasattr(X, "dims") and hasattr(X, "values")):
        return X, None
    coords = {str(dim): X.coords[dim].values for dim in X.dims if dim in X.coords}
    units = {
        str(dim): str(X.coords[dim].attrs["units"])
        for dim in X.dims
        if "units" in getattr(X.coords.get(dim), "attrs", {})
    }
    return X.values, Labels(tuple(str(dim) for dim in X.dims), coords, units)
