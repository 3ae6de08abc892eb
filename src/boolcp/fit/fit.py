"""The fit: `run`, at the end, makes one step after another until there is a result.

A step is a pure function of a `Fit` (the data and what was asked for) and a `State` (what has been reached so far;
`s.rng()` is the generator of the step), and returns the next state: `s.then(..)` after one more step of a stage,
`s.at(..)` at the beginning of another. Each stage has a function, which leads to the next if there is nothing to do:

    pursuit    pursue            one more atom, all others corrected (Algorithms 1 and 2)
    search     search            one more start on `small`, until two reach the same loss or one leaves only noise
    polish     polish_data       one sweep over the data, or all sweeps if these are small
    observed   search_observed   one more start over the data, if they have gaps, weights or another loss than squares
    last       move              one attempt to correct bits that are in doubt
    ridge      ridge             the last polish of data in memory, with a ridge if entries are missing
    neighbors  agree             sweeps in which bits prefer to agree with their neighbors, if there is a graph
    result     end               the decomposition, and the evidence for its bits

The atoms W are `Columns`: factors of a CP decomposition, in which some columns are 0 and 1 (block atoms are a
`BooleanCP`). `s.path` has the estimates of the pursuit, from none to all atoms; the stages after it improve
`s.best`. Up to the search, losses are those over `small`, a complete stand-in for the data, compressed if that halves
it. A *sweep* decides the factor of each mode once, real columns by least squares, bits jointly in each row; a *polish*
is sweeps until nothing changes. A *start* is relaxed (sweeps without bits), rounded to bits, and polished.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from boolcp.fit import losses, starts
from boolcp.fit.atom_search import Candidate, greedy_atom_search, search_residual
from boolcp.fit.blocks import next_block
from boolcp.fit.certify import atom_system, by_size, certify, has_weak_atom, is_certain, judge_bits, with_system
from boolcp.fit.checkpoint import Checkpoint
from boolcp.fit.moves import lowest, moves_of
from boolcp.fit.neighbors import plain_graphs, smooth
from boolcp.fit.spec import MAX_STARTS, AtomRecord, Spec, State
from boolcp.fit.starts import EXACT, POLISHED, RIVAL, compared, leaves_noise, oriented, refined_start, tolerance
from boolcp.fit.sweep import MAX_COMPILED, TOL, exact_rows, is_settled, noise_variance, polish, sweep
from boolcp.fit.watch import PRESENT, Progress, Stop
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.result.trust import Trust, log_odds, stands_out
from boolcp.storage.dense import Complete, n_observed
from boolcp.storage.lazy import LazyWeighted
from boolcp.storage.protocol import Storage
from boolcp.storage.tucker import compress
from boolcp.storage.weighted import SQUARES, Weighted

EXTRA = 10  # directions kept in each mode of a core beyond the number of columns; by bench_refine.py
N_SWEEPS, PURSUED = 20, 1e-4  # sweeps after each atom, and the fall, as part of its gain, not worth one; not tuned
N_TRIES = (3, 10)  # starts over observed entries by default, and under other losses; not tuned
FEW = 10  # with fewer observed entries for each free number there are many local minima
N_AGREE, TURN = (3, 2), 5  # starts that agree, for squares and other losses; every TURN-th turns atoms
N_ROUNDS, FINAL = 4, 1e-7  # times as many sweeps over small data, and the relative fall that ends the last polish
N_RIDGE, RIDGE_SETTLED = 20, 1e-4  # sweeps with a ridge at most, and the relative fall of the loss that ends them
N_PATH = 1  # sweeps over observed entries of each estimate of the path; not tuned
DEPENDENT = 1e-10  # squared distance to the span of the active atoms, relative to |M|^2, that counts as none

Callbacks = Sequence[Callable[[Progress], Any]]


@dataclass(frozen=True)
class Fit:
    """The data and the Spec of a fit; its steps are functions of both and of a State."""

    data: Storage
    spec: Spec
    scaled: dict[float, Weighted] = field(default_factory=dict, repr=False)  # the data by the scale of the loss

    @cached_property
    def small(self) -> Complete:
        """A complete stand-in for the data on which atoms are searched for, compressed if that halves it."""
        return compress(losses.complete(self.data), self.spec.n_atoms * (self.spec.atom_rank or 1) + EXTRA)

    def begin(self, seed: int) -> State:
        """Return the state before any step: no atoms."""
        shape, norm2 = self.data.shape, self.data.squared_norm
        first = BooleanCP(shape)  # blocks and Algorithm 1 as printed, which end with the pursuit, are no Columns
        is_columns = self.spec.refine and self.spec.atom_rank is not None
        return State(seed, path=(to_columns(first) if is_columns else first,), stop_reason="" if norm2 > 0 else "zero")

    def at_state(self, s: State) -> "Fit":
        """Return the fit with the state's scale of the loss; of data on disk, with squares near its best columns."""
        data, scale = self.data, s.scale
        if isinstance(data, LazyWeighted) and s.best is not None:
            fit = replace(self, data=data.near(s.best.matrices, scale))
        elif isinstance(data, Weighted) and scale and data.loss.scale != scale:
            if scale not in self.scaled:
                self.scaled[scale] = losses.with_loss(data, replace(data.loss, scale=scale))
            fit = replace(self, data=self.scaled[scale])
        else:
            return self
        fit.__dict__["small"] = self.small  # which does not depend on the scale
        return fit


