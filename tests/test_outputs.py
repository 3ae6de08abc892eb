"""Labels out as they came in, tables in, and traps and mistakes that are named or understood."""

import sys
from types import SimpleNamespace

import mne
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import boolcp
from boolcp import BMP, BoolcpWarning, interop, prepare
from boolcp import from_dataframe as made
from boolcp.cli import main

DIMS = ("trial", "channel", "time")


@pytest.fixture
def X():
    """Trials in which two patterns are on or off, one of them under a drug."""
    truth = boolcp.datasets.make_boolean_cp((20, 5, 9), 2, noise=0.1, boolean_modes=[0], random_state=0)
    coords = {"trial": [f"t{n}" for n in range(20)], "time": ("time", np.arange(9) / 10, {"units": "s"})}
    coords["drug"] = "trial", np.where(truth.truth.atoms[0].z, "yes", "no")
    return xr.DataArray(truth.X, coords, DIMS, "EEG", {"units": "µV"})


@pytest.fixture
def model():
    return BMP(2, boolean_modes=[0], random_state=0)


# labels


def test_what_comes_labelled_leaves_labelled(X, model):
    A = model.fit_transform(X)
    assert A.dims == ("trial", "atom") and A["atom"].values.tolist() == model.get_feature_names_out().tolist()
    xr.testing.assert_identical(A["drug"].drop_vars("drug"), X["drug"].drop_vars("drug"))
    xr.testing.assert_identical(model.transform(X), A)
    new = X[5:8].assign_coords(trial=["x", "y", "z"])
    estimate = model.inverse_transform(model.transform(new))
    for found, like in ((model.inverse_transform(A), X), (estimate, new), (model.decomposition_.to_tensor(), X)):
        xr.testing.assert_identical(found.copy(data=like.values), like)
    np.testing.assert_allclose(estimate, model.decomposition_.to_tensor()[5:8], atol=1e-12)
    gaps = X.where(X["time"] != 0.3)
    filled = BMP(1, random_state=0).fit(X).complete(gaps)
    xr.testing.assert_identical(filled.copy(data=X.values), X)
    assert gaps.isnull().any() and not filled.isnull().any()
    factor = model.transform(X, mode="time")
    assert factor.dims == ("time", "atom") and factor["time"].values.tolist() == X["time"].values.tolist()
    plain = BMP(1).fit(X.values).decomposition_.to_tensor()
    for found in (model.transform(X.values), model.inverse_transform(A.values), plain):
        assert type(found) is np.ndarray
    assert model.fit_transform(X.rename(channel="atom")).dims == ("trial", "boolcp_atom")


def test_pandas_pipelines_and_grids(X, model):
    table = model.set_output(transform="pandas").fit_transform(X)
    assert table.columns.tolist() == ["atom_0", "atom_1"] and table.index.tolist() == X["trial"].values.tolist()
    assert model.fit_transform(X.values).columns.tolist() == ["atom_0", "atom_1"]
    pipe = make_pipeline(model, LogisticRegression()).set_output(transform="pandas").fit(X, X["drug"].values)
    assert pipe.score(X, X["drug"].values) == 1 and pipe[-1].feature_names_in_.tolist() == ["atom_0", "atom_1"]
    grid = GridSearchCV(pipe, {"bmp__n_atoms": [1, 2]}, cv=2).fit(X, X["drug"].values)
    assert grid.best_score_ > 0.9
    grid = GridSearchCV(BMP(boolean_modes=["trial"], random_state=0), {"n_atoms": [1, 2]}, cv=2).fit(X)
    assert grid.best_params_ == {"n_atoms": 2}


# tables


@pytest.fixture
def table(X):
    return X.rename("volt").to_dataframe().reset_index()


def test_a_long_table_is_a_tensor(X, table, tmp_path, monkeypatch):
    Y = boolcp.from_dataframe(table, modes=DIMS, value="volt")
    np.testing.assert_array_equal(Y, X)
    assert Y.dims == DIMS and Y.name == "volt" and Y["drug"].values.tolist() == X["drug"].values.tolist()
    part = boolcp.from_dataframe(table.drop(index=[0, 7]), modes=DIMS, value="volt")
    assert np.isnan(part.values.ravel()[[0, 7]]).all() and int(part.isnull().sum()) == 2
    xr.testing.assert_equal(made(table.sample(frac=1, random_state=0), DIMS, "volt").sel(trial=X["trial"]), Y)
    table.to_csv(tmp_path / "long.csv", index=False)
    table.to_parquet(tmp_path / "long.parquet")
    for name in ("long.csv", "long.parquet"):
        again = boolcp.open_tensor(tmp_path / name, dims=DIMS, variable="volt")
        np.testing.assert_allclose(again, X)
        assert again["drug"].dims == ("trial",)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="pip install pyarrow"):
        boolcp.open_tensor(tmp_path / "long.parquet", dims=DIMS, variable="volt")


