"""Files that hold the finished steps of a fit: a .npz archive with a checksum, and the one written before it.

The archive has one member ``checkpoint.json`` (versions, parameters, data, and the steps as trees) and one .npy member
for each array of the trees. Its comment is the SHA-256 of everything before it, so that a file that was cut short or
changed is found out. Nothing is pickled.
"""

import hashlib
import json
import os
import warnings
import zipfile
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np

from boolcp._version import __version__
from boolcp.fit.state import AtomRecord, Factors, Pursuit, Term
from boolcp.io.atomic import check_free, replacing
from boolcp.io.errors import FileError, reading
from boolcp.io.results import fingerprint
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.storage import DenseTensor, ListedTensor, TuckerTensor

FORMAT, FORMAT_VERSION = "boolcp checkpoint", 1
HEADER = "checkpoint.json"
N_DIGEST = 64  # characters of a SHA-256
# relative difference of |X|^2 and Gram matrices, computed twice in other parts, that counts as none
SAME = {"float32": 1e-5, "float64": 1e-6}
SMALL = 200  # rows of a Gram matrix that is kept to know lazy data by
TYPES = {kind.__name__: kind for kind in (Atom, BooleanCP, AtomRecord, Pursuit, Factors, Term, TuckerTensor)}
PARTS = {TuckerTensor: ("core", "bases", "squared_norm")}


class Checkpoint:
    """The file of one fit: `load` reads what is there, `save` replaces it and keeps the one before."""

    def __init__(self, path):
        self.path = Path(path).expanduser()
        self.previous = self.path.with_name(self.path.name + ".previous")
        self._is_good = True  # what stands at `path`, so that it may become the previous one

    def load(self):
        """Return the header and the steps of the newest file that is whole; None if there is none at all."""
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
                    f"{problems[0]}: going on from {path.name}, the one before it.", UserWarning, stacklevel=5
                )
            return found
        raise FileError(
            self.path,
            f"no whole checkpoint is left: {'; '.join(problems)}",
            "Name another file or, if that was a checkpoint, delete it to start anew.",
        )

    def save(self, header, steps):
        """Write header and steps, completely or not at all; a good file that was there becomes the previous one."""
        check_free(self.path, overwrite=True)
        temporary = self.path.with_name(self.path.name + ".writing")
        with replacing(self.path, overwrite=True, temporary=temporary) as unfinished:
            write_archive(unfinished, header, steps)
            if self._is_good and self.path.exists():
                os.replace(self.path, self.previous)
        self._is_good = True


def write_archive(path, header, steps):
    """Write the archive with its checksum."""
    arrays: list = []
    memo: dict = {}
    trees = {name: [encode(value, arrays, memo), state] for name, (value, state) in steps.items()}
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, "boolcp_version": __version__} | header
    text = json.dumps(header | {"steps": trees}, default=plain)
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


def read_archive(path):
    """Return the header and the steps {name: (value, state)} of an archive that is whole and of this version."""
    with reading(path, "checkpoint"), open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest = digest_of(file) if size > N_DIGEST else b""
        file.seek(max(size - N_DIGEST, 0))
        if file.read() != digest:
            problem = "is cut short, damaged or not a checkpoint (its checksum is wrong)"
            raise FileError(path, problem, "Use the file before it, or start anew.")
        with zipfile.ZipFile(file) as archive:
            header = json.loads(archive.read(HEADER))
            check_version(path, header)
            names = sorted((name for name in archive.namelist() if name != HEADER), key=lambda name: int(name[:-4]))
            arrays = []
            for name in names:
                with archive.open(name) as member:
                    arrays.append(np.lib.format.read_array(member, allow_pickle=False))
        steps = {name: (decode(tree, arrays), state) for name, (tree, state) in header.pop("steps").items()}
    return header, steps


def check_version(path, header):
    """Raise a FileError unless this version of boolcp wrote the file: others may take other steps."""
    if header.get("format") != FORMAT:
        raise FileError(path, "is not a checkpoint that boolcp wrote", "Name another file.")
    if (header["format_version"], header["boolcp_version"]) != (FORMAT_VERSION, __version__):
        problem = f"was written by boolcp {header['boolcp_version']}, this is {__version__}"
        raise FileError(path, problem, "Resume it with that version, or name another file to start anew.")