def has_other_loss(data: Storage) -> TypeGuard[Weighted | LazyWeighted]:
    """Return True unless the loss of the data is the sum of squares."""
    return isinstance(data, Weighted | LazyWeighted) and data.loss.name != "squared"


# Algorithm 1


def pursue(fit: Fit, s: State) -> State:
    """Add the atom of steepest descent and correct the others (Alg. 1, lines 4-8)."""
    spec, begin, is_columns = fit.spec, time.perf_counter(), isinstance(s.path[-1], Columns)
    after = "search" if is_columns else "result"
    if len(s.path) > spec.n_atoms or s.stop_reason:  # the path begins with no atoms
        return replace(s.at(after), stop_reason=s.stop_reason or "n_atoms")
    W: Columns | BooleanCP | str
    if is_columns:
        W = add_columns(fit, s)
    elif spec.refine:  # all blocks and bits decided again
        W = next_block(fit.data, s.path[-1], spec, s.rng())
    else:  # Algorithm 1 as printed
        found = greedy_atom_search(fit.data.residual(s.path[-1]), spec, s.rng(), certify=spec.certify)
        W = corrected(fit.data, s.path[-1], found, spec.tol)
    if isinstance(W, str):
        return replace(s.at(after), stop_reason=W)
    norm2, mode = (fit.small if is_columns else fit.data).squared_norm, int(W.boolean_mode[-1])
    if isinstance(W, Columns):
        loss, n_ones, certificate = W.loss, int(W.matrices[mode][:, -1].sum()), np.nan
    else:
        loss, n_ones, certificate = W.squared_error, W.atoms[-1].n_ones, W.atoms[-1].certificate
    error = float(np.sqrt(max(loss, 0.0) / norm2))
    new = AtomRecord(loss / 2, error, mode, n_ones, certificate, time.perf_counter() - begin)
    reason = "explained" if loss <= spec.tol**2 * norm2 and len(s.path) < spec.n_atoms else ""
    return s.then(path=(*s.path, W), history=(*s.history, new), stop_reason=reason)


def add_columns(fit: Fit, s: State) -> Columns | str:
    """Return the columns with one atom more, all factors polished, or why there are none."""
    small, spec, W, rng = fit.small, fit.spec, s.path[-1], s.rng()
    found = greedy_atom_search(search_residual(small, W)[0], spec, rng)
    if found is None:
        return "no descent"
    longer, gain = starts.with_atom(W, found), found.descent**2 / found.atom.n_ones
    # the next atom moves the others anyway; other losses ask for a better start
    part = 0.0 if has_other_loss(fit.data) else PURSUED * gain / min(W.loss, small.squared_norm)
    V = polish(small, longer, max_iter=N_SWEEPS, tol=max(TOL, part))
    is_lower = V.loss < min(W.loss, small.squared_norm) - spec.tol**2 * small.squared_norm
    return V if is_lower and not V.is_dead().any() else "no descent"


def corrected(data: Storage, W: BooleanCP, found: Candidate | None, tol: float) -> BooleanCP | str:
    """Return the estimate with one atom more and all weights solved for again (lines 7-8), or why there is none."""
    if found is None or not found.descent**2 > tol**2 * data.squared_norm * found.atom.n_ones:
        return "no descent"
    atoms = (*W.atoms, found.atom)
    G, b = atom_system(data, atoms)
    L, failed = dpotrf(G, lower=1)  # its last pivot is the distance of the new atom to the span of the others
    if failed or L[-1, -1] ** 2 <= DEPENDENT * G[-1, -1]:
        return "dependent"
    inner = {"data_norm2": data.squared_norm, "data_inner": b, "data_gram": None if data.weights is None else G}
    return BooleanCP(W.shape, atoms, dpotrs(L, b, lower=1)[0], **inner)


