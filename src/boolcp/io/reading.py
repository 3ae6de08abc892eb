"""open_tensor: from a file of any known format to a labelled array."""

import os
from collections import Counter
from os import PathLike
from typing import Any

import numpy as np

from boolcp import prepare
from boolcp.io.arrays import NamedArrays, not_lazy, read_hdf5, read_mat, read_netcdf, read_npy, read_npz, read_zarr
from boolcp.io.coordinates import add_coords, find_trials, read_trials, with_electrodes, with_trials
from boolcp.io.errors import FileError, check_exists, refusing
from boolcp.io.frames import read_any_table, read_frame
from boolcp.io.neurotycho import describe_recording, read_neurotycho
from boolcp.io.recordings import describe_nwb, read_mne, read_nwb
from boolcp.result.labels import plain_values

FAMILIES = {".npy": "npy", ".npz": "npz", ".mat": "mat", ".nc": "netcdf", ".nc4": "netcdf", ".cdf": "netcdf"}
FAMILIES |= {".h5": "hdf5", ".hdf5": "hdf5", ".hdf": "hdf5", ".nwb": "nwb", ".zip": "neurotycho"}
FAMILIES |= dict.fromkeys((".csv", ".tsv", ".parquet"), "table")
FAMILIES |= dict.fromkeys((".fif", ".fif.gz", ".edf", ".bdf", ".gdf", ".set", ".vhdr"), "mne")
READERS: dict[str, Any] = {"npy": read_npy, "npz": read_npz, "mat": read_mat, "hdf5": read_hdf5}
READERS |= {"netcdf": read_netcdf, "zarr": read_zarr}
# options that only some formats take: all others refuse them, so that none is ignored
ARRAYS = tuple(READERS)
TAKEN_BY = {"variable": (*ARRAYS, "nwb", "table"), "dims": (*ARRAYS, "table"), "coords": ARRAYS, "events": ARRAYS}
TAKEN_BY |= {"sampling_rate": (*ARRAYS, "neurotycho"), "session": ("neurotycho",), "skip_bad": ("neurotycho",)}
TAKEN_BY |= {"window_ms": ("nwb",), "align": ("nwb",)}
MAX_READ = 10**8  # entries that a description reads
MAX_LISTED = 20  # lines or groups of a description


