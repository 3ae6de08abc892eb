"""The noise level, from pure noise and from atoms plus noise."""

import numpy as np
import pytest

import boolcp
from boolcp.fit.noise import marchenko_pastur_quantile, noise_level, without_zeros
from boolcp.storage.dense import Dense


@pytest.mark.parametrize(("d", "n"), [(200, 200), (150, 600), (60, 4000)])
def test_quantile_is_that_of_the_eigenvalues_of_noise(d, n, rng):
    values = [np.linalg.svd(rng.standard_normal((d, n)), compute_uv=False) ** 2 / n for _ in range(3)]
    for share in (0.1, 0.5, 0.9):
        assert marchenko_pastur_quantile(d / n, share) == pytest.approx(np.quantile(values, share), rel=0.03)


@pytest.mark.parametrize("shape", [(30, 40, 35), (5, 60, 40), (900, 6, 7), (40, 50), (9, 8, 7, 10)])
def test_pure_noise(shape, rng):
    assert noise_level(Dense(3 * rng.standard_normal(shape))) == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 4.0])
def test_atoms_plus_noise(sigma):
    X, _, _ = boolcp.datasets.make_boolean_cp((30, 40, 35), 6, noise=sigma, random_state=1)
    assert noise_level(Dense(X)) == pytest.approx(sigma, rel=0.02)


def test_order_of_modes_and_scale_change_nothing_and_centering_leaves_no_zero_noise(rng):
    X, _, _ = boolcp.datasets.make_boolean_cp((20, 70, 15), 3, noise=0.7, random_state=2)
    level = noise_level(Dense(X))
    assert noise_level(Dense(X.transpose(2, 0, 1))) == pytest.approx(level, rel=1e-9)
    assert noise_level(Dense(100 * X)) == pytest.approx(100 * level, rel=1e-9)
    clean = boolcp.datasets.make_boolean_cp((20, 25, 30), 3, random_state=0).X
    assert noise_level(Dense(clean)) < 1e-6 * clean.std()
    X = rng.standard_normal((5, 40, 50))
    assert noise_level(Dense(X - X.mean(axis=0))) == pytest.approx(np.sqrt(4 / 5), rel=0.1)
    np.testing.assert_array_equal(without_zeros(np.array([4.0, 3.0, 2.0, 1e-16])), [4, 3, 2])
    np.testing.assert_array_equal(without_zeros(np.array([4.0, 0.0, 0.0, 0.0])), [4, 0, 0, 0])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_atoms_never_explain_more_alone_than_all_together(seed):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((20, 20, 20)) < 0.9, np.nan, rng.standard_normal((20, 20, 20)))
    W = boolcp.decompose(X, 1, random_state=0)  # noise, of which the ridge leaves little or nothing
    assert W.n_atoms == 0 or W.explained_unique()[0] <= W.explained() + 1e-12
    assert all(W.weights > 1e-6)
