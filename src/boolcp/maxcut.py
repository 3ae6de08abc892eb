"""The Boolean quadratic program max z'Cz over z in {0,1}^d, z != 0, with a certificate of quality.

The program is lifted to a MAXCUT-like problem over signs, relaxed to a semidefinite program (SDP), solved by
the mixing method, rounded by random hyperplanes and improved by flips. Dual multipliers of the relaxation
bound the optimum from above. The ratio z'Cz / |z|^2 is maximized by the same steps.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf

from boolcp._kernels import BLOCK, flip_search, mixing_sweep

EXHAUSTIVE = 20
EFFORTS = ("quick", "default", "thorough")
EPSILON = np.finfo(np.float64).eps


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
        Proved upper bound on the objective of every Boolean vector; None when not asked for or not proved.
    """

    z: np.ndarray
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


def maximize_boolean_quadratic(C, *, random_state=None, starts=None, certify=True, effort="default"):
    """Maximize z'Cz over z in {0,1}^d, z != 0.

    Up to d = 20 all Boolean vectors are compared and the answer is exact. Beyond, the answer is the best of
    a search with random starts, and `bound` says how far from the optimum it can be at most.

    Parameters
    ----------
    C : array_like, shape (d, d)
        Symmetric matrix. The ratio of value and bound means a quality only if it is positive semidefinite.
    random_state : int, numpy.random.Generator, RandomState or None
        Source of randomness; equal seeds give equal results.
    starts : array_like of bool, shape (s, d), optional
        Boolean vectors to start from besides the built-in ones, such as the answer to a similar problem.
    certify : bool
        Whether to prove an upper bound.
    effort : {"quick", "default", "thorough"}
        Without the relaxation, with it, or with a long search after it.

    Returns
    -------
    BooleanQuadratic
        With `z`, `value`, `bound` and `ratio`. Bits whose row of C is zero stay off.
    """
    C = _check_matrix(C)
    starts = _check_starts(starts, len(C))
    _check_effort(effort)
    return _maximize_quadratic(C, _generator(random_state), starts=starts, certify=certify, effort=effort)


def maximize_boolean_rayleigh(C, *, random_state=None, starts=None, certify=True, effort="default"):
    """Maximize z'Cz / |z|^2 over z in {0,1}^d, z != 0.

    With C the Gram matrix of a residual this is the decrease of the squared loss by the best atom on z.

    Parameters
    ----------
    C : array_like, shape (d, d)
        Symmetric positive semidefinite matrix.
    random_state, starts, certify, effort
        As in `maximize_boolean_quadratic`.

    Returns
    -------
    BooleanQuadratic
        With `z`, `value` (the ratio), `bound` (the largest eigenvalue of C, proved) and `ratio`.
    """
    C = _check_matrix(C)
    starts = _check_starts(starts, len(C))
    _check_effort(effort)
    return _maximize_rayleigh(C, _generator(random_state), starts=starts, certify=certify, effort=effort)


def _maximize_quadratic(C, rng, *, starts=None, certify=True, effort="default"):
    """Maximize z'Cz without checks: C (d, d) float64 and symmetric, rng a Generator, starts (s, d) bool."""
    return _maximize(C, rng, starts, certify, effort, is_ratio=False)


def _maximize_rayleigh(C, rng, *, starts=None, certify=True, effort="default"):
    """Maximize z'Cz / |z|^2 without checks; arguments as in `_maximize_quadratic`."""
    return _maximize(C, rng, starts, certify, effort, is_ratio=True)


def _maximize(C, rng, starts, certify, effort, is_ratio):
    """Drop zero rows, scale by a power of two, solve, and undo both."""
    d = len(C)
    active = np.flatnonzero(np.abs(C).max(axis=1))
    if active.size == 0:
        return _result(d, np.array([0]), 0.0, 0.0 if certify else None)
    if active.size < d:
        C = C[np.ix_(active, active)]
        starts = None if starts is None else starts[:, active]
    exponent = int(np.frexp(np.abs(C).max())[1])
    C = np.ldexp(np.ascontiguousarray(C), -exponent)
    if len(C) <= EXHAUSTIVE:
        z, value, bound = enumerate_all(C, is_ratio)
    else:
        z, value, bound = _search(C, rng, starts, certify, effort, is_ratio)
    if bound is not None:
        bound = float(np.ldexp(max(bound, value), exponent))
    return _result(d, active[z], float(np.ldexp(value, exponent)), bound if certify else None)


