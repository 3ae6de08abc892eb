"""Numpy's .npy and .npz files, never unpickled."""

import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from boolcp.io.errors import FileError, reading
from boolcp.io.limits import n_bytes, refuse_missing_bytes, refuse_unsafe
from boolcp.io.variables import NamedArrays, Variable
from boolcp.storage.sources import Source

OBJECTS = "holds Python objects, which are never read because they can run code"
SAVE_AGAIN = "Save it again as an array of numbers, e.g. np.save(path, x.astype(float))."


def read_npy(path: Path) -> NamedArrays:
    """Return the one array of a .npy file, as a memory map."""
    with reading(path, ".npy file"), path.open("rb") as file:
        shape, dtype = _header(file)
        found = path.stat().st_size - file.tell()
    if dtype.hasobject:
        raise FileError(path, OBJECTS, SAVE_AGAIN)
    if dtype.kind not in "fiubc":
        raise FileError(path, f"holds {dtype}, not numbers", SAVE_AGAIN)
    refuse_missing_bytes(path, ".npy file", "the array", n_bytes(shape, dtype), found)
    with reading(path, ".npy file"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    table = {"array": _variable(array.shape, array.dtype)}
    return NamedArrays(path, table, lambda name: array, lambda name: Source(array).lazy(), is_mapped=True)


def read_npz(path: Path) -> NamedArrays:
    """Return the arrays of an .npz file."""
    refuse_unsafe(path, ".npz file")
    table, claims = {}, {}
    with reading(path, ".npz file"), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                name = member.filename.removesuffix(".npy")
                with archive.open(member) as file:
                    shape, dtype = _header(file)
                    claims[name] = n_bytes(shape, dtype), member.file_size - file.tell()
                table[name] = _variable(shape, dtype)

    def read(name: str) -> Any:
        if table[name].kind == "object":
            raise FileError(path, f"the variable {name!r} {OBJECTS}", SAVE_AGAIN)
        refuse_missing_bytes(path, ".npz file", repr(name), *claims[name])
        with reading(path, ".npz file"), np.load(path, allow_pickle=False) as arrays:
            return arrays[name]

    return NamedArrays(path, table, read)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and dtype of an open .npy file."""
    version = npy_format.read_magic(file)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _variable(shape: tuple[int, ...], dtype: np.dtype) -> Variable:
    kind = "object" if dtype.hasobject else str(dtype)
    return Variable(shape, kind, dtype.kind in "fiubc")
