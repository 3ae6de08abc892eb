import naive
import numpy as np
import pytest
from test_maxcut import centered, gram, hard_matrices

from boolcp.program import _kernels, maxcut, ratio_bound
from boolcp.program.grams import DenseGram, ThinGram
from boolcp.program.maxcut import maximize, maximize_boolean_rayleigh
from boolcp.program.ratio_bound import Multipliers, closed_form, largest, prove, prove_ratio

EFFORTS = ("quick", "default", "thorough")


def ratio(C, z):
    return z @ C @ z / z.sum()


def random_multipliers(d, rng, n_cuts=5):
    """Return any multipliers: the bound has to hold whatever they are."""
    W = rng.standard_normal((d, d)) * (1 - np.eye(d))
    cuts = np.array([rng.choice(d, 3, replace=False) for _ in range(n_cuts)])
    return Multipliers(W, cuts, rng.random(n_cuts))


def best_of_all(C):
    return maxcut.enumerate_all(C, False, True)[:2]


# Kernels


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
        excess = {
            (i, j, k): X[i, j] + X[i, k] - X[j, k] - X[i, i] for j in range(12) for k in range(j) if i not in (j, k)
        }
        worst = sorted(excess, key=excess.get, reverse=True)[:3]
        assert {cut for cut in found if cut[0] == i} == {cut for cut in worst if excess[cut] > 0.01}
    assert found


def test_rates_of_the_triangles_keep_their_steps_from_diverging(rng):
    cuts = random_multipliers(6, rng, n_cuts=40).cuts
    B = np.array([naive.triangle(6, *cut).ravel() for cut in cuts])
    rates = np.sqrt(_kernels.cut_rates(cuts, 6))[:, None]
    assert np.linalg.norm(rates * B, 2) <= 1 + 1e-12


def test_prices_of_the_triangles_fall_by_the_slack_ahead(rng):
    cuts, T = random_multipliers(6, rng).cuts, 0.1 * rng.random(5)
    X, previous, rates = gram(rng.standard_normal((6, 6))), gram(rng.standard_normal((6, 6))), rng.random(5)
    slacks = [np.sum(naive.triangle(6, *cut) * (2 * X - previous)) for cut in cuts]
    expected = np.maximum(T - rates * slacks, 0)
    _kernels.price_cuts(cuts, T, rates, X, previous)
    np.testing.assert_allclose(T, expected)


# Multipliers


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


def test_the_closed_form_makes_z_an_eigenvector(rng):
    for C in hard_matrices(25, rng):
        z = rng.random(25) < 0.4
        C = C / ratio(C, z)
        M = closed_form(C, z).added_to(C)
        np.testing.assert_allclose(M @ z, z.astype(float), atol=1e-9 * np.abs(M).max())


def test_the_closed_form_closes_the_gap_of_a_planted_atom(rng):
    z = rng.random(40) < 0.5
    C = gram(np.outer(z, 3 * rng.standard_normal(200)) + rng.standard_normal((40, 200)))
    proof = prove_ratio(C, z, effort="quick")
    assert ratio(C, z) <= proof.bound <= ratio(C, z) * (1 + 2e-6)
    assert largest(C) > 1.0005 * proof.bound


# Bounds


def assert_never_below_the_best(rng, n_matrices):
    """Bounds of all efforts at good and bad z are at least the best of all vectors."""
    n_checked = n_tight = 0
    while n_checked < n_matrices:
        d = int(rng.integers(2, 15))
        for C in hard_matrices(d, rng):
            best, value = best_of_all(C)
            if value == 0:
                continue
            z = best if n_checked % 3 else np.arange(d) == C.diagonal().argmax()
            effort = EFFORTS[n_checked % 3 if d > 8 else n_checked % 2]
            bound = prove_ratio(C, z, effort=effort).bound
            assert bound >= value * (1 - 1e-14)
            n_checked += 1
            n_tight += bound <= 1.01 * value
    return n_tight / n_checked


def test_bounds_are_never_below_the_best_of_all_vectors(rng):
    assert assert_never_below_the_best(rng, 150) > 0.6


@pytest.mark.slow
def test_bounds_of_a_thousand_matrices_are_never_below_the_best_of_all_vectors():
    assert assert_never_below_the_best(np.random.default_rng(1), 1000) > 0.6


def test_any_multipliers_prove_a_bound_or_none(rng):
    """Multipliers of a large size make large rounding errors, and these are no excuse."""
    for exponent in range(-20, 40):
        C = gram(rng.standard_normal((8, 3)))
        value = best_of_all(C)[1]
        proof = prove(C, value, random_multipliers(8, rng).times(2.0**exponent))
        assert proof is None or proof.bound >= value
        assert exponent > 8 or proof is not None
        assert exponent < 20 or proof is None


