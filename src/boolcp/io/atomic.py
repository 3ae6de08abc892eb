"""Files that are either written completely or not at all."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

from boolcp.io.errors import FileError, writing


@contextmanager
def replacing(path, *, overwrite=False, is_durable=True, temporary=None):
    """Give a temporary path beside `path`; what is written there takes its place at the end, unless something fails.

    A file that is written again and again names its `temporary`, so that a killed process leaves no more than one.
    """
    path = Path(path)
    check_free(path, overwrite=overwrite)
    with writing(path):
        name = temporary
        if temporary is None:
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=path.suffix)
            os.close(descriptor)
        try:
            yield Path(name)
            if is_durable:  # on the disk before the name points to it
                with open(name, "rb") as file:
                    os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())  # mkstemp makes files that only their owner may read
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def write_bytes(path, content, *, overwrite=False, is_durable=True):
    """Write bytes, completely or not at all."""
    with replacing(path, overwrite=overwrite, is_durable=is_durable) as temporary:
        temporary.write_bytes(content)


def write_text(path, text, *, overwrite=False):
    """Write text as UTF-8, completely or not at all."""
    write_bytes(path, text.encode(), overwrite=overwrite)


def check_free(path, *, overwrite=False):
    """Raise a FileError if `path` exists and may not be overwritten, or is a folder."""
    path = Path(path)
    if path.is_dir():
        raise FileError(path, "is a folder", "Name a file in it.")
    if path.exists() and not overwrite:
        raise FileError(path, "exists already", "Choose another name, or allow overwriting (overwrite=True, --force).")


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
