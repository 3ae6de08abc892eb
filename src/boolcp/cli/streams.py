"""Output streams that never cost a result: if the reader is gone, what is written to them is dropped."""

import os
import sys
from typing import Any


class Patient:
    """A stream that drops what it cannot write because its other end is closed or full; `error` then says why."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.error = stream, ""

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            return self.stream.write(text)
        except OSError as error:
            self._drop(error)
            return len(text)

    def flush(self) -> None:
        """Flush the buffer, or drop it."""
        try:
            self.stream.flush()
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            self.error = error.strerror or str(error)
        point_nowhere(self.stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def point_nowhere(descriptor: int) -> None:
    """Point a file descriptor to the null device."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def guard_streams() -> None:
    """Make standard output and error drop what they cannot write.

    If a process is started without one of them (`2>&-`), the next file it opens gets the number of that stream, and
    messages would go into this file: the number is therefore taken first.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            point_nowhere(descriptor)
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", closefd=False))
    sys.stdout, sys.stderr = Patient(sys.stdout), Patient(sys.stderr)
