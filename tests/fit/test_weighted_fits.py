"""Fits with a weight for each entry."""

import naive
import numpy as np
import pytest

import boolcp
from boolcp import BMP, decompose
from boolcp.checks import check_weights
from boolcp.datasets import make_boolean_cp
from boolcp.fit.polish import polish
from boolcp.fit.transform import design
from boolcp.metrics import hamming_error, rmse
from boolcp.result.columns import to_columns
from boolcp.storage import WeightedTensor, make_storage
from boolcp.trust.significance import weight_scores


@pytest.fixture
def uneven():
    """Return a tensor whose noise differs between the slices of mode 0 by a factor of 10, the truth and the noise."""
    _, clean, truth = make_boolean_cp((15, 12, 14), 2, random_state=3)
    rng = np.random.default_rng(0)
    sigma = np.where(np.arange(15) % 3 == 0, 4.0, 0.4)
    return clean + sigma[:, None, None] * rng.standard_normal(clean.shape), clean, truth, sigma


def test_weights_by_the_noise_lower_the_error(uneven):
    X, clean, truth, sigma = uneven
    plain, weighted = (
        decompose(X, 2, atom_rank=1, random_state=0),
        decompose(X, 2, weights={0: sigma**-2}, random_state=0),
    )
    assert rmse(weighted, clean) < 0.5 * rmse(plain, clean)
    assert hamming_error(weighted, truth) <= hamming_error(plain, truth)
    estimated = decompose(X, 2, weights=0, random_state=0)
    assert rmse(estimated, clean) < 0.6 * rmse(plain, clean)


def test_the_loss_is_weighted_and_nearly_at_a_minimum(uneven):
    X, _, _, sigma = uneven
    weights = np.broadcast_to((sigma**-2)[:, None, None], X.shape)
    W = decompose(X, 2, weights=weights, random_state=0)
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
    masked = decompose(X, 2, mask=mask, atom_rank=1, random_state=0)
    options = {"atom_rank": 1, "random_state": 0}
    weighted = decompose(np.where(mask, X, 1e6), 2, weights=mask.astype(float), **options)
    both = decompose(X, 2, mask=mask, weights=np.full(X.shape, 2.5), **options)
    for W in (weighted, both):
        np.testing.assert_allclose(W.to_tensor(), masked.to_tensor(), rtol=1e-10)
    model = BMP(2, **options).fit(X, weights=mask)
    filled = model.complete(X, weights=mask)
    np.testing.assert_array_equal(filled, model.complete(np.where(mask, X, np.nan)))
    np.testing.assert_array_equal(filled[mask], X[mask])


def test_the_storage_of_equal_weights_is_that_of_a_mask(rng):
    X, weights = rng.standard_normal((4, 5, 6)), 3.0 * (rng.random((4, 5, 6)) < 0.5)
    assert not make_storage(X, None, weights).is_weighted
    assert make_storage(X, None, np.full(X.shape, 2.0)).is_complete
    weights.flat[np.argmax(weights)] = 1.0
    assert make_storage(X, None, weights).is_weighted


def test_integer_weights_are_repeated_slices(uneven):
    X, clean, *_ = uneven
    X = clean + np.random.default_rng(5).standard_normal(clean.shape)
    counts = np.arange(14) % 3 + 1
    weighted = decompose(X, 2, weights={2: counts}, random_state=0)
    repeated = decompose(np.repeat(X, counts, axis=2), 2, atom_rank=1, random_state=0)
    first = np.cumsum(counts) - counts
    np.testing.assert_allclose(weighted.to_tensor(), repeated.to_tensor()[:, :, first], atol=1e-4)
    assert weighted.explained() == pytest.approx(repeated.explained(), rel=1e-7)


def test_a_list_of_entries_has_the_fit_of_the_array(uneven):
    X, _, _, sigma = uneven
    mask = np.random.default_rng(2).random(X.shape) < 0.6
    weights = np.where(mask, (sigma**-2)[:, None, None], 0.0)
    array = decompose(X, 2, weights=weights, random_state=0)
    indices = np.argwhere(mask)
    for given in (weights[mask], {0: sigma**-2}):
        listed = decompose((indices, X[mask], X.shape), 2, weights=given, random_state=0)
        np.testing.assert_allclose(listed.to_tensor(), array.to_tensor(), atol=1e-8)
    with pytest.raises(ValueError, match=r"weights has shape \(3,\), but X lists"):
        decompose((indices, X[mask], X.shape), 2, weights=np.ones(3))


