"""Beyond the paper: block and rank-L atoms with back-fitting, and a rank chosen by the noise (`atom_rank="auto"`).

After each atom of Algorithm 1 a few sweeps refit the real blocks of all atoms and decide their bits anew, mode by
mode: given the bits, the blocks are a least-squares problem, and given the blocks each row of bits is one.

With ``atom_rank="auto"`` the singular values of a block are shrunk, those below the edge of pure noise to zero, and
everything is chosen by Stein's estimate of the risk, |X - W|^2 + 2 sigma^2 (degrees of freedom).
"""

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from boolcp.atom_search import best_boolean, greedy_atom_search, make_atom, real_part, steepest_atom
from boolcp.atoms import Atom, BooleanCP, inner_with_atoms
from boolcp.contractions import khatri_rao
from boolcp.pursuit import Pursuit, record
from boolcp.refine import best_bits
from boolcp.relax import solve_rows
from boolcp.shrinkage import noise_level, shrink_block, signal_subspaces

N_SWEEPS = 3
N_PASSES = 2
N_ALTERNATIONS = 10


class Term(NamedTuple):
    """c z (x) V of one atom: V with its size, as an array over the other modes and, unless dense, as factors."""

    mode: int
    z: np.ndarray
    V: np.ndarray
    factors: tuple[np.ndarray, ...] | None = None
    dof: float = 0.0
    certificate: float = float("nan")


@dataclass(frozen=True)
class Rule:
    """How a block is fitted: its rank, and for "auto" sigma and the effective sizes of the modes."""

    atom_rank: int | str | None
    sigma: float = 0.0
    sizes: tuple[int, ...] = ()
    base_dof: float = 0.0

    def penalty(self, terms):
        """Return 2 sigma^2 (degrees of freedom); zero unless the rank is chosen by the noise."""
        return 2 * self.sigma**2 * sum(term.dof for term in terms)

    def fit(self, B, term, rng):
        """Return `term` with the block that fits B = R x_n z best, |R - z (x) V|^2 + penalty; None if V vanishes."""
        n_ones = float(term.z.sum())
        if self.atom_rank == "auto":
            sizes = self.sizes[: term.mode] + self.sizes[term.mode + 1 :]
            fitted = shrink_block(B / np.sqrt(n_ones), self.sigma, sizes, rng)
            if fitted is None:
                return None
            factors, dof = fitted
            factors = (factors[0] / np.sqrt(n_ones), *factors[1:])
            return term._replace(V=_sum_products(factors), factors=factors, dof=dof)
        start = term.factors if B.ndim > 2 else None
        V = real_part(B, self.atom_rank, rng, start=start)
        if V is None:
            return None
        block = _sum_products(V) if isinstance(V, tuple) else V
        size = np.vdot(B, block) / n_ones
        if isinstance(V, tuple):
            return term._replace(V=size * block, factors=(size * V[0], *V[1:]))
        return term._replace(V=size * block)


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
    progress=iter,
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
    progress : callable
        Wraps the iterable of steps, such as ``tqdm.tqdm``.

    Returns
    -------
    Pursuit
        ``path[k]`` is the back-fitted estimate with k atoms. For None and integers the loss falls along the path,
        for "auto" the estimated risk does, and the path ends ("no descent") where no further atom lowers it.
    """
    norm2 = data.squared_norm
    path, history = [BooleanCP(data.shape, data_norm2=norm2, data_inner=np.zeros(0))], []
    if not norm2 > 0:
        return Pursuit(tuple(path), (), "zero")
    options = {"score": score, "tol": tol, "certify": certify}
    starts = _starts(data, tuple(modes), atom_rank, sigma)
    runs = [Run(storage, choice, rule, rng, **options) for storage, choice, rule in starts]
    risk, stop_reason = norm2, "n_atoms"
    for _ in progress(range(n_atoms)):
        begin = time.perf_counter()
        if path[-1].explained() >= 1 - tol**2:
            stop_reason = "explained"
            break
        found = [_assess(data, run) for run in runs if run.advance()]
        best = min(found, key=lambda result: result[0], default=None)
        if best is None or not best[0] < risk:
            stop_reason = "no descent"
            break
        risk, error2, W = best
        path.append(W)
        history.append(record(W.atoms[-1], error2, norm2, time.perf_counter() - begin))
    return Pursuit(tuple(path), tuple(history), stop_reason)


def _starts(data, modes, atom_rank, sigma):
    """Return (data, modes, rule) of the runs whose estimates compete at each number of atoms.

    With "auto" these are runs over all modes and over each alone, on the data and on their projection on the
    singular vectors of each unfolding that stand out of the noise.
    """
    if atom_rank != "auto":
        return [(data, modes, Rule(atom_rank))]
    sigma = noise_level(data) if sigma is None else float(sigma)
    starts = []
    for storage, sizes in signal_subspaces(data, sigma):
        base_dof = float(sum(r * (d - r) for r, d in zip(sizes, data.shape, strict=True)))
        rule = Rule("auto", sigma, sizes, base_dof)
        choices = {modes, *((mode,) for mode in modes)}
        starts += [(storage, choice, rule) for choice in sorted(choices, key=lambda c: (-len(c), c))]
    return starts


def _assess(data, run):
    """Return the estimated risk of a run's terms on the full data (the loss, unless "auto"), their loss, and W."""
    W = finish(data, run.terms)
    error2 = max(W.data_norm2 - 2 * W.weights @ W.data_inner + W.squared_norm, 0.0)
    return error2 + 2 * run.rule.sigma**2 * run.rule.base_dof + run.rule.penalty(run.terms), error2, W


