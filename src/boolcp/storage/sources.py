"""Arrays that are not in memory (dask, zarr, HDF5, memory maps), read in slabs along one mode; dask runs each pass."""

import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np

from boolcp.checks import find_map, is_lazy
from boolcp.extras import load_extra
from boolcp.memory import check_memory
from boolcp.threads import one_thread, shared_thread

BLOCK = 64_000_000  # bytes of a slab at most, unless a chunk has more; by bench_scale.py
N_COPIES = 4  # arrays as large as a slab that each thread of a pass holds; not tuned
SPLIT = 4  # answers that are added at a time; not tuned
SHORT_RUN = 1024  # bytes of a file that are read one after another at least, or each slab reads nearly all of it
ORIGINS: WeakValueDictionary[str, Any] = WeakValueDictionary()  # the files of dask arrays that `Source.lazy` made

Ask = Callable[[np.ndarray, np.ndarray | None, slice], tuple[Any, ...]]  # slab of X, of weights, rows -> answers


@dataclass(frozen=True)
class MappedFile:
    """A memory map as the name of its file: each box is read when it is needed, so that no pages stay in memory."""

    filename: str
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def __getitem__(self, index: Any) -> np.ndarray:
        raw = np.memmap(self.filename, dtype=np.uint8, mode="r")
        try:
            view = np.ndarray(self.shape, self.dtype, buffer=raw, offset=self.offset, strides=self.strides)
        except (TypeError, ValueError) as error:
            raise OSError(f"{self.filename} is shorter than it was: it is truncated, so copy it again.") from error
        return np.array(view[index])


@dataclass(frozen=True)
class Hdf5File:
    """A dataset of an HDF5 file as the two names: the file is opened for each box."""

    filename: str
    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    def __getitem__(self, index: Any) -> Any:
        with load_extra("h5py", "files").File(self.filename, "r") as file:
            return file[self.name][index]


@dataclass(frozen=True, eq=False)
class Reader:
    """An array of a file whose errors say which part could not be read."""

    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the sizes."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype:
        """Return the dtype of the file."""
        return np.dtype(self.array.dtype)

    @property
    def ndim(self) -> int:
        """Return the order N."""
        return len(self.shape)

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.array[index]
        except (MemoryError, IndexError):
            raise
        except Exception as error:
            parts = index if isinstance(index, tuple) else (index,)
            box = ", ".join(f"{i.start}:{i.stop}" if isinstance(i, slice) else str(i) for i in parts)
            raise OSError(f"X[{box}] cannot be read: {error}") from error


def by_name(X: Any) -> Any:
    """Return an array of a file as the absolute name of the file, in whatever process or folder; others unchanged."""
    if (base := find_map(X)) is not None:
        start = np.frombuffer(base._mmap, dtype=np.uint8).__array_interface__["data"][0]  # type: ignore[attr-defined]
        offset = base.offset - base.offset % mmap.ALLOCATIONGRANULARITY + X.__array_interface__["data"][0] - start
        return MappedFile(os.path.abspath(str(base.filename)), X.dtype, X.shape, X.strides, offset)
    if type(X).__module__.startswith("h5py"):
        file = Hdf5File(os.path.abspath(X.file.filename), X.name, X.dtype, X.shape)
        try:
            with load_extra("h5py", "files").File(file.filename, "r") as opened:
                return file if opened[file.name].id == X.id else X
        except (OSError, KeyError, TypeError):  # a file in memory, a dataset without a name or behind several links
            return X
    root = getattr(getattr(X, "store", None), "root", None)
    if isinstance(root, Path) and not root.is_absolute():  # in a different folder zarr reads missing chunks as zeros
        return load_extra("zarr", "files").open_array(root.absolute(), path=X.path, mode="r")
    return X


