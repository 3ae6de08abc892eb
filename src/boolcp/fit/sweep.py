"""Beyond the paper: all factors corrected in turn, real columns by least squares, bits jointly in each row."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import scipy.special
from scipy.linalg.lapack import dpotrf, dpotrs

from boolcp.contractions import CHUNK, middle
from boolcp.fit._kernels import decide_nonnegative, descend_bits, polish_factors, relax_factors, solve_each
from boolcp.fit.watch import PRESENT
from boolcp.result.columns import Columns
from boolcp.storage.dense import Complete, Dense, n_observed
from boolcp.storage.lazy import LazyWeighted
from boolcp.storage.protocol import Storage
from boolcp.storage.tucker import Tucker
from boolcp.storage.weighted import SQUARES, Weighted

Choose = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # S, Q and the current bits to the new ones

TOL = 1e-9  # relative fall of the loss that ends a polish
N_AHEAD = 10  # sweeps that are foreseen at the pace of the last; not tuned
MAX_JOINT = 10  # Boolean columns of one mode up to which all 2^K patterns are tried in each row; not tuned
MAX_COMPILED = 2**20  # entries of a tensor whose sweeps are made without a chance to stop in between
ROUNDING = 1e-15  # a loss computed from inner products is known to this part of |X|^2
PASS_FALL = 1e-10  # fall of the loss, as part of |X|^2, not worth a pass either, if there is no noise; not tuned
LEAST = 0.01  # smallest share of the energy of a column that counts as signal; not tuned
PASS_GAIN = 0.05  # gain, in units of the noise variance for each free number, not worth a pass; not tuned
SMALL_GAIN = 0.05  # gain of a relaxation, in units of the noise variance, that ends it
N_FIELD = 3  # rounds of the mean field that replaces all patterns when bits are many
NEVER = 1e-12  # probability of a bit that counts as zero: real columns would grow without end to make up for it
NOTHING = 1e-200  # entry of normal equations, relative to their size, that counts as zero
SINGULAR = 1e-7  # eigenvalues of normal equations below this part of the largest count as zero
CLEAR = 1e-5  # a pivot above this part of the largest diagonal entry: no eigenvalue is that small


# many sweeps


def polish(
    data: Storage, W: Columns, *, max_iter: int = 50, tol: float = TOL, variance: float = 0.0, below: float = np.inf
) -> Columns:
    """Return the columns after sweeps until no bit changes and the loss falls by less than `tol` of it.

    The loss never rises. Columns that would not be `below` a loss after N_AHEAD sweeps like the last are given up.
    """
    if variance == 0 and (found := polish_compiled(data, W, max_iter, tol, below)) is not None:
        return found
    here, loss = W, float("inf")
    for count in range(max_iter):
        here, is_changed = sweep(data, here, variance)
        ahead = min(max_iter - count - 1, N_AHEAD) * (loss - here.loss)
        if is_settled(data, here, loss, is_changed, tol) or here.loss - ahead > below:
            break
        loss = here.loss
    return replace(here, loss=max(here.loss, 0.0))


def is_settled(data: Storage, W: Columns, before: float, is_changed: bool, tol: float = TOL) -> bool:
    """Return True if a sweep changed no bit and lowered the loss by next to nothing, or spoiled it."""
    if not np.isfinite(W.loss):
        return True
    least = ROUNDING * data.squared_norm
    if data.n_passes:
        share = len(W.owner) * sum(data.shape) / np.prod(data.shape, dtype=float)
        least = PASS_FALL * data.squared_norm + PASS_GAIN * W.loss * share
    return bool(before - W.loss <= tol * abs(W.loss) + least and not is_changed)


def polish_compiled(data: Storage, W: Columns, max_iter: int, tol: float, below: float) -> Columns | None:
    """Return the columns after the same sweeps, compiled for a small complete tensor; None if that is not possible."""
    if not isinstance(data, Dense | Tucker) or data.center is not None or data.nonnegative or W.is_tied:
        return None
    core = data.core if isinstance(data, Tucker) else data
    is_small = max(np.prod(core.shape, dtype=float), sum(data.shape)) <= MAX_COMPILED
    if not W.n_atoms or not is_small or np.bincount(W.boolean_mode).max() > MAX_JOINT:
        return None
    order = sweep_order(data)
    X = np.ascontiguousarray(core.to_array().transpose(order), dtype=float)
    bases = np.concatenate([data.bases[n].ravel() for n in order]) if data.bases else np.zeros(0)
    F, lengths = np.vstack([W.matrices[n] for n in order]), np.array(data.shape)[order]
    options = (np.argsort(order)[W.boolean_mode], data.squared_norm, np.inf, max_iter, tol)
    sizes, least = np.array(X.shape), ROUNDING * data.squared_norm
    found = polish_factors(X.reshape(len(X), -1), sizes, bases, lengths, F, *options, least, below, N_AHEAD)
    if not np.isfinite(found):
        return None
    matrices = np.split(F, np.cumsum(lengths)[:-1])
    return W.with_matrices([matrices[at] for at in np.argsort(order)], max(found, 0.0))


def relax(
    data: Storage, W: Columns, *, max_iter: int = 200, tol: float = 1e-8, ridge: float = 0.0, fall: float = 0.0
) -> Columns:
    """Return the columns reached from W without the Boolean constraint, for a compressed tensor in its coordinates.

    Sweeps end when the loss falls by less than `tol` |X|^2 plus the part `fall` of itself; on a core when they gain
    much less than one entry of the noise that the compression left out. A `ridge` adds that part of their mean diagonal
    to the equations, which keeps rows with few observed entries in bounds.
    """
    if isinstance(data, Tucker):
        core, lost = data.core, data.squared_norm - data.core.squared_norm
        n_left = np.prod(data.shape, dtype=float) - np.prod(core.shape, dtype=float)
        tol = max(tol, SMALL_GAIN * max(lost, 0.0) / max(n_left, 1.0) / max(core.squared_norm, 1e-300))
        found = relax(core, W.with_matrices(data.coordinates(W.matrices)), max_iter=max_iter, tol=tol)
        return found.with_matrices(data.expand(found.matrices), found.loss + lost)
    if isinstance(data, Dense) and not W.is_tied and not ridge and np.prod(data.shape, dtype=float) <= MAX_COMPILED:
        half, sizes, F = middle(data.shape), np.array(data.shape), np.vstack(W.matrices)
        X = np.ascontiguousarray(data.to_array(), dtype=float).reshape(math.prod(data.shape[:half]), -1)
        loss = relax_factors(X, half, sizes, F, max_iter, tol)
        if np.isfinite(loss):
            return W.with_matrices(np.split(F, np.cumsum(sizes)[:-1]), max(loss, 0.0))
    here, free = replace(W, loss=float("inf")), replace(W, boolean_mode=np.full(W.n_atoms, -1))
    for _ in range(max_iter):
        loss = here.loss
        free, _ = sweep(data, free.with_matrices(here.matrices), ridge=ridge, tied=W)
        here = W.with_matrices(free.matrices, free.loss)
        if not loss - here.loss > tol * data.squared_norm + fall * here.loss:
            break
    return replace(here, loss=max(here.loss, 0.0))


# one sweep


def sweep(
    data: Storage,
    W: Columns,
    variance: float = 0.0,
    choose: Choose | Mapping[int, Choose] | None = None,
    ridge: float = 0.0,
    tied: Columns | None = None,
) -> tuple[Columns, bool]:
    """Decide the factor of each mode once; return the columns with their loss, and whether a bit changed.

    `choose` decides the bits of rows, along all modes or some; `best_bits` by default. Complete data is read for one
    mode only, the longest, which goes first: contracted with the factor found, it is small and has all that the other
    modes need. With a `variance` of the noise, rows with equations of their own have the ridge of `ridges`. Relaxed
    columns, which have no bits, are tied as those of `tied`.
    """
    PRESENT.beat()
    factors, order, source, is_changed = list(W.matrices), sweep_order(data), data, False
    # products of columns that are tied along a mode keep their ratio only if no size moves to that mode
    column_mode = tied.column_mode if tied is not None and tied.is_tied else W.column_mode
    for mode in order:
        S, boolean = (W if tied is None else tied).ties(mode)
        boolean = boolean if tied is None else np.zeros(len(boolean), dtype=bool)
        n_free = sum(data.shape) if variance else 0
        chosen = choose.get(mode) if isinstance(choose, Mapping) else choose
        rule = partial(decide, S, boolean, chosen, mode in data.nonnegative, (variance, n_free), ridge)
        A, loss, source = source.update(factors, mode, rule)
        own = W.column_mode == mode
        is_changed |= not np.array_equal(A[:, own], factors[mode][:, own])
        factors[mode] = A
        if mode != order[-1]:
            sizes = balance(factors, column_mode, mode, order)
            if mode == order[0] and source is not data:
                source = source.scaled(1 / sizes)
    return W.with_matrices(factors, loss), is_changed


def exact_rows(data: LazyWeighted, W: Columns) -> tuple[Columns, bool]:
    """Return W with the first factor whose bits change by the loss of each row, and whether there is one.

    Targets of slices with little weight hardly move, and bits that follow them stay off. A pass for each such factor.
    """
    for mode in set(W.boolean_mode.tolist()):
        (S, boolean), current, own = W.ties(mode), W.matrices[mode], W.column_mode == mode
        if data.loss == SQUARES:
            H, P, _ = data.equations(W.matrices, mode)
            A = decide(S, boolean, None, False, (0.0, 0), 0.0, H, P, current)
        else:
            A = data.flipped(W.matrices, mode, np.flatnonzero(own))
        if not np.array_equal(A[:, own], current[:, own]):
            return W.with_matrices([A if n == mode else B for n, B in enumerate(W.matrices)], W.loss), True
    return W, False


def sweep_order(data: Storage) -> list[int]:
    """Return the modes in the order of a sweep: first the mode of the mean or, of complete data, the longest."""
    modes = list(range(len(data.shape)))
    if data.center is not None:
        modes.insert(0, modes.pop(data.center))
    elif isinstance(data, Complete):
        modes.insert(0, modes.pop(getattr(data, "cut", int(np.argmax(data.shape)))))
    return modes


def balance(factors: list[np.ndarray], column_mode: np.ndarray, mode: int, order: list[int]) -> np.ndarray:
    """Make the real columns of one factor unit vectors in place, and return the sizes (K,) that were taken out.

    They go to the factor of the last mode in `order` that is real.
    """
    target = np.where(column_mode == order[-1], order[-2], order[-1])
    moved = (column_mode != mode) & (target != mode)
    sizes = np.where(moved, np.linalg.norm(factors[mode], axis=0), 1.0)
    sizes[sizes == 0] = 1.0
    factors[mode] = factors[mode] / sizes
    for n in set(target[moved].tolist()):
        factors[n] = factors[n] * np.where(target == n, sizes, 1.0)
    return sizes


# the rows of a factor


def decide(
    S: np.ndarray | None,
    boolean: np.ndarray,
    choose: Choose | None,
    is_nonnegative: bool,
    noise: tuple[float, float],
    ridge: float,
    H: np.ndarray,
    P: np.ndarray,
    current: np.ndarray,
) -> np.ndarray:
    """Return the best rows (d, R) of one factor whose columns are tied by S, given H and P; see `Columns.ties`."""
    if noise[0] and H.ndim == 3:
        H = H + np.diag(ridges(H, S, boolean, current, *noise))
    if ridge:
        H = H + ridge * np.mean(np.einsum("...kk->...", H)) / H.shape[-1] * np.eye(H.shape[-1])
    if S is not None:
        H, P, current = S.T @ H @ S, P @ S, current @ S / S.sum(axis=0)
    if is_nonnegative and choose is None:
        A = np.array(current, dtype=float, order="C")
        each = np.ascontiguousarray(H if H.ndim == 3 else H[None])
        decide_nonnegative(each, np.ascontiguousarray(P), boolean, np.ones(len(boolean), dtype=bool), A)
    else:
        A = decide_rows(H, P, boolean, current, choose)
        A = np.where(boolean, A, np.maximum(A, 0.0)) if is_nonnegative else A
    return A if S is None else A @ S.T


def ridges(
    H: np.ndarray, S: np.ndarray | None, boolean: np.ndarray, A: np.ndarray, variance: float, n_free: float
) -> np.ndarray:
    """Return the ridge of each column of a factor A (d, R) from the normal equations of its rows, 0 for bits.

    Entries a_i of a column are taken for draws of variance t and their data for noise of the given variance, which
    makes the ridge variance / t. The energy sum_i H_i a_i^2 that a column has at the observed entries is t sum_i H_i,
    and the variance for each of the `n_free` numbers of its atom, which is noise that was fitted. So an atom that
    hardly exceeds the noise at observed entries is not inflated elsewhere.
    """
    known = np.einsum("ikk->ik", H)
    energy = np.sum(known * A**2, axis=0)
    signal = np.maximum(energy - variance * n_free, LEAST * energy)
    ridge = variance * known.sum(axis=0) / np.maximum(signal, 1e-12 * variance)
    is_bit = boolean if S is None else S @ boolean > 0
    return np.where(is_bit, 0.0, ridge)


def decide_rows(
    H: np.ndarray, P: np.ndarray, boolean: np.ndarray, current: np.ndarray, choose: Choose | None = None
) -> np.ndarray:
    """Return the rows a_i (d, K) that minimize a'Ha - 2 p_i'a with a 0/1 where `boolean`, jointly in all columns.

    H is shared (K, K) or one for each row (d, K, K). The real columns are eliminated, `choose` decides the bits
    (`best_bits` by default), and the real columns follow from them.
    """
    if not boolean.any():
        return solve_rows(H, P)
    B, R = np.flatnonzero(boolean), np.flatnonzero(~boolean)
    A, choose = np.empty_like(P), best_bits if choose is None else choose
    H_BB, H_RB, H_RR = H[..., B[:, None], B], H[..., R[:, None], B], H[..., R[:, None], R]
    if not len(R):
        A[:, B] = choose(H_BB, P[:, B], current[:, B])
        return A
    if H.ndim == 3:  # the real part of each row is solved once, for all bits
        solved = solve_each_row(H_RR, np.concatenate([H_RB, P[:, R, None]], axis=2))
        back, alone = solved[:, :, :-1], solved[:, :, -1]
        bits = choose(H_BB - np.swapaxes(H_RB, 1, 2) @ back, P[:, B] - times(alone, H_RB), current[:, B])
        A[:, B], A[:, R] = bits, alone - times(bits, np.swapaxes(back, 1, 2))
        return A
    back = solve_rows(H_RR, H_RB.T).T
    A[:, B] = bits = choose(H_BB - H_RB.T @ back, P[:, B] - P[:, R] @ back, current[:, B])
    A[:, R] = solve_rows(H_RR, P[:, R] - bits @ H_RB.T)
    return A


def times(rows: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Return the rows (d, K) times a shared matrix (K, L) or each times its own (d, K, L)."""
    return rows @ M if M.ndim == 2 else np.einsum("ik,ikl->il", rows, M)


