"""Saving and loading a decomposition: one netCDF file with labels and provenance, without pickle."""

import datetime
import io
import json
import platform
import re
from dataclasses import asdict
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from boolcp._version import __version__
from boolcp.checks import is_lazy
from boolcp.extras import load_extra
from boolcp.io import atomic
from boolcp.io.decoding import attribute, check_decomposition, check_provenance, read_decomposition
from boolcp.io.errors import FileError, check_exists, reading
from boolcp.io.hdf5 import refuse_traps
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import is_labelled, mode_names, name_prefix, read_labels, to_xarray
from boolcp.storage.dense import fingerprint as array_fingerprint

FORMAT = "boolcp decomposition"
FORMAT_VERSION = 2  # 1 had no prefix and no names
RESULT = "decomposition.nc"  # its name in a folder that `boolcp fit` wrote
WRITABLE = re.compile(r"(?!.*_nc4_)\w[\w.+@%-]*")  # names that netCDF holds as they are
OTHER_ENDINGS = (".npy", ".npz", ".mat", ".csv", ".txt", ".json", ".pkl", ".html")  # of what a result is not


def save(
    result: Any, path: str | PathLike[str], *, data: Any = None, notes: Any = None, overwrite: bool = False
) -> None:
    """Save a decomposition or a fitted model in one netCDF file that `load` and xarray read.

    The file is written completely or not at all. It holds the atoms with their labels, certificates and shares of
    variance, and its provenance: versions, date and, for a model, parameters, seed and the history of the pursuit.

    Parameters
    ----------
    result : BooleanCP or BMP
        What to save; of a fitted model, its `decomposition_` with more provenance.
    path : str or path
        The file; its name usually ends in .nc.
    data : array-like or DataArray, optional
        The decomposed tensor: its fingerprint and the steps that prepared it go into the provenance.
    notes : dict, optional
        Anything else to record; it must be JSON-serializable.
    overwrite : bool
        Replace an existing file.

    Examples
    --------
    >>> import boolcp, pathlib, tempfile
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "result.nc"
    >>> boolcp.save(boolcp.BMP(2, random_state=0).fit(X), path, data=X)
    >>> boolcp.load(path).n_atoms
    2
    """
    W = getattr(result, "decomposition_", result)
    if not isinstance(W, BooleanCP):
        raise TypeError(f"save takes a BooleanCP or a fitted model, got {type(result).__name__}.")
    atomic.check_free(path, overwrite=overwrite)
    if Path(path).suffix.lower() in OTHER_ENDINGS:
        raise FileError(path, "a result is saved as netCDF", "Choose a name that ends in .nc.")
    check_decomposition(W)
    load_extra("h5netcdf", "files")
    dataset, names = _rename(_complete(to_xarray(W), W))
    provenance = make_provenance(result, data=data, notes=notes)
    dataset.attrs |= {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "boolcp_version": __version__,
        "dims": json.dumps(mode_names(W)),
        "prefix": name_prefix(W),
        "names": json.dumps(names),
        "is_labelled": int(W.labels is not None),
        "tensor_name": "" if W.labels is None else W.labels.name or "",
        "tensor_unit": "" if W.labels is None else W.labels.value_unit or "",
        "provenance": json.dumps(provenance, default=_plain),
    }
    if W.data_norm2 is not None:
        dataset.attrs["data_norm2"] = float(W.data_norm2)
    if W.trust is not None:
        dataset.attrs["has_trust"] = 1
    if W.deviance is not None:
        dataset.attrs["deviance"] = json.dumps(asdict(W.deviance), default=_plain)
    buffer = io.BytesIO()
    dataset.to_netcdf(buffer, engine="h5netcdf")
    atomic.write_bytes(path, buffer.getvalue(), overwrite=overwrite)


def load(path: str | Path) -> BooleanCP:
    """Return the BooleanCP from a file that `save` wrote, or from a folder that `boolcp fit` wrote.

    Examples
    --------
    >>> import boolcp, pathlib, tempfile
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "truth.nc"
    >>> truth.save(path)
    >>> boolcp.load(path)
    BooleanCP(8 x 9 x 10, 2 atoms: 1 along mode 0, 1 along mode 1, 0 along mode 2)
    """
    dataset = _open(path)
    with reading(path, "decomposition"):
        return check_decomposition(read_decomposition(dataset))


def load_provenance(path: str | Path) -> dict[str, Any]:
    """Return the provenance of a saved decomposition as a dict.

    Examples
    --------
    >>> import boolcp, pathlib, tempfile
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "result.nc"
    >>> boolcp.save(boolcp.BMP(2, random_state=0).fit(X), path)
    >>> boolcp.io.load_provenance(path)["parameters"]["n_atoms"]
    2
    """
    dataset = _open(path)
    with reading(path, "decomposition"):
        return check_provenance(json.loads(attribute(dataset, "provenance", str)))


def is_result(path: Any) -> Any:
    """Return True if the file is a saved decomposition."""
    try:
        _open(path)
    except FileError:
        return False
    return True


def fingerprint(X: Any) -> Any:
    """Return the SHA-256 of the numbers of X with its shape and dtype; equal data has an equal fingerprint."""
    return array_fingerprint(np.asarray(X.values if is_labelled(X) else X))


