"""Starts of a refined fit: relax, round, polish from several of them, and compare what they reach."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import scipy.linalg

from boolcp.fit.atom_search import Candidate, greedy_atom_search, power_iterations, search_residual
from boolcp.fit.spec import Spec, State
from boolcp.fit.sweep import MAX_JOINT, all_patterns, noise_variance, polish, relax
from boolcp.program.maxcut import DEPENDENT, best_boolean, best_signed_response
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.storage.dense import Complete, Dense, n_observed
from boolcp.storage.protocol import Storage
from boolcp.storage.tucker import Tucker, leading_basis
from boolcp.storage.weighted import SQUARES, Weighted, full

# chosen by benchmarks/bench_refine.py and bench_completion.py
EXACT = 1e-10  # a loss below this part of |X|^2 means a noiseless tensor
SAME_LOSS = 1e-7  # difference of two losses, relative to |X|^2, that counts as none
RIVAL = 0.005  # a solution whose loss is higher by at most this part of it is a rival
ALIKE = 0.1  # share of bits in which two atoms of one mode may differ and still be the same
MAX_RIVALS = 5  # that are kept; not tuned
FALL = 1e-6  # relative fall of the loss that ends a polish of complete data before the last; not tuned
POLISHED = 1e-5  # relative fall of the loss over observed entries that ends the polish of one start; not tuned
RIDGES = ((1e-1, 10), (1e-2, 30), (0.0, 10))  # ridge and sweeps of a relaxation over observed entries
N_RELAX = (200, 60)  # sweeps of a relaxation at most, for rank one (by bench_refine.py) and larger ranks (not tuned)
N_LONG, N_SHORT = 3, 20  # starts that take them all (not tuned), sweeps of most others; by other windows of recordings
N_SPANS, N_ROWS = 15, 100  # sets of rows that complete bits in a span (by other seeds), rows that judge them first
N_PRODUCTS, N_POWER = 8, 6  # random products of vectors that lead to an atom, and rounds (by other seeds)
N_REPLACED, N_VAIN, N_BETWEEN = 2, 8, 10  # atoms that are found again, tries in vain and sweeps (by other seeds)
ROUNDS = ((15, 1e-5, 0.05), (50, 1e-9, 3e-3))  # more sweeps of a try, their tolerance, for losses so close to the best
N_TURNED, MAX_TURNED = 20, 100  # sweeps after an atom was turned; turned atoms times all atoms; not tuned
HEAVY = 2.0  # gain of the best atom in noise of counts, in units of normal noise; by other seeds of bench_losses.py
SMALL_FALL = 0.05  # gain of a sweep over observed entries, in units of the noise of each number, that ends it


def compared(s: State, candidate: Columns, squared_norm: float, is_new: bool = True) -> State:
    """Return the state after one more start, which led to `candidate`; only new ones count as agreeing."""
    best, same = s.columns, SAME_LOSS * squared_norm
    is_lower = candidate.loss < best.loss - same
    n_agree = 1 if is_lower else s.n_agree + int(is_new and candidate.loss <= best.loss + same)
    best, other = (candidate, best) if is_lower else (best, candidate)
    return s.then(best=best, n_agree=n_agree, rivals=find_rivals(best, (other, *s.rivals)))


def find_rivals(best: Columns, others: Sequence[Columns]) -> tuple[Columns, ...]:
    """Return the other solutions with different atoms and nearly the loss of the best, the lowest first."""
    rivals: list[Columns] = []
    for other in sorted(others, key=lambda each: each.loss):
        if other.loss <= (1 + RIVAL) * best.loss and all(is_different(other, W) for W in (best, *rivals)):
            rivals.append(other)
    return tuple(rivals[:MAX_RIVALS])


def is_different(V: Columns, W: Columns) -> bool:
    """Return True if an atom of V has no counterpart in W: none of the same mode has nearly the same bits."""
    for k, mode in enumerate(V.boolean_mode):
        z = V.matrices[mode][:, V.owner == k][:, :1]
        if not np.any(np.abs(z - W.matrices[mode][:, W.column_mode == mode]).mean(axis=0) <= ALIKE):
            return True
    return False


# atoms of steepest descent


def with_atom(W: Columns, found: Candidate) -> Columns:
    """Return the columns with one atom more, of the weight that is best for it alone; all sizes are spread evenly.

    Equations whose columns differ by many orders, as in very small units, would count as singular.
    """
    shape = tuple(len(A) for A in W.matrices)
    longer = W.plus(to_columns(BooleanCP(shape, (found.atom,), [found.descent / found.atom.n_ones])))
    is_bit = longer.column_mode == np.arange(len(shape))[:, None]
    norms = np.where(is_bit, 1.0, [np.linalg.norm(A, axis=0) for A in longer.matrices])
    even = np.where(is_bit, 1.0, np.prod(norms, axis=0) ** (1 / (len(shape) - 1)) / np.where(norms > 0, norms, 1.0))
    return longer.with_matrices([A * scale for A, scale in zip(longer.matrices, even, strict=True)])


def revive(data: Storage, W: Columns, spec: Spec, rng: np.random.Generator) -> Columns:
    """Return the columns with each dead atom replaced by the atom of steepest descent, all polished again."""
    for _ in range(W.n_atoms):
        dead = W.is_dead()
        found = greedy_atom_search(search_residual(data, W)[0], spec, rng) if dead.any() else None
        if found is None:
            break
        kept = W.take(np.flatnonzero(~dead)[: W.n_atoms - 1])
        longer = polish(data, oriented(with_atom(kept, found), data), max_iter=spec.max_iter)
        if longer.loss >= W.loss:
            break
        W = longer
    return W


def leaves_noise(
    data: Storage, W: Columns, spec: Spec, rng: np.random.Generator, rates: Weighted | None = None
) -> bool:
    """Return True if the best atom of the residual gains no more than the best atom of pure noise."""
    if W.loss <= EXACT * data.squared_norm:
        return True
    residual, weight = search_residual(data, W)
    if rates is not None:  # in standard deviations of each entry; tails are heavy
        t, v = rates.near(m := full(W.matrices))
        residual, weight = Dense((t - m) * np.sqrt(np.asarray(v))), 1 / HEAVY
    found = greedy_atom_search(residual, spec, rng)
    gain = 0.0 if found is None else weight * found.descent**2 / found.atom.n_ones
    return gain <= (spec.atom_rank or 1) * noise_gain(data, noise_variance(data, W))


def noise_gain(data: Storage, variance: float) -> float:
    """Return about the largest decrease of the loss by an atom of rank one in pure noise.

    <E, z (x) u (x) w> / |z| for noise E is at most s (sqrt(d_1) + .. + sqrt(d_N)) in the mean (Sudakov and Fernique).
    """
    return variance * float(np.sum(np.sqrt(data.shape))) ** 2


# complete tensors


def refined_start(
    small: Storage, W: Columns, spec: Spec, rng: np.random.Generator, count: int, below: float = float("inf")
) -> Columns:
    """Return what start number `count` leads to: relaxed, rounded and polished, unless it ends far above a loss.

    The first is W, the pursuit's estimate. Starts of a matrix have bits in the span of its leading directions. Others
    are eigenvectors of slice pencils, and random factors. If the first do not agree, real factors that fit best
    are far from Boolean: most later starts are relaxed for a short time, which leads to a lower loss.
    """
    if len(small.shape) == 2 and count > 0:
        return polish(small, bits_in_span(small, W, spec.modes, rng), max_iter=spec.max_iter)
    start = W
    if count > 0:  # random columns or, for atoms of rank one, every third time eigenvectors of slice pencils
        core = small.core if isinstance(small, Tucker) else small
        factors = pencil_start(core, W.n_atoms, rng) if count % 3 == 1 and not W.is_tied else None
        factors = factors or [rng.standard_normal((d, len(W.owner))) for d in core.shape]
        # which mode is Boolean is a part of the start for columns that share their bits
        mode = rng.choice(spec.modes, W.n_atoms) if W.is_tied else W.boolean_mode
        start = Columns(tuple(small.expand(factors) if isinstance(small, Tucker) else factors), W.owner, mode)
        pairs = [(A, start.ties(n)[0]) for n, A in enumerate(start.matrices)]
        start = start.with_matrices([A if S is None else A @ (S / S.sum(axis=0)) @ S.T for A, S in pairs])
    relaxed = relax(small, start, max_iter=N_RELAX[W.is_tied] if count < N_LONG else N_SHORT)
    found = polish(small, round_columns(relaxed, spec.modes), max_iter=spec.max_iter, below=below)
    return revive(small, found, spec, rng) if found.loss <= below else found


def regrown(small: Storage, best: Columns, spec: Spec, rng: np.random.Generator) -> Columns:
    """Return the best atoms after some of them were left out and found again, until N_VAIN times did not help."""
    n_vain, K = 0, best.n_atoms
    while n_vain < N_VAIN:
        W = best.take(np.sort(rng.permutation(K)[: max(K - N_REPLACED, K // 2)]))
        while W.n_atoms < K:
            longer = with_another(small, W, spec, rng)
            if longer is None:
                return best
            W = polish(small, longer, max_iter=min(N_BETWEEN, spec.max_iter), tol=POLISHED)
        for n_sweeps, tol, part in ROUNDS:
            if W.loss <= (1 + part) * best.loss:
                W = polish(small, W, max_iter=min(n_sweeps, spec.max_iter), tol=tol)
        is_lower = W.loss < best.loss - SAME_LOSS * small.squared_norm
        best, n_vain = (W, 0) if is_lower else (best, n_vain + 1)
    return best


def with_another(small: Storage, W: Columns, spec: Spec, rng: np.random.Generator) -> Columns | None:
    """Return W with a good atom more: of rank one, the best product of vectors that a few random ones lead to."""
    residual: Any = search_residual(small, W)[0]
    if W.is_tied or len(small.shape) < 3:
        found = greedy_atom_search(residual, spec, rng)
        return None if found is None else with_atom(W, found)
    core = residual.core if residual.bases else residual
    starts = [rng.standard_normal((d, N_PRODUCTS)) for d in core.shape]
    factors = power_iterations(np.broadcast_to(core.to_array(), (N_PRODUCTS, *core.shape)), starts, N_POWER)
    best = [int(np.argmax(np.linalg.norm(factors[-1], axis=0)))]
    factors = [A[:, best] for A in (residual.expand(factors) if residual.bases else factors)]
    return W.plus(round_columns(Columns(tuple(factors), np.zeros(1, int), np.zeros(1, int)), spec.modes))


def pencil_start(core: Storage, n_columns: int, rng: np.random.Generator) -> list[np.ndarray] | None:
    """Return CP factors of a three-way core from the eigenvectors of a pencil of two random slices, or None.

    With X = sum_r a_r (x) b_r (x) c_r, two random combinations of the slices along the third mode are
    A D1 B' and A D2 B', so that the eigenvectors of the first times the inverse of the second are the columns of A.
    Exact without noise when the columns are no more than the two larger sizes; a good start otherwise.
    """
    if len(core.shape) != 3:
        return None
    third, first, second = (int(n) for n in np.argsort(core.shape, kind="stable"))
    if min(core.shape[first], core.shape[second]) < n_columns or core.shape[third] < 2:
        return None
    U, V = (leading_basis(core, mode, n_columns)[:, ::-1] for mode in (first, second))
    slices = core.contract(third, rng.standard_normal((core.shape[third], 2)))  # (2, lower mode, higher mode)
    if first > second:
        slices = slices.transpose(0, 2, 1)
    S, T = U.T @ slices[0] @ V, U.T @ slices[1] @ V
    try:
        eigenvectors = scipy.linalg.eig(S, T)[1]
    except np.linalg.LinAlgError:
        return None
    # (S - t T) x = 0 has x in the dual basis of B: T x is the column of A that is left
    A = T @ eigenvectors
    A = np.where(np.abs(A.imag).max(axis=0) > 1e-9, A.real + A.imag, A.real)  # conjugate pairs span a real plane
    A = U @ (A / np.maximum(np.linalg.norm(A, axis=0), 1e-300))
    # given A, each column's remaining matrix is nearly of rank one
    blocks = core.contract(first, A @ np.linalg.pinv(A.T @ A, hermitian=True))
    pairs = [np.linalg.svd(block, full_matrices=False) for block in blocks]
    low, high = sorted((second, third))
    factors = [A, A, A]
    factors[low] = np.stack([p[0][:, 0] for p in pairs], axis=1)
    factors[high] = np.stack([p[2][0] * p[1][0] for p in pairs], axis=1)
    return factors


def round_columns(W: Columns, modes: tuple[int, ...]) -> Columns:
    """Return the columns with one factor of each atom replaced by the {0, a} column that fits it best.

    For each atom the allowed mode is taken whose column is closest in angle to a Boolean vector; columns that share
    their bits keep their mode.
    """
    factors, boolean_mode = [A.copy() for A in W.matrices], W.boolean_mode.copy()
    first, found = np.unique(W.owner, return_index=True)[1], {}
    for mode in {*modes, *boolean_mode.tolist()} if W.is_tied else modes:
        A = W.matrices[mode][:, first]
        Z, _, squares = best_signed_response(A.T)
        found[mode] = squares / np.maximum(np.sum(A**2, axis=0), 1e-300), Z, np.sum(A.T * Z, axis=1) / Z.sum(axis=1)
    for k in range(W.n_atoms):
        own = np.flatnonzero(W.owner == k)
        if len(own) == 1:
            boolean_mode[k] = max(modes, key=lambda mode: found[mode][0][k])
        _, Z, scales = found[mode := boolean_mode[k]]
        factors[mode][:, own] = Z[k][:, None]
        factors[1 if mode == 0 else 0][:, own] *= scales[k]
    return Columns(tuple(factors), W.owner, boolean_mode)


def bits_in_span(data: Storage, W: Columns, modes: tuple[int, ...], rng: np.random.Generator) -> Columns:
    """Return columns of a matrix whose bits lie close to the span of its leading directions along either mode.

    K rows of a basis of the span determine a vector in it: all 2^K patterns of random rows are completed, and the K
    most Boolean, independent ones are kept (Slawski, Hein and Lutsik, 2013).
    """
    K = W.n_atoms
    found: dict[tuple[int, bytes], float] = {}
    for mode in modes:
        U = leading_basis(data, mode, min(K, MAX_JOINT, *data.shape))
        patterns = all_patterns(U.shape[1])[0][1:]
        rows = np.array([rng.choice(len(U), U.shape[1], replace=False) for _ in range(N_SPANS)])
        some = U[rng.choice(len(U), min(len(U), N_ROWS), replace=False)]
        for vectors in np.linalg.solve(U[rows[np.linalg.cond(U[rows]) <= 1e3]], patterns.T):  # (K, 2^K - 1)
            best = np.argsort(boolean_errors(some @ vectors)[1], kind="stable")[: 2 * K]
            for z, error in zip(*boolean_errors(U @ vectors[:, best]), strict=True):
                if error < np.inf:
                    key = mode, z.tobytes()
                    found[key] = min(error, found.get(key, np.inf))
    chosen: dict[int, list[np.ndarray]] = {mode: [] for mode in modes}
    spans = {mode: np.zeros((data.shape[mode], 0)) for mode in modes}
    for mode, text in sorted(found, key=found.__getitem__):
        z, Q = np.frombuffer(text, dtype=bool).astype(float), spans[mode]
        beyond = z - Q @ (Q.T @ z)
        if beyond @ beyond > DEPENDENT * (z @ z):
            chosen[mode].append(z)
            spans[mode] = np.column_stack([Q, beyond / np.linalg.norm(beyond)])
        if sum(map(len, chosen.values())) == K:
            break
    missing = K - sum(map(len, chosen.values()))
    parts, R = [W.take(range(missing))] if missing else [], np.asarray(data.to_array(), dtype=float)
    for mode, vectors in chosen.items():
        if vectors:
            Z = np.stack(vectors, axis=1)
            V = np.linalg.lstsq(Z, R if mode == 0 else R.T, rcond=None)[0].T
            factors = (Z, V) if mode == 0 else (V, Z)
            R = R - factors[0] @ factors[1].T  # what the bits of the other mode have to explain
            parts.append(Columns(factors, np.arange(len(vectors)), np.full(len(vectors), mode)))
    return reduce(Columns.plus, parts)


def boolean_errors(Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bits that are closest to the columns of Y, in rows, and their squared distances for each one."""
    bits = Y > 0.5
    n_ones = bits.sum(axis=0)
    return bits.T, np.where(n_ones > 0, np.sum((Y - bits) ** 2, axis=0) / np.maximum(n_ones, 1), np.inf)


