"""Beyond the paper: block and rank-L atoms with back-fitting, and a rank chosen by the noise (`atom_rank="auto"`).

After each atom of Algorithm 1 a few sweeps refit the real blocks of all atoms and decide their bits anew, mode by
mode: given the bits, the blocks are a least-squares problem, and given the blocks each row of bits is one.

With ``atom_rank="auto"`` the singular values of a block are shrunk, those below the edge of pure noise to zero, and
everything is chosen by Stein's estimate of the risk, |X - W|^2 + 2 sigma^2 (degrees of freedom).
"""

import time
from functools import partial
from itertools import combinations

import numpy as np

from boolcp.fit.atom_search import best_boolean, residual_gram
from boolcp.fit.block_rules import competing_starts
from boolcp.fit.pursuit import record
from boolcp.fit.relax import solve_rows
from boolcp.fit.state import Pursuit, Term
from boolcp.fit.steps import Steps
from boolcp.fit.terms import (
    DEPENDENT,
    as_float,
    assemble,
    best_code,
    bits_of,
    blocks_of,
    decide_bits,
    finish,
    projected_gram,
    reweight,
    terms_of,
)
from boolcp.result.atoms import BooleanCP

MAX_SWEEPS = 50
SETTLED = 1e-3  # fall of the criterion in a sweep, relative to it, that ends back-fitting
MAX_TRIALS = 3
N_ALTERNATIONS = 10
FAR_BEHIND = 2  # a run that needs this many atoms more than the best for the same risk is given up


def block_pursuit(
    data,
    n_atoms,
    modes,
    rng,
    *,
    atom_rank,
    score="normalized",
    sigma=None,
    tol=1e-6,
    certify=True,
    steps=None,
    start=None,
):
    """Run Alg. 1 with back-fitting: after each atom a few sweeps refit the real blocks and re-decide the bits.

    Parameters
    ----------
    data : storage
        The tensor X.
    n_atoms : int
        The largest number K of atoms.
    modes : sequence of int
        The modes that may be Boolean.
    rng : numpy.random.Generator
        Source of randomness.
    atom_rank : None, int or "auto"
        Dense blocks, blocks of rank L, or blocks whose rank is chosen by the noise level.
    score : {"normalized", "published"}
        The score that the greedy step maximizes.
    sigma : float, optional
        Standard deviation of the noise, for "auto"; estimated from the data by default.
    tol : float
        The pursuit ends when norm of X - W falls below `tol` times that of X.
    certify : bool
        Whether to bound the score of each greedy step.
    steps : Steps, optional
        What remembers and tells each atom.
    start : Pursuit, optional
        A pursuit with fewer atoms that is continued; not for "auto".

    Returns
    -------
    Pursuit
        ``path[k]`` is the back-fitted estimate with k atoms. For None and integers the loss falls along the path,
        for "auto" the estimated risk does, and the path ends ("no descent") where no further atom lowers it.
    """
    steps = Steps() if steps is None else steps
    norm2 = data.squared_norm
    path, history = [BooleanCP(data.shape, data_norm2=norm2, data_inner=np.zeros(0))], []
    if not norm2 > 0:
        return Pursuit(tuple(path), (), "zero")
    options = {"score": score, "tol": tol, "certify": certify}
    starts = competing_starts(data, tuple(modes), atom_rank, sigma)
    runs = [Run(storage, choice, rule, rng, **options) for storage, choice, rule in starts]
    risks, stop_reason = [norm2], "n_atoms"
    if start is not None and start.history:
        path, history = list(start.path), list(start.history)
        risks = [runs[0].begin(terms_of(path[-1]))]
    for k in range(len(history), n_atoms):
        if path[-1].explained() >= 1 - tol**2:
            stop_reason = "explained"
            break
        best, seconds, states = steps.do(f"atom {k}", partial(_advance, data, runs, risks), rng)
        steps.shrink(f"atom {k - 1}", lambda value: (*value[:2], None))  # states of the runs: only the last are needed
        if states is not None:
            for run, state in zip(runs, states, strict=True):
                run.terms, run.criterion, run.is_over = state
        if best is None or not best[0] < risks[-1]:
            stop_reason = "no descent"
            break
        risk, error2, W = best
        risks.append(risk)
        path.append(W)
        history.append(record(W.atoms[-1], error2, norm2, seconds))
        steps.report("pursuit", k + 1, n_atoms, error2, norm2)
        if steps.is_cut:
            stop_reason = "stopped"
            break
    return Pursuit(tuple(path), tuple(history), stop_reason)


