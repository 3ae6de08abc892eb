"""Blocks in noise: the subspaces that exceed it, and the shrinkage of a block's singular values.

A matrix is shrunk by its singular values (`noise.shrink_values`), a block of more modes by products of columns.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from boolcp.contractions import gram_product, khatri_rao
from boolcp.fit.noise import TINY, noise_edge, shrink_values, spectral_dof
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
        values, U = np.linalg.eigh(data.gram(mode))
        return U[:, values > max(edge**2, TINY**2 * values[-1])]
    while True:
        U = leading_basis(data, mode, min(rank, n_columns(data, mode)))
        values = np.square(np.asarray(data.contract(mode, U), dtype=float)).reshape(U.shape[1], -1).sum(axis=1)
        is_above = values > max(edge**2, TINY**2 * values.max())
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
    edge = max(sigma * sum(np.sqrt(d) for d in sizes), TINY * float(np.linalg.norm(B)))
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
    values, U = np.linalg.eigh(data.gram(mode))
    n_above = int(np.sum(values > (sigma * noise_edge(max(d, c), min(d, c))) ** 2))
    return U[:, ::-1][:, : n_above + N_BELOW]
