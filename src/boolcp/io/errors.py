"""The error of a file that cannot be used."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class FileError(ValueError):
    """A file that cannot be read or written: the message names it, says what is wrong and what to do.

    Examples
    --------
    >>> str(boolcp.io.FileError("data.npy", "the file is empty", "Copy it again."))
    'data.npy: the file is empty. Copy it again.'
    """

    def __init__(self, path: Any, problem: str, advice: str) -> None:
        self.path, self.problem, self.advice = str(path), str(problem), str(advice)
        super().__init__(" ".join(f"{self.path}: {self.problem}. {self.advice}".split()))

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.problem, self.advice)


def check_exists(path: Any) -> Any:
    """Return the path, or raise a FileError that says why it cannot be opened."""
    path = Path(path).expanduser()
    try:
        if path.is_dir():
            next(path.iterdir(), None)
            return path
        with path.open("rb") as file:
            is_empty = not file.read(1)
    except FileNotFoundError:
        raise FileError(path, "there is no such file", "Check the name and the folder.") from None
    except OSError as error:
        raise _of_system(path, error) from None
    if is_empty:
        raise FileError(path, "the file is empty (0 bytes)", "Copy or download it again.")
    return path


@contextmanager
def reading(path: Any, kind: str) -> Iterator[Any]:
    """Turn any exception that a library raises on a damaged file into a FileError."""
    try:
        yield
    except (FileError, ImportError):
        raise
    except PermissionError as error:
        raise _of_system(path, error) from None
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:200].rstrip(".") or type(error).__name__
        advice = "It may be truncated or damaged: copy or export it again."
        raise FileError(path, f"not a readable {kind} ({reason})", advice) from error


@contextmanager
def refusing(path: Any, advice: str) -> Iterator[Any]:
    """Turn the error of a step that the content of a file does not suit into a FileError."""
    try:
        yield
    except FileError:
        raise
    except (TypeError, ValueError) as error:
        raise FileError(path, str(error).rstrip("."), advice) from error


@contextmanager
def writing(path: Any) -> Iterator[Any]:
    """Turn the system's error for a failed write into a FileError."""
    try:
        yield
    except OSError as error:
        raise _of_system(path, error) from error


def _of_system(path: Any, error: OSError) -> FileError:
    if error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)):
        return FileError(path, "no space is left on the disk", "Free some, or write elsewhere.")
    if isinstance(error, PermissionError):
        return FileError(path, "permission denied", "Ask its owner, or use a folder of your own.")
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return FileError(path, "its folder does not exist", "Create it first.")
    return FileError(path, f"cannot be opened ({error.strerror or error})", "Check the file and its folder.")
