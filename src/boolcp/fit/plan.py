"""The way from a storage to the pursuit and the refined decomposition, and back to the full data."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from boolcp.fit import certify
from boolcp.fit.blocks import block_pursuit
from boolcp.fit.impute import observed_block_pursuit
from boolcp.fit.polish import decide_rows
from boolcp.fit.pursuit import boolean_matching_pursuit, record
from boolcp.fit.relax import quadratic, solve_rows
from boolcp.fit.starts import add_greedy, not_worse, refine, to_decomposition
from boolcp.fit.weights import atom_system, solve_lasso
from boolcp.memory import check_memory, float_bytes, read_memory
from boolcp.result.atoms import BooleanCP
from boolcp.storage import TuckerTensor, complete_tensor
from boolcp.storage.lazy import check_fit, look_at, make_source
from boolcp.storage.long import is_long
from boolcp.storage.tucker import first_gram, is_compressible

EXTRA_RANK = 10  # directions kept in each mode of the compressed tensor beyond the number of atoms


def run(model, data, modes, rng, steps, start=None):
    """Return the Pursuit and the final BooleanCP that the parameters of a BMP ask for.

    `start` holds those of a fit with fewer atoms to go on from. If `steps` is stopped, they are the best so far.
    """
    earlier, fitted = (None, None) if start is None else start
    options = {
        "atom_rank": model.atom_rank,
        "score": vars(model)["score"],
        "tol": max(model.tol, _precision(data.dtype)),
        "steps": steps,
        "start": earlier,
    }
    if not model.refine:
        options |= {"alpha": model.alpha, "certify": model.certify}
        pursue = partial(boolean_matching_pursuit, data, model.n_atoms, modes, rng, **options)
        pursuit = steps.do("pursuit", pursue, rng)
        W = pursuit.path[-1]
    elif model.atom_rank != 1 or data.ndim == 2:
        search = block_pursuit if data.is_complete else observed_block_pursuit
        options |= {"sigma": model.sigma, "certify": model.certify}
        pursuit = steps.do("pursuit", partial(search, data, model.n_atoms, modes, rng, **options), rng)
        W = penalize(pursuit.path[-1], model.alpha)
    else:
        pursuit, W = run_refined(model, data, modes, rng, steps, fitted, options)
    return replace(pursuit, stop_reason="stopped") if steps.is_cut else pursuit, W


def run_refined(model, data, modes, rng, steps, fitted, options):
    """Return the Pursuit of rank-one atoms and the BooleanCP refined in all factors."""
    small = compressed(model, data, steps)
    options = options | {"certify": model.certify and small is data}
    pursuit = steps.do("pursuit", partial(boolean_matching_pursuit, small, model.n_atoms, modes, rng, **options), rng)
    start = pursuit.path[-1]
    if start.n_atoms == 0 or steps.is_stopped or not data.is_complete:
        pursuit = on_data(model, pursuit, data, small, steps)
        start = pursuit.path[-1]
    if start.n_atoms == 0 or (small is data and pursuit.stop_reason == "explained"):
        return pursuit, start
    if steps.is_stopped:
        return pursuit, penalize(start, model.alpha)
    if fitted is not None:
        start = steps.do("extended", partial(extend, data, small, fitted, start.n_atoms, modes, rng), rng)
    limits = {"max_iter": model.max_iter, "steps": steps}
    solution = refine(data, small, start, start.n_atoms, modes, rng, n_init=model.n_init, **limits)
    W = by_size(to_decomposition(data.shape, solution))
    if small is not data and data.is_complete:  # with the result, so that they share a pass over the data
        if hasattr(data, "ask_ahead"):
            data.ask_ahead([W.factors, pursuit.path[-1].factors])
        pursuit = on_data(model, pursuit, data, small, steps)
        start = pursuit.path[-1] if fitted is None else start
    best = not_worse(data, solution, start, **limits)
    W = with_data(W if best is solution else by_size(to_decomposition(data.shape, best)), data)
    if model.certify:
        W = certify.certify(data, W, certify.left_out_weights(W))
    return pursuit, penalize(W, model.alpha)


def open_lazy(model, X, mask):
    """Return the storage of a lazy array that the parameters of a BMP ask for, or None if it has to be loaded.

    Raises a MemoryError with an estimate, before anything is read, if the memory is too small for the one or the other.
    """
    limit, rank = read_memory(model.max_memory), model.n_atoms + EXTRA_RANK
    if is_few_passes(model, X.shape):
        asked = (
            range(X.ndim) if model.certify else [int(np.argmin(X.shape))]
        )  # the shortest tells one tensor from another
        wanted = [n for n in asked if not is_long(X.shape[n])]
        source = make_source(X, mask, model.max_memory, model.n_atoms)
        check_fit(source, limit, model.n_atoms, rank, wanted)
        data = look_at(source, limit, first=first_gram(X.shape, rank), wanted=wanted)
        if not data.is_complete:
            check_fit(source, limit, model.n_atoms, rank, wanted, is_complete=False)
        return data
    advice = (
        "A tensor is left where it is with atom_rank=1, refine=True, compression=True and three or more modes, not all "
        "of them short; otherwise it is loaded. Change these parameters, or raise max_memory."
    )
    needed = 3 * float_bytes(X.shape, X.dtype)
    check_memory({"the tensor in memory, with copies": needed}, limit, advice)
    return None


def is_few_passes(model, shape):
    """Return True if a fit reads a tensor that is not in memory only a few times."""
    is_default = model.refine and model.atom_rank == 1 and model.compression
    is_small = not is_long(max(shape)) and max(shape) ** 2 > math.prod(shape)  # one short mode, and less of all others
    return is_default and len(shape) > 2 and not is_small and is_compressible(shape, model.n_atoms + EXTRA_RANK)


def compressed(model, data, steps):
    """Return the complete tensor on which the parameters of a BMP ask the search to be done."""

    def compute():
        small = complete_tensor(data, model.n_atoms + EXTRA_RANK, model.compression)
        return small if isinstance(small, TuckerTensor) else None

    small = steps.do("core", compute)
    return complete_tensor(data, 0, False) if small is None else small


def extend(data, small, W, n_atoms, modes, rng):
    """Return W with greedy atoms of `small` added, as long as they descend, and the weights that fit `data` best."""
    for _ in range(n_atoms - W.n_atoms):
        longer = add_greedy(small, W, 1, modes, rng)
        if longer is None:
            break
        W = longer
    G, b = atom_system(data, W.atoms)
    return with_system(replace(W, weights=solve_rows(G, b[None])[0]), data, G, b)


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


def explained_share(data, W):
    """Return the share of |X|^2 that W explains when its factor along mode 0 is solved anew, from small answers."""
    if data.squared_norm == 0:
        return 1.0
    if data.shape == W.shape and any(atom.rank is None and atom.mode != 0 for atom in W.atoms):
        return 1 - data.residual(W).squared_norm / data.squared_norm
    blocks, boolean = design(W, 0)
    H, P = block_equations(data, 0, blocks)
    A = decide_rows(H, P, boolean, np.zeros_like(P))
    return float((2 * np.sum(P * A) - quadratic(H, A)) / data.squared_norm)


def by_size(W):
    """Return W with its atoms sorted from the largest to the smallest norm."""
    sizes = W.weights * np.sqrt([atom.n_ones for atom in W.atoms])
    return W[np.argsort(-sizes, kind="stable")]


def with_data(W, data):
    """Return W with |X|^2, <X, M_k> and, if entries are missing, <M_k, M_l>, which shares of variance need."""
    return with_system(W, data, *atom_system(data, W.atoms))


def with_system(W, data, G, b):
    """Return W with the inner products <M_k, M_l> and <X, M_k> of its atoms over the entries of `data`."""
    return replace(W, data_norm2=data.squared_norm, data_inner=b, data_gram=None if data.is_complete else G)


def penalize(W, alpha):
    """Return W with its weights solved anew under the l1 penalty, atoms of weight zero left out."""
    if alpha == 0 or W.n_atoms == 0:
        return W
    weights = solve_lasso(W.observed_gram(), W.data_inner, alpha)
    return replace(W, weights=weights)[np.flatnonzero(weights)]


def on_data(model, pursuit, data, small, steps):
    """Return a pursuit that was run on `small` with weights, losses and certificates of the full data."""
    if small is data:
        return pursuit
    return steps.do("path", partial(on_full_data, pursuit, data, model.certify and not steps.is_stopped))


def on_full_data(pursuit, data, is_certified):
    """Return a pursuit that was run on compressed data with weights, losses and certificates of the full data."""
    last = with_data(pursuit.path[-1], data)
    G, b = last.observed_gram(), last.data_inner
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
