"""Theorems 1 to 4, measured: bounds along the path, recovery against identifiability, error against sample size, time.

Theorems 1, 2 and 4 are about the solution of Eq. (3), which `AtomicNorm` computes.
"""

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import style
from methods import BLOCKS, PUBLISHED, RANK_ONE, make
from scipy.stats import beta
from tables import main, seed_of
from tables import table as as_text

from boolcp import BMP, AtomicNorm, contractions, identifiability
from boolcp.datasets import make_boolean_cp
from boolcp.datasets.synthetic import sum_of
from boolcp.metrics import hamming_error
from boolcp.program.maxcut import maximize_boolean_rayleigh

TIME = "run time"
PURSUIT, OPTIMUM, CONVEX = "pursuit, rank one", "to the optimum of Eq. (3)", "Eq. (3), rank one"
# whether Kruskal's condition and rigidity hold
CASES = {"both hold": (1, 1), "rigid only": (0, 1), "Kruskal only": (1, 0), "neither holds": (0, 0)}
SWEEPS = {"samples": (1, 2, 4, 8, 16, 32), "sigma": (0.25, 0.5, 1.0, 2.0, 4.0)}
SWEEPS |= {"atoms": (1, 2, 4, 6, 8, 12), "size": (15, 20, 30, 40, 60)}
EXPECTED = {"samples": -1, "sigma": 2, "freedom": 1}
X_LABELS = {"samples": "samples S", "sigma": r"noise $\sigma$", "freedom": r"$R\,(d_1+d_2+d_3)$"}
SIZE, N_TRUE = 30, 3  # of the tensors of Theorem 4, unless swept
N_CONVEX, MAX_CONVEX = 3, 40  # seeds and largest size for which Theorem 4 is measured with Eq. (3), which takes seconds
N_ATOMS = (5, 10, 20, 40, 80)  # of which the processor time is measured


def plan(*, quick=False, seeds=None):
    """Return the jobs of the theorems; quick halves sizes and seeds."""
    convergence, recovery, error = ((2, 10, 3) if quick else (3, 40, 10)) if seeds is None else (seeds,) * 3
    size = 30 if quick else 60
    cases = [("1 and 2", name, 20 if name == OPTIMUM else size, 5) for name in (PUBLISHED, PURSUIT, OPTIMUM)]
    last = [(TIME, name, size, n) for name in (PUBLISHED, RANK_ONE) for n in N_ATOMS[: -2 if quick else None]]
    swept = [
        ("4", sweep, int(x) if sweep == "size" else SIZE, x)
        for sweep, values in SWEEPS.items()
        for x in values[: -1 if quick else None]
    ]
    groups = (cases, convergence), ([("3", case, 16, 4) for case in CASES], recovery), (swept, error)
    return [
        {"theorem": theorem, "case": case, "size": size, "x": x, "seed": seed}
        for jobs, n_seeds in (*groups, (last, convergence))
        for theorem, case, size, x in jobs
        for seed in range(n_seeds)
    ]


def run(job):
    """Return the numbers of one job: a path with its bounds, one recovery, one error or one time."""
    return {"1 and 2": run_convergence, "3": run_recovery, "4": run_error, TIME: run_time}[job["theorem"]](job)


def run_time(job):
    """Yield the processor time of a fit with as many atoms as the tensor has."""
    X = make_boolean_cp((job["size"],) * 3, job["x"], noise=1.0, random_state=seed_of(TIME, job["x"], job["seed"])).X
    make(job["case"], 2, 0, certify=False).fit(X)  # loads compiled code
    begin = time.process_time()
    make(job["case"], job["x"], 0, certify=False).fit(X)
    yield {"method": job["case"], "k": job["x"], "metric": "seconds", "value": time.process_time() - begin}


