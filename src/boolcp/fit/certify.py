"""The evidence for the bits of atoms: the share of the best score that they provably reach, the rise if one flips."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from boolcp import checks
from boolcp.fit.pursuit import atom_system, has_many_columns, with_system
from boolcp.program.grams import LARGE, DenseGram
from boolcp.program.maxcut import EFFORTS
from boolcp.program.relaxation import eigenvalue_bound
from boolcp.result.atoms import BooleanCP
from boolcp.result.bits import real_dims
from boolcp.result.labels import read_labels
from boolcp.result.trust import Trust, stands_out
from boolcp.storage import make_storage
from boolcp.storage.long import THIN, is_long, n_columns
from boolcp.storage.protocol import ObservedStorage, Storage
from boolcp.threads import one_thread


def certify_on(W: BooleanCP, X: Any, mask: ArrayLike | None, weights: Any, effort: str) -> BooleanCP:
    """Return W with the certificates of its atoms on data given by a user."""
    checks.check_choice(effort, "effort", EFFORTS)
    if W.deviance is not None:
        raise ValueError(f'There are no certificates under loss="{W.deviance.loss}": they are about squares.')
    X, observed = checks.check_tensor(read_labels(X)[0], mask)
    if X.shape != W.shape:
        raise ValueError(f"X has shape {X.shape}: pass the tensor that was fitted, of shape {W.shape}.")
    weights = None if weights is None else checks.check_weights(weights, X.shape, W.dims)
    data = make_storage(X, observed, weights)
    with one_thread():
        W = with_system(W, data, *atom_system(data, W.atoms))
        return certify(data, W, left_out_weights(W), effort=effort) if W.n_atoms else W


def certify(data: Storage, W: BooleanCP, weights: np.ndarray, *, effort: str = "quick") -> BooleanCP:
    """Return W with the certificate of each atom k, judged on R_k = X - sum_j weights[k, j] M_j.

    It is z'Cz / |z|^2 with C = R_n R_n', the decrease of the loss by the bits with the best real part, over a proved
    upper bound on that of all bits. A mode n that is long, or whose Gram matrix takes long to compute or is not there,
    judges the atom itself by its own decrease <R_k, M_k>^2 / |z|^2, over the bounds of `long_bounds`.
    """
    ratios = np.full(W.n_atoms, np.nan)
    groups = W.members
    if not W.is_block:
        quick = [mode for mode in groups if has_quick_gram(data, W, mode, effort)]
        data.ask_residual_grams(W, {mode: weights[groups[mode]] for mode in quick})
    for mode, members in groups.items():
        if has_quick_gram(data, W, mode, effort):
            ratios[members] = shares_along(data, W, weights, mode, members, effort)
        elif not W.is_block:
            bounds = long_bounds(data, W, weights, mode, members)
            ratios[members] = own_decreases(data, W, weights)[members] / bounds
    shares = np.minimum(ratios, 1.0)
    return replace(W, atoms=tuple(replace(a, certificate=float(r)) for a, r in zip(W.atoms, shares, strict=True)))


def has_quick_gram(data: Storage, W: BooleanCP, mode: int, effort: str) -> bool:
    """Return True if the Gram matrix along a mode is there, or worth its time: little effort takes shorter modes."""
    is_quick = effort in ("quick", "eigenvalue") and not W.is_block and data.n_passes == 0
    is_large = data.shape[mode] > LARGE and min(data.shape) <= LARGE
    return not is_long(data.shape[mode]) and data.has_gram(mode) and not (is_quick and is_large)


def left_out_weights(W: BooleanCP) -> np.ndarray:
    """Return the weights (K, K) that judge each atom on what all others leave."""
    return np.where(np.eye(W.n_atoms, dtype=bool), 0.0, W.weights)


def in_turn_weights(path: Sequence[BooleanCP]) -> np.ndarray:
    """Return the weights (K, K) that judge each atom on what those before it left, when it was found."""
    K = path[-1].n_atoms
    return np.stack([np.append(W.weights, np.zeros(K - W.n_atoms)) for W in path[:-1]])


def shares_along(
    data: Storage, W: BooleanCP, weights: np.ndarray, mode: int, members: np.ndarray, effort: str
) -> np.ndarray:
    """Return the score of the bits of some atoms along one mode over a bound on that of all bits, NaN if not proved."""
    shares = []
    for k, C in zip(members, residual_grams(data, W, weights[members], mode), strict=True):
        z = W.atoms[k].z
        bound = DenseGram(C).ratio_bound(z, effort)
        shares.append(np.nan if bound is None else float(z @ C @ z) / z.sum() / bound)
    return np.array(shares, dtype=float)


def residual_grams(data: Storage, W: BooleanCP, weights: np.ndarray, mode: int) -> Iterator[np.ndarray]:
    """Yield R_n R_n' of R = X - sum_k c_k M_k for each row c of `weights`, of dense blocks as well."""
    if not W.is_block:
        yield from data.residual_grams(W, weights, mode)
        return
    for row in weights:
        yield data.residual(replace(W, weights=row)).gram(mode)


def own_decreases(data: Storage, W: BooleanCP, weights: np.ndarray) -> np.ndarray:
    """Return <R_k, M_k>^2 / |z|^2, the decrease of the loss by each atom as it is, (K,)."""
    inner = W.data_inner - np.sum(weights * W.observed_gram(), axis=1)
    return inner**2 / [atom.n_ones for atom in W.atoms]


def long_bounds(data: Storage, W: BooleanCP, weights: np.ndarray, mode: int, members: np.ndarray) -> np.ndarray:
    """Return upper bounds on the decrease by any atom along a long mode, for the residuals that judge some atoms.

    An unfolding with at most THIN columns has lambda_max(R_n'R_n). Otherwise it is L times the smallest
    lambda_max(R_m R_m') over the short modes m, which no atom of rank L can exceed: <R, z (x) u (x) w> / |z| is at most
    the norm of every unfolding of R, and L such products add up to sqrt(L) times it. NaN if there is no short mode, or
    no proof.
    """
    if n_columns(data, mode) <= THIN:
        grams = data.residual_column_grams(W, weights[members], mode)
        return np.array([eigenvalue_bound(S, S.sum(axis=0) + S.diagonal()) for S in grams], dtype=float)
    short = [m for m, d in enumerate(data.shape) if not is_long(d) and data.has_gram(m)]
    short = [m for m in short if data.shape[m] <= LARGE] or short
    if not short:
        return np.full(len(members), np.nan)
    found = [
        [eigenvalue_bound(C, C.sum(axis=0) + C.diagonal()) for C in data.residual_grams(W, weights[members], m)]
        for m in short
    ]
    ranks = np.array([W.atoms[k].rank for k in members])
    return np.fmin.reduce(np.array(found, dtype=float)) * ranks  # None becomes NaN


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
    for mode, members in W.members.items():
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
    while True:
        n_free = sum(real_dims(atom) + len(atom.z) for atom in W.atoms)
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
