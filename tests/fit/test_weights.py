"""Weights of entries, missing entries, and what is filled in for them."""

import warnings
from dataclasses import replace

import naive
import numpy as np
import pytest
from samples import with_gaps

from boolcp import BMP, BoolcpWarning, decompose
from boolcp.datasets import make_boolean_cp
from boolcp.fit.remainder import remainder
from boolcp.fit.transform import shrink_to_mean
from boolcp.metrics import hamming_error, rmse


@pytest.fixture
def uneven():
    """Return a tensor whose noise differs between the slices of mode 0 by a factor of 10, the truth and the weights."""
    _, clean, truth = make_boolean_cp((15, 12, 14), 2, random_state=3)
    sigma = np.where(np.arange(15) % 3 == 0, 4.0, 0.4)[:, None, None]
    return clean + sigma * np.random.default_rng(0).standard_normal(clean.shape), clean, truth, sigma**-2


# weights


def test_weights_by_the_noise_lower_the_error(uneven):
    X, clean, truth, weights = uneven
    plain, weighted = decompose(X, 2, random_state=0), decompose(X, 2, weights=weights, random_state=0)
    assert rmse(weighted, clean) < 0.5 * rmse(plain, clean)
    assert hamming_error(weighted, truth) <= hamming_error(plain, truth)


def test_the_loss_is_weighted_and_at_a_minimum(uneven):
    X, _, _, weights = uneven
    W = decompose(X, 2, weights=weights, random_state=0)
    loss = np.sum(weights * (X - W.to_tensor()) ** 2)
    assert W.explained() == pytest.approx(1 - loss / np.sum(weights * X**2))
    slopes = [np.sum(weights * (X - W.to_tensor()) * naive.atom(atom)) for atom in W.atoms]
    np.testing.assert_allclose(slopes, 0, atol=1e-3 * np.sqrt(loss))
    assert W.trust.sigma == pytest.approx(1, abs=0.1)  # weights are one over the variance


def test_a_weight_of_zero_is_missing(uneven):
    X, *_ = uneven
    mask = np.random.default_rng(1).random(X.shape) < 0.7
    model = BMP(2, random_state=0).fit(X, weights=mask)
    filled = model.complete(X, weights=mask)
    np.testing.assert_array_equal(filled, model.complete(np.where(mask, X, np.nan)))
    np.testing.assert_array_equal(filled[mask], X[mask])


def test_weights_broadcast_as_in_numpy_or_by_the_names_of_modes():
    xr = pytest.importorskip("xarray")
    X = make_boolean_cp((6, 7, 8), 2, noise=0.1, random_state=0).X
    channel, trial = np.linspace(1, 2, 6), np.linspace(2, 1, 8)
    labelled = xr.DataArray(X, dims=("channel", "time", "trial"))
    every = decompose(X, 2, weights=np.broadcast_to(channel[:, None, None] * trial, X.shape), random_state=0)
    by_name = xr.DataArray(np.outer(trial, channel), dims=("trial", "channel"))
    for data, weights in ((X, channel[:, None, None] * trial), (labelled, by_name)):
        np.testing.assert_array_equal(
            decompose(data, 2, weights=weights, random_state=0).to_tensor(), every.to_tensor()
        )
    alike = decompose(X, 2, weights=7.0, random_state=0)
    np.testing.assert_array_equal(alike.to_tensor(), decompose(X, 2, random_state=0).to_tensor())
    with pytest.raises(ValueError, match="weights has the modes place, channel, but they must be"):
        decompose(labelled, 2, weights=by_name.rename(trial="place"))


def test_new_slices_are_solved_by_weighted_least_squares(uneven):
    X, _, _, weights = uneven
    model = BMP(2, random_state=0).fit(X, weights=weights)
    W, every = model.decomposition_, np.broadcast_to(weights, X.shape)
    for mode in range(3):
        found = model.transform(X, mode=mode, weights=weights)
        A = [(W.weights if n == (mode + 1) % 3 else 1.0) * np.asarray(M) for n, M in enumerate(W.matrices)]
        H, P = naive.weighted_equations(X, every, A, mode)
        expected = [naive.best_row(h, p, W.boolean_mode == mode) for h, p in zip(H, P, strict=True)]
        estimate = model.inverse_transform(found, mode=mode)
        A[mode] = np.array(expected)
        np.testing.assert_allclose(estimate, naive.full(A), atol=1e-7)
    left = every * (X - model.inverse_transform(model.transform(X, weights=weights))) ** 2
    assert model.score(X, weights=weights) == pytest.approx(1 - np.sum(left) / np.sum(every * X**2))


