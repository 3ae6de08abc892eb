"""Rows, sweeps and compiled loops of the fit against slow answers that are plainly right."""

from itertools import combinations

import naive
import numpy as np
import pytest

from boolcp.fit import _kernels as kernels
from boolcp.fit import sweep as sweeps
from boolcp.fit.atom_search import climb, from_bits, power_iterations
from boolcp.fit.sweep import MAX_JOINT, best_bits, decide_rows, polish, relax, ridges, soft_bits, solve_rows, sweep
from boolcp.result.columns import Columns
from boolcp.storage.dense import Dense
from boolcp.storage.tucker import compress
from boolcp.storage.weighted import Weighted

SHAPES = [(5, 7), (4, 6, 5), (3, 4, 2, 5)]


def forms(rng, d, K, rank=9):
    """Return positive semidefinite forms (d, K, K) and right sides (d, K)."""
    B = rng.standard_normal((d, rank, K))
    return np.einsum("ijk,ijl->ikl", B, B), 3 * rng.standard_normal((d, K))


def relaxed(X, factors, max_iter):
    K = factors[0].shape[1]
    return relax(Dense(X), Columns(tuple(factors), np.arange(K), np.zeros(K)), max_iter=max_iter, tol=0.0)


def cost(S, q, b):
    return b @ S @ b - 2 * q @ b


# rows


@pytest.mark.parametrize("n_bits", [0, 1, 3, 5])
@pytest.mark.parametrize("is_shared", [True, False])
def test_rows_are_the_best_over_all_bits(n_bits, is_shared, rng):
    H, P = forms(rng, 8, 5)
    boolean = np.isin(np.arange(5), rng.permutation(5)[:n_bits])
    found = decide_rows(H[0] if is_shared else H, P, boolean, np.zeros((8, 5)))
    for i in range(8):
        np.testing.assert_allclose(found[i], naive.best_row(H[0 if is_shared else i], P[i], boolean), atol=1e-8)


@pytest.mark.parametrize("n_bits", [1, 3, 6, MAX_JOINT])
def test_a_few_bits_are_the_best_of_all_patterns(n_bits, rng):
    S, Q = forms(rng, 7, n_bits)
    everything = np.ones(n_bits, dtype=bool)
    for each in (S, S[0]):
        found = best_bits(each, Q, np.zeros((7, n_bits)))
        for i, b in enumerate(found):
            best = naive.best_row(S[0] if each.ndim == 2 else S[i], Q[i], everything)
            np.testing.assert_array_equal(b, best)


def test_many_rows_are_decided_in_parts(rng):
    S, Q = forms(rng, 3000, MAX_JOINT)
    found = best_bits(S, Q, np.zeros(Q.shape))
    np.testing.assert_array_equal(found[-50:], best_bits(S[-50:], Q[-50:], np.zeros((50, MAX_JOINT))))
    soft = soft_bits(S, Q, np.zeros(Q.shape), 2.0)
    np.testing.assert_allclose(soft[-50:], soft_bits(S[-50:], Q[-50:], np.zeros((50, MAX_JOINT)), 2.0))


@pytest.mark.parametrize("is_shared", [True, False])
def test_many_bits_cannot_be_improved_by_one_or_two_flips(is_shared, rng):
    K = MAX_JOINT + 2
    S, Q = forms(rng, 6, K, 20)
    found = best_bits(S[0] if is_shared else S, Q, (rng.random((6, K)) < 0.5).astype(float))
    for i, b in enumerate(found):
        assert_no_flip_helps(S[0 if is_shared else i], Q[i], b)


