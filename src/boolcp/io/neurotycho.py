"""NeuroTycho recordings: a folder or zip of sessions, each with one MATLAB file per channel, or one for all."""

import re
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from boolcp.checks import BoolcpWarning
from boolcp.extras import load_extra
from boolcp.io.coordinates import read_electrodes
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
ORIGINAL = "The two come from different sessions: use the original files."

File = Any  # a path in a folder or in a zip


@dataclass(frozen=True)
class Session:
    """The files of one session. A matrix is one file for all channels."""

    name: str
    channels: dict[int, File]
    time: File = None
    condition: File = None
    electrodes: File = None
    event: File = None
    is_matrix: bool = False
    trials: tuple[int, int] | None = None  # their number and length, if the channels are cut into trials

    @property
    def first(self) -> File:
        """Return the file of the first channel."""
        return next(iter(self.channels.values()))


@dataclass(frozen=True)
class Stretch:
    """A part of a session under one condition: samples start <= n < stop."""

    label: str
    start: int
    stop: int


def read_neurotycho(
    path: str | PathLike[str],
    *,
    condition: Any = None,
    session: Any = None,
    channels: Any = None,
    skip_bad: bool = False,
    sampling_rate: float | None = None,
    electrodes: Any = None,
    progress: bool = False,
) -> Any:
    """Return a NeuroTycho recording as a DataArray channel x time in float32, read channel by channel.

    The options are those of `boolcp.open_tensor`. A condition takes its segments from all sessions; without one, a
    single session is read. Channels that are cut into trials give channel x time x trial. The signal of an Event.mat
    file, or of the last row of a matrix of all channels, is the coordinate "event" along time; `attrs` list the
    conditions.
    """
    with opened(path) as root:
        sessions = _choose_session(path, find_sessions(path, root), session)
        if condition is None and len(sessions) > 1:
            names = "; ".join(f"{item.name} ({_labels_text(item)})" for item in sessions)
            raise FileError(path, "has several sessions", f"Choose a session or a condition of {names}.")
        if condition is not None and any(item.trials is not None for item in sessions):
            raise FileError(path, "is cut into trials and has no conditions", "Leave condition= (--condition) out.")
        matrices = {item.name: on_disk(item.first, _read_matrix) for item in sessions if item.is_matrix}
        times = [_read_times(item, sampling_rate) for item in sessions]
        stretches = [_read_stretches(item, t) for item, t in zip(sessions, times, strict=True)]
        parts = _find_parts(path, sessions, times, stretches, condition)
        values, numbers, bad = _read_channels(path, parts, channels, skip_bad, progress, matrices)
        found = electrodes if electrodes is not None else next((s.electrodes for s in sessions if s.electrodes), None)
        coords = _channel_coords(numbers, {} if found is None else on_disk(found, read_electrodes))
        dims = ["channel", "time"]
        if sessions[0].trials is None:
            coords |= _time_coords(parts, times, is_split=condition is not None) | _event_coord(parts, matrices)
        else:
            values = values.reshape(len(values), *sessions[0].trials).transpose(0, 2, 1)
            coords |= {"time": ("time", times[0], {"units": "s"}), "trial": ("trial", np.arange(values.shape[2]))}
            dims.append("trial")
    X = load_extra("xarray", "labels").DataArray(values, coords, dims, name="ECoG")
    X.attrs = {"units": "µV", "sampling_rate": sampling_rate or _rate(path, times[0]), "left_out": bad}
    X.attrs |= _condition_attrs(stretches[0], times[0]) if condition is None else {}
    X.attrs |= {} if condition is None else {"preparation": [f"condition {condition}"]}
    return X


