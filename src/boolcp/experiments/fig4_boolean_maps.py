"""Figure 4: Boolean factors of atoms on the electrodes, one column for each condition."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from boolcp.bmp import BMP
from boolcp.experiments import _recordings, _style
from boolcp.experiments._table import Job, Row, seed_of
from boolcp.experiments.fig3_electrodes import given_electrodes
from boolcp.plotting import OFF, ON, plot_electrodes

USES = ("boolcp.experiments._recordings",)
N_ATOMS = 3
METHODS: dict[str, dict[str, Any]] = {
    "BMP": {"atom_rank": 1},
    "BMP as published": {"atom_rank": None, "criterion": "published", "refine": False},
}


def plan(*, quick: bool = False, seeds: int | None = None, recording: str | None = None) -> list[Job]:
    """Return one job for each condition and method; quick simulates 64 electrodes."""
    groups = _recordings.sources(recording, real_names=())
    jobs = [
        {"group": group, "condition": condition, "size": 64 if quick else 128, "method": method}
        for group, condition in groups
        for method in METHODS
    ]
    if recording is None and _recordings.spectra() is not None and not quick:
        jobs += [{"group": "spectra", "condition": name, "size": 127, "method": "BMP"} for name in _recordings.STATES]
    return jobs


def run(job: Job) -> Iterator[Row]:
    """Yield the bits of the first atoms along the electrodes, in the order of their sizes, and the true ones if known.

    Simulated and given recordings: channel x time x trial, every mode may be Boolean, and the atoms that are so along
    the channels are shown (of the printed algorithm: with channels as the only Boolean mode, as it rarely takes
    them otherwise). Spectra: channel x frequency of one state, centered over the states, Boolean along the channels.
    """
    if job["group"] == "spectra":
        states = list(_recordings.STATES)
        X = np.asarray(_recordings.spectra())[:, :, states.index(job["condition"])]
        x, y, _ = (np.delete(values, 62) for values in _recordings.electrodes()[_recordings.REAL])
    else:
        X = _recordings.load(job["group"], job["condition"], job["size"])
        x, y = positions(X, job)
        X = np.ascontiguousarray(X.to_numpy(), dtype=float)
    options = METHODS[job["method"]]
    is_free = X.ndim > 2 and job["method"] == "BMP"
    model = BMP(N_ATOMS, boolean_modes=None if is_free else [0], random_state=seed_of(*job.values()), **options)
    W = model.fit(X).decomposition_
    spatial = [atom for atom in W.atoms if atom.mode == 0]
    order = np.argsort([-abs(c) for c, atom in zip(W.weights, W.atoms, strict=True) if atom.mode == 0], kind="stable")
    maps = {f"atom {rank}": spatial[k].z for rank, k in enumerate(order[:2], 1)}
    if job["group"] == _recordings.SIMULATED:
        maps["truth"] = _recordings.true_bits(job["size"], job["condition"])
    for atom, z in maps.items():
        for n, bit in enumerate(z):
            yield {"atom": atom, "electrode": n + 1, "x": float(x[n]), "y": float(y[n]), "value": int(bit)}


def positions(X: Any, job: Job) -> tuple[np.ndarray, np.ndarray]:
    """Return where the channels of a tensor lie."""
    if "x" in X.coords:
        return X.coords["x"].to_numpy(), X.coords["y"].to_numpy()
    return given_electrodes(job["group"].partition(": ")[2])[:2]


@_style.styled
def draw(table: Any) -> Any:
    """Return the figure: a row for the truth and for each atom shown, a column for each condition."""
    rows = []
    for group in dict.fromkeys(table["group"]):
        part = table[table["group"] == group]
        if group == _recordings.SIMULATED:
            rows.append((group, "BMP", "truth", "simulated:\ntrue area rhythm"))
        for method in dict.fromkeys(part["method"]):
            atoms = ("atom 1",) if group == _recordings.SIMULATED else ("atom 1", "atom 2")
            rows += [(group, method, atom, f"{group.partition(':')[0]}:\n{method}, {atom}") for atom in atoms]
    conditions = {group: list(dict.fromkeys(table[table["group"] == group]["condition"])) for group, *_ in rows}
    width = max(len(names) for names in conditions.values())
    canvas, axes = _style.figure(len(rows), width, _style.PAGE, 0.5 + 1.45 * len(rows))
    for line, (group, method, atom, label) in zip(axes, rows, strict=True):
        for ax, condition in zip(line, conditions[group], strict=False):
            part = table[(table["group"] == group) & (table["condition"] == condition) & (table["method"] == method)]
            part = part[part["atom"] == atom]
            if part.empty:
                ax.text(0.5, 0.5, "no atom along the electrodes", transform=ax.transAxes, ha="center", fontsize=7)
            else:
                plot_electrodes(part[["x", "y"]], part["value"] == 1, legend=False, size=14, ax=ax)
            ax.set_title(condition)
        line[0].text(-0.12, 0.5, label, transform=line[0].transAxes, rotation=90, ha="center", va="center", fontsize=7)
        for ax in line:
            ax.set_axis_off()
    for color, text in ((ON, "1 (on)"), (OFF, "0 (off)")):
        axes[0, 0].scatter([], [], color=color, edgecolor="0.25", linewidth=0.4, s=16, label=text)
    _style.legend_below(canvas, axes, 2)
    return canvas
