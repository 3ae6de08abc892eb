from itertools import product

import numpy as np
import pytest
from sklearn.base import clone

from boolcp import BMP, AtomicNorm, alpha_max, atomic_norm_path
from boolcp.contractions import gram
from boolcp.datasets import make_boolean_cp
from boolcp.fit._kernels import shrink_rows
from boolcp.fit.convex import Program, Terms, best_blocks, dual_norm, noise_norm, shrunk_blocks, solve, thin
from boolcp.metrics import hamming_error, rmse

CRITERIA = ("normalized", "published")
SHAPES = ((4, 5, 3), (5, 6), (3, 4, 2, 2), (6, 3, 4))


def all_bits(d):
    return np.array(list(product([0, 1], repeat=d))[1:], dtype=float).T


def optimum(program):
    """Return the least objective of Eq. (3) over all bits of all modes, by a general solver."""
    cvxpy = pytest.importorskip("cvxpy")
    X, W, norm = program.X, 0, 0
    for mode in program.modes:
        Z = all_bits(X.shape[mode])
        V = cvxpy.Variable((Z.shape[1], X.size // X.shape[mode]))
        places = np.moveaxis(np.arange(X.size).reshape(X.shape), mode, 0).ravel()
        W = W + cvxpy.vec(Z @ V, order="C")[np.argsort(places)]
        sizes = np.sqrt(Z.sum(axis=0)) if program.criterion == "normalized" else np.ones(Z.shape[1])
        norm = norm + sizes @ cvxpy.norm(V, axis=1)
    seen = np.ones(X.size, dtype=bool) if program.observed is None else program.observed.ravel()
    loss = cvxpy.sum_squares((W - X.ravel())[seen]) / 2
    problem = cvxpy.Problem(cvxpy.Minimize(loss + program.alpha * norm))
    return problem.solve(solver="SCS", eps=1e-8, max_iters=200_000)


def tiny_program(i, rng):
    shape = SHAPES[i % 4]
    X, observed = rng.standard_normal(shape), rng.random(shape) < 0.7 if i // 2 % 2 else None
    X = X if observed is None else np.where(observed, X, 0.0)
    program = Program(X, observed, tuple(range(len(shape))), 0.0, CRITERIA[i % 2])
    largest = dual_norm(program, X, rng)
    return Program(X, observed, program.modes, largest * rng.uniform(0.2, 0.8), program.criterion)


def assert_optimal(i, rng):
    """The objective is the least of all, and no proved gap on the way was below the true one."""
    program = tiny_program(i, rng)
    steps = list(solve(program, rng, tol=1e-7, max_iter=300))
    exact = optimum(program)
    assert steps[-1].is_converged and steps[-1].objective == pytest.approx(exact, rel=1e-6)
    for step in steps:
        assert step.dual <= exact * (1 + 1e-6) <= step.objective * (1 + 2e-6)


def test_the_optimum_over_all_bits_is_reached(rng):
    for i in range(8):
        assert_optimal(i, rng)


@pytest.mark.slow
def test_the_optimum_over_all_bits_is_reached_in_thirty_programs():
    for i in range(30):
        assert_optimal(i, np.random.default_rng(100 + i))


# Blocks given the bits


def test_rows_are_shrunk_to_the_optimum(rng):
    Z = (rng.random((9, 4)) < 0.5).astype(float)
    Z[:4] = np.eye(4)
    G, Q, A, penalties = Z.T @ Z, rng.standard_normal((4, 3)), np.zeros((4, 3)), np.array([0.1, 0.5, 1.0, 5.0])
    shrink_rows(G, Q, A, penalties, 1e-13)
    slopes = G @ A - Q
    for a, slope, penalty in zip(A, slopes, penalties, strict=True):
        if a.any():
            np.testing.assert_allclose(slope, -penalty * a / np.linalg.norm(a), atol=1e-9)
        else:
            assert np.linalg.norm(slope) <= penalty
    assert A.any(axis=1).any() and not A.any(axis=1).all()


def test_blocks_in_few_coordinates_are_the_blocks(rng):
    Z = (rng.random((9, 4)) < 0.5).astype(float)
    Z[:4] = np.eye(4)
    R, V = rng.standard_normal((9, 20)), rng.standard_normal((4, 20))
    penalties = np.array([0.1, 0.5, 1.0, 5.0])
    direct = V.copy()
    shrink_rows(Z.T @ Z, Z.T @ R + Z.T @ Z @ V, direct, penalties, 1e-13)
    np.testing.assert_allclose(best_blocks(Z, Z.T @ R, V, penalties), direct, atol=1e-9)


def test_singular_values_are_shrunk_to_the_optimum(rng):
    """The slope is -penalty U T' on the singular vectors of the block, and no larger elsewhere."""
    Z, R = (rng.random((9, 2)) < 0.6).astype(float), 3 * rng.standard_normal((9, 12))
    V, penalties = np.zeros((2, 12)), np.array([2.0, 3.0])
    for _ in range(60):
        V = shrunk_blocks(Z, Z.T @ (R - Z @ V), V, penalties, (3, 4))
    for k in range(2):
        slope = (Z[:, k] @ (R - Z @ V)).reshape(3, 4)
        assert np.linalg.norm(slope, 2) <= penalties[k] * (1 + 1e-6)
        nuclear = np.linalg.svd(V[k].reshape(3, 4), compute_uv=False).sum()
        assert nuclear > 0 and np.sum(slope * V[k].reshape(3, 4)) == pytest.approx(penalties[k] * nuclear)


# The estimator


@pytest.fixture(scope="module")
def sample():
    return make_boolean_cp((22, 24, 26), 3, noise=0.5, random_state=3)


def test_the_gap_is_proved_and_falls(sample):
    model = AtomicNorm(alpha=60.0, random_state=0).fit(sample.X)
    gaps = [step.duality_gap for step in model.history_]
    assert model.converged_ and gaps[-1] == model.duality_gap_ <= 0.01 and gaps[0] > 0.1
    objectives = np.array([step.objective for step in model.history_])
    assert (np.diff(objectives) <= 1e-9 * objectives[0]).all()
    W = model.decomposition_
    sizes = W.weights * np.sqrt([atom.n_ones for atom in W.atoms])
    expected = np.sum((sample.X - W.to_tensor()) ** 2) / 2 + 60 * sizes.sum()
    assert model.objective_ == pytest.approx(expected) and model.n_iter_ == len(gaps)
    assert model.objective_ - model.dual_objective_ == pytest.approx(model.duality_gap_ * model.objective_)


def test_above_alpha_max_nothing_is_left(sample):
    for criterion in CRITERIA:
        largest = alpha_max(sample.X, criterion=criterion, random_state=0)
        options = {"criterion": criterion, "random_state": 0}
        zero = AtomicNorm(1.0001 * largest, **options).fit(sample.X)
        assert zero.decomposition_.n_atoms == 0 and zero.duality_gap_ < 1e-9
        some = AtomicNorm(0.7 * largest, **options).fit(sample.X)
        assert some.decomposition_.n_atoms and some.objective_ < zero.objective_


def test_the_path_has_the_solutions_of_its_alphas(sample):
    points = atomic_norm_path(sample.X, n_alphas=3, alpha_min_ratio=0.4, random_state=0)
    assert [point.alpha for point in points] == sorted((point.alpha for point in points), reverse=True)
    for point in points[1:]:
        cold = AtomicNorm(point.alpha, random_state=1).fit(sample.X)
        assert point.duality_gap <= 0.01
        assert point.objective == pytest.approx(cold.objective_, rel=0.01)
    assert atomic_norm_path(sample.X, alphas=[50, 90], random_state=0)[0].alpha == 90


def test_order_of_modes_and_scale_do_not_matter(sample):
    first = AtomicNorm(60.0, tol=1e-3, random_state=0).fit(sample.X)
    turned = AtomicNorm(60.0, tol=1e-3, random_state=0).fit(sample.X.transpose(2, 0, 1))
    large = AtomicNorm(600.0, tol=1e-3, random_state=0).fit(10 * sample.X)
    assert turned.objective_ == pytest.approx(first.objective_, rel=1e-3)
    assert large.objective_ == pytest.approx(100 * first.objective_, rel=1e-3)


def test_unobserved_values_do_not_matter(sample):
    mask = np.random.default_rng(0).random(sample.X.shape) < 0.7
    filled = np.where(mask, sample.X, 999.0)
    model = AtomicNorm(50.0, random_state=0).fit(np.where(mask, sample.X, np.nan))
    again = AtomicNorm(50.0, random_state=0).fit(filled, mask=mask)
    assert model.converged_ and model.objective_ == again.objective_
    assert (filled[~mask] == 999).all()
    np.testing.assert_array_equal(model.decomposition_.to_tensor(), again.decomposition_.to_tensor())
    assert rmse(model.decomposition_, sample.clean) < 0.9 * np.sqrt(np.mean(sample.clean**2))


def test_only_the_boolean_modes_are_used(sample):
    model = AtomicNorm(60.0, boolean_modes=[1], random_state=0).fit(sample.X)
    assert set(model.decomposition_.boolean_mode) == {1}
    assert AtomicNorm(60.0, random_state=0).fit(sample.X).objective_ < model.objective_


def test_auto_is_the_dual_norm_of_noise(rng):
    shape = (20, 25, 30)
    for criterion in CRITERIA:
        bound = noise_norm(shape, (0, 1, 2), 2.0, criterion, False)
        norms = []
        for _ in range(5):
            E = 2.0 * rng.standard_normal(shape)
            norms.append(dual_norm(Program(E, None, (0, 1, 2), 0.0, criterion), E, rng))
        assert 0.85 * bound <= np.mean(norms) <= bound
    E = rng.standard_normal(shape)
    model = AtomicNorm(random_state=0).fit(E)
    assert model.sigma_ == pytest.approx(1, rel=0.05)
    assert model.alpha_ == pytest.approx(noise_norm(shape, (0, 1, 2), model.sigma_, "normalized", False))
    assert model.lambda_S_ == pytest.approx(model.sigma_ * np.sqrt(75))


def test_debiasing_lowers_the_loss_for_the_same_bits(sample):
    plain, free = (AtomicNorm(70.0, debias=debias, random_state=0).fit(sample.X) for debias in (False, True))
    before, after = plain.decomposition_, free.decomposition_
    assert {atom.z.tobytes() for atom in before.atoms} == {atom.z.tobytes() for atom in after.atoms}
    assert after.explained() > before.explained()
    residual = sample.X - after.to_tensor()
    for atom in after.atoms:  # least squares: nothing is left along any bits
        assert np.abs(np.tensordot(atom.z.astype(float), residual, axes=(0, atom.mode))).max() < 1e-2


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_atoms_of_rank_one_are_found_without_their_number(noise):
    X, clean, truth = make_boolean_cp((30, 32, 34), 4, noise=noise, random_state=5)
    model = AtomicNorm(atom_rank=1, debias=True, random_state=0).fit(X)
    W = model.decomposition_
    assert W.n_atoms == 4 and hamming_error(W, truth) == 0 and np.isnan(model.duality_gap_) and model.converged_
    same = BMP(4, random_state=0).fit(X).decomposition_
    assert rmse(W, clean) == pytest.approx(rmse(same, clean), rel=1e-3)
    assert "nothing is proved" in model.summary()


def test_no_atoms_cancel(rng):
    """Two atoms with nearly the same real part and bits are not used against each other."""
    X = make_boolean_cp((20, 21, 22), 5, noise=1.0, random_state=8).X
    W = AtomicNorm(0.4 * alpha_max(X, random_state=0), random_state=0).fit(X).decomposition_
    gram = W.inner_products() * np.outer(W.weights, W.weights)
    cosines = gram / np.sqrt(np.outer(gram.diagonal(), gram.diagonal()))
    assert W.n_atoms > 1 and cosines.min() > -0.3


def test_a_matrix_and_a_tensor_without_noise():
    X, *_ = make_boolean_cp((18, 20), 2, boolean_modes=[0], random_state=0)
    model = AtomicNorm(alpha=1e-3, boolean_modes=[0], tol=1e-3, debias=True, random_state=0).fit(X)
    assert model.decomposition_.explained() > 1 - 1e-6 and model.duality_gap_ <= 1e-3
    assert AtomicNorm(random_state=0).fit(np.zeros((4, 5))).decomposition_.n_atoms == 0


def test_equal_seeds_give_equal_results_and_parameters_are_kept(sample):
    model = AtomicNorm(70.0, random_state=4)
    first, second = (clone(model).fit(sample.X) for _ in range(2))
    assert first.objective_ == second.objective_ and model.get_params()["alpha"] == 70.0
    np.testing.assert_array_equal(first.decomposition_.to_tensor(), second.decomposition_.to_tensor())


def test_the_summary_says_what_is_proved(sample):
    model = AtomicNorm(60.0, random_state=0).fit(sample.X)
    last = model.summary().splitlines()[-1]
    assert last.startswith("proved: no decomposition has an objective lower by more than 0.")
    assert f"{100 * model.duality_gap_:.2g} %" in last


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"alpha": "big"}, ValueError, "alpha must be one of 'auto'"),
        ({"alpha": 0.0}, ValueError, "alpha must be finite and above 0"),
        ({"alpha": 1.0, "criterion": "best"}, ValueError, "criterion must be one of"),
        ({"alpha": 1.0, "atom_rank": 2}, ValueError, "atom_rank must be None"),
        ({"alpha": 1.0, "tol": 0.0}, ValueError, "tol must be"),
        ({"alpha": 1.0, "max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"sigma": -1.0}, ValueError, "sigma must be"),
    ],
)
def test_bad_parameters_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        AtomicNorm(**options).fit(np.ones((3, 4, 5)))


