"""The semidefinite relaxation of the Boolean quadratic program, and proved upper bounds on its objectives.

The relaxation is lifted, solved by the mixing method and rounded. A lifted matrix is dense (`DenseLift`) or known by a
thin factor (`ThinLift`); both have the same methods.

The bounds on the ratio z'Cz / |z|^2 are far below the largest eigenvalue of C. X = zz' / |z|^2 is positive semidefinite
with trace one, 0 <= X_ij <= X_ii, and X_ij + X_ik - X_jk <= X_ii. So for any multipliers N, P >= 0 of the first
constraints and T >= 0 of the triangles

    z'Cz / |z|^2 = <C, X>  <=  lambda_max(C + sym(N) - sym(P) + Diag(P 1) + sum_ijk T_ijk (E_ii + E_jk - E_ij - E_ik)),

however they were found. They come from a closed form at a good z, then from a splitting (ADMM) of the relaxation.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal
from scipy.linalg.blas import dasum
from scipy.linalg.lapack import dpotrf

from boolcp.program._kernels import BLOCK, add_cuts, mixing_sweep, split_rows, thin_mixing_sweep, worst_triangles

Array = NDArray[np.float64]
Bits = NDArray[np.bool_]
Cuts = NDArray[np.int64]

EPSILON = float(np.finfo(np.float64).eps)
SINGLE = 500  # rows beyond which sweeps are in single precision, which no proof relies on; by bench_maxcut.py
RANK, MOMENTUM = 16, 0.6  # columns of V in the mixing method, and how far a row moves beyond its best point
CORNER = 16  # last entries of the diagonal that are raised so that one factorization is enough; not tuned
N_LANCZOS = 24  # steps that estimate the largest eigenvalue; not tuned
N_STEPS = {"quick": 0, "default": 150, "thorough": 600}  # largest number of steps of the splitting; by bench_bounds.py
TOLERANCE = {"quick": 1e-3, "default": 5e-3, "thorough": 1e-4}  # bound / value - 1 that is good enough
OPTIMAL = 1e-6  # bound / value - 1 at which a closed form is accepted at once
CHECK = 10  # steps between two evaluations of the bound; not tuned
FIRST_CUTS, NEXT_CUTS = 40, 60  # steps before the first triangles and between two lots; not tuned
N_CUTS = 10  # triangles of each lot for each bit; not tuned
AHEAD = 1.8  # over-relaxation of the splitting; not tuned
CUT_RATE = 0.5  # step size for the multipliers of the triangles; up to 1 it cannot diverge; not tuned
GRID = 36  # bits of the multipliers, relative to the value: their sums are then exact


def lift(C: Array, t: float = 0.0, dtype: type[np.floating[Any]] = np.float64) -> Array:
    """Return C~: z'(C - tI)z = [1; y]' C~ [1; y] / 4 for y = 2z - 1, Eq. (7)."""
    A: Array = np.empty((len(C) + 1, len(C) + 1), dtype)
    A[1:, 1:] = C
    A[1:, 0] = C.sum(axis=1) - t
    A[0, 1:] = A[1:, 0]
    A[0, 0] = A[0, 1:].sum()
    np.fill_diagonal(A[1:, 1:], C.diagonal() - t)
    return A


class DenseLift:
    """The lifted matrix A = C~ (n, n) of C - tI over signs x; the sweeps of a large one are in single precision."""

    def __init__(self, C: Array, t: float = 0.0) -> None:
        self.C, self.t = C, t
        self.dtype: type[np.floating[Any]] = np.float32 if len(C) > SINGLE else np.float64
        self.swept, self.n = lift(C, t, self.dtype), len(C) + 1

    def energy(self, V: Array) -> float:
        """Return <A, VV'> without its constant, the diagonal, for unit rows V (n, k)."""
        return float(np.sum((self.swept @ V) * V) - np.trace(self.swept))

    def sweep(self, V: Array, momentum: float) -> float:
        """Move each row of V in place toward its best point; return the gain in energy."""
        n_rows = BLOCK if self.dtype is np.float64 else 4 * BLOCK
        return float(mixing_sweep(self.swept, V, momentum, np.empty((n_rows, V.shape[1]), self.dtype)))

    def bound(self, V: Array) -> float | None:
        """Return a proved upper bound on x'Ax / 4 over signs x from shifted multipliers |A V|, or None.

        A factorization of S = Diag(y) + shift I - A that fails does so at its last pivots, as a rule. So the last
        entries of the diagonal are raised, by r. If S + r P = LL', where P projects on these entries, then
        S + (r - l) P is positive semidefinite for the smallest eigenvalue l of the last block of L times its transpose.
        """
        n, A = self.n, lift(self.C, self.t)
        diagonal = A.diagonal()
        y = np.linalg.norm(self.swept @ V - self.swept.diagonal()[:, None] * V, axis=1) + diagonal  # any y is valid
        scale = float(np.abs(y).mean())
        margin = 64 * EPSILON * dasum(A.ravel()) + n * EPSILON * n * scale
        entries, corner = y - diagonal, slice(n - min(CORNER, n), n)
        np.negative(A, out=A)
        for shift in scale * np.array([2e-4, 1e-3, 5e-3, 0.025, 0.125, 0.6, 3.0]):
            raised = np.zeros(n)
            raised[corner] = 4 * n * shift / CORNER  # as much in all as the next shift
            if prove_psd(A, entries + raised, [shift]) is not None:
                L = np.tril(A[corner, corner].T)
                rise = raised[-1] - float(np.linalg.eigvalsh(L @ L.T)[0]) + n * EPSILON * float(np.sum(L * L))
                return float(y.sum() + n * shift + len(L) * max(rise, 0.0) + margin) / 4
        return None


