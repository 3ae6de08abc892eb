import numpy as np
import pytest
import xarray as xr

from boolcp import prepare

RATE = 200.0


def recording(values, **coords):
    values = np.atleast_2d(values)
    coords = {"channel": np.arange(1, len(values) + 1), "time": np.arange(values.shape[1]) / RATE} | coords
    return xr.DataArray(values, coords, ("channel", "time"), name="voltage", attrs={"units": "uV"})


def sine(frequency, seconds=10):
    return np.sin(2 * np.pi * frequency * np.arange(int(seconds * RATE)) / RATE)


@pytest.fixture
def X(rng):
    return recording(rng.standard_normal((4, 2000)))


STEPS = {
    "select": lambda X: prepare.select(X, "channel", [2, 1]),
    "common_average": prepare.common_average,
    "bipolar": lambda X: prepare.bipolar(X, [(1, 2), (3, 4)]),
    "band_pass": lambda X: prepare.band_pass(X, 5, 20),
    "envelope": prepare.envelope,
    "resample": lambda X: prepare.resample(X, 50),
    "zscore": prepare.zscore,
    "cut_trials": lambda X: prepare.cut_trials(X, 500),
}


@pytest.mark.parametrize("name", STEPS)
def test_every_step_keeps_labels_notes_itself_and_leaves_its_input(name, X):
    X = X.assign_coords(x=("channel", [1.0, 2.0, 3.0, 4.0])).assign_attrs(preparation=["before"])
    before = X.copy(deep=True)
    Y = STEPS[name](X)
    xr.testing.assert_identical(X, before)
    assert Y.attrs["preparation"][0] == "before" and len(Y.attrs["preparation"]) == 2
    assert Y.attrs["units"] == ("standard deviations" if name == "zscore" else "uV") and Y.name == "voltage"
    assert Y["x"].dims == ("channel",) and len(Y["x"]) == Y.sizes["channel"]


@pytest.mark.parametrize("name", ["band_pass", "envelope", "resample", "zscore", "common_average", "bipolar"])
def test_float32_stays_float32_and_int16_does_not_overflow(name, X):
    assert STEPS[name](X.astype(np.float32)).dtype == np.float32
    big = (10000 * X).clip(-30000, 30000).astype(np.int16)
    np.testing.assert_allclose(STEPS[name](big), STEPS[name](big.astype(float)), rtol=1e-4, atol=0.05)


def test_bipolar_pairs_lie_at_the_midpoint(X):
    X = X.assign_coords(x=("channel", [0.0, 2, 4, 6]), y=("channel", [1.0, 1, 3, 3]), area=("channel", list("AABB")))
    Y = prepare.bipolar(X, [("1", "2"), ("4", "3"), ("4", "99")])
    assert Y["channel"].values.tolist() == ["1-2", "4-3"] and Y["x"].values.tolist() == [1, 5]
    assert Y["area"].values.tolist() == ["A", "B"]
    np.testing.assert_array_equal(Y.values[1], X.values[3] - X.values[2])
    with pytest.raises(ValueError, match="None of the pairs"):
        prepare.bipolar(X, [(8, 9)])


def test_band_pass_keeps_the_band_without_delay():
    X = recording(sine(10) + sine(40) + 3)
    Y = prepare.band_pass(X, 5, 20)
    inner = slice(400, 1600)
    np.testing.assert_allclose(Y.values[0, inner], sine(10)[inner], atol=0.02)
    np.testing.assert_allclose(prepare.band_pass(X, None, 20).values[0, inner], sine(10)[inner] + 3, atol=0.02)
    np.testing.assert_allclose(prepare.band_pass(X, 20, None).values[0, inner], sine(40)[inner], atol=0.02)


@pytest.mark.parametrize(("kind", "expected"), [("amplitude", 4.0), ("power", 16.0), ("log", np.log10(4))])
def test_envelope_of_a_sine_is_its_amplitude(kind, expected):
    Y = prepare.envelope(recording(4 * sine(10)), kind)
    np.testing.assert_allclose(Y.values[0, 200:-200], expected, atol=0.05 * expected)
    assert Y.attrs["units"] == {"amplitude": "uV", "power": "uV²", "log": "log10 uV"}[kind]
    assert np.isfinite(prepare.envelope(recording(np.zeros((1, 100))), kind).values).all()


@pytest.mark.parametrize("rate", [50, 128, 400])
def test_resampling_keeps_a_slow_wave_and_its_times(rate):
    Y = prepare.resample(recording(sine(3)), rate)
    assert prepare.sampling_rate(Y) == rate and abs(Y.sizes["time"] - 10 * rate) <= 1
    inner = (Y["time"] > 1) & (Y["time"] < 9)
    np.testing.assert_allclose(Y.values[0][inner], np.sin(2 * np.pi * 3 * Y["time"].values[inner]), atol=0.01)
    if rate == 50:  # nothing is aliased
        assert float(abs(prepare.resample(recording(sine(80)), rate)).isel(time=slice(50, -50)).max()) < 0.02


