"""Arrays that are not in memory (dask, zarr, HDF5, memory maps), cut into slabs along one mode."""

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.checks import find_map
from boolcp.extras import load_extra

# by bench_scale.py
BLOCK = 64_000_000  # bytes of a slab at most, unless a single row has more
SMALL_CHUNK = 16  # chunks of a dask array with less than a 16th of a slab are joined
N_STRETCHES, MAX_SLABS = 16, 8  # a pass over a file has at least 16 tasks, and a task at most 8 slabs
SHORT_RUN = 1024  # a memory map is faster than reading runs of fewer bytes
ORIGINS: dict[str, tuple[Any, tuple[int, ...]]] = {}  # (array on disk, its chunks) of dask arrays made here, by name
N_ORIGINS = 100  # how many are kept


@dataclass(frozen=True)
class MappedFile:
    """A memory map as the name of its file: each block is read when needed, so no pages stay and none are sent."""

    filename: str
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def ndim(self) -> int:
        """Return the order N."""
        return len(self.shape)

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.read(index)

    def read(self, index: Any, used: np.ndarray | None = None) -> np.ndarray:
        """Return a part of the array, in the memory of a part read before that is `used` no longer, if it fits."""
        is_box = isinstance(index, tuple) and len(index) == self.ndim and all(isinstance(i, slice) for i in index)
        for shape, strides, order in ((self.shape, self.strides, 1), (self.shape[::-1], self.strides[::-1], -1)):
            if is_box and strides == c_strides(shape, self.dtype.itemsize):
                used = used if used is None or order == 1 else used.T
                block = read_runs(self.filename, self.dtype, shape, self.offset, index[::order], used)
                if block is not None:
                    return block if order == 1 else block.T
        raw = np.memmap(self.filename, dtype=np.uint8, mode="r")
        view = np.ndarray(self.shape, self.dtype, buffer=raw, offset=self.offset, strides=self.strides)
        return np.array(view[index])


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides of an array in C order."""
    return tuple(int(itemsize * np.prod(shape[n + 1 :], dtype=np.int64)) for n in range(len(shape)))


def read_runs(
    filename: str, dtype: np.dtype, shape: Sequence[int], offset: int, index: Sequence[slice], used: np.ndarray | None
) -> np.ndarray | None:
    """Return a box of an array in C order, read run by run, or None if the runs are too short for that.

    Pages of a memory map would stay resident, and the system may map many more of them than are needed. The memory of a
    `used` box serves again, since fresh pages cost as much as reading; and what follows in the file is announced.
    """
    ranges = [range(*part.indices(d)) for part, d in zip(index, shape, strict=True)]
    sizes = [len(r) for r in ranges]
    cut = max((n for n, d in enumerate(shape) if sizes[n] < d), default=0)  # from here on entries are adjacent
    is_fit = used is not None and used.shape == tuple(sizes) and used.dtype == dtype and used.flags.c_contiguous
    block = used if used is not None and is_fit else np.empty(sizes, dtype=dtype)
    runs = block.reshape(int(np.prod(sizes[:cut], dtype=np.int64)), -1)
    if any(r.step != 1 for r in ranges) or (len(runs) > 1 and runs[:1].nbytes < SHORT_RUN):
        return None
    strides = c_strides(shape, dtype.itemsize)
    starts = offset + sum(r.start * stride for r, stride in zip(ranges, strides, strict=True))
    with open(filename, "rb", buffering=0) as file:
        for run, place in zip(runs, np.ndindex(*sizes[:cut]), strict=True):
            file.seek(starts + int(np.dot(place, strides[:cut])))
            if file.readinto(run.view(np.uint8).data) != run.nbytes:
                raise OSError(f"{filename} ended before all entries were read: it is truncated, so copy it again.")
        if len(runs) == 1 and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), starts + block.nbytes, block.nbytes, os.POSIX_FADV_WILLNEED)
    return block


@dataclass(frozen=True)
class Hdf5File:
    """A dataset of an HDF5 file as the two names: the file is opened for each block."""

    filename: str
    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """Return the order N."""
        return len(self.shape)

    def __getitem__(self, index: Any) -> Any:
        with load_extra("h5py", "files").File(self.filename, "r") as file:
            return file[self.name][index]


def mapped_file(X: np.ndarray) -> MappedFile:
    """Return the MappedFile of an array that is a view of a memory map."""
    base: Any = find_map(X)
    start = np.frombuffer(base._mmap, dtype=np.uint8).__array_interface__["data"][0]
    offset = base.offset - base.offset % mmap.ALLOCATIONGRANULARITY + X.__array_interface__["data"][0] - start
    return MappedFile(str(base.filename), X.dtype, X.shape, X.strides, offset)


def hdf5_file(X: Any) -> Any:
    """Return the Hdf5File of a dataset, or the dataset itself if no file on disk holds it under its name."""
    file = Hdf5File(os.path.abspath(X.file.filename), X.name, X.dtype, X.shape)  # workers may be in other folders
    try:
        with load_extra("h5py", "files").File(file.filename, "r") as opened:
            return file if opened[file.name].id == X.id else X
    except (OSError, KeyError, TypeError):  # a file in memory, a dataset without a name or behind several links
        return X


def at_its_place(X: Any) -> Any:
    """Return a zarr array opened by the absolute path of its folder, anything else unchanged.

    In a different working folder, that of a worker say, zarr finds no chunks, and reads missing chunks as zeros.
    """
    root = getattr(getattr(X, "store", None), "root", None)
    if not isinstance(root, Path) or root.is_absolute():
        return X
    return load_extra("zarr", "files").open_array(root.absolute(), path=X.path, mode="r")


@dataclass(frozen=True)
class Stretches:
    """An array on disk, `rows` of it at a time: indexing reads nothing, the slabs of a part are read one by one."""

    array: Any
    dtype: np.dtype
    mode: int
    rows: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the sizes of the array."""
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        """Return the order N."""
        return len(self.shape)

    def __getitem__(self, index: tuple[slice, ...]) -> "Stretch":
        return Stretch(self, index)


