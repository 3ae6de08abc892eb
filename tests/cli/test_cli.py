"""The command: from files to results, errors in one line, output for scripts, and results that are never lost."""

import csv
import inspect
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from typer.main import get_command

import boolcp
from boolcp import prepare
from boolcp.cli import INTERRUPTED, WRONG_INPUT, main
from boolcp.cli.answers import at_work
from boolcp.cli.commands import app
from boolcp.cli.data import DataOptions, label_list, load_data
from boolcp.cli.fitting import on_ctrl_c
from boolcp.cli.options import ModelOptions
from boolcp.io import load_provenance

DIMS = ("--dims", "channel,time,trial")
EVERY = ("--boolean-modes", "all")
PAGE = '<meta name="generator" content="boolcp 0.1">'  # marks a page of boolcp


@pytest.fixture
def run(capsys):
    """Return a function that runs the command and returns its exit code, its output and its messages."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A tensor whose third atom is on in the trials under a drug, with the table of its trials."""
    monkeypatch.chdir(tmp_path)
    synthetic = boolcp.datasets.make_boolean_cp((8, 9, 16), 3, noise=0.1, random_state=0)
    np.save("data.npy", synthetic.X)
    trial_atom = next(atom for atom in synthetic.truth.atoms if atom.mode == 2)
    table = pd.DataFrame({"drug": np.where(trial_atom.z, "propofol", "none"), "dose": np.arange(16) / 10})
    table.to_csv("trials.csv", index=False)
    return synthetic


