"""What `complete` fills in, between the mean and the estimate."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from samples import with_gaps

from boolcp import BMP, Atom, BoolcpWarning
from boolcp.datasets import make_boolean_cp
from boolcp.fit.transform import shrink_to_mean, whole
from boolcp.result.atoms import BooleanCP
from boolcp.result.background import Background


def test_fills_of_noise_are_the_mean_and_those_of_a_signal_stay(rng):
    W = make_boolean_cp((10, 11, 12), 2, random_state=0).truth
    signal, noise, fills = W.to_tensor().ravel(), rng.standard_normal(1320), np.array([5.0, -5.0])
    with pytest.warns(BoolcpWarning, match="keeps 0% of their difference from the mean"):
        found = shrink_to_mean(fills, 0.02 * signal, noise, W)
    np.testing.assert_allclose(found, noise.mean())
    kept = shrink_to_mean(fills, 50 * signal, 50 * signal + noise, W)
    np.testing.assert_allclose(kept, fills, rtol=1e-2, atol=0.05)


def test_the_factor_is_that_of_the_lowest_risk(rng):
    W, known, fitted = BooleanCP((3, 4)), rng.standard_normal(200) + 2, rng.standard_normal(200) + 2
    fitted += known
    mean = known.mean()
    fills, size = np.array([mean + 1.0, np.nan]), np.mean((fitted - mean) ** 2)
    best = np.vdot(fitted - mean, known - mean) / np.sum((fitted - mean) ** 2)
    assert size > 1
    np.testing.assert_allclose(shrink_to_mean(fills, fitted, known, W), [mean + best, np.nan])
    # twice as far from the mean as the fit: what is beyond it is noise
    far = shrink_to_mean(mean + 2 * np.sqrt(size) * np.ones(3), fitted, known, W)
    np.testing.assert_allclose(far, mean + best * 1.25 / 4 * 2 * np.sqrt(size))


def test_fills_of_a_lazy_array_stay_in_the_range_of_what_is_observed():
    X = with_gaps(make_boolean_cp((10, 11, 12), 2, noise=0.5, random_state=0).X, 0.2)
    model = BMP(2, random_state=0).fit(X)
    model.decomposition_ = BooleanCP(X.shape, model.decomposition_.atoms, 100 * model.decomposition_.weights)
    filled = model.complete(da.from_array(X, chunks=6)).compute()
    assert filled.min() == np.nanmin(X) and filled.max() == np.nanmax(X)
    np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])


def test_fills_of_a_lazy_array_are_those_in_memory():
    X = with_gaps(make_boolean_cp((10, 11, 12), 2, noise=2.0, random_state=0).X, 0.3)
    model = BMP(2, random_state=0).fit(X)
    rest = np.random.default_rng(3).standard_normal((2, 11))
    low = Background(X.shape, 1, rest.T, np.ones((120, 2)), 5.0, 0.0)
    model.decomposition_ = replace(model.decomposition_, background=low)
    with pytest.warns(BoolcpWarning, match="hardly better than noise"):
        expected = model.complete(X)
    assert not np.allclose(expected[np.isnan(X)], whole(model.decomposition_)[np.isnan(X)], rtol=0.01)
    np.testing.assert_allclose(model.complete(da.from_array(X, chunks=6)).compute(), expected)


def unseen_of(atom, X):
    """Return which entries of an atom's block are observed in no slice where the atom is on."""
    return np.isnan(np.moveaxis(X, atom.mode, 0)[atom.z]).all(axis=0)


def test_a_block_of_rank_two_is_free_where_no_slice_shows_it():
    X, clean, truth = make_boolean_cp((12, 13, 14), 2, missing=0.2, random_state=1)
    atom = next(atom for atom in truth.atoms if unseen_of(atom, X).any())
    first, second = np.argwhere(unseen_of(atom, X))[0]
    units = np.eye(12 if atom.mode == 1 else 13)[:, [first]], np.eye(14)[:, [second]]
    other = Atom(atom.mode, atom.z, tuple(np.hstack([A, u]) for A, u in zip(atom.factors, units, strict=True)))
    atoms = [other if each is atom else each for each in truth.atoms]
    changed = BooleanCP(X.shape, atoms, truth.weights).to_tensor()
    observed = ~np.isnan(X)
    assert other.rank == 2 and not np.allclose(changed, clean)
    np.testing.assert_allclose(changed[observed], X[observed])


@pytest.mark.parametrize("n_atoms", [2, 3])
@pytest.mark.parametrize(("atom_rank", "most"), [(2, 1e-7), (None, 1e-4)])
def test_completion_is_right_where_the_data_determine_it(atom_rank, most, n_atoms):
    X, clean, truth = make_boolean_cp((12, 13, 14), 2, missing=0.2, random_state=1)
    is_free = np.zeros(X.shape, dtype=bool)
    for atom in truth.atoms:
        np.moveaxis(is_free, atom.mode, 0)[atom.z] |= unseen_of(atom, X)
    filled = BMP(n_atoms, atom_rank=atom_rank, random_state=0).fit(X).complete(X)
    assert is_free.any()
    np.testing.assert_allclose(filled[~is_free], clean[~is_free], atol=most)
