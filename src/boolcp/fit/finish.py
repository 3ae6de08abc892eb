"""The end of a fit: its result, judged on the full data."""

from dataclasses import replace
from typing import Any

import numpy as np

from boolcp.fit import certify
from boolcp.fit.polish import polish
from boolcp.fit.pursuit import atom_system, with_system
from boolcp.fit.relax import solve_rows
from boolcp.fit.state import Pursuit, record
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.storage.protocol import Storage

UNSEEN = 1e-12  # share of |M|^2 over the observed entries that counts as none: rounding


def not_worse(data: Storage, solution: Columns, W: BooleanCP, *, max_iter: int) -> Columns:
    """Return the solution, or the result of a polish from W, whose inner products are known, if that is better."""
    if solution.loss <= data.squared_norm - W.weights @ W.data_inner:
        return solution
    return min(solution, polish(data, to_columns(W), max_iter=max_iter), key=lambda each: each.loss)


def shortened(pursuit: Pursuit, n_atoms: int) -> Pursuit:
    """Return a pursuit that ended after this many atoms because they explain all observed entries."""
    return Pursuit(pursuit.path[: n_atoms + 1], pursuit.history[:n_atoms], "explained")


def settled_blocks(done: dict[str, Any], norm2: float) -> tuple[Pursuit, BooleanCP]:
    """Return the pursuit of blocks whose estimates were fitted to the observed entries, and the last of them."""
    pursuit = done["filled"]
    path = (replace(pursuit.path[0], data_norm2=norm2), *(W for W, _ in done["settle"]))
    history = [
        record(W.atoms[-1], loss, norm2, old.seconds)
        for (W, loss), old in zip(done["settle"], pursuit.history, strict=False)
    ]
    return replace(pursuit, path=path, history=tuple(history)), path[-1]


def by_size(W: BooleanCP) -> BooleanCP:
    """Return W with its atoms sorted from the largest to the smallest norm."""
    sizes = W.weights * np.sqrt([atom.n_ones for atom in W.atoms])
    return W[np.argsort(-sizes, kind="stable")]


def with_data(W: BooleanCP, data: Storage) -> BooleanCP:
    """Return W with |X|^2, <X, M_k> and, if entries are missing, <M_k, M_l>, which shares of variance need.

    Atoms that are nonzero only on unobserved entries are dropped.
    """
    G, b = atom_system(data, W.atoms)
    seen = np.diag(G) > UNSEEN * np.array([atom.n_ones for atom in W.atoms])
    return with_system(W, data, G, b)[seen] if not seen.all() else with_system(W, data, G, b)


def fit_weights(data: Storage, W: BooleanCP) -> BooleanCP:
    """Return W with the weights that fit the data best, and what shares of variance need."""
    if W.n_atoms == 0:
        return replace(W, data_norm2=data.squared_norm, data_inner=np.zeros(0))
    G, b = atom_system(data, W.atoms)
    return with_system(replace(W, weights=solve_rows(G, b[None])[0]), data, G, b)


def on_full_data(pursuit: Pursuit, data: Storage, atom_rank: int, is_certified: bool) -> Pursuit:
    """Return a pursuit that was run on compressed data with weights, losses and certificates of the full data.

    Estimates with atoms of larger rank do not share their atoms, and take a pass each: of data that are read in passes
    only the last one is judged.
    """
    norm2, first = data.squared_norm, replace(pursuit.path[0], data_norm2=data.squared_norm)
    if atom_rank == 1:
        path = (first, *nested_path(pursuit, data, is_certified)) if pursuit.n_atoms else (first,)
    else:
        kept = len(pursuit.path) - 1 if data.n_passes else 1
        path = (first, *pursuit.path[1:kept], *(fit_weights(data, W) for W in pursuit.path[kept:]))
    history = []
    for W, old in zip(path[1:], pursuit.history, strict=True):
        error2 = max(W.data_norm2 - W.weights @ W.data_inner, 0.0)
        history.append(record(W.atoms[-1], error2, norm2, old.seconds))
    return replace(pursuit, path=path, history=tuple(history))


def nested_path(pursuit: Pursuit, data: Storage, is_certified: bool) -> tuple[BooleanCP, ...]:
    """Return the estimates with 1, 2, .. of the atoms of a pursuit, each with its weights and certificates."""
    last = with_data(pursuit.W, data)
    G, b = last.observed_gram(), np.asarray(last.data_inner)
    path = [replace(last[:k], weights=np.linalg.solve(G[:k, :k], b[:k])) for k in range(1, last.n_atoms + 1)]
    if is_certified and data.is_complete:  # with missing entries each step would cost a Gram
        before = [BooleanCP(data.shape), *path]
        atoms = certify.certify(data, last, certify.in_turn_weights(before), effort="eigenvalue").atoms
        path = [replace(W, atoms=atoms[: W.n_atoms]) for W in path]
    return tuple(path)


def have_same_bits(V: BooleanCP, W: BooleanCP) -> bool:
    """Return True if two decompositions have the same modes and bits, in any order."""
    bits = [sorted((atom.mode, atom.z.tobytes()) for atom in each.atoms) for each in (V, W)]
    return bits[0] == bits[1]


def find_undetermined(data: Storage) -> dict[int, np.ndarray]:
    """Return the slices without any observed entry by mode, {mode: (d_n,) bool}, only for modes that have some."""
    if data.is_complete:
        return {}
    empty = {mode: data.n_observed_along(mode) == 0 for mode in range(data.ndim)}
    return {mode: slices for mode, slices in empty.items() if slices.any()}
