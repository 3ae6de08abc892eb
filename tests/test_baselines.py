import numpy as np
import pytest
from sklearn.base import clone

from boolcp import BMP
from boolcp.baselines import CP, LFM, LFMmix, SUSTain, Tucker
from boolcp.baselines.lfm import latent_feature_path, mixture_terms, project_out, real_rows
from boolcp.baselines.sustain import hierarchical_als, random_start, update_columns
from boolcp.datasets import make_boolean_cp
from boolcp.metrics import hamming_error, rmse
from boolcp.result.atoms import BooleanCP
from boolcp.storage import DenseTensor

SHAPE = (12, 13, 14)
METHODS = [CP, Tucker, LFM, LFMmix, SUSTain]


def loss(X, W, mask=None):
    error = (X - W.to_tensor())[... if mask is None else mask]
    return np.sum(error**2) / 2


@pytest.fixture
def noisy():
    return make_boolean_cp(SHAPE, 3, noise=0.3, random_state=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(12, 13), SHAPE, (6, 7, 5, 4)])
def test_the_door_is_that_of_bmp(method, shape):
    X = make_boolean_cp(shape, 2, noise=0.2, random_state=1).X
    model = method(2, random_state=0)
    assert clone(model).get_params() == model.get_params()
    before = X.copy()
    assert model.fit(X) is model
    np.testing.assert_array_equal(X, before)
    assert model.decomposition_.to_tensor().shape == shape
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
    np.testing.assert_array_equal(
        full.decomposition_.to_tensor(), method(3, random_state=0).fit(X).decomposition_.to_tensor()
    )


@pytest.mark.parametrize("method", METHODS)
def test_wrong_input_is_refused(method):
    X = np.ones((3, 4, 5))
    with pytest.raises(ValueError, match="at least 1"):
        method(0).fit(X)
    with pytest.raises(TypeError, match="n_atoms must be an integer"):
        method(2.5).fit(X)
    with pytest.raises(ValueError, match="at least 2 is needed"):
        method(1).fit(np.ones(3))
    with pytest.raises(ValueError, match="infinity"):
        method(1).fit(np.full((3, 3), np.inf))
    with pytest.raises(ValueError, match="mask has shape"):
        method(1).fit(X, mask=np.ones((3, 4), dtype=bool))
    with pytest.raises(ValueError, match="observed"):
        method(1).fit(np.full((3, 3), np.nan))


# CP and Tucker: TensorLy


def test_cp_is_tensorlys_parafac(noisy):
    from tensorly.decomposition import parafac

    X = noisy.X
    model = CP(3, n_init=1, compression=False, random_state=0).fit(X)
    weights, factors = parafac(X, 3, n_iter_max=200, init="svd", tol=1e-8)
    np.testing.assert_allclose(model.decomposition_.weights, weights)
    for A, B in zip(model.decomposition_.factors, factors, strict=True):
        np.testing.assert_allclose(A, B)


def test_cp_keeps_the_best_start_and_loses_nothing_by_compression(rng):
    X = make_boolean_cp((20, 21, 22), 6, noise=0.5, random_state=0).X
    plain = CP(6, n_init=1, compression=False, random_state=0).fit(X)
    several = CP(6, n_init=4, compression=False, random_state=0).fit(X)
    assert several.loss_ <= plain.loss_
    assert CP(6, n_init=4, random_state=0).fit(X).loss_ <= several.loss_ * (1 + 1e-3)


def test_cp_recovers_and_completes():
    X, clean, _ = make_boolean_cp(SHAPE, 3, missing=0.2, random_state=2)
    assert rmse(CP(3, random_state=0).fit(X).decomposition_.to_tensor(), clean) < 1e-3
    assert rmse(CP(3, random_state=0).fit(clean).decomposition_.to_tensor(), clean) < 1e-3


def test_cp_takes_more_atoms_than_any_size():
    X = make_boolean_cp((4, 5, 3), 2, noise=0.1, random_state=0).X
    assert CP(8, random_state=0).fit(X).loss_ < CP(2, random_state=0).fit(X).loss_
    assert np.isfinite(CP(3, random_state=0).fit(np.zeros((4, 5, 3))).loss_)


def test_tucker_is_tensorlys_hosvd(noisy):
    from tensorly.decomposition import tucker

    for max_iter in (0, 20):
        core, factors = tucker(noisy.X, [3, 3, 3], n_iter_max=max_iter, tol=1e-6)
        expected = np.einsum("abc,ia,jb,kc->ijk", core, *factors)
        found = Tucker(3, max_iter=max_iter).fit(noisy.X).decomposition_
        np.testing.assert_allclose(found.to_tensor(), expected, atol=1e-5)
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


def test_lfm_recovers_one_feature_of_a_matrix(rng):
    z = np.array([1, 1, 0, 0, 1, 0, 1, 0, 1, 1], dtype=float)
    Y = np.outer(z, rng.standard_normal(30))
    model = LFM(1, mode=0, criterion="normalized", random_state=0).fit(Y)
    np.testing.assert_array_equal(model.decomposition_.atoms[0].z, z)
    assert model.loss_ < 1e-20


