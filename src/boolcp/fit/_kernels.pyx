"""Compiled inner loops of the fit: arrays in C order in, a number out, no checks."""

import numpy as np

from libc.math cimport INFINITY, NAN, fabs, sqrt
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy
from scipy.linalg.cython_blas cimport ddot, dgemm, dgemv, dtrsm

cpdef enum:
    MAX_PATTERN_BITS = 4  # bits of a row whose patterns are all tried; more are flipped one by one
    MAX_FLIPS = 100  # flips of a row for each of its bits: only a form that is a rounding error needs more
cdef double ROUNDING = 1e-13  # gradient, relative to its terms, that counts as zero
cdef double NOTHING = 1e-200  # diagonal entry of normal equations that counts as zero

ctypedef Py_ssize_t Size
ctypedef const double *Input
ctypedef const int64_t *Sizes
ctypedef const uint8_t *Bits


def descend_bits(const double[:, :, ::1] S, const double[:, ::1] Q, double[:, ::1] B):
    """Flip bits and pairs of bits of the rows of B (d, K) in place while b'S_i b - 2 q_i'b falls; return the fall.

    Only the symmetric part of S_i enters: the two triangles of a form that is a rounding error differ, and flips
    that use one or the other would cycle.
    """
    d, K, fall = B.shape[0], B.shape[1], 0.0
    cdef double[::1] slope = np.empty(K)
    cdef Size i, k, l, first, second
    with nogil:
        for i in range(d):
            for k in range(K):
                slope[k] = -2.0 * Q[i, k]
                for l in range(K):
                    slope[k] += (S[i, k, l] + S[i, l, k]) * B[i, l]
            for _ in range(MAX_FLIPS * K):
                largest, first, second = 0.0, -1, -1
                for k in range(K):
                    largest = max(largest, fabs(slope[k]))
                best = -1e-13 * (1.0 + largest)
                for k in range(K):
                    step_k = 1.0 - 2.0 * B[i, k]
                    change_k = step_k * slope[k] + S[i, k, k]
                    if change_k < best:
                        best, first, second = change_k, k, -1
                    for l in range(k):
                        step_l = 1.0 - 2.0 * B[i, l]
                        both = step_k * step_l * (S[i, k, l] + S[i, l, k])
                        change = change_k + step_l * slope[l] + S[i, l, l] + both
                        if change < best:
                            best, first, second = change, k, l
                if first < 0:
                    break
                fall -= best
                for turn in range(2):
                    k = second if turn else first
                    if k >= 0:
                        step = 1.0 - 2.0 * B[i, k]
                        B[i, k] += step
                        for l in range(K):
                            slope[l] += step * (S[i, l, k] + S[i, k, l])
    return fall


cpdef double relax_factors(
    const double[:, ::1] X, Size half, const int64_t[::1] sizes, double[:, ::1] F, Size max_iter, double tol
):
    """Improve the factors of a CP decomposition in place by alternating least squares; return |X - W|^2.

    X (a, b) has the first `half` modes as one and the others as one, so that a sweep reads it twice, however many
    modes there are. The factors of all modes are rows of F (sum of sizes, K). Sweeps end when the loss falls by less
    than tol |X|^2. Columns of all factors but the last are unit vectors in the end. NaN if normal equations are
    singular, with factors spoiled.
    """
    cdef Size a = X.shape[0], b = X.shape[1], K = F.shape[1], n_modes = len(sizes), n, first, last
    cdef int64_t[::1] starts = np.append(0, np.cumsum(sizes))
    cdef double[:, :, ::1] grams = np.empty((n_modes, K, K)), work = np.empty((3, max(a, b), K))
    cdef double[:, ::1] H = np.empty((K, K)), P = np.empty((max(sizes), K))
    T, others, loss = &work[0, 0, 0], &work[1, 0, 0], INFINITY
    with nogil:
        norm2 = inner(a * b, &X[0, 0], &X[0, 0])
        for n in range(n_modes):
            multiply(True, False, K, K, sizes[n], &F[starts[n], 0], &F[starts[n], 0], &grams[n, 0, 0])
        for _ in range(max_iter):
            for n in range(n_modes):
                if n == 0:
                    first, last = 0, half
                    khatri_rao(&F[starts[half], 0], K, &sizes[half], n_modes - half, others)
                    multiply(False, False, a, K, b, &X[0, 0], others, T)
                elif n == half:
                    first, last = half, n_modes
                    khatri_rao(&F[0, 0], K, &sizes[0], half, others)
                    multiply(True, False, b, K, a, &X[0, 0], others, T)
                A, d = &F[starts[n], 0], sizes[n]
                contract_columns(T, &F[0, 0], K, &starts[0], &sizes[0], first, n, last, others, &work[2, 0, 0], A)
                multiply_others(&grams[0, 0, 0], n_modes, n, K, &H[0, 0])
                memcpy(&P[0, 0], A, d * K * sizeof(double))
                if not solve_rows(&H[0, 0], K, A, d):
                    return NAN
                if n < n_modes - 1:
                    unit_columns(A, d, K)
                multiply(True, False, K, K, d, A, A, &grams[n, 0, 0])
            earlier, loss = loss, norm2 - inner(d * K, &P[0, 0], A)  # <P, A> = A'HA at the solution
            if earlier - loss <= tol * norm2:
                break
    return loss


