"""A pass over a lazy array: each slab is asked a question, and the answers are summed or joined in a tree.

A question takes the storage of a slab, its rows of arrays along the cut, and constants. It returns two lists: arrays to
be summed over the slabs, and rows to be joined.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast
from uuid import uuid4

import numpy as np

from boolcp.checks import RANGES
from boolcp.extras import load_extra
from boolcp.result.atoms import BooleanCP
from boolcp.storage._row_kernels import clear_missing, move_near
from boolcp.storage.dense import DenseTensor, from_blocks
from boolcp.storage.observed import MaskedTensor, WeightedTensor
from boolcp.storage.protocol import Decide, Factors, Storage
from boolcp.storage.sources import Source, Stretch
from boolcp.threads import one_thread, shared_thread

SPLIT = 4  # answers that are added at a time; not tuned
Answer = tuple[Any, Any]  # arrays that are summed over the slabs, and rows that are joined
Question = Callable[..., Answer]  # question(storage of a slab, its rows of `along`, *constants)
Rows = Sequence[np.ndarray]  # the rows of a slab in each array along the cut
Parts = tuple[list[Any], list[Any]]  # (to be summed, to be joined)


@dataclass(frozen=True)
class View:
    """What a slab is turned into before it is asked: a storage in memory, and one derived from it.

    `kind` is "complete" (as it is read) or, for arrays with NaN, "observed" (NaN is missing), "zeros" (NaN is zero),
    "mask" (ones at the observed entries), "residual" (X - W there), "restricted" (W there), "imputed" (W everywhere
    and scale (X - W) at the observed entries) or "near" (the same with X - W cut off at the scale). The entries are
    multiplied by `scale`, and contracted with each (mode, U) of `bases`. With weights it is always one of the
    latter, and entries that count less than the `median` one are shrunk in "zeros" and "imputed".
    """

    kind: str = "complete"
    scale: float = 1.0
    W: BooleanCP | None = None
    bases: tuple[tuple[int, np.ndarray], ...] = ()
    median: float = 1.0

    def open(
        self, block: np.ndarray, mode: int, rows: slice, weights: np.ndarray | None = None, *, is_own: bool = False
    ) -> Storage:
        """Return the storage of a slab with the given rows along `mode`; one that `is_own` is changed in place."""
        if self.kind == "complete":
            data: Storage = DenseTensor(block if self.scale == 1.0 else block * block.dtype.type(self.scale))
        elif weights is None:
            data = self._open(block if is_own else block.copy(order="K"), mode, rows)
        else:
            data = self._open_weighted(weighted(block, weights), mode, rows)
        for n, U in self.bases:
            data = data.reduced(n, U)
        return data

    def _open(self, block: np.ndarray, mode: int, rows: slice) -> Storage:
        """Return the storage of a slab with NaN, which is changed in place: fresh memory costs more than the work."""
        flat = block.ravel(order="K")
        assert np.may_share_memory(flat, block)
        if self.kind in ("imputed", "near"):
            values = laid_out_as(block, self._own(mode, rows).to_tensor())
            move_near(flat, values.ravel(order="K"), *self._move)
            return DenseTensor(block)
        observed = np.empty_like(block, dtype=bool)
        clear_missing(flat, block.dtype.type(self.scale), observed.ravel(order="K"))
        if self.kind == "zeros":
            return DenseTensor(block)
        return self._derived(MaskedTensor(block, observed, is_zeroed=True), mode, rows)

    def _open_weighted(self, data: WeightedTensor, mode: int, rows: slice) -> Storage:
        """Return the storage of a slab with weights."""
        if self.kind == "zeros":
            return DenseTensor(data.shrunk(self.median) * data.dtype.type(self.scale))
        if self.kind not in ("imputed", "near"):
            return self._derived(data, mode, rows)
        (scale, size), W = self._move, self._own(mode, rows)
        left = cast(WeightedTensor, data.residual(W)).shrunk(self.median) * data.dtype.type(scale)
        return DenseTensor(np.clip(left, -size, size) + W.to_tensor().astype(data.dtype, copy=False))

    def _derived(self, data: MaskedTensor, mode: int, rows: slice) -> MaskedTensor:
        """Return what is asked of the observed entries of a slab."""
        if self.kind == "mask":
            return data.observed()
        if self.W is None:
            return data
        W = self._own(mode, rows)
        return data.residual(W) if self.kind == "residual" else data.restrict(W)

    def _own(self, mode: int, rows: slice) -> BooleanCP:
        """Return the part of W in a slab."""
        assert self.W is not None
        return part_of(self.W, tuple(rows if n == mode else slice(None) for n in range(self.W.ndim)))

    @property
    def _move(self) -> tuple[float, float]:
        """Return by what X - W is multiplied, and where it is cut off."""
        return (self.scale, np.inf) if self.kind == "imputed" else (1.0, self.scale)


def laid_out_as(block: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return values in the dtype and the memory order of a block."""
    if values.dtype == block.dtype and values.strides == block.strides:
        return values
    like = np.empty_like(block)
    like[...] = values
    return like


