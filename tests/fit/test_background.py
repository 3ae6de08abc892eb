"""Structure of low rank beside the atoms."""

import dask.array as da
import numpy as np
import pytest
from samples import assert_identical, with_gaps

from boolcp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.metrics import hamming_error, rmse

SHAPE = (20, 22, 24)


def planted(rng, rank=4):
    """Return a tensor of atoms in noise with a background along mode 1, the atoms, their sum and the background."""
    X, clean, truth = make_boolean_cp(SHAPE, 3, noise=0.5, random_state=3)
    low = rng.standard_normal((22, rank)) @ rng.standard_normal((rank, 480)) / np.sqrt(rank)
    background = np.moveaxis(low.reshape(22, 20, 24), 0, 1)
    return X + background, truth, clean, background


@pytest.mark.parametrize("kind", ["auto", 4])
def test_atoms_and_background_are_told_apart(kind, rng):
    X, truth, clean, background = planted(rng)
    model = BMP(3, background=kind, random_state=0).fit(X)
    found = model.background_
    assert hamming_error(model.decomposition_, truth) == 0
    assert found.mode == 1 and found.rank == 4 and found.n_parameters == 4 * (22 + 480 - 4)
    assert rmse(model.decomposition_, clean) < 0.1 and rmse(found.to_tensor(), background) < 0.25
    whole = model.decomposition_.to_tensor() + found.to_tensor()
    explained = 1 - np.sum((X - whole) ** 2) / np.sum(X**2)
    assert found.share + model.decomposition_.explained() == pytest.approx(explained)
    assert found.degrees_of_freedom <= found.n_parameters and "rank 4 along mode 1" in repr(found)


def test_noise_has_no_background():
    X = make_boolean_cp(SHAPE, 3, noise=0.5, random_state=3).X
    with_it, without_it = (BMP(3, background=kind, random_state=0).fit(X) for kind in ("auto", None))
    assert with_it.background_ is None and without_it.background_ is None
    np.testing.assert_array_equal(with_it.decomposition_.to_tensor(), without_it.decomposition_.to_tensor())


def test_a_given_rank_is_the_best_approximation_of_what_is_left(rng):
    X = planted(rng)[0]
    model = BMP(3, background=2, random_state=0).fit(X)
    R = np.moveaxis(X - model.decomposition_.to_tensor(), model.background_.mode, 0)
    U, s, V = np.linalg.svd(R.reshape(len(R), -1), full_matrices=False)
    found = model.background_
    np.testing.assert_allclose(found.left @ found.right.T, (U[:, :2] * s[:2]) @ V[:2], atol=1e-8)


def test_it_is_resumed_with_the_same_bits(rng, tmp_path):
    X = planted(rng)[0]
    whole, path = BMP(3, background="auto", random_state=0).fit(X), tmp_path / "fit.npz"
    stopped = BMP(3, background="auto", random_state=0).fit(X, checkpoint=path, callback=lambda progress: True)
    assert stopped.decomposition_.n_atoms == 3
    assert_identical(BMP.resume(path, X), whole)


def test_what_it_cannot_do_is_said(rng):
    X = planted(rng)[0]
    for bad in ("yes", 0, 1.5):
        with pytest.raises((ValueError, TypeError), match="background must be"):
            BMP(2, background=bad).fit(X)
    model = BMP(2, background="auto", random_state=0, warm_start=True)
    with pytest.raises(ValueError, match="complete data in memory"):
        model.fit(with_gaps(X, 0.1))
    with pytest.raises(ValueError, match="complete data in memory"):
        model.fit(da.from_array(X, chunks=7))
    with pytest.raises(ValueError, match="fit_path refines atoms alone"):
        model.fit_path(X)
    with pytest.raises(ValueError, match="not beside a background"):
        model.fit(X).fit(X)
