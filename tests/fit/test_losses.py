"""Losses that are not the sum of squares, and nonnegative real parts."""

from functools import partial

import naive
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import boolcp
from boolcp import BMP, decompose
from boolcp.datasets import make_boolean_cp
from boolcp.fit import _loss_kernels as kernels
from boolcp.fit import loss_search, loss_sweeps, losses
from boolcp.fit._loss_kernels import decide_nonnegative
from boolcp.fit.order import in_order
from boolcp.metrics import hamming_error, rmse
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.columns import to_columns
from boolcp.storage import make_storage

LOSSES = ("squared", "huber", "poisson", "bernoulli")
SHAPE = (14, 12, 13)


def positive(rate=1.0, seed=0, shape=SHAPE, n_atoms=2, largest=None, is_uneven=False):
    """Return a decomposition with nonnegative parts, of a given mean or largest entry, and a generator."""
    rng, atoms = np.random.default_rng(seed), []
    for mode in range(n_atoms):
        z = np.arange(shape[mode]) % 2 == 0
        draw = partial(rng.gamma, 2.0) if is_uneven else lambda size: 0.2 + rng.random(size)
        parts = [draw(size=(d, 1)) for n, d in enumerate(shape) if n != mode]
        atoms.append(Atom(mode, rng.permutation(z), tuple(A / np.linalg.norm(A) for A in parts)))
    W = BooleanCP(shape, tuple(atoms), np.ones(n_atoms))
    size = W.to_tensor().mean() / rate if largest is None else W.to_tensor().max() / largest
    return BooleanCP(shape, tuple(atoms), W.weights / size), rng


def make_data(loss, seed=0):
    """Return data for a loss and the decomposition they were made from."""
    truth, rng = positive(1.0, seed, largest=0.9 if loss == "bernoulli" else None)
    mean = truth.to_tensor()
    if loss == "poisson":
        return rng.poisson(mean).astype(float), truth
    if loss == "bernoulli":
        return (rng.random(SHAPE) < mean).astype(float), truth
    X = mean + 0.2 * rng.standard_normal(SHAPE)
    return np.where(rng.random(SHAPE) < 0.03, X + 30 * rng.standard_normal(SHAPE), X) if loss == "huber" else X, truth


def make_problem(loss, seed=0, mask=None, weights=None):
    X, truth = make_data(loss, seed)
    scale = losses.make_loss(loss, X.ravel(), truth.to_tensor().ravel())
    signs = () if loss == "huber" else (0, 1, 2)
    return losses.Problem(make_storage(X, mask, weights), scale, signs), truth


@pytest.mark.parametrize("n_bits", [0, 1, 3, 6])
def test_rows_are_those_of_nnls_with_all_bits_tried(n_bits, rng):
    K, d = 6, 12
    B = rng.standard_normal((d, 9, K))
    H, P = np.einsum("ijk,ijl->ikl", B, B), 3 * rng.standard_normal((d, K))
    boolean = np.arange(K) < n_bits
    for nonnegative in (np.ones(K, dtype=bool), np.arange(K) % 2 == 0):
        A = (rng.random((d, K)) < 0.5).astype(float)
        decide_nonnegative(H, P, boolean, nonnegative, A)
        for i in range(d):
            expected = naive.nonnegative_row(H[i], P[i], boolean, nonnegative)
            if n_bits <= 4:
                np.testing.assert_allclose(A[i], expected, atol=1e-5 if not nonnegative.all() else 1e-9)
            value, best = (a @ H[i] @ a / 2 - P[i] @ a for a in (A[i], expected))
            assert best - 1e-7 <= value <= best + 0.5 * abs(best)  # many bits: flips from the current ones
            assert (A[i][nonnegative] >= 0).all() and set(A[i][boolean]) <= {0.0, 1.0}


