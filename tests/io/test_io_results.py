import json

import numpy as np
import pytest
import xarray as xr
from samples import KINDS, random_decomposition

import boolcp
from boolcp.io import FileError, load_provenance, results
from boolcp.result.labels import Labels


@pytest.fixture
def fitted(rng):
    X = boolcp.datasets.make_boolean_cp((8, 9, 10), 3, noise=0.1, random_state=rng).X
    coords = {"channel": [f"E{n}" for n in range(8)], "time": ("time", np.arange(9) / 100, {"units": "s"})}
    coords["area"] = "channel", list("AABBCCDD")
    X = xr.DataArray(X, coords, ("channel", "time", "trial"), name="voltage")
    return X, boolcp.BMP(3, random_state=7).fit(X)


def assert_same(W, V):
    assert W.shape == V.shape and W.n_atoms == V.n_atoms
    np.testing.assert_array_equal(W.weights, V.weights)
    for first, second in zip(W.atoms, V.atoms, strict=True):
        assert first.mode == second.mode and first.rank == second.rank
        np.testing.assert_array_equal(first.z, second.z)
        np.testing.assert_array_equal(first.dense_block(), second.dense_block())
        np.testing.assert_equal(first.certificate, second.certificate)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 6), (2, 3, 4, 3)])
def test_all_kinds_of_atoms_come_back(kind, shape, tmp_path, rng):
    W = random_decomposition(shape, kind, rng)
    W.save(tmp_path / "w.nc")
    assert_same(boolcp.load(tmp_path / "w.nc"), W)
    assert boolcp.load(tmp_path / "w.nc").labels is None


def test_a_result_without_atoms_comes_back(tmp_path):
    boolcp.BooleanCP((2, 3)).save(tmp_path / "w.nc")
    assert_same(boolcp.load(tmp_path / "w.nc"), boolcp.BooleanCP((2, 3)))


def test_labels_shares_and_certificates_come_back(tmp_path, fitted):
    X, model = fitted
    boolcp.save(model, tmp_path / "w.nc", data=X)
    W, V = boolcp.load(tmp_path / "w.nc"), model.decomposition_
    assert_same(W, V)
    assert W.summary() == V.summary()
    assert W.labels.dims == ("channel", "time", "trial") and W.labels.name == "voltage"
    assert W.labels.coords["channel"].tolist() == [f"E{n}" for n in range(8)] and "trial" not in W.labels.coords
    assert W.labels.units == {"time": "s"} and W.labels.extra["area"][1].tolist() == list("AABBCCDD")


def test_a_fit_with_missing_entries_comes_back(tmp_path, rng):
    X = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, missing=0.2, random_state=rng).X
    X[3] = np.nan
    with pytest.warns(UserWarning):
        W = boolcp.BMP(2, random_state=0).fit(X).decomposition_
    W.save(tmp_path / "w.nc")
    V = boolcp.load(tmp_path / "w.nc")
    assert V.summary() == W.summary() and "observed" in V.summary()
    np.testing.assert_allclose(V.to_tensor(), W.to_tensor())
    assert np.isnan(V.to_tensor()[3]).all()


def test_provenance(tmp_path, fitted):
    X, model = fitted
    boolcp.save(
        model, tmp_path / "w.nc", data=X.assign_attrs(source="x.nc", preparation=["z-score"]), notes={"why": "test"}
    )
    provenance = load_provenance(tmp_path / "w.nc")
    assert provenance["versions"]["boolcp"] == boolcp.__version__
    assert provenance["parameters"]["n_atoms"] == 3 and provenance["random_state"] == 7
    assert provenance["data"]["fingerprint"] == results.fingerprint(X) and provenance["data"]["source"] == "x.nc"
    assert provenance["data"]["preparation"] == ["z-score"] and provenance["why"] == "test"
    assert [step["loss"] for step in provenance["history"]] == [step.loss for step in model.history_]


