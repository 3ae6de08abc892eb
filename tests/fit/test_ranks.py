"""Refined atoms of rank one and blocks compete by one risk."""

import numpy as np
import pytest

import boolcp
from boolcp import BMP
from boolcp.fit.block_stages import backfit_ranks, risk_of_columns, with_bits
from boolcp.fit.noise import is_noise, largest_value
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.storage import DenseTensor, MaskedTensor


def block_sum(rng, shape=(24, 20, 22), modes=(0, 1), rank=4):
    """Return a sum of atoms of a larger rank."""
    atoms = []
    for mode in modes:
        sizes = np.delete(shape, mode)
        atoms.append(Atom(mode, rng.random(shape[mode]) < 0.5, tuple(rng.standard_normal((d, rank)) for d in sizes)))
    return BooleanCP(shape, tuple(atoms), np.ones(len(modes)))


def assert_identical(V, W):
    assert V.n_atoms == W.n_atoms
    np.testing.assert_array_equal(V.weights, W.weights)
    for first, second in zip(V.atoms, W.atoms, strict=True):
        assert first.mode == second.mode
        np.testing.assert_array_equal(first.z, second.z)
        for A, B in zip(first.factors, second.factors, strict=True):
            np.testing.assert_array_equal(A, B)


@pytest.mark.parametrize(("noise", "missing"), [(1.0, 0.0), (0.0, 0.0), (0.5, 0.3)])
def test_where_rank_one_suffices_the_result_is_that_of_rank_one(noise, missing):
    X, _, _ = boolcp.datasets.make_boolean_cp((20, 22, 24), 3, noise=noise, missing=missing, random_state=3)
    one, auto = (BMP(3, atom_rank=rank, random_state=0).fit(X) for rank in (1, "auto"))
    assert_identical(auto.decomposition_, one.decomposition_)
    for V, W in zip(auto.path_, one.path_, strict=True):
        assert_identical(V, W)
    certificates = [[atom.certificate for atom in model.decomposition_.atoms] for model in (one, auto)]
    np.testing.assert_array_equal(*certificates)


def test_blocks_win_where_atoms_are_blocks(rng):
    truth = block_sum(rng)
    clean = truth.to_tensor()
    X = clean + rng.standard_normal(clean.shape)
    one, auto = (BMP(2, atom_rank=rank, background=None, random_state=0).fit(X).decomposition_ for rank in (1, "auto"))
    assert max(atom.rank for atom in auto.atoms) >= 3
    assert boolcp.metrics.rmse(auto, clean) < 0.6 * boolcp.metrics.rmse(one, clean)
    default = BMP(2, random_state=0).fit(X).decomposition_
    assert default.background is None and boolcp.metrics.rmse(default, clean) < 0.6 * boolcp.metrics.rmse(one, clean)


@pytest.mark.parametrize("shape", [(20, 25, 30), (200, 5, 6), (8, 9, 10, 7)])
def test_residuals_that_are_noise(shape, rng):
    noise = rng.standard_normal(shape)
    assert is_noise(DenseTensor(noise)) and is_noise(DenseTensor(1e6 * noise))
    assert is_noise(MaskedTensor(noise, rng.random(shape) < 0.6))
    atom = boolcp.datasets.make_boolean_cp(shape, 1, random_state=1).X
    assert not is_noise(DenseTensor(noise + atom))


def test_the_largest_value_of_an_unfolding_with_two_long_sides(rng, monkeypatch):
    X = rng.standard_normal((12, 13, 14))
    signal = X + 6 * np.multiply.outer(rng.random(12) < 0.5, rng.standard_normal((13, 14)))
    for Y, rtol in ((X, 0.2), (signal, 1e-3)):
        expected = np.linalg.norm(np.moveaxis(Y, 1, 0).reshape(13, -1), 2), np.linalg.norm(Y.reshape(12, -1), 2)
        with monkeypatch.context() as patch:
            patch.setattr("boolcp.fit.noise.MAX_SIDE", 5)
            found = [largest_value(DenseTensor(Y), mode) for mode in (1, 0)]
        np.testing.assert_allclose(found, expected, rtol=rtol)
        assert (np.array(found) <= np.array(expected) * (1 + 1e-12)).all()
        assert largest_value(DenseTensor(Y), 0) == pytest.approx(expected[1])


def test_risk_is_the_expected_error_of_known_bits(rng):
    truth = block_sum(rng, (12, 10, 11), (0,), 1)
    clean, sigma, risks, errors = truth.to_tensor(), 0.5, [], []
    for _ in range(40):
        X = clean + sigma * rng.standard_normal(clean.shape)
        B = np.tensordot(truth.atoms[0].z, X, 1) / truth.atoms[0].n_ones
        U, s, V = np.linalg.svd(B)
        W = BooleanCP(X.shape, (Atom(0, truth.atoms[0].z, (s[0] * U[:, :1], V[:1].T)),), np.ones(1))
        risks.append(risk_of_columns(W, np.sum((X - W.to_tensor()) ** 2), sigma) - X.size * sigma**2)
        errors.append(np.sum((clean - W.to_tensor()) ** 2))
    spread = np.std(risks) / np.sqrt(len(risks))
    assert abs(np.mean(risks) - np.mean(errors)) < 4 * spread
    assert with_bits(1.0, W, sigma) == pytest.approx(1 + 2 * sigma**2 * 12)


def test_backfitting_raises_the_rank_where_the_data_have_more(rng):
    truth = block_sum(rng, modes=(0,))
    X = truth.to_tensor() + 0.3 * rng.standard_normal((24, 20, 22))
    one = BMP(1, atom_rank=1, boolean_modes=[0], random_state=0).fit(X).decomposition_
    risk, loss, W = backfit_ranks(DenseTensor(X), one, 0.3, tol=1e-6)
    assert W.atoms[0].rank == 4
    assert loss == pytest.approx(np.sum((X - W.to_tensor()) ** 2)) and risk > loss
    assert loss < np.sum((X - one.to_tensor()) ** 2)


def test_each_estimate_of_a_path_is_of_the_kind_with_the_lower_risk(rng):
    truth = block_sum(rng, (16, 14, 15), (0,), 3)
    X = truth.to_tensor() + rng.standard_normal((16, 14, 15))
    model = BMP(2, atom_rank="auto", background=None, sigma=1.0, random_state=0)
    path = model.fit_path(X)
    assert [W.n_atoms for W in path][:2] == [0, 1] and path[1].atoms[0].rank == 3
    plain, _, _ = boolcp.datasets.make_boolean_cp((14, 15, 16), 2, noise=0.5, random_state=1)
    one = BMP(2, atom_rank=1, background=None, random_state=0).fit_path(plain)
    for V, W in zip(model.set_params(sigma=None).fit_path(plain)[1:], one[1:], strict=True):
        assert_identical(V, W)