def test_what_cannot_be_done_is_refused():
    X = np.ones((3, 4, 5))
    X[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="needs sigma"):
        AtomicNorm().fit(X)
    with pytest.raises(ValueError, match="order 2 or 3"):
        AtomicNorm(alpha=1.0, atom_rank=1).fit(np.ones((2, 3, 2, 3)))
    with pytest.raises(ValueError, match="alphas must be"):
        atomic_norm_path(np.ones((3, 4)), alphas=[1.0, -1.0])


def test_terms_add_up_to_their_tensor(rng):
    Z, V = (rng.random((4, 2)) < 0.7).astype(float), rng.standard_normal((2, 15))
    Z[0] = 1
    terms = Terms({1: (Z, V)})
    expected = np.einsum("jk,kil->ijl", Z, V.reshape(2, 3, 5))
    np.testing.assert_allclose(terms.to_tensor((3, 4, 5)), expected)
    np.testing.assert_allclose(terms.to_decomposition((3, 4, 5)).to_tensor(), expected)
    np.testing.assert_allclose(terms.to_decomposition((3, 4, 5), is_low_rank=True).to_tensor(), expected)


# one Boolean mode: the thin form, which a lazy array needs


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_the_thin_form_has_the_solution_of_the_tensor(mode, criterion):
    X = make_boolean_cp((8, 9, 10), 2, noise=0.5, random_state=mode).X
    full = Program(X, None, (mode,), 0.0, criterion)
    alpha = 0.4 * dual_norm(full, X, np.random.default_rng(0))
    *_, last = solve(Program(X, None, (mode,), alpha, criterion), np.random.default_rng(0), tol=1e-8, max_iter=300)
    model = AtomicNorm(alpha, boolean_modes=[mode], criterion=criterion, tol=1e-8, random_state=0).fit(X)
    W = model.decomposition_
    assert model.converged_ and model.objective_ == pytest.approx(last.objective, rel=1e-7)
    np.testing.assert_allclose(W.to_tensor(), last.terms.to_tensor(X.shape), atol=1e-3)
    loss = np.sum((X - W.to_tensor()) ** 2) / 2
    sizes = [
        w * (np.sqrt(atom.n_ones) if criterion == "normalized" else 1)
        for w, atom in zip(W.weights, W.atoms, strict=True)
    ]
    assert loss + alpha * sum(sizes) == pytest.approx(model.objective_, rel=1e-9)


