"""Block atoms, z (x) V with a dense V: back-fitted blocks and bits, through BMP."""

import naive
import numpy as np
import pytest

from boolcp import BMP, Atom, BoolcpWarning, BooleanCP


def make_blocks(shape, modes, rng, rank=2, share=0.5):
    """Return a tensor that is a sum of Boolean times rank-L blocks, and its bits."""
    atoms = []
    for mode in modes:
        z = rng.random(shape[mode]) < share
        z[rng.integers(shape[mode])] = True
        atoms.append(Atom(mode, z, tuple(rng.standard_normal((d, rank)) for d in np.delete(shape, mode))))
    return BooleanCP(shape, tuple(atoms), np.ones(len(atoms))).to_tensor(), [atom.z for atom in atoms]


def fit(X, n_atoms, modes=None, *, mask=None, weights=None, seed=0, **options):
    model = BMP(n_atoms, atom_rank="block", boolean_modes=modes, random_state=seed, **options)
    return model.fit(X, mask=mask, weights=weights)


def loss(X, W):
    return float(np.sum((X - W.to_tensor()) ** 2))


def terms_of(W):
    """Return the atoms as (mode, z, V), each with its size, as the naive twins take them."""
    return [(atom.mode, atom.z, w * atom.dense_block()) for atom, w in zip(W.atoms, W.weights, strict=True)]


def sums_on(R, atom):
    """Return the sum of the slices of R where an atom is on."""
    return np.tensordot(atom.z.astype(float), R, axes=(0, atom.mode))


def bits_of(W):
    return {(atom.mode, atom.z.tobytes()) for atom in W.atoms}


# complete data


@pytest.mark.parametrize("shape", [(14, 30), (12, 10, 11), (6, 5, 6, 4)])
def test_the_loss_falls_along_the_path(shape, rng):
    X = rng.standard_normal(shape)
    model = fit(X, 4)
    losses = [loss(X, W) for W in model.path_]
    assert [W.n_atoms for W in model.path_] == list(range(5)) and np.all(np.diff(losses) < 0)
    np.testing.assert_allclose([2 * step.loss for step in model.history_], losses[1:], rtol=1e-9, atol=1e-9)
    assert loss(X, model.decomposition_) == pytest.approx(losses[-1])


def test_the_residual_is_orthogonal_to_every_atom(rng):
    X = rng.standard_normal((12, 10, 11))
    W = fit(X, 5).decomposition_
    R = X - W.to_tensor()
    inner = [np.vdot(sums_on(R, atom), atom.dense_block()) for atom in W.atoms]
    np.testing.assert_allclose(inner, 0, atol=1e-7)


def test_the_residual_vanishes_on_the_bits_of_one_mode(rng):
    X = make_blocks((12, 20, 11), (1, 1, 1), rng)[0] + rng.standard_normal((12, 20, 11))
    W = fit(X, 3, [1]).decomposition_
    assert any((first.z & second.z).any() for first in W.atoms for second in W.atoms if first is not second)
    for atom in W.atoms:
        np.testing.assert_allclose(sums_on(X - W.to_tensor(), atom), 0, atol=1e-8)


@pytest.mark.parametrize("modes", [(0, 1), (0, 0), (2, 1)])
def test_two_blocks_without_noise_are_recovered(modes, rng):
    X, bits = make_blocks((20, 18, 16), modes, rng)
    model = fit(X, 4, sorted(set(modes)))
    W = model.decomposition_
    assert loss(X, W) < 1e-10 * np.sum(X**2) and W.n_atoms == 2 and "nothing is left" in model.stop_reason_
    if len(set(modes)) == 2:  # two blocks of one mode have equivalent codes, such as z and the union
        assert bits_of(W) == {(mode, z.tobytes()) for mode, z in zip(modes, bits, strict=True)}


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_planted_bits_are_found_in_noise(mode, rng):
    """Three groups of slices are two codes: any two of V, V' and V + V' may be the blocks."""
    shape = (24, 20, 22)
    bits = [np.arange(shape[mode]) % 3 == k for k in range(2)]
    blocks = [rng.standard_normal(np.delete(shape, mode)) for _ in bits]
    clean = naive.terms_tensor(shape, [(mode, z, V) for z, V in zip(bits, blocks, strict=True)])
    W = fit(clean + rng.standard_normal(shape), 2, [mode]).decomposition_
    assert bits_of(W) == {(mode, z.tobytes()) for z in bits}


