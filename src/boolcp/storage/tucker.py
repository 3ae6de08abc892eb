"""A tensor compressed to a small core with an orthonormal basis for each mode: X ~ core x_1 U_1 .. x_N U_N."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg

from boolcp.contractions import gram_product, khatri_rao
from boolcp.result.atoms import BooleanCP
from boolcp.storage.dense import ArrayStorage, Contracted, DenseTensor, Difference, fingerprint
from boolcp.storage.long import is_long, leading_directions, n_columns, square_root
from boolcp.storage.protocol import CompleteStorage, Decide, Factors, Storage, Tensor


class TuckerTensor(CompleteStorage):
    """X^ = core x_n U_n (all modes), which answers like a full tensor at the cost of its core.

    Its `squared_norm` is that of X, not of X^, so that its losses are comparable with those of X.
    """

    is_compressed = True

    def __init__(self, core: CompleteStorage, bases: Sequence[np.ndarray], squared_norm: float) -> None:
        self._core, self._bases = core, tuple(np.ascontiguousarray(U) for U in bases)  # as read from a file
        self.shape = tuple(len(U) for U in bases)
        self.dtype = core.dtype
        self._squared_norm = squared_norm

    @property
    def squared_norm(self) -> float:
        """Return |X|^2."""
        return self._squared_norm

    @property
    def core(self) -> CompleteStorage:
        """Return the core, (r_1, .., r_N)."""
        return self._core

    @property
    def bases(self) -> tuple[np.ndarray, ...]:
        """Return the orthonormal bases U_n (d_n, r_n)."""
        return self._bases

    @property
    def left_out(self) -> float:
        """Return |X|^2 - |core|^2, the squared norm of what the compression left out."""
        return self.squared_norm - self.core.squared_norm

    def expand(self, factors: Factors) -> list[np.ndarray]:
        """Return factors (r_n, K) of the core as factors U_n A_n (d_n, K) of the tensor."""
        return [U @ A for U, A in zip(self.bases, factors, strict=True)]

    def coordinates(self, factors: Factors) -> list[np.ndarray]:
        """Return factors (d_n, K) of the tensor as factors U_n' A_n (r_n, K) of the core."""
        return [U.T @ A for U, A in zip(self.bases, factors, strict=True)]

    def opened(self, mode: int) -> CompleteStorage:
        """Return the tensor with the entries of one mode and the coordinates of the bases of all others.

        It keeps the basis of a mode that is much longer than its core.
        """
        if len(self.bases[mode]) > 2 * self.core.shape[mode]:
            bases = [U if n == mode else np.eye(U.shape[1]) for n, U in enumerate(self.bases)]
            return TuckerTensor(self.core, bases, self.squared_norm)
        tensor = self.core.reduced(mode, self.bases[mode].T)
        tensor.squared_norm = self.squared_norm  # type: ignore[misc]  # a cached property
        return tensor

    def reduced(self, mode: int, U: np.ndarray) -> "TuckerTensor":
        """Return the tensor contracted with the columns of U along one mode, which stays in its place."""
        core = self.core.reduced(mode, self.bases[mode].T @ U)
        bases = [np.eye(U.shape[1]) if n == mode else Q for n, Q in enumerate(self.bases)]
        return TuckerTensor(core, bases, core.squared_norm)

    def to_array(self) -> np.ndarray:
        """Return X^ as an array."""
        core = self.core
        for mode, U in enumerate(self.bases):
            core = core.reduced(mode, U.T)
        return core.to_array()

    def describe(self) -> dict[str, Any]:
        """Return shape, dtype and the fingerprints of core and bases."""
        known = {"shape": list(self.shape), "dtype": str(self.dtype), "core": fingerprint(self.core.to_array())}
        return known | {f"basis of mode {mode}": fingerprint(U) for mode, U in enumerate(self.bases)}

    def gram(self, mode: int) -> np.ndarray:
        """Return X^_n X^_n' (d_n, d_n)."""
        U = self.bases[mode]
        return U @ self.core.gram(mode) @ U.T

    def gram_factor(self, mode: int, W: BooleanCP | None = None) -> tuple[np.ndarray, bool]:
        """Return F (d_n, p) with FF' the Gram matrix of X^, or of X^ - W, along one mode, and whether that is exact.

        It is exact unless W has dense blocks: with X^_n = U G and W_n = A B' the unfolding of X^ - W is
        [U A] [G' -B]', and p is at most the rank of X^_n plus the number of columns of W.
        """
        if W is not None and W.is_block:
            return super().gram_factor(mode, W)
        U, M = self.bases[mode], self.core.gram(mode)
        if W is None or W.n_atoms == 0:
            return U @ square_root(M), True
        columns, r = W.matrices, U.shape[1]
        cross = np.asarray(self.core.mttkrp(self.coordinates(columns), mode))
        scale = np.append(np.ones(r), W.column_weights)
        M = np.block([[M, -cross], [-cross.T, gram_product(columns, mode)]]) * scale * scale[:, None]
        T = square_root(M)
        return U @ T[:r] + columns[mode] @ T[r:], True

    def contract(self, mode: int, Z: np.ndarray) -> np.ndarray:
        """Return sum_i X^[.., i, ..] Z[i, k], (K, other modes)."""
        blocks = self.core.contract(mode, self.bases[mode].T @ np.asarray(Z, dtype=self.dtype))
        for at, U in enumerate(U for n, U in enumerate(self.bases) if n != mode):
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

    def update(self, factors: Factors, mode: int, decide: Decide) -> tuple[np.ndarray, Contracted]:
        """Return the factor A = decide(P, current) of one mode, and X^ contracted with it, as that of the core."""
        A = decide(np.asarray(self.mttkrp(factors, mode), dtype=float), current=factors[mode])
        return A, Contracted(self.core.contract(mode, self.bases[mode].T @ A), mode, self.bases)

    def residual(self, W: BooleanCP) -> Difference:
        """Return the tensor X^ - W."""
        return Difference(self, W)

    def inner_residual(self, W: BooleanCP) -> "TuckerTensor | Difference":
        """Return X^ - W projected onto the bases, which has a core of the same size; not of dense blocks.

        The part of W outside the bases is what X^ lost in the compression: the residual of X does not contain it.
        """
        if W.is_block:
            return self.residual(W)
        first, *others = self.coordinates(W.matrices)
        W_core = (first * W.column_weights) @ khatri_rao(others).T
        core = DenseTensor(self.core.to_array() - W_core.reshape(self.core.shape))
        return TuckerTensor(core, self.bases, core.squared_norm)


