"""Figure 3: the electrode array with its areas."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from boolcp.experiments import _recordings, _style
from boolcp.experiments._table import Job, Row
from boolcp.io import open_tensor
from boolcp.plotting import plot_electrodes

USES = ("boolcp.datasets.ecog",)
TITLES = {_recordings.SIMULATED: "simulated array", _recordings.REAL: "128-electrode array, bipolar pairs"}


def plan(*, quick: bool = False, seeds: int | None = None, recording: str | None = None) -> list[Job]:
    """Return one job for each electrode map."""
    if recording is not None:
        return [{"map": f"{_recordings.GIVEN}: {recording}"}]
    return [{"map": name} for name in _recordings.electrodes()]


def run(job: Job) -> Iterator[Row]:
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


def given_electrodes(recording: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, y and area of the electrodes of a recording that has a map beside it."""
    condition = _recordings.conditions_of(recording)[0]
    X = open_tensor(recording) if condition == "all" else open_tensor(recording, condition=condition)
    if "x" not in X.coords or "y" not in X.coords:
        raise ValueError(f"{recording} has no positions of its electrodes: put a table electrodes.csv beside it.")
    area = X.coords["area"].to_numpy() if "area" in X.coords else np.full(X.sizes["channel"], "")
    return X.coords["x"].to_numpy(), X.coords["y"].to_numpy(), area


@_style.styled
def draw(table: Any) -> Any:
    """Return the figure: each map with its electrodes colored by area, pairs of a bipolar reference joined."""
    maps = list(dict.fromkeys(table["map"]))
    canvas, axes = _style.figure(1, len(maps), _style.PAGE, 3.6)
    for ax, name in zip(axes[0], maps, strict=True):
        rows = table[table["map"] == name].set_index("electrode")
        place = {electrode: n for n, electrode in enumerate(rows.index)}
        pairs = [(place[one], place[other]) for one, other in rows["partner"].items() if other > 0]
        areas = rows["area"].fillna("").to_numpy()
        plot_electrodes(rows[["x", "y"]], areas=areas, pairs=pairs, legend=False, size=16, ax=ax)
        ax.set_title(TITLES.get(name, name))
    for ax, name in zip(axes[0], "ab", strict=False):  # maps have no frame
        ax.set_title(name, loc="left", weight="bold", fontsize=9)
    _style.legend_below(canvas, axes, 4)
    return canvas
