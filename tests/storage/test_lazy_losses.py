"""Huber's loss, counts and nonnegative parts of data that are read in passes."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.fit import count_passes, loss_passes, losses
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


def counted(rng, missing=0.0):
    factors = [np.abs(rng.standard_normal((d, 3))) for d in SHAPE]
    for mode in range(3):
        factors[mode][:, mode] = rng.random(SHAPE[mode]) < 0.5
    X = rng.poisson(np.einsum("ir,jr,kr->ijk", *factors)).astype(float)
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
    for options, values in [({"loss": "bernoulli"}, counts > 0), ({"nonnegative": True, "atom_rank": None}, X)]:
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


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_counts_have_the_bits_of_the_array_in_memory(missing, rng, monkeypatch):
    X, seen, one_pass = counted(rng, missing), [], count_passes.count_pass

    def watched(*args):
        before, found, *rest = one_pass(*args)
        seen.append((before, found.loss))
        return before, found, *rest

    monkeypatch.setattr(count_passes, "count_pass", watched)
    model = BMP(3, random_state=0, atom_rank=1, loss="poisson")
    expected = model.fit(X).decomposition_
    found = model.fit(lazy(X)).decomposition_
    assert 0 < model.n_passes_ <= 20
    check_same(found, expected, 2e-2)  # sweeps end where they gain next to nothing
    assert all(after <= before for before, after in seen)
    assert all(later <= after for (_, after), (later, _) in pairwise(seen))  # none was undone
    for name, rel in {"scale": 1e-9, "total": 5e-3, "null": 1e-9, "without": 0.03}.items():
        assert getattr(found.deviance, name) == pytest.approx(getattr(expected.deviance, name), rel=rel)
    for atom, one, other in zip(found.atoms, found.trust.rise, expected.trust.rise, strict=True):
        assert np.all(one >= 0.9 * other)
        if atom.mode == 1:  # that of the cut: slices are fitted again after a flip
            np.testing.assert_allclose(one, other, rtol=0.1)
    assert all(A.min() >= 0 for atom in found.atoms for A in atom.factors)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_squares_of_a_pass_have_the_gradient_of_the_loss_of_counts(missing, rng):
    X, loss = counted(rng, missing), losses.Loss("poisson", 1e-3)
    W = to_columns(make_boolean_cp(SHAPE, 3, random_state=1).truth)
    W = W.with_matrices([np.abs(A) for A in W.matrices])
    data = look_at(make_source(lazy(X), is_counted=True), 10**9)
    before, found, known, rises = count_passes.count_pass(data, W, loss, True)

    def value(factors):
        means = np.einsum("ir,jr,kr->ijk", *factors)[~np.isnan(X)]
        return float(np.sum(loss.terms(X[~np.isnan(X)], means)[0]))

    assert before == pytest.approx(value(W.matrices))
    assert found.loss == pytest.approx(value(found.matrices)) and found.loss < before
    means = np.einsum("ir,jr,kr->ijk", *found.matrices)
    slopes = loss.terms(np.nan_to_num(X).ravel(), means.ravel())[1].reshape(SHAPE)
    slopes[np.isnan(X)] = 0.0
    for mode, text in {0: "ijk,jr,kr->ir", 2: "ijk,ir,jr->kr"}.items():
        P = known.contracted.mttkrp(found.matrices, mode)
        Ha = np.einsum("drs,ds->dr", known.grams[mode], found.matrices[mode])
        others = [A for n, A in enumerate(found.matrices) if n != mode]
        np.testing.assert_allclose(Ha - P, np.einsum(text, slopes, *others), rtol=1e-6, atol=1e-6)
        for at, column in enumerate(np.flatnonzero(W.column_mode == mode)):
            factors = [np.array(A) for A in found.matrices]
            factors[mode][3, column] = 1 - factors[mode][3, column]
            assert rises[mode][3, at] == pytest.approx(value(factors) - found.loss, rel=1e-6)


def test_columns_that_raise_the_loss_of_counts_are_taken_back(rng, monkeypatch):
    X, decide, far = counted(rng), count_passes.next_columns, [1e3, 30.0, 0.0, 0.0]

    def too_far(data, W, known):
        V = decide(data, W, known)
        return V.with_matrices([A if n == 1 else A + (far.pop(0) if far else 0.0) for n, A in enumerate(V.matrices)])

    model = BMP(3, random_state=0, atom_rank=1, loss="poisson")
    expected = model.fit(lazy(X)).decomposition_
    monkeypatch.setattr(count_passes, "next_columns", too_far)
    found = model.fit(lazy(X)).decomposition_
    assert found.deviance.total <= expected.deviance.total * 1.01


def test_entries_that_are_no_counts_are_refused(rng):
    X = counted(rng)
    X[3, 4, 5] = -2
    with pytest.raises(ValueError, match="0 or larger, but X has one of -2"):
        BMP(2, loss="poisson").fit(lazy(X))


def test_few_counts_are_loaded_if_they_fit(rng):
    X = np.where(rng.random(SHAPE) < 0.97, 0.0, counted(rng))
    assert BMP(2, loss="poisson", random_state=0).fit(lazy(X)).n_passes_ == 0
    thin = da.from_array(X, chunks=(-1, 5, -1))
    assert BMP(2, loss="poisson", random_state=0, max_memory=4_000_000).fit(thin).n_passes_ > 0


@pytest.mark.parametrize("loss", ["huber", "poisson"])
def test_a_resumed_fit_under_a_loss_is_the_same(loss, rng, tmp_path):
    X, path = with_artifacts(rng) if loss == "huber" else counted(rng), tmp_path / "fit.checkpoint"
    model = BMP(3, random_state=0, atom_rank=1, loss=loss)
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
