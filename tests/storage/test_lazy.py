"""Tensors that are not in memory: the same decomposition in a few passes, whatever holds the numbers."""

import os
import signal
import time

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import random_decomposition
from test_storage import check_questions

from boolcp import storage
from boolcp.bmp import BMP
from boolcp.cli import main
from boolcp.contractions import gram_product
from boolcp.datasets import make_boolean_cp
from boolcp.fit import in_passes
from boolcp.io import FileError, arrays, open_tensor
from boolcp.io import load as load_result
from boolcp.memory import available_memory, check_memory, read_memory
from boolcp.metrics import hamming_error
from boolcp.storage import make_storage, sources, stays_out
from boolcp.storage.lazy import LazyTensor, NearTensor, ObservedLazyTensor, look_at, make_source
from boolcp.storage.slabs import View, part_of

da = pytest.importorskip("dask.array")
Callback = pytest.importorskip("dask.callbacks").Callback
GB = 10**9


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 50_000)
    monkeypatch.setattr(in_passes, "N_LOADED", np.inf)  # small tensors with scarce entries stay out of memory too


def lazy(X, chunks="auto", block=None, **options):
    source = sources.Source(da.from_array(X, chunks=chunks), block=block)
    return look_at(source, GB, **options)


def same(first, second, *, atol=1e-8):
    """Assert that two decompositions have the same bits and, to rounding, the same real parts and numbers."""
    np.testing.assert_array_equal(first.boolean_mode, second.boolean_mode)
    for one, other in zip(first.atoms, second.atoms, strict=True):
        np.testing.assert_array_equal(one.z, other.z)
        for A, B in zip(one.factors, other.factors, strict=True):
            np.testing.assert_allclose(A, B, rtol=0, atol=atol)
    np.testing.assert_allclose(first.weights, second.weights, rtol=atol)
    np.testing.assert_allclose(first.data_inner, second.data_inner, rtol=10 * atol)
    certificates = [[atom.certificate for atom in W.atoms] for W in (first, second)]
    np.testing.assert_allclose(*certificates, rtol=10 * atol)


class Counted:
    """An array that counts how often each entry is read."""

    def __init__(self, X):
        self.X, self.shape, self.dtype, self.ndim = X, X.shape, X.dtype, X.ndim
        self.count = np.zeros(X.shape, dtype=int)

    def __getitem__(self, index):
        self.count[index] += 1
        return self.X[index]


# questions


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=4),
    st.integers(1, 4),
    st.integers(8, 400),
    st.sampled_from([0.0, 0.3, 0.9]),
    st.sampled_from([np.float64, np.float32]),
    st.integers(0, 2**32 - 1),
)
def test_answers_are_those_of_the_array(shape, chunk, block, missing, dtype, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape).astype(dtype)
    X[rng.random(shape) < missing] = np.nan
    X[(0,) * X.ndim] = 1.0
    data = lazy(X, chunk, block, wanted=range(X.ndim))
    known = ~np.isnan(X)
    assert isinstance(data, LazyTensor if known.all() else ObservedLazyTensor) and data.dtype == dtype
    twin = make_storage(X, None if known.all() else known)
    zeros = np.where(known, X, 0).astype(float)
    tolerance = 1e-10 if dtype == np.float64 else 1e-5
    check_questions(data, zeros, rng, tolerance)
    assert data.squared_norm == pytest.approx(np.sum(zeros**2), rel=1e-6)
    factors = [rng.standard_normal((d, 2)) for d in shape]
    for mode in range(X.ndim):
        for found, expected in zip(
            data.normal_equations(factors, mode), twin.normal_equations(factors, mode), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=0, atol=100 * tolerance * max(np.abs(expected).max(), 1))
        if not known.all():
            np.testing.assert_array_equal(data.n_observed_along(mode), twin.n_observed_along(mode))
    np.testing.assert_array_equal(data.to_array(), zeros)


def test_what_is_made_of_observed_entries(rng):
    X = rng.standard_normal((5, 9, 6))
    known = rng.random(X.shape) < 0.7
    data = lazy(np.where(known, X, np.nan), 2, 500)
    W = random_decomposition(X.shape, "mixed", rng)
    check_questions(data.residual(W), (X - naive.tensor(W)) * known, rng)
    check_questions(data.restrict(W), naive.tensor(W) * known, rng)
    check_questions(data.observed(), known.astype(float), rng)
    check_questions(data.filled(), X * known * X.size / known.sum(), rng)
    assert data.n_observed == known.sum() and data.observed().squared_norm == pytest.approx(known.sum())
    assert data.filled().squared_norm == pytest.approx(np.sum((X * known * X.size / known.sum()) ** 2))


