"""What the search reaches: planted atoms, the loss of a start at the truth, the best of all on small tensors."""

import warnings
from itertools import product

import naive
import numpy as np
import pytest
from samples import tensor

from boolcp import BMP, DegenerateAtomsWarning, decompose, load
from boolcp.datasets import make_boolean_cp
from boolcp.fit.spec import State
from boolcp.fit.starts import MAX_RIVALS, compared, find_rivals, pencil_start
from boolcp.fit.sweep import polish
from boolcp.metrics import hamming_error, rmse
from boolcp.result.columns import Columns, to_columns
from boolcp.storage.dense import Dense


def loss_at_the_truth(X, truth):
    """Return the loss of a polish from the planted atoms."""
    return polish(Dense(X), to_columns(truth), max_iter=200).loss


def loss_of(X, W):
    return float(np.sum((X - W.to_tensor()) ** 2))


# without noise


@pytest.mark.parametrize("n_asked", [0, 1, 3])
@pytest.mark.parametrize("shape", [(12, 14), (12, 13, 14), (6, 7, 8, 5)])
def test_planted_atoms_are_exact_and_no_more_are_found(shape, n_asked):
    X, _, truth = make_boolean_cp(shape, 3, noise=0, random_state=1)
    model = BMP(3 + n_asked, random_state=0).fit(X)
    W = model.decomposition_
    assert W.n_atoms == 3 and model.converged_ and model.n_iter_ == 3
    assert hamming_error(W, truth) == 0 or len(shape) == 2  # a matrix has several such sums
    np.testing.assert_allclose(W.to_tensor(), X, atol=1e-5 * np.abs(X).max())
    assert ("nothing is left" in model.stop_reason_) == (n_asked > 0)
    assert (f"{3 + n_asked} atoms were requested" in W.summary()) == (n_asked > 0)


