"""Structure of low rank beside the atoms."""

from dataclasses import replace

import dask.array as da
import naive
import numpy as np
import pytest
from samples import assert_identical, with_gaps

import boolcp
from boolcp import BMP
from boolcp.checks import BoolcpWarning
from boolcp.datasets import make_boolean_cp
from boolcp.fit import in_passes
from boolcp.fit.background import HELD_OUT, along, as_fitted, fill_in, find_background, left_over
from boolcp.fit.beside import merged
from boolcp.fit.noise import noise_edge
from boolcp.fit.state import Round
from boolcp.metrics import hamming_error, rmse
from boolcp.result.columns import Columns
from boolcp.storage import DenseTensor, make_storage
from boolcp.trust.assess import judge
from boolcp.trust.residuals import residual_check

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
    assert rmse(model.decomposition_, clean) < 0.12 and rmse(found.to_tensor(), background) < 0.25
    whole = model.decomposition_.to_tensor() + found.to_tensor()
    explained = 1 - np.sum((X - whole) ** 2) / np.sum(X**2)
    assert found.share + model.decomposition_.explained() == pytest.approx(explained)
    assert found.degrees_of_freedom <= found.n_parameters and "rank 4 along mode 1" in repr(found)


@pytest.mark.parametrize("shape", [(12, 9, 8), (60, 5, 6)])  # a wide unfolding and a tall one
def test_along_a_mode_it_is_the_naive_shrinkage_of_the_unfolding(shape, rng):
    R = rng.standard_normal(shape) + 3 * np.multiply.outer(
        rng.standard_normal(shape[0]), rng.standard_normal(shape[1:])
    )
    sides = shape[0], shape[1] * shape[2]
    expected = naive.shrink_matrix(naive.unfold(R, 0), 1.0, noise_edge(max(sides), min(sides)))
    risk, found = along(DenseTensor(R), 0, "auto", 1.0)
    np.testing.assert_allclose(naive.unfold(found.to_tensor(), 0), expected, atol=1e-8)
    loss = np.sum((naive.unfold(R, 0) - expected) ** 2)
    assert risk == pytest.approx(loss + 2 * found.degrees_of_freedom)


def test_noise_has_no_background():
    X = make_boolean_cp(SHAPE, 3, noise=0.5, random_state=3).X
    with_it = BMP(3, random_state=0).fit(X)
    without_it = BMP(3, atom_rank=1, background=None, random_state=0).fit(X)
    assert with_it.background_ is None and without_it.background_ is None
    np.testing.assert_array_equal(with_it.decomposition_.to_tensor(), without_it.decomposition_.to_tensor())


def test_a_given_rank_is_the_best_approximation_of_what_is_left(rng):
    X = planted(rng)[0]
    model = BMP(3, background=2, random_state=0).fit(X)
    R = np.moveaxis(X - model.decomposition_.to_tensor(), model.background_.mode, 0)
    U, s, V = np.linalg.svd(R.reshape(len(R), -1), full_matrices=False)
    found = model.background_
    np.testing.assert_allclose(found.left @ found.right.T, (U[:, :2] * s[:2]) @ V[:2], atol=1e-8)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_it_is_resumed_with_the_same_bits(missing, rng, tmp_path):
    X = with_gaps(planted(rng)[0], missing)
    whole, path = BMP(3, random_state=0).fit(X), tmp_path / "fit.npz"
    stop_at = {"search", "background"}

    def stop(progress):
        return progress.stage in stop_at

    BMP(3, random_state=0).fit(X, checkpoint=path, callback=stop)
    stop_at.remove("search")
    stopped = BMP(3, random_state=0).fit(X, checkpoint=path, callback=stop)
    assert stopped.stop_reason_.startswith("stopped") and stopped.background_ is not None
    resumed = BMP.resume(path, X)
    assert_identical(resumed, whole)
    np.testing.assert_array_equal(resumed.background_.to_tensor(), whole.background_.to_tensor())


@pytest.mark.filterwarnings("ignore:.* filled entries were far outside")
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_missing_entries_are_completed_by_atoms_and_background(share, rng):
    X, truth, clean, background = planted(rng)
    gaps = with_gaps(X, share)
    model = BMP(3, random_state=0).fit(gaps)
    assert hamming_error(model.decomposition_, truth) == 0 and model.background_.mode == 1
    hidden = np.isnan(gaps)
    error = (model.complete(gaps) - clean - background)[hidden]
    alone = (model.decomposition_.to_tensor() - clean - background)[hidden]
    assert rmse(error, 0 * error) < 0.7 * rmse(alone, 0 * alone)
    indices = np.argwhere(hidden)[:5]
    np.testing.assert_allclose(model.background_.at(indices), model.background_.to_tensor()[tuple(indices.T)])


