"""Beyond the paper: relax, round, polish. All factors of rank-one atoms are corrected, not only their weights."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from boolcp._row_kernels import descend_bits
from boolcp.atom_search import best_boolean, greedy_atom_search
from boolcp.atoms import Atom, BooleanCP
from boolcp.contractions import CHUNK, gram_product
from boolcp.relax import cp_als, pencil_start, pseudo_inverse, quadratic, random_factors, solve_rows
from boolcp.storage import TuckerTensor

MAX_JOINT = 10  # Boolean columns of one mode whose 2^K patterns are all tried in each row
MIN_STARTS = 3  # starts that are always run; more only until two agree on the lowest loss
EXACT = 1e-10  # a loss below this part of |X|^2 is that of a noiseless tensor
PLENTY = 100  # observed entries for each free parameter that make traps rare
ROUNDING = 1e-15  # a loss computed from inner products is known to this part of |X|^2
SAME_LOSS = 1e-7  # difference of two losses, relative to |X|^2, that counts as none


@dataclass(frozen=True)
class Factors:
    """Factor matrices (d_n, K) with the size of each atom in its real columns, Boolean modes (K,) and |X - W|^2."""

    matrices: list
    boolean_mode: np.ndarray
    loss: float


def refine(data, small, W, n_atoms, modes, rng, *, n_init=10, max_iter=50):
    """Return the Factors of lowest loss over several starts of relax - round - polish, finished on the full data.

    Parameters
    ----------
    data, small : storage
        The tensor, and the complete one on which the starts are run: compressed, or `data` itself. Where entries
        are missing it is the tensor with zeros in their place.
    W : BooleanCP
        The pursuit's estimate: the first start, and what the result is never worse than.
    n_atoms : int
        Number of atoms K.
    modes : sequence of int
        The modes allowed to be Boolean.
    n_init : int
        Starts at most; fewer are run when two of them agree on the lowest loss.
    max_iter : int
        Sweeps of a polish at most.
    """
    best = search(small, W, n_atoms, modes, rng, n_init=n_init, max_iter=max_iter)
    if data.is_complete:
        best = revive(data, polish(data, best.matrices, best.boolean_mode, max_iter=max_iter), modes, rng)
    else:
        best = search_observed(data, best, modes, rng, n_init=n_init, max_iter=max_iter)
    floor = data.squared_norm - W.weights @ W.data_inner
    if W.n_atoms == n_atoms and best.loss > floor:  # never worse than the pursuit
        candidate = polish(data, sized_factors(W), W.boolean_mode, max_iter=max_iter)
        best = min(best, candidate, key=lambda solution: solution.loss)
    return best


def refine_path(data, small, steps, modes, rng, *, n_init=1, max_iter=3):
    """Return the refined decompositions with 0, 1, 2, .. atoms; each starts from the one before and a greedy atom."""
    path = [BooleanCP(data.shape)]
    found = path[0]  # on the small tensor
    for n_atoms in steps:
        start = add_greedy(small, found, 1, modes, rng)
        if start is None:
            break
        best = search(small, start, n_atoms, modes, rng, n_init=n_init, max_iter=10, n_relax=30, is_repaired=False)
        found = to_decomposition(data.shape, best)
        best = polish(data, best.matrices, best.boolean_mode, max_iter=max_iter)
        path.append(to_decomposition(data.shape, best))
    return path


def search(small, W, n_atoms, modes, rng, *, n_init=10, max_iter=50, n_relax=200, is_repaired=True):
    """Return the Factors of lowest loss over several starts on a complete tensor."""
    best, n_agree = None, 0
    for n_starts, factors in enumerate(starts(small, W, n_atoms, rng, n_init), 1):
        relaxed = relax(small, factors, max_iter=n_relax)[0]
        candidate = polish(small, *round_factors(relaxed, modes), max_iter=max_iter)
        candidate = revive(small, candidate, modes, rng)
        best, n_agree = compare(best, n_agree, candidate, small.squared_norm)
        if n_starts >= MIN_STARTS and n_agree >= 2:
            return best
    return repair(small, best, modes, rng) if is_repaired else best


def search_observed(data, start, modes, rng, *, n_init, max_iter):
    """Return the Factors of lowest loss over the observed entries, from `start` and from what it lacks.

    `start` is polished, and taken if entries are plenty and the Boolean constraint costs no more than noise would
    explain. Else it is relaxed first, as another candidate. Unless two agree and the constraint is free, half of the
    atoms of the best are drawn anew at random and everything is relaxed again, until four candidates agree.
    """
    first = polish(data, start.matrices, start.boolean_mode, max_iter=max_iter)
    best, n_agree = revive(data, first, modes, rng), 1
    if best.loss <= EXACT * data.squared_norm:
        return best
    least = cp_als(data, best.matrices, max_iter=3, tol=0.0)[1]
    is_plenty = data.n_observed >= PLENTY * len(best.boolean_mode) * sum(data.shape)
    if is_plenty and is_free(data, best, least):
        return best
    factors = start.matrices
    for _ in range(n_init):
        relaxed, loss = relax_observed(data, factors)
        least = min(least, loss)
        candidate = polish(data, *round_factors(relaxed, modes), max_iter=max_iter)
        best, n_agree = compare(best, n_agree, revive(data, candidate, modes, rng), 10 * data.squared_norm)
        if n_agree >= 4 or (n_agree >= 2 and is_free(data, best, least)):
            break
        factors = redraw(best, rng)
    return best


def relax_observed(data, factors):
    """Return CP factors fitted to the observed entries, and their loss.

    A ridge that fades keeps poor starts from blowing up.
    """
    for ridge, max_iter in ((1e-1, 10), (1e-2, 30), (0.0, 10)):
        factors, loss = cp_als(data, factors, max_iter=max_iter, tol=1e-5, ridge=ridge)
    return factors, loss


def is_free(data, solution, relaxed_loss):
    """Return True if the Boolean constraint raises the loss by no more than noise does, three times over.

    Noise of variance s^2 lowers the loss of the relaxed fit by about s^2 for each entry that the constraint fixes.
    """
    n_bits = sum(data.shape[mode] for mode in solution.boolean_mode)
    n_free = len(solution.boolean_mode) * sum(data.shape)
    variance = relaxed_loss / max(data.n_observed - n_free, 1)
    return solution.loss - relaxed_loss <= 3 * n_bits * variance + EXACT * data.squared_norm


def redraw(solution, rng):
    """Return the factors with half of the atoms, at least one, replaced by random columns of the median size."""
    factors = [A / np.maximum(np.linalg.norm(A, axis=0), 1e-300) for A in solution.matrices]
    sizes = np.prod([np.linalg.norm(A, axis=0) for A in solution.matrices], axis=0)
    for k in rng.choice(len(sizes), max(1, len(sizes) // 2), replace=False):
        for A in factors:
            A[:, k] = rng.standard_normal(len(A)) / np.sqrt(len(A))
        sizes[k] = np.median(sizes)
    factors[-1] = factors[-1] * sizes
    return factors


def compare(best, n_agree, candidate, squared_norm):
    """Return the better of two solutions and how many reached its loss so far."""
    if best is None or candidate.loss < best.loss - SAME_LOSS * squared_norm:
        return candidate, 1
    return best, n_agree + (candidate.loss <= best.loss + SAME_LOSS * squared_norm)


def starts(small, W, n_atoms, rng, n_init):
    """Yield `n_init` CP starts in turn: the pursuit's atoms, eigenvectors of slice pencils, random factors."""
    core = small.core if isinstance(small, TuckerTensor) else small
    count = 0
    if W.n_atoms == n_atoms:
        yield sized_factors(W)
        count += 1
    while count < n_init:
        factors = pencil_start(core, n_atoms, rng) if count % 3 == 1 else None
        yield expand(small, random_factors(core.shape, n_atoms, rng) if factors is None else factors)
        count += 1


