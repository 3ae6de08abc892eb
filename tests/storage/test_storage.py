"""Every storage answers like a plain array, fits do not depend on it, and what is wrong with data on disk is named."""

import itertools
import tracemalloc

import naive
import numpy as np
import pytest
from samples import KINDS, check_questions, on_disk, random_decomposition, with_gaps

from boolcp import BMP
from boolcp.contractions import khatri_rao
from boolcp.datasets import make_boolean_cp
from boolcp.fit.certify import atom_system, judge_bits
from boolcp.fit.fit import STEPS, Fit
from boolcp.fit.losses import make_loss
from boolcp.fit.spec import Spec
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import to_columns
from boolcp.storage import describe, make_storage, stays_out
from boolcp.storage.dense import Dense, n_observed
from boolcp.storage.lazy import Lazy, LazyWeighted, filled, look, open_or_load
from boolcp.storage.sources import Source
from boolcp.storage.tucker import Tucker, compress, leading_basis, thin_factor
from boolcp.storage.weighted import Loss, Weighted, full

da = pytest.importorskip("dask.array")
SHAPES = [(5, 6), (4, 5, 6), (3, 4, 2, 5)]
PLANTED = (30, 24, 36)
CHUNKS = {"dask": (30, 8, 12), "zarr": (10, 24, 9), "hdf5": (7, 5, 36), "map": None, "thin": (30, 1, 36)}


def stored(X, kind, folder):
    """Return X as an array that is not in memory."""
    return on_disk(X, kind.replace("thin", "dask"), folder, CHUNKS[kind] if X.shape == PLANTED else (2,) * X.ndim)


def opened(X, kind, folder, limit=2**20, **given):
    loss = given.pop("loss", Loss())
    return look(Source(stored(X, kind, folder), **given, limit=limit), loss)


def states(data, n_atoms=3, **options):
    """Return all states of a fit, the last one with the result."""
    fit = Fit(data, Spec(n_atoms, tuple(range(len(data.shape))), **options))
    found = [fit.begin(0)]
    while found[-1].result is None:
        found.append(STEPS[found[-1].stage](fit.at_state(found[-1]), found[-1]))
    return found


def fitted(data, n_atoms=3, **options):
    return states(data, n_atoms, **options)[-1].result


def planted(noise=0.5, seed=0):
    return make_boolean_cp(PLANTED, 3, noise=noise, random_state=seed)


def bits(W):
    return sorted((atom.mode, tuple(atom.z.tolist())) for atom in W.atoms)


def assert_close(W, V, tolerance=1e-4):
    assert bits(W) == bits(V)
    assert np.linalg.norm(W.to_tensor() - V.to_tensor()) <= tolerance * np.linalg.norm(V.to_tensor())


# arrays in memory


def layouts(X, folder):
    """Yield the same tensor in many kinds of memory, with whether it is contiguous in some order."""
    for order in itertools.permutations(range(X.ndim)):
        yield np.ascontiguousarray(X.transpose(order)).transpose(np.argsort(order)), True
    yield np.repeat(X, 2, axis=-1)[..., ::2], False
    yield np.pad(X, 1)[(slice(1, -1),) * X.ndim], False
    yield X[::-1].copy()[::-1], False
    np.save(folder / "X.npy", X)
    yield np.load(folder / "X.npy", mmap_mode="r"), True


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_any_memory_gives_the_same_answers_without_a_needless_copy(shape, dtype, rng, tmp_path, monkeypatch):
    monkeypatch.setattr("boolcp.storage.dense.BIG", 1)
    X = rng.standard_normal(shape).astype(dtype)
    for array, is_contiguous in layouts(X, tmp_path):
        before, data = array.copy(), Dense(array)
        assert np.shares_memory(data.to_array(), array) == is_contiguous
        check_questions(data, X.astype(float), rng, 1e-12 if dtype == np.float64 else 1e-6)
        assert data.squared_norm == pytest.approx(np.sum(X.astype(float) ** 2), rel=1e-6)
        np.testing.assert_array_equal(array, before)
        if dtype == np.float32:
            assert data.contract(0, np.ones((shape[0], 1))).dtype == np.float32


