"""Columns of CP factors and the decomposition that they are."""

import numpy as np
import pytest

from boolcp.result.columns import Columns, to_columns

SHAPE = (5, 6, 7, 4)


def some_columns(rng, ranks, zero=None):
    """Return random columns; the column `zero` is zero along a real mode."""
    owner, boolean_mode = np.repeat(np.arange(len(ranks)), ranks), rng.integers(0, 4, len(ranks))
    matrices = [rng.standard_normal((d, len(owner))) for d in SHAPE]
    for k, mode in enumerate(boolean_mode):
        matrices[mode][:, owner == k] = (np.arange(SHAPE[mode]) <= k)[:, None]
    if zero is not None:
        matrices[(boolean_mode[owner[zero]] + 1) % 4][:, zero] = 0.0
    return Columns(tuple(matrices), owner, boolean_mode)


@pytest.mark.parametrize(
    ("ranks", "zero"), [((1, 1, 1), None), ((2, 1, 3), None), ((2, 3), 0), ((3, 1), 1), ((1, 2), 0)]
)
def test_the_decomposition_is_the_same_sum(ranks, zero, rng):
    """A column of zeros, also the first of an atom, leaves what the others sum to."""
    W = some_columns(rng, ranks, zero)
    found = W.to_decomposition()
    np.testing.assert_allclose(found.to_tensor(), np.einsum("ak,bk,ck,dk->abcd", *W.matrices), atol=1e-12)
    assert found.n_atoms == len(ranks) - (zero is not None and ranks[0] == 1)
    assert sum(atom.rank for atom in found.atoms) == sum(ranks) - (zero is not None)
    assert (found.weights > 0).all()


def test_real_parts_have_norm_one_and_settled_signs(rng):
    for atom in some_columns(rng, (1, 2, 3, 1)).to_decomposition().atoms:
        assert np.linalg.norm(atom.dense_block()) == pytest.approx(1.0)
        longest = max(range(3), key=lambda i: (len(atom.factors[i]), i))
        for i, A in enumerate(atom.factors):
            largest = A[np.abs(A).argmax(axis=0), np.arange(A.shape[1])]
            assert i == longest or (largest > 0).all()


def test_a_decomposition_survives_the_way_to_columns_and_back(rng):
    W = some_columns(rng, (1, 3, 2)).to_decomposition()
    again = to_columns(W).to_decomposition()
    np.testing.assert_allclose(again.weights, W.weights)
    for atom, other in zip(W.atoms, again.atoms, strict=True):
        np.testing.assert_array_equal(atom.z, other.z)
        np.testing.assert_allclose(atom.dense_block(), other.dense_block(), atol=1e-12)