def expand(small, factors):
    """Return factors of the core as factors of the tensor."""
    if not isinstance(small, TuckerTensor):
        return factors
    return [U @ A for U, A in zip(small.bases, factors, strict=True)]


def relax(data, factors, *, max_iter=200, tol=1e-8):
    """Return the CP factors reached from `factors` without the Boolean constraint, and their loss."""
    if not isinstance(data, TuckerTensor):
        return cp_als(data, factors, max_iter=max_iter, tol=tol)
    small = [U.T @ A for U, A in zip(data.bases, factors, strict=True)]
    small, loss = cp_als(data.core, small, max_iter=max_iter, tol=tol)
    return expand(data, small), loss + data.squared_norm - data.core.squared_norm


def round_factors(factors, modes):
    """Return factors in which one column of each component is replaced by the {0, a} column that fits it best.

    For each component the allowed mode is taken whose column is closest in angle to a Boolean vector.
    """
    factors = [A.copy() for A in factors]
    boolean_mode = np.empty(factors[0].shape[1], dtype=int)
    for k in range(factors[0].shape[1]):
        fits = []
        for mode in modes:
            a = factors[mode][:, k]
            z, _ = best_boolean(a)
            total = a[z].sum()
            fits.append((total**2 / z.sum() / max(a @ a, 1e-300), mode, z, total / z.sum()))
        _, mode, z, scale = max(fits, key=lambda fit: fit[0])
        boolean_mode[k] = mode
        factors[mode][:, k] = z
        factors[1 if mode == 0 else 0][:, k] *= scale
    return factors, boolean_mode


