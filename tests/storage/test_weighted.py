"""Weights for each entry: answers, residuals and fits against plain sums of w (x - W)^2."""

import naive
import numpy as np
import pytest
from samples import random_decomposition

from boolcp.contractions import khatri_rao
from boolcp.fit.certify import judge_bits
from boolcp.fit.pursuit import atom_system
from boolcp.storage import MaskedTensor, WeightedTensor


@pytest.fixture
def case(rng):
    shape = (4, 5, 6)
    weights = rng.random(shape) * (rng.random(shape) < 0.8)
    X = np.where(weights > 0, rng.standard_normal(shape), 999.0)
    return X, weights


@pytest.mark.parametrize("order", ["C", "F"])
def test_answers_are_those_of_weighted_least_squares(case, order, rng):
    X, weights = case
    data = WeightedTensor(np.array(X, order=order), weights)
    factors = [rng.standard_normal((d, 3)) for d in X.shape]
    assert data.squared_norm == pytest.approx(np.sum(weights * X**2))
    assert data.n_observed == np.count_nonzero(weights)
    zeros = np.where(weights > 0, X, 0.0)
    np.testing.assert_allclose(data.to_array(), weights * zeros)
    trusted = np.minimum(weights / np.median(weights[weights > 0]), 1.0)  # entries of little weight are shrunk
    np.testing.assert_allclose(data.filled().to_array(), zeros * trusted * X.size / data.n_observed)
    for mode in range(3):
        H, P = data.normal_equations(factors, mode)
        product = khatri_rao([A for n, A in enumerate(factors) if n != mode])
        for i, (w, x) in enumerate(zip(naive.unfold(weights, mode), naive.unfold(X, mode), strict=True)):
            np.testing.assert_allclose(H[i], product.T @ (w[:, None] * product), atol=1e-12)
            np.testing.assert_allclose(P[i], product.T @ (w * x), atol=1e-10)


@pytest.mark.parametrize("kind", ["rank one", "rank two", "block"])
def test_residuals_and_systems_are_weighted(case, kind, rng):
    X, weights = case
    data, W = WeightedTensor(X, weights), random_decomposition(X.shape, kind, rng)
    rest, atoms = X - naive.tensor(W), np.array([naive.atom(M) for M in W.atoms])
    residual = data.residual(W)
    assert residual.squared_norm == pytest.approx(np.sum(weights * rest**2))
    np.testing.assert_allclose(residual.unfold(1), naive.unfold(weights * rest, 1), atol=1e-10)  # the gradient
    G, b = atom_system(data, W.atoms)
    np.testing.assert_allclose(G, np.einsum("kabc,abc,labc->kl", atoms, weights, atoms), atol=1e-10)
    np.testing.assert_allclose(b, np.einsum("kabc,abc->k", atoms, weights * X), atol=1e-9)


def test_the_rise_of_a_flipped_bit_is_weighted(case, rng):
    X, weights = case
    W = random_decomposition(X.shape, "rank one", rng, n_atoms=3)
    rises = judge_bits(WeightedTensor(X, weights), W).rise
    for k, atom in enumerate(W.atoms):
        for i in range(len(atom.z)):
            flipped = naive.tensor(W)
            change = np.zeros(X.shape)
            V = W.weights[k] * atom.dense_block()
            np.moveaxis(change, atom.mode, 0)[i] = -V if atom.z[i] else V
            rise = np.sum(weights * (X - flipped - change) ** 2) - np.sum(weights * (X - flipped) ** 2)
            assert rises[k][i] == pytest.approx(rise, abs=1e-8)


def test_weights_of_zero_and_one_are_a_mask(case, rng):
    X, weights = case
    masked, weighted = MaskedTensor(X, weights > 0), WeightedTensor(X, (weights > 0).astype(float))
    factors = [rng.standard_normal((d, 3)) for d in X.shape]
    for mode in range(3):
        for one, other in zip(
            masked.normal_equations(factors, mode), weighted.normal_equations(factors, mode), strict=True
        ):
            np.testing.assert_allclose(one, other, atol=1e-12)
    assert masked.describe()["mask"] == weighted.describe()["mask"]