class ThinLift:
    """The lifted matrix GG' - t BB' of FF' - tI, with G = [1'F; F] (n, p) and BB' = [n - 1, 1'; 1, I]."""

    dtype: type[np.floating[Any]] = np.float64

    def __init__(self, F: Array, t: float = 0.0) -> None:
        self.G, self.t, self.n = np.vstack([F.sum(axis=0), F]), t, len(F) + 1

    def energy(self, V: Array) -> float:
        """Return <A, VV'> without its diagonal."""
        S = self.G.T @ V
        return float(np.sum(S * S) - np.sum(self.G * self.G) - 2 * self.t * V[0] @ V[1:].sum(axis=0))

    def sweep(self, V: Array, momentum: float) -> float:
        """Move each row of V in place; return the gain."""
        return float(thin_mixing_sweep(self.G, V, self.G.T @ V, self.t, momentum))

    def bound(self, V: Array) -> float | None:
        """Return a proved upper bound on x'GG'x / 4 >= x'Ax / 4 over signs x, or None.

        For y > 0 and s >= lambda_max(G' Diag(y)^-1 G) the matrix Diag(s y) - GG' is positive semidefinite, so that
        x'GG'x <= s sum(y). The multipliers y are those of the relaxation.
        """
        diagonal = np.einsum("ip,ip->i", self.G, self.G)
        y = np.linalg.norm(self.G @ (self.G.T @ V) - diagonal[:, None] * V, axis=1) + diagonal
        y = np.maximum(y, 1e-12 * y.max())
        scale = factor_bound(self.G, y)
        return None if scale is None else scale * float(y.sum()) * (1 + len(y) * EPSILON) / 4


def solve_sdp(A: DenseLift | ThinLift, rng: np.random.Generator, *, tol: float, max_sweeps: int = 1000) -> Array:
    """Maximize <A, VV'> over matrices V (n, RANK) with unit rows by the mixing method.

    Sweeps end when one gains less than tol relative to the objective without its constant part, the diagonal.
    Momentum starts after the first few sweeps.
    """
    V = rng.standard_normal((A.n, RANK))
    V = (V / np.linalg.norm(V, axis=1, keepdims=True)).astype(A.dtype)
    total = A.energy(V)
    for sweep in range(max_sweeps):
        gain = A.sweep(V, MOMENTUM if sweep > 2 else 0.0)
        total += gain
        if gain <= tol * abs(total):
            break
    return V


