"""Checkpoints and callbacks: a fit that is stopped anywhere, or killed, ends with the bits of one that never was."""

import os
import shutil
import signal
import sys
import warnings
import zipfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from samples import assert_identical, forge, tensor, with_gaps

from boolcp import BMP, BoolcpWarning
from boolcp.datasets import make_boolean_cp
from boolcp.fit.watch import Stop
from boolcp.io import FileError
from boolcp.io.atomic import locked

CHAIN = scipy.sparse.csr_array(np.eye(20, k=1) + np.eye(20, k=-1))
NEIGHBORS = {"adjacency": {0: CHAIN}, "smoothness": 3.0, "boolean_modes": [0]}
FITS = {
    "complete, compressed": lambda: (BMP(3, random_state=0), tensor((20, 22, 24))),
    "order four": lambda: (BMP(2, random_state=0, n_init=3), tensor((6, 7, 8, 5), 2)),
    "uncertain bits": lambda: (BMP(2, random_state=0), tensor((20, 16, 18), 2, noise=6.0)),
    "few observed": lambda: (BMP(2, random_state=0, n_init=2, max_iter=5), with_gaps(tensor((7, 8, 9), 2, 1.0), 0.7)),
    "matrix": lambda: (BMP(3, random_state=0), with_gaps(tensor((30, 40)), 0.2)),
    "mean": lambda: (BMP(2, mean=True, boolean_modes=[0], random_state=0), with_gaps(tensor((10, 9, 8)) + 3, 0.1)),
    "blocks": lambda: (BMP(3, atom_rank="block", random_state=0), with_gaps(tensor(), 0.1)),
    "noise": lambda: (BMP(2, noise="separable", boolean_modes=[2], random_state=0), tensor((7, 9, 40), 2)),
    "neighbors": lambda: (BMP(2, **NEIGHBORS, random_state=0), tensor((20, 9, 8), 2, noise=2.0)),
    "nonnegative": lambda: (BMP(2, nonnegative=True, random_state=0), np.abs(tensor((8, 9, 10)))),
    "as published": lambda: (BMP.as_published(4, random_state=0), tensor()),
}


def stop_after(n):
    """Return a callback that stops a fit after n steps."""
    steps = iter(range(1, n + 1))
    return lambda progress: next(steps) == n


