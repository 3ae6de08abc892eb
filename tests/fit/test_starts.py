import itertools
from dataclasses import replace

import naive
import numpy as np
import pytest

from boolcp.bmp import BMP
from boolcp.contractions import gram_product, khatri_rao
from boolcp.datasets import load_syn, make_boolean_cp
from boolcp.fit.atom_search import greedy_atom_search
from boolcp.fit.finish import not_worse, with_data, with_system
from boolcp.fit.polish import best_bits, decide_rows, polish, sweep
from boolcp.fit.pursuit import atom_system, boolean_matching_pursuit
from boolcp.fit.relax import (
    Sweeps,
    begin,
    cp_als,
    last,
    pencil_start,
    pseudo_inverse,
    random_factors,
    relax_sweeps,
    solve_each_row,
    solve_rows,
)
from boolcp.fit.starts import (
    ObservedSearch,
    Search,
    exchange,
    is_behind,
    redraw,
    relax,
    repair,
    revive,
    round_columns,
    search,
    search_observed,
    small_fall,
    sweeps_of,
)
from boolcp.metrics import hamming_error, rmse
from boolcp.result.columns import Columns, to_columns
from boolcp.storage import DenseTensor, MaskedTensor, compress


def loss_of(X, matrices):
    return np.sum((X - (matrices[0] @ khatri_rao(matrices[1:]).T).reshape(X.shape)) ** 2)


def oracle(X, truth):
    """Least squares with the true bits known: polish from the truth."""
    return polish(DenseTensor(X), to_columns(truth))


def plain(factors, boolean_mode=None):
    """Return factors as the columns of atoms of rank one."""
    K = factors[0].shape[1]
    return Columns(tuple(factors), np.arange(K), np.zeros(K) if boolean_mode is None else boolean_mode)


def linked(shape, ranks, modes, rng):
    """Return random atoms of given ranks and Boolean modes as columns."""
    owner = np.repeat(np.arange(len(ranks)), ranks)
    factors = [rng.standard_normal((d, len(owner))) for d in shape]
    for k, mode in enumerate(modes):
        factors[mode][:, owner == k] = (rng.random(shape[mode]) < 0.5)[:, None]
        factors[mode][0, owner == k] = 1
    return Columns(tuple(factors), owner, np.array(modes))


def finder(data, rng, **options):
    """Return the search for the atom of steepest descent from an estimate."""
    return lambda W: greedy_atom_search(data.residual(W), range(data.ndim), rng, certify=False, **options)


@pytest.mark.parametrize("shape", [(9, 10, 11), (5, 6, 7, 4)])
def test_als_lowers_the_loss_and_reports_it(shape, rng):
    X = rng.standard_normal(shape)
    start = random_factors(shape, 3, rng)
    losses = [cp_als(DenseTensor(X), start, max_iter=n, tol=0)[1] for n in (1, 2, 5, 20)]
    assert (np.diff(losses) <= 1e-9).all()
    factors, loss = cp_als(DenseTensor(X), start, max_iter=20, tol=0)
    assert loss == pytest.approx(loss_of(X, factors))


def test_als_is_stationary(rng):
    X = make_boolean_cp((10, 11, 12), 3, noise=0.5, random_state=rng).X
    factors, _ = cp_als(DenseTensor(X), random_factors(X.shape, 3, rng), max_iter=2000, tol=0)
    residual = X - (factors[0] @ khatri_rao(factors[1:]).T).reshape(X.shape)
    for mode in range(3):
        gradient = naive.mttkrp(residual, factors, mode)
        assert np.abs(gradient).max() < 1e-4 * np.linalg.norm(X)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_pencil_start_is_exact_without_noise(order, rng):
    truth = [rng.standard_normal((d, 5)) for d in (6, 8, 7)]
    truth = [truth[n] for n in order]
    X = (truth[0] @ khatri_rao(truth[1:]).T).reshape([len(A) for A in truth])
    factors = pencil_start(DenseTensor(X), 5, rng)
    assert loss_of(X, factors) < 1e-12 * np.sum(X**2)


def test_solve_rows_with_singular_and_with_own_matrices(rng):
    B = rng.standard_normal((4, 3))
    H, P = B @ B.T, rng.standard_normal((6, 3)) @ B.T
    np.testing.assert_allclose(solve_rows(H, P) @ H, P, atol=1e-9)
    each = np.stack([B_i @ B_i.T for B_i in rng.standard_normal((6, 4, 5))])
    A = solve_rows(each, P)
    np.testing.assert_allclose(np.einsum("ikl,il->ik", each, A), P, atol=1e-8)
    each[2] = 0
    P[2] = 0
    np.testing.assert_array_equal(solve_rows(each, P)[2], 0)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("boolean", [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]])
