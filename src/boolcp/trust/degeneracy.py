"""Atoms beside others: those that mean less than they seem to, and the matching of two decompositions."""

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.optimize import linear_sum_assignment

from boolcp.result.atoms import Atom, BooleanCP

ALIKE = 0.8  # similarity from which two atoms are duplicates; not tuned
MAY_BE_ALIKE = 0.99 * ALIKE  # no similarity exceeds the cosine of the atoms, up to rounding
CANCELED = "largely canceled by atom "
CANCELING = -0.5  # cosine of two weighted atoms below which they cancel; not tuned


@dataclass(frozen=True, eq=False)
class Degeneracy:
    """For each atom, how far the others can replace it, and why not to interpret it alone; `str` is the text.

    Attributes
    ----------
    score : ndarray of shape (K,)
        Share of the atom's squared norm that lies in the span of the other atoms: 0 if it is orthogonal to all of
        them, 1 if they can replace it.
    reasons : tuple of str
        Why not to interpret the atom alone; empty if nothing speaks against it.
    excess : float
        Sum of the squared norms of the weighted atoms over that of their sum: 1 for orthogonal atoms, large if atoms
        cancel.

    Examples
    --------
    >>> import boolcp
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 3, random_state=0).truth
    >>> found = boolcp.degeneracy(truth)
    >>> found.reasons, bool((found.score < 0.2).all())
    (('', '', ''), True)
    """

    score: np.ndarray
    reasons: tuple[str, ...]
    excess: float

    def __str__(self) -> str:
        lines = [f"Atom {k}: {reason}." for k, reason in enumerate(self.reasons) if reason]
        return "\n".join(lines) or "No atom is always on, a duplicate or canceled."


def degeneracy(W: BooleanCP) -> Degeneracy:
    """Return which atoms are always on, on once, duplicate or canceling, with a score, as a Degeneracy.

    Parameters
    ----------
    W : BooleanCP
        The decomposition.

    Examples
    --------
    >>> import numpy as np, boolcp
    >>> atom = boolcp.datasets.make_boolean_cp((8, 9, 10), 1, random_state=0).truth.atoms[0]
    >>> print(boolcp.degeneracy(boolcp.BooleanCP((8, 9, 10), (atom, atom), [2.0, -1.0])))
    Atom 0: largely canceled by atom 1.
    Atom 1: largely canceled by atom 0.
    """
    G = W.inner_products()
    sizes = np.sqrt(G.diagonal())
    correlation = G / np.where(sizes > 0, sizes, 1.0) / np.where(sizes > 0, sizes, 1.0)[:, None]
    signs = np.sign(W.weights)
    reasons: list[list[str]] = [alone(W, k) for k in range(W.n_atoms)]
    for k, l in combinations(range(W.n_atoms), 2):
        for one, other in ((k, l), (l, k)):
            if correlation[k, l] * signs[k] * signs[l] < CANCELING:
                reasons[one].append(f"{CANCELED}{other}")
            elif abs(correlation[k, l]) >= MAY_BE_ALIKE and similarity_of(W.atoms[k], W.atoms[l]) >= ALIKE:
                reasons[one].append(f"nearly the same as atom {other}")
            elif W.atoms[k].mode == W.atoms[l].mode and np.array_equal(W.atoms[k].z, W.atoms[l].z):
                reasons[one].append(f"same bits as atom {other}")
    squared = float(np.sum((W.weights * sizes) ** 2))
    return Degeneracy(
        replaceable(correlation),
        tuple(", ".join(texts) for texts in reasons),
        squared / W.squared_norm if W.squared_norm else 1.0,
    )


def alone(W: BooleanCP, k: int) -> list[str]:
    """Return what speaks against an atom regardless of the others."""
    atom = W.atoms[k]
    n, d = atom.n_ones, len(atom.z)
    if atom.is_baseline:
        return [f"on in {n} of {d}: a baseline"]
    return [f"on in only one of {d}"] if n == 1 and d > 2 else []


def replaceable(correlation: np.ndarray) -> np.ndarray:
    """Return the share of each unit vector that lies in the span of the others, (K,), from their inner products."""
    shares = np.zeros(len(correlation))
    for k in range(len(correlation)):
        others = np.arange(len(correlation)) != k
        b = correlation[others, k]
        shares[k] = b @ np.linalg.lstsq(correlation[np.ix_(others, others)], b, rcond=None)[0] if others.any() else 0.0
    return np.clip(shares, 0.0, 1.0)


def match(first: BooleanCP, second: BooleanCP) -> list[tuple[int | None, float]]:
    """Return for each atom of the first decomposition its partner in the second (or None) and their similarity.

    No two atoms have the same partner, and the similarities have the largest possible sum.
    """
    rows = [[similarity_of(atom, other) for other in second.atoms] for atom in first.atoms]
    table = np.array(rows).reshape(first.n_atoms, second.n_atoms)
    partners: list[tuple[int | None, float]] = [(None, 0.0)] * first.n_atoms
    for row, column in zip(*linear_sum_assignment(-table), strict=True):
        partners[row] = int(column), float(table[row, column])
    return partners


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
    first, second = (BooleanCP(one.shape, (one,), np.ones(1)) for one in (atom, other))
    return float(first.inner_products((other,))[0, 0] / (first.norm() * second.norm()))


def take_slices(atom: Atom, mode: int, places: np.ndarray) -> Atom:
    """Return the atom on some slices along one mode, its real part scaled to norm one again."""
    if atom.mode == mode:
        return replace(atom, z=atom.z[places])
    at = mode - (mode > atom.mode)
    block = np.take(atom.dense_block(), places, axis=at)
    return Atom(atom.mode, atom.z, block=block / max(float(np.linalg.norm(block)), 1e-300))
