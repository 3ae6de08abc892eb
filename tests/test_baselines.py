import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from boolcp import BMP
from boolcp.baselines import LFM, LFMmix, SUSTain
from boolcp.baselines.lfm import latent_feature_path, mixture_terms, project_out, real_rows
from boolcp.baselines.sustain import update_columns
from boolcp.datasets import make_boolean_cp
from boolcp.metrics import hamming_error, rmse
from boolcp.result.atoms import BooleanCP

SHAPE = (12, 13, 14)
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
CP, Tucker = (getattr(importlib.import_module("cp_tucker"), name) for name in ("CP", "Tucker"))
METHODS = [CP, Tucker, LFM, LFMmix, SUSTain]


def loss(X, W, mask=None):
    error = (X - W.to_tensor())[... if mask is None else mask]
    return np.sum(error**2) / 2


@pytest.fixture
def noisy():
    return make_boolean_cp(SHAPE, 3, noise=0.3, random_state=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(12, 13), SHAPE, (6, 7, 5, 4)])
def test_they_are_estimators_like_bmp(method, shape):
    X = make_boolean_cp(shape, 2, noise=0.2, random_state=1).X
    model = method(2, random_state=0)
    assert clone(model).get_params() == model.get_params()
    before = X.copy()
    assert model.fit(X) is model
    np.testing.assert_array_equal(X, before)
    assert model.decomposition_.to_tensor().shape == shape and rmse(model.decomposition_, X) > 0
    assert model.loss_ == pytest.approx(loss(X, model.decomposition_), rel=1e-6)
    assert model.loss_ < np.sum(X**2) / 2
    again = method(2, random_state=0).fit(X)
    np.testing.assert_array_equal(again.decomposition_.to_tensor(), model.decomposition_.to_tensor())


@pytest.mark.parametrize("method", METHODS)
def test_values_behind_the_mask_do_not_matter(method, noisy, rng):
    X, _, _ = noisy
    mask = rng.random(SHAPE) > 0.15
    model = method(3, random_state=0).fit(np.where(mask, X, 999.0), mask=mask)
    as_nan = method(3, random_state=0).fit(np.where(mask, X, np.nan))
    np.testing.assert_array_equal(model.decomposition_.to_tensor(), as_nan.decomposition_.to_tensor())
    assert model.loss_ == pytest.approx(loss(X, model.decomposition_, mask), rel=1e-6)
    full = method(3, random_state=0).fit(X, mask=np.ones(SHAPE, dtype=bool))
    plain = method(3, random_state=0).fit(X)
    np.testing.assert_array_equal(full.decomposition_.to_tensor(), plain.decomposition_.to_tensor())


@pytest.mark.parametrize("method", METHODS)
def test_wrong_input_is_refused(method):
    X = np.ones((3, 4, 5))
    for n_atoms, data, options, error, words in (
        (0, X, {}, ValueError, "at least 1"),
        (2.5, X, {}, TypeError, "n_atoms must be an integer"),
        (1, np.ones(3), {}, ValueError, "at least 2 is needed"),
        (1, np.full((3, 3), np.inf), {}, ValueError, "infinity"),
        (1, X, {"mask": np.ones((3, 4), dtype=bool)}, ValueError, "mask has shape"),
        (1, np.full((3, 3), np.nan), {}, ValueError, "observed"),
    ):
        with pytest.raises(error, match=words):
            method(n_atoms).fit(data, **options)


# CP and Tucker: TensorLy


def test_cp_is_at_least_as_good_as_tensorlys_parafac(noisy):
    from tensorly import cp_to_tensor
    from tensorly.decomposition import parafac

    expected = np.sum((noisy.X - cp_to_tensor(parafac(noisy.X, 3, n_iter_max=200, init="svd", tol=1e-8))) ** 2) / 2
    one, several = (CP(3, n_init=n, random_state=0).fit(noisy.X).loss_ for n in (1, 4))
    assert several <= one * (1 + 1e-6) <= expected * (1 + 1e-5)


def test_cp_recovers_completes_and_takes_more_atoms_than_any_size():
    X, clean, _ = make_boolean_cp(SHAPE, 3, missing=0.2, random_state=2)
    assert rmse(CP(3, random_state=0).fit(X).decomposition_.to_tensor(), clean) < 1e-3
    assert rmse(CP(3, random_state=0).fit(clean).decomposition_.to_tensor(), clean) < 1e-3
    X = make_boolean_cp((4, 5, 3), 2, noise=0.1, random_state=0).X
    assert CP(8, random_state=0).fit(X).loss_ < CP(2, random_state=0).fit(X).loss_
    assert np.isfinite(CP(3, random_state=0).fit(np.zeros((4, 5, 3))).loss_)


def test_tucker_is_tensorlys_hosvd(noisy):
    from tensorly.decomposition import tucker

    core, factors = tucker(noisy.X, [3, 3, 3], n_iter_max=0)
    found = Tucker(3).fit(noisy.X).decomposition_
    np.testing.assert_allclose(found.to_tensor(), np.einsum("abc,ia,jb,kc->ijk", core, *factors), atol=1e-5)
    for U in found.factors:
        np.testing.assert_allclose(U.T @ U, np.eye(3), atol=1e-10)


def test_tucker_cuts_its_ranks_to_the_shape_and_completes():
    X, clean, _ = make_boolean_cp((3, 20, 4), 2, missing=0.1, random_state=0)
    assert Tucker(10).fit(clean).decomposition_.core.shape == (3, 10, 4)
    assert Tucker(30).fit(clean).decomposition_.core.shape == (3, 12, 4)
    assert rmse(Tucker(2).fit(X).decomposition_.to_tensor(), clean) < 1e-4


