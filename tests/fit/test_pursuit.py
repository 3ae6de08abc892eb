import naive
import numpy as np
import pytest

from boolcp.datasets import make_boolean_cp
from boolcp.fit.atom_search import Candidate
from boolcp.fit.pursuit import adjust_weights, boolean_matching_pursuit
from boolcp.fit.relax import last
from boolcp.fit.state import STOP_REASONS
from boolcp.result.atoms import BooleanCP
from boolcp.storage import DenseTensor, compress

SHAPES = [(12, 14), (8, 9, 10), (5, 6, 4, 7)]
KINDS = [(rank, score) for rank in (1, 2, None) for score in ("normalized", "published")]


def pursue(X, n_atoms=6, modes=None, seed=0, **options):
    modes = range(X.ndim) if modes is None else modes
    return last(boolean_matching_pursuit(DenseTensor(X), n_atoms, modes, np.random.default_rng(seed), **options), None)


def noisy(shape, rng, n_atoms=4):
    return make_boolean_cp(shape, n_atoms, noise=0.5, random_state=rng).X


@pytest.mark.parametrize(("atom_rank", "score"), KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_step_is_least_squares_and_the_history_is_true(shape, atom_rank, score, rng):
    X = noisy(shape, rng)
    pursuit = pursue(X, atom_rank=atom_rank, criterion=score)
    assert pursuit.stop_reason == "" and len(pursuit.history) == 6
    assert [W.n_atoms for W in pursuit.path] == list(range(7))
    losses = [np.sum((X - naive.tensor(W)) ** 2) / 2 for W in pursuit.path]
    assert (np.diff(losses) < 0).all()
    for W, loss, step in zip(pursuit.path[1:], losses[1:], pursuit.history, strict=True):
        residual = X - naive.tensor(W)
        assert max(abs(np.sum(residual * naive.atom(M))) for M in W.atoms) < 1e-8 * np.linalg.norm(X)
        np.testing.assert_allclose(W.weights, naive.least_squares(X, W.atoms), rtol=1e-6)
        np.testing.assert_allclose(W.data_inner, [np.sum(X * naive.atom(M)) for M in W.atoms], rtol=1e-8)
        assert step.loss == pytest.approx(loss, rel=1e-9)
        assert step.relative_error == pytest.approx(np.linalg.norm(residual) / np.linalg.norm(X))
        assert W.explained() == pytest.approx(1 - step.relative_error**2)
        newest = W.atoms[-1]
        assert (step.mode, step.n_ones, step.certificate) == (newest.mode, newest.n_ones, newest.certificate)
        assert newest.rank == (1 if len(shape) == 2 else atom_rank)
    assert all(W.atoms == pursuit.path[-1].atoms[: W.n_atoms] for W in pursuit.path)


@pytest.mark.parametrize("atom_rank", [1, 2, None])
def test_permuted_modes_permute_the_result(atom_rank, rng):
    X = noisy((8, 9, 10), rng)
    order = (2, 0, 1)  # mode n of the permuted tensor is mode order[n] of X
    first, second = pursue(X, atom_rank=atom_rank), pursue(X.transpose(order), atom_rank=atom_rank)
    assert [order[mode] for mode in second.path[-1].boolean_mode] == first.path[-1].boolean_mode.tolist()
    for a, b in zip(first.path[-1].atoms, second.path[-1].atoms, strict=True):
        np.testing.assert_array_equal(a.z, b.z)
    for V, W in zip(first.path, second.path, strict=True):
        np.testing.assert_allclose(W.to_tensor(), V.to_tensor().transpose(order), atol=1e-7)


def test_equal_seeds_give_equal_results(rng):
    X = noisy((30, 25, 22), rng)
    first, second = pursue(X, 4, seed=3), pursue(X, 4, seed=3)
    np.testing.assert_array_equal(first.path[-1].weights, second.path[-1].weights)
    np.testing.assert_array_equal(first.path[-1].to_tensor(), second.path[-1].to_tensor())
    assert [step.certificate for step in first.history] == [step.certificate for step in second.history]


@pytest.mark.parametrize("exponent", [-20, 13])
@pytest.mark.parametrize(("atom_rank", "score"), KINDS)
def test_scaling_by_a_power_of_two_scales_the_weights_exactly(atom_rank, score, exponent, rng):
    X = noisy((8, 25, 10), rng)
    options = {"n_atoms": 4, "atom_rank": atom_rank, "criterion": score}
    W, scaled = (pursue(factor * X, **options).path[-1] for factor in (1.0, 2.0**exponent))
    rtol = 1e-12 if atom_rank == 2 else 0  # LAPACK rounds several eigenvectors by their scale
    np.testing.assert_allclose(scaled.weights, 2.0**exponent * W.weights, rtol=rtol)
    for a, b in zip(W.atoms, scaled.atoms, strict=True):
        np.testing.assert_array_equal(a.z, b.z)
        np.testing.assert_allclose(a.dense_block(), b.dense_block(), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_the_tolerance_is_relative_to_the_tensor(scale, rng):
    X = noisy((8, 9, 10), rng)
    plain, scaled = pursue(X, 4), pursue(scale * X, 4)
    assert scaled.stop_reason == plain.stop_reason == ""
    np.testing.assert_allclose(scaled.path[-1].weights, scale * plain.path[-1].weights, rtol=1e-9)
    exact = make_boolean_cp(X.shape, 1, random_state=rng).X
    assert pursue(scale * exact, 4).stop_reason == "explained"


def test_float32_is_close_to_float64(rng):
    X = noisy((8, 9, 10), rng).astype(np.float32)
    single, double = pursue(X, 4), pursue(X.astype(float), 4)
    for a, b in zip(single.history, double.history, strict=True):
        assert a.relative_error == pytest.approx(b.relative_error, rel=1e-4)
    X32 = X.astype(float)
    assert single.history[-1].loss == pytest.approx(np.sum((X32 - naive.tensor(single.path[-1])) ** 2) / 2, rel=1e-4)


def test_only_the_allowed_modes_are_boolean(rng):
    X = noisy((8, 9, 10), rng)
    assert set(pursue(X, modes=(1,)).path[-1].boolean_mode) == {1}
    assert 0 not in pursue(X, modes=(1, 2)).path[-1].boolean_mode


def test_it_stops_when_nothing_is_left(rng):
    X = make_boolean_cp((8, 9, 10), 1, random_state=rng).X
    pursuit = pursue(X)
    assert pursuit.stop_reason == "explained" and len(pursuit.history) == 1
    assert pursuit.history[0].relative_error < 1e-6
    loose = pursue(noisy((8, 9, 10), rng), 50, tol=0.5)
    assert loose.stop_reason in ("explained", "no descent")
    assert all(step.relative_error > 0.5 for step in loose.history[:-1])


def test_a_zero_tensor_has_no_atoms():
    pursuit = pursue(np.zeros((3, 4, 5)))
    assert pursuit.stop_reason == "zero" and pursuit.history == ()
    assert [W.n_atoms for W in pursuit.path] == [0]


def test_it_stops_at_an_atom_that_it_has_already(rng):
    X = noisy((8, 9, 10), rng)
    before = pursue(X, 2)
    found = Candidate(before.W.atoms[0], descent=1.0, value=1.0)
    after = adjust_weights(DenseTensor(X), before, found, tol=1e-6)
    assert after.stop_reason == "dependent" and after.path == before.path


def test_it_stops_when_no_atom_helps(rng):
    pursuit = pursue(rng.standard_normal((8, 9, 10)), tol=0.5)  # no atom holds a quarter of pure noise
    assert pursuit.stop_reason == "no descent" and pursuit.history == ()


def test_more_atoms_than_the_data_hold_stop_early(rng):
    for X in (noisy((3, 4), rng), noisy((2, 3, 3), rng), np.ones((2, 2)), rng.standard_normal((1, 1, 3))):
        pursuit = pursue(X, 100)
        assert pursuit.stop_reason in ("explained", "dependent", "no descent") and len(pursuit.history) < 60
        assert pursuit.history[-1].relative_error < 1e-5


def test_every_stop_reason_has_words():
    assert set(STOP_REASONS) == {"n_atoms", "explained", "no descent", "dependent", "zero", "stopped"}


def test_a_compressed_tensor_takes_the_same_path(rng):
    X = make_boolean_cp((20, 22, 24), 3, random_state=rng).X
    data = compress(DenseTensor(X), 5)
    assert data.core.shape == (5, 5, 5)
    small = last(boolean_matching_pursuit(data, 3, (0, 1, 2), np.random.default_rng(0)), None)
    full = pursue(X, 3)
    for a, b in zip(small.path[-1].atoms, full.path[-1].atoms, strict=True):
        assert a.mode == b.mode
        np.testing.assert_array_equal(a.z, b.z)
    np.testing.assert_allclose(small.path[-1].weights, full.path[-1].weights)


def test_the_input_is_not_changed(rng):
    X = noisy((8, 9, 10), rng)
    before = X.copy()
    X.flags.writeable = False
    pursuit = pursue(X)
    np.testing.assert_array_equal(X, before)
    assert isinstance(pursuit.path, tuple) and isinstance(pursuit.path[0], BooleanCP)