def test_the_residual_of_complete_data(rng):
    X = rng.standard_normal((5, 9, 6))
    W = random_decomposition(X.shape, "rank one", rng)
    residual = lazy(X, 2, 500).residual(W)
    check_questions(residual, X - naive.tensor(W), rng)
    assert residual.squared_norm == pytest.approx(np.sum((X - naive.tensor(W)) ** 2))


@pytest.mark.parametrize("kind", ["rank one", "rank two", "block", "mixed"])
def test_a_part_of_a_decomposition_is_that_part_of_its_tensor(kind, rng):
    W = random_decomposition((6, 7, 8), kind, rng)
    slices = slice(2, 5), slice(None), slice(7, 8)
    np.testing.assert_allclose(part_of(W, slices).to_tensor(), W.to_tensor()[slices], atol=1e-12)


def test_an_update_decides_rows_and_contracts_with_them_in_one_pass(rng):
    X = rng.standard_normal((5, 20, 6))
    factors = [rng.standard_normal((d, 3)) for d in X.shape]
    data = lazy(X, 3, 700)
    H = gram_product(factors, 1)
    A, contracted = data.update(factors, 1, _halve)
    assert data.n_passes == 2
    np.testing.assert_allclose(A, naive.mttkrp(X, factors, 1) / 2 + factors[1])
    np.testing.assert_allclose(contracted.T, naive.contract(X, 1, A))
    assert H.shape == (3, 3)
    A, contracted = data.update(factors, 0, _halve)  # a mode that is whole in each slab
    np.testing.assert_allclose(A, naive.mttkrp(X, factors, 0) / 2 + factors[0])
    np.testing.assert_allclose(contracted.T, naive.contract(X, 0, A))


def _halve(P, current):
    return P / 2 + current


def test_a_contraction_too_large_for_the_memory_stays_lazy(rng):
    X = rng.standard_normal((6, 30, 7))
    data = lazy(X, (6, 1, 7), 400)
    data.limit = 1_400
    U = np.linalg.qr(rng.standard_normal((6, 3)))[0]
    reduced = data.reduced(0, U)
    assert isinstance(reduced, LazyTensor) and reduced.n_passes == data.n_passes == 1
    reduced.limit, expected = GB, naive.contract(X, 0, U)
    check_questions(reduced, expected, rng)
    assert data.n_passes == reduced.n_passes > 1
    reduced.limit = 1_400  # with one mode left to be cut along, what is left is loaded
    again = reduced.reduced(2, np.eye(7)[:, :2])
    assert not isinstance(again, LazyTensor)
    check_questions(again, expected[:, :, :2], rng)


# fits


@pytest.mark.parametrize("missing", [0.0, 0.25])
@pytest.mark.parametrize("shape", [(12, 60, 20), (24, 24, 24)])
def test_the_fit_is_the_same_for_all_chunks(shape, missing):
    X = make_boolean_cp(shape, 3, noise=0.5, missing=missing, random_state=1).X
    before = X.copy()
    model = BMP(3, random_state=0)
    expected = model.fit(X).decomposition_
    assert model.n_passes_ == 0
    for chunks in (9, (4, 17, 20)):
        same(model.fit(da.from_array(X, chunks=chunks)).decomposition_, expected)
        assert model.n_passes_ > 3
    np.testing.assert_array_equal(X, before)


def stored(X, kind, folder):
    """Return X as it is read from a file of some kind."""
    if kind == "zarr":
        zarr = pytest.importorskip("zarr")
        array = zarr.create_array(folder / "X.zarr", shape=X.shape, chunks=(6, 20, 10), dtype=X.dtype)
        array[...] = X
        return zarr.open_array(folder / "X.zarr", mode="r")
    if kind in ("hdf5", "chunked hdf5"):
        h5py = pytest.importorskip("h5py")
        with h5py.File(folder / "X.h5", "w") as file:
            file.create_dataset("group/X", data=X, chunks=(4, 8, 5) if kind == "chunked hdf5" else None)
        return h5py.File(folder / "X.h5", "r")["group/X"]
    if kind == "xarray":
        xarray = pytest.importorskip("xarray")
        return xarray.DataArray(da.from_array(X, chunks=7), dims=("a", "b", "c"))
    if kind == "part of a map":
        np.save(folder / "X.npy", np.pad(X, 1))
        return np.load(folder / "X.npy", mmap_mode="r")[1:-1, 1:-1, 1:-1]
    np.save(folder / "X.npy", np.asfortranarray(X) if kind == "Fortran map" else X)
    return np.load(folder / "X.npy", mmap_mode="r")


