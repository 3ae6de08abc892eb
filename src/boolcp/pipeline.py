"""The way from a storage to the pursuit and the refined decomposition, and back to the full data."""

from dataclasses import replace

import numpy as np

from boolcp import certify
from boolcp.atoms import BooleanCP
from boolcp.backfit import block_pursuit
from boolcp.imputation import observed_block_pursuit
from boolcp.pursuit import boolean_matching_pursuit, record
from boolcp.refine import refine, to_decomposition
from boolcp.storage import complete_tensor
from boolcp.weights import atom_system, solve_lasso

EXTRA_RANK = 10  # directions kept in each mode of the compressed tensor beyond the number of atoms


def run(model, data, modes, rng, progress):
    """Return the Pursuit and the final BooleanCP that the parameters of a BMP ask for."""
    options = {
        "atom_rank": model.atom_rank,
        "score": vars(model)["score"],
        "tol": max(model.tol, _precision(data.dtype)),
        "progress": progress,
    }
    if not model.refine:
        pursuit = boolean_matching_pursuit(
            data, model.n_atoms, modes, rng, alpha=model.alpha, certify=model.certify, **options
        )
        return pursuit, pursuit.path[-1]
    if model.atom_rank != 1 or data.ndim == 2:
        search = block_pursuit if data.is_complete else observed_block_pursuit
        pursuit = search(data, model.n_atoms, modes, rng, sigma=model.sigma, certify=model.certify, **options)
        return pursuit, penalize(pursuit.path[-1], model.alpha)
    small = compressed(model, data)
    is_certified = model.certify and small is data
    pursuit = boolean_matching_pursuit(small, model.n_atoms, modes, rng, certify=is_certified, **options)
    if small is not data:
        pursuit = on_full_data(pursuit, data, model.certify)
    W = pursuit.path[-1]
    if W.n_atoms == 0 or (small is data and pursuit.stop_reason == "explained"):
        return pursuit, W
    solution = refine(data, small, W, W.n_atoms, modes, rng, n_init=model.n_init, max_iter=model.max_iter)
    W = with_data(by_size(to_decomposition(data.shape, solution)), data)
    if model.certify:
        W = certify.certify(data, W, certify.left_out_weights(W))
    return pursuit, penalize(W, model.alpha)


def compressed(model, data):
    """Return the complete tensor on which the parameters of a BMP ask the search to be done."""
    return complete_tensor(data, model.n_atoms + EXTRA_RANK, model.compression)


def _precision(dtype):
    """Return the relative error |X - W| / |X| below which a loss computed from inner products is rounding."""
    return float(np.sqrt(10 * np.finfo(dtype).eps))


def find_undetermined(data):
    """Return the slices without any observed entry by mode, {mode: (d_n,) bool}, only for modes that have some."""
    if data.is_complete:
        return {}
    empty = {mode: data.n_observed_along(mode) == 0 for mode in range(data.ndim)}
    return {mode: slices for mode, slices in empty.items() if slices.any()}


def block_equations(data, mode, blocks):
    """Return H and P of the least squares for the factor along `mode` that multiplies given blocks."""
    P = np.asarray(data.project(mode, blocks), dtype=float)
    flat = blocks.reshape(len(blocks), -1)
    if data.is_complete:
        return flat @ flat.T, P
    products = np.einsum("kj,lj->klj", flat, flat).reshape(-1, *blocks.shape[1:])
    return data.observed().project(mode, products).reshape(-1, len(blocks), len(blocks)), P


def by_size(W):
    """Return W with its atoms sorted from the largest to the smallest norm."""
    sizes = W.weights * np.sqrt([atom.n_ones for atom in W.atoms])
    return W[np.argsort(-sizes, kind="stable")]


def with_data(W, data):
    """Return W with |X|^2, <X, M_k> and, if entries are missing, <M_k, M_l>, which shares of variance need."""
    G, b = atom_system(data, W.atoms)
    return replace(W, data_norm2=data.squared_norm, data_inner=b, data_gram=None if data.is_complete else G)


def penalize(W, alpha):
    """Return W with its weights solved anew under the l1 penalty, atoms of weight zero left out."""
    if alpha == 0 or W.n_atoms == 0:
        return W
    weights = solve_lasso(W._observed_gram(), W.data_inner, alpha)
    return replace(W, weights=weights)[np.flatnonzero(weights)]


def on_full_data(pursuit, data, is_certified):
    """Return a pursuit that was run on compressed data with weights, losses and certificates of the full data."""
    last = with_data(pursuit.path[-1], data)
    G, b = last._observed_gram(), last.data_inner
    path, history = [replace(pursuit.path[0], data_norm2=data.squared_norm)], []
    for k in range(1, last.n_atoms + 1):
        weights = np.linalg.solve(G[:k, :k], b[:k])
        path.append(replace(last[:k], weights=weights))
    if is_certified and last.n_atoms and data.is_complete:  # with missing entries each step would cost a Gram
        atoms = certify.certify(data, path[-1], certify.in_turn_weights(path)).atoms
        path = [replace(W, atoms=atoms[: W.n_atoms]) for W in path]
    for W, old in zip(path[1:], pursuit.history, strict=True):
        error2 = max(data.squared_norm - W.weights @ W.data_inner, 0.0)
        history.append(record(W.atoms[-1], error2, data.squared_norm, old.seconds))
    return replace(pursuit, path=tuple(path), history=tuple(history))


def design(W, mode):
    """Return the tensors of the other modes that the factor along `mode` multiplies, and which of them take bits.

    An atom that is Boolean along `mode` gives its weighted real part; one that is real there gives one product for
    each column of its factor along `mode`.
    """
    others = W.shape[:mode] + W.shape[mode + 1 :]
    blocks, boolean = [], []
    for atom, weight in zip(W.atoms, W.weights, strict=True):
        if atom.mode == mode:
            blocks.append(weight * atom.dense_block())
            boolean.append(True)
            continue
        if atom.rank is None:
            raise ValueError(
                f"The block atoms are dense along mode {mode}: there is no factor of that mode to solve for. "
                f"Use an integer atom_rank, or a Boolean mode."
            )
        terms = BooleanCP(W.shape, (atom,), [weight]).rank_one_terms()
        for term, size in zip(terms.atoms, terms.weights, strict=True):
            one = BooleanCP(W.shape, (term,), [size])
            column = np.asarray(one.factors[mode][:, 0], dtype=float)
            blocks.append(one.contract(mode, column[:, None])[0])
            boolean.append(False)
    return np.array(blocks).reshape(len(blocks), *others), np.array(boolean, dtype=bool)
