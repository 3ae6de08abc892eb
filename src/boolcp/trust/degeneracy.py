"""Atoms beside others: those that mean less than they seem to, and the matching of two decompositions."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from boolcp.result.atoms import Atom, BooleanCP

ALIKE = 0.8  # similarity from which two atoms are duplicates; not tuned
BASELINE = ": a baseline"
CANCELED = "largely canceled by atom "
TOGETHER = "largely canceled by the other atoms together"
COMPLEMENT = 0.95  # share of entries where exactly one of two atoms is on, from which they are complements; not tuned
CANCELING = -0.5  # cosine of two weighted atoms below which they cancel; not tuned
OPPOSED = -0.25  # cosine of a weighted atom and the sum of all others from which they may cancel it together
FAR_LESS = 0.25  # of what is lost without an atom; EEG fits have 0.06 to 0.2 or above 0.35, simulated ones above that


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

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((20, 20, 20), 3, random_state=0).truth
    >>> found = boolcp.degeneracy(truth)
    >>> found.reasons, bool((found.score < 0.2).all())
    (('', '', ''), True)
    """

    score: np.ndarray
    reasons: tuple[str, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """Return the reasons that another fit may avoid: that an atom is a baseline is none of them."""
        parts = [[part for part in reason.split(", ") if not part.endswith(BASELINE)] for reason in self.reasons]
        return tuple(", ".join(part) for part in parts)

    def __str__(self) -> str:
        lines = [f"Atom {k}: {reason}." for k, reason in enumerate(self.reasons) if reason]
        return "\n".join(lines) or "No atom is always on, a duplicate, a complement or canceled."


def degeneracy(W: BooleanCP) -> Degeneracy:
    """Return which atoms of W are always on, on once, duplicate, complements or canceling, as a Degeneracy.

    Examples
    --------
    >>> atom = boolcp.datasets.make_boolean_cp((8, 9, 10), 1, random_state=0).truth.atoms[0]
    >>> print(boolcp.degeneracy(boolcp.BooleanCP((8, 9, 10), (atom, atom), [2.0, -1.0])))
    Atom 0: largely canceled by atom 1.
    Atom 1: largely canceled by atom 0.
    """
    G = W.inner_products()
    sizes = np.sqrt(G.diagonal())
    correlation = G / np.outer(*(np.where(sizes > 0, sizes, 1.0),) * 2)
    reasons: list[list[str]] = [[] for _ in W.atoms]
    for found, atom in zip(reasons, W.atoms, strict=True):
        n, d = atom.n_ones, len(atom.z)
        if atom.is_baseline or (n == 1 and d > 2):
            found.append(f"on in {n} of {d}{BASELINE}" if atom.is_baseline else f"on in only one of {d}")
    is_near = (W.boolean_mode[:, None] == W.boolean_mode) | (np.abs(correlation) > -CANCELING)
    for k, l in np.argwhere(np.triu(is_near, 1)).tolist():
        if text := together(W, k, l, correlation[k, l]):
            reasons[k].append(f"{text}{l}")
            reasons[l].append(f"{text}{k}")
    score = np.zeros(W.n_atoms)
    for k in range(W.n_atoms if W.n_atoms > 1 else 0):
        others = np.arange(W.n_atoms) != k
        b = correlation[others, k]
        score[k] = np.clip(b @ np.linalg.lstsq(correlation[np.ix_(others, others)], b, rcond=None)[0], 0.0, 1.0)
    norms = W.weights * sizes  # with sign
    overlap = correlation * np.outer(norms, norms)  # of weighted atoms
    with_rest = overlap.sum(axis=1) - overlap.diagonal()
    rest = np.sqrt(np.maximum(overlap.sum() - overlap.diagonal() - 2 * with_rest, 0.0))
    alone, unique = (norms**2 + with_rest) ** 2, norms**4 * (1 - score)  # times the squared norm of the atom
    for k in np.flatnonzero((with_rest < OPPOSED * np.abs(norms) * rest) & (alone < FAR_LESS * unique)).tolist():
        reasons[k] += [] if CANCELED in ", ".join(reasons[k]) else [TOGETHER]
    return Degeneracy(score, tuple(", ".join(texts) for texts in reasons))


def together(W: BooleanCP, k: int, l: int, cosine: float) -> str:
    """Return what speaks against two atoms together, up to the number of the other one; empty if nothing does."""
    atom, other = W.atoms[k], W.atoms[l]
    sign = np.sign(W.weights[k] * W.weights[l])
    if cosine * sign < CANCELING:
        return CANCELED
    if (similarity_of(atom, other) if atom.mode == other.mode else abs(cosine)) >= ALIKE:
        return "nearly the same as atom "
    if atom.mode != other.mode:
        return ""
    if np.mean(atom.z ^ other.z) >= COMPLEMENT and real_product(atom, other) * sign >= ALIKE:
        return "a constant split in two with atom "
    return "same bits as atom " if np.array_equal(atom.z, other.z) else ""


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
    first, second = (BooleanCP(one.shape, (one,), np.ones(1)) for one in (atom, other))
    size = first.norm() * second.norm()
    return float(abs(first.inner_products((other,))[0, 0]) / size) if size else 0.0


def real_product(atom: Atom, other: Atom) -> float:
    """Return <V, V'> of the real parts of two atoms with the same Boolean mode."""
    if atom.factors is None or other.factors is None:
        return float(np.vdot(atom.dense_block(), other.dense_block()))
    grams = [A.T @ B for A, B in zip(atom.factors, other.factors, strict=True)]
    return float(np.prod(grams, axis=0).sum())
