"""Compiled inner loops of losses and nonnegative parts: arrays in, numbers out, no checks."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

SQUARED, HUBER, POISSON, BERNOULLI = 0, 1, 2, 3
ROUNDING = 1e-13  # gradient, relative to its terms, that counts as zero
MAX_PATTERN_BITS = 4  # bits of a row whose patterns are all tried; more are flipped one by one

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@njit(cache=True, fastmath=True)
def log_terms(m: float, floor: float) -> tuple[float, float, float]:
    """Return -log m with two derivatives; below `floor` a parabola continues it, so that it is finite everywhere."""
    if m >= floor:
        return -np.log(m), -1.0 / m, 1.0 / (m * m)
    away = (m - floor) / floor
    return -np.log(floor) - away + 0.5 * away * away, (away - 1.0) / floor, 1.0 / (floor * floor)


@njit(cache=True, fastmath=True)
def entry_terms(kind: int, scale: float, x: float, m: float) -> tuple[float, float, float]:
    """Return the loss of one entry x with mean m, its derivative, and a curvature that majorizes or is the second one.

    `scale` is the threshold of Huber's loss and the floor of logarithms. The linear part m of Poisson is left out.
    """
    if kind == SQUARED:
        return 0.5 * (m - x) ** 2, m - x, 1.0
    if kind == HUBER:
        away = m - x
        size = abs(away)
        if size <= scale:
            return 0.5 * away * away, away, 1.0
        return scale * (size - 0.5 * scale), scale * np.sign(away), scale / size
    if kind == POISSON:
        if x == 0.0:
            return 0.0, 0.0, 0.0
        value, slope, curve = log_terms(m, scale)
        return x * value, x * slope, x * curve
    value, slope, curve = 0.0, 0.0, 0.0
    if x > 0.0:
        value, slope, curve = log_terms(m, scale)
        value, slope, curve = x * value, x * slope, x * curve
    if x < 1.0:
        other, other_slope, other_curve = log_terms(1.0 - m, scale)
        value += (1.0 - x) * other
        slope -= (1.0 - x) * other_slope
        curve += (1.0 - x) * other_curve
    if m > 1.0:  # no probability: a steep parabola
        value += 0.5 * (m - 1.0) ** 2 / scale**2
        slope += (m - 1.0) / scale**2
        curve += 1.0 / scale**2
    return value, slope, curve


@njit(cache=True, fastmath=True)
def all_terms(kind: int, scale: float, x: Floats, m: Floats) -> tuple[Floats, Floats]:
    """Return the loss of entries x with means m, and its derivative by m, (n,) each."""
    values, slopes = np.empty(len(x)), np.empty(len(x))
    for e in range(len(x)):
        values[e], slopes[e], _ = entry_terms(kind, scale, x[e], m[e])
        if kind == POISSON:
            values[e] += m[e]
            slopes[e] += 1.0
    return values, slopes


@njit(cache=True, fastmath=True)
def total_loss(kind: int, scale: float, values: Floats, weights: Floats, means: Floats) -> float:
    """Return the loss of all entries."""
    total = 0.0
    for e in range(len(values)):
        total += weights[e] * entry_terms(kind, scale, values[e], means[e])[0]
        if kind == POISSON:
            total += weights[e] * means[e]
    return total


# The entries of a tensor are sorted by row of one mode, those of row i from starts[i] on. B holds the products of the
# other factors at each of them, (n, K), or those that all rows of a complete tensor share.
How = tuple[int, float, Floats, Floats, Ints, Floats]  # kind of loss, its scale, values, weights, starts, B


@njit(cache=True)
def multiply_rows(A: Floats, places: Ints, B: Floats) -> None:
    """Multiply row e of B by row places[e] of A, in place."""
    for e in range(len(places)):
        for k in range(B.shape[1]):
            B[e, k] *= A[places[e], k]


@njit(cache=True, fastmath=True)
def mean_of(A: Floats, i: int, B: Floats, e: int) -> float:
    """Return the inner product of row i of A and row e of B, the mean of an entry."""
    total = 0.0
    for k in range(A.shape[1]):
        total += A[i, k] * B[e, k]
    return total


@njit(cache=True, fastmath=True)
def row_quadratics(how: How, A: Floats, F: Floats, G: Floats, H: Floats) -> None:
    """Write loss F (d,), gradient G (d, K) and curvature H (d, K, K) of each row of A."""
    kind, scale, values, weights, starts, B = how
    d, K = A.shape
    F[:], G[:], H[:] = 0.0, 0.0, 0.0
    for i in range(d):
        first = starts[i] if len(B) < len(values) else 0
        for e in range(starts[i], starts[i + 1]):
            at = e - first
            value, slope, curve = entry_terms(kind, scale, values[e], mean_of(A, i, B, at))
            F[i] += weights[e] * value
            for k in range(K):
                G[i, k] += weights[e] * slope * B[at, k]
                half = weights[e] * curve * B[at, k]
                for l in range(k + 1):
                    H[i, k, l] += half * B[at, l]
        for k in range(K):
            for l in range(k):
                H[i, l, k] = H[i, k, l]


@njit(cache=True, fastmath=True)
def row_losses(how: How, A: Floats, wanted: Bools, F: Floats) -> None:
    """Write the loss of each wanted row of A to F (d,)."""
    kind, scale, values, weights, starts, B = how
    for i in range(len(A)):
        if not wanted[i]:
            continue
        F[i] = 0.0
        first = starts[i] if len(B) < len(values) else 0
        for e in range(starts[i], starts[i + 1]):
            F[i] += weights[e] * entry_terms(kind, scale, values[e], mean_of(A, i, B, e - first))[0]


@njit(cache=True, fastmath=True)
def flip_losses(how: How, A: Floats, bits: Ints, rise: Floats) -> None:
    """Write the rise of the loss when one of the columns `bits` of A is flipped in each row to `rise` (d, bits)."""
    kind, scale, values, weights, starts, B = how
    rise[:] = 0.0
    for i in range(len(A)):
        first = starts[i] if len(B) < len(values) else 0
        for e in range(starts[i], starts[i + 1]):
            m = mean_of(A, i, B, e - first)
            value = entry_terms(kind, scale, values[e], m)[0]
            for j in range(len(bits)):
                step = (1.0 - 2.0 * A[i, bits[j]]) * B[e - first, bits[j]]
                if step != 0.0:
                    rise[i, j] += weights[e] * (entry_terms(kind, scale, values[e], m + step)[0] - value)


@njit(cache=True)
def solve_passive(H: Floats, p: Floats, x: Floats, passive: Bools, s: Floats, L: Floats) -> None:
    """Write to s the solution of H s = p in the passive columns, the others as in x; L (K, K) is scratch.

    By Cholesky; a column that those before it determine has no say, and keeps its value.
    """
    K = len(p)
    for k in range(K):
        s[k] = x[k]
    for k in range(K):
        if not passive[k]:
            continue
        for l in range(k + 1):
            if passive[l]:
                total = H[k, l]
                for j in range(l):
                    if passive[j]:
                        total -= L[k, j] * L[l, j]
                if k == l:
                    L[k, k] = np.sqrt(total) if total > 1e-12 * H[k, k] else 0.0
                else:
                    L[k, l] = total / L[l, l] if L[l, l] > 0.0 else 0.0
    for k in range(K):
        if passive[k]:
            total = p[k]
            for l in range(K):
                if not passive[l] or L[l, l] == 0.0:
                    total -= H[k, l] * x[l]
            for j in range(k):
                if passive[j]:
                    total -= L[k, j] * s[j]
            s[k] = total / L[k, k] if L[k, k] > 0.0 else 0.0
    for k in range(K - 1, -1, -1):
        if passive[k]:
            total = s[k]
            for j in range(k + 1, K):
                if passive[j]:
                    total -= L[j, k] * s[j] if L[j, j] > 0.0 else 0.0
            s[k] = total / L[k, k] if L[k, k] > 0.0 else 0.0
    for k in range(K):
        if passive[k] and L[k, k] == 0.0:
            s[k] = x[k]


@njit(cache=True)
def nonnegative_row(H: Floats, p: Floats, free: Bools, nonnegative: Bools, x: Floats, L: Floats, s: Floats) -> None:
    """Minimize x'Hx / 2 - p'x in place over the free columns, those that are `nonnegative` at least 0.

    The active set method of Lawson and Hanson, from the positive entries of x.
    """
    K = len(p)
    passive = np.zeros(K, dtype=np.bool_)
    for k in range(K):
        if free[k]:
            if nonnegative[k] and x[k] <= 0.0:
                x[k] = 0.0
            else:
                passive[k] = True
    for _ in range(10 * K + 10):
        while True:
            solve_passive(H, p, x, passive, s, L)
            step, out = 1.0, -1
            for k in range(K):
                if passive[k] and nonnegative[k] and s[k] <= 0.0:
                    share = x[k] / (x[k] - s[k]) if x[k] > s[k] else 0.0
                    if share < step:
                        step, out = share, k
            for k in range(K):
                if passive[k]:
                    x[k] += step * (s[k] - x[k])
            if out < 0:
                break
            x[out] = 0.0
            passive[out] = False
        steepest, enter = 0.0, -1
        for k in range(K):
            if free[k] and not passive[k]:
                slope, size = p[k], abs(p[k])
                for l in range(K):
                    slope -= H[k, l] * x[l]
                    size += abs(H[k, l] * x[l])
                if slope > ROUNDING * size and H[k, k] > 0.0 and slope / np.sqrt(H[k, k]) > steepest:
                    steepest, enter = slope / np.sqrt(H[k, k]), k
        if enter < 0:
            return
        passive[enter] = True


@njit(cache=True)
def row_value(H: Floats, p: Floats, x: Floats) -> float:
    """Return x'Hx / 2 - p'x."""
    total = 0.0
    for k in range(len(x)):
        inner = 0.0
        for l in range(len(x)):
            inner += H[k, l] * x[l]
        total += x[k] * (0.5 * inner - p[k])
    return total


@njit(cache=True)
def decide_nonnegative(
    H: Floats, P: Floats, boolean: Bools, nonnegative: Bools, A: Floats, is_fixed: bool = False
) -> None:
    """Minimize a'H_i a / 2 - p_i'a over the rows of A in place: bits where `boolean`, else real, some nonnegative.

    H is (1, K, K), shared, or (d, K, K). All patterns of few bits are tried; more bits are flipped one by one from the
    current ones, the real columns solved for again each time. If `is_fixed`, bits stay as they are.
    """
    d, K = A.shape
    free = ~boolean
    bits = np.flatnonzero(boolean)
    L, s, x, best = np.zeros((K, K)), np.empty(K), np.empty(K), np.empty(K)
    for i in range(d):
        Hi = H[i] if len(H) > 1 else H[0]
        best[:] = A[i]
        nonnegative_row(Hi, P[i], free, nonnegative, best, L, s)
        lowest = row_value(Hi, P[i], best)
        if is_fixed:
            A[i] = best
            continue
        if len(bits) <= MAX_PATTERN_BITS:
            for pattern in range(2 ** len(bits)):
                x[:] = A[i]
                for b in range(len(bits)):
                    x[bits[b]] = float(pattern >> b & 1)
                nonnegative_row(Hi, P[i], free, nonnegative, x, L, s)
                value = row_value(Hi, P[i], x)
                if value < lowest - 1e-14 * abs(lowest):
                    lowest = value
                    best[:] = x
        else:
            for _ in range(4 * len(bits)):
                flipped = -1
                for b in range(len(bits)):
                    x[:] = best
                    x[bits[b]] = 1.0 - x[bits[b]]
                    nonnegative_row(Hi, P[i], free, nonnegative, x, L, s)
                    value = row_value(Hi, P[i], x)
                    if value < lowest - 1e-14 * abs(lowest):
                        lowest, flipped = value, b
                if flipped < 0:
                    break
                best[bits[flipped]] = 1.0 - best[bits[flipped]]
                nonnegative_row(Hi, P[i], free, nonnegative, best, L, s)
        A[i] = best
