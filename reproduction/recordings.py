"""The recordings of Figures 2 to 4: a simulated one, and real ones from the folder that BOOLCP_DATA names."""

import os
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.io
import xarray as xr
from tables import seed_of

from boolcp import prepare
from boolcp.datasets import simulate_ecog
from boolcp.datasets.ecog import cortex

SIMULATED, REAL = "simulated", "real"
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
BAD = 62  # channel 63 of the spectra is noise in some states


@lru_cache
def data_folder():
    """Return the folder of real recordings that BOOLCP_DATA names; say so and return None without one."""
    folder = os.environ.get("BOOLCP_DATA")
    if folder and Path(folder).is_dir():
        return Path(folder)
    print("Simulated recordings only: set BOOLCP_DATA to the folder of the real ones.", file=sys.stderr)
    return None


def sources():
    """Return (group, condition) of all tensors: simulated ones, and real ones if they are there."""
    real = [] if data_folder() is None else [(REAL, name) for name in REAL_NAMES]
    return [(SIMULATED, condition) for condition in CONDITIONS] + real


def load(group, condition, size):
    """Return a tensor channel x time x trial, each channel with mean zero and variance one."""
    X = simulated(size)[condition][0] if group == SIMULATED else real(condition)
    return np.ascontiguousarray(X.to_numpy(), dtype=float)


@lru_cache(maxsize=1)
def simulated(n_channels, number=0):
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
def real(name):
    """Return one of the real tensors: common average, 50 Hz (high gamma: 10 Hz), trials of 3 s, standardized."""
    if name.startswith("EEG"):
        start = {"EEG awake": 180, "EEG propofol": 4710}[name]
        path = data_folder() / "ness_propofol_eeg" / f"eeganes07laplac250_detrend_all_t{start}.mat"
        signal = scipy.io.loadmat(path)["y"].T.astype(float)
    else:
        with np.load(data_folder() / "neurotycho_food_tracking" / "food_tracking_B_64ch_250Hz_300s.npz") as file:
            signal = file["data"][:63].astype(float)  # channel 64 is bad
    time = ("time", np.arange(signal.shape[1]) / 250.0, {"units": "s"})
    X = xr.DataArray(signal, {"channel": np.arange(1, len(signal) + 1), "time": time}, ("channel", "time"))
    X, rate = prepare.common_average(X), RATE
    if name == "ECoG high gamma":
        X, rate = prepare.envelope(prepare.band_pass(X, 60.0, 110.0), "log"), 10.0
    X = prepare.resample(X, rate)
    n_trials = min(int(X.sizes["time"] * 1000 / rate // TRIAL_MS), MAX_TRIALS)
    return prepare.zscore(prepare.cut_trials(X, TRIAL_MS, n_trials=n_trials).astype(float))


def spectra():
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
    X = np.delete(np.stack(parts, axis=2), BAD, axis=0)
    X = X - X.mean(axis=2, keepdims=True)
    return X / X.std()


def electrodes():
    """Return tables of electrodes {name: (x, y, area, partner)}: a simulated one, and a real one if it is there.

    The partner is the other channel of a bipolar pair, from 1, or -1.
    """
    positions, areas = cortex(128)
    tables = {SIMULATED: (positions[:, 0], positions[:, 1], areas, np.full(128, -1))}
    folder = data_folder()
    if folder is not None and (folder / "neurotycho_maps").is_dir():
        found = pd.read_csv(folder / "neurotycho_maps" / "electrodes_Chibi.csv").sort_values("channel")
        pairs = pd.read_csv(folder / "neurotycho_maps" / "bipolar_Chibi.csv")[:62]  # the last two only fill the list
        partner = np.full(len(found), -1)
        partner[pairs["ch_plus"] - 1] = pairs["ch_minus"]
        places = found["x_px"], -found["y_px"], found["area8"]  # pixels count from the top
        tables[REAL] = (*(column.to_numpy() for column in places), partner)
    return tables