def digest_of(file):
    """Return the SHA-256, as text, of all of an open file but its last characters, where that is written."""
    left = file.seek(0, os.SEEK_END) - N_DIGEST
    file.seek(0)
    digest = hashlib.sha256()
    while left > 0:
        part = file.read(min(left, 2**20))
        digest.update(part)
        left -= len(part)
    return digest.hexdigest().encode()


def encode(value, arrays, memo):
    """Return a value as a tree that JSON can hold, its arrays appended to `arrays`, each only once."""
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
    if type(value) is tuple:
        return {"tuple": [encode(item, arrays, memo) for item in value]}
    kind = type(value)
    if TYPES.get(kind.__name__) is not kind:
        raise TypeError(f"A checkpoint cannot hold a {kind.__name__}.")
    parts = {name: encode(getattr(value, name), arrays, memo) for name in part_names(kind)}
    return {"type": kind.__name__, "parts": parts}


def decode(tree, arrays):
    """Return the value of a tree."""
    if isinstance(tree, list):
        return [decode(item, arrays) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[tree["array"]]
    if "dense" in tree:
        return DenseTensor(decode(tree["dense"], arrays))
    if "tuple" in tree:
        return tuple(decode(item, arrays) for item in tree["tuple"])
    return TYPES[tree["type"]](**{name: decode(part, arrays) for name, part in tree["parts"].items()})


def part_names(kind):
    """Return the names of what a value of one of the TYPES is made of."""
    if is_dataclass(kind):
        return [field.name for field in fields(kind)]
    return kind._fields if hasattr(kind, "_fields") else PARTS[kind]


def through_file(value):
    """Return the value as it would be read from a file: plain numbers, and every array a C-ordered copy.

    Products are rounded differently for another memory order, so a fit goes on with this, whether it keeps a
    checkpoint or not.
    """
    arrays: list = []
    tree = encode(value, arrays, {})
    return decode(tree, [np.array(array, order="C") for array in arrays])


def describe_data(data):
    """Return what tells one tensor from another, as a dict that JSON can hold.

    Data in memory gives its fingerprint. A storage that is read in passes is not read once more: its `facts`, which
    the first pass of a fit brings anyway, give |X|^2, the observed entries of each slice and small Gram matrices.
    """
    known: dict = {"shape": list(data.shape), "dtype": str(data.dtype)}
    if not data.is_complete:
        known["number of observed entries"] = int(data.n_observed)
    facts = getattr(data, "facts", None)
    if facts is not None:
        grams = {mode: G for mode, G in facts.grams.items() if isinstance(mode, int) and len(G) <= SMALL}
        known |= {f"Gram matrix of mode {mode}": np.asarray(G, dtype=float).tolist() for mode, G in grams.items()}
        return known | {"|X|^2": float(facts.squared_norm)}
    if isinstance(data, ListedTensor):
        return known | {"indices": fingerprint(data.indices), "values": fingerprint(data.values)}
    known["values"] = fingerprint(data.to_array())
    if not data.is_complete:
        known["mask"] = fingerprint(data._in_place(data._mask))
    return known


def check_same(path, kind, stored, given):
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
    problem = f"is the checkpoint of another fit: different {kind}, namely {', '.join(shown)}"
    raise FileError(path, problem, "Name another file, or delete this one; nothing was overwritten.")


def is_same(a, b, precision=None):
    """Return True if two plain values are equal; numbers that describe lazy data, up to a relative precision."""
    is_rounded = isinstance(a, float) or (isinstance(a, list) and isinstance(a[0], list))
    if precision is not None and is_rounded and b is not None and np.shape(a) == np.shape(b):
        return bool(np.allclose(a, b, rtol=precision, atol=precision * np.abs(a).max()))
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def is_opaque(value):
    """Return True for what says nothing when it is printed: fingerprints and matrices."""
    return len(str(value)) > 50


def plain(value):
    """Return a number or a list for what JSON does not know."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"A checkpoint cannot hold {value!r}.")
