import naive
import numpy as np
import pytest

from boolcp import contractions


def close(X, answer, truth):
    np.testing.assert_allclose(answer, truth, atol=1e-5 if X.dtype == np.float32 else 1e-12)


@pytest.fixture(params=[1, 2**20], ids=["small chunks", "one chunk"])
def chunk(request, monkeypatch):
    monkeypatch.setattr(contractions, "CHUNK", request.param)


def check_all(X, mode, n_columns, rng):
    d, others = X.shape[mode], X.shape[:mode] + X.shape[mode + 1 :]
    Z, blocks = rng.standard_normal((d, n_columns)), rng.standard_normal((n_columns, *others))
    factors = [rng.standard_normal((size, n_columns)) for size in X.shape]
    factors[mode] = np.full_like(factors[mode], np.nan)  # must not be read
    before = X.copy()
    X.flags.writeable = False
    gram = contractions.gram(X, mode)
    assert gram.dtype == np.float64
    close(X, gram, [[row @ other for other in naive.unfold(X, mode)] for row in naive.unfold(X, mode)])
    close(X, contractions.contract(X, mode, Z), naive.contract(X, mode, Z))
    close(X, contractions.project(X, mode, blocks), naive.project(X, mode, blocks))
    close(X, contractions.mttkrp(X, factors, mode), naive.mttkrp(X, factors, mode))
    assert contractions.contract(X, mode, Z).dtype == contractions.project(X, mode, blocks).dtype == X.dtype
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_in_chunks_equal_sums_over_slices(dtype, chunk, rng):
    for shape in [(2, 3), (1, 1), (4, 5, 6), (3, 2, 4, 3), (1, 4, 5), (5, 4, 1), (1, 4, 1), (1, 1, 4), (4, 1, 1)]:
        for mode in range(len(shape)):
            check_all(rng.standard_normal(shape).astype(dtype), mode, 3, rng)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_mttkrp_of_many_columns_goes_in_parts(mode, chunk, rng):
    X = rng.standard_normal((4, 5, 6))
    factors = [rng.standard_normal((d, 50)) for d in X.shape]
    close(X, contractions.mttkrp(X, factors, mode), naive.mttkrp(X, factors, mode))


def test_many_columns_of_a_short_mode_are_contracted_with_a_copy(rng):
    X, Z = rng.standard_normal((4, 3, 5)), rng.standard_normal((3, 7))
    close(X, contractions.contract(X, 1, Z), naive.contract(X, 1, Z))


def test_khatri_rao_has_the_outer_products_as_columns(rng):
    A, B, C = (rng.standard_normal((d, 3)) for d in (2, 4, 3))
    product = contractions.khatri_rao([A, B, C])
    for k in range(3):
        outer = np.multiply.outer(np.multiply.outer(A[:, k], B[:, k]), C[:, k])
        np.testing.assert_allclose(product[:, k], outer.ravel())


def test_gram_product_holds_the_inner_products_of_outer_products(rng):
    A, B = ([rng.standard_normal((d, n)) for d in (2, 4, 3)] for n in (3, 5))
    full = contractions.khatri_rao(A).T @ contractions.khatri_rao(B)
    np.testing.assert_allclose(contractions.gram_product(A, None, B), full)
    rest = contractions.khatri_rao([A[0], A[2]])
    np.testing.assert_allclose(contractions.gram_product(A, 1), rest.T @ rest)


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 6), (3, 2, 4, 3)])
def test_column_mttkrp_finishes_what_a_contraction_began(shape, rng):
    X, factors = rng.standard_normal(shape), [rng.standard_normal((d, 3)) for d in shape]
    for first in range(len(shape)):
        others = [n for n in range(len(shape)) if n != first]
        T = naive.contract(X, first, factors[first])
        for at, mode in enumerate(others):
            found = contractions.column_mttkrp(T, [factors[n] for n in others], at)
            close(X, found, naive.mttkrp(X, factors, mode))