def test_squared_norm_of_float32_keeps_its_digits():
    X = np.full((300, 100, 100), 0.1, dtype=np.float32)
    X[0, 0, 0] = 3000
    exact = 3e6 * float(np.float32(0.1)) ** 2 - float(np.float32(0.1)) ** 2 + 9e6
    assert Dense(X).squared_norm == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_residual_answers_like_the_dense_difference(shape, kind, rng, tmp_path):
    X, W = rng.standard_normal(shape), random_decomposition(shape, kind, rng)
    R = X - naive.tensor(W)
    for data in (Dense(X), Dense(np.asfortranarray(X)), opened(X, "dask", tmp_path)):
        residual = data.residual(W)
        check_questions(residual, R, rng)
        assert residual.squared_norm == pytest.approx(np.sum(R**2))
        np.testing.assert_array_equal(residual.gram(0), residual.gram(0).T)
        check_questions(data.residual(BooleanCP(shape)), X, rng)


# compressed tensors


def random_tucker(shape, ranks, rng):
    core = rng.standard_normal(ranks)
    bases = [np.linalg.qr(rng.standard_normal((d, r)))[0] for d, r in zip(shape, ranks, strict=True)]
    X = core
    for mode, U in enumerate(bases):
        X = np.moveaxis(np.tensordot(U, X, axes=(1, mode)), 0, mode)
    return Tucker(Dense(core), bases, np.sum(X**2)), X


@pytest.mark.parametrize(("shape", "ranks"), [((5, 6), (2, 3)), ((4, 5, 6), (2, 3, 6)), ((3, 4, 2, 5), (2, 2, 1, 3))])
def test_a_tucker_tensor_answers_like_the_dense_one(shape, ranks, rng):
    data, X = random_tucker(shape, ranks, rng)
    check_questions(data, X, rng)
    F, is_exact = thin_factor(data, 1)
    assert is_exact and F.shape[1] <= ranks[1]
    np.testing.assert_allclose(F @ F.T, data.gram(1), atol=1e-9)
    for kind in KINDS:
        W = random_decomposition(shape, kind, rng)
        check_questions(data.residual(W), X - naive.tensor(W), rng)


@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize("shape", [(10, 12, 14), (4, 60, 5), (40, 4, 4), (6, 5, 8, 7), (20, 30)])
def test_compression_of_a_tensor_of_low_rank_is_exact(shape, is_lazy, rng, tmp_path):
    X = random_tucker(shape, [min(2, d) for d in shape], rng)[1]
    data = compress(opened(X, "zarr", tmp_path) if is_lazy else Dense(X), 2)
    assert isinstance(data, Tucker) and data.core.shape == (2,) * len(shape)
    assert data.squared_norm == pytest.approx(np.sum(X**2))
    for U in data.bases:
        np.testing.assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=1e-12)
    check_questions(data, X, rng)


def test_compression_keeps_short_modes_whole_and_may_save_nothing(rng):
    data = compress(Dense(rng.standard_normal((3, 20, 30))), 6)
    np.testing.assert_array_equal(data.bases[0], np.eye(3))
    assert data.core.shape == (3, 6, 6)
    whole = Dense(rng.standard_normal((4, 5, 6)))
    assert compress(whole, 5) is whole


@pytest.mark.parametrize("is_lazy", [False, True])
def test_long_modes_are_compressed_by_power_iterations(is_lazy, monkeypatch):
    for module in ("lazy", "tucker"):
        monkeypatch.setattr(f"boolcp.storage.{module}.LONG", 40)
    X, clean, _ = make_boolean_cp((3, 70, 80), 2, noise=1e-3, random_state=0)
    found = compress(look(Source(da.from_array(X, chunks=30))) if is_lazy else Dense(X), 4)
    assert found.bases[1].shape == (70, 4) and found.bases[2].shape == (80, 4)
    np.testing.assert_allclose(found.contract(0, np.eye(3)), clean, atol=5e-3)


