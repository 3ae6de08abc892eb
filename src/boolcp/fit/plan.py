"""From a storage to a decomposition: the plan of stages for the given parameters, the loop that runs them, the end."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from boolcp.fit import certify, count_passes, in_passes, loss_passes, stages
from boolcp.fit.background import judged
from boolcp.fit.beside import beside_whole
from boolcp.fit.block_stages import (
    atoms_alone,
    beside_stage,
    best_round,
    competing_stage,
    filled_stage,
    full_stage,
    lower_risk,
    noise_stage,
    plain_stage,
    ranks_stage,
    rival_stage,
    settle_stage,
    simple_stage,
    takes_background,
    takes_blocks,
)
from boolcp.fit.certify import judge_bits
from boolcp.fit.finish import by_size, not_worse, on_full_data, shortened, with_data
from boolcp.fit.job import AUTO, Job, Stage, Step, ask_for_end, base_atoms, reached, to_improve
from boolcp.fit.loss_stages import entry_block_stage, finish_loss, loss_stage, moves_stage, squares_stage
from boolcp.fit.polish import is_swept_in_a_pass, remember
from boolcp.fit.starts import RIVAL, is_different
from boolcp.fit.state import Pursuit, Round, Settings, State
from boolcp.fit.watch import Stop, Watch
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import to_columns
from boolcp.storage.protocol import Storage

THOROUGH = "observed", "fewer", "last"  # searches over observed entries; beside a background one of them is enough


def make_plan(data: Storage, settings: Settings) -> tuple[Stage, ...]:
    """Return the stages for the given parameters."""
    result = Stage("result", finish, improves=False)
    if settings.atom_rank is None and settings.refine and (settings.nonnegative or data.is_weighted):
        return Stage("pursuit", entry_block_stage), result
    if not settings.is_squared and data.n_passes:
        is_counted = settings.loss == "poisson"
        sweeps = Stage("loss", count_passes.count_stage if is_counted else loss_passes.loss_stage)
        judge = Stage("result", loss_passes.finish_loss, improves=False)
        return Stage("pursuit", partial(squares_stage, refit=refit)), sweeps, judge
    if not settings.is_squared:
        return (
            Stage("pursuit", partial(squares_stage, refit=refit)),
            Stage("loss", loss_stage),
            Stage("last", moves_stage),
            Stage("result", finish_loss, improves=False),
        )
    if takes_background(data, settings):
        *base, _ = make_plan(data, atoms_alone(settings))
        other = partial(refit, skipped=() if data.is_complete else THOROUGH)
        beside = Stage("noise", noise_stage), Stage("beside", partial(beside_stage, refit=other))
        ranks: tuple[Stage, ...]
        ranks = (
            (Stage("ranks", ranks_stage), Stage("blocks", rival_stage)) if has_room_for_blocks(data, settings) else ()
        )
        return *base, *beside, *ranks, Stage("simple", plain_stage), result
    core, full = Stage("core", stages.core_stage, improves=False), Stage("full", full_stage, improves=False)
    if not settings.refine:
        published = Stage("pursuit", stages.published_stage)
        return (core, published, full, result) if data.n_passes else (published, result)
    if settings.atom_rank is None or data.ndim == 2:
        blocks = Stage("pursuit", stages.block_stage)
        return (core, blocks, full, result) if data.n_passes else (blocks, result)
    is_auto = settings.atom_rank == "auto" and has_room_for_blocks(data, settings)
    noise = Stage("noise", noise_stage)
    pursuit = Stage("pursuit", stages.pursuit_stage)
    starts = Stage("start", stages.start_stage), Stage("search", stages.search_stage)
    if data.is_complete:
        ranks = noise, Stage("ranks", ranks_stage), Stage("blocks", competing_stage), Stage("simple", simple_stage)
        polished = Stage("polish", stages.polish_stage), Stage("fewer", stages.exact_stage)
        refined = core, pursuit, *starts, *polished, Stage("last", stages.last_stage)
        ranks = (*ranks, full) if data.n_passes else ranks
        return *refined, *(ranks if is_auto else ()), result
    path, observed = Stage("path", stages.path_stage, improves=False), Stage("observed", stages.observed_stage)
    found: tuple[Stage, ...] = path, *starts, observed
    if is_swept_in_a_pass(data, settings.n_columns):
        again = Stage("imputed", stages.imputed_stage), Stage("again", stages.again_stage)
        found = *starts, *again, observed, path
    last = Stage("fewer", stages.fewer_stage), Stage("last", stages.last_stage), Stage("ridge", stages.ridge_stage)
    plan = core, pursuit, *found, *last
    if is_auto:
        plan += noise, Stage("filled", filled_stage), Stage("settle", settle_stage)
    return *plan, result


def has_room_for_blocks(data: Storage, settings: Settings) -> bool:
    """Return True if blocks may be tried, on the data or on their core."""
    return takes_blocks(data) or in_passes.has_room_for_blocks(data, settings)


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


def refit(
    job: Job,
    data: Storage,
    settings: Settings,
    done: dict[str, Any] | None = None,
    skipped: tuple[str, ...] = (),
) -> tuple[Pursuit, BooleanCP]:
    """Run a fit of other data with other parameters within a stage, from what is `done`; nothing of it is saved.

    Stages that are `skipped` are left out.
    """
    plan = tuple(stage for stage in make_plan(data, settings) if stage.name not in skipped)
    return run(replace(job, data=data, settings=settings), plan, State(done=done or {}), Watch(job.rng))


def finish(job: Job, state: State) -> Iterator[Step]:
    """Yield the pursuit and the decomposition of all stages, with the evidence for its bits."""
    if state.done.get("beside"):
        yield atoms_beside(job, state), None
        return
    pursuit, W = outcome(job, state)
    n_agree, n_rivals = agreement(state, W)
    trust = replace(judge_bits(job.data, W), n_agree=n_agree, n_rivals=n_rivals)
    yield (pursuit, replace(W, trust=trust)), None


def atoms_beside(job: Job, state: State) -> tuple[Pursuit, BooleanCP]:
    """Return the pursuit, and the atoms and background of the round with the lowest risk."""
    done, data = state.done, job.data
    pursuit = done.get("path") or done["pursuit"]
    chosen = done.get("simple") or best_round(job, done)
    best = chosen.W
    if done.get("full") is not None:
        pursuit = done["full"][0]
    elif "core" in done and "path" not in done and done["core"] is not None:
        first = [] if best.is_block else [best.matrices]
        data.ask_ahead(
            [*first, by_size(base_atoms(job, state)).matrices, pursuit.W.matrices]
        )  # resumed, it rounds alike
        pursuit = on_full_data(pursuit, data, job.atom_rank, is_certified=False)
    rest = judged(data, best.background)
    W = by_size(with_data(replace(best, data_gram=None), data))
    if job.settings.certify:
        W = certify.certify(rest, W, certify.left_out_weights(W))
    n_agree, n_rivals = agreement(state, W) if best.trust is None else (best.trust.n_agree, best.trust.n_rivals)
    n_rivals += sum(is_rival(each, chosen) for each in done["beside"])
    trust = replace(judge_bits(rest, W), n_agree=n_agree, n_rivals=n_rivals)
    background = beside_whole(data, chosen, job.settings.background or AUTO).background
    return pursuit, replace(W, data_norm2=data.squared_norm, trust=trust, background=background)


def is_rival(other: Round, chosen: Round) -> bool:
    """Return True if a chosen round has atoms that another one lacks, whose risk is higher by at most 0.5 %."""
    if other.W.is_block or chosen.W.is_block or other.risk > (1 + RIVAL) * chosen.risk:
        return False
    return is_different(to_columns(chosen.W), to_columns(other.W))


def agreement(state: State, W: BooleanCP) -> tuple[int, int]:
    """Return how many starts of the search agree on its best solution, and how many rivals it has; 0 if unknown."""
    found = state.done.get("search")
    if state.done.get("again") is not None:
        found = state.done["again"]
    elif state.done.get("observed") is not None:
        found = state.done["observed"].search
    is_shorter = (state.done.get("fewer") or (0, None))[1] is not None  # found by another search
    if found is None or W.is_block or found.n_done < 2 or is_shorter:
        return 0, 0
    return found.n_agree, len(found.rivals)


def outcome(job: Job, state: State) -> tuple[Pursuit, BooleanCP]:
    """Return the pursuit and the decomposition of all stages."""
    done, data, s = state.done, job.data, job.settings
    if done.get("full") is not None:
        return done["full"]
    if "core" not in done:
        pursuit, W = done["pursuit"], done["pursuit"].W
        is_left_open = s.certify and s.refine and not (state.is_stopped or data.is_weighted or s.nonnegative)
        if is_left_open and any(math.isnan(atom.certificate) for atom in W.atoms):  # back-fitting has changed them
            W = certify.certify(data, W, certify.left_out_weights(W))
        return pursuit, W
    solution, pursuit = reached(job, state), done.get("path") or done["pursuit"]
    if solution is not None:
        remember(data, solution)
    if done.get("noise") is not None and solution is not None and (better := lower_risk(data, done, solution)):
        V = by_size(better[1] if done.get("simple") is None else done["simple"])
        return better[0], certify.certify(data, V, certify.left_out_weights(V)) if s.certify else V
    if solution is not None and solution.n_atoms < pursuit.n_atoms and done.get("fewer") is not None:
        pursuit = shortened(pursuit, solution.n_atoms)
    W = None if solution is None else by_size(solution.to_decomposition())
    if "path" not in done and done["core"] is not None:  # with the result, so that they share a pass over the data
        if W is not None:
            ask_for_end(data, W, pursuit)
        pursuit = on_full_data(pursuit, data, job.atom_rank, s.certify and not state.is_stopped)
    if W is not None and solution is not None:
        is_judged = done.get("ridge") is not None
        best = solution if is_judged else not_worse(data, solution, to_improve(state, pursuit), max_iter=s.max_iter)
        W = with_data(W if best is solution else by_size(best.to_decomposition()), data)
        if s.certify:
            W = certify.certify(data, W, certify.left_out_weights(W))
    return pursuit, pursuit.W if W is None else W