def test_the_fingerprint_sees_every_entry_and_not_the_memory_order(rng):
    X = rng.standard_normal((3, 4, 5))
    same = [np.asfortranarray(X), xr.DataArray(X), np.moveaxis(np.ascontiguousarray(np.moveaxis(X, 0, 2)), 2, 0)]
    assert {results.fingerprint(Y) for Y in same} == {results.fingerprint(X)}
    Y = X.copy()
    Y[2, 3, 4] = np.nextafter(Y[2, 3, 4], 1)
    others = [Y, X.astype(np.float32), X.reshape(4, 3, 5)]
    assert len({results.fingerprint(Z) for Z in (X, *others)}) == 4


def test_xarray_reads_the_file(tmp_path, fitted):
    boolcp.save(fitted[1], tmp_path / "w.nc")
    W = fitted[1].decomposition_
    with xr.open_dataset(tmp_path / "w.nc") as dataset:
        assert dataset["factor_channel"].dims == ("channel", "atom")
        np.testing.assert_array_equal(dataset["factor_trial"], W.factors[2])
        np.testing.assert_array_equal(dataset["certificate"], [atom.certificate for atom in W.atoms])
        assert dataset.attrs["format"] == "boolcp decomposition"


def test_a_result_is_not_overwritten_unless_asked(tmp_path):
    W = boolcp.BooleanCP((2, 3))
    W.save(tmp_path / "w.nc")
    with pytest.raises(FileError, match="exists already"):
        W.save(tmp_path / "w.nc")
    W.save(tmp_path / "w.nc", overwrite=True)


def test_the_folder_of_a_fit_is_loaded_by_its_name(tmp_path, fitted):
    folder = tmp_path / "result"
    folder.mkdir()
    with pytest.raises(FileError, match=r"is a folder without decomposition\.nc"):
        boolcp.load(folder)
    boolcp.save(fitted[1], folder / "decomposition.nc")
    assert boolcp.load(folder).n_atoms == boolcp.load(folder / "decomposition.nc").n_atoms


def test_endings_of_other_formats_are_refused(tmp_path, fitted):
    with pytest.raises(FileError, match=r"w\.npz: a result is saved as netCDF. Choose a name that ends in \.nc"):
        boolcp.save(fitted[1], tmp_path / "w.npz")
    np.save(tmp_path / "x.npy", np.eye(3))
    with pytest.raises(FileError, match=r"is a \.npy file, not a saved result. Data is read by open_tensor"):
        boolcp.load(tmp_path / "x.npy")


def test_foreign_truncated_and_newer_files(tmp_path, fitted):
    path = tmp_path / "w.nc"
    fitted[0].to_netcdf(path, engine="h5netcdf")
    with pytest.raises(FileError, match="not a decomposition that boolcp saved"):
        boolcp.load(path)
    boolcp.save(fitted[1], path, overwrite=True)
    content = path.read_bytes()
    for share in (0.2, 0.6, 0.95):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(FileError, match=r"w\.nc: .*(not a readable|not a decomposition)"):
            boolcp.load(path)
    path.write_bytes(content)
    dataset = xr.load_dataset(path, engine="h5netcdf")
    dataset.assign_attrs(format_version=99).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(FileError, match="format version 99"):
        boolcp.load(path)
    dataset.drop_vars("weight").to_netcdf(path, engine="h5netcdf")
    with pytest.raises(FileError, match="not a readable decomposition"):
        boolcp.load(path)
    with pytest.raises(FileError, match="is a folder"):
        boolcp.load(tmp_path)


def test_only_results_are_saved(tmp_path):
    with pytest.raises(TypeError, match="BooleanCP or a fitted model"):
        boolcp.save({"weights": 1}, tmp_path / "w.nc")


def test_dims_called_like_those_of_the_file(tmp_path, rng):
    from dataclasses import replace

    W = replace(random_decomposition((4, 5, 6), "mixed", rng), labels=Labels(("atom", "term", "weight")))
    W.save(tmp_path / "w.nc")
    V = boolcp.load(tmp_path / "w.nc")
    assert_same(V, W)
    assert V.dims == ("atom", "term", "weight")


def test_the_file_holds_no_pickle_and_json_provenance(tmp_path, fitted):
    boolcp.save(fitted[1], tmp_path / "w.nc")
    with xr.open_dataset(tmp_path / "w.nc") as dataset:
        assert json.loads(dataset.attrs["provenance"])["method"] == "BMP"
        assert all(variable.dtype.kind in "fiuUbO" for variable in dataset.variables.values())
