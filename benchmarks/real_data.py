"""Real tensors, standardized: six recordings of the folder named by BOOLCP_DATA, others from installed packages.

=============  ============  =======================================================================
ecog_raw       63x150x100    NeuroTycho food tracking, monkey B: channel x 3 s at 50 Hz x bin
ecog_envelope  63x30x100     the same recording: log envelope of 60-110 Hz in steps of 100 ms
anesthesia     127x199x5     NeuroTycho propofol, monkey Chibi: channel x frequency x state, log power
eeg_raw        64x150x30     human EEG under propofol: channel x 3 s at 50 Hz x bin (10 per state)
spikes         30x100x300    rat motor cortex: unit x 20 ms count x trial
eeglab_epochs  32x38x74      human EEG, sample of EEGLAB: channel x 1.2 s at 32 Hz x stimulus
=============  ============  =======================================================================

Channels (units) are brought to mean zero and variance one and the whole tensor to variance one. The power
spectra are centered over the states instead, which differ little beside the spectrum they share.

Packages: images of scikit-learn (digits) and scikit-image (faces), TensorLy (IL2, serology, pines, kinetic), trips by
bicycle of tlviz, sea surface temperature and geopotential heights of eofs.
"""

import importlib.util
import os
from pathlib import Path

import numpy as np
import scipy.io
import scipy.signal


def data_folder():
    """Return the folder of the recordings: BOOLCP_DATA, by default `recordings` in the present folder."""
    return Path(os.environ.get("BOOLCP_DATA", "recordings"))


def missing_reason():
    """Return why the recordings cannot be read, or None if they are there."""
    folder = data_folder()
    if folder.is_dir():
        return None
    return f"the sample recordings are not in {folder}; set BOOLCP_DATA to the folder that holds them"


def standardize(X, per_channel=True):
    """Return X with mean zero and variance one, along mode 0 first if `per_channel`."""
    if per_channel:
        X = X - X.mean(axis=(1, 2), keepdims=True)
        X = X / X.std(axis=(1, 2), keepdims=True)
    X = X - X.mean()
    return X / X.std()


def cut(signal, length):
    """Return a signal (channels, samples) as channel x time x bin with bins of `length` samples."""
    n_bins = signal.shape[1] // length
    return signal[:, : n_bins * length].reshape(len(signal), n_bins, length).transpose(0, 2, 1)


def _food_tracking():
    """Return channels 1-63 (channel 64 is bad) at 250 Hz, re-referenced to their common average."""
    with np.load(data_folder() / "neurotycho_food_tracking" / "food_tracking_B_64ch_250Hz_300s.npz") as file:
        signal = file["data"][:63].astype(float)
    return signal - signal.mean(axis=0)


def ecog_raw():
    """Return voltage, channel x time x bin, (63, 150, 100)."""
    return standardize(cut(scipy.signal.decimate(_food_tracking(), 5, ftype="fir", axis=1), 150))


def ecog_envelope():
    """Return the log envelope of the high-gamma band, channel x time x bin, (63, 30, 100)."""
    sections = scipy.signal.butter(4, (60, 110), btype="bandpass", fs=250, output="sos")
    band = scipy.signal.sosfiltfilt(sections, _food_tracking(), axis=1)
    envelope = np.abs(scipy.signal.hilbert(band, axis=1)).reshape(63, -1, 25).mean(axis=2)
    return standardize(cut(np.log(envelope), 30))


def anesthesia():
    """Return log power centered over states, channel x frequency x state, (127, 199, 5)."""
    names = ("0_EyesOpen", "1_EyesClosed", "2_Anes", "3_RecEyesClosed", "4_RecEyesOpen")
    spectra = []
    for name in names:
        with np.load(data_folder() / "spectralca_nt" / f"nt_lfpca{name}.npz") as file:
            spectra.append(np.log10(file["psd"][:, 1:]))
    X = np.delete(np.stack(spectra, axis=2), 62, axis=0)  # channel 63 is corrupt in the source
    return standardize(X - X.mean(axis=2, keepdims=True), per_channel=False)


def eeg_raw():
    """Return voltage, channel x time x bin, (64, 150, 30)."""
    parts = []
    for start in (180, 3070, 4710):
        path = data_folder() / "ness_propofol_eeg" / f"eeganes07laplac250_detrend_all_t{start}.mat"
        signal = scipy.signal.decimate(scipy.io.loadmat(path)["y"].T, 5, ftype="fir", axis=1)
        parts.append(cut(signal, 150))
    return standardize(np.concatenate(parts, axis=2))


