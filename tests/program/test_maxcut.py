import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg.lapack import dpotrf

from boolcp.program import _kernels, flips, maxcut, relaxation
from boolcp.program.grams import DenseGram
from boolcp.program.maxcut import maximize_boolean_quadratic, maximize_boolean_rayleigh

SOLVERS = [(maximize_boolean_quadratic, False), (maximize_boolean_rayleigh, True)]
both = pytest.mark.parametrize(("solve", "is_ratio"), SOLVERS)
all_efforts = pytest.mark.parametrize("effort", maxcut.EFFORTS)


def gram(X):
    return X @ X.T


def random_psd(d, rng, n_columns=None):
    return gram(rng.standard_normal((d, n_columns or d)))


def centered(d, rng):
    """Return a Gram matrix whose rows sum to zero, with many local optima."""
    X = rng.standard_normal((d, d // 2))
    return gram(X - X.mean(axis=0))


def hard_matrices(d, rng):
    """Yield positive semidefinite matrices that differ in rank, scale, sign pattern and support."""
    normal = rng.standard_normal
    yield random_psd(d, rng, 1)
    yield random_psd(d, rng, 3)
    yield random_psd(d, rng, 2 * d)
    yield np.eye(d) + 0.1 * random_psd(d, rng) / d
    yield centered(d, rng)
    yield gram(normal((d, 4)) * np.exp(3 * normal((d, 1))))
    X = normal((d, d))
    yield gram(np.vstack([X[: d // 2], -X[: d - d // 2]]))
    yield gram(normal((d, 4)) * (rng.random((d, 1)) < 0.6))


def climb(C, z, *options):
    return DenseGram(C).climb(z, C @ z, *options)


@pytest.fixture
def without_enumeration(monkeypatch):
    """Send small problems through the search that large ones take."""
    monkeypatch.setattr(maxcut, "EXHAUSTIVE", 3)


# Kernels


@pytest.mark.parametrize("n", [1 + _kernels.BLOCK // 2, 3 * _kernels.BLOCK + 5])
def test_mixing_sweep_equals_the_loops(n, rng):
    A = random_psd(n, rng) - random_psd(n, rng)
    V = rng.standard_normal((n, 5))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    expected = naive.sweep(A, V)
    gain = _kernels.mixing_sweep(A, V_new := V.copy(), 0.0, np.empty((_kernels.BLOCK, 5)))
    np.testing.assert_allclose(V_new, expected, atol=1e-12)
    assert gain == pytest.approx(np.sum(A * (V_new @ V_new.T)) - np.sum(A * (V @ V.T)))


def test_mixing_sweep_with_momentum_keeps_unit_rows_and_tells_its_gain(rng):
    A = random_psd(40, rng)
    V = rng.standard_normal((40, 6))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    before = np.sum(A * (V @ V.T))
    gain = _kernels.mixing_sweep(A, V, 0.6, np.empty((_kernels.BLOCK, 6)))
    np.testing.assert_allclose(np.linalg.norm(V, axis=1), 1)
    assert gain == pytest.approx(np.sum(A * (V @ V.T)) - before)


@pytest.mark.parametrize("is_ratio", [False, True])
@pytest.mark.parametrize("n_idle", [0, 50])
def test_flip_search_ends_where_no_flip_helps(is_ratio, n_idle, rng):
    def value(z):
        return z @ C @ z / (z.sum() if is_ratio else 1)

    for _ in range(20):
        C = random_psd(25, rng, 8) - 2 * np.eye(25)
        z = rng.random(25) < 0.5
        start = value(z)
        found = climb(C, z, n_idle, 5, is_ratio)
        assert found == pytest.approx(value(z))
        assert found >= start
        for i in range(25):
            flipped = z.copy()
            flipped[i] = not z[i]
            assert not flipped.any() or value(flipped) <= found + 1e-9


def test_resting_bits_let_the_search_leave_local_optima(rng):
    gains = {-11: 0.0, 10: 0.0}  # with the first tenure no bit ever rests
    for _ in range(20):
        C = random_psd(60, rng, 10)
        optimum = rng.random(60) < 0.5
        ascent = climb(C, optimum, 0, 10, False)
        for tenure in gains:
            z = optimum.copy()
            gains[tenure] += climb(C, z, 200, tenure, False) - ascent
    assert gains[10] > gains[-11] + 1.0


def test_flip_search_never_empties_z():
    for is_ratio in (False, True):
        z = np.array([True, True, True])
        C = -np.diag([3.0, 1.0, 2.0])
        assert climb(C, z, 10, 0, is_ratio) == -1
        assert z.tolist() == [False, True, False]


def test_asymmetry_finds_the_largest_difference(rng):
    C = random_psd(150, rng)
    assert _kernels.asymmetry(C) == 0
    C[140, 3] += 0.25
    assert _kernels.asymmetry(C) == pytest.approx(0.25)


# Steps


@pytest.mark.parametrize("t", [0.0, 1.5])
def test_lift_preserves_the_objective(t, rng):
    C = random_psd(7, rng)
    for z in rng.random((20, 7)) < 0.5:
        x = np.concatenate([[1], 2 * z - 1])
        assert x @ relaxation.lift(C, t) @ x / 4 == pytest.approx(z @ C @ z - t * z.sum())


def test_sdp_closes_the_duality_gap(rng):
    for C in hard_matrices(30, rng):
        A = relaxation.lift(C)
        V = relaxation.solve_sdp(relaxation.DenseLift(C), rng, tol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(V, axis=1), 1)
        primal, dual = np.sum(A * (V @ V.T)), np.linalg.norm(A @ V, axis=1)
        shift = min(0.0, np.linalg.eigvalsh(np.diag(dual) - A)[0])
        assert dual.sum() - len(A) * shift <= primal * (1 + 1e-4)


def test_sdp_equals_a_general_solver(rng):
    cvxpy = pytest.importorskip("cvxpy")
    C = random_psd(12, rng, 4)
    A = relaxation.lift(C)
    X = cvxpy.Variable(A.shape, PSD=True)
    expected = cvxpy.Problem(cvxpy.Maximize(cvxpy.trace(A @ X)), [cvxpy.diag(X) == 1]).solve(
        solver="SCS", eps=1e-7, max_iters=20_000
    )
    lifted = relaxation.DenseLift(C)
    V = relaxation.solve_sdp(lifted, rng, tol=1e-10)
    assert np.sum(A * (V @ V.T)) == pytest.approx(expected, rel=1e-5)
    assert lifted.energy(V) == pytest.approx(expected - np.trace(A), rel=1e-4)
    assert expected / 4 * (1 - 1e-6) <= lifted.bound(V) <= expected / 4 * (1 + 1e-3)


def naive_dual(C):
    """Return the bound of multipliers made feasible by the smallest eigenvalue, after many sweeps in full precision."""
    A = relaxation.lift(C)
    V = relaxation.solve_sdp(relaxation.DenseLift(C), np.random.default_rng(1), tol=1e-12)
    y = np.linalg.norm(A @ V - A.diagonal()[:, None] * V, axis=1) + A.diagonal()
    return (y.sum() - len(A) * min(0.0, np.linalg.eigvalsh(np.diag(y) - A)[0])) / 4


def test_sweeps_in_single_precision_lead_to_the_same_bound(rng, monkeypatch):
    C = random_psd(150, rng, 40)
    double = relaxation.DenseLift(C)
    monkeypatch.setattr(relaxation, "LARGE", 100)
    single = relaxation.DenseLift(C)
    V = relaxation.solve_sdp(single, rng, tol=1e-7)
    assert V.dtype == np.float32
    assert double.energy(V) == pytest.approx(single.energy(V), rel=1e-5)
    monkeypatch.undo()
    best, bound = naive_dual(C), single.bound(V)
    assert best * (1 - 1e-4) <= bound <= best * (1 + 1e-3)


@pytest.mark.parametrize("max_sweeps", [1, 3, 30, 1000])
def test_bounds_of_multipliers_far_from_the_best_hold(max_sweeps, rng):
    for C in (*hard_matrices(40, rng), random_psd(9, rng)):
        A, lifted = relaxation.lift(C), relaxation.DenseLift(C)
        V = relaxation.solve_sdp(lifted, rng, tol=1e-12)
        best = np.sum(A * (V @ V.T)) / 4  # reached by the relaxation, so that no bound is below it
        V = relaxation.solve_sdp(lifted, rng, tol=0.0, max_sweeps=max_sweeps)
        assert best - 1e-9 * abs(best) <= lifted.bound(V)


def test_one_factorization_is_enough_if_multipliers_are_slightly_too_low(rng, monkeypatch):
    C = random_psd(60, rng, 15)
    lifted, asked = relaxation.DenseLift(C), []
    V = relaxation.solve_sdp(lifted, rng, tol=1e-4)
    monkeypatch.setattr(relaxation, "dpotrf", lambda S, **options: asked.append(S) or dpotrf(S, **options))
    y = np.linalg.norm(lifted.swept @ V - lifted.swept.diagonal()[:, None] * V, axis=1) + lifted.swept.diagonal()
    first = np.diag(y + 2e-4 * np.abs(y).mean()) - lifted.swept
    assert np.linalg.eigvalsh(first)[0] < 0  # the first shift alone proves nothing
    assert lifted.bound(V) >= naive_dual(C) * (1 - 1e-6) and len(asked) == 1


def test_roundings_of_a_rank_one_solution_return_its_bits(rng):
    z = rng.random(30) < 0.5
    direction = rng.standard_normal(4)
    V = np.concatenate([[1], 2 * z - 1])[:, None] * direction
    assert (relaxation.round_hyperplanes(V, rng, 10) == z).all()


def test_best_response_to_a_ratio_is_the_best_of_all_vectors(rng):
    for a in rng.standard_normal((20, 8)):
        z = flips.best_response(a[None], is_ratio=True)[0]
        positive = a * (a > 0)
        best, _ = naive.best_boolean(np.outer(positive, positive), is_ratio=True)
        assert (a @ z) ** 2 / z.sum() == pytest.approx(best)


def test_largest_eigenvalue_is_estimated_and_bounded(rng):
    for C in hard_matrices(40, rng):
        exact = np.linalg.eigvalsh(C)[-1]
        assert relaxation.largest_eigenvalue(C, rng.random(40)) == pytest.approx(exact, rel=1e-3)
        assert exact <= relaxation.eigenvalue_bound(C, rng.random(40)) <= exact * (1 + 1e-3)


def test_prove_psd_refuses_what_is_not(rng):
    C = random_psd(30, rng)
    top = np.linalg.eigvalsh(C)[-1]
    y = np.full(30, top)
    assert relaxation.prove_psd(C, y, [-1e-6 * top, -1e-9 * top]) is None
    assert relaxation.prove_psd(C, y, [-1e-6 * top, 1e-9 * top, top]) == 1e-9 * top


def test_recombination_improves_local_optima(rng):
    gains = []
    for _ in range(10):
        C = DenseGram(centered(200, rng))
        pool = flips.local_search(C, rng.random((8, 200)) < 0.5, is_ratio=False)
        crossed = flips.recombine(C, pool, rng, False, n_rounds=8, n_idle=30)
        tabu_only = flips.recombine(C, pool, rng, False, n_rounds=0, n_idle=30)
        assert crossed[0][0] >= pool[0][0] * (1 - 1e-12)
        gains.append(crossed[0][0] - tabu_only[0][0])
    assert sum(gain > 1e-6 for gain in gains) >= 2


# Both programs


def assert_best_of_all_vectors(solve, is_ratio, rng, sizes, n_seeds=15):
    """The value is that of the best of all Boolean vectors and the bound not below; return the ratios of the two."""
    ratios = []
    for seed in range(n_seeds):
        for C in hard_matrices(int(rng.integers(*sizes)), rng):
            optimum, _ = naive.best_boolean(C, is_ratio)
            result = solve(C, random_state=seed)
            assert result.value == pytest.approx(optimum, rel=1e-10)
            assert result.bound >= optimum
            ratios.append(result.ratio)
    return ratios


@both
def test_equals_the_best_of_all_vectors(solve, is_ratio, rng):
    ratios = assert_best_of_all_vectors(solve, is_ratio, rng, (1, 12))
    assert ratios == pytest.approx(np.ones(len(ratios)), abs=1e-9)


@both
def test_search_equals_the_best_of_all_vectors(solve, is_ratio, rng, without_enumeration):
    assert_best_of_all_vectors(solve, is_ratio, rng, (4, 15), n_seeds=5)


@both
def test_search_equals_enumeration_of_twenty_bits(solve, is_ratio, rng, monkeypatch):
    problems = list(hard_matrices(20, rng))
    exact = [solve(C).value for C in problems]
    monkeypatch.setattr(maxcut, "EXHAUSTIVE", 3)
    assert [solve(C, random_state=0).value for C in problems] == pytest.approx(exact, rel=1e-10)


@both
@pytest.mark.parametrize("exhaustive", [3, 20])
def test_indefinite_matrices_are_allowed(solve, is_ratio, exhaustive, rng, monkeypatch):
    monkeypatch.setattr(maxcut, "EXHAUSTIVE", exhaustive)
    for seed in range(40):
        C = rng.standard_normal((10, 10)) - seed / 10 * np.eye(10)
        C += C.T
        optimum, _ = naive.best_boolean(C, is_ratio)
        result = solve(C, random_state=seed)
        assert result.value == pytest.approx(optimum, rel=1e-10)
        assert result.bound is None or result.bound >= optimum


@both
@all_efforts
def test_value_and_bound_belong_to_z(solve, is_ratio, effort, rng):
    for C in hard_matrices(45, rng):
        result = solve(C, random_state=1, effort=effort)
        z = result.z
        assert z.any()
        assert z.dtype == bool
        assert result.value == pytest.approx(z @ C @ z / (z.sum() if is_ratio else 1), rel=1e-12)
        assert result.value <= result.bound
        assert 0 <= result.ratio <= 1
        assert solve(C, random_state=1, effort=effort, certify=False).bound is None


@both
def test_planted_bits_are_found(solve, is_ratio, rng):
    z = rng.random(80) < 0.4
    v = rng.standard_normal(500)
    C = gram(np.outer(2 * z - 1 if not is_ratio else z, v) + 0.1 * rng.standard_normal((80, 500)))
    found = solve(C, random_state=0).z
    assert (found == z).all() or (not is_ratio and (found == ~z).all())


@both
def test_every_stage_of_the_search_counts(solve, is_ratio, rng, monkeypatch):
    def value(**options):
        return sum(solve(C, random_state=0, certify=False, **options).value / C.trace() for C in problems)

    problems = [centered(200, rng) for _ in range(5)]
    best = value()
    assert value(effort="quick") < best
    monkeypatch.setattr(maxcut, "recombine", lambda C, pool, *options: pool)
    without_recombination = value()
    assert without_recombination < best
    monkeypatch.setattr(maxcut, "round_hyperplanes", lambda V, rng, n: np.zeros((1, len(V) - 1), dtype=bool))
    assert value() < without_recombination


@both
def test_thorough_is_not_worse_than_quick(solve, is_ratio, rng):
    for C in hard_matrices(60, rng):
        quick, default, thorough = (solve(C, random_state=3, effort=e, certify=False).value for e in maxcut.EFFORTS)
        assert quick <= default * (1 + 1e-12)
        assert default <= thorough * (1 + 1e-9)


@both
@pytest.mark.parametrize("d", [12, 50])
def test_bits_of_zero_rows_stay_off(solve, is_ratio, d, rng):
    on = rng.random(d) < 0.7
    C = random_psd(d, rng, 5) * np.outer(on, on)
    result = solve(C, random_state=0, starts=np.ones((1, d)))
    assert not result.z[~on].any()


@both
def test_zero_matrix_gives_one_bit(solve, is_ratio):
    result = solve(np.zeros((30, 30)))
    assert result.z.sum() == 1
    assert result.value == result.bound == 0
    assert result.ratio == 1


@both
@pytest.mark.parametrize("d", [10, 60])
def test_equal_seeds_give_equal_results_at_every_scale(solve, is_ratio, d, rng):
    C = random_psd(d, rng, 6)
    reference = solve(C, random_state=5)
    for factor in (1.0, 2.0, 2.0**-31, 2.0**250, 2.0**-700):
        result = solve(C * factor, random_state=5)
        assert (result.z == reference.z).all()
        assert result.value == reference.value * factor
        assert result.bound == pytest.approx(reference.bound * factor, rel=1e-12)
    assert (solve(C * 0.3, random_state=5).z == reference.z).all()


@both
@pytest.mark.parametrize("d", [3, 16])
def test_ties_go_to_the_fewest_ones(solve, is_ratio, d):
    # the first d bits and the other d + 1 have the same value
    small = np.repeat([True, False], [d, d + 1])
    C = np.zeros((2 * d + 1, 2 * d + 1))
    C[np.ix_(small, small)] = 1 / d if is_ratio else 1 / d**2
    C[np.ix_(~small, ~small)] = 1 / (d + 1) if is_ratio else 1 / (d + 1) ** 2
    if not is_ratio:
        C[np.ix_(small, ~small)] = C[np.ix_(~small, small)] = -1 / (d * (d + 1))
    for seed in range(5):
        assert (solve(C, random_state=seed).z == small).all()


@both
def test_a_warm_start_is_never_lost(solve, is_ratio, rng):
    lost = 0
    for seed in range(10):
        C = centered(200, rng) - 150 * np.eye(200)
        options = {"random_state": seed, "effort": "quick", "certify": False}
        best = solve(C, random_state=seed, certify=False)
        assert solve(C, starts=best.z[None], **options).value >= best.value - 1e-9 * abs(best.value)
        lost += solve(C, **options).value < best.value - 1e-9 * abs(best.value)
    assert lost >= 3


@both
def test_input_is_not_changed_and_result_is_frozen(solve, is_ratio, rng):
    C = random_psd(40, rng)
    starts = rng.random((3, 40)) < 0.5
    for array in (C, starts):
        array.flags.writeable = False
    result = solve(C, random_state=0, starts=starts)
    with pytest.raises(ValueError, match="read-only"):
        result.z[0] = True
    with pytest.raises(AttributeError):
        result.value = 0.0
    assert "of 40 bits" in repr(result)
    assert f"ratio={result.ratio:.4f}" in repr(result)


@settings(max_examples=40, deadline=None)
@given(
    d=st.integers(1, 26),
    dtype=st.sampled_from([np.float64, np.float32, np.int64, np.int8, np.uint8, np.bool_]),
    order=st.sampled_from("CF"),
    is_ratio=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_any_real_dtype_and_layout_is_accepted(d, dtype, order, is_ratio, seed):
    rng = np.random.default_rng(seed)
    C = np.asarray(gram(rng.integers(-1, 2, (d, 2))), dtype=dtype, order=order)
    result = SOLVERS[is_ratio][0](C, random_state=seed)
    C = C.astype(float)
    z = result.z
    assert z.any()
    assert result.value == pytest.approx(z @ C @ z / (z.sum() if is_ratio else 1))
    assert result.bound is None or result.value <= result.bound


@both
@pytest.mark.parametrize(
    ("C", "error", "message"),
    [
        (np.zeros((0, 0)), ValueError, "at least one row"),
        (np.zeros((2, 3)), ValueError, r"square.*\(2, 3\)"),
        (np.zeros(4), ValueError, "square"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), ValueError, "NaN"),
        (np.array([[np.inf]]), ValueError, "infinite"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), ValueError, r"symmetric.*C\.T"),
        (np.eye(2, dtype=complex), TypeError, "real"),
        (np.array([["a"]]), TypeError, "numeric"),
        (np.eye(2, dtype=object), TypeError, "numeric"),
    ],
)
def test_bad_matrices_are_refused(solve, is_ratio, C, error, message):
    with pytest.raises(error, match=message):
        solve(C)


@both
def test_bad_options_are_refused(solve, is_ratio):
    with pytest.raises(ValueError, match=r"starts must have shape \(s, 3\)"):
        solve(np.eye(3), starts=np.ones(3))
    with pytest.raises(ValueError, match="only 0 and 1"):
        solve(np.eye(3), starts=[[0, 1, 2]])
    with pytest.raises(ValueError, match="effort must be one of"):
        solve(np.eye(3), effort="heroic")
    with pytest.raises(TypeError, match="random_state"):
        solve(np.eye(3), random_state="seed")


@both
def test_random_state_may_be_a_generator_or_an_old_one(solve, is_ratio, rng):
    C = random_psd(30, rng)
    for make in (np.random.default_rng, np.random.RandomState):
        assert (solve(C, random_state=make(4)).z == solve(C, random_state=make(4)).z).all()


@pytest.mark.parametrize("d", [1, 2, 15])
@pytest.mark.parametrize("is_ratio", [True, False])
def test_all_vectors_are_compared_part_by_part(rng, d, is_ratio):
    F = rng.integers(-2, 3, (d, 3)).astype(float) + np.arange(d)[:, None] / 100
    z, value, bound = maxcut.enumerate_all(F @ F.T, True, is_ratio)
    best, _ = naive.best_boolean(F @ F.T, is_ratio)
    assert value == pytest.approx(best, rel=1e-12)
    assert value <= bound <= best * (1 + 1e-9)
    assert maxcut.objective(F @ F.T, z, is_ratio) == value


def test_crossings_of_a_large_matrix_continue_while_they_gain(rng, monkeypatch):
    A = rng.standard_normal((60, 60))
    C = DenseGram(A + A.T)
    start = flips.local_search(C, rng.random((8, 60)) < 0.5, False)
    crossed = []

    def search(C, Z, *args, local_search=flips.local_search, **options):
        crossed.append(len(Z))
        return local_search(C, Z, *args, **options)

    monkeypatch.setattr(flips, "local_search", search)
    found = {}
    for large in (500, 10):
        monkeypatch.setattr(flips, "LARGE", large)
        crossed.clear()
        pool = flips.recombine(C, start, np.random.default_rng(2), False, 3, 0)
        found[large] = pool[0].value, len(crossed) - 1
    assert found[500][1] == 3 < found[10][1] <= 3 * flips.MAX_ROUNDS
    assert found[10][0] >= found[500][0] >= start[0].value
