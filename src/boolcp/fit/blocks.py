"""Beyond the paper: Algorithm 1 for block atoms, with back-fitting of all of them after each.

With ``atom_rank="auto"``, where the noise decides the rank of a block, greedy runs compete by their estimated risk.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from boolcp.fit.atom_search import residual_gram
from boolcp.fit.backfit import (
    Backfit,
    BlockRule,
    Term,
    as_float,
    assemble,
    bits_of,
    decide_bits,
    finish,
    in_order,
    noise_rule,
    terms_of,
)
from boolcp.fit.noise import noise_level
from boolcp.fit.pursuit import pursue
from boolcp.fit.shrinkage import signal_subspaces
from boolcp.fit.state import Pursuit, record
from boolcp.program.flips import DEPENDENT, best_boolean, climb_ratio
from boolcp.program.grams import Gram, Quadratic
from boolcp.program.maxcut import maximize
from boolcp.result.atoms import BooleanCP
from boolcp.storage.protocol import Storage, Tensor

# chosen by a benchmark of denoising, now a part of benchmarks/bench_default.py
MAX_TRIALS = 3
N_ALTERNATIONS = 10
SHORT = 2  # a mode with at most this many entries per atom gets its own run; chosen on one noise seed (901)
FAR_BEHIND = 2  # a run that needs this many more atoms than the best for the same risk is abandoned

Assessed = tuple[float, float, BooleanCP]  # the estimated risk, the loss, and the estimate


class RunState(NamedTuple):
    """The state of one greedy sequence of estimates: its terms, their criterion, and whether it was abandoned."""

    terms: tuple[Term, ...]
    criterion: float
    is_over: bool = False


def block_pursuit(
    data: Storage,
    n_atoms: int,
    modes: Sequence[int],
    rng: np.random.Generator,
    *,
    atom_rank: str | None,
    sigma: float | None = None,
    tol: float = 1e-6,
    start: Pursuit | None = None,
    **options: Any,
) -> Iterator[Pursuit]:
    """Run Alg. 1 with back-fitting: after each atom a few sweeps refit the real blocks and decide the bits again.

    `atom_rank` is None for dense blocks, or "auto" for blocks whose rank the noise level `sigma` decides, which is
    estimated by default and needs complete data. The options are the `criterion` that the greedy step maximizes, and
    whether to `certify` it. For None the loss falls along the path, for "auto" the estimated risk does, and the path
    ends ("no descent") where no further atom lowers it.
    """
    first = Pursuit((BooleanCP(data.shape, data_norm2=data.squared_norm, data_inner=np.zeros(0)),))
    if not data.squared_norm > 0:
        yield replace(first, stop_reason="zero")
        return
    starts = competing_starts(data, n_atoms, tuple(modes), atom_rank, sigma)
    runs = [Run(storage, choice, rule, rng, tol=tol, **options) for storage, choice, rule in starts]
    first = restart(data, runs, first if start is None else start)
    yield first
    yield from pursue(first, n_atoms, partial(advance, data, runs), partial(accept, tol=tol))


def restart(data: Storage, runs: "list[Run]", start: Pursuit) -> Pursuit:
    """Return the pursuit with the states of its runs, from its last estimate if it does not have them."""
    if start.memory is not None:
        return start
    terms = tuple(terms_of(start.W))
    risk = runs[0].fitting.measure(terms) if terms else data.squared_norm
    states = [RunState(terms, risk)] + [RunState((), run.data.squared_norm, bool(terms)) for run in runs[1:]]
    return replace(start, memory=((risk,), tuple(states)))


def advance(data: Storage, runs: "list[Run]", pursuit: Pursuit) -> tuple[Assessed | None, tuple[RunState, ...]]:
    """Return the lowest risk with one more atom, its loss and estimate (None if there is none), and all runs' states.

    `risks` are the lowest with 0, 1, .. atoms. A run ends when it finds no atom or is FAR_BEHIND atoms late.
    """
    risks, states = pursuit.memory
    found: list[Assessed] = []
    advanced = []
    for run, state in zip(runs, states, strict=True):
        state = state if state.is_over else run.advance(state)
        if not state.is_over:
            found.append(assess(data, run.rule, state.terms))
            state = state._replace(is_over=len(risks) >= FAR_BEHIND and found[-1][0] > risks[-FAR_BEHIND])
        advanced.append(state)
    return min(found, key=lambda result: result[0], default=None), tuple(advanced)


def accept(pursuit: Pursuit, found: tuple[Assessed | None, tuple[RunState, ...]], *, tol: float) -> Pursuit:
    """Return the pursuit with the estimate that was found, or why it stops."""
    (best, states), (risks, _) = found, pursuit.memory
    if best is None or not best[0] < risks[-1]:
        return replace(pursuit, stop_reason="no descent")
    risk, error2, W = best
    norm2 = float(W.data_norm2 or 0.0)
    history = (*pursuit.history, record(W.atoms[-1], error2, norm2))
    reason = "explained" if error2 <= tol**2 * norm2 else ""
    return Pursuit((*pursuit.path, W), history, reason, ((*risks, risk), states))


def assess(data: Storage, rule: BlockRule, terms: Sequence[Term]) -> Assessed:
    """Return the estimated risk of a run's terms on the full data (the loss, unless "auto"), their loss, and W."""
    W = finish(data, rule.expand(terms))
    error2 = W.squared_error
    return error2 + 2 * rule.sigma**2 * rule.base_dof + rule.penalty(terms), error2, W


