"""Zip archives that are safe to read."""

import zipfile
from pathlib import Path

from boolcp.io.errors import FileError, reading
from boolcp.io.limits import refuse_expansion


def refuse_unsafe(path: Path, kind: str = ".zip file") -> None:
    """Raise a FileError if a zip is damaged, empty, encrypted, a zip bomb, or has names that lead out of it."""
    with reading(path, kind), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if not members:
        raise FileError(path, "the zip is empty", "Download it again.")
    size = path.stat().st_size
    for member in members:
        name = member.filename.replace("\\", "/")
        if name.startswith("/") or ".." in name.split("/") or ":" in name.split("/")[0]:
            raise FileError(path, f"refused: its member {member.filename!r} leads out of the zip", "Do not trust it.")
        if member.flag_bits & 1:
            raise FileError(path, f"its member {member.filename!r} is encrypted", "Unpack it with its password first.")
        packed = min(member.compress_size, size)  # it may claim more than there is
        refuse_expansion(path, f"its member {member.filename!r}", packed, member.file_size)
    refuse_expansion(path, "its content", size, sum(member.file_size for member in members))
