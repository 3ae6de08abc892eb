"""Figure 2: denoising and completion of recordings, one column for each condition."""

import numpy as np
import recordings
import style
from methods import NAMES, estimates
from tables import main, seed_of

from boolcp.metrics import rmse

NUMBERS = (1, 2, 3, 5, 7, 10)
QUICK_NUMBERS = (1, 3, 5)
MISSING = 0.1
TASKS = {"denoise": "denoising RMSE (s.d.)", "complete": "completion RMSE (s.d.)"}


def plan(*, quick=False, seeds=None):
    """Return the jobs: recording and condition x task x seed x method; quick has 64 electrodes and one seed."""
    size, names = (64, recordings.REAL_NAMES[2:3]) if quick else (128, recordings.REAL_NAMES)
    return [
        {"group": group, "condition": condition, "size": size, "task": task, "seed": seed, "method": method}
        for seed in range((1 if quick else 3) if seeds is None else seeds)
        for group, condition in recordings.sources(names)
        for task in TASKS
        for method in NAMES
    ]


def run(job):
    """Yield the errors of one method on one recording for each number of atoms.

    As on the synthetic tensors: unit noise is added to the standardized recording and the error is that to the
    recording without it; or a tenth of the entries is removed, and the error is that of the removed ones ("missing")
    and of all. Noise within the recording itself counts as signal.
    """
    clean = recordings.load(job["group"], job["condition"], job["size"])
    rng = np.random.default_rng(seed_of("fig2", job["condition"], job["task"], job["seed"]))
    if job["task"] == "denoise":
        X, mask = clean + rng.standard_normal(clean.shape), None
    else:
        X, mask = clean, rng.random(clean.shape) >= MISSING
    numbers = QUICK_NUMBERS if job["size"] < 128 else NUMBERS
    for n_atoms, candidates in estimates(job["method"], X, numbers, seed_of(*job.values()), mask):
        tensors = [W.to_tensor() for W in candidates]
        yield {"n_atoms": n_atoms, "metric": "rmse", "value": min(rmse(W, clean) for W in tensors)}
        if mask is not None:
            value = min(rmse(W[~mask], clean[~mask]) for W in tensors)
            yield {"n_atoms": n_atoms, "metric": "rmse_missing", "value": value}


def draw(table):
    """Return the figure: denoising and completion of each recording, in as many rows as their number asks for."""
    names = list(dict.fromkeys(zip(table["group"], table["condition"], strict=True)))
    width = min(len(names), 4)
    n_bands = -(-len(names) // width)
    canvas, axes = style.figure(2 * n_bands, width, 1.2 + 3.4 * n_bands, sharex=True)
    for n, (group, name) in enumerate(names):
        for j, (task, label) in enumerate(TASKS.items()):
            ax = axes[2 * (n // width) + j, n % width]
            part = table[(table["group"] == group) & (table["condition"] == name) & (table["task"] == task)]
            part = part[part["metric"] == ("rmse" if task == "denoise" else "rmse_missing")]
            style.curves(ax, part, dodge=0.006)
            ax.set_xticks(sorted(part["n_atoms"].unique()))
            ax.tick_params(labelbottom=task == "complete")
            ax.set_xlabel("number of atoms" * j)
            ax.set_title("" if j else f"{group}:\n{name}", fontsize=8)
            ax.set_ylabel("" if n % width else label)
    for ax in axes.flat:
        if not ax.has_data():
            ax.set_axis_off()
    size = int(table["size"].max())
    kind = f"Quick run: simulated recording of {size} electrodes, " if size < 128 else ""
    missing = "" if table["group"].nunique() > 1 else " Real recordings: set BOOLCP_DATA to their folder."
    text = (
        f"{kind}{style.n_seeds(table)}, mean and range; s.d.: standard deviations of the recording; "
        f"{recordings.RATE:g} samples per second (high gamma: 10), bins of 3 s.\n"
        f"Denoising: unit noise added to standardized data. Completion: error of the {MISSING:.0%} removed.{missing}"
    )
    return style.finish(canvas, axes.flat, 4, text)


if __name__ == "__main__":
    main("fig2")