KINDS = ["zarr", "hdf5", "chunked hdf5", "xarray", "map", "Fortran map", "part of a map"]


@pytest.mark.parametrize(("kind", "missing"), [*((kind, 0.0) for kind in KINDS), ("zarr", 0.25), ("map", 0.25)])
def test_the_fit_is_the_same_from_all_files(kind, missing, tmp_path, monkeypatch):
    X = make_boolean_cp((12, 60, 20), 3, noise=0.5, missing=missing, random_state=1).X
    expected = BMP(3, random_state=0).fit(X).decomposition_
    array = stored(X, kind, tmp_path)
    monkeypatch.setattr(storage, "read_memory", lambda size: 1000)  # all maps are large
    model = BMP(3, random_state=0)
    found = model.fit(array).decomposition_
    assert model.n_passes_ > 3
    same(found, expected)
    assert found.dims == (("a", "b", "c") if kind == "xarray" else None)


@pytest.mark.parametrize("dtype", [np.int16, np.uint8, bool, ">f8", np.float32])
def test_other_dtypes(dtype):
    X = make_boolean_cp((12, 60, 20), 3, noise=0.5, random_state=1).X
    X = X > 0.5 if dtype is bool else (X if dtype is np.float32 else 10 * X + 100).astype(dtype)
    model = BMP(3, atom_rank=1, background=None, random_state=0)
    expected = model.fit(X).decomposition_
    found = model.fit(da.from_array(X, chunks=7)).decomposition_
    # sweeps over bits converge slowly, and end before they do in memory
    same(found, expected, atol={np.float32: 1e-4, bool: 1e-3}.get(dtype, 1e-8))


def test_a_mask_of_dask_or_numpy_is_that_of_the_entries():
    X = make_boolean_cp((12, 60, 20), 3, noise=0.5, random_state=1).X
    mask = np.random.default_rng(0).random(X.shape) < 0.8
    expected = BMP(3, random_state=0).fit(X, mask=mask).decomposition_
    spoiled = da.from_array(np.where(mask, X, np.inf), chunks=7)  # what is under the mask is not looked at
    same(BMP(3, random_state=0).fit(spoiled, mask=mask).decomposition_, expected)
    same(BMP(3, random_state=0).fit(spoiled, mask=da.from_array(mask, chunks=5)).decomposition_, expected)


@pytest.mark.parametrize("n_atoms", [2, 5])
def test_the_passes_are_counted_and_few(n_atoms):
    X = make_boolean_cp((18, 60, 20), n_atoms, noise=0.1, random_state=1).X
    counted = Counted(X)
    array = da.from_array(counted, chunks=(-1, 10, -1), asarray=False)
    model = BMP(n_atoms, random_state=0, max_iter=1).fit(array)
    assert model.n_passes_ == 4  # norm and Gram matrices, core, one sweep, weights and certificates
    np.testing.assert_array_equal(counted.count, 4)
    assert np.isfinite([atom.certificate for atom in model.decomposition_.atoms]).all()
    three = BMP(n_atoms, random_state=0).fit(da.from_array(Counted(X), chunks=(-1, 10, -1), asarray=False))
    assert three.n_passes_ <= 9


def test_a_cube_is_cut_along_all_modes():
    X = make_boolean_cp((30, 30, 30), 3, noise=0.1, random_state=1).X
    model = BMP(3, random_state=0, max_iter=1).fit(da.from_array(X, chunks=10))
    assert model.n_passes_ == 4
    same(model.decomposition_, BMP(3, random_state=0, max_iter=1).fit(X).decomposition_)


@pytest.mark.parametrize("order", ["C", "F"])
def test_no_file_is_cut_along_its_innermost_mode(order, tmp_path, monkeypatch):
    X = make_boolean_cp((30, 30, 30), 3, noise=0.1, random_state=1).X
    np.save(tmp_path / "X.npy", np.asarray(X, order=order))
    monkeypatch.setattr(sources, "BLOCK", 2 * 900 * 8)
    monkeypatch.setattr(sources, "SHORT_RUN", 100)
    monkeypatch.setattr("boolcp.storage.lazy.MAX_BLOCKS", 1)
    cuts, passed = [], LazyTensor._pass
    monkeypatch.setattr(LazyTensor, "_pass", lambda data, mode, *args: cuts.append(mode) or passed(data, mode, *args))
    model = BMP(3, random_state=0).fit(open_tensor(tmp_path / "X.npy", lazy=True))
    assert len(cuts) == model.n_passes_ and (2 if order == "C" else 0) not in cuts
    same(model.decomposition_, BMP(3, random_state=0).fit(X).decomposition_)


