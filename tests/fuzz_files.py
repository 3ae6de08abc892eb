"""Files that are damaged or forged, and fits that are killed: cases of tests/fuzz.py."""

import datetime
import io
import os
import shutil
import signal
import tempfile
import time
import warnings
import zipfile
from functools import cache
from pathlib import Path
from unittest import mock

import fuzz
import h5py
import mne
import numpy as np
import pybv
import pynwb
import scipy.io
import scipy.sparse
import xarray as xr
from samples import assert_identical, forge, tensor

from boolcp import BMP
from boolcp.io import FileError, load, load_provenance, open_tensor, save

X = tensor((6, 7, 8), 2, 0.5)
PLAIN = ["", "x", -1, 5, 1e300, "[]", "{}", '{"n": null}', '[["a", 1], 2]', "null"]
JUNK = [*PLAIN, b"", np.nan, np.zeros(3)]
STATE_JUNK = [*PLAIN, None, [], {}, True, [None], [0, 1], "polish", "result", {"array": 0}]


@cache
def folder():
    """Return a folder of one sound file of each format, a result and a checkpoint."""
    place = Path(tempfile.mkdtemp(prefix="boolcp-fuzz-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_files(place)
    return place


def write_files(place):
    np.save(place / "a.npy", X)
    np.savez(place / "a.npz", X=X)
    np.savez_compressed(place / "b.npz", X=X)
    scipy.io.savemat(place / "a.mat", {"X": X, "s": {"label": "text", "c": np.array([1, "b"], dtype=object)}})
    scipy.io.savemat(place / "b.mat", {"X": X}, do_compression=True)
    scipy.io.savemat(place / "sparse.mat", {"X": scipy.sparse.csc_array(np.maximum(X[0], 0)), "dense": X})
    with h5py.File(place / "c.mat", "w", userblock_size=512) as file:
        file.create_dataset("X", data=X).attrs["MATLAB_class"] = np.bytes_("double")
    with (place / "c.mat").open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    with h5py.File(place / "a.h5", "w") as file:
        file.create_dataset("X", data=X, compression="gzip")
    labelled = xr.DataArray(X, {"channel": list("abcdef")}, ("channel", "time", "trial"), name="X")
    labelled.to_netcdf(place / "a.nc", engine="h5netcdf")
    labelled.to_netcdf(place / "b.nc", engine="scipy")
    raw = mne.io.RawArray(X[:, :, 0] * 1e-6, mne.create_info(6, 100.0, "eeg"), verbose="ERROR")
    raw.save(place / "a_raw.fif", verbose="ERROR")
    info = mne.create_info(7, 100.0, "eeg")
    mne.EpochsArray(X * 1e-6, info, verbose="ERROR").save(place / "a-epo.fif", verbose="ERROR")
    options = {"sfreq": 100, "ch_names": list("abcdef"), "events": np.array([[2, 1]])}
    pybv.write_brainvision(data=X[:, :, 0], **options, fname_base="a", folder_out=str(place))
    (place / "events.tsv").write_text("onset\tduration\ttrial_type\n0.01\t0.02\tgo\n0.05\tn/a\tstop\n")  # of BIDS
    write_recordings(place)
    (place / "trials.csv").write_text("trial,condition\n" + "\n".join(f"{n},c{n % 2}" for n in range(8)))
    model = BMP(2, random_state=0)
    save(model.fit(X, checkpoint=place / "done.checkpoint"), place / "result.nc", data=X)
    model.fit(X, checkpoint=place / "begun.checkpoint", callback=lambda progress: progress.stage == "search")


def write_recordings(place):
    """Write an .nwb file with trials and units, and a NeuroTycho recording as a zip."""
    begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    file = pynwb.NWBFile(session_description="x", identifier="x", session_start_time=begin)
    group = file.create_electrode_group("g", "probe", "V1", file.create_device("probe"))
    for n in range(len(X)):
        file.add_electrode(x=1.0 * n, y=2.0, z=0.0, location="V1", group=group)
    region = file.create_electrode_table_region(list(range(len(X))), "all")
    lfp = {"name": "lfp", "data": X[:, :, 0].T, "electrodes": region, "rate": 10.0}
    file.add_acquisition(pynwb.ecephys.ElectricalSeries(**lfp))
    file.add_trial(start_time=0.0, stop_time=0.3)
    file.add_unit(spike_times=np.arange(5) / 9)
    with pynwb.NWBHDF5IO(place / "a.nwb", "w") as target:
        target.write(file)
    members = {f"ECoG_ch{n + 1}": {"data": row[None]} for n, row in enumerate(X[:, :, 0])}
    members["ECoGTime"] = {"ECoGTime": np.arange(X.shape[1])[None] / 100}
    members["Condition"] = {"ConditionLabel": np.array([["A-Start", "A-End"]], object), "ConditionIndex": [[1.0, 5.0]]}
    with zipfile.ZipFile(place / "rec.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            scipy.io.savemat(buffer := io.BytesIO(), content)
            archive.writestr(f"S1/{name}.mat", buffer.getvalue())


def read(path):
    """Read a file of any kind."""
    if path.suffix == ".checkpoint":
        return BMP.resume(path, X).decomposition_
    if path.name == "result.nc":
        load_provenance(path)
        W = load(path)
        return W.summary(), W._repr_html_(), W.to_tensor(), W.to_xarray()
    if path.suffix in (".csv", ".tsv"):
        return open_tensor(folder() / ("a.nc" if path.suffix == ".csv" else "a_raw.fif"), trials=path)
    if path.suffix == ".nwb":
        open_tensor(path, bin_ms=50)
    path = path.with_suffix(".vhdr") if path.suffix in (".vmrk", ".eeg") else path
    return open_tensor(path, variable="X" if path.name == "sparse.mat" else None)  # which is refused, but read first


def assert_read_or_refused(path):
    """A file is read, or refused in one line that names it."""
    with warnings.catch_warnings(), mock.patch("boolcp.io.limits.SECONDS", 5):
        warnings.simplefilter("ignore")
        try:
            read(path)
        except FileError as error:
            text = str(error)
            assert "\n" not in text.strip() and path.stem.partition(".")[0] in text, f"{path.name}: {text}"
        except Exception as error:
            raise AssertionError(f"{path.name}: {type(error).__name__}: {error}") from error


DAMAGE = ("flipped", "cut", "zeroed", "numbers", "exchanged")


def file_names():
    """Return the names of the sound files."""
    return sorted(path.name for path in folder().iterdir() if path.suffix != ".previous")


def check_damaged(seed):
    """Read a file with one to three flipped bits, cut off, with zeros or large numbers, or one of another kind."""
    rng, names = np.random.default_rng([fuzz.SEED, 1, seed]), file_names()
    name, how = fuzz.cell_of(seed, names, DAMAGE)
    content = bytearray((folder() / name).read_bytes())
    start, stop = sorted(rng.integers(len(content), size=2))
    if how == "flipped":
        for place in rng.integers(len(content), size=rng.integers(1, 4)):
            content[place] ^= 1 << int(rng.integers(8))
    elif how == "cut":
        del content[start:]
    elif how == "zeroed":
        content[start:stop] = bytes(stop - start)
    elif how == "numbers":  # sizes and places mostly stand at multiples of four
        for place in 4 * rng.integers(min(len(content), 4000) // 4, size=rng.integers(1, 4)):
            junk = int(rng.choice([0, 2**31 - 1, 2**32 - 1, 2**20, 10**9]))
            content[place : place + 4] = junk.to_bytes(4, str(rng.choice(["big", "little"])))
    else:
        content = (folder() / rng.choice([other for other in names if other != name])).read_bytes()
    with tempfile.TemporaryDirectory() as here:
        if name.startswith("a.v") or name == "a.eeg":
            for ending in (".vhdr", ".vmrk", ".eeg"):
                shutil.copy(folder() / f"a{ending}", here)
        Path(here, name).write_bytes(content)
        assert_read_or_refused(Path(here, name))


# Forged: the file is whole, and what it says is wrong


def check_forged(seed):
    """Read a result or resume a fit of which some values were replaced."""
    rng = np.random.default_rng([fuzz.SEED, 3, seed])
    (name,) = fuzz.cell_of(seed, ["result.nc", "result.nc", "begun.checkpoint"])
    with tempfile.TemporaryDirectory() as here:
        path = Path(shutil.copy(folder() / name, here))
        if name == "result.nc":
            with h5py.File(path, "r+") as file:
                for _ in range(rng.integers(1, 3)):
                    forge_result(file, rng)
            return assert_read_or_refused(path)
        forge(path, lambda header: header | {"state": forged_state(header["state"], rng)})
        try:
            W = read(path)
        except Exception:  # a checkpoint is a file of one's own: what is wrong in it need not be named
            return
        fuzz.check_result(W, X, np.ones(X.shape), {"n_atoms": 2})


def forge_result(file, rng):
    """Replace an attribute or a variable of a result."""
    name = str(rng.choice(sorted(file.attrs)))
    if rng.random() < 0.5:
        file.attrs[name] = JUNK[rng.integers(len(JUNK))]
        return
    name = str(rng.choice(sorted(name for name in file if isinstance(file[name], h5py.Dataset))))
    values, dimension = file[name][()], file[name].attrs.get("_Netcdf4Dimid")
    flat = np.ravel(values).copy()
    if values.dtype.kind in "fiu":
        junk = [0, -1, 7, 1] if values.dtype.kind in "iu" else [np.nan, np.inf, -1.0, 5.0, 0.5, 1e30, 0.0]
        flat[rng.random(len(flat)) < rng.choice([0.1, 1.0])] = rng.choice(junk)
    others = [values.astype("S8"), values[..., :-1] if values.ndim else 3, 2.0, *[flat.reshape(values.shape)] * 3]
    del file[name]
    if (kind := rng.integers(1 + len(others))) < len(others):
        file[name] = others[kind]
        file[name].attrs.update({} if dimension is None else {"_Netcdf4Dimid": dimension})


def forged_state(tree, rng):
    """Return the state of a fit as in its file, with one value replaced."""
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.1:
        return STATE_JUNK[rng.integers(len(STATE_JUNK))]
    names = list(tree) if isinstance(tree, dict) else range(len(tree))
    name = names[-1] if "parts" in tree else names[rng.integers(len(names))]
    tree[name] = forged_state(tree[name], rng)
    return tree


# Kills


def killed_fit(**options):
    return BMP(2, random_state=0, n_init=3).fit(tensor((8, 9, 10), 2, 1.0), **options)


@cache
def whole():
    """Return the fit that was left alone, and its seconds with a file after each step."""
    model, start = killed_fit(), time.monotonic()
    with tempfile.TemporaryDirectory() as here:
        killed_fit(checkpoint=Path(here, "fit.npz"))
    return model, time.monotonic() - start


@mock.patch.multiple("boolcp.fit.checkpoint", INTERVAL=0.0, SHARE=np.inf)  # a checkpoint after every step
def check_kill(seed):
    """Kill a fit once or twice, at random moments; it ends as one that was left alone."""
    model, seconds = whole()
    rng = np.random.default_rng([fuzz.SEED, 4, seed])
    with tempfile.TemporaryDirectory() as here:
        for delay in rng.uniform(1e-6, seconds, rng.integers(1, 3)):
            if (child := os.fork()) == 0:
                signal.setitimer(signal.ITIMER_REAL, delay)  # ends this process
                killed_fit(checkpoint=Path(here, "fit.npz"))
                os._exit(0)
            os.waitpid(child, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what is left is whole
            assert_identical(killed_fit(checkpoint=Path(here, "fit.npz")), model)
        assert len(os.listdir(here)) <= 3, "the file, the one before it, one that was being written"
