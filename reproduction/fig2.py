"""Figure 2: denoising and completion of recordings, by the number of atoms and by that of real parameters."""

import numpy as np
import recordings
import style
from methods import BLOCKS, NAMES, PUBLISHED, RANK_ONE, estimates
from tables import main, seed_of
from tables import table as as_text

from boolcp.metrics import rmse

NUMBERS = (1, 2, 3, 5, 10)
MORE = {"CP": (20, 40), "Tucker": (15, 20)}  # as many parameters as blocks have
QUICK_NUMBERS = (1, 3)
MISSING = 0.1
PANELS = (("denoise", "n_atoms", "denoising RMSE"), ("denoise", "parameters", "denoising RMSE"))
PANELS += (("complete", "n_atoms", "completion RMSE"),)
LABELS = {"n_atoms": "number of atoms", "parameters": "real parameters"}


def plan(*, quick=False, seeds=None):
    """Return the jobs: recording and condition x task x seed x method; quick has 64 electrodes."""
    sources = recordings.sources()
    return [
        {"group": group, "condition": condition, "size": 64 if quick else 128, "task": task}
        | {"seed": n, "method": name}
        for n in range(1 if seeds is None else seeds)
        for group, condition in (sources[:1] + sources[-1:] if quick else sources)
        for task in ("denoise", "complete")
        for name in NAMES
    ]


def run(job):
    """Yield the errors of one method on one recording for each number of atoms.

    As on the synthetic tensors: unit noise is added to the standardized recording, and the error is the distance to
    the recording without it; or a tenth of the entries is removed, and the error is that of the removed ones
    ("missing") and of all. Noise within the recording itself counts as signal.
    """
    clean = recordings.load(job["group"], job["condition"], job["size"])
    rng = np.random.default_rng(seed_of("fig2", job["condition"], job["task"], job["seed"]))
    if job["task"] == "denoise":
        X, mask = clean + rng.standard_normal(clean.shape), None
    else:
        X, mask = clean, rng.random(clean.shape) >= MISSING
    numbers = QUICK_NUMBERS if job["size"] < 128 else NUMBERS
    if job["task"] == "denoise" and job["size"] >= 128:
        numbers += MORE.get(job["method"], ())
    for n_atoms, candidates in estimates(job["method"], X, numbers, seed_of(*job.values()), mask):
        tensors = [W.to_tensor() for W in candidates]
        errors = [rmse(W, clean) for W in tensors]
        values = {"rmse": min(errors), "parameters": n_parameters(candidates[int(np.argmin(errors))])}
        if mask is not None:
            values["rmse_missing"] = min(rmse(W[~mask], clean[~mask]) for W in tensors)
        for metric, value in values.items():
            yield {"n_atoms": n_atoms, "metric": metric, "value": value}


def n_parameters(W):
    """Return the free real parameters of a decomposition; scales and rotations of CP and Tucker do not count."""
    if hasattr(W, "core"):
        return int(W.core.size + sum(r * (d - r) for r, d in zip(W.core.shape, W.shape, strict=True)))
    return W.n_parameters if hasattr(W, "n_bits") else len(W.weights) * (sum(map(len, W.factors)) - len(W.factors) + 1)


