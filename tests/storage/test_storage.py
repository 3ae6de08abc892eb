import itertools

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import KINDS, random_decomposition

from boolcp.result.atoms import BooleanCP
from boolcp.storage import DenseTensor, TuckerTensor, compress
from boolcp.storage.tucker import leading_basis

SHAPES = [(5, 6), (4, 5, 6), (3, 4, 2, 5)]


def check_questions(data, X, rng, tolerance=1e-10):
    """Compare every answer of a storage with that of the dense tensor X."""
    close = {"rtol": 0, "atol": tolerance * np.linalg.norm(X)}
    assert data.shape == X.shape and data.ndim == X.ndim
    for mode, d in enumerate(X.shape):
        rows = naive.unfold(X, mode)
        Z, blocks = rng.standard_normal((d, 3)), rng.standard_normal((2, *np.delete(X.shape, mode)))
        factors = [rng.standard_normal((size, 3)) for size in X.shape]
        np.testing.assert_allclose(data.gram(mode), rows @ rows.T, rtol=0, atol=tolerance * max(np.sum(X**2), 1e-3))
        np.testing.assert_allclose(data.contract(mode, Z), naive.contract(X, mode, Z), **close)
        np.testing.assert_allclose(data.project(mode, blocks), naive.project(X, mode, blocks), **close)
        np.testing.assert_allclose(data.mttkrp(factors, mode), naive.mttkrp(X, factors, mode), **close)


def layouts(X, folder):
    """Yield the same tensor in many kinds of memory, with whether it is contiguous in some order."""
    yield "C order", X.copy(), True
    yield "Fortran order", np.asfortranarray(X), True
    for order in itertools.permutations(range(X.ndim)):
        yield f"order {order}", np.ascontiguousarray(X.transpose(order)).transpose(np.argsort(order)), True
    yield "strided", np.repeat(X, 2, axis=-1)[..., ::2], False
    yield "part of a larger array", np.pad(X, 1)[(slice(1, -1),) * X.ndim], False
    yield "reversed", X[::-1].copy()[::-1], False
    frozen = X.copy()
    frozen.flags.writeable = False
    yield "read-only", frozen, True
    np.save(folder / "X.npy", X)
    yield "memory-mapped", np.load(folder / "X.npy", mmap_mode="r"), True


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_any_memory_gives_the_same_answers_without_a_needless_copy(shape, dtype, rng, tmp_path, monkeypatch):
    monkeypatch.setattr("boolcp.storage.dense.BIG", 1)  # of a small array a copy is needed: see test_same_answer.py
    X = rng.standard_normal(shape).astype(dtype)
    for name, array, is_contiguous in layouts(X, tmp_path):
        before = array.copy()
        data = DenseTensor(array)
        assert np.shares_memory(data._array, array) == is_contiguous, name
        assert data.dtype == dtype
        check_questions(data, X.astype(float), rng, 1e-12 if dtype == np.float64 else 1e-6)
        assert data.squared_norm == pytest.approx(np.sum(X.astype(float) ** 2), rel=1e-6)
        np.testing.assert_array_equal(array, before)
        if dtype == np.float32:
            assert data.contract(0, np.ones((shape[0], 1))).dtype == np.float32


@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=4),
    st.sampled_from([np.float32, np.float64]),
    st.randoms(use_true_random=False),
)
def test_any_shape_and_order_of_memory(shape, dtype, random):
    rng = np.random.default_rng(random.getrandbits(32))
    order = random.sample(range(len(shape)), len(shape))
    X = rng.standard_normal(shape).astype(dtype).transpose(order)
    check_questions(DenseTensor(X), X.astype(float), rng, 1e-12 if dtype == np.float64 else 1e-5)


def test_squared_norm_of_float32_keeps_its_digits():
    X = np.full((300, 100, 100), 0.1, dtype=np.float32)
    X[0, 0, 0] = 3000
    exact = 3e6 * float(np.float32(0.1)) ** 2 - float(np.float32(0.1)) ** 2 + 9e6
    assert DenseTensor(X).squared_norm == pytest.approx(exact, rel=1e-9)


def test_the_gram_is_computed_once(rng):
    data = DenseTensor(rng.standard_normal((4, 5, 6)))
    assert data.gram(1) is data.gram(1)


def test_normal_equations_are_those_of_dense_least_squares(rng):
    X = rng.standard_normal((4, 5, 6))
    factors = [rng.standard_normal((d, 2)) for d in X.shape]
    for mode in range(3):
        H, P = DenseTensor(X).normal_equations(factors, mode)
        others = [A for n, A in enumerate(factors) if n != mode]
        products = np.einsum("ak,bk->abk", *others).reshape(-1, 2)
        best = np.linalg.lstsq(products, naive.unfold(X, mode).T, rcond=None)[0].T
        np.testing.assert_allclose(np.linalg.solve(H, P.T).T, best)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_residual_answers_like_the_dense_difference(shape, kind, rng):
    X = rng.standard_normal(shape)
    W = random_decomposition(shape, kind, rng)
    R = X - naive.tensor(W)
    for array in (X, np.asfortranarray(X)):
        residual = DenseTensor(array).residual(W)
        check_questions(residual, R, rng)
        assert residual.squared_norm == pytest.approx(np.sum(R**2))
        np.testing.assert_array_equal(residual.gram(0), residual.gram(0).T)


