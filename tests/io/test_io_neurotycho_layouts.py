"""The layouts of the visual grating and fixation tasks; small files of that form are written by scipy."""

import numpy as np
import pytest
import scipy.io
from test_io_neurotycho import write_session, zip_folder

import boolcp
from boolcp.io import FileError, reading


@pytest.fixture
def channels(rng):
    return rng.integers(-3000, 3000, (3, 200)).astype(np.int16)


@pytest.fixture
def grating(tmp_path, channels):
    """Return the folder of a recording whose event signal has a value for each sample."""
    folder = write_session(tmp_path / "grating", channels)
    (folder / "ECoGTime.mat").unlink()
    write_events(folder, np.repeat([350, 700], 100), first=5.0)
    return folder


def write_events(folder, data, *, index=None, first=0.0):
    index = np.arange(len(data)) + 1 if index is None else index
    content = {"EventData": data, "EventTime": first + (np.asarray(index) - 1) / 1000, "EventIndex": index}
    scipy.io.savemat(folder / "Event.mat", {name: np.atleast_2d(row) for name, row in content.items()})


def write_trials(folder, trials):
    folder.mkdir()
    for n, block in enumerate(trials, start=1):
        scipy.io.savemat(folder / f"ECoG_ch{n:03d}.mat", {"data": block})
    return folder


@pytest.mark.parametrize("is_zip", [False, True])
def test_events_bring_times_and_a_signal(is_zip, grating, channels, tmp_path):
    path = zip_folder(grating, tmp_path / "grating.zip") if is_zip else grating
    X = boolcp.open_tensor(path)
    np.testing.assert_array_equal(X.values, channels)
    np.testing.assert_allclose(X["time"], 5 + np.arange(200) / 1000)
    np.testing.assert_array_equal(X["event"], np.repeat([350, 700], 100))
    assert boolcp.prepare.sampling_rate(X) == 1000
    assert "  with an event signal" in reading.describe(path)


def test_the_event_signal_chooses_samples_and_goes_through_preparation(grating, channels):
    X = boolcp.open_tensor(grating)
    shown = X.isel(time=(X["event"] > 650).values)
    np.testing.assert_array_equal(shown.values, channels[:, 100:])
    assert boolcp.prepare.cut_trials(X, 50).sizes == {"channel": 3, "time": 50, "trial": 4}
    assert boolcp.prepare.resample(X, 500).sizes["time"] == 100
    assert boolcp.decompose(boolcp.prepare.common_average(X), 1, random_state=0).n_atoms == 1


def test_few_events_are_placed_at_their_samples(tmp_path, channels):
    folder = write_session(tmp_path / "rec", channels, first=2.0)
    write_events(folder, [7, 9], index=[11, 200])
    X = boolcp.open_tensor(folder)
    event = X["event"].values
    assert np.flatnonzero(~np.isnan(event)).tolist() == [10, 199] and event[[10, 199]].tolist() == [7, 9]
    assert float(X["time"][0]) == 2.0, "the time file goes before the events"
    (folder / "ECoGTime.mat").unlink()
    with pytest.raises(FileError, match=r"ECoG_ch1\.mat: has no time file beside it.*--sampling-rate"):
        boolcp.open_tensor(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"Other": [[1.0]]}, r"Event\.mat: has no variable 'EventData'. It needs EventData and EventTime"),
        ({"EventData": [[1.0, 2.0]]}, r"Event\.mat: its EventIndex does not name 2 of the 200 samples"),
        ({"EventData": [[1.0]], "EventIndex": [[201]]}, r"Event\.mat: its EventIndex does not name 1 of the 200"),
        ({"EventData": [[1.0]], "EventIndex": [[0]]}, r"Event\.mat: its EventIndex does not name 1 of the 200"),
        ({"EventData": [[1.0]], "EventIndex": [[1, 2]]}, r"Event\.mat: its EventIndex does not name"),
    ],
)
def test_wrong_events_are_named(content, message, tmp_path, channels):
    folder = write_session(tmp_path / "rec", channels)
    scipy.io.savemat(folder / "Event.mat", content)
    with pytest.raises(FileError, match=message):
        boolcp.open_tensor(folder)


