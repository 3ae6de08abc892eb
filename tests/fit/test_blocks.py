"""Block atoms with back-fitting."""

from dataclasses import replace
from itertools import product

import naive
import numpy as np
import pytest

from boolcp.fit.backfit import Backfit, BlockRule, Term, assemble, decide_bits, sum_products
from boolcp.fit.blocks import Run, RunState, advance, block_pursuit, climb_ratio
from boolcp.fit.relax import last
from boolcp.fit.shrinkage import shrink_matrix, signal_subspaces
from boolcp.fit.state import Pursuit
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.storage import DenseTensor, MaskedTensor, TuckerTensor


def make_blocks(shape, modes, ranks, rng, share=0.5, size=1.0):
    """Return a tensor that is a sum of Boolean times rank-L blocks, and its bits."""
    atoms = []
    for mode, rank in zip(modes, ranks, strict=True):
        z = rng.random(shape[mode]) < share
        z[rng.integers(shape[mode])] = True
        factors = tuple(size ** (1 / (len(shape) - 1)) * rng.standard_normal((d, rank)) for d in np.delete(shape, mode))
        atoms.append(Atom(mode, z, factors))
    W = BooleanCP(shape, tuple(atoms), np.ones(len(atoms)))
    return W.to_tensor(), [atom.z for atom in atoms]


def loss(X, W):
    return float(np.sum((X - W.to_tensor()) ** 2))


def pursue(X, n_atoms, rng, modes=None, **options):
    return last(block_pursuit(DenseTensor(X), n_atoms, modes or range(X.ndim), rng, **options), None)


def begin(X):
    return RunState((), float(np.sum(X**2)))


