from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from samples import random_decomposition

import boolcp
from boolcp.result.labels import Labels, mode_names, read_labels


def labelled(X):
    coords = {"channel": list("abcdefgh"), "time": ("time", np.arange(9) / 100, {"units": "s"})}
    coords |= {"area": ("channel", list("AABBCCDD")), "depth": ("channel", np.arange(8.0), {"units": "mm"})}
    return xr.DataArray(X, coords | {"subject": "S1"}, ("channel", "time", "trial"), name="voltage")


@pytest.fixture
def X(rng):
    return labelled(boolcp.datasets.make_boolean_cp((8, 9, 10), 3, noise=0.1, random_state=rng).X)


def test_labels_are_read(X):
    array, labels = read_labels(X)
    assert isinstance(array, np.ndarray) and labels.dims == ("channel", "time", "trial")
    assert labels.coords["channel"].tolist() == list("abcdefgh") and set(labels.coords) == {"channel", "time"}
    assert labels.units == {"time": "s", "depth": "mm"} and labels.name == "voltage"
    assert labels.extra["area"][0] == "channel" and set(labels.extra) == {"area", "depth"}


def test_plain_arrays_have_no_labels():
    assert read_labels(np.eye(3))[1] is None
    assert mode_names(boolcp.BooleanCP((2, 3))) == ("mode0", "mode1")


def test_labels_do_not_change_the_numbers(X):
    W, V = (boolcp.decompose(data, 3, random_state=0) for data in (X, X.values))
    np.testing.assert_array_equal(W.to_tensor(), V.to_tensor())


def test_labels_come_through_a_fit_to_the_dataset_and_the_summary(X):
    W = boolcp.decompose(X, 3, random_state=0)
    dataset = W.to_xarray()
    for name in ("channel", "time", "area", "depth"):
        xr.testing.assert_identical(dataset[name].reset_coords(drop=True), X[name].reset_coords(drop=True))
    for mode, dim in enumerate(X.dims):
        np.testing.assert_array_equal(dataset[f"factor_{dim}"], W.factors[mode])
    assert dataset["n_ones"].values.tolist() == [atom.n_ones for atom in W.atoms]
    assert dataset["boolean_mode"].values.tolist() == [X.dims[atom.mode] for atom in W.atoms]
    assert "8 channel x 9 time x 10 trial" in W.summary()


def test_the_dataset_rebuilds_the_tensor(X):
    W = boolcp.decompose(X, 3, random_state=0)
    d = W.to_xarray()
    tensor = (d["weight"] * d["factor_channel"] * d["factor_time"] * d["factor_trial"]).sum("atom")
    np.testing.assert_allclose(tensor.transpose(*X.dims).values, W.to_tensor(), atol=1e-12)


def test_atoms_of_higher_rank_and_blocks(rng):
    W = random_decomposition((4, 5, 6), "mixed", rng)
    d = W.to_xarray()
    terms = d["term_atom"].values
    assert [np.sum(terms == k) for k in range(W.n_atoms)] == [atom.rank or 1 for atom in W.atoms]
    for k, atom in enumerate(W.atoms):
        z = d[f"factor_mode{atom.mode}"].values[:, terms == k]
        assert (z == atom.z[:, None]).all()
        if atom.rank is None:
            np.testing.assert_array_equal(d[f"block_{k}"], atom.block)
            assert f"mode{atom.mode}" not in d[f"block_{k}"].dims


def test_undetermined_entries_are_nan(rng):
    X = boolcp.datasets.make_boolean_cp((8, 9, 10), [0, 1, 1], noise=0.1, random_state=rng).X
    X[3] = np.nan
    with pytest.warns(UserWarning):
        W = boolcp.decompose(X, 2, boolean_modes=[1, 2], random_state=0)
    factor = W.to_xarray()["factor_mode0"].values
    assert np.isnan(factor[3]).all() and np.isfinite(np.delete(factor, 3, axis=0)).all()


def test_the_table_of_atoms(X):
    W = boolcp.decompose(X, 3, random_state=0)
    table = W.to_dataframe()
    assert list(table.index) == [0, 1, 2] and table.index.name == "atom"
    assert list(table["n_ones"]) == [atom.n_ones for atom in W.atoms]
    assert list(table["boolean_mode"]) == [X.dims[atom.mode] for atom in W.atoms]
    np.testing.assert_allclose(table["alone"], W.explained_alone())
    assert "alone" not in boolcp.BooleanCP((2, 3)).to_dataframe()


def test_objects_become_text():
    coords = {"a": np.array(["x", 3], dtype=object), "b": np.array([1, 2.5], dtype=object)}
    labels = read_labels(xr.DataArray(np.eye(2), coords, ("a", "b")))[1]
    assert labels.coords["a"].tolist() == ["x", "3"] and labels.coords["b"].tolist() == [1.0, 2.5]


def test_dims_named_atom_do_not_collide(rng):
    W = replace(random_decomposition((4, 5), "rank one", rng), labels=Labels(("atom", "x")))
    assert W.to_xarray()["boolcp_factor_atom"].dims == ("atom", "boolcp_atom")


def test_modes_are_called_by_name_in_transform_too(X):
    model = boolcp.BMP(2, random_state=0).fit(X)
    by_name, by_index = model.transform(X, mode="trial"), model.transform(X.values, mode=2)
    np.testing.assert_array_equal(by_name, by_index)
    again = model.inverse_transform(by_name, mode="trial")
    np.testing.assert_array_equal(again, model.inverse_transform(by_index, mode=-1))
    with pytest.raises(ValueError, match="mode names 'area', which is not among"):
        model.transform(X, mode="area")


def test_a_dataset_is_refused_by_name():
    data = xr.Dataset({"lfp": (("a", "b"), np.eye(3)), "eye": (("a", "b"), np.eye(3))})
    with pytest.raises(TypeError, match=r"Dataset with several arrays \('lfp', 'eye'\)"):
        boolcp.decompose(data, 1)
