"""Compiled inner loops of the fit: arrays in, a number out, no checks."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]

MAX_FLIPS = 100  # flips of a row for each of its bits: only a form that is a rounding error needs more
ROUNDING = 1e-13  # gradient, relative to its terms, that counts as zero
NOTHING = 1e-200  # diagonal entry of normal equations that counts as zero
MAX_PATTERN_BITS = 4  # bits of a row whose patterns are all tried; more are flipped one by one


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
def relax_factors(X: Array, half: int, sizes: NDArray[np.int64], F: Array, max_iter: int, tol: float) -> float:
    """Improve the factors of a CP decomposition in place by alternating least squares; return |X - W|^2.

    X (a, b) has the first `half` modes as one and the others as one, so that a sweep reads it twice, however many
    modes there are. The factors of all modes are rows of F (sum of sizes, K). Sweeps end when the loss falls by less
    than tol |X|^2. Columns of all factors but the last are unit vectors in the end. NaN if normal equations are
    singular, with factors spoiled.
    """
    K, n_modes, ends = F.shape[1], len(sizes), np.cumsum(sizes)
    starts, norm2, loss = ends - sizes, _inner(X, X), np.inf
    grams, H = np.empty((n_modes, K, K)), np.empty((K, K))
    for n in range(n_modes):
        grams[n] = np.dot(F[starts[n] : ends[n]].T, F[starts[n] : ends[n]])
    for _ in range(max_iter):
        for first, last in ((0, half), (half, n_modes)):
            if first == 0:
                T = np.dot(X, _khatri_rao(F, starts[half:], ends[half:]))
            else:
                T = np.dot(X.T, _khatri_rao(F, starts[:half], ends[:half]))
            for n in range(first, last):
                before = _khatri_rao(F, starts[first:n], ends[first:n])
                after = _khatri_rao(F, starts[n + 1 : last], ends[n + 1 : last])
                A = F[starts[n] : ends[n]]
                _contract_columns(T, before, after, A)
                H[:] = 1.0
                for m in range(n_modes):
                    if m != n:
                        H *= grams[m]
                P = A.copy()
                if not _solve_rows(H, A):
                    return np.nan
                if n < n_modes - 1:
                    _unit_columns(A)
                grams[n] = np.dot(A.T, A)
        earlier, loss = loss, norm2 - _inner(P, A)  # <P, A> = A'HA at the solution
        if earlier - loss <= tol * norm2:
            break
    return loss


@njit(cache=True)
def polish_factors(
    X: Array,
    sizes: NDArray[np.int64],
    bases: Array,
    lengths: NDArray[np.int64],
    F: Array,
    column_mode: NDArray[np.int64],
    norm2: float,
    loss: float,
    max_iter: int,
    tol: float,
    least: float,
) -> float:
    """Decide the factors of each mode in turn, bits jointly in each row, in place; return |X - W|^2.

    The core X (sizes[0], product of the other sizes) has the mode that is decided first as its rows. `bases` holds the
    U_n (lengths[n], sizes[n]) one after the other, and nothing if they are identities. The factors of all modes are
    rows of F (sum of lengths, K), and column k is Boolean along `column_mode[k]`. Sweeps end when no bit changes and
    `loss` falls by less than tol of itself plus `least`. NaN if normal equations are singular, with factors spoiled.
    """
    K, n_modes, last = F.shape[1], len(sizes), len(sizes) - 1
    ends, stops, places = np.cumsum(sizes), np.cumsum(lengths), np.cumsum(sizes * lengths)
    starts, begins, grams = ends - sizes, stops - lengths, np.empty((n_modes, K, K))
    C, T, target = np.empty((ends[-1], K)), np.empty((0, K)), np.where(column_mode == last, last - 1, last)
    for n in range(n_modes):
        A = F[begins[n] : stops[n]]
        C[starts[n] : ends[n]] = np.dot(_basis(bases, places, n, lengths, sizes).T, A) if len(bases) else A
        grams[n] = np.dot(A.T, A)
    for _ in range(max_iter):
        is_changed = False
        for n in range(n_modes):
            A, P = F[begins[n] : stops[n]], np.empty((sizes[n], K))
            if n == 0:
                P = np.dot(X, _khatri_rao(C, starts[1:], ends[1:]))
            else:
                before = _khatri_rao(C, starts[1:n], ends[1:n])
                _contract_columns(T, before, _khatri_rao(C, starts[n + 1 :], ends[n + 1 :]), P)
            if len(bases):
                P = np.dot(_basis(bases, places, n, lengths, sizes), P)
            H = np.ones((K, K))
            for m in range(n_modes):
                if m != n:
                    H *= grams[m]
            changed = _decide_rows(H, P, column_mode == n, A)
            if changed < 0:
                return np.nan
            is_changed |= changed > 0
            for k in range(K):
                if n < last and column_mode[k] != n and target[k] != n:
                    size, m = np.sqrt(_inner(A[:, k].copy(), A[:, k].copy())), target[k]
                    if size > 0:
                        A[:, k] /= size
                        F[begins[m] : stops[m], k] *= size
                        C[starts[m] : ends[m], k] *= size
                        grams[m, k] *= size
                        grams[m, :, k] *= size
            C[starts[n] : ends[n]] = np.dot(_basis(bases, places, n, lengths, sizes).T, A) if len(bases) else A
            grams[n] = np.dot(A.T, A)
            if n == 0:
                T = np.dot(X.T, C[: ends[0]])
        earlier, loss = loss, norm2 - 2 * _inner(P, A) + np.sum(H * grams[last])
        if earlier - loss <= tol * loss + least and not is_changed:
            break
    return loss


@njit(cache=True)
def _basis(
    bases: Array, places: NDArray[np.int64], n: int, lengths: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Array:
    """Return U_n (lengths[n], sizes[n]) of all bases, the last entry of which is just before places[n]."""
    return bases[places[n] - lengths[n] * sizes[n] : places[n]].reshape(lengths[n], sizes[n])


@njit(cache=True)
def _decide_rows(H: Array, P: Array, is_bit: NDArray[np.bool_], A: Array) -> int:
    """Set the rows of A (d, K) to those that minimize a'Ha - 2 p_i'a with 0 and 1 where `is_bit`.

    Return 1 if a bit changed, 0 if none did, and -1 if the equations of the real columns are singular.
    """
    bits, real = np.flatnonzero(is_bit), np.flatnonzero(~is_bit)
    H_RR, back, right = H[real][:, real], H[bits][:, real], P[:, real]
    changed = 0
    if len(bits):
        cross = back.copy()
        if len(real) and not _solve_rows(H_RR.copy(), back):
            return -1
        S, Q = H[bits][:, bits] - np.dot(back, cross.T), P[:, bits] - np.dot(right, back.T)
        Z = _best_patterns(S, Q)
        for j in range(len(bits)):
            for i in range(len(A)):
                changed |= int(A[i, bits[j]] != Z[i, j])
                A[i, bits[j]] = Z[i, j]
        right -= np.dot(Z, cross)
    if len(real):
        if not _solve_rows(H_RR, right):
            return -1
        A[:, real] = right
    return changed


@njit(cache=True)
def _best_patterns(S: Array, Q: Array) -> Array:
    """Return the 0/1 rows b_i (d, K) that minimize b'Sb - 2 q_i'b, of all 2^K: each is one with one bit less."""
    d, K = Q.shape
    fixed, linear, Z = np.zeros(2**K), np.zeros(2**K), np.zeros((d, K))
    lowest = np.zeros(2**K, dtype=np.int64)
    for p in range(1, 2**K):
        while not p >> lowest[p] & 1:
            lowest[p] += 1
        j, rest = lowest[p], p & (p - 1)
        fixed[p] = fixed[rest] + S[j, j]
        for l in range(K):
            if rest >> l & 1:
                fixed[p] += S[j, l] + S[l, j]
    for i in range(d):
        best, low = 0, 0.0
        for p in range(1, 2**K):
            linear[p] = linear[p & (p - 1)] + 2.0 * Q[i, lowest[p]]
            if fixed[p] - linear[p] < low:
                best, low = p, fixed[p] - linear[p]
        for k in range(K):
            Z[i, k] = float(best >> k & 1)
    return Z


@njit(cache=True)
def _khatri_rao(F: Array, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Array:
    """Return the column-wise Kronecker product of some rows of F with others; the last index runs fastest."""
    K = F.shape[1]
    product = np.ones((1, K))
    for n in range(len(starts)):
        d, earlier = ends[n] - starts[n], product
        product = np.empty((len(earlier) * d, K))
        for i in range(len(earlier)):
            for j in range(d):
                for k in range(K):
                    product[i * d + j, k] = earlier[i, k] * F[starts[n] + j, k]
    return product


@njit(cache=True)
def _contract_columns(T: Array, before: Array, after: Array, P: Array) -> None:
    """Set P (d, K) to the columns of T (modes before, d, modes after; K) times those of `before` and `after`."""
    (d, K), n_after = P.shape, len(after)
    P[:] = 0.0
    for x in range(len(before)):
        for i in range(d):
            for y in range(n_after):
                row = (x * d + i) * n_after + y
                for k in range(K):
                    P[i, k] += T[row, k] * before[x, k] * after[y, k]


@njit(cache=True)
def power_sweeps(
    T: Array, half: int, sizes: NDArray[np.int64], columns: Array, max_iter: int, tol: float, is_new: bool
) -> None:
    """Replace each vector of a product in turn by T_k times the others, in place, for each T_k on its own.

    If they are new, they are set to the largest fiber first.

    T (K, a, b) has the first `half` modes as one and the others as one, so that a sweep reads it twice, however many
    modes there are. The vectors of all modes are one row of `columns` (K, sum of sizes). All but the last are scaled
    to norm one, and the last has the inner product of T_k and them for its norm. Sweeps end when its square grows by
    less than tol |T_k|^2.
    """
    ends = np.cumsum(sizes)
    starts, n_modes = ends - sizes, len(sizes)
    for k in range(len(T)):
        if is_new:
            _largest_fiber(T[k].ravel(), sizes, columns[k])
        F, size2 = columns[k].reshape(-1, 1), -np.inf
        limit = tol * _inner(T[k], T[k]) if max_iter > 1 else 0.0
        for _ in range(max_iter):
            for first, last in ((0, half), (half, n_modes)):
                if first == 0:
                    rest = np.dot(T[k], _khatri_rao(F, starts[half:], ends[half:]).ravel()).reshape(-1, 1)
                else:
                    rest = np.dot(_khatri_rao(F, starts[:half], ends[:half]).ravel(), T[k]).reshape(-1, 1)
                for n in range(first, last):
                    before = _khatri_rao(F, starts[first:n], ends[first:n])
                    after = _khatri_rao(F, starts[n + 1 : last], ends[n + 1 : last])
                    found = F[starts[n] : ends[n]]
                    _contract_columns(rest, before, after, found)
                    if n < n_modes - 1:
                        _unit_columns(found)
            earlier, size2 = size2, _inner(F[starts[-1] :], F[starts[-1] :])
            if size2 - earlier <= limit:
                break


@njit(cache=True)
def _largest_fiber(T: Array, sizes: NDArray[np.int64], columns: Array) -> None:
    """Set vectors of all modes to the product of unit vectors and a fiber along the last mode of T, of norm one.

    The slice of largest norm is taken along one mode after another. Of equal ones it is the first.
    """
    columns[:] = 0.0
    start = 0
    for d in sizes[:-1]:
        size, best, largest = len(T) // d, 0, -1.0
        for i in range(d):
            part = T[i * size : (i + 1) * size]
            norm2 = np.dot(part, part)
            if norm2 > largest:
                best, largest = i, norm2
        columns[start + best] = 1.0
        start, T = start + d, T[best * size : (best + 1) * size]
    norm = np.sqrt(np.dot(T, T))
    if norm > 0:
        columns[start:] = T / norm


@njit(cache=True)
def _inner(A: Array, B: Array) -> float:
    """Return <A, B>."""
    return float(np.dot(A.ravel(), B.ravel()))


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
def solve_each(H: np.ndarray, B: np.ndarray, least: float, nothing: float) -> tuple[np.ndarray, np.ndarray]:
    """Replace each B_i (K, M) in place by the solution of H_i x = b by Cholesky, for H (d, K, K).

    Unknowns are brought to one scale first, the root of the mean diagonal. Returns where a pivot is below a part
    `least` of the largest diagonal entry, or below `nothing`, and B_i is left as it is; and the scale (K,).
    """
    d, K, M = B.shape
    failed, scale, L = np.zeros(d, dtype=np.bool_), np.zeros(K), np.empty((K, K))
    for i in range(d):
        for k in range(K):
            scale[k] += H[i, k, k]
    for k in range(K):
        scale[k] = np.sqrt(scale[k] / d) if scale[k] > 0 else 1.0  # rounding can make it negative
    for i in range(d):
        X, largest = B[i], 0.0
        for k in range(K):
            for l in range(k + 1):
                L[k, l] = H[i, k, l] / (scale[k] * scale[l])
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
                entry = X[k, m] / scale[k]
                for j in range(k):
                    entry -= L[k, j] * X[j, m]
                X[k, m] = entry / L[k, k]
            for k in range(K - 1, -1, -1):
                entry = X[k, m]
                for j in range(k + 1, K):
                    entry -= L[j, k] * X[j, m]
                X[k, m] = entry / L[k, k]
            for k in range(K):
                X[k, m] /= scale[k]
    return failed, scale


@njit(cache=True)
def inner(x: Array, y: Array) -> float:
    """Return x'y."""
    total = 0.0
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


