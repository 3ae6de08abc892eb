"""EEG and MEG files, through MNE: epochs, averages, or continuous recordings."""

import gzip
import os
import re
from pathlib import Path
from typing import Any

from boolcp.io.arrays import list_variables, read_variable
from boolcp.io.errors import FileError, reading
from boolcp.io.limits import refuse_expansion
from boolcp.system import load_extra

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
        recording = _open(mne, path)
        parts = getattr(recording, "_raw", None) or ()  # of split epochs
        files = *getattr(recording, "filenames", ()), *(part.fid.name for part in parts if hasattr(part, "fid"))
        for file in files:
            _refuse_link(path, str(file or ""))
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


def _refuse_link(path: Path, link: str) -> None:
    """Raise a FileError if a header names a file in a different folder."""
    header, name = os.path.abspath(path), link.strip().replace("\\", "/")
    folder = os.path.dirname(os.path.abspath(os.path.join(os.path.dirname(header), name)))
    if name and folder not in (header, os.path.dirname(header)):
        problem = f"refused: it refers to {link.strip()!r}, in a different folder"
        raise FileError(path, problem, "If you trust it, put all its files into one folder.")
