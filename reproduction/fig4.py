"""Figure 4: Boolean factors of atoms on the electrodes, one column for each condition."""

import numpy as np
import recordings
import style
from matplotlib.patheffects import withStroke
from methods import BLOCKS, PUBLISHED, RANK_ONE, make
from tables import main, seed_of
from tables import table as as_text

from boolcp.plotting import OFF, ON, plot_electrodes

N_ATOMS = 3
N_RECORDINGS = 3  # simulated ones
NEAR = 0.2  # of the width of a map: names of areas that are closer cover each other
LABELS = {RANK_ONE: "rank one", BLOCKS: "blocks", PUBLISHED: "as published,\nchannels only"}
SPECTRA = "spectra"
SHOWN = {recordings.SIMULATED: f"the area rhythm, the closest of {N_ATOMS} atoms", SPECTRA: "the two largest atoms"}


def plan(*, quick=False, seeds=None):
    """Return one job for each recording, condition and method; quick simulates one, of 64 electrodes."""
    jobs = [
        {"group": recordings.SIMULATED, "condition": name, "size": 64 if quick else 128, "seed": seed, "method": method}
        for seed in range((1 if quick else N_RECORDINGS) if seeds is None else seeds)
        for name in recordings.CONDITIONS
        for method in LABELS
    ]
    if recordings.spectra() is not None and not quick:
        shared = {"size": 127, "seed": 0, "method": RANK_ONE}
        jobs += [{"group": SPECTRA, "condition": name, **shared} for name in recordings.STATES]
    return jobs


def run(job):
    """Yield the bits of all atoms along the electrodes, in the order of their sizes, and the true ones if known.

    Simulated recordings: channel x time x trial, every mode may be Boolean, and the atoms that are so along the
    channels are shown; for the printed algorithm, which rarely takes these, channels are the only Boolean mode.
    Spectra: channel x frequency of one state, centered over the states, Boolean along the channels.
    """
    X, x, y, area, truth = recording_of(job)
    modes = {"boolean_modes": [0]} if X.ndim == 2 or job["method"] == PUBLISHED else {}
    W = make(job["method"], N_ATOMS, seed_of(*job.values()), **modes).fit(X).decomposition_
    order = np.argsort(-np.abs(W.weights), kind="stable")
    spatial = [W.atoms[k].z for k in order if W.atoms[k].mode == 0]
    maps = {f"atom {rank}": z for rank, z in enumerate(spatial, 1)}
    if truth is not None:
        maps["truth"] = truth
    for atom, z in maps.items():
        for n, bit in enumerate(z):
            place = {"x": float(x[n]), "y": float(y[n]), "area": str(area[n])}
            yield {"atom": atom, "electrode": n + 1, **place, "value": int(bit)}


def recording_of(job):
    """Return the tensor of a job, positions and areas of its channels, and the true bits where they are known."""
    if job["group"] == SPECTRA:
        X = recordings.spectra()[:, :, list(recordings.STATES).index(job["condition"])]
        places = recordings.electrodes()[recordings.REAL][:3]
        return X, *(np.delete(values, recordings.BAD) for values in places), None
    labeled, truth = recordings.simulated(job["size"], job["seed"])[job["condition"]]
    places = (labeled.coords[name].to_numpy() for name in ("x", "y", "area"))
    return np.ascontiguousarray(labeled.to_numpy(), dtype=float), *places, truth


