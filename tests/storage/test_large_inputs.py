"""What may be wrong with arrays that are not in memory, and how much memory there is for them."""

import io
import re

import numpy as np
import pytest

from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.io import arrays as files
from boolcp.io import open_tensor
from boolcp.memory import available_memory, float_bytes, group_memory
from boolcp.storage import sources, stays_out
from boolcp.storage.lazy import Facts, LazyTensor, Passes

da = pytest.importorskip("dask.array")
_pass = LazyTensor._pass
SHAPE = (14, 16, 40)


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 20_000)


@pytest.fixture(scope="module")
def X():
    return make_boolean_cp(SHAPE, 2, noise=0.1, random_state=0).X


def fitted(X, **options):
    return BMP(2, random_state=0, **options).fit(X).decomposition_.to_tensor()


# arrays of dask


@pytest.mark.parametrize(("dtype", "options"), [(np.float32, {}), (np.int64, {}), (np.float64, {"refine": False})])
def test_masks_of_numpy_masked_arrays_are_kept(dtype, options, X, rng):
    hidden = rng.random(SHAPE) < 0.2
    values = np.where(hidden, 999, 100 * X).astype(dtype)
    masked = np.ma.masked_array(values, hidden)
    array = da.from_array(masked, chunks=(14, 8, 7), asarray=False)
    model = BMP(2, random_state=0, **options).fit(array)
    np.testing.assert_allclose(model.decomposition_.to_tensor(), fitted(masked, **options), atol=0.01)
    filled = model.complete(array).compute()
    np.testing.assert_allclose(
        filled, model.complete(np.ma.masked_array(values.astype(float), hidden)), rtol=1e-5, atol=1e-8
    )
    np.testing.assert_array_equal(filled[~hidden], values[~hidden])


def test_masked_blocks_that_dask_was_not_told_of(X, rng):
    masked = np.ma.masked_array(np.where(rng.random(SHAPE) < 0.2, 999, X))
    masked[masked.data == 999] = np.ma.masked
    plain = da.from_array(masked.data, chunks=(-1, -1, 10))
    array = plain.map_blocks(lambda block: np.ma.masked_equal(block, 999), dtype=float, meta=np.empty((0, 0, 0)))
    np.testing.assert_allclose(fitted(array), fitted(masked), atol=1e-6)


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 1e30), ("float64", 1e100), ("float32", 1e-25)])
@pytest.mark.filterwarnings("error")
def test_units_that_overflow_or_vanish_are_refused(dtype, unit):
    array = da.ones(SHAPE, chunks=(14, 16, 10)) * unit
    with pytest.raises(ValueError, match=re.escape(f"The largest entry of X is {unit:.3g} in size, but {dtype}")):
        BMP(2).fit(array.astype(dtype))


def test_the_largest_entry_is_that_of_all_slabs(X):
    scaled = X * np.where(np.arange(SHAPE[2]) < 10, 1e-90, 1)
    fitted(da.from_array(scaled, chunks=(14, 16, 10)))  # a slab of small numbers is fine
    with pytest.raises(ValueError, match="The largest entry of X is 1e"):
        fitted(da.from_array(-np.where(np.arange(SHAPE[2]) < 10, 1e90, X), chunks=(14, 16, 10)))


def test_blocks_of_another_shape_or_dtype_than_dask_was_told(X):
    array, nothing = da.from_array(X, chunks=(14, 16, 10)), np.empty((0, 0, 0))
    for part in (np.s_[:, :10], np.s_[:, :, :5]):
        wrong = array.map_blocks(lambda block, part=part: block[part], dtype=float, meta=nothing)
        with pytest.raises(ValueError, match=r"A part of X has shape \(14, .*its chunks say \(14, 16, 10\)"):
            fitted(wrong)
    small = np.clip(np.round(20 * X), -100, 100)
    integers = da.from_array(small, chunks=(14, 16, 10)).map_blocks(np.int8, dtype=float, meta=nothing)
    np.testing.assert_allclose(fitted(integers), fitted(small), atol=1e-6)  # squares of int8 would overflow


