from itertools import combinations

import naive
import numpy as np
import pytest

from boolcp import decompose
from boolcp.contractions import middle
from boolcp.datasets import make_boolean_cp
from boolcp.fit._kernels import descend_bits, relax_factors
from boolcp.fit.candidates import power_iterations
from boolcp.fit.polish import MAX_JOINT, polish, polish_core, polish_sweeps
from boolcp.fit.relax import begin, last, relax_core, relax_sweeps
from boolcp.result.columns import Columns, to_columns
from boolcp.storage import DenseTensor, complete_tensor


def cost(S, q, b):
    return b @ S @ b - 2 * q @ b


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_descent_ends_where_no_flip_of_one_or_two_bits_helps(is_symmetric, rng):
    S = rng.standard_normal((20, 7, 7))
    S = S @ np.swapaxes(S, 1, 2) if is_symmetric else S
    Q, B = rng.standard_normal((20, 7)), (rng.random((20, 7)) < 0.5).astype(float)
    start = sum(map(cost, S, Q, B))
    fall = descend_bits(S, Q, B)
    assert fall == pytest.approx(start - sum(map(cost, S, Q, B)))
    for form, q, b in zip(S, Q, B, strict=True):
        for chosen in [*combinations(range(7), 1), *combinations(range(7), 2)]:
            other = b.copy()
            other[list(chosen)] = 1 - other[list(chosen)]
            assert cost(form, q, other) >= cost(form, q, b) - 1e-9


def test_descent_ends_if_the_form_is_a_rounding_error(rng):
    """Where flips gain nothing but errors, they are no reason to go on."""
    scale = 10.0 ** rng.integers(-14, 8, (400, 1, 1))
    S = rng.standard_normal((400, 11, 11)) * scale
    S -= np.swapaxes(S, 1, 2) * (1 - 1e-15)  # nearly antisymmetric: b'Sb is an error
    B = (rng.random((400, 11)) < 0.5).astype(float)
    descend_bits(S, np.zeros((400, 11)), B)
    assert np.isin(B, (0, 1)).all()


@pytest.mark.slow
def test_more_atoms_than_a_constant_tensor_can_hold():
    """The quadratic form of the bits is a rounding error here, and not symmetric."""
    X = np.ones((3, 3, 3, 3))
    mask = np.random.default_rng(0).random(X.shape) > 0.3
    W = decompose(X, 40, mask=mask, compression=False, random_state=541)
    np.testing.assert_allclose(W.to_tensor()[mask], 1, atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 6), (5, 6, 3, 4, 3)])
@pytest.mark.parametrize("n_columns", [2, 5])
def test_compiled_sweeps_are_those_of_least_squares(shape, n_columns, rng):
    data = DenseTensor(rng.standard_normal(shape))
    factors = tuple(rng.standard_normal((d, n_columns)) for d in data.shape)
    W = Columns(factors, np.arange(n_columns), np.zeros(n_columns))
    for n_sweeps in (1, 4):
        found = relax_core(data, W, max_iter=n_sweeps, tol=0.0)
        expected = last(relax_sweeps(data, begin(W), max_iter=n_sweeps, tol=0.0), begin(W)).result
        assert found.loss == pytest.approx(expected.loss, rel=1e-10)
        for A, B in zip(found.matrices, expected.matrices, strict=True):
            np.testing.assert_allclose(A, B, atol=1e-8)


def test_compiled_sweeps_end_at_singular_equations(rng):
    X, twice = rng.standard_normal((20, 6)), np.repeat(rng.standard_normal((4, 1)), 2, axis=1)
    factors = (
        twice,
        np.repeat(rng.standard_normal((5, 1)), 2, axis=1),
        np.repeat(rng.standard_normal((6, 1)), 2, axis=1),
    )
    W = Columns(factors, np.arange(2), np.zeros(2))
    assert np.isnan(relax_factors(X, 2, np.array([4, 5, 6]), np.vstack(factors), 3, 0.0))
    data = DenseTensor(X.reshape(4, 5, 6))
    assert relax_core(data, W, max_iter=3, tol=0.0).loss < data.squared_norm  # the solution of least norm


