"""Theorems 1 to 4, measured: bounds along the path, recovery against identifiability, error against sample size, time.

Theorems 1, 2 and 4 are about the solution of Eq. (3), which `AtomicNorm` computes.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import beta

from boolcp.atomic_norm import AtomicNorm
from boolcp.bmp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.datasets.synthetic import unit_atom
from boolcp.experiments import _style
from boolcp.experiments._methods import DEFAULT, PATHS, PUBLISHED, PUBLISHED_RANK_ONE
from boolcp.experiments._table import Job, Row, seed_of
from boolcp.metrics import hamming_error
from boolcp.result.atoms import BooleanCP
from boolcp.trust.identifiability import is_rigid, kruskal_condition

USES = ("boolcp.atomic_norm", "boolcp.metrics", "boolcp.datasets.synthetic", "boolcp.trust.identifiability")
TIME = "run time"
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
OPTIMUM, CONVEX = "to the optimum of Eq. (3)", "Eq. (3), rank one"


def plan(*, quick: bool = False, seeds: int | None = None) -> list[Job]:
    """Return the jobs of the theorems; quick halves sizes and seeds."""
    convergence, recovery, error = (2, 10, 3) if quick else (3, 40, 10)
    if seeds is not None:
        convergence, recovery, error = seeds, seeds, seeds
    size = 30 if quick else 60
    jobs = [
        {"theorem": "1 and 2", "case": method, "size": 20 if method == OPTIMUM else size, "x": 5, "seed": seed}
        for method in (PUBLISHED, PUBLISHED_RANK_ONE, OPTIMUM)
        for seed in range(convergence)
    ]
    jobs += [
        {"theorem": "3", "case": case, "size": 16, "x": 4, "seed": seed} for case in CASES for seed in range(recovery)
    ]
    jobs += [
        {"theorem": "4", "case": sweep, "size": int(value) if sweep == "size" else SIZE, "x": value, "seed": seed}
        for sweep, values in SWEEPS.items()
        for value in values[: -1 if quick else None]
        for seed in range(error)
    ]
    jobs += [
        {"theorem": TIME, "case": method, "size": size, "x": n_atoms, "seed": seed}
        for method in (PUBLISHED, DEFAULT)
        for n_atoms in N_ATOMS[: -2 if quick else None]
        for seed in range(convergence)
    ]
    return jobs


def run(job: Job) -> Iterator[Row]:
    """Yield the numbers of one job: a path with its bounds, one recovery, or one error."""
    if job["theorem"] == "1 and 2":
        return run_optimum(job) if job["case"] == OPTIMUM else run_convergence(job)
    if job["theorem"] == TIME:
        return run_time(job)
    return run_recovery(job) if job["theorem"] == "3" else run_error(job)


def run_time(job: Job) -> Iterator[Row]:
    """Yield the processor time of a fit with as many atoms as the tensor has."""
    X = make_boolean_cp((job["size"],) * 3, job["x"], noise=1.0, random_state=seed_of(TIME, job["x"], job["seed"])).X
    make = BMP if job["case"] == DEFAULT else PATHS[job["case"]]
    make(2, certify=False, random_state=0).fit(X)  # loads compiled code
    model = make(job["x"], certify=False, random_state=0)
    begin = time.process_time()
    model.fit(X)
    yield {"method": job["case"], "k": job["x"], "metric": "seconds", "value": time.process_time() - begin}


def run_convergence(job: Job) -> Iterator[Row]:
    """Yield F(W^k) - F(W*) without noise, where F(W*) = 0, and the bounds of Theorems 1 and 2 for each k.

    Atoms have |M|^2 = |z|^2 <= d, so that the smoothness in the atomic norm is beta = d. |W*|_A is at most the sum of
    the true weights, gamma is the smallest eigenvalue of the Gram matrix of the true atoms, and mu is what the
    certificates prove for this path.
    """
    d, n_true = job["size"], job["x"]
    X, _, truth = make_boolean_cp((d,) * 3, n_true, random_state=seed_of("path", d, job["seed"]))
    model = PATHS[job["case"]](6 * n_true, random_state=seed_of(*job.values())).fit(X)
    mu2 = min(record.certificate for record in model.history_)
    atomic_norm = truth.weights.sum()
    gamma = np.linalg.eigvalsh(truth.inner_products())[0]
    yield {"method": job["case"], "k": 0, "metric": "mu", "value": np.sqrt(mu2)}
    for k, record in enumerate(model.history_, 1):
        values = {
            "gap": record.loss,
            "bound 1": 2 * d * atomic_norm**2 / mu2 / k,
            "bound 2": 2 * d * np.sum(X**2) / (gamma * mu2) * n_true / k,
        }
        for metric, value in values.items():
            yield {"method": job["case"], "k": k, "metric": metric, "value": value}


def run_optimum(job: Job) -> Iterator[Row]:
    """Yield F(W^k) - F(W*) of a noisy tensor and its bound, where W* solves Eq. (3) to a proved gap of 0.1 %."""
    d, n_true = job["size"], job["x"]
    X = make_boolean_cp((d,) * 3, n_true, noise=1.0, random_state=seed_of("path", d, job["seed"])).X
    options: dict[str, Any] = {"criterion": "published", "random_state": seed_of(*job.values())}
    optimum = AtomicNorm(sigma=1.0, tol=1e-3, **options).fit(X)
    loss = float(np.sum((X - optimum.decomposition_.to_tensor()) ** 2)) / 2
    atomic_norm = (optimum.objective_ - loss) / optimum.alpha_
    model = PATHS[PUBLISHED](4 * n_true, random_state=seed_of(*job.values())).fit(X)
    mu2 = min(record.certificate for record in model.history_)
    yield {"method": OPTIMUM, "k": 0, "metric": "proved gap of Eq. (3)", "value": optimum.duality_gap_}
    yield {"method": OPTIMUM, "k": 0, "metric": "mu", "value": np.sqrt(mu2)}
    for k, record in enumerate(model.history_, 1):
        yield {"method": OPTIMUM, "k": k, "metric": "gap", "value": record.loss - loss}
        yield {"method": OPTIMUM, "k": k, "metric": "bound 1", "value": 2 * d * atomic_norm**2 / mu2 / k}


def run_recovery(job: Job) -> Iterator[Row]:
    """Yield for each method whether it finds all bits of a noiseless tensor, Boolean along its first mode."""
    truth = draw_case(job["case"], job["size"], job["x"], np.random.default_rng(seed_of(*job.values())))
    X = truth.to_tensor()
    options: dict[str, Any] = {"boolean_modes": [0], "random_state": seed_of(*job.values())}
    for method in (DEFAULT, PUBLISHED_RANK_ONE, PUBLISHED):
        model = BMP(truth.n_atoms, **options) if method == DEFAULT else PATHS[method](truth.n_atoms, **options)
        W = model.fit(X).decomposition_
        yield {"method": method, "k": truth.n_atoms, "metric": "recovered", "value": float(not hamming_error(W, truth))}
        error = np.linalg.norm(X - W.to_tensor()) / np.linalg.norm(X)
        yield {"method": method, "k": truth.n_atoms, "metric": "explained", "value": float(error < 1e-4)}


def draw_case(case: str, d: int, n_atoms: int, rng: np.random.Generator) -> BooleanCP:
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
        if W.n_atoms == n_atoms and (bool(kruskal_condition(W)), bool(is_rigid(Z))) == CASES[case]:
            return W


def run_error(job: Job) -> Iterator[Row]:
    """Yield |W - W*|^2 of the mean of S noisy samples, and sigma^2 R (d_1 + d_2 + d_3) / S beside it.

    For BMP with the true number of atoms, and for Eq. (3) with atoms of rank one and the weight of Theorem 4.
    """
    settings = {"samples": 1, "sigma": 1.0, "atoms": N_TRUE, "size": SIZE} | {job["case"]: job["x"]}
    d, n_atoms, n_samples = int(settings["size"]), int(settings["atoms"]), int(settings["samples"])
    seed = seed_of(*job.values())
    _, clean, _ = make_boolean_cp((d,) * 3, n_atoms, random_state=seed)
    rng = np.random.default_rng(seed + 1)
    X = clean + settings["sigma"] * np.mean([rng.standard_normal(clean.shape) for _ in range(n_samples)], axis=0)
    lambda_S = settings["sigma"] * np.sqrt(3 * d / n_samples)
    models: dict[str, Any] = {DEFAULT: BMP(n_atoms, random_state=seed)}
    if job["seed"] < N_CONVEX and d <= MAX_CONVEX:
        models[CONVEX] = AtomicNorm(lambda_S, atom_rank=1, random_state=seed)
    for method, model in models.items():
        error = np.sum((model.fit(X).decomposition_.to_tensor() - clean) ** 2)
        yield {"method": method, "k": n_atoms, "metric": "squared error", "value": float(error)}
        bound = n_atoms * float(lambda_S) ** 2
        yield {"method": method, "k": n_atoms, "metric": "sigma2 R sum d / S", "value": bound}


def slopes(table: Any, method: str = DEFAULT) -> dict[str, tuple[float, float]]:
    """Return the fitted exponents of the squared error in S, sigma and R (d_1 + d_2 + d_3) as (slope, half width).

    The half width is two standard errors of the least-squares line through the logarithms.
    """
    return {name: slope(rows) for name, rows in error_sweeps(table, method).items()}


def slope(rows: Any) -> tuple[float, float]:
    """Return the exponent of value against x as (slope, two standard errors)."""
    x, y = np.log(rows["x"].to_numpy(float)), np.log(rows["value"].to_numpy(float))
    design = np.stack([x, np.ones_like(x)], axis=1)
    line, *_ = np.linalg.lstsq(design, y, rcond=None)
    variance = np.sum((y - design @ line) ** 2) / max(len(y) - 2, 1) / np.sum((x - x.mean()) ** 2)
    return float(line[0]), float(2 * np.sqrt(variance))


def interval(values: Any) -> tuple[float, float]:
    """Return the exact (Clopper-Pearson) interval of 95 % for the rate of ones among 0 and 1."""
    n, k = len(values), int(np.sum(values))
    low = 0.0 if k == 0 else float(beta.ppf(0.025, k, n - k + 1))
    return low, 1.0 if k == n else float(beta.ppf(0.975, k + 1, n - k))


def error_sweeps(table: Any, method: str) -> dict[str, Any]:
    """Return the rows of Theorem 4 of one method by the varied quantity x: S, sigma or R (d_1 + d_2 + d_3)."""
    is_error = (table["theorem"].astype(str) == "4") & (table["metric"] == "squared error")
    rows = table[is_error & (table["method"] == method)].copy()
    rows["x"] = rows["x"].astype(float)
    freedom = rows[rows["case"].isin(["atoms", "size"])].copy()
    freedom["x"] = 3 * freedom["k"].astype(float) * freedom["size"].astype(float)
    return {"samples": rows[rows["case"] == "samples"], "sigma": rows[rows["case"] == "sigma"], "freedom": freedom}


@_style.styled
def draw(table: Any) -> Any:
    """Return the figure: Theorems 1 and 2 along three paths, Theorem 3, Theorem 4 in three variables."""
    canvas, axes = _style.figure(2, 4, _style.PAGE, 5.6)
    rows = table[table["theorem"].astype(str) == "1 and 2"]
    titles = {PUBLISHED: "Thm 1, 2: blocks", PUBLISHED_RANK_ONE: "Thm 1, 2: rank one", OPTIMUM: "Thm 1: Eq. (3), noise"}
    for ax, (case, title) in zip(axes[0], titles.items(), strict=False):
        draw_convergence(ax, rows[rows["case"] == case])
        ax.set_title(title)
    axes[0, 0].set_ylabel("loss above the optimum")
    draw_recovery(axes[0, 3], table[(table["theorem"].astype(str) == "3") & (table["metric"] == "recovered")])
    draw_errors(axes[1], table)
    draw_time(axes[1, 3], table[table["theorem"].astype(str) == TIME])
    _style.letter(axes)
    _style.legend_below(canvas, axes, 4)
    return canvas


def draw_time(ax: Any, rows: Any) -> None:
    """Draw the processor time against the number of atoms, with the fitted exponents."""
    ax.set(xscale="log", yscale="log", xlabel="atoms", ylabel="processor time (s)", title="Run time")
    for n, (method, color) in enumerate({PUBLISHED: _style.BLACK, DEFAULT: _style.VERMILION}.items()):
        part = rows[rows["case"] == method].assign(x=lambda table: table["x"].astype(float))
        if part.empty:
            continue
        mean = part.groupby("x")["value"].mean()
        ax.plot(part["x"], part["value"], ".", color=color, markersize=4, alpha=0.7)
        ax.plot(mean.index, mean, color=color, linewidth=0.9)
        exponent, width = slope(part)
        text = f"slope {exponent:.2f} ± {width:.2f}"
        ax.text(0.97, 0.03 + 0.08 * n, text, transform=ax.transAxes, color=color, ha="right", fontsize=6)
        ax.set_xticks(mean.index, [f"{tick:g}" for tick in mean.index])
    ax.minorticks_off()


def draw_errors(axes: Any, table: Any) -> None:
    """Draw the squared error against S, sigma and R (d_1 + d_2 + d_3), with the exponents of Theorem 4 as lines."""
    labels = {"samples": "samples S", "sigma": r"noise $\sigma$", "freedom": r"$R\,(d_1+d_2+d_3)$"}
    for method, color in {DEFAULT: _style.VERMILION, CONVEX: _style.BLUE}.items():
        fitted = slopes(table, method)
        for ax, (name, part) in zip(axes, error_sweeps(table, method).items(), strict=False):
            text = "{:.2f} ± {:.2f}".format(*fitted[name])
            ax.plot(part["x"], part["value"], ".", color=color, markersize=4, alpha=0.7, label=f"{method}, Thm 4")
            mean = part.groupby("x")["value"].mean()
            line = mean.iloc[0] * (mean.index / mean.index[0]) ** EXPECTED[name]
            ax.plot(mean.index, line, color=color, linewidth=0.9, linestyle="--")
            place = 0.11 if method == CONVEX else 0.03
            side, x = ("right", 0.97) if EXPECTED[name] > 0 else ("left", 0.03)
            ax.text(x, place, f"slope {text}", transform=ax.transAxes, color=color, ha=side, fontsize=6)
            ax.set(xscale="log", yscale="log", xlabel=labels[name], title=f"Thm 4: exponent {EXPECTED[name]}")
            ticks = (100, 200, 400, 800) if name == "freedom" else mean.index
            ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            ax.minorticks_off()
            size = "various sizes" if name == "freedom" else f"${SIZE}^3$, {N_TRUE} atoms"
            side, x = ("left", 0.03) if EXPECTED[name] > 0 else ("right", 0.97)
            ax.text(x, 0.97, size, transform=ax.transAxes, va="top", ha=side, fontsize=6, color="0.3")
    axes[0].set_ylabel(r"$\|\hat W - W^*\|_F^2$")


def draw_convergence(ax: Any, rows: Any) -> None:
    """Draw the measured gap and the two bounds against the number of atoms."""
    looks = {
        "gap": ("measured gap", _style.VERMILION, "-"),
        "bound 1": ("bound of Theorem 1", _style.BLUE, "--"),
        "bound 2": ("bound of Theorem 2", _style.GREEN, ":"),
    }
    for metric, (label, color, style) in looks.items():
        for seed, part in rows[rows["metric"] == metric].groupby("seed"):
            ax.plot(part["k"], part["value"], color=color, linestyle=style, label=label if seed == 0 else None)
    ax.set(xscale="log", yscale="log", xlabel="atoms k")


def draw_recovery(ax: Any, rows: Any) -> None:
    """Draw the share of tensors whose bits are all found, a group of bars for each case."""
    colors = {DEFAULT: _style.VERMILION, PUBLISHED_RANK_ONE: _style.GRAY, PUBLISHED: _style.BLACK}
    for i, (method, color) in enumerate(colors.items()):
        rates = [rows[(rows["case"] == case) & (rows["method"] == method)]["value"].mean() for case in CASES]
        places = np.arange(len(CASES)) + 0.27 * (i - 1)
        ax.bar(places, rates, width=0.25, color=color, label=method)
        for x, rate, case in zip(places, rates, CASES, strict=True):
            low, high = interval(rows[(rows["case"] == case) & (rows["method"] == method)]["value"])
            ax.vlines(x, low, high, color="0.45", linewidth=1.0)
            ax.text(x, high + 0.02, f"{100 * rate:.0f}", ha="center", fontsize=6)
    ax.set_xticks(range(len(CASES)), [case.replace(" ", "\n") for case in CASES], fontsize=5)
    ax.set(ylim=(0, 1.12), ylabel="share recovered (labels: %)", title="Thm 3 (bars: 95 %)")