cpdef double polish_factors(
    const double[:, ::1] X, const int64_t[::1] sizes, const double[::1] bases, const int64_t[::1] lengths,
    double[:, ::1] F, const int64_t[::1] column_mode, double norm2, double loss, Size max_iter, double tol, double least,
    double below, Size n_ahead
):
    """Decide the factors of each mode in turn, bits jointly in each row, in place; return |X - W|^2.

    The core X (sizes[0], product of the other sizes) has the mode that is decided first as its rows. `bases` holds the
    U_n (lengths[n], sizes[n]) one after the other, and nothing if they are identities. The factors of all modes are
    rows of F (sum of lengths, K), and column k is Boolean along `column_mode[k]`. Sweeps end when no bit changes and
    `loss` falls by less than tol of itself plus `least`, or where `n_ahead` more like the last do not lead `below` a loss.
    NaN if normal equations are singular, with factors spoiled.
    """
    cdef Size K = F.shape[1], n_modes = len(sizes), last = n_modes - 1, b = X.shape[1], i, k, l, m, n, changed, count
    cdef int64_t[::1] starts = np.append(0, np.cumsum(sizes)), begins = np.append(0, np.cumsum(lengths))
    cdef int64_t[::1] places = np.append(0, np.cumsum(np.multiply(sizes, lengths))), chosen = np.empty(K, np.int64)
    cdef double[:, :, ::1] grams = np.empty((n_modes, K, K)), work = np.empty((3, max(b, max(sizes)), K))
    cdef double[:, ::1] C = np.empty((starts[n_modes], K)), H = np.empty((K, K)), rows = np.empty((2, max(lengths) * K))
    cdef double[::1] scratch = np.empty(3 * K * K + 2 * max(lengths) * K + 2 * 2 ** np.bincount(column_mode).max())
    cdef bint is_changed, is_settled, has_bases = len(bases) > 0
    T, others = &work[0, 0, 0], &work[1, 0, 0]
    with nogil:
        for n in range(n_modes):
            U = &bases[places[n]] if has_bases else NULL
            project(U, lengths[n], sizes[n], K, &F[begins[n], 0], &C[starts[n], 0], &grams[n, 0, 0])
        for count in range(max_iter):
            is_changed = False
            for n in range(n_modes):
                A, d, P, U = &F[begins[n], 0], lengths[n], &rows[0, 0], &bases[places[n]] if has_bases else NULL
                if n == 0:
                    khatri_rao(&C[starts[1], 0], K, &sizes[1], last, others)
                    multiply(False, False, sizes[0], K, b, &X[0, 0], others, P)
                else:
                    contract_columns(T, &C[0, 0], K, &starts[0], &sizes[0], 1, n, n_modes, others, &work[2, 0, 0], P)
                if has_bases:
                    P = &rows[1, 0]
                    multiply(False, False, d, K, sizes[n], U, &rows[0, 0], P)
                multiply_others(&grams[0, 0, 0], n_modes, n, K, &H[0, 0])
                changed = decide_rows(&H[0, 0], P, &column_mode[0], n, A, d, K, &chosen[0], &scratch[0])
                if changed < 0:
                    return NAN
                is_changed |= changed > 0
                for k in range(K):
                    m = last - 1 if column_mode[k] == last else last
                    size = sqrt(inner(d, A + k, A + k, K))
                    if n < last and column_mode[k] != n and m != n and size > 0:
                        for i in range(d):
                            A[i * K + k] /= size
                        for i in range(begins[m], begins[m + 1]):
                            F[i, k] *= size
                        for i in range(starts[m], starts[m + 1]):
                            C[i, k] *= size
                        for l in range(K):
                            grams[m, k, l] *= size
                            grams[m, l, k] *= size
                project(U, d, sizes[n], K, A, &C[starts[n], 0], &grams[n, 0, 0])
                if n == 0:
                    multiply(True, False, b, K, sizes[0], &X[0, 0], &C[0, 0], T)
            earlier, loss = loss, norm2 - 2 * inner(d * K, P, A) + inner(K * K, &H[0, 0], &grams[last, 0, 0])
            is_settled = earlier - loss <= tol * loss + least and not is_changed
            if is_settled or loss - min(max_iter - count - 1, n_ahead) * (earlier - loss) > below:
                break
    return loss