def run_convergence(job):
    """Yield F(W^k) - F(W*), the bounds of Theorems 1 and 2 for each k, and the measured ratio mu of each step.

    Atoms are scaled to norm one, so that the smoothness is 1 (docs/maths.md, section 18). Without noise F(W*) = 0,
    |W*|_A is at most the sum of the true weights, and gamma is the smallest eigenvalue of the Gram matrix of the true
    atoms. With noise W* solves Eq. (3) to a proved gap of 0.1 %.
    """
    d, n_true, case, seed = job["size"], job["x"], job["case"], seed_of(*job.values())
    noise = 1.0 if case == OPTIMUM else 0.0
    X, _, truth = make_boolean_cp((d,) * 3, n_true, noise=noise, random_state=seed_of("path", d, job["seed"]))
    sizes, loss = np.sqrt([atom.n_ones for atom in truth.atoms]), 0.0
    gram = truth.inner_products() / np.outer(sizes, sizes)
    atomic_norm = float(np.sum(truth.weights * sizes))
    model = BMP(6 * n_true, refine=False, random_state=seed) if case == PURSUIT else None
    model = BMP.as_published(6 * n_true, random_state=seed) if model is None else model
    if case == OPTIMUM:
        best = AtomicNorm(sigma=1.0, tol=1e-3, random_state=seed).fit(X).decomposition_
        norms = np.sqrt([atom.n_ones for atom in best.atoms])
        loss, atomic_norm = float(np.sum((X - best.to_tensor()) ** 2)) / 2, float(np.sum(np.abs(best.weights) * norms))
    path, total = model.fit(X).path_, 0.0
    for k, (before, after) in enumerate(pairwise(path), 1):
        R = X - before.to_tensor()
        atom = after.atoms[-1]
        mu2 = descent(R, atom) / best_descent(R, is_rank_one=case == PURSUIT)
        own = descent(R, atom) / best_descent(R, is_rank_one=False, modes=[atom.mode])
        total += mu2
        values = {"mu": np.sqrt(mu2), "mu, own mode": np.sqrt(own)}
        values["gap"] = float(np.sum((X - after.to_tensor()) ** 2)) / 2 - loss
        values["bound 1"] = 2 * atomic_norm**2 / total
        if case != OPTIMUM:
            values["bound 2"] = 2 * n_true * np.sum(X**2) / np.linalg.eigvalsh(gram)[0] / total
        for metric, value in values.items():
            yield {"method": case, "k": k, "metric": metric, "value": float(value)}


def descent(R, atom):
    """Return <R, M>^2 / |M|^2, twice the decrease of the loss by the best weight of an atom."""
    inner = np.vdot(R, np.moveaxis(np.multiply.outer(atom.z.astype(float), atom.dense_block()), 0, atom.mode))
    return float(inner**2 / atom.n_ones)


def best_descent(R, *, is_rank_one, modes=None):
    """Return a proved bound on `descent` over all atoms, the largest over the modes.

    For an atom of rank one the largest eigenvalue of the Gram matrix of every mode is a bound, too.
    """
    grams = [contractions.gram(R, mode) for mode in range(R.ndim)]
    bounds = [maximize_boolean_rayleigh(grams[mode], random_state=0).bound for mode in modes or range(R.ndim)]
    largest = min(np.linalg.eigvalsh(C)[-1] for C in grams) if is_rank_one else np.inf
    return min(max(bounds), largest)


def run_recovery(job):
    """Yield for each method whether it finds all bits of a noiseless tensor, Boolean along its first mode."""
    truth = draw_case(job["case"], job["size"], job["x"], np.random.default_rng(seed_of(*job.values())))
    X, K = truth.to_tensor(), truth.n_atoms
    for method in (RANK_ONE, BLOCKS, PUBLISHED):
        W = make(method, K, seed_of(*job.values()), boolean_modes=[0]).fit(X).decomposition_
        yield {"method": method, "k": K, "metric": "recovered", "value": float(not hamming_error(W, truth))}


def draw_case(case, d, n_atoms, rng):
    """Return a random BooleanCP (d, d + 1, d + 2), Boolean along mode 0, whose conditions hold or fail as requested.

    A column that all atoms share along mode 1 breaks Kruskal's condition; two disjoint Boolean vectors, whose sum is
    Boolean, break rigidity.
    """
    has_kruskal, has_rigidity = CASES[case]
    while True:
        Z = rng.random((d, n_atoms)) < 0.5
        if not has_rigidity:
            Z[:, 1] &= ~Z[:, 0]
        U, V = rng.standard_normal((d + 1, n_atoms)), rng.standard_normal((d + 2, n_atoms))
        if not has_kruskal:
            U[:] = U[:, :1]
        W = sum_of((d, d + 1, d + 2), [(0, z, [u, v]) for z, u, v in zip(Z.T, U.T, V.T, strict=True) if z.any()])
        W = replace(W, weights=np.full(W.n_atoms, float(d)))
        found = bool(identifiability.kruskal_condition(W)), bool(identifiability.is_rigid(Z))
        if W.n_atoms == n_atoms and found == CASES[case]:
            return W


