"""NeuroTycho recordings: a folder or zip of sessions, each with one MATLAB file per channel, or one for all."""

import csv
import io
import re
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from tqdm import tqdm

from boolcp.checks import BoolcpWarning
from boolcp.extras import load_extra
from boolcp.io import atomic
from boolcp.io.arrays import list_variables, read_variable
from boolcp.io.coordinates import place_coords, read_electrodes
from boolcp.io.errors import FileError, writing
from boolcp.io.limits import refuse_unsafe
from boolcp.prepare import list_conditions

N_CHANNELS = 128  # rows of signals in a matrix of all channels; the row after them is the event signal
CHANNEL = re.compile(r"ECoG_ch(\d+)\.mat", re.IGNORECASE)
MATRIX_FILE = re.compile(r"ECoG-.*\.mat", re.IGNORECASE)  # all channels in one file, the variable X
TIMES = ("ecogtime.mat", "ecog_time.mat")
MAPS = re.compile(r"(electrodes.*\.csv|.*map\.mat)", re.IGNORECASE)
DEPTH = 4  # folders searched below the one given
ORIGINAL = "The two come from different sessions: use the original files."

File = Any  # a path in a folder or in a zip
Stretch = tuple[str, int, int]  # a condition, with its first sample and the one after its last


@dataclass(frozen=True)
class Session:
    """The files of one session, and what they say."""

    name: str
    channels: dict[int, File]
    time: File = None
    condition: File = None
    electrodes: File = None
    event: File = None
    is_matrix: bool = False  # one file for all channels
    trials: tuple[int, int] | None = None  # their number and length, if the channels are cut into trials

    @property
    def first(self) -> File:
        """Return the file of the first channel."""
        return next(iter(self.channels.values()))

    @cached_property
    def matrix(self) -> np.ndarray:
        """Return the channels and the event signal of a matrix of all channels."""
        return on_disk(self.first, _read_matrix)

    @cached_property
    def events(self) -> dict[str, np.ndarray]:
        """Return EventData and, where they exist, EventTime and EventIndex, in lower case."""
        return on_disk(self.event, _read_events)

    def signal(self, number: int) -> np.ndarray:
        """Return one channel, its trials one after another."""
        if self.is_matrix:
            return self.matrix[number - 1]
        signal = on_disk(self.channels[number], _read_numbers)
        if signal.ndim > 1 and signal.shape != self.trials:
            problem = f"is {_sizes(signal.shape)} (trial x time), but other channels are {_sizes(self.trials or (1,))}"
            raise FileError(self.channels[number], problem, "Use the original files.")
        return signal.ravel()

    def times(self, sampling_rate: float | None) -> np.ndarray:
        """Return the times of the samples, or of one trial, in seconds."""
        file, times = self.time, None
        if file is not None:
            times = on_disk(file, _read_numbers).ravel().astype(float)
        elif self.event is not None and self.trials is None and _is_every_sample(self.events):
            file, times = self.event, self.events.get("eventtime")
        if times is None:
            if sampling_rate is None:
                advice = "Copy ECoGTime.mat beside it, or give the sampling rate (sampling_rate=, --sampling-rate)."
                raise FileError(self.first, "has no time file beside it", advice)
            n = len(self.signal(next(iter(self.channels)))) if self.trials is None else self.trials[1]
            return np.arange(n) / sampling_rate
        if len(times) < 2 or not np.all(np.diff(times) > 0):
            raise FileError(file, "its times do not increase", "It is not a time file: use the original one.")
        if self.trials is not None and len(times) != self.trials[1]:
            raise FileError(file, f"has {len(times)} samples, but the trials have {self.trials[1]}", ORIGINAL)
        return times

    def stretches(self, times: np.ndarray) -> list[Stretch]:
        """Return the conditions, clipped to the recording."""
        if self.condition is None or self.trials is not None:
            return []
        open_at, found = {}, []
        for label, sample in zip(*on_disk(self.condition, read_conditions, times), strict=True):
            name, _, side = label.rpartition("-")
            if side.lower() == "start":
                open_at[name] = sample
            elif side.lower() == "end":
                found.append((name, open_at.pop(name, 0), sample + 1))
        found += [(name, start, len(times)) for name, start in open_at.items()]
        clipped = [(name, max(start, 0), min(stop, len(times))) for name, start, stop in found]
        return [one for one in clipped if one[1] < one[2]]

    def event_signal(self, n_times: int) -> np.ndarray:
        """Return the event signal at each sample, NaN where it has none."""
        if self.is_matrix:
            return self.matrix[N_CHANNELS].astype(float)
        values = self.events["eventdata"]
        if len(values) == n_times and _is_every_sample(self.events):
            return values
        if "eventindex" not in self.events:
            problem = f"has {len(values)} values in EventData, but the recording has {n_times} samples"
            raise FileError(self.event, f"{problem} and there is no EventIndex", "Use the original file.")
        index = self.events["eventindex"].round().astype(int) - 1
        if len(index) != len(values) or np.any((index < 0) | (index >= n_times)):
            problem = f"its EventIndex does not name {len(values)} of the {n_times} samples"
            raise FileError(self.event, problem, ORIGINAL)
        signal = np.full(n_times, np.nan)
        signal[index] = values
        return signal


