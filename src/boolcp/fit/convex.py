"""Eq. (3) as the convex program it is: min_W |X - W|^2 / 2 + alpha |W|_A, with a proved duality gap.

The atoms are z (x) V with a dense block V of norm one, and z divided by its norm under the normalized criterion. Then
W = sum_k z_k (x) V_k costs |W|_A = min sum_k s_k |V_k| with s_k = |z_k|, or 1 as published. Given the bits this is a
group lasso over the blocks; new bits come from the Boolean quadratic program, which is the dual norm. No decomposition,
of whatever number of atoms, has an objective below the dual one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from boolcp.contractions import contract, gram
from boolcp.fit._kernels import shrink_rows
from boolcp.fit.atom_search import steepest_atom
from boolcp.program.flips import first_starts, local_search
from boolcp.program.grams import DenseGram
from boolcp.program.maxcut import EXHAUSTIVE, maximize
from boolcp.program.ratio_bound import Multipliers, prove_ratio
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.storage import DenseTensor
from boolcp.storage.protocol import Storage

Array = NDArray[np.float64]
Bits = NDArray[np.bool_]
EPSILON = float(np.finfo(float).eps)
EFFORTS = ("quick", "default", "thorough")
N_NEW = 8  # largest number of new vectors of bits for each mode and step; not tuned


@dataclass(frozen=True, eq=False)
class Program:
    """The data of Eq. (3): X with zeros where it is not observed, the mask, the Boolean modes, alpha, the criterion.

    With atoms of rank one the norm of a block is its nuclear norm instead of that of Frobenius. X may be the `thin`
    form of complete data with one Boolean mode, `along`, and more columns than rows, `n_columns`.
    """

    X: Array
    observed: Bits | None
    modes: tuple[int, ...]
    alpha: float
    criterion: str = "normalized"
    is_rank_one: bool = False
    along: int | None = None
    n_columns: int = 0

    @property
    def is_ratio(self) -> bool:
        """Return True if z counts divided by its norm."""
        return self.criterion == "normalized"

    def penalties(self, Z: Array) -> Array:
        """Return alpha s_k, what the norm of a block costs, (K,)."""
        return self.alpha * (np.linalg.norm(Z, axis=0) if self.is_ratio else np.ones(Z.shape[1]))

    def residual(self, terms: "Terms") -> Array:
        """Return X - W, zero where X is not observed."""
        return self.on_observed(self.X - terms.to_tensor(self.X.shape))

    def on_observed(self, R: Array) -> Array:
        """Return R with zeros where X is not observed."""
        return np.ascontiguousarray(R if self.observed is None else np.where(self.observed, R, 0.0))

    def objective(self, terms: "Terms", R: Array) -> float:
        """Return |X - W|^2 / 2 + alpha sum_k s_k |V_k|."""
        costs = [self.penalties(Z) @ self.norms(mode, V) for mode, (Z, V) in terms.groups.items()]
        return float(np.vdot(R, R)) / 2 + float(sum(costs))

    def norms(self, mode: int, V: Array) -> Array:
        """Return the norm of each block along one mode, (K,)."""
        if not self.is_rank_one:
            return np.linalg.norm(V, axis=1)
        return np.linalg.svd(V.reshape(len(V), *self.block_shape(mode)), compute_uv=False).sum(axis=1)

    def block_shape(self, mode: int) -> tuple[int, int]:
        """Return the two sizes of a block along one mode, of a matrix's columns one and their number."""
        others = [d for n, d in enumerate(self.X.shape) if n != mode]
        return (1, others[0]) if len(others) == 1 else (others[0], int(np.prod(others[1:])))


def thin(C: Array) -> Array:
    """Return L (d, r), of orthogonal columns, with LL' = C.

    With one Boolean mode, complete data count in Eq. (3) only through C = X_n X_n': with X_n = LQ and QQ' = 1 the best
    blocks are the rows of VQ, and |X_n - ZVQ| = |L - ZV|, |v_k Q| = |v_k|.
    """
    values, vectors = np.linalg.eigh(C)
    keep = values >= max(len(C) * EPSILON * values[-1], np.finfo(float).tiny)
    keep[-1] = True
    return np.ascontiguousarray(vectors[:, keep] * np.sqrt(np.maximum(values[keep], 0.0)))


