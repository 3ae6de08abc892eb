"""A fit that is interrupted anywhere, or killed, and resumed ends with the same bits as one that never was."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from samples import assert_identical, listed, tensor, with_gaps

import boolcp
from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.fit import checkpoint
from boolcp.fit.atom_search import greedy_atom_search
from boolcp.fit.checkpoint import Checkpoint, get_random_state, is_same, read_archive, set_random_state
from boolcp.fit.relax import Sweeps
from boolcp.fit.starts import Search
from boolcp.fit.state import Pursuit
from boolcp.io import FileError
from boolcp.storage import DenseTensor

FITS = {
    "complete, compressed": lambda: (BMP(3, random_state=0), tensor((20, 22, 24))),
    "complete, not compressed": lambda: (BMP(3, random_state=0, compression=False), tensor((8, 9, 10))),
    "order four": lambda: (BMP(2, random_state=0), tensor((6, 7, 8, 5), 2)),
    "more atoms than there are": lambda: (BMP(4, random_state=0, alpha=0.1), tensor((8, 9, 10), noise=1.0)),
    "uncertain bits": lambda: (BMP(2, random_state=0), tensor((20, 16, 18), 2, noise=6.0)),
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


@pytest.fixture
def every_step(monkeypatch):
    """Write a checkpoint after every step, however short it is."""
    monkeypatch.setattr("boolcp.fit.watch.INTERVAL", 0.0)
    monkeypatch.setattr("boolcp.fit.watch.SHARE", np.inf)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def snapshots(every_step, tmp_path, monkeypatch):
    """Return a list that is filled with copies of every checkpoint that is written."""
    save, copies = Checkpoint.save, []

    def save_and_copy(self, *arguments):
        save(self, *arguments)
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
    monkeypatch.setattr("boolcp.fit.watch.INTERVAL", 60.0)  # writes take time
    for i in sorted(chosen):
        assert_identical(BMP.resume(copies[i], X), whole)


def test_every_atom_start_and_sweep_is_in_the_file(snapshots, tmp_path):
    model, X = FITS["complete, compressed"]()
    model.fit(X, checkpoint=tmp_path / "fit.npz")
    states = [read_archive(path)[1] for path in snapshots]
    here = [state.here for state in states]
    assert {len(step.history) for step in here if isinstance(step, Pursuit)} == {0, 1, 2, 3}
    assert {step.n_done for step in here if isinstance(step, Search)} >= {1, 2}
    assert {step.n_done for step in here if isinstance(step, Sweeps)} >= {1, 2}
    assert [state.stage for state in states] == sorted(state.stage for state in states)
    assert set(states[-1].done) == {"result"} and states[-1].here is None


@pytest.mark.parametrize("name", ["complete, compressed", "few observed", "dense blocks", "rank two", "matrix"])
def test_every_array_of_a_state_is_in_the_order_that_a_file_gives(name, monkeypatch, tmp_path):
    """A product rounds differently for a different memory order: a resumed fit would end with different bits."""
    strided = []

    def look(value, arrays, memo, encode=checkpoint.encode):
        if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
            strided.append(value.shape)
        return encode(value, arrays, memo)

    monkeypatch.setattr(checkpoint, "encode", look)
    model, X = FITS[name]()
    model.fit(X, checkpoint=tmp_path / "fit.npz")
    assert not strided


def n_found(state):
    """Return the number of atoms of the pursuit that is under way."""
    return len(state.here.history) if isinstance(state.here, Pursuit) else None


def test_the_steps_of_a_checkpoint_are_not_taken_again(snapshots, tmp_path, monkeypatch):
    model, X = FITS["complete, compressed"]()
    model.fit(X, checkpoint=tmp_path / "fit.npz")
    after_two = next(path for path in snapshots if n_found(read_archive(path)[1]) == 2)
    calls, search = [], greedy_atom_search
    monkeypatch.setattr("boolcp.fit.pursuit.greedy_atom_search", lambda *a, **k: calls.append(1) or search(*a, **k))
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

    monkeypatch.setattr("boolcp.fit.plan.finish", fail)
    monkeypatch.setattr("boolcp.fit.stages.core_stage", fail)
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
    state = get_random_state(rng)
    expected = rng.random(4)
    set_random_state(rng, state)
    np.testing.assert_array_equal(rng.random(4), expected)


# other fits are refused


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"n_atoms": 4}, r"different parameters, namely n_atoms \(3 there, 4 here\)"),
        ({"max_iter": 5, "refine": False}, r"max_iter \(50 there, 5 here\), refine \(True there, False here\)"),
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
        (X.astype(np.float32), "namely values"),
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


def test_numbers_that_identify_lazy_data_are_compared_up_to_rounding():
    gram = DenseTensor(tensor()).gram(0).tolist()
    rounded = (np.array(gram) * (1 + 1e-12)).tolist()
    assert is_same(gram, rounded, 1e-6) and is_same(1.0, 1.0 + 1e-12, 1e-6)
    rounded[3][4] += 1e-3 * rounded[3][3]
    assert not is_same(gram, rounded, 1e-6) and not is_same([10**7], [10**7 + 1], 1e-6)


# killed for good

SCRIPT = textwrap.dedent("""
    import sys
    import numpy as np
    import boolcp.fit.watch
    from boolcp.bmp import BMP
    boolcp.fit.watch.INTERVAL, boolcp.fit.watch.SHARE = 0.0, np.inf
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
    """Kill a fit at random moments, n_kills times in all (when it ends in between, it begins anew), and finish it.

    At least one kill comes after a checkpoint was written: on a slow machine there are more kills, later ones.
    """
    X = make_boolean_cp((60, 70, 80), 8, noise=1.0, random_state=0).X
    np.save(tmp_path / "X.npy", X)
    whole = BMP(8, random_state=0).fit(X)
    rng, n_killed, n_left = np.random.default_rng(5), 0, 0
    while n_killed < n_kills or n_left == 0:
        longest *= 1.0 if n_killed < n_kills else 1.5
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
    monkeypatch.setattr("boolcp.fit.in_passes.N_LOADED", np.inf)  # scarce entries stay out of memory too
    X = with_gaps(tensor((20, 22, 40)), share)
    lazy = dask_array.from_array(X, chunks=(20, 22, 10))
    whole = BMP(3, random_state=0).fit(lazy)
    assert whole.n_passes_ > 0
    kept = BMP(3, random_state=0).fit(lazy, checkpoint=tmp_path / "fit.npz")
    assert_identical(kept, whole)
    assert kept.n_passes_ == whole.n_passes_  # to know the data takes none
    copies = list(snapshots)
    monkeypatch.setattr("boolcp.fit.watch.INTERVAL", 60.0)
    for i in (0, len(copies) // 2):
        assert_identical(BMP.resume(copies[i], lazy), whole)
    with pytest.raises(FileError, match=r"\|X\|\^2"):
        BMP.resume(copies[1], 2 * lazy)


def test_a_checkpoint_of_lazy_data_is_refused_by_name_for_an_array_in_memory(tmp_path):
    da = pytest.importorskip("dask.array")
    X = make_boolean_cp((30, 40, 25), 2, noise=0.1, random_state=0)[0]
    BMP(2, random_state=0).fit(da.from_array(X, chunks=20), checkpoint=tmp_path / "fit.npz")
    with pytest.raises(FileError, match=r"checkpoint of a different fit: different data, namely .*\|X\|\^2"):
        BMP(2, random_state=0).fit(X, checkpoint=tmp_path / "fit.npz")
