import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from samples import KINDS, parts, random_decomposition

import boolcp
from boolcp.io import FileError, load_provenance
from boolcp.result.labels import Labels
from boolcp.storage.dense import fingerprint


@pytest.fixture
def fitted(rng):
    X = boolcp.datasets.make_boolean_cp((8, 9, 10), 3, noise=0.1, random_state=rng).X
    coords = {"channel": [f"E{n}" for n in range(8)], "time": ("time", np.arange(9) / 100, {"units": "s"})}
    coords["area"] = "channel", list("AABBCCDD")
    X = xr.DataArray(X, coords, ("channel", "time", "trial"), name="voltage")
    return X, boolcp.BMP(3, random_state=7).fit(X)


def assert_same(W, V):
    assert W.shape == V.shape
    for x, y in zip(parts(W), parts(V), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 6), (2, 3, 4, 3)])
def test_all_kinds_of_atoms_come_back(kind, shape, tmp_path, rng):
    for n_atoms in (5, 0):
        W = random_decomposition(shape, kind, rng, n_atoms=n_atoms)
        W.save(tmp_path / "w.nc", overwrite=True)
        V = boolcp.load(tmp_path / "w.nc")
        assert_same(V, W)
        assert V.labels is None


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


def test_provenance_and_what_xarray_reads(tmp_path, fitted):
    X, model = fitted
    boolcp.save(
        model, tmp_path / "w.nc", data=X.assign_attrs(source="x.nc", preparation=["z-score"]), notes={"why": "test"}
    )
    provenance = load_provenance(tmp_path / "w.nc")
    assert provenance["versions"]["boolcp"] == boolcp.__version__
    assert provenance["parameters"]["n_atoms"] == 3 and provenance["random_state"] == 7
    assert provenance["data"]["fingerprint"] == fingerprint(X.values) and provenance["data"]["source"] == "x.nc"
    assert provenance["data"]["preparation"] == ["z-score"] and provenance["why"] == "test"
    assert [step["loss"] for step in provenance["history"]] == [step.loss for step in model.history_]
    W = model.decomposition_
    with xr.open_dataset(tmp_path / "w.nc") as dataset:
        assert dataset["factor_channel"].dims == ("channel", "atom")
        np.testing.assert_array_equal(dataset["factor_trial"], W.factors[2])
        np.testing.assert_array_equal(dataset["certificate"], [atom.certificate for atom in W.atoms])
        assert dataset.attrs["format"] == "boolcp decomposition"


def test_what_is_no_result_is_refused(tmp_path, fitted):
    path = tmp_path / "w.nc"
    with pytest.raises(FileError, match=r"is a folder without decomposition\.nc"):
        boolcp.load(tmp_path)
    boolcp.save(fitted[1], tmp_path / "decomposition.nc")
    assert boolcp.load(tmp_path).n_atoms == 3
    with pytest.raises(TypeError, match="BooleanCP or a fitted model"):
        boolcp.save({"weights": 1}, path)
    with pytest.raises(FileError, match=r"w\.npz: a result is saved as netCDF. Choose a name that ends in \.nc"):
        boolcp.save(fitted[1], tmp_path / "w.npz")
    np.save(tmp_path / "x.npy", np.eye(3))
    with pytest.raises(FileError, match=r"is a \.npy file, not a saved result. Read data with boolcp.open_tensor"):
        boolcp.load(tmp_path / "x.npy")
    fitted[0].to_netcdf(path, engine="h5netcdf")
    with pytest.raises(FileError, match="not a decomposition that boolcp saved"):
        boolcp.load(path)


def test_a_truncated_or_damaged_file_is_refused(tmp_path, fitted, rng):
    path = tmp_path / "w.nc"
    boolcp.save(fitted[1], path)
    content = path.read_bytes()
    for share in (0.2, 0.6, 0.95):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(FileError, match=r"w\.nc: .*(not a readable|not a decomposition)"):
            boolcp.load(path)
    for place in rng.integers(len(content) - 64, size=20).tolist():
        path.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
        with pytest.raises(FileError, match=r"w\.nc: "):
            boolcp.load(path)


TAKEN = ["atom", "term", "other_atom", "weight", "rank", "boolean_mode", "n_ones", "data_gram", "alone", "verdict"]
TAKEN += ["factor_a", "undetermined_b", "block_0", "term_atom", "replication"]
ODD = ["a/b", "/", ".", "..", "", "two words", " lead", "line\nbreak", "50 %", "é", "_nc4_non_coord_x", "_", "a_b_0"]


def known(W, rng):
    """Return a decomposition with all that a fit knows of its data, some of it unobserved."""
    inner, gram = rng.standard_normal(W.n_atoms), np.eye(W.n_atoms)
    unknown = {1: np.arange(W.shape[1]) == 0}
    return replace(W, data_norm2=9.0, data_inner=inner, data_gram=gram, undetermined=unknown)


