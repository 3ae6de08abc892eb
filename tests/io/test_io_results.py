import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from samples import KINDS, random_decomposition

import boolcp
from boolcp.io import FileError, load_provenance, results
from boolcp.result.background import Background
from boolcp.result.labels import Labels
RESERVED=set()
from boolcp.result.trust import Trust


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
    with pytest.raises(FileError, match=r"is a \.npy file, not a saved result. Read data with boolcp.open_tensor"):
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
    for version in (0, 99):
        dataset.assign_attrs(format_version=version).to_netcdf(path, engine="h5netcdf")
        with pytest.raises(FileError, match=f"format version {version}"):
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


# Names of the tensor that are names of the file, or that the file cannot hold

TAKEN = [*sorted(RESERVED), "factor_a", "undetermined_a", "block_0", "block_4"]
ODD = ["a/b", "/", ".", "..", "", "two words", " lead", "line\nbreak", "50 %", "é", "_nc4_non_coord_x", "_", "a_b_0"]


def known(W, rng):
    """Return a decomposition with all that a fit knows of its data, some of it unobserved."""
    inner, gram = rng.standard_normal(W.n_atoms), np.eye(W.n_atoms)
    unknown = {1: np.arange(W.shape[1]) == 0}
    return replace(W, data_norm2=9.0, data_inner=inner, data_gram=gram, undetermined=unknown)


def assert_same_labels(a, b):
    assert (a.dims, a.name, a.value_unit, a.units) == (b.dims, b.name, b.value_unit, b.units)
    assert a.coords.keys() == b.coords.keys() and a.extra.keys() == b.extra.keys()
    for name in a.coords:
        np.testing.assert_array_equal(a.coords[name], b.coords[name])
    for name in a.extra:
        assert a.extra[name][0] == b.extra[name][0]
        np.testing.assert_array_equal(a.extra[name][1], b.extra[name][1])


@pytest.mark.parametrize("kind", ["rank one", "mixed"])
def test_every_variable_of_a_file_has_a_reserved_name(kind, rng):
    W = replace(known(random_decomposition((4, 5, 6), kind, rng), rng), labels=Labels(("a", "b", "c")))
    dataset = results._complete(W.to_xarray(), W)
    for name in {*dataset.variables, *dataset.dims} - {"a", "b", "c"}:
        assert name_prefix(replace(W, labels=Labels(("a", "b", "c"), extra={name: ("a", np.arange(4))}))), name


@pytest.mark.parametrize("name", TAKEN)
def test_a_reserved_name_in_the_tensor_gives_the_result_a_prefix(name, rng):
    W = random_decomposition((4, 5, 6), "mixed", rng)
    letters = np.array(list("ABCD"))
    for labels in (
        Labels(("a", name, "c")),
        Labels((name, "a", "c"), {name: letters}),
        Labels(("a", "b", "c"), extra={name: ("a", letters)}),
    ):
        V = replace(W, labels=labels)
        dataset = V.to_xarray()
        assert dataset.attrs["prefix"] == "boolcp_" and "boolcp_factor_a" in dataset and name not in dataset.data_vars
        np.testing.assert_array_equal(dataset["boolcp_weight"], W.weights)


def test_a_prefix_is_free_and_only_where_it_is_needed(rng):
    W = random_decomposition((4, 5), "rank one", rng)
    names = [
        name_prefix(replace(W, labels=Labels(dims))) for dims in (("x", "y"), ("weight", "y"), ("rank", "boolcp_x"))
    ]
    assert [name_prefix(W), *names] == ["", "", "boolcp_", "boolcp__"]


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
        assert_same_labels(V.labels, W.labels)
        np.testing.assert_array_equal(V.to_tensor(), W.to_tensor())
        np.testing.assert_array_equal(V.explained_alone(), W.explained_alone())


