"""Compiled inner loops of the Boolean quadratic program: arrays in, a number out, no checks."""

import numpy as np

from cython cimport floating
from libc.math cimport INFINITY, fabs, sqrt
from libc.stdint cimport int64_t, uint8_t
from scipy.linalg.cython_blas cimport dgemm, dgemv, sgemm

BLOCK = 16  # rows of a sweep that share a matrix product; by bench_maxcut.py

cdef enum:
    MAX_SWEEPS = 1000  # of flips, which rounding errors could otherwise repeat forever. Seen: at most 30
    MAX_STEPS = 100  # single flips for each bit and idle step. Seen: at most 4

ctypedef Py_ssize_t Size


def mixing_sweep(const floating[:, ::1] A, floating[:, ::1] V, double momentum, floating[:, ::1] G):
    """Move each row of V (n, k) in place toward its best point; return the gain in <A, VV'>.

    A (n, n) is symmetric, its diagonal has no effect, and G (BLOCK or more, k) is scratch. Rows are visited in
    blocks of that many: one matrix-matrix product with V per block, then corrected for the rows that moved inside it.
    """
    cdef int n = V.shape[0], k = V.shape[1], size
    cdef Size rows = G.shape[0], c, i, j, block, start
    cdef floating one = 1.0, zero = 0.0
    gain = 0.0
    with nogil:
        for block in range((n + rows - 1) // rows):
            start, size = block * rows, min(rows, n - block * rows)
            if floating is double:
                dgemm(b"N", b"N", &k, &size, &n, &one, &V[0, 0], &k, <double *> &A[start, 0], &n, &zero, &G[0, 0], &k)
            else:
                sgemm(b"N", b"N", &k, &size, &n, &one, &V[0, 0], &k, <float *> &A[start, 0], &n, &zero, &G[0, 0], &k)
            for i in range(start, start + size):
                step = &G[i - start, 0]
                for c in range(k):
                    step[c] -= A[i, i] * V[i, c]
                gain += move_row(k, &V[i, 0], step, momentum)
                for j in range(i + 1, start + size):
                    for c in range(k):
                        G[j - start, c] += A[j, i] * step[c]
    return gain


cdef double move_row(Size k, floating *v, floating *g, double momentum) noexcept nogil:
    """Move the unit vector v to g/|g| and beyond by momentum; return the gain. g becomes the step."""
    squared, along = 0.0, 0.0
    for c in range(k):
        squared += g[c] * g[c]
        along += g[c] * v[c]
    norm = sqrt(squared)
    if norm == 0:
        return 0.0
    ahead = (1 + momentum) / norm
    scale = 1 / sqrt((1 + momentum) * (1 + momentum) + momentum * momentum - 2 * ahead * momentum * along)
    for c in range(k):
        v_new = scale * (ahead * g[c] - momentum * v[c])
        g[c], v[c] = <floating> (v_new - v[c]), <floating> v_new
    return 2 * (scale * (ahead * squared - momentum * along) - along)


def thin_mixing_sweep(const double[:, ::1] G, double[:, ::1] V, double[:, ::1] S, double t, double momentum):
    """Move each row of V (n, k) in place toward its best point for A = GG' - t BB'; return the gain in <A, VV'>.

    G (n, p), S = G'V is kept up to date, and BB' = [n - 1, 1'; 1, I]. The diagonal of A has no effect.
    """
    cdef Size n = G.shape[0], p = G.shape[1], k = V.shape[1], c, i, q
    cdef double[::1] step = np.empty(k), others = np.sum(V[1:], axis=0)
    gain = 0.0
    with nogil:
        for i in range(n):
            squared = 0.0
            for c in range(k):
                step[c] = -t * (others[c] if i == 0 else V[0, c])
            for q in range(p):
                squared += G[i, q] * G[i, q]
                for c in range(k):
                    step[c] += G[i, q] * S[q, c]
            for c in range(k):
                step[c] -= squared * V[i, c]
            gain += move_row(k, &V[i, 0], &step[0], momentum)
            for q in range(p):
                for c in range(k):
                    S[q, c] += G[i, q] * step[c]
            for c in range(k if i > 0 else 0):
                others[c] += step[c]
    return gain


def flip_sweeps(const double[:, ::1] F, uint8_t[::1] z, bint is_ratio):
    """Improve the bits z (d,) in place by sweeps over all of them until no flip helps; return s = F'z.

    A flip is taken if it raises |s|^2, or |s|^2 / |z|^2 if is_ratio. The last bit is never removed.
    """
    cdef Size d = F.shape[0], p = F.shape[1], count, i, q
    found = np.empty(p)
    cdef double[::1] s = found
    cdef bint is_changed = True
    with nogil:
        for _ in range(MAX_SWEEPS):
            if not is_changed:
                break
            s[:] = 0.0
            count, total, is_changed = 0, 0.0, False
            for i in range(d):
                count += z[i]
                for q in range(p if z[i] else 0):
                    s[q] += F[i, q]
            for q in range(p):
                total += s[q] * s[q]
            for i in range(d):
                side = -1.0 if z[i] else 1.0
                along, squared = 0.0, 0.0
                for q in range(p):
                    along += F[i, q] * s[q]
                    squared += F[i, q] * F[i, q]
                gain = 2 * side * along + squared
                t = total / count if is_ratio else 0.0
                if gain - t * side > 1e-13 * total and count + side > 0:
                    z[i], is_changed = side > 0, True
                    count += <Size> side
                    total += gain
                    for q in range(p):
                        s[q] += side * F[i, q]
    return found


def flip_search(
    const double[:, ::1] C, uint8_t[::1] z, double[::1] Cz, const double[::1] diagonal, Size n_idle, Size tenure,
    bint is_ratio, bint is_thin
):
    """Improve the bits z (d,) in place by steepest single flips; return z'Cz, or z'Cz / |z|^2 if is_ratio.

    C (d, d) is given, or F (d, p) with C = FF' if is_thin, and the diagonal of C. Cz (d,) is the product C z,
    overwritten. At a local optimum the search continues for n_idle steps without improvement (tabu: a flipped bit rests
    for about tenure steps) and ends with the best z seen. A ratio is maximized as z'Cz - t |z|^2 with t the best
    ratio so far (Dinkelbach). The last bit is never removed.
    """
    cdef int d = len(z), p = C.shape[1], stride = 1
    cdef Size count = 0, last = 0, i, j, step
    cdef double[::1] side = np.where(z, -1.0, 1.0), score = np.empty(d), product = np.empty(d)  # side: change of |z|^2
    cdef int64_t[::1] rest = np.zeros(d, np.int64)
    cdef const double *row
    cdef double one = 1.0, zero = 0.0, total = 0.0, most_Cz = 0.0, most = 0.0
    with nogil:
        for j in range(d):
            count += z[j]
            total += Cz[j] * z[j]
            most_Cz, most = max(most_Cz, fabs(Cz[j])), max(most, fabs(diagonal[j]))
        t = total / count if is_ratio else 0.0
        rounding = 1e-13 * (most_Cz + most)  # the total may be zero; drift is no improvement
        best = total - t * count
        for step in range(1, MAX_STEPS * (d + n_idle) + 1):
            if step - 1 - last > n_idle:
                break
            i, top, needed = 0, -INFINITY, best - (total - t * count)
            for j in range(d):  # a bit that rests has to beat the best
                score[j] = side[j] * (2 * Cz[j] - t) + diagonal[j]
                if score[j] > top and (rest[j] < step or score[j] > needed) and (count > 1 or side[j] > 0):
                    i, top = j, score[j]
            if top == -INFINITY and count == 1 and side[i] < 0:
                break
            total += score[i] + t * side[i]
            count += <Size> side[i]
            row = &C[i, 0]
            if is_thin:
                dgemv(b"T", &p, &d, &one, <double *> &C[0, 0], &p, <double *> row, &stride, &zero, &product[0], &stride)
                row = &product[0]
            for j in range(d):
                Cz[j] += side[i] * row[j]
            side[i] = -side[i]
            rest[i] = step + tenure + (7 * step) % 11
            if total - t * count > best + max(1e-12 * fabs(total), rounding):
                last = step
                t = total / count if is_ratio else 0.0
                best = total - t * count
                for j in range(d):
                    z[j] = side[j] < 0
    return t if is_ratio else best


def best_signed_response(rows, bint is_ratio=True, bint is_signed=True):
    """Return for each row a the 0/1 z of the largest a'z (or -a'z), over |z| if is_ratio; the sign, and the square."""
    rows = np.asarray(rows, dtype=float)
    cdef const double[:, :] A = rows, rising = np.sort(rows, axis=1)
    cdef Size d = A.shape[1], i, j
    cdef double[:, ::1] Z = np.empty(rows.shape)
    cdef double[::1] sign = np.empty(len(rows)), square = np.empty(len(rows))
    with nogil:
        for i in range(A.shape[0]):
            side, total, best, least = 1.0, 0.0, -INFINITY, INFINITY
            for j in range(d - 1, -1, -1):
                total += rising[i, j]
                value = total / sqrt(d - j) if is_ratio else total
                if value > best:
                    best, least = value, rising[i, j]
            highest, total = best * (1 + 1e-12), 0.0
            for j in range(d if is_signed else 0):
                total -= rising[i, j]
                value = total / sqrt(j + 1.0) if is_ratio else total
                best = max(best, value)
                if value > highest:
                    side, highest, least = -1.0, value, -rising[i, j]
            for j in range(d):
                Z[i, j] = side * A[i, j] >= least
            sign[i], square[i] = side, best * best
    return np.asarray(Z), np.asarray(sign), np.asarray(square)


def split_rows(const double[:, ::1] X, double[:, ::1] Y, double[:, ::1] U, double ahead):
    """Take one step of the splitting in place: A = ahead X + (1 - ahead) Y + U, Y its projection, U = A - Y.

    Row i of Y is the point with 0 <= Y_ij <= Y_ii closest to row i of A. With a ceiling t = Y_ii the others are A_ij
    clipped to [0, t], and t is the mean of A_ii and all A_ij above t: Newton steps from below find it.
    """
    cdef Size d = len(X), count, i, j
    with nogil:
        for i in range(d):
            for j in range(d):
                U[i, j] += ahead * X[i, j] + (1 - ahead) * Y[i, j]
            ceiling = U[i, i]
            for _ in range(d):
                total, count = U[i, i], 1
                for j in range(d):
                    if j != i and U[i, j] > ceiling:
                        total += U[i, j]
                        count += 1
                if total <= ceiling * count:
                    break
                ceiling = total / count
            ceiling = max(ceiling, 0.0)
            for j in range(d):
                Y[i, j] = ceiling if j == i else min(max(U[i, j], 0.0), ceiling)
                U[i, j] -= Y[i, j]


def worst_triangles(const double[:, ::1] X, Size n_each, double least):
    """Return for each i the n_each triples (i, j, k) whose X_ij + X_ik - X_jk - X_ii is largest and above `least`."""
    cdef Size d = len(X), count = 0, i, j, k, m, n, place
    found = np.empty((d * n_each, 3), np.int64)
    cdef int64_t[:, ::1] cuts = found
    cdef double[::1] excess = np.empty(n_each)
    with nogil:
        for i in range(d):
            n, place, lowest = 0, 0, least
            for j in range(d):
                if j == i or X[i, j] <= lowest:  # X_ik is at most X_ii where X is nearly feasible
                    continue
                for k in range(j):
                    value = X[i, j] + X[i, k] - X[j, k] - X[i, i]
                    if k == i or value <= lowest:
                        continue
                    place = n if n < n_each else place
                    n = min(n + 1, n_each)
                    excess[place] = value
                    cuts[count + place, 0], cuts[count + place, 1], cuts[count + place, 2] = i, j, k
                    if n == n_each:
                        place = 0
                        for m in range(n):
                            place = m if excess[m] < excess[place] else place
                        lowest = excess[place]
            count += n
    return found[:count]


def add_cuts(double[:, ::1] M, const int64_t[:, ::1] cuts, const double[::1] multipliers):
    """Add to M in place the sum over the cuts (i, j, k) of multiplier times (E_ii + E_jk - E_ij - E_ik), symmetric."""
    for n in range(len(cuts)):
        i, j, k, half = cuts[n, 0], cuts[n, 1], cuts[n, 2], 0.5 * multipliers[n]
        M[i, i] += multipliers[n]
        M[j, k], M[k, j] = M[j, k] + half, M[k, j] + half
        M[i, j], M[j, i] = M[i, j] - half, M[j, i] - half
        M[i, k], M[k, i] = M[i, k] - half, M[k, i] - half