def test_the_residual_of_nothing_is_the_tensor(rng):
    X = rng.standard_normal((4, 5, 6))
    residual = DenseTensor(X).residual(BooleanCP(X.shape))
    check_questions(residual, X, rng)
    assert residual.squared_norm == pytest.approx(np.sum(X**2))


def test_the_residual_of_an_exact_sum_is_zero(rng):
    W = random_decomposition((4, 5, 6), "mixed", rng)
    residual = DenseTensor(naive.tensor(W)).residual(W)
    assert 0 <= residual.squared_norm < 1e-12
    assert np.abs(residual.gram(1)).max() < 1e-12


def random_tucker(shape, ranks, rng):
    core = rng.standard_normal(ranks)
    bases = [np.linalg.qr(rng.standard_normal((d, r)))[0] for d, r in zip(shape, ranks, strict=True)]
    X = core
    for mode, U in enumerate(bases):
        X = np.moveaxis(np.tensordot(U, X, axes=(1, mode)), 0, mode)
    return TuckerTensor(DenseTensor(core), bases, np.sum(X**2)), X


@pytest.mark.parametrize(("shape", "ranks"), [((5, 6), (2, 3)), ((4, 5, 6), (2, 3, 6)), ((3, 4, 2, 5), (2, 2, 1, 3))])
def test_a_tucker_tensor_answers_like_the_dense_one(shape, ranks, rng):
    data, X = random_tucker(shape, ranks, rng)
    check_questions(data, X, rng)
    for kind in KINDS:
        W = random_decomposition(shape, kind, rng)
        residual = data.residual(W)
        check_questions(residual, X - naive.tensor(W), rng)
        assert residual.squared_norm == pytest.approx(np.sum((X - naive.tensor(W)) ** 2))


@pytest.mark.parametrize("shape", [(10, 12, 14), (4, 60, 5), (40, 4, 4), (6, 5, 8, 7), (20, 30)])
def test_compression_of_a_tensor_of_low_rank_is_exact(shape, rng):
    _, X = random_tucker(shape, [min(2, d) for d in shape], rng)
    data = compress(DenseTensor(X), 2)
    assert isinstance(data, TuckerTensor) and data.core.shape == (2,) * len(shape)
    assert data.squared_norm == pytest.approx(np.sum(X**2))
    for U in data.bases:
        np.testing.assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=1e-12)
    check_questions(data, X, rng)


def test_compression_loses_no_more_than_the_discarded_singular_values(rng):
    X = rng.standard_normal((8, 9, 10))
    data = compress(DenseTensor(X), 4)
    identity = np.eye(8)
    approximation = np.moveaxis(data.contract(0, identity), 0, 0)
    discarded = sum(np.sum(np.linalg.svd(naive.unfold(X, mode))[1][4:] ** 2) for mode in range(3))
    assert np.sum((X - approximation) ** 2) <= discarded
    assert data.squared_norm == pytest.approx(np.sum(X**2))


def test_compression_that_saves_little_returns_the_tensor_itself(rng):
    data = DenseTensor(rng.standard_normal((4, 5, 6)))
    assert compress(data, 5) is data


def test_compression_keeps_short_modes_whole(rng):
    X = rng.standard_normal((3, 20, 30))
    data = compress(DenseTensor(X), 6)
    np.testing.assert_array_equal(data.bases[0], np.eye(3))
    assert data.core.shape == (3, 6, 6)


@pytest.mark.parametrize("shape", [(5, 6, 7), (4, 5, 3, 6)])
def test_the_inner_residual_is_the_residual_projected_onto_the_bases(shape, rng):
    data = random_tucker(shape, [3] * len(shape), rng)[0]
    W = random_decomposition(shape, "rank one", rng)
    found, expected = data.inner_residual(W), data.to_array() - naive.tensor(W)
    for mode, U in enumerate(data.bases):
        expected = np.moveaxis(np.tensordot(U @ U.T, expected, (1, mode)), 0, mode)
    np.testing.assert_allclose(found.to_array(), expected, atol=1e-10)
    assert found.squared_norm == pytest.approx(np.sum(expected**2))
    opened = found.opened(1)
    for mode, U in enumerate(data.bases):
        expected = expected if mode == 1 else np.moveaxis(np.tensordot(U.T, expected, (1, mode)), 0, mode)
    np.testing.assert_allclose(opened.to_array(), expected, atol=1e-10)


@pytest.mark.parametrize("shape", [(5, 6, 7), (5, 30, 7), (4, 3, 24, 5)])  # of the last two the products share a pass
def test_products_asked_ahead_are_those_asked_later(shape, rng):
    X = rng.standard_normal(shape)
    data = DenseTensor(X)
    first, second, third = ([rng.standard_normal((d, K)) for d in X.shape] for K in (2, 3, 2))
    data.ask_ahead([first, second])
    known = data._products
    data.ask_ahead([second, first])
    assert data._products is known  # nothing is asked twice
    for factors in (first, second, third):
        for mode in range(len(shape)):
            np.testing.assert_allclose(data.mttkrp(factors, mode), naive.mttkrp(X, factors, mode), atol=1e-10)


def test_leading_directions_have_a_settled_sign(rng):
    X = rng.standard_normal((9, 8, 7))
    for mode in range(3):
        U, V = (leading_basis(DenseTensor(Y), mode, 3) for Y in (X, np.asfortranarray(-X)))
        np.testing.assert_allclose(U, V, atol=1e-10)
        assert (U[np.argmax(np.abs(U), axis=0), range(3)] > 0).all()
