"""What atoms leave of incomplete data, as a low-rank estimate: it helps to fill in entries, and no atom ever sees it.

The estimate is judged on observed entries that are held out: where it does not predict them, there is none.
"""

import numpy as np

RANKS = (1, 2, 4, 8, 16, 32)  # that are tried along each mode, as long as the error on held-out entries falls
N_ROUNDS = 12  # of filling in and projecting for each rank; not tuned
HELD_OUT = 0.1  # share of the observed entries by which ranks are judged; not tuned
MAX_SIDE = 2048  # shorter side of an unfolding that is tried; not tuned


def remainder(R: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Return a low-rank estimate of what is left, R, from its observed entries, and its degrees of freedom.

    None if no estimate predicts held-out entries better than zero.
    """
    held_out = observed & (np.random.default_rng(0).random(R.shape) < HELD_OUT)
    if not held_out.any() or not (observed & ~held_out).any():
        return None
    truth = R[held_out]
    best, choice = float(truth @ truth), None
    for mode, d in enumerate(R.shape):
        if min(d, R.size // d) > MAX_SIDE:
            continue
        estimate, lowest = np.zeros(R.shape), np.inf
        for rank in [r for r in RANKS if r < min(d, R.size // d)]:
            estimate = low_rank(R, observed & ~held_out, mode, rank, estimate)
            found = estimate[held_out]
            share = kept(found, truth)
            error = float(np.sum((truth - share * found) ** 2))
            if error >= lowest:
                break
            lowest = error
            if error < best:
                best, choice = error, (mode, rank, share)
    if choice is None:
        return None
    mode, rank, share = choice
    estimate = low_rank(R, observed, mode, rank, np.zeros(R.shape), N_ROUNDS * (1 + RANKS.index(rank)))
    d, c = R.shape[mode], R.size // R.shape[mode]
    return share * estimate, share * rank * (d + c - rank)


def kept(found: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of an estimate of held-out entries that predicts them best, from 0 to 1."""
    size = float(found @ found)
    return float(np.clip(found @ truth / size, 0.0, 1.0)) if size > 0 else 0.0


def low_rank(
    R: np.ndarray, observed: np.ndarray, mode: int, rank: int, start: np.ndarray, n_rounds: int = N_ROUNDS
) -> np.ndarray:
    """Return the estimate of low rank along one mode after rounds of filling in what is missing and projecting."""
    estimate = start
    for _ in range(n_rounds):
        Y = np.moveaxis(np.where(observed, R, estimate), mode, 0)
        X = Y.reshape(len(Y), -1)
        if X.shape[0] <= X.shape[1]:
            U = np.linalg.eigh(X @ X.T)[1][:, -rank:]
            X = U @ (U.T @ X)
        else:
            V = np.linalg.eigh(X.T @ X)[1][:, -rank:]
            X = (X @ V) @ V.T
        estimate = np.moveaxis(X.reshape(Y.shape), 0, mode)
    return estimate
