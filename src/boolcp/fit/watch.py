"""What surrounds the steps of a fit: callbacks, progress, the checkpoint, and stopping."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boolcp.checks import BoolcpWarning
from boolcp.fit.checkpoint import Checkpoint
from boolcp.fit.fit import STEPS, Fit
from boolcp.fit.spec import State
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
    stage : {"pursuit", "search", "polish", "observed", "last", "ridge"}
        Atoms of the pursuit; starts of the refinement; sweeps over the data; starts over the observed entries; moves
        of the last search, where bits are uncertain; sweeps with a ridge.
    step : int
        Number of steps done in this stage.
    n_steps : int or None
        Maximal number of steps, if known.
    relative_error : float
        |X - W| / |X| of the best estimate of the stage; under another loss the root of the ratio of deviances.

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


def run(fit: Fit, s: State, callbacks: Sequence[Callable[[Progress], Any]], checkpoint: Checkpoint | None) -> State:
    """Make the steps of a fit, each shown to the callbacks and saved, until there is a result.

    A callback that returns True ends the fit with the best so far, one that returns "refine" ends the pursuit. Nothing
    more is written once a fit is cut short: the file keeps the full fit, to be resumed.
    """
    writer = None if checkpoint is None else Writer(checkpoint)
    is_cut = False
    try:
        while s.result is None:
            try:
                before, s = s, STEPS[s.stage](fit.at_state(s), s)
                if writer is not None and not is_cut and s.result is None:
                    writer.keep(s, is_due=s.stage != before.stage)
                answer = tell(fit, before, s, callbacks)
            except Stop:  # the step is abandoned; all before it counts
                if len(s.path) == 1:
                    raise  # there is nothing to keep yet
                answer = "refine" if s.stage == "pursuit" and not is_cut else "stop"
            if answer and s.result is None:
                is_cut = True
                s = replace(s, stop_reason="cut") if answer == "refine" else stopped(s)
    finally:
        for callback in callbacks:
            getattr(callback, "close", lambda: None)()
        PRESENT.seen = None  # what comes now is no step of a fit
        if writer is not None:
            writer.flush()
    return s


def stopped(s: State) -> State:
    """Return the state with nothing left but the result."""
    return replace(s, stage="result", n_done=0, stop_reason="stopped")


def tell(fit: Fit, before: State, s: State, callbacks: Sequence[Callable[[Progress], Any]]) -> str:
    """Show a step to the callbacks; return "stop" or "refine" if they ask for it."""
    if s.n_done == before.n_done or s.stage != before.stage or s.result is not None:
        return ""
    if s.stage == "pursuit":
        error = s.history[-1].relative_error
    else:
        norm2 = (fit.small if s.stage == "search" else fit.at_state(s).data).squared_norm
        error = float(np.sqrt(max(s.columns.loss, 0.0) / norm2)) if norm2 > 0 else 0.0
    n_steps = {"pursuit": fit.spec.n_atoms, "polish": fit.spec.max_iter}.get(s.stage)
    PRESENT.seen, answer = Progress(s.stage, s.n_done, n_steps, error), ""
    for callback in callbacks:
        try:
            said = callback(PRESENT.seen)
        except Stop:
            raise
        except KeyboardInterrupt:
            said = True
        if isinstance(said, bool | np.bool_) and said:
            answer = "stop"
        elif s.stage == "pursuit" and isinstance(said, str) and said == "refine":
            answer = answer or "refine"
    return answer


class Writer:
    """Writes a checkpoint after a stage, and within one at most every INTERVAL seconds and for a SHARE of the time."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.unsaved: State | None = None
        self.is_written, self.next_write = False, 0.0

    def keep(self, s: State, *, is_due: bool) -> None:
        """Remember a state, and write it if it is time."""
        self.unsaved = s
        if is_due or time.monotonic() >= self.next_write:
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet. A full disk gives only a warning: it must not cost the result."""
        if self.unsaved is None:
            return
        start = time.monotonic()
        try:
            self.checkpoint.save(self.unsaved)
            self.unsaved, self.is_written = None, True
        except FileError as error:
            if not self.is_written:  # it never worked: probably a wrong name, and little is lost yet
                raise
            warnings.warn(f"{error} The fit continues and tries again later.", BoolcpWarning, stacklevel=2)
        now = time.monotonic()
        self.next_write = now + max(INTERVAL, (now - start) / SHARE)


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