def test_a_fit_of_a_tensor_with_such_names_is_saved_and_shown(tmp_path):
    X = boolcp.datasets.make_boolean_cp((6, 7, 8), 2, noise=0.1, random_state=0).X
    coords = {"rank": ("weight", list("ABCDEF")), "a/b": ("alone", np.arange(7))}
    model = boolcp.BMP(2, random_state=0).fit(xr.DataArray(X, coords, ("weight", "alone", "undetermined_x")))
    boolcp.save(model, tmp_path / "w.nc")
    W = boolcp.load(tmp_path / "w.nc")
    assert W.summary() == model.decomposition_.summary()
    W.report(tmp_path / "w.html")
    assert "undetermined_x" in (tmp_path / "w.html").read_text()


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (xr.DataArray(np.eye(3), dims=("a\0b", "c")), r"'a\\x00b', the name of a mode"),
        (xr.DataArray(np.eye(3), dims=("\ud800", "c")), "the name of a mode"),
        (xr.DataArray(np.eye(3), {"\udfff": ("a", [1, 2, 3])}, ("a", "c")), "the name of a coordinate"),
        (xr.DataArray(np.eye(3), {"a": ["x", "\udce9", "z"]}, ("a", "c")), "a value of the coordinate 'a'"),
        (xr.DataArray(np.eye(3), {"q": ("a", ["x", "y\0z", "z"])}, ("a", "c")), "a value of the coordinate 'q'"),
        (xr.DataArray(np.eye(3), {"a": ("a", [1, 2, 3], {"units": "\0s"})}, ("a", "c")), "a unit"),
        (xr.DataArray(np.eye(3), dims=("a", "c"), attrs={"units": "\ud800"}), "a unit"),
        (xr.DataArray(np.eye(3), dims=("a", "c"), name="\ud800"), "the name of the tensor"),
    ],
)
def test_text_that_no_file_holds_is_refused_before_the_fit(X, words):
    with pytest.raises(ValueError, match=f"{words}, has a character that no file can hold .*: rename it"):
        boolcp.decompose(X, 1)


@pytest.mark.filterwarnings("ignore:Duplicate dimension names")
def test_modes_of_the_same_name_are_refused_before_the_fit():
    for dims in (("a", "a"), (1, "1")):
        with pytest.raises(ValueError, match="Two modes have the same name"):
            boolcp.decompose(xr.DataArray(np.eye(3), dims=dims), 1)


# Files of earlier versions


def test_files_of_format_1_are_read():
    folder = Path(__file__).parent / "old"
    for name in ("mixed", "fitted"):
        W, known = boolcp.load(folder / f"{name}.nc"), np.load(folder / f"{name}.npz")
        np.testing.assert_array_equal(W.weights, known["weights"])
        np.testing.assert_allclose(W.to_tensor(), known["W"], rtol=1e-12)
    np.testing.assert_allclose(W.explained_alone(), known["alone"])
    assert W.labels.dims == ("channel", "time", "atom") and W.labels.units == {"time": "s"}
    assert W.labels.coords["channel"].tolist() == list("ABCDE") and W.labels.extra["area"][1].tolist() == list("uuvvv")
    assert (W.labels.name, W.labels.value_unit) == ("voltage", "uV") and W.undetermined[0].tolist() == [0, 0, 0, 1, 0]
    assert load_provenance(folder / "fitted.nc")["parameters"]["n_atoms"] == 2


# Files that were damaged or forged


def spoiled(name, values, dims=None):
    """Return a change of a Dataset: other values of one of its variables."""
    return lambda dataset: dataset.assign({name: (dims or dataset[name].dims, values)})


def entry(name, index, value):
    def change(dataset):
        values = dataset[name].values.copy()
        values[index] = value
        return dataset.assign({name: (dataset[name].dims, values)})

    return change


def attribute(**attrs):
    return lambda dataset: dataset.assign_attrs(attrs)


