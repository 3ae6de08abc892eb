"""Zip archives that are safe to read."""

import zipfile

from boolcp.io.errors import FileError, reading


def refuse_unsafe(path):
    """Raise a FileError if a zip is damaged, empty, encrypted, or has names that lead out of it."""
    with reading(path, ".zip file"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if not members:
        raise FileError(path, "the zip is empty", "Download it again.")
    for member in members:
        name = member.filename.replace("\\", "/")
        if name.startswith("/") or ".." in name.split("/") or ":" in name.split("/")[0]:
            raise FileError(path, f"refused: its member {member.filename!r} leads out of the zip", "Do not trust it.")
        if member.flag_bits & 1:
            raise FileError(path, f"its member {member.filename!r} is encrypted", "Unpack it with its password.")