def test_tiny_and_constant_tensors_are_decomposed():
    for shape in [(1, 1), (2, 1), (1, 1, 3), (2, 2, 2), (3, 2, 3, 2)]:
        for X, rank in product((np.ones(shape), np.zeros(shape)), (1, 2, "block")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that fewer atoms than asked for were found
                W = decompose(X, 3, atom_rank=rank, n_init=1, random_state=0)
            np.testing.assert_allclose(W.to_tensor(), X, atol=1e-8)
            assert all(np.isnan(atom.certificate) or 0 <= atom.certificate <= 1 for atom in W.atoms)


def test_more_numbers_than_entries_are_a_warning(rng):
    with pytest.warns(DegenerateAtomsWarning, match="free numbers for 60 observed entries"):
        BMP(12, n_init=1, random_state=0).fit(rng.standard_normal((4, 5, 3)))


@pytest.mark.parametrize("shape", [(9, 10, 11), (25, 30, 20)])
def test_a_pencil_of_slices_is_exact_without_noise(shape, rng):
    X, _, _ = make_boolean_cp(shape, 4, random_state=rng)
    factors = pencil_start(Dense(X), 4, rng)
    np.testing.assert_allclose(naive.full(factors), X, atol=1e-6 * np.abs(X).max())
    assert pencil_start(Dense(rng.standard_normal((4, 5))), 2, rng) is None


# with noise


NOISY = [((20, 22, 24), 6, 1.0), ((8, 9, 10, 7), 3, 0.5), ((40, 12, 30), 8, 1.0)]
NOISY += [((60, 80), n_atoms, 0.1) for n_atoms in (3, 4, 6, 8)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("shape", "n_atoms", "noise"), NOISY)
def test_the_loss_is_no_higher_than_that_of_a_start_at_the_truth(shape, n_atoms, noise, seed):
    X, clean, truth = make_boolean_cp(shape, n_atoms, noise=noise, random_state=seed)
    W = decompose(X, n_atoms, random_state=0)
    assert loss_of(X, W) <= loss_at_the_truth(X, truth) * (1 + 1e-6)
    assert rmse(W, clean) < 0.5 * noise or len(shape) == 2


@pytest.mark.parametrize("noise", [8.0, 12.0])
def test_bits_in_doubt_are_searched_further(noise):
    """So much noise that the small tensor does not show every bit."""
    X, _, truth = make_boolean_cp((40, 40, 40), 3, noise=noise, random_state=2)
    stages: list = []
    model = BMP(3, random_state=0).fit(X, callback=lambda p: stages.append(p.stage))
    assert "last" in stages
    assert loss_of(X, model.decomposition_) <= loss_at_the_truth(X, truth) * (1 + 1e-6)
    stages.clear()
    clear = make_boolean_cp((40, 40, 40), 3, noise=0.5, random_state=2).X
    BMP(3, random_state=0).fit(clear, callback=lambda p: stages.append(p.stage))
    assert "last" not in stages  # a clear fit is left as it is


def test_one_boolean_mode_takes_many_crossings():
    X, _, truth = make_boolean_cp((30, 30, 30), [4, 0, 0], noise=6.0, random_state=1)
    W = decompose(X, 4, boolean_modes=[0], random_state=0)
    assert set(W.boolean_mode) == {0} and loss_of(X, W) <= loss_at_the_truth(X, truth) * (1 + 1e-6)


def test_one_atom_of_a_small_tensor_is_the_best_of_all(rng):
    for _ in range(5):
        X = rng.standard_normal((5, 6, 4))
        W = decompose(X, 1, random_state=0)
        assert np.sum(X**2) - loss_of(X, W) == pytest.approx(naive.best_score(X, 1, is_ratio=True) ** 2)


def test_all_factors_are_at_a_minimum_and_no_bit_is_better_flipped(rng):
    X = tensor((8, 9, 10), noise=2.0)
    W = decompose(X, 3, random_state=0)
    best = loss_of(X, W)
    assert polish(Dense(X), to_columns(W), max_iter=200).loss >= best * (1 - 1e-6)
    for k, atom in enumerate(W.atoms):
        for i in range(len(atom.z)):
            assert naive.rise(X, W, k, i) >= -1e-9 * best


def test_n_init_and_max_iter_bound_the_search(rng):
    X = rng.standard_normal((14, 15, 16))
    for n_init in (1, 3):
        stages: list = []
        BMP(2, n_init=n_init, max_iter=2, random_state=0).fit(X, callback=lambda p, told=stages: told.append(p))
        assert sum(p.stage == "search" for p in stages) <= n_init
        assert all(p.step <= 2 for p in stages if p.stage == "polish")


# starts that agree, and rivals


def columns(*atoms, loss):
    """Return columns of atoms given as (mode, bits) of a 10 x 10 x 10 tensor."""
    matrices = [np.ones((10, len(atoms))) for _ in range(3)]
    for k, (mode, on) in enumerate(atoms):
        matrices[mode][:, k] = np.isin(np.arange(10), on)
    return Columns(tuple(matrices), np.arange(len(atoms)), np.array([mode for mode, _ in atoms]), loss)


def test_rivals_are_different_solutions_of_nearly_the_same_loss():
    best, same = columns((0, [1, 2, 3]), loss=100.0), columns((0, [1, 2]), loss=100.1)
    rival, twin = columns((0, [7, 8, 9]), loss=100.4), columns((0, [7, 8]), loss=100.45)
    poor = columns((1, [1]), loss=101)
    assert find_rivals(best, (poor, twin, rival, same)) == (rival,)
    here = State(0, best=best, n_agree=1)
    for candidate in (rival, poor, same, twin):
        here = compared(here, candidate, 1000.0)
    assert here.best is best and here.rivals == (rival,) and here.n_agree == 1 and here.n_done == 4
    others = [columns((0, [k, (k + 3) % 10, (k + 5) % 10]), loss=100.2) for k in range(10)]
    assert len(find_rivals(best, others)) <= MAX_RIVALS


def test_starts_agree_only_if_they_are_new():
    W, poor = columns((0, [1, 2, 3]), loss=100.0), columns((1, [1]), loss=120.0)
    here = compared(compared(State(0, best=poor, n_agree=1), W, 1.0), W, 1.0, is_new=False)
    assert here.best is W and here.n_agree == 1
    here = compared(here, W, 1.0)
    assert here.n_agree == 2
    assert compared(here, columns((0, [1]), loss=90.0), 1.0).n_agree == 1


def test_a_fit_tells_of_its_rivals(rng, tmp_path):
    W = decompose(rng.standard_normal((20, 21, 22)), 3, random_state=0)
    assert W.trust.n_rivals > 0  # pure noise has no best atoms
    assert "within 0.5 %" in W.summary()
    W.save(tmp_path / "W.nc")
    assert load(tmp_path / "W.nc").trust.n_rivals == W.trust.n_rivals
    clear = decompose(tensor(), 3, random_state=0)
    assert clear.trust.n_rivals == 0 and "within 0.5 %" not in clear.summary()
