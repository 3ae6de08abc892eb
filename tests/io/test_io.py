import warnings

import h5py
import mne
import numpy as np
import pytest
import scipy.io
import xarray as xr
import zarr

import boolcp
from boolcp.io import FileError, reading
from boolcp.io.arrays import write_tensor


@pytest.fixture
def X(rng):
    return rng.standard_normal((3, 4, 5))


def labelled(X):
    coords = {"channel": ["Fz", "Cz", "Pz"], "time": ("time", np.arange(4) / 100, {"units": "s"})}
    coords["area"] = "channel", ["F", "C", "P"]
    return xr.DataArray(X, coords, ("channel", "time", "trial"), name="voltage", attrs={"units": "uV"})


def write_mat73(path, X):
    """Write an array as MATLAB v7.3 does: HDF5 behind a header of 512 bytes, the modes reversed."""
    with h5py.File(path, "w", userblock_size=512) as file:
        file["X"] = X.T
        file["X"].attrs["MATLAB_class"] = np.bytes_("double")
    header = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1 00:00:00 2024 HDF5 schema 1.00 ."
    with path.open("r+b") as file:
        file.write(header.ljust(124) + b"\x00\x02IM")


WRITERS = {
    "data.npy": np.save,
    "data.npz": lambda path, X: np.savez(path, X=X, note="text"),
    "v5.mat": lambda path, X: scipy.io.savemat(path, {"X": X, "note": "text", "rate": 5.0}),
    "v73.mat": write_mat73,
    "data.h5": lambda path, X: xr.DataArray(X, name="X").to_netcdf(path, group="group", engine="h5netcdf"),
    "data.nc": lambda path, X: xr.DataArray(X).to_netcdf(path, engine="h5netcdf"),
    "classic.nc": lambda path, X: xr.DataArray(X).to_netcdf(path, engine="scipy"),
    "data.zarr": lambda path, X: zarr.save(str(path), X),
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_numbers_of_each_format_come_back(name, tmp_path, X):
    WRITERS[name](tmp_path / name, X)
    read = boolcp.open_tensor(tmp_path / name)
    np.testing.assert_array_equal(read.values, X)
    assert read.attrs["source"] == name
    assert any("3 x 4 x 5" in line or "3 dim_0 x 4 dim_1" in line for line in reading.describe(tmp_path / name))


@pytest.mark.filterwarnings("error:Failed to open Zarr store")
@pytest.mark.parametrize("name", ["data.nc", "data.zarr"])
def test_labels_of_xarray_files_are_kept(name, tmp_path, X):
    if name.endswith(".nc"):
        labelled(X).to_netcdf(tmp_path / name, engine="h5netcdf")
    else:
        labelled(X).to_dataset().to_zarr(tmp_path / name, zarr_format=2, consolidated=False)
    read = boolcp.open_tensor(tmp_path / name)
    xr.testing.assert_equal(read, labelled(X))
    assert read["time"].attrs["units"] == "s" and read.name == "voltage"


def test_names_coordinates_and_rate(tmp_path, X):
    np.savez(tmp_path / "a.npz", data=X, fs=200.0, freqs=np.array([1.0, 2.0, 3.0]))
    read = boolcp.open_tensor(tmp_path / "a.npz", dims=("freq", "time", "trial"), coords={"freq": "freqs"})
    assert read["freq"].values.tolist() == [1, 2, 3]
    np.testing.assert_allclose(read["time"], np.arange(4) / 200)
    assert boolcp.prepare.sampling_rate(read) == 200


def test_fields_of_structs_and_paths_of_groups(tmp_path, X):
    scipy.io.savemat(tmp_path / "a.mat", {"s": {"X": X, "inner": {"Y": 2 * X}}})
    np.testing.assert_array_equal(boolcp.open_tensor(tmp_path / "a.mat", variable="s.inner.Y"), 2 * X)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["g/X"] = X
        for n, name in enumerate(("channel", "time", "trial")):
            file["g/X"].dims[n].label = name
    assert boolcp.open_tensor(tmp_path / "a.h5", variable="/g/X").dims == ("channel", "time", "trial")


def test_events_are_counted(tmp_path):
    np.savez(tmp_path / "a.npz", unit=[1, 1, 2], ms=[0.0, 12.0, 19.0], trial=[0, 0, 3])
    X = boolcp.open_tensor(tmp_path / "a.npz", events=("unit", "ms", "trial"), bin_ms=10)
    assert X.dims == ("unit", "time", "trial") and X.shape == (2, 2, 2)
    assert X.sel(unit=1, trial=0).values.tolist() == [1, 1] and X.sel(unit=2, trial=3).values.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["out.nc", "out.npy"])
def test_a_tensor_is_written_and_read(name, tmp_path, X):
    L = labelled(X).assign_attrs(preparation=["one step"], left_out=[], condition_label=["rest"])
    write_tensor(L, tmp_path / name)
    read = boolcp.open_tensor(tmp_path / name)
    np.testing.assert_array_equal(read.values, X)
    if name == "out.nc":
        xr.testing.assert_equal(read, L)
        assert np.atleast_1d(read.attrs["preparation"]).tolist() == ["one step"]
    with pytest.raises(FileError, match="exists already"):
        write_tensor(L, tmp_path / name)


