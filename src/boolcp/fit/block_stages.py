"""The stages beyond columns: blocks whose rank the noise chooses, and a background beside the atoms.

Blocks are tried only where atoms of rank one leave more than noise, and taken only where the risk is lower: elsewhere
the result is that of rank one, to the last bit.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from boolcp.fit import certify, impute, in_passes
from boolcp.fit.backfit import Backfit, noise_rule, terms_of
from boolcp.fit.background import judged, without
from boolcp.fit.beside import lowest, simplify_beside, with_background
from boolcp.fit.blocks import assess, block_pursuit
from boolcp.fit.finish import by_size, have_same_bits, on_full_data, settled_blocks
from boolcp.fit.job import AUTO, NOISELESS, Job, Step, base_atoms, begun, n_wanted, reached, searched, told
from boolcp.fit.noise import is_noise, noise_level
from boolcp.fit.simplify import simplify
from boolcp.fit.state import Pursuit, Round, Settings, State
from boolcp.fit.watch import progress
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns
from boolcp.storage.protocol import Storage

Ranked = tuple[float, float, BooleanCP]  # risk without bits, loss |X - W|^2, and W
Rounds = tuple[Round, ...]
Refit = Callable[[Job, Storage, Settings], tuple[Pursuit, BooleanCP]]
N_ROUNDS = 2  # of a background and atoms beside it; not tuned


def noise_stage(job: Job, state: State) -> Iterator[Step]:
    """Yield the noise level if the refined atoms of rank one leave more than noise, and blocks are worth a trial."""
    W, data, sigma = base_atoms(job, state), searched(job, state), job.settings.sigma
    data = job.data if W.is_block else data
    residual = data.residual(by_size(W))  # in this order its products are known
    left = in_passes.left_over(data, W) if data.is_compressed else residual.squared_norm
    if left <= NOISELESS * data.squared_norm:
        return
    is_rest = partial(in_passes.leaves_noise, job.data, data, W) if data.is_compressed else partial(is_noise, residual)
    if not isinstance(job.settings.background, int) and is_rest():
        return
    if sigma is None:
        spectra = job.data if takes_background(job.data, job.settings) else data
        sigma = noise_level(spectra) if data.is_complete else impute.noise_of_filled(data, impute.fill(data, W))
    yield float(sigma), None


def ranks_stage(job: Job, state: State) -> Iterator[Step]:
    """Back-fit the refined atoms of rank one, and let the noise choose their ranks.

    Beside a large background they stay as they are: ranks above the white noise would only divide it among the atoms.
    """
    sigma, found = state.done["noise"], reached(job, state) if "core" in state.done else None
    if job.data.n_passes and not state.done.get("beside", True):
        return  # ranks of a core compete beside a background alone
    if state.done.get("beside") and state.done["beside"][-1].is_beside_large:
        return
    if sigma is not None and found is not None and job.settings.atom_rank == AUTO and job.data.is_complete:
        data = searched(job, state)
        yield backfit_ranks(data, found.to_decomposition(), sigma, tol=job.tol), None


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
        yield simplify(searched(job, state), better[1], sigma, tol=job.tol), None


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
        V = in_passes.refitted(data, V, s, sigma, job.tol)
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
        here = (*here, impute.settle(job.data, W, sigma, tol=job.tol))
        yield here, progress("settle", len(here), len(pursuit.history), here[-1][1], job.data.squared_norm)


def takes_background(data: Storage, settings: Settings) -> bool:
    """Return True if a background may be fitted: by squares on data in memory, or on complete data read in passes.

    "auto" asks for refinement, and for more than two modes: a background of low rank would leave nothing of a matrix.
    """
    is_asked = settings.background is not None and (settings.refine or settings.background != "auto")
    is_asked &= settings.is_squared and (data.ndim > 2 or settings.background != "auto")
    return is_asked and (takes_blocks(data) or in_passes.has_room_for_background(data, settings))


def atoms_alone(settings: Settings) -> Settings:
    """Return the settings of the atoms beside a background, which have rank one by default."""
    rank = 1 if settings.atom_rank == "auto" else settings.atom_rank
    return replace(settings, background=None, atom_rank=rank)


def beside_stage(job: Job, state: State, *, refit: Refit) -> Iterator[Step]:
    """Fit a background beside the atoms, if these leave more than noise, and both in turn: yields all rounds.

    A round is the atoms, found anew on the data without the background of the round before, and their own background.
    """
    data, s, sigma = job.data, job.settings, state.done["noise"]
    if sigma is None:
        return
    kind, n_rounds = s.background or AUTO, N_ROUNDS if data.is_complete else 1
    rounds: Rounds = (with_background(data, base_atoms(job, state), kind, sigma),) if state.here is None else state.here
    settings = replace(atoms_alone(s), n_atoms=n_wanted(job, state), certify=False)
    while (background := rounds[-1].background) is not None and len(rounds) <= n_rounds:
        if len(rounds) > 1 and have_same_bits(rounds[-1].W, rounds[-2].W):
            return
        if background.is_large:
            yield rounds, None
            return
        W = refit(job, without(data, background), settings)[1]
        rounds = (*rounds, with_background(data, W, kind, sigma, before=background))
        yield rounds, progress("background", len(rounds) - 1, n_rounds, rounds[-1].loss, data.squared_norm)


def rival_stage(job: Job, state: State) -> Iterator[Step]:
    """Find blocks, if ranks that were back-fitted to the data beside a background are better than rank one."""
    if not state.done["beside"] or state.done["ranks"] is None:
        return
    if ranked_round(job, state.done).risk < best_round(job, state.done).risk:
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
            rest = judged(data, best.background)
            W = simplify(rest, best.W, best.sigma, tol=job.tol)
            best = with_background(data, W, kind, best.sigma)
        best = simplify_beside(data, best, n_wanted(job, state), job.modes, kind, job.rng)
    yield best, None


def best_round(job: Job, done: dict[str, Any]) -> Round:
    """Return the round with the lowest risk, of rank one or of those that compete with it beside a small background."""
    rivals: Rounds = ()
    if done.get("ranks") is not None:
        rivals = (ranked_round(job, done),)
    blocks = done.get("blocks")
    if blocks is not None and blocks.n_atoms:
        loss = job.data.residual(blocks.W).squared_norm
        rivals += (round_of_blocks(job, blocks.W, blocks.memory[0][-1] - loss, done["noise"]),)
    return lowest(job.data, done["beside"], tuple(each for each in rivals if not each.is_beside_large))


# blocks against atoms of rank one, by one estimate of the risk


def takes_blocks(data: Storage) -> bool:
    """Return True if blocks may be tried: on data in memory, of which filled copies fit in memory, without weights."""
    return data.n_passes == 0 and not data.is_weighted and np.prod(data.shape, dtype=float) <= in_passes.MAX_ENTRIES


def is_rank_one(W: BooleanCP) -> bool:
    """Return True if the real parts of all atoms are products of columns."""
    return all(atom.rank == 1 for atom in W.atoms)


def backfit_ranks(data: Storage, W: BooleanCP, sigma: float, *, tol: float) -> Ranked | None:
    """Return the atoms of W after back-fitting, which chooses their ranks by the noise; None if nothing is left."""
    rule = noise_rule(data, sigma)
    terms = Backfit(data, rule, tol=tol).backfit(terms_of(W))
    return assess(data, rule, terms) if terms else None


def risk_of_columns(W: BooleanCP, loss: float, sigma: float) -> float:
    """Return |X - W|^2 + 2 sigma^2 (free real numbers) of atoms that are fitted by least squares."""
    return loss + 2 * sigma**2 * W.n_parameters


def with_bits(risk: float, W: BooleanCP, sigma: float) -> float:
    """Return a risk plus 2 sigma^2 for each bit, which is chosen from the data as well."""
    return risk + 2 * sigma**2 * W.n_bits