def test_values_under_the_mask_do_not_matter(rng):
    X, mask = planted(rng)[0], rng.random(SHAPE) > 0.2
    found = [BMP(2, certify=False, random_state=0).fit(np.where(mask, X, v), mask=mask) for v in (0.0, 999.0)]
    assert_identical(*found)
    np.testing.assert_array_equal(*(model.background_.to_tensor() for model in found))


def test_a_path_has_a_background_at_each_number_of_atoms(rng):
    X, truth, _, _ = planted(rng)
    path = BMP(3, random_state=0).fit_path(X)
    dof = [W.background.degrees_of_freedom for W in path]
    assert len(path) == 4 and hamming_error(path[3], truth) == 0 and dof[3] < 0.7 * dof[0]


def test_estimates_of_a_path_that_leave_noise_have_no_background():
    X, _, truth = make_boolean_cp((20, 25, 30), 3, noise=0.5, random_state=3)
    path = BMP(3, random_state=0).fit_path(X)
    assert [W.background is None for W in path] == [False, False, False, True]
    assert hamming_error(path[3], truth) == 0
    assert path[3].to_tensor() == pytest.approx(
        BMP(3, atom_rank=1, background=None).fit_path(X)[3].to_tensor(), abs=5e-3
    )


def test_a_warm_start_adds_atoms(rng):
    X, truth, _, _ = planted(rng)
    model = BMP(2, random_state=0, warm_start=True).fit(X)
    assert model.background_ is not None and model.decomposition_.n_atoms == 2
    assert hamming_error(model.set_params(n_atoms=3).fit(X).decomposition_, truth) == 0


@pytest.mark.parametrize(("shape", "background"), [((30, 40), 4), ((8, 9, 10, 7), "auto")])
def test_matrices_and_tensors_of_order_four_have_a_background(shape, background, rng):
    X, _, _ = make_boolean_cp(shape, 2, noise=0.1, random_state=1)
    low = rng.standard_normal((shape[0], 2)) @ rng.standard_normal((2, int(np.prod(shape[1:]))))
    model = BMP(2, background=background, random_state=0).fit(X + low.reshape(shape))
    whole = model.decomposition_.to_tensor() + model.background_.to_tensor()
    assert rmse(whole, X + low.reshape(shape)) < 0.15


def test_a_matrix_has_no_background_unless_its_rank_is_given(rng):
    X = make_boolean_cp((30, 40), 2, noise=0.1, random_state=1).X + 0.5
    model = BMP(2, random_state=0).fit(X)
    assert model.background_ is None and model.decomposition_.n_atoms == 2


def test_the_background_is_saved_certified_and_tested(rng, tmp_path):
    X = planted(rng)[0]
    W = BMP(3, random_state=0).fit(X).decomposition_
    W.save(tmp_path / "result.nc")
    loaded = boolcp.load(tmp_path / "result.nc")
    np.testing.assert_array_equal(loaded.background.to_tensor(), W.background.to_tensor())
    assert loaded.background.n_observed == X.size
    assert loaded.summary() == W.summary() and "Background beside the atoms: rank 4 along mode 1" in W.summary()
    again = W.certify(X)
    assert all(atom.certificate > 0.99 for atom in again.atoms) and again.explained() == pytest.approx(W.explained())
    assert residual_check(X, W).is_noise and W.trust.sigma == pytest.approx(0.5, rel=0.1)
    tested = boolcp.significance(X, reference=W, random_state=0)
    assert tested.sigma == pytest.approx(W.trust.sigma) and tested.is_significant().all()


def test_what_it_cannot_do_is_said(rng, monkeypatch):
    X = planted(rng)[0]
    for bad in ("yes", 0, 1.5):
        with pytest.raises((ValueError, TypeError), match="background must be"):
            BMP(2, background=bad).fit(X)
    lazy = da.from_array(with_gaps(X, 0.1), chunks=7)
    monkeypatch.setattr(in_passes, "N_LOADED", np.inf)  # or such a small array is loaded
    with pytest.raises(ValueError, match="X has missing entries and is read in passes"):
        BMP(2, background=3).fit(lazy)
    with pytest.warns(BoolcpWarning, match="read in passes: no background is fitted"):
        assert BMP(2, random_state=0).fit(lazy).background_ is None
    with pytest.raises(ValueError, match="it takes no weights"):
        BMP(2, background=3).fit(X, weights={0: np.arange(1, 1 + len(X))})
    assert BMP(2, refine=False, random_state=0).fit(X).background_ is None


