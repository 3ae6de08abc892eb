"""Losses that are not the sum of squares, and nonnegative real parts."""

from functools import partial

import naive
import numpy as np
import pytest

import boolcp
from boolcp import BMP, Atom, BooleanCP, decompose
from boolcp.datasets import make_boolean_cp
from boolcp.fit.losses import judge, make_loss
from boolcp.fit.sweep import polish, sweep
from boolcp.fit.transform import design
from boolcp.metrics import hamming_error, rmse
from boolcp.result.columns import to_columns
from boolcp.storage import make_storage
from boolcp.storage.weighted import Loss, Weighted

LOSSES = ("squared", "huber", "poisson", "bernoulli")
SHAPE = (14, 12, 13)


def positive(rate=1.0, seed=0, shape=SHAPE, n_atoms=2, largest=None, is_uneven=False):
    """Return a decomposition with nonnegative parts, of a given mean or largest entry, and a generator."""
    rng, atoms = np.random.default_rng(seed), []
    for mode in range(n_atoms):
        z = np.arange(shape[mode]) % 2 == 0
        draw = partial(rng.gamma, 2.0) if is_uneven else lambda size: 0.2 + rng.random(size)
        parts = [draw(size=(d, 1)) for n, d in enumerate(shape) if n != mode]
        atoms.append(Atom(mode, rng.permutation(z), tuple(A / np.linalg.norm(A) for A in parts)))
    W = BooleanCP(shape, tuple(atoms), np.ones(n_atoms))
    size = W.to_tensor().mean() / rate if largest is None else W.to_tensor().max() / largest
    return BooleanCP(shape, tuple(atoms), W.weights / size), rng


def make_data(loss, seed=0):
    """Return data for a loss and the decomposition they were made from."""
    truth, rng = positive(1.0, seed, largest=0.9 if loss == "bernoulli" else None)
    mean = truth.to_tensor()
    if loss == "poisson":
        return rng.poisson(mean).astype(float), truth
    if loss == "bernoulli":
        return (rng.random(SHAPE) < mean).astype(float), truth
    X = mean + 0.2 * rng.standard_normal(SHAPE)
    return np.where(rng.random(SHAPE) < 0.03, X + 30 * rng.standard_normal(SHAPE), X) if loss == "huber" else X, truth


def storage(loss, X, weights=None):
    """Return the data under a loss, with nonnegative parts where the loss asks for them."""
    return Weighted(X, weights, make_loss(loss, X), nonnegative=(0, 1, 2) if loss in ("poisson", "bernoulli") else ())


# a loss entry by entry


