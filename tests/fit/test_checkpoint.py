"""The file of a checkpoint: damaged ones are refused and the one before is used; what goes in comes back."""

import shutil
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from samples import assert_identical, parts, random_decomposition, tensor

from boolcp.bmp import BMP
from boolcp.fit.backfit import Term
from boolcp.fit.checkpoint import Checkpoint, check_same, read_archive, write_archive
from boolcp.fit.state import State
from boolcp.fit.watch import Watch, progress
from boolcp.io import FileError
from boolcp.io.atomic import locked
from boolcp.result.columns import Columns
from boolcp.storage import DenseTensor, compress


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
    kept = []
    monkeypatch.setattr("boolcp.bmp.run", lambda job, plan, state, watch: kept.append(state))
    with pytest.warns(UserWarning, match="previous version, fit.npz.previous"), pytest.raises(TypeError):
        BMP.resume(two_files.path, two_files.X)
    assert (kept[0].stage, kept[0].done.keys()) == (before.stage, before.done.keys())


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


def test_another_version_is_refused(tmp_path, monkeypatch):
    X, path = tensor(), tmp_path / "fit.npz"
    with monkeypatch.context() as patch:
        patch.setattr("boolcp.fit.checkpoint.__version__", "9.9")
        BMP(2, random_state=0).fit(X, checkpoint=path, callback=lambda progress: True)
    with pytest.raises(FileError, match=r"written by boolcp 9.9 .format 2., but this is"):
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

    monkeypatch.setattr("boolcp.fit.checkpoint.write_archive", fail)
    with pytest.raises(FileError, match="no space"):
        BMP.resume(two_files.path, two_files.X)
    assert two_files.path.read_bytes() == content


def test_two_fits_never_share_a_checkpoint(tmp_path):
    X, path = tensor(), tmp_path / "fit.npz"
    with locked(path), pytest.raises(FileError, match="in use by another run"):
        BMP(2, random_state=0).fit(X, checkpoint=path)
    assert list(tmp_path.iterdir()) == []
    BMP(2, random_state=0).fit(X, checkpoint=path)  # the lock is gone


def test_the_temporary_file_of_a_checkpoint_never_follows_a_link(tmp_path):
    path, precious = tmp_path / "fit.npz", tmp_path / "precious.txt"
    precious.write_text("mine")
    (tmp_path / "fit.npz.writing").symlink_to(precious)
    BMP(2, random_state=0).fit(tensor(), checkpoint=path)
    assert precious.read_text() == "mine" and read_archive(path)


@pytest.mark.parametrize("n_written", [1, 2, 4])
def test_a_disk_that_becomes_full_costs_no_result(n_written, tmp_path, monkeypatch):
    X, path, count = tensor(), tmp_path / "fit.npz", iter(range(100))

    def write(*arguments):
        if next(count) >= n_written:
            raise OSError(28, "No space left on device")
        write_archive(*arguments)

    expected = BMP(2, random_state=0).fit(X).decomposition_
    with monkeypatch.context() as patch:
        patch.setattr("boolcp.fit.checkpoint.write_archive", write)
        with pytest.warns(UserWarning, match=r"no space is left on the disk.*The fit continues"):
            found = BMP(2, random_state=0).fit(X, checkpoint=path).decomposition_
    assert next(count) > n_written + 1  # it was tried again
    for W in (found, BMP.resume(path, X).decomposition_):
        np.testing.assert_array_equal(W.to_tensor(), expected.to_tensor())


# the pieces


def test_lazy_data_is_known_to_the_precision_of_its_numbers():
    known = {"shape": [2, 2, 9], "|X|^2": 5.0, "Gram matrix of mode 0": [[3.0, 1.0], [1.0, 2.0]]}
    other = known | {"Gram matrix of mode 0": [[3.0, 1.0], [1.0, 2.00001]]}  # float32, summed in other parts
    check_same("fit.npz", "data", known | {"dtype": "float32"}, other | {"dtype": "float32"})
    with pytest.raises(FileError, match="different data, namely Gram matrix of mode 0"):
        check_same("fit.npz", "data", known | {"dtype": "float64"}, other | {"dtype": "float64"})
    another = known | {"Gram matrix of mode 0": [[3.0, 1.0], [1.0, 2.001]], "dtype": "float32"}
    with pytest.raises(FileError, match="different data"):
        check_same("fit.npz", "data", known | {"dtype": "float32"}, another)


def test_values_come_back_as_they_were(rng, tmp_path):
    X = tensor((20, 22, 24))
    core = compress(DenseTensor(X), 5)
    blocks = random_decomposition((5, 6, 7), "mixed", rng)
    value = {
        "numbers": (1, 2.5, float("inf"), None, True, "text", [np.float64(0.1), np.bool_(True)]),
        "W": replace(blocks, data_norm2=2.0, data_inner=rng.random(blocks.n_atoms)),
        "core": core,
        "columns": Columns([rng.random((2, 3)).T, np.asfortranarray(rng.random((4, 2)))], [0, 1], [0, 1], 0.5),
        "terms": [Term(0, np.array([True, False]), rng.random((3, 4)), certificate=float("nan"))],
    }
    file = Checkpoint(tmp_path / "values.npz")
    file.save({}, State(3, None, value), {})
    header, state = file.load()
    back = state.done
    assert state.stage == 3 and header["random_state"] == {}
    assert back["numbers"] == (1, 2.5, float("inf"), None, True, "text", [0.1, True])
    for x, y in zip(parts(back["W"]), parts(value["W"]), strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(back["core"].gram(1), core.gram(1))
    for x, y in zip(back["columns"].matrices, value["columns"].matrices, strict=True):
        np.testing.assert_array_equal(x, y)
        assert x.flags.c_contiguous
    assert isinstance(back["terms"][0], Term) and np.isnan(back["terms"][0].certificate)
    with pytest.raises(TypeError, match="cannot hold a set"):
        file.save({}, State(0, {1, 2}), {})


def test_arrays_that_are_shared_are_written_once(tmp_path, rng):
    W = random_decomposition((50, 60, 70), "rank one", rng, n_atoms=8)
    path = tuple(W[: k + 1] for k in range(8))
    file = Checkpoint(tmp_path / "path.npz")
    file.save({}, State(0, W), {})
    one = file.path.stat().st_size
    file.save({}, State(0, path), {})
    assert file.path.stat().st_size < 2 * one


def test_short_steps_are_not_written_one_by_one(tmp_path, monkeypatch):
    saves, save = [], Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda *arguments: saves.append(1) or save(*arguments))
    watch = Watch(np.random.default_rng(0), (), Checkpoint(tmp_path / "fit.npz"), {})
    with watch:
        for k in range(200):
            watch.step(State(0, k), progress("search", k, 200, 1.0, 2.0))
        watch.stage(State(1, None, {"search": 199}))
    assert 1 < len(saves) < 20
    assert read_archive(tmp_path / "fit.npz")[1] == State(1, None, {"search": 199})
