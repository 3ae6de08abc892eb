"""Beyond the paper: relax, round, polish from several starts, so that all factors are corrected, not only weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boolcp.fit.noise import is_noise
from boolcp.fit.polish import PLENTY, is_behind, is_swept_in_a_pass, polish, polish_sweeps
from boolcp.fit.pursuit import Find, add_greedy
from boolcp.fit.relax import Sweeps, begin, last, pencil_start, random_factors, relax_core, relax_sweeps
from boolcp.fit.state import N_STARTS
from boolcp.program.flips import best_boolean
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.storage.protocol import Storage

# chosen by benchmarks/bench_refine.py and bench_completion.py
EXACT = 1e-10  # a loss below this part of |X|^2 is that of a noiseless tensor
N_TRIES = (3, 2)  # starts over observed entries by default, if they are not plenty and if they are
FEW = 10  # observed entries for each free parameter below which there are many traps
TRAPPED = 0.8  # ratio of the loss of a start to the lowest before it, below which ten more are worth it; on seeds 11-13
SAME_LOSS = 1e-7  # difference of two losses, relative to |X|^2, that counts as none
SMALL_GAIN = 0.05  # gain of a sweep, in units of the noise variance, that ends it; with gaps, for each number
RIVAL = 0.005  # a solution whose loss is higher by at most this part of it is a rival
ALIKE = 0.1  # share of bits in which two atoms of one mode may differ and still be the same
MAX_RIVALS = 5  # that are kept; not tuned
POLISHED = 1e-5  # relative fall of the loss over observed entries that ends the polish of one start; not tuned
RIDGES = ((1e-1, 10), (1e-2, 30), (0.0, 10))  # ridge and sweeps of a relaxation over observed entries


@dataclass(frozen=True)
class Search:
    """The state of a search from several starts: the best so far, how many starts reached its loss, and its rivals."""

    n_done: int = 0
    best: Columns | None = None
    n_agree: int = 0
    rivals: tuple[Columns, ...] = ()
    has_pencil: bool = False  # a start from slice pencils is among those that agree

    def compare(self, candidate: Columns, squared_norm: float, is_pencil: bool = False) -> "Search":
        """Return the search after one more start, which led to `candidate`.

        Starts from slice pencils are alike, whatever slices are drawn: they count once.
        """
        if self.best is None:
            return replace(self, n_done=self.n_done + 1, best=candidate, n_agree=1, has_pencil=is_pencil)
        is_lower = candidate.loss < self.best.loss - SAME_LOSS * squared_norm
        is_same = not is_lower and candidate.loss <= self.best.loss + SAME_LOSS * squared_norm
        best, other = (candidate, self.best) if is_lower else (self.best, candidate)
        n_agree = 1 if is_lower else self.n_agree + int(is_same and not (is_pencil and self.has_pencil))
        has_pencil = is_pencil if is_lower else self.has_pencil or (is_same and is_pencil)
        return Search(self.n_done + 1, best, n_agree, find_rivals(best, (other, *self.rivals)), has_pencil)

    @property
    def result(self) -> Columns:
        """Return the best columns; a search that has begun has some."""
        assert self.best is not None
        return self.best

    def is_agreed(self, n_starts: int) -> bool:
        """Return True if two independent starts agree; of many, one in five."""
        return self.n_agree >= max(2, n_starts // 5)


def find_rivals(best: Columns, others: Sequence[Columns]) -> tuple[Columns, ...]:
    """Return those of the others that have other atoms than the best, and nearly the same loss, the lowest first."""
    rivals: list[Columns] = []
    for other in sorted(others, key=lambda each: each.loss):
        if other.loss <= (1 + RIVAL) * best.loss and all(is_different(other, W) for W in (best, *rivals)):
            rivals.append(other)
    return tuple(rivals[:MAX_RIVALS])


def is_different(V: Columns, W: Columns) -> bool:
    """Return True if an atom of V has no counterpart in W: none of the same mode has nearly the same bits."""

    def distance(k: int, l: int) -> float:
        mode = V.boolean_mode[k]
        if mode != W.boolean_mode[l]:
            return 1.0
        z, other = (U.matrices[mode][:, np.argmax(U.owner == j)] for U, j in ((V, k), (W, l)))
        return float(np.mean(np.abs(z - other)))

    return any(min((distance(k, l) for l in range(W.n_atoms)), default=1.0) > ALIKE for k in range(V.n_atoms))


def search(
    small: Storage,
    W: Columns,
    n_atoms: int,
    modes: tuple[int, ...],
    find: Find,
    rng: np.random.Generator,
    here: Search,
    *,
    n_init: int = 10,
    max_iter: int = 50,
    n_relax: int = 200,
    is_repaired: bool = True,
    is_asked: bool = True,
) -> Iterator[Search]:
    """Yield the best of several starts of relax - round - polish on a complete tensor, after each start.

    The first start is W, the pursuit's estimate, and `here` is where to begin. At most `n_init` are run, fewer when
    two independent ones agree on the lowest loss, or one in five of these (of those so far if they were not asked for).
    `find` returns the atom of steepest descent from an estimate on `small`. If `is_repaired`, moves out of known traps
    are tried at the end, unless starts agree.
    """
    while here.n_done < n_init and not here.is_agreed(n_init if is_asked else here.n_done):
        start, is_pencil = make_start(small, W, n_atoms, modes, rng, here.n_done)
        relaxed = relax(small, start, max_iter=n_relax)
        candidate = polish(small, round_columns(relaxed, modes), max_iter=max_iter)
        here = here.compare(revive(small, candidate, find), small.squared_norm, is_pencil)
        if is_repaired and here.n_done == n_init and not here.is_agreed(here.n_done):
            here = replace(here, best=repair(small, here.result, modes, find))
        yield here


@dataclass(frozen=True)
class ObservedSearch:
    """The state of a search over the observed entries.

    `phase` is what `sweeps` do: "first" polishes the start, "least" relaxes the best for its lowest loss, 0, 1 and 2
    relax a candidate with the RIDGES in turn, "polish" polishes it, and "over" is the end.
    """

    search: Search
    phase: str
    sweeps: Sweeps
    least: float = float("inf")
    n_tries: int = 0

    @property
    def best(self) -> Columns:
        """Return the best columns so far, those of the present sweeps if there are none yet."""
        return self.sweeps.result if self.search.best is None else self.search.best


def search_observed(
    data: Storage,
    start: Columns,
    modes: tuple[int, ...],
    find: Find,
    rng: np.random.Generator,
    here: ObservedSearch | None,
    *,
    n_init: int | None,
    max_iter: int,
) -> Iterator[ObservedSearch]:
    """Yield the best columns over the observed entries, from `start` and from what it lacks, sweep by sweep.

    `start` is polished, and taken if entries are plenty and the Boolean constraint costs no more than noise would
    explain. Otherwise it is relaxed first, as another candidate. Unless two agree and the constraint is free, half of
    the atoms of the best are drawn again at random and everything is relaxed again, until four candidates agree. Where
    entries are few, each candidate that lowers the loss much allows for more.
    """
    here = ObservedSearch(Search(), "first", begin(start)) if here is None else here
    while here.phase != "over":
        for sweeps in sweeps_of(data, here, max_iter):
            is_over = sweeps.is_settled or (
                here.phase == "polish" and is_behind(here.sweeps, sweeps, max_iter, here.best.loss)
            )
            here = replace(here, sweeps=replace(sweeps, is_settled=is_over))
            yield here
            if is_over:
                break
        here = next_phase(data, start, modes, find, rng, here, n_init)
        yield here


def sweeps_of(data: Storage, here: ObservedSearch, max_iter: int) -> Iterator[Sweeps]:
    """Yield the sweeps of the present phase."""
    fall = small_fall(data, here.sweeps.W)
    if here.phase in ("first", "polish"):
        return polish_sweeps(data, here.sweeps, max_iter=max_iter, tol=max(POLISHED, fall))
    if here.phase == "least":
        return relax_sweeps(data, here.sweeps, max_iter=3, tol=0.0)
    ridge, n_sweeps = RIDGES[int(here.phase)]
    return relax_sweeps(data, here.sweeps, max_iter=n_sweeps, tol=1e-5, ridge=ridge, fall=fall)


def small_fall(data: Storage, W: Columns) -> float:
    """Return the fall of the loss, relative to it, that is not worth a sweep over observed entries.

    If all that is left were noise, free parameters would explain this part of it, but for the factor SMALL_GAIN.
    """
    return SMALL_GAIN * len(W.owner) * sum(data.shape) / data.n_observed


def next_phase(
    data: Storage,
    start: Columns,
    modes: tuple[int, ...],
    find: Find,
    rng: np.random.Generator,
    here: ObservedSearch,
    n_init: int | None,
) -> ObservedSearch:
    """Return the search at the beginning of its next phase."""
    reached = here.sweeps.result
    share = data.n_observed / (len(start.owner) * sum(data.shape))
    if here.phase == "first":
        best = revive(data, reached, find)
        is_over = best.loss <= EXACT * data.squared_norm or is_swept_in_a_pass(data, len(start.owner))
        phase = "over" if is_over else "least"
        return replace(here, search=Search(0, best, 1), phase=phase, sweeps=begin(best))
    if here.phase == "least":
        n_tries = N_TRIES[share >= PLENTY]
        if n_init is not None:
            n_tries = min(n_init, 2) if share >= PLENTY else n_init
        here = replace(here, least=reached.loss, n_tries=n_tries)
        is_enough = share >= PLENTY and is_free(data, here.best, here.least)
        return replace(here, phase="over") if is_enough else next_candidate(data, start, rng, here)
    if here.phase == str(len(RIDGES) - 1):
        here = replace(here, least=min(here.least, reached.loss))
        return replace(here, phase="polish", sweeps=begin(round_columns(reached, modes)))
    if here.phase == "polish":
        candidate, n_tries = revive(data, reached, find), here.n_tries
        if n_init is None and share < FEW and candidate.loss < TRAPPED * here.best.loss:
            n_tries = min(here.search.n_done + 1 + N_STARTS, 3 * N_STARTS)
        found = here.search.compare(candidate, 10 * data.squared_norm)
        return next_candidate(data, start, rng, replace(here, search=found, n_tries=n_tries))
    return replace(here, phase=str(int(here.phase) + 1), sweeps=begin(reached))


def next_candidate(data: Storage, start: Columns, rng: np.random.Generator, here: ObservedSearch) -> ObservedSearch:
    """Return the search with a new candidate to relax, or over if candidates agree or there were enough."""
    n_done, n_agree = here.search.n_done, here.search.n_agree
    is_settled = n_agree >= 4 or (n_done > 0 and n_agree >= 2 and is_free(data, here.best, here.least))
    if n_done >= here.n_tries or is_settled or (n_done > 1 and leaves_noise(data, here.best)):
        return replace(here, phase="over")
    return replace(here, phase="0", sweeps=begin(start if n_done == 0 else redraw(here.best, rng)))


def is_free(data: Storage, W: Columns, relaxed_loss: float) -> bool:
    """Return True if the Boolean constraint raises the loss by no more than noise does, three times over.

    Noise of variance s^2 lowers the loss of the relaxed fit by about s^2 for each entry that the constraint fixes.
    """
    n_bits = sum(data.shape[mode] for mode in W.boolean_mode)
    n_free = len(W.owner) * sum(data.shape)
    variance = relaxed_loss / max(data.n_observed - n_free, 1)
    return bool(W.loss - relaxed_loss <= 3 * n_bits * variance + EXACT * data.squared_norm)


def leaves_noise(data: Storage, W: Columns) -> bool:
    """Return True if what is left of data in memory is noise, of which further starts could only fit more."""
    return data.n_passes == 0 and not data.is_weighted and is_noise(data.residual(W.to_decomposition()))


def redraw(W: Columns, rng: np.random.Generator) -> Columns:
    """Return the columns with half of the atoms, at least one, replaced by random ones of the median size."""
    factors = [A / np.maximum(np.linalg.norm(A, axis=0), 1e-300) for A in W.matrices]
    sizes = np.prod([np.linalg.norm(A, axis=0) for A in W.matrices], axis=0)
    for k in rng.choice(W.n_atoms, max(1, W.n_atoms // 2), replace=False):
        own = np.flatnonzero(W.owner == k)
        for n, A in enumerate(factors):
            shared = W.boolean_mode[k] == n
            A[:, own] = rng.standard_normal((len(A), 1 if shared else len(own))) / np.sqrt(len(A))
        sizes[own] = np.median(sizes)
    factors[-1] = factors[-1] * sizes
    return W.with_matrices(factors)


def make_start(
    small: Storage, W: Columns, n_atoms: int, modes: tuple[int, ...], rng: np.random.Generator, count: int
) -> tuple[Columns, bool]:
    """Return the start number `count`, and whether slice pencils led to it.

    Starts are the pursuit's atoms, eigenvectors of slice pencils, and random factors.
    """
    if count == 0 and W.n_atoms == n_atoms:
        return W, False
    core = small.core
    owner, mode = (W.owner, W.boolean_mode) if W.n_atoms == n_atoms else (np.arange(n_atoms), np.zeros(n_atoms))
    if len(owner) > n_atoms:  # columns that share their bits: along which mode is a part of the start
        mode = rng.choice(modes, n_atoms)
    pencil = pencil_start(core, n_atoms, rng) if count % 3 == 1 and len(owner) == n_atoms else None
    factors = random_factors(core.shape, len(owner), rng) if pencil is None else pencil
    start = Columns(tuple(small.expand(factors)), owner, mode)
    return start.with_matrices([tied(A, *start.ties(n)) for n, A in enumerate(start.matrices)]), pencil is not None


def tied(A: np.ndarray, S: np.ndarray | None, boolean: np.ndarray) -> np.ndarray:
    """Return a factor whose tied columns are equal."""
    return A if S is None else A @ (S / S.sum(axis=0)) @ S.T


def relax(small: Storage, W: Columns, *, max_iter: int = 200, tol: float = 1e-8) -> Columns:
    """Return the columns reached from W without the Boolean constraint, in the coordinates of a compressed tensor.

    A sweep that gains much less than one entry of the noise that the compression left out is the last.
    """
    core = small.core
    left_out = small.squared_norm - core.squared_norm
    n_left_out = np.prod(small.shape, dtype=float) - np.prod(core.shape, dtype=float)
    if n_left_out > 0 and core.squared_norm > 0:
        tol = max(tol, SMALL_GAIN * left_out / n_left_out / core.squared_norm)
    found = relax_core(core, W.with_matrices(small.coordinates(W.matrices)), max_iter=max_iter, tol=tol)
    return found.with_matrices(small.expand(found.matrices), found.loss + left_out)


def round_columns(W: Columns, modes: tuple[int, ...]) -> Columns:
    """Return the columns with one factor of each atom replaced by the {0, a} column that fits it best.

    For each atom the allowed mode is taken whose column is closest in angle to a Boolean vector; columns that share
    their bits keep their mode.
    """
    factors, boolean_mode = [A.copy() for A in W.matrices], np.empty(W.n_atoms, dtype=int)
    for k in range(W.n_atoms):
        own, fits = np.flatnonzero(W.owner == k), []
        for mode in modes if len(own) == 1 else [int(W.boolean_mode[k])]:
            a = factors[mode][:, own[0]]
            z, _ = best_boolean(a)
            total = a[z].sum()
            fits.append((total**2 / z.sum() / max(a @ a, 1e-300), mode, z, total / z.sum()))
        _, mode, z, scale = max(fits, key=lambda fit: fit[0])
        boolean_mode[k] = mode
        factors[mode][:, own] = z[:, None]
        factors[1 if mode == 0 else 0][:, own] *= scale
    return Columns(tuple(factors), W.owner, boolean_mode)


def revive(data: Storage, W: Columns, find: Find) -> Columns:
    """Return the columns with each dead atom replaced by the atom of steepest descent, all polished again."""
    for _ in range(W.n_atoms):
        dead = W.is_dead()
        if not dead.any():
            break
        replaced = exchange(W, dead, find)
        if replaced is None:
            break
        replaced = polish(data, replaced)
        if replaced.loss >= W.loss:
            break
        W = replaced
    return W


def repair(small: Storage, W: Columns, modes: tuple[int, ...], find: Find, *, n_trials: int = 3) -> Columns:
    """Return the columns after moves out of known traps, each taken only if the loss falls.

    The atoms most alike (same mode and nearly the same or complementary bits), else the two that matter least, are
    removed together, found again one by one, and everything is relaxed, rounded and polished.
    """
    for _ in range(n_trials):
        out = np.zeros(W.n_atoms, dtype=bool)
        out[most_alike(W)] = True
        replaced = exchange(W, out, find)
        if replaced is None:
            break
        candidate = polish(small, round_columns(relax(small, replaced), modes))
        if candidate.loss >= W.loss - SAME_LOSS * small.squared_norm:
            break
        W = candidate
    return W


def most_alike(W: Columns) -> list[int]:
    """Return the indices of the two atoms with the most similar (or most complementary) columns."""
    unit = [A / np.maximum(np.linalg.norm(A, axis=0), 1e-300) for A in W.matrices]
    alike = np.sort([np.abs(A.T @ A) for A in unit], axis=0)[1:].sum(axis=0)  # all modes but the least similar
    alike[W.owner[:, None] == W.owner] = -1
    return [int(W.owner[i]) for i in np.unravel_index(np.argmax(alike), alike.shape)]


def exchange(W: Columns, out: np.ndarray, find: Find) -> Columns | None:
    """Return the columns with the atoms `out` replaced by greedy ones, or None if nothing descends."""
    longer = add_greedy(W.to_decomposition(keep=~out), int(out.sum()), find)
    return None if longer is None else to_columns(longer)


def refine_once(small: Storage, W: BooleanCP, modes: tuple[int, ...], find: Find, rng: np.random.Generator) -> Columns:
    """Return the columns that one short start of relax - round - polish leads to from W."""
    limits: dict[str, Any] = {"n_init": 1, "max_iter": 10, "n_relax": 30, "is_repaired": False}
    steps = search(small, to_columns(W), W.n_atoms, modes, find, rng, Search(), **limits)
    return last(steps, Search()).result
