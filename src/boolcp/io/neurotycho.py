"""NeuroTycho recordings: a folder or zip of sessions, each with one MATLAB file per channel."""

import os
import re
import shutil
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from tqdm import tqdm

from boolcp.checks import BoolcpWarning
from boolcp.io import atomic
from boolcp.io.arrays import list_variables, read_variable
from boolcp.io.coordinates import place_coords, read_electrodes
from boolcp.io.errors import FileError, writing
from boolcp.io.limits import refuse_unsafe
from boolcp.prepare import list_conditions
from boolcp.system import load_extra

CHANNEL = re.compile(r"ECoG_ch(\d+)\.mat", re.IGNORECASE)
MAP = re.compile(r"(electrodes.*\.csv|.*map\.mat)", re.IGNORECASE)

File = Any  # a path in a folder or in a zip


@dataclass(frozen=True)
class Session:
    """The files of one session, and what they say."""

    name: str
    channels: dict[int, File]
    time: File
    condition: File
    electrodes: File

    def signal(self, number: int, times: np.ndarray) -> np.ndarray:
        """Return one channel."""
        file = self.channels[number]
        signal = on_disk(file, _read_numbers)
        if signal.shape != times.shape:
            sizes = f"{' x '.join(map(str, signal.shape))} samples, but the time file has {len(times)}"
            raise FileError(file, f"has {sizes}", "The two come from different sessions: use the original files.")
        return signal

    def times(self, sampling_rate: float | None) -> np.ndarray:
        """Return the times of the samples in seconds."""
        if self.time is None:
            first = next(iter(self.channels.values()))
            if sampling_rate is None:
                advice = "Copy ECoGTime.mat next to it, or give the sampling rate (sampling_rate=, --sampling-rate)."
                raise FileError(first, "has no time file next to it", advice)
            return np.arange(len(on_disk(first, _read_numbers))) / sampling_rate
        times = on_disk(self.time, _read_numbers).astype(float)
        if times.ndim != 1 or len(times) < 2 or not np.all(np.diff(times) > 0):
            raise FileError(self.time, "its times do not increase", "It is not a time file: use the original one.")
        return times

    def stretches(self, times: np.ndarray) -> list[tuple[str, int, int]]:
        """Return the conditions, clipped to the recording, with the first sample and the one after the last."""
        if self.condition is None:
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


def read_neurotycho(
    path: Path, condition: Any, session: Any, channels: Any, skip_bad: bool, rate: Any, electrodes: Any, progress: bool
) -> Any:
    """Return a NeuroTycho recording, or the segments of a condition in all sessions, as channel x time in float32."""
    with opened(path) as root:
        sessions = _choose_session(path, find_sessions(path, root), session)
        attrs: dict[str, Any] = {"units": "µV"}
        if condition is None and len(sessions) > 1:
            held = {item.name: dict.fromkeys(s[0] for s in item.stretches(item.times(1000.0))) for item in sessions}
            listing = "; ".join(f"{name} ({', '.join(labels) or 'no conditions'})" for name, labels in held.items())
            raise FileError(path, "has several sessions", f"Choose a session or a condition of {listing}.")
        times = [item.times(rate) for item in sessions]
        steps = np.diff(times[0])
        if rate is None and np.mean(np.abs(steps - np.median(steps)) > 0.1 * np.median(steps)) > 0.01:
            raise FileError(path, "its times are not evenly spaced", "Give the sampling rate (--sampling-rate).")
        attrs["sampling_rate"] = rate or float(round(len(steps) / (times[0][-1] - times[0][0]), 3))
        known = [(s, t, one) for s, t in zip(sessions, times, strict=True) for one in s.stretches(t)]
        if condition is None:
            parts = [(sessions[0], times[0], slice(None))]
            ends = np.append(times[0], 2 * times[0][-1] - times[0][-2]).tolist()
            stretches = [(name, ends[start], ends[stop]) for _, _, (name, start, stop) in known]
            columns = zip(("label", "start", "stop"), zip(*stretches, strict=True), strict=bool(known))
            attrs |= {f"condition_{name}": list(column) for name, column in columns}
        else:
            parts = [(s, t, slice(a, b)) for s, t, (name, a, b) in known if name.lower() == str(condition).lower()]
            attrs["preparation"] = [f"condition {condition}"]
        if not parts:
            labels = ", ".join(sorted({one[0] for _, _, one in known})) or "none at all"
            raise FileError(path, f"has no condition {condition!r}", f"Its conditions are {labels}.")
        values, numbers, attrs["left_out"] = _read_channels(path, parts, channels, skip_bad, progress)
        coords: dict[str, Any] = {"channel": ("channel", np.array(numbers))}
        table = electrodes or next((s.electrodes for s in sessions if s.electrodes), None)
        places = None if table is None else on_disk(table, read_electrodes)
        if places is not None and set(numbers) <= set(places.index):
            coords |= place_coords(places.loc[numbers])
        pieces = [t[part] for _, t, part in parts]
        coords["time"] = "time", np.concatenate(pieces), {"units": "s"}
        if len(pieces) > 1:
            coords["segment"] = "time", np.repeat(np.arange(len(pieces)), list(map(len, pieces)))
    return load_extra("xarray", "files").DataArray(values, coords, ("channel", "time"), "ECoG", attrs)


