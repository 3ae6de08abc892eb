"""Algorithms 1 and 2 as printed: steps, weights, stops; the atom of steepest descent against all bits."""

import warnings

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import KINDS, random_decomposition, with_gaps

from boolcp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.fit.atom_search import Candidate, greedy_atom_search, real_part, steepest_atom
from boolcp.fit.certify import atom_system, with_system
from boolcp.fit.fit import corrected
from boolcp.fit.spec import STOP_REASONS, Spec
from boolcp.fit.watch import PRESENT
from boolcp.program.maxcut import best_boolean
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.storage import make_storage
from boolcp.storage.dense import Dense

SHAPES = [(12, 14), (8, 9, 10), (5, 6, 4, 7)]
SCORES = ("normalized", "published")
RANKS = (1, 2, None)


def noisy(shape, rng, n_atoms=4):
    return make_boolean_cp(shape, n_atoms, noise=0.5, random_state=rng).X


def printed(X, n_atoms=6, rank="block", **given):
    """Return the fit of Algorithm 1 as printed, with atoms of a rank."""
    return BMP(n_atoms, atom_rank=rank, refine=False, random_state=0).fit(X, **given)


# Algorithm 1


@pytest.mark.parametrize("rank", [1, 2, "block"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_step_is_least_squares_and_the_history_is_true(shape, rank, rng):
    X = noisy(shape, rng)
    model = printed(X, rank=rank)
    assert model.n_iter_ == len(model.history_) == 6 and [W.n_atoms for W in model.path_] == list(range(7))
    losses = [np.sum((X - naive.tensor(W)) ** 2) / 2 for W in model.path_]
    assert (np.diff(losses) < 0).all()
    for W, loss, step in zip(model.path_[1:], losses[1:], model.history_, strict=True):
        residual = X - naive.tensor(W)
        assert max(abs(np.sum(residual * naive.atom(M))) for M in W.atoms) < 1e-8 * np.linalg.norm(X)
        np.testing.assert_allclose(W.weights, naive.least_squares(X, W.atoms), rtol=1e-6)
        np.testing.assert_allclose(W.data_inner, [np.sum(X * naive.atom(M)) for M in W.atoms], rtol=1e-8)
        assert step.loss == pytest.approx(loss, rel=1e-9)
        assert step.relative_error == pytest.approx(np.linalg.norm(residual) / np.linalg.norm(X))
        assert W.explained() == pytest.approx(1 - step.relative_error**2)
        newest = W.atoms[-1]
        assert (step.mode, step.n_ones, step.certificate) == (newest.mode, newest.n_ones, newest.certificate)
        assert newest.rank == (1 if len(shape) == 2 else None if rank == "block" else rank)
        assert 0 < newest.certificate <= 1
    last = model.path_[-1]
    for W in model.path_:  # atoms are never changed
        assert all(np.array_equal(a.z, b.z) for a, b in zip(W.atoms, last.atoms, strict=False))


def test_as_published_takes_the_bits_of_the_largest_score_and_their_block(rng):
    X = noisy((6, 7, 5), rng)
    model = BMP.as_published(3, random_state=0).fit(X)
    for before, record in zip(model.path_, model.history_, strict=False):
        R = X - naive.tensor(before)
        atom = model.decomposition_.atoms[before.n_atoms]
        assert np.sum(R * naive.atom(atom)) == pytest.approx(naive.best_score(R, None, is_ratio=False))
        (block,) = naive.contract(R, atom.mode, atom.z[:, None].astype(float))  # line 7: the gradient times z
        np.testing.assert_allclose(atom.dense_block(), block / np.linalg.norm(block), atol=1e-10)
        assert 0 < record.certificate <= 1


@pytest.mark.parametrize("given", ["mask", "weights"])
@pytest.mark.parametrize("rank", [1, "block"])
def test_missing_and_weighted_entries_have_their_own_least_squares(rank, given, rng):
    X = noisy((8, 9, 10), rng)
    counts = (rng.random(X.shape) < 0.7).astype(float) if given == "mask" else 0.2 + rng.random(X.shape)
    W = printed(X, 4, rank, **{given: counts}).decomposition_
    M = np.stack([np.sqrt(counts) * naive.atom(atom) for atom in W.atoms]).reshape(4, -1)
    expected = np.linalg.lstsq(M.T, (np.sqrt(counts) * X).ravel(), rcond=None)[0]
    np.testing.assert_allclose(W.weights, expected, rtol=1e-6)
    loss = np.sum(counts * (X - naive.tensor(W)) ** 2)
    assert W.explained() == pytest.approx(1 - loss / np.sum(counts * X**2))


def test_it_stops_when_nothing_is_left_or_nothing_helps(rng):
    exact = make_boolean_cp((8, 9, 10), 1, random_state=rng).X
    model = printed(exact, rank=1)
    assert model.n_iter_ == 1 and model.history_[0].relative_error < 1e-6 and model.converged_
    assert model.stop_reason_ == STOP_REASONS["explained"]
    for X in (noisy((3, 4), rng), noisy((2, 3, 3), rng), np.ones((2, 2)), rng.standard_normal((1, 1, 3))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model = printed(X, 100, 1)
        assert model.n_iter_ < 60 and model.history_[-1].relative_error < 1e-5
        assert model.stop_reason_ in [STOP_REASONS[name] for name in ("explained", "dependent", "no descent")]


def test_it_stops_at_an_atom_that_it_has_already(rng):
    X = noisy((8, 9, 10), rng)
    data, W = Dense(X), printed(X, 2).decomposition_
    again = Candidate(W.atoms[0], descent=1.0, value=1.0)
    assert corrected(data, W, again, 1e-6) == "dependent"
    assert corrected(data, W, None, 1e-6) == "no descent"


@pytest.mark.parametrize("exponent", [-20, 13])
@pytest.mark.parametrize("rank", [1, 2, "block"])
def test_scaling_by_a_power_of_two_scales_the_weights_exactly(rank, exponent, rng):
    X = noisy((8, 25, 10), rng)
    W, scaled = (printed(factor * X, 4, rank).decomposition_ for factor in (1.0, 2.0**exponent))
    rtol = 1e-12 if rank == 2 else 0  # LAPACK rounds several eigenvectors by their scale
    np.testing.assert_allclose(scaled.weights, 2.0**exponent * W.weights, rtol=rtol)
    for a, b in zip(W.atoms, scaled.atoms, strict=True):
        np.testing.assert_array_equal(a.z, b.z)
        np.testing.assert_allclose(a.dense_block(), b.dense_block(), rtol=rtol, atol=rtol)


# the normal equations


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("kind", KINDS)
def test_the_normal_equations_are_those_of_dense_atoms(kind, missing, rng):
    W = random_decomposition((4, 5, 6), kind, rng)
    X = with_gaps(rng.standard_normal(W.shape), missing)
    observed = ~np.isnan(X)
    data = make_storage(X, observed if missing else None)
    dense = np.array([(naive.atom(M) * observed).ravel() for M in W.atoms])
    G, b = atom_system(data, W.atoms)
    np.testing.assert_allclose(G, dense @ dense.T, atol=1e-12)
    np.testing.assert_allclose(b, dense @ np.where(observed, X, 0.0).ravel(), atol=1e-12)
    *others, last = W.atoms
    V = corrected(data, BooleanCP(W.shape, tuple(others), np.ones(len(others))), Candidate(last, 1e3, 1), 0)
    c = np.linalg.lstsq(dense.T, np.where(observed, X, 0.0).ravel(), rcond=None)[0]
    np.testing.assert_allclose(V.weights, c, rtol=1e-7)
    assert V.squared_error == pytest.approx(np.nansum((X - naive.tensor(BooleanCP(W.shape, W.atoms, c))) ** 2))


def test_a_dependent_atom_is_refused(rng):
    u, v, w = (A / np.linalg.norm(A) for A in (rng.standard_normal((d, 1)) for d in (5, 6, 6)))
    data = Dense(rng.standard_normal((4, 5, 6)))
    atoms = Atom(0, [1, 1, 0, 0], (u, v)), Atom(0, [0, 0, 1, 1], (u, v))
    W = BooleanCP(data.shape, atoms, np.ones(2))
    summed, new = (Candidate(Atom(0, [1, 1, 1, 1], real), 1e3, 1) for real in ((u, v), (u, w)))
    assert corrected(data, W, summed, 0) == "dependent" and corrected(data, W, new, 0).n_atoms == 3


def test_atoms_on_unobserved_entries_alone_are_dropped(rng):
    W = random_decomposition((4, 5, 6), "rank one", rng, 3)
    observed = np.ones(W.shape)
    observed[W.atoms[0].z] = 0.0
    found = with_system(W, make_storage(rng.standard_normal(W.shape), None, observed))
    assert W.atoms[0].mode == 0 and found.n_atoms == 2 and found.atoms == W.atoms[1:]


# Algorithm 2


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("rank", RANKS)
def test_an_atom_descends_and_is_near_the_best_of_all(rank, score, rng):
    is_ratio = score == "normalized"
    for X in (rng.standard_normal((6, 7, 5)), naive.tensor(random_decomposition((6, 7, 5), "rank one", rng))):
        W = random_decomposition(X.shape, "rank two", rng, n_atoms=2)
        R = X - naive.tensor(W)
        found = greedy_atom_search(Dense(X).residual(W), Spec(1, (0, 1, 2), rank, is_ratio), rng, certify=True)
        M = naive.atom(found.atom)
        assert found.descent == pytest.approx(np.sum(R * M)) and found.descent > 0
        size = np.linalg.norm(M) if is_ratio else 1.0
        best = naive.best_score(R, rank, is_ratio)
        share = 1 - 1e-9 if rank is None or (rank == 1 and is_ratio) else 0.6  # dense, or all bits of a short mode
        assert share * best <= found.descent / size <= best * (1 + 1e-9)
        assert found.value == pytest.approx((found.descent / size) ** 2)
        assert np.linalg.norm(found.atom.dense_block()) == pytest.approx(1)


@pytest.mark.parametrize("score", SCORES)
def test_the_certificate_is_no_more_than_the_true_share_of_the_best(score, rng):
    for _ in range(5):
        R = rng.standard_normal((6, 7, 5))
        for rank in RANKS:
            for mode in range(3):
                found = steepest_atom(Dense(R), mode, rng, atom_rank=rank, criterion=score)
                rows = naive.unfold(R, mode)
                best, _ = naive.best_boolean(rows @ rows.T, score == "normalized")
                assert 0 < found.atom.certificate <= found.value / best * (1 + 1e-9)
    assert np.isnan(steepest_atom(Dense(R), 0, rng, certify=False).atom.certificate)


@pytest.mark.parametrize("shape", [(25, 22), (25, 30, 22), (22, 6, 5, 24)])
def test_a_tensor_of_one_atom_is_recovered_exactly(shape, rng):
    for _ in range(20):
        mode = int(rng.integers(len(shape)))
        truth = make_boolean_cp(shape, 1, boolean_modes=[mode], random_state=rng).truth
        found = greedy_atom_search(Dense(truth.to_tensor()), Spec(1, tuple(range(len(shape)))), rng)
        assert found.atom.mode == mode
        np.testing.assert_array_equal(found.atom.z, truth.atoms[0].z)
        np.testing.assert_allclose(found.atom.dense_block(), truth.atoms[0].dense_block(), atol=1e-9)
        assert found.descent == pytest.approx(truth.weights[0] * truth.atoms[0].n_ones)


def test_only_the_allowed_modes_are_searched_and_nothing_is_found_in_nothing(rng):
    data = Dense(make_boolean_cp((5, 6, 7), [0, 3, 0], random_state=rng).X)
    for modes in ((0, 1, 2), (0, 2), (2,)):
        assert greedy_atom_search(data, Spec(1, tuple(modes)), rng).atom.mode in modes
    assert greedy_atom_search(data, Spec(1, (0, 1, 2)), rng).atom.mode == 1
    assert greedy_atom_search(Dense(np.zeros((3, 4, 5))), Spec(1, (0, 1, 2)), rng) is None
    assert real_part(np.zeros((3, 4)), 1, rng) is None


@given(
    st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=1, max_size=9).filter(any),
    st.sampled_from(SCORES),
)
def test_best_boolean_is_the_best_of_all_vectors(p, score):
    p = np.array(p)
    z, sign = best_boolean(p, score)
    optimum, _ = naive.best_boolean(np.outer(p, p), score == "normalized")
    total = p[z].sum()
    assert total**2 / (z.sum() if score == "normalized" else 1) == pytest.approx(optimum)
    assert sign == np.sign(total)


def test_the_real_part_of_a_block_of_low_rank_is_the_block(rng):
    for others, rank in [((6,), 1), ((5, 6), 2), ((4, 5, 3), 1), ((4, 5, 3), 2)]:
        B = naive.full([rng.standard_normal((d, rank)) for d in others])
        V = Atom(0, [1], real_part(7 * B, rank, rng)).dense_block()
        np.testing.assert_allclose(V, B / np.linalg.norm(B), atol=1e-3)
    np.testing.assert_allclose(real_part(3 * B, None, rng), B / np.linalg.norm(B))


def test_a_real_part_is_found_although_its_start_is_orthogonal_to_the_block(rng):
    """The leading eigenvectors of all unfoldings meet in an entry that is 0."""
    block = np.array([[[[1.7, 0.0], [0.0, 2.5]], [[0.0, 4.2], [4.2, 0.0]]]])
    columns = [column[:, 0] for column in real_part(block, 1, rng)]
    assert np.einsum("abcd,a,b,c,d", block, *columns) > 1.7 - 1e-9


@pytest.mark.parametrize("loss", ["squared", "huber", "poisson", "bernoulli"])
def test_more_atoms_than_entries_ask_for_are_refused_and_many_end(loss, rng):
    with pytest.raises(ValueError, match="n_atoms is 150, but 137 atoms have as many free numbers as X has entries"):
        BMP(150, loss=loss).fit(rng.integers(0, 2, (12, 40, 20)))
    PRESENT.n_beats = 0
    BMP(25, loss=loss, random_state=0, n_init=3).fit(rng.integers(0, 2, (6, 8, 7)))
    assert PRESENT.n_beats < 800, "sweeps"
    W = BMP(50, random_state=0).fit(rng.standard_normal((3, 4, 5))).decomposition_  # few end soon
    assert W.n_atoms <= 20 and W.explained() > 0.999