def weighted(block: np.ndarray, weights: np.ndarray) -> WeightedTensor:
    """Return the storage of a slab with the weights of its entries, whose NaN are missing."""
    if not (weights.min(initial=0.0) >= 0 and weights.max(initial=0.0) < np.inf):
        raise ValueError("weights must be finite and at least 0, but some are not.")
    return WeightedTensor(block, weights * ~np.isnan(block))


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


def own_part(W: BooleanCP, rows: np.ndarray, cut: int) -> BooleanCP:
    """Return the part of W in the slab with the given rows along the mode of the cut."""
    own = slice(int(rows[0]), int(rows[-1]) + 1)
    return part_of(W, tuple(own if n == cut else slice(None) for n in range(W.ndim)))


@dataclass(frozen=True)
class Parcel:
    """A value whose arrays arrive aligned in a different process, where products then round in the same way.

    distributed places arrays at any byte, and numpy multiplies those that are not aligned without BLAS.
    """

    value: Any

    def __reduce__(self) -> tuple[Any, ...]:
        packed = load_extra("cloudpickle", "dask").dumps(self.value, protocol=4)  # arrays within, not beside
        return _unpack, (packed,)


def _unpack(packed: bytes) -> Parcel:
    return Parcel(pickle.loads(packed))


def aligned(part: Any) -> Any:
    """Return an array, or a list of them, that is aligned; other values as they are."""
    if isinstance(part, list):
        return type(part)(aligned(each) for each in part)
    return np.require(part, requirements="A") if isinstance(part, np.ndarray) else part


def run_pass(
    source: Source, mode: int, view: View, question: Question, constants: Sequence[Any], along: Sequence[np.ndarray]
) -> Answer:
    """Return the sums and the joined rows of ``question(storage of a slab, rows of `along`, *constants)``.

    The array is cut along `mode`, and `view` is what a slab is turned into. A question returns (sums, rows), two lists
    of small arrays: the sums of all slabs are added, the rows joined in order. Each slab gets its own rows of the
    arrays `along`, which have one for each entry of `mode`.
    """
    dask, da = load_extra("dask", "dask"), load_extra("dask.array", "dask")
    X, stops = source.stretches(mode)
    form = source.shape, source.dtype, source.bounds
    shared = Parcel((view, question, tuple(constants), tuple(map(np.ascontiguousarray, along)), [0, *stops], form))
    shared = dask.delayed(shared, name=f"constants-{uuid4().hex}", traverse=False)
    nothing = np.empty((0,) * X.ndim, dtype=object)
    weights = source.weights_along(mode)
    answers = X.map_blocks(_ask, mode, shared, *weights, dtype=object, chunks=(1,) * X.ndim, meta=nothing)
    options = {"axis": mode, "split_every": SPLIT, "dtype": object, "meta": nothing, "concatenate": False}
    total = da.reduction(answers, same, _sum, combine=_sum, **options)
    with one_thread():
        try:
            sums, rows = dask.compute(total.to_delayed().item())[0]
        except Exception as error:
            source.name_unreadable(error)
            raise
    *joined, checks = [np.concatenate(pieces) for pieces in rows]
    source.compare(mode, checks)
    return tuple(map(aligned, sums)), joined


