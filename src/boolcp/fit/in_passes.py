"""Data that are read in passes: which fits read them in few, and models beyond columns on them.

Algorithm 1 and back-fitting ask for a contraction with every new guess of the bits: far too many passes. So they run on
the compressed tensor. Given their bits, few contractions of the full tensor hold all that the real parts depend on.
"""

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np

from boolcp.fit.atom_search import make_atom, real_part
from boolcp.fit.backfit import Backfit, finish, in_order, terms_of
from boolcp.fit.finish import fit_weights
from boolcp.fit.job import EXTRA_RANK
from boolcp.fit.polish import is_swept_in_a_pass, polish
from boolcp.fit.pursuit import NormalEquations, atom_products
from boolcp.fit.state import Pursuit, Settings, record
from boolcp.memory import check_memory, float_bytes, read_memory
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import to_columns
from boolcp.storage.lazy import SMALL, LazyTensor, ObservedLazyTensor, check_fit, look_at, make_source
from boolcp.storage.long import LONG, is_long
from boolcp.storage.protocol import Storage
from boolcp.storage.tucker import is_compressible

MAX_ENTRIES = 2**28  # of a tensor for which blocks are tried, and of which filled copies are made; not tuned
N_LISTS = 6  # copies of a list of observed entries; not tuned
N_COPIES = 8  # of all blocks that back-fitting holds; not tuned
FEW_COUNTS = 30  # for each free parameter, below which a search under the loss is needed
N_LOADED = 8  # copies of a tensor with scarce entries that must fit in memory for it to be loaded; not tuned


def block_bytes(shape: tuple[int, ...], n_atoms: int) -> float:
    """Return the memory of the blocks in the course of a fit."""
    return 8 * N_COPIES * n_atoms * float(np.prod(shape, dtype=float)) / min(shape)


def rebuilt(data: Storage, pursuit: Pursuit, settings: Settings, rng: np.random.Generator) -> Pursuit:
    """Return the pursuit of Algorithm 1 with the same bits, its real parts and weights those of the full data.

    Each real part is that of (X - W) x_n z, and X x_n z of all atoms takes one pass for each mode. With missing entries
    each atom takes three passes.
    """
    contracted = bits_contracted(data, pursuit.W)
    known: dict[str, Any] = {"data_norm2": data.squared_norm, "data_inner": np.zeros(0)}
    W = BooleanCP(data.shape, **known, data_gram=None if data.is_complete else np.zeros((0, 0)))
    path, history, system = [W], [], NormalEquations()
    for atom, old in zip(pursuit.W.atoms, pursuit.history, strict=True):
        B, z = contracted[len(W.atoms)], atom.z[:, None].astype(float)
        left = B - W.contract(atom.mode, z)[0] if data.is_complete else data.residual(W).contract(atom.mode, z)[0]
        V = real_part(left, settings.atom_rank, rng)
        if V is None:
            break
        new = make_atom(atom.mode, atom.z, V)
        inner, size = atom_products(data, W.atoms, new)
        longer = system.extend(inner, size, float(np.vdot(B, new.dense_block())))
        if longer is None:
            break
        system, weights = longer, longer.solve()
        W = replace(W, atoms=(*W.atoms, new), weights=weights, data_inner=system.rhs)
        W = W if data.is_complete else replace(W, data_gram=system.gram)
        path.append(W)
        history.append(record(new, system.error(data.squared_norm, weights), data.squared_norm, old.seconds))
    return replace(pursuit, path=tuple(path), history=tuple(history), memory=None)


def bits_contracted(data: Storage, W: BooleanCP) -> list[np.ndarray]:
    """Return X x_n z for each atom of W, one pass for each mode."""
    found: list[Any] = [None] * W.n_atoms
    for mode, members in W.members.items():
        Z = np.stack([W.atoms[k].z for k in members], axis=1).astype(float)
        for k, block in zip(members, np.asarray(data.contract(mode, Z), dtype=float), strict=True):
            found[k] = block
    return found


def refitted(data: Storage, W: BooleanCP, settings: Settings, tol: float) -> BooleanCP:
    """Return blocks that were found on the core after back-fitting to the full data, columns after a polish."""
    if data.ndim == 2:
        return fit_weights(data, polish(data, to_columns(W), max_iter=settings.max_iter).to_decomposition())
    terms = Backfit(data, tol=tol).backfit(terms_of(W))
    return finish(data, [in_order(term) for term in terms]) if terms else W


