"""Zip archives that are safe to read."""

import zipfile

from boolcp.io.errors import FileError, reading

LARGE, LARGEST_RATIO = 2**30, 1000  # bytes unpacked, and how much larger than packed: a recording is far below


def refuse_unsafe(path):
    """Raise a FileError if a zip is damaged, empty, encrypted, made to overflow, or has names that lead out of it."""
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
        if member.file_size > LARGE and member.file_size > LARGEST_RATIO * member.compress_size:
            sizes = f"{member.compress_size} to {member.file_size} bytes"
            problem = f"refused: its member {member.filename!r} would grow from {sizes}"
            raise FileError(path, problem, "Do not trust it.")