def test_equal_seeds_give_equal_results():
    array = da.from_array(make_boolean_cp((12, 60, 20), 3, noise=0.5, random_state=1).X, chunks=7)
    first, second = (BMP(3, random_state=0).fit(array).decomposition_ for _ in range(2))
    np.testing.assert_array_equal(first.to_tensor(), second.to_tensor())


def test_fit_path_is_the_same():
    X = make_boolean_cp((12, 60, 20), 3, noise=0.5, random_state=1).X
    model = BMP(3, background=None, random_state=0)
    for found, expected in zip(model.fit_path(da.from_array(X, chunks=7)), model.fit_path(X), strict=True):
        np.testing.assert_allclose(found.to_tensor(), expected.to_tensor(), atol=1e-8)


@pytest.mark.parametrize(("shape", "options"), [((12, 30, 10), {"compression": False}), ((12, 30), {})])
def test_small_and_uncompressed_tensors_are_loaded_if_they_fit(shape, options):
    X = make_boolean_cp(shape, 2, noise=0.5, random_state=1).X
    array = da.from_array(X, chunks=7)
    model = BMP(2, random_state=0, **options)
    np.testing.assert_allclose(
        model.fit(array).decomposition_.to_tensor(), model.fit(X).decomposition_.to_tensor(), atol=1e-8
    )
    with pytest.raises(MemoryError, match=r"the tensor in memory.*max_memory is 5 kB.*compression=True"):
        model.set_params(max_memory="5kB").fit(array)


# what a model does with new data


@pytest.mark.parametrize("missing", [0.0, 0.25])
@pytest.mark.parametrize("mode", [0, 1])
def test_transform_and_score(mode, missing):
    X = make_boolean_cp((12, 60, 20), 3, noise=0.5, missing=missing, random_state=1).X
    model = BMP(3, random_state=0).fit(X)
    array = da.from_array(X, chunks=7)
    np.testing.assert_allclose(model.transform(array, mode=mode), model.transform(X, mode=mode), atol=1e-9)
    assert model.score(array) == pytest.approx(model.score(X))


def test_score_of_block_atoms():
    X = make_boolean_cp((12, 30, 10), 2, noise=0.5, random_state=1).X
    model = BMP.as_published(3, random_state=0).fit(X)
    assert model.score(da.from_array(X, chunks=7)) == pytest.approx(model.score(X))


def test_complete_gives_a_lazy_array():
    X = make_boolean_cp((12, 60, 20), 3, missing=0.25, random_state=1).X
    X[3] = np.nan
    with pytest.warns(UserWarning, match="no observed entry"):
        model = BMP(3, random_state=0).fit(X)
    filled = model.complete(da.from_array(X, chunks=7))
    assert isinstance(filled, da.Array)
    np.testing.assert_allclose(filled.compute(), model.complete(X), atol=1e-12)
    mask = np.ones(X.shape, dtype=bool)
    mask[:, 2] = False
    np.testing.assert_allclose(
        model.complete(da.from_array(X, chunks=7), mask=mask).compute(), model.complete(X, mask=mask), atol=1e-12
    )


def test_complete_keeps_labels():
    xarray = pytest.importorskip("xarray")
    X = xarray.DataArray(make_boolean_cp((12, 60, 20), 2, missing=0.2, random_state=1).X, dims=("a", "b", "c"))
    model = BMP(2, random_state=0).fit(X)
    filled = model.complete(X.chunk(7))
    assert filled.dims == X.dims and isinstance(filled.data, da.Array)
    np.testing.assert_allclose(filled.values, model.complete(X).values)


# memory


def test_memory_is_read_from_numbers_and_texts():
    assert read_memory("3GB") == 3 * GB and read_memory("1.5 MiB") == 1.5 * 2**20 and read_memory(17) == 17
    assert 0 < available_memory() == pytest.approx(read_memory(None), rel=0.5)
    for wrong in ("3 apples", "-1GB", -1, 0, float("inf")):
        with pytest.raises(ValueError, match="max_memory"):
            read_memory(wrong)
    for wrong in ([], True):
        with pytest.raises(TypeError, match="max_memory"):
            BMP(2, max_memory=wrong).fit(np.ones((3, 3, 3)))


def test_a_refusal_names_what_takes_the_memory():
    with pytest.raises(MemoryError, match=r"about 3 GB of memory \(slabs 2 GB, core 1 GB\).*is 2\.5 GB\. Do this\."):
        check_memory({"core": 1 * GB, "slabs": 2 * GB, "dust": 10}, int(2.5 * GB), "Do this.")
    check_memory({"core": GB}, GB, "")