def best_bits(S: np.ndarray, Q: np.ndarray, current: np.ndarray) -> np.ndarray:
    """Return 0/1 rows b_i (d, K) that minimize b'S_i b - 2 q_i'b, for S (K, K) or (d, K, K).

    All patterns are tried when the bits are few, else flips of one and two bits from the current and the relaxed bits.
    """
    d, K = Q.shape
    if d > rows_at_a_time(K):
        return in_parts(best_bits, S, Q, current)
    if K <= MAX_JOINT:
        patterns, costs = pattern_costs(S, Q)
        return patterns[np.argmin(costs, axis=1)]
    found = []
    each = np.ascontiguousarray(np.broadcast_to(S, (d, K, K)))
    for start in (current, solve_rows(S, Q) > 0.5):
        bits = np.array(start, dtype=float, order="C")
        descend_bits(each, np.ascontiguousarray(Q), bits)
        found.append((np.einsum("ik,ikl,il->i", bits, each, bits) - 2 * np.einsum("ik,ik->i", Q, bits), bits))
    (first, bits), (second, others) = found
    return np.where((second < first)[:, None], others, bits)


def soft_bits(S: np.ndarray, Q: np.ndarray, current: np.ndarray, temperature: float) -> np.ndarray:
    """Return the mean of the rows b_i (d, K) whose probability falls as exp(-(b'S_i b - 2 q_i'b) / (2 temperature)).

    It is exact when the bits are few. Otherwise each is the mean given the others, after a few rounds.
    """
    d, K = Q.shape
    if d > rows_at_a_time(K):
        return in_parts(partial(soft_bits, temperature=temperature), S, Q, current)
    if K <= MAX_JOINT:
        patterns, costs = pattern_costs(S, Q)
        weights = np.exp((costs.min(axis=1, keepdims=True) - costs) / (2 * temperature))
        bits = weights @ patterns / weights.sum(axis=1, keepdims=True)
    else:
        bits = np.array(current)
        for k in [*range(K)] * N_FIELD:
            h = S[..., k, k]
            g = Q[:, k] - times(bits, S[..., [k]])[:, 0] + bits[:, k] * h
            bits[:, k] = scipy.special.expit((g - h / 2) / temperature)
    return np.where(bits > NEVER, bits, 0.0)


