import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import random_decomposition

from boolcp.contractions import khatri_rao
from boolcp.datasets import make_boolean_cp
from boolcp.fit.atom_search import (
    alternate,
    greedy_atom_search,
    improved,
    leading_pairs,
    normalize,
    projection,
    real_part,
    residual_gram,
    score_value,
    singular_start,
    steepest_atom,
)
from boolcp.fit.relax import cp_als, random_factors
from boolcp.program import maxcut
from boolcp.program.flips import best_boolean
from boolcp.result.atoms import Atom
from boolcp.storage import DenseTensor
from boolcp.storage.tucker import compress

SCORES = ("normalized", "published")
RANKS = (1, 2, None)


@pytest.fixture(params=["enumerated", "searched"])
def solver(request, monkeypatch):
    """Let the small programs of these tests be solved exactly, or by the search that large ones take."""
    if request.param == "searched":
        monkeypatch.setattr(maxcut, "EXHAUSTIVE", 0)


def dense_block(V):
    return Atom(0, [1], V).dense_block() if isinstance(V, tuple) else V


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("atom_rank", RANKS)
def test_an_atom_descends_and_reaches_three_fifths_of_the_best(atom_rank, score, solver, rng):
    is_ratio = score == "normalized"
    for X in (rng.standard_normal((6, 7, 5)), naive.tensor(random_decomposition((6, 7, 5), "rank one", rng))):
        W = random_decomposition(X.shape, "rank two", rng, n_atoms=2)
        R = X - naive.tensor(W)
        found = greedy_atom_search(DenseTensor(X).residual(W), (0, 1, 2), rng, atom_rank=atom_rank, criterion=score)
        M = naive.atom(found.atom)
        slope = np.sum((naive.tensor(W) - X) * M)  # <grad F, M> for F = |X - W|^2 / 2
        assert slope < 0
        assert found.descent == pytest.approx(-slope)
        size = np.linalg.norm(M) if is_ratio else 1.0
        best = naive.best_score(R, atom_rank, is_ratio)
        assert 0.6 * best <= -slope / size <= best * (1 + 1e-9)
        assert found.value == pytest.approx((slope / size) ** 2)
        assert np.linalg.norm(found.atom.dense_block()) == pytest.approx(1)
        if atom_rank is None:  # Algorithm 2 to the letter: nothing is better
            assert -slope / size == pytest.approx(best)


@pytest.mark.parametrize("score", SCORES)
def test_the_certificate_is_no_more_than_the_true_share_of_the_best(score, solver, rng):
    for _ in range(5):
        R = rng.standard_normal((6, 7, 5))
        for atom_rank in RANKS:
            for mode in range(3):
                found = steepest_atom(DenseTensor(R), mode, rng, atom_rank=atom_rank, criterion=score)
                rows = naive.unfold(R, mode)
                best, _ = naive.best_boolean(rows @ rows.T, score == "normalized")
                assert 0 < found.atom.certificate <= found.value / best * (1 + 1e-9)
    assert np.isnan(steepest_atom(DenseTensor(R), 0, rng, certify=False).atom.certificate)


def test_only_the_allowed_modes_are_searched(rng):
    data = DenseTensor(make_boolean_cp((5, 6, 7), [0, 3, 0], random_state=rng).X)
    assert greedy_atom_search(data, (0, 1, 2), rng).atom.mode == 1
    assert greedy_atom_search(data, (0, 2), rng).atom.mode in (0, 2)
    assert greedy_atom_search(data, (2,), rng).atom.mode == 2


@pytest.mark.parametrize("shape", [(25, 22), (25, 30, 22), (22, 6, 5, 24)])
def test_a_tensor_of_one_atom_is_recovered_exactly(shape, rng):
    for _ in range(100 if len(shape) == 3 else 20):
        mode = int(rng.integers(len(shape)))
        truth = make_boolean_cp(shape, 1, boolean_modes=[mode], random_state=rng).truth
        found = greedy_atom_search(DenseTensor(truth.to_tensor()), range(len(shape)), rng, certify=False)
        assert found.atom.mode == mode
        np.testing.assert_array_equal(found.atom.z, truth.atoms[0].z)
        np.testing.assert_allclose(found.atom.dense_block(), truth.atoms[0].dense_block(), atol=1e-9)
        assert found.descent == pytest.approx(truth.weights[0] * truth.atoms[0].n_ones)


