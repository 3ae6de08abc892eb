"""Beyond the paper: block atoms with back-fitting, and blocks whose rank the noise decides (`atom_rank="auto"`).

After each atom of Algorithm 1 a few sweeps refit the real blocks of all atoms and decide their bits again, mode by
mode: given the bits, the blocks are a least-squares problem, and given the blocks each row of bits is one. With missing
entries each entry of a dense block and each row of bits has normal equations of its own.

With ``atom_rank="auto"`` the singular values of a block are shrunk, those below the edge of pure noise to zero, and
everything is chosen by Stein's estimate of the risk, |X - W|^2 + 2 sigma^2 (degrees of freedom).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple, cast

import numpy as np

from boolcp.contractions import gram_product, khatri_rao
from boolcp.fit.atom_search import best_boolean, make_atom, residual_gram
from boolcp.fit.noise import noise_level
from boolcp.fit.polish import best_bits
from boolcp.fit.pursuit import pursue
from boolcp.fit.relax import solve_rows
from boolcp.fit.shrinkage import shrink_block, signal_subspaces
from boolcp.fit.state import Pursuit, record
from boolcp.fit.weights import atom_system
from boolcp.program.flips import DEPENDENT, climb_ratio
from boolcp.program.grams import Gram, Quadratic
from boolcp.program.maxcut import maximize
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.storage.protocol import ObservedStorage, Storage, Tensor

# chosen by benchmarks/bench_real.py
MAX_SWEEPS = 50
SETTLED = 1e-3  # relative fall of the criterion in a sweep that ends back-fitting
MAX_TRIALS = 3
N_ALTERNATIONS = 10
SHORT = 2  # a mode with at most this many entries per atom gets its own run; chosen on one noise seed (901)
FAR_BEHIND = 2  # a run that needs this many more atoms than the best for the same risk is abandoned


class Term(NamedTuple):
    """c z (x) V of one atom: V with its size, as an array over the other modes and, unless dense, as factors."""

    mode: int
    z: np.ndarray
    V: np.ndarray
    factors: tuple[np.ndarray, ...] | None = None
    dof: float = 0.0
    certificate: float = float("nan")


class RunState(NamedTuple):
    """The state of one greedy sequence of estimates: its terms, their criterion, and whether it was abandoned."""

    terms: tuple[Term, ...]
    criterion: float
    is_over: bool = False


Fits = list[Term | None]  # the terms of one mode, None for those that vanished
Assessed = tuple[float, float, BooleanCP]  # the estimated risk, the loss, and the estimate


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

    Parameters
    ----------
    data : Storage
        The tensor X; complete, unless `atom_rank` is None.
    n_atoms : int
        The largest number K of atoms.
    modes : sequence of int
        The modes that may be Boolean.
    rng : numpy.random.Generator
        Source of randomness.
    atom_rank : None or "auto"
        Dense blocks, or blocks whose rank the noise level decides.
    sigma : float, optional
        Standard deviation of the noise, for "auto"; estimated from the data by default.
    tol : float
        The pursuit ends when the norm of X - W falls below `tol` times that of X.
    start : Pursuit, optional
        A pursuit with fewer atoms to continue.
    **options
        The `criterion` that the greedy step maximizes, and whether to `certify` it.

    Yields
    ------
    Pursuit
        ``path[k]`` is the back-fitted estimate with k atoms. For None the loss falls along the path, for "auto" the
        estimated risk does, and the path ends ("no descent") where no further atom lowers it.
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
    risk = runs[0].measure(terms) if terms else data.squared_norm
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


def assess(data: Storage, rule: "BlockRule", terms: Sequence[Term]) -> Assessed:
    """Return the estimated risk of a run's terms on the full data (the loss, unless "auto"), their loss, and W."""
    W = finish(data, rule.expand(terms))
    G = W.inner_products() if W.data_gram is None else W.data_gram
    inner = np.asarray(W.data_inner)
    error2 = max(float(data.squared_norm - 2 * W.weights @ inner + W.weights @ G @ W.weights), 0.0)
    return error2 + 2 * rule.sigma**2 * rule.base_dof + rule.penalty(terms), error2, W


