"""The command at work: tables of trials, events, new trials, output for scripts, and results that are never lost."""

import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from typer.main import get_command

import boolcp
from boolcp import prepare
from boolcp.cli import WRONG_INPUT, main
from boolcp.cli.answers import at_work
from boolcp.cli.commands import app
from boolcp.cli.data import DataOptions, load_data
from boolcp.cli.options import ModelOptions
from boolcp.fit import watch

DIMS = ("--dims", "channel,time,trial")
PAGE = '<meta name="generator" content="boolcp 0.1">'  # marks a page of boolcp


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A tensor whose third atom is on in the trials under a drug, with the table of its trials."""
    monkeypatch.chdir(tmp_path)
    synthetic = boolcp.datasets.make_boolean_cp((8, 9, 10), 3, noise=0.1, random_state=0)
    np.save("data.npy", synthetic.X)
    trial_atom = next(atom for atom in synthetic.truth.atoms if atom.mode == 2)
    table = pd.DataFrame({"drug": np.where(trial_atom.z, "propofol", "none"), "dose": np.arange(10) / 10})
    table.to_csv("trials.csv", index=False)
    return synthetic


def test_commands_are_listed_in_the_order_of_work():
    names = list(get_command(app).commands)
    order = ["demo", "info", "convert", "select", "fit", "stability", "report", "transform", "complete", "reproduce"]
    assert [name for name in names if name in order] == order


def test_commands_that_fit_take_the_same_options_of_the_model():
    commands = get_command(app).commands
    wanted = set(inspect.signature(ModelOptions).parameters)
    for name in ("fit", "select", "complete", "stability"):
        assert wanted <= {parameter.name for parameter in commands[name].params}, name
    reading = set(inspect.signature(DataOptions).parameters)
    for name in ("fit", "select", "complete", "stability", "convert", "transform"):
        assert reading <= {parameter.name for parameter in commands[name].params}, name


def test_help_is_grouped(capsys):
    code, out, _ = run(capsys, "fit", "--help")
    heads = [line for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert code == 0
    assert sorted(heads) == ["Arguments:", "Model:", "Options:", "Preparation, in this order:", "Reading:"]
    assert out.index("Options:") < out.index("Model:") < out.index("Reading:") < out.index("Preparation, in")


def test_the_table_of_trials_goes_all_the_way(data, capsys):
    options = (*DIMS, "--trials", "trials.csv", "-o", "out")
    assert run(capsys, "fit", "data.npy", "-k", 3, *options)[0] == 0
    W = boolcp.load("out")
    assert W.labels.extra["drug"][0] == W.labels.extra["dose"][0] == "trial"
    means = boolcp.plotting.condition_means(W, "trial", "drug")
    k = next(k for k in range(3) if W.atoms[k].mode == 2)
    assert dict(zip(means.conditions, means.mean[k], strict=True)) == {"propofol": 1.0, "none": 0.0}
    X = load_data(DataOptions([Path("data.npy")], dims=DIMS[1], trials="trials.csv", condition="propofol"))
    assert 0 < X.sizes["trial"] < 10 and set(X["drug"].values) == {"propofol"}


def test_the_first_trials_are_noted_as_such(data):
    X = load_data(DataOptions([Path("data.npy")], dims=DIMS[1], n_trials=4))
    assert X.sizes["trial"] == 4 and X.attrs["preparation"] == ["select the first 4 of 10 trials"]
    assert "preparation" not in load_data(DataOptions([Path("data.npy")], dims=DIMS[1], n_trials=10)).attrs


def test_atoms_are_tested_against_columns_and_the_page_has_the_same_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, _, truth = boolcp.datasets.make_boolean_cp((8, 9, 30), 3, noise=0.1, random_state=0)
    np.save("data.npy", X)
    z = next(atom.z for atom in truth.atoms if atom.mode == 2)
    table = pd.DataFrame({"drug": np.where(z, "propofol", "none"), "dose": np.arange(30) / 10})
    table.to_csv("trials.csv", index=False)
    options = (*DIMS, "--trials", "trials.csv", "-k", 3)
    code, out, _ = run(capsys, "fit", "data.npy", *options, "-o", "out", "--test", "drug", "--test", "dose")
    W = boolcp.load("out/decomposition.nc")
    k = next(k for k, atom in enumerate(W.atoms) if atom.mode == 2)
    known = boolcp.io.load_provenance("out/decomposition.nc")["tests"]
    found = boolcp.test_conditions(W, "drug")
    assert code == 0 and known["drug"]["p_value"] == found.p_value.tolist() and found.is_significant()[k]
    assert "drug, along trial: " in out and "dose, along trial: a numeric covariate" in out
    assert "tests of each atom: drug p = " in run(capsys, "info", "out")[1]
    run(capsys, "report", "out")
    assert known["drug"]["p_adjusted"][k] < 0.001
    page = Path("out/report.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    assert f"all {z.sum()} propofol trials, and no others (p &lt; 0.001)" in page
    shown = json.loads(run(capsys, "fit", "data.npy", *options, "-o", "2", "--test", "drug", "--json")[1])
    assert shown["tests"]["drug"]["conditions"] == list(found.conditions)


def test_what_cannot_be_tested_is_said_before_the_fit(data, capsys, monkeypatch):
    monkeypatch.setattr(boolcp.BMP, "fit", lambda *_, **__: pytest.fail("fitted"))
    table = pd.read_csv("trials.csv")
    table.assign(side="left", run=np.arange(10), drug_run=table["drug"]).to_csv("trials.csv", index=False)
    options = ("fit", "data.npy", *DIMS, "--trials", "trials.csv", "-o", "out")
    for arguments, words in (
        (["--test", "drag"], "--test drag: the data have no such column; they have drug, dose, side, run, drug_run."),
        (["--test", "side"], "--test side: labels has only one value"),
        (["--test", "drug", "--blocks", "block"], "--blocks block: the data have no such column"),
        (["--test", "drug", "--blocks", "drug_run"], "--test drug: labels do not differ within any of the blocks"),
    ):
        code, _, err = run(capsys, *options, *arguments)
        assert code == WRONG_INPUT and words in err and not Path("out").exists()


def test_the_number_of_atoms_can_be_chosen_and_the_result_says_how(data, capsys, monkeypatch):
    select = partial(boolcp.select_n_atoms, splits=2)
    monkeypatch.setattr("boolcp.cli.fitting.select_n_atoms", select)
    options = ("--n-init", 1, "--atom-rank", 1, "-o", "out")
    code, out, err = run(capsys, "fit", "data.npy", *DIMS, "-k", "auto", *options)
    chosen = select(data.X, n_init=1, atom_rank=1, random_state=0).n_atoms
    assert code == 0 and boolcp.load("out/decomposition.nc").n_atoms == chosen
    assert f"Number of atoms: {chosen} (error on held-out entries, rule one-se, 0 to 10 atoms tried" in err
    assert "held-out entries" in boolcp.io.load_provenance("out/decomposition.nc")["n_atoms_chosen_by"]
    code, out, err = run(capsys, "fit", "data.npy", "-k", "many")
    assert code == WRONG_INPUT and not out and "--n-atoms takes a number, or auto, got 'many'." in err


def test_stability_is_that_of_the_library(data, capsys):
    run(capsys, "fit", "data.npy", *DIMS, "-k", 3, "-o", "out")
    found = boolcp.stability(data.X, 3, reference=boolcp.load("out/decomposition.nc"), n_runs=2, random_state=0)
    options = ("data.npy", *DIMS, "--result", "out", "--runs", 2, "-o", "stability.csv")
    code, out, _ = run(capsys, "stability", *options)
    table = pd.read_csv("stability.csv")
    assert code == 0 and "stability over 4 fits to halves along trial" in out
    assert table["stability"].tolist() == pytest.approx(found.recurrence.tolist())
    shown = json.loads(run(capsys, "stability", *options, "--scheme", "seeds", "--force", "--json")[1])
    assert shown["scheme"] == "seeds" and [row["atom"] for row in shown["table"]] == [0, 1, 2]


def test_stability_fits_as_the_result_was_fitted(data, capsys):
    run(capsys, "fit", "data.npy", *DIMS, "-k", 2, "--boolean-modes", "trial", "--background", "none", "-o", "out")
    W, how = boolcp.load("out/decomposition.nc"), {"n_runs": 2, "random_state": 0}
    own = {"boolean_modes": [2], "background": None, "atom_rank": "auto"}
    found = boolcp.stability(data.X, 2, reference=W, **own, **how)
    options = ("data.npy", *DIMS, "--result", "out", "--runs", 2, "-o", "stability.csv")
    assert run(capsys, "stability", *options)[0] == 0
    assert pd.read_csv("stability.csv")["similarity"].tolist() == pytest.approx(found.similarity.mean(axis=0).tolist())
    other = boolcp.stability(data.X, 2, reference=W, **own | {"boolean_modes": [0]}, **how)
    assert run(capsys, "stability", *options, "--boolean-modes", "channel", "--force")[0] == 0
    assert pd.read_csv("stability.csv")["similarity"].tolist() == pytest.approx(other.similarity.mean(axis=0).tolist())


def test_tests_that_fail_or_are_stopped_do_not_cost_the_result(data, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("boolcp.cli.fitting.assess", stop)
    code, _, err = run(capsys, "fit", "data.npy", *DIMS, "-k", 2, "-o", "out", "--assess")
    assert code == 0 and "Saved without the tests" in err and boolcp.load("out/decomposition.nc").n_atoms == 2


def test_a_vector_of_labels_is_a_coordinate(data, capsys):
    np.savez("data.npz", data=data.X, cond=np.resize(["a", "b"], 10), other=np.arange(8))
    assert (
        run(capsys, "fit", "data.npz", *DIMS, "-v", "data", "--coord", "condition=cond", "-k", 1, "-o", "out")[0] == 0
    )
    assert boolcp.load("out").labels.extra["condition"][0] == "trial"
    X = load_data(DataOptions([Path("data.npz")], variable="data", dims=DIMS[1], coord=["area:channel=other"]))
    assert X["area"].dims == ("channel",)


@pytest.fixture
def recording(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    time = np.arange(2000) / 100
    X = xr.DataArray(rng.standard_normal((4, 2000)), {"channel": list("abcd"), "time": time}, ("channel", "time"))
    X.to_netcdf("rec.nc", engine="h5netcdf")
    table = {"onset": [1.0, 5.0, 9.0], "stop": [2.0, 7.0, 9.5], "go": [1.5, 5.5, 9.2], "cue": ["l", "r", "l"]}
    pd.DataFrame(table).to_csv("events.csv", index=False)
    pd.DataFrame({"channel": ["b"], "trial": [1]}).to_csv("bad.csv", index=False)
    return X, table


def test_cutting_at_events_and_rejecting_are_those_of_the_library(recording):
    X, table = recording
    options = {"trials": "events.csv", "align": "go", "reject_table": "bad.csv", "baseline": "-0.3,0", "n_trials": 2}
    Y = prepare.reject(prepare.cut_trials(X, events=table, align="go", n_trials=2), table=pd.read_csv("bad.csv"))
    xr.testing.assert_allclose(load_data(DataOptions([Path("rec.nc")], **options)), prepare.baseline(Y, -0.3, 0))
    options = {"trials": "events.csv", "window": "-200,300", "cut": "cue=l", "reject": 4.5}
    Y = prepare.cut_trials(X, (-200, 300), events=pd.DataFrame(table).query("cue == 'l'"))
    xr.testing.assert_allclose(load_data(DataOptions([Path("rec.nc")], **options)), prepare.reject(Y, peak_to_peak=4.5))
    bins = load_data(DataOptions([Path("rec.nc")], trials="events.csv", bin_ms=500))
    assert bins.sizes["trial"] == 40


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bin-ms", "500", "--cut", "all", "--trials", "events.csv"], "give one of the two"),
        (["--cut", "go"], "no events to cut at"),
        (["--window", "-200,300"], "the data have none"),
        (["--window", "5", "--cut", "all", "--trials", "events.csv"], "--window takes two numbers"),
        (["--window", "a,b", "--cut", "all", "--trials", "events.csv"], "--window takes two numbers"),
        (["--baseline", "x,0"], "--baseline takes two numbers"),
        (["--background", "foo"], "--background takes auto, none or a number, got 'foo'"),
        (["--atom-rank", "x"], "--atom-rank takes auto, block or a number"),
        (["--n-trials", "3"], "needs a mode 'trial'"),
        (["--electrodes", "none.csv"], "no such file"),
        (["--trials", "none.csv"], "no such file"),
        (["--dims", "channel,trial,time", "--trials", "events.csv"], "3 modes|3 names"),
        (["rec.nc", "--join", "trial", "--names", "a"], "1 names for 2 files"),
        (["--condition", "l", "--trials", "events.csv"], "--cut"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments, words, recording, capsys):
    code, _, err = run(capsys, "fit", "rec.nc", "-k", 1, "-o", "out", *arguments)
    assert code == WRONG_INPUT and re.search(words, err.splitlines()[-1]), err


def test_times_may_name_their_unit(recording):
    cut = {"trials": "events.csv", "window": "-200,300"}
    X = load_data(DataOptions([Path("rec.nc")], **cut))
    for window in ("-200,300ms", "-0.2,0.3s"):
        xr.testing.assert_allclose(load_data(DataOptions([Path("rec.nc")], **cut | {"window": window})), X)
    X = load_data(DataOptions([Path("rec.nc")], **cut, baseline="-0.2,0"))
    for baseline in ("-0.2,0s", "-200,0ms"):
        xr.testing.assert_allclose(load_data(DataOptions([Path("rec.nc")], **cut, baseline=baseline)), X)


def test_a_checkpoint_is_recognized(data, capsys):
    assert run(capsys, "fit", "data.npy", "-k", 1, "-o", "out", "--checkpoint", "c.ckpt")[0] == 0
    code, out, _ = run(capsys, "info", "c.ckpt")
    assert code == 0 and "the checkpoint of a fit" in out and "--checkpoint c.ckpt" in out and "BMP.resume" in out


def test_files_are_joined_under_given_names_and_one_table(recording, capsys):
    X, _ = recording
    (1 + X).to_netcdf("other.nc", engine="h5netcdf")
    pd.DataFrame({"dose": np.arange(8)}).to_csv("doses.csv", index=False)
    options = {"join": "trial", "names": "before,after", "bin_ms": 5000, "trials": "doses.csv"}
    Y = load_data(DataOptions([Path("rec.nc"), Path("other.nc")], **options))
    assert Y["part"].values.tolist() == ["before"] * 4 + ["after"] * 4 and Y["dose"].values.tolist() == list(range(8))


@pytest.mark.filterwarnings("default::boolcp.BoolcpWarning")
def test_a_continuous_recording_gets_a_hint_before_the_fit(recording, capsys, monkeypatch):
    monkeypatch.setattr("boolcp.cli.fitting.fit_until_stopped", lambda *a, **k: sys.exit(7))
    code, _, err = run(capsys, "fit", "rec.nc", "-o", "out")
    assert code == 7 and "4 channel x 2000 time" in err and "--bin-ms 3000" in err
    code, _, err = run(capsys, "fit", "rec.nc", "--bin-ms", 500, "-o", "out")
    assert code == 7 and "warning" not in err


def test_new_trials_are_transformed_with_their_labels(data, capsys):
    model = boolcp.BMP(3, random_state=0).fit(data.X[:, :, :7])
    np.save("first.npy", data.X[:, :, :7])
    np.save("later.npy", data.X[:, :, 7:])
    pd.read_csv("trials.csv")[7:].to_csv("later.csv", index=False)
    assert run(capsys, "fit", "first.npy", *DIMS, "-k", 3, "-o", "out")[0] == 0
    options = (*DIMS, "--trials", "later.csv")
    code, out, err = run(capsys, "transform", "out", "later.npy", *options, "-o", "rows.csv")
    assert code == 0 and "3 trials, 3 atoms" in out and "warning" not in err
    table = pd.read_csv("rows.csv")
    assert table.columns.tolist() == ["trial", "drug", "dose", "atom_0", "atom_1", "atom_2"]
    np.testing.assert_allclose(table.filter(like="atom"), model.transform(data.X[:, :, 7:], mode=2), rtol=1e-6)
    k = next(k for k in range(3) if model.decomposition_.atoms[k].mode == 2)
    assert set(table[f"atom_{k}"]) <= {0, 1} and (table[f"atom_{k}"] == (table["drug"] == "propofol")).all()
    assert run(capsys, "transform", "out", "later.npy", *options, "-o", "rows.nc", "--json")[0] == 0
    rows = xr.load_dataarray("rows.nc")
    assert rows.dims == ("trial", "atom") and rows["drug"].dims == ("trial",) and rows.shape == (3, 3)
    code, _, err = run(capsys, "transform", "out", "later.npy", *options, "--zscore", "-o", "z.csv")
    assert code == 0 and "prepared differently (z-score per channel) from those of the fit (nothing)" in err


def test_products_of_an_atom_are_columns_not_atoms(data, capsys):
    options = ("--boolean-modes", "time", "--atom-rank", 2, "--background", "none", "-k", 2)
    assert run(capsys, "fit", "data.npy", *DIMS, *options, "-o", "out")[0] == 0
    code, out, _ = run(capsys, "transform", "out", "data.npy", *DIMS, "-o", "rows.csv")
    assert code == 0 and "10 trials, 2 atoms in 4 columns\natom 0.0: mean " in out
    assert [name for name in pd.read_csv("rows.csv") if name != "trial"] == [
        f"atom_{k}.{n}" for k in (0, 1) for n in (0, 1)
    ]


def test_transform_matches_labels_and_says_what_does_not_fit(data, capsys):
    channels = [f"E{n}" for n in range(8)]
    X = xr.DataArray(data.X, {"channel": channels}, ("channel", "time", "trial"))
    X.to_netcdf("named.nc", engine="h5netcdf")
    X.isel(channel=slice(None, None, -1)).transpose("trial", "time", "channel").to_netcdf(
        "turned.nc", engine="h5netcdf"
    )
    X.isel(channel=slice(7)).to_netcdf("fewer.nc", engine="h5netcdf")
    assert run(capsys, "fit", "named.nc", "-k", 3, "-o", "out")[0] == 0
    for name in ("named", "turned"):
        assert run(capsys, "transform", "out", f"{name}.nc", "-o", f"{name}.csv")[0] == 0
    pd.testing.assert_frame_equal(pd.read_csv("named.csv"), pd.read_csv("turned.csv"))
    code, _, err = run(capsys, "transform", "out", "fewer.nc", "-o", "rows.csv")
    assert code == WRONG_INPUT and "lack E7 along 'channel'" in err
    assert run(capsys, "transform", "out", "named.nc", "--mode", "time", "-o", "time.csv")[0] == 0
    assert len(pd.read_csv("time.csv")) == 9
    for arguments, words in (
        (["out", "named.nc", "-o", "x.txt"], "Use .csv"),
        (["named.nc", "named.nc", "-o", "x.csv"], ""),
    ):
        code, _, err = run(capsys, "transform", *arguments)
        assert code == WRONG_INPUT and words in err


@pytest.mark.filterwarnings("default::boolcp.BoolcpWarning")
def test_output_for_scripts(data, capsys):
    code, out, err = run(capsys, "fit", "data.npy", *DIMS, "-k", 3, "-o", "out", "--json")
    values = json.loads(out)
    assert code == 0 and len(values["atoms"]) == 3 and values["dims"] == ["channel", "time", "trial"]
    assert values["explained"] == pytest.approx(boolcp.load("out").explained()) and "8 channel" in err
    values = json.loads(run(capsys, "select", "data.npy", "--max-atoms", 2, "--splits", 2, "--json", "--n-init", 1)[1])
    assert [row["n_atoms"] for row in values["table"]] == [0, 1, 2]
    assert json.loads(run(capsys, "info", "out", "--json")[1])["provenance"]["method"] == "BMP"
    assert json.loads(run(capsys, "info", "data.npy", "--json")[1])["content"] == ["array: 8 x 9 x 10 float64"]
    assert json.loads(run(capsys, "convert", "data.npy", "-o", "a.nc", "--json")[1])["sizes"]["mode0"] == 8
    gaps = data.X.copy()
    gaps[0, 0, :3] = np.nan
    np.save("gaps.npy", gaps)
    out = run(capsys, "complete", "gaps.npy", "-k", 3, "-o", "full.npy", "--json", "--boolean-modes", "2,1,0")[1]
    assert json.loads(out)["n_filled"] == 3


def test_the_options_of_the_model_reach_select_and_complete(data, capsys, monkeypatch):
    given = {}

    def select_n_atoms(X, **options):
        given.update(options)
        raise ValueError("seen")

    monkeypatch.setattr("boolcp.cli.testing.select_n_atoms", select_n_atoms)
    options = ["--boolean-modes", "trial", "--atom-rank", "block", "--no-refine", "--seed", 5]
    run(capsys, "select", "data.npy", *DIMS, *options)
    assert given["boolean_modes"] == ["trial"] and given["atom_rank"] is None and given["refine"] is False
    assert given["random_state"] == 5


@pytest.mark.parametrize("arguments", [["-k", "0"], ["--atom-rank", "x"], ["--n-init", "0"]])
def test_wrong_parameters_are_found_before_the_data_are_read(arguments, data, capsys, monkeypatch):
    monkeypatch.setattr("boolcp.cli.fitting.load_data", lambda options: pytest.fail("the data were read"))
    assert run(capsys, "fit", "data.npy", "-o", "out", *arguments)[0] == WRONG_INPUT


def test_long_work_tells_how_far_it_is_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(watch.PRESENT, "part", "1 of 2 splits done")
    monkeypatch.setattr(watch.PRESENT, "seen", watch.Progress("search", 3, 40, 0.5))
    said, end = "", time.monotonic() + 60
    with at_work(every=0.01):
        while not said and time.monotonic() < end:
            said = capsys.readouterr().err
    assert re.match(r"\d+ s: 1 of 2 splits done, search 3 of 40, relative error 0.5\n", said), said
    capsys.readouterr()
    boolcp.BMP(2, random_state=0).fit(boolcp.datasets.make_boolean_cp((6, 7, 8), 2, random_state=0).X)
    assert watch.PRESENT.seen is None and str(watch.PRESENT) == "1 of 2 splits done"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    n_threads = threading.active_count()
    with at_work(every=0.01):
        assert threading.active_count() == n_threads
    assert capsys.readouterr().err == ""  # neither afterwards, nor in a terminal


# results are never lost


REDIRECTIONS = ["| true", "2>&- ", ">&- 2>&-", "2>&1 | true", "> /dev/full", "<&- >&- 2>&-", "2> /dev/full"]
SMALL = """
from boolcp.cli import run
import boolcp.cli, sys
def main():
    file = open("result", "w")  # would get the number of a closed stream
    for _ in range(3):
        print("x" * 100_000)
        print("x" * 100_000, file=sys.stderr, flush=True)
    file.write("complete")
    return 0
