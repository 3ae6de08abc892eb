"""The file of a fit: its state as a .npz archive with a checksum, and the archive written before it.

The archive has one member ``checkpoint.json`` (versions, parameters, data, and the state without its arrays) and one
.npy member for each array of its decompositions. Its comment is the SHA-256 of everything before it, so that a file
that is truncated or changed is detected. Nothing is pickled.
"""

import hashlib
import json
import os
import time
import warnings
import zipfile
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from boolcp._version import __version__
from boolcp.checks import BoolcpWarning
from boolcp.fit.spec import STAGES, STOP_REASONS, AtomRecord, State
from boolcp.io.atomic import check_free, replacing
from boolcp.io.errors import FileError, reading
from boolcp.io.limits import refuse_unsafe
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.columns import Columns
from boolcp.result.tables import to_plain

FORMAT, FORMAT_VERSION = "boolcp checkpoint", 6
HEADER = "checkpoint.json"
N_DIGEST = 64  # characters of a SHA-256
SAME = 1e-5  # relative difference of |X|^2, summed in different orders, that counts as none
INTERVAL = 1.0  # smallest number of seconds between two writes within a stage; not tuned
SHARE = 0.1  # of the time of a stage that writing may take; not tuned
KINDS = {kind.__name__: kind for kind in (State, AtomRecord, Columns, BooleanCP, Atom)}


