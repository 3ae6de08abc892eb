"""Figure 1: denoising, Boolean factors and completion on the synthetic tensors Syn0, Syn1 and Syn2."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from boolcp.datasets import make_boolean_cp
from boolcp.datasets.synthetic import SYN_ATOMS
from boolcp.experiments import _style
from boolcp.experiments._methods import NAMES, RANK_ONE, estimates
from boolcp.experiments._table import Job, Row, seed_of
from boolcp.metrics import hamming_error, rmse
from boolcp.result.atoms import BooleanCP

USES = ("boolcp.metrics", "boolcp.datasets.synthetic")
METHODS = tuple(name for name in NAMES if name != RANK_ONE)  # which is the default where it leaves nothing but noise
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


def plan(*, quick: bool = False, seeds: int | None = None, size: int | None = None) -> list[Job]:
    """Return the jobs: dataset x task x seed x method, at size 150 (quick: 40) in each mode."""
    seeds = (2 if quick else 5) if seeds is None else seeds
    size = (40 if quick else 150) if size is None else size
    return [
        {"dataset": dataset, "size": size, "task": task, "seed": seed, "method": method}
        for seed in range(seeds)
        for dataset in TRUE_ATOMS
        for task in ("denoise", "complete")
        for method in METHODS
    ]


def run(job: Job) -> Iterator[Row]:
    """Yield the errors of one method on one tensor for each number of atoms.

    Denoising: unit noise, RMSE to the clean tensor over all entries, and the Hamming error of the Boolean factors.
    Completion: no noise, a tenth of the entries removed, RMSE over all entries and over the removed ones.
    """
    yield from run_tensor(job, TRUE_ATOMS[job["dataset"]], NUMBERS if job["size"] >= 150 else QUICK_NUMBERS)


def run_tensor(job: Job, n_true: int, numbers: Sequence[int]) -> Iterator[Row]:
    """Yield the errors of one method on one tensor with `n_true` atoms; of denoising also |X - W|^2 / 2."""
    size, is_noisy = job["size"], job["task"] == "denoise"
    X, clean, truth = make_boolean_cp(
        (size,) * 3,
        n_true,
        noise=1.0 if is_noisy else 0.0,
        missing=0.0 if is_noisy else MISSING,
        random_state=seed_of(job["dataset"], size, job["seed"]),
    )
    gaps = np.isnan(X)
    numbers = [number for number in numbers if 2 * number <= size]
    for n_atoms, candidates in estimates(job["method"], X, numbers, seed_of(*job.values())):
        tensors = [one.to_tensor() for one in candidates]
        errors = {"rmse": min(rmse(W, clean) for W in tensors)}
        if is_noisy:
            errors["loss"] = min(float(np.sum((X - W) ** 2)) / 2 for W in tensors)
        if is_noisy and all(isinstance(one.W, BooleanCP) for one in candidates):
            errors["hamming"] = min(hamming_error(one.W, truth) for one in candidates)
        if not is_noisy:
            errors["rmse_missing"] = min(rmse(W[gaps], clean[gaps]) for W in tensors)
        for metric, value in errors.items():
            yield {"n_atoms": n_atoms, "metric": metric, "value": value}


def limit(size: int, n_true: int) -> float:
    """Return the RMSE that least squares has with the true Boolean factors, sigma sqrt(parameters / entries).

    Each atom has 2 (d - 1) + 1 free real parameters.
    """
    return np.sqrt(n_true * (2 * size - 1) / size**3)


@_style.styled
def draw(table: Any) -> Any:
    """Return the figure of all datasets with 3, 9 and 15 true atoms."""
    return draw_datasets(table, TRUE_ATOMS)


def draw_datasets(table: Any, true_atoms: dict[str, int]) -> Any:
    """Return the figure: a row for each task and metric, a column for each dataset."""
    datasets = sorted(table["dataset"].unique())
    size, n_seeds = int(table["size"].max()), _style.n_seeds(table)
    canvas, axes = _style.figure(len(PANELS), len(datasets), _style.PAGE, 8.4, sharex="col", sharey="row")
    for row, (task, metric, label) in enumerate(PANELS):
        for column, dataset in enumerate(datasets):
            ax, n_true = axes[row, column], true_atoms[dataset]
            rows = table[(table["dataset"] == dataset) & (table["task"] == task)]
            rows = rows[rows["metric"] == ("rmse" if metric == "ratio" else metric)]
            best = limit(size, n_true)
            if metric == "ratio":
                rows = rows.assign(value=rows["value"] / best)
            floor, dodge = (FLOOR if task == "complete" else None), (0.006 if metric in ("ratio", "hamming") else 0.0)
            _style.curves(ax, rows, floor=floor, dodge=dodge)
            ax.axvline(n_true, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
            if metric == "rmse":
                ax.set_yscale("log")
            if task == "denoise" and metric == "rmse":
                ax.axhline(best, color="0.3", linewidth=0.8, linestyle="--", zorder=0, label="limit with known bits")
            if metric == "ratio":
                ax.axhline(1, color="0.3", linewidth=0.8, linestyle="--", zorder=0)
                ax.set_ylim(0.9, RATIO_TOP)
            if row == 0:
                ax.set_title(f"{dataset}: {n_true} atoms, ${size}^3$")
            if row == len(PANELS) - 1:
                ax.set_xlabel("number of atoms")
            ax.xaxis.get_major_locator().set_params(integer=True)
            if column == 0:
                ax.set_ylabel(label)
    _style.letter(axes)
    _style.legend_below(canvas, axes, 4)
    kind = "Quick run: " if size < 150 else ""
    _style.note(
        canvas,
        f"{kind}Mean over {n_seeds}; bars from the lowest to the highest seed. Dotted: true number of "
        f"atoms.\nCompletion: {MISSING:.0%} of the entries removed, no noise; values below {FLOOR:g} are drawn there.",
    )
    return canvas
