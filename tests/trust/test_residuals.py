"""Is the rest noise? Numbers against the residual formed as an array; noise passes and structure does not."""

import numpy as np
import pytest
import scipy.stats
from samples import random_decomposition

from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.fit.noise import noise_edge
from boolcp.result.atoms import BooleanCP
from boolcp.trust.residuals import residual_check


@pytest.mark.parametrize("kind", ["rank one", "block"])
@pytest.mark.parametrize("is_masked", [False, True])
def test_numbers_are_those_of_the_residual(kind, is_masked, rng):
    W = random_decomposition((7, 8, 9), kind, rng, n_atoms=2)
    X = W.to_tensor() + rng.standard_normal(W.shape)
    mask = rng.random(X.shape) < 0.7 if is_masked else np.ones(X.shape, dtype=bool)
    before = X.copy()
    check = residual_check(X, W, mask=mask)
    rest = np.where(mask, X - W.to_tensor(), 0.0)
    assert check.rms == pytest.approx(np.sqrt(np.mean(rest[mask] ** 2)))
    assert check.n_entries == mask.sum()
    assert check.kurtosis == pytest.approx(np.mean(rest[mask] ** 4) / np.mean(rest[mask] ** 2) ** 2 - 3)
    for mode in range(3):
        unfolded = np.moveaxis(rest, mode, 0).reshape(W.shape[mode], -1)
        seen = np.moveaxis(mask, mode, 0).reshape(W.shape[mode], -1)
        sides = seen.sum(axis=1).max(), seen.sum(axis=0).max()
        edge = noise_edge(max(sides), min(sides))
        assert check.structure[mode] == pytest.approx(np.linalg.norm(unfolded, 2) / (check.rms * edge))
        first, second, both = unfolded[:-1], unfolded[1:], seen[:-1] & seen[1:]
        a, b = first[both], second[both]
        assert check.lag_correlation[mode] == pytest.approx(a @ b / np.sqrt((a @ a) * (b @ b)))
    expected = np.quantile(rest[mask] / check.rms, scipy.stats.norm.cdf(check.normal_quantiles))
    np.testing.assert_allclose(check.quantiles, expected)
    np.testing.assert_array_equal(X, before)


def test_noise_passes_in_almost_all_cases():
    empty = BooleanCP((15, 20, 25))
    passed = [residual_check(np.random.default_rng(n).standard_normal(empty.shape), empty).is_noise for n in range(40)]
    assert np.mean(passed) >= 0.9  # three modes, each wrong in one of a hundred cases


def test_a_missing_atom_and_correlated_noise_are_seen(rng):
    X, _, truth = make_boolean_cp((20, 25, 30), 3, noise=0.5, random_state=0)
    assert residual_check(X, truth).is_noise
    assert not residual_check(X, truth[:2]).is_noise
    smooth = truth.to_tensor() + 0.3 * np.cumsum(rng.standard_normal(X.shape), axis=1)
    check = residual_check(smooth, truth)
    assert check.lag_correlation[1] > 0.5 and not check.is_noise
    assert "structure is left" in str(check)


def test_quantiles_of_large_tensors_are_those_of_a_sample(rng):
    X = rng.standard_normal((3001, 4, 20))
    check = residual_check(X, BooleanCP(X.shape))
    np.testing.assert_allclose(check.quantiles[20:-20], check.normal_quantiles[20:-20], atol=0.05)
    edge = noise_edge(3001, 80)
    assert check.structure[0] == pytest.approx(np.linalg.norm(X.reshape(3001, -1), 2) / check.rms / edge, rel=1e-3)


def test_an_exact_fit_leaves_nothing():
    truth = make_boolean_cp((6, 7, 8), 2, random_state=0).truth
    check = residual_check(truth.to_tensor(), truth)
    assert check.rms == 0 and check.is_noise and np.isfinite(check.quantiles).all()


def test_a_channel_without_data_is_not_compared():
    X = make_boolean_cp((9, 10, 11), 2, noise=0.5, random_state=0)[0]
    X[3] = np.nan
    with pytest.warns(UserWarning, match="no observed entry"):
        W = BMP(2, random_state=0).fit(X).decomposition_
    check, rest = residual_check(X, W), np.delete(X - W.to_tensor(), 3, axis=0)
    assert check.rms == pytest.approx(np.sqrt(np.mean(rest**2))) and np.isfinite(check.structure).all()


def test_wrong_shapes_are_refused(rng):
    with pytest.raises(ValueError, match="X has shape"):
        residual_check(rng.standard_normal((3, 4)), BooleanCP((4, 3)))
