import naive
import numpy as np
import pytest

from boolcp.datasets import make_boolean_cp
from boolcp.fit.pursuit import boolean_matching_pursuit
from boolcp.fit.relax import last
from boolcp.program import _kernels, maxcut
from boolcp.program.flips import climb_ratio
from boolcp.program.grams import Complement, DenseGram, ThinGram
from boolcp.program.maxcut import maximize
from boolcp.program.relaxation import DenseLift, ThinLift, lift, solve_sdp
from boolcp.storage import DenseTensor, compress

both = pytest.mark.parametrize("is_ratio", [False, True])


def residual_factors(d, seed):
    """Yield F of the residuals that a pursuit on a compressed tensor meets along a mode of d entries."""
    X = make_boolean_cp((12, d, 10), 3, noise=0.5, random_state=seed)[0]
    small = compress(DenseTensor(X), 5)
    steps = boolean_matching_pursuit(small, 3, (1,), np.random.default_rng(0), certify=False)
    for W in last(steps, None).path:
        F, is_exact = small.residual(W).gram_factor(1)
        assert is_exact
        yield F


def value(F, z, is_ratio):
    return z @ F @ F.T @ z / (z.sum() if is_ratio else 1)


def is_local_optimum(F, z, is_ratio):
    flipped = np.where(np.eye(len(z), dtype=bool), ~z, z)
    flipped = flipped[flipped.any(axis=1)]
    return max(value(F, other, is_ratio) for other in flipped) <= value(F, z, is_ratio) * (1 + 1e-12)


# Kernels


@pytest.mark.parametrize("t", [0.0, 1.7])
@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_thin_mixing_sweep_is_the_sweep_of_the_lifted_matrix(t, momentum, rng):
    F = rng.standard_normal((40, 5))
    A, G = lift(F @ F.T, t), np.vstack([F.sum(axis=0), F])
    V = rng.standard_normal((41, 6))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    S, expected = G.T @ V, V.copy()
    gain = _kernels.thin_mixing_sweep(G, V, S, t, momentum)
    assert gain == pytest.approx(_kernels.mixing_sweep(A, expected, momentum, np.empty((_kernels.BLOCK, 6))))
    np.testing.assert_allclose(V, expected, atol=1e-10)
    np.testing.assert_allclose(S, G.T @ V, atol=1e-10)
    assert ThinLift(F, t).energy(V) == pytest.approx(np.sum(A * (V @ V.T)) - np.trace(A))
    assert DenseLift(F @ F.T, t).energy(V) == pytest.approx(np.sum(A * (V @ V.T)) - np.trace(A))


@both
@pytest.mark.parametrize("n_idle", [0, 40])
def test_climb_ends_where_no_flip_helps(is_ratio, n_idle, rng):
    for _ in range(20):
        F = rng.standard_normal((30, 6))
        z = rng.random(30) < 0.5
        start = value(F, z, is_ratio)
        found = ThinGram(F).climb(z, None, n_idle, 5, is_ratio)
        assert found == pytest.approx(value(F, z, is_ratio)) and found >= start
        assert is_local_optimum(F, z, is_ratio)


@both
def test_flip_sweeps_never_empty_z(is_ratio):
    F = np.array([[1.0], [-1.0], [0.0]])
    z = np.array([True, True, True])
    _kernels.flip_sweeps(F, z, is_ratio)
    assert z.any() and value(F, z, is_ratio) == 1


@both
def test_thin_and_dense_flips_are_the_same(is_ratio, rng):
    F = rng.standard_normal((50, 7))
    C = F @ F.T
    z = rng.random(50) < 0.5
    y, options = z.copy(), (60, 10, is_ratio)
    first = _kernels.flip_search(C, z, C @ z, C.diagonal().copy(), *options, False)
    assert _kernels.flip_search(F, y, C @ y, C.diagonal().copy(), *options, True) == pytest.approx(first)
    np.testing.assert_array_equal(y, z)


def test_grams_answer_like_the_matrix(rng):
    F = rng.standard_normal((9, 3))
    B = rng.standard_normal((9, 2))
    B = np.column_stack([B, B.sum(axis=1)])  # of rank two
    P = np.eye(9) - B @ np.linalg.pinv(B)
    Z = rng.random((4, 9)) < 0.5
    for C, exact in ((DenseGram(F @ F.T), F @ F.T), (ThinGram(F), F @ F.T), (Complement(B), P)):
        np.testing.assert_allclose(C @ Z.T, exact @ Z.T, atol=1e-12)
        np.testing.assert_allclose(Z @ C, Z @ exact, atol=1e-12)
        np.testing.assert_allclose(C.diagonal(), exact.diagonal())
        np.testing.assert_allclose(C[4], exact[4], atol=1e-12)


