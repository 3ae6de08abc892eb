"""Arrays that are not in memory (dask, zarr, HDF5, memory maps), read in slabs along one mode; dask runs each pass."""

import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from math import prod
from operator import mul
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np

from boolcp.checks import find_map, is_lazy
from boolcp.system import check_memory, load_extra, one_thread, shared_thread

BLOCK = 64_000_000  # bytes of a slab at most, unless a chunk has more; by bench_scale.py
N_COPIES = 4  # arrays as large as a slab that each thread of a pass holds; not tuned
SPLIT = 4  # answers that are added at a time; not tuned
PATIENCE = 30  # seconds between two looks at a cluster that does not answer: without workers at both, it is lost
SHORT_RUN = 1024  # bytes of a file that follow each other in a slab, or each slab reads nearly all of the file
ORIGINS: WeakValueDictionary[str, Any] = WeakValueDictionary()  # files of the dask arrays that `Source.lazy` made

Ask = Callable[[np.ndarray, np.ndarray | None, slice], tuple[Any, ...]]  # slab of X, its weights, its rows -> answers


@dataclass(frozen=True, eq=False)
class File:
    """An array on disk that is read box by box, in any process and folder; errors say what could not be read."""

    read: Callable[[Any], Any]
    dtype: np.dtype
    shape: tuple[int, ...]
    chunks: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    @property
    def ndim(self) -> int:
        """Return the order N."""
        return len(self.shape)

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.read(index)
        except (MemoryError, IndexError):
            raise
        except Exception as error:
            parts = index if isinstance(index, tuple) else (index,)
            box = ", ".join(f"{i.start}:{i.stop}" if isinstance(i, slice) else str(i) for i in parts)
            raise OSError(f"X[{box}] cannot be read: {error}") from error


def read_map(name: str, dtype: np.dtype, shape: Sequence[int], strides: Any, offset: int, index: Any) -> np.ndarray:
    """Return a box of a file of plain numbers, read run by run (pages of a map stay in memory); mapped if strided."""
    order = sorted(range(len(shape)), key=lambda n: -abs(strides[n]))
    sizes, steps = [shape[n] for n in order], [strides[n] for n in order]
    is_packed = steps == [dtype.itemsize * prod(sizes[n + 1 :]) for n in range(len(sizes))]
    is_box = isinstance(index, tuple) and all(isinstance(i, slice) and i.step in (None, 1) for i in index)
    if not (is_packed and is_box):
        raw = np.memmap(name, dtype=np.uint8, mode="r")
        return np.array(np.ndarray(shape, dtype, buffer=raw, offset=offset, strides=strides)[index])
    box = [range(*index[n].indices(shape[n])) for n in order]
    cut = max((n for n, r in enumerate(box) if len(r) < sizes[n]), default=0)  # from here on entries are adjacent
    block = np.empty([len(r) for r in box], dtype)
    with open(name, "rb", buffering=0) as file:
        for run, place in zip(block.reshape(prod(map(len, box[:cut])), -1), product(*box[:cut]), strict=True):
            file.seek(offset + box[cut].start * steps[cut] + sum(map(mul, place, steps)))
            if file.readinto(run.view(np.uint8).data) != run.nbytes:
                raise OSError(f"{name} ended before all entries were read: it is truncated, so copy it again.")
    return block.transpose(np.argsort(order))


def read_hdf5(filename: str, name: str, index: Any) -> Any:
    """Return a box of a dataset of an HDF5 file."""
    with load_extra("h5py", "files").File(filename, "r") as file:
        return file[name][index]


def as_file(X: Any) -> Any:
    """Return an array of a file as a File, anything else unchanged."""
    kind, name = type(X).__module__.partition(".")[0], ""
    if (base := find_map(X)) is not None:
        start = np.frombuffer(base._mmap, dtype=np.uint8).__array_interface__["data"][0]  # type: ignore[attr-defined]
        offset = base.offset - base.offset % mmap.ALLOCATIONGRANULARITY + X.__array_interface__["data"][0] - start
        read = partial(read_map, os.path.abspath(str(base.filename)), X.dtype, X.shape, X.strides, offset)
        return File(read, X.dtype, X.shape, strides=X.strides)
    if kind == "h5py":
        try:  # a file in memory, or a dataset without a name or behind several links, is not read by name
            with load_extra("h5py", "files").File(X.file.filename, "r") as file:
                name = X.name if file[X.name].id == X.id else ""
        except (OSError, KeyError, TypeError):
            pass
        read = partial(read_hdf5, os.path.abspath(X.file.filename), name) if name else X.__getitem__
        return File(read, X.dtype, X.shape, X.chunks)
    if kind == "zarr":
        root = getattr(X.store, "root", None)
        if isinstance(root, Path) and not root.is_absolute():  # elsewhere zarr would read missing chunks as zeros
            X = load_extra("zarr", "files").open_array(root.absolute(), path=X.path, mode="r")
        return File(X.__getitem__, np.dtype(X.dtype), X.shape, X.chunks)
    return X


