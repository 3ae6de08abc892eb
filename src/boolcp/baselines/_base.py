"""What all baselines share: reading and checking their input, imputation, projection on leading directions."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg
from numpy.random import Generator
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from boolcp import checks, contractions
from boolcp.result.labels import read_labels
from boolcp.system import one_thread

Modes = Sequence[int]
EXTRA_RANK = 10  # directions of each mode kept beyond the number of atoms while the starts are compared; not tuned


class Baseline(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator whose `_fit` sets `decomposition_` from a tensor with zeros where entries are missing."""

    least_max_iter = 1

    def fit(self, X: Any, y: None = None, *, mask: ArrayLike | None = None) -> Self:
        """Decompose X (array-like of order N >= 2, NaN where missing; mask True where observed).

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((15, 16, 17), 2, noise=0.1, random_state=0)
        >>> boolcp.baselines.CP(2, random_state=0).fit(X).decomposition_.to_tensor().shape
        (15, 16, 17)
        """
        parameters = self.get_params()
        for name in {"n_atoms", "n_init", "max_iter"} & set(parameters):
            checks.check_integer(parameters[name], name, self.least_max_iter if name == "max_iter" else 1)
        if "tol" in parameters:
            checks.check_number(parameters["tol"], "tol")
        X, labels = read_labels(X)
        X, observed = checks.check_tensor(X, mask)
        X = np.asarray(X, dtype=float)
        X = X if observed is None else np.where(observed, X, 0.0)
        given = parameters.get("boolean_modes", parameters.get("mode"))
        modes = checks.check_modes(given, X.shape, None if labels is None else labels.dims)
        with one_thread():
            self._fit(X, observed, modes, labels, checks.make_generator(parameters["random_state"]))
        self.loss_ = squared_loss(X, observed, self.decomposition_)
        return self

    def _fit(self, X: np.ndarray, observed: np.ndarray | None, modes: Modes, labels: Any, rng: Generator) -> None:
        raise NotImplementedError


def impute(X: np.ndarray, observed: np.ndarray | None, step: Callable[..., Any], *, max_iter: int, tol: float) -> Any:
    """Return step(filled, previous) with the missing entries of X repeatedly replaced by its own estimate.

    Each round is a majorization of the loss over the observed entries: it falls whenever `step` lowers the loss of the
    filled tensor. It stops when the filled entries change by no more than `tol` times the norm of X. `previous` is
    None at first; if nothing is missing (`observed` is None), it is a single call. An estimate has `to_tensor`.
    """
    if observed is None:
        return step(X, None)
    filled = np.where(observed, X, X.sum() / observed.sum())
    size, estimate = tol * np.linalg.norm(X), None
    for _ in range(max_iter):
        estimate = step(filled, estimate)
        previous, filled = filled, np.where(observed, X, estimate.to_tensor())
        if np.linalg.norm(filled - previous) <= size:
            break
    return estimate


def squared_loss(X: np.ndarray, observed: np.ndarray | None, estimate: Any) -> float:
    """Return |X - W|^2 / 2 over the observed entries."""
    error = X - estimate.to_tensor()
    return float(np.sum(error**2, where=True if observed is None else observed) / 2)


def unfold(X: np.ndarray, mode: int) -> np.ndarray:
    """Return the unfolding (d_n, other modes)."""
    return np.moveaxis(X, mode, 0).reshape(X.shape[mode], -1)


def refold(matrix: np.ndarray, mode: int, shape: Sequence[int]) -> np.ndarray:
    """Return the tensor with this unfolding along a mode; its own size there is that of the matrix."""
    others = [d for n, d in enumerate(shape) if n != mode]
    return np.moveaxis(matrix.reshape(len(matrix), *others), 0, mode)


def leading_basis(X: np.ndarray, mode: int, rank: int) -> np.ndarray:
    """Return the leading left singular vectors of an unfolding (d_n, r), at most `rank` of them."""
    d = X.shape[mode]
    if d * d > X.size:
        return np.asarray(np.linalg.svd(unfold(X, mode), full_matrices=False)[0][:, :rank])
    first = max(d - rank, 0)
    return np.asarray(scipy.linalg.eigh(contractions.gram(X, mode), subset_by_index=[first, d - 1])[1][:, ::-1])


class Projection(NamedTuple):
    """A tensor in the leading directions of each mode: core x_1 U_1 .. x_N U_N. Without bases, the tensor itself."""

    core: np.ndarray
    bases: list[np.ndarray] | None = None

    def coordinates(self, factors: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the factors (d_n, K) in the coordinates of the core."""
        return list(factors) if self.bases is None else [U.T @ A for U, A in zip(self.bases, factors, strict=True)]

    def mttkrp(self, factors: Sequence[np.ndarray], mode: int) -> np.ndarray:
        """Return X_n (khatri-rao of the factors of the other modes), (d_n, K)."""
        found = contractions.mttkrp(self.core, self.coordinates(factors), mode)
        return found if self.bases is None else self.bases[mode] @ found


def compress(X: np.ndarray, rank: int) -> Projection:
    """Return X projected on its leading directions, at most `rank` along each mode."""
    bases = [leading_basis(X, mode, rank) for mode in range(X.ndim)]
    core = X
    for mode, U in enumerate(bases):
        core = refold(U.T @ unfold(core, mode), mode, core.shape)
    return Projection(np.ascontiguousarray(core), bases)
