"""Matching the atoms of two decompositions: their similarity, and the best pairs."""

from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from boolcp.result.atoms import Atom, BooleanCP


def match(first: BooleanCP, second: BooleanCP) -> list[tuple[int | None, float]]:
    """Return for each atom of the first decomposition its partner in the second (or None) and their similarity.

    No two atoms have the same partner, and the similarities have the largest possible sum.
    """
    table = similarity_table(first, second)
    partners: list[tuple[int | None, float]] = [(None, 0.0)] * first.n_atoms
    for row, column in zip(*linear_sum_assignment(-table), strict=True):
        partners[row] = int(column), float(table[row, column])
    return partners


def similarity_table(first: BooleanCP, second: BooleanCP) -> np.ndarray:
    """Return the similarity of each atom of one decomposition with each of another, (K, K')."""
    table = [[similarity_of(atom, other) for other in second.atoms] for atom in first.atoms]
    return np.array(table).reshape(first.n_atoms, second.n_atoms)


def similarity_of(atom: Atom, other: Atom) -> float:
    """Return Jaccard(z, z') |<V, V'>| for atoms with the same Boolean mode, otherwise |cos| of the two as tensors."""
    if atom.mode == other.mode:
        union = np.sum(atom.z | other.z)
        overlap = np.sum(atom.z & other.z) / union if union else 0.0
        return float(overlap * abs(real_product(atom, other)))
    if not (atom.z.any() and other.z.any()):
        return 0.0
    return abs(cosine(atom, other))


def real_product(atom: Atom, other: Atom) -> float:
    """Return <V, V'> of the real parts of two atoms with the same Boolean mode."""
    if atom.factors is None or other.factors is None:
        return float(np.vdot(atom.dense_block(), other.dense_block()))
    grams = [A.T @ B for A, B in zip(atom.factors, other.factors, strict=True)]
    return float(np.prod(grams, axis=0).sum())


def cosine(atom: Atom, other: Atom) -> float:
    """Return the cosine of two atoms as tensors."""
    first, second = (BooleanCP(shape_of(one), (one,), np.ones(1)) for one in (atom, other))
    return float(first.inner_products((other,))[0, 0] / (first.norm() * second.norm()))


def shape_of(atom: Atom) -> tuple[int, ...]:
    """Return the shape of the tensor that an atom lives in."""
    sizes = list(atom.dense_block().shape) if atom.factors is None else [len(A) for A in atom.factors]
    sizes.insert(atom.mode, len(atom.z))
    return tuple(sizes)


def take_slices(atom: Atom, mode: int, places: np.ndarray) -> Atom:
    """Return the atom on some slices along one mode, its real part scaled to norm one again."""
    if atom.mode == mode:
        return replace(atom, z=atom.z[places])
    at = mode - (mode > atom.mode)
    block = np.take(atom.dense_block(), places, axis=at)
    return Atom(atom.mode, atom.z, block=block / max(float(np.linalg.norm(block)), 1e-300))
