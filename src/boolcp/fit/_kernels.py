"""Compiled inner loops of the fit: arrays in, a number out, no checks."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]

MAX_FLIPS = 100  # flips of a row for each of its bits: only a form that is a rounding error needs more
MAX_SHRINKS = 2000  # largest number of sweeps over the rows of a group lasso; not tuned


@njit(cache=True)
def descend_bits(S: Array, Q: Array, B: Array) -> float:
    """Flip bits and pairs of bits of the rows of B (d, K) in place while b'S_i b - 2 q_i'b falls; return the fall.

    Only the symmetric part of S_i enters: the two triangles of a form that is a rounding error differ, and flips
    that use one or the other would cycle.
    """
    d, K = B.shape
    fall = 0.0
    slope = np.empty(K)
    for i in range(d):
        for k in range(K):
            slope[k] = -2.0 * Q[i, k]
            for l in range(K):
                slope[k] += (S[i, k, l] + S[i, l, k]) * B[i, l]
        for _ in range(MAX_FLIPS * K):
            best, first, second = -1e-13 * (1.0 + np.abs(slope).max()), -1, -1
            for k in range(K):
                step_k = 1.0 - 2.0 * B[i, k]
                change_k = step_k * slope[k] + S[i, k, k]
                if change_k < best:
                    best, first, second = change_k, k, -1
                for l in range(k):
                    step_l = 1.0 - 2.0 * B[i, l]
                    change = change_k + step_l * slope[l] + S[i, l, l] + step_k * step_l * (S[i, k, l] + S[i, l, k])
                    if change < best:
                        best, first, second = change, k, l
            if first < 0:
                break
            fall -= best
            for k in (first, second):
                if k >= 0:
                    step = 1.0 - 2.0 * B[i, k]
                    B[i, k] += step
                    for l in range(K):
                        slope[l] += step * (S[i, l, k] + S[i, k, l])
    return fall


@njit(cache=True)
def shrink_rows(G: Array, Q: Array, A: Array, penalties: Array, tol: float) -> float:
    """Minimize tr(A'GA) / 2 - <Q, A> + sum_k penalties[k] |A_k| over the rows of A (K, r) in place, row after row.

    G (K, K) has a positive diagonal. Sweeps end when no row moves by more than tol; returns the last largest move.
    """
    K, r = A.shape
    row = np.empty(r)
    largest = 0.0
    for _ in range(MAX_SHRINKS):
        largest = 0.0
        for k in range(K):
            for c in range(r):
                row[c] = Q[k, c] + G[k, k] * A[k, c]
                for l in range(K):
                    row[c] -= G[k, l] * A[l, c]
            size = np.sqrt(np.sum(row * row))
            factor = max(0.0, 1 - penalties[k] / size) / G[k, k] if size > 0 else 0.0
            moved = 0.0
            for c in range(r):
                moved += (factor * row[c] - A[k, c]) ** 2
                A[k, c] = factor * row[c]
            largest = max(largest, np.sqrt(moved))
        if largest <= tol:
            break
    return largest


@njit(cache=True)
def relax_three(X: Array, A: Array, B: Array, C: Array, max_iter: int, tol: float) -> float:
    """Improve the factors of a CP decomposition of X (a b, c) in place by alternating least squares; return |X - W|^2.

    X is given with its first two modes as one. Sweeps end when the loss falls by less than tol |X|^2. Columns of A and
    B are unit vectors in the end. NaN if normal equations are singular, with factors spoiled.
    """
    (a, K), b = A.shape, len(B)
    norm2, loss = _inner(X, X), np.inf
    T, products, H = np.empty((a * b, K)), np.empty((a * b, K)), np.empty((K, K))
    for _ in range(max_iter):
        np.dot(X, C, T)
        A[:] = 0.0
        for i in range(a):
            for j in range(b):
                for k in range(K):
                    A[i, k] += T[i * b + j, k] * B[j, k]
        _gram_product(B, C, H)
        is_regular = _solve_rows(H, A)
        B[:] = 0.0
        for i in range(a):
            for j in range(b):
                for k in range(K):
                    B[j, k] += T[i * b + j, k] * A[i, k]
        _gram_product(A, C, H)
        is_regular &= _solve_rows(H, B)
        _unit_columns(A)
        _unit_columns(B)
        for i in range(a):
            for j in range(b):
                for k in range(K):
                    products[i * b + j, k] = A[i, k] * B[j, k]
        np.dot(X.T, products, C)
        _gram_product(A, B, H)
        R = C.copy()
        if not (_solve_rows(H, C) and is_regular):
            return np.nan
        before, loss = loss, norm2 - _inner(R, C)  # <R, C> = C'HC at the solution
        if before - loss <= tol * norm2:
            break
    return loss


@njit(cache=True)
def _inner(A: Array, B: Array) -> float:
    """Return <A, B>."""
    total = 0.0
    for i in range(A.shape[0]):
        for k in range(A.shape[1]):
            total += A[i, k] * B[i, k]
    return total


@njit(cache=True)
def _gram_product(A: Array, B: Array, H: Array) -> None:
    """Set H (K, K) to the entrywise product of A'A and B'B."""
    K = len(H)
    for k in range(K):
        for l in range(k + 1):
            first, second = 0.0, 0.0
            for i in range(len(A)):
                first += A[i, k] * A[i, l]
            for i in range(len(B)):
                second += B[i, k] * B[i, l]
            H[k, l] = H[l, k] = first * second


@njit(cache=True)
def _solve_rows(H: Array, P: Array) -> bool:
    """Set the rows of P (d, K) to the solutions of H a_i = p_i by Cholesky, which overwrites H; False if singular."""
    K, largest = len(H), 0.0
    for k in range(K):
        largest = max(largest, H[k, k])
    for j in range(K):
        for i in range(j, K):
            total = H[i, j]
            for l in range(j):
                total -= H[i, l] * H[j, l]
            if i == j:
                if not total > 1e-12 * largest:
                    return False
                H[j, j] = np.sqrt(total)
            else:
                H[i, j] = total / H[j, j]
    for i in range(len(P)):
        for k in range(K):
            for l in range(k):
                P[i, k] -= H[k, l] * P[i, l]
            P[i, k] /= H[k, k]
        for k in range(K - 1, -1, -1):
            P[i, k] /= H[k, k]
            for l in range(k):
                P[i, l] -= H[k, l] * P[i, k]
    return True


@njit(cache=True)
def _unit_columns(A: Array) -> None:
    """Make the columns unit vectors in place."""
    for k in range(A.shape[1]):
        size = 0.0
        for i in range(len(A)):
            size += A[i, k] * A[i, k]
        size = np.sqrt(size) if size > 0 else 1.0
        for i in range(len(A)):
            A[i, k] /= size


@njit(cache=True)
def solve_each(H: np.ndarray, B: np.ndarray, least: float, nothing: float) -> np.ndarray:
    """Replace each B_i (K, M) in place by the solution of H_i x = b by Cholesky; return where that is not possible.

    It is not where a pivot is below a part `least` of the largest diagonal entry, or below `nothing`. Lower halves of
    H (d, K, K) are overwritten.
    """
    d, K, M = B.shape
    failed = np.zeros(d, dtype=np.bool_)
    for i in range(d):
        L, X = H[i], B[i]
        largest = 0.0
        for k in range(K):
            largest = max(largest, L[k, k])
        for k in range(K):
            pivot = L[k, k]
            for j in range(k):
                pivot -= L[k, j] * L[k, j]
            if not pivot > max(least * largest, nothing):
                failed[i] = True
                break
            L[k, k] = np.sqrt(pivot)
            for l in range(k + 1, K):
                entry = L[l, k]
                for j in range(k):
                    entry -= L[l, j] * L[k, j]
                L[l, k] = entry / L[k, k]
        if failed[i]:
            continue
        for m in range(M):
            for k in range(K):
                entry = X[k, m]
                for j in range(k):
                    entry -= L[k, j] * X[j, m]
                X[k, m] = entry / L[k, k]
            for k in range(K - 1, -1, -1):
                entry = X[k, m]
                for j in range(k + 1, K):
                    entry -= L[j, k] * X[j, m]
                X[k, m] = entry / L[k, k]
    return failed
