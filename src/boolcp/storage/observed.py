"""Tensors with missing entries: a masked array, and a list of observed entries for when they are few.

The loss is the sum of squares over the observed entries. Its gradient is zero elsewhere, so gram, contract, project
and mttkrp answer for the tensor with zeros in the missing places, and normal_equations has one matrix for each row.
"""

from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import scipy.sparse

from boolcp import contractions
from boolcp.result.atoms import BooleanCP
from boolcp.storage._row_kernels import accumulate_rows
from boolcp.storage.dense import ArrayStorage, DenseTensor, fingerprint, from_blocks
from boolcp.storage.protocol import Factors, ObservedStorage
from boolcp.threads import enough_threads

FEW_MISSING = (
    0.95  # from this share of observed entries on, the missing ones are subtracted; faster for 3 to 20 columns
)
ROUNDING = 1e-14  # difference of two columns, relative to the largest entry, that counts as none
SPARSE = 0.05  # below this share of observed entries they are listed; faster by benchmarks/bench_completion.py


@lru_cache(maxsize=128)
def lower_half(K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and the columns of the lower half of a matrix (K, K)."""
    return np.tril_indices(K)


def pairs_of(A: np.ndarray) -> np.ndarray:
    """Return the products of any two columns of a factor (d, K), (d, K (K + 1) / 2)."""
    first, second = lower_half(A.shape[1])
    return A[:, first] * A[:, second]


def with_pairs(A: np.ndarray) -> np.ndarray:
    """Return the products of any two columns of a factor, and the columns themselves."""
    return np.hstack([pairs_of(A), A])


def symmetric(lower: np.ndarray, K: int) -> np.ndarray:
    """Return matrices (d, K, K) from their lower halves, (d, K (K + 1) / 2)."""
    first, second = lower_half(K)
    H = np.empty((len(lower), K, K))
    H[:, first, second] = H[:, second, first] = lower
    return H


def sizes_beside(known: np.ndarray, A: np.ndarray) -> np.ndarray | None:
    """Return the sizes (K,) of the columns of A = known * sizes, up to rounding; None if there are none."""
    if known.shape != A.shape:
        return None
    largest = np.argmax(np.abs(known), axis=0), np.arange(A.shape[1])
    sizes = np.divide(A[largest], known[largest], out=np.ones(A.shape[1]), where=known[largest] != 0)
    is_same = np.all(np.abs(known * sizes - A) <= ROUNDING * np.abs(A).max(axis=0))
    return sizes if is_same else None


class MaskedTensor(ArrayStorage, ObservedStorage):
    """A dense array with a mask, True where observed; the values elsewhere are never read.

    With `is_zeroed`, X is zero there already, and is not copied.
    """

    _last_sums: tuple[np.ndarray, dict[int, np.ndarray]] = np.empty(0), {}  # last factor, and sums with it

    def __init__(self, X: np.ndarray, mask: np.ndarray, *, is_zeroed: bool = False) -> None:
        super().__init__(X if is_zeroed else np.where(mask, X, X.dtype.type(0)))
        self._mask = np.ascontiguousarray(mask.transpose(self._order))

    @property
    def mask(self) -> np.ndarray:
        """Return the mask with its modes in their own order, a view."""
        return self._in_place(self._mask)

    @property
    def _shares(self) -> np.ndarray:
        """Return by what each entry counts, in the memory order of `_array`: 1 where it is observed, else 0."""
        return self._mask

    def describe(self) -> dict[str, Any]:
        """Return shape, dtype, the number of observed entries, and the fingerprints of the entries and the mask."""
        return super().describe() | {"number of observed entries": self.n_observed, "mask": fingerprint(self.mask)}

    @cached_property
    def n_observed(self) -> int:
        """Number of observed entries."""
        return int(np.count_nonzero(self._mask))

    def n_observed_along(self, mode: int) -> np.ndarray:
        """Return the number of observed entries in each slice along `mode`, (d_n,)."""
        at = self._order.index(mode)
        return np.count_nonzero(self._mask, axis=tuple(n for n in range(self.ndim) if n != at))

    def normal_equations(self, factors: Factors, mode: int) -> tuple[np.ndarray, np.ndarray]:
        """Return H (d_n, K, K) and P (d_n, K): row i of the factor that fits best solves H_i a = p_i."""
        with enough_threads(self._array):
            if self._is_summed(mode, factors[0].shape[1]):
                return self._equations_of_sums(factors, mode)
            P = np.asarray(self.mttkrp(factors, mode), dtype=float)
            return self.row_grams(factors, mode), P

    def row_grams(self, factors: Factors, mode: int) -> np.ndarray:
        """Return H (d_n, K, K) of the normal equations."""
        if not self._are_few_missing:
            return self._row_grams(factors, mode)
        H = contractions.gram_product(factors, mode) - self._missing.normal_equations(factors, mode)[0]
        H[self.n_observed_along(mode) == 0] = 0  # only rounding errors are left in such rows
        return H

    @property
    def _are_few_missing(self) -> bool:
        """Return True if it is faster to subtract the missing entries."""
        return self.n_observed >= FEW_MISSING * self._mask.size

    @cached_property
    def _missing(self) -> "ListedTensor":
        """The list of missing entries; its values are not used."""
        indices = np.argwhere(~self._mask)[:, np.argsort(self._order)]
        return ListedTensor(indices, np.zeros(len(indices)), self.shape)

    def _row_grams(self, factors: Factors, mode: int) -> np.ndarray:
        """Return H (d_n, K, K): H_i is the Gram of the other factors' products at the observed entries of row i.

        It is the MTTKRP of the shares with the products of any two columns of each factor.
        """
        at, K, d = self._order.index(mode), factors[mode].shape[1], self.shape[mode]
        pairs = [np.empty((d, 0)) if n == mode else pairs_of(np.asarray(factors[n], float)) for n in self._order]
        lower = np.zeros((d, K * (K + 1) // 2))
        for part in self._parts:
            own = [pairs[0][part], *pairs[1:]]
            lower[part if at == 0 else slice(None)] += contractions.mttkrp(self._shares_in(part), own, at)
        return symmetric(lower, K)

    @cached_property
    def _parts(self) -> list[slice]:
        """Slices of the first axis of the shares, whose copies are small."""
        n, step = len(self._shares), max(1, contractions.CHUNK // max(self._shares[0].size, 1))
        return [slice(start, min(start + step, n)) for start in range(0, n, step)]

    @cached_property
    def _all_shares(self) -> np.ndarray:
        """The shares of a small tensor as numbers."""
        return self._shares.astype(float, copy=False)

    def _shares_in(self, part: slice) -> np.ndarray:
        """Return the shares of a part as numbers."""
        return self._all_shares if len(self._parts) == 1 else self._shares[part].astype(float, copy=False)

    def _is_summed(self, mode: int, K: int) -> bool:
        """Return True if sums over fibers along the last axis, which serve all other modes, are few enough."""
        d, n_sums = self._array.shape[-1], K * (K + 3) // 2
        is_short = n_sums <= d if len(self._parts) == 1 else 4 * n_sums <= d
        return is_short and mode != self._order[-1] and not self._are_few_missing

    def _equations_of_sums(self, factors: Factors, mode: int) -> tuple[np.ndarray, np.ndarray]:
        """Return H (d_n, K, K) and P (d_n, K) from sums over fibers.

        They are kept for the other modes of a sweep, which need those of the same columns, but for their sizes. The
        first mode has them computed: no digit depends on what was asked before a sweep.
        """
        *others, A = (np.asarray(factors[n], dtype=float) for n in self._order)
        at, K, columns = self._order.index(mode), A.shape[1], [with_pairs(B) for B in others]
        sizes = sizes_beside(self._last_sums[0], A) if at > 0 else None
        if sizes is None:
            sizes, self._last_sums = np.ones(K), (A.copy(), {})
        total = np.zeros((self.shape[mode], columns[0].shape[1]))
        for part in self._parts:
            own = [columns[0][part], *columns[1:]]
            T = self._sums_in(part).reshape(*map(len, own), -1)
            for n in range(len(own) - 1, -1, -1):
                if n != at:
                    T = np.einsum("...nq,nq->...q", np.moveaxis(T, n, -2), own[n])
            total[part if at == 0 else slice(None)] += T
        total *= with_pairs(sizes[None])
        return symmetric(total[:, :-K], K), total[:, -K:]

    def _sums_in(self, part: slice) -> np.ndarray:
        """Return the sums over the fibers of a part: of its shares with pairs of columns, and of its entries."""
        A, sums = self._last_sums
        if part.start not in sums:
            shares, entries = (X.reshape(-1, len(A)) for X in (self._shares_in(part), self._array[part]))
            sums[part.start] = np.hstack([shares @ pairs_of(A), entries @ A.astype(self.dtype, copy=False)])
        return sums[part.start]

    def residual(self, W: BooleanCP) -> "MaskedTensor":
        """Return X - W on the same observed entries."""
        if W.n_atoms == 0:
            return self
        R = np.ascontiguousarray(W.to_tensor().transpose(self._order), dtype=self.dtype)
        R *= self._shares
        np.subtract(self._array, R, out=R)
        return self._with(R)

    def observed(self) -> "MaskedTensor":
        """Return ones on the same observed entries."""
        return self._with(self._shares.astype(float))

    def restrict(self, W: BooleanCP) -> "MaskedTensor":
        """Return W on the same observed entries."""
        values = np.ascontiguousarray(W.to_tensor().transpose(self._order))
        values *= self._shares
        return self._with(values)

    def _with(self, values: np.ndarray) -> "MaskedTensor":
        """Return the tensor of other values, in the memory order of `_array` and zero where missing."""
        return MaskedTensor(self._in_place(values), self.mask, is_zeroed=True)

    def filled(self) -> DenseTensor:
        """Return the complete tensor with zeros at the missing entries and the others scaled up to compensate."""
        scale = self.dtype.type(self._array.size / self.n_observed)
        return DenseTensor(self._in_place(self._array * scale))


class WeightedTensor(MaskedTensor):
    """An array with a weight w >= 0 for each entry: the loss is sum w (x - W)^2, and w = 0 means missing.

    Its numbers are w x, those of its residual w (x - W), the gradient. So every question that is linear in the data
    is answered for the weighted loss; only the norm and the complete tensor divide by the weights.
    """

    is_weighted = True

    def __init__(self, X: np.ndarray, weights: np.ndarray, *, is_scaled: bool = False) -> None:
        mask = weights > 0
        super().__init__(X if is_scaled else np.where(mask, X, X.dtype.type(0)) * weights, mask, is_zeroed=True)
        self._weights = np.ascontiguousarray(weights.transpose(self._order), dtype=float)

    @property
    def _shares(self) -> np.ndarray:
        """Return the weights, in the memory order of `_array`."""
        return self._weights

    def _unweighted(self) -> np.ndarray:
        """Return the entries without their weights, in the memory order of `_array`."""
        return np.divide(self._array, self._weights, out=np.zeros_like(self._array), where=self._mask)

    def describe(self) -> dict[str, Any]:
        """Return shape, dtype, the number of observed entries, and the fingerprints of entries, mask and weights."""
        return super().describe() | {"weights": fingerprint(self._in_place(self._weights))}

    @cached_property
    def squared_norm(self) -> float:
        """The sum of w x^2, or of w (x - W)^2 for a residual."""
        return float(np.sum(self._array * self._unweighted(), dtype=float))

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return indices (n, N), values and weights (n,) of the observed entries."""
        indices = np.argwhere(self.mask)
        at = tuple(indices.T)
        return indices, self._in_place(self._unweighted())[at], self._in_place(self._weights)[at]

    @property
    def _are_few_missing(self) -> bool:
        """Return False: weights differ, missing or not."""
        return False

    def _with(self, values: np.ndarray) -> "WeightedTensor":
        """Return the tensor of other values, which are weighted already, in the memory order of `_array`."""
        return WeightedTensor(self._in_place(values), self._in_place(self._weights), is_scaled=True)

    def weights_along(self, mode: int) -> np.ndarray:
        """Return the sum of the weights of each slice along `mode`, (d_n,)."""
        at = self._order.index(mode)
        return self._weights.sum(axis=tuple(n for n in range(self.ndim) if n != at))

    @cached_property
    def median(self) -> float:
        """The median of the weights above zero."""
        return float(np.median(self._weights[self._mask])) if self._mask.any() else np.nan

    def shrunk(self, median: float) -> np.ndarray:
        """Return the entries, those that count less than the median one shrunk: their noise would drown the others."""
        return self._in_place((self._array / np.maximum(self._weights, median)).astype(self.dtype))

    def filled(self) -> DenseTensor:
        """Return the complete tensor with zeros in the missing places and the others scaled up to compensate for them.

        Entries that count less than the median one are shrunk.
        """
        return DenseTensor(self.shrunk(self.median) * self.dtype.type(self._array.size / self.n_observed))


class ListedTensor(ObservedStorage):
    """A list of observed entries: indices (n_observed, N) and values; its cost grows with their number.

    With `weights`, one for each entry, its numbers are w x, as in a WeightedTensor; `is_scaled` says they are already.
    """

    def __init__(
        self,
        indices: np.ndarray,
        values: np.ndarray,
        shape: tuple[int, ...],
        weights: np.ndarray | None = None,
        *,
        is_scaled: bool = False,
    ) -> None:
        self.shape = tuple(int(d) for d in shape)
        scaled = values if weights is None or is_scaled else (values * weights).astype(values.dtype)
        self.indices, self.values = np.ascontiguousarray(indices, dtype=np.int64), np.ascontiguousarray(scaled)
        self.weights = None if weights is None else np.ascontiguousarray(weights, dtype=float)
        self.dtype, self.is_weighted = values.dtype, weights is not None

    @property
    def _shares(self) -> np.ndarray:
        """Return by what each entry counts, its weight or 1."""
        return np.ones(self.n_observed) if self.weights is None else self.weights

    @property
    def n_observed(self) -> int:
        """Return the number of observed entries."""
        return len(self.values)

    @property
    def mask(self) -> np.ndarray:
        """Return an array of the shape of X, True at the entries of the list."""
        mask = np.zeros(self.shape, dtype=bool)
        mask[tuple(self.indices.T)] = True
        return mask

    def to_array(self) -> np.ndarray:
        """Return the array with zeros at the entries that are not in the list."""
        X = np.zeros(self.shape, dtype=self.dtype)
        X[tuple(self.indices.T)] = self.values
        return X

    def describe(self) -> dict[str, Any]:
        """Return shape, dtype, the number of observed entries, and the fingerprints of indices and values."""
        known = {"shape": list(self.shape), "dtype": str(self.dtype), "number of observed entries": self.n_observed}
        known |= {"indices": fingerprint(self.indices), "values": fingerprint(self.values)}
        return known if self.weights is None else known | {"weights": fingerprint(self.weights)}

    def n_observed_along(self, mode: int) -> np.ndarray:
        """Return the number of observed entries in each slice along `mode`, (d_n,)."""
        return np.bincount(self.indices[:, mode], minlength=self.shape[mode])

    @cached_property
    def squared_norm(self) -> float:
        """|X|^2 over the observed entries, weighted."""
        return float(np.sum(np.square(self.values, dtype=float) / self._shares))

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return indices (n, N), values and weights (n,) of the list."""
        return self.indices, self.values / self._shares, self.weights

    def _others(self, mode: int) -> tuple[np.ndarray, tuple[int, ...]]:
        """Return the flat index of each entry in the other modes, and their sizes."""
        others = [n for n in range(self.ndim) if n != mode]
        sizes = tuple(self.shape[n] for n in others)
        return np.ravel_multi_index(tuple(self.indices[:, n] for n in others), sizes), sizes

    def gram(self, mode: int) -> np.ndarray:
        """Return X_n X_n' (d_n, d_n)."""
        flat, sizes = self._others(mode)
        shape = (self.shape[mode], int(np.prod(sizes, dtype=np.int64)))
        unfolding = scipy.sparse.csr_array((self.values.astype(float), (self.indices[:, mode], flat)), shape=shape)
        return (unfolding @ unfolding.T).toarray()

    def contract(self, mode: int, Z: np.ndarray) -> np.ndarray:
        """Return sum_i X[.., i, ..] Z[i, k], (K, other modes)."""
        flat, sizes = self._others(mode)
        Z = np.asarray(Z, dtype=float)
        size = int(np.prod(sizes, dtype=np.int64))
        rows = self.indices[:, mode]
        blocks = [np.bincount(flat, self.values * column[rows], minlength=size) for column in Z.T]
        return np.stack(blocks).reshape(-1, *sizes)

    def reduced(self, mode: int, U: np.ndarray) -> DenseTensor:
        """Return the tensor contracted with the columns of U along one mode, which stays in its place."""
        return from_blocks(self.contract(mode, U), mode)

    def project(self, mode: int, blocks: np.ndarray) -> np.ndarray:
        """Return X_n vec(V_k), (d_n, K)."""
        flat, _ = self._others(mode)
        rows, d = self.indices[:, mode], self.shape[mode]
        columns = [np.bincount(rows, self.values * np.asarray(V).reshape(-1)[flat], minlength=d) for V in blocks]
        return np.stack(columns, axis=1)

    def mttkrp(self, factors: Factors, mode: int) -> np.ndarray:
        """Return X_n times the Khatri-Rao product of the other factors, (d_n, K)."""
        return self._accumulate(factors, mode, False)[1]

    def normal_equations(self, factors: Factors, mode: int) -> tuple[np.ndarray, np.ndarray]:
        """Return H (d_n, K, K) and P (d_n, K): row i of the factor that fits best solves H_i a = p_i."""
        return self._accumulate(factors, mode, True)

    def _accumulate(self, factors: Factors, mode: int, with_gram: bool) -> tuple[np.ndarray, np.ndarray]:
        d, K = self.shape[mode], factors[0].shape[1]
        H, P = np.zeros((d, K, K) if with_gram else (1, K, K)), np.zeros((d, K))
        stacked = np.zeros((self.ndim, max(self.shape), K))
        for n, A in enumerate(factors):
            stacked[n, : len(A)] = A
        accumulate_rows(self.indices, self.values, self._shares, stacked, mode, H, P, with_gram)
        return (np.tril(H) + np.tril(H, -1).transpose(0, 2, 1) if with_gram else H), P

    def residual(self, W: BooleanCP) -> "ListedTensor":
        """Return the list of X - W at the observed entries."""
        if W.n_atoms == 0:
            return self
        values = self.values - (self._shares * W.at(self.indices)).astype(self.dtype)
        return self._with(values)

    def observed(self) -> "ListedTensor":
        """Return the list of ones at the observed entries."""
        return self._with(self._shares)

    def restrict(self, W: BooleanCP) -> "ListedTensor":
        """Return the list of W at the observed entries."""
        return self._with(self._shares * W.at(self.indices))

    def _with(self, values: np.ndarray) -> "ListedTensor":
        """Return the list of other values, which are weighted already."""
        return ListedTensor(self.indices, values, self.shape, self.weights, is_scaled=True)

    def filled(self) -> "ListedTensor":
        """Return the list scaled up to compensate for the missing entries, those below the median weight shrunk.

        It stays a list: all answers except its normal equations treat the missing entries as zeros of a full tensor.
        """
        scale = np.prod(self.shape, dtype=float) / self.n_observed
        if self.weights is not None:
            scale = scale / np.maximum(self.weights, np.median(self.weights))
        return ListedTensor(self.indices, (self.values * scale).astype(self.dtype), self.shape)
