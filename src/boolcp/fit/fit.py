"""The fit: one step after another, each a pure function of the data, the state before it and its own generator.

Pursuit of atoms on a small tensor, all factors polished after each (Alg. 1 and 2); other starts on it; sweeps over the
data; starts over observed entries; moves where bits are in doubt; the result with the evidence for its bits. A step
that has nothing to do leads to the next stage at once.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from boolcp.fit import losses
from boolcp.fit.atom_search import greedy_atom_search, search_residual
from boolcp.fit.blocks import next_block
from boolcp.fit.certify import by_size, certify, has_weak_atom, is_certain, judge_bits, with_system
from boolcp.fit.moves import lowest, moves_of
from boolcp.fit.pursuit import corrected, equations_of
from boolcp.fit.spec import MAX_STARTS, STAGES, AtomRecord, Spec, State, record
from boolcp.fit.starts import (
    EXACT,
    POLISHED,
    Search,
    find_rivals,
    is_different,
    leaves_noise,
    observed_start,
    oriented,
    refined_start,
    regrown,
    revive,
    small_fall,
    turned,
    with_atom,
)
from boolcp.fit.sweep import MAX_COMPILED, is_settled, noise_variance, polish, sweep
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns, no_columns
from boolcp.result.trust import Evidence, Trust, log_odds, stands_out
from boolcp.storage.dense import Complete, n_observed
from boolcp.storage.lazy import LazyWeighted
from boolcp.storage.protocol import Storage
from boolcp.storage.tucker import compress
from boolcp.storage.weighted import SQUARES, Weighted

EXTRA = 10  # directions kept in each mode of a core beyond the number of columns; by bench_refine.py
N_SWEEPS = 20  # of a polish after each atom; not tuned
N_REGROWN = 8  # times that half of the best atoms are found again if no starts agree
N_ROUNDS, SLOW = 4, 1e-6  # polishes of small data, and the relative fall of the loss in one that ends them
N_TRIES = (3, 10)  # starts over observed entries by default, and under other losses; not tuned
FEW = 10  # observed entries for each free number below which there are many local minima
N_AGREE, TURN = (3, 2), 5  # starts that agree, for squares and other losses; every so many atoms are turned
N_RIDGE, RIDGE_SETTLED = 20, 1e-4  # sweeps with a ridge at most, and the relative fall of the loss that ends them
N_PATH = 2  # sweeps over observed entries of each estimate of the path; not tuned


@dataclass(frozen=True)
class Fit:
    """The data and the Spec of a fit; its steps are functions of both and of a State."""

    data: Storage
    spec: Spec

    @cached_property
    def small(self) -> Complete:
        """A complete stand-in for the data on which atoms are searched for, compressed if that halves it.

        `losses.complete` makes it of data with gaps, weights or another loss: gaps are zero, the rest is larger to
        compensate, and no entry is far off.
        """
        data, rank = self.data, self.spec.n_columns + EXTRA
        if isinstance(data, Complete) and data.weights is None and not data.nonnegative:
            return compress(data, rank)
        return compress(losses.complete(data), rank)

    def begin(self, seed: int) -> State:
        """Return the state before any step: no atoms."""
        shape, norm2 = self.data.shape, self.data.squared_norm
        first = no_columns(shape) if self.is_columns else BooleanCP(shape)
        return State(seed, path=(first,), stop_reason="" if norm2 > 0 else "zero")

    def at_state(self, s: State) -> "Fit":
        """Return the fit of the data with the scale of the loss that the state has.

        Data on disk with gaps, weights or Huber's loss have their targets moved to the best columns.
        """
        data, scale = self.data, s.scale
        if isinstance(data, LazyWeighted) and s.best is not None:
            fit = replace(self, data=data.near(s.best.matrices, scale))
        elif isinstance(data, Weighted) and scale and data.loss.scale != scale:
            if scale not in self._scaled:
                self._scaled[scale] = losses.with_loss(data, replace(data.loss, scale=scale))
            fit = replace(self, data=self._scaled[scale])
        else:
            return self
        fit.__dict__["small"] = self.small  # which does not depend on the scale
        return fit

    @cached_property
    def _scaled(self) -> dict[float, Weighted]:
        return {}

    @property
    def is_columns(self) -> bool:
        """Return True if the fit holds its atoms as Columns; blocks and Algorithm 1 as printed end with the pursuit."""
        return self.spec.refine and self.spec.atom_rank is not None

    def after(self, s: State) -> State:
        """Return the state at the beginning of the next stage, of the result if atoms are not Columns."""
        return s.at(STAGES[STAGES.index(s.stage) + 1] if self.is_columns else "result")


# Algorithm 1


def pursue(fit: Fit, s: State) -> State:
    """Add the atom of steepest descent and correct the others (Alg. 1, lines 4-8)."""
    spec, begin = fit.spec, time.perf_counter()
    if len(s.path) > spec.n_atoms or s.stop_reason:
        return fit.after(replace(s, stop_reason=s.stop_reason or "n_atoms"))
    add = add_columns if fit.is_columns else add_block if spec.refine else add_published
    W, loss, reason = add(fit, s)
    if W is None:
        return fit.after(replace(s, stop_reason=reason))
    norm2 = (fit.small if fit.is_columns else fit.data).squared_norm
    atom = W.to_decomposition().atoms[-1] if isinstance(W, Columns) else W.atoms[-1]
    new: AtomRecord = record(atom, loss, norm2, time.perf_counter() - begin)
    reason = "explained" if loss <= spec.tol**2 * norm2 and len(s.path) < spec.n_atoms else ""
    return s.then(path=(*s.path, W), history=(*s.history, new), stop_reason=reason)


def add_columns(fit: Fit, s: State) -> tuple[Columns | None, float, str]:
    """Return the columns with one atom more, all factors polished."""
    small, spec, W, rng = fit.small, fit.spec, s.path[-1], s.rng()
    found = greedy_atom_search(search_residual(small, W)[0], spec, rng)
    if found is None:
        return None, 0.0, "no descent"
    V = polish(small, with_atom(W, found), max_iter=N_SWEEPS)
    is_lower = V.loss < min(W.loss, small.squared_norm) - spec.tol**2 * small.squared_norm
    return (None, 0.0, "no descent") if not is_lower or V.is_dead().any() else (V, V.loss, "")


def add_block(fit: Fit, s: State) -> tuple[BooleanCP | None, float, str]:
    """Return the blocks with one more, all blocks and bits decided again."""
    W = next_block(fit.data, s.path[-1], fit.spec, s.rng())
    return (None, 0.0, "no descent") if W is None else (W, W.squared_error, "")


def add_published(fit: Fit, s: State) -> tuple[BooleanCP | None, float, str]:
    """Return the estimate with one atom more and the weights of all solved for: Algorithm 1 as printed."""
    data, spec, W = fit.data, fit.spec, s.path[-1]
    found = greedy_atom_search(data.residual(W), spec, s.rng(), certify=spec.certify)
    V, _, reason = corrected(data, W, equations_of(data, W.atoms), found, spec.tol)
    return (None, 0.0, reason) if V.n_atoms == W.n_atoms else (V, V.squared_error, reason)


# linked columns


def search(fit: Fit, s: State) -> State:
    """Relax, round and polish from one more start on `small`; if none agree, find half of the atoms again."""
    small, spec, rng, first = fit.small, fit.spec, s.rng(), s.path[-1]
    if not first.n_atoms:
        return s.at("result")
    here = Search(first) if s.best is None else Search(s.best, s.n_done, s.n_agree, s.rivals)
    n_init = MAX_STARTS if spec.n_init is None else spec.n_init
    n_regrown = N_REGROWN if first.n_atoms > 1 and spec.n_init is None else 0
    is_agreed = here.n_done > 0 and here.is_agreed(min(here.n_done, n_init))
    if is_agreed or here.n_done >= n_init + n_regrown or here.best.loss <= EXACT * small.squared_norm:
        n_agree = here.n_agree if here.n_done > 1 else 0  # one start alone tells nothing
        return fit.after(replace(s, best=here.best, n_agree=n_agree))
    if here.n_done < n_init:
        found, is_new = refined_start(small, first, spec, rng, here.n_done), here.n_done > 0
    else:
        found, is_new = regrown(small, here.best, spec, rng), False
    after = here.compared(found, small.squared_norm, is_new=is_new)
    s = s.then(best=after.best, n_agree=after.n_agree, rivals=after.rivals)
    # matrices have many solutions that leave noise alone
    is_checked = len(small.shape) > 2 and (after.best is not here.best or here.n_done == 0)
    if is_checked and leaves_noise(small, after.best, spec, rng):
        return fit.after(replace(s, n_agree=s.n_agree if s.n_agree > 1 else 0))
    return s


def polish_data(fit: Fit, s: State) -> State:
    """Make one sweep over the data; of small data in memory a whole polish, at most N_ROUNDS of them."""
    data, spec, W = fit.data, fit.spec, s.columns
    if s.n_done == 0 and isinstance(data, Weighted | LazyWeighted) and data.loss.name != "squared":
        s = replace(s, scale=losses.make_loss(data.loss.name, *losses.entries(data, W)).scale)
        fit = fit.at_state(s)
        data = fit.data
    if s.n_done == 0:
        W = oriented(W, data.nonnegative)
    if s.is_settled:
        return fit.after(s)
    before = np.inf if s.n_done == 0 else W.loss
    if data.n_passes == 0 and np.prod(data.shape, dtype=float) <= MAX_COMPILED:
        tol = {} if isinstance(data, Complete) else {"tol": max(POLISHED, small_fall(data, W))}
        W = polish(data, W, max_iter=spec.max_iter, **tol)
        is_over = s.n_done + 1 >= N_ROUNDS or is_settled(data, W, before, False, SLOW)
    else:
        W, is_changed = sweep(data, W)
        is_over = is_settled(data, W, before, is_changed)
    if s.n_done and W.loss > before:  # rounding
        W, is_over = s.columns, True
    is_over |= s.n_done + 1 >= spec.max_iter
    W = revive(data, W, spec, s.rng()) if is_over and not data.n_passes and W.is_dead().any() else W
    return s.then(best=replace(W, loss=max(W.loss, 0.0)), has_met=True, is_settled=is_over)


def search_observed(fit: Fit, s: State) -> State:
    """Relax, round and polish from one more start over data with gaps or weights, or under another loss.

    Under another loss than squares a start comes from `small` and is polished under the loss, and every TURN-th time
    atoms are turned to other modes.
    """
    data, spec, rng, W = fit.data, fit.spec, s.rng(), s.columns
    if not isinstance(data, Weighted) or W.loss <= EXACT * data.squared_norm:
        return fit.after(s)
    here = Search(W, s.n_done, 1 if s.n_done == 0 else s.n_agree, s.rivals if s.n_done else ())
    is_squared = data.loss.name == "squared"
    if here.n_agree >= N_AGREE[not is_squared] or s.n_done >= most_tries(data, W, spec, here.n_agree):
        return fit.after(s)
    if is_squared and leaves_noise(data, W, spec, rng):
        return fit.after(s)
    if not is_squared and s.n_done % TURN == 0:
        found = turned(data, W, spec)
    elif is_squared:
        found = observed_start(data, s.path[-1], W, spec, rng, s.n_done)
    else:
        start = refined_start(fit.small, s.path[-1], spec, rng, s.n_done + 1)
        found = polish(data, oriented(start, data.nonnegative), max_iter=spec.max_iter, tol=POLISHED, below=W.loss)
    here = here.compared(found, 10 * data.squared_norm, is_new=found is not W)
    return s.then(best=here.best, n_agree=here.n_agree, rivals=here.rivals)


def most_tries(data: Weighted, W: Columns, spec: Spec, n_agree: int) -> int:
    """Return the largest number of starts over the observed entries: ten more if these are few."""
    if spec.n_init is not None:
        return spec.n_init
    share = n_observed(data) / (len(W.owner) * sum(data.shape))
    return N_TRIES[data.loss.name != "squared"] + 10 * (share < FEW and n_agree < 2)


def move(fit: Fit, s: State) -> State:
    """Make the next move where bits are in doubt."""
    data, spec, W = fit.data, fit.spec, s.columns
    if is_certain(data, W) or s.n_done >= len(moves := moves_of(data, W)):
        return fit.after(s)
    level, go = moves[s.n_done]
    found = go(data, fit.small, W, spec, s.rng()) if has_weak_atom(data, W, level) else W
    if found.loss < W.loss and is_different(found, W):  # no start of the search has reached these
        s = replace(s, n_agree=0, rivals=find_rivals(found, (W, *s.rivals)))
    return s.then(best=lowest(W, found))


def ridge(fit: Fit, s: State) -> State:
    """Polish once more; if entries are missing with a ridge by the noise, so that none of them explodes."""
    data, spec, W = fit.data, fit.spec, s.columns
    if s.n_done or not isinstance(data, Weighted) or W.loss <= EXACT * data.squared_norm:
        return fit.after(s)
    has_gaps = n_observed(data) < np.prod(data.shape, dtype=float)
    if not has_gaps or data.loss.name != "squared" or data.nonnegative:
        return s.then(best=lowest(W, polish(data, W, max_iter=spec.max_iter)))
    variance = noise_variance(data, W) if spec.sigma is None else spec.sigma**2
    n_sweeps = min(spec.max_iter, N_RIDGE)
    return s.then(best=polish(data, W, max_iter=n_sweeps, tol=RIDGE_SETTLED, variance=variance))


# the result


def end(fit: Fit, s: State) -> State:
    """Return the state with the decomposition and the evidence for its bits."""
    data, spec = fit.data, fit.spec
    if isinstance(s.path[-1], Columns):
        best = s.columns
        if not s.has_met and best.n_atoms:  # the fit was stopped early
            best = polish(data, oriented(best, data.nonnegative), max_iter=1)
        W = by_size(best.to_decomposition())
    else:
        W = s.path[-1]
    is_squared = losses.name_of(data) == "squared"
    W = with_shares(data, W)
    if spec.certify and is_squared and W.n_atoms and (spec.refine or data.weights is None):
        is_known = not any(np.isnan(atom.certificate) for atom in W.atoms)
        W = W if is_known else certify(data, W)
    is_lossy = isinstance(data, Weighted | LazyWeighted) and not is_squared
    evidence: Evidence = losses.judge(data, W) if is_lossy else judge_bits(data, W)
    known = {"sigma": evidence.sigma, "stands_out": stands_out(W, evidence.sigma)}
    trust = Trust(log_odds(W, evidence), **known, n_agree=s.n_agree, n_rivals=len(s.rivals))
    return replace(s, stage="result", n_done=1, result=replace(W, trust=trust))


def path_of(fit: Fit, s: State) -> tuple[BooleanCP, ...]:
    """Return the estimates of the pursuit with 0, 1, .. atoms as decompositions.

    Those of columns were found on `small`; a few sweeps follow over data that are not complete, or nonnegative.
    """
    data, found = fit.at_state(s).data, []
    for W in s.path:
        if not isinstance(W, Columns):
            found.append(W if W.data_inner is not None else with_system(W, data))
        elif not isinstance(data, Weighted) and not data.nonnegative:
            found.append(with_system(W.to_decomposition(), fit.small))
        else:
            W = polish(data, oriented(W, data.nonnegative), max_iter=N_PATH) if W.n_atoms else W
            found.append(with_shares(data, W.to_decomposition()))
    return tuple(found)


def with_shares(data: Storage, W: BooleanCP) -> BooleanCP:
    """Return W with what shares of variance need, or with its deviance under another loss than squares."""
    if isinstance(data, Weighted | LazyWeighted) and data.loss.name != "squared":
        W = with_system(W, losses.with_loss(data, SQUARES)) if isinstance(data, Weighted) else W
        return replace(W, deviance=losses.deviance_of(data, W))
    return with_system(W, data)


STEPS: dict[str, Callable[[Fit, State], State]] = {
    "pursuit": pursue,
    "search": search,
    "polish": polish_data,
    "observed": search_observed,
    "last": move,
    "ridge": ridge,
    "result": end,
}
