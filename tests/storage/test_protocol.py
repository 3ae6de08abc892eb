"""Every storage answers every question of its protocol, with the shapes that are stated and the right numbers."""

import json
from itertools import pairwise

import naive
import numpy as np
import pytest
from samples import random_decomposition

from boolcp.storage import DenseTensor, ListedTensor, MaskedTensor, compress, protocol, sources
from boolcp.storage.dense import Contracted
from boolcp.storage.lazy import look_at

SHAPE = (4, 5, 30)
COMPLETE, OBSERVED = ("dense", "compressed", "lazy"), ("masked", "listed", "lazy observed")
LAZY = ("lazy", "lazy observed")


def make(kind, rng):
    """Return a storage of some kind, the array that it stands for (zeros where entries are missing) and the mask."""
    X, mask = rng.standard_normal(SHAPE), rng.random(SHAPE) < 0.6
    if kind == "dense":
        return DenseTensor(X), X, None
    if kind == "compressed":
        data = compress(DenseTensor(X), 3)
        return data, data.contract(0, np.eye(4)), None
    if kind == "masked":
        return MaskedTensor(np.where(mask, X, 999.0), mask), X * mask, mask
    if kind == "listed":
        return ListedTensor(np.argwhere(mask), X[mask], SHAPE), X * mask, mask
    da = pytest.importorskip("dask.array")
    values = X if kind == "lazy" else np.where(mask, X, np.nan)
    data = look_at(sources.Source(da.from_array(values, chunks=(2, 5, 7)), block=1000), 10**9)
    return (data, X, None) if kind == "lazy" else (data, X * mask, mask)


def keep(P, current):
    return current


def shapes(data, W):
    """Return for each question the shape of its answer and the shape that is stated, by name."""
    mode, K, c, core = 1, 3, 120, data.core.shape
    factors, small = ([np.ones((d, K)) for d in sizes] for sizes in (data.shape, core))
    H = (K, K) if data.is_complete else (5, K, K)
    asked = {
        "gram": (data.gram(mode), (5, 5)),
        "column_gram": (data.column_gram(mode), (c, c)),
        "unfold": (data.unfold(mode), (5, c)),
        "gram_factor": (data.gram_factor(mode)[0][:, 0], (5,)),
        "contract": (data.contract(mode, factors[mode]), (K, 4, 30)),
        "project": (data.project(mode, np.ones((K, 4, 30))), (5, K)),
        "mttkrp": (data.mttkrp(factors, mode), (5, K)),
        "to_array": (data.to_array(), SHAPE),
        "squared_norm": (data.squared_norm, ()),
        "n_observed": (data.n_observed, ()),
        "n_observed_along": (data.n_observed_along(mode), (5,)),
        "n_passes": (data.n_passes, ()),
        "ask_ahead": (data.ask_ahead([factors, factors]), ()),
        "ask_grams": (data.ask_grams([]), ()),
        "ask_residual_grams": (data.ask_residual_grams(W, {}), ()),
        "normal_equations": (np.ravel(data.normal_equations(factors, mode)[0]), (np.prod(H),)),
        "entries": (data.entries()[0], (data.n_observed, 3)),
        "residual": (data.residual(W), SHAPE),
        "inner_residual": (data.inner_residual(W), SHAPE),
        "residual_grams": (list(data.residual_grams(W, np.ones((2, W.n_atoms)), mode)), (2, 5, 5)),
        "residual_column_grams": (list(data.residual_column_grams(W, np.ones((2, W.n_atoms)), mode)), (2, c, c)),
        "reduced": (data.reduced(mode, np.ones((5, 2))), (4, 2, 30)),
        "core": (data.core, core),
        "left_out": (data.left_out, ()),
        "expand": (data.expand(small)[mode], (5, K)),
        "coordinates": (data.coordinates(factors)[mode], (core[mode], K)),
        "opened": (data.opened(mode), (core[0], 5, core[2])),
    }
    if data.is_complete:
        asked["update"] = (data.update(factors, mode, keep)[0], (5, K))
    else:
        asked |= {"mask": (data.mask, SHAPE), "observed": (data.observed(), SHAPE)}
        asked |= {"restrict": (data.restrict(W), SHAPE), "filled": (data.filled(), SHAPE)}
    return {name: (getattr(answer, "shape", np.shape(answer)), stated) for name, (answer, stated) in asked.items()}


