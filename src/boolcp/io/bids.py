"""Recordings in a BIDS folder, through mne-bids, with bad channels, positions and events from their tables."""

import warnings
from pathlib import Path
from typing import Any

from boolcp.extras import load_extra
from boolcp.io.errors import ChoiceError, FileError, reading
from boolcp.io.mne_files import refuse_links, refuse_other_folders
from boolcp.io.tables import read_table
from boolcp.prepare import set_events

DATATYPES = ("eeg", "ieeg", "meg")

BIDSPath = Any
DataArray = Any


def read_bids(path: Path, *, variable: str | None = None) -> DataArray:
    """Return a recording of a BIDS folder as channel x time in microvolts, with its events.

    Parameters
    ----------
    path : path
        The root folder of the data set.
    variable : str, optional
        Which recording: a part of its name, such as "sub-01" or "sub-01_task-rest", that no other name contains.
    """
    from boolcp.interop import from_mne

    mne = load_extra("mne", "mne")
    chosen = choose(path, variable)
    refuse_links(Path(chosen.fpath))
    with reading(chosen.fpath, "BIDS recording"), mne.use_log_level("ERROR"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about missing sidecar files
        recording = load_extra("mne_bids", "bids").read_raw_bids(chosen, verbose="ERROR")
        refuse_other_folders(chosen.fpath, recording)
        X = from_mne(recording)
    events = chosen.copy().update(suffix="events", extension=".tsv").fpath
    return set_events(X, read_table(events)) if events.is_file() else X


def choose(path: Path, variable: str | None = None) -> BIDSPath:
    """Return the one recording whose name contains a text."""
    known = list_recordings(path)
    wanted = set() if variable is None else set(variable.split("_"))
    found = [name for name in known if variable in (None, name) or wanted <= set(name.split("_"))]
    if len(found) == 1:
        return known[found[0]]
    listing = ", ".join(known) if len(known) <= 12 else f"{', '.join(list(known)[:12])} and {len(known) - 12} more"
    if not found:
        raise FileError(path, f"has no recording {variable!r}", f"It holds {listing or 'none'}.")
    raise ChoiceError(
        path, f"holds {len(found)} recordings", f"Choose one with variable= (--variable): {listing}.", found
    )


def list_recordings(path: Path) -> dict[str, BIDSPath]:
    """Return the recordings of a BIDS folder by name."""
    mne_bids = load_extra("mne_bids", "bids")
    with reading(path, "BIDS folder"):
        known = mne_bids.config.ALLOWED_DATATYPE_EXTENSIONS
        found = mne_bids.find_matching_paths(path, datatypes=list(DATATYPES), suffixes=list(DATATYPES))
        found = [one for one in sorted(found, key=str) if one.extension in known[one.datatype]]
        return {one.basename.rpartition(".")[0]: one for one in found}
