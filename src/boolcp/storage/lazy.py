"""Tensors that are not in memory: every answer is the sum, or the join, of those of dense slabs, in one pass."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg

from boolcp import contractions
from boolcp.checks import RANGES, check_largest
from boolcp.memory import check_memory, float_bytes, memory_text, read_memory
from boolcp.storage.dense import Complete, Contracted, Dense, loss_after
from boolcp.storage.protocol import Decide, Equations, Factors, quadratic
from boolcp.storage.sources import SPLIT, Source, load, n_threads
from boolcp.storage.tucker import LONG, N_POWER, Tucker, by_length, is_compressible, leading_basis, reduced
from boolcp.storage.weighted import SQUARES, Loss, Weighted, full, products

N_SAMPLE = 2**18  # entries of a sample, for medians; not tuned
N_LOADED = 5  # copies of an array that must fit in memory for it to be loaded; not tuned
CLIPPED, MAD = 5.0, 1.4826  # spreads at which a start cuts entries off under Huber's loss, as in memory
WIDER = 8  # directions of a long mode that power iterations carry beyond those asked for; not tuned
SAME = 1e-10  # distance of unit columns that are the same

Make = Callable[[np.ndarray, np.ndarray | None, slice, int], Dense]  # slab, weights, rows, cut -> what is asked


@dataclass
class Known:
    """Answers for unit columns of all modes that were asked for last: (P_n of each mode) or (H_n, P_n and the loss)."""

    columns: list[np.ndarray]
    answers: Any

    def find(self, factors: Factors) -> tuple[np.ndarray, np.ndarray] | None:
        """Return which of the columns these are, (K,), and their sizes with sign by mode, (N, K); None if others."""
        units, sizes = unit_columns(factors)
        G = np.prod([U.T @ V for U, V in zip(self.columns, units, strict=True)], axis=0)
        at = np.argmax(G, axis=0) if len(G) else np.zeros(0, dtype=int)
        errors = [np.abs(U[:, at] - V).max(initial=0.0) for U, V in zip(self.columns, units, strict=True)]
        return (at, sizes) if len(at) == G.shape[1] and max(errors) <= SAME else None


class Lazy(Complete):
    """A complete tensor that is read in slabs along one mode, `cut`; `make` turns a slab into what is asked."""

    unit = 1.0  # of the loss: the weight of each entry

    def __init__(self, source: Source, make: Make | None = None) -> None:
        self.source, self.make = source, dense_slab if make is None else make
        self.shape, self.dtype, self.bases = source.shape, source.dtype, ()
        self.cut = source.direction()
        self._grams: dict[int, np.ndarray] = {}
        self._norm2: float | None = None
        self._products: Known | None = None

    @property
    def n_passes(self) -> int:  # type: ignore[override]
        """Return the number of passes made over the data so far."""
        return self.source.n_passes

    def ask(self, question: Callable[..., tuple[Any, ...]], *how: int | None, cut: int | None = None) -> Any:
        """Return the answers to question(dense slab, its rows), added (None) or joined along an axis, in one pass."""
        cut = self.cut if cut is None else cut
        return self.source.ask(partial(ask_dense, question, self.make, cut), how, cut)

    # what one pass brings for all later questions

    @property
    def squared_norm(self) -> float:
        """Return |X|^2."""
        if self._norm2 is None:
            self._look(self.cut)
        assert self._norm2 is not None
        return self._norm2

    def learn(self, norm2: float, grams: Mapping[int, np.ndarray]) -> "Lazy":
        """Return itself with |X|^2 and Gram matrices that are known already."""
        self._norm2, self._grams = float(norm2), dict(grams)
        return self

    @property
    def level(self) -> float:
        """Return the loss of no columns."""
        return self.squared_norm

    def _look(self, cut: int) -> None:
        """Bring |X|^2 and the Gram matrices of all short modes that are not cut."""
        modes = [n for n, d in enumerate(self.shape) if n != cut and d <= LONG]
        self._norm2, *grams = self.ask(partial(ask_grams, modes), *[None] * (1 + len(modes)), cut=cut)
        self._grams |= dict(zip(modes, grams, strict=True))

    def has_gram(self, mode: int) -> bool:
        """Return True if the Gram matrix of a mode is known, or can be brought by a pass."""
        other = self.source.direction(avoid=mode)
        return mode in self._grams or (self.source.fits(other) and self.source.is_aligned(other))

    def gram(self, mode: int) -> np.ndarray:
        """Return X_n X_n' (d_n, d_n), computed once."""
        if mode not in self._grams:
            self._look(self.source.direction(avoid=mode))
        if mode not in self._grams:  # a long mode
            cut = self.source.direction(avoid=mode)
            self._grams[mode] = self.ask(partial(ask_grams, [mode]), None, None, cut=cut)[1]
        return self._grams[mode]

    # the questions of a tensor

    def contract(self, mode: int, Z: np.ndarray) -> np.ndarray:
        """Return sum_i X[.., i, ..] Z[i, k], (K, other modes)."""
        size = float(np.prod(self.shape, dtype=float)) / self.shape[mode] * Z.shape[1] * self.dtype.itemsize
        n_copies = n_threads() + SPLIT if mode == self.cut else 2
        check_memory({"X contracted with a factor": n_copies * size}, self._limit, "Ask for fewer atoms (n_atoms).")
        axis = None if mode == self.cut else 1 + self.cut - (self.cut > mode)
        return self.ask(partial(ask_contract, mode, self.cut, Z), axis)[0]

    @property
    def _limit(self) -> float:
        return np.inf if self.source.limit is None else self.source.limit

    def project(self, mode: int, blocks: np.ndarray) -> np.ndarray:
        """Return X_n vec(V_k), (d_n, K)."""
        return self.ask(partial(ask_project, mode, self.cut, blocks), 0 if mode == self.cut else None)[0]

    def mttkrp(self, factors: Factors, mode: int) -> np.ndarray:
        """Return X_n times the Khatri-Rao product of the other factors, (d_n, K).

        One pass answers for all modes; the answers for the last columns, of whatever size, are kept.
        """
        factors = [np.ones((d, factors[mode - 1].shape[1])) if n == mode and len(A) != d else A
                   for n, (A, d) in enumerate(zip(factors, self.shape, strict=True))]  # fmt: skip
        found = None if self._products is None else self._products.find(factors)
        if found is None:
            units, sizes = unit_columns(factors)
            how = [0 if n == self.cut else None for n in range(len(units))]
            self._products = Known(units, self.ask(partial(ask_mttkrp, units, self.cut), *how))
            found = np.arange(sizes.shape[1]), sizes
        assert self._products is not None
        at, sizes = found
        return self._products.answers[mode][:, at] * np.prod(np.delete(sizes, mode, axis=0), axis=0)

    def to_array(self) -> np.ndarray:
        """Return all entries in memory, or raise a MemoryError."""
        check_memory({"X in memory": 2.0 * self.source.nbytes}, self._limit, "Raise max_memory.")
        return self.ask(ask_entries, self.cut)[0]

    # a sweep, and a core

    def equations_of(self, P: np.ndarray, factors: Factors, mode: int) -> Equations:
        """Return the equations for a known MTTKRP, in the unit of the loss."""
        H, P, A = self.unit * contractions.gram_product(factors, mode), self.unit * P, factors[mode]
        return Equations(H, P, self.level - 2 * float(np.vdot(P, A)) + quadratic(H, A))

    def update(self, factors: Factors, mode: int, decide: Decide) -> tuple[np.ndarray, float, Any]:
        """Return the factor decided for one mode, the loss, and X contracted with it; along the cut in one pass."""
        if mode != self.cut:
            return super().update(factors, mode, decide)
        H = self.unit * contractions.gram_product(factors, mode)
        T, P, A = self.ask(partial(ask_update, list(factors), mode, H, self.unit, decide), None, 0, 0)
        return A, loss_after(self.equations_of(P, factors, mode), A, factors[mode]), Contracted(self, T, mode)

    def core(self, bases: Mapping[int, np.ndarray], cut: int | None = None) -> Dense:
        """Return the tensor contracted with bases (d_n, r_n) of some modes, in one pass.

        A pass along a different mode than usual brings the Gram matrix of the usual one as well.
        """
        cut = self.cut if cut is None else cut
        extra = [self.cut] if cut != self.cut else []
        how = [None if cut in bases else cut, *[None] * len(extra)]
        found, *grams = self.ask(partial(ask_core, dict(bases), cut, extra), *how, cut=cut)
        self._grams |= dict(zip(extra, grams, strict=True))
        return Dense(found)

    def compressed(self, rank: int) -> Complete:
        """Return the tensor on the leading `rank` directions of each mode, after one pass; in memory if that is large.

        The directions of all modes but the cut are those of the Gram matrices that are known.
        """
        if not is_compressible(self.shape, rank):
            needs = {"X in memory, with copies": float(N_LOADED * self.source.nbytes)}
            check_memory(needs, self._limit, "X hardly compresses: ask for fewer atoms (n_atoms), or raise max_memory.")
            return Dense(self.to_array())
        norm2 = self.squared_norm
        modes = [n for n in by_length(self.shape) if n != self.cut and self.shape[n] > rank]
        long = [n for n in modes if self.shape[n] > LONG]
        bases = {n: leading_basis(self, n, rank) for n in modes if n not in long} | self._leading(long, rank)
        other = self.source.direction(avoid=self.cut)
        is_certified = self.shape[self.cut] <= LONG and self.has_gram(self.cut) and self.source.fits(other)
        core = self.core(bases, other if is_certified else None)
        found = []
        for n, d in enumerate(self.shape):
            U = bases.get(n, np.eye(d) if n != self.cut or d <= rank else None)
            if U is None or U.shape[1] > min(rank, d):
                V = leading_basis(core, n, rank)
                core, U = reduced(core, n, V), V if U is None else U @ V
            found.append(U)
        return Tucker(core, found, norm2)

    def _leading(self, modes: Sequence[int], rank: int) -> dict[int, np.ndarray]:
        """Return nearly leading directions of long modes, by power iterations, a pass for each."""
        Q = {n: np.random.default_rng(n).standard_normal((self.shape[n], rank + WIDER)) for n in modes}
        for _ in range(N_POWER if modes else 0):
            blocks = {n: scipy.linalg.qr(A, mode="economic")[0] for n, A in Q.items()}
            Q = dict(zip(modes, self.ask(partial(ask_power, blocks), *[None] * len(modes)), strict=True))
        return {n: scipy.linalg.qr(A, mode="economic")[0] for n, A in Q.items()}

    def describe(self) -> dict[str, Any]:
        """Return what identifies the data, without a pass: shape, dtype and |X|^2."""
        return {"shape": list(self.shape), "dtype": str(self.dtype), "|X|^2": self.squared_norm}