def round_hyperplanes(V: Array, rng: np.random.Generator, n_roundings: int) -> NDArray[np.bool_]:
    """Return Boolean vectors, one per row: a bit is on if its row of V is on the same side as row 0."""
    signs = V @ rng.standard_normal((V.shape[1], n_roundings)) >= 0
    return np.asarray((signs[1:] == signs[0]).T)


def eigenvalue_bound(C: Array, start: Array) -> float | None:
    """Return a proved upper bound on the largest eigenvalue of C, or None; Lanczos steps from `start` estimate it."""
    q, previous, norm = start / np.linalg.norm(start), np.zeros(len(C)), 0.0
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    for _ in range(N_LANCZOS):
        step = C @ q - norm * previous
        diagonal.append(float(q @ step))
        step -= diagonal[-1] * q
        norm = float(np.linalg.norm(step))
        off_diagonal.append(norm)
        if norm <= 1e-12 * abs(diagonal[-1]):
            break
        previous, q = q, step / norm
    value = float(eigvalsh_tridiagonal(diagonal, off_diagonal[:-1])[-1])
    shift = prove_psd(-C, value - C.diagonal(), abs(value) * np.array([1e-6, 1e-4, 1e-3, 0.01, 0.1, 1.0]))
    return None if shift is None else value + shift + EPSILON * abs(value)


def factor_bound(F: Array, y: Array) -> float | None:
    """Return a proved upper bound on the largest eigenvalue of F' Diag(y)^-1 F, or None, with its rounding errors."""
    S = F.T @ (F / y[:, None])
    bound = eigenvalue_bound((S + S.T) / 2, S.sum(axis=0) + S.diagonal())
    return None if bound is None else bound + 2 * (len(F) + 2) * EPSILON * float(np.trace(S))


def prove_psd(S: Array, entries: Array, shifts: Iterable[float]) -> float | None:
    """Return the first of the shifts that makes S with the diagonal `entries` positive semidefinite; overwrite S.

    The proof is a Cholesky factorization that succeeds, with a margin for its largest backward error. It takes one
    triangle of S, and the other one replaces it for the next.
    """
    for shift in shifts:
        diagonal = entries + shift
        np.fill_diagonal(S, diagonal - 2 * (len(S) + 2) * EPSILON * np.abs(diagonal).sum())
        if dpotrf(S.T, lower=1, overwrite_a=1, clean=0)[1] == 0:
            return float(shift)
        for i in range(len(S)):
            S[i, i + 1 :] = S[i + 1 :, i]
    return None


@dataclass(frozen=True)
class Multipliers:
    """Multipliers of the constraints: W = N - P (d, d) with a zero diagonal, and T for the triangles `cuts` (m, 3)."""

    W: Array
    cuts: Cuts = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    T: Array = field(default_factory=lambda: np.zeros(0))

    def added_to(self, C: Array) -> Array:
        """Return C + sym(N) - sym(P) + Diag(P 1) + the triangles: its largest eigenvalue bounds the ratio."""
        M = self.W + self.W.T
        M /= 2
        M[np.diag_indices(len(M))] -= np.minimum(self.W, 0).sum(axis=1)
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
    if (proof := prove(C, value, closed, value * (1 + OPTIMAL))) is not None:
        return proof
    known = [Multipliers(np.zeros(C.shape)), closed]
    known += [] if start is None else [Multipliers(start.W / value, start.cuts, start.T / value)]
    best, multipliers = min(((np.linalg.eigvalsh(m.added_to(scaled))[-1], m) for m in known), key=lambda pair: pair[0])
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
    return prove(C, value, multipliers)


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
    A = C[np.ix_(off, on)]
    sign = np.where(A.sum(axis=1, keepdims=True) > 0, 1.0, -1.0)
    ordered = -np.sort(-sign * A, axis=1)
    levels = np.cumsum(ordered, axis=1) - ordered.sum(axis=1, keepdims=True)
    levels /= np.arange(1, len(on) + 1)  # if so many of the largest are lowered
    W[np.ix_(off, on)] = -2 * sign * np.maximum(sign * A - levels.max(axis=1, keepdims=True), 0)
    W[np.ix_(off, off)] = np.maximum(-C[np.ix_(off, off)], 0)
    np.fill_diagonal(W, 0.0)
    return Multipliers(W)


