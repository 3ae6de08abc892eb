"""The Boolean quadratic program max z'Cz over z in {0,1}^d, z != 0, with a certificate of quality.

The program is lifted to a MAXCUT-like problem over signs, relaxed to a semidefinite program (SDP), solved by
the mixing method, rounded by random hyperplanes and improved by flips. Dual multipliers of the relaxation
bound the optimum from above. The ratio z'Cz / |z|^2 is maximized by the same steps.
"""

from dataclasses import dataclass

import numpy as np

from boolcp import checks
from boolcp.program._kernels import BLOCK, asymmetry, mixing_sweep
from boolcp.program.flips import best_of, first_starts, local_search, merge, recombine
from boolcp.program.relaxation import EPSILON, eigenvalue_bound, sdp_bound

EXHAUSTIVE = 20
EFFORTS = ("quick", "default", "thorough")


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
    return _checked(C, random_state, starts, certify, effort, is_ratio=False)


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
    return _checked(C, random_state, starts, certify, effort, is_ratio=True)


def _checked(C, random_state, starts, certify, effort, is_ratio):
    """Check what the two doors are given and solve the program."""
    C = _check_matrix(C)
    starts = _check_starts(starts, len(C))
    checks.check_choice(effort, "effort", EFFORTS)
    rng = checks.make_generator(random_state)
    return solve_program(C, rng, is_ratio=is_ratio, starts=starts, certify=certify, effort=effort)


def solve_program(C, rng, *, is_ratio, starts=None, certify=True, effort="default"):
    """Maximize z'Cz, or z'Cz / |z|^2 if is_ratio, without checks: C (d, d) float64 and symmetric, starts (s, d) bool.

    Zero rows are dropped and extreme entries scaled by a power of two; both are undone in the answer.
    """
    d = len(C)
    active = np.flatnonzero(C.any(axis=1))
    if active.size == 0:
        return make_result(d, np.array([0]), 0.0, 0.0 if certify else None)
    if active.size < d:
        C = C[np.ix_(active, active)]
        starts = None if starts is None else starts[:, active]
    exponent = int(np.frexp(max(C.max(), -C.min()))[1])
    exponent = 0 if abs(exponent) < 200 else exponent
    C = np.ldexp(C, -exponent) if exponent else np.ascontiguousarray(C)
    if len(C) > EXHAUSTIVE:
        z, value, bound = _search(C, rng, starts, certify, effort, is_ratio)
    else:
        z, value, bound = enumerate_all(C, certify, is_ratio)
    if bound is not None:
        bound = float(np.ldexp(bound, exponent))
    return make_result(d, active[z], float(np.ldexp(value, exponent)), bound)


def make_result(d, on, value, bound):
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
    z = best_of(pool)
    return z, objective(C, z, is_ratio), bound


def objective(C, z, is_ratio=False):
    """Return z'Cz, or z'Cz / |z|^2."""
    value = z @ C @ z
    return value / np.sum(z) if is_ratio else value


def enumerate_all(C, certify, is_ratio):
    """Return the best of all 2^d - 1 nonzero vectors, its objective, and that plus a rounding margin.

    The bits are split in two halves, so that all values are one matrix: a'Ca + b'Cb + 2 a'Cb. Of vectors
    equal up to rounding, the one with the fewest ones is taken.
    """
    d = len(C)
    half = d // 2
    low, high = _all_bits(half), _all_bits(d - half)
    n_low, n_high = low.sum(axis=1), high.sum(axis=1)
    cross, low_values = 2 * low @ C[:half, half:], ((low @ C[:half, :half]) * low).sum(axis=1)
    high_values = ((high @ C[half:, half:]) * high).sum(axis=1)

    def evaluate(rows):
        values = cross[rows] @ high.T
        values += low_values[rows, None]
        values += high_values
        if is_ratio:
            values /= np.maximum(np.add.outer(n_low[rows], n_high), 1)
        values[rows == 0, 0] = -np.inf
        return values

    margin = 4 * d * EPSILON * np.abs(C).sum()
    parts = np.split(np.arange(len(low)), range(64, len(low), 64))  # a part of the matrix stays in the cache
    largest = np.concatenate([evaluate(rows).max(axis=1) for rows in parts])
    rows = np.flatnonzero(largest >= largest.max() - margin)
    values = evaluate(rows)
    ties, columns = np.nonzero(values >= values.max() - margin)
    fewest = np.argmin(n_low[rows[ties]] + n_high[columns])
    z = np.concatenate([low[rows[ties[fewest]]], high[columns[fewest]]]).astype(bool)
    value = objective(C, z, is_ratio)
    return z, value, value + 2 * margin if certify else None


def _all_bits(n_bits):
    """Return all 2^n_bits Boolean vectors as rows of floats."""
    return (np.arange(2**n_bits)[:, None] >> np.arange(n_bits) & 1).astype(float)


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