@pytest.mark.parametrize("is_zip", [False, True])
def test_channels_that_are_cut_into_trials(is_zip, tmp_path, rng):
    trials = rng.integers(-99, 99, (11, 4, 25)).astype(np.int16)  # channel, trial, time
    folder = write_trials(tmp_path / "fixation", trials)
    path = zip_folder(folder, tmp_path / "fixation.zip") if is_zip else folder
    X = boolcp.open_tensor(path, sampling_rate=500)
    assert X.dims == ("channel", "time", "trial") and X.dtype == np.float32
    np.testing.assert_array_equal(X.values, trials.transpose(0, 2, 1))
    assert X["channel"].values.tolist() == list(range(1, 12)) and float(X["time"][-1]) == 24 / 500
    assert boolcp.open_tensor(path, sampling_rate=500, channels=[7])["channel"].values.tolist() == [7]
    assert reading.describe(path) == ["fixation: 11 channels, 4 trials of 25 samples"]
    assert boolcp.decompose(X, 1, random_state=0).dims == ("channel", "time", "trial")


def test_trials_with_a_time_file(tmp_path, rng):
    folder = write_trials(tmp_path / "fixation", rng.standard_normal((2, 4, 25)))
    scipy.io.savemat(folder / "ECoGTime.mat", {"ECoGTime": np.arange(25)[None] / 1000 - 0.01})
    X = boolcp.open_tensor(folder)
    assert float(X["time"][0]) == -0.01 and boolcp.prepare.sampling_rate(X) == 1000
    scipy.io.savemat(folder / "ECoGTime.mat", {"ECoGTime": np.arange(26)[None] / 1000})
    with pytest.raises(FileError, match=r"ECoGTime\.mat: has 26 samples, but the trials have 25"):
        boolcp.open_tensor(folder)


def test_what_is_wrong_with_trials_is_named(tmp_path, rng):
    folder = write_trials(tmp_path / "fixation", rng.standard_normal((4, 4, 25)))
    with pytest.raises(FileError, match=r"ECoG_ch001\.mat: has no time file beside it.*--sampling-rate"):
        boolcp.open_tensor(folder)
    with pytest.raises(FileError, match=r"fixation: is cut into trials and has no conditions"):
        boolcp.open_tensor(folder, sampling_rate=500, condition="Rest")
    scipy.io.savemat(folder / "ECoG_ch003.mat", {"data": np.ones((3, 25))})
    with pytest.raises(FileError, match=r"ECoG_ch003\.mat: is 3 x 25 \(trial x time\), but other channels are 4 x 25"):
        boolcp.open_tensor(folder, sampling_rate=500)
    (folder / "ECoG_ch001.mat").write_bytes(b"MATLAB 5.0" + bytes(300))
    with pytest.warns(UserWarning, match="Skipped channel [13]"):
        X = boolcp.open_tensor(folder, sampling_rate=500, skip_bad=True)
    assert X["channel"].values.tolist() == [2, 4] and X.attrs["left_out"] == [1, 3]


def test_trials_in_files_of_matlab_7_3(tmp_path, rng):
    h5py = pytest.importorskip("h5py")
    trials = rng.standard_normal((2, 4, 25))
    for n, block in enumerate(trials, start=1):
        with h5py.File(tmp_path / f"ECoG_ch{n}.mat", "w", userblock_size=512) as file:
            file["data"] = block.T  # MATLAB stores columns first
            file["data"].attrs["MATLAB_class"] = np.bytes_("double")
        with (tmp_path / f"ECoG_ch{n}.mat").open("r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    X = boolcp.open_tensor(tmp_path, sampling_rate=500)
    np.testing.assert_array_equal(X.values, trials.transpose(0, 2, 1).astype(np.float32))