def raw_recording(rng, n_channels=4, rate=100.0, seconds=6):
    info = mne.create_info([f"E{n}" for n in range(n_channels)], rate, "eeg")
    raw = mne.io.RawArray(1e-5 * rng.standard_normal((n_channels, int(rate * seconds))), info, verbose="ERROR")
    raw.set_annotations(mne.Annotations([1.0, 4.0], [2.0, 1.0], ["rest", "rest"]))
    return raw


@pytest.mark.parametrize("suffix", ["_raw.fif", ".edf", ".vhdr"])
def test_continuous_files_through_mne(suffix, tmp_path, rng):
    raw = raw_recording(rng)
    path = tmp_path / f"a{suffix}"
    if suffix == "_raw.fif":
        raw.save(path, verbose="ERROR")
    else:
        mne.export.export_raw(path, raw, verbose="ERROR")
    X = boolcp.open_tensor(path)
    assert X.dims == ("channel", "time") and X["channel"].values.tolist() == raw.ch_names
    np.testing.assert_allclose(X.values, 1e6 * raw.get_data(), atol=2e-2)
    assert X.attrs["units"] == "µV"
    rest = boolcp.open_tensor(path, condition="rest", channels=["E2"])
    assert rest.shape == (1, 300), "2 s and 1 s"
    with pytest.raises(FileError, match="takes no session"):
        boolcp.open_tensor(path, session=1)
    assert boolcp.prepare.cut_trials(rest, 500).sizes["trial"] == 6
    assert any(line.endswith("rest: 1.00 to 3.00 s") for line in reading.describe(path))


def three_epochs(rng):
    events, options = np.array([[100, 0, 1], [250, 0, 2], [400, 0, 1]]), {"baseline": None, "preload": True}
    return mne.Epochs(raw_recording(rng), events, {"go": 1, "stop": 2}, 0, 0.5, verbose="ERROR", **options)


def test_epochs_through_mne(tmp_path, rng):
    epochs = three_epochs(rng)
    epochs.save(tmp_path / "a-epo.fif", verbose="ERROR")
    X = boolcp.open_tensor(tmp_path / "a-epo.fif")
    assert X.dims == ("channel", "time", "trial") and X["condition"].values.tolist() == ["go", "stop", "go"]
    np.testing.assert_allclose(X.values, 1e6 * epochs.get_data(copy=True).transpose(1, 2, 0), rtol=1e-5, atol=1e-6)
    assert boolcp.open_tensor(tmp_path / "a-epo.fif", condition="GO").sizes["trial"] == 2
    assert {"4 channel x 51 time x 3 trial", "  condition, along trial: go (2), stop (1)"} <= set(
        reading.describe(tmp_path / "a-epo.fif")
    )
    pd = pytest.importorskip("pandas")
    epochs.metadata = pd.DataFrame({"drug": list("aba"), "rt": [0.1, 0.2, 0.3]})
    epochs.save(tmp_path / "b-epo.fif", verbose="ERROR")
    lines = reading.describe(tmp_path / "b-epo.fif")
    assert {"  drug, along trial: a (2), b (1)", "  rt, along trial: 0.1 .. 0.3"} <= set(lines)
    with pytest.raises(FileError, match="no condition 'wait'; the conditions are go, stop"):
        boolcp.open_tensor(tmp_path / "a-epo.fif", condition="wait")


def test_the_content_of_a_fif_file_decides_not_its_name(tmp_path, rng):
    epochs = three_epochs(rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MNE wants other names
        epochs.save(tmp_path / "trials.fif", verbose="ERROR")
        mne.write_evokeds(tmp_path / "mean.fif", [epochs[name].average() for name in ("go", "stop")], verbose="ERROR")
        mne.write_evokeds(tmp_path / "a-ave.fif.gz", epochs["go"].average(), verbose="ERROR")
    X = boolcp.open_tensor(tmp_path / "trials.fif")
    assert dict(X.sizes) == {"channel": 4, "time": 51, "trial": 3}
    means = boolcp.open_tensor(tmp_path / "mean.fif")
    assert means.dims == ("channel", "time", "condition") and means["condition"].values.tolist() == ["go", "stop"]
    np.testing.assert_allclose(means.sel(condition="go"), X[..., [0, 2]].mean("trial"), rtol=1e-4, atol=1e-4)
    one = boolcp.open_tensor(tmp_path / "a-ave.fif.gz")
    np.testing.assert_allclose(np.squeeze(one.values), means.sel(condition="go"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["a/b", ".", "..", "", "a\0b", "\ud800"])
def test_a_name_that_netcdf_cannot_hold_is_refused_before_anything_is_written(name, tmp_path):
    path = tmp_path / "data.nc"
    for X in (xr.DataArray(np.eye(3), dims=(name, "time")), xr.DataArray(np.eye(3), name=name)):
        with pytest.raises(FileError, match=r"data\.nc: .*(cannot hold the name|no file can hold)"):
            write_tensor(X, path)
    assert not list(tmp_path.iterdir())
    write_tensor(X, path.with_suffix(".npy"))
