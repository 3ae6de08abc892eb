"""The frozen values of a fit: what was asked for, and the state after each step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns

STAGES = ("pursuit", "search", "polish", "observed", "last", "ridge", "neighbors", "result")
STOP_REASONS = {
    "n_atoms": "the requested number of atoms was reached",
    "explained": "nothing is left: the atoms found so far explain the tensor to the tolerance",
    "no descent": "no atom decreases the loss any further",
    "dependent": "the next atom lies in the span of those found",
    "zero": "the tensor is zero",
    "stopped": "stopped by the callback: this is the best result so far",
    "interrupted": "interrupted by Ctrl-C: this is the best result so far",
    "cut": "the callback ended the pursuit: the atoms found so far were refined",
}
MAX_STARTS = (40, 16)  # of matrices and of tensors by default; the search stops when starts agree


@dataclass(frozen=True)
class Spec:
    """What a fit depends on besides its data; the meaning of the parameters is explained in `BMP`."""

    n_atoms: int
    modes: tuple[int, ...]
    atom_rank: int | None = 1  # None: dense blocks
    refine: bool = True  # False: Algorithm 1 as printed
    n_init: int | None = None
    max_iter: int = 50
    sigma: float | None = None
    certify: bool = True
    tol: float = 1e-6  # |X - W| / |X| at which nothing is left: a loss from inner products is rounding below it
    graphs: Mapping[int, Any] = field(default_factory=dict)  # adjacency of modes where neighbors tend to agree
    smoothness: Any = "auto"  # lambda in units of the noise variance


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
class State:
    """The state of a fit after a step: begun again with it, the fit ends with the same bits."""

    seed: int
    stage: str = "pursuit"
    n_done: int = 0  # steps of the present stage
    path: tuple[Any, ...] = ()  # the pursuit's estimates with 0, 1, .. atoms: Columns, or BooleanCP for dense blocks
    history: tuple[AtomRecord, ...] = ()  # one for each atom of the pursuit
    stop_reason: str = ""  # why the pursuit ended, if it has
    best: Columns | None = None  # the best columns so far
    n_agree: int = 0  # how many starts reached them
    rivals: tuple[Columns, ...] = ()  # other solutions with nearly the same loss
    scale: float = 0.0  # of the loss, once it is known: the threshold of Huber's, the floor of the logarithms of others
    has_met: bool = False  # whether `best` was swept over the data; before, it and its loss belong to `small`
    is_settled: bool = False  # whether sweeps over the data are over
    penalty: tuple[float, ...] = ()  # lambda of neighbors for each atom of the best columns, once it is known
    result: BooleanCP | None = None  # the decomposition, at the end

    @property
    def columns(self) -> Columns:
        """Return the best columns so far: until a search has found better ones, the columns of the pursuit."""
        found: Columns = self.path[-1] if self.best is None else self.best
        return found

    def rng(self) -> np.random.Generator:
        """Return the generator of the next step, made of the seed, the stage and the number of its steps."""
        key = (STAGES.index(self.stage), self.n_done)
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))

    def then(self, **changes: Any) -> "State":
        """Return the state after one more step of the stage."""
        return replace(self, n_done=self.n_done + 1, **changes)

    def at(self, stage: str) -> "State":
        """Return the state at the beginning of a stage."""
        return replace(self, stage=stage, n_done=0)