def test_nothing_is_found_in_nothing(rng):
    assert greedy_atom_search(DenseTensor(np.zeros((3, 4, 5))), (0, 1, 2), rng) is None
    assert real_part(np.zeros((3, 4)), 1, rng) is None


@given(
    st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=1, max_size=9).filter(any),
    st.sampled_from(SCORES),
)
def test_best_boolean_is_the_best_of_all_vectors(p, score):
    p = np.array(p)
    z, sign = best_boolean(p, score)
    optimum, _ = naive.best_boolean(np.outer(p, p), score == "normalized")
    total = p[z].sum()
    assert total**2 / (z.sum() if score == "normalized" else 1) == pytest.approx(optimum)
    assert sign == np.sign(total)


def test_best_boolean_breaks_ties_in_favor_of_plus():
    for score in SCORES:
        z, sign = best_boolean(np.array([-1.0, 1.0, 0.0]), score)
        assert sign == 1 and z.tolist() == [False, True, False]


def test_best_boolean_of_zero_is_not_empty():
    for score in SCORES:
        assert best_boolean(np.zeros(4), score)[0].sum() == 1


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("shape", "atom_rank"), [((6, 7), 1), ((6, 7, 5), 1), ((6, 7, 5), 2), ((4, 5, 3, 4), 1)])
def test_alternation_never_lowers_the_score(shape, atom_rank, score, rng):
    for k in range(20):
        R, mode = rng.standard_normal(shape), k % len(shape)
        z = rng.random(shape[mode]) < 0.5
        z[0] = True
        V = real_part(naive.contract(R, mode, z[:, None])[0], atom_rank, rng)
        start = V if k % 2 else (-V[0], *V[1:])  # the sign is found too
        y, U = alternate(DenseTensor(R), mode, z, start, atom_rank, score, rng)
        if k % 4 == 0:  # where it has ended, only the sign is left to find
            z, V = y, U
            y, U = alternate(DenseTensor(R), mode, z, (-V[0], *V[1:]), atom_rank, score, rng)

        def value(z, V, R=R, mode=mode):
            descent = np.sum(R * np.moveaxis(np.multiply.outer(z.astype(float), dense_block(V)), 0, mode))
            return descent, descent**2 / (z.sum() if score == "normalized" else 1)

        assert value(y, U)[1] >= value(z, V)[1] * (1 - 1e-9)
        assert value(y, U)[0] > 0
        assert np.linalg.norm(dense_block(U)) == pytest.approx(1)


@pytest.mark.parametrize("score", SCORES)
def test_alternation_ends_where_no_single_part_can_be_bettered(score, rng):
    R = rng.standard_normal((6, 7, 5))
    found = steepest_atom(DenseTensor(R), 0, rng, criterion=score)
    p = naive.project(R, 0, found.atom.dense_block()[None])[:, 0]
    assert found.value == pytest.approx(naive.best_boolean(np.outer(p, p), score == "normalized")[0])
    block = naive.contract(R, 0, found.atom.z[:, None])[0]
    assert found.descent == pytest.approx(np.linalg.svd(block)[1][0])


@pytest.mark.parametrize(("shape", "rank"), [((5, 8), 1), ((8, 5), 2), ((3, 6), 5)])
def test_leading_pairs_are_the_best_approximation_of_their_rank(shape, rank, rng):
    B = rng.standard_normal(shape)
    U, V = leading_pairs(B, rank)
    singular = np.linalg.svd(B)[1]
    assert np.linalg.norm(B - U @ V.T) == pytest.approx(np.linalg.norm(singular[rank:]), abs=1e-9)


def test_the_real_part_of_a_block_of_low_rank_is_the_block(rng):
    for others, rank in [((5, 6), 2), ((4, 5, 3), 1), ((4, 5, 3), 2)]:
        B = random_decomposition((2, *others), "rank two" if rank == 2 else "rank one", rng, 1).atoms[0].dense_block()
        V = real_part(7 * B, rank, rng)
        assert len(V) == len(others) and V[0].shape[1] == rank
        np.testing.assert_allclose(dense_block(V), B, atol=1e-3)
    V = real_part(3 * B, None, rng)
    np.testing.assert_allclose(V, B)


