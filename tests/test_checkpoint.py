"""Checkpoints: a fit that is interrupted anywhere and resumed ends with the same bits as one that never was."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from samples import random_decomposition

import boolcp
from boolcp.bmp import BMP
from boolcp.checkpoint import Checkpoint, describe_data, is_same, read_archive, through_file
from boolcp.datasets import make_boolean_cp
from boolcp.io import FileError
from boolcp.records import Factors, Term
from boolcp.steps import Steps, get_state, set_state
from boolcp.storage import DenseTensor, compress

SHAPE = (12, 14, 16)


def tensor(shape=SHAPE, n_atoms=3, noise=0.3, seed=0):
    return make_boolean_cp(shape, n_atoms, noise=noise, random_state=seed).X


def with_gaps(X, share, seed=1):
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


def listed(X, share=0.04, seed=1):
    indices = np.argwhere(np.random.default_rng(seed).random(X.shape) < share)
    return indices, X[tuple(indices.T)], X.shape


FITS = {
    "complete, compressed": lambda: (BMP(3, random_state=0), tensor((20, 22, 24))),
    "complete, not compressed": lambda: (BMP(3, random_state=0, compression=False), tensor((8, 9, 10))),
    "order four": lambda: (BMP(2, random_state=0), tensor((6, 7, 8, 5), 2)),
    "more atoms than there are": lambda: (BMP(4, random_state=0, alpha=0.1), tensor((8, 9, 10), noise=1.0)),
    "float32": lambda: (BMP(3, random_state=0), tensor((20, 22, 24)).astype(np.float32)),
    "masked": lambda: (BMP(2, random_state=0), with_gaps(tensor((10, 11, 12)), 0.4)),
    "few observed": lambda: (
        BMP(2, random_state=0, n_init=2, max_iter=5),
        with_gaps(tensor((7, 8, 9), n_atoms=2, noise=1.0), 0.7),
    ),
    "listed": lambda: (
        BMP(2, random_state=0, n_init=2, max_iter=5),
        listed(tensor((15, 20, 25), 2, noise=0.05)),
    ),
    "dense blocks": lambda: (BMP(3, atom_rank=None, random_state=0), tensor()),
    "rank two": lambda: (BMP(3, atom_rank=2, random_state=0), tensor()),
    "rank two of order four": lambda: (BMP(2, atom_rank=2, random_state=0), tensor((5, 6, 7, 4), 3)),
    "rank by the noise": lambda: (BMP(3, atom_rank="auto", random_state=0), tensor((8, 9, 10))),
    "dense blocks, masked": lambda: (BMP(2, atom_rank=None, random_state=0), with_gaps(tensor(), 0.2)),
    "rank by the noise, masked": lambda: (BMP(2, atom_rank="auto", random_state=0), with_gaps(tensor((8, 9, 10)), 0.2)),
    "not refined": lambda: (BMP(4, refine=False, random_state=0), tensor()),
    "as published": lambda: (BMP.as_published(4, random_state=0), tensor()),
    "matrix": lambda: (BMP(3, random_state=0), tensor((30, 40))),
    "matrix, masked": lambda: (BMP(3, random_state=0), with_gaps(tensor((30, 40)), 0.2)),
}


def parts(W):
    """Return everything a decomposition is made of, as arrays."""
    found = [W.weights, W.data_norm2, W.data_inner, np.zeros(0) if W.data_gram is None else W.data_gram]
    for atom in W.atoms:
        real = atom.factors if atom.block is None else (atom.block,)
        found += [atom.mode, atom.z, *real, atom.certificate]
    return found


def assert_identical(a, b):
    """Two fitted models are equal in every bit, but for the seconds."""
    for V, W in zip((*a.path_, a.decomposition_), (*b.path_, b.decomposition_), strict=True):
        for x, y in zip(parts(V), parts(W), strict=True):
            np.testing.assert_array_equal(x, y)
    for x, y in zip(a.history_, b.history_, strict=True):
        np.testing.assert_equal(asdict(x) | {"seconds": 0}, asdict(y) | {"seconds": 0})
    assert (a.stop_reason_, a.n_iter_, a.converged_) == (b.stop_reason_, b.n_iter_, b.converged_)


@pytest.fixture
def every_step(monkeypatch):
    """Write a checkpoint after every step, however short it is."""
    monkeypatch.setattr("boolcp.steps.INTERVAL", 0.0)
    monkeypatch.setattr("boolcp.steps.SHARE", np.inf)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def snapshots(every_step, tmp_path, monkeypatch):
    """Return a list that is filled with copies of every checkpoint that is written."""
    save, copies = Checkpoint.save, []

    def save_and_copy(self, header, steps):
        save(self, header, steps)
        copies.append(shutil.copy(self.path, tmp_path / f"copy-{len(copies)}.npz"))

    monkeypatch.setattr(Checkpoint, "save", save_and_copy)
    return copies


LONG = {"more atoms than there are", "rank by the noise, masked", "order four", "rank two of order four", "float32"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LONG else []) for n in FITS])
def test_resumed_anywhere_ends_with_the_same_bits(name, snapshots, tmp_path, monkeypatch):
    model, X = FITS[name]()
    whole = model.fit(X)
    kept = FITS[name]()[0].fit(X, checkpoint=tmp_path / "fit.npz")
    assert_identical(kept, whole)
    assert len(snapshots) > len(whole.history_)
    chosen = {int(i) for i in np.linspace(0, len(snapshots) - 2, 5)}
    copies = list(snapshots)
    monkeypatch.setattr("boolcp.steps.INTERVAL", 60.0)  # writes take time
    for i in sorted(chosen):
        assert_identical(BMP.resume(copies[i], X), whole)


def test_every_atom_start_and_sweep_is_in_the_file(snapshots, tmp_path):
    model, X = FITS["complete, compressed"]()
    model.fit(X, checkpoint=tmp_path / "fit.npz")
    names = [set(read_archive(path)[1]) for path in snapshots]
    assert {f"result/pursuit/atom {k}" for k in range(3)} <= set.union(*names)
    assert {"result/core", "result/search/best", "result/polish/sweep", "result/path"} <= set.union(*names)
    assert names[-1] == {"start", "result"}
    states = [read_archive(path)[1].get("result/search/best") for path in snapshots]
    assert {state[0][0] for state in states if state} >= {1, 2, 3}


def test_what_is_superseded_leaves_the_file(snapshots, tmp_path):
    X = tensor()
    BMP(4, atom_rank=None, random_state=0).fit(X, checkpoint=tmp_path / "fit.npz")
    with_states = [
        [name for name, (value, _) in read_archive(path)[1].items() if "atom" in name and value[2] is not None]
        for path in snapshots
    ]
    assert max(map(len, with_states)) <= 2  # of the runs, the last states only, and those being replaced
    model, X = FITS["few observed"]()
    first = len(snapshots)
    model.fit(X, checkpoint=tmp_path / "other.npz")
    names = [{name.split("/")[2] for name in read_archive(p)[1] if name.count("/") > 1} for p in snapshots[first:]]
    assert max(sum("candidate" in name for name in found) for found in names) == 1


def test_the_steps_of_a_checkpoint_are_not_taken_again(snapshots, tmp_path, monkeypatch):
    model, X = FITS["complete, compressed"]()
    model.fit(X, checkpoint=tmp_path / "fit.npz")
    after_two = next(path for path in snapshots if "result/pursuit/atom 1" in read_archive(path)[1])
    calls, search = [], boolcp.pursuit.greedy_atom_search
    monkeypatch.setattr("boolcp.pursuit.greedy_atom_search", lambda *a, **k: calls.append(1) or search(*a, **k))
    seen = []
    BMP.resume(after_two, X, callback=seen.append)
    assert len(calls) == 1
    assert [p.step for p in seen if p.stage == "pursuit"] == [3]
    BMP.resume(after_two, X)
    assert len(calls) == 1  # that one is finished now


def test_fit_goes_on_from_the_checkpoint_too(tmp_path, monkeypatch):
    model, X = FITS["complete, compressed"]()
    path = tmp_path / "fit.npz"
    whole = model.fit(X)
    FITS["complete, compressed"]()[0].fit(X, checkpoint=path, callback=lambda progress: progress.step == 2)
    again = FITS["complete, compressed"]()[0].fit(X, checkpoint=path)
    assert_identical(again, whole)

    def fail(*arguments):
        raise AssertionError("a finished fit needs no work at all")

    monkeypatch.setattr("boolcp.bmp.run", fail)
    assert_identical(FITS["complete, compressed"]()[0].fit(X, checkpoint=path), whole)


def test_a_fit_stopped_in_each_stage_goes_on_as_if_it_were_not(tmp_path):
    for name in ("complete, compressed", "few observed"):
        model, X = FITS[name]()
        seen: list = []
        whole = model.fit(X, callback=seen.append)
        for stage in sorted({progress.stage for progress in seen}):
            path = tmp_path / f"{name} {stage}.npz"
            FITS[name]()[0].fit(X, checkpoint=path, callback=lambda progress, stage=stage: progress.stage == stage)
            assert_identical(BMP.resume(path, X), whole)
        path = tmp_path / f"{name} cut.npz"
        FITS[name]()[0].fit(X, checkpoint=path, callback=lambda progress: "refine")
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


# the random state


@pytest.mark.parametrize("bits", ["PCG64", "MT19937", "Philox", "SFC64", "PCG64DXSM"])
def test_a_generator_is_restored(bits, tmp_path):
    X, path = tensor(noise=1.0), tmp_path / "fit.npz"

    def make():
        return np.random.Generator(getattr(np.random, bits)(7))

    rng = make()
    whole, after = BMP(3, random_state=rng).fit(X), rng.random()
    BMP(3, random_state=make()).fit(X, checkpoint=path, callback=lambda progress: progress.step == 2)
    copy = shutil.copy(path, tmp_path / "copy.npz")
    resumed = BMP.resume(copy, X)
    assert_identical(resumed, whole)
    assert resumed.random_state.random() == after
    rng = make()
    assert_identical(BMP(3, random_state=rng).fit(X, checkpoint=path), whole)
    assert rng.random() == after
    with pytest.raises(FileError, match="random_state"):
        BMP(3, random_state=rng).fit(X, checkpoint=path)


def test_entropy_of_a_fit_without_a_seed_is_saved(snapshots, tmp_path):
    X = tensor((8, 9, 10), noise=2.0)
    whole = BMP(3).fit(X, checkpoint=tmp_path / "fit.npz")
    copies = list(snapshots)
    for i in (0, 2, len(copies) // 2):
        resumed = BMP.resume(copies[i], X)
        assert resumed.random_state is None
        assert_identical(resumed, whole)


def test_a_generator_comes_back_from_its_state():
    rng = np.random.default_rng(3)
    rng.standard_normal(5)
    state = get_state(rng)
    expected = rng.random(4)
    set_state(rng, state)
    np.testing.assert_array_equal(rng.random(4), expected)


# other fits are refused


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"n_atoms": 4}, r"different parameters, namely n_atoms \(3 there, 4 here\)"),
        ({"alpha": 0.5, "refine": False}, r"alpha \(0.0 there, 0.5 here\), refine \(True there, False here\)"),
        ({"random_state": 1}, r"random_state \(0 there, 1 here\)"),
        ({"random_state": None}, r"random_state \(0 there, None here\)"),
        ({"tol": 1.0000001e-6}, "tol"),
        ({"boolean_modes": [0, 1]}, "boolean_modes"),
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
    content = path.read_bytes()
    other = X.copy()
    other[1, 2, 3] += 1e-9
    for data, text in [
        (X[:-1], r"different data, namely shape \(\[12, 14, 16\] there, \[11, 14, 16\] here\)"),
        (X.astype(np.float32), r"dtype \('float64' there, 'float32' here\)"),
        (other, "namely values"),
        (with_gaps(X, 0.2), "number of observed entries"),
    ]:
        with pytest.raises(FileError, match=text):
            BMP.resume(path, data)
    assert path.read_bytes() == content
    BMP.resume(path, np.asfortranarray(X))  # the same numbers


def test_another_mask_is_named(tmp_path):
    X, path = tensor(), tmp_path / "fit.npz"
    mask = np.random.default_rng(0).random(X.shape) < 0.7
    BMP(2, random_state=0).fit(X, mask=mask, checkpoint=path, callback=lambda progress: True)
    moved = mask.copy()
    moved.flat[[np.flatnonzero(mask)[0], np.flatnonzero(~mask)[0]]] = False, True
    with pytest.raises(FileError, match="mask"):
        BMP.resume(path, X, moved)
    unseen = np.where(mask, X, 999.0)
    assert_identical(BMP.resume(path, unseen, mask), BMP(2, random_state=0).fit(X, mask=mask))


def test_lazy_data_are_told_apart_without_reading_them_once_more():
    X = tensor()

    facts = SimpleNamespace(squared_norm=np.sum(X**2), grams={0: DenseTensor(X).gram(0), ("columns", 1): None})
    lazy = SimpleNamespace(is_complete=True, shape=X.shape, dtype=X.dtype, facts=facts)  # answers no question
    known = describe_data(lazy)
    gram = known["Gram matrix of mode 0"]
    assert known["|X|^2"] == np.sum(X**2) and np.shape(gram) == (12, 12)
    rounded = (np.array(gram) * (1 + 1e-12)).tolist()
    assert is_same(gram, rounded, "data") and is_same(1.0, 1.0 + 1e-12, "data")
    rounded[3][4] += 1e-3 * rounded[3][3]
    assert not is_same(gram, rounded, "data") and not is_same([10**7], [10**7 + 1], "data")


# damaged files


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """Return the folder of a checkpoint that has one before it, the tensor, and the result of the whole fit."""
    X, folder = tensor((8, 9, 10)), tmp_path_factory.mktemp("interrupted")
    BMP(3, random_state=0).fit(X, checkpoint=folder / "fit.npz", callback=lambda progress: progress.step == 2)
    return folder, X, BMP(3, random_state=0).fit(X)


@pytest.fixture
def two_files(interrupted, tmp_path):
    folder, X, whole = interrupted
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return SimpleNamespace(path=tmp_path / "fit.npz", previous=tmp_path / "fit.npz.previous", X=X, whole=whole)


def damage(path, how):
    content = bytearray(path.read_bytes())
    if isinstance(how, float):
        path.write_bytes(content[: int(how * len(content))])
    else:
        content[how % len(content)] ^= 1
        path.write_bytes(content)


CUTS = [i / 10 for i in range(10)]
FLIPS = [0, 40, 300, 1000, -1, -30, -64, -65, -70, -90, -200]


@pytest.mark.parametrize("how", CUTS + FLIPS)
def test_a_damaged_file_is_refused_and_the_one_before_is_used(how, two_files, monkeypatch):
    damage(two_files.path, how)
    with pytest.raises(FileError):
        read_archive(two_files.path)
    before = read_archive(two_files.previous)[1]
    kept = {}
    monkeypatch.setattr("boolcp.bmp.run", lambda model, data, modes, rng, steps, start: kept.update(steps._values))
    with pytest.warns(UserWarning, match="going on from fit.npz.previous"), pytest.raises(TypeError):
        BMP.resume(two_files.path, two_files.X)
    assert kept.keys() == before.keys()


def test_a_damaged_file_never_becomes_the_one_before(two_files):
    damage(two_files.path, 0.5)
    with pytest.warns(UserWarning):
        stopped = BMP.resume(two_files.path, two_files.X, callback=lambda progress: True)
    assert not stopped.converged_
    for path in (two_files.path, two_files.previous):
        assert read_archive(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_identical(BMP.resume(two_files.path, two_files.X), two_files.whole)


def test_one_before_is_enough(two_files):
    two_files.path.unlink()  # as after a kill between the two renames
    assert_identical(BMP.resume(two_files.path, two_files.X), two_files.whole)


def test_two_damaged_files_are_an_error_and_stay(two_files):
    damage(two_files.path, 0.5)
    damage(two_files.previous, 100)
    content = two_files.path.read_bytes(), two_files.previous.read_bytes()
    for attempt in (BMP.resume, lambda path, X: BMP(3, random_state=0).fit(X, checkpoint=path)):
        with pytest.raises(FileError, match=r"no whole checkpoint is left: fit.npz is cut short.*fit.npz.previous is"):
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


def test_another_version_is_refused(tmp_path, monkeypatch):
    X, path = tensor(), tmp_path / "fit.npz"
    with monkeypatch.context() as patch:
        patch.setattr("boolcp.checkpoint.__version__", "9.9")
        BMP(2, random_state=0).fit(X, checkpoint=path, callback=lambda progress: True)
    with pytest.raises(FileError, match=r"written by boolcp 9.9, this is"):
        BMP.resume(path, X)


def test_the_file_is_a_plain_archive(tmp_path):
    path = tmp_path / "fit.npz"
    BMP(2, random_state=0).fit(tensor(), checkpoint=path)
    with np.load(path, allow_pickle=False) as archive:
        assert b'"format": "boolcp checkpoint"' in archive["checkpoint.json"]
        assert all(archive[name].dtype != object for name in archive.files if name != "checkpoint.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fit.npz", "fit.npz.previous"]


def test_a_failed_write_leaves_the_file_before(two_files, monkeypatch):
    content = two_files.path.read_bytes()

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("boolcp.checkpoint.write_archive", fail)
    with pytest.raises(FileError, match="no space"):
        BMP.resume(two_files.path, two_files.X)
    assert two_files.path.read_bytes() == content


# the pieces


def test_values_come_back_as_they_were(rng, tmp_path):
    X = tensor((20, 22, 24))
    core = compress(DenseTensor(X), 5)
    blocks = random_decomposition((5, 6, 7), "mixed", rng)
    value = {
        "numbers": (1, 2.5, float("inf"), None, True, "text", [np.float64(0.1), np.bool_(True)]),
        "W": replace(blocks, data_norm2=2.0, data_inner=rng.random(blocks.n_atoms)),
        "core": core,
        "factors": Factors([rng.random((3, 2)).T, np.asfortranarray(rng.random((4, 2)))], np.array([0, 1]), 0.5),
        "terms": [Term(0, np.array([True, False]), rng.random((3, 4)), certificate=float("nan"))],
    }
    file = Checkpoint(tmp_path / "values.npz")
    file.save({}, {name: (through_file(part), None) for name, part in value.items()})
    read = {name: part for name, (part, _) in file.load()[1].items()}
    copied = {name: through_file(part) for name, part in value.items()}
    for back in (read, copied):
        assert back["numbers"] == (1, 2.5, float("inf"), None, True, "text", [0.1, True])
        for x, y in zip(parts(back["W"]), parts(value["W"]), strict=True):
            np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(back["core"].gram(1), core.gram(1))
        for x, y in zip(back["factors"].matrices, value["factors"].matrices, strict=True):
            np.testing.assert_array_equal(x, y)
            assert x.flags.c_contiguous
        assert isinstance(back["terms"][0], Term) and np.isnan(back["terms"][0].certificate)
    with pytest.raises(TypeError, match="cannot hold a set"):
        through_file({1, 2})


def test_arrays_that_are_shared_are_written_once(tmp_path, rng):
    W = random_decomposition((50, 60, 70), "rank one", rng, n_atoms=8)
    path = tuple(W[: k + 1] for k in range(8))
    file = Checkpoint(tmp_path / "path.npz")
    file.save({}, {"one": (W, None)})
    one = file.path.stat().st_size
    file.save({}, {"path": (path, None)})
    assert file.path.stat().st_size < 2 * one


def test_short_steps_are_not_written_one_by_one(tmp_path, monkeypatch):
    saves, save = [], Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda *arguments: saves.append(1) or save(*arguments))
    steps, rng = Steps(Checkpoint(tmp_path / "fit.npz"), {}), np.random.default_rng(0)

    def stage():
        return [steps.do(f"step {k}", rng.random, rng) for k in range(200)]

    def stages():
        return steps.do("stage", stage, rng)

    steps.do("fit", stages, rng)
    assert len(saves) < 20
    assert set(read_archive(tmp_path / "fit.npz")[1]) == {"fit"}


# killed for good

SCRIPT = textwrap.dedent("""
    import sys
    import numpy as np
    import boolcp.steps
    from boolcp.bmp import BMP
    boolcp.steps.INTERVAL, boolcp.steps.SHARE = 0.0, np.inf
    X = np.load("X.npy")
    print("ready", flush=True)
    BMP(8, random_state=0).fit(X, checkpoint="fit.npz")
    print("done", flush=True)
