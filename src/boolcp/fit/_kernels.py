"""Compiled inner loops of the fit: arrays in, a number out, no checks."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

MAX_FLIPS = 100  # flips of a row for each of its bits: only a form that is a rounding error needs more
MAX_SHRINKS = 2000  # largest number of sweeps over the rows of a group lasso; not tuned


@njit(cache=True)
def descend_bits(S: NDArray[np.float64], Q: NDArray[np.float64], B: NDArray[np.float64]) -> float:
    """Flip bits and pairs of bits of the rows of B (d, K) in place while b'S_i b - 2 q_i'b falls; return the fall.

    Only the symmetric part of S_i enters: the two triangles of a form that is a rounding error differ, and flips
    that use one or the other would cycle.
    """
    d, K = B.shape
    fall = 0.0
    slope = np.empty(K)
    for i in range(d):
        for k in range(K):
            slope[k] = -2.0 * Q[i, k]
            for l in range(K):
                slope[k] += (S[i, k, l] + S[i, l, k]) * B[i, l]
        for _ in range(MAX_FLIPS * K):
            best, first, second = -1e-13 * (1.0 + np.abs(slope).max()), -1, -1
            for k in range(K):
                step_k = 1.0 - 2.0 * B[i, k]
                change_k = step_k * slope[k] + S[i, k, k]
                if change_k < best:
                    best, first, second = change_k, k, -1
                for l in range(k):
                    step_l = 1.0 - 2.0 * B[i, l]
                    change = change_k + step_l * slope[l] + S[i, l, l] + step_k * step_l * (S[i, k, l] + S[i, l, k])
                    if change < best:
                        best, first, second = change, k, l
            if first < 0:
                break
            fall -= best
            for k in (first, second):
                if k >= 0:
                    step = 1.0 - 2.0 * B[i, k]
                    B[i, k] += step
                    for l in range(K):
                        slope[l] += step * (S[i, l, k] + S[i, k, l])
    return fall


@njit(cache=True)
def shrink_rows(
    G: NDArray[np.float64], Q: NDArray[np.float64], A: NDArray[np.float64], penalties: NDArray[np.float64], tol: float
) -> float:
    """Minimize tr(A'GA) / 2 - <Q, A> + sum_k penalties[k] |A_k| over the rows of A (K, r) in place, row after row.

    G (K, K) has a positive diagonal. Sweeps end when no row moves by more than tol; returns the last largest move.
    """
    K, r = A.shape
    row = np.empty(r)
    largest = 0.0
    for _ in range(MAX_SHRINKS):
        largest = 0.0
        for k in range(K):
            for c in range(r):
                row[c] = Q[k, c] + G[k, k] * A[k, c]
                for l in range(K):
                    row[c] -= G[k, l] * A[l, c]
            size = np.sqrt(np.sum(row * row))
            factor = max(0.0, 1 - penalties[k] / size) / G[k, k] if size > 0 else 0.0
            moved = 0.0
            for c in range(r):
                moved += (factor * row[c] - A[k, c]) ** 2
                A[k, c] = factor * row[c]
            largest = max(largest, np.sqrt(moved))
        if largest <= tol:
            break
    return largest
