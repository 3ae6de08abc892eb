"""Figure 1: denoising, Boolean factors and completion on the synthetic tensors Syn0, Syn1 and Syn2."""

import numpy as np
import style
from methods import NAMES, estimates
from tables import main, seed_of
from tables import table as as_text

from boolcp import BooleanCP
from boolcp.datasets import make_boolean_cp
from boolcp.datasets.synthetic import SYN_ATOMS
from boolcp.metrics import hamming_error, rmse

TRUE_ATOMS = {f"Syn{which}": n_atoms for which, n_atoms in enumerate(SYN_ATOMS)}
PER_MODE = {f"Syn{which}, for each mode": 3 * n_atoms for which, n_atoms in enumerate(SYN_ATOMS)}  # the other reading
NUMBERS = (1, 2, 3, 5, 9, 12, 15, 20)
QUICK_NUMBERS = (1, 2, 3, 5, 9, 12, 15)
MISSING = 0.1
FLOOR = 1e-5  # completion errors below are drawn here
PANELS = (
    ("denoise", "rmse", "denoising RMSE"),
    ("denoise", "hamming", "Hamming error (share of bits)"),
    ("complete", "rmse", "completion RMSE"),
)


def plan(*, quick=False, seeds=None, size=None):
    """Return the jobs: dataset x task x seed x method, at size 150 (quick: 40) in each mode.

    With the numbers of atoms for each mode, 9, 27 and 45 in total, one tensor of each kind is denoised.
    """
    size = (40 if quick else 150) if size is None else size
    cases = [(d, task, seed) for seed in range(seeds or 2) for d in TRUE_ATOMS for task in ("denoise", "complete")]
    cases += [] if quick else [(dataset, "denoise", 0) for dataset in PER_MODE]
    return [
        {"dataset": dataset, "size": size, "task": task, "seed": seed, "method": method}
        for dataset, task, seed in cases
        for method in NAMES
    ]


def numbers_of(dataset, size):
    """Return the numbers of atoms that are fitted."""
    if dataset in PER_MODE:
        return [PER_MODE[dataset] // 3, PER_MODE[dataset]]
    return [number for number in (NUMBERS if size >= 150 else QUICK_NUMBERS) if 2 * number <= size]


def run(job):
    """Yield the errors of one method on one tensor for each number of atoms.

    Denoising: unit noise, RMSE to the clean tensor over all entries, |X - W|^2 / 2, and the Hamming error of the bits.
    Completion: no noise, a tenth of the entries removed, RMSE over all entries and over the removed ones.
    """
    size, is_noisy = job["size"], job["task"] == "denoise"
    how = {"noise": 1.0} if is_noisy else {"missing": MISSING}
    seed = seed_of(job["dataset"], size, job["seed"])
    n_true = (TRUE_ATOMS | PER_MODE)[job["dataset"]]
    X, clean, truth = make_boolean_cp((size,) * 3, n_true, random_state=seed, **how)
    gaps, numbers = np.isnan(X), numbers_of(job["dataset"], size)
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


def summary(table):
    """Return tables of errors and wrong bits: the true number of atoms and 20, few atoms, the other reading."""
    pairs = [(name, n) for name, n_true in TRUE_ATOMS.items() for n in (n_true, 20)]
    few = [(name, 3) for name in list(TRUE_ATOMS)[1:]]
    other = [(name, n) for name in PER_MODE for n in numbers_of(name, 150)]
    texts = (
        f"{style.n_seeds(table)}, means. RMSE to the clean tensor and, in brackets, the share of wrong bits.",
        "The same with three atoms:",
        "The other reading, as many atoms for each mode (9, 27 and 45 in total), one tensor each:",
        "Completion, a tenth of the entries removed, no noise: RMSE over all entries at the true number of atoms.",
    )
    kinds = (("denoise", pairs), ("denoise", few), ("denoise", other), ("complete", list(TRUE_ATOMS.items())))
    for text, (task, columns) in zip(texts, kinds, strict=True):
        lines = [
            [style.LABELS.get(m, m), *(error_cell(table, task, m, *pair) for pair in columns)] for m in style.LOOKS
        ]
        heads = [f"{name}: {n} atoms" for name, n in columns]
        yield f"{text}\n\n{as_text(['', *heads], lines)}"


def error_cell(table, task, method, dataset, n_atoms):
    """Return the mean error and the mean share of wrong bits as text."""
    keys = {"task": task, "method": method, "dataset": dataset, "n_atoms": n_atoms}
    for key, wanted in keys.items():
        table = table[table[key] == wanted]
    mean = table.groupby("metric")["value"].mean()
    bits = f" ({mean['hamming']:.2f})" if "hamming" in mean else ""
    return f"{mean['rmse']:.3g}{bits}" if "rmse" in mean else "-"


def draw(table):
    """Return the figure: a row for each task and metric, a column for each dataset."""
    datasets = [name for name in TRUE_ATOMS if name in set(table["dataset"])]
    size = int(table["size"].max())
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
        top.set_title(f"{dataset}: {TRUE_ATOMS[dataset]} atoms, {size} x {size} x {size}")
        bottom.set_xlabel("number of atoms")
    text = (
        f"{'Quick run: ' * (size < 150)}Mean over {style.n_seeds(table)}; bars from the lowest to the highest seed. "
        f"Dotted: true number of atoms.\nCompletion: {MISSING:.0%} of the entries removed, no noise; values below "
        f"{FLOOR:g} are drawn there."
    )
    return style.finish(canvas, axes.flat, 4, text)


if __name__ == "__main__":
    main("fig1")