def test_gaps_that_are_drawn_like_held_out_entries_do_not_hide_it():
    R = np.random.default_rng(5).standard_normal((20, 1)) @ np.ones((1, 300))
    R = R.reshape(20, 15, 20) + 0.1 * np.random.default_rng(6).standard_normal((20, 15, 20))
    for seed in (0, 1):
        mask = np.random.default_rng(seed).random(R.shape) >= HELD_OUT
        found = fill_in(np.where(mask, R, 0.0), mask, "auto", 0.1)
        assert found is not None and found.rank == 1


def test_held_out_entries_find_noise_that_differs_between_slices(rng):
    deviation = np.where(np.arange(20) < 3, 0.01, 1.0)[:, None, None]  # the level of the quietest slices is misleading
    R = deviation * rng.standard_normal((20, 30, 40)) + 1.0
    mask = rng.random(R.shape) > 0.3
    found = fill_in(np.where(mask, R, 0.0), mask, "auto", 0.01)
    assert found is not None and found.level > 0.5 and found.rank <= 2


def of_low_rank(rng, rank, noise, hidden, shape=(60, 4, 5)):
    """Return a tensor whose unfolding along mode 0 has a low rank, with noise, and a mask that hides entries."""
    R = (rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1] * shape[2]))).reshape(shape)
    return R + noise * rng.standard_normal(shape), rng.random(shape) >= hidden


def held_out_share(R, mask, found):
    """Return what a background leaves of hidden entries, relative to them."""
    return np.linalg.norm((R - found.to_tensor())[~mask]) / np.linalg.norm(R[~mask])


def test_rounds_of_filling_in_reach_the_hidden_entries_where_the_rank_is_high(rng):
    R, mask = of_low_rank(rng, 10, 0.05, 0.1)
    found = fill_in(np.where(mask, R, 0.0), mask, "auto", 0.05)
    assert held_out_share(R, mask, found) < 0.1  # 0.97 after 20 rounds at the level of the noise


def test_a_noise_level_that_is_too_low_is_raised_by_held_out_entries(rng):
    R, mask = of_low_rank(rng, 3, 1.0, 0.3)
    found = fill_in(np.where(mask, R, 0.0), mask, "auto", 0.02)
    right = fill_in(np.where(mask, R, 0.0), mask, "auto", 1.0)
    assert held_out_share(R, mask, found) < 1.05 * held_out_share(R, mask, right)


@pytest.mark.parametrize("seed", range(5))
def test_noise_has_no_background_that_held_out_entries_confirm(seed):
    rng = np.random.default_rng(seed)
    R, mask = rng.standard_normal((12, 13, 14)), rng.random((12, 13, 14)) > 0.6
    assert fill_in(np.where(mask, R, 0.0), mask, "auto", 1.0) is None


def test_degrees_of_freedom_are_those_of_observed_entries(rng):
    R, mask = of_low_rank(rng, 8, 0.1, 0.5, (200, 4, 5))
    found = fill_in(np.where(mask, R, 0.0), mask, "auto", 0.1)
    whole = along(DenseTensor(np.where(mask, R, found.to_tensor())), 0, "auto", found.level * mask.mean() ** 0.5)[1]
    assert found.degrees_of_freedom == pytest.approx(mask.mean() * whole.degrees_of_freedom, rel=0.1)


def test_atoms_are_fitted_again_without_the_entries_that_are_held_out(rng):
    X, mask = make_boolean_cp((8, 9, 10), 4, noise=0.5, random_state=0).X, rng.random((8, 9, 10)) > 0.3
    W = BMP(4, atom_rank=1, background=None, certify=False, random_state=0).fit(X, mask=mask).decomposition_
    seen = mask & (rng.random(mask.shape) > 0.1)
    R, left = X - W.to_tensor(), left_over(make_storage(np.where(mask, X, 0.0), mask), W, 0.5, seen)
    is_test = mask & ~seen
    assert np.linalg.norm(left[is_test]) > 1.02 * np.linalg.norm(R[is_test])
    assert np.linalg.norm(left[seen]) < 1.1 * np.linalg.norm(R[seen])


