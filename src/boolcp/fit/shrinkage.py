"""Blocks in noise: the subspaces that exceed it, and the shrinkage of a block's singular values.

For a matrix (m, n) of noise with standard deviation sigma the largest singular value is close to the edge
sigma (sqrt(m) + sqrt(n)). Values above it are shrunk optimally in squared error [1]_, and the degrees of freedom of
the result are its divergence [2]_.

References
----------
.. [1] M. Gavish, D. L. Donoho, "Optimal shrinkage of singular values", IEEE Trans. Inf. Theory 63 (2017).
.. [2] E. J. Candes, C. A. Sing-Long, J. D. Trzasko, "Unbiased risk estimates for singular value thresholding and
   spectral estimators", IEEE Trans. Signal Process. 61 (2013).
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import scipy.linalg

from boolcp.contractions import gram_product, khatri_rao
from boolcp.fit.relax import cp_als
from boolcp.storage import DenseTensor, TuckerTensor
from boolcp.storage.long import is_long, n_columns
from boolcp.storage.protocol import CompleteStorage, Storage
from boolcp.storage.tucker import leading_basis

Shrunk = tuple[tuple[np.ndarray, ...], float]  # the factors of a shrunk block, and its degrees of freedom

N_BELOW = 5  # directions of each mode of a block beyond those above the noise; not tuned
PRODUCTS: dict[str, Any] = {
    "max_iter": 10,
    "tol": 1e-5,
}  # of a fit of products, which the next sweep of back-fitting resumes
SMALLEST = 1e-7  # singular values below this share of the largest are rounding errors of the Gram matrix


def signal_subspaces(data: Storage, sigma: float) -> list[tuple[Storage, tuple[int, ...]]]:
    """Return the storages to work on, each with its sizes: the data, and their part above the noise.

    The projection keeps the singular vectors of each unfolding above the edge of the noise. It is omitted if
    it keeps everything or nothing, or if the data are already compressed.
    """
    if data.is_compressed:
        return [(data, data.core.shape)]
    bases = []
    for mode, d in enumerate(data.shape):
        bases.append(directions_above(data, mode, sigma * (np.sqrt(d) + np.sqrt(n_columns(data, mode)))))
    ranks = tuple(U.shape[1] for U in bases)
    if min(ranks) == 0 or ranks == data.shape:
        return [(data, data.shape)]
    core = cast(CompleteStorage, data)
    for mode in np.argsort(np.array(ranks) / np.array(data.shape), kind="stable"):
        core = DenseTensor(np.ascontiguousarray(np.moveaxis(core.contract(mode, bases[mode]), 0, mode)))
    return [(data, data.shape), (TuckerTensor(core, bases, data.squared_norm), ranks)]


def directions_above(data: Storage, mode: int, edge: float) -> np.ndarray:
    """Return the left singular vectors of an unfolding with singular values above an edge.

    A long mode has approximate leading directions, more and more of them until one is below the edge.
    """
    d, rank = data.shape[mode], 32
    if not is_long(d):
        values, U = scipy.linalg.eigh(data.gram(mode))
        return U[:, values > max(edge**2, SMALLEST**2 * values[-1])]
    while True:
        U = leading_basis(data, mode, min(rank, n_columns(data, mode)))
        values = np.square(np.asarray(data.contract(mode, U), dtype=float)).reshape(U.shape[1], -1).sum(axis=1)
        is_above = values > max(edge**2, SMALLEST**2 * values.max())
        if not is_above.all() or U.shape[1] < rank:
            return U[:, is_above]
        rank *= 2


def shrink_block(
    B: np.ndarray, sigma: float, sizes: Sequence[int], start: Sequence[np.ndarray] | None = None
) -> Shrunk | None:
    """Return the factors and the degrees of freedom of the shrunk block; None if nothing stands out of the noise.

    Parameters
    ----------
    B : ndarray
        A block with independent noise of standard deviation `sigma`.
    sizes : sequence of int
        The dimensions of the subspaces in which the block and its noise lie, at most ``B.shape``.
    start : sequence of ndarray, optional
        Factors to begin with, for a block of order >= 3.
    """
    if B.ndim == 2:
        return shrink_matrix(B, sigma, sizes)
    return shrink_products(B, sigma, sizes, start)


def shrink_matrix(B: np.ndarray, sigma: float, sizes: Sequence[int]) -> Shrunk | None:
    """Return the two factors of a matrix with optimally shrunk singular values, and its degrees of freedom."""
    if B.shape[0] > B.shape[1]:
        shrunk = shrink_matrix(B.T, sigma, sizes[::-1])
        return None if shrunk is None else (shrunk[0][::-1], shrunk[1])
    long, short = max(sizes), min(sizes)
    values, U = np.linalg.eigh(B @ B.T)
    s = np.sqrt(np.maximum(values[::-1][:short], 0.0))
    f, slope = shrink_values(s, sigma, long, short)
    rank = int(np.sum(f > 0))
    if rank == 0:
        return None
    U = U[:, ::-1][:, :rank]
    return (U * (f[:rank] / s[:rank]), B.T @ U), spectral_dof(s, f, slope, long - short)


def shrink_values(s: np.ndarray, sigma: float, long: int, short: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the shrunk singular values f(s) of a (long, short) matrix and the slope f'(s); zero below the edge."""
    scale, ratio = sigma * np.sqrt(long), short / long
    is_signal = s > max(sigma * noise_edge(long, short), SMALLEST * s[0])
    y = np.where(is_signal, s, np.inf) / scale
    f, slope = np.zeros_like(s), np.zeros_like(s)
    y2 = y[is_signal] ** 2
    root = np.sqrt((y2 - ratio - 1) ** 2 - 4 * ratio)
    f[is_signal] = root / y[is_signal] * scale
    slope[is_signal] = 2 * (y2 - ratio - 1) / root - root / y2
    return f, slope