@njit(cache=True)
def solve_passive(H: Array, p: Array, x: Array, passive: NDArray[np.bool_], s: Array, L: Array) -> None:
    """Write to s the solution of H s = p in the passive columns, the others as in x; L (K, K) is scratch.

    By Cholesky; a column that those before it determine has no say, and keeps its value.
    """
    K = len(p)
    for k in range(K):
        s[k] = x[k]
    for k in range(K):
        if not passive[k]:
            continue
        for l in range(k + 1):
            if passive[l]:
                total = H[k, l]
                for j in range(l):
                    if passive[j]:
                        total -= L[k, j] * L[l, j]
                if k == l:
                    L[k, k] = np.sqrt(total) if total > 1e-12 * H[k, k] else 0.0
                else:
                    L[k, l] = total / L[l, l] if L[l, l] > 0.0 else 0.0
    for k in range(K):
        if passive[k]:
            total = p[k]
            for l in range(K):
                if not passive[l] or L[l, l] == 0.0:
                    total -= H[k, l] * x[l]
            for j in range(k):
                if passive[j]:
                    total -= L[k, j] * s[j]
            s[k] = total / L[k, k] if L[k, k] > 0.0 else 0.0
    for k in range(K - 1, -1, -1):
        if passive[k]:
            total = s[k]
            for j in range(k + 1, K):
                if passive[j]:
                    total -= L[j, k] * s[j] if L[j, j] > 0.0 else 0.0
            s[k] = total / L[k, k] if L[k, k] > 0.0 else 0.0
    for k in range(K):
        if passive[k] and L[k, k] == 0.0:
            s[k] = x[k]


