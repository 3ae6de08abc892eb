"""A tensor compressed to a small core with an orthonormal basis for each mode: X ~ core x_1 U_1 .. x_N U_N."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg

from boolcp.contractions import centered, khatri_rao
from boolcp.result.columns import Columns
from boolcp.storage.dense import Complete, Contracted, Dense, n_columns, unfold
from boolcp.storage.protocol import Factors, Tensor

LONG = 4096  # a mode with more entries is long: its Gram matrix would take more than 128 MiB
THIN = 256  # an unfolding with at most this many columns is its own factor; not tuned
N_LEADING = 32  # directions kept of an unfolding with more columns; not tuned
N_POWER = 3  # power iterations that find them; not tuned


class Tucker(Complete):
    """X^ = core x_n U_n (all modes), at the cost of its core; `squared_norm` is that of X: losses are comparable."""

    squared_norm = 0.0

    def __init__(
        self, core: Dense, bases: Sequence[np.ndarray], squared_norm: float, center: int | None = None, only: int = -1
    ) -> None:
        self.core, self.bases = core, tuple(np.ascontiguousarray(U) for U in bases)
        self.shape, self.dtype = tuple(len(U) for U in bases), core.dtype
        self.squared_norm, self.center, self.only = squared_norm, center, only  # mode whose basis alone is no identity

    def expand(self, factors: Factors) -> list[np.ndarray]:
        """Return factors (r_n, K) of the core as factors U_n A_n (d_n, K) of the tensor."""
        return [U @ A for U, A in zip(self.bases, factors, strict=True)]

    def coordinates(self, factors: Factors) -> list[np.ndarray]:
        """Return factors (d_n, K) of the tensor as factors U_n' A_n (r_n, K) of the core."""
        return [U.T @ A for U, A in zip(self.bases, factors, strict=True)]

    def opened(self, mode: int) -> Complete:
        """Return the tensor with the entries of one mode and the coordinates of the bases of all others.

        Work along this one mode needs no more. It keeps the basis of a mode that is much longer than its core.
        """
        if len(self.bases[mode]) > 2 * self.core.shape[mode]:
            bases = [U if n == mode else np.eye(U.shape[1]) for n, U in enumerate(self.bases)]
            return Tucker(self.core, bases, self.squared_norm, only=mode)
        return reduced(self.core, mode, self.bases[mode].T)

    def to_array(self) -> np.ndarray:
        """Return X^ as an array."""
        core = self.core
        for mode, U in enumerate(self.bases):
            core = reduced(core, mode, U.T)
        return core.to_array()

    def gram(self, mode: int) -> np.ndarray:
        """Return X^_n X^_n' (d_n, d_n)."""
        return self.bases[mode] @ self.core.gram(mode) @ self.bases[mode].T

    def contract(self, mode: int, Z: np.ndarray) -> np.ndarray:
        """Return sum_i X^[.., i, ..] Z[i, k], (K, other modes)."""
        blocks = self.core.contract(mode, self.bases[mode].T @ np.asarray(Z, dtype=self.dtype))
        for at, U in enumerate(U for n, U in enumerate(self.bases) if n != mode != self.only):
            blocks = np.moveaxis(np.tensordot(blocks, U, axes=([1 + at], [1])), -1, 1 + at)
        return blocks

    def project(self, mode: int, blocks: np.ndarray) -> np.ndarray:
        """Return X^_n vec(V_k), (d_n, K)."""
        for at, U in enumerate(U for n, U in enumerate(self.bases) if n != mode):
            blocks = np.moveaxis(np.tensordot(blocks, U, axes=([1 + at], [0])), -1, 1 + at)
        return self.bases[mode] @ self.core.project(mode, blocks)

    def mttkrp(self, factors: Factors, mode: int) -> np.ndarray:
        """Return X^_n times the Khatri-Rao product of the other factors, (d_n, K)."""
        return self.bases[mode] @ self.core.mttkrp(self.coordinates(factors), mode)

    def contracted(self, mode: int, A: np.ndarray) -> Contracted:
        """Return X^ contracted with a factor along its mode, as the core is."""
        return Contracted(self, self.core.contract(mode, self.bases[mode].T @ A), mode)

    def inner_residual(self, W: Columns) -> "Tucker":
        """Return X^ - W projected onto the bases, which has a core of the same size.

        The part of W outside the bases is what X^ lost in the compression: the residual of X does not contain it.
        """
        factors = list(W.matrices)
        if self.center is not None:
            factors[self.center] = centered(factors[self.center], 0)
        first, *others = self.coordinates(factors)
        core = Dense(self.core.to_array() - (first @ khatri_rao(others).T).reshape(self.core.shape))
        return Tucker(core, self.bases, core.squared_norm)


