"""Is an atom more than noise? Independent parts, scores of least squares, p-values that are uniform in noise."""

import naive
import numpy as np
import pytest
import scipy.stats
from samples import random_decomposition

import boolcp
from boolcp.datasets import make_boolean_cp
from boolcp.trust.degeneracy import similarity_of
from boolcp.trust.significance import noise_ratios, significance, thin_counts, thin_normal, weight_scores


def test_parts_of_normal_data_are_independent(rng):
    X = 3 + 2 * rng.standard_normal(200_000)
    first, second = thin_normal(X, 2.0, 0.7, rng)
    np.testing.assert_allclose(first + second, X)
    assert first.mean() == pytest.approx(2.1, abs=0.02) and second.mean() == pytest.approx(0.9, abs=0.02)
    assert first.var() == pytest.approx(0.7 * 4, rel=0.02) and second.var() == pytest.approx(0.3 * 4, rel=0.02)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.01
    assert abs(np.corrcoef(*thin_normal(X, 1.0, 0.7, rng))[0, 1]) > 0.2  # a wrong noise level would be seen


def test_parts_of_counts_are_independent(rng):
    X = rng.poisson(4.0, 200_000).astype(float)
    X[0] = np.nan
    first, second = thin_counts(X, 0.75, rng)
    assert np.isnan(first[0]) and np.isnan(second[0])
    first, second = first[1:], second[1:]
    np.testing.assert_array_equal(first + second, X[1:])
    assert second.min() >= 0 and second.var() == pytest.approx(1, rel=0.02)
    assert first.mean() == pytest.approx(3, abs=0.02)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.01


@pytest.mark.parametrize("kind", ["rank one", "block"])
@pytest.mark.parametrize("is_masked", [False, True])
def test_scores_are_those_of_least_squares(kind, is_masked, rng):
    W = random_decomposition((5, 6, 7), kind, rng, n_atoms=3)
    X = rng.poisson(3.0, W.shape).astype(float)
    mask = rng.random(W.shape) < 0.7 if is_masked else None
    known = np.ones(W.shape, dtype=bool) if mask is None else mask
    signs = np.where(W.weights < 0, -1, 1)
    tensors = [naive.atom(M) for M in W.atoms]
    slow = np.zeros((2, 3))
    for k, M in enumerate(tensors):
        others = [j for j in range(3) if j != k]
        beside = [tensors[j] for j in others] + [naive.taken_up(M, W.atoms[j]) for j in others]
        A = np.stack([each[known] for each in (M, *beside)], axis=1)
        inverse = np.linalg.inv(A.T @ A)
        slow[0, k] = signs[k] * (inverse @ A.T @ X[known])[0] / np.sqrt(0.3 * inverse[0, 0])
        A = np.column_stack([A, np.ones(len(A))])  # counts: a constant beside, and each entry has its own variance
        inverse = np.linalg.inv(A.T @ A)
        spread = inverse @ A.T @ (X[known][:, None] * A) @ inverse
        slow[1, k] = signs[k] * (inverse @ A.T @ X[known])[0] / np.sqrt(spread[0, 0])
    np.testing.assert_allclose(weight_scores(X, mask, W, 0.3), slow[0], rtol=1e-6)
    np.testing.assert_allclose(weight_scores(X, mask, W, None), slow[1], rtol=1e-6)


def test_scores_with_a_variance_for_each_entry_are_those_of_least_squares(rng):
    W = random_decomposition((5, 6, 7), "rank one", rng, n_atoms=2)
    X, variance = rng.standard_normal(W.shape), rng.random(W.shape)
    first, second = (naive.atom(M) for M in W.atoms)
    A = np.stack([each.ravel() for each in (first, second, naive.taken_up(first, W.atoms[1]))], axis=1)
    inverse = np.linalg.inv(A.T @ A)
    spread = inverse @ A.T @ (variance.reshape(-1, 1) * A) @ inverse
    expected = np.sign(W.weights[0]) * (inverse @ A.T @ X.ravel())[0] / np.sqrt(spread[0, 0])
    assert weight_scores(X, None, W, variance)[0] == pytest.approx(expected)


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_noise_that_is_unequal_between_slices_is_no_atom(seed):
    """Split by one level, the two parts of noisy slices would be correlated."""
    levels = np.geomspace(0.5, 2, 16)[:, None, None]
    clean = make_boolean_cp((16, 40, 30), 2, random_state=seed).clean
    noise = np.random.default_rng(seed).normal(size=clean.shape) * levels
    found = significance(noise, 3, random_state=seed, certify=False, n_init=2)
    assert found.unequal == (0,) and ", unequal along mode 0)" in found.summary()
    assert not found.is_significant().any()
    equal = significance(noise, 3, sigma=noise.std(), random_state=seed, certify=False, n_init=2)
    assert equal.part_p_value.min() < 1e-3
    assert significance(clean + noise, 3, random_state=seed, certify=False).is_significant()[:2].all()
    W = found.decomposition
    tested = boolcp.assess(noise, W, tests=["significance"], certify=False, n_init=2, random_state=0)
    assert tested.trust.tested_by == "data thinning, normal noise, unequal along mode 0"
    assert "normal noise, unequal along mode 0." in tested.summary()


@pytest.mark.parametrize("seed", range(6))
def test_white_noise_is_equal_also_beside_signal(seed):
    for shape, n_atoms in (((8, 9, 10), 3), ((20, 25, 30), 4), ((10, 9, 8, 7), 3), ((20, 30), 3), ((3, 4, 5), 1)):
        X, clean, _ = make_boolean_cp(shape, n_atoms, noise=1.0, random_state=seed)
        assert noise_ratios(X) == noise_ratios(X - clean) == noise_ratios(0 * X) == {}
    recording = boolcp.datasets.simulate_recording(random_state=seed)
    assert noise_ratios(recording.X) == {}


