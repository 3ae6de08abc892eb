"""Files of arrays: npy, npz, MATLAB, HDF5, netCDF and zarr. Nothing is unpickled, and labels are kept."""

import math
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from boolcp.extras import load_extra
from boolcp.io import atomic
from boolcp.io.errors import FileError, reading
from boolcp.io.limits import LARGE, ask_child, check_hdf5, n_bytes, refuse_expansion, refuse_too_large, refuse_unsafe
from boolcp.memory import available_memory, float_bytes, memory_text
from boolcp.result.labels import read_labels
from boolcp.storage.sources import Source

OBJECTS = "holds Python objects, which are never read because they can run code"
SAVE_AGAIN = "Save it again as an array of numbers, e.g. np.save(path, x.astype(float))."
EXPORT_PART = "Export a part of it, or store it as .npy, .zarr or .h5: these are read in slabs."
RATE_NAMES = ("fs", "sfreq", "srate", "sampling_rate", "samplingrate")


@dataclass(frozen=True)
class Variable:
    """What is known about an array before it is read: its shape and the kind of its values."""

    shape: tuple[int, ...]
    kind: str
    is_numeric: bool = True
    dims: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"{' x '.join(map(str, self.shape)) or 'scalar'} {self.kind}"

    @property
    def n_bytes(self) -> int:
        """Return the bytes that the array takes in memory; one byte for each entry if numpy does not know its type."""
        try:
            return n_bytes(self.shape, np.dtype(self.kind))
        except TypeError:
            return math.prod(self.shape)


@dataclass(frozen=True)
class NamedArrays:
    """A file of named arrays: what it contains, and functions that read one of them or leave it on disk."""

    path: Any
    table: dict[str, Variable]
    read: Any
    read_lazy: Any = None
    is_mapped: bool = False  # reading takes no memory

    def choose(self, name: Any = None) -> Any:
        """Return the name of the array to read: the given one, or the only one with two or more modes."""
        if name is not None:
            name = name if name in self.table else name.strip("/")
            if any(known.startswith(f"{name}/") for known in self.table):
                raise FileError(self.path, f"{name!r} is a group, not a dataset", f"It holds {self.listing()}.")
            if name not in self.table:
                raise FileError(self.path, f"has no variable {name!r}", f"It holds {self.listing()}.")
            if not self.table[name].is_numeric:
                problem = f"the variable {name!r} is not an array of numbers ({self.table[name].kind})"
                raise FileError(self.path, problem, f"It holds {self.listing()}.")
            return name
        if not self.table:
            raise FileError(self.path, "holds no arrays", "Export the data again.")
        tensors = self.tensors()
        numeric = [n for n, v in self.table.items() if v.is_numeric]
        if len(tensors) == 1 or len(numeric) == len(self.table) == 1:
            return (tensors or numeric)[0]
        if not tensors:
            problem = "holds no numeric array with two or more modes"
            hint = " Spike times are counted with events= (--events unit,time,trial --bin-ms 20)." * (len(numeric) > 2)
            raise FileError(self.path, problem, f"It holds {self.listing()}.{hint}")
        problem = f"holds {len(tensors)} arrays that could be read"
        advice = f"Choose one with variable= (--variable): {self.listing(tensors)}."
        raise FileError(self.path, problem, advice)

    def tensors(self) -> list[str]:
        """Return the names of the numeric arrays with two or more modes."""
        return [n for n, v in self.table.items() if v.is_numeric and sum(size > 1 for size in v.shape) >= 2]

    def listing(self, names: Any = None) -> Any:
        """Return the names with shapes as text."""
        names = list(self.table if names is None else names)
        shown = ", ".join(f"{name} ({self.table[name]})" for name in names[:12])
        return (shown or "nothing") + (f" and {len(names) - 12} more" if len(names) > 12 else "")

    def labelled(self, *, variable: str | None, dims: Any, sampling_rate: float | None, lazy: Any) -> Any:
        """Return the chosen array as a DataArray."""
        name = self.choose(variable)
        if lazy is True and self.read_lazy is None:
            raise not_lazy(self.path)
        if self.read_lazy is not None and is_left(self.table[name].shape, self.table[name].kind, lazy):
            array = self.read_lazy(name)
        else:
            if not self.is_mapped:
                refuse_too_large(self.path, repr(name), self.table[name].n_bytes, EXPORT_PART)
            array = np.asarray(self.read(name))
        dims = self.table[name].dims if dims is None else dims
        if sampling_rate is None and "time" in (dims or ()):
            sampling_rate = self._sampling_rate()
        return label(array, self.path, dims, sampling_rate, name=name)

    def _sampling_rate(self) -> Any:
        for name, variable in self.table.items():
            if name.lower() in RATE_NAMES and variable.is_numeric and np.prod(variable.shape) == 1:
                return float(np.ravel(self.read(name))[0])
        return None


def is_left(shape: tuple[int, ...], dtype: Any, lazy: Any) -> bool:
    """Return True if an array stays in its file: on request, or if it needs more than half of the available memory."""
    if lazy != "auto":
        return bool(lazy)
    return 2 * float_bytes(shape, dtype) > available_memory()


def not_lazy(path: Any) -> Any:
    """Return the error for a file that cannot be read in slabs."""
    return FileError(path, "can only be loaded as a whole", "Omit lazy= (--lazy), or store it as .npy, .zarr or .h5.")


