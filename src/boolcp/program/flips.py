"""Search over Boolean vectors for the largest z'Cz or z'Cz / |z|^2: starts, flips, and crossings of what they find.

C is a matrix, or a ThinGram of `thin_maxcut`.
"""

import numpy as np

from boolcp.program._kernels import flip_search


def promising_directions(C, rng, width=6):
    """Return approximate leading eigenvectors of C and random mixtures of them, one per row."""
    first = C @ rng.standard_normal((len(C), width))
    first /= np.linalg.norm(first, axis=0)
    Q = np.linalg.qr(np.hstack([first, C @ first]))[0]
    values, U = np.linalg.eigh(Q.T @ C @ Q)
    values, vectors = values[-width:], U[:, -width:].T @ Q.T
    spread = np.sqrt(np.maximum(values, 0) / np.abs(values).max())
    return np.vstack([vectors, rng.standard_normal((width, len(values))) * spread @ vectors])


def first_starts(C, rng, starts, is_ratio, n_rounds=2):
    """Return cheap Boolean starts, one per row.

    Responses to leading directions (for z'Cz, to random ones) in both signs, all bits, the bit of the largest
    diagonal entry and the warm starts; then each is replaced a few times by its best response.
    """
    d = len(C)
    directions = promising_directions(C, rng) if is_ratio else rng.standard_normal((8, d)) @ C
    single = np.arange(d) == C.diagonal().argmax()
    warm = [] if starts is None else [starts]
    Z = np.vstack([best_response(np.vstack([directions, -directions]), is_ratio), np.ones_like(single), *warm])
    for _ in range(n_rounds):
        Z = best_response(Z @ C, is_ratio)
    return np.vstack([Z, single, *warm])


def best_response(rows, is_ratio):
    """Return for each row a the Boolean z with the largest a'z, or with the largest a'z / |z|."""
    if not is_ratio:
        return rows > 0
    Z, sizes = np.empty(rows.shape, dtype=bool), np.sqrt(np.arange(1, rows.shape[1] + 1))
    for row, z in zip(rows, Z, strict=True):
        ordered = np.sort(row)[::-1]
        np.greater_equal(row, ordered[np.argmax(np.cumsum(ordered) / sizes)], out=z)
    return Z


def local_search(C, Z, is_ratio, n_best=8, n_idle=0):
    """Improve the best rows of Z by flips; return the distinct local optima with their values, best first."""
    Z = Z[Z.any(axis=1)]
    products = Z @ C
    values = (products * Z).sum(axis=1)
    if is_ratio:
        values /= Z.sum(axis=1)
    chosen = {Z[i].tobytes(): i for i in np.argsort(-values, kind="stable")}
    options = {"n_idle": n_idle, "tenure": min(20, len(C) // 4), "is_ratio": is_ratio}
    pool = []
    for i in list(chosen.values())[:n_best]:
        pool.append((climb(C, Z[i], products[i], **options), Z[i]))
    return merge(pool)


def climb(C, z, Cz, *, n_idle, tenure, is_ratio):
    """Improve z in place by flips and return its value; a C that is not an array climbs in its own way."""
    if isinstance(C, np.ndarray):
        return flip_search(C, z, Cz, C.diagonal().copy(), n_idle, tenure, is_ratio, False)
    return C.climb(z, n_idle, tenure, is_ratio)


def merge(*pools):
    """Return the distinct members of the pools, best first."""
    distinct = {z.tobytes(): (value, z) for pool in pools for value, z in pool}
    return sorted(distinct.values(), key=lambda member: -member[0])


def best_of(pool):
    """Return the best z; among equals up to rounding the one with the fewest ones, then with the earliest."""
    best = pool[0][0]
    ties = [z for value, z in pool if value >= best - 1e-12 * abs(best)]
    return min(ties, key=lambda z: (z.sum(), (~z).tobytes()))


def recombine(C, pool, rng, is_ratio, n_rounds, n_idle):
    """Return the best of the pool after tabu searches from each and from crossings of random pairs."""
    pool = local_search(C, np.array([z for _, z in pool[:8]]), is_ratio, n_idle=n_idle // 3)
    for _ in range(n_rounds if len(pool) > 1 else 0):
        i, j = rng.choice(len(pool), size=2, replace=False)
        child = np.where(rng.random(len(C)) < 0.5, pool[i][1], pool[j][1])
        pool = merge(pool, local_search(C, child[None], is_ratio, n_idle=n_idle))[:8]
    return pool
