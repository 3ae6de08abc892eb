"""The number of atoms: the largest one whose atoms all come back in fits to parts of the data."""

import numpy as np
import pytest

import boolcp
from boolcp.datasets import make_boolean_cp

PARTS = {"n_parts": 4, "random_state": 0}


def sample(noise=0.5, n_atoms=3, shape=(14, 15, 40), **how):
    return make_boolean_cp(shape, n_atoms, noise=noise, random_state=1, **{"boolean_modes": [2]} | how).X


def test_the_true_number_is_chosen():
    found = boolcp.select_n_atoms(sample(), 5, boolean_modes=[2], **PARTS)
    assert found.n_atoms == 3 and not found.is_at_edge and found.n_replicated[:3] == [1, 2, 3]
    assert [len(share) for share in found.shares] == list(range(1, len(found.shares) + 1))
    lines = found.summary().splitlines()
    assert "<- chosen" in lines[1 + 3] and "4 fits to halves of mode 2" in lines[0]
    several = boolcp.select_n_atoms(sample(), 5, boolean_modes=[2], n_jobs=2, **PARTS)
    np.testing.assert_array_equal(np.concatenate(found.shares), np.concatenate(several.shares))


def test_the_largest_number_tried_may_be_too_small():
    with pytest.warns(boolcp.BoolcpWarning, match="largest one tried, 2"):
        found = boolcp.select_n_atoms(sample(), 2, boolean_modes=[2], **PARTS)
    assert found.n_atoms == 2 and found.is_at_edge and "a larger one may be better" in found.summary()


@pytest.mark.filterwarnings("ignore:X:boolcp.BoolcpWarning")
def test_nothing_is_chosen_in_noise_and_auto_fits_one_atom(rng):
    X = rng.standard_normal((12, 14, 16))
    found = boolcp.select_n_atoms(X, 3, boolean_modes=[2], n_init=1, **PARTS)
    assert found.n_atoms == 0 and "<- chosen" not in found.summary()
    with pytest.warns(boolcp.BoolcpWarning):
        model = boolcp.BMP("auto", boolean_modes=[2], n_init=1, random_state=0).fit(X)
    assert model.selection_.n_atoms == 0 and model.decomposition_.n_atoms == 1


@pytest.mark.parametrize("noise", ["white", "separable"])
def test_auto_fits_the_number_that_is_chosen(noise):
    model = boolcp.BMP("auto", boolean_modes=[2], noise=noise, random_state=0).fit(sample(n_atoms=2))
    assert model.selection_.n_atoms == model.decomposition_.n_atoms == 2
    with pytest.raises(ValueError, match="which have no checkpoint"):
        model.fit(sample(), checkpoint="x.ckpt")


def test_values_that_are_missing_never_matter():
    X = sample(n_atoms=1, shape=(8, 9, 30))
    mask = np.random.default_rng(0).random(X.shape) > 0.1
    options = {"boolean_modes": [2], "n_init": 2, "max_atoms": 2, **PARTS}
    found = [boolcp.select_n_atoms(np.where(mask, X, value), mask=mask, **options) for value in (0.0, 999.0)]
    np.testing.assert_array_equal(*(np.concatenate(one.shares) for one in found))
    assert found[0].n_atoms >= 1


def test_what_is_wrong_is_named():
    for options, words in (({"max_atoms": 0}, "max_atoms"), ({"n_parts": 0}, "n_parts"), ({"mode": 5}, "mode")):
        with pytest.raises(ValueError, match=words):
            boolcp.select_n_atoms(sample(shape=(5, 6, 7), n_atoms=1), **options)
