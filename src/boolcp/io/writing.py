"""Writing a labelled tensor to a file."""

from pathlib import Path

import numpy as np

from boolcp.extras import load_extra
from boolcp.io import atomic
from boolcp.io.errors import FileError


def write_tensor(X, path, *, overwrite=False):
    """Write a DataArray to one file: .nc with its labels, or .npy with its numbers only.

    Parameters
    ----------
    X : DataArray
        The tensor.
    path : str or path
        The file, ending in .nc or .npy.
    overwrite : bool
        Replace an existing file.

    Returns
    -------
    None

    Examples
    --------
    >>> import boolcp, numpy as np, pathlib, tempfile, xarray as xr
    >>> from boolcp.io.writing import write_tensor
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.nc"
    >>> write_tensor(xr.DataArray(np.eye(3), dims=("channel", "time")), path)
    >>> boolcp.open_tensor(path).dims
    ('channel', 'time')
    """
    path = Path(path)
    if path.suffix not in (".nc", ".npy"):
        raise FileError(path, f"the ending {path.suffix or '(none)'} is not known for output", "Use .nc or .npy.")
    if path.suffix == ".npy":
        with atomic.replacing(path, overwrite=overwrite) as temporary:
            np.save(temporary, X.values)
        return
    load_extra("h5netcdf", "files")
    X = X.assign_attrs({name: _plain(value) for name, value in X.attrs.items()})
    X.attrs = {name: value for name, value in X.attrs.items() if np.size(value)}
    with atomic.replacing(path, overwrite=overwrite) as temporary:
        X.rename(X.name or "tensor").to_netcdf(temporary, engine="h5netcdf")


def _plain(value):
    """Return an attribute as netCDF takes it: numbers, text or lists of them."""
    if isinstance(value, str | int | float | np.number | np.ndarray):
        return value
    return list(value) if isinstance(value, list | tuple) else str(value)
