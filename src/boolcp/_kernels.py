"""Compiled inner loops of the Boolean quadratic program: arrays in, a number out, no checks."""

import numpy as np
from numba import njit

BLOCK = 16


@njit(cache=True)
def mixing_sweep(A, V, momentum, G):
    """Move each row of V (n, k) in place toward its best point; return the gain in <A, VV'>.

    A (n, n) is symmetric with a zero diagonal and G (BLOCK, k) is scratch. Rows are visited in blocks: the
    product with V is one matrix-matrix product per block, then corrected for the rows moved inside it.
    """
    n, k = V.shape
    gain = 0.0
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        np.dot(A[start:stop], V, G[: stop - start])
        for i in range(start, stop):
            gain += _move_row(V[i], G[i - start], momentum)
            for j in range(i + 1, stop):
                for c in range(k):
                    G[j - start, c] += A[j, i] * G[i - start, c]
    return gain


@njit(cache=True)
def _move_row(v, g, momentum):
    """Move the unit vector v to g/|g| and beyond by momentum; return the gain. g becomes the step."""
    norm = np.sqrt(np.sum(g * g))
    if norm == 0:
        return 0.0
    target = (1 + momentum) * g / norm - momentum * v
    target /= np.sqrt(np.sum(target * target))
    gain = 0.0
    for c in range(len(g)):
        step = target[c] - v[c]
        gain += 2 * g[c] * step
        v[c], g[c] = target[c], step
    return gain


@njit(cache=True)
def flip_search(C, z, Cz, n_idle, tenure, is_ratio):
    """Improve the bits z (d,) in place by steepest single flips; return z'Cz, or z'Cz / |z|^2 if is_ratio.

    Cz (d,) is the product C z, spoiled. At a local optimum the search goes on for n_idle steps without
    improvement (tabu: a flipped bit rests for about tenure steps) and ends with the best z seen. A ratio is
    maximized as z'Cz - t |z|^2 with t the best ratio so far (Dinkelbach). The last bit is never taken away.
    """
    d = len(z)
    side = np.where(z, -1.0, 1.0)  # change of |z|^2 by a flip
    diagonal = np.diag(C).copy()
    rest, score = np.zeros(d, np.int64), np.empty(d)
    count, total = np.sum(z), np.sum(Cz * z)
    t = total / count if is_ratio else 0.0
    best, step, last = total - t * count, 0, 0
    while step - last <= n_idle:
        step += 1
        for j in range(d):
            score[j] = side[j] * (2 * Cz[j] - t) + diagonal[j]
        if count == 1:
            score[np.argmin(side)] = -np.inf
        i = _best_flip(score, rest, step, best - (total - t * count))
        if score[i] == -np.inf:
            break
        total += score[i] + t * side[i]
        count += int(side[i])
        for j in range(d):
            Cz[j] += side[i] * C[i, j]
        side[i] = -side[i]
        rest[i] = step + tenure + (7 * step) % 11
        if total - t * count > best + 1e-12 * abs(total):
            last = step
            t = total / count if is_ratio else 0.0
            best = total - t * count
            for j in range(d):
                z[j] = side[j] < 0
    return t if is_ratio else best


@njit(cache=True)
def _best_flip(score, rest, step, aspiration):
    """Return the flip of highest score that does not rest at this step, unless it beats the aspiration."""
    best, top = 0, -np.inf
    for i in range(len(score)):
        if score[i] > top and (rest[i] < step or score[i] > aspiration):
            best, top = i, score[i]
    return best
