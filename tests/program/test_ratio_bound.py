"""Bounds on the ratio z'Cz / |z|^2 are proved: never below the best of all vectors, and close to it."""

import naive
import numpy as np
import pytest
from test_maxcut import EFFORTS, centered, gram, hard_matrices

from boolcp import maximize_boolean_rayleigh
from boolcp.program import _kernels
from boolcp.program.bounds import Multipliers, prove, prove_ratio
from boolcp.program.maxcut import maximize


def ratio(C, z):
    return z @ C @ z / z.sum()


def random_multipliers(d, rng, n_cuts=5):
    """Return any multipliers: the bound has to hold whatever they are."""
    W = rng.standard_normal((d, d)) * (1 - np.eye(d))
    cuts = np.array([rng.choice(d, 3, replace=False) for _ in range(n_cuts)])
    return Multipliers(W, cuts, rng.random(n_cuts))


@pytest.mark.parametrize(("seed", "n_matrices"), [(0, 150), pytest.param(1, 1000, marks=pytest.mark.slow)])
def test_bounds_are_never_below_the_best_of_all_vectors(seed, n_matrices):
    """Bounds of all efforts at good and bad z are at least the best of all vectors; most are close."""
    rng = np.random.default_rng(seed)
    n_checked = n_close = 0
    while n_checked < n_matrices:
        d = int(rng.integers(2, 15))
        for C in hard_matrices(d, rng):
            best = maximize_boolean_rayleigh(C)
            if best.value == 0:
                continue
            z = best.z if n_checked % 3 else np.arange(d) == C.diagonal().argmax()
            effort = EFFORTS[n_checked % 3 if d > 8 else n_checked % 2]
            bound = prove_ratio(C, z, effort=effort).bound
            assert bound >= best.value * (1 - 1e-14)
            n_checked += 1
            n_close += bound <= 1.01 * best.value
    assert n_close > 0.6 * n_checked


def test_multipliers_add_what_no_boolean_vector_feels_as_negative(rng):
    for d in (3, 6):
        C, m = gram(rng.standard_normal((d, 4))), random_multipliers(d, rng)
        M = m.added_to(C)
        N, P = np.maximum(m.W, 0), np.maximum(-m.W, 0)
        expected = C + (N + N.T - P - P.T) / 2 + np.diag(P.sum(axis=1))
        expected += sum(t * naive.triangle(d, *cut) for cut, t in zip(m.cuts, m.T, strict=True))
        np.testing.assert_allclose(M, expected)
        for bits in range(1, 2**d):
            z = (bits >> np.arange(d) & 1).astype(bool)
            assert ratio(M, z) >= ratio(C, z) - 1e-12


def test_any_multipliers_prove_a_bound_or_none(rng):
    """Multipliers of a large size make large rounding errors, and these are no excuse."""
    for exponent in range(-20, 40):
        C = gram(rng.standard_normal((8, 3)))
        best = naive.best_boolean(C, True)[0]
        m, factor = random_multipliers(8, rng), 2.0**exponent / best
        proof = prove(C, best, Multipliers(factor * m.W, m.cuts, factor * m.T))
        assert proof is None or proof.bound >= best
        assert exponent > 8 or proof is not None
        assert exponent < 20 or proof is None
    C = np.full((3, 3), 2.0**30)  # in exact arithmetic the eigenvalue is 3 * 2^30
    assert 3 * 2.0**30 <= prove(C, 2.0**30, Multipliers(np.zeros((3, 3)))).bound <= 3 * 2.0**30 * (1 + 1e-8)


def test_the_gap_of_a_planted_atom_is_closed_at_once(rng):
    z = rng.random(40) < 0.5
    C = gram(np.outer(z, 3 * rng.standard_normal(200)) + rng.standard_normal((40, 200)))
    proof = prove_ratio(C, z, effort="quick")
    assert ratio(C, z) <= proof.bound <= ratio(C, z) * (1 + 2e-6)
    assert np.linalg.eigvalsh(C)[-1] > 1.0005 * proof.bound
    assert prove_ratio(-C, z) is None


def test_bounds_are_not_above_the_relaxation(rng):
    """Without triangles it is lambda_max over X >= 0, X_ij <= X_ii, trace one; triangles lower it."""
    cvxpy = pytest.importorskip("cvxpy")
    C = centered(24, rng)
    z = maximize(C, rng, certify=False).z
    X = cvxpy.Variable(C.shape, PSD=True)
    corner = cvxpy.reshape(cvxpy.diag(X), (24, 1), order="C") @ np.ones((1, 24))
    constraints = [cvxpy.trace(X) == 1, X >= 0, corner >= X]
    relaxed = cvxpy.Problem(cvxpy.Maximize(cvxpy.trace(C @ X)), constraints).solve(solver="SCS", eps=1e-6)
    assert ratio(C, z) <= prove_ratio(C, z, effort="thorough").bound <= relaxed * (1 + 1e-3)


def test_bounds_of_residuals_are_close(rng):
    """The largest eigenvalue says 50 to 60 % here."""
    for noise in (0.3, 3.0):
        R = noise * rng.standard_normal((60, 400)) + rng.standard_normal((60, 5)) @ rng.standard_normal((5, 400))
        R -= R.mean(axis=0)
        ratios = [maximize_boolean_rayleigh(gram(R), random_state=0, effort=effort).ratio for effort in EFFORTS]
        assert ratios[0] < 0.95 and ratios[1] >= 0.995 and ratios[2] >= 0.999


def test_multipliers_of_a_similar_matrix_are_a_start_and_bounds_follow_the_scale(rng):
    R = rng.standard_normal((50, 30))
    C = gram(R - R.mean(axis=0))
    z = maximize(C, rng, certify=False).z
    proof, cold = prove_ratio(C, z), prove_ratio(C, z, effort="quick")
    warm = prove_ratio(1.01 * C, z, effort="quick", start=proof.multipliers)
    assert proof.bound <= 0.9 * cold.bound and 1.01 * ratio(C, z) <= warm.bound <= 1.03 * proof.bound
    for factor in (2.0**-30, 2.0**40):
        assert prove_ratio(factor * C, z).bound == pytest.approx(factor * proof.bound, rel=1e-12)


def test_the_splitting_projects_each_row(rng):
    for d in (1, 2, 9):
        X, Y, U = rng.standard_normal((3, d, d))
        A = 1.8 * X - 0.8 * Y + U
        expected = np.array([naive.project_row(a, i) for i, a in enumerate(A)])
        _kernels.split_rows(X, Y, U, 1.8)
        np.testing.assert_allclose(Y, expected, atol=1e-12)
        np.testing.assert_allclose(U, A - expected, atol=1e-12)


def test_the_worst_triangles_are_found(rng):
    Z = (rng.random((12, 9)) < 0.5).astype(float)
    X = gram(Z) / 9 + 0.01 * gram(rng.random((12, 12)))
    np.fill_diagonal(X, 0.0)
    np.fill_diagonal(X, X.max(axis=0))  # 0 <= X_ij <= X_ii
    found = {(i, max(j, k), min(j, k)) for i, j, k in _kernels.worst_triangles(X, 3, 0.01)}
    for i in range(12):
        pairs = [(j, k) for j in range(12) for k in range(j) if i not in (j, k)]
        excess = {(i, j, k): X[i, j] + X[i, k] - X[j, k] - X[i, i] for j, k in pairs}
        worst = sorted(excess, key=excess.get, reverse=True)[:3]
        assert {cut for cut in found if cut[0] == i} == {cut for cut in worst if excess[cut] > 0.01}
    assert found