@dataclass(frozen=True)
class Stretch:
    """A part of an array on disk."""

    whole: Stretches
    index: tuple[slice, ...]

    def slabs(self) -> Iterator[np.ndarray]:
        """Yield the slabs one after another, each in memory of its own or in that of the one before."""
        array, mode, block = self.whole.array, self.whole.mode, None
        begin, end, _ = self.index[mode].indices(array.shape[mode])
        for start in range(begin, end, self.whole.rows):
            rows = slice(start, min(start + self.whole.rows, end))
            try:
                box = tuple(rows if n == mode else part for n, part in enumerate(self.index))
                block = array.read(box, block) if isinstance(array, MappedFile) else array[box]
            except MemoryError:
                raise
            except Exception as error:
                raise OSError(f"X[{place(mode, rows, array.ndim)}] cannot be read: {error}") from error
            yield np.asarray(block, dtype=self.whole.dtype)


def place(mode: int, rows: slice, ndim: int) -> str:
    """Return the text of an index: rows along one mode, everything along the others."""
    return ", ".join(f"{rows.start}:{rows.stop}" if n == mode else ":" for n in range(ndim))


class Source:
    """A lazy array as slabs of floating-point numbers, NaN where the mask is False.

    Parameters
    ----------
    X : dask.array.Array, zarr.Array, h5py.Dataset, or ndarray
        The array. An ndarray must be a view of a memory map.
    mask : array-like or dask.array.Array of bool, optional
        True where X is observed.
    weights : array, lazy or not, or mapping of int to ndarray, optional
        How much each entry counts: an array of the shape of X, or vectors by mode, which are multiplied.
    block : int, optional
        Bytes of a slab at most.
    """

    def __init__(self, X: Any, mask: Any = None, weights: Any = None, *, block: int | None = None) -> None:
        X, self.chunks = ORIGINS.get(getattr(X, "name", ""), (X, natural_chunks(X)))
        self.is_dask = type(X).__module__.startswith("dask")
        self.dtype = np.dtype(X.dtype if X.dtype in (np.float32, np.float64) else np.float64)
        if self.is_dask and np.ma.isMaskedArray(X._meta):  # before chunks are joined, which loses their masks
            X = load_extra("dask.array", "dask").ma.filled(X.astype(self.dtype), np.nan)
        X = by_name(X)
        self.array, self.mask, self.block = X, at_its_place(mask), BLOCK if block is None else block
        self.weights = by_name(weights)
        self.bounds: tuple[float, float] | None = None  # at which entries are cut off
        self.n_copies = 2 if weights is None else 5  # arrays as large as a slab that a pass holds for each thread
        self._stretches: dict[int, tuple[Any, list[int]]] = {}
        self._checks: dict[int, np.ndarray] = {}  # of the slabs of the first pass along each mode
        self.shape, self.ndim = tuple(int(d) for d in X.shape), X.ndim

    @property
    def nbytes(self) -> int:
        """Return the size of the whole array in memory."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def thickness(self, mode: int) -> int:
        """Return the number of rows of a slab: whole chunks if they fit, otherwise equal parts of a chunk.

        Chunks of a dask array are joined only if they are small: joined chunks may travel between workers.
        """
        row, chunk = max(1, self.nbytes // self.shape[mode]), max(1, self.chunks[mode])
        rows = min(max(1, self.block // row), self.shape[mode])
        if rows < chunk:
            return -(-chunk // -(-chunk // rows))
        if self.is_dask and chunk * row * SMALL_CHUNK >= self.block:
            return chunk
        return rows // chunk * chunk

    def is_scattered(self, mode: int) -> bool:
        """Return True if a slab along `mode` lies in short pieces all over a file: each slab reads the whole file."""
        strides = getattr(self.array, "strides", None)
        return strides is not None and bool(abs(strides[mode]) * self.thickness(mode) < SHORT_RUN)

    def held(self, mode: int) -> int:
        """Return the bytes held in memory while one slab along `mode` is put together."""
        rows = self.thickness(mode)
        if self.is_dask:  # chunks that are longer than a slab wait for the next ones
            rows = max(rows, self.chunks[mode] if rows % self.chunks[mode] else 0)
        return rows * (self.nbytes // self.shape[mode])

    def clipped(self, low: float, high: float) -> "Source":
        """Return the same array with its entries cut off at two bounds."""
        other = copy(self)
        other.bounds = low, high
        return other

    def stretches(self, mode: int) -> tuple[Any, list[int]]:
        """Return a dask array with one chunk for each task of a pass along `mode`, and where the chunks end.

        A chunk is a slab, or the Stretch of several slabs of a file, whose answers are summed where they are read.
        The array is made once.
        """
        if mode not in self._stretches:
            X = self._cut(mode)
            self._stretches[mode] = X, np.cumsum(X.chunks[mode]).tolist()
        return self._stretches[mode]

    def _cut(self, mode: int) -> Any:
        da, rows = load_extra("dask.array", "dask"), self.thickness(mode)
        if not self.is_dask and self.mask is None and self.weights is None:
            n_slabs = max(1, min(self.shape[mode] // rows // N_STRETCHES, MAX_SLABS))
            chunks = tuple(n_slabs * rows if n == mode else -1 for n in range(self.ndim))
            nothing = np.empty((0,) * self.ndim, dtype=self.dtype)
            named = Stretches(self.array, self.dtype, mode, rows)
            return da.from_array(named, chunks=chunks, asarray=False, meta=nothing)
        chunks = tuple(rows if n == mode else -1 for n in range(self.ndim))
        X = self.array.rechunk(chunks) if self.is_dask else da.from_array(self.array, chunks=chunks, asarray=False)
        X = X if X.dtype == self.dtype else X.astype(self.dtype)
        if self.mask is None:
            return X
        return da.where(da.asarray(self.mask).rechunk(X.chunks), X, self.dtype.type(np.nan))

    def weights_along(self, mode: int) -> list[Any]:
        """Return the weights as a dask array with the chunks of `stretches`, in a list; an empty one without them."""
        if self.weights is None:
            return []
        da, chunks = load_extra("dask.array", "dask"), self.stretches(mode)[0].chunks
        if isinstance(self.weights, Mapping):
            nothing = np.empty((0,) * self.ndim)
            return [da.map_blocks(product_part, vectors=dict(self.weights), chunks=chunks, dtype=float, meta=nothing)]
        is_dask = type(self.weights).__module__.startswith("dask")
        lazy = self.weights if is_dask else da.from_array(self.weights, chunks=chunks, asarray=False)
        return [lazy.rechunk(chunks).astype(float)]

    def compare(self, mode: int, checks: np.ndarray) -> None:
        """Raise an error if a pass along `mode` has read other numbers than a pass before it.

        `checks` has the first row, the end and the checksum of each slab (n_slabs, 3). Their sum is that of all slabs
        along any mode, modulo 2^64.
        """
        known = self._checks.setdefault(mode, checks)
        first = next(iter(self._checks.values()))
        what = "somewhere"
        if known.shape == checks.shape and (differs := (known != checks).any(axis=1)).any():
            start, stop, _ = checks[np.argmax(differs)]
            what = f"in X[{place(mode, slice(int(start), int(stop)), self.ndim)}]"
        elif np.add.reduce(first[:, 2]) == np.add.reduce(checks[:, 2]):
            return
        raise RuntimeError(
            f"X has changed {what} since it was first read in this fit: another program may be writing to it, or it is "
            f"computed from random numbers. Store it, and start again."
        )

    def name_unreadable(self, error: Exception) -> None:
        """Raise an error that names the first chunk of a dask array that cannot be computed, if there is one."""
        if not self.is_dask or isinstance(error, MemoryError) or type(error).__name__ == "KilledWorker":
            return
        for index in np.ndindex(*self.array.numblocks):
            try:
                self.array.blocks[index].compute()
            except Exception as again:
                raise OSError(f"The chunk with index {index} of X cannot be computed: {again}") from error

    def lazy(self) -> Any:
        """Return the array as a dask array, for results of the same size."""
        da = load_extra("dask.array", "dask")
        if self.is_dask:
            return self.array
        chunks = "auto" if max(self.chunks) == 1 else self.chunks
        X = da.from_array(self.array, chunks=chunks, asarray=False)
        ORIGINS[X.name] = self.array, self.chunks  # a Source of this dask array then reads the file itself
        while len(ORIGINS) > N_ORIGINS:  # without its origin it is just a dask array
            del ORIGINS[next(iter(ORIGINS))]
        return X


def by_name(X: Any) -> Any:
    """Return an array of a file as the name of the file, anything else unchanged."""
    if isinstance(X, np.ndarray):
        return X if find_map(X) is None else mapped_file(X)
    return hdf5_file(X) if type(X).__module__.startswith("h5py") else at_its_place(X)


def product_part(vectors: Mapping[int, np.ndarray], block_info: Any) -> np.ndarray:
    """Return a block of the product of vectors by mode."""
    bounds = block_info[None]["array-location"]
    product = np.ones([stop - start for start, stop in bounds])
    for mode, vector in vectors.items():
        product *= vector[slice(*bounds[mode])].reshape(-1, *[1] * (len(bounds) - 1 - mode))
    return product


def natural_chunks(X: Any) -> tuple[int, ...]:
    """Return the size of the largest chunk along each mode, 1 if there are no chunks."""
    chunks = getattr(X, "chunks", None)
    if chunks is None:
        return (1,) * X.ndim
    return tuple(int(max(sizes)) if isinstance(sizes, tuple) else int(sizes) for sizes in chunks)


def load(X: Any) -> np.ndarray:
    """Return a lazy array in memory; a masked array stays masked."""
    return np.asanyarray(X.compute() if hasattr(X, "compute") else X[...])