def _ask(block: Any, mode: int, shared: Any, weights: Any = None, *, block_id: tuple[int, ...]) -> Answer:
    """Return the answer of a slab, or of a Stretch of them, which this task reads itself, so that nothing is sent.

    A slab may have weights of its entries.
    """
    *_, bounds, form = shared.value
    start, stop = bounds[block_id[mode]], bounds[block_id[mode] + 1]
    slabs = block.slabs() if isinstance(block, Stretch) else [as_said(block, mode, stop - start, *form[:2])]
    with shared_thread():  # other slabs are processed at the same time
        return reduce(_add, _answers(slabs, mode, start, shared.value, weights, isinstance(block, Stretch)))


def _answers(
    slabs: Iterable[np.ndarray], mode: int, start: int, shared: Any, weights: Any, is_own: bool
) -> Iterator[Answer]:
    """Yield the answer (sums, rows) of each slab, which may be changed if it `is_own`; the first begins at `start`."""
    view, question, constants, along, _, form = shared
    bounds = form[2]
    for slab in slabs:
        rows = slice(start, start + slab.shape[mode])
        check = np.array([[rows.start, rows.stop, checksum(slab)]], dtype=np.uint64)
        slab = slab if bounds is None else np.clip(slab, *bounds)
        data = view.open(slab, mode, rows, weights, is_own=is_own)
        sums, joined = question(data, [A[rows] for A in along], *constants)
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


def same(answer: Any, axis: Any, keepdims: bool) -> Any:
    """Return the answer of a slab, for the reductions of dask."""
    return answer


def _sum(answers: Any, axis: Any, keepdims: bool) -> Answer:
    """Return the answers of several slabs, a nested list, as one."""
    return reduce(_add, load_extra("dask.core", "dask").flatten(answers))


def _add(first: Answer, second: Answer) -> Answer:
    """Return two answers as one: numbers and arrays added, rows joined."""
    sums = tuple(a + b for a, b in zip(first[0], second[0], strict=True))
    return sums, tuple(a + b for a, b in zip(first[1], second[1], strict=True))


def ask_first(data: DenseTensor, rows: Rows, cut: int, modes: Sequence[int], blocks: Mapping[int, np.ndarray]) -> Parts:
    """Return |X|^2, the infinities, the observed entries along each mode, Gram matrices, sketches; the largest entry.

    The slab is as it was read. Only one whose norm is not finite is looked at entry by entry.
    """
    low, high = RANGES[str(data.dtype)]
    norm, n_infinite = data.squared_norm, 0
    counts = [data.n_observed_along(n) for n in range(data.ndim)]
    largest = np.array([np.sqrt(norm)])  # at least as large, and of the same use
    if not (np.isfinite(norm) and largest[0] <= high and np.sqrt(norm / data.n_observed) >= low):
        X = data.to_array().copy(order="K")
        observed = np.empty_like(X, dtype=bool)
        clear_missing(X.ravel(order="K"), X.dtype.type(1), observed.ravel(order="K"))
        counts = [MaskedTensor(X, observed, is_zeroed=True).n_observed_along(n) for n in range(data.ndim)]
        data = DenseTensor(X)
        largest = np.array([max(data.to_array().max(), -data.to_array().min())])
        n_infinite = int(np.isinf(data.to_array()).sum()) if np.isinf(largest[0]) else 0
    is_usable = largest[0] <= high  # otherwise products overflow, and X is refused
    grams = [data.gram(n) for n in modes] if is_usable else []
    sketches = [data.gram_times(n, Q)[0] for n, Q in blocks.items()] if is_usable else []
    norm = data.squared_norm if is_usable else np.inf
    sums = [norm, n_infinite, *(count for n, count in enumerate(counts) if n != cut), Terms(grams), Terms(sketches)]
    return sums, [counts[cut], largest]


def ask_first_weighted(data: WeightedTensor, rows: Rows, cut: int) -> Parts:
    """Return |X|^2, the infinities, observed entries and weights along each mode; the largest entry and the median."""
    values = np.abs(data.entries()[1])
    n_infinite, largest = int(np.isinf(values).sum()), values.max(initial=0.0)
    n, modes = np.array([largest]), [m for m in range(data.ndim) if m != cut]
    counts = [data.n_observed_along(m) for m in range(data.ndim)]
    weights = [data.weights_along(m) for m in range(data.ndim)]
    norm = 0.0 if n_infinite else data.squared_norm
    sums = [norm, n_infinite, *(counts[m] for m in modes), *(weights[m] for m in modes)]
    return sums, [n, counts[cut], weights[cut], np.array([[data.median, data.n_observed]])]


