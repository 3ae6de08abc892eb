"""Output of the commands: results on standard output, as text or JSON, messages on standard error."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EVERY = 10.0  # seconds between two lines about long work


def answer(text: str, values: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a result: its text, or its values for scripts."""
    print(json.dumps(plain(values), indent=2) if as_json else text, flush=True)


def note(text: str) -> None:
    """Print a message about the work in progress."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def at_work(every: float = EVERY) -> Iterator[None]:
    """Print a line about the work in progress every ten seconds, where no terminal shows progress bars."""
    start, is_over = time.monotonic(), threading.Event()

    def tell() -> None:
        while not is_over.wait(every):
            watch = sys.modules.get("boolcp.fit.watch")  # nothing is imported for a message
            note(f"{time.monotonic() - start:.0f} s: {getattr(watch, 'PRESENT', 'at work')}")

    thread = threading.Thread(target=tell, daemon=True)
    if not sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        if thread.is_alive():
            thread.join()  # no line comes later


def plain(value: Any) -> Any:
    """Return a value ready for JSON; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # of numpy
        return plain(value.tolist())
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def atom_rows(W: Any) -> list[dict[str, Any]]:
    """Return the table of atoms, one dict for each."""
    return W.to_dataframe().reset_index().to_dict("records")


class Patient:
    """A stream that drops what it cannot write because its other end is closed or full; `error` then says why."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.error = stream, ""

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        self._try(self.stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flush the buffer, or drop it."""
        self._try(self.stream.flush)

    def _try(self, act: Callable[..., Any], *texts: str) -> None:
        try:
            act(*texts)
        except OSError as error:
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

    A file opened by a process that was started without one of them (`2>&-`) gets its number, and messages would go
    into that file: the number is therefore taken first.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            point_nowhere(descriptor)
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", closefd=False))
    sys.stdout, sys.stderr = Patient(sys.stdout), Patient(sys.stderr)
