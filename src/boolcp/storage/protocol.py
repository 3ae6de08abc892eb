"""The questions to a tensor, as types. Every storage answers them with small dense arrays.

X_n is the unfolding along mode n, (d_n, c_n) with c_n the product of the other sizes. Missing entries count as zeros,
except in `normal_equations`, `residual` and what these lead to, which concern the observed entries alone.

Any tensor, also a residual (`Tensor`)

================================  ====================================================================================
shape, ndim, dtype                sizes d_n, order N, floating-point type
is_complete                       whether every entry is observed
squared_norm                      |X|^2 over the observed entries
gram(mode), has_gram(mode)        X_n X_n' (d_n, d_n), and whether memory suffices for it
gram_factor(mode)                 F (d_n, p) with FF' = X_n X_n', and whether that is exact; for long modes
column_gram(mode)                 X_n'X_n (c_n, c_n); for modes with few columns
unfold(mode)                      X_n (d_n, c_n); for modes with few columns
contract(mode, Z)                 sum_i X[.., i, ..] Z[i, k], (K, other modes)
project(mode, blocks)             X_n vec(V_k) for blocks V_k (K, other modes), (d_n, K)
mttkrp(factors, mode)             X_n times the Khatri-Rao product of the other factors, (d_n, K)
to_array()                        all entries, zero where missing
bases                             U_n (d_n, r_n) of a compressed tensor X = core x_n U_n, otherwise ()
opened(mode)                      the entries of one mode and the coordinates of all others
================================  ====================================================================================

Data (`Storage`)

================================  ====================================================================================
n_observed, n_observed_along(n)   the number of observed entries, and that of each slice along a mode (d_n,)
mask                              True where observed, the shape of X; None if complete
normal_equations(factors, mode)   H and P of the least squares for one factor: row i solves H a = p_i or H_i a = p_i
residual(W)                       the Tensor X - W
residual_grams(W, weights, mode)  R_n R_n' of R = X - sum_k c_k M_k for each row c of weights, one after the other
residual_column_grams(..)         the same with R_n'R_n
reduced(mode, U)                  the storage of X contracted with the columns of U along one mode
describe()                        what identifies the data in a checkpoint, ready for JSON
limit                             bytes of memory that a fit may use if the data is not in memory, otherwise 0
n_passes, ask_ahead(groups)       passes made over data on disk (0 in memory), and one that serves several questions
ask_grams(modes), known_grams     the same for Gram matrices of several modes, and the modes that passes brought
ask_residual_grams(W, weights)    the same for the Gram matrices of residuals along several modes
is_compressed, core               X = core x_n U_n; X itself if it is not compressed
is_weighted                       whether entries count differently in the loss
left_out                          |X|^2 - |core|^2, what the compression left out
expand(factors)                   U_n A_n: factors of the core as factors of the tensor
coordinates(factors)              U_n' A_n: factors of the tensor as factors of the core
inner_residual(W)                 X - W as far as the bases span it
================================  ====================================================================================

Complete data also answers `update` (`CompleteStorage`). Data with missing entries answers `observed`, `restrict` and
`filled` (`ObservedStorage`). A tensor that is not in memory has a `source` and `wanted` (`LazyStorage`).

A storage names the protocol that it satisfies as its base, and inherits the answers that hold for most storages.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from boolcp.contractions import gram_product, khatri_rao
from boolcp.result.atoms import BooleanCP
from boolcp.storage.long import n_columns, thin_factor, unit_blocks

if TYPE_CHECKING:
    from boolcp.storage.dense import Contracted
    from boolcp.storage.sources import Source

Factors = Sequence[np.ndarray]  # one matrix (d_n, K) for each mode
Decide = Callable[..., np.ndarray]  # decide(P, current=A) -> the new rows; P, A and the result are (rows, K)


class Tensor(Protocol):
    """What the search for atoms asks. Residuals answer it as well."""

    shape: tuple[int, ...]
    dtype: np.dtype
    is_complete: bool

    @property
    @abstractmethod
    def squared_norm(self) -> float:
        """Return |X|^2 over the observed entries, summed in float64."""

    @property
    def ndim(self) -> int:
        """Return the order N."""
        return len(self.shape)

    @abstractmethod
    def gram(self, mode: int) -> np.ndarray:
        """Return X_n X_n' (d_n, d_n) in float64."""

    def has_gram(self, mode: int) -> bool:
        """Return True if the Gram matrix of a mode can be computed within the memory."""
        return True

    def gram_factor(self, mode: int) -> tuple[np.ndarray, bool]:
        """Return F (d_n, p) with X_n X_n' = FF', and whether that is exact."""
        return thin_factor(self, mode)

    def column_gram(self, mode: int) -> np.ndarray:
        """Return X_n'X_n (c_n, c_n) in float64."""
        X = self.unfold(mode)
        return X.T @ X

    def unfold(self, mode: int) -> np.ndarray:
        """Return X_n (d_n, c_n) in float64, a copy."""
        return np.array(self.project(mode, unit_blocks(self, mode)), dtype=float)

    @abstractmethod
    def contract(self, mode: int, Z: np.ndarray) -> np.ndarray:
        """Return sum_i X[.., i, ..] Z[i, k], (K, other modes), for Z (d_n, K)."""

    @abstractmethod
    def project(self, mode: int, blocks: np.ndarray) -> np.ndarray:
        """Return X_n vec(V_k), (d_n, K), for blocks V_k (K, other modes)."""

    @abstractmethod
    def mttkrp(self, factors: Factors, mode: int) -> np.ndarray:
        """Return X_n times the Khatri-Rao product of the other factors, (d_n, K); ``factors[mode]`` is not read."""

    @abstractmethod
    def to_array(self) -> np.ndarray:
        """Return all entries, zero where they are missing; it is as large as X, and may be a view of the data."""

    @property
    def bases(self) -> tuple[np.ndarray, ...]:
        """Return the orthonormal bases U_n (d_n, r_n) of a compressed tensor, otherwise ()."""
        return ()

    def opened(self, mode: int) -> "Tensor":
        """Return the tensor with the entries of one mode and the coordinates of the bases of all others.

        Work along this one mode needs no more: inner products, norms and singular values are the same.
        """
        return self


