"""Figure 3: the electrode array with its areas."""

import recordings
import style
from tables import main

COLORS = {"MP": style.BLACK, "LP": style.ORANGE, "PM": style.SKY, "MS": style.GREEN, "PC": style.YELLOW}
COLORS |= {"TC": style.BLUE, "HV": style.VERMILION, "LV": style.PURPLE}
TITLES = {recordings.SIMULATED: "simulated array", recordings.REAL: "128-electrode array, bipolar pairs"}


def plan(*, quick=False, seeds=None):
    """Return one job for each electrode map."""
    return [{"map": name} for name in recordings.electrodes()]


def run(job):
    """Yield position, area and bipolar partner (-1 if none) of each electrode."""
    for n, (x, y, area, partner) in enumerate(zip(*recordings.electrodes()[job["map"]], strict=True), 1):
        yield {"electrode": n, "x": float(x), "y": float(y), "area": str(area), "partner": int(partner)}


def draw(table):
    """Return the figure: each map with its electrodes colored by area, pairs of a bipolar reference joined."""
    maps = list(dict.fromkeys(table["map"]))
    canvas, axes = style.figure(1, len(maps), 3.6)
    for ax, name in zip(axes[0], maps, strict=True):
        rows = table[table["map"] == name].set_index("electrode")
        pairs = [(one - 1, other - 1) for one, other in rows["partner"].items() if other > 0]
        positions = rows[["x", "y"]].to_numpy()
        for pair in pairs:
            ax.plot(*positions[list(pair)].T, color="0.75", linewidth=2.5, zorder=1)
        colors = [COLORS.get(area, "0.6") for area in rows["area"]]
        ax.scatter(*positions.T, s=16, color=colors, edgecolor="0.25", linewidth=0.4, zorder=2)
        ax.set_aspect("equal", adjustable="datalim")
        ax.margins(0.06)
        ax.set_title(TITLES[name])
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    return style.finish(canvas, axes.flat, 4)


if __name__ == "__main__":
    main("fig3")