def test_certificates_are_those_of_the_weighted_loss(uneven):
    X, _, _, weights = uneven
    W = decompose(X, 2, weights=weights, random_state=0)
    weighted, plain = (
        [atom.certificate for atom in W.certify(X, weights=given, effort="quick").atoms] for given in (weights, None)
    )
    np.testing.assert_allclose(weighted, [atom.certificate for atom in W.atoms], rtol=1e-6)
    assert not np.allclose(weighted, plain, rtol=1e-3)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones((3, 3)), r"weights has shape \(3, 3\), which does not broadcast against X of shape \(4, 5, 6\)"),
        (-np.ones((4, 5, 6)), r"at least 0, but it is -1.0 at \(0, 0, 0\)"),
        (np.full((4, 5, 6), np.nan), "finite"),
        (np.zeros((4, 5, 6)), "zero everywhere"),
        ("abcd", "weights must be numbers"),
    ],
)
def test_bad_weights_are_named(weights, words, rng):
    with pytest.raises(ValueError, match=words):
        BMP(1).fit(rng.standard_normal((4, 5, 6)), weights=weights)


def test_weights_that_leave_no_observed_entry_are_named(rng):
    X, mask = rng.standard_normal((4, 5, 6)), np.zeros((4, 5, 6), dtype=bool)
    mask[0] = True
    with pytest.raises(ValueError, match="zero at every observed entry of X"):
        BMP(1).fit(X, mask=mask, weights=np.array([0, 1, 1, 1])[:, None, None])


# missing entries


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_a_tensor_without_noise_is_completed(share):
    X, clean, truth = make_boolean_cp((14, 15, 16), 2, random_state=2)
    gaps = with_gaps(X, share)
    model = BMP(2, random_state=0).fit(gaps)
    assert hamming_error(model.decomposition_, truth) == 0
    np.testing.assert_allclose(model.complete(gaps), clean, atol=1e-5)


@pytest.mark.parametrize("form", ["mask", "NaN", "masked array", "list", "sparse"])
def test_every_form_of_missing_entries_has_the_same_fit(form):
    X = make_boolean_cp((8, 9, 10), 2, noise=0.2, random_state=0).X
    mask = ~np.isnan(with_gaps(X, 0.3))
    expected = decompose(X, 2, mask=mask, random_state=0)
    if form == "sparse":
        sparse = pytest.importorskip("sparse")
        given = sparse.COO(np.argwhere(mask).T, X[mask], X.shape)
    else:
        given = {
            "mask": np.where(mask, X, 1e5),
            "NaN": np.where(mask, X, np.nan),
            "masked array": np.ma.masked_array(np.where(mask, X, np.inf), ~mask),
            "list": (np.argwhere(mask), X[mask], X.shape),
        }[form]
    W = decompose(given, 2, random_state=0, **({"mask": mask} if form == "mask" else {}))
    np.testing.assert_array_equal(W.to_tensor(), expected.to_tensor())


def test_lists_of_entries_that_make_no_sense_are_named():
    for indices, values, words in (
        ([[0, 0, 0], [0, 0, 0]], [1.0, 2.0], "twice"),
        ([[0, 0, 9]], [1.0], "indices of X must be integers from 0"),
        ([[0, 0]], [1.0], r"indices must be \(number of values, 3\)"),
        ([[0, 0, 0]], [np.nan], "no entry is observed"),
    ):
        with pytest.raises(ValueError, match=words):
            decompose((np.array(indices), np.array(values), (3, 4, 5)), 1)