def describe_recording(path: Any) -> list[str]:
    """Return the sessions, channels and conditions of a recording as lines of text."""
    lines = []
    with opened(path) as root:
        for session in find_sessions(path, root):
            head = f"{session.name}: {len(session.channels)} channels"
            if session.trials is not None:
                lines.append(f"{head}, {session.trials[0]} trials of {session.trials[1]} samples")
                continue
            times = _read_times(session, 1000.0)
            lines.append(f"{head}, {len(times)} samples, {times[-1] - times[0]:.1f} s")
            lines += ["  with an event signal"] if session.event is not None or session.is_matrix else []
            for s in _read_stretches(session, times):
                lines.append(f"  {s.label}: {times[s.start] - times[0]:.2f} to {times[s.stop - 1] - times[0]:.2f} s")
    return lines


# The files of a recording


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


def on_disk(file: File, read: Any, *arguments: Any) -> Any:
    """Return read(path, ..) for a file in a folder, or for the unpacked copy of one in a zip."""
    if not isinstance(file, zipfile.Path):
        return read(Path(file), *arguments)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "member" + Path(file.name).suffix)
        try:
            with file.open("rb") as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target)
            return read(copy, *arguments)
        except FileError as error:
            raise FileError(file, error.problem, error.advice) from error
        except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
            raise FileError(file, f"is damaged in the zip ({error})", "Download the zip again.") from error


def find_sessions(path: Any, root: Any) -> list[Session]:
    """Return the sessions below a folder, sorted by the numbers in their names."""
    sessions = list(_walk(root, DEPTH))
    if not sessions:
        advice = "A recording has files ECoG_ch1.mat, ECoG_ch2.mat, .., or ECoG-*.mat, in it or in folders of sessions."
        problem = "is not a NeuroTycho recording" + ", nor a BIDS folder (dataset_description.json)" * path.is_dir()
        raise FileError(path, problem, advice)
    return sorted(sessions, key=lambda item: [int(n) for n in re.findall(r"\d+", item.name)] or [0])


def _walk(folder: Any, depth: int) -> Iterator[Session]:
    files = {item.name: item for item in folder.iterdir()}
    lower = {name.lower(): item for name, item in files.items()}
    numbers = {name: CHANNEL.fullmatch(name) for name in files}
    channels = dict(sorted((int(match[1]), files[name]) for name, match in numbers.items() if match))
    time = next((lower[name] for name in TIMES if name in lower), None)
    maps = sorted(name for name in files if MAPS.fullmatch(name))
    beside = time, lower.get("condition.mat"), files[maps[0]] if maps else None, lower.get("event.mat")
    if channels:
        yield Session(folder.name or "recording", channels, *beside, trials=_find_trials(channels))
    else:
        for name in sorted(filter(MATRIX_FILE.fullmatch, files)):
            rows = dict.fromkeys(range(1, N_CHANNELS + 1), files[name])
            yield Session(Path(name).stem, rows, *beside, is_matrix=True)
    for name in sorted(files) if depth else ():
        if files[name].is_dir() and not name.startswith((".", "__MACOSX")):
            yield from _walk(files[name], depth - 1)


def _find_trials(channels: dict[int, File]) -> Any:
    """Return the number and length of the trials (trial x time) of the first channel that can be read, or None."""
    for file in channels.values():
        try:
            shape = on_disk(file, _shape, TRIALS)
        except FileError:
            continue
        return shape if shape is not None and len(shape) == 2 and min(shape) > 1 else None
    return None


def _choose_session(path: Any, sessions: list[Session], wanted: Any) -> list[Session]:
    """Return the session with that number or name, in a list; all sessions if None."""
    if wanted is None:
        return sessions
    text = str(wanted).lower()
    chosen = [item for item in sessions if item.name.lower() in (text, f"session{text}")]
    if not chosen and text.isdigit() and 1 <= int(text) <= len(sessions):
        chosen = [sessions[int(text) - 1]]
    if not chosen:
        names = ", ".join(item.name for item in sessions)
        raise FileError(path, f"has no session {wanted!r}", f"Its sessions are {names}.")
    return chosen


# The content of each file


