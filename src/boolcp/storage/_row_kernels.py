"""Compiled sums of deviances over the rows of an unfolding: arrays in, no checks."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]

SQUARED, HUBER, POISSON, BERNOULLI = 0, 1, 2, 3


@njit(cache=True)
def log_above(m: float, floor: float) -> float:
    """Return log m, continued below the floor by its parabola."""
    if m >= floor:
        return float(np.log(m))
    step = (m - floor) / floor
    return float(np.log(floor) + step - step * step / 2)


@njit(cache=True)
def half_deviance(kind: int, scale: float, x: float, m: float) -> float:
    """Return the loss of one entry above that of a perfect mean."""
    if kind == POISSON:
        known = 0.0 if x == 0 else x * (log_above(x, scale) - log_above(m, scale))
        return m - x + known
    if kind == BERNOULLI:
        on = 0.0 if x == 0 else x * (log_above(x, scale) - log_above(m, scale))
        off = 0.0 if x == 1 else (1 - x) * (log_above(1 - x, scale) - log_above(1 - m, scale))
        return on + off + (max(m - 1, 0.0) / scale) ** 2 / 2  # beyond one there is no probability
    r = abs(x - m)
    if kind == HUBER and r >= scale:
        return scale * r - scale * scale / 2
    return r * r / 2


@njit(cache=True)
def row_sums(kind: int, scale: float, X: Array, W: Array, M: Array) -> Array:
    """Return half the deviance of each row of X (d, c) with means M; weights W (d, c), or (0, 0) if all are one."""
    d, c = X.shape
    total = np.zeros(d)
    for i in range(d):
        for j in range(c):
            value = half_deviance(kind, scale, X[i, j], M[i, j])
            total[i] += value if len(W) == 0 else W[i, j] * value
    return total


@njit(cache=True)
def flip_sums(kind: int, scale: float, X: Array, W: Array, M: Array, V: Array, bits: Array) -> Array:
    """Return the sums of `row_sums`, (d, K), for means M with bit k of each row flipped: M + V_k or M - V_k."""
    (d, c), K = X.shape, len(V)
    total = np.zeros((d, K))
    for i in range(d):
        for k in range(K):
            step = 1.0 - 2.0 * bits[i, k]
            for j in range(c):
                value = half_deviance(kind, scale, X[i, j], M[i, j] + step * V[k, j])
                total[i, k] += value if len(W) == 0 else W[i, j] * value
    return total
