"""The frozen values that the stages of a fit hand on: the steps of a pursuit, factor matrices, terms of blocks."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from boolcp.result.atoms import BooleanCP


@dataclass(frozen=True)
class AtomRecord:
    """What is known of one step of the pursuit: loss |X - W|^2 / 2 and |X - W| / |X| after it, and the atom it took."""

    loss: float
    relative_error: float
    mode: int
    n_ones: int
    certificate: float
    seconds: float


@dataclass(frozen=True)
class Pursuit:
    """The estimates W^0 .. W^K of Algorithm 1, one record for each atom, and why it stopped."""

    path: tuple[BooleanCP, ...]
    history: tuple[AtomRecord, ...]
    stop_reason: str


@dataclass(frozen=True)
class Factors:
    """Factor matrices (d_n, K) with the size of each atom in its real columns, Boolean modes (K,) and |X - W|^2."""

    matrices: list
    boolean_mode: np.ndarray
    loss: float


class Term(NamedTuple):
    """c z (x) V of one atom: V with its size, as an array over the other modes and, unless dense, as factors."""

    mode: int
    z: np.ndarray
    V: np.ndarray
    factors: tuple[np.ndarray, ...] | None = None
    dof: float = 0.0
    certificate: float = float("nan")
