"""The canonical order of modes and slices: it depends on the numbers of a tensor, not on how they are laid out.

Where many solutions fit equally well, the order of sums and of random draws decides between them. A fit therefore runs
on the tensor in its canonical order, and its result is put back: permuted rows and modes, memory orders and float64
copies lead to the same bits.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from boolcp.fit.state import AtomRecord
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.threads import BIG

MAX_ENTRIES = 2**27  # of an array that is copied into its canonical order: 1 GB in float64; not tuned
N_ROUNDS = 10  # of telling slices apart; not tuned: continuous data need none, counts one or two
CHUNK = 2**17  # entries that are worked on at a time: they stay in the cache
ODD = np.uint64(0x9E3779B97F4A7C15)  # any large odd number

Numbers = Callable[[np.ndarray, np.ndarray | None], np.ndarray]  # of entries and weights to 64-bit integers


@dataclass(frozen=True, eq=False)
class Order:
    """An order of modes and of the slices along each.

    Parameters
    ----------
    modes : tuple of int
        The mode of the given tensor that comes first, second, ..
    rows : tuple of ndarray of int, (d_n,) each
        For each mode of the given tensor, which slice comes first, second, ..
    """

    modes: tuple[int, ...]
    rows: tuple[np.ndarray, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the given tensor."""
        return tuple(map(len, self.rows))

    @cached_property
    def is_given(self) -> bool:
        """Return True if everything stays where it is."""
        return list(self.modes) == sorted(self.modes) and all(np.all(np.diff(rows) > 0) for rows in self.rows)

    @cached_property
    def inverse(self) -> "Order":
        """Return the order that puts back."""
        modes = np.argsort(self.modes).tolist()
        return Order(tuple(modes), tuple(np.argsort(self.rows[n]) for n in self.modes))

    def places(self, modes: Sequence[int]) -> tuple[int, ...]:
        """Return where modes of the given tensor stand, sorted."""
        return tuple(sorted(self.modes.index(n) for n in modes))

    def array(self, X: np.ndarray) -> np.ndarray:
        """Return an array in this order, C-contiguous; X itself if it is so already."""
        if self.is_given:
            return np.ascontiguousarray(X)
        axes = memory_order(X)
        source, rows = np.ascontiguousarray(X.transpose(axes)), [self.rows[n] for n in axes]
        found = np.empty([X.shape[n] for n in self.modes], dtype=X.dtype)
        view = found.transpose(np.argsort(self.modes)[axes])  # its modes in the order of the source
        step = n_rows(source)
        for start in range(0, len(source), step):
            part = source.take(rows[0][start : start + step], 0, mode="clip")  # without the check of each index
            for axis, each in enumerate(rows[1:], 1):
                part = part.take(each, axis, mode="clip")
            view[start : start + step] = part
        return found

    def without(self, mode: int) -> "Order":
        """Return the order of the other modes."""
        modes = tuple(n - (n > mode) for n in self.modes if n != mode)
        return Order(modes, self.rows[:mode] + self.rows[mode + 1 :])

    def decompositions(self, given: Iterable[BooleanCP]) -> tuple[BooleanCP, ...]:
        """Return decompositions in this order; atoms that they share stay shared."""
        if self.is_given:
            return tuple(given)
        known: dict[int, tuple[Atom, Atom]] = {}  # with each atom, so that no other has its id
        return tuple(self._decomposition(W, known) for W in given)

    def _decomposition(self, W: BooleanCP, known: dict[int, tuple[Atom, Atom]]) -> BooleanCP:
        known |= {id(atom): (atom, self._atom(atom)) for atom in W.atoms if id(atom) not in known}

        def of_bits(found: tuple[np.ndarray, ...] | None) -> tuple[np.ndarray, ...] | None:
            pairs = zip(W.atoms, found or (), strict=found is not None)
            return None if found is None else tuple(values[self.rows[atom.mode]] for atom, values in pairs)

        trust = W.trust and replace(W.trust, rise=of_bits(W.trust.rise), share=of_bits(W.trust.share))
        empty = W.undetermined and {self.modes.index(n): rows[self.rows[n]] for n, rows in W.undetermined.items()}
        return replace(
            W,
            shape=tuple(W.shape[n] for n in self.modes),
            atoms=tuple(known[id(atom)][1] for atom in W.atoms),
            undetermined=empty,
            trust=trust,
        )

    def _atom(self, atom: Atom) -> Atom:
        factors, block = atom.factors, atom.block
        if factors is not None:
            factors = tuple(atom.columns(n)[self.rows[n]] for n in self.modes if n != atom.mode)
        else:
            block = self.without(atom.mode).array(atom.dense_block())
        return replace(
            atom, mode=self.modes.index(atom.mode), z=atom.z[self.rows[atom.mode]], factors=factors, block=block
        )

    def records(self, history: Sequence[AtomRecord]) -> tuple[AtomRecord, ...]:
        """Return the records of a pursuit with the modes of this order."""
        return tuple(replace(each, mode=self.modes.index(each.mode)) for each in history)