def rows_at_a_time(K: int) -> int:
    """Return how many rows of K bits are decided at a time: the costs of all patterns are a large array."""
    return max(1, CHUNK // 2 ** min(K, MAX_JOINT))


def in_parts(choose: Choose, S: np.ndarray, Q: np.ndarray, current: np.ndarray) -> np.ndarray:
    """Return the bits that `choose` decides, for some rows at a time."""
    step = rows_at_a_time(Q.shape[1])
    rows = [slice(start, start + step) for start in range(0, len(Q), step)]
    return np.concatenate([choose(S if S.ndim == 2 else S[i], Q[i], current[i]) for i in rows])


def pattern_costs(S: np.ndarray, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all patterns b (2^K, K) of a few bits, and what they cost in each row, b'S_i b - 2 q_i'b, (d, 2^K)."""
    K = Q.shape[1]
    patterns, products = all_patterns(K)
    return patterns, np.reshape(S, (-1, K * K)) @ products.T - 2 * Q @ patterns.T


@lru_cache(maxsize=MAX_JOINT + 1)
def all_patterns(K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all patterns (2^K, K) of a few bits, and the products of any two of their bits, (2^K, K^2)."""
    patterns = (np.arange(2**K)[:, None] >> np.arange(K) & 1).astype(float)
    return patterns, (patterns[:, :, None] * patterns[:, None, :]).reshape(len(patterns), K * K)


def solve_rows(H: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Return the rows a_i with H a_i = p_i for a positive semidefinite H (K, K), or one H_i (d, K, K) for each row.

    By Cholesky or, where H is singular, the solution of least norm.
    """
    if H.ndim == 3:
        return solve_each_row(H, P)
    L, failed = dpotrf(H, lower=1, clean=0)  # LAPACK itself: for a small H the checks of scipy.linalg take longer
    if not failed and L.diagonal().min() ** 2 > 1e-12 * H.diagonal().max():
        return dpotrs(L, P.T, lower=1)[0].T
    return P @ pseudo_inverse(H)


def solve_each_row(H: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Return X_i with H_i X_i = P_i for vectors P (d, K) or matrices (d, K, M), of least norm if H_i is singular.

    The unknowns are brought to one scale first, by the mean diagonal.
    """
    X = np.array(P, dtype=float, order="C").reshape(*H.shape[:2], -1)
    failed, scale = solve_each(np.ascontiguousarray(H), X, CLEAR, NOTHING)
    if failed.any():
        X[failed] = pseudo_inverse(H[failed], scale) @ X[failed]
    return X.reshape(P.shape)


def pseudo_inverse(H: np.ndarray, scale: np.ndarray | None = None) -> np.ndarray:
    """Return the pseudo-inverse of H (K, K) or of each H_i (d, K, K), its columns brought to one scale (K,) first.

    A row that the observed entries hardly determine is not inflated: directions with less than a part
    SINGULAR of the largest eigenvalue count as unknown.
    """
    if scale is None:
        diagonal = np.einsum("...kk->...k", H).reshape(-1, H.shape[-1]).mean(axis=0)
        scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))  # rounding can make it negative
    scaled = H / (scale[:, None] * scale)
    scaled[np.abs(scaled) < NOTHING] = 0.0  # its inverse would overflow
    return np.linalg.pinv(scaled, rcond=SINGULAR, hermitian=True) / (scale[:, None] * scale)


def noise_variance(data: Storage, W: Columns) -> float:
    """Return the variance of the noise, by the observed entries that a fit has not used; 1 for counts and bits."""
    if isinstance(data, Weighted) and data.loss.is_rate:
        return 1.0
    n, n_free = n_observed(data), len(W.owner) * (sum(data.shape) - len(data.shape) + 1)
    return max(W.loss, 0.0) / max(n - n_free, 0.1 * n)