def test_atoms_that_share_their_bits_keep_the_background(rng):
    X = rng.standard_normal((6, 7, 8))
    z, columns = np.ones(6), [rng.standard_normal((d, 2)) for d in (7, 8)]
    W = Columns((np.stack([z, z], axis=1), *columns), np.arange(2), np.zeros(2, dtype=int)).to_decomposition()
    low = boolcp.Background(X.shape, 1, rng.standard_normal((7, 1)), rng.standard_normal((48, 1)), 1.0, 0.0)
    here = Round(replace(W, background=low), 1.0, 2.0, 0.5)
    found = merged(here)
    assert found.W.n_atoms == 1 and found.background is low
    np.testing.assert_allclose(found.W.to_tensor(), W.to_tensor())


def test_the_mode_of_an_earlier_one_changes_nothing(rng):
    X, truth, _, _ = planted(rng)
    data, W = DenseTensor(X), replace(truth, weights=1.1 * truth.weights)
    expected = find_background(data, W, "auto", 0.5)
    for mode in range(3):
        found = find_background(data, W, "auto", 0.5, before=replace(expected, mode=mode))
        assert found.mode == 1 and found.alone == pytest.approx(expected.alone)
        np.testing.assert_allclose(found.to_tensor(), expected.to_tensor(), atol=1e-9)
    rest = np.sum((X - expected.to_tensor()) ** 2)
    assert expected.alone == pytest.approx(1 - rest / np.sum(X**2))


def test_a_part_of_it_is_that_of_the_whole(rng):
    whole = boolcp.Background((4, 5, 6), 1, rng.standard_normal((5, 2)), rng.standard_normal((24, 2)), 1.0, 0.0)
    slices = (slice(1, 3), slice(0, 4), slice(2, 6))
    np.testing.assert_allclose(whole.part(slices).to_tensor(), whole.to_tensor()[slices])


def test_a_large_background_is_what_the_atoms_leave():
    recording = boolcp.datasets.simulate_recording(16, 60, 30, noise=2.0, random_state=5)
    W = BMP(3, certify=False, random_state=0).fit(recording.X).decomposition_
    E, B = W.to_tensor(), W.background.to_tensor()
    assert W.background.is_large and all(atom.rank == 1 for atom in W.atoms)
    assert abs(np.vdot(E, recording.X - E)) < 1e-2 * np.vdot(E, E)  # fitted to the data themselves
    whole = 1 - np.sum((recording.X - E - B) ** 2) / np.sum(recording.X**2)
    assert W.explained() > 0 and W.background.share == pytest.approx(whole - W.explained())


def test_bits_beside_a_large_background_are_judged_as_if_it_were_noise():
    recording = boolcp.datasets.simulate_recording(16, 60, 30, noise=2.0, random_state=5)
    W = BMP(3, certify=False, random_state=0).fit(recording.X).decomposition_
    alone = BMP(3, atom_rank=1, background=None, certify=False, random_state=0).fit(recording.X).decomposition_
    assert W.trust.sigma == pytest.approx(alone.trust.sigma, rel=0.02)
    assert W.trust.sigma == pytest.approx(np.std(recording.X - W.to_tensor()), rel=0.05)
    assert hamming_error(W, recording.truth) > 0.02 and min(p.min() for p in W.bit_confidence()) < 0.8


def test_beside_what_they_leave_of_the_shrunk_data_atoms_are_judged_as_fitted(rng, tmp_path):
    X = np.multiply.outer(rng.standard_normal(20), 2 * rng.standard_normal((22, 24))) + rng.standard_normal(SHAPE)
    W = BMP(6, random_state=0).fit(X).decomposition_
    other = as_fitted(DenseTensor(X), W)
    assert W.background.shrunk_at > 0 and other.background.shrunk_at is None
    clean = along(DenseTensor(X), 0, "auto", W.background.shrunk_at)[1].to_tensor()
    np.testing.assert_allclose(W.to_tensor() + W.background.to_tensor(), clean, atol=1e-9)
    again = judge(DenseTensor(X), W)
    np.testing.assert_allclose(np.concatenate(again.rise), np.concatenate(W.trust.rise), rtol=1e-6, atol=1e-6)
    assert again.sigma == pytest.approx(W.trust.sigma)
    W.save(tmp_path / "W.nc")
    assert boolcp.load(tmp_path / "W.nc").background.shrunk_at == W.background.shrunk_at
