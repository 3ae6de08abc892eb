"""What bits rest on: rises against all flips, log odds against Bayes' rule, and whether probabilities are honest."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from samples import KINDS, random_decomposition, tensor, with_gaps

from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.fit.certify import judge_bits, noise_left
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.trust import Trust, bit_log_odds, log_odds, noise_floor, stands_out
from boolcp.storage import make_storage


def evidence_of(X, W):
    """Return what the bits of W rest on in an array, NaN where missing."""
    observed = ~np.isnan(X)
    return judge_bits(make_storage(X, None if observed.all() else observed), W)


def judged(X, W, sigma=None):
    """Return W with the log odds of its bits; sigma is the noise, or estimated."""
    evidence = evidence_of(X, W)
    return replace(W, trust=Trust(log_odds(W, evidence if sigma is None else evidence._replace(sigma=sigma))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", [0.0, 0.2, 0.6])
def test_the_rise_is_that_of_the_loss(kind, missing, rng):
    W = random_decomposition((5, 6, 7), kind, rng)
    X = with_gaps(W.to_tensor() + rng.standard_normal(W.shape), missing)
    rise = evidence_of(X, W).rise
    for k, atom in enumerate(W.atoms):
        slow = [naive.rise(X, W, k, entry) for entry in range(len(atom.z))]
        np.testing.assert_allclose(rise[k], slow, atol=1e-9)


@pytest.mark.parametrize("noise2", [1.2, 2.0])
def test_the_log_odds_are_those_of_bayes_rule(noise2, rng):
    """Points whose norm across V is the expected one, for which nothing is approximated."""
    z, p = np.array([1, 1, 0, 1, 0, 0], dtype=bool), 40
    directions = np.linalg.qr(rng.standard_normal((p, 6)))[0].T
    V, first, second, *rest = directions
    triangle = [first, -first / 2 + second * np.sqrt(0.75), -first / 2 - second * np.sqrt(0.75)]  # its sum is zero
    x = np.empty((6, p))
    x[z] = np.sqrt((p - 1) * noise2 * (1 - 1 / 3)) * np.array(triangle) + np.outer([6.0, 7.5, 7.0], V)
    x[~z] = np.sqrt((p - 1) * noise2) * np.array(rest) + np.outer([0.5, 3.0, -1.0], V)
    size = 20.5 / 3
    W = BooleanCP((6, p), (Atom(0, z, block=V),), [size])
    signal2 = size**2 - p * noise2 / 3
    slow = np.array([naive.log_odds_on(x, z, i, noise2, signal2) for i in range(6)]) * np.sqrt(signal2) / size
    found = bit_log_odds(W.atoms[0], size, evidence_of(x, W).rise[0], np.ones(6), np.sqrt(noise2))
    np.testing.assert_allclose(found, np.where(z, slow, -slow), rtol=1e-9)


def best_atom_of(X):
    """Return the Boolean atom that fits a matrix best, by looking at all of them."""
    _, z = naive.best_boolean(X @ X.T, is_ratio=True)
    V = X.T @ z / z.sum()
    size = np.linalg.norm(V)
    return BooleanCP(X.shape, (Atom(0, z, (V[:, None] / size,)),), [size])


def test_probabilities_are_calibrated(rng):
    """As many bits are wrong as the confidences say; with the real part fixed, many more."""
    fitted, fixed, right = [], [], []
    for _ in range(250):
        z = rng.permutation(np.arange(9) < 5)
        w = rng.standard_normal(25)
        X = np.outer(z, 4.3 * w / np.linalg.norm(w)) + rng.standard_normal((9, 25))
        W = judged(X, best_atom_of(X))
        fitted.append(W.bit_confidence()[0])
        fixed.append(1 / (1 + np.exp(-evidence_of(X, W).rise[0] / 2)))
        right.append(W.atoms[0].z == z)
    fitted, fixed, right = map(np.concatenate, (fitted, fixed, right))
    band = (fitted > 0.8) & (fitted < 0.98)
    assert band.sum() > 300
    for bits in (band, np.ones(len(band), dtype=bool)):
        assert 0.7 * np.sum(1 - fitted[bits]) < np.sum(~right[bits]) < 1.4 * np.sum(1 - fitted[bits])
    assert np.sum(~right) > 5 * np.sum(1 - fixed)


def test_bits_without_data_and_data_without_noise(rng):
    _, clean, truth = make_boolean_cp((8, 9, 10), 2, random_state=0)
    with pytest.raises(ValueError, match=r"boolcp\.assess"):
        truth.bit_confidence()
    W = judged(clean, truth)
    assert all((p > 1 - 1e-6).all() for p in W.bit_confidence())
    assert W.uncertain_bits() == []
    gaps = clean.copy()
    gaps[3] = np.nan  # a slice that says nothing: its bits are as likely as the other bits have it
    p = judged(gaps, truth).bit_confidence()[0][3]
    assert 0.2 < p < 0.8


def test_an_atom_that_is_on_once_is_judged_by_its_size():
    rng = np.random.default_rng(0)
    for size, is_sure in ((20.0, True), (0.0, False)):
        X = rng.standard_normal((8, 30))
        X[2] += size * np.ones(30) / np.sqrt(30)
        V = X[2] / np.linalg.norm(X[2])
        W = judged(X, BooleanCP((8, 30), (Atom(0, np.arange(8) == 2, (V[:, None],)),), [np.linalg.norm(X[2])]))
        assert (W.bit_confidence()[0][2] > 0.99) == is_sure


def test_bits_of_an_atom_without_weight_are_undecided():
    X, _, truth = make_boolean_cp((8, 9, 10), 2, noise=1.0, random_state=0)
    W = judged(X, replace(truth, weights=np.zeros(2)))
    assert all((p == 0.5).all() for p in W.bit_confidence())


def test_doubtful_bits_are_listed_by_name():
    import xarray as xr

    X = xr.DataArray(tensor((10, 12, 14), 2, noise=2.5), {"channel": list("abcdefghij")}, ("channel", "time", "trial"))
    W = BMP(2, boolean_modes=["channel"], random_state=0).fit(X).decomposition_
    bits = W.uncertain_bits(0.999)
    assert bits == sorted(bits, key=lambda bit: bit.confidence) and bits
    first = bits[0]
    assert first.label == f"channel {'abcdefghij'[first.entry]}" and first.is_on == W.atoms[first.atom].z[first.entry]
    assert first.confidence == W.bit_confidence()[first.atom][first.entry]
    doubtful = {(k, i) for k, p in enumerate(W.bit_confidence()) for i in np.flatnonzero(p < 0.999)}
    assert {bit[:2] for bit in bits} == doubtful


def test_a_part_of_the_atoms_keeps_what_is_known_of_them():
    W = BMP(3, random_state=0).fit(tensor()).decomposition_
    part = W[[2, 0]]
    for k, l in enumerate((2, 0)):
        np.testing.assert_array_equal(part.bit_confidence()[k], W.bit_confidence()[l])


def test_the_noise_level_does_not_fall_for_atoms_of_noise(rng):
    X = rng.standard_normal((14, 15, 16))
    W = BMP(4, n_init=2, certify=False, random_state=0).fit(X).decomposition_
    left = np.sqrt(np.mean((X - W.to_tensor()) ** 2))
    assert left < 0.97 and noise_left(make_storage(X), W) == pytest.approx(1, abs=0.03)
    assert not stands_out(W, 1.0).any()
    X, _, truth = make_boolean_cp((14, 15, 16), 3, noise=0.7, random_state=0)
    W = BMP(3, random_state=0).fit(X).decomposition_
    assert noise_left(make_storage(X), W) == pytest.approx(0.7, abs=0.02) and stands_out(W, 0.7).all()
    assert noise_left(make_storage(X), truth) == pytest.approx(0.7, abs=0.02)  # its inner products are not known


@pytest.mark.parametrize("kind", ["rank one", "rank two", "block"])
def test_noise_stays_below_its_floor(kind, rng):
    """No atom of that kind explains more of pure noise than the bound and three standard deviations."""
    atom = random_decomposition((9, 8, 7), kind, rng, n_atoms=1).atoms[0]
    rank = {"rank one": 1, "rank two": 2, "block": None}[kind]
    for seed in range(5):
        E = np.random.default_rng(seed).standard_normal((9, 8, 7))
        best = naive.best_score(E, rank, is_ratio=True)
        assert 0.5 * noise_floor(atom) < best < noise_floor(atom) + 3


def test_slices_that_spread_along_an_atom_are_less_sure(rng):
    """Real atoms are not equally strong wherever they are on: what spreads more than noise makes bits uncertain."""
    z = np.arange(60) < 30
    w = rng.standard_normal(50)
    w /= np.linalg.norm(w)
    confidence = []
    for spread in (0.0, 4.0):
        sizes = np.where(z, 8.0, 0.0) + spread * rng.standard_normal(60)
        X = np.outer(sizes, w) + rng.standard_normal((60, 50))
        confidence.append(judged(X, BooleanCP(X.shape, (Atom(0, z, block=w),), [8.0])).bit_confidence()[0])
    assert confidence[0].mean() > 0.99 and confidence[1].mean() < 0.95


def test_an_atom_that_the_fit_has_shrunk_is_judged_as_its_least_squares_size(rng):
    X, _, _ = make_boolean_cp((12, 15, 16), 1, noise=3.0, random_state=5)
    W = BMP(1, boolean_modes=[0], random_state=0).fit(X).decomposition_
    full, shrunk = (judged(X, replace(W, weights=c * W.weights), 3.0).bit_confidence()[0] for c in (1.0, 0.7))
    assert full.min() < 0.99, "some bits are in doubt"
    np.testing.assert_allclose(shrunk, full, rtol=1e-6)
