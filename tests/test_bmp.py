from inspect import signature

import naive
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import boolcp
from boolcp.bmp import BMP, decompose
from boolcp.datasets import make_boolean_cp
from boolcp.metrics import hamming_error


def sample(shape=(20, 24, 28), n_atoms=3, noise=0.3, seed=0):
    return make_boolean_cp(shape, n_atoms, noise=noise, random_state=seed)


@parametrize_with_checks([BMP(n_atoms=2, n_init=2, random_state=0), BMP.as_published(2, random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("model", [BMP(3, mean=True, boolean_modes=[0], n_init=2), BMP.as_published(2)])
def test_parameters_survive_a_clone_and_nothing_is_known_before_the_fit(model):
    assert clone(model).get_params() == model.get_params()
    assert list(model.get_params()) == sorted(signature(BMP.__init__).parameters.keys() - {"self"})
    X = np.ones((3, 4, 5))
    for use in (model.transform, model.complete, model.score, model.inverse_transform):
        with pytest.raises(NotFittedError):
            use(X)


def test_integers_of_numpy_are_as_good_as_those_of_python():
    X, two = sample((8, 9, 10), 2).X, np.int64(2)
    for given in ({}, {"atom_rank": two}, {"n_init": two, "max_iter": np.int32(5)}):
        W = decompose(X, two, random_state=0, **given)
        same = decompose(X, 2, random_state=0, **{name: int(value) for name, value in given.items()})
        np.testing.assert_array_equal(W.to_tensor(), same.to_tensor())
        assert type(W.trust.n_asked) is int


def test_wrong_options_are_named_with_what_is_close():
    X = sample((8, 9, 10), 2).X
    for call, words in (
        (lambda: decompose(X, "x"), "n_atoms must be an integer or \"auto\", got 'x'"),
        (lambda: decompose(X, 2, n_inits=3), r"decompose\(\) has no option 'n_inits': do you mean n_init\?"),
        (lambda: decompose(X, 2, maks=X > 0), "do you mean mask"),
        (lambda: decompose(X, 2, foo=3), "has no option 'foo'. Options are the parameters of BMP"),
        (lambda: boolcp.select_n_atoms(X, n_atoms=3), r"select_n_atoms\(\) has no option 'n_atoms': .* max_atoms"),
        (lambda: decompose(X, 2, mask="no"), "mask must be an array of the shape of X, .* got 'no'"),
    ):
        with pytest.raises(TypeError, match=words):
            call()


def test_fit_sets_what_it_promises():
    X, _, truth = sample()
    before = X.copy()
    model = BMP(3, random_state=0).fit(X)
    np.testing.assert_array_equal(X, before)
    assert model.n_iter_ == 3 and model.converged_ and "number of atoms" in model.stop_reason_
    assert len(model.path_) == 4 and len(model.history_) == 3
    W = model.decomposition_
    assert hamming_error(W, truth) == 0
    for n in range(3):
        assert set(np.unique(W.factors[n][:, W.boolean_mode == n])) <= {0.0, 1.0}
    assert W.explained() == pytest.approx(1 - np.sum((X - W.to_tensor()) ** 2) / np.sum(X**2))
    assert W.explained() >= model.path_[-1].explained()
    for record, W_k in zip(model.history_, model.path_[1:], strict=True):
        # the loss of the pursuit is that on the core
        assert record.loss == pytest.approx(np.sum((X - naive.tensor(W_k)) ** 2) / 2, rel=1e-4)
        assert (record.mode, record.n_ones) == (W_k.atoms[-1].mode, W_k.atoms[-1].n_ones) and record.seconds > 0
    sizes = W.weights * np.sqrt([atom.n_ones for atom in W.atoms])
    assert (np.diff(sizes) <= 0).all() and (W.weights > 0).all()


def test_every_form_of_a_seed():
    X = sample((15, 15, 15), 5, noise=2.0).X
    forms = [7, np.int64(7), lambda: np.random.default_rng(7), lambda: np.random.RandomState(7)]
    for form in forms:
        first, second = (decompose(X, 5, random_state=form() if callable(form) else form) for _ in range(2))
        np.testing.assert_array_equal(first.to_tensor(), second.to_tensor())
    rng = np.random.default_rng(7)
    model = BMP(2, random_state=rng).fit(X)
    assert rng.random() != np.random.default_rng(7).random()  # a generator is used, so that two fits differ
    assert model.random_state is rng
    for free in (None, np.random):
        assert decompose(X, 1, random_state=free).n_atoms == 1


def test_the_path_has_every_number_of_atoms_refined():
    X = sample((15, 16, 17), 4).X
    model = BMP(4, random_state=0).fit(X)
    assert [W.n_atoms for W in model.path_] == [0, 1, 2, 3, 4] and model.n_passes_ == 0
    errors = [np.sum((X - naive.tensor(W)) ** 2) for W in model.path_]
    assert (np.diff(errors) < 0).all()
    assert errors[-1] == pytest.approx(np.sum((X - naive.tensor(model.decomposition_)) ** 2), rel=1e-3)
    for W, error in zip(model.path_, errors, strict=True):
        assert W.explained() == pytest.approx(1 - error / errors[0], abs=1e-9)
        for atom in W.atoms:  # the gradient along each atom vanishes: its weight is that of least squares
            assert abs(np.sum((X - naive.tensor(W)) * naive.atom(atom))) < 1e-3 * np.sqrt(error)
    alone = BMP(2, random_state=0).fit(X).path_[1]
    assert hamming_error(alone, model.path_[1]) == 0


def test_boolean_modes_are_given_by_number_or_by_name():
    xr = pytest.importorskip("xarray")
    X = sample((10, 12, 14), 2).X
    assert set(decompose(X, 2, boolean_modes=[-1], random_state=0).boolean_mode) == {2}
    labelled = xr.DataArray(X, dims=("channel", "time", "trial"))
    W = BMP(2, boolean_modes=["trial", "channel"], random_state=0).fit(labelled).decomposition_
    assert W.dims == ("channel", "time", "trial") and set(W.boolean_mode) <= {0, 2}
    assert "channel" in W.summary() or "trial" in W.summary()
    with pytest.raises(ValueError, match=r"'place'.*not among"):
        BMP(2, boolean_modes=["place"]).fit(labelled)


def test_zero_tensor_has_no_atoms():
    with pytest.warns(UserWarning, match="zero everywhere"):
        model = BMP(3).fit(np.zeros((4, 5, 6)))
    assert model.decomposition_.n_atoms == 0 and model.stop_reason_ == "the tensor is zero"
    np.testing.assert_array_equal(model.decomposition_.to_tensor(), np.zeros((4, 5, 6)))


def test_transform_of_the_training_data_gives_the_factor_back():
    X = sample((20, 24, 28), 6).X
    model = BMP(6, random_state=0).fit(X)
    W = model.decomposition_
    for mode in range(3):
        T = model.transform(X, mode=mode)
        boolean = W.boolean_mode == mode
        np.testing.assert_array_equal(T[:, boolean], W.factors[mode][:, boolean])
        np.testing.assert_allclose(T[:, ~boolean], W.factors[mode][:, ~boolean], atol=1e-4)
        np.testing.assert_allclose(model.inverse_transform(T, mode=mode), W.to_tensor(), atol=1e-2)


def test_transform_of_new_trials_is_the_best_over_all_bits():
    X, _, _ = sample((6, 20, 22), 4)
    model = BMP(4, boolean_modes=[0], random_state=0).fit(X)
    new = sample((5, 20, 22), 4, seed=3).X
    T = model.transform(new)
    assert T.shape == (5, 4) and set(np.unique(T)) <= {0.0, 1.0}
    patterns = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(float)
    errors = [np.sum((new - model.inverse_transform(np.tile(b, (5, 1)))) ** 2, axis=(1, 2)) for b in patterns]
    best = np.min(errors, axis=0)
    np.testing.assert_allclose(np.sum((new - model.inverse_transform(T)) ** 2, axis=(1, 2)), best)


def test_transform_with_rank_two_atoms():
    X = sample((12, 13, 14), 2).X
    model = BMP(2, atom_rank=2, boolean_modes=[0, 1], random_state=0).fit(X)
    T = model.transform(X)
    n_columns = sum(1 if atom.mode == 0 else atom.rank for atom in model.decomposition_.atoms)
    assert T.shape == (12, n_columns)
    assert model.score(X) >= model.decomposition_.explained() - 1e-9


BAD = {
    "empty": (np.zeros((0, 3, 3)), {}, ValueError, "X is empty"),
    "one mode": (np.zeros(5), {}, ValueError, "at least 2 is needed"),
    "object": (np.array([[{}, {}], [{}, {}]], dtype=object), {}, TypeError, "X has dtype object"),
    "text": (np.array([["a", "b"], ["c", "d"]]), {}, ValueError, "X has dtype <U1"),
    "complex": (np.ones((3, 3)) * 1j, {}, ValueError, "Complex data not supported"),
    "infinite": (np.array([[1.0, np.inf], [1, 2]]), {}, ValueError, "infinity in 1 entries"),
    "ragged": ([[1.0, 2.0], [3.0]], {}, ValueError, "X cannot be converted to an array .* all have the same length"),
    "path": ("data.npy", {}, TypeError, r"X is the text 'data.npy', not an array; .* boolcp.open_tensor"),
    "overflow": (np.full((3, 3), 1e80), {}, ValueError, "largest entry of X is 1e[+]80 in size, but float64 .* unit"),
    "overflow 32": (np.full((3, 3), 1e17, np.float32), {}, ValueError, "float32 arithmetic is reliable only"),
    "underflow": (np.full((3, 3), -1e-80), {}, ValueError, "largest entry of X is 1e-80"),
    "underflow 32": (np.full((3, 3), 1e-22, np.float32), {}, ValueError, "largest entry of X is 1e-22"),
    "all NaN": (np.full((3, 3), np.nan), {}, ValueError, "no entry is observed"),
    "n_atoms 0": (np.ones((3, 3)), {"n_atoms": 0}, ValueError, "n_atoms must be at least 1, got 0"),
    "n_atoms 2.5": (np.ones((3, 3)), {"n_atoms": 2.5}, TypeError, "n_atoms must be an integer"),
    "mode 7": (np.ones((3, 3)), {"boolean_modes": [7]}, ValueError, "boolean_modes holds 7"),
    "no modes": (np.ones((3, 3)), {"boolean_modes": []}, ValueError, "boolean_modes is empty"),
    "named mode": (np.ones((3, 3)), {"boolean_modes": ["time"]}, ValueError, "no dimension names"),
    "mode 1.5": (np.ones((3, 3)), {"boolean_modes": [1.5]}, TypeError, "boolean_modes holds 1.5"),
    "rank 0": (np.ones((3, 3)), {"atom_rank": 0}, ValueError, "atom_rank must be at least 1"),
    "rank text": (np.ones((3, 3)), {"atom_rank": "full"}, ValueError, "atom_rank must be an integer or"),
    "loss": (np.ones((3, 3)), {"loss": "cauchy"}, ValueError, "loss must be one of 'squared'"),
    "nonnegative mode": (np.ones((3, 3)), {"nonnegative": [3]}, ValueError, "nonnegative holds 3"),
    "nonnegative block": (np.ones((3, 3)), {"nonnegative": [0], "atom_rank": "block"}, ValueError, "all modes or none"),
    "published signs": (np.ones((3, 3)), {"nonnegative": True, "refine": False}, ValueError, "need refine=True"),
    "flag": (np.ones((3, 3)), {"refine": "yes"}, TypeError, "refine must be True or False, got 'yes'"),
    "mean": (np.ones((3, 3)), {"mean": 1}, TypeError, "mean must be True or False, got 1"),
    "n_init": (np.ones((3, 3)), {"n_init": 0}, ValueError, "n_init must be at least 1, got 0"),
    "max_iter": (np.ones((3, 3)), {"max_iter": 1.5}, TypeError, "max_iter must be an integer, got 1.5"),
    "sigma": (np.ones((3, 3)), {"sigma": np.nan}, ValueError, "sigma must be finite and at least 0"),
    "max_memory": (np.ones((3, 3)), {"max_memory": "much"}, ValueError, "max_memory"),
    "seed": (np.ones((3, 3)), {"random_state": "x"}, (TypeError, ValueError), "random_state must be"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    X, options, error, message = BAD[name]
    with pytest.raises(error, match=message):
        BMP(**options).fit(X)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones((2, 3), bool), "mask has shape"),
        (np.zeros((3, 3), bool), "False everywhere"),
        (np.full((3, 3), 2), "Boolean"),
    ],
)
def test_bad_masks_are_named(mask, message):
    with pytest.raises(ValueError, match=message):
        BMP(1).fit(np.ones((3, 3)), mask=mask)


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e-17), (np.float32, 1e13), (float, 1e-69), (float, 1e69)])
@pytest.mark.parametrize("options", [{}, {"atom_rank": "block"}, {"atom_rank": 2}])
def test_the_unit_of_the_data_does_not_matter(dtype, scale, options):
    X, _, truth = sample((8, 9, 10), 2)
    X /= np.abs(X).max()
    for missing in (0, 0.2):
        X[np.random.default_rng(0).random(X.shape) < missing] = np.nan
        W = decompose((scale * X).astype(dtype), 2, random_state=0, n_init=2, **options)
        assert hamming_error(W, truth) == 0
        rel = 2e-2 if options.get("atom_rank") == 2 else 1e-4  # atoms of rank two are more than these data determine
        expected = decompose(X, 2, random_state=0, n_init=2, **options).explained()
        assert W.explained() == pytest.approx(expected, rel=rel)