def _read_channels(path: Path, parts: list[Any], wanted: Any, skip_bad: bool, progress: bool) -> Any:
    """Return the requested samples as one array (channels, samples), the channel numbers, and the bad channels."""
    known = sorted(set.intersection(*(set(session.channels) for session, _, _ in parts)))
    numbers = known if wanted is None else [int(item) if str(item).isdigit() else item for item in wanted]
    if missing := [number for number in numbers if number not in known]:
        raise FileError(path, f"has no channel {missing[0]}", f"Its channels run from {known[0]} to {known[-1]}.")
    sessions = {id(session): (session, times) for session, times, _ in parts}  # two may have the same name
    values, good = np.empty((0, 0), np.float32), list[int]()
    for number in tqdm(numbers, desc="channels", disable=None if progress else True):
        try:
            signals = {key: session.signal(number, times) for key, (session, times) in sessions.items()}
            row = np.concatenate([signals[id(s)][part] for s, _, part in parts])
            values = values if good else np.empty((len(numbers), len(row)), np.float32)
            values[len(good)] = row
            good.append(number)
        except FileError as error:
            if not skip_bad:
                advice = f"{error.advice} Or skip the channel (skip_bad=True, --skip-bad)."
                raise FileError(error.path, error.problem, advice) from error
            warnings.warn(f"Skipped channel {number}: {error.path}: {error.problem}.", BoolcpWarning, stacklevel=4)
    if not good:
        raise FileError(path, "has no channel that can be read", "Copy or download it again.")
    return values[: len(good)], good, [number for number in numbers if number not in good]


def describe_recording(path: Path) -> list[str]:
    """Return the sessions, channels and conditions of a recording as lines of text."""
    lines = []
    with opened(path) as root:
        for session in find_sessions(path, root):
            times = session.times(1000.0)
            seconds = times - times[0]
            lines.append(f"{session.name}: {len(session.channels)} channels, {len(times)} samples, {seconds[-1]:.1f} s")
            for label, start, stop in session.stretches(times):
                lines.append(f"  {label}: {seconds[start]:.2f} to {seconds[stop - 1]:.2f} s")
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
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:  # RuntimeError: encrypted
            raise FileError(file, f"cannot be unpacked ({error})", "Download the zip again.") from error


def find_sessions(path: Path, root: Any) -> list[Session]:
    """Return the sessions below a folder, sorted by the numbers in their names."""
    sessions = list(_walk(root, depth=4))
    if not sessions:
        advice = "A recording has files ECoG_ch1.mat, ECoG_ch2.mat, .., in it or in folders of sessions."
        if any(item.name == "dataset_description.json" for item in root.iterdir()):
            advice = "Of a BIDS folder, open one recording, with its table of events as trials= (--trials)."
        raise FileError(path, "is not a NeuroTycho recording", advice)
    return sorted(sessions, key=lambda item: [int(n) for n in re.findall(r"\d+", item.name)] or [0])


def _walk(root: Any, depth: int) -> Iterator[Session]:
    """Yield the sessions in a folder or zip and below it."""
    folders: dict[tuple[str, ...], dict[str, File]] = {}
    if isinstance(root, zipfile.Path):  # listed once: to look into each folder takes the square of their number
        for name in root.root.namelist():
            *parts, last = name.split("/")
            folders.setdefault(tuple(parts), {})[last.lower()] = zipfile.Path(root.root, name)
    for here, inner, names in () if folders else os.walk(root, followlinks=True):
        place = Path(here).relative_to(root).parts
        inner[:] = inner if len(place) < depth else []
        folders[place] = {name.lower(): Path(here, name) for name in names}
    for place, files in sorted(folders.items()):
        matches = [(CHANNEL.fullmatch(name), item) for name, item in files.items()]
        channels = dict(sorted((int(match[1]), item) for match, item in matches if match))
        is_hidden = any(part.lower().startswith((".", "__macosx")) for part in place)
        if channels and not is_hidden and len(place) <= depth:
            times = files.get("ecogtime.mat", files.get("ecog_time.mat"))
            electrodes = next((files[name] for name in sorted(files) if MAP.fullmatch(name)), None)
            name = place[-1] if place else root.name or "recording"
            yield Session(name, channels, times, files.get("condition.mat"), electrodes)


