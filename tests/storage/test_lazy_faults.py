"""Data that change or cannot be read while a fit reads them in passes: noticed, and named; and data that are sent."""

import pickle

import numpy as np
import pytest

from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.storage import DenseTensor, slabs, sources
from boolcp.storage.slabs import Parcel, Terms, aligned

da = pytest.importorskip("dask.array")


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 50_000)
    monkeypatch.setattr("boolcp.fit.in_passes.N_LOADED", np.inf)  # scarce entries stay out of memory too


class Changing:
    """An array of which one entry changes its sign after it has been read a number of times."""

    def __init__(self, X, n_reads):
        self.X, self.shape, self.dtype, self.ndim = X, X.shape, X.dtype, X.ndim
        self.n_reads = n_reads

    def __getitem__(self, index):
        block = np.array(self.X[index])
        if block.size and index[1].start == 20:
            self.n_reads -= 1
            if self.n_reads < 0:
                block[0, 3, 0] *= -1
        return block


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_data_that_change_between_passes_are_noticed_and_named(missing):
    X = make_boolean_cp((12, 60, 20), 2, noise=0.5, missing=missing, random_state=1).X
    X[0, 23, 0] = 1.0
    array = da.from_array(Changing(X, 2), chunks=(-1, 20, -1), asarray=False)
    with pytest.raises(RuntimeError, match=r"X has changed in X\[:, 20:40, :\] since it was first read"):
        BMP(2, random_state=0).fit(array)
    BMP(2, random_state=0).fit(da.from_array(Changing(X, 10**6), chunks=(-1, 20, -1), asarray=False))


def test_a_change_is_noticed_along_a_different_mode(rng):
    X = rng.standard_normal((4, 6, 5))
    source = sources.Source(da.from_array(X, chunks=2))
    checks = [np.array([[0, len(X), slabs.checksum(X)]], dtype=np.uint64)]
    source.compare(0, checks[0])
    halves = np.array([[0, 3, slabs.checksum(X[:, :3])], [3, 6, slabs.checksum(X[:, 3:])]], dtype=np.uint64)
    source.compare(1, halves)
    halves[1, 2] += np.uint64(1)
    source._checks.pop(1)
    with pytest.raises(RuntimeError, match="changed somewhere"):
        source.compare(1, halves)


def test_an_unreadable_chunk_is_named():
    X = make_boolean_cp((12, 60, 20), 2, noise=0.5, random_state=1).X

    def read(block, block_info=None):
        if block_info and block_info[0]["chunk-location"] == (0, 2, 0):
            raise ValueError("the checksum of a chunk is wrong")
        return block

    array = da.from_array(X, chunks=(-1, 20, -1)).map_blocks(read, dtype=float, meta=np.zeros((0, 0, 0)))
    with pytest.raises(OSError, match=r"The chunk with index \(0, 2, 0\) of X cannot be computed: the checksum"):
        BMP(2, random_state=0).fit(array)


def test_rows_of_a_file_that_cannot_be_read_are_named(tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr")
    X = make_boolean_cp((12, 60, 20), 2, noise=0.5, random_state=1).X
    array = zarr.create_array(tmp_path / "X.zarr", shape=X.shape, chunks=(12, 20, 20), dtype=X.dtype)
    array[...] = X
    [chunk] = [
        path for path in (tmp_path / "X.zarr").rglob("*") if path.is_file() and path.parts[-3:] == ("0", "1", "0")
    ]
    chunk.write_bytes(b"spoiled")
    with pytest.raises(OSError, match=r"X\[:, 20:40, :\] cannot be read"):
        BMP(2, random_state=0).fit(zarr.open_array(tmp_path / "X.zarr", mode="r"))


def misaligned(X):
    """Return a copy of X that begins at an odd byte, as arrays that were sent between processes may."""
    raw = np.empty(X.nbytes + 16, dtype=np.uint8)
    start = 1 - raw.ctypes.data % 2
    copy = raw[start : start + X.nbytes].view(X.dtype).reshape(X.shape)
    copy[...] = X
    assert not copy.flags.aligned
    return copy


def test_where_an_array_begins_changes_no_digit(rng):
    X = rng.standard_normal((24, 10, 30))
    np.testing.assert_array_equal(DenseTensor(misaligned(X)).gram(0), DenseTensor(X).gram(0))
    parts = aligned(Terms([misaligned(X), X]))
    assert isinstance(parts, Terms) and all(part.flags.aligned for part in parts) and parts[1] is X


def test_arrays_in_a_parcel_are_sent_within_it(rng):
    X, beside = rng.standard_normal((24, 30)), []
    sent = pickle.dumps(Parcel({"X": X}), protocol=5, buffer_callback=beside.append)
    found = pickle.loads(sent).value["X"]
    assert not beside and found.flags.aligned
    np.testing.assert_array_equal(found, X)