def test_rows_are_the_best_over_all_bits(boolean, own, rng):
    boolean = np.array(boolean, dtype=bool)
    M = rng.standard_normal((7, 6, 4)) if own else rng.standard_normal((1, 6, 4))
    H = np.einsum("ijk,ijl->ikl", M, M)
    P = rng.standard_normal((7, 4)) + 2
    A = decide_rows(H if own else H[0], P, boolean, np.zeros((7, 4)))
    assert set(np.unique(A[:, boolean])) <= {0.0, 1.0}
    for i, (a, p) in enumerate(zip(A, P, strict=True)):
        H_i = H[i if own else 0]
        costs = []
        for bits in itertools.product((0.0, 1.0), repeat=int(boolean.sum())):
            row = np.zeros(4)
            row[boolean] = bits
            free = ~boolean
            if free.any():
                row[free] = np.linalg.solve(
                    H_i[np.ix_(free, free)], p[free] - H_i[np.ix_(free, boolean)] @ row[boolean]
                )
            costs.append(row @ H_i @ row - 2 * p @ row)
        assert a @ H_i @ a - 2 * p @ a == pytest.approx(min(costs))


def test_many_bits_cannot_be_improved_by_one_or_two_flips(rng):
    M = rng.standard_normal((20, 14))
    S, Q = M.T @ M, 5 * rng.standard_normal((9, 14))
    bits = best_bits(S, Q, np.zeros((9, 14)))
    cost = lambda b, q: b @ S @ b - 2 * q @ b  # noqa: E731
    for b, q in zip(bits, Q, strict=True):
        for k, l in itertools.product(range(14), repeat=2):
            flipped = b.copy()
            flipped[k] = 1 - flipped[k]
            if l != k:
                flipped[l] = 1 - flipped[l]
            assert cost(flipped, q) >= cost(b, q) - 1e-9


def test_polish_never_raises_the_loss_and_the_truth_is_a_fixed_point(rng):
    X, clean, truth = make_boolean_cp((12, 13, 14), 5, noise=1.0, random_state=rng)
    data = DenseTensor(X)
    start = round_columns(plain(random_factors(X.shape, 5, rng)), (0, 1, 2))
    losses = [polish(data, start, max_iter=n).loss for n in (1, 2, 3, 5, 10)]
    assert losses[0] <= loss_of(X, start.matrices) and (np.diff(losses) <= 1e-9).all()
    final = polish(DenseTensor(clean), to_columns(truth))
    assert final.loss < 1e-12 * np.sum(clean**2)
    assert hamming_error(final.to_decomposition(), truth) == 0
    assert polish(data, start).loss == pytest.approx(loss_of(X, polish(data, start).matrices))


@pytest.mark.parametrize("shape", [(6, 7, 8), (8, 7, 8), (5, 9, 6), (4, 6, 5, 3), (5, 9)])
@pytest.mark.parametrize("kind", ["dense", "compressed"])
def test_a_sweep_decides_one_factor_after_another_from_the_longest_mode_on(shape, kind, rng):
    X = make_boolean_cp(shape, 3, noise=0.3, random_state=rng).X
    data = DenseTensor(X) if kind == "dense" else compress(DenseTensor(X), 3)
    if kind == "compressed":
        X = data.contract(0, np.eye(shape[0]))
    start = round_columns(plain(random_factors(shape, 3, rng)), range(len(shape)))
    W, _ = sweep(data, start)
    found, loss, boolean_mode = W.matrices, W.loss, start.boolean_mode
    longest = shape.index(max(shape))
    expected = [A.copy() for A in start.matrices]
    for mode in [longest, *(n for n in range(len(shape)) if n != longest)]:
        H, P = gram_product(expected, mode), naive.mttkrp(X, expected, mode)
        expected[mode] = decide_rows(H, P, boolean_mode == mode, expected[mode])
    product = (khatri_rao(found[1:]), khatri_rao(expected[1:]))
    for k in range(3):  # sizes may stand elsewhere
        outer = [np.outer(A[0][:, k], B[:, k]) for A, B in zip((found, expected), product, strict=True)]
        np.testing.assert_allclose(outer[0], outer[1], atol=1e-9 * np.linalg.norm(X))
    assert loss - data.squared_norm == pytest.approx(loss_of(X, expected) - np.sum(X**2))


