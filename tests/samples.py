"""Random tensors, atoms and decompositions to test on."""

import numpy as np

from boolcp.atoms import Atom, BooleanCP

KINDS = ("rank one", "rank two", "block", "mixed")


def random_atom(shape, mode, kind, rng):
    """Return an atom with a real part of norm one: 'rank one', 'rank two' or 'block'."""
    z = rng.random(shape[mode]) < 0.6
    z[rng.integers(len(z))] = True
    others = [d for n, d in enumerate(shape) if n != mode]
    if kind == "block":
        V = rng.standard_normal(others)
        return Atom(mode, z, block=V / np.linalg.norm(V))
    factors = [rng.standard_normal((d, 1 if kind == "rank one" else 2)) for d in others]
    V = Atom(mode, z, tuple(factors)).dense_block()
    return Atom(mode, z, (factors[0] / np.linalg.norm(V), *factors[1:]))


def random_decomposition(shape, kind, rng, n_atoms=None):
    """Return a decomposition with atoms along every mode; kind 'mixed' has all three kinds of atoms."""
    n_atoms = 2 * len(shape) + 1 if n_atoms is None else n_atoms
    kinds = KINDS[:3] if kind == "mixed" else (kind,)
    atoms = [random_atom(shape, k % len(shape), kinds[(k // 2) % len(kinds)], rng) for k in range(n_atoms)]
    return BooleanCP(shape, tuple(atoms), rng.standard_normal(n_atoms))
