"""From a storage to a decomposition: the plan of stages for the given parameters, and the loop that runs them.

A stage is a generator: it yields its value after each step, and restarted with that value it continues as
if it had never been interrupted. Stages know nothing of checkpoints and callbacks: `run` shows each value to a Watch.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from boolcp.fit import certify, impute, in_passes, losses
from boolcp.fit.atom_search import greedy_atom_search
from boolcp.fit.background import without
from boolcp.fit.beside import lowest, settled, simplify_beside, with_background
from boolcp.fit.blocks import block_pursuit
from boolcp.fit.finish import (
    by_size,
    fit_weights,
    have_same_bits,
    not_worse,
    on_full_data,
    settled_blocks,
    shortened,
    with_data,
)
from boolcp.fit.margins import judge_bits
from boolcp.fit.noise import noise_level, noise_variance
from boolcp.fit.polish import polish, polish_sweeps
from boolcp.fit.pursuit import Find, add_greedy, boolean_matching_pursuit, pursue
from boolcp.fit.ranks import backfit_ranks, is_noise, is_rank_one, risk_of_columns, takes_blocks, with_bits
from boolcp.fit.relax import begin, last
from boolcp.fit.simplify import simplify
from boolcp.fit.starts import EXACT, Search, refine_once, revive, search, search_observed
from boolcp.fit.state import Pursuit, Round, Settings, State
from boolcp.fit.uncertain import LastSearch, exchange_atoms, last_search
from boolcp.fit.watch import Progress, Stop, Watch, progress
from boolcp.memory import check_memory, float_bytes, read_memory
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.storage import complete_tensor
from boolcp.storage.lazy import SMALL, check_fit, look_at, make_source
from boolcp.storage.long import LONG, is_long
from boolcp.storage.protocol import Storage
from boolcp.storage.tucker import augmented, is_compressible

AUTO = "auto"
EXTRA_RANK = 10  # directions kept in each mode of a core beyond the number of columns; by bench_refine.py
N_AUGMENTED = 3  # starts on an augmented core at most
NOISELESS = 1e-5  # a loss below this part of |X|^2 leaves nothing to the noise; not tuned
N_RIDGE = 20  # largest number of sweeps with a ridge over the observed entries; not tuned
RIDGE_SETTLED = 1e-4  # relative fall of the loss that ends them; not tuned
N_ROUNDS = 2  # of a background and atoms beside it; not tuned
N_RELAX = (200, 60)  # sweeps of a relaxation at most, for rank one (by bench_refine.py) and larger ranks (not tuned)


@dataclass(frozen=True)
class Job:
    """The input of a fit: the data, the modes that may be Boolean, the source of randomness and the parameters."""

    data: Storage
    modes: tuple[int, ...]
    rng: np.random.Generator
    settings: Settings

    @property
    def tol(self) -> float:
        """Return |X - W| / |X| at which nothing is left: a loss from inner products is rounding below it."""
        return max(self.settings.tol, float(np.sqrt(10 * np.finfo(self.data.dtype).eps)))

    @property
    def atom_rank(self) -> int:
        """Return the number of columns of each atom."""
        return self.settings.n_columns // self.settings.n_atoms

    def find_on(self, tensor: Storage) -> Find:
        """Return the search for the atom of steepest descent from an estimate of a tensor."""

        def find(W: BooleanCP) -> Any:
            residual = tensor.inner_residual(W)
            return greedy_atom_search(residual, self.modes, self.rng, atom_rank=self.atom_rank, certify=False)

        return find


Step = tuple[Any, Progress | None]
Rounds = tuple[Round, ...]


@dataclass(frozen=True)
class Stage:
    """One stage of a plan. A stage that only improves the result is skipped once a fit is stopped."""

    name: str
    steps: Callable[[Job, State], Iterator[Step]]
    improves: bool = True


def make_plan(data: Storage, settings: Settings) -> tuple[Stage, ...]:
    """Return the stages for the given parameters."""
    result = Stage("result", finish, improves=False)
    if not settings.is_squared:
        return Stage("pursuit", squares_stage), Stage("loss", loss_stage), Stage("result", finish_loss, improves=False)
    if takes_background(data, settings):
        *base, _ = make_plan(data, atoms_alone(settings))
        plain = Stage("beside", beside_stage), Stage("ranks", ranks_stage), Stage("blocks", rival_stage)
        return *base, Stage("noise", noise_stage), *plain, Stage("simple", plain_stage), result
    core, full = Stage("core", core_stage, improves=False), Stage("full", full_stage, improves=False)
    if not settings.refine:
        published = Stage("pursuit", published_stage)
        return (core, published, full, result) if data.n_passes else (published, result)
    if settings.atom_rank is None or data.ndim == 2:
        blocks = Stage("pursuit", block_stage)
        return (core, blocks, full, result) if data.n_passes else (blocks, result)
    takes_any = takes_blocks(data) or in_passes.has_room_for_blocks(data, settings)
    is_auto, noise = settings.atom_rank == "auto" and takes_any, Stage("noise", noise_stage)
    pursuit = Stage("pursuit", pursuit_stage)
    starts = Stage("start", start_stage), Stage("search", search_stage)
    if data.is_complete:
        ranks: tuple[Stage, ...]
        ranks = noise, Stage("ranks", ranks_stage), Stage("blocks", competing_stage), Stage("simple", simple_stage)
        refined = core, pursuit, *starts, Stage("polish", polish_stage), Stage("last", last_stage)
        ranks = (*ranks, full) if data.n_passes else ranks
        return *refined, *(ranks if is_auto else ()), result
    path = Stage("path", path_stage, improves=False)
    stages: tuple[Stage, ...] = (
        core,
        pursuit,
        path,
        *starts,
        Stage("observed", observed_stage),
        Stage("fewer", fewer_stage),
        Stage("last", last_stage),
        Stage("ridge", ridge_stage),
    )
    if is_auto:
        stages += noise, Stage("filled", filled_stage), Stage("settle", settle_stage)
    return *stages, result


def run(job: Job, plan: tuple[Stage, ...], state: State, watch: Watch) -> tuple[Pursuit, BooleanCP]:
    """Run the stages of a plan from a state, showing each step to `watch`; return the pursuit and the decomposition."""
    while state.stage < len(plan):
        stage, here = plan[state.stage], state.here
        if not (stage.improves and state.is_stopped):
            try:
                for here, seen in stage.steps(job, state):
                    state = watch.step(replace(state, here=here), seen)
                    if state.is_stopped or (state.is_cut and stage.name == "pursuit"):
                        break
            except Stop:  # the step is abandoned; all before it counts
                if "pursuit" not in state.done and here is None:
                    raise  # there is nothing to keep yet
                is_pursuit = stage.name == "pursuit" and not state.is_cut
                state = replace(state, is_cut=True, is_stopped=not is_pursuit)
                if not stage.improves:
                    continue  # the result needs this stage: again
        state = replace(state, stage=state.stage + 1, here=None, done=state.done | {stage.name: here})
        if state.stage == len(plan):
            state = replace(state, done={"result": here})  # nothing else is needed any more
        state = watch.stage(state)
    pursuit, W = state.done["result"]
    return replace(pursuit, stop_reason="stopped", memory=None) if state.is_cut else replace(pursuit, memory=None), W


# the stages


def core_stage(job: Job, state: State) -> Iterator[Step]:
    """Compress the tensor, zeros filled in where entries are missing; None if that is not worth it."""
    small = complete_tensor(job.data, job.settings.n_columns + EXTRA_RANK, job.settings.compression)
    yield (small if small.is_compressed else None), None


def small_of(job: Job, state: State) -> Storage:
    """Return the complete tensor on which the search is done."""
    small = state.done["core"]
    return complete_tensor(job.data, 0, False) if small is None else small


def searched(job: Job, state: State) -> Storage:
    """Return the tensor on which blocks and Algorithm 1 are run: the data, or their core if they are read in passes."""
    return small_of(job, state) if job.data.n_passes else job.data


def begun(state: State, earlier: str = "earlier") -> Pursuit | None:
    """Return the pursuit to continue: this fit's, or that of the fit before it (`warm_start`)."""
    return state.done.get(earlier) if state.here is None else state.here


