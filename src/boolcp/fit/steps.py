"""The steps of a fit: remembered in a checkpoint, told to a callback, and ended early when it asks for that."""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from boolcp.fit.checkpoint import Checkpoint, check_same, through_file
from boolcp.io.atomic import check_free
from boolcp.io.errors import FileError

INTERVAL = 1.0  # seconds between two writes of a checkpoint within a stage, at least
SHARE = 0.1  # of the time of a stage that writing may take


@dataclass(frozen=True)
class Progress:
    """Where a fit stands, for its callback.

    Parameters
    ----------
    stage : {"pursuit", "search", "relax", "polish", "settle"}
        Atoms of the pursuit; starts of the refinement; sweeps over the full data without and with the Boolean
        constraint; estimates of block atoms fitted to the observed entries.
    step : int
        Number of steps done in this stage.
    n_steps : int or None
        Number of steps at most, where it is known.
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


class Steps:
    """The steps of one fit, by name. Without a checkpoint and a callback it only computes them.

    A step that the checkpoint holds is not computed again: its value is returned, and the state that its end left the
    random generator in is restored. A step may be made of steps; those are forgotten when it is done.
    """

    def __init__(self, checkpoint=None, header=None, callbacks=()):
        self.checkpoint, self.header, self.callbacks = checkpoint, header, callbacks
        self.is_stopped = False  # end everything as soon as there is a result
        self.is_cut = False  # the pursuit was ended early: what follows belongs to no full fit
        self._values, self._scope = {}, []
        self._is_restored = self._is_dirty = self._is_written = False
        self._next_write = 0.0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for callback in self.callbacks:
            if isinstance(callback, Bars):
                callback.close()
        self.flush()

    def do(self, name, compute, rng=None):
        """Return the value of a step, from the checkpoint or computed (and then remembered)."""
        key = self._key(name)
        if key in self._values:
            return self._restore(key, rng)
        self._scope.append(name)
        try:
            value = through_file(compute())
        finally:
            self._scope.pop()
        self._remember(key, value, rng)
        return value

    def begin(self, name, first, rng=None):
        """Return the state in which a loop goes on: the last one kept under this name, or `first`."""
        key = self._key(name)
        return self._restore(key, rng) if key in self._values else through_file(first)

    def keep(self, name, state, rng=None, *, instead_of=None):
        """Remember the state of a loop instead of the one before, and of a step; return it, to go on with."""
        state = through_file(state)
        if not self.is_cut and instead_of is not None:
            self._values.pop(self._key(instead_of), None)
        self._remember(self._key(name), state, rng)
        return state

    def shrink(self, name, shorten):
        """Replace the value of a step, if it is remembered, by `shorten` of it, which holds what is still needed."""
        key = self._key(name)
        if key in self._values:
            value, state = self._values[key]
            self._values[key] = shorten(value), state

    def report(self, stage, step, n_steps, loss, squared_norm):
        """Tell the callback about a step that was computed just now, and do as it answers."""
        if not self.callbacks or self._is_restored or self.is_stopped:
            return
        relative_error = float(np.sqrt(max(loss, 0.0) / squared_norm)) if squared_norm > 0 else 0.0
        for callback in self.callbacks:
            try:
                answer = callback(Progress(stage, step, n_steps, relative_error))
            except KeyboardInterrupt:
                answer = True
            if isinstance(answer, bool | np.bool_) and answer:
                self.is_stopped = self.is_cut = True
            elif stage == "pursuit" and isinstance(answer, str) and answer == "refine":
                self.is_cut = True

    def flush(self):
        """Write what is not written yet. A disk that is full by now is a warning: it shall not cost the result."""
        if self._is_dirty and self.checkpoint is not None:
            start = time.monotonic()
            try:
                self.checkpoint.save(self.header, self._values)
                self._is_dirty, self._is_written = False, True
            except FileError as error:
                if not self._is_written:  # it never worked: the name is wrong, and little is lost yet
                    raise
                warnings.warn(f"{error} The fit goes on; it is tried again later.", UserWarning, stacklevel=2)
            now = time.monotonic()
            self._next_write = now + max(INTERVAL, (now - start) / SHARE)

    def _key(self, name):
        return "/".join([*self._scope, name])

    def _restore(self, key, rng):
        value, state = self._values[key]
        if rng is not None and state is not None:
            set_state(rng, state)
        self._is_restored = True
        return value

    def _remember(self, key, value, rng):
        self._is_restored = False
        if self.checkpoint is None or self.is_cut:
            return
        for inner in [name for name in self._values if name.startswith(key + "/")]:
            del self._values[inner]
        self._values[key] = value, None if rng is None else get_state(rng)
        self._is_dirty = True
        if len(self._scope) < 2 or time.monotonic() >= self._next_write:  # stages end in the outermost scopes
            self.flush()


class Bars:
    """A callback that shows a progress bar for each stage, in a terminal."""

    def __init__(self):
        self.stage = None
        self.bar: Any = None

    def __call__(self, progress):
        """Show where the fit stands."""
        if progress.stage != self.stage or progress.step < self.bar.n:
            from tqdm import tqdm

            self.close()
            self.stage, self.bar = progress.stage, tqdm(desc=progress.stage, total=progress.n_steps, disable=None)
        self.bar.set_postfix(error=f"{progress.relative_error:.4g}", refresh=False)
        self.bar.update(progress.step - self.bar.n)

    def close(self):
        """End the bar that is shown."""
        if self.bar is not None:
            self.bar.close()


def open_steps(path, identity, rng, callbacks=()):
    """Return the Steps of a fit with its checkpoint: those in the file if there is one, of the same fit.

    `identity` holds the parameters, the data and the random state that the fit begins with.
    """
    checkpoint = Checkpoint(path)
    check_free(checkpoint.path, overwrite=True)
    steps = Steps(checkpoint, identity, callbacks)
    found = checkpoint.load()
    if found is not None:
        header, values = found
        for kind in ("parameters", "data"):
            check_same(checkpoint.path, kind, header[kind], identity[kind])
        set_state(rng, header["random_state"])
        steps.header, steps._values = header, values
    return steps


def get_state(rng):
    """Return the state of a Generator, with lists for its arrays."""
    return listed(rng.bit_generator.state)


def set_state(rng, state):
    """Put a Generator into a state that `get_state` gave."""
    rng.bit_generator.state = state


def listed(state):
    """Return a dict with its arrays as lists and its numbers as those of Python."""
    if isinstance(state, dict):
        return {name: listed(value) for name, value in state.items()}
    if isinstance(state, np.ndarray):
        return state.tolist()
    return state.item() if isinstance(state, np.generic) else state
