"""Compiled inner loops of normal equations over listed entries, and over slabs with NaN: arrays in, no checks."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def accumulate_rows(
    indices: np.ndarray,
    values: np.ndarray,
    shares: np.ndarray,
    stacked: np.ndarray,
    mode: int,
    H: np.ndarray,
    P: np.ndarray,
    with_gram: bool,
) -> None:
    """Add x_e k_e to P[i] and the lower half of w_e k_e k_e' to H[i] for each entry e of slice i along `mode`.

    w_e is its share. k_e is the product over the other modes n of row indices[e, n] of stacked[n], which holds factors
    (N, max d, K).
    """
    n_entries, n_modes = indices.shape
    K = P.shape[1]
    product = np.empty(K)
    for e in range(n_entries):
        product[:] = 1.0
        for n in range(n_modes):
            if n != mode:
                row = stacked[n, indices[e, n]]
                for k in range(K):
                    product[k] *= row[k]
        i = indices[e, mode]
        for k in range(K):
            P[i, k] += values[e] * product[k]
            if with_gram:
                for l in range(k + 1):
                    H[i, k, l] += shares[e] * product[k] * product[l]


@njit(cache=True, nogil=True)
def clear_missing(X: np.ndarray, scale: float, observed: np.ndarray) -> None:
    """Replace NaN of X (n,) by zero and multiply all others by `scale`; tell which were observed."""
    for i in range(X.size):
        observed[i] = X[i] == X[i]
        X[i] = X[i] * scale if observed[i] else 0.0


@njit(cache=True, nogil=True)
def move_near(X: np.ndarray, W: np.ndarray, scale: float, size: float) -> None:
    """Replace x of X (n,) by w + scale (x - w), cut off at `size` around w, and NaN by w."""
    for i in range(X.size):
        away = scale * (X[i] - W[i])
        X[i] = W[i] if X[i] != X[i] else W[i] + min(max(away, -size), size)
