"""The semidefinite relaxation of the Boolean quadratic program: lift, mixing method, rounding, and proved bounds.

A lifted matrix is dense (`DenseLift`) or known by a thin factor (`ThinLift`); both answer the same questions.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal
from scipy.linalg.blas import dasum
from scipy.linalg.lapack import dpotrf

from boolcp.program._kernels import BLOCK, mixing_sweep, thin_mixing_sweep

Array = NDArray[np.float64]
LARGE = 500  # rows beyond which sweeps are in single precision, which no proof relies on; by bench_maxcut.py
CORNER = 16  # last entries of the diagonal that are raised so that one factorization is enough; not tuned
EPSILON = float(np.finfo(np.float64).eps)


def lift(C: Array, t: float = 0.0, dtype: type[np.floating[Any]] = np.float64) -> Array:
    """Return C~: z'(C - tI)z = [1; y]' C~ [1; y] / 4 for y = 2z - 1."""
    A: Array = np.empty((len(C) + 1, len(C) + 1), dtype)
    A[1:, 1:] = C
    A[1:, 0] = C.sum(axis=1) - t
    A[0, 1:] = A[1:, 0]
    A[0, 0] = A[0, 1:].sum()
    np.fill_diagonal(A[1:, 1:], C.diagonal() - t)
    return A


class DenseLift:
    """The lifted matrix A = C~ (n, n) of C - tI over signs x, whose first entry stands for the constant.

    The sweeps of a large one are in single precision.
    """

    def __init__(self, C: Array, t: float = 0.0) -> None:
        self.C, self.t = C, t
        self.dtype: type[np.floating[Any]] = np.float32 if len(C) > LARGE else np.float64
        self.swept = lift(C, t, self.dtype)

    def __len__(self) -> int:
        return len(self.swept)

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
        n, A = len(self), lift(self.C, self.t)
        diagonal = A.diagonal()
        y = np.linalg.norm(self.swept @ V - self.swept.diagonal()[:, None] * V, axis=1) + diagonal  # any y is valid
        scale = float(np.abs(y).mean())
        margin = 64 * EPSILON * dasum(A.ravel()) + n * EPSILON * n * scale
        entries, corner = y - diagonal, slice(n - min(CORNER, n), n)
        np.negative(A, out=A)
        for shift in scale * np.array([2e-4, 1e-3, 5e-3, 0.025, 0.125, 0.6, 3.0]):
            raised = np.zeros(n)
            raised[corner] = 4 * n * shift / CORNER  # as much in all as the next shift
            if prove_in_place(A, entries + raised, [shift]) is not None:
                L = np.tril(A[corner, corner].T)
                rise = raised[-1] - float(np.linalg.eigvalsh(L @ L.T)[0]) + n * EPSILON * float(np.sum(L * L))
                return float(y.sum() + n * shift + len(L) * max(rise, 0.0) + margin) / 4
        return None


class ThinLift:
    """The lifted matrix GG' - t BB' of FF' - tI, with G = [1'F; F] (n, p) and BB' = [n - 1, 1'; 1, I]."""

    dtype: type[np.floating[Any]] = np.float64

    def __init__(self, F: Array, t: float = 0.0) -> None:
        self.G = np.vstack([F.sum(axis=0), F])
        self.t = t

    def __len__(self) -> int:
        return len(self.G)

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


def solve_sdp(
    A: DenseLift | ThinLift,
    rng: np.random.Generator,
    *,
    rank: int = 16,
    tol: float = 1e-4,
    max_sweeps: int = 1000,
    momentum: float = 0.6,
) -> Array:
    """Maximize <A, VV'> over matrices V (n, rank) with unit rows by the mixing method.

    Sweeps end when one gains less than tol relative to the objective without its constant part, the diagonal.
    Momentum starts after the first few sweeps.
    """
    V = rng.standard_normal((len(A), rank))
    V = (V / np.linalg.norm(V, axis=1, keepdims=True)).astype(A.dtype)
    total = A.energy(V)
    for sweep in range(max_sweeps):
        gain = A.sweep(V, momentum if sweep > 2 else 0.0)
        total += gain
        if gain <= tol * abs(total):
            break
    return V


def round_hyperplanes(V: Array, rng: np.random.Generator, n_roundings: int) -> NDArray[np.bool_]:
    """Return Boolean vectors, one per row: a bit is on if its row of V is on the same side as row 0."""
    signs = V @ rng.standard_normal((V.shape[1], n_roundings)) >= 0
    return np.asarray((signs[1:] == signs[0]).T)


def eigenvalue_bound(C: Array, start: Array) -> float | None:
    """Return a proved upper bound on the largest eigenvalue of C, or None."""
    value = largest_eigenvalue(C, start)
    shift = prove_in_place(-C, value - C.diagonal(), abs(value) * np.array([1e-6, 1e-4, 1e-3, 0.01, 0.1, 1.0]))
    return None if shift is None else value + shift + EPSILON * abs(value)


def largest_eigenvalue(C: Array, start: Array, n_steps: int = 24) -> float:
    """Return an estimate of the largest eigenvalue of C by Lanczos steps from a nonzero vector."""
    q, previous, norm = start / np.linalg.norm(start), np.zeros(len(C)), 0.0
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    for _ in range(n_steps):
        step = C @ q - norm * previous
        diagonal.append(float(q @ step))
        step -= diagonal[-1] * q
        norm = float(np.linalg.norm(step))
        off_diagonal.append(norm)
        if norm <= 1e-12 * abs(diagonal[-1]):
            break
        previous, q = q, step / norm
    return float(eigvalsh_tridiagonal(diagonal, off_diagonal[:-1])[-1])


def factor_bound(F: Array, y: Array) -> float | None:
    """Return a proved upper bound on the largest eigenvalue of F' Diag(y)^-1 F, or None.

    The rounding errors of that product are at most its number of terms times epsilon times its trace.
    """
    S = F.T @ (F / y[:, None])
    bound = eigenvalue_bound((S + S.T) / 2, S.sum(axis=0) + S.diagonal())
    return None if bound is None else bound + 2 * (len(F) + 2) * EPSILON * float(np.trace(S))


def prove_psd(A: Array, y: Array, shifts: Iterable[float]) -> float | None:
    """Return the first of the shifts for which Diag(y) + shift I - A is proved positive semidefinite, or None.

    The proof is a Cholesky factorization that succeeds, with a margin for its largest backward error.
    """
    return prove_in_place(-A, y - A.diagonal(), shifts)


def prove_in_place(S: Array, entries: Array, shifts: Iterable[float]) -> float | None:
    """Return the first of the shifts that makes S with the diagonal `entries` positive semidefinite; overwrite S.

    A factorization takes one triangle of S, and the other one replaces it for the next.
    """
    for shift in shifts:
        diagonal = entries + shift
        np.fill_diagonal(S, diagonal - 2 * (len(S) + 2) * EPSILON * np.abs(diagonal).sum())
        if dpotrf(S.T, lower=1, overwrite_a=1, clean=0)[1] == 0:
            return float(shift)
        for i in range(len(S)):
            S[i, i + 1 :] = S[i + 1 :, i]
    return None
