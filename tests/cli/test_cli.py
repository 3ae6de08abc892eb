import csv
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

import boolcp
from boolcp.cli import INTERRUPTED, WRONG_INPUT, main
from boolcp.cli.data import DataOptions, label_list, load_data
from boolcp.cli.fitting import Stopper, fit_until_stopped
from boolcp.fit.watch import Stop, Watch
from boolcp.io import load_provenance


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    synthetic = boolcp.datasets.make_boolean_cp((12, 14, 16), 3, noise=0.1, random_state=0)
    np.save("data.npy", synthetic.X)
    return synthetic


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_fit_writes_a_result_a_table_and_a_log(data, tmp_path, capsys):
    code, out, _ = run(capsys, "fit", "data.npy", "-k", 3, "--dims", "channel,time,trial", "-o", "out")
    assert code == 0 and "3 atoms of a 12 channel x 14 time x 16 trial tensor" in out
    W = boolcp.load("out/decomposition.nc")
    assert boolcp.metrics.hamming_error(W, data.truth) == 0
    same = boolcp.BMP(3, random_state=0).fit(data.X).decomposition_
    np.testing.assert_array_equal(W.to_tensor(), same.to_tensor())
    rows = list(csv.DictReader(open("out/summary.csv")))
    assert [int(row["n_ones"]) for row in rows] == [atom.n_ones for atom in W.atoms]
    log = (tmp_path / "out" / "fit.log").read_text()
    assert '"n_atoms": 3' in log and boolcp.__version__ in log
    assert load_provenance("out/decomposition.nc")["is_partial"] is False


def test_options_of_the_fit_reach_the_model(data, capsys):
    options = ["--boolean-modes", "2,0", "--atom-rank", "block", "--no-refine", "--criterion", "published", "--seed", 5]
    assert run(capsys, "fit", "data.npy", "-k", 2, "-o", "out", *options)[0] == 0
    parameters = load_provenance("out/decomposition.nc")["parameters"]
    assert parameters["boolean_modes"] == [2, 0] and parameters["atom_rank"] is None
    assert parameters["refine"] is False and parameters["criterion"] == "published" and parameters["random_state"] == 5


def test_info_tells_of_files_and_results(data, capsys):
    assert "array: 12 x 14 x 16 float64" in run(capsys, "info", "data.npy")[1]
    run(capsys, "fit", "data.npy", "-k", 2, "-o", "out")
    for path in ("out", "out/decomposition.nc"):
        code, out, _ = run(capsys, "info", path)
        assert code == 0 and "2 atoms" in out and "fingerprint" in out and "relative error" in out


def test_nothing_is_overwritten_without_force(data, capsys):
    assert run(capsys, "fit", "data.npy", "-k", 1, "-o", "out")[0] == 0
    code, _, err = run(capsys, "fit", "data.npy", "-k", 2, "-o", "out")
    assert code == WRONG_INPUT and "exists already" in err and "--force" in err
    assert boolcp.load("out/decomposition.nc").n_atoms == 1
    assert run(capsys, "fit", "data.npy", "-k", 2, "-o", "out", "--force")[0] == 0
    assert boolcp.load("out/decomposition.nc").n_atoms == 2


def test_what_exists_is_seen_before_any_work(data, capsys, monkeypatch):
    run(capsys, "fit", "data.npy", "-k", 1, "-o", "out")
    monkeypatch.setattr("boolcp.cli.fitting.load_data", lambda options: pytest.fail("the data was read"))
    assert run(capsys, "fit", "data.npy", "-o", "out")[0] == WRONG_INPUT


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "data.npy", "-k", "0"], "n_atoms must be at least 1"),
        (["fit", "data.npy", "--boolean-modes", "trial"], "not among the modes"),
        (["fit", "data.npy", "--atom-rank", "two"], "--atom-rank"),
        (["fit", "data.npy", "--band", "8-13"], "needs the mode 'time'"),
        (["fit", "data.npy", "--dims", "channel,time,trial", "--band", "x"], "--band takes two numbers"),
        (["fit", "data.npy", "data.npy"], "--join"),
        (["fit", "data.npy", "--drop", "63"], "NAME=VALUE"),
        (["fit", "data.npy", "-o", "data.npy"], "is a file, not a folder"),
        (["fit", "data.npy", "--reference", "nothing.csv", "--dims", "channel,time,trial"], "no such file"),
        (["complete", "data.npy", "-o", "full.nc"], "nothing to complete"),
        (["convert", "data.npy", "-o", "data.xyz"], "Use .nc or .npy"),
        (["info", "nothing.npy"], "no such file"),
    ],
)
def test_errors_are_one_line_with_exit_code_2(arguments, words, data, capsys):
    code, out, err = run(capsys, *arguments)
    *notes, error = err.splitlines()
    assert code == WRONG_INPUT and words in error and not out and not any("boolcp:" in line for line in notes), err