@dataclass(frozen=True, eq=False)
class Terms:
    """Terms z_k (x) V_k by their mode: bits Z (d_n, K) and flat blocks V (K, other entries)."""

    groups: Mapping[int, tuple[Array, Array]] = field(default_factory=dict)

    @property
    def n_atoms(self) -> int:
        """Return the number of terms."""
        return sum(Z.shape[1] for Z, _ in self.groups.values())

    def along(self, mode: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Return bits and blocks along one mode, with no columns and rows if there are none."""
        empty = np.zeros((shape[mode], 0)), np.zeros((0, int(np.prod(shape)) // shape[mode]))
        return self.groups.get(mode, empty)

    def set(self, mode: int, Z: Array, V: Array) -> "Terms":
        """Return the terms with new ones along one mode, without those whose block is zero."""
        alive = V.any(axis=1)
        others = {n: group for n, group in self.groups.items() if n != mode}
        return Terms({**others, mode: (Z[:, alive], V[alive])} if alive.any() else others)

    def with_bits(self, mode: int, bits: tuple[Bits, ...], shape: tuple[int, ...]) -> "Terms":
        """Return the terms with those of the bits that are new, and blocks of zeros for them."""
        Z, V = self.along(mode, shape)
        known = {z.tobytes() for z in Z.T > 0.5}
        new = [z for key, z in {z.tobytes(): z for z in bits}.items() if key not in known]
        if not new:
            return self
        Z, V = np.column_stack([Z, *new]).astype(float), np.vstack([V, np.zeros((len(new), V.shape[1]))])
        return Terms({**self.groups, mode: (Z, V)})

    def widened(self, L: Array, data: Storage, mode: int) -> "Terms":
        """Return the terms with blocks VQ of the data, for those of its thin form L along a mode; one pass."""
        if not self.n_atoms:
            return self
        Z, V = self.groups[0]
        Y = L / np.sum(L**2, axis=0)  # Q = Y'X_n
        return Terms({mode: (Z, np.asarray(data.contract(mode, Y @ V.T), dtype=float).reshape(len(V), -1))})

    def to_tensor(self, shape: tuple[int, ...]) -> Array:
        """Return the sum W."""
        W = np.zeros(shape)
        for mode, (Z, V) in self.groups.items():
            W += fold(Z @ V, mode, shape)
        return W

    def to_decomposition(self, shape: tuple[int, ...], *, is_low_rank: bool = False) -> BooleanCP:
        """Return the terms as atoms with real parts of norm one, largest contribution |c_k M_k| first.

        Blocks are dense, or written as sums of products of columns if they are of low rank.
        """
        found = []
        for mode, (Z, V) in self.groups.items():
            others = [d for n, d in enumerate(shape) if n != mode]
            for z, v in zip(Z.T, V, strict=True):
                size = float(np.linalg.norm(v))
                B = (v / size).reshape(others)
                parts = {"factors": low_rank_factors(B)} if is_low_rank else {"block": B}
                found.append((size, Atom(mode, z > 0.5, **parts)))
        found.sort(key=lambda pair: -pair[0] * np.sqrt(pair[1].n_ones))
        return BooleanCP(shape, tuple(atom for _, atom in found), np.array([size for size, _ in found]))


def fold(M: Array, mode: int, shape: tuple[int, ...]) -> Array:
    """Return the tensor whose unfolding along `mode` is M."""
    others = [d for n, d in enumerate(shape) if n != mode]
    return np.moveaxis(M.reshape(shape[mode], *others), 0, mode)


def low_rank_factors(B: Array) -> tuple[Array, ...]:
    """Return a vector as one column, a matrix as two factors without singular values that are rounding errors."""
    if B.ndim == 1:
        return (B[:, None],)
    U, sizes, T = np.linalg.svd(B, full_matrices=False)
    keep = sizes > 1e-9 * sizes[0]
    return U[:, keep] * sizes[keep], T[keep].T


@dataclass(frozen=True, eq=False)
class Estimate:
    """The result of a step: the terms, the objective, and the proved dual objective."""

    terms: Terms
    objective: float
    dual: float
    is_converged: bool = False

    @property
    def gap(self) -> float:
        """Return the proved relative gap: no objective is lower by a larger share; NaN if nothing is proved."""
        return float(np.maximum(self.objective - self.dual, 0.0)) / self.objective if self.objective > 0 else 0.0


# The group lasso over the blocks


def solve_blocks(program: Program, terms: Terms, *, tol: float, max_passes: int = 500) -> tuple[Terms, Array]:
    """Return the terms with the blocks that minimize the objective for the given bits, and the residual.

    All blocks of one mode are solved for jointly, mode after mode, until a pass lowers the objective by no more than
    `tol` of it. Missing entries are filled by the estimate in each pass, which never raises the objective.
    """
    R = program.residual(terms)
    value = program.objective(terms, R)
    for _ in range(max_passes):
        for mode in list(terms.groups):
            Z, V = terms.groups[mode]
            P, penalties = contract(R, mode, Z).reshape(len(V), -1), program.penalties(Z)
            shape = program.block_shape(mode) if program.is_rank_one else None
            new = best_blocks(Z, P, V, penalties) if shape is None else shrunk_blocks(Z, P, V, penalties, shape)
            R = program.on_observed(R - fold(Z @ (new - V), mode, program.X.shape))
            terms = terms.set(mode, Z, new)
        previous, value = value, program.objective(terms, R)
        if previous - value <= tol * value:
            break
    return terms, R


def best_blocks(Z: Array, P: Array, V: Array, penalties: Array) -> Array:
    """Return the rows V that minimize |R - Z (V - V_0)|^2 / 2 + sum_k penalties_k |V_k|, for P = Z'R and V_0 = V.

    With Q = P + Z'Z V_0 the minimum has its rows in the span of those of Q, so that K coordinates are enough.
    """
    G = Z.T @ Z
    Q = P + G @ V
    values, vectors = np.linalg.eigh(Q @ Q.T)
    keep = values > len(G) * EPSILON * values[-1]
    roots = np.sqrt(values[keep])
    basis = (vectors[:, keep] / roots).T @ Q  # orthonormal rows that span those of Q
    A = np.ascontiguousarray(V @ basis.T)
    coordinates = np.ascontiguousarray(vectors[:, keep] * roots)
    shrink_rows(G, coordinates, A, penalties, 1e-12 * float(roots.max(initial=0.0)))
    return A @ basis


def shrunk_blocks(Z: Array, P: Array, V: Array, penalties: Array, shape: tuple[int, int], n_sweeps: int = 3) -> Array:
    """Return V improved as by `best_blocks`, but with nuclear norms: singular values are shrunk, block by block."""
    G, V = Z.T @ Z, V.copy()
    Q = P + G @ V
    for _ in range(n_sweeps if len(V) > 1 else 1):
        for k in range(len(V)):
            B = (Q[k] - G[k] @ V + G[k, k] * V[k]).reshape(shape)
            U, sizes, T = np.linalg.svd(B, full_matrices=False)
            V[k] = ((U * np.maximum(sizes - penalties[k], 0)) @ T).ravel() / G[k, k]
    return V


# The dual norm, and the proof


def dual_norm(
    program: Program, R: Array, rng: np.random.Generator, *, effort: str | None = None, starts: Terms | None = None
) -> float:
    """Return max |R_n'z| / s(z) over modes and bits: the best found, or, with an effort, an upper bound on all."""
    found = [look(program, R, mode, rng, starts or Terms()) for mode in program.modes]
    if effort is None:
        return float(np.sqrt(max(view.value for view in found)))
    return float(np.sqrt(max(prove(program, view, effort, {}) for view in found)))


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


def look(program: Program, R: Array, mode: int, rng: np.random.Generator, terms: Terms) -> View:
    """Return what the residual shows along one mode: the bits of largest score, and several others above alpha^2."""
    C = gram(R, mode)
    known = terms.along(mode, R.shape)[0].T > 0.5
    starts = known if len(known) else None
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
    added: at most the number of columns times epsilon times its trace, and d times that if z'Cz is not divided by
    |z|^2.
    """
    d = len(view.C)
    n_columns, size = program.X.size // d, float(np.trace(view.C))
    if program.n_columns:
        n_columns, size = program.n_columns, float(np.vdot(program.X, program.X))  # X comes from a rounded Gram matrix
    rounding = (n_columns + 2) * EPSILON * size * (1 if program.is_ratio else d)
    if not view.value > 0 or view.bound is not None:
        return rounding + (view.bound or 0.0)
    proof = prove_ratio(view.C, view.z, effort=effort, start=multipliers.get(view.mode)) if program.is_ratio else None
    if proof is None:
        return np.inf
    multipliers[view.mode] = proof.multipliers
    return proof.bound + rounding


def dual_objective(program: Program, R: Array, norm: float) -> float:
    """Return the best dual objective <X, t R> - |t R|^2 / 2 over numbers t with t norm <= alpha."""
    inner, squared = float(np.vdot(program.X, R)), float(np.vdot(R, R))
    if squared == 0:
        return 0.0
    t = max(min(inner / squared, program.alpha / norm if norm > 0 else np.inf), 0.0)
    return t * inner - t**2 * squared / 2


# The loop


def solve(
    program: Program, rng: np.random.Generator, *, tol: float, max_iter: int, start: Terms | None = None
) -> Iterator[Estimate]:
    """Yield an estimate after each step: blocks for the bits so far, a proved gap, then new bits.

    The bits that are added are those whose score exceeds alpha: a block on them lowers the objective. When the best
    bits found would close the gap, only the proof is missing, which is then made with more effort. The steps
    end early if the most thorough proof no longer gains a tenth of the gap.
    """
    terms, dual, level, accuracy, gap = Terms() if start is None else start, 0.0, 0, 0.1 * tol, np.inf
    multipliers: dict[int, Multipliers] = {}
    for _ in range(max_iter):
        terms, R = solve_blocks(program, terms, tol=accuracy)
        views = [look(program, R, mode, rng, terms) for mode in program.modes]
        value, best = program.objective(terms, R), float(np.sqrt(max(view.value for view in views)))
        is_hopeful = value - max(dual, dual_objective(program, R, best)) <= 0.5 * tol * value
        level = max(level, int(is_hopeful))
        bounds = [prove(program, view, EFFORTS[level], multipliers) for view in views]
        dual = max(dual, dual_objective(program, R, float(np.sqrt(max(bounds)))))
        estimate = Estimate(terms, value, dual)
        yield replace(estimate, is_converged=estimate.gap <= tol)
        longer = terms
        for view in views:
            longer = longer.with_bits(view.mode, view.new, program.X.shape)
        is_stuck = is_hopeful or longer.n_atoms == terms.n_atoms
        is_thorough = is_stuck and level == len(EFFORTS) - 1 and accuracy <= 1e-2 * tol
        if estimate.gap <= tol or (is_thorough and estimate.gap > 0.9 * gap):
            return
        if is_stuck:
            accuracy, level = max(0.1 * accuracy, 1e-3 * tol), min(level + 1, len(EFFORTS) - 1)
        terms, gap = longer, estimate.gap


def solve_rank_one(
    program: Program, rng: np.random.Generator, *, tol: float, max_iter: int, start: Terms | None = None
) -> Iterator[Estimate]:
    """Yield an estimate after each step, for atoms of rank one: nothing is proved, and the dual objective is NaN.

    New bits are those of the best atom of rank one along each mode, as long as its score exceeds alpha by `tol` of it.
    """
    terms = Terms() if start is None else start
    for _ in range(max_iter):
        terms, R = solve_blocks(program, terms, tol=1e-2 * tol)
        longer = terms
        for mode in program.modes:
            found = steepest_atom(DenseTensor(R), mode, rng, criterion=program.criterion, certify=False)
            if found is not None and found.value > ((1 + tol) * program.alpha) ** 2:
                longer = longer.with_bits(mode, (found.atom.z,), program.X.shape)
        is_last = longer.n_atoms == terms.n_atoms
        yield Estimate(terms, program.objective(terms, R), float("nan"), is_last)
        if is_last:
            return
        terms = longer


def noise_norm(
    shape: tuple[int, ...], modes: tuple[int, ...], sigma: float, criterion: str, is_rank_one: bool
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
        levels.append(real + np.sqrt(0.405 * d) if criterion == "normalized" else np.sqrt(d) * real + 0.399 * d)
    return sigma * max(levels)