def test_rows_that_entries_do_not_determine_stay_finite(rng):
    B = rng.standard_normal((4, 1, 3))
    H, P = np.einsum("ijk,ijl->ikl", B, B), rng.standard_normal((4, 3))
    H[0], P[0] = 0, 0
    A = np.ones((4, 3))
    decide_nonnegative(H, P, np.zeros(3, dtype=bool), np.ones(3, dtype=bool), A)
    assert np.isfinite(A).all() and (A >= 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_are_those_of_finite_differences(name):
    x = np.array([0.0, 0.0, 1.0, 1.0, 0.3, 1.0, 0.0])
    m = np.array([0.2, 1e-4, 0.4, 1e-5, 0.7, 1.2, 1.1])
    loss, step = losses.Loss(name, 0.25 if name == "huber" else 1e-3), 1e-7
    slope = (loss.terms(x, m + step)[0] - loss.terms(x, m - step)[0]) / (2 * step)
    np.testing.assert_allclose(loss.terms(x, m)[1], slope, rtol=1e-3, atol=1e-5)
    assert (loss.deviance(x[:5], m[:5]) >= 0).all()
    np.testing.assert_allclose(loss.deviance(x, x), 0, atol=1e-12)


@pytest.mark.parametrize("kind", ["complete", "missing", "weighted"])
@pytest.mark.parametrize("name", LOSSES[1:])
def test_rows_of_the_kernel_have_the_loss_and_its_gradient(name, kind, rng):
    weights = rng.random(SHAPE) + 0.1 if kind == "weighted" else None
    problem, truth = make_problem(name, mask=None if kind == "complete" else rng.random(SHAPE) < 0.8, weights=weights)
    factors = [np.array(A) + 0.05 * rng.random(A.shape) for A in to_columns(truth).matrices]
    factors[1][:2], factors[1][2] = 0, 3 * factors[1][2]  # means below the floor of logarithms, and above one
    start = loss_sweeps.Step(problem, factors, 1)
    G, H = quadratics(start)
    indices, (values, counts) = problem.indices, problem.entries

    def value(A):
        m = np.prod([B[indices[:, n]] for n, B in enumerate([factors[0], A, factors[2]])], axis=0).sum(axis=1)
        return float(counts @ problem.loss.terms(values, m)[0])

    assert start.losses().sum() == pytest.approx(value(factors[1]))
    direction = rng.standard_normal(factors[1].shape)
    slope = (value(factors[1] + 1e-6 * direction) - value(factors[1] - 1e-6 * direction)) / 2e-6
    assert np.sum(G * direction) == pytest.approx(slope, rel=1e-3)
    assert (np.linalg.eigvalsh(H) > -1e-8 * np.abs(H).max()).all()
    bits = (factors[1] > np.median(factors[1])).astype(float)
    rises = loss_sweeps.Step(problem, [factors[0], bits, factors[2]], 1).rises(np.array([0, 1]))
    flipped = bits.copy()
    flipped[3, 1] = 1 - flipped[3, 1]
    assert rises[3, 1] == pytest.approx(value(flipped) - value(bits))


def quadratics(step):
    """Return gradient (d, K) and curvature (d, K, K) of the loss of the rows of a step."""
    (d, K), n = step.A.shape, len(step.how[2])
    G, H, m = np.empty((d, K)), np.empty((d, K, K)), np.empty(n)
    for i in range(d):
        kernels.row_means(step.how, i, step.A[i], m)
        kernels.row_quadratic(step.how, i, m, np.empty((3, n)), G[i], H[i])
    return G + step.linear, H


@pytest.mark.parametrize("kind", ["complete", "missing", "weighted"])
@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_never_rises_and_the_end_is_a_minimum(name, kind, rng):
    mask = rng.random(SHAPE) < 0.7 if kind == "missing" else None
    weights = 0.5 + rng.random(SHAPE) if kind == "weighted" else None
    problem, truth = make_problem(name, mask=mask, weights=weights)
    factors = [0.3 + rng.random((d, 2)) for d in SHAPE]
    factors[0][:, 0], factors[1][:, 1] = rng.random(14) < 0.5, rng.random(12) < 0.5
    W, before = to_columns(truth).with_matrices(factors), np.inf
    for _ in range(60):
        W, _ = loss_sweeps.sweep(problem, W)
        assert W.loss <= before + 1e-9 * abs(before if np.isfinite(before) else 1.0)
        before = W.loss
    if not W.is_dead().any():
        assert W.loss == pytest.approx(problem.value(W), rel=1e-9)
    for mode in range(3):  # the conditions of Karush, Kuhn and Tucker for each real column
        G, A = gradient_of_rows(problem, W, mode), W.matrices[mode]
        real = W.column_mode != mode
        size = np.sqrt(np.sum(np.abs(W.matrices[mode][:, real]) ** 2)) + 1
        if problem.nonnegative:
            assert (A[:, real] >= 0).all() and (G[:, real][A[:, real] == 0] >= -1e-2 * size).all()
        assert np.abs((G * A)[:, real]).max() < 2e-2 * abs(W.loss) / np.sqrt(len(A))
    assert all(set(np.unique(W.matrices[n][:, W.column_mode == n])) <= {0.0, 1.0} for n in range(3))


@pytest.mark.parametrize("name", LOSSES)
def test_a_longer_step_is_taken_only_if_the_loss_falls(name, rng):
    problem, truth = make_problem(name)
    factors = [0.3 + rng.random((d, 2)) for d in SHAPE]
    last = to_columns(truth).with_matrices(factors)
    last, _ = loss_sweeps.sweep(problem, last, is_relaxed=True)
    W, _ = loss_sweeps.sweep(problem, last, is_relaxed=True)
    for step in (0.5, 1e3):
        longer, after = loss_sweeps.lengthened(problem, last, W, step)
        assert longer.loss <= W.loss and longer.loss == pytest.approx(problem.value(longer))
        assert after == (2 * step if longer is not W else 1.0)
    assert longer is W


def test_bits_in_doubt_are_flipped_alone_and_with_the_next():
    problem, truth = make_problem("poisson", 3)
    W = loss_sweeps.improve(problem, loss_search.columns_of(problem, truth))
    found = list(loss_search.flips(problem, W, (0, 1, 2)))
    n_changed = [sum(np.sum(V.matrices[n][:, n] != W.matrices[n][:, n]) for n in range(2)) for V in found]
    assert n_changed == [1, 2] * loss_search.N_DOUBTED


def gradient_of_rows(problem, W, mode):
    if problem.loss.name == "squared":
        H, P = problem.data.normal_equations(W.matrices, mode)
        return W.matrices[mode] @ H - P if H.ndim == 2 else np.einsum("ik,ikl->il", W.matrices[mode], H) - P
    return quadratics(loss_sweeps.Step(problem, W.matrices, mode))[0]


@pytest.mark.parametrize("name", LOSSES)
def test_bits_are_found_under_every_loss(name):
    X, truth = make_data(name, 1)
    W = decompose(X, 2, loss=name, nonnegative=name == "squared", random_state=0)
    assert hamming_error(W, truth) == 0 and rmse(W, truth.to_tensor()) < 0.3
    if name != "huber":
        assert all((A >= 0).all() for A in W.factors)
    if name != "squared":
        assert f"of the {name.capitalize()} deviance explained" in W.summary()
        assert 0 < W.explained() < 1 and (W.explained_unique() > 0).all()


@pytest.mark.parametrize("seed", [8, 20, 26])  # of seeds 0 to 29, 10 and 13 fail
def test_few_counts_have_the_loss_of_a_start_at_the_truth(seed):
    truth, rng = positive(0.15, seed, (18, 17, 16), 3, is_uneven=True)
    X = rng.poisson(truth.to_tensor()).astype(float)
    problem = losses.Problem(make_storage(X), losses.make_loss("poisson", X.ravel()), (0, 1, 2))
    known = loss_sweeps.improve(problem, loss_search.columns_of(problem, truth), 100)
    assert problem.value(decompose(X, 3, loss="poisson", random_state=0)) <= known.loss + 0.1


@pytest.mark.parametrize("name", LOSSES[1:])
def test_a_flipped_bit_is_judged_with_its_slice_fitted_again(name):
    problem, truth = make_problem(name, 3)
    W = loss_sweeps.improve(problem, loss_search.columns_of(problem, truth))
    rows, rise = loss_sweeps.flipped_rows(problem, W, 0)
    factors, i = list(W.matrices), int(np.argmin(rise))

    def loss_with(real):
        factors[0] = W.matrices[0].copy()
        factors[0][i] = 1 - W.matrices[0][i, 0], real
        return problem.value(W.with_matrices(factors))

    best = minimize_scalar(loss_with, bounds=(0, 2 * W.matrices[0][:, 1].max()), method="bounded")
    assert rise[i] == pytest.approx(best.fun - problem.value(W), abs=0.02 * (1 + abs(rise[i])))
    assert loss_with(rows[i, 1]) - problem.value(W) == pytest.approx(rise[i], abs=1e-8 * abs(W.loss))


def test_confidence_knows_how_few_the_counts_are():
    wrong, said = 0, 0.0
    for seed in range(4):
        truth, rng = positive(0.12, seed, (18, 17, 16), 3, is_uneven=True)
        W = decompose(rng.poisson(truth.to_tensor()).astype(float), 3, loss="poisson", random_state=0)
        wrong += hamming_error(W, truth) * (18 + 17 + 16)
        said += sum(float(np.sum(1 - p)) for p in W.bit_confidence())
    assert wrong / 3 < said < 3 * wrong + 10


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_one_count_where_no_atom_is_on_does_not_draw_the_next_atom(seed, rng):
    truth, _ = positive(0.3, seed, (18, 17, 16), 3, is_uneven=True)
    X = truth.to_tensor()
    X[np.unravel_index(np.argmin(X), X.shape)] += 1
    problem = losses.Problem(make_storage(X), losses.make_loss("poisson", X.ravel()), (0, 1, 2))
    found = loss_search.add_atom(problem, truth[:2], (0, 1, 2), rng)
    before, after, best = (problem.value(W) for W in (truth[:2], found, truth))
    assert before - after > 0.9 * (before - best)


def test_a_long_fit_has_few_starts_and_no_moves(monkeypatch):
    truth, rng = positive(0.1, 1, (18, 17, 16), 3, is_uneven=True)
    X = rng.poisson(truth.to_tensor()).astype(float)
    for limit, is_moved in ((loss_search.LONG, True), (1, False)):
        monkeypatch.setattr(loss_search, "LONG", limit)
        stages = []
        BMP(3, loss="poisson", random_state=0).fit(X, callback=lambda p, told=stages: told.append(p.stage) and False)
        assert ("last" in stages) == is_moved
        assert is_moved or stages.count("loss") <= loss_search.MIN_DOUBTED


@pytest.mark.parametrize(("n_init", "n_starts"), [(None, loss_search.N_ROBUST), (4, 4)])
def test_plentiful_entries_take_few_starts_of_hubers_loss(n_init, n_starts, rng):
    X, stages = rng.standard_normal((30, 30, 30)), []  # noise, on which no two starts agree
    BMP(2, loss="huber", n_init=n_init, random_state=0).fit(X, callback=lambda p: stages.append(p.stage) and False)
    assert stages.count("loss") == n_starts


def test_a_start_that_falls_behind_is_given_up(monkeypatch):
    X, truth = make_data("huber", 2)
    problem = losses.Problem(make_storage(X), losses.make_loss("huber", X.ravel()), ())
    start, n_done, once = loss_search.columns_of(problem, truth), [], loss_sweeps.sweep
    monkeypatch.setattr(loss_sweeps, "sweep", lambda *args, **options: n_done.append(1) or once(*args, **options))
    end = loss_sweeps.improve(problem, start)
    n_all = len(n_done)
    assert loss_sweeps.improve(problem, start, aim=end.loss).loss == end.loss  # on its way there
    n_done.clear()
    behind = loss_sweeps.improve(problem, start, aim=0.0)
    assert len(n_done) < n_all and end.loss <= behind.loss <= problem.value(start)


def test_artifacts_mislead_squares_and_not_huber():
    X, truth = make_data("huber", 2)
    plain, robust = (decompose(X, 2, atom_rank=1, loss=name, random_state=0) for name in ("squared", "huber"))
    assert rmse(robust, truth.to_tensor()) < 0.1 < rmse(plain, truth.to_tensor())
    assert hamming_error(robust, truth) == 0


def test_only_the_modes_that_are_listed_are_nonnegative(rng):
    X = make_boolean_cp(SHAPE, 2, noise=0.5, boolean_modes=[0], random_state=4).X
    W = decompose(X, 2, boolean_modes=[0], nonnegative=[1], random_state=0)
    assert (W.factors[1] >= 0).all() and (W.factors[2] < 0).any()
    for seed in range(4):  # whichever mode is listed, the other takes the signs
        Y = make_boolean_cp(SHAPE, 2, noise=0.1, boolean_modes=[0], random_state=seed).X
        Y = Y * np.array([1, 1, -1])[np.arange(12) % 3][:, None]
        last = decompose(Y, 2, boolean_modes=[0], nonnegative=[2], random_state=0)
        assert (last.factors[2] >= 0).all() and (last.factors[1] < 0).any()
        assert all((V.factors[2] >= 0).all() for V in BMP(2, boolean_modes=[0], nonnegative=[2]).fit_path(Y)[1:])
    signs = BMP(2, boolean_modes=[0], nonnegative=[1], random_state=0).fit(X)
    assert (signs.transform(X, mode=1) >= 0).all() and (signs.transform(X, mode=2) < 0).any()


def test_nonnegative_atoms_of_rank_two_and_with_missing_entries():
    X, truth = make_data("squared", 3)
    W = decompose(X, 1, atom_rank=2, boolean_modes=[2], nonnegative=True, random_state=0)
    assert W.atoms[0].rank == 2 and all((A >= 0).all() for A in W.atoms[0].factors)
    mask = np.random.default_rng(0).random(SHAPE) < 0.6
    missing = decompose(X, 2, mask=mask, nonnegative=True, random_state=0)
    assert hamming_error(missing, truth) == 0 and all((A >= 0).all() for A in missing.factors)


def test_the_unit_of_the_data_does_not_matter():
    X, _ = make_data("squared", 2)
    X = X + 3 * np.random.default_rng(0).standard_normal(SHAPE)  # so that starts disagree
    small, large = (BMP(2, nonnegative=True, random_state=0).fit(unit * X).decomposition_ for unit in (1.0, 2.0**30))
    np.testing.assert_allclose(large.to_tensor() / 2.0**30, small.to_tensor(), atol=1e-9)
    assert large.trust.n_agree == small.trust.n_agree
    problem = losses.Problem(make_storage(4 * X), losses.Loss(), ()).under("squared", BooleanCP(SHAPE))
    assert problem.variance == pytest.approx(np.mean((4 * X) ** 2))


def test_new_slices_have_the_factor_of_nnls():
    X, _ = make_data("squared", 5)
    model = BMP(2, nonnegative=True, random_state=0).fit(X)
    found = model.transform(X, mode=2)
    blocks = boolcp.fit.transform.design(model.decomposition_, 2)[0].reshape(2, -1)
    for i in range(3):
        expected = naive.nonnegative_row(
            blocks @ blocks.T, blocks @ X[:, :, i].ravel(), *np.array([[0, 0], [1, 1]]) > 0
        )
        np.testing.assert_allclose(found[i], expected, atol=1e-10)


@pytest.mark.parametrize("name", LOSSES[1:])
def test_new_slices_are_solved_under_the_loss(name):
    X, _ = make_data(name, 5)
    model = BMP(2, loss=name, random_state=0).fit(X)
    for mode in (0, 2):
        again = model.inverse_transform(model.transform(X, mode=mode), mode=mode)
        assert rmse(again, model.decomposition_.to_tensor()) < 0.02
    assert model.score(X) == pytest.approx(model.decomposition_.explained(), abs=2e-3)


def test_lists_of_entries_and_masks_have_the_same_fit():
    X, _ = make_data("poisson", 6)
    mask = np.random.default_rng(1).random(SHAPE) < 0.95
    masked = decompose(X, 2, mask=mask, loss="poisson", random_state=0)
    listed = decompose((np.argwhere(mask), X[mask], X.shape), 2, loss="poisson", random_state=0)
    np.testing.assert_allclose(listed.to_tensor(), masked.to_tensor(), atol=1e-8)
    doubled = decompose(X, 2, weights={0: 2.0 * np.ones(14)}, loss="poisson", random_state=0)
    np.testing.assert_allclose(doubled.to_tensor(), decompose(X, 2, loss="poisson", random_state=0).to_tensor())


def test_selection_judges_by_the_deviance():
    X, _ = make_data("poisson", 7)
    for scheme in ("entries", "slabs"):
        found = boolcp.select_n_atoms(X, 3, splits=2, loss="poisson", scheme=scheme, random_state=0)
        assert found.n_atoms == 2 and found.measure == "deviance" and "deviance" in found.summary()


@pytest.mark.parametrize("name", ["poisson", "bernoulli"])
def test_atoms_are_assessed_under_their_loss(name):
    X, _ = make_data(name, 7)
    W = decompose(X, 2, loss=name, random_state=0)
    tests = ["stability", "significance"] if name == "poisson" else ["stability"]
    found = boolcp.assess(X, W, tests=tests, n_runs=1, n_init=2, random_state=0).trust
    assert (found.stability >= 0.5).all() and found.sigma == 1
    for rise, fitted in zip(found.rise, W.trust.rise, strict=True):
        np.testing.assert_allclose(rise, fitted, rtol=1e-3)  # slices are fitted in another order of the modes
    with pytest.raises(ValueError, match=f'no certificates under loss="{name}"'):
        W.certify(X)
    if name == "poisson":
        assert (found.p_adjusted < 0.01).all() and "Poisson" in found.tested_by
    else:
        with pytest.raises(ValueError, match=r'noise="normal" does not describe data .* leave it out'):
            boolcp.assess(X, W, random_state=0)


def test_a_fit_under_a_loss_is_resumed_saved_and_loaded(tmp_path):
    pytest.importorskip("xarray")
    X, _ = make_data("poisson", 8)
    whole = decompose(X, 2, loss="poisson", random_state=0)
    path = tmp_path / "fit.npz"
    BMP(2, loss="poisson", random_state=0).fit(X, checkpoint=path, callback=lambda p: p.stage == "squares")
    resumed = BMP.resume(path, X).decomposition_
    np.testing.assert_array_equal(resumed.to_tensor(), whole.to_tensor())
    whole.save(tmp_path / "result.nc")
    again = boolcp.load(tmp_path / "result.nc")
    assert again.explained() == whole.explained() and again.summary() == whole.summary()
    np.testing.assert_allclose(again.explained_unique(), whole.explained_unique())
    assert whole[[1, 0]].explained() == whole.explained() and whole[[0]].deviance is None


def test_the_report_speaks_of_the_deviance(tmp_path):
    from boolcp.report import write_report

    X, _ = make_data("poisson", 8)
    W = decompose(X, 2, loss="poisson", random_state=0)
    write_report(W, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "of the Poisson deviance of" in text and "Poisson deviance explained" in text
    assert "Deviance that is lost without each atom" in text and "nan %" not in text
    assert "Variance explained" not in text and "of the variance" not in text


@pytest.mark.parametrize("name", LOSSES)
def test_a_warm_start_begins_with_the_atoms_it_has(name, monkeypatch):
    X, truth = make_data(name, 1)
    model = BMP(1, loss=name, nonnegative=name != "huber", atom_rank=1, warm_start=True, random_state=0).fit(X)
    given, extended = [], loss_search.extended
    monkeypatch.setattr(loss_search, "extended", lambda *args: given.append(args[:2]) or extended(*args))
    longer = model.set_params(n_atoms=2).fit(X).decomposition_
    problem, first = given[0]
    assert first.n_atoms == 1 and longer.n_atoms == 2 and len(model.path_) == 3
    (moved,) = in_order(X, None, None)[0].decompositions([longer])
    assert problem.value(moved) <= problem.value(extended(problem, first, 2, (0, 1, 2), np.random.default_rng(0)))
    assert hamming_error(longer, truth) == 0


def test_data_that_stay_out_of_memory_are_loaded():
    da = pytest.importorskip("dask.array")
    X, _ = make_data("poisson", 9)
    lazy = decompose(da.from_array(X), 2, loss="poisson", random_state=0)
    np.testing.assert_array_equal(lazy.to_tensor(), decompose(X, 2, loss="poisson", random_state=0).to_tensor())


BAD = {
    "negative": ({"loss": "poisson"}, {(1, 2, 3): -2.0}, r"needs entries 0 or larger, but X is -2 at \(1, 2, 3\)"),
    "outside": ({"loss": "bernoulli"}, {(0, 1, 0): 1.5}, r"needs entries from 0 to 1, but X is 1.5 at \(0, 1, 0\)"),
    "name": ({"loss": "cauchy"}, {}, "loss must be one of"),
    "rank": ({"loss": "huber", "atom_rank": 2}, {}, "needs atoms of rank one"),
    "block": ({"nonnegative": [0], "atom_rank": None}, {}, "along all modes or none"),
    "block of counts": ({"loss": "poisson", "atom_rank": None}, {}, "needs atoms of rank one"),
    "published": ({"nonnegative": True, "refine": False}, {}, "need refine=True"),
    "background": ({"nonnegative": True, "background": 2}, {}, "background cannot be combined"),
    "mode": ({"nonnegative": [3]}, {}, "nonnegative holds 3"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_a_loss_cannot_take_is_named(case, rng):
    options, entries, words = BAD[case]
    X = rng.random((4, 5, 6))
    for place, value in entries.items():
        X[place] = value
    with pytest.raises(ValueError, match=words):
        BMP(1, **options).fit(X)
    if entries:  # missing entries are never read
        X[next(iter(entries))] = np.nan
        assert BMP(1, **options, random_state=0).fit(X).decomposition_.n_atoms == 1
        mask = ~np.isnan(X)
        X[~mask] = -1.0
        BMP(1, **options, random_state=0).fit(X, mask=mask)


def test_many_counts_for_each_parameter_leave_few_traps(rng):
    """Counts and bits are as many as those above zero, other data as many as their entries."""

    def plenty(X, name):
        return loss_search.has_plenty(losses.Problem(make_storage(X), losses.make_loss(name, X.ravel()), ()), 2)

    X = rng.poisson(0.5, (30, 30, 30)).astype(float)
    few = np.where(rng.random(X.shape) < 0.15, X, 0.0)
    assert plenty(X, "poisson") and not plenty(few, "poisson")
    assert plenty(np.minimum(X, 1), "bernoulli") and not plenty(np.minimum(few, 1), "bernoulli")
    assert plenty(few, "huber") and not plenty(X[:5], "huber")
