"""The Boolean quadratic program through its public functions, against all vectors and a general solver."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boolcp import maximize_boolean_quadratic, maximize_boolean_rayleigh

SOLVERS = [(maximize_boolean_quadratic, False), (maximize_boolean_rayleigh, True)]
EFFORTS = ("quick", "default", "thorough")
both = pytest.mark.parametrize(("solve", "is_ratio"), SOLVERS)


def gram(X):
    return X @ X.T


def centered(d, rng):
    """Return a Gram matrix whose rows sum to zero, with many local optima."""
    X = rng.standard_normal((d, d // 2))
    return gram(X - X.mean(axis=0))


def hard_matrices(d, rng):
    """Yield positive semidefinite matrices that differ in rank, scale, sign pattern and support."""
    normal = rng.standard_normal
    for n_columns in (1, 3, 2 * d):
        yield gram(normal((d, n_columns)))
    yield np.eye(d) + 0.1 * gram(normal((d, d))) / d
    yield centered(d, rng)
    yield gram(normal((d, 4)) * np.exp(3 * normal((d, 1))))
    X = normal((d, d))
    yield gram(np.vstack([X[: d // 2], -X[: d - d // 2]]))
    yield gram(normal((d, 4)) * (rng.random((d, 1)) < 0.6))


def repeated(C, n_copies, rng):
    """Return C with each row and column repeated, in random order: the best bits of a convex objective repeat, too."""
    order = rng.permutation(len(C) * n_copies) % len(C)
    return C[np.ix_(order, order)]


def value(C, z, is_ratio):
    return z @ C @ z / (z.sum() if is_ratio else 1)


# the best of all vectors


@both
def test_equals_the_best_of_all_vectors(solve, is_ratio, rng):
    for seed in range(15):
        for C in hard_matrices(int(rng.integers(1, 12)), rng):
            best, _ = naive.best_boolean(C, is_ratio)
            found = solve(C, random_state=seed)
            assert found.value == pytest.approx(best, rel=1e-10)
            assert best <= found.bound and found.ratio == pytest.approx(1, abs=1e-9)


@both
@pytest.mark.parametrize("effort", EFFORTS[1:])
def test_the_search_reaches_the_best_of_all_vectors(solve, is_ratio, effort, rng):
    """Repeated rows make a matrix too large to try all vectors, and its optimum is known."""
    for seed in range(4):
        for C in hard_matrices(int(rng.integers(5, 11)), rng):
            best = naive.best_boolean(C, is_ratio)[0] * (4 if is_ratio else 16)
            found = solve(repeated(C, 4, rng), random_state=seed, effort=effort)
            assert found.value == pytest.approx(best, rel=1e-9)
            assert found.bound >= best * (1 - 1e-14)


@both
def test_indefinite_matrices_are_allowed(solve, is_ratio, rng):
    for seed in range(40):
        C = rng.standard_normal((10, 10)) - seed / 10 * np.eye(10)
        C += C.T
        best, _ = naive.best_boolean(C, is_ratio)
        found = solve(C, random_state=seed)
        assert found.value == pytest.approx(best, rel=1e-10)
        assert found.bound is None or found.bound >= best


@both
@pytest.mark.parametrize("d", [30, 700])
def test_planted_bits_are_found(solve, is_ratio, d, rng):
    z = rng.random(d) < 0.4
    v = rng.standard_normal(500)
    C = gram(np.outer(2 * z - 1 if not is_ratio else z, v) + 0.1 * rng.standard_normal((d, 500)))
    found = solve(C, random_state=0).z
    assert (found == z).all() or (not is_ratio and (found == ~z).all())


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


# effort, starts, bounds


@both
def test_value_and_bound_belong_to_z(solve, is_ratio, rng):
    for C in hard_matrices(45, rng):
        values = []
        for effort in EFFORTS:
            found = solve(C, random_state=1, effort=effort)
            z = found.z
            assert z.any() and z.dtype == bool and 0 <= found.ratio <= 1
            assert found.value == pytest.approx(value(C, z, is_ratio), rel=1e-12)
            values.append(found.value)
        assert values[0] <= values[1] * (1 + 1e-12) and values[1] <= values[2] * (1 + 1e-9)
        uncertified = solve(C, random_state=1, certify=False)
        assert uncertified.bound is None and np.isnan(uncertified.ratio)


@both
def test_no_flip_of_one_bit_helps(solve, is_ratio, rng):
    for C in (centered(60, rng), gram(rng.standard_normal((25, 8)))):
        z = solve(C, random_state=0, effort="quick", certify=False).z
        best = value(C, z, is_ratio)
        flipped = np.where(np.eye(len(C), dtype=bool), ~z, z)
        assert max(value(C, y, is_ratio) for y in flipped if y.any()) <= best * (1 + 1e-12)


@both
def test_more_effort_finds_better_bits_of_hard_matrices(solve, is_ratio, rng):
    problems = [centered(200, rng) for _ in range(5)]
    quick, default = (
        sum(solve(C, random_state=0, certify=False, effort=effort).value / C.trace() for C in problems)
        for effort in EFFORTS[:2]
    )
    assert quick < default


@both
def test_a_start_is_never_lost(solve, is_ratio, rng):
    n_lost = 0
    for seed in range(10):
        C = centered(200, rng) - 150 * np.eye(200)
        options = {"random_state": seed, "effort": "quick", "certify": False}
        best = solve(C, random_state=seed, certify=False)
        assert solve(C, starts=best.z[None], **options).value >= best.value - 1e-9 * abs(best.value)
        n_lost += solve(C, **options).value < best.value - 1e-9 * abs(best.value)
    assert n_lost >= 3


@pytest.mark.parametrize("d", [24, 60])
def test_the_bound_of_the_quadratic_is_that_of_the_relaxation(d, rng):
    cvxpy = pytest.importorskip("cvxpy")
    C = gram(rng.standard_normal((d, 6)))
    A = np.block([[C.sum(), C.sum(axis=0)[None]], [C.sum(axis=0)[:, None], C]])  # over signs [1; 2z - 1], times 4
    X = cvxpy.Variable(A.shape, PSD=True)
    problem = cvxpy.Problem(cvxpy.Maximize(cvxpy.trace(A @ X)), [cvxpy.diag(X) == 1])
    relaxed = problem.solve(solver="SCS", eps=1e-6, max_iters=20_000) / 4
    bound = maximize_boolean_quadratic(C, random_state=0).bound
    assert relaxed * (1 - 1e-4) <= bound <= relaxed * (1 + 2e-3)


# scale, zeros, types, checks


@both
@pytest.mark.parametrize("d", [12, 50])
def test_bits_of_zero_rows_stay_off(solve, is_ratio, d, rng):
    on = rng.random(d) < 0.7
    C = gram(rng.standard_normal((d, 5))) * np.outer(on, on)
    assert not solve(C, random_state=0, starts=np.ones((1, d))).z[~on].any()
    zero = solve(np.zeros((d, d)))
    assert zero.z.sum() == 1 and zero.value == zero.bound == 0 and zero.ratio == 1


@both
@pytest.mark.parametrize("d", [10, 60])
def test_equal_seeds_give_equal_results_at_every_scale(solve, is_ratio, d, rng):
    C = gram(rng.standard_normal((d, 6)))
    reference = solve(C, random_state=5)
    for factor in (1.0, 2.0, 2.0**-31, 2.0**250, 2.0**-700):
        found = solve(C * factor, random_state=5)
        assert (found.z == reference.z).all()
        assert found.value == reference.value * factor
        assert found.bound == pytest.approx(reference.bound * factor, rel=1e-12)
    for make in (np.random.default_rng, np.random.RandomState):
        assert (solve(C, random_state=make(4)).z == solve(C, random_state=make(4)).z).all()


@both
def test_input_is_not_changed_and_the_result_is_frozen(solve, is_ratio, rng):
    C, starts = gram(rng.standard_normal((40, 40))), rng.random((3, 40)) < 0.5
    for array in (C, starts):
        array.flags.writeable = False
    found = solve(C, random_state=0, starts=starts)
    with pytest.raises(ValueError, match="read-only"):
        found.z[0] = True
    with pytest.raises(AttributeError):
        found.value = 0.0
    assert "of 40 bits" in repr(found) and f"ratio={found.ratio:.4f}" in repr(found)
    assert "no bound" in repr(solve(C, certify=False))


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
    found = SOLVERS[is_ratio][0](C, random_state=seed)
    assert found.z.any() and found.value == pytest.approx(value(C.astype(float), found.z, is_ratio))
    assert found.bound is None or found.value <= found.bound


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
