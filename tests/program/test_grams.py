"""A thin Gram matrix FF' has the answers of the dense one; compiled loops have those of their naive twins."""

import naive
import numpy as np
import pytest
from test_maxcut import gram

from boolcp.program import _kernels, maxcut
from boolcp.program.bounds import DenseLift, ThinLift, solve_sdp
from boolcp.program.maxcut import Complement, ThinGram, climb_ratio, compact, improve, maximize

both = pytest.mark.parametrize("is_ratio", [False, True])


def value(F, z, is_ratio):
    return np.sum(F[z].sum(axis=0) ** 2) / (z.sum() if is_ratio else 1)


def test_grams_answer_like_the_matrix(rng):
    F = rng.standard_normal((9, 3))
    B = rng.standard_normal((9, 2))
    B = np.column_stack([B, B.sum(axis=1)])  # of rank two
    P = np.eye(9) - B @ np.linalg.pinv(B)
    Z = rng.random((4, 9)) < 0.5
    for C, exact in ((ThinGram(F), F @ F.T), (Complement(B), P)):
        np.testing.assert_allclose(C @ Z.T, exact @ Z.T, atol=1e-12)
        np.testing.assert_allclose(Z @ C, Z @ exact, atol=1e-12)
        np.testing.assert_allclose(C.diagonal(), exact.diagonal())
        np.testing.assert_allclose(C[4], exact[4], atol=1e-12)


@pytest.mark.parametrize("factor", [1.0, 2.0**-150, 2.0**150])
def test_compact_drops_zero_rows_and_scales_by_a_power_of_two(factor, rng):
    F = factor * rng.standard_normal((7, 3))
    F[[2, 5]] = 0
    for C in (F @ F.T, ThinGram(F)):
        active, exponent, small = compact(C)
        assert active.tolist() == [0, 1, 3, 4, 6] and len(small) == 5
        np.testing.assert_array_equal(np.ldexp(small[1], exponent)[1:], C[1][[1, 3, 4, 6]])
        assert 1e-50 < small.diagonal().max() < 1e50


@both
@pytest.mark.parametrize("n_idle", [0, 40])
def test_climbs_end_where_no_flip_helps(is_ratio, n_idle, rng):
    for _ in range(20):
        F = rng.standard_normal((30, 6))
        for C in (ThinGram(F), F @ F.T):
            z = rng.random(30) < 0.5
            start = value(F, z, is_ratio)
            found = improve(C, z, C @ z, n_idle, 5, is_ratio)
            assert found == pytest.approx(value(F, z, is_ratio)) and found >= start
            flipped = np.where(np.eye(30, dtype=bool), ~z, z)
            assert max(value(F, y, is_ratio) for y in flipped if y.any()) <= found * (1 + 1e-12)
    z = np.ones(3, dtype=bool)  # and no climb empties z
    improve(ThinGram(np.array([[1.0], [-1.0], [0.0]])), z, np.zeros(3), n_idle, 5, is_ratio)
    assert z.any()
    z = np.ones(3, dtype=bool)
    C = -np.diag([3.0, 1.0, 2.0])
    assert improve(C, z, C @ z, 10, 0, is_ratio) == -1 and z.tolist() == [False, True, False]


@pytest.mark.parametrize("n_bits", [0, 1, 3])
def test_the_climb_of_a_ratio_is_that_of_the_loops(n_bits, rng):
    for _ in range(10):
        B = (rng.random((14, n_bits)) < 0.5).astype(float)
        P = Complement(B)
        F = P @ rng.standard_normal((14, 4))
        z = rng.random(14) < 0.5
        expected, bits = naive.climb_ratio(F @ F.T, P @ np.eye(14), z)
        for C, projection in ((F @ F.T, P @ np.eye(14)), (ThinGram(F), P)):
            found, own = climb_ratio(C, projection, z)
            assert found == pytest.approx(expected)
            np.testing.assert_array_equal(own, bits)
    z = rng.random(12) < 0.5
    P = np.eye(12) - np.outer(z, z) / z.sum()
    C = gram(rng.standard_normal((12, 3)))
    found = climb_ratio(C, P, z)[1]  # at z itself: a number over a rounding error
    assert found @ P @ found > 0.1


@pytest.mark.parametrize("n", [9, 53])
def test_mixing_sweeps_equal_the_loops(n, rng):
    A = gram(rng.standard_normal((n, n))) - gram(rng.standard_normal((n, n)))
    V = rng.standard_normal((n, 5))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    for momentum in (0.0, 0.6):
        gain = _kernels.mixing_sweep(A, new := V.copy(), momentum, np.empty((_kernels.BLOCK, 5)))
        np.testing.assert_allclose(np.linalg.norm(new, axis=1), 1)
        assert gain == pytest.approx(np.sum(A * (new @ new.T)) - np.sum(A * (V @ V.T)))
        if momentum == 0:
            np.testing.assert_allclose(new, naive.sweep(A, V), atol=1e-12)