def test_a_wrong_option_is_a_usage_error(data, capsys):
    code, _, err = run(capsys, "fit", "data.npy", "--nonsense")
    assert code == WRONG_INPUT and "--nonsense" in err


def test_a_bug_is_told_apart(data, capsys, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("boom")

    monkeypatch.setattr("boolcp.cli.answers.describe", fail)
    code, _, err = run(capsys, "info", "data.npy")
    assert code == 1 and "unexpected RuntimeError: boom" in err and "--debug" in err
    with pytest.raises(RuntimeError):
        main(["info", "data.npy", "--debug"])


def options(*files, **given):
    return DataOptions(list(files), **given)


def test_the_steps_from_the_command_are_those_of_the_library(tmp_path, rng):
    from boolcp import prepare

    time = np.arange(3000) / 250
    X = xr.DataArray(rng.standard_normal((4, 3000)), {"channel": [1, 2, 3, 4], "time": time}, ("channel", "time"))
    X.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    given = {"drop": ["channel=4"], "reference": "average", "notch": 50.0, "band": "8-13", "envelope": "log"}
    given |= {"resample": 50.0, "bin_ms": 1000.0, "n_trials": 10, "zscore": True, "center": "trial"}
    Y = prepare.notch(prepare.common_average(prepare.drop(X, "channel", [4])), 50)
    Y = prepare.resample(prepare.envelope(prepare.band_pass(Y, 8, 13), "log"), 50)
    Y = prepare.zscore(prepare.center(prepare.cut_trials(Y, 1000, n_trials=10), "trial"))
    xr.testing.assert_allclose(load_data(options(tmp_path / "a.nc", **given)), Y)


def test_pairs_of_channels_from_a_table(tmp_path, rng):
    X = xr.DataArray(rng.standard_normal((3, 40)), {"channel": [1, 2, 3]}, ("channel", "time"))
    X.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    (tmp_path / "pairs.csv").write_text("ch_plus,ch_minus\n1,3\n")
    with pytest.warns(UserWarning, match="continuous"):
        Y = load_data(options(tmp_path / "a.nc", reference=str(tmp_path / "pairs.csv")))
    np.testing.assert_array_equal(Y.values[0], X.values[0] - X.values[2])


def test_several_files_are_joined(tmp_path, rng):
    for state in ("awake", "asleep"):
        np.savez(tmp_path / f"{state}.npz", psd=rng.uniform(1, 2, (3, 5)), f=np.arange(5.0))
    files = [tmp_path / "awake.npz", tmp_path / "asleep.npz"]
    X = load_data(options(*files, dims="channel,freq", coord=["freq=f"], join="state", log=True, center="state"))
    assert X.dims == ("channel", "freq", "state") and X["state"].values.tolist() == ["awake", "asleep"]
    np.testing.assert_allclose(X.sum("state"), 0, atol=1e-12)


def test_convert_and_select_and_complete(data, capsys):
    code, out, _ = run(capsys, "convert", "data.npy", "--dims", "channel,time,trial", "-o", "data.nc")
    assert code == 0 and boolcp.open_tensor("data.nc").dims == ("channel", "time", "trial")
    code, out, _ = run(capsys, "select", "data.nc", "--max-atoms", 4, "--splits", 6, "-o", "errors.csv")
    assert code == 0 and "3 atoms" in out
    assert [row["is_chosen"] for row in csv.DictReader(open("errors.csv"))] == ["0", "0", "0", "1", "0"]
    gaps = data.X.copy()
    gaps[::3, ::4, ::2] = np.nan
    np.save("gaps.npy", gaps)
    assert run(capsys, "complete", "gaps.npy", "-k", 3, "-o", "full.npy")[0] == 0
    filled = np.load("full.npy")
    observed = np.isfinite(gaps)
    np.testing.assert_array_equal(filled[observed], gaps[observed])
    assert np.sqrt(np.mean((filled - data.clean)[~observed] ** 2)) < 0.1


def test_labels_of_channels_as_text():
    assert label_list("1-3, 7,Fz") == ["1", "2", "3", "7", "Fz"] and label_list("A-1") == ["A-1"]


def interrupt_at(monkeypatch, *places):
    """Make the process get Ctrl-C when a fit has done a step (stage, number), before its callback is asked."""
    tell = Watch.step

    def interrupted(self, state, seen):
        if seen is not None and (seen.stage, seen.step) in places:
            signal.raise_signal(signal.SIGINT)
        return tell(self, state, seen)

    monkeypatch.setattr(Watch, "step", interrupted)


def test_ctrl_c_in_the_pursuit_refines_the_atoms_so_far(data, monkeypatch, capsys):
    interrupt_at(monkeypatch, ("pursuit", 2))
    model = boolcp.BMP(3, background=None, random_state=0)
    assert fit_until_stopped(model, data.X) is True
    assert model.decomposition_.n_atoms == 2 and len(model.history_) == 2
    assert model.decomposition_.explained() > model.path_[-1].explained() + 1e-6
    assert "Stopping: the atoms found so far" in capsys.readouterr().err


def test_the_second_ctrl_c_ends_the_refinement(data, monkeypatch, capsys):
    interrupt_at(monkeypatch, ("pursuit", 2), ("search", 1))
    told = []
    model = boolcp.BMP(3, random_state=0)
    with Stopper():
        model.fit(data.X, callback=lambda progress: told.append((progress.stage, progress.step)) and None)
    assert model.decomposition_.n_atoms == 2 and told == [("pursuit", 1)]
    assert model.decomposition_.explained() >= model.path_[-1].explained() - 1e-12
    assert "the atoms found so far are refined and saved" in capsys.readouterr().err


def test_ctrl_c_in_the_refinement_keeps_what_was_refined(data, monkeypatch):
    searches = []
    search = boolcp.fit.pursuit.greedy_atom_search
    monkeypatch.setattr("boolcp.fit.pursuit.greedy_atom_search", lambda *a, **k: searches.append(1) or search(*a, **k))
    interrupt_at(monkeypatch, ("search", 1))
    model = boolcp.BMP(3, random_state=0)
    assert fit_until_stopped(model, data.X) is True
    assert model.decomposition_.n_atoms == 3 and len(searches) == 3  # the pursuit is not run again
    assert model.decomposition_.explained() > model.path_[-1].explained() + 1e-6


def test_the_third_ctrl_c_interrupts_as_usual(data):
    with Stopper() as stopper, pytest.raises(KeyboardInterrupt):
        for _ in range(2):
            with pytest.raises(Stop):
                signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert stopper.n_asked == 3


def test_a_checkpoint_is_gone_on_from(data, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        interrupt_at(patch, ("pursuit", 2), ("search", 1))
        arguments = ("fit", "data.npy", "-k", 3, "--checkpoint", "steps.npz", "-o")
        code, out, _ = run(capsys, *arguments, "out")
    assert code == INTERRUPTED and "resumes from steps.npz" in out
    searches = []
    search = boolcp.fit.pursuit.greedy_atom_search
    monkeypatch.setattr("boolcp.fit.pursuit.greedy_atom_search", lambda *a, **k: searches.append(1) or search(*a, **k))
    assert run(capsys, *arguments, "out", "--resume", "--force")[0] == 0
    assert len(searches) == 2  # of three: the step that was given up is done again
    assert run(capsys, "fit", "data.npy", "-k", 3, "-o", "whole")[0] == 0
    a, b = (boolcp.load(tmp_path / name / "decomposition.nc") for name in ("out", "whole"))
    np.testing.assert_array_equal(a.to_tensor(), b.to_tensor())
    code, _, err = run(capsys, "fit", "data.npy", "-k", 4, "--checkpoint", "steps.npz", "-o", "other")
    assert code == WRONG_INPUT and "n_atoms (3 there, 4 here)" in err


def test_resuming_needs_a_checkpoint(data, tmp_path, capsys):
    code, _, err = run(capsys, "fit", "data.npy", "--resume", "-o", "out")
    assert code == WRONG_INPUT and "--checkpoint PATH" in err
    code, _, err = run(capsys, "fit", "data.npy", "--resume", "--checkpoint", "none.npz", "-o", "out")
    assert code == WRONG_INPUT and "no such checkpoint" in err and not (tmp_path / "out").exists()


def test_ctrl_c_before_the_first_atom_writes_nothing(data, tmp_path, monkeypatch, capsys):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("boolcp.fit.pursuit.greedy_atom_search", stop)
    with pytest.raises(KeyboardInterrupt):
        fit_until_stopped(boolcp.BMP(3), data.X)
    code, _, err = run(capsys, "fit", "data.npy", "-o", "out")
    assert code == INTERRUPTED and "no result was written" in err
    assert not (tmp_path / "out").exists()


def test_reproduce_calls_the_experiment_and_says_where_it_is(capsys, monkeypatch):
    given = {}

    def reproduce(name, **options):
        given.update(options, name=name)
        return SimpleNamespace(table="fig1.csv", figures=("fig1.svg", "fig1.png"))

    monkeypatch.setattr(boolcp, "experiments", SimpleNamespace(reproduce=reproduce), raising=False)
    code, out, _ = run(capsys, "reproduce", "fig1", "--quick", "--seeds", 2, "-j", 3)
    assert code == 0 and out.split() == ["fig1.csv", "fig1.svg", "fig1.png"]
    assert given == {
        "name": "fig1",
        "quick": True,
        "seeds": 2,
        "out": None,
        "jobs": 3,
        "recording": None,
        "keep": False,
    }


def test_the_handler_of_ctrl_c_is_put_back(data):
    before = signal.getsignal(signal.SIGINT)
    with Stopper():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_real_ctrl_c_leaves_a_valid_result(tmp_path):
    code = textwrap.dedent("""
        import os, signal, sys, numpy as np
        import boolcp.fit.pursuit
        from boolcp.cli import main
        signal.signal(signal.SIGINT, signal.default_int_handler)
        np.save("x.npy", np.random.default_rng(0).standard_normal((10, 11, 12)))
        search, calls = boolcp.fit.pursuit.greedy_atom_search, []
        def search_and_stop(*arguments, **options):
            calls.append(1)
            if len(calls) == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return search(*arguments, **options)
        boolcp.fit.pursuit.greedy_atom_search = search_and_stop
        sys.exit(main(["fit", "x.npy", "-k", "8", "-o", "out"]))
    """)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == INTERRUPTED, done.stderr
    assert "Stopped by Ctrl-C: a valid but partial result, 2 of 8 atoms" in done.stdout
    assert boolcp.load(tmp_path / "out" / "decomposition.nc").n_atoms == 2
    assert load_provenance(tmp_path / "out" / "decomposition.nc")["is_partial"] is True


def test_help_imports_nothing_heavy():
    code = "import sys; from boolcp.cli import main; main(['fit', '--help']); print(sorted(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "boolcp fit" in shown and "Examples" in shown
    for heavy in ("numpy", "scipy", "xarray", "sklearn", "matplotlib", "numba", "pandas"):
        assert f"'{heavy}'" not in shown, heavy


def test_without_typer_the_command_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)
    for name in ("boolcp.cli.commands", "boolcp.cli.data"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    code, _, err = run(capsys, "--help")
    assert code == WRONG_INPUT and "pip install 'boolcp[cli]'" in err


@pytest.mark.slow
def test_the_demo_goes_the_whole_way(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "demo")
    assert code == 0 and out.count("found with 0 wrong bits") == 3 and "The result is in boolcp-demo" in out
    assert boolcp.load("boolcp-demo/decomposition.nc").n_atoms == 3
    assert (tmp_path / "boolcp-demo" / "atoms.png").stat().st_size > 10_000
    assert "boolcp-demo/report.html" in out and (tmp_path / "boolcp-demo" / "report.html").exists()
    command = out.strip().splitlines()[-1].split()
    assert run(capsys, *command[1:])[0] == 0
    first, second = (boolcp.load(f"{folder}/decomposition.nc") for folder in ("boolcp-demo", "result"))
    np.testing.assert_array_equal(first.to_tensor(), second.to_tensor())


def test_in_a_terminal_the_variable_is_asked_for(tmp_path, monkeypatch, rng):
    X = rng.standard_normal((3, 4, 5))
    np.savez(tmp_path / "a.npz", a=X, b=2 * X)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda *arguments, **given: "b")
    np.testing.assert_array_equal(load_data(options(tmp_path / "a.npz")), 2 * X)


@pytest.mark.filterwarnings("default")
def test_warnings_are_shown_without_the_line_of_code(data, capsys):
    np.save("zeros.npy", np.zeros((3, 4, 5)))
    code, _, err = run(capsys, "fit", "zeros.npy", "-k", 1, "-o", "out")
    assert code == 0 and "boolcp: warning: X is zero everywhere: the decomposition has no atoms.\n" in err
    assert ".py" not in err


def test_a_fit_says_how_to_see_pictures_and_a_table_how_to_be_read(data, capsys):
    assert "Plots: boolcp report 'my result'" in run(capsys, "fit", "data.npy", "-k", 1, "-o", "my result")[1]
    Path("table.csv").write_text("1,2\n3,4\n")
    code, _, err = run(capsys, "info", "table.csv")
    assert code == WRONG_INPUT and "np.save('data.npy', array)" in err


def test_the_help_of_each_command_fits_in_its_line(capsys):
    assert "..." not in run(capsys, "--help")[1].partition("Commands:")[2]
