import zipfile

import numpy as np
import pytest
import scipy.io

import boolcp
from boolcp.io import FileError, reading


@pytest.fixture
def channels(rng):
    return rng.integers(-3000, 3000, (12, 400)).astype(np.int16)  # more than 9: the numbers give the order


def write_session(folder, channels, *, conditions=(), time_name="ECoGTime.mat", first=0.0, kind="index"):
    """Write a session as the archive has it, by scipy and not by the library."""
    folder.mkdir(parents=True)
    for n, row in enumerate(channels, start=1):
        scipy.io.savemat(folder / f"ECoG_ch{n}.mat", {f"ECoGData_ch{n}": row[None]}, do_compression=True)
    scipy.io.savemat(folder / time_name, {"ECoGTime": first + np.arange(channels.shape[1])[None] / 1000})
    if conditions:
        index = np.array([[n for _, n in conditions]], dtype=float)
        content = {"ConditionLabel": np.array([[label for label, _ in conditions]], dtype=object)}
        content |= {"ConditionTime": (index - 1) / 1000} if kind == "time" else {"ConditionIndex": index}
        scipy.io.savemat(folder / "Condition.mat", {"Condition": content} if kind == "struct" else content)
    return folder


def zip_folder(folder, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for item in sorted(folder.rglob("*")):
            archive.write(item, item.relative_to(folder.parent))
    return path


PAIR = (("AwakeEyesOpened-Start", 11), ("AnestheticInjection", 60), ("AwakeEyesOpened-End", 110))


@pytest.mark.parametrize("time_name", ["ECoGTime.mat", "ecog_TIME.mat"])
def test_one_session(time_name, tmp_path, channels):
    folder = write_session(tmp_path / "rec", channels, time_name=time_name, first=12.5)
    X = boolcp.open_tensor(folder)
    np.testing.assert_array_equal(X.values, channels)
    assert X.dtype == np.float32 and X["channel"].values.tolist() == list(range(1, 13))
    assert boolcp.open_tensor(folder, channels=["11", 2])["channel"].values.tolist() == [11, 2]
    assert float(X["time"][0]) == 12.5 and boolcp.prepare.sampling_rate(X) == 1000


@pytest.mark.parametrize("kind", ["index", "time", "struct"])
def test_a_condition_by_its_label(kind, tmp_path, channels):
    folder = write_session(tmp_path / "rec", channels, conditions=PAIR, kind=kind, first=7.001)
    X = boolcp.open_tensor(folder, condition="awakeeyesopened")
    np.testing.assert_array_equal(X.values, channels[:, 10:110])  # from 1, the end included
    whole = boolcp.open_tensor(folder)
    assert boolcp.prepare.list_conditions(whole)[0][0] == "AwakeEyesOpened"
    np.testing.assert_array_equal(boolcp.prepare.select_condition(whole, "AwakeEyesOpened").values, X.values)


def test_conditions_outside_the_recording_are_clipped(tmp_path, channels):
    conditions = (("Recovery-Start", -100), ("Recovery-End", 20), ("Sleeping-Start", 390))
    folder = write_session(tmp_path / "rec", channels, conditions=conditions)
    np.testing.assert_array_equal(boolcp.open_tensor(folder, condition="Recovery").values, channels[:, :20])
    np.testing.assert_array_equal(boolcp.open_tensor(folder, condition="Sleeping").values, channels[:, 389:])


@pytest.mark.parametrize("is_zip", [False, True])
def test_sessions_and_a_condition_in_two_of_them(is_zip, tmp_path, channels):
    root = tmp_path / "20120730PF"
    write_session(root / "Session1", channels, conditions=PAIR)
    write_session(root / "Session2", channels + 1, conditions=(("Sleeping-Start", 1), ("Sleeping-End", 50)))
    write_session(root / "Session10", channels + 2, conditions=PAIR)
    path = zip_folder(root, tmp_path / "rec.zip") if is_zip else root
    X = boolcp.open_tensor(path, condition="AwakeEyesOpened")
    np.testing.assert_array_equal(X.values, np.hstack([channels[:, 10:110], channels[:, 10:110] + 2]))
    assert X["segment"].values.tolist() == [0] * 100 + [1] * 100
    assert boolcp.prepare.cut_trials(X, 60).sizes["trial"] == 2, "no trial reaches across sessions"
    np.testing.assert_array_equal(boolcp.open_tensor(path, session=2).values, channels + 1)
    np.testing.assert_array_equal(boolcp.open_tensor(path, session="Session10").values, channels + 2)
    with pytest.raises(FileError, match=r"several sessions.*Session1 \(AwakeEyesOpened\).*Session2 \(Sleeping\)"):
        boolcp.open_tensor(path)
    lines = "\n".join(reading.describe(path))
    assert "Session2: 12 channels, 400 samples" in lines and "Sleeping: 0.00 to 0.05 s" in lines


def test_electrodes_beside_the_channels_or_given(tmp_path, channels):
    folder = write_session(tmp_path / "rec", channels)
    table = "channel,x_px,y_px,area8\n" + "".join(f"{n},{n}.5,{2 * n},A{n % 2}\n" for n in range(1, 13))
    (folder / "electrodes_B.csv").write_text(table)
    X = boolcp.open_tensor(folder)
    assert X["x"].values.tolist() == [n + 0.5 for n in range(1, 13)] and X["area"].values[0] == "A1"
    scipy.io.savemat(tmp_path / "ChibiMap.mat", {"X": np.arange(12.0)[:, None], "Y": np.ones((12, 1))})
    assert boolcp.open_tensor(folder, electrodes=tmp_path / "ChibiMap.mat")["x"].values.tolist() == list(range(12))


def test_a_channel_bad_in_one_session_is_left_out_of_all(tmp_path, channels):
    write_session(tmp_path / "rec" / "Session1", channels, conditions=PAIR)
    write_session(tmp_path / "rec" / "Session2", channels, conditions=PAIR)
    (tmp_path / "rec" / "Session2" / "ECoG_ch3.mat").write_bytes(b"MATLAB 5.0" + bytes(300))
    with pytest.warns(UserWarning, match=r"Skipped channel 3.*ECoG_ch3\.mat"):
        X = boolcp.open_tensor(tmp_path / "rec", condition="AwakeEyesOpened", skip_bad=True)
    assert 3 not in X["channel"] and X.sizes["channel"] == 11 and X.attrs["left_out"] == [3]
    np.testing.assert_array_equal(X.values[2], np.tile(channels[3, 10:110], 2))


def test_a_simulated_recording_of_full_size(tmp_path):
    simulation = boolcp.datasets.simulate_ecog(n_trials=2, trial_ms=500, random_state=0)
    simulation.write_neurotycho(tmp_path / "rec")
    for condition, label in (("rest", "AwakeEyesClosed"), ("recovery", "RecoveryEyesClosed")):
        X = boolcp.open_tensor(zip_folder(tmp_path / "rec", tmp_path / f"{condition}.zip"), condition=label)
        expected = simulation.tensor(condition)
        tensor = boolcp.prepare.cut_trials(X, 500)
        assert tensor.sizes == expected.sizes == {"channel": 128, "time": 500, "trial": 2}
        assert float(abs(tensor - expected).max()) <= 0.5, "rounded to int16"
        assert X["area"].values.tolist() == expected["area"].values.tolist() and len(set(X["area"].values)) == 8