def n_wanted(job: Job, state: State) -> int:
    """Return the number of atoms of blocks: that asked for, or that of a pursuit which was ended early."""
    return max(state.done["pursuit"].n_atoms, 1) if state.is_cut else job.settings.n_atoms


def told(job: Job, tensor: Storage, pursuits: Iterator[Pursuit], name: str = "pursuit") -> Iterator[Step]:
    """Yield each pursuit, with its progress if it has a new atom, and why the last one ended."""
    n_atoms, n_before = job.settings.n_atoms, None
    for pursuit in pursuits:
        n_found = len(pursuit.history)
        if n_found >= n_atoms:
            pursuit = replace(pursuit, stop_reason="n_atoms")
        seen = None
        if n_before is not None and n_found > n_before:
            seen = progress(name, n_found, n_atoms, 2 * pursuit.history[-1].loss, tensor.squared_norm)
        n_before = n_found
        yield pursuit, seen


def published_stage(job: Job, state: State) -> Iterator[Step]:
    """Find atoms on the data itself, the weights corrected after each: Algorithm 1 as printed."""
    s, data = job.settings, searched(job, state)
    options: dict[str, Any] = {
        "atom_rank": 1 if s.atom_rank == "auto" else s.atom_rank,
        "criterion": s.criterion,
        "certify": s.certify and data is job.data,
    }
    steps = boolean_matching_pursuit(data, s.n_atoms, job.modes, job.rng, start=begun(state), tol=job.tol, **options)
    return told(job, data, steps)


def block_stage(job: Job, state: State) -> Iterator[Step]:
    """Find atoms with dense blocks on the data itself, all blocks and bits corrected after each.

    The block of a matrix is one column, and of rank one. With missing entries the sweeps over columns serve it.
    """
    s, data = job.settings, searched(job, state)
    options: dict[str, Any] = {"start": begun(state), "tol": job.tol, "certify": s.certify and data is job.data}
    if data.ndim == 2 and not data.is_complete:
        steps = boolean_matching_pursuit(data, s.n_atoms, job.modes, job.rng, polishes=True, **options)
    else:
        options |= {"atom_rank": None, "criterion": s.criterion}
        steps = block_pursuit(data, s.n_atoms, job.modes, job.rng, **options)
    return told(job, data, steps)


