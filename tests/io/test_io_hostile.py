"""Files that were made to harm: they hand out other files, fill the memory, run code or crash their reader."""

import gzip
import json
import os
import pickle
import re
import resource
import signal
import struct
import subprocess
import sys
import zipfile
import zlib

import h5py
import mne
import numpy as np
import pytest
import scipy.io
import scipy.sparse
import xarray as xr
import zarr
from numpy.lib import format as npy_format

import boolcp
from boolcp.io import FileError, child
from boolcp.io.limits import ask_child

CLAIMED = (100_000, 100_000, 100_000)  # 10^15 entries


@pytest.fixture(autouse=True)
def bounded_memory():
    """No file makes this process larger by more than 1.5 GB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1.5e6  # kB


def hdf5(path, fill):
    """Write an HDF5 file, with what marks a MATLAB file by its ending."""
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
    def fill(group):
        group["x"] = h5py.ExternalLink(str(folder / "other.h5"), "/x")
        group["y"] = np.ones((8, 8))

    return fill


TRAPS = {external: "takes its data from the file", virtual: "is virtual", linked: "is a link to the file"}


@pytest.mark.parametrize("ending", [".h5", ".nc", ".mat", ".set", ".nwb", "result.nc"])
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_a_file_does_not_hand_out_other_files(trap, ending, tmp_path):
    path = tmp_path / f"data{ending}"
    if ending == "result.nc":
        boolcp.datasets.make_boolean_cp((4, 5, 6), 2, random_state=0).truth.save(path)
        with h5py.File(path, "a") as file:
            trap(tmp_path)(file)
    else:
        hdf5(path, trap(tmp_path))
    reads = [boolcp.load] if ending == "result.nc" else [boolcp.open_tensor]
    reads += [lambda path: boolcp.open_tensor(path, lazy=True)] if ending in (".h5", ".nc") else []
    for read in reads:
        with pytest.raises(FileError, match=f"refused: .*{TRAPS[trap]}"):
            read(path)


def test_a_dataset_without_a_name_does_not_hide_a_link(tmp_path):
    """Its object counts one link more than it has, so that it stays when its name is removed."""
    path = tmp_path / "data.mat"
    with h5py.File(path, "w") as file:
        hidden = external(tmp_path)(file)
        address = h5py.h5o.get_info(hidden.id).addr
        file.create_dataset("cell", (1, 1), h5py.ref_dtype)[0, 0] = hidden.ref
    with path.open("r+b") as file:
        file.seek(address + 4)
        file.write((2).to_bytes(4, "little"))
    with h5py.File(path, "a") as file:
        del file["x"]
    with pytest.raises(FileError, match="refused: a dataset without a name takes its data"):
        boolcp.open_tensor(path)


def test_links_inside_a_file_are_followed(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["group/x"] = np.eye(3)
        file["soft"], file["nowhere"], file["circle"] = h5py.SoftLink("/group/x"), h5py.SoftLink("/nothing"), file["/"]
        file["cells"] = np.array([file["group/x"].ref, h5py.Reference()], dtype=h5py.ref_dtype)
        file["group/x"].dims[0].label = "row"
    np.testing.assert_array_equal(boolcp.open_tensor(tmp_path / "data.h5", variable="group/x"), np.eye(3))


@pytest.fixture
def header(tmp_path):
    """The header of a BrainVision recording, beside a folder with a file that is not the sender's."""
    pybv = pytest.importorskip("pybv")
    for name in ("sent", "own"):
        (tmp_path / name).mkdir()
    options = {"sfreq": 100, "ch_names": ["a", "b"], "events": np.array([[3, 1], [20, 2]])}
    pybv.write_brainvision(data=np.ones((2, 50)), **options, fname_base="data", folder_out=str(tmp_path / "sent"))
    return tmp_path / "sent" / "data.vhdr"


