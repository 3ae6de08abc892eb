"""Eq. (3) as the convex program it is: min_W |X - W|^2 / 2 + alpha |W|_A, with a proved duality gap.

The atoms are z (x) V with a dense block V of norm one, and z divided by its norm under the normalized criterion. Then
W = sum_k z_k (x) V_k costs |W|_A = min sum_k s_k |V_k| with s_k = |z_k|, or 1 as published. Given the bits this is a
group lasso over the blocks; new bits come from the Boolean quadratic program, which is the dual norm. No decomposition,
of whatever number of atoms, has an objective below the dual one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from boolcp.contractions import gram
from boolcp.fit.atom_search import steepest_atom
from boolcp.fit.blocks import Term
from boolcp.fit.sweep import solve_rows
from boolcp.program.flips import first_starts, local_search
from boolcp.program.grams import DenseGram
from boolcp.program.maxcut import EXHAUSTIVE, maximize
from boolcp.program.ratio_bound import Multipliers, prove_ratio
from boolcp.storage.dense import Dense

Array = NDArray[np.float64]
Bits = NDArray[np.bool_]
Blocks = dict[int, tuple[Array, Array]]  # {mode: (Z, V)}: bits (d_n, K) and flat blocks (K, c_n), sum_k z_k (x) V_k

EPSILON = float(np.finfo(float).eps)
EFFORTS = ("quick", "default", "thorough")
N_NEW = 8  # largest number of new vectors of bits for each mode and step; not tuned
MAX_PASSES = 500  # over the modes, and rounds for the blocks of one; bounds on the work
INNER = 0.01  # tolerance of a round for the blocks of one mode, relative to that of a pass; by a walk of 32 x 100 x 40
N_REWEIGHTED = 4  # solutions with reweighted squares after each sweep; they take a tenth of the sweeps alone


@dataclass(frozen=True, eq=False)
class Program:
    """The data of Eq. (3): X with zeros where it is not observed, the mask, the Boolean modes, alpha, the criterion.

    With atoms of rank one the norm of a block is its nuclear norm instead of that of Frobenius. X may be the `thin`
    form of other data: `n_columns` and `squared_norm` are those of the data, whose Gram matrices are rounded.
    """

    X: Array
    observed: Bits | None
    modes: tuple[int, ...]
    n_columns: int
    squared_norm: float
    is_ratio: bool = True
    is_rank_one: bool = False
    alpha: float = 0.0

    def penalties(self, Z: Array) -> Array:
        """Return alpha s_k, what the norm of a block costs, (K,)."""
        return self.alpha * (np.linalg.norm(Z, axis=0) if self.is_ratio else np.ones(Z.shape[1]))

    def residual(self, B: Blocks) -> Array:
        """Return X - W, zero where X is not observed."""
        R = self.X.copy()
        for mode, (Z, V) in B.items():
            R -= fold(Z @ V, mode, R.shape)
        return self.on_observed(R)

    def on_observed(self, R: Array) -> Array:
        """Return R with zeros where X is not observed."""
        return np.ascontiguousarray(R if self.observed is None else np.where(self.observed, R, 0.0))

    def objective(self, B: Blocks, R: Array) -> float:
        """Return |X - W|^2 / 2 + alpha sum_k s_k |V_k|."""
        costs = [self.penalties(Z) @ self.norms(mode, V) for mode, (Z, V) in B.items()]
        return float(np.vdot(R, R)) / 2 + float(sum(costs))

    def norms(self, mode: int, V: Array) -> Array:
        """Return the norm of each block along one mode, (K,)."""
        if not self.is_rank_one:
            return np.linalg.norm(V, axis=1)
        return np.linalg.svd(V.reshape(len(V), *self.matrix_shape(mode)), compute_uv=False).sum(axis=1)

    def matrix_shape(self, mode: int) -> tuple[int, int]:
        """Return the two sizes of a block along one mode; the block of a matrix is one row."""
        others = [1, *(d for n, d in enumerate(self.X.shape) if n != mode)]
        return others[-2], others[-1]


def thin(C: Array) -> Array:
    """Return L (d, r), of orthogonal columns, with LL' = C.

    With one Boolean mode, complete data count in Eq. (3) only through C = X_n X_n': with X_n = LQ and QQ' = 1 the best
    blocks are the rows of VQ, and |X_n - ZVQ| = |L - ZV|, |v_k Q| = |v_k|.
    """
    values, vectors = np.linalg.eigh(C)
    keep = values >= max(len(C) * EPSILON * values[-1], np.finfo(float).tiny)
    keep[-1] = True
    return np.ascontiguousarray(vectors[:, keep] * np.sqrt(np.maximum(values[keep], 0.0)))


# the terms


def fold(M: Array, mode: int, shape: tuple[int, ...]) -> Array:
    """Return the tensor whose unfolding along `mode` is M."""
    others = [d for n, d in enumerate(shape) if n != mode]
    return np.moveaxis(M.reshape(shape[mode], *others), 0, mode)


def unfold(X: Array, mode: int) -> Array:
    """Return the unfolding X_n (d_n, c_n)."""
    return np.moveaxis(X, mode, 0).reshape(X.shape[mode], -1)


def n_terms(B: Blocks) -> int:
    """Return the number of terms of all modes."""
    return sum(len(V) for _, V in B.values())


def terms_of(B: Blocks, shape: tuple[int, ...]) -> list[Term]:
    """Return the terms one by one, with blocks of the shape of the other modes."""
    return [
        Term(mode, z > 0.5, v.reshape([d for n, d in enumerate(shape) if n != mode]))
        for mode, (Z, V) in B.items()
        for z, v in zip(Z.T, V, strict=True)
    ]


def with_blocks(B: Blocks, mode: int, V: Array) -> Blocks:
    """Return the terms with new blocks along one mode, without those that are zero."""
    alive = V.any(axis=1)
    kept = {n: group for n, group in B.items() if n != mode}
    return {**kept, mode: (B[mode][0][:, alive], V[alive])} if alive.any() else kept


def with_bits(B: Blocks, mode: int, bits: Sequence[Bits], shape: tuple[int, ...]) -> Blocks:
    """Return the terms with those of the bits that are new, and blocks of zeros for them."""
    d = shape[mode]
    Z, V = B.get(mode, (np.zeros((d, 0)), np.zeros((0, int(np.prod(shape)) // d))))
    known = {z.tobytes() for z in Z.T > 0.5}
    new = [z for key, z in {z.tobytes(): z for z in bits}.items() if key not in known]
    if not new:
        return B
    return {**B, mode: (np.column_stack([Z, *new]).astype(float), np.vstack([V, np.zeros((len(new), V.shape[1]))]))}


# the group lasso over the blocks


def solve_blocks(program: Program, B: Blocks, *, tol: float) -> tuple[Blocks, Array]:
    """Return the terms with the blocks that minimize the objective for the given bits, and the residual.

    All blocks of one mode are solved for jointly, mode after mode, until a pass lowers the objective by no more than
    `tol` of it. Missing entries are filled by the estimate in each pass, which never raises the objective.
    """
    R = program.residual(B)
    value = program.objective(B, R)
    for _ in range(MAX_PASSES):
        for mode in list(B):
            Z, V = B[mode]
            Y, penalties = unfold(R, mode) + Z @ V, program.penalties(Z)
            if program.is_rank_one:
                V = shrunk_blocks(Z, Y, V, penalties, program.matrix_shape(mode))
            elif program.alpha:
                V = best_blocks(Z, Y, V, penalties, INNER * tol * value)
            else:
                V = solve_rows(Z.T @ Z, Y.T @ Z).T
            R = program.on_observed(fold(Y - Z @ V, mode, R.shape))
            B = with_blocks(B, mode, V)
        previous, value = value, program.objective(B, R)
        if previous - value <= tol * value:
            break
    return B, R


def best_blocks(Z: Array, Y: Array, V: Array, penalties: Array, least: float) -> Array:
    """Return the rows V that minimize |Y - ZV|^2 / 2 + sum_k penalties_k |V_k|, found from the given ones.

    The minimum has its rows in the span of those of Y, so that few coordinates are enough. A sweep shrinks each row,
    given the others. Solutions with reweighted squares follow: |a| <= |a|^2 / (2 n) + n / 2, equal at n = |a|. Rounds
    end when one lowers the objective by no more than `least`.
    """
    if len(Z) > Z.shape[1]:
        U, Z = np.linalg.qr(Z)
        Y = U.T @ Y
    values, vectors = np.linalg.eigh(Y @ Y.T)
    keep = values > len(Z) * EPSILON * values[-1]
    roots = np.sqrt(values[keep])
    basis = (vectors[:, keep] / roots).T @ Y  # orthonormal rows, Y = L basis
    L = vectors[:, keep] * roots
    G, Q, A, value = Z.T @ Z, Z.T @ L, V @ basis.T, np.inf
    for _ in range(MAX_PASSES):
        shrink_rows(G, Q, A, penalties)
        previous, value = value, float(np.vdot(A, G @ A / 2 - Q) + penalties @ np.linalg.norm(A, axis=1))
        if previous - value <= least:
            break
        for _ in range(N_REWEIGHTED):
            D = np.linalg.norm(A, axis=1) / penalties  # (G + 1 / D) A = Q, and zeros stay
            A = D[:, None] * (Z.T @ scipy.linalg.solve(np.eye(len(Z)) + (Z * D) @ Z.T, L, assume_a="pos"))
    return A @ basis


def shrink_rows(G: Array, Q: Array, A: Array, penalties: Array) -> None:
    """Replace each row of A (K, r) by the best one given the others, a group soft threshold, in place."""
    for k, penalty in enumerate(penalties):
        row = Q[k] - G[k] @ A + G[k, k] * A[k]
        size = np.sqrt(row @ row)
        A[k] = row * ((1 - penalty / size) / G[k, k] if size > penalty else 0.0)


def shrunk_blocks(Z: Array, Y: Array, V: Array, penalties: Array, shape: tuple[int, int]) -> Array:
    """Return V improved as by `best_blocks`, but with nuclear norms: singular values are shrunk, block by block."""
    G, Q, V = Z.T @ Z, Z.T @ Y, V.copy()
    for _ in range(3 if len(V) > 1 else 1):
        for k in range(len(V)):
            B = (Q[k] - G[k] @ V + G[k, k] * V[k]).reshape(shape)
            U, sizes, T = np.linalg.svd(B, full_matrices=False)
            V[k] = ((U * np.maximum(sizes - penalties[k], 0)) @ T).ravel() / G[k, k]
    return V


# the dual norm, and the proof


@dataclass(frozen=True, eq=False)
class View:
    """The residual along one mode: its Gram matrix C, the best bits found and their squared score, and what follows.

    `new` are bits whose score exceeds alpha. `bound` is on the score of all bits, if the search has proved one.
    """

    mode: int
    C: Array
    z: Bits
    value: float
    new: tuple[Bits, ...]
    bound: float | None


def look(program: Program, R: Array, mode: int, rng: np.random.Generator, B: Blocks) -> View:
    """Return what the residual shows along one mode: the bits of largest score, and several others above alpha^2."""
    C = gram(R, mode)
    starts = B[mode][0].T > 0.5 if mode in B else None
    is_bounded = len(C) <= EXHAUSTIVE or not program.is_ratio
    best = maximize(C, rng, is_ratio=program.is_ratio, starts=starts, certify=is_bounded)
    if not best.value > program.alpha**2:
        return View(mode, C, best.z, best.value, (), best.bound)
    pool = local_search(DenseGram(C), first_starts(DenseGram(C), rng, starts, program.is_ratio), program.is_ratio)
    new = [best.z, *(found.z for found in pool if found.value > program.alpha**2)]
    return View(mode, C, best.z, best.value, tuple(new[:N_NEW]), best.bound)


def prove(program: Program, view: View, effort: str, multipliers: dict[int, Multipliers]) -> float:
    """Return a proved upper bound on the squared score of all bits along one mode, infinite if there is none.

    The multipliers that prove it are kept, a start for the next residual. The rounding of the Gram matrix itself is
    added: at most the number of columns times epsilon times |X|^2, and d times that if z'Cz is not divided by |z|^2.
    """
    n_ones = 1 if program.is_ratio else len(view.C)
    rounding = (program.n_columns + 2) * EPSILON * program.squared_norm * n_ones
    if not view.value > 0 or view.bound is not None:
        return rounding + (view.bound or 0.0)
    proof = prove_ratio(view.C, view.z, effort=effort, start=multipliers.get(view.mode)) if program.is_ratio else None
    if proof is None:
        return np.inf
    multipliers[view.mode] = proof.multipliers
    return proof.bound + rounding


def dual_bound(program: Program, rng: np.random.Generator) -> float:
    """Return a proved upper bound on the dual norm of X, max |X_n'z| / s(z) over modes and bits."""
    views = [look(program, program.X, mode, rng, {}) for mode in program.modes]
    return float(np.sqrt(max(prove(program, view, "default", {}) for view in views)))


