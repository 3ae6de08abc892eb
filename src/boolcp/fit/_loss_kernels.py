"""Compiled inner loops of losses and nonnegative parts: arrays in, numbers out, no checks."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

SQUARED, HUBER, POISSON, BERNOULLI = 0, 1, 2, 3
ROUNDING = 1e-13  # gradient, relative to its terms, that counts as zero
STEPS = (1.0, 0.5, 0.25, 0.0625, 0.015625)  # lengths of a step that are tried in turn
SMALL = 1e-9  # share of the mean curvature that is added to it; relative fall of the loss not worth a step
TINY = 1e-100  # product of means whose logarithm is taken
MAX_PATTERN_BITS = 4  # bits of a row whose patterns are all tried; more are flipped one by one

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@njit(cache=True, fastmath=True)
def log_value(m: float, floor: float) -> float:
    """Return -log m; below `floor` a parabola continues it, so that it is finite everywhere."""
    q = max(m, floor)
    away = (m - q) / q
    return 0.5 * away * away - away - np.log(q)


@njit(cache=True, fastmath=True)
def entry_value(kind: int, scale: float, x: float, m: float) -> float:
    """Return the loss of one entry x with mean m; the linear part m of Poisson is left out.

    `scale` is the threshold of Huber's loss and the floor of logarithms.
    """
    if kind == SQUARED:
        return 0.5 * (m - x) ** 2
    if kind == HUBER:
        size = abs(m - x)
        near = min(size, scale)
        return near * (size - 0.5 * near)
    value = x * log_value(m, scale) if x > 0.0 else 0.0
    if kind == BERNOULLI and x < 1.0:
        value += (1.0 - x) * log_value(1.0 - m, scale)
    if kind == BERNOULLI and m > 1.0:  # no probability: a steep parabola
        value += 0.5 * ((m - 1.0) / scale) ** 2
    return value


@njit(cache=True, fastmath=True)
def entry_slopes(kind: int, scale: float, x: float, m: float) -> tuple[float, float]:
    """Return the derivative of `entry_value`, and a curvature that majorizes it or is the second derivative.

    There are no branches but for the kind, so that loops over entries are vectorized.
    """
    if kind == SQUARED:
        return m - x, 1.0
    if kind == HUBER:
        share = scale / max(abs(m - x), scale)
        return share * (m - x), share
    r = 1.0 / max(m, scale)
    slope, curve = x * (min(m * r, 1.0) - 2.0) * r, x * r * r
    if kind == BERNOULLI:
        r, steep = 1.0 / max(1.0 - m, scale), 1.0 / scale
        slope += (1.0 - x) * (2.0 - min((1.0 - m) * r, 1.0)) * r + max(m - 1.0, 0.0) * steep * steep
        curve += (1.0 - x) * r * r + (steep * steep if m > 1.0 else 0.0)
    return slope, curve


@njit(cache=True)
def all_terms(kind: int, scale: float, x: Floats, m: Floats) -> tuple[Floats, Floats]:
    """Return the loss of entries x with means m, and its derivative by m, (n,) each."""
    values, slopes = np.empty(len(x)), np.empty(len(x))
    for e in range(len(x)):
        values[e], slopes[e] = entry_value(kind, scale, x[e], m[e]), entry_slopes(kind, scale, x[e], m[e])[0]
        if kind == POISSON:
            values[e] += m[e]
            slopes[e] += 1.0
    return values, slopes


@njit(cache=True, fastmath=True)
def total_loss(kind: int, scale: float, values: Floats, weights: Floats, means: Floats) -> float:
    """Return the loss of all entries."""
    total = 0.0
    for e in range(len(values)):
        total += weights[e] * entry_value(kind, scale, values[e], means[e])
        if kind == POISSON:
            total += weights[e] * means[e]
    return total


# The entries of a tensor are sorted by row of one mode, those of row i from starts[i] on. B holds the products of the
# other factors at each of them, (K, n), or those that all rows of a complete tensor share.
How = tuple[int, float, Floats, Floats, Ints, Floats]  # kind of loss, its scale, values, weights, starts, B


@njit(cache=True)
def multiply_columns(A: Floats, places: Ints, B: Floats) -> None:
    """Multiply B (K, n) by the columns `places` of A (K, d), in place."""
    for k in range(len(B)):
        for e in range(len(places)):
            B[k, e] *= A[k, places[e]]


@njit(cache=True, fastmath=True)
def row_means(how: How, i: int, a: Floats, m: Floats) -> None:
    """Write the means of the entries of row i to m if the factor has the row a, (K,)."""
    _, _, values, _, starts, B = how
    n, first = starts[i + 1] - starts[i], starts[i] if B.shape[1] == len(values) else 0
    m[:n] = 0.0
    for k in range(len(a)):
        if a[k] != 0.0:
            for j in range(n):
                m[j] += a[k] * B[k, first + j]


@njit(cache=True, fastmath=True)
def row_loss(how: How, i: int, m: Floats) -> float:
    """Return the loss of row i with the means m; one logarithm serves many entries that count once or twice."""
    kind, scale, values, weights, starts, _ = how
    total, product, most = 0.0, 1.0, 1.0 if kind == BERNOULLI else 1.0 / TINY
    for e in range(starts[i], starts[i + 1]):
        mean = m[e - starts[i]]
        q = 1.0 - mean if kind == BERNOULLI and values[e] == 0.0 else mean
        share = weights[e] if kind == BERNOULLI and values[e] == 0.0 else weights[e] * values[e]
        if kind >= POISSON and (share == 1.0 or share == 2.0) and scale <= q <= most:
            product *= q if share == 1.0 else q * q
            if not TINY < product < 1.0 / TINY:
                total -= np.log(product)
                product = 1.0
        else:
            total += weights[e] * entry_value(kind, scale, values[e], mean)
    return total - np.log(product)


@njit(cache=True, fastmath=True)
def row_quadratic(how: How, i: int, m: Floats, scratch: Floats, g: Floats, H: Floats) -> None:
    """Write gradient g (K,) and curvature H (K, K) of the loss of row i with the means m."""
    kind, scale, values, weights, starts, B = how
    n, first = starts[i + 1] - starts[i], starts[i] if B.shape[1] == len(values) else 0
    slope, curve, half = scratch[0], scratch[1], scratch[2]
    for j in range(n):
        e = starts[i] + j
        by_m, twice = entry_slopes(kind, scale, values[e], m[j])
        slope[j], curve[j] = weights[e] * by_m, weights[e] * twice
    for k in range(len(g)):
        total = 0.0
        for j in range(n):
            total += slope[j] * B[k, first + j]
            half[j] = curve[j] * B[k, first + j]
        g[k] = total
        for l in range(k + 1):
            total = 0.0
            for j in range(n):
                total += half[j] * B[l, first + j]
            H[k, l] = H[l, k] = total


@njit(cache=True)
def step_rows(
    how: How, linear: Floats, boolean: Bools, nonnegative: Bools, is_fixed: bool, A: Floats, F: Floats
) -> None:
    """Move each row of A to the minimum of the quadratic form of its loss, in place, and write its loss to F.

    `linear` (d, K) is the gradient of what is linear in the loss. Where the true loss is not lower there, real columns
    go a shorter way alone, or the row stays. If `is_fixed`, bits stay as they are.
    """
    d, K = A.shape
    scratch = np.empty((4, np.diff(how[4]).max()))
    m, H, rows = scratch[3], np.empty((K, K)), np.empty((6, K))
    g, p, x, y, s, best = rows[0], rows[1], rows[2], rows[3], rows[4], rows[5]
    L, passive, has_real = np.zeros((K, K)), np.zeros(K, dtype=np.bool_), not boolean.all()
    for i in range(d):
        row_means(how, i, A[i], m)
        F[i] = row_loss(how, i, m) + inner(linear[i], A[i])
        row_quadratic(how, i, m, scratch, g, H)
        size = SMALL * np.trace(H) / K
        for k in range(K):
            g[k] += linear[i, k]
            H[k, k] += max(size, 1e-300)
            p[k] = inner(H[k], A[i]) - g[k]
        is_free = boolean.any() and not is_fixed
        for n_tried in range(0 if is_free else 1, len(STEPS) + 1):
            if n_tried < 2:
                x[:] = A[i]
                decide_row(H, p, boolean, nonnegative, x, n_tried == 1, L, s, best, y, passive)
            step = STEPS[max(n_tried - 1, 0)]
            for k in range(K):
                y[k] = x[k] - A[i, k]
            if n_tried == 1 and not (has_real and abs(inner(g, y)) > SMALL * abs(F[i])):
                break  # what a step may bring
            for k in range(K):
                y[k] = A[i, k] + step * y[k]
            row_means(how, i, y, m)
            value = row_loss(how, i, m) + inner(linear[i], y)
            if value < F[i]:
                F[i] = value
                A[i] = y
                break


@njit(cache=True)
def row_losses(how: How, linear: Floats, A: Floats, F: Floats) -> None:
    """Write the loss of each row of A to F (d,)."""
    m = np.empty(np.diff(how[4]).max())
    for i in range(len(A)):
        row_means(how, i, A[i], m)
        F[i] = row_loss(how, i, m) + inner(linear[i], A[i])


@njit(cache=True)
def flip_losses(how: How, linear: Floats, A: Floats, bits: Ints, rise: Floats) -> None:
    """Write the rise of the loss when one of the columns `bits` of A is flipped in each row to `rise` (d, bits)."""
    m, a = np.empty(np.diff(how[4]).max()), np.empty(A.shape[1])
    for i in range(len(A)):
        row_means(how, i, A[i], m)
        value = row_loss(how, i, m)
        for j in range(len(bits)):
            a[:] = A[i]
            a[bits[j]] = 1.0 - a[bits[j]]
            row_means(how, i, a, m)
            rise[i, j] = row_loss(how, i, m) - value + linear[i, bits[j]] * (1.0 - 2.0 * A[i, bits[j]])


@njit(cache=True)
def inner(x: Floats, y: Floats) -> float:
    """Return x'y."""
    total = 0.0
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


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
def nonnegative_row(
    H: Floats, p: Floats, boolean: Bools, nonnegative: Bools, x: Floats, L: Floats, s: Floats, passive: Bools
) -> None:
    """Minimize x'Hx / 2 - p'x in place over the columns that are not Boolean, those that are `nonnegative` at least 0.

    The active set method of Lawson and Hanson, from the positive entries of x; L, s and passive are scratch.
    """
    K = len(p)
    for k in range(K):
        passive[k] = not boolean[k] and (x[k] > 0.0 or not nonnegative[k])
        if not boolean[k] and not passive[k]:
            x[k] = 0.0
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
            if not boolean[k] and not passive[k]:
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
        total += x[k] * (0.5 * inner(H[k], x) - p[k])
    return total


