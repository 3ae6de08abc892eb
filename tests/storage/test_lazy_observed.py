"""Missing entries of data that are read in passes: a pass has what a sweep needs, and ten are enough."""

from itertools import pairwise

import naive
import numpy as np
import pytest

from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.fit import in_passes
from boolcp.fit import polish as polishing
from boolcp.fit.polish import keep_rows, polish_sweeps, sweep
from boolcp.fit.relax import begin
from boolcp.result.columns import to_columns
from boolcp.storage import DenseTensor, compress, sources
from boolcp.storage.equations import match
from boolcp.storage.lazy import look_at, make_source
from boolcp.storage.observed import MaskedTensor

da = pytest.importorskip("dask.array")
SHAPE = (30, 64, 40)


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 200_000)
    monkeypatch.setattr(in_passes, "N_LOADED", np.inf)  # small tensors with scarce entries stay out of memory too


def fibers(share=0.2):
    """Return a tensor with whole fibers missing, and half of the entries of some slices."""
    rng = np.random.default_rng(3)
    X = make_boolean_cp(SHAPE, 3, noise=0.5, random_state=1).X
    X.transpose(0, 2, 1)[rng.random((30, 40)) < share] = np.nan
    X[:8, :32] = np.nan
    return X


def opened(X, chunk=16):
    source = make_source(da.from_array(X, chunks=(-1, chunk, -1)), None, "1GB", 3)
    return look_at(source, 10**9, rank=13)


def in_memory(X):
    return MaskedTensor(X, ~np.isnan(X))


def near_truth(rng, noise=0.3):
    """Return the columns of the truth with wrong bits and noisy real parts."""
    W = to_columns(make_boolean_cp(SHAPE, 3, noise=0.5, random_state=1).truth)
    factors = [A + noise * np.abs(A).mean() * rng.standard_normal(A.shape) for A in W.matrices]
    for n, A in enumerate(factors):
        own = W.column_mode == n
        A[:, own] = np.where(rng.random((len(A), own.sum())) < 0.1, 1 - W.matrices[n][:, own], W.matrices[n][:, own])
    return W.with_matrices(factors)


