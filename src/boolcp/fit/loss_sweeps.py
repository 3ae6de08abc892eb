"""Steps that lower a loss, or keep nonnegative parts: of one factor, sweeps over all of them, new data.

Row i of the factor of one mode has the loss sum_j w_ij l(x_ij, a_i'b_j), convex in a_i, with b_j the products of the
other factors. For counts and bits it is replaced by its quadratic form at the present row, with Newton's curvature;
Huber's loss by squares that majorize it, those of data cut off at the threshold around the present W, or far from the
end by weights (iteratively reweighted least squares). That is minimized over bits and (nonnegative) real entries, and a
row of Newton's is taken only if its true loss falls, if need be after a shorter step. So the true loss never rises.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from boolcp.fit import _loss_kernels as kernels
from boolcp.fit.losses import Problem, Rows
from boolcp.fit.polish import balance_real, decide_signed
from boolcp.fit.relax import quadratic
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.result.trust import Trust

# chosen on seeds that benchmarks/bench_losses.py does not use
N_RELAX = 30  # sweeps without the Boolean constraint at most
N_POLISH = 60  # sweeps with it
SETTLED = 1e-7  # relative fall of the loss by a sweep that ends them, if no bit changed
RELAXED = 1e-4  # the same without the Boolean constraint
N_FITTED = 3  # steps of the real entries of a slice after a bit was flipped
ROUNDING = 1e-12  # relative fall of the loss of a row that counts as none


def update_rows(
    problem: Problem,
    factors: Sequence[np.ndarray],
    mode: int,
    W: Columns,
    is_relaxed: bool = False,
    is_fixed: bool = False,
) -> tuple[np.ndarray, float]:
    """Return the factor of one mode after a step by which the loss does not rise, and the loss.

    If `is_relaxed`, bits may be any numbers; if `is_fixed`, they stay as they are.
    """
    S, boolean = W.ties(mode)
    boolean = boolean & (not is_relaxed)
    if problem.loss.name != "squared":
        nonnegative = np.full(len(boolean), mode in problem.nonnegative)
        A, F = Step(problem, factors, mode).take(boolean, nonnegative, is_fixed)
        return A, float(F.sum())
    H, P = problem.data.normal_equations(factors, mode)
    A = decide_signed(H, S, boolean, P, factors[mode], is_nonnegative=mode in problem.nonnegative, is_fixed=is_fixed)
    return A, (problem.data.squared_norm - 2 * float(np.sum(P * A)) + quadratic(H, A)) / 2


def products(rows: Rows, factors: Sequence[np.ndarray], mode: int) -> np.ndarray:
    """Return the products of the other factors at the entries of rows, (K, n), or those that all rows share."""
    others = {n: np.ascontiguousarray(A.T, dtype=float) for n, A in enumerate(factors) if n != mode}
    K = factors[0].shape[1]
    if rows.indices is None:
        B = np.ones((K, 1))
        for A in others.values():
            B = (B[:, :, None] * A[:, None, :]).reshape(K, -1)
        return B
    B = np.ones((K, len(rows.values)))
    for n, A in others.items():
        kernels.multiply_columns(A, rows.indices[n], B)
    return B


class Step:
    """One step of the factor of one mode under a loss that is not the sum of squares."""

    def __init__(self, problem: Problem, factors: Sequence[np.ndarray], mode: int) -> None:
        rows, self.A = problem.rows(mode), np.array(factors[mode], dtype=float, order="C")
        self.linear = self._linear(problem, factors, mode)
        B = products(rows, factors, mode)
        self.how = (problem.loss.kind, problem.loss.scale, rows.values, rows.weights, rows.starts, B)

    def _linear(self, problem: Problem, factors: Sequence[np.ndarray], mode: int) -> np.ndarray:
        """Return the gradient of sum w m for each row, (d, K), the linear part of the loss of counts; else 0."""
        if problem.loss.name != "poisson":
            return np.zeros_like(self.A)
        if problem.data.is_complete:
            sums = np.prod([A.sum(axis=0) for n, A in enumerate(factors) if n != mode], axis=0)
            return np.tile(sums, (len(self.A), 1))
        return np.array(problem.observed.mttkrp(factors, mode), dtype=float, order="C")

    def losses(self) -> np.ndarray:
        """Return the loss of each row, (d,)."""
        F = np.empty(len(self.A))
        kernels.row_losses(self.how, self.linear, self.A, F)
        return F

    def rises(self, bits: np.ndarray) -> np.ndarray:
        """Return the rise of the loss when one of the columns `bits` is flipped in each row, (d, B)."""
        rise = np.empty((len(self.A), len(bits)))
        kernels.flip_losses(self.how, self.linear, self.A, bits, rise)
        return rise

    def take(self, boolean: np.ndarray, nonnegative: np.ndarray, is_fixed: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of a step by which no loss rises, and the loss of each."""
        F = np.empty(len(self.A))
        kernels.step_rows(self.how, self.linear, boolean, nonnegative, is_fixed, self.A, F)
        return self.A, F