@pytest.mark.parametrize("options", [{}, {"atom_rank": "block"}])
def test_a_mode_of_size_one_is_boolean_only_if_asked_for(options):
    X = sample((12, 15, 8), 2).X[:, :, :1]
    assert 2 not in decompose(X, 2, random_state=0, **options).boolean_mode
    assert set(decompose(X, 2, boolean_modes=[2], random_state=0, **options).boolean_mode) == {2}
    assert decompose(np.ones((1, 1, 1)), 1, **options).n_atoms == 1


def test_a_callback_that_cannot_be_called_is_named():
    with pytest.raises(TypeError, match="callback must be a function of one argument"):
        BMP(1).fit(np.ones((3, 3)), callback=3)


def test_new_data_may_be_new_along_any_mode_counted_from_either_end():
    X = sample((8, 9, 10), 2).X
    model = BMP(2, random_state=0).fit(X)
    for mode in range(3):
        some = np.take(X, [1, 3, 4], axis=mode)
        np.testing.assert_allclose(model.transform(some, mode=mode), model.transform(X, mode=mode)[[1, 3, 4]])
    factor = model.transform(X, mode=-1)
    assert np.array_equal(factor, model.transform(X, mode=2))
    estimate = model.inverse_transform(factor, mode=-1)
    assert np.array_equal(estimate, model.inverse_transform(factor, mode=2)) and estimate.shape == X.shape


def test_wrong_shapes_after_the_fit_are_named():
    model = BMP(2, random_state=0).fit(sample((8, 9, 10), 2).X)
    with pytest.raises(ValueError, match="only mode 0 may differ"):
        model.transform(np.ones((4, 9, 11)))
    with pytest.raises(ValueError, match="was fitted: pass data of that shape"):
        model.complete(np.ones((7, 9, 10)))
    with pytest.raises(ValueError, match="2 columns"):
        model.inverse_transform(np.ones((4, 3)))
    block = BMP.as_published(2, boolean_modes=[1]).fit(sample((8, 9, 10), 2).X)
    with pytest.raises(ValueError, match="dense along mode 0"):
        block.transform(np.ones((4, 9, 10)))


def test_block_atoms_are_scored_as_they_are():
    X = sample((8, 9, 10), 2).X
    model = BMP.as_published(2, random_state=0).fit(X)
    assert model.score(X) == pytest.approx(model.decomposition_.explained())
