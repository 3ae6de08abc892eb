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
PANELS = (
    ("denoise", "rmse", "denoising RMSE"),
    ("denoise", "hamming", "Hamming error (share of bits)"),
    ("complete", "rmse", "completion RMSE"),
)


def plan(*, quick=False, seeds=None, size=None):
    """Return the jobs: dataset x task x seed x method, at size 150 (quick: 40) in each mode."""
    size = (40 if quick else 150) if size is None else size
    return [
        {"dataset": dataset, "size": size, "task": task, "seed": seed, "method": method}
        for seed in range(2 if seeds is None else seeds)
        for dataset in TRUE_ATOMS
        for task in ("denoise", "complete")
        for method in NAMES
    ]


def run(job):
    """Yield the errors of one method on one tensor for each number of atoms.

    Denoising: unit noise, RMSE to the clean tensor over all entries, |X - W|^2 / 2, and the Hamming error of the bits.
    Completion: no noise, a tenth of the entries removed, RMSE over all entries and over the removed ones.
    """
    size, is_noisy = job["size"], job["task"] == "denoise"
    how = {"noise": 1.0} if is_noisy else {"missing": MISSING}
    seed = seed_of(job["dataset"], size, job["seed"])
    X, clean, truth = make_boolean_cp((size,) * 3, TRUE_ATOMS[job["dataset"]], random_state=seed, **how)
    gaps = np.isnan(X)
    numbers = [number for number in (NUMBERS if size >= 150 else QUICK_NUMBERS) if 2 * number <= size]
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


def draw(table):
    """Return the figure: a row for each task and metric, a column for each dataset."""
    datasets, size = sorted(table["dataset"].unique()), int(table["size"].max())
    canvas, axes = style.figure(len(PANELS), len(datasets), 6.6, sharex="col", sharey="row")
    for line, (task, metric, label) in zip(axes, PANELS, strict=True):
        line[0].set_ylabel(label)
        for ax, dataset in zip(line, datasets, strict=True):
            rows = table[(table["dataset"] == dataset) & (table["task"] == task)]
            style.curves(ax, rows[rows["metric"] == metric], floor=FLOOR if task == "complete" else None)
            ax.axvline(TRUE_ATOMS[dataset], color="0.6", linewidth=0.8, linestyle=":", zorder=0)
            ax.xaxis.get_major_locator().set_params(integer=True)
            if metric == "rmse":
                ax.set_yscale("log")
            if task == "denoise" and metric == "rmse":
                best = np.sqrt(TRUE_ATOMS[dataset] * (2 * size - 1) / size**3)  # sigma sqrt(parameters / entries)
                ax.axhline(best, color="0.3", linewidth=0.8, linestyle="--", zorder=0, label="limit with known bits")
    for top, bottom, dataset in zip(axes[0], axes[-1], datasets, strict=True):
        top.set_title(f"{dataset}: {TRUE_ATOMS[dataset]} atoms, ${size}^3$")
        bottom.set_xlabel("number of atoms")
    text = (
        f"{'Quick run: ' * (size < 150)}Mean over {style.n_seeds(table)}; bars from the lowest to the highest seed. "
        f"Dotted: true number of atoms.\nCompletion: {MISSING:.0%} of the entries removed, no noise; values below "
        f"{FLOOR:g} are drawn there."
    )
    return style.finish(canvas, axes.flat, 4, text)


if __name__ == "__main__":
    main("fig1")