def polish(data, factors, boolean_mode, *, max_iter=50, tol=1e-9):
    """Return Factors after alternating over the modes, real columns by least squares and Boolean ones bit by bit.

    The loss never rises. Stops when no bit changes and a sweep lowers the loss by less than `tol` of it.
    """
    factors = [np.array(A, dtype=float) for A in factors]
    previous = np.inf
    for _ in range(max_iter):
        changed, loss = sweep(data, factors, boolean_mode)
        if not np.isfinite(loss):  # too few observed entries to hold the factors
            return Factors(factors, boolean_mode, np.inf)
        if not changed and previous - loss <= tol * loss + ROUNDING * data.squared_norm:
            break
        previous = loss
    return Factors(factors, boolean_mode, max(float(loss), 0.0))


def sweep(data, factors, boolean_mode):
    """Decide the factor of each mode once, in place; return whether a bit changed, and |X - W|^2.

    Complete data is read for one mode only, the longest, which goes first: contracted with the factor found, it is
    small and has all that the other modes need.
    """
    order, changed, source = sweep_order(data), False, data
    for mode in order:
        boolean = boolean_mode == mode
        if data.is_complete and source is data:
            H = gram_product(factors, mode)
            A, source = data.update(factors, mode, partial(decide_rows, H, boolean=boolean))
        else:
            H, P = source.normal_equations(factors, mode)
            A = decide_rows(H, P, boolean, factors[mode])
        changed |= not np.array_equal(A[:, boolean], factors[mode][:, boolean])
        factors[mode] = A
        if mode != order[-1]:
            sizes = balance_real(factors, boolean_mode, mode, order)
            if mode == order[0] and source is not data:
                source = source.scaled(1 / sizes)
    return changed, data.squared_norm - 2 * np.sum(P * A) + quadratic(H, A)


def sweep_order(data):
    """Return the modes in the order of a sweep: of complete data the longest (the first of them) goes first."""
    modes = list(range(data.ndim))
    if data.is_complete:
        modes.insert(0, modes.pop(int(np.argmax(data.shape))))
    return modes