def flip(problem: Problem, factors: Sequence[np.ndarray], mode: int, bits: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the factor with the one bit of each row flipped that lowers the loss most, if one does, and the fall."""
    A = np.array(factors[mode], dtype=float)
    if problem.loss.name == "squared" or not len(bits):
        return A, 0.0
    rise = Step(problem, factors, mode).rises(bits)
    place = np.argmin(rise, axis=1)
    falls = rise[np.arange(len(A)), place]
    some = np.flatnonzero(falls < -ROUNDING * (1 + np.abs(rise).max()))
    A[some, bits[place[some]]] = 1 - A[some, bits[place[some]]]
    return A, -float(falls[some].sum())


def sweep(
    problem: Problem, W: Columns, is_relaxed: bool = False, is_flipped: bool = True, is_fixed: bool = False
) -> tuple[Columns, bool]:
    """Decide the factor of each mode once; return the columns with their loss, and whether a bit changed.

    If asked, bits whose flip lowers the loss are flipped in the end, or all bits stay as they are.
    """
    near, factors, order, loss = problem.near(W), list(W.matrices), list(range(problem.data.ndim)), np.inf
    for mode in order:
        factors[mode], loss = update_rows(near, factors, mode, W, is_relaxed, is_fixed)
        if mode != order[-1]:
            nowhere = np.full(len(W.owner), -1)
            balance_real(factors, nowhere if is_relaxed else W.column_mode, mode, order)
    if near is not problem:
        loss = problem.value(W.with_matrices(factors))
    if is_relaxed or is_fixed:
        return W.with_matrices(factors, loss), False
    for mode in order if is_flipped else ():
        factors[mode], fall = flip(problem, factors, mode, np.flatnonzero(W.column_mode == mode))
        loss -= fall
    own = [W.column_mode == mode for mode in order]
    is_same = all(np.array_equal(A[:, at], B[:, at]) for A, B, at in zip(factors, W.matrices, own, strict=True))
    return W.with_matrices(factors, loss), not is_same


def improve(problem: Problem, W: Columns, n_sweeps: int = N_POLISH, aim: float = np.inf) -> Columns:
    """Return the columns after sweeps until no bit changes and the loss hardly falls; it never rises.

    Sweeps end, too, if the loss would stay above an aim at the pace of the last one.
    """
    before, step, is_flipped = np.inf, 1.0, False
    for n_left in reversed(range(n_sweeps)):
        last, (W, is_changed) = W, sweep(problem, W, is_flipped=is_flipped)
        if W.loss - n_left * (before - W.loss) > aim:
            break
        is_settled = before - W.loss <= SETTLED * abs(W.loss) and not is_changed
        if is_settled and is_flipped:
            break
        before, is_flipped = W.loss, is_settled
        if not is_changed:
            W, step = lengthened(problem, last, W, step)
    return W


def relax(problem: Problem, W: Columns, n_sweeps: int = N_RELAX) -> Columns:
    """Return the columns after sweeps without the Boolean constraint."""
    before, step = np.inf, 1.0
    for _ in range(n_sweeps):
        last, (W, _) = W, sweep(problem, W, is_relaxed=True)
        if before - W.loss <= RELAXED * abs(W.loss):
            break
        before = W.loss
        W, step = lengthened(problem, last, W, step)
    return W


def lengthened(problem: Problem, last: Columns, W: Columns, step: float) -> tuple[Columns, float]:
    """Return the columns so many times further on the way of a sweep if the loss is lower there, and the next step."""
    factors = [A + step * (A - B) for A, B in zip(W.matrices, last.matrices, strict=True)]
    factors = [np.maximum(A, 0) if n in problem.nonnegative else A for n, A in enumerate(factors)]
    is_squared = problem.loss.name == "squared"
    loss = problem.value(W.with_matrices(factors)) if is_squared else float(Step(problem, factors, 0).losses().sum())
    return (W.with_matrices(factors, loss), 2 * step) if loss < W.loss else (W, 1.0)


def judge_bits(problem: Problem, W: BooleanCP) -> Trust:
    """Return for each bit the rise of the deviance when it is flipped, in the place of a loss with noise of variance 1.

    The squared size of an atom in a slice is the rise to be expected: the divergence of its means with and without it.
    """
    return trust_of(problem, W, flip_rises(problem, W), divergences(problem, W))


def trust_of(problem: Problem, W: BooleanCP, rises: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Trust:
    """Return what the rises of the deviance of all bits, and those to be expected, tell of them."""
    sizes = np.maximum(W.weights**2, np.finfo(float).tiny)
    share = tuple(each / size for each, size in zip(expected, sizes, strict=True))
    return Trust(rise=tuple(rises), share=share, sigma=float(np.sqrt(problem.variance)))


def divergences(problem: Problem, W: BooleanCP) -> tuple[np.ndarray, ...]:
    """Return for each atom and slice the rise of the deviance to expect when a right bit is flipped, (d_n,).

    It is sum w (m1 - m0) (t(m1) - t(m0)) over the entries, the mean over a bit that is on and one that is off, where t
    is the natural parameter of the mean, log m for counts.
    """
    m, (_, weights), found = problem.means(W), problem.entries, []
    for atom, size in zip(W.atoms, W.weights, strict=True):
        whole = replace(atom, z=np.ones(len(atom.z), dtype=bool))
        step, rows = problem.means(BooleanCP(W.shape, (whole,), [size])), problem.slices(atom.mode)
        off = m - atom.z[rows] * step
        terms = weights * step * (problem.loss.natural(off + step) - problem.loss.natural(off))
        found.append(np.bincount(rows, terms, minlength=len(atom.z)))
    return tuple(found)


def flip_rises(problem: Problem, W: BooleanCP) -> tuple[np.ndarray, ...]:
    """Return for each atom the rise of the deviance when a bit is flipped and its slice is fitted again, (d_n,)."""
    columns = to_columns(W)
    return tuple(2 * flipped_rows(problem, columns, k)[1] for k in range(W.n_atoms))


def flipped_rows(problem: Problem, W: Columns, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a factor with the bit of atom k flipped and real entries fitted again, and their rise (d_n,).

    Rows do not depend on each other, so that all bits of the atom are tried at once.
    """
    mode = int(W.boolean_mode[k])
    _, boolean = W.ties(mode)
    step = Step(problem, W.matrices, mode)
    before = step.losses()
    step.A[:, k] = 1 - step.A[:, k]
    for _ in range(N_FITTED):
        A, F = step.take(boolean, np.full(len(boolean), mode in problem.nonnegative), True)
    return A, F - before


def solve_rows(problem: Problem, W: BooleanCP, mode: int, n_steps: int = N_POLISH) -> np.ndarray:
    """Return the factor (d_n, K) of new data along one mode under a loss: bits where atoms are Boolean, else real."""
    if W.n_atoms == 0:
        return np.zeros((problem.data.shape[mode], 0))
    columns = to_columns(W)
    factors, own = [np.array(A) for A in columns.matrices], columns.column_mode == mode
    sizes, other = np.linalg.norm(factors[mode], axis=0), 1 if mode == 0 else 0
    factors[other] = factors[other] * np.where(own, 1.0, sizes)  # the size of an atom is in its other factors
    factors[mode] = np.full((problem.data.shape[mode], W.n_atoms), 0.5 / max(problem.data.shape))
    factors[mode][:, own] = 0.0
    before = np.inf
    for _ in range(n_steps):
        now = replace(columns, matrices=tuple(factors))
        loss = problem.value(now)
        if before - loss <= SETTLED * abs(loss):
            break
        before = loss
        factors[mode], _ = update_rows(problem.near(now), factors, mode, now)
        factors[mode], _ = flip(problem, factors, mode, np.flatnonzero(own))
    return factors[mode]