def open_tensor(
    path: str | PathLike[str],
    *,
    variable: str | None = None,
    dims: Any = None,
    coords: Any = None,
    sampling_rate: float | None = None,
    events: Any = None,
    bin_ms: float | None = None,
    condition: Any = None,
    session: Any = None,
    channels: Any = None,
    skip_bad: bool = False,
    electrodes: Any = None,
    trials: Any = None,
    window_ms: Any = None,
    align: Any = None,
    progress: bool = False,
    lazy: Any = "auto",
) -> Any:
    """Return the data of a file as an xarray DataArray: the tensor, with the labels that the file has.

    Parameters
    ----------
    path : str or path
        A file .npy, .npz, .mat, .nc, .zarr, .h5, .nwb, an EEG or MEG file that MNE reads (.fif, .edf, .bdf, .gdf, .set,
        .vhdr), a NeuroTycho recording, as a folder or .zip, or a table .csv, .tsv, .parquet (`from_dataframe`: dims are
        the columns that are modes, variable is the one with the entries). Nothing is ever unpickled.
    variable : str, optional
        Which array of the file, or series of an .nwb file, if there are several. A cell of matrices in a .mat file, or
        arrays whose names match a pattern such as "trial_*", are trials of unequal length, with NaN at their ends.
    dims : sequence of str, optional
        Names of the modes, for files that have none: ("channel", "time").
    coords : dict, optional
        Labels of a mode by its name: values, or the name of a variable in the file. Other names are further
        coordinates, of the mode with their length or of the one in a pair (mode, values).
    sampling_rate : float, optional
        Samples per second along the mode "time"; read from the file if it is there.
    events, bin_ms : optional
        Names of the vectors unit, time (ms) and trial of each spike, to count in bins of this length (all .nwb needs).
    condition, session, channels : optional
        Only this condition (`boolcp.prepare.select_condition`), session (NeuroTycho), or sequence of channels.
    electrodes : str or path, optional
        Table (.csv) or map (.mat) of the positions of the electrodes, matched with the labels of the mode "channel".
    trials : str, path, DataFrame or dict, optional
        A row for each trial: coordinates of the mode "trial", or, with "onset" (s), events of a continuous recording.
    window_ms, align : optional
        The part of each trial of an .nwb file in which spikes are counted, as in `boolcp.prepare.count_spikes`.
    skip_bad, progress : bool
        Skip channels of a NeuroTycho recording that cannot be read, with a warning; show a progress bar.
    lazy : bool or "auto"
        Leave a .npy, .zarr, .h5 or .nc file on disk, to be read in slabs; "auto": if it needs half of the memory.

    Returns
    -------
    xarray.DataArray
        The tensor, of a real dtype, with at least two modes. A file that cannot be used raises a
        `boolcp.io.FileError`, which says what is wrong and what to do.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "recording.npz"
    >>> np.savez(path, data=np.zeros((4, 500)), fs=250.0)
    >>> X = boolcp.open_tensor(path, dims=("channel", "time"))
    >>> dict(X.sizes), float(X["time"][-1])
    ({'channel': 4, 'time': 500}, 1.996)
    """
    if not isinstance(path, str | PathLike):
        is_table = hasattr(path, "columns")
        how = "boolcp.from_dataframe(df, modes=[..], value=..)" if is_table else "BMP.fit, or boolcp.interop.from_mne"
        raise TypeError(f"open_tensor reads a file, but this is a {type(path).__name__}: call {how}.")
    place = check_exists(path)
    if lazy not in (True, False, "auto"):
        raise ValueError(f'lazy must be True, False or "auto", got {lazy!r}.')
    kind = format_of(place)
    given = {"variable": variable, "dims": dims, "coords": coords, "sampling_rate": sampling_rate, "events": events}
    given |= {"session": session, "skip_bad": skip_bad or None, "window_ms": window_ms, "align": align}
    for name, value in given.items():
        if value is not None and kind not in TAKEN_BY[name]:
            raise FileError(place, f"takes no {name}", f"Omit it: it is for {', '.join(TAKEN_BY[name])} data.")
    if lazy is True and (events is not None or kind not in ARRAYS):
        raise not_lazy(place)
    if kind == "neurotycho":
        X = read_neurotycho(place, condition, session, channels, skip_bad, sampling_rate, electrodes, progress)
        condition = channels = electrodes = None
    elif kind == "mne":
        X = read_mne(place)
    elif kind == "nwb":
        counting = {"bin_ms": bin_ms, "window_ms": window_ms, "align": align}
        X, trials = read_nwb(place, variable=variable, trials=trials, **counting), None
    elif kind == "table":
        X = read_frame(place, dims, variable)
    else:
        arrays = READERS[kind](place)
        if events is not None:
            X = _count(arrays, events, bin_ms)
        elif (names := find_trials(arrays, variable)) is not None:
            X = read_trials(arrays, names, dims, sampling_rate)
        else:
            X = arrays.labelled(variable=variable, dims=dims, sampling_rate=sampling_rate, lazy=lazy)
        X = X if coords is None else add_coords(X, coords, arrays, place)
    if electrodes is not None:
        X = with_electrodes(X, electrodes, place)
    if trials is not None:
        X = with_trials(X, trials, place)
    with refusing(place, "boolcp info lists conditions (events or annotations) and channels."):
        X = X if condition is None else prepare.select_condition(X, condition)
        X = X if channels is None else prepare.select(X, "channel", channels)
    return _check(X, place)


def format_of(path: Any) -> Any:
    """Return the family of a file: npy, npz, mat, netcdf, zarr, hdf5, nwb, mne or neurotycho."""
    name = path.name.lower()
    if path.is_dir():
        is_zarr = any((path / mark).exists() for mark in ("zarr.json", ".zgroup", ".zarray"))
        return "zarr" if is_zarr or name.endswith(".zarr") else "neurotycho"
    for suffix, family in FAMILIES.items():
        if name.endswith(suffix):
            return family
    advice = f"Known formats: {', '.join(FAMILIES)}, .zarr, a NeuroTycho folder or .zip."
    if name.endswith((".pkl", ".pickle")):
        advice = f"Pickles are never read because they can run code. {advice}"
    if name.endswith((".txt", ".xlsx")):
        advice = f"Read a table with pandas and pass it to boolcp.from_dataframe. {advice}"
    raise FileError(path, f"the ending {path.suffix or '(none)'} is not a known format", advice)