def balance_real(factors, boolean_mode, mode, order):
    """Make the real columns of one factor unit vectors in place, and return the sizes (K,) that were taken out.

    They go to the factor of the last mode in `order` that is real.
    """
    last = np.where(boolean_mode == order[-1], order[-2], order[-1])
    moved = (boolean_mode != mode) & (last != mode)
    sizes = np.where(moved, np.linalg.norm(factors[mode], axis=0), 1.0)
    sizes[sizes == 0] = 1.0
    factors[mode] = factors[mode] / sizes
    for n in set(last[moved].tolist()):
        factors[n] = factors[n] * np.where(last == n, sizes, 1.0)
    return sizes


def decide_rows(H, P, boolean, current):
    """Return the rows a_i (d, K) that minimize a'Ha - 2 p_i'a with a 0/1 where `boolean`, jointly in all columns.

    H is shared (K, K) or one for each row (d, K, K). The real columns are eliminated; the remaining quadratic in the
    bits is minimized over all patterns when they are few, else by flips of one and two bits from the current and from
    the relaxed bits.
    """
    if not boolean.any():
        return solve_rows(H, P)
    B, R = np.flatnonzero(boolean), np.flatnonzero(~boolean)
    A = np.empty_like(P)
    S, Q = H[..., B[:, None], B], P[:, B]
    if len(R):
        H_RR, H_RB = H[..., R[:, None], R], H[..., R[:, None], B]
        back = pseudo_inverse(H_RR) @ H_RB
        S, Q = S - np.swapaxes(H_RB, -1, -2) @ back, Q - times(P[:, R], back)
    A[:, B] = bits = best_bits(S, Q, current[:, B])
    if len(R):
        A[:, R] = solve_rows(H_RR, P[:, R] - times(bits, np.swapaxes(H_RB, -1, -2)))
    return A


def times(rows, M):
    """Return the rows (d, K) times a shared matrix (K, L) or each times its own (d, K, L)."""
    return rows @ M if M.ndim == 2 else np.einsum("ik,ikl->il", rows, M)