def test_a_fit_that_cannot_fit_is_refused_before_anything_is_read():
    huge = da.zeros((3000, 10**6, 2000), chunks=(3000, 10, 2000), dtype=np.float32)
    with pytest.raises(MemoryError, match=r"needs about .* GB .*the tensor contracted with a factor.*is 1 GB"):
        BMP(20, max_memory="1GB").fit(huge)
    counted = Counted(np.ones((10, 200, 20)))
    with pytest.raises(MemoryError, match="slabs along mode 1"):
        BMP(2, max_memory=20_000).fit(da.from_array(counted, chunks=(-1, 1, -1), asarray=False).rechunk(-1))
    assert counted.count.max() <= 1  # dask looks at one entry to learn the kind of array
    with pytest.raises(MemoryError, match=r"Rechunk X to be short along mode 1"):
        look_at(make_source(da.ones((10, 200, 20), chunks=-1)), 20_000)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_atoms_of_rank_two_are_those_of_the_array_in_memory(missing, monkeypatch):
    monkeypatch.setattr("boolcp.fit.polish.PASS_GAIN", 0.0)  # sweeps go on as long as in memory
    X = make_boolean_cp((14, 30, 16), 2, noise=0.5, random_state=1).X
    X = np.where(np.random.default_rng(0).random(X.shape) < missing, np.nan, X)
    model = BMP(2, atom_rank=2, random_state=0, n_init=3, max_iter=5)
    expected = model.fit(X).decomposition_
    found = model.fit(da.from_array(X, chunks=(14, 7, 16)))
    assert found.n_passes_ > 0
    for one, other in zip(found.decomposition_.atoms, expected.atoms, strict=True):
        np.testing.assert_array_equal(one.z, other.z)
    np.testing.assert_allclose(found.decomposition_.to_tensor(), expected.to_tensor(), atol=1e-6)


def test_without_a_gram_matrix_certificates_come_from_the_other_modes():
    X = make_boolean_cp((18, 60, 20), 3, noise=0.1, random_state=1).X
    array = da.from_array(X, chunks=(-1, 1, -1))
    limit = 650_000  # slabs along mode 1 are small; those along another need all chunks at once
    found = BMP(3, random_state=0, max_memory=limit).fit(array).decomposition_
    expected = BMP(3, random_state=0).fit(X).decomposition_
    assert (found.boolean_mode == 1).any()
    for one, other in zip(found.atoms, expected.atoms, strict=True):
        assert one.mode == other.mode and 0.5 < one.certificate <= 1
        assert (one.certificate == pytest.approx(other.certificate)) == (one.mode != 1)


def test_a_small_memory_map_stays_as_it_is(tmp_path):
    np.save(tmp_path / "X.npy", np.ones((4, 5, 6)))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert not stays_out(X) and stays_out(X, X.nbytes) and not stays_out(np.ones((4, 5, 6)), 10)
    assert not stays_out(np.load(tmp_path / "X.npy", mmap_mode="c"), 10)  # its changes are not in the file


# errors


@pytest.mark.parametrize(
    ("array", "error", "text"),
    [
        (da.zeros((3, 4, 5), dtype=complex), ValueError, "Complex data not supported: X is complex128"),
        (da.zeros((3, 4, 5), dtype="U3"), ValueError, "X has dtype <U3"),
        (da.zeros(5), ValueError, "X has 1 dimension"),
        (da.zeros((3, 0, 5)), ValueError, "X is empty"),
        (da.full((12, 60, 20), np.nan), ValueError, "X is NaN .* everywhere"),
        (da.full((12, 60, 20), np.inf), ValueError, "X contains infinity in 14400 entries"),
        (da.full((12, 60, 20), 1e80), ValueError, "largest entry of X is 1e[+]80 in size, but float64"),
        (da.full((12, 60, 20), 1e-22, dtype="f4"), ValueError, "largest entry of X is 1e-22 in size, but float32"),
    ],
)
def test_errors_are_those_of_arrays(array, error, text):
    with pytest.raises(error, match=text):
        BMP(2).fit(array)


def test_errors_of_sizes_and_masks():
    X = da.random.random((12, 60, 20), chunks=7)
    with pytest.raises(ValueError, match="X has unknown sizes"):
        BMP(2).fit(X[X[:, 0, 0] > 0.5])
    with pytest.raises(ValueError, match="mask has shape"):
        BMP(2).fit(X, mask=np.ones((3, 4), dtype=bool))
    with pytest.raises(ValueError, match="mask has shape"):
        BMP(2).fit(X, mask=da.ones((3, 4), dtype=bool))
    with pytest.raises(ValueError, match="only mode 0 may differ"):
        BMP(2, random_state=0).fit(X).transform(X[:, :, :5])