class Checkpoint:
    """The file of one fit: `load` reads it, `save` replaces it and keeps the previous version.

    States are written after a stage, and within one at most every INTERVAL seconds and for a SHARE of the time.
    """

    def __init__(self, path: str | PathLike[str], identity: dict[str, Any] | None = None) -> None:
        self.path, self.identity = Path(path).expanduser(), identity or {}
        self.previous = self.path.with_name(self.path.name + ".previous")
        self._is_good = True  # whether the file at `path` may become the previous one
        self.unsaved: State | None = None
        self.is_written, self.next_write = False, 0.0

    def load(self) -> tuple[dict[str, Any], State] | None:
        """Return the header and the state of the newest intact file; None if there is no file."""
        problems = []
        for path in (self.path, self.previous):
            if not path.exists():
                continue
            try:
                found = read_archive(path)
            except FileError as error:
                problems.append(f"{path.name} {error.problem}")
                continue
            self._is_good = path == self.path
            if problems:
                text = f"{problems[0]}: resuming from the previous version, {path.name}."
                warnings.warn(text, BoolcpWarning, stacklevel=5)
            return found
        if not problems:
            return None
        advice = "Choose a different file or, if that was a checkpoint, delete it to start over."
        raise FileError(self.path, f"no intact checkpoint is left: {'; '.join(problems)}", advice)

    def save(self, state: State) -> None:
        """Write a state, completely or not at all; an intact file becomes the previous version."""
        check_free(self.path, overwrite=True)
        temporary = self.path.with_name(self.path.name + ".writing")
        with replacing(self.path, overwrite=True, temporary=temporary) as unfinished:
            write_archive(unfinished, self.identity, state)
            if self._is_good and self.path.exists():
                os.replace(self.path, self.previous)
        self._is_good = True

    def keep(self, s: State, *, is_due: bool) -> None:
        """Remember a state, and write it if it is time."""
        self.unsaved = s
        if is_due or time.monotonic() >= self.next_write:
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet. A full disk gives only a warning: it must not cost the result."""
        if self.unsaved is None:
            return
        start = time.monotonic()
        try:
            self.save(self.unsaved)
            self.unsaved, self.is_written = None, True
        except FileError as error:
            if not self.is_written:  # it never worked: probably a wrong name, and little is lost yet
                raise
            warnings.warn(f"{error} The fit continues and tries again later.", BoolcpWarning, stacklevel=2)
        now = time.monotonic()
        self.next_write = now + max(INTERVAL, (now - start) / SHARE)

    def begin(self, first: State) -> State:
        """Return the state to continue from: the one in the file if it exists and is of this fit, else `first`."""
        check_free(self.path, overwrite=True)
        found = self.load()
        if found is None:
            return first
        header, state = found
        with reading(self.path, "checkpoint"):
            for kind in ("parameters", "data"):
                check_same(self.path, kind, header[kind], self.identity[kind])
            check_state(state, first, header["data"]["shape"])
        return state


def read_parameters(path: Any) -> dict[str, Any]:
    """Return the parameters of the fit in a checkpoint."""
    checkpoint = Checkpoint(path)
    found = checkpoint.load()
    if found is None:
        raise FileError(checkpoint.path, "there is no such file", "Check the name and the folder.")
    with reading(checkpoint.path, "checkpoint"):
        return dict(found[0]["parameters"])


def write_archive(path: Path, identity: dict[str, Any], state: State) -> None:
    """Write the archive with its checksum."""
    arrays: list[np.ndarray] = []
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, "boolcp_version": __version__} | identity
    header["state"] = encode(state, arrays)
    with open(path, "w+b") as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(HEADER, json.dumps(header, default=to_plain))
            for index, array in enumerate(arrays):
                with archive.open(f"{index}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            archive.comment = b"0" * N_DIGEST
        digest = digest_of(file)
        file.seek(-N_DIGEST, os.SEEK_END)
        file.write(digest)


def encode(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return a frozen value of a fit for JSON, with the numbers of its arrays, which are appended to `arrays`."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, tuple):
        return [encode(part, arrays) for part in value]
    if type(value).__name__ not in KINDS:
        return value
    parts = {field.name: encode(getattr(value, field.name), arrays) for field in fields(value) if field.init}
    return {"kind": type(value).__name__, "parts": parts}


def decode(tree: Any, arrays: list[np.ndarray]) -> Any:
    """Return the value of `encode`."""
    if isinstance(tree, list):
        return tuple(decode(part, arrays) for part in tree)
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[tree["array"]]
    return KINDS[tree["kind"]](**{name: decode(part, arrays) for name, part in tree["parts"].items()})


def read_archive(path: Path) -> tuple[dict[str, Any], State]:
    """Return the header and the State of an intact, readable archive."""
    with reading(path, "checkpoint"), open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest = digest_of(file) if size > N_DIGEST else b""
        file.seek(max(size - N_DIGEST, 0))
        if file.read() != digest:
            problem = "is truncated, damaged or not a checkpoint (its checksum is wrong)"
            raise FileError(path, problem, "Use its previous version, or start over.")
        refuse_unsafe(path, "checkpoint")
        with zipfile.ZipFile(file) as archive:
            header = json.loads(archive.read(HEADER))
            check_version(path, header)
            arrays = []
            for index in range(len(archive.namelist()) - 1):
                with archive.open(f"{index}.npy") as member:
                    arrays.append(np.lib.format.read_array(member, allow_pickle=False))
        state = decode(header.pop("state"), arrays)
    return header, state


def check_state(s: State, first: State, shape: list[int]) -> None:
    """Raise a ValueError if a fit to data of this shape, which begins with `first`, never has the state `s`."""
    kind, every = type(first.path[0]), [*s.path, *s.rivals, *[s.best] * (s.best is not None)]
    shapes = [list(W.shape) if isinstance(W, BooleanCP) else [len(A) for A in W.matrices] for W in every]
    is_sound = {type(W) for W in every} == {kind} and all(one == shape for one in shapes)
    is_sound &= s.stage in (STAGES if kind is Columns else ("pursuit", "result")) and s.n_done >= 0
    if not is_sound or len(s.history) != len(s.path) - 1 or s.stop_reason not in (*STOP_REASONS, ""):
        raise ValueError("it holds a state that this fit never has")


def is_checkpoint(path: Path) -> bool:
    """Return True if a file looks like a checkpoint of boolcp, intact or not."""
    if not (path.is_file() and zipfile.is_zipfile(path)):
        return False
    with zipfile.ZipFile(path) as archive:
        return HEADER in archive.namelist()


def check_version(path: Path, header: dict[str, Any]) -> None:
    """Raise a FileError unless this version of boolcp wrote the file: a different one may take different steps."""
    if header.get("format") != FORMAT:
        raise FileError(path, "is not a checkpoint that boolcp wrote", "Choose a different file.")
    if (header["format_version"], header["boolcp_version"]) != (FORMAT_VERSION, __version__):
        written = f"boolcp {header['boolcp_version']} (format {header['format_version']})"
        problem = f"was written by {written}, but this is boolcp {__version__} (format {FORMAT_VERSION})"
        raise FileError(path, problem, "Resume it with that version, or choose a different file to start over.")


def digest_of(file: BinaryIO) -> bytes:
    """Return the SHA-256, as text, of an open file without its last characters, which hold it."""
    left = file.seek(0, os.SEEK_END) - N_DIGEST
    file.seek(0)
    digest = hashlib.sha256()
    while left > 0:
        part = file.read(min(left, 2**20))
        digest.update(part)
        left -= len(part)
    return digest.hexdigest().encode()


def check_same(path: Path, kind: str, stored: dict[str, Any], given: dict[str, Any]) -> None:
    """Raise a FileError that names what differs between two descriptions of parameters or data."""
    stored, given = (json.loads(json.dumps(known, default=to_plain)) for known in (stored, given))
    differing = [name for name in {**stored, **given} if not is_same(stored.get(name), given.get(name))]
    if not differing:
        return
    shown = [
        name if len(str(stored.get(name))) > 50 else f"{name} ({stored.get(name)!r} there, {given.get(name)!r} here)"
        for name in differing
    ]
    problem = f"is the checkpoint of a different fit: different {kind}, namely {', '.join(shown)}"
    raise FileError(path, problem, "Choose a different file, or delete this one; nothing was overwritten.")


def is_same(a: Any, b: Any) -> bool:
    """Return True if two plain values are equal; large numbers, which sum up data on disk, up to rounding."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= SAME * max(abs(a), abs(b)) * (abs(a) > 1e3)
    return a == b and isinstance(a, bool) == isinstance(b, bool)
