"""Recordings: EEG and MEG files through MNE; .nwb files through pynwb, series with their trials and spikes of units."""

import gzip
import math
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.io.arrays import NamedArrays, Variable, list_variables, read_variable
from boolcp.io.coordinates import read_table
from boolcp.io.errors import FileError, reading, refusing
from boolcp.io.limits import check_hdf5, refuse_expansion, refuse_too_large
from boolcp.prepare import count_spikes, set_events
from boolcp.prepare.tables import read_columns
from boolcp.system import load_extra

UNITS = "units"  # the table of units, beside the series
MICRO = 1e6
LINKS = re.compile(r"^\s*(?:DataFile|MarkerFile)\s*[=:](.*)$", re.IGNORECASE | re.MULTILINE)


def read_mne(path: Path) -> Any:
    """Return epochs as channel x time x trial, averages with a mode "condition", a recording as channel x time."""
    from boolcp.interop import from_mne

    mne, name = load_extra("mne", "mne"), path.name.lower()
    if name.endswith(".gz"):
        packed, unpacked = path.stat().st_size, 0
        with reading(path, ".gz file"), gzip.open(path) as file:  # decompressed once and not kept
            while content := file.read(2**20):
                unpacked += len(content)
                refuse_expansion(path, "its content", packed, unpacked)
    if name.endswith(".set"):
        list_variables(path)  # EEGLAB writes MATLAB files
    with reading(path, f"{path.suffix} file"), mne.use_log_level("ERROR"):
        if name.endswith((".vhdr", ".ahdr")):
            for link in LINKS.findall(path.read_bytes().decode("latin-1")):
                _refuse_link(path, link)
        recording = _open_mne(mne, path)
        parts = getattr(recording, "_raw", None) or ()  # of split epochs
        files = *getattr(recording, "filenames", ()), *(part.fid.name for part in parts if hasattr(part, "fid"))
        for file in files:
            _refuse_link(path, str(file or ""))
        if not getattr(recording, "preload", isinstance(recording, list)):  # averages and epochs of .set are in memory
            n_times = getattr(recording, "n_times", None) or len(recording.times)
            n_bytes = 4 * len(recording.ch_names) * n_times * len(getattr(recording, "events", [0]))
            packed = sum(os.path.getsize(file) for file in {str(path), *map(str, filter(None, files))})
            refuse_expansion(path, "its content", packed, n_bytes)  # skipped samples count, and take no bytes
            refuse_too_large(path, "its content", n_bytes, "Read a part of it by MNE (boolcp.interop.from_mne).")
        return from_mne(recording)


def _open_mne(mne: Any, path: Path) -> Any:
    name = path.name.lower()
    if name.endswith((".fif", ".fif.gz")):
        _check_tags(path)
        kind = mne.what(path)  # judged by its content, not its name
        if kind == "epochs":
            return mne.read_epochs(path, preload=False)
        return mne.read_evokeds(path) if kind == "evoked" else mne.io.read_raw_fif(path, on_split_missing="ignore")
    if name.endswith(".set"):
        try:
            return mne.io.read_raw_eeglab(path)
        except TypeError:  # this is how MNE says that the file holds epochs
            name = next(name for name in ("EEG.data", "data") if name in list_variables(path))
            link = read_variable(path, name)  # the numbers, or the name of the file that has them
            _refuse_link(path, link if isinstance(link, str) else "")
            return mne.read_epochs_eeglab(path)
    return mne.io.read_raw(path)


def _check_tags(path: Path) -> None:
    """Raise a ValueError if a tag of a .fif file leads back, which MNE would follow for ever."""
    at, after = -1, 0
    with (gzip.open if path.name.lower().endswith(".gz") else open)(path, "rb") as file:
        while after >= 0:
            if after <= at:
                raise ValueError("its tags lead back")
            file.seek(at := after)
            if len(head := file.read(16)) < 16:
                return
            size, following = (int.from_bytes(head[n : n + 4], "big", signed=True) for n in (8, 12))
            after = at + 16 + size if following == 0 else following


def _refuse_link(path: Path, link: str) -> None:
    """Raise a FileError if a header names a file in a different folder."""
    header, name = os.path.abspath(path), link.strip().replace("\\", "/")
    folder = os.path.dirname(os.path.abspath(os.path.join(os.path.dirname(header), name)))
    if name and folder not in (header, os.path.dirname(header)):
        problem = f"refused: it refers to {link.strip()!r}, in a different folder"
        raise FileError(path, problem, "If you trust it, put all its files into one folder.")


def read_nwb(path: Path, *, variable: str | None = None, trials: Any = None, **counting: Any) -> Any:
    """Return an electrical series as channel x time in microvolts, with trials as its events, or counts of spikes."""
    with opened(path) as file:
        wanted = UNITS if variable is None and counting.get("bin_ms") is not None else variable
        name = NamedArrays(path, _list(file), None).choose(wanted)
        table = _trials(file) if trials is None else trials
        table = read_table(table) if isinstance(table, str | Path) else table
        if name == UNITS:
            return _count(path, file, table, **counting)
        X = _read_series(path, list_series(file)[name])
    return X if table is None else set_events(X, table)


