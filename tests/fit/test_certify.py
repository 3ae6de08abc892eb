"""Certificates: never more than the true share of the best bits, and near it with enough effort."""

from dataclasses import replace

import naive
import numpy as np
import pytest

import boolcp
from boolcp import Atom, BooleanCP
from boolcp.datasets import make_boolean_cp
from boolcp.program.maxcut import LARGE


def true_shares(W, X, observed):
    """Return the decrease of the loss by the bits of each atom over the largest of all bits, by enumeration."""
    shares = []
    for k, atom in enumerate(W.atoms):
        others = replace(W, weights=np.where(np.arange(W.n_atoms) == k, 0.0, W.weights))
        R = np.where(observed, X - others.to_tensor(), 0.0)
        R = naive.unfold(R, atom.mode)
        best, _ = naive.best_boolean(R @ R.T, is_ratio=True)
        shares.append(np.sum((atom.z @ R) ** 2) / atom.z.sum() / best)
    return np.array(shares)


def certificates(W):
    return np.array([atom.certificate for atom in W.atoms])


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_certificate_is_proved_and_nearly_the_true_share(seed, is_masked):
    X = make_boolean_cp((8, 9, 10), 3, noise=2.0, random_state=seed).X
    observed = np.random.default_rng(seed).random(X.shape) > 0.2 if is_masked else np.ones(X.shape, dtype=bool)
    W = boolcp.decompose(X, 3, mask=observed, random_state=0)
    truth = true_shares(W, X, observed)
    quick, thorough = (certificates(W.certify(X, mask=observed, effort=effort)) for effort in ("quick", "thorough"))
    assert np.all(quick <= truth + 1e-9) and np.all(thorough <= truth + 1e-9)
    assert np.all(thorough >= quick - 1e-9) and np.all(thorough > 0.995 * truth)


def test_the_proof_changes_nothing_but_certificates():
    X = make_boolean_cp((12, 13, 14), 2, noise=1.0, random_state=0).X
    W = boolcp.decompose(X, 2, random_state=0)
    proved = W.certify(X)
    assert np.array_equal(proved.to_tensor(), W.to_tensor()) and proved.explained() == pytest.approx(W.explained())
    assert "Proved: the bits of every atom reach at least" in proved.summary()


def test_an_atom_for_which_the_others_leave_nothing_has_no_certificate():
    atom = Atom(0, [True, False, True], (np.array([[0.6], [0.8]]), np.array([[1.0], [0.0]])))
    X = BooleanCP((3, 2, 2), (atom,), [1.0]).to_tensor()
    found = certificates(BooleanCP(X.shape, (atom, atom), [1.0, 0.0]).certify(X))
    assert found[0] == pytest.approx(1.0, rel=1e-5) and np.isnan(found[1])


def test_what_is_printed_is_rounded_down():
    X = make_boolean_cp((12, 13, 14), 1, noise=1.0, random_state=0).X
    W = boolcp.decompose(X, 1, random_state=0)
    assert "at least 99.9 %" in replace(W, atoms=(replace(W.atoms[0], certificate=0.9999),)).summary()


@pytest.mark.parametrize(
    ("change", "words"), [({"effort": "endless"}, "effort"), ({"X": np.ones((3, 3, 3))}, r"X has shape \(3, 3, 3\)")]
)
def test_wrong_arguments_are_named(change, words):
    X = make_boolean_cp((6, 7, 8), 1, random_state=0).X
    W = boolcp.decompose(X, 1, random_state=0)
    with pytest.raises(ValueError, match=words):
        W.certify(change.pop("X", X), **change)


def test_a_mode_whose_gram_matrix_takes_long_is_judged_by_the_shorter_ones():
    X = make_boolean_cp((9, LARGE + 50, 10), [1, 2, 0], noise=1.0, random_state=4).X
    W = boolcp.decompose(X, 3, random_state=0)
    long = W.boolean_mode == 1
    assert long.any() and not long.all()
    assert (certificates(W)[long] > 0.5).all() and (certificates(W) <= 1).all()


@pytest.mark.parametrize("atom_rank", [2, "block"])
def test_atoms_that_back_fitting_changed_have_certificates(atom_rank):
    X = boolcp.datasets.simulate_recording(random_state=3).X[:, :, 0]
    W = boolcp.BMP(3, atom_rank=atom_rank, random_state=0).fit(X).decomposition_
    assert W.n_atoms == 3 and all(0 < atom.certificate <= 1 for atom in W.atoms)
