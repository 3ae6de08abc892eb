"""Beyond the paper: Algorithm 1 for block atoms, with all blocks and bits decided again after each atom.

Given the bits, the blocks of a mode are a least-squares problem, and given the blocks each row of bits is one. If
entries do not count alike, each entry of a block and each row of bits has equations of its own. A mean over the Boolean
mode is a term whose bits are all on, and stay so.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from boolcp.fit._kernels import decide_nonnegative
from boolcp.fit.atom_search import residual_gram
from boolcp.fit.certify import atom_system, with_system
from boolcp.fit.spec import Spec
from boolcp.fit.sweep import best_bits, solve_rows
from boolcp.program.maxcut import DEPENDENT, Complement, Gram, ThinGram, climb_ratio, maximize
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.storage import make_storage
from boolcp.storage.dense import quadratic
from boolcp.storage.protocol import Storage, Tensor

MAX_SWEEPS = 50
SETTLED = 1e-3  # relative fall of the loss in a sweep that ends back-fitting; by a benchmark of denoising
MAX_TRIALS = 3  # atoms that are sought where one vanishes again; by a benchmark of denoising
N_ALTERNATIONS = 10  # of bits and block over observed entries; by a benchmark of denoising


class Term(NamedTuple):
    """z (x) V of one atom, V with its size, as an array over the other modes; the bits of a mean are fixed."""

    mode: int
    z: np.ndarray
    V: np.ndarray
    is_fixed: bool = False


def next_block(data: Storage, W: BooleanCP, spec: Spec, rng: Generator) -> BooleanCP | str:
    """Return W with one block atom more and all blocks and bits decided again, or why there is none."""
    fitting = Backfit(data, spec.tol**2 * data.squared_norm)
    pairs = zip(W.atoms, W.weights, strict=True)
    terms = [Term(atom.mode, atom.z, np.ascontiguousarray(weight * atom.dense_block())) for atom, weight in pairs]
    terms = fitting.with_mean(terms)
    loss = fitting.measure(terms)
    for is_joint in (True, False) if data.weights is None else (False,):
        longer = fitting.extend(terms, spec.modes, rng, is_joint)
        if len(longer) > len(terms) and fitting.measure(longer) < loss:
            return assembled(data, longer)
    return "no descent"


def assembled(data: Storage, terms: Sequence[Term]) -> BooleanCP:
    """Return the terms but the mean as a decomposition: atoms of norm one in their real part, and weights."""
    atoms, weights = [], []
    for term in terms:
        size = float(np.linalg.norm(term.V)) or 1.0
        unit = {"factors": (term.V[:, None] / size,)} if term.V.ndim == 1 else {"block": term.V / size}
        if not term.is_fixed:
            atoms.append(Atom(term.mode, term.z, **unit))
            weights.append(size)
    return with_system(BooleanCP(data.shape, tuple(atoms), np.array(weights)), data)


def sum_of(shape: tuple[int, ...], terms: Sequence[Term]) -> BooleanCP:
    """Return the sum of the terms as block atoms that carry their size, with weights one."""
    atoms = tuple(Atom(term.mode, term.z, block=term.V) for term in terms)
    return BooleanCP(shape, atoms, np.ones(len(atoms)))


class Backfit:
    """Back-fitting of terms to data: sweeps over the modes, each with all blocks and bits of the mode decided again."""

    def __init__(self, data: Storage, min_gain: float) -> None:
        self.data, self.center, self.min_gain, self.weights = data, data.center, min_gain, data.weights
        if self.center is not None:  # the mean is a term
            w = None if data.weights is None else data.weights.to_array()
            X = data.to_array() if w is None else data.x  # type: ignore[attr-defined]
            self.data = make_storage(X, None, w, nonnegative=data.nonnegative)

    def with_mean(self, terms: list[Term]) -> list[Term]:
        """Return the terms and the mean of the residual as a term, if a mean is fitted."""
        if self.center is None:
            return terms
        d = self.data.shape[self.center]
        mean = Term(self.center, np.ones(d, dtype=bool), np.zeros(np.delete(self.data.shape, self.center)), True)
        return self.backfit_mode([mean, *terms], self.center, has_new_bits=False)[0]

    def residual(self, terms: Sequence[Term]) -> Tensor:
        """Return X less the terms, times the weights."""
        return self.data.residual(sum_of(self.data.shape, terms))

    def measure(self, terms: Sequence[Term]) -> float:
        """Return |X - W|^2."""
        if self.weights is None:
            return with_system(sum_of(self.data.shape, terms), self.data).squared_error
        w, r = self.weights.to_array(), self.residual(terms).to_array()
        return float(np.sum(r**2 / np.where(w > 0, w, 1.0)))

    def extend(self, terms: Sequence[Term], modes: Sequence[int], rng: Generator, is_joint: bool) -> list[Term]:
        """Return the terms with one more, back-fitted. An atom may vanish in between: then a different one is found."""
        longer = list(terms)
        for _ in range(MAX_TRIALS):
            term = self.find(longer, modes, rng, is_joint)
            if term is None:
                break
            longer = self.recode(self.backfit([*longer, term]))
            if len(longer) > len(terms):
                break
        return longer

    def find(self, terms: Sequence[Term], modes: Sequence[int], rng: Generator, is_joint: bool) -> Term | None:
        """Return the term with the largest gain over the modes (Alg. 2, line 10); None without gain."""
        residual, best, best_gain = self.residual(terms), None, self.min_gain
        for mode in modes:
            own = [term for term in terms if term.mode == mode and (is_joint or term.is_fixed)]
            look = self.find_along if self.weights is None else self.find_observed
            term, gain = look(residual, mode, own, rng)
            if gain > best_gain:
                best, best_gain = term, gain
        return best

    def find_along(self, residual: Tensor, mode: int, own: list[Term], rng: Generator) -> tuple[Term | None, float]:
        """Return the term along one mode and its gain when the blocks of `own` terms are refitted with it.

        With P the projection that removes the bits of `own`, the gain of z with a dense block is z'PCPz / z'Pz.
        """
        C, _ = residual_gram(residual, mode)
        P = Complement(bits_of(own) if own else np.zeros((len(C), 0)))
        C = ThinGram(P @ C.F) if isinstance(C, ThinGram) else P @ (C @ P)
        z = best_code(C, P, rng)
        n_ones = z @ P @ z
        B = self.allowed(np.asarray(residual.contract(mode, (P @ z)[:, None]), dtype=float)[0])
        gain = float(np.vdot(B, B) / n_ones) if n_ones > DEPENDENT * z.sum() else 0.0
        return (Term(mode, z, B / n_ones), gain) if gain > 0 else (None, 0.0)

    def find_observed(self, residual: Tensor, mode: int, own: list[Term], rng: Generator) -> tuple[Term | None, float]:
        """Return the term along one mode over weighted entries, and its gain; bits and block in turn."""
        assert self.weights is not None
        C, _ = residual_gram(residual, mode)
        z, best, best_gain = maximize(C, rng, certify=False).z, None, 0.0
        for _ in range(N_ALTERNATIONS):
            B = self.allowed(np.asarray(residual.contract(mode, z[:, None].astype(float)), dtype=float)[0])
            counts = self.weights.contract(mode, z[:, None].astype(float))[0]
            V = np.where(counts > 0, B / np.where(counts > 0, counts, 1.0), 0.0)
            if np.vdot(B, V) <= best_gain * (1 + 1e-9):
                break
            best, best_gain = Term(mode, z, V), float(np.vdot(B, V))
            decided = self.decide_bits(residual, mode, [best])[0]
            if not decided.z.any() or np.array_equal(decided.z, z):
                break
            z = decided.z
        return best, best_gain

    def allowed(self, B: np.ndarray) -> np.ndarray:
        """Return a block with zeros where it is negative and must not be."""
        return np.maximum(B, 0.0) if self.data.nonnegative else B

    def backfit(self, terms: list[Term]) -> list[Term]:
        """Return the terms after sweeps over the modes; the loss never rises."""
        loss = self.measure(terms)
        for _ in range(MAX_SWEEPS):
            previous = loss
            for mode in sorted({term.mode for term in terms}):
                terms, fall = self.backfit_mode(terms, mode)
                loss -= fall
            if previous - loss <= SETTLED * previous or loss <= self.min_gain:
                break
        return self.reweight(terms) if terms and self.center is None else terms

    def backfit_mode(self, terms: list[Term], mode: int, *, has_new_bits: bool = True) -> tuple[list[Term], float]:
        """Return the terms with the blocks and bits of one mode decided again, and the fall of the loss."""
        places = [k for k, term in enumerate(terms) if term.mode == mode]
        own = [terms[k] for k in places]
        residual = self.residual([term for term in terms if term.mode != mode])
        before, after, fitted = self.refit(residual, mode, own)
        after, own = (after, fitted) if after < before else (before, own)
        if has_new_bits:
            moved = self.decide_bits(residual, mode, own)
            if any(not np.array_equal(new.z, old.z) for new, old in zip(moved, own, strict=True)):
                _, cost, fitted = self.refit(residual, mode, [term for term in moved if term.z.any()])
                if cost < after:
                    places = [k for k, term in zip(places, moved, strict=True) if term.z.any()]
                    after, own = cost, fitted
        kept = {place: term for place, term in zip(places, own, strict=True)}
        every = [kept.get(k, term) for k, term in enumerate(terms) if term.mode != mode or k in kept]
        return every, before - after

    def equations(self, residual: Tensor, mode: int, terms: Sequence[Term]) -> tuple[np.ndarray, np.ndarray]:
        """Return H and P (entries, K) of the blocks of one mode: (Z'Z) V = R x_n Z.

        H is Z'Z (K, K), or one such matrix for each entry of a block over its weighted rows, (entries, K, K).
        """
        Z, K = bits_of(terms), len(terms)
        P = np.ascontiguousarray(np.asarray(residual.contract(mode, Z), dtype=float).reshape(K, -1).T)
        if self.weights is None:
            return Z.T @ Z, P
        pairs = (Z[:, :, None] * Z[:, None, :]).reshape(len(Z), -1)
        return np.asarray(self.weights.contract(mode, pairs)).reshape(K, K, -1).transpose(2, 0, 1), P

    def refit(self, residual: Tensor, mode: int, terms: Sequence[Term]) -> tuple[float, float, list[Term]]:
        """Return |R - sum_k z_k (x) V_k|^2 - |R|^2 for the terms of one mode, before and after, and them after.

        Their blocks then solve their equations jointly.
        """
        if not terms:
            return 0.0, 0.0, []
        (H, P), old = self.equations(residual, mode, terms), np.stack([term.V.ravel() for term in terms], axis=1)
        if self.data.nonnegative:
            V, is_real = np.zeros_like(P), np.array([term.is_fixed for term in terms])
            none = np.zeros(len(terms), dtype=bool)
            decide_nonnegative(np.ascontiguousarray(H if H.ndim == 3 else H[None]), P, none, ~is_real, V)
        else:
            V = solve_rows(H, P)
        fitted = [term._replace(V=v.reshape(term.V.shape)) for term, v in zip(terms, V.T, strict=True)]
        before, after = (quadratic(H, A) - 2 * float(np.vdot(P, A)) for A in (old, V))
        return before, after, fitted

    def decide_bits(self, residual: Tensor, mode: int, terms: Sequence[Term]) -> list[Term]:
        """Return the terms of one mode with each row of bits decided jointly; the bits of a mean stay."""
        if not terms:
            return []
        S, Q = block_equations(residual, self.weights, mode, np.stack([term.V for term in terms]))
        fixed = np.array([term.is_fixed for term in terms])
        free, bits = np.flatnonzero(~fixed), bits_of(terms)
        if len(free):
            Q = Q[:, free] - S[..., free[:, None], np.flatnonzero(fixed)].sum(axis=-1)
            bits[:, free] = best_bits(S[..., free[:, None], free], Q, bits[:, free])
        return [term._replace(z=z.astype(bool)) for term, z in zip(terms, bits.T, strict=True)]

    def reweight(self, terms: list[Term]) -> list[Term]:
        """Return the terms with their sizes solved for jointly (Alg. 1, line 7): the residual is orthogonal to each."""
        gram, rhs = atom_system(self.data, sum_of(self.data.shape, terms).atoms)
        scales = solve_rows(gram, rhs[None])[0]
        if self.data.nonnegative or not 2 * (scales - 1) @ rhs - scales @ gram @ scales + gram.sum() > 0:
            return terms
        return [term._replace(V=scale * term.V) for term, scale in zip(terms, scales, strict=True)]

    def recode(self, terms: list[Term]) -> list[Term]:
        """Return the terms with the last and its most similar one replaced by a better code of the same slices, if any.

        Two atoms of one mode distinguish three kinds of slices, V, V' and V + V'. Any two may be the blocks, and
        back-fitting does not lead from one choice to another. The slice with the worst fit may be a kind of its own.
        """
        last = terms[-1]
        partners = [term for term in terms[:-1] if term.mode == last.mode and not term.is_fixed]
        if not partners:
            return terms
        first = max(partners, key=lambda term: (term.z & last.z).sum() / np.sqrt(term.z.sum()))
        rest = [term for term in terms if term is not first and term is not last]
        residual, left = self.residual(rest), self.residual(terms).to_array()
        axes = [n for n in range(left.ndim) if n != last.mode]
        worst = np.arange(left.shape[last.mode]) == np.argmax(np.sum(left**2, axis=tuple(axes)))
        kinds = [z for z in (first.z & ~last.z, last.z & ~first.z, first.z & last.z, worst) if z.any()]
        blocks = np.asarray(residual.contract(last.mode, np.stack(kinds, axis=1).astype(float)), dtype=float)
        fits = [Term(last.mode, z, B / z.sum()) for B, z in zip(blocks, kinds, strict=True)]
        best, best_cost = None, np.inf
        for pair in combinations(fits, 2):
            decided = self.decide_bits(residual, last.mode, pair)
            if all(term.z.any() for term in decided):
                _, cost, fitted = self.refit(residual, last.mode, decided)
                best, best_cost = (fitted, cost) if cost < best_cost else (best, best_cost)
        if best is None:
            return terms
        found = self.backfit_mode([*rest, *best], last.mode)[0]
        is_better = len(found) == len(terms) and self.measure(found) < self.measure(terms)
        return self.backfit(found) if is_better else terms


def best_code(C: Gram, P: Complement, rng: Generator) -> np.ndarray:
    """Return the z that maximizes z'Cz / z'Pz, C = PCP, by flips from the best z of z'Cz / z'z and of z'Cz."""
    published = maximize(C, rng, certify=False, is_ratio=False, effort="quick")
    effort = "quick" if isinstance(C, ThinGram) else "default"  # bits of a long mode are decided again later
    normalized = maximize(C, rng, certify=False, is_ratio=True, effort=effort)
    return max((climb_ratio(C, P, start.z) for start in (normalized, published)), key=lambda found: found[0])[1]


def bits_of(terms: Sequence[Term]) -> np.ndarray:
    """Return the bits of the terms as columns, (d_n, K)."""
    return np.stack([term.z for term in terms], axis=1).astype(float)


def block_equations(R: Tensor, weights: Tensor | None, mode: int, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return H and P of the least squares for the factor along `mode` that multiplies given blocks, to fit R."""
    P, flat, K = np.asarray(R.project(mode, V), dtype=float), V.reshape(len(V), -1), len(V)
    if weights is None:
        return flat @ flat.T, P
    pairs = (flat[:, None] * flat).reshape(-1, *V.shape[1:])
    return np.asarray(weights.project(mode, pairs), dtype=float).reshape(-1, K, K), P
