"""Saving and loading a decomposition: one netCDF file with labels, provenance and a checksum, without pickle."""

import datetime
import hashlib
import io
import json
import platform
import re
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from boolcp._version import __version__
from boolcp.checks import is_lazy
from boolcp.io import atomic
from boolcp.io.errors import FileError, check_exists, reading
from boolcp.io.limits import check_hdf5
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import is_labelled, read_labels
from boolcp.result.tables import from_xarray, to_plain, to_xarray
from boolcp.storage.dense import fingerprint
from boolcp.system import load_extra

FORMAT = "boolcp decomposition"
FORMAT_VERSION = 3
RESULT = "decomposition.nc"  # its name in a folder that `boolcp fit` wrote
WRITABLE = re.compile(r"(?!.*_nc4_)\w[\w.+@%-]*")  # names that netCDF holds as they are
OTHER_ENDINGS = (".npy", ".npz", ".mat", ".csv", ".txt", ".json", ".pkl", ".html")  # of what a result is not
CHECKSUM = re.compile(rb"boolcp sha256 ([0-9a-f]{64})\Z")  # after the end of the netCDF file, which ignores it


def save(
    result: Any, path: str | PathLike[str], *, data: Any = None, notes: Any = None, overwrite: bool = False
) -> None:
    """Save a decomposition or a fitted model in one netCDF file that `load` and xarray read.

    The file holds the atoms with their labels and its provenance: versions, date, parameters, seed, history.

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
    >>> import tempfile
    >>> X, path = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).X, f"{tempfile.mkdtemp()}/result.nc"
    >>> boolcp.save(boolcp.BMP(2, random_state=0).fit(X), path, data=X)
    >>> boolcp.load(path).n_atoms, boolcp.io.load_provenance(path)["parameters"]["n_atoms"]
    (2, 2)
    """
    W = getattr(result, "decomposition_", result)
    if not isinstance(W, BooleanCP):
        raise TypeError(f"save takes a BooleanCP or a fitted model, got {type(result).__name__}.")
    atomic.check_free(path, overwrite=overwrite)
    if Path(path).suffix.lower() in OTHER_ENDINGS:
        raise FileError(path, "a result is saved as netCDF", "Choose a name that ends in .nc.")
    load_extra("h5netcdf", "files")
    dataset = to_xarray(W)
    from_xarray(dataset)  # what could not be loaded is not saved
    dataset, names = _rename(dataset)
    provenance = make_provenance(result, data=data, notes=notes)
    dataset.attrs |= {"format": FORMAT, "format_version": FORMAT_VERSION, "boolcp_version": __version__}
    dataset.attrs |= {"names": json.dumps(names), "provenance": json.dumps(provenance)}
    buffer = io.BytesIO()
    dataset.to_netcdf(buffer, engine="h5netcdf")
    content = buffer.getvalue()
    checksum = b"boolcp sha256 " + hashlib.sha256(content).hexdigest().encode()
    atomic.write_text(path, content + checksum, overwrite=overwrite)


def load(path: str | Path) -> BooleanCP:
    """Return the BooleanCP from a file that `save` wrote, or from a folder that `boolcp fit` wrote.

    Examples
    --------
    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/truth.nc"
    >>> boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth.save(path)
    >>> boolcp.load(path)
    BooleanCP(8 x 9 x 10, 2 atoms: 1 along mode 0, 1 along mode 1, 0 along mode 2)
    """
    dataset = _open(path)
    with reading(path, "decomposition"):
        return from_xarray(dataset)


def load_provenance(path: str | Path) -> dict[str, Any]:
    """Return the provenance of a saved decomposition as a dict.

    Examples
    --------
    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/truth.nc"
    >>> boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth.save(path)
    >>> sorted(boolcp.io.load_provenance(path))
    ['created', 'versions']
    """
    dataset = _open(path)
    with reading(path, "decomposition"):
        return check_provenance(json.loads(dataset.attrs["provenance"]))