def _advance(data, runs, risks):
    """Return the best estimate with one atom more (risk, loss, W), seconds, and the states of all runs.

    `risks` are the lowest with 0, 1, .. atoms. A run is over when it finds no atom or is FAR_BEHIND atoms late.
    """
    begin, found = time.perf_counter(), []
    for run in runs:
        if not run.is_over and run.advance():
            found.append(_assess(data, run))
            run.is_over = len(risks) >= FAR_BEHIND and found[-1][0] > risks[-FAR_BEHIND]
        else:
            run.is_over = True
    best = min(found, key=lambda result: result[0], default=None)
    return best, time.perf_counter() - begin, [(run.terms, run.criterion, run.is_over) for run in runs]


def _assess(data, run):
    """Return the estimated risk of a run's terms on the full data (the loss, unless "auto"), their loss, and W."""
    W = finish(data, run.rule.expand(run.terms))
    error2 = max(W.data_norm2 - 2 * W.weights @ W.data_inner + W.squared_norm, 0.0)
    return error2 + 2 * run.rule.sigma**2 * run.rule.base_dof + run.rule.penalty(run.terms), error2, W


class Run:
    """One greedy sequence of estimates; `advance` adds an atom and back-fits all of them."""

    def __init__(self, data, modes, rule, rng, *, score, tol, certify):
        self.data, self.modes, self.rule, self.rng = data, modes, rule, rng
        self.score, self.certify = score, certify
        self.min_gain = tol**2 * data.squared_norm
        self.terms, self.criterion, self.is_over = [], data.squared_norm, False

    def begin(self, terms):
        """Go on from given terms; return their criterion."""
        self.terms, self.criterion = terms, self.measure(terms)
        return self.criterion

    def advance(self):
        """Add an atom and back-fit; return False when no atom lowers the criterion any more."""
        for is_joint in (True, False):
            terms = self.extend(is_joint)
            if len(terms) <= len(self.terms):
                continue
            criterion = self.measure(terms)
            if criterion < self.criterion:
                self.terms, self.criterion = terms, criterion
                return True
        return False

    def extend(self, is_joint):
        """Return the terms with one more, back-fitted. An atom may vanish on the way: then another is found."""
        terms = self.terms
        for _ in range(MAX_TRIALS):
            term = self.find(terms, is_joint)
            if term is None:
                break
            terms = self.recode(self.backfit([*terms, term]))
            if len(terms) > len(self.terms):
                break
        return terms

    def recode(self, terms):
        """Return the terms, the last and the one most like it replaced by a better code of the same slices, if any.

        Two atoms of one mode tell three kinds of slices, V, V' and V + V'. Any two may be the blocks, and back-fitting
        does not lead from one choice to another. The slice that fits worst may be a kind of its own.
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
        fits = [self.rule.fit(B, Term(last.mode, z, B), self.rng, z.sum()) for B, z in zip(blocks, kinds, strict=True)]
        pair = self.best_pair(residual, last.mode, [term for term in fits if term is not None])
        if pair is None:
            return terms
        found = self.backfit_mode([*rest, *pair], last.mode)[0]
        is_better = len(found) == len(terms) and self.measure(found) < self.measure(terms)
        return self.backfit(found) if is_better else terms

    def best_pair(self, residual, mode, terms):
        """Return the two of the terms that fit a residual best, once bits and blocks are decided anew; None if none."""
        options = []
        for pair in combinations(terms, 2):
            decided = decide_bits(residual, mode, pair)
            if all(term is not None for term in decided):
                B = as_float(residual.contract(mode, bits_of(decided)))
                options += self.refits(B, decided)
        options = [(cost, pair) for cost, pair in options if all(term is not None for term in pair)]
        return min(options, key=lambda option: option[0], default=(0.0, None))[1]

    def measure(self, terms):
        """Return the criterion: |X - W|^2 + penalty."""
        return self.data.residual(assemble(self.data.shape, terms)).squared_norm + self.rule.penalty(terms)

    def find(self, terms, is_joint):
        """Return the term with the largest gain minus penalty over the modes (Alg. 2, line 10); None without gain."""
        residual = self.data.residual(assemble(self.data.shape, terms))
        best, best_gain = None, self.min_gain
        for mode in self.modes:
            own = [term for term in terms if term.mode == mode] if is_joint else []
            term, gain = self.find_along(residual, mode, own)
            if gain > best_gain:
                best, best_gain = term, gain
        return best

    def find_along(self, residual, mode, own):
        """Return the term along one mode and its gain when the blocks of `own` terms are refitted with it.

        With P the projection that removes the bits of `own`, the gain of z with a dense block is z'PCPz / z'Pz.
        """
        P, C, is_exact = projected_gram(residual, mode, own)
        z, bound = best_code(C, P, self.rng, self.score, self.certify and is_exact)
        best, best_gain = None, 0.0
        for _ in range(N_ALTERNATIONS):
            n_ones = z @ P @ z
            B = as_float(residual.contract(mode, (P @ z)[:, None]))[0]
            fitted = self.rule.fit(B, Term(mode, z, B), self.rng, n_ones) if n_ones > DEPENDENT * z.sum() else None
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
            z, sign = best_boolean(P @ residual.project(mode, fitted.V[None])[:, 0], self.score)
            if sign < 0 or np.array_equal(z, best.z):
                break
        return best, best_gain

    def backfit(self, terms):
        """Return the terms after sweeps over the modes; the criterion never rises."""
        criterion = self.measure(terms)
        for _ in range(MAX_SWEEPS):
            previous = criterion
            for mode in sorted({term.mode for term in terms}):
                terms, fall = self.backfit_mode(terms, mode)
                criterion -= fall
            if previous - criterion <= SETTLED * previous or criterion <= self.min_gain:
                break
        return terms if self.rule.atom_rank == "auto" else reweight(self.data, terms)

    def backfit_mode(self, terms, mode):
        """Return the terms with the blocks and bits of one mode decided anew, and the fall of the criterion."""
        places = [k for k, term in enumerate(terms) if term.mode == mode]
        own = [terms[k] for k in places]
        residual = self.data.residual(assemble(self.data.shape, [term for term in terms if term.mode != mode]))
        B = as_float(residual.contract(mode, bits_of(own)))
        before = self.cost(B, own)
        after, own = min([(before, own), *self.refits(B, own)], key=lambda option: option[0])
        moved = decide_bits(residual, mode, own)
        if any(new is not old for new, old in zip(moved, own, strict=True)):
            alive = [k for k, term in enumerate(moved) if term is not None]
            B = np.zeros_like(B)
            if alive:
                B[alive] = residual.contract(mode, bits_of([moved[k] for k in alive]))
            after, own = min([(after, own), *self.refits(B, moved)], key=lambda option: option[0])
        terms = list(terms)
        for place, term in zip(places, own, strict=True):
            terms[place] = term
        return [term for term in terms if term is not None], before - after

    def cost(self, B, terms):
        """Return |R - sum_k z_k (x) V_k|^2 - |R|^2 + penalty for the terms of one mode and B_k = R x_n z_k."""
        alive = [k for k, term in enumerate(terms) if term is not None]
        if not alive:
            return 0.0
        terms = [terms[k] for k in alive]
        Z, V = bits_of(terms), blocks_of(terms)
        return float(np.sum((Z.T @ Z) * (V @ V.T)) - 2 * np.vdot(B[alive], V)) + self.rule.penalty(terms)

    def refits(self, B, terms):
        """Return pairs (cost, terms) of one mode with blocks fitted to B_k = R x_n z_k; None where a block vanished.

        Dense blocks are solved for jointly, (Z'Z) V = B. Blocks of bounded rank are fitted one after another, once from
        the blocks as they are and once from the dense solution.
        """
        alive = [k for k, term in enumerate(terms) if term is not None]
        if not alive:
            return [(0.0, list(terms))]
        own = [terms[k] for k in alive]
        Z = bits_of(own)
        dense = solve_rows(Z.T @ Z, B[alive].reshape(len(alive), -1).T).T
        if self.rule.atom_rank is None:
            blocks = dense.reshape(-1, *B.shape[1:])
            options = [[term._replace(V=V, factors=None) for term, V in zip(own, blocks, strict=True)]]
        else:
            starts = [blocks_of(own), dense] if len(alive) > 1 else [dense]
            options = [self.refit_in_turn(B[alive], Z.T @ Z, own, start) for start in starts]
        by_place = [dict(zip(alive, option, strict=True)) for option in options]
        results = [[fitted.get(k) for k in range(len(terms))] for fitted in by_place]
        return [(self.cost(B, fitted), fitted) for fitted in results]

    def refit_in_turn(self, B, G, terms, V):
        """Return the terms with one block after another fitted, given the others; V (K, .) are the first blocks."""
        fitted, V = [], V.copy()
        for k, term in enumerate(terms):
            others = (G[k] @ V - G[k, k] * V[k]).reshape(B.shape[1:])
            fitted.append(self.rule.fit(B[k] - others, term, self.rng, G[k, k]))
            V[k] = 0.0 if fitted[k] is None else fitted[k].V.ravel()
        return fitted
