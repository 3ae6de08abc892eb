"""Search over Boolean vectors for the largest z'Cz or z'Cz / |z|^2: starts, flips, and crossings of local optima."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from boolcp.program.grams import MAX_FLIP_COST, Array, Bits, Complement, Gram, as_gram

LARGE = 500  # rows beyond which crossings continue while they gain; by bench_maxcut.py
MIN_CLIMBS = 8  # climbs that tell whether a large matrix is easy: where half agreed (18 cases), none was below the best
MAX_ROUNDS = 4  # largest multiple of `n_rounds`; by bench_maxcut.py
SHAKEN = 0.1  # share of flipped bits; by bench_maxcut.py with the seeds 778 and 779
DEPENDENT = 1e-9  # squared distance of z to the span of other bits, relative to |z|^2, that counts as none


class Found(NamedTuple):
    """A Boolean vector and its value."""

    value: float
    z: Bits


def promising_directions(C: Gram, rng: np.random.Generator, width: int = 6) -> Array:
    """Return approximate leading eigenvectors of C and random mixtures of them, one per row."""
    first = C @ rng.standard_normal((len(C), width))
    first /= np.linalg.norm(first, axis=0)
    Q = np.linalg.qr(np.hstack([first, C @ first]))[0]
    values, U = np.linalg.eigh(Q.T @ C @ Q)
    values, vectors = values[-width:], U[:, -width:].T @ Q.T
    spread = np.sqrt(np.maximum(values, 0) / np.abs(values).max())
    return np.vstack([vectors, rng.standard_normal((width, len(values))) * spread @ vectors])


def first_starts(C: Gram, rng: np.random.Generator, starts: Bits | None, is_ratio: bool, n_rounds: int = 2) -> Bits:
    """Return cheap Boolean starts, one per row.

    Responses to leading directions (for z'Cz, to random ones) in both signs, all bits, the bit of the largest
    diagonal entry and the warm starts; then each is replaced a few times by its best response.
    """
    d = len(C)
    directions = promising_directions(C, rng) if is_ratio else rng.standard_normal((8, d)) @ C
    single = np.arange(d) == C.diagonal().argmax()
    warm = [] if starts is None else [starts]
    Z = np.vstack(
        [best_response(directions, is_ratio), best_response(-directions, is_ratio), np.ones_like(single), *warm]
    )
    for _ in range(n_rounds):
        Z = best_response(Z @ C, is_ratio)
    return np.vstack([Z, single, *warm])


def best_response(rows: Array, is_ratio: bool) -> Bits:
    """Return for each row a the Boolean z with the largest a'z, or with the largest a'z / |z|."""
    if not is_ratio:
        return rows > 0
    falling = np.sort(rows, axis=1)[:, ::-1]
    last, _ = best_prefixes(falling)
    return np.asarray(rows >= np.take_along_axis(falling, last[:, None], axis=1))


def best_signed_response(rows: Array) -> tuple[Array, Array, Array]:
    """Return for each row a the 0/1 vector z with the largest (a'z)^2 / |z|^2, the sign of a'z and that value."""
    rising, at = np.sort(rows, axis=1), np.arange(len(rows))
    (high, highest), (low, lowest) = best_prefixes(rising[:, ::-1]), best_prefixes(-rising)
    signs = np.where(lowest > highest * (1 + 1e-12), -1.0, 1.0)
    smallest = np.where(signs < 0, -rising[at, low], rising[at, -1 - high])
    Z = (signs[:, None] * rows >= smallest[:, None]).astype(float)
    return Z, signs, np.maximum(lowest, highest) ** 2


def best_prefixes(rows: Array, is_ratio: bool = True) -> tuple[NDArray[np.intp], Array]:
    """Return where the first entries with the largest sum, over the root of their number if is_ratio, end, and that."""
    sums = np.cumsum(rows, axis=-1)
    if is_ratio:
        sums /= np.sqrt(np.arange(1.0, rows.shape[-1] + 1))
    return np.argmax(sums, axis=-1), np.max(sums, axis=-1)


def best_boolean(p: Array, criterion: str = "normalized") -> tuple[Bits, int]:
    """Return the z that maximizes (z'p)^2 / |z|^2, or (z'p)^2 if published, and the sign of z'p.

    The best z holds the largest entries of p or the most negative ones: both sorted prefixes are tried.
    """
    rising, is_ratio = np.sort(p), criterion == "normalized"
    (high, highest), (low, lowest) = best_prefixes(rising[::-1], is_ratio), best_prefixes(-rising, is_ratio)
    sign, size = (-1, int(low) + 1) if lowest > highest * (1 + 1e-12) else (1, int(high) + 1)
    smallest = -rising[size - 1] if sign < 0 else rising[-size]
    z = sign * p > smallest
    ties = np.flatnonzero(sign * p == smallest)  # of equal entries, the first are taken
    z[ties[: size - np.count_nonzero(z)]] = True
    return z, sign


def local_search(C: Gram, Z: Bits, is_ratio: bool, n_best: int = 8, n_idle: int = 0) -> list[Found]:
    """Improve the best rows of Z by flips; return the distinct local optima with their values, best first."""
    return merge(climb_all(C, Z, is_ratio, n_best, n_idle))


def climb_all(C: Gram, Z: Bits, is_ratio: bool, n_best: int = 8, n_idle: int = 0) -> list[Found]:
    """Improve the best distinct rows of Z by flips; return where each of them ends, with its value."""
    Z = Z[Z.any(axis=1)]
    products = Z @ C
    values = (products * Z).sum(axis=1)
    if is_ratio:
        values /= Z.sum(axis=1)
    chosen = {Z[i].tobytes(): i for i in np.argsort(-values, kind="stable")}
    tenure = min(20, len(C) // 4)
    best = list(chosen.values())[:n_best]
    return [Found(C.climb(Z[i], products[i], n_idle, tenure, is_ratio), Z[i]) for i in best]


def merge(*pools: Iterable[Found]) -> list[Found]:
    """Return the distinct members of the pools, best first."""
    distinct = {found.z.tobytes(): found for pool in pools for found in pool}
    return sorted(distinct.values(), key=lambda found: -found.value)


def best_of(pool: list[Found]) -> Bits:
    """Return the best z; of those equal up to rounding, the one with the fewest ones, then with the earliest."""
    best = pool[0].value
    ties = [z for value, z in pool if value >= best - 1e-12 * abs(best)]
    return min(ties, key=lambda z: (z.sum(), (~z).tobytes()))


def is_easy(C: Gram, climbed: list[Found]) -> bool:
    """Return True if C is large and half of the climbs have ended at the best value: crossings then find nothing."""
    best = max(found.value for found in climbed)
    n_best = sum(found.value >= best - 1e-9 * abs(best) for found in climbed)
    return is_large(C) and 2 * n_best >= len(climbed) >= MIN_CLIMBS


def is_large(C: Gram) -> bool:
    """Return True if C is dense and has many rows."""
    return len(C) > LARGE and not C.is_thin


def recombine(
    C: Gram, pool: list[Found], rng: np.random.Generator, is_ratio: bool, n_rounds: int, n_idle: int
) -> list[Found]:
    """Return the best of the pool after tabu searches from each and from crossings of random pairs.

    There are `n_rounds` of them. For a large C they end after that many in a row without improvement, or MAX_ROUNDS
    times as many, and every second one starts from the best with some bits flipped.
    """
    pool = local_search(C, np.array([z for _, z in pool[:8]]), is_ratio, n_idle=n_idle // 3)
    n_most = n_rounds * (MAX_ROUNDS if is_large(C) else 1)
    n_done, n_left, best = 0, n_rounds, pool[0].value
    while len(pool) > 1 and n_left and n_done < n_most:
        i, j = rng.choice(len(pool), size=2, replace=False)
        child = np.where(rng.random(len(C)) < 0.5, pool[i].z, pool[j].z)
        if is_large(C) and n_done % 2:  # crossings alone end where all parents agree
            child = pool[0].z ^ (rng.random(len(C)) < SHAKEN)
        pool = merge(pool, local_search(C, child[None], is_ratio, n_idle=n_idle))[:8]
        n_done, n_left = n_done + 1, n_rounds if pool[0].value > best else n_left - 1
        best = pool[0].value
    return pool


def climb_ratio(C: Gram | Array, P: Complement | Array, z: NDArray[np.generic]) -> tuple[float, Bits]:
    """Return the ratio z'Cz / z'Pz and z after single flips, the best one each time, until none raises the ratio.

    P is a projection, and a ratio with a z'Pz that is a rounding error counts as zero.
    """
    C = as_gram(C)
    bits = np.array(z, dtype=float)
    Cz, Pz = C @ bits, P @ bits
    ratio = _ratio(bits @ Cz, bits @ Pz, bits.sum())
    C_ii, P_ii = C.diagonal(), P.diagonal()
    for _ in range(min(10 * len(bits), int(MAX_FLIP_COST // C.row_cost))):
        side = 1 - 2 * bits
        tops, bottoms = bits @ Cz + 2 * side * Cz + C_ii, bits @ Pz + 2 * side * Pz + P_ii
        ratios = _ratio(tops, bottoms, bits.sum() + side)
        i = int(np.argmax(ratios))
        if not ratios[i] > ratio * (1 + 1e-9):
            break
        bits[i], ratio = 1 - bits[i], ratios[i]
        Cz, Pz = Cz + side[i] * C[i], Pz + side[i] * P[i]
    return float(ratio), bits.astype(bool)


def _ratio(top: Array, bottom: Array, n_ones: Array) -> Array:
    """Return top / bottom, or zero where bottom is a rounding error of n_ones."""
    is_new = bottom > DEPENDENT * np.maximum(n_ones, 1)
    return np.where(is_new, top / np.where(is_new, bottom, 1.0), 0.0)
