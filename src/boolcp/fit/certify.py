"""Certificates of rank-one atoms: which part of the best possible score an atom is proved to reach."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from boolcp.program.relaxation import eigenvalue_bound
from boolcp.result.atoms import BooleanCP
from boolcp.storage.long import THIN, is_long, n_columns
from boolcp.storage.protocol import Storage


def certify(data: Storage, W: BooleanCP, weights: np.ndarray) -> BooleanCP:
    """Return W with the certificate of each atom k, judged on R_k = X - sum_j weights[k, j] M_j.

    It is <R_k, M_k>^2 / |z|^2, the decrease of the loss by the atom alone, over lambda_max(R_n R_n'), which no
    Boolean vector and no real part, of whatever rank, can exceed. For a long mode see `residual_bounds`.
    """
    inner = W.data_inner - np.sum(weights * W.observed_gram(), axis=1)
    values = inner**2 / [atom.n_ones for atom in W.atoms]
    ratios = np.minimum(values / residual_bounds(data, W, weights), 1.0)
    atoms = tuple(replace(atom, certificate=float(r)) for atom, r in zip(W.atoms, ratios, strict=True))
    return replace(W, atoms=atoms)


def left_out_weights(W: BooleanCP) -> np.ndarray:
    """Return the weights (K, K) that judge each atom on what all others leave."""
    return np.where(np.eye(W.n_atoms, dtype=bool), 0.0, W.weights)


def in_turn_weights(path: Sequence[BooleanCP]) -> np.ndarray:
    """Return the weights (K, K) that judge each atom on what those before it left, when it was found."""
    K = path[-1].n_atoms
    return np.stack([np.append(W.weights, np.zeros(K - W.n_atoms)) for W in path[:-1]])


def residual_bounds(data: Storage, W: BooleanCP, weights: np.ndarray) -> np.ndarray:
    """Return lambda_max(R_n R_n') along each atom's mode for R = X - sum_j weights[k, j] M_j, from above, (K,).

    A long mode n whose unfolding has more than THIN columns, or a mode whose Gram matrix a lazy tensor does not have,
    takes L times the smallest lambda_max(R_m R_m') over the short modes m, which no atom of rank L can exceed either:
    <R, z (x) u (x) w> / |z| is at most the norm of every unfolding of R, and L such products add up to sqrt(L)
    times it. NaN if there is no short mode, or no proof.
    """
    bounds = np.full(W.n_atoms, np.nan)
    short = [m for m, d in enumerate(data.shape) if not is_long(d) and data.has_gram(m)]
    for mode in set(W.boolean_mode.tolist()):
        members = np.flatnonzero(W.boolean_mode == mode)
        if mode in short:
            bounds[members] = bounds_along(data, W, weights, mode, members)
        elif n_columns(data, mode) <= THIN:
            bounds[members] = thin_bounds(data, W, weights, mode, members)
        else:
            found = [bounds_along(data, W, weights, m, members) for m in short]
            bounds[members] = np.fmin.reduce(found) * np.array([W.atoms[k].rank for k in members]) if found else np.nan
    return bounds


def bounds_along(data: Storage, W: BooleanCP, weights: np.ndarray, mode: int, members: np.ndarray) -> np.ndarray:
    """Return lambda_max(R_n R_n') along one mode for the residuals that judge some of the atoms, from above."""
    bounds = []
    for k, C in zip(members, data.residual_grams(W, weights[members], mode), strict=True):
        z = W.atoms[k].z.astype(float)
        bounds.append(eigenvalue_bound(C, z if W.atoms[k].mode == mode else C.sum(axis=0) + C.diagonal()))
    return np.array(bounds, dtype=float)  # None becomes NaN


def thin_bounds(data: Storage, W: BooleanCP, weights: np.ndarray, mode: int, members: np.ndarray) -> np.ndarray:
    """Return lambda_max(R_n'R_n), as `bounds_along` does, for a long mode with few columns."""
    grams = data.residual_column_grams(W, weights[members], mode)
    return np.array([eigenvalue_bound(S, S.sum(axis=0) + S.diagonal()) for S in grams], dtype=float)
