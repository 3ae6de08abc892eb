"""Atoms beside a background that say something."""

from dataclasses import replace
from itertools import combinations, pairwise

import naive
import numpy as np
import pytest

from boolcp import BMP
from boolcp.fit.background import along, best_mean, mean_weights, within
from boolcp.fit.beside import (
    beside_whole,
    complemented,
    extended,
    faults,
    is_worth,
    lowest,
    merged,
    new_atom,
    polished_near,
    recoded,
    settled,
    simplify_beside,
    with_background,
)
from boolcp.fit.polish import polish_sweeps
from boolcp.fit.relax import begin
from boolcp.fit.shrinkage import signal_subspaces
from boolcp.fit.state import Round
from boolcp.metrics import rmse
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.background import Background
from boolcp.result.columns import to_columns
from boolcp.storage import DenseTensor, make_storage

SHAPE = (20, 12, 14)


def product(mode, z, rng, shape=SHAPE):
    """Return an atom of rank one with random columns."""
    columns = [rng.standard_normal((d, 1)) for n, d in enumerate(shape) if n != mode]
    return Atom(mode, z, tuple(A / np.linalg.norm(A) for A in columns))


def some_bits(rng, mode=0, n_ones=7):
    return rng.permutation(SHAPE[mode]) < n_ones


def test_atoms_with_the_same_bits_become_one(rng):
    z, y = some_bits(rng), some_bits(rng, 1, 5)
    W = BooleanCP(SHAPE, (product(0, z, rng), product(1, y, rng), product(0, z, rng)), [9.0, 8.0, 7.0])
    X = DenseTensor(W.to_tensor() + 0.1 * rng.standard_normal(SHAPE))
    here = merged(with_background(X, W, "auto", 0.1))
    assert [(atom.mode, atom.rank) for atom in here.W.atoms] == [(0, 2), (1, 1)]
    np.testing.assert_allclose(here.W.to_tensor(), W.to_tensor(), atol=1e-12)
    again = with_background(X, replace(here.W, background=None), "auto", 0.1)  # found from what they leave
    assert (here.loss, here.risk) == pytest.approx((again.loss, again.risk))


def test_baselines_single_bits_and_canceling_pairs_are_faults(rng):
    clear, ones, single = product(1, some_bits(rng, 1, 5), rng), np.ones(20, dtype=bool), np.arange(20) == 3
    W = BooleanCP(SHAPE, (clear, product(0, ones, rng), product(0, single, rng)), [5.0, 5.0, 5.0])
    assert faults(W) == [(1, False), (2, True)]
    near = Atom(1, clear.z, (clear.factors[0], -clear.factors[1]))
    assert faults(BooleanCP(SHAPE, (clear, near), [5.0, 3.0])) == [(1, False)]


def test_a_new_atom_is_one_beyond_a_baseline_with_few_ones(rng):
    z, V = some_bits(rng, 0, 15), product(0, np.ones(20, dtype=bool), rng)
    R = 3 * BooleanCP(SHAPE, (V,), [5.0]).to_tensor() + BooleanCP(SHAPE, (product(0, z, rng),), [20.0]).to_tensor()
    gain, columns = new_atom(DenseTensor(R), BooleanCP(SHAPE), 0, rng)
    np.testing.assert_array_equal(columns.matrices[0][:, 0] > 0, ~z)
    assert gain == pytest.approx(20**2 * 15 * 5 / 20, rel=0.2)


def test_what_says_little_goes_to_the_background_and_new_atoms_come(rng):
    z, y = some_bits(rng), some_bits(rng, 1, 5)
    atoms = (product(0, np.ones(20, dtype=bool), rng), product(0, z, rng), product(1, y, rng))
    clean = BooleanCP(SHAPE, atoms, [1.0, 20.0, 20.0])
    low = rng.standard_normal((14, 2)) @ rng.standard_normal((2, 240)) / 5
    noise = 0.3 * rng.standard_normal(SHAPE)
    data = DenseTensor(clean[1:].to_tensor() + np.moveaxis(low.reshape(14, 20, 12), 0, 2) + noise)
    first = with_background(data, clean[:2], "auto", 0.3)
    found = simplify_beside(data, first, 2, (0, 1, 2), "auto", rng)
    bits = {(atom.mode, atom.z.tobytes()) for atom in found.W.atoms}
    assert found.W.n_atoms == 2 and (1, y.tobytes()) in bits and not faults(found.W)
    assert found.background is not None