def is_compressible(shape: Sequence[int], rank: int) -> bool:
    """Return True if a core with at most `rank` directions per mode has at most half of the entries."""
    return bool(np.prod([min(d, rank) for d in shape], dtype=float) <= 0.5 * np.prod(shape, dtype=float))


def by_length(shape: Sequence[int]) -> list[int]:
    """Return the modes from the shortest to the longest; of equal modes the last, which no file is cut along, first."""
    return sorted(range(len(shape)), key=lambda n: (shape[n], -n))


def first_gram(shape: Sequence[int], rank: int) -> int | None:
    """Return the mode whose Gram matrix `compress` asks for first, None if it asks for none."""
    first = next((n for n in by_length(shape) if shape[n] > rank), None)
    return None if first is None or is_long(shape[first]) else first


def compress(data: Storage, rank: int) -> Storage:
    """Return `data` projected onto the leading `rank` left singular vectors of each unfolding, one mode after another.

    The shortest mode goes first, so that the tensor is already small when the Gram matrices of the long modes are
    computed (sequentially truncated higher-order SVD). Returns `data` itself if the core would not be much smaller.
    """
    ranks = [min(d, rank) for d in data.shape]
    if not is_compressible(data.shape, rank):
        return data
    bases: dict[int, np.ndarray] = {}
    core: Any = data
    for mode in by_length(data.shape):
        if ranks[mode] == data.shape[mode]:
            bases[mode] = np.eye(data.shape[mode])
        else:
            bases[mode] = leading_basis(core, mode, ranks[mode])
            core = core.reduced(mode, bases[mode])
    return TuckerTensor(core, [bases[mode] for mode in range(data.ndim)], data.squared_norm)


