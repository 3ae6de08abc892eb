"""NeuroTycho recordings: their sessions, and the files of one channel, of its trials, of all channels, of events."""

import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.io.errors import FileError
from boolcp.io.limits import refuse_unsafe
from boolcp.io.matlab import list_variables, read_variable

N_CHANNELS = 128  # rows of signals in a matrix of all channels; the row after them is the event signal
TRIALS, MATRIX = "data", "X"  # names of the variables
CHANNEL = re.compile(r"ECoG_ch(\d+)\.mat", re.IGNORECASE)
MATRIX_FILE = re.compile(r"ECoG-.*\.mat", re.IGNORECASE)  # all channels in one file
TIMES = ("ecogtime.mat", "ecog_time.mat")
MAPS = re.compile(r"(electrodes.*\.csv|.*map\.mat)", re.IGNORECASE)
DEPTH = 4  # folders searched below the one given


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
    return index is None or np.array_equal(index, np.arange(len(content["eventdata"])) + 1)


def _shape(path: Any, name: Any) -> Any:
    """Return the shape of a numeric variable, or None if there is none with that name."""
    variable = list_variables(Path(path)).get(name)
    return tuple(variable.shape) if variable is not None and variable.is_numeric else None


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


@dataclass(frozen=True)
class Session:
    """The files of one session; the paths lie in a folder or in a zip. A matrix is one file for all channels."""

    name: str
    channels: dict[int, Any]
    time: Any = None
    condition: Any = None
    electrodes: Any = None
    event: Any = None
    is_matrix: bool = False
    trials: tuple[int, int] | None = None  # their number and length, if the channels are cut into trials


@contextmanager
def opened(path: Any) -> Iterator[Any]:
    """Give the root of a recording: the folder, or the inside of a zip."""
    path = Path(path)
    if path.is_dir():
        yield path
        return
    refuse_unsafe(path)
    with zipfile.ZipFile(path) as archive:
        yield zipfile.Path(archive)


def find_sessions(path: Any, root: Any) -> Any:
    """Return the sessions below a folder, sorted by the numbers in their names."""
    sessions = list(_walk(root, DEPTH))
    if not sessions:
        advice = "A recording has files ECoG_ch1.mat, ECoG_ch2.mat, .., or ECoG-*.mat, in it or in folders of sessions."
        problem = "is not a NeuroTycho recording" + ", nor a BIDS folder (dataset_description.json)" * path.is_dir()
        raise FileError(path, problem, advice)
    return sorted(sessions, key=lambda item: [int(n) for n in re.findall(r"\d+", item.name)] or [0])


def _walk(folder: Any, depth: Any) -> Iterator[Any]:
    files = {item.name: item for item in folder.iterdir()}
    lower = {name.lower(): item for name, item in files.items()}
    numbers = {name: CHANNEL.fullmatch(name) for name in files}
    channels = {int(match[1]): files[name] for name, match in numbers.items() if match}
    time = next((lower[name] for name in TIMES if name in lower), None)
    maps = sorted(name for name in files if MAPS.fullmatch(name))
    beside = time, lower.get("condition.mat"), files[maps[0]] if maps else None, lower.get("event.mat")
    if channels:
        channels = dict(sorted(channels.items()))
        yield Session(folder.name or "recording", channels, *beside, trials=_find_trials(channels))
    else:
        for name in sorted(filter(MATRIX_FILE.fullmatch, files)):
            rows = dict.fromkeys(range(1, N_CHANNELS + 1), files[name])
            yield Session(Path(name).stem, rows, *beside, is_matrix=True)
    if depth:
        for name in sorted(files):
            if files[name].is_dir() and not name.startswith((".", "__MACOSX")):
                yield from _walk(files[name], depth - 1)


def _find_trials(channels: Any) -> Any:
    """Return the number and length of the trials, from the first channel that can be read, or None."""
    for file in channels.values():
        try:
            return on_disk(file, trial_shape)
        except FileError:
            continue
    return None


def choose_session(path: Any, sessions: Any, wanted: Any) -> Any:
    """Return the session with that number or name, in a list; all sessions if None."""
    if wanted is None:
        return sessions
    names = [item.name for item in sessions]
    text = str(wanted).lower()
    chosen = [item for item in sessions if item.name.lower() in (text, f"session{text}")]
    if not chosen and text.isdigit() and 1 <= int(text) <= len(sessions):
        chosen = [sessions[int(text) - 1]]
    if not chosen:
        raise FileError(path, f"has no session {wanted!r}", f"Its sessions are {', '.join(names)}.")
    return chosen


def first_channel(session: Any) -> Any:
    """Return the file of the first channel."""
    return next(iter(session.channels.values()))


def on_disk(file: Any, read: Any) -> Any:
    """Return read(path) for a file in a folder, or for the unpacked copy of one in a zip."""
    if not isinstance(file, zipfile.Path):
        return read(Path(file))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "member" + Path(file.name).suffix)
        try:
            with file.open("rb") as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target)
            return read(copy)
        except FileError as error:
            raise FileError(file, error.problem, error.advice) from error
        except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
            raise FileError(file, f"is damaged in the zip ({error})", "Download the zip again.") from error
