"""The scripts of the paper's figures and theorems, on small tensors: claims hold."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[1] / "reproduction"
pytest.importorskip("matplotlib")
pytest.importorskip("tensorly")
pytestmark = pytest.mark.filterwarnings("ignore::boolcp.DegenerateAtomsWarning")
sys.path.append(str(FOLDER))
fig1, fig2, fig4, tables, theory = (importlib.import_module(n) for n in ("fig1", "fig2", "fig4", "tables", "theory"))
methods = importlib.import_module("methods")


def numbers(script, jobs):
    """Return the table of some jobs."""
    return pd.DataFrame([job | row for job in jobs for row in script.run(job)])


def jobs(names, **shared):
    """Return the jobs of both tasks."""
    return [shared | {"task": task, "seed": 0, "method": m} for task in ("denoise", "complete") for m in names]


def value(table, **where):
    for key, wanted in where.items():
        table = table[table[key] == wanted]
    assert len(table)
    return table["value"].to_numpy()


def test_fig3_is_made_by_its_command(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("BOOLCP_DATA", raising=False)
    importlib.import_module("recordings").data_folder.cache_clear()
    tables.main("fig3", ["-o", str(tmp_path)])
    assert len(tables.read(tmp_path / "fig3.csv")) == 128 and (tmp_path / "fig3.svg").stat().st_size > 1000
    assert "BOOLCP_DATA" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["fig1", "fig2", "fig3", "fig4", "theory"])
def test_quick_is_a_smaller_plan(name):
    script = importlib.import_module(name)
    quick, full = script.plan(quick=True), script.plan()
    assert 0 < len(quick) <= len(full) and list(quick[0]) == list(full[0])


def test_fig1_reaches_the_limit_with_atoms_of_rank_one():
    table, best = numbers(fig1, jobs(methods.NAMES, dataset="Syn0", size=16)), np.sqrt(3 * 31 / 16**3)
    where = {"task": "denoise", "metric": "rmse", "n_atoms": 3}
    errors = {name: value(table, method=name, **where).item() for name in methods.NAMES}
    assert errors[methods.RANK_ONE] < 1.3 * best < errors[methods.PUBLISHED] and errors["CP"] < 2 * best
    assert value(table, method=methods.RANK_ONE, metric="hamming", n_atoms=3) == 0
    assert value(table, method=methods.RANK_ONE, task="complete", metric="rmse_missing", n_atoms=3) < 1e-5
    figure = fig1.draw(table)
    line = next(line for line in figure.axes[0].lines if line.get_label() == "CP")
    np.testing.assert_allclose(line.get_ydata(), value(table, method="CP", task="denoise", metric="rmse"))
    assert len(figure.legends[0].get_texts()) == len(methods.NAMES) + 1


def test_fig2_has_errors_and_parameters():
    names = ("Tucker", "CP", "LFM", methods.BLOCKS)
    table = numbers(fig2, jobs(names, group="simulated", condition="rest", size=16))
    errors = table[table["metric"] == "rmse"].pivot_table(index=["task", "method"], columns="n_atoms", values="value")
    assert (errors[3] < errors[1]).all() and (errors[1] < 1.05).all()  # the recording has variance one
    assert (value(table, method="CP", metric="parameters", n_atoms=3, task="denoise") == 3 * (16 + 150 + 20 - 2)).all()
    assert value(table, method="Tucker", metric="parameters", n_atoms=1, task="denoise").item() == 16 + 150 + 20 - 2
    assert len(fig2.draw(table).axes) == 3


def test_fig4_finds_the_areas_of_the_rhythm():
    table = numbers(fig4, [job for job in fig4.plan(quick=True) if job["condition"] == "rest"])
    wrong = fig4.wrong_bits(table)
    assert wrong["rest", 0, methods.RANK_ONE][1] == 0 < wrong["rest", 0, methods.PUBLISHED][1]
    shown = [ax.get_xlabel() for ax in fig4.draw(table).axes]
    assert f"wrong: {wrong['rest', 0, methods.PUBLISHED][1]}" in shown


@pytest.mark.parametrize("case", [methods.PUBLISHED, theory.PURSUIT, theory.OPTIMUM])
def test_the_gap_falls_and_stays_below_the_bounds(case):
    table = numbers(theory, [{"theorem": "1 and 2", "case": case, "size": 12, "x": 4, "seed": 0}])
    gap = value(table, metric="gap")
    assert np.all(np.diff(gap) < 0)
    for bound in ["bound 1"] + ["bound 2"] * (case != theory.OPTIMUM):
        assert np.all(gap <= value(table, metric=bound))
    mu = value(table, metric="mu")
    assert np.all(mu <= 1) and np.all(mu > 0.4)


@pytest.mark.parametrize("kind", ["fro", 2])
def test_no_atom_descends_further_than_its_bound(rng, kind):
    """All bits of all modes, with a dense block or the best of rank one."""
    R, best = rng.standard_normal((6, 5, 4)), 0.0
    for n, d in enumerate(R.shape):
        Z = np.arange(1, 2**d)[:, None] >> np.arange(d) & 1
        norms = np.linalg.norm(np.tensordot(Z.astype(float), np.moveaxis(R, n, 0), 1), kind, axis=(1, 2))
        best = max(best, float(np.max(norms**2 / Z.sum(axis=1))))
    assert best <= theory.best_descent(R, is_rank_one=kind == 2) * (1 + 1e-9)


@pytest.mark.parametrize("case", theory.CASES)
def test_identifiable_tensors_are_recovered(case):
    table = numbers(theory, [{"theorem": "3", "case": case, "size": 12, "x": 3, "seed": 0}])
    assert case != "both hold" or value(table, method=methods.RANK_ONE) == 1


def test_the_error_falls_with_the_number_of_samples():
    shared = {"theorem": "4", "case": "samples", "size": 12}
    table = numbers(theory, [shared | {"x": x, "seed": seed} for x in (1, 4, 16) for seed in (0, 1)])
    for rows in (theory.error_sweeps(table, method)["samples"] for method in (methods.RANK_ONE, theory.CONVEX)):
        assert theory.slope(rows)[0] == pytest.approx(-1, abs=0.3)