def test_a_zero_tensor():
    with pytest.warns(UserWarning, match="X is zero"):
        model = BMP(2).fit(da.zeros((12, 60, 20), chunks=7))
    assert model.decomposition_.n_atoms == 0


# clusters


def test_the_fit_is_the_same_on_a_cluster_of_threads(tmp_path):
    distributed = pytest.importorskip("distributed")
    X = make_boolean_cp((12, 60, 20), 3, noise=0.5, random_state=1).X
    expected = BMP(3, random_state=0).fit(X).decomposition_
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        assert client.ncores()
        same(BMP(3, random_state=0).fit(stored(X, "hdf5", tmp_path)).decomposition_, expected)
        same(BMP(3, random_state=0).fit(da.from_array(X, chunks=11)).decomposition_, expected)


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_the_fit_is_the_same_on_a_cluster_of_processes(missing, tmp_path):
    distributed = pytest.importorskip("distributed")
    X = make_boolean_cp((12, 60, 20), 3, noise=0.5, missing=missing, random_state=1).X
    expected = BMP(3, random_state=0).fit(X).decomposition_
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        assert client.ncores()
        same(BMP(3, random_state=0).fit(stored(X, "zarr", tmp_path)).decomposition_, expected)


def test_a_cluster_may_grow_and_shrink_during_a_fit():
    distributed = pytest.importorskip("distributed")
    array = da.from_array(make_boolean_cp((12, 60, 20), 3, noise=0.5, random_state=1).X, chunks=(-1, 10, -1))
    expected = BMP(3, random_state=0).fit(array).decomposition_
    cluster = distributed.LocalCluster(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        sizes = []

        def change(progress):
            """Change the size some times and wait until the cluster knows: dask fails if workers come and go faster."""
            if len(sizes) == 6:
                return
            sizes.append(1 + len(sizes) % 3)
            cluster.scale(sizes[-1])
            client.wait_for_workers(sizes[-1])
            end = time.monotonic() + 60
            while len(cluster.scheduler_info["workers"]) != sizes[-1] and time.monotonic() < end:
                time.sleep(0.01)

        found = BMP(3, random_state=0).fit(array, callback=change).decomposition_
    assert {1, 2, 3} <= set(sizes)
    np.testing.assert_array_equal(found.to_tensor(), expected.to_tensor())


def kill_once(block, flag):
    """Return the block; the process that reads one for the first time is killed."""
    if block.size and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return block


@pytest.mark.slow
def test_a_lost_worker_changes_nothing(tmp_path):
    distributed = pytest.importorskip("distributed")
    array = da.from_array(make_boolean_cp((12, 60, 20), 3, noise=0.5, random_state=1).X, chunks=(-1, 10, -1))
    expected, flag = BMP(3, random_state=0).fit(array).decomposition_, tmp_path / "killed"
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster):
        deadly = array.map_blocks(kill_once, flag, dtype=array.dtype, meta=np.zeros((0, 0, 0)))
        found = BMP(3, random_state=0).fit(deadly).decomposition_
    assert flag.exists()
    np.testing.assert_array_equal(found.to_tensor(), expected.to_tensor())


def test_a_fit_of_a_lazy_array_is_resumed(tmp_path):
    array = da.from_array(make_boolean_cp((12, 60, 20), 3, noise=0.5, random_state=1).X, chunks=7)
    expected = BMP(3, random_state=0).fit(array)
    stopped = BMP(3, random_state=0).fit(
        array, checkpoint=tmp_path / "fit.nc", callback=lambda progress: progress.stage == "polish"
    )
    assert "callback" in stopped.stop_reason_
    resumed = BMP.resume(tmp_path / "fit.nc", array)
    np.testing.assert_array_equal(resumed.decomposition_.to_tensor(), expected.decomposition_.to_tensor())


# files