def describe_nwb(path: Path) -> list[str]:
    """Return what an .nwb file holds, as lines of text."""
    with opened(path) as file:
        trials = [] if file.trials is None else [f"{len(file.trials)}, with {', '.join(file.trials.colnames)}"]
        return [f"{name}: {known}" for name, known in _list(file).items()] + [f"  trials: {text}" for text in trials]


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Give the open file; a file that refers to data in other files is refused."""
    pynwb = load_extra("pynwb", "mne")
    check_hdf5(path, ".nwb file")
    with warnings.catch_warnings(), reading(path, ".nwb file"):
        warnings.simplefilter("ignore")  # about versions of the schema that the reader understands
        with pynwb.NWBHDF5IO(path, "r") as io:
            yield io.read()


def list_series(file: Any) -> dict[str, Any]:
    """Return the electrical series by name; where two have the same name, that of their container is added."""
    ecephys = load_extra("pynwb.ecephys", "mne")
    found = [item for item in file.objects.values() if isinstance(item, ecephys.ElectricalSeries)]
    names = [series.name for series in found]
    return {s.name if names.count(s.name) == 1 else f"{s.parent.name}/{s.name}": s for s in found}


def _list(file: Any) -> dict[str, Variable]:
    """Return what can be read: the series, and the units if their spikes are known."""
    table = {}
    for name, series in list_series(file).items():
        rate = "times" if series.rate is None else f"{series.rate:g} Hz"
        table[name] = Variable(tuple(series.data.shape), f"{series.data.dtype}, {rate}")
    if file.units is not None and "spike_times" in file.units.colnames:
        table[UNITS] = Variable((len(file.units),), "units with spikes (needs --bin-ms)")
    return table


def _trials(file: Any) -> dict[str, np.ndarray] | None:
    """Return the table of trials of a file: only columns with one value for each trial."""
    if file.trials is None or not len(file.trials):
        return None
    table = file.trials.to_dataframe()
    plain = [n for n in table.columns if all(np.ndim(value) == 0 or isinstance(value, str) for value in table[n])]
    return read_columns(table[plain])


def _read_series(path: Path, series: Any) -> Any:
    """Return a series as channel x time, in microvolts."""
    shape = tuple(series.data.shape)
    if len(shape) != 2 or not all(shape):
        raise FileError(path, f"{series.name} has the shape {shape}", "Choose a series of time x channel (--variable).")
    refuse_too_large(path, series.name, 4 * math.prod(shape), "Write the part that you need to a separate file.")
    factors = MICRO * series.conversion * np.ones(shape[1])
    if series.channel_conversion is not None:
        factors = factors * np.asarray(series.channel_conversion[:])
    values = np.empty(shape[::-1], np.float32)
    step = max(2**24 // shape[1], 1)
    for start in range(0, shape[0], step):
        part = np.asarray(series.data[start : start + step], dtype=float)
        values[:, start : start + step] = (part * factors + MICRO * (series.offset or 0.0)).T
    attrs: dict[str, Any] = {"units": "µV"}
    if series.timestamps is None:
        times = (series.starting_time or 0.0) + np.arange(shape[0]) / series.rate
        attrs["sampling_rate"] = float(series.rate)
    else:
        times = np.asarray(series.timestamps[:], dtype=float)
    table = series.electrodes.to_dataframe()
    labels = table["label"] if "label" in table and table["label"].is_unique else table.index
    coords = {"channel": ("channel", np.asarray(labels.tolist())), "time": ("time", times, {"units": "s"})}
    if {"x", "y"} <= set(table) and np.isfinite(table[["x", "y"]].astype(float)).all(axis=None):
        coords |= {axis: ("channel", table[axis].to_numpy(dtype=float)) for axis in ("x", "y")}
    if "location" in table:
        coords["area"] = "channel", table["location"].astype(str).to_numpy(dtype=str)
    return load_extra("xarray", "files").DataArray(values, coords, ("channel", "time"), series.name, attrs)


def _count(path: Path, file: Any, table: Any, bin_ms: Any, window_ms: Any, align: str | None) -> Any:
    """Return the counts of spikes by unit, time and trial."""
    if bin_ms is None:
        raise FileError(path, "holds spike times of units", "Give the length of the bins (bin_ms=, --bin-ms).")
    if table is None:
        raise FileError(path, "has no trials to count spikes in", "Give a table of them (trials=, --trials).")
    trains = [np.asarray(file.units["spike_times"][n]) for n in range(len(file.units))]
    labels = np.asarray(file.units.id[:])
    with refusing(path, "Check the trials and the window."):
        return count_spikes(trains, table, bin_ms=bin_ms, window_ms=window_ms, align=align, units=labels)
