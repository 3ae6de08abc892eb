"""Complete tensors in memory, and the residual of a complete tensor, which is never formed."""

import hashlib
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from boolcp import contractions
from boolcp.result.atoms import BooleanCP
from boolcp.storage.protocol import Decide, Factors, Storage, Tensor
from boolcp.system import BIG, enough_threads


def n_columns(data: Tensor, mode: int) -> int:
    """Return the number of columns of the unfolding along one mode."""
    return int(np.prod([d for n, d in enumerate(data.shape) if n != mode], dtype=np.int64))


def n_observed(data: Storage) -> int:
    """Return the number of observed entries."""
    return getattr(data, "n_seen", None) or int(np.prod(data.shape, dtype=np.int64))


def unfold(X: np.ndarray, mode: int) -> np.ndarray:
    """Return the unfolding X_n (d_n, c_n) of an array, in float64 and C order."""
    return np.ascontiguousarray(np.moveaxis(X, mode, 0), dtype=float).reshape(X.shape[mode], -1)


def quadratic(H: np.ndarray, A: np.ndarray) -> float:
    """Return sum_i a_i' H a_i for a shared H (K, K) or one for each row (d, K, K)."""
    return float(np.vdot(A @ H if H.ndim == 2 else (A[:, None] @ H)[:, 0], A))


class Equations(NamedTuple):
    """Row i of a factor minimizes a'Ha - 2 p_i'a with H (K, K), or H_i (d, K, K) if entries do not count alike."""

    H: np.ndarray
    P: np.ndarray
    loss: float


class Array(Tensor):
    """An array in any memory order, read through C-contiguous views.

    A big array is copied only if it is strided. A smaller one is copied to C order, so that its memory order changes
    no digit of a fit.
    """

    bases = ()

    def __init__(self, X: np.ndarray) -> None:
        self.shape, self.dtype = X.shape, X.dtype
        order = np.argsort([-abs(stride) for stride in X.strides], kind="stable")
        # self._array has mode _order[i] at position i
        self._order = tuple(int(n) for n in (order if X.size >= BIG else range(X.ndim)))
        self._array = np.require(X.transpose(self._order), requirements=["C", "A"])
        self._grams: dict[int, np.ndarray] = {}
        self._products: dict[int, Any] = {}  # the other factors and the MTTKRP of the last question about each mode

    def to_array(self) -> np.ndarray:
        """Return the array with its modes in their own order, a view."""
        return self._array.transpose(np.argsort(self._order))

    @cached_property
    def squared_norm(self) -> float:
        """|X|^2, summed in float64, block by block, so that float32 keeps its digits."""
        flat, step = self._array.reshape(-1), contractions.CHUNK
        parts = (flat[start : start + step].astype(float, copy=False) for start in range(0, flat.size, step))
        return sum(float(part @ part) for part in parts)

    def gram(self, mode: int) -> np.ndarray:
        """Return X_n X_n' (d_n, d_n), computed once."""
        if mode not in self._grams:
            with enough_threads(self._array):
                self._grams[mode] = contractions.gram(self._array, self._order.index(mode))
        return self._grams[mode]

    def contract(self, mode: int, Z: np.ndarray) -> np.ndarray:
        """Return sum_i X[.., i, ..] Z[i, k], (K, other modes)."""
        with enough_threads(self._array):
            blocks = contractions.contract(self._array, self._order.index(mode), Z)
        return blocks.transpose(0, *(1 + np.argsort([n for n in self._order if n != mode])))

    def project(self, mode: int, blocks: np.ndarray) -> np.ndarray:
        """Return X_n vec(V_k), (d_n, K)."""
        blocks = np.asarray(blocks).transpose(0, *(n + (n < mode) for n in self._order if n != mode))
        with enough_threads(self._array):
            return contractions.project(self._array, self._order.index(mode), blocks)

    def mttkrp(self, factors: Factors, mode: int) -> np.ndarray:
        """Return X_n times the Khatri-Rao product of the other factors, (d_n, K), computed once for equal factors."""
        known, P = self._products.get(mode, ((), np.zeros(0)))
        others = [A for n, A in enumerate(factors) if n != mode]
        if len(known) and all(map(np.array_equal, known, others)):
            return P
        with enough_threads(self._array):
            P = contractions.mttkrp(self._array, [factors[n] for n in self._order], self._order.index(mode))
        self._products[mode] = [np.array(A) for A in others], P
        return P