class Source:
    """A lazy array as slabs of floating-point numbers, NaN where they are masked, with their weights.

    Parameters
    ----------
    X : dask.array.Array, zarr.Array, h5py.Dataset, or ndarray
        The array. An ndarray must be a view of a memory map.
    mask, weights : array, lazy or not, optional
        True where X is observed; how much each entry counts. They broadcast against X.
    limit : int, optional
        Bytes of memory that a pass may use.
    """

    def __init__(self, X: Any, mask: Any = None, weights: Any = None, *, limit: int | None = None) -> None:
        X = by_name(ORIGINS.get(getattr(X, "name", ""), X))
        self.is_dask = type(X).__module__.startswith("dask")
        self.dtype = np.dtype(X.dtype if X.dtype in (np.float32, np.float64) else np.float64)
        self.array, self.shape = X, tuple(int(d) for d in X.shape)
        self.chunks = natural_chunks(X)
        self.mask, self.weights = by_name(mask), by_name(weights)
        self.limit = limit
        self.n_passes = 0
        self._checksum: np.uint64 | None = None
        self._slabs: dict[int, list[tuple[Any, Any, slice]]] = {}

    @property
    def nbytes(self) -> int:
        """Return the size of the whole array in memory."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def thickness(self, mode: int) -> int:
        """Return the number of rows of a slab: whole chunks if they fit, otherwise equal parts of a chunk."""
        block = BLOCK if self.limit is None else min(BLOCK, self.limit // (2 * N_COPIES * n_threads()))
        row, chunk = max(1, self.nbytes // self.shape[mode]), max(1, self.chunks[mode])
        rows = min(max(1, block // row), self.shape[mode])
        return -(-chunk // -(-chunk // rows)) if rows < chunk else rows // chunk * chunk

    def held(self, mode: int) -> int:
        """Return the bytes held in memory by a pass along `mode`; chunks longer than a slab wait for the next ones."""
        rows = self.thickness(mode)
        rows = max(rows, self.chunks[mode]) if self.is_dask else rows
        return N_COPIES * n_threads() * rows * (self.nbytes // self.shape[mode])

    def direction(self, avoid: int | None = None) -> int:
        """Return the longest mode but one along which slabs are whole chunks, or runs of a file, and fit in memory."""
        modes = [n for n in range(len(self.shape)) if n != avoid]
        return min(modes, key=lambda n: (not self.fits(n), not self.is_aligned(n), -self.shape[n]))

    def is_aligned(self, mode: int) -> bool:
        """Return True if slabs along `mode` are whole chunks, and no short runs all over a file."""
        strides, rows = getattr(self.array, "strides", None), self.thickness(mode)
        is_short = strides is not None and abs(strides[mode]) * rows < SHORT_RUN
        return rows % self.chunks[mode] == 0 and not is_short or rows >= self.shape[mode]

    def fits(self, mode: int) -> bool:
        """Return True if slabs along `mode` can be read within the limit."""
        return self.limit is None or self.held(mode) <= self.limit

    def ask(self, question: Ask, how: Sequence[int | None], mode: int) -> tuple[Any, ...]:
        """Return the answers to question(slab, its weights, its rows) of all slabs along `mode`, after one pass.

        `how` says for each part of an answer the axis along which slabs are joined, or None if they are added.
        """
        if self.limit is not None:
            advice = f"Rechunk X to be short along mode {mode} and whole along the others, store it as zarr, or raise "
            check_memory({f"slabs along mode {mode}": self.held(mode)}, self.limit, f"{advice}max_memory.")
        dask = load_extra("dask", "dask")
        sides = [d for n, d in enumerate(self.shape) if n != mode]
        shared = dask.delayed((question, mode, sides), name=f"question-{uuid4().hex}", traverse=False)
        answers = [dask.delayed(answer, pure=False)(shared, *slab) for slab in self.slabs(mode)]
        while len(answers) > 1:
            parts = [answers[start : start + SPLIT] for start in range(0, len(answers), SPLIT)]
            answers = [dask.delayed(merge, pure=False)(part, (*how, None)) for part in parts]
        self.n_passes += 1
        with one_thread():
            *found, checksum = dask.compute(answers[0])[0]
        if self._checksum is not None and checksum != self._checksum:
            raise RuntimeError(
                "X has changed since it was first read in this fit: another program may be writing to it, or it is "
                "computed from random numbers. Store it, and start again."
            )
        self._checksum = checksum
        return tuple(found)

    def without_weights(self) -> "Source":
        """Return itself without weights, which are all equal."""
        self.weights, self._slabs = None, {}
        return self

    def slabs(self, mode: int) -> list[tuple[Any, Any, slice]]:
        """Return the slabs of X and of the weights along `mode` as delayed arrays, with their rows."""
        if mode not in self._slabs:
            da, rows = load_extra("dask.array", "dask"), self.thickness(mode)
            chunks = tuple(rows if n == mode else -1 for n in range(len(self.shape)))
            X = cut(da, self.array, self.shape, self.dtype, chunks)
            if self.mask is not None:
                X = da.where(cut(da, self.mask, self.shape, np.dtype(bool), chunks), X, self.dtype.type(np.nan))
            blocks, n_slabs = X.to_delayed().ravel(), X.numblocks[mode]
            weights: Any = [None] * n_slabs
            if self.weights is not None:
                weights = cut(da, self.weights, self.shape, np.dtype(float), chunks).to_delayed().ravel()
            places = [slice(i * rows, min((i + 1) * rows, self.shape[mode])) for i in range(n_slabs)]
            self._slabs[mode] = list(zip(blocks, weights, places, strict=True))
        return self._slabs[mode]

    def lazy(self) -> Any:
        """Return the array as a dask array, for results of the same size."""
        if self.is_dask:
            return self.array
        mode = self.direction()
        chunks = tuple(self.thickness(mode) if n == mode else -1 for n in range(len(self.shape)))
        chunks = chunks if max(self.chunks) == 1 else self.chunks
        X = load_extra("dask.array", "dask").from_array(Reader(self.array), chunks=chunks, asarray=False)
        ORIGINS[X.name] = self.array  # a Source of this dask array then reads the file itself
        return X


def cut(da: Any, X: Any, shape: tuple[int, ...], dtype: np.dtype, chunks: Any) -> Any:
    """Return an array that broadcasts to a shape as a dask array of slabs, of plain numbers of a dtype."""
    if not type(X).__module__.startswith("dask"):
        is_whole = not isinstance(X, np.ndarray) and not np.isscalar(X) and tuple(X.shape) == shape
        X = da.from_array(Reader(X), chunks=chunks, asarray=False, name=False) if is_whole else da.asarray(X)
    X = X.map_blocks(plain, dtype, dtype=dtype, meta=np.empty((0,) * X.ndim, dtype=dtype))
    return da.broadcast_to(X, shape).rechunk(chunks)


def plain(block: Any, dtype: np.dtype) -> np.ndarray:
    """Return a block as an array of a dtype, NaN where it is masked."""
    return np.asarray(np.ma.filled(block.astype(dtype), np.nan) if np.ma.isMaskedArray(block) else block, dtype=dtype)


def answer(shared: Any, x: np.ndarray, w: np.ndarray | None, rows: slice) -> tuple[Any, ...]:
    """Return the answers of one slab and its checksum, which does not depend on the cut."""
    question, mode, sides = shared
    expected = (*sides[:mode], rows.stop - rows.start, *sides[mode:])
    if x.shape != expected:
        raise ValueError(
            f"A part of X has shape {x.shape} when it is computed, but its chunks say {expected}: declare the chunks "
            f"that it really has (chunks= of map_blocks, shape= of from_delayed), or call X.compute_chunk_sizes()."
        )
    checksum = np.add.reduce(x.view(f"u{x.itemsize}"), axis=None, dtype=np.uint64)
    with shared_thread():  # other slabs are processed at the same time
        return *question(x, w, rows), checksum


def merge(answers: Sequence[tuple[Any, ...]], how: Sequence[int | None]) -> tuple[Any, ...]:
    """Return the answers of several slabs as one, each part added or joined along an axis."""
    parts = zip(*answers, strict=True)
    return tuple(reduce(np.add, p) if axis is None else np.concatenate(p, axis) for axis, p in zip(how, parts, strict=True))


def n_threads() -> int:
    """Return the number of slabs that this machine processes at a time."""
    dask = load_extra("dask", "dask")
    return int(dask.config.get("num_workers", None) or load_extra("dask.system", "dask").CPU_COUNT)


def natural_chunks(X: Any) -> tuple[int, ...]:
    """Return the size of the largest chunk along each mode, 1 if there are no chunks."""
    chunks = getattr(X, "chunks", None) or (1,) * len(X.shape)
    return tuple(int(max(sizes)) if isinstance(sizes, tuple) else int(sizes) for sizes in chunks)


def load(X: Any) -> np.ndarray:
    """Return a lazy array in memory; a masked array stays masked."""
    if not is_lazy(X):
        return np.asanyarray(X)
    return np.asanyarray(X.compute() if hasattr(X, "compute") else X[...])
