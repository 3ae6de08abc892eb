"""Every file that cannot be used gives one line: the file, what is wrong, what to do."""

import errno
import pickle
import zipfile

import h5py
import numpy as np
import pytest
import scipy.io
import xarray as xr

import boolcp
from boolcp.cli import main
from boolcp.io import FileError

CUBE = np.arange(24.0).reshape(2, 3, 4)


def write_bytes(path, content):
    path.write_bytes(content)
    return path


def truncated(path, share=0.5):
    content = path.read_bytes()
    return write_bytes(path, content[: int(len(content) * share)])


def npy(folder, array=CUBE, **options):
    np.save(folder / "data.npy", array, **options)
    return folder / "data.npy"


def npz(folder, **arrays):
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def mat(folder, **arrays):
    scipy.io.savemat(folder / "data.mat", arrays)
    return folder / "data.mat"


def netcdf(folder, array):
    array.to_netcdf(folder / "data.nc", engine="h5netcdf")
    return folder / "data.nc"


def hdf5(folder, **arrays):
    with h5py.File(folder / "data.h5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return folder / "data.h5"


def recording(folder, lengths=(100, 100), times=100, condition=None):
    """Write a small NeuroTycho folder by hand."""
    path = folder / "recording"
    path.mkdir()
    for n, length in enumerate(lengths, start=1):
        scipy.io.savemat(path / f"ECoG_ch{n}.mat", {f"ECoGData_ch{n}": np.ones((1, length), np.int16)})
    if times is not None:
        times = np.arange(times) / 1000 if np.ndim(times) == 0 else times
        scipy.io.savemat(path / "ECoGTime.mat", {"ECoGTime": times[None]})
    if condition is not None:
        scipy.io.savemat(path / "Condition.mat", condition)
    return path


def zipped(folder, members, name="recording.zip"):
    with zipfile.ZipFile(folder / name, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return folder / name


def bad_channel(folder):
    path = recording(folder)
    truncated(path / "ECoG_ch2.mat")
    return path


def bad_member(folder):
    """A zip whose second channel has a wrong checksum."""
    source = recording(folder)
    path = zipped(folder, {f"S1/{item.name}": item.read_bytes() for item in sorted(source.iterdir())})
    content = bytearray(path.read_bytes())
    content[content.rfind(b"ECoG_ch2.mat", 0, content.find(b"ECoG_ch2.mat") + 12) + 260] ^= 255
    return write_bytes(path, bytes(content))


def condition(labels, index):
    return {"ConditionLabel": np.array([labels], dtype=object), "ConditionIndex": np.array([index], dtype=float)}


# name: how to make it, options of open_tensor, words of the message
MALFORMED = {
    "missing file": (lambda d: d / "nothing.npy", {}, "no such file"),
    "0 bytes": (lambda d: write_bytes(d / "data.npy", b""), {}, "empty (0 bytes)"),
    "unknown ending": (lambda d: write_bytes(d / "data.xyz", b"1"), {}, "not a known format"),
    "pickle": (lambda d: write_bytes(d / "data.pkl", pickle.dumps(CUBE)), {}, "never read"),
    "truncated npy": (lambda d: truncated(npy(d)), {}, "not a readable .npy"),
    "npz named npy": (lambda d: npz(d, a=CUBE).rename(d / "data.npy"), {}, "not a readable .npy"),
    "npy of objects": (lambda d: npy(d, np.array([["a", 1]], dtype=object)), {}, "Python objects"),
    "complex npy": (lambda d: npy(d, CUBE * 1j), {}, "complex"),
    "npy without entries": (lambda d: npy(d, np.ones((0, 3))), {}, "is empty"),
    "npz with several arrays": (lambda d: npz(d, a=CUBE, b=CUBE), {}, "Choose one"),
    "mat without the variable": (lambda d: mat(d, a=CUBE), {"variable": "X"}, "no variable 'X'"),
    "truncated mat": (lambda d: truncated(mat(d, a=CUBE)), {}, "not a readable .mat"),
    "HDF5 without the dataset": (lambda d: hdf5(d, a=CUBE), {"variable": "g/b"}, "no variable 'g/b'"),
    "HDF5 group": (lambda d: hdf5(d, **{"g/a": CUBE}), {"variable": "/g"}, "is a group"),
    "netCDF with duplicate labels": (
        lambda d: netcdf(d, xr.DataArray(CUBE[:, :2], {"time": ["a", "a"]}, ("channel", "time", "trial"))),
        {},
        "more than once",
    ),
    "names given twice": (npy, {"dims": ("a", "b", "a")}, "modes were named a, b, a"),
    "rate without time": (npy, {"sampling_rate": 100.0}, "name the modes"),
    "folder without a recording": (lambda d: d, {}, "not a NeuroTycho recording"),
    "channels of different lengths": (lambda d: recording(d, (100, 90)), {}, "90 samples"),
    "wrong time file": (lambda d: recording(d, times=120), {}, "time file has 120"),
    "times that go back": (lambda d: recording(d, times=np.arange(100.0)[::-1]), {}, "do not increase"),
    "no time file": (lambda d: recording(d, times=None), {}, "no time file"),
    "corrupt channel": (bad_channel, {}, "ECoG_ch2.mat: not a readable"),
    "unknown condition": (
        lambda d: recording(d, condition=condition(["A-Start", "A-End"], [1, 50])),
        {"condition": "B"},
        "conditions are A",
    ),
    "conditions without labels": (
        lambda d: recording(d, condition={"x": np.ones(3)}),
        {"condition": "A"},
        "has 0 conditions",
    ),
    "unknown channel": (recording, {"channels": [9]}, "no channel 9"),
    "empty zip": (lambda d: zipped(d, {}), {}, "zip is empty"),
    "path traversal in a zip": (lambda d: zipped(d, {"../ECoG_ch1.mat": b"x"}), {}, "leads out of the zip"),
    "corrupt member of a zip": (bad_member, {}, "ECoG_ch2.mat"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_gives_one_line(name, tmp_path):
    make, options, words = MALFORMED[name]
    path = make(tmp_path)
    with pytest.raises(FileError) as caught:
        boolcp.open_tensor(path, **options)
    message = str(caught.value)
    assert words in message, message
    assert "\n" not in message and message.endswith(".") and len(message) < 700, message
    assert path.name in message or path.name in caught.value.path or str(tmp_path) in message


@pytest.mark.parametrize("part", ["stream", "place"])
def test_a_damaged_member_of_a_zip(part, tmp_path):
    path = tmp_path / "recording.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for n in (1, 2):
            archive.writestr(f"S1/ECoG_ch{n}.mat", bytes(range(256)) * 9)
    content, name = path.read_bytes(), b"S1/ECoG_ch1.mat"
    # no kind of block that there is, or a place before the file begins
    start, junk = (
        (content.index(name) + len(name), b"\xff" * 9) if part == "stream" else (len(content) - 6, b"\xff" * 4)
    )
    path.write_bytes(content[:start] + junk + content[start + len(junk) :])
    with pytest.raises(FileError, match="ECoG_ch1"):
        boolcp.open_tensor(path)


@pytest.mark.parametrize("name", ["truncated npy", "path traversal in a zip"])
def test_the_command_shows_the_line_and_no_traceback(name, tmp_path, capsys):
    path = MALFORMED[name][0](tmp_path)
    assert main(["fit", str(path), "-o", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("boolcp: ") and shown.err.count("\n") == 1 and "Traceback" not in shown.err
    assert MALFORMED[name][2] in shown.err
    assert not (tmp_path / "out").exists()


def full_disk(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_old_result(tmp_path, monkeypatch, rng):
    path = tmp_path / "result.nc"
    boolcp.BooleanCP((2, 3, 4)).save(path)
    before = path.read_bytes()
    monkeypatch.setattr(type(path), "write_bytes", full_disk)
    with pytest.raises(FileError, match="no space is left"):
        boolcp.BooleanCP((2, 3, 4)).save(path, overwrite=True)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["result.nc"], "the temporary file is gone"
