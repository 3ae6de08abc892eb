"""The Boolean quadratic program max z'Cz over z in {0,1}^d, z != 0, with a certificate of quality.

The program is lifted to a MAXCUT-like problem over signs, relaxed to a semidefinite program (SDP), solved by
the mixing method, rounded by random hyperplanes and improved by flips. Dual multipliers of the relaxation
bound the optimum from above. The ratio z'Cz / |z|^2 is maximized by the same steps.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal
from scipy.linalg.lapack import dpotrf

from boolcp._kernels import BLOCK, asymmetry, flip_search, mixing_sweep

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

    Examples
    --------
    >>> import numpy as np
    >>> import boolcp
    >>> C = np.array([[2.0, 1.0, -1.0], [1.0, 2.0, -1.0], [-1.0, -1.0, 1.0]])
    >>> boolcp.maximize_boolean_rayleigh(C)
    BooleanQuadratic(z: 2 of 3 bits, value=3, bound=3, ratio=1.0000)
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

    Examples
    --------
    >>> import numpy as np
    >>> import boolcp
    >>> C = np.array([[2.0, 1.0, -1.0], [1.0, 2.0, -1.0], [-1.0, -1.0, 1.0]])
    >>> best = boolcp.maximize_boolean_quadratic(C)
    >>> best.z.tolist(), best.value
    ([True, True, False], 6.0)
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

    Examples
    --------
    >>> import numpy as np
    >>> import boolcp
    >>> C = np.array([[2.0, 1.0, -1.0], [1.0, 2.0, -1.0], [-1.0, -1.0, 1.0]])
    >>> best = boolcp.maximize_boolean_rayleigh(C)
    >>> best.z.tolist(), best.value, round(best.bound, 3)  # the bound is the largest eigenvalue
    ([True, True, False], 3.0, 3.0)
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
    """Drop zero rows, scale extreme entries by a power of two, solve, and undo both."""
    d = len(C)
    active = np.flatnonzero(C.any(axis=1))
    if active.size == 0:
        return _result(d, np.array([0]), 0.0, 0.0 if certify else None)
    if active.size < d:
        C = C[np.ix_(active, active)]
        starts = None if starts is None else starts[:, active]
    exponent = int(np.frexp(max(C.max(), -C.min()))[1])
    exponent = 0 if abs(exponent) < 200 else exponent
    C = np.ldexp(C, -exponent) if exponent else np.ascontiguousarray(C)
    solve = _search if len(C) > EXHAUSTIVE else _enumerate
    z, value, bound = solve(C, rng, starts, certify, effort, is_ratio)
    if bound is not None:
        bound = float(np.ldexp(bound, exponent))
    return _result(d, active[z], float(np.ldexp(value, exponent)), bound)


def _result(d, on, value, bound):
    """Return the frozen result with the bits `on`."""
    z = np.zeros(d, dtype=bool)
    z[on] = True
    z.flags.writeable = False
    return BooleanQuadratic(z, value, bound)


def _search(C, rng, starts, certify, effort, is_ratio):
    """Return z, its objective and the bound (None unless asked for and proved)."""
    pool = local_search(C, first_starts(C, rng, starts, is_ratio), is_ratio)
    bound = None
    if effort != "quick" or (certify and not is_ratio):
        A = lift(C, pool[0][0] if is_ratio else 0.0)
        V = solve_sdp(A, rng, tol=1e-6 if certify and not is_ratio else 1e-4)
        pool = merge(pool, local_search(C, round_hyperplanes(V, rng, 24), is_ratio))
    if certify:
        bound = eigenvalue_bound(C, pool[0][1] + 0.1 * rng.random(len(C))) if is_ratio else sdp_bound(A, V)
    if effort != "quick" and (bound is None or pool[0][0] < bound * (1 - 1e-9)):
        n_rounds, n_idle = (30, 5 * len(C)) if effort == "thorough" else (12, min(len(C), 1000))
        pool = recombine(C, pool, rng, is_ratio, n_rounds, n_idle)
    z = settle(pool)
    return z, objective(C, z, is_ratio), bound


def objective(C, z, is_ratio=False):
    """Return z'Cz, or z'Cz / |z|^2."""
    value = z @ C @ z
    return value / np.sum(z) if is_ratio else value


def _enumerate(C, rng, starts, certify, effort, is_ratio):
    """Return the best of all 2^d - 1 nonzero vectors, its objective, and that plus a rounding margin.

    The bits are split in two halves, so that all values are one matrix: a'Ca + b'Cb + 2 a'Cb. Of vectors
    equal up to rounding, the one with the fewest ones is taken.
    """
    d = len(C)
    half = d // 2
    low, high = _all_bits(half), _all_bits(d - half)
    values = 2 * low @ C[:half, half:] @ high.T
    values += ((low @ C[:half, :half]) * low).sum(axis=1)[:, None]
    values += ((high @ C[half:, half:]) * high).sum(axis=1)
    n_low, n_high = low.sum(axis=1), high.sum(axis=1)
    if is_ratio:
        values /= np.maximum(np.add.outer(n_low, n_high), 1)
    values[0, 0] = -np.inf
    margin = 4 * d * EPSILON * np.abs(C).sum()
    ties = np.flatnonzero(values >= values.max() - margin)
    rows, columns = np.divmod(ties, len(high))
    fewest = np.argmin(n_low[rows] + n_high[columns])
    z = np.concatenate([low[rows[fewest]], high[columns[fewest]]]).astype(bool)
    value = objective(C, z, is_ratio)
    return z, value, value + 2 * margin if certify else None


def _all_bits(n_bits):
    """Return all 2^n_bits Boolean vectors as rows of floats."""
    return (np.arange(2**n_bits)[:, None] >> np.arange(n_bits) & 1).astype(float)


def leading_directions(C, rng, width=6):
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
    directions = leading_directions(C, rng) if is_ratio else rng.standard_normal((8, d)) @ C
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


def settle(pool):
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


def lift(C, t=0.0):
    """Return C~: z'(C - tI)z = [1; y]' C~ [1; y] / 4 for y = 2z - 1."""
    A = np.empty((len(C) + 1, len(C) + 1))
    A[1:, 1:] = C
    A[1:, 0] = C.sum(axis=1) - t
    A[0, 1:] = A[1:, 0]
    A[0, 0] = A[0, 1:].sum()
    np.fill_diagonal(A[1:, 1:], C.diagonal() - t)
    return A


def solve_sdp(A, rng, *, rank=16, tol=1e-4, max_sweeps=1000, momentum=0.6):
    """Maximize <A, VV'> over matrices V (n, rank) with unit rows by the mixing method.

    Sweeps end when one gains less than tol relative to the objective without its constant, the diagonal.
    Momentum sets in after the first few, which need none.
    """
    V = rng.standard_normal((len(A), rank))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    scratch = np.empty((BLOCK, rank))
    total = np.sum((A @ V) * V) - np.trace(A)
    for sweep in range(max_sweeps):
        gain = mixing_sweep(A, V, momentum if sweep > 2 else 0.0, scratch)
        total += gain
        if gain <= tol * abs(total):
            break
    return V


def round_hyperplanes(V, rng, n_roundings):
    """Return Boolean vectors, one per row: the bits whose row of V is on the side of row 0."""
    signs = V @ rng.standard_normal((V.shape[1], n_roundings)) >= 0
    return (signs[1:] == signs[0]).T


def sdp_bound(A, V):
    """Return a proved upper bound on x'Ax / 4 over signs x from shifted multipliers |A V|, or None."""
    n, diagonal = len(A), A.diagonal()
    y = np.linalg.norm(A @ V - diagonal[:, None] * V, axis=1) + diagonal
    scale = np.abs(y).mean()
    shift = prove_psd(A, y, scale * np.array([2e-4, 1e-3, 5e-3, 0.025, 0.125, 0.6, 3.0]))
    margin = 64 * EPSILON * np.abs(A).sum() + n * EPSILON * n * scale
    return None if shift is None else (y.sum() + n * shift + margin) / 4