cdef void project(Input U, Size d, Size r, Size K, Input A, double *C, double *gram) noexcept nogil:
    """Set C (r, K) to U'A, or to A without a basis U (d, r), and the Gram matrix to A'A."""
    if U == NULL:
        memcpy(C, A, d * K * sizeof(double))
    else:
        multiply(True, False, r, K, d, U, A, C)
    multiply(True, False, K, K, d, A, A, gram)


cdef void multiply_others(Input grams, Size n_modes, Size n, Size K, double *H) noexcept nogil:
    """Set H (K, K) to the entrywise product of all Gram matrices but one."""
    for i in range(K * K):
        H[i] = 1.0
        for m in range(n_modes):
            if m != n:
                H[i] *= grams[m * K * K + i]


cdef int decide_rows(
    Input H, Input P, Sizes column_mode, Size n, double *A, Size d, Size K, int64_t *chosen, double *work
) noexcept nogil:
    """Set the rows of A (d, K) to those that minimize a'Ha - 2 p_i'a with 0 and 1 in the columns of mode n.

    Return 1 if a bit changed, 0 if none did, and -1 if the equations of the real columns are singular.
    """
    cdef Size i, j, k, l, B = 0, R = 0, changed = 0
    for k in range(K):
        B += column_mode[k] == n
    for k in range(K):  # the bits first
        chosen[k - R if column_mode[k] == n else B + R] = k
        R += column_mode[k] != n
    cdef int64_t *bits = chosen
    cdef int64_t *real = chosen + B
    right, Q, Z = work, work + d * R, work + d * K
    S, H_RR, L = Z + d * B, Z + d * B + B * B, Z + d * B + B * B + R * R
    back, cross, fixed = L + R * R, L + R * R + B * R, L + R * R + 2 * B * R
    for i in range(d):
        for k in range(R):
            right[i * R + k] = P[i * K + real[k]]
    for k in range(R):
        for l in range(R):
            H_RR[k * R + l] = H[real[k] * K + real[l]]
    if B:
        for j in range(B):
            for k in range(R):
                back[j * R + k] = cross[j * R + k] = H[bits[j] * K + real[k]]
        memcpy(L, H_RR, R * R * sizeof(double))
        if R and not solve_rows(L, R, back, B):
            return -1
        multiply(False, True, B, B, R, back, cross, S)
        multiply(False, True, d, B, R, right, back, Q)
        for j in range(B):
            for k in range(B):
                S[j * B + k] = H[bits[j] * K + bits[k]] - S[j * B + k]
            for i in range(d):
                Q[i * B + j] = P[i * K + bits[j]] - Q[i * B + j]
        best_patterns(S, Q, d, B, fixed, Z)
        for i in range(d):
            for j in range(B):
                changed |= A[i * K + bits[j]] != Z[i * B + j]
                A[i * K + bits[j]] = Z[i * B + j]
                for k in range(R):
                    right[i * R + k] -= Z[i * B + j] * cross[j * R + k]
    if R and not solve_rows(H_RR, R, right, d):
        return -1
    for i in range(d):
        for k in range(R):
            A[i * K + real[k]] = right[i * R + k]
    return changed


