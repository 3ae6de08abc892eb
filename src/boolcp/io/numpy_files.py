"""Numpy's own files, .npy and .npz, never unpickled."""

import zipfile

import numpy as np
from numpy.lib import format as npy_format

from boolcp.io.errors import FileError, reading
from boolcp.io.variables import NamedArrays, Variable
from boolcp.storage.sources import Source

OBJECTS = "holds Python objects, which are never read because they can run code"
SAVE_AGAIN = "Save it again as an array of numbers, e.g. np.save(path, x.astype(float))."


def read_npy(path):
    """Return the one array of a .npy file, as a memory map."""
    with reading(path, ".npy file"), path.open("rb") as file:
        dtype = _header(file)[1]
    if dtype.hasobject:
        raise FileError(path, OBJECTS, SAVE_AGAIN)
    if dtype.kind not in "fiubc":
        raise FileError(path, f"holds {dtype}, not numbers", SAVE_AGAIN)
    with reading(path, ".npy file"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    table = {"array": _variable(array.shape, array.dtype)}
    return NamedArrays(path, table, lambda name: array, lambda name: Source(array).lazy())


def read_npz(path):
    """Return the arrays of an .npz file."""
    table = {}
    with reading(path, ".npz file"), zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    table[member.removesuffix(".npy")] = _variable(*_header(file))

    def read(name):
        if table[name].kind == "object":
            raise FileError(path, f"the variable {name!r} {OBJECTS}", SAVE_AGAIN)
        with reading(path, ".npz file"), np.load(path, allow_pickle=False) as arrays:
            return arrays[name]

    return NamedArrays(path, table, read)


def _header(file):
    """Return the shape and dtype of an open .npy file."""
    version = npy_format.read_magic(file)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _variable(shape, dtype):
    kind = "object" if dtype.hasobject else str(dtype)
    return Variable(shape, kind, dtype.kind in "fiubc")