class Storage(Tensor, Protocol):
    """What a fit asks of its data, with the answers of a tensor in memory that is not compressed."""

    is_compressed: bool = False
    is_weighted: bool = False
    limit: int = 0  # bytes of memory that may be used if it is not in memory

    @property
    def n_observed(self) -> int:
        """Return the number of observed entries."""
        return int(np.prod(self.shape, dtype=np.int64))

    def n_observed_along(self, mode: int) -> np.ndarray:
        """Return the number of observed entries in each slice along `mode`, (d_n,)."""
        return np.full(self.shape[mode], n_columns(self, mode))

    @property
    def mask(self) -> np.ndarray | None:
        """Return an array of the shape of X, True where it is observed; None if X is complete."""
        return None

    @abstractmethod
    def normal_equations(self, factors: Factors, mode: int) -> tuple[np.ndarray, np.ndarray]:
        """Return H and P (d_n, K) of the least squares for the factor of one mode, given the others.

        H is (K, K) for complete data: row i of the best factor solves H a = p_i. With missing entries each row has
        its own system, H is (d_n, K, K), and row i solves H_i a = p_i.
        """

    @abstractmethod
    def residual(self, W: BooleanCP) -> Tensor:
        """Return X - W on the observed entries."""

    @abstractmethod
    def residual_grams(self, W: BooleanCP, weights: np.ndarray, mode: int) -> Iterator[np.ndarray]:
        """Yield R_n R_n' (d_n, d_n) of R = X - sum_k c_k M_k for each row c of `weights` (rows, K); no dense blocks."""

    @abstractmethod
    def residual_column_grams(self, W: BooleanCP, weights: np.ndarray, mode: int) -> Iterator[np.ndarray]:
        """Yield R_n'R_n (c_n, c_n) of R = X - sum_k c_k M_k for each row c of `weights` (rows, K); no dense blocks."""

    @abstractmethod
    def reduced(self, mode: int, U: np.ndarray) -> "CompleteStorage":
        """Return the tensor contracted with the columns of U (d_n, r) along one mode, which stays in its place."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what identifies the tensor, as a JSON-serializable dict."""

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return indices (n, N) and values (n,) of the observed entries, and their weights, None if all count alike."""
        mask = self.mask
        indices = np.argwhere(np.ones(self.shape, dtype=bool) if mask is None else mask)
        return indices, self.to_array()[tuple(indices.T)], None

    @property
    def n_passes(self) -> int:
        """Return the number of passes made over the data so far; 0 in memory."""
        return 0

    def ask_ahead(self, groups: Sequence[Factors]) -> None:
        """Announce groups of factors whose MTTKRP will be asked: complete data serves all of them in one pass."""
        return None

    def ask_grams(self, modes: Sequence[int]) -> None:
        """Announce Gram matrices that will be asked: one pass may serve several modes."""
        return None

    @property
    def known_grams(self) -> list[int]:
        """Return the modes whose Gram matrices passes have brought; none in memory."""
        return []

    def ask_residual_grams(self, W: BooleanCP, weights: Mapping[int, np.ndarray]) -> None:
        """Announce the Gram matrices of residuals that will be asked, by mode: one pass may serve several modes."""
        return None

    @property
    def core(self) -> "Storage":
        """Return the core of a compressed tensor, (r_1, .., r_N), otherwise the tensor itself."""
        return self

    @property
    def left_out(self) -> float:
        """Return |X|^2 - |core|^2, the squared norm of what the compression left out; 0 without compression."""
        return 0.0

    def expand(self, factors: Factors) -> list[np.ndarray]:
        """Return factors (r_n, K) of the core as factors (d_n, K) of the tensor."""
        return list(factors)

    def coordinates(self, factors: Factors) -> list[np.ndarray]:
        """Return factors (d_n, K) of the tensor as factors (r_n, K) of the core."""
        return list(factors)

    def opened(self, mode: int) -> "Storage":
        """Return the tensor with the entries of one mode and the coordinates of the bases of all others."""
        return self

    def inner_residual(self, W: BooleanCP) -> Tensor:
        """Return X - W as far as the bases of a compressed tensor span it; all of X - W without compression."""
        return self.residual(W)


class CompleteStorage(Storage, Protocol):
    """What a fit asks of complete data."""

    is_complete: bool = True

    def gram_factor(self, mode: int, W: BooleanCP | None = None) -> tuple[np.ndarray, bool]:
        """Return F (d_n, p) with FF' the Gram matrix of X, or of X - W, along one mode, and whether that is exact."""
        return thin_factor(self if W is None else self.residual(W), mode)

    def normal_equations(self, factors: Factors, mode: int) -> tuple[np.ndarray, np.ndarray]:
        """Return H (K, K) and P (d_n, K): row i of the factor that fits best solves H a = p_i."""
        return gram_product(factors, mode), np.asarray(self.mttkrp(factors, mode), dtype=float)

    @abstractmethod
    def update(self, factors: Factors, mode: int, decide: Decide) -> tuple[np.ndarray, "Contracted"]:
        """Return the factor A = decide(P, current=factors[mode]) of one mode, (d_n, K), and X contracted with it.

        `decide` maps rows of P = X_n (Khatri-Rao product) to rows of the new factor, one by one.
        """

    def residual_grams(self, W: BooleanCP, weights: np.ndarray, mode: int) -> Iterator[np.ndarray]:
        """Yield R_n R_n' of R = X - sum_k c_k M_k for each row c of `weights`; X is asked once for all."""
        A, G = W.matrices[mode], self.gram(mode)
        P, H = np.asarray(self.mttkrp(W.matrices, mode), dtype=float), gram_product(W.matrices, mode)
        for row in weights:
            B = A * replace(W, weights=row).column_weights
            cross = P @ B.T
            yield G - cross - cross.T + B @ H @ B.T

    def residual_column_grams(self, W: BooleanCP, weights: np.ndarray, mode: int) -> Iterator[np.ndarray]:
        """Yield R_n'R_n of R = X - sum_k c_k M_k for each row c of `weights`; X is asked once for all."""
        A, S = W.matrices[mode], self.column_gram(mode)
        P = np.asarray(self.contract(mode, A), dtype=float).reshape(A.shape[1], -1).T
        products = khatri_rao([U for n, U in enumerate(W.matrices) if n != mode])
        for row in weights:
            B = products * replace(W, weights=row).column_weights
            cross = P @ B.T
            yield S - cross - cross.T + B @ (A.T @ A) @ B.T


