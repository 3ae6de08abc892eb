"""Compiled sums of deviances over the rows of an unfolding: arrays in, no checks."""

import numpy as np

from libc.math cimport fabs, log

cpdef enum:
    SQUARED, HUBER, POISSON, BERNOULLI

ctypedef Py_ssize_t Size


cdef double log_above(double m, double floor) noexcept nogil:
    """Return log m, continued below the floor by its parabola."""
    step = min(m - floor, 0.0) / floor
    return log(max(m, floor)) + step - step * step / 2


cdef inline double slope_above(double m, double floor) noexcept nogil:
    """Return the derivative of `log_above`."""
    return 1 / m if m >= floor else (2 - m / floor) / floor


cdef inline double surprise(double x, double m, double floor) noexcept nogil:
    """Return x (log x - log m), by one logarithm where both are above the floor."""
    return x * (log(x / m) if x >= floor and m >= floor else log_above(x, floor) - log_above(m, floor)) if x else 0.0


cdef inline double half_deviance(int kind, double scale, double x, double m) noexcept nogil:
    """Return the loss of a count or a bit above that of a perfect mean."""
    if kind == POISSON:
        return m - x + surprise(x, m, scale)
    beyond = max(m - 1, 0.0) / scale  # one, where there is no probability
    return surprise(x, m, scale) + surprise(1 - x, 1 - m, scale) + beyond * beyond / 2


cdef inline double chance(int kind, double scale, double x, double m) noexcept nogil:
    """Return p whose -log p is the half deviance of a bit, or less m - x that of a small count; 0 for all others."""
    cdef double powers[4]
    if kind == BERNOULLI:
        p = x * m + (1 - x) * (1 - m)
        return p if (x * (1 - x) == 0) & (scale <= p) & (p <= 1) else 0.0
    k = <Size> x
    if k != x or not 0 <= k <= 3 or scale > 1 or m > 1e50 or (k > 0) & (m < scale):
        return 0.0
    powers[0], powers[1], powers[2], powers[3] = 1.0, m, m * m / 4, m * m * m / 27  # (m / k)^k, by no branch
    return powers[k]


cdef double row_sum(int kind, double scale, const double* x, const double* w, const double* m, const double* v,
                    double step, Size n, double most) noexcept nogil:
    """Return half the deviance of n entries with means m + step v; above `most` it may end early."""
    cdef Size j
    cdef double total = 0.0, product = 1.0, mean, weight, r, c
    for j in range(n):
        mean, weight = m[j] + step * v[j], w[j] if w else 1.0
        if kind == SQUARED or kind == HUBER:
            r = fabs(x[j] - mean)
            c = r if kind == SQUARED or r < scale else scale
            total += weight * c * (r - c / 2)
        elif weight != 0:
            r = chance(kind, scale, x[j], mean) if weight == 1 else 0.0
            product *= r if r > 0 else 1.0  # one logarithm for many means
            if r == 0 or kind == POISSON:
                total += mean - x[j] if r > 0 else weight * half_deviance(kind, scale, x[j], mean)
        if j % 256 == 255 or not 1e-50 <= product <= 1e50:
            total, product = total - log(product), 1.0
            if total > most:
                break
    return total - log(product)


def row_sums(kind, scale, X, W, M, rows=None, most=None):
    """Return half the deviance of each row, or of some, of X (d, c) with means M; weights W (0, 0) if all are one."""
    return flip_sums(kind, scale, X, W, M, np.zeros((1, X.shape[1])), np.zeros((len(M), 1)), most, rows)[:, 0]


def flip_sums(
    int kind, double scale, const double[:, ::1] X, const double[:, ::1] W, const double[:, ::1] M,
    const double[:, ::1] V, const double[:, ::1] bits, most=None, rows=None
):
    """Return the sums of `row_sums`, (d, K), for means M with bit k of each row flipped: M + V_k or M - V_k."""
    cdef Size i, k, at
    cdef const Size[::1] places = np.arange(len(M), dtype=np.intp) if rows is None else rows
    cdef const double[::1] tops = np.full(len(M), np.inf) if most is None else most
    found = np.empty((len(M), len(V)))
    cdef double[:, ::1] sums = found
    with nogil:
        for i in range(M.shape[0]):
            at, w = places[i], &W[places[i], 0] if W.shape[0] else NULL
            for k in range(V.shape[0]):
                step = 1.0 - 2.0 * bits[i, k]
                sums[i, k] = row_sum(kind, scale, &X[at, 0], w, &M[i, 0], &V[k, 0], step, X.shape[1], tops[i])
    return found


def near_rates(int kind, double c, const double[::1] x, const double[::1] m):
    """Return targets and weights of the squares that touch the loss of rates or probabilities at means m, (n,)."""
    cdef Size j
    targets, weights = np.empty(len(x)), np.empty(len(x))
    cdef double[::1] t = targets, v = weights
    with nogil:
        for j in range(x.shape[0]):
            other = 1.0 - m[j] if kind == BERNOULLI else 1.0 + c
            t[j], v[j] = x[j], 1 / (max(m[j], c) * (max(other, c) if kind == BERNOULLI else 1.0))
            if m[j] < c or other < c:  # beyond a floor
                over = max(-other, 0.0) / c
                v[j] += 1 / (c * c) if over > 0 else 0.0
                slope = (1 - x[j]) * slope_above(other, c) + over / c if kind == BERNOULLI else 1.0
                t[j] = m[j] - (slope - x[j] * slope_above(m[j], c)) / v[j]
    return targets, weights