def pursuit_stage(job: Job, state: State) -> Iterator[Step]:
    """Find atoms on the small tensor: of rank one as Algorithm 1 does, of a larger rank with all factors corrected."""
    s, small = job.settings, small_of(job, state)
    options: dict[str, Any] = {
        "start": begun(state),
        "tol": job.tol,
        "criterion": s.criterion,
        "certify": s.certify and small is job.data,
        "effort": "default" if small is job.data else "quick",
    }
    if job.atom_rank > 1:
        options |= {"atom_rank": job.atom_rank, "polishes": True}
    return told(job, small, boolean_matching_pursuit(small, s.n_atoms, job.modes, job.rng, **options))


def path_stage(job: Job, state: State) -> Iterator[Step]:
    """Judge the estimates of the pursuit on the full data."""
    yield on_full_data(state.done["pursuit"], job.data, job.atom_rank, is_certified=False), None


def search_stage(job: Job, state: State) -> Iterator[Step]:
    """Relax, round and polish from several starts on the small tensor."""
    small, start = small_of(job, state), state.done["start"]
    if start is None:
        return
    first, s = Search() if state.here is None else state.here, job.settings
    limits: dict[str, Any] = {"n_init": s.n_init, "max_iter": s.max_iter, "n_relax": N_RELAX[job.atom_rank > 1]}
    W = to_columns(start)
    for here in search(small, W, W.n_atoms, job.modes, job.find_on(small), job.rng, first, **limits):
        yield here, progress("search", here.n_done, s.n_init, here.result.loss, small.squared_norm)


def start_stage(job: Job, state: State) -> Iterator[Step]:
    """Choose the estimate to refine: the pursuit's, or an earlier fit with atoms added; none if all is explained."""
    pursuit = state.done.get("path") or state.done["pursuit"]
    is_exact = state.done["core"] is None and job.data.is_complete and pursuit.stop_reason == "explained"
    if pursuit.n_atoms and not is_exact:
        is_warm = "fitted" in state.done
        yield (extended(job, state, pursuit.n_atoms) if is_warm else pursuit.W), None


def extended(job: Job, state: State, n_atoms: int) -> BooleanCP:
    """Return the earlier fit with greedy atoms added, as long as they descend, and the weights that fit best."""
    find, W = job.find_on(small_of(job, state)), state.done["fitted"]
    for _ in range(n_atoms - W.n_atoms):
        longer = add_greedy(W, 1, find)
        if longer is None:
            break
        W = longer
    return fit_weights(job.data, W)


def polish_stage(job: Job, state: State) -> Iterator[Step]:
    """Polish the best start on the full data, and replace atoms that died."""
    found, limit, data = state.done["search"], job.settings.max_iter, job.data
    if found is None:
        return
    here = first = begin(found.best) if state.here is None else state.here
    for here in polish_sweeps(data, first, max_iter=limit):
        yield here, progress("polish", here.n_done, limit, here.W.loss, data.squared_norm)
    if here.result.is_dead().any():
        yield replace(here, W=revive(data, here.result, job.find_on(small_of(job, state)))), None


def observed_stage(job: Job, state: State) -> Iterator[Step]:
    """Search further over the observed entries, from the best start."""
    found, data, s = state.done["search"], job.data, job.settings
    if found is None:
        return
    steps = search_observed(
        data, found.best, job.modes, job.find_on(data), job.rng, state.here, n_init=s.n_init, max_iter=s.max_iter
    )
    for n_sweeps, here in enumerate(steps, 1):
        yield here, progress("observed", n_sweeps, None, here.best.loss, data.squared_norm)


def fewer_stage(job: Job, state: State) -> Iterator[Step]:
    """Look for fewer atoms that explain the observed entries, if all do: more would be arbitrary at missing entries.

    Yields the number of atoms tried and, if they suffice, their columns.
    """
    data, s, all_of_it = job.data, job.settings, state.done["observed"]
    if all_of_it is None or all_of_it.best.loss > NOISELESS * data.squared_norm:
        return
    exact = max(EXACT * data.squared_norm, all_of_it.best.loss)
    small, first = small_of(job, state), 1 if state.here is None else state.here[0] + 1
    limits: dict[str, Any] = {"n_init": s.n_init, "max_iter": s.max_iter}
    is_enough = state.here is not None and state.here[1] is not None
    for W in state.done["path"].path[first:-1] if not is_enough else ():
        starts = search(small, to_columns(W), W.n_atoms, job.modes, job.find_on(small), job.rng, Search(), **limits)
        begun_with = last(starts, Search()).result
        *_, found = search_observed(data, begun_with, job.modes, job.find_on(data), job.rng, None, **limits)
        best = found.best
        yield (W.n_atoms, best if best.loss <= exact else None), None
        if best.loss <= exact:
            return


def last_stage(job: Job, state: State) -> Iterator[Step]:
    """Search further where bits are uncertain."""
    found, data = reached(job, state), job.data
    if found is None:
        return
    if state.here is None and "path" not in state.done and state.done["core"] is not None and job.atom_rank == 1:
        ask_for_end(data, by_size(found.to_decomposition()), state.done["pursuit"])
    first, limit = LastSearch(found) if state.here is None else state.here, job.settings.max_iter
    for here in last_search(data, first, job.modes, partial(augmented_search, job, state), max_iter=limit):
        seen = progress("last", here.n_done, None, here.best.loss, data.squared_norm)
        yield here, None if here.is_over else seen