def augmented(data: Storage, small: Storage, n_columns: int, modes: Sequence[int]) -> Storage:
    """Return a compressed tensor whose bases also contain what contractions with ones along the given modes show.

    A Boolean column has a large sum, so that the contraction of X with ones along its mode holds the other columns of
    its atom far above the noise, also where no unfolding of X does. The bases of the other modes get the leading
    singular vectors of the contraction, that of the mode itself X times their products, and the ones.
    """
    extra: list[list[np.ndarray]] = [[np.zeros((d, 0))] for d in data.shape]
    for mode in modes:
        vectors = contracted_vectors(data, mode, n_columns)
        for n, A in enumerate(vectors):
            extra[n].append(A)
        extra[mode].append(np.ones((data.shape[mode], 1)))
    bases = [extended(U, np.hstack(columns)) for U, columns in zip(small.bases, extra, strict=True)]
    core: Any = data
    for mode in by_length(data.shape):
        if bases[mode].shape[1] < data.shape[mode]:
            core = core.reduced(mode, bases[mode])
    return TuckerTensor(core, bases, data.squared_norm)


def contracted_vectors(data: Storage, mode: int, n_columns: int) -> list[np.ndarray]:
    """Return the leading singular vectors of X contracted with ones along one mode, and X times their products.

    As many as singular values are above the edge of noise as large as X, and two more, at most `n_columns`.
    """
    d = data.shape[mode]
    M = np.asarray(data.contract(mode, np.full((d, 1), d**-0.5))[0], dtype=float)
    block, sigma = DenseTensor(np.ascontiguousarray(M)), np.sqrt(data.squared_norm / np.prod(data.shape, dtype=float))
    widths = []
    for at in range(M.ndim):
        values = np.linalg.svd(block.unfold(at), compute_uv=False)
        edge = sigma * (np.sqrt(M.shape[at]) + np.sqrt(M.size / M.shape[at]))
        widths.append(min(n_columns, 2 + int(np.sum(values > edge)), len(values)))
    width = min(widths)
    vectors = [leading_basis(block, at, width) for at in range(M.ndim)]
    factors = [*vectors[:mode], np.ones((d, width)), *vectors[mode:]]
    factors[mode] = np.asarray(data.mttkrp(factors, mode), dtype=float)
    return factors


def extended(U: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the columns of U, itself orthonormal, and what others have beyond them.

    A basis of more than half of all directions becomes that of all.
    """
    d, r = U.shape
    if r == d or 2 * (r + columns.shape[1]) > 2 * d:
        return np.eye(d)
    beyond = columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    for _ in range(2):  # once more for what rounding left
        beyond = beyond - U @ (U.T @ beyond)
    left, values, _ = np.linalg.svd(beyond, full_matrices=False)
    return np.hstack([U, left[:, values > 1e-6]])


def leading_basis(data: Tensor, mode: int, rank: int) -> np.ndarray:
    """Return the leading left singular vectors (d_n, rank) of the unfolding, through the smaller Gram matrix.

    If both are large, power iterations find nearly leading directions. The entry of largest magnitude of each vector
    is positive, so that a different memory order or permuted rows give the same vectors.
    """
    U = leading_vectors(data, mode, rank)
    largest = U[np.argmax(np.abs(U), axis=0), np.arange(U.shape[1])]
    return U * np.where(largest < 0, -1.0, 1.0)


def leading_vectors(data: Tensor, mode: int, rank: int) -> np.ndarray:
    """Return the vectors of `leading_basis` with any sign."""
    d, c = data.shape[mode], n_columns(data, mode)
    if not is_long(d) and (d <= c or not isinstance(data, ArrayStorage)):
        return scipy.linalg.eigh(data.gram(mode), subset_by_index=[d - rank, d - 1])[1][:, ::-1]
    if not is_long(d):
        return np.linalg.svd(data.unfold(mode), full_matrices=False)[0][:, :rank]
    if is_long(c) or c < rank:
        return leading_directions(data, mode, rank)
    Q = scipy.linalg.eigh(data.column_gram(mode), subset_by_index=[c - rank, c - 1])[1][:, ::-1]
    others = [n for m, n in enumerate(data.shape) if m != mode]
    products = np.asarray(data.project(mode, Q.T.reshape(-1, *others)), dtype=float)
    return scipy.linalg.qr(products, mode="economic")[0]
