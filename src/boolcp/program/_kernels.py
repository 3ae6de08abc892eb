"""Compiled inner loops of the Boolean quadratic program: arrays in, a number out, no checks."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bits = NDArray[np.bool_]
Cuts = NDArray[np.int64]

BLOCK = 16  # rows of a sweep that share a matrix product; by bench_maxcut.py
MAX_SWEEPS = 1000  # of flips, which rounding errors could otherwise repeat forever. Seen: at most 30
MAX_STEPS = 100  # single flips for each bit and idle step. Seen: at most 4


@njit(cache=True)
def mixing_sweep(A: Array, V: Array, momentum: float, G: Array) -> float:
    """Move each row of V (n, k) in place toward its best point; return the gain in <A, VV'>.

    A (n, n) is symmetric, its diagonal has no effect, and G (BLOCK or more, k) is scratch. Rows are visited in
    blocks of that many: one matrix-matrix product with V per block, then corrected for the rows that moved inside it.
    """
    n, k = V.shape
    gain = 0.0
    for start in range(0, n, len(G)):
        stop = min(start + len(G), n)
        np.dot(A[start:stop], V, G[: stop - start])
        for i in range(start, stop):
            step = G[i - start]
            for c in range(k):
                step[c] -= A[i, i] * V[i, c]
            gain += _move_row(V[i], step, momentum)
            for j in range(i + 1, stop):
                for c in range(k):
                    G[j - start, c] += A[j, i] * step[c]
    return gain


@njit(cache=True)
def _move_row(v: Array, g: Array, momentum: float) -> float:
    """Move the unit vector v to g/|g| and beyond by momentum; return the gain. g becomes the step."""
    squared, along = 0.0, 0.0
    for c in range(len(g)):
        squared += g[c] * g[c]
        along += g[c] * v[c]
    norm = np.sqrt(squared)
    if norm == 0:
        return 0.0
    ahead = (1 + momentum) / norm
    scale = 1 / np.sqrt((1 + momentum) ** 2 + momentum**2 - 2 * ahead * momentum * along)
    for c in range(len(g)):
        v_new = scale * (ahead * g[c] - momentum * v[c])
        g[c], v[c] = v_new - v[c], v_new
    return 2 * (scale * (ahead * squared - momentum * along) - along)


@njit(cache=True)
def thin_mixing_sweep(G: Array, V: Array, S: Array, t: float, momentum: float) -> float:
    """Move each row of V (n, k) in place toward its best point for A = GG' - t BB'; return the gain in <A, VV'>.

    G (n, p), S = G'V is kept up to date, and BB' = [n - 1, 1'; 1, I]. The diagonal of A has no effect.
    """
    (n, p), k = G.shape, V.shape[1]
    gain, step, others = 0.0, np.empty(k), np.sum(V[1:], axis=0)
    for i in range(n):
        squared = 0.0
        for c in range(k):
            step[c] = -t * (others[c] if i == 0 else V[0, c])
        for q in range(p):
            squared += G[i, q] * G[i, q]
            for c in range(k):
                step[c] += G[i, q] * S[q, c]
        for c in range(k):
            step[c] -= squared * V[i, c]
        gain += _move_row(V[i], step, momentum)
        for q in range(p):
            for c in range(k):
                S[q, c] += G[i, q] * step[c]
        if i > 0:
            others += step
    return gain


@njit(cache=True)
def flip_sweeps(F: Array, z: Bits, is_ratio: bool) -> Array:
    """Improve the bits z (d,) in place by sweeps over all of them until no flip helps; return s = F'z.

    A flip is taken if it raises |s|^2, or |s|^2 / |z|^2 if is_ratio. The last bit is never removed.
    """
    d, p = F.shape
    s = np.empty(p)
    for _ in range(MAX_SWEEPS):
        changed = False
        s[:] = 0.0
        for i in range(d):
            if z[i]:
                s += F[i]
        count, total = int(np.sum(z)), np.sum(s * s)
        for i in range(d):
            side = -1.0 if z[i] else 1.0
            along, squared = 0.0, 0.0
            for q in range(p):
                along += F[i, q] * s[q]
                squared += F[i, q] * F[i, q]
            gain = 2 * side * along + squared
            t = total / count if is_ratio else 0.0
            if gain - t * side > 1e-13 * total and count + side > 0:
                z[i], changed = side > 0, True
                count += int(side)
                total += gain
                for q in range(p):
                    s[q] += side * F[i, q]
        if not changed:
            break
    return s


@njit(cache=True)
def flip_search(
    C: Array, z: Bits, Cz: Array, diagonal: Array, n_idle: int, tenure: int, is_ratio: bool, is_thin: bool
) -> float:
    """Improve the bits z (d,) in place by steepest single flips; return z'Cz, or z'Cz / |z|^2 if is_ratio.

    C (d, d) is given, or F (d, p) with C = FF' if is_thin, and the diagonal of C. Cz (d,) is the product C z,
    overwritten. At a local optimum the search continues for n_idle steps without improvement (tabu: a flipped bit rests
    for about tenure steps) and ends with the best z seen. A ratio is maximized as z'Cz - t |z|^2 with t the best
    ratio so far (Dinkelbach). The last bit is never removed.
    """
    d = len(z)
    side = np.where(z, -1.0, 1.0)  # change of |z|^2 by a flip
    rest, score = np.zeros(d, np.int64), np.empty(d)
    count, total = int(np.sum(z)), np.sum(Cz * z)
    t = total / count if is_ratio else 0.0
    rounding = 1e-13 * (np.abs(Cz).max() + np.abs(diagonal).max())  # the total may be zero; drift is no improvement
    best, last = total - t * count, 0
    for step in range(1, MAX_STEPS * (d + n_idle) + 1):
        if step - 1 - last > n_idle:
            break
        for j in range(d):
            score[j] = side[j] * (2 * Cz[j] - t) + diagonal[j]
        if count == 1:
            score[np.argmin(side)] = -np.inf
        i, top, needed = 0, -np.inf, best - (total - t * count)
        for j in range(d):  # a bit that rests has to beat the best
            if score[j] > top and (rest[j] < step or score[j] > needed):
                i, top = j, score[j]
        if score[i] == -np.inf:
            break
        total += score[i] + t * side[i]
        count += int(side[i])
        row = np.dot(C, C[i]) if is_thin else C[i]
        for j in range(d):
            Cz[j] += side[i] * row[j]
        side[i] = -side[i]
        rest[i] = step + tenure + (7 * step) % 11
        if total - t * count > best + max(1e-12 * abs(total), rounding):
            last = step
            t = total / count if is_ratio else 0.0
            best = total - t * count
            for j in range(d):
                z[j] = side[j] < 0
    return t if is_ratio else best


@njit(cache=True)
def split_rows(X: Array, Y: Array, U: Array, ahead: float) -> None:
    """Take one step of the splitting in place: A = ahead X + (1 - ahead) Y + U, Y its projection, U = A - Y.

    Row i of Y is the point with 0 <= Y_ij <= Y_ii closest to row i of A. With a ceiling t = Y_ii the others are A_ij
    clipped to [0, t], and t is the mean of A_ii and all A_ij above t: Newton steps from below find it.
    """
    d = len(X)
    for i in range(d):
        for j in range(d):
            U[i, j] += ahead * X[i, j] + (1 - ahead) * Y[i, j]
        ceiling = U[i, i]
        for _ in range(d):
            total, count = U[i, i], 1
            for j in range(d):
                if j != i and U[i, j] > ceiling:
                    total += U[i, j]
                    count += 1
            if total <= ceiling * count:
                break
            ceiling = total / count
        ceiling = max(ceiling, 0.0)
        for j in range(d):
            Y[i, j] = ceiling if j == i else min(max(U[i, j], 0.0), ceiling)
            U[i, j] -= Y[i, j]


@njit(cache=True)
def worst_triangles(X: Array, n_each: int, least: float) -> Cuts:
    """Return for each i the n_each triples (i, j, k) whose X_ij + X_ik - X_jk - X_ii is largest and above `least`."""
    d, count = len(X), 0
    cuts, excess = np.empty((d * n_each, 3), np.int64), np.empty(n_each)
    for i in range(d):
        n, lowest = 0, least
        for j in range(d):
            if j == i or X[i, j] <= lowest:  # X_ik is at most X_ii where X is nearly feasible
                continue
            for k in range(j):
                value = X[i, j] + X[i, k] - X[j, k] - X[i, i]
                if k == i or value <= lowest:
                    continue
                place = n if n < n_each else np.argmin(excess)
                n = min(n + 1, n_each)
                excess[place] = value
                cuts[count + place] = i, j, k
                lowest = excess.min() if n == n_each else least
        count += n
    return cuts[:count]


@njit(cache=True)
def add_cuts(M: Array, cuts: Cuts, multipliers: Array) -> None:
    """Add to M in place the sum over the cuts (i, j, k) of multiplier times (E_ii + E_jk - E_ij - E_ik), symmetric."""
    for (i, j, k), t in zip(cuts, multipliers):  # noqa: B905
        M[i, i] += t
        for a, b, sign in ((j, k, 0.5), (i, j, -0.5), (i, k, -0.5)):
            M[a, b] += sign * t
            M[b, a] += sign * t
