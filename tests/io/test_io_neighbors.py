"""NWB, trials of unequal length, tables of trials and of electrodes: files that these libraries write."""

import datetime
import warnings

import mne
import numpy as np
import pytest
import scipy.io

import boolcp
from boolcp import prepare
from boolcp.io import FileError, read_table, reading
from boolcp.io.coordinates import read_electrodes, read_pairs

TRIALS = {"start_time": [2.0, 5.0, 9.0], "stop_time": [3.0, 7.0, 9.5], "stim": ["a", "b", "a"], "go": [2.5, 5.2, 9.1]}


@pytest.fixture(scope="module")
def nwb(tmp_path_factory):
    """Two series, of integers at a rate and of numbers at times, trials and units; and what is in them."""
    pynwb = pytest.importorskip("pynwb")
    from pynwb.ecephys import LFP, ElectricalSeries

    rng = np.random.default_rng(0)
    file = pynwb.NWBFile(
        session_description="test",
        identifier="test",
        session_start_time=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
    )
    group = file.create_electrode_group("g", "probe", "V1", file.create_device("probe"))
    for n in range(4):
        file.add_electrode(x=1.0 * n, y=2.0 * n, z=0.0, location=f"area{n}", group=group, group_name="g")
    region = file.create_electrode_table_region([0, 1, 3], "three of four")
    wide, low = rng.integers(-99, 99, (2000, 3)).astype("int16"), rng.standard_normal((1000, 3))
    at_rate = {"starting_time": 1.0, "rate": 100.0, "conversion": 2e-6}
    file.add_acquisition(ElectricalSeries(name="wide", data=wide, electrodes=region, **at_rate))
    factors = {"timestamps": np.arange(1000) / 50, "channel_conversion": [1.0, 2.0, 3.0], "offset": 1e-6}
    module = file.create_processing_module("ecephys", "filtered")
    module.add(LFP(electrical_series=ElectricalSeries(name="low", data=low, electrodes=region, **factors)))
    for name in ("stim", "go"):
        file.add_trial_column(name, name)
    for n in range(3):
        file.add_trial(**{name: values[n] for name, values in TRIALS.items()})
    trains = [np.sort(rng.uniform(0, 12, 200)) for _ in range(2)]
    for n, train in enumerate(trains):
        file.add_unit(spike_times=train, id=10 + n)
    path = tmp_path_factory.mktemp("nwb") / "session.nwb"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pynwb.NWBHDF5IO(path, "w") as io:
            io.write(file)
    return path, wide, low, trains


def test_an_electrical_series_with_its_trials(nwb):
    path, wide, low, _ = nwb
    X = boolcp.open_tensor(path, variable="wide")
    np.testing.assert_allclose(X.values, 2.0 * wide.T)
    assert X.dims == ("channel", "time") and X.attrs["units"] == "µV" and float(X["time"][0]) == 1.0
    assert X["channel"].values.tolist() == [0, 1, 3] and X["area"].values.tolist() == ["area0", "area1", "area3"]
    assert X["y"].values.tolist() == [0, 2, 6] and prepare.sampling_rate(X) == 100
    Y = prepare.cut_trials(X, events="all", align="go")
    assert Y["stim"].values.tolist() == ["a", "b", "a"] and Y.sizes["time"] == 230
    known = np.isfinite(Y.values[0, :, 2])
    np.testing.assert_allclose(Y.values[:, known, 2], 2.0 * wide.T[:, 800:850])
    L = boolcp.open_tensor(path, variable="low")
    np.testing.assert_allclose(L.values, 1e6 * low.T * [[1], [2], [3]] + 1, rtol=1e-6)
    assert prepare.sampling_rate(L) == 50


