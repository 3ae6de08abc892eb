"""From a storage to a decomposition: the plan of stages for the given parameters, the loop that runs them, the end."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from boolcp.fit import certify, count_passes, loss_passes, stages
from boolcp.fit.certify import judge_bits
from boolcp.fit.finish import by_size, not_worse, on_full_data, shortened, with_data
from boolcp.fit.job import Job, Stage, Step, ask_for_end, reached
from boolcp.fit.loss_stages import entry_block_stage, finish_loss, loss_stage, moves_stage, squares_stage
from boolcp.fit.polish import is_swept_in_a_pass, remember
from boolcp.fit.state import Pursuit, Settings, State
from boolcp.fit.watch import Stop, Watch
from boolcp.result.atoms import BooleanCP
from boolcp.storage.protocol import Storage


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
    core, full = Stage("core", stages.core_stage, improves=False), Stage("full", stages.full_stage, improves=False)
    if not settings.refine:
        published = Stage("pursuit", stages.published_stage)
        return (core, published, full, result) if data.n_passes else (published, result)
    if settings.atom_rank is None or data.ndim == 2:
        blocks = Stage("pursuit", stages.block_stage)
        return (core, blocks, full, result) if data.n_passes else (blocks, result)
    pursuit = Stage("pursuit", stages.pursuit_stage)
    starts = Stage("start", stages.start_stage), Stage("search", stages.search_stage)
    if data.is_complete:
        polished = Stage("polish", stages.polish_stage), Stage("fewer", stages.exact_stage)
        return core, pursuit, *starts, *polished, Stage("last", stages.last_stage), result
    path, observed = Stage("path", stages.path_stage, improves=False), Stage("observed", stages.observed_stage)
    found: tuple[Stage, ...] = path, *starts, observed
    if is_swept_in_a_pass(data, settings.n_columns):
        again = Stage("imputed", stages.imputed_stage), Stage("again", stages.again_stage)
        found = *starts, *again, observed, path
    last = Stage("fewer", stages.fewer_stage), Stage("last", stages.last_stage), Stage("ridge", stages.ridge_stage)
    return core, pursuit, *found, *last, result


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
    skipped: tuple[str, ...] = (),
) -> tuple[Pursuit, BooleanCP]:
    """Run a fit of other data with other parameters within a stage, ; nothing of it is saved.

    Stages that are `skipped` are left out.
    """
    plan = tuple(stage for stage in make_plan(data, settings) if stage.name not in skipped)
    return run(replace(job, data=data, settings=settings), plan, State(), Watch(job.rng))


def finish(job: Job, state: State) -> Iterator[Step]:
    """Yield the pursuit and the decomposition of all stages, with the evidence for its bits."""
    pursuit, W = outcome(job, state)
    n_agree, n_rivals = agreement(state, W)
    trust = replace(judge_bits(job.data, W), n_agree=n_agree, n_rivals=n_rivals)
    yield (pursuit, replace(W, trust=trust)), None


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
    if solution is not None and solution.n_atoms < pursuit.n_atoms and done.get("fewer") is not None:
        pursuit = shortened(pursuit, solution.n_atoms)
    W = None if solution is None else by_size(solution.to_decomposition())
    if "path" not in done and done["core"] is not None:  # with the result, so that they share a pass over the data
        if W is not None:
            ask_for_end(data, W, pursuit)
        pursuit = on_full_data(pursuit, data, job.atom_rank, s.certify and not state.is_stopped)
    if W is not None and solution is not None:
        is_judged = done.get("ridge") is not None
        best = solution if is_judged else not_worse(data, solution, pursuit.W, max_iter=s.max_iter)
        W = with_data(W if best is solution else by_size(best.to_decomposition()), data)
        if s.certify:
            W = certify.certify(data, W, certify.left_out_weights(W))
    return pursuit, pursuit.W if W is None else W
