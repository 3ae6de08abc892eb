"""A pass over a lazy array: a question is put to each slab, and the answers are summed or joined in a tree."""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any
from uuid import uuid4

import numpy as np

from boolcp.extras import load_extra
from boolcp.result.atoms import BooleanCP
from boolcp.storage.dense import DenseTensor
from boolcp.storage.observed import MaskedTensor
from boolcp.storage.sources import Stretch
from boolcp.threads import one_thread

SPLIT = 4  # answers that are added at a time


@dataclass(frozen=True)
class View:
    """What is made of a slab before it is asked: a storage in memory, and one derived from it.

    `kind` is "complete", or for arrays with NaN "observed" (missing entries), "zeros" (zero there), "mask" (ones at
    the observed entries), "residual" (X - W there) or "restricted" (W there). `scale` multiplies, and `bases` are
    the (mode, U) that the slab is then contracted with.
    """

    kind: str = "complete"
    scale: float = 1.0
    W: Any = None
    bases: tuple = ()

    def open(self, block, mode, rows):
        """Return the storage of a slab with the given rows along `mode`."""
        data = self._open(block, mode, rows)
        if self.scale != 1.0:
            data = DenseTensor(data.to_array() * data.dtype.type(self.scale))
        for n, U in self.bases:
            data = data.reduced(n, U)
        return data

    def _open(self, block, mode, rows):
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
        return data.residual(W) if self.kind == "residual" else data.restrict(W)


def part_of(W, slices):
    """Return the BooleanCP of the entries of W in a box of slices, one for each mode."""
    atoms = []
    for atom in W.atoms:
        others = [s for n, s in enumerate(slices) if n != atom.mode]
        if atom.block is None:
            real = {"factors": tuple(A[s] for A, s in zip(atom.factors, others, strict=True))}
        else:
            real = {"block": atom.block[tuple(others)]}
        atoms.append(replace(atom, z=atom.z[slices[atom.mode]], **real))
    shape = [len(range(*s.indices(d))) for s, d in zip(slices, W.shape, strict=True)]
    empty = {n: gaps[slices[n]] for n, gaps in (W.undetermined or {}).items()}
    return BooleanCP(tuple(shape), tuple(atoms), W.weights, undetermined=empty or None)


def run_pass(source, mode, view, question, constants=(), along=()):
    """Return the sums and the joined rows of ``question(storage of a slab, rows of `along`, *constants)``.

    Parameters
    ----------
    source : Source
        The lazy array.
    mode : int
        The mode along which it is cut.
    view : View
        What a slab is taken for.
    question : function
        Gives (sums, rows), two tuples of small arrays: the sums of all slabs are added, the rows joined in order.
    constants : tuple
        What each slab is told.
    along : tuple of ndarray
        Arrays with one row for each of `mode`; each slab is told its own rows.
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
        sums, rows = dask.compute(total.to_delayed().item())[0]
    return sums, [np.concatenate(pieces) for pieces in rows]


def _ask(block, mode, shared, block_id):
    """Return the answer of a slab, or a Stretch of them. It is read in the same task, so that it is sent nowhere."""
    *_, bounds, form = shared
    start, stop = bounds[block_id[mode]], bounds[block_id[mode] + 1]
    slabs = block.slabs() if isinstance(block, Stretch) else [as_said(block, mode, stop - start, *form)]
    return reduce(_add, _answers(slabs, mode, start, shared))


def _answers(slabs, mode, start, shared):
    """Yield the answer (sums, rows) of each slab, the first of which begins at row `start`."""
    view, question, constants, along, *_ = shared
    for slab in slabs:
        rows = slice(start, start + slab.shape[mode])
        sums, joined = question(view.open(slab, mode, rows), [A[rows] for A in along], *constants)
        yield tuple(sums), tuple([piece] for piece in joined)
        start = rows.stop


def as_said(block, mode, n_rows, shape, dtype):
    """Return a slab as an array of the dtype that is said; another shape than is said is an error.

    A function of the user's, given to dask's map_blocks or delayed, may give other blocks than were promised for it.
    """
    said = tuple(n_rows if n == mode else d for n, d in enumerate(shape))
    if block.shape != said:
        raise ValueError(
            f"A part of X has shape {block.shape} when it is computed, but its chunks say {said}: tell dask the chunks "
            f"that it really has (chunks= of map_blocks, shape= of from_delayed), or call X.compute_chunk_sizes()."
        )
    if np.ma.isMaskedArray(block):
        block = np.ma.filled(block.astype(dtype), np.nan)
    return np.asarray(block, dtype=dtype)


def _answer(answer, axis, keepdims):
    return answer


def _sum(answers, axis, keepdims):
    """Return the answers of several slabs, a nested list, as one."""
    return reduce(_add, load_extra("dask.core", "dask").flatten(answers))


def _add(first, second):
    """Return two answers as one: numbers and arrays added, rows joined."""
    sums = tuple(a + b for a, b in zip(first[0], second[0], strict=True))
    return sums, tuple(a + b for a, b in zip(first[1], second[1], strict=True))