class Run:
    """One greedy sequence of estimates; `advance` adds an atom and back-fits all of them."""

    def __init__(self, data, modes, rule, rng, *, score, tol, certify):
        self.data, self.modes, self.rule, self.rng = data, modes, rule, rng
        self.search = {"score": score, "certify": certify}
        self.min_gain = tol**2 * data.squared_norm
        self.terms = []
        self.is_over = False

    def advance(self):
        """Add an atom and back-fit; return False when no atom lowers the criterion any more."""
        n_terms = len(self.terms) + 1
        while len(self.terms) < n_terms and not self.is_over:
            term = self.find()
            if term is None:
                self.is_over = True
                break
            self.terms = self.backfit([*self.terms, term])  # an atom may vanish on the way: then find another
        return not self.is_over

    def find(self):
        """Return the greedy term of the residual, Alg. 2; None if there is none with a gain."""
        residual = self.data.residual(assemble(self.data.shape, self.terms))
        if self.rule.atom_rank == "auto":
            return self.find_auto(residual)
        found = greedy_atom_search(residual, self.modes, self.rng, atom_rank=self.rule.atom_rank, **self.search)
        if found is None or not found.descent**2 > self.min_gain * found.atom.n_ones:
            return None
        atom = found.atom
        size = found.descent / atom.n_ones
        factors = None if atom.factors is None else (size * atom.factors[0], *atom.factors[1:])
        return Term(atom.mode, atom.z, size * atom.dense_block(), factors, 0.0, atom.certificate)

    def find_auto(self, residual):
        """Return the term with the largest gain minus penalty over the modes; z and V are decided in turn."""
        best, best_value = None, self.min_gain
        for mode in self.modes:
            found = steepest_atom(residual, mode, self.rng, atom_rank=None, **self.search)
            if found is None:
                continue
            term = Term(mode, found.atom.z, found.atom.dense_block(), certificate=found.atom.certificate)
            for _ in range(N_ALTERNATIONS):
                B = _float(residual.contract(mode, term.z[:, None].astype(float)))[0]
                fitted = self.rule.fit(B, term, self.rng)
                if fitted is None:
                    break
                value = 2 * np.vdot(B, fitted.V) - term.z.sum() * np.vdot(fitted.V, fitted.V)
                value -= self.rule.penalty([fitted])
                if value > best_value:
                    best, best_value = fitted, value
                z, sign = best_boolean(residual.project(mode, fitted.V[None])[:, 0], self.search["score"])
                if sign < 0 or np.array_equal(z, term.z):
                    break
                term = fitted._replace(z=z, certificate=float("nan"))
        return best

    def backfit(self, terms):
        """Return the terms after sweeps over the modes; the criterion never rises."""
        for _ in range(N_SWEEPS):
            fall = 0.0
            for mode in sorted({term.mode for term in terms}):
                terms, change = self.backfit_mode(terms, mode)
                fall += change
            if fall <= 1e-6 * self.data.squared_norm:
                break
        return terms if self.rule.atom_rank == "auto" else reweight(self.data, terms)

    def backfit_mode(self, terms, mode):
        """Return the terms with the blocks and bits of one mode decided anew, and the fall of the criterion."""
        places = [k for k, term in enumerate(terms) if term.mode == mode]
        own = [terms[k] for k in places]
        residual = self.data.residual(assemble(self.data.shape, [term for term in terms if term.mode != mode]))
        B = _float(residual.contract(mode, _bits(own)))
        before = self.cost(B, own)
        fitted = self.refit(B, own)
        options = [(before, own), (self.cost(B, fitted), fitted)]
        moved = decide_bits(residual, mode, fitted)
        if any(new is not old for new, old in zip(moved, fitted, strict=True)):
            alive = [k for k, term in enumerate(moved) if term is not None]
            B = np.zeros_like(B)
            if alive:
                B[alive] = residual.contract(mode, _bits([moved[k] for k in alive]))
            moved = self.refit(B, moved)
            options.append((self.cost(B, moved), moved))
        after, own = min(options, key=lambda option: option[0])
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
        Z, V = _bits(terms), _blocks(terms)
        return float(np.sum((Z.T @ Z) * (V @ V.T)) - 2 * np.vdot(B[alive], V)) + self.rule.penalty(terms)

    def refit(self, B, terms):
        """Return the terms of one mode with their blocks fitted to B_k = R x_n z_k; None where a block vanished.

        Dense blocks are solved for jointly, (Z'Z) V = B. Blocks of bounded rank are fitted one after another.
        """
        fitted = list(terms)
        alive = [k for k, term in enumerate(terms) if term is not None]
        if not alive:
            return fitted
        Z = _bits([terms[k] for k in alive])
        G = Z.T @ Z
        if self.rule.atom_rank is None:
            V = solve_rows(G, B[alive].reshape(len(alive), -1).T).T
            for k, block in zip(alive, V, strict=True):
                fitted[k] = terms[k]._replace(V=block.reshape(B.shape[1:]))
            return fitted
        V = _blocks([terms[k] for k in alive])
        for _ in range(N_PASSES if len(alive) > 1 else 1):
            for i, k in enumerate(alive):
                if fitted[k] is not None:
                    others = (G[i] @ V - G[i, i] * V[i]).reshape(B.shape[1:])
                    fitted[k] = self.rule.fit(B[k] - others, fitted[k], self.rng)
                    V[i] = 0.0 if fitted[k] is None else fitted[k].V.ravel()
        return fitted


