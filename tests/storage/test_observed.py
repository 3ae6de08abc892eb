import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import random_decomposition

from boolcp.bmp import BMP
from boolcp.contractions import khatri_rao
from boolcp.datasets import make_boolean_cp
from boolcp.fit.pursuit import atom_system
from boolcp.metrics import hamming_error, rmse
from boolcp.storage import (
    DenseTensor,
    ListedTensor,
    MaskedTensor,
    WeightedTensor,
    complete_tensor,
    listed_or_masked,
    make_storage,
)


def storages(X, mask):
    poisoned = np.where(mask, X, 999.0)
    return [
        MaskedTensor(poisoned, mask),
        MaskedTensor(np.asfortranarray(poisoned), mask),
        ListedTensor(np.argwhere(mask), X[mask], X.shape),
    ]


@given(
    shape=st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple),
    share=st.floats(0.05, 1.0),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None)
def test_both_storages_answer_like_the_array_with_zeros(shape, share, seed):
    rng = np.random.default_rng(seed)
    X, mask = rng.standard_normal(shape), rng.random(shape) < share
    if not mask.any():
        mask[(0,) * len(shape)] = True
    factors = [rng.standard_normal((d, 3)) for d in shape]
    zeros = np.where(mask, X, 0)
    for data in storages(X, mask):
        assert data.squared_norm == pytest.approx(np.sum(zeros**2))
        assert data.n_observed == mask.sum()
        for mode in range(len(shape)):
            unfolded, rows = naive.unfold(zeros, mode), naive.unfold(mask, mode)
            np.testing.assert_allclose(data.gram(mode), unfolded @ unfolded.T, atol=1e-12)
            np.testing.assert_allclose(data.mttkrp(factors, mode), naive.mttkrp(zeros, factors, mode), atol=1e-12)
            blocks = data.contract(mode, factors[mode])
            np.testing.assert_allclose(blocks, naive.contract(zeros, mode, factors[mode]), atol=1e-12)
            np.testing.assert_allclose(data.project(mode, blocks), naive.project(zeros, mode, blocks), atol=1e-12)
            H, P = data.normal_equations(factors, mode)
            product = khatri_rao([A for n, A in enumerate(factors) if n != mode])
            for i, row in enumerate(rows):  # least squares over the observed entries of one slice
                np.testing.assert_allclose(H[i], product[row].T @ product[row], atol=1e-12)
                np.testing.assert_allclose(P[i], product[row].T @ unfolded[i, row], atol=1e-12)
            np.testing.assert_array_equal(data.n_observed_along(mode), rows.sum(axis=1))


def test_a_weighted_list_answers_like_the_weighted_array(rng):
    X, weights = rng.standard_normal((4, 5, 6)), rng.random((4, 5, 6)) * (rng.random((4, 5, 6)) < 0.5)
    mask, W = weights > 0, random_decomposition((4, 5, 6), 1, rng)
    array, listed = WeightedTensor(X, weights), ListedTensor(np.argwhere(mask), X[mask], X.shape, weights[mask])
    factors = [rng.standard_normal((d, 3)) for d in X.shape]
    for one, other in ((array, listed), (array.residual(W), listed.residual(W))):
        assert one.squared_norm == pytest.approx(other.squared_norm)
        np.testing.assert_allclose(one.to_array(), other.to_array())
        for part in ("observed", "filled"):
            np.testing.assert_allclose(getattr(one, part)().to_array(), getattr(other, part)().to_array())
        for mode in range(3):
            for mine, theirs in zip(*(each.normal_equations(factors, mode) for each in (one, other)), strict=True):
                np.testing.assert_allclose(mine, theirs, atol=1e-12)
    np.testing.assert_allclose(array.residual(W).to_array(), weights * (X - W.to_tensor()), atol=1e-12)
    np.testing.assert_allclose(listed.restrict(W).to_array(), weights * W.to_tensor(), atol=1e-12)
    assert listed.describe() != ListedTensor(np.argwhere(mask), X[mask], X.shape).describe()


@pytest.mark.parametrize("kind", ["rank one", "rank two", "block"])
def test_residuals_and_systems_of_all_kinds_of_atoms(kind, rng):
    shape = (4, 5, 6)
    X, mask = rng.standard_normal(shape), rng.random(shape) < 0.5
    W = random_decomposition(shape, {"rank one": 1, "rank two": 2, "block": None}[kind], rng)
    atoms = [naive.atom(atom) for atom in W.atoms]
    for data in storages(X, mask):
        residual = np.where(mask, X - naive.tensor(W), 0)
        for mode in range(3):
            unfolded = naive.unfold(residual, mode)
            np.testing.assert_allclose(data.residual(W).gram(mode), unfolded @ unfolded.T, atol=1e-10)
        G, b = atom_system(data, W.atoms)
        np.testing.assert_allclose(G, [[np.sum(M * N * mask) for N in atoms] for M in atoms], atol=1e-10)
        np.testing.assert_allclose(b, [np.sum(X[mask] * M[mask]) for M in atoms], atol=1e-10)


