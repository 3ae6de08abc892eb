"""The sessions of a NeuroTycho recording, and their files in a folder or a zip."""

import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boolcp.io.errors import FileError
from boolcp.io.limits import refuse_unsafe
from boolcp.io.neurotycho_files import N_CHANNELS, trial_shape

CHANNEL = re.compile(r"ECoG_ch(\d+)\.mat", re.IGNORECASE)
MATRIX = re.compile(r"ECoG-.*\.mat", re.IGNORECASE)  # all channels in one file
TIMES = ("ecogtime.mat", "ecog_time.mat")
MAPS = re.compile(r"(electrodes.*\.csv|.*map\.mat)", re.IGNORECASE)
DEPTH = 4  # folders searched below the one given


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
        raise FileError(path, "is not a NeuroTycho recording", advice)
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
        for name in sorted(filter(MATRIX.fullmatch, files)):
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