def cut_rates(cuts: Cuts, d: int) -> Array:
    """Return for each cut one over the number of cuts that share its entries: steps of that size do not diverge."""
    n, (i, j, k) = np.zeros((d, d)), cuts.T
    for a, b in ((j, k), (k, j), (i, j), (j, i), (i, k), (k, i)):
        np.add.at(n, (a, b), 1.0)
    return 1 / (np.bincount(i, minlength=d)[i] + (n[j, k] + n[i, j] + n[i, k]) / 2)


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
            self.project()

    def step(self) -> None:
        """Take one step: X, the multipliers of the triangles, then Y and U; at times more triangles."""
        previous, self.X = self.X, self.project()
        i, j, k = self.cuts.T
        ahead = 2 * self.X - previous
        slack = ahead[i, i] + ahead[j, k] - ahead[i, j] - ahead[i, k]
        self.T = np.maximum(self.T - CUT_RATE * self.rho * self.rates * slack, 0.0)
        split_rows(self.X, self.Y, self.U, AHEAD)
        self.n_steps += 1
        if self.n_steps >= FIRST_CUTS and (self.n_steps - FIRST_CUTS) % NEXT_CUTS == 0:
            worst = worst_triangles(self.X, N_CUTS, 1e-4 * self.X.diagonal().max())
            alive = self.T > 0  # the others are dropped
            self.cuts, first = np.unique(np.vstack([self.cuts[alive], worst]), axis=0, return_index=True)
            self.T = np.append(self.T[alive], np.zeros(len(worst)))[first]
            self.rates = cut_rates(self.cuts, len(self.C))

    def project(self) -> Array:
        """Return the next X: the closest positive semidefinite matrix of trace one, by eigenvectors followed in Q."""
        M = self.C.copy()
        add_cuts(M, self.cuts, self.T)
        M /= self.rho
        M += (self.Y - self.U + (self.Y - self.U).T) / 2
        values, vectors = leading_eigenvectors(M, self.Q)
        means = (np.cumsum(values[::-1]) - 1) / np.arange(1, len(values) + 1)
        weights = np.maximum(values - means[np.flatnonzero(values[::-1] > means)[-1]], 0)  # on the simplex
        rank = int(np.count_nonzero(weights))
        self.Q = vectors[:, -max(16, rank + 8) :]
        return (vectors[:, -rank:] * weights[-rank:]) @ vectors[:, -rank:].T

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


def prove(C: Array, value: float, multipliers: Multipliers, top: float | None = None) -> Proof | None:
    """Return the bound on C that multipliers for C / value prove, or None; `top` is the bound to prove, if it is known.

    The multipliers are rounded to a grid on which their sums have no rounding errors. Adding them to C rounds each
    entry once, which moves no eigenvalue by more than epsilon times the Frobenius norm.
    """
    step = float(np.ldexp(1.0, int(np.frexp(value)[1]) - GRID))
    W, T = (np.round(value * each / step) * step for each in (multipliers.W, multipliers.T))
    rounded = Multipliers(W, multipliers.cuts, T)
    if np.abs(W).sum(axis=1).max() + 2 * T.sum() >= 2.0**52 * step:
        return None
    M = rounded.added_to(C)
    shifts = np.array([1e-9, 1e-6, 1e-3, 0.1] if top is None else [1e-9])
    top = float(np.linalg.eigvalsh(M)[-1]) if top is None else top
    shift = prove_psd(-M, top - M.diagonal(), abs(top) * shifts)
    if shift is None:
        return None
    return Proof(top + shift + EPSILON * (2 * abs(top) + float(np.linalg.norm(M))), rounded)
