import naive
import numpy as np
import pytest
from samples import KINDS, random_decomposition

from boolcp.fit.pursuit import NormalEquations, atom_products, atom_system
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.storage import DenseTensor, ListedTensor, MaskedTensor


def grow(X, atoms):
    """Return the normal equations of X over dense atoms, extended one by one."""
    system = NormalEquations()
    for k, M in enumerate(atoms):
        inner = np.array([np.sum(N * M) for N in atoms[:k]])
        system = system.extend(inner, np.sum(M**2), np.sum(X * M))
        assert system is not None
    return system


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_dense_least_squares(kind, rng):
    W = random_decomposition((4, 5, 6), kind, rng)
    X = rng.standard_normal(W.shape)
    atoms = [naive.atom(M) for M in W.atoms]
    c = grow(X, atoms).solve()
    np.testing.assert_allclose(c, naive.least_squares(X, W.atoms), rtol=1e-8)
    residual = X - sum(weight * M for weight, M in zip(c, atoms, strict=True))
    assert max(abs(np.sum(residual * M)) for M in atoms) < 1e-10 * np.linalg.norm(X)


@pytest.mark.parametrize("kind", KINDS)
def test_the_system_of_the_atoms_holds_dense_inner_products(kind, rng):
    W = random_decomposition((4, 5, 6), kind, rng)
    X = rng.standard_normal(W.shape)
    dense = np.array([naive.atom(M).ravel() for M in W.atoms])
    G, b = atom_system(DenseTensor(X), W.atoms)
    np.testing.assert_allclose(G, dense @ dense.T, atol=1e-12)
    np.testing.assert_allclose(b, dense @ X.ravel(), atol=1e-12)
    inner, size = atom_products(DenseTensor(X), W.atoms[:-1], W.atoms[-1])
    np.testing.assert_allclose([*inner, size], dense @ dense[-1], atol=1e-12)


def test_the_equations_grow_by_a_row(rng):
    atoms = list(rng.standard_normal((5, 30)))
    X = rng.standard_normal(30)
    for k in range(1, 6):
        system = grow(X, atoms[:k])
        np.testing.assert_allclose(system.gram, np.array(atoms[:k]) @ np.array(atoms[:k]).T)
        np.testing.assert_allclose(system.rhs, np.array(atoms[:k]) @ X)


def test_a_dependent_atom_is_refused_and_changes_nothing(rng):
    atoms = list(rng.standard_normal((3, 30)))
    X = rng.standard_normal(30)
    system = grow(X, atoms)
    before = system.solve()
    for M in (2 * atoms[1], atoms[0] - 3 * atoms[2], atoms[0] + 1e-6 * rng.standard_normal(30)):
        assert system.extend(np.array(atoms) @ M, M @ M, X @ M) is None
    assert len(system.rhs) == 3
    np.testing.assert_array_equal(system.solve(), before)
    nearly = atoms[0] + 1e-3 * rng.standard_normal(30)
    assert system.extend(np.array(atoms) @ nearly, nearly @ nearly, X @ nearly)


def test_dependence_does_not_ask_for_the_scale(rng):
    atoms = 1e-9 * rng.standard_normal((3, 30))
    assert len(grow(rng.standard_normal(30), list(atoms)).rhs) == 3


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_the_system_over_observed_entries_is_that_of_the_arrays(rank, rng):
    shape = (6, 7, 8)
    observed = rng.random(shape) < 0.6
    X = np.where(observed, rng.standard_normal(shape), 0.0)
    atoms = []
    for mode in (0, 2, 2):
        others = [d for n, d in enumerate(shape) if n != mode]
        atoms.append(Atom(mode, rng.random(shape[mode]) < 0.5, [rng.standard_normal((d, rank)) for d in others]))
    M = np.stack([BooleanCP(shape, (atom,), [1.0]).to_tensor() * observed for atom in atoms]).reshape(3, -1)
    for storage in (MaskedTensor(X, observed), ListedTensor(np.argwhere(observed), X[observed], shape)):
        G, b = atom_system(storage, tuple(atoms))
        np.testing.assert_allclose(G, M @ M.T, atol=1e-10)
        np.testing.assert_allclose(b, M @ X.ravel(), atol=1e-10)
