"""Available memory, and an error with an estimate before an allocation that cannot fit."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
GROUP_FILES = ("memory.max", "memory.current", "")  # limit, use, and the prefix of its parts
OLD_GROUP_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


def read_memory(size: float | str | None) -> int:
    """Return a size in bytes from a number or a text such as "3GB", "500 MiB"; None is the available memory.

    Examples
    --------
    >>> from boolcp.memory import read_memory
    >>> read_memory("1.5GB"), read_memory("2 KiB"), read_memory(100)
    (1500000000, 2048, 100)
    """
    if size is None:
        return available_memory()
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?i?)b?\s*", size.lower())
        if match is None or match[2] not in UNITS:
            raise ValueError(f'max_memory must be a number of bytes or a text such as "3GB" or "500MiB", got {size!r}.')
        size = float(match[1]) * UNITS[match[2]]
    elif isinstance(size, bool) or (not hasattr(size, "__index__") and not isinstance(size, float)):
        raise TypeError(f'max_memory must be None, a number of bytes or a text such as "3GB", got {size!r}.')
    if not size > 0 or size == float("inf"):
        raise ValueError(f"max_memory must be above 0 and finite, got {size!r}.")
    return int(size)


def float_bytes(shape: Sequence[int], dtype: Any) -> int:
    """Return the bytes of an array in computations: float32 stays, all other numbers become float64.

    Examples
    --------
    >>> from boolcp.memory import float_bytes
    >>> float_bytes((10, 10), "int16"), float_bytes((10, 10), "float32")
    (800, 400)
    """
    return math.prod(shape) * (4 if str(dtype) == "float32" else 8)


def available_memory() -> int:
    """Return the bytes that a process can still allocate: of the machine, or of its control groups if that is less."""
    try:
        import psutil

        free = psutil.virtual_memory().available
    except ImportError:  # of the machine as a whole
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(int(min(free, group_memory())), 0)


def group_memory(root: str | Path = "/sys/fs/cgroup", membership: str | Path = "/proc/self/cgroup") -> float:
    """Return the bytes that the control groups of this process, of version 2 or 1, leave; infinity without a limit.

    A container has one, and so has a job of a scheduler, nested in others whose limits also apply.
    """
    try:
        lines = Path(membership).read_text().splitlines()
    except OSError:  # not Linux
        return math.inf
    free: float = math.inf
    for line in lines:
        kinds, path = line.split(":", 2)[1:]
        if kinds in ("", "memory"):
            base, files = (Path(root), GROUP_FILES) if kinds == "" else (Path(root, "memory"), OLD_GROUP_FILES)
            own = PurePosixPath(path)
            free = min(free, *(_left(base / str(group).lstrip("/"), *files) for group in (own, *own.parents)))
    return free


def _left(folder: Path, limit: str, used: str, prefix: str) -> float:
    """Return the bytes that one group leaves; cached files do not count, as on the machine as a whole."""
    try:
        size, taken = int((folder / limit).read_text()), int((folder / used).read_text())
        known = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        cached = sum(int(known.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))
    except (OSError, ValueError):  # no such group, or one without a limit
        return math.inf
    return size - taken + cached


def memory_text(n_bytes: float) -> str:
    """Return a number of bytes as text.

    Examples
    --------
    >>> from boolcp.memory import memory_text
    >>> memory_text(2_500_000_000), memory_text(800)
    ('2.5 GB', '800 bytes')
    """
    for unit, size in (("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{int(n_bytes)} bytes"


def check_memory(needs: Mapping[str, float], limit: float, advice: str, *, limit_name: str = "max_memory") -> None:
    """Raise a MemoryError with the estimate if what is needed, bytes by name, is more than the limit."""
    total = sum(needs.values())
    if total <= limit:
        return
    parts = sorted(needs.items(), key=lambda item: -item[1])
    listing = ", ".join(f"{name} {memory_text(size)}" for name, size in parts if size > 0.01 * total)
    raise MemoryError(
        f"This fit needs about {memory_text(total)} of memory ({listing}), but {limit_name} is {memory_text(limit)}. "
        f"{advice}"
    )