cdef void best_patterns(Input S, Input Q, Size d, Size K, double *fixed, double *Z) noexcept nogil:
    """Set Z to the 0/1 rows b_i (d, K) that minimize b'Sb - 2 q_i'b, of all 2^K: each is one with one bit less."""
    cdef Size n = <Size> 1 << K, best, i, k, l, p
    linear = fixed + n
    fixed[0] = linear[0] = 0.0
    for k in range(K):
        for p in range(<Size> 1 << k):
            total = fixed[p] + S[k * K + k]
            for l in range(k):
                if p >> l & 1:
                    total += S[k * K + l] + S[l * K + k]
            fixed[(<Size> 1 << k) + p] = total
    for i in range(d):
        best, low = 0, 0.0
        for k in range(K):
            for p in range(<Size> 1 << k):
                linear[(<Size> 1 << k) + p] = linear[p] + 2.0 * Q[i * K + k]
        for p in range(1, n):
            if fixed[p] - linear[p] < low:
                best, low = p, fixed[p] - linear[p]
        for k in range(K):
            Z[i * K + k] = best >> k & 1


cdef Size khatri_rao(Input F, Size K, Sizes sizes, Size n, double *product) noexcept nogil:
    """Write the column-wise Kronecker product of the first n matrices in F; return its rows, the last index fastest."""
    cdef Size i, j, k, m, rows = 1
    for k in range(K):
        product[k] = 1.0
    for m in range(n):
        for i in range(rows - 1, -1, -1):  # from the end: in place
            for j in range(sizes[m] - 1, -1, -1):
                for k in range(K):
                    product[(i * sizes[m] + j) * K + k] = product[i * K + k] * F[j * K + k]
        rows *= sizes[m]
        F += sizes[m] * K
    return rows


cdef void contract_columns(
    Input T, Input F, Size K, Sizes starts, Sizes sizes, Size first, Size n, Size last, double *before, double *after,
    double *P
) noexcept nogil:
    """Set P (d, K) to the columns of T (modes first to last; K) times those of F of all these modes but n."""
    n_before = khatri_rao(F + starts[first] * K, K, sizes + first, n - first, before)
    n_after = khatri_rao(F + starts[n + 1] * K, K, sizes + n + 1, last - n - 1, after)
    cdef Size d = sizes[n], i, k, x, y
    for i in range(d * K):
        P[i] = 0.0
    for x in range(n_before):
        for i in range(d):
            for y in range(n_after):
                for k in range(K):
                    P[i * K + k] += T[k] * before[x * K + k] * after[y * K + k]
                T += K


