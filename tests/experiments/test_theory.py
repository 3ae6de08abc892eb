"""Theorem 1 of the paper along the path of the pursuit, on tensors without noise.

F(W) = |X - W|^2 / 2. On noiseless data F(W*) = 0 at W* = X, and the theorem says

    F(W^k) <= 2 beta |W*|_A^2 / (mu^2 k),

with beta = max d_n because its proof needs atoms of norm at most one while |M|^2 is the number of ones in z. The
atomic norm |W*|_A is the smallest sum of absolute weights over all ways to write W* with atoms; the true atoms are
one such way, so the sum of their weights bounds it from above, and the theorem holds all the more with that sum.

The bound is loose in its constants: a path that stands still meets it for a while. The tests therefore also check
the inequality of each single step that the proof adds up. With R = X - W^k orthogonal to W^k, <R, W*> = 2 F(W^k), so
that some atom has <R, M> >= 2 F(W^k) / |W*|_A; the atom found reaches mu times that, and a step along it gives

    F(W^k) - F(W^{k+1}) >= 2 mu^2 F(W^k)^2 / (|M|^2 |W*|_A^2),    |M|^2 <= beta.

Summed up, 1/F(W^k) grows by 2 mu^2 / (beta |W*|_A^2) in each step, which is the theorem with a constant four times
smaller; a path that stands still breaks it within 40 steps.
"""

import naive
import numpy as np
import pytest

from boolcp.datasets import make_boolean_cp
from boolcp.fit.pursuit import boolean_matching_pursuit
from boolcp.fit.relax import last
from boolcp.storage import DenseTensor

MU = 3 / 5  # the paper's constant
A_PRIORI = np.sqrt(2 / np.pi)  # what the relaxation guarantees for a positive semidefinite program

CASES = [(rank, score) for rank in (None, 1) for score in ("published", "normalized")]


def path_of(shape, n_true, n_steps, atom_rank, score, rng):
    """Return the losses F(W^0) .. F(W^K), computed densely, the pursuit, and the bound on |W*|_A."""
    X, _, truth = make_boolean_cp(shape, n_true, random_state=rng)
    options = {"atom_rank": atom_rank, "criterion": score}
    pursuit = last(boolean_matching_pursuit(DenseTensor(X), n_steps, range(len(shape)), rng, **options), None)
    losses = np.array([np.sum((X - naive.tensor(W)) ** 2) / 2 for W in pursuit.path])
    return losses, pursuit, np.abs(truth.weights).sum()


@pytest.mark.parametrize(("atom_rank", "score"), CASES)
def test_the_bound_of_theorem_1_holds_along_the_path(atom_rank, score, rng):
    for shape, n_true in [((8, 9, 10), 3), ((22, 24, 21), 4), ((12, 15), 2)]:
        losses, _, atomic_norm = path_of(shape, n_true, 40, atom_rank, score, rng)
        k = np.arange(1, len(losses))
        bound = 2 * max(shape) * atomic_norm**2 / MU**2 / k
        assert (losses[1:] <= bound).all()
        assert (losses[1:] <= bound / 4).all()
        assert losses[0] > 2 * max(shape) * atomic_norm**2 / MU**2 / 40 / 4


@pytest.mark.parametrize(("atom_rank", "score"), CASES)
def test_every_step_gains_what_the_proof_adds_up(atom_rank, score, rng):
    for shape, n_true in [((8, 9, 10), 3), ((22, 24, 21), 4), ((12, 15), 2)]:
        losses, _, atomic_norm = path_of(shape, n_true, 15, atom_rank, score, rng)
        least = 2 * MU**2 * losses[:-1] ** 2 / (max(shape) * atomic_norm**2)
        assert (losses[:-1] - losses[1:] >= least - 1e-12 * losses[0]).all()


def test_the_steps_gain_what_their_own_certificates_promise(rng):
    """With the published score mu of a step is sqrt(value / bound), proved after the fact instead of assumed."""
    for shape, n_true in [((8, 9, 10), 3), ((30, 24, 28), 6)]:
        losses, pursuit, atomic_norm = path_of(shape, n_true, 10, None, "published", rng)
        mu2 = np.array([step.certificate for step in pursuit.history])
        n_ones = np.array([step.n_ones for step in pursuit.history])
        least = 2 * mu2 * losses[:-1] ** 2 / (n_ones * atomic_norm**2)
        assert (losses[:-1] - losses[1:] >= least - 1e-12 * losses[0]).all()


def test_the_measured_ratio_is_above_the_one_assumed(rng):
    """The winner over the modes is as good in its mode as the relaxation promises, and as the paper needs."""
    for shape in [(8, 9, 10), (30, 24, 28), (60, 25, 30)]:
        _, pursuit, _ = path_of(shape, 6, 8, None, "published", rng)
        mu = np.sqrt([step.certificate for step in pursuit.history])
        assert (mu <= 1).all() and mu.min() >= A_PRIORI > MU


def test_small_programs_are_solved_with_ratio_one(rng):
    _, pursuit, _ = path_of((8, 9, 10), 3, 8, None, "published", rng)
    assert [step.certificate for step in pursuit.history] == pytest.approx([1.0] * 8)
