"""Figure 4: Boolean factors of atoms on the electrodes, one column for each condition."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from boolcp.bmp import BMP
from boolcp.experiments import _recordings, _style
from boolcp.experiments._methods import DEFAULT, PUBLISHED, RANK_ONE
from boolcp.experiments._table import Job, Row, seed_of
from boolcp.experiments.fig3_electrodes import given_electrodes
from boolcp.plotting import OFF, ON, plot_electrodes

USES = ("boolcp.experiments._recordings",)
N_ATOMS = 3
N_RECORDINGS = 3  # simulated ones
PUBLISHED_FREE = f"{PUBLISHED}, any mode"
METHODS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    RANK_ONE: {"atom_rank": 1, "background": None},
    PUBLISHED: {"atom_rank": None, "background": None, "criterion": "published", "refine": False, "boolean_modes": [0]},
    PUBLISHED_FREE: {"atom_rank": None, "background": None, "criterion": "published", "refine": False},
}
LABELS = {PUBLISHED: "as published,\nchannels only", RANK_ONE: "rank one", DEFAULT: "default"}
SPECTRA = "spectra"


def plan(*, quick: bool = False, seeds: int | None = None, recording: str | None = None) -> list[Job]:
    """Return one job for each recording, condition and method; quick simulates one, of 64 electrodes."""
    n_recordings = 1 if quick or recording is not None else N_RECORDINGS
    jobs = [
        {"group": group, "condition": condition, "size": 64 if quick else 128, "seed": seed, "method": method}
        for seed in range(n_recordings if seeds is None else seeds)
        for group, condition in _recordings.sources(recording, real_names=())
        for method in METHODS
    ]
    if recording is None and _recordings.spectra() is not None and not quick:
        jobs += [
            {"group": SPECTRA, "condition": name, "size": 127, "seed": 0, "method": DEFAULT}
            for name in _recordings.STATES
        ]
    return jobs


def run(job: Job) -> Iterator[Row]:
    """Yield the bits of all atoms along the electrodes, in the order of their sizes, and the true ones if known.

    Simulated and given recordings: channel x time x trial, every mode may be Boolean, and the atoms that are so along
    the channels are shown. The printed algorithm rarely takes these: it is also run with channels as the only Boolean
    mode. Spectra: channel x frequency of one state, centered over the states, Boolean along the channels.
    """
    X, x, y, area, truth = recording_of(job)
    options = METHODS[job["method"]] | ({"boolean_modes": [0]} if X.ndim == 2 else {})
    W = BMP(N_ATOMS, random_state=seed_of(*job.values()), **options).fit(X).decomposition_
    order = np.argsort(-np.abs(W.weights), kind="stable")
    spatial = [W.atoms[k].z for k in order if W.atoms[k].mode == 0]
    maps = {f"atom {rank}": z for rank, z in enumerate(spatial, 1)}
    if truth is not None:
        maps["truth"] = truth
    for atom, z in maps.items():
        for n, bit in enumerate(z):
            place = {"x": float(x[n]), "y": float(y[n]), "area": str(area[n])}
            yield {"atom": atom, "electrode": n + 1, **place, "value": int(bit)}


def recording_of(job: Job) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the tensor of a job, positions and areas of its channels, and the true bits where they are known."""
    if job["group"] == SPECTRA:
        states = list(_recordings.STATES)
        X = np.asarray(_recordings.spectra())[:, :, states.index(job["condition"])]
        x, y, area = (np.delete(values, 62) for values in _recordings.electrodes()[_recordings.REAL])
        return X, x, y, area, None
    truth = None
    if job["group"] == _recordings.SIMULATED:
        labeled, truth = _recordings.simulated(job["size"], job["seed"])[job["condition"]]
    else:
        labeled = _recordings.load(job["group"], job["condition"], job["size"])
    if "x" in labeled.coords:
        x, y = labeled.coords["x"].to_numpy(), labeled.coords["y"].to_numpy()
        area = labeled.coords["area"].to_numpy() if "area" in labeled.coords else np.full(len(x), "")
    else:
        x, y, area = given_electrodes(job["group"].partition(": ")[2])
    return np.ascontiguousarray(labeled.to_numpy(), dtype=float), x, y, area, truth


