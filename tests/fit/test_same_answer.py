"""The same numbers give the same answer: in any memory order, as a copy, with permuted rows and modes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import assert_identical, parts, tensor, with_gaps

from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.fit.order import Order
from boolcp.fit.plan import is_rival
from boolcp.fit.starts import MAX_RIVALS, Search, find_rivals, is_different, search
from boolcp.fit.state import Round
from boolcp.io import load
from boolcp.report.words import remarks
from boolcp.result.columns import Columns, to_columns
from boolcp.storage import DenseTensor


def bits(W, order=None, rows=None):
    """Return the set of (mode, z), with modes and rows of a permuted tensor brought back to their places."""
    order = range(len(W.shape)) if order is None else order
    rows = {} if rows is None else rows
    found = set()
    for atom in W.atoms:
        mode = int(order[atom.mode])
        z = np.empty_like(atom.z)
        z[rows.get(mode, np.arange(len(z)))] = atom.z
        found.add((mode, z.tobytes()))
    return found


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_no_digit_depends_on_the_memory_order(missing):
    X = with_gaps(tensor((8, 9, 10), noise=3.0), missing)  # so much noise that a digit would lead elsewhere
    expected = BMP(3, random_state=0, n_init=2, max_iter=4).fit(X)
    orders = list(itertools.permutations(range(3)))[1:]
    for order in orders if missing == 0 else orders[-1:]:
        same = np.ascontiguousarray(X.transpose(order)).transpose(np.argsort(order))
        assert_identical(BMP(3, random_state=0, n_init=2, max_iter=4).fit(same), expected)
    wide = np.zeros((8, 18, 10))
    wide[:, ::2] = X
    assert_identical(BMP(3, random_state=0, n_init=2, max_iter=4).fit(wide[:, ::2]), expected)


def drawn(kind, rng):
    """Return data that many solutions fit about as well, in float32, and their mask and weights."""
    shape = tuple(rng.integers(5, 9, 3).tolist())
    X = rng.standard_normal(shape) + make_boolean_cp(shape, 2, random_state=int(rng.integers(2**31))).clean
    X = np.round(X) if kind == "counts" else X.astype(np.float32)
    mask = {"masked": rng.random(shape) < 0.7, "few": rng.random(shape) < 0.3}.get(kind)
    return X, {"mask": mask, "weights": rng.choice([0.0, 1.0, 2.5], shape) if kind == "weighted" else None}


@pytest.mark.parametrize("kind", ["noise", "counts", "masked", "few", "weighted"])
@settings(max_examples=3)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_digit_depends_on_the_order_of_rows_and_modes(kind, seed):
    rng = np.random.default_rng(seed)
    X, given = drawn(kind, rng)
    expected = BMP(3, random_state=0).fit(X, **given)
    order = Order(tuple(rng.permutation(3).tolist()), tuple(rng.permutation(d) for d in X.shape))

    def moved(A):
        return None if A is None else np.array(order.array(A), order=rng.choice(["C", "F"]))

    found = BMP(3, random_state=0).fit(moved(X).astype(float), **{name: moved(value) for name, value in given.items()})
    *found.path_, found.decomposition_ = order.inverse.decompositions([*found.path_, found.decomposition_])
    found.history_ = order.inverse.records(found.history_)
    assert_identical(found, expected)
    for name in ("rise", "share"):
        for a, b in zip(*(getattr(each.decomposition_.trust, name) or () for each in (found, expected)), strict=True):
            np.testing.assert_array_equal(a, b)
    if expected.background_ is not None:
        B = found.decomposition_.background
        np.testing.assert_array_equal(B.to_tensor(), expected.background_.to_tensor())


def moved_fit(X, order, mode_options, **given):
    """Return the result for a tensor in another order, brought back, with parameters that name modes."""
    options = {name: order.places(modes) for name, modes in mode_options.items()}
    W = BMP(2, random_state=0, **options).fit(order.array(X), **given).decomposition_
    return order.inverse.decompositions([W])[0]


@pytest.mark.parametrize("mode_options", [{"boolean_modes": [1]}, {"nonnegative": [2]}, {"boolean_modes": [0, 2]}])
def test_modes_that_parameters_name_are_found_again(mode_options, rng):
    X = rng.standard_normal((8, 7, 9))
    W = BMP(2, random_state=0, **mode_options).fit(X).decomposition_
    assert set(W.boolean_mode) <= set(mode_options.get("boolean_modes", range(3)))
    assert all((atom.columns(2) >= 0).all() for atom in W.atoms if "nonnegative" in mode_options)
    order = Order((2, 0, 1), tuple(rng.permutation(d) for d in X.shape))
    for a, b in zip(parts(moved_fit(X, order, mode_options)), parts(W), strict=True):
        np.testing.assert_array_equal(a, b)


def test_estimated_weights_paths_and_lists_do_not_depend_on_the_order_either(rng):
    X = rng.standard_normal((8, 7, 9))
    order = Order((2, 0, 1), tuple(rng.permutation(d) for d in X.shape))
    weights = BMP(2, random_state=0).noise_weights(X, 1)[1]
    np.testing.assert_array_equal(BMP(2, random_state=0).noise_weights(order.array(X), 2)[2], weights[order.rows[1]])
    path = BMP(2, random_state=0).fit_path(X)
    moved = order.inverse.decompositions(BMP(2, random_state=0).fit_path(order.array(X)))
    mask = rng.random(X.shape) < 0.6
    masked = BMP(2, random_state=0).fit(X, mask=mask).decomposition_
    places = rng.permutation(np.argwhere(mask))
    listed = BMP(2, random_state=0).fit((places, X[tuple(places.T)], X.shape)).decomposition_
    for V, W in [*zip(moved, path, strict=True), (listed, masked)]:
        for atom, other in zip(V.atoms, W.atoms, strict=True):
            assert atom.mode == other.mode
            np.testing.assert_array_equal(atom.z, other.z)
            np.testing.assert_array_equal(atom.dense_block(), other.dense_block())


def test_a_warm_start_goes_on_in_another_order(rng):
    X = rng.standard_normal((8, 7, 9))
    order = Order((2, 0, 1), tuple(rng.permutation(d) for d in X.shape))
    models = [BMP(2, background=None, warm_start=True, random_state=0) for _ in range(2)]
    for model, A in zip(models, (X, order.array(X)), strict=True):
        model.fit(A).set_params(n_atoms=3).fit(A)
    moved = order.inverse.decompositions(models[1].path_)
    for a, b in zip(parts(moved[-1]), parts(models[0].path_[-1]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_goes_on_with_the_same_numbers_in_another_order(rng, tmp_path):
    X = rng.standard_normal((12, 9, 10)).astype(np.float32)
    whole = BMP(3, random_state=0).fit(X)
    order = Order((0, 1, 2), tuple(rng.permutation(d) for d in X.shape))
    for at, same in enumerate((X, np.asfortranarray(X), X.astype(float), order.array(X))):
        path = tmp_path / f"{at}.npz"
        BMP(3, random_state=0).fit(X, checkpoint=path, callback=lambda seen: seen.stage == "search")
        found = BMP.resume(path, same)
        if at == 3:
            *found.path_, found.decomposition_ = order.inverse.decompositions([*found.path_, found.decomposition_])
        assert_identical(found, whole)


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float64, np.float32]))
def test_permuted_rows_and_modes_give_the_same_atoms(seed, dtype):
    rng = np.random.default_rng(seed)
    X, _, truth = make_boolean_cp((12, 14, 16), 3, noise=0.5, random_state=seed)
    expected = BMP(3, random_state=0).fit(X).decomposition_
    rows = {n: rng.permutation(d) for n, d in enumerate(X.shape)}
    order = rng.permutation(3)
    moved = X[np.ix_(*(rows[n] for n in range(3)))].transpose(order).astype(dtype)
    found = BMP(3, random_state=0).fit(moved).decomposition_
    assert bits(found, order, rows) == bits(expected) == bits(truth)


def columns(*atoms, loss):
    """Return columns of atoms given as (mode, bits) of a 10 x 10 x 10 tensor."""
    matrices = [np.ones((10, len(atoms))) for _ in range(3)]
    for k, (mode, on) in enumerate(atoms):
        matrices[mode][:, k] = np.isin(np.arange(10), on)
    return Columns(tuple(matrices), np.arange(len(atoms)), np.array([mode for mode, _ in atoms]), loss)


def test_solutions_differ_if_an_atom_has_no_counterpart():
    W = columns((0, [1, 2, 3]), (1, [4, 5]), loss=1.0)
    assert not is_different(W, columns((1, [4, 5, 6]), (0, [1, 2, 3]), loss=1.0))  # one bit of ten
    assert is_different(W, columns((1, [4, 5, 6, 7]), (0, [1, 2, 3]), loss=1.0))
    assert is_different(W, columns((2, [4, 5]), (0, [1, 2, 3]), loss=1.0))


def test_rivals_are_different_solutions_of_nearly_the_same_loss():
    best, same = columns((0, [1, 2, 3]), loss=100.0), columns((0, [1, 2]), loss=100.1)
    rival, twin, poor = (
        columns((0, [7, 8, 9]), loss=100.4),
        columns((0, [7, 8]), loss=100.45),
        columns((1, [1]), loss=101),
    )
    assert find_rivals(best, (poor, twin, rival, same)) == (rival,)
    here = Search()
    for candidate in (rival, poor, best, same, twin):
        here = here.compare(candidate, 1000.0)
    assert here.best is best and here.rivals == (rival,) and here.n_agree == 1
    others = [columns((0, [k, (k + 3) % 10, (k + 5) % 10]), loss=100.2) for k in range(10)]
    assert len(find_rivals(best, others)) <= MAX_RIVALS


def test_atoms_beside_a_background_have_rivals_of_nearly_the_same_risk():
    chosen = Round(columns((0, [1, 2, 3]), (1, [4, 5]), loss=1.0).to_decomposition(), 1.0, 100.0, 1.0)
    fewer = columns((0, [1, 2, 3]), loss=1.0).to_decomposition()
    assert is_rival(replace(chosen, W=fewer, risk=100.4), chosen)
    assert is_rival(replace(chosen, W=fewer, risk=90.0), chosen)  # left out for atoms that say more
    assert not is_rival(replace(chosen, W=fewer, risk=100.6), chosen)
    assert not is_rival(replace(chosen, risk=100.4), chosen) and not is_rival(chosen, replace(chosen, W=fewer))


def test_starts_agree_only_if_they_are_independent():
    W, poor = columns((0, [1, 2, 3]), loss=100.0), columns((1, [1]), loss=120.0)
    here = Search().compare(poor, 1.0).compare(W, 1.0, True).compare(W, 1.0, True)
    assert here.n_agree == 1 and not here.is_agreed(10)  # twice from slice pencils
    here = here.compare(W, 1.0)
    assert here.n_agree == 2 and here.is_agreed(10) and not here.is_agreed(50)
    for _ in range(8):
        here = here.compare(W, 1.0)
    assert here.is_agreed(50) and here.n_done == 12
    lower = here.compare(columns((0, [1]), loss=90.0), 1.0)
    assert lower.n_agree == 1 and not lower.has_pencil


def test_more_starts_are_run_if_many_are_asked_for(rng):
    small = DenseTensor(tensor())
    W = to_columns(BMP(3, random_state=0).fit(tensor()).decomposition_)
    counts = []
    for n_init in (1, 10, 50):
        steps = search(small, W, 3, (0, 1, 2), None, rng, Search(), n_init=n_init, is_repaired=False)
        counts.append(sum(1 for _ in steps))
    assert counts[0] == 1 and 2 <= counts[1] <= 10 <= counts[2]


def test_a_fit_tells_of_its_rivals(rng, tmp_path):
    W = BMP(3, random_state=0).fit(rng.standard_normal((20, 21, 22))).decomposition_
    assert W.trust.n_rivals > 0  # pure noise has no best atoms
    assert "Other atoms fit as well" in W.summary() and "within 0.5 %" in W.summary()
    W.save(tmp_path / "W.nc")
    assert load(tmp_path / "W.nc").trust.n_rivals == W.trust.n_rivals
    clear = BMP(3, random_state=0).fit(tensor()).decomposition_
    assert clear.trust.n_rivals == 0 and clear.trust.n_agree > 1 and "Other atoms" not in clear.summary()
    alone = replace(clear, trust=replace(clear.trust, n_agree=1))
    assert "no two starts of the search agree" in alone.summary()
    told = [str(remarks(each, {}, None)) for each in (W, alone, clear)]
    assert "within 0.5 %" in told[0] and "no two starts" in told[1] and "Other atoms" not in told[2]
