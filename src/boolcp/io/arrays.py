"""Files of arrays: npy, npz, MATLAB, HDF5, netCDF and zarr. Nothing is unpickled, and labels are kept."""

import math
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from boolcp.io import atomic
from boolcp.io.errors import FileError, reading, refusing
from boolcp.io.limits import LARGE, ask_child, check_hdf5, refuse_expansion, refuse_too_large, refuse_unsafe
from boolcp.result.labels import is_labelled, read_labels
from boolcp.storage.sources import Source
from boolcp.system import available_memory, float_bytes, load_extra

RATE_NAMES = ("fsample", "fs", "sfreq", "srate", "sampling_rate", "samplingrate")


@dataclass(frozen=True)
class Variable:
    """What is known about an array before it is read."""

    shape: tuple[int, ...]
    kind: str
    is_numeric: bool = True
    dims: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"{' x '.join(map(str, self.shape)) or 'scalar'} {self.kind}"


@dataclass(frozen=True)
class NamedArrays:
    """A file of named arrays, with functions that read one of them or leave it on disk."""

    path: Any
    table: dict[str, Variable]
    read: Any
    read_lazy: Any = None
    is_mapped: bool = False  # reading takes no memory
    dataset: Any = None  # of a file with labels

    def choose(self, name: str | None = None) -> str:
        """Return the name of the array to read: the given one, or the only one with two or more modes."""
        holds, tensors = f"It holds {self.listing()}.", self.tensors()
        numeric = [n for n, v in self.table.items() if v.is_numeric]
        if name is not None:
            name = name if name in self.table else name.strip("/")
            if name not in self.table:
                is_group = any(known.startswith(f"{name}/") for known in self.table)
                problem = f"{name!r} is a group, not a dataset" if is_group else f"has no variable {name!r}"
                raise FileError(self.path, problem, holds)
            if name not in numeric:
                kind = self.table[name].kind
                raise FileError(self.path, f"the variable {name!r} is not an array of numbers ({kind})", holds)
            return name
        if len(tensors) == 1 or len(numeric) == len(self.table) == 1:
            return (tensors or numeric)[0]
        if not tensors:
            hint = " Spike times are counted with events= (--events unit,time,trial --bin-ms 20)." * (len(numeric) > 2)
            raise FileError(self.path, "holds no numeric array with two or more modes", holds + hint)
        advice = f"Choose one with variable= (--variable): {self.listing(tensors)}."
        raise FileError(self.path, f"holds {len(tensors)} arrays that could be read", advice)

    def tensors(self) -> list[str]:
        """Return the names of the numeric arrays with two modes or more."""
        return [n for n, v in self.table.items() if v.is_numeric and sum(size > 1 for size in v.shape) >= 2]

    def listing(self, names: Any = None) -> str:
        """Return the names with shapes as text."""
        names = list(self.table if names is None else names)
        shown = ", ".join(f"{name} ({self.table[name]})" for name in names[:12])
        return (shown or "nothing") + (f" and {len(names) - 12} more" if len(names) > 12 else "")

    def read_named(self, name: str, use: str) -> Any:
        """Return the array, or the coordinate, of that name."""
        if self.dataset is not None and name in self.dataset.coords:
            return self.dataset[name].values
        if name not in self.table:
            raise FileError(self.path, f"has no variable {name!r} for {use}", f"It holds {self.listing()}.")
        return np.asarray(self.read(name))

    def labelled(self, *, variable: str | None, dims: Any, sampling_rate: float | None, lazy: Any) -> Any:
        """Return the chosen array as a DataArray, in memory or, on request or if it is large, still on disk."""
        name = self.choose(variable)
        chosen = self.table[name]
        if lazy is True and self.read_lazy is None:
            raise not_lazy(self.path)
        is_large = 2 * float_bytes(chosen.shape, chosen.kind) > available_memory()
        if self.read_lazy is not None and (lazy is True or (lazy == "auto" and is_large)):
            array = self.read_lazy(name)
        else:
            if not self.is_mapped:
                advice = "Export a part of it, or store it as .npy, .zarr or .h5: these are read in slabs (--lazy)."
                size = math.prod(map(int, chosen.shape)) * np.dtype(chosen.kind).itemsize
                refuse_too_large(self.path, repr(name), size, advice)
            array = self.read(name)
        dims = chosen.dims if dims is None else dims
        if sampling_rate is None and "time" in (dims or ()):
            sampling_rate = self.rate({known.lower(): known for known in self.table})
        return label(array, self.path, dims, sampling_rate, name)

    def rate(self, known: dict[str, str]) -> float | None:
        """Return the sampling rate of the file, under one of the usual names of {lower case: name}."""
        names = [known[name] for name in RATE_NAMES if name in known and np.prod(self.table[known[name]].shape) == 1]
        return float(np.ravel(self.read(names[0]))[0]) if names else None


