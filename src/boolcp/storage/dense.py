"""A complete tensor in memory (or in a memory map), and the residual of a complete tensor, which is never formed."""

from functools import cached_property

import numpy as np

from boolcp import contractions
from boolcp.threads import pass_over_data


class DenseTensor:
    """A complete array in any memory order, read through C-contiguous views; only a strided array is copied."""

    is_complete = True

    def __init__(self, X):
        self.shape = X.shape
        self.dtype = X.dtype
        order = np.argsort([-abs(stride) for stride in X.strides], kind="stable")
        self._order = tuple(int(n) for n in order)  # self._array has mode _order[i] at position i
        self._array = np.ascontiguousarray(X.transpose(self._order))
        self._grams = {}

    @property
    def ndim(self):
        """Return the order N."""
        return len(self.shape)

    def to_array(self):
        """Return the array with its modes in their own order, a view."""
        return self._in_place(self._array)

    def _in_place(self, array):
        """Return an array whose modes stand as those of `_array` with its modes in their own order, a view."""
        return array.transpose(np.argsort(self._order))

    @cached_property
    def squared_norm(self):
        """|X|^2, summed in float64, block by block, so that float32 keeps its digits."""
        flat, step = self._array.reshape(-1), contractions.CHUNK
        parts = (flat[start : start + step].astype(float, copy=False) for start in range(0, flat.size, step))
        return sum(float(part @ part) for part in parts)

    @pass_over_data
    def gram(self, mode):
        """Return X_n X_n' (d_n, d_n), computed once."""
        if mode not in self._grams:
            self._grams[mode] = contractions.gram(self._array, self._order.index(mode))
        return self._grams[mode]

    def has_gram(self, mode):
        """Return True: the Gram matrix can always be computed."""
        return True

    @pass_over_data
    def contract(self, mode, Z):
        """Return sum_i X[.., i, ..] Z[i, k], (K, other modes)."""
        blocks = contractions.contract(self._array, self._order.index(mode), Z)
        return blocks.transpose(0, *(1 + self._places(mode)))

    @pass_over_data
    def project(self, mode, blocks):
        """Return X_n vec(V_k), (d_n, K)."""
        places = np.argsort(self._places(mode))
        blocks = np.asarray(blocks).transpose(0, *(1 + places))
        return contractions.project(self._array, self._order.index(mode), blocks)

    @pass_over_data
    def mttkrp(self, factors, mode):
        """Return X_n times the Khatri-Rao product of the other factors, (d_n, K)."""
        return contractions.mttkrp(self._array, [factors[n] for n in self._order], self._order.index(mode))

    def normal_equations(self, factors, mode):
        """Return H (K, K) and P (d_n, K): row i of the factor that fits best solves H a = p_i."""
        return contractions.gram_product(factors, mode), np.asarray(self.mttkrp(factors, mode), dtype=float)

    def update(self, factors, mode, decide):
        """Return the factor A = decide(P, current) of one mode, and X contracted with it."""
        A = decide(np.asarray(self.mttkrp(factors, mode), dtype=float), current=factors[mode])
        return A, Contracted(self.contract(mode, A), mode)

    def reduced(self, mode, U):
        """Return the tensor contracted with the columns of U along one mode, which stays in its place."""
        return DenseTensor(np.ascontiguousarray(np.moveaxis(self.contract(mode, U), 0, mode)))

    def residual(self, W):
        """Return the storage of X - W."""
        return Difference(self, W)

    def _places(self, mode):
        """Return where the other modes, in their own order, stand in the array without `mode`."""
        rest = [n for n in self._order if n != mode]
        return np.array([rest.index(n) for n in range(self.ndim) if n != mode], dtype=int)


class Contracted:
    """X contracted along one mode with its factor, T_k with column k: all that the other modes' factors need of X.

    With `bases`, T is that of a core, and those of all modes lead from it to the full sizes.
    """

    def __init__(self, T, mode, bases=None):
        self.T, self.mode, self.bases = np.ascontiguousarray(T), mode, bases

    def scaled(self, sizes):
        """Return the same for the factor with its columns times `sizes` (K,)."""
        sizes = np.asarray(sizes, dtype=self.T.dtype).reshape(-1, *[1] * (self.T.ndim - 1))
        return Contracted(self.T * sizes, self.mode, self.bases)

    def normal_equations(self, factors, mode):
        """Return H (K, K) and P (d_n, K) for one of the other modes: row i of its best factor solves H a = p_i."""
        others = [n for n in range(len(factors)) if n != self.mode]
        matrices = [factors[n] if self.bases is None else self.bases[n].T @ factors[n] for n in others]
        P = contractions.column_mttkrp(self.T, matrices, others.index(mode))
        if self.bases is not None:
            P = self.bases[mode] @ P
        return contractions.gram_product(factors, mode), np.asarray(P, dtype=float)


class Difference:
    """X - W for complete data: every answer is that for X less that for the short sum W."""

    def __init__(self, data, W):
        self.data, self.W = data, W
        self.shape, self.ndim, self.dtype = data.shape, data.ndim, data.dtype

    @cached_property
    def squared_norm(self):
        """|X - W|^2 = |X|^2 - 2 <X, W> + |W|^2."""
        return max(self.data.squared_norm - 2 * self._inner() + self.W.squared_norm, 0.0)

    def _inner(self):
        W = self.W
        if W.n_atoms == 0:
            return 0.0
        if W.is_block:
            return sum(float(np.vdot(self.data.contract(mode, Z), blocks)) for mode, (Z, blocks) in W.groups.items())
        A = W.matrices
        return float(np.sum(self.data.mttkrp(A, 0) * (A[0] * W.column_weights)))

    def gram(self, mode):
        """Return X_n X_n' - P - P' + W_n W_n' with P = X_n W_n'."""
        W = self.W
        if W.n_atoms == 0:
            return self.data.gram(mode)
        cross = self._cross_gram(mode)
        C = self.data.gram(mode) - cross - cross.T + W.gram(mode)
        return (C + C.T) / 2

    def _cross_gram(self, mode):
        W = self.W
        if not W.is_block:
            return self.data.mttkrp(W.matrices, mode) @ (W.matrices[mode] * W.column_weights).T
        d = self.shape[mode]
        cross = np.zeros((d, d))
        for m, (Z, blocks) in W.groups.items():
            if m == mode:
                cross += self.data.project(mode, blocks) @ Z.T
            else:
                at = 1 + mode - (mode > m)
                X_blocks = np.moveaxis(self.data.contract(m, Z), at, 0).reshape(d, -1)
                cross += X_blocks @ np.moveaxis(blocks, at, 0).reshape(d, -1).T
        return cross

    def contract(self, mode, Z):
        """Return (X - W) times the columns of Z along one mode, (K, other modes)."""
        blocks = self.data.contract(mode, Z)
        return blocks if self.W.n_atoms == 0 else blocks - self.W.contract(mode, Z)

    def project(self, mode, blocks):
        """Return (X - W)_n vec(V_k), (d_n, K)."""
        columns = self.data.project(mode, blocks)
        return columns if self.W.n_atoms == 0 else columns - self.W.project(mode, blocks)

    def mttkrp(self, factors, mode):
        """Return (X - W)_n times the Khatri-Rao product of the other factors, (d_n, K)."""
        columns = self.data.mttkrp(factors, mode)
        return columns if self.W.n_atoms == 0 else columns - self.W.mttkrp(factors, mode)
