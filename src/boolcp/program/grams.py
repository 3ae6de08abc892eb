"""The Boolean quadratic program for C = FF' with a thin F (d, p): the steps of `maxcut` at O(dp), C never formed."""

import numpy as np

from boolcp.program import flips as bit_search
from boolcp.program import maxcut
from boolcp.program import relaxation as upper_bounds
from boolcp.program._kernels import flip_search, flip_sweeps, thin_mixing_sweep

MAX_IDLE_COST = 2e7  # multiplications that a search may spend without improvement beyond a local optimum


class ThinGram:
    """The matrix FF' as far as the search needs it: its products, its diagonal, and flips."""

    __array_ufunc__ = None  # Z @ C is asked of C

    def __init__(self, F):
        self.F = F

    def __len__(self):
        return len(self.F)

    def __matmul__(self, Z):
        return self.F @ (self.F.T @ Z)

    def __rmatmul__(self, Z):
        return (Z @ self.F) @ self.F.T

    def __getitem__(self, i):
        return self.F @ self.F[i]

    def diagonal(self):
        """Return the diagonal, |F_i|^2."""
        return np.einsum("ip,ip->i", self.F, self.F)

    def climb(self, z, n_idle, tenure, is_ratio):
        """Improve z in place to where no flip helps, search on for a number of steps, and return its value."""
        s = flip_sweeps(self.F, z, is_ratio)
        n_idle = min(n_idle, int(MAX_IDLE_COST // self.F.size))
        if n_idle:
            flip_search(self.F, z, self.F @ s, self.diagonal(), n_idle, tenure, is_ratio, True)
            s = flip_sweeps(self.F, z, is_ratio)
        return float(s @ s) / (z.sum() if is_ratio else 1)


class Complement:
    """The projection I - QQ' on what is orthogonal to the columns of B (d, k), Q their orthonormal basis."""

    __array_ufunc__ = None

    def __init__(self, B):
        U, sizes, _ = np.linalg.svd(B, full_matrices=False)
        self.Q = U[:, sizes > 1e-10 * sizes.max(initial=0.0)]

    def __matmul__(self, Z):
        return Z - self.Q @ (self.Q.T @ Z)

    def __rmatmul__(self, Z):
        return Z - (Z @ self.Q) @ self.Q.T

    def __getitem__(self, i):
        row = -(self.Q @ self.Q[i])
        row[i] += 1
        return row

    def diagonal(self):
        """Return the diagonal, 1 - |Q_i|^2."""
        return 1 - np.einsum("ik,ik->i", self.Q, self.Q)


def maximize(C, rng, *, certify=True, is_ratio=True, effort="default"):
    """Maximize z'Cz, or z'Cz / |z|^2 if is_ratio, for a matrix or a ThinGram; return a BooleanQuadratic."""
    if isinstance(C, ThinGram):
        return maximize_thin(C.F, rng, certify=certify, is_ratio=is_ratio, effort=effort)
    return maxcut.solve_program(C, rng, is_ratio=is_ratio, certify=certify, effort=effort)


def maximize_thin(F, rng, *, certify=True, is_ratio=True, effort="default"):
    """Maximize z'FF'z, or z'FF'z / |z|^2 if is_ratio, over z in {0,1}^d, z != 0; return a BooleanQuadratic."""
    d = len(F)
    active = np.flatnonzero(F.any(axis=1))
    if active.size == 0:
        return maxcut.make_result(d, np.array([0]), 0.0, 0.0 if certify else None)
    exponent = int(np.frexp(np.abs(F).max())[1])
    F = np.ldexp(np.ascontiguousarray(F if active.size == d else F[active]), -exponent)
    if len(F) <= maxcut.EXHAUSTIVE:
        z, value, bound = maxcut.enumerate_all(F @ F.T, certify, is_ratio)
    else:
        z, value, bound = _search(F, rng, certify, is_ratio, effort)
    bound = None if bound is None else float(np.ldexp(bound, 2 * exponent))
    return maxcut.make_result(d, active[z], float(np.ldexp(value, 2 * exponent)), bound)


def _search(F, rng, certify, is_ratio, effort):
    """Return z, its objective and the bound (None unless asked for and proved).

    The relaxation is left out if it is not needed for the bound and all starts climb to the same z, or if quick.
    """
    C, bound = ThinGram(F), None
    pool = bit_search.local_search(C, first_starts(F, rng, is_ratio), is_ratio)
    is_dual = certify and not is_ratio
    if is_dual or (effort != "quick" and len(pool) > 1):
        G = np.vstack([F.sum(axis=0), F])  # the lifted matrix is GG'
        V = solve_sdp(G, rng, t=pool[0][0] if is_ratio else 0.0, tol=1e-6 if is_dual else 1e-4)
        pool = bit_search.merge(pool, bit_search.local_search(C, maxcut.round_hyperplanes(V, rng, 24), is_ratio))
    if certify:
        bound = thin_eigenvalue_bound(F) if is_ratio else sdp_bound(G, V)
    if effort != "quick" and (bound is None or pool[0][0] < bound * (1 - 1e-9)):
        pool = bit_search.recombine(C, pool, rng, is_ratio, 12, min(len(F), 1000))
    z = bit_search.best_of(pool)
    s = F[z].sum(axis=0)
    return z, float(s @ s) / (z.sum() if is_ratio else 1), bound


def first_starts(F, rng, is_ratio, *, n_best=8, n_rounds=2):
    """Return Boolean starts, one per row: best responses to directions F u, then the best of them some steps further.

    The directions are leading eigenvectors and random mixtures of them (for z'Cz, random ones) in both signs. All bits
    and the bit of the largest diagonal entry are added.
    """
    values, vectors = np.linalg.eigh(F.T @ F)
    spread = np.sqrt(np.maximum(values, 0))
    if is_ratio:
        leading = vectors[:, -6:].T
        U = np.vstack([leading, rng.standard_normal((6, len(leading))) @ leading])
    else:
        U = (rng.standard_normal((8, len(values))) * spread) @ vectors.T
    Z = respond(F, np.vstack([U, -U]), is_ratio)
    Z = np.vstack([Z, np.ones((1, len(F)), dtype=bool)])
    for _ in range(n_rounds):
        S = Z @ F
        values = np.einsum("kp,kp->k", S, S) / (Z.sum(axis=1) if is_ratio else 1)
        order = np.argsort(-values, kind="stable")
        order = order[np.append(True, np.diff(values[order]) != 0)][:n_best]
        Z = respond(F, S[order], is_ratio)
    single = np.arange(len(F)) == np.einsum("ip,ip->i", F, F).argmax()
    return np.vstack([Z, single])


def respond(F, U, is_ratio):
    """Return the best Boolean response to each direction F u, one row after another to save memory."""
    return np.vstack([bit_search.best_response((F @ u)[None], is_ratio) for u in U])


def solve_sdp(G, rng, *, t=0.0, rank=16, tol=1e-4, max_sweeps=1000, momentum=0.6):
    """Maximize <GG' - t BB', VV'> over V (n, rank) with unit rows, as `maxcut.solve_sdp` does for a lifted matrix."""
    V = rng.standard_normal((len(G), rank))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    S = G.T @ V
    total = np.sum(S * S) - np.sum(G * G) - 2 * t * V[0] @ V[1:].sum(axis=0)
    for sweep in range(max_sweeps):
        gain = thin_mixing_sweep(G, V, S, t, momentum if sweep > 2 else 0.0)
        total += gain
        if gain <= tol * abs(total):
            break
    return V


def thin_eigenvalue_bound(F):
    """Return a proved upper bound on the largest eigenvalue of FF', which is that of F'F (p, p); None if not proved."""
    return _scaled_bound(F, np.ones(len(F)))


def sdp_bound(G, V):
    """Return a proved upper bound on x'GG'x / 4 over signs x, or None.

    For y > 0 and s >= lambda_max(G' Diag(y)^-1 G) the matrix Diag(s y) - GG' is positive semidefinite, so that
    x'GG'x <= s sum(y). The multipliers y are those of the relaxation.
    """
    diagonal = np.einsum("ip,ip->i", G, G)
    y = np.linalg.norm(G @ (G.T @ V) - diagonal[:, None] * V, axis=1) + diagonal
    y = np.maximum(y, 1e-12 * y.max())
    scale = _scaled_bound(G, y)
    return None if scale is None else scale * y.sum() * (1 + len(y) * upper_bounds.EPSILON) / 4


def _scaled_bound(F, y):
    """Return a proved upper bound on the largest eigenvalue of F' Diag(y)^-1 F, or None.

    The rounding errors of that product are at most its number of terms times epsilon times its trace.
    """
    S = F.T @ (F / y[:, None])
    bound = upper_bounds.eigenvalue_bound((S + S.T) / 2, S.sum(axis=0) + S.diagonal())
    return None if bound is None else bound + 2 * (len(F) + 2) * upper_bounds.EPSILON * np.trace(S)
