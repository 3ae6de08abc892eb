"""The number of atoms by held-out error, also of tiny data; atoms that come back in other fits."""

import warnings

import numpy as np
import pytest

from boolcp import metrics
from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.trust.selection import Selection, select_n_atoms
from boolcp.trust.stability import stability


def sample(noise=0.5, n_atoms=3, shape=(20, 22, 24), seed=1):
    return make_boolean_cp(shape, n_atoms, noise=noise, random_state=seed)


@pytest.mark.parametrize("scheme", ["entries", "slabs"])
def test_the_true_number_is_chosen(scheme):
    X = sample().X
    selection = select_n_atoms(X, 5, splits=2, scheme=scheme, n_init=3, random_state=0)
    assert selection.n_atoms == 3
    assert selection.errors.shape == (2, 6)
    assert 0.45 < selection.mean[3] < 0.6  # the noise cannot be predicted, and nothing else is left
    assert "<- chosen" in selection.summary().splitlines()[2 + 3]


@pytest.mark.filterwarnings("default::boolcp.BoolcpWarning")  # the largest number may be chosen
def test_the_number_of_jobs_changes_nothing():
    X = sample(shape=(8, 9, 10)).X
    first, second = (select_n_atoms(X, 2, splits=2, n_jobs=n, n_init=1, random_state=0).errors for n in (1, 2))
    np.testing.assert_array_equal(first, second)


def test_the_fit_itself_is_judged_and_one_that_drops_an_atom_is_the_last():
    """The error of a split falls to the noise; further numbers of atoms, which are not fitted, count as the last."""
    X = sample(n_atoms=2, noise=0.5, shape=(14, 15, 16)).X
    errors = select_n_atoms(X, 9, splits=2, random_state=0).errors
    assert (np.diff(errors[:, :3], axis=1) < 0).all()
    assert (errors[:, 6:] == errors[:, 5:6]).all() and errors[:, 2:].min() > 0.45
    with pytest.warns(UserWarning, match="largest one tried"):
        few = select_n_atoms(X, 2, splits=2, random_state=0).errors
    np.testing.assert_array_equal(few, errors[:, :3])


def test_the_smallest_number_within_one_standard_error_is_chosen():
    X = sample(noise=3.0).X
    least, frugal = (select_n_atoms(X, 6, splits=3, rule=rule, n_init=2, random_state=0) for rule in ("min", "one-se"))
    np.testing.assert_array_equal(least.errors, frugal.errors)
    assert least.n_atoms == np.argmin(least.mean)
    limit = least.mean.min() + least.standard_error[least.n_atoms]
    assert frugal.n_atoms == np.flatnonzero(frugal.mean <= limit)[0] <= least.n_atoms


def test_held_out_error_ignores_values_that_are_missing_anyway():
    X, _, _ = sample()
    X = X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    assert select_n_atoms(X, 4, splits=2, n_init=3, random_state=0).n_atoms == 3


def test_a_choice_at_the_edge_is_pointed_out():
    with pytest.warns(UserWarning, match="largest one tried, 2"):
        selection = select_n_atoms(sample().X, 2, splits=2, n_init=2, random_state=0)
    assert selection.is_at_edge and "largest number tried" in selection.summary()
    assert not Selection(1, np.ones((2, 3)), "entries", "min").is_at_edge


def test_path_of_refined_estimates_falls():
    X = sample().X
    path = BMP(5, random_state=0).fit(X).path_
    losses = [np.sum((X - W.to_tensor()) ** 2) for W in path]
    assert [W.n_atoms for W in path] == [0, 1, 2, 3, 4, 5]
    assert (np.diff(losses) < 0).all()


@pytest.mark.parametrize("scheme", ["seeds", "bootstrap", "halves"])
def test_clear_atoms_come_back_with_sure_bits(scheme):
    X = sample(noise=0.3).X
    result = stability(X, 3, n_runs=2, scheme=scheme, random_state=0)
    assert result.similarity.shape == (4 if scheme == "halves" else 2, 3)
    np.testing.assert_array_equal(result.recurrence, 1.0)
    for atom, p in zip(result.decomposition.atoms, result.bit_probability, strict=True):
        seen = np.isfinite(p)
        np.testing.assert_array_equal(p[seen], atom.z[seen])
    assert "100 %" in result.summary()


def test_atoms_of_noise_do_not_come_back(rng):
    result = stability(rng.standard_normal((12, 13, 14)), 3, n_runs=2, scheme="halves", n_init=2, random_state=0)
    assert result.recurrence.mean() < 0.5


def test_modes_may_be_named():
    import xarray as xr

    X, _, _ = make_boolean_cp((12, 13, 14), 1, noise=0.1, boolean_modes=[1], random_state=0)
    named = xr.DataArray(X, dims=("channel", "time", "trial"))
    options = {"boolean_modes": ["time"], "mode": "trial", "random_state": 0}
    result = stability(named, 1, n_runs=2, scheme="halves", **options)
    assert result.recurrence.tolist() == [1.0] and result.decomposition.boolean_mode.tolist() == [1]
    chosen = select_n_atoms(named, 2, splits=2, **options)
    plain = select_n_atoms(X, 2, splits=2, boolean_modes=[1], mode=2, random_state=0)
    np.testing.assert_array_equal(chosen.errors, plain.errors)


def test_an_atom_that_never_came_back_has_no_sure_bits(rng):
    text = stability(rng.standard_normal((9, 10, 11)), 2, n_runs=1, n_init=2, random_state=0).summary()
    assert "nan" not in text and text.rstrip().endswith("-")


