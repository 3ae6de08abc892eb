"""Trials of unequal length in a file: a cell of matrices (MATLAB, FieldTrip), or arrays with numbered names."""

import re
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from boolcp.io.errors import FileError
from boolcp.io.variables import RATE_NAMES, NamedArrays
from boolcp.prepare import add_table, stack_trials

CELLS = ("cell", "object")  # kinds of variables that may hold one matrix for each trial

DataArray = Any


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