def noise_edge(long: int, short: int, quantile: float = 2.02) -> float:
    """Return the 99 % quantile of the largest singular value of a (long, short) matrix of unit noise.

    Its square is (sqrt(long) + sqrt(short))^2 plus a fluctuation that follows the Tracy-Widom law, given by a quantile.
    """
    edge = np.sqrt(long) + np.sqrt(short)
    return np.sqrt(edge**2 + quantile * edge * (1 / np.sqrt(long) + 1 / np.sqrt(short)) ** (1 / 3))


def spectral_dof(s: np.ndarray, f: np.ndarray, slope: np.ndarray, excess: int) -> float:
    """Return the divergence of B -> U f(s) V' for a matrix whose longer side exceeds the shorter by `excess`."""
    s2 = s[:, None] ** 2 - s[None, :] ** 2
    is_tie = np.abs(s2) <= 1e-9 * s[0] ** 2
    limit = (f + s * slope) / (2 * np.maximum(s, 1e-300))
    pairs = np.where(is_tie, limit[:, None], ((s * f)[:, None] - (s * f)[None, :]) / np.where(is_tie, 1.0, s2))
    np.fill_diagonal(pairs, 0.0)
    return float(slope.sum() + excess * np.sum(f / np.maximum(s, 1e-300)) + pairs.sum())


def shrink_products(
    B: np.ndarray,
    sigma: float,
    sizes: Sequence[int],
    start: Sequence[np.ndarray] | None = None,
) -> Shrunk | None:
    """Return a vector or a block of order >= 3 as shrunk products of columns, and its degrees of freedom.

    Products are added to those of `start` while the next one exceeds the noise, whose edge is sigma times the
    sum of sqrt(d_m); all are then fitted again. Each is shrunk like a vector of as many dimensions as it has free
    parameters.
    """
    edge = max(sigma * sum(np.sqrt(d) for d in sizes), SMALLEST * float(np.linalg.norm(B)))
    factors = (B[:, None],) if B.ndim == 1 else find_products(B, sigma, edge, start)
    n_free = sum(sizes) - (len(sizes) - 1)
    s2 = np.diag(gram_product(factors))
    shares = np.maximum(1 - sigma**2 * n_free / np.maximum(s2, 1e-300), 0.0)
    is_kept = (s2 > edge**2) & (shares > 0)
    if not is_kept.any():
        return None
    kept = shares[is_kept]
    factors = tuple(A[:, is_kept] for A in factors)
    return (factors[0] * kept, *factors[1:]), float(np.sum((n_free - 1) * kept + 2 - kept))


def find_products(
    B: np.ndarray, sigma: float, edge: float, start: Sequence[np.ndarray] | None
) -> tuple[np.ndarray, ...]:
    """Return the products that a block of order >= 3 is fitted by, each of norm above `edge` when it was added.

    They are sought in the leading directions of each unfolding: those above the noise, and a few more.
    """
    data = DenseTensor(np.ascontiguousarray(B))
    bases = [leading_directions(data, mode, sigma) for mode in range(B.ndim)]
    core: CompleteStorage = data
    for mode, U in enumerate(bases):
        core = core.reduced(mode, U)
    factors = [np.zeros((U.shape[1], 0)) for U in bases]
    if start is not None:
        factors = cp_als(core, [U.T @ A for U, A in zip(bases, start, strict=True)], **PRODUCTS)[0]
    while factors[0].shape[1] < min(B.shape):
        left = core.to_array() - khatri_rao(factors).sum(axis=1).reshape(core.shape)
        residual = DenseTensor(left)
        product = cp_als(residual, [leading_basis(residual, mode, 1) for mode in range(B.ndim)], **PRODUCTS)[0]
        if not np.sqrt(gram_product(product)[0, 0]) > edge:
            break
        factors = [np.hstack(pair) for pair in zip(factors, product, strict=True)]
        if factors[0].shape[1] > 1:
            factors = cp_als(core, factors, **PRODUCTS)[0]
    return tuple(U @ A for U, A in zip(bases, factors, strict=True))


def leading_directions(data: CompleteStorage, mode: int, sigma: float) -> np.ndarray:
    """Return the left singular vectors of an unfolding above the noise, and N_BELOW more."""
    d, c = data.shape[mode], n_columns(data, mode)
    if is_long(d):
        return directions_above(data, mode, sigma * noise_edge(max(d, c), min(d, c)))
    values, U = scipy.linalg.eigh(data.gram(mode))
    n_above = int(np.sum(values > (sigma * noise_edge(max(d, c), min(d, c))) ** 2))
    return U[:, ::-1][:, : n_above + N_BELOW]
