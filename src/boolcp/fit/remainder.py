"""What atoms leave of incomplete data, as a low-rank estimate: it helps to fill in entries, and no atom ever sees it.

Missing entries are filled in and singular values are shrunk in turn, along each mode, with a threshold that falls
(Mazumder, Hastie and Tibshirani, 2010). Thresholds are judged on observed entries that are held out: where no estimate
predicts them, there is none.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

FALL = 0.7  # of the threshold from one estimate to the next; not tuned
N_THRESHOLDS = 16  # at most; not tuned
N_ROUNDS = 12  # of filling in and shrinking for each threshold; not tuned
PATIENCE = 2  # thresholds in a row without a lower error on held-out entries that end a mode; not tuned
HELD_OUT = 0.1  # share of the observed entries by which thresholds are judged; not tuned
MOST = 0.9  # of the observed entries as degrees of freedom
MAX_SIDE = 2048  # shorter side of an unfolding that is tried; not tuned


def remainder(R: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Return a low-rank estimate of R and its degrees of freedom; None if held-out entries are not predicted."""
    held_out = observed & (np.random.default_rng(0).random(R.shape) < HELD_OUT)
    if not held_out.any() or not (observed & ~held_out).any():
        return None
    truth = R[held_out]
    best, choice = float(truth @ truth), None
    for mode, d in enumerate(R.shape):
        if min(d, R.size // d) > MAX_SIDE:
            continue
        lowest, n_worse = np.inf, 0
        for count, (estimate, _) in enumerate(estimates(R, observed & ~held_out, mode)):
            found = estimate[held_out]
            share = float(np.clip(found @ truth / max(found @ found, 1e-300), 0.0, 1.0))
            error = float(np.sum((truth - share * found) ** 2))
            if error < best:
                best, choice = error, (mode, count, share)
            n_worse = n_worse + 1 if error >= lowest else 0
            lowest = min(lowest, error)
            if n_worse >= PATIENCE:
                break
    if choice is None:
        return None
    mode, count, share = choice
    estimate, dof = next(islice(estimates(R, observed, mode), count, None))
    return share * estimate, share * min(dof, MOST * np.count_nonzero(observed))


def estimates(R: np.ndarray, observed: np.ndarray, mode: int) -> Iterator[tuple[np.ndarray, float]]:
    """Yield low-rank estimates along one mode, the threshold of the singular values falling; and their freedom."""
    X, known = (np.moveaxis(A, mode, 0).reshape(R.shape[mode], -1) for A in (R, observed))
    X, known = (X.T, known.T) if (is_long := len(X) > X.shape[1]) else (X, known)
    X, estimate = np.where(known, X, 0.0), np.zeros(X.shape)
    threshold = FALL * np.linalg.norm(X, 2)
    for _ in range(N_THRESHOLDS):
        for _ in range(N_ROUNDS):
            filled = np.where(known, X, estimate)
            values, U = np.linalg.eigh(filled @ filled.T)
            kept = np.maximum(1 - threshold / np.sqrt(np.maximum(values, 1e-300)), 0.0)
            before, estimate = estimate, (U * kept) @ (U.T @ filled)
            if np.linalg.norm(estimate - before) <= 1e-4 * np.linalg.norm(estimate):
                break
        rows = estimate.T if is_long else estimate
        others = np.delete(R.shape, mode)
        yield np.moveaxis(rows.reshape(-1, *others), 0, mode), float(kept.sum() * (sum(X.shape) - kept.sum()))
        threshold *= FALL