@pytest.mark.parametrize("name", FITS)
def test_resumed_after_any_step_ends_with_the_same_bits(name, tmp_path):
    model, X = FITS[name]()
    seen: list = []
    whole, path = model.fit(X, callback=seen.append), tmp_path / "fit.npz"
    assert seen
    for n in sorted({1, 2, len(seen) // 2, len(seen) - 1, len(seen)} & set(range(1, len(seen) + 1))):
        stopped = FITS[name]()[0].fit(X, checkpoint=path, callback=stop_after(n))
        assert "stopped by the callback" in stopped.stop_reason_ and not stopped.converged_
        again: list = []
        assert_identical(BMP.resume(path, X, callback=again.append), whole)
        assert again == seen[n:]  # no step of the file is taken again
        again.clear()
        assert_identical(FITS[name]()[0].fit(X, checkpoint=path, callback=again.append), whole)
        assert again == []  # it was finished
        for file in tmp_path.iterdir():
            file.unlink()


def test_a_fit_stopped_again_and_again_advances_by_one_step_each_time(tmp_path):
    model, X = FITS["complete, compressed"]()
    seen: list = []
    whole, path = model.fit(X, callback=seen.append), tmp_path / "fit.npz"
    for progress in seen:
        told: list = []
        FITS["complete, compressed"]()[0].fit(X, checkpoint=path, callback=lambda p, told=told: told.append(p) or True)
        assert told == [progress]
    assert_identical(BMP.resume(path, X), whole)


def test_labels_come_from_the_data_given(tmp_path):
    xarray = pytest.importorskip("xarray")
    X = xarray.DataArray(tensor(), dims=("channel", "time", "trial"))
    path = tmp_path / "fit.npz"
    BMP(2, boolean_modes=["trial"], random_state=0).fit(X, checkpoint=path, callback=lambda progress: True)
    model = BMP.resume(path, X)
    assert model.decomposition_.dims == ("channel", "time", "trial") and model.boolean_modes == ["trial"]
    with pytest.raises(FileError, match="Boolean modes"):
        BMP.resume(path, X.rename(trial="time", time="trial"))


@pytest.mark.parametrize("seed", [None, np.random.default_rng(3), np.random.RandomState(3)], ids=str)
def test_a_fit_without_a_plain_seed_resumes_with_the_one_it_drew(seed, tmp_path):
    X, path = tensor((8, 9, 10), noise=2.0), tmp_path / "fit.npz"
    BMP(3, random_state=seed).fit(X, checkpoint=path, callback=stop_after(2))
    copy = shutil.copy(path, tmp_path / "copy.npz")
    first, second = BMP.resume(path, X), BMP.resume(copy, X)
    assert_identical(first, second)


# callbacks


def test_a_callback_sees_every_step_and_true_stops():
    X, seen = tensor((20, 22, 24)), []
    model = BMP(3, random_state=0).fit(X, callback=seen.append)
    assert [p.step for p in seen if p.stage == "pursuit"] == [1, 2, 3] and seen[0].n_steps == 3
    assert [p.relative_error for p in seen[:3]] == [record.relative_error for record in model.history_]
    for stop in (True, np.True_):
        stopped = BMP(3, random_state=0).fit(X, callback=lambda p, stop=stop: stop if p.step == 2 else None)
        assert stopped.decomposition_.n_atoms == 2 and len(stopped.path_) == 3
        assert stopped.decomposition_.trust.n_asked == 0  # fewer atoms were asked for, by the callback
    assert BMP(1, random_state=0).fit(X, callback=lambda p: "yes").converged_  # only True stops


def test_refine_ends_the_pursuit_and_its_atoms_are_refined():
    X = tensor((20, 22, 24))
    model = BMP(5, random_state=0).fit(X, callback=lambda p: "refine" if p.step == 2 else None)
    stages = []
    BMP(5, random_state=0).fit(X, callback=lambda p: stages.append(p.stage) or ("refine" if p.step == 2 else None))
    assert model.decomposition_.n_atoms == 2 and "refined" in model.stop_reason_
    assert stages.count("pursuit") == 2 and "polish" in stages
    alone = BMP(2, random_state=0).fit(X).decomposition_
    assert model.decomposition_.explained() == pytest.approx(alone.explained(), rel=1e-4)


def test_a_keyboard_interrupt_keeps_the_best_so_far(tmp_path):
    X, path = tensor((20, 22, 24)), tmp_path / "fit.npz"

    def interrupt(progress):
        if progress.stage == "polish":
            raise KeyboardInterrupt

    model = BMP(3, random_state=0).fit(X, checkpoint=path, callback=interrupt)
    assert model.decomposition_.n_atoms == 3 and "stopped" in model.stop_reason_
    assert_identical(BMP.resume(path, X), BMP(3, random_state=0).fit(X))


def test_a_signal_ends_the_pursuit_first_and_then_the_fit():
    X, seen = tensor((20, 22, 24)), []

    def stop(progress):
        seen.append(progress.stage)
        if (progress.stage, progress.step) in (("pursuit", 2), ("polish", 1)):
            raise Stop

    model = BMP(5, random_state=0).fit(X, callback=stop)
    assert model.decomposition_.n_atoms == 2 and "stopped" in model.stop_reason_
    assert seen.count("pursuit") == 2 and seen.count("polish") == 1


def test_an_error_in_a_callback_is_not_hidden_and_the_file_stays(tmp_path):
    X, path = tensor((20, 22, 24)), tmp_path / "fit.npz"

    def fail(progress):
        if progress.step == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        BMP(3, random_state=0).fit(X, checkpoint=path, callback=fail)
    assert_identical(BMP.resume(path, X), BMP(3, random_state=0).fit(X))


# other fits are refused


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"n_atoms": 4}, r"different parameters, namely n_atoms \(3 there, 4 here\)"),
        ({"max_iter": 5, "refine": False}, r"max_iter \(50 there, 5 here\), refine \(True there, False here\)"),
        ({"random_state": 1}, r"random_state \(0 there, 1 here\)"),
        ({"random_state": None}, r"random_state \(0 there, None here\)"),
        ({"boolean_modes": [0, 1]}, "boolean_modes"),
        ({"mean": True, "boolean_modes": [0]}, "mean"),
    ],
)
def test_other_parameters_are_named(changed, text, tmp_path):
    X, path = tensor(), tmp_path / "fit.npz"
    BMP(3, random_state=0).fit(X, checkpoint=path, callback=lambda progress: True)
    content = path.read_bytes()
    with pytest.raises(FileError, match=text):
        BMP(**{"n_atoms": 3, "random_state": 0} | changed).fit(X, checkpoint=path)
    assert path.read_bytes() == content
    BMP(3, random_state=np.int64(0), verbose=1).fit(X, checkpoint=path)  # the same, and how much is shown is free