def decide_bits(residual, mode, terms):
    """Return the terms of one mode with each row of bits decided jointly; None for a term without any bit."""
    alive = [k for k, term in enumerate(terms) if term is not None]
    if not alive:
        return list(terms)
    V = np.stack([terms[k].V for k in alive])
    Q = _float(residual.project(mode, V))
    V = V.reshape(len(alive), -1)
    bits = best_bits(V @ V.T, Q, _bits([terms[k] for k in alive])).astype(bool)
    decided = list(terms)
    for z, k in zip(bits.T, alive, strict=True):
        if not z.any():
            decided[k] = None
        elif not np.array_equal(z, terms[k].z):
            decided[k] = terms[k]._replace(z=z, certificate=float("nan"))
    return decided


def reweight(data, terms):
    """Return the terms with their sizes solved for jointly (Alg. 1, line 7): the residual is orthogonal to each."""
    W = assemble(data.shape, terms)
    gram, rhs = W.inner_products(), inner_with_atoms(data, W.atoms)
    scales = solve_rows(gram, rhs[None])[0]
    if not 2 * (scales - 1) @ rhs - scales @ gram @ scales + gram.sum() > 0:
        return terms
    return [scale_term(term, scale) for term, scale in zip(terms, scales, strict=True)]


def scale_term(term, scale):
    """Return the term times a number."""
    factors = None if term.factors is None else (scale * term.factors[0], *term.factors[1:])
    return term._replace(V=scale * term.V, factors=factors)


def assemble(shape, terms):
    """Return the sum of the terms as block atoms that carry their size, with weights one."""
    atoms = tuple(Atom(term.mode, term.z, block=term.V) for term in terms)
    return BooleanCP(shape, atoms, np.ones(len(atoms)))


def finish(data, terms):
    """Return the sum of the terms as a decomposition of `data`: atoms of norm one in their real part, and weights."""
    atoms, weights = [], []
    for term in terms:
        size = np.linalg.norm(term.V)
        unit = scale_term(term, 1 / size) if size > 0 else term
        V = unit.factors if unit.factors is not None else unit.V
        V = (V[:, None],) if isinstance(V, np.ndarray) and V.ndim == 1 else V
        atoms.append(make_atom(term.mode, term.z, V, term.certificate))
        weights.append(size)
    inner = inner_with_atoms(data, atoms)
    return BooleanCP(data.shape, tuple(atoms), np.array(weights), data_norm2=data.squared_norm, data_inner=inner)


def _bits(terms):
    return np.stack([term.z for term in terms], axis=1).astype(float)


def _blocks(terms):
    return np.stack([term.V.ravel() for term in terms])


def _sum_products(factors):
    return khatri_rao(factors).sum(axis=1).reshape([len(A) for A in factors])


def _float(array):
    return np.asarray(array, dtype=float)
