"""The evidence for the bits of a decomposition: the rise of the loss when one is flipped, and the noise level."""

from typing import cast

import numpy as np

from boolcp.fit.weights import has_many_columns
from boolcp.result.atoms import BooleanCP
from boolcp.result.bits import real_dims
from boolcp.result.trust import Trust, stands_out
from boolcp.storage.protocol import ObservedStorage, Storage


def judge_bits(data: Storage, W: BooleanCP) -> Trust:
    """Return for each bit of W the exact rise of the loss when it is flipped, and the noise level.

    Together they give the confidence of the bits (`boolcp.result.bits`).
    """
    products, squares = flip_terms(data, W)
    signs = [np.where(atom.z, 1.0, -1.0) for atom in W.atoms]
    rise = tuple(h + 2 * s * g for g, h, s in zip(products, squares, signs, strict=True))
    sizes = np.maximum(W.weights**2, np.finfo(float).tiny)
    share = None if data.is_complete else tuple(h / size for h, size in zip(squares, sizes, strict=True))
    return Trust(rise=rise, share=share, sigma=noise_left(data, W))


def flip_terms(data: Storage, W: BooleanCP) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return for each atom <R_i, c V> and |c V|^2 over the observed entries of each slice i, with R = X - W."""
    g, h = [np.zeros(0)] * W.n_atoms, [np.zeros(0)] * W.n_atoms
    terms = _terms_of_blocks if W.is_block or has_many_columns(data, W.atoms) else _terms_of_columns
    for mode in sorted(set(W.boolean_mode.tolist())):
        members = np.flatnonzero(W.boolean_mode == mode)
        products, squares = terms(data, W, mode, members)
        for place, k in enumerate(members):
            g[k], h[k] = products[:, place], squares[:, place]
    return g, h


def _terms_of_columns(data: Storage, W: BooleanCP, mode: int, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return <R_i, c V> and |c V|^2 of some atoms, (d_n, members), from the normal equations of their mode."""
    H, P = data.normal_equations(W.matrices, mode)
    owner = np.repeat(np.arange(W.n_atoms), [atom.rank or 0 for atom in W.atoms])
    B = np.where(owner[:, None] == members, W.column_weights[:, None], 0.0)
    A = W.matrices[mode] * W.column_weights
    if H.ndim == 2:
        return (P - A @ H) @ B, np.tile(np.einsum("ik,ij,jk->k", B, H, B), (len(P), 1))
    return (P - np.einsum("ij,ijl->il", A, H)) @ B, np.einsum("jk,ijl,lk->ik", B, H, B, optimize=True)


def _terms_of_blocks(data: Storage, W: BooleanCP, mode: int, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return <R_i, c V> and |c V|^2 of some atoms, (d_n, members), from projections on their blocks."""
    blocks = np.stack([W.weights[k] * W.atoms[k].dense_block() for k in members])
    products = np.asarray(data.residual(W).project(mode, blocks), dtype=float)
    if data.is_complete:
        return products, np.tile(W.weights[members] ** 2, (len(products), 1))
    observed = cast(ObservedStorage, data).observed()
    return products, np.asarray(observed.project(mode, blocks**2), dtype=float)


def noise_left(data: Storage, W: BooleanCP) -> float:
    """Return the standard deviation of the noise: the residual over the entries that the parameters do not use up.

    Atoms that are not larger than those of pure noise are excluded: such atoms fit more of the noise than they have
    parameters.
    """
    beside = 0.0 if W.background is None else W.background.degrees_of_freedom
    while True:
        n_free = beside + sum(real_dims(atom) + len(atom.z) for atom in W.atoms)
        sigma = float(np.sqrt(loss_of(data, W) / max(data.n_observed - n_free, 1)))
        kept = stands_out(W, sigma)
        if kept.all():
            return sigma
        W = W[kept]


def loss_of(data: Storage, W: BooleanCP) -> float:
    """Return |X - W|^2 over the observed entries, from the inner products of W if it was fitted to these data."""
    if W.data_inner is None or W.data_norm2 is None or not np.isclose(W.data_norm2, data.squared_norm, rtol=1e-9):
        return data.residual(W).squared_norm
    return (1 - W.explained()) * W.data_norm2