class Terms(list[np.ndarray]):
    """Arrays that are added one by one; an empty list is zero."""

    def __add__(self, other: list[np.ndarray]) -> "Terms":  # type: ignore[override]  # a sum, not a longer list
        return Terms([a + b for a, b in zip(self, other, strict=True)] if self and other else [])


def ask_grams(data: Storage, rows: Rows, modes: Sequence[int]) -> Parts:
    """Return Gram matrices."""
    return [data.gram(n) for n in modes], []


def ask_column_gram(data: Storage, rows: Rows, mode: int) -> Parts:
    """Return the share of a slab in X_n'X_n, where n is the mode of the cut."""
    return [data.column_gram(mode)], []


def ask_residual_grams(data: Storage, rows: Rows, cut: int, W: BooleanCP, weights: Mapping[int, np.ndarray]) -> Parts:
    """Return the share of a slab in the Gram matrices of residuals by mode, one for each row of its weights."""
    part = own_part(W, rows[0], cut)
    return [data.residual(replace(part, weights=c)).gram(mode) for mode, group in weights.items() for c in group], []


def ask_losses(data: MaskedTensor, rows: Rows, cut: int, estimates: Sequence[BooleanCP]) -> Parts:
    """Return |X - W|^2 for several estimates."""
    return [data.residual(own_part(W, rows[0], cut)).squared_norm for W in estimates], []


def ask_norm(data: Storage, rows: Rows) -> Parts:
    """Return |X|^2."""
    return [data.squared_norm], []


def ask_range(data: Storage, rows: Rows) -> Parts:
    """Return the sum and the number of the observed entries; the smallest and the largest one."""
    X, where = data.to_array(), True if data.mask is None else data.mask
    least, most = X.min(where=where, initial=np.inf), X.max(where=where, initial=-np.inf)
    return [float(X.sum(dtype=float)), data.n_observed], [np.array([least]), np.array([most])]


def ask_contract_cut(data: Storage, rows: Rows, mode: int, pending: Sequence[int]) -> Parts:
    """Return the share of a slab in a contraction along the mode of the cut."""
    return [data.contract(mode, rows[0]), *(data.gram(n) for n in pending)], []


def ask_contract(data: Storage, rows: Rows, mode: int, Z: np.ndarray, at: int, pending: Sequence[int]) -> Parts:
    """Return a slab contracted along a mode other than that of the cut, which goes first."""
    return [data.gram(n) for n in pending], [np.ascontiguousarray(np.moveaxis(data.contract(mode, Z), at, 0))]


def ask_sketches(data: DenseTensor, rows: Rows, blocks: Mapping[int, np.ndarray]) -> Parts:
    """Return the shares of a slab in X_n X_n'Q, one for each mode n with a block Q."""
    return [data.gram_times(n, Q)[0] for n, Q in blocks.items()], []


def ask_core(
    data: DenseTensor,
    rows: Rows,
    cut: int,
    bases: Mapping[int, np.ndarray],
    pending: Sequence[int],
    blocks: Mapping[int, np.ndarray],
) -> Parts:
    """Return a slab contracted with the bases of several modes, Gram matrices and sketches.

    It is a share of the sum if the mode of the cut has a basis, whose rows come first, else rows of the whole. The
    blocks are the bases of their modes: each is contracted with only once.
    """
    grams, sketches = [data.gram(n) for n in pending], {}
    for n in core_order(cut, bases, blocks):
        if n in blocks:
            sketches[n], contracted = data.gram_times(n, blocks[n])
            data = from_blocks(contracted, n)
        else:
            data = data.reduced(n, rows[0] if n == cut else bases[n])
    core = data.to_array()
    if cut in bases:
        return [core, *grams, *(sketches[n] for n in blocks)], []
    return [*grams, *(sketches[n] for n in blocks)], [np.ascontiguousarray(np.moveaxis(core, cut, 0))]


def core_order(cut: int, bases: Iterable[int], blocks: Iterable[int]) -> list[int]:
    """Return the modes in the order of their contraction: those with a sketch after others, and that of the cut last.

    A sketch is of what the contractions before it have left, which is less work and has less noise. A contraction along
    the mode of the cut leaves a share of a sum, and no sketch follows from shares.
    """
    return sorted(bases, key=lambda n: (n == cut, n in blocks, -n))