def _shape(path: Path, name: str) -> tuple[int, ...] | None:
    """Return the shape of a numeric variable, or None if there is none with that name."""
    variable = list_variables(path).get(name)
    return tuple(variable.shape) if variable is not None and variable.is_numeric else None


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _read_vector(path: Path) -> np.ndarray:
    """Return the one numeric array of a MATLAB file, without modes of length one."""
    table = list_variables(path)
    numeric = [name for name, variable in table.items() if variable.is_numeric]
    numeric = numeric if len(numeric) == 1 else [name for name in numeric if name.lower().startswith("ecog")]
    if len(numeric) != 1:
        advice = f"It holds {', '.join(table) or 'nothing'}: use the original file."
        raise FileError(path, "does not hold one array of numbers", advice)
    value = np.squeeze(np.asarray(read_variable(path, numeric[0])))
    if value.ndim != 1:
        raise FileError(path, f"is {_sizes(value.shape)}, not one row", "Use open_tensor on that file.")
    return value


def _read_trials(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Return the trials of one channel one after another; they must have the shape of the other channels."""
    found = _shape(path, TRIALS)
    if found != shape:
        problem = f"has no variable {TRIALS!r}" if found is None else f"is {_sizes(found)} (trial x time)"
        raise FileError(path, f"{problem}, but other channels are {_sizes(shape)}", "Use the original files.")
    return np.ravel(read_variable(path, TRIALS))


def _read_matrix(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return all channels (128, samples) and the event signal (samples,) of a matrix of all channels."""
    shape = _shape(path, MATRIX)
    if shape is None or len(shape) != 2 or shape[0] != N_CHANNELS + 1:
        problem = f"has no variable {MATRIX!r}" if shape is None else f"{MATRIX} is {_sizes(shape)}"
        need = f"{N_CHANNELS} rows of channels and one of events are needed"
        raise FileError(path, f"{problem}: {need}", "Read the file itself: open_tensor(file, dims=..).")
    X = np.asarray(read_variable(path, MATRIX))
    return X[:N_CHANNELS], X[N_CHANNELS].astype(float)


def _read_event_file(path: Path) -> dict[str, np.ndarray]:
    """Return those of EventData, EventTime and EventIndex that exist, by their names in lower case."""
    names = {name.rpartition(".")[2].lower(): name for name in list_variables(path)}
    if "eventdata" not in names:
        raise FileError(path, "has no variable 'EventData'", "An Event.mat has EventData, EventTime and EventIndex.")
    wanted = [name for name in ("eventdata", "eventtime", "eventindex") if name in names]
    return {name: np.ravel(np.asarray(read_variable(path, names[name]), dtype=float)) for name in wanted}


def _read_events(session: Session, n_times: int) -> np.ndarray:
    """Return the event signal of an Event.mat at each sample of the recording, NaN where it has none.

    EventData has one value for each sample, or one for each sample (from 1) that EventIndex lists.
    """
    path, content = session.event, on_disk(session.event, _read_event_file)
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


def _is_every_sample(content: dict[str, np.ndarray]) -> bool:
    index = content.get("eventindex")
    return index is None or np.array_equal(index, np.arange(len(content["eventdata"])) + 1)


def _read_times(session: Session, sampling_rate: float | None) -> np.ndarray:
    """Return the times of the samples of a session, or of one trial, in seconds."""
    file, times = session.time, None
    if file is not None:
        times = np.asarray(on_disk(file, _read_vector), dtype=float)
    elif session.event is not None and session.trials is None:
        file, content = session.event, on_disk(session.event, _read_event_file)
        times = content.get("eventtime") if _is_every_sample(content) else None
    if times is None:
        if sampling_rate is None:
            advice = "Copy ECoGTime.mat beside it, or give the sampling rate (sampling_rate=, --sampling-rate)."
            raise FileError(session.first, "has no time file beside it", advice)
        if session.trials is not None:
            return np.arange(session.trials[1]) / sampling_rate
        signal = on_disk(session.first, _read_matrix)[1] if session.is_matrix else on_disk(session.first, _read_vector)
        return np.arange(len(signal)) / sampling_rate
    if len(times) < 2 or not np.all(np.diff(times) > 0):
        raise FileError(file, "its times do not increase", "It is not a time file: use the original one.")
    return times


def _rate(path: Any, times: np.ndarray) -> float:
    steps = np.diff(times)
    if np.mean(np.abs(steps - np.median(steps)) > 0.1 * np.median(steps)) > 0.01:
        raise FileError(path, "its times are not evenly spaced", "Give the sampling rate (--sampling-rate).")
    return float(round((len(times) - 1) / (times[-1] - times[0]), 3))


def read_conditions(path: Any, times: Any = None) -> tuple[list[str], list[Any]]:
    """Return the labels of a Condition.mat and the sample (from 0) at which each applies.

    The samples come from ConditionIndex (from 1), or from ConditionTime and the times of the recording; with neither,
    they are the times themselves, in seconds. The three may lie in a struct.
    """
    names = {name.rpartition(".")[2].lower(): name for name in list_variables(path)}
    if "conditionlabel" not in names or not {"conditionindex", "conditiontime"} & set(names):
        advice = "A Condition.mat has ConditionLabel and ConditionIndex or ConditionTime."
        raise FileError(path, "has no conditions", advice)
    labels = np.atleast_1d(np.asarray(read_variable(path, names["conditionlabel"]), dtype=str)).tolist()
    if "conditionindex" in names:
        samples = np.atleast_1d(read_variable(path, names["conditionindex"])).astype(float).round().astype(int) - 1
    else:
        samples = np.atleast_1d(read_variable(path, names["conditiontime"])).astype(float)
        if times is not None:
            samples = np.searchsorted(times - times[0], samples - np.median(np.diff(times)) / 2)
    if len(labels) != len(samples):
        raise FileError(path, f"has {len(labels)} labels but {len(samples)} times", "Use the original file.")
    return labels, samples.tolist()


def _read_stretches(session: Session, times: np.ndarray) -> list[Stretch]:
    """Return the conditions of a session as segments of samples, clipped to the recording."""
    if session.condition is None or session.trials is not None:
        return []
    open_at, stretches = {}, []
    for label, sample in zip(*on_disk(session.condition, read_conditions, times), strict=True):
        name, _, side = label.rpartition("-")
        if side.lower() == "start":
            open_at[name] = sample
        elif side.lower() == "end":
            stretches.append(Stretch(name, open_at.pop(name, 0), sample + 1))
    stretches += [Stretch(name, start, len(times)) for name, start in open_at.items()]
    clipped = [Stretch(s.label, max(s.start, 0), min(s.stop, len(times))) for s in stretches]
    return [s for s in clipped if s.start < s.stop]


def _labels_text(session: Session) -> str:
    if session.condition is None or session.trials is not None:
        return f"{len(session.channels)} channels"
    stretches = _read_stretches(session, _read_times(session, 1000.0))
    return ", ".join(dict.fromkeys(s.label for s in stretches)) or "no conditions"


# The tensor


def _find_parts(path: Any, sessions: Any, times: Any, stretches: Any, condition: Any) -> list[Any]:
    """Return for each session the number of its samples and the slices of them to read."""
    parts = []
    for session, t, s in zip(sessions, times, stretches, strict=True):
        n_samples = len(t) * (1 if session.trials is None else session.trials[0])
        if session.trials is not None and len(t) != session.trials[1]:
            problem = f"has {len(t)} samples, but the trials have {session.trials[1]}"
            raise FileError(session.time, problem, ORIGINAL)
        slices = [slice(one.start, one.stop) for one in s if one.label.lower() == str(condition).lower()]
        parts.append((session, n_samples, [slice(0, n_samples)] if condition is None else slices))
    if not any(slices for _, _, slices in parts):
        known = sorted({s.label for group in stretches for s in group}) or ["none at all"]
        raise FileError(path, f"has no condition {condition!r}", f"Its conditions are {', '.join(known)}.")
    return parts


def _read_channels(path: Any, parts: Any, wanted: Any, skip_bad: bool, progress: bool, matrices: Any) -> Any:
    """Return the requested samples as one array (channels, samples), the channel numbers, and the bad channels."""
    parts = [part for part in parts if part[2]]
    known = sorted(set.intersection(*(set(session.channels) for session, _, _ in parts)))
    numbers = known if wanted is None else [_number(path, str(item), known) for item in wanted]
    n_samples = sum(s.stop - s.start for _, _, slices in parts for s in slices)
    values = np.empty((len(numbers), n_samples), np.float32)
    good: list[int] = []
    bad: list[int] = []
    for number in tqdm(numbers, desc="channels", disable=None if progress else True):
        try:
            signals = [_read_channel(session, number, n_times, matrices) for session, n_times, _ in parts]
            cut = [signal[one] for signal, part in zip(signals, parts, strict=True) for one in part[2]]
            values[len(good)] = np.concatenate(cut)
            good.append(number)
        except FileError as error:
            if not skip_bad:
                advice = f"{error.advice} Or skip the channel (skip_bad=True, --skip-bad)."
                raise FileError(error.path, error.problem, advice) from error
            bad.append(number)
            warnings.warn(f"Skipped channel {number}: {error.path}: {error.problem}.", BoolcpWarning, stacklevel=4)
    if not good:
        raise FileError(path, "has no channel that can be read", "Copy or download it again.")
    return values[: len(good)], good, bad


def _read_channel(session: Session, number: int, n_times: int, matrices: Any) -> np.ndarray:
    """Return one channel of a session, which must have this many samples."""
    file = session.channels[number]
    if session.is_matrix:
        signal = matrices[session.name][0][number - 1]
    elif session.trials is not None:
        signal = on_disk(file, _read_trials, session.trials)
    else:
        signal = on_disk(file, _read_vector)
    if len(signal) != n_times:
        raise FileError(file, f"has {len(signal)} samples, but the time file has {n_times}", ORIGINAL)
    return signal


def _number(path: Any, text: str, known: list[int]) -> int:
    if not text.isdigit() or int(text) not in known:
        advice = f"Its {len(known)} channels run from {known[0]} to {known[-1]}."
        raise FileError(path, f"has no channel {text}", advice)
    return int(text)


def _time_coords(parts: Any, times: Any, is_split: bool) -> dict[str, Any]:
    pieces = [t[part] for (_, _, slices), t in zip(parts, times, strict=True) for part in slices]
    coords = {"time": ("time", np.concatenate(pieces), {"units": "s"})}
    if is_split and len(pieces) > 1:
        coords["segment"] = "time", np.repeat(np.arange(len(pieces)), list(map(len, pieces))), {}
    return coords


def _event_coord(parts: Any, matrices: Any) -> dict[str, Any]:
    """Return the event signal along time, if every session has one."""
    if not all(session.is_matrix or session.event is not None for session, _, _ in parts):
        return {}
    signals = [matrices[s.name][1] if s.is_matrix else _read_events(s, n_times) for s, n_times, _ in parts]
    cut = [signal[part] for signal, (_, _, slices) in zip(signals, parts, strict=True) for part in slices]
    return {"event": ("time", np.concatenate(cut))}


def _channel_coords(numbers: list[int], places: Any) -> dict[str, Any]:
    coords: dict[str, Any] = {"channel": ("channel", np.array(numbers))}
    if places and all(number in places for number in numbers):
        for axis, name in (("x", "x"), ("y", "height")):
            coords[axis] = "channel", np.array([getattr(places[number], name) for number in numbers])
        if all(places[number].area for number in numbers):
            coords["area"] = "channel", np.array([places[number].area for number in numbers])
    return coords


def _condition_attrs(stretches: list[Stretch], times: np.ndarray) -> dict[str, Any]:
    if not stretches:
        return {}
    end = np.append(times, 2 * times[-1] - times[-2])
    attrs: dict[str, Any] = {"condition_label": [s.label for s in stretches]}
    attrs["condition_start"] = [float(end[s.start]) for s in stretches]
    attrs["condition_stop"] = [float(end[s.stop]) for s in stretches]
    return attrs