def test_a_lazy_mask_must_be_boolean(X):
    with pytest.raises(ValueError, match=r"mask has dtype int64; .*mask\.astype\(bool\)"):
        BMP(2).fit(da.from_array(X), mask=da.ones(SHAPE, dtype=int))


# files


def make_in_memory(h5py, X):
    return h5py.File("in_memory.h5", "w", driver="core", backing_store=False).create_dataset("X", data=X)


def make_bytes(h5py, X):
    return h5py.File(io.BytesIO(), "w").create_dataset("X", data=X)


def make_nameless(h5py, X):
    return h5py.File("nameless.h5", "w").create_dataset(None, data=X)


def make_linked_twice(h5py, X):
    with h5py.File("data.h5", "w") as file:
        file["X"] = X
        file["soft"] = X + 100  # not the one that is meant
    file = h5py.File("links.h5", "w")
    file["far"], file["soft"] = h5py.ExternalLink("data.h5", "/X"), h5py.SoftLink("/far")
    return file["soft"]


def make_appended(h5py, X):
    with h5py.File("data.h5", "w") as file:
        file["X"] = 0 * X
    file = h5py.File("data.h5", "a")
    file["X"][...] = X
    return file["X"]


@pytest.mark.parametrize("make", [make_in_memory, make_bytes, make_nameless, make_linked_twice, make_appended])
def test_datasets_that_no_file_gives_by_name(make, X, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset = make(pytest.importorskip("h5py"), X)
    np.testing.assert_allclose(fitted(dataset), fitted(X), atol=1e-6)


def write_hdf5(X):
    with pytest.importorskip("h5py").File("data.h5", "w") as file:
        file["X"] = X


def write_zarr(X):
    pytest.importorskip("zarr").create_array("data.zarr", data=X, chunks=(7, 16, 10))


def write_zarr_group(X):
    pytest.importorskip("zarr").open_group("data.zarr", mode="w").create_array("X", data=X, chunks=(7, 16, 10))


def write_labelled_zarr(X):
    pytest.importorskip("xarray").DataArray(X, dims=("a", "b", "c"), name="X").to_dataset().to_zarr("data.zarr")


@pytest.mark.parametrize("write", [write_hdf5, write_zarr, write_zarr_group, write_labelled_zarr])
def test_the_name_of_a_file_holds_in_other_folders(write, X, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(X)
    opened = open_tensor("data.h5" if write is write_hdf5 else "data.zarr", lazy=True)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    np.testing.assert_array_equal(opened.values, X)


def test_arrays_and_masks_of_zarr_hold_in_other_folders(X, tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr")
    monkeypatch.chdir(tmp_path)
    array = zarr.create_array("data.zarr", data=X, chunks=(7, 16, 10))
    mask = zarr.create_array("mask.zarr", data=X > 0, chunks=(7, 16, 10))
    source = sources.Source(array, mask)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    np.testing.assert_array_equal(source.stretches(2)[0].compute(), np.where(X > 0, X, np.nan))
    with pytest.raises(FileNotFoundError, match=r"data\.zarr"):
        BMP(2).fit(array)  # zarr itself would read zeros now


def test_origins_do_not_pile_up(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "N_ORIGINS", 3)
    monkeypatch.setattr(sources, "ORIGINS", {})
    arrays = []
    for size in range(2, 8):
        np.save(tmp_path / f"{size}.npy", np.ones((size, 2, 2)))
        arrays.append(open_tensor(tmp_path / f"{size}.npy", lazy=True).data)
    assert len(sources.ORIGINS) == 3
    assert [sources.Source(array).is_dask for array in arrays] == [True] * 3 + [False] * 3


def test_groups_are_refused_by_name(tmp_path, X):
    zarr, h5py = pytest.importorskip("zarr"), pytest.importorskip("h5py")
    group = zarr.open_group(tmp_path / "group.zarr", mode="w")
    group.create_array("brain", data=X)
    with pytest.raises(TypeError, match=r"X is a group of arrays \('brain'\)"):
        BMP(2).fit(group)
    with h5py.File(tmp_path / "group.h5", "w") as file:
        file["brain"] = X
        with pytest.raises(TypeError, match=r"X is a group of arrays \('brain'\)"):
            BMP(2).fit(file)


# memory


def test_integers_take_the_memory_of_the_floats_they_become(tmp_path, monkeypatch):
    np.save(tmp_path / "X.npy", np.ones(SHAPE, dtype=np.int16))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    needed = 8 * X.size
    assert float_bytes(SHAPE, X.dtype) == needed and float_bytes(SHAPE, np.dtype(">f4")) == needed
    assert stays_out(X, 2 * needed - 1) and not stays_out(X, 2 * needed)
    monkeypatch.setattr(files, "available_memory", lambda: 2 * needed - 1)
    assert isinstance(open_tensor(tmp_path / "X.npy").data, da.Array), "it is left where it is"
    array = da.ones(SHAPE, dtype=np.int8)
    with pytest.raises(MemoryError, match=f"the tensor in memory, with copies {3 * needed / 1000:.3g} kB"):
        BMP(2, compression=False, max_memory=3 * needed - 1).fit(array)


@pytest.mark.parametrize(
    ("chunks", "limit", "cut"), [((5, 5, 7), 10**9, 1), ((-1, -1, 40), 10**9, 1), ((1, 20, 45), 80_000, 0)]
)
def test_a_contraction_is_joined_rather_than_summed(chunks, limit, cut, rng, monkeypatch):
    X, Z = rng.standard_normal((20, 20, 45)), rng.standard_normal((20, 3))
    monkeypatch.setattr("boolcp.storage.lazy.n_threads", lambda: 1)
    source = sources.Source(da.from_array(X, chunks=chunks), block=8_000)
    data = LazyTensor(source, Facts(np.sum(X**2), [], {}, Passes()), limit)
    data.wanted, cuts = (2,), []
    monkeypatch.setattr(LazyTensor, "_pass", lambda self, mode, *rest: cuts.append(mode) or _pass(self, mode, *rest))
    np.testing.assert_allclose(data._contract(0, Z, [2]), np.einsum("ijk,il->ljk", X, Z))
    np.testing.assert_allclose(data.gram(2), np.einsum("ijk,ijl->kl", X, X))
    assert cuts == [cut]  # not 0, unless slabs along 1 do not fit


def test_a_refusal_for_gram_matrices_says_what_needs_them():
    array = da.ones((60, 60, 2000), chunks=(60, 60, 10))
    with pytest.raises(MemoryError, match="certify=False needs the smallest one only"):
        BMP(2, max_memory="40MB").fit(array)
    with pytest.raises(MemoryError) as refusal:
        BMP(2, max_memory="1MB", certify=False).fit(array)
    assert "certify=False" not in str(refusal.value)


def make_group(folder, limit, used, parts, *, is_old=False):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ("memory.limit_in_bytes" if is_old else "memory.max")).write_text(f"{limit}\n")
    (folder / ("memory.usage_in_bytes" if is_old else "memory.current")).write_text(f"{used}\n")
    (folder / "memory.stat").write_text("".join(f"{name} {size}\n" for name, size in parts.items()))


def test_the_memory_of_control_groups(tmp_path):
    membership, root = tmp_path / "cgroup", tmp_path / "fs"
    assert group_memory(root, membership) == np.inf  # no such file
    membership.write_text("3:cpu,cpuacct:/\n0::/jobs/one\n")
    assert group_memory(root, membership) == np.inf  # no such groups
    cached = {"anon": 300, "file": 550, "inactive_file": 400, "active_file": 100}
    make_group(root / "jobs" / "one", 1000, 850, cached)
    assert group_memory(root, membership) == 1000 - 850 + 500  # cached files give way
    make_group(root / "jobs", 5000, 4900, {})
    assert group_memory(root, membership) == 100  # the limit of the group above holds as well
    make_group(root / "jobs", "max", 4900, {})
    assert group_memory(root, membership) == 650
    membership.write_text("4:memory:/not/seen/here\n0::/\n")  # version 1, in a container
    make_group(root / "memory", 2000, 700, {"active_file": 1, "total_active_file": 50}, is_old=True)
    assert group_memory(root, membership) == 1350


def test_a_group_bounds_what_is_available(monkeypatch):
    monkeypatch.setattr("boolcp.memory.group_memory", lambda: 12345)
    assert available_memory() == 12345