@pytest.mark.parametrize("shape", [(5, 6, 7), (4, 5, 3, 6)])
def test_the_inner_residual_is_the_residual_projected_onto_the_bases(shape, rng):
    data = random_tucker(shape, [3] * len(shape), rng)[0]
    W = random_decomposition(shape, "rank one", rng)
    found, expected = data.inner_residual(to_columns(W)), data.to_array() - naive.tensor(W)
    for mode, U in enumerate(data.bases):
        expected = np.moveaxis(np.tensordot(U @ U.T, expected, (1, mode)), 0, mode)
    np.testing.assert_allclose(found.to_array(), expected, atol=1e-10)
    opened_along = found.opened(1)
    for mode, U in enumerate(data.bases):
        expected = expected if mode == 1 else np.moveaxis(np.tensordot(U.T, expected, (1, mode)), 0, mode)
    np.testing.assert_allclose(opened_along.to_array(), expected, atol=1e-10)


def test_leading_directions_have_a_settled_sign(rng):
    X = rng.standard_normal((9, 8, 7))
    for mode in range(3):
        U, V = (leading_basis(Dense(Y), mode, 3) for Y in (X, np.asfortranarray(-X)))
        np.testing.assert_allclose(U, V, atol=1e-10)
        assert (U[np.argmax(np.abs(U), axis=0), range(3)] > 0).all()


# weights and missing entries


@pytest.fixture
def case(rng):
    shape = (4, 5, 6)
    weights = rng.random(shape) * (rng.random(shape) < 0.8)
    return np.where(weights > 0, rng.standard_normal(shape), np.nan), weights


@pytest.fixture(params=["memory", "disk"])
def data(case, request, tmp_path):
    X, weights = case
    return Weighted(X, weights) if request.param == "memory" else opened(X, "dask", tmp_path, weights=weights)


def test_equations_and_systems_are_those_of_weighted_least_squares(data, case, rng):
    X, weights = case
    zeros, factors = np.nan_to_num(X), [rng.standard_normal((d, 3)) for d in X.shape]
    assert data.squared_norm == pytest.approx(np.sum(weights * zeros**2))
    assert n_observed(data) == np.count_nonzero(weights)
    np.testing.assert_allclose(data.weights.to_array(), weights)
    for mode in range(3):
        H, P, loss = data.equations(factors, mode)
        product = khatri_rao([A for n, A in enumerate(factors) if n != mode])
        for i, (w, x) in enumerate(zip(naive.unfold(weights, mode), naive.unfold(zeros, mode), strict=True)):
            np.testing.assert_allclose(H[i], product.T @ (w[:, None] * product), atol=1e-10)
            np.testing.assert_allclose(P[i], product.T @ (w * x), atol=1e-10)
        assert loss == pytest.approx(np.sum(weights * (zeros - full(factors)) ** 2))
    W = random_decomposition(X.shape, "rank two", rng)
    if isinstance(data, Weighted):  # the residual is the negative gradient
        check_questions(data.residual(W), weights * (zeros - naive.tensor(W)), rng)
    G, b = atom_system(data, W.atoms)
    atoms = np.array([naive.atom(M) for M in W.atoms])
    np.testing.assert_allclose(G, np.einsum("kabc,abc,labc->kl", atoms, weights, atoms), atol=1e-10)
    np.testing.assert_allclose(b, np.einsum("kabc,abc->k", atoms, weights * zeros), atol=1e-9)


def test_the_rise_of_a_flipped_bit_is_weighted(data, case, rng):
    X, weights = case
    W = random_decomposition(X.shape, "rank one", rng, n_atoms=3)
    rises, X, before = judge_bits(data, W).rise, np.nan_to_num(X), naive.tensor(W)
    for k, atom in enumerate(W.atoms):
        for i in range(len(atom.z)):
            change, V = np.zeros(X.shape), W.weights[k] * atom.dense_block()
            np.moveaxis(change, atom.mode, 0)[i] = -V if atom.z[i] else V
            rise = np.sum(weights * (X - before - change) ** 2) - np.sum(weights * (X - before) ** 2)
            assert rises[k][i] == pytest.approx(rise, abs=1e-8)


