"""Proved upper bounds on the Boolean quadratic program and on the largest eigenvalue of a matrix."""

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal
from scipy.linalg.lapack import dpotrf

EPSILON = np.finfo(np.float64).eps


def sdp_bound(A, V):
    """Return a proved upper bound on x'Ax / 4 over signs x from shifted multipliers |A V|, or None."""
    n, diagonal = len(A), A.diagonal()
    y = np.linalg.norm(A @ V - diagonal[:, None] * V, axis=1) + diagonal
    scale = np.abs(y).mean()
    shift = prove_psd(A, y, scale * np.array([2e-4, 1e-3, 5e-3, 0.025, 0.125, 0.6, 3.0]))
    margin = 64 * EPSILON * np.abs(A).sum() + n * EPSILON * n * scale
    return None if shift is None else (y.sum() + n * shift + margin) / 4


def eigenvalue_bound(C, start):
    """Return a proved upper bound on the largest eigenvalue of C, or None."""
    value = largest_eigenvalue(C, start)
    shift = prove_psd(C, np.full(len(C), value), abs(value) * np.array([1e-6, 1e-4, 1e-3, 0.01, 0.1, 1.0]))
    return None if shift is None else value + shift + EPSILON * abs(value)


def largest_eigenvalue(C, start, n_steps=24):
    """Return an estimate of the largest eigenvalue of C by Lanczos steps from a nonzero vector."""
    q, previous, norm = start / np.linalg.norm(start), 0.0, 0.0
    diagonal, off_diagonal = [], []
    for _ in range(n_steps):
        step = C @ q - norm * previous
        diagonal.append(q @ step)
        step -= diagonal[-1] * q
        norm = float(np.linalg.norm(step))
        off_diagonal.append(norm)
        if norm <= 1e-12 * abs(diagonal[-1]):
            break
        previous, q = q, step / norm
    return eigvalsh_tridiagonal(diagonal, off_diagonal[:-1])[-1]


def prove_psd(A, y, shifts):
    """Return the first of the shifts for which Diag(y) + shift I - A is proved positive semidefinite, or None.

    The proof is a Cholesky factorization that runs to its end, with its largest backward error set aside.
    """
    for shift in shifts:
        S = -A
        entries = y - A.diagonal() + shift
        np.fill_diagonal(S, entries - 2 * (len(A) + 2) * EPSILON * np.abs(entries).sum())
        if dpotrf(S.T, lower=1, overwrite_a=1, clean=0)[1] == 0:
            return shift
    return None