def assert_no_flip_helps(S, q, b):
    for chosen in [*combinations(range(len(b)), 1), *combinations(range(len(b)), 2)]:
        other = b.copy()
        other[list(chosen)] = 1 - other[list(chosen)]
        assert cost(S, q, other) >= cost(S, q, b) - 1e-9


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_descent_ends_where_no_flip_of_one_or_two_bits_helps(is_symmetric, rng):
    S = rng.standard_normal((20, 7, 7))
    S = S @ np.swapaxes(S, 1, 2) if is_symmetric else S
    Q, B = rng.standard_normal((20, 7)), (rng.random((20, 7)) < 0.5).astype(float)
    start = sum(map(cost, S, Q, B))
    assert kernels.descend_bits(S, Q, B) == pytest.approx(start - sum(map(cost, S, Q, B)))
    for form, q, b in zip(S, Q, B, strict=True):
        assert_no_flip_helps(form, q, b)


def test_descent_ends_if_the_form_is_a_rounding_error(rng):
    S = rng.standard_normal((400, 11, 11)) * 10.0 ** rng.integers(-14, 8, (400, 1, 1))
    S -= np.swapaxes(S, 1, 2) * (1 - 1e-15)  # nearly antisymmetric: b'Sb is an error
    B = (rng.random((400, 11)) < 0.5).astype(float)
    kernels.descend_bits(S, np.zeros((400, 11)), B)
    assert np.isin(B, (0, 1)).all()


@pytest.mark.parametrize("n_bits", [1, 4, 7])
def test_soft_bits_are_means_over_all_patterns(n_bits, rng):
    S, Q = forms(rng, 5, n_bits)
    for temperature in (0.1, 3.0):
        for each in (S, S[0]):
            found = soft_bits(each, Q, np.zeros((5, n_bits)), temperature)
            expected = [naive.soft_bits(S[0] if each.ndim == 2 else S[i], Q[i], temperature) for i in range(5)]
            np.testing.assert_allclose(found, expected, atol=1e-10)


def test_soft_bits_that_are_many_are_exact_where_bits_do_not_interact(rng):
    K = MAX_JOINT + 2
    h, Q = rng.random(K) + 0.5, rng.standard_normal((4, K))
    found = soft_bits(np.diag(h), Q, np.full((4, K), 0.5), 1.5)
    alone = [[naive.soft_bits(np.diag([h[k]]), Q[i, [k]], 1.5)[0] for k in range(K)] for i in range(4)]
    np.testing.assert_allclose(found, alone)


def test_rows_solve_their_equations_and_have_the_least_norm_where_these_are_singular(rng):
    H, P = forms(rng, 6, 4)
    np.testing.assert_allclose(solve_rows(H, P), np.linalg.solve(H, P[:, :, None])[:, :, 0], rtol=1e-7)
    np.testing.assert_allclose(solve_rows(H[0], P), np.linalg.solve(H[0], P.T).T, rtol=1e-7)
    H, P = forms(rng, 6, 4, rank=2)
    P = np.einsum("ikl,il->ik", H, P)
    found = solve_rows(H, P)
    np.testing.assert_allclose(np.einsum("ikl,il->ik", H, found), P, atol=1e-8)
    np.testing.assert_allclose(found, naive.solve_each_row(H, P), atol=1e-6)
    np.testing.assert_allclose(solve_rows(H[0], P[:1]) @ H[0], P[:1], atol=1e-8)
    H[2], P[2] = 0, 0  # a slice without any entry
    np.testing.assert_array_equal(solve_rows(H, P)[2], np.zeros(4))
    assert np.isfinite(solve_rows(np.diag([1.0, -1e-18, 0.0]), np.ones((1, 3)))).all()  # rounding


