"""MATLAB's .mat files, v5 and v7.3, through pymatreader."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from boolcp.extras import load_extra
from boolcp.io.errors import FileError, reading
from boolcp.io.hdf5 import refuse_traps
from boolcp.io.mat_tags import check_tags
from boolcp.io.variables import NamedArrays, Variable

NUMERIC = ("double", "single", "logical", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def read_mat(path: Path) -> NamedArrays:
    """Return the variables of a .mat file; modes of length one are dropped, fields of a struct are `name.field`."""
    table = list_variables(path)
    return NamedArrays(path, table, lambda name: read_variable(path, name))


def check_mat(path: Path) -> None:
    """Raise a FileError if a .mat file is damaged or refers to data in other files; each file is checked once."""
    state = path.stat()
    _check_state(path, state.st_size, state.st_mtime_ns, state.st_ino)


@lru_cache(maxsize=1024)
def _check_state(path: Path, *state: int) -> None:
    if load_extra("h5py", "files").is_hdf5(path):
        refuse_traps(path, ".mat file")
    else:
        with reading(path, ".mat file"):
            check_tags(path)


def list_variables(path: Path) -> dict[str, Variable]:
    """Return the names and Variables of a .mat file, fields of structs included, without reading their values."""
    check_mat(path)
    with reading(path, ".mat file"):
        try:
            found = scipy.io.whosmat(path)
        except NotImplementedError:
            found = _list_hdf5(path)
    table: dict[str, Variable] = {}
    for name, shape, kind in found:
        if kind == "struct":
            table |= _list_fields(name, read_variable(path, name))
        else:
            table[name] = Variable(tuple(shape), kind, kind in NUMERIC)
    return table


def read_variable(path: Path, name: str) -> Any:
    """Return one variable, or one field of a struct by its dotted name."""
    pymatreader = load_extra("pymatreader", "files")
    check_mat(path)
    top, *fields = name.split(".")
    with reading(path, ".mat file"):
        value = pymatreader.read_mat(path, variable_names=[top])
    for part in (top, *fields):
        if not isinstance(value, dict) or part not in value:
            raise FileError(path, f"has no variable {name!r}", "List its variables with boolcp info.")
        value = value[part]
    return value


def _list_hdf5(path: Path) -> list[tuple[str, tuple[int, ...], str]]:
    h5py = load_extra("h5py", "files")
    found: list[tuple[str, tuple[int, ...], str]] = []
    with h5py.File(path, "r") as file:
        for name, item in file.items():
            if name.startswith("#"):
                continue
            kind = item.attrs.get("MATLAB_class", b"")
            kind = kind.decode() if isinstance(kind, bytes) else str(kind)
            if isinstance(item, h5py.Group):
                found.append((name, (), kind or "struct"))
            else:
                found.append((name, item.shape[::-1], kind or str(item.dtype)))  # MATLAB stores columns first
    return found


def _list_fields(prefix: str, value: Any) -> dict[str, Variable]:
    table: dict[str, Variable] = {}
    if not isinstance(value, dict):
        return {prefix: Variable(np.shape(value), "struct", False)}
    for name, content in value.items():
        if isinstance(content, dict):
            table |= _list_fields(f"{prefix}.{name}", content)
            continue
        array = np.asarray(content) if not isinstance(content, list) else np.empty(len(content), dtype=object)
        table[f"{prefix}.{name}"] = Variable(array.shape, str(array.dtype), array.dtype.kind in "fiub")
    return table