def test_a_sweep_reads_complete_data_twice_at_most(rng):
    X, _, truth = make_boolean_cp((8, 9, 10), 3, noise=0.3, random_state=rng)
    data, asked = DenseTensor(X), []
    for name in ("mttkrp", "contract"):
        question = getattr(data, name)
        setattr(data, name, lambda *args, name=name, question=question: asked.append(name) or question(*args))
    sweep(data, to_columns(truth))
    assert asked == ["mttkrp", "contract"]


def test_rounding_keeps_what_is_boolean(rng):
    truth = make_boolean_cp((15, 16, 17), 6, random_state=rng).truth
    factors = [A * rng.uniform(0.5, 2, 6) * np.where(rng.random(6) < 0.5, -1, 1) for A in to_columns(truth).matrices]
    X = (factors[0] @ khatri_rao(factors[1:]).T).reshape(truth.shape)
    rounded = round_columns(plain(factors), (0, 1, 2))
    np.testing.assert_array_equal(rounded.boolean_mode, truth.boolean_mode)
    assert loss_of(X, rounded.matrices) < 1e-20 * np.sum(X**2)


@pytest.mark.parametrize(
    ("shape", "n_atoms", "options"),
    [
        ((30, 40, 50), 9, {"noise": 1.0}),
        ((20, 20, 20), 15, {"noise": 1.0}),
        ((10, 100, 60), 9, {"noise": 1.0}),
        ((60, 60, 60), 9, {"noise": 1.0, "p": 0.1}),
        ((60, 60, 60), 9, {"noise": 1.0, "p": 0.9}),
        ((12, 12, 12, 12), 8, {"noise": 1.0}),
        ((40, 40, 40), 12, {"noise": 0.0}),
    ],
)
def test_bits_are_exact_and_the_error_is_that_of_known_bits(shape, n_atoms, options):
    X, clean, truth = make_boolean_cp(shape, n_atoms, random_state=77, **options)
    W = BMP(n_atoms, random_state=0).fit(X).decomposition_
    assert hamming_error(W, truth) == 0
    assert rmse(W, clean) <= 1.03 * rmse(oracle(X, truth).to_decomposition(), clean) + 1e-6


def test_syn2_reaches_the_limit():
    X, clean, truth = load_syn(2, random_state=4242)
    W = BMP(15, random_state=0).fit(X).decomposition_
    assert hamming_error(W, truth) == 0
    assert rmse(W, clean) <= 1.03 * rmse(oracle(X, truth).to_decomposition(), clean)


def test_refinement_is_never_worse_than_the_pursuit(rng):
    X = rng.standard_normal((9, 10, 11))  # nothing to find: traps everywhere
    for n_atoms in (1, 4, 12):
        model = BMP(n_atoms, n_init=1, random_state=0).fit(X)
        assert model.decomposition_.explained() >= model.path_[-1].explained() - 1e-12
        for n in range(3):
            Z = model.decomposition_.factors[n][:, model.decomposition_.boolean_mode == n]
            assert set(np.unique(Z)) <= {0.0, 1.0} and Z.any(axis=0).all()


def test_compression_changes_nothing():
    X, _, _ = make_boolean_cp((50, 60, 70), 4, noise=1.0, random_state=5)
    fits = [BMP(4, compression=c, random_state=0).fit(X).decomposition_ for c in (True, False)]
    assert compress(DenseTensor(X), 14) is not DenseTensor(X)
    assert hamming_error(*fits) == 0
    np.testing.assert_allclose(fits[0].to_tensor(), fits[1].to_tensor(), atol=1e-3)


def test_a_dead_atom_is_revived(rng):
    X, _, truth = make_boolean_cp((14, 15, 16), 3, noise=0.1, random_state=rng)
    data = DenseTensor(X)
    factors = list(to_columns(truth).matrices)
    factors[truth.boolean_mode[0]][:, 0] = 0
    dead = replace(plain(factors, truth.boolean_mode), loss=loss_of(X, factors))
    alive = revive(data, dead, finder(data, rng))
    assert alive.loss < dead.loss and alive.to_decomposition().n_atoms == 3
    assert alive.loss == pytest.approx(oracle(X, truth).loss, rel=1e-6)


