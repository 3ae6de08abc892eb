"""Files that would exhaust memory, and unsafe zip archives: they are refused before they are read."""

import math
import zipfile
from pathlib import Path
from typing import Any

from boolcp.io.errors import FileError, reading
from boolcp.memory import available_memory, memory_text

LARGE, LARGEST_RATIO = 2**30, 250  # bytes unpacked, and how many times the bytes packed: recordings are far below


def expansion(what: str, packed: int, unpacked: int, largest_ratio: int = LARGEST_RATIO) -> str | None:
    """Return the problem if a part of a file is large but takes far fewer bytes in the file, else None."""
    if unpacked <= LARGE or unpacked <= largest_ratio * packed:
        return None
    return f"{what} would grow from {memory_text(packed)} in the file to {memory_text(unpacked)}"


def refuse_expansion(path: Path | str, what: str, packed: int, unpacked: int) -> None:
    """Raise a FileError if a part of a file is large but takes far fewer bytes in the file."""
    problem = expansion(what, packed, unpacked)
    if problem is not None:
        advice = "Do not use it unless you trust its source; if you do, open it yourself and pass the array."
        raise FileError(path, f"refused: {problem}", advice)


def refuse_too_large(path: Path | str, what: str, n_bytes: int, advice: str) -> None:
    """Raise a FileError if the array to be read does not fit into the available memory."""
    free = available_memory()
    if n_bytes > free:
        sizes = f"needs {memory_text(n_bytes)} of memory, but only {memory_text(free)} are available"
        raise FileError(path, f"{what} {sizes}", advice)


def refuse_missing_bytes(path: Path | str, kind: str, what: str, claimed: int, found: int) -> None:
    """Raise a FileError if a header claims more bytes than follow it."""
    if claimed > found:
        problem = f"the header of {what} claims {memory_text(claimed)}, but {memory_text(max(found, 0))} follow"
        advice = "It may be truncated or damaged: copy or export it again."
        raise FileError(path, f"not a readable {kind} ({problem})", advice)


def n_bytes(shape: Any, dtype: Any) -> int:
    """Return the exact number of bytes of an array, even if its header claims an absurd size."""
    return math.prod(map(int, shape)) * int(dtype.itemsize)


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
            raise FileError(path, f"refused: its member {member.filename!r} leads out of the zip", "Do not unpack it.")
        if member.flag_bits & 1:
            raise FileError(path, f"its member {member.filename!r} is encrypted", "Unpack it with its password first.")
        packed = min(member.compress_size, size)  # it may claim more than there is
        refuse_expansion(path, f"its member {member.filename!r}", packed, member.file_size)
    refuse_expansion(path, "its content", size, sum(member.file_size for member in members))
