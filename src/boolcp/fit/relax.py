"""The relaxation of a Boolean CP: a plain CP decomposition by alternating least squares, and its starts."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dpotrf, dpotrs

from boolcp.contractions import middle
from boolcp.fit._kernels import relax_factors, solve_each
from boolcp.result.columns import Columns
from boolcp.storage.protocol import Storage
from boolcp.storage.tucker import leading_basis

T = TypeVar("T")

NOTHING = 1e-200  # entry of normal equations, relative to their size, that counts as zero
SINGULAR = 1e-7  # eigenvalues of normal equations below this part of the largest count as zero
CLEAR = 1e-5  # a pivot above this part of the largest diagonal entry: no eigenvalue is that small
MAX_COMPILED = 2**20  # entries of a tensor whose sweeps are made without a chance to stop in between


@dataclass(frozen=True)
class Sweeps:
    """The state of a series of sweeps: the columns, the number of sweeps, and whether they are settled."""

    W: Columns
    n_done: int = 0
    is_settled: bool = False

    @property
    def result(self) -> Columns:
        """Return the columns, with a loss that rounding does not make negative."""
        return replace(self.W, loss=max(self.W.loss, 0.0))


def begin(W: Columns) -> Sweeps:
    """Return the state before sweeps from W, whose loss is not known yet."""
    return Sweeps(replace(W, loss=float("inf")))


def last(values: Iterable[T], first: T) -> T:
    """Return the last of the values, `first` if there are none."""
    found = first
    for value in values:
        found = value
    return found


def relax_sweeps(
    data: Storage, here: Sweeps, *, max_iter: int = 50, tol: float = 1e-8, ridge: float = 0.0, fall: float = 0.0
) -> Iterator[Sweeps]:
    """Yield the sweeps of alternating least squares for the columns without the Boolean constraint.

    They are settled when the loss falls by less than `tol` |X|^2 and the part `fall` of itself in one sweep. A `ridge`
    adds that part of their mean diagonal to the normal equations, which keeps rows with few observed entries in bounds.
    """
    while here.n_done < max_iter and not here.is_settled:
        W = relax_once(data, here.W, ridge)
        here = Sweeps(W, here.n_done + 1, bool(here.W.loss - W.loss <= tol * data.squared_norm + fall * W.loss))
        yield here


def relax_once(data: Storage, W: Columns, ridge: float = 0.0) -> Columns:
    """Return the columns after one sweep of alternating least squares over the modes."""
    factors = list(W.matrices)
    for mode in range(data.ndim):
        H, P = data.normal_equations(factors, mode)
        ridged = with_share(H, ridge) if ridge else H
        S, _ = W.ties(mode)
        factors[mode] = solve_rows(ridged, P) if S is None else solve_rows(S.T @ ridged @ S, P @ S) @ S.T
        if mode < data.ndim - 1:
            balance(factors, mode)
    A = factors[-1]
    return W.with_matrices(factors, data.squared_norm - 2 * np.sum(P * A) + quadratic(H, A))


def with_share(H: np.ndarray, ridge: float) -> np.ndarray:
    """Return normal equations with a part `ridge` of their mean diagonal added to it."""
    return H + ridge * np.mean(np.einsum("...kk->...", H)) / H.shape[-1] * np.eye(H.shape[-1])


def relax_core(core: Storage, W: Columns, *, max_iter: int, tol: float) -> Columns:
    """Return the columns after sweeps of `relax_sweeps`, compiled for a small complete tensor."""
    if core.is_complete and not W.is_tied and np.prod(core.shape, dtype=float) <= MAX_COMPILED:
        half, sizes, F = middle(core.shape), np.array(core.shape), np.vstack(W.matrices)
        X = np.ascontiguousarray(core.to_array(), dtype=float).reshape(math.prod(core.shape[:half]), -1)
        loss = relax_factors(X, half, sizes, F, max_iter, tol)
        if np.isfinite(loss):
            return W.with_matrices(np.split(F, np.cumsum(sizes)[:-1]), max(loss, 0.0))
    start = begin(W)
    return last(relax_sweeps(core, start, max_iter=max_iter, tol=tol), start).result


def cp_als(
    data: Storage, factors: Sequence[np.ndarray], *, max_iter: int = 50, tol: float = 1e-8
) -> tuple[list[np.ndarray], float]:
    """Return factors of a CP decomposition improved by alternating least squares, and |X - W|^2."""
    K = factors[0].shape[1]
    W = Columns(tuple(factors), np.arange(K), np.zeros(K, dtype=int))
    found = relax_core(data, W, max_iter=max_iter, tol=tol)
    return list(found.matrices), found.loss


def solve_rows(H: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Return the rows a_i with H a_i = p_i for a positive semidefinite H (K, K), or one H_i (d, K, K) for each row.

    By Cholesky or, where H is singular, the solution of least norm.
    """
    if H.ndim == 3:
        return solve_each_row(H, P)
    L, failed = dpotrf(H, lower=1, clean=0)  # LAPACK itself: for a small H the checks of scipy.linalg take longer
    if not failed and L.diagonal().min() ** 2 > 1e-12 * H.diagonal().max():
        return dpotrs(L, P.T, lower=1)[0].T
    return P @ pseudo_inverse(H)