# data with gaps or weights, or under another loss


def observed_start(
    data: Storage, start: Columns, best: Columns, spec: Spec, rng: np.random.Generator, count: int
) -> Columns:
    """Return what a start over the observed entries leads to; the first is `start`, others have half of the atoms new.

    It is relaxed with a falling ridge, rounded and polished.
    """
    W, fall = start, small_fall(data, best)
    if count > 0:  # new atoms are random, of the median size
        factors = [A / np.maximum(np.linalg.norm(A, axis=0), 1e-300) for A in best.matrices]
        sizes = np.prod([np.linalg.norm(A, axis=0) for A in best.matrices], axis=0)
        for k in rng.choice(best.n_atoms, max(1, best.n_atoms // 2), replace=False):
            own = np.flatnonzero(best.owner == k)
            for n, A in enumerate(factors):
                width = 1 if best.boolean_mode[k] == n else len(own)
                A[:, own] = rng.standard_normal((len(A), width)) / np.sqrt(len(A))
            sizes[own] = np.median(sizes)
        W = best.with_matrices([*factors[:-1], factors[-1] * sizes])
    for ridge, n_sweeps in RIDGES:
        W = relax(data, W, max_iter=n_sweeps, tol=1e-5, ridge=ridge, fall=fall)
    rounded, tol = round_columns(W, spec.modes), max(POLISHED, fall)
    return revive(data, polish(data, rounded, max_iter=spec.max_iter, tol=tol, below=best.loss), spec, rng)


def tolerance(data: Storage, W: Columns) -> float:
    """Return the relative fall of the loss that ends a polish before the last, which the stage `ridge` makes."""
    return FALL if isinstance(data, Complete) else max(POLISHED, small_fall(data, W))


def small_fall(data: Storage, W: Columns) -> float:
    """Return the fall of the loss, relative to it, that is not worth a sweep over observed entries."""
    return SMALL_FALL * len(W.owner) * sum(data.shape) / n_observed(data)


def turned(data: Storage, W: Columns, spec: Spec, rng: np.random.Generator) -> Columns:
    """Return the columns with atoms (of many, a few at random) turned to another Boolean mode if the loss falls."""
    for k in np.sort(rng.permutation(W.n_atoms)[: 1 + MAX_TURNED // (W.n_atoms + 1)]):
        for mode in (n for n in spec.modes if n != W.boolean_mode[k]):
            factors, modes = [A.copy() for A in W.matrices], W.boolean_mode.copy()
            a = factors[mode][:, k]
            z, _ = best_boolean(a)
            factors[modes[k]][:, k] *= a[z].mean()
            factors[mode][:, k], modes[k] = z, mode
            trial = oriented(Columns(tuple(factors), W.owner, modes), data)
            found = polish(data, trial, max_iter=min(N_TURNED, spec.max_iter), tol=POLISHED, below=W.loss)
            W = found if found.loss < W.loss and not found.is_dead().any() else W
    return W


def from_mean(data: Weighted, n_atoms: int, spec: Spec, rng: np.random.Generator) -> Columns:
    """Return an atom that is on everywhere, which begins as the best constant, and others while they lower the loss.

    A mean of zero, which squares prefer where most entries are zero, may be far worse under a loss than a constant.
    """
    x = data.x if data.w is None else data.x[data.w > 0]
    constant = float(np.median(x)) if data.loss.name == "huber" else data.loss.null(data.x, data.w)
    best = replace(to_columns(BooleanCP(data.shape)), loss=data.squared_norm)
    for mode in spec.modes if constant else ():
        factors = [np.full((d, 1), constant if n == (mode == 0) else 1.0) for n, d in enumerate(data.shape)]
        W = oriented(Columns(tuple(factors), np.zeros(1), np.array([mode])), data)
        best = min(best, polish(data, W, max_iter=spec.max_iter, tol=POLISHED), key=lambda each: each.loss)
    while best.n_atoms < n_atoms:
        found = greedy_atom_search(search_residual(data, best)[0], spec, rng)
        if found is None:
            break
        W = polish(data, oriented(with_atom(best, found), data), max_iter=spec.max_iter, tol=POLISHED)
        if W.loss >= best.loss or W.is_dead().any():
            break
        best = W
    return best


def oriented(W: Columns, data: Storage) -> Columns:
    """Return the columns with real ones of the sign of their sum along nonnegative modes, and no entry below zero.

    A mode that is free to be negative, if there is one, takes the signs; else, under squares, a column is turned.
    """
    factors, turns, nonnegative = list(W.matrices), np.ones(len(W.owner)), data.nonnegative
    for n in nonnegative:
        A, real = factors[n], W.column_mode != n
        signs = np.where(real & (A.sum(axis=0) < 0), -1.0, 1.0)
        factors[n], turns = np.where(real, np.maximum(A * signs, 0.0), A), turns * signs
    free = [n for n in range(len(factors)) if n not in nonnegative] if nonnegative else []
    for n in free:
        takes = (W.column_mode != n) & (turns < 0)
        factors[n], turns = factors[n] * np.where(takes, -1.0, 1.0), np.where(takes, 1.0, turns)
    is_squared = getattr(data, "loss", SQUARES) == SQUARES
    for k in np.flatnonzero(is_squared & (turns < 0)):  # the column that loses least by it
        other = {n: np.abs(W.matrices[n][:, k]) - factors[n][:, k] for n in nonnegative if W.column_mode[k] != n}
        n = max(other, key=lambda n: float(np.sum(other[n] ** 2) / max(np.sum(factors[n][:, k] ** 2), 1e-300)))
        factors[n][:, k] = other[n]
    return W.with_matrices(factors)
