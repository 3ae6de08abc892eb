"""Back-fitting and shrinkage against their naive twins."""

import naive
import numpy as np
import pytest

from boolcp.fit.backfit import Backfit, BlockRule, Term, assemble
from boolcp.fit.noise import noise_edge
from boolcp.fit.shrinkage import shrink_block
from boolcp.storage import DenseTensor, MaskedTensor


def draw_terms(shape, modes, rng):
    """Return random terms, and a tensor that is nearly their sum."""
    terms = [Term(mode, rng.random(shape[mode]) < 0.5, rng.standard_normal(np.delete(shape, mode))) for mode in modes]
    return terms, assemble(shape, terms).to_tensor() + 0.8 * rng.standard_normal(shape)


def spoil(terms, rng):
    """Return the terms with wrong bits and blocks."""
    wrong = []
    for term in terms:
        z = term.z ^ (rng.random(len(term.z)) < 0.25)
        z[:2] = True
        wrong.append(term._replace(z=z, V=term.V + 0.5 * rng.standard_normal(term.V.shape)))
    return wrong


@pytest.mark.parametrize("share", [1.0, 0.8])
@pytest.mark.parametrize("modes", [(0, 0, 1), (2, 1, 2), (1, 1, 1)])
def test_back_fitting_of_dense_blocks_equals_the_naive_one(modes, share, rng):
    shape = (18, 16, 17)  # long enough for every entry of a block to be determined
    truth, X = draw_terms(shape, modes, rng)
    mask = rng.random(shape) < share if share < 1 else np.ones(shape, dtype=bool)
    X = np.where(mask, X, 0.0)
    data = DenseTensor(X) if share == 1 else MaskedTensor(X, mask)
    fitting = Backfit(data, BlockRule(None), tol=1e-6)
    terms = spoil(truth, rng)
    plain = [(term.mode, term.z, term.V) for term in terms]
    for mode in sorted(set(modes)):
        terms, fall = fitting.backfit_mode(terms, mode)
        plain, expected = naive.backfit_mode(X, mask, plain, mode)
        assert fall == pytest.approx(expected, rel=1e-9)
        for term, (_, z, V) in zip(terms, plain, strict=True):
            np.testing.assert_array_equal(term.z, z)
            np.testing.assert_allclose(term.V, V, atol=1e-9)


def test_back_fitting_of_shrunk_blocks_equals_the_naive_one(rng):
    shape, sigma = (14, 16, 12), 0.3
    truth, X = draw_terms(shape, (0, 0), rng)
    fitting = Backfit(DenseTensor(X), BlockRule("auto", sigma, shape), tol=1e-6)
    Z = np.stack([term.z for term in truth], axis=1).astype(float)
    start = np.stack([term.V for term in truth])
    B = naive.contract(X, 0, Z)
    found = fitting.refit_in_turn(B, Z.T @ Z, truth, start.reshape(2, -1))
    edge = sigma * noise_edge(16, 12)
    expected = naive.refit_in_turn(X, 0, Z.T, start, lambda block: naive.shrink_matrix(block, sigma, edge))
    for term, V in zip(found, expected, strict=True):
        np.testing.assert_allclose(term.V, V, atol=1e-8)
        assert np.linalg.norm(V) < np.linalg.norm(start[0]) * 2


@pytest.mark.parametrize("shape", [(30, 40), (40, 30), (25, 25), (4, 50)])
def test_shrinkage_equals_the_best_multiple_of_a_spike_in_noise(shape, rng):
    sigma = 0.7
    B = 6 * np.outer(rng.standard_normal(shape[0]), rng.standard_normal(shape[1])) + sigma * rng.standard_normal(shape)
    B += 3 * np.outer(rng.standard_normal(shape[0]), rng.standard_normal(shape[1]))
    (first, second), _ = shrink_block(B, sigma, shape)
    expected = naive.shrink_matrix(B, sigma, sigma * noise_edge(max(shape), min(shape)))
    assert np.linalg.matrix_rank(expected, tol=1e-9) == first.shape[1] == 2
    np.testing.assert_allclose(first @ second.T, expected, atol=1e-8)


def test_what_noise_alone_reaches_is_removed(rng):
    """The edge is exceeded by about one matrix of noise in a hundred."""
    n_kept = sum(shrink_block(rng.standard_normal((20, 30)), 1.0, (20, 30)) is not None for _ in range(300))
    assert n_kept <= 12
