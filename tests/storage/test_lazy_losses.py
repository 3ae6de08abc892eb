"""Huber's loss and nonnegative parts of data that are read in passes."""

from dataclasses import replace

import numpy as np
import pytest

from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.fit import loss_passes, losses
from boolcp.fit.polish import sweep
from boolcp.result.columns import to_columns
from boolcp.storage import sources
from boolcp.storage.lazy import NearTensor, look_at, make_source

da = pytest.importorskip("dask.array")
SHAPE = (40, 60, 30)


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 100_000)


def lazy(X):
    return da.from_array(X, chunks=(-1, 20, -1))


def with_artifacts(rng, missing=0.0):
    X = make_boolean_cp(SHAPE, 3, noise=0.5, missing=missing, random_state=1).X
    bad = rng.random(SHAPE) < 0.02
    X[bad] += 30 * rng.standard_normal(bad.sum())
    return X


def positive(rng, missing=0.0):
    factors = [np.abs(rng.standard_normal((d, 3))) for d in SHAPE]
    factors[1] = (factors[1] > 0.7).astype(float)
    X = np.einsum("ir,jr,kr->ijk", *factors) + 0.5 * rng.standard_normal(SHAPE)
    X[rng.random(SHAPE) < missing] = np.nan
    return X


def check_same(found, expected, rtol):
    for one, other in zip(found.atoms, expected.atoms, strict=True):
        assert one.mode == other.mode
        np.testing.assert_array_equal(one.z, other.z)
    Y = expected.to_tensor()
    assert np.abs(found.to_tensor() - Y).max() <= rtol * np.abs(Y).max()


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_huber_has_the_bits_of_the_array_in_memory(missing, rng):
    X = with_artifacts(rng, missing)
    model = BMP(3, random_state=0, atom_rank=1, loss="huber")
    expected = model.fit(X).decomposition_
    found = model.fit(lazy(X)).decomposition_
    assert 0 < model.n_passes_ <= 20
    check_same(found, expected, 1e-2)  # sweeps end where they gain next to nothing
    assert found.deviance.scale == pytest.approx(expected.deviance.scale, rel=2e-3)
    for name in ("total", "null", "without"):
        assert getattr(found.deviance, name) == pytest.approx(getattr(expected.deviance, name), rel=5e-3)
    for one, other in zip(found.trust.rise, expected.trust.rise, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.05)


@pytest.mark.parametrize(("missing", "signs", "most"), [(0.0, True, 12), (0.1, True, 18), (0.0, [0], 12)])
def test_nonnegative_parts_have_the_bits_of_the_array_in_memory(missing, signs, most, rng):
    X = positive(rng, missing)
    model = BMP(3, random_state=0, atom_rank=1, nonnegative=signs)
    expected = model.fit(X).decomposition_
    found = model.fit(lazy(X)).decomposition_
    assert 0 < model.n_passes_ <= most
    check_same(found, expected, 1e-3)
    for atom in found.atoms:
        real = [n for n in range(3) if n != atom.mode]
        signed = [A for n, A in zip(real, atom.factors, strict=True) if signs is True or n in signs]
        assert all(A.min() >= 0 for A in signed)
    np.testing.assert_allclose(model.transform(lazy(X), mode=2), model.transform(X, mode=2), atol=1e-8)
    assert model.score(lazy(X)) == pytest.approx(model.score(X))


def test_both_at_once(rng):
    X = positive(rng)
    model = BMP(3, random_state=0, atom_rank=1, nonnegative=True, loss="huber")
    expected = model.fit(X).decomposition_
    check_same(model.fit(lazy(X)).decomposition_, expected, 1e-2)


def test_what_has_to_be_loaded_is_refused_without_memory(rng):
    X = positive(rng)
    counts = np.round(np.abs(X))
    few = {"random_state": 0, "atom_rank": 1, "max_memory": 2_000_000}
    BMP(2, nonnegative=True, certify=False, **few).fit(lazy(X))
    for options, values in [({"loss": "poisson"}, counts), ({"nonnegative": True, "atom_rank": None}, X)]:
        with pytest.raises(MemoryError, match="loads X"):
            BMP(2, **(few | options)).fit(lazy(values))
    with pytest.raises(MemoryError, match="a path under"):
        BMP(2, nonnegative=True, **few).fit_path(lazy(X))
    with pytest.raises(MemoryError, match="beside weights"):
        BMP(2, nonnegative=True, **few).fit(lazy(X), weights={0: np.arange(1.0, 41.0)})


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_squares_near_an_estimate_majorize_the_loss(missing, rng):
    X, _, truth = make_boolean_cp(SHAPE, 3, noise=0.5, missing=missing, random_state=1)
    W = replace(truth, weights=1.1 * truth.weights)
    data, loss = look_at(make_source(lazy(X)), 10**9), losses.Loss("huber", 0.8)
    near = NearTensor(data, W, loss.scale)
    known = ~np.isnan(X)
    R = np.where(known, np.clip(X - W.to_tensor(), -0.8, 0.8), 0.0)
    np.testing.assert_allclose(near.to_array(), W.to_tensor() + R, atol=1e-10)
    V, _ = sweep(near, to_columns(W))
    assert near.before == pytest.approx(np.sum(R**2))
    before, after = (
        float(np.sum(loss.terms(X[known], each.to_tensor()[known])[0])) for each in (W, V.to_decomposition())
    )
    assert before - after >= (near.before - V.loss) / 2 - 1e-9 > 0


def test_the_spread_is_that_of_the_medians(rng):
    X = 3.0 + 2.0 * rng.standard_normal(SHAPE)
    X[0, 0, :5] = np.nan
    data = look_at(make_source(lazy(X)), 10**9)
    W = make_boolean_cp(SHAPE, 1, random_state=1).truth
    R = (X - W.to_tensor())[~np.isnan(X)]
    middle, width = loss_passes.spread(data, W)
    assert middle == pytest.approx(np.median(R), abs=2e-3)
    assert width == pytest.approx(losses.spread(R), rel=1e-3)
    for values in ([-5.0, -1e-3, 0.0, 2e-7, 1.0, 1e20], [0.3, -0.3]):
        bits = np.array(values, dtype=np.float32).view(np.uint32)
        bits = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
        np.testing.assert_allclose(loss_passes.bin_values(bits >> loss_passes.FINE), values, rtol=1e-3, atol=1e-30)


def test_a_resumed_fit_under_a_loss_is_the_same(rng, tmp_path):
    X, path = with_artifacts(rng), tmp_path / "fit.checkpoint"
    model = BMP(3, random_state=0, atom_rank=1, loss="huber")
    expected = model.fit(lazy(X)).decomposition_

    class Stopped(Exception):
        pass

    def stop(progress):
        if progress.stage == "loss" and progress.step == 2:
            raise Stopped

    with pytest.raises(Stopped):
        model.fit(lazy(X), checkpoint=path, callback=stop)
    found = BMP.resume(path, lazy(X)).decomposition_
    np.testing.assert_array_equal(found.to_tensor(), expected.to_tensor())