def test_the_proof_allows_for_its_rounding_errors(rng):
    """In exact arithmetic on integers: C + multipliers has the eigenvalue 3 * 2^30 and C the ratio 2^30."""
    C = np.full((3, 3), 2.0**30)
    W = np.zeros((3, 3))
    proof = prove(C, 2.0**30, Multipliers.of(W))
    assert 3 * 2.0**30 <= proof.bound <= 3 * 2.0**30 * (1 + 1e-8)


def test_the_bound_is_that_of_the_relaxation(rng):
    cvxpy = pytest.importorskip("cvxpy")
    C = centered(12, rng)
    z, value = best_of_all(C)
    X = cvxpy.Variable(C.shape, PSD=True)
    corner = cvxpy.reshape(cvxpy.diag(X), (12, 1), order="C") @ np.ones((1, 12))
    constraints = [cvxpy.trace(X) == 1, X >= 0, corner >= X]
    relaxed = cvxpy.Problem(cvxpy.Maximize(cvxpy.trace(C @ X)), constraints).solve(solver="SCS", eps=1e-7)
    without = prove(C, value, _without_triangles(C / value, z).times(value))
    assert relaxed * (1 - 1e-5) <= without.bound <= relaxed * (1 + 1e-3)
    assert prove_ratio(C, z, effort="thorough").bound <= without.bound


def _without_triangles(C, z):
    splitting = ratio_bound.Splitting(C, z, closed_form(C, z))
    for _ in range(400):
        splitting.step()
    return splitting.bound()[1]


def test_bounds_of_residuals_are_close(rng):
    """The largest eigenvalue says 50 to 60 % here."""
    for noise in (0.3, 3.0):
        R = noise * rng.standard_normal((60, 400))
        for _ in range(5):
            R += np.outer(rng.standard_normal(60), rng.standard_normal(400))
        R -= R.mean(axis=0)
        ratios = [maximize_boolean_rayleigh(gram(R), random_state=0, effort=effort).ratio for effort in EFFORTS]
        assert ratios[0] < 0.95 and ratios[1] >= 0.995 and ratios[2] >= 0.999


def test_multipliers_of_a_similar_matrix_are_a_start(rng):
    R = rng.standard_normal((50, 30))
    R -= R.mean(axis=0)
    z = maximize(gram(R), rng, certify=False).z
    proof = prove_ratio(gram(R), z)
    cold = prove_ratio(gram(R), z, effort="quick")
    warm = prove_ratio(gram(1.01 * R), z, effort="quick", start=proof.multipliers)
    assert proof.bound <= 0.9 * cold.bound
    assert 1.01**2 * ratio(gram(R), z) <= warm.bound <= 1.03 * proof.bound


def test_bounds_follow_the_scale_of_the_matrix(rng):
    C = centered(30, rng)
    z = maximize(C, rng, certify=False).z
    bound = prove_ratio(C, z).bound
    for factor in (2.0**-30, 2.0**40):
        assert prove_ratio(factor * C, z).bound == pytest.approx(factor * bound, rel=1e-12)


def test_where_no_bound_is_close_the_largest_eigenvalue_is_left(rng, monkeypatch):
    F = rng.standard_normal((30, 5))
    z = rng.random(30) < 0.5
    C, top = gram(F), largest(gram(F))
    assert prove_ratio(-C, z) is None
    assert DenseGram(C).ratio_bound(z, "default") < 0.95 * top
    monkeypatch.setattr("boolcp.program.grams.LARGE", 20)
    assert ratio(C, z) <= DenseGram(C).ratio_bound(z, "thorough") < 0.95 * top
    for bound in (
        DenseGram(C).ratio_bound(z, "default"),
        ThinGram(F).ratio_bound(z, "thorough"),
        maximize_boolean_rayleigh(C, random_state=0).bound,
    ):
        assert top <= bound <= top * (1 + 1e-5)


def test_the_projection_on_the_simplex_is_the_closest_point(rng):
    for _ in range(20):
        values = np.sort(rng.standard_normal(6))
        weights = ratio_bound.project_on_simplex(values)
        assert weights.sum() == pytest.approx(1) and (weights >= 0).all()
        slope = values - weights  # constant where the weights are positive, and not larger elsewhere
        assert slope[weights > 0] == pytest.approx(slope[-1]) and (slope <= slope[-1] + 1e-12).all()
