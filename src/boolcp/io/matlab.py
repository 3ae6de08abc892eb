"""MATLAB's .mat files, v5 and v7.3, read by a child process."""

from pathlib import Path
from typing import Any

from boolcp.extras import load_extra
from boolcp.io.limits import CHILD, check_hdf5
from boolcp.io.variables import NamedArrays, Variable


def read_mat(path: Path) -> NamedArrays:
    """Return the variables of a .mat file; modes of length one are dropped, fields of a struct are `name.field`."""
    return NamedArrays(path, list_variables(path), lambda name: read_variable(path, name))


def list_variables(path: Path) -> dict[str, Variable]:
    """Return the names and Variables of a .mat file, fields of structs included."""
    return {name: Variable(*known) for name, known in _run(path, "list_mat").items()}


def read_variable(path: Path, name: str) -> Any:
    """Return one variable, or one field of a struct by its dotted name."""
    return _run(path, "read_mat", name)


def check_mat(path: Path) -> None:
    """Raise a FileError if a .mat file cannot be read, or refers to data in other files."""
    _run(path, "try_mat")


def _run(path: Path, job: str, *arguments: str) -> Any:
    load_extra("pymatreader", "files")
    if load_extra("h5py", "files").is_hdf5(path):
        check_hdf5(path, f"{path.suffix} file")
    return CHILD.run(path, f"{path.suffix} file", job, *arguments)
