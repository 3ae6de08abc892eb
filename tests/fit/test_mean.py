"""The mean over the Boolean mode as a part of the model, like an intercept."""

from dataclasses import replace
from itertools import product

import naive
import numpy as np
import pytest
from samples import random_atom, with_gaps

import boolcp
from boolcp import BMP, BooleanCP, decompose
from boolcp.metrics import hamming_error

SHAPE, MODE = (16, 9, 10), 0


def planted(rank=1, noise=0.05, size=20.0, seed=0, sizes=(5, 7)):
    """Return a tensor with a dense mean over mode 0 and two atoms, its mean and the atoms."""
    rng, atoms = np.random.default_rng(seed), []
    for n_ones in sizes:
        atom = random_atom(SHAPE, MODE, {1: "rank one", 2: "rank two"}.get(rank, rank), rng)
        atoms.append(replace(atom, z=rng.permutation(np.arange(SHAPE[MODE]) < n_ones)))
    truth = BooleanCP(SHAPE, tuple(atoms), [size, 0.8 * size])
    mean = 5 * rng.standard_normal((1, *SHAPE[1:]))
    return mean + truth.to_tensor() + noise * rng.standard_normal(SHAPE), mean, truth


def fitted(X, rank=1, n_atoms=2, **given):
    return BMP(n_atoms, mean=True, boolean_modes=[MODE], atom_rank=rank, random_state=0).fit(X, **given)


@pytest.mark.parametrize("rank", [1, 2, "block"])
@pytest.mark.parametrize("kind", ["complete", "gaps", "weights"])
def test_mean_and_atoms_are_found(kind, rank):
    X, mean, truth = planted(rank)
    given = {"weights": 0.5 + np.random.default_rng(1).random(SHAPE)} if kind == "weights" else {}
    W = fitted(with_gaps(X, 0.1) if kind == "gaps" else X, rank, **given).decomposition_
    assert hamming_error(W, truth) == 0 and W.mean.shape == (1, 9, 10)
    assert all(2 * atom.n_ones <= len(atom.z) for atom in W.atoms)
    np.testing.assert_allclose(W.mean, mean, atol=0.2)
    np.testing.assert_allclose(W.to_tensor(), mean + truth.to_tensor(), atol=0.25)
    np.testing.assert_allclose(W.to_tensor(), naive.tensor(W) + W.mean, atol=1e-12)


@pytest.mark.parametrize(("kind", "rank"), [*product(["complete", "weights"], [1, 2, "block"]), ("gaps", "block")])
def test_the_mean_and_the_blocks_are_those_of_least_squares(kind, rank):
    (X, _, _), uniform = planted(rank, noise=1.0), np.random.default_rng(1).random(SHAPE)
    weights = {"complete": np.ones(SHAPE), "gaps": 1.0 * (uniform < 0.8), "weights": 0.5 + uniform}[kind]
    W = fitted(X, rank, weights=weights).decomposition_
    E = X - W.to_tensor()
    R = weights * E
    np.testing.assert_allclose(R.sum(axis=MODE), 0, atol=1e-6 * np.abs(X).max() * SHAPE[MODE])  # against the mean
    for atom in W.atoms:  # against each atom
        assert abs(np.sum(R * naive.atom(atom))) < 2e-3 * np.linalg.norm(R) * np.sqrt(atom.n_ones)
    for atom, size in zip(W.atoms, W.weights, strict=True):  # no bit is better flipped, the mean as it is
        for i in range(SHAPE[MODE]):
            flipped = replace(atom, z=atom.z ^ (np.arange(SHAPE[MODE]) == i))
            change = size * (naive.atom(flipped) - naive.atom(atom))
            assert np.sum(weights * (E - change) ** 2) >= np.sum(weights * E**2) - 1e-9


def test_it_is_the_fit_with_an_atom_that_is_always_on():
    """A block atom with all bits on is a mean: with its bits given, both have the same loss."""
    X, _, truth = planted("block", noise=0.5)
    W = fitted(X, "block").decomposition_
    Z = np.column_stack([np.ones(SHAPE[MODE]), *(atom.z for atom in W.atoms)])
    rows = naive.unfold(X, MODE)
    left = rows - Z @ np.linalg.lstsq(Z, rows, rcond=None)[0]
    assert np.sum((X - W.to_tensor()) ** 2) == pytest.approx(np.sum(left**2), rel=1e-6)
    assert hamming_error(W, truth) == 0


@pytest.mark.parametrize("rank", [1, "block"])
@pytest.mark.parametrize("seed", range(4))
def test_bits_with_fewer_ones_are_returned(seed, rank):
    X, mean, truth = planted(rank, seed=seed, sizes=(12, 13))
    W = fitted(X, rank).decomposition_
    assert sorted(atom.n_ones for atom in W.atoms) == [3, 4]
    expected = {(~atom.z).tobytes() for atom in truth.atoms}
    assert {atom.z.tobytes() for atom in W.atoms} == expected
    np.testing.assert_allclose(W.to_tensor(), mean + truth.to_tensor(), atol=0.3)