def augmented_search(job: Job, state: State, W: Columns) -> Columns:
    """Return the columns that a short search on a core augmented by contractions with ones leads to, W if none.

    For data that are read in passes the search ends with exchanges of atoms on this core.
    """
    small, n_atoms = state.done["core"], W.n_atoms
    if small is None:
        return W
    large = augmented(complete_tensor(job.data, 0, False), small, n_atoms, job.modes)
    *_, pursuit = boolean_matching_pursuit(large, n_atoms, job.modes, job.rng, tol=job.tol, certify=False)
    if pursuit.n_atoms < n_atoms:
        return W
    limits: dict[str, Any] = {"n_init": min(job.settings.n_init, N_AUGMENTED), "max_iter": job.settings.max_iter}
    start, find = to_columns(pursuit.W), job.find_on(large)
    found = last(search(large, start, n_atoms, job.modes, find, job.rng, Search(), **limits), Search()).result
    return exchange_atoms(large, found, job.modes, max_iter=job.settings.max_iter) if job.data.n_passes else found


def ridge_stage(job: Job, state: State) -> Iterator[Step]:
    """Polish the best columns with a ridge by the noise and the energy of each, so that no fill explodes."""
    found, data, s = reached(job, state), job.data, job.settings
    is_full = data.n_observed == np.prod(data.shape, dtype=float)  # weights alone: there is nothing to fill
    if found is None or is_full or found.loss <= EXACT * data.squared_norm:
        return
    best = not_worse(data, found, to_improve(state, state.done["path"]), max_iter=s.max_iter)
    variance = noise_variance(data, best) if s.sigma is None else s.sigma**2
    first = begin(best) if state.here is None else state.here
    for here in polish_sweeps(data, first, max_iter=min(s.max_iter, N_RIDGE), tol=RIDGE_SETTLED, variance=variance):
        yield here, progress("ridge", here.n_done, None, here.W.loss, data.squared_norm)


def noise_stage(job: Job, state: State) -> Iterator[Step]:
    """Yield the noise level if the refined atoms of rank one leave more than noise, and blocks are worth a trial."""
    W, data, sigma = base_atoms(job, state), searched(job, state), job.settings.sigma
    residual = data.residual(by_size(W))  # in this order its products are known
    left = in_passes.left_over(data, W) if data.is_compressed else residual.squared_norm
    if left <= NOISELESS * data.squared_norm:
        return
    is_rest = partial(in_passes.leaves_noise, data, W) if data.is_compressed else partial(is_noise, residual)
    if not isinstance(job.settings.background, int) and is_rest():
        return
    if sigma is None:
        sigma = noise_level(data) if data.is_complete else impute.noise_of_filled(data, impute.fill(data, W))
    yield float(sigma), None


def base_atoms(job: Job, state: State) -> BooleanCP:
    """Return the atoms of the stages up to the last search."""
    columns = reached(job, state) if "core" in state.done else None
    return state.done["pursuit"].W if columns is None else columns.to_decomposition()


def ranks_stage(job: Job, state: State) -> Iterator[Step]:
    """Back-fit the refined atoms of rank one, and let the noise choose their ranks."""
    sigma, found = state.done["noise"], reached(job, state) if "core" in state.done else None
    if sigma is not None and found is not None and job.settings.atom_rank == AUTO and job.data.is_complete:
        data = searched(job, state)
        yield backfit_ranks(data, found.to_decomposition(), job.modes, job.rng, sigma, tol=job.tol), None


def competing_stage(job: Job, state: State) -> Iterator[Step]:
    """Find blocks on the data itself, which compete with the atoms of rank one."""
    s, sigma = job.settings, state.done["noise"]
    if sigma is None:
        return
    options: dict[str, Any] = {"tol": job.tol, "certify": False, "criterion": s.criterion}
    options |= {"atom_rank": "auto", "sigma": sigma, "start": begun(state, "earlier blocks")}
    data = searched(job, state)
    yield from told(job, data, block_pursuit(data, n_wanted(job, state), job.modes, job.rng, **options), "blocks")


def simple_stage(job: Job, state: State) -> Iterator[Step]:
    """Simplify the blocks, if they are better than atoms of rank one: no repeated bits, no canceling pairs."""
    sigma, solution = state.done["noise"], reached(job, state)
    better = None if sigma is None or solution is None else lower_risk(job.data, state.done, solution)
    if better is not None:
        yield simplify(searched(job, state), better[1], job.modes, job.rng, sigma, tol=job.tol), None


