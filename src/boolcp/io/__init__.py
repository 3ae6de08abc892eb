"""Data and result files, which are never trusted and never run as code.

A path enters, with whatever the file itself does not say. A labelled array leaves `open_tensor`, a decomposition leaves
`load`, and `save` writes a file completely or not at all.
"""

from boolcp.io.coordinates import read_table
from boolcp.io.errors import FileError
from boolcp.io.frames import from_dataframe
from boolcp.io.reading import open_tensor
from boolcp.io.results import load, load_provenance, save

__all__ = ["FileError", "from_dataframe", "load", "load_provenance", "open_tensor", "read_table", "save"]
