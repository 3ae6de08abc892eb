"""The Boolean quadratic program max z'Cz over z in {0,1}^d, z != 0, with a certificate of quality.

The program is lifted to a MAXCUT-like problem over signs, relaxed to a semidefinite program (SDP), solved by
the mixing method, rounded by random hyperplanes and improved by flips. Dual multipliers of the relaxation
bound the optimum from above. The ratio z'Cz / |z|^2 is maximized by the same steps, for every kind of Gram matrix.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from boolcp import checks
from boolcp.program import bounds
from boolcp.program._kernels import best_signed_response as best_signed_response
from boolcp.program._kernels import flip_search, flip_sweeps
from boolcp.program.bounds import EPSILON, Array, Bits, DenseLift, ThinLift
from boolcp.system import one_thread

EXHAUSTIVE = 20  # entries of z up to which all vectors are compared; not tuned
LONG = 4096  # beyond, the relaxation is skipped if all starts lead to the same z; not tuned
MANY = 500  # rows of a dense matrix beyond which crossings continue while they gain; by bench_maxcut.py
SLOW = 2000  # rows beyond which few crossings are made, each takes long; not tuned
N_BEST = 8  # members of a pool, and starts that are improved; not tuned
N_DIRECTIONS = 6  # approximate eigenvectors, and mixtures of them, to start from; not tuned
MIN_CLIMBS = 8  # climbs that tell whether a large matrix is easy: where half agreed (18 cases), none was below the best
MAX_ROUNDS = 4  # largest multiple of `n_rounds`; by bench_maxcut.py
SHAKEN = 0.1  # share of flipped bits; by bench_maxcut.py with the seeds 778 and 779
DEPENDENT = 1e-9  # squared distance of z to the span of other bits, relative to |z|^2, that counts as none
EFFORTS = ("quick", "default", "thorough")
LARGE = 1000  # rows beyond which a bound better than the largest eigenvalue takes more than ten seconds
MAX_FLIP_COST = 2e7  # multiplications that a search in a long mode may spend on flips; not tuned


class ThinGram:
    """The matrix FF' of a thin F (d, p), never formed; it answers like an array at cost O(dp)."""

    __array_ufunc__ = None  # Z @ C is asked of C

    def __init__(self, F: Array) -> None:
        self.F = F

    def __len__(self) -> int:
        return len(self.F)

    def __matmul__(self, Z: NDArray[Any]) -> Array:
        return self.F @ (self.F.T @ Z)

    def __rmatmul__(self, Z: NDArray[Any]) -> Array:
        return (Z @ self.F) @ self.F.T

    def __getitem__(self, i: int) -> Array:
        return self.F @ self.F[i]

    def diagonal(self) -> Array:
        """Return the diagonal, |F_i|^2."""
        return np.einsum("ip,ip->i", self.F, self.F)


Gram = Array | ThinGram  # C, positive semidefinite: an array (d, d), or a thin factor


@dataclass(frozen=True, eq=False)
class BooleanQuadratic:
    """Solution of a Boolean quadratic program.

    Attributes
    ----------
    z : ndarray of bool, shape (d,)
        The best Boolean vector found; read-only, never all False.
    value : float
        Its objective: z'Cz, or z'Cz / |z|^2 for the ratio.
    bound : float or None
        Proved upper bound on the objective of every Boolean vector; None if not requested or not proved.

    Examples
    --------
    >>> C = np.array([[2.0, 1.0, -1.0], [1.0, 2.0, -1.0], [-1.0, -1.0, 1.0]])
    >>> boolcp.maximize_boolean_rayleigh(C)
    BooleanQuadratic(z: 2 of 3 bits, value=3, bound=3, ratio=1.0000)
    """

    z: Bits
    value: float
    bound: float | None = None

    @property
    def ratio(self) -> float:
        """Proved share of the best possible, value / bound (in [0, 1] for positive semidefinite C)."""
        if self.bound is None:
            return float("nan")
        return 1.0 if self.value == self.bound else self.value / self.bound

    def __repr__(self) -> str:
        proof = "no bound" if self.bound is None else f"bound={self.bound:.6g}, ratio={self.ratio:.4f}"
        return f"BooleanQuadratic(z: {self.z.sum()} of {self.z.size} bits, value={self.value:.6g}, {proof})"


