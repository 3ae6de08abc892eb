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


cdef double half_deviance(int kind, double scale, double x, double m) noexcept nogil:
    """Return the loss of one entry above that of a perfect mean."""
    if kind == POISSON:
        known = 0.0 if x == 0 else x * (log_above(x, scale) - log_above(m, scale))
        return m - x + known
    if kind == BERNOULLI:
        on = 0.0 if x == 0 else x * (log_above(x, scale) - log_above(m, scale))
        off = 0.0 if x == 1 else (1 - x) * (log_above(1 - x, scale) - log_above(1 - m, scale))
        beyond = max(m - 1, 0.0) / scale  # one, where there is no probability
        return on + off + beyond * beyond / 2
    r = fabs(x - m)
    if kind == HUBER and r >= scale:
        return scale * r - scale * scale / 2
    return r * r / 2


def row_sums(int kind, double scale, const double[:, ::1] X, const double[:, ::1] W, const double[:, ::1] M):
    """Return half the deviance of each row of X (d, c) with means M; weights W (d, c), or (0, 0) if all are one."""
    cdef Size i, j
    sums = np.zeros(len(X))
    cdef double[::1] total = sums
    with nogil:
        for i in range(X.shape[0]):
            for j in range(X.shape[1]):
                value = half_deviance(kind, scale, X[i, j], M[i, j])
                total[i] += value if W.shape[0] == 0 else W[i, j] * value
    return sums


def flip_sums(
    int kind, double scale, const double[:, ::1] X, const double[:, ::1] W, const double[:, ::1] M, const double[:, ::1] V,
    const double[:, ::1] bits
):
    """Return the sums of `row_sums`, (d, K), for means M with bit k of each row flipped: M + V_k or M - V_k."""
    cdef Size i, j, k
    sums = np.zeros((len(X), len(V)))
    cdef double[:, ::1] total = sums
    with nogil:
        for i in range(X.shape[0]):
            for k in range(V.shape[0]):
                step = 1.0 - 2.0 * bits[i, k]
                for j in range(X.shape[1]):
                    value = half_deviance(kind, scale, X[i, j], M[i, j] + step * V[k, j])
                    total[i, k] += value if W.shape[0] == 0 else W[i, j] * value
    return sums