# data on disk: answers


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["dask", "zarr", "hdf5", "map"])
@pytest.mark.parametrize("limit", [8_000, 2**20])
def test_arrays_that_are_not_in_memory_answer_like_the_array(shape, kind, limit, rng, tmp_path):
    X = rng.standard_normal(shape)
    data = look(Source(stored(X, kind, tmp_path)))
    data.source.limit = limit  # slabs of few rows, or of all
    check_questions(data, X, rng)
    assert data.squared_norm == pytest.approx(np.sum(X**2))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.int16, bool, ">f8"])
def test_lazy_arrays_of_any_dtype_answer_like_the_array(shape, dtype, rng):
    Y = (10 * rng.standard_normal(shape)).astype(dtype)
    check_questions(look(Source(da.from_array(Y, chunks=2))), Y.astype(float), rng, 1e-5)


@pytest.mark.parametrize("view", [np.s_[::2, 1:, ::-1], np.s_[:, :, 2:5]])
@pytest.mark.parametrize("order", ["C", "F"])
def test_views_of_memory_maps_are_read_from_their_file(view, order, rng, tmp_path):
    X = np.asarray(rng.standard_normal((6, 7, 8)), order=order)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for array, expected in ((mapped[view], X[view]), (mapped[view].transpose(2, 0, 1), X[view].transpose(2, 0, 1))):
        check_questions(look(Source(array)), expected, rng)


def test_masks_broadcast_and_masked_arrays_keep_theirs(rng, tmp_path):
    X, hidden = rng.standard_normal((6, 7, 8)), rng.random((6, 7, 8)) < 0.3
    zeros = np.where(hidden, 0.0, X)
    masked = da.from_array(np.ma.masked_array(X, hidden), chunks=3, asarray=False)
    secret = da.from_array(np.where(hidden, 999, X), chunks=3).map_blocks(
        lambda block: np.ma.masked_equal(block, 999), dtype=float, meta=np.empty((0, 0, 0))
    )
    plain = da.from_array(X, chunks=4)
    mask = pytest.importorskip("zarr").create_array(tmp_path / "mask.zarr", data=~hidden, chunks=(6, 2, 8))
    for source in (Source(masked), Source(secret), Source(plain, ~hidden), Source(plain, mask)):
        data = look(source)
        assert isinstance(data, LazyWeighted) and data.n_seen == np.count_nonzero(~hidden)
        np.testing.assert_allclose(data.to_array(), zeros)  # near zero: missing entries are zero
        np.testing.assert_allclose(data.start.to_array(), zeros * X.size / data.n_seen)
    first = np.arange(6)[:, None, None] > 0  # infinity under a mask does not matter
    assert look(Source(da.from_array(np.where(first, X, np.inf), chunks=4), first)).n_seen == X.size * 5 // 6
    row = np.arange(8) > 2
    np.testing.assert_allclose(look(Source(plain, row)).to_array(), plain.compute() * row)
    assert type(look(Source(plain, weights=np.full(8, 3.0)))) is Lazy  # all count alike
    assert type(make_storage(X, weights=np.full(X.shape, 3.0))) is Dense


# data on disk: passes


def test_a_first_look_a_core_and_a_sweep_take_one_pass_each(rng, tmp_path):
    X = rng.standard_normal(PLANTED)
    data = opened(X, "zarr", tmp_path)
    assert data.n_passes == 1
    compress(data, 4)
    assert data.n_passes == 2
    for mode in range(3):
        np.testing.assert_allclose(data.gram(mode), naive.unfold(X, mode) @ naive.unfold(X, mode).T, atol=1e-8)
    assert data.n_passes == 2  # the pass of the core was cut along another mode and brought the last of them
    factors = [rng.standard_normal((d, 2)) for d in PLANTED]
    A, loss, rest = data.update(factors, data.cut, lambda H, P, old: np.linalg.solve(H, P.T).T)
    factors[data.cut] = A
    assert data.n_passes == 3 and loss == pytest.approx(np.sum((X - full(factors)) ** 2))
    other = (data.cut + 1) % 3
    B, loss, _ = rest.update(factors, other, lambda H, P, old: np.linalg.solve(H, P.T).T)
    factors[other] = B
    assert data.n_passes == 3 and loss == pytest.approx(np.sum((X - full(factors)) ** 2))