def solve_each_row(H: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Return X_i with H_i X_i = P_i for vectors P (d, K) or matrices (d, K, M).

    The unknowns are brought to one scale first, that of the mean diagonal. Where H_i is nearly singular the solution
    has the least norm.
    """
    X = np.array(P, dtype=float, order="C").reshape(*H.shape[:2], -1)
    failed, scale = solve_each(np.ascontiguousarray(H), X, CLEAR, NOTHING)
    if failed.any():
        X[failed] = pseudo_inverse(H[failed], scale) @ X[failed]
    return X.reshape(P.shape)


def pseudo_inverse(H: np.ndarray, scale: np.ndarray | None = None) -> np.ndarray:
    """Return the pseudo-inverse of H (K, K) or of each H_i (d, K, K), its columns brought to one scale (K,) first.

    A row that the observed entries hardly determine is not inflated: directions with less than a part
    SINGULAR of the largest eigenvalue count as unknown.
    """
    scale = mean_scale(H) if scale is None else scale
    scaled = H / (scale[:, None] * scale)
    scaled[np.abs(scaled) < NOTHING] = 0.0  # its inverse would overflow
    inverse = np.linalg.pinv(scaled, rcond=SINGULAR, hermitian=True)
    return inverse / (scale[:, None] * scale)


def mean_scale(H: np.ndarray) -> np.ndarray:
    """Return the root of the mean diagonal of H (K, K) or H_i (d, K, K), 1 where it is not positive, (K,)."""
    diagonal = np.einsum("...kk->...k", H).reshape(-1, H.shape[-1]).mean(axis=0)
    return np.sqrt(np.where(diagonal > 0, diagonal, 1.0))  # rounding can make it negative


def quadratic(H: np.ndarray, A: np.ndarray) -> float:
    """Return sum_i a_i' H a_i for a shared H (K, K) or one for each row (d, K, K)."""
    return float(np.vdot(A @ H if H.ndim == 2 else (A[:, None] @ H)[:, 0], A))


def balance(factors: list[np.ndarray], mode: int) -> np.ndarray:
    """Make the columns of one factor unit vectors in place, their size going to the last factor; return it, (K,)."""
    size = np.linalg.norm(factors[mode], axis=0)
    size[size == 0] = 1.0
    factors[mode] = factors[mode] / size
    factors[-1] = factors[-1] * size
    return size


def random_factors(shape: Sequence[int], n_columns: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return factors with independent normal entries."""
    return [rng.standard_normal((d, n_columns)) for d in shape]


def pencil_start(core: Storage, n_columns: int, rng: np.random.Generator) -> list[np.ndarray] | None:
    """Return CP factors of a three-way core from the eigenvectors of a pencil of two random slices, or None.

    With X = sum_r a_r (x) b_r (x) c_r, two random combinations of the slices along the third mode are
    A D1 B' and A D2 B', so that the eigenvectors of the first times the inverse of the second are the columns of A.
    Exact without noise when the columns are no more than the two larger sizes; a good start otherwise.
    """
    if len(core.shape) != 3:
        return None
    order = np.argsort(core.shape, kind="stable")
    third, first, second = (int(n) for n in order)
    if min(core.shape[first], core.shape[second]) < n_columns or core.shape[third] < 2:
        return None
    K = n_columns
    U, V = leading_basis(core, first, K)[:, ::-1], leading_basis(core, second, K)[:, ::-1]
    slices = core.contract(third, rng.standard_normal((core.shape[third], 2)))  # (2, lower mode, higher mode)
    if first > second:
        slices = slices.transpose(0, 2, 1)
    S, T = U.T @ slices[0] @ V, U.T @ slices[1] @ V
    try:
        eigenvectors = scipy.linalg.eig(S, T)[1]
    except np.linalg.LinAlgError:
        return None
    # (S - t T) x = 0 has x in the dual basis of B: T x is the column of A that is left
    A = T @ eigenvectors
    A = np.where(np.abs(A.imag).max(axis=0) > 1e-9, A.real + A.imag, A.real)  # conjugate pairs span a real plane
    A = U @ (A / np.maximum(np.linalg.norm(A, axis=0), 1e-300))
    # given A, each column's remaining matrix is nearly of rank one
    blocks = core.contract(first, A @ np.linalg.pinv(A.T @ A, hermitian=True))
    factors = [A, A, A]
    pairs = [np.linalg.svd(block, full_matrices=False) for block in blocks]
    low, high = sorted((second, third))
    factors[low] = np.stack([p[0][:, 0] for p in pairs], axis=1)
    factors[high] = np.stack([p[2][0] * p[1][0] for p in pairs], axis=1)
    return factors
