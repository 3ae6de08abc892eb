import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from boolcp.baselines import RealCP, TuckerForm
from boolcp.datasets import simulate_ecog
from boolcp.experiments import (
    _methods,
    _recordings,
    _table,
    fig1_synthetic,
    fig2_ecog,
    fig3_electrodes,
    fig4_boolean_maps,
    parameters,
    per_mode,
    reproduce,
    theory,
)
from boolcp.experiments._recordings import SIMULATED
from boolcp.experiments._table import collect, seed_of
from boolcp.storage import DenseTensor
from boolcp.trust.identifiability import is_rigid, kruskal_condition


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("BOOLCP_DATA", str(tmp_path / "nothing"))


# the table


def toy_run(job):
    """Leave a trace of each call and yield two rows that depend on the job alone."""
    with open(job["trace"], "a") as file:
        file.write(f"{job['seed']}\n")
    if job["seed"] == 99:
        raise RuntimeError("interrupted")
    rng = np.random.default_rng(seed_of("toy", job["seed"]))
    for k in (1, 2):
        yield {"k": k, "value": rng.standard_normal()}


def toy_plan(trace, seeds):
    return [{"x": 0.5 * seed, "seed": seed, "trace": str(trace)} for seed in seeds]


def test_rows_in_the_file_are_not_computed_again(tmp_path):
    trace, path = tmp_path / "trace", tmp_path / "toy.csv"
    first = collect(toy_run, toy_plan(trace, [0, 1]), path)
    with pytest.raises(RuntimeError, match="interrupted"):
        collect(toy_run, toy_plan(trace, [0, 1, 2, 99]), path)
    table = collect(toy_run, toy_plan(trace, [2, 0, 1, 3]), path)
    assert trace.read_text().split() == ["0", "1", "2", "99", "3"]
    assert list(table["seed"]) == [2, 2, 0, 0, 1, 1, 3, 3]
    pd.testing.assert_frame_equal(table[2:6].reset_index(drop=True), first)
    assert len(collect(toy_run, toy_plan(trace, [1]), path)) == 2  # the others stay in the file
    assert len(pd.read_csv(path)) == 8


def test_rows_of_other_code_are_recomputed_unless_kept(tmp_path):
    trace, path = tmp_path / "trace", tmp_path / "toy.csv"
    plan = toy_plan(trace, [0, 1])
    collect(toy_run, plan, path, code=lambda job: "old")
    table = collect(toy_run, plan, path, code=lambda job: "new" if job["seed"] else "old")
    assert trace.read_text().split() == ["0", "1", "1"]
    assert list(table["code"]) == ["old", "old", "new", "new"]
    collect(toy_run, plan, path, code=lambda job: "newest", keep=True)
    assert trace.read_text().split() == ["0", "1", "1"]
    assert {"commit", "date", "versions"} <= set(table.columns)
    assert table["versions"].str.contains("numpy").all() and table["date"].str.match(r"\d{4}-\d\d-\d\d$").all()