def _result(d, on, value, bound):
    """Return the frozen result with the bits `on`."""
    z = np.zeros(d, dtype=bool)
    z[on] = True
    z.flags.writeable = False
    return BooleanQuadratic(z, value, bound)


def _search(C, rng, starts, certify, effort, is_ratio):
    """Return z, its objective and the bound (None unless asked for and proved), for d > EXHAUSTIVE."""
    d = len(C)
    values, vectors = leading_eigenpairs(C, rng)
    pool = local_search(C, spectral_starts(C, values, vectors, rng, starts, is_ratio), is_ratio)
    bound = None
    if is_ratio and certify:
        bound = eigenvalue_bound(C, values[-1])
    if effort != "quick" or (certify and not is_ratio):
        t = pool[0][0] if is_ratio else 0.0
        A = lift(C - t * np.eye(d) if is_ratio else C)
        V = solve_sdp(A, rng)
        pool = merge(pool, local_search(C, round_hyperplanes(V, rng, 12), is_ratio))
        if certify and not is_ratio:
            bound = sdp_bound(A, V, rng)
    if bound is None or pool[0][0] < bound * (1 - 1e-9):
        if effort != "quick":
            pool = merge(pool, local_search(C, [z for _, z in pool[:3]], is_ratio, n_idle=2 * d))
        if effort == "thorough":
            pool = recombine(C, pool, rng, is_ratio)
    z = pool[0][1]
    return z, objective(C, z, is_ratio), bound


def objective(C, z, is_ratio=False):
    """Return z'Cz, or z'Cz / |z|^2."""
    on = np.flatnonzero(z)
    return C[np.ix_(on, on)].sum() / (len(on) if is_ratio else 1)


def enumerate_all(C, is_ratio=False):
    """Return the best of all 2^d - 1 nonzero vectors, its objective, and that plus a rounding margin.

    The bits are split in two halves, so that all values are one matrix: a'Ca + b'Cb + 2 a'Cb.
    """
    d = len(C)
    half = d // 2
    low, high = _all_bits(half), _all_bits(d - half)
    C_low, C_high = C[:half, :half], C[half:, half:]
    values = 2 * low @ C[:half, half:] @ high.T
    values += ((low @ C_low) * low).sum(axis=1)[:, None] + ((high @ C_high) * high).sum(axis=1)
    if is_ratio:
        ones = low.sum(axis=1)[:, None] + high.sum(axis=1)
        values /= np.maximum(ones, 1)
    values[0, 0] = -np.inf
    margin = 4 * d * EPSILON * np.abs(C).sum()
    ties = np.argwhere(values >= values.max() - margin)
    candidates = np.hstack([low[ties[:, 0]], high[ties[:, 1]]]).astype(bool)
    z = candidates[np.argmin(candidates.sum(axis=1))]
    value = objective(C, z, is_ratio)
    return z, value, value + 2 * margin


def _all_bits(n_bits):
    """Return all 2^n_bits Boolean vectors as rows of floats."""
    return (np.arange(2**n_bits)[:, None] >> np.arange(n_bits) & 1).astype(float)


def leading_eigenpairs(C, rng, n_steps=24, n_pairs=6):
    """Return approximate largest eigenvalues (ascending) and eigenvectors of C by the Lanczos method."""
    d = len(C)
    n_steps = min(n_steps, d)
    Q = np.zeros((n_steps + 1, d))
    Q[0] = rng.standard_normal(d)
    Q[0] /= np.linalg.norm(Q[0])
    T = np.zeros((n_steps + 1, n_steps + 1))
    for k in range(n_steps):
        q = C @ Q[k]
        for _ in range(2):  # orthogonal to working precision
            overlap = Q[: k + 1] @ q
            q -= overlap @ Q[: k + 1]
            T[k, k] += overlap[k]
        norm = np.linalg.norm(q)
        if norm < 1e-12:
            n_steps = k + 1
            break
        T[k, k + 1] = T[k + 1, k] = norm
        Q[k + 1] = q / norm
    values, U = np.linalg.eigh(T[:n_steps, :n_steps])
    return values[-n_pairs:], Q[:n_steps].T @ U[:, -n_pairs:]