class Source:
    """A lazy array as slabs of floating-point numbers, NaN where they are masked, with their weights.

    X is an array of dask, zarr or h5py, or a view of a memory map. `mask` (True where X is observed) and `weights`,
    lazy or not, broadcast against X. `limit` is the memory in bytes that a pass may use.
    """

    def __init__(self, X: Any, mask: Any = None, weights: Any = None, *, limit: int | None = None) -> None:
        self.array = ORIGINS.get(getattr(X, "name", ""), as_file(X))
        self.mask, self.weights, self.limit, self.n_passes = as_file(mask), as_file(weights), limit, 0
        self.is_dask = not isinstance(self.array, File)
        self.shape = tuple(int(d) for d in X.shape)
        self.dtype = np.dtype(X.dtype if X.dtype in (np.float32, np.float64) else np.float64)
        chunks = self.array.chunks or (1,) * len(self.shape)
        self.chunks = tuple(int(max(sizes)) if isinstance(sizes, tuple) else int(sizes) for sizes in chunks)
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        self._checksum: np.uint64 | None = None
        self._slabs: dict[int, list[tuple[Any, Any, slice]]] = {}

    def thickness(self, mode: int) -> int:
        """Return the number of rows of a slab: whole chunks if they fit, otherwise equal parts of a chunk."""
        block = BLOCK if self.limit is None else min(BLOCK, self.limit // (2 * N_COPIES * n_threads()))
        row, chunk = max(1, self.nbytes // self.shape[mode]), self.chunks[mode]
        rows = min(max(1, block // row), self.shape[mode])
        return -(-chunk // -(-chunk // rows)) if rows < chunk else rows // chunk * chunk

    def held(self, mode: int) -> int:
        """Return the bytes held in memory by a pass along `mode`; chunks longer than a slab wait for the next ones."""
        rows = max(self.thickness(mode), self.chunks[mode] if self.is_dask else 1)
        return N_COPIES * n_threads() * rows * (self.nbytes // self.shape[mode])

    def n_reads(self, mode: int) -> int:
        """Return how often a pass along `mode` reads each part of a file."""
        rows, strides = self.thickness(mode), getattr(self.array, "strides", None)
        if strides is not None and abs(strides[mode]) * rows < SHORT_RUN:
            return -(-self.shape[mode] // rows)
        return 1 if self.is_dask else -(-min(self.chunks[mode], self.shape[mode]) // rows)

    def fits(self, mode: int) -> bool:
        """Return True if slabs along `mode` can be read within the limit."""
        return self.limit is None or self.held(mode) <= self.limit

    def direction(self, avoid: int | None = None) -> int:
        """Return the longest mode along which slabs fit in memory, and each part of a file is read once if possible."""
        modes = [n for n in range(len(self.shape)) if n != avoid]
        return min(modes, key=lambda n: (not self.fits(n), self.n_reads(n), -self.shape[n]))

    def ask(self, question: Ask, how: Sequence[int | None], mode: int) -> tuple[Any, ...]:
        """Return the answers to question(slab, its weights, its rows) of all slabs along `mode`, after one pass.

        `how` says for each part of an answer the axis along which slabs are joined, or None if they are added.
        """
        advice = f"Rechunk X to be short along mode {mode} and whole along the others, or raise max_memory."
        check_memory({f"slabs along mode {mode}": self.held(mode)}, self.limit or np.inf, advice)
        dask = load_extra("dask", "dask")
        shared = dask.delayed((question, mode, self.shape), name=f"question-{uuid4().hex}", traverse=False)
        answers = [dask.delayed(answer, pure=False)(shared, *slab) for slab in self.slabs(mode)]
        while len(answers) > 1:
            parts = [answers[start : start + SPLIT] for start in range(0, len(answers), SPLIT)]
            answers = [dask.delayed(merge, pure=False)(part, (*how, None)) for part in parts]
        self.n_passes += 1
        with one_thread():
            *found, checksum = computed(answers[0])
        self._checksum = checksum if self._checksum is None else self._checksum
        if checksum != self._checksum:
            text = "X has changed since it was first read in this fit: another program may be writing to it, or it is"
            raise RuntimeError(f"{text} computed from random numbers. Store it, and start again.")
        return tuple(found)

    def slabs(self, mode: int) -> list[tuple[Any, Any, slice]]:
        """Return the slabs of X and of the weights along `mode` as delayed arrays, with their rows."""
        if mode not in self._slabs:
            da, rows = load_extra("dask.array", "dask"), self.thickness(mode)
            chunks = tuple(rows if n == mode else -1 for n in range(len(self.shape)))
            X = in_slabs(self.array, self.shape, self.dtype, chunks)
            if self.mask is not None:
                X = da.where(in_slabs(self.mask, self.shape, np.dtype(bool), chunks), X, self.dtype.type(np.nan))
            places = [slice(start, min(start + rows, self.shape[mode])) for start in range(0, self.shape[mode], rows)]
            weights = [None] * len(places)
            if self.weights is not None:
                weights = in_slabs(self.weights, self.shape, np.dtype(float), chunks).to_delayed().ravel()
            self._slabs[mode] = list(zip(X.to_delayed().ravel(), weights, places, strict=True))
        return self._slabs[mode]

    def lazy(self) -> Any:
        """Return the array as a dask array, for results of the same size."""
        if self.is_dask:
            return self.array
        mode = self.direction()
        slab = tuple(self.thickness(mode) if n == mode else -1 for n in range(len(self.shape)))
        chunks = self.array.chunks or slab
        X = load_extra("dask.array", "dask").from_array(self.array, chunks=chunks, asarray=False, name=False)
        ORIGINS[X.name] = self.array  # a Source of this dask array then reads the file itself
        return X


def computed(part: Any) -> Any:
    """Return a delayed value, computed by dask; a RuntimeError if its cluster has failed, or has lost all workers."""
    base, n_lost = load_extra("dask.base", "dask"), 0
    client: Any = getattr(base.get_scheduler(), "__self__", None)
    if not hasattr(client, "nthreads"):  # a scheduler of its own, or none
        return base.compute(part)[0]
    try:
        future, why = client.compute(part), f"it has had no worker for {PATIENCE} s"
        while n_lost < 2 and future.status == "pending":
            try:
                load_extra("distributed", "dask").wait(future, timeout=PATIENCE)
            except TimeoutError:
                n_lost = 0 if client.nthreads() else n_lost + 1
        if n_lost < 2:
            return future.result()
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("distributed", "concurrent"):
            raise  # of X
        why = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
    advice = "Start one whose workers last, and fit again: with checkpoint= a fit resumes where it stopped."
    raise RuntimeError(f"The cluster of dask failed while it read X ({why}). {advice}")


def in_slabs(X: Any, shape: tuple[int, ...], dtype: np.dtype, chunks: tuple[int, ...]) -> Any:
    """Return an array that broadcasts to a shape as a dask array of slabs, of plain numbers of a dtype."""
    da = load_extra("dask.array", "dask")
    if isinstance(X, File):
        X = da.from_array(X, chunks=chunks if X.shape == shape else -1, asarray=False, name=False)
    X = da.asarray(X)
    X = X.map_blocks(plain, dtype, dtype=dtype, meta=np.empty((0,) * X.ndim, dtype=dtype))
    missing = len(shape) - X.ndim
    X = X.rechunk([size if X.shape[n] > 1 else -1 for n, size in enumerate(chunks[missing:])])
    return da.broadcast_to(X, shape, chunks=da.core.normalize_chunks(chunks, shape))


def plain(block: Any, dtype: np.dtype) -> np.ndarray:
    """Return a block as an array of a dtype, NaN where it is masked."""
    return np.asarray(np.ma.filled(block.astype(dtype), np.nan) if np.ma.isMaskedArray(block) else block, dtype=dtype)


def answer(shared: Any, x: np.ndarray, w: np.ndarray | None, rows: slice) -> tuple[Any, ...]:
    """Return the answers of one slab, and a checksum whose sum over all slabs does not depend on the cut."""
    question, mode, shape = shared
    expected = (*shape[:mode], rows.stop - rows.start, *shape[mode + 1 :])
    if x.shape != expected:
        text = f"A part of X has shape {x.shape} when it is computed, but its chunks say {expected}: declare the chunks"
        advice = "that it really has (chunks= of map_blocks, shape= of from_delayed), or call X.compute_chunk_sizes()."
        raise ValueError(f"{text} {advice}")
    checksum = np.add.reduce(x.view(f"u{x.itemsize}"), axis=None, dtype=np.uint64)
    with shared_thread():  # other slabs are processed at the same time
        return *question(x, w, rows), checksum


def merge(answers: Sequence[tuple[Any, ...]], how: Sequence[int | None]) -> tuple[Any, ...]:
    """Return the answers of several slabs as one, each part added or joined along an axis."""
    columns = zip(how, zip(*answers, strict=True), strict=True)
    return tuple(reduce(np.add, parts) if axis is None else np.concatenate(parts, axis) for axis, parts in columns)


def n_threads() -> int:
    """Return the number of slabs that this machine processes at a time."""
    dask, system = load_extra("dask", "dask"), load_extra("dask.system", "dask")
    return int(dask.config.get("num_workers", None) or system.CPU_COUNT)


def load(X: Any) -> Any:
    """Return a lazy array in memory, anything else unchanged; a masked array stays masked."""
    return np.asanyarray(X.compute() if hasattr(X, "compute") else as_file(X)[...]) if is_lazy(X) else X
