"""What all baselines do with their input: read the tensor and its mask, and fill in what is missing."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp import checks
from boolcp.result.labels import Labels, read_labels


def read(X: Any, mask: ArrayLike | None) -> tuple[np.ndarray, np.ndarray | None, Labels | None]:
    """Return X as float64 with zeros where entries are missing, the mask (None if all are observed), and labels."""
    X, labels = read_labels(X)
    X, observed = checks.check_tensor(X, mask)
    X = np.asarray(X, dtype=float)
    return (X, None, labels) if observed is None else (np.where(observed, X, 0.0), observed, labels)


def impute(
    X: np.ndarray, observed: np.ndarray | None, step: Callable[[np.ndarray, Any], Any], *, max_iter: int, tol: float
) -> Any:
    """Return step(filled, previous) with the missing entries of X repeatedly replaced by its own estimate.

    Each round is a majorization of the loss over the observed entries: it falls whenever `step` lowers the loss of the
    filled tensor. It stops when the filled entries change by no more than `tol` times the norm of X. `previous` is
    None at first; if nothing is missing (`observed` is None), it is a single call. An estimate has `to_tensor`.
    """
    if observed is None:
        return step(X, None)
    filled = np.where(observed, X, X.sum() / observed.sum())
    size = tol * np.linalg.norm(X)
    estimate = None
    for _ in range(max_iter):
        estimate = step(filled, estimate)
        new = np.where(observed, X, estimate.to_tensor())
        change = np.linalg.norm(new - filled)
        filled = new
        if change <= size:
            break
    return estimate


def squared_loss(X: np.ndarray, observed: np.ndarray | None, estimate: Any) -> float:
    """Return |X - W|^2 / 2 over the observed entries."""
    error = X - estimate.to_tensor()
    if observed is not None:
        error = error[observed]
    return float(np.vdot(error, error) / 2)