@pytest.mark.parametrize("shape", [(14, 30), (12, 10, 11), (6, 5, 6, 4)])
def test_loss_falls_along_the_path(rng, shape):
    X = rng.standard_normal(shape)
    pursuit = pursue(X, 4, rng, atom_rank=None)
    losses = [loss(X, W) for W in pursuit.path]
    assert [W.n_atoms for W in pursuit.path] == list(range(5))
    assert np.all(np.diff(losses) < 0)
    np.testing.assert_allclose([2 * step.loss for step in pursuit.history], losses[1:], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("atom_rank", [None, "auto"])
def test_criterion_never_rises_in_a_sweep(rng, atom_rank):
    X = make_blocks((15, 14, 13), (0, 0, 1), (2, 2, 2), rng)[0] + rng.standard_normal((15, 14, 13))
    data = DenseTensor(X)
    rule = BlockRule(atom_rank, 1.0 if atom_rank == "auto" else 0.0, X.shape)
    run, state = Run(data, (0, 1, 2), rule, rng, tol=1e-6, certify=False), begin(X)
    for _ in range(3):
        state = run.advance(state)
        assert not state.is_over
    terms, values = [], []
    for term in state.terms:  # start from wrong bits
        wrong = term.z.copy()
        wrong[:4] = ~wrong[:4]
        wrong[-1] = True
        terms.append(term._replace(z=wrong))
    for _ in range(3):
        for mode in range(3):
            values.append(loss(X, assemble(X.shape, terms)) + run.rule.penalty(terms))
            if any(term.mode == mode for term in terms):
                terms, fall = run.fitting.backfit_mode(terms, mode)
                now = loss(X, assemble(X.shape, terms)) + run.rule.penalty(terms)
                assert values[-1] - now == pytest.approx(fall, abs=1e-8 * values[0])
    assert np.all(np.diff(values) <= 1e-9 * values[0])
    assert values[-1] < values[0]


def test_a_refit_that_raises_the_loss_is_refused(rng, monkeypatch):
    X, _ = make_blocks((12, 10, 11), (0,), (2,), rng)
    run = Run(DenseTensor(X), (0,), BlockRule(None), rng, tol=1e-6, certify=False)
    state = run.advance(begin(X))

    def halve(self, mode, B, terms):
        halved = [term._replace(V=term.V / 2) for term in terms]
        return [(self.cost(mode, B, halved), halved)]

    monkeypatch.setattr(Backfit, "refits", halve)
    terms, fall = run.fitting.backfit_mode(state.terms, 0)
    assert fall == 0
    np.testing.assert_array_equal(terms[0].V, state.terms[0].V)


def test_each_row_of_bits_is_the_best_of_all_patterns(rng):
    terms = [Term(0, rng.random(9) < 0.5, rng.standard_normal((6, 5))) for _ in range(3)]
    X = assemble((9, 6, 5), [term._replace(z=rng.random(9) < 0.5) for term in terms]).to_tensor()
    X += 3 * rng.standard_normal(X.shape)
    decided = decide_bits(DenseTensor(X), 0, terms)
    assert all(term is not None for term in decided)
    patterns = np.array(list(product([0, 1], repeat=3)))
    V = np.stack([term.V for term in terms])
    for i in range(9):
        costs = [np.sum((X[i] - np.tensordot(pattern, V, 1)) ** 2) for pattern in patterns]
        assert [int(term.z[i]) for term in decided] == patterns[np.argmin(costs)].tolist()


def test_an_atom_without_bits_is_given_up(rng):
    V = rng.standard_normal((6, 5))
    X = np.stack([V] * 7)
    kept, gone = decide_bits(DenseTensor(X), 0, [Term(0, np.arange(7) < 3, V), Term(0, np.arange(7) < 2, -V)])
    assert kept.z.all() and gone is None


@pytest.mark.parametrize("atom_rank", [None, "auto"])
def test_bits_are_exact_and_real_parts_have_norm_one(rng, atom_rank):
    X = make_blocks((20, 15, 12), (0, 1), (2, 2), rng)[0] + rng.standard_normal((20, 15, 12))
    for W in pursue(X, 3, rng, atom_rank=atom_rank).path:
        for atom in W.atoms:
            assert atom.z.dtype == bool and atom.z.any()
            assert np.linalg.norm(atom.dense_block()) == pytest.approx(1)
        assert W.explained() == pytest.approx(1 - loss(X, W) / np.sum(X**2))


def test_residual_is_orthogonal_to_every_atom(rng):
    X = rng.standard_normal((12, 10, 11))
    W = pursue(X, 5, rng, atom_rank=None).path[-1]
    inner = [np.vdot(X - W.to_tensor(), BooleanCP(W.shape, (atom,), np.ones(1)).to_tensor()) for atom in W.atoms]
    np.testing.assert_allclose(inner, 0, atol=1e-8)


def test_residual_vanishes_on_the_bits_of_dense_blocks(rng):
    X = make_blocks((12, 20, 11), (1, 1, 1), (2, 2, 2), rng)[0] + rng.standard_normal((12, 20, 11))
    W = pursue(X, 3, rng, modes=(1,), atom_rank=None).path[-1]
    assert any((first.z & second.z).any() for first in W.atoms for second in W.atoms if first is not second)
    R = X - W.to_tensor()
    for atom in W.atoms:
        np.testing.assert_allclose(R[:, atom.z].sum(axis=1), 0, atol=1e-9)


@pytest.mark.parametrize("atom_rank", [None, "auto"])
@pytest.mark.parametrize("modes", [(0, 1), (0, 0)])
def test_two_blocks_without_noise_are_recovered(rng, atom_rank, modes):
    X, bits = make_blocks((20, 18, 16), modes, (2, 2), rng)
    W = pursue(X, 2, rng, modes=sorted(set(modes)), atom_rank=atom_rank).path[-1]
    assert loss(X, W) < 1e-10 * np.sum(X**2)
    if modes == (0, 1):  # two blocks of one mode have equivalent codes, such as z and the union
        found = {(atom.mode, atom.z.tobytes()) for atom in W.atoms}
        assert found == {(mode, z.tobytes()) for mode, z in zip(modes, bits, strict=True)}


@pytest.mark.parametrize(
    ("shape", "mode", "ranks"), [((30, 40, 35), 0, (3, 1)), ((40, 30, 35), 2, (2, 4)), ((14, 11, 10, 9), 0, (1, 2))]
)
def test_auto_finds_the_ranks(rng, shape, mode, ranks):
    bits = [np.arange(shape[mode]) % 3 == k for k in range(2)]
    blocks = [make_blocks(shape, (mode,), (rank,), rng)[0].sum(axis=mode) for rank in ranks]
    clean = sum(np.moveaxis(np.multiply.outer(z, V), 0, mode) for z, V in zip(bits, blocks, strict=True)) / 5
    X = clean + rng.standard_normal(shape)
    W = pursue(X, 2, rng, modes=(mode,), atom_rank="auto").path[-1]
    assert {(atom.rank, atom.z.tobytes()) for atom in W.atoms} == {
        (rank, z.tobytes()) for rank, z in zip(ranks, bits, strict=True)
    }
    dense = pursue(X, 2, rng, modes=(mode,), atom_rank=None).path[-1]
    assert loss(clean, W) < 0.6 * loss(clean, dense)


def test_auto_finds_bits_along_two_modes(rng):
    # z (x) z' (x) c may belong to either block, so that the ranks are determined up to one
    clean, bits = make_blocks((30, 40, 35), (0, 1), (3, 1), rng)
    W = pursue(clean + rng.standard_normal(clean.shape), 2, rng, atom_rank="auto").path[-1]
    ranks = {(atom.mode, atom.z.tobytes()): atom.rank for atom in W.atoms}
    assert 3 <= ranks[0, bits[0].tobytes()] <= 4
    assert 1 <= ranks[1, bits[1].tobytes()] <= 2


def test_auto_finds_vectors_in_a_matrix(rng):
    clean, bits = make_blocks((40, 60), (0,), (1,), rng)
    W = pursue(clean + rng.standard_normal(clean.shape), 1, rng, modes=(0,), atom_rank="auto").path[-1]
    assert np.array_equal(W.atoms[0].z, bits[0])
    assert loss(clean, W) < 1.5 * 60


def test_auto_takes_nothing_from_noise(rng):
    pursuit = pursue(rng.standard_normal((25, 30, 20)), 3, rng, atom_rank="auto", sigma=1.0)
    assert pursuit.path[-1].n_atoms == 0
    assert pursuit.stop_reason == "no descent"


def test_auto_respects_the_sigma_given(rng):
    X = make_blocks((20, 22, 24), (0,), (3,), rng)[0] + rng.standard_normal((20, 22, 24))
    ranks = [pursue(X, 1, rng, modes=(0,), atom_rank="auto", sigma=s).path[1].atoms[0].rank for s in (0.1, 1.0)]
    assert ranks[0] > ranks[1] == 3


def test_equal_seeds_give_equal_results():
    X = np.random.default_rng(0).standard_normal((12, 30, 25))
    X[:6] += 2 * np.outer(np.arange(30) % 3, np.ones(25))
    for atom_rank in (None, "auto"):
        first, second = (pursue(X, 3, np.random.default_rng(5), atom_rank=atom_rank).path[-1] for _ in range(2))
        np.testing.assert_array_equal(first.to_tensor(), second.to_tensor())


@pytest.mark.parametrize("atom_rank", [None, "auto"])
def test_compressed_data_of_exact_rank_change_nothing(rng, atom_rank):
    X, _ = make_blocks((20, 18, 16), (0, 1), (2, 1), rng)
    bases = [np.linalg.svd(np.moveaxis(X, n, 0).reshape(X.shape[n], -1))[0][:, :6] for n in range(3)]
    core = np.einsum("abc,ai,bj,ck->ijk", X, *bases)
    compressed = TuckerTensor(DenseTensor(core), bases, float(np.sum(X**2)))
    options = {"atom_rank": atom_rank, "certify": False}
    paths = [
        last(block_pursuit(D, 2, range(3), np.random.default_rng(3), **options), None).path
        for D in (DenseTensor(X), compressed)
    ]
    for first, second in zip(*paths, strict=True):
        np.testing.assert_allclose(first.to_tensor(), second.to_tensor(), atol=1e-6 * np.abs(X).max())


def test_zero_explained_and_restricted_modes(rng):
    assert pursue(np.zeros((4, 5, 6)), 2, rng, atom_rank=None).stop_reason == "zero"
    X, _ = make_blocks((12, 10, 11), (2,), (2,), rng)
    pursuit = pursue(X, 4, rng, modes=(2,), atom_rank=None)
    assert pursuit.stop_reason == "explained" and len(pursuit.history) == 1
    assert 0 < pursuit.history[0].certificate <= 1


def test_published_score_and_certificates(rng):
    X = rng.standard_normal((12, 10, 11))
    for score in ("published", "normalized"):
        pursuit = pursue(X, 3, rng, atom_rank=None, criterion=score)
        assert len(pursuit.history) == 3
        certificates = np.array([step.certificate for step in pursuit.history])
        assert np.all(np.isnan(certificates) | ((certificates > 0) & (certificates <= 1)))


def test_float32_is_enough(rng):
    X, bits = make_blocks((20, 18, 16), (0, 1), (2, 2), rng)
    W = pursue(X.astype(np.float32), 2, rng, modes=(0, 1), atom_rank=None, tol=1e-3).path[-1]
    assert {atom.z.tobytes() for atom in W.atoms} == {z.tobytes() for z in bits}


def test_degrees_of_freedom_are_the_divergence(rng):
    B = np.outer(rng.standard_normal(9), rng.standard_normal(6)) * 4 + rng.standard_normal((9, 6))
    (A, Y), dof = shrink_matrix(B, 1.0, B.shape)
    step, divergence = 1e-5, 0.0
    for index in np.ndindex(B.shape):
        moved = B.copy()
        moved[index] += step
        (A2, Y2), _ = shrink_matrix(moved, 1.0, B.shape)
        divergence += ((A2 @ Y2.T - A @ Y.T)[index]) / step
    assert dof == pytest.approx(divergence, rel=1e-3)


def test_shrinkage_beats_truncation(rng):
    clean = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 40)) * 1.2
    B = clean + rng.standard_normal(clean.shape) * 3
    (A, Y), _ = shrink_matrix(B, 3.0, B.shape)
    U, s, T = np.linalg.svd(B, full_matrices=False)
    truncated = U[:, : A.shape[1]] * s[: A.shape[1]] @ T[: A.shape[1]]
    assert np.sum((A @ Y.T - clean) ** 2) < 0.95 * np.sum((truncated - clean) ** 2)


