"""Dense blocks with weights or nonnegative entries."""

import numpy as np
import pytest

from boolcp import BMP, decompose
from boolcp.fit.entry_blocks import backfit
from boolcp.metrics import hamming_error, rmse
from boolcp.result.atoms import Atom, BooleanCP

SHAPE = (12, 10, 11)


def make_blocks(seed=0, is_positive=False):
    """Return two atoms with dense blocks of norm one, and a generator."""
    rng, atoms = np.random.default_rng(seed), []
    for mode in range(2):
        V = rng.standard_normal(SHAPE[:mode] + SHAPE[mode + 1 :])
        V = np.abs(V) if is_positive else V
        atoms.append(Atom(mode, rng.permutation(SHAPE[mode]) % 2 == 0, block=V / np.linalg.norm(V)))
    return BooleanCP(SHAPE, tuple(atoms), [20.0, 15.0]), rng


def loss_of(X, weights, blocks):
    """Return the weighted loss of atoms, as a loop."""
    W = np.zeros_like(X)
    for mode, z, V in blocks:
        for i in np.flatnonzero(z):
            W[(slice(None),) * mode + (i,)] += V
    return np.sum(weights * (X - W) ** 2)


@pytest.mark.parametrize("is_nonnegative", [False, True])
def test_sweeps_lower_the_true_loss_to_where_no_single_change_helps(is_nonnegative):
    truth, rng = make_blocks(is_positive=is_nonnegative)
    X, weights = truth.to_tensor() + rng.standard_normal(SHAPE), rng.random(SHAPE) * (rng.random(SHAPE) < 0.8)
    start = [(a.mode, (rng.random(len(a.z)) < 0.5).astype(float), np.abs(a.dense_block())) for a in truth.atoms]
    before = loss_of(X, weights, start)
    for blocks, loss in backfit(X, weights, start, is_nonnegative=is_nonnegative):
        assert loss == pytest.approx(loss_of(X, weights, blocks)) and loss <= before + 1e-9
        before = loss
    small = 1e-6 * before
    for k, (_, z, V) in enumerate(blocks):
        assert not is_nonnegative or (V >= 0).all()
        for i in range(len(z)):
            flipped = np.where(np.arange(len(z)) == i, 1 - z, z)
            assert loss_of(X, weights, [*blocks[:k], (k, flipped, V), *blocks[k + 1 :]]) >= before - small
        for place, step in [((0, 0), 0.02), ((3, 4), -0.02), ((7, 9), 0.02)]:
            U = V.copy()
            U[place] += step
            if not (is_nonnegative and U[place] < 0):
                assert loss_of(X, weights, [*blocks[:k], (k, z, U), *blocks[k + 1 :]]) >= before - small


def test_weights_lower_the_error_of_blocks_and_integers_repeat_slices():
    truth, rng = make_blocks(1)
    sigma = np.where(np.arange(11) % 2 == 0, 3.0, 0.3)
    X = truth.to_tensor() + sigma * rng.standard_normal(SHAPE)
    plain, weighted = (decompose(X, 2, atom_rank=None, weights=w, random_state=0) for w in (None, {2: sigma**-2}))
    assert rmse(weighted, truth.to_tensor()) <= rmse(plain, truth.to_tensor())
    assert hamming_error(weighted, truth) == 0 and weighted.atoms[0].block is not None
    Y, counts = truth.to_tensor() + 0.5 * rng.standard_normal(SHAPE), np.arange(11) % 3 + 1
    options = {"atom_rank": None, "nonnegative": True, "random_state": 0}
    one = decompose(np.abs(Y), 2, weights={2: counts}, **options).to_tensor()
    again = decompose(np.repeat(np.abs(Y), counts, axis=2), 2, **options).to_tensor()
    np.testing.assert_allclose(one, again[:, :, np.cumsum(counts) - 1], atol=1e-3)


def test_nonnegative_blocks_with_missing_entries():
    truth, rng = make_blocks(2, is_positive=True)
    X = truth.to_tensor() + 0.3 * rng.standard_normal(SHAPE)
    mask = rng.random(SHAPE) < 0.8
    model = BMP(2, atom_rank=None, nonnegative=True, random_state=0).fit(np.where(mask, X, np.nan))
    W = model.decomposition_
    assert all((atom.block >= 0).all() for atom in W.atoms) and hamming_error(W, truth) == 0
    other = decompose(np.where(mask, X, 1e6), 2, atom_rank=None, nonnegative=True, weights=mask, random_state=0)
    np.testing.assert_allclose(other.to_tensor(), W.to_tensor(), atol=1e-10)
    counts = mask.astype(float)
    assert W.explained() == pytest.approx(1 - np.sum(counts * (X - W.to_tensor()) ** 2) / np.sum(counts * X**2))
    assert [V.n_atoms for V in BMP(2, atom_rank=None, nonnegative=True, random_state=0).fit_path(X)] == [0, 1, 2]