@pytest.mark.parametrize("link", ["..\\own\\secret", "{own}/secret"])
@pytest.mark.parametrize(("key", "file"), [("DataFile", "data.eeg"), ("MarkerFile", "data.vmrk")])
def test_a_header_does_not_name_a_file_elsewhere(key, file, link, header):
    text, own = header.read_text(), header.parents[1] / "own"
    header.write_text(text.replace("DataFile=data.eeg", f"DataFile={header.parent}/data.eeg"))
    assert boolcp.open_tensor(header).shape == (2, 50), "it may name its own folder"
    (header.parent / file).rename(own / "secret")
    for line in (f"{key}={link}", f"{key.lower()} : {link}"):  # both are read
        header.write_text(text.replace(f"{key}={file}", line.format(own=own)))
        with pytest.raises(FileError, match=r"data\.vhdr: refused: it refers to .*secret'"):
            boolcp.open_tensor(header)


@pytest.mark.parametrize("trials", [1, 3])
def test_a_set_file_does_not_name_a_file_elsewhere(trials, tmp_path, monkeypatch):
    """EEGLAB keeps the numbers of recordings and of epochs beside the .set file."""
    folder, shape = tmp_path / "sent", (2, 1000, trials)
    folder.mkdir()
    monkeypatch.setattr("boolcp.io.limits.LARGE", 0)  # the numbers are many more bytes than the .set file
    monkeypatch.setattr("boolcp.io.limits.LARGEST_RATIO", 2)
    numbers = np.arange(np.prod(shape), dtype=np.float32)
    fields = {"nbchan": 2, "pnts": 1000, "trials": trials, "srate": 100.0, "xmin": 0, "xmax": 9.99, "chanlocs": []}
    fields |= {"event": {"type": ["go"] * 3, "latency": [1.0, 1e3, 2e3], "epoch": [1, 2, 3], "duration": [0.0] * 3}}
    fields |= {"epoch": {"event": [1, 2, 3], "eventtype": ["go"] * 3, "eventlatency": [0.0] * 3}, "comments": ""}
    for place, file in (("", folder / "data.fdt"), ("../", tmp_path / "data.fdt")):
        numbers.tofile(file)
        scipy.io.savemat(folder / "data.set", {"EEG": fields | {"data": f"{place}data.fdt"}}, oned_as="row")
        if place:
            (folder / "data.fdt").unlink()
            with pytest.raises(FileError, match=r"data\.set: refused: it refers to .*data\.fdt'"):
                boolcp.open_tensor(folder / "data.set")
        else:
            assert boolcp.open_tensor(folder / "data.set").shape == (shape if trials > 1 else (2, 1000))


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


def npy(path):
    with path.open("wb") as file:
        npy_format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": CLAIMED})


def npz(path):
    npy(path.with_name("x.npy"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(path.with_name("x.npy"), "x.npy")


def unwritten(path):
    fill = {"chunks": (100, 100, 100), "compression": "gzip"}
    hdf5(path, lambda group: group.create_dataset("x", CLAIMED, float, **fill).attrs.update(MATLAB_class=b"double"))


def deflated(n_bytes):
    """Return zeros compressed by zlib, made fast: equal blocks, and the checksum of zeros."""
    packer = zlib.compressobj(9)
    start = packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH)
    n_blocks = n_bytes // 2**24
    end = b"\x03\x00" + (((n_blocks * 2**24) % 65521) << 16 | 1).to_bytes(4, "big")
    return start + block * (n_blocks - 1) + end


def compressed_twice(path):
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((100, 100, 10))
        plist.set_deflate(1)
        plist.set_deflate(1)
        space = h5py.h5s.create_simple((100, 100, 10))
        h5py.Dataset(h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_DOUBLE, space, plist))[...] = 0.0


def long_chunk(path):
    rows, n_bytes = (1, 2**26) if path.suffix == ".h5" else (9, 2**29)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (9, 9, 9), float, chunks=(rows, 9, 9), compression="gzip")
        for n in range(0, 9, rows):
            dataset.id.write_direct_chunk((n, 0, 0), deflated(n_bytes))


def compressed_fif(path):
    packed = deflated(2**31)
    path.write_bytes(gzip.compress(b"")[:10] + packed[2:-4] + bytes(8))


def zip_bomb(path):
    packed = deflated(2**31)[2:-4]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ECoG_ch1.mat", packed)
        member = archive.infolist()[0]
        member.compress_type, member.file_size = zipfile.ZIP_DEFLATED, 2**31