def n_missing(X: Any) -> Any:
    """Return the number of entries that are missing (NaN)."""
    if X.dtype.kind not in "fc":
        return 0
    return sum(int(np.count_nonzero(np.isnan(part))) for part in np.atleast_1d(X))  # X may be a memory map


def make_provenance(result: Any, *, data: Any = None, notes: Any = None) -> Any:
    """Return where a result comes from, as a JSON-serializable dict."""
    provenance: dict[str, Any] = {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"boolcp": __version__, "numpy": np.__version__, "python": platform.python_version()},
    }
    if hasattr(result, "decomposition_"):
        parameters = result.get_params()
        provenance |= {
            "method": type(result).__name__,
            "parameters": parameters,
            "random_state": parameters.get("random_state"),
            "converged": bool(getattr(result, "converged_", True)),
            "stop_reason": getattr(result, "stop_reason_", ""),
            "history": [asdict(step) for step in getattr(result, "history_", ())],
        }
    if data is not None:
        array = read_labels(data)[0]
        array = array if is_lazy(array) else np.asarray(array)
        provenance["data"] = {
            "fingerprint": "" if is_lazy(array) else fingerprint(array),  # a lazy array is not read again just for this
            "shape": array.shape,
            "dtype": str(array.dtype),
            "n_missing": n_missing(array),
            "source": str(data.attrs.get("source", "")) if is_labelled(data) else "",
            "preparation": list(np.atleast_1d(data.attrs.get("preparation", []))) if is_labelled(data) else [],
        }
    return check_provenance(json.loads(json.dumps(provenance | (notes or {}), default=_plain)))


def _complete(dataset: Any, W: BooleanCP) -> Any:
    """Add what only `load` needs to the Dataset of a decomposition."""
    prefix = name_prefix(W)
    atom_dim = f"{prefix}atom"
    dataset[f"{prefix}boolean_mode_index"] = atom_dim, W.boolean_mode
    dataset[f"{prefix}rank"] = atom_dim, np.array([atom.rank or 0 for atom in W.atoms], dtype=int)  # 0: a block
    if W.data_inner is not None:
        dataset[f"{prefix}data_inner"] = atom_dim, np.asarray(W.data_inner)
    if W.data_gram is not None:
        dataset[f"{prefix}data_gram"] = (atom_dim, f"{prefix}other_atom"), np.asarray(W.data_gram)
    for mode, slices in (W.undetermined or {}).items():
        dim = mode_names(W)[mode]
        dataset[f"{prefix}undetermined_{dim}"] = dim, np.asarray(slices, dtype=bool)
    return dataset


def _rename(dataset: Any) -> tuple[Any, dict[str, str]]:
    """Return a Dataset with names that netCDF accepts, and a dict from these names to the original ones.

    A slash would create a group, a blank ends a name in the list of coordinates, and a lone dot is the file itself.
    """
    new: dict[str, str] = {}
    known = {str(name) for name in (*dataset.variables, *dataset.dims)}
    for name in sorted(known):
        if not WRITABLE.fullmatch(name):
            short = re.sub(r"[^\w.+@%-]|_nc4_", "_", name).lstrip("._")
            new[name] = next(free for n in count() if (free := f"{short or 'name'}_{n}") not in known)
            known.add(new[name])
    return dataset.rename(new), {short: name for name, short in new.items()}


def find_result(path: Any) -> Path:
    """Return the file of a result, given the file or the folder that `boolcp fit` wrote."""
    path = check_exists(path)
    if path.is_dir() and not (path / RESULT).exists():
        raise FileError(path, f"is a folder without {RESULT}", "Name a folder that boolcp fit wrote, or a file.")
    return path / RESULT if path.is_dir() else path


def _open(path: Any) -> Any:
    path = find_result(path)
    xarray = load_extra("xarray", "labels")
    load_extra("h5netcdf", "files")
    if path.suffix.lower() in OTHER_ENDINGS:
        raise FileError(path, f"is a {path.suffix} file, not a saved result", "Read data with boolcp.open_tensor.")
    refuse_traps(path, "netCDF file")
    with reading(path, "netCDF file"):
        dataset = xarray.load_dataset(path, engine="h5netcdf")
    if not np.array_equal(dataset.attrs.get("format"), FORMAT):
        raise FileError(path, "is not a decomposition that boolcp saved", "Read data with boolcp.open_tensor.")
    with reading(path, "decomposition"):
        version = int(attribute(dataset, "format_version", int | np.integer))
        if not 1 <= version <= FORMAT_VERSION:
            problem = f"has format version {version}, this boolcp {__version__} knows {FORMAT_VERSION}"
            raise FileError(path, problem, "If it is newer, update boolcp: pip install --upgrade boolcp.")
        return dataset if version == 1 else dataset.rename(json.loads(attribute(dataset, "names", str)))


def _plain(value: Any) -> Any:
    """Return a number, list or text for a value that JSON does not know."""
    if isinstance(value, np.generic):
        return value.item()
    return value.tolist() if isinstance(value, np.ndarray) else repr(value)