def test_repair_leaves_the_trap_of_a_shared_z(rng):
    X, _, truth = make_boolean_cp((20, 21, 22), [2, 1, 1], noise=0.1, random_state=rng)
    data = DenseTensor(X)
    factors = list(to_columns(truth).matrices)
    first, second = np.flatnonzero(truth.boolean_mode == 0)
    union = np.maximum(factors[0][:, first], factors[0][:, second])
    factors[0][:, first] = factors[0][:, second] = union  # both atoms on where either was
    trapped = polish(data, plain(factors, truth.boolean_mode), max_iter=1)
    assert repair(data, trapped, (0, 1, 2), finder(data, rng)).loss <= trapped.loss


def test_exchange_replaces_by_greedy_atoms(rng):
    X, _, truth = make_boolean_cp((14, 15, 16), 3, noise=0.1, random_state=rng)
    data = DenseTensor(X)
    solution = oracle(X, truth)
    exchanged = exchange(solution, np.array([True, False, False]), finder(data, rng))
    assert exchanged.n_atoms == 3 and loss_of(X, exchanged.matrices) < 2 * solution.loss


def test_the_search_agrees_with_the_naive_loss(rng):
    X = make_boolean_cp((14, 15, 16), 3, noise=0.5, random_state=rng).X
    data = DenseTensor(X)
    W = last(boolean_matching_pursuit(data, 3, (0, 1, 2), rng), None).W
    steps = search(data, to_columns(W), 3, (0, 1, 2), finder(data, rng), rng, Search())
    losses = [here.best.loss for here in steps]
    assert 2 <= len(losses) <= 10 and np.all(np.diff(losses) <= 0)
    best = polish(data, last(search(data, to_columns(W), 3, (0, 1, 2), finder(data, rng), rng, Search()), None).best)
    assert best.loss == pytest.approx(np.sum((X - naive.tensor(best.to_decomposition())) ** 2))


def test_the_result_is_not_worse_than_what_it_began_with(rng):
    X, _, truth = make_boolean_cp((14, 15, 16), 3, noise=0.5, random_state=rng)
    data = DenseTensor(X)
    G, b = atom_system(data, truth.atoms)
    W = with_system(replace(truth, weights=np.linalg.solve(G, b)), data, G, b)
    good = oracle(X, truth)
    assert not_worse(data, good, W, max_iter=50) is good
    poor = replace(good, loss=2 * good.loss)
    better = not_worse(data, poor, W, max_iter=50)
    assert better.loss <= data.squared_norm - W.weights @ W.data_inner
    assert better.loss == pytest.approx(loss_of(X, better.matrices))


@pytest.mark.filterwarnings("error")
def test_a_diagonal_that_rounding_made_negative_counts_as_unknown():
    H = np.diag([4.0, -1e-20])
    np.testing.assert_allclose(pseudo_inverse(H), np.diag([0.25, 0]))


@pytest.mark.parametrize("rank", [6, 3])
def test_rows_solve_their_equations(rng, rank):
    F = rng.standard_normal((rank, 6))
    P = rng.standard_normal((9, 6)) @ F.T @ F  # singular equations too have a solution
    A = solve_rows(F.T @ F, P)
    np.testing.assert_allclose(A @ F.T @ F, P, atol=1e-8)
    assert np.linalg.norm(A) < 1e3


# columns that share their bits


SHAPE, RANKS, MODES = (7, 8, 9), (2, 1, 3), (0, 1, 2)


@pytest.mark.parametrize("is_masked", [False, True])
def test_a_sweep_of_linked_columns_is_that_of_loops(is_masked, rng):
    X, W = rng.standard_normal(SHAPE), linked(SHAPE, RANKS, MODES, rng)
    mask = rng.random(SHAPE) < 0.7 if is_masked else np.ones(SHAPE, dtype=bool)
    data = MaskedTensor(X, mask) if is_masked else DenseTensor(X)
    order = [0, 1, 2] if is_masked else [2, 0, 1]
    found, _ = sweep(data, W)
    expected = naive.linked_sweep(X, mask, W.matrices, W.owner, W.boolean_mode, order)
    tensor = lambda matrices: np.einsum("ir,jr,kr->ijk", *matrices)  # noqa: E731
    np.testing.assert_allclose(tensor(found.matrices), tensor(expected), atol=1e-8)
    assert found.loss == pytest.approx(np.sum(((X - tensor(found.matrices)) ** 2)[mask]))


