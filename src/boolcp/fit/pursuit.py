"""Algorithm 1: Boolean matching pursuit."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from boolcp.fit.atom_search import Candidate, greedy_atom_search
from boolcp.fit.polish import polish
from boolcp.fit.relax import last
from boolcp.fit.state import Pursuit, record
from boolcp.fit.weights import NormalEquations, atom_products, atom_system
from boolcp.result.atoms import Atom, BooleanCP, inner_with_atoms
from boolcp.result.columns import to_columns
from boolcp.storage.protocol import Storage

N_SWEEPS = 20  # of a polish after each atom; not tuned

Find = Callable[[BooleanCP], Candidate | None]
Found = TypeVar("Found")


def pursue(
    pursuit: Pursuit, n_atoms: int, find: Callable[[Pursuit], Found], correct: Callable[[Pursuit, Found], Pursuit]
) -> Iterator[Pursuit]:
    """Run Alg. 1: yield the pursuit with one atom more each time, until there are `n_atoms` or it stops.

    `find` is Alg. 2. `correct` is line 7: the weights alone as printed, all factors, or the blocks and their bits.
    """
    while pursuit.n_atoms < n_atoms and not pursuit.stop_reason:
        begin = time.perf_counter()
        found = find(pursuit)  # lines 5-6
        longer = correct(pursuit, found)  # lines 7-8
        if len(longer.history) > len(pursuit.history):
            longer = timed(longer, time.perf_counter() - begin)
        pursuit = longer
        yield pursuit


def timed(pursuit: Pursuit, seconds: float) -> Pursuit:
    """Return the pursuit with the seconds that its last atom took."""
    *before, newest = pursuit.history
    return replace(pursuit, history=(*before, replace(newest, seconds=seconds)))


def boolean_matching_pursuit(
    data: Storage,
    n_atoms: int,
    modes: tuple[int, ...],
    rng: np.random.Generator,
    *,
    start: Pursuit | None = None,
    tol: float = 1e-6,
    polishes: bool = False,
    **options: Any,
) -> Iterator[Pursuit]:
    """Run Alg. 1; after each atom the weights are corrected, as printed, or all factors if it `polishes`.

    The `options` are those of `greedy_atom_search`.
    """

    def find(pursuit: Pursuit) -> Candidate | None:
        return greedy_atom_search(data.inner_residual(pursuit.W), modes, rng, **options)

    first = start if polishes and start is not None else restart(data, start, tol)
    correct = adjust_factors if polishes else adjust_weights
    return chain([first], pursue(first, n_atoms, find, partial(correct, data, tol=tol)))


def adjust_factors(data: Storage, pursuit: Pursuit, found: Candidate | None, *, tol: float) -> Pursuit:
    """Return the pursuit with the atom that was found and all factors polished (line 7), or why it stops."""
    longer, norm2 = append(pursuit, found), data.squared_norm
    if longer.stop_reason:
        return longer
    columns = polish(data, to_columns(longer.W), max_iter=N_SWEEPS)
    W = columns.to_decomposition()
    is_lower = columns.loss < data.residual(pursuit.W).squared_norm - tol**2 * norm2
    if W.n_atoms <= pursuit.n_atoms or not is_lower:
        return replace(pursuit, stop_reason="no descent")
    G, b = atom_system(data, W.atoms)
    W = replace(W, data_norm2=norm2, data_inner=b, data_gram=None if data.is_complete else G)
    history = (*pursuit.history, record(W.atoms[-1], columns.loss, norm2))
    return Pursuit((*pursuit.path, W), history, "explained" if columns.loss <= tol**2 * norm2 else "")


def restart(data: Storage, start: Pursuit | None, tol: float) -> Pursuit:
    """Return a pursuit as it stands after the atoms of `start`, or before any atom."""
    if start is not None and start.memory is not None:
        return start
    pursuit = Pursuit((estimate(data, (), NormalEquations(), np.zeros(0)),), memory=NormalEquations())
    if not data.squared_norm > 0:
        return replace(pursuit, stop_reason="zero")
    atoms = () if start is None else start.W.atoms
    G, b = atom_system(data, atoms) if atoms else (np.zeros((0, 0)), np.zeros(0))
    for k in range(len(atoms)):
        system = pursuit.memory.extend(G[k, :k], G[k, k], b[k])
        if system is None:
            break
        pursuit = extend(data, pursuit, atoms[k], system, tol)
    return replace(pursuit, history=() if start is None else start.history[: pursuit.n_atoms])


def adjust_weights(data: Storage, pursuit: Pursuit, found: Candidate | None, *, tol: float) -> Pursuit:
    """Return the pursuit with the atom that was found and all weights solved for again (line 7), or why it stops."""
    W, norm2 = pursuit.W, data.squared_norm
    if found is None or not found.descent**2 > tol**2 * norm2 * found.atom.n_ones:
        return replace(pursuit, stop_reason="no descent")
    inner, size = atom_products(data, W.atoms, found.atom)
    system = pursuit.memory.extend(inner, size, float(inner_with_atoms(data, (found.atom,))[0]))
    if system is None:
        return replace(pursuit, stop_reason="dependent")
    return extend(data, pursuit, found.atom, system, tol)


def extend(data: Storage, pursuit: Pursuit, atom: Atom, system: NormalEquations, tol: float) -> Pursuit:
    """Return the pursuit with one atom more, its weights those of the normal equations."""
    norm2, weights = data.squared_norm, system.solve()
    error2 = system.error(norm2, weights)
    W = estimate(data, (*pursuit.W.atoms, atom), system, weights)  # line 8
    history = (*pursuit.history, record(atom, error2, norm2))
    return Pursuit((*pursuit.path, W), history, "explained" if error2 <= tol**2 * norm2 else "", system)


def estimate(data: Storage, atoms: tuple[Atom, ...], system: NormalEquations, weights: np.ndarray) -> BooleanCP:
    """Return W = sum_k c_k M_k with what shares of variance need."""
    gram = None if data.is_complete else system.gram
    return BooleanCP(data.shape, atoms, weights, data_norm2=data.squared_norm, data_inner=system.rhs, data_gram=gram)


def add_greedy(W: BooleanCP, n_atoms: int, find: Find) -> BooleanCP | None:
    """Return W with `n_atoms` more atoms of steepest descent, each with the weight that is best for it alone.

    None if nothing descends.
    """
    first = Pursuit((W,))
    found = last(pursue(first, W.n_atoms + n_atoms, lambda pursuit: find(pursuit.W), append), first)
    return None if found.stop_reason else found.W


def append(pursuit: Pursuit, found: Candidate | None) -> Pursuit:
    """Return the pursuit with the atom that was found, the other weights as they are."""
    if found is None:
        return replace(pursuit, stop_reason="no descent")
    W = pursuit.W
    weights = np.append(W.weights, found.descent / found.atom.n_ones)
    return Pursuit((BooleanCP(W.shape, (*W.atoms, found.atom), weights),))