def check_provenance(provenance: Any) -> dict[str, Any]:
    """Return the provenance, or raise a ValueError if its parts are not those that `save` writes."""
    parts = [provenance, *(provenance.get(name, {}) for name in ("data", "parameters", "versions"))]
    names = [provenance.get("method", "BMP"), *parts[2]]
    if not all(isinstance(part, dict) for part in parts) or not all(map(str.isidentifier, names)):
        raise ValueError("its provenance is not what boolcp writes")  # a report shows the names as code to run
    return provenance


def is_result(path: Any) -> bool:
    """Return True if the file is a saved decomposition."""
    with suppress(FileError):
        return bool(_open(path).attrs)
    return False


def make_provenance(result: Any, *, data: Any = None, notes: Any = None) -> Any:
    """Return where a result comes from, as a JSON-serializable dict."""
    versions = {"boolcp": __version__, "numpy": np.__version__, "python": platform.python_version()}
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    provenance: dict[str, Any] = {"created": created, "versions": versions}
    if hasattr(result, "decomposition_"):
        parameters, history = result.get_params(), [asdict(step) for step in getattr(result, "history_", ())]
        provenance |= {"method": type(result).__name__, "parameters": parameters, "history": history}
        provenance["random_state"] = parameters.get("random_state")
        provenance["converged"] = bool(getattr(result, "converged_", True))
        provenance["stop_reason"] = getattr(result, "stop_reason_", "")
    if data is not None:
        array, attrs = read_labels(data)[0], data.attrs if is_labelled(data) else {}
        array = array if is_lazy(array) else np.asarray(array)
        rows = np.atleast_1d(array) if array.dtype.kind in "fc" else ()
        provenance["data"] = {
            "fingerprint": "" if is_lazy(array) else fingerprint(array),  # a lazy array is not read again just for this
            "shape": array.shape,
            "dtype": str(array.dtype),
            "n_missing": sum(int(np.count_nonzero(np.isnan(row))) for row in rows),  # it may be a memory map
            "source": str(attrs.get("source", "")),
            "preparation": list(np.atleast_1d(attrs.get("preparation", []))),
        }
    return check_provenance(json.loads(json.dumps(provenance | (notes or {}), default=to_plain)))


def _rename(dataset: Any) -> tuple[Any, dict[str, str]]:
    """Return a Dataset with names that netCDF accepts, and a dict from these names to the original ones."""
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
    """Return the Dataset of a saved decomposition."""
    path = find_result(path)
    xarray, _ = load_extra("xarray", "files"), load_extra("h5netcdf", "files")
    if path.suffix.lower() in OTHER_ENDINGS:
        raise FileError(path, f"is a {path.suffix} file, not a saved result", "Read data with boolcp.open_tensor.")
    content = path.read_bytes()
    known = CHECKSUM.search(content, max(len(content) - 100, 0))
    if known and known[1] != hashlib.sha256(memoryview(content)[: known.start()]).hexdigest().encode():
        raise FileError(path, "was damaged after boolcp wrote it (its checksum is wrong)", "Copy it again.")
    check_hdf5(path, "netCDF file")
    with reading(path, "netCDF file"):
        dataset = xarray.load_dataset(path, engine="h5netcdf")
    if not np.array_equal(dataset.attrs.get("format"), FORMAT):
        raise FileError(path, "is not a decomposition that boolcp saved", "Read data with boolcp.open_tensor.")
    version = dataset.attrs.get("format_version")
    if not np.array_equal(version, FORMAT_VERSION):
        problem = f"has format version {version}, this boolcp {__version__} knows {FORMAT_VERSION}"
        raise FileError(path, problem, "Use the version of boolcp that wrote it, or fit again.")
    with reading(path, "decomposition"):
        return dataset.rename(json.loads(dataset.attrs["names"]))
