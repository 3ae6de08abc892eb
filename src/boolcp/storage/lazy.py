"""Tensors that are not in memory: every answer is the sum, or the join, of the answers of dense slabs, in one pass."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from boolcp.checks import RANGES, check_largest
from boolcp.contractions import gram_product, khatri_rao
from boolcp.result.atoms import BooleanCP, part_of_atom
from boolcp.storage._row_kernels import flip_sums, row_sums
from boolcp.storage.dense import Complete, Contracted, Dense, Equations, loss_after, quadratic
from boolcp.storage.protocol import Decide, Factors
from boolcp.storage.sources import SPLIT, Source, as_file, in_slabs, load, n_threads, plain
from boolcp.storage.tucker import LONG, N_POWER, Tucker, is_compressible, leading_basis, reduced
from boolcp.storage.weighted import CLIPPED, SQUARES, Loss, Weighted, full, products, spread, with_flips
from boolcp.system import check_memory, float_bytes, load_extra, memory_text, read_memory

N_SAMPLE = 2**18  # entries of a sample, for medians; not tuned
N_LOADED = 5  # copies of an array that must fit in memory for it to be loaded; not tuned
WIDER = 8  # directions of a long mode that power iterations carry beyond those asked for; not tuned
MAX_READS = 4  # how often a pass for a Gram matrix may read each part of a file; not tuned
SAME = 1e-10  # distance of unit columns that are the same


class Slab(Dense):
    """A slab in memory, and its share in the loss of no columns, where that is not |X|^2."""

    level = 0.0


Make = Callable[[np.ndarray, np.ndarray | None, slice, int], Slab]  # slab, weights, rows, cut -> what is asked
Question = Callable[[Any, slice], tuple[Any, ...]]  # slab, rows -> answers


class Lazy(Complete):
    """A complete tensor that is read in slabs along one mode, `cut`; `make` turns a slab into what is asked."""

    unit = 1.0  # of the loss: what an entry counts
    bases = ()

    def __init__(self, source: Source, make: Make | None = None) -> None:
        self.source, self.make = source, make or (lambda x, w, rows, cut: Slab(x))
        self.shape, self.dtype, self.cut = source.shape, source.dtype, source.direction()
        self.limit = np.inf if source.limit is None else source.limit
        self._level: float | None = None
        self._grams: dict[int, np.ndarray] = {}
        self._last: tuple[list[np.ndarray], Any] | None = None  # unit columns that were asked for last, and answers

    @property
    def n_passes(self) -> int:  # type: ignore[override]
        """Return the number of passes made over the data so far."""
        return self.source.n_passes

    def ask(self, question: Question, *how: int | None, cut: int | None = None) -> Any:
        """Return the answers to question(slab, rows), added (None) or joined along an axis, in one pass."""
        make, cut = self.make, self.cut if cut is None else cut
        return self.source.ask(lambda x, w, rows: question(make(x, w, rows, cut), rows), how, cut)

    def learn(self, norm2: float, grams: Mapping[int, np.ndarray]) -> "Lazy":
        """Return itself with |X|^2 and some Gram matrices known."""
        self.squared_norm, self._grams = float(norm2), self._grams | dict(grams)
        return self

    def _look(self, cut: int, modes: Sequence[int] = ()) -> None:
        """Bring |X|^2 and Gram matrices, by default of all short modes that are not cut."""
        asked = list(modes) or [n for n, d in enumerate(self.shape) if n != cut and d <= LONG]
        how = [None] * (1 + len(asked))
        norm2, *grams = self.ask(lambda X, _: (X.squared_norm, *(X.gram(n) for n in asked)), *how, cut=cut)
        self.learn(norm2, dict(zip(asked, grams, strict=True)))

    @cached_property
    def squared_norm(self) -> float:
        """|X|^2."""
        self._look(self.cut)
        return float(self.__dict__["squared_norm"])  # which has been learned

    @property
    def level(self) -> float:
        """Return the loss of no columns."""
        return self.squared_norm

    def has_gram(self, mode: int) -> bool:
        """Return True if the Gram matrix of a mode is known, or a pass may bring it."""
        other = self.source.direction(avoid=mode)
        return mode in self._grams or (self.source.fits(other) and self.source.n_reads(other) <= MAX_READS)

    def gram(self, mode: int) -> np.ndarray:
        """Return X_n X_n' (d_n, d_n), computed once."""
        if mode not in self._grams:
            self._look(self.source.direction(avoid=mode), [mode] if self.shape[mode] > LONG else [])
        return self._grams[mode]

    def contract(self, mode: int, Z: np.ndarray) -> np.ndarray:
        """Return sum_i X[.., i, ..] Z[i, k], (K, other modes)."""
        self._check_contracted(mode, Z.shape[1])
        cut = self.cut
        axis = None if mode == cut else 1 + cut - (cut > mode)
        return self.ask(lambda X, rows: (X.contract(mode, Z[rows] if mode == cut else Z),), axis)[0]

    def _check_contracted(self, mode: int, n_columns: int) -> None:
        """Raise a MemoryError if X contracted with so many columns, and sums of it, do not fit."""
        size = self.source.nbytes / self.shape[mode] * n_columns * (n_threads() + SPLIT if mode == self.cut else 2)
        needs = {"X contracted with a factor": size, "slabs": self.source.held(self.cut)}
        check_memory(needs, self.limit, "Ask for fewer atoms (n_atoms), or raise max_memory.")

    def project(self, mode: int, blocks: np.ndarray) -> np.ndarray:
        """Return X_n vec(V_k), (d_n, K)."""
        cut, at = self.cut, 1 + self.cut - (self.cut > mode)

        def question(X: Slab, rows: slice) -> tuple[Any, ...]:
            own = blocks if mode == cut else blocks[(slice(None),) * at + (rows,)]
            return (np.asarray(X.project(mode, own), dtype=float),)

        return self.ask(question, 0 if mode == cut else None)[0]

    def mttkrp(self, factors: Factors, mode: int) -> np.ndarray:
        """Return X_n times the Khatri-Rao product of the other factors, (d_n, K); one pass answers for all modes."""

        def question(X: Slab, own: Factors, units: Factors) -> tuple[Any, ...]:
            return tuple(np.asarray(X.mttkrp(units, n), dtype=float) for n in range(len(units)))

        answers, at, sizes = self._by_columns(self.ask, question, factors, mode, 1)
        return answers[mode][:, at] * sizes

    def _by_columns(
        self, ask: Callable[..., Any], question: Callable[..., Any], factors: Factors, mode: int, n_parts: int
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """Return `n_parts` answers for each mode, those for unit columns; where each column is, and its size, (K,).

        The question is about a slab, its factors and its unit columns. The last answers are kept: columns of other
        sizes and in a different order need no pass.
        """
        units, sizes = unit_columns(factors)
        size, cut = np.prod(np.delete(sizes, mode, axis=0), axis=0), self.cut
        if self._last is not None and self._last[0][0].shape[1]:
            place = np.argmax(np.prod([U.T @ V for U, V in zip(self._last[0], units, strict=True)], axis=0), axis=0)
            if all(np.abs(U[:, place] - V).max(initial=0.0) <= SAME for U, V in zip(self._last[0], units, strict=True)):
                return self._last[1], place, size
        how = n_parts * [0 if n == cut else None for n in range(len(units))]
        found = ask(lambda X, rows: question(X, of_rows(factors, rows, cut), of_rows(units, rows, cut)), *how)
        self._last = units, found
        return found, np.arange(len(size)), size

    def to_array(self) -> np.ndarray:
        """Return all entries in memory, or raise a MemoryError."""
        check_memory({"X in memory": 2.0 * self.source.nbytes}, self.limit, "Raise max_memory.")
        return self.ask(lambda X, _: (X.to_array(),), self.cut)[0]

    def equations_of(self, P: np.ndarray, factors: Factors, mode: int) -> Equations:
        """Return the equations for a known MTTKRP, in the unit of the loss."""
        H, P, A = self.unit * gram_product(factors, mode), self.unit * P, factors[mode]
        return Equations(H, P, self.level - 2 * float(np.vdot(P, A)) + quadratic(H, A))

    def update(self, factors: Factors, mode: int, decide: Decide) -> tuple[np.ndarray, float, Any]:
        """Return the factor decided for one mode, the loss, and X contracted with it; along the cut in one pass."""
        if mode != self.cut:
            return super().update(factors, mode, decide)
        self._check_contracted(mode, factors[0].shape[1])
        H, unit = self.unit * gram_product(factors, mode), self.unit

        def question(X: Slab, rows: slice) -> tuple[Any, ...]:
            own = of_rows(factors, rows, mode)
            P = np.asarray(X.mttkrp(own, mode), dtype=float)
            A = decide(H, unit * P, own[mode])
            return X.contract(mode, A), P, A, X.level

        T, P, A, self._level = self.ask(question, None, 0, 0, None)
        return A, loss_after(self.equations_of(P, factors, mode), A, factors[mode]), Contracted(self, T, mode)

    def core(self, bases: Mapping[int, np.ndarray], cut: int | None = None) -> Dense:
        """Return the tensor contracted with bases of some modes in one pass, which may bring a Gram matrix as well."""
        usual, cut = self.cut, self.cut if cut is None else cut
        extra = [usual] if cut != usual else []

        def question(X: Dense, rows: slice) -> tuple[Any, ...]:
            grams = [X.gram(n) for n in extra]
            for n in sorted(bases, key=lambda n: (n == cut, -n)):
                X = reduced(X, n, bases[n][rows] if n == cut else bases[n])
            return X.to_array(), *grams

        found, *grams = self.ask(question, None if cut in bases else cut, *[None] * len(extra), cut=cut)
        self._grams |= dict(zip(extra, grams, strict=True))
        return Dense(found)

    def compressed(self, rank: int) -> Complete:
        """Return the tensor on the leading `rank` directions of each mode, after one pass; in memory if it is large."""
        if not is_compressible(self.shape, rank):
            needs = {"X in memory, with copies": float(N_LOADED * self.source.nbytes)}
            check_memory(needs, self.limit, "X hardly compresses: ask for fewer atoms (n_atoms), or raise max_memory.")
            return Dense(self.to_array())
        norm2, cut, d = self.squared_norm, self.cut, self.shape
        modes = [n for n in range(len(d)) if n != cut and d[n] > rank]
        bases = self._leading([n for n in modes if d[n] > LONG], rank)
        bases |= {n: leading_basis(self, n, rank) for n in modes if d[n] <= LONG}
        core = self.core(bases, self.source.direction(avoid=cut) if d[cut] <= LONG and self.has_gram(cut) else None)
        for n, width in enumerate(core.shape):
            if width > rank:  # the cut, and long modes
                V = leading_basis(core, n, rank)
                core, bases[n] = reduced(core, n, V), bases[n] @ V if n in bases else V
        return Tucker(core, [bases[n] if n in bases else np.eye(d[n]) for n in range(len(d))], norm2)

    def _leading(self, modes: Sequence[int], rank: int) -> dict[int, np.ndarray]:
        """Return nearly leading directions of long modes, by power iterations, a pass for each."""
        Q = {n: np.random.default_rng(n).standard_normal((self.shape[n], rank + WIDER)) for n in modes}
        for _ in range(N_POWER if modes else 0):
            Q = {n: scipy.linalg.qr(A, mode="economic")[0] for n, A in Q.items()}

            def question(X: Slab, rows: slice, Q: Mapping[int, np.ndarray] = Q) -> tuple[Any, ...]:
                return tuple(X.project(n, X.contract(n, U)) for n, U in Q.items())  # X_n X_n'Q_n

            Q = dict(zip(modes, self.ask(question, *[None] * len(modes)), strict=True))
        return {n: scipy.linalg.qr(A, mode="economic")[0] for n, A in Q.items()}


class LazyWeighted(Lazy):
    """Entries with weights, missing ones, or under Huber's loss, as complete targets near the present factors.

    The targets m + w (t - m) / w_max, with t as in `Loss.near`, have squares that touch the loss at m and are nowhere
    below it. So a sweep never raises the loss; `near` then moves the targets to the factors that it led to.
    `sampled` says what the sample is.
    """

    def __init__(
        self, source: Source, loss: Loss, squared_norm: float, n_seen: int, largest_weight: float, sample: np.ndarray
    ) -> None:
        super().__init__(source)
        self.loss, self.n_seen, self.unit, self._sample = loss, n_seen, largest_weight, sample
        self.weights = Lazy(source, lambda x, w, rows, cut: Slab(observed_weights(x, w)))
        self.squared_norm = squared_norm
        self._move([np.zeros((d, 0)) for d in self.shape])

    def _move(self, factors: Factors) -> None:
        self.factors, self.make = list(factors), near_slab(factors, self.loss, self.unit)
        self._grams, self._last, self._level = {}, None, None
        self._near: LazyWeighted | None = None
        if self.loss != SQUARES or "_exact" not in self.__dict__:
            self._exact = Lazy(self.source)  # keeps the last equations, those of squares wherever the targets are

    def near(self, factors: Factors, scale: float = 0.0) -> "LazyWeighted":
        """Return the targets near other factors, and for Huber's loss with a threshold; the last ones are kept."""
        loss = replace(self.loss, scale=scale) if scale else self.loss
        last = self._near
        if last is None or last.loss != loss or not all(map(np.array_equal, last.factors, factors)):
            last = copy(self)
            last.loss = loss
            last._move(factors)
            self._near = last
        return last

    def learn(self, norm2: float, grams: Mapping[int, np.ndarray]) -> "Lazy":
        """Return itself with some Gram matrices of the targets known; |X|^2 stays as it is."""
        self._grams |= grams
        return self

    @property
    def level(self) -> float:
        """Return w_max |t|^2, and by how much the loss at the present factors is above w_max |t - m|^2."""
        if self._level is None:
            self._level = self.ask(lambda X, _: (X.level,), None)[0]
        return float(self._level or 0.0)

    @cached_property
    def start(self) -> Lazy:
        """The complete tensor of the search: missing entries are zero, others larger to compensate, none far off."""
        x, w, _ = self._sample.T
        median, middle, dtype = np.median(w), np.median(x), self.dtype
        size = CLIPPED * spread(x) or np.inf if self.loss.name == "huber" else np.inf
        scale = self.n_seen / np.prod(self.shape, dtype=float) * float(np.minimum(w / median, 1.0).mean())

        def make(x: np.ndarray, w: np.ndarray | None, rows: slice, cut: int) -> Slab:
            even = np.minimum(observed_weights(x, w) / median, 1.0) / scale
            x = np.where(even > 0, np.clip(x, middle - size, middle + size), 0.0) * even
            return Slab(x.astype(dtype, copy=False))

        return Lazy(self.source, make)

    def sample(self, factors: Factors) -> tuple[np.ndarray, np.ndarray]:
        """Return observed entries and the means of factors there, of the sample of the first pass."""
        x, _, place = self._sample.T
        index = np.unravel_index(place.astype(np.int64), self.shape)
        return x, np.prod([A[i] for A, i in zip(factors, index, strict=True)], axis=0).sum(axis=1)

    def equations(self, factors: Factors, mode: int) -> Equations:
        """Return the equations of each row over the observed entries; one pass brings them for all modes."""

        def question(X: Weighted, own: Factors, units: Factors) -> tuple[Any, ...]:
            t, v = X.near(full(own))
            weights, targets = Dense(v), Dense(v * t)  # type: ignore[arg-type]
            grams = [products(weights, units, n) for n in range(len(units))]
            return *grams, *(np.asarray(targets.mttkrp(units, n), dtype=float) for n in range(len(units)))

        answers, at, s = self._exact._by_columns(self.ask_observed, question, factors, mode, 2)
        H, P = answers[mode][:, at][:, :, at] * (s[:, None] * s), answers[len(factors) + mode][:, at] * s
        A = factors[mode]
        return Equations(H, P, self.squared_norm - 2 * float(np.vdot(P, A)) + quadratic(H, A))

    def flipped(self, factors: Factors, mode: int, bits: np.ndarray) -> np.ndarray:
        """Return one factor with the bit of each row flipped that lowers the loss most, after one pass."""

        def question(X: Weighted, rows: slice) -> tuple[Any, ...]:
            own = of_rows(factors, rows, self.cut)
            V = np.ascontiguousarray(khatri_rao([B for n, B in enumerate(own) if n != mode]).T)
            how, A = (X.loss.kind, X.loss.scale, *X.rows(mode), own[mode] @ V), np.ascontiguousarray(own[mode][:, bits])
            return flip_sums(*how, V[bits], A), row_sums(*how)

        flips, losses = self.ask_observed(question, *[0 if mode == self.cut else None] * 2)
        return with_flips(factors[mode], bits, flips, losses)[0]

    def ask_observed(self, question: Question, *how: int | None) -> Any:
        """Return the answers to question(slab with its weights, rows), added (None) or joined along an axis."""
        loss, ask = self.loss, self.source.ask
        return ask(lambda x, w, rows: question(Weighted(x, observed_weights(x, w), loss), rows), how, self.cut)


# slabs


def near_slab(factors: Factors, loss: Loss, unit: float) -> Make:
    """Return what turns a slab into its targets near the means of factors."""

    def make(x: np.ndarray, w: np.ndarray | None, rows: slice, cut: int) -> Slab:
        m, w = full(of_rows(factors, rows, cut)), observed_weights(x, w)
        known = np.where(w > 0, x, m)
        step = w / unit * (loss.near(known, m)[0] - m)
        data = Slab((m + step).astype(x.dtype, copy=False))
        data.level = unit * float(np.vdot(m, m) + 2 * np.vdot(m, step)) + 2 * float(np.vdot(w, loss.value(known, m)))
        return data

    return make


def observed_weights(x: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Return the weights of entries, 0 where they are missing."""
    return np.asarray(~np.isnan(x) if w is None else np.where(np.isnan(x), 0.0, w), dtype=float)


def of_rows(factors: Factors, rows: slice, cut: int) -> list[np.ndarray]:
    """Return the factors of a slab."""
    return [A[rows] if n == cut else A for n, A in enumerate(factors)]


def unit_columns(factors: Factors) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the columns with norm one, the largest entry positive, and their sizes with sign by mode, (N, K)."""
    sizes = np.array([np.linalg.norm(A, axis=0) for A in factors])
    tops = np.array([A[np.argmax(np.abs(A), axis=0), np.arange(A.shape[1])] for A in factors])
    sizes = np.where(sizes > 0, sizes, 1.0) * np.where(tops < 0, -1.0, 1.0)
    return [A / s for A, s in zip(factors, sizes, strict=True)], sizes


def sampled(x: np.ndarray, w: np.ndarray, rows: slice, cut: int, shape: Sequence[int]) -> np.ndarray:
    """Return a sample of the observed entries of a slab, their weights, and their places in the whole array, (n, 3)."""
    share = min(1.0, N_SAMPLE / np.prod(shape, dtype=float))
    n, rng = max(1, int(share * x.size)), np.random.default_rng(rows.start)
    at = np.arange(x.size) if share == 1 else rng.integers(0, x.size, n)
    index = [i + (rows.start if n == cut else 0) for n, i in enumerate(np.unravel_index(at, x.shape))]
    found = np.stack([x.reshape(-1)[at], w.reshape(-1)[at], np.ravel_multi_index(index, tuple(shape))], axis=1)
    return found[found[:, 1] > 0]


# opening


def open_or_load(
    X: Any,
    mask: Any = None,
    weights: Any = None,
    *,
    loss: Loss = SQUARES,
    rank: int = 1,
    max_memory: float | str | None = None,
    needs_memory: str = "",
) -> "Lazy | tuple[Any, Any, Any]":
    """Return the storage of a lazy array after one pass or, if the fit needs them in memory, X, mask and weights.

    `needs_memory` says why it does, as in "loss='poisson'", empty if it does not. An array that hardly compresses to
    `rank` directions of each mode is loaded as well.
    """
    limit, size = read_memory(max_memory), N_LOADED * float_bytes(X.shape, X.dtype)
    if not needs_memory and not is_compressible(X.shape, rank):
        needs_memory = f"the shape {tuple(X.shape)}, which hardly compresses for so many atoms"
    if not needs_memory:
        return look(Source(X, mask, weights, limit=limit), loss)
    if size > limit:
        text = f"This fit needs X in memory ({memory_text(size)} with copies, {memory_text(limit)} available), because"
        advice = "Use loss='squared' and atom_rank=1 to fit it from disk, or raise max_memory."
        raise MemoryError(f"{text} of {needs_memory}. {advice}")
    return load(X), load(mask), load(weights)


def look(source: Source, loss: Loss = SQUARES) -> Lazy:
    """Return the storage of a lazy array after one pass over it, or raise if its entries cannot be used."""
    cut, shape, top = source.direction(), source.shape, RANGES[str(source.dtype)][1]
    is_plain, size = source.weights is None and loss == SQUARES, int(np.prod(shape, dtype=np.int64))
    modes = [n for n, d in enumerate(shape) if n != cut and d <= LONG and is_plain]
    needs = {"Gram matrices": 8.0 * (n_threads() + SPLIT) * sum(shape[n] ** 2 for n in modes)}
    check_memory(needs, source.limit or np.inf, "Raise max_memory.")

    def question(x: np.ndarray, w: np.ndarray | None, rows: slice) -> tuple[Any, ...]:
        if w is not None and not (w.min() >= 0 and w.max() < np.inf):
            raise ValueError("weights must be finite and at least 0, but some are not.")
        v = observed_weights(x, w)
        known = v > 0
        x = np.where(known, x, x.dtype.type(0))
        largest, counts = float(np.abs(x).max()), np.array([np.count_nonzero(known), np.isinf(x).sum()])
        is_usable, X = largest <= top, Dense(x)  # otherwise products overflow, and X is refused
        norm2 = 0.0 if not is_usable else X.squared_norm if w is None else float(np.vdot(v * x, x))
        extremes = np.array([[largest, v.max(), v.min(where=known, initial=np.inf)]])
        grams = [X.gram(n) if is_usable else 0.0 for n in modes]
        return norm2, counts, extremes, sampled(x, v, rows, cut, shape), *grams

    how = [None, None, 0, 0, *[None] * len(modes)]
    norm2, (n_known, n_infinite), extremes, sample, *found = source.ask(question, how, cut)
    largest, heaviest, lightest = extremes[:, 0].max(), extremes[:, 1].max(), extremes[:, 2].min()
    check_largest(largest, source.dtype, int(n_infinite))
    if not n_known:
        what = "X is NaN (or masked)" if source.weights is None else "weights is zero, or X is missing,"
        raise ValueError(f"{what} everywhere: no entry is observed.")
    grams = dict(zip(modes, found, strict=True))
    if n_known == size and loss == SQUARES and lightest == heaviest:
        source.mask, source.weights, source._slabs = None, None, {}
        return Lazy(source).learn(norm2, grams) if is_plain else Lazy(source)
    uneven = LazyWeighted(source, loss, float(norm2), int(n_known), float(heaviest), sample)
    if is_plain:
        scale = (size / n_known) ** 2
        uneven.start.learn(scale * norm2, {n: scale * G for n, G in grams.items()})
    return uneven


# lazy arrays with their missing entries filled in


def filled(X: Any, mask: Any, W: BooleanCP) -> Any:
    """Return a dask array: X with the entries of W, clipped to the observed range, where it is NaN or masked."""
    da, source = load_extra("dask.array", "dask"), Source(X)
    how: dict[str, Any] = {"dtype": source.dtype, "meta": np.empty((0,) * len(source.shape), dtype=source.dtype)}
    X = source.lazy().map_blocks(plain, source.dtype, **how)
    observed = ~da.isnan(X)
    if mask is not None:
        observed = observed & in_slabs(as_file(mask), source.shape, np.dtype(bool), X.chunks)
    low, high = da.where(observed, X, np.inf).min(), da.where(observed, X, -np.inf).max()
    return da.map_blocks(fill_block, X, observed, low, high, W=W, **how)


def fill_block(
    X: np.ndarray, observed: np.ndarray, low: float, high: float, W: BooleanCP, block_info: Any = None
) -> np.ndarray:
    """Return a block with the entries of W, between two bounds, where it is not observed."""
    if observed.all():
        return X
    for mode, bounds in enumerate(block_info[0]["array-location"]):
        W = part_of(W, slice(*bounds), mode)
    return np.where(observed, X, np.clip(W.to_array(), low, high)).astype(X.dtype)


def part_of(W: BooleanCP, rows: slice, mode: int) -> BooleanCP:
    """Return the decomposition of some rows along one mode; its real parts are no longer of norm one."""
    atoms = [part_of_atom(atom, mode, rows) for atom in W.atoms]
    shape = [len(range(*rows.indices(d))) if n == mode else d for n, d in enumerate(W.shape)]
    empty = {n: gaps[rows] if n == mode else gaps for n, gaps in (W.undetermined or {}).items()}
    return BooleanCP(shape, tuple(atoms), W.weights, undetermined=empty or None)