@njit(cache=True)
def nonnegative_row(
    H: Array,
    p: Array,
    boolean: NDArray[np.bool_],
    nonnegative: NDArray[np.bool_],
    x: Array,
    L: Array,
    s: Array,
    passive: NDArray[np.bool_],
) -> None:
    """Minimize x'Hx / 2 - p'x in place over the columns that are not Boolean, those that are `nonnegative` at least 0.

    The active set method of Lawson and Hanson, from the positive entries of x; L, s and passive are scratch.
    """
    K = len(p)
    for k in range(K):
        passive[k] = not boolean[k] and H[k, k] > NOTHING and (x[k] > 0.0 or not nonnegative[k])
        if not boolean[k] and not passive[k]:
            x[k] = 0.0
    for _ in range(10 * K + 10):
        while True:
            solve_passive(H, p, x, passive, s, L)
            step, out = 1.0, -1
            for k in range(K):
                if passive[k] and nonnegative[k] and s[k] <= 0.0:
                    share = x[k] / (x[k] - s[k]) if x[k] > s[k] else 0.0
                    if share < step:
                        step, out = share, k
            for k in range(K):
                if passive[k]:
                    x[k] += step * (s[k] - x[k])
            if out < 0:
                break
            x[out] = 0.0
            passive[out] = False
        steepest, enter = 0.0, -1
        for k in range(K):
            if not boolean[k] and not passive[k]:
                slope, size = p[k], abs(p[k])
                for l in range(K):
                    slope -= H[k, l] * x[l]
                    size += abs(H[k, l] * x[l])
                if slope > ROUNDING * size and H[k, k] > NOTHING and slope / np.sqrt(H[k, k]) > steepest:
                    steepest, enter = slope / np.sqrt(H[k, k]), k
        if enter < 0:
            return
        passive[enter] = True