def full_stage(job: Job, state: State) -> Iterator[Step]:
    """Give atoms that were found on the core of data that are read in passes the real parts of the full data."""
    s, data, done = job.settings, job.data, state.done
    pursuit = done["pursuit"]
    if not s.refine:
        found = in_passes.rebuilt(data, pursuit, s, job.rng)
        yield (found, found.W), None
        return
    sigma, V = done.get("noise"), pursuit.W
    if "noise" in done:
        solution = reached(job, state)
        better = None if sigma is None or solution is None else lower_risk(data, done, solution)
        if better is None:
            return
        pursuit, V = better if done["simple"] is None else (better[0], done["simple"])
    if V.n_atoms:
        V = in_passes.refitted(data, V, job.modes, job.rng, s, sigma, job.tol)
        V = by_size(V) if "noise" in done else V
        pursuit = in_passes.ended_with(pursuit, V, data.squared_norm)
        if s.certify and not V.is_block:
            V = certify.certify(data, V, certify.left_out_weights(V))
    yield (pursuit, V), None


def filled_stage(job: Job, state: State) -> Iterator[Step]:
    """Find blocks on the tensor completed by the refined atoms of rank one."""
    if state.done["noise"] is None:
        return
    (full, sigma), s = filled(job, state), job.settings
    options: dict[str, Any] = {"tol": job.tol, "certify": False, "criterion": s.criterion}
    options |= {"atom_rank": "auto", "sigma": sigma, "start": begun(state, "earlier blocks")}
    yield from told(job, full, block_pursuit(full, n_wanted(job, state), job.modes, job.rng, **options), "blocks")


def filled(job: Job, state: State) -> tuple[Storage, float]:
    """Return the tensor completed by the refined atoms of rank one, and its noise level."""
    columns = reached(job, state)
    full = impute.fill(job.data, BooleanCP(job.data.shape) if columns is None else columns.to_decomposition())
    sigma = job.settings.sigma
    return full, impute.noise_of_filled(job.data, full) if sigma is None else float(sigma)


def settle_stage(job: Job, state: State) -> Iterator[Step]:
    """Fit the blocks of each estimate to the observed entries; yield the estimates with their losses."""
    pursuit, sigma = state.done["filled"], state.done["noise"]
    if pursuit is None:
        return
    here = () if state.here is None else state.here
    for W in pursuit.path[1 + len(here) :]:
        here = (*here, impute.settle(job.data, W, job.modes, job.rng, sigma, tol=job.tol))
        yield here, progress("settle", len(here), len(pursuit.history), here[-1][1], job.data.squared_norm)


def takes_background(data: Storage, settings: Settings) -> bool:
    """Return True if a background may be fitted: by squares on data in memory.

    "auto" asks for refinement, and for more than two modes: a background of low rank would leave nothing of a matrix.
    """
    is_asked = settings.background is not None and (settings.refine or settings.background != "auto")
    is_asked &= settings.is_squared and (data.ndim > 2 or settings.background != "auto")
    return is_asked and takes_blocks(data)


def atoms_alone(settings: Settings) -> Settings:
    """Return the settings of the atoms beside a background, which have rank one by default."""
    rank = 1 if settings.atom_rank == "auto" else settings.atom_rank
    return replace(settings, background=None, atom_rank=rank)


def beside_stage(job: Job, state: State) -> Iterator[Step]:
    """Fit a background beside the atoms, if these leave more than noise, and both in turn: yields all rounds.

    A round is the atoms, found anew on the data without the background of the round before, and their own background.
    """
    data, s, sigma = job.data, job.settings, state.done["noise"]
    if sigma is None:
        return
    kind, n_rounds = s.background or AUTO, N_ROUNDS if data.is_complete else 1
    rounds: Rounds = (with_background(data, base_atoms(job, state), kind, sigma),) if state.here is None else state.here
    settings = replace(atoms_alone(s), n_atoms=n_wanted(job, state), certify=False)
    while rounds[-1].background is not None and len(rounds) <= n_rounds:
        if len(rounds) > 1 and have_same_bits(rounds[-1].W, rounds[-2].W):
            return
        rest = without(data, rounds[-1].background)
        W = run(replace(job, data=rest, settings=settings), make_plan(rest, settings), State(), Watch(job.rng))[1]
        rounds = (*rounds, with_background(data, W, kind, sigma, before=rounds[-1].background))
        yield rounds, progress("background", len(rounds) - 1, n_rounds, rounds[-1].loss, data.squared_norm)


def rival_stage(job: Job, state: State) -> Iterator[Step]:
    """Find blocks, if ranks that were back-fitted to the data beside a background are better than rank one."""
    if state.done["ranks"] is not None and ranked_round(job, state.done).risk < best_round(job, state.done).risk:
        yield from competing_stage(job, state)


def ranked_round(job: Job, done: dict[str, Any]) -> Round:
    """Return the atoms whose ranks were back-fitted, with the background that they leave."""
    risk, loss, W = done["ranks"]
    return round_of_blocks(job, W, risk - loss, done["noise"])


def round_of_blocks(job: Job, W: BooleanCP, penalty: float, sigma: float) -> Round:
    """Return blocks with the background that they leave; `penalty` is 2 sigma^2 (degrees of freedom)."""
    return with_background(job.data, W, job.settings.background or AUTO, sigma, penalty / (2 * sigma**2))


def plain_stage(job: Job, state: State) -> Iterator[Step]:
    """Choose what has the lowest risk, each with its background, and simplify it."""
    done, data, s = state.done, job.data, job.settings
    if not done.get("beside"):
        return
    best, kind = best_round(job, done), s.background or AUTO
    if s.atom_rank == AUTO:
        if not is_rank_one(best.W):
            rest = without(data, best.background)
            W = simplify(rest, best.W, job.modes, job.rng, best.sigma, tol=job.tol)
            best = with_background(data, W, kind, best.sigma)
        best = simplify_beside(data, best, n_wanted(job, state), job.modes, kind, job.rng)
    yield best, None