def dual_objective(program: Program, R: Array, norm: float) -> float:
    """Return the best dual objective <X, t R> - |t R|^2 / 2 over numbers t with t norm <= alpha."""
    inner, squared = float(np.vdot(program.X, R)), float(np.vdot(R, R))
    if squared == 0:
        return 0.0
    t = max(min(inner / squared, program.alpha / norm if norm > 0 else np.inf), 0.0)
    return t * inner - t**2 * squared / 2


def noise_norm(
    shape: tuple[int, ...], modes: tuple[int, ...], sigma: float, *, is_ratio: bool, is_rank_one: bool
) -> float:
    """Return an upper bound on the expected dual norm of noise of standard deviation sigma, largest over the modes.

    By the inequality of Chevet and Gordon, sup |E'z| / |z| over Boolean z is on average at most sigma (sqrt(c) + w) for
    an unfolding (d, c), where w = sup g'z / |z| = sqrt(0.405 d) for a Gaussian vector g; sqrt(c) is replaced by the sum
    of the roots of the other sizes if the real part has rank one. As published, z is not divided by |z| <= sqrt(d), and
    sup g'z = d / sqrt(2 pi).
    """
    levels = []
    for mode in modes:
        d, others = shape[mode], [size for n, size in enumerate(shape) if n != mode]
        real = float(np.sqrt(others).sum() if is_rank_one else np.sqrt(np.prod(others, dtype=float)))
        levels.append(real + np.sqrt(0.405 * d) if is_ratio else np.sqrt(d) * real + 0.399 * d)
    return sigma * max(levels)


