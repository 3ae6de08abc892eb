"""The search under a loss: atoms by its gradient, several starts, moves where bits are in doubt."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from boolcp.fit.atom_search import greedy_atom_search
from boolcp.fit.certify import judge_bits
from boolcp.fit.loss_sweeps import flip_rises, improve, relax, sweep
from boolcp.fit.losses import Problem, null_value
from boolcp.fit.starts import SAME_LOSS, Search, round_columns
from boolcp.fit.uncertain import LastSearch
from boolcp.program.flips import best_boolean
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.storage.protocol import Storage

# chosen on seeds that benchmarks/bench_losses.py does not use
MIN_DOUBTED = 5  # starts where bits are in doubt
N_ROBUST = 2  # starts of Huber's loss where entries are plenty: as many as squares have with gaps
CERTAIN = 20.0  # rise of the deviance, in units of the noise variance, from which no bit is in doubt
N_SHORT = 10  # sweeps after an atom was added
MANY = 60  # entries for each free parameter from which on traps are few
MANY_EVENTS = 10  # the same of counts and bits, entries above zero
LONG = 2_000_000  # entries times atoms from which on a sweep takes tenths of a second, and a search for traps minutes
N_MOVED = 2  # different ends of starts that moves are tried on
NEAR = 20.0  # loss above the best, in units of the noise variance, up to which moves from a rival may overtake it
N_DOUBTED = 24  # bits most in doubt that are flipped, one at a time
N_BEGUN = 3  # sweeps after which the ways to turn atoms to different modes are compared
N_FOLLOW = 8  # sweeps at most in which real parts follow a flipped bit
AHEAD = 2.0  # falls of the loss like the last one that the next sweeps may bring together
CLOSE = 2.0  # loss above the best, in units of the noise variance, at which a move is followed to its end
N_TURNS = 3  # rounds over the factors of a new atom with nonnegative parts
NO_DIFFERENCE = 0.05  # difference of two losses, in units of the noise variance, that says nothing
SAME = 1e-5  # difference of two losses, relative to that without atoms, that counts as none

Move = Callable[[Problem, Columns, tuple[int, ...]], Iterator[Columns]]


def add_atom(problem: Problem, W: BooleanCP, modes: tuple[int, ...], rng: np.random.Generator) -> BooleanCP | None:
    """Return W with the atom of steepest descent of the loss, sized by a search along it; None if none descends."""
    slope = problem.descent(W)
    found = greedy_atom_search(slope, modes, rng, atom_rank=1, certify=False)
    if found is None:
        return None
    atom = columns_of(problem, BooleanCP(W.shape, (found.atom,), [1.0]))
    for _ in range(N_TURNS if problem.nonnegative else 0):
        atom = turned(slope, atom, problem.nonnegative)
    M = atom.to_decomposition()
    if M.n_atoms == 0:
        return None
    base, unit = problem.means(W), problem.means(replace(M, weights=np.ones(1)))
    first = found.descent / found.atom.n_ones  # the best for squares
    if problem.loss.is_rate:
        first = float(np.mean(problem.entries[0]) / max(np.mean(unit), 1e-300))  # of the mean of the data
    sizes = first * 4.0 ** np.arange(-6, 4)
    losses = [problem.total(base + size * unit) for size in sizes]
    best = int(np.argmin(losses))
    if not losses[best] < problem.total(base):
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


def columns_of(problem: Problem, W: BooleanCP) -> Columns:
    """Return the columns of a decomposition, whose signs are those that the problem asks for."""
    return oriented(to_columns(W), problem.nonnegative)


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
        candidates = [improve(problem, columns_of(problem, longer), N_SHORT)]
        relaxed = relax(problem, columns_of(problem, longer), N_SHORT)
        candidates.append(improve(problem, rounded(problem, relaxed, modes), N_SHORT))
        best = min(candidates, key=lambda each: each.loss).to_decomposition()
        if best.n_atoms <= W.n_atoms:
            return
        W = best
        yield W


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
    """Yield the best of several starts under the loss, one start more each time.

    The starts are the fit of squares `first`, the same relaxed and rounded, and random factors that are relaxed and
    rounded; for atoms of higher rank, the pursuit by the gradient of the loss. It ends when two agree and no bit is in
    doubt, or two of more starts agree. Of Huber's loss a start ends early that will not reach the best.
    """
    agree = max(SAME * abs(null_value(problem)), NO_DIFFERENCE * problem.variance) / SAME_LOSS  # for |X|^2
    is_over = is_enough(here, here.best is not None and is_certain(problem, here.result))
    while here.n_done < n_init and not is_over:
        start = make_start(problem, first, n_atoms, modes, rng, here.n_done)
        is_raced = here.best is not None and problem.loss.name == "huber"  # counts gain no time by that
        reached = improve(problem, start, aim=here.result.loss if is_raced else np.inf)
        here = here.compare(revived(problem, reached, modes, rng), agree)
        is_over = is_enough(here, here.n_agree >= 2 and is_certain(problem, here.result))
        yield here


def has_plenty(problem: Problem, n_atoms: int) -> bool:
    """Return True if the entries are so many that traps are few, or that a search for them would take too long."""
    values, n_free = problem.entries[0], n_atoms * sum(problem.data.shape)
    n_some = int(np.count_nonzero(values))
    n_visited = n_some if problem.loss.name == "poisson" else len(values)
    n_telling, many = (n_some, MANY_EVENTS) if problem.loss.is_rate else (len(values), MANY)
    return n_telling > many * n_free or n_visited * n_atoms > LONG


def is_enough(here: Search, is_sure: bool) -> bool:
    """Return True if two starts agree, of a few or where no bit is in doubt."""
    return here.n_agree >= 2 and (here.n_done >= MIN_DOUBTED or is_sure)


def is_certain(problem: Problem, W: Columns) -> bool:
    """Return True if flipping any bit raises the loss so much that none is in doubt."""
    V = W.to_decomposition()
    if V.n_atoms < W.n_atoms or W.is_tied:
        return False
    rises, variance = doubts(problem, V)
    return min((float(each.min()) for each in rises), default=np.inf) > CERTAIN * variance


def doubts(problem: Problem, W: BooleanCP) -> tuple[tuple[np.ndarray, ...], float]:
    """Return the rise of the deviance when a bit of an atom is flipped, and the unit of its noise."""
    if problem.loss.name != "squared":
        return flip_rises(problem, W), problem.variance
    trust = judge_bits(problem.data, W)
    return trust.rise or (), float(trust.sigma or 0.0) ** 2


def make_start(
    problem: Problem, first: BooleanCP, n_atoms: int, modes: tuple[int, ...], rng: np.random.Generator, count: int
) -> Columns:
    """Return the start number `count` of a search."""
    columns = columns_of(problem, first)
    if count == 0 and first.n_atoms == n_atoms:
        return columns
    if count == 1 and first.n_atoms == n_atoms:
        return rounded(problem, relax(problem, columns), modes)
    if columns.is_tied:
        estimates = list(pursue(problem, n_atoms, modes, rng))
        return columns_of(problem, estimates[-1]) if estimates else columns
    size = (max(float(np.mean(np.abs(problem.entries[0]))), 1e-12) / n_atoms) ** (1 / problem.data.ndim)
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
        W = improve(problem, columns_of(problem, longer))
        if W.is_dead().any() and int(W.is_dead().sum()) >= n_dead:
            break
    return W


def last_search(problem: Problem, found: Search, here: LastSearch, modes: tuple[int, ...]) -> Iterator[LastSearch]:
    """Yield the best columns after moves from the best end of a search, and from its first rival if bits are in doubt.

    Where none is, an atom may still be Boolean along the wrong mode. Many entries leave few such traps.
    """
    if has_plenty(problem, len(found.result.owner)):
        return
    is_sure = found.n_agree >= 2 and is_certain(problem, found.result)
    ends, moves = ((found.result,), [turns]) if is_sure else ((found.result, *found.rivals), [turns, flips])
    for end in ends[here.n_done : N_MOVED]:
        if end.loss > here.best.loss + NEAR * problem.variance:
            return
        best = min(here.best, moved(problem, end, modes, moves), key=lambda each: each.loss)
        here = LastSearch(best, here.n_done + 1)
        yield here


def moved(problem: Problem, W: Columns, modes: tuple[int, ...], moves: Sequence[Move]) -> Columns:
    """Return the columns after moves out of known traps, as long as the loss falls.

    Atoms become Boolean along a different mode, bits in doubt are flipped.
    """
    n_vain = 0
    while n_vain < len(moves) and not (W.is_tied or W.is_dead().any()):
        found = tried(problem, W, moves[0](problem, W, modes))
        n_vain, W, moves = 0 if found.loss < W.loss else n_vain + 1, found, [*moves[1:], moves[0]]
    return W


def tried(problem: Problem, W: Columns, candidates: Iterator[Columns]) -> Columns:
    """Return the first of the candidates that has a lower loss than W after sweeps, or W."""
    for candidate in candidates:
        if candidate.loss < W.loss + CLOSE * problem.variance:
            candidate = improve(problem, candidate)
            if candidate.loss < W.loss - NO_DIFFERENCE * problem.variance:
                return candidate
    return W


def flips(problem: Problem, W: Columns, modes: tuple[int, ...]) -> Iterator[Columns]:
    """Yield the columns with one of the bits most in doubt flipped, real parts following, then with the next one too.

    Two atoms may share a slice in two ways; one bit alone does not lead from one to the other.
    """
    aim = W.loss + CLOSE * problem.variance
    for bit in doubted(problem, W)[:N_DOUBTED]:
        V = followed(problem, flipped(W, *bit), aim)
        yield V
        if not V.is_dead().any():
            yield followed(problem, flipped(V, *next(each for each in doubted(problem, V) if each != bit)), aim)


def doubted(problem: Problem, W: Columns) -> list[tuple[int, int]]:
    """Return all bits as atom and index, those whose flip raises the loss least first."""
    rises, _ = doubts(problem, W.to_decomposition())
    places = [(k, i) for k, each in enumerate(rises) for i in range(len(each))]
    return [places[at] for at in np.argsort(np.concatenate(rises), kind="stable")]


def flipped(W: Columns, k: int, i: int) -> Columns:
    """Return the columns with one bit of one atom flipped."""
    factors, mode = list(W.matrices), W.boolean_mode[k]
    factors[mode] = factors[mode].copy()
    factors[mode][i, k] = 1 - factors[mode][i, k]
    return W.with_matrices(factors)


def followed(problem: Problem, W: Columns, aim: float) -> Columns:
    """Return the columns after sweeps of the real parts, until the loss is below an aim or will not get there."""
    before = np.inf
    for _ in range(N_FOLLOW):
        W, _ = sweep(problem, W, is_fixed=True)
        if W.loss < aim or W.loss - AHEAD * (before - W.loss) > aim:
            break
        before = W.loss
    return W


def turns(problem: Problem, W: Columns, modes: tuple[int, ...]) -> Iterator[Columns]:
    """Yield the columns with one atom made Boolean along a different mode: the two ways that begin best."""
    found = []
    for k, own in enumerate(W.boolean_mode):
        for mode in (n for n in modes if n != own):
            factors, boolean_mode = [A.copy() for A in W.matrices], W.boolean_mode.copy()
            z, _ = best_boolean(factors[mode][:, k])
            factors[own][:, k] *= factors[mode][z, k].mean()
            factors[mode][:, k], boolean_mode[k] = z, mode
            turned_to = oriented(Columns(tuple(factors), W.owner, boolean_mode), problem.nonnegative)
            found.append(improve(problem, turned_to, N_BEGUN))
    for each in sorted(found, key=lambda each: each.loss)[:2]:
        yield improve(problem, each, N_SHORT)