@pytest.mark.parametrize("kind", ["npy", "zarr", "labelled zarr", "h5", "nc"])
def test_open_tensor_leaves_large_files_where_they_are(kind, tmp_path, monkeypatch):
    xarray = pytest.importorskip("xarray")
    X = make_boolean_cp((12, 60, 20), 3, noise=0.5, random_state=1).X
    path = tmp_path / f"X.{kind.rpartition(' ')[2]}"
    if kind == "npy":
        np.save(path, X)
    elif kind == "h5":
        stored(X, "hdf5", tmp_path)
    elif kind == "zarr":
        stored(X, "zarr", tmp_path)
    else:
        labelled = xarray.DataArray(X, dims=("a", "b", "c"), name="X").to_dataset()
        labelled.to_netcdf(path, engine="h5netcdf") if kind == "nc" else labelled.to_zarr(path)
    assert isinstance(open_tensor(path).data, np.ndarray)
    lazy_X = open_tensor(path, lazy=True)
    assert isinstance(lazy_X.data, da.Array)
    np.testing.assert_array_equal(lazy_X.values, X)
    monkeypatch.setattr(arrays, "available_memory", lambda: 10)
    assert isinstance(open_tensor(path).data, da.Array) and isinstance(open_tensor(path, lazy=False).data, np.ndarray)
    if kind in ("npy", "h5"):
        same(BMP(3, random_state=0).fit(lazy_X).decomposition_, BMP(3, random_state=0).fit(X).decomposition_)


def test_open_tensor_names_files_that_must_be_loaded(tmp_path):
    np.savez(tmp_path / "X.npz", X=np.ones((3, 4, 5)))
    with pytest.raises(FileError, match=r"X\.npz.* can only be loaded as a whole"):
        open_tensor(tmp_path / "X.npz", lazy=True)
    with pytest.raises(ValueError, match="lazy must be True, False or"):
        open_tensor(tmp_path / "X.npz", lazy="maybe")


def test_the_command_fits_files_larger_than_memory(tmp_path, monkeypatch, capsys):
    X = make_boolean_cp((12, 60, 20), 3, noise=0.5, random_state=1).X
    stored(X, "chunked hdf5", tmp_path)
    monkeypatch.setattr(arrays, "available_memory", lambda: 10)
    fit = ["fit", str(tmp_path / "X.h5"), "-k", "3", "-o", str(tmp_path / "out")]
    assert main([*fit, "--max-memory", "100kB"]) == 2
    assert "max_memory is 100 kB" in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert main([*fit, "--max-memory", "1GB"]) == 0
    same(load_result(tmp_path / "out" / "decomposition.nc"), BMP(3, random_state=0).fit(X).decomposition_)
    assert main(["info", str(tmp_path / "X.h5")]) == 0


def test_a_file_opened_lazily_is_read_in_thin_slabs(tmp_path, rng):
    np.save(tmp_path / "cube.npy", rng.standard_normal((30, 30, 30)))
    X = open_tensor(tmp_path / "cube.npy", lazy=True)
    source = sources.Source(X.data, block=2 * 30 * 30 * 8)
    assert [source.thickness(mode) for mode in range(3)] == [2, 2, 2]
    assert not source.is_dask
    stretch, stops = source.stretches(1)
    assert stops == list(range(2, 31, 2))
    np.testing.assert_array_equal(next(stretch.to_delayed()[0, 1, 0].compute().slabs()), X.values[:, 2:4])
    assert sources.Source(X.data + 1).is_dask


@pytest.mark.parametrize("storage", ["map", "zarr", "hdf5", "dask"])
def test_a_slab_is_read_and_asked_in_one_task(storage, tmp_path, rng):
    X = rng.standard_normal((48, 6, 5))
    array = da.from_array(X, chunks=(6, -1, -1)) + 0 if storage == "dask" else stored(X, storage, tmp_path)
    sizes = []
    callback = Callback(posttask=lambda key, value, *_: sizes.append(getattr(value, "size", 0)))
    with callback:
        data = look_at(sources.Source(array, block=X[:6].nbytes), 10**9)
    assert len(sizes) == 8 + 2 + 1  # the slabs, and a tree of their sums
    assert max(sizes) < X[:6].size  # no slab leaves its task
    assert data.squared_norm == pytest.approx(np.sum(X**2))


@pytest.mark.parametrize("kind", ["map", "zarr", "hdf5"])
def test_slabs_of_a_file_are_summed_in_stretches_that_are_never_read_at_once(kind, tmp_path, rng, monkeypatch):
    X = rng.standard_normal((100, 6, 5)).astype(np.float32)
    source = sources.Source(stored(X, kind, tmp_path), block=X[:6].nbytes)
    monkeypatch.setattr(sources, "N_STRETCHES", 4)
    assert source.stretches(0)[1] == [24, 48, 72, 96, 100]
    sizes = []
    opened = View.open
    monkeypatch.setattr(View, "open", lambda *args, **how: sizes.append(args[1].shape[0]) or opened(*args, **how))
    data = look_at(source, 10**9, wanted=[1])
    assert sorted(sizes) == [4, *[6] * 16]
    np.testing.assert_allclose(data.gram(1), np.einsum("iaj,ibj->ab", X, X), rtol=1e-4)
    np.testing.assert_allclose(data.contract(2, np.eye(5))[3], X[:, :, 3], rtol=1e-5)  # rows in their order