def test_zscore_ignores_missing_entries_and_names_flat_channels(rng):
    values = rng.standard_normal((3, 300)) * [[1], [5], [9]] + 7
    values[1, :10] = np.nan
    Y = prepare.zscore(recording(values))
    np.testing.assert_allclose(Y.mean("time"), 0, atol=1e-12)
    np.testing.assert_allclose(Y.std("time"), 1)
    values[2] = 4.0
    with pytest.raises(ValueError, match=r"constant.*\(3\)"):
        prepare.zscore(recording(values))


def test_trials_are_consecutive(X):
    Y = prepare.cut_trials(X, 300)
    assert Y.sizes == {"channel": 4, "time": 60, "trial": 33}
    for trial in (0, 7, 32):
        np.testing.assert_array_equal(Y.values[:, :, trial], X.values[:, 60 * trial : 60 * (trial + 1)])
    np.testing.assert_allclose(Y["onset"], 0.3 * np.arange(33))
    assert Y["time"].attrs["units"] == "s" and float(Y["time"][-1]) == 59 / RATE
    assert prepare.cut_trials(X, 300, n_trials=10).sizes["trial"] == 10
    with pytest.raises(ValueError, match="give 33 trials of 300 ms, but 40 are needed"):
        prepare.cut_trials(X, 300, n_trials=40)


def test_filters_do_not_run_across_segments(rng):
    parts = [rng.standard_normal((2, 500)), 1000 + rng.standard_normal((2, 700))]
    X = recording(np.hstack(parts)).assign_coords(segment=("time", np.repeat([0, 1], [500, 700])))
    for step in (STEPS["band_pass"], STEPS["resample"], prepare.envelope):
        alone = np.hstack([step(recording(part)).values for part in parts])
        np.testing.assert_allclose(step(X).values, alone)
    assert prepare.cut_trials(X, 2000).sizes["trial"] == 2, "400 of 500 and 400 of 700 samples"


def test_conditions_in_time_and_along_trials(X):
    attrs = {"condition_label": ["rest", "task", "rest"], "condition_start": [0, 2, 6.0], "condition_stop": [1, 4, 8.0]}
    rest = prepare.select_condition(X.assign_attrs(attrs), "Rest")
    np.testing.assert_array_equal(rest.values, np.hstack([X.values[:, :200], X.values[:, 1200:1600]]))
    assert rest["segment"].values.tolist() == [0] * 200 + [1] * 400 and "condition_label" not in rest.attrs
    task = prepare.select_condition(X.assign_attrs(attrs), "task")
    assert "segment" not in task.coords and float(task["time"][0]) == 2
    with pytest.raises(ValueError, match="conditions are rest, task"):
        prepare.select_condition(X.assign_attrs(attrs), "sleep")
    with pytest.raises(ValueError, match="No conditions are known"):
        prepare.select_condition(X, "sleep")
    trials = X.rename(time="trial").assign_coords(condition=("trial", np.resize(["go/left", "stop"], 2000)))
    assert prepare.select_condition(trials, "left").sizes["trial"] == 1000


def test_counts_add_up_to_the_events_in_short_bins_too(rng):
    units, times, trials = rng.integers(0, 5, 1000), rng.uniform(0, 100, 1000), rng.integers(3, 9, 1000)
    X = prepare.count_events(units, times, trials, bin_ms=7, stop=100)
    assert X.shape == (5, 15, 6) and X.values.sum() == 1000
    expected = np.sum((units == 2) & (times >= 14) & (times < 21) & (trials == 4))
    assert X.sel(unit=2, trial=4).values[2] == expected
    inside = prepare.count_events(units, times, trials, bin_ms=10, start=20, stop=60)
    assert inside.values.sum() == np.sum((times >= 20) & (times < 60)) and float(inside["time"][0]) == 0.02
    ticks = rng.integers(0, 4000, 2000)
    X = prepare.count_events(np.zeros(2000), ticks / 10, np.zeros(2000), bin_ms=0.1, stop=400)
    np.testing.assert_array_equal(X.values[0, :, 0], np.bincount(ticks, minlength=4000))
    single = prepare.count_events(np.zeros(2000), (ticks / 10).astype("f4"), np.zeros(2000), bin_ms=0.1, stop=400)
    np.testing.assert_array_equal(single.values, X.values)
    hour = prepare.count_events(np.zeros(3), np.array([1, 4.8, 3.6e6], "f4"), np.zeros(3), bin_ms=5)
    assert hour.values[0, :2, 0].tolist() == [2, 0], "a late event does not move early ones"
    Y = prepare.count_spikes([ticks / 10_000], {"onset": [0.0]}, bin_ms=0.1, window_ms=400)
    np.testing.assert_array_equal(Y.values, X.values)


