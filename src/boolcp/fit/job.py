"""What a stage of a fit is given, and what the stages before it have reached.

A stage is a generator: it yields its value after each step, and restarted with that value it continues as
if it had never been interrupted. Stages know nothing of checkpoints and callbacks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boolcp.fit.atom_search import greedy_atom_search
from boolcp.fit.polish import polish
from boolcp.fit.pursuit import Find
from boolcp.fit.state import Pursuit, Settings, State
from boolcp.fit.watch import Progress, progress
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns
from boolcp.storage import complete_tensor
from boolcp.storage.protocol import Storage

EXTRA_RANK = 10  # directions kept in each mode of a core beyond the number of columns; by bench_refine.py
NOISELESS = 1e-5  # a loss below this part of |X|^2 leaves nothing to the noise; not tuned


@dataclass(frozen=True)
class Job:
    """The input of a fit: the data, the modes that may be Boolean, the source of randomness and the parameters."""

    data: Storage
    modes: tuple[int, ...]
    rng: np.random.Generator
    settings: Settings

    @property
    def tol(self) -> float:
        """Return |X - W| / |X| at which nothing is left: a loss from inner products is rounding below it."""
        return max(self.settings.tol, float(np.sqrt(10 * np.finfo(self.data.dtype).eps)))

    @property
    def atom_rank(self) -> int:
        """Return the number of columns of each atom."""
        return self.settings.n_columns // self.settings.n_atoms

    def find_on(self, tensor: Storage) -> Find:
        """Return the search for the atom of steepest descent from an estimate of a tensor.

        On a compressed one it is quick: its bits are decided again.
        """
        options: dict[str, Any] = {"atom_rank": self.atom_rank, "certify": False}
        options["effort"] = "quick" if tensor.is_compressed else "default"

        def find(W: BooleanCP) -> Any:
            return greedy_atom_search(tensor.inner_residual(W), self.modes, self.rng, **options)

        return find


Step = tuple[Any, Progress | None]


@dataclass(frozen=True)
class Stage:
    """One stage of a plan. A stage that only improves the result is skipped once a fit is stopped."""

    name: str
    steps: Callable[[Job, State], Iterator[Step]]
    improves: bool = True


def small_of(job: Job, state: State) -> Storage:
    """Return the complete tensor on which the search is done."""
    small = state.done["core"]
    return complete_tensor(job.data, 0, False) if small is None else small


def searched(job: Job, state: State) -> Storage:
    """Return the tensor on which blocks and Algorithm 1 are run: the data, or their core if they are read in passes."""
    return small_of(job, state) if job.data.n_passes else job.data


def told(job: Job, tensor: Storage, pursuits: Iterator[Pursuit], name: str = "pursuit") -> Iterator[Step]:
    """Yield each pursuit, with its progress if it has a new atom, and why the last one ended."""
    n_atoms, n_before = job.settings.n_atoms, None
    for pursuit in pursuits:
        n_found = len(pursuit.history)
        if n_found >= n_atoms:
            pursuit = replace(pursuit, stop_reason="n_atoms")
        seen = None
        if n_before is not None and n_found > n_before:
            seen = progress(name, n_found, n_atoms, 2 * pursuit.history[-1].loss, tensor.squared_norm)
        n_before = n_found
        yield pursuit, seen


def reached(job: Job, state: State) -> Columns | None:
    """Return the best columns of the stages so far; None if nothing was refined."""
    done = state.done
    if done.get("ridge") is not None:
        return done["ridge"].result
    if done.get("last") is not None:
        return done["last"].best
    if done.get("fewer") is not None and done["fewer"][1] is not None:
        return done["fewer"][1]
    if done.get("polish") is not None:
        return done["polish"].result
    if done.get("observed") is not None:
        return done["observed"].best
    return None if done.get("search") is None else polish(job.data, done["search"].best, max_iter=1)


def ask_for_end(data: Storage, W: BooleanCP, pursuit: Pursuit) -> None:
    """Compute in one pass what the bits of W and the end of a fit need from data that are read in passes."""
    data.ask_ahead([W.matrices, pursuit.W.matrices])