@pytest.fixture
def recording(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    coords = {"channel": list("abcd"), "time": np.arange(2000) / 100}
    X = xr.DataArray(rng.standard_normal((4, 2000)), coords, ("channel", "time"))
    X.to_netcdf("rec.nc", engine="h5netcdf")
    table = {"onset": [1.0, 5.0, 9.0], "stop": [2.0, 7.0, 9.5], "go": [1.5, 5.5, 9.2], "cue": ["l", "r", "l"]}
    pd.DataFrame(table).to_csv("events.csv", index=False)
    pd.DataFrame({"channel": ["b"], "trial": [1]}).to_csv("bad.csv", index=False)
    return X, table


def read(*files, **given):
    return load_data(DataOptions([Path(file) for file in files], **given))


# the commands


def test_help(run):
    order = ["demo", "info", "convert", "select", "fit", "report", "export", "transform", "complete"]
    commands = get_command(app).commands
    assert list(commands) == order
    assert "..." not in run("--help")[1].partition("Commands:")[2], "the help of each command fits in its line"
    for kind, names in ((ModelOptions, ("fit", "select", "complete")), (DataOptions, order[2:5])):
        for name in names:
            assert set(inspect.signature(kind).parameters) <= {parameter.name for parameter in commands[name].params}
    out = run("fit", "--help")[1]
    heads = [line for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert heads == ["Arguments:", "Options:", "Model:", "Reading:", "Preparation, in this order:"]
    shown = [run(name, "--help")[1] for name in order]
    assert not [text for text in shown if "<" in text or "list[" in text or "{" in text], "a type in place of a word"


@pytest.mark.parametrize("shell, words", [("bash", "COMP_WORDS"), ("zsh", "_TYPER_COMPLETE_ARGS")])
def test_shells_complete_commands_options_and_values(shell, words):
    code = "from boolcp.cli import run; run()"
    for line, place, found in (("boolcp tr", 1, "transform"), ("boolcp fit x --loss ", 4, "poisson")):
        asked = os.environ | {"_BOOLCP_COMPLETE": f"complete_{shell}", words: line, "COMP_CWORD": str(place)}
        shown = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True, check=True)
        assert found in shown.stdout


def test_help_imports_nothing_heavy():
    code = "import sys; from boolcp.cli import main; main(['fit', '--help']); print(sorted(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "boolcp fit" in shown and "Examples" in shown
    for heavy in ("numpy", "scipy", "xarray", "sklearn", "matplotlib", "pandas"):
        assert f"'{heavy}'" not in shown, heavy


def test_without_typer_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from boolcp.cli import run; run()"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == WRONG_INPUT and found.stderr.startswith("boolcp: the command needs the package 'typer'")


def test_fit_writes_a_result_a_table_and_a_log(data, run):
    code, out, _ = run("fit", "data.npy", "-k", 3, *DIMS, *EVERY, "--trials", "trials.csv", "-o", "my result")
    assert code == 0 and "3 atoms of a 8 channel x 9 time x 16 trial tensor" in out
    assert "Plots: boolcp report 'my result'" in out
    W = boolcp.load("my result/decomposition.nc")
    assert boolcp.metrics.hamming_error(W, data.truth) == 0
    same = boolcp.BMP(3, atom_rank=1, random_state=0).fit(data.X).decomposition_
    np.testing.assert_array_equal(W.to_tensor(), same.to_tensor())
    rows = list(csv.DictReader(open("my result/summary.csv")))
    assert [int(row["n_ones"]) for row in rows] == [atom.n_ones for atom in W.atoms]
    assert '"n_atoms": 3' in Path("my result/fit.log").read_text() and W.labels.extra["drug"][0] == "trial"
    for path in ("my result", "my result/decomposition.nc"):
        code, out, _ = run("info", path)
        assert code == 0 and "3 atoms" in out and "fingerprint" in out and "relative error" in out
    assert "array: 8 x 9 x 16 float64" in run("info", "data.npy")[1]


def test_options_of_the_model_reach_it(data, run):
    given = ModelOptions(boolean_modes="2, channel", atom_rank="block", refine=False, seed=5, max_memory="1GB")
    parameters = given.parameters()
    assert parameters["boolean_modes"] == [2, "channel"] and parameters["atom_rank"] == "block"
    assert parameters["random_state"] == 5 and set(parameters) < set(boolcp.BMP().get_params())
    options = ["--boolean-modes", "2,0", "--atom-rank", 2, "--no-refine", "--seed", 5, "--n-init", 3]
    assert run("fit", "data.npy", "-k", 2, "-o", "out", *options)[0] == 0
    saved = load_provenance("out/decomposition.nc")["parameters"]
    assert saved["boolean_modes"] == [2, 0] and saved["atom_rank"] == 2 and saved["n_init"] == 3
    assert saved["refine"] is False and saved["random_state"] == 5
    np.save("counts.npy", np.random.default_rng(0).poisson(np.abs(data.clean)))
    options = ("-k", 1, "--loss", "poisson", "--nonnegative")
    code, shown, _ = run("fit", "counts.npy", *DIMS, *options, "-o", "poisson")
    assert code == 0 and "of the Poisson deviance explained" in shown
    assert all((factor >= 0).all() for factor in boolcp.load("poisson").factors)


@pytest.mark.parametrize(
    ("given", "is_on"),
    [
        ({"boolean_modes": "trial"}, True),
        ({"boolean_modes": "2"}, True),
        ({"boolean_modes": "trial", "mean": False}, False),
        ({"boolean_modes": "trial", "loss": "poisson"}, False),
        ({"boolean_modes": "trial", "max_memory": "1kB"}, False),  # stays on disk
        ({"boolean_modes": "trial,time"}, False),
        ({"boolean_modes": "channel"}, False),
        ({"boolean_modes": "channel", "mean": True}, True),
        ({"boolean_modes": "all"}, False),
        ({"loss": "poisson"}, False),
        ({}, True),
    ],
)
def test_the_mean_is_fitted_where_trials_are_the_one_boolean_mode(given, is_on, data):
    X = xr.DataArray(np.load("data.npy", mmap_mode="r"), dims=("channel", "time", "trial"))
    assert ModelOptions(**given).parameters(X)["mean"] is is_on
    assert ModelOptions(**given).parameters()["mean"] is bool(given.get("mean"))


@pytest.mark.parametrize(
    ("name", "given", "noise"),
    [
        ("EEG", {"boolean_modes": "trial"}, "separable"),
        ("ECoG", {"boolean_modes": "2", "mean": False}, "separable"),
        ("EEG", {"boolean_modes": "trial", "noise": "white"}, "white"),
        ("MEG", {"boolean_modes": "channel"}, "white"),
        ("EEG", {"boolean_modes": "trial", "loss": "huber"}, "white"),
        ("count", {"boolean_modes": "trial"}, "white"),
        ("count", {"boolean_modes": "trial", "noise": "separable"}, "separable"),
        (None, {"boolean_modes": "trial"}, "white"),
    ],
)
def test_trials_of_voltages_have_a_noise_model(name, given, noise, data):
    X = xr.DataArray(data.X, dims=("channel", "time", "trial"), name=name)
    assert ModelOptions(**given).parameters(X)["noise"] == noise
    gaps = X.where(X < X.max())
    assert ModelOptions(**given).parameters(gaps)["noise"] == given.get("noise", "white")


def test_the_command_says_that_it_whitens_and_fits_the_mean_and_new_trials_are_whitened_alike(data, run):
    xr.DataArray(data.X, dims=("channel", "time", "trial"), name="EEG").to_netcdf("eeg.nc", engine="h5netcdf")
    code, out, err = run("fit", "eeg.nc", "-k", 2, "--boolean-modes", "trial", "-o", "out", "--assess")
    assert code == 0 and "(--noise white leaves it as it is)" in err and "replication" in out
    assert "The mean over trial is fitted apart from the atoms (--no-mean" in err
    W, parameters = boolcp.load("out"), load_provenance("out")["parameters"]
    assert sorted(W.noise.covariances) == [0, 1] and parameters["noise"] == "separable" and parameters["mean"] is True
    assert run("transform", "out", "eeg.nc", "-o", "bits.csv")[0] == 0
    np.testing.assert_array_equal(pd.read_csv("bits.csv")["atom_0"].to_numpy(), W.atoms[0].z)
    options = ("fit", "eeg.nc", "-k", 1, "--boolean-modes", "trial", "--noise", "white", "--no-mean", "-o", "plain")
    err = run(*options)[2]
    assert "whitened" not in err and "mean over" not in err and boolcp.load("plain").noise is None
    assert run("fit", "eeg.nc", "-k", 1, "--noise", "pink", "-o", "x")[0] == WRONG_INPUT


def test_convert_and_select_and_complete(data, run):
    data = boolcp.datasets.make_boolean_cp((12, 14, 16), 3, noise=0.1, random_state=0)
    np.save("data.npy", data.X)
    assert run("convert", "data.npy", *DIMS, "-o", "data.nc")[0] == 0
    assert boolcp.open_tensor("data.nc").dims == ("channel", "time", "trial")
    code, out, _ = run("select", "data.nc", *EVERY, "--max-atoms", 4, "--parts", 4, "-o", "numbers.csv")
    assert code == 0 and "3 atoms" in out and pd.read_csv("numbers.csv")["is_chosen"].tolist()[:3] == [0, 0, 1]
    gaps = data.X.copy()
    gaps[::3, ::4, ::2] = np.nan
    np.save("gaps.npy", gaps)
    assert run("complete", "gaps.npy", "-k", 3, "-o", "full.npy")[0] == 0
    filled, observed = np.load("full.npy"), np.isfinite(gaps)
    np.testing.assert_array_equal(filled[observed], gaps[observed])
    assert np.sqrt(np.mean((filled - data.clean)[~observed] ** 2)) < 0.15


def test_atoms_are_tested_against_columns_and_the_page_has_the_same_numbers(data, run):
    options = (*DIMS, *EVERY, "--trials", "trials.csv", "-k", 3, "--test", "drug", "--test", "dose")
    code, out, _ = run("fit", "data.npy", *options, "-o", "out")
    W = boolcp.load("out/decomposition.nc")
    k = next(k for k, atom in enumerate(W.atoms) if atom.mode == 2)
    known, found = load_provenance("out/decomposition.nc")["tests"], boolcp.compare_conditions(W, "drug")
    assert code == 0 and known["drug"]["p_value"] == found.p_value.tolist() and found.is_significant()[k]
    assert "drug, along trial: " in out and "dose, along trial: a numeric covariate" in out
    assert "tests of each atom: drug p = " in run("info", "out")[1]
    assert run("report", "out")[0] == 0 and "propofol" in Path("out/report.html").read_text(encoding="utf-8")
    shown = json.loads(run("fit", "data.npy", *options, "-o", "2", "--json")[1])
    assert shown["tests"]["drug"]["conditions"] == list(found.conditions)


def test_the_number_of_atoms_can_be_chosen_and_the_result_says_how(data, run):
    code, _, err = run("fit", "data.npy", *DIMS, *EVERY, "-k", "auto", "--n-init", 1, "-o", "out")
    chosen = boolcp.select_n_atoms(data.X, n_init=1, atom_rank=1, random_state=0).n_atoms
    assert code == 0 and boolcp.load("out/decomposition.nc").n_atoms == chosen
    assert f"Number of atoms: {chosen} (the largest number whose atoms come back in 8 fits to halves" in err
    assert "come back in 8 fits" in load_provenance("out/decomposition.nc")["n_atoms_chosen_by"]


def test_output_for_scripts(data, run):
    code, out, err = run("fit", "data.npy", *DIMS, "-k", 3, "-o", "out", "--json")
    values = json.loads(out)
    assert code == 0 and len(values["atoms"]) == 3 and values["dims"] == ["channel", "time", "trial"]
    assert values["explained"] == pytest.approx(boolcp.load("out").explained()) and "8 channel" in err
    values = json.loads(run("select", "data.npy", "--max-atoms", 4, "--parts", 2, "--json", "--n-init", 1)[1])
    assert [row["n_atoms"] for row in values["table"]][:3] == [1, 2, 3]
    assert json.loads(run("info", "out", "--json")[1])["provenance"]["method"] == "BMP"
    assert json.loads(run("info", "data.npy", "--json")[1])["content"] == ["array: 8 x 9 x 16 float64"]
    assert json.loads(run("convert", "data.npy", "-o", "a.nc", "--json")[1])["sizes"]["mode0"] == 8
    data.X[0, 0, :3] = np.nan
    np.save("gaps.npy", data.X)
    assert json.loads(run("complete", "gaps.npy", "-k", 3, "-o", "full.npy", "--json")[1])["n_filled"] == 3


def test_weights_are_a_file(data, run):
    sigma = np.where(np.arange(8) == 0, 30.0, 0.1)
    X = data.clean + sigma[:, None, None] * np.random.default_rng(0).standard_normal(data.X.shape)
    names = [f"E{n}" for n in range(8)]
    xr.DataArray(X, {"channel": names}, ("channel", "time", "trial")).to_netcdf("uneven.nc", engine="h5netcdf")
    weights = xr.DataArray(np.outer(sigma**-2, np.ones(9)), {"channel": names}, ("channel", "time"))
    np.save("weights.npy", np.broadcast_to(weights.values[:, :, None], X.shape))
    weights[::-1].to_netcdf("weights.nc", engine="h5netcdf")
    for name in ("weights.npy", "weights.nc"):
        code = run("fit", "uneven.nc", *EVERY, "-k", 3, "--n-init", 2, "--weights", name, "-o", "out", "--force")[0]
        assert code == 0 and boolcp.metrics.hamming_error(boolcp.load("out"), data.truth) == 0
    assert run("transform", "out", "uneven.nc", "--weights", "weights.nc", "-o", "t.csv")[0] == 0
    np.save("short.npy", np.ones((3, 4, 5)))
    for command, name, words in (
        (("fit", "uneven.nc", "-o", "x"), "no.npy", "no such file"),
        (("fit", "uneven.nc", "-o", "x"), "short.npy", "weights has shape (3, 4, 5)"),
        (("convert", "uneven.nc", "-o", "x.nc"), "weights.nc", "--weights"),
    ):
        code, _, err = run(*command, "--weights", name)
        assert code == WRONG_INPUT and words in err


# new data


def test_new_trials_are_transformed_with_their_labels(data, run):
    model = boolcp.BMP(3, atom_rank=1, random_state=0).fit(data.X[:, :, :12])
    np.save("first.npy", data.X[:, :, :12])
    np.save("later.npy", data.X[:, :, 12:])
    pd.read_csv("trials.csv")[12:].to_csv("later.csv", index=False)
    assert run("fit", "first.npy", *DIMS, *EVERY, "-k", 3, "-o", "out")[0] == 0
    options = (*DIMS, "--trials", "later.csv")
    code, out, err = run("transform", "out", "later.npy", *options, "-o", "rows.csv")
    assert code == 0 and "4 trials, 3 atoms" in out and "warning" not in err
    table = pd.read_csv("rows.csv")
    assert table.columns.tolist() == ["trial", "drug", "dose", "atom_0", "atom_1", "atom_2"]
    np.testing.assert_allclose(table.filter(like="atom"), model.transform(data.X[:, :, 12:], mode=2), rtol=1e-6)
    k = next(k for k in range(3) if model.decomposition_.atoms[k].mode == 2)
    assert set(table[f"atom_{k}"]) <= {0, 1} and (table[f"atom_{k}"] == (table["drug"] == "propofol")).all()
    shown = json.loads(run("transform", "out", "later.npy", *options, "-o", "rows.tsv", "--json")[1])
    assert shown["n_entries"] == 4 and shown["mean"][f"{k}"] == pd.read_table("rows.tsv")[f"atom_{k}"].mean()
    code, _, err = run("transform", "out", "later.npy", *options, "--zscore", "-o", "z.csv")
    assert code == 0 and "prepared differently (z-score per channel) from the fitted data (nothing)" in err


def test_products_of_an_atom_are_columns_not_atoms_and_keep_their_sign(data, run):
    np.save("positive.npy", np.abs(data.X))
    options = ("--boolean-modes", "time", "--atom-rank", 2, "--nonnegative", "-k", 2)
    assert run("fit", "positive.npy", *DIMS, *options, "-o", "out")[0] == 0
    np.save("negative.npy", -np.abs(data.X))
    code, out, _ = run("transform", "out", "negative.npy", *DIMS, "-o", "rows.csv")
    assert code == 0 and "16 trials, 2 atoms in 4 columns\natom 0.0: mean " in out
    columns = pd.read_csv("rows.csv").drop(columns="trial")
    assert list(columns) == [f"atom_{k}.{n}" for k in (0, 1) for n in (0, 1)] and (columns >= 0).all(axis=None)


def test_transform_matches_labels_and_says_what_does_not_fit(data, run):
    X = xr.DataArray(data.X, {"channel": [f"E{n}" for n in range(8)]}, ("channel", "time", "trial"))
    turned = X.isel(channel=slice(None, None, -1)).transpose("trial", "time", "channel")
    for name, part in (("named", X), ("turned", turned), ("fewer", X.isel(channel=slice(7)))):
        part.to_netcdf(f"{name}.nc", engine="h5netcdf")
    assert run("fit", "named.nc", "-k", 3, "-o", "out")[0] == 0
    for name in ("named", "turned"):
        assert run("transform", "out", f"{name}.nc", "-o", f"{name}.csv")[0] == 0
    pd.testing.assert_frame_equal(pd.read_csv("named.csv"), pd.read_csv("turned.csv"))
    assert run("transform", "out", "named.nc", "--mode", "time", "-o", "time.csv")[0] == 0
    assert len(pd.read_csv("time.csv")) == 9
    for arguments, words in (
        (["out", "fewer.nc", "-o", "x.csv"], "The new data differs along mode 'channel': it lacks E7"),
        (["out", "data.npy", "-o", "x.csv"], "must be channel, time, trial"),
        (["out", "named.nc", "-o", "x.txt"], "Use .csv"),
        (["named.nc", "named.nc", "-o", "x.csv"], ""),
    ):
        code, _, err = run("transform", *arguments)
        assert code == WRONG_INPUT and words in err


# reading and preparing


def test_the_steps_of_the_command_are_those_of_the_library(recording):
    X, table = recording
    given = {"drop": ["channel=d"], "reference": "average", "band": "8-13", "envelope": "log", "resample": 50.0}
    given |= {"bin_ms": 1000.0, "n_trials": 10, "zscore": True, "center": "trial"}
    Y = prepare.envelope(prepare.band_pass(prepare.common_average(X[:3]), 8, 13), "log")
    Y = prepare.cut_trials(prepare.resample(Y, 50), 1000, n_trials=10)
    xr.testing.assert_allclose(read("rec.nc", **given), prepare.zscore(Y - Y.mean("trial")))
    given = {"trials": "events.csv", "align": "go", "reject_table": "bad.csv", "baseline": "-0.3,0s", "n_trials": 2}
    Y = prepare.reject(prepare.cut_trials(X, events=table, align="go", n_trials=2), table=pd.read_csv("bad.csv"))
    xr.testing.assert_allclose(read("rec.nc", **given), prepare.baseline(Y, -0.3, 0))
    Y = prepare.cut_trials(X, (-200, 300), events=pd.DataFrame(table).query("cue == 'l'"))
    cut = {"trials": "events.csv", "cut": "cue=l", "reject": 4.5}
    for window in ("-200,300ms", "-0.2,0.3s"):
        xr.testing.assert_allclose(read("rec.nc", **cut, window=window), prepare.reject(Y, peak_to_peak=4.5))
    assert read("rec.nc", trials="events.csv", bin_ms=500).sizes["trial"] == 40
    Path("pairs.csv").write_text("ch_plus,ch_minus\na,c\n")
    Y = read("rec.nc", reference="pairs.csv", bin_ms=20_000).isel(channel=0, trial=0)
    np.testing.assert_array_equal(Y, X.values[0] - X.values[2])


def test_several_files_are_joined(recording, rng):
    X, _ = recording
    for state in ("awake", "asleep"):
        np.savez(f"{state}.npz", psd=rng.uniform(1, 2, (3, 5)), f=np.arange(5.0))
    given = {"dims": "channel,freq", "coord": ["freq=f"], "join": "state", "log": True, "center": "state"}
    Y = read("awake.npz", "asleep.npz", **given)
    assert Y.dims == ("channel", "freq", "state") and Y["state"].values.tolist() == ["awake", "asleep"]
    np.testing.assert_allclose(Y.sum("state"), 0, atol=1e-12)
    (1 + X).to_netcdf("other.nc", engine="h5netcdf")
    pd.DataFrame({"dose": np.arange(8)}).to_csv("doses.csv", index=False)
    Y = read("rec.nc", "other.nc", join="trial", names="before,after", bin_ms=5000, trials="doses.csv")
    assert Y["part"].values.tolist() == ["before"] * 4 + ["after"] * 4 and Y["dose"].values.tolist() == list(range(8))


def test_tables_and_vectors_are_coordinates(data):
    X = read("data.npy", dims=DIMS[1], trials="trials.csv", condition="propofol", n_trials=2)
    assert X.sizes["trial"] == 2 and set(X["drug"].values) == {"propofol"}
    assert X.attrs["preparation"][-1].startswith("select the first 2 of ")
    np.savez("data.npz", data=data.X, cond=np.resize(["a", "b"], 16), other=np.arange(8))
    X = read("data.npz", variable="data", dims=DIMS[1], coord=["area:channel=other", "condition=cond"])
    assert X["area"].dims == ("channel",) and X["condition"].dims == ("trial",)
    assert label_list("1-3, 7,Fz") == ["1", "2", "3", "7", "Fz"] and label_list("A-1") == ["A-1"]


@pytest.mark.filterwarnings("default::boolcp.BoolcpWarning")
def test_a_continuous_recording_gets_a_hint(recording, run):
    code, _, err = run("fit", "rec.nc", "-k", 1, "--n-init", 1, "-o", "out")
    assert code == 0 and "4 channel x 2000 time" in err and "--bin-ms 3000" in err and ".py" not in err
    assert "continuous" not in run("fit", "rec.nc", "-k", 1, "--n-init", 1, "--bin-ms", 500, "-o", "cut")[2]


# errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["data.npy", "-k", "0"], "n_atoms must be at least 1"),
        (["data.npy", "-k", "many"], "--n-atoms takes a number, or auto, got 'many'."),
        (["data.npy", "--boolean-modes", "trial"], "not among the modes"),
        (["data.npy", "--atom-rank", "auto"], "--atom-rank takes a number or block, got 'auto'"),
        (["data.npy", "--band", "8-13"], "needs the mode 'time'"),
        (["data.npy", *DIMS, "--band", "x"], "--band takes two numbers"),
        (["data.npy", *DIMS, "--log"], "--log needs positive entries"),
        (["data.npy", *DIMS, "--center", "state"], "needs the mode 'state'"),
        (["data.npy", "data.npy"], "--join"),
        (["data.npy", "--drop", "63"], "NAME=VALUE"),
        (["data.npy", *DIMS, "--drop", "channel=63"], "has no 63"),
        (["data.npy", *DIMS, "--drop", "channel=0-7"], "nothing is left"),
        (["data.npy", "-o", "data.npy"], "is a file, not a folder"),
        (["data.npy", "--reference", "nothing.csv", *DIMS], "no such file"),
        (["data.npy", "--nonsense"], "--nonsense"),
        (["counts.npy", "--loss", "poisson"], 'loss="poisson" needs entries 0 or larger, but X is -'),
        (["data.npy", *DIMS, "--trials", "trials.csv", "--test", "drag"], "no such column; they have drug, dose."),
        (["data.npy", *DIMS, "--trials", "trials.csv", "--test", "drug", "--blocks", "b"], "--blocks b: the data have"),
        (["rec.nc", "--bin-ms", "500", "--cut", "all", "--trials", "events.csv"], "give one of the two"),
        (["rec.nc", "--cut", "go"], "no events to cut at"),
        (["rec.nc", "--window", "-200,300ms"], "the data have none"),
        (["rec.nc", "--window", "-200,300", "--cut", "all"], "may mean ms or s: write the unit, as in -200,300ms"),
        (["rec.nc", "--baseline", "-0.2,0"], "--baseline -0.2,0 may mean ms or s"),
        (["rec.nc", "--window", "5", "--cut", "all", "--trials", "events.csv"], "--window takes two numbers"),
        (["rec.nc", "--baseline", "x,0"], "--baseline takes two numbers"),
        (["rec.nc", "--n-trials", "3"], "needs the mode 'trial'"),
        (["rec.nc", "--electrodes", "none.csv"], "no such file"),
        (["rec.nc", "rec.nc", "--join", "trial", "--names", "a"], "1 names for 2 files"),
        (["rec.nc", "--condition", "l", "--trials", "events.csv"], "--cut"),
    ],
)
def test_errors_are_one_line_with_exit_code_2(arguments, words, data, recording, run):
    np.save("counts.npy", -np.ones((3, 4, 5)))
    code, out, err = run("fit", *arguments)
    *notes, error = err.splitlines()
    assert code == WRONG_INPUT and words in error and not out and not list(Path().glob("*-boolcp")), err
    assert not any("boolcp:" in line for line in notes)


