"""Tensors with missing entries: a masked array, and a list of observed entries for when they are few.

The loss is the sum of squares over the observed entries. Its gradient is zero elsewhere, so gram, contract, project
and mttkrp answer for the tensor with zeros in the missing places, and normal_equations has one matrix for each row.
"""

from functools import cached_property

import numpy as np
import scipy.sparse

from boolcp import contractions
from boolcp.storage._row_kernels import accumulate_rows
from boolcp.storage.dense import DenseTensor
from boolcp.threads import pass_over_data

FEW_MISSING = 0.7  # share of observed entries from which the missing ones are subtracted instead
SPARSE = 0.05  # share of observed entries below which they are listed


class MaskedTensor(DenseTensor):
    """A dense array with a mask, True where observed; the values elsewhere are never read."""

    is_complete = False

    def __init__(self, X, mask):
        super().__init__(np.where(mask, X, X.dtype.type(0)))
        self._mask = np.ascontiguousarray(mask.transpose(self._order))

    @cached_property
    def n_observed(self):
        """Number of observed entries."""
        return int(np.count_nonzero(self._mask))

    def n_observed_along(self, mode):
        """Return the number of observed entries in each slice along `mode`, (d_n,)."""
        at = self._order.index(mode)
        return np.count_nonzero(self._mask, axis=tuple(n for n in range(self.ndim) if n != at))

    @pass_over_data
    def normal_equations(self, factors, mode):
        """Return H (d_n, K, K) and P (d_n, K): row i of the factor that fits best solves H_i a = p_i."""
        P = np.asarray(self.mttkrp(factors, mode), dtype=float)
        if self.n_observed >= FEW_MISSING * self._mask.size:
            H = contractions.gram_product(factors, mode) - self._missing.normal_equations(factors, mode)[0]
            H[self.n_observed_along(mode) == 0] = 0  # rounding is all that is left of such rows
            return H, P
        return self._row_grams(factors, mode), P

    @cached_property
    def _missing(self):
        """The list of missing entries, with values that are not used."""
        indices = np.argwhere(~self._mask)[:, np.argsort(self._order)]
        return ListedTensor(indices, np.zeros(len(indices)), self.shape)

    def _row_grams(self, factors, mode):
        """Return H (d_n, K, K): H_i is the Gram of the other factors' products at the observed entries of row i."""
        ordered, at = [np.asarray(factors[n], dtype=float) for n in self._order], self._order.index(mode)
        K = ordered[0].shape[1]
        rows, columns = np.tril_indices(K)
        mask = contractions.around(self._mask, at)
        d = mask.shape[1]
        lower = np.zeros((d, len(rows)))
        before = contractions.khatri_rao(ordered[:at]) if at else np.ones((1, K))
        after = contractions.khatri_rao(ordered[at + 1 :]) if at + 1 < self.ndim else np.ones((1, K))
        for part, product in _products(before, after, max(1, contractions.CHUNK // len(rows))):
            squares = product[:, rows] * product[:, columns]
            lower += _columns(mask, part).astype(float) @ squares
        H = np.empty((d, K, K))
        H[:, rows, columns] = H[:, columns, rows] = lower
        return H

    def residual(self, W):
        """Return the tensor of X - W on the observed entries, zero elsewhere."""
        if W.n_atoms == 0:
            return self
        R = np.ascontiguousarray(W.to_tensor().transpose(self._order), dtype=self.dtype)
        np.subtract(self._array, R, out=R)
        R *= self._mask
        return DenseTensor(self._in_place(R))

    def observed(self):
        """Return the tensor of ones at the observed entries, zero elsewhere."""
        return DenseTensor(self._in_place(self._mask.astype(float)))

    def restrict(self, W):
        """Return the tensor of W on the observed entries, zero elsewhere."""
        values = np.ascontiguousarray(W.to_tensor().transpose(self._order))
        values *= self._mask
        return DenseTensor(self._in_place(values))

    def filled(self):
        """Return the complete tensor with zeros in the missing places and the others scaled up to make up for them."""
        scale = self.dtype.type(self._array.size / self.n_observed)
        return DenseTensor(self._in_place(self._array * scale))


def _products(before, after, size):
    """Yield (slices, rows) of the Khatri-Rao product of `before` and `after` in parts of about `size` rows."""
    if len(before) == 1:
        for start in range(0, len(after), size):
            yield (slice(None), slice(start, start + size)), before * after[start : start + size]
        return
    step = max(1, size // len(after))
    for start in range(0, len(before), step):
        product = before[start : start + step, None, :] * after[None]
        yield (slice(start, start + step), slice(None)), product.reshape(-1, after.shape[1])


def _columns(mask, part):
    """Return the columns of the unfolded mask that belong to a part of the Khatri-Rao product, (d, columns)."""
    left, across = part
    return mask[left, :, across].transpose(1, 0, 2).reshape(mask.shape[1], -1)


class ListedTensor:
    """A list of observed entries: indices (n_observed, N) and values; its cost grows with their number."""

    is_complete = False

    def __init__(self, indices, values, shape):
        self.shape = tuple(int(d) for d in shape)
        self.indices, self.values = np.ascontiguousarray(indices, dtype=np.int64), np.ascontiguousarray(values)
        self.dtype = values.dtype

    @property
    def ndim(self):
        """Return the order N."""
        return len(self.shape)

    @property
    def n_observed(self):
        """Return the number of observed entries."""
        return len(self.values)

    def n_observed_along(self, mode):
        """Return the number of observed entries in each slice along `mode`, (d_n,)."""
        return np.bincount(self.indices[:, mode], minlength=self.shape[mode])

    @cached_property
    def squared_norm(self):
        """|X|^2 over the observed entries."""
        return float(np.sum(np.square(self.values, dtype=float)))

    def _others(self, mode):
        """Return the flat index of each entry in the other modes, and their sizes."""
        others = [n for n in range(self.ndim) if n != mode]
        sizes = tuple(self.shape[n] for n in others)
        return np.ravel_multi_index(tuple(self.indices[:, n] for n in others), sizes), sizes

    def has_gram(self, mode):
        """Return True: the Gram matrix can always be computed."""
        return True

    def gram(self, mode):
        """Return X_n X_n' (d_n, d_n)."""
        flat, sizes = self._others(mode)
        shape = (self.shape[mode], int(np.prod(sizes, dtype=np.int64)))
        unfolding = scipy.sparse.csr_array((self.values.astype(float), (self.indices[:, mode], flat)), shape=shape)
        return (unfolding @ unfolding.T).toarray()

    def contract(self, mode, Z):
        """Return sum_i X[.., i, ..] Z[i, k], (K, other modes)."""
        flat, sizes = self._others(mode)
        Z = np.asarray(Z, dtype=float)
        size = int(np.prod(sizes, dtype=np.int64))
        rows = self.indices[:, mode]
        blocks = [np.bincount(flat, self.values * column[rows], minlength=size) for column in Z.T]
        return np.stack(blocks).reshape(-1, *sizes)

    def reduced(self, mode, U):
        """Return the tensor contracted with the columns of U along one mode, which stays in its place."""
        return DenseTensor(np.ascontiguousarray(np.moveaxis(self.contract(mode, U), 0, mode)))

    def project(self, mode, blocks):
        """Return X_n vec(V_k), (d_n, K)."""
        flat, _ = self._others(mode)
        rows, d = self.indices[:, mode], self.shape[mode]
        columns = [np.bincount(rows, self.values * np.asarray(V).reshape(-1)[flat], minlength=d) for V in blocks]
        return np.stack(columns, axis=1)

    def mttkrp(self, factors, mode):
        """Return X_n times the Khatri-Rao product of the other factors, (d_n, K)."""
        return self._accumulate(factors, mode, False)[1]

    def normal_equations(self, factors, mode):
        """Return H (d_n, K, K) and P (d_n, K): row i of the factor that fits best solves H_i a = p_i."""
        return self._accumulate(factors, mode, True)

    def _accumulate(self, factors, mode, with_gram):
        d, K = self.shape[mode], factors[0].shape[1]
        H, P = np.zeros((d, K, K) if with_gram else (1, K, K)), np.zeros((d, K))
        stacked = np.zeros((self.ndim, max(self.shape), K))
        for n, A in enumerate(factors):
            stacked[n, : len(A)] = A
        accumulate_rows(self.indices, self.values, stacked, mode, H, P, with_gram)
        return (np.tril(H) + np.tril(H, -1).transpose(0, 2, 1) if with_gram else H), P

    def residual(self, W):
        """Return the list of X - W at the observed entries."""
        if W.n_atoms == 0:
            return self
        return ListedTensor(self.indices, self.values - W.at(self.indices).astype(self.dtype), self.shape)

    def observed(self):
        """Return the list of ones at the observed entries."""
        return ListedTensor(self.indices, np.ones(self.n_observed), self.shape)

    def restrict(self, W):
        """Return the list of W at the observed entries."""
        return ListedTensor(self.indices, W.at(self.indices), self.shape)

    def filled(self):
        """Return the list scaled up to make up for the missing entries, which count as zeros."""
        scale = self.dtype.type(np.prod(self.shape, dtype=float) / self.n_observed)
        return ListedTensor(self.indices, self.values * scale, self.shape)