def test_products_of_the_same_columns_need_no_pass(rng):
    X = rng.standard_normal((6, 7, 8))
    data, factors = look(Source(da.from_array(X, chunks=3))), [rng.standard_normal((d, 3)) for d in (6, 7, 8)]
    data.mttkrp(factors, 0)
    n_passes = data.n_passes
    scaled = [A[:, [2, 0]] * [-2.0, 3.0] for A in factors]
    for mode in range(3):
        np.testing.assert_allclose(data.mttkrp(scaled, mode), naive.mttkrp(X, scaled, mode), atol=1e-10)
    assert data.n_passes == n_passes
    other = [A + (n == 1) * 1e-6 for n, A in enumerate(factors)]
    np.testing.assert_allclose(data.mttkrp(other, 0), naive.mttkrp(X, other, 0), rtol=1e-9, atol=1e-10)


def test_a_map_is_not_cut_along_its_innermost_mode(tmp_path):
    X = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", shape=(40, 50, 2000))
    assert Source(X, limit=5_200_000).direction() == 1 and Source(X).direction() == 2  # unless all of it fits


# data on disk: fits


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_bits_of_slices_that_count_little_are_right(loss, rng):
    X, _, truth = make_boolean_cp((28, 27, 26), 2, boolean_modes=[0], noise=0.3, random_state=0)
    few = (np.arange(28) % 9 == 0)[:, None, None] & (rng.random(X.shape) < 0.8)
    weights = np.linspace(0.1, 1.1, 28)[:, None, None] * np.ones(X.shape)
    for values, w in ((np.where(few, np.nan, X), None), (X, weights)):
        lazy = da.from_array(values, chunks=(7, 27, 26))
        W = BMP(2, loss=loss, random_state=0).fit(lazy, weights=w).decomposition_
        assert bits(W) == bits(truth)


@pytest.mark.parametrize("kind", list(CHUNKS))
def test_fits_are_those_of_the_array_in_memory(kind, tmp_path):
    X, _, truth = planted()
    data = opened(X, kind, tmp_path)
    expected, found = fitted(make_storage(X)), fitted(data)
    assert bits(found) == bits(truth) and data.n_passes <= 5
    assert_close(found, expected)
    assert found.trust.sigma == pytest.approx(expected.trust.sigma, rel=1e-4)
    for one, other in zip(found.atoms, expected.atoms, strict=True):
        assert 0.5 < one.certificate <= 1 and other.certificate == pytest.approx(one.certificate, rel=0.5)
    for one, other in zip(found.trust.odds, expected.trust.odds, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.02, atol=0.01 * np.abs(other).max())


def with_artifacts(X):
    return np.where(np.random.default_rng(3).random(X.shape) < 0.02, 30.0, X)


UNEVEN = {
    "gaps": (lambda X: with_gaps(X, 0.2), None, "squared"),
    "many gaps": (lambda X: with_gaps(X, 0.5), None, "squared"),
    "weights": (lambda X: X, 0.5 + np.random.default_rng(2).random(PLANTED), "squared"),
    "weights along a mode": (lambda X: with_gaps(X, 0.2), 1.0 + np.arange(24)[:, None] % 3, "squared"),
    "huber": (with_artifacts, None, "huber"),
    "huber, gaps": (lambda X: with_gaps(with_artifacts(X), 0.2), None, "huber"),
}


