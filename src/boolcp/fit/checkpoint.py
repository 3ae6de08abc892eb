"""The file of a fit: its state as a .npz archive with a checksum, and the archive written before it.

The archive has one member ``checkpoint.json`` (versions, parameters, data, random state, and the state as a tree) and
one .npy member for each array of the tree. Its comment is the SHA-256 of everything before it, so that a file that is
truncated or changed is detected. Nothing is pickled.
"""

import hashlib
import json
import numbers
import os
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.random import BitGenerator

from boolcp._version import __version__
from boolcp.checks import BoolcpWarning
from boolcp.fit.backfit import Term
from boolcp.fit.blocks import RunState
from boolcp.fit.forgery import check_header, check_place, check_sizes, check_value
from boolcp.fit.pursuit import NormalEquations
from boolcp.fit.relax import Sweeps
from boolcp.fit.starts import ObservedSearch, Search
from boolcp.fit.state import AtomRecord, Pursuit, State
from boolcp.fit.uncertain import LastSearch
from boolcp.io.atomic import check_free, replacing
from boolcp.io.errors import FileError, reading
from boolcp.io.limits import refuse_unsafe
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.columns import Columns
from boolcp.result.deviance import Deviance
from boolcp.result.trust import Trust
from boolcp.storage import DenseTensor, TuckerTensor

FORMAT, FORMAT_VERSION = "boolcp checkpoint", 2
HEADER = "checkpoint.json"
N_DIGEST = 64  # characters of a SHA-256
# relative difference of |X|^2 and Gram matrices, summed in different orders, that counts as none
SAME = {"float32": 1e-5, "float64": 1e-6}
VALUES = (
    Atom,
    BooleanCP,
    Trust,
    Deviance,
    AtomRecord,
    Pursuit,
    NormalEquations,
    Columns,
    Sweeps,
    Search,
    ObservedSearch,
    LastSearch,
    Term,
    RunState,
)
TYPES = {kind.__name__: kind for kind in (*VALUES, State, TuckerTensor)}
PARTS = {TuckerTensor: ("core", "bases", "squared_norm")}


class Checkpoint:
    """The file of one fit: `load` reads it, `save` replaces it and keeps the previous version."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path).expanduser()
        self.previous = self.path.with_name(self.path.name + ".previous")
        self._is_good = True  # whether the file at `path` may become the previous one

    def load(self) -> tuple[dict[str, Any], State] | None:
        """Return the header and the state of the newest intact file; None if there is no file."""
        files = [path for path in (self.path, self.previous) if path.exists()]
        if not files:
            return None
        problems = []
        for path in files:
            try:
                found = read_archive(path)
            except FileError as error:
                problems.append(f"{path.name} {error.problem}")
                continue
            self._is_good = path == self.path
            if problems:
                warnings.warn(
                    f"{problems[0]}: resuming from the previous version, {path.name}.", BoolcpWarning, stacklevel=5
                )
            return found
        raise FileError(
            self.path,
            f"no intact checkpoint is left: {'; '.join(problems)}",
            "Choose a different file or, if that was a checkpoint, delete it to start over.",
        )

    def save(self, header: dict[str, Any] | None, state: State, random_state: dict[str, Any]) -> None:
        """Write a state, completely or not at all; an intact file becomes the previous version."""
        check_free(self.path, overwrite=True)
        temporary = self.path.with_name(self.path.name + ".writing")
        with replacing(self.path, overwrite=True, temporary=temporary) as unfinished:
            write_archive(unfinished, header or {}, state, random_state)
            if self._is_good and self.path.exists():
                os.replace(self.path, self.previous)
        self._is_good = True


def write_archive(path: Path, header: dict[str, Any], state: State, random_state: dict[str, Any]) -> None:
    """Write the archive with its checksum."""
    arrays: list[np.ndarray] = []
    tree = encode(state, arrays, {})
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, "boolcp_version": __version__} | header
    text = json.dumps(header | {"state": tree, "random_state": random_state}, default=plain)
    with open(path, "w+b") as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(HEADER, text)
            for index, array in enumerate(arrays):
                with archive.open(f"{index}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            archive.comment = b"0" * N_DIGEST
        digest = digest_of(file)
        file.seek(-N_DIGEST, os.SEEK_END)
        file.write(digest)


def read_archive(path: Path) -> tuple[dict[str, Any], State]:
    """Return the header (with the state of the generator) and the State of an intact, readable archive."""
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
            names = sorted((name for name in archive.namelist() if name != HEADER), key=lambda name: int(name[:-4]))
            arrays = []
            for name in names:
                with archive.open(name) as member:
                    arrays.append(np.lib.format.read_array(member, allow_pickle=False))
        state = decode(header.pop("state"), arrays)
        if not isinstance(state, State):
            raise ValueError(f"it holds a {type(state).__name__}, not the state of a fit")
        check_value(state)
    return header, state


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


def encode(value: Any, arrays: list[np.ndarray], memo: dict[int, int]) -> Any:
    """Return a value as a JSON-serializable tree, its arrays appended to `arrays`, each only once."""
    if isinstance(value, np.ndarray):
        if id(value) not in memo:
            memo[id(value)] = len(arrays)
            arrays.append(value)
        return {"array": memo[id(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, DenseTensor):
        return {"dense": encode(value.to_array(), arrays, memo)}
    if isinstance(value, list):
        return [encode(item, arrays, memo) for item in value]
    if isinstance(value, dict):
        return {"dict": {name: encode(item, arrays, memo) for name, item in value.items()}}
    if type(value) is tuple:
        return {"tuple": [encode(item, arrays, memo) for item in value]}
    kind = type(value)
    if TYPES.get(kind.__name__) is not kind:
        raise TypeError(f"A checkpoint cannot hold a {kind.__name__}.")
    parts = {name: encode(getattr(value, name), arrays, memo) for name in part_names(kind)}
    return {"type": kind.__name__, "parts": parts}


def decode(tree: Any, arrays: list[np.ndarray]) -> Any:
    """Return the value of a tree."""
    if isinstance(tree, list):
        return [decode(item, arrays) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[tree["array"]]
    if "dense" in tree:
        return DenseTensor(decode(tree["dense"], arrays))
    if "dict" in tree:
        return {name: decode(item, arrays) for name, item in tree["dict"].items()}
    if "tuple" in tree:
        return tuple(decode(item, arrays) for item in tree["tuple"])
    return TYPES[tree["type"]](**{name: decode(part, arrays) for name, part in tree["parts"].items()})


def part_names(kind: Any) -> Sequence[str]:
    """Return the names of the parts of a value of one of the TYPES."""
    if is_dataclass(kind):
        return [field.name for field in fields(kind)]
    return kind._fields if hasattr(kind, "_fields") else PARTS[kind]


def check_same(path: Path, kind: str, stored: dict[str, Any], given: dict[str, Any]) -> None:
    """Raise a FileError that names what differs between two descriptions of parameters or data."""
    stored, given = (json.loads(json.dumps(known, default=plain)) for known in (stored, given))
    precision = SAME[given["dtype"]] if kind == "data" else None
    differing = [name for name in {**stored, **given} if not is_same(stored.get(name), given.get(name), precision)]
    if not differing:
        return
    shown = [
        name if is_opaque(stored.get(name)) else f"{name} ({stored.get(name)!r} there, {given.get(name)!r} here)"
        for name in differing
    ]
    problem = f"is the checkpoint of a different fit: different {kind}, namely {', '.join(shown)}"
    raise FileError(path, problem, "Choose a different file, or delete this one; nothing was overwritten.")


def is_same(a: Any, b: Any, precision: float | None = None) -> bool:
    """Return True if two plain values are equal; numbers that describe lazy data, up to a relative precision."""
    is_rounded = isinstance(a, float) or (isinstance(a, list) and bool(a) and isinstance(a[0], list))
    if precision is not None and is_rounded and b is not None and np.shape(a) == np.shape(b):
        return bool(np.allclose(a, b, rtol=precision, atol=precision * np.abs(a).max()))
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def is_opaque(value: object) -> bool:
    """Return True for values that are not worth printing: fingerprints and matrices."""
    return len(str(value)) > 50


def plain(value: Any) -> Any:
    """Return a number or a list for a value that JSON does not know."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"A checkpoint cannot hold {value!r}.")


