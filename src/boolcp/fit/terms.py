"""Terms c z (x) V of block atoms: their codes, bits and sizes, and the way from and to a decomposition."""

from functools import partial

import numpy as np

from boolcp.contractions import khatri_rao
from boolcp.fit.atom_search import make_atom, residual_gram
from boolcp.fit.polish import best_bits
from boolcp.fit.relax import solve_rows
from boolcp.fit.state import Term
from boolcp.fit.weights import atom_system
from boolcp.program.flips import DEPENDENT as DEPENDENT
from boolcp.program.flips import climb_ratio
from boolcp.program.grams import Complement, ThinGram
from boolcp.program.maxcut import maximize
from boolcp.result.atoms import Atom, BooleanCP, inner_with_atoms


def projected_gram(residual, mode, own):
    """Return the projection P that removes the bits of `own` terms, PCP for C = R_n R_n', and if that is exact.

    For a long mode both are thin, and PCP may hold only the leading directions of C.
    """
    C, is_exact = residual_gram(residual, mode)
    bits = bits_of(own) if own else np.zeros((len(C), 0))
    if isinstance(C, ThinGram):
        complement = Complement(bits)
        return complement, ThinGram(complement @ C.F), is_exact
    P = np.eye(len(C)) - bits @ np.linalg.pinv(bits)
    return P, P @ C @ P, is_exact


def best_code(C, P, rng, score, certify):
    """Return the z that maximizes z'Cz / z'Pz (or z'Cz if published), and a bound on its score (None if not proved).

    P is a projection and C = PCP, so the largest eigenvalue of C bounds the ratio. The ratio is maximized by flips
    from the z with the largest z'Cz / z'z and from that with the largest z'Cz.
    """
    if score == "published":
        published = maximize(C, rng, certify=certify, is_ratio=False)
        return published.z, published.bound
    published = maximize(C, rng, certify=False, is_ratio=False, effort="quick")  # only a start
    effort = "quick" if isinstance(C, ThinGram) else "default"  # bits of a long mode are decided again later
    normalized = maximize(C, rng, certify=certify, is_ratio=True, effort=effort)
    _, z = max((climb_ratio(C, P, start.z) for start in (normalized, published)), key=lambda found: found[0])
    return z, normalized.bound


def decide_bits(residual, mode, terms):
    """Return the terms of one mode with each row of bits decided jointly; None for a term without any bit."""
    alive = [k for k, term in enumerate(terms) if term is not None]
    if not alive:
        return list(terms)
    V = np.stack([terms[k].V for k in alive])
    Q = as_float(residual.project(mode, V))
    V = V.reshape(len(alive), -1)
    bits = best_bits(V @ V.T, Q, bits_of([terms[k] for k in alive])).astype(bool)
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
    gram, inner = atom_system(data, tuple(atoms))
    gram = None if data.is_complete else gram
    data_parts = {"data_norm2": data.squared_norm, "data_inner": inner, "data_gram": gram}
    return BooleanCP(data.shape, tuple(atoms), np.array(weights), **data_parts)


def terms_of(W):
    """Return the atoms of a decomposition as terms for back-fitting, each with its size in V."""
    terms = []
    for atom, weight in zip(W.atoms, W.weights, strict=True):
        factors = None if atom.factors is None else (weight * atom.factors[0], *atom.factors[1:])
        V = weight * atom.dense_block()
        dof = float(V.size if atom.rank is None else min(atom.rank * sum(V.shape), V.size))
        terms.append(Term(atom.mode, atom.z, V, factors, dof, atom.certificate))
    return terms


def bits_of(terms):
    """Return the bits of the terms as columns, (d_n, K)."""
    return np.stack([term.z for term in terms], axis=1).astype(float)


def blocks_of(terms):
    """Return the real parts of the terms as rows, (K, entries)."""
    return np.stack([term.V.ravel() for term in terms])


def sum_products(factors):
    """Return the sum of the products of columns, as an array."""
    first, *rest = factors
    block = first @ khatri_rao(rest).T if rest else first.sum(axis=1)
    return block.reshape([len(A) for A in factors])


as_float = partial(np.asarray, dtype=float)