def test_units_are_counted_by_trial(nwb):
    path, _, _, trains = nwb
    X = boolcp.open_tensor(path, variable="units", bin_ms=100, window_ms=(-200, 300), align="go")
    expected = prepare.count_spikes(trains, TRIALS, bin_ms=100, window_ms=(-200, 300), align="go")
    np.testing.assert_array_equal(X.values, expected.values)
    assert X["unit"].values.tolist() == [10, 11] and X["stim"].values.tolist() == ["a", "b", "a"]
    own = boolcp.open_tensor(path, variable="units", bin_ms=500, trials={"onset": [1.0], "stop": [3.0]})
    assert own.shape == (2, 4, 1)
    assert boolcp.open_tensor(path, variable="units", bin_ms=500, condition="stim=b").sizes["trial"] == 1


def test_what_an_nwb_file_holds_and_what_is_wrong(nwb, tmp_path):
    path = nwb[0]
    lines = reading.describe(path)
    assert "wide: 2000 x 3 int16, 100 Hz" in lines and "units: 2 units with spikes (needs --bin-ms)" in lines
    assert "  trials: 3, with start_time, stop_time, stim, go" in lines
    for options, words in (
        ({}, "holds 2 arrays that could be read"),
        ({"variable": "high"}, "has no variable 'high'"),
        ({"variable": "units"}, "Give the length of the bins"),
        ({"variable": "units", "bin_ms": 10, "align": "move"}, "align names 'move'"),
        ({"variable": "wide", "dims": ("a", "b")}, "takes no dims"),
    ):
        with pytest.raises(FileError, match=words):
            boolcp.open_tensor(path, **options)
    (tmp_path / "no.nwb").write_bytes(b"not a file of that kind")
    with pytest.raises(FileError, match="not a readable"):
        boolcp.open_tensor(tmp_path / "no.nwb")


def ragged(rng, lengths=(30, 50, 40, 50)):
    return [rng.standard_normal((3, n)) for n in lengths]


def cell(values):
    held = np.empty(len(values), dtype=object)
    held[:] = values
    return held


def assert_trials(X, trials):
    assert X.dims == ("channel", "time", "trial") and X.shape == (3, max(t.shape[1] for t in trials), len(trials))
    for n, trial in enumerate(trials):
        np.testing.assert_array_equal(X.values[:, : trial.shape[1], n], trial)
        assert np.isnan(X.values[:, trial.shape[1] :, n]).all()


def test_a_cell_of_matrices_is_a_list_of_trials(tmp_path, rng):
    trials, path = ragged(rng), tmp_path / "trials.mat"
    scipy.io.savemat(path, {"trials": cell(trials), "cond": cell(["a", "b", "a", "b"]), "fs": 100.0})
    X = boolcp.open_tensor(path, coords={"condition": "cond"})
    assert_trials(X, trials)
    assert X["condition"].values.tolist() == ["a", "b", "a", "b"] and X.attrs["sampling_rate"] == 100
    turned = tmp_path / "turned.mat"
    scipy.io.savemat(turned, {"trials": cell([t.T for t in trials]), "fs": 100.0})
    assert_trials(boolcp.open_tensor(turned, variable="trials", dims=("time", "channel")), trials)
    with pytest.raises(FileError, match="not hold one matrix for each trial"):
        boolcp.open_tensor(path, variable="cond")


def test_fieldtrip_data_keeps_times_and_labels(tmp_path, rng):
    trials = ragged(rng)
    times = [np.arange(t.shape[1]) / 100 - 0.1 for t in trials]
    data = {"trial": cell(trials), "time": cell(times), "label": cell(["Fz", "Cz", "Pz"]), "fsample": 100.0}
    scipy.io.savemat(tmp_path / "ft.mat", {"data": data})
    X = boolcp.open_tensor(tmp_path / "ft.mat", variable="data.trial")
    assert X["channel"].values.tolist() == ["Fz", "Cz", "Pz"]
    assert float(X["time"][0]) == -0.1 and X.sizes["time"] == 50