@pytest.mark.parametrize("name", LOSSES)
def test_squares_touch_the_loss_with_its_gradient(name):
    x = np.array([0.0, 0.0, 1.0, 1.0, 0.3, 1.0, 0.0, 0.6, 0.6])
    m = np.array([0.2, 1e-4, 0.4, 1e-5, 0.7, 1.2, 1.1, 0.6, -0.1])  # also below the floor of logarithms, and above one
    loss, step = Loss(name, 0.25 if name == "huber" else 1e-3), 1e-7
    t, v = loss.near(x, m)
    slope = (loss.value(x, m + step) - loss.value(x, m - step)) / (2 * step)
    np.testing.assert_allclose((1.0 if v is None else v) * (t - m), -slope, rtol=1e-4, atol=1e-5)
    assert v is None or (v > 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_the_deviance_is_twice_the_loss_above_that_of_a_perfect_mean(name, rng):
    loss = Loss(name, 0.3 if name == "huber" else 1e-9)
    x, m = rng.integers(0, 2, 50).astype(float), rng.uniform(0.05, 0.95, 50)
    expected = {
        "squared": (x - m) ** 2,
        "huber": np.where(abs(x - m) < 0.3, (x - m) ** 2, 2 * 0.3 * abs(x - m) - 0.3**2),
        "poisson": 2 * (m - x + np.where(x > 0, -np.log(m), 0.0)),
        "bernoulli": -2 * np.log(np.where(x > 0, m, 1 - m)),
    }[name]
    np.testing.assert_allclose(loss.deviance(x, m), expected, atol=1e-7)
    np.testing.assert_allclose(loss.deviance(x, x), 0, atol=1e-12)
    assert loss.null(x) == (x.mean() if loss.is_rate else 0.0)


def test_the_threshold_of_huber_is_that_of_the_noise(rng):
    E = 2 * rng.standard_normal(100_000)
    E[::50] = 1e4
    assert make_loss("huber", E).scale == pytest.approx(3, rel=0.03)
    assert make_loss("huber", E + 7, np.full(E.shape, 7.0)).scale == pytest.approx(3, rel=0.03)
    assert make_loss("huber", np.zeros(5)).scale > 0 and make_loss("poisson", np.zeros(5)).scale > 0


# sweeps


@pytest.mark.parametrize("kind", ["complete", "missing", "weighted"])
@pytest.mark.parametrize("name", LOSSES)
def test_sweeps_lower_the_loss_and_end_at_a_minimum(name, kind, rng):
    X, truth = make_data(name)
    weights = {"complete": None, "missing": 1.0 * (rng.random(SHAPE) < 0.7), "weighted": 0.5 + rng.random(SHAPE)}[kind]
    data = storage(name, X, weights)
    factors = [0.3 + rng.random((d, 2)) for d in SHAPE]
    factors[0][:, 0], factors[1][:, 1] = rng.random(14) < 0.5, rng.random(12) < 0.5
    W, before = to_columns(truth).with_matrices(factors), np.inf
    for _ in range(60):
        W, _ = sweep(data, W)
        assert W.loss <= before * (1 + 1e-9)
        before = W.loss
    counts = np.ones(SHAPE) if weights is None else weights
    m = naive.full(W.matrices)
    assert W.loss == pytest.approx(np.sum(counts * data.loss.deviance(np.where(counts > 0, X, 0), m)))
    assert all(set(np.unique(W.matrices[n][:, n])) <= {0.0, 1.0} for n in range(2))
    t, v = data.near(m)
    slope = -(1.0 if v is None else v) * (t - m)  # conditions of Karush, Kuhn and Tucker for each real column
    for mode in range(3):
        G, A = naive.mttkrp(slope, W.matrices, mode), W.matrices[mode]
        real = W.column_mode != mode
        assert np.abs((G * A)[:, real]).max() < 2e-2 * W.loss / np.sqrt(len(A))
        if data.nonnegative:
            assert (A >= 0).all() and (G[:, real][A[:, real] == 0] >= -0.02 * np.sqrt(W.loss)).all()


@pytest.mark.parametrize("name", LOSSES[1:])
def test_no_single_bit_of_a_fit_is_better_flipped(name):
    X, _ = make_data(name, 3)
    W = decompose(X, 2, loss=name, random_state=0)
    loss = Loss(name, W.deviance.scale)

    def total(V):
        return loss.deviance(X, naive.tensor(V)).sum()

    assert W.deviance.total == pytest.approx(total(W))
    rise = judge(make_storage(X, loss=loss), W).rise
    for k, atom in enumerate(W.atoms):
        for i in range(len(atom.z)):
            flipped = Atom(atom.mode, atom.z ^ (np.arange(len(atom.z)) == i), atom.factors)
            if flipped.n_ones:
                V = BooleanCP(SHAPE, (*W.atoms[:k], flipped, *W.atoms[k + 1 :]), W.weights)
                assert total(V) >= total(W) * (1 - 1e-9)
                assert rise[k][i] == pytest.approx(total(V) - total(W), abs=1e-6 * total(W))
    np.testing.assert_allclose(W.deviance.without, [total(W[[1]]), total(W[[0]])])
    null = np.full(SHAPE, X.mean() if loss.is_rate else 0.0)
    assert W.explained() == pytest.approx(1 - total(W) / loss.deviance(X, null).sum())


# fits


@pytest.mark.parametrize("name", LOSSES)
def test_bits_are_found_under_every_loss(name):
    X, truth = make_data(name, 1)
    W = decompose(X, 2, loss=name, nonnegative=name == "squared", random_state=0)
    assert hamming_error(W, truth) == 0 and rmse(W, truth.to_tensor()) < 0.3
    if name != "huber":
        assert all((A >= 0).all() for A in W.factors)
    if name != "squared":
        assert f"{100 * W.explained():.1f} % of the {name.capitalize()} deviance explained" in W.summary()
        assert W.data_norm2 is not None and len(W.data_inner) == W.n_atoms
        assert 0 < W.explained() < 1 and (W.explained_unique() > 0).all() and np.isnan(W.explained_alone()).all()
        with pytest.raises(ValueError, match=f'no certificates under loss="{name}"'):
            W.certify(X)


def test_artifacts_mislead_squares_and_not_huber():
    X, truth = make_data("huber", 2)
    plain, robust = (decompose(X, 2, loss=name, random_state=0) for name in ("squared", "huber"))
    assert rmse(robust, truth.to_tensor()) < 0.1 < rmse(plain, truth.to_tensor())
    assert hamming_error(robust, truth) == 0


@pytest.mark.parametrize("seed", [3, 8, 20])
def test_few_counts_have_the_loss_of_a_start_at_the_truth(seed):
    truth, rng = positive(0.3, seed, (18, 17, 16), 3, is_uneven=True)
    X = rng.poisson(truth.to_tensor()).astype(float)
    known = polish(storage("poisson", X), to_columns(truth), max_iter=100)
    assert decompose(X, 3, loss="poisson", random_state=0).deviance.total <= known.loss * 1.001


def test_confidence_knows_how_few_the_counts_are():
    wrong, said = 0, 0.0
    for seed in range(4):
        truth, rng = positive(0.12, seed, (18, 17, 16), 3, is_uneven=True)
        W = decompose(rng.poisson(truth.to_tensor()).astype(float), 3, loss="poisson", random_state=0)
        wrong += hamming_error(W, truth) * (18 + 17 + 16)
        said += sum(float(np.sum(1 - p)) for p in W.bit_confidence())
    assert wrong / 3 - 1 < said < 3 * wrong + 10


@pytest.mark.parametrize("name", LOSSES[1:])
def test_new_slices_are_solved_under_the_loss(name):
    X, _ = make_data(name, 5)
    model = BMP(2, loss=name, random_state=0).fit(X)
    for mode in (0, 2):
        again = model.inverse_transform(model.transform(X, mode=mode), mode=mode)
        assert rmse(again, model.decomposition_.to_tensor()) < 0.02
    assert model.score(X) == pytest.approx(model.decomposition_.explained(), abs=2e-3)


def test_a_fit_under_a_loss_is_saved_and_loaded(tmp_path):
    X, _ = make_data("poisson", 8)
    W = decompose(X, 2, loss="poisson", random_state=0)
    W.save(tmp_path / "result.nc")
    again = boolcp.load(tmp_path / "result.nc")
    assert again.explained() == W.explained() and again.summary() == W.summary()
    np.testing.assert_allclose(again.explained_unique(), W.explained_unique())
    assert W[[1, 0]].explained() == W.explained() and W[[0]].deviance is None


# nonnegative parts


def test_nonnegative_parts_of_data_of_both_signs_are_not_lost():
    X = boolcp.datasets.make_boolean_cp((9, 8, 60), 2, boolean_modes=[2], noise=0.5, random_state=0).X
    W = boolcp.BMP(2, boolean_modes=[2], nonnegative=True, random_state=0).fit(X).decomposition_
    assert W.n_atoms == 2 and W.explained() > 0.19  # what one atom explains


def test_only_the_modes_that_are_listed_are_nonnegative():
    for seed in range(3):  # whichever mode is listed, the other takes the signs
        X = make_boolean_cp(SHAPE, 2, noise=0.1, boolean_modes=[0], random_state=seed).X
        X = X * np.array([1, 1, -1])[np.arange(12) % 3][:, None]
        for mode, other in ((1, 2), (2, 1)):
            model = BMP(2, boolean_modes=[0], nonnegative=[mode], random_state=0).fit(X)
            W = model.decomposition_
            assert (W.factors[mode] >= 0).all() and (W.factors[other] < 0).any()
            assert (model.transform(X, mode=mode) >= 0).all() and (model.transform(X, mode=other) < 0).any()


def test_nonnegative_atoms_of_rank_two_and_with_missing_entries():
    X, truth = make_data("squared", 3)
    W = decompose(X, 1, atom_rank=2, boolean_modes=[2], nonnegative=True, random_state=0)
    assert W.atoms[0].rank == 2 and all((A >= 0).all() for A in W.atoms[0].factors)
    mask = np.random.default_rng(0).random(SHAPE) < 0.6
    missing = decompose(X, 2, mask=mask, nonnegative=True, random_state=0)
    assert hamming_error(missing, truth) == 0 and all((A >= 0).all() for A in missing.factors)


def test_new_slices_have_the_factor_of_nnls():
    X, _ = make_data("squared", 5)
    model = BMP(2, nonnegative=True, random_state=0).fit(X)
    found = model.transform(X, mode=2)
    blocks, is_bit = design(model.decomposition_, 2)
    blocks = blocks.reshape(2, -1)
    for i in range(3):
        right = blocks @ X[:, :, i].ravel()
        expected = naive.nonnegative_row(blocks @ blocks.T, right, is_bit, np.ones(2, dtype=bool))
        np.testing.assert_allclose(found[i], expected, atol=1e-10)


@pytest.mark.parametrize(
    ("loss", "value", "words"),
    [("poisson", -2.0, r"entries 0 or larger, but X is -2 at"), ("bernoulli", 1.5, "from 0 to 1, but X is 1.5 at")],
)
def test_missing_entries_may_be_what_a_loss_cannot_take(loss, value, words, rng):
    X = rng.random((4, 5, 6))
    X[1, 2, 3] = value
    with pytest.raises(ValueError, match=words):
        BMP(1, loss=loss).fit(X)
    mask = np.arange(120).reshape(4, 5, 6) != 45
    assert not mask[1, 2, 3]
    BMP(1, loss=loss, random_state=0).fit(X, mask=mask)


# against a constant


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("n_atoms", [1, 2])
def test_no_fit_is_worse_than_the_best_constant(name, n_atoms, rng):
    X = np.kron(np.eye(4), np.ones((3, 3)))[:, :, None] * rng.poisson(2, (12, 12, 8))
    X = np.minimum(X, 1.0) if name == "bernoulli" else X
    W = decompose(X, n_atoms, loss=name, nonnegative=True, random_state=0)
    loss = Loss() if W.deviance is None else Loss(name, W.deviance.scale)
    best = min(loss.deviance(X, np.full(X.shape, c)).sum() for c in np.linspace(X.min(), X.max(), 200))
    assert loss.deviance(X, W.to_tensor()).sum() <= best


def test_a_constant_rate_is_one_atom_that_is_on_everywhere(rng):
    W = decompose(rng.poisson(1.0, (20, 15, 30)).astype(float), 2, loss="poisson", boolean_modes=[2], random_state=0)
    assert W.atoms[0].is_baseline and not any("split" in reason for reason in boolcp.degeneracy(W).reasons)


def test_a_fit_that_was_stopped_warns_if_a_constant_is_better(rng):
    X = np.kron(np.eye(4), np.ones((3, 3)))[:, :, None] * rng.poisson(2, (12, 12, 8))
    with pytest.warns(boolcp.BoolcpWarning, match="worse than the mean of the data"):
        BMP(1, loss="poisson", random_state=0).fit(X, callback=lambda progress: True)


@pytest.mark.parametrize("size", [1e3, 1e5, 1e7])
def test_the_size_of_outliers_does_not_make_a_fit_longer(size, rng):
    X, steps = rng.normal(size=(6, 7, 8)), []
    X.ravel()[rng.choice(X.size, 6, replace=False)] = size
    BMP(2, loss="huber", random_state=0, max_iter=10).fit(X, callback=lambda progress: steps.append(progress.stage))
    assert len(steps) < 60