def eigenvalue_bound(C, start):
    """Return a proved upper bound on the largest eigenvalue of C, or None."""
    value = largest_eigenvalue(C, start)
    shift = prove_psd(C, np.full(len(C), value), abs(value) * np.array([1e-6, 1e-4, 1e-3, 0.01, 0.1, 1.0]))
    return None if shift is None else value + shift + EPSILON * abs(value)


def largest_eigenvalue(C, start, n_steps=24):
    """Return an estimate of the largest eigenvalue of C by Lanczos steps from a nonzero vector."""
    q, previous, norm = start / np.linalg.norm(start), 0.0, 0.0
    diagonal, off_diagonal = [], []
    for _ in range(n_steps):
        step = C @ q - norm * previous
        diagonal.append(q @ step)
        step -= diagonal[-1] * q
        norm = float(np.linalg.norm(step))
        off_diagonal.append(norm)
        if norm <= 1e-12 * abs(diagonal[-1]):
            break
        previous, q = q, step / norm
    return eigvalsh_tridiagonal(diagonal, off_diagonal[:-1])[-1]


def prove_psd(A, y, shifts):
    """Return the first of the shifts for which Diag(y) + shift I - A is proved positive semidefinite, or None.

    The proof is a Cholesky factorization that runs to its end, with its largest backward error set aside.
    """
    for shift in shifts:
        S = -A
        entries = y - A.diagonal() + shift
        np.fill_diagonal(S, entries - 2 * (len(A) + 2) * EPSILON * np.abs(entries).sum())
        if dpotrf(S.T, lower=1, overwrite_a=1, clean=0)[1] == 0:
            return shift
    return None


def _generator(random_state):
    """Return a numpy Generator from a seed, a Generator or an old-style RandomState."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(f"random_state must be None, a seed or a Generator, got {random_state!r}") from error


def _check_matrix(C):
    """Return C as a float64 array after checking that it is a finite, real, symmetric matrix."""
    C = np.asarray(C)
    if C.dtype.kind not in "biuf":
        raise TypeError(f"C must be real and numeric, got dtype {C.dtype}; convert it with C.astype(float)")
    if C.ndim != 2 or C.shape[0] != C.shape[1] or C.shape[0] == 0:
        raise ValueError(f"C must be a square matrix with at least one row, got shape {C.shape}")
    C = np.ascontiguousarray(C, dtype=np.float64)
    if not np.isfinite(C).all():
        raise ValueError("C has entries that are NaN or infinite; remove or replace them first")
    gap = asymmetry(C)
    if gap > 1e-6 * max(C.max(), -C.min()):
        raise ValueError(f"C must be symmetric, got |C - C.T| up to {gap:.3g}; (C + C.T) / 2 has the same z'Cz")
    return C if gap == 0 else C / 2 + C.T / 2


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
