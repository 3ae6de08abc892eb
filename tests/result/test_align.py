import numpy as np
import pytest
import xarray as xr

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
