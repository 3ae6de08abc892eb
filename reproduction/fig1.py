"""Figure 1: denoising, Boolean factors and completion on the synthetic tensors Syn0, Syn1 and Syn2."""

import numpy as np
import style
from methods import NAMES, estimates
from tables import main, seed_of

from boolcp import BooleanCP
from boolcp.datasets import make_boolean_cp
from boolcp.datasets.synthetic import SYN_ATOMS
from boolcp.metrics import hamming_error, rmse

TRUE_ATOMS = {f"Syn{which}": n_atoms for which, n_atoms in enumerate(SYN_ATOMS)}
NUMBERS = (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 20)
QUICK_NUMBERS = (1, 2, 3, 5, 9, 12, 15)
MISSING = 0.1
FLOOR = 1e-5  # completion errors below are drawn here
RATIO_TOP = 3.0  # of the panels that show errors relative to the limit
PANELS = (
    ("denoise", "rmse", "denoising RMSE"),
    ("denoise", "ratio", "denoising RMSE / limit"),
    ("denoise", "hamming", "Hamming error (share of bits)"),
    ("complete", "rmse", "completion RMSE"),
)


def plan(*, quick=False, seeds=None, size=None):
    """Return the jobs: dataset x task x seed x method, at size 150 (quick: 40) in each mode."""
    size = (40 if quick else 150) if size is None else size
    return [
        {"dataset": dataset, "size": size, "task": task, "seed": seed, "method": method}
        for seed in range((2 if quick else 5) if seeds is None else seeds)
        for dataset in TRUE_ATOMS
        for task in ("denoise", "complete")
        for method in NAMES
    ]


def run(job):
    """Yield the errors of one method on one tensor for each number of atoms.

    Denoising: unit noise, RMSE to the clean tensor over all entries, and the Hamming error of the Boolean factors.
    Completion: no noise, a tenth of the entries removed, RMSE over all entries and over the removed ones.
    """
    yield from run_tensor(job, TRUE_ATOMS[job["dataset"]], NUMBERS if job["size"] >= 150 else QUICK_NUMBERS)


def run_tensor(job, n_true, numbers):
    """Yield the errors of one method on one tensor with `n_true` atoms; of denoising also |X - W|^2 / 2."""
    size, is_noisy = job["size"], job["task"] == "denoise"
    how = {"noise": 1.0} if is_noisy else {"missing": MISSING}
    seed = seed_of(job["dataset"], size, job["seed"])
    X, clean, truth = make_boolean_cp((size,) * 3, n_true, random_state=seed, **how)
    gaps = np.isnan(X)
    numbers = [number for number in numbers if 2 * number <= size]
    for n_atoms, candidates in estimates(job["method"], X, numbers, seed_of(*job.values())):
        tensors = [W.to_tensor() for W in candidates]
        errors = {"rmse": min(rmse(W, clean) for W in tensors)}
        if is_noisy:
            errors["loss"] = min(float(np.sum((X - W) ** 2)) / 2 for W in tensors)
        if is_noisy and all(isinstance(W, BooleanCP) for W in candidates):
            errors["hamming"] = min(hamming_error(W, truth) for W in candidates)
        if not is_noisy:
            errors["rmse_missing"] = min(rmse(W[gaps], clean[gaps]) for W in tensors)
        for metric, value in errors.items():
            yield {"n_atoms": n_atoms, "metric": metric, "value": value}


def limit(size, n_true):
    """Return the RMSE that least squares has with the true Boolean factors, sigma sqrt(parameters / entries).

    Each atom has 2 (d - 1) + 1 free real parameters.
    """
    return np.sqrt(n_true * (2 * size - 1) / size**3)


def draw(table, true_atoms=TRUE_ATOMS):
    """Return the figure: a row for each task and metric, a column for each dataset."""
    datasets, size = sorted(table["dataset"].unique()), int(table["size"].max())
    canvas, axes = style.figure(len(PANELS), len(datasets), 8.4, sharex="col", sharey="row")
    for line, (task, metric, label) in zip(axes, PANELS, strict=True):
        line[0].set_ylabel(label)
        for ax, dataset in zip(line, datasets, strict=True):
            rows = table[(table["dataset"] == dataset) & (table["task"] == task)]
            rows = rows[rows["metric"] == ("rmse" if metric == "ratio" else metric)]
            best = limit(size, true_atoms[dataset])
            if metric == "ratio":
                rows = rows.assign(value=rows["value"] / best)
                ax.axhline(1, color="0.3", linewidth=0.8, linestyle="--", zorder=0)
                ax.set_ylim(0.9, RATIO_TOP)
            floor, dodge = (FLOOR if task == "complete" else None), (0.006 if metric in ("ratio", "hamming") else 0.0)
            style.curves(ax, rows, floor=floor, dodge=dodge)
            ax.axvline(true_atoms[dataset], color="0.6", linewidth=0.8, linestyle=":", zorder=0)
            ax.xaxis.get_major_locator().set_params(integer=True)
            if metric == "rmse":
                ax.set_yscale("log")
            if task == "denoise" and metric == "rmse":
                ax.axhline(best, color="0.3", linewidth=0.8, linestyle="--", zorder=0, label="limit with known bits")
    for top, bottom, dataset in zip(axes[0], axes[-1], datasets, strict=True):
        top.set_title(f"{dataset}: {true_atoms[dataset]} atoms, ${size}^3$")
        bottom.set_xlabel("number of atoms")
    text = (
        f"{'Quick run: ' * (size < 150)}Mean over {style.n_seeds(table)}; bars from the lowest to the highest seed. "
        f"Dotted: true number of atoms.\nCompletion: {MISSING:.0%} of the entries removed, no noise; values below "
        f"{FLOOR:g} are drawn there."
    )
    return style.finish(canvas, axes.flat, 4, text)


if __name__ == "__main__":
    main("fig1")