@njit(cache=True)
def row_value(H: Array, p: Array, x: Array) -> float:
    """Return x'Hx / 2 - p'x."""
    total = 0.0
    for k in range(len(x)):
        total += x[k] * (0.5 * inner(H[k], x) - p[k])
    return total


@njit(cache=True)
def decide_row(
    H: Array,
    p: Array,
    boolean: NDArray[np.bool_],
    nonnegative: NDArray[np.bool_],
    a: Array,
    L: Array,
    s: Array,
    best: Array,
    x: Array,
    passive: NDArray[np.bool_],
) -> None:
    """Minimize a'Ha / 2 - p'a in place: bits where `boolean`, else real, some nonnegative; the last five are scratch.

    All patterns of few bits are tried; more bits are flipped one by one from the current ones, the real columns solved
    for again each time.
    """
    bits = np.flatnonzero(boolean)
    best[:] = a
    nonnegative_row(H, p, boolean, nonnegative, best, L, s, passive)
    lowest = row_value(H, p, best)
    if len(bits) <= MAX_PATTERN_BITS:
        for pattern in range(2 ** len(bits)):
            x[:] = a
            for b in range(len(bits)):
                x[bits[b]] = float(pattern >> b & 1)
            nonnegative_row(H, p, boolean, nonnegative, x, L, s, passive)
            value = row_value(H, p, x)
            if value < lowest - 1e-14 * abs(lowest):
                lowest = value
                best[:] = x
    else:
        for _ in range(4 * len(bits)):
            flipped = -1
            for b in range(len(bits)):
                x[:] = best
                x[bits[b]] = 1.0 - x[bits[b]]
                nonnegative_row(H, p, boolean, nonnegative, x, L, s, passive)
                value = row_value(H, p, x)
                if value < lowest - 1e-14 * abs(lowest):
                    lowest, flipped = value, b
            if flipped < 0:
                break
            best[bits[flipped]] = 1.0 - best[bits[flipped]]
            nonnegative_row(H, p, boolean, nonnegative, best, L, s, passive)
    a[:] = best


@njit(cache=True)
def decide_nonnegative(
    H: Array, P: Array, boolean: NDArray[np.bool_], nonnegative: NDArray[np.bool_], A: Array
) -> None:
    """Minimize a'H_i a / 2 - p_i'a over the rows of A in place, as `decide_row` does; H is (1, K, K) or (d, K, K)."""
    d, K = A.shape
    L, s, best, x, passive = np.zeros((K, K)), np.empty(K), np.empty(K), np.empty(K), np.zeros(K, dtype=np.bool_)
    for i in range(d):
        decide_row(H[i if len(H) > 1 else 0], P[i], boolean, nonnegative, A[i], L, s, best, x, passive)
