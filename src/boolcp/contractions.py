"""Products of a dense array with vectors, matrices and blocks along its modes, without copying the array.

Every function takes a C-contiguous array and views it as (left, d, right) around one mode.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

CHUNK = 2**20  # entries of a temporary copy


def gram(X: np.ndarray, mode: int) -> np.ndarray:
    """Return X_n X_n' (d_n, d_n) in float64, X_n the unfolding along `mode`."""
    Y = X.reshape(math.prod(X.shape[:mode]), X.shape[mode], -1)
    left, d, right = Y.shape
    if left == 1:
        return np.asarray(Y[0] @ Y[0].T, dtype=float)
    if right == 1:
        return np.asarray(Y[:, :, 0].T @ Y[:, :, 0], dtype=float)
    total = np.zeros((d, d))
    step = max(1, CHUNK // (d * right))
    for start in range(0, left, step):
        part = Y[start : start + step].transpose(1, 0, 2).reshape(d, -1)
        total += part @ part.T
    return total


def contract(X: np.ndarray, mode: int, Z: np.ndarray) -> np.ndarray:
    """Return sum_i X[.., i, ..] Z[i, k] as an array (K, other modes), for Z (d_n, K)."""
    Y = X.reshape(math.prod(X.shape[:mode]), X.shape[mode], -1)
    left, d, right = Y.shape
    Z = np.asarray(Z, dtype=X.dtype)
    if left == 1:
        blocks = Z.T @ Y[0]
    elif right == 1:
        blocks = (Y[:, :, 0] @ Z).T
    elif d <= Z.shape[1] and X.size <= CHUNK:  # X is smaller than the product: it is copied instead
        blocks = Z.T @ Y.transpose(1, 0, 2).reshape(d, -1)
    else:
        blocks = np.matmul(Z.T, Y).transpose(1, 0, 2)
    return blocks.reshape(Z.shape[1], *X.shape[:mode], *X.shape[mode + 1 :])


def project(X: np.ndarray, mode: int, blocks: np.ndarray) -> np.ndarray:
    """Return X_n vec(V_k) (d_n, K) for blocks V_k of the other modes, stacked as (K, other modes)."""
    Y = X.reshape(math.prod(X.shape[:mode]), X.shape[mode], -1)
    left, d, right = Y.shape
    V = np.asarray(blocks, dtype=X.dtype).reshape(-1, left, right)
    if left == 1:
        return Y[0] @ V[:, 0].T
    if right == 1:
        return (V[:, :, 0] @ Y[:, :, 0]).T
    total = np.zeros((d, len(V)), dtype=X.dtype)
    step = max(1, CHUNK // (d * max(right, len(V))))
    for start in range(0, left, step):
        part = slice(start, start + step)
        total += np.matmul(Y[part], V[:, part].transpose(1, 2, 0)).sum(axis=0)
    return total


def khatri_rao(factors: Sequence[np.ndarray]) -> np.ndarray:
    """Return the column-wise Kronecker product (prod d_n, K) of matrices (d_n, K); the last index runs fastest."""
    product = factors[0]
    for A in factors[1:]:
        product = (product[:, None, :] * A[None, :, :]).reshape(len(product) * len(A), A.shape[1])
    return product


def mttkrp(X: np.ndarray, factors: Sequence[np.ndarray], mode: int) -> np.ndarray:
    """Return X_n (khatri-rao of the factors of the other modes), (d_n, K); ``factors[mode]`` is not read."""
    n_columns, d = factors[mode - 1].shape[1], X.shape[mode]
    left, right = math.prod(X.shape[:mode]), math.prod(X.shape[mode + 1 :])
    far = X.ndim - 1 if mode == 0 else 0  # the mode at the other end
    # at either end, X times the factor of the far end may be shorter than the Khatri-Rao product of all others
    is_short = X.ndim > 2 and mode in (0, X.ndim - 1) and d < X.shape[far]
    longest = X.size // X.shape[far] if is_short else max(left, right) + d * min(left, right)
    step = max(1, max(X.size // 4, CHUNK) // longest)
    if n_columns > step:  # keep the intermediate below a quarter of a large X
        parts = [slice(start, start + step) for start in range(0, n_columns, step)]
        return np.hstack([mttkrp(X, [A[:, part] for A in factors], mode) for part in parts])
    factors = [np.asarray(A, dtype=X.dtype) for A in factors]
    if is_short and mode == 0:
        T = X.reshape(-1, X.shape[-1]) @ factors[-1]
        return np.einsum("dak,ak->dk", T.reshape(d, -1, n_columns), khatri_rao(factors[1:-1]))
    if is_short:
        T = factors[0].T @ X.reshape(len(X), -1)
        return np.einsum("kad,ak->dk", T.reshape(n_columns, -1, d), khatri_rao(factors[1:-1]))
    if right >= left and mode < X.ndim - 1:
        T = X.reshape(-1, right) @ khatri_rao(factors[mode + 1 :])
        if mode == 0:
            return T
        return np.einsum("adk,ak->dk", T.reshape(left, d, -1), khatri_rao(factors[:mode]))
    T = khatri_rao(factors[:mode]).T @ X.reshape(left, -1)
    if mode == X.ndim - 1:
        return T.T
    return np.einsum("kdb,bk->dk", T.reshape(-1, d, right), khatri_rao(factors[mode + 1 :]))


def centered(A: np.ndarray, axis: int) -> np.ndarray:
    """Return A less its mean along an axis; zeros, not rounding, where it is constant."""
    mean = A.mean(axis=axis, keepdims=True)
    R: np.ndarray = A - mean
    R *= np.ptp(R, axis=axis, keepdims=True) > np.sqrt(A.shape[axis]) * np.finfo(A.dtype).eps * np.abs(mean)
    return R


def column_mttkrp(T: np.ndarray, factors: Sequence[np.ndarray], at: int) -> np.ndarray:
    """Return T_k times the k-th columns of the factors of all its modes but `at`, (d, K).

    T (K, other modes) is an array already contracted along one mode with the k-th column of that mode's factor;
    ``factors`` are those of its modes, and ``factors[at]`` is not read.
    """
    factors = [np.asarray(A, dtype=T.dtype) for A in factors]
    K = len(T)
    for A in factors[:at:-1]:  # the modes after, from the last
        T = np.matmul(T.reshape(K, -1, len(A)), A.T[:, :, None])
    for A in factors[:at]:  # the modes before, from the first
        T = np.matmul(A.T[:, None, :], T.reshape(K, len(A), -1))
    return T.reshape(K, -1).T


@lru_cache(maxsize=128)
def middle(shape: tuple[int, ...]) -> int:
    """Return how many of the first modes have together about as many entries as the other modes."""
    return min(range(max(len(shape) - 1, 1), 0, -1), key=lambda n: math.prod(shape[:n]) + math.prod(shape[n:]))


def gram_product(
    factors: Sequence[np.ndarray], mode: int | None = None, others: Sequence[np.ndarray] | None = None
) -> np.ndarray:
    """Return the entrywise product over all modes but `mode` of A_m' B_m, (K, K'); B = A by default."""
    others = factors if others is None else others
    H = np.ones((factors[0].shape[1], others[0].shape[1]))
    for m, (A, B) in enumerate(zip(factors, others, strict=True)):
        if m != mode:
            H *= A.T @ B
    return H


def along(X: np.ndarray, A: np.ndarray, mode: int) -> np.ndarray:
    """Return X multiplied by the matrix A along one mode."""
    return np.moveaxis(np.tensordot(A, X, axes=([1], [mode])), 0, mode)
