"""Correlated noise: a fit with a covariance is the fit of the whitened tensor, and comes back in units of the data."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from samples import random_decomposition

import boolcp
from boolcp import BMP, Noise, prepare

xr = pytest.importorskip("xarray")
SHAPE, DIMS = (7, 9, 40), ("channel", "time", "trial")
TRIALS = {"boolean_modes": [2], "random_state": 0, "n_init": 3}


def covariance(d, rho=0.8):
    return rho ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))


def smooth(rng, strength=6.0):
    """Return a tensor with smooth noise along both real modes and one atom, and the bits of the atom."""
    noise = Noise({0: np.linalg.inv(covariance(7)), 1: np.linalg.inv(covariance(9))})  # whitening by its inverse colors
    z = rng.random(40) < 0.4
    V = np.multiply.outer(np.hanning(9)[1:-1], np.hanning(11)[1:-1])
    return noise.whiten(rng.standard_normal(SHAPE)) + strength * np.multiply.outer(V, z), z


def test_a_given_covariance_is_a_fit_of_the_whitened_array(rng):
    X, _ = smooth(rng)
    given = {0: covariance(7), 1: covariance(9)}
    for mean in (False, True):
        model = BMP(2, noise=given, mean=mean, **TRIALS).fit(X)
        W = model.decomposition_
        plain = BMP(2, mean=mean, **TRIALS).fit(W.noise.whiten(X)).decomposition_
        for atom, other in zip(W.atoms, plain.atoms, strict=True):
            np.testing.assert_array_equal(atom.z, other.z)
        back = W.noise.restore_atoms(plain)
        np.testing.assert_allclose(back.to_tensor(), W.to_tensor(), atol=1e-8)
        total = X - (X.mean(axis=2, keepdims=True) if mean else 0)
        left = np.sum((X - W.to_tensor()) ** 2)
        assert W.explained() == pytest.approx(1 - left / np.sum(total**2), abs=1e-6), "shares are of the data"


@pytest.mark.parametrize("kind", ["rank one", "rank two", "block"])
def test_whitened_atoms_are_restored(kind, rng):
    W = random_decomposition((4, 5, 6), kind, rng, n_atoms=1)
    noise = Noise({1: covariance(5), 2: 3 * covariance(6)})
    white = noise.whiten_atoms(replace(W, mean=rng.standard_normal((1, 5, 6))))
    np.testing.assert_allclose(white.to_tensor() - white.mean, noise.whiten(W.to_tensor()), atol=1e-10)
    assert np.linalg.norm(white.atoms[0].dense_block()) == pytest.approx(1)
    back = noise.restore_atoms(white)
    np.testing.assert_allclose(back.to_tensor() - back.mean, W.to_tensor(), atol=1e-10)
    np.testing.assert_allclose(back.weights, W.weights)


def test_the_estimate_is_that_of_the_noise(rng):
    X, _ = smooth(rng, strength=0.0)
    S = BMP(1, noise="separable", **TRIALS).fit(X).decomposition_.noise.covariances
    assert sorted(S) == [0, 1]
    for mode, d in ((0, 7), (1, 9)):
        sizes = np.sqrt(S[mode].diagonal())
        assert np.abs(S[mode] / np.outer(sizes, sizes) - covariance(d)).max() < 0.25
    full = np.kron(S[0], S[1])
    assert np.trace(full) / len(full) == pytest.approx(X.var(), rel=0.2)
    named = xr.DataArray(X, dims=DIMS)
    white = prepare.whiten(named)
    assert white.dims == DIMS and "whitened along channel and time" in white.attrs["preparation"][-1]
    np.testing.assert_allclose(np.corrcoef(white.values.reshape(7, -1)), np.eye(7), atol=0.3)


def test_smooth_noise_hides_a_pattern_that_whitening_shows():
    right = {"white": 0.0, "separable": 0.0}
    for seed in range(3):
        X, z = smooth(np.random.default_rng(seed), strength=2.5)
        for noise in right:
            found = BMP(1, noise=noise, mean=True, **TRIALS).fit(X).decomposition_.atoms[0].z
            right[noise] += max(np.mean(found == z), np.mean(found != z)) / 3
    assert right["separable"] > 0.95 > right["white"]


def test_new_trials_have_the_bits_of_the_fit(rng):
    X, _ = smooth(rng)
    for mean in (False, True):
        model = BMP(1, noise="separable", mean=mean, **TRIALS).fit(X)
        np.testing.assert_array_equal(model.transform(X, mode=2)[:, 0], model.decomposition_.atoms[0].z)
        assert 0 < model.score(X) <= 1
        few = model.transform(X[..., :5], mode=2)[:, 0]
        np.testing.assert_array_equal(few, model.decomposition_.atoms[0].z[:5])
    with pytest.raises(ValueError, match="covariance along mode 0"):
        model.transform(X, mode=0)
    first, better = (W.atoms[0].certificate for W in (model.decomposition_, model.decomposition_.certify(X)))
    assert 0.5 < 0.99 * first < better <= 1


def test_a_residual_that_is_correlated_is_named(rng):
    X, _ = smooth(rng)
    white, separable = (BMP(1, noise=noise, **TRIALS).fit(X).decomposition_ for noise in ("white", "separable"))
    assert white.trust.correlation[2] == 0 and max(white.trust.correlation) > 0.2
    assert 'try noise="separable"' in white.summary() and "try noise" not in separable.summary()
    assert BMP(1, **TRIALS).fit(rng.standard_normal(SHAPE)).decomposition_.summary().count("correlated") == 0


def test_a_covariance_of_mne_is_that_of_the_channels(rng):
    X, _ = smooth(rng)
    names = [f"E{n}" for n in range(7)]
    named = xr.DataArray(X, {"channel": names}, DIMS)
    S = covariance(8)
    known = SimpleNamespace(ch_names=["EOG", *names[::-1]], data=S)
    noise = BMP(1, noise=known, **TRIALS).fit(named).decomposition_.noise
    wanted = Noise({0: S[1:, 1:][::-1, ::-1]})
    ratio = noise.covariances[0] - wanted.covariances[0]
    np.testing.assert_allclose(ratio, ratio[0, 0] * np.eye(7), atol=1e-12)  # a ridge
    diagonal = SimpleNamespace(ch_names=names, data=np.arange(1.0, 8))
    assert BMP(1, noise=diagonal, **TRIALS).fit(named).decomposition_.noise.covariances[0][0, 1] == 0
    for wrong in (SimpleNamespace(ch_names=names[:5], data=S[:5, :5]), known):
        with pytest.raises(ValueError, match="lacks some of the channels"):
            BMP(1, noise=wrong, **TRIALS).fit(named.drop_vars("channel") if wrong is known else named)


def test_what_a_noise_model_cannot_be_is_named(rng, tmp_path):
    X, S = smooth(rng)[0], covariance(7)
    gaps, none = np.where(rng.random(SHAPE) < 0.1, np.nan, X), (-S, S * np.nan, np.triu(1e-11 * S), 0 * S, "auto")
    for options, data, error, words in [
        ({"noise": "separable", "boolean_modes": None}, X, ValueError, "name the Boolean one"),
        ({"noise": {2: covariance(40)}}, X, ValueError, "a mode cannot be both"),
        ({"noise": {0: covariance(6)}}, X, ValueError, r"shape \(7, 7\), got \(6, 6\)"),
        *(({"noise": {0: S}}, X, ValueError, "must be a covariance matrix") for S in none),
        ({"noise": {5: covariance(7)}}, X, ValueError, "noise"),
        ({"noise": "pink"}, X, ValueError, "noise must be one of"),
        ({"noise": 3}, X, TypeError, "covariances by mode"),
        ({"noise": "separable"}, gaps, ValueError, "complete data"),
        ({"noise": "separable", "loss": "huber"}, X, ValueError, 'needs loss="squared"'),
        ({"noise": "separable", "nonnegative": True}, X, ValueError, "nonnegative=False"),
        ({"noise": "separable", "refine": False}, X, ValueError, "need refine=True"),
        ({"noise": "separable"}, np.ones(SHAPE), ValueError, "no noise to estimate"),
    ]:
        with pytest.raises(error, match=words):
            BMP(1, **TRIALS | options).fit(data)
    with pytest.raises(ValueError, match='checkpoint needs noise="white" or "separable"'):
        BMP(2, noise={0: covariance(7)}, **TRIALS).fit(X, checkpoint=tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match="complete data, and weights along"):
        BMP(1, noise="separable", **TRIALS).fit(X, weights=1 + np.arange(np.prod(SHAPE)).reshape(SHAPE))
    with pytest.raises(ValueError, match="missing entries"):
        prepare.whiten(xr.DataArray(gaps, dims=DIMS))
    with pytest.raises(ValueError, match="trial"):
        prepare.whiten(xr.DataArray(X, dims=("channel", "time", "x")))


def test_assess_and_consensus_use_the_covariance_of_the_fit(rng):
    X, _ = smooth(rng)
    W = BMP(2, noise={0: covariance(7), 1: covariance(9)}, mean=True, **TRIALS).fit(X).decomposition_
    tested = boolcp.assess(X, W, n_parts=4, random_state=0)
    assert tested.trust.replication[0] == 1 and boolcp.verdicts(tested)[0].passes
    only = boolcp.consensus(X, W, n_parts=4, random_state=0)
    assert only.n_atoms <= 2 and only.noise is W.noise and only.weights[0] == pytest.approx(W.weights[0], rel=0.1)