class Run:
    """How one greedy sequence of estimates is made; `advance` adds an atom and back-fits all of them."""

    def __init__(
        self,
        data: Storage,
        modes: tuple[int, ...],
        rule: BlockRule,
        rng: np.random.Generator,
        *,
        tol: float,
        criterion: str = "normalized",
        certify: bool = True,
    ) -> None:
        self.data, self.modes, self.rule, self.rng = data, modes, rule, rng
        self.criterion, self.certify = criterion, certify and data.is_complete
        self.fitting = Backfit(data, rule, tol=tol)

    def advance(self, state: RunState) -> RunState:
        """Return the state after one more atom and back-fitting; it is over when no atom lowers the criterion."""
        for is_joint in (True, False) if self.fitting.observed is None else (False,):
            terms = self.extend(state.terms, is_joint)
            if len(terms) > len(state.terms):
                criterion = self.fitting.measure(terms)
                if criterion < state.criterion:
                    return RunState(tuple(in_order(term) for term in terms), float(criterion))
        return state._replace(is_over=True)

    def extend(self, terms: Sequence[Term], is_joint: bool) -> list[Term]:
        """Return the terms with one more, back-fitted. An atom may vanish in between: then a different one is found."""
        longer = list(terms)
        for _ in range(MAX_TRIALS):
            term = self.find(longer, is_joint)
            if term is None:
                break
            longer = self.fitting.recode(self.fitting.backfit([*longer, term]))
            if len(longer) > len(terms):
                break
        return longer

    def find(self, terms: Sequence[Term], is_joint: bool) -> Term | None:
        """Return the term with the largest gain minus penalty over the modes (Alg. 2, line 10); None without gain."""
        residual = self.data.residual(assemble(self.data.shape, terms))
        best, best_gain = None, self.fitting.min_gain
        for mode in self.modes:
            own = [term for term in terms if term.mode == mode] if is_joint else []
            term, gain = self.find_along(residual, mode, own)
            if gain > best_gain:
                best, best_gain = term, gain
        return best

    def find_along(self, residual: Tensor, mode: int, own: list[Term]) -> tuple[Term | None, float]:
        """Return the term along one mode and its gain when the blocks of `own` terms are refitted with it.

        With P the projection that removes the bits of `own`, the gain of z with a dense block is z'PCPz / z'Pz.
        """
        if self.fitting.observed is not None:
            return self.find_observed(residual, mode)
        C, is_exact = residual_gram(residual, mode)
        P, C = C.without(bits_of(own) if own else np.zeros((len(C), 0)))
        z, bound = best_code(C, P, self.rng, self.criterion, self.certify and is_exact)
        best, best_gain = None, 0.0
        for _ in range(N_ALTERNATIONS):
            n_ones = z @ P @ z
            B = as_float(residual.contract(mode, (P @ z)[:, None]))[0]
            fitted = self.rule.fit(B, Term(mode, z, B), n_ones) if n_ones > DEPENDENT * z.sum() else None
            if fitted is None or not self.rule.stands_out(B, fitted, n_ones):
                break
            descent, size2 = np.vdot(B, fitted.V), np.vdot(fitted.V, fitted.V)
            gain = 2 * descent - n_ones * size2 - self.rule.penalty([fitted])
            if gain <= best_gain:
                break
            certificate = float("nan") if bound is None else min(descent**2 / (size2 * n_ones * bound), 1.0)
            best, best_gain = fitted._replace(certificate=float(certificate)), gain
            if self.rule.atom_rank is None:
                break
            z, sign = best_boolean(P @ residual.project(mode, fitted.V[None])[:, 0], self.criterion)
            if sign < 0 or np.array_equal(z, best.z):
                break
        return best, best_gain

    def find_observed(self, residual: Tensor, mode: int) -> tuple[Term | None, float]:
        """Return the dense term along one mode over the observed entries, and its gain; bits and block in turn."""
        observed, (C, _) = cast(Tensor, self.fitting.observed), residual_gram(residual, mode)
        z = maximize(C, self.rng, certify=False).z
        best, best_gain = None, 0.0
        for _ in range(N_ALTERNATIONS):
            B = as_float(residual.contract(mode, z[:, None].astype(float)))[0]
            counts = observed.contract(mode, z[:, None].astype(float))[0]
            V = np.where(counts > 0.5, B / np.maximum(counts, 1.0), 0.0)
            if np.vdot(B, V) <= best_gain * (1 + 1e-9):
                break
            best, best_gain = Term(mode, z, V), float(np.vdot(B, V))
            decided = decide_bits(residual, mode, [best], self.fitting.observed)[0]
            if decided is None or decided is best:
                break
            z = decided.z
        return best, best_gain


