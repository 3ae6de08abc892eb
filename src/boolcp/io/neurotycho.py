"""NeuroTycho recordings: a folder or zip of sessions, each with one MATLAB file per channel."""

import re
import shutil
import tempfile
import warnings
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.extras import load_extra
from boolcp.io.electrodes import read_electrodes
from boolcp.io.errors import FileError
from boolcp.io.matlab import list_variables, read_variable
from boolcp.io.zips import refuse_unsafe

CHANNEL = re.compile(r"ECoG_ch(\d+)\.mat", re.IGNORECASE)
TIMES = ("ecogtime.mat", "ecog_time.mat")
MAPS = re.compile(r"(electrodes.*\.csv|.*map\.mat)", re.IGNORECASE)
DEPTH = 4  # folders searched below the one given


@dataclass(frozen=True)
class Session:
    """The files of one session; the paths lie in a folder or in a zip."""

    name: str
    channels: dict[int, Any]
    time: Any = None
    condition: Any = None
    electrodes: Any = None


@dataclass(frozen=True)
class Stretch:
    """A part of a session under one condition: samples start <= n < stop."""

    label: str
    start: int
    stop: int


def read_neurotycho(
    path,
    *,
    condition=None,
    session=None,
    channels=None,
    skip_bad=False,
    sampling_rate=None,
    electrodes=None,
    progress=False,
):
    """Return a NeuroTycho recording as a DataArray channel x time in float32, read channel by channel.

    Parameters
    ----------
    path : path
        Folder or zip with ECoG_ch1.mat .., a time file and Condition.mat, or with such folders as sessions.
    condition : str, optional
        Only the stretches of this condition, from all sessions; without it one session is read.
    session : int or str, optional
        Only this session, by number or name.
    channels : sequence, optional
        Only these channels, by number.
    skip_bad : bool
        Go on, with a warning, without channels whose files are damaged or of another length.
    sampling_rate : float, optional
        Samples per second, if there is no time file.
    electrodes : str or path, optional
        Table or map of the electrodes; by default one that lies beside the channels, if any.
    progress : bool
        Show a progress bar in a terminal.

    Returns
    -------
    DataArray
        Voltages with channel numbers, times (s), and positions and areas where known; `attrs` list the conditions.
    """
    with opened(path) as root:
        sessions = _choose(path, find_sessions(path, root), session)
        if condition is None and len(sessions) > 1:
            names = "; ".join(f"{item.name} ({_labels_text(item)})" for item in sessions)
            raise FileError(path, "has several sessions", f"Choose a session or a condition of {names}.")
        times = [_read_times(item, sampling_rate) for item in sessions]
        stretches = [_read_stretches(item, t) for item, t in zip(sessions, times, strict=True)]
        parts = [
            (item, len(t), _slices(s, condition, len(t))) for item, t, s in zip(sessions, times, stretches, strict=True)
        ]
        if condition is not None and not any(slices for _, _, slices in parts):
            known = sorted({s.label for group in stretches for s in group}) or ["none at all"]
            raise FileError(path, f"has no condition {condition!r}", f"Its conditions are {', '.join(known)}.")
        values, numbers, bad = _read_channels(path, parts, channels, skip_bad, progress)
        found = electrodes if electrodes is not None else next((s.electrodes for s in sessions if s.electrodes), None)
        places = {} if found is None else _on_disk(found, read_electrodes)
    coords = _time_coords(parts, times, is_split=condition is not None) | _channel_coords(numbers, places)
    X = load_extra("xarray", "labels").DataArray(values, coords, ("channel", "time"), name="ECoG")
    X.attrs = {"units": "uV", "sampling_rate": sampling_rate or _rate(path, times[0]), "left_out": bad}
    if condition is None:
        X.attrs |= _condition_attrs(stretches[0], times[0])
    else:
        X.attrs["preparation"] = [f"condition {condition}"]
    return X


@contextmanager
def opened(path):
    """Give the root of a recording: the folder, or the inside of a zip."""
    path = Path(path)
    if path.is_dir():
        yield path
        return
    refuse_unsafe(path)
    with zipfile.ZipFile(path) as archive:
        yield zipfile.Path(archive)


