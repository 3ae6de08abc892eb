"""Certificates of rank-one atoms: which part of the best possible score an atom is proved to reach."""

from dataclasses import replace

import numpy as np

from boolcp.contractions import gram_product
from boolcp.maxcut import eigenvalue_bound

MAX_SIZE = 4096  # a longer mode has no certificate: its d x d Gram matrix would outweigh the tensor


def certify(data, W, weights):
    """Return W with the certificate of each atom k, judged on R_k = X - sum_j weights[k, j] M_j.

    It is <R_k, M_k>^2 / |z|^2, the decrease of the loss by the atom alone, over lambda_max(R_n R_n'), which no
    Boolean vector and no real part, of whatever rank, can exceed.
    """
    inner = W.data_inner - np.sum(weights * W._observed_gram(), axis=1)
    values = inner**2 / [atom.n_ones for atom in W.atoms]
    ratios = np.minimum(values / residual_bounds(data, W, weights), 1.0)
    atoms = tuple(replace(atom, certificate=float(r)) for atom, r in zip(W.atoms, ratios, strict=True))
    return replace(W, atoms=atoms)


def left_out_weights(W):
    """Return the weights (K, K) that judge each atom on what all others leave."""
    return np.where(np.eye(W.n_atoms, dtype=bool), 0.0, W.weights)


def in_turn_weights(path):
    """Return the weights (K, K) that judge each atom on what those before it left, when it was found."""
    K = path[-1].n_atoms
    return np.stack([np.append(W.weights, np.zeros(K - W.n_atoms)) for W in path[:-1]])


def residual_bounds(data, W, weights):
    """Return lambda_max(R_n R_n') along each atom's mode for R = X - sum_j weights[k, j] M_j, from above, (K,)."""
    bounds = np.full(W.n_atoms, np.nan)
    for mode in set(W.boolean_mode.tolist()):
        if data.shape[mode] > MAX_SIZE:
            continue
        members = np.flatnonzero(W.boolean_mode == mode)
        for k, C in zip(members, residual_grams(data, W, weights[members], mode), strict=True):
            bound = eigenvalue_bound(C, W.atoms[k].z)
            bounds[k] = np.nan if bound is None else bound
    return bounds


def residual_grams(data, W, weights, mode):
    """Yield R_n R_n' of R = X - sum_j c_j M_j for each row c of `weights`."""
    if not data.is_complete:
        for row in weights:
            yield data.residual(replace(W, weights=row)).gram(mode)
        return
    A, G = W.factors[mode], data.gram(mode)
    P, H = np.asarray(data.mttkrp(W.factors, mode), dtype=float), gram_product(W.factors, mode)
    for row in weights:
        B = A * row
        cross = P @ B.T
        yield G - cross - cross.T + B @ H @ B.T
