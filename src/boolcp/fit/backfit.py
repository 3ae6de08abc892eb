"""Back-fitting: blocks and bits of all atoms decided again, mode by mode.

Given the bits, the blocks are a least-squares problem, and given the blocks each row of bits is one. With missing
entries each entry of a dense block and each row of bits has normal equations of its own.
"""

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple, cast

import numpy as np

from boolcp.fit.atom_search import make_atom, residual_gram
from boolcp.fit.polish import best_bits
from boolcp.fit.pursuit import atom_system, with_system
from boolcp.fit.relax import solve_rows
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.storage.protocol import ObservedStorage, Storage, Tensor

# chosen by a benchmark of denoising, now a part of benchmarks/bench_default.py
MAX_SWEEPS = 50
SETTLED = 1e-3  # relative fall of the loss in a sweep that ends back-fitting


class Term(NamedTuple):
    """c z (x) V of one atom: V with its size, as an array over the other modes and, unless dense, as factors."""

    mode: int
    z: np.ndarray
    V: np.ndarray
    factors: tuple[np.ndarray, ...] | None = None
    certificate: float = float("nan")


Fits = list[Term | None]  # the terms of one mode, None for those that vanished


class Backfit:
    """Back-fitting of terms to data: sweeps over the modes, each with all blocks and bits of the mode decided again."""

    def __init__(self, data: Storage, *, tol: float) -> None:
        self.data = data
        self.min_gain = tol**2 * data.squared_norm
        self.observed = None if data.is_complete else cast(ObservedStorage, data).observed()

    def measure(self, terms: Sequence[Term]) -> float:
        """Return |X - W|^2."""
        return self.data.residual(assemble(self.data.shape, terms)).squared_norm

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
        return reweight(self.data, terms) if terms else terms

    def backfit_mode(self, terms: list[Term], mode: int) -> tuple[list[Term], float]:
        """Return the terms with the blocks and bits of one mode decided again, and the fall of the loss."""
        places = [k for k, term in enumerate(terms) if term.mode == mode]
        own: Fits = [terms[k] for k in places]
        residual = self.data.residual(assemble(self.data.shape, [term for term in terms if term.mode != mode]))
        B = as_float(residual.contract(mode, bits_of(alive(own))))
        before = self.cost(mode, B, own)
        after, own = min((before, own), self.refit(mode, B, own), key=lambda option: option[0])
        moved = decide_bits(residual, mode, own, self.observed)
        if any(new is not old for new, old in zip(moved, own, strict=True)):
            left = [k for k, term in enumerate(moved) if term is not None]
            B = np.zeros_like(B)
            if left:
                B[left] = residual.contract(mode, bits_of(alive(moved)))
            after, own = min((after, own), self.refit(mode, B, moved), key=lambda option: option[0])
        every: Fits = list(terms)
        for place, term in zip(places, own, strict=True):
            every[place] = term
        return alive(every), before - after

    def cost(self, mode: int, B: np.ndarray, terms: Sequence[Term | None]) -> float:
        """Return |R - sum_k z_k (x) V_k|^2 - |R|^2 for the terms of one mode and B_k = R x_n z_k."""
        own, places = alive(terms), [k for k, term in enumerate(terms) if term is not None]
        if not own:
            return 0.0
        Z, V = bits_of(own), blocks_of(own)
        H = bit_products(mode, Z, self.observed)
        squares = np.sum(H * (V @ V.T)) if H.ndim == 2 else np.einsum("kj,jkl,lj->", V, H, V, optimize=True)
        return float(squares - 2 * np.vdot(B[places], V))

    def refit(self, mode: int, B: np.ndarray, terms: Sequence[Term | None]) -> tuple[float, Fits]:
        """Return the cost and the terms of one mode with blocks that solve (Z'Z) V = B jointly, B_k = R x_n z_k."""
        own, places = alive(terms), [k for k, term in enumerate(terms) if term is not None]
        if not own:
            return 0.0, list(terms)
        products = bit_products(mode, bits_of(own), self.observed)
        V = solve_rows(products, B[places].reshape(len(own), -1).T).T.reshape(-1, *B.shape[1:])
        fitted: Fits = list(terms)
        for k, term, block in zip(places, own, V, strict=True):
            fitted[k] = term._replace(V=block, factors=None)
        return self.cost(mode, B, fitted), fitted

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
        fits = [Term(last.mode, z, B / z.sum()) for B, z in zip(blocks, kinds, strict=True)]
        pair = self.best_pair(residual, last.mode, fits)
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
                cost, fitted = self.refit(mode, B, decided)
                if cost < best_cost:
                    best, best_cost = alive(fitted), cost
        return best


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
    return with_system(BooleanCP(data.shape, tuple(atoms), np.array(weights)), data, *atom_system(data, tuple(atoms)))


def terms_of(W: BooleanCP) -> list[Term]:
    """Return the atoms of a decomposition as terms for back-fitting, each with its size in V."""
    terms = []
    for atom, weight in zip(W.atoms, W.weights, strict=True):
        factors = None if atom.factors is None else (weight * atom.factors[0], *atom.factors[1:])
        V = weight * atom.dense_block()
        terms.append(Term(atom.mode, atom.z, V, factors, atom.certificate))
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


as_float = partial(np.asarray, dtype=float)
