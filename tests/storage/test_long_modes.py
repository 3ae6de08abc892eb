"""Whole fits with the switch to thin factors lowered, against the same fits with Gram matrices."""

import naive
import numpy as np
import pytest
from samples import random_decomposition

import boolcp
from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.fit import certify, noise, shrinkage
from boolcp.fit.atom_search import greedy_atom_search, steepest_atom
from boolcp.metrics import hamming_error
from boolcp.storage import DenseTensor, ListedTensor, MaskedTensor, TuckerTensor, compress
from boolcp.storage import long as thin
from boolcp.storage.dense import ArrayStorage, Difference

SHAPE = (12, 60, 9)


@pytest.fixture
def long_modes(monkeypatch):
    """Make every mode of more than 40 entries a long one, of which no Gram matrix may be asked."""
    monkeypatch.setattr(thin, "LONG", 40)

    def refuse(storage):
        plain = storage.gram

        def gram(self, mode):
            assert not thin.is_long(self.shape[mode]), "the Gram matrix of a long mode"
            return plain(self, mode)

        monkeypatch.setattr(storage, "gram", gram)

    for storage in (ArrayStorage, ListedTensor, Difference, TuckerTensor):
        refuse(storage)


def sample(shape=SHAPE, n_atoms=3, noise=0.3, seed=0):
    return make_boolean_cp(shape, n_atoms, noise=noise, random_state=seed)


def storages(X, rng):
    """Yield complete storages that hold X or something close to it."""
    yield DenseTensor(X)
    yield DenseTensor(np.asfortranarray(X))
    yield ListedTensor(np.argwhere(np.ones(X.shape)), X.ravel(), X.shape)
    yield MaskedTensor(X, np.ones(X.shape, dtype=bool))
    yield compress(DenseTensor(X), 4)


# Factors


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_gram_factor_is_a_factor_of_the_gram_matrix(mode, rng, monkeypatch):
    monkeypatch.setattr(thin, "THIN", 1000)
    for data in storages(rng.standard_normal(SHAPE), rng):
        F, is_exact = data.gram_factor(mode)
        assert is_exact
        np.testing.assert_allclose(F @ F.T, data.gram(mode), atol=1e-9 * np.abs(data.gram(mode)).max())


@pytest.mark.parametrize("kind", ["rank one", "rank two", "block", "mixed"])
def test_gram_factor_of_a_residual(kind, rng, monkeypatch):
    monkeypatch.setattr(thin, "THIN", 1000)
    W = random_decomposition(SHAPE, kind, rng)
    for data in storages(rng.standard_normal(SHAPE), rng):
        residual = data.residual(W)
        for mode in range(3):
            F, is_exact = residual.gram_factor(mode)
            expected = residual.gram(mode)
            assert is_exact
            np.testing.assert_allclose(F @ F.T, expected, atol=1e-9 * np.abs(expected).max())


def test_gram_factor_of_compressed_data_is_thin(rng):
    small = compress(DenseTensor(rng.standard_normal(SHAPE)), 4)
    assert small.gram_factor(1)[0].shape == (60, 4)
    residual = small.residual(random_decomposition(SHAPE, "rank one", rng, n_atoms=3))
    assert residual.gram_factor(1)[0].shape[1] <= 7


