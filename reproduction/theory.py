"""Theorems 1 to 4, measured: bounds along the path, recovery against identifiability, error against sample size, time.

Theorems 1, 2 and 4 are about the solution of Eq. (3), which `AtomicNorm` computes.
"""

import time

import numpy as np
import style
from methods import BLOCKS, PUBLISHED, RANK_ONE, make
from scipy.stats import beta
from tables import main, seed_of

from boolcp import BMP, AtomicNorm, BooleanCP, identifiability
from boolcp.datasets import make_boolean_cp
from boolcp.datasets.synthetic import unit_atom
from boolcp.metrics import hamming_error

TIME = "run time"
PURSUIT, OPTIMUM, CONVEX = "pursuit, rank one", "to the optimum of Eq. (3)", "Eq. (3), rank one"
CASES = {  # whether Kruskal's condition and rigidity hold
    "both hold": (True, True),
    "rigid only": (False, True),
    "Kruskal only": (True, False),
    "neither holds": (False, False),
}
SWEEPS = {
    "samples": (1, 2, 4, 8, 16, 32),
    "sigma": (0.25, 0.5, 1.0, 2.0, 4.0),
    "atoms": (1, 2, 4, 6, 8, 12),
    "size": (15, 20, 30, 40, 60),
}
EXPECTED = {"samples": -1, "sigma": 2, "freedom": 1}
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
    if job["theorem"] == "1 and 2":
        return run_optimum(job) if job["case"] == OPTIMUM else run_convergence(job)
    return {TIME: run_time, "3": run_recovery, "4": run_error}[job["theorem"]](job)


def run_time(job):
    """Yield the processor time of a fit with as many atoms as the tensor has."""
    X = make_boolean_cp((job["size"],) * 3, job["x"], noise=1.0, random_state=seed_of(TIME, job["x"], job["seed"])).X
    make(job["case"], 2, 0, certify=False).fit(X)  # loads compiled code
    begin = time.process_time()
    make(job["case"], job["x"], 0, certify=False).fit(X)
    yield {"method": job["case"], "k": job["x"], "metric": "seconds", "value": time.process_time() - begin}


def run_convergence(job):
    """Yield F(W^k) - F(W*) without noise, where F(W*) = 0, and the bounds of Theorems 1 and 2 for each k.

    Atoms of the paper have |M|^2 = |z|^2 <= d, so that the smoothness in the atomic norm is beta = d; those of the
    pursuit of rank one are scaled to norm one, so that beta = 1. |W*|_A is at most the sum of the true weights, gamma
    is the smallest eigenvalue of the Gram matrix of the true atoms, and mu is what the certificates of this path prove.
    """
    d, n_true, seed = job["size"], job["x"], seed_of(*job.values())
    X, _, truth = make_boolean_cp((d,) * 3, n_true, random_state=seed_of("path", d, job["seed"]))
    sizes = np.sqrt([atom.n_ones for atom in truth.atoms])
    gram = truth.inner_products()
    if job["case"] == PUBLISHED:
        model, smoothness, atomic_norm = BMP.as_published(6 * n_true, random_state=seed), d, truth.weights.sum()
    else:
        model, smoothness = BMP(6 * n_true, atom_rank=1, refine=False, random_state=seed), 1
        atomic_norm, gram = np.sum(truth.weights * sizes), gram / np.outer(sizes, sizes)
    history = model.fit(X).history_
    mu2 = min(record.certificate for record in history)
    gamma = np.linalg.eigvalsh(gram)[0]
    yield {"method": job["case"], "k": 0, "metric": "mu", "value": np.sqrt(mu2)}
    for k, record in enumerate(history, 1):
        scale = 2 * smoothness / mu2 / k
        values = {"gap": record.loss, "bound 1": scale * atomic_norm**2}
        values["bound 2"] = scale * n_true * np.sum(X**2) / gamma
        for metric, value in values.items():
            yield {"method": job["case"], "k": k, "metric": metric, "value": value}