def label(array: Any, path: Any, dims: Any = None, sampling_rate: float | None = None, *, name: Any = None) -> Any:
    """Return a DataArray with the given mode names, and times in seconds from the sampling rate."""
    xarray = load_extra("xarray", "labels")
    dims = tuple(f"mode{n}" for n in range(array.ndim)) if dims is None else tuple(dims)
    if len(dims) != array.ndim:
        shape = " x ".join(map(str, array.shape))
        problem = f"is {shape} ({array.ndim} modes), but {len(dims)} names were given ({', '.join(dims)})"
        raise FileError(path, problem, "Give one name for each mode (dims=, --dims).")
    if len(set(dims)) != len(dims):
        raise FileError(path, f"two modes have the same name ({', '.join(dims)})", "Give each its own (--dims).")
    coords = {}
    if sampling_rate is not None:
        if "time" not in dims:
            problem = f"a sampling rate was given, but none of the modes {', '.join(dims)} is called time"
            raise FileError(path, problem, "Name the modes (dims=, --dims), for instance channel,time.")
        if not (np.isfinite(sampling_rate) and sampling_rate > 0):
            raise FileError(path, f"the sampling rate {sampling_rate} is not a positive number", "Give it in Hz.")
        coords["time"] = np.arange(array.shape[dims.index("time")]) / sampling_rate
    X = xarray.DataArray(array, coords, dims, name=name)
    if sampling_rate is not None:
        X.attrs["sampling_rate"] = float(sampling_rate)
        X["time"].attrs["units"] = "s"
    return X


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


def read_mat(path: Path) -> NamedArrays:
    """Return the variables of a .mat file; modes of length one are dropped, fields of a struct are `name.field`."""
    return NamedArrays(path, list_variables(path), lambda name: read_variable(path, name))


def list_variables(path: Path) -> dict[str, Variable]:
    """Return the names and Variables of a .mat file, fields of structs included."""
    load_extra("pymatreader", "files")
    return {name: Variable(*known) for name, known in ask_child(path, ".mat file", "list_mat").items()}


def read_variable(path: Path, name: str) -> Any:
    """Return one variable of a .mat file, or one field of a struct by its dotted name."""
    load_extra("pymatreader", "files")
    return ask_child(path, ".mat file", "read_mat", name)


def _variable(array: Any) -> Variable:
    return Variable(tuple(array.shape), str(array.dtype), np.dtype(array.dtype).kind in "fiubc")


def read_hdf5(path: Path) -> NamedArrays:
    """Return the datasets of an HDF5 file by path, with the names of their dimensions if they have any."""
    h5py = load_extra("h5py", "files")
    table = {name: Variable(*known[:4]) for name, known in check_hdf5(path).items()}

    def read(name: str, get: Any = lambda dataset: dataset[()]) -> Any:
        with reading(path, "HDF5 file"), h5py.File(path, "r") as file:
            return get(file[name])

    return NamedArrays(path, table, read, lambda name: read(name, lambda dataset: Source(dataset).lazy()))


def read_netcdf(path: Path) -> Any:
    """Return the Dataset of a netCDF file; its values are read when they are used."""
    xarray = load_extra("xarray", "labels")
    with path.open("rb") as file:
        is_classic = file.read(3) == b"CDF"
    if not is_classic:
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


def write_tensor(X: Any, path: Any, *, overwrite: bool = False) -> None:
    """Write a DataArray to one file: .nc with its labels, or .npy with its numbers only.

    Examples
    --------
    >>> import boolcp, numpy as np, pathlib, tempfile, xarray as xr
    >>> from boolcp.io.arrays import write_tensor
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.nc"
    >>> write_tensor(xr.DataArray(np.eye(3), dims=("channel", "time")), path)
    >>> boolcp.open_tensor(path).dims
    ('channel', 'time')
    """
    path = Path(path)
    if path.suffix not in (".nc", ".npy"):
        raise FileError(path, f"the ending {path.suffix or '(none)'} is not an output format", "Use .nc or .npy.")
    if path.suffix == ".npy":
        with atomic.replacing(path, overwrite=overwrite) as temporary:
            np.save(temporary, X.values)
        return
    load_extra("h5netcdf", "files")
    _check_names(X, path)
    X = X.assign_attrs({name: _plain(value) for name, value in X.attrs.items()})
    X.attrs = {name: value for name, value in X.attrs.items() if np.size(value)}
    with atomic.replacing(path, overwrite=overwrite) as temporary:
        X.rename(X.name or "tensor").to_netcdf(temporary, engine="h5netcdf")


def _check_names(X: Any, path: Path) -> None:
    """Raise a FileError if netCDF cannot hold a name or a label of the tensor."""
    for name in (*X.dims, *X.coords, *([] if X.name is None else [X.name])):
        if not str(name).strip(".") or "/" in str(name):
            raise FileError(path, f"netCDF cannot hold the name {name!r}", "Rename it, or write to .npy.")
    try:
        read_labels(X)
    except ValueError as error:
        raise FileError(path, str(error).rstrip("."), "Write to .npy to keep the numbers only.") from error


def _plain(value: Any) -> Any:
    """Return an attribute as netCDF takes it: numbers, text or lists of them."""
    if isinstance(value, str | int | float | np.number | np.ndarray):
        return value
    return list(value) if isinstance(value, list | tuple) else str(value)