# the loop


@dataclass(frozen=True, eq=False)
class Estimate:
    """The result of a step: the terms, the objective, and the proved dual objective."""

    blocks: Blocks
    objective: float
    dual: float
    is_converged: bool = False

    @property
    def gap(self) -> float:
        """Return the proved relative gap: no objective is lower by a larger share; NaN if nothing is proved."""
        return float(np.maximum(self.objective - self.dual, 0.0)) / self.objective if self.objective > 0 else 0.0


def solve(
    program: Program, rng: np.random.Generator, *, tol: float, max_iter: int, start: Blocks | None = None
) -> Iterator[Estimate]:
    """Yield an estimate after each step: blocks for the bits so far, a proved gap, then new bits.

    The bits that are added are those whose score exceeds alpha: a block on them lowers the objective. When the best
    bits found would close the gap, only the proof is missing, which is then made with more effort. The steps
    end early if the most thorough proof no longer gains a tenth of the gap.
    """
    B, dual, level, accuracy, gap = start or {}, 0.0, 0, 0.1 * tol, np.inf
    multipliers: dict[int, Multipliers] = {}
    for _ in range(max_iter):
        B, R = solve_blocks(program, B, tol=accuracy)
        views = [look(program, R, mode, rng, B) for mode in program.modes]
        value, best = program.objective(B, R), float(np.sqrt(max(view.value for view in views)))
        is_hopeful = value - max(dual, dual_objective(program, R, best)) <= 0.5 * tol * value
        level = max(level, int(is_hopeful))
        bounds = [prove(program, view, EFFORTS[level], multipliers) for view in views]
        dual = max(dual, dual_objective(program, R, float(np.sqrt(max(bounds)))))
        estimate = Estimate(B, value, dual)
        yield replace(estimate, is_converged=estimate.gap <= tol)
        longer = B
        for view in views:
            longer = with_bits(longer, view.mode, view.new, R.shape)
        is_stuck = is_hopeful or n_terms(longer) == n_terms(B)
        is_thorough = is_stuck and level == len(EFFORTS) - 1 and accuracy <= 1e-2 * tol
        if estimate.gap <= tol or (is_thorough and estimate.gap > 0.9 * gap):
            return
        if is_stuck:
            accuracy, level = max(0.1 * accuracy, 1e-3 * tol), min(level + 1, len(EFFORTS) - 1)
        B, gap = longer, estimate.gap


def solve_rank_one(
    program: Program, rng: np.random.Generator, *, tol: float, max_iter: int, start: Blocks | None = None
) -> Iterator[Estimate]:
    """Yield an estimate after each step, for atoms of rank one: nothing is proved, and the dual objective is NaN.

    New bits are those of the best atom of rank one along each mode, as long as its score exceeds alpha by `tol` of it.
    """
    B, criterion = start or {}, "normalized" if program.is_ratio else "published"
    for _ in range(max_iter):
        B, R = solve_blocks(program, B, tol=1e-2 * tol)
        longer = B
        for mode in program.modes:
            found = steepest_atom(Dense(R), mode, rng, criterion=criterion, certify=False)
            if found is not None and found.value > ((1 + tol) * program.alpha) ** 2:
                longer = with_bits(longer, mode, (found.atom.z,), R.shape)
        is_last = n_terms(longer) == n_terms(B)
        yield Estimate(B, program.objective(B, R), float("nan"), is_last)
        if is_last:
            return
        B = longer