def test_numbered_arrays_are_trials(tmp_path, rng):
    trials = ragged(rng, range(20, 32))
    np.savez(tmp_path / "a.npz", *trials, fs=50.0)
    X = boolcp.open_tensor(tmp_path / "a.npz", variable="arr_*")
    assert_trials(X, trials)
    assert X.attrs["sampling_rate"] == 50
    np.savez(tmp_path / "b.npz", *trials, other=np.zeros((4, 9)))
    for variable, words in (("arr_*", "--sampling-rate"), ("x*", r"no variables 'x\*'")):
        with pytest.raises(FileError, match=words):
            boolcp.open_tensor(tmp_path / "b.npz", variable=variable)
    with pytest.raises(FileError, match="same channels"):
        boolcp.open_tensor(tmp_path / "b.npz", variable="*", sampling_rate=50)


@pytest.mark.parametrize("kind", ["npz", "mat"])
def test_labels_beside_the_tensor_become_coordinates(kind, tmp_path, rng):
    X, names = rng.standard_normal((3, 20, 4)), ["go", "stop", "go", "go"]
    path = tmp_path / f"a.{kind}"
    if kind == "npz":
        np.savez(path, data=X, cond=np.array(names), rt=np.arange(4.0), size=np.zeros(7))
    else:
        scipy.io.savemat(path, {"data": X, "cond": cell(names), "rt": np.arange(4.0), "size": np.zeros(7)})
    dims = ("channel", "time", "trial")
    Y = boolcp.open_tensor(path, variable="data", dims=dims, coords={"condition": "cond", "rt": ("trial", "rt")})
    assert Y["condition"].values.tolist() == names and Y["rt"].dims == ("trial",)
    assert boolcp.open_tensor(path, variable="data", dims=dims, coords={"a": "cond"}, condition="stop").shape[2] == 1
    for coords, words in (
        ({"condition": "size"}, "which fit no mode"),
        ({"condition": ("trials", "cond")}, "do not fit the mode 'trials'"),
        ({"condition": ("channel", "cond")}, "has 4 values, which do not fit the mode 'channel'"),
        ({"condition": "none"}, "has no variable 'none' for a coordinate"),
        ({"condition": "data"}, "Give a vector"),
    ):
        with pytest.raises(FileError, match=words):
            boolcp.open_tensor(path, variable="data", dims=dims, coords=coords)
    np.savez(tmp_path / "square.npz", data=X[:, :4], cond=np.array(names))
    with pytest.raises(FileError, match="fit several modes"):
        boolcp.open_tensor(tmp_path / "square.npz", coords={"condition": "cond"})


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_a_table_of_trials_from_a_file(name, separator, tmp_path, rng):
    np.save(tmp_path / "data.npy", rng.standard_normal((3, 20, 4)))
    rows = [["trial", "drug", "dose"], ["2", "none", "n/a"], ["0", "NA", "1.5"], ["1", "propofol", "2"], ["3", "", "3"]]
    (tmp_path / name).write_text("\n".join(separator.join(row) for row in rows), encoding="utf-8-sig")
    options = {"dims": ("channel", "time", "trial"), "trials": tmp_path / name}
    X = boolcp.open_tensor(tmp_path / "data.npy", **options)
    assert X["drug"].values.tolist() == ["NA", "propofol", "none", ""]
    np.testing.assert_array_equal(X["dose"], [1.5, 2, np.nan, 3])
    assert boolcp.open_tensor(tmp_path / "data.npy", condition="propofol", **options).shape == (3, 20, 1)
    assert read_table(tmp_path / name)["trial"].tolist() == [2, 0, 1, 3]
    (tmp_path / name).write_text("\n".join(separator.join(row) + separator * (row != rows[0]) for row in rows))
    assert read_table(tmp_path / name)["trial"].tolist() == [2, 0, 1, 3], "lines end with a separator"
    for text, words in (("trial,a\n0,1\n", "no row for 3 of the trials"), ("a\n", "has no rows"), ("a\n1\n", "1 rows")):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(FileError, match=rf"bad\.csv.*{words}"):
            boolcp.open_tensor(tmp_path / "data.npy", dims=options["dims"], trials=tmp_path / "bad.csv")
    with pytest.raises(FileError, match="is not the ending of a table"):
        boolcp.open_tensor(tmp_path / "data.npy", trials=tmp_path / "data.npy")