@pytest.mark.parametrize("is_masked", [False, True])
def test_polish_of_linked_columns_never_raises_the_loss_and_keeps_the_ties(is_masked, rng):
    X, W = rng.standard_normal(SHAPE), linked(SHAPE, RANKS, MODES, rng)
    data = MaskedTensor(X, rng.random(SHAPE) < 0.7) if is_masked else DenseTensor(X)
    losses = [polish(data, W, max_iter=n, tol=0).loss for n in range(1, 8)]
    assert np.all(np.diff(losses) <= 1e-9)
    W = polish(data, W)
    for k, mode in enumerate(MODES):
        bits = W.matrices[mode][:, W.owner == k]
        assert set(np.unique(bits)) <= {0.0, 1.0} and (bits == bits[:, :1]).all()


def test_the_truth_of_linked_columns_is_a_fixed_point_and_comes_back(rng):
    W = linked((12, 13, 14), (2, 2), (0, 1), rng)
    X = W.to_decomposition().to_tensor()
    assert polish(DenseTensor(X), W).loss < 1e-18 * np.sum(X**2)
    back = to_columns(W.to_decomposition())
    np.testing.assert_allclose(back.to_decomposition().to_tensor(), X, atol=1e-12 * np.abs(X).max())
    assert back.owner.tolist() == [0, 0, 1, 1]
    V = W.to_decomposition()
    np.testing.assert_allclose(W.sizes(), V.weights * np.sqrt([atom.n_ones for atom in V.atoms]))


def test_relaxing_and_redrawing_keep_columns_tied(rng):
    X, W = rng.standard_normal(SHAPE), linked(SHAPE, RANKS, MODES, rng)
    for tied in (relax(DenseTensor(X), W, max_iter=5), redraw(W, rng)):
        for k, mode in enumerate(MODES):
            own = tied.matrices[mode][:, tied.owner == k]
            np.testing.assert_allclose(own / own[0], own[:, :1] / own[0, :1] * np.ones(own.shape[1]), rtol=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_blocks_of_rank_two_are_recovered(missing):
    rng = np.random.default_rng(3)
    W = linked((16, 17, 18), (2, 2), (0, 1), rng)
    X = W.to_decomposition().to_tensor()
    given = np.where(rng.random(X.shape) < missing, np.nan, X)
    found = BMP(2, atom_rank=2, random_state=0).fit(given).decomposition_
    assert {(a.mode, a.z.tobytes()) for a in found.atoms} == {
        (a.mode, a.z.tobytes()) for a in W.to_decomposition().atoms
    }
    assert np.linalg.norm(found.to_tensor() - X) < 1e-4 * np.linalg.norm(X)


# missing entries


def hidden_error(X, mask, n_atoms, **options):
    W = BMP(n_atoms, random_state=0, **options).fit(X, mask=mask).decomposition_
    return np.linalg.norm((W.to_tensor() - X)[~mask]) / np.linalg.norm(X[~mask]), W


@pytest.mark.parametrize("n_atoms", [1, 2, 5])
def test_a_constant_matrix_is_completed(n_atoms, rng):
    X, mask = np.ones((9, 9)), rng.random((9, 9)) > 0.1
    error, W = hidden_error(X, mask, n_atoms)
    assert error < 1e-9 and W.n_atoms == 1


@pytest.mark.parametrize("n_atoms", [2, 10])
def test_a_matrix_without_noise_is_completed(n_atoms):
    X = make_boolean_cp((30, 40), 2, random_state=1).X
    error, W = hidden_error(X, np.random.default_rng(1).random(X.shape) > 0.2, n_atoms)
    assert error < 1e-6 and W.n_atoms == 2


@pytest.mark.parametrize("atom_rank", [1, 2, None, "auto"])
def test_more_atoms_than_there_are_do_not_spoil_the_missing_entries(atom_rank):
    X = make_boolean_cp((12, 13, 14), 2, random_state=0).X
    mask = np.random.default_rng(0).random(X.shape) > 0.2
    for n_atoms in (2, 3):
        error, W = hidden_error(X, mask, n_atoms, atom_rank=atom_rank, n_init=3)
        assert error < 1e-3 and np.isfinite(W.explained_alone()).all()


def test_no_atom_lives_on_unobserved_entries_alone(rng):
    X, _, truth = make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=rng)
    mask = np.ones(X.shape, dtype=bool)
    mask[5:] = False
    unseen = replace(truth.atoms[0], mode=0, z=np.arange(8) >= 5, factors=truth.atoms[0].factors)
    unseen = replace(unseen, factors=tuple(np.full((d, 1), d**-0.5) for d in (9, 10)))
    W = replace(truth, atoms=(*truth.atoms, unseen), weights=np.append(truth.weights, 1.0))
    kept = with_data(W, MaskedTensor(X, mask))
    assert [atom.z.tobytes() for atom in kept.atoms] == [atom.z.tobytes() for atom in truth.atoms]