def test_rivals_win_only_beyond_the_spread_of_the_noise(rng):
    data = DenseTensor(rng.standard_normal((10, 10, 50)))
    here, near, far = (Round(BooleanCP(data.shape), 1.0, risk, 1.0) for risk in (500.0, 450.0, 300.0))
    assert lowest(data, (here,), (near,)) is here and lowest(data, (here,), (near, far)) is far


def test_recordings_give_no_repeated_bits(rng):
    z = some_bits(rng, 0, 8)
    block = Atom(0, z, (rng.standard_normal((12, 3)), rng.standard_normal((14, 3))))
    low = rng.standard_normal((14, 3)) @ rng.standard_normal((3, 240))
    X = BooleanCP(SHAPE, (block,), [3.0]).to_tensor() + np.moveaxis(low.reshape(14, 20, 12), 0, 2)
    W = BMP(4, random_state=0).fit(X + 0.3 * rng.standard_normal(SHAPE)).decomposition_
    assert len({(atom.mode, atom.z.tobytes()) for atom in W.atoms}) == W.n_atoms
    assert W.n_atoms == 4 or "4 atoms were requested" in W.summary()


def test_a_new_atom_has_the_bits_of_the_best_joint_refit(rng):
    old, z = np.arange(8) < 3, np.arange(8) % 3 == 0  # of three bits, one is shared
    V, more = ([rng.standard_normal(6), rng.standard_normal(7)] for _ in range(2))
    R = 0.3 * rng.standard_normal((8, 6, 7)) + np.multiply.outer(z, np.outer(*V))
    R += 5 * np.multiply.outer(old, np.outer(*more))  # what a refit of the known bits takes
    W = BooleanCP(R.shape, (Atom(0, old, (np.eye(6)[:, :1], np.eye(7)[:, :1])),), [1.0])
    gain, found = new_atom(DenseTensor(R), W, 0, rng)
    known = [np.ones(8), old]
    everything = (np.arange(1, 255)[:, None] >> np.arange(8) & 1).astype(bool)
    gains = [naive.joint_gain(R, 0, known, bits) for bits in everything]
    bits = found.matrices[0][:, 0] > 0.5
    assert naive.joint_gain(R, 0, known, bits) == pytest.approx(max(gains)) and 2 * bits.sum() <= 8
    assert 0.9 * max(gains) < gain <= max(gains) * (1 + 1e-9)  # of rank one, hence a little less


