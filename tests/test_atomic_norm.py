"""Eq. (3): the gap closes, the optimum over all bits is reached, and its conditions hold."""

from itertools import product

import naive
import numpy as np
import pytest
from sklearn.base import clone

from boolcp import BMP, AtomicNorm, alpha_max
from boolcp.datasets import make_boolean_cp
from boolcp.metrics import hamming_error, rmse

CRITERIA = ("normalized", "published")
SHAPES = ((4, 5, 3), (5, 6), (3, 4, 2, 2), (6, 3, 4))


def all_bits(d):
    return np.array(list(product([0, 1], repeat=d))[1:], dtype=float).T


def largest_score(R, criterion="normalized"):
    """Return the dual norm of R, max |R_n'z| / s(z) over all bits of all modes, by trying them."""
    return naive.best_score(R, None, criterion == "normalized")


def optimum(X, mask, alpha, criterion):
    """Return the least objective of Eq. (3) over all bits of all modes, by a general solver."""
    cvxpy = pytest.importorskip("cvxpy")
    W, norm = 0, 0
    for mode, d in enumerate(X.shape):
        Z = all_bits(d)
        V = cvxpy.Variable((Z.shape[1], X.size // d))
        places = np.moveaxis(np.arange(X.size).reshape(X.shape), mode, 0).ravel()
        W = W + cvxpy.vec(Z @ V, order="C")[np.argsort(places)]
        sizes = np.sqrt(Z.sum(axis=0)) if criterion == "normalized" else np.ones(Z.shape[1])
        norm = norm + sizes @ cvxpy.norm(V, axis=1)
    loss = cvxpy.sum_squares((W - X.ravel())[mask.ravel()]) / 2
    return cvxpy.Problem(cvxpy.Minimize(loss + alpha * norm)).solve(solver="SCS", eps=1e-8, max_iters=200_000)


# small problems, all bits


@pytest.mark.parametrize("i", range(8))
def test_the_optimum_over_all_bits_is_reached(i):
    """No proved gap on the way was below the true one."""
    rng = np.random.default_rng(100 + i)
    shape, criterion = SHAPES[i % 4], CRITERIA[i % 2]
    X, mask = rng.standard_normal(shape), rng.random(shape) < 0.7 if i // 2 % 2 else np.ones(shape, dtype=bool)
    alpha = rng.uniform(0.2, 0.8) * largest_score(np.where(mask, X, 0), criterion)
    model = AtomicNorm(alpha, criterion=criterion, tol=1e-7, max_iter=300, random_state=0).fit(X, mask=mask)
    exact = optimum(X, mask, alpha, criterion)
    assert model.converged_ and model.objective_ == pytest.approx(exact, rel=1e-6)
    for step in model.history_:
        assert step.dual_objective <= exact * (1 + 1e-6) <= step.objective * (1 + 2e-6)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("with_gaps", [False, True])
def test_the_conditions_of_the_optimum_hold(criterion, with_gaps, rng):
    """No bits score above alpha, those of an atom score alpha, and their slope is along its block."""
    X = make_boolean_cp((7, 8, 9), 2, noise=0.5, random_state=0).X
    mask = rng.random(X.shape) < 0.8 if with_gaps else np.ones(X.shape, dtype=bool)
    alpha = 0.3 * largest_score(np.where(mask, X, 0), criterion)
    model = AtomicNorm(alpha, criterion=criterion, tol=1e-8, random_state=0).fit(X, mask=mask)
    W = model.decomposition_
    R = np.where(mask, X - W.to_tensor(), 0)
    assert model.converged_ and W.n_atoms and largest_score(R, criterion) <= alpha * (1 + 1e-3)
    for atom, weight in zip(W.atoms, W.weights, strict=True):
        slope = np.tensordot(atom.z.astype(float), R, axes=(0, atom.mode))
        size = alpha * np.sqrt(atom.n_ones) if criterion == "normalized" else alpha
        if weight > 1e-2 * W.weights.max():
            np.testing.assert_allclose(slope, size * atom.dense_block(), atol=2e-2 * size)


def test_above_alpha_max_nothing_is_left(rng):
    X = make_boolean_cp((9, 10, 8), 2, noise=0.5, random_state=3).X
    for criterion in CRITERIA:
        largest = alpha_max(X, criterion=criterion, random_state=0)
        assert largest_score(X, criterion) <= largest <= 1.01 * largest_score(X, criterion)
        options = {"criterion": criterion, "random_state": 0}
        zero = AtomicNorm(1.0001 * largest, **options).fit(X)
        assert zero.decomposition_.n_atoms == 0 and zero.duality_gap_ < 1e-9
        some = AtomicNorm(0.7 * largest, **options).fit(X)
        assert some.decomposition_.n_atoms and some.objective_ < zero.objective_
    assert alpha_max(X, boolean_modes=[1], random_state=0) <= alpha_max(X, random_state=0)


# the estimator


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
    sizes = W.weights * np.sqrt([atom.n_ones for atom in W.atoms])  # what atoms cost
    expected = np.sum((sample.X - W.to_tensor()) ** 2) / 2 + 60 * sizes.sum()
    assert model.objective_ == pytest.approx(expected) and model.n_iter_ == len(gaps)
    assert model.objective_ - model.dual_objective_ == pytest.approx(model.duality_gap_ * model.objective_)
    assert model.history_[-1].n_atoms == W.n_atoms
    last = model.summary().splitlines()[-1]
    assert last.startswith("proved: no decomposition has an objective lower by more than 0.")
    assert f"{100 * model.duality_gap_:.2g} %" in last


def test_the_gap_of_many_atoms_closes(rng):
    """Correlated data need more atoms than a mode has entries."""
    X = rng.standard_normal((12, 25, 14)).cumsum(axis=1)
    model = AtomicNorm(0.03 * alpha_max(X, random_state=0), random_state=0).fit(X)
    assert model.converged_ and model.decomposition_.n_atoms > 25


def test_order_of_modes_scale_and_dtype_do_not_matter(sample):
    first = AtomicNorm(60.0, tol=1e-3, random_state=0).fit(sample.X)
    for factor, X in (
        (1, sample.X.transpose(2, 0, 1)),
        (1, np.asfortranarray(sample.X)),
        (1, sample.X.astype(np.float32)),
        (10, 10 * sample.X),
    ):
        model = AtomicNorm(60.0 * factor, tol=1e-3, random_state=0).fit(X)
        assert model.objective_ == pytest.approx(factor**2 * first.objective_, rel=1e-3)


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


def test_auto_keeps_noise_out(rng):
    shape = (20, 25, 30)
    for criterion in CRITERIA:
        noise = [rng.standard_normal(shape) for _ in range(5)]
        models = [AtomicNorm(criterion=criterion, random_state=0).fit(E) for E in noise]
        norms = [alpha_max(E, criterion=criterion, random_state=0) for E in noise]
        assert np.mean([model.decomposition_.n_atoms == 0 for model in models]) >= 0.8
        assert 0.85 <= np.mean(norms) / np.mean([model.alpha_ for model in models]) <= 1.02
    assert models[0].sigma_ == pytest.approx(1, rel=0.05)
    assert models[0].lambda_S_ == pytest.approx(models[0].sigma_ * np.sqrt(75))
    assert AtomicNorm(sigma=2.0, random_state=0).fit(noise[0]).sigma_ == 2.0


def test_debiasing_lowers_the_loss_for_the_same_bits(sample):
    plain, free = (AtomicNorm(70.0, debias=debias, random_state=0).fit(sample.X) for debias in (False, True))
    before, after = plain.decomposition_, free.decomposition_
    assert {atom.z.tobytes() for atom in before.atoms} == {atom.z.tobytes() for atom in after.atoms}
    assert after.explained() > before.explained()
    residual = sample.X - after.to_tensor()
    for atom in after.atoms:  # least squares: nothing is left along any bits
        assert np.abs(np.tensordot(atom.z.astype(float), residual, axes=(0, atom.mode))).max() < 1e-2


def test_no_atoms_cancel():
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


def test_labels_are_kept_and_an_array_on_disk_is_loaded(sample, tmp_path):
    xr, da = pytest.importorskip("xarray"), pytest.importorskip("dask.array")
    named = xr.DataArray(sample.X, dims=("neuron", "time", "trial"))
    first = AtomicNorm(70.0, boolean_modes=["trial"], random_state=0).fit(named)
    assert first.decomposition_.dims == named.dims and set(first.decomposition_.boolean_mode) == {2}
    second = AtomicNorm(70.0, boolean_modes=[2], random_state=0).fit(da.from_array(sample.X))
    assert second.objective_ == first.objective_


# rank one


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_atoms_of_rank_one_are_found_without_their_number(noise):
    X, clean, truth = make_boolean_cp((30, 32, 34), 4, noise=noise, random_state=5)
    model = AtomicNorm(atom_rank=1, debias=True, random_state=0).fit(X)
    W = model.decomposition_
    assert W.n_atoms == 4 and hamming_error(W, truth) == 0 and np.isnan(model.duality_gap_) and model.converged_
    same = BMP(4, random_state=0).fit(X).decomposition_
    assert rmse(W, clean) == pytest.approx(rmse(same, clean), rel=1e-3)
    assert "nothing is proved" in model.summary()


@pytest.mark.parametrize("shape", [(12, 14), (12, 13, 14)])
def test_the_conditions_of_the_optimum_with_nuclear_norms_hold(shape):
    """The slope of an atom is alpha |z| U T' on the singular vectors of its block, and not larger elsewhere."""
    X = make_boolean_cp(shape, 2, noise=0.3, random_state=1).X
    model = AtomicNorm(0.3 * alpha_max(X, random_state=0), atom_rank=1, tol=1e-6, random_state=0).fit(X)
    W = model.decomposition_
    R, total = X - W.to_tensor(), 0.0
    for atom, weight in zip(W.atoms, W.weights, strict=True):
        slope = np.atleast_2d(np.tensordot(atom.z.astype(float), R, axes=(0, atom.mode)))
        size, block = model.alpha_ * np.sqrt(atom.n_ones), np.atleast_2d(atom.dense_block())
        assert np.linalg.norm(slope, 2) <= size * (1 + 1e-2)
        nuclear = np.linalg.svd(block, compute_uv=False).sum()
        assert np.sum(slope * block) == pytest.approx(size * nuclear, rel=1e-2)
        total += weight * size * nuclear
    assert W.n_atoms and model.objective_ == pytest.approx(np.sum(R**2) / 2 + total)


# errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": "big"}, "alpha must be one of 'auto'"),
        ({"alpha": 0.0}, "alpha must be finite and above 0"),
        ({"alpha": 1.0, "criterion": "best"}, "criterion must be one of"),
        ({"alpha": 1.0, "atom_rank": 2}, "atom_rank must be 'block'"),
        ({"alpha": 1.0, "tol": 0.0}, "tol must be"),
        ({"alpha": 1.0, "max_iter": 0}, "max_iter must be at least 1"),
        ({"sigma": -1.0}, "sigma must be"),
    ],
)
def test_bad_parameters_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AtomicNorm(**options).fit(np.ones((3, 4, 5)))


def test_what_cannot_be_done_is_refused():
    X = np.ones((3, 4, 5))
    X[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="needs sigma"):
        AtomicNorm().fit(X)
    with pytest.raises(ValueError, match="order 2 or 3"):
        AtomicNorm(alpha=1.0, atom_rank=1).fit(np.ones((2, 3, 2, 3)))