def small_tensors(n_tensors):
    """Yield tensors of sizes 2 to 8: noise, integers, bools and noisy Boolean CP, in turn."""
    for seed in range(n_tensors):
        rng = np.random.default_rng(seed)
        shape = tuple(int(d) for d in rng.integers(2, 9, 3))
        kinds = rng.standard_normal(shape), rng.integers(-3, 4, shape), rng.random(shape) < 0.5
        yield (*kinds, make_boolean_cp(shape, 2, noise=0.5, random_state=seed).X)[seed % 4].astype(float)


def test_one_atom_of_a_small_tensor_is_the_best_of_all():
    for X in small_tensors(24):
        W = BMP(1, atom_rank=1, background=None, random_state=0).fit(X).decomposition_
        gain = np.sum(X**2) - np.sum((X - W.to_tensor()) ** 2)
        assert gain == pytest.approx(naive.best_rank_one_gain(X), rel=1e-8)


@pytest.mark.parametrize("shape", [(30, 5), (30, 5, 3)])
def test_each_row_solves_its_own_equations(shape, rng):
    A = rng.standard_normal((30, 12, 5)) * 10.0 ** np.arange(-2, 3)
    A[3], A[4, 2:] = 0, 0  # without any observed entry, and with fewer than unknowns
    H, P = np.einsum("ink,inl->ikl", A, A), rng.standard_normal(shape)
    kept = H.copy()
    np.testing.assert_allclose(solve_each_row(H, P), naive.solve_each_row(H, P), rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(H, kept)


@pytest.mark.parametrize(("is_boolean", "n_tries"), [(False, 3), (True, 11)])
def test_few_entries_get_many_starts_only_where_these_lower_the_loss_much(is_boolean, n_tries):
    """Structure without bits has no solution that many starts would find."""
    rng = np.random.default_rng(2)
    X = make_boolean_cp((30, 12, 13), 5, noise=0.1, random_state=3).X
    if not is_boolean:
        X = np.einsum("ir,jr,kr->ijk", *(rng.standard_normal((d, 8)) for d in X.shape))
    data, start = MaskedTensor(X, rng.random(X.shape) < 0.35), plain([rng.standard_normal((d, 5)) for d in X.shape])
    start = round_columns(start, (0, 1, 2))

    def find(W):
        return greedy_atom_search(data.inner_residual(W), (0, 1, 2), rng, certify=False)

    *_, here = search_observed(data, start, (0, 1, 2), find, rng, None, n_init=None, max_iter=50)
    assert here.n_tries == n_tries


def test_a_candidate_that_falls_behind_is_given_up(rng):
    W = to_columns(make_boolean_cp((5, 6, 7), 2, random_state=0).truth)
    before = Sweeps(replace(W, loss=2.0), 9)
    slow, fast = (Sweeps(replace(W, loss=loss), 10) for loss in (1.99, 1.9))
    assert is_behind(before, slow, 50, 1.0) and not is_behind(before, fast, 50, 1.0)
    here = ObservedSearch(Search(1, replace(W, loss=1.0), 1), "polish", before)
    done = ObservedSearch(here.search, "polish", replace(slow, is_settled=True))  # as it is saved
    X, _, _ = make_boolean_cp((5, 6, 7), 2, missing=0.3, noise=1.0, random_state=0)
    data = MaskedTensor(np.nan_to_num(X), ~np.isnan(X))
    assert not list(sweeps_of(data, done, 50))
    given_up, whole = (polish(data, W, below=below) for below in (-np.inf, np.inf))
    assert given_up.loss == polish(data, W, max_iter=2).loss > whole.loss


def test_sweeps_over_observed_entries_end_by_the_noise(rng):
    X, _, truth = make_boolean_cp((10, 11, 12), 2, missing=0.5, noise=1.0, random_state=0)
    data, W = MaskedTensor(np.nan_to_num(X), ~np.isnan(X)), to_columns(truth)
    fall = small_fall(data, W)
    assert fall == pytest.approx(0.05 * 2 * 33 / data.n_observed)
    sweeps = list(relax_sweeps(data, begin(redraw(W, rng)), max_iter=200, tol=0.0, fall=fall))
    losses = [each.W.loss for each in sweeps]
    gains = -np.diff(losses) / losses[1:]
    assert sweeps[-1].is_settled and gains[-1] <= fall and (gains[:-1] > fall).all()