boolcp.cli.main = main
run()
"""


def start(command, cwd):
    """Run a command of the shell in a folder, `python` as this one."""
    text = f"set -o pipefail; {command}".replace("python", sys.executable, 1)
    return subprocess.run(["bash", "-c", text], cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("redirection", REDIRECTIONS)
def test_a_closed_or_full_stream_never_costs_a_result(redirection, tmp_path):
    if "/dev/full" in redirection and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    (tmp_path / "small.py").write_text(SMALL)
    done = start(f"python small.py {redirection}", tmp_path)
    assert (tmp_path / "result").read_text() == "complete"
    assert done.returncode == (WRONG_INPUT if redirection == "> /dev/full" else 0), done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("redirection", REDIRECTIONS)
def test_a_closed_or_full_stream_never_costs_a_fit(redirection, data, tmp_path):
    done = start(f"python -m boolcp fit data.npy -k 2 -o out {redirection}", tmp_path)
    assert boolcp.load(tmp_path / "out").n_atoms == 2
    assert sorted(os.listdir(tmp_path / "out")) == ["decomposition.nc", "fit.log", "summary.csv"]
    assert done.returncode == (WRONG_INPUT if redirection == "> /dev/full" else 0), done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_force_replaces_only_what_boolcp_wrote(data, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("decomposition.nc", "summary.csv", "fit.log"):
        (out / name).write_text("mine")
        code, _, err = run(capsys, "fit", "data.npy", "-k", 1, "-o", "out", "--force")
        assert code == WRONG_INPUT and "was not written by boolcp" in err and (out / name).read_text() == "mine"
        (out / name).unlink()
    (out / "report.html").write_text("my own page")
    (out / "notes.txt").write_text("mine")
    assert run(capsys, "fit", "data.npy", "-k", 1, "-o", "out", "--force")[0] == 0
    assert (out / "report.html").read_text() == "my own page" and (out / "notes.txt").exists()
    code, _, err = run(capsys, "report", "out", "--force")
    assert code == WRONG_INPUT and "was not written by boolcp" in err
    (out / "report.html").write_text(PAGE)
    assert run(capsys, "report", "out", "--force")[0] == 0 and "<h1>" in (out / "report.html").read_text()
    assert run(capsys, "fit", "data.npy", "-k", 2, "-o", "out", "--force")[0] == 0
    assert not (out / "report.html").exists(), "it was of the result before"


def test_nothing_is_deleted_before_the_new_result_is_safe(data, tmp_path, capsys, monkeypatch):
    assert run(capsys, "fit", "data.npy", "-k", 1, "-o", "out")[0] == 0
    (tmp_path / "out" / "report.html").write_text(PAGE)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    def fail(*arguments, **options):
        raise OSError(28, "No space left on device")

    for name in ("boolcp.io.results.atomic.write_bytes", "pandas.DataFrame.to_csv"):
        with monkeypatch.context() as patch:
            patch.setattr(name, fail)
            assert run(capsys, "fit", "data.npy", "-k", 2, "-o", "out", "--force")[0] == WRONG_INPUT
        assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_what_is_read_is_not_overwritten(data, tmp_path, capsys):
    before = (tmp_path / "data.npy").read_bytes()
    for command in ("convert", "complete"):
        code, _, err = run(capsys, command, "data.npy", "-o", "data.npy", "--force")
        assert code == WRONG_INPUT and "is also the input file" in err
    assert (tmp_path / "data.npy").read_bytes() == before


def test_the_demo_spares_recordings_that_it_did_not_write(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recording").mkdir()
    (tmp_path / "recording" / "ECoG_ch1.mat").write_text("a real recording")
    code, _, err = run(capsys, "demo", "-o", ".", "--force")
    assert code == WRONG_INPUT and "not written by boolcp demo" in err
    assert (tmp_path / "recording" / "ECoG_ch1.mat").read_text() == "a real recording"


@pytest.mark.filterwarnings("default::boolcp.BoolcpWarning")
def test_weights_are_a_mode_or_a_file(data, capsys):
    sigma = np.where(np.arange(8) == 0, 30.0, 0.1)
    X = data.clean + sigma[:, None, None] * np.random.default_rng(0).standard_normal(data.X.shape)
    np.save("uneven.npy", X)
    np.save("weights.npy", np.broadcast_to((sigma**-2)[:, None, None], X.shape))
    for name, weights in (("channel", "channel"), ("file", "weights.npy")):
        assert run(capsys, "fit", "uneven.npy", *DIMS, "-k", 3, "--n-init", 2, "--weights", weights, "-o", name)[0] == 0
        assert boolcp.metrics.hamming_error(boolcp.load(f"{name}/decomposition.nc"), data.truth) == 0
    given = boolcp.load("file/decomposition.nc")
    fitted = boolcp.decompose(X, 3, weights=np.load("weights.npy"), n_init=2, random_state=0)
    np.testing.assert_allclose(given.to_tensor(), fitted.to_tensor(), atol=1e-12)
    assert run(capsys, "select", "uneven.npy", *DIMS, "--max-atoms", 1, "--splits", 1, "--weights", "0")[0] == 0
    code = run(capsys, "transform", "file", "uneven.npy", *DIMS, "--weights", "weights.npy", "-o", "t.csv")[0]
    assert code == 0
    code, _, shown = run(capsys, "fit", "uneven.npy", *DIMS, "-k", 3, "--weights", "no", "-o", "other")
    assert code == WRONG_INPUT and "no such file, and no mode of the data (channel, time, trial)" in shown
    for command in (("stability",), ("convert", "-o", "x.nc"), ("fit", "--assess", "-o", "other")):
        code, _, shown = run(capsys, command[0], "uneven.npy", *command[1:], *DIMS, "--weights", "channel")
        assert code == WRONG_INPUT and "--weights" in shown


def test_losses_and_nonnegative_parts_are_options(data, capsys):
    np.save("counts.npy", np.random.default_rng(0).poisson(np.abs(data.clean)))
    options = ("-k", 1, "--loss", "poisson", "--nonnegative")
    code, shown, _ = run(capsys, "fit", "counts.npy", *DIMS, *options, "-o", "poisson")
    assert code == 0 and "of the Poisson deviance explained" in shown
    W = boolcp.load("poisson/decomposition.nc")
    assert W.deviance.loss == "poisson" and all((factor >= 0).all() for factor in W.factors)
    code, _, shown = run(capsys, "fit", "data.npy", *DIMS, *options, "-o", "other")
    assert code == WRONG_INPUT and 'loss="poisson" needs entries 0 or larger, but X is -' in shown
