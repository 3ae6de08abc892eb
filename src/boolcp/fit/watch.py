"""The one place that watches a fit: it saves each step, calls the callbacks, and stops when they ask for it."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np

from boolcp.checks import BoolcpWarning
from boolcp.fit.checkpoint import Checkpoint, get_random_state
from boolcp.fit.state import State
from boolcp.io.errors import FileError

INTERVAL = 1.0  # smallest number of seconds between two writes of a checkpoint within a stage; not tuned
SHARE = 0.1  # of the time of a stage that writing may take; not tuned


class Stop(KeyboardInterrupt):
    """Raised by a signal handler at any moment: end the pursuit and refine its atoms, or end with the best so far."""


@dataclass(frozen=True)
class Progress:
    """The progress of a fit, for its callback.

    Parameters
    ----------
    stage : {"pursuit", "search", "polish", "observed", "last", "ridge", "path"}
        Atoms of the pursuit; starts of the refinement; sweeps over the full data; sweeps over the observed entries;
        moves of the last search, where bits are uncertain; sweeps with a ridge; numbers of
        atoms of `fit_path`.
    step : int
        Number of steps done in this stage.
    n_steps : int or None
        Maximal number of steps, if known.
    relative_error : float
        |X - W| / |X| of the best estimate of the stage.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0)
    >>> seen = []
    >>> model = boolcp.BMP(2, random_state=0).fit(X, callback=seen.append)
    >>> [(progress.stage, progress.step) for progress in seen][:2]
    [('pursuit', 1), ('pursuit', 2)]
    """

    stage: str
    step: int
    n_steps: int | None
    relative_error: float


@dataclass
class Present:
    """What this process is at, for messages about long work: the part of it that is done, and the last step told."""

    part: str = ""
    seen: Progress | None = None

    def __str__(self) -> str:
        if self.seen is None:
            return self.part or "at work"
        seen = self.seen
        step = f"{seen.stage} {seen.step}" + ("" if seen.n_steps is None else f" of {seen.n_steps}")
        return ", ".join(filter(None, [self.part, step, f"relative error {seen.relative_error:.4g}"]))


PRESENT = Present()


def progress(stage: str, step: int, n_steps: int | None, loss: float, squared_norm: float) -> Progress:
    """Return the Progress of a step that ends with |X - W|^2 = loss."""
    error = float(np.sqrt(max(loss, 0.0) / squared_norm)) if squared_norm > 0 else 0.0
    return Progress(stage, step, n_steps, error)


class Watch:
    """Everything around the steps of a fit: callbacks, the checkpoint, and stopping.

    A checkpoint is written after a stage, and within one at most every INTERVAL seconds and for a SHARE of the time.
    Nothing more is written once the fit is cut short: the file keeps the full fit, to be resumed.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        callbacks: Sequence[Callable[[Progress], Any]] = (),
        checkpoint: Checkpoint | None = None,
        header: dict[str, Any] | None = None,
    ) -> None:
        self.rng, self.callbacks, self.checkpoint, self.header = rng, callbacks, checkpoint, header
        self._unsaved: State | None = None
        self._unsaved_random: dict[str, Any] = {}
        self._is_written, self._next_write = False, 0.0

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for callback in self.callbacks:
            getattr(callback, "close", lambda: None)()
        PRESENT.seen = None  # what comes now is no step of a fit
        self.flush()

    def step(self, state: State, seen: Progress | None) -> State:
        """Save a step within a stage, and return the state with which the callbacks let it continue."""
        self._keep(state, is_due=time.monotonic() >= self._next_write)
        return state if seen is None else self._tell(state, seen)

    def stage(self, state: State) -> State:
        """Remember the end of a stage."""
        self._keep(state, is_due=True)
        return state

    def flush(self) -> None:
        """Write what is not written yet. A full disk gives only a warning: it must not cost the result."""
        if self._unsaved is None or self.checkpoint is None:
            return
        start = time.monotonic()
        try:
            self.checkpoint.save(self.header, self._unsaved, self._unsaved_random)
            self._unsaved, self._is_written = None, True
        except FileError as error:
            if not self._is_written:  # it never worked: probably a wrong name, and little is lost yet
                raise
            warnings.warn(f"{error} The fit continues and tries again later.", BoolcpWarning, stacklevel=2)
        now = time.monotonic()
        self._next_write = now + max(INTERVAL, (now - start) / SHARE)

    def _keep(self, state: State, *, is_due: bool) -> None:
        if self.checkpoint is None or state.is_cut:
            return
        self._unsaved, self._unsaved_random = state, get_random_state(self.rng)
        if is_due:
            self.flush()

    def _tell(self, state: State, seen: Progress) -> State:
        PRESENT.seen = seen
        for callback in self.callbacks:
            try:
                answer = callback(seen)
            except Stop:
                raise
            except KeyboardInterrupt:
                answer = True
            if isinstance(answer, bool | np.bool_) and answer:
                state = replace(state, is_stopped=True, is_cut=True)
            elif seen.stage == "pursuit" and isinstance(answer, str) and answer == "refine":
                state = replace(state, is_cut=True)
        return state


class Bars:
    """A callback that shows a progress bar for each stage, in a terminal."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.bar: Any = None

    def __call__(self, seen: Progress) -> None:
        """Show the progress."""
        if seen.stage != self.name or seen.step < self.bar.n:
            from tqdm import tqdm

            self.close()
            self.name, self.bar = seen.stage, tqdm(desc=seen.stage, total=seen.n_steps, disable=None)
        self.bar.set_postfix(error=f"{seen.relative_error:.4g}", refresh=False)
        self.bar.update(seen.step - self.bar.n)

    def close(self) -> None:
        """Close the present bar."""
        if self.bar is not None:
            self.bar.close()
