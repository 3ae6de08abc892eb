"""SUSTain-style decomposition: hierarchical alternating least squares with rounding to Boolean columns."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from boolcp import checks
from boolcp.baselines._door import impute, read, squared_loss
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns
from boolcp.storage import DenseTensor, compress
from boolcp.storage.protocol import Storage
from boolcp.storage.tucker import leading_basis
from boolcp.threads import one_thread

EXTRA_RANK = 10  # directions of each mode kept beyond the number of atoms while the starts are compared; not tuned


class SUSTain(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """SUSTain-style hierarchical ALS: one column at a time, the Boolean ones rounded and clipped to 0 and 1.

    This is not SUSTain (Perros et al., 2018) itself, which restricts every mode to bounded integers and the weights to
    integers of at least one and thus cannot fit signed data. What is kept are the hierarchical updates of single
    columns with a projection on the integers; here only one column of each atom is projected, on {0, 1}, and redrawn
    when it is empty; the others are real. Rounding can raise the loss: the best sweep of the best start
    is the result. Each atom's Boolean mode is fixed in advance, the allowed modes in turn. Missing entries are
    repeatedly filled with the estimate.

    Parameters
    ----------
    n_atoms : int
        Number of atoms K.
    boolean_modes : list of int or str, optional
        The modes allowed to be Boolean. None is all.
    n_init : int
        Number of starts: the first from the leading singular vectors, the others random. The lowest loss wins.
    max_iter : int
        Maximal number of sweeps from each start.
    tol : float
        A start is done when its loss changes by less than this times |X|^2 in a sweep.
    random_state : int, Generator or None
        Seed.

    Attributes
    ----------
    decomposition_ : BooleanCP
        The result, with atoms of rank one.
    loss_ : float
        |X - W|^2 / 2 over the observed entries.

    Examples
    --------
    >>> import boolcp
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
        self.n_atoms = n_atoms
        self.boolean_modes = boolean_modes
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: None = None, *, mask: ArrayLike | None = None) -> "SUSTain":
        """Decompose X (array-like of order N >= 2, NaN where missing; mask True where observed).

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((15, 16, 17), 2, noise=0.1, random_state=0)
        >>> boolcp.baselines.SUSTain(2, random_state=0).fit(X).decomposition_.to_tensor().shape
        (15, 16, 17)
        """
        checks.check_integer(self.n_atoms, "n_atoms", 1)
        checks.check_integer(self.n_init, "n_init", 1)
        checks.check_integer(self.max_iter, "max_iter", 1)
        checks.check_number(self.tol, "tol")
        X, observed, labels = read(X, mask)
        modes = checks.check_modes(self.boolean_modes, X.shape, None if labels is None else labels.dims)
        boolean_mode = np.array([modes[k % len(modes)] for k in range(self.n_atoms)])
        rng = checks.make_generator(self.random_state)
        with one_thread():
            step = partial(self._step, boolean_mode=boolean_mode, rng=rng)
            W = impute(X, observed, step, max_iter=30, tol=1e-6).decomposition
        self.decomposition_ = BooleanCP(W.shape, W.atoms, W.weights, labels)
        self.loss_ = squared_loss(X, observed, W)
        return self

    def _step(self, X: np.ndarray, last: "Estimate | None", boolean_mode: np.ndarray, rng: Generator) -> "Estimate":
        """Return the best Estimate of all starts, or the one that continues the last."""
        data = DenseTensor(X)
        small = compress(data, self.n_atoms + EXTRA_RANK)
        options: dict[str, Any] = {"max_iter": self.max_iter, "tol": self.tol}
        if last is None:
            starts = [singular_start(data, boolean_mode, rng)]
            starts += [random_start(data, boolean_mode, rng) for _ in range(self.n_init - 1)]
        else:
            starts = [list(last.columns.matrices)]
        found = [hierarchical_als(small, factors, boolean_mode, rng, **options) for factors in starts]
        best = min(found, key=lambda columns: columns.loss)
        options["max_iter"] = min(self.max_iter, 5)
        return Estimate(hierarchical_als(data, best.matrices, boolean_mode, rng, **options))


class Estimate:
    """Columns with the tensor they stand for."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.decomposition = columns.to_decomposition()

    def to_tensor(self) -> np.ndarray:
        """Return W as a dense array."""
        return self.decomposition.to_tensor()


def hierarchical_als(
    data: Storage, factors: Sequence[np.ndarray], boolean_mode: np.ndarray, rng: Generator, *, max_iter: int, tol: float
) -> Columns:
    """Return the Columns of lowest loss in sweeps over all columns of all modes, including the given ones."""
    factors = [np.array(A, dtype=float) for A in factors]
    owner = np.arange(len(boolean_mode))
    loss = _loss(data, factors[-1], *data.normal_equations(factors, data.ndim - 1))
    best, previous = Columns(tuple(A.copy() for A in factors), owner, boolean_mode, loss), np.inf
    for _ in range(max_iter):
        for mode in range(data.ndim):
            H, P = data.normal_equations(factors, mode)
            update_columns(factors[mode], H, P, boolean_mode == mode, rng)
        loss = _loss(data, factors[-1], H, P)
        if loss < best.loss:
            best = Columns(tuple(A.copy() for A in factors), owner, boolean_mode, loss)
        if abs(previous - loss) <= tol * data.squared_norm:
            break
        previous = loss
    return best


def update_columns(A: np.ndarray, H: np.ndarray, P: np.ndarray, boolean: np.ndarray, rng: Generator) -> None:
    """Move each column of A (d, K) in place to its least-squares value, rounded to 0 and 1 where `boolean`."""
    for k in range(A.shape[1]):
        if not H[k, k] > 0:
            continue
        column = A[:, k] + (P[:, k] - A @ H[:, k]) / H[k, k]
        if boolean[k]:
            column = np.clip(np.rint(column), 0, 1)
            if not column.any():
                column = random_bits(len(column), rng)
        A[:, k] = column


def _loss(data: Storage, A: np.ndarray, H: np.ndarray, P: np.ndarray) -> float:
    """Return |X - W|^2 from the last factor and its normal equations."""
    return max(float(data.squared_norm - 2 * np.sum(P * A) + np.sum((A @ H) * A)), 0.0)


def random_bits(d: int, rng: Generator) -> np.ndarray:
    """Return d fair bits, at least one of them on."""
    bits = rng.random(d) < 0.5
    bits[rng.integers(d)] = True
    return bits.astype(float)


def random_start(data: Storage, boolean_mode: np.ndarray, rng: Generator) -> list[np.ndarray]:
    """Return normal columns with fair bits in the Boolean ones, at the scale of the tensor."""
    factors = [rng.standard_normal((d, len(boolean_mode))) for d in data.shape]
    for k, mode in enumerate(boolean_mode):
        factors[mode][:, k] = random_bits(data.shape[mode], rng)
    return factors


def singular_start(data: Storage, boolean_mode: np.ndarray, rng: Generator) -> list[np.ndarray]:
    """Return leading singular vectors of each unfolding, the Boolean columns cut at half their largest entry."""
    factors = random_start(data, boolean_mode, rng)
    for mode, d in enumerate(data.shape):
        U = leading_basis(data, mode, min(d, len(boolean_mode)))
        U = U * np.where(U.sum(axis=0) < 0, -1, 1)
        for k in range(U.shape[1]):
            a = U[:, k]
            factors[mode][:, k] = (a > a.max() / 2) if boolean_mode[k] == mode else a
            if not factors[mode][:, k].any():
                factors[mode][:, k] = random_bits(d, rng)
    return factors