def test_other_data_are_named(tmp_path):
    X, path = tensor(), tmp_path / "fit.npz"
    BMP(3, random_state=0).fit(X, checkpoint=path, callback=lambda progress: True)
    content, other = path.read_bytes(), X.copy()
    other[1, 2, 3] += 1e-9
    for data, text in [
        (X[:-1], r"different data, namely shape \(\[12, 14, 16\] there, \[11, 14, 16\] here\)"),
        (X.astype(np.float32), "dtype"),
        (other, "namely entries"),
        (with_gaps(X, 0.2), "weights"),
    ]:
        with pytest.raises(FileError, match=text):
            BMP.resume(path, data)
    with pytest.raises(FileError, match="weights"):
        BMP.resume(path, X, weights=np.arange(1.0, 13)[:, None, None])
    assert path.read_bytes() == content
    BMP.resume(path, np.asfortranarray(X))  # the same numbers


def test_another_mask_is_named_and_hidden_values_are_not(tmp_path):
    X, path = tensor(), tmp_path / "fit.npz"
    mask = np.random.default_rng(0).random(X.shape) < 0.7
    BMP(2, random_state=0).fit(X, mask=mask, checkpoint=path, callback=lambda progress: True)
    moved = mask.copy()
    moved.flat[[np.flatnonzero(mask)[0], np.flatnonzero(~mask)[0]]] = False, True
    with pytest.raises(FileError, match="weights"):
        BMP.resume(path, X, moved)
    unseen = np.where(mask, X, 999.0)
    assert_identical(BMP.resume(path, unseen, mask), BMP(2, random_state=0).fit(X, mask=mask))


# damaged files


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """Return the folder of a checkpoint that has a previous version, the tensor, and the result of the whole fit."""
    X, folder = tensor((8, 9, 10)), tmp_path_factory.mktemp("interrupted")
    for n_steps in (2, 1):
        BMP(3, random_state=0).fit(X, checkpoint=folder / "fit.npz", callback=stop_after(n_steps))
    return folder, X, BMP(3, random_state=0).fit(X)


@pytest.fixture
def two_files(interrupted, tmp_path):
    folder, X, whole = interrupted
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return SimpleNamespace(path=tmp_path / "fit.npz", previous=tmp_path / "fit.npz.previous", X=X, whole=whole)


def damage(path, how):
    """Cut a file off at a share of its length, or flip a bit of a byte."""
    content = bytearray(path.read_bytes())
    if isinstance(how, float):
        path.write_bytes(content[: int(how * len(content))])
    else:
        content[how % len(content)] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize("how", [0.0, 0.3, 0.9, 0, 40, 1000, -1, -64, -65, -90, -200])
def test_a_damaged_file_falls_back_to_the_previous_one(how, two_files):
    damage(two_files.path, how)
    with pytest.warns(BoolcpWarning, match="resuming from the previous version, fit.npz.previous"):
        model = BMP.resume(two_files.path, two_files.X)
    assert_identical(model, two_files.whole)


def test_a_damaged_file_never_becomes_the_previous_one(two_files):
    damage(two_files.path, 0.5)
    with pytest.warns(BoolcpWarning):
        BMP.resume(two_files.path, two_files.X, callback=lambda progress: True)
    damage(two_files.path, 0.5)  # the one that was written since
    with pytest.warns(BoolcpWarning):
        assert_identical(BMP.resume(two_files.path, two_files.X), two_files.whole)


def test_the_previous_file_is_enough(two_files):
    two_files.path.unlink()  # as after a kill between the two renames
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_identical(BMP.resume(two_files.path, two_files.X), two_files.whole)


def test_two_damaged_files_are_an_error_and_stay(two_files):
    damage(two_files.path, 0.5)
    damage(two_files.previous, 100)
    content = two_files.path.read_bytes(), two_files.previous.read_bytes()
    for attempt in (BMP.resume, lambda path, X: BMP(3, random_state=0).fit(X, checkpoint=path)):
        with pytest.raises(FileError, match=r"no intact checkpoint is left: fit.npz is truncated.*fit.npz.previous is"):
            attempt(two_files.path, two_files.X)
    assert content == (two_files.path.read_bytes(), two_files.previous.read_bytes())