def run_error(job):
    """Yield |W - W*|^2 of the mean of S noisy samples, and sigma^2 R (d_1 + d_2 + d_3) / S.

    For BMP with the true number of atoms, and for Eq. (3) with atoms of rank one and the weight of Theorem 4.
    """
    settings = {"samples": 1, "sigma": 1.0, "atoms": N_TRUE, "size": SIZE} | {job["case"]: job["x"]}
    n_samples, sigma, n_atoms, d = settings.values()
    seed = seed_of(*job.values())
    clean = make_boolean_cp((d,) * 3, n_atoms, random_state=seed).clean
    rng = np.random.default_rng(seed + 1)
    X = clean + sigma * np.mean([rng.standard_normal(clean.shape) for _ in range(n_samples)], axis=0)
    lambda_S = sigma * np.sqrt(3 * d / n_samples)
    models = {RANK_ONE: make(RANK_ONE, n_atoms, seed)}
    if job["seed"] < N_CONVEX and d <= MAX_CONVEX:
        models[CONVEX] = AtomicNorm(lambda_S, atom_rank=1, random_state=seed)
    for method, model in models.items():
        error = float(np.sum((model.fit(X).decomposition_.to_tensor() - clean) ** 2))
        yield {"method": method, "k": n_atoms, "metric": "squared error", "value": error}
        yield {"method": method, "k": n_atoms, "metric": "sigma2 R sum d / S", "value": n_atoms * lambda_S**2}


def slope(rows):
    """Return the exponent of value against x, and two standard errors of the line through the logarithms."""
    x, y = np.log(rows["x"].to_numpy(float)), np.log(rows["value"].to_numpy(float))
    design = np.stack([x, np.ones_like(x)], axis=1)
    line, *_ = np.linalg.lstsq(design, y, rcond=None)
    variance = np.sum((y - design @ line) ** 2) / max(len(y) - 2, 1) / np.sum((x - x.mean()) ** 2)
    return float(line[0]), float(2 * np.sqrt(variance))


def interval(values):
    """Return the exact (Clopper-Pearson) interval of 95 % for the rate of ones among 0 and 1."""
    n, k = len(values), int(np.sum(values))
    low = 0.0 if k == 0 else float(beta.ppf(0.025, k, n - k + 1))
    return low, 1.0 if k == n else float(beta.ppf(0.975, k + 1, n - k))


def error_sweeps(table, method):
    """Return the rows of Theorem 4 of one method by the varied quantity x: S, sigma or R (d_1 + d_2 + d_3)."""
    rows = table[(table["theorem"] == "4") & (table["metric"] == "squared error") & (table["method"] == method)]
    freedom = rows[rows["case"].isin(["atoms", "size"])]
    freedom = freedom.assign(x=3.0 * freedom["k"] * freedom["size"])
    return {"samples": rows[rows["case"] == "samples"], "sigma": rows[rows["case"] == "sigma"], "freedom": freedom}


def summary(table):
    """Return what the theorems say and what was measured."""
    paths = table[table["theorem"] == "1 and 2"]
    lines = []
    for case in (PUBLISHED, PURSUIT, OPTIMUM):
        wide = paths[paths["case"] == case].pivot_table(index=["seed", "k"], columns="metric", values="value")
        found = [percent((wide["gap"] / wide["bound 1"]).max()), "-", f"{wide['mu'].min():.2f}"]
        if case != OPTIMUM:
            found[1] = percent((wide["gap"] / wide["bound 2"]).max())
        n_over = int((wide["mu, own mode"] > 1.01 * wide["mu"]).sum())
        lines.append([case, *found, f"{wide['mu'].median():.2f}", f"{n_over} of {len(wide)}"])
    heads = ["path", "gap / bound 1, most", "gap / bound 2, most", "mu, least", "mu, median", "own mode overstates mu"]
    yield f"Theorems 1 and 2, atoms of norm one:\n\n{as_text(heads, lines)}"
    rows = table[(table["theorem"] == "3") & (table["metric"] == "recovered")]
    lines = []
    for method in (RANK_ONE, BLOCKS, PUBLISHED):
        cells = [rows[(rows["case"] == case) & (rows["method"] == method)]["value"] for case in CASES]
        lines.append(
            [method, *(f"{percent(v.mean(), 0)} ({' to '.join(percent(x, 0) for x in interval(v))})" for v in cells)]
        )
    text = f"Theorem 3, {int(rows['seed'].nunique())} noiseless tensors each, all bits right (95 % interval):"
    yield f"{text}\n\n{as_text(['', *CASES], lines)}"
    lines = []
    for method in (CONVEX, RANK_ONE):
        slopes = ["{:.2f} ({:.2f})".format(*slope(part)) for part in error_sweeps(table, method).values()]
        errors = table[(table["theorem"] == "4") & (table["method"] == method)]
        wide = errors.pivot_table(index=["case", "x", "seed"], columns="metric", values="value")
        ratio = (wide["squared error"] / wide["sigma2 R sum d / S"]).groupby(level=["case", "x"]).mean()
        lines.append([method, *slopes, f"{ratio.min():.1f} to {ratio.max():.1f}"])
    heads = ["exponent (two standard errors) of", *("S", "sigma", "R (d1 + d2 + d3)"), "error / expected"]
    yield f"Theorem 4:\n\n{as_text(heads, lines)}"
    times = table[table["theorem"] == TIME]
    cells = ["{:.2f} ({:.2f})".format(*slope(times[times["case"] == name])) for name in (PUBLISHED, RANK_ONE)]
    yield f"Time of a fit, exponent of K:\n\n{as_text(['', PUBLISHED, RANK_ONE], [['exponent', *cells]])}"