def test_a_table_with_onsets_holds_the_events_of_a_recording(tmp_path, rng):
    np.save(tmp_path / "data.npy", rng.standard_normal((3, 500)))
    (tmp_path / "trials.csv").write_text("onset,duration,cue\n1.0,0.5,left\n3.0,1.0,right\n")
    options = {"dims": ("channel", "time"), "sampling_rate": 100, "trials": tmp_path / "trials.csv"}
    X = boolcp.open_tensor(tmp_path / "data.npy", **options)
    Y = prepare.cut_trials(X, events="cue=right")
    np.testing.assert_array_equal(Y.values[..., 0], X.values[:, 300:400])


def test_positions_of_electrodes_for_any_format(tmp_path, rng):
    np.save(tmp_path / "data.npy", rng.standard_normal((3, 20, 4)))
    table, dims = tmp_path / "places.csv", ("channel", "time", "trial")
    table.write_text("channel,x,y,area\nFz,0,2,F\nCz,0,1,C\nPz,0,0,P\n")
    X = boolcp.open_tensor(tmp_path / "data.npy", dims=dims, electrodes=table)
    assert X["channel"].values.tolist() == ["Fz", "Cz", "Pz"] and X["y"].values.tolist() == [2, 1, 0]
    coords = {"channel": ["Pz", "Fz", "Cz"]}
    named = boolcp.open_tensor(tmp_path / "data.npy", dims=dims, coords=coords, electrodes=table)
    assert named["y"].values.tolist() == [0, 2, 1] and named["area"].values.tolist() == ["P", "F", "C"]
    with pytest.warns(UserWarning, match="no positions for 1 channels: Q"):
        coords = {"channel": ["Pz", "Q", "Cz"]}
        some = boolcp.open_tensor(tmp_path / "data.npy", dims=dims, coords=coords, electrodes=table)
    assert np.isnan(some["x"].values[1])
    for options, words in (
        ({"electrodes": table}, "has no mode 'channel'"),
        ({"dims": ("trial", "time", "channel"), "electrodes": table}, "4 channels without labels"),
        ({"dims": dims, "coords": {"channel": [1, 2, 3]}, "electrodes": table}, "lists none of the channels"),
    ):
        with pytest.raises(FileError, match=words):
            boolcp.open_tensor(tmp_path / "data.npy", **options)
    table.write_text("channel,x_px,y_px\n1,0,5\n2,1,7\n3,1,9\n")
    X = boolcp.open_tensor(tmp_path / "data.npy", dims=dims, electrodes=table)
    assert X["y"].values.tolist() == [-5, -7, -9], "pixels count downward"
    assert read_electrodes(table)["y"][2] == -7
    scipy.io.savemat(tmp_path / "Map.mat", {"X": np.array([[1.0], [2.0]]), "Y": np.array([[3.0], [4.0]])})
    assert read_electrodes(tmp_path / "Map.mat")["y"][2] == -4
    table.write_text("a,b\n1,2\n3,4\n5,NG\n")
    assert read_pairs(table) == [("1", "2"), ("3", "4")]
    for text, words in (
        ("channel,x,y\n1,0,5\n1,1,7\n", "channel 1 appears twice"),
        ("channel,y\n1,0\n", "no column 'x'"),
    ):
        table.write_text(text)
        with pytest.raises(FileError, match=words):
            read_electrodes(table)


def test_options_that_a_format_has_no_use_for_are_refused(tmp_path, rng):
    info = mne.create_info(["Fz", "Cz"], 100.0, "eeg")
    raw = mne.io.RawArray(1e-6 * rng.standard_normal((2, 200)), info, verbose="ERROR")
    raw.save(tmp_path / "a_raw.fif", verbose="ERROR")
    options = {"dims": ("a", "b"), "variable": "x", "sampling_rate": 100.0, "skip_bad": True, "align": "go"}
    for name, value in options.items():
        with pytest.raises(FileError, match=f"takes no {name}"):
            boolcp.open_tensor(tmp_path / "a_raw.fif", **{name: value})
