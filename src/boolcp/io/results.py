"""Save and load of a decomposition: one netCDF file with labels and provenance, without pickle."""

import datetime
import io
import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from boolcp._version import __version__
from boolcp.checks import is_lazy
from boolcp.extras import load_extra
from boolcp.io import atomic
from boolcp.io.errors import FileError, check_exists, reading
from boolcp.io.hdf5 import refuse_traps
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels, is_labelled, mode_names, plain_values, read_labels, to_xarray
from boolcp.storage.dense import fingerprint as array_fingerprint

FORMAT = "boolcp decomposition"
FORMAT_VERSION = 1
RESULT = "decomposition.nc"  # its name in a folder that `boolcp fit` wrote
OTHER_ENDINGS = (".npy", ".npz", ".mat", ".csv", ".txt", ".json", ".pkl", ".html")  # of what a result is not


def save(result, path, *, data=None, notes=None, overwrite=False):
    """Save a decomposition or a fitted model in one netCDF file that `load` and xarray read.

    The file is written completely or not at all. It holds the atoms with their labels, certificates and shares of
    variance, and the provenance: versions, date, and of a model its parameters, seed and the history of the pursuit.

    Parameters
    ----------
    result : BooleanCP or BMP
        What to save; a fitted model gives its `decomposition_` and more provenance.
    path : str or path
        The file, by custom ending in .nc.
    data : array-like or DataArray, optional
        The decomposed tensor: its fingerprint goes into the provenance, and the steps that prepared it.
    notes : dict, optional
        Anything else to remember that JSON can hold.
    overwrite : bool
        Replace an existing file.

    Returns
    -------
    None

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
    load_extra("h5netcdf", "files")
    dataset = _complete(to_xarray(W), W)
    provenance = make_provenance(result, data=data, notes=notes)
    dataset.attrs |= {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "boolcp_version": __version__,
        "dims": json.dumps(mode_names(W)),
        "is_labelled": int(W.labels is not None),
        "tensor_name": "" if W.labels is None else W.labels.name or "",
        "tensor_unit": "" if W.labels is None else W.labels.value_unit or "",
        "provenance": json.dumps(provenance, default=_plain),
    }
    if W.data_norm2 is not None:
        dataset.attrs["data_norm2"] = float(W.data_norm2)
    buffer = io.BytesIO()
    dataset.to_netcdf(buffer, engine="h5netcdf")
    atomic.write_bytes(path, buffer.getvalue(), overwrite=overwrite)


def load(path):
    """Return the BooleanCP that `save` wrote, to a file or, by `boolcp fit`, to decomposition.nc in a folder.

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
        return _from_xarray(dataset)