def not_lazy(path: Any) -> FileError:
    """Return the error for a file that cannot be read in slabs."""
    return FileError(path, "can only be loaded as a whole", "Omit lazy= (--lazy), or store it as .npy, .zarr or .h5.")


def label(X: Any, path: Any, dims: Any, sampling_rate: float | None, name: str | None = None) -> Any:
    """Return a DataArray with the given mode names, and times in seconds from the sampling rate."""
    if not is_labelled(X):
        X = load_extra("xarray", "files").DataArray(X, dims=[f"mode{n}" for n in range(np.ndim(X))], name=name)
    old = tuple(map(str, X.dims))
    dims = old if dims is None else tuple(dims)
    if len(dims) != X.ndim or len(set(dims)) != len(dims):
        problem = f"is {' x '.join(map(str, X.shape))}, but the modes were named {', '.join(dims)}"
        raise FileError(path, problem, "Give one name of its own for each mode (dims=, --dims).")
    X = X.rename({a: b for a, b in zip(old, dims, strict=True) if a != b})
    if sampling_rate is None or "time" in X.coords:
        return X
    if "time" not in dims or not 0 < sampling_rate < np.inf:
        problem = f"the sampling rate {sampling_rate} Hz does not suit the modes {', '.join(dims)}"
        raise FileError(path, problem, "Give a positive rate, and name the modes (--dims channel,time).")
    X = X.assign_coords(time=("time", np.arange(X.sizes["time"]) / sampling_rate, {"units": "s"}))
    return X.assign_attrs(sampling_rate=float(sampling_rate))


def read_npy(path: Path) -> NamedArrays:
    """Return the one array of a .npy file, as a memory map."""
    with reading(path, ".npy file"):
        array = npy_format.open_memmap(path, mode="r")  # np.load opens .npz as well
    table = {"array": _variable(array.shape, array.dtype)}
    return NamedArrays(path, table, lambda name: np.asarray(array), lambda name: Source(array).lazy(), is_mapped=True)


def read_npz(path: Path) -> NamedArrays:
    """Return the arrays of an .npz file."""
    refuse_unsafe(path, ".npz file")
    table = {}
    with reading(path, ".npz file"), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    is_first = npy_format.read_magic(file) == (1, 0)
                    header = npy_format.read_array_header_1_0 if is_first else npy_format.read_array_header_2_0
                    shape, _, dtype = header(file)
                table[member.filename.removesuffix(".npy")] = _variable(shape, dtype)

    def read(name: str) -> Any:
        with reading(path, ".npz file"), np.load(path, allow_pickle=False) as arrays:
            return arrays[name]

    return NamedArrays(path, table, read)


def _variable(shape: Any, dtype: Any, dims: Any = None) -> Variable:
    return Variable(tuple(shape), str(dtype), np.dtype(dtype).kind in "fiubc", dims)


def read_mat(path: Path) -> NamedArrays:
    """Return the variables of a .mat file; fields of a struct are `name.field`."""
    return NamedArrays(path, list_variables(path), lambda name: read_variable(path, name))


def list_variables(path: Path) -> dict[str, Variable]:
    """Return the Variables of a .mat file by name, fields of structs included."""
    load_extra("pymatreader", "files")
    return {name: Variable(*known) for name, known in ask_child(path, f"{path.suffix} file", "list_mat").items()}


