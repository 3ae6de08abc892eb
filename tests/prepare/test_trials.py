"""Trials of unequal length, tables of trials, and bad parts: what a trial lacks is NaN, every column a coordinate."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import boolcp
from boolcp import prepare

RATE = 100.0


@pytest.fixture
def X(rng):
    coords = {"channel": ["Fz", "Cz", "Pz"], "time": 5 + np.arange(1000) / RATE}
    return xr.DataArray(rng.standard_normal((3, 1000)), coords, ("channel", "time"), "EEG", {"units": "uV"})


TABLE = {
    "onset": [5.5, 8.0, 12.0],
    "duration": [1.0, 0.5, 2.0],
    "trial_type": ["go", "stop", "go"],
    "move": [6.0, 8.2, 13.0],
    "reaction_time": [0.5, np.nan, 1.0],
}


def naive_trial(X, start, stop):
    """Return the samples of a recording with start <= time < stop."""
    inside = (X["time"].values > start - 1e-6) & (X["time"].values < stop - 1e-6)
    return X.values[:, inside]


def test_trials_around_events_are_the_samples_of_the_recording(X):
    Y = prepare.cut_trials(X, (-200, 300), events=pd.DataFrame(TABLE))
    assert Y.dims == ("channel", "time", "trial") and Y.shape == (3, 50, 3)
    np.testing.assert_allclose(Y["time"], np.arange(-20, 30) / RATE)
    for n, onset in enumerate(TABLE["onset"]):
        np.testing.assert_array_equal(Y.values[:, :, n], naive_trial(X, onset - 0.2, onset + 0.3))
    assert Y["condition"].values.tolist() == ["go", "stop", "go"] and Y.attrs["units"] == "uV"
    assert Y["onset"].attrs["units"] == "s" and np.isnan(Y["reaction_time"].values[1])
    np.testing.assert_array_equal(prepare.cut_trials(X, 300, events=TABLE), Y.isel(time=slice(20, None)))


@pytest.mark.parametrize("window", [(-200, 300), (-205, 305), 333])
def test_events_between_two_samples_give_trials_of_one_length(X, window):
    onsets = 6 + np.arange(40) * 0.155 + np.resize([0, 0.005, 0.0049, 0.0051], 40)
    Y = prepare.cut_trials(X, window, events={"onset": onsets})
    start, stop = (0, window) if np.ndim(window) == 0 else window
    assert Y.sizes["time"] == round((stop - start) / 10) and not Y.isnull().any()
    for n, onset in enumerate(onsets):
        first = np.flatnonzero(X.values[0] == Y.values[0, 0, n])[0]
        assert abs(float(X["time"][first]) - onset - start / 1000) <= 0.5 / RATE + 1e-9
        assert abs(float(Y["time"][0]) - start / 1000) <= 0.5 / RATE + 1e-9


def test_ragged_trials_are_padded_with_nan_and_aligned(X):
    Y = prepare.cut_trials(X, events=TABLE, align="move")
    assert Y["time"].values[[0, -1]].tolist() == pytest.approx([-1.0, 0.99])
    for n, (onset, duration) in enumerate(zip(TABLE["onset"], TABLE["duration"], strict=True)):
        column = Y.values[:, :, n]
        known = np.isfinite(column).all(axis=0)
        np.testing.assert_array_equal(column[:, known], naive_trial(X, onset, onset + duration))
        assert Y["time"].values[known][0] == pytest.approx(onset - TABLE["move"][n])


def test_trials_that_reach_out_of_the_recording_or_a_segment(X):
    table = {"onset": [5.1, 9.0, 14.9], "stop": [5.6, 9.4, 15.6], "condition": ["a", "b", "c"]}
    with pytest.warns(UserWarning, match="2 of 3 trials lie outside"):
        whole = prepare.cut_trials(X, (-200, 300), events=table)
    assert whole["condition"].values.tolist() == ["b"] and not whole.isnull().any()
    ragged = prepare.cut_trials(X, events=table)
    assert ragged.sizes["trial"] == 3 and np.isfinite(ragged.values[0, :, 2]).sum() == 10
    parts = X.assign_coords(segment=("time", np.repeat([0, 1], [410, 590])))  # a border at 9.1 s
    ragged = prepare.cut_trials(parts, events=table)
    np.testing.assert_array_equal(ragged.values[:, :10, 1], naive_trial(X, 9.0, 9.1))
    assert np.isnan(ragged.values[:, 10:, 1]).all()
    with pytest.raises(ValueError, match="0 of 1 trials lie within the recording"):
        prepare.cut_trials(X, 500, events={"onset": [99.0]})


def test_events_that_a_recording_brings(X):
    X = prepare.set_events(X, TABLE)
    assert prepare.list_events(X)["stop"].tolist() == [6.5, 8.5, 14.0]
    go = prepare.cut_trials(X, 300, events="go")
    assert go["onset"].values.tolist() == [5.5, 12.0] and go.attrs["preparation"][-1].startswith("cut into 2 trials")
    assert prepare.cut_trials(X, 300, events="all", n_trials=2).sizes["trial"] == 2
    with pytest.raises(ValueError, match="no condition 'left'; the conditions are go, stop"):
        prepare.cut_trials(X, 300, events="left")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda X: prepare.cut_trials(X), "length of the trials"),
        (lambda X: prepare.cut_trials(X, (0, 5)), "length of the trials"),
        (lambda X: prepare.cut_trials(X, 100, events="go"), "no events to cut at"),
        (lambda X: prepare.cut_trials(X, 100, events={"when": [1.0]}), "needs a column 'onset'"),
        (lambda X: prepare.cut_trials(X, 100, events={"onset": ["x"]}), "must hold seconds"),
        (lambda X: prepare.cut_trials(X, events={"onset": [6.0]}), "column stop or duration"),
        (lambda X: prepare.cut_trials(X, (5, 5), events={"onset": [6.0]}), "has no length"),
        (lambda X: prepare.cut_trials(X, 100, events={"onset": [6.0]}, align="move"), "with times are onset"),
        (lambda X: prepare.stack_trials([np.zeros((2, 3)), np.zeros((3, 3))], sampling_rate=1), "same channels"),
        (lambda X: prepare.stack_trials([np.zeros((2, 3))]), "sampling rate is unknown"),
        (lambda X: prepare.stack_trials([np.zeros((2, 3))], times=[[0, 1, 5]]), "evenly spaced"),
        (lambda X: prepare.stack_trials([np.zeros((2, 3))], times=[[0, 1]]), "one time for each"),
        (lambda X: prepare.stack_trials([], sampling_rate=1), "arrays channel x time"),
        (lambda X: prepare.add_table(X, {"a": [1, 2]}), "name the mode of the trials"),
        (lambda X: prepare.add_table(X, {"a": [1, 2], "b": [1]}), "same length"),
        (lambda X: prepare.add_table(X, {"a": [1, 2]}, "channel"), "2 rows, but there are 3 entries"),
        (lambda X: prepare.add_table(X, {"channel": ["Fz", "Cz"], "a": [1, 2]}), "1 of the channels, for example Pz"),
        (lambda X: prepare.add_table(X, {"channel": ["Fz", "Fz"], "a": [1, 2]}), "twice"),
        (lambda X: prepare.reject(X), "Say what to reject"),
        (lambda X: prepare.reject(X, peak_to_peak=0), "Nothing is left"),
        (lambda X: prepare.reject(X, table={"sensor": ["Fz"]}), "names no mode"),
        (lambda X: prepare.reject(X, table={"channel": ["Oz"]}), "has no Oz"),
        (lambda X: prepare.band_pass(prepare.reject(X, table={"channel": ["Fz"]}), 5, 20), "filter first, then reject"),
        (lambda X: prepare.count_spikes([[1.0]], {"onset": [0.0], "stop": [0.1]}, bin_ms=200), "as long as one bin"),
        (lambda X: prepare.count_spikes([[1.0]], TABLE, bin_ms=0.02, window_ms=1), "0.02 ms hold no two spikes"),
        (lambda X: prepare.count_spikes([], {"onset": [0.0], "stop": [0.1]}, bin_ms=2), "needs units"),
    ],
)
def test_what_cannot_be_done_is_said(step, words, X):
    with pytest.raises(ValueError, match=words):
        step(X)


def test_lists_of_arrays_with_their_own_times_and_a_fit_of_the_samples_that_there_are(rng):
    lengths, starts = [20, 35, 28], [-0.05, -0.1, 0.0]
    trials = [rng.standard_normal((4, n)) for n in lengths]
    times = [start + np.arange(n) / RATE for n, start in zip(lengths, starts, strict=True)]
    X = prepare.stack_trials(trials, times=times, channels=list("abcd"), table={"x": [1.5, 2.5, 3.5]})
    assert X.attrs["sampling_rate"] == RATE and X["channel"].values.tolist() == list("abcd")
    for n, (trial, t) in enumerate(zip(trials, times, strict=True)):
        known = np.isfinite(X.values[0, :, n])
        np.testing.assert_array_equal(X.values[:, known, n], trial)
        np.testing.assert_allclose(X["time"].values[known], t, atol=1e-12)
    simulated = boolcp.datasets.make_boolean_cp((10, 30, 20), 2, noise=0.1, random_state=0)
    lengths = rng.integers(15, 31, 20)
    lengths[3] = 30
    X = prepare.stack_trials([simulated.X[:, :n, i] for i, n in enumerate(lengths)], sampling_rate=100)
    assert np.isnan(X.values).sum() == 10 * np.sum(30 - lengths)
    W = boolcp.BMP(2, random_state=0).fit(X).decomposition_
    assert boolcp.metrics.hamming_error(W, simulated.truth) == 0 and W.data_gram is not None


def test_a_table_as_coordinates_with_missing_values():
    X = xr.DataArray(np.zeros((3, 2)), {"trial": [7, 3, 5], "onset": ("trial", [0.0, 1, 2])}, ("trial", "time"))
    table = pd.DataFrame({"trial": [3.0, 5.0, 7.0, 9.0], "onset": [10, 20, 30, 40], "drug": ["a", None, "c", "d"]})
    Y = prepare.add_table(X, table)
    assert Y["drug"].values.tolist() == ["c", "a", ""] and Y["trial_onset"].values.tolist() == [30, 10, 20]
    assert Y["onset"].values.tolist() == [0, 1, 2]
    assert prepare.select_condition(Y, "C").sizes["trial"] == 1 and prepare.select_condition(Y, "drug=a")["trial"] == 3
    states = prepare.add_table(X.rename(trial="state"), {"dose": [0, 1, 2]})
    assert states["dose"].dims == ("state",)
    W = boolcp.BooleanCP((3, 2), labels=boolcp.result.labels.read_labels(Y)[1])
    assert W.labels.extra["drug"][0] == "trial"
    X = xr.DataArray(np.zeros((2, 3)), dims=("channel", "trial"))
    table = {"code": pd.array([1, None, 3], "Int64"), "cue": pd.array(["a", None, "b"], "string")}
    Y = prepare.add_table(X, pd.DataFrame(table | {"ok": pd.array([True, None, False], "boolean")}))
    np.testing.assert_array_equal(Y["code"].values, [1, np.nan, 3])
    assert Y["cue"].values.tolist() == ["a", "", "b"]


def test_a_condition_is_found_in_any_column_and_told_apart():
    X = xr.DataArray(np.zeros((2, 4)), dims=("channel", "trial"))
    X = prepare.add_table(X, {"cue": ["left", "right", "left", "right"], "hand": ["left", "left", "right", "right"]})
    with pytest.raises(ValueError, match="write cue=left or hand=left"):
        prepare.select_condition(X, "left")
    assert prepare.select_condition(X, "hand=left")["cue"].values.tolist() == ["left", "right"]
    X = prepare.add_table(X, {"condition": ["left", "b", "b", "b"], "level": [1, 2, 2.0, 3]})
    assert prepare.select_condition(X, "left").sizes["trial"] == 1
    assert prepare.select_condition(X, "level=2").sizes["trial"] == 2
    with pytest.raises(ValueError, match="conditions are b, left; other columns: cue, hand, level"):
        prepare.select_condition(X, "level=9")


def test_a_bad_channel_in_one_trial_is_missing_there_only(rng):
    X = xr.DataArray(rng.standard_normal((3, 40, 4)), {"channel": ["a", "b", "c"]}, ("channel", "time", "trial"))
    X.values[1, 5, 2], X.values[2, 3, 0] = 90.0, -80.0
    before = X.copy(deep=True)
    Y = prepare.reject(X, peak_to_peak=20)
    xr.testing.assert_identical(X, before)
    is_bad = np.zeros((3, 4), dtype=bool)
    is_bad[1, 2] = is_bad[2, 0] = True
    np.testing.assert_array_equal(np.isnan(Y.values).all(axis=1), is_bad)
    np.testing.assert_array_equal(np.isnan(Y.values).any(axis=1), is_bad)
    table = pd.DataFrame({"channel": ["b", "c"], "trial": [2, 0]})
    np.testing.assert_array_equal(prepare.reject(X, table=table).values, Y.values)
    whole = prepare.reject(X, table={"trial": [1]})
    assert np.isnan(whole.values[:, :, 1]).all() and "8.3 %" not in whole.attrs["preparation"][0]
    assert "25.0 % of the entries (table)" in whole.attrs["preparation"][0]


def test_spikes_of_a_session_are_counted_by_trial(rng):
    trains = [np.sort(rng.uniform(0, 20, 300)), rng.uniform(0, 20, 200)]
    table = {"onset": [1.0, 6.0, 12.0], "stop": [3.0, 7.05, 15.0], "go": [1.5, 6.2, 13.0], "cue": list("aba")}
    X = prepare.count_spikes(trains, table, bin_ms=100, align="go", units=["u1", "u2"])
    assert X.shape == (2, 30, 3) and X["cue"].values.tolist() == list("aba")
    for n in range(3):
        for j, t in enumerate(X["time"].values):
            low = table["go"][n] + t
            is_inside = low > table["onset"][n] - 1e-9 and low + 0.1 < table["stop"][n] + 1e-9
            for u, train in enumerate(trains):
                count = np.sum((train >= low) & (train < low + 0.1))
                assert X.values[u, j, n] == count if is_inside else np.isnan(X.values[u, j, n])
    fixed = prepare.count_spikes({"u1": trains[0]}, table, bin_ms=50, window_ms=(-100, 200))
    assert fixed.shape == (1, 6, 3) and not fixed.isnull().any() and fixed["unit"].values.tolist() == ["u1"]