def maximize_boolean_quadratic(
    C: ArrayLike,
    *,
    random_state: Any = None,
    starts: ArrayLike | None = None,
    certify: bool = True,
    effort: str = "default",
) -> BooleanQuadratic:
    """Maximize z'Cz over z in {0,1}^d, z != 0.

    Up to d = 20 all Boolean vectors are compared and the answer is exact. Beyond, the answer is the best of
    a search with random starts, and `bound` limits how far it can be from the optimum. Bits whose row of C is zero
    stay off.

    Parameters
    ----------
    C : array_like, shape (d, d)
        Symmetric matrix. The ratio of value and bound measures quality only if C is positive semidefinite.
    random_state : int, numpy.random.Generator, RandomState or None
        Source of randomness; equal seeds give equal results.
    starts : array_like of bool, shape (s, d), optional
        Boolean vectors to start from besides the built-in ones, such as the answer to a similar problem.
    certify : bool
        Whether to prove an upper bound.
    effort : {"quick", "default", "thorough"}
        Without the relaxation, with it, or with a long search after it.

    Examples
    --------
    >>> C = np.array([[2.0, 1.0, -1.0], [1.0, 2.0, -1.0], [-1.0, -1.0, 1.0]])
    >>> best = boolcp.maximize_boolean_quadratic(C)
    >>> best.z.tolist(), best.value
    ([True, True, False], 6.0)
    """
    return _checked(C, random_state, starts, certify, effort, is_ratio=False)


def maximize_boolean_rayleigh(
    C: ArrayLike,
    *,
    random_state: Any = None,
    starts: ArrayLike | None = None,
    certify: bool = True,
    effort: str = "default",
) -> BooleanQuadratic:
    """Maximize z'Cz / |z|^2 over z in {0,1}^d, z != 0.

    If C is the Gram matrix of a residual, this is the decrease of the squared loss by the best atom on z.

    Parameters
    ----------
    C : array_like, shape (d, d)
        Symmetric positive semidefinite matrix.
    random_state, starts, certify
        As in `maximize_boolean_quadratic`.
    effort : {"quick", "default", "thorough"}
        Effort of the search and of the proof: the bound is the largest eigenvalue or a closed form, one within
        0.5 % of the value if that is reached soon (0.1 s for d = 150, 1 s for d = 300, 10 s for d = 1000; a larger C
        has the largest eigenvalue), or one within 0.01 % of it (a few times longer, and for every d).

    Examples
    --------
    >>> C = np.array([[2.0, 1.0, -1.0], [1.0, 2.0, -1.0], [-1.0, -1.0, 1.0]])
    >>> best = boolcp.maximize_boolean_rayleigh(C)
    >>> best.z.tolist(), best.value, round(best.bound, 3)
    ([True, True, False], 3.0, 3.0)
    """
    return _checked(C, random_state, starts, certify, effort, is_ratio=True)