def skipping_fif(path):
    """A recording that says that it skips 10^9 times the samples of a buffer."""
    raw = mne.io.RawArray(np.ones((6, 50)), mne.create_info(6, 100.0, "eeg"), verbose="ERROR")
    raw.save(path, buffer_size_sec=0.1, verbose="ERROR")
    content, tags, start = path.read_bytes(), b"", 0
    while start >= 0 and (tag := struct.unpack(">4i", content[start : start + 16]))[0] != 102:  # the list of tags
        kind, what, size, after = tag
        tags += struct.pack(">4i", kind, what, size, 0)
        tags += struct.pack(">i", -1) if kind == 101 else content[start + 16 : start + 16 + size]  # there is no list
        tags += struct.pack(">5i", 301, 3, 4, 0, 10**8) if kind == 300 and b"\0\0\1\x2d\0\0\0\3" not in tags else b""
        start = after or start + 16 + size
    path.write_bytes(tags)


def circular_fif(path):
    path.write_bytes(struct.pack(">5i", 100, 31, 4, 0, 0) + struct.pack(">4i", 101, 3, 0, 4))


def many_folders(path):
    with zipfile.ZipFile(path, "w") as archive:
        for n in range(5000):
            archive.writestr(f"S{n}/a/b/x.txt", b"")


