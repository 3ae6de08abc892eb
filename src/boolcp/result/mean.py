"""The mean over the Boolean mode that is fitted beside the atoms, like an intercept."""

from dataclasses import replace
from typing import Any

import numpy as np

from boolcp.result.atom import Atom
from boolcp.result.atoms import BooleanCP


def with_mean(W: BooleanCP, X: Any, data: Any) -> BooleanCP:
    """Return W with the mean of X - W over the Boolean mode, each atom by the bits or their complement with fewer ones.

    z V and (1 - z) (-V) differ by V in every slice, which the mean takes.
    """
    mode, estimate = data.center, W.to_tensor()
    if data.weights is None:
        mean = np.asarray(X, dtype=float).mean(axis=mode, keepdims=True) - estimate.mean(axis=mode, keepdims=True)
    else:
        mean = data.mean_left(estimate)
    atoms = []
    for atom, weight in zip(W.atoms, W.weights, strict=True):
        if 2 * atom.n_ones > len(atom.z):
            mean = mean + weight * np.expand_dims(atom.dense_block(), mode)
            atom = complement(atom)
        atoms.append(atom)
    return replace(W, atoms=tuple(atoms), mean=mean)


def complement(atom: Atom) -> Atom:
    """Return (1 - z) (-V)."""
    if atom.block is not None:
        return replace(atom, z=~atom.z, block=-atom.block)
    assert atom.factors is not None
    return replace(atom, z=~atom.z, factors=(-atom.factors[0], *atom.factors[1:]))
