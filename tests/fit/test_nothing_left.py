"""Searches and certificates where nothing, or nothing but rounding, is left."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from boolcp.bmp import BMP, decompose
from boolcp.checks import DegenerateAtomsWarning
from boolcp.datasets import make_boolean_cp
from boolcp.fit import atom_search
from boolcp.fit.atom_search import alternate, steepest_atom
from boolcp.fit.certify import certify, left_out_weights
from boolcp.metrics import hamming_error
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.storage import DenseTensor


def test_an_atom_for_which_the_others_leave_nothing_has_no_certificate():
    atom = Atom(0, [True, False, True], (np.array([[0.6], [0.8]]), np.array([[1.0], [0.0]])))
    X = BooleanCP((3, 2, 2), (atom,), [1.0]).to_tensor()
    W = BooleanCP(X.shape, (atom, atom), [1.0, 0.0], data_norm2=2.0, data_inner=[2.0, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a division by zero
        found = [atom.certificate for atom in certify(DenseTensor(X), W, left_out_weights(W)).atoms]
    assert found == [pytest.approx(1.0, rel=1e-5), pytest.approx(np.nan, nan_ok=True)]


def test_a_bound_of_zero_gives_no_certificate(rng, monkeypatch):
    R = DenseTensor(rng.standard_normal((3, 4, 5)))
    solution = SimpleNamespace(z=np.array([True, False, True]), bound=0.0)
    monkeypatch.setattr(atom_search, "maximize", lambda *arguments, **options: solution)
    assert np.isnan(steepest_atom(R, 0, rng).atom.certificate)


def test_a_real_part_that_vanishes_ends_the_alternation(rng):
    """R = 0 where the new z is on: z and V stay as they were."""
    R = np.zeros((3, 4, 5))
    R[0, 0, 0] = 1.0
    z = np.array([True, True, False])
    V = (np.eye(4)[:, 1:2], np.eye(5)[:, 1:2])  # R_n vec(V) = 0, so that the first entry of equal ones is taken
    for part in (V, V[0] @ V[1].T):
        found, real = alternate(DenseTensor(np.roll(R, 1, axis=0)), 0, z, part, 1, "normalized", rng)
        assert found is z and real is part


def test_tiny_constant_tensors_are_decomposed():
    for shape in [(1, 1), (2, 1), (1, 1, 3), (2, 2, 2), (3, 2, 3, 2)]:
        for X in (np.ones(shape), np.zeros(shape)):
            for atom_rank in (1, 2, None):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # that fewer atoms than asked for were found
                    W = decompose(X, 3, atom_rank=atom_rank, n_init=1, random_state=0)
                np.testing.assert_allclose(W.to_tensor(), X, atol=1e-8)
                assert all(np.isnan(atom.certificate) or 0 <= atom.certificate <= 1 for atom in W.atoms)


@pytest.mark.parametrize("given", [{}, {"background": None, "atom_rank": 1}])
def test_a_noiseless_tensor_has_no_more_atoms_than_explain_it(given):
    X, _, truth = make_boolean_cp((12, 13, 14), 3, noise=0, random_state=1)
    for n_atoms in (3, 4, 6):
        model = BMP(n_atoms, random_state=0, **given).fit(X)
        assert hamming_error(model.decomposition_, truth) == 0 and model.decomposition_.n_atoms == 3
        assert model.n_iter_ == 3 and model.converged_
        assert ("nothing is left" in model.stop_reason_) == (n_atoms > 3)
        assert f"{n_atoms} atoms were requested" in model.decomposition_.summary() or n_atoms == 3


def test_more_numbers_than_entries_are_a_warning(rng):
    X = rng.standard_normal((4, 5, 3))
    with pytest.warns(DegenerateAtomsWarning, match="free numbers for 60 observed entries"):
        BMP(12, n_init=1, random_state=0).fit(X)