def test_the_real_part_never_points_away_from_the_block(rng):
    for others in [(6,), (5, 6), (4, 5, 3)]:
        for rank in RANKS:
            B = rng.standard_normal(others)
            V = dense_block(real_part(B, rank, rng))
            assert np.sum(B * V) > 0 and np.linalg.norm(V) == pytest.approx(1)


def test_a_real_part_is_found_although_its_start_is_orthogonal_to_the_block(rng):
    """The leading eigenvectors of all unfoldings meet in an entry that is 0."""
    block = np.array([[[[1.7, 0.0], [0.0, 2.5]], [[0.0, 4.2], [4.2, 0.0]]]])
    columns = [column[:, 0] for column in real_part(block, 1, rng)]
    np.testing.assert_allclose(np.prod([np.linalg.norm(column) for column in columns]), 1.0)
    assert np.einsum("abcd,a,b,c,d", block, *columns) > 1.7 - 1e-9


def test_small_parts(rng):
    R = rng.standard_normal((4, 5, 6))
    factors = tuple(rng.standard_normal((d, 2)) for d in (4, 6))
    V = dense_block(normalize(factors))
    np.testing.assert_allclose(V, dense_block(factors) / np.linalg.norm(dense_block(factors)))
    for part in (factors, dense_block(factors)):
        exact = naive.project(R, 1, dense_block(factors)[None])[:, 0]
        np.testing.assert_allclose(projection(DenseTensor(R), 1, part), exact)
    assert score_value(6.0, 4, "normalized") == 9 and score_value(6.0, 4, "published") == 36


def test_equal_seeds_give_equal_atoms(rng):
    data = DenseTensor(rng.standard_normal((40, 30, 25)))
    first, second = (greedy_atom_search(data, (0, 1, 2), np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(first.atom.z, second.atom.z)
    np.testing.assert_array_equal(first.atom.factors[0], second.atom.factors[0])
    assert first.descent == second.descent and first.atom.certificate == second.atom.certificate


def test_a_compressed_tensor_has_its_program_in_thin_coordinates(rng, monkeypatch):
    X = make_boolean_cp((30, 12, 10), 2, noise=0.5, random_state=1).X
    small = compress(DenseTensor(X), 4)
    dense = steepest_atom(small, 0, np.random.default_rng(0), certify=False)
    monkeypatch.setattr("boolcp.fit.atom_search.MANY", 20)
    C, is_exact = residual_gram(small, 0)
    assert C.is_thin and is_exact
    np.testing.assert_allclose(C @ np.eye(30), small.gram(0), atol=1e-9)
    assert not residual_gram(small, 1)[0].is_thin
    thin = steepest_atom(small, 0, np.random.default_rng(0), certify=False)
    np.testing.assert_array_equal(thin.atom.z, dense.atom.z)


@pytest.mark.parametrize("shape", [(5, 6, 7), (4, 3, 5, 2)])
def test_the_real_part_of_rank_one_is_that_of_alternating_least_squares(shape, rng):
    data, start = DenseTensor(rng.standard_normal(shape)), random_factors(shape, 1, rng)
    for A, B in zip(improved(data, start), cp_als(data, start, max_iter=100, tol=1e-8)[0], strict=True):
        np.testing.assert_allclose(A, B, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 4, 5), (6, 2, 3, 4), (2, 3, 40)])
def test_the_singular_start_of_a_product_is_that_product(shape, rng):
    """Also where the last mode is longer than all others together; with two products they span the same columns."""
    factors = [rng.standard_normal((d, 2)) for d in shape]
    X = khatri_rao([A[:, :1] for A in factors]).sum(axis=1).reshape(shape)
    found = singular_start(X, 1)
    for A, U in zip(factors, found, strict=True):
        np.testing.assert_allclose(abs(A[:, 0] @ U[:, 0]), np.linalg.norm(A[:, 0]) * np.linalg.norm(U[:, 0]))
    for A, U in zip(factors, singular_start(khatri_rao(factors).sum(axis=1).reshape(shape), 2), strict=True):
        np.testing.assert_allclose(U @ np.linalg.lstsq(U, A, rcond=None)[0], A, atol=1e-9)
