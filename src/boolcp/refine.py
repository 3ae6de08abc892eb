"""Beyond the paper: relax, round, polish. All factors of rank-one atoms are corrected, not only their weights."""

from dataclasses import dataclass

import numpy as np

from boolcp._row_kernels import descend_bits
from boolcp.atom_search import best_boolean
from boolcp.contractions import gram_product
from boolcp.relax import cp_als, pencil_start, random_factors, solve_rows
from boolcp.storage import TuckerTensor

MAX_JOINT = 10  # Boolean columns of one mode whose 2^K patterns are all tried in each row


@dataclass(frozen=True)
class Factors:
    """Factor matrices (d_n, K) with the size of each atom in its real columns, Boolean modes (K,) and |X - W|^2."""

    matrices: list
    boolean_mode: np.ndarray
    loss: float


def relax(data, factors, **options):
    """Return the CP decomposition reached from `factors` without the Boolean constraint, on the core if compressed."""
    if not isinstance(data, TuckerTensor):
        return cp_als(data, factors, **options)
    small = [U.T @ A for U, A in zip(data.bases, factors, strict=True)]
    small, loss = cp_als(data.core, small, **options)
    return [U @ A for U, A in zip(data.bases, small, strict=True)], loss + data.squared_norm - data.core.squared_norm


def round_factors(factors, modes):
    """Return factors with one column of each component replaced by the {0, a} column that fits it best.

    For each component the allowed mode is taken whose column is closest in angle to a Boolean vector.
    """
    factors = [A.copy() for A in factors]
    boolean_mode = np.empty(factors[0].shape[1], dtype=int)
    for k in range(factors[0].shape[1]):
        fits = []
        for mode in modes:
            a = factors[mode][:, k]
            z, sign = best_boolean(a)
            total = sign * a[z].sum()
            fits.append((total**2 / z.sum() / max(a @ a, 1e-300), mode, z, sign * total / z.sum()))
        _, mode, z, scale = max(fits, key=lambda fit: fit[0])
        boolean_mode[k] = mode
        factors[mode][:, k] = z
        real = 0 if mode != 0 else 1
        factors[real][:, k] *= scale
    return factors, boolean_mode


def decide_rows(H, P, boolean, current):
    """Return the rows a_i (d, K) that minimize a'Ha - 2 p_i'a with a 0/1 where `boolean`, jointly in all columns.

    The real columns are eliminated; the remaining quadratic in the bits is minimized over all patterns when they
    are few, else by flips of one and two bits from the current and from the relaxed bits.
    """
    real = ~boolean
    A = np.empty_like(P)
    if not boolean.any():
        return solve_rows(H, P)
    S, Q = H[np.ix_(boolean, boolean)], P[:, boolean]
    if real.any():
        back = solve_rows(H[np.ix_(real, real)], H[np.ix_(boolean, real)])  # H_BR H_RR^-1
        S, Q = S - back @ H[np.ix_(real, boolean)], Q - P[:, real] @ back.T
    bits = best_bits(S, Q, current[:, boolean])
    A[:, boolean] = bits
    if real.any():
        A[:, real] = solve_rows(H[np.ix_(real, real)], P[:, real] - bits @ H[np.ix_(boolean, real)])
    return A


def best_bits(S, Q, current):
    """Return 0/1 rows b_i (d, K) that minimize b'Sb - 2 q_i'b."""
    K = len(S)
    if K <= MAX_JOINT:
        patterns = (np.arange(2**K)[:, None] >> np.arange(K) & 1).astype(float)
        costs = np.einsum("pk,pk->p", patterns @ S, patterns) - 2 * Q @ patterns.T
        return patterns[np.argmin(costs, axis=1)]
    options = [current, (solve_rows(S, Q) > 0.5).astype(float)]
    costs = []
    for bits in options:
        bits = np.ascontiguousarray(bits, dtype=float)
        descend_bits(np.ascontiguousarray(S), np.ascontiguousarray(Q), bits)
        costs.append((np.einsum("ik,ik->i", bits @ S, bits) - 2 * np.einsum("ik,ik->i", Q, bits), bits))
    (first, bits), (second, others) = costs
    return np.where((second < first)[:, None], others, bits)


def polish(data, factors, boolean_mode, *, max_iter=50, tol=1e-10):
    """Return Factors after alternating over the modes, real columns by least squares and Boolean ones bit by bit."""
    factors = [np.array(A, dtype=float) for A in factors]
    previous = np.inf
    for _ in range(max_iter):
        changed = False
        for mode in range(data.ndim):
            H, P = gram_product(factors, mode), np.asarray(data.mttkrp(factors, mode), dtype=float)
            boolean = boolean_mode == mode
            A = decide_rows(H, P, boolean, factors[mode])
            changed |= not np.array_equal(A[:, boolean], factors[mode][:, boolean])
            factors[mode] = A
        loss = data.squared_norm - 2 * np.sum(P * A) + np.sum(H * (A.T @ A))
        if not changed and previous - loss <= tol * data.squared_norm:
            break
        previous = loss
    return Factors(factors, boolean_mode, max(float(loss), 0.0))