@njit(cache=True)
def decide_row(
    H: Floats,
    p: Floats,
    boolean: Bools,
    nonnegative: Bools,
    a: Floats,
    is_fixed: bool,
    L: Floats,
    s: Floats,
    best: Floats,
    x: Floats,
    passive: Bools,
) -> None:
    """Minimize a'Ha / 2 - p'a in place: bits where `boolean`, else real, some nonnegative; the last five are scratch.

    All patterns of few bits are tried; more bits are flipped one by one from the current ones, the real columns solved
    for again each time. If `is_fixed`, bits stay as they are.
    """
    bits = np.flatnonzero(boolean)
    best[:] = a
    nonnegative_row(H, p, boolean, nonnegative, best, L, s, passive)
    lowest = row_value(H, p, best)
    if not is_fixed and len(bits) <= MAX_PATTERN_BITS:
        for pattern in range(2 ** len(bits)):
            x[:] = a
            for b in range(len(bits)):
                x[bits[b]] = float(pattern >> b & 1)
            nonnegative_row(H, p, boolean, nonnegative, x, L, s, passive)
            value = row_value(H, p, x)
            if value < lowest - 1e-14 * abs(lowest):
                lowest = value
                best[:] = x
    elif not is_fixed:
        for _ in range(4 * len(bits)):
            flipped = -1
            for b in range(len(bits)):
                x[:] = best
                x[bits[b]] = 1.0 - x[bits[b]]
                nonnegative_row(H, p, boolean, nonnegative, x, L, s, passive)
                value = row_value(H, p, x)
                if value < lowest - 1e-14 * abs(lowest):
                    lowest, flipped = value, b
            if flipped < 0:
                break
            best[bits[flipped]] = 1.0 - best[bits[flipped]]
            nonnegative_row(H, p, boolean, nonnegative, best, L, s, passive)
    a[:] = best


@njit(cache=True)
def decide_nonnegative(
    H: Floats, P: Floats, boolean: Bools, nonnegative: Bools, A: Floats, is_fixed: bool = False
) -> None:
    """Minimize a'H_i a / 2 - p_i'a over the rows of A in place, as `decide_row` does; H is (1, K, K) or (d, K, K)."""
    d, K = A.shape
    L, s, best, x, passive = np.zeros((K, K)), np.empty(K), np.empty(K), np.empty(K), np.zeros(K, dtype=np.bool_)
    for i in range(d):
        decide_row(H[i if len(H) > 1 else 0], P[i], boolean, nonnegative, A[i], is_fixed, L, s, best, x, passive)