def test_climbing_the_ratio_ends_where_no_flip_helps(rng):
    A = rng.standard_normal((15, 40))
    Z = (rng.random((15, 2)) < 0.5).astype(float)
    P = np.eye(15) - Z @ np.linalg.pinv(Z)
    C = P @ A @ A.T @ P
    ratio, z = climb_ratio(C, P, rng.random(15) < 0.5)
    assert ratio == pytest.approx(z @ C @ z / (z @ P @ z))
    for i in range(15):
        flipped = z.copy()
        flipped[i] = ~flipped[i]
        if flipped @ P @ flipped > 1e-6:
            assert flipped @ C @ flipped / (flipped @ P @ flipped) <= ratio * (1 + 1e-8)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_run_in_coordinates_is_the_run_on_the_projection(mode):
    make = np.random.default_rng(11)
    X = make_blocks((15, 14, 13), (mode, mode), (2, 1), make)[0] + 0.3 * make.standard_normal((15, 14, 13))
    small, sizes = signal_subspaces(DenseTensor(X), 0.3)[1]
    rule = BlockRule("auto", 0.3, sizes)
    options = {"tol": 1e-6, "certify": False}
    run = Run(small, (mode,), rule, np.random.default_rng(0), **options)
    rule = replace(rule, bases=tuple(small.bases))
    quick = Run(small.opened(mode), (mode,), rule, np.random.default_rng(0), **options)
    slow, fast = (each.advance(each.advance(begin(X))) for each in (run, quick))
    np.testing.assert_allclose(fast.criterion, slow.criterion, rtol=1e-9)
    for found, expected in zip(rule.expand(fast.terms), slow.terms, strict=True):
        np.testing.assert_array_equal(found.z, expected.z)
        np.testing.assert_allclose(found.V, expected.V, atol=1e-8 * np.abs(expected.V).max())
        np.testing.assert_allclose(sum_products(found.factors), found.V, atol=1e-12)