""")


def run_killed(folder, seconds):
    """Run the fit and kill it after some seconds; return whether it ended before, by itself."""
    environment = os.environ | {"PYTHONPATH": str(Path(boolcp.__file__).parents[1])}
    options = {"cwd": folder, "env": environment, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SCRIPT], **options) as process:
        assert process.stdout.readline() == "ready\n"
        try:
            assert process.wait(timeout=seconds) == 0, "the fit failed, not killed by us"
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            return False
        return True


def assert_killed_fits_go_on(tmp_path, n_kills, longest):
    """Kill a fit at random moments, n_kills times in all (when it ends in between, it begins anew), and finish it."""
    X = make_boolean_cp((60, 70, 80), 8, noise=1.0, random_state=0).X
    np.save(tmp_path / "X.npy", X)
    whole = BMP(8, random_state=0).fit(X)
    rng, n_killed, n_left = np.random.default_rng(5), 0, 0
    while n_killed < n_kills:
        if run_killed(tmp_path, rng.uniform(0, longest)):
            assert_identical(BMP.resume(tmp_path / "fit.npz", X), whole)
            for path in tmp_path.glob("fit.npz*"):
                path.unlink()
        else:
            n_killed += 1
            files = Checkpoint(tmp_path / "fit.npz")
            left = [path for path in (files.path, files.previous) if path.exists()]
            assert all(read_archive(path) for path in left)
            n_left += bool(left)
    assert n_left, "no kill came after a checkpoint was written"
    assert_identical(BMP(8, random_state=0).fit(X, checkpoint=tmp_path / "fit.npz"), whole)
    assert len(list(tmp_path.iterdir())) <= 4  # data, the file, the one before it, one that was being written


def test_a_fit_killed_three_times_ends_with_the_same_bits(tmp_path):
    assert_killed_fits_go_on(tmp_path, 3, 1.0)


@pytest.mark.slow
def test_a_fit_killed_twenty_times_ends_with_the_same_bits(tmp_path):
    assert_killed_fits_go_on(tmp_path, 20, 2.0)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_a_fit_of_lazy_data_is_resumed(share, snapshots, tmp_path, monkeypatch):
    dask_array = pytest.importorskip("dask.array")
    X = with_gaps(tensor((20, 22, 40)), share)
    lazy = dask_array.from_array(X, chunks=(20, 22, 10))
    whole = BMP(3, random_state=0).fit(lazy)
    assert whole.n_passes_ > 0
    kept = BMP(3, random_state=0).fit(lazy, checkpoint=tmp_path / "fit.npz")
    assert_identical(kept, whole)
    assert kept.n_passes_ == whole.n_passes_  # to know the data takes none
    copies = list(snapshots)
    monkeypatch.setattr("boolcp.steps.INTERVAL", 60.0)
    for i in (0, len(copies) // 2):
        assert_identical(BMP.resume(copies[i], lazy), whole)
    with pytest.raises(FileError, match=r"\|X\|\^2"):
        BMP.resume(copies[1], 2 * lazy)


def test_a_checkpoint_of_lazy_data_is_refused_by_name_for_an_array_in_memory(tmp_path):
    da = pytest.importorskip("dask.array")
    X = make_boolean_cp((30, 40, 25), 2, noise=0.1, random_state=0)[0]
    BMP(2, random_state=0).fit(da.from_array(X, chunks=20), checkpoint=tmp_path / "fit.npz")
    with pytest.raises(FileError, match=r"checkpoint of another fit: different data, namely .*\|X\|\^2"):
        BMP(2, random_state=0).fit(X, checkpoint=tmp_path / "fit.npz")
