"""Completion that does not explode: the ridge over observed entries, and fills within the range of the data."""

import warnings

import numpy as np
import pytest

import boolcp
from boolcp.fit.polish import polish, with_ridge
from boolcp.result.columns import Columns, to_columns
from boolcp.storage import MaskedTensor


def spike_counts(rng, shape=(12, 25, 60), hidden=0.8):
    """Return rare counts, as of spikes, and a mask that hides most of them."""
    rates = 0.15 * np.exp(np.einsum("ir,jr,kr->ijk", *(rng.standard_normal((d, 2)) / 1.5 for d in shape)))
    return rng.poisson(np.minimum(rates, 2)).astype(float), rng.random(shape) > hidden


def held_out_share(X, mask, filled):
    """Return the error of fills over that of the mean."""
    return np.std(X[~mask] - filled[~mask]) / np.std(X[~mask])


def columns(rng, shape=(7, 8, 9), n_atoms=2):
    matrices = [rng.standard_normal((d, n_atoms)) for d in shape]
    matrices[0] = (matrices[0] > 0).astype(float)
    return Columns(tuple(matrices), np.arange(n_atoms), np.zeros(n_atoms, dtype=int))


def test_ridge_is_the_noise_over_the_mean_square_of_a_column(rng):
    W, d = columns(rng, (7, 400, 9)), 400
    data = MaskedTensor(np.ones((7, d, 9)), rng.random((7, d, 9)) < 0.7)
    H, _ = data.normal_equations(W.matrices, 1)
    ridged = with_ridge(H, *W.ties(1), W.matrices[1], 1e-6, 416)
    added = ridged - H
    np.testing.assert_allclose(added, np.broadcast_to(np.diag(np.diag(added[0])), added.shape))
    np.testing.assert_allclose(np.diag(added[0]), 1e-6 / np.mean(W.matrices[1] ** 2, axis=0), rtol=0.2)


def test_bits_and_complete_data_have_no_ridge(rng):
    W = columns(rng)
    H, _ = MaskedTensor(np.ones((7, 8, 9)), rng.random((7, 8, 9)) < 0.7).normal_equations(W.matrices, 0)
    np.testing.assert_array_equal(with_ridge(H, *W.ties(0), W.matrices[0], 1.0, 24), H)
    np.testing.assert_array_equal(with_ridge(H[0], *W.ties(1), W.matrices[1], 1.0, 24), H[0])


def test_ridge_lowers_what_hidden_entries_hold(rng):
    X, mask = spike_counts(rng)
    data, start = MaskedTensor(X, mask), columns(rng, X.shape, 2)
    plain = polish(data, start.with_matrices([np.ones((12, 2)), *(0.3 * np.abs(A) for A in start.matrices[1:])]))
    ridged = polish(data, plain, variance=plain.loss / mask.sum())
    energy = [np.sum(W.to_decomposition().to_tensor()[~mask] ** 2) for W in (plain, ridged)]
    assert energy[1] < 0.9 * energy[0]
    assert ridged.loss < np.sum(X[mask] ** 2)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_completion_of_spike_counts_is_not_worse_than_the_mean(seed):
    X, mask = spike_counts(np.random.default_rng(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = boolcp.BMP(3, n_init=2, certify=False, random_state=seed).fit(X, mask=mask)
        filled = model.complete(X, mask=mask)
    assert held_out_share(X, mask, model.decomposition_.to_tensor()) < 1.1  # 10 to 50 without the ridge
    assert held_out_share(X, mask, filled) < 1.05
    assert filled.min() >= X[mask].min() and filled.max() <= X[mask].max()
    np.testing.assert_array_equal(filled[mask], X[mask])


def test_a_fill_far_outside_the_range_is_clipped_with_a_warning(rng, monkeypatch):
    monkeypatch.setattr("boolcp.fit.transform.shrink_to_mean", lambda fills, *_: fills)
    X, mask = spike_counts(rng, (6, 7, 8), 0.3)
    model = boolcp.BMP(1, certify=False, random_state=0).fit(X, mask=mask)
    W = model.decomposition_
    model.decomposition_ = boolcp.BooleanCP(W.shape, W.atoms, 1e3 * W.weights)
    with pytest.warns(UserWarning, match="clipped to"):
        filled = model.complete(X, mask=mask)
    assert filled.max() == X[mask].max()


def test_an_exact_fit_is_not_clipped():
    X, clean, _ = boolcp.datasets.make_boolean_cp((12, 13, 14), 2, random_state=0)
    mask = np.ones(X.shape, dtype=bool)
    mask[np.unravel_index([X.argmax(), X.argmin()], X.shape)] = False
    filled = boolcp.BMP(2, random_state=0).fit(X, mask=mask).complete(X, mask=mask)
    np.testing.assert_allclose(filled, clean, atol=1e-6)
    assert filled.max() > X[mask].max()


def test_ridge_leaves_a_fit_without_noise_as_it_is():
    X, _, truth = boolcp.datasets.make_boolean_cp((12, 13, 14), 2, random_state=0)
    mask = np.random.default_rng(0).random(X.shape) < 0.6
    data = MaskedTensor(X, mask)
    exact = polish(data, to_columns(truth))
    ridged = polish(data, exact, variance=exact.loss / mask.sum())
    np.testing.assert_allclose(ridged.to_decomposition().to_tensor(), X, atol=1e-8)