def test_join_along_a_new_and_an_old_mode_by_labels_or_along_time_as_segments(X):
    Y = prepare.cut_trials(X, 500)
    new = prepare.join([Y, 2 * Y], "state", ["a", "b"])
    assert new.dims == ("channel", "time", "trial", "state") and new["state"].values.tolist() == ["a", "b"]
    np.testing.assert_array_equal(new.sel(state="b").values, 2 * Y.values)
    old = prepare.join([Y, 2 * Y.isel(trial=slice(5))], "trial", ["a", "b"])
    assert old.sizes["trial"] == 25 and old["part"].values.tolist() == ["a"] * 20 + ["b"] * 5
    assert old["trial"].values.tolist() == list(range(25))
    assert old.attrs["preparation"] == ["cut into 20 trials of 500 ms", "join 2 along trial: a (20), b (5)"]
    assert new.attrs["preparation"][-1] == "join 2 along state: a, b"
    files = [Y.assign_attrs(source=name) for name in ("a.mat", "b.mat", "a.mat", "c.mat")]
    assert prepare.join(files, "trial").attrs["source"] == "a.mat and 2 more"
    assert prepare.join(files[::2], "state").attrs["source"] == "a.mat"
    for dim in ("trial", "state"):
        mixed = prepare.join([Y, 2 * Y.isel(channel=[3, 1, 0, 2]).transpose("trial", "channel", "time")], dim)
        xr.testing.assert_identical(mixed, prepare.join([Y, 2 * Y], dim))
    for other, words in (
        (Y.isel(channel=[0]), "Array 2 .* along mode 'channel': it lacks 2, 3, 4"),
        (Y.assign_coords(channel=[1, 2, 3, 9]), "it lacks 4 and it has the unknown 9"),
        (Y.assign_coords(time=Y["time"] * 2), "along mode 'time'"),
        (Y.drop_vars("time").assign_attrs(sampling_rate=2 * RATE), "has 400 Hz instead of 200 Hz: resample it"),
        (Y.assign_attrs(units="V"), "has V instead of uV: convert it"),
    ):
        with pytest.raises(ValueError, match=words):
            prepare.join([Y.assign_attrs(units="uV"), other], "trial")
    both = prepare.join([X, X.isel(time=slice(500))], "time")
    np.testing.assert_allclose(prepare.band_pass(both, 5, 20)[:, :2000], prepare.band_pass(X, 5, 20))
    with pytest.raises(ValueError, match="100 Hz instead of 200 Hz: resample it"):
        prepare.join([X, X.isel(time=slice(None, None, 2))], "time")


def test_times_count_more_than_a_stale_sampling_rate():
    X = recording(sine(10)).assign_attrs(sampling_rate=RATE)
    fewer = X.isel(time=slice(None, None, 4))
    assert prepare.sampling_rate(X) == 200 and prepare.sampling_rate(fewer) == 50
    assert float(prepare.band_pass(fewer, 8, 13).std()) == pytest.approx(float(X.std()), rel=0.05)
    assert prepare.sampling_rate(fewer.drop_vars("time")) == 200
    parts = X.isel(time=np.r_[0:20, 90:110, 300:320]).assign_coords(segment=("time", np.repeat([0, 1, 2], 20)))
    assert prepare.sampling_rate(parts.assign_attrs(sampling_rate=1.0)) == 200, "the steps within segments count"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda X: prepare.band_pass(X, 5, 150), "half the sampling rate, 100 Hz"),
        (lambda X: prepare.band_pass(X, 20, 5), "must lie between"),
        (lambda X: prepare.resample(X, -1), "positive"),
        (lambda X: prepare.envelope(X, "phase"), "amplitude"),
        (lambda X: prepare.cut_trials(X, 1), "shorter than one sample"),
        (lambda X: prepare.cut_trials(prepare.cut_trials(X, 500), 500), "already has a mode 'trial'"),
        (lambda X: prepare.select(X, "channel", [9]), "has no 9"),
        (lambda X: prepare.common_average(X.rename(channel="sensor")), "needs the mode 'channel'"),
        (lambda X: prepare.band_pass(X.drop_vars("time"), 5, 20), "sampling rate is unknown"),
        (lambda X: prepare.band_pass(X.assign_coords(time=X["time"] ** 2), 5, 20), "not evenly spaced"),
        (lambda X: prepare.count_events([], [], [], bin_ms=1), "equally long"),
        (lambda X: prepare.count_events([1], [np.nan], [1], bin_ms=1), "finite"),
    ],
)
def test_what_cannot_be_done_is_said(step, words, X):
    with pytest.raises(ValueError, match=words):
        step(X)
    with pytest.raises(TypeError, match="xarray DataArray"):
        prepare.common_average(np.ones((2, 3)))