@pytest.mark.parametrize("name", list(UNEVEN))
def test_uneven_entries_lead_where_they_lead_in_memory(name, tmp_path):
    make, weights, loss_name = UNEVEN[name]
    X, _, truth = planted()
    X = make(X)
    observed = ~np.isnan(X)
    loss = make_loss(loss_name, X[observed])
    whole = None if weights is None else np.broadcast_to(weights, X.shape) * observed
    expected = fitted(make_storage(np.nan_to_num(X), observed, whole, loss))
    data = opened(X, "zarr", tmp_path, weights=weights, loss=loss)
    found = states(data)
    assert bits(found[-1].result) == bits(expected) == bits(truth)
    assert_close(found[-1].result, expected, 0.02)
    assert found[-1].result.explained() == pytest.approx(expected.explained(), abs=1e-3)
    assert found[-1].result.trust.sigma == pytest.approx(expected.trust.sigma, rel=0.01)
    assert data.n_passes <= 30
    losses = [s.best.loss for s in found if s.stage == "polish" and s.n_done > 0]
    assert all(after <= before * (1 + 1e-12) for before, after in itertools.pairwise(losses))


@pytest.mark.parametrize("loss", [Loss(), Loss("huber", 0.5)])
def test_targets_touch_the_loss_and_are_nowhere_below_it(loss, case, rng, tmp_path):
    X, weights = case
    memory = Weighted(X, weights, loss)
    data = opened(X, "dask", tmp_path, weights=weights, loss=loss)
    factors = [rng.standard_normal((d, 2)) for d in X.shape]
    near = data.near(factors)
    assert near is data.near([A.copy() for A in factors]) and near is not data.near(factors, 0.7)
    mode = near.cut

    def surrogate(A):
        H, P, _ = near.equations_of(near.mttkrp(factors, mode), factors, mode)
        return near.level - 2 * np.vdot(P, A) + np.vdot(A @ H, A)

    def exact(A):
        return memory.total(full([A if n == mode else B for n, B in enumerate(factors)]))

    assert surrogate(factors[mode]) == pytest.approx(exact(factors[mode]))
    for size in (1e-3, 0.1, 1.0, 10.0):
        A = factors[mode] + size * rng.standard_normal(factors[mode].shape)
        assert surrogate(A) >= exact(A) - 1e-9
    step = 1e-6 * rng.standard_normal(factors[mode].shape)
    slopes = [(f(factors[mode] + step) - f(factors[mode] - step)) / 2 for f in (surrogate, exact)]
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-4, abs=1e-9)


def test_atoms_of_rank_two_and_matrices(rng, tmp_path):
    X = planted(noise=0.1).X
    assert_close(fitted(opened(X, "dask", tmp_path), atom_rank=2), fitted(make_storage(X), atom_rank=2), 0.02)
    Y = make_boolean_cp((60, 80), 3, noise=0.05, random_state=0).X
    assert_close(fitted(opened(Y, "dask", tmp_path)), fitted(make_storage(Y)), 1e-2)


def test_a_tensor_of_zeros_has_no_atoms():
    assert fitted(look(Source(da.zeros((20, 30, 40), chunks=7)))).n_atoms == 0


# data on disk: memory


def test_a_fit_from_disk_forms_nothing_as_large_as_a_long_mode_squared(rng, tmp_path):
    X = rng.standard_normal((10, 12, 10000), dtype="f4")  # 5 MB; an identity takes 800 MB
    X = pytest.importorskip("zarr").create_array(tmp_path / "x.zarr", data=X, chunks=(10, 12, 500))
    tracemalloc.start()
    BMP(1, random_state=0, n_init=1, max_iter=1, max_memory="4MB").fit(X)
    assert tracemalloc.get_traced_memory()[1] < 5e7
    tracemalloc.stop()


def test_a_fit_that_needs_x_in_memory_loads_it_or_says_why(rng):
    X = da.from_array(rng.standard_normal((40, 40, 40)), chunks=10)
    assert type(open_or_load(X, rank=12)) is Lazy
    needs = {"needs_memory": "loss='poisson'"}
    loaded, mask, weights = open_or_load(X, X > 0, None, **needs)
    np.testing.assert_array_equal(loaded, X.compute())
    np.testing.assert_array_equal(mask, X.compute() > 0)
    assert weights is None
    with pytest.raises(MemoryError, match=r"in memory \(2\.56 MB with copies, 2 MB available\), because of loss='poi"):
        open_or_load(X, max_memory="2MB", **needs)
    with pytest.raises(MemoryError, match=r"because of the shape \(40, 40, 40\), which hardly compresses"):
        open_or_load(X, max_memory="2MB", rank=39)
    assert isinstance(open_or_load(X, rank=39), tuple)


