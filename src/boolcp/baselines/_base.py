"""What all baselines share: reading and checking their input, and the loss."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from boolcp import checks
from boolcp.result.labels import read_aligned
from boolcp.system import one_thread

Modes = Sequence[int]
EXTRA_RANK = 10  # directions of each mode kept beyond the number of atoms while the starts are compared; not tuned


class Baseline(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator whose `_fit` sets `decomposition_` from a tensor with zeros where entries are missing."""

    def fit(self, X: Any, y: None = None, *, mask: ArrayLike | None = None) -> Self:
        """Decompose X (array-like of order N >= 2, NaN where missing; mask True where observed)."""
        parameters = self.get_params()
        for name in {"n_atoms", "n_init", "max_iter"} & set(parameters):
            checks.check_integer(parameters[name], name, 1)
        if "tol" in parameters:
            checks.check_number(parameters["tol"], "tol")
        X, mask, _, labels = read_aligned(X, mask)
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


def squared_loss(X: np.ndarray, observed: np.ndarray | None, estimate: Any) -> float:
    """Return |X - W|^2 / 2 over the observed entries."""
    error = X - estimate.to_tensor()
    return float(np.sum(error**2, where=True if observed is None else observed) / 2)
