from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from samples import random_atom

from boolcp.datasets import make_boolean_cp
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.trust.identifiability import diagnose, is_rigid, kruskal_condition, kruskal_rank


def naive_kruskal_rank(A):
    """Look at all sets of columns."""
    for size in range(1, A.shape[1] + 1):
        for columns in combinations(range(A.shape[1]), size):
            if np.linalg.matrix_rank(A[:, columns]) < size:
                return size - 1
    return A.shape[1]


def naive_rigid(Z):
    """Look at all 2^d Boolean vectors and ask whether adding one to Z leaves the rank."""
    rank = np.linalg.matrix_rank(Z)
    if rank < Z.shape[1]:
        return False
    columns = {tuple(z) for z in Z.T}
    others = (x for x in product([0, 1], repeat=len(Z)) if any(x) and x not in columns)
    return not any(np.linalg.matrix_rank(np.column_stack([Z, x])) == rank for x in others)


@pytest.mark.parametrize("d, n_columns", [(3, 2), (3, 5), (4, 6), (6, 6), (2, 4)])
def test_kruskal_rank_is_that_of_all_subsets(d, n_columns, rng):
    for _ in range(20):
        A = rng.integers(-1, 2, (d, n_columns)).astype(float)
        assert kruskal_rank(A) == naive_kruskal_rank(A)


def test_kruskal_rank_does_not_see_the_scale_of_columns(rng):
    A = rng.standard_normal((5, 4))
    A[:, 3] = 1e-7 * (A[:, 0] - A[:, 1])
    assert kruskal_rank(A * [1e6, 1.0, 1e-6, 1.0]) == 2


def test_kruskal_rank_of_many_columns_is_a_lower_bound(rng):
    A = rng.standard_normal((6, 12))
    A[:, 11] = A[:, 0] + A[:, 1] + A[:, 2]
    assert kruskal_rank(A) == 3
    assert 2 <= kruskal_rank(rng.standard_normal((39, 40))) < 39  # not all sets are tried


def test_kruskal_condition_is_the_formula_of_the_paper():
    truth = make_boolean_cp((9, 9, 9), 5, random_state=0).truth
    condition = kruskal_condition(truth)
    assert condition.ranks == (5, 5, 5) and condition and condition.holds  # 5 <= (5 + 5 + 5 - 2) / 2
    factors = [A.copy() for A in truth.factors]
    factors[2][:, 1] = -2 * factors[2][:, 0]
    assert kruskal_condition(factors).ranks == (5, 5, 1)
    assert kruskal_condition(factors).holds is False  # 5 > (5 + 5 + 1 - 2) / 2
    assert kruskal_condition(truth[:1]).holds
    assert not kruskal_condition(make_boolean_cp((9, 9), 2, random_state=0).truth), "a matrix never meets it"


@pytest.mark.parametrize("d, n_columns", [(4, 2), (6, 3), (7, 4), (9, 5)])
def test_rigidity_is_that_of_all_boolean_vectors(d, n_columns, rng):
    answers = []
    for _ in range(15):
        Z = rng.integers(0, 2, (d, n_columns))
        found = is_rigid(Z)
        answers.append(naive_rigid(Z))
        assert bool(found) == answers[-1]
        if not found:
            np.testing.assert_allclose(Z @ found.coefficients, found.witness, atol=1e-9)
            assert found.coefficients.any()
            if found.witness.any():
                assert not any(np.array_equal(found.witness, z) for z in Z.T)
    if d > 5:
        assert len(set(answers)) == 2  # both answers were tested


def test_a_sum_of_columns_is_a_witness():
    a, b = np.array([1, 1, 0, 0, 0, 1]), np.array([0, 0, 1, 1, 0, 0])
    found = is_rigid(np.column_stack([a, b]))
    assert found.holds is False
    np.testing.assert_array_equal(found.witness, a + b)
    np.testing.assert_array_equal(found.coefficients, [1, 1])
    dependent = is_rigid(np.column_stack([a, b, a + b]))
    assert dependent.holds is False and not dependent.witness.any()
    assert str(dependent).endswith("is zero")


def test_many_columns_are_decided_if_they_are_few_enough_or_dependent(rng):
    Z = rng.integers(0, 2, (60, 21))
    assert is_rigid(Z).holds is None and not is_rigid(Z) and "not decided" in str(is_rigid(Z))
    assert is_rigid(Z[:, :18]).holds
    Z[:, 7] = Z[:, 2] & rng.integers(0, 2, 60)  # nested: the difference is Boolean
    found = is_rigid(Z[:, :18])
    assert found.holds is False
    np.testing.assert_array_equal(Z[:, :18] @ found.coefficients, found.witness)
    assert is_rigid(np.column_stack([Z, Z[:, 0]])).holds is False


def test_rigidity_needs_zeros_and_ones():
    with pytest.raises(ValueError, match="zeros and ones"):
        is_rigid([[0.5, 1.0]])
    with pytest.raises(ValueError, match="matrix"):
        kruskal_rank([1.0, 2.0])


def rank_one(shape, mode, z, rng):
    atom = random_atom(shape, mode, "rank one", rng)
    return Atom(mode, z, atom.factors)