FORGED = {
    "no weights": (lambda d: d.drop_vars("weight"), "it has no weight"),
    "no ranks": (lambda d: d.drop_vars("rank"), "it has no rank"),
    "no factors": (lambda d: d.drop_vars("factor_time").assign_coords(time=range(9)), "it has no factor_time"),
    "no modes": (lambda d: d.drop_vars([name for name in d if "time" in d[name].dims]), "its modes are"),
    "a stability above one": (lambda d: d.assign(stability=("atom", np.full(d.sizes["atom"], 2.0))), "between 0 and 1"),
    "p-values for other atoms": (lambda d: d.assign(p_value=("few", np.ones(1))), "p_value is an array"),
    "rises that are no numbers": (lambda d: d.assign({n: d[n] / 0 for n in d if "bit_rise" in n}), "of its bits"),
    "no dims": (lambda d: d.drop_attrs().assign_attrs(format=d.attrs["format"], format_version=2, names="{}"), "dims"),
    "no names": (lambda d: d.drop_attrs().assign_attrs(format=d.attrs["format"], format_version=2), "names is missing"),
    "a version that is text": (attribute(format_version="two"), "format_version is two"),
    "a version that is a list": (attribute(format_version=[1, 2]), "format_version"),
    "names that are no table": (attribute(names="[1, 2]"), "not a readable decomposition"),
    "names of names that are not there": (attribute(names='{"x": "y"}'), "not a readable decomposition"),
    "dims that are not there": (attribute(dims='["a", "b", "c"]'), r"its modes are \('a', 'b', 'c'\)"),
    "dims that are numbers": (attribute(dims="[1, 2, 3]"), r"its modes are \(1, 2, 3\)"),
    "dims twice": (attribute(dims='["time", "time", "trial"]'), "not a readable decomposition"),
    "weights of text": (spoiled("weight", np.array(["a", "b", "c"])), r"weight is an array \(3,\) of"),
    "a weight that is NaN": (entry("weight", 1, np.nan), "the weights must be finite"),
    "a weight that is infinite": (entry("weight", 1, np.inf), "the weights must be finite"),
    "a certificate of 5": (entry("certificate", 0, 5.0), "certificate of atom 0 is 5"),
    "a negative certificate": (entry("certificate", 2, -0.1), "certificate of atom 2 is -0.1"),
    "an infinite certificate": (entry("certificate", 2, np.inf), "certificate of atom 2 is inf"),
    "a rank of -1": (entry("rank", 0, -1), "rank -1"),
    "a rank of 2": (entry("rank", 0, 2), "factor_channel is an array"),
    "a block that is not there": (entry("rank", 0, 0), "it has no block_0"),
    "ranks of floats": (spoiled("rank", np.ones(3)), r"rank is an array \(3,\) of float64"),
    "a mode of 3": (entry("boolean_mode_index", 0, 3), "along mode"),
    "a mode of -1": (entry("boolean_mode_index", 0, -1), "along mode -1"),
    "a z that is zero": (lambda d: forge_z(d, 0.0), "no entry that is on"),
    "a z of two": (lambda d: forge_z(d, 2.0), "zeros and ones"),
    "a factor that is NaN": (lambda d: forge_real(d, np.nan), "real part of atom 0 must be finite"),
    "a factor that is infinite": (lambda d: forge_real(d, np.inf), "real part of atom 0 must be finite"),
    "inner products of another number": (spoiled("data_inner", np.ones(2), "other"), "data_inner is an array"),
    "inner products that are NaN": (entry("data_inner", 0, np.nan), "data_inner must be finite"),
    "a negative norm": (attribute(data_norm2=-1.0), "squared norm of the data is -1"),
    "a norm that is NaN": (attribute(data_norm2=np.nan), "data_norm2 must be finite"),
    "a norm that is text": (attribute(data_norm2="large"), "data_norm2 is large"),
    "labels that are text": (attribute(is_labelled="yes"), "is_labelled is yes"),
    "a unit that is a list": (attribute(tensor_unit=[1.0, 2.0]), "not a readable decomposition"),
    "marks of text": (
        spoiled("undetermined_time", np.array(list("abcdefghi")), "time"),
        "undetermined_time is an array",
    ),
}


def forge_z(dataset, value):
    mode = int(dataset["boolean_mode_index"][0])
    name = f"factor_{json.loads(dataset.attrs['dims'])[mode]}"
    return entry(name, (slice(None), 0), value)(dataset)


def forge_real(dataset, value):
    mode = int(dataset["boolean_mode_index"][0])
    name = f"factor_{json.loads(dataset.attrs['dims'])[(mode + 1) % 3]}"
    return entry(name, (1, 0), value)(dataset)


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
    assert (
        str(caught.value).startswith(f"{path}: ")
        and "\n" not in str(caught.value)
        and "KeyError" not in str(caught.value)
    )