@pytest.mark.parametrize("factor", [1.0, 2.0**-150, 2.0**150])
def test_compact_drops_zero_rows_and_scales_by_a_power_of_two(factor, rng):
    F = factor * rng.standard_normal((7, 3))
    F[[2, 5]] = 0
    for C in (DenseGram(F @ F.T), ThinGram(F)):
        active, exponent, small = C.compact()
        assert active.tolist() == [0, 1, 3, 4, 6] and len(small) == 5
        np.testing.assert_array_equal(np.ldexp(small[1], exponent)[1:], C[1][[1, 3, 4, 6]])
        assert 1e-50 < small.diagonal().max() < 1e50


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


def test_the_climb_of_a_ratio_stays_out_of_the_span_of_other_bits(rng):
    z = rng.random(12) < 0.5
    P = np.eye(12) - np.outer(z, z) / z.sum()
    F = rng.standard_normal((12, 3))
    _, found = climb_ratio(F @ F.T, P, z)  # at z itself the ratio is a number over a rounding error
    assert found @ P @ found > 0.1
    assert climb_ratio(np.zeros((12, 12)), P, z) == (0.0, pytest.approx(z))


# The program


@both
@pytest.mark.parametrize("d", [4, 11, 16])
def test_the_best_of_all_vectors_is_found(d, is_ratio, rng, monkeypatch):
    monkeypatch.setattr(maxcut, "EXHAUSTIVE", 3)
    for p in (1, 3, 8):
        F = rng.standard_normal((d, p))
        found = maximize(ThinGram(F), rng, is_ratio=is_ratio)
        best = naive.best_boolean(F @ F.T, is_ratio)[0]
        assert found.value == pytest.approx(best, rel=1e-9) == value(F, found.z, is_ratio)
        assert best <= found.bound * (1 + 1e-12)


@both
@pytest.mark.parametrize("d", [30, 150, 1000])
def test_thin_and_dense_programs_reach_the_same_value(d, is_ratio):
    for seed in range(3 if d < 1000 else 1):
        for F in residual_factors(d, seed):
            dense = maximize(F @ F.T, np.random.default_rng(1), is_ratio=is_ratio, certify=False)
            thin = maximize(ThinGram(F), np.random.default_rng(1), is_ratio=is_ratio)
            assert thin.value == pytest.approx(dense.value, rel=1e-6)
            assert thin.value <= thin.bound
            if d <= 150:
                assert is_local_optimum(F, thin.z, is_ratio)


@both
def test_a_hundred_thousand_planted_bits_are_found(is_ratio, rng):
    z = rng.random(100_000) < 0.6
    off = 0.0 if is_ratio else -1.0  # z'Cz takes all rows on one side, the ratio those far enough on it
    F = 0.1 * rng.standard_normal((len(z), 8)) + np.where(z, 1.0, off)[:, None] * rng.choice([-1, 1], 8)
    found = maximize(ThinGram(F), rng, is_ratio=is_ratio)
    np.testing.assert_array_equal(found.z, z)
    assert found.value == pytest.approx(np.sum(F[z].sum(axis=0) ** 2) / (z.sum() if is_ratio else 1))
    assert 0.95 < found.ratio <= 1


def test_bounds_are_those_of_the_matrix(rng):
    F = rng.standard_normal((60, 6))
    lifted = ThinLift(F)
    largest = np.linalg.eigvalsh(F @ F.T)[-1]
    assert largest <= ThinGram(F).eigenvalue_bound(np.ones(60)) <= largest * (1 + 1e-5)
    V = solve_sdp(lifted, rng, tol=1e-8)
    relaxed = np.sum(lift(F @ F.T) * (V @ V.T)) / 4
    assert relaxed * (1 - 1e-6) <= lifted.bound(V) <= relaxed * (1 + 1e-3)
    poor = rng.standard_normal(V.shape)  # any multipliers give a bound, good ones a close one
    poor /= np.linalg.norm(poor, axis=1, keepdims=True)
    assert lifted.bound(poor) >= relaxed * (1 - 1e-6)


@both
@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_scale_and_zero_rows_do_not_matter(is_ratio, scale, rng):
    F = rng.standard_normal((50, 4))
    F[[3, 7, 20]] = 0
    found = maximize(ThinGram(scale * F), np.random.default_rng(0), is_ratio=is_ratio)
    plain = maximize(ThinGram(F), np.random.default_rng(0), is_ratio=is_ratio)
    np.testing.assert_array_equal(found.z, plain.z)
    assert not found.z[[3, 7, 20]].any()
    assert found.ratio == pytest.approx(plain.ratio)
    assert not maximize(ThinGram(0 * F), rng, is_ratio=is_ratio).value


@pytest.mark.parametrize("is_ratio", [True, False])
def test_a_quick_search_leaves_the_relaxation_out(rng, is_ratio, monkeypatch):
    F = rng.standard_normal((40, 3))
    best = maximize(ThinGram(F), rng, is_ratio=is_ratio)
    monkeypatch.setattr(maxcut, "solve_sdp", None)
    quick = maximize(ThinGram(F), rng, is_ratio=is_ratio, certify=is_ratio, effort="quick")
    assert quick.value == pytest.approx(np.sum(F[quick.z].sum(axis=0) ** 2) / (quick.z.sum() if is_ratio else 1))
    assert 0.9 * best.value <= quick.value <= best.bound