def best_bits(S, Q, current):
    """Return 0/1 rows b_i (d, K) that minimize b'S_i b - 2 q_i'b, for S (K, K) or (d, K, K)."""
    d, K = Q.shape
    step = max(1, CHUNK // 2 ** min(K, MAX_JOINT))
    if d > step:  # the costs of all patterns in all rows of a long mode would be a large array
        rows = [slice(start, start + step) for start in range(0, d, step)]
        return np.concatenate([best_bits(S if S.ndim == 2 else S[i], Q[i], current[i]) for i in rows])
    if K <= MAX_JOINT:
        patterns = (np.arange(2**K)[:, None] >> np.arange(K) & 1).astype(float)
        products = (patterns[:, :, None] * patterns[:, None, :]).reshape(len(patterns), K * K)
        costs = np.reshape(S, (-1, K * K)) @ products.T - 2 * Q @ patterns.T
        return patterns[np.argmin(costs, axis=1)]
    found = []
    each = np.ascontiguousarray(np.broadcast_to(S, (d, K, K)))
    for start in (current, solve_rows(S, Q) > 0.5):
        bits = np.array(start, dtype=float, order="C")
        descend_bits(each, np.ascontiguousarray(Q), bits)
        found.append((np.einsum("ik,ikl,il->i", bits, each, bits) - 2 * np.einsum("ik,ik->i", Q, bits), bits))
    (first, bits), (second, others) = found
    return np.where((second < first)[:, None], others, bits)


def is_dead(factors):
    """Return which atoms are empty or without size, (K,)."""
    sizes = np.prod([np.linalg.norm(A, axis=0) for A in factors], axis=0)
    return sizes <= 1e-12 * max(sizes.max(initial=0.0), 1e-300)


def revive(data, solution, modes, rng):
    """Return the solution with each dead atom replaced by the atom of steepest descent, all polished again."""
    for _ in range(len(solution.boolean_mode)):
        dead = is_dead(solution.matrices)
        if not dead.any():
            break
        replaced = exchange(data, solution, dead, modes, rng)
        if replaced is None:
            break
        replaced = polish(data, *replaced)
        if replaced.loss >= solution.loss:
            break
        solution = replaced
    return solution


def repair(small, solution, modes, rng, *, n_trials=3):
    """Return the solution after moves out of known traps, each taken only if the loss falls.

    The atoms most alike (same mode and nearly the same or complementary bits), else the two that matter least, are
    removed together, found again one by one, and everything is relaxed, rounded and polished.
    """
    for _ in range(n_trials):
        out = np.zeros(len(solution.boolean_mode), dtype=bool)
        out[most_alike(solution)] = True
        replaced = exchange(small, solution, out, modes, rng)
        if replaced is None:
            break
        candidate = polish(small, *round_factors(relax(small, replaced[0])[0], modes))
        if candidate.loss >= solution.loss - SAME_LOSS * small.squared_norm:
            break
        solution = candidate
    return solution


def most_alike(solution):
    """Return the indices of the two atoms with the most similar (or most complementary) factors."""
    unit = [A / np.maximum(np.linalg.norm(A, axis=0), 1e-300) for A in solution.matrices]
    alike = np.sort([np.abs(A.T @ A) for A in unit], axis=0)[1:].sum(axis=0)  # all modes but the least similar
    np.fill_diagonal(alike, -1)
    return list(np.unravel_index(np.argmax(alike), alike.shape))


def exchange(data, solution, out, modes, rng):
    """Return factors and Boolean modes with the atoms `out` replaced by greedy ones, or None if nothing descends."""
    W = add_greedy(data, to_decomposition(data.shape, solution, keep=~out), int(out.sum()), modes, rng)
    return None if W is None else (sized_factors(W), W.boolean_mode)


def add_greedy(data, W, n_atoms, modes, rng):
    """Return W with `n_atoms` more atoms of steepest descent, or None if nothing descends."""
    for _ in range(n_atoms):
        found = greedy_atom_search(data.residual(W), modes, rng, certify=False)
        if found is None:
            return None
        weights = np.append(W.weights, found.descent / found.atom.n_ones)
        W = BooleanCP(data.shape, (*W.atoms, found.atom), weights)
    return W


def sized_factors(W):
    """Return the factor matrices of rank-one atoms with the weight of each atom in its first real column."""
    factors = [np.array(A, dtype=float) for A in W.factors]
    for k, (mode, weight) in enumerate(zip(W.boolean_mode, W.weights, strict=True)):
        factors[1 if mode == 0 else 0][:, k] *= weight
    return factors


def to_decomposition(shape, solution, keep=None):
    """Return the BooleanCP of a solution: real columns of norm one, positive weights, dead atoms left out.

    The entry of largest magnitude is positive in every real column but the last one, which takes the sign.
    """
    dead = is_dead(solution.matrices)
    chosen = ~dead if keep is None else keep & ~dead
    atoms, weights = [], []
    for k in np.flatnonzero(chosen):
        mode = int(solution.boolean_mode[k])
        vectors = [A[:, k] for n, A in enumerate(solution.matrices) if n != mode]
        sizes = [np.linalg.norm(v) for v in vectors]
        vectors = [v / size for v, size in zip(vectors, sizes, strict=True)]
        for i, v in enumerate(vectors[:-1]):
            if v[np.argmax(np.abs(v))] < 0:
                vectors[i], vectors[-1] = -v, -vectors[-1]
        atoms.append(Atom(mode, solution.matrices[mode][:, k] > 0.5, tuple(v[:, None] for v in vectors)))
        weights.append(np.prod(sizes))
    return BooleanCP(shape, tuple(atoms), np.array(weights))
