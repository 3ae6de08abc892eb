"""Proved upper bounds on the ratio z'Cz / |z|^2, far below the largest eigenvalue of C.

X = zz' / |z|^2 is positive semidefinite with trace one, 0 <= X_ij <= X_ii, and X_ij + X_ik - X_jk <= X_ii. So for any
multipliers N, P >= 0 of the first constraints and T >= 0 of the triangles

    z'Cz / |z|^2 = <C, X>  <=  lambda_max(C + sym(N) - sym(P) + Diag(P 1) + sum_ijk T_ijk (E_ii + E_jk - E_ij - E_ik)),

however they were found. They come from a closed form at a good z, then from a splitting (ADMM) of the relaxation.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from boolcp.program._kernels import add_cuts, split_rows, worst_triangles
from boolcp.program.relaxation import EPSILON, Array, prove_psd

Bits = NDArray[np.bool_]
Cuts = NDArray[np.int64]

N_STEPS = {"quick": 0, "default": 150, "thorough": 600}  # largest number of steps of the splitting; by bench_bounds.py
TOLERANCE = {"quick": 1e-3, "default": 5e-3, "thorough": 1e-4}  # bound / value - 1 that is good enough
OPTIMAL = 1e-6  # bound / value - 1 at which a closed form is accepted at once
CHECK = 10  # steps between two evaluations of the bound; not tuned
FIRST_CUTS, NEXT_CUTS = 40, 60  # steps before the first triangles and between two lots; not tuned
N_CUTS = 10  # triangles of each lot for each bit; not tuned
AHEAD = 1.8  # over-relaxation of the splitting; not tuned
CUT_RATE = 0.5  # step size for the multipliers of the triangles; up to 1 it cannot diverge; not tuned
GRID = 36  # bits of the multipliers, relative to the value: their sums are then exact


@dataclass(frozen=True)
class Multipliers:
    """Multipliers of the constraints: W = N - P (d, d) with a zero diagonal, and T for the triangles `cuts` (m, 3)."""

    W: Array
    cuts: Cuts = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    T: Array = field(default_factory=lambda: np.zeros(0))

    def times(self, factor: float) -> "Multipliers":
        """Return the multipliers times a positive number."""
        return Multipliers(factor * self.W, self.cuts, factor * self.T)

    def added_to(self, C: Array) -> Array:
        """Return C + sym(N) - sym(P) + Diag(P 1) + the triangles: its largest eigenvalue bounds the ratio."""
        M = (self.W + self.W.T) / 2
        M[np.diag_indices(len(M))] += np.maximum(-self.W, 0).sum(axis=1)
        add_cuts(M, self.cuts, self.T)
        M += C
        return M


class Proof(NamedTuple):
    """A proved bound and the multipliers that prove it, a start for the next matrix."""

    bound: float
    multipliers: Multipliers


def prove_ratio(C: Array, z: Bits, *, effort: str = "default", start: Multipliers | None = None) -> Proof | None:
    """Return a proved upper bound on z'Cz / |z|^2 over all Boolean z, close to the value at the given good z.

    C is symmetric. The effort is only the largest eigenvalue and the closed form, the splitting down to 0.5 %, or down
    to 0.01 %. It may start from the multipliers of a similar matrix. None if no factorization proves a bound, or if
    the ratio at z is not positive.
    """
    value = float(z @ C @ z) / float(z.sum())
    if not value > 0:
        return None
    scaled = C / value  # the search for multipliers may round, the proof may not
    closed = closed_form(scaled, z)
    if prove_psd(closed.added_to(scaled), np.ones(len(C)), [OPTIMAL]) is not None:
        return prove(C, value, closed.times(value), value * (1 + OPTIMAL))
    known = [Multipliers(np.zeros(C.shape)), closed]
    known += [] if start is None else [start.times(1 / value)]
    best, multipliers = min(((largest(m.added_to(scaled)), m) for m in known), key=lambda pair: pair[0])
    enough = 1 + TOLERANCE[effort]
    if best > enough:
        splitting = Splitting(scaled, z, multipliers)
        for _ in range(N_STEPS[effort] // CHECK):
            for _ in range(CHECK):
                splitting.step()
            bound, found = splitting.bound()
            if bound < best:
                best, multipliers = bound, found
            if best <= enough:
                break
    return prove(C, value, multipliers.times(value))


def largest(M: Array) -> float:
    """Return the largest eigenvalue."""
    return float(np.linalg.eigvalsh(M)[-1])


def closed_form(C: Array, z: Bits) -> Multipliers:
    """Return multipliers that make z an eigenvector to the eigenvalue z'Cz / |z|^2 = 1.

    On the ones S of z, P_ij = 2 (b_i - b_j)+ / |S| with b = 1 - C_SS 1 evens out the row sums. In every row outside,
    the entries in S are made to sum to zero: the largest are lowered (P), or the lowest raised (N), to a common
    level. Negative entries outside are raised to zero.
    """
    W = np.zeros(C.shape)
    on, off = np.flatnonzero(z), np.flatnonzero(~z)
    b = 1 - C[np.ix_(on, on)].sum(axis=1)
    W[np.ix_(on, on)] = -2 / len(on) * np.maximum(b[:, None] - b, 0)
    W[np.ix_(off, on)] = 2 * level_rows(C[np.ix_(off, on)])
    W[np.ix_(off, off)] = np.maximum(-C[np.ix_(off, off)], 0)
    np.fill_diagonal(W, 0.0)
    return Multipliers(W)


def level_rows(A: Array) -> Array:
    """Return changes that make each row sum to zero: largest entries lowered, or lowest raised, to a common level."""
    sign = np.where(A.sum(axis=1, keepdims=True) > 0, 1.0, -1.0)
    ordered = -np.sort(-sign * A, axis=1)
    n = np.arange(1, A.shape[1] + 1)
    levels = (np.cumsum(ordered, axis=1) - ordered.sum(axis=1, keepdims=True)) / n  # if the n largest are lowered
    level = levels.max(axis=1, keepdims=True)
    return -sign * np.maximum(sign * A - level, 0)


def cut_rates(cuts: Cuts, d: int) -> Array:
    """Return for each cut one over the number of cuts that share its entries: steps of that size do not diverge."""
    n, (i, j, k) = np.zeros((d, d)), cuts.T
    for a, b in ((j, k), (k, j), (i, j), (j, i), (i, k), (k, i)):
        np.add.at(n, (a, b), 1.0)
    return 1 / (np.bincount(i, minlength=d)[i] + (n[j, k] + n[i, j] + n[i, k]) / 2)


def slack(cuts: Cuts, X: Array) -> Array:
    """Return X_ii + X_jk - X_ij - X_ik for each cut (i, j, k)."""
    i, j, k = cuts.T
    return X[i, i] + X[j, k] - X[i, j] - X[i, k]


class Splitting:
    """max <C, X> over X = Y, X positive semidefinite of trace one and 0 <= Y_ij <= Y_ii, by ADMM from a good z.

    The alternating direction method of multipliers projects on the two sets in turn and adds up the difference in U.
    The multipliers T of the triangles follow their slacks by a primal-dual step.
    """

    def __init__(self, C: Array, z: Bits, start: Multipliers) -> None:
        d = len(C)
        self.C, self.n_steps = C, 0
        self.rho = 5 * max(1.0, d / 150)
        self.X: Array = np.outer(z, z) / z.sum()
        self.Y, self.U = self.X.copy(), start.W / -self.rho
        self.cuts, self.T, self.rates = start.cuts, start.T.copy(), cut_rates(start.cuts, d)
        self.Q: Array = np.random.default_rng(0).standard_normal((d, min(16, d)))
        for _ in range(3):
            self.project(self.target())

    def step(self) -> None:
        """Take one step: X, the multipliers of the triangles, then Y and U; at times more triangles."""
        previous, self.X = self.X, self.project(self.target())
        ahead = slack(self.cuts, 2 * self.X - previous) if len(self.cuts) else 0.0
        self.T = np.maximum(self.T - CUT_RATE * self.rho * self.rates * ahead, 0.0)
        split_rows(self.X, self.Y, self.U, AHEAD)
        self.n_steps += 1
        if self.n_steps >= FIRST_CUTS and (self.n_steps - FIRST_CUTS) % NEXT_CUTS == 0:
            self.add_triangles()

    def target(self) -> Array:
        """Return the matrix that X approximates best within its set."""
        M = self.C.copy()
        add_cuts(M, self.cuts, self.T)
        M /= self.rho
        M += (self.Y - self.U + (self.Y - self.U).T) / 2
        return M

    def project(self, M: Array) -> Array:
        """Return the closest positive semidefinite matrix of trace one, by leading eigenvectors followed in Q."""
        values, vectors = leading_eigenvectors(M, self.Q)
        weights = project_on_simplex(values)
        rank = int(np.count_nonzero(weights))
        self.Q = vectors[:, -max(16, rank + 8) :]
        return (vectors[:, -rank:] * weights[-rank:]) @ vectors[:, -rank:].T

    def add_triangles(self) -> None:
        """Add the triangles that X violates most and drop those without a multiplier."""
        worst = worst_triangles(self.X, N_CUTS, 1e-4 * self.X.diagonal().max())
        alive = self.T > 0
        cuts = np.vstack([self.cuts[alive], worst])
        self.cuts, first = np.unique(cuts, axis=0, return_index=True)
        self.T = np.append(self.T[alive], np.zeros(len(worst)))[first]
        self.rates = cut_rates(self.cuts, len(self.C))

    def bound(self) -> tuple[float, Multipliers]:
        """Return the bound of the present multipliers, estimated, and these."""
        W = -self.rho * self.U
        np.fill_diagonal(W, 0.0)
        multipliers = Multipliers(W, self.cuts, self.T.copy())
        return float(leading_eigenvectors(multipliers.added_to(self.C), self.Q)[0][-1]), multipliers


def leading_eigenvectors(M: Array, Q: Array) -> tuple[Array, Array]:
    """Return nearly the largest eigenvalues of M, increasing, and their vectors: the best in the span of Q and MQ."""
    if 2 * Q.shape[1] >= len(M):
        values, vectors = np.linalg.eigh(M)
        return values, vectors
    B = np.linalg.qr(np.hstack([Q, M @ Q]))[0]
    values, rotation = np.linalg.eigh(B.T @ M @ B)
    return values, B @ rotation


def project_on_simplex(values: Array) -> Array:
    """Return the closest weights >= 0 with sum one to increasing values."""
    means = (np.cumsum(values[::-1]) - 1) / np.arange(1, len(values) + 1)
    return np.maximum(values - means[np.flatnonzero(values[::-1] > means)[-1]], 0)


def prove(C: Array, value: float, multipliers: Multipliers, top: float | None = None) -> Proof | None:
    """Return the bound that the multipliers prove for C, or None; `top` is an estimate of it, if there is one.

    The multipliers are rounded to a grid on which their sums have no rounding errors. Adding them to C rounds each
    entry once, which moves no eigenvalue by more than epsilon times the Frobenius norm.
    """
    step = float(np.ldexp(1.0, int(np.frexp(value)[1]) - GRID))
    rounded = Multipliers(
        np.round(multipliers.W / step) * step, multipliers.cuts, np.round(multipliers.T / step) * step
    )
    if np.abs(rounded.W).sum(axis=1).max() + 2 * rounded.T.sum() >= 2.0**52 * step:
        return None
    M = rounded.added_to(C)
    top = largest(M) if top is None else top
    shift = prove_psd(M, np.full(len(M), top), abs(top) * np.array([1e-9, 1e-6, 1e-3, 0.1]))
    if shift is None:
        return None
    return Proof(top + shift + EPSILON * (2 * abs(top) + float(np.linalg.norm(M))), rounded)
