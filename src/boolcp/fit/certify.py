"""The evidence for the bits of atoms: the share of the best score that they provably reach, the rise if one flips."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp import checks
from boolcp.contractions import gram_product
from boolcp.fit.pursuit import with_system
from boolcp.program.bounds import eigenvalue_bound
from boolcp.program.grams import LARGE, DenseGram, ratio_bound
from boolcp.program.maxcut import EFFORTS
from boolcp.result.atoms import BooleanCP, inner_with_atoms
from boolcp.result.labels import read_labels
from boolcp.result.trust import Trust, real_dims, stands_out
from boolcp.storage import make_storage
from boolcp.storage.dense import Complete, n_columns, n_observed
from boolcp.storage.lazy import Lazy
from boolcp.storage.protocol import Storage
from boolcp.storage.tucker import LONG, THIN, unfold
from boolcp.system import one_thread


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
        return certify(data, with_system(W, data), effort=effort) if W.n_atoms else W


def certify(data: Storage, W: BooleanCP, *, effort: str = "quick") -> BooleanCP:
    """Return W with the certificate of each atom k, judged on R_k = X - sum of the other atoms.

    It is z'Cz / |z|^2 with C = R_n R_n', the decrease of the loss by the bits with the best real part, over a proved
    upper bound on that of all bits. A mode n that is long, or whose Gram matrix takes long to compute, judges the atom
    itself by its own decrease <R_k, M_k>^2 / |z|^2, over the bounds of `long_bounds`.
    """
    shares = np.full(W.n_atoms, np.nan)
    for mode, members in W.members.items():
        if has_quick_gram(data, W, mode, effort):
            for k, C in zip(members, residual_grams(data, W, members, mode), strict=True):
                z = W.atoms[k].z
                bound = ratio_bound(DenseGram(C), z, effort)
                shares[k] = np.nan if bound is None else float(z @ C @ z) / z.sum() / bound
        elif not W.is_block:
            is_near = data.weights is not None and isinstance(data, Complete)  # the targets of data on disk
            V = replace(W, data_inner=inner_with_atoms(data, W.atoms), data_gram=None) if is_near else W
            inner = V.data_inner - V.observed_gram() @ V.weights + np.diag(V.observed_gram()) * V.weights
            own = inner**2 / [atom.n_ones for atom in W.atoms]
            shares[members] = own[members] / long_bounds(data, W, members, mode)
    shares = np.minimum(shares, 1.0)
    return replace(W, atoms=tuple(replace(a, certificate=float(r)) for a, r in zip(W.atoms, shares, strict=True)))


def has_quick_gram(data: Storage, W: BooleanCP, mode: int, effort: str) -> bool:
    """Return True if the Gram matrix along a mode is worth its time: little effort takes shorter modes."""
    is_quick = effort in ("quick", "eigenvalue") and not W.is_block and data.n_passes == 0
    is_large = data.shape[mode] > LARGE and min(data.shape) <= LARGE
    return has_gram(data, mode) and not (is_quick and is_large)


def has_gram(data: Storage, mode: int) -> bool:
    """Return True if a Gram matrix fits in memory and, for data on disk, can be brought by a pass."""
    return data.shape[mode] <= LONG and (not isinstance(data, Lazy) or data.has_gram(mode))


def residual_grams(data: Storage, W: BooleanCP, members: np.ndarray, mode: int) -> Iterator[np.ndarray]:
    """Yield R_n R_n' of R = X - W + W_k for some atoms k; complete data are asked once for all."""
    if W.is_block or not isinstance(data, Complete) or data.center is not None:
        for k in members:
            rest = replace(W, weights=np.where(np.arange(W.n_atoms) == k, 0.0, W.weights))
            yield data.residual(rest).gram(mode)
        return
    A, G = W.matrices[mode], data.gram(mode)
    P, H = np.asarray(data.mttkrp(W.matrices, mode), dtype=float), gram_product(W.matrices, mode)
    owner = np.repeat(np.arange(W.n_atoms), [atom.rank or 0 for atom in W.atoms])
    for k in members:
        B = A * np.where(owner == k, 0.0, W.column_weights)
        cross = P @ B.T
        yield G - cross - cross.T + B @ H @ B.T