def test_what_is_constant_changes_the_mean_alone():
    X, _, _ = planted(noise=0.5)
    added = 100 * np.random.default_rng(5).standard_normal((1, *SHAPE[1:]))
    W, V = fitted(X).decomposition_, fitted(X + added).decomposition_
    assert hamming_error(W, V) == 0
    np.testing.assert_allclose(V.mean - W.mean, added, atol=1e-4)
    np.testing.assert_allclose(np.sort(V.weights), np.sort(W.weights), rtol=1e-4)
    assert V.explained() == pytest.approx(W.explained(), rel=1e-4)


@pytest.mark.filterwarnings("ignore::boolcp.DegenerateAtomsWarning")
@pytest.mark.parametrize("atom_rank", [1, 2, "block"])
@pytest.mark.parametrize("kind", ["complete", "missing", "weighted"])
@pytest.mark.parametrize("mode", [0, 2])
def test_shares_are_of_what_varies_around_the_mean(atom_rank, kind, mode, rng):
    data = boolcp.datasets.make_boolean_cp((8, 9, 16), [0, 0, 2], noise=0.1, random_state=0)
    X = np.moveaxis(data.X + 5, 2, mode)
    seen = rng.random(X.shape) > 0.2
    w = {"complete": np.ones(X.shape), "missing": 1.0 * seen, "weighted": seen * rng.uniform(0.1, 2, X.shape)}[kind]
    model = boolcp.BMP(2, atom_rank=atom_rank, mean=True, boolean_modes=[mode], random_state=0).fit(X, weights=w)
    center = (w * X).sum(axis=mode, keepdims=True) / w.sum(axis=mode, keepdims=True)
    total = (w * (X - center) ** 2).sum()
    for W in (*model.path_, model.decomposition_):
        assert W.explained() == pytest.approx(1 - (w * (X - W.to_tensor()) ** 2).sum() / total, abs=0.02)
        assert all(2 * atom.n_ones <= len(atom.z) for atom in W.atoms)
    assert W.explained() == pytest.approx(1 - (w * (X - W.to_tensor()) ** 2).sum() / total, abs=1e-9)
    assert (W.explained_unique() > 0).all() and W.explained_alone().sum() < 1.5
    text = W.summary()
    assert "% of the variance around the mean explained" in text and f"Mean over {mode} fitted apart" in text


def test_new_slices_have_the_mean_taken_out():
    X, mean, truth = planted()
    model = fitted(X[:12])
    found = model.transform(X[12:])
    assert found.shape == (4, 2) and set(np.unique(found)) <= {0.0, 1.0}
    estimate = model.inverse_transform(found)
    np.testing.assert_allclose(estimate, (mean + truth.to_tensor())[12:], atol=0.3)
    patterns = (np.arange(4)[:, None] >> np.arange(2) & 1).astype(float)
    errors = [np.sum((X[12:] - model.inverse_transform(np.tile(b, (4, 1)))) ** 2, axis=(1, 2)) for b in patterns]
    np.testing.assert_allclose(np.sum((X[12:] - estimate) ** 2, axis=(1, 2)), np.min(errors, axis=0))
    assert 0.95 < model.score(X[12:]) <= 1
    with pytest.raises(ValueError, match="known only for data that are new along the Boolean mode"):
        model.transform(X[:12, :5], mode=1)


@pytest.mark.parametrize("rank", [1, "block"])
def test_missing_entries_are_filled_with_the_mean_and_the_atoms(rank):
    X, _, _ = planted(rank, noise=0.0)
    gaps = with_gaps(X, 0.2)
    model = fitted(gaps, rank)
    filled = model.complete(gaps)
    np.testing.assert_array_equal(filled[~np.isnan(gaps)], X[~np.isnan(gaps)])
    missing = np.isnan(gaps)
    assert np.std((filled - X)[missing]) < 0.1 * np.std(X[missing])


def test_a_mean_is_saved_loaded_and_told(tmp_path):
    X, _, _ = planted()
    W = fitted(X).decomposition_
    W.save(tmp_path / "W.nc")
    again = boolcp.load(tmp_path / "W.nc")
    np.testing.assert_array_equal(again.mean, W.mean)
    np.testing.assert_array_equal(again.to_tensor(), W.to_tensor())
    assert again.summary() == W.summary()
    np.testing.assert_array_equal(W[[0]].mean, W.mean)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"boolean_modes": [0, 1]}, "mean=True needs one Boolean mode: name it"),
        ({"boolean_modes": None}, "mean=True needs one Boolean mode"),
        ({"loss": "huber"}, 'mean=True needs loss="squared"'),
        ({"nonnegative": True}, "mean=True needs .* nonnegative=False"),
        ({"refine": False}, "a mean and a noise model need refine=True"),
    ],
)
def test_what_a_mean_cannot_be_combined_with_is_named(options, words):
    with pytest.raises(ValueError, match=words):
        decompose(np.ones((4, 5, 6)), 1, **{"mean": True, "boolean_modes": [0]} | options)


def test_a_constant_tensor_has_a_mean_and_no_atoms():
    with pytest.warns(boolcp.BoolcpWarning, match="zero everywhere"):
        W = fitted(np.full((4, 5, 6), 3.0), n_atoms=1).decomposition_
    assert W.n_atoms == 0
    np.testing.assert_allclose(W.to_tensor(), 3.0)
