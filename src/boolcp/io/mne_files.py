"""EEG and MEG files, through MNE: epochs, averages, or continuous recordings."""

import gzip
import os
import re
from pathlib import Path
from typing import Any

from boolcp.extras import load_extra
from boolcp.io.errors import FileError, reading
from boolcp.io.limits import refuse_expansion
from boolcp.io.matlab import check_mat, read_variable

CHUNK = 2**20
HEADERS = (".vhdr", ".ahdr")  # of BrainVision recordings
LINKS = re.compile(r"^\s*(?:DataFile|MarkerFile)\s*[=:](.*)$", re.IGNORECASE | re.MULTILINE)


def read_mne(path: Path) -> Any:
    """Return epochs as channel x time x trial, averages with a mode "condition", a recording as channel x time."""
    from boolcp.interop import from_mne

    mne, name = load_extra("mne", "mne"), path.name.lower()
    if name.endswith(".gz"):
        _refuse_expansion(path)
    if name.endswith(".set"):
        check_mat(path)  # EEGLAB writes MATLAB files
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
            _refuse_link(path, _eeglab_link(path))
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
    if path.suffix.lower() in HEADERS:
        with reading(path, f"{path.suffix} file"):
            text = path.read_bytes().decode("latin-1")
        for link in LINKS.findall(text):
            _refuse_link(path, link)


def _eeglab_link(path: Path) -> str:
    """Return the name of the file that holds the data of EEGLAB epochs; nothing if they are in the .set file."""
    try:
        found = read_variable(path, "EEG.data")
    except FileError:  # the fields of EEG stand alone
        found = read_variable(path, "data")
    return found if isinstance(found, str) else ""


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
        raise FileError(path, problem, "Do not trust it; if you do, put all its files into one folder.")