def _choose_session(path: Path, sessions: list[Session], wanted: Any) -> list[Session]:
    """Return the session with that number or name, in a list; all sessions if None."""
    text = str(wanted).lower()
    chosen = [item for item in sessions if wanted is None or item.name.lower() in (text, f"session{text}")]
    if not chosen:
        names = ", ".join(item.name for item in sessions)
        raise FileError(path, f"has no session {wanted!r}", f"Its sessions are {names}.")
    return chosen


def _read_numbers(path: Path) -> np.ndarray:
    """Return the one numeric array of a MATLAB file, without modes of length one."""
    table = list_variables(path)
    numeric = [name for name, variable in table.items() if variable.is_numeric]
    numeric = numeric if len(numeric) == 1 else [name for name in numeric if name.lower().startswith(("ecog", "data"))]
    if len(numeric) != 1:
        raise FileError(path, "does not hold one array of numbers", f"It holds {', '.join(table) or 'nothing'}.")
    return np.atleast_1d(np.squeeze(np.asarray(read_variable(path, numeric[0]))))


def read_conditions(path: Path, times: np.ndarray) -> tuple[list[str], list[int]]:
    """Return the labels of a Condition.mat and the sample (from 0) of each."""
    names = {name.rpartition(".")[2].lower(): name for name in list_variables(path)}  # they may be in a struct
    parts = {name: np.ravel(read_variable(path, names[name])) for name in names if name.startswith("condition")}
    labels = parts.get("conditionlabel", np.zeros(0)).astype(str)
    if "conditionindex" in parts:
        samples = parts["conditionindex"].astype(float).round().astype(int) - 1
    else:
        seconds = parts.get("conditiontime", np.zeros(0)).astype(float)
        samples = np.searchsorted(times - times[0], seconds - np.median(np.diff(times)) / 2)
    if not len(labels) or len(labels) != len(samples):
        problem = f"has {len(labels)} conditions but {len(samples)} times"
        raise FileError(path, problem, "It needs ConditionLabel, and ConditionTime or ConditionIndex.")
    return labels.tolist(), samples.tolist()


def write_neurotycho(sessions: Any, folder: Any, *, overwrite: bool = False) -> None:
    """Write recordings channel x time, rounded to int16 microvolts, as a NeuroTycho folder with Session1, .."""
    for number, X in enumerate(sessions, start=1):
        path = Path(folder) / f"Session{number}"
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        times, found = X["time"].values.astype(float), list_conditions(X)
        labels = [f"{label}-{side}" for label, _, _ in found for side in ("Start", "End")]
        index = [(np.searchsorted(times, start) + 1, np.searchsorted(times, stop)) for _, start, stop in found]
        conditions = {"ConditionLabel": np.array([labels], dtype=object)}
        conditions["ConditionIndex"] = np.ravel(index).astype(float)[None]  # from 1, the end included
        files: dict[str, Any] = {"ECoGTime.mat": {"ECoGTime": times[None]}, "Condition.mat": conditions}
        for channel, row in enumerate(X.transpose("channel", "time").values, start=1):
            signal = np.clip(np.rint(row), -(2**15), 2**15 - 1).astype(np.int16)
            files[f"ECoG_ch{channel}.mat"] = {f"ECoGData_ch{channel}": signal[None]}
        for name, content in files.items():
            atomic.check_free(path / name, overwrite=overwrite)
            with writing(path / name):
                scipy.io.savemat(path / name, content)
        if {"x", "y"} <= set(X.coords):
            areas = X["area"].values if "area" in X.coords else [""] * X.sizes["channel"]
            columns = {"channel": np.arange(len(areas)) + 1, "x": X["x"].values, "y": X["y"].values, "area": areas}
            table = load_extra("pandas", "files").DataFrame(columns).to_csv(index=False, lineterminator="\n")
            atomic.write_text(path / "electrodes.csv", table, overwrite=overwrite)