def ended_with(pursuit: Pursuit, W: BooleanCP, norm2: float) -> Pursuit:
    """Return the pursuit whose last estimate is W; the earlier ones are those of the compressed tensor."""
    newest = record(W.atoms[-1], W.squared_error, norm2, pursuit.history[-1].seconds)
    return replace(pursuit, path=(*pursuit.path[:-1], W), history=(*pursuit.history[:-1], newest), memory=None)


def open_lazy(settings: Settings, X: Any, mask: Any, max_memory: Any, weights: Any = None) -> Storage | None:
    """Return the storage of a lazy array for the parameters of a fit, or None if it must be loaded.

    Raises a MemoryError with an estimate, before anything is read, if the memory is too small for the one or the other.
    """
    limit = read_memory(max_memory)
    if is_few_passes(settings, X.shape):
        shortest, rank = int(np.argmin(X.shape)), settings.n_columns + EXTRA_RANK
        asked = range(X.ndim) if settings.certify else [shortest]  # which identifies the tensor
        limit_of = LONG if settings.certify else SMALL
        wanted = [n for n in asked if X.shape[n] <= limit_of]
        is_counted = settings.loss == "poisson"
        source = make_source(X, mask, max_memory, settings.n_columns, weights, is_counted=is_counted)
        is_block = settings.atom_rank is None and X.ndim > 2
        more = {"dense blocks": block_bytes(source.shape, settings.n_atoms)} if is_block else {}
        check_fit(source, limit, settings.n_columns, rank, wanted, more=more)
        data = look_at(source, limit, rank=rank, wanted=wanted)
        if is_counted and has_few_counts(data, settings.n_columns) and N_LOADED * source.nbytes <= limit:
            return None
        if not data.is_complete:
            check_fit(source, limit, settings.n_columns, rank, wanted, is_complete=False)
        if is_listable(data, settings.n_columns):
            return cast(ObservedLazyTensor, data).listed()
        if is_scarce(data, settings.n_columns) and N_LOADED * source.nbytes <= limit:
            return None
        if data.is_complete or not (is_block or X.ndim == 2):
            return data
    advice = (
        "A tensor stays out of memory with compression=True, unless it is small or compresses poorly. If entries are "
        "missing, it also needs three or more modes and an atom_rank other than 'block'. Otherwise it is loaded: "
        "change these parameters, or raise max_memory."
    )
    needed = 3 * float_bytes(X.shape, X.dtype)
    check_memory({"the tensor in memory, with copies": needed}, limit, advice)
    return None


def has_few_counts(data: LazyTensor | ObservedLazyTensor, n_columns: int) -> bool:
    """Return True if the counts are too few for the fit of squares to lead to them; raise if they are no counts."""
    low, _, mean = data.entry_range
    if low < 0:
        raise ValueError(f'loss="poisson" needs entries 0 or larger, but X has one of {low:g}.')
    return mean * data.n_observed < FEW_COUNTS * n_columns * sum(data.shape)


def is_listable(data: Storage, n_columns: int) -> bool:
    """Return True if observed entries are too scarce for few passes, but a list of them fits in memory.

    A search over them takes many sweeps. Models that fill in such a large tensor are not tried on the list.
    """
    size = 8.0 * N_LISTS * (data.ndim + 1) * data.n_observed
    return is_scarce(data, n_columns) and size <= data.limit and np.prod(data.shape, dtype=float) > MAX_ENTRIES


def is_scarce(data: Storage, n_columns: int) -> bool:
    """Return True if entries are missing, and the others are too few for few passes: a search takes many sweeps."""
    return not data.is_complete and not is_swept_in_a_pass(data, n_columns)


def is_few_passes(settings: Settings, shape: tuple[int, ...]) -> bool:
    """Return True if a fit reads a tensor that is not in memory only a few times."""
    rank = settings.n_columns + EXTRA_RANK
    is_small = not is_long(max(shape)) and max(shape) ** 2 > math.prod(shape)  # one short mode, and less of all others
    return settings.compression and not is_small and is_compressible(shape, rank)