def test_what_does_not_fit_is_refused_with_its_size(tmp_path):
    X = da.ones((20, 30, 40), chunks=(20, 30, 40))
    with pytest.raises(MemoryError, match=r"slabs along mode \d .*Rechunk X to be short along mode"):
        look(Source(X, limit=100_000))
    data = look(Source(X.rechunk((1, 30, 40)), limit=150_000))
    with pytest.raises(MemoryError, match="X in memory"):
        data.to_array()
    with pytest.raises(MemoryError, match="X contracted with a factor"):
        data.contract(0, np.ones((20, 10)))


def test_large_memory_maps_and_lazy_arrays_stay_out(tmp_path):
    np.save(tmp_path / "X.npy", np.ones((4, 5, 6), dtype=np.int16))
    X, needed = np.load(tmp_path / "X.npy", mmap_mode="r"), 8 * 120
    assert stays_out(X, 2 * needed - 1) and not stays_out(X, 2 * needed) and not stays_out(np.ones((4, 5)), 10)
    assert not stays_out(np.load(tmp_path / "X.npy", mmap_mode="c"), 10)  # its changes are not in the file
    assert stays_out(da.ones((2, 3)))


# data on disk: what is wrong with them


@pytest.mark.filterwarnings("error")
def test_entries_that_cannot_be_used_are_named():
    for value, dtype, text in (
        (np.nan, "f8", "X is NaN .* everywhere"),
        (np.inf, "f8", "X contains infinity in 14400 entries"),
        (1e80, "f8", "largest entry of X is 1e[+]80 in size, but float64"),
        (1e-22, "f4", "largest entry of X is 1e-22 in size, but float32"),
    ):
        with pytest.raises(ValueError, match=text):
            look(Source(da.full((12, 60, 20), value, dtype=dtype)))


def test_wrong_weights_are_refused(rng):
    X = da.from_array(rng.standard_normal((6, 7, 8)), chunks=3)
    for weights in (-np.ones(8), np.full(8, np.nan), np.full(8, np.inf), np.zeros(8)):
        with pytest.raises(ValueError, match=r"weights must be finite and at least 0|weights is zero.* everywhere"):
            look(Source(X, weights=weights))


def test_parts_of_another_shape_than_dask_was_told(rng):
    X = da.from_array(rng.standard_normal((14, 16, 40)), chunks=(14, 16, 10))
    wrong = X.map_blocks(lambda block: block[:, :10], dtype=float, meta=np.empty((0, 0, 0)))
    with pytest.raises(ValueError, match=r"A part of X has shape \(14, .*its chunks say \(14, 16, "):
        look(Source(wrong))


def test_data_that_change_between_passes_are_noticed(rng):
    X, count = da.from_array(rng.standard_normal((12, 60, 20)), chunks=(-1, 20, -1)), itertools.count()
    changing = X.map_blocks(lambda block: block + (next(count) > 4), dtype=float, meta=np.empty((0, 0, 0)))
    with pytest.raises(RuntimeError, match="X has changed since it was first read in this fit"):
        fitted(look(Source(changing)), 2)


def test_parts_that_cannot_be_read_are_named(rng, tmp_path):
    X = rng.standard_normal(PLANTED)
    array = stored(X, "zarr", tmp_path)
    [chunk] = [path for path in (tmp_path / "X.zarr").rglob("*") if path.parts[-3:] == ("1", "0", "3")]
    chunk.write_bytes(b"spoiled")
    with pytest.raises(OSError, match=r"X\[0:30, 0:24, 27:36\] cannot be read"):
        look(Source(array, limit=2**20))
    data = opened(X, "map", tmp_path)
    with open(tmp_path / "X.npy", "r+b") as handle:
        handle.truncate(2000)
    with pytest.raises(OSError, match=r"X\.npy ended before all entries were read"):
        data.to_array()

    def fail(block):
        raise ZeroDivisionError("the error of a user's function")

    with pytest.raises(ZeroDivisionError, match="of a user's function"):
        look(Source(da.ones((4, 5, 6)).map_blocks(fail, dtype=float, meta=np.empty((0, 0, 0)))))


