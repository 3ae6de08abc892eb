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

import numpy as np
from fuzz import cell_of

from boolcp.io import limits

SEED = 20261116
SECONDS = 30  # of the processor: a file that takes longer to be refused is a failure
JUNK = [b"", "x", -1, 5, np.nan, 1e300, np.zeros(3), "[]", "{}", '{"n": null}', '[["a", 1], 2]', "null"]


@cache
def folder():
    """Return a folder of one sound file of each format, a result and a checkpoint."""
    limits.SECONDS = 5  # for the child that looks at a file first
    place = Path(tempfile.mkdtemp(prefix="boolcp-fuzz-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_files(place)
    return place


def tensor():
    from boolcp.datasets import make_boolean_cp

    return make_boolean_cp((6, 7, 8), 2, noise=0.5, random_state=0).X


def write_files(place):
    import h5py
    import mne
    import pybv
    import scipy.io
    import xarray as xr

    from boolcp import BMP
    from boolcp.io import save

    X = tensor()
    np.save(place / "a.npy", X)
    np.savez(place / "a.npz", X=X)
    np.savez_compressed(place / "b.npz", X=X)
    scipy.io.savemat(place / "a.mat", {"X": X, "s": {"label": "text", "c": np.array([1, "b"], dtype=object)}})
    scipy.io.savemat(place / "b.mat", {"X": X}, do_compression=True)
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
    write_recordings(place, X)
    (place / "trials.csv").write_text("trial,condition\n" + "\n".join(f"{n},c{n % 2}" for n in range(8)))
    model = BMP(2, random_state=0)
    save(model.fit(X, checkpoint=place / "done.checkpoint"), place / "result.nc", data=X)
    model.fit(X, checkpoint=place / "begun.checkpoint", callback=lambda progress: progress.stage == "search")


def write_recordings(place, X):
    """Write an .nwb file with trials and units, and a NeuroTycho recording as a zip."""
    import pynwb
    import scipy.io
    from pynwb.ecephys import ElectricalSeries

    begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    file = pynwb.NWBFile(session_description="x", identifier="x", session_start_time=begin)
    group = file.create_electrode_group("g", "probe", "V1", file.create_device("probe"))
    for n in range(len(X)):
        file.add_electrode(x=1.0 * n, y=2.0, z=0.0, location="V1", group=group)
    region = file.create_electrode_table_region(list(range(len(X))), "all")
    file.add_acquisition(ElectricalSeries(name="lfp", data=X[:, :, 0].T, electrodes=region, rate=10.0))
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
    from boolcp import BMP
    from boolcp.io import load, open_tensor
    from boolcp.io.results import load_provenance

    if path.suffix == ".checkpoint":
        model = BMP.resume(path, tensor())
        return model.decomposition_.summary()
    if path.name == "result.nc":
        load_provenance(path)
        W = load(path)
        return W.summary(), W._repr_html_(), W.to_tensor(), W.to_xarray()
    if path.suffix == ".csv":
        return open_tensor(folder() / "a.nc", trials=path)
    if path.suffix == ".tsv":
        return open_tensor(folder() / "a_raw.fif", trials=path)
    if path.suffix == ".nwb":
        open_tensor(path, bin_ms=50)
    path = path.with_suffix(".vhdr") if path.suffix in (".vmrk", ".eeg") else path
    return open_tensor(path)


def assert_read_or_refused(content, name):
    """A file is read, or refused in one line that names it, in time."""
    from boolcp.io import FileError

    with tempfile.TemporaryDirectory() as here, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name.startswith("a.v") or name == "a.eeg":
            for ending in (".vhdr", ".vmrk", ".eeg"):
                shutil.copy(folder() / f"a{ending}", here)
        path = Path(here) / name
        path.write_bytes(content)
        signal.signal(signal.SIGPROF, give_up)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            read(path)
        except FileError as error:
            text = str(error)
            assert "\n" not in text.strip() and path.stem.partition(".")[0] in text, f"{name}: {text}"
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def give_up(number, frame):
    raise TimeoutError(f"after {SECONDS} s of the processor")


DAMAGE = ("flipped", "cut", "zeroed", "numbers", "exchanged")


def file_names():
    """Return the names of the sound files."""
    return sorted(path.name for path in folder().iterdir() if path.suffix != ".previous")


def check_damaged(seed):
    """Read a file with one to three flipped bits, cut off, with zeros or large numbers, or one of another kind."""
    rng, names = np.random.default_rng([SEED, 1, seed]), file_names()
    name, how = cell_of(seed, names, DAMAGE)
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
            junk = int(rng.choice([0, 2**31 - 1, 2**32 - 1, 2**20, 10**9])).to_bytes(
                4, str(rng.choice(["big", "little"]))
            )
            content[place : place + 4] = junk
    else:
        content = (folder() / rng.choice([other for other in names if other != name])).read_bytes()
    assert_read_or_refused(bytes(content), name)


# Forged: the file is whole, and what it says is wrong


def check_forged(seed):
    """Read a result in which one or two attributes or variables were replaced."""
    import h5py

    rng = np.random.default_rng([SEED, 3, seed])
    buffer = io.BytesIO((folder() / "result.nc").read_bytes())
    with h5py.File(buffer, "r+") as file:
        for _ in range(rng.integers(1, 3)):
            name = str(rng.choice(sorted(file.attrs)))
            if rng.random() < 0.5:
                file.attrs[name] = JUNK[rng.integers(len(JUNK))]
                continue
            name = str(rng.choice(sorted(name for name in file if isinstance(file[name], h5py.Dataset))))
            values, dimension = file[name][()], file[name].attrs.get("_Netcdf4Dimid")
            flat = np.ravel(values).copy()
            if values.dtype.kind in "fiu":
                junk = [0, -1, 7, 1] if values.dtype.kind in "iu" else [np.nan, np.inf, -1.0, 5.0, 0.5, 1e30, 0.0]
                flat[rng.random(len(flat)) < rng.choice([0.1, 1.0])] = rng.choice(junk)
            others = [
                values.astype("S8"),
                values[..., :-1] if values.ndim else 3,
                2.0,
                *[flat.reshape(values.shape)] * 3,
            ]
            del file[name]
            if (kind := rng.integers(1 + len(others))) < len(others):
                file[name] = others[kind]
                file[name].attrs.update({} if dimension is None else {"_Netcdf4Dimid": dimension})
    assert_read_or_refused(buffer.getvalue(), "result.nc")


# Kills


@cache
def whole():
    """Return a tensor, the fit that was left alone, and its seconds."""
    import boolcp.fit.checkpoint
    from boolcp import BMP
    from boolcp.datasets import make_boolean_cp

    boolcp.fit.checkpoint.INTERVAL, boolcp.fit.checkpoint.SHARE = 0.0, np.inf  # a checkpoint after every step
    X = make_boolean_cp((8, 9, 10), 2, noise=1.0, random_state=0).X
    for _ in range(2):  # the first time, functions are compiled
        with tempfile.TemporaryDirectory() as here:
            start = time.monotonic()
            model = BMP(2, random_state=0, n_init=3).fit(X, checkpoint=Path(here) / "fit.npz")
            seconds = time.monotonic() - start
    return X, model.decomposition_, seconds


def check_kill(seed):
    """Kill a fit at a random moment, some of them twice; what is left is whole, and the end is that of a whole fit."""
    from boolcp import BMP
    from boolcp.fit.checkpoint import Checkpoint, read_archive

    X, due, seconds = whole()
    rng = np.random.default_rng([SEED, 4, seed])
    with tempfile.TemporaryDirectory() as here:
        path = Path(here) / "fit.npz"
        for _ in range(rng.integers(1, 3)):
            child = os.fork()
            if child == 0:
                BMP(2, random_state=0, n_init=3).fit(X, checkpoint=path)
                os._exit(0)
            time.sleep(rng.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            files = Checkpoint(path)
            for left in (files.path, files.previous):
                assert not left.exists() or read_archive(left)
        W = BMP(2, random_state=0, n_init=3).fit(X, checkpoint=path).decomposition_
        names = sorted(one.name for one in Path(here).iterdir())
        assert len(names) <= 3, names  # the file, the one before it, one that was being written
    assert np.array_equal(W.weights, due.weights), "other weights"
    for a, b in zip(W.atoms, due.atoms, strict=True):
        assert a.mode == b.mode and np.array_equal(a.z, b.z), "other bits"