def power_sweeps(const double[:, :, ::1] T, Size half, const int64_t[::1] sizes, double[:, ::1] columns, Size max_iter,
                 double tol, bint is_new):
    """Replace each vector of a product, first the largest fiber if new, in turn by T_k times the others, for each T_k.

    T (K, a, b) has the first `half` modes as one and the others as one, so that a sweep reads it twice, however many
    modes there are. The vectors of all modes are one row of `columns` (K, sum of sizes). All but the last are scaled
    to norm one, and the last has the inner product of T_k and them for its norm. Sweeps end when its square grows by
    less than tol |T_k|^2.
    """
    cdef Size n_modes = len(sizes), d = sizes[n_modes - 1], size = T.shape[1] * T.shape[2], k, n, first, last
    cdef int a = T.shape[1], b = T.shape[2], step = 1
    cdef double one = 1.0, zero = 0.0
    cdef int64_t[::1] starts = np.append(0, np.cumsum(sizes))
    cdef double[:, ::1] work = np.empty((3, max(a, b)))
    rest, others = &work[0, 0], &work[1, 0]
    if is_new:
        largest_fibers(np.asarray(T), np.asarray(sizes), np.asarray(columns))
    with nogil:
        for k in range(T.shape[0]):
            X, F, size2 = &T[k, 0, 0], &columns[k, 0], -INFINITY
            limit = tol * inner(size, X, X) if max_iter > 1 else 0.0
            for _ in range(max_iter):
                for n in range(n_modes):
                    if n == 0:
                        first, last = 0, half
                        khatri_rao(F + starts[half], 1, &sizes[half], n_modes - half, others)
                        dgemv(b"T", &b, &a, &one, <double *> X, &b, others, &step, &zero, rest, &step)
                    elif n == half:
                        first, last = half, n_modes
                        khatri_rao(F, 1, &sizes[0], half, others)
                        dgemv(b"N", &b, &a, &one, <double *> X, &b, others, &step, &zero, rest, &step)
                    found = F + starts[n]
                    contract_columns(rest, F, 1, &starts[0], &sizes[0], first, n, last, others, &work[2, 0], found)
                    if n < n_modes - 1:
                        unit_columns(found, sizes[n], 1)
                earlier, size2 = size2, inner(d, found, found)
                if size2 - earlier <= limit:
                    break


def largest_fibers(T, sizes, columns):
    """Set vectors of all modes to the product of unit vectors and a fiber along the last mode of T_k, of norm one.

    The slice of largest norm is taken along one mode after another. Of equal ones it is the first.
    """
    each, start, columns[:] = np.arange(len(T)), 0, 0.0
    for d in sizes[:-1]:
        T = T.reshape(len(T), d, -1)
        best = np.argmax(np.einsum("kdi,kdi->kd", T, T), axis=1)
        columns[each, start + best] = 1.0
        T, start = T[each, best], start + d
    norms = np.linalg.norm(T.reshape(len(T), -1), axis=1, keepdims=True)
    columns[:, start:] = T.reshape(len(T), -1) / np.where(norms > 0, norms, 1.0)


cdef double inner(Size size, Input x, Input y, int step=1) noexcept nogil:
    """Return x'y of vectors that take each of, or one of `step` entries."""
    cdef int n = size
    return ddot(&n, <double *> x, &step, <double *> y, &step)


cdef void multiply(bint is_A_turned, bint is_B_turned, int m, int n, int k, Input A, Input B, double *C) noexcept nogil:
    """Set C (m, n) to AB, with A (m, k), or its transpose, and B (k, n), or its transpose."""
    cdef double one = 1.0, zero = 0.0
    cdef int A_step = max(1, m if is_A_turned else k), B_step = max(1, k if is_B_turned else n), C_step = max(1, n)
    cdef char *first = b"T" if is_B_turned else b"N"  # BLAS sees all matrices turned, and so B'A'
    cdef char *second = b"T" if is_A_turned else b"N"
    dgemm(first, second, &n, &m, &k, &one, <double *> B, &B_step, <double *> A, &A_step, &zero, C, &C_step)


cdef bint solve_rows(double *H, int K, double *P, int d) noexcept nogil:
    """Set the rows of P (d, K) to the solutions of H a_i = p_i by Cholesky, which overwrites H; False if singular."""
    cdef double one = 1.0
    if not factorize(H, K, 1e-12, 0.0):
        return False
    dtrsm(b"L", b"U", b"T", b"N", &K, &d, &one, H, &K, P, &K)  # BLAS sees all matrices turned
    dtrsm(b"L", b"U", b"N", b"N", &K, &d, &one, H, &K, P, &K)
    return True


