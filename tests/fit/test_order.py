"""The canonical order of a tensor, and results that are put into an order and back."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import KINDS, parts, random_decomposition

from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.fit import order as orders
from boolcp.fit.order import Order, given_order, in_order, list_in_order, listed_sums, slice_sums
from boolcp.metrics import hamming_error
from boolcp.result.background import Background
from boolcp.result.trust import Trust


def random_order(shape, rng):
    return Order(tuple(rng.permutation(len(shape)).tolist()), tuple(rng.permutation(d) for d in shape))


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 6), min_size=2, max_size=4), st.sampled_from(KINDS))
def test_results_move_like_their_tensors(seed, shape, kind):
    rng = np.random.default_rng(seed)
    order, shape = random_order(shape, rng), tuple(shape)
    W = random_decomposition(shape, kind, rng)
    mode = int(rng.integers(len(shape)))
    right = rng.standard_normal((int(np.prod(shape)) // shape[mode], 2))
    B = Background(shape, mode, rng.standard_normal((shape[mode], 2)), right, 0.0, 0.5)
    rise = tuple(np.where(atom.z, 1.0, 0.0) for atom in W.atoms)
    W = replace(W, background=B, trust=Trust(rise=rise), undetermined={mode: rng.random(shape[mode]) < 0.5})
    V, again = order.decompositions([W, W])
    assert all(a is b for a, b in zip(V.atoms, again.atoms, strict=True))
    X = W.to_tensor()
    expected = naive.moved(X, order.modes, order.rows)
    np.testing.assert_allclose(V.to_tensor(), expected, atol=1e-12)
    np.testing.assert_array_equal(order.array(X), expected)
    np.testing.assert_allclose(V.background.to_tensor(), naive.moved(B.to_tensor(), order.modes, order.rows))
    assert all((atom.z == rise).all() for atom, rise in zip(V.atoms, V.trust.rise, strict=True))
    (back,) = order.inverse.decompositions([V])
    for a, b in zip(parts(replace(back, data_gram=None)), parts(W), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(back.undetermined[mode], W.undetermined[mode])
    np.testing.assert_array_equal(back.background.right, B.right)
    assert order.places(order.modes) == tuple(range(len(shape))) and order.shape == shape


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 6), min_size=2, max_size=4), st.booleans())
def test_sums_of_slices_are_those_of_loops(seed, shape, is_weighted):
    rng = np.random.default_rng(seed)
    X, seen = rng.standard_normal(shape).transpose(), rng.random(shape).transpose() < 0.7
    weights = rng.random(X.shape) if is_weighted else None
    factors = [rng.integers(0, 2**63, d).astype(np.uint64) for d in X.shape]
    for numbers in (orders.magnitudes(4.0, X.size), orders.scrambled):
        found = slice_sums(X, seen, weights, numbers, factors)
        expected = naive.slice_sums(numbers(X, weights) * seen, factors)
        at = np.argwhere(seen)
        listed = listed_sums(at, X[seen], None if weights is None else weights[seen], X.shape, numbers, factors)
        for a, b, c in zip(found, expected, listed, strict=True):
            assert a.tolist() == b == c.tolist()


def is_same_tensor(*pairs):
    return all((a is None and b is None) or np.array_equal(a, b, equal_nan=True) for a, b in pairs)


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.sampled_from(["real", "bits", "standardized", "antisymmetric"]),
    st.booleans(),
)
def test_the_canonical_tensor_is_the_same_for_all_orders(seed, shape, kind, is_weighted):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal([4, 4] if kind == "antisymmetric" else shape)
    if kind == "bits":
        X = (X > 0.5) * 1.0
    elif kind == "standardized":
        X /= np.linalg.norm(X.reshape(len(X), -1), axis=1).reshape(-1, *[1] * (X.ndim - 1))
    elif kind == "antisymmetric":
        X = X - X.T
    seen, weights = rng.random(X.shape) < 0.9, rng.choice([1.0, 2.0], X.shape) if is_weighted else None
    seen.flat[0] = True
    move = random_order(X.shape, rng)
    moved = [None if each is None else np.asfortranarray(move.array(each)) for each in (X, seen, weights)]
    moved[0] = np.where(moved[1], moved[0], np.nan)  # what is not observed does not matter
    _, A, mask, w = in_order(X, seen, weights)
    _, B, mask_b, w_b = in_order(*moved)
    A, B = np.where(mask, A, 0), np.where(mask_b, B, 0)
    if w is not None:
        w, w_b = w * mask, w_b * mask_b
    assert is_same_tensor((A, B), (mask, mask_b), (w, w_b))
    at = rng.permutation(np.argwhere(seen))
    place = tuple(at.T)
    order, indices, values, w_c = list_in_order(at, X[place], X.shape, None if weights is None else weights[place])
    assert [X.shape[n] for n in order.modes] == list(A.shape)
    assert is_same_tensor((indices, np.argwhere(mask)), (values, A[mask]), (w_c, None if w is None else w[mask]))


def test_copies_are_made_only_where_they_are_needed(rng, monkeypatch):
    X = in_order(rng.standard_normal((4, 5, 6)), None, None)[1]
    order, same, _, _ = in_order(X, None, None)
    assert order.is_given and same is X and order.decompositions([1]) == (1,)
    assert in_order(X.astype(np.float32), None, None)[1].dtype == float
    monkeypatch.setattr(orders, "BIG", X.size)
    assert in_order(X[::-1].astype(np.float32), None, None)[1].dtype == np.float32
    monkeypatch.setattr(orders, "MAX_ENTRIES", X.size - 1)
    reverse = X[::-1]
    order, same, _, _ = in_order(reverse, None, None)
    assert order.is_given and same is reverse and order.shape == given_order(X.shape).shape


@pytest.mark.parametrize("scale", [1e-69, 3.0, 1e69])
def test_the_unit_of_the_data_does_not_change_their_order(scale, rng):
    X = rng.standard_normal((7, 8, 9))
    first, second = in_order(X, None, None)[0], in_order(scale * X, None, None)[0]
    assert first.modes == second.modes and all(map(np.array_equal, first.rows, second.rows))


def test_data_that_are_read_in_passes_have_the_atoms_of_those_in_memory(rng):
    da = pytest.importorskip("dask.array")
    X, _, truth = make_boolean_cp((14, 40, 12), 3, noise=0.5, random_state=0)
    lazy, array = (BMP(3, random_state=0).fit(A).decomposition_ for A in (da.from_array(X, chunks=(14, 10, 12)), X))
    assert hamming_error(lazy, truth) == hamming_error(array, truth) == 0
    np.testing.assert_allclose(lazy.to_tensor(), array.to_tensor(), atol=1e-4)