def test_bad_arguments_are_named():
    X = sample().X
    for options, message in [
        ({"scheme": "rows"}, "scheme must be one of"),
        ({"held_out": 1.5}, "held_out is the share"),
        ({"rule": "elbow"}, "rule must be one of"),
        ({"mode": 5}, "holds 5"),
    ]:
        with pytest.raises(ValueError, match=message):
            select_n_atoms(X, 2, **options)
    with pytest.raises(ValueError, match="scheme must be one of"):
        stability(X, 2, scheme="luck")


def test_plots_show_the_numbers():
    pytest.importorskip("matplotlib").use("Agg")
    errors = np.array([[3.0, 2.0, 1.0, 1.1], [3.2, 2.2, 1.2, 1.3]])
    ax = Selection(2, errors, "entries", "one-se").plot()
    np.testing.assert_allclose(ax.lines[0].get_ydata(), errors.mean(axis=0))
    result = stability(sample(noise=0.3, shape=(8, 9, 10)).X, 2, n_runs=2, random_state=0)
    ax = result.plot(1)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], result.bit_probability[1])


def test_stability_says_which_fits():
    X = sample(noise=0.3, shape=(8, 9, 10)).X
    for scheme, words in [
        ("seeds", "1 fit with other seeds"),
        ("halves", "2 fits to halves along mode 1"),
        ("bootstrap", "1 fit to bootstrap samples along mode 1"),
    ]:
        result = stability(X, 2, n_runs=1, scheme=scheme, mode=1, n_init=2, random_state=0)
        assert result.over == words and words in result.summary() and words in repr(result)
    with pytest.raises(ValueError, match="pass a decomposition of X"):
        stability(X, reference=result.decomposition[:1].__class__((8, 9, 11)))


def test_auto_fits_as_many_atoms_as_selection_chooses():
    X, _, truth = make_boolean_cp((14, 15, 16), 2, noise=0.5, random_state=0)
    model = BMP("auto", n_init=1, max_iter=10, random_state=0).fit(X)
    assert model.selection_.n_atoms == model.decomposition_.n_atoms == 2 and not model.selection_.is_at_edge
    assert metrics.hamming_error(model.decomposition_, truth) == 0
    assert model.get_params()["n_atoms"] == "auto" and model.transform(X).shape[-1] == 2
    with pytest.raises(TypeError, match="n_atoms"):
        BMP("many").fit(X)


def test_auto_warns_if_no_atom_predicts(rng):
    with pytest.warns(UserWarning, match="No number of atoms predicts"):
        model = BMP("auto", n_init=1, max_iter=5, random_state=0).fit(rng.standard_normal((7, 8, 9)))
    assert model.selection_.n_atoms == 0 and model.decomposition_.n_atoms == 1


def test_parts_without_data_in_a_slice_are_no_reason_to_warn(recwarn):
    X, _, _ = make_boolean_cp((6, 7, 8), 1, noise=0.1, random_state=0)
    X[:, 3, :7] = np.nan  # seen in the last trial only
    stability(X, 1, n_runs=2, atom_rank=1, random_state=0)
    assert not [one for one in recwarn if "slice(s)" in str(one.message)]


@pytest.mark.filterwarnings("error::boolcp.DegenerateAtomsWarning")
def test_fits_that_are_only_judged_warn_of_no_atoms(rng):
    assert select_n_atoms(rng.standard_normal((6, 7, 8)), 3, splits=2, n_init=1, random_state=0).errors.shape == (2, 4)


@pytest.mark.parametrize(
    ("shape", "mode"), [((1, 4), -1), ((2, 2), 0), ((3, 2, 1), 1), ((2, 1, 3), 0), ((3, 2, 3, 2), 3), ((4, 3), -1)]
)
@pytest.mark.parametrize("kind", ["noise", "ones", "zeros", "gaps", "one slab"])
def test_slabs_of_tiny_data(shape, mode, kind, rng):
    """Each of these is selected from, or refused with what to do; nothing else."""
    X = {"ones": np.ones(shape), "zeros": np.zeros(shape)}.get(kind, rng.standard_normal(shape))
    if kind == "gaps":
        X[rng.random(shape) < 0.4] = np.nan
    if kind == "one slab":
        np.moveaxis(X, mode, 0)[1:] = 0
    for seed, held_out in enumerate((0.1, 0.5, 0.9)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that the choice is the largest, or slices are empty
                options = {"mode": mode, "held_out": held_out, "random_state": seed, "n_init": 1, "max_iter": 5}
                found = select_n_atoms(X, 2, splits=3, scheme="slabs", **options)
        except ValueError as error:
            assert "needs two or more slabs with two or more observed entries each" in str(error)
            n_known = np.isfinite(X).sum(axis=tuple(n for n in range(X.ndim) if n != mode % X.ndim))
            assert np.sum(n_known >= 2) < 2
        else:
            assert np.isfinite(found.errors).all() and 0 <= found.n_atoms <= 2


def test_a_last_mode_of_size_one_has_no_slabs_to_hold_out(rng):
    with pytest.raises(ValueError, match=r"along mode 2 needs two or more slabs .*there are 1: hold out slabs along"):
        select_n_atoms(rng.standard_normal((4, 5, 1)), 2, scheme="slabs")
    with pytest.raises(ValueError, match="two or more observed entries"):
        select_n_atoms(np.ones((1, 1)), 1)


def test_a_single_slice_has_no_halves():
    X = make_boolean_cp((8, 9, 1), 1, noise=0.1, random_state=0).X
    for scheme in ("halves", "bootstrap"):
        with pytest.raises(ValueError, match=f"has a single slice, of which there are no {scheme}: draw slices along"):
            stability(X, 1, n_runs=1, scheme=scheme)
    assert stability(X, 1, n_runs=1, mode=0).recurrence.shape == (1,)
