"""Weights of data that are read in passes: vectors by mode and arrays, lazy or not."""

import numpy as np
import pytest

from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.storage import WeightedTensor, sources
from boolcp.storage.lazy import look_at, make_source

da = pytest.importorskip("dask.array")
SHAPE = (40, 60, 30)


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 200_000)


@pytest.fixture
def vectors(rng):
    return {0: rng.uniform(0.1, 3.0, SHAPE[0]), 2: rng.uniform(0.5, 2.0, SHAPE[2])}


def all_weights(vectors, n_zero=100):
    weights = vectors[0][:, None, None] * vectors[2] * np.ones(SHAPE)
    weights.flat[:n_zero] = 0
    return weights


def lazy(X):
    return da.from_array(X, chunks=(-1, 20, -1))


@pytest.mark.parametrize("kind", ["vectors", "array", "dask", "zarr", "memmap"])
def test_a_weighted_fit_has_the_bits_of_the_array_in_memory(kind, vectors, tmp_path):
    X = make_boolean_cp(SHAPE, 3, noise=0.5, missing=0.05, random_state=1).X
    weights = vectors if kind == "vectors" else all_weights(vectors)
    model = BMP(3, random_state=0, atom_rank=1)
    expected = model.fit(X, weights=weights).decomposition_
    given = weights
    if kind == "dask":
        given = da.from_array(weights, chunks=17)
    elif kind == "zarr":
        given = pytest.importorskip("zarr").create_array(
            tmp_path / "w.zarr", shape=SHAPE, dtype=float, chunks=(20,) * 3
        )
        given[:] = weights
    elif kind == "memmap":
        np.save(tmp_path / "w.npy", weights)
        given = np.load(tmp_path / "w.npy", mmap_mode="r")
    found = model.fit(lazy(X), weights=given).decomposition_
    assert 0 < model.n_passes_ <= 16
    for one, other in zip(found.atoms, expected.atoms, strict=True):
        assert one.mode == other.mode
        np.testing.assert_array_equal(one.z, other.z)
    Y = expected.to_tensor()
    assert np.abs(found.to_tensor() - Y).max() <= 2e-3 * np.abs(Y).max()  # sweeps end where they gain next to nothing
    assert found.squared_error == pytest.approx(expected.squared_error, rel=1e-5)


def test_it_stays_out_of_memory(vectors):
    X = make_boolean_cp(SHAPE, 2, noise=0.5, random_state=1).X
    model = BMP(2, random_state=0, atom_rank=1, certify=False, max_memory=2_300_000)  # 4 times X
    assert model.fit(lazy(X), weights=vectors).n_passes_ > 0
    with pytest.raises(MemoryError, match="slabs along mode 1"):
        model.set_params(max_memory=300_000).fit(lazy(X), weights=vectors)


def test_every_answer_is_that_of_weights_in_memory(vectors, rng):
    X, weights = rng.standard_normal(SHAPE), all_weights(vectors)
    X[3, 4] = np.nan
    here = WeightedTensor(np.nan_to_num(X), weights * ~np.isnan(X))
    data = look_at(make_source(lazy(X), weights=weights), 10**9)
    factors = [rng.standard_normal((d, 2)) for d in SHAPE]
    assert data.is_weighted and data.n_observed == here.n_observed
    assert data.squared_norm == pytest.approx(here.squared_norm)
    for mode in range(3):
        pairs = zip(data.normal_equations(factors, mode), here.normal_equations(factors, mode), strict=True)
        for found, expected in pairs:
            np.testing.assert_allclose(found, expected, atol=1e-8)
        np.testing.assert_allclose(data.gram(mode), here.gram(mode), atol=1e-8)
    W = BMP(2, random_state=0).fit(np.nan_to_num(X)).decomposition_
    assert data.residual(W).squared_norm == pytest.approx(here.residual(W).squared_norm)
    found, expected = data.filled(), here.filled()
    ratio = found.to_array() / np.where(expected.to_array() == 0, 1, expected.to_array())
    heavy = weights >= max(here.median, data.facts.median)  # a few entries lie between both medians
    np.testing.assert_allclose(ratio[heavy & ~np.isnan(X)], 1)
    assert found.squared_norm == pytest.approx(np.sum(found.to_array() ** 2))
    list_of = data.listed()
    np.testing.assert_allclose(list_of.to_array(), here.to_array())


def test_weights_of_a_mode_that_are_estimated(rng):
    X = make_boolean_cp(SHAPE, 2, noise=0.2, random_state=1).X
    X[3] += 3 * rng.standard_normal(X[3].shape)
    model = BMP(2, random_state=0, atom_rank=1)
    expected = model.noise_weights(X, 0)[0]
    np.testing.assert_allclose(model.noise_weights(lazy(X), 0)[0], expected, rtol=1e-3)
    assert model.fit(lazy(X), weights=0).n_passes_ > 0


def test_new_data_with_weights(vectors):
    X = make_boolean_cp(SHAPE, 2, noise=0.5, random_state=1).X
    model = BMP(2, random_state=0, atom_rank=1).fit(X, weights=vectors)
    np.testing.assert_allclose(
        model.transform(lazy(X), weights=vectors), model.transform(X, weights=vectors), atol=1e-9
    )
    assert model.score(lazy(X), weights=vectors) == pytest.approx(model.score(X, weights=vectors))
    path = BMP(2, random_state=0, atom_rank=1).fit_path(lazy(X), weights=vectors)
    assert [W.n_atoms for W in path] == [0, 1, 2]


def test_equal_weights_are_none():
    X = make_boolean_cp(SHAPE, 2, noise=0.5, random_state=1).X
    model = BMP(2, random_state=0, atom_rank=1)
    first, second = (model.fit(lazy(X), weights=w).decomposition_ for w in (None, {1: np.full(SHAPE[1], 2.0)}))
    np.testing.assert_array_equal(first.to_tensor(), second.to_tensor())


def test_wrong_weights(vectors):
    X = make_boolean_cp(SHAPE, 2, noise=0.5, random_state=1).X
    model, weights = BMP(2, random_state=0, atom_rank=1), all_weights(vectors)
    with pytest.raises(ValueError, match="at least 0"):
        model.fit(lazy(X), weights=-weights)
    with pytest.raises(ValueError, match="weights has shape"):
        model.fit(lazy(X), weights=weights[1:])
    with pytest.raises(ValueError, match="no entry counts"):
        model.fit(lazy(X), weights=0 * weights)
    X[0, 0, 5] = np.inf
    with pytest.raises(ValueError, match="infinity in 1 entries"):
        model.fit(lazy(X), weights=vectors)
