import numpy as np
import pytest
import xarray as xr

import boolcp
from boolcp.result.labels import Labels, align, read_labels

NAMES = ["Fz", "Cz", "O1", "O2"]


@pytest.fixture
def X(rng):
    coords = {"channel": NAMES, "time": np.arange(5) / 100, "trial": [3, 7, 9]}
    return xr.DataArray(rng.standard_normal((4, 5, 3)), coords, ("channel", "time", "trial"))


@pytest.mark.parametrize("kind", ["data", "labels"])
def test_permuted_labels_and_modes_are_put_in_order(X, kind, rng):
    like = X if kind == "data" else read_labels(X)[1]
    mixed = X.isel(channel=rng.permutation(4), trial=rng.permutation(3), time=rng.permutation(5))
    np.testing.assert_array_equal(align(mixed.transpose("trial", "channel", "time"), like), X.values)
    np.testing.assert_array_equal(align(mixed.assign_coords(trial=mixed["trial"].astype(float)), like), X.values)
    np.testing.assert_array_equal(align(X.assign_coords(time=X["time"].astype(np.float32)), like), X.values)


def test_arrays_without_labels_are_taken_by_position(X):
    assert align(X.values, X) is X.values
    np.testing.assert_array_equal(align(X.values.tolist(), X), X.values)
    np.testing.assert_array_equal(align(xr.DataArray(X.values), X), X.values)
    np.testing.assert_array_equal(align(X[::-1].drop_vars("channel"), X), X.values[::-1])
    np.testing.assert_array_equal(align(X[::-1], None), X.values[::-1])
    np.testing.assert_array_equal(align(X[::-1], Labels(("channel", "time", "trial"))), X.values[::-1])


def test_repeated_labels_keep_their_order(X):
    twice = X.assign_coords(channel=["a", "a", "b", "b"])
    np.testing.assert_array_equal(align(twice, twice), X.values)
    with pytest.raises(ValueError, match="differs along mode 'channel'"):
        align(twice.isel(channel=[0, 2, 1, 3]), twice)


def test_arrays_over_some_modes_broadcast(X):
    weights = xr.DataArray([[1.0, 2, 3, 4]], {"trial": [7], "channel": NAMES[::-1]}, ("trial", "channel"))
    assert align(weights.isel(trial=0, drop=True), X, partial=True)[:, 0, 0].tolist() == [4, 3, 2, 1]
    with pytest.raises(ValueError, match=r"it lacks 3, 9"):
        align(weights, X, partial=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda X: X.assign_coords(channel=["Fz", "Cz", "F3", "O2"]),
            "W differs .* it lacks O1 and it has the unknown F3",
        ),
        (lambda X: X[:3], "along mode 'channel': it lacks O2"),
        (lambda X: X.assign_coords(time=X["time"] + 0.5), "along mode 'time'"),
        (lambda X: X.assign_coords(time=np.arange(5) / 50), "along mode 'time'"),
        (lambda X: X.rename(trial="state"), "modes channel, time, state, but they must be channel, time, trial"),
        (lambda X: X.isel(trial=0), "has the modes channel, time, but"),
        (lambda X: X[:3].drop_vars("channel"), "has 3 entries along mode 'channel' instead of 4"),
    ],
)
def test_what_differs_is_named(X, change, words):
    with pytest.raises(ValueError, match=words):
        align(change(X), X, name="W")


def test_new_entries_of_a_free_mode(X):
    new = X.assign_coords(trial=[20, 21, 22]).isel(trial=[0, 1], channel=[3, 2, 1, 0])
    np.testing.assert_array_equal(align(new, X, free=["trial"]), X.values[:, :, :2])


def test_dask_arrays_stay_lazy(X):
    lazy = pytest.importorskip("dask.array")
    assert isinstance(align(X.chunk()[::-1], X), lazy.Array)


# wherever labelled arrays meet

