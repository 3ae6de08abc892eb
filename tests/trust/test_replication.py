"""Does an atom come back, and is it on or off? Planted patterns pass; noise, graded patterns and drift do not."""

import numpy as np
import pytest
import scipy.stats

import boolcp
from boolcp.trust.on_off import is_on_off, two_groups

SHAPE = (8, 12, 60)
TRIALS = {"boolean_modes": [2], "n_init": 2, "certify": False, "random_state": 0}


def pink(rng, shape=SHAPE):
    """Return 1/f noise along mode 1 that neighbors along mode 0 share, of variance one."""
    d, n = shape[:2]
    size = np.zeros(n // 2 + 1)
    size[1:] = 1 / np.sqrt(np.fft.rfftfreq(n)[1:])
    E = np.fft.irfft(np.fft.rfft(rng.standard_normal(shape), axis=1) * size[:, None], n=n, axis=1)
    E = np.einsum("ij,jkl->ikl", np.exp(-(np.subtract.outer(np.arange(d), np.arange(d)) ** 2) / 6), E)
    return E / E.std()


def planted(strength, rng, noise=None):
    """Return noise plus a smooth pattern of norm one whose size in each trial is given."""
    V = np.multiply.outer(np.hanning(SHAPE[0] + 2)[1:-1], np.hanning(SHAPE[1] + 2)[1:-1])
    E = rng.standard_normal(SHAPE) if noise is None else noise
    return E + np.multiply.outer(V / np.linalg.norm(V), strength)


def assessed(X, n_atoms=2, **options):
    W = boolcp.decompose(X, n_atoms, **TRIALS | options)
    return boolcp.assess(X, W, n_parts=4, random_state=0)


@pytest.mark.filterwarnings("ignore::boolcp.BoolcpWarning")
@pytest.mark.parametrize("noise", ["white", "separable"])
@pytest.mark.parametrize("make", [pink, lambda rng: rng.standard_normal(SHAPE)], ids=["pink", "white"])
def test_no_atom_of_noise_passes(make, noise):
    for seed in range(5):
        W = assessed(make(np.random.default_rng(seed)), 3, noise=noise)
        assert not any(verdict.passes for verdict in boolcp.verdicts(W))


@pytest.mark.parametrize("noise", ["white", "separable"])
def test_a_planted_pattern_that_is_on_and_off_passes(noise, rng):
    z = rng.random(60) < 0.4
    W = assessed(planted(9.0 * z, rng, pink(rng) if noise == "separable" else None), noise=noise)
    first = boolcp.verdicts(W)[0]
    assert first.passes and first[:2] == (True, True) and "on/off" in first.text
    np.testing.assert_array_equal(W.atoms[0].z, z)
    assert W.trust.replication[0] == 1 and W.trust.same_bits[0] > 0.95 and not W.trust.has_runs[0]
    low, high, spread, share = W.trust.groups[0]
    assert (high - low) / spread > 4 and share == pytest.approx(z.mean(), abs=0.1)
    amplitude = W.trust.amplitude[0]
    assert amplitude[z].min() > amplitude[~z].max()
    odds = (amplitude - (low + high) / 2) * (high - low) / spread**2 + np.log(share / (1 - share))
    np.testing.assert_allclose(W.trust.odds[0], np.where(z, odds, -odds))  # bits are judged by the groups
    assert W.summary().splitlines()[2].split()[0] == "0"  # what passes comes first


def test_a_graded_pattern_comes_back_but_is_not_on_off(rng):
    for mean in (False, True):
        X = planted(6.0 * rng.standard_normal(60) + 6, rng)
        W = assessed(X, 1, mean=mean)
        (verdict,) = boolcp.verdicts(W)
        sure = [np.mean(np.abs(V.trust.odds[0])) for V in (boolcp.decompose(X, 1, **TRIALS, mean=mean), W)]
        assert sure[1] < 0.8 * sure[0]  # its bits may mean nothing
        assert verdict.replicates and not verdict.passes and "not shown to be on/off" in verdict.text
        assert "No atom passes all tests. Try next" in W.summary() and "Unique" not in W.summary()


def test_drift_over_trials_is_named_and_has_no_p_value(rng):
    W = assessed(planted(9.0 * (np.arange(60) > 25), rng), 1)
    (verdict,) = boolcp.verdicts(W)
    assert W.trust.has_runs.all() and W.trust.p_value is None and not verdict.passes
    assert "comes in runs along mode 2 (a slow state or drift)" in verdict.text


@pytest.mark.filterwarnings("ignore::boolcp.BoolcpWarning")
def test_p_values_of_noise_are_not_too_small_and_there_are_none_beside_a_mean(rng):
    p = []
    for _ in range(20):  # so few channels that atoms of noise come back
        X = rng.standard_normal((2, 2, 40))
        known = assessed(X, 1).trust
        p += [] if known.p_value is None else known.p_value.tolist()
    assert len(p) > 15 and np.mean(np.array(p) <= 0.05) <= 0.12 and 0.05 < np.mean(np.array(p) <= 0.9)
    z = rng.random(60) < 0.6
    strong = assessed(planted(9.0 * z, rng), 1)
    assert strong.trust.p_value[0] < 0.05 and "p: is the atom more than noise that is" in strong.summary()
    assert assessed(planted(9.0 * z, rng), 1, mean=True).trust.p_value is None


def test_a_trial_takes_no_part_in_the_pattern_that_gives_its_amplitude(rng):
    """Something large in one trial turns the pattern of all trials, along which it then is large itself."""
    z = rng.random(60) < 0.4
    X, one = planted(9.0 * z, rng), int(np.flatnonzero(z)[0])
    U = rng.standard_normal(SHAPE[:2])
    V = planted(z[:1] * 0 + 1.0, rng, np.zeros((*SHAPE[:2], 1)))[..., 0]
    U -= np.vdot(U, V) * V
    changed = X.copy()
    changed[..., one] += 30 * U / np.linalg.norm(U)
    amplitude = []
    for Y in (X, changed):
        W = boolcp.decompose(Y, 1, atom_rank="block", **TRIALS)
        assert W.atoms[0].z[one]
        amplitude.append(boolcp.assess(Y, W, n_parts=4, random_state=0).trust.amplitude[0][one] * W.weights[0])
    assert abs(amplitude[1] - amplitude[0]) < 2


@pytest.mark.parametrize(
    ("scheme", "options", "words"),
    [
        ("quarters", {"n_parts": 3}, "3 fits to three quarters of mode 2"),
        ("halves", {"n_parts": 2}, "2 fits to halves of mode 2"),
        ("sessions", {"sessions": ["a"] * 30 + ["b"] * 30}, "2 fits to single sessions of mode 2"),
        ("seeds", {"n_parts": 2}, "2 fits with other seeds"),
    ],
)
def test_schemes_are_names_of_one_function(scheme, options, words, rng):
    X = planted(9.0 * (rng.random(60) < 0.4), rng)
    found = boolcp.replication(X, 2, scheme=scheme, **options, **TRIALS)
    assert found.decomposition.trust.parts == words and words in found.summary() and words in repr(found)
    assert found.share[0] == 1 and found.cosine.shape == (int(words[0]), 2)
    assert np.isnan(found.decomposition.trust.on_off[0]) == (scheme == "seeds")  # no slice was held out
    again = boolcp.replication(X, 2, scheme=scheme, n_jobs=2, **options, **TRIALS)
    np.testing.assert_array_equal(found.cosine, again.cosine)


def test_parameters_of_the_fit_are_those_of_its_tests(rng, tmp_path):
    """What W was fitted with travels in W and in its file, so that assess needs no options."""
    X = np.abs(planted(9.0 * (rng.random(60) < 0.4), rng))
    given = {"boolean_modes": [2], "mean": True, "noise": "separable", "n_init": 3}
    W = boolcp.BMP(2, **given, random_state=0).fit(X).decomposition_
    assert all(W.parameters[name] == given[name] for name in ("boolean_modes", "mean", "n_init"))
    W.save(tmp_path / "W.nc")
    loaded = boolcp.load(tmp_path / "W.nc")
    assert dict(loaded.parameters) == dict(W.parameters)
    for mode, S in W.noise.covariances.items():
        np.testing.assert_array_equal(loaded.noise.covariances[mode], S)
    first, second = (boolcp.assess(X, V, n_parts=2, random_state=0) for V in (W, loaded))
    np.testing.assert_array_equal(first.trust.replication, second.trust.replication)
    counts = boolcp.BMP(1, loss="poisson", boolean_modes=[2], random_state=0).fit(rng.poisson(np.abs(X)).astype(float))
    assert counts.decomposition_.parameters["loss"] == "poisson"


def test_consensus_keeps_the_atoms_that_come_back(rng):
    z = rng.random(60) < 0.4
    for noise in ("white", "separable"):
        X = planted(9.0 * z, rng)
        W = boolcp.consensus(X, 3, n_parts=4, noise=noise, **TRIALS)
        assert W.n_atoms == 1
        np.testing.assert_array_equal(W.atoms[0].z, z)
        assert W.weights[0] == pytest.approx(9, rel=0.15) and 0 < W.explained() < 1
    rng = np.random.default_rng(1)  # whose noise changes bits of the fit
    X = planted(4.0 * (rng.random(60) < 0.3), rng)
    W = boolcp.decompose(X, 1, **TRIALS)
    amplitude = boolcp.replication(X, W, n_parts=4, random_state=0).decomposition.trust.amplitude[0]
    bits = boolcp.consensus(X, W, n_parts=4, random_state=0).atoms[0].z
    np.testing.assert_array_equal(bits, two_groups(amplitude).log_odds(amplitude) > 0)  # of an atom that is on/off
    mixed = boolcp.datasets.make_boolean_cp((20, 25, 30), [1, 0, 1], noise=0.1, random_state=0)
    with pytest.raises(ValueError, match=r"not Boolean along mode 2.*boolean_modes=\[2\]"):
        boolcp.consensus(mixed.X, 2, random_state=0)


def test_on_off_needs_two_groups_of_some_size(rng):
    n = 200
    noise, z = rng.standard_normal(n), rng.random(n) < 0.3
    found = two_groups(noise + 5 * z)
    assert found.evidence > 50 and (found.high - found.low) / found.spread == pytest.approx(5, rel=0.25)
    assert np.mean((found.log_odds(noise + 5 * z) > 0) == z) > 0.97
    humps = [noise, scipy.stats.t(3).rvs(n, random_state=0), scipy.stats.expon.rvs(size=n, random_state=0)]
    assert all(two_groups(hump).evidence < 10 for hump in humps)
    assert is_on_off(20.0, 10, 200) and not is_on_off(20.0, 9, 200) and not is_on_off(20.0, 4, 20)
    assert not is_on_off(9.0, 50, 100) and np.isnan(two_groups(np.zeros(50)).evidence)


def test_what_is_wrong_is_named(rng):
    X = rng.standard_normal((5, 6, 10))
    W = boolcp.decompose(X, 1, boolean_modes=[2], random_state=0)
    for arguments, options, error, words in [
        ((W, X), {}, TypeError, "the tensor X comes first"),
        ((X, "W"), {}, TypeError, "then its decomposition"),
        ((X[1:], W), {}, ValueError, "pass a decomposition of X"),
        ((X, W), {"scheme": "luck"}, ValueError, "scheme must be one of"),
        ((X, W), {"scheme": "sessions"}, ValueError, "needs sessions: 10 labels"),
        ((X, W), {"n_parts": 0}, ValueError, "n_parts"),
        ((X[..., :3], 1), {"boolean_modes": [2]}, ValueError, "four or more slices"),
        ((X, W), {"luck": 1}, TypeError, "luck"),
    ]:
        with pytest.raises(error, match=words):
            boolcp.replication(*arguments, **options)
    with pytest.raises(TypeError, match="is the decomposition of X"):
        boolcp.assess(X, 3)
    with pytest.raises(ValueError, match="Atom 0 has no amplitudes"):
        boolcp.plotting.plot_on_off(W)
