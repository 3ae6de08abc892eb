"""Certificates of atoms: the share of the best possible score that their bits provably reach."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp import checks
from boolcp.fit.background import without
from boolcp.fit.weights import atom_system
from boolcp.program.grams import LARGE, DenseGram
from boolcp.program.maxcut import EFFORTS
from boolcp.program.relaxation import eigenvalue_bound
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import read_labels
from boolcp.storage import make_storage
from boolcp.storage.long import THIN, is_long, n_columns
from boolcp.storage.protocol import Storage
from boolcp.threads import one_thread


def certify_on(W: BooleanCP, X: Any, mask: ArrayLike | None, effort: str) -> BooleanCP:
    """Return W with the certificates of its atoms on data given by a user."""
    checks.check_choice(effort, "effort", EFFORTS)
    X, observed = checks.check_tensor(read_labels(X)[0], mask)
    if X.shape != W.shape:
        raise ValueError(f"X has shape {X.shape}: pass the tensor that was fitted, of shape {W.shape}.")
    whole = make_storage(X, observed)
    with one_thread():
        data = without(whole, W.background)
        G, b = atom_system(data, W.atoms)
        parts: dict[str, Any] = {"data_inner": b, "data_gram": None if data.is_complete else G}
        W = replace(W, data_norm2=whole.squared_norm, **parts)
        return certify(data, W, left_out_weights(W), effort=effort) if W.n_atoms else W


def certify(data: Storage, W: BooleanCP, weights: np.ndarray, *, effort: str = "quick") -> BooleanCP:
    """Return W with the certificate of each atom k, judged on R_k = X - sum_j weights[k, j] M_j.

    It is z'Cz / |z|^2 with C = R_n R_n', the decrease of the loss by the bits with the best real part, over a proved
    upper bound on that of all bits. A mode n that is long, or whose Gram matrix takes long to compute or is not there,
    judges the atom itself by its own decrease <R_k, M_k>^2 / |z|^2, over the bounds of `long_bounds`.
    """
    ratios = np.full(W.n_atoms, np.nan)
    groups = {mode: np.flatnonzero(W.boolean_mode == mode) for mode in sorted(set(W.boolean_mode.tolist()))}
    if not W.is_block:
        quick = [mode for mode in groups if has_quick_gram(data, W, mode, effort)]
        data.ask_residual_grams(W, {mode: weights[groups[mode]] for mode in quick})
    for mode, members in groups.items():
        if has_quick_gram(data, W, mode, effort):
            ratios[members] = shares_along(data, W, weights, mode, members, effort)
        elif not W.is_block:
            bounds = long_bounds(data, W, weights, mode, members)
            ratios[members] = own_decreases(W, weights)[members] / bounds
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


def own_decreases(W: BooleanCP, weights: np.ndarray) -> np.ndarray:
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