class Complete(Storage):
    """What complete tensors have in common, in memory, compressed or on disk.

    With a `center` the entries are those of X less their mean over this mode. The mean of X - W is then part of the
    model: real columns are fitted with centered bits, and bits to X less the mean of X - W.
    """

    center: int | None = None
    nonnegative: tuple[int, ...] = ()
    weights: Tensor | None = None
    n_passes = 0

    def equations(self, factors: Factors, mode: int) -> Equations:
        """Return the equations that all rows share, and the loss."""
        return self.equations_of(np.asarray(self.mttkrp(factors, mode), dtype=float), factors, mode)

    def equations_of(self, P: np.ndarray, factors: Factors, mode: int) -> Equations:
        """Return the equations for a known MTTKRP."""
        norm2 = self.squared_norm
        if self.center is not None:
            middle = factors[self.center].mean(axis=0)
            if mode != self.center:
                factors = [contractions.centered(A, 0) if n == self.center else A for n, A in enumerate(factors)]
        H, A = contractions.gram_product(factors, mode), factors[mode]
        if mode == self.center:
            P, norm2 = P + middle @ H, norm2 + len(P) * float(middle @ H @ middle)
        return Equations(H, P, norm2 - 2 * float(np.vdot(P, A)) + quadratic(H, A))

    def update(self, factors: Factors, mode: int, decide: Decide) -> tuple[np.ndarray, float, Any]:
        """Return the factor decided for one mode, the loss, and X contracted with it, which updates the others."""
        A, loss = decided(self.equations(factors, mode), factors[mode], decide)
        return A, loss, self.contracted(mode, A)

    def contracted(self, mode: int, A: np.ndarray) -> "Contracted":
        """Return X contracted with a factor along its mode."""
        return Contracted(self, self.contract(mode, A), mode)

    def residual(self, W: BooleanCP) -> Tensor:
        """Return X - W, less its mean over the `center`; X itself if there are no atoms."""
        if not W.n_atoms:
            return self
        if self.center is None and not W.is_block:
            return Difference(self, W)
        R = self.to_array() - (W.blocks if W.is_block else W.to_array())
        return Dense(R if self.center is None else contractions.centered(R, self.center))


def decided(found: Equations, old: np.ndarray, decide: Decide) -> tuple[np.ndarray, float]:
    """Return the factor decided for one mode, and the loss."""
    A = decide(found.H, found.P, old)
    return A, loss_after(found, A, old)


def loss_after(found: Equations, A: np.ndarray, old: np.ndarray) -> float:
    """Return the loss with a new factor of one mode, given the equations for it."""
    H, P, before = found
    return before - (2 * float(np.vdot(P, A)) - quadratic(H, A) - 2 * float(np.vdot(P, old)) + quadratic(H, old))


class Contracted:
    """X contracted along one mode with its factor (of a core, if compressed): all that the other factors need."""

    def __init__(self, data: Complete, T: np.ndarray, mode: int) -> None:
        self.data, self.T, self.mode = data, np.ascontiguousarray(T), mode

    def scaled(self, sizes: np.ndarray) -> "Contracted":
        """Return X contracted with the same factor after its columns are multiplied by `sizes` (K,)."""
        sizes = np.asarray(sizes, dtype=self.T.dtype).reshape(-1, *[1] * (self.T.ndim - 1))
        return Contracted(self.data, self.T * sizes, self.mode)

    def update(self, factors: Factors, mode: int, decide: Decide) -> tuple[np.ndarray, float, Any]:
        """Return the factor decided for one of the other modes, the loss, and itself."""
        others, bases = [n for n in range(len(factors)) if n != self.mode], self.data.bases
        matrices = [bases[n].T @ factors[n] if bases else factors[n] for n in others]
        P = np.asarray(contractions.column_mttkrp(self.T, matrices, others.index(mode)), dtype=float)
        found = self.data.equations_of(bases[mode] @ P if bases else P, factors, mode)
        return *decided(found, factors[mode], decide), self


class Dense(Array, Complete):
    """A complete array in any memory order."""


class Difference(Tensor):
    """X - W for complete data and a few columns W: every answer is that for X less that for the short sum W."""

    bases = ()

    def __init__(self, data: Complete, W: BooleanCP) -> None:
        self.data, self.W = data, W
        self.shape, self.dtype = data.shape, data.dtype

    def to_array(self) -> np.ndarray:
        """Return X - W as an array."""
        return self.data.to_array() - self.W.to_array()

    @cached_property
    def squared_norm(self) -> float:
        """|X - W|^2 = |X|^2 - 2 <X, W> + |W|^2."""
        W, X = self.W, self.data
        inner = float(np.sum(X.mttkrp(W.matrices, 0) * (W.matrices[0] * W.column_weights)))
        return max(X.squared_norm - 2 * inner + W.squared_norm, 0.0)

    def gram(self, mode: int) -> np.ndarray:
        """Return X_n X_n' - P - P' + W_n W_n' with P = X_n W_n'."""
        W, X = self.W, self.data
        cross = X.mttkrp(W.matrices, mode) @ (W.matrices[mode] * W.column_weights).T
        C = X.gram(mode) - cross - cross.T + W.gram(mode)
        return (C + C.T) / 2

    def contract(self, mode: int, Z: np.ndarray) -> np.ndarray:
        """Return (X - W) times the columns of Z along one mode, (K, other modes)."""
        return self.data.contract(mode, Z) - self.W.contract(mode, Z)

    def project(self, mode: int, blocks: np.ndarray) -> np.ndarray:
        """Return (X - W)_n vec(V_k), (d_n, K)."""
        return self.data.project(mode, blocks) - self.W.project(mode, blocks)

    def mttkrp(self, factors: Factors, mode: int) -> np.ndarray:
        """Return (X - W)_n times the Khatri-Rao product of the other factors, (d_n, K)."""
        return self.data.mttkrp(factors, mode) - self.W.mttkrp(factors, mode)


def fingerprint(X: np.ndarray) -> str:
    """Return the SHA-256 of the shape, the dtype and the entries of an array, whatever its memory order."""
    digest = hashlib.sha256(f"{X.shape} {X.dtype.str}".encode())
    for part in np.atleast_1d(X):  # slice by slice: X may be a memory map larger than the memory
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