def test_wide_tables_and_dictionaries(X, table, tmp_path):
    wide = table.pivot(index=["trial", "channel"], columns="time", values="volt")
    np.testing.assert_array_equal(boolcp.from_dataframe(wide).sel(trial=X["trial"]), X)
    assert boolcp.from_dataframe(pd.DataFrame(X.values[0]).rename_axis("value")).dims == ("value", "column")
    flat = boolcp.from_dataframe(pd.DataFrame(X.values[0], index=list("abcde")))
    assert flat.dims == ("row", "column") and flat["row"].values.tolist() == list("abcde")
    pd.DataFrame(X.values[0], index=list("abcde")).to_csv(tmp_path / "wide.csv")
    np.testing.assert_allclose(boolcp.open_tensor(tmp_path / "wide.csv"), X.values[0])
    two = X[[1, 3]]
    np.testing.assert_array_equal(made({name: two.sel(trial=name) for name in ("t1", "t3")}, modes=DIMS), two)
    np.testing.assert_array_equal(made({name: table[name] for name in table}, modes=DIMS, value="volt"), X)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda t: made(t), r"Columns are not numbers: trial, drug; if rows are entries, pass modes="),
        (lambda t: made(t, DIMS, "v"), "no 'v'; its columns are trial, channel, time, drug, volt"),
        (lambda t: made(t.assign(w=1), DIMS), "Say which column has the entries, value=; its columns are .* volt, w"),
        (lambda t: made(t, DIMS[:2], "volt"), "800 entries have several rows, as trial t0, channel 0"),
        (lambda t: made(pd.concat([t, t["volt"]], axis=1), DIMS, "volt"), "Two columns of the table have one name"),
        (lambda t: made(t, DIMS, "drug"), "needs two modes and a column of numbers"),
        (lambda t: made(t.replace({"trial": {"t3": None}}), DIMS, "volt"), "no label of a mode"),
        (lambda t: made({"a": np.ones((2, 3)), "b": np.ones((2, 2))}), r"one shape, got a \(2, 3\), b"),
    ],
)
def test_tables_that_cannot_be_read_say_what_is_missing(act, words, table):
    with pytest.raises(ValueError, match=words):
        act(table)


def test_what_is_no_path_says_where_it_goes(table):
    with pytest.raises(TypeError, match=r"a DataFrame: call boolcp.from_dataframe\(df, modes"):
        boolcp.open_tensor(table)
    with pytest.raises(TypeError, match=r"a ndarray: call BMP.fit, or boolcp.interop.from_mne"):
        boolcp.open_tensor(np.ones((2, 3)))
    epochs = mne.EpochsArray(np.ones((4, 2, 5)), mne.create_info(2, 100.0, "eeg"), verbose="ERROR")
    with pytest.raises(TypeError, match=r"EpochsArray of MNE: boolcp.interop.from_mne\(X\) keeps its labels"):
        BMP(1).fit(epochs)


# mistakes that are understood


def test_mistakes_of_newcomers(X, model, tmp_path):
    for name in ("n_atom", "rank"):
        with pytest.raises(TypeError, match=rf"BMP\(\) has no option '{name}': do you mean n_atoms\?"):
            BMP(**{name: 3})
    with pytest.raises(NotFittedError, match=r"assess: this BMP is not fitted yet: call its fit\(X\) first"):
        boolcp.assess(X, model)
    W = model.fit(X).decomposition_
    assert boolcp.assess(X, model, n_parts=2, n_jobs=1).n_atoms == len(W) == 2 and W[0] is W.atoms[0]
    counts = BMP(1, random_state=0).fit(X.rename("count"))
    assert 'loss="poisson" takes' in counts.summary() and "poisson" not in W.summary()
    with pytest.raises(TypeError, match="tensor X comes first, then its decomposition, but X is a BooleanCP"):
        boolcp.assess(W, X)
    assert model.summary() == W.summary()
    W.report(tmp_path / "rep")
    assert (tmp_path / "rep.html").exists()
    xr.testing.assert_identical(prepare.baseline(X, (None, 0.2)), prepare.baseline(X, None, 0.2))
    assert {"atoms", "events", "plot", "summary", "to_tensor", "weights"} <= set(dir(W))
    assert not {"mttkrp", "data_gram", "matrices", "column_weights"} & set(dir(W))


# traps