def best_round(job: Job, done: dict[str, Any]) -> Round:
    """Return the round with the lowest risk, of rank one or of those that compete with it."""
    rivals: Rounds = ()
    if done.get("ranks") is not None:
        rivals = (ranked_round(job, done),)
    blocks = done.get("blocks")
    if blocks is not None and blocks.n_atoms:
        loss = job.data.residual(blocks.W).squared_norm
        rivals += (round_of_blocks(job, blocks.W, blocks.memory[0][-1] - loss, done["noise"]),)
    return lowest(job.data, done["beside"], rivals)


def squares_stage(job: Job, state: State) -> Iterator[Step]:
    """Fit squares without constraints, far outliers cut off for Huber's loss: where a loss begins."""
    s = job.settings
    rank = 1 if s.atom_rank == "auto" else s.atom_rank
    inner = replace(s, loss="squared", nonnegative=(), atom_rank=rank, background=None, certify=False)
    data = losses.without_artifacts(job.data, s.loss)
    found = run(replace(job, data=data, settings=inner), make_plan(data, inner), State(), Watch(job.rng))
    yield found, progress("squares", 1, 1, data.residual(found[1]).squared_norm, data.squared_norm)


def loss_problem(job: Job, state: State) -> losses.Problem:
    """Return the data with the loss that the parameters ask for, its scale that of the fit of squares."""
    indices, values, _ = job.data.entries()
    loss = losses.make_loss(job.settings.loss, values, state.done["pursuit"][1].at(indices))
    return losses.Problem(job.data, loss, job.settings.nonnegative)


def loss_stage(job: Job, state: State) -> Iterator[Step]:
    """Search under the loss from the fit of squares and other starts."""
    first, s = state.done["pursuit"][1], job.settings
    if first.n_atoms == 0:
        return
    problem, begun_with = loss_problem(job, state), Search() if state.here is None else state.here
    null = losses.null_value(problem)
    for here in losses.search(problem, first, s.n_atoms, job.modes, job.rng, begun_with, n_init=s.n_init):
        yield here, progress("loss", here.n_done, s.n_init, losses.deviance_of(problem, here.result), null)


def finish_loss(job: Job, state: State) -> Iterator[Step]:
    """Yield the pursuit of squares and the decomposition under the loss, with shares and what its bits rest on."""
    (pursuit, W), found = state.done["pursuit"], state.done.get("loss")
    problem = loss_problem(job, state)
    if found is not None and found.best is not None:
        W = with_data(by_size(found.result.to_decomposition()), job.data)
    else:
        W = with_data(W, job.data) if W.n_atoms else W
    n_agree, n_rivals = (found.n_agree, len(found.rivals)) if found is not None and found.n_done > 1 else (0, 0)
    if job.settings.loss != "squared" and W.n_atoms:
        W = losses.judged(problem, W)
        trust = losses.judge_bits(problem, W)
    else:
        trust = judge_bits(job.data, W)
        if job.settings.certify and W.n_atoms:
            W = certify.certify(job.data, W, certify.left_out_weights(W))
    yield (pursuit, replace(W, trust=replace(trust, n_agree=n_agree, n_rivals=n_rivals))), None


def finish(job: Job, state: State) -> Iterator[Step]:
    """Yield the pursuit and the decomposition of all stages, with the evidence for its bits."""
    if state.done.get("beside"):
        yield beside(job, state), None
        return
    pursuit, W = outcome(job, state)
    n_agree, n_rivals = agreement(state, W)
    trust = replace(judge_bits(job.data, W), n_agree=n_agree, n_rivals=n_rivals)
    yield (pursuit, replace(W, trust=trust)), None


def beside(job: Job, state: State) -> tuple[Pursuit, BooleanCP]:
    """Return the pursuit, and the atoms and background of the round with the lowest risk."""
    done, data = state.done, job.data
    pursuit = done.get("path") or done["pursuit"]
    if "core" in done and "path" not in done and done["core"] is not None:
        if job.atom_rank == 1:  # as ever, so that a fit that was resumed rounds alike
            ask_for_end(data, by_size(base_atoms(job, state)), pursuit)
        pursuit = on_full_data(pursuit, data, job.atom_rank, is_certified=False)
    best = (done.get("simple") or best_round(job, done)).W
    rest = without(data, best.background)
    W = by_size(with_data(replace(best, data_gram=None), rest))
    if job.settings.certify:
        W = certify.certify(rest, W, certify.left_out_weights(W))
    n_agree, n_rivals = agreement(state, W) if best.trust is None else (best.trust.n_agree, best.trust.n_rivals)
    trust = replace(judge_bits(rest, W), n_agree=n_agree, n_rivals=n_rivals)
    return pursuit, replace(W, data_norm2=data.squared_norm, trust=trust)