def questions(*protocols):
    """Return the names of all public members of protocols."""
    bases = {base for one in protocols for base in one.__mro__ if base.__module__ == protocol.__name__}
    members = {name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    return {name for name in members if not name.startswith("_")}


@pytest.mark.parametrize("kind", [*COMPLETE, *OBSERVED])
def test_every_question_is_answered_with_the_shape_that_is_stated(kind, rng):
    data, _, _ = make(kind, rng)
    found = shapes(data, random_decomposition(SHAPE, "rank two", rng))
    for name, (shape, stated) in found.items():
        assert tuple(shape) == tuple(stated), name
    other = {"shape", "ndim", "dtype", "is_complete", "is_compressed", "is_weighted", "has_gram", "bases", "describe"}
    other |= {"mask", "limit", "known_grams"}
    expected = questions(protocol.CompleteStorage if kind in COMPLETE else protocol.ObservedStorage)
    assert expected == set(found) | other
    named = questions(protocol.LazyStorage) if kind in LAZY else expected
    assert all(hasattr(data, name) for name in expected | named)


@pytest.mark.parametrize("kind", [*COMPLETE, *OBSERVED])
def test_a_storage_says_what_it_is(kind, rng):
    data, X, mask = make(kind, rng)
    W = random_decomposition(SHAPE, "rank one", rng)
    assert data.is_complete == (kind in COMPLETE) and data.is_compressed == (kind == "compressed")
    assert not data.is_weighted
    assert (data.shape, data.ndim, data.dtype) == (SHAPE, 3, np.dtype(float))
    assert data.has_gram(0) is True
    assert data.residual(W).is_complete == data.is_complete
    np.testing.assert_allclose(data.to_array(), X, atol=1e-12)
    full = np.ones(SHAPE, dtype=bool) if mask is None else mask
    assert data.n_observed == full.sum()
    for mode in range(3):
        np.testing.assert_array_equal(data.n_observed_along(mode), naive.unfold(full, mode).sum(axis=1))
    if mask is None:
        assert data.mask is None
    else:
        np.testing.assert_array_equal(data.mask, mask)
        np.testing.assert_array_equal(data.observed().to_array(), mask)
        np.testing.assert_allclose(data.restrict(W).to_array(), naive.tensor(W) * mask, atol=1e-12)
        assert not data.observed().is_complete and not data.restrict(W).is_complete
    np.testing.assert_allclose(data.residual(W).to_array(), X - naive.tensor(W) * full, atol=1e-12)
    assert (data.n_passes > 0) == (kind in LAZY)


@pytest.mark.parametrize("atom_kind", ["rank one", "rank two"])
@pytest.mark.parametrize("kind", [*COMPLETE, *OBSERVED])
def test_grams_of_residuals_are_those_of_dense_residuals(kind, atom_kind, rng):
    data, X, mask = make(kind, rng)
    W = random_decomposition(SHAPE, atom_kind, rng)
    weights = rng.standard_normal((3, W.n_atoms))
    atoms = np.stack([naive.atom(atom) for atom in W.atoms])
    for mode in range(3):
        grams = [data.residual_grams(W, weights, mode), data.residual_column_grams(W, weights, mode)]
        for row, rows, columns in zip(weights, *grams, strict=True):
            R = naive.unfold(X - np.tensordot(row, atoms, axes=1) * (1 if mask is None else mask), mode)
            np.testing.assert_allclose(rows, R @ R.T, atol=1e-9)
            np.testing.assert_allclose(columns, R.T @ R, atol=1e-9)


@pytest.mark.parametrize("atoms", ["rank one", "mixed"])
@pytest.mark.parametrize("kind", [*COMPLETE, *OBSERVED])
def test_unfoldings_and_their_grams(kind, atoms, rng):
    data, X, mask = make(kind, rng)
    W = random_decomposition(SHAPE, atoms, rng)
    R = X - naive.tensor(W) * (1 if mask is None else mask)
    for tensor, array in ((data, X), (data.residual(W), R)):
        for mode in range(3):
            rows = naive.unfold(array, mode)
            np.testing.assert_allclose(tensor.unfold(mode), rows, atol=1e-9)
            np.testing.assert_allclose(tensor.column_gram(mode), rows.T @ rows, atol=1e-9)
            F, is_exact = tensor.gram_factor(mode)
            assert is_exact
            np.testing.assert_allclose(F @ F.T, rows @ rows.T, atol=1e-9)


@pytest.mark.parametrize("kind", [*COMPLETE, *OBSERVED])
def test_factors_and_their_coordinates(kind, rng):
    data, X, _ = make(kind, rng)
    small = [rng.standard_normal((r, 2)) for r in data.core.shape]
    for A, B in zip(data.coordinates(data.expand(small)), small, strict=True):  # the bases are orthonormal
        np.testing.assert_allclose(A, B, atol=1e-12)
    assert data.left_out == pytest.approx(data.squared_norm - data.core.squared_norm, abs=1e-9)
    assert data.core.squared_norm == pytest.approx(np.sum(X**2))
    if not data.is_compressed:
        assert data.core is data and data.bases == () and data.opened(0) is data
        return
    assert data.left_out > 1
    for mode in range(3):
        opened = data.opened(mode)
        assert opened.squared_norm == data.squared_norm
        np.testing.assert_allclose(opened.gram(mode), data.gram(mode), atol=1e-9)


@pytest.mark.parametrize("kind", COMPLETE)
def test_an_update_decides_rows_and_contracts_with_them(kind, rng):
    data, X, _ = make(kind, rng)
    factors = [rng.standard_normal((d, 2)) for d in SHAPE]
    for mode in range(3):
        A, contracted = data.update(factors, mode, lambda P, current: P + current)
        np.testing.assert_allclose(A, naive.mttkrp(X, factors, mode) + factors[mode], atol=1e-9)
        assert isinstance(contracted, Contracted)
        updated = [A if n == mode else B for n, B in enumerate(factors)]
        other = (mode + 1) % 3
        P = contracted.normal_equations(updated, other)[1]
        np.testing.assert_allclose(P, naive.mttkrp(X, updated, other), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("kind", [*COMPLETE, *OBSERVED])
def test_a_description_identifies_the_data_and_makes_no_pass(kind, rng):
    seed = int(rng.integers(2**32))
    same, again, other = (make(kind, np.random.default_rng(s))[0] for s in (seed, seed, seed + 1))
    n_passes = same.n_passes
    texts = [json.dumps(data.describe(), sort_keys=True) for data in (same, again, other)]
    assert texts[0] == texts[1] != texts[2] and same.n_passes == n_passes
    assert ("number of observed entries" in same.describe()) == (kind in OBSERVED)


def test_the_mask_is_part_of_the_description(rng):
    X, mask = rng.standard_normal(SHAPE), np.ones(SHAPE, dtype=bool)
    X[0, 0, :2], moved = 0, mask.copy()
    mask[0, 0, 0] = moved[0, 0, 1] = False
    for first, second in pairwise([MaskedTensor(X, mask), MaskedTensor(X, moved), DenseTensor(X)]):
        assert first.describe() != second.describe()


def test_the_residual_of_masked_data_answers_for_the_observed_entries_alone(rng):
    data, X, mask = make("masked", rng)
    W = random_decomposition(SHAPE, "rank one", rng)
    R = MaskedTensor(X - naive.tensor(W), mask)
    residual, factors = data.residual(W), [rng.standard_normal((d, 2)) for d in SHAPE]
    for found, expected in zip(residual.normal_equations(factors, 2), R.normal_equations(factors, 2), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_array_equal(residual.mask, mask)
    assert residual.n_observed == mask.sum()


def test_the_table_of_questions_names_them_all():
    for name in questions(protocol.CompleteStorage, protocol.ObservedStorage, protocol.LazyStorage):
        assert name in protocol.__doc__, name


def test_a_storage_that_leaves_a_question_out_cannot_be_made():
    class Half(protocol.CompleteStorage):
        def gram(self, mode):
            return np.eye(self.shape[mode])

    with pytest.raises(TypeError, match="abstract"):
        Half()
