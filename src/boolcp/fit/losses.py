"""Losses other than the sum of squares, and real parts that are nonnegative.

Under every loss W is the mean of X. Row i of the factor of one mode has the loss sum_j w_ij l(x_ij, a_i'b_j), convex in
a_i, with b_j the products of the other factors. It is replaced by its quadratic form at the present row: with Newton's
curvature for counts and bits, the majorizing weights of iteratively reweighted least squares for Huber's loss, and
exactly for squares. That form is minimized over bits and (nonnegative) real entries, and a row is taken only if its
true loss falls, if need be after a shorter step. So the true loss never rises.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from boolcp.fit import _loss_kernels as kernels
from boolcp.fit import margins
from boolcp.fit.atom_search import greedy_atom_search
from boolcp.fit.polish import balance_real
from boolcp.fit.relax import quadratic
from boolcp.fit.starts import Search, round_columns
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.result.deviance import Deviance
from boolcp.result.trust import Trust
from boolcp.storage import listed_or_masked
from boolcp.storage.protocol import Storage

KINDS = {"squared": kernels.SQUARED, "huber": kernels.HUBER, "poisson": kernels.POISSON, "bernoulli": kernels.BERNOULLI}
THRESHOLD = 1.5  # of Huber's loss, in standard deviations: 96 % of the efficiency of squares for normal noise
CLIPPED = 5.0  # median absolute deviations of the data, as standard deviations, at which a first fit cuts them off
MAD = 1.4826  # standard deviations of normal noise in its median absolute deviation
FLOOR = 1e-3  # mean at which logarithms are continued by a parabola, relative to the mean of the data
STEPS = (1.0, 0.5, 0.25, 0.0625, 0.015625)  # lengths of a step that are tried in turn
# chosen on seeds that benchmarks/bench_losses.py does not use
N_RELAX = 30  # sweeps without the Boolean constraint at most
N_POLISH = 30  # sweeps with it
SETTLED = 1e-7  # relative fall of the loss by a sweep that ends them, if no bit changed
RELAXED = 1e-4  # the same without the Boolean constraint
MIN_DOUBTED = 5  # starts where bits are in doubt
CERTAIN = 20.0  # rise of the deviance, in units of the noise variance, from which no bit is in doubt
N_SHORT = 10  # sweeps after an atom was added
N_EXCHANGES = 2  # rounds of exchanged atoms
N_TURNS = 3  # rounds over the factors of a new atom with nonnegative parts
SAME = 1e-6  # difference of two losses, relative to that without atoms, that counts as none
SMALL = 1e-9  # share of the mean curvature that is added to it
ROUNDING = 1e-12  # relative fall of the loss of a row that counts as none


@dataclass(frozen=True)
class Loss:
    """A loss with its scale: the threshold of Huber's loss, or the floor of logarithms."""

    name: str = "squared"
    scale: float = 1.0

    def terms(self, x: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the loss of entries x with means m, and its derivative by m."""
        if self.name == "squared":
            return 0.5 * (m - x) ** 2, m - x
        if self.name == "huber":
            away = m - x
            cut = np.clip(away, -self.scale, self.scale)
            return cut * (away - 0.5 * cut), cut
        if self.name == "poisson":
            losses, slopes, some = m.copy(), np.ones(len(m)), np.flatnonzero(x)  # logarithms only where counts are
            value, slope = self._log(m[some])
            losses[some] += x[some] * value
            slopes[some] += x[some] * slope
            return losses, slopes
        value, slope = self._log(m)
        other, other_slope = self._log(1 - m)
        above = np.maximum(m - 1, 0) / self.scale
        value = x * value + (1 - x) * other + 0.5 * above**2
        return value, x * slope - (1 - x) * other_slope + above / self.scale

    def _log(self, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return -log m and its derivative, with a parabola below the floor."""
        away = np.minimum(m / self.scale - 1, 0)
        safe = np.maximum(m, self.scale)
        return -np.log(safe) - away + 0.5 * away**2, np.where(away < 0, (away - 1) / self.scale, -1 / safe)

    def deviance(self, x: np.ndarray, m: np.ndarray) -> np.ndarray:
        """Return twice the loss above that of a perfect mean, entry by entry."""
        return 2 * (self.terms(x, m)[0] - self.terms(x, np.asarray(x, dtype=float))[0])

    def null(self, x: np.ndarray, weights: np.ndarray | None = None) -> float:
        """Return the mean without any atom: 0, or that of the data where zero is no mean of them."""
        return float(np.average(x, weights=weights)) if self.name in ("poisson", "bernoulli") else 0.0


def make_loss(name: str, x: np.ndarray, m: np.ndarray | None = None) -> Loss:
    """Return a loss with the scale that entries x ask for; `m` are the means of a first fit."""
    if name == "huber":
        return Loss(name, max(THRESHOLD * spread(x if m is None else x - m), np.finfo(float).tiny))
    if name == "squared":
        return Loss()
    mean = float(np.mean(x))
    return Loss(name, max(FLOOR * (min(mean, 1 - mean) if name == "bernoulli" else mean), 1e-9))


def spread(x: np.ndarray) -> float:
    """Return the standard deviation of normal noise with the median absolute deviation of x."""
    return MAD * float(np.median(np.abs(x - np.median(x))))


def without_artifacts(data: Storage, name: str) -> Storage:
    """Return the data that a first fit of squares takes: for Huber's loss without far outliers."""
    if name != "huber":
        return data
    indices, values, weights = data.entries()
    middle, width = np.median(values), CLIPPED * spread(values)
    return listed_or_masked(indices, np.clip(values, middle - width, middle + width), data.shape, weights)


@dataclass(frozen=True)
class Rows:
    """The entries of a tensor sorted by row along one mode: indices (n, N), values, weights, first of each row."""

    indices: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class Problem:
    """What a loss is asked about: the data, the loss, and the modes along which real columns are nonnegative."""

    data: Storage
    loss: Loss
    nonnegative: tuple[int, ...]

    @cached_property
    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The observed entries: indices (n, N), values and weights (n,)."""
        indices, values, weights = self.data.entries()
        return indices, values.astype(float), np.ones(len(values)) if weights is None else weights

    @property
    def variance(self) -> float:
        """Return the unit of the deviance: the variance of the noise for Huber's loss, 1 for counts and bits."""
        return (self.loss.scale / THRESHOLD) ** 2 if self.loss.name == "huber" else 1.0

    @cached_property
    def rows(self) -> list[Rows]:
        """The entries that the kernels visit, by mode: of counts only those above zero."""
        indices, values, weights = self.entries
        if self.loss.name == "poisson":
            some = values > 0
            indices, values, weights = indices[some], values[some], weights[some]
        found = []
        for mode, d in enumerate(self.data.shape):
            order = np.argsort(indices[:, mode], kind="stable")
            starts = np.searchsorted(indices[order, mode], np.arange(d + 1))
            found.append(Rows(np.ascontiguousarray(indices[order]), values[order], weights[order], starts))
        return found

    def linear(self, factors: Sequence[np.ndarray], mode: int) -> np.ndarray | float:
        """Return the gradient of sum w m for each row, (d, K), the linear part of the loss of counts; else 0."""
        if self.loss.name != "poisson":
            return 0.0
        if self.data.is_complete:
            sums = np.prod([A.sum(axis=0) for n, A in enumerate(factors) if n != mode], axis=0)
            return np.broadcast_to(sums, factors[mode].shape)
        return np.asarray(self.data.observed().mttkrp(factors, mode), dtype=float)  # type: ignore[attr-defined]

    def value(self, W: Columns | BooleanCP) -> float:
        """Return the loss of an estimate."""
        return self.value_of(W.to_decomposition() if isinstance(W, Columns) else W)

    def value_of(self, W: BooleanCP) -> float:
        """Return the loss of a decomposition."""
        indices, values, weights = self.entries
        return float(weights @ self.loss.terms(values, W.at(indices))[0])

    def gradient(self, W: BooleanCP) -> Storage:
        """Return -dF/dm as a tensor, the direction of steepest descent at W."""
        indices, values, weights = self.entries
        slopes = -weights * self.loss.terms(values, W.at(indices))[1]
        return listed_or_masked(indices, slopes, self.data.shape)


def update_rows(
    problem: Problem,
    factors: Sequence[np.ndarray],
    mode: int,
    W: Columns,
    is_relaxed: bool = False,
    is_flipped: bool = True,
) -> tuple[np.ndarray, float]:
    """Return the factor of one mode after a step by which the loss does not rise, and the loss."""
    S, boolean = W.ties(mode)
    boolean = boolean & (not is_relaxed)
    nonnegative = np.full(len(boolean), mode in problem.nonnegative)
    if problem.loss.name != "squared":
        return Step(problem, factors, mode).take(boolean, nonnegative, is_flipped)
    H, P = problem.data.normal_equations(factors, mode)
    A, Q, C = factors[mode].copy(), P, H
    if S is not None:
        A, Q, C = A @ S / S.sum(axis=0), P @ S, S.T @ H @ S
    each = np.ascontiguousarray(C if C.ndim == 3 else C[None])
    kernels.decide_nonnegative(each, np.ascontiguousarray(Q), boolean, nonnegative, A)
    A = A if S is None else A @ S.T
    return A, (problem.data.squared_norm - 2 * float(np.sum(P * A)) + quadratic(H, A)) / 2


class Step:
    """One step of the factor of one mode under a loss that is not the sum of squares."""

    def __init__(self, problem: Problem, factors: Sequence[np.ndarray], mode: int) -> None:
        self.A, rows = np.ascontiguousarray(factors[mode], dtype=float), problem.rows[mode]
        stacked = np.zeros((len(factors), max(problem.data.shape), self.A.shape[1]))
        for n, B in enumerate(factors):
            stacked[n, : len(B)] = B
        self.linear = np.asarray(problem.linear(factors, mode)) * np.ones_like(self.A)
        kind = KINDS[problem.loss.name]
        self.how = (kind, problem.loss.scale, rows.indices, rows.values, rows.weights, rows.starts, stacked, mode)

    def losses(self, A: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Return the loss of each wanted row of A, (d,)."""
        F = np.zeros(len(A))
        kernels.row_losses(*self.how, np.ascontiguousarray(A), wanted, F)
        return F + np.sum(self.linear * A, axis=1)

    def quadratics(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return loss F (d,), gradient (d, K) and curvature (d, K, K) of the rows."""
        d, K = self.A.shape
        F, G, H = np.empty(d), np.empty((d, K)), np.empty((d, K, K))
        kernels.row_quadratics(*self.how, self.A, F, G, H)
        return F + np.sum(self.linear * self.A, axis=1), G + self.linear, H

    def rises(self, A: np.ndarray, bits: np.ndarray) -> np.ndarray:
        """Return the rise of the loss when one of the columns `bits` of A is flipped in each row, (d, B)."""
        rise = np.empty((len(A), len(bits)))
        kernels.flip_losses(*self.how, np.ascontiguousarray(A), bits, rise)
        return rise + self.linear[:, bits] * (1 - 2 * A[:, bits])

    def take(self, boolean: np.ndarray, nonnegative: np.ndarray, is_flipped: bool = True) -> tuple[np.ndarray, float]:
        """Return the rows of a step, and their loss.

        They are the minimum of the quadratic form; or, where the true loss is not lower there, a shorter way of the
        real columns alone; then, if asked, a bit is flipped where that lowers the loss.
        """
        F, G, H = self.quadratics()
        size = np.einsum("ikk->i", H)[:, None, None] / H.shape[1]
        H = H + SMALL * np.maximum(size, np.finfo(float).tiny) * np.eye(H.shape[1])
        P = np.einsum("ikl,il->ik", H, self.A) - G
        best, left = self.A.copy(), np.ones(len(F), dtype=bool)
        if boolean.any():
            target = self.A.copy()
            kernels.decide_nonnegative(H, P, boolean, nonnegative, target)
            self.accept(target, best, F, left)
        if left.any() and not boolean.all():
            target = self.A.copy()
            kernels.decide_nonnegative(H, P, boolean, nonnegative, target, True)
            for step in STEPS:
                self.accept(self.A + step * (target - self.A), best, F, left)
                if not left.any():
                    break
        if is_flipped and boolean.any():
            self.flip(best, np.flatnonzero(boolean), F)
        return best, float(F.sum())

    def accept(self, target: np.ndarray, best: np.ndarray, F: np.ndarray, left: np.ndarray) -> None:
        """Take the rows of `target` whose loss is below F, which is then theirs; the others are left."""
        found = self.losses(target, left)
        is_lower = left & (found < F)
        best[is_lower], F[is_lower] = target[is_lower], found[is_lower]
        left[is_lower] = False

    def flip(self, A: np.ndarray, bits: np.ndarray, F: np.ndarray) -> None:
        """Flip in place in each row the one bit that lowers the loss most, if one does."""
        rise = self.rises(A, bits)
        place = np.argmin(rise, axis=1)
        fall = rise[np.arange(len(A)), place]
        some = np.flatnonzero(fall < -ROUNDING * (1 + np.abs(F)))
        A[some, bits[place[some]]] = 1 - A[some, bits[place[some]]]
        F[some] += fall[some]


def sweep(problem: Problem, W: Columns, is_relaxed: bool = False, is_flipped: bool = True) -> tuple[Columns, bool]:
    """Decide the factor of each mode once; return the columns with their loss, and whether a bit changed."""
    factors, order, is_changed, loss = list(W.matrices), list(range(problem.data.ndim)), False, np.inf
    for mode in order:
        A, loss = update_rows(problem, factors, mode, W, is_relaxed, is_flipped)
        own = W.column_mode == mode
        is_changed |= not np.array_equal(A[:, own], factors[mode][:, own])
        factors[mode] = A
        if mode != order[-1]:
            nowhere = np.full(len(W.owner), -1)
            balance_real(factors, nowhere if is_relaxed else W.column_mode, mode, order)
    return W.with_matrices(factors, loss), is_changed


def improve(problem: Problem, W: Columns, n_sweeps: int = N_POLISH, tol: float = SETTLED) -> Columns:
    """Return the columns after sweeps until no bit changes and the loss hardly falls; it never rises."""
    before, is_flipped = np.inf, False
    for _ in range(n_sweeps):
        W, is_changed = sweep(problem, W, is_flipped=is_flipped)
        is_settled = before - W.loss <= tol * abs(W.loss) and not is_changed
        if is_settled and is_flipped:
            break
        before, is_flipped = W.loss, is_settled
    return W


def relax(problem: Problem, W: Columns, n_sweeps: int = N_RELAX) -> Columns:
    """Return the columns after sweeps without the Boolean constraint."""
    before = np.inf
    for _ in range(n_sweeps):
        W, _ = sweep(problem, W, is_relaxed=True)
        if before - W.loss <= RELAXED * abs(W.loss):
            break
        before = W.loss
    return W


# atoms by the gradient of the loss


def add_atom(problem: Problem, W: BooleanCP, modes: tuple[int, ...], rng: np.random.Generator) -> BooleanCP | None:
    """Return W with the atom of steepest descent of the loss, sized by a search along it; None if none descends."""
    slope = problem.gradient(W)
    found = greedy_atom_search(slope, modes, rng, atom_rank=1, certify=False)
    if found is None:
        return None
    one = to_columns(BooleanCP(W.shape, (found.atom,), [1.0]))
    atom = oriented(one, problem.nonnegative)
    for _ in range(N_TURNS if problem.nonnegative else 0):
        atom = turned(slope, atom, problem.nonnegative)
    M = atom.to_decomposition()
    if M.n_atoms == 0:
        return None
    indices, values, weights = problem.entries
    base, unit = W.at(indices), replace(M, weights=np.ones(1)).at(indices)
    first = found.descent / found.atom.n_ones  # the best for squares
    if problem.loss.name in ("poisson", "bernoulli"):
        first = float(np.mean(values) / max(np.mean(unit), 1e-300))  # of the mean of the data
    sizes = first * 4.0 ** np.arange(-4, 4)
    losses = [float(weights @ problem.loss.terms(values, base + size * unit)[0]) for size in sizes]
    best = int(np.argmin(losses))
    if not losses[best] < float(weights @ problem.loss.terms(values, base)[0]):
        return None
    return BooleanCP(W.shape, (*W.atoms, M.atoms[0]), np.append(W.weights, sizes[best]))


def oriented(W: Columns, nonnegative: tuple[int, ...]) -> Columns:
    """Return the columns with signs that make those along the nonnegative modes as positive as can be, cut at zero."""
    factors = [A.copy() for A in W.matrices]
    for n in nonnegative:
        others = [m for m in range(len(factors)) if m not in nonnegative] or [m for m in nonnegative if m != n]
        for r, own in enumerate(W.column_mode):
            total = np.sum(factors[n][:, r] * np.abs(factors[n][:, r]))
            free = [m for m in others if m != own]
            if own != n and total < 0 and free:
                factors[n][:, r] *= -1
                factors[free[0]][:, r] *= -1
    for n in nonnegative:
        factors[n] = np.where(W.column_mode == n, factors[n], np.maximum(factors[n], 0))
    return W.with_matrices(factors)


def turned(slope: Storage, atom: Columns, nonnegative: tuple[int, ...]) -> Columns:
    """Return one atom of rank one after each factor in turn was made the best for <slope, atom>, bits and real ones."""
    factors = [A.copy() for A in atom.matrices]
    for mode in range(len(factors)):
        p = np.asarray(slope.mttkrp(factors, mode), dtype=float)[:, 0]
        if mode == atom.boolean_mode[0]:
            order = np.argsort(-p, kind="stable")
            sums = np.cumsum(p[order])
            n_ones = 1 + int(np.argmax(sums / np.sqrt(np.arange(1, len(p) + 1))))
            p = np.zeros(len(p))
            p[order[:n_ones]] = 1.0
        elif mode in nonnegative:
            p = np.maximum(p, 0)
        size = np.linalg.norm(p)
        if size > 0:
            factors[mode] = (p if mode == atom.boolean_mode[0] else p / size)[:, None]
    return atom.with_matrices(factors)


def pursue(problem: Problem, n_atoms: int, modes: tuple[int, ...], rng: np.random.Generator) -> Iterator[BooleanCP]:
    """Yield estimates with 1, 2, .. atoms: the atom of steepest descent added, then all factors improved."""
    W = BooleanCP(problem.data.shape)
    while W.n_atoms < n_atoms and (longer := add_atom(problem, W, modes, rng)) is not None:
        candidates = [improve(problem, to_columns(longer), N_SHORT)]
        relaxed = relax(problem, to_columns(longer), N_SHORT)
        candidates.append(improve(problem, rounded(problem, relaxed, modes), N_SHORT))
        best = min(candidates, key=lambda each: each.loss).to_decomposition()
        if best.n_atoms <= W.n_atoms:
            return
        W = best
        yield W


# the search


def search(
    problem: Problem,
    first: BooleanCP,
    n_atoms: int,
    modes: tuple[int, ...],
    rng: np.random.Generator,
    here: Search,
    *,
    n_init: int,
) -> Iterator[Search]:
    """Yield the best of several starts under the loss, one start more each time, atoms exchanged in the end.

    The starts are the fit of squares `first`, the same relaxed and rounded, the pursuit by the gradient of the loss,
    and random factors that are relaxed and rounded. It ends when two agree and no bit is in doubt, or two of more
    starts agree; where bits are in doubt, atoms are exchanged in the end.
    """
    agree = SAME * abs(null_value(problem)) / 1e-7  # what `Search.compare` takes for |X|^2
    while here.n_done < n_init and not is_enough(problem, here):
        start = make_start(problem, first, n_atoms, modes, rng, here.n_done)
        here = here.compare(revived(problem, improve(problem, start), modes, rng), agree)
        if (here.n_done == n_init or is_enough(problem, here)) and not is_certain(problem, here.result):
            here = replace(here, best=exchanged(problem, here.result, modes, rng))
        yield here


def is_enough(problem: Problem, here: Search) -> bool:
    """Return True if two starts agree, of a few or where no bit is in doubt."""
    return here.n_agree >= 2 and (here.n_done >= MIN_DOUBTED or is_certain(problem, here.result))


def is_certain(problem: Problem, W: Columns) -> bool:
    """Return True if flipping any bit raises the loss so much that none is in doubt."""
    V = W.to_decomposition()
    if V.n_atoms < W.n_atoms or W.is_tied:
        return False
    if problem.loss.name == "squared":
        trust = margins.judge_bits(problem.data, V)
        rises, variance = trust.rise or (), float(trust.sigma or 0.0) ** 2
    else:
        rises, variance = flip_rises(problem, V), problem.variance
    return min((float(each.min()) for each in rises), default=np.inf) > CERTAIN * variance


def make_start(
    problem: Problem, first: BooleanCP, n_atoms: int, modes: tuple[int, ...], rng: np.random.Generator, count: int
) -> Columns:
    """Return the start number `count` of a search."""
    columns = oriented(to_columns(first), problem.nonnegative)
    if count == 0 and first.n_atoms == n_atoms:
        return columns
    if count == 1 and first.n_atoms == n_atoms:
        return rounded(problem, relax(problem, columns), modes)
    if count == 2 or columns.is_tied:
        estimates = list(pursue(problem, n_atoms, modes, rng))
        return to_columns(estimates[-1]) if estimates else columns
    size = (max(float(np.mean(np.abs(problem.entries[1]))), 1e-12) / n_atoms) ** (1 / problem.data.ndim)
    factors = []
    for n, d in enumerate(problem.data.shape):
        A = rng.standard_normal((d, n_atoms))
        factors.append(size * (np.abs(A) if n in problem.nonnegative else A))
    return rounded(problem, relax(problem, Columns(tuple(factors), np.arange(n_atoms), np.zeros(n_atoms))), modes)


def rounded(problem: Problem, W: Columns, modes: tuple[int, ...]) -> Columns:
    """Return the columns with one factor of each atom rounded to bits."""
    return oriented(round_columns(W, modes), problem.nonnegative)


def revived(problem: Problem, W: Columns, modes: tuple[int, ...], rng: np.random.Generator) -> Columns:
    """Return the columns with dead atoms replaced by atoms of steepest descent."""
    for _ in range(W.n_atoms):
        if not W.is_dead().any():
            break
        longer = add_atom(problem, W.to_decomposition(), modes, rng)
        if longer is None:
            break
        n_dead = int(W.is_dead().sum())
        W = improve(problem, to_columns(longer))
        if W.is_dead().any() and int(W.is_dead().sum()) >= n_dead:
            break
    return W


def exchanged(problem: Problem, W: Columns, modes: tuple[int, ...], rng: np.random.Generator) -> Columns:
    """Return the columns after atoms were taken out one by one and searched for again, as long as the loss falls."""
    for _ in range(N_EXCHANGES):
        before = W.loss
        for k in range(W.n_atoms):
            if W.n_atoms <= k or W.is_tied:
                break
            keep = np.arange(W.n_atoms) != k
            longer = add_atom(problem, W.to_decomposition(keep=keep), modes, rng)
            if longer is None or longer.n_atoms < W.n_atoms:
                continue
            candidate = improve(problem, to_columns(longer), N_SHORT)
            if candidate.loss < W.loss - SAME * abs(W.loss):
                W = improve(problem, candidate)
        if before - W.loss <= SAME * abs(W.loss):
            break
    return W


def null_value(problem: Problem) -> float:
    """Return the deviance of the estimate without atoms."""
    _, values, weights = problem.entries
    return float(weights @ problem.loss.deviance(values, np.full(len(values), problem.loss.null(values, weights))))


def judged(problem: Problem, W: BooleanCP) -> BooleanCP:
    """Return W with its deviance, that without atoms, and those without each atom."""
    indices, values, weights = problem.entries

    def deviance(V: BooleanCP) -> float:
        return float(weights @ problem.loss.deviance(values, V.at(indices)))

    without = [deviance(W[np.arange(W.n_atoms) != k]) for k in range(W.n_atoms)]
    found = Deviance(problem.loss.name, problem.loss.scale, deviance(W), null_value(problem), np.array(without))
    return replace(W, deviance=found)


def deviance_of(problem: Problem, W: Columns) -> float:
    """Return the deviance of columns whose loss is known."""
    _, values, weights = problem.entries
    return max(2 * (W.loss - float(weights @ problem.loss.terms(values, values)[0])), 0.0)


def judge_bits(problem: Problem, W: BooleanCP) -> Trust:
    """Return for each bit the rise of the deviance when it is flipped, in the place of a loss with noise of variance 1.

    A slice is taken to lie where the rise says, so that its share of the size of an atom is the rise over that.
    """
    rise = flip_rises(problem, W)
    sizes = np.maximum(W.weights**2, np.finfo(float).tiny)
    share = tuple(np.maximum(each, SMALL) / size for each, size in zip(rise, sizes, strict=True))
    return Trust(rise=rise, share=share, sigma=1.0 if problem.loss.name != "huber" else problem.loss.scale / THRESHOLD)


def flip_rises(problem: Problem, W: BooleanCP) -> tuple[np.ndarray, ...]:
    """Return for each atom the rise of the deviance when a bit is flipped, (d_n,)."""
    columns, rises = to_columns(W), [np.zeros(0)] * W.n_atoms
    for mode in sorted(set(W.boolean_mode.tolist())):
        own = np.flatnonzero(W.boolean_mode == mode)
        found = 2 * Step(problem, columns.matrices, mode).rises(columns.matrices[mode], own)
        for place, k in enumerate(own):
            rises[k] = found[:, place]
    return tuple(rises)


def solve_rows(problem: Problem, W: BooleanCP, mode: int, n_steps: int = N_POLISH) -> np.ndarray:
    """Return the factor (d_n, K) of new data along one mode under a loss: bits where atoms are Boolean, else real."""
    if W.n_atoms == 0:
        return np.zeros((problem.data.shape[mode], 0))
    columns = to_columns(W)
    factors = [np.array(A) for A in columns.matrices]
    own = columns.column_mode == mode
    if (~own).any():  # the size of an atom is in its factors along other modes
        sizes = np.linalg.norm(factors[mode], axis=0)
        other = 1 if mode == 0 else 0
        factors[other] = factors[other] * np.where(own, 1.0, sizes)
    A = np.full((problem.data.shape[mode], W.n_atoms), 0.5 / max(problem.data.shape))
    A[:, own] = 0.0
    before = np.inf
    for _ in range(n_steps):
        factors[mode] = A
        A, loss = update_rows(problem, factors, mode, replace(columns, matrices=tuple(factors)))
        if before - loss <= SETTLED * abs(loss):
            break
        before = loss
    return A