def test_a_run_is_over_when_it_is_two_atoms_late_or_finds_none(rng):
    X = make_blocks((15, 14, 13), (0,), (1,), rng)[0]
    data = DenseTensor(X)
    run = Run(data, (0,), BlockRule(None), rng, tol=1e-6, certify=False)
    pursuit = Pursuit((BooleanCP(X.shape),), memory=((np.sum(X**2),), (begin(X),)))
    (risk, *_), (state,) = advance(data, [run], pursuit)
    assert not state.is_over
    late = replace(pursuit, memory=((risk - 1, risk - 2), (begin(X),)))
    best, (given_up,) = advance(data, [run], late)
    assert best[0] == pytest.approx(risk, abs=1e-6) and given_up.is_over
    best, (over,) = advance(data, [run], replace(pursuit, memory=((np.sum(X**2),), (state,))))
    assert best is None and over.is_over  # one atom explains everything


@pytest.mark.parametrize("modes", [(0, 0), (0, 1)])
def test_dense_blocks_over_observed_entries_are_the_least_squares(modes, rng):
    X, bits = make_blocks((9, 8, 7), modes, (2, 2), rng)
    X += 0.1 * rng.standard_normal(X.shape)
    mask = rng.random(X.shape) < 0.7
    data = MaskedTensor(np.where(mask, X, 999.0), mask)
    fitting = Backfit(data, BlockRule(None), tol=1e-6)
    terms = [Term(mode, z, rng.standard_normal(np.delete(X.shape, mode))) for mode, z in zip(modes, bits, strict=True)]
    values = [fitting.measure(terms)]
    assert values[0] == pytest.approx(np.sum((X - assemble(X.shape, terms).to_tensor())[mask] ** 2))
    for mode in sorted(set(modes)):
        terms, fall = fitting.backfit_mode(terms, mode)
        values.append(fitting.measure(terms))
        assert values[-2] - values[-1] == pytest.approx(fall, abs=1e-8 * values[0])
        own = [term for term in terms if term.mode == mode]
        rest = X - assemble(X.shape, [term for term in terms if term.mode != mode]).to_tensor()
        expected = naive.observed_blocks(rest, mask, mode, [term.z for term in own])
        for term, V in zip(own, expected, strict=True):
            np.testing.assert_allclose(term.V, V, atol=1e-7)


def test_products_are_summed(rng):
    A, B, C = (rng.standard_normal((d, 2)) for d in (3, 4, 5))
    np.testing.assert_allclose(sum_products((A, B, C)), np.einsum("ik,jk,lk->ijl", A, B, C))
    np.testing.assert_allclose(sum_products((A,)), A[:, 0] + A[:, 1])
