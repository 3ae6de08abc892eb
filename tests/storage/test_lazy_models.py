"""Every model on data that are read in passes: the result of the array in memory, in few passes."""

import numpy as np
import pytest
from sklearn.base import clone

from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.fit import background, in_passes, plan
from boolcp.fit.noise import is_noise
from boolcp.metrics import hamming_error
from boolcp.storage import DenseTensor, compress, sources

da = pytest.importorskip("dask.array")
SHAPE = (40, 60, 30)


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 200_000)


def planted(rng, noise=0.3):
    """Return a tensor of two blocks of rank three, Boolean along the longest mode."""
    Z = (rng.random((60, 2)) < 0.5).astype(float)
    V = np.einsum("ir,rkl->ikl", rng.standard_normal((40, 3)), rng.standard_normal((3, 2, 30)))
    return np.einsum("jk,ikl->ijl", Z, V) + noise * rng.standard_normal(SHAPE)


def both(X, n_atoms, chunks=(-1, 10, -1), **options):
    model = BMP(n_atoms, random_state=0, background=None, **options)
    expected = model.fit(X).decomposition_
    found = model.set_params(max_memory="500MB").fit(da.from_array(X, chunks=chunks))
    return found, expected


def check_same(found, expected, atol=1e-8):
    assert found.n_atoms == expected.n_atoms
    for one, other in zip(found.atoms, expected.atoms, strict=True):
        assert one.mode == other.mode and one.rank == other.rank
        np.testing.assert_array_equal(one.z, other.z)
    difference = np.abs(found.to_tensor() - expected.to_tensor()).max()
    assert difference <= atol * np.abs(expected.to_tensor()).max()


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 8),
        ({"refine": False}, 6),
        ({"refine": False, "atom_rank": 2}, 8),
        ({"refine": False, "atom_rank": None, "criterion": "published"}, 8),
        ({"atom_rank": None}, 16),
    ],
)
def test_models_of_columns_and_blocks(options, most):
    X = make_boolean_cp(SHAPE, 3, noise=0.3, random_state=1).X
    model, expected = both(X, 3, **options)
    check_same(model.decomposition_, expected)
    assert 0 < model.n_passes_ <= most
    last = model.history_[-1]
    assert last.loss == pytest.approx(np.sum((X - model.path_[-1].to_tensor()) ** 2) / 2)


def test_atoms_of_rank_two_are_polished_as_long_as_that_lowers_their_error():
    X, clean, _ = make_boolean_cp(SHAPE, 3, noise=0.3, random_state=1)
    model, expected = both(X, 3, atom_rank=2, n_init=2)
    assert model.n_passes_ <= 8
    for one, other in zip(model.decomposition_.atoms, expected.atoms, strict=True):
        np.testing.assert_array_equal(one.z, other.z)
    errors = [np.linalg.norm(W.to_tensor() - clean) for W in (model.decomposition_, expected)]
    assert errors[0] <= 1.02 * errors[1]


def test_auto_takes_blocks_where_columns_leave_more_than_noise(rng):
    model, expected = both(planted(rng), 2)
    assert [atom.rank for atom in expected.atoms] == [3, 3]
    check_same(model.decomposition_, expected, atol=1e-3)
    assert np.isfinite([atom.certificate for atom in model.decomposition_.atoms]).all()
    assert model.n_passes_ <= 20


def test_auto_tries_no_blocks_that_do_not_fit_in_memory(rng, monkeypatch):
    X = planted(rng)
    monkeypatch.setattr(in_passes, "N_COPIES", 10**6)
    model = BMP(2, random_state=0, background=None, max_memory="500MB").fit(da.from_array(X, chunks=(-1, 10, -1)))
    assert [atom.rank for atom in model.decomposition_.atoms] == [1, 1]


@pytest.mark.parametrize("noise", [0.05, 0.3, 3.0])
def test_noise_is_told_from_the_core_as_from_the_array(noise, rng):
    X = planted(rng, noise)
    W = BMP(2, atom_rank=1, random_state=0).fit(X).decomposition_
    small = compress(DenseTensor(X), 14)
    assert in_passes.leaves_noise(DenseTensor(X), small, W) == is_noise(DenseTensor(X).residual(W))
    noise_alone = rng.standard_normal(SHAPE)
    nothing = BMP(1, atom_rank=1, random_state=0).fit(noise_alone).decomposition_[:0]
    data = DenseTensor(noise_alone)
    assert in_passes.leaves_noise(data, compress(data, 14), nothing)


@pytest.mark.parametrize("strength", [0.0, 2.5])
def test_noise_is_told_from_the_core_of_a_long_mode(strength, rng):
    X, _, truth = make_boolean_cp((30, 5000, 10), 2, boolean_modes=[1], noise=1.0, random_state=0)
    u = rng.standard_normal(30)
    X += strength * np.multiply.outer(u / np.linalg.norm(u), rng.standard_normal((5000, 10)))
    model = BMP(2, boolean_modes=[1], random_state=0, max_memory="500MB", certify=False)
    model.fit(da.from_array(X, chunks=(-1, 500, -1)))
    assert hamming_error(model.decomposition_, truth) == 0
    assert (model.background_ is not None) == (strength > 0)
    assert strength > 0 or model.n_passes_ <= 6  # no background is tried


@pytest.mark.parametrize("refine", [True, False])
def test_matrices_stay_where_they_are(refine):
    X = make_boolean_cp((5000, 60), 2, noise=0.02, random_state=1).X
    model, expected = both(X, 2, chunks=(500, -1), refine=refine)
    assert model.n_passes_ >= 3
    check_same(model.decomposition_, expected, atol=1e-6)


