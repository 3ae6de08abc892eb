"""SUSTain-style decomposition: hierarchical alternating least squares with rounding to Boolean columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from boolcp.baselines._base import EXTRA_RANK, Baseline, Modes
from boolcp.contractions import gram_product
from boolcp.datasets.synthetic import sum_of
from boolcp.storage.dense import Complete, Dense
from boolcp.storage.tucker import compress, leading_basis
from boolcp.storage.weighted import full

N_ROUNDS, SETTLED = 30, 1e-6  # of filling missing entries, and their change relative to |X| that ends them; not tuned


class SUSTain(Baseline):
    """SUSTain-style hierarchical ALS: one column at a time, the Boolean ones rounded and clipped to 0 and 1.

    SUSTain itself (Perros et al., 2018) restricts every mode and the weights to integers and cannot fit signed data.
    Here only one column of each atom is projected, on {0, 1}, and redrawn when it is empty; the others are real.
    Rounding can raise the loss: the best sweep of the best start is the result. Each atom's Boolean mode is fixed in
    advance, the allowed modes in turn. Missing entries are repeatedly filled with the estimate.

    Parameters
    ----------
    n_atoms, random_state : int, int or Generator or None
        Number of atoms K, and seed.
    boolean_modes : list of int or str, optional
        The modes allowed to be Boolean. None is all.
    n_init : int
        Number of starts: the first from the leading singular vectors, the others random. The lowest loss wins.
    max_iter, tol : int, float
        Maximal number of sweeps from each start; it is done when its loss changes by less than tol |X|^2 in one.

    Attributes
    ----------
    decomposition_, loss_ : BooleanCP, float
        The result, with atoms of rank one, and |X - W|^2 / 2 over the observed entries.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((15, 16, 17), [1, 0, 0], random_state=0)
    >>> model = boolcp.baselines.SUSTain(1, boolean_modes=[0], random_state=0).fit(X)
    >>> boolcp.metrics.hamming_error(model.decomposition_, truth)
    0.0
    """

    def __init__(
        self,
        n_atoms: int = 10,
        *,
        boolean_modes: Sequence[int | str] | int | str | None = None,
        n_init: int = 5,
        max_iter: int = 100,
        tol: float = 1e-7,
        random_state: Any = None,
    ) -> None:
        self.n_atoms, self.boolean_modes, self.random_state = n_atoms, boolean_modes, random_state
        self.n_init, self.max_iter, self.tol = n_init, max_iter, tol

    def _fit(self, X: np.ndarray, observed: np.ndarray | None, modes: Modes, labels: Any, rng: Generator) -> None:
        boolean_mode = np.array([modes[k % len(modes)] for k in range(self.n_atoms)])

        filled = X if observed is None else np.where(observed, X, X.sum() / observed.sum())
        starts = [singular_start(filled, boolean_mode, rng)]
        starts += [random_start(X.shape, boolean_mode, rng) for _ in range(self.n_init - 1)]
        for _ in range(N_ROUNDS):
            small = compress(Dense(filled), self.n_atoms + EXTRA_RANK)
            found = [hierarchical_als(small, A, boolean_mode, rng, self.max_iter, self.tol) for A in starts]
            best, _ = min(found, key=lambda pair: pair[1])
            factors, _ = hierarchical_als(Dense(filled), best, boolean_mode, rng, min(self.max_iter, 5), self.tol)
            previous, starts = filled, [factors]
            filled = X if observed is None else np.where(observed, X, full(factors))
            if np.linalg.norm(filled - previous) <= SETTLED * np.linalg.norm(X):
                break
        patterns = [
            (int(mode), factors[mode][:, k] > 0.5, [A[:, k] for n, A in enumerate(factors) if n != mode])
            for k, mode in enumerate(boolean_mode)
        ]
        self.decomposition_ = sum_of(X.shape, patterns, labels)


def hierarchical_als(
    data: Complete, factors: Sequence[np.ndarray], boolean_mode: np.ndarray, rng: Generator, max_iter: int, tol: float
) -> tuple[list[np.ndarray], float]:
    """Return the factors of lowest loss |X - W|^2 of sweeps over all columns and the given ones, and the loss."""
    factors, last = [np.array(A, dtype=float) for A in factors], len(factors) - 1
    norm2 = data.squared_norm

    def loss(H: np.ndarray, P: np.ndarray) -> float:
        A = factors[last]
        return max(float(norm2 - 2 * np.sum(P * A) + np.sum((A @ H) * A)), 0.0)

    best = [A.copy() for A in factors], loss(gram_product(factors, last), data.mttkrp(factors, last))
    previous = np.inf
    for _ in range(max_iter):
        for mode in range(last + 1):
            H, P = gram_product(factors, mode), data.mttkrp(factors, mode)
            update_columns(factors[mode], H, P, boolean_mode == mode, rng)
        now = loss(H, P)
        if now < best[1]:
            best = [A.copy() for A in factors], now
        if abs(previous - now) <= tol * norm2:
            break
        previous = now
    return best


def update_columns(A: np.ndarray, H: np.ndarray, P: np.ndarray, boolean: np.ndarray, rng: Generator) -> None:
    """Move each column of A (d, K) in place to its least-squares value, rounded to 0 and 1 where `boolean`."""
    for k in range(A.shape[1]):
        if not H[k, k] > 0:
            continue
        column = A[:, k] + (P[:, k] - A @ H[:, k]) / H[k, k]
        if boolean[k]:
            column = np.clip(np.rint(column), 0, 1)
        A[:, k] = column if column.any() or not boolean[k] else random_bits(len(column), rng)


def random_bits(d: int, rng: Generator) -> np.ndarray:
    """Return d fair bits, at least one of them on."""
    bits = rng.random(d) < 0.5
    bits[rng.integers(d)] = True
    return bits.astype(float)


def random_start(shape: Sequence[int], boolean_mode: np.ndarray, rng: Generator) -> list[np.ndarray]:
    """Return normal columns with fair bits in the Boolean ones."""
    factors = [rng.standard_normal((d, len(boolean_mode))) for d in shape]
    for k, mode in enumerate(boolean_mode):
        factors[mode][:, k] = random_bits(shape[mode], rng)
    return factors


def singular_start(X: np.ndarray, boolean_mode: np.ndarray, rng: Generator) -> list[np.ndarray]:
    """Return leading singular vectors of each unfolding, the Boolean columns cut at half their largest entry."""
    factors = random_start(X.shape, boolean_mode, rng)
    for mode, d in enumerate(X.shape):
        U = leading_basis(Dense(X), mode, min(len(boolean_mode), d))
        U = U * np.where(U.sum(axis=0) < 0, -1, 1)
        for k in range(U.shape[1]):
            a = U[:, k]
            factors[mode][:, k] = (a > a.max() / 2) if boolean_mode[k] == mode else a
            if not factors[mode][:, k].any():
                factors[mode][:, k] = random_bits(d, rng)
    return factors