def test_real_rows_with_missing_entries_solve_each_column(rng):
    Z = rng.integers(0, 2, (12, 3)).astype(float)
    Y, observed = rng.standard_normal((12, 20)), rng.random((12, 20)) < 0.7
    V = real_rows(Z, Y * observed, observed, 0.0, 0.0, None)
    for j in range(20):
        seen = observed[:, j]
        np.testing.assert_allclose(V[:, j], np.linalg.lstsq(Z[seen], Y[seen, j], rcond=None)[0], atol=1e-6)


@pytest.mark.parametrize("with_gaps", [False, True])
def test_the_atomic_norm_is_minimized(with_gaps, rng):
    """Optimality: |z_k'R| = alpha where the row is not zero, in its direction, and at most alpha where it is."""
    Z = rng.integers(0, 2, (15, 5)).astype(float)
    Y = Z[:, :3] @ rng.standard_normal((3, 10)) + 0.1 * rng.standard_normal((15, 10))
    observed = rng.random(Y.shape) < 0.8 if with_gaps else None
    Y = Y if observed is None else Y * observed
    alpha, ridge = 2.0, 0.5
    V = real_rows(Z, Y, observed, alpha, ridge, np.zeros((5, 10)))
    residual = (Y - Z @ V) * (1 if observed is None else observed)
    for z, v in zip(Z.T, V, strict=True):
        gradient = z @ residual - ridge * v
        if v.any():
            np.testing.assert_allclose(gradient, alpha * v / np.linalg.norm(v), atol=1e-3)
        else:
            assert np.linalg.norm(gradient) <= alpha * (1 + 1e-6)


def test_a_large_penalty_leaves_no_features(noisy):
    assert LFM(3, mode=0, alpha=1e6, random_state=0).fit(noisy.X).decomposition_.n_atoms == 0
    shrunk = LFM(3, mode=0, alpha=2.0, random_state=0).fit(noisy.X).decomposition_
    plain = LFM(3, mode=0, random_state=0).fit(noisy.X).decomposition_
    assert 0 < shrunk.weights.sum() < plain.weights.sum()


def test_latent_features_end_when_nothing_is_left(rng):
    Y = np.outer([1.0, 0, 1, 1, 0], rng.standard_normal(6))
    path = latent_feature_path(Y, 5, rng, criterion="normalized")
    assert len(path) == 2


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


def test_lfm_and_lfmmix_complete_a_tensor_of_their_model(rng):
    z = rng.random(20) < 0.5
    clean = np.multiply.outer(z.astype(float), rng.standard_normal((8, 9)))
    X = np.where(rng.random(clean.shape) < 0.9, clean, np.nan)
    for model in (LFM(1, mode=0, criterion="normalized"), LFMmix(1, criterion="normalized", tol=1e-9, max_iter=100)):
        W = model.set_params(random_state=0).fit(X).decomposition_
        np.testing.assert_array_equal(W.atoms[0].z, z)
        assert rmse(W.to_tensor(), clean) < 1e-5


# SUSTain


def test_sustain_columns_are_boolean_and_the_best_sweep_is_kept(noisy):
    data = DenseTensor(noisy.X)
    rng = np.random.default_rng(0)
    boolean_mode = np.array([0, 1, 2, 0])
    start = random_start(data, boolean_mode, rng)
    losses = [
        hierarchical_als(data, start, boolean_mode, np.random.default_rng(1), max_iter=n, tol=0.0).loss
        for n in range(1, 12)
    ]
    assert np.all(np.diff(losses) <= 1e-9)
    found = hierarchical_als(data, start, boolean_mode, rng, max_iter=10, tol=0.0)
    for k, mode in enumerate(boolean_mode):
        assert np.isin(found.matrices[mode][:, k], (0, 1)).all()
        assert found.matrices[mode][:, k].any()


def test_an_empty_boolean_column_is_drawn_anew(rng):
    A = np.ones((6, 1))
    update_columns(A, np.ones((1, 1)), np.full((6, 1), -5.0), np.array([True]), rng)
    assert A.any() and np.isin(A, (0, 1)).all()
    real = np.ones((6, 1))
    update_columns(real, np.full((1, 1), 2.0), np.full((6, 1), -5.0), np.array([False]), rng)
    np.testing.assert_allclose(real, -2.5)


def test_sustain_recovers_an_easy_tensor_also_with_gaps():
    X, clean, truth = make_boolean_cp((20, 21, 22), 3, missing=0.1, random_state=0)
    W = SUSTain(3, random_state=0).fit(X).decomposition_
    assert isinstance(W, BooleanCP)
    assert hamming_error(W, truth) == 0
    assert rmse(W, clean) < 1e-4


def test_sustain_keeps_to_the_allowed_modes(noisy):
    W = SUSTain(4, boolean_modes=[2], random_state=0).fit(noisy.X).decomposition_
    assert set(W.boolean_mode.tolist()) == {2}