@pytest.mark.parametrize("t", [0.0, 1.7])
def test_thin_and_dense_lifts_move_alike(t, rng):
    F = rng.standard_normal((40, 5))
    thin, dense = ThinLift(F, t), DenseLift(F @ F.T, t)
    for z in rng.random((5, 40)) < 0.5:  # z'(C - tI)z = x'Ax / 4 for the signs x = [1; 2z - 1]
        x = np.concatenate([[1], 2 * z - 1])
        assert x @ dense.swept @ x / 4 == pytest.approx(value(F, z, False) - t * z.sum())
    V = rng.standard_normal((41, 6))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    own, expected = V.copy(), V.copy()
    assert thin.energy(V) == pytest.approx(dense.energy(V))
    assert thin.sweep(own, 0.6) == pytest.approx(dense.sweep(expected, 0.6))
    np.testing.assert_allclose(own, expected, atol=1e-10)


def test_bounds_of_any_multipliers_hold(rng):
    for F in (rng.standard_normal((60, 6)), rng.standard_normal((9, 9)), 1e3 ** rng.standard_normal((30, 2))):
        dense = DenseLift(F @ F.T)
        V = solve_sdp(dense, rng, tol=1e-12)
        best = (dense.energy(V) + np.trace(dense.swept)) / 4  # reached by the relaxation, so that no bound is below it
        for max_sweeps in (0, 1, 3, 1000):
            V = solve_sdp(dense, rng, tol=0.0, max_sweeps=max_sweeps)
            assert best * (1 - 1e-9) <= min(dense.bound(V), ThinLift(F).bound(V))
        assert max(dense.bound(V), ThinLift(F).bound(V)) <= best * (1 + 2e-3)
        top = np.linalg.eigvalsh(F @ F.T)[-1]
        for C in (ThinGram(F), F @ F.T):
            z = maximize(C, rng).z
            assert top <= maxcut.ratio_bound(C, z, "eigenvalue", rng.random(len(F))) <= top * (1 + 1e-3)
            assert value(F, z, True) * (1 - 1e-12) <= maxcut.ratio_bound(C, z, "default") <= top * (1 + 1e-3)


@both
@pytest.mark.parametrize("d", [30, 150, 1000])
def test_thin_and_dense_programs_reach_the_same_value(d, is_ratio, rng):
    F = np.outer(rng.random(d) < 0.5, rng.standard_normal(6)) + 0.5 * rng.standard_normal((d, 6))
    dense = maximize(F @ F.T, np.random.default_rng(1), is_ratio=is_ratio, certify=False)
    thin = maximize(ThinGram(F), np.random.default_rng(1), is_ratio=is_ratio)
    assert thin.value == pytest.approx(dense.value, rel=1e-6) and thin.value <= thin.bound
    for scale in (1e-150, 1e150):
        scaled = maximize(ThinGram(scale * F), np.random.default_rng(1), is_ratio=is_ratio)
        np.testing.assert_array_equal(scaled.z, thin.z)
        assert scaled.ratio == pytest.approx(thin.ratio)


@both
def test_a_hundred_thousand_planted_bits_are_found(is_ratio, rng):
    z = rng.random(100_000) < 0.6
    off = 0.0 if is_ratio else -1.0  # z'Cz takes all rows on one side, the ratio those far enough on it
    F = 0.1 * rng.standard_normal((len(z), 8)) + np.where(z, 1.0, off)[:, None] * rng.choice([-1, 1], 8)
    found = maximize(ThinGram(F), rng, is_ratio=is_ratio)
    np.testing.assert_array_equal(found.z, z)
    assert found.value == pytest.approx(value(F, z, is_ratio)) and 0.95 < found.ratio <= 1


@pytest.mark.parametrize("d", [1, 2, 9])
def test_the_best_bits_for_a_vector_are_the_best_of_all(d, rng):
    rows = rng.standard_normal((20, d))
    Z, signs, values = maxcut.best_signed_response(rows)
    for a, z, sign, best in zip(rows, Z, signs, values, strict=True):
        assert best == pytest.approx(naive.best_boolean(np.outer(a, a), True)[0])
        assert (a @ z) ** 2 / z.sum() == pytest.approx(best) and np.sign(a @ z) == sign