def memory_order(X: np.ndarray) -> np.ndarray:
    """Return the modes of an array from that of the largest stride to that of the smallest."""
    return np.argsort([-abs(stride) for stride in X.strides], kind="stable")


def n_rows(X: np.ndarray) -> int:
    """Return how many slices along the first mode are worked on at a time."""
    return max(1, CHUNK * len(X) // X.size)


def given_order(shape: Sequence[int]) -> Order:
    """Return the order of a tensor as it is."""
    return Order(tuple(range(len(shape))), tuple(np.arange(d) for d in shape))


def in_order(
    X: np.ndarray, observed: np.ndarray | None, weights: np.ndarray | None
) -> tuple[Order, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return the canonical order of a tensor, and it with its mask and its weights in that order, in float64.

    Arrays from 2^24 entries on keep their dtype, and those of more than 2^27 entries also their order.
    """
    X = X.astype(float, copy=False) if X.size < BIG else X
    if X.size > MAX_ENTRIES:
        return given_order(X.shape), X, observed, weights
    seen = observed
    if weights is not None:
        seen = weights > 0 if observed is None else observed & (weights > 0)
    n, known = (X.size, True) if seen is None else (int(np.count_nonzero(seen)), seen)
    largest = max(np.fmax.reduce(X, None, initial=0, where=known), -np.fmin.reduce(X, None, initial=0, where=known))
    order = canonical_order(partial(slice_sums, X, seen, weights), float(largest), n)
    observed, weights = (None if each is None else order.array(each) for each in (observed, weights))
    return order, order.array(X), observed, weights


def list_in_order(
    indices: np.ndarray, values: np.ndarray, shape: Sequence[int], weights: np.ndarray | None
) -> tuple[Order, np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the canonical order of a tensor given by its observed entries, and these with their weights in it."""
    if weights is not None:
        indices, values, weights = (each[weights > 0] for each in (indices, values, weights))
    values = values.astype(float, copy=False) if len(values) < BIG else values
    if len(values) > MAX_ENTRIES:
        return given_order(shape), indices, values, weights
    sums = partial(listed_sums, indices, values, weights, tuple(shape))
    order = canonical_order(sums, float(np.abs(values).max()), len(values))
    moved = [order.inverse.rows[i][indices[:, n]] for i, n in enumerate(order.modes)]
    sequence = np.lexsort(moved[::-1])
    weights = None if weights is None else weights[sequence]
    return order, np.stack(moved, axis=1)[sequence], values[sequence], weights


def canonical_order(sums: Callable[..., list[np.ndarray]], largest: float, n_entries: int) -> Order:
    """Return the order of modes by size and of slices by their sum of magnitudes.

    `sums(numbers, factors)` are those of integers over the slices along each mode, which no order of summation
    changes. Slices with the same sum are told apart by sums of scrambled entries, multiplied by what is known of the
    other slices that each of them lies in: the refinement of colors by which graphs are compared [1]_. What is then
    still alike, such as equal slices, stays as it is.

    References
    ----------
    .. [1] B. Weisfeiler and A. Leman, "The reduction of a graph to canonical form and the algebra which appears
       therein" (1968).
    """
    totals = sums(magnitudes(largest, n_entries), ())
    colors = [np.unique(each, return_inverse=True)[1].reshape(-1) for each in totals]
    names: list[tuple[Any, ...]] = [(len(each), np.sort(each).tobytes()) for each in totals]
    for _ in range(N_ROUNDS):
        n_colors = [each.max() + 1 for each in colors]
        if n_colors == [len(each) for each in colors] and len(set(names)) == len(names):
            break
        found = sums(scrambled, [scramble(each.astype(np.uint64)) | np.uint64(1) for each in colors])
        colors = [finer(*pair) for pair in zip(colors, found, strict=True)]
        names = [(*name, np.sort(each).tobytes()) for name, each in zip(names, found, strict=True)]
        if n_colors == [each.max() + 1 for each in colors]:
            break
    modes = sorted(range(len(names)), key=names.__getitem__)
    return Order(tuple(modes), tuple(np.argsort(each, kind="stable") for each in colors))


def finer(colors: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return the rank of each slice by its color, and by its sum where colors are equal."""
    order = np.lexsort((sums, colors))
    is_new = (np.diff(colors[order]) != 0) | (sums[order][1:] != sums[order][:-1])
    ranks = np.empty(len(colors), dtype=int)
    ranks[order] = np.append(0, np.cumsum(is_new))
    return ranks


def slice_sums(
    X: np.ndarray,
    seen: np.ndarray | None,
    weights: np.ndarray | None,
    numbers: Numbers,
    factors: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Return the sums of all slices along each mode, (d_n,) each, of integers made of observed entries, mod 2^64.

    With `factors` (d_n,), each number is first multiplied by those of the slices that it lies in.
    """
    axes = memory_order(X)
    x, seen, weights = (None if each is None else each.transpose(axes) for each in (X, seen, weights))
    assert x is not None
    sums, factors, step = (
        [np.zeros(d, dtype=np.uint64) for d in x.shape],
        [factors[n] for n in axes if factors],
        n_rows(x),
    )
    for start in range(0, len(x), step):
        here = slice(start, start + step)
        part = x[here] if seen is None else np.where(seen[here], x[here], 0)
        q = numbers(part, None if weights is None else weights[here])
        q = q if seen is None else q * seen[here]
        for axis, each in enumerate(factors):
            q *= np.expand_dims(each[here] if axis == 0 else each, tuple(range(1, x.ndim - axis)))
        for axis in reversed(range(1, x.ndim)):
            sums[axis] += q.reshape(-1, q.shape[axis]).sum(axis=0)
            q = q.sum(axis=axis)
        sums[0][here] = q
    return [sums[at] for at in np.argsort(axes)]


def listed_sums(
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray | None,
    shape: tuple[int, ...],
    numbers: Numbers,
    factors: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Return the same sums for a list of observed entries."""
    q = numbers(values, weights)
    for each, column in zip(factors, indices.T, strict=False):
        q *= each[column]
    sums = [np.zeros(d, dtype=np.uint64) for d in shape]
    for total, column in zip(sums, indices.T, strict=True):
        np.add.at(total, column, q)
    return sums


def magnitudes(largest: float, n_entries: int) -> Numbers:
    """Return the function of entries to |x| as integers, so large that their sum just does not overflow."""
    unit = 2.0 ** (min(52, 62 - n_entries.bit_length()) - int(np.frexp(largest)[1]))

    def numbers(x: np.ndarray, _: np.ndarray | None) -> np.ndarray:
        size = np.abs(x, dtype=float)
        size *= unit
        return size.astype(np.int64).view(np.uint64)

    return numbers


def scrambled(x: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return entries as integers that look random: equal ones for equal entries with equal weights."""
    q = (x.astype(float) + 0.0).view(np.uint64) + ODD  # -0.0 is 0.0
    return scramble(q if weights is None else q + weights.astype(float).view(np.uint64) * ODD)


def scramble(q: np.ndarray) -> np.ndarray:
    """Return 64-bit integers mixed by the last steps of SplitMix64, one to one."""
    q = (q ^ (q >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    q = (q ^ (q >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return q ^ (q >> np.uint64(31))