def long_bounds(data: Storage, W: BooleanCP, members: np.ndarray, mode: int) -> np.ndarray:
    """Return upper bounds on the decrease by any atom along a long mode, for the residuals that judge some atoms.

    An unfolding with at most THIN columns has lambda_max(R_n'R_n). Otherwise it is L times the smallest
    lambda_max(R_m R_m') over the short modes m, which no atom of rank L can exceed: <R, z (x) u (x) w> / |z| is at most
    the norm of every unfolding of R, and L such products add up to sqrt(L) times it. NaN if there is no short mode, or
    no proof.
    """
    short = [m for m in range(len(data.shape)) if has_gram(data, m)]
    short = [m for m in short if data.shape[m] <= LARGE] or short
    bounds = []
    for k in members:
        rest = replace(W, weights=np.where(np.arange(W.n_atoms) == k, 0.0, W.weights))
        R, rank = data.residual(rest), W.atoms[k].rank or 1
        if n_columns(data, mode) <= THIN and not data.n_passes:
            X = unfold(R, mode)
            grams, rank = [X.T @ X], 1
        else:
            grams = [R.gram(m) for m in short]
        found = [eigenvalue_bound(C, C.sum(axis=0) + C.diagonal()) for C in grams]
        bounds.append(rank * min((bound for bound in found if bound is not None), default=np.nan))
    return np.array(bounds, dtype=float)


def judge_bits(data: Storage, W: BooleanCP) -> Trust:
    """Return for each bit of W the exact rise of the loss when it is flipped, and the noise level.

    Together they give the confidence of the bits (`boolcp.result.trust`).
    """
    products, squares = flip_terms(data, W)
    signs = [np.where(atom.z, 1.0, -1.0) for atom in W.atoms]
    rise = tuple(h + 2 * s * g for g, h, s in zip(products, squares, signs, strict=True))
    sizes = np.maximum(W.weights**2, np.finfo(float).tiny)
    share = None if data.weights is None else tuple(h / size for h, size in zip(squares, sizes, strict=True))
    return Trust(rise=rise, share=share, sigma=noise_left(data, W))


def flip_terms(data: Storage, W: BooleanCP) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return for each atom <R_i, c V> and |c V|^2 over the observed entries of each slice i, with R = X - W."""
    g, h = [np.zeros(0)] * W.n_atoms, [np.zeros(0)] * W.n_atoms
    for mode, members in W.members.items():
        products, squares = (_terms_of_blocks if W.is_block else _terms_of_columns)(data, W, mode, members)
        for place, k in enumerate(members):
            g[k], h[k] = products[:, place], squares[:, place]
    return g, h


def _terms_of_columns(data: Storage, W: BooleanCP, mode: int, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return <R_i, c V> and |c V|^2 of some atoms, (d_n, members), from the equations of their mode."""
    A, H, P = equations_at(data, W, mode)
    owner = np.repeat(np.arange(W.n_atoms), [atom.rank or 0 for atom in W.atoms])
    B = (owner[:, None] == members).astype(float)
    if H.ndim == 2:
        return (P - A @ H) @ B, np.tile(np.einsum("ik,ij,jk->k", B, H, B), (len(P), 1))
    return (P - np.einsum("ij,ijl->il", A, H)) @ B, np.einsum("jk,ijl,lk->ik", B, H, B, optimize=True)


def equations_at(data: Storage, W: BooleanCP, mode: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the factor A of one mode and the equations H and P that it meets, the weights in the other factors.

    Complete data have answered the same for the columns without weights.
    """
    A, weights, factors = W.matrices[mode], W.column_weights, list(W.matrices)
    other = 1 if mode == 0 else 0
    factors[other] = factors[other] * weights
    if isinstance(data, Complete) and data.weights is None:
        P = np.asarray(data.mttkrp(W.matrices, mode), dtype=float) * weights
        H, P, _ = data.equations_of(P, factors, mode)
    else:
        H, P, _ = data.equations(factors, mode)
    return A, H, P


def _terms_of_blocks(data: Storage, W: BooleanCP, mode: int, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return <R_i, c V> and |c V|^2 of some atoms, (d_n, members), from projections on their blocks."""
    blocks = np.stack([W.weights[k] * W.atoms[k].dense_block() for k in members])
    products = np.asarray(data.residual(W).project(mode, blocks), dtype=float)
    if data.weights is None:
        return products, np.tile(W.weights[members] ** 2, (len(products), 1))
    return products, np.asarray(data.weights.project(mode, blocks**2), dtype=float)


def noise_left(data: Storage, W: BooleanCP) -> float:
    """Return the standard deviation of the noise: the residual over the entries that the parameters do not use up.

    Atoms that are not larger than those of pure noise are excluded: such atoms fit more of the noise than they have
    parameters.
    """
    while True:
        n_free = sum(real_dims(atom) + len(atom.z) for atom in W.atoms)
        sigma = float(np.sqrt(loss_of(data, W) / max(n_observed(data) - n_free, 1)))
        kept = stands_out(W, sigma)
        if kept.all():
            return sigma
        W = W[kept]


def loss_of(data: Storage, W: BooleanCP) -> float:
    """Return |X - W|^2 over the observed entries, from the inner products of W if it was fitted to these data."""
    if W.data_inner is None or W.data_norm2 is None or not np.isclose(W.data_norm2, data.squared_norm, rtol=1e-9):
        W = with_system(W, data)
    return W.squared_error