@dataclass(frozen=True)
class Facts:
    """What the first pass says of entries that do not count alike: their |X|^2, number, weights, and a sample."""

    squared_norm: float
    n_known: int
    largest_weight: float
    sample: np.ndarray  # (n, 2): entries and their weights, 0 where they are missing


class LazyWeighted(Lazy):
    """Entries with weights, missing ones, or under Huber's loss, as complete targets near the present factors.

    The targets m + w (t - m) / w_max, with t as in `Loss.near`, have squares that touch the loss at m and are nowhere
    below it. So a sweep never raises the loss; `near` then moves the targets to the factors that it led to.
    """

    def __init__(self, source: Source, facts: Facts, loss: Loss = SQUARES, factors: Factors | None = None) -> None:
        self.facts, self.loss, self.unit = facts, loss, facts.largest_weight
        self.factors = [np.zeros((d, 0)) for d in source.shape] if factors is None else list(factors)
        super().__init__(source, partial(near_slab, self.factors, loss, self.unit))
        self.weights = Lazy(source, weight_slab)
        self.n_known = facts.n_known
        self._level: float | None = None
        self._exact: Known | None = None
        self._near: LazyWeighted | None = None

    @property
    def squared_norm(self) -> float:
        """Return the weighted sum of squares of the observed entries."""
        return self.facts.squared_norm

    @property
    def level(self) -> float:
        """Return w_max |t|^2 and by how much the loss at the present factors is above w_max |t - m|^2."""
        if self._level is None:
            self._level = self.source.ask(self._ask_level, [None], self.cut)[0]
        return self._level

    @property
    def _ask_level(self) -> Callable[..., Any]:
        return partial(ask_level, self.factors, self.loss, self.unit, self.cut)

    def update(self, factors: Factors, mode: int, decide: Decide) -> tuple[np.ndarray, float, Any]:
        """Return the factor decided for one mode, the loss, and the targets contracted with it, in one pass."""
        if mode == self.cut and self._level is None:
            H = self.unit * contractions.gram_product(factors, mode)
            question = partial(ask_update, list(factors), mode, H, self.unit, decide)
            both = partial(ask_both, partial(ask_dense, question, self.make, mode), self._ask_level)
            T, P, A, self._level = self.source.ask(both, [None, 0, 0, None], mode)
            return A, loss_after(self.equations_of(P, factors, mode), A, factors[mode]), Contracted(self, T, mode)
        return super().update(factors, mode, decide)

    def near(self, factors: Factors, scale: float = 0.0) -> "LazyWeighted":
        """Return the targets near other factors, and for Huber's loss with a threshold; the last ones are kept."""
        loss, last = replace(self.loss, scale=scale) if scale else self.loss, self._near
        is_same = last is not None and last.loss == loss and len(last.factors) == len(factors)
        if not (is_same and all(map(np.array_equal, last.factors, factors))):  # type: ignore[union-attr]
            self._near = LazyWeighted(self.source, self.facts, loss, factors)
        assert self._near is not None
        return self._near

    @cached_property
    def start(self) -> Lazy:
        """The complete tensor of the search: missing entries are zero, others larger to compensate, none far off."""
        x, w = self.facts.sample.T
        low, high, median = -np.inf, np.inf, np.median(w[w > 0])
        if self.loss.name == "huber":
            known = x[w > 0]
            middle = np.median(known)
            size = CLIPPED * MAD * np.median(np.abs(known - middle))
            low, high = (middle - size, middle + size) if size > 0 else (low, high)
        is_mask = w[w > 0].min() == w.max()
        mean = self.n_known / np.prod(self.shape, dtype=float) if is_mask else np.minimum(w / median, 1.0).mean()
        return Lazy(self.source, partial(start_slab, low, high, median, float(mean)))

    def sample(self, factors: Factors) -> tuple[np.ndarray, np.ndarray]:
        """Return observed entries and the means of factors there, of a sample."""
        question = partial(ask_sample, list(factors), self.cut, int(np.prod(self.shape, dtype=np.int64)))
        found = self.source.ask(question, [0], self.cut)[0]
        return found[found[:, 1] > 0, 0], found[found[:, 1] > 0, 2]

    def equations(self, factors: Factors, mode: int) -> Equations:
        """Return the equations of each row over the observed entries, those of all modes from one pass."""
        found = None if self._exact is None else self._exact.find(factors)
        if found is None:
            units, sizes = unit_columns(factors)
            axes = [0 if n == self.cut else None for n in range(len(units))]
            question = partial(ask_equations, list(factors), units, self.cut)
            answers = self.ask_observed(question, *axes, *axes)
            self._exact, found = Known(units, answers), (np.arange(sizes.shape[1]), sizes)
        assert self._exact is not None
        (at, sizes), N = found, len(self.shape)
        s = np.prod(np.delete(sizes, mode, axis=0), axis=0)
        H = self._exact.answers[mode][:, at][:, :, at] * (s[:, None] * s)
        P, A = self._exact.answers[N + mode][:, at] * s, factors[mode]
        return Equations(H, P, self.squared_norm - 2 * float(np.vdot(P, A)) + quadratic(H, A))

    def ask_observed(self, question: Callable[..., tuple[Any, ...]], *how: int | None) -> Any:
        """Return the answers to question(weighted slab, its rows), added (None) or joined along an axis."""
        return self.source.ask(partial(ask_weighted, question, self.loss), how, self.cut)

    def describe(self) -> dict[str, Any]:
        """Return what identifies the data, without a pass."""
        return super().describe() | {"number of observed entries": self.n_known, "largest weight": self.unit}


