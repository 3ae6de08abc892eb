"""Files of arrays: npy, npz, HDF5, netCDF and zarr. Nothing is unpickled, and labels are kept."""

import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from boolcp.extras import load_extra
from boolcp.io.errors import FileError, reading
from boolcp.io.limits import CHILD, LARGE, check_hdf5, n_bytes, refuse_expansion, refuse_too_large, refuse_unsafe
from boolcp.io.variables import NamedArrays, Variable, is_left, label
from boolcp.memory import memory_text
from boolcp.storage.sources import Source

OBJECTS = "holds Python objects, which are never read because they can run code"
SAVE_AGAIN = "Save it again as an array of numbers, e.g. np.save(path, x.astype(float))."


def read_npy(path: Path) -> NamedArrays:
    """Return the one array of a .npy file, as a memory map."""
    with reading(path, ".npy file"), path.open("rb") as file:
        shape, dtype = _header(file)
        found = path.stat().st_size - file.tell()
    if dtype.hasobject:
        raise FileError(path, OBJECTS, SAVE_AGAIN)
    if dtype.kind not in "fiubc":
        raise FileError(path, f"holds {dtype}, not numbers", SAVE_AGAIN)
    _refuse_missing_bytes(path, ".npy file", "the array", n_bytes(shape, dtype), found)
    with reading(path, ".npy file"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    table = {"array": _variable(array)}
    return NamedArrays(path, table, lambda name: array, lambda name: Source(array).lazy(), is_mapped=True)


def read_npz(path: Path) -> NamedArrays:
    """Return the arrays of an .npz file."""
    refuse_unsafe(path, ".npz file")
    table, claims = {}, {}
    with reading(path, ".npz file"), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                name = member.filename.removesuffix(".npy")
                with archive.open(member) as file:
                    shape, dtype = _header(file)
                    claims[name] = n_bytes(shape, dtype), member.file_size - file.tell()
                table[name] = Variable(shape, "object" if dtype.hasobject else str(dtype), dtype.kind in "fiubc")

    def read(name: str) -> Any:
        if table[name].kind == "object":
            raise FileError(path, f"the variable {name!r} {OBJECTS}", SAVE_AGAIN)
        _refuse_missing_bytes(path, ".npz file", repr(name), *claims[name])
        with reading(path, ".npz file"), np.load(path, allow_pickle=False) as arrays:
            return arrays[name]

    return NamedArrays(path, table, read)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and dtype of an open .npy file."""
    version = npy_format.read_magic(file)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _refuse_missing_bytes(path: Path, kind: str, what: str, claimed: int, found: int) -> None:
    """Raise a FileError if a header claims more bytes than follow it."""
    if claimed > found:
        problem = f"the header of {what} claims {memory_text(claimed)}, but {memory_text(max(found, 0))} follow"
        advice = "It may be truncated or damaged: copy or export it again."
        raise FileError(path, f"not a readable {kind} ({problem})", advice)


def _variable(array: Any) -> Variable:
    return Variable(tuple(array.shape), str(array.dtype), np.dtype(array.dtype).kind in "fiubc")


def read_hdf5(path: Path) -> NamedArrays:
    """Return the datasets of an HDF5 file by path, with the names of their dimensions if they have any."""
    h5py = load_extra("h5py", "files")
    table = {name: Variable(*known[:4]) for name, known in check_hdf5(path).items()}

    def read(name: str, get: Any = lambda dataset: dataset[()]) -> Any:
        with reading(path, "HDF5 file"), h5py.File(path, "r") as file:
            return get(file[name])

    return Hdf5Arrays(path, table, read, lambda name: read(name, lambda dataset: Source(dataset).lazy()))


class Hdf5Arrays(NamedArrays):
    """Datasets of an HDF5 file; a path may start with a slash."""

    def choose(self, name: str | None = None) -> str:
        """Return the path of the requested dataset."""
        name = name if name is None else name.strip("/")
        if name is not None and any(known.startswith(f"{name}/") for known in self.table):
            raise FileError(self.path, f"{name!r} is a group, not a dataset", f"It holds {self.listing()}.")
        return super().choose(name)


def read_netcdf(path: Path) -> Any:
    """Return the Dataset of a netCDF file; its values are read when they are used."""
    xarray = load_extra("xarray", "labels")
    with path.open("rb") as file:
        is_classic = file.read(3) == b"CDF"
    if is_classic:
        CHILD.run(path, "netCDF file", "look_at_netcdf3")
    else:
        load_extra("h5netcdf", "files")
        check_hdf5(path, "netCDF file")
    with reading(path, "netCDF file"):
        return xarray.open_dataset(path, engine="scipy" if is_classic else "h5netcdf")


def read_zarr(path: Path) -> Any:
    """Return the Dataset of a zarr store, or its plain arrays if it has no labels."""
    zarr, xarray = load_extra("zarr", "files"), load_extra("xarray", "labels")
    with reading(path, "zarr store"):
        store = zarr.open(path, mode="r")
        is_group = isinstance(store, zarr.Group)
        arrays = dict(store.arrays()) if is_group else {"array": store}
        for name, array in arrays.items():
            if any("pickle" in repr(codec).lower() for codec in (*array.filters, *array.compressors)):
                problem = f"the array {name!r} is pickled, and pickles are never read because they can run code"
                raise FileError(path, problem, "Save it again with a different codec.")
            if array.nbytes > LARGE:
                refuse_expansion(path, repr(name), array.nbytes_stored(), array.nbytes)
        if is_group and arrays and all(_has_dims(array) for array in arrays.values()):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated", RuntimeWarning)
                return xarray.open_zarr(path.absolute())
    table = {name: _variable(array) for name, array in arrays.items()}
    return NamedArrays(path, table, lambda name: arrays[name][...], lambda name: Source(arrays[name]).lazy())


def _has_dims(array: Any) -> bool:
    return bool(getattr(array.metadata, "dimension_names", None)) or "_ARRAY_DIMENSIONS" in array.attrs


def from_dataset(
    dataset: Any, path: Path, *, variable: str | None, dims: Any, sampling_rate: float | None, lazy: Any
) -> Any:
    """Return one variable of a Dataset as a DataArray, in memory or still on disk."""
    name = NamedArrays(path, {str(n): _variable(v) for n, v in dataset.data_vars.items()}, None).choose(variable)
    with reading(path, "netCDF or zarr file"):
        X = dataset[name]
        if is_left(X.shape, X.dtype, lazy):
            load_extra("dask.array", "dask")
            X = X.chunk() if X.chunks is not None else X.chunk("auto")
        else:
            refuse_too_large(path, repr(name), n_bytes(X.shape, X.dtype), "Read it in slabs: lazy=True (--lazy).")
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
