"""Figure 2: denoising and completion of recordings, one column for each condition."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from boolcp.experiments import _recordings, _style
from boolcp.experiments._methods import NAMES, estimates
from boolcp.experiments._recordings import RATE
from boolcp.experiments._table import Job, Row, seed_of
from boolcp.metrics import rmse

USES = ("boolcp.metrics", "boolcp.experiments._recordings")
NUMBERS = (1, 2, 3, 5, 7, 10)
QUICK_NUMBERS = (1, 3, 5)
MISSING = 0.1
TASKS = {"denoise": "denoising RMSE (s.d.)", "complete": "completion RMSE (s.d.)"}


def plan(*, quick: bool = False, seeds: int | None = None, recording: str | None = None) -> list[Job]:
    """Return the jobs: recording and condition x task x seed x method; quick has 64 electrodes and one seed."""
    seeds = (1 if quick else 3) if seeds is None else seeds
    size, names = (64, _recordings.REAL_NAMES[2:3]) if quick else (128, _recordings.REAL_NAMES)
    return [
        {"group": group, "condition": condition, "size": size, "task": task, "seed": seed, "method": method}
        for seed in range(seeds)
        for group, condition in _recordings.sources(recording, real_names=names)
        for task in TASKS
        for method in NAMES
    ]


def run(job: Job) -> Iterator[Row]:
    """Yield the errors of one method on one recording for each number of atoms.

    As on the synthetic tensors: unit noise is added to the standardized recording and the error is that to the
    recording without it; or a tenth of the entries is removed, and the error is that of the removed ones ("missing")
    and of all. Noise within the recording itself counts as signal.
    """
    clean = np.ascontiguousarray(_recordings.load(job["group"], job["condition"], job["size"]).to_numpy(), dtype=float)
    rng = np.random.default_rng(seed_of("fig2", job["condition"], job["task"], job["seed"]))
    if job["task"] == "denoise":
        X, mask = clean + rng.standard_normal(clean.shape), None
    else:
        X, mask = clean, rng.random(clean.shape) >= MISSING
    numbers = QUICK_NUMBERS if job["size"] < 128 else NUMBERS
    for n_atoms, candidates in estimates(job["method"], X, numbers, seed_of(*job.values()), mask=mask):
        tensors = [W.to_tensor() for W in candidates]
        yield {"n_atoms": n_atoms, "metric": "rmse", "value": min(rmse(W, clean) for W in tensors)}
        if mask is not None:
            value = min(rmse(W[~mask], clean[~mask]) for W in tensors)
            yield {"n_atoms": n_atoms, "metric": "rmse_missing", "value": value}


@_style.styled
def draw(table: Any) -> Any:
    """Return the figure: denoising and completion of each recording, in as many rows as their number asks for."""
    names = list(dict.fromkeys(zip(table["group"], table["condition"], strict=True)))
    width = 4 if len(names) > 3 else len(names)
    n_bands = -(-len(names) // width)
    canvas, axes = _style.figure(2 * n_bands, width, _style.PAGE, 1.2 + 3.4 * n_bands, sharex=True)
    for n, (group, name) in enumerate(names):
        for j, (task, label) in enumerate(TASKS.items()):
            ax = axes[2 * (n // width) + j, n % width]
            part = table[(table["group"] == group) & (table["condition"] == name) & (table["task"] == task)]
            part = part[part["metric"] == ("rmse" if task == "denoise" else "rmse_missing")]
            _style.curves(ax, part, dodge=0.006)
            ax.set_xticks(sorted(part["n_atoms"].unique()))
            ax.tick_params(labelbottom=task == "complete")
            if j == 0:
                ax.set_title(f"{group.partition(':')[0]}:\n{name}", fontsize=8)
            else:
                ax.set_xlabel("number of atoms")
            if n % width == 0:
                ax.set_ylabel(label)
    for ax in axes.flat:
        ax.set_axis_on() if ax.has_data() else ax.set_axis_off()
    _style.letter(axes)
    free = [ax for ax in axes.flat if not ax.axison]
    _style.legend_in(canvas, axes, free, 4)
    size, n_seeds = int(table["size"].max()), _style.n_seeds(table)
    kind = f"Quick run: simulated recording of {size} electrodes, " if size < 128 else ""
    missing = "" if table["group"].nunique() > 1 else " Real recordings: set BOOLCP_DATA to their folder."
    _style.note(
        canvas,
        f"{kind}{n_seeds}, mean and range; s.d.: standard deviations of the recording; {RATE:g} samples per "
        f"second (high gamma: 10), bins of 3 s.\n"
        f"Denoising: unit noise added to standardized data. Completion: error of the {MISSING:.0%} removed.{missing}",
    )
    return canvas