def reduced(data: Tensor, mode: int, U: np.ndarray) -> Dense:
    """Return a tensor contracted with the columns of U (d_n, r) along one mode, which stays in its place."""
    return Dense(np.ascontiguousarray(np.moveaxis(data.contract(mode, U), 0, mode)))


def is_compressible(shape: Sequence[int], rank: int) -> bool:
    """Return True if a core with at most `rank` directions per mode has at most half of the entries."""
    return bool(np.prod([min(d, rank) for d in shape], dtype=float) <= 0.5 * np.prod(shape, dtype=float))


def compress(data: Complete, rank: int) -> Complete:
    """Return `data` projected onto the leading `rank` left singular vectors of each unfolding, one mode after another.

    The shortest mode goes first, so that the tensor is already small when the Gram matrices of the long modes are
    computed (sequentially truncated higher-order SVD). Returns `data` itself if the core would not be much smaller.
    """
    if data.n_passes:
        return data.compressed(rank)  # type: ignore[attr-defined]  # data on disk
    if not is_compressible(data.shape, rank):
        return data
    bases: dict[int, np.ndarray] = {}
    core: Any = data
    for mode in sorted(range(len(data.shape)), key=lambda n: (data.shape[n], -n)):
        if data.shape[mode] <= rank:
            bases[mode] = np.eye(data.shape[mode])
        else:
            bases[mode] = leading_basis(core, mode, rank)
            core = reduced(core, mode, bases[mode])
    return Tucker(core, [bases[mode] for mode in range(len(data.shape))], data.squared_norm, data.center)


def augmented(data: Complete, small: Tucker, n_columns: int, modes: Sequence[int]) -> Tucker:
    """Return a compressed tensor whose bases also contain what contractions with ones along the given modes show.

    A Boolean column has a large sum, so that the contraction of X with ones along its mode holds the other columns of
    its atom far above the noise, also where no unfolding of X does. The bases of the other modes get the leading
    singular vectors of the contraction, that of the mode itself X times their products, and the ones.
    """
    extra: list[list[np.ndarray]] = [[np.zeros((d, 0))] for d in data.shape]
    sigma = np.sqrt(data.squared_norm / np.prod(data.shape, dtype=float))
    for mode in modes:
        d, widths = data.shape[mode], []
        M = np.asarray(data.contract(mode, np.full((d, 1), d**-0.5))[0], dtype=float)
        block = Dense(np.ascontiguousarray(M))
        for at in range(M.ndim):
            values = np.linalg.svd(unfold(M, at), compute_uv=False)
            edge = sigma * (np.sqrt(M.shape[at]) + np.sqrt(M.size / M.shape[at]))
            widths.append(min(n_columns, 2 + int(np.sum(values > edge)), len(values)))
        vectors = [leading_basis(block, at, min(widths)) for at in range(M.ndim)]
        factors = [*vectors[:mode], np.ones((d, min(widths))), *vectors[mode:]]
        factors[mode] = np.asarray(data.mttkrp(factors, mode), dtype=float)
        for n, A in enumerate(factors):
            extra[n].append(A)
        extra[mode].append(np.ones((d, 1)))
    bases = [extended(U, np.hstack(columns)) for U, columns in zip(small.bases, extra, strict=True)]
    core: Any = data
    order = sorted(range(len(data.shape)), key=lambda n: (data.shape[n], -n))
    short = {mode: bases[mode] for mode in order if bases[mode].shape[1] < data.shape[mode]}
    if data.n_passes:
        return Tucker(data.core(short), bases, data.squared_norm)  # type: ignore[attr-defined]
    for mode, U in short.items():
        core = reduced(core, mode, U)
    core = core if core is not data else Dense(data.to_array())
    return Tucker(core, bases, data.squared_norm, data.center)