class Run:
    """How one greedy sequence of estimates is made; `advance` adds an atom and back-fits all of them."""

    def __init__(
        self,
        data: Storage,
        modes: tuple[int, ...],
        rule: "BlockRule",
        rng: np.random.Generator,
        *,
        tol: float,
        criterion: str = "normalized",
        certify: bool = True,
    ) -> None:
        self.data, self.modes, self.rule, self.rng = data, modes, rule, rng
        self.criterion, self.certify = criterion, certify and data.is_complete
        self.min_gain = tol**2 * data.squared_norm
        self.observed = None if data.is_complete else cast(ObservedStorage, data).observed()

    def advance(self, state: RunState) -> RunState:
        """Return the state after one more atom and back-fitting; it is over when no atom lowers the criterion."""
        for is_joint in (True, False) if self.observed is None else (False,):
            terms = self.extend(state.terms, is_joint)
            if len(terms) > len(state.terms):
                criterion = self.measure(terms)
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
            longer = self.recode(self.backfit([*longer, term]))
            if len(longer) > len(terms):
                break
        return longer

    def recode(self, terms: list[Term]) -> list[Term]:
        """Return the terms with the last and its most similar one replaced by a better code of the same slices, if any.

        Two atoms of one mode distinguish three kinds of slices, V, V' and V + V'. Any two may be the blocks, and
        back-fitting does not lead from one choice to another. The slice with the worst fit may be a kind of its own.
        """
        last = terms[-1]
        partners = [term for term in terms[:-1] if term.mode == last.mode]
        if not partners:
            return terms
        first = max(partners, key=lambda term: (term.z & last.z).sum() / np.sqrt(term.z.sum()))
        rest = [term for term in terms if term is not first and term is not last]
        residual = self.data.residual(assemble(self.data.shape, rest))
        left = residual_gram(self.data.residual(assemble(self.data.shape, terms)), last.mode)[0].diagonal()
        worst = np.arange(len(left)) == np.argmax(left)
        kinds = [z for z in (first.z & ~last.z, last.z & ~first.z, first.z & last.z, worst) if z.any()]
        blocks = as_float(residual.contract(last.mode, np.stack(kinds, axis=1).astype(float)))
        fits = [self.rule.fit(B, Term(last.mode, z, B), z.sum()) for B, z in zip(blocks, kinds, strict=True)]
        pair = self.best_pair(residual, last.mode, [term for term in fits if term is not None])
        if pair is None:
            return terms
        found = self.backfit_mode([*rest, *pair], last.mode)[0]
        is_better = len(found) == len(terms) and self.measure(found) < self.measure(terms)
        return self.backfit(found) if is_better else terms

    def best_pair(self, residual: Tensor, mode: int, terms: list[Term]) -> list[Term] | None:
        """Return the two terms that fit a residual best, with their bits and blocks decided again; None if none do."""
        best, best_cost = None, np.inf
        for pair in combinations(terms, 2):
            decided = alive(decide_bits(residual, mode, pair, self.observed))
            if len(decided) == 2:
                B = as_float(residual.contract(mode, bits_of(decided)))
                for cost, fitted in self.refits(mode, B, decided):
                    if cost < best_cost and None not in fitted:
                        best, best_cost = alive(fitted), cost
        return best

    def measure(self, terms: Sequence[Term]) -> float:
        """Return the criterion: |X - W|^2 + penalty."""
        return self.data.residual(assemble(self.data.shape, terms)).squared_norm + self.rule.penalty(terms)

    def find(self, terms: Sequence[Term], is_joint: bool) -> Term | None:
        """Return the term with the largest gain minus penalty over the modes (Alg. 2, line 10); None without gain."""
        residual = self.data.residual(assemble(self.data.shape, terms))
        best, best_gain = None, self.min_gain
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
        if self.observed is not None:
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
        observed, (C, _) = cast(Tensor, self.observed), residual_gram(residual, mode)
        z = maximize(C, self.rng, certify=False).z
        best, best_gain = None, 0.0
        for _ in range(N_ALTERNATIONS):
            B = as_float(residual.contract(mode, z[:, None].astype(float)))[0]
            counts = observed.contract(mode, z[:, None].astype(float))[0]
            V = np.where(counts > 0.5, B / np.maximum(counts, 1.0), 0.0)
            if np.vdot(B, V) <= best_gain * (1 + 1e-9):
                break
            best, best_gain = Term(mode, z, V), float(np.vdot(B, V))
            decided = decide_bits(residual, mode, [best], self.observed)[0]
            if decided is None or decided is best:
                break
            z = decided.z
        return best, best_gain

    def backfit(self, terms: list[Term]) -> list[Term]:
        """Return the terms after sweeps over the modes; the criterion never rises."""
        criterion = self.measure(terms)
        for _ in range(MAX_SWEEPS):
            previous = criterion
            for mode in sorted({term.mode for term in terms}):
                terms, fall = self.backfit_mode(terms, mode)
                criterion -= fall
            if previous - criterion <= SETTLED * previous or criterion <= self.min_gain:
                break
        return terms if self.rule.atom_rank == "auto" or not terms else reweight(self.data, terms)

    def backfit_mode(self, terms: list[Term], mode: int) -> tuple[list[Term], float]:
        """Return the terms with the blocks and bits of one mode decided again, and the fall of the criterion."""
        places = [k for k, term in enumerate(terms) if term.mode == mode]
        own: Fits = [terms[k] for k in places]
        residual = self.data.residual(assemble(self.data.shape, [term for term in terms if term.mode != mode]))
        B = as_float(residual.contract(mode, bits_of(alive(own))))
        before = self.cost(mode, B, own)
        after, own = min([(before, own), *self.refits(mode, B, own)], key=lambda option: option[0])
        moved = decide_bits(residual, mode, own, self.observed)
        if any(new is not old for new, old in zip(moved, own, strict=True)):
            left = [k for k, term in enumerate(moved) if term is not None]
            B = np.zeros_like(B)
            if left:
                B[left] = residual.contract(mode, bits_of(alive(moved)))
            after, own = min([(after, own), *self.refits(mode, B, moved)], key=lambda option: option[0])
        every: Fits = list(terms)
        for place, term in zip(places, own, strict=True):
            every[place] = term
        return alive(every), before - after

    def cost(self, mode: int, B: np.ndarray, terms: Sequence[Term | None]) -> float:
        """Return |R - sum_k z_k (x) V_k|^2 - |R|^2 + penalty for the terms of one mode and B_k = R x_n z_k."""
        own, places = alive(terms), [k for k, term in enumerate(terms) if term is not None]
        if not own:
            return 0.0
        Z, V = bits_of(own), blocks_of(own)
        H = bit_products(mode, Z, self.observed)
        squares = np.sum(H * (V @ V.T)) if H.ndim == 2 else np.einsum("kj,jkl,lj->", V, H, V, optimize=True)
        return float(squares - 2 * np.vdot(B[places], V)) + self.rule.penalty(own)

    def refits(self, mode: int, B: np.ndarray, terms: Sequence[Term | None]) -> list[tuple[float, Fits]]:
        """Return pairs (cost, terms) of one mode with blocks fitted to B_k = R x_n z_k; None where a block vanished.

        Dense blocks are solved for jointly, (Z'Z) V = B. Shrunk blocks are fitted one after another, once from the
        blocks as they are and once from the dense solution.
        """
        own, places = alive(terms), [k for k, term in enumerate(terms) if term is not None]
        if not own:
            return [(0.0, list(terms))]
        Z = bits_of(own)
        dense = solve_rows(bit_products(mode, Z, self.observed), B[places].reshape(len(own), -1).T).T
        if self.rule.atom_rank is None:
            blocks = dense.reshape(-1, *B.shape[1:])
            options: list[Fits] = [[term._replace(V=V, factors=None) for term, V in zip(own, blocks, strict=True)]]
        else:
            starts = [blocks_of(own), dense] if len(own) > 1 else [dense]
            options = [self.refit_in_turn(B[places], Z.T @ Z, own, start) for start in starts]
        by_place = [dict(zip(places, option, strict=True)) for option in options]
        results = [[fitted.get(k) for k in range(len(terms))] for fitted in by_place]
        return [(self.cost(mode, B, fitted), fitted) for fitted in results]

    def refit_in_turn(self, B: np.ndarray, G: np.ndarray, terms: list[Term], V: np.ndarray) -> Fits:
        """Return the terms with one block after another fitted, given the others; V (K, .) are the first blocks."""
        results, V = [], V.copy()
        for k, term in enumerate(terms):
            others = (G[k] @ V - G[k, k] * V[k]).reshape(B.shape[1:])
            fitted = self.rule.fit(B[k] - others, term, G[k, k])
            V[k] = 0.0 if fitted is None else fitted.V.ravel()
            results.append(fitted)
        return results


