"""What a fit tells of its steps: progress for callbacks, messages and bars; and how it is stopped."""

import sys
from dataclasses import dataclass
from typing import Any


class Stop(KeyboardInterrupt):
    """Raised by a signal handler at any moment: end the pursuit and refine its atoms, or end with the best so far."""


@dataclass(frozen=True)
class Progress:
    """The progress of a fit, for its callback.

    Parameters
    ----------
    stage : {"pursuit", "search", "polish", "observed", "last", "ridge", "neighbors"}
        Atoms of the pursuit; starts of the refinement; sweeps over the data; starts over the observed entries; moves
        where bits are uncertain; the last polish; sweeps with neighbors.
    step : int
        Number of steps done in this stage.
    n_steps : int or None
        Maximal number of steps, if known.
    relative_error : float
        |X - W| / |X| of the best estimate of the stage; under another loss the root of the ratio of deviances.

    Examples
    --------
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
    n_beats: int = 0  # sweeps so far: a long step is seen to move
    bars: "Bars | None" = None

    def __str__(self) -> str:
        if self.seen is None:
            return self.part or "at work"
        seen = self.seen
        step = f"{seen.stage} {seen.step}" + ("" if seen.n_steps is None else f" of {seen.n_steps}")
        done = f"relative error {seen.relative_error:.4g}, {self.n_beats} sweeps"
        return ", ".join(filter(None, [self.part, step, done]))

    def beat(self) -> None:
        """Count a sweep, and let the bar move."""
        self.n_beats += 1
        if self.bars is not None:
            self.bars.move(self)


PRESENT = Present()


class Bars:
    """A callback that shows a progress bar for each stage, in a terminal or a notebook, from the beginning on."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.open("pursuit")
        PRESENT.bars, PRESENT.n_beats = self, 0

    def open(self, stage: str) -> None:
        """Show the bar of a stage in the place of the present one."""
        from tqdm.auto import tqdm

        if self.bar is not None:
            self.bar.close()
        is_off = False if "ipykernel" in sys.modules else None  # None: unless it is a terminal
        self.name, self.bar = stage, tqdm(desc=stage, disable=is_off, miniters=0)

    def __call__(self, seen: Progress) -> None:
        """Show the progress."""
        if seen.stage != self.name or seen.step < self.bar.n:
            self.open(seen.stage)
        self.bar.total = seen.n_steps
        self.bar.update(seen.step - self.bar.n)
        self.move(PRESENT)

    def move(self, present: Present) -> None:
        """Show that the present step goes on."""
        error = {} if present.seen is None else {"error": f"{present.seen.relative_error:.4g}"}
        self.bar.set_postfix(**error, sweeps=present.n_beats, refresh=False)
        self.bar.update(0)

    def close(self) -> None:
        """Close the present bar."""
        PRESENT.bars = None
        self.bar.close()
