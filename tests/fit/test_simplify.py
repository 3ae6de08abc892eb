"""Codes of blocks without repeated bits, mostly-on bits beside a baseline and canceling pairs."""

import numpy as np
import pytest

from boolcp.fit.backfit import Backfit, Term, assemble, finish, noise_rule
from boolcp.fit.simplify import cosine, faults, proposals, simplify
from boolcp.storage import DenseTensor

SHAPE = (16, 12, 10)


def block(rng, *sizes, rank=2):
    return rng.standard_normal((sizes[0], rank)) @ rng.standard_normal((rank, sizes[1])) * 2


def bits(d, *ones):
    return np.isin(np.arange(d), ones)


def coded_twice(rng):
    z = bits(16, 0, 1, 2, 3, 8)
    return [Term(0, z, block(rng, 12, 10)), Term(0, z, block(rng, 12, 10)), Term(0, bits(16, 5, 6), block(rng, 12, 10))]


def mostly_on(rng):
    return [Term(0, np.ones(16, bool), block(rng, 12, 10)), Term(0, ~bits(16, 1, 4), block(rng, 12, 10))]


def canceling(rng):
    V = block(rng, 12, 10)
    return [
        Term(0, np.arange(16) < 12, V),
        Term(0, np.arange(16) < 8, -0.9 * V),
        Term(1, bits(12, 2), block(rng, 16, 10)),
    ]


@pytest.mark.parametrize("make", [coded_twice, mostly_on, canceling])
def test_the_fault_goes_and_the_fit_stays(make, rng):
    terms = make(rng)
    clean = assemble(SHAPE, terms).to_tensor()
    data = DenseTensor(clean + 0.1 * rng.standard_normal(SHAPE))
    W = finish(data, terms)
    found = simplify(data, W, 0.1, tol=1e-6)
    fitting = Backfit(data, noise_rule(data, 0.1), tol=1e-6)
    simpler = [
        Term(atom.mode, atom.z, c * atom.dense_block()) for atom, c in zip(found.atoms, found.weights, strict=True)
    ]
    assert faults(simpler) < faults(terms) and faults(simpler)[0] == 0
    spread = 0.1**2 * np.sqrt(2 * clean.size)
    assert data.residual(found).squared_norm <= fitting.measure(fitting.backfit(terms)) + spread
    assert np.sqrt(np.mean((found.to_tensor() - clean) ** 2)) < 0.06


def test_what_has_no_fault_is_left_alone(rng):
    terms = [Term(0, bits(16, 0, 1, 5), block(rng, 12, 10)), Term(1, bits(12, 3, 4), block(rng, 16, 10))]
    data = DenseTensor(assemble(SHAPE, terms).to_tensor() + 0.1 * rng.standard_normal(SHAPE))
    W = finish(data, terms)
    assert simplify(data, W, 0.1, tol=1e-6) is W
    assert list(proposals(terms)) == []


@pytest.mark.parametrize("modes", [(0, 0), (0, 2), (2, 0), (1, 2)])
def test_the_cosine_is_that_of_the_tensors(modes, rng):
    a, b = (
        Term(mode, rng.random(SHAPE[mode]) < 0.5, rng.standard_normal(SHAPE[:mode] + SHAPE[mode + 1 :]))
        for mode in modes
    )
    A, B = (assemble(SHAPE, [term]).to_tensor() for term in (a, b))
    assert cosine(a, b) == pytest.approx(np.vdot(A, B) / np.linalg.norm(A) / np.linalg.norm(B))
