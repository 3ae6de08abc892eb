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
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from boolcp._version import __version__
from boolcp.checks import BoolcpWarning
from boolcp.fit.spec import STAGES, AtomRecord, State
from boolcp.io.atomic import check_free, replacing
from boolcp.io.errors import FileError, reading
from boolcp.io.limits import refuse_unsafe
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.columns import Columns

FORMAT, FORMAT_VERSION = "boolcp checkpoint", 5
HEADER = "checkpoint.json"
N_DIGEST = 64  # characters of a SHA-256
SAME = 1e-5  # relative difference of |X|^2, summed in different orders, that counts as none
INTERVAL = 1.0  # smallest number of seconds between two writes within a stage; not tuned
SHARE = 0.1  # of the time of a stage that writing may take; not tuned
PLAIN = ("seed", "stage", "n_done", "stop_reason", "n_agree", "scale", "has_met", "is_settled", "penalty")


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
        """Return the state to continue from: that of the file if it exists and is of this fit, else `first`."""
        check_free(self.path, overwrite=True)
        found = self.load()
        if found is None:
            return first
        header, state = found
        with reading(self.path, "checkpoint"):
            for kind in ("parameters", "data"):
                check_same(self.path, kind, header[kind], self.identity[kind])
            every = [W for W in (*state.path, *state.rivals, state.best) if W is not None]
            shapes = [list(W.shape) if isinstance(W, BooleanCP) else [len(A) for A in W.matrices] for W in every]
            if any(shape != header["data"]["shape"] for shape in shapes):
                raise ValueError("its atoms do not fit the shape of the data")
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
    kept: dict[str, Any] = {name: getattr(state, name) for name in PLAIN}
    kept["history"] = [asdict(each) for each in state.history]
    known: dict[int, int] = {}
    for name in ("path", "rivals"):
        kept[name] = [encode(W, arrays, known) for W in getattr(state, name)]
    kept["best"] = None if state.best is None else encode(state.best, arrays, known)
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, "boolcp_version": __version__} | identity
    with open(path, "w+b") as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(HEADER, json.dumps(header | {"state": kept}, default=plain))
            for index, array in enumerate(arrays):
                with archive.open(f"{index}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            archive.comment = b"0" * N_DIGEST
        digest = digest_of(file)
        file.seek(-N_DIGEST, os.SEEK_END)
        file.write(digest)


def encode(W: Columns | BooleanCP, arrays: list[np.ndarray], known: dict[int, int]) -> dict[str, Any]:
    """Return a decomposition for JSON, with the numbers of its arrays, which are appended to `arrays` once each."""

    def number(array: np.ndarray) -> int:
        if id(array) not in known:
            known[id(array)] = len(arrays)
            arrays.append(array)
        return known[id(array)]

    if isinstance(W, Columns):
        matrices = [number(A) for A in W.matrices]
        return {"matrices": matrices, "owner": W.owner, "boolean_mode": W.boolean_mode, "loss": W.loss}
    atoms = []
    for atom in W.atoms:
        factors = None if atom.factors is None else [number(A) for A in atom.factors]
        block = None if atom.block is None else number(atom.block)
        atoms.append([atom.mode, number(atom.z), factors, block, atom.certificate])
    parts = {name: getattr(W, name) for name in ("shape", "weights", "data_norm2", "data_inner", "data_gram")}
    return parts | {"atoms": atoms}


def decode(tree: dict[str, Any], arrays: list[np.ndarray]) -> Columns | BooleanCP:
    """Return the decomposition of `encode`."""
    if "matrices" in tree:
        return Columns(**(tree | {"matrices": tuple(arrays[j] for j in tree["matrices"])}))
    atoms = []
    for mode, z, factors, block, certificate in tree["atoms"]:
        factors = None if factors is None else tuple(arrays[j] for j in factors)
        atoms.append(Atom(mode, arrays[z], factors, None if block is None else arrays[block], certificate))
    gram = None if tree["data_gram"] is None else np.array(tree["data_gram"])
    return BooleanCP(**(tree | {"atoms": tuple(atoms), "weights": np.array(tree["weights"]), "data_gram": gram}))


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
        given = header.pop("state")
        state = State(**{name: given[name] for name in PLAIN})
        if state.stage not in STAGES:
            raise ValueError(f"it is at a stage {state.stage!r} that no fit has")
        parts: dict[str, Any] = {name: tuple(decode(W, arrays) for W in given[name]) for name in ("path", "rivals")}
        parts["best"] = None if given["best"] is None else decode(given["best"], arrays)
        history = tuple(AtomRecord(**each) for each in given["history"])
    return header, replace(state, **parts, history=history)


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
    stored, given = (json.loads(json.dumps(known, default=plain)) for known in (stored, given))
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


def plain(value: Any) -> Any:
    """Return a number or a list for a value that JSON does not know."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"A checkpoint cannot hold {value!r}.")
