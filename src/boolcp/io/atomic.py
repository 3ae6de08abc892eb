"""Files that are written completely or not at all, and locks against two processes writing the same file."""

import os
import secrets
import socket
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from boolcp.checks import BoolcpWarning
from boolcp.io.errors import FileError, writing

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replacing(path: Any, *, overwrite: bool = False, temporary: str | Path | None = None) -> Iterator[Path]:
    """Give the path of a new, empty file beside `path`; it replaces `path` at the end, unless something fails.

    A link of that name is never followed. A killed process leaves at most one `temporary`, which the next one removes.
    """
    path = Path(path)
    check_free(path, overwrite=overwrite)
    with writing(path):
        name = Path(temporary or path.with_name(f".{path.stem}.{secrets.token_hex(8)}{path.suffix}"))
        name.unlink(missing_ok=True)  # of a link, only the link is removed
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            yield name
            with open(name, "rb") as file:
                os.fsync(file.fileno())  # on the disk before the name points to it
            os.chmod(name, _permissions(path))
            check_free(path, overwrite=overwrite)  # another process may have been faster
            os.replace(name, path)
        except BaseException:
            name.unlink(missing_ok=True)
            raise


def write_text(path: Any, text: str | bytes, *, overwrite: bool = False) -> None:
    """Write text as UTF-8, or bytes, completely or not at all."""
    with replacing(path, overwrite=overwrite) as temporary:
        temporary.write_bytes(text if isinstance(text, bytes) else text.encode())


def check_free(path: Any, *, overwrite: bool = False) -> None:
    """Raise a FileError if `path` is a folder, or exists and may not be overwritten."""
    if os.path.isdir(path):
        raise FileError(path, "is a folder", "Name a file in it.")
    if os.path.lexists(path) and not overwrite:  # a link counts, even if it leads nowhere
        raise FileError(path, "exists already", "Choose a different name, or overwrite it (overwrite=True, --force).")


@contextmanager
def locked(path: Any) -> Iterator[None]:
    """Keep other processes from `path`: who tries to lock it gets a FileError. A killed process leaves no lock."""
    path = Path(path)
    name = path.with_name(f".{path.name}.lock")
    with writing(path):
        file = _open_locked(path, name)
    try:
        yield
    finally:
        with suppress(OSError):  # a leftover file locks nothing: only a held lock does
            name.unlink()
        file.close()


def _permissions(path: Path) -> int:
    """Return the permissions of the file that is replaced, or those of a new file."""
    with suppress(FileNotFoundError):
        if stat.S_ISREG(mode := os.lstat(path).st_mode):
            return stat.S_IMODE(mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _open_locked(path: Path, name: Path) -> TextIO:
    """Return the lock file, open and locked, with its owner's process number in it."""
    flags = os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
    while True:
        file = os.fdopen(os.open(name, flags, 0o600), "r+", encoding="utf-8", errors="replace")
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                owner = file.read(200) or "a process that has just started"
            advice = "Wait until that run ends, or choose a different file."
            raise FileError(path, f"is in use by another run ({owner})", advice) from None
        except (OSError, AttributeError):  # some network disks, and Windows
            text = "This disk does not support locks: make sure that no other process uses the file."
            warnings.warn(text, BoolcpWarning, stacklevel=4)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(name)):
                file.truncate(0)
                file.write(f"process {os.getpid()} on {socket.gethostname()}")
                file.flush()
                return file
        file.close()  # its owner has just removed it: a lock on it would keep nobody away
