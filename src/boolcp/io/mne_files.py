"""EEG and MEG files, through MNE: epochs, averages, or continuous recordings, alone or in a BIDS folder."""

import gzip
import os
import re
import warnings
from pathlib import Path
from typing import Any

from boolcp.io.arrays import list_variables, read_variable
from boolcp.io.coordinates import read_table
from boolcp.io.errors import FileError, reading
from boolcp.io.limits import refuse_expansion
from boolcp.prepare import set_events
from boolcp.system import load_extra

CHUNK = 2**20
LINKS = re.compile(r"^\s*(?:DataFile|MarkerFile)\s*[=:](.*)$", re.IGNORECASE | re.MULTILINE)
DATATYPES = ("eeg", "ieeg", "meg")

BIDSPath = Any
DataArray = Any


def read_mne(path: Path) -> Any:
    """Return epochs as channel x time x trial, averages with a mode "condition", a recording as channel x time."""
    from boolcp.interop import from_mne

    mne, name = load_extra("mne", "mne"), path.name.lower()
    if name.endswith(".gz"):
        _refuse_expansion(path)
    if name.endswith(".set"):
        list_variables(path)  # EEGLAB writes MATLAB files
    refuse_links(path)
    with reading(path, f"{path.suffix} file"), mne.use_log_level("ERROR"):
        recording = _open(mne, path)
        refuse_other_folders(path, recording)
        return from_mne(recording)


def _open(mne: Any, path: Path) -> Any:
    name = path.name.lower()
    if name.endswith((".fif", ".fif.gz")):
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


def _refuse_expansion(path: Path) -> None:
    """Raise a FileError if a compressed file would exhaust memory; it is decompressed once and not kept."""
    packed, unpacked = path.stat().st_size, 0
    with reading(path, f"{path.suffix} file"), gzip.open(path) as file:
        while content := file.read(CHUNK):
            unpacked += len(content)
            refuse_expansion(path, "its content", packed, unpacked)


def refuse_links(path: Path) -> None:
    """Raise a FileError if a BrainVision header names a file of data or markers in a different folder."""
    if path.suffix.lower() in (".vhdr", ".ahdr"):
        with reading(path, f"{path.suffix} file"):
            text = path.read_bytes().decode("latin-1")
        for link in LINKS.findall(text):
            _refuse_link(path, link)


def refuse_other_folders(path: Path, recording: Any) -> None:
    """Raise a FileError if the header of a recording names a data file that is not in the same folder or below it."""
    parts = getattr(recording, "_raw", None) or ()  # of split epochs
    for file in (*getattr(recording, "filenames", ()), *(part.fid.name for part in parts if hasattr(part, "fid"))):
        if file is not None:
            _refuse_link(path, str(file))


def _refuse_link(path: Path, link: str) -> None:
    header, name = os.path.abspath(path), link.strip().replace("\\", "/")
    folder = os.path.dirname(os.path.abspath(os.path.join(os.path.dirname(header), name)))
    if name and folder not in (header, os.path.dirname(header)):
        problem = f"refused: it refers to {link.strip()!r}, in a different folder"
        raise FileError(path, problem, "If you trust it, put all its files into one folder.")


def read_bids(chosen: BIDSPath) -> DataArray:
    """Return a recording of a BIDS folder as channel x time in microvolts, with its events."""
    from boolcp.interop import from_mne

    mne = load_extra("mne", "mne")
    refuse_links(Path(chosen.fpath))
    with reading(chosen.fpath, "BIDS recording"), mne.use_log_level("ERROR"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about missing sidecar files
        recording = load_extra("mne_bids", "bids").read_raw_bids(chosen, verbose="ERROR")
        refuse_other_folders(chosen.fpath, recording)
        X = from_mne(recording)
    events = chosen.copy().update(suffix="events", extension=".tsv").fpath
    return set_events(X, read_table(events)) if events.is_file() else X


def choose(path: Path, variable: str | None = None) -> BIDSPath:
    """Return the one recording whose name contains a text, such as "sub-01" or "sub-01_task-rest"."""
    known = list_recordings(path)
    wanted = set() if variable is None else set(variable.split("_"))
    found = [name for name in known if variable in (None, name) or wanted <= set(name.split("_"))]
    if len(found) == 1:
        return known[found[0]]
    listing = ", ".join(known) if len(known) <= 12 else f"{', '.join(list(known)[:12])} and {len(known) - 12} more"
    if not found:
        raise FileError(path, f"has no recording {variable!r}", f"It holds {listing or 'none'}.")
    raise FileError(path, f"holds {len(found)} recordings", f"Choose one with variable= (--variable): {listing}.")


def list_recordings(path: Path) -> dict[str, BIDSPath]:
    """Return the recordings of a BIDS folder by name."""
    mne_bids = load_extra("mne_bids", "bids")
    with reading(path, "BIDS folder"):
        known = mne_bids.config.ALLOWED_DATATYPE_EXTENSIONS
        found = mne_bids.find_matching_paths(path, datatypes=list(DATATYPES), suffixes=list(DATATYPES))
        found = [one for one in sorted(found, key=str) if one.extension in known[one.datatype]]
        return {one.basename.rpartition(".")[0]: one for one in found}