def wrong_bits(table: Any) -> dict[tuple[str, int, str], tuple[str, int]]:
    """Return for each simulated (condition, recording, method) the atom closest to the truth and its wrong bits.

    Where no atom lies along the channels, the atom is "" and half of the bits count as wrong.
    """
    found = {}
    rows = table[table["group"] == _recordings.SIMULATED]
    for (condition, seed, method), part in rows.groupby(["condition", "seed", "method"], sort=False):
        bits = {atom: group["value"].to_numpy() for atom, group in part.groupby("atom")}
        truth = bits.pop("truth")
        wrong = {atom: int(np.sum(z != truth)) for atom, z in bits.items()}
        best = min(wrong, key=lambda atom: wrong[atom], default="")
        found[condition, int(seed), method] = best, wrong.get(best, len(truth) // 2)
    return found


@_style.styled
def draw(table: Any) -> Any:
    """Return the figure: a row for the truth and for each atom shown, a column for each condition."""
    groups = list(dict.fromkeys(table["group"]))
    lines = {group: lines_of(table, group) for group in groups}
    heights = [0.3 + 1.5 * len(lines[group]) for group in groups]
    canvas, _ = _style.figure(1, 1, _style.PAGE, 0.4 + sum(heights))
    canvas.clear()
    parts = canvas.subfigures(len(groups), 1, height_ratios=heights, squeeze=False)[:, 0]
    letters = []
    for part, group in zip(parts, groups, strict=True):
        conditions = list(dict.fromkeys(table[table["group"] == group]["condition"]))
        axes = part.subplots(len(lines[group]), len(conditions), squeeze=False)
        part.suptitle(title_of(table, group), fontsize=8)
        for n, (line, (method, atom, label)) in enumerate(zip(axes, lines[group], strict=True)):
            for ax, condition in zip(line, conditions, strict=True):
                draw_map(ax, table, group, condition, method, atom)
                ax.set_title("" if n else condition, fontsize=7.5, pad=8)
            line[0].set_ylabel(label, fontsize=7)
        letters += list(axes.flat)
    _style.letter(np.array(letters))
    for color, text in ((ON, "1 (on)"), (OFF, "0 (off)")):
        letters[0].scatter([], [], color=color, edgecolor="0.25", linewidth=0.4, s=16, label=text)
    _style.legend_below(canvas, np.array(letters), 2)
    return canvas


def lines_of(table: Any, group: str) -> list[tuple[str, str, str]]:
    """Return (method, atom, label) of each row of panels of one group; the atom "best" is the one closest to truth."""
    methods = [method for method in dict.fromkeys(table[table["group"] == group]["method"]) if method in LABELS]
    if group == _recordings.SIMULATED:
        return [(methods[0], "truth", "truth"), *((method, "best", LABELS[method]) for method in methods)]
    return [(method, atom, f"{LABELS[method]},\n{atom}") for method in methods for atom in ("atom 1", "atom 2")]


def title_of(table: Any, group: str) -> str:
    """Return what the panels of one group show."""
    part = table[table["group"] == group]
    n = part["electrode"].max()
    if group == _recordings.SIMULATED:
        others = part["seed"].nunique()
        return (
            f"Simulated, {n} electrodes: the area rhythm, and the closest of {N_ATOMS} atoms of recording 1 of {others}"
        )
    return f"{group.partition(':')[0].capitalize()}, {n} electrodes: the two largest of {N_ATOMS} atoms"


def draw_map(ax: Any, table: Any, group: str, condition: str, method: str, atom: str) -> None:
    """Draw the bits of one atom of the first recording, with the number of wrong or of set bits below."""
    rows = table[(table["group"] == group) & (table["condition"] == condition) & (table["method"] == method)]
    text = ""
    if atom == "best":
        found = wrong_bits(table)
        atom = found[condition, 0, method][0]
        seeds = sorted({int(seed) for seed in rows["seed"]})
        text = "wrong: " + ", ".join(str(found[condition, seed, method][1]) for seed in seeds)
    rows = rows[(rows["atom"] == atom) & (rows["seed"].astype(int) == 0)]
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    if rows.empty:
        ax.text(0.5, 0.5, "no such atom\nalong the electrodes", transform=ax.transAxes, ha="center", fontsize=6.5)
    else:
        areas = rows["area"].fillna("").to_numpy()
        plot_electrodes(rows[["x", "y"]], rows["value"] == 1, areas=areas, legend=False, size=9, ax=ax)
        text = text or f"{int(rows['value'].sum())} of {len(rows)} on"
    ax.set_xlabel(text, fontsize=6.5)