cdef bint factorize(double *H, Size K, double least, double nothing) noexcept nogil:
    """Set the lower triangle to L with LL' = H; False if a pivot is below `least` of the diagonal, or `nothing`."""
    for j in range(K):
        nothing = max(nothing, least * H[j * K + j])
    for j in range(K):
        for i in range(j, K):
            total = H[i * K + j]
            for l in range(j):
                total -= H[i * K + l] * H[j * K + l]
            if i == j and not total > nothing:
                return False
            H[i * K + j] = sqrt(total) if i == j else total / H[j * K + j]
    return True


cdef void substitute(Input L, Size K, double *x) noexcept nogil:
    """Set x to the solution of LL'y = x."""
    for k in range(K):
        entry = x[k]
        for l in range(k):
            entry -= L[k * K + l] * x[l]
        x[k] = entry / L[k * K + k]
    for k in range(K - 1, -1, -1):
        x[k] /= L[k * K + k]
        for l in range(k):
            x[l] -= L[k * K + l] * x[k]


cdef void unit_columns(double *A, Size d, Size K) noexcept nogil:
    """Make the columns unit vectors in place."""
    for k in range(K):
        size = sqrt(inner(d, A + k, A + k, K))
        for i in range(d if size > 0 else 0):
            A[i * K + k] /= size


def solve_each(const double[:, :, ::1] H, double[:, :, ::1] B, double least, double nothing):
    """Replace each B_i (K, M) in place by the solution of H_i x = b by Cholesky, for H (d, K, K).

    Unknowns are brought to one scale first, the root of the mean diagonal. Returns where a pivot is below a part
    `least` of the largest diagonal entry, or below `nothing`, and B_i is left as it is; and the scale (K,).
    """
    cdef Size d = B.shape[0], K = B.shape[1], i, k, l, m
    failures, scales = np.zeros(d, dtype=bool), np.zeros(K)
    cdef uint8_t[::1] failed = failures
    cdef double[::1] scale = scales, x = np.empty(K)
    cdef double[:, ::1] L = np.empty((K, K))
    with nogil:
        for i in range(d):
            for k in range(K):
                scale[k] += H[i, k, k]
        for k in range(K):
            scale[k] = sqrt(scale[k] / d) if scale[k] > 0 else 1.0  # rounding can make it negative
        for i in range(d):
            for k in range(K):
                for l in range(k + 1):
                    L[k, l] = H[i, k, l] / (scale[k] * scale[l])
            failed[i] = not factorize(&L[0, 0], K, least, nothing)
            for m in range(0 if failed[i] else B.shape[2]):
                for k in range(K):
                    x[k] = B[i, k, m] / scale[k]
                substitute(&L[0, 0], K, &x[0])
                for k in range(K):
                    B[i, k, m] = x[k] / scale[k]
    return failures, scales


cdef void solve_passive(Size K, Input H, Input p, Input x, Bits passive, double *s, double *L) noexcept nogil:
    """Write to s the solution of H s = p in the passive columns, the others as in x; L (K, K) is scratch.

    By Cholesky; a column that those before it determine has no say, and keeps its value.
    """
    memcpy(s, x, K * sizeof(double))
    for k in range(K):
        if not passive[k]:
            continue
        for l in range(k + 1):
            if passive[l]:
                total = H[k * K + l]
                for j in range(l):
                    if passive[j]:
                        total -= L[k * K + j] * L[l * K + j]
                if k == l:
                    L[k * K + k] = sqrt(total) if total > 1e-12 * H[k * K + k] else 0.0
                else:
                    L[k * K + l] = total / L[l * K + l] if L[l * K + l] > 0.0 else 0.0
    for k in range(K):
        if passive[k]:
            total = p[k]
            for l in range(K):
                if not passive[l] or L[l * K + l] == 0.0:
                    total -= H[k * K + l] * x[l]
            for j in range(k):
                if passive[j]:
                    total -= L[k * K + j] * s[j]
            s[k] = total / L[k * K + k] if L[k * K + k] > 0.0 else 0.0
    for k in range(K - 1, -1, -1):
        if passive[k]:
            total = s[k]
            for j in range(k + 1, K):
                if passive[j] and L[j * K + j] > 0.0:
                    total -= L[j * K + k] * s[j]
            s[k] = total / L[k * K + k] if L[k * K + k] > 0.0 else 0.0
    for k in range(K):
        if passive[k] and L[k * K + k] == 0.0:
            s[k] = x[k]