def test_slices_without_any_entry_are_undetermined():
    X = make_boolean_cp((8, 9, 10), [0, 1, 1], noise=0.1, random_state=0).X
    X[3], X[:, 4] = np.nan, np.nan
    with pytest.warns(BoolcpWarning, match=r"1 slice\(s\) along mode . have no observed entry") as told:
        model = BMP(2, boolean_modes=[1, 2], random_state=0).fit(X)
    W = model.decomposition_
    assert len(told) == 2 and set(W.undetermined) == {0, 1}
    assert np.isnan(W.to_tensor()[3]).all() and np.isnan(W.to_tensor()[:, 4]).all()
    assert np.isfinite(np.delete(np.delete(W.to_tensor(), 3, 0), 4, 1)).all()
    assert not any(atom.z[4] for atom in W.atoms if atom.mode == 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isnan(model.complete(X)[3]).all()


def spike_counts(seed, shape=(12, 25, 60), hidden=0.8):
    """Return rare counts, as of spikes, and a mask that hides most of them."""
    rng = np.random.default_rng(seed)
    rates = 0.15 * np.exp(np.einsum("ir,jr,kr->ijk", *(rng.standard_normal((d, 2)) / 1.5 for d in shape)))
    return rng.poisson(np.minimum(rates, 2)).astype(float), rng.random(shape) > hidden


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_completion_of_rare_counts_stays_in_bounds_and_is_no_worse_than_the_mean(seed):
    X, mask = spike_counts(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BMP(3, n_init=2, certify=False, random_state=seed).fit(X, mask=mask)
        filled = model.complete(X, mask=mask)

    def share(Y):
        return np.std(X[~mask] - Y[~mask]) / np.std(X[~mask])

    assert share(model.decomposition_.to_tensor()) < 1.1  # 10 to 50 without a ridge
    assert share(filled) < 1.05
    assert filled.min() >= X[mask].min() and filled.max() <= X[mask].max()
    np.testing.assert_array_equal(filled[mask], X[mask])


def test_a_known_noise_level_sets_the_ridge():
    X, mask = spike_counts(0, (10, 12, 14))
    sizes = []
    for sigma in (0.0, 0.05, 0.2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sizes.append(decompose(X, 2, mask=mask, sigma=sigma, random_state=0).norm())
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_fill_far_outside_the_range_is_clipped_with_a_warning():
    X = with_gaps(make_boolean_cp((10, 11, 12), 1, noise=0.1, random_state=0).X, 0.3)
    model = BMP(1, loss="huber", random_state=0).fit(X)
    W = model.decomposition_
    model.decomposition_ = replace(W, weights=50 * W.weights, data_norm2=None)
    with pytest.warns(BoolcpWarning, match="far outside the range of the data and were clipped to"):
        filled = model.complete(X)
    assert filled.max() <= np.nanmax(X) and filled.min() >= np.nanmin(X)


def test_an_exact_fit_is_not_clipped():
    X, clean, _ = make_boolean_cp((12, 13, 14), 2, random_state=0)
    mask = np.ones(X.shape, dtype=bool)
    mask[np.unravel_index([X.argmax(), X.argmin()], X.shape)] = False
    filled = BMP(2, random_state=0).fit(X, mask=mask).complete(X, mask=mask)
    np.testing.assert_allclose(filled, clean, atol=1e-6)
    assert filled.max() > X[mask].max()


def test_fills_of_noise_are_the_mean_and_those_of_a_signal_stay(rng):
    signal, noise, fills = rng.standard_normal(1320), rng.standard_normal(1320), np.array([5.0, -5.0])
    with pytest.warns(BoolcpWarning, match="shrunk to 0% of their deviation from the mean"):
        found = shrink_to_mean(fills, 0.02 * signal, noise, 60)
    np.testing.assert_allclose(found, noise.mean())
    kept = shrink_to_mean(fills, 50 * signal, 50 * signal + noise, 60)
    np.testing.assert_allclose(kept, fills, rtol=1e-2, atol=0.05)


def test_the_share_of_fills_is_that_of_the_lowest_risk(rng):
    known = rng.standard_normal(200) + 2
    fitted = known + rng.standard_normal(200)
    mean = known.mean()
    size = np.mean((fitted - mean) ** 2)
    best = np.vdot(fitted - mean, known - mean) / np.sum((fitted - mean) ** 2)
    fills = np.array([mean + 1.0, np.nan])
    np.testing.assert_allclose(shrink_to_mean(fills, fitted, known, 0), [mean + best, np.nan])
    # twice as far from the mean as the fit: what is beyond it is noise
    far = shrink_to_mean(mean + 2 * np.sqrt(size) * np.ones(3), fitted, known, 0)
    np.testing.assert_allclose(far, mean + best * 1.25 / 4 * 2 * np.sqrt(size))


def test_a_low_rank_remainder_helps_to_fill_in_and_noise_has_none(rng):
    low = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 13 * 14))
    R, observed = low.reshape(12, 13, 14) + 0.1 * rng.standard_normal((12, 13, 14)), rng.random((12, 13, 14)) < 0.7
    estimate, dof = remainder(np.where(observed, R, 0.0), observed)
    assert np.std((R - estimate)[~observed]) < 0.3 * np.std(R[~observed]) and 0 < dof < observed.sum()
    found = remainder(np.where(observed, rng.standard_normal(R.shape), 0.0), observed)
    assert found is None or np.std(found[0]) < 0.2
    assert remainder(np.zeros((2, 2)), np.zeros((2, 2), dtype=bool)) is None


def test_completion_takes_what_the_atoms_leave_into_account(rng):
    X, _, _ = make_boolean_cp((14, 15, 16), 1, noise=0.1, random_state=0)
    X = X + np.einsum("ir,jr,kr->ijk", *(rng.standard_normal((d, 2)) for d in X.shape))
    mask = rng.random(X.shape) < 0.7
    model = BMP(1, random_state=0).fit(X, mask=mask)
    filled = model.complete(X, mask=mask)
    atoms = model.decomposition_.to_tensor()
    assert np.std((X - filled)[~mask]) < 0.6 * np.std((X - atoms)[~mask])


@pytest.mark.parametrize("n_atoms", [2, 3])
@pytest.mark.parametrize(("rank", "most"), [(2, 1e-6), ("block", 1e-4)])
def test_completion_is_right_where_the_data_determine_it(rank, most, n_atoms):
    X, clean, truth = make_boolean_cp((12, 13, 14), 2, missing=0.2, random_state=1)
    is_free = np.zeros(X.shape, dtype=bool)
    for atom in truth.atoms:  # entries of a block that are observed in no slice where the atom is on
        unseen = np.isnan(np.moveaxis(X, atom.mode, 0)[atom.z]).all(axis=0)
        np.moveaxis(is_free, atom.mode, 0)[atom.z] |= unseen
    filled = BMP(n_atoms, atom_rank=rank, random_state=0).fit(X).complete(X)
    assert is_free.any()
    np.testing.assert_allclose(filled[~is_free], clean[~is_free], atol=most)