def _checked(
    C: ArrayLike, random_state: Any, starts: ArrayLike | None, certify: bool, effort: str, is_ratio: bool
) -> BooleanQuadratic:
    """Check the arguments of the two public functions and solve the program."""
    C = np.asarray(C)
    if C.dtype.kind not in "biuf":
        raise TypeError(f"C must be real and numeric, got dtype {C.dtype}; convert it with C.astype(float)")
    if C.ndim != 2 or C.shape[0] != C.shape[1] or C.shape[0] == 0:
        raise ValueError(f"C must be a square matrix with at least one row, got shape {C.shape}")
    C = np.ascontiguousarray(C, dtype=np.float64)
    if not np.isfinite(C.sum()) and not np.isfinite(C).all():  # a sum takes a third of the time
        raise ValueError("C has entries that are NaN or infinite; remove or replace them first")
    gap = float(np.abs(C - C.T).max())
    if gap > 1e-6 * max(C.max(), -C.min()):
        raise ValueError(f"C must be symmetric, got |C - C.T| up to {gap:.3g}; (C + C.T) / 2 has the same z'Cz")
    given = np.zeros((0, len(C))) if starts is None else np.asarray(starts)
    if given.ndim != 2 or given.shape[1] != len(C):
        raise ValueError(f"starts must have shape (s, {len(C)}), one Boolean vector per row, got {given.shape}")
    if not np.isin(given, (0, 1)).all():
        raise ValueError("starts must hold only 0 and 1 (or False and True)")
    checks.check_choice(effort, "effort", EFFORTS)
    rng, bits = checks.make_generator(random_state), given.astype(bool)
    C = C if gap == 0 else C / 2 + C.T / 2
    with one_thread():
        return maximize(C, rng, is_ratio=is_ratio, starts=bits, certify=certify, effort=effort, proof=effort)


def maximize(
    C: Gram,
    rng: np.random.Generator,
    *,
    is_ratio: bool = True,
    starts: Bits | None = None,
    certify: bool = True,
    effort: str = "default",
    proof: str = "eigenvalue",
) -> BooleanQuadratic:
    """Maximize z'Cz, or z'Cz / |z|^2 if is_ratio, without checks: C symmetric in float64, starts (s, d).

    Zero rows are dropped and extreme entries scaled by a power of two; both are undone in the answer. The bound of a
    ratio is the largest eigenvalue, or a lower one if `proof` is the effort to spend on it.
    """
    z = np.zeros(len(C), dtype=bool)
    active, exponent, C = compact(C)
    if active.size == 0:
        active, found, value, bound = np.array([0]), np.array([True]), 0.0, 0.0 if certify else None
    elif active.size <= EXHAUSTIVE:
        found, value, bound = enumerate_all(C @ np.eye(len(C)), certify, is_ratio)
    else:
        starts = None if starts is None else starts[:, active]
        found, value, bound = search(C, rng, starts, certify, effort, is_ratio, proof)
    z[active[found]] = True
    z.flags.writeable = False
    bound = None if bound is None else float(np.ldexp(bound, exponent))
    return BooleanQuadratic(z, float(np.ldexp(value, exponent)), bound)


def compact(C: Gram) -> tuple[NDArray[np.intp], int, Gram]:
    """Return the nonzero rows, an exponent, and C restricted to them, scaled by that power of two where extreme."""
    M = C.F if isinstance(C, ThinGram) else C
    active = np.flatnonzero(M.any(axis=1))
    if active.size < len(M):
        M = M[active] if isinstance(C, ThinGram) else M[np.ix_(active, active)]
    exponent, M = int(np.frexp(max(M.max(initial=0.0), -M.min(initial=0.0)))[1]), np.ascontiguousarray(M)
    if isinstance(C, ThinGram):
        return active, 2 * exponent, ThinGram(np.ldexp(M, -exponent))
    return (active, 0, M) if abs(exponent) < 40 else (active, exponent, np.ldexp(M, -exponent))


