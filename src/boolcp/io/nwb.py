"""Neurodata Without Borders (.nwb), through pynwb: electrical series with their trials, and spikes of units."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.io.arrays import NamedArrays, Variable
from boolcp.io.coordinates import read_table
from boolcp.io.errors import FileError, reading, refusing
from boolcp.io.limits import check_hdf5, refuse_too_large
from boolcp.prepare import count_spikes, set_events
from boolcp.prepare.tables import read_columns
from boolcp.system import load_extra

UNITS = "units"  # the table of units, beside the series
MICRO = 1e6


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
    pynwb = load_extra("pynwb", "nwb")
    check_hdf5(path, ".nwb file")
    with warnings.catch_warnings(), reading(path, ".nwb file"):
        warnings.simplefilter("ignore")  # about versions of the schema that the reader understands
        with pynwb.NWBHDF5IO(path, "r") as io:
            yield io.read()


def list_series(file: Any) -> dict[str, Any]:
    """Return the electrical series by name; where two have the same name, that of their container is added."""
    ecephys = load_extra("pynwb.ecephys", "nwb")
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
    return load_extra("xarray", "labels").DataArray(values, coords, ("channel", "time"), series.name, attrs)


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