def agreement(state: State, W: BooleanCP) -> tuple[int, int]:
    """Return how many starts of the search agree on its best solution, and how many rivals it has; 0 if unknown."""
    found = state.done.get("search")
    if state.done.get("observed") is not None:
        found = state.done["observed"].search
    if found is None or W.is_block or found.n_done < 2:
        return 0, 0
    return found.n_agree, len(found.rivals)


def outcome(job: Job, state: State) -> tuple[Pursuit, BooleanCP]:
    """Return the pursuit and the decomposition of all stages."""
    done, data, s = state.done, job.data, job.settings
    if done.get("full") is not None:
        return done["full"]
    if "core" not in done:
        pursuit = done["pursuit"]
        return pursuit, pursuit.W
    solution, pursuit = reached(job, state), done.get("path") or done["pursuit"]
    if done.get("noise") is not None and solution is not None and (better := lower_risk(data, done, solution)):
        V = by_size(better[1] if done.get("simple") is None else done["simple"])
        return better[0], certify.certify(data, V, certify.left_out_weights(V)) if s.certify else V
    if solution is not None and solution.n_atoms < pursuit.n_atoms and done.get("fewer") is not None:
        pursuit = shortened(pursuit, solution.n_atoms)
    W = None if solution is None else by_size(solution.to_decomposition())
    if "path" not in done and done["core"] is not None:  # with the result, so that they share a pass over the data
        if W is not None and job.atom_rank == 1:
            ask_for_end(data, W, pursuit)
        pursuit = on_full_data(pursuit, data, job.atom_rank, s.certify and not state.is_stopped)
    if W is not None and solution is not None:
        is_judged = done.get("ridge") is not None
        best = solution if is_judged else not_worse(data, solution, to_improve(state, pursuit), max_iter=s.max_iter)
        W = with_data(W if best is solution else by_size(best.to_decomposition()), data)
        if s.certify:
            W = certify.certify(data, W, certify.left_out_weights(W))
    return pursuit, pursuit.W if W is None else W


def ask_for_end(data: Storage, W: BooleanCP, pursuit: Pursuit) -> None:
    """Compute in one pass what the bits of W and the end of a fit need from data that are read in passes."""
    data.ask_ahead([W.factors, pursuit.W.factors])


def lower_risk(data: Storage, done: dict[str, Any], solution: Columns) -> tuple[Pursuit, BooleanCP] | None:
    """Return the pursuit and the decomposition of the blocks with the lowest risk; None if rank one has a lower one.

    Blocks that all have rank one count as that: it is searched for more thoroughly, and fitted by least squares.
    """
    sigma, W = done["noise"], solution.to_decomposition()
    options: list[tuple[float, tuple[Pursuit, BooleanCP] | None]] = []
    options.append((with_bits(risk_of_columns(W, solution.loss, sigma), W, sigma), None))
    if done.get("settle"):
        (V, loss), pursuit = done["settle"][-1], settled_blocks(done, data.squared_norm)
        options.append((with_bits(risk_of_columns(V, loss, sigma), V, sigma), pursuit))
    if done.get("ranks") is not None:
        risk, _, V = done["ranks"]
        kept = on_full_data(done["pursuit"], data, 1, is_certified=False)
        options.append((with_bits(risk, V, sigma), (kept, V)))
    if done.get("blocks") is not None and done["blocks"].n_atoms:
        pursuit = done["blocks"]
        V = pursuit.W
        options.append((with_bits(pursuit.memory[0][-1], V, sigma), (pursuit, V)))
    best = min(options, key=lambda option: option[0])[1]
    return None if best is None or is_rank_one(best[1]) else best


def to_improve(state: State, pursuit: Pursuit) -> BooleanCP:
    """Return the estimate that a result has to improve: that of the pursuit, or of a warm start."""
    start = state.done.get("start")
    return start if "fitted" in state.done and start is not None else pursuit.W


def reached(job: Job, state: State) -> Columns | None:
    """Return the best columns of the stages so far; None if nothing was refined."""
    done = state.done
    if done.get("ridge") is not None:
        return done["ridge"].result
    if done.get("last") is not None:
        return done["last"].best
    if done.get("fewer") is not None and done["fewer"][1] is not None:
        return done["fewer"][1]
    if done.get("polish") is not None:
        return done["polish"].result
    if done.get("observed") is not None:
        return done["observed"].best
    return None if done.get("search") is None else polish(job.data, done["search"].best, max_iter=1)


def refined_path(job: Job) -> Iterator[Pursuit]:
    """Yield the pursuit whose estimates are refined, each from the one before and a greedy atom."""
    data, rank = job.data, job.settings.n_columns + EXTRA_RANK
    small = data if data.is_weighted else complete_tensor(data, rank, job.settings.compression)
    find = job.find_on(small)

    def correct(pursuit: Pursuit, found: Any) -> Pursuit:
        """Relax, round and polish on the small tensor, whose estimate is kept, and polish on the full data."""
        longer = add_greedy(pursuit.memory, 1, lambda W: found)
        if longer is None:
            return replace(pursuit, stop_reason="no descent")
        best = refine_once(small, longer, job.modes, find, job.rng)
        columns = polish(data, best, max_iter=3)
        if not data.is_complete:
            columns = polish(data, columns, max_iter=3, variance=noise_variance(data, columns))
        W = columns.to_decomposition()
        is_longer = W.n_atoms > pursuit.n_atoms
        return Pursuit(
            (*pursuit.path, W), memory=best.to_decomposition(), stop_reason="" if is_longer else "no descent"
        )

    first = Pursuit((BooleanCP(data.shape),), memory=BooleanCP(data.shape))
    yield from pursue(first, job.settings.n_atoms, lambda pursuit: find(pursuit.memory), correct)


