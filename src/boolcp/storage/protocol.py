"""The questions to a tensor, as types: every storage answers them with small dense arrays.

X_n is the unfolding along mode n, (d_n, c_n) with c_n the product of the other sizes. Missing entries count as zeros,
except in `equations`, `update` and `residual`, which concern what is observed, with its weights and under its loss.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from boolcp.result.atoms import BooleanCP

Factors = Sequence[np.ndarray]  # one matrix (d_n, K) for each mode


class Tensor(Protocol):
    """What the search for an atom asks; residuals answer it as well."""

    shape: tuple[int, ...]
    dtype: np.dtype
    bases: tuple[np.ndarray, ...]  # U_n (d_n, r_n) of a compressed tensor X = core x_n U_n, otherwise ()

    @property
    def squared_norm(self) -> float:
        """Return |X|^2 over the observed entries, weighted, summed in float64."""

    def gram(self, mode: int) -> np.ndarray:
        """Return X_n X_n' (d_n, d_n) in float64."""

    def contract(self, mode: int, Z: np.ndarray) -> np.ndarray:
        """Return sum_i X[.., i, ..] Z[i, k], (K, other modes), for Z (d_n, K)."""

    def project(self, mode: int, blocks: np.ndarray) -> np.ndarray:
        """Return X_n vec(V_k), (d_n, K), for blocks V_k (K, other modes)."""

    def mttkrp(self, factors: Factors, mode: int) -> np.ndarray:
        """Return X_n times the Khatri-Rao product of the other factors, (d_n, K); ``factors[mode]`` is not read."""

    def to_array(self) -> np.ndarray:
        """Return all entries, zero where they are missing; it may be a view of the data."""


class Storage(Tensor, Protocol):
    """What a fit asks of its data."""

    center: int | None  # the mode over which a mean is fitted, if any
    nonnegative: tuple[int, ...]  # modes along which real columns are nonnegative
    weights: Tensor | None  # of all entries, 0 where they are missing; None if X is complete and all count alike
    n_passes: int  # passes made over data on disk; 0 in memory

    def equations(self, factors: Factors, mode: int) -> Any:
        """Return the Equations of the factor of one mode, given the others, and the loss of all factors."""

    def update(self, factors: Factors, mode: int, decide: "Decide") -> tuple[np.ndarray, float, Any]:
        """Return the factor A = decide(H, P, factors[mode]) of one mode, the loss, and what updates the other modes.

        A row is kept as it was where the loss would rise, which least squares cannot cause.
        """

    def residual(self, W: BooleanCP) -> Tensor:
        """Return X - W, the negative gradient of the loss."""


Decide = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # H, P, the current rows -> the new rows
