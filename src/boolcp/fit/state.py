"""The frozen values of a fit: its settings, its state, and the results of its pursuit."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from boolcp.result.atoms import Atom, BooleanCP

STOP_REASONS = {
    "n_atoms": "the requested number of atoms was reached",
    "explained": "nothing is left: the atoms found so far explain the tensor to the tolerance",
    "no descent": "no atom decreases the loss any further",
    "dependent": "the next atom lies in the span of those found",
    "zero": "the tensor is zero",
    "stopped": "stopped by the callback: this is the best result so far",
}

N_STARTS = 10  # by default. Seen: easy data need 2, and the hardest of bench_refine.py 10


@dataclass(frozen=True)
class Settings:
    """The parameters of `BMP` that a fit depends on; their meaning is explained there."""

    n_atoms: int
    atom_rank: int | None = 1  # None: dense blocks
    criterion: str = "normalized"
    refine: bool = True
    n_init: int | None = None
    max_iter: int = 50
    sigma: float | None = None
    compression: bool = True
    certify: bool = True
    tol: float = 1e-6
    loss: str = "squared"
    nonnegative: tuple[int, ...] = ()  # modes

    @property
    def is_squared(self) -> bool:
        """Return True if squares are minimized without constraints on the real parts."""
        return self.loss == "squared" and not self.nonnegative

    @property
    def n_starts(self) -> int:
        """Return the largest number of starts."""
        return N_STARTS if self.n_init is None else self.n_init

    @property
    def n_columns(self) -> int:
        """Return the total number of columns of the atoms; one each if no rank is given."""
        return self.n_atoms * (self.atom_rank if isinstance(self.atom_rank, int) else 1)


@dataclass(frozen=True)
class AtomRecord:
    """One step of the pursuit: loss |X - W|^2 / 2 and |X - W| / |X| after it, and the atom it took."""

    loss: float
    relative_error: float
    mode: int
    n_ones: int
    certificate: float
    seconds: float


@dataclass(frozen=True)
class Pursuit:
    """The state of Algorithm 1: the estimates W^0 .. W^k, one record for each atom, and why it stopped, if it did.

    `memory` is what its line 7 keeps from atom to atom: normal equations, columns, or blocks.
    """

    path: tuple[BooleanCP, ...]
    history: tuple[AtomRecord, ...] = ()
    stop_reason: str = ""
    memory: Any = None

    @property
    def W(self) -> BooleanCP:
        """Return the estimate with the most atoms."""
        return self.path[-1]

    @property
    def n_atoms(self) -> int:
        """Return the number of atoms found."""
        return self.path[-1].n_atoms


@dataclass(frozen=True)
class State:
    """The state of a fit: the stage of its plan, the present value of that stage, and those of the stages before it.

    This is all that is needed to continue, together with the random generator; a checkpoint holds both.
    """

    stage: int = 0
    here: Any = None
    done: dict[str, Any] = field(default_factory=dict)
    is_cut: bool = False  # the pursuit was ended early: what follows is not part of a full fit
    is_stopped: bool = False  # everything ends as soon as there is a result


def record(atom: Atom, error2: float, squared_norm: float, seconds: float = 0.0) -> AtomRecord:
    """Return the AtomRecord of an atom after which |X - W|^2 = error2."""
    relative_error = float(np.sqrt(error2 / squared_norm))
    return AtomRecord(float(error2) / 2, relative_error, atom.mode, atom.n_ones, atom.certificate, seconds)