def run_optimum(job):
    """Yield F(W^k) - F(W*) of a noisy tensor and its bound, where W* solves Eq. (3) to a proved gap of 0.1 %.

    The theorem holds for every W*; |W*|_A is at most the sum of its weights.
    """
    d, n_true, seed = job["size"], job["x"], seed_of(*job.values())
    X = make_boolean_cp((d,) * 3, n_true, noise=1.0, random_state=seed_of("path", d, job["seed"])).X
    optimum = AtomicNorm(sigma=1.0, tol=1e-3, random_state=seed).fit(X)
    loss = float(np.sum((X - optimum.decomposition_.to_tensor()) ** 2)) / 2
    atomic_norm = np.abs(optimum.decomposition_.weights).sum()
    history = BMP.as_published(4 * n_true, random_state=seed).fit(X).history_
    mu2 = min(record.certificate for record in history)
    yield {"method": OPTIMUM, "k": 0, "metric": "proved gap of Eq. (3)", "value": optimum.duality_gap_}
    yield {"method": OPTIMUM, "k": 0, "metric": "mu", "value": np.sqrt(mu2)}
    for k, record in enumerate(history, 1):
        yield {"method": OPTIMUM, "k": k, "metric": "gap", "value": record.loss - loss}
        yield {"method": OPTIMUM, "k": k, "metric": "bound 1", "value": 2 * d * atomic_norm**2 / mu2 / k}


def run_recovery(job):
    """Yield for each method whether it finds all bits of a noiseless tensor, Boolean along its first mode."""
    truth = draw_case(job["case"], job["size"], job["x"], np.random.default_rng(seed_of(*job.values())))
    X, K = truth.to_tensor(), truth.n_atoms
    for method in (RANK_ONE, BLOCKS, PUBLISHED):
        W = make(method, K, seed_of(*job.values()), boolean_modes=[0]).fit(X).decomposition_
        error = np.linalg.norm(X - W.to_tensor()) / np.linalg.norm(X)
        yield {"method": method, "k": K, "metric": "recovered", "value": float(not hamming_error(W, truth))}
        yield {"method": method, "k": K, "metric": "explained", "value": float(error < 1e-4)}


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
        parts = [unit_atom(0, z, (u, v))[0] for z, u, v in zip(Z.T, U.T, V.T, strict=True) if z.any()]
        W = BooleanCP((d, d + 1, d + 2), tuple(parts), np.full(len(parts), float(d)))
        found = bool(identifiability.kruskal_condition(W)), bool(identifiability.is_rigid(Z))
        if W.n_atoms == n_atoms and found == CASES[case]:
            return W