def spikes(n_trials=300):
    """Return spike counts, unit x time x trial, (30, 100, 300)."""
    with np.load(data_folder() / "affinewarp_spikes" / "motor_ctx_data.npz") as file:
        units, trials, times = file["neuron_ids"], file["trial_ids"], file["spiketimes"]
    keep = trials < n_trials
    X = np.zeros((units.max() + 1, 100, n_trials))
    np.add.at(X, (units[keep], np.minimum(times[keep] // 20, 99).astype(int), trials[keep]), 1)
    return standardize(X, per_channel=False)


def eeglab_stimuli():
    """Return the recording, and onset and reaction time, in seconds, of each stimulus that a response follows."""
    from boolcp import open_tensor, prepare

    X = open_tensor(data_folder() / "eeglab_sample" / "eeglab_data.set")
    events = prepare.list_events(X)
    onset, name = np.asarray(events["onset"], dtype=float), np.asarray(events["condition"])
    followed = np.flatnonzero((name[:-1] == "square") & (name[1:] == "rt"))
    return X, onset[followed], onset[followed + 1] - onset[followed]


def eeglab_epochs():
    """Return voltage around the stimuli that a response follows, channel x time x trial, (32, 38, 74)."""
    from boolcp import prepare

    X, onset, _ = eeglab_stimuli()
    X = prepare.cut_trials(prepare.resample(X, 32), (-200, 1000), events={"onset": onset})
    X = np.asarray(prepare.baseline(X, -0.2, 0.0), dtype=float)
    return standardize(X[:, ~np.isnan(X).any(axis=(0, 2))])  # half of the trials end one sample earlier


def inside(package, path):
    """Return the place of a file in an installed package, which is not imported; None without the package."""
    found = importlib.util.find_spec(package)
    return None if found is None else Path(found.submodule_search_locations[0]) / path


def standard(X):
    """Return X with mean zero and variance one, missing entries at the mean."""
    X = np.asarray(X, dtype=float)
    return np.nan_to_num((X - np.nanmean(X)) / np.nanstd(X))


def digits():
    """Return pictures of digits, picture x row x column, (400, 8, 8)."""
    from sklearn.datasets import load_digits

    return standard(load_digits().images[:400])


def faces():
    """Return pictures, the first half of which are faces, picture x row x column, (200, 25, 25)."""
    return standard(np.load(inside("skimage", "data/lfw_subset.npy")))


def of_tensorly(name):
    """Return a function that reads a tensor of TensorLy."""

    def load():
        import tensorly.datasets

        return standard(getattr(tensorly.datasets, f"load_{name}")().tensor)

    return load


def pines():
    """Return a hyperspectral picture, row x column x band, (73, 73, 200)."""
    return of_tensorly("indian_pines")()[::2, ::2]


def trips():
    """Return trips by bicycle, counts, station x year x month x weekday x hour, (270, 2, 12, 7, 24)."""
    import xarray

    with xarray.open_dataset(inside("tlviz", "datasets/oslo_bike.nc4"), engine="scipy") as found:
        return found["Bike trips"].values


def bikes():
    """Return trips by bicycle, standardized."""
    return standard(trips())


def days():
    """Return trips by bicycle on each day of the week in each month, standardized, day x station x hour (168, 270, 24).

    The days of a week stand together, those of a month after those of the month before.
    """
    X = trips()
    return standard(np.moveaxis(X.reshape(len(X), -1, X.shape[-1]), 1, 0))


def climate(file, name):
    """Return a function that reads anomalies of winters, year x latitude x longitude, in the units of the places."""

    def load():
        import xarray

        path = inside("eofs", f"examples/example_data/{file}")
        with xarray.open_dataset(path, engine="scipy", decode_times=False) as found:
            X = found[name].values.squeeze()
        X = X - X.mean(axis=0)
        return standard(X / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0))

    return load


LOADERS = {
    "ecog_raw": ecog_raw,
    "ecog_envelope": ecog_envelope,
    "anesthesia": anesthesia,
    "eeg_raw": eeg_raw,
    "spikes": spikes,
    "eeglab_epochs": eeglab_epochs,
}
WHEELS = {
    "digits": digits,
    "faces": faces,
    "il2": of_tensorly("IL2data"),
    "serology": of_tensorly("covid19_serology"),
    "pines": pines,
    "kinetic": of_tensorly("kinetic"),
    "bikes": bikes,
    "sst": climate("sst_ndjfm_anom.nc", "sst"),
    "heights": climate("hgt_djf.nc", "z"),
}
NEEDED = {"faces": "skimage", "bikes": "tlviz", "sst": "eofs", "heights": "eofs"}


def available():
    """Return the names of the tensors that can be read here."""
    recordings = list(LOADERS) if missing_reason() is None else []
    return recordings + [name for name in WHEELS if name not in NEEDED or inside(NEEDED[name], "") is not None]


def load(name):
    """Return a tensor by its name."""
    return (LOADERS | WHEELS)[name]()