def percent(share, digits=1):
    """Return a share as text."""
    return f"{100 * share:.{digits}f} %"


def draw(table):
    """Return the figure: Theorems 1 and 2 along three paths, Theorem 3, Theorem 4 in three variables, time."""
    canvas, axes = style.figure(2, 4, 5.6)
    titles = {PUBLISHED: "Thm 1, 2: printed", PURSUIT: "Thm 1, 2: rank one", OPTIMUM: "Thm 1: Eq. (3)"}
    for ax, (case, title) in zip(axes[0], titles.items(), strict=False):
        draw_convergence(ax, table[(table["theorem"] == "1 and 2") & (table["case"] == case)])
        ax.set_title(title)
    axes[0, 0].set_ylabel("loss above the optimum")
    draw_recovery(axes[0, 3], table[(table["theorem"] == "3") & (table["metric"] == "recovered")])
    for n, (method, color) in enumerate({RANK_ONE: style.VERMILION, CONVEX: style.BLUE}.items()):
        for ax, (name, part) in zip(axes[1], error_sweeps(table, method).items(), strict=False):
            draw_power(ax, part, n, color, f"{method}, Thm 4", EXPECTED[name])
            ax.set(xlabel=X_LABELS[name], title=f"Thm 4: exponent {EXPECTED[name]}")
    axes[1, 0].set_ylabel(r"$\|\hat W - W^*\|_F^2$")
    times = table[table["theorem"] == TIME]
    for n, (method, color) in enumerate({PUBLISHED: style.BLACK, RANK_ONE: style.VERMILION}.items()):
        draw_power(axes[1, 3], times[times["case"] == method], n, color, None)
    axes[1, 3].set(xlabel="atoms", ylabel="processor time (s)", title="Run time")
    return style.finish(canvas, axes.flat, 4)


def draw_convergence(ax, rows):
    """Draw the measured gap and the two bounds against the number of atoms."""
    looks = {"gap": (style.VERMILION, "-"), "bound 1": (style.BLUE, "--"), "bound 2": (style.GREEN, ":")}
    for metric, (color, line) in looks.items():
        for seed, part in rows[rows["metric"] == metric].groupby("seed"):
            ax.plot(part["k"], part["value"], color=color, linestyle=line, label=None if seed else metric)
    ax.set(xscale="log", yscale="log", xlabel="atoms k")


def draw_recovery(ax, rows):
    """Draw the share of tensors whose bits are all found, with intervals of 95 %, a group of bars for each case."""
    colors = {RANK_ONE: style.VERMILION, BLOCKS: style.ORANGE, PUBLISHED: style.BLACK}
    for i, (method, color) in enumerate(colors.items()):
        for at, case in enumerate(CASES):
            found, x = rows[(rows["case"] == case) & (rows["method"] == method)]["value"], at + 0.27 * (i - 1)
            ax.bar(x, found.mean(), width=0.25, color=color, label=None if at else method)
            ax.vlines(x, *interval(found), color="0.45", linewidth=1.0)
    ax.set_xticks(range(len(CASES)), [case.replace(" ", "\n") for case in CASES], fontsize=5.5)
    ax.set(ylim=(0, 1.05), ylabel="share recovered", title="Thm 3 (bars: 95 %)")


def draw_power(ax, rows, n, look, label, expected=None):
    """Draw values against x on logarithmic axes with the fitted exponent, and a line of the expected one."""
    mean = rows.groupby("x")["value"].mean()
    line = mean if expected is None else mean.iloc[0] * (mean.index / mean.index[0]) ** expected
    ax.plot(rows["x"], rows["value"], ".", color=look, markersize=4, alpha=0.7, label=label)
    ax.plot(mean.index, line, "-" if expected is None else "--", color=look, linewidth=0.9)
    text = "slope {:.2f} ± {:.2f}".format(*slope(rows))
    falls = mean.iloc[-1] < mean.iloc[0]
    place = {"x": 0.03 if falls else 0.97, "y": 0.03 + 0.08 * n, "ha": "left" if falls else "right"}
    ax.text(s=text, **place, transform=ax.transAxes, color=look, fontsize=6)
    ax.set(xscale="log", yscale="log")
    ax.xaxis.set_minor_formatter("")


if __name__ == "__main__":
    main("theory")
