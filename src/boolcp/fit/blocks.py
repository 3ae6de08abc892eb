"""Beyond the paper: Algorithm 1 for block atoms, with back-fitting of all of them after each."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from boolcp.fit.atom_search import residual_gram
from boolcp.fit.backfit import (
    Backfit,
    Term,
    as_float,
    assemble,
    bits_of,
    decide_bits,
    finish,
    in_order,
)
from boolcp.fit.pursuit import pursue
from boolcp.fit.state import Pursuit, record
from boolcp.program.flips import DEPENDENT, climb_ratio
from boolcp.program.grams import Gram, Quadratic
from boolcp.program.maxcut import maximize
from boolcp.result.atoms import BooleanCP
from boolcp.storage.protocol import Storage, Tensor

MAX_TRIALS = 3  # atoms that are sought where one vanishes again; by a benchmark of denoising
N_ALTERNATIONS = 10  # of bits and block over observed entries; by a benchmark of denoising


class RunState(NamedTuple):
    """The terms of an estimate, and |X - W|^2."""

    terms: tuple[Term, ...]
    loss: float


def block_pursuit(
    data: Storage,
    n_atoms: int,
    modes: Sequence[int],
    rng: np.random.Generator,
    *,
    tol: float = 1e-6,
    start: Pursuit | None = None,
    **options: Any,
) -> Iterator[Pursuit]:
    """Run Alg. 1 with back-fitting: after each atom a few sweeps refit the real blocks and decide the bits again.

    The options are the `criterion` that the greedy step maximizes, and whether to `certify` it.
    """
    empty = BooleanCP(data.shape, data_norm2=data.squared_norm, data_inner=np.zeros(0))
    first = Pursuit((empty,), memory=RunState((), data.squared_norm)) if start is None else start
    if not data.squared_norm > 0:
        yield replace(first, stop_reason="zero")
        return
    yield first
    run = Run(data, tuple(modes), rng, tol=tol, **options)
    yield from pursue(first, n_atoms, lambda pursuit: run.advance(pursuit.memory), partial(accept, data, tol=tol))


def accept(data: Storage, pursuit: Pursuit, found: RunState | None, *, tol: float) -> Pursuit:
    """Return the pursuit with the estimate that was found, or why it stops."""
    if found is None:
        return replace(pursuit, stop_reason="no descent")
    W, norm2 = finish(data, found.terms), data.squared_norm
    history = (*pursuit.history, record(W.atoms[-1], W.squared_error, norm2))
    return Pursuit((*pursuit.path, W), history, "explained" if W.squared_error <= tol**2 * norm2 else "", found)


class Run:
    """How estimates with one atom more are made: `advance` adds an atom and back-fits all of them."""

    def __init__(
        self,
        data: Storage,
        modes: tuple[int, ...],
        rng: np.random.Generator,
        *,
        tol: float,
        criterion: str = "normalized",
        certify: bool = True,
    ) -> None:
        self.data, self.modes, self.rng = data, modes, rng
        self.criterion, self.certify = criterion, certify and data.is_complete
        self.fitting = Backfit(data, tol=tol)

    def advance(self, state: RunState) -> RunState | None:
        """Return the state after one more atom and back-fitting; None when no atom lowers the loss."""
        for is_joint in (True, False) if self.fitting.observed is None else (False,):
            terms = self.extend(state.terms, is_joint)
            if len(terms) > len(state.terms):
                loss = self.fitting.measure(terms)
                if loss < state.loss:
                    return RunState(tuple(in_order(term) for term in terms), float(loss))
        return None

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
        """Return the term with the largest gain over the modes (Alg. 2, line 10); None without gain."""
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
        n_ones = z @ P @ z
        B = as_float(residual.contract(mode, (P @ z)[:, None]))[0]
        gain = float(np.vdot(B, B) / n_ones) if n_ones > DEPENDENT * z.sum() else 0.0
        if not gain > 0:
            return None, 0.0
        certificate = float("nan") if bound is None else min(gain / bound, 1.0)
        return Term(mode, z, B / n_ones, certificate=float(certificate)), gain

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