def test_new_slices_are_solved_by_weighted_least_squares(uneven):
    X, _, _, sigma = uneven
    weights = np.broadcast_to((sigma**-2)[:, None, None], X.shape)
    model = BMP(2, atom_rank=1, random_state=0).fit(X, weights={0: sigma**-2})
    W = model.decomposition_
    found = model.transform(X, mode=2, weights=weights)
    blocks, boolean = design(W, 2)
    for i in range(4):
        at = (slice(None), slice(None), i)
        costs = []
        for bits in np.ndindex(*[2] * int(boolean.sum())):
            fixed = np.einsum("k,kij->ij", bits, blocks[boolean])
            root = np.sqrt(weights[at]).ravel()
            free = (blocks[~boolean].reshape(-1, root.size) * root).T
            real, *_ = np.linalg.lstsq(free, root * (X[at] - fixed).ravel(), rcond=None)
            rest = root * (X[at] - fixed).ravel() - free @ real
            costs.append((rest @ rest, bits, real))
        _, bits, real = min(costs, key=lambda cost: cost[0])
        np.testing.assert_array_equal(found[i, boolean], bits)
        np.testing.assert_allclose(found[i, ~boolean], real, atol=1e-8)
    estimate = model.inverse_transform(model.transform(X, weights=weights))
    share = 1 - np.sum(weights * (X - estimate) ** 2) / np.sum(weights * X**2)
    assert model.score(X, weights={0: sigma**-2}) == pytest.approx(share)
    with pytest.raises(ValueError, match="estimated by `fit` only"):
        model.transform(X, weights=0)


@pytest.mark.filterwarnings("ignore:The number of atoms chosen is the largest one tried")  # of one atom at most
def test_selection_counts_held_out_entries_by_their_weights(uneven):
    X, _, _, sigma = uneven
    for scheme in ("entries", "slabs"):
        options = {"splits": 2, "random_state": 0, "scheme": scheme}
        found = boolcp.select_n_atoms(X, 3, weights={0: sigma**-2}, **options)
        assert found.n_atoms == 2
        even = boolcp.select_n_atoms(X, 1, weights=np.full(X.shape, 3.0), **options)
        plain = boolcp.select_n_atoms(X, 1, **options)
        np.testing.assert_allclose(even.errors, plain.errors)


def test_trust_counts_entries_by_their_weights(uneven):
    X, _, _, sigma = uneven
    weights = {0: sigma**-2}
    W = decompose(X, 2, weights=weights, random_state=0)
    found = boolcp.assess(X, W, weights=weights, n_runs=2, random_state=0).trust
    assert (found.stability == 1).all() and (found.p_adjusted < 1e-4).all()
    assert found.sigma == pytest.approx(W.trust.sigma) and found.sigma == pytest.approx(1, abs=0.1)
    for rise, fitted in zip(found.rise, W.trust.rise, strict=True):
        np.testing.assert_allclose(rise, fitted, rtol=1e-6)


def test_certificates_are_those_of_the_weighted_loss(uneven):
    X, _, _, sigma = uneven
    W = decompose(X, 2, weights={0: sigma**-2}, random_state=0)
    weighted, plain = (
        [atom.certificate for atom in W.certify(X, weights=given, effort="quick").atoms]
        for given in ({0: sigma**-2}, None)
    )
    np.testing.assert_allclose(weighted, [atom.certificate for atom in W.atoms], rtol=1e-6)
    assert np.abs(np.subtract(weighted, plain)).max() > 1e-3


