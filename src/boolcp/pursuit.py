"""Algorithm 1: Boolean matching pursuit."""

import time
from dataclasses import dataclass

import numpy as np

from boolcp.atom_search import greedy_atom_search
from boolcp.atoms import BooleanCP
from boolcp.weights import NormalEquations, atom_products

STOP_REASONS = {
    "n_atoms": "the number of atoms asked for was reached",
    "explained": "nothing is left: the atoms so far explain the tensor to the tolerance",
    "no descent": "no atom decreases the loss any more",
    "dependent": "the next atom lies in the span of those found",
    "zero": "the tensor is zero",
}


@dataclass(frozen=True)
class AtomRecord:
    """What is known of one step of the pursuit: loss |X - W|^2 / 2 and |X - W| / |X| after it, and the atom it took."""

    loss: float
    relative_error: float
    mode: int
    n_ones: int
    certificate: float
    seconds: float


@dataclass(frozen=True)
class Pursuit:
    """The estimates W^0 .. W^K of Algorithm 1, one record for each atom, and why it stopped."""

    path: tuple[BooleanCP, ...]
    history: tuple[AtomRecord, ...]
    stop_reason: str


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
    progress=iter,
):
    """Run Alg. 1 and return the Pursuit: the estimates W^0, .., W^K, one for each number of atoms."""
    system, history = NormalEquations(), []
    path = [estimate(data, (), system, np.zeros(0))]
    norm2 = error2 = data.squared_norm
    stop_reason = "n_atoms" if norm2 > 0 else "zero"
    for _ in progress(range(n_atoms if norm2 > 0 else 0)):
        start = time.perf_counter()
        W = path[-1]
        if error2 <= tol**2 * norm2:
            stop_reason = "explained"
            break
        residual = data.residual(W)
        found = greedy_atom_search(residual, modes, rng, atom_rank=atom_rank, score=score, certify=certify)  # lines 5-6
        if found is None or not found.descent**2 > tol**2 * norm2 * found.atom.n_ones:
            stop_reason = "no descent"
            break
        inner, size = atom_products(data, W.atoms, found.atom)
        rhs = found.descent + W.weights @ inner  # <X, M> = <X - W, M> + <W, M>
        if not system.extend(inner, size, rhs):
            stop_reason = "dependent"
            break
        weights = system.solve(alpha)  # line 7
        path.append(estimate(data, (*W.atoms, found.atom), system, weights))  # line 8
        error2 = max(norm2 - 2 * weights @ system.rhs + weights @ system.gram @ weights, 0.0)
        history.append(record(found.atom, error2, norm2, time.perf_counter() - start))
    return Pursuit(tuple(path), tuple(history), stop_reason)


def estimate(data, atoms, system, weights):
    """Return W = sum_k c_k M_k with what shares of variance need."""
    gram = None if data.is_complete else system.gram
    return BooleanCP(data.shape, atoms, weights, data_norm2=data.squared_norm, data_inner=system.rhs, data_gram=gram)


def record(atom, error2, squared_norm, seconds):
    """Return the AtomRecord of an atom after which |X - W|^2 = error2."""
    relative_error = float(np.sqrt(error2 / squared_norm))
    return AtomRecord(float(error2) / 2, relative_error, atom.mode, atom.n_ones, atom.certificate, seconds)
