"""The Boolean quadratic program max z'Cz over z in {0,1}^d, z != 0, with a certificate of quality.

The program is lifted to a MAXCUT-like problem over signs, relaxed to a semidefinite program (SDP), solved by
the mixing method, rounded by random hyperplanes and improved by flips. Dual multipliers of the relaxation
bound the optimum from above. The ratio z'Cz / |z|^2 is maximized by the same steps, for every kind of Gram matrix.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from boolcp import checks
from boolcp.program.flips import best_of, climb_all, first_starts, is_easy, is_large, merge, recombine
from boolcp.program.grams import Array, Bits, Gram, as_gram
from boolcp.program.relaxation import EPSILON, round_hyperplanes, solve_sdp
from boolcp.system import one_thread

EXHAUSTIVE = 20  # entries of z up to which all vectors are compared; not tuned
LONG = 4096  # beyond, the relaxation is skipped if all starts lead to the same z; not tuned
SLOW = 2000  # rows beyond which few crossings are made, each takes long; not tuned
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
        Proved upper bound on the objective of every Boolean vector; None if not requested or not proved.

    Examples
    --------
    >>> import numpy as np
    >>> import boolcp
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
    a search with random starts, and `bound` limits how far it can be from the optimum.

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

    Returns
    -------
    BooleanQuadratic
        With `z`, `value` (the ratio z'Cz / |z|^2), `bound` and `ratio` (the value over the bound).

    Examples
    --------
    >>> import numpy as np
    >>> import boolcp
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
    matrix = _check_matrix(C)
    bits = _check_starts(starts, len(matrix))
    checks.check_choice(effort, "effort", EFFORTS)
    rng = checks.make_generator(random_state)
    with one_thread():
        return maximize(matrix, rng, is_ratio=is_ratio, starts=bits, certify=certify, effort=effort, proof=effort)


def maximize(
    C: Gram | Array,
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
    C = as_gram(C)
    d = len(C)
    active, exponent, C = C.compact()
    if active.size == 0:
        return _result(d, np.array([0]), 0.0, 0.0 if certify else None)
    if len(C) <= EXHAUSTIVE:
        z, value, bound = enumerate_all(C @ np.eye(len(C)), certify, is_ratio)
    else:
        starts = None if starts is None else starts[:, active]
        z, value, bound = search(C, rng, starts, certify, effort, is_ratio, proof)
    bound = None if bound is None else float(np.ldexp(bound, exponent))
    return _result(d, active[z], float(np.ldexp(value, exponent)), bound)


def _result(d: int, on: NDArray[np.intp], value: float, bound: float | None) -> BooleanQuadratic:
    """Return the frozen result with the bits `on`."""
    z = np.zeros(d, dtype=bool)
    z[on] = True
    z.flags.writeable = False
    return BooleanQuadratic(z, value, bound)


def search(
    C: Gram,
    rng: np.random.Generator,
    starts: Bits | None,
    certify: bool,
    effort: str,
    is_ratio: bool,
    proof: str = "eigenvalue",
) -> tuple[Bits, float, float | None]:
    """Return z, its objective and the bound (None unless requested and proved)."""
    climbed = climb_all(C, first_starts(C, rng, starts, is_ratio), is_ratio)
    pool, bound = merge(climbed), None
    is_dual = certify and not is_ratio
    if is_dual or (effort != "quick" and (len(C) <= LONG or len(pool) > 1)):
        A = C.lift(pool[0].value if is_ratio else 0.0)
        V = solve_sdp(A, rng, tol=1e-6 if is_dual else 1e-4)
        climbed += climb_all(C, round_hyperplanes(V, rng, 24), is_ratio)
        pool = merge(climbed)
    if certify and not is_ratio:
        bound = A.bound(V)
    elif certify and proof == "eigenvalue":
        bound = C.eigenvalue_bound(pool[0].z + 0.1 * rng.random(len(C)))
    is_proved = bound is not None and pool[0].value >= bound * (1 - 1e-9)
    is_over = is_proved or effort == "quick" or (effort == "default" and is_easy(C, climbed))
    if not is_over:
        n_rounds, n_idle = (30, 5 * len(C)) if effort == "thorough" else (12, min(len(C), 1000))
        if effort == "default" and is_large(C):
            n_rounds, n_idle = (24, 2 * n_idle) if len(C) <= SLOW else (2, 600)  # by bench_maxcut.py
        pool = recombine(C, pool, rng, is_ratio, n_rounds, n_idle)
    z = best_of(pool)
    if certify and is_ratio and proof != "eigenvalue":
        bound = C.ratio_bound(z, proof)
    return z, objective(C, z, is_ratio), bound


def objective(C: Gram | Array, z: Bits, is_ratio: bool = False) -> float:
    """Return z'Cz, or z'Cz / |z|^2."""
    value = float(z @ C @ z)
    return value / float(np.sum(z)) if is_ratio else value


def enumerate_all(C: Array, certify: bool, is_ratio: bool) -> tuple[Bits, float, float | None]:
    """Return the best of all 2^d - 1 nonzero vectors, its objective, and that plus a rounding margin.

    The bits are split in two halves, so that all values are one matrix: a'Ca + b'Cb + 2 a'Cb. Of vectors
    equal up to rounding, the one with the fewest ones wins.
    """
    d = len(C)
    half = d // 2
    low, high = _all_bits(half), _all_bits(d - half)
    n_low, n_high = low.sum(axis=1), high.sum(axis=1)
    cross, low_values = 2 * low @ C[:half, half:], ((low @ C[:half, :half]) * low).sum(axis=1)
    high_values = ((high @ C[half:, half:]) * high).sum(axis=1)

    def evaluate(rows: NDArray[np.intp]) -> Array:
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


def _all_bits(n_bits: int) -> Array:
    """Return all 2^n_bits Boolean vectors as rows of floats."""
    return (np.arange(2**n_bits)[:, None] >> np.arange(n_bits) & 1).astype(float)


def _check_matrix(C: ArrayLike) -> Array:
    """Return C as a float64 array after checking that it is a finite, real, symmetric matrix."""
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
    return C if gap == 0 else C / 2 + C.T / 2


def _check_starts(starts: ArrayLike | None, d: int) -> Bits | None:
    """Return starts as a Boolean (s, d) array, or None."""
    if starts is None:
        return None
    starts = np.asarray(starts)
    if starts.ndim != 2 or starts.shape[1] != d:
        raise ValueError(f"starts must have shape (s, {d}), one Boolean vector per row, got {starts.shape}")
    if not np.isin(starts, (0, 1)).all():
        raise ValueError("starts must hold only 0 and 1 (or False and True)")
    return starts.astype(bool)