def test_files_that_are_no_checkpoints_are_not_overwritten(tmp_path):
    X = tensor()
    path = tmp_path / "notes.txt"
    path.write_text("dear diary " * 100)
    with pytest.raises(FileError, match="not a checkpoint"):
        BMP(2).fit(X, checkpoint=path)
    assert path.read_text().startswith("dear diary")
    with pytest.raises(FileError, match="is a folder"):
        BMP(2).fit(X, checkpoint=tmp_path)
    with pytest.raises(FileError, match="folder does not exist"):
        BMP(2).fit(X, checkpoint=tmp_path / "none" / "fit.npz")
    with pytest.raises(FileError, match="no such file"):
        BMP.resume(tmp_path / "none.npz", X)


def test_the_file_is_a_plain_archive(tmp_path):
    path = tmp_path / "fit.npz"
    BMP(2, random_state=0).fit(tensor(), checkpoint=path)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert b'"format": "boolcp checkpoint"' in archive.read("checkpoint.json")
    with np.load(path, allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files if name != "checkpoint.json")
    assert len(names) > 1 and sorted(p.name for p in tmp_path.iterdir()) == ["fit.npz", "fit.npz.previous"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ""),
        ({"boolcp_version": "9.9"}, r"was written by boolcp 9.9 \(format \d+\), but this is boolcp"),
        ({"format": "else"}, "is not a checkpoint that boolcp wrote"),
        ({"state": {}}, "fit.npz"),
        ({"state": 3}, "fit.npz"),
    ],
)
def test_a_file_of_another_version_or_without_a_state_is_refused(changes, text, tmp_path):
    X, path = tensor(), tmp_path / "fit.npz"
    BMP(2, random_state=0).fit(X, checkpoint=path, callback=lambda progress: True)
    (tmp_path / "fit.npz.previous").unlink(missing_ok=True)
    forge(path, lambda header: header | changes)
    if changes:
        with pytest.raises(FileError, match=text):
            BMP.resume(path, X)
    else:
        assert_identical(BMP.resume(path, X), BMP(2, random_state=0).fit(X))


@pytest.mark.parametrize("rank", [1, "block"])
@pytest.mark.parametrize(
    ("part", "value"),
    [("path", []), ("path", [None]), ("n_done", -1), ("best", 3), ("stop_reason", "x"), ("stage", "x")],
)
def test_a_state_that_no_fit_has_is_refused(part, value, rank, tmp_path):
    X, path = tensor(), tmp_path / "fit.npz"
    BMP(2, atom_rank=rank, random_state=0).fit(X, checkpoint=path, callback=lambda progress: True)
    forge(path, lambda header: header["state"]["parts"].update({part: value}) or header)
    with pytest.raises(FileError, match=r"fit\.npz"):
        BMP.resume(path, X)


def test_two_fits_never_share_a_checkpoint(tmp_path):
    X, path = tensor(), tmp_path / "fit.npz"
    with locked(path), pytest.raises(FileError, match="in use by another run"):
        BMP(2, random_state=0).fit(X, checkpoint=path)
    assert list(tmp_path.iterdir()) == []
    BMP(2, random_state=0).fit(X, checkpoint=path)  # the lock is gone


def test_a_file_that_can_no_longer_be_written_costs_no_result(tmp_path):
    X, path = tensor((20, 22, 24)), tmp_path / "fit.npz"

    def spoil(progress):
        if path.is_file():
            path.unlink()
            path.mkdir()

    with pytest.warns(BoolcpWarning, match="is a folder.*The fit continues and tries again later"):
        model = BMP(3, random_state=0).fit(X, checkpoint=path, callback=spoil)
    assert_identical(model, BMP(3, random_state=0).fit(X))


# killed for good