@pytest.mark.parametrize("n_bits", [0, 1, 3, 6])
def test_rows_are_those_of_nnls_with_all_bits_tried(n_bits, rng):
    K, d = 6, 12
    H, P = forms(rng, d, K)
    boolean = np.arange(K) < n_bits
    for nonnegative in (np.ones(K, dtype=bool), np.arange(K) % 2 == 0):
        A = (rng.random((d, K)) < 0.5).astype(float)
        kernels.decide_nonnegative(H, P, boolean, nonnegative, A)
        for i in range(d):
            expected = naive.nonnegative_row(H[i], P[i], boolean, nonnegative)
            if n_bits <= kernels.MAX_PATTERN_BITS:
                np.testing.assert_allclose(A[i], expected, atol=1e-5 if not nonnegative.all() else 1e-9)
            value, best = (a @ H[i] @ a / 2 - P[i] @ a for a in (A[i], expected))
            assert best - 1e-7 <= value <= best + 0.5 * abs(best)  # many bits: flips from the current ones
            assert (A[i][nonnegative] >= 0).all() and set(A[i][boolean]) <= {0.0, 1.0}


def test_nonnegative_rows_that_entries_do_not_determine_stay_finite(rng):
    H, P = forms(rng, 4, 3, rank=1)
    H[0], P[0] = 0, 0
    A = np.ones((4, 3))
    kernels.decide_nonnegative(H, P, np.zeros(3, dtype=bool), np.ones(3, dtype=bool), A)
    assert np.isfinite(A).all() and (A >= 0).all()


def test_the_ridge_of_a_column_is_the_noise_over_its_mean_square(rng):
    A, H = rng.standard_normal((400, 3)), forms(rng, 400, 3)[0]
    found = ridges(H, None, np.array([False, False, True]), A, 1e-6, 416)
    np.testing.assert_allclose(found[:2], 1e-6 / np.mean(A[:, :2] ** 2, axis=0), rtol=0.3)
    assert found[2] == 0  # bits have none


# sweeps


def start_near(shape, ranks, rng, noise=0.1):
    """Return a noisy tensor of atoms of given ranks, and columns near the truth with some bits wrong."""
    owner = np.repeat(np.arange(len(ranks)), ranks)
    modes = np.arange(len(ranks)) % len(shape)
    truth = [rng.standard_normal((d, len(owner))) for d in shape]
    start = [A + 0.1 * rng.standard_normal(A.shape) for A in truth]
    for k, mode in enumerate(modes):
        z = rng.permutation(np.arange(shape[mode]) % 2)
        truth[mode][:, owner == k] = z[:, None]
        start[mode][:, owner == k] = np.where(rng.random(len(z)) < 0.15, 1 - z, z)[:, None]
    X = naive.full(truth) + noise * rng.standard_normal(shape)
    return X, Columns(tuple(start), owner, modes)


