"""Kruskal's condition: the Kruskal rank of each factor matrix, and whether their sum makes a decomposition unique."""

from dataclasses import dataclass
from itertools import combinations, islice
from math import comb
from typing import Any

import numpy as np
import scipy.linalg

from boolcp.result.atoms import BooleanCP
from boolcp.trust.rigidity import read_matrix

TOL = 1e-8  # smallest singular value of unit columns that still counts as independent
MAX_SUBSETS = 200_000  # sets of columns that kruskal_rank tries before it returns bounds; not tuned
CHUNK = 2**20  # numbers held at a time


class KruskalRank(int):
    """The Kruskal rank as an int (a proved lower bound if it is not exact), with an upper bound and a witness.

    Attributes
    ----------
    upper : int
        Upper bound; equal to the number itself when that is exact.
    witness : tuple of int or None
        Columns that are dependent, one more than `upper`; None if none were found.

    Examples
    --------
    >>> import boolcp
    >>> rank = boolcp.identifiability.kruskal_rank([[1, 0], [0, 1]])
    >>> int(rank), rank.is_exact, rank.witness
    (2, True, None)
    """

    upper: int
    witness: tuple[int, ...] | None

    def __new__(cls, lower: int, upper: int, witness: tuple[int, ...] | None = None) -> "KruskalRank":
        """Return the lower bound as an int that knows the upper one."""
        self = super().__new__(cls, lower)
        self.upper, self.witness = upper, witness
        return self

    @property
    def is_exact(self) -> bool:
        """Return True if the two bounds meet."""
        return int(self) == self.upper


@dataclass(frozen=True, eq=False)
class KruskalCondition:
    """Kruskal's condition for one decomposition; true in an `if` when it is proved to hold.

    Attributes
    ----------
    ranks : tuple of KruskalRank
        Kruskal rank of each factor matrix.
    n_atoms : int
        Number R of terms.
    holds : bool or None
        None when the bounds of the ranks do not decide it.

    Examples
    --------
    >>> import boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 4, random_state=0).truth
    >>> boolcp.identifiability.kruskal_condition(truth).holds
    True
    """

    ranks: tuple[KruskalRank, ...]
    n_atoms: int
    holds: bool | None

    @property
    def needed(self) -> int:
        """Return the sum of Kruskal ranks that suffices, 2R + N - 1."""
        return 2 * self.n_atoms + len(self.ranks) - 1

    def __bool__(self) -> bool:
        return self.holds is True

    def __str__(self) -> str:
        ranks = " + ".join(str(int(rank)) if rank.is_exact else f"({int(rank)}..{rank.upper})" for rank in self.ranks)
        verdict = {True: "holds", False: "does not hold", None: "is not decided"}[self.holds]
        return f"Kruskal's condition {verdict}: the Kruskal ranks are {ranks}, {self.needed} is needed"


def kruskal_rank(A: Any, *, tol: float = TOL, max_subsets: int = MAX_SUBSETS) -> KruskalRank:
    """Return the KruskalRank of a matrix: the largest k such that every k columns are independent.

    Exact if all columns are independent, or if no more than `max_subsets` sets of columns have to be
    tried (about 17 columns at worst); otherwise a proved lower bound with an upper bound.

    Parameters
    ----------
    A : array-like of shape (d, K)
        The matrix.
    tol : float
        Columns of norm one are dependent when the smallest singular value is not above `tol`.
    max_subsets : int
        Largest number of sets of columns to try.

    Examples
    --------
    >>> import boolcp
    >>> rank = boolcp.identifiability.kruskal_rank([[1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
    >>> rank, rank.witness
    (2, (0, 1, 2))
    """
    A = read_matrix(A, "A")
    n_columns = A.shape[1]
    if n_columns == 0:
        return KruskalRank(0, 0)
    norms = np.linalg.norm(A, axis=0)
    if not norms.all():
        return KruskalRank(0, 0, (int(np.argmin(norms)),))
    A = A / norms
    R: np.ndarray = scipy.linalg.qr(A, mode="r")[0][:n_columns] if len(A) > n_columns else A
    rank = numerical_rank(R, tol)
    if rank == n_columns:
        return KruskalRank(rank, rank)
    n_tried = 0
    for size in range(2, rank + 2):
        n_tried += comb(n_columns, size)
        if n_tried > max_subsets:
            break
        if found := _dependent_set(R, size, tol):
            return KruskalRank(size - 1, size - 1, found)
    return KruskalRank(size - 1, rank)


def kruskal_condition(decomposition: Any, *, tol: float = TOL) -> KruskalCondition:
    """Return whether Kruskal's condition holds: the sum of the Kruskal ranks is at least 2R + N - 1.

    For three modes this is R <= (k_1 + k_2 + k_3 - 2) / 2 as in the paper. It suffices for a CP decomposition to be
    unique up to order and scale; a single term always is.

    Parameters
    ----------
    decomposition : BooleanCP with atoms of rank one, (weights, factors), or list of matrices (d_n, R)
        The decomposition or its factor matrices.

    Returns
    -------
    KruskalCondition
        True in an `if` when the condition holds.

    Examples
    --------
    >>> import boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 4, random_state=0).truth
    >>> print(boolcp.identifiability.kruskal_condition(truth))
    Kruskal's condition holds: the Kruskal ranks are 4 + 4 + 4, 10 is needed
    """
    factors = [np.asarray(A, dtype=float) for A in _factors(decomposition)]
    ranks = tuple(kruskal_rank(A, tol=tol) for A in factors)
    n_atoms = factors[0].shape[1]
    needed = 2 * n_atoms + len(factors) - 1
    if n_atoms <= 1:
        holds: bool | None = all(rank >= n_atoms for rank in ranks)
    elif sum(ranks) >= needed:
        holds = True
    else:
        holds = False if sum(rank.upper for rank in ranks) < needed else None
    return KruskalCondition(ranks, n_atoms, holds)


def numerical_rank(A: np.ndarray, tol: float = TOL) -> int:
    """Return the number of singular values above `tol`."""
    return int(np.sum(np.linalg.svd(A, compute_uv=False) > tol))


def _dependent_set(A: np.ndarray, size: int, tol: float) -> tuple[int, ...] | None:
    """Return the first `size` columns of A found dependent, or None."""
    if size > len(A):
        return tuple(range(size))
    subsets = combinations(range(A.shape[1]), size)
    while block := list(islice(subsets, max(1, CHUNK // (len(A) * size)))):
        values = np.linalg.svd(A[:, np.array(block)].transpose(1, 0, 2), compute_uv=False)[:, -1]
        if values.min() <= tol:
            return block[int(np.argmax(values <= tol))]
    return None


def _factors(decomposition: Any) -> Any:
    if isinstance(decomposition, BooleanCP):
        return decomposition.factors
    if isinstance(decomposition, tuple) and len(decomposition) == 2 and np.ndim(decomposition[1][0]) == 2:
        return decomposition[1]
    return decomposition
