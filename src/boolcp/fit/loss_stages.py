"""The stages of a fit under a loss that is not the sum of squares, or with nonnegative parts; its path."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from boolcp.fit import certify, loss_passes, loss_search, loss_sweeps, losses
from boolcp.fit.certify import judge_bits
from boolcp.fit.entry_blocks import entry_block_pursuit
from boolcp.fit.finish import by_size, with_data
from boolcp.fit.job import Job, Step, told
from boolcp.fit.starts import Search
from boolcp.fit.state import Pursuit, State
from boolcp.fit.uncertain import LastSearch
from boolcp.fit.watch import progress
from boolcp.result.atoms import BooleanCP


def entry_block_stage(job: Job, state: State) -> Iterator[Step]:
    """Find dense blocks with weights or nonnegative entries, all blocks and bits corrected after each atom."""
    problem = losses.Problem(job.data, losses.Loss(), job.settings.nonnegative)
    options: dict[str, Any] = {"start": state.here, "tol": job.tol}
    steps = entry_block_pursuit(problem, job.settings.n_atoms, job.modes, job.rng, **options)
    return told(job, job.data, steps)


def squares_stage(job: Job, state: State, *, refit: Callable[..., tuple[Pursuit, BooleanCP]]) -> Iterator[Step]:
    """Fit squares without constraints, far outliers cut off for Huber's loss: where a loss begins."""
    s = job.settings
    inner = replace(s, loss="squared", nonnegative=(), certify=False)
    data = job.data
    if s.loss == "huber":
        near = losses.Problem(data, losses.Loss(), ()).without_artifacts
        data = loss_passes.without_artifacts(data, inner) if data.n_passes else near()
    found = refit(job, data, inner, skipped=("last",))
    yield found, progress("squares", 1, 1, data.residual(found[1]).squared_norm, data.squared_norm)


def loss_problem(job: Job, state: State) -> losses.Problem:
    """Return the data with the loss that the parameters ask for, its scale that of the fit of squares."""
    problem = losses.Problem(job.data, losses.Loss(), job.settings.nonnegative)
    return problem.under(job.settings.loss, state.done["pursuit"][1])


def loss_stage(job: Job, state: State) -> Iterator[Step]:
    """Search under the loss from the fit of squares and other starts."""
    first, s = state.done["pursuit"][1], job.settings
    if first.n_atoms == 0:
        return
    problem, begun_with = loss_problem(job, state), Search() if state.here is None else state.here
    null, n_init = losses.null_value(problem), s.n_starts
    if s.n_init is None and loss_search.has_plenty(problem, s.n_atoms):
        n_init = loss_search.N_ROBUST if s.loss == "huber" else loss_search.MIN_DOUBTED
    for here in loss_search.search(problem, first, s.n_atoms, job.modes, job.rng, begun_with, n_init=n_init):
        yield here, progress("loss", here.n_done, n_init, losses.deviance_of(problem, here.result), null)


def moves_stage(job: Job, state: State) -> Iterator[Step]:
    """Search further where bits are in doubt."""
    found = state.done.get("loss")
    if found is None or found.best is None:
        return
    problem, first = loss_problem(job, state), LastSearch(found.best) if state.here is None else state.here
    null = losses.null_value(problem)
    for here in loss_search.last_search(problem, found, first, job.modes):
        yield here, progress("last", here.n_done, None, losses.deviance_of(problem, here.best), null)


def finish_loss(job: Job, state: State) -> Iterator[Step]:
    """Yield the pursuit of squares and the decomposition under the loss, with shares and what its bits rest on."""
    (pursuit, W), found = state.done["pursuit"], state.done.get("loss")
    problem = loss_problem(job, state)
    if found is not None and found.best is not None:
        last = state.done.get("last") or LastSearch(found.best)
        W = with_data(signed(by_size(last.best.to_decomposition()), problem.nonnegative), job.data)
    else:
        W = with_data(W, job.data) if W.n_atoms else W
    n_agree, n_rivals = (found.n_agree, len(found.rivals)) if found is not None and found.n_done > 1 else (0, 0)
    if job.settings.loss != "squared" and W.n_atoms:
        W = losses.judged(problem, W)
        trust = loss_sweeps.judge_bits(problem, W)
    else:
        trust = judge_bits(job.data, W)
        if job.settings.certify and W.n_atoms:
            W = certify.certify(job.data, W, certify.left_out_weights(W))
    yield (pursuit, replace(W, trust=replace(trust, n_agree=n_agree, n_rivals=n_rivals))), None


def signed(W: BooleanCP, nonnegative: tuple[int, ...]) -> BooleanCP:
    """Return W with the signs of its columns where nonnegative parts leave them: along the other modes."""
    atoms = []
    for atom in W.atoms:
        real = [n for n in range(W.ndim) if n != atom.mode]
        factors = dict(zip(real, atom.factors or (), strict=True))
        free = [n for n in real if n not in nonnegative]
        for n in [n for n in real if n in nonnegative]:
            signs = np.where(factors[n].sum(axis=0) < 0, -1.0, 1.0)
            factors[n] = factors[n] * signs
            if free:
                factors[free[-1]] = factors[free[-1]] * signs
        atoms.append(replace(atom, factors=tuple(factors[n] for n in real)))
    return replace(W, atoms=tuple(atoms))


def loss_path(job: Job) -> tuple[BooleanCP, ...]:
    """Return the estimates with 0, 1, .. atoms under a loss, each with its deviance."""
    data, s = job.data, job.settings
    problem = losses.Problem(data, losses.Loss(), s.nonnegative).under(s.loss, BooleanCP(data.shape))
    *_, first = (None, *loss_search.pursue(problem, s.n_atoms, job.modes, job.rng))
    if s.loss == "huber" and first is not None:  # again, with the scale of what is left
        problem = problem.under(s.loss, first)
    found = loss_search.pursue(problem, s.n_atoms, job.modes, job.rng)
    path = (BooleanCP(data.shape), *(signed(W, s.nonnegative) for W in found))
    return path if s.loss == "squared" else tuple(losses.judged(problem, W) for W in path)
