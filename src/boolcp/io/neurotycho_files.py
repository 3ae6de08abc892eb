"""The files of NeuroTycho recordings: one channel, trials of one channel, all channels in one matrix, events."""

from pathlib import Path
from typing import Any

import numpy as np

from boolcp.io.errors import FileError
from boolcp.io.matlab import list_variables, read_variable

N_CHANNELS = 128  # rows of signals in a matrix of all channels; the row after them is the event signal
TRIALS, MATRIX = "data", "X"  # names of the variables


def read_vector(path: Any) -> Any:
    """Return the one numeric array of a MATLAB file, without modes of length one."""
    table = list_variables(path)
    numeric = [name for name, variable in table.items() if variable.is_numeric]
    if len(numeric) != 1:
        named = [name for name in numeric if name.lower().startswith("ecog")]
        if len(named) != 1:
            names = ", ".join(table) or "nothing"
            raise FileError(path, "does not hold one array of numbers", f"It holds {names}: use the original file.")
        numeric = named
    value = np.squeeze(np.asarray(read_variable(path, numeric[0])))
    if value.ndim != 1:
        raise FileError(path, f"is {_sizes(value.shape)}, not one row", "Use open_tensor on that file.")
    return value


def trial_shape(path: Any) -> Any:
    """Return the number of trials and samples if the file of a channel holds `data` (trial x time), else None."""
    shape = _shape(path, TRIALS)
    return shape if shape is not None and len(shape) == 2 and min(shape) > 1 else None


def read_trials(path: Any, shape: tuple[int, ...]) -> Any:
    """Return the trials of one channel (trials, samples), which must have the shape of the other channels."""
    found = _shape(path, TRIALS)
    if found != shape:
        problem = f"has no variable {TRIALS!r}" if found is None else f"is {_sizes(found)} (trial x time)"
        raise FileError(path, f"{problem}, but other channels are {_sizes(shape)}", "Use the original files.")
    return np.asarray(read_variable(path, TRIALS))


def matrix_shape(path: Any) -> Any:
    """Return the shape of a matrix of all channels: 128 rows of signals and one of events."""
    shape = _shape(path, MATRIX)
    if shape is None or len(shape) != 2 or shape[0] != N_CHANNELS + 1:
        problem = f"has no variable {MATRIX!r}" if shape is None else f"{MATRIX} is {_sizes(shape)}"
        need = f"{N_CHANNELS} rows of channels and one of events are needed"
        raise FileError(path, f"{problem}: {need}", "Read the file itself: open_tensor(file, dims=..).")
    return shape


def read_matrix(path: Any) -> Any:
    """Return all channels (128, samples) and the event signal (samples,) of a matrix of all channels."""
    matrix_shape(path)
    X = np.asarray(read_variable(path, MATRIX))
    return X[:N_CHANNELS], X[N_CHANNELS].astype(float)


def read_event_times(path: Any) -> Any:
    """Return the times (s) of an Event.mat that lists every sample, else None."""
    content = _read_events(path)
    if "eventtime" not in content or not _is_every_sample(content):
        return None
    return content["eventtime"]


def read_events(path: Any, n_times: int) -> Any:
    """Return the event signal of an Event.mat at each sample of the recording, NaN where it has none.

    EventData has one value for each sample, or one for each sample (from 1) that EventIndex lists.
    """
    content = _read_events(path)
    values = content["eventdata"]
    if len(values) == n_times and _is_every_sample(content):
        return values
    if "eventindex" not in content:
        problem = f"has {len(values)} values in EventData, but the recording has {n_times} samples"
        raise FileError(path, f"{problem} and there is no EventIndex", "Use the original file.")
    index = content["eventindex"].round().astype(int) - 1
    if len(index) != len(values) or (len(index) and not (0 <= index.min() and index.max() < n_times)):
        problem = f"its EventIndex does not name {len(values)} of the {n_times} samples"
        raise FileError(path, problem, "It does not belong to this recording: use the original files.")
    signal = np.full(n_times, np.nan)
    signal[index] = values
    return signal


def _read_events(path: Any) -> Any:
    """Return those of EventData, EventTime and EventIndex that exist, by their names in lower case."""
    names = {name.rpartition(".")[2].lower(): name for name in list_variables(path)}
    if "eventdata" not in names:
        advice = "An Event.mat has EventData, EventTime and EventIndex."
        raise FileError(path, "has no variable 'EventData'", advice)
    wanted = [name for name in ("eventdata", "eventtime", "eventindex") if name in names]
    return {name: np.ravel(np.asarray(read_variable(path, names[name]), dtype=float)) for name in wanted}


def _is_every_sample(content: Any) -> Any:
    index = content.get("eventindex")
    return index is None or (
        len(index) == len(content["eventdata"]) and bool(np.all(index == np.arange(len(index)) + 1))
    )


def _shape(path: Any, name: Any) -> Any:
    """Return the shape of a numeric variable, or None if there is none with that name."""
    variable = list_variables(Path(path)).get(name)
    return tuple(variable.shape) if variable is not None and variable.is_numeric else None


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