def test_a_fingerprint_follows_the_code_and_not_its_words(tmp_path, monkeypatch):
    """A changed docstring or a changed figure leaves it; a changed number in `run` or in an import does not."""
    package = tmp_path / "boolcp"
    package.mkdir()
    (tmp_path / "toy_experiment.py").write_text('N = 3\nTITLE = "a"\ndef run(job):\n    "Say."\n    return N\n')
    (package / "first.py").write_text("from boolcp.second import y\n")
    (package / "second.py").write_text('"""Words."""\ny = 1\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(_table, "ROOT", package)

    def now():
        for cached in (_table._closure, _table._imports, _table._text, _table._run_of):
            cached.cache_clear()
        return _table.fingerprint("toy_experiment", ("boolcp.first",))

    def change(path, old, new):
        path.write_text(path.read_text().replace(old, new))
        return now()

    before = now()
    assert change(package / "second.py", "Words", "Other words") == before
    assert change(tmp_path / "toy_experiment.py", '"a"', '"b"') == before
    assert change(tmp_path / "toy_experiment.py", "Say", "Tell") == before
    assert change(tmp_path / "toy_experiment.py", "N = 3", "N = 4") != before
    middle = now()
    assert change(package / "second.py", "y = 1", "y = 2") != middle
    for cached in (_table._closure, _table._imports, _table._text, _table._run_of):
        cached.cache_clear()


def test_methods_of_others_do_not_depend_on_the_fit():
    jobs = [{"method": name} for name in ("Tucker", _methods.DEFAULT)]
    tucker, default = (_methods.code_of("boolcp.experiments.fig1_synthetic", job) for job in jobs)
    assert tucker != default
    assert "boolcp.fit.plan" in _table._closure(("boolcp.bmp",))
    assert "boolcp.fit.plan" not in _table._closure(("boolcp.baselines.tucker",))


def test_numbers_do_not_depend_on_the_number_of_jobs(tmp_path):
    plan = [job for job in fig1_synthetic.plan(seeds=1, size=12) if job["dataset"] == "Syn0"]
    plan = [job for job in plan if job["method"] in ("CP", _methods.DEFAULT, "SUSTain")]
    for n_jobs in (1, 2):
        collect(fig1_synthetic.run, plan, tmp_path / f"{n_jobs}.csv", n_jobs=n_jobs)
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()


def test_a_table_of_something_else_is_not_touched(tmp_path):
    path = tmp_path / "toy.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="a different experiment"):
        collect(toy_run, toy_plan(tmp_path / "trace", [0]), path)
    assert path.read_text() == "a,b\n1,2\n"


# Figure 1


@pytest.fixture(scope="module")
def fig1_table(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fig1_synthetic, "QUICK_NUMBERS", (1, 3, 4))
        plan = [job for job in fig1_synthetic.plan(seeds=2, size=24) if job["dataset"] == "Syn0"]
        return collect(fig1_synthetic.run, plan, tmp_path_factory.mktemp("fig1") / "fig1.csv")


def value(table, **where):
    for key, wanted in where.items():
        table = table[table[key] == wanted]
    assert len(table)
    return table["value"]


def test_fig1_has_the_numbers_of_each_method(fig1_table):
    assert set(fig1_table["method"]) == set(fig1_synthetic.METHODS)
    has_bits = set(fig1_table[fig1_table["metric"] == "hamming"]["method"])
    assert has_bits == set(fig1_synthetic.METHODS) - {"CP", "Tucker"}
    counts = fig1_table.groupby(["method", "task", "metric", "n_atoms"]).size()
    assert (counts == 2).all()


def test_fig1_default_reaches_the_limit_at_the_true_number_of_atoms(fig1_table):
    default = {"method": _methods.DEFAULT, "n_atoms": 3}
    assert (value(fig1_table, metric="hamming", **default) == 0).all()
    errors = value(fig1_table, task="denoise", metric="rmse", **default)
    assert errors.max() < 1.15 * fig1_synthetic.limit(24, 3)
    assert value(fig1_table, task="complete", metric="rmse", **default).max() < 1e-5
    assert value(fig1_table, task="complete", metric="rmse_missing", **default).max() < 1e-5


def test_fig1_baselines_are_where_they_must_be(fig1_table):
    def error(method):
        return value(fig1_table, method=method, task="denoise", metric="rmse", n_atoms=3).mean()

    best = fig1_synthetic.limit(24, 3)
    assert best < error("CP") < 2 * best
    assert error("CP") * 0.9 < error("Tucker")
    assert error(_methods.PUBLISHED) > 5 * best  # greedy atoms, weights only
    assert value(fig1_table, method=_methods.PUBLISHED, metric="hamming", n_atoms=3).min() > 0.05


def test_fig1_draws_the_means_of_the_table(fig1_table):
    figure = fig1_synthetic.draw(fig1_table)
    assert len(figure.axes) == 4
    line = next(line for line in figure.axes[0].lines if line.get_label() == "CP")
    rows = fig1_table[(fig1_table["task"] == "denoise") & (fig1_table["metric"] == "rmse")]
    means = rows[rows["method"] == "CP"].groupby("n_atoms")["value"].mean()
    np.testing.assert_allclose(line.get_ydata(), means)
    np.testing.assert_array_equal(line.get_xdata(), means.index)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(figure.legends) == 1 and len(labels) == len(set(labels)) == len(fig1_synthetic.METHODS) + 1


def test_limit_is_the_error_of_least_squares_with_known_bits(rng):
    """Atoms along different modes or with different bits: the parameters are those of a linear model near the truth."""
    d, n_atoms = 12, 2
    assert fig1_synthetic.limit(d, n_atoms) == pytest.approx(np.sqrt(n_atoms * (d + d - 1) / d**3))


def test_the_other_reading_has_three_times_the_atoms():
    assert per_mode.TRUE_ATOMS == {"Syn0 x 3": 9, "Syn1 x 3": 27, "Syn2 x 3": 45}
    job = {"dataset": "Syn0 x 3", "size": 20, "task": "denoise", "seed": 0, "method": "Tucker"}
    rows = pd.DataFrame(per_mode.run(job))
    errors = rows[rows["metric"] == "rmse"].set_index("n_atoms")["value"]
    assert list(errors.index) == [1, 3, 9] and errors[9] < 0.5 * errors[3]


# equal parameters


def test_parameters_are_counted_as_the_dimension_of_the_model(rng):
    """The rank of the Jacobian at a random point is the number of free parameters."""

    def dimension(build, n):
        point = rng.standard_normal(n)
        columns = [(build(point + 1e-5 * e) - build(point - 1e-5 * e)).ravel() for e in np.eye(n)]
        return np.linalg.matrix_rank(np.stack(columns), tol=1e-6)

    shape, rank = (4, 5, 6), 2
    ends = np.cumsum([rank * d for d in shape])

    def factors(x):
        return [part.reshape(-1, rank) for part in np.split(x, ends)[:3]]

    def cp(x):
        return np.einsum("ir,jr,kr->ijk", *factors(x))

    def tucker(x):
        return np.einsum("abc,ia,jb,kc->ijk", x[ends[-1] :].reshape(rank, rank, rank), *factors(x))

    U = factors(rng.standard_normal(ends[-1]))
    W = RealCP(np.ones(rank), U)
    assert parameters.cp_parameters(W) == dimension(cp, ends[-1])
    W = TuckerForm(np.ones((rank,) * 3), U)
    assert parameters.tucker_parameters(W) == dimension(tucker, ends[-1] + rank**3)
    X = rng.standard_normal(shape)
    tensor, n_parameters, _ = parameters.cut(X, 1, rank)
    assert n_parameters == dimension(lambda x: x[:10].reshape(5, 2) @ x[10:].reshape(2, 24), 58)
    assert np.linalg.matrix_rank(DenseTensor(tensor).unfold(1)) == rank
    np.testing.assert_array_equal(parameters.refold(DenseTensor(X).unfold(1), 1, shape), X)


def test_degrees_of_freedom_are_the_trace_of_a_linear_estimate(no_data, monkeypatch):
    def linear(method, X, seed, *, quick):
        yield 1, [(0.3 * X, 5, 7)]

    monkeypatch.setattr(parameters, "candidates", linear)
    job = {"group": "simulated", "condition": "rest", "size": 16, "seed": 0, "method": "Tucker"}
    rows = pd.DataFrame(parameters.run(job)).set_index("metric")["value"]
    assert rows["freedom"] == pytest.approx(0.3 * 16 * 150 * 20, rel=0.02)
    assert rows["parameters"] == 5 and rows["bits"] == 7


def test_equal_parameters_are_drawn_for_every_method(no_data, monkeypatch, tmp_path):
    for name in ("NUMBERS", "PCA_NUMBERS"):
        monkeypatch.setattr(parameters, name, (1, 2))
    plan = [job | {"size": 16} for job in parameters.plan(quick=True)]
    table = collect(parameters.run, plan, tmp_path / "parameters.csv")
    assert set(table["method"]) == set(parameters.METHODS)
    figure = parameters.draw(table)
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert labels == set(parameters.METHODS) and len(figure.axes) == 3


# Figures 2 to 4


def fig2_job(**changes):
    job = {"group": "simulated", "condition": "rest", "size": 16, "task": "denoise", "seed": 0, "method": "Tucker"}
    return job | changes


def test_fig2_numbers(monkeypatch, no_data, tmp_path):
    monkeypatch.setattr(fig2_ecog, "QUICK_NUMBERS", (1, 3))
    methods = ("Tucker", "LFM", _methods.DEFAULT, _methods.PUBLISHED_RANK_ONE)
    plan = [fig2_job(task=task, method=method) for task in fig2_ecog.TASKS for method in methods]
    table = collect(fig2_ecog.run, plan, tmp_path / "fig2.csv")
    assert set(table[table["task"] == "complete"]["metric"]) == {"rmse", "rmse_missing"}
    for task in fig2_ecog.TASKS:
        for method in methods:
            errors = value(table, task=task, method=method, metric="rmse")
            # the recording has variance one: zero atoms are at 1; beside a background more atoms may gain nothing
            assert errors.iloc[1] < (1.02 if method == _methods.DEFAULT else 1) * errors.iloc[0] < 1.05
        default = value(table, task=task, method=_methods.DEFAULT, metric="rmse").iloc[1]
        assert default < value(table, task=task, method=_methods.PUBLISHED_RANK_ONE, metric="rmse").iloc[1]
    figure = fig2_ecog.draw(table)
    assert "BOOLCP_DATA" in figure.get_suptitle()


def test_real_recordings_are_listed_only_where_they_are(no_data, monkeypatch, tmp_path):
    assert {job["group"] for job in fig2_ecog.plan()} == {"simulated"}
    monkeypatch.setenv("BOOLCP_DATA", str(tmp_path))
    assert {job["group"] for job in fig2_ecog.plan()} == {"simulated", "real"}


def test_a_recording_is_read_by_condition(tmp_path, monkeypatch):
    pytest.importorskip("xarray")
    folder = tmp_path / "recording"
    simulate_ecog(n_channels=8, n_trials=3, trial_ms=3000, random_state=0).write_neurotycho(folder)
    plan = fig2_ecog.plan(seeds=1, recording=folder)
    assert {job["condition"] for job in plan} == {"AwakeEyesClosed", "Anesthetized", "RecoveryEyesClosed"}
    monkeypatch.setattr(fig2_ecog, "NUMBERS", (2,))
    job = next(job for job in plan if job["method"] == "Tucker" and job["task"] == "complete")
    rows = list(fig2_ecog.run(job))
    assert [row["metric"] for row in rows] == ["rmse", "rmse_missing"]
    assert 0 < rows[0]["value"] < 1
    X = _recordings.load(job["group"], job["condition"], 128)
    assert dict(X.sizes) == {"channel": 8, "time": 150, "trial": 3}
    np.testing.assert_allclose(X.std(("time", "trial")), 1)


def test_fig3_writes_every_electrode_once(no_data, tmp_path):
    done = reproduce("fig3", quick=True, out=tmp_path)
    table = pd.read_csv(done.table)
    assert list(table["electrode"]) == list(range(1, 129))
    assert table.groupby("area").size().to_dict() == dict(MP=10, LP=18, PM=14, MS=22, PC=16, TC=14, HV=10, LV=24)
    assert [path.suffix for path in done.figures] == [".svg", ".png"]
    assert all(path.stat().st_size > 1000 for path in done.figures)
    before = done.figures[0].read_bytes()
    assert reproduce("fig3", quick=True, out=tmp_path).figures[0].read_bytes() == before
    points = fig3_electrodes.draw(table).axes[0].collections
    assert sum(len(one.get_offsets()) for one in points) == 128


def test_fig4_finds_the_areas_of_the_rhythm(no_data, tmp_path):
    plan = [job for job in fig4_boolean_maps.plan(quick=True) if job["condition"] == "rest"]
    table = collect(fig4_boolean_maps.run, plan, tmp_path / "fig4.csv")
    wrong = fig4_boolean_maps.wrong_bits(table)
    assert wrong["rest", 0, _methods.RANK_ONE][1] == 0
    assert wrong["rest", 0, _methods.PUBLISHED][1] > 0
    figure = fig4_boolean_maps.draw(table)
    colors = figure.axes[0].collections[0].get_facecolors()
    truth = table[(table["method"] == _methods.DEFAULT) & (table["atom"] == "truth")]["value"]
    np.testing.assert_array_equal(colors[:, 2] < 0.5, truth == 1)  # yellow has little blue
    texts = [ax.get_xlabel() for ax in figure.axes]
    assert f"wrong: {wrong['rest', 0, _methods.PUBLISHED][1]}" in texts


def test_fig4_counts_half_of_the_bits_where_there_is_no_atom():
    bits = [("truth", 1), ("truth", 0), ("truth", 0), ("truth", 1)]
    rows = [{"group": SIMULATED, "condition": "rest", "seed": 0, "method": "m", "atom": a, "value": v} for a, v in bits]
    assert fig4_boolean_maps.wrong_bits(pd.DataFrame(rows)) == {("rest", 0, "m"): ("", 2)}
    rows += [dict(rows[0], atom="atom 2", value=value) for value in (1, 0, 0, 0)]
    assert fig4_boolean_maps.wrong_bits(pd.DataFrame(rows)) == {("rest", 0, "m"): ("atom 2", 1)}


# the theorems


@pytest.fixture(scope="module")
def theory_table(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        sweeps = {"samples": (1, 4, 16), "sigma": (0.25, 0.5, 1.0), "atoms": (1, 4), "size": (15, 25)}
        patch.setattr(theory, "SWEEPS", sweeps)
        patch.setattr(theory, "SIZE", 20)
        patch.setattr(theory, "N_CONVEX", 1)
        patch.setattr(theory, "N_ATOMS", (2, 3))
        plan = theory.plan(seeds=2)
        plan = [job | {"size": 20} if job["theorem"] in ("1 and 2", theory.TIME) else job for job in plan]
        return collect(theory.run, plan, tmp_path_factory.mktemp("theory") / "theory.csv")


@pytest.mark.parametrize("method", [_methods.PUBLISHED, _methods.PUBLISHED_RANK_ONE])
def test_the_gap_falls_and_stays_below_the_bounds(method, theory_table):
    for seed in (0, 1):
        rows = {"case": method, "seed": seed}
        gap = value(theory_table, metric="gap", **rows).to_numpy()
        assert np.all(np.diff(gap) < 0)
        for bound in ("bound 1", "bound 2"):
            assert np.all(gap <= value(theory_table, metric=bound, **rows))
        assert 0.5 < value(theory_table, metric="mu", **rows).item() <= 1


def test_the_pursuit_stays_below_the_bound_to_the_optimum_of_eq_3(theory_table):
    for seed in (0, 1):
        rows = {"case": theory.OPTIMUM, "seed": seed}
        gap, bound = (value(theory_table, metric=metric, **rows).to_numpy() for metric in ("gap", "bound 1"))
        assert gap[0] > 0 and np.all(np.diff(gap) < 0) and np.all(gap <= bound)
        assert 0 <= value(theory_table, metric="proved gap of Eq. (3)", **rows).item() <= 1e-3


def test_identifiable_tensors_are_recovered_by_the_default(theory_table):
    both = {"theorem": "3", "case": "both hold", "metric": "recovered"}
    assert (value(theory_table, method=_methods.DEFAULT, **both) == 1).all()
    assert set(theory_table[theory_table["theorem"] == "3"]["case"]) == set(theory.CASES)


@pytest.mark.parametrize("case", theory.CASES)
def test_cases_are_what_they_are_called(case, rng):
    W = theory.draw_case(case, 12, 4, rng)
    Z = np.stack([atom.z for atom in W.atoms], axis=1)
    assert (bool(kruskal_condition(W)), bool(is_rigid(Z))) == theory.CASES[case]


@pytest.mark.parametrize("method", [_methods.DEFAULT, theory.CONVEX])
def test_the_error_scales_as_theorem_4_says(method, theory_table):
    for name, (slope, _) in theory.slopes(theory_table, method).items():
        assert slope == pytest.approx(theory.EXPECTED[name], abs=0.25)


def test_the_figure_of_the_theorems_has_a_slope_for_each_method(theory_table):
    texts = [text.get_text() for ax in theory.draw(theory_table).axes for text in ax.texts]
    assert sum("slope" in text for text in texts) == 8


@pytest.mark.parametrize("k", [0, 3, 10])
def test_intervals_of_rates_leave_a_fortieth_on_each_side(k):
    low, high = theory.interval(np.repeat([1, 0], [k, 10 - k]))
    assert low <= k / 10 <= high
    assert k == 0 or binom.sf(k - 1, 10, low) == pytest.approx(0.025)
    assert k == 10 or binom.cdf(k, 10, high) == pytest.approx(0.025)


def test_run_times_are_measured_for_both_methods(theory_table):
    rows = theory_table[theory_table["theorem"] == theory.TIME]
    assert set(rows["case"]) == {_methods.PUBLISHED, _methods.DEFAULT} and (rows["value"] > 0).all()


# the door


def test_reproduce_says_what_it_does_not_know(tmp_path):
    with pytest.raises(ValueError, match="fig1, per_mode, fig2, parameters, fig3, fig4, theory"):
        reproduce("fig5", out=tmp_path)
    with pytest.raises(ValueError, match="takes no recording"):
        reproduce("fig1", out=tmp_path, recording=tmp_path)


def test_quick_is_a_part_of_the_plan():
    for module in (fig1_synthetic, per_mode, fig2_ecog, parameters, fig4_boolean_maps, theory):
        quick, full = module.plan(quick=True), module.plan()
        assert 0 < len(quick) <= len(full)
        assert list(quick[0]) == list(full[0])