def find_sessions(path, root):
    """Return the sessions below a folder, sorted by the numbers in their names."""
    sessions = list(_walk(root, DEPTH))
    if not sessions:
        advice = "A recording has files ECoG_ch1.mat, ECoG_ch2.mat, .., in it or in folders of sessions."
        raise FileError(path, "is not a NeuroTycho recording", advice)
    return sorted(sessions, key=lambda item: [int(n) for n in re.findall(r"\d+", item.name)] or [0])


def _walk(folder, depth):
    files = {item.name: item for item in folder.iterdir()}
    lower = {name.lower(): item for name, item in files.items()}
    numbers = {name: CHANNEL.fullmatch(name) for name in files}
    channels = {int(match[1]): files[name] for name, match in numbers.items() if match}
    if channels:
        time = next((lower[name] for name in TIMES if name in lower), None)
        maps = sorted(name for name in files if MAPS.fullmatch(name))
        place = files[maps[0]] if maps else None
        yield Session(
            folder.name or "recording", dict(sorted(channels.items())), time, lower.get("condition.mat"), place
        )
    if depth:
        for name in sorted(files):
            if files[name].is_dir() and not name.startswith((".", "__MACOSX")):
                yield from _walk(files[name], depth - 1)


def _choose(path, sessions, wanted):
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


def _read_times(session, sampling_rate):
    """Return the times of the samples of a session, in seconds."""
    if session.time is None:
        first = next(iter(session.channels.values()))
        if sampling_rate is None:
            advice = "Copy ECoGTime.mat beside it, or give the sampling rate (sampling_rate=, --sampling-rate)."
            raise FileError(first, "has no time file beside it", advice)
        return np.arange(len(_on_disk(first, _read_vector))) / sampling_rate
    times = np.asarray(_on_disk(session.time, _read_vector), dtype=float)
    if len(times) < 2 or not np.all(np.diff(times) > 0):
        raise FileError(session.time, "its times do not increase", "It is not a time file: use the original one.")
    return times


def _rate(path, times):
    steps = np.diff(times)
    if np.mean(np.abs(steps - np.median(steps)) > 0.1 * np.median(steps)) > 0.01:
        raise FileError(path, "its times are not evenly spaced", "Give the sampling rate (--sampling-rate).")
    return float(round((len(times) - 1) / (times[-1] - times[0]), 3))


def _read_vector(path):
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
        raise FileError(path, f"is {' x '.join(map(str, value.shape))}, not one row", "Use open_tensor on that file.")
    return value


def _read_stretches(session, times):
    """Return the conditions of a session as stretches of samples, clipped to the recording."""
    if session.condition is None:
        return []
    labels, starts = _on_disk(session.condition, lambda path: read_conditions(path, times))
    open_at, stretches = {}, []
    for label, sample in zip(labels, starts, strict=True):
        name, _, side = label.rpartition("-")
        if side.lower() == "start":
            open_at[name] = sample
        elif side.lower() == "end":
            stretches.append(Stretch(name, open_at.pop(name, 0), sample + 1))
    stretches += [Stretch(name, start, len(times)) for name, start in open_at.items()]
    clipped = [Stretch(s.label, max(s.start, 0), min(s.stop, len(times))) for s in stretches]
    return [s for s in clipped if s.start < s.stop]


def read_conditions(path, times=None):
    """Return the labels of a Condition.mat and the sample (from 0) at which each applies.

    The samples come from ConditionIndex (from 1), or from ConditionTime and the times of the recording; with neither
    they are the times themselves, in seconds. The three may lie in a struct.
    """
    names = {name.rpartition(".")[2].lower(): name for name in list_variables(path)}
    if "conditionlabel" not in names or not {"conditionindex", "conditiontime"} & set(names):
        advice = "A Condition.mat has ConditionLabel and ConditionIndex or ConditionTime."
        raise FileError(path, "has no conditions", advice)
    labels = [
        str(label) for label in np.atleast_1d(np.asarray(read_variable(path, names["conditionlabel"]), dtype=str))
    ]
    if "conditionindex" in names:
        samples = np.atleast_1d(read_variable(path, names["conditionindex"])).astype(float).round().astype(int) - 1
    else:
        seconds = np.atleast_1d(read_variable(path, names["conditiontime"])).astype(float)
        samples = (
            seconds if times is None else np.searchsorted(times - times[0], seconds - np.median(np.diff(times)) / 2)
        )
    if len(labels) != len(samples):
        raise FileError(path, f"has {len(labels)} labels but {len(samples)} moments", "Use the original file.")
    return labels, samples.tolist()