ORDER = {"channel": [2, 0, 3, 1], "time": [4, 2, 0, 1, 3], "trial": [1, 2, 0]}
BACK = {dim: np.argsort(order) for dim, order in ORDER.items()}


@pytest.fixture
def known(X, rng):
    return X + 3 * np.multiply.outer(np.multiply.outer([1, 0, 1, 1], np.arange(5)), [1, 2, 0.5])


@pytest.mark.parametrize("mode", ["channel", "time", "trial"])
def test_new_data_meet_a_fit_by_their_labels(known, mode, rng):
    model = boolcp.BMP(1, random_state=0).fit(known)
    mask, weights = rng.random(known.shape) < 0.9, rng.random((4, 1, 1)) + 0.5
    expected = model.transform(known, mode=mode, mask=mask, weights=weights)
    others = {dim: order for dim, order in ORDER.items() if dim != mode}
    mixed = known.isel(others).transpose("trial", "time", "channel")
    same = known.copy(data=mask).isel(others).transpose(*mixed.dims).values  # without labels in the order of the data
    W = weights[others["channel"]] if mode != "channel" else weights
    found = model.transform(mixed, mode=mode, mask=same, weights=np.moveaxis(W, 0, -1).reshape(1, 1, 4))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    with pytest.raises(ValueError, match="has the unknown F3"):
        model.transform(known.assign_coords(channel=["F3", *NAMES[1:]]), mode="time")
    with pytest.raises(ValueError, match="rename them"):
        model.transform(known.rename(time="frequency"), mode=mode)


def test_filled_and_scored_data_keep_their_own_order(known):
    model = boolcp.BMP(1, random_state=0).fit(known)
    holes = known.where(known.copy(data=np.arange(60).reshape(known.shape) % 7 > 0))
    mixed = holes.isel(ORDER).transpose("time", "trial", "channel")
    found = model.complete(mixed)
    assert found.dims == mixed.dims and found["channel"].identical(mixed["channel"])
    xr.testing.assert_allclose(found.transpose(*known.dims).isel(BACK), model.complete(holes))
    assert model.score(mixed) == pytest.approx(model.score(holes))
    W = model.decomposition_
    first, second = (boolcp.residuals.residual_check(X, W).rms for X in (known, known.isel(ORDER)))
    assert first == pytest.approx(second)
    assert W.certify(known.isel(ORDER)).atoms[0].certificate == pytest.approx(W.certify(known).atoms[0].certificate)


@pytest.mark.parametrize("name", ["mask", "weights"])
def test_masks_and_weights_meet_data_by_their_labels(known, name, rng):
    given = known.copy(data=rng.random(known.shape))
    given = given < 0.8 if name == "mask" else given
    fits = [boolcp.decompose(known, 1, random_state=0, **{name: G}) for G in (given, given.isel(ORDER).transpose())]
    fits.append(boolcp.decompose(known, 1, random_state=0, **{name: given.values}))
    for W in fits[1:]:
        np.testing.assert_array_equal(W.to_tensor(), fits[0].to_tensor())
    with pytest.raises(ValueError, match=rf"{name} differs along mode 'channel': it lacks O2"):
        boolcp.decompose(known, 1, **{name: given.assign_coords(channel=["Fz", "Cz", "O1", "F3"])})
    with pytest.raises(ValueError, match=f"{name} differs along mode 'channel'"):
        boolcp.select_n_atoms(known, max_atoms=1, **{name: given[:3]})


def test_bad_parts_meet_data_by_their_labels(known):
    table = {"channel": ["O2", "Fz"], "trial": [9, 3]}
    found = boolcp.prepare.reject(known.isel(ORDER), table=table)
    xr.testing.assert_equal(found.isel(BACK), boolcp.prepare.reject(known, table=table))
    with pytest.raises(TypeError, match="A table is a pandas DataFrame or a dict"):  # an array has no labels
        boolcp.prepare.reject(known, table=known > 0)