def test_inner_products_of_the_thin_form_are_those_of_the_tensor(rng):
    X = rng.standard_normal((6, 4, 5)) * np.array([1, 1, 1, 1, 1, 0])[:, None, None]
    L = thin(gram(X, 0))
    assert L.shape == (6, 5)
    np.testing.assert_allclose(L @ L.T, gram(X, 0), atol=1e-12)
    assert not thin(np.zeros((3, 3))).any()


@pytest.mark.parametrize("alpha", ["auto", 20.0])
def test_a_lazy_array_with_one_boolean_mode_is_read_in_passes(alpha):
    da = pytest.importorskip("dask.array")
    X = make_boolean_cp((12, 40, 10), 2, boolean_modes=[0], noise=0.5, random_state=0).X
    lazy = Counted(da.from_array(X, chunks=(12, 10, 10)))
    options = {"boolean_modes": [0], "random_state": 0, "debias": True}
    ours = AtomicNorm(alpha, max_memory="1MB", **options).fit(lazy.array)
    whole = AtomicNorm(alpha, **options).fit(X)
    assert ours.alpha_ == pytest.approx(whole.alpha_) and ours.objective_ == pytest.approx(whole.objective_)
    np.testing.assert_allclose(ours.decomposition_.to_tensor(), whole.decomposition_.to_tensor(), atol=1e-8)
    assert lazy.n_read / 4 <= (5 if alpha == "auto" else 3)
    with pytest.raises(MemoryError, match="the blocks of"):
        AtomicNorm(1e-3, boolean_modes=[0], random_state=0, max_memory=60_000).fit(lazy.array)


class Counted:
    """A dask array that counts the chunks that are read."""

    def __init__(self, array):
        self.n_read = 0
        self.array = array.map_blocks(self.read, dtype=array.dtype, meta=np.zeros((0, 0, 0)))

    def read(self, chunk):
        self.n_read += 1
        return chunk