def _slices(stretches, condition, n_times):
    if condition is None:
        return [slice(0, n_times)]
    return [slice(s.start, s.stop) for s in stretches if s.label.lower() == condition.lower()]


def _read_channels(path, parts, wanted, skip_bad, progress):
    """Return the wanted samples of all channels in one array (channels, samples), their numbers, and the bad ones."""
    parts = [part for part in parts if part[2]]
    known = sorted(set.intersection(*(set(session.channels) for session, _, _ in parts)))
    numbers = known if wanted is None else [_number(path, item, known) for item in wanted]
    n_samples = sum(s.stop - s.start for _, _, slices in parts for s in slices)
    values = np.empty((len(numbers), n_samples), np.float32)
    good: list[int] = []
    bad: list[int] = []
    for number in _bar(numbers, progress):
        try:
            _read_row(values[len(good)], number, parts)
            good.append(number)
        except FileError as error:
            if not skip_bad:
                advice = f"{error.advice} Or go on without the channel (skip_bad=True, --skip-bad)."
                raise FileError(error.path, error.problem, advice) from error
            bad.append(number)
            warnings.warn(f"Channel {number} is left out: {error.path}: {error.problem}.", UserWarning, stacklevel=4)
    if not good:
        raise FileError(path, "has no channel that can be read", "Copy or download it again.")
    return values[: len(good)], good, bad


def _read_row(row, number, parts):
    """Fill one row with the wanted samples of one channel."""
    position = 0
    for session, n_times, slices in parts:
        file = session.channels[number]
        signal = _on_disk(file, _read_vector)
        if len(signal) != n_times:
            problem = f"has {len(signal)} samples, but the time file has {n_times}"
            raise FileError(file, problem, "The two are not of one session: use the original files.")
        for part in slices:
            size = part.stop - part.start
            row[position : position + size] = signal[part]
            position += size


def _bar(numbers, progress):
    if not progress:
        return numbers
    from tqdm import tqdm

    return tqdm(numbers, desc="channels", disable=None)


def _number(path, item, known):
    text = str(item)
    if not text.isdigit() or int(text) not in known:
        raise FileError(
            path, f"has no channel {text}", f"Its {len(known)} channels run from {known[0]} to {known[-1]}."
        )
    return int(text)


def _on_disk(file, read):
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


def _time_coords(parts, times, is_split):
    pieces = [(t, part, item.name) for (item, _, slices), t in zip(parts, times, strict=True) for part in slices]
    coords = {"time": ("time", np.concatenate([t[part] for t, part, _ in pieces]), {"units": "s"})}
    if is_split and len(pieces) > 1:
        sizes = [part.stop - part.start for _, part, _ in pieces]
        coords["segment"] = "time", np.repeat(np.arange(len(pieces)), sizes), {}
    return coords


def _channel_coords(numbers, places):
    coords = {"channel": ("channel", np.array(numbers))}
    if places and all(number in places for number in numbers):
        for axis in ("x", "y"):
            coords[axis] = "channel", np.array([getattr(places[number], axis) for number in numbers])
        if all(places[number].area for number in numbers):
            coords["area"] = "channel", np.array([places[number].area for number in numbers])
    return coords


def _condition_attrs(stretches, times):
    if not stretches:
        return {}
    end = np.append(times, 2 * times[-1] - times[-2])
    return {
        "condition_label": [s.label for s in stretches],
        "condition_start": [float(end[s.start]) for s in stretches],
        "condition_stop": [float(end[s.stop]) for s in stretches],
    }


def _labels_text(session):
    if session.condition is None:
        return f"{len(session.channels)} channels"
    stretches = _read_stretches(session, _read_times(session, 1000.0))
    return ", ".join(dict.fromkeys(s.label for s in stretches)) or "no conditions"


def describe_recording(path):
    """Return the sessions, channels and conditions of a recording as lines of text."""
    lines = []
    with opened(path) as root:
        for session in find_sessions(path, root):
            times = _read_times(session, 1000.0)
            span = times[-1] - times[0]
            lines.append(f"{session.name}: {len(session.channels)} channels, {len(times)} samples, {span:.1f} s")
            for s in _read_stretches(session, times):
                start, stop = times[s.start] - times[0], times[s.stop - 1] - times[0]
                lines.append(f"  {s.label}: {start:.2f} to {stop:.2f} s")
    return lines