# how a block is fitted


@dataclass(frozen=True)
class BlockRule:
    """How a block is fitted: dense (None), or by shrinkage ("auto") with sigma and the effective sizes of the modes.

    With `bases` the blocks of a run have the coordinates of these in place of entries.
    """

    atom_rank: str | None
    sigma: float = 0.0
    sizes: tuple[int, ...] = ()
    base_dof: float = 0.0
    bases: tuple[np.ndarray, ...] = ()

    def penalty(self, terms: Sequence[Term]) -> float:
        """Return 2 sigma^2 (degrees of freedom); zero unless the rank is chosen by the noise."""
        return 2 * self.sigma**2 * sum(term.dof for term in terms)

    def stands_out(self, B: np.ndarray, term: Term, n_ones: float) -> bool:
        """Return True if the leading product of a block whose bits were chosen exceeds noise, sigma sum_n sqrt(d_n)."""
        if self.atom_rank != "auto":
            return True
        if B.ndim < 3 or term.factors is None:
            size2 = np.linalg.norm(B, 2) ** 2 / n_ones
        else:
            size2 = n_ones * gram_product(term.factors).max()
        return bool(size2 > (self.sigma * np.sqrt(self.sizes).sum()) ** 2)

    def fit(self, B: np.ndarray, term: Term, n_ones: float) -> Term | None:
        """Return `term` with the V that fits B = R x_n z best, n_ones |V|^2 - 2 <B, V> + penalty; None if none does."""
        if self.atom_rank == "auto":
            sizes = self.sizes[: term.mode] + self.sizes[term.mode + 1 :]
            fitted = shrink_block(B / np.sqrt(n_ones), self.sigma, sizes, term.factors)
            if fitted is None:
                return None
            factors, dof = fitted
            factors = (factors[0] / np.sqrt(n_ones), *factors[1:])
            return term._replace(V=sum_products(factors), factors=factors, dof=dof)
        return term._replace(V=B / n_ones)

    def expand(self, terms: Sequence[Term]) -> Sequence[Term]:
        """Return the terms of a run with blocks over the entries of the modes."""
        if not self.bases:
            return terms
        expanded = []
        for term in terms:
            bases = self.bases[: term.mode] + self.bases[term.mode + 1 :]
            factors = tuple(U @ A for U, A in zip(bases, term.factors or (), strict=True))
            expanded.append(term._replace(V=sum_products(factors), factors=factors))
        return expanded


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