def test_missing_entries_without_refinement(rng):
    X = make_boolean_cp(SHAPE, 3, noise=0.1, random_state=1).X
    X = np.where(rng.random(SHAPE) < 0.1, np.nan, X)
    model, expected = both(X, 3, refine=False)
    assert model.n_passes_ > 0
    check_same(model.decomposition_, expected)


@pytest.mark.parametrize(("shape", "rank", "limit"), [(SHAPE, None, 1_700_000), ((5000, 60), "auto", 6_000_000)])
def test_missing_entries_of_blocks_are_loaded_or_refused(shape, rank, limit, rng):
    X = make_boolean_cp(shape, 2, noise=0.1, random_state=1).X
    X = np.where(rng.random(shape) < 0.1, np.nan, X)
    array = da.from_array(X, chunks=(500, 10, 30)[: len(shape)])
    assert BMP(2, atom_rank=rank, random_state=0, max_iter=2).fit(array).n_passes_ == 0
    with pytest.raises(MemoryError, match=r"the tensor in memory.*If entries are missing, it also needs three"):
        BMP(2, atom_rank=rank, random_state=0, max_memory=limit).fit(array)


@pytest.mark.parametrize("options", [{"refine": False}, {"atom_rank": None}, {}])
def test_models_are_resumed(options, tmp_path, rng):
    array = da.from_array(planted(rng), chunks=(-1, 10, -1))
    expected = BMP(2, random_state=0, max_memory="500MB", **options).fit(array).decomposition_
    seen = []

    def stop(progress):
        seen.append(progress)
        if len(seen) == 2:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        BMP(2, random_state=0, max_memory="500MB", **options).fit(
            array, checkpoint=tmp_path / "fit.checkpoint", callback=stop
        )
    resumed = BMP.resume(tmp_path / "fit.checkpoint", array).decomposition_
    np.testing.assert_array_equal(resumed.to_tensor(), expected.to_tensor())


def with_background(shape, mode):
    """Return a tensor of three atoms in noise beside structure of rank four along a mode."""
    rng = np.random.default_rng(3)
    others = [d for n, d in enumerate(shape) if n != mode]
    low = rng.standard_normal((shape[mode], 4)) @ rng.standard_normal((4, int(np.prod(others)))) / 2
    X = make_boolean_cp(shape, 3, noise=0.5, random_state=3).X
    return X + np.moveaxis(low.reshape(shape[mode], *others), 0, mode)


@pytest.mark.parametrize(
    ("shape", "mode", "background"),
    [((20, 60, 24), 1, "auto"), ((40, 60, 30), 0, 4), ((4200, 10, 12), 0, "auto")],
)
def test_a_background_is_that_of_the_array_in_memory(shape, mode, background, monkeypatch):
    monkeypatch.setattr(plan, "beside_whole", lambda data, here, kind: here)  # only for arrays in memory
    X = with_background(shape, mode)
    model = BMP(3, background=background, random_state=0)
    expected, there = model.fit(X).decomposition_, model.background_
    chunks = tuple(d // 6 if d == max(shape) else -1 for d in shape)
    found = model.set_params(max_memory="500MB").fit(da.from_array(X, chunks=chunks))
    check_same(found.decomposition_, expected)
    here = found.background_
    assert there.mode == here.mode == mode and there.rank == here.rank == 4
    np.testing.assert_allclose(here.to_tensor(), there.to_tensor(), atol=1e-7)
    assert here.share == pytest.approx(there.share) and here.degrees_of_freedom == pytest.approx(
        there.degrees_of_freedom
    )
    certificates = [[atom.certificate for atom in W.atoms] for W in (found.decomposition_, expected)]
    np.testing.assert_allclose(*certificates, rtol=1e-4)
    assert found.decomposition_.trust.sigma == pytest.approx(expected.trust.sigma)
    assert 0 < found.n_passes_ <= (32 if max(shape) > 4096 else 20)


def test_a_background_is_resumed_in_passes(tmp_path):
    X, path = da.from_array(with_background((20, 60, 24), 1), chunks=(-1, 10, -1)), tmp_path / "fit.npz"
    model = BMP(3, random_state=0, max_memory="500MB", certify=False)
    whole = clone(model).fit(X)
    clone(model).fit(X, checkpoint=path, callback=lambda progress: progress.stage == "background")
    resumed = BMP.resume(path, X)
    np.testing.assert_array_equal(resumed.background_.to_tensor(), whole.background_.to_tensor())
    np.testing.assert_array_equal(resumed.decomposition_.to_tensor(), whole.decomposition_.to_tensor())


def test_a_background_without_room_for_its_factors_is_not_fitted(monkeypatch):
    X = da.from_array(with_background((20, 60, 24), 1), chunks=(-1, 10, -1))
    monkeypatch.setattr(background, "N_COPIES", 10**5)  # rank one would fit
    assert BMP(3, random_state=0, max_memory="500MB").fit(X).background_ is None
    with pytest.raises(ValueError, match="its factors need more memory"):
        BMP(3, background=4, random_state=0, max_memory="500MB").fit(X)


def test_columns_that_converge_slowly_take_few_passes():
    X = (make_boolean_cp((12, 60, 20), 3, noise=0.5, random_state=1).X > 0.5).astype(float)
    model, expected = both(X, 3, atom_rank=1, certify=False)
    assert model.n_passes_ <= 10
    errors = [np.linalg.norm(W.to_tensor() - X) for W in (model.decomposition_, expected)]
    assert errors[0] <= errors[1] * (1 + 1e-6)
