"""Simpler codes of the same data, where they fit equally well up to the noise.

Blocks that are fitted to recordings may repeat bits, be on nearly everywhere beside a baseline, or cancel each other.
For each such fault there is a code without it, which is back-fitted, and accepted if the estimated risk stays
within the random spread of |noise|^2.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from boolcp.fit.backfit import Backfit, Term, in_order, noise_rule, terms_of
from boolcp.fit.blocks import assess
from boolcp.result.atoms import BooleanCP
from boolcp.storage.protocol import Storage

CANCELING = -0.5  # cosine of two atoms below which they cancel; not tuned
MAX_MOVES = 10  # a bound on the work, not tuned


def simplify(data: Storage, W: BooleanCP, sigma: float, *, tol: float) -> BooleanCP:
    """Return W, or a simpler code of nearly the same tensor: no repeated bits, few ones, no canceling pairs."""
    rule = noise_rule(data, sigma)
    fitting = Backfit(data, rule, tol=tol)
    first = terms = fitting.backfit(terms_of(W))
    limit = fitting.measure(terms) + sigma**2 * float(np.sqrt(2 * np.prod(data.shape, dtype=float)))
    for _ in range(MAX_MOVES):
        simpler = (fitting.backfit(proposal) for proposal in proposals(terms))
        is_taken = (
            found for found in simpler if found and fitting.measure(found) <= limit and faults(found) < faults(terms)
        )
        found = next(is_taken, None)
        if found is None:
            break
        terms = found
    return W if terms is first else assess(data, rule, [in_order(term) for term in terms])[2]


def faults(terms: Sequence[Term]) -> tuple[int, int]:
    """Return the number of pairs with the same bits or that cancel, and the number of ones beside baselines."""
    with_baseline = {term.mode for term in terms if term.z.all()}
    n_pairs = sum(is_same(a, b) or cosine(a, b) < CANCELING for a, b in combinations(terms, 2))
    return n_pairs, sum(int(term.z.sum()) for term in terms if term.mode in with_baseline)


def proposals(terms: Sequence[Term]) -> Iterator[list[Term]]:
    """Yield codes that lack one fault of these terms: bits merged, bits complemented, or a canceling pair resolved."""
    for a, b in combinations(terms, 2):
        rest = [term for term in terms if term is not a and term is not b]
        if is_same(a, b):
            yield [*rest, dense(a.mode, a.z, a.V + b.V)]
        elif cosine(a, b) < CANCELING:
            yield from without_canceling(rest, a, b)
        for base, term in ((a, b), (b, a)):
            if base.mode == term.mode and base.z.all() and len(term.z) < 2 * term.z.sum() < 2 * len(term.z):
                yield [*rest, dense(base.mode, base.z, base.V + term.V), dense(term.mode, ~term.z, -term.V)]


def without_canceling(rest: list[Term], a: Term, b: Term) -> Iterator[list[Term]]:
    """Yield the other terms with two kinds of slices that a canceling pair tells apart, or with one of the pair."""
    if a.mode == b.mode:
        kinds = ((a.z & ~b.z, a.V), (b.z & ~a.z, b.V), (a.z & b.z, a.V + b.V))
        found = [dense(a.mode, z, V) for z, V in kinds if z.any()]
        yield [*rest, *sorted(found, key=lambda term: -term.z.sum() * np.vdot(term.V, term.V))[:2]]
    yield from ([*rest, a], [*rest, b])


def dense(mode: int, z: np.ndarray, V: np.ndarray) -> Term:
    """Return a term with a block that has yet to be shrunk."""
    return Term(mode, z, V, dof=float(V.size))


def is_same(a: Term, b: Term) -> bool:
    """Return True if two terms have the same bits along the same mode."""
    return a.mode == b.mode and np.array_equal(a.z, b.z)


def cosine(a: Term, b: Term) -> float:
    """Return the cosine of two terms as tensors."""
    sizes = np.sqrt(a.z.sum() * np.vdot(a.V, a.V) * b.z.sum() * np.vdot(b.V, b.V))
    if a.mode == b.mode:
        return float((a.z & b.z).sum() * np.vdot(a.V, b.V) / sizes)
    return float(np.vdot(slices_of(a, b), slices_of(b, a)) / sizes)


def slices_of(a: Term, b: Term) -> np.ndarray:
    """Return the block of `a` summed over the slices where `b` is on, over the modes that are real in both."""
    return np.tensordot(a.V, b.z.astype(float), axes=(b.mode - (b.mode > a.mode), 0))
