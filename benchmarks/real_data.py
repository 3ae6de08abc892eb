"""Six real tensors, standardized, from the sample recordings in the folder named by BOOLCP_DATA.

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
"""

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


def eeglab_epochs():
    """Return voltage around the stimuli that a response follows, channel x time x trial, (32, 38, 74)."""
    from boolcp import open_tensor, prepare

    X = open_tensor(data_folder() / "eeglab_sample" / "eeglab_data.set")
    events = prepare.list_events(X)
    onset, name = np.asarray(events["onset"], dtype=float), np.asarray(events["condition"])
    followed = np.flatnonzero((name[:-1] == "square") & (name[1:] == "rt"))
    X = prepare.cut_trials(prepare.resample(X, 32), (-200, 1000), events={"onset": onset[followed]})
    X = np.asarray(prepare.baseline(X, -0.2, 0.0), dtype=float)
    return standardize(X[:, ~np.isnan(X).any(axis=(0, 2))])  # half of the trials end one sample earlier


LOADERS = {
    "ecog_raw": ecog_raw,
    "ecog_envelope": ecog_envelope,
    "anesthesia": anesthesia,
    "eeg_raw": eeg_raw,
    "spikes": spikes,
    "eeglab_epochs": eeglab_epochs,
}