def test_many_columns_leave_the_leading_directions(rng, monkeypatch):
    monkeypatch.setattr(thin, "THIN", 50)
    monkeypatch.setattr(thin, "N_LEADING", 5)
    X = sample(noise=0.01).X
    F, is_exact = DenseTensor(X).gram_factor(1)
    C = naive.unfold(X, 1) @ naive.unfold(X, 1).T
    assert F.shape == (60, 5) and not is_exact
    values, vectors = np.linalg.eigh(C)
    np.testing.assert_allclose(F @ F.T, (vectors[:, -5:] * values[-5:]) @ vectors[:, -5:].T, atol=1e-3 * values[-1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compression_of_a_long_mode_spans_the_same_directions(dtype, long_modes, monkeypatch):
    X = sample((8, 90, 7)).X.astype(dtype)
    found = compress(DenseTensor(X), 4)
    monkeypatch.setattr(thin, "LONG", 200)
    expected = compress(DenseTensor(X), 4)
    for U, V in zip(found.bases, expected.bases, strict=True):
        np.testing.assert_allclose(U @ U.T, V @ V.T, atol=1e-4 if dtype == "float32" else 1e-8)
        np.testing.assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=1e-12)


def test_two_long_modes_are_compressed_by_power_iterations(long_modes):
    X, clean, _ = sample((3, 70, 80), noise=1e-3)
    found = compress(DenseTensor(X), 4)
    assert found.bases[1].shape == (70, 4) and found.bases[2].shape == (80, 4)
    np.testing.assert_allclose(found.contract(0, np.eye(3)), clean, atol=5e-3)


# The search


@pytest.mark.parametrize("score", ["normalized", "published"])
@pytest.mark.parametrize("atom_rank", [1, 2, None])
@pytest.mark.parametrize("columns", [256, 10])
def test_steepest_atom_of_a_long_mode_is_that_of_the_gram_matrix(score, atom_rank, columns, monkeypatch):
    data, options = DenseTensor(sample().X), {"atom_rank": atom_rank, "criterion": score}
    expected = steepest_atom(data, 1, np.random.default_rng(0), **options)
    monkeypatch.setattr(thin, "LONG", 40)
    monkeypatch.setattr(thin, "THIN", columns)
    found = steepest_atom(data, 1, np.random.default_rng(0), **options)
    np.testing.assert_array_equal(found.atom.z, expected.atom.z)
    assert found.value == pytest.approx(expected.value)
    if columns == 256:
        assert found.atom.certificate == pytest.approx(expected.atom.certificate, rel=1e-3)
    else:
        assert np.isnan(found.atom.certificate)  # leading directions prove nothing


def test_nothing_is_found_in_nothing(long_modes, rng):
    assert greedy_atom_search(DenseTensor(np.zeros(SHAPE)), (0, 1, 2), rng) is None


# Fits


FITS = [
    {},
    {"refine": False},
    {"compression": False},
    {"boolean_modes": [1], "atom_rank": 1},
    {"criterion": "published", "refine": False},
    {"atom_rank": None, "refine": False},
    {"atom_rank": 2, "boolean_modes": [1]},
    {"atom_rank": None, "boolean_modes": [0, 1]},
    {"atom_rank": None, "boolean_modes": [1], "criterion": "published"},
    {"atom_rank": "auto", "boolean_modes": [1], "sigma": 0.3},
]


@pytest.mark.parametrize("options", FITS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fits_are_those_with_gram_matrices(options, dtype, request):
    X = sample().X.astype(dtype)
    options = {"random_state": 0, "background": None} | options
    expected = BMP(3, **options).fit(X)
    request.getfixturevalue("long_modes")
    found = BMP(3, **options).fit(X)
    assert_same(found, expected, 1e-4 if dtype == "float32" else 1e-6)


def assert_same(found, expected, tol):
    V, W = found.decomposition_, expected.decomposition_
    assert V.n_atoms == W.n_atoms == 3
    for first, second in zip(V.atoms, W.atoms, strict=True):
        assert first.mode == second.mode
        np.testing.assert_array_equal(first.z, second.z)
    np.testing.assert_allclose(V.to_tensor(), W.to_tensor(), atol=tol * np.abs(W.to_tensor()).max())
    losses = [[record.loss for record in model.history_] for model in (found, expected)]
    # the bases of long modes come from power iterations: single bits of the pursuit's atoms may differ
    np.testing.assert_allclose(*losses, rtol=2e-3 if expected.atom_rank != 2 else 5e-3)


@pytest.mark.parametrize("share", [0.6, 0.04])
def test_fit_with_missing_entries(share, long_modes):
    X, _, truth = sample((12, 60, 40), noise=0.05)
    mask = np.random.default_rng(0).random(X.shape) < share
    W = BMP(3, random_state=1).fit(X, mask=mask).decomposition_
    assert hamming_error(W, truth) <= (0 if share > 0.5 else 0.05)


def test_fit_of_a_tensor_of_order_four(long_modes):
    X, _, truth = sample((5, 50, 6, 4), noise=0.1)
    for options in ({}, {"refine": False}):
        assert hamming_error(BMP(3, random_state=0, **options).fit(X).decomposition_, truth) == 0


@pytest.mark.parametrize("boolean_modes", [[0], [1], None])
def test_fit_of_a_long_matrix(boolean_modes, request):
    X = sample((8, 90), noise=0.1).X
    options = {"random_state": 0, "boolean_modes": boolean_modes}
    expected = BMP(3, **options).fit(X)
    request.getfixturevalue("long_modes")
    assert_same(BMP(3, **options).fit(X), expected, 1e-6)


def test_signal_subspaces_of_long_modes_are_the_same(request):
    data = DenseTensor(sample().X)
    expected = shrinkage.signal_subspaces(data, 0.3)
    request.getfixturevalue("long_modes")
    found = shrinkage.signal_subspaces(data, 0.3)
    assert [sizes for _, sizes in found] == [sizes for _, sizes in expected]
    for U, V in zip(found[-1][0].bases, expected[-1][0].bases, strict=True):
        np.testing.assert_allclose(U @ U.T, V @ V.T, atol=1e-6)
    assert noise.noise_level(data) == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize("method", ["SUSTain", "LFMmix", "LFM"])
def test_baselines_of_long_modes(method, request):
    X = sample(noise=0.1).X
    expected = getattr(boolcp.baselines, method)(3, random_state=0).fit(X).decomposition_
    request.getfixturevalue("long_modes")
    found = getattr(boolcp.baselines, method)(3, random_state=0).fit(X).decomposition_
    np.testing.assert_allclose(found.to_tensor(), expected.to_tensor(), atol=1e-3)


# Certificates


def test_certificates_of_long_modes_with_few_columns_are_of_the_largest_eigenvalue(request):
    """They judge the atom as it is, where those of short modes judge its bits."""
    X = sample().X
    expected = BMP(3, random_state=0).fit(X).decomposition_
    request.getfixturevalue("long_modes")
    found = BMP(3, random_state=0).fit(X).decomposition_
    n_long = 0
    for atom, other, row in zip(found.atoms, expected.atoms, certify.left_out_weights(found), strict=True):
        if not thin.is_long(len(atom.z)):
            assert atom.certificate == pytest.approx(other.certificate, rel=1e-6)
            continue
        n_long += 1
        R = naive.unfold(X - naive.tensor(boolcp.BooleanCP(X.shape, found.atoms, row)), atom.mode)
        own = np.sum(R * naive.unfold(naive.atom(atom), atom.mode)) ** 2 / atom.n_ones
        assert atom.certificate == pytest.approx(own / np.linalg.norm(R, 2) ** 2, rel=1e-4)
        assert atom.certificate <= other.certificate
    assert n_long


@pytest.mark.parametrize("columns", [256, 10])
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_bounds_of_long_modes_are_never_below_what_an_atom_of_rank_one_reaches(columns, share, long_modes, monkeypatch):
    monkeypatch.setattr(thin, "LONG", 8)
    monkeypatch.setattr(certify, "THIN", columns)
    rng = np.random.default_rng(0)
    X, _, truth = sample((6, 9, 7), noise=0.5)
    mask = rng.random(X.shape) < share
    data = DenseTensor(X) if share == 1 else MaskedTensor(X, mask)
    W = boolcp.BooleanCP(X.shape, truth.atoms, truth.weights)
    weights = certify.left_out_weights(W)
    members = np.flatnonzero(W.boolean_mode == 1)
    assert len(members)
    for k, bound in zip(members, certify.long_bounds(data, W, weights, 1, members), strict=True):
        row = weights[k]
        R = np.where(mask, X - naive.tensor(boolcp.BooleanCP(X.shape, W.atoms, row)), 0.0)
        assert bound >= naive.best_score(R, 1, True) ** 2 * (1 - 1e-9)
        norms = [np.linalg.norm(naive.unfold(R, n), 2) ** 2 for n in range(3)]
        assert bound == pytest.approx(norms[1] if columns == 256 else min(norms[0], norms[2]), rel=1e-3)


def test_no_short_mode_no_certificate(monkeypatch, rng):
    monkeypatch.setattr(thin, "LONG", 3)
    monkeypatch.setattr(certify, "THIN", 3)
    W = random_decomposition((6, 9, 7), "rank one", rng)
    data, members = DenseTensor(rng.standard_normal(W.shape)), np.flatnonzero(W.boolean_mode == 0)
    bounds = certify.long_bounds(data, W, certify.left_out_weights(W), 0, members)
    assert len(bounds) and np.isnan(bounds).all()