def test_the_storage_follows_the_density(rng):
    X = rng.standard_normal((10, 10, 10))
    assert isinstance(make_storage(X), DenseTensor)
    assert isinstance(make_storage(X, rng.random(X.shape) < 0.5), MaskedTensor)
    few = rng.random(X.shape) < 0.02
    assert isinstance(make_storage(X, few), ListedTensor)
    many = rng.random(X.shape) < 0.5
    assert isinstance(listed_or_masked(np.argwhere(many), X[many], X.shape), MaskedTensor)
    assert complete_tensor(make_storage(X), 20) is not None


@pytest.mark.parametrize("missing", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_completion_recovers_bits_and_values(missing, noise):
    X, clean, truth = make_boolean_cp((30, 32, 34), 4, noise=noise, missing=missing, random_state=11)
    before = X.copy()
    model = BMP(4, random_state=0).fit(X)
    W = model.decomposition_
    np.testing.assert_array_equal(X, before)
    assert hamming_error(W, truth) == 0
    assert rmse(W, clean) <= (1e-6 if noise == 0 else 0.25)
    observed = ~np.isnan(X)
    assert W.explained() == pytest.approx(1 - np.sum((X - W.to_tensor())[observed] ** 2) / np.sum(X[observed] ** 2))
    filled = model.complete(X)
    np.testing.assert_array_equal(filled[observed], X[observed])
    np.testing.assert_allclose(
        filled[~observed], W.to_tensor()[~observed], rtol=0, atol=1e-6 + 0.1 * noise
    )  # shrunk a little
    assert "of the observed entries" in W.summary()
    for record, W_k in zip(model.history_, model.path_[1:], strict=True):
        assert record.loss == pytest.approx(np.sum((X - W_k.to_tensor())[observed] ** 2) / 2, rel=1e-6)


def test_few_observed_entries_are_listed_and_recovered():
    X, clean, truth = make_boolean_cp((60, 60, 60), 2, missing=0.96, random_state=3)
    W = BMP(2, random_state=0).fit(X).decomposition_
    assert hamming_error(W, truth) == 0 and rmse(W, clean) < 1e-6


def test_all_ways_to_say_missing_are_one():
    X, _, _ = make_boolean_cp((12, 13, 14), 2, noise=0.2, missing=0.3, random_state=2)
    observed = ~np.isnan(X)
    want = BMP(2, random_state=0).fit(X).decomposition_.to_tensor()
    for hidden in (999.0, np.inf, -np.inf, np.nan, 0.0):
        values = np.where(observed, X, hidden)
        np.testing.assert_array_equal(
            BMP(2, random_state=0).fit(values, mask=observed).decomposition_.to_tensor(), want
        )
    masked = np.ma.masked_array(np.where(observed, X, 7.0), mask=~observed)
    np.testing.assert_array_equal(BMP(2, random_state=0).fit(masked).decomposition_.to_tensor(), want)
    listed = (np.argwhere(observed), X[observed], X.shape)
    np.testing.assert_array_equal(BMP(2, random_state=0).fit(listed).decomposition_.to_tensor(), want)


def test_a_full_mask_is_no_mask():
    X = make_boolean_cp((12, 13, 14), 2, noise=0.2, random_state=2).X
    want = BMP(2, random_state=0).fit(X).decomposition_.to_tensor()
    got = BMP(2, random_state=0).fit(X, mask=np.ones(X.shape, int)).decomposition_.to_tensor()
    np.testing.assert_array_equal(got, want)


def test_slices_without_entries_are_not_invented():
    X = make_boolean_cp((20, 21, 22), 3, noise=0.1, random_state=4).X
    X = X.copy()
    X[5] = np.nan
    X[:, :, 7] = np.nan
    with pytest.warns(UserWarning, match="no observed entry"):
        model = BMP(3, random_state=0).fit(X)
    W = model.decomposition_
    assert np.isnan(W.to_tensor()[5]).all() and np.isnan(W.to_tensor()[:, :, 7]).all()
    assert np.isnan(model.complete(X)[5]).all()
    for n, index in ((0, 5), (2, 7)):
        boolean = W.boolean_mode == n
        assert np.isnan(W.factors[n][index, ~boolean]).all() and not W.factors[n][index, boolean].any()
    others = np.delete(np.delete(W.to_tensor(), 5, axis=0), 7, axis=2)
    assert np.isfinite(others).all() and W.explained() > 0.9


@pytest.mark.parametrize("atom_rank", [1, None, 2])
def test_the_pursuit_alone_is_least_squares_over_observed_entries(atom_rank):
    X, _, _ = make_boolean_cp((10, 11, 12), 3, noise=0.3, missing=0.3, random_state=6)
    observed = ~np.isnan(X)
    model = BMP(3, random_state=0, refine=False, atom_rank=atom_rank).fit(X)
    W = model.decomposition_
    residual = np.where(observed, X - W.to_tensor(), 0)
    for atom in W.atoms:
        assert abs(np.sum(residual * naive.atom(atom))) < 1e-8 * np.linalg.norm(X[observed])
    losses = [record.loss for record in model.history_]
    assert (np.diff(losses) < 0).all()


@pytest.mark.parametrize("atom_rank", [None, 2, "auto"])
def test_block_atoms_with_missing_entries(atom_rank):
    X, clean, _ = make_boolean_cp((14, 15, 16), 2, noise=0.1, missing=0.2, random_state=8)
    observed = ~np.isnan(X)
    model = BMP(3, atom_rank=atom_rank, random_state=0).fit(X)
    W = model.decomposition_
    assert W.explained() == pytest.approx(1 - np.sum((X - W.to_tensor())[observed] ** 2) / np.sum(X[observed] ** 2))
    assert W.explained() > 0.8
    if atom_rank == "auto":
        assert rmse(W, clean) < 0.5


def test_transform_with_missing_entries():
    X, _, _ = make_boolean_cp((16, 17, 18), 3, noise=0.0, random_state=9)
    model = BMP(3, random_state=0).fit(X)
    hidden = X.copy()
    hidden[np.random.default_rng(0).random(X.shape) < 0.4] = np.nan
    for mode in range(3):
        np.testing.assert_allclose(model.transform(hidden, mode=mode), model.transform(X, mode=mode), atol=1e-5)
    assert model.score(hidden) == pytest.approx(1, abs=1e-6)


BAD_LISTS = [
    ((np.zeros((3, 2), int), np.zeros(3), (4, 4, 4)), "indices must be"),
    ((np.full((1, 3), 9), np.zeros(1), (4, 4, 4)), "from 0 to one less than the sizes"),
    ((np.zeros((2, 3), int), np.ones(2), (4, 4, 4)), "twice"),
    ((np.zeros((1, 3), int), np.array([np.inf]), (4, 4, 4)), "infinity"),
    ((np.zeros((1, 3), int), np.array([np.nan]), (4, 4, 4)), "no observed"),
    ((np.zeros((1, 3), int), np.array([1j]), (4, 4, 4)), "real numbers"),
]


@pytest.mark.parametrize(("listed", "message"), BAD_LISTS)
def test_bad_lists_are_named(listed, message):
    with pytest.raises(ValueError, match=message):
        BMP(1).fit(listed)


def test_only_fit_and_transform_take_a_list():
    X = make_boolean_cp((8, 9, 10), 1, missing=0.5, random_state=0).X
    observed = ~np.isnan(X)
    model = BMP(1, random_state=0).fit((np.argwhere(observed), X[observed], X.shape))
    with pytest.raises(TypeError, match="list of observed entries"):
        model.complete((np.argwhere(observed), X[observed], X.shape))


@pytest.mark.slow
def test_few_entries_of_a_large_tensor_without_a_spectral_start():
    # the zero-filled tensor shows none of these atoms; the fading ridge finds them
    rng = np.random.default_rng(5)
    shape, n_entries = (200, 200, 200), 60000
    truth = make_boolean_cp((200, 200, 200), 4, random_state=rng).truth
    indices = np.stack(np.unravel_index(np.sort(rng.choice(8000000, n_entries, replace=False)), shape), axis=1)
    values = truth.at(indices) + rng.standard_normal(n_entries)
    W = BMP(4, certify=False, random_state=0).fit((indices, values, shape)).decomposition_
    assert hamming_error(W, truth) == 0


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("shape", [(5, 6, 9), (4, 3, 2, 9)])
def test_sums_kept_within_a_sweep_are_those_of_the_present_factors(shape, is_weighted, rng):
    mask = rng.random(shape) < 0.6
    weights = mask * (rng.random(shape) + 0.5 if is_weighted else 1.0)
    X = np.where(mask, rng.standard_normal(shape), 0.0)
    data = WeightedTensor(X, weights) if is_weighted else MaskedTensor(X, mask)
    factors = [rng.standard_normal((d, 2)) for d in shape]
    for mode in range(len(shape)):
        H, P = data.normal_equations(factors, mode)
        products = khatri_rao([A for n, A in enumerate(factors) if n != mode])
        w, Y = (np.moveaxis(Z, mode, 0).reshape(shape[mode], -1) for Z in (weights, weights * X))
        np.testing.assert_allclose(H, np.einsum("ic,ck,cl->ikl", w, products, products), atol=1e-10)
        np.testing.assert_allclose(P, Y @ products, atol=1e-10)
        factors[-1] *= [2.5, -0.3]  # another size of the columns, in place
    factors[-1][0] += 1
    H, P = data.normal_equations(factors, 1)
    fresh = WeightedTensor(X, weights) if is_weighted else MaskedTensor(X, mask)
    for found, expected in zip((H, P), fresh.normal_equations(factors, 1), strict=True):
        np.testing.assert_array_equal(found, expected)