def spectral_starts(C, values, vectors, rng, starts, is_ratio, n_random=6, n_rounds=3):
    """Return Boolean starts, one per row: best prefixes of sorted directions, improved by z <- best response.

    The directions are the leading eigenvectors in both signs and random mixtures of them.
    """
    d = len(C)
    mixtures = vectors @ (
        np.sqrt(np.maximum(values, 0))[:, None] * rng.standard_normal((len(values), n_random))
    )
    directions = np.hstack([vectors, -vectors, mixtures, -mixtures])
    Z = best_response(directions, is_ratio)
    if starts is not None:
        Z = np.vstack([Z, starts])
    Z = np.vstack([Z, np.ones((1, d), dtype=bool), np.arange(d)[None, :] == np.diag(C).argmax()])
    Z[~Z.any(axis=1), np.diag(C).argmax()] = True
    for _ in range(n_rounds):
        Z = np.unique(Z, axis=0)
        new = best_response(C @ Z.T, is_ratio)
        new[~new.any(axis=1)] = Z[~new.any(axis=1)]
        Z = new
    return Z


def best_response(A, is_ratio):
    """Return, per column a of A, the z with the largest a'z, or the largest (a'z)^2 / |z|^2 over prefixes."""
    if not is_ratio:
        return A.T > 0
    rows = np.sort(A.T, axis=1)[:, ::-1]
    sums = np.cumsum(rows, axis=1)
    score = np.maximum(sums, 0) ** 2 / np.arange(1, A.shape[0] + 1)
    cut = rows[np.arange(len(rows)), score.argmax(axis=1)]
    return A.T >= cut[:, None]