def beside_path(job: Job, refined: tuple[BooleanCP, ...]) -> tuple[BooleanCP, ...]:
    """Return the refined estimates, each polished beside the background it leaves, unless the last leaves noise."""
    data, s = job.data, job.settings
    if s.background == AUTO and is_noise(data.residual(refined[-1])):
        return refined
    sigma, kind = s.sigma, s.background or AUTO
    if sigma is None:
        sigma = noise_level(data) if data.is_complete else impute.noise_of_filled(data, impute.fill(data, refined[-1]))
    path: list[BooleanCP] = []
    for W in refined:
        before = path[-1].background if path else None
        path.append((with_background if W.is_block else settled)(data, W, kind, sigma, before=before).W)
    return tuple(path)


def ranked_path(job: Job, refined: tuple[BooleanCP, ...], watch: Watch) -> tuple[BooleanCP, ...]:
    """Return the refined estimates of rank one, or at each number of atoms the blocks where their risk is lower."""
    data, s = job.data, job.settings
    if not takes_blocks(data) or is_noise(data.residual(refined[-1])):
        return refined
    if not data.is_complete:
        blocks = run(job, make_plan(data, s), State(), watch)[0].path
        return refined if is_rank_one(blocks[-1]) else blocks
    sigma = noise_level(data) if s.sigma is None else float(s.sigma)
    options: dict[str, Any] = {"tol": job.tol, "certify": False, "criterion": s.criterion}
    steps = block_pursuit(data, s.n_atoms, job.modes, job.rng, atom_rank="auto", sigma=sigma, **options)
    *_, found = steps
    path, n_found = list(refined), len(found.path)
    for k, W in enumerate(refined[1:n_found], 1):
        risk = risk_of_columns(W, data.residual(W).squared_norm, sigma)
        if with_bits(found.memory[0][k], found.path[k], sigma) < with_bits(risk, W, sigma):
            path[k] = found.path[k]
    return (*path, *found.path[len(refined) :])


def loss_path(job: Job) -> tuple[BooleanCP, ...]:
    """Return the estimates with 0, 1, .. atoms under a loss, each with its deviance."""
    data, s = job.data, job.settings
    indices, values, _ = losses.without_artifacts(data, s.loss).entries()
    problem = losses.Problem(data, losses.make_loss(s.loss, values), s.nonnegative)
    *_, first = (None, *losses.pursue(problem, s.n_atoms, job.modes, job.rng))
    if s.loss == "huber" and first is not None:  # again, with the scale of what is left
        problem = replace(problem, loss=losses.make_loss(s.loss, data.entries()[1], first.at(indices)))
    found = losses.pursue(problem, s.n_atoms, job.modes, job.rng)
    path = (BooleanCP(data.shape), *found)
    return path if s.loss == "squared" else tuple(losses.judged(problem, W) for W in path)


# lazy arrays


def open_lazy(settings: Settings, X: Any, mask: Any, max_memory: Any) -> Storage | None:
    """Return the storage of a lazy array for the parameters of a fit, or None if it must be loaded.

    Raises a MemoryError with an estimate, before anything is read, if the memory is too small for the one or the other.
    """
    limit = read_memory(max_memory)
    if is_few_passes(settings, X.shape):
        n_columns, shortest = settings.n_columns, int(np.argmin(X.shape))
        rank = n_columns + EXTRA_RANK
        asked = range(X.ndim) if settings.certify else [shortest]  # which identifies the tensor
        limit_of = LONG if settings.certify else SMALL
        wanted = [n for n in asked if X.shape[n] <= limit_of]
        source = make_source(X, mask, max_memory, n_columns)
        is_block = settings.atom_rank is None and X.ndim > 2
        more = {"dense blocks": in_passes.block_bytes(source.shape, settings.n_atoms)} if is_block else {}
        check_fit(source, limit, n_columns, rank, wanted, more=more)
        data = look_at(source, limit, rank=rank, wanted=wanted)
        if not data.is_complete:
            check_fit(source, limit, n_columns, rank, wanted, is_complete=False)
        if data.is_complete or not (is_block or X.ndim == 2):
            return data
    advice = (
        "A tensor stays out of memory with compression=True, unless it is small or compresses poorly. If entries are "
        "missing, it also needs three or more modes and an atom_rank other than None. Otherwise it is loaded: change "
        "these parameters, or raise max_memory."
    )
    needed = 3 * float_bytes(X.shape, X.dtype)
    check_memory({"the tensor in memory, with copies": needed}, limit, advice)
    return None


def is_few_passes(settings: Settings, shape: tuple[int, ...]) -> bool:
    """Return True if a fit reads a tensor that is not in memory only a few times."""
    rank = settings.n_columns + EXTRA_RANK
    is_small = not is_long(max(shape)) and max(shape) ** 2 > math.prod(shape)  # one short mode, and less of all others
    return settings.compression and not is_small and is_compressible(shape, rank)