@pytest.mark.parametrize("ranks", [(1, 1, 1), (2, 1)])
@pytest.mark.parametrize("kind", ["complete", "weighted"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_sweep_decides_row_after_row(shape, kind, ranks, rng):
    X, W = start_near(shape, ranks, rng)
    weights = np.ones(shape) if kind == "complete" else rng.random(shape) * (rng.random(shape) < 0.9)
    data = Dense(X) if kind == "complete" else Weighted(X, weights)
    found, is_changed = sweep(data, W)
    expected = naive.linked_sweep(X, weights, W.matrices, W.owner, W.boolean_mode, sweeps.sweep_order(data))
    np.testing.assert_allclose(naive.full(found.matrices), naive.full(expected), atol=1e-7)
    assert found.loss == pytest.approx(np.sum(weights * (X - naive.full(expected)) ** 2))
    own = [W.column_mode == n for n in range(len(shape))]
    for A, B, b in zip(found.matrices, expected, own, strict=True):
        np.testing.assert_array_equal(A[:, b], B[:, b])
    is_same = [np.array_equal(A[:, b], C[:, b]) for A, C, b in zip(found.matrices, W.matrices, own, strict=True)]
    assert is_changed == (not all(is_same))


@pytest.mark.parametrize(("shape", "n_atoms", "rank"), [((12, 9), 3, 4), ((9, 14, 11), 5, 7), ((6, 9, 8, 7), 6, 5)])
def test_compiled_sweeps_are_the_plain_ones(shape, n_atoms, rank, rng):
    X, W = start_near(shape, (1,) * n_atoms, rng)
    for data in (Dense(X), compress(Dense(X), rank)):
        for n_sweeps in (1, 3):
            found, here = polish(data, W, max_iter=n_sweeps, tol=0.0), W
            for _ in range(n_sweeps):
                here, _ = sweep(data, here)
            assert found.loss == pytest.approx(here.loss, rel=1e-8)
            np.testing.assert_allclose(naive.full(found.matrices), naive.full(here.matrices), atol=1e-6)
    assert polish(Dense(X), W, max_iter=1).loss == pytest.approx(sweep(Dense(X), W)[0].loss)


def test_a_polish_that_cannot_be_compiled_is_made_all_the_same(rng):
    """An atom without bits has singular equations; of many bits in a row not all patterns are tried."""
    X, W = start_near((9, 14, 11), (1,) * 4, rng)
    data = Dense(X)
    empty = W.with_matrices([np.where(np.arange(4) == 0, 0.0, A) if n == 0 else A for n, A in enumerate(W.matrices)])
    assert polish(data, empty, max_iter=5).loss < data.squared_norm
    many = MAX_JOINT + 1
    W = Columns(tuple(rng.random((d, many)).round() for d in data.shape), np.arange(many), np.zeros(many))
    assert polish(data, W, max_iter=5).loss < data.squared_norm


@pytest.mark.parametrize("kind", ["complete", "weighted", "mean", "weighted mean"])
@pytest.mark.parametrize("ranks", [(1, 1, 1, 1), (2, 2)])
def test_sweeps_never_raise_the_loss_and_tell_the_true_one(kind, ranks, rng):
    X, W = start_near((6, 7, 8), ranks, rng, noise=1.0)
    if "mean" in kind:
        matrices = [rng.random(A.shape).round() if n == 1 else A for n, A in enumerate(W.matrices)]
        W = Columns(tuple(matrices), W.owner, 0 * W.boolean_mode + 1)
    if "mean" in kind and W.is_tied:
        W = W.with_matrices([A[:, [0, 0, 2, 2]] if n == 1 else A for n, A in enumerate(W.matrices)])
    weights = rng.random(X.shape) if "weighted" in kind else np.ones(X.shape)
    center = 1 if "mean" in kind else None
    if "weighted" in kind:
        data = Weighted(X, weights, center=center)
    else:
        data = Dense(X - X.mean(axis=1, keepdims=True) if center else X)
        data.center = center
    losses = []
    for _ in range(8):
        W, _ = sweep(data, W)
        R = X - naive.full(W.matrices)
        if center is not None:
            R = R - np.average(R, axis=1, weights=weights)[:, None]
            assert np.sum(weights * R**2) <= W.loss * (1 + 1e-9)  # the mean follows after the bits
        else:
            assert W.loss == pytest.approx(np.sum(weights * R**2))
        losses.append(W.loss)
    assert (np.diff(losses) <= 1e-9 * losses[0]).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_columns", [2, 3])
def test_relaxed_sweeps_are_those_of_least_squares(shape, n_columns, rng):
    X, factors = rng.standard_normal(shape), [rng.standard_normal((d, n_columns)) for d in shape]
    nowhere, ones = np.full(n_columns, -1), np.ones(shape)
    expected = naive.linked_sweep(X, ones, factors, np.arange(n_columns), nowhere, range(len(shape)))
    found = relaxed(X, factors, 1)
    np.testing.assert_allclose(naive.full(found.matrices), naive.full(expected), atol=1e-7)
    assert found.loss == pytest.approx(np.sum((X - naive.full(expected)) ** 2))
    more = relaxed(X, factors, 40)
    assert more.loss < found.loss and more.loss == pytest.approx(np.sum((X - naive.full(more.matrices)) ** 2))


def test_a_relaxation_keeps_tied_columns_equal(rng):
    X, W = start_near((6, 7, 8), (2, 1, 2), rng)
    for data in (Dense(X), Weighted(X, rng.random(X.shape))):
        found = relax(data, W, max_iter=5)
        assert found.loss < sweep(data, W)[0].loss
        for k, mode in enumerate(W.boolean_mode):
            own = found.matrices[mode][:, W.owner == k]
            np.testing.assert_allclose(own, own[:, :1] * np.ones(own.shape[1]))


def test_relaxed_sweeps_pass_singular_equations(rng):
    X = rng.standard_normal((4, 5, 6))
    factors = [np.repeat(rng.standard_normal((d, 1)), 2, axis=1) for d in X.shape]
    assert np.isnan(kernels.relax_factors(X.reshape(20, 6), 2, np.array(X.shape), np.vstack(factors), 3, 0.0))
    assert relaxed(X, factors, 3).loss < np.sum(X**2)  # the solution of least norm


def test_the_truth_is_a_fixed_point_of_every_sweep(rng):
    for ranks in ((1, 1, 1), (2, 1)):
        X, W = start_near((6, 7, 8), ranks, rng, noise=0.0)
        for data in (Dense(X), Weighted(X, rng.random(X.shape)), compress(Dense(X), 8)):
            there = polish(data, W, max_iter=200)
            again, is_changed = sweep(data, there)
            assert not is_changed and there.loss <= 1e-8 * np.sum(X**2)
            np.testing.assert_allclose(naive.full(again.matrices), X, atol=1e-3)


# many candidates


@pytest.mark.parametrize("shape", [(4,), (4, 5), (3, 4, 5), (3, 2, 4, 3)])
def test_a_power_iteration_replaces_one_column_after_the_other(shape, rng):
    T, factors = rng.standard_normal((3, *shape)), [rng.standard_normal((d, 3)) for d in shape]
    found = power_iterations(T, factors, 2, tol=-1.0)
    for A, B in zip(found, naive.power_iterations(T, factors, 2), strict=True):
        np.testing.assert_allclose(A, B)
    largest = power_iterations(T, None, 0)  # without columns they start from the largest fiber
    for k, block in enumerate(T):
        for axis, column in enumerate(largest[:-1]):
            sizes = np.linalg.norm(block.reshape(len(block), -1), axis=1)
            np.testing.assert_array_equal(column[:, k], np.eye(len(sizes))[np.argmax(sizes)], err_msg=str(axis))
            block = block[np.argmax(sizes)]
        np.testing.assert_allclose(largest[-1][:, k], block / np.linalg.norm(block))


def test_power_iterations_end_where_nothing_grows(rng):
    T, factors = rng.standard_normal((2, 4, 5, 3)), [rng.standard_normal((d, 2)) for d in (4, 5, 3)]
    for A, B in zip(*(power_iterations(T, factors, n) for n in (200, 400)), strict=True):
        np.testing.assert_array_equal(A, B)


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_candidates_tell_their_gain_and_never_fall(shape, rng):
    R = rng.standard_normal(shape)
    for mode in range(len(shape)):
        Z = (rng.random((shape[mode], 6)) < 0.5).astype(float)
        Z[0] = 1.0
        found = from_bits(Dense(R), mode, Z)
        further = climb(Dense(R), found, (6, 6))
        assert sorted(further.gains)[-1] >= sorted(found.gains)[-1] * (1 - 1e-9)
        for each in (found, further):
            for j, gain in enumerate(each.gains):
                atom, weight = each.atom(j)
                M = naive.atom(atom)
                assert np.sum(R * M) ** 2 / np.sum(M**2) >= gain * (1 - 1e-9)
                assert weight == pytest.approx(np.sqrt(gain / atom.n_ones))
        alike = found.take([0, 0, 1]).best(3)
        assert len(alike.gains) <= 2  # equal bits count once
