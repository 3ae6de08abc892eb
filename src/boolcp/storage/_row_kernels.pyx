"""Compiled sums of deviances over the rows of an unfolding: arrays in, no checks."""

import numpy as np

from libc.math cimport fabs, log

cpdef enum:
    SQUARED, HUBER, POISSON, BERNOULLI

ctypedef Py_ssize_t Size


cdef double log_above(double m, double floor) noexcept nogil:
    """Return log m, continued below the floor by its parabola."""
    if m >= floor:
        return log(m)
    step = (m - floor) / floor
    return log(floor) + step - step * step / 2


cdef inline double surprise(double x, double m, double floor) noexcept nogil:
    """Return x (log x - log m), by one logarithm where both are above the floor."""
    if x == 0:
        return 0.0
    return x * (log(x / m) if x >= floor and m >= floor else log_above(x, floor) - log_above(m, floor))


cdef inline double half_deviance(int kind, double scale, double x, double m) noexcept nogil:
    """Return the loss of one entry above that of a perfect mean."""
    if kind == POISSON:
        return m - x + surprise(x, m, scale)
    if kind == BERNOULLI:
        beyond = max(m - 1, 0.0) / scale  # one, where there is no probability
        return surprise(x, m, scale) + surprise(1 - x, 1 - m, scale) + beyond * beyond / 2
    r = fabs(x - m)
    if kind == HUBER and r >= scale:
        return scale * r - scale * scale / 2
    return r * r / 2


def row_sums(int kind, double scale, const double[:, ::1] X, const double[:, ::1] W, const double[:, ::1] M):
    """Return half the deviance of each row of X (d, c) with means M; weights W (d, c), or (0, 0) if all are one."""
    return flip_sums(kind, scale, X, W, M, np.zeros((1, X.shape[1])), np.zeros((len(X), 1)))[:, 0]


def flip_sums(
    int kind, double scale, const double[:, ::1] X, const double[:, ::1] W, const double[:, ::1] M,
    const double[:, ::1] V, const double[:, ::1] bits
):
    """Return the sums of `row_sums`, (d, K), for means M with bit k of each row flipped: M + V_k or M - V_k."""
    cdef Size i, j, k
    found = np.empty((len(X), len(V)))
    cdef double[:, ::1] sums = found
    with nogil:
        for i in range(X.shape[0]):
            for k in range(V.shape[0]):
                total, step = 0.0, 1.0 - 2.0 * bits[i, k]
                for j in range(X.shape[1]):
                    value = half_deviance(kind, scale, X[i, j], M[i, j] + step * V[k, j])
                    total += W[i, j] * value if W.shape[0] else value
                sums[i, k] = total
    return found
