"""Fits with a weight for each entry."""

import numpy as np
import pytest

import boolcp
from boolcp import BMP, decompose
from boolcp.datasets import make_boolean_cp
from boolcp.fit.polish import polish
from boolcp.metrics import hamming_error, rmse
from boolcp.result.columns import to_columns
from boolcp.storage import WeightedTensor


@pytest.fixture
def uneven():
    """Return a tensor whose noise differs between the slices of mode 0 by a factor of 20, the truth and the noise."""
    _, clean, truth = make_boolean_cp((24, 20, 22), 3, random_state=3)
    rng = np.random.default_rng(0)
    sigma = np.where(np.arange(24) % 3 == 0, 8.0, 0.4)
    return clean + sigma[:, None, None] * rng.standard_normal(clean.shape), clean, truth, sigma


def test_weights_by_the_noise_lower_the_error(uneven):
    X, clean, truth, sigma = uneven
    plain, weighted = (
        decompose(X, 3, atom_rank=1, random_state=0),
        decompose(X, 3, weights={0: sigma**-2}, random_state=0),
    )
    assert rmse(weighted, clean) < 0.5 * rmse(plain, clean)
    assert hamming_error(weighted, truth) <= hamming_error(plain, truth)
    estimated = decompose(X, 3, weights=0, random_state=0)
    assert rmse(estimated, clean) < 0.6 * rmse(plain, clean)


def test_the_loss_is_weighted_and_nearly_at_a_minimum(uneven):
    X, _, _, sigma = uneven
    weights = np.broadcast_to((sigma**-2)[:, None, None], X.shape)
    W = decompose(X, 3, weights=weights, random_state=0)
    loss = np.sum(weights * (X - W.to_tensor()) ** 2)
    assert W.explained() == pytest.approx(1 - loss / np.sum(weights * X**2))
    np.testing.assert_allclose(gradient(W, X, weights), 0, atol=0.02 * np.sqrt(loss))  # the ridge shrinks atoms
    without_ridge = polish(WeightedTensor(X, np.array(weights)), to_columns(W)).to_decomposition()
    np.testing.assert_allclose(gradient(without_ridge, X, weights), 0, atol=1e-5 * np.sqrt(loss))


def gradient(W, X, weights):
    """Return the inner product of the weighted residual with each atom."""
    return [np.sum(weights * (X - W.to_tensor()) * atom_tensor(W, k)) for k in range(W.n_atoms)]


def atom_tensor(W, k):
    atom = W.atoms[k]
    return np.moveaxis(np.multiply.outer(atom.z.astype(float), atom.dense_block()), 0, atom.mode)


def test_a_weight_of_zero_is_missing(uneven):
    X, *_ = uneven
    mask = np.random.default_rng(1).random(X.shape) < 0.7
    masked = decompose(X, 3, mask=mask, atom_rank=1, random_state=0)
    weighted = decompose(np.where(mask, X, 1e6), 3, weights=mask.astype(float), random_state=0)
    both = decompose(X, 3, mask=mask, weights=np.ones(X.shape), random_state=0)
    for W in (weighted, both):
        assert W.explained() == pytest.approx(masked.explained(), rel=1e-6)
        assert hamming_error(W, masked) == 0


def test_the_scale_of_the_weights_does_not_matter(uneven):
    X, _, _, sigma = uneven
    one, other = (decompose(X, 3, weights={0: c * sigma**-2.0}, random_state=0) for c in (1.0, 1e4))
    assert hamming_error(one, other) == 0 and rmse(one, other.to_tensor()) < 1e-3 * rmse(one, X)


def test_modes_are_named_and_the_vectors_multiply():
    xr = pytest.importorskip("xarray")
    X = make_boolean_cp((6, 7, 8), 2, noise=0.1, random_state=0).X
    labelled = xr.DataArray(X, dims=("channel", "time", "trial"))
    channel, trial = np.linspace(1, 2, 6), np.linspace(2, 1, 8)
    by_name = BMP(2, random_state=0).fit(labelled, weights={"channel": channel, "trial": trial}).decomposition_
    by_entry = decompose(X, 2, weights=np.broadcast_to(channel[:, None, None] * trial, X.shape), random_state=0)
    np.testing.assert_allclose(by_name.to_tensor(), by_entry.to_tensor(), atol=1e-10)


def test_a_checkpoint_knows_the_weights(tmp_path, uneven):
    X, _, _, sigma = uneven
    path = tmp_path / "fit.npz"
    BMP(2, random_state=0).fit(X, weights={0: sigma**-2}, checkpoint=path)
    with pytest.raises(boolcp.io.FileError, match="different data"):
        BMP(2, random_state=0).fit(X, weights={0: sigma**-1}, checkpoint=path)


BAD = {
    "shape": (np.ones((3, 3)), "weights has shape"),
    "negative": (-np.ones((4, 5, 6)), r"at least 0, but it is -1.0 at \(0, 0, 0\)"),
    "zero": (np.zeros((4, 5, 6)), "zero everywhere"),
    "vector": ({0: np.ones(5)}, "weights of mode 0"),
    "mode": ({"channel": np.ones(4)}, "no dimension names"),
    "name": ("channel", "no dimension names"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_weights_are_named(case, rng):
    weights, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        BMP(1).fit(rng.standard_normal((4, 5, 6)), weights=weights)


def test_data_that_is_not_in_memory_is_refused(rng):
    da = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match="arrays in memory"):
        BMP(1).fit(da.from_array(rng.standard_normal((4, 5, 6))), weights=np.ones((4, 5, 6)))