FORGED_PROVENANCE = {
    "not JSON": ("{", "not a readable"),
    "a list": ("[1]", "not a dict"),
    "a method that is code": ('{"method": "os.system(1)"}', "is not a name"),
    "a parameter that is code": ('{"parameters": {"n_atoms=1), open(": 1}}', "is not a name"),
    "parameters that are a list": ('{"parameters": [1]}', "'parameters'"),
    "versions that are text": ('{"versions": "0.1"}', "'versions'"),
    "data that are a number": ('{"data": 5}', "'data'"),
    "missing entries that are text": ('{"data": {"n_missing": "many"}}', "'data.n_missing'"),
    "a history of numbers": ('{"history": [1, 2]}', "'history'"),
    "a history without errors": ('{"history": [{"loss": 1}]}', "'history.relative_error'"),
    "a stability without bits": ('{"stability": {"recurrence": [1.0]}}', "'stability.bit_probability'"),
    "a residual of text": (
        '{"residual_check": {"mode_names": ["a"], "structure": ["large"]}}',
        "'residual_check.structure'",
    ),
    "a truth for a number": ('{"data": {"n_missing": true}}', "'data.n_missing'"),
}


@pytest.mark.parametrize("name", FORGED_PROVENANCE)
def test_a_forged_provenance_is_refused_in_one_line(name, saved):
    (path, dataset), (text, words) = saved, FORGED_PROVENANCE[name]
    dataset.assign_attrs(provenance=text).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(FileError, match=words):
        load_provenance(path)
    assert boolcp.load(path).n_atoms == 3, "the atoms are still there"


def test_what_could_not_be_loaded_is_not_saved(tmp_path, rng):
    W, flat = random_decomposition((4, 5, 6), "mixed", rng), (np.ones((4, 1)), np.ones((30, 1)))
    for spoilt, words in (
        (replace(W, weights=np.full(W.n_atoms, np.nan)), "weights must be finite"),
        (replace(W, atoms=(replace(W.atoms[0], certificate=5.0), *W.atoms[1:])), "certificate of atom 0 is 5"),
        (replace(W, atoms=(replace(W.atoms[0], z=np.zeros(4)), *W.atoms[1:])), "atom 0 has no entry that is on"),
        (replace(W, weights=np.full(W.n_atoms, 1e200)), "atom 0 is too large"),
        (replace(W, trust=Trust(rise=(np.zeros(3),) * W.n_atoms)), "confidence of its bits is not that of its atoms"),
        (replace(W, trust=Trust(rise=tuple(1e300 * atom.z for atom in W.atoms))), "bits is out of range"),
        (replace(W, trust=Trust(sigma=-1.0)), "noise level is -1"),
        (replace(W, background=Background(W.shape, 3, *flat, 1.0, 0.1)), "background .* lies along mode 3"),
        (replace(W, background=Background(W.shape, 1, *flat, 1.0, 0.1)), "factors of its background are"),
        (replace(W, background=Background(W.shape, 0, *flat, 1.0, 0.1, n_observed=121)), "fitted to 121 entries"),
    ):
        with pytest.raises(ValueError, match=words):
            spoilt.save(tmp_path / "w.nc")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_what_is_known_about_trust_comes_back(missing, tmp_path):
    X = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=1.0, missing=missing, random_state=0).X
    W = boolcp.assess(X, boolcp.decompose(X, 2, random_state=0), n_runs=1, n_init=2, random_state=0)
    W.save(tmp_path / "w.nc")
    V = boolcp.load(tmp_path / "w.nc")
    for p, q in zip(V.bit_confidence(), W.bit_confidence(), strict=True):
        np.testing.assert_array_equal(p, q)
    for name in ("rise", "sigma", "p_value", "p_adjusted", "tested_by", "stability", "stable_over"):
        np.testing.assert_equal(getattr(V.trust, name), getattr(W.trust, name))
    assert (V.trust.share is None) == (missing == 0) and V.summary() == W.summary()
    dataset = xr.load_dataset(tmp_path / "w.nc")
    mode = f"mode{W.atoms[0].mode}"
    np.testing.assert_array_equal(dataset[f"bit_confidence_{mode}"].values[:, 0], W.bit_confidence()[0])
    assert dataset["verdict"].values.tolist() == [verdict.text for verdict in boolcp.verdicts(W)]