def test_a_slice_without_noise_and_long_slices_have_their_ratio(rng):
    X = rng.standard_normal((6, 230, 20))
    X[2] = 0
    ratio = noise_ratios(X)[0]
    assert ratio[2] == 0 and np.mean(ratio**2) == pytest.approx(1) and list(noise_ratios(X)) == [0]


def test_errors_of_the_other_real_parts_are_no_score(rng):
    """Real parts are fitted to noisy data; what they leave of the signal does not count for an atom too many."""
    Z = np.array([[1, 1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0, 0, 0], [0, 1, 0, 1, 0, 1, 1, 0]], dtype=bool).T
    clean = Z[:, :2] @ rng.standard_normal((2, 40))
    V = np.linalg.pinv(Z) @ (clean + 0.5 * rng.standard_normal(clean.shape))
    sizes = np.linalg.norm(V, axis=1)
    atoms = [boolcp.Atom(0, z, [v[:, None] / size]) for z, v, size in zip(Z.T, V, sizes, strict=True)]
    scores = weight_scores(clean, None, boolcp.BooleanCP(clean.shape, tuple(atoms), sizes), 0.01)
    assert abs(scores[2]) < 1e-8 and scores[:2].min() > 10


def test_an_atom_that_the_others_explain_has_no_score(rng):
    Z, V = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0]], dtype=bool), rng.standard_normal((3, 6))
    W = boolcp.BooleanCP((3, 6), tuple(boolcp.Atom(0, z, [v[:, None]]) for z, v in zip(Z, V, strict=True)), np.ones(3))
    np.testing.assert_array_equal(weight_scores(rng.standard_normal((3, 6)), None, W, 1.0), 0)


def p_values_of_noise(draw, n_seeds, **options):
    """Return the p-values of all atoms of fits to noise, and how often one is significant."""
    found, n_wrong = [], 0
    for seed in range(n_seeds):
        X = draw(np.random.default_rng(seed))
        result = significance(X, 2, n_init=1, refine=False, random_state=seed, **options)
        found += result.part_p_value.tolist()
        n_wrong += result.is_significant().any()
    return np.array(found), n_wrong


def test_noise_is_not_significant():
    found, n_wrong = p_values_of_noise(lambda rng: rng.standard_normal((7, 8, 9)), 40)
    assert n_wrong <= 5  # 2 expected, 5 or more in 5 % of cases
    assert scipy.stats.kstest(found, "uniform").pvalue > 0.01
    found, n_wrong = p_values_of_noise(lambda rng: rng.poisson(5.0, (7, 8, 9)), 30, noise="poisson")
    assert n_wrong <= 4


def test_atoms_are_significant_and_an_atom_too_many_is_not():
    X, _, truth = make_boolean_cp((14, 15, 16), 2, noise=1.5, random_state=0)
    result = significance(X, 3, random_state=0)
    pairs = [[similarity_of(atom, t) for t in truth.atoms] for atom in result.decomposition.atoms]
    same = np.max(pairs, axis=1) > 0.5
    assert sum(same) == 2
    np.testing.assert_array_equal(result.is_significant(), same)
    assert result.sigma == pytest.approx(1.5, rel=0.05)
    assert result.summary().splitlines()[0].startswith("is each atom more than noise?")
    again = significance(X, reference=result.decomposition, sigma=1.5, random_state=1)
    np.testing.assert_array_equal(again.is_significant(), same)


def test_an_atom_too_many_of_a_matrix_is_not_significant():
    found = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        Z = rng.random((30, 3)) < 0.4
        X = Z @ rng.standard_normal((3, 50)) * 1.5 + 0.5 * rng.standard_normal((30, 50))
        result = significance(X, 4, boolean_modes=[0], random_state=seed)
        is_true = np.array([(atom.z[:, None] == Z).all(axis=0).any() for atom in result.decomposition.atoms])
        if is_true.sum() == 3:  # else four atoms describe the three in another way
            assert result.is_significant()[is_true].all()
            found.append(result.part_p_value.max())
    assert len(found) >= 10 and np.sum(np.array(found) <= 0.05) <= 3  # most, if real parts were taken as exact


def test_a_pattern_of_counts_is_found_beside_a_constant_rate(rng):
    z, u = np.arange(16) < 6, np.where(np.arange(14) < 7, 2.0, 0.0)
    rate = 3 + np.einsum("i,j,k->ijk", z, u, np.ones(12))
    X = rng.poisson(rate)
    result = significance(X, 2, noise="poisson", random_state=0)
    best = int(np.argmin(result.p_adjusted))
    assert result.p_adjusted[best] < 1e-3
    with pytest.raises(ValueError, match="for counts"):
        significance(X - 5, 2, noise="poisson")


def test_missing_entries_are_not_read():
    X, _, _ = make_boolean_cp((12, 13, 14), 2, noise=1, missing=0.3, random_state=0)
    mask = ~np.isnan(X)
    results = [significance(np.where(mask, X, value), 2, mask=mask, random_state=0) for value in (0, 999)]
    np.testing.assert_array_equal(results[0].p_value, results[1].p_value)
    assert results[0].is_significant().all()


def test_bad_arguments_are_named():
    X = np.zeros((3, 4, 5))
    for options, message in [
        ({"noise": "cauchy"}, "noise must be one of"),
        ({"reference": boolcp.BooleanCP((3, 4, 6))}, "decomposition of X"),
    ]:
        with pytest.raises(ValueError, match=message):
            significance(X, 1, **options)
