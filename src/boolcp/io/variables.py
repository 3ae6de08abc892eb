"""Files of named arrays without labels (npz, mat, HDF5): which array to read, and the names of its modes."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from boolcp.extras import load_extra
from boolcp.io.errors import ChoiceError, FileError
from boolcp.io.limits import n_bytes, refuse_too_large
from boolcp.memory import available_memory, float_bytes

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
            if name not in self.table:
                raise FileError(self.path, f"has no variable {name!r}", f"It holds {self.listing()}.")
            if not self.table[name].is_numeric:
                problem = f"the variable {name!r} is not an array of numbers ({self.table[name].kind})"
                raise FileError(self.path, problem, f"It holds {self.listing()}.")
            return name
        if not self.table:
            raise FileError(self.path, "holds no arrays", "Export the data again.")
        tensors = [n for n, v in self.table.items() if v.is_numeric and sum(size > 1 for size in v.shape) >= 2]
        numeric = [n for n, v in self.table.items() if v.is_numeric]
        if len(tensors) == 1 or len(numeric) == len(self.table) == 1:
            return (tensors or numeric)[0]
        if not tensors:
            problem = "holds no numeric array with two or more modes"
            raise FileError(self.path, problem, f"It holds {self.listing()}.")
        problem = f"holds {len(tensors)} arrays that could be read"
        advice = f"Choose one with variable= (--variable): {self.listing(tensors)}."
        raise ChoiceError(self.path, problem, advice, tensors)

    def listing(self, names: Any = None) -> Any:
        """Return the names with shapes as text."""
        names = list(self.table if names is None else names)
        shown = ", ".join(f"{name} ({self.table[name]})" for name in names[:12])
        return (shown or "nothing") + (f" and {len(names) - 12} more" if len(names) > 12 else "")

    def labelled(
        self,
        variable: str | None = None,
        dims: Any = None,
        coords: Any = None,
        sampling_rate: float | None = None,
        *,
        lazy: Any = False,
    ) -> Any:
        """Return the chosen array as a DataArray, with coordinates from other arrays of the file."""
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
        taken = {dim: np.ravel(self._coordinate(source)) for dim, source in (coords or {}).items()}
        if sampling_rate is None and "time" in (dims or ()) and "time" not in taken:
            sampling_rate = self._sampling_rate()
        return label(array, self.path, dims, taken, sampling_rate, name=name)

    def _coordinate(self, source: Any) -> Any:
        """Return the array of that name, or the given values."""
        if not isinstance(source, str):
            return source
        if source not in self.table:
            raise FileError(self.path, f"has no variable {source!r} for a coordinate", f"It holds {self.listing()}.")
        return self.read(source)

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


def label(
    array: Any, path: Any, dims: Any = None, coords: Any = None, sampling_rate: float | None = None, *, name: Any = None
) -> Any:
    """Return a DataArray with the given mode names and coordinates, and times in seconds from the sampling rate."""
    xarray = load_extra("xarray", "labels")
    dims = tuple(f"mode{n}" for n in range(array.ndim)) if dims is None else tuple(dims)
    if len(dims) != array.ndim:
        shape = " x ".join(map(str, array.shape))
        problem = f"is {shape} ({array.ndim} modes), but {len(dims)} names were given ({', '.join(dims)})"
        raise FileError(path, problem, "Give one name for each mode (dims=, --dims).")
    if len(set(dims)) != len(dims):
        raise FileError(path, f"two modes have the same name ({', '.join(dims)})", "Give each its own (--dims).")
    coords = dict(coords or {})
    for dim, values in coords.items():
        if dim not in dims:
            raise FileError(path, f"has no mode {dim!r} for that coordinate", f"Its modes are {', '.join(dims)}.")
        size = array.shape[dims.index(dim)]
        if len(values) != size:
            problem = f"the coordinate of {dim!r} has {len(values)} values, but the mode has {size}"
            raise FileError(path, problem, "Give one value for each.")
    if sampling_rate is not None:
        if "time" not in dims:
            problem = f"a sampling rate was given, but none of the modes {', '.join(dims)} is called time"
            raise FileError(path, problem, "Name the modes (dims=, --dims), for instance channel,time.")
        if not (np.isfinite(sampling_rate) and sampling_rate > 0):
            raise FileError(path, f"the sampling rate {sampling_rate} is not a positive number", "Give it in Hz.")
        coords.setdefault("time", np.arange(array.shape[dims.index("time")]) / sampling_rate)
    X = xarray.DataArray(array, coords, dims, name=name)
    if sampling_rate is not None:
        X.attrs["sampling_rate"] = float(sampling_rate)
        X["time"].attrs["units"] = "s"
    return X
