"""Beyond the paper: all factors of the atoms corrected in turn, real columns by least squares, bits row by row."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np

from boolcp.contractions import CHUNK, gram_product
from boolcp.fit._kernels import descend_bits, polish_factors
from boolcp.fit._loss_kernels import decide_nonnegative
from boolcp.fit.relax import MAX_COMPILED, Sweeps, quadratic, solve_each_row, solve_rows
from boolcp.result.columns import Columns
from boolcp.storage.equations import Equations
from boolcp.storage.lazy import ObservedLazyTensor
from boolcp.storage.protocol import Storage

Choose = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # S, Q and the current bits to the new ones

TOL = 1e-9  # relative fall of the loss that ends a polish
MAX_JOINT = 10  # Boolean columns of one mode up to which all 2^K patterns are tried in each row; not tuned
LEAST = 0.01  # smallest share of the energy of a column that counts as signal; not tuned
ROUNDING = 1e-15  # a loss computed from inner products is known to this part of |X|^2
TIE = 1e-12  # relative rise of a loss that counts as rounding
PLENTY = 100  # observed entries for each free parameter that make traps rare; by bench_completion.py
PASS_GAIN = 0.05  # gain, in units of the noise variance for each free parameter, not worth a pass; not tuned
PASS_FALL = 1e-10  # fall of the loss, in parts of |X|^2, that is not worth a pass: the tensor has no noise; not tuned
SLOW = 5  # sweeps over columns of rank one after which they converge slowly; not tuned


def polish(
    data: Storage,
    W: Columns,
    *,
    max_iter: int = 50,
    tol: float = TOL,
    variance: float = 0.0,
    penalty: float = 0.0,
    loss: float = float("inf"),
    below: float = float("inf"),
) -> Columns:
    """Return the columns after alternating over the modes until nothing changes; the loss never rises.

    With the `loss` of W, if it is known, the first sweep can be the last. Columns that would not end `below` a loss at
    the pace of their last sweep are given up.
    """
    if variance == penalty == 0 and max_iter > 0 and (found := polish_core(data, W, max_iter, tol, loss)):
        return found
    here = Sweeps(replace(W, loss=loss))
    for sweeps in polish_sweeps(data, here, max_iter=max_iter, tol=tol, variance=variance, penalty=penalty):
        before, here = here, sweeps
        if is_behind(before, here, max_iter, below):
            break
    return here.result


def is_behind(before: Sweeps, here: Sweeps, max_iter: int, below: float) -> bool:
    """Return True if sweeps would end above a loss at the pace of the last one."""
    return here.W.loss - (max_iter - here.n_done) * (before.W.loss - here.W.loss) > below


def polish_core(data: Storage, W: Columns, max_iter: int, tol: float, loss: float) -> Columns | None:
    """Return the columns after the same sweeps, compiled for a small complete tensor; None if that is not possible."""
    if not data.is_complete or data.n_passes or data.is_weighted or W.is_tied or not W.n_atoms:
        return None
    core, order = data.core, sweep_order(data)
    is_small = max(np.prod(core.shape, dtype=float), sum(data.shape)) <= MAX_COMPILED
    if not is_small or np.bincount(W.boolean_mode).max() > MAX_JOINT:
        return None
    X = np.ascontiguousarray(core.to_array().transpose(order), dtype=float)
    bases = np.concatenate([data.bases[n].ravel() for n in order]) if data.bases else np.zeros(0)
    F, lengths = np.vstack([W.matrices[n] for n in order]), np.array(data.shape)[order]
    least = ROUNDING * data.squared_norm
    options = (np.argsort(order)[W.boolean_mode], data.squared_norm, loss, max_iter, tol, least)
    found = polish_factors(X.reshape(len(X), -1), np.array(X.shape), bases, lengths, F, *options)
    if not np.isfinite(found):
        return None
    matrices = np.split(F, np.cumsum(lengths)[:-1])
    return W.with_matrices([matrices[at] for at in np.argsort(order)], max(found, 0.0))


def polish_sweeps(
    data: Storage,
    here: Sweeps,
    *,
    max_iter: int = 50,
    tol: float = TOL,
    variance: float = 0.0,
    penalty: float = 0.0,
) -> Iterator[Sweeps]:
    """Yield sweeps over the modes: real columns by least squares, Boolean ones bit by bit. The loss never rises.

    They are settled when no bit changes and a sweep lowers the loss by less than `tol` of it. With missing entries and
    a `variance` of the noise, real columns have the ridge of `ridges`, and the loss may rise a little. With a
    `penalty` the loss of complete data is |X - W|^2 + penalty sum_k |W_k|^2 over the columns, which cancel less.
    """
    if here.n_done > 0:
        remember(data, here.W)
    while here.n_done < max_iter and not here.is_settled:
        W, is_changed = sweep(data, here.W, variance, penalty=penalty)
        if not np.isfinite(W.loss):  # too few observed entries to hold the factors
            yield Sweeps(W.with_matrices(W.matrices), here.n_done + 1, True)
            return
        is_low = here.W.loss - W.loss <= tol * W.loss + ROUNDING * data.squared_norm + small_gain(data, W, here.n_done)
        here = Sweeps(W, here.n_done + 1, bool(is_low and not is_changed))
        yield here


def sweep(
    data: Storage,
    W: Columns,
    variance: float = 0.0,
    choose: Choose | None = None,
    nonnegative: tuple[int, ...] = (),
    penalty: float = 0.0,
) -> tuple[Columns, bool]:
    """Decide the factor of each mode once; return the columns with |X - W|^2, and whether a bit changed.

    `choose` decides the bits of rows, `best_bits` by default. Complete data is read for one mode only, the longest,
    which goes first: contracted with the factor found, it is small and has all that the other modes need. Real columns
    along `nonnegative` modes of complete data are nonnegative. A `penalty` is part of the loss, see `polish_sweeps`: it
    is the same multiple of the diagonal of the normal equations for each mode.
    """
    factors, order, is_changed = list(W.matrices), sweep_order(data), False
    if is_swept_in_a_pass(data, len(W.owner)):
        return sweep_in_a_pass(cast(ObservedLazyTensor, data), W, variance, choose)
    source: Any = data
    for mode in order:
        S, boolean = W.ties(mode)
        decide = decide_signed if mode in nonnegative else decide_columns
        if data.is_complete and mode == order[0]:
            H = gram_product(factors, mode)
            H = H + np.diag(penalty * np.diag(H))
            A, source = source.update(factors, mode, partial(decide, H, S, boolean, choose=choose))
        else:
            H, P = source.normal_equations(factors, mode)
            H = H + np.diag(penalty * np.diag(H)) if data.is_complete else H
            ridged = with_ridge(H, S, boolean, factors[mode], variance, sum(data.shape))
            A = decide(ridged, S, boolean, P, factors[mode], choose)
        own = W.column_mode == mode
        is_changed |= not np.array_equal(A[:, own], factors[mode][:, own])
        factors[mode] = A
        if mode != order[-1]:
            sizes = balance_real(factors, W.column_mode, mode, order)
            if mode == order[0] and source is not data:
                source = source.scaled(1 / sizes)
    return W.with_matrices(factors, data.squared_norm - 2 * np.sum(P * A) + quadratic(H, A)), is_changed


def is_swept_in_a_pass(data: Storage, n_columns: int) -> bool:
    """Return True if entries are missing in data that are read in passes, and the others are plenty."""
    return data.n_passes > 0 and not data.is_complete and data.n_observed >= PLENTY * n_columns * sum(data.shape)


def remember(data: Storage, W: Columns) -> None:
    """Compute what a pass of `sweep_in_a_pass` that ended with W knows, if it is not known: a fit was resumed."""
    if is_swept_in_a_pass(data, len(W.owner)):
        lazy = cast(ObservedLazyTensor, data)
        if lazy.known_near(W.matrices) is None:
            lazy.update(W.matrices, keep_rows)


def keep_rows(H: np.ndarray, P: np.ndarray, current: np.ndarray) -> np.ndarray:
    """Return the rows as they are."""
    return current


def small_gain(data: Storage, W: Columns, n_done: int) -> float:
    """Return the gain of a sweep that is not worth a pass where sweeps converge slowly; 0 in memory."""
    n_columns = len(W.owner)
    is_slow = W.is_tied or (data.is_complete and n_done >= SLOW)
    if not (is_slow and data.n_passes) and not is_swept_in_a_pass(data, n_columns):
        return 0.0
    return PASS_GAIN * W.loss * n_columns * sum(data.shape) / data.n_observed + PASS_FALL * data.squared_norm


def sweep_in_a_pass(
    data: ObservedLazyTensor, W: Columns, variance: float, choose: Choose | None
) -> tuple[Columns, bool]:
    """Return the columns after a sweep over observed entries that takes one pass, with their loss; and `is_changed`.

    The factors of the other modes are decided from what the last pass has left, if it ended with W, and that of the
    mode of the cut as it is read. If the loss rises, which only the change of the others at the same time can
    cause, one of them is decided alone.
    """
    known, cut = data.known_near(W.matrices), data.direction()
    others = [n for n in range(data.ndim) if n != cut]
    factors = decide_others(data, W, known, others, variance, choose)
    found = end_of_pass(data, W, factors, known, variance, choose)
    if known is not None and choose is None and variance == 0 and found.loss > W.loss * (1 + TIE):
        factors = decide_others(data, W, known, others[:1], variance, choose)
        found = end_of_pass(data, W, factors, known, variance, choose)
    pairs = zip(range(data.ndim), W.matrices, found.matrices, strict=True)
    return found, any(not np.array_equal(A[:, own], B[:, own]) for n, A, B in pairs for own in [W.column_mode == n])


def decide_others(
    data: Storage, W: Columns, known: Equations | None, modes: list[int], variance: float, choose: Choose | None
) -> list[np.ndarray]:
    """Return the factors with those of some modes decided one after the other; real columns have norm one."""
    factors = list(W.matrices)
    if known is None:
        return factors
    for mode in modes:
        S, boolean = W.ties(mode)
        H, P = known.near_equations(factors, mode)
        ridged = with_ridge(H, S, boolean, factors[mode], variance, sum(data.shape))
        factors[mode] = decide_columns(ridged, S, boolean, P, factors[mode], choose)
    order = [*known.others, known.cut]
    for mode in known.others:
        balance_real(factors, W.column_mode, mode, order)
    return factors


def end_of_pass(
    data: ObservedLazyTensor,
    W: Columns,
    factors: list[np.ndarray],
    known: Equations | None,
    variance: float,
    choose: Choose | None,
) -> Columns:
    """Return the columns after a pass that decides the factor of the mode of the cut, with their loss."""
    cut = data.direction()
    S, boolean = W.ties(cut)
    ridge = np.zeros(len(W.owner))
    if variance > 0 and known is not None:
        ridge = ridges(known.near(factors, cut), S, boolean, factors[cut], variance, sum(data.shape))
    factors = data.update(factors, partial(decide_slab, np.diag(ridge), S, boolean, choose))
    mode = min(range(data.ndim), key=data.shape.__getitem__)
    H, P = data.normal_equations(factors, mode)
    A = factors[mode]
    return W.with_matrices(factors, data.squared_norm - 2 * np.sum(P * A) + quadratic(H, A))


def decide_slab(
    ridge: np.ndarray,
    S: np.ndarray | None,
    boolean: np.ndarray,
    choose: Choose | None,
    H: np.ndarray,
    P: np.ndarray,
    current: np.ndarray,
) -> np.ndarray:
    """Return the rows of a slab, each with its own normal equations."""
    return decide_columns(H + ridge, S, boolean, P, current, choose)


def with_ridge(
    H: np.ndarray, S: np.ndarray | None, boolean: np.ndarray, A: np.ndarray, variance: float, n_free: float
) -> np.ndarray:
    """Return the normal equations H_i (d, R, R) of the rows of a factor A (d, R) with a ridge for each real column."""
    return H if variance == 0 or H.ndim == 2 else H + np.diag(ridges(H, S, boolean, A, variance, n_free))


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


def decide_columns(
    H: np.ndarray,
    S: np.ndarray | None,
    boolean: np.ndarray,
    P: np.ndarray,
    current: np.ndarray,
    choose: Choose | None = None,
) -> np.ndarray:
    """Return the best rows (d, R) of one factor whose columns are tied by S, given H and P; see `Columns.ties`."""
    if S is None:
        return decide_rows(H, P, boolean, current, choose)
    unknowns = decide_rows(S.T @ H @ S, P @ S, boolean, current @ S / S.sum(axis=0), choose)
    return unknowns @ S.T


def decide_signed(
    H: np.ndarray,
    S: np.ndarray | None,
    boolean: np.ndarray,
    P: np.ndarray,
    current: np.ndarray,
    choose: Choose | None = None,
    *,
    is_nonnegative: bool = True,
    is_fixed: bool = False,
) -> np.ndarray:
    """Return the rows of `decide_columns` with nonnegative real columns; if `is_fixed`, bits stay as they are."""
    A = current.copy() if S is None else current @ S / S.sum(axis=0)
    if S is not None:
        H, P = S.T @ H @ S, P @ S
    each = np.ascontiguousarray(H if H.ndim == 3 else H[None])
    decide_nonnegative(each, np.ascontiguousarray(P), boolean, np.full(len(boolean), is_nonnegative), A, is_fixed)
    return A if S is None else A @ S.T


def sweep_order(data: Storage) -> list[int]:
    """Return the modes in the order of a sweep: of complete data the longest (the first of them) goes first."""
    modes = list(range(data.ndim))
    if data.is_complete:
        modes.insert(0, modes.pop(int(np.argmax(data.shape))))
    return modes


def balance_real(factors: list[np.ndarray], column_mode: np.ndarray, mode: int, order: list[int]) -> np.ndarray:
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
    if H.ndim == 3 and len(R):
        return decide_each_row(H, P, B, R, current, choose)
    A = np.empty_like(P)
    S, Q = eliminate_real(H, P, B, R)
    A[:, B] = bits = (best_bits if choose is None else choose)(S, Q, current[:, B])
    if len(R):
        A[:, R] = solve_rows(H[R[:, None], R], P[:, R] - bits @ H[R[:, None], B].T)
    return A


def eliminate_real(H: np.ndarray, P: np.ndarray, B: np.ndarray, R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return S and Q: b'Sb - 2 q_i'b is what the bits b of row i cost when the real columns are the best for them.

    B and R are the Boolean and the real columns. H is shared, (K, K); without real columns there may be one for each
    row, (d, K, K), and so is S.
    """
    S, Q = H[..., B[:, None], B], P[:, B]
    if len(R) == 0:
        return S, Q
    H_RB = H[R[:, None], B]
    back = solve_rows(H[R[:, None], R], H_RB.T).T
    return S - H_RB.T @ back, Q - P[:, R] @ back


def decide_each_row(
    H: np.ndarray, P: np.ndarray, B: np.ndarray, R: np.ndarray, current: np.ndarray, choose: Choose | None
) -> np.ndarray:
    """Return the rows of `decide_rows` for one H_i (d, K, K) each: its real part is solved once, for all bits."""
    H_RB = H[:, R[:, None], B]
    solved = solve_each_row(H[:, R[:, None], R], np.concatenate([H_RB, P[:, R, None]], axis=2))
    back, alone = solved[:, :, :-1], solved[:, :, -1]
    S = H[:, B[:, None], B] - np.swapaxes(H_RB, 1, 2) @ back
    bits = (best_bits if choose is None else choose)(S, P[:, B] - times(alone, H_RB), current[:, B])
    A = np.empty_like(P)
    A[:, B], A[:, R] = bits, alone - times(bits, np.swapaxes(back, 1, 2))
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
