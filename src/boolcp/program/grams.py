"""Gram matrices for the Boolean quadratic program: dense, or FF' with a thin F (d, p) at cost O(dp)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from boolcp.program._kernels import flip_search, flip_sweeps
from boolcp.program.bounds import Array, Bits, eigenvalue_bound, factor_bound, prove_ratio

LARGE = 1000  # rows beyond which a bound better than the largest eigenvalue takes more than ten seconds
MAX_FLIP_COST = 2e7  # multiplications that a search in a long mode may spend on flips; not tuned


class DenseGram:
    """A positive semidefinite matrix C (d, d) whose Boolean quadratic program is solved."""

    is_thin = False
    __array_ufunc__ = None  # Z @ C is asked of C

    def __init__(self, C: Array) -> None:
        self.C, self.row_cost = C, len(C)

    def __len__(self) -> int:
        return len(self.C)

    def __matmul__(self, Z: NDArray[Any]) -> Array:
        return self.C @ Z

    def __rmatmul__(self, Z: NDArray[Any]) -> Array:
        return Z @ self.C

    def __getitem__(self, i: int) -> Array:
        return self.C[i]

    def diagonal(self) -> Array:
        """Return the diagonal."""
        return self.C.diagonal()

    def compact(self) -> tuple[NDArray[np.intp], int, "DenseGram"]:
        """Return the nonzero rows, an exponent, and C restricted to them; only extreme entries are scaled."""
        is_active = self.C.diagonal() != 0
        is_active[~is_active] = self.C[~is_active].any(axis=1)
        active = np.flatnonzero(is_active)
        C = self.C if active.size == len(self.C) else self.C[np.ix_(active, active)]
        exponent = _exponent(C)
        exponent = 0 if abs(exponent) < 40 else exponent  # squares of sums are in the range of single precision
        return active, exponent, DenseGram(np.ldexp(C, -exponent) if exponent else np.ascontiguousarray(C))

    def climb(self, z: Bits, Cz: Array, n_idle: int, tenure: int, is_ratio: bool) -> float:
        """Improve z in place by flips, for n_idle steps beyond a local optimum; return its value. Cz is overwritten."""
        return float(flip_search(self.C, z, Cz, self.diagonal().copy(), n_idle, tenure, is_ratio, False))


class ThinGram:
    """The matrix FF' of a thin F (d, p), never formed; it answers like a DenseGram."""

    is_thin = True
    __array_ufunc__ = None

    def __init__(self, F: Array) -> None:
        self.F, self.row_cost = F, F.size

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

    def compact(self) -> tuple[NDArray[np.intp], int, "ThinGram"]:
        """Return the nonzero rows, an exponent, and FF' restricted to them with entries of F below one."""
        active = np.flatnonzero(self.F.any(axis=1))
        F = self.F if active.size == len(self.F) else self.F[active]
        exponent = _exponent(F)
        return active, 2 * exponent, ThinGram(np.ldexp(np.ascontiguousarray(F), -exponent))

    def climb(self, z: Bits, Cz: Array, n_idle: int, tenure: int, is_ratio: bool) -> float:
        """Improve z in place by sweeps of flips, then by steepest ones, and return its value."""
        s = flip_sweeps(self.F, z, is_ratio)
        n_idle = min(n_idle, int(MAX_FLIP_COST // self.row_cost))
        if n_idle:
            flip_search(self.F, z, self.F @ s, self.diagonal(), n_idle, tenure, is_ratio, True)
            s = flip_sweeps(self.F, z, is_ratio)
        return float(s @ s) / (z.sum() if is_ratio else 1)


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


Gram = DenseGram | ThinGram


def projected(C: Gram, P: Complement) -> Gram:
    """Return PCP for a projection P."""
    return DenseGram(P @ (C.C @ P)) if isinstance(C, DenseGram) else ThinGram(P @ C.F)


def ratio_bound(C: Gram, z: Bits, effort: str, start: Array | None = None) -> float | None:
    """Return a proved upper bound on the ratio, or None; `start` is a guess of the leading eigenvector.

    It is the largest eigenvalue for the effort "eigenvalue", for a thin C, and for a large one unless thorough.
    """
    if isinstance(C, ThinGram):
        return factor_bound(C.F, np.ones(len(C)))
    is_close = effort == "thorough" or (effort != "eigenvalue" and len(C) <= LARGE)
    proof = prove_ratio(C.C, z, effort=effort) if is_close else None
    return eigenvalue_bound(C.C, np.where(z, 1.0, 0.01) if start is None else start) if proof is None else proof.bound


def _exponent(M: Array) -> int:
    """Return e with the largest entry of M in [2^(e-1), 2^e) in size; zero if M has no entries."""
    return int(np.frexp(max(M.max(initial=0.0), -M.min(initial=0.0)))[1])
