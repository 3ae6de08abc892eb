"""Refuse files that would exhaust memory or time, hand out other files or crash their reader.

HDF5 and MATLAB files are first opened by a child process with limits on memory and time, one for all files.
"""

import os
import pickle
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any

from boolcp.io import child
from boolcp.io.errors import FileError, reading
from boolcp.system import available_memory, memory_text

LARGE, LARGEST_RATIO = 2**30, 250  # bytes unpacked, and how many times the bytes packed: recordings are far below
LEAST_MEMORY = 2**28  # bytes for the child
SECONDS, SPEED = 60, 10**7  # for the child: as many, and more for a large file that is read at 10 MB/s
DISTRUST = "Do not use it unless you trust its source; if you do, open it yourself and pass the array."

_LOCK = threading.Lock()
_CHILDREN: dict[int, Any] = {}  # by the number of this process, for a fork has its own


def ask_child(path: Path, kind: str, job: str, *arguments: Any) -> Any:
    """Return what a job of `boolcp.io.child` says about a file; raise a FileError if that cannot be found out."""
    size = path.stat().st_size
    memory = max(min(available_memory() // 2, LARGE + LARGEST_RATIO * size), LEAST_MEMORY)
    seconds = SECONDS + size / SPEED
    with _LOCK:
        process = _start()
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            pickle.dump((memory, seconds, job, str(path.absolute()), arguments), process.stdin)
            process.stdin.flush()
            answer, value = pickle.load(process.stdout)
        except BaseException as error:
            process.kill()
            value = process.wait()
            answer = "late" if timer.finished.is_set() else "dead"
            if not isinstance(error, EOFError | OSError | pickle.UnpicklingError):
                raise  # Ctrl-C in the middle of an answer
        finally:
            timer.cancel()
    refusals = {"TrapError": value, "late": f"looking into it takes more than {seconds:.0f} s"}
    refusals["MemoryError"] = f"reading it takes more than {memory_text(memory)} of memory"
    if answer in refusals:
        raise FileError(path, f"refused: {refusals[answer]}", DISTRUST)
    if answer == "KeyError":
        raise FileError(path, f"has no variable {value}", "List its variables with boolcp info.")
    with reading(path, kind):
        if answer != "value":
            raise ValueError(f"its reader crashed, exit code {value}" if answer == "dead" else value)
    return value


def _start() -> Any:
    """Return the child process: the present one, or a new one if it has ended."""
    process = _CHILDREN.get(os.getpid())
    if process is None or process.poll() is not None:
        paths = os.pathsep.join(map(os.path.abspath, sys.path))
        environment = os.environ | {"PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        options = {"env": environment, "cwd": tempfile.gettempdir(), "start_new_session": True}
        process = subprocess.Popen([sys.executable, "-P", child.__file__], **pipes, **options)  # type: ignore[call-overload]
        _CHILDREN[os.getpid()] = process
    return process


def check_hdf5(path: Path, kind: str = "HDF5 file") -> dict[str, tuple[Any, ...]]:
    """Return the datasets of an HDF5 file as `child.look_at_hdf5` does; raise a FileError if it could do harm."""
    table = ask_child(path, kind, "look_at_hdf5")
    for name, (*_, packed, unpacked) in table.items():
        refuse_expansion(path, repr(name), packed, unpacked)
    refuse_expansion(path, "its content", sum(t[-2] for t in table.values()), sum(t[-1] for t in table.values()))
    return table


def refuse_expansion(path: Path | str, what: str, packed: int, unpacked: int) -> None:
    """Raise a FileError if a part of a file is large but takes far fewer bytes in the file."""
    if unpacked > LARGE and unpacked > LARGEST_RATIO * packed:
        problem = f"{what} would grow from {memory_text(packed)} in the file to {memory_text(unpacked)}"
        raise FileError(path, f"refused: {problem}", DISTRUST)


def refuse_too_large(path: Path | str, what: str, n_bytes: int, advice: str) -> None:
    """Raise a FileError if an array does not fit into the available memory."""
    if n_bytes > (free := available_memory()):
        sizes = f"needs {memory_text(n_bytes)} of memory, but only {memory_text(free)} are available"
        raise FileError(path, f"{what} {sizes}", advice)


def refuse_unsafe(path: Path, kind: str = ".zip file") -> None:
    """Raise a FileError if a zip is damaged, empty, a zip bomb, or has names that lead out of it."""
    size = path.stat().st_size
    with reading(path, kind), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if not members:
        raise FileError(path, "the zip is empty", "Download it again.")
    for member in members:
        name = member.filename.replace("\\", "/")
        if name.startswith("/") or ".." in name.split("/") or ":" in name.split("/")[0]:
            raise FileError(path, f"refused: its member {member.filename!r} leads out of the zip", "Do not unpack it.")
        packed = min(member.compress_size, size)  # it may claim more than there is
        refuse_expansion(path, f"its member {member.filename!r}", packed, member.file_size)
    refuse_expansion(path, "its content", size, sum(member.file_size for member in members))
