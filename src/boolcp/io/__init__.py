"""Files in and out: open_tensor for data of many formats, save and load for results."""

from boolcp.io.errors import FileError
from boolcp.io.reading import open_tensor
from boolcp.io.results import load, load_provenance, save
from boolcp.io.tables import read_table

__all__ = ["FileError", "load", "load_provenance", "open_tensor", "read_table", "save"]