def test_all_names_of_the_tensor_come_back(tmp_path, rng):
    names = TAKEN + ODD
    for start in range(0, len(names), 8):  # as modes with coordinates, and as further coordinates
        dims = tuple((names[start:] + names)[:8])
        W = known(random_decomposition((2,) * 8, "rank one", rng, n_atoms=3), rng)
        coords, units = {dim: np.array(["A", "B"]) for dim in dims[::2]}, {dims[0]: "s"}
        extra = {name: (dims[1], np.array([n, n + 1])) for n, name in enumerate(names) if name not in dims}
        W = replace(W, labels=Labels(dims, coords, units, extra, "voltage", "uV"))
        W.save(tmp_path / "w.nc", overwrite=True)
        V = boolcp.load(tmp_path / "w.nc")
        both = [vars(labels).items() for labels in (V.labels, W.labels)]
        np.testing.assert_equal(*({k: v if isinstance(v, str | tuple) else dict(v) for k, v in own} for own in both))
        np.testing.assert_array_equal(V.to_tensor(), W.to_tensor())
        np.testing.assert_array_equal(V.explained_alone(), W.explained_alone())


def entry(name, index, value):
    def change(dataset):
        values = dataset[name].values.copy()
        values[index] = value
        return dataset.assign({name: (dataset[name].dims, values)})

    return change


def header(**parts):
    return lambda d: d.assign_attrs(header=json.dumps(json.loads(d.attrs["header"]) | parts))


FORGED = {
    "no weights": (lambda d: d.drop_vars("weight"), "it has no"),
    "no factors": (lambda d: d.drop_vars("factor_time").assign_coords(time=range(9)), "it has no factor_time"),
    "no header": (lambda d: d.drop_attrs().assign_attrs(d.attrs | {"header": "{"}), "not a readable decomposition"),
    "a newer version": (lambda d: d.assign_attrs(format_version=99), "format version 99"),
    "dims that are not there": (header(dims=["a", "b", "c"]), r"its modes are \('a', 'b', 'c'\)"),
    "a weight that is NaN": (entry("weight", 1, np.nan), "weight must be finite"),
    "a mode of 3": (entry("boolean_mode_index", 0, 3), "along mode"),
    "a z that is zero": (lambda d: forge(d, 0, slice(None), 0.0), "no entry that is on"),
    "a factor that is infinite": (lambda d: forge(d, 1, 1, np.inf), "must be finite"),
}


def forge(dataset, step, rows, value):
    """Change the first atom in its Boolean mode, or in the next one."""
    mode = (int(dataset["boolean_mode_index"][0]) + step) % 3
    return entry(f"factor_{('channel', 'time', 'trial')[mode]}", (rows, 0), value)(dataset)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The path of a result, which tests may overwrite, and its Dataset."""
    path = tmp_path_factory.mktemp("forged") / "w.nc"
    X = boolcp.datasets.make_boolean_cp((8, 9, 10), 3, noise=0.1, random_state=0).X
    boolcp.save(boolcp.BMP(3, random_state=0).fit(xr.DataArray(X, dims=("channel", "time", "trial"))), path)
    return path, xr.load_dataset(path, engine="h5netcdf")


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_result_is_refused_in_one_line(name, saved):
    (path, dataset), (change, words) = saved, FORGED[name]
    changed = change(dataset)
    changed.to_netcdf(path, engine="h5netcdf")
    with pytest.raises(FileError, match=words) as caught:
        boolcp.load(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[1]", '{"method": "f(1)"}', '{"parameters": {"open(": 1}}', '{"data": 5}'])
def test_a_forged_provenance_is_refused(text, saved):
    path, dataset = saved
    dataset.assign_attrs(provenance=text).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(FileError, match="not a readable decomposition"):
        load_provenance(path)
    assert boolcp.load(path).n_atoms == 3, "the atoms are still there"


def test_what_could_not_be_loaded_is_not_saved(tmp_path, rng):
    W = random_decomposition((4, 5, 6), "mixed", rng)
    for spoilt, words in (
        (replace(W, weights=np.full(W.n_atoms, np.nan)), "weight must be finite"),
        (replace(W, atoms=(replace(W.atoms[0], z=np.zeros(4)), *W.atoms[1:])), "atom 0 has no entry that is on"),
    ):
        with pytest.raises(ValueError, match=words):
            spoilt.save(tmp_path / "w.nc")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_what_is_known_about_trust_comes_back(missing, tmp_path):
    X = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=1.0, missing=missing, random_state=0).X
    W = boolcp.assess(X, boolcp.decompose(X, 2, n_init=2, random_state=0), n_parts=2, random_state=0)
    W.save(tmp_path / "w.nc")
    V = boolcp.load(tmp_path / "w.nc")
    for p, q in zip(V.bit_confidence(), W.bit_confidence(), strict=True):
        np.testing.assert_array_equal(p, q)
    names = ("sigma", "odds", "p_value", "replication", "same_bits", "on_off", "groups", "has_runs", "amplitude")
    for name in (*names, "parts", "stands_out"):
        np.testing.assert_equal(getattr(V.trust, name), getattr(W.trust, name))
    assert V.summary() == W.summary()
    dataset = xr.load_dataset(tmp_path / "w.nc")
    mode = f"mode{W.atoms[0].mode}"
    np.testing.assert_array_equal(dataset[f"bit_confidence_{mode}"].values[:, 0], W.bit_confidence()[0])
    assert dataset["verdict"].values.tolist() == [verdict.text for verdict in boolcp.verdicts(W)]