def improve(C: Gram, z: Bits, Cz: Array, n_idle: int, tenure: int, is_ratio: bool) -> float:
    """Improve z in place by flips, for n_idle steps beyond a local optimum; return its value. Cz is overwritten."""
    if not isinstance(C, ThinGram):
        return float(flip_search(C, z, Cz, C.diagonal().copy(), n_idle, tenure, is_ratio, False))
    s = flip_sweeps(C.F, z, is_ratio)
    n_idle = min(n_idle, int(MAX_FLIP_COST // C.F.size))
    if n_idle:
        flip_search(C.F, z, C.F @ s, C.diagonal(), n_idle, tenure, is_ratio, True)
        s = flip_sweeps(C.F, z, is_ratio)
    return float(s @ s) / (z.sum() if is_ratio else 1)


def ratio_bound(C: Gram, z: Bits, effort: str, start: Array | None = None) -> float | None:
    """Return a proved upper bound on the ratio, or None; `start` is a guess of the leading eigenvector.

    It is the largest eigenvalue for the effort "eigenvalue", for a thin C, and for a large one unless thorough.
    """
    if isinstance(C, ThinGram):
        return bounds.factor_bound(C.F, np.ones(len(C)))
    is_close = effort == "thorough" or (effort != "eigenvalue" and len(C) <= LARGE)
    proof = bounds.prove_ratio(C, z, effort=effort) if is_close else None
    if proof is not None:
        return proof.bound
    return bounds.eigenvalue_bound(C, np.where(z, 1.0, 0.01) if start is None else start)


def search(
    C: Gram, rng: np.random.Generator, starts: Bits | None, certify: bool, effort: str, is_ratio: bool, proof: str
) -> tuple[Bits, float, float | None]:
    """Return z, its objective and the bound (None unless requested and proved)."""
    climbed = climb(C, first_starts(C, rng, starts, is_ratio), is_ratio)
    pool, bound = distinct(climbed), None
    is_dual, is_large = certify and not is_ratio, len(C) > MANY and not isinstance(C, ThinGram)
    if is_dual or (effort != "quick" and (len(C) <= LONG or len(pool) > 1)):
        t = pool[0].value if is_ratio else 0.0
        A = ThinLift(C.F, t) if isinstance(C, ThinGram) else DenseLift(C, t)
        V = bounds.solve_sdp(A, rng, tol=1e-6 if is_dual else 1e-4)
        climbed += climb(C, bounds.round_hyperplanes(V, rng, 24), is_ratio)
        pool = distinct(climbed)
    if is_dual:
        bound = A.bound(V)
    elif certify and proof == "eigenvalue":
        bound = ratio_bound(C, pool[0].z, proof, pool[0].z + 0.1 * rng.random(len(C)))
    best = pool[0].value
    n_best = sum(found.value >= best - 1e-9 * abs(best) for found in climbed)
    is_easy = is_large and 2 * n_best >= len(climbed) >= MIN_CLIMBS  # crossings then find nothing
    is_proved = bound is not None and best >= bound * (1 - 1e-9)
    if not is_proved and (effort == "thorough" or (effort == "default" and not is_easy)):
        n_rounds, n_idle = (30, 5 * len(C)) if effort == "thorough" else (12, min(len(C), 1000))
        if effort == "default" and is_large:
            n_rounds, n_idle = (24, 2 * n_idle) if len(C) <= SLOW else (2, 600)  # by bench_maxcut.py
        pool = recombine(C, pool, rng, is_ratio, n_rounds, n_idle, is_large)
    ties = [z for value, z in pool if value >= pool[0].value - 1e-12 * abs(pool[0].value)]
    z = min(ties, key=lambda z: (z.sum(), (~z).tobytes()))  # the fewest ones, then the earliest
    if certify and is_ratio and proof != "eigenvalue":
        bound = ratio_bound(C, z, proof)
    return z, float(z @ C @ z) / (z.sum() if is_ratio else 1), bound


class Found(NamedTuple):
    """A Boolean vector and its value."""

    value: float
    z: Bits


def first_starts(C: Gram, rng: np.random.Generator, starts: Bits | None, is_ratio: bool) -> Bits:
    """Return cheap Boolean starts, one per row.

    Responses to directions in both signs, all bits, the bit of the largest diagonal entry and the warm starts; then
    each is replaced twice by its best response. Directions are random, or for the ratio approximate leading
    eigenvectors and random mixtures of them.
    """
    if is_ratio:
        first = C @ rng.standard_normal((len(C), N_DIRECTIONS))
        first /= np.linalg.norm(first, axis=0)
        Q = np.linalg.qr(np.hstack([first, C @ first]))[0]
        values, U = np.linalg.eigh(Q.T @ C @ Q)
        values, vectors = values[-N_DIRECTIONS:], U[:, -N_DIRECTIONS:].T @ Q.T
        spread = np.sqrt(np.maximum(values, 0) / np.abs(values).max())
        mixed = rng.standard_normal((N_DIRECTIONS, len(values))) * spread @ vectors
        directions = np.vstack([vectors, mixed])
    else:
        directions = rng.standard_normal((8, len(C))) @ C
    single = np.arange(len(C)) == C.diagonal().argmax()
    warm = [] if starts is None else [starts]
    Z = np.vstack([best_response(np.vstack([directions, -directions]), is_ratio), np.ones_like(single), *warm])
    for _ in range(2):
        Z = best_response(Z @ C, is_ratio)
    return np.vstack([Z, single, *warm])


def climb(C: Gram, Z: Bits, is_ratio: bool, n_idle: int = 0) -> list[Found]:
    """Improve the eight best distinct rows of Z by flips; return where each of them ends, with its value."""
    Z = Z[Z.any(axis=1)]
    products = Z @ C
    values = (products * Z).sum(axis=1)
    if is_ratio:
        values /= Z.sum(axis=1)
    chosen = {Z[i].tobytes(): i for i in np.argsort(-values, kind="stable")}
    best = list(chosen.values())[:N_BEST]
    return [Found(improve(C, Z[i], products[i], n_idle, min(20, len(C) // 4), is_ratio), Z[i]) for i in best]


def distinct(pool: Iterable[Found]) -> list[Found]:
    """Return the distinct members of the pool, best first."""
    return sorted({found.z.tobytes(): found for found in pool}.values(), key=lambda found: -found.value)


def recombine(
    C: Gram, pool: list[Found], rng: np.random.Generator, is_ratio: bool, n_rounds: int, n_idle: int, is_large: bool
) -> list[Found]:
    """Return the best of the pool after tabu searches from each and from crossings of random pairs.

    There are `n_rounds` of them. For a large C they end after that many in a row without improvement, or MAX_ROUNDS
    times as many, and every second one starts from the best with some bits flipped.
    """
    pool = distinct(climb(C, np.array([z for _, z in pool[:N_BEST]]), is_ratio, n_idle // 3))
    n_done, n_left, n_most = 0, n_rounds, n_rounds * (MAX_ROUNDS if is_large else 1)
    while len(pool) > 1 and n_left and n_done < n_most:
        i, j = rng.choice(len(pool), size=2, replace=False)
        child = np.where(rng.random(len(C)) < 0.5, pool[i].z, pool[j].z)
        if is_large and n_done % 2:  # crossings alone end where all parents agree
            child = pool[0].z ^ (rng.random(len(C)) < SHAKEN)
        best, pool = pool[0].value, distinct([*pool, *climb(C, child[None], is_ratio, n_idle)])[:N_BEST]
        n_done, n_left = n_done + 1, n_rounds if pool[0].value > best else n_left - 1
    return pool


def enumerate_all(C: Array, certify: bool, is_ratio: bool) -> tuple[Bits, float, float | None]:
    """Return the best of all 2^d - 1 nonzero vectors, its objective, and that plus a rounding margin.

    The bits are split in two halves, so that all values are one matrix: a'Ca + b'Cb + 2 a'Cb. Of vectors
    equal up to rounding, the one with the fewest ones wins.
    """
    d = len(C)
    half = d // 2
    low, high = ((np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(float) for n in (half, d - half))
    n_low, n_high = low.sum(axis=1).astype(int), high.sum(axis=1)
    low_values, high_values = ((A @ B * A).sum(axis=1) for A, B in ((low, C[:half, :half]), (high, C[half:, half:])))
    left = np.column_stack([2 * low @ C[:half, half:], low_values, np.ones(len(low))])
    right, shares = np.vstack([high.T, np.ones(len(high)), high_values]), np.arange(half + 1.0)[:, None] + n_high
    shares = 1 / np.maximum(shares, 1)

    def evaluate(rows: NDArray[np.intp]) -> Array:
        values = left[rows] @ right
        if is_ratio:
            values *= shares[n_low[rows]]
        values[rows == 0, 0] = -np.inf
        return values

    margin = 4 * d * EPSILON * np.abs(C).sum()
    parts = np.split(np.arange(len(low)), range(16, len(low), 16))  # parts stay in the cache
    largest = np.concatenate([evaluate(rows).max(axis=1) for rows in parts])
    rows = np.flatnonzero(largest >= largest.max() - margin)
    values = evaluate(rows)
    ties, columns = np.nonzero(values >= values.max() - margin)
    fewest = np.argmin(n_low[rows[ties]] + n_high[columns])
    z = np.concatenate([low[rows[ties[fewest]]], high[columns[fewest]]]).astype(bool)
    value = float(z @ C @ z) / (z.sum() if is_ratio else 1)
    return z, value, value + 2 * margin if certify else None


def best_response(rows: Array, is_ratio: bool) -> Bits:
    """Return for each row a the Boolean z with the largest a'z, or with the largest a'z / |z|."""
    return np.asarray(best_signed_response(rows, True, False)[0] > 0) if is_ratio else rows > 0


def best_boolean(p: Array, criterion: str = "normalized") -> tuple[Bits, int]:
    """Return the z that maximizes (z'p)^2 / |z|^2, or (z'p)^2 if published, and the sign of z'p."""
    Z, signs, _ = best_signed_response(p[None], criterion == "normalized")
    return Z[0] > 0 if p.any() else np.arange(len(p)) == 0, int(signs[0])


class Complement:
    """The projection I - QQ' on what is orthogonal to the columns of B (d, k), Q their orthonormal basis."""

    __array_ufunc__ = None

    def __init__(self, B: Array) -> None:
        U, sizes, _ = np.linalg.svd(B, full_matrices=False)
        self.Q: Array = U[:, sizes > 1e-10 * sizes.max(initial=0.0)]

    def __matmul__(self, Z: NDArray[Any]) -> Array:
        return Z - self.Q @ (self.Q.T @ Z)

    def __rmatmul__(self, Z: NDArray[Any]) -> Array:
        return Z - (Z @ self.Q) @ self.Q.T

    def __getitem__(self, i: int) -> Array:
        row = -(self.Q @ self.Q[i])
        row[i] += 1
        return row

    def diagonal(self) -> Array:
        """Return the diagonal, 1 - |Q_i|^2."""
        return 1 - np.einsum("ik,ik->i", self.Q, self.Q)


def climb_ratio(C: Gram, P: Complement | Array, z: NDArray[np.generic]) -> tuple[float, Bits]:
    """Return the ratio z'Cz / z'Pz and z after best single flips, until none raises the ratio; P is a projection."""

    def ratio_of(top: Any, bottom: Any, n_ones: Any) -> Any:
        is_new = bottom > DEPENDENT * np.maximum(n_ones, 1)
        return np.where(is_new, top / np.where(is_new, bottom, 1.0), 0.0)

    bits = np.array(z, dtype=float)
    Cz, Pz, C_ii, P_ii = C @ bits, P @ bits, C.diagonal(), P.diagonal()
    ratio = ratio_of(bits @ Cz, bits @ Pz, bits.sum())
    for _ in range(min(10 * len(bits), int(MAX_FLIP_COST // (C.F.size if isinstance(C, ThinGram) else len(C))))):
        side = 1 - 2 * bits
        tops, bottoms = bits @ Cz + 2 * side * Cz + C_ii, bits @ Pz + 2 * side * Pz + P_ii
        ratios = ratio_of(tops, bottoms, bits.sum() + side)
        i = int(np.argmax(ratios))
        if not ratios[i] > ratio * (1 + 1e-9):
            break
        bits[i], ratio = 1 - bits[i], ratios[i]
        Cz, Pz = Cz + side[i] * C[i], Pz + side[i] * P[i]
    return float(ratio), bits.astype(bool)