def local_search(C, Z, is_ratio, n_idle=0):
    """Improve each row of Z by flips; return the distinct local optima with their values, best first."""
    Z = np.unique(np.asarray(Z, dtype=bool), axis=0)
    Z = Z[Z.any(axis=1)]
    products = Z @ C
    tenure = min(20, len(C) // 4)
    pool = [(flip_search(C, z, Cz, n_idle, tenure, is_ratio), z) for z, Cz in zip(Z, products, strict=True)]
    return merge(pool)


def merge(*pools):
    """Return the distinct members of the pools, best first; ties go to fewer ones, then to earlier bits."""
    distinct = {z.tobytes(): (value, z) for pool in pools for value, z in pool}
    order = sorted(distinct, key=lambda bits: (-distinct[bits][0], sum(bits), bits[::-1]))
    return [distinct[bits] for bits in order]


def recombine(C, pool, rng, is_ratio, n_pool=8, n_rounds=20):
    """Return the pool after crossing random pairs: equal bits are kept, the others drawn, tabu follows."""
    d = len(C)
    for _ in range(n_rounds):
        pool = pool[:n_pool]
        if len(pool) < 2:
            break
        i, j = rng.choice(len(pool), size=2, replace=False)
        child = np.where(rng.random(d) < 0.5, pool[i][1], pool[j][1])
        pool = merge(pool, local_search(C, child[None], is_ratio, n_idle=5 * d))
    return pool


def lift(C):
    """Return C~: z'Cz = [1; y]' C~ [1; y] / 4 for y = 2z - 1."""
    row_sums = C.sum(axis=1)
    return np.block([[row_sums.sum(), row_sums], [row_sums[:, None], C]])


def solve_sdp(C, rng, *, rank=16, tol=1e-4, max_sweeps=1000, momentum=0.0):
    """Maximize <C, VV'> over matrices V (n, rank) with unit rows by the mixing method.

    Sweeps end when one gains less than tol relative to the objective without the diagonal, which is constant.
    """
    n = len(C)
    A = np.array(C)
    np.fill_diagonal(A, 0)
    V = rng.standard_normal((n, rank))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    scratch = np.empty((BLOCK, rank))
    total = np.sum((A @ V) * V)
    for _ in range(max_sweeps):
        gain = mixing_sweep(A, V, momentum, scratch)
        total += gain
        if gain <= tol * abs(total):
            break
    return V


def round_hyperplanes(V, rng, n_roundings):
    """Return Boolean vectors, one per row: the bits whose row of V is on the side of row 0."""
    signs = V @ rng.standard_normal((V.shape[1], n_roundings)) >= 0
    return (signs[1:] == signs[0]).T


def sdp_bound(A, V, rng):
    """Return a proved upper bound on x'Ax / 4 over signs x, from the multipliers |A V| of the relaxation."""
    n = len(A)
    S = -A
    np.fill_diagonal(S, 0)
    y = np.linalg.norm(S @ V, axis=1)
    weights = 0.5 * (y + y.mean())
    shift = prove_psd(S, y, weights)
    if shift is None:
        return None
    margin = 64 * EPSILON * np.abs(A).sum() + n * EPSILON * y.sum()
    return (np.trace(A) + y.sum() + shift * weights.sum() + margin) / 4


def eigenvalue_bound(C, value):
    """Return a proved upper bound on the largest eigenvalue of C, close to it if `value` is."""
    ones = np.ones(len(C))
    shift = prove_psd(-C, value * ones, abs(value) * ones)
    return None if shift is None else value + shift * abs(value) * (1 + 4 * EPSILON)


def prove_psd(S, y, weights, ladder=(1e-6, 1e-4, 4e-4, 1.6e-3, 6.4e-3, 2.5e-2, 0.1, 0.4, 1.6, 6.4)):
    """Return a small shift for which S + Diag(y + shift weights) is proved positive semidefinite, or None.

    The proof is a Cholesky factorization that runs to its end, with its largest backward error set aside.
    """
    n = len(S)
    diagonal = np.diag(S)
    for shift in ladder:
        trial = np.array(S)
        entries = diagonal + y + shift * weights
        np.fill_diagonal(trial, entries - 2 * (n + 2) * EPSILON * np.abs(entries).sum())
        if dpotrf(trial.T, lower=1, overwrite_a=1, clean=0)[1] == 0:
            return shift
    return None


def _generator(random_state):
    """Return a numpy Generator from a seed, a Generator or an old-style RandomState."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31)
    return np.random.default_rng(random_state)


def _check_matrix(C):
    """Return C as a float64 array after checking that it is a finite, real, symmetric matrix."""
    C = np.asarray(C)
    if C.dtype.kind not in "biuf":
        raise TypeError(f"C must be real and numeric, got dtype {C.dtype}; convert it with C.astype(float)")
    if C.ndim != 2 or C.shape[0] != C.shape[1] or C.shape[0] == 0:
        raise ValueError(f"C must be a square matrix with at least one row, got shape {C.shape}")
    C = C.astype(np.float64, copy=False)
    if not np.isfinite(C).all():
        raise ValueError("C has entries that are NaN or infinite; remove or replace them first")
    if np.abs(C - C.T).max() > 1e-6 * np.abs(C).max():
        raise ValueError("C must be symmetric; (C + C.T) / 2 has the same z'Cz")
    return (C + C.T) / 2


def _check_starts(starts, d):
    """Return starts as a Boolean (s, d) array, or None."""
    if starts is None:
        return None
    starts = np.asarray(starts)
    if starts.ndim != 2 or starts.shape[1] != d:
        raise ValueError(f"starts must have shape (s, {d}), one Boolean vector per row, got {starts.shape}")
    if not np.isin(starts, (0, 1)).all():
        raise ValueError("starts must hold only 0 and 1 (or False and True)")
    return starts.astype(bool)


def _check_effort(effort):
    """Refuse an unknown effort."""
    if effort not in EFFORTS:
        raise ValueError(f"effort must be one of {EFFORTS}, got {effort!r}")
