"""Files that were made to harm: they hand out other files, fill the memory, run code or end the process."""

import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
import xarray as xr
import zarr
from numpy.lib import format as npy_format

import boolcp
from boolcp.io import FileError
from boolcp.io.matlab import list_variables
from boolcp.memory import memory_text

CLAIMED = (100_000, 100_000, 100_000)  # 10^15 entries

# Numbers of other files


def hdf5(path, fill):
    """Write an HDF5 file, with what marks a MATLAB file or a netCDF file by its ending."""
    with h5py.File(path, "w", userblock_size=512 if path.suffix == ".mat" else 0) as file:
        fill(file.create_group("deep") if path.suffix == ".h5" else file)
    if path.suffix == ".mat":
        with path.open("r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return path


def external(folder):
    (folder / "secret.txt").write_bytes(b"S" * 64)
    return lambda group: group.create_dataset("x", (8, 8), "u1", external=[(str(folder / "secret.txt"), 0, 64)])


def virtual(folder):
    with h5py.File(folder / "other.h5", "w") as file:
        file["x"] = np.ones((8, 8))
    layout = h5py.VirtualLayout((8, 8), float)
    layout[...] = h5py.VirtualSource(str(folder / "other.h5"), "x", (8, 8))
    return lambda group: group.create_virtual_dataset("x", layout)


def linked(folder):
    with h5py.File(folder / "other.h5", "w") as file:
        file["x"] = np.ones((8, 8))

    def fill(group):
        group["x"] = h5py.ExternalLink(str(folder / "other.h5"), "/x")
        group["y"] = np.ones((8, 8))

    return fill


TRAPS = {external: "takes its data from the file", virtual: "is virtual", linked: "is a link to the file"}


@pytest.mark.parametrize("ending", [".h5", ".nc", ".mat", ".set"])
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
@pytest.mark.parametrize("lazy", [False, True])
def test_a_file_does_not_hand_out_other_files(trap, ending, lazy, tmp_path):
    path = hdf5(tmp_path / f"data{ending}", trap(tmp_path))
    if lazy and ending in (".mat", ".set"):
        pytest.skip("these are always loaded")
    with pytest.raises(FileError, match=f"refused: .*{TRAPS[trap]}"):
        boolcp.open_tensor(path, lazy=lazy)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_a_result_does_not_hand_out_other_files(trap, tmp_path):
    path = tmp_path / "result.nc"
    boolcp.datasets.make_boolean_cp((4, 5, 6), 2, random_state=0).truth.save(path)
    with h5py.File(path, "a") as file:
        trap(tmp_path)(file)
    with pytest.raises(FileError, match=f"refused: .*{TRAPS[trap]}"):
        boolcp.load(path)


@pytest.mark.parametrize("place", ["cell", "attribute"])
def test_a_dataset_without_a_name_does_not_hide_a_link(place, tmp_path):
    """Its object counts one link more than it has, so that it stays when its name is removed."""
    path = tmp_path / "data.mat"
    with h5py.File(path, "w") as file:
        hidden = external(tmp_path)(file)
        address = h5py.h5o.get_info(hidden.id).addr
        if place == "cell":
            cell = file.create_dataset("cell", (1, 1), h5py.ref_dtype)
            cell[0, 0] = hidden.ref
        else:
            file.attrs["hidden"] = hidden.ref
    with path.open("r+b") as file:
        file.seek(address + 4)
        file.write((2).to_bytes(4, "little"))
    with h5py.File(path, "a") as file:
        del file["x"]
    with pytest.raises(FileError, match=r"refused: .* refers to a dataset that has no name"):
        boolcp.open_tensor(path)


def test_links_inside_a_file_are_followed(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["group/x"] = np.eye(3)
        file["soft"] = h5py.SoftLink("/group/x")
        file["nowhere"] = h5py.SoftLink("/nothing")
        file["circle"] = file["/"]
        file["cells"] = np.array([file["group/x"].ref, h5py.Reference()], dtype=h5py.ref_dtype)
        file["group/x"].dims[0].label = "row"
    np.testing.assert_array_equal(boolcp.open_tensor(tmp_path / "data.h5", variable="group/x"), np.eye(3))


def test_a_file_from_which_a_variable_was_removed_is_read(tmp_path):
    """Its coordinate still refers to what is gone."""
    data = {"x": ("row", [1.0, 2.0]), "y": (("row", "column"), np.eye(2))}
    xr.Dataset(data, {"row": ["a", "b"]}).to_netcdf(tmp_path / "data.nc", engine="h5netcdf")
    with h5py.File(tmp_path / "data.nc", "a") as file:
        del file["x"]
    np.testing.assert_array_equal(boolcp.open_tensor(tmp_path / "data.nc"), np.eye(2))


@pytest.fixture
def header(tmp_path):
    """The header of a BrainVision recording, beside a folder with a file that is not the sender's."""
    pybv = pytest.importorskip("pybv")
    folder = tmp_path / "sent"
    folder.mkdir()
    (tmp_path / "own").mkdir()
    events = np.array([[3, 1], [20, 2]])
    pybv.write_brainvision(
        data=np.ones((2, 50)), sfreq=100, ch_names=["a", "b"], fname_base="data", folder_out=str(folder), events=events
    )
    return folder / "data.vhdr"


@pytest.mark.parametrize(
    "link", ["../own/secret", "..\\own\\secret", "{own}/secret"], ids=["up", "backslash", "absolute"]
)
@pytest.mark.parametrize(("key", "file"), [("DataFile", "data.eeg"), ("MarkerFile", "data.vmrk")])
def test_a_header_does_not_name_a_file_elsewhere(key, file, link, header):
    assert boolcp.open_tensor(header).shape == (2, 50)
    own = header.parents[1] / "own"
    (header.parent / file).rename(own / "secret")
    text = header.read_text()
    for line in (f"{key}={link}", f"{key.lower()} : {link}"):  # both are read
        header.write_text(text.replace(f"{key}={file}", line.format(own=own)))
        with pytest.raises(FileError, match=r"data\.vhdr: refused: it refers to .*secret'"):
            boolcp.open_tensor(header)


def test_a_header_may_name_its_own_folder_or_no_markers(header):
    text = header.read_text()
    header.write_text(text.replace("DataFile=data.eeg", f"DataFile={header.parent}/data.eeg"))
    assert boolcp.open_tensor(header).shape == (2, 50)
    header.write_text(text.replace("MarkerFile=data.vmrk", "MarkerFile="))
    assert boolcp.open_tensor(header).shape == (2, 50)


@pytest.mark.parametrize("trials", [1, 3])
def test_a_set_file_does_not_name_a_file_elsewhere(trials, tmp_path):
    """EEGLAB keeps the numbers of recordings and of epochs beside the .set file."""
    folder, shape = tmp_path / "sent", (2, 5, trials)
    folder.mkdir()
    numbers = np.arange(np.prod(shape), dtype=np.float32)
    fields = {"nbchan": 2, "pnts": 5, "trials": trials, "srate": 100.0, "xmin": 0.0, "xmax": 0.04, "chanlocs": []}
    fields |= {"event": {"type": ["go"] * 3, "latency": [1.0, 6.0, 11.0], "epoch": [1, 2, 3], "duration": [0.0] * 3}}
    fields |= {"epoch": {"event": [1, 2, 3], "eventtype": ["go"] * 3, "eventlatency": [0.0] * 3}, "comments": ""}
    for place, file in (("", folder / "data.fdt"), ("../", tmp_path / "data.fdt")):
        numbers.tofile(file)
        scipy.io.savemat(folder / "data.set", {"EEG": fields | {"data": f"{place}data.fdt"}}, oned_as="row")
        if place:
            (folder / "data.fdt").unlink()
            with pytest.raises(FileError, match=r"data\.set: refused: it refers to .*data\.fdt'"):
                boolcp.open_tensor(folder / "data.set")
        else:
            assert boolcp.open_tensor(folder / "data.set").shape == (shape if trials > 1 else (2, 5))


def test_split_epochs_do_not_continue_in_a_different_folder(tmp_path):
    mne = pytest.importorskip("mne")
    sent, own = tmp_path / "sent", tmp_path / "own"
    sent.mkdir()
    own.mkdir()
    epochs = mne.EpochsArray(np.zeros((60, 40, 300)), mne.create_info(40, 100.0, "eeg"), verbose="ERROR")
    name = "x" * len("../own/x")
    epochs.save(sent / f"{name}-epo.fif", split_size="2MB", verbose="ERROR")
    assert boolcp.open_tensor(sent / f"{name}-epo.fif").sizes["trial"] == 60
    content = (sent / f"{name}-epo.fif").read_bytes()
    for part in sent.glob("*-epo-*.fif"):
        part.rename(own / (part.name if part.name[-5] != "1" else "x-epo-1.fif"))
    (sent / "data-epo.fif").write_bytes(content.replace(f"{name}-epo-1.fif".encode(), b"../own/x-epo-1.fif"))
    with pytest.raises(FileError, match=r"data-epo\.fif: refused: it refers to .*own/x-epo-1\.fif"):
        boolcp.open_tensor(sent / "data-epo.fif")


# Numbers that are not there


def npy(path, shape, content=b""):
    with path.open("wb") as file:
        npy_format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        file.write(content)
    return path


def npz(path, shape):
    import zipfile

    npy(path.with_name("x.npy"), shape)
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(path.with_name("x.npy"), "x.npy")
    return path


def mat4(path, shape):
    name = b"x\0"
    return path.write_bytes(np.array([0, *shape, 0, len(name)], "<i4").tobytes() + name + bytes(64)) and path


def unwritten(path, shape):
    fill = {"chunks": (100, 100, 100), "compression": "gzip"}
    return hdf5(path, lambda group: group.create_dataset("x", shape, float, **fill))


def unwritten_zarr(path, shape):
    zarr.create_array(path, shape=shape, chunks=(100, 100, 100), dtype=float)
    return path


CLAIMS = {
    "npy": (lambda d: npy(d / "data.npy", CLAIMED), "claims 8 PB, but 0 bytes follow"),
    "npz": (lambda d: npz(d / "data.npz", CLAIMED), "claims 8 PB, but 0 bytes follow|needs 8 PB of memory"),
    "mat v4": (lambda d: mat4(d / "data.mat", (2**31 - 1, 2**31 - 1)), "not a readable|needs 36.9 EB of memory"),
    "mat v7.3": (lambda d: unwritten(d / "data.mat", CLAIMED), "would grow from 0 bytes in the file to 8 PB"),
    "HDF5": (lambda d: unwritten(d / "data.h5", CLAIMED), "would grow from 0 bytes in the file to 8 PB"),
    "netCDF": (lambda d: unwritten(d / "data.nc", CLAIMED), "would grow from 0 bytes in the file to 8 PB"),
    "zarr": (lambda d: unwritten_zarr(d / "data.zarr", CLAIMED), "would grow from .* in the file to 8 PB"),
}


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("lazy", ["auto", False])
def test_a_header_that_claims_too_many_entries_is_refused_with_an_estimate(name, lazy, tmp_path):
    make, words = CLAIMS[name]
    path = make(tmp_path)
    with pytest.raises(FileError, match=rf"{path.name}: .*({words})"):
        boolcp.open_tensor(path, lazy=lazy)


def compressed_npz(path, X):
    np.savez_compressed(path, x=X)
    return path


def compressed_mat(path, X):
    scipy.io.savemat(path, {"x": X}, do_compression=True)
    return path


def compressed_hdf5(path, X):
    return hdf5(path, lambda group: group.create_dataset("x", data=X, compression="gzip"))


def compressed_fif(path, X):
    path.write_bytes(gzip.compress(X.tobytes()))
    return path


@pytest.mark.parametrize(
    ("ending", "write"),
    [(".npz", compressed_npz), (".mat", compressed_mat), (".h5", compressed_hdf5), (".fif.gz", compressed_fif)],
)
def test_a_small_file_that_grows_large_is_refused_with_an_estimate(ending, write, tmp_path, monkeypatch):
    path = write(tmp_path / f"data{ending}", np.zeros((100, 100, 100)))
    if ending != ".fif.gz":
        assert boolcp.open_tensor(path).shape == (100, 100, 100)
    monkeypatch.setattr("boolcp.io.limits.LARGE", 10**6)
    path.touch()  # a file that was checked is not checked again until it changes
    os.utime(path, ns=(1, 1))
    with pytest.raises(FileError, match=rf"data{ending}: refused: .* would grow from \d.* kB in the file to \d"):
        boolcp.open_tensor(path)


def test_a_chunk_that_inflates_to_more_than_its_numbers_is_refused(tmp_path, monkeypatch):
    content = zlib.compress(bytes(10**7))

    def fill(group):
        dataset = group.create_dataset("x", (100, 100), "f8", chunks=(100, 100), compression="gzip")
        dataset.id.write_direct_chunk((0, 0), content)

    path = hdf5(tmp_path / "data.h5", fill)
    monkeypatch.setattr("boolcp.io.limits.LARGE", 10**6)
    with pytest.raises(FileError, match=r"refused: a part of 'deep/x' would grow from 80 kB in the file to"):
        boolcp.open_tensor(path)


def test_many_small_parts_that_grow_large_together_are_refused(tmp_path, monkeypatch):
    X = np.zeros((100, 100))
    path = hdf5(tmp_path / "data.h5", lambda group: [unwritten_in(group, f"x{n}") for n in range(100)])
    np.savez_compressed(tmp_path / "data.npz", **{f"x{n}": X for n in range(100)})
    monkeypatch.setattr("boolcp.io.limits.LARGE", 10**5)
    for file in (path, tmp_path / "data.npz"):
        with pytest.raises(FileError, match=r"refused: its content would grow from .* in the file to 8"):
            boolcp.open_tensor(file, variable="x1")


def unwritten_in(group, name):
    group.create_dataset(name, (100, 100), "f8")


def test_an_honest_file_is_not_taken_for_a_trap(tmp_path, monkeypatch, rng):
    monkeypatch.setattr("boolcp.io.limits.LARGE", 1000)
    X = rng.standard_normal((20, 30, 4))
    np.testing.assert_array_equal(boolcp.open_tensor(compressed_npz(tmp_path / "x.npz", X)), X)
    np.testing.assert_array_equal(boolcp.open_tensor(compressed_mat(tmp_path / "x.mat", X)), X)
    np.testing.assert_array_equal(boolcp.open_tensor(compressed_hdf5(tmp_path / "x.h5", X)), X)
    zarr.save(str(tmp_path / "x.zarr"), X)
    np.testing.assert_array_equal(boolcp.open_tensor(tmp_path / "x.zarr"), X)


@pytest.mark.parametrize("ending", [".npz", ".mat", ".nc", ".h5"])
def test_an_array_that_does_not_fit_into_memory_is_refused_with_an_estimate(ending, tmp_path, monkeypatch, rng):
    path, X = tmp_path / f"x{ending}", rng.standard_normal((20, 30, 4))
    if ending == ".nc":
        xr.DataArray(X, name="x").to_netcdf(path, engine="h5netcdf")
    else:
        {".npz": compressed_npz, ".mat": compressed_mat, ".h5": compressed_hdf5}[ending](path, X)
    monkeypatch.setattr("boolcp.io.limits.available_memory", lambda: 10_000)
    with pytest.raises(FileError, match=rf"x{ending}: .* needs 19\.2 kB of memory, but only 10 kB are available"):
        boolcp.open_tensor(path, lazy=False)


def test_memory_that_runs_out_while_reading_names_the_file(tmp_path, monkeypatch):
    path = compressed_npz(tmp_path / "x.npz", np.eye(3))

    def refuse(*arguments, **options):
        raise MemoryError("Unable to allocate 7.11 PiB")

    monkeypatch.setattr(np, "load", refuse)
    with pytest.raises(FileError, match=r"x\.npz: needs more memory than there is \(Unable to allocate 7\.11 PiB\)"):
        boolcp.open_tensor(path)


def test_large_sizes_have_their_units():
    assert [memory_text(n) for n in (8e15, 4e19)] == ["8 PB", "40 EB"]


# Code


def test_a_pickle_in_a_zarr_store_does_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    folder = tmp_path / "x.zarr"
    folder.mkdir()
    (folder / "0.0").write_bytes(pickle.dumps([Evil()] * 4))
    plain = {"chunks": [2, 2], "fill_value": 0, "order": "C", "shape": [2, 2], "zarr_format": 2}
    for codecs in (
        {"filters": [{"id": "pickle"}], "compressor": None},
        {"filters": None, "compressor": {"id": "pickle"}},
    ):
        for dtype in ("|O", "<f8"):
            (folder / ".zarray").write_text(json.dumps(plain | codecs | {"dtype": dtype}))
            with pytest.raises(FileError, match=r"x\.zarr: "):
                boolcp.open_tensor(folder)
    assert not (tmp_path / "ran").exists()
    pickled = SimpleNamespace(filters=(), compressors=("numcodecs.Pickle(protocol=5)",), nbytes=8)
    with pytest.raises(FileError, match="'a' is pickled"):
        _refuse_traps(folder, {"a": pickled})


# Damaged tags of MATLAB files


def variables(rng):
    cells = np.empty((1, 3), dtype=object)
    cells[0] = [np.eye(2), "text", np.array([["nested"]], dtype=object)]
    return {
        "x": rng.standard_normal((3, 4, 5)),
        "small": np.arange(3, dtype=np.int8),
        "samples": np.arange(40, dtype=np.int16),
        "complex": rng.standard_normal(4) * 1j,
        "logical": np.array([True, False]),
        "text": "hello",
        "cells": cells,
        "struct": {"a": np.arange(3.0), "b": "text", "c": {"d": 1.5}},
        "sparse": scipy.sparse.eye(5).tocsc(),
        "empty": np.zeros((0, 3)),
    }


@pytest.mark.parametrize("do_compression", [False, True])
def test_every_kind_of_variable_passes_the_check_of_tags(do_compression, tmp_path, rng):
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, variables(rng), do_compression=do_compression)
    assert {"x", "cells", "struct.a", "struct.c.d", "sparse"} <= set(list_variables(path))
    np.testing.assert_array_equal(
        boolcp.open_tensor(path, variable="x"), variables(np.random.default_rng(20181017))["x"]
    )


def test_files_of_many_versions_of_matlab_pass_the_check_of_tags():
    folder = Path(scipy.io.__file__).parent / "matlab" / "tests" / "data"
    if not folder.is_dir():
        pytest.skip("scipy was installed without its tests")
    n_read = 0
    for path in sorted(folder.glob("*.mat")):
        try:
            scipy.io.loadmat(path)
        except Exception:  # what scipy refuses may be refused
            continue
        n_read += 1
    assert n_read > 50


CHILD = """
import sys, warnings
from pathlib import Path
import boolcp
from boolcp.io import FileError
from boolcp.io.matlab import list_variables, read_variable
warnings.simplefilter("ignore")
for path in sorted(Path(sys.argv[1]).iterdir()):
    print(path.name, flush=True)
    try:
        for name in list_variables(path):
            read_variable(path, name)
    except FileError:
        print("refused", flush=True)
print("alive")
"""


def test_no_flipped_byte_ends_the_process(tmp_path, rng):
    """Without the check of tags, several of these files end the process with a segmentation fault."""
    for compression in (False, True):
        buffer = io.BytesIO()
        scipy.io.savemat(buffer, variables(rng), do_compression=compression)
        content = buffer.getvalue()
        for n in range(150):
            damaged = bytearray(content)
            place = 128 + (8 * n if n < 60 else int(rng.integers(len(content) - 128)))
            damaged[place % len(content)] ^= 1 << int(rng.integers(8))
            (tmp_path / f"{compression}{n:04d}.mat").write_bytes(damaged)
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("alive\n"), done.stdout[-200:] + done.stderr[-500:]
    assert done.stdout.count("refused") > 50


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ((14, 8, 0, 0), "ends in the middle"),
        ((14, 2**31, 0, 0), "longer than the file"),
        ((0, 0, 0, 0), "longer than the file"),
        ((9, 8, 0, 0), "unknown type 9"),
        ((14, 40, 6, 8, 99, 0, 5, 8, 1, 1, 1, 0), "unknown class 99"),
        ((14, 40, 6, 8, 6, 0, 5, 8, -1, 1, 1, 0), "size -1"),
        ((14, 48, 6, 8, 6, 0, 5, 8, 1, 1, 1, 0, 77, 0), "unknown type 77"),
        ((14, 56, 6, 8, 6, 0, 5, 8, 2, 9, 1, 0, 9, 8, 0, 0), "2 x 9 numbers"),
        ((14, 48, 6, 8, 4, 0, 5, 8, 2**30, 2**30, 1, 0, 16, 0), "claims"),
        ((14, 56, 6, 8, 2, 0, 5, 8, 1, 1, 1, 0, 5 + (4 << 16), 0, 1, 0), "no length"),
        ((14, 48, 6, 8, 1, 0, 5, 8, 1, 1, 1, 0) * 70, "nested more than 60 deep"),
    ],
)
def test_a_damaged_tag_is_named(content, words, tmp_path):
    path = tmp_path / "x.mat"
    path.write_bytes(b"MATLAB".ljust(124) + b"\x00\x01IM" + np.array(content, "<i8").astype("<i4").tobytes())
    with pytest.raises(FileError, match=rf"x\.mat: not a readable \.mat file \(.*{words}"):
        boolcp.open_tensor(path)


def test_a_name_that_is_no_text_is_said_to_be_one(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.ones(3)
        file.create_group(b"\xff\xfe")
    with pytest.raises(FileError, match=r"not a readable HDF5 file .*decode"):
        boolcp.open_tensor(tmp_path / "a.h5")
