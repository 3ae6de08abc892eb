"""Files of named arrays without labels (npz, mat, HDF5): which array to read, and the names of its modes.

Trials of unequal length are a cell of matrices (MATLAB, FieldTrip), or arrays with numbered names.
"""

import math
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from boolcp.extras import load_extra
from boolcp.io.errors import ChoiceError, FileError
from boolcp.io.limits import n_bytes, refuse_too_large
from boolcp.memory import available_memory, float_bytes
from boolcp.prepare import add_table, stack_trials

EXPORT_PART = "Export a part of it, or store it as .npy, .zarr or .h5: these are read in slabs."
RATE_NAMES = ("fs", "sfreq", "srate", "sampling_rate", "samplingrate")
CELLS = ("cell", "object")  # kinds of variables that may hold one matrix for each trial

DataArray = Any


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
            hint = " Spike times are counted with events= (--events unit,time,trial --bin-ms 20)." * (len(numeric) > 2)
            raise FileError(self.path, problem, f"It holds {self.listing()}.{hint}")
        problem = f"holds {len(tensors)} arrays that could be read"
        advice = f"Choose one with variable= (--variable): {self.listing(tensors)}."
        raise ChoiceError(self.path, problem, advice, tensors)

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


def find_trials(arrays: NamedArrays, variable: str | None) -> list[str] | None:
    """Return the names of the arrays that are trials, or of the one cell that holds them; None if there are none."""
    if variable is not None and "*" in variable:
        names = [name for name in arrays.table if fnmatchcase(name, variable)]
        if not names:
            raise FileError(arrays.path, f"has no variables {variable!r}", f"It holds {arrays.listing()}.")
        return sorted(names, key=_number)
    if arrays.path.suffix.lower() != ".mat":
        return None
    cells = [name for name, one in arrays.table.items() if one.kind in CELLS]
    if variable is not None:
        return [variable] if variable in cells else None
    has_tensor = any(v.is_numeric and sum(size > 1 for size in v.shape) >= 2 for v in arrays.table.values())
    cells = [] if has_tensor else [name for name in cells if _matrices(arrays.read(name))]
    return cells if len(cells) == 1 else None


def read_trials(
    arrays: NamedArrays, names: list[str], dims: Any = None, sampling_rate: float | None = None
) -> DataArray:
    """Return the trials as a tensor channel x time x trial, NaN where a trial has no samples."""
    path = arrays.path
    values = [arrays.read(name) for name in names]
    values = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    trials = _matrices(values)
    if not trials:
        problem = f"{names[0]!r} does not hold one matrix for each trial"
        raise FileError(path, problem, f"It holds {arrays.listing()}.")
    dims = ("channel", "time") if dims is None else tuple(dims)
    if sorted(dims[:2]) != ["channel", "time"] or dims[2:] not in ((), ("trial",)):
        raise FileError(path, f"trials of unequal length have the modes channel and time, not {dims}", "Change --dims.")
    trials = trials if dims[0] == "channel" else [trial.T for trial in trials]
    beside = _beside(arrays, names[0])
    times = _matrices(beside.get("time"), least=1)
    rate = sampling_rate if sampling_rate is not None else next((beside[n] for n in _RATES if n in beside), None)
    numbers = np.ravel(beside.get("trialinfo", []))
    try:
        X = stack_trials(
            trials,
            sampling_rate=None if times else rate,
            times=[np.ravel(t) for t in times] if times else None,
            channels=_labels(beside.get("label"), len(trials[0])),
        )
        return add_table(X, {"trialinfo": numbers}, "trial") if len(numbers) == len(trials) else X
    except ValueError as error:
        raise FileError(path, str(error).rstrip("."), "Check the trials, or give --sampling-rate.") from error


_RATES = ("fsample", *RATE_NAMES)


def _number(name: str) -> tuple[str, int]:
    """Return the key that sorts trial_2 before trial_10."""
    found = re.search(r"(\d+)$", name)
    return (name[: found.start()], int(found[1])) if found else (name, -1)


def _matrices(values: Any, least: int = 2) -> list[np.ndarray]:
    """Return a list of numeric arrays with at least this many modes, or nothing if it is not such a list."""
    if not isinstance(values, list) or not values:
        return []
    arrays = [
        np.asarray(value) if not isinstance(value, list | dict | str) else np.empty(0, object) for value in values
    ]
    return arrays if all(a.dtype.kind in "fiub" and a.ndim >= least for a in arrays) else []


def _beside(arrays: NamedArrays, name: str) -> dict[str, Any]:
    """Return what is stored beside a variable and describes it: times, labels, rate, as FieldTrip stores them."""
    prefix = name.rpartition(".")[0]
    found = {}
    for known in ("time", "label", "trialinfo", *_RATES):
        full = next((n for n in arrays.table if n.lower() == (f"{prefix}.{known}" if prefix else known).lower()), None)
        if full is not None and full != name:
            value = arrays.read(full)
            found[known] = float(np.ravel(value)[0]) if known in _RATES and np.size(value) == 1 else value
    return found


def _labels(values: Any, size: int) -> np.ndarray | None:
    values = None if values is None else np.ravel(np.asarray(values))
    return values if values is not None and len(values) == size else None