# files and dask


def test_datasets_that_no_file_gives_by_name(rng, tmp_path, monkeypatch):
    h5py, X = pytest.importorskip("h5py"), rng.standard_normal((5, 6, 7))
    monkeypatch.chdir(tmp_path)
    with h5py.File("data.h5", "w") as file:
        file["X"], file["soft"] = X, X + 100  # the latter is not the one that is meant
    links = h5py.File("links.h5", "w")
    links["far"], links["soft"] = h5py.ExternalLink("data.h5", "/X"), h5py.SoftLink("/far")
    in_memory = h5py.File("in_memory.h5", "w", driver="core", backing_store=False).create_dataset("X", data=X)
    for dataset in (links["soft"], in_memory, h5py.File("nameless.h5", "w").create_dataset(None, data=X)):
        np.testing.assert_array_equal(look(Source(dataset)).to_array(), X)


@pytest.mark.parametrize("kind", ["zarr", "hdf5", "map"])
def test_a_file_as_a_dask_array_is_read_anywhere_and_recognized(kind, rng, tmp_path, monkeypatch):
    X = rng.standard_normal((7, 8, 9))
    monkeypatch.chdir(tmp_path)
    lazy = Source(stored(X, kind, type(tmp_path)("."))).lazy()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    for index in (2, np.s_[:, -1], (1, 2, 3), np.s_[::3, 4:1:-1], ([0, 4],), (..., 5), ()):
        np.testing.assert_array_equal(lazy[index].compute(), X[index])
    assert not Source(lazy).is_dask and Source(lazy + 1).is_dask
    np.testing.assert_array_equal(look(Source(lazy)).to_array(), X)


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_fits_are_the_same_on_a_cluster(processes, tmp_path):
    distributed = pytest.importorskip("distributed")
    X = with_gaps(planted().X, 0.2)
    expected = fitted(look(Source(da.from_array(X, chunks=CHUNKS["dask"]), limit=2**20)))
    array = stored(X, "zarr", tmp_path)
    options = {"processes": processes, "n_workers": 2 if processes else 1, "threads_per_worker": 1}
    with distributed.Client(**options, dashboard_address=None):
        for given_array in (array, da.from_array(X, chunks=CHUNKS["dask"])):
            assert_close(fitted(look(Source(given_array, limit=2**20))), expected, 1e-3)


# results of the size of the data


def test_missing_entries_are_filled_block_by_block(rng, tmp_path):
    X, hidden = rng.standard_normal((5, 6, 7)), rng.random((5, 6, 7)) < 0.3
    W = random_decomposition((5, 6, 7), "mixed", rng)
    low, high = X[~hidden].min(), X[~hidden].max()
    expected = np.where(hidden, np.clip(10 * naive.tensor(W), low, high), X)
    W = BooleanCP(W.shape, W.atoms, 10 * W.weights)
    gaps = np.where(hidden, np.nan, X)
    for array, mask in ((da.from_array(gaps, chunks=3), None), (stored(X, "zarr", tmp_path), ~hidden)):
        found = filled(array, mask, W)
        assert isinstance(found, da.Array)
        np.testing.assert_allclose(found.compute(), expected)


def test_a_description_identifies_the_data(rng, tmp_path):
    X = rng.standard_normal((5, 6, 7))
    data = opened(X, "dask", tmp_path)
    n_passes, known = data.n_passes, describe(data)
    assert known == describe(look(Source(da.from_array(X, chunks=2)))) and data.n_passes == n_passes
    assert known != describe(look(Source(da.from_array(2 * X, chunks=2))))
    assert describe(make_storage(X)) == describe(make_storage(np.asfortranarray(X))) != describe(make_storage(2 * X))
    assert describe(make_storage(X)) != describe(make_storage(X, X > 0))
    assert describe(opened(with_gaps(X, 0.2), "dask", tmp_path))["number of observed entries"] < X.size