def _count(arrays: NamedArrays, events: Any, bin_ms: float | None) -> Any:
    """Return the tensor unit x time x trial of events that a file lists."""
    if len(events) != 3 or bin_ms is None:
        raise FileError(arrays.path, "events need three names and bins", "Give --events unit,time,trial and --bin-ms.")
    with refusing(arrays.path, "Check the three vectors."):
        return prepare.count_events(*(arrays.read_named(name, "events") for name in events), bin_ms=bin_ms)


def _check(X: Any, path: Any) -> Any:
    """Return X after checking that its numbers and labels suit a decomposition."""
    shape = " x ".join(map(str, X.shape)) or "a scalar"
    if X.dtype.kind not in "fiub":
        advice = "Save real numbers: the real part or the absolute values of complex ones."
        raise FileError(path, f"holds values of the kind {X.dtype}", advice)
    if X.ndim < 2:
        raise FileError(path, f"is {shape}: a tensor needs two or more modes", "Reshape it, or choose --variable.")
    if X.size == 0:
        raise FileError(path, f"is empty: {shape}", "Export it again with all its modes.")
    for dim in () if "segment" in X.coords else X.dims:
        labels = X.coords[dim].values if dim in X.coords else np.zeros(0)
        repeated = [label for label, n in Counter(plain_values(labels).tolist()).items() if n > 1]
        if repeated and labels.dtype.kind != "f":
            problem = f"the label {repeated[0]!r} of mode {dim!r} appears more than once"
            raise FileError(path, problem, "Rename or remove one of the two.")
    X.attrs["source"] = os.path.basename(os.path.abspath(path))
    return X


def describe(path: str | PathLike[str]) -> list[str]:
    """Describe the contents of a file as lines of text; numbers are read only to name channels that stand out."""
    place = check_exists(path)
    kind = format_of(place)
    if kind in ("neurotycho", "nwb"):
        return describe_recording(place) if kind == "neurotycho" else describe_nwb(place)
    if kind == "mne":
        X = open_tensor(place)
        found = prepare.list_conditions(X)
        lines = [f"  {label}: {start:.2f} to {stop:.2f} s" for label, start, stop in found if len(found) <= MAX_LISTED]
        counts = Counter(map(str, prepare.list_events(X).get("condition", [])))
        lines += [f"  event {label}: {count}" for label, count in counts.items()]
        bads = [f"  left out, marked as bad: {', '.join(X.attrs['left_out'])}"] if "left_out" in X.attrs else []
        return [sizes_text(X), *_coordinate_lines(X, X.dims), *lines, *bads, *prepare.common.outlier_lines(X)]
    if kind == "table":
        advice = "name modes and entries with --dims and --variable"
        return [f"a table ({advice})", *(f"{name}: {d}" for name, d in read_any_table(place).dtypes.items())]
    arrays = READERS[kind](place)
    if (found := arrays.dataset) is None:
        return [f"{name}: {variable}" for name, variable in arrays.table.items()]
    lines = [f"{name}: {sizes_text(v) or 'scalar'} {v.dtype}" for name, v in found.data_vars.items()]
    lines += _coordinate_lines(found, [dim for dim in found.sizes if dim in found.coords])
    small = [v for v in found.data_vars.values() if v.dtype.kind in "fiu" and v.size <= MAX_READ]
    return lines + [line for v in small for line in prepare.common.outlier_lines(v.load())]


def sizes_text(X: Any) -> str:
    """Return the sizes and names of the modes of a DataArray as text."""
    return " x ".join(f"{size} {dim}" for dim, size in X.sizes.items())


def _coordinate_lines(X: Any, dims: Any) -> list[str]:
    """Return the range of each coordinate, or its groups if it is no mode and has a few."""
    lines = [f"  {dim}: no coordinates" for dim in dims if dim not in X.coords]
    for name, coord in X.coords.items():
        if coord.ndim == 1 and coord.size:
            values = plain_values(coord.values)
            text = f"{values[0]} .. {values[-1]} {coord.attrs.get('units', '')}".rstrip()
            counts = Counter(values.tolist())
            if name not in dims and values.dtype.kind != "f" and len(counts) <= MAX_LISTED:
                text = ", ".join(f"{label} ({count})" for label, count in counts.items())
            lines.append(f"  {name}" + f", along {coord.dims[0]}" * (name not in dims) + f": {text}")
    return lines
