"""Figure 3: the electrode array with its areas."""

import numpy as np

from boolcp.experiments import _recordings, _style

AREAS = {
    "MP": ("medial prefrontal", _style.BLACK),
    "LP": ("lateral prefrontal", _style.ORANGE),
    "PM": ("premotor", _style.SKY),
    "MS": ("motor and somatosensory", _style.GREEN),
    "PC": ("parietal", _style.YELLOW),
    "TC": ("temporal", _style.BLUE),
    "HV": ("higher visual", _style.VERMILION),
    "LV": ("lower visual", _style.PURPLE),
}
TITLES = {_recordings.SIMULATED: "simulated array", _recordings.REAL: "128-electrode array, bipolar pairs"}


def plan(*, quick=False, seeds=None, recording=None):
    """Return one job for each electrode map."""
    if recording is not None:
        return [{"map": f"{_recordings.GIVEN}: {recording}"}]
    return [{"map": name} for name in _recordings.electrodes()]


def run(job):
    """Yield position, area and bipolar partner (-1 if none) of each electrode."""
    if job["map"].startswith(_recordings.GIVEN):
        x, y, area = given_electrodes(job["map"].partition(": ")[2])
    else:
        x, y, area = _recordings.electrodes()[job["map"]]
    partner = np.full(len(x), -1)
    if job["map"] == _recordings.REAL:
        for plus, minus in _recordings.bipolar_pairs():
            partner[plus - 1] = minus
    for n, row in enumerate(zip(x, y, area, partner, strict=True), 1):
        yield {"electrode": n, "x": float(row[0]), "y": float(row[1]), "area": str(row[2]), "partner": int(row[3])}


def given_electrodes(recording):
    """Return x, y and area of the electrodes of a recording that has a map beside it."""
    from boolcp.io import open_tensor

    condition = _recordings.conditions_of(recording)[0]
    X = open_tensor(recording) if condition == "all" else open_tensor(recording, condition=condition)
    if "x" not in X.coords or "y" not in X.coords:
        raise ValueError(f"{recording} has no positions of its electrodes: put a table electrodes.csv beside it.")
    area = X.coords["area"].to_numpy() if "area" in X.coords else np.full(X.sizes["channel"], "")
    return X.coords["x"].to_numpy(), X.coords["y"].to_numpy(), area


@_style.styled
def draw(table):
    """Return the figure: each map with its electrodes colored by area, pairs of a bipolar reference joined."""
    maps = list(dict.fromkeys(table["map"]))
    canvas, axes = _style.figure(1, len(maps), _style.PAGE, 3.6)
    for ax, name in zip(axes[0], maps, strict=True):
        rows = table[table["map"] == name].set_index("electrode")
        for _, row in rows[rows["partner"] > 0].iterrows():
            other = rows.loc[row["partner"]]
            ax.plot([row["x"], other["x"]], [row["y"], other["y"]], color="0.75", linewidth=2.5, zorder=1)
        for area, part in rows.groupby("area"):
            label, color = AREAS.get(str(area), (str(area), "0.5"))
            style = {"s": 16, "color": color, "edgecolor": "0.25", "linewidth": 0.4, "zorder": 2}
            ax.scatter(part["x"], part["y"], label=f"{area}: {label}", **style)
        ax.set_title(TITLES.get(name, name))
        ax.set_aspect("equal")
        ax.set_axis_off()
    _style.legend_below(canvas, axes, 4)
    return canvas