def read_variable(path: Path, name: str) -> Any:
    """Return one variable of a .mat file, or one field of a struct as `name.field`."""
    load_extra("pymatreader", "files")
    return ask_child(path, f"{path.suffix} file", "read_mat", name)


def read_hdf5(path: Path) -> NamedArrays:
    """Return the datasets of an HDF5 file by path, with the names of their dimensions if they have any."""
    h5py = load_extra("h5py", "files")
    table = {name: Variable(*known[:4]) for name, known in check_hdf5(path).items()}

    def read(name: str, get: Any = lambda dataset: dataset[()]) -> Any:
        with reading(path, "HDF5 file"), h5py.File(path, "r") as file:
            return get(file[name])

    return NamedArrays(path, table, read, lambda name: read(name, lambda dataset: Source(dataset).lazy()))


def read_netcdf(path: Path) -> NamedArrays:
    """Return the arrays of a netCDF file with their labels."""
    xarray = load_extra("xarray", "files")
    with path.open("rb") as file:
        engine = "scipy" if file.read(3) == b"CDF" else "h5netcdf"
    if engine == "h5netcdf":
        load_extra(engine, "files")
        check_hdf5(path, "netCDF file")
    with reading(path, "netCDF file"):
        return _of_dataset(path, xarray.open_dataset(path, engine=engine))


def read_zarr(path: Path) -> NamedArrays:
    """Return the arrays of a zarr store, with their labels if it has any."""
    zarr, xarray = load_extra("zarr", "files"), load_extra("xarray", "files")
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
        metadata = [(getattr(a.metadata, "dimension_names", None), a.attrs) for a in arrays.values()]
        if is_group and arrays and all(names or "_ARRAY_DIMENSIONS" in attrs for names, attrs in metadata):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated", RuntimeWarning)
                return _of_dataset(path, xarray.open_zarr(path.absolute()))
    table = {name: _variable(array.shape, array.dtype) for name, array in arrays.items()}
    return NamedArrays(path, table, lambda name: arrays[name][...], lambda name: Source(arrays[name]).lazy())


def _of_dataset(path: Path, dataset: Any) -> NamedArrays:
    """Return the arrays of a Dataset, whose values are read when they are used."""

    def read(name: str) -> Any:
        with reading(path, "netCDF or zarr file"):
            return dataset[name].load()

    def read_lazy(name: str) -> Any:
        load_extra("dask.array", "dask")
        return dataset[name].chunk() if dataset[name].chunks is not None else dataset[name].chunk("auto")

    table = {str(n): _variable(v.shape, v.dtype, tuple(map(str, v.dims))) for n, v in dataset.data_vars.items()}
    return NamedArrays(path, table, read, read_lazy, dataset=dataset)


def write_tensor(X: Any, path: Any, *, overwrite: bool = False) -> None:
    """Write a DataArray to one file: .nc with its labels, or .npy with its numbers only."""
    path = Path(path)
    if path.suffix not in (".nc", ".npy"):
        raise FileError(path, f"the ending {path.suffix or '(none)'} is not an output format", "Use .nc or .npy.")
    if path.suffix == ".nc":
        load_extra("h5netcdf", "files")
        with refusing(path, "Rename it, or write to .npy to keep the numbers only."):
            read_labels(X)
            for name in (*X.dims, *X.coords, "tensor" if X.name is None else X.name):
                if not str(name).strip(".") or "/" in str(name):
                    raise ValueError(f"netCDF cannot hold the name {name!r}")
        simple = str | int | float | np.number | np.ndarray | list | tuple
        attrs = {n: value if isinstance(value, simple) else str(value) for n, value in X.attrs.items()}
        X = X.drop_attrs(deep=False).assign_attrs({n: value for n, value in attrs.items() if np.size(value)})
    with atomic.replacing(path, overwrite=overwrite) as temporary:
        if path.suffix == ".npy":
            np.save(temporary, X.values)
        else:
            X.rename(X.name or "tensor").to_netcdf(temporary, engine="h5netcdf")