def run_error(job):
    """Yield |W - W*|^2 of the mean of S noisy samples, and sigma^2 R (d_1 + d_2 + d_3) / S beside it.

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


def draw(table):
    """Return the figure: Theorems 1 and 2 along three paths, Theorem 3, Theorem 4 in three variables, time."""
    canvas, axes = style.figure(2, 4, 5.6)
    titles = {PUBLISHED: "Thm 1, 2: as published", PURSUIT: "Thm 1, 2: rank one", OPTIMUM: "Thm 1: Eq. (3), noise"}
    for ax, (case, title) in zip(axes[0], titles.items(), strict=False):
        draw_convergence(ax, table[(table["theorem"] == "1 and 2") & (table["case"] == case)])
        ax.set_title(title)
    axes[0, 0].set_ylabel("loss above the optimum")
    draw_recovery(axes[0, 3], table[(table["theorem"] == "3") & (table["metric"] == "recovered")])
    for n, (method, color) in enumerate({RANK_ONE: style.VERMILION, CONVEX: style.BLUE}.items()):
        for ax, (name, part) in zip(axes[1], error_sweeps(table, method).items(), strict=False):
            draw_error(ax, name, part, n, color=color, label=f"{method}, Thm 4")
    axes[1, 0].set_ylabel(r"$\|\hat W - W^*\|_F^2$")
    draw_time(axes[1, 3], table[table["theorem"] == TIME])
    return style.finish(canvas, axes.flat, 4)


def draw_convergence(ax, rows):
    """Draw the measured gap and the two bounds against the number of atoms."""
    looks = {
        "gap": ("measured gap", style.VERMILION, "-"),
        "bound 1": ("bound of Theorem 1", style.BLUE, "--"),
        "bound 2": ("bound of Theorem 2", style.GREEN, ":"),
    }
    for metric, (label, color, line) in looks.items():
        for seed, part in rows[rows["metric"] == metric].groupby("seed"):
            ax.plot(part["k"], part["value"], color=color, linestyle=line, label=label if seed == 0 else None)
    ax.set(xscale="log", yscale="log", xlabel="atoms k")


def draw_recovery(ax, rows):
    """Draw the share of tensors whose bits are all found, a group of bars for each case."""
    colors = {RANK_ONE: style.VERMILION, BLOCKS: style.ORANGE, PUBLISHED: style.BLACK}
    for i, (method, color) in enumerate(colors.items()):
        for at, case in enumerate(CASES):
            found, x = rows[(rows["case"] == case) & (rows["method"] == method)]["value"], at + 0.27 * (i - 1)
            low, high = interval(found)
            ax.bar(x, found.mean(), width=0.25, color=color, label=None if at else method)
            ax.vlines(x, low, high, color="0.45", linewidth=1.0)
            ax.text(x, high + 0.02, f"{100 * found.mean():.0f}", ha="center", fontsize=6)
    ax.set_xticks(range(len(CASES)), [case.replace(" ", "\n") for case in CASES], fontsize=5)
    ax.set(ylim=(0, 1.12), ylabel="share recovered (labels: %)", title="Thm 3 (bars: 95 %)")


def draw_error(ax, name, rows, n, color, label):
    """Draw the squared error against S, sigma or R (d_1 + d_2 + d_3), with the exponent of Theorem 4 as a line."""
    labels = {"samples": "samples S", "sigma": r"noise $\sigma$", "freedom": r"$R\,(d_1+d_2+d_3)$"}
    expected, mean = EXPECTED[name], rows.groupby("x")["value"].mean()
    ax.plot(rows["x"], rows["value"], ".", color=color, markersize=4, alpha=0.7, label=label)
    ax.plot(mean.index, mean.iloc[0] * (mean.index / mean.index[0]) ** expected, "--", color=color, linewidth=0.9)
    low, high = (0.03, "left"), (0.97, "right")
    (x, side), (x_size, side_size) = (high, low) if expected > 0 else (low, high)
    write_slope(ax, rows, n, color, x=x, side=side)
    size = "various sizes" if name == "freedom" else f"${SIZE}^3$, {N_TRUE} atoms"
    ax.text(x_size, 0.97, size, transform=ax.transAxes, va="top", ha=side_size, fontsize=6, color="0.3")
    ax.set(xscale="log", yscale="log", xlabel=labels[name], title=f"Thm 4: exponent {expected}")
    ticks = (100, 200, 400, 800) if name == "freedom" else mean.index
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()


def draw_time(ax, rows):
    """Draw the processor time against the number of atoms, with the fitted exponents."""
    ax.set(xscale="log", yscale="log", xlabel="atoms", ylabel="processor time (s)", title="Run time")
    for n, (method, color) in enumerate({PUBLISHED: style.BLACK, RANK_ONE: style.VERMILION}.items()):
        part = rows[rows["case"] == method]
        mean = part.groupby("x")["value"].mean()
        ax.plot(part["x"], part["value"], ".", color=color, markersize=4, alpha=0.7)
        ax.plot(mean.index, mean, color=color, linewidth=0.9)
        write_slope(ax, part, n, color, x=0.97, side="right")
        ax.set_xticks(mean.index, [f"{tick:g}" for tick in mean.index])
    ax.minorticks_off()


def write_slope(ax, rows, n, color, x, side):
    """Write the fitted exponent in line n of a panel."""
    text = "slope {:.2f} ± {:.2f}".format(*slope(rows))
    ax.text(x, 0.03 + 0.08 * n, text, transform=ax.transAxes, color=color, ha=side, fontsize=6)


if __name__ == "__main__":
    main("theory")