def test_scores_with_weights_are_those_of_weighted_least_squares(uneven):
    X, _, truth, sigma = uneven
    weights = np.broadcast_to((sigma**-2)[:, None, None], X.shape)
    found = weight_scores(X, weights, truth, 1.0)
    root = np.sqrt(weights).ravel()
    tensors = [atom_tensor(truth, k) for k in range(2)]
    for k, (M, other) in enumerate([tensors, tensors[::-1]]):
        beside = naive.taken_up(M, truth.atoms[1 - k])
        design = np.stack([M.ravel(), other.ravel(), beside.ravel()], axis=1) * root[:, None]
        best, *_ = np.linalg.lstsq(design, root * X.ravel(), rcond=None)
        error = np.sqrt(np.linalg.inv(design.T @ design)[0, 0])
        assert found[k] == pytest.approx(best[0] / error * np.sign(truth.weights[k]))


def test_a_weighted_fit_is_resumed(tmp_path, uneven):
    X, _, _, sigma = uneven
    whole = decompose(X, 2, weights={0: sigma**-2}, random_state=0)
    path = tmp_path / "fit.npz"
    stopped = BMP(2, random_state=0).fit(X, weights={0: sigma**-2}, checkpoint=path, callback=lambda progress: True)
    assert stopped.decomposition_.n_atoms == 1
    resumed = BMP.resume(path, X, weights={0: sigma**-2}).decomposition_
    np.testing.assert_array_equal(resumed.to_tensor(), whole.to_tensor())


def test_the_scale_of_the_weights_does_not_matter(uneven):
    X, _, _, sigma = uneven
    one, other = (decompose(X, 2, weights={0: c * sigma**-2.0}, random_state=0) for c in (1.0, 1e4))
    assert hamming_error(one, other) == 0 and rmse(one, other.to_tensor()) < 1e-3 * rmse(one, X)


def test_modes_are_named_and_the_vectors_multiply():
    xr = pytest.importorskip("xarray")
    X = make_boolean_cp((6, 7, 8), 2, noise=0.1, random_state=0).X
    labelled = xr.DataArray(X, dims=("channel", "time", "trial"))
    channel, trial = np.linspace(1, 2, 6), np.linspace(2, 1, 8)
    by_name = BMP(2, random_state=0).fit(labelled, weights={"channel": channel, "trial": trial}).decomposition_
    by_entry = decompose(X, 2, weights=np.broadcast_to(channel[:, None, None] * trial, X.shape), random_state=0)
    np.testing.assert_allclose(by_name.to_tensor(), by_entry.to_tensor(), atol=1e-10)
    listed = decompose(X, 2, weights=[channel, None, trial], random_state=0)
    np.testing.assert_array_equal(listed.to_tensor(), by_name.to_tensor())


@pytest.mark.parametrize("shape", [(2, 3), (2, 2), (3, 2)])
def test_a_nested_list_is_an_array_where_it_has_the_shape_of_the_data(shape, rng):
    weights = 1 + rng.random(shape)
    np.testing.assert_array_equal(check_weights(weights.tolist(), shape), weights)
    if shape != (2, 2):
        rows, columns = 1 + rng.random(shape[0]), 1 + rng.random(shape[1])
        np.testing.assert_array_equal(check_weights([rows, columns], shape), np.outer(rows, columns))


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
    "list": ([np.ones(4), np.ones(5), np.ones(7)], "one vector for each mode"),
    "text": ({0: "abcd"}, "weights must be numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_weights_are_named(case, rng):
    weights, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        BMP(1).fit(rng.standard_normal((4, 5, 6)), weights=weights)


def test_scarce_data_that_is_not_in_memory_is_loaded(uneven):
    da = pytest.importorskip("dask.array")
    X, _, _, sigma = uneven
    lazy = decompose(da.from_array(X, chunks=(15, 12, 5)), 2, weights={0: sigma**-2}, random_state=0)
    np.testing.assert_array_equal(lazy.to_tensor(), decompose(X, 2, weights={0: sigma**-2}, random_state=0).to_tensor())
    with pytest.raises(MemoryError, match="max_memory is 1 kB"):
        BMP(1, max_memory=1000).fit(da.from_array(X), weights=np.ones(X.shape))


def test_weights_that_leave_no_observed_entry_are_named(rng):
    X, mask = rng.standard_normal((4, 5, 6)), np.zeros((4, 5, 6), dtype=bool)
    mask[0] = True
    with pytest.raises(ValueError, match="zero at every observed entry of X"):
        BMP(1).fit(X, mask=mask, weights={0: [0, 1, 1, 1]})
