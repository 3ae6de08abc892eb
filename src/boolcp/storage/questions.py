"""What is asked of a slab of a lazy tensor: (its storage, its rows, ..) -> arrays to be summed, rows to be joined."""

from dataclasses import replace

import numpy as np

from boolcp.checks import RANGES
from boolcp.storage.long import short_gram
from boolcp.storage.slabs import part_of


def ask_first(data, rows, cut, modes):
    """Return |X|^2, the infinities, the observed entries along each mode, Gram matrices; and the largest entry."""
    largest = np.array([max(data._array.max(), -data._array.min())])
    n_infinite = int(np.isinf(data._array).sum()) if np.isinf(largest[0]) else 0
    counts = [data.n_observed_along(n) for n in range(data.ndim)]
    is_usable = largest[0] <= RANGES[str(data.dtype)][1]  # else products overflow, and X is refused
    grams = [data.gram(n) for n in modes] if is_usable else []
    norm = data.squared_norm if is_usable else np.inf
    sums = [norm, n_infinite, *(count for n, count in enumerate(counts) if n != cut), Terms(grams)]
    return sums, [counts[cut], largest]


class Terms(list):
    """Arrays that are added one by one; none at all is zero."""

    def __add__(self, other):
        return Terms([a + b for a, b in zip(self, other, strict=True)] if self and other else [])


def ask_grams(data, rows, modes):
    """Return Gram matrices."""
    return [data.gram(n) for n in modes], []


def ask_column_gram(data, rows, mode):
    """Return the share of a slab in X_n'X_n, n being the mode of the cut."""
    return [short_gram(data, mode)], []


def ask_residual_grams(data, rows, cut, mode, W, weights):
    """Return the share of a slab in the Gram matrices of residuals, one for each row of weights."""
    own = slice(int(rows[0][0]), int(rows[0][-1]) + 1)
    part = part_of(W, tuple(own if n == cut else slice(None) for n in range(data.ndim)))
    return [data.residual(replace(part, weights=row)).gram(mode) for row in weights], []


def ask_norm(data, rows):
    """Return |X|^2."""
    return [data.squared_norm], []


def ask_contract_cut(data, rows, mode, pending):
    """Return the share of a slab in a contraction along the mode of the cut."""
    return [data.contract(mode, rows[0]), *(data.gram(n) for n in pending)], []


def ask_contract(data, rows, mode, Z, at, pending):
    """Return a slab contracted along another mode; the rows of the cut go first."""
    return [data.gram(n) for n in pending], [np.ascontiguousarray(np.moveaxis(data.contract(mode, Z), at, 0))]


def ask_project_cut(data, rows, mode, blocks):
    """Return the inner products of the rows of a slab with blocks."""
    return [], [np.asarray(data.project(mode, blocks), dtype=float)]


def ask_project(data, rows, mode, at):
    """Return the share of a slab in the inner products along another mode."""
    return [np.asarray(data.project(mode, np.moveaxis(rows[0], 0, at)), dtype=float)], []


def ask_mttkrp(data, rows, cut, factors):
    """Return the MTTKRP of all modes: the rows of the cut, shares of the others."""
    factors = with_rows(factors, cut, rows[0])
    products = [np.asarray(data.mttkrp(factors, n), dtype=float) for n in range(data.ndim)]
    return [P for n, P in enumerate(products) if n != cut], [products[cut]]


def ask_equations(data, rows, cut, mode, factors):
    """Return H and P over observed entries: rows if the mode is that of the cut, else shares."""
    H, P = data.normal_equations(with_rows(factors, cut, rows[0]), mode)
    return ([], [H, P]) if mode == cut else ([H, P], [])


def ask_update(data, rows, mode, factors, decide):
    """Return the rows decided, and the slab contracted with them."""
    A = decide(np.asarray(data.mttkrp(with_rows(factors, mode, rows[0]), mode), dtype=float), current=rows[0])
    return [np.ascontiguousarray(data.contract(mode, A))], [A]


def ask_entries(data, rows, cut):
    """Return the entries of a slab, the mode of the cut first."""
    return [], [np.ascontiguousarray(np.moveaxis(data.to_array(), cut, 0))]


def with_rows(factors, cut, rows):
    """Return the factors with the rows of a slab along the mode of the cut."""
    return [rows if n == cut else A for n, A in enumerate(factors)]
