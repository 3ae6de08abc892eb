"""netCDF files and zarr stores, through xarray: labels are kept."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.extras import load_extra
from boolcp.io.errors import FileError, reading
from boolcp.io.hdf5 import refuse_traps
from boolcp.io.limits import LARGE, n_bytes, refuse_expansion, refuse_too_large
from boolcp.io.variables import NamedArrays, Variable, is_left, label
from boolcp.storage.sources import Source


def read_netcdf(path: Any) -> Any:
    """Return the Dataset of a netCDF file; its values are read when they are used."""
    xarray = load_extra("xarray", "labels")
    with path.open("rb") as file:
        is_classic = file.read(3) == b"CDF"
    if not is_classic:
        load_extra("h5netcdf", "files")
        refuse_traps(path, "netCDF file")
    with reading(path, "netCDF file"):
        return xarray.open_dataset(path, engine="scipy" if is_classic else "h5netcdf")


def read_zarr(path: Any) -> Any:
    """Return the Dataset of a zarr store, or its plain arrays if it has no labels."""
    zarr, xarray = load_extra("zarr", "files"), load_extra("xarray", "labels")
    with reading(path, "zarr store"):
        store = zarr.open(path, mode="r")
        is_group = isinstance(store, zarr.Group)
        arrays = dict(store.arrays()) if is_group else {"array": store}
        _refuse_traps(path, arrays)
        if is_group and arrays and all(_has_dims(array) for array in arrays.values()):
            return _open_zarr(xarray, path.absolute())
    table = {n: Variable(a.shape, str(a.dtype), np.dtype(a.dtype).kind in "fiub") for n, a in arrays.items()}
    return NamedArrays(path, table, lambda name: arrays[name][...], lambda name: Source(arrays[name]).lazy())


def _refuse_traps(path: Path, arrays: dict[str, Any]) -> None:
    """Raise a FileError if an array of a zarr store is pickled, or claims far more numbers than it holds."""
    for name, array in arrays.items():
        if any("pickle" in repr(codec).lower() for codec in (*array.filters, *array.compressors)):
            problem = f"the array {name!r} is pickled, and pickles are never read because they can run code"
            raise FileError(path, problem, "Save it again with a different codec.")
        if array.nbytes > LARGE:
            refuse_expansion(path, repr(name), array.nbytes_stored(), array.nbytes)


def _open_zarr(xarray: Any, path: Any) -> Any:
    """Return the Dataset of a zarr store, with or without consolidated metadata."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated metadata", RuntimeWarning)
        return xarray.open_zarr(path)


def labelled(
    dataset: Any, path: Any, *, variable: str | None, dims: Any, sampling_rate: float | None, lazy: Any
) -> Any:
    """Return one variable of a Dataset as a DataArray, in memory or still on disk."""
    shapes = {str(n): Variable(v.shape, str(v.dtype), v.dtype.kind in "fiub") for n, v in dataset.data_vars.items()}
    name = NamedArrays(path, shapes, None).choose(variable)
    with reading(path, "netCDF or zarr file"):
        X = dataset[name]
        if is_left(X.shape, X.dtype, lazy):
            load_extra("dask.array", "dask")
            X = X.chunk() if X.chunks is not None else X.chunk("auto")
        else:
            advice = "Read it in slabs: lazy=True (--lazy)."
            refuse_too_large(path, repr(name), n_bytes(X.shape, X.dtype), advice)
            X = X.load()
    if dims is not None:
        if len(dims) != X.ndim:
            problem = f"{name} has {X.ndim} modes ({', '.join(map(str, X.dims))}), but {len(dims)} names were given"
            raise FileError(path, problem, "Give one name for each mode, or none to keep its own.")
        X = X.rename({old: new for old, new in zip(X.dims, dims, strict=True) if old != new})
    if sampling_rate is not None and "time" not in X.coords:
        times = label(X.data, path, tuple(map(str, X.dims)), sampling_rate)
        X = X.assign_coords(time=times["time"]).assign_attrs(sampling_rate=float(sampling_rate))
    return X


def _has_dims(array: Any) -> Any:
    return bool(getattr(array.metadata, "dimension_names", None)) or "_ARRAY_DIMENSIONS" in array.attrs