# opening


def open_or_load(
    X: Any,
    mask: Any = None,
    weights: Any = None,
    *,
    loss: Loss = SQUARES,
    rank: int = 0,
    max_memory: float | str | None = None,
    needs_memory: str = "",
) -> "Lazy | tuple[np.ndarray, Any, Any]":
    """Return the storage of a lazy array after one pass or, if the fit needs them in memory, X, mask and weights.

    Parameters
    ----------
    X, mask, weights : array, lazy or not
        See `Source`; X is lazy.
    loss : Loss
        Squares, or Huber's loss.
    rank : int
        The directions of a core in each mode: an array that hardly compresses is loaded.
    max_memory : float or str, optional
        The memory that the fit may use.
    needs_memory : str
        Why the fit needs X in memory, such as "loss='poisson'"; empty if it does not.
    """
    limit, size = read_memory(max_memory), float_bytes(X.shape, X.dtype)
    if not needs_memory and (not is_compressible(X.shape, rank) or max(X.shape) ** 2 > size // 8 and max(X.shape) < LONG):
        needs_memory = f"the shape {tuple(X.shape)}, which hardly compresses for so many atoms"
    if not needs_memory:
        return look(Source(X, mask, weights, limit=limit), loss)
    if N_LOADED * size > limit:
        raise MemoryError(
            f"This fit needs X in memory ({memory_text(N_LOADED * size)} with copies, {memory_text(limit)} available), "
            f"because of {needs_memory}. Use loss='squared' and atom_rank=1 to fit it from disk, or raise max_memory."
        )
    return load(X), *(None if each is None else load(each) for each in (mask, weights))


def look(source: Source, loss: Loss = SQUARES) -> Lazy:
    """Return the storage of a lazy array after one pass over it, or raise if its entries cannot be used."""
    cut, size = source.direction(), np.prod(source.shape, dtype=np.int64)
    is_plain = source.weights is None and loss == SQUARES
    modes = [n for n, d in enumerate(source.shape) if n != cut and d <= LONG and is_plain]
    how = [None, None, 0, 0, *[None] * len(modes)]
    norm2, (n_known, n_infinite), extremes, sample, *found = source.ask(partial(ask_first, modes, size), how, cut)
    largest, heaviest, lightest = extremes[:, 0].max(), extremes[:, 1].max(), extremes[:, 2].min()
    check_largest(largest, source.dtype, int(n_infinite))
    if not n_known:
        what = "X is NaN (or masked)" if source.weights is None else "weights is zero, or X is missing,"
        raise ValueError(f"{what} everywhere: no entry is observed.")
    grams = dict(zip(modes, found, strict=True))
    if n_known == size and loss == SQUARES and lightest == heaviest:
        return Lazy(source.without_weights()).learn(norm2, grams) if is_plain else Lazy(source.without_weights())
    data = LazyWeighted(source, Facts(float(norm2), int(n_known), float(heaviest), sample), loss)
    if is_plain:
        scale = (size / n_known) ** 2
        data.start.learn(scale * norm2, {n: scale * G for n, G in grams.items()})
    return data


# slabs: what they are turned into, and the questions to them


def dense_slab(x: np.ndarray, w: np.ndarray | None, rows: slice, cut: int) -> Dense:
    """Return a slab as it is."""
    return Dense(x)


def weight_slab(x: np.ndarray, w: np.ndarray | None, rows: slice, cut: int) -> Dense:
    """Return the weights of a slab, 0 where X is missing."""
    return Dense(observed_weights(x, w))


def start_slab(
    low: float, high: float, median: float, mean: float, x: np.ndarray, w: np.ndarray | None, rows: slice, cut: int
) -> Dense:
    """Return a slab with zeros at missing entries, others larger to compensate and cut off at two bounds."""
    even = np.minimum(observed_weights(x, w) / median, 1.0) / mean
    return Dense((even * np.clip(np.where(even > 0, x, 0.0), low, high)).astype(x.dtype, copy=False))


def near_slab(
    factors: Factors, loss: Loss, unit: float, x: np.ndarray, w: np.ndarray | None, rows: slice, cut: int
) -> Dense:
    """Return the targets of a slab near the means of factors."""
    m, v = full(of_rows(factors, rows, cut)), observed_weights(x, w) / unit
    t = loss.near(np.where(v > 0, x, m), m)[0]
    return Dense((m + v * (t - m)).astype(x.dtype, copy=False))


def observed_weights(x: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Return the weights of entries, 0 where they are missing."""
    return np.asarray(~np.isnan(x) if w is None else np.where(np.isnan(x), 0.0, w), dtype=float)


def of_rows(factors: Sequence[np.ndarray], rows: slice, cut: int) -> list[np.ndarray]:
    """Return the factors of a slab."""
    return [A[rows] if n == cut else A for n, A in enumerate(factors)]


def unit_columns(factors: Factors) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the columns with norm one, the largest entry positive, and their sizes with sign by mode, (N, K)."""
    sizes = np.array([np.linalg.norm(A, axis=0) for A in factors])
    tops = [A[np.argmax(np.abs(A), axis=0), np.arange(A.shape[1])] for A in factors]
    sizes = np.where(sizes > 0, sizes, 1.0) * np.where(np.array(tops) < 0, -1.0, 1.0)
    return [A / s for A, s in zip(factors, sizes, strict=True)], sizes


def ask_first(modes: Sequence[int], size: int, x: np.ndarray, w: np.ndarray | None, rows: slice) -> tuple[Any, ...]:
    """Return |X|^2, the observed and infinite entries; the largest entry and weights, and a sample; Gram matrices."""
    if w is not None and not (w.min() >= 0 and w.max() < np.inf):
        raise ValueError("weights must be finite and at least 0, but some are not.")
    v = observed_weights(x, w)
    known = v > 0
    x = np.where(known, x, x.dtype.type(0))
    largest, n_infinite = float(np.abs(x).max()), int(np.isinf(x).sum())
    is_usable = largest <= RANGES[str(x.dtype)][1]  # otherwise products overflow, and X is refused
    data = Dense(x)
    norm2 = 0.0 if not is_usable else data.squared_norm if w is None else float(np.vdot(v * x, x))
    at = np.random.default_rng(rows.start).integers(0, x.size, max(1, N_SAMPLE * x.size // size))
    sample = np.stack([x.reshape(-1)[at], v.reshape(-1)[at]], axis=1)
    extremes = np.array([[largest, v.max(), v.min(where=known, initial=np.inf)]])
    counts = np.array([np.count_nonzero(known), n_infinite])
    return norm2, counts, extremes, sample, *(data.gram(n) if is_usable else 0.0 for n in modes)


def ask_dense(question: Any, make: Make, cut: int, x: np.ndarray, w: np.ndarray | None, rows: slice) -> Any:
    """Return the answer of what a slab is turned into."""
    return question(make(x, w, rows, cut), rows)


def ask_weighted(question: Any, loss: Loss, x: np.ndarray, w: np.ndarray | None, rows: slice) -> Any:
    """Return the answer of a slab with its weights."""
    return question(Weighted(x, observed_weights(x, w), loss), rows)


def ask_grams(modes: Sequence[int], data: Dense, rows: slice) -> tuple[Any, ...]:
    """Return |X|^2 and Gram matrices."""
    return data.squared_norm, *(data.gram(n) for n in modes)


def ask_contract(mode: int, cut: int, Z: np.ndarray, data: Dense, rows: slice) -> tuple[Any, ...]:
    """Return a slab contracted along one mode."""
    return (data.contract(mode, Z[rows] if mode == cut else Z),)


def ask_project(mode: int, cut: int, blocks: np.ndarray, data: Dense, rows: slice) -> tuple[Any, ...]:
    """Return the inner products of slices with blocks."""
    if mode != cut:
        blocks = np.moveaxis(np.moveaxis(blocks, 1 + cut - (cut > mode), 0)[rows], 0, 1 + cut - (cut > mode))
    return (np.asarray(data.project(mode, blocks), dtype=float),)


def ask_mttkrp(factors: Factors, cut: int, data: Dense, rows: slice) -> tuple[Any, ...]:
    """Return the MTTKRP of all modes."""
    own = of_rows(factors, rows, cut)
    return tuple(np.asarray(data.mttkrp(own, n), dtype=float) for n in range(len(own)))


def ask_entries(data: Dense, rows: slice) -> tuple[Any, ...]:
    """Return the entries."""
    return (data.to_array(),)


def ask_update(
    factors: Factors, mode: int, H: np.ndarray, unit: float, decide: Decide, data: Dense, rows: slice
) -> tuple[Any, ...]:
    """Return a slab contracted with the rows decided for it, the MTTKRP, and the rows."""
    own = of_rows(factors, rows, mode)
    P = np.asarray(data.mttkrp(own, mode), dtype=float)
    A = decide(H, unit * P, own[mode])
    return data.contract(mode, A), P, A


def ask_core(
    bases: Mapping[int, np.ndarray], cut: int, extra: Sequence[int], data: Dense, rows: slice
) -> tuple[Any, ...]:
    """Return a slab contracted with bases of several modes, and Gram matrices."""
    grams = [data.gram(n) for n in extra]
    for n in sorted(bases, key=lambda n: (n == cut, -n)):
        data = reduced(data, n, bases[n][rows] if n == cut else bases[n])
    return data.to_array(), *grams


def ask_power(blocks: Mapping[int, np.ndarray], data: Dense, rows: slice) -> tuple[Any, ...]:
    """Return X_n X_n'Q for a block Q of each mode n."""
    return tuple(data.project(n, data.contract(n, Q)).astype(float) for n, Q in blocks.items())


def ask_level(
    factors: Factors, loss: Loss, unit: float, cut: int, x: np.ndarray, w: np.ndarray | None, rows: slice
) -> tuple[Any, ...]:
    """Return w_max |t|^2 and by how much the loss at the means m of factors is above w_max |t - m|^2."""
    m, v = full(of_rows(factors, rows, cut)), observed_weights(x, w)
    t = near_slab(factors, loss, unit, x, w, rows, cut).to_array()
    here = 2 * float(np.vdot(v, loss.value(np.where(v > 0, x, m), m)))
    return (unit * float(np.vdot(t, t) - np.vdot(t - m, t - m)) + here,)


def ask_both(first: Any, second: Any, x: np.ndarray, w: np.ndarray | None, rows: slice) -> tuple[Any, ...]:
    """Return the answers to two questions."""
    return *first(x, w, rows), *second(x, w, rows)


def ask_sample(
    factors: Factors, cut: int, size: int, x: np.ndarray, w: np.ndarray | None, rows: slice
) -> tuple[Any, ...]:
    """Return entries, their weights and the means of factors, of a sample (n, 3)."""
    at = np.random.default_rng(rows.start).integers(0, x.size, max(1, N_SAMPLE * x.size // size))
    values = x, observed_weights(x, w), full(of_rows(factors, rows, cut))
    return (np.stack([A.reshape(-1)[at] for A in values], axis=1),)


def ask_equations(factors: Factors, units: Factors, cut: int, data: Weighted, rows: slice) -> tuple[Any, ...]:
    """Return H and P of unit columns over the observed entries, of all modes, near the means of factors."""
    t, v = data.near(full(of_rows(factors, rows, cut)))
    assert v is not None
    own, weights, targets = of_rows(units, rows, cut), Dense(v), Dense(v * t)
    grams = [products(weights, own, n) for n in range(len(own))]
    return *grams, *(np.asarray(targets.mttkrp(own, n), dtype=float) for n in range(len(own)))