def wrong_bits(table):
    """Return for each simulated (condition, recording, method) the atom closest to the truth and its wrong bits.

    Where no atom lies along the channels, the atom is "" and half of the bits count as wrong.
    """
    found = {}
    rows = table[table["group"] == recordings.SIMULATED]
    for (condition, seed, method), part in rows.groupby(["condition", "seed", "method"], sort=False):
        bits = {atom: group["value"].to_numpy() for atom, group in part.groupby("atom")}
        truth = bits.pop("truth")
        wrong = {atom: int(np.sum(z != truth)) for atom, z in bits.items()}
        best = min(wrong, key=lambda atom: wrong[atom], default="")
        found[condition, int(seed), method] = best, wrong.get(best, len(truth) // 2)
    return found


def summary(table):
    """Return the wrong bits of the simulated recordings, and where the atoms of the spectra are on."""
    wrong = wrong_bits(table)
    lines = []
    for method in LABELS:
        for condition in recordings.CONDITIONS:
            found = {seed: one for (c, seed, m), one in wrong.items() if (c, m) == (condition, method)}
            cells = [str(n) if atom else f"{n} (no atom)" for _, (atom, n) in sorted(found.items())]
            lines.append([method, condition, ", ".join(cells)])
    text = (
        f"Wrong bits of 128, closest of {N_ATOMS} atoms, simulated recordings; 64 if no atom lies along the channels:"
    )
    yield f"{text}\n\n{as_text(['method', 'condition', 'wrong bits'], lines)}"
    spectra = table[table["group"] == SPECTRA]
    if len(spectra):
        lines = []
        for (state, atom), rows in spectra.groupby(["condition", "atom"], sort=False):
            areas = [rows[rows["area"] == area]["value"] for area in ("LV", "LP", "TC", "HV")]
            lines.append([state, atom, *(f"{int(v.sum())} of {len(v)}" for v in areas)])
        heads = ["state", "atom", "lower visual", "lateral prefrontal", "temporal", "higher visual"]
        yield f"Electrodes where atoms of the power spectra are on:\n\n{as_text(heads, lines)}"


def draw(table):
    """Return the figure: a row for the truth and for each atom shown, a column for each condition."""
    groups = list(dict.fromkeys(table["group"]))
    lines = {group: lines_of(table, group) for group in groups}
    heights = [0.3 + 1.35 * len(lines[group]) for group in groups]
    canvas, _ = style.figure(1, 1, 0.4 + sum(heights))
    canvas.clear()
    parts = canvas.subfigures(len(groups), 1, height_ratios=heights, squeeze=False)[:, 0]
    panels, wrong = [], wrong_bits(table)
    for part, group in zip(parts, groups, strict=True):
        rows = table[table["group"] == group]
        conditions = list(dict.fromkeys(rows["condition"]))
        axes = part.subplots(len(lines[group]), len(conditions), squeeze=False)
        part.suptitle(f"{group.capitalize()}, {rows['electrode'].max()} electrodes: {SHOWN[group]}", fontsize=8)
        for n, (line, (method, atom, label)) in enumerate(zip(axes, lines[group], strict=True)):
            for ax, condition in zip(line, conditions, strict=True):
                shown = rows[(rows["condition"] == condition) & (rows["method"] == method)]
                draw_map(ax, shown, atom, wrong)
                ax.set_title("" if n else condition, fontsize=7.5, pad=8)
            line[0].set_ylabel(label, fontsize=7)
        panels += list(axes.flat)
    for color, text in ((ON, "1 (on)"), (OFF, "0 (off)")):
        panels[0].scatter([], [], color=color, edgecolor="0.25", linewidth=0.4, s=16, label=text)
    return style.finish(canvas, panels, 2)


def lines_of(table, group):
    """Return (method, atom, label) of each row of panels of one group; the atom "best" is the one closest to truth."""
    methods = [method for method in dict.fromkeys(table[table["group"] == group]["method"]) if method in LABELS]
    if group == recordings.SIMULATED:
        return [(methods[0], "truth", "truth"), *((method, "best", LABELS[method]) for method in methods)]
    return [(method, atom, f"{LABELS[method]},\n{atom}") for method in methods for atom in ("atom 1", "atom 2")]


def draw_map(ax, rows, atom, wrong):
    """Draw the bits of one atom of the first recording, with the number of wrong or of set bits below."""
    text = ""
    if atom == "best":
        condition, method = rows["condition"].iloc[0], rows["method"].iloc[0]
        atom = wrong[condition, 0, method][0]
        text = "wrong: " + ", ".join(str(wrong[condition, seed, method][1]) for seed in sorted(set(rows["seed"])))
    rows = rows[(rows["atom"] == atom) & (rows["seed"] == 0)]
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    if rows.empty:
        ax.text(0.5, 0.5, "no such atom\nalong the electrodes", transform=ax.transAxes, ha="center", fontsize=6.5)
    else:
        places, halo = rows.groupby("area")[["x", "y"]].mean(), [withStroke(linewidth=1.5, foreground="white")]
        near = NEAR * np.ptp(rows["x"])
        for n, (area, place) in enumerate(places.iterrows()):  # a name that would cover an earlier one is left out
            if not (np.linalg.norm(places.iloc[:n] - place, axis=1) < near).any():
                ax.text(*place, area, zorder=3, fontsize=6.5, ha="center", va="center", path_effects=halo)
        plot_electrodes(rows[["x", "y"]], rows["value"] == 1, legend=False, size=9, ax=ax)
        text = text or f"{int(rows['value'].sum())} of {len(rows)} on"
    ax.set_xlabel(text, fontsize=6.5)


if __name__ == "__main__":
    main("fig4")
