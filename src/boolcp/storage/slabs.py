"""A pass over a lazy array: each slab is asked a question, and the answers are summed or joined in a tree."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any
from uuid import uuid4

import numpy as np

from boolcp.extras import load_extra
from boolcp.result.atoms import BooleanCP
from boolcp.storage.dense import DenseTensor
from boolcp.storage.observed import MaskedTensor
from boolcp.storage.protocol import Storage
from boolcp.storage.sources import Source, Stretch
from boolcp.threads import one_thread

SPLIT = 4  # answers that are added at a time; not tuned
Answer = tuple[Any, Any]  # arrays that are summed over the slabs, and rows that are joined
Question = Callable[..., Answer]  # question(storage of a slab, its rows of `along`, *constants)


@dataclass(frozen=True)
class View:
    """What a slab is turned into before it is asked: a storage in memory, and one derived from it.

    `kind` is "complete" (as it is read) or, for arrays with NaN, "observed" (NaN is missing), "zeros" (NaN is zero),
    "mask" (ones at the observed entries), "residual" (X - W there), "restricted" (W there) or "imputed" (W everywhere
    and scale (X - W) at the observed entries). The entries are multiplied by `scale`, and contracted with each
    (mode, U) of `bases`.
    """

    kind: str = "complete"
    scale: float = 1.0
    W: BooleanCP | None = None
    bases: tuple[tuple[int, np.ndarray], ...] = ()

    def open(self, block: np.ndarray, mode: int, rows: slice) -> Storage:
        """Return the storage of a slab with the given rows along `mode`."""
        data: Storage = self._open(block, mode, rows)
        if self.scale != 1.0 and self.kind != "imputed":
            data = DenseTensor(data.to_array() * data.dtype.type(self.scale))
        for n, U in self.bases:
            data = data.reduced(n, U)
        return data

    def _open(self, block: np.ndarray, mode: int, rows: slice) -> DenseTensor | MaskedTensor:
        if self.kind == "complete":
            return DenseTensor(block)
        data = MaskedTensor(block, ~np.isnan(block))
        if self.kind == "zeros":
            return DenseTensor(data.to_array())
        if self.kind == "mask":
            return data.observed()
        if self.W is None:
            return data
        W = part_of(self.W, tuple(rows if n == mode else slice(None) for n in range(block.ndim)))
        if self.kind == "imputed":
            filled = data.residual(W).to_array() * data.dtype.type(self.scale)
            filled += W.to_tensor().astype(data.dtype, copy=False)
            return DenseTensor(filled)
        return data.residual(W) if self.kind == "residual" else data.restrict(W)


def part_of(W: BooleanCP, slices: tuple[slice, ...]) -> BooleanCP:
    """Return the BooleanCP of the entries of W in a box of slices, one for each mode."""
    atoms = []
    for atom in W.atoms:
        others = [s for n, s in enumerate(slices) if n != atom.mode]
        z = atom.z[slices[atom.mode]]
        if atom.factors is None:
            atoms.append(replace(atom, z=z, block=atom.dense_block()[tuple(others)]))
        else:
            atoms.append(replace(atom, z=z, factors=tuple(A[s] for A, s in zip(atom.factors, others, strict=True))))
    shape = [len(range(*s.indices(d))) for s, d in zip(slices, W.shape, strict=True)]
    empty = {n: gaps[slices[n]] for n, gaps in (W.undetermined or {}).items()}
    return BooleanCP(tuple(shape), tuple(atoms), W.weights, undetermined=empty or None)


def run_pass(
    source: Source,
    mode: int,
    view: View,
    question: Question,
    constants: Sequence[Any] = (),
    along: Sequence[np.ndarray] = (),
) -> Answer:
    """Return the sums and the joined rows of ``question(storage of a slab, rows of `along`, *constants)``.

    Parameters
    ----------
    source : Source
        The lazy array.
    mode : int
        The mode along which it is cut.
    view : View
        What a slab is turned into.
    question : function
        Returns (sums, rows), two lists of small arrays: the sums of all slabs are added, the rows joined in order.
    constants : sequence
        Arguments of the question that are the same for all slabs.
    along : sequence of ndarray
        Arrays with one row for each entry of `mode`; each slab gets its own rows.
    """
    dask, da = load_extra("dask", "dask"), load_extra("dask.array", "dask")
    X, stops = source.stretches(mode)
    form = source.shape, source.dtype
    shared = (view, question, tuple(constants), tuple(map(np.ascontiguousarray, along)), [0, *stops], form)
    shared = dask.delayed(shared, name=f"constants-{uuid4().hex}", traverse=False)
    nothing = np.empty((0,) * X.ndim, dtype=object)
    answers = X.map_blocks(_ask, mode, shared, dtype=object, chunks=(1,) * X.ndim, meta=nothing)
    options = {"axis": mode, "split_every": SPLIT, "dtype": object, "meta": nothing, "concatenate": False}
    total = da.reduction(answers, _answer, _sum, combine=_sum, **options)
    with one_thread():
        try:
            sums, rows = dask.compute(total.to_delayed().item())[0]
        except Exception as error:
            source.name_unreadable(error)
            raise
    *joined, checks = [np.concatenate(pieces) for pieces in rows]
    source.compare(mode, checks)
    return sums, joined


def _ask(block: Any, mode: int, shared: Any, block_id: tuple[int, ...]) -> Answer:
    """Return the answer of a slab, or of a Stretch of them, which this task reads itself, so that nothing is sent."""
    *_, bounds, form = shared
    start, stop = bounds[block_id[mode]], bounds[block_id[mode] + 1]
    slabs = block.slabs() if isinstance(block, Stretch) else [as_said(block, mode, stop - start, *form)]
    return reduce(_add, _answers(slabs, mode, start, shared))


def _answers(slabs: Iterable[np.ndarray], mode: int, start: int, shared: Any) -> Iterator[Answer]:
    """Yield the answer (sums, rows) of each slab; the first one begins at row `start`."""
    view, question, constants, along, *_ = shared
    for slab in slabs:
        rows = slice(start, start + slab.shape[mode])
        sums, joined = question(view.open(slab, mode, rows), [A[rows] for A in along], *constants)
        check = np.array([[rows.start, rows.stop, checksum(slab)]], dtype=np.uint64)
        yield tuple(sums), tuple([piece] for piece in (*joined, check))
        start = rows.stop


def checksum(block: np.ndarray) -> np.uint64:
    """Return the sum of the entries read as integers, which tells other numbers from these, NaN included."""
    return np.add.reduce(block.view(f"u{block.itemsize}"), axis=None, dtype=np.uint64)


def as_said(block: Any, mode: int, n_rows: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return a slab as an array of the declared dtype, or raise an error if it does not have the declared shape.

    A function that the user passed to dask's map_blocks or delayed may return blocks of undeclared shape.
    """
    said = tuple(n_rows if n == mode else d for n, d in enumerate(shape))
    if block.shape != said:
        raise ValueError(
            f"A part of X has shape {block.shape} when it is computed, but its chunks say {said}: declare the chunks "
            f"that it really has (chunks= of map_blocks, shape= of from_delayed), or call X.compute_chunk_sizes()."
        )
    if np.ma.isMaskedArray(block):
        block = np.ma.filled(block.astype(dtype), np.nan)
    return np.asarray(block, dtype=dtype)


def _answer(answer: Answer, axis: Any, keepdims: bool) -> Answer:
    return answer


def _sum(answers: Any, axis: Any, keepdims: bool) -> Answer:
    """Return the answers of several slabs, a nested list, as one."""
    return reduce(_add, load_extra("dask.core", "dask").flatten(answers))


def _add(first: Answer, second: Answer) -> Answer:
    """Return two answers as one: numbers and arrays added, rows joined."""
    sums = tuple(a + b for a, b in zip(first[0], second[0], strict=True))
    return sums, tuple(a + b for a, b in zip(first[1], second[1], strict=True))