# the stages after the pursuit, of atoms as Columns


def search(fit: Fit, s: State) -> State:
    """Relax, round and polish from one more start on `small`; if none agree, find some of the atoms again."""
    small, spec, rng, first = fit.small, fit.spec, s.rng(), s.path[-1]
    if not first.n_atoms:
        return s.at("result")
    here = replace(s, best=first, n_agree=1) if s.best is None else s
    n_init = MAX_STARTS[len(small.shape) > 2] if spec.n_init is None else spec.n_init
    n_regrown = int(first.n_atoms > 1 and spec.n_init is None)  # after all starts, atoms are found again
    is_agreed = s.n_done > 0 and here.n_agree >= max(2, min(s.n_done, n_init) // 5)  # two, or of many one in five
    if is_agreed or s.n_done >= n_init + n_regrown or here.columns.loss <= EXACT * small.squared_norm:
        return replace(here, n_agree=here.n_agree if s.n_done > 1 else 0).at("polish")  # one alone tells nothing
    if s.n_done < n_init:
        is_new = s.n_done > 0  # the first start is the path's last estimate, which cannot agree with itself
        found = refined_start(small, first, spec, rng, s.n_done, (1 + RIVAL) * here.columns.loss)
    else:
        found, is_new = starts.regrown(small, here.columns, spec, rng), False
    after = compared(here, found, small.squared_norm, is_new=is_new)
    # many solutions of a matrix leave only noise, which says nothing for one of them
    is_checked = len(small.shape) > 2 and (after.best is not here.best or s.n_done == 0)
    if is_checked and leaves_noise(small, after.columns, spec, rng):
        return replace(after, n_agree=after.n_agree if after.n_agree > 1 else 0).at("polish")
    return after


def polish_data(fit: Fit, s: State) -> State:
    """Make one sweep over the data, or all sweeps over small data in memory."""
    data, spec, W = fit.data, fit.spec, s.columns
    if s.is_settled:
        return s.at("observed")
    if s.n_done == 0 and has_other_loss(data):  # from here on its scale is that of the residual
        s = replace(s, scale=losses.make_loss(data.loss.name, *losses.entries(data, W)).scale)
        data = fit.at_state(s).data
    W = oriented(W, data) if s.n_done == 0 else W
    before, tol = np.inf if s.n_done == 0 else W.loss, tolerance(data, W)
    if data.n_passes == 0 and np.prod(data.shape, dtype=float) <= MAX_COMPILED:
        W, is_over = polish(data, W, max_iter=N_ROUNDS * spec.max_iter, tol=tol), True
    else:
        W, is_changed = sweep(data, W)
        is_over = is_settled(data, W, before, is_changed, tol if data.n_passes == 0 else TOL)
    if s.n_done and W.loss > before:  # rounding
        W, is_over = s.columns, True
    if is_over and isinstance(data, LazyWeighted):
        W, is_changed = exact_rows(data, W)
        is_over = not is_changed
    is_over |= s.n_done + 1 >= spec.max_iter
    W = starts.revive(data, W, spec, s.rng()) if is_over and not data.n_passes and W.is_dead().any() else W
    return s.then(best=replace(W, loss=max(W.loss, 0.0)), has_met=True, is_settled=is_over)


def search_observed(fit: Fit, s: State) -> State:
    """Relax, round and polish from one more start over data with gaps or weights, or under another loss.

    Under another loss than squares the first grows from a constant; others come from `small` and are polished under
    the loss, and every TURN-th is the best so far with atoms turned: on or off along another mode.
    """
    data, spec, rng, W = fit.data, fit.spec, s.rng(), s.columns
    if not isinstance(data, Weighted) or W.loss <= EXACT * data.squared_norm:
        return s.at("last")
    here = s if s.n_done else replace(s, best=W, n_agree=1, rivals=())
    is_squared = data.loss.name == "squared"
    is_few = n_observed(data) < FEW * len(W.owner) * sum(data.shape)
    n_tries = N_TRIES[not is_squared] + 10 * (is_few and here.n_agree < 2) if spec.n_init is None else spec.n_init
    if here.n_agree >= N_AGREE[not is_squared] or s.n_done >= n_tries:
        return s.at("last")
    rates = data if data.loss.is_rate else None
    if (rates is None or is_certain(data, W)) and leaves_noise(data, W, spec, rng, rates):
        return s.at("last")
    if not is_squared and s.n_done == 0:
        found = starts.from_mean(data, s.path[-1].n_atoms, spec, rng)
    elif not is_squared and s.n_done % TURN == 1:
        found = starts.turned(data, W, spec, rng)
    elif is_squared:
        found = starts.observed_start(data, s.path[-1], W, spec, rng, s.n_done)
    else:
        start = refined_start(fit.small, s.path[-1], spec, rng, s.n_done + 1)
        found = polish(data, oriented(start, data), max_iter=spec.max_iter, tol=POLISHED, below=W.loss)
    return compared(here, found, 10 * data.squared_norm, is_new=found is not W)  # polished less, so equal less closely


def move(fit: Fit, s: State) -> State:
    """Make the next move where bits are in doubt."""
    data, spec, W = fit.data, fit.spec, s.columns
    if is_certain(data, W) or s.n_done >= len(moves := moves_of(data, W)):
        return s.at("ridge")
    level, go = moves[s.n_done]
    found = go(data, fit.small, W, spec, s.rng()) if has_weak_atom(data, W, level) else W
    if found.loss < W.loss and starts.is_different(found, W):  # no start of the search has reached these
        s = replace(s, n_agree=0, rivals=starts.find_rivals(found, (W, *s.rivals)))
    return s.then(best=lowest(W, found))


def ridge(fit: Fit, s: State) -> State:
    """Polish once more if data are in memory; a ridge by the noise bounds what is fitted at missing entries."""
    data, spec, W = fit.data, fit.spec, s.columns
    if s.n_done or data.n_passes or W.loss <= EXACT * data.squared_norm:
        return s.at("neighbors" if spec.graphs else "result")
    has_gaps = n_observed(data) < np.prod(data.shape, dtype=float)
    if not has_gaps or not isinstance(data, Weighted) or data.loss.name != "squared" or data.nonnegative:
        found = polish(data, W, max_iter=spec.max_iter, tol=FINAL)
        return s.then(best=found if found.loss < W.loss else W)
    variance = noise_variance(data, W) if spec.sigma is None else spec.sigma**2
    found = polish(data, W, max_iter=min(spec.max_iter, N_RIDGE), tol=RIDGE_SETTLED, variance=variance)
    return s.then(best=found if found.loss < data.squared_norm else W)


def agree(fit: Fit, s: State) -> State:
    """Make sweeps in which bits prefer to agree with their neighbors, along modes with a graph."""
    if s.n_done or s.columns.loss <= EXACT * fit.data.squared_norm:
        return s.at("result")
    W, penalty = smooth(fit.data, s.columns, fit.spec.graphs, fit.spec.smoothness)
    return s.then(best=W, penalty=penalty)


# the result


def end(fit: Fit, s: State) -> State:
    """Return the state with the decomposition and the evidence for its bits."""
    data, spec = fit.data, fit.spec
    if isinstance(s.path[-1], Columns):
        best = s.columns
        if not s.has_met and best.n_atoms:  # the fit was stopped before a sweep over the data
            best = polish(data, oriented(best, data), max_iter=1)
        W = best.to_decomposition()
        if spec.graphs:
            smoothness = np.array(s.penalty or np.zeros(best.n_atoms))[~best.is_dead()]
            W = replace(W, trust=Trust(smoothness=smoothness), parameters={"adjacency": plain_graphs(spec.graphs)})
        W = by_size(W)
    else:
        W = s.path[-1]
    if has_other_loss(data):
        W = with_deviance(data, W)
        evidence = losses.judge(data, W)
    else:
        W = with_system(W, data)
        if data.weights is not None and W.data_norm2:  # the ridge may have left nothing of atoms of noise
            W = W[W.weights**2 * np.diag(W.observed_gram()) > spec.tol**2 * W.data_norm2]
        if spec.certify and (spec.refine or data.weights is None) and any(np.isnan(a.certificate) for a in W.atoms):
            W = certify(data, W)
        evidence = judge_bits(data, W)
    trust = replace(W.trust or Trust(), odds=log_odds(W, evidence), sigma=evidence.sigma, n_agree=s.n_agree)
    trust = replace(trust, stands_out=stands_out(W, evidence.sigma), n_rivals=len(s.rivals))
    return s.then(result=replace(W, trust=trust))


def path_of(fit: Fit, s: State) -> tuple[BooleanCP, ...]:
    """Return the pursuit's estimates as decompositions, swept once over data that are `Weighted` or nonnegative."""
    data, found = fit.at_state(s).data, []
    for W in s.path:
        if not isinstance(W, Columns):
            found.append(W if W.data_inner is not None else with_system(W, data))
        elif not isinstance(data, Weighted) and not data.nonnegative:
            found.append(with_system(W.to_decomposition(), fit.small))
        else:
            W = polish(data, oriented(W, data), max_iter=N_PATH) if W.n_atoms else W
            V = W.to_decomposition()
            found.append(with_deviance(data, V) if has_other_loss(data) else with_system(V, data))
    return tuple(found)


def with_deviance(data: Weighted | LazyWeighted, W: BooleanCP) -> BooleanCP:
    """Return W with its deviance under another loss than squares and, in memory, what shares of variance need."""
    W = with_system(W, losses.with_loss(data, SQUARES)) if isinstance(data, Weighted) else W
    return replace(W, deviance=losses.deviance_of(data, W))


STEPS: dict[str, Callable[[Fit, State], State]] = {
    "pursuit": pursue,
    "search": search,
    "polish": polish_data,
    "observed": search_observed,
    "last": move,
    "ridge": ridge,
    "neighbors": agree,
    "result": end,
}


def run(fit: Fit, s: State, callbacks: Callbacks, checkpoint: Checkpoint | None) -> State:
    """Make the steps from a state on (the first, or a saved one) until there is a result; tell and save each.

    A callback that returns True ends the fit with the best so far, and so does Ctrl-C (a second one quits); one that
    returns "refine" ends the pursuit. Nothing more is written once a fit is cut short: the file keeps the full fit.
    """
    is_cut = False
    try:
        while s.result is None:
            try:
                before, s = s, STEPS[s.stage](fit.at_state(s), s)
                if checkpoint is not None and not is_cut and s.result is None:
                    checkpoint.keep(s, is_due=s.stage != before.stage)
                answer = tell(fit, before, s, callbacks)
            except Stop:  # the step is abandoned; all before it counts
                if len(s.path) == 1:
                    raise  # there is nothing to keep yet
                answer = "refine" if s.stage == "pursuit" and not is_cut else "stop"
            except KeyboardInterrupt:
                if len(s.path) == 1 or is_cut:
                    raise
                answer = "interrupt"
            if answer and s.result is None:
                is_cut = True
                reason = {"stop": "stopped", "interrupt": "interrupted", "refine": "cut"}[answer]
                s = replace(s if reason == "cut" else s.at("result"), stop_reason=reason)  # a reason ends the pursuit
    finally:
        for callback in callbacks:
            getattr(callback, "close", lambda: None)()
        PRESENT.seen = None  # what comes now is no step of a fit
        if checkpoint is not None:
            checkpoint.flush()
    return s


def tell(fit: Fit, before: State, s: State, callbacks: Callbacks) -> str:
    """Show a step to the callbacks; return "stop" or "refine" if they ask for it."""
    if s.n_done == before.n_done or s.stage != before.stage or s.result is not None:  # nothing was done
        return ""
    if s.stage == "pursuit":
        error = s.history[-1].relative_error
    else:
        norm2 = (fit.small if s.stage == "search" else fit.at_state(s).data).squared_norm
        error = float(np.sqrt(max(s.columns.loss, 0.0) / norm2)) if norm2 > 0 else 0.0
    n_init = MAX_STARTS[len(fit.data.shape) > 2] + 1 if fit.spec.n_init is None else fit.spec.n_init
    most = {"pursuit": fit.spec.n_atoms, "search": n_init, "polish": fit.spec.max_iter, "ridge": 1}
    n_steps = len(moves_of(fit.data, s.columns)) if s.stage == "last" else most.get(s.stage)
    PRESENT.seen, answer = Progress(s.stage, s.n_done, n_steps, error), ""
    for callback in callbacks:
        try:
            said = callback(PRESENT.seen)
        except Stop:
            raise
        except KeyboardInterrupt:
            said = True
        if isinstance(said, bool | np.bool_) and said:
            answer = "stop"
        elif s.stage == "pursuit" and isinstance(said, str) and said == "refine":
            answer = answer or "refine"
    return answer