def test_other_commands_say_what_is_wrong(data, run):
    Path("table.csv").write_text("1,2\n3,4\n")
    for arguments, words in (
        (["complete", "data.npy", "-o", "full.nc"], "nothing to complete"),
        (["convert", "data.npy", "-o", "data.xyz"], "Use .nc or .npy"),
        (["convert", "data.npy", "-o", "data.npy", "--force"], "is also the input file"),
        (["info", "nothing.npy"], "no such file"),
        (["fit", "table.csv", "--dims", "a,b"], "has no 'a'; its columns are 1, 2"),
    ):
        code, _, err = run(*arguments)
        assert code == WRONG_INPUT and words in err, err
    np.testing.assert_array_equal(np.load("data.npy"), data.X)


@pytest.mark.parametrize("arguments", [["-k", "0"], ["--atom-rank", "x"], ["--n-init", "0"], ["-o", "."]])
def test_wrong_parameters_are_found_before_the_data_are_read(arguments, data, run):
    Path("summary.csv").write_text("mine")
    code, _, err = run("fit", "no_such_file.npy", *arguments)
    assert code == WRONG_INPUT and "no such file" not in err


def test_a_bug_is_told_apart(data, run, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("boom")

    monkeypatch.setattr("boolcp.BMP.fit", fail)
    code, _, err = run("fit", "data.npy", "-o", "out")
    assert code == 1 and "unexpected RuntimeError: boom" in err and "--debug" in err
    with pytest.raises(RuntimeError):
        main(["fit", "data.npy", "-o", "out", "--debug"])


# Ctrl-C, and results that are never lost


def test_ctrl_c_leaves_a_valid_result_and_a_checkpoint_to_resume_from(data, run, monkeypatch):
    arguments = ("fit", "data.npy", "-k", 6, "--n-init", 2, "--checkpoint", "steps.npz", "-o")
    fit, steps = boolcp.BMP.fit, itertools.count()

    def press(progress):
        if next(steps) in (1, 2):
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr("boolcp.BMP.fit", lambda *given, **options: fit(*given, callback=press, **options))
        code, out, err = run(*arguments, "out")
    W = boolcp.load("out")
    assert code == INTERRUPTED and f"a valid but partial result, {W.n_atoms} of 6 atoms" in out and 0 < W.n_atoms < 6
    assert "Stopping: the atoms found so far" in err and "resumes from steps.npz" in out
    assert load_provenance("out")["is_partial"] is True
    code, out, _ = run("info", "steps.npz")
    assert code == 0 and "the checkpoint of a fit" in out and "--checkpoint steps.npz" in out and "BMP.resume" in out
    assert run(*arguments, "out", "--force")[0] == 0
    assert run("fit", "data.npy", "-k", 6, "--n-init", 2, "-o", "whole")[0] == 0
    np.testing.assert_array_equal(boolcp.load("out").to_tensor(), boolcp.load("whole").to_tensor())
    code, _, err = run("fit", "data.npy", "-k", 4, "--checkpoint", "steps.npz", "-o", "other")
    assert code == WRONG_INPUT and "n_atoms (6 there, 4 here)" in err


def test_the_third_ctrl_c_interrupts_as_usual(data, run, monkeypatch):
    def fit(self, *arguments, **options):
        for _ in range(3):
            try:
                signal.raise_signal(signal.SIGINT)
            except boolcp.fit.watch.Stop:
                continue

    monkeypatch.setattr(boolcp.BMP, "fit", fit)
    before = signal.getsignal(signal.SIGINT)
    code, _, err = run("fit", "data.npy", "-o", "out")
    assert code == INTERRUPTED and "no result was written" in err and not Path("out").exists()
    assert signal.getsignal(signal.SIGINT) is before
    with on_ctrl_c(signal.SIG_DFL):
        assert signal.getsignal(signal.SIGINT) is not before


def test_tests_that_are_stopped_do_not_cost_the_result(data, run, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("boolcp.assess", stop)
    code, _, err = run("fit", "data.npy", *DIMS, "-k", 2, "-o", "out", "--assess")
    assert code == 0 and "Saved without the assessment" in err and boolcp.load("out/decomposition.nc").n_atoms == 2


def test_long_work_tells_how_far_it_is_where_there_is_no_terminal(capsys, monkeypatch):
    said, end = "", time.monotonic() + 60
    with at_work(every=0.01):
        while not said and time.monotonic() < end:
            said = capsys.readouterr().err
    assert re.match(r"\d+ s: ", said), said
    capsys.readouterr()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    n_threads = threading.active_count()
    with at_work(every=0.01):
        assert threading.active_count() == n_threads
    assert capsys.readouterr().err == ""  # neither afterwards, nor in a terminal


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


@pytest.mark.parametrize("redirection", REDIRECTIONS)
def test_a_closed_or_full_stream_never_costs_a_result(redirection, tmp_path):
    if "/dev/full" in redirection and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    (tmp_path / "small.py").write_text(SMALL)
    command = f"set -o pipefail; {sys.executable} small.py {redirection}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert (tmp_path / "result").read_text() == "complete"
    assert done.returncode == (WRONG_INPUT if redirection == "> /dev/full" else 0), done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_force_replaces_only_what_boolcp_wrote(data, run):
    out = Path("out")
    out.mkdir()
    for name in ("decomposition.nc", "summary.csv", "fit.log"):
        (out / name).write_text("mine")
        code, _, err = run("fit", "data.npy", "-k", 1, "-o", "out", "--force")
        assert code == WRONG_INPUT and "was not written by boolcp" in err and (out / name).read_text() == "mine"
        (out / name).unlink()
    (out / "report.html").write_text("my own page")
    assert run("fit", "data.npy", "-k", 1, "-o", "out")[0] == 0
    code, _, err = run("fit", "data.npy", "-k", 2, "-o", "out")
    assert code == WRONG_INPUT and "exists already" in err and "--force" in err and boolcp.load("out").n_atoms == 1
    code, _, err = run("report", "out", "--force")
    assert code == WRONG_INPUT and "not written by boolcp" in err and (out / "report.html").read_text() == "my own page"
    (out / "report.html").write_text(PAGE)
    assert run("report", "out", "--force")[0] == 0 and "<h1>" in (out / "report.html").read_text()
    assert run("fit", "data.npy", "-k", 2, "-o", "out", "--force")[0] == 0 and boolcp.load("out").n_atoms == 2
    assert not (out / "report.html").exists(), "it was of the result before"


def test_nothing_is_deleted_before_the_new_result_is_safe(data, run, monkeypatch):
    assert run("fit", "data.npy", "-k", 1, "-o", "out")[0] == 0
    Path("out/report.html").write_text(PAGE)
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}

    def fail(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pandas.DataFrame.to_csv", fail)
    assert run("fit", "data.npy", "-k", 2, "-o", "out", "--force")[0] == WRONG_INPUT
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before


def test_the_demo_spares_recordings_that_it_did_not_write(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recording").mkdir()
    (tmp_path / "recording" / "ECoG_ch1.mat").write_text("a real recording")
    code, _, err = run("demo", "-o", ".", "--force")
    assert code == WRONG_INPUT and "not written by boolcp demo" in err
    assert (tmp_path / "recording" / "ECoG_ch1.mat").read_text() == "a real recording"


@pytest.mark.slow
def test_the_demo_goes_the_whole_way(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("demo")
    assert code == 0 and out.count("found with 0 wrong bits") == 3 and "The result is in boolcp-demo" in out
    assert boolcp.load("boolcp-demo/decomposition.nc").n_atoms == 3
    assert "boolcp-demo/report.html" in out and (tmp_path / "boolcp-demo" / "report.html").exists()
    command = out.strip().splitlines()[-1].split()
    assert run(*command[1:])[0] == 0
    first, second = (boolcp.load(f"{folder}/decomposition.nc") for folder in ("boolcp-demo", "result"))
    np.testing.assert_array_equal(first.to_tensor(), second.to_tensor())


def test_a_second_run_with_the_same_folder_is_told_at_once(data, run):
    with boolcp.io.atomic.locked("out"):
        for more in ((), ("--force",)):
            code, out, err = run("fit", "data.npy", "-k", 1, "-o", "out", *more)
            assert code == WRONG_INPUT and "out: is in use by another run" in err and not out
    assert run("fit", "data.npy", "-k", 1, "-o", "new/out")[0] == 0 and os.listdir("new") == ["out"]


def test_labels_are_no_formulas_of_a_spreadsheet(data, run):
    evil = ['=HYPERLINK("x")', "+1+1", "@SUM(A1)", "-2+3", "-0.5", "go", "go\r=1", "\n=1"]
    coords = {"trial": [f"{evil[n % 8]} {n}" for n in range(16)], "=cue": ("trial", np.resize(evil, 16))}
    X = xr.DataArray(data.X, coords, ("-channel", "time", "trial"))
    X.to_netcdf("named.nc", engine="h5netcdf")
    assert run("fit", "named.nc", "-k", 3, "-o", "out")[0] == 0
    assert run("transform", "out", "named.nc", "-o", "rows.csv")[0] == 0
    with open("rows.csv") as file, open("out/summary.csv") as table:
        cells = [cell for row in [*csv.reader(file), *csv.reader(table)] for cell in row]
    is_number = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?").fullmatch
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\n") and not is_number(cell)]
    assert b"\r" not in Path("rows.csv").read_bytes()
    assert {"'=cue", "'+1+1", "-0.5", "go"} <= set(cells)
