"""Algorithm 1: Boolean matching pursuit."""

import time
from functools import partial

import numpy as np

from boolcp.fit.atom_search import greedy_atom_search
from boolcp.fit.state import AtomRecord, Pursuit
from boolcp.fit.steps import Steps
from boolcp.fit.weights import NormalEquations, atom_products, atom_system
from boolcp.result.atoms import BooleanCP

STOP_REASONS = {
    "n_atoms": "the number of atoms asked for was reached",
    "explained": "nothing is left: the atoms so far explain the tensor to the tolerance",
    "no descent": "no atom decreases the loss any more",
    "dependent": "the next atom lies in the span of those found",
    "zero": "the tensor is zero",
    "stopped": "stopped by the callback: this is the best result so far",
}


def boolean_matching_pursuit(
    data,
    n_atoms,
    modes,
    rng,
    *,
    atom_rank=1,
    score="normalized",
    alpha=0.0,
    tol=1e-6,
    certify=True,
    steps=None,
    start=None,
):
    """Run Alg. 1 and return the Pursuit: the estimates W^0, .., W^K, one for each number of atoms.

    `steps` remembers and tells each atom; `start` is a Pursuit with fewer atoms that is continued.
    """
    steps = Steps() if steps is None else steps
    options = {"atom_rank": atom_rank, "score": score, "certify": certify}
    system, path, history = restart(data, start, alpha)
    norm2, error2 = data.squared_norm, error_of(data.squared_norm, system, path[-1].weights)
    stop_reason = "n_atoms" if norm2 > 0 else "zero"
    for k in range(len(history), n_atoms if norm2 > 0 else 0):
        W = path[-1]
        if error2 <= tol**2 * norm2:
            stop_reason = "explained"
            break
        found = steps.do(f"atom {k}", partial(find_atom, data, W, modes, rng, options), rng)
        if found is None or not found[1] ** 2 > tol**2 * norm2 * found[0].n_ones:
            stop_reason = "no descent"
            break
        atom, descent, inner, size, seconds = found
        rhs = descent + W.weights @ inner  # <X, M> = <X - W, M> + <W, M>
        if not system.extend(inner, size, rhs):
            stop_reason = "dependent"
            break
        weights = system.solve(alpha)  # line 7
        path.append(estimate(data, (*W.atoms, atom), system, weights))  # line 8
        error2 = error_of(norm2, system, weights)
        history.append(record(atom, error2, norm2, seconds))
        steps.report("pursuit", k + 1, n_atoms, error2, norm2)
        if steps.is_cut:
            stop_reason = "stopped"
            break
    return Pursuit(tuple(path), tuple(history), stop_reason)


def find_atom(data, W, modes, rng, options):
    """Return the atom of steepest descent M, <X - W, M>, <M_k, M>, |M|^2 and seconds (lines 5-6); None if none is."""
    begin = time.perf_counter()
    found = greedy_atom_search(data.residual(W), modes, rng, **options)
    if found is None:
        return None
    inner, size = atom_products(data, W.atoms, found.atom)
    return found.atom, found.descent, inner, size, time.perf_counter() - begin


def restart(data, start, alpha):
    """Return the normal equations, the path and the history after the atoms of a Pursuit, or before any atom."""
    system, history = NormalEquations(), []
    path = [estimate(data, (), system, np.zeros(0))]
    atoms = () if start is None else start.path[-1].atoms
    G, b = atom_system(data, atoms) if atoms else (np.zeros((0, 0)), np.zeros(0))
    for k in range(len(atoms)):
        if not system.extend(G[k, :k], G[k, k], b[k]):
            break
        path.append(estimate(data, atoms[: k + 1], system, system.solve(alpha)))
        history.append(start.history[k])
    return system, path, history


def error_of(norm2, system, weights):
    """Return |X - W|^2 for weights c: |X|^2 - 2 b'c + c'Gc."""
    return max(norm2 - 2 * weights @ system.rhs + weights @ system.gram @ weights, 0.0)


def estimate(data, atoms, system, weights):
    """Return W = sum_k c_k M_k with what shares of variance need."""
    gram = None if data.is_complete else system.gram
    return BooleanCP(data.shape, atoms, weights, data_norm2=data.squared_norm, data_inner=system.rhs, data_gram=gram)


def record(atom, error2, squared_norm, seconds):
    """Return the AtomRecord of an atom after which |X - W|^2 = error2."""
    relative_error = float(np.sqrt(error2 / squared_norm))
    return AtomRecord(float(error2) / 2, relative_error, atom.mode, atom.n_ones, atom.certificate, seconds)