def test_diagnose_kruskal(rng):
    diagnosis = diagnose(make_boolean_cp((9, 10, 11), 4, random_state=0).truth)
    assert diagnosis and diagnosis.is_identifiable.all() and "Kruskal's condition holds" in str(diagnosis)


def test_diagnose_rigid_atoms_with_a_shared_column(rng):
    """A column shared by all atoms breaks Kruskal's condition; rigid Boolean vectors are unique nevertheless."""
    Z = np.array([[1, 0], [1, 1], [0, 1], [1, 1]], dtype=bool)
    u = rng.standard_normal((5, 1))
    atoms = [Atom(0, z, (u / np.linalg.norm(u), random_atom((4, 5, 6), 0, "rank one", rng).factors[1])) for z in Z.T]
    diagnosis = diagnose(BooleanCP((4, 5, 6), tuple(atoms), [1.0, 2.0]))
    assert not diagnosis.kruskal
    assert diagnosis.verdicts == ("identifiable", "identifiable")
    assert "rigid" in diagnosis.reasons[0]


def test_diagnose_atoms_that_differ_along_one_mode_only(rng):
    atom = random_atom((6, 5, 4), 0, "rank one", rng)
    twin = Atom(0, atom.z, (atom.factors[0], random_atom((6, 5, 4), 0, "rank one", rng).factors[1]))
    other = random_atom((6, 5, 4), 1, "rank one", rng)
    diagnosis = diagnose(BooleanCP((6, 5, 4), (atom, other, twin), [1.0, 1.0, 1.0]))
    assert diagnosis.verdicts == ("not identifiable", "not guaranteed", "not identifiable")
    assert "atoms 0 and 2 differ along one mode" in diagnosis.reasons[0]
    assert not diagnosis


@pytest.mark.parametrize("weights", [(1.0, 2.0), (1.0, 1.0), (1.0, -1.0), (2.0, -1.0)])
def test_atoms_with_one_real_part_are_exchangeable_if_other_bits_give_the_same_sum(weights, rng):
    """Pairs of Boolean vectors of length 4 against all others: does another pair, with any weights, have the sum?"""
    vectors = (np.arange(1, 16)[:, None] >> np.arange(4) & 1).astype(float)
    pairs = list(combinations(range(15), 2))
    part = random_atom((4, 5, 6), 0, "rank one", rng).factors
    for i, j in pairs:
        x = weights[0] * vectors[i] + weights[1] * vectors[j]
        fits = [np.linalg.lstsq(vectors[list(pair)].T, x, rcond=None)[0] for pair in pairs if pair != (i, j)]
        sums = [c @ vectors[list(pair)] for c, pair in zip(fits, [p for p in pairs if p != (i, j)], strict=True)]
        has_other = any(np.allclose(y, x) for y in sums)
        atoms = tuple(Atom(0, vectors[k], part) for k in (i, j))
        is_known = "not identifiable" in diagnose(BooleanCP((4, 5, 6), atoms, weights)).verdicts
        assert is_known == has_other, (vectors[i], vectors[j])


def test_rigidity_is_told_by_the_numbers_of_the_atoms(rng):
    a, b = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]], dtype=bool)
    first, last = (replace(random_atom((6, 5, 4), 0, "rank one", rng), z=z) for z in (a, b))
    other = random_atom((6, 5, 4), 1, "rank one", rng)
    text = str(diagnose(BooleanCP((6, 5, 4), (first, other, last), [1.0, 1.0, 1.0])))
    assert "Mode 0 is not rigid: z_0 + z_2 is Boolean as well" in text


def test_diagnose_blocks(rng):
    shape = (8, 5, 4)
    a, b, c = np.zeros((3, 8), dtype=bool)
    a[:3], b[3:6], c[[0, 4, 6, 7]] = True, True, True
    blocks = [random_atom(shape, 0, "block", rng).block for _ in range(3)]
    atoms = [Atom(0, z, block=V) for z, V in zip((a, b, c), blocks, strict=True)]
    diagnosis = diagnose(BooleanCP(shape, tuple(atoms), [1.0, 1.0, 1.0]))
    assert diagnosis.verdicts == ("not identifiable", "not identifiable", "not guaranteed")
    assert "z_0 + z_1 is Boolean as well" in diagnosis.reasons[0]
    b[0] = True  # a and b overlap now
    atoms[1] = Atom(0, b, block=blocks[1])
    assert diagnose(BooleanCP(shape, tuple(atoms), [1.0, 1.0, 1.0])).verdicts == ("identifiable",) * 3
    atoms[1] = Atom(0, b, block=blocks[0])  # the same real part twice
    diagnosis = diagnose(BooleanCP(shape, tuple(atoms), [1.0, 1.0, 1.0]))
    assert diagnosis.verdicts == ("not guaranteed",) * 3
    assert diagnosis.reasons[0] == "the real parts are dependent"


def test_diagnose_says_what_it_needs():
    with pytest.raises(TypeError, match="BooleanCP"):
        diagnose(np.zeros((2, 2, 2)))
    assert str(diagnose(BooleanCP((2, 2, 2)))) == ""