def extended(U: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the columns of U, itself orthonormal, and of others; of all if those are many."""
    d, r = U.shape
    if r == d or r + columns.shape[1] > d:
        return np.eye(d)
    beyond = columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    for _ in range(2):  # once more for what rounding left
        beyond = beyond - U @ (U.T @ beyond)
    left, values, _ = np.linalg.svd(beyond, full_matrices=False)
    return np.hstack([U, left[:, values > 1e-6]])


def leading_basis(data: Tensor, mode: int, rank: int) -> np.ndarray:
    """Return the leading left singular vectors (d_n, rank) of the unfolding, through the smaller Gram matrix.

    If both are large, power iterations find nearly leading directions. The entry of largest magnitude of each vector
    is positive, so that a different memory order gives the same vectors.
    """
    d, c = data.shape[mode], n_columns(data, mode)
    if isinstance(data, Tucker):
        U = data.bases[mode] @ leading_basis(data.core, mode, rank)
    elif d <= LONG and (d <= c or not isinstance(data, Dense)):
        U = scipy.linalg.eigh(data.gram(mode), subset_by_index=[d - rank, d - 1])[1][:, ::-1]
    elif c <= LONG and c >= rank:
        U = np.linalg.svd(unfold(data.to_array(), mode), full_matrices=False)[0][:, :rank]
    else:
        U = leading_directions(data, mode, rank)
    largest = U[np.argmax(np.abs(U), axis=0), np.arange(U.shape[1])]
    return U * np.where(largest < 0, -1.0, 1.0)


# long modes: X_n X_n' as FF' with a thin F (d_n, p), so that no array of d_n x d_n entries is formed


def thin_factor(data: Tensor, mode: int) -> tuple[np.ndarray, bool]:
    """Return F (d_n, p) with X_n X_n' = FF', and whether that is exact.

    It is exact for compressed tensors and for unfoldings with at most THIN columns. Otherwise F holds the leading
    directions of the unfolding, FF' = QQ'X_n X_n'QQ', found by power iterations.
    """
    if isinstance(data, Tucker):
        return data.bases[mode] @ square_root(data.core.gram(mode)), True
    if n_columns(data, mode) <= THIN:
        return unfold(data.to_array(), mode), True
    Q = leading_directions(data, mode, N_LEADING)
    B = np.asarray(data.contract(mode, Q), dtype=float).reshape(Q.shape[1], -1)
    return Q @ square_root(B @ B.T), False


def square_root(M: np.ndarray) -> np.ndarray:
    """Return T (n, p) with TT' = M for a positive semidefinite M, without the directions that are rounding errors."""
    values, vectors = np.linalg.eigh(M)
    keep = values > len(M) * np.finfo(float).eps * max(values[-1], 0.0)
    return vectors[:, keep] * np.sqrt(values[keep])


def leading_directions(data: Tensor, mode: int, rank: int) -> np.ndarray:
    """Return nearly leading left singular vectors (d_n, rank) of the unfolding, by power iterations."""
    d, others = data.shape[mode], [d for n, d in enumerate(data.shape) if n != mode]
    width = min(rank + 8, d, n_columns(data, mode))
    blocks = np.random.default_rng(0).standard_normal((width, *others))
    for _ in range(N_POWER):
        Q = scipy.linalg.qr(np.asarray(data.project(mode, blocks), dtype=float), mode="economic")[0]
        blocks = np.asarray(data.contract(mode, Q), dtype=float)
    B = blocks.reshape(width, -1)
    return Q @ np.linalg.eigh(B @ B.T)[1][:, ::-1][:, :rank]