def load_provenance(path):
    """Return what a saved decomposition remembers of its making, as a dict.

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
        return json.loads(dataset.attrs["provenance"])


def is_result(path):
    """Return True if the file is a saved decomposition."""
    try:
        _open(path)
    except FileError:
        return False
    return True


def fingerprint(X):
    """Return the SHA-256 of the numbers of X with its shape and dtype; equal data has an equal fingerprint.

    Examples
    --------
    >>> import numpy as np
    >>> from boolcp.io.results import fingerprint
    >>> fingerprint(np.eye(3)) == fingerprint(np.asfortranarray(np.eye(3)))
    True
    """
    return array_fingerprint(np.asarray(X.values if is_labelled(X) else X))


def n_missing(X):
    """Return the number of entries that are missing (NaN)."""
    if X.dtype.kind not in "fc":
        return 0
    return sum(int(np.count_nonzero(np.isnan(part))) for part in np.atleast_1d(X))  # X may be a memory map


def make_provenance(result, *, data=None, notes=None):
    """Return where a result comes from, as a dict that JSON can hold."""
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
            "fingerprint": "" if is_lazy(array) else fingerprint(array),  # a lazy array is not read once more for it
            "shape": array.shape,
            "dtype": str(array.dtype),
            "n_missing": n_missing(array),
            "source": str(data.attrs.get("source", "")) if is_labelled(data) else "",
            "preparation": list(np.atleast_1d(data.attrs.get("preparation", []))) if is_labelled(data) else [],
        }
    return json.loads(json.dumps(provenance | (notes or {}), default=_plain))


def _complete(dataset, W):
    """Add to the Dataset of a decomposition what only `load` needs."""
    atom_dim = dataset["weight"].dims[0]
    dataset["boolean_mode_index"] = atom_dim, W.boolean_mode
    dataset["rank"] = atom_dim, np.array([0 if atom.rank is None else atom.rank for atom in W.atoms], dtype=int)
    if W.data_inner is not None:
        dataset["data_inner"] = atom_dim, np.asarray(W.data_inner)
    if W.data_gram is not None:
        dataset["data_gram"] = (atom_dim, f"other_{atom_dim}"), np.asarray(W.data_gram)
    for mode, slices in (W.undetermined or {}).items():
        dim = mode_names(W)[mode]
        dataset[f"undetermined_{dim}"] = dim, np.asarray(slices, dtype=bool)
    return dataset


def _open(path):
    path = check_exists(path)
    xarray = load_extra("xarray", "labels")
    load_extra("h5netcdf", "files")
    if path.is_dir():
        if not (path / RESULT).exists():
            raise FileError(path, f"is a folder without {RESULT}", "Name a folder that boolcp fit wrote, or a file.")
        path /= RESULT
    if path.suffix.lower() in OTHER_ENDINGS:
        raise FileError(path, f"is a {path.suffix} file, not a saved result", "Data is read by open_tensor.")
    refuse_traps(path, "netCDF file")
    with reading(path, "netCDF file"):
        dataset = xarray.load_dataset(path, engine="h5netcdf")
    if dataset.attrs.get("format") != FORMAT:
        raise FileError(path, "is not a decomposition that boolcp saved", "Data is read by open_tensor.")
    version = int(dataset.attrs.get("format_version", 0))
    if version > FORMAT_VERSION:
        raise FileError(
            path,
            f"has format version {version}, this boolcp {__version__} knows {FORMAT_VERSION}",
            "Update boolcp: pip install --upgrade boolcp.",
        )
    return dataset


def _from_xarray(dataset):
    """Return the BooleanCP of a Dataset that `save` made."""
    dims = tuple(json.loads(dataset.attrs["dims"]))
    matrices = [dataset[f"factor_{dim}"].values for dim in dims]
    marks = {n: f"undetermined_{dim}" for n, dim in enumerate(dims) if f"undetermined_{dim}" in dataset}
    undetermined = {n: dataset[name].values.astype(bool) for n, name in marks.items()} or None
    ranks = dataset["rank"].values
    starts = np.concatenate([[0], np.cumsum(np.maximum(ranks, 1))]).astype(int)
    atoms = []
    for k, (mode, rank) in enumerate(zip(dataset["boolean_mode_index"].values, ranks, strict=True)):
        columns = slice(starts[k], starts[k + 1])
        others = [A[:, columns] for n, A in enumerate(matrices) if n != mode]
        real = {"block": dataset[f"block_{k}"].values} if rank == 0 else {"factors": tuple(map(np.nan_to_num, others))}
        z, certificate = matrices[mode][:, starts[k]], float(dataset["certificate"].values[k])
        atoms.append(Atom(int(mode), z, certificate=certificate, **real))
    return BooleanCP(
        tuple(dataset.sizes[dim] for dim in dims),
        tuple(atoms),
        dataset["weight"].values,
        _labels(dataset, dims) if dataset.attrs["is_labelled"] else None,
        data_norm2=dataset.attrs.get("data_norm2"),
        data_inner=dataset["data_inner"].values if "data_inner" in dataset else None,
        data_gram=dataset["data_gram"].values if "data_gram" in dataset else None,
        undetermined=undetermined,
    )


def _labels(dataset, dims):
    coords = {dim: plain_values(dataset.coords[dim].values) for dim in dims if dim in dataset.coords}
    extra = {}
    for name, coord in dataset.coords.items():
        if name not in dims and coord.ndim == 1 and coord.dims[0] in dims:
            extra[str(name)] = str(coord.dims[0]), plain_values(coord.values)
    units = {str(n): str(c.attrs["units"]) for n, c in dataset.coords.items() if "units" in c.attrs}
    name, unit = dataset.attrs["tensor_name"] or None, dataset.attrs.get("tensor_unit") or None
    return Labels(dims, coords, units, extra, name, unit)


def _plain(value):
    """Return a number, list or text for what JSON does not know."""
    if isinstance(value, np.generic):
        return value.item()
    return value.tolist() if isinstance(value, np.ndarray) else repr(value)
