"""Writing data: a labelled tensor to one file, a recording in the layout of NeuroTycho."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from boolcp.extras import load_extra
from boolcp.io import atomic
from boolcp.io.errors import FileError, writing
from boolcp.result.labels import read_labels


def write_tensor(X: Any, path: Any, *, overwrite: bool = False) -> None:
    """Write a DataArray to one file: .nc with its labels, or .npy with its numbers only.

    Examples
    --------
    >>> import boolcp, numpy as np, pathlib, tempfile, xarray as xr
    >>> from boolcp.io.writing import write_tensor
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.nc"
    >>> write_tensor(xr.DataArray(np.eye(3), dims=("channel", "time")), path)
    >>> boolcp.open_tensor(path).dims
    ('channel', 'time')
    """
    path = Path(path)
    if path.suffix not in (".nc", ".npy"):
        raise FileError(path, f"the ending {path.suffix or '(none)'} is not an output format", "Use .nc or .npy.")
    if path.suffix == ".npy":
        with atomic.replacing(path, overwrite=overwrite) as temporary:
            np.save(temporary, X.values)
        return
    load_extra("h5netcdf", "files")
    _check_names(X, path)
    X = X.assign_attrs({name: _plain(value) for name, value in X.attrs.items()})
    X.attrs = {name: value for name, value in X.attrs.items() if np.size(value)}
    with atomic.replacing(path, overwrite=overwrite) as temporary:
        X.rename(X.name or "tensor").to_netcdf(temporary, engine="h5netcdf")


def _check_names(X: Any, path: Path) -> None:
    """Raise a FileError if netCDF cannot hold a name or a label of the tensor."""
    for name in (*X.dims, *X.coords, *([] if X.name is None else [X.name])):
        if not str(name).strip(".") or "/" in str(name):
            raise FileError(path, f"netCDF cannot hold the name {name!r}", "Rename it, or write to .npy.")
    try:
        read_labels(X)
    except ValueError as error:
        raise FileError(path, str(error).rstrip("."), "Write to .npy to keep the numbers only.") from error


def write_neurotycho(sessions: Any, folder: Any, *, overwrite: bool = False) -> None:
    """Write recordings as a NeuroTycho folder: Session1 .. with one MATLAB file per channel, times and conditions.

    They are channel x time in microvolts, rounded to int16, as the originals are. Their conditions are those of
    `boolcp.prepare.list_conditions`, their electrodes the coordinates "x", "y" and "area".

    Examples
    --------
    >>> import boolcp, pathlib, tempfile
    >>> from boolcp.io.writing import write_neurotycho
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> simulation = boolcp.datasets.simulate_ecog(n_channels=8, n_trials=2, trial_ms=200, random_state=0)
    >>> write_neurotycho(simulation.sessions.values(), folder)
    >>> boolcp.open_tensor(folder, condition="Anesthetized").shape
    (8, 400)
    """
    from boolcp.prepare import list_conditions

    folder = Path(folder)
    for number, X in enumerate(sessions, start=1):
        path = folder / f"Session{number}"
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        X = X.transpose("channel", "time")
        times = X["time"].values.astype(float)
        for channel, row in enumerate(X.values, start=1):
            signal = np.clip(np.rint(row), -(2**15), 2**15 - 1).astype(np.int16)
            _write_mat(path / f"ECoG_ch{channel}.mat", {f"ECoGData_ch{channel}": signal[None]}, overwrite)
        _write_mat(path / "ECoGTime.mat", {"ECoGTime": times[None]}, overwrite)
        labels, index = [], []
        for label, start, stop in list_conditions(X):
            labels += [f"{label}-Start", f"{label}-End"]
            index += [np.searchsorted(times, start) + 1, np.searchsorted(times, stop)]  # from 1, the end included
        content = {
            "ConditionLabel": np.array([labels], dtype=object),
            "ConditionIndex": np.array([index], dtype=float),
            "ConditionTime": (np.array([index], dtype=float) - 1) / 1000,
        }
        _write_mat(path / "Condition.mat", content, overwrite)
        if {"x", "y"} <= set(X.coords):
            atomic.write_text(path / "electrodes.csv", _electrode_table(X), overwrite=overwrite)


def _write_mat(path: Any, content: Any, overwrite: bool) -> None:
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, content)
    atomic.write_bytes(path, buffer.getvalue(), overwrite=overwrite, is_durable=False)


def _electrode_table(X: Any) -> Any:
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["channel", "x", "y", "area"])
    areas = X["area"].values if "area" in X.coords else [""] * X.sizes["channel"]
    for number, (x, y, area) in enumerate(zip(X["x"].values, X["y"].values, areas, strict=True), start=1):
        writer.writerow([number, x, y, area])
    return table.getvalue()


def _plain(value: Any) -> Any:
    """Return an attribute as netCDF takes it: numbers, text or lists of them."""
    if isinstance(value, str | int | float | np.number | np.ndarray):
        return value
    return list(value) if isinstance(value, list | tuple) else str(value)