def noise_rule(data: Storage, sigma: float, sizes: Sequence[int] | None = None) -> BlockRule:
    """Return the rule that shrinks blocks, of data in subspaces of these sizes."""
    kept = tuple(data.shape if sizes is None else sizes)
    return BlockRule("auto", sigma, kept, float(sum(r * (d - r) for r, d in zip(kept, data.shape, strict=True))))


# codes, bits and sizes of terms


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


def bit_products(mode: int, Z: np.ndarray, observed: Tensor | None = None) -> np.ndarray:
    """Return Z'Z (K, K), or one such matrix for each entry of a block over its observed rows, (entries, K, K)."""
    if observed is None:
        return Z.T @ Z
    K = Z.shape[1]
    pairs = (Z[:, :, None] * Z[:, None, :]).reshape(len(Z), -1)
    return observed.contract(mode, pairs).reshape(K, K, -1).transpose(2, 0, 1)


def block_products(mode: int, V: np.ndarray, observed: Tensor | None = None) -> np.ndarray:
    """Return <V_k, V_l> (K, K) of blocks, or one such matrix for each row over its observed entries, (d_n, K, K)."""
    flat = V.reshape(len(V), -1)
    if observed is None:
        return flat @ flat.T
    pairs = (flat[:, None] * flat).reshape(-1, *V.shape[1:])
    return as_float(observed.project(mode, pairs)).reshape(-1, len(V), len(V))


