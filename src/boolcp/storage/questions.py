"""The questions to a slab of a lazy tensor.

Each takes the storage of a slab, its rows of arrays along the cut, and constants. It returns two lists: arrays to be
summed over the slabs, and rows to be joined.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from boolcp.checks import RANGES
from boolcp.result.atoms import BooleanCP
from boolcp.storage.dense import DenseTensor
from boolcp.storage.observed import MaskedTensor
from boolcp.storage.protocol import Decide, Factors, Storage
from boolcp.storage.slabs import part_of

Rows = Sequence[np.ndarray]  # the rows of a slab in each array along the cut
Parts = tuple[list[Any], list[Any]]  # (to be summed, to be joined)


def ask_first(data: DenseTensor, rows: Rows, cut: int, modes: Sequence[int], blocks: Mapping[int, np.ndarray]) -> Parts:
    """Return |X|^2, the infinities, the observed entries along each mode, Gram matrices, sketches; the largest entry.

    The slab is as it was read. Only one whose norm is not finite is looked at entry by entry.
    """
    low, high = RANGES[str(data.dtype)]
    norm, n_infinite = data.squared_norm, 0
    counts = [data.n_observed_along(n) for n in range(data.ndim)]
    largest = np.array([np.sqrt(norm)])  # at least as large, and of the same use
    if not (np.isfinite(norm) and largest[0] <= high and np.sqrt(norm / data.n_observed) >= low):
        X = data.to_array()
        known = MaskedTensor(X, ~np.isnan(X))
        counts = [known.n_observed_along(n) for n in range(data.ndim)]
        data = DenseTensor(known.to_array())
        largest = np.array([max(data.to_array().max(), -data.to_array().min())])
        n_infinite = int(np.isinf(data.to_array()).sum()) if np.isinf(largest[0]) else 0
    is_usable = largest[0] <= high  # otherwise products overflow, and X is refused
    grams = [data.gram(n) for n in modes] if is_usable else []
    sketches = [data.gram_times(n, Q) for n, Q in blocks.items()] if is_usable else []
    norm = data.squared_norm if is_usable else np.inf
    sums = [norm, n_infinite, *(count for n, count in enumerate(counts) if n != cut), Terms(grams), Terms(sketches)]
    return sums, [counts[cut], largest]


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
    own = slice(int(rows[0][0]), int(rows[0][-1]) + 1)
    part = part_of(W, tuple(own if n == cut else slice(None) for n in range(data.ndim)))
    return [data.residual(replace(part, weights=c)).gram(mode) for mode, group in weights.items() for c in group], []


def ask_norm(data: Storage, rows: Rows) -> Parts:
    """Return |X|^2."""
    return [data.squared_norm], []


def ask_contract_cut(data: Storage, rows: Rows, mode: int, pending: Sequence[int]) -> Parts:
    """Return the share of a slab in a contraction along the mode of the cut."""
    return [data.contract(mode, rows[0]), *(data.gram(n) for n in pending)], []


def ask_contract(data: Storage, rows: Rows, mode: int, Z: np.ndarray, at: int, pending: Sequence[int]) -> Parts:
    """Return a slab contracted along a mode other than that of the cut, which goes first."""
    return [data.gram(n) for n in pending], [np.ascontiguousarray(np.moveaxis(data.contract(mode, Z), at, 0))]


def ask_sketches(data: DenseTensor, rows: Rows, blocks: Mapping[int, np.ndarray]) -> Parts:
    """Return the shares of a slab in X_n X_n'Q, one for each mode n with a block Q."""
    return [data.gram_times(n, Q) for n, Q in blocks.items()], []


def ask_core(
    data: DenseTensor,
    rows: Rows,
    cut: int,
    bases: Mapping[int, np.ndarray],
    pending: Sequence[int],
    blocks: Mapping[int, np.ndarray],
) -> Parts:
    """Return a slab contracted with the bases of several modes, Gram matrices and sketches.

    It is a share of the sum if the mode of the cut has a basis, whose rows come first, else rows of the whole.
    """
    grams = [data.gram(n) for n in pending]
    sketches = [data.gram_times(n, Q) for n, Q in blocks.items()]
    for n in sorted(bases, reverse=True):
        data = data.reduced(n, rows[0] if n == cut else bases[n])
    core = data.to_array()
    if cut in bases:
        return [core, *grams, *sketches], []
    return [*grams, *sketches], [np.ascontiguousarray(np.moveaxis(core, cut, 0))]


def ask_project_cut(data: Storage, rows: Rows, mode: int, blocks: np.ndarray) -> Parts:
    """Return the inner products of the rows of a slab with blocks."""
    return [], [np.asarray(data.project(mode, blocks), dtype=float)]


def ask_project(data: Storage, rows: Rows, mode: int, at: int) -> Parts:
    """Return the share of a slab in the inner products along a mode other than that of the cut."""
    return [np.asarray(data.project(mode, np.moveaxis(rows[0], 0, at)), dtype=float)], []


def ask_mttkrp(data: Storage, rows: Rows, cut: int, factors: Sequence[np.ndarray | None]) -> Parts:
    """Return the MTTKRP of all modes: the rows of the cut, shares of the others."""
    whole = with_rows(factors, cut, rows[0])
    products = [np.asarray(data.mttkrp(whole, n), dtype=float) for n in range(data.ndim)]
    return [P for n, P in enumerate(products) if n != cut], [products[cut]]


def ask_equations(data: Storage, rows: Rows, cut: int, mode: int, factors: Sequence[np.ndarray | None]) -> Parts:
    """Return H and P over observed entries: rows if the mode is that of the cut, else shares."""
    H, P = data.normal_equations(with_rows(factors, cut, rows[0]), mode)
    return ([], [H, P]) if mode == cut else ([H, P], [])


def ask_update(data: Storage, rows: Rows, mode: int, factors: Sequence[np.ndarray | None], decide: Decide) -> Parts:
    """Return the new rows, and the slab contracted with them."""
    A = decide(np.asarray(data.mttkrp(with_rows(factors, mode, rows[0]), mode), dtype=float), current=rows[0])
    return [np.ascontiguousarray(data.contract(mode, A))], [A]


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


def ask_entries(data: Storage, rows: Rows, cut: int) -> Parts:
    """Return the entries of a slab, the mode of the cut first."""
    return [], [np.ascontiguousarray(np.moveaxis(data.to_array(), cut, 0))]


def with_rows(factors: Sequence[np.ndarray | None], cut: int, rows: np.ndarray) -> Factors:
    """Return the factors with the rows of a slab along the mode of the cut."""
    return [rows if n == cut or A is None else A for n, A in enumerate(factors)]