@pytest.mark.parametrize("share", [1.0, 0.8])
@pytest.mark.parametrize("modes", [(0, 0, 1), (1, 1, 1)])
def test_one_more_pass_of_the_naive_twin_gains_next_to_nothing(modes, share, rng):
    """Blocks are least squares, and each row of bits is the best of all patterns, to the fall that ends the sweeps."""
    shape = (18, 16, 17)
    X = make_blocks(shape, modes, rng)[0] + 0.8 * rng.standard_normal(shape)
    mask = rng.random(shape) < share
    W = fit(np.where(mask, X, np.nan), 3, sorted(set(modes))).decomposition_
    terms, left = terms_of(W), np.sum((X - W.to_tensor())[mask] ** 2)
    for mode in sorted({atom.mode for atom in W.atoms}):
        terms, fall = naive.backfit_mode(np.where(mask, X, 0.0), mask, terms, mode)
        assert -1e-9 * left <= fall <= 2e-3 * left


def test_an_atom_more_gains_at_least_as_much_as_any_single_slice(rng):
    X = make_blocks((14, 12, 13), (0, 0, 0), rng)[0] + rng.standard_normal((14, 12, 13))
    first, second = fit(X, 2, [0]).path_[1:]
    known = [atom.z for atom in first.atoms]
    gain = max(naive.joint_gain(X, 0, known, np.arange(14) == i) for i in range(14))
    assert loss(X, first) - loss(X, second) >= gain * (1 - 1e-9)


def test_zero_modes_and_what_is_not_asked_for(rng):
    with pytest.warns(BoolcpWarning, match="zero everywhere"):
        assert "zero" in fit(np.zeros((4, 5, 6)), 2).stop_reason_
    X = make_blocks((12, 10, 11), (2,), rng)[0]
    model = fit(X, 4, [2])
    assert model.decomposition_.n_atoms == len(model.history_) == 1 and model.history_[0].relative_error < 1e-6
    with pytest.raises(ValueError, match="atom_rank"):
        BMP(2, atom_rank="dense").fit(X)


# entries that do not count alike


def test_blocks_are_weighted_least_squares(rng):
    X, bits = make_blocks((24, 20, 22), (0,), rng)
    weights = rng.uniform(0.5, 2.0, X.shape)
    X += 0.3 * rng.standard_normal(X.shape) / np.sqrt(weights)
    W = fit(X, 1, [0], weights=weights).decomposition_
    assert bits_of(W) == {(0, bits[0].tobytes())}
    np.testing.assert_allclose(sums_on(weights * (X - W.to_tensor()), W.atoms[0]), 0, atol=1e-8)


@pytest.mark.parametrize("share", [1.0, 0.8])
def test_nonnegative_blocks_have_no_negative_entry(share, rng):
    X, bits = make_blocks((20, 18, 16), (0,), rng, rank=1)
    X = np.abs(X) + 0.1 * rng.standard_normal(X.shape)
    mask = rng.random(X.shape) < share
    X = np.where(mask, X, np.nan)
    assert bits_of(fit(X, 1, [0], nonnegative=True).decomposition_) == {(0, bits[0].tobytes())}
    W = fit(X, 3, nonnegative=True).decomposition_
    assert all((atom.dense_block() >= 0).all() for atom in W.atoms) and (W.weights > 0).all() and W.n_atoms > 1
