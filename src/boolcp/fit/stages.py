"""The stages of Algorithm 1 and of atoms as columns: core, pursuit, starts, sweeps, the last search."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from boolcp.fit import certify, in_passes
from boolcp.fit.blocks import block_pursuit
from boolcp.fit.finish import by_size, not_worse, on_full_data
from boolcp.fit.job import (
    EXTRA_RANK,
    NOISELESS,
    Job,
    Step,
    ask_for_end,
    reached,
    searched,
    small_of,
    told,
)
from boolcp.fit.noise import noise_variance
from boolcp.fit.polish import is_swept_in_a_pass, polish, polish_sweeps, remember
from boolcp.fit.pursuit import boolean_matching_pursuit
from boolcp.fit.relax import begin, last
from boolcp.fit.starts import EXACT, Search, revive, search, search_observed
from boolcp.fit.state import State
from boolcp.fit.uncertain import LastSearch, exchange_atoms, last_search
from boolcp.fit.watch import progress
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.storage import complete_tensor
from boolcp.storage.lazy import ObservedLazyTensor
from boolcp.storage.protocol import Storage
from boolcp.storage.tucker import augmented

N_PATIENT = 40  # starts on complete data, as long as fewer than one in five agree; by the agreement of seeds
N_FILLED = 3  # starts with zeros in place of missing entries; on planted atoms with gaps, seeds 900-905
N_ROUGH = 10  # sweeps of their polish at most; not tuned
N_AUGMENTED = 3  # starts on an augmented core at most; not tuned
RANDOM = Search(n_done=2)  # the starts that follow are random
N_RANDOM = 2  # of them in each crossing; on seeds that benchmarks/bench_noise.py does not use
N_RIDGE = 20  # largest number of sweeps with a ridge over the observed entries; not tuned
RIDGE_SETTLED = 1e-4  # relative fall of the loss that ends them; not tuned
PROMISING = 1e-2  # loss of a start, in parts of |X|^2, from which fewer atoms may still explain all; not tuned
N_RELAX = (200, 60)  # sweeps of a relaxation at most, for rank one (by bench_refine.py) and larger ranks (not tuned)


def core_stage(job: Job, state: State) -> Iterator[Step]:
    """Compress the tensor, zeros filled in where entries are missing; None if that is not worth it."""
    small = complete_tensor(job.data, job.settings.n_columns + EXTRA_RANK, job.settings.compression)
    yield (small if small.is_compressed else None), None


def published_stage(job: Job, state: State) -> Iterator[Step]:
    """Find atoms on the data itself, the weights corrected after each: Algorithm 1 as printed."""
    s, data = job.settings, searched(job, state)
    options: dict[str, Any] = {
        "atom_rank": s.atom_rank,
        "criterion": s.criterion,
        "certify": s.certify and data is job.data,
    }
    steps = boolean_matching_pursuit(data, s.n_atoms, job.modes, job.rng, start=state.here, tol=job.tol, **options)
    return told(job, data, steps)


def block_stage(job: Job, state: State) -> Iterator[Step]:
    """Find atoms with dense blocks on the data itself, all blocks and bits corrected after each.

    The block of a matrix is one column, and of rank one. With missing entries the sweeps over columns serve it.
    """
    s, data = job.settings, searched(job, state)
    options: dict[str, Any] = {"start": state.here, "tol": job.tol, "certify": s.certify and data is job.data}
    if data.ndim == 2 and not data.is_complete:
        steps = boolean_matching_pursuit(data, s.n_atoms, job.modes, job.rng, polishes=True, **options)
    else:
        steps = block_pursuit(data, s.n_atoms, job.modes, job.rng, criterion=s.criterion, **options)
    return told(job, data, steps)


def pursuit_stage(job: Job, state: State) -> Iterator[Step]:
    """Find atoms on the small tensor: of rank one as Algorithm 1 does, of a larger rank with all factors corrected."""
    s, small = job.settings, small_of(job, state)
    options: dict[str, Any] = {
        "start": state.here,
        "tol": job.tol,
        "criterion": s.criterion,
        "certify": s.certify and small is job.data,
        "effort": "default" if small is job.data else "quick",
    }
    if job.atom_rank > 1:
        options |= {"atom_rank": job.atom_rank, "polishes": True}
    return told(job, small, boolean_matching_pursuit(small, s.n_atoms, job.modes, job.rng, **options))


def full_stage(job: Job, state: State) -> Iterator[Step]:
    """Give atoms that were found on the core of data that are read in passes the real parts of the full data."""
    s, data, pursuit = job.settings, job.data, state.done["pursuit"]
    if not s.refine:
        found = in_passes.rebuilt(data, pursuit, s, job.rng)
        yield (found, found.W), None
        return
    W = pursuit.W
    if W.n_atoms:
        W = in_passes.refitted(data, W, s, job.tol)
        pursuit = in_passes.ended_with(pursuit, W, data.squared_norm)
        if s.certify and not W.is_block:
            W = certify.certify(data, W, certify.left_out_weights(W))
    yield (pursuit, W), None


def path_stage(job: Job, state: State) -> Iterator[Step]:
    """Judge the estimates of the pursuit on the full data."""
    yield on_full_data(state.done["pursuit"], job.data, job.atom_rank, is_certified=False), None


def start_stage(job: Job, state: State) -> Iterator[Step]:
    """Choose the estimate to refine: that of the pursuit; none if all is explained."""
    pursuit = state.done.get("path") or state.done["pursuit"]
    is_exact = state.done["core"] is None and job.data.is_complete and pursuit.stop_reason == "explained"
    if pursuit.n_atoms and not is_exact:
        yield pursuit.W, None


def search_stage(job: Job, state: State) -> Iterator[Step]:
    """Relax, round and polish from several starts on the small tensor."""
    start = state.done["start"]
    return iter(()) if start is None else search_from(to_columns(start), small_of(job, state), job, state)


def search_from(W: Columns, small: Storage, job: Job, state: State) -> Iterator[Step]:
    """Yield the search on a small tensor whose first start is W."""
    first, s = Search() if state.here is None else state.here, job.settings
    limits: dict[str, Any] = {"n_init": s.n_starts, "max_iter": s.max_iter, "n_relax": N_RELAX[job.atom_rank > 1]}
    if s.n_init is None and not (job.data.is_complete or job.data.n_passes):  # a search over observed entries follows
        limits |= {
            "n_init": N_FILLED,
            "is_repaired": False,
            "max_iter": min(s.max_iter, N_ROUGH),
            "n_relax": N_RELAX[1],
        }
    elif s.n_init is None:
        limits |= {"n_init": N_PATIENT, "is_asked": False}
    for here in search(small, W, W.n_atoms, job.modes, job.find_on(small), job.rng, first, **limits):
        yield here, progress("search", here.n_done, limits["n_init"], here.result.loss, small.squared_norm)


def imputed_stage(job: Job, state: State) -> Iterator[Step]:
    """Compress the tensor again, the best start filled in where entries are missing."""
    if state.done["search"] is not None:
        W, data = state.done["search"].result.to_decomposition(), cast(ObservedLazyTensor, job.data)
        yield data.imputed(W, small_of(job, state).bases), None


def again_stage(job: Job, state: State) -> Iterator[Step]:
    """Search again on the tensor with gaps that are filled in, from the best start and others."""
    small = state.done["imputed"]
    return iter(()) if small is None else search_from(state.done["search"].result, small, job, state)


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
    found, data, s = state.done.get("again") or state.done["search"], job.data, job.settings
    if found is None:
        return
    if "again" in state.done and state.here is None:
        cast(ObservedLazyTensor, data).ask_with_update(state.done["pursuit"].W.matrices)  # for `path_stage`
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
    limits: dict[str, Any] = {"n_init": s.n_starts, "max_iter": s.max_iter}
    is_enough = state.here is not None and state.here[1] is not None
    estimates = state.done["path"].path[first:-1] if not is_enough else ()
    if estimates and is_swept_in_a_pass(data, len(all_of_it.best.owner)):
        yield from fewer_in_a_pass(job, state, estimates, exact)
        return
    for W in estimates:
        starts = search(small, to_columns(W), W.n_atoms, job.modes, job.find_on(small), job.rng, Search(), **limits)
        begun_with = last(starts, Search()).result
        *_, found = search_observed(data, begun_with, job.modes, job.find_on(data), job.rng, None, **limits)
        best = found.best
        yield (W.n_atoms, best if best.loss <= exact else None), None
        if best.loss <= exact:
            return


def fewer_in_a_pass(job: Job, state: State, estimates: Sequence[BooleanCP], exact: float) -> Iterator[Step]:
    """Yield as `fewer_stage`: one pass tells which numbers of atoms may do, found where the gaps are filled in."""
    data, s = cast(ObservedLazyTensor, job.data), job.settings
    small, limits = state.done["imputed"], dict[str, Any](n_init=s.n_starts, max_iter=s.max_iter)
    find = job.find_on(small)

    def refined(W: BooleanCP) -> Columns:
        rng = np.random.default_rng(W.n_atoms)  # whatever was tried before: a resumed fit may begin anywhere
        starts = search(small, to_columns(W), W.n_atoms, job.modes, find, rng, Search(), **limits)
        return last(starts, Search()).result

    found = [refined(W) for W in estimates]
    losses = data.losses([columns.to_decomposition() for columns in found])
    for columns in (each for each, loss in zip(found, losses, strict=True) if loss <= PROMISING * data.squared_norm):
        *_, ended = search_observed(data, columns, job.modes, job.find_on(data), job.rng, None, **limits)
        yield (columns.n_atoms, ended.best if ended.best.loss <= exact else None), None
        if ended.best.loss <= exact:
            return


def exact_stage(job: Job, state: State) -> Iterator[Step]:
    """Look for fewer atoms that explain complete data, if all do: more would only divide these among them.

    One atom less tells whether there is anything to look for. Yields as `fewer_stage`.
    """
    data, whole, s = job.data, reached(job, state), job.settings
    exact = EXACT * data.squared_norm
    if whole is None or whole.loss > exact or len(whole.owner) * sum(data.shape) > np.prod(data.shape, dtype=float):
        return  # as many numbers as entries explain noise as well
    small, limits = small_of(job, state), dict[str, Any](n_init=s.n_starts, max_iter=s.max_iter)
    best, estimates = None, state.done["pursuit"].path[1:-1]
    for W in (*estimates[-1:], *estimates[:-1]):
        starts = search(small, to_columns(W), W.n_atoms, job.modes, job.find_on(small), job.rng, Search(), **limits)
        found = last(starts, Search()).result
        if found.loss <= NOISELESS * data.squared_norm:
            found = polish(data, found, max_iter=s.max_iter)
        is_enough, is_first = found.loss <= exact, best is None
        best = found if is_enough else best
        if is_enough != is_first:  # no fewer do, or these are the fewest
            break
    if best is not None:
        yield (best.n_atoms, best), None


def last_stage(job: Job, state: State) -> Iterator[Step]:
    """Search further where bits are uncertain."""
    found, data = reached(job, state), job.data
    if found is None:
        return
    remember(data, found)
    if state.here is None and "path" not in state.done and state.done["core"] is not None:
        ask_for_end(data, by_size(found.to_decomposition()), state.done["pursuit"])
    first, limit = LastSearch(found) if state.here is None else state.here, job.settings.max_iter
    searches = partial(augmented_search, job, state), partial(random_search, job, state)
    for here in last_search(data, first, job.modes, *searches, job.rng, max_iter=limit):
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
    limits: dict[str, Any] = {"n_init": min(job.settings.n_starts, N_AUGMENTED), "max_iter": job.settings.max_iter}
    start, find = to_columns(pursuit.W), job.find_on(large)
    found = last(search(large, start, n_atoms, job.modes, find, job.rng, Search(), **limits), Search()).result
    return exchange_atoms(large, found, job.modes, max_iter=job.settings.max_iter) if job.data.n_passes else found


def random_search(job: Job, state: State, W: Columns) -> Columns:
    """Return the columns that random starts on a core augmented by contractions with ones lead to, W if none."""
    small = state.done["core"]
    if small is None:
        return W
    large = augmented(complete_tensor(job.data, 0, False), small, W.n_atoms, job.modes)
    limits: dict[str, Any] = {"n_init": RANDOM.n_done + N_RANDOM, "max_iter": job.settings.max_iter}
    starts = search(large, W, W.n_atoms, job.modes, job.find_on(large), job.rng, RANDOM, is_repaired=False, **limits)
    return last(starts, RANDOM).result


def ridge_stage(job: Job, state: State) -> Iterator[Step]:
    """Polish the best columns with a ridge by the noise and the energy of each, so that no fill explodes.

    With weights alone there is nothing to fill: the polish has no ridge and ends where that of complete data does.
    """
    found, data, s = reached(job, state), job.data, job.settings
    is_full = data.n_observed == np.prod(data.shape, dtype=float)
    if found is None or found.loss <= EXACT * data.squared_norm:
        return
    best = not_worse(data, found, state.done["path"].W, max_iter=s.max_iter)
    variance = noise_variance(data, best) if s.sigma is None else s.sigma**2
    first = begin(best) if state.here is None else state.here
    remember(data, first.W)
    limit = 1 if is_swept_in_a_pass(data, len(best.owner)) else min(s.max_iter, N_RIDGE)  # more change next to nothing
    how: dict[str, Any] = {"max_iter": limit, "tol": RIDGE_SETTLED, "variance": variance}
    for here in polish_sweeps(data, first, **({"max_iter": s.max_iter} if is_full else how)):
        yield here, progress("ridge", here.n_done, None, here.W.loss, data.squared_norm)