# LFM and LFMmix


def test_lfm_losses_fall_and_rows_are_least_squares(noisy):
    for mode in range(3):
        model = LFM(4, mode=mode, random_state=0).fit(noisy.X)
        losses = [loss(noisy.X, W) for W in model.path_]
        assert np.all(np.diff(losses) < 0)
        W = model.decomposition_
        assert set(W.boolean_mode.tolist()) == {mode}
        Z = np.stack([atom.z for atom in W.atoms], axis=1).astype(float)
        residual = np.moveaxis(noisy.X - W.to_tensor(), mode, 0).reshape(SHAPE[mode], -1)
        np.testing.assert_allclose(Z.T @ residual, 0, atol=1e-9)


def test_lfm_reports_the_mode_of_lowest_loss(noisy):
    losses = [LFM(3, mode=mode, random_state=0).fit(noisy.X).loss_ for mode in range(3)]
    model = LFM(3, random_state=0).fit(noisy.X)
    assert model.loss_ <= min(losses) * (1 + 1e-9)
    assert model.loss_ == pytest.approx(losses[model.mode_])


def test_real_rows_with_missing_entries_solve_each_column(rng):
    Z = rng.integers(0, 2, (12, 3)).astype(float)
    Y, observed = rng.standard_normal((12, 20)), rng.random((12, 20)) < 0.7
    V = real_rows(Z, Y * observed, observed)
    for j in range(20):
        seen = observed[:, j]
        np.testing.assert_allclose(V[:, j], np.linalg.lstsq(Z[seen], Y[seen, j], rcond=None)[0], atol=1e-6)


def test_latent_features_end_when_nothing_is_left(rng):
    Y = np.outer([1.0, 0, 1, 1, 0], rng.standard_normal(6))
    path = latent_feature_path(Y, None, 5, rng)
    assert len(path) <= 3 and np.allclose(path[-1][0] @ path[-1][1], Y)


def test_the_mixture_is_the_joint_least_squares(rng):
    X = rng.standard_normal((5, 6, 7))
    features = {mode: rng.integers(0, 2, (d, 2)).astype(float) for mode, d in enumerate(X.shape)}
    columns = []
    for mode, Z in features.items():
        others = [d for n, d in enumerate(X.shape) if n != mode]
        for z in Z.T:
            for e in np.eye(np.prod(others)):
                columns.append(np.moveaxis(np.multiply.outer(z, e.reshape(others)), 0, mode).ravel())
    M = np.stack(columns, axis=1)
    expected = X.ravel() - M @ np.linalg.lstsq(M, X.ravel(), rcond=None)[0]
    np.testing.assert_allclose(project_out(X, features).ravel(), expected, atol=1e-9)
    total = sum(
        np.moveaxis((Z @ V).reshape(X.shape[mode], *(d for n, d in enumerate(X.shape) if n != mode)), 0, mode)
        for mode, (Z, V) in mixture_terms(X, features).items()
    )
    np.testing.assert_allclose((X - total).ravel(), expected, atol=1e-9)


def test_lfmmix_losses_fall_and_beat_weights_alone(noisy):
    model = LFMmix(5, random_state=0).fit(noisy.X)
    losses = [loss(noisy.X, W) for W in model.path_]
    assert np.all(np.diff(losses) < 0)
    assert len(set(model.decomposition_.boolean_mode.tolist())) > 1
    published = BMP.as_published(5, random_state=0).fit(noisy.X).decomposition_
    assert losses[-1] <= loss(noisy.X, published)


@pytest.mark.parametrize("model", [LFM(1, mode=0), LFMmix(1, boolean_modes=[0], tol=1e-9, max_iter=100)])
def test_a_tensor_of_the_model_is_completed(model, rng):
    clean = np.multiply.outer(np.ones(20), rng.standard_normal((8, 9)))
    W = model.set_params(random_state=0).fit(np.where(rng.random(clean.shape) < 0.9, clean, np.nan)).decomposition_
    assert rmse(W.to_tensor(), clean) < 1e-5


# SUSTain


def test_sustain_keeps_its_best_sweep(noisy):
    losses = [SUSTain(4, n_init=1, max_iter=n, tol=0.0, random_state=0).fit(noisy.X).loss_ for n in (1, 3, 6, 12, 25)]
    assert np.all(np.diff(losses) <= 1e-6 * losses[0])


def test_an_empty_boolean_column_is_drawn_anew(rng):
    A = np.ones((6, 1))
    update_columns(A, np.ones((1, 1)), np.full((6, 1), -5.0), np.array([True]), rng)
    assert A.any() and np.isin(A, (0, 1)).all()
    real = np.ones((6, 1))
    update_columns(real, np.full((1, 1), 2.0), np.full((6, 1), -5.0), np.array([False]), rng)
    np.testing.assert_allclose(real, -2.5)


def test_sustain_recovers_an_easy_tensor_also_with_gaps_and_keeps_to_the_allowed_modes(noisy):
    X, clean, truth = make_boolean_cp((20, 21, 22), 3, missing=0.1, random_state=0)
    W = SUSTain(3, random_state=0).fit(X).decomposition_
    assert isinstance(W, BooleanCP)
    assert hamming_error(W, truth) == 0
    assert rmse(W, clean) < 1e-4
    W = SUSTain(4, boolean_modes=[2], random_state=0).fit(noisy.X).decomposition_
    assert set(W.boolean_mode.tolist()) == {2}
