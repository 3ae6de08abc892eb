"""What all baselines do with their input: read the tensor and its mask, and fill in what is missing."""

import numpy as np

from boolcp import checks
from boolcp.result.labels import read_labels


def read(X, mask):
    """Return X as float64 with zeros where entries are missing, the mask (None if all are observed), and labels."""
    X, labels = read_labels(X)
    X, observed = checks.check_tensor(X, mask)
    X = np.asarray(X, dtype=float)
    return (X, None, labels) if observed is None else (np.where(observed, X, 0.0), observed, labels)


def impute(X, observed, step, *, max_iter, tol):
    """Return step(filled, previous) with the missing entries of X replaced by its own estimate again and again.

    Each round is a majorization of the loss over the observed entries: it falls whenever `step` lowers the loss
    of the filled tensor. Stops when the filled entries move by no more than `tol` times the size of X.

    Parameters
    ----------
    X : ndarray
        The tensor, with zeros where entries are missing.
    observed : ndarray of bool or None
        True where an entry is observed; None makes it a single call of `step`.
    step : callable
        Takes the filled tensor and the previous estimate (None at first), returns an estimate with `to_tensor()`.
    """
    if observed is None:
        return step(X, None)
    filled = np.where(observed, X, X.sum() / observed.sum())
    size, estimate = tol * np.linalg.norm(X), None
    for _ in range(max_iter):
        estimate = step(filled, estimate)
        W = estimate.to_tensor()
        new = np.where(observed, X, W)
        change = np.linalg.norm(new - filled)
        filled = new
        if change <= size:
            break
    return estimate


def squared_loss(X, observed, estimate):
    """Return |X - W|^2 / 2 over the observed entries."""
    error = X - estimate.to_tensor()
    if observed is not None:
        error = error[observed]
    return float(np.vdot(error, error) / 2)
