"""The recordings of Figures 2 to 4: a simulated one, real ones if available, or the one that the user names."""

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from boolcp import prepare
from boolcp.datasets import simulate_ecog
from boolcp.datasets.ecog import cortex
from boolcp.experiments._table import seed_of
from boolcp.extras import load_extra
from boolcp.io import open_tensor
from boolcp.io.arrays import read_variable
from boolcp.io.coordinates import read_electrodes, read_pairs
from boolcp.io.errors import FileError
from boolcp.io.neurotycho import describe_recording

SIMULATED, REAL, GIVEN = "simulated", "real", "given"
CONDITIONS = ("rest", "anesthesia", "recovery")
RATE, TRIAL_MS, MAX_TRIALS = 50.0, 3000, 100  # of the tensors: samples per second, length and number of trials
REAL_NAMES = ("ECoG voltage", "ECoG high gamma", "EEG awake", "EEG propofol")
STATES = {  # of the power spectra: two recordings each of rest and of recovery
    "rest, eyes open": "0_EyesOpen",
    "rest, eyes closed": "1_EyesClosed",
    "anesthesia": "2_Anes",
    "recovery, eyes closed": "3_RecEyesClosed",
    "recovery, eyes open": "4_RecEyesOpen",
}


def data_folder() -> Path | None:
    """Return the folder of real recordings that BOOLCP_DATA names, or None without one."""
    folder = os.environ.get("BOOLCP_DATA")
    return Path(folder) if folder and Path(folder).is_dir() else None


def sources(recording: str | None = None, *, real_names: Sequence[str] = REAL_NAMES) -> list[tuple[str, str]]:
    """Return (group, condition) of all tensors: those of the user's recording, or the simulated and the real ones."""
    if recording is not None:
        return [(f"{GIVEN}: {recording}", condition) for condition in conditions_of(recording)]
    real = [] if data_folder() is None else [(REAL, name) for name in real_names]
    return [(SIMULATED, condition) for condition in CONDITIONS] + real


def conditions_of(recording: str) -> tuple[str, ...]:
    """Return the names of the conditions of a recording, or ("all",) if it has none."""
    try:
        lines = describe_recording(recording)
    except (FileError, OSError):
        return ("all",)
    return tuple(dict.fromkeys(line.rpartition(":")[0].strip() for line in lines if line.startswith("  "))) or ("all",)


def load(group: str, condition: str, size: int) -> Any:
    """Return a tensor channel x time x trial as a DataArray, each channel with mean zero and variance one."""
    if group == SIMULATED:
        return simulated(size)[condition][0]
    if group == REAL:
        return _real(condition)
    return _given(group.partition(": ")[2], condition)


def to_tensor(X: Any) -> Any:
    """Return a recording channel x time as a tensor: common average, 50 Hz, trials of 3 s, channels standardized."""
    if "trial" not in X.dims:
        X = prepare.common_average(X)
        X = prepare.resample(X, RATE) if prepare.sampling_rate(X) > RATE else X
        n_trials = int(X.sizes["time"] * 1000 / prepare.sampling_rate(X) // TRIAL_MS)
        X = prepare.cut_trials(X, TRIAL_MS, n_trials=min(n_trials, MAX_TRIALS))
    return prepare.zscore(X.astype(float))


@lru_cache(maxsize=1)
def simulated(n_channels: int, number: int = 0) -> dict[str, tuple[Any, np.ndarray]]:
    """Return the tensor and the true bits of the area rhythm for each condition of a simulated recording."""
    n_trials = 30 if n_channels >= 128 else 20
    seed = seed_of("ecog", n_channels, *([number] if number else []))
    simulation = simulate_ecog(n_channels, n_trials, trial_ms=TRIAL_MS, random_state=seed)
    tensors = {}
    for condition in CONDITIONS:
        voltage = prepare.common_average(simulation.sessions[condition])
        label = voltage.attrs["condition_label"][0]
        X = prepare.cut_trials(prepare.resample(prepare.select_condition(voltage, label), RATE), TRIAL_MS)
        tensors[condition] = prepare.zscore(X.astype(float)), simulation.truth[condition].atoms[0].z
    return tensors


@lru_cache(maxsize=1)
def _given(path: str, condition: str) -> Any:
    return to_tensor(open_tensor(path) if condition == "all" else open_tensor(path, condition=condition))


@lru_cache(maxsize=1)
def _real(name: str) -> Any:
    """Return one of the real tensors in the folder of BOOLCP_DATA."""
    xarray = load_extra("xarray", "labels")
    folder = Path(os.environ["BOOLCP_DATA"])
    if name.startswith("EEG"):
        start = {"EEG awake": 180, "EEG propofol": 4710}[name]
        signal = read_variable(folder / "ness_propofol_eeg" / f"eeganes07laplac250_detrend_all_t{start}.mat", "y").T
    else:
        with np.load(folder / "neurotycho_food_tracking" / "food_tracking_B_64ch_250Hz_300s.npz") as file:
            signal = file["data"][:63].astype(float)  # channel 64 is bad
    signal = np.asarray(signal, dtype=float)
    times = np.arange(signal.shape[1]) / 250.0
    coords = {"channel": np.arange(1, len(signal) + 1), "time": ("time", times, {"units": "s"})}
    X = xarray.DataArray(signal, coords, ("channel", "time"))
    if name != "ECoG high gamma":
        return to_tensor(X)
    X = prepare.envelope(prepare.band_pass(prepare.common_average(X), 60.0, 110.0), "log")
    return prepare.zscore(prepare.cut_trials(prepare.resample(X, 10.0), TRIAL_MS).astype(float))


def spectra() -> np.ndarray | None:
    """Return log power spectra, channel x frequency x state, of a monkey under propofol, centered over the states.

    None where the folder of BOOLCP_DATA does not have them.
    """
    folder = data_folder()
    if folder is None or not (folder / "spectralca_nt").is_dir():
        return None
    parts = []
    for name in STATES.values():
        with np.load(folder / "spectralca_nt" / f"nt_lfpca{name}.npz") as file:
            parts.append(np.log10(file["psd"][:, 1:]))
    X = np.delete(np.stack(parts, axis=2), 62, axis=0)  # channel 63 is noise in some states
    X = X - X.mean(axis=2, keepdims=True)
    return X / X.std()


def electrodes() -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return the tables of electrodes {name: (x, y, area)}: the simulated one, and a real one if it is there."""
    positions, areas = cortex(128)
    tables = {SIMULATED: (positions[:, 0], positions[:, 1], areas)}
    folder = data_folder()
    path = None if folder is None else folder / "neurotycho_maps" / "electrodes_Chibi.csv"
    if path is not None and path.is_file():
        found = read_electrodes(path)
        places = [(found[n].x, -found[n].y, found[n].area) for n in sorted(found)]  # pixels count from the top
        x, y, area = zip(*places, strict=True)
        tables[REAL] = np.array(x), np.array(y), np.array(area)
    return tables


def bipolar_pairs() -> list[tuple[int, int]]:
    """Return the pairs of channels of the real electrode map, numbers from 1, or an empty list."""
    folder = data_folder()
    path = None if folder is None else folder / "neurotycho_maps" / "bipolar_Chibi.csv"
    if path is None or not path.is_file():
        return []
    return [(int(plus), int(minus)) for plus, minus in read_pairs(path)]