def positive(rng, mode=0):
    """Return a tensor with a baseline along a mode, an atom that is mostly on beside it, and one along another mode."""
    z, y = some_bits(rng, mode, 7 * SHAPE[mode] // 10), some_bits(rng, 1, 5)
    atoms = product(mode, np.ones(SHAPE[mode], dtype=bool), rng), product(mode, z, rng), product(1, y, rng)
    return BooleanCP(SHAPE, atoms, [20.0, 9.0, 9.0])


def test_beside_a_baseline_the_complement_with_fewer_ones_is_shown(rng):
    W = positive(rng)
    X = DenseTensor(W.to_tensor() + 0.1 * rng.standard_normal(SHAPE))
    found = recoded(X, with_background(X, W, "auto", 0.1), "auto").W
    assert found.atoms[0].z.all() and found.atoms[0].rank == 2
    np.testing.assert_array_equal(found.atoms[1].z, ~W.atoms[1].z)
    np.testing.assert_array_equal(found.atoms[2].z, W.atoms[2].z)
    np.testing.assert_allclose(found.to_tensor(), W.to_tensor(), atol=0.2)


def test_the_complement_is_the_same_sum(rng):
    W = positive(rng, 2)
    found = complemented(to_columns(W), 1)
    np.testing.assert_allclose(found.to_decomposition().to_tensor(), W.to_tensor(), atol=1e-12)
    assert found.owner.tolist() == [0, 0, 1, 2] and complemented(found, 1) is found and complemented(found, 2) is found


@pytest.mark.parametrize(("size", "n_ones"), [(0.02, 20), (2.0, 19)])  # what is off is lost in noise, or is not
def test_an_atom_that_is_nearly_always_on_becomes_a_baseline_up_to_the_noise(size, n_ones, rng):
    W = BooleanCP(SHAPE, (product(0, np.arange(20) > 0, rng), product(1, some_bits(rng, 1, 5), rng)), [size, 9.0])
    X = DenseTensor(W.to_tensor() + 0.1 * rng.standard_normal(SHAPE))
    found = recoded(X, with_background(X, W, "auto", 0.1), "auto").W
    assert found.atoms[0].n_ones == n_ones


def test_beside_a_large_background_an_atom_pays_by_what_atoms_leave(rng):
    z, noise = some_bits(rng), rng.standard_normal(SHAPE)
    first, second = product(0, z, rng), product(1, some_bits(rng, 1, 5), rng)
    X = DenseTensor(BooleanCP(SHAPE, (first, second), [40.0, 20.0]).to_tensor() + noise)
    here = with_background(X, BooleanCP(SHAPE, (first,), [40.0]), 11, 1e-3)
    longer = with_background(X, BooleanCP(SHAPE, (first, second), [40.0, 20.0]), 11, 1e-3)
    weak = with_background(X, BooleanCP(SHAPE, (first, second), [40.0, 0.1]), 11, 1e-3)
    assert longer.is_beside_large and is_worth(X, longer, here, -np.inf) and not is_worth(X, weak, here, np.inf)


def test_noise_in_the_atoms_is_taken_back_by_what_they_leave_of_the_shrunk_data(rng):
    low = np.multiply.outer(rng.standard_normal(20), 2 * rng.standard_normal((12, 14)))
    X = DenseTensor(low + rng.standard_normal(SHAPE))
    W = BooleanCP(SHAPE, tuple(product(1, some_bits(rng, 1, 5), rng) for _ in range(4)), [9.0, 9.0, 9.0, 9.0])
    here = with_background(X, W, "auto", 1.0)
    found = beside_whole(X, here, "auto")
    shrunk = with_background(X, BooleanCP(SHAPE), "auto", 1.0)
    assert found.risk <= shrunk.risk + 1e-6 and found.risk < here.risk
    whole = found.W.to_tensor() + found.background.to_tensor()
    assert found.loss == pytest.approx(np.sum((X.to_array() - whole) ** 2))
    expected = shrunk.background.to_tensor()
    assert rmse(whole, low) < 1.02 * rmse(expected, low) < rmse(W.to_tensor() + here.background.to_tensor(), low)
    assert found.background.shrunk_at == 1.0 and found.background.share == pytest.approx(
        (X.residual(W).squared_norm - found.loss) / X.squared_norm
    )
    assert beside_whole(X, here, 3) is here and beside_whole(X, shrunk, "auto") is shrunk
    large = with_background(X, W, "auto", 1e9)
    assert beside_whole(X, large, "auto") is large


def test_directions_of_all_modes_shrink_more_where_all_have_few(rng):
    low = 9 * np.multiply.outer(rng.standard_normal(20), np.outer(rng.standard_normal(12), rng.standard_normal(14)))
    X = DenseTensor(low + rng.standard_normal(SHAPE))
    E, loss, freedom = best_mean(X, 1.0)
    projected = signal_subspaces(X, 1.0)[-1][0].to_array()
    alone = np.sum((X.to_array() - projected) ** 2) + 2 * (1 + 43)
    assert loss == pytest.approx(np.sum((X.to_array() - E) ** 2)) and loss + 2 * freedom <= alone + 1e-9
    assert rmse(E, low) < 1.02 * rmse(projected, low)


def test_a_mean_of_estimates_has_a_lower_error_than_each(rng):
    A, B, C = (rng.standard_normal((d, 3)) for d in SHAPE)
    low = np.einsum("ik,jl,mk,kl->ijm", A, B, C, rng.standard_normal((3, 3)))
    X = DenseTensor(low + rng.standard_normal(SHAPE))
    E, _, freedom = best_mean(X, 1.0)
    single = [along(X, mode, "auto", 1.0)[1] for mode in range(3)]
    assert rmse(E, low) < min(rmse(each.to_tensor(), low) for each in single)
    assert freedom <= max(each.degrees_of_freedom for each in single)
    mean, _, same = best_mean(X, 1.0, [(low, 0.0)])  # an estimate without noise has all the weight
    np.testing.assert_allclose(mean, low, atol=0.1)
    assert same < 0.1 * freedom


def lowest_mean(G, q):
    """Return the lowest w'Gw + q'w over weights w >= 0 of sum one, from all sets of weights above zero."""
    values = []
    for n in range(1, len(q) + 1):
        for members in map(list, combinations(range(len(q)), n)):
            system = np.ones((n + 1, n + 1))
            system[:n, :n], system[n, n] = 2 * G[np.ix_(members, members)], 0.0
            w = np.linalg.solve(system, np.append(-q[members], 1.0))[:n]
            if (w >= 0).all():
                values.append(w @ G[np.ix_(members, members)] @ w + q[members] @ w)
    return min(values)


@pytest.mark.parametrize("n", [1, 2, 4, 6])
def test_weights_of_a_mean_have_the_lowest_risk(n, rng):
    for _ in range(5):
        R = rng.standard_normal((9, n)) * rng.uniform(1, 3, n) + 1
        G, q = R.T @ R, rng.uniform(0, 9, n)
        w = mean_weights(G, q, 0.0)
        assert w.sum() == pytest.approx(1) and (w >= 0).all()
        assert w @ G @ w + q @ w == pytest.approx(lowest_mean(G, q), rel=1e-5)
    assert np.count_nonzero(mean_weights(G, q, np.inf)) == 1  # nothing gains that much


def canceled(W):
    """Return the largest part of an atom that the others take back, relative to its squared norm."""
    G = W.inner_products() * np.outer(W.weights, W.weights)
    return float(np.max(1 - G.sum(axis=1) / G.diagonal()))


def crossed(rng):
    """Return data in which one mode is shifted where bits of two others are on, and noise, with two atoms of it."""
    z, y, w = some_bits(rng), some_bits(rng, 1, 6), rng.standard_normal(14)
    X = 3 * np.multiply.outer(np.outer(z, ~y) | np.outer(~z, y), w) + rng.standard_normal(SHAPE)
    rows = [Atom(0, z, (np.ones((12, 1)), w[:, None])), Atom(1, y, (1 - 1.9 * z[:, None], w[:, None]))]
    return X, BooleanCP(SHAPE, tuple(rows), [3.0, 3.0])


def test_a_penalty_is_part_of_a_loss_that_never_rises(rng):
    X, W = crossed(rng)
    sweeps = list(polish_sweeps(DenseTensor(X), begin(to_columns(W)), max_iter=20, tol=0.0, penalty=0.2))
    losses = [step.W.loss for step in sweeps]
    last = sweeps[-1].W.to_decomposition()
    parts = [
        np.sum(BooleanCP(SHAPE, (atom,), [c]).to_tensor() ** 2)
        for atom, c in zip(last.atoms, last.weights, strict=True)
    ]
    assert losses[-1] == pytest.approx(np.sum((X - naive.tensor(last)) ** 2) + 0.2 * sum(parts))
    assert all(later <= before * (1 + 1e-12) for before, later in pairwise(losses))


def test_beside_a_large_background_atoms_cancel_less(rng, monkeypatch):
    X, W = crossed(rng)
    data = DenseTensor(X)
    found = settled(data, W, 11, 1e-3)
    assert found.is_beside_large
    monkeypatch.setattr("boolcp.fit.beside.PENALTY", 0.0)
    assert canceled(found.W) < canceled(settled(data, W, 11, 1e-3).W) - 0.05


def test_the_risk_is_that_of_the_level_which_held_out_entries_choose(rng):
    deviation = np.where(np.arange(20) < 3, 0.01, 1.0)[:, None, None]  # the quietest slices are misleading
    X = deviation * rng.standard_normal((20, 30, 40)) + 1.0
    data = make_storage(X, rng.random(X.shape) > 0.3)
    here = with_background(data, BooleanCP(X.shape), "auto", 0.01)
    assert here.sigma == here.background.level > 0.5
    assert here.risk == pytest.approx(here.loss + 2 * here.sigma**2 * here.background.degrees_of_freedom)


@pytest.mark.parametrize(("shape", "mode"), [((9, 3, 5), 1), ((40, 3, 5), 0)])
def test_in_the_directions_of_a_background_the_same_background_is_found_again(shape, mode, rng):
    """The short side of the unfolding are its rows, and its columns. The data are not read for other atoms."""
    X = np.multiply.outer(rng.standard_normal(shape[0]), rng.standard_normal(shape[1:]))
    X += 0.1 * rng.standard_normal(shape)
    zero, W = BooleanCP(shape), BooleanCP(shape, (product(0, np.arange(shape[0]) < 2, rng, shape),), [2.0])
    before = replace(zero, background=along(DenseTensor(X), mode, "auto", 0.1)[1])
    np.testing.assert_allclose(within(zero, before, 0.1).to_tensor(), before.background.to_tensor(), atol=1e-10)
    assert within(zero, before, 10.0) is None
    B = before.background
    U = (B.left if mode == 1 else B.right) / np.linalg.norm(B.left if mode == 1 else B.right, axis=0)
    R = np.moveaxis(X - W.to_tensor(), mode, 0).reshape(shape[mode], -1)
    projected = U @ U.T @ R if mode == 1 else R @ U @ U.T
    expected = np.moveaxis(projected.reshape(shape[mode], *np.delete(shape, mode)), 0, mode)
    np.testing.assert_allclose(within(W, before, 1e-9).to_tensor(), expected, atol=1e-7)


def test_atoms_are_polished_near_an_earlier_background_of_the_same_mode(rng, monkeypatch):
    W = BooleanCP(SHAPE, (product(1, some_bits(rng, 1, 5), rng),), [40.0])
    low_rank = np.multiply.outer(rng.standard_normal((20, 2)) @ rng.standard_normal((2, 12)), rng.standard_normal(14))
    low_rank += np.multiply.outer(rng.standard_normal(20), rng.standard_normal((12, 14)))
    data = DenseTensor(W.to_tensor() + low_rank + 0.3 * rng.standard_normal(SHAPE))
    first = with_background(data, BooleanCP(SHAPE), "auto", 0.3).W
    before, near = first.background, polished_near(data, W, 0.3, first)
    exact = settled(data, W, "auto", 0.3)
    assert near.background.mode == exact.background.mode == before.mode
    assert near.risk == pytest.approx(exact.risk, rel=1e-3)
    other = along(data, (before.mode + 1) % 3, 1, 0.3)[1]
    assert not other.is_large and polished_near(data, W, 0.3, replace(first, background=other)) is None
    monkeypatch.setattr("boolcp.fit.beside.spread", lambda data, sigma: 1e9)  # no mode is clearly the best
    assert polished_near(data, W, 0.3, first) is None


@pytest.mark.parametrize(("rank", "mode"), [(20, 1), (1, 0)])
def test_beside_a_large_background_the_atom_that_leaves_least_is_added(rank, mode, rng, monkeypatch):
    """Beside a small one it is the atom of lowest risk."""
    atoms = [BooleanCP(SHAPE, (product(n, some_bits(rng, n, 5), rng),), [3.0 + 6 * n]) for n in (0, 1)]
    data = DenseTensor(atoms[0].to_tensor() + atoms[1].to_tensor())
    B = Background(SHAPE, 0, np.ones((SHAPE[0], rank)), np.ones((SHAPE[1] * SHAPE[2], rank)), 0.0, 0.5)
    monkeypatch.setattr("boolcp.fit.beside.new_atom", lambda R, W, n, rng: (1.0, to_columns(atoms[n])))

    def with_risk(data, W, kind, sigma):
        return Round(replace(W, background=B), 1.0, 1.0 + W.boolean_mode[-1], sigma)

    monkeypatch.setattr("boolcp.fit.beside.settled", with_risk)
    here = Round(replace(BooleanCP(SHAPE), background=B), 1.0, 9.0, 0.1)
    assert here.is_beside_large == (rank > 1)
    assert extended(data, here, (0, 1), "auto", rng).W.boolean_mode[-1] == mode