@pytest.mark.parametrize("kind", ["map", "zarr", "hdf5", "dask"])
@pytest.mark.parametrize("mode", [0, 1])
def test_slabs_whose_memory_serves_again_are_told_apart(kind, mode, tmp_path, rng, monkeypatch):
    shape = (90, 6, 5) if mode == 0 else (6, 90, 5)
    X = np.where(rng.random(shape) < 0.3, np.nan, rng.standard_normal(shape))
    before = X.copy()
    monkeypatch.setattr(sources, "N_STRETCHES", 4)
    given = da.from_array(X, chunks=30) if kind == "dask" else stored(X, kind, tmp_path)
    data = look_at(sources.Source(given, block=X.nbytes // 15), GB)
    W = make_boolean_cp(shape, 2, random_state=0).truth
    zeroed, fit = np.nan_to_num(X), W.to_tensor()
    filled = data.filled()
    np.testing.assert_array_equal(data.to_array(), zeroed)
    np.testing.assert_array_equal(filled.to_array(), zeroed * filled.view.scale)
    np.testing.assert_array_equal(data.mask, ~np.isnan(X))
    np.testing.assert_allclose(data.residual(W).to_array(), np.where(np.isnan(X), 0, X - fit), atol=1e-14)
    near = np.where(np.isnan(X), fit, fit + np.clip(X - fit, -0.1, 0.1))
    np.testing.assert_allclose(NearTensor(data, W, 0.1).to_array(), near, atol=1e-14)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("name", ["cube.npy", "cube.h5"])
def test_a_file_opened_lazily_can_be_indexed_like_any_array(name, tmp_path, rng):
    cube = rng.standard_normal((7, 8, 9))
    if name == "cube.npy":
        np.save(tmp_path / name, cube)
    else:
        with pytest.importorskip("h5py").File(tmp_path / name, "w") as file:
            file["X"] = cube
    X = open_tensor(tmp_path / name, lazy=True)
    for index in (2, (slice(None), -1), (1, 2, 3), (slice(None, None, 3), slice(4, 1, -1)), ([0, 4],), (..., 5), ()):
        np.testing.assert_array_equal(X[index].values, cube[index])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("short_run", [1, 10**9])
def test_boxes_of_a_file_are_those_of_the_array(order, short_run, tmp_path, rng, monkeypatch):
    monkeypatch.setattr(sources, "SHORT_RUN", short_run)
    X = np.asarray(rng.standard_normal((5, 6, 7)), order=order)
    np.save(tmp_path / "X.npy", X)
    file = sources.mapped_file(np.load(tmp_path / "X.npy", mmap_mode="r"))
    boxes = [
        np.s_[:, :, :],
        np.s_[1:3, :, :],
        np.s_[:, 2:5, :],
        np.s_[:, :, 3:4],
        np.s_[1:2, 2:4, 0:7],
        np.s_[0:5, 1:2, 2:6],
    ]
    for box in boxes:
        np.testing.assert_array_equal(file[box], X[box])


def test_a_file_that_was_cut_short_is_named(tmp_path):
    np.save(tmp_path / "X.npy", np.zeros((50, 10, 10)))
    file = sources.mapped_file(np.load(tmp_path / "X.npy", mmap_mode="r"))
    with open(tmp_path / "X.npy", "r+b") as handle:
        handle.truncate(2000)
    with pytest.raises(OSError, match=r"X.npy ended before all entries were read"):
        file[40:50, :, :]


def test_a_labelled_lazy_array_is_never_loaded_as_a_whole(tmp_path, monkeypatch):
    X, _, truth = make_boolean_cp((20, 60, 25), 2, noise=0.1, random_state=0)
    np.save(tmp_path / "X.npy", X)
    labelled = open_tensor(tmp_path / "X.npy", dims=("channel", "time", "trial"), lazy=True)

    def refuse(self, *args, **options):
        raise AssertionError("the whole array was computed")

    monkeypatch.setattr(da.Array, "__array__", refuse)
    monkeypatch.setattr(da.Array, "compute", refuse)
    W = BMP(2, random_state=0).fit(labelled).decomposition_
    assert W.labels.dims == ("channel", "time", "trial")
    assert hamming_error(W, truth) == 0