@pytest.mark.parametrize("shape", [(4,), (4, 5), (3, 4, 5), (3, 2, 4, 3)])
def test_a_power_iteration_replaces_one_column_after_the_other(shape, rng):
    T, factors = rng.standard_normal((3, *shape)), [rng.standard_normal((d, 3)) for d in shape]
    found = power_iterations(T, factors, 2, tol=-1.0)
    for found_columns, each in zip(found, naive.power_iterations(T, factors, 2), strict=True):
        np.testing.assert_allclose(found_columns, each)


def test_power_iterations_end_where_nothing_grows(rng):
    T, factors = rng.standard_normal((2, 4, 5, 3)), [rng.standard_normal((d, 2)) for d in (4, 5, 3)]
    many, more = (power_iterations(T, factors, n) for n in (200, 400))
    for A, B in zip(many, more, strict=True):
        np.testing.assert_array_equal(A, B)


@pytest.mark.parametrize(("shape", "half"), [((4,), 1), ((4, 5), 1), ((5, 5, 5), 2), ((2, 12, 20, 20), 2)])
def test_halves_of_a_tensor_have_few_entries(shape, half):
    assert middle(shape) == half


def near_truth(shape, n_atoms, rng):
    """Return a tensor of atoms in noise, and columns near the truth."""
    X, _, truth = make_boolean_cp(shape, n_atoms, noise=0.1, random_state=rng)
    W, start = to_columns(truth), []
    for n, A in enumerate(W.matrices):
        is_bit, is_flipped = W.boolean_mode == n, rng.random(A.shape) < 0.1
        moved = A + 0.1 * rng.standard_normal(A.shape)
        start.append(np.where(is_bit, np.where(is_flipped, 1 - A, A), moved))
    return DenseTensor(X), W.with_matrices(start)


@pytest.mark.parametrize(("shape", "n_atoms", "rank"), [((12, 9), 3, 4), ((9, 14, 11), 5, 7), ((6, 9, 12, 7, 8), 6, 5)])
def test_compiled_polish_is_that_of_columns(shape, n_atoms, rank, rng):
    full, W = near_truth(shape, n_atoms, rng)
    for data in (full, complete_tensor(full, rank, True)):
        assert data.is_compressed == (data is not full)
        for n_sweeps, loss in ((1, np.inf), (3, np.inf), (50, np.inf), (50, W.loss)):
            found = polish_core(data, W, n_sweeps, 1e-9, loss)
            expected = last(polish_sweeps(data, begin(W), max_iter=n_sweeps, tol=1e-9), begin(W)).result
            assert found.loss == pytest.approx(expected.loss, rel=1e-9)
            for A, B in zip(found.matrices, expected.matrices, strict=True):
                np.testing.assert_allclose(A, B, atol=1e-7)
        first = polish_core(data, W, 1, 1e-9, np.inf)
        assert found.loss < first.loss  # more than one sweep was needed
        assert polish_core(data, W, 50, 10.0, 2 * first.loss).loss < first.loss  # as bits had changed


def test_a_polish_that_cannot_be_compiled_is_made_all_the_same(rng):
    """An atom without bits has singular equations; of many bits in a row not all patterns are tried."""
    data, W = near_truth((9, 14, 11), 4, rng)
    mode = W.boolean_mode[0]
    empty = W.with_matrices([np.where(np.arange(4) == 0, 0.0, A) if n == mode else A for n, A in enumerate(W.matrices)])
    assert polish_core(data, empty, 5, 1e-9, np.inf) is None
    assert np.isfinite(polish(data, empty, max_iter=5).loss)
    many = MAX_JOINT + 1
    W = Columns(tuple(rng.random((d, many)).round() for d in data.shape), np.arange(many), np.zeros(many))
    assert polish_core(data, W, 5, 1e-9, np.inf) is None
    assert polish(data, W, max_iter=5).loss < data.squared_norm