HARMFUL = {
    "data.npy": (npy, "mmap length is greater than file size"),
    "data.npz": (npz, "needs 8 PB of memory"),
    "v7.mat": (unwritten, "refused: reading it takes more than"),
    "data.h5": (unwritten, "would grow from 0 bytes in the file to 8 PB"),
    "data.nc": (unwritten, "would grow from 0 bytes in the file to 8 PB"),
    "twice.h5": (compressed_twice, "'x' is compressed twice"),
    "chunk.nc": (long_chunk, "a chunk of 'x' unpacks to more than it should hold"),
    "chunks.h5": (long_chunk, "a chunk of 'x' unpacks to more than it should hold"),
    "data.zarr": (
        lambda path: zarr.create_array(path, shape=CLAIMED, chunks=(100, 100, 100), dtype=float),
        "would grow from .* to 8 PB",
    ),
    "packed.fif.gz": (compressed_fif, "its content would grow"),
    "skips_raw.fif": (skipping_fif, "its content would grow from"),
    "circle_raw.fif": (circular_fif, "its tags lead back"),
    "folders.zip": (many_folders, "is not a NeuroTycho recording"),
    "bomb.zip": (zip_bomb, "'ECoG_ch1.mat' would grow from .* to 2.15 GB"),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_file_that_would_exhaust_the_machine_is_refused(name, tmp_path):
    make, words = HARMFUL[name]
    make(tmp_path / name)
    for lazy in ("auto", False):
        with pytest.raises(FileError, match=rf"{name}: .*({words})"):
            boolcp.open_tensor(tmp_path / name, lazy=lazy)


@pytest.mark.parametrize("ending", [".npz", ".mat", ".nc", ".h5"])
def test_an_array_that_does_not_fit_into_memory_is_refused_with_an_estimate(ending, tmp_path, monkeypatch, rng):
    path, X = tmp_path / f"x{ending}", rng.standard_normal((20, 30, 4))
    if ending in (".nc", ".h5"):
        xr.DataArray(X, name="x").to_netcdf(path, engine="h5netcdf")
    else:
        scipy.io.savemat(path, {"x": X}) if ending == ".mat" else np.savez(path, x=X)
    monkeypatch.setattr("boolcp.io.limits.available_memory", lambda: 10_000)
    with pytest.raises(FileError, match=rf"x{ending}: .* needs 19\.2 kB of memory, but only 10 kB are available"):
        boolcp.open_tensor(path, lazy=False, variable="x" if ending == ".h5" else None)


def test_pickles_do_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    folder = tmp_path / "x.zarr"
    folder.mkdir()
    (folder / "0.0").write_bytes(pickle.dumps([Evil()] * 4))
    plain = {"chunks": [2, 2], "fill_value": 0, "order": "C", "shape": [2, 2], "zarr_format": 2}
    for codecs in ({"filters": [{"id": "pickle"}]}, {"filters": None, "compressor": {"id": "pickle"}}):
        (folder / ".zarray").write_text(json.dumps(plain | {"compressor": None, "dtype": "<f8"} | codecs))
        with pytest.raises(FileError, match=r"x\.zarr: "):
            boolcp.open_tensor(folder)
    np.save(tmp_path / "a.npy", np.array([[Evil()]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=np.array([[Evil()]], dtype=object))
    for name in ("a.npy", "a.npz"):
        with pytest.raises(FileError):
            boolcp.open_tensor(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_a_reader_that_crashes_or_takes_too_long_is_said_to(tmp_path, monkeypatch, rng):
    tags = (14, 48, 6, 8, 6, 0, 5, 8, 1, 1, 1, 0, 77, 0)  # numbers of an unknown type
    path = tmp_path / "x.mat"
    path.write_bytes(b"MATLAB".ljust(124) + b"\x00\x01IM" + np.array(tags, "<i4").tobytes())
    with pytest.raises(FileError, match=r"x\.mat: not a readable \.mat file"):
        boolcp.open_tensor(path)
    scipy.io.savemat(path, {"x": rng.standard_normal((300, 400, 50))})
    assert boolcp.open_tensor(path).shape == (300, 400, 50), "a new process was started"
    monkeypatch.setattr("boolcp.io.limits.SECONDS", 3)
    hdf5(
        tmp_path / "text.h5",
        lambda group: [group.create_dataset(*one) for one in (("x", (3, 3)), ("text", None, None, "a text" * 9))],
    )
    content = (tmp_path / "text.h5").read_bytes()  # a damaged heap of texts, which HDF5 reads for ever
    start = content.index(b"GCOL") + 16
    (tmp_path / "text.h5").write_bytes(content[:start] + bytes(200) + content[start + 200 :])
    with pytest.raises(FileError, match="refused: looking into it takes more than 3 s"):
        boolcp.open_tensor(tmp_path / "text.h5")
    low = [f"ulimit -v {2**23}; exec {sys.executable} {child.__file__}"]  # kB, lower than asked for
    reader = subprocess.Popen(low, shell=True, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    pickle.dump((2**40, 1, "look_at_hdf5", str(tmp_path / "text.h5"), ()), reader.stdin)
    reader.stdin.flush()  # who asked is gone, and stops nobody
    assert reader.wait(timeout=120) == -signal.SIGXCPU
    monkeypatch.setattr("boolcp.io.limits.SECONDS", -100)
    os.mkfifo(tmp_path / "pipe.mat")
    with pytest.raises(FileError, match="refused: looking into it takes more than"):
        ask_child(tmp_path / "pipe.mat", ".mat file", "list_mat")


@pytest.mark.parametrize("ending", [".h5", ".nc", ".mat", ".nwb", "result.nc"])
@pytest.mark.parametrize("where", ["dataset", "attribute", "groups"])
def test_texts_that_share_a_place_and_deep_groups_are_refused(where, ending, tmp_path):
    path, n = tmp_path / f"data{ending}", 1000
    texts = np.array(["a" * 200_000, *("b" * (n - 1))], dtype=h5py.string_dtype())

    def fill(group):
        group["x"] = np.eye(3)
        if where == "dataset":
            group["labels"] = texts
        elif where == "attribute":
            group["x"].attrs["labels"] = texts
        else:
            group.create_group("/".join(["g"] * 200))["x"] = np.eye(3)

    hdf5(path, fill)
    if where != "groups":  # every text is the first, the long one
        content = path.read_bytes()
        length = re.escape((200_000).to_bytes(4, "little"))
        first = re.search(length + rb".{12}(?=\x01\x00\x00\x00.{12}\x01\x00\x00\x00)", content, re.DOTALL)
        assert first is not None
        path.write_bytes(content[: first.start()] + n * first[0] + content[first.start() + n * 16 :])
    read = boolcp.load if ending == "result.nc" else boolcp.open_tensor
    with pytest.raises(FileError, match=r"refused: (the texts of|its groups are nested)"):
        read(path)
