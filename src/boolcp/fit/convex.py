"""Eq. (3) as the convex program it is: min_W |X - W|^2 / 2 + alpha |W|_A, with a proved duality gap.

The atoms are z (x) V with a dense block V of norm one, and z divided by its norm under the normalized criterion. Then
W = sum_k z_k (x) V_k costs |W|_A = min sum_k s_k |V_k| with s_k = |z_k|, or 1 as published. Given the bits this is a
group lasso over the blocks; new bits come from the Boolean quadratic program, which is the dual norm. No decomposition,
of whatever number of atoms, has an objective below the dual one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from boolcp.contractions import gram
from boolcp.fit.atom_search import steepest_atom
from boolcp.fit.blocks import Term, assembled
from boolcp.fit.certify import by_size
from boolcp.program.bounds import EPSILON, Array, Bits, Multipliers, prove_ratio
from boolcp.program.maxcut import EFFORTS, EXHAUSTIVE, BooleanQuadratic, climb, distinct, first_starts, maximize
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels
from boolcp.storage.dense import Dense
from boolcp.storage.protocol import Storage

Blocks = dict[int, tuple[Array, Array]]  # {mode: (Z, V)}: bits (d_n, K) and blocks (K, other modes), sum_k z_k (x) V_k

N_NEW = 8  # largest number of new vectors of bits for each mode and step; not tuned
MAX_PASSES = 500  # over the modes, and rounds for the blocks of one; bounds on the work
INNER = 10.0  # tolerance of a round over the square of that of a pass: the gap is of first order; by a walk
N_REWEIGHTED = 4  # solutions with reweighted squares after each sweep; they take a tenth of the sweeps alone


@dataclass(frozen=True, eq=False)
class Program:
    """Eq. (3): the data, X with zeros where not observed, the mask, Boolean modes, alpha; whether z counts over |z|."""

    data: Storage
    X: Array
    observed: Bits | None
    modes: tuple[int, ...]
    labels: Labels | None = None
    alpha: float = 0.0
    is_ratio: bool = True
    is_rank_one: bool = False

    def penalties(self, Z: Array) -> Array:
        """Return alpha s_k, what the norm of a block costs, (K,)."""
        return self.alpha * (np.linalg.norm(Z, axis=0) if self.is_ratio else np.ones(Z.shape[1]))

    def on_observed(self, R: Array) -> Array:
        """Return R with zeros where X is not observed."""
        return np.ascontiguousarray(R if self.observed is None else np.where(self.observed, R, 0.0))

    def objective(self, B: Blocks, R: Array) -> float:
        """Return |X - W|^2 / 2 + alpha sum_k s_k |V_k|, for rank one with nuclear norms."""
        cost = 0.0
        for Z, V in B.values():
            if self.is_rank_one and V.ndim > 2:
                cost += float(self.penalties(Z) @ np.linalg.svd(V, compute_uv=False).sum(axis=1))
            else:
                cost += float(self.penalties(Z) @ np.linalg.norm(V.reshape(len(V), -1), axis=1))
        return float(np.vdot(R, R)) / 2 + cost


def with_bits(B: Blocks, mode: int, bits: Sequence[Bits], shape: tuple[int, ...]) -> Blocks:
    """Return the terms with those of the bits that are new, and blocks of zeros for them; B itself if none is."""
    Z, V = B.get(mode, (np.zeros((shape[mode], 0)), np.zeros((0, *np.delete(shape, mode)))))
    known = {z.tobytes() for z in Z.T > 0.5}
    new = [z for key, z in {z.tobytes(): z for z in bits}.items() if key not in known]
    if not new:
        return B
    zeros = np.zeros((len(new), *V.shape[1:]))
    return {**B, mode: (np.column_stack([Z, *new]).astype(float), np.concatenate([V, zeros]))}


def to_decomposition(program: Program, B: Blocks) -> BooleanCP:
    """Return the terms as atoms with real parts of norm one, the largest first; matrices of low rank as factors."""
    terms = [Term(mode, z > 0.5, V) for mode, (Z, blocks) in B.items() for z, V in zip(Z.T, blocks, strict=True)]
    W = by_size(assembled(program.data, terms))
    if not program.is_rank_one or not W.is_block:
        return W
    atoms = []
    for atom in W.atoms:
        U, sizes, T = np.linalg.svd(atom.dense_block(), full_matrices=False)
        keep = sizes > 1e-9 * sizes[0]  # the others are rounding errors
        atoms.append(Atom(atom.mode, atom.z, (U[:, keep] * sizes[keep], T[keep].T)))
    return replace(W, atoms=tuple(atoms))


def solve_blocks(program: Program, B: Blocks, *, tol: float) -> tuple[Blocks, Array]:
    """Return the terms with the blocks that minimize the objective for the given bits, and the residual.

    All blocks of one mode are solved for jointly, mode after mode, until a pass lowers the objective by no more than
    `tol` of it. Missing entries are filled by the estimate in each pass, which never raises the objective.
    """
    parts = (np.moveaxis(np.tensordot(Z, V, axes=1), 0, mode) for mode, (Z, V) in B.items())
    R = program.on_observed(program.X - sum(parts, np.zeros(program.X.shape)))
    value = program.objective(B, R)
    for _ in range(MAX_PASSES):
        for mode in list(B):
            Z, V = B[mode]
            Y, penalties = np.moveaxis(R, mode, 0) + np.tensordot(Z, V, axes=1), program.penalties(Z)
            if not program.alpha:
                V = np.tensordot(np.linalg.pinv(Z), Y, axes=1)
            elif program.is_rank_one and V.ndim > 2:
                V = shrunk_blocks(Z, Y, V, penalties)
            else:
                V = best_blocks(Z, Y, V, penalties, INNER * tol**2 * value)
            R = program.on_observed(np.moveaxis(Y - np.tensordot(Z, V, axes=1), 0, mode))
            alive, B = V.reshape(len(V), -1).any(axis=1), {n: group for n, group in B.items() if n != mode}
            if alive.any():
                B[mode] = (Z, V) if alive.all() else (Z[:, alive], V[alive])
        previous, value = value, program.objective(B, R)
        if previous - value <= tol * value:
            break
    return B, R


def best_blocks(Z: Array, Y: Array, V: Array, penalties: Array, least: float) -> Array:
    """Return the blocks that minimize |Y - sum_k z_k (x) V_k|^2 / 2 + sum_k penalties_k |V_k|, from the given ones.

    They are rows A of coordinates in the span of the slices of Y. A sweep shrinks each row given the others; solutions
    with reweighted squares follow (docs/maths.md). Rounds end when one gains no more than `least`.
    """
    shape, Y, V = V.shape, Y.reshape(len(Z), -1), V.reshape(len(V), -1)
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
        for k, penalty in enumerate(penalties):
            row = Q[k] - G[k] @ A + G[k, k] * A[k]
            size = np.sqrt(row @ row)
            A[k] = row * ((1 - penalty / size) / G[k, k] if size > penalty else 0.0)
        previous, value = value, float(np.vdot(A, G @ A / 2 - Q) + penalties @ np.linalg.norm(A, axis=1))
        if previous - value <= least:
            break
        for _ in range(N_REWEIGHTED):
            D = np.linalg.norm(A, axis=1) / penalties  # (G + 1 / D) A = Q, and zeros stay
            A = D[:, None] * (Z.T @ scipy.linalg.solve(np.eye(len(Z)) + (Z * D) @ Z.T, L, assume_a="pos"))
    return (A @ basis).reshape(shape)


def shrunk_blocks(Z: Array, Y: Array, V: Array, penalties: Array) -> Array:
    """Return matrices V improved as by `best_blocks`, but with nuclear norms: singular values are shrunk, in turn."""
    G, Q, V = Z.T @ Z, np.tensordot(Z.T, Y, axes=1), V.copy()
    for _ in range(3 if len(V) > 1 else 1):
        for k in range(len(V)):
            U, sizes, T = np.linalg.svd(Q[k] - np.tensordot(G[k], V, axes=1) + G[k, k] * V[k], full_matrices=False)
            V[k] = (U * np.maximum(sizes - penalties[k], 0)) @ T / G[k, k]
    return V


def look(
    program: Program, R: Array, mode: int, rng: np.random.Generator, B: Blocks, tol: float = 0.0
) -> tuple[list[Bits], Array, BooleanQuadratic]:
    """Return new bits of large score along one mode, the Gram matrix of the residual, and the bits of largest score.

    Bits are new if their squared score exceeds alpha^2. Of rank one it is the best atom alone, whose score has to
    exceed alpha by `tol` of it, without the matrix.
    """
    if program.is_rank_one:
        criterion = "normalized" if program.is_ratio else "published"
        found = steepest_atom(Dense(R), mode, rng, criterion=criterion, certify=False)
        least = ((1 + tol) * program.alpha) ** 2
        new = [] if found is None or found.value <= least else [found.atom.z]
        return new, np.zeros((0, 0)), BooleanQuadratic(np.zeros(0, dtype=bool), np.nan)
    C = gram(R, mode)
    starts = B[mode][0].T > 0.5 if mode in B else None
    is_bounded = len(C) <= EXHAUSTIVE or not program.is_ratio
    best, new = maximize(C, rng, is_ratio=program.is_ratio, starts=starts, certify=is_bounded), []
    if best.value > program.alpha**2:
        pool = climb(C, first_starts(C, rng, starts, program.is_ratio), program.is_ratio)
        new = [best.z, *(found.z for found in distinct(pool) if found.value > program.alpha**2)]
    return new[:N_NEW], C, best


def prove(
    program: Program, mode: int, C: Array, best: BooleanQuadratic, effort: str, multipliers: dict[int, Multipliers]
) -> float:
    """Return a proved upper bound on the squared score of all bits along one mode, infinite if there is none.

    The multipliers that prove it are kept, a start for the next residual. The rounding of the Gram matrix itself is
    added: at most the number of columns times epsilon times its trace, d times that if z'Cz is not over |z|^2.
    """
    d = len(C)
    rounding = (program.X.size // d + 2) * EPSILON * float(np.trace(C)) * (1 if program.is_ratio else d)
    if not best.value > 0 or best.bound is not None:
        return rounding + (best.bound or 0.0)
    proof = prove_ratio(C, best.z, effort=effort, start=multipliers.get(mode)) if program.is_ratio else None
    multipliers |= {} if proof is None else {mode: proof.multipliers}
    return np.inf if proof is None else proof.bound + rounding


def dual_objective(program: Program, R: Array, norm: float) -> float:
    """Return the best dual objective <X, t R> - |t R|^2 / 2 over numbers t with t norm <= alpha."""
    inner, squared = float(np.vdot(program.X, R)), float(np.vdot(R, R))
    t = max(min(inner / squared, program.alpha / norm if norm > 0 else np.inf), 0.0) if squared else 0.0
    return float(t * inner - t**2 * squared / 2)


def noise_norm(program: Program, sigma: float) -> float:
    """Return an upper bound on the expected dual norm of noise of standard deviation sigma, largest over the modes.

    It is that of Chevet and Gordon (docs/maths.md). As published, z is not divided by |z| <= sqrt(d).
    """
    levels, shape = [], program.X.shape
    for mode in program.modes:
        d, others = shape[mode], [size for n, size in enumerate(shape) if n != mode]
        real = float(np.sqrt(others).sum() if program.is_rank_one else np.sqrt(np.prod(others, dtype=float)))
        levels.append(real + np.sqrt(0.405 * d) if program.is_ratio else np.sqrt(d) * real + 0.399 * d)
    return sigma * max(levels)


@dataclass(frozen=True)
class ConvexStep:
    """A step of the solver: the objective, the proved dual one (NaN for rank one), whether the gap is small enough."""

    n_atoms: int
    objective: float
    dual_objective: float
    is_converged: bool = False

    @property
    def duality_gap(self) -> float:
        """Return the proved relative gap: no objective is lower by a larger share."""
        return max(self.objective - self.dual_objective, 0.0) / self.objective if self.objective > 0 else 0.0


def solve(program: Program, rng: np.random.Generator, *, tol: float, max_iter: int) -> tuple[list[ConvexStep], Blocks]:
    """Return all steps and the last terms; a step is blocks for the bits so far, a proved gap, then new bits.

    The bits that are added are those whose score exceeds alpha: a block on them lowers the objective. When the best
    bits found would close the gap, only the proof is missing, which is then made with more effort. The steps end early
    if the most thorough proof no longer gains a tenth of the gap. About atoms of rank one nothing is proved.
    """
    accuracy = (0.01 if program.is_rank_one else 0.1) * tol
    dual, level, gap = 0.0, 0, np.inf
    longer: Blocks = {}
    steps: list[ConvexStep] = []
    multipliers: dict[int, Multipliers] = {}
    for _ in range(max_iter):
        B, R = solve_blocks(program, longer, tol=accuracy)
        value, views = program.objective(B, R), {mode: look(program, R, mode, rng, B, tol) for mode in program.modes}
        longer = B
        for mode, (new, _, _) in views.items():
            longer = with_bits(longer, mode, new, R.shape)
        is_complete, n_atoms = longer is B, sum(len(V) for _, V in B.values())
        if program.is_rank_one:
            steps.append(ConvexStep(n_atoms, value, float("nan"), is_complete))
            if is_complete:
                break
            continue
        norm = float(np.sqrt(max(best.value for _, _, best in views.values())))
        is_hopeful = value - max(dual, dual_objective(program, R, norm)) <= 0.5 * tol * value
        level = max(level, int(is_hopeful))
        bounds = [prove(program, n, C, best, EFFORTS[level], multipliers) for n, (_, C, best) in views.items()]
        dual = max(dual, dual_objective(program, R, float(np.sqrt(max(bounds)))))
        step = ConvexStep(n_atoms, value, dual, value - dual <= tol * value)
        steps.append(step)
        is_stuck = is_hopeful or is_complete
        is_thorough = is_stuck and level == len(EFFORTS) - 1 and accuracy <= 1e-2 * tol
        if step.is_converged or (is_thorough and step.duality_gap > 0.9 * gap):
            break
        if is_stuck:
            accuracy, level = max(0.1 * accuracy, 1e-3 * tol), min(level + 1, len(EFFORTS) - 1)
        gap = step.duality_gap
    return steps, B
