"""EEG and MEG files, through MNE: epochs, or continuous recordings."""

from boolcp.extras import load_extra
from boolcp.io.errors import reading


def read_mne(path):
    """Return epochs as a DataArray channel x time x trial, or a continuous recording as channel x time."""
    from boolcp.interop import from_mne

    mne = load_extra("mne", "mne")
    with reading(path, f"{path.suffix} file"), mne.use_log_level("ERROR"):
        return from_mne(_open(mne, path))


def _open(mne, path):
    name = path.name.lower()
    if name.endswith((".fif", ".fif.gz")):
        stem = name.removesuffix(".gz").removesuffix(".fif")
        if stem.endswith(("-epo", "_epo")):
            return mne.read_epochs(path, preload=False)
        return mne.io.read_raw_fif(path, on_split_missing="ignore")
    if name.endswith(".set"):
        try:
            return mne.io.read_raw_eeglab(path)
        except TypeError:  # MNE says in this way that the file holds epochs
            return mne.read_epochs_eeglab(path)
    return mne.io.read_raw(path)
