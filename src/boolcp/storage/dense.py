"""A complete tensor in memory (or in a memory map), and the residual of a complete tensor, which is never formed."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from boolcp import contractions
from boolcp.result.atoms import BooleanCP
from boolcp.storage.long import n_columns, unit_blocks
from boolcp.storage.protocol import CompleteStorage, Decide, Factors, Storage, Tensor
from boolcp.threads import BIG, enough_threads


class ArrayStorage(Storage):
    """An array in any memory order, read through C-contiguous views.

    A big array is copied only if it is strided. A smaller one is copied to C order, so that its memory order changes
    no digit of a fit.
    """

    _products: Sequence[tuple[Factors, list[np.ndarray]]] = ()  # (factors, MTTKRP of each mode) of the last questions

    def __init__(self, X: np.ndarray) -> None:
        self.shape = X.shape
        self.dtype = X.dtype
        order = np.argsort([-abs(stride) for stride in X.strides], kind="stable")
        # self._array has mode _order[i] at position i
        self._order = tuple(int(n) for n in (order if X.size >= BIG else range(X.ndim)))
        self._array = np.require(X.transpose(self._order), requirements=["C", "A"])  # what was sent may not be aligned
        self._grams: dict[int, np.ndarray] = {}

    def to_array(self) -> np.ndarray:
        """Return the array with its modes in their own order, a view."""
        return self._in_place(self._array)

    def _in_place(self, array: np.ndarray) -> np.ndarray:
        """Return an array in the memory order of `_array` with its modes in their own order, a view."""
        return array.transpose(np.argsort(self._order))

    def describe(self) -> dict[str, Any]:
        """Return shape, dtype and the fingerprint of the entries."""
        return {"shape": list(self.shape), "dtype": str(self.dtype), "values": fingerprint(self.to_array())}

    @cached_property
    def squared_norm(self) -> float:
        """|X|^2, summed in float64, block by block, so that float32 keeps its digits."""
        flat, step = self._array.reshape(-1), contractions.CHUNK
        parts = (flat[start : start + step].astype(float, copy=False) for start in range(0, flat.size, step))
        return sum(float(part @ part) for part in parts)

    def gram(self, mode: int) -> np.ndarray:
        """Return X_n X_n' (d_n, d_n), computed once."""
        with enough_threads(self._array):
            if mode not in self._grams:
                self._grams[mode] = contractions.gram(self._array, self._order.index(mode))
            return self._grams[mode]

    def gram_times(self, mode: int, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return X_n X_n'Q (d_n, k) in float64, without the Gram matrix, and X contracted with Q (k, other modes)."""
        with enough_threads(self._array):
            product, blocks = contractions.gram_times(self._array, self._order.index(mode), Q)
            return product, blocks.transpose(0, *(1 + self._places(mode)))

    def unfold(self, mode: int) -> np.ndarray:
        """Return X_n (d_n, c_n) in float64, a copy."""
        return np.array(np.moveaxis(self.to_array(), mode, 0), dtype=float, order="C").reshape(self.shape[mode], -1)

    def column_gram(self, mode: int) -> np.ndarray:
        """Return X_n'X_n (c_n, c_n) in float64, summed part by part."""
        array = np.moveaxis(self.to_array(), mode, 0)
        c = n_columns(self, mode)
        total, step = np.zeros((c, c)), max(1, contractions.CHUNK // c)
        for start in range(0, len(array), step):
            part = np.asarray(array[start : start + step], dtype=float).reshape(-1, c)
            total += part.T @ part
        return total

    def contract(self, mode: int, Z: np.ndarray) -> np.ndarray:
        """Return sum_i X[.., i, ..] Z[i, k], (K, other modes)."""
        with enough_threads(self._array):
            blocks = contractions.contract(self._array, self._order.index(mode), Z)
            return blocks.transpose(0, *(1 + self._places(mode)))

    def project(self, mode: int, blocks: np.ndarray) -> np.ndarray:
        """Return X_n vec(V_k), (d_n, K)."""
        with enough_threads(self._array):
            places = np.argsort(self._places(mode))
            blocks = np.asarray(blocks).transpose(0, *(1 + places))
            return contractions.project(self._array, self._order.index(mode), blocks)

    def mttkrp(self, factors: Factors, mode: int) -> np.ndarray:
        """Return X_n times the Khatri-Rao product of the other factors, (d_n, K), which may be known already."""
        for known, products in self._products:
            if all(map(np.array_equal, known, factors)):
                return products[mode]
        with enough_threads(self._array):
            return contractions.mttkrp(self._array, [factors[n] for n in self._order], self._order.index(mode))

    def reduced(self, mode: int, U: np.ndarray) -> "DenseTensor":
        """Return the tensor contracted with the columns of U along one mode, which stays in its place."""
        return from_blocks(self.contract(mode, U), mode)

    def _places(self, mode: int) -> np.ndarray:
        """Return where the other modes, in their own order, stand in the array without `mode`."""
        rest = [n for n in self._order if n != mode]
        return np.array([rest.index(n) for n in range(self.ndim) if n != mode], dtype=int)


class DenseTensor(ArrayStorage, CompleteStorage):
    """A complete array in any memory order."""

    def ask_ahead(self, groups: Sequence[Factors]) -> None:
        """Compute the MTTKRP of all modes for several groups of factors at once, and keep it until others are asked."""
        if all(any(all(map(np.array_equal, known, factors)) for known, _ in self._products) for factors in groups):
            return
        ends = np.cumsum([factors[0].shape[1] for factors in groups])[:-1]
        joint = [np.hstack(columns) for columns in zip(*groups, strict=True)]
        products = [np.split(P, ends, axis=1) for P in self._all_products(joint)]
        self._products = [
            ([np.array(A) for A in factors], [np.ascontiguousarray(P[at]) for P in products])
            for at, factors in enumerate(groups)
        ]

    def _all_products(self, factors: Factors) -> list[np.ndarray]:
        """Return the MTTKRP of all modes: X is read for the longest only, unless X contracted along it is large."""
        longest = int(np.argmax(self.shape))
        if 4 * factors[longest].shape[1] > self.shape[longest]:
            return [self.mttkrp(factors, n) for n in range(self.ndim)]
        rest, P = Contracted(self.contract(longest, factors[longest]), longest), self.mttkrp(factors, longest)
        return [P if n == longest else rest.mttkrp(factors, n) for n in range(self.ndim)]

    def update(self, factors: Factors, mode: int, decide: Decide) -> tuple[np.ndarray, "Contracted"]:
        """Return the factor A = decide(P, current) of one mode, and X contracted with it."""
        A = decide(np.asarray(self.mttkrp(factors, mode), dtype=float), current=factors[mode])
        return A, Contracted(self.contract(mode, A), mode)

    def residual(self, W: BooleanCP) -> "Difference":
        """Return the tensor X - W."""
        return Difference(self, W)


def from_blocks(blocks: np.ndarray, mode: int) -> DenseTensor:
    """Return the tensor of blocks (K, other modes) with K in the place of `mode`."""
    return DenseTensor(np.ascontiguousarray(np.moveaxis(blocks, 0, mode)))


def fingerprint(X: np.ndarray) -> str:
    """Return the SHA-256 of the shape, the dtype and the entries of an array, whatever its memory order.

    Examples
    --------
    >>> import numpy as np
    >>> from boolcp.storage.dense import fingerprint
    >>> fingerprint(np.eye(3)) == fingerprint(np.asfortranarray(np.eye(3)))
    True
    """
    digest = hashlib.sha256(f"{X.shape} {X.dtype.str}".encode())
    for part in np.atleast_1d(X):  # slice by slice: X may be a memory map larger than the memory
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


class Contracted:
    """X contracted along one mode with its factor, T_k with column k: all that the factors of the other modes need.

    With `bases`, T belongs to a core, and the bases of all modes lead from it to the full sizes.
    """

    def __init__(self, T: np.ndarray, mode: int, bases: Factors | None = None) -> None:
        self.T, self.mode, self.bases = np.ascontiguousarray(T), mode, bases

    def scaled(self, sizes: np.ndarray) -> "Contracted":
        """Return X contracted with the same factor after its columns are multiplied by `sizes` (K,)."""
        sizes = np.asarray(sizes, dtype=self.T.dtype).reshape(-1, *[1] * (self.T.ndim - 1))
        return Contracted(self.T * sizes, self.mode, self.bases)

    def normal_equations(self, factors: Factors, mode: int) -> tuple[np.ndarray, np.ndarray]:
        """Return H (K, K) and P (d_n, K) for one of the other modes: row i of its best factor solves H a = p_i."""
        return contractions.gram_product(factors, mode), np.asarray(self.mttkrp(factors, mode), dtype=float)

    def mttkrp(self, factors: Factors, mode: int) -> np.ndarray:
        """Return X_n times the Khatri-Rao product of the other factors for one of the other modes, (d_n, K)."""
        others = [n for n in range(len(factors)) if n != self.mode]
        matrices = [factors[n] if self.bases is None else self.bases[n].T @ factors[n] for n in others]
        P = contractions.column_mttkrp(self.T, matrices, others.index(mode))
        return P if self.bases is None else self.bases[mode] @ P


class Difference(Tensor):
    """X - W for complete data: every answer is that for X less that for the short sum W."""

    is_complete = True

    def __init__(self, data: CompleteStorage, W: BooleanCP) -> None:
        self.data, self.W = data, W
        self.shape, self.dtype = data.shape, data.dtype

    def has_gram(self, mode: int) -> bool:
        """Return True if the Gram matrix of X can be computed."""
        return self.data.has_gram(mode)

    def to_array(self) -> np.ndarray:
        """Return X - W as an array."""
        return self.data.to_array() - self.W.to_tensor()

    @cached_property
    def squared_norm(self) -> float:
        """|X - W|^2 = |X|^2 - 2 <X, W> + |W|^2."""
        return max(self.data.squared_norm - 2 * self._inner() + self.W.squared_norm, 0.0)

    def _inner(self) -> float:
        W = self.W
        if W.n_atoms == 0:
            return 0.0
        if W.is_block:
            return sum(float(np.vdot(self.data.contract(mode, Z), blocks)) for mode, (Z, blocks) in W.groups.items())
        A = W.matrices
        return float(np.sum(self.data.mttkrp(A, 0) * (A[0] * W.column_weights)))

    def gram(self, mode: int) -> np.ndarray:
        """Return X_n X_n' - P - P' + W_n W_n' with P = X_n W_n'."""
        W = self.W
        if W.n_atoms == 0:
            return self.data.gram(mode)
        cross = self._cross_gram(mode)
        C = self.data.gram(mode) - cross - cross.T + W.gram(mode)
        return (C + C.T) / 2

    def column_gram(self, mode: int) -> np.ndarray:
        """Return the Gram matrix of the columns (c_n, c_n); no unfolding is formed of data that are read in passes."""
        if not self.data.n_passes or self.W.is_block:
            return super().column_gram(mode)
        return next(self.data.residual_column_grams(self.W, self.W.weights[None], mode))

    def gram_factor(self, mode: int) -> tuple[np.ndarray, bool]:
        """Return F (d_n, p) with FF' the Gram matrix of X - W, and whether that is exact."""
        return self.data.gram_factor(mode, self.W)

    def unfold(self, mode: int) -> np.ndarray:
        """Return X_n - W_n (d_n, c_n) in float64, a copy."""
        X = self.data.unfold(mode)
        if self.W.n_atoms:
            X -= self.W.project(mode, unit_blocks(self, mode))
        return X

    def _cross_gram(self, mode: int) -> np.ndarray:
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

    def contract(self, mode: int, Z: np.ndarray) -> np.ndarray:
        """Return (X - W) times the columns of Z along one mode, (K, other modes)."""
        blocks = self.data.contract(mode, Z)
        if self.W.n_atoms == 0:
            return blocks
        known = self.W.contract(mode, Z)
        return np.subtract(blocks, known, out=known)

    def project(self, mode: int, blocks: np.ndarray) -> np.ndarray:
        """Return (X - W)_n vec(V_k), (d_n, K)."""
        columns = self.data.project(mode, blocks)
        return columns if self.W.n_atoms == 0 else columns - self.W.project(mode, blocks)

    def mttkrp(self, factors: Factors, mode: int) -> np.ndarray:
        """Return (X - W)_n times the Khatri-Rao product of the other factors, (d_n, K)."""
        columns = self.data.mttkrp(factors, mode)
        return columns if self.W.n_atoms == 0 else columns - self.W.mttkrp(factors, mode)