def ask_project_cut(data: Storage, rows: Rows, mode: int, blocks: np.ndarray) -> Parts:
    """Return the inner products of the rows of a slab with blocks."""
    return [], [np.asarray(data.project(mode, blocks), dtype=float)]


def ask_project(data: Storage, rows: Rows, mode: int, at: int) -> Parts:
    """Return the share of a slab in the inner products along a mode other than that of the cut."""
    return [np.asarray(data.project(mode, np.moveaxis(rows[0], 0, at)), dtype=float)], []


def ask_mttkrp(data: Storage, rows: Rows, cut: int, factors: Sequence[np.ndarray | None]) -> Parts:
    """Return the MTTKRP of all modes: the rows of the cut, shares of the others."""
    whole = with_rows(factors, cut, rows[0])
    data.ask_ahead([whole])
    products = [np.asarray(data.mttkrp(whole, n), dtype=float) for n in range(data.ndim)]
    return [P for n, P in enumerate(products) if n != cut], [products[cut]]


def ask_equations(data: Storage, rows: Rows, cut: int, mode: int, factors: Sequence[np.ndarray | None]) -> Parts:
    """Return H and P over observed entries: rows if the mode is that of the cut, else shares."""
    H, P = data.normal_equations(with_rows(factors, cut, rows[0]), mode)
    return ([], [H, P]) if mode == cut else ([H, P], [])


def ask_update(
    data: Storage,
    rows: Rows,
    mode: int,
    factors: Sequence[np.ndarray | None],
    decide: Decide,
    is_measured: bool = False,
) -> Parts:
    """Return the new rows, and the slab contracted with them; if asked, |X|^2 and the product with the old ones."""
    P = np.asarray(data.mttkrp(with_rows(factors, mode, rows[0]), mode), dtype=float)
    A = decide(P, current=rows[0])
    more = [data.squared_norm, float(np.sum(P * rows[0]))] if is_measured else []
    return [np.ascontiguousarray(data.contract(mode, A)), *more], [A]


def ask_update_observed(
    data: MaskedTensor,
    rows: Rows,
    cut: int,
    factors: Sequence[np.ndarray | None],
    decide: Decide,
    groups: Sequence[Sequence[np.ndarray | None]],
) -> Parts:
    """Return X contracted with the new rows and H of the other modes for them; the new rows, and H and P of the cut.

    H and P of mode 0 for further groups of factors follow.
    """
    H, P = data.normal_equations(with_rows(factors, cut, rows[0]), cut)
    A = decide(H, P, current=rows[0])
    whole = with_rows(factors, cut, A)
    grams = [data.row_grams(whole, n) for n in range(data.ndim) if n != cut]
    more = [
        part
        for group, own in zip(groups, rows[1:], strict=True)
        for part in data.normal_equations(with_rows(group, cut, own), 0)
    ]
    sums = [np.ascontiguousarray(data.contract(cut, A)), *grams]
    return (sums, [A, H, P, *more]) if cut == 0 else ([*sums, *more], [A, H, P])


def ask_imputed_core(data: Storage, rows: Rows, cut: int, bases: Mapping[int, np.ndarray]) -> Parts:
    """Return the share of a slab in the tensor contracted with bases of all modes, and in its squared norm."""
    norm = data.squared_norm
    for n in sorted(bases, reverse=True):
        data = data.reduced(n, rows[0] if n == cut else bases[n])
    return [data.to_array(), norm], []


def ask_observed(data: Storage, rows: Rows, cut: int) -> Parts:
    """Return the indices and values of the observed entries of a slab."""
    indices, values, weights = data.entries()
    indices[:, cut] += rows[0][0]
    return [], [indices, values, *([] if weights is None else [weights])]


def ask_entries(data: Storage, rows: Rows, cut: int) -> Parts:
    """Return the entries of a slab, the mode of the cut first."""
    return [], [np.array(np.moveaxis(data.to_array(), cut, 0), order="C")]  # the memory of a slab serves again


def with_rows(factors: Sequence[np.ndarray | None], cut: int, rows: np.ndarray) -> Factors:
    """Return the factors with the rows of a slab along the mode of the cut."""
    return [rows if n == cut or A is None else A for n, A in enumerate(factors)]