def summary(table):
    """Return the errors with three atoms, and what is said about all cells."""
    wide = table.pivot_table(
        index=["task", "condition", "n_atoms", "seed"], columns=["metric", "method"], values="value", sort=False
    )
    wide = wide.groupby(level=["task", "condition", "n_atoms"], sort=False).mean()
    for task, metric in (("denoise", "rmse"), ("complete", "rmse_missing")):
        found = wide[metric].xs((task, 3), level=("task", "n_atoms"))
        order = found.mean().sort_values().index
        lines = [[style.LABELS.get(name, name), *(f"{value:.2f}" for value in found[name])] for name in order]
        yield f"{task}, 3 atoms, {style.n_seeds(table)}:\n\n{as_text(['', *found.index], lines)}"
    shown = wide[wide.index.get_level_values("n_atoms") <= max(NUMBERS)]
    denoise, complete = (shown[m].xs(t, level="task") for t, m in (("denoise", "rmse"), ("complete", "rmse_missing")))
    lines = [
        [f"{PUBLISHED} ahead of {name}, 3 atoms", ahead(denoise.xs(3, level=1), PUBLISHED, name)]
        for name in ("CP", "Tucker", "LFM")
    ]
    lines += [
        ["LFMmix ahead of the printed algorithm, denoising", ahead(denoise, "LFMmix", PUBLISHED)],
        ["LFMmix ahead of the printed algorithm, completion", ahead(complete, "LFMmix", PUBLISHED)],
        ["rank one ahead of CP, denoising", ahead(denoise, RANK_ONE, "CP")],
        ["rank one behind CP, at most", f"{(denoise[RANK_ONE] / denoise['CP']).max():.2f} times the error"],
        ["blocks with 10 atoms behind the printed algorithm", ahead(denoise.xs(10, level=1), PUBLISHED, BLOCKS)],
        *(
            [f"CP ahead at no more parameters than 3 atoms: {name}", fewer(wide, name)]
            for name in (PUBLISHED, RANK_ONE, BLOCKS)
        ),
    ]
    yield as_text(["of the recordings, or of them times numbers of atoms", "cells"], lines)


def ahead(cells, one, other):
    """Return in how many cells the error of one method is below that of another."""
    return f"{int((cells[one] < cells[other]).sum())} of {len(cells)}"


def fewer(wide, name):
    """Return on how many recordings CP is ahead of three atoms of a method with at most as many real parameters."""
    wide = wide.xs("denoise", level="task")
    ours, count = (wide[metric][name].xs(3, level="n_atoms") for metric in ("rmse", "parameters"))
    n_ahead = 0
    for condition, error in ours.items():
        rows = wide.xs(condition, level="condition")
        allowed = rows["parameters"]["CP"] <= max(count[condition], rows["parameters"]["CP"].loc[3])
        n_ahead += int(rows["rmse"]["CP"][allowed].min() < error)
    return f"{n_ahead} of {len(ours)}"


def draw(table):
    """Return the figure: a column for each recording, of simulated ones the first, a row for each task and axis."""
    names = list(dict.fromkeys(zip(table["group"], table["condition"], strict=True)))
    names = [name for name in names if name[0] != recordings.SIMULATED or name[1] == recordings.CONDITIONS[0]]
    canvas, axes = style.figure(len(PANELS), len(names), 5.4)
    for n, (column, (group, condition)) in enumerate(zip(axes.T, names, strict=True)):
        for ax, (task, x, label) in zip(column, PANELS, strict=True):
            rows = table[(table["group"] == group) & (table["condition"] == condition) & (table["task"] == task)]
            keys = ["method", "seed", "n_atoms"]
            wide = rows.pivot_table(index=keys, columns="metric", values="value").reset_index()
            wide = wide.assign(value=wide["rmse" if task == "denoise" else "rmse_missing"])
            style.curves(ax, wide if x == "parameters" else wide[wide["n_atoms"] <= max(NUMBERS)], x=x)
            ax.set(
                xscale="log" if x == "parameters" else "linear",
                xlabel=LABELS[x],
                ylabel=None if n else label,
            )
            if x == "n_atoms":
                ax.set_xticks([1, 5, 10])
        column[0].set_title(f"{group}:\n{condition}", fontsize=7.5)
    size = int(table["size"].max())
    missing = "" if table["group"].nunique() > 1 else " Real recordings: set BOOLCP_DATA to their folder."
    text = (
        f"{f'Quick run, {size} electrodes: ' * (size < 128)}{style.n_seeds(table)}, mean and range, in standard "
        f"deviations of the recording; {recordings.RATE:g} samples per second (high gamma: 10), bins of 3 s.\n"
        f"Denoising: unit noise added to standardized data. Completion: error of the {MISSING:.0%} removed.{missing}"
    )
    return style.finish(canvas, axes.flat, 4, text)


if __name__ == "__main__":
    main("fig2")