Start = tuple[Storage, tuple[int, ...], BlockRule]


def competing_starts(
    data: Storage, n_atoms: int, modes: tuple[int, ...], atom_rank: str | None, sigma: float | None
) -> list[Start]:
    """Return (data, modes, rule) of the runs whose estimates compete at each number of atoms.

    With "auto" these are a run over all modes and one over each short mode alone: a few atoms may tell all its
    entries apart, which pays only when they are all found.
    """
    if atom_rank != "auto":
        return [(data, modes, BlockRule(atom_rank))]
    sigma = noise_level(data) if sigma is None else float(sigma)
    short = [(mode,) for mode in modes if data.shape[mode] <= SHORT * n_atoms and len(modes) > 1]
    if not short:
        return [(data, modes, noise_rule(data, sigma))]
    starts = []
    for storage, sizes in signal_subspaces(data, sigma):
        rule = noise_rule(data, sigma, sizes)
        if storage is data:
            starts += [(data, choice, rule) for choice in (modes, *short)]
        else:
            within = replace(rule, bases=tuple(storage.bases))
            starts += [(storage.opened(choice[0]), choice, within) for choice in short]
    return starts


def best_code(
    C: Gram, P: Quadratic, rng: np.random.Generator, criterion: str, certify: bool
) -> tuple[np.ndarray, float | None]:
    """Return the z that maximizes z'Cz / z'Pz (or z'Cz if published), and a bound on it (None if not proved).

    P is a projection and C = PCP, so the largest eigenvalue of C bounds the ratio. The ratio is maximized by flips
    from the z with the largest z'Cz / z'z and from that with the largest z'Cz.
    """
    if criterion == "published":
        published = maximize(C, rng, certify=certify, is_ratio=False)
        return published.z, published.bound
    published = maximize(C, rng, certify=False, is_ratio=False, effort="quick")  # only a start
    effort = "quick" if C.is_thin else "default"  # bits of a long mode are decided again later
    normalized = maximize(C, rng, certify=certify, is_ratio=True, effort=effort)
    _, z = max((climb_ratio(C, P, start.z) for start in (normalized, published)), key=lambda found: found[0])
    return z, normalized.bound