# what a fit is identified by, and its random generator


def describe_fit(
    parameters: dict[str, Any], data: Any, modes: tuple[int, ...], rng: np.random.Generator
) -> dict[str, Any]:
    """Return the parameters of a BMP and the description of its data, ready for JSON."""
    kept = {name: value for name, value in parameters.items() if name != "verbose"}
    kept["random_state"] = describe_random_state(parameters["random_state"], rng)
    return {"parameters": kept, "data": data.describe() | {"Boolean modes": list(modes)}}


def describe_random_state(random_state: Any, rng: np.random.Generator) -> Any:
    """Return an integer seed or None unchanged, and the state of the Generator for anything else."""
    if random_state is None or random_state is np.random:
        return None
    return int(random_state) if isinstance(random_state, numbers.Integral) else get_random_state(rng)


def read_parameters(path: Any) -> dict[str, Any]:
    """Return the parameters of the fit in a checkpoint."""
    checkpoint = Checkpoint(path)
    found = checkpoint.load()
    if found is None:
        raise FileError(checkpoint.path, "there is no such file", "Check the name and the folder.")
    with reading(checkpoint.path, "checkpoint"):
        check_header(found[0])
        parameters = found[0]["parameters"]
        state = parameters["random_state"]
        if isinstance(state, dict):
            kind = {kind.__name__: kind for kind in BitGenerator.__subclasses__()}[state["bit_generator"]]
            rng = np.random.Generator(kind())
            set_random_state(rng, state)
            parameters["random_state"] = rng
    return parameters


def open_checkpoint(
    path: Any, identity: dict[str, Any], rng: np.random.Generator, first: State, stages: Sequence[str]
) -> tuple[Checkpoint, State]:
    """Return the checkpoint of a fit and the state to continue from: that of the file if it exists, else `first`."""
    checkpoint = Checkpoint(path)
    check_free(checkpoint.path, overwrite=True)
    found = checkpoint.load()
    if found is None:
        return checkpoint, first
    header, state = found
    with reading(checkpoint.path, "checkpoint"):
        check_header(header)
        for kind in ("parameters", "data"):
            check_same(checkpoint.path, kind, header[kind], identity[kind])
        check_place(state, stages)
        check_sizes(state, tuple(header["data"]["shape"]))
        set_random_state(rng, header["random_state"])
    return checkpoint, state


def get_random_state(rng: np.random.Generator) -> dict[str, Any]:
    """Return the state of a Generator, with lists for its arrays."""
    return listed(rng.bit_generator.state)


def set_random_state(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Set a Generator to a state from `get_random_state`."""
    rng.bit_generator.state = state


def listed(state: Any) -> Any:
    """Return a dict with arrays as lists and numbers as Python numbers."""
    if isinstance(state, dict):
        return {name: listed(value) for name, value in state.items()}
    if isinstance(state, np.ndarray):
        return state.tolist()
    return state.item() if isinstance(state, np.generic) else state