def read_neurotycho(
    path: Path,
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
        trials = sessions[0].trials
        if condition is not None and any(item.trials is not None for item in sessions):
            raise FileError(path, "is cut into trials and has no conditions", "Leave condition= (--condition) out.")
        times = [item.times(sampling_rate) for item in sessions]
        stretches = [item.stretches(t) for item, t in zip(sessions, times, strict=True)]
        rate = sampling_rate or _rate(path, times[0])
        attrs = {"units": "µV", "sampling_rate": rate}
        if condition is None:
            parts = [(sessions[0], times[0], slice(0, len(times[0]) * (1 if trials is None else trials[0])))]
            ends = np.append(times[0], times[0][-1] + 1 / rate)
            attrs |= _condition_attrs(stretches[0], ends)
        else:
            found = [(s, t, one) for s, t, group in zip(sessions, times, stretches, strict=True) for one in group]
            parts = [(s, t, slice(a, b)) for s, t, (name, a, b) in found if name.lower() == str(condition).lower()]
            attrs["preparation"] = [f"condition {condition}"]
        if not parts:
            known = ", ".join(sorted({one[0] for group in stretches for one in group})) or "none at all"
            raise FileError(path, f"has no condition {condition!r}", f"Its conditions are {known}.")
        values, numbers, attrs["left_out"] = _read_channels(path, parts, channels, skip_bad, progress)
        table = electrodes if electrodes is not None else next((s.electrodes for s in sessions if s.electrodes), None)
        coords = _channel_coords(numbers, {} if table is None else on_disk(table, read_electrodes))
        dims = ["channel", "time"]
        if trials is not None:
            values, dims = values.reshape(len(values), *trials).transpose(0, 2, 1), [*dims, "trial"]
            coords |= {"time": ("time", times[0], {"units": "s"}), "trial": ("trial", np.arange(trials[0]))}
        else:
            pieces = [t[part] for _, t, part in parts]
            coords["time"] = "time", np.concatenate(pieces), {"units": "s"}
            if len(pieces) > 1:
                coords["segment"] = "time", np.repeat(np.arange(len(pieces)), list(map(len, pieces)))
            if all(s.is_matrix or s.event is not None for s, _, _ in parts):
                coords["event"] = "time", np.concatenate([s.event_signal(len(t))[part] for s, t, part in parts])
    return load_extra("xarray", "labels").DataArray(values, coords, dims, "ECoG", attrs)


def describe_recording(path: Path) -> list[str]:
    """Return the sessions, channels and conditions of a recording as lines of text."""
    lines = []
    with opened(path) as root:
        for session in find_sessions(path, root):
            head = f"{session.name}: {len(session.channels)} channels"
            if session.trials is not None:
                lines.append(f"{head}, {session.trials[0]} trials of {session.trials[1]} samples")
                continue
            times = session.times(1000.0)
            lines.append(f"{head}, {len(times)} samples, {times[-1] - times[0]:.1f} s")
            lines += ["  with an event signal"] if session.event is not None or session.is_matrix else []
            for label, start, stop in session.stretches(times):
                lines.append(f"  {label}: {times[start] - times[0]:.2f} to {times[stop - 1] - times[0]:.2f} s")
    return lines


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Give the root of a recording: the folder, or the inside of a zip."""
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


def find_sessions(path: Path, root: Any) -> list[Session]:
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
            shape = on_disk(file, _numeric_shape)
        except FileError:
            continue
        return shape if len(shape) == 2 and min(shape) > 1 else None
    return None


def _choose_session(path: Path, sessions: list[Session], wanted: Any) -> list[Session]:
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


def _labels_text(session: Session) -> str:
    if session.condition is None or session.trials is not None:
        return f"{len(session.channels)} channels"
    return ", ".join(dict.fromkeys(one[0] for one in session.stretches(session.times(1000.0)))) or "no conditions"


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _numeric_name(path: Path) -> tuple[str, tuple[int, ...]]:
    """Return the name and shape of the one numeric array of a MATLAB file."""
    table = list_variables(path)
    numeric = [name for name, variable in table.items() if variable.is_numeric]
    numeric = numeric if len(numeric) == 1 else [name for name in numeric if name.lower().startswith(("ecog", "data"))]
    if len(numeric) != 1:
        advice = f"It holds {', '.join(table) or 'nothing'}: use the original file."
        raise FileError(path, "does not hold one array of numbers", advice)
    return numeric[0], tuple(table[numeric[0]].shape)


def _numeric_shape(path: Path) -> tuple[int, ...]:
    return _numeric_name(path)[1]


def _read_numbers(path: Path) -> np.ndarray:
    """Return the one numeric array of a MATLAB file, without modes of length one."""
    return np.atleast_1d(np.squeeze(np.asarray(read_variable(path, _numeric_name(path)[0]))))


def _read_matrix(path: Path) -> np.ndarray:
    """Return all channels and the event signal of a matrix of all channels, (129, samples)."""
    variable = list_variables(path).get("X")
    shape = variable.shape if variable is not None and variable.is_numeric else None
    if shape is None or len(shape) != 2 or shape[0] != N_CHANNELS + 1:
        problem = "has no variable 'X'" if shape is None else f"X is {_sizes(shape)}"
        need = f"{N_CHANNELS} rows of channels and one of events are needed"
        raise FileError(path, f"{problem}: {need}", "Read the file itself: open_tensor(file, dims=..).")
    return np.asarray(read_variable(path, "X"))


def _read_events(path: Path) -> dict[str, np.ndarray]:
    names = {name.rpartition(".")[2].lower(): name for name in list_variables(path)}
    if "eventdata" not in names:
        raise FileError(path, "has no variable 'EventData'", "An Event.mat has EventData, EventTime and EventIndex.")
    wanted = [name for name in ("eventdata", "eventtime", "eventindex") if name in names]
    return {name: np.ravel(np.asarray(read_variable(path, names[name]), dtype=float)) for name in wanted}


def _is_every_sample(events: dict[str, np.ndarray]) -> bool:
    index = events.get("eventindex")
    return index is None or np.array_equal(index, np.arange(len(events["eventdata"])) + 1)


def _rate(path: Path, times: np.ndarray) -> float:
    steps = np.diff(times)
    if np.mean(np.abs(steps - np.median(steps)) > 0.1 * np.median(steps)) > 0.01:
        raise FileError(path, "its times are not evenly spaced", "Give the sampling rate (--sampling-rate).")
    return float(round((len(times) - 1) / (times[-1] - times[0]), 3))


def read_conditions(path: Path, times: Any = None) -> tuple[list[str], list[Any]]:
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


def _read_channels(path: Path, parts: list[Any], wanted: Any, skip_bad: bool, progress: bool) -> Any:
    """Return the requested samples as one array (channels, samples), the channel numbers, and the bad channels."""
    known = sorted(set.intersection(*(set(session.channels) for session, _, _ in parts)))
    numbers = known if wanted is None else [int(item) if str(item).isdigit() else item for item in wanted]
    for number in numbers:
        if number not in known:
            advice = f"Its {len(known)} channels run from {known[0]} to {known[-1]}."
            raise FileError(path, f"has no channel {number}", advice)
    sessions = {session.name: (session, len(t)) for session, t, _ in parts}
    values = np.empty((len(numbers), sum(part.stop - part.start for _, _, part in parts)), np.float32)
    good: list[int] = []
    bad: list[int] = []
    for number in tqdm(numbers, desc="channels", disable=None if progress else True):
        try:
            signals = {name: _read_channel(s, number, n_times) for name, (s, n_times) in sessions.items()}
            values[len(good)] = np.concatenate([signals[session.name][part] for session, _, part in parts])
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


def _read_channel(session: Session, number: int, n_times: int) -> np.ndarray:
    """Return one channel of a session, which must have as many samples as there are times."""
    signal, due = session.signal(number), n_times * (1 if session.trials is None else session.trials[0])
    if len(signal) != due:
        file = session.channels[number]
        raise FileError(file, f"has {len(signal)} samples, but the time file has {due}", ORIGINAL)
    return signal


def _channel_coords(numbers: list[int], places: Any) -> dict[str, Any]:
    coords: dict[str, Any] = {"channel": ("channel", np.array(numbers))}
    if places and all(number in places for number in numbers):
        coords |= place_coords([places[number] for number in numbers])
    return coords


def _condition_attrs(stretches: list[Stretch], ends: np.ndarray) -> dict[str, Any]:
    if not stretches:
        return {}
    starts, stops = ([float(ends[one[n]]) for one in stretches] for n in (1, 2))
    return {"condition_label": [one[0] for one in stretches], "condition_start": starts, "condition_stop": stops}


def write_neurotycho(sessions: Any, folder: Any, *, overwrite: bool = False) -> None:
    """Write recordings as a NeuroTycho folder: Session1 .. with one MATLAB file per channel, times and conditions.

    They are channel x time in microvolts, rounded to int16, as the originals are. Their conditions are those of
    `boolcp.prepare.list_conditions`, their electrodes the coordinates "x", "y" and "area".

    Examples
    --------
    >>> import boolcp, pathlib, tempfile
    >>> from boolcp.io.neurotycho import write_neurotycho
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> simulation = boolcp.datasets.simulate_ecog(n_channels=8, n_trials=2, trial_ms=200, random_state=0)
    >>> write_neurotycho(simulation.sessions.values(), folder)
    >>> boolcp.open_tensor(folder, condition="Anesthetized").shape
    (8, 400)
    """
    for number, X in enumerate(sessions, start=1):
        path = Path(folder) / f"Session{number}"
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        X = X.transpose("channel", "time")
        times = X["time"].values.astype(float)
        for channel, row in enumerate(X.values, start=1):
            signal = np.clip(np.rint(row), -(2**15), 2**15 - 1).astype(np.int16)
            _write_mat(path / f"ECoG_ch{channel}.mat", {f"ECoGData_ch{channel}": signal[None]}, overwrite)
        _write_mat(path / "ECoGTime.mat", {"ECoGTime": times[None]}, overwrite)
        found = list_conditions(X)
        labels = [f"{label}-{side}" for label, _, _ in found for side in ("Start", "End")]
        index = [(np.searchsorted(times, start) + 1, np.searchsorted(times, stop)) for _, start, stop in found]
        samples = np.ravel(index).astype(float)[None]  # from 1, the end included
        content = {"ConditionLabel": np.array([labels], dtype=object), "ConditionIndex": samples}
        _write_mat(path / "Condition.mat", content | {"ConditionTime": (samples - 1) / 1000}, overwrite)
        if {"x", "y"} <= set(X.coords):
            areas = X["area"].values if "area" in X.coords else [""] * X.sizes["channel"]
            table = io.StringIO()
            rows = zip(range(1, len(areas) + 1), X["x"].values, X["y"].values, areas, strict=True)
            csv.writer(table, lineterminator="\n").writerows([("channel", "x", "y", "area"), *rows])
            atomic.write_text(path / "electrodes.csv", table.getvalue(), overwrite=overwrite)


def _write_mat(path: Path, content: Any, overwrite: bool) -> None:
    atomic.check_free(path, overwrite=overwrite)
    with writing(path):
        scipy.io.savemat(path, content)
