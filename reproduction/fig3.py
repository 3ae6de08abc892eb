"""Figure 3: the electrode array with its areas."""

import recordings
import style
from tables import main

from boolcp.plotting import plot_electrodes

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
        plot_electrodes(rows[["x", "y"]], areas=rows["area"].to_numpy(), pairs=pairs, legend=False, size=16, ax=ax)
        ax.set_title(TITLES[name])
        ax.set_axis_on()
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    return style.finish(canvas, axes.flat, 4)


if __name__ == "__main__":
    main("fig3")