def run_until_killed(model, X, path, n_steps):
    """Run a fit in a process that is killed after some steps."""
    if (child := os.fork()) == 0:
        try:
            is_last = stop_after(n_steps)
            model.fit(X, checkpoint=path, callback=lambda p: is_last(p) and os.kill(os.getpid(), signal.SIGKILL))
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def test_a_killed_fit_ends_with_the_same_bits(tmp_path):
    X, path = make_boolean_cp((30, 35, 40), 4, noise=3.0, random_state=0).X, tmp_path / "fit.npz"
    whole = BMP(4, random_state=0).fit(X)
    run_until_killed(BMP(4, random_state=0), X, path, 3)  # in the pursuit, where a second may pass between two writes
    run_until_killed(BMP(4, random_state=0), X, path, 5)  # at the latest in the stage after it
    assert_identical(BMP(4, random_state=0).fit(X, checkpoint=path), whole)
    assert len(list(tmp_path.iterdir())) <= 3  # the file, its previous version, one that was being written


@contextmanager
def ctrl_c_at(is_there):
    """Give a function; once it was called, Ctrl-C is pressed at the first call of a code that `is_there` accepts."""

    def interrupt(frame, event, argument):
        if event == "call" and is_there(frame.f_code):
            sys.setprofile(None)
            raise KeyboardInterrupt

    try:
        yield lambda: sys.setprofile(interrupt)
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    ("stage", "noise"), [("pursuit", 1), ("search", 0.3), ("polish", 1), ("observed", 1), ("last", 1.5)]
)
def test_ctrl_c_in_the_middle_of_a_step_keeps_the_atoms_found_so_far(stage, noise):
    X = make_boolean_cp((9, 10, 11), 3, noise=noise, missing=0.2, random_state=0).X
    X, loss = (np.abs(np.round(X)), "poisson") if stage == "observed" else (X, "squared")
    model = BMP(3, loss=loss, random_state=0)
    with ctrl_c_at(lambda code: code.co_filename.endswith("sweep.py")) as press:  # of the next step
        with pytest.raises(KeyboardInterrupt, match="atoms found so far"):
            model.fit(X, callback=lambda progress: press() if progress.stage == stage else None)
    assert 0 < model.decomposition_.n_atoms <= 3 and 0 < model.decomposition_.explained() < 1
    assert "Ctrl-C" in model.stop_reason_ and not model.converged_


def test_ctrl_c_after_the_last_step_leaves_no_half_of_a_model():
    model = BMP(2, random_state=0)
    with ctrl_c_at(lambda code: code.co_name == "path_of") as press, pytest.raises(KeyboardInterrupt):
        press()
        model.fit(tensor())
    assert model.decomposition_.n_atoms == 2 and model.converged_ and model.path_ == () and model.n_passes_ == 0


@pytest.mark.slow
def test_a_cluster_whose_workers_die_gives_the_same_bits_or_says_so(tmp_path, monkeypatch):
    distributed, da = pytest.importorskip("distributed"), pytest.importorskip("dask.array")
    X = da.from_array(tensor((30, 24, 36)), chunks=(10, 24, 36))
    options = {"dtype": float, "meta": np.empty((0, 0, 0))}

    def die(block, place, n):
        if len(os.listdir(place)) < n:
            Path(place, str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    whole = BMP(2, random_state=0, max_memory=10**6).fit(X)
    cluster = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.Client(**cluster) as client:
        killed = BMP(2, random_state=0, max_memory=10**6).fit(X.map_blocks(die, str(tmp_path), 1, **options))
        assert len(list(tmp_path.iterdir())) > 0 < killed.n_passes_
        assert [a.z.tolist() for a in killed.decomposition_.atoms] == [a.z.tolist() for a in whole.decomposition_.atoms]
        with pytest.raises(RuntimeError, match=r"cluster of dask failed while it read X .KilledWorker"):
            BMP(2, random_state=0).fit(X.map_blocks(die, str(tmp_path), 99, **options))
        monkeypatch.setattr("boolcp.storage.sources.PATIENCE", 1)
        client.cluster.scale(0)
        with pytest.raises(RuntimeError, match="it has had no worker for 1 s"):
            BMP(2, random_state=0).fit(X)


@pytest.mark.parametrize("is_chosen", [False, True])
def test_ctrl_c_while_the_number_of_atoms_is_chosen_says_what_is_kept(is_chosen):
    X = make_boolean_cp((9, 10, 11), 1, noise=0.1, random_state=0).X
    model = BMP("auto", random_state=0)
    with ctrl_c_at(lambda code: code.co_name == "path_of" and hasattr(model, "selection_") == is_chosen) as press:
        press()
        with pytest.raises(KeyboardInterrupt, match=None if is_chosen else "no result"):
            model.fit(X)
    assert hasattr(model, "decomposition_") == is_chosen