def test_a_pass_brings_the_equations_of_all_modes_for_new_rows(rng):
    X = fibers()
    data, twin, W = opened(X), in_memory(X), near_truth(rng)
    n_before = data.n_passes
    found = data.update(W.matrices, lambda H, P, current: 2 * current + P)
    assert data.n_passes == n_before + 1
    P = twin.mttkrp(W.matrices, 1)
    np.testing.assert_allclose(found[1], 2 * W.matrices[1] + P, rtol=1e-9, atol=1e-9)
    order, sizes = np.array([2, 0, 1]), np.array([3.0, -1.0, 0.5])
    asked = [found[0][:, order] * sizes, found[1][:, order], -found[2][:, order]]
    for mode in range(3):
        for factors in (found, asked):
            for known, expected in zip(
                data.normal_equations(factors, mode), twin.normal_equations(factors, mode), strict=True
            ):
                np.testing.assert_allclose(known, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
    assert data.n_passes == n_before + 1


def test_other_columns_are_not_taken_for_known_ones(rng):
    known = [rng.standard_normal((d, 3)) for d in SHAPE]
    other = [known[0], known[1], known[2] + 1e-9 * rng.standard_normal(known[2].shape)]
    assert match(known, known) is not None
    assert match(known, other) is None
    assert match(known, [0 * A for A in known]) is None


def test_equations_of_near_factors_are_exact_where_slices_are_complete_or_empty(rng):
    X, W = make_boolean_cp(SHAPE, 3, noise=0.5, random_state=1).X, near_truth(rng)
    X[:4] = np.nan
    data, twin = opened(X), in_memory(X)
    data.update(W.matrices, keep_rows)
    known = data.known_near(W.matrices)
    moved = [A if n == 1 else A + 0.1 * rng.standard_normal(A.shape) for n, A in enumerate(W.matrices)]
    for found, expected in zip(known.near_equations(moved, 0), twin.normal_equations(moved, 0), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    assert data.known_near(moved) is None


def test_gaps_are_filled_in_on_given_bases(rng):
    X = fibers()
    W = make_boolean_cp(SHAPE, 3, noise=0.5, random_state=1).truth
    small = compress(DenseTensor(np.nan_to_num(X)), 8)
    mask, V = ~np.isnan(X), W.to_tensor()
    filled = V + np.where(mask, X - V, 0) / mask.mean()
    found = opened(X).imputed(W, small.bases)
    expected = np.einsum("ijk,ia,jb,kc->abc", filled, *small.bases)
    np.testing.assert_allclose(found.core.to_array(), expected, rtol=1e-8, atol=1e-8)
    assert found.squared_norm == pytest.approx(np.sum(filled**2))


def test_sweeps_in_one_pass_lead_where_sweeps_in_memory_do(rng):
    X, W = fibers(), near_truth(rng)
    data, twin = opened(X), in_memory(X)
    lazy = list(polish_sweeps(data, begin(W), max_iter=20))
    losses = [here.W.loss for here in lazy]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(losses))
    assert lazy[-1].is_settled and data.n_passes == 1 + len(lazy) <= 8
    *_, expected = polish_sweeps(twin, begin(W), max_iter=50)
    assert losses[-1] == pytest.approx(expected.W.loss, rel=1e-4)
    for n in range(3):
        own = W.column_mode == n
        np.testing.assert_array_equal(lazy[-1].W.matrices[n][:, own], expected.W.matrices[n][:, own])
    estimate = np.einsum("ir,jr,kr->ijk", *lazy[-1].W.matrices)
    assert losses[-1] == pytest.approx(np.nansum((X - estimate) ** 2))


def test_a_sweep_that_raises_the_loss_is_replaced_by_one_mode(rng, monkeypatch):
    data, W = opened(fibers()), near_truth(rng)
    W, _ = sweep(data, W)
    right = polishing.decide_others

    def spoiled(data, W, known, modes, *others):
        factors = right(data, W, known, modes, *others)
        return [3 * A for A in factors] if len(modes) > 1 else factors

    monkeypatch.setattr(polishing, "decide_others", spoiled)
    monkeypatch.setattr(polishing, "decide_slab", lambda ridge, S, boolean, choose, H, P, current: current)
    n_before = data.n_passes
    found, _ = sweep(data, W)
    assert found.loss <= W.loss and data.n_passes == n_before + 2


@pytest.mark.parametrize(
    ("kind", "shape", "rank"),
    [
        ("random", SHAPE, 1),
        ("fibers", SHAPE, 1),
        pytest.param("random", (30, 70, 60), 2, marks=pytest.mark.slow),
    ],
)
def test_ten_passes_are_enough(kind, shape, rank):
    X, clean, _ = make_boolean_cp(shape, 3, noise=0.5, missing=0.2, random_state=1)
    X = fibers() if kind == "fibers" else X
    expected = BMP(3, atom_rank=rank, background=None, random_state=0).fit(X).decomposition_
    model = BMP(3, atom_rank=rank, random_state=0).fit(da.from_array(X, chunks=(-1, 16, -1)))
    assert model.n_passes_ <= 10  # 7, or 9 with certificates, where gaps are at random
    found = model.decomposition_
    for one, other in zip(found.atoms, expected.atoms, strict=True):
        assert one.mode == other.mode
        np.testing.assert_array_equal(one.z, other.z)
    assert np.isfinite([atom.certificate for atom in found.atoms]).all()
    errors = [np.linalg.norm(W.to_tensor() - clean) for W in (found, expected)]
    assert errors[0] <= 1.02 * errors[1]
    assert found.data_inner == pytest.approx([np.nansum(X * M) for M in map(naive.atom, found.atoms)], rel=1e-6)


def test_a_fit_is_resumed_from_its_stages(tmp_path, monkeypatch):
    X = make_boolean_cp(SHAPE, 3, noise=0.5, missing=0.2, random_state=1).X
    array = da.from_array(X, chunks=(-1, 16, -1))
    expected = BMP(3, random_state=0, certify=False).fit(array).decomposition_
    monkeypatch.setattr("boolcp.fit.watch.INTERVAL", 0.0)
    for n_steps in (3, 6, 8, 9, 10):  # the search, sweeps, the last search, the ridge
        path, seen = tmp_path / f"{n_steps}.checkpoint", []

        def stop(progress, seen=seen, last=n_steps):
            seen.append(progress)
            if len(seen) == last:
                raise RuntimeError("killed")

        with pytest.raises(RuntimeError, match="killed"):
            BMP(3, random_state=0, certify=False).fit(array, checkpoint=path, callback=stop)
        found = BMP.resume(path, array).decomposition_
        for one, other in zip(found.matrices, expected.matrices, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(found.weights, expected.weights)
        np.testing.assert_array_equal(found.data_inner, expected.data_inner)


def test_gram_matrices_of_residuals_share_a_pass(rng):
    X = fibers()
    W = make_boolean_cp(SHAPE, 3, noise=0.5, random_state=1).truth
    weights = {mode: rng.standard_normal((2, 3)) for mode in range(3)}
    data, twin = opened(X), in_memory(X)
    n_before = data.n_passes
    data.ask_residual_grams(W, weights)
    for mode, rows in weights.items():
        for found, expected in zip(data.residual_grams(W, rows, mode), twin.residual_grams(W, rows, mode), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    assert data.n_passes == n_before + 2


def test_scarce_entries_of_a_large_tensor_are_listed(rng, monkeypatch):
    X = make_boolean_cp((30, 60, 40), 2, noise=0.2, random_state=4).X
    X = np.where(rng.random(X.shape) < 0.9, np.nan, X)
    model = BMP(2, random_state=0, atom_rank=1)
    expected = model.fit(as_list(X)).decomposition_
    monkeypatch.setattr(in_passes, "MAX_ENTRIES", 1000)
    found = model.set_params(max_memory="50MB").fit(da.from_array(X, chunks=(16, 16, -1)))
    np.testing.assert_allclose(found.decomposition_.to_tensor(), expected.to_tensor(), atol=1e-10)
    assert found.n_passes_ == 0  # of the fit, which is in memory


def as_list(X):
    """Return the observed entries as a list."""
    places = np.argwhere(~np.isnan(X))
    return places, X[tuple(places.T)], X.shape


def test_noiseless_data_take_at_most_ten_passes():
    X, clean, _ = make_boolean_cp((40, 60, 30), 4, missing=0.1, random_state=2)
    model = BMP(4, random_state=0, atom_rank=1, certify=False).fit(da.from_array(X, chunks=(-1, 20, -1)))
    assert 0 < model.n_passes_ <= 10
    assert np.abs(model.decomposition_.to_tensor() - clean).max() < 1e-4 * np.abs(clean).max()


def test_fewer_atoms_that_explain_all_are_found_in_the_same_pass():
    X, clean, _ = make_boolean_cp((40, 60, 30), 2, missing=0.1, random_state=2)
    model = BMP(4, random_state=0, atom_rank=1, certify=False).fit(da.from_array(X, chunks=(-1, 20, -1)))
    assert model.decomposition_.n_atoms == 2
    assert np.abs(model.decomposition_.to_tensor() - clean).max() < 1e-4 * np.abs(clean).max()


def test_scarce_entries_are_loaded_where_copies_fit(monkeypatch):
    monkeypatch.setattr(in_passes, "N_LOADED", 8)
    X = make_boolean_cp((40, 60, 30), 3, noise=0.3, missing=0.8, random_state=2).X
    lazy = da.from_array(X, chunks=(-1, 20, -1))
    model = BMP(3, random_state=0, atom_rank=1)
    expected = model.fit(X).decomposition_
    found = model.fit(lazy)
    assert found.n_passes_ == 0
    np.testing.assert_array_equal(found.decomposition_.to_tensor(), expected.to_tensor())
    assert model.set_params(max_memory=4 * X.nbytes, certify=False).fit(lazy).n_passes_ > 10