def test_a_baseline_outside_of_the_data_and_windows_in_seconds_are_named(X):
    with pytest.raises(ValueError, match=r"baseline -200 to 0 s lies outside of the data: times run from 0.0 to 0.8 s"):
        prepare.baseline(X, -200, 0)
    recording = xr.DataArray(np.zeros((2, 500)), {"time": np.arange(500) / 100}, ("channel", "time"))
    for window, words in (((-1, 2), "less than two samples at 100 Hz"), ((-0.2, 0.8), "shorter than 1.5 ms: seconds")):
        with pytest.raises(ValueError, match=words):
            prepare.cut_trials(recording, window, events={"onset": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"0 of 1 .* run from 1000 to 1000 s, the recording from 0 to 4.99 s"):
        prepare.cut_trials(recording, (-200, 800), events={"onset": [1000.0]})


def test_spikes_in_the_wrong_unit_are_named():
    with pytest.warns(BoolcpWarning, match="All events lie in one bin of 20 ms.*multiply seconds by 1000"):
        prepare.count_events([0, 0, 1], [0.1, 0.7, 0.9], [0, 0, 1], bin_ms=20)
    with pytest.warns(BoolcpWarning, match=r"No spike lies in a trial: .* run from 1010 to 3200, onsets from 1 to 3"):
        prepare.count_spikes([[1010, 1020, 3200], []], {"onset": [1.0, 3.0], "stop": [1.2, 3.3]}, bin_ms=100)


def of_neo(ms):
    """Return times with a unit."""
    return SimpleNamespace(rescale=lambda unit: SimpleNamespace(magnitude=np.array(ms) / {"s": 1000}[unit]))


NAP_TRAINS = {7: SimpleNamespace(t=np.array([1.01, 1.02, 3.2]))}  # like a TsGroup of pynapple, and an IntervalSet
NAP_TRIALS = SimpleNamespace(as_dataframe=lambda: pd.DataFrame({"start": [1.0, 3.0], "end": [1.2, 3.3]}))
NEO = [of_neo([1010, 1020, 3200])], {"onset": of_neo([1000, 3000]), "stop": [1.2, 3.3]}


@pytest.mark.parametrize(("trains", "table"), [NEO, (NAP_TRAINS, NAP_TRIALS)])
def test_spike_trains_and_trials_of_other_packages(trains, table):
    found = prepare.count_spikes(trains, table, bin_ms=100)
    assert found.values[0, 0].tolist() == [2, 0] and int(found.sum()) == 3


@pytest.fixture
def shown(tmp_path, capsys):
    """Return a function that runs the command in a folder and returns what it shows."""

    def run(*arguments):
        assert main([str(a) for a in arguments]) == 0
        read = capsys.readouterr()
        return read.out + read.err

    return run


def test_channels_that_stand_out_or_are_left_out_are_named(tmp_path, shown, rng):
    info = mne.create_info([f"E{n}" for n in range(8)], 100.0, "eeg")
    info["bads"] = ["E2"]
    values = 1e-6 * rng.standard_normal((12, 8, 30)) * np.array([1, 1, 1, 40, 1, 1, 1, 0])[:, None]
    path = tmp_path / "some-epo.fif"
    mne.EpochsArray(values, info, verbose="ERROR").save(path, verbose="ERROR")
    for arguments in (("info", path), ("fit", path, "-k", 1, "-o", tmp_path / "out")):
        text = shown(*arguments)
        assert "outlying standard deviation: E3 (" in text and "E7 (0 times the median)" in text
        assert "marked as bad" in text and "E2" in text
    X = interop.from_mne(mne.read_epochs(path, verbose="ERROR")).drop_sel(channel=["E3", "E7"])
    X.drop_attrs().to_netcdf(tmp_path / "good.nc", engine="h5netcdf")
    assert "outlying" not in shown("info", tmp_path / "good.nc")


@pytest.mark.parametrize("name", ["trial", "epoch", "subject"])
def test_the_command_takes_repeats_as_the_boolean_mode_and_says_so(name, X, tmp_path, shown):
    X.drop_vars("drug").rename(trial=name).to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    text = shown("fit", tmp_path / "x.nc", "-k", 2, "-o", tmp_path / "out")
    assert f"Atoms are on or off along {name} (--boolean-modes all allows every mode)." in text
    assert boolcp.load(tmp_path / "out").boolean_mode.tolist() == [0, 0]
    text = shown("fit", tmp_path / "x.nc", "-k", 2, "--boolean-modes", "all", "-o", tmp_path / "all")
    assert "--boolean-modes all allows" not in text


def test_the_summary_says_that_every_mode_was_allowed(rng):
    W = boolcp.datasets.make_boolean_cp((6, 7, 8), 3, random_state=0)
    X = xr.DataArray(W.X, dims=("trial", "channel", "time"))
    said = "boolean_modes=['trial'] keeps atoms to the trials"
    assert said in BMP(3, random_state=0).fit(X).summary()
    assert said not in BMP(1, boolean_modes=["trial"], random_state=0).fit(X).summary()


@pytest.mark.parametrize(("largest", "loss"), [(5, "poisson"), (1, "bernoulli")])
def test_counts_get_a_hint_at_their_loss(largest, loss, tmp_path, shown, rng):
    np.save(tmp_path / "counts.npy", np.minimum(rng.poisson(1.0, (8, 9, 10)), largest))
    options = ("fit", tmp_path / "counts.npy", "-k", 1)
    assert f"--loss {loss} takes their noise into account" in shown(*options, "-o", tmp_path / "a")
    assert "takes their noise" not in shown(*options, "--loss", loss, "-o", tmp_path / "b")