def decide_bits(residual: Tensor, mode: int, terms: Sequence[Term | None], observed: Tensor | None = None) -> Fits:
    """Return the terms of one mode with each row of bits decided jointly; None for a term without any bit."""
    own, places = alive(terms), [k for k, term in enumerate(terms) if term is not None]
    if not own:
        return list(terms)
    V = np.stack([term.V for term in own])
    Q = as_float(residual.project(mode, V))
    S = block_products(mode, V, observed)
    bits = best_bits(S, Q, bits_of(own)).astype(bool)
    decided = list(terms)
    for z, k, term in zip(bits.T, places, own, strict=True):
        if not z.any():
            decided[k] = None
        elif not np.array_equal(z, term.z):
            decided[k] = term._replace(z=z, certificate=float("nan"))
    return decided


def reweight(data: Storage, terms: list[Term]) -> list[Term]:
    """Return the terms with their sizes solved for jointly (Alg. 1, line 7): the residual is orthogonal to each."""
    W = assemble(data.shape, terms)
    gram, rhs = atom_system(data, W.atoms)
    scales = solve_rows(gram, rhs[None])[0]
    if not 2 * (scales - 1) @ rhs - scales @ gram @ scales + gram.sum() > 0:
        return terms
    return [scale_term(term, scale) for term, scale in zip(terms, scales, strict=True)]


def scale_term(term: Term, scale: float) -> Term:
    """Return the term times a number."""
    factors = None if term.factors is None else (scale * term.factors[0], *term.factors[1:])
    return term._replace(V=scale * term.V, factors=factors)


def assemble(shape: tuple[int, ...], terms: Sequence[Term]) -> BooleanCP:
    """Return the sum of the terms as block atoms that carry their size, with weights one."""
    atoms = tuple(Atom(term.mode, term.z, block=term.V) for term in terms)
    return BooleanCP(shape, atoms, np.ones(len(atoms)))


def finish(data: Storage, terms: Sequence[Term]) -> BooleanCP:
    """Return the sum of the terms as a decomposition of `data`: atoms of norm one in their real part, and weights."""
    atoms, weights = [], []
    for term in terms:
        size = float(np.linalg.norm(term.V))
        unit = scale_term(term, 1 / size) if size > 0 else term
        column = (unit.V[:, None],) if unit.V.ndim == 1 else unit.V
        V = column if unit.factors is None else unit.factors
        atoms.append(make_atom(term.mode, term.z, V, term.certificate))
        weights.append(size)
    gram, inner = atom_system(data, tuple(atoms))
    known = None if data.is_complete else gram
    parts: dict[str, Any] = {"data_norm2": data.squared_norm, "data_inner": inner, "data_gram": known}
    return BooleanCP(data.shape, tuple(atoms), np.array(weights), **parts)


def terms_of(W: BooleanCP) -> list[Term]:
    """Return the atoms of a decomposition as terms for back-fitting, each with its size in V."""
    terms = []
    for atom, weight in zip(W.atoms, W.weights, strict=True):
        factors = None if atom.factors is None else (weight * atom.factors[0], *atom.factors[1:])
        V = weight * atom.dense_block()
        dof = float(V.size if atom.rank is None else min(atom.rank * sum(V.shape), V.size))
        terms.append(Term(atom.mode, atom.z, V, factors, dof, atom.certificate))
    return terms


def in_order(term: Term) -> Term:
    """Return the term with its arrays in C order, as if read from a file."""
    factors = None if term.factors is None else tuple(np.ascontiguousarray(A) for A in term.factors)
    return term._replace(z=np.ascontiguousarray(term.z), V=np.ascontiguousarray(term.V), factors=factors)


def alive(terms: Sequence[Term | None]) -> list[Term]:
    """Return the terms that have not vanished."""
    return [term for term in terms if term is not None]


def bits_of(terms: Sequence[Term]) -> np.ndarray:
    """Return the bits of the terms as columns, (d_n, K)."""
    return np.stack([term.z for term in terms], axis=1).astype(float)


def blocks_of(terms: Sequence[Term]) -> np.ndarray:
    """Return the real parts of the terms as rows, (K, entries)."""
    return np.stack([term.V.ravel() for term in terms])


def sum_products(factors: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum of the products of columns, as an array."""
    first, *rest = factors
    block = first @ khatri_rao(rest).T if rest else first.sum(axis=1)
    return block.reshape([len(A) for A in factors])


as_float = partial(np.asarray, dtype=float)
