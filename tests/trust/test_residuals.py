"""Is the rest noise? Numbers against the residual formed as an array; noise passes and structure does not."""

import numpy as np
import pytest
import scipy.stats
from samples import random_decomposition

from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.result.atoms import BooleanCP
from boolcp.trust import residuals
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
    assert check.n_entries == check.n_sampled == mask.sum()
    assert check.kurtosis == pytest.approx(np.mean(rest[mask] ** 4) / np.mean(rest[mask] ** 2) ** 2 - 3)
    for mode in range(3):
        unfolded = np.moveaxis(rest, mode, 0).reshape(W.shape[mode], -1)
        seen = np.moveaxis(mask, mode, 0).reshape(W.shape[mode], -1)
        sides = seen.sum(axis=1).max(), seen.sum(axis=0).max()
        edge = residuals.noise_edge(max(sides), min(sides))
        assert check.structure[mode] == pytest.approx(np.linalg.norm(unfolded, 2) / (check.rms * edge))
        first, second, both = unfolded[:-1], unfolded[1:], seen[:-1] & seen[1:]
        a, b = first[both], second[both]
        assert check.lag_correlation[mode] == pytest.approx(a @ b / np.sqrt((a @ a) * (b @ b)))
    np.testing.assert_allclose(
        check.quantiles, np.quantile(rest[mask] / check.rms, scipy.stats.norm.cdf(check.normal_quantiles))
    )
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


def test_large_tensors_are_sampled_with_a_seed(rng, monkeypatch):
    X, _, truth = make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    first, again = (residual_check(X, truth, max_entries=1000) for _ in range(2))
    other = residual_check(X, truth, max_entries=1000, random_state=1)
    np.testing.assert_array_equal(first.quantiles, again.quantiles)
    assert not np.array_equal(first.quantiles, other.quantiles)
    full = residual_check(X, truth)
    assert first.n_sampled <= 1000 and first.structure == full.structure and first.rms == full.rms
    masked = residual_check(X, truth, mask=rng.random(X.shape) < 0.8, max_entries=1000)
    assert masked.n_sampled == 1000
    monkeypatch.setattr(residuals, "MAX_GRAM", 10)  # without forming Gram matrices
    np.testing.assert_allclose(residual_check(X, truth).structure, full.structure, rtol=1e-3)


def test_an_exact_fit_leaves_nothing():
    truth = make_boolean_cp((6, 7, 8), 2, random_state=0).truth
    check = residual_check(truth.to_tensor(), truth)
    assert check.rms == 0 and check.is_noise and np.isfinite(check.quantiles).all()


def test_beside_a_background_the_quantiles_are_those_of_the_residual(rng):
    """The background takes part of the noise; the size of the rest is what it is, and its shape is still normal."""
    X = make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)[0]
    W = BMP(2, background=12, random_state=0).fit(X).decomposition_
    rest = X - W.to_tensor() - W.background.to_tensor()
    check = residual_check(X, W)
    assert check.rms == pytest.approx(np.sqrt(np.mean(rest**2)))
    np.testing.assert_allclose(
        check.quantiles, np.quantile(rest / check.rms, scipy.stats.norm.cdf(check.normal_quantiles))
    )
    sigma = np.sqrt(np.sum(rest**2) / (X.size - W.background.degrees_of_freedom))
    assert sigma > 1.1 * check.rms
    edge = residuals.noise_edge(750, 20)
    assert check.structure[0] == pytest.approx(np.linalg.norm(rest.reshape(20, -1), 2) / (sigma * edge))


def test_a_channel_without_data_is_not_compared():
    X = make_boolean_cp((9, 10, 11), 2, noise=0.5, random_state=0)[0]
    X[3] = np.nan
    with pytest.warns(UserWarning, match="no observed entry"):
        W = BMP(2, background=None, random_state=0).fit(X).decomposition_
    check, rest = residual_check(X, W), np.delete(X - W.to_tensor(), 3, axis=0)
    assert check.rms == pytest.approx(np.sqrt(np.mean(rest**2))) and np.isfinite(check.structure).all()


def test_wrong_shapes_are_refused(rng):
    with pytest.raises(ValueError, match="X has shape"):
        residual_check(rng.standard_normal((3, 4)), BooleanCP((4, 3)))
    with pytest.raises(ValueError, match="max_entries"):
        residual_check(rng.standard_normal((3, 4)), BooleanCP((3, 4)), max_entries=1)