class ObservedStorage(Storage, Protocol):
    """What a fit asks of data with missing entries."""

    is_complete: bool = False

    def residual_grams(self, W: BooleanCP, weights: np.ndarray, mode: int) -> Iterator[np.ndarray]:
        """Yield R_n R_n' of R = X - sum_k c_k M_k for each row c of `weights`."""
        for row in weights:
            yield self.residual(replace(W, weights=row)).gram(mode)

    def residual_column_grams(self, W: BooleanCP, weights: np.ndarray, mode: int) -> Iterator[np.ndarray]:
        """Yield R_n'R_n of R = X - sum_k c_k M_k for each row c of `weights`."""
        for row in weights:
            yield self.residual(replace(W, weights=row)).column_gram(mode)

    @abstractmethod
    def observed(self) -> Tensor:
        """Return the tensor of ones at the observed entries."""

    @abstractmethod
    def restrict(self, W: BooleanCP) -> Tensor:
        """Return the tensor of W at the observed entries."""

    @abstractmethod
    def filled(self) -> Storage:
        """Return the tensor with zeros at the missing entries and the other entries scaled up to compensate."""


class LazyStorage(Storage, Protocol):
    """What a tensor that is not in memory has in addition. Each question costs a pass, unless its answer is known."""

    source: "Source"
    wanted: tuple[int, ...]  # modes whose Gram matrices the next suitable pass brings along