cdef double nonnegative_row(
    Size K, Input H, Input p, Bits boolean, Bits nonnegative, double *x, double *L, double *s, uint8_t *passive
) noexcept nogil:
    """Minimize x'Hx / 2 - p'x in place over the columns that are not Boolean, those that are `nonnegative` at least 0.

    The active set method of Lawson and Hanson, from the positive entries of x; L, s and passive are scratch. Returns
    the minimum.
    """
    for k in range(K):
        passive[k] = not boolean[k] and H[k * K + k] > NOTHING and (x[k] > 0.0 or not nonnegative[k])
        if not boolean[k] and not passive[k]:
            x[k] = 0.0
    for _ in range(10 * K + 10):
        while True:
            solve_passive(K, H, p, x, passive, s, L)
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
                slope, size = p[k], fabs(p[k])
                for l in range(K):
                    slope -= H[k * K + l] * x[l]
                    size += fabs(H[k * K + l] * x[l])
                if slope > ROUNDING * size and H[k * K + k] > NOTHING and slope / sqrt(H[k * K + k]) > steepest:
                    steepest, enter = slope / sqrt(H[k * K + k]), k
        if enter < 0:
            break
        passive[enter] = True
    value = 0.0
    for k in range(K):
        value += x[k] * (0.5 * inner(K, H + k * K, x) - p[k])
    return value


def decide_nonnegative(
    const double[:, :, ::1] H, const double[:, ::1] P, const uint8_t[::1] boolean, const uint8_t[::1] nonnegative,
    double[:, ::1] A
):
    """Minimize a'H_i a / 2 - p_i'a over the rows of A in place; H is (1, K, K) or (d, K, K).

    Columns are bits where `boolean`, else real, some nonnegative. All patterns of few bits are tried; more bits are
    flipped one by one from the current ones, the real columns solved for again each time.
    """
    cdef Size K = A.shape[1], i, j, flipped, pattern, size = K * sizeof(double)
    cdef int64_t[::1] bits = np.flatnonzero(boolean).astype(np.int64)
    cdef double[:, ::1] work = np.zeros((K + 3, K))
    cdef uint8_t[::1] flags = np.zeros(K, np.uint8)
    cdef Size n_bits = len(bits), n_patterns = 1 << n_bits if n_bits <= MAX_PATTERN_BITS else 0
    if not K:
        return
    is_bit, is_above, passive = &boolean[0], &nonnegative[0], &flags[0]
    best, x, s, L = &work[0, 0], &work[1, 0], &work[2, 0], &work[3, 0]
    with nogil:
        for i in range(A.shape[0]):
            form, p, a = &H[i if H.shape[0] > 1 else 0, 0, 0], &P[i, 0], &A[i, 0]
            memcpy(best, a, size)
            lowest = nonnegative_row(K, form, p, is_bit, is_above, best, L, s, passive)
            for pattern in range(n_patterns):
                memcpy(x, a, size)
                for j in range(n_bits):
                    x[bits[j]] = pattern >> j & 1
                value = nonnegative_row(K, form, p, is_bit, is_above, x, L, s, passive)
                if value < lowest - 1e-14 * fabs(lowest):
                    lowest = value
                    memcpy(best, x, size)
            for _ in range(0 if n_patterns else 4 * n_bits):
                flipped = -1
                for j in range(n_bits):
                    memcpy(x, best, size)
                    x[bits[j]] = 1.0 - x[bits[j]]
                    value = nonnegative_row(K, form, p, is_bit, is_above, x, L, s, passive)
                    if value < lowest - 1e-14 * fabs(lowest):
                        lowest, flipped = value, j
                if flipped < 0:
                    break
                best[bits[flipped]] = 1.0 - best[bits[flipped]]
                nonnegative_row(K, form, p, is_bit, is_above, best, L, s, passive)
            memcpy(a, best, size)
