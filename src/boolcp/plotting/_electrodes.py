"""Electrodes: their positions and areas, with a value on each."""

from typing import Any

import numpy as np

from boolcp.plotting.look import (
    EDGE,
    LINES,
    OFF,
    ON,
    UNKNOWN,
    diverging,
    draw_scale,
    legend_above,
    make_axes,
    on_off_patches,
    plain_text,
    shortened,
    symmetric,
)

AREAS = {  # of the paper's Figure 3
    "MP": ("medial prefrontal", "#000000"),
    "LP": ("lateral prefrontal", "#E69F00"),
    "PM": ("premotor", "#56B4E9"),
    "MS": ("motor and somatosensory", "#009E73"),
    "PC": ("parietal", "#F0E442"),
    "TC": ("temporal", "#0072B2"),
    "HV": ("higher visual", "#D55E00"),
    "LV": ("lower visual", "#CC79A7"),
}
SMALLEST, LARGEST = 5.0, 40.0  # points, in square points


def plot_electrodes(
    positions: Any,
    values: Any = None,
    *,
    areas: Any = None,
    pairs: Any = (),
    label: Any = "value",
    legend: bool = True,
    size: Any = None,
    ax: Any = None,
) -> Any:
    """Draw electrodes by area, or with a value on each, real (red to blue) or Boolean; return the Axes.

    Parameters
    ----------
    positions : array-like of shape (n, 2)
        Where the electrodes lie, in any unit. Electrodes without a position (NaN) are omitted.
    values : array-like of shape (n,), optional
        Booleans, or numbers; NaN and masked ones are gray.
    areas : sequence of str, optional
        The area of each electrode. Without values it sets the color; with values the areas are named.
    pairs : sequence of (int, int)
        Electrodes to join, by index: pairs of a bipolar reference.
    label : str
        The quantity and unit of real values, for the color scale.
    legend : bool
        Add legend or scale.
    size : float, optional
        Area of a point in square points; by default from the number of electrodes.
    ax : matplotlib Axes, optional
        Where to draw, above a picture of the brain, say; a new figure of column width if None.

    Examples
    --------
    >>> import numpy as np
    >>> from boolcp.datasets.ecog import cortex
    >>> from boolcp.plotting import plot_electrodes
    >>> positions, areas = cortex(128)
    >>> len(plot_electrodes(positions, areas=areas).collections)
    8
    >>> ax = plot_electrodes(positions, areas == "LV")
    >>> len(ax.collections[-1].get_offsets())
    128
    """
    positions = np.asarray(positions, dtype=float).reshape(len(positions), -1)
    if len(positions) and positions.shape[1] != 2:
        raise ValueError(f"positions must have two columns, x and y, but its shape is {positions.shape}.")
    for name, given in (("values", values), ("areas", areas)):
        if given is not None and len(given) != len(positions):
            raise ValueError(f"{name} has {len(given)} entries, but there are {len(positions)} positions.")
    positions, areas = positions.reshape(-1, 2), None if areas is None else np.array([str(area) for area in areas])
    ax = make_axes(ax, height=2.8)
    for first, second in pairs:
        ax.plot(*positions[[first, second]].T, color="0.75", linewidth=2.5, zorder=1)
    size = float(np.clip(2400 / max(len(positions), 1), SMALLEST, LARGEST)) if size is None else size
    if values is None:
        draw_areas(ax, positions, areas, size, legend)
    else:
        for area in () if areas is None else dict.fromkeys(areas[np.isfinite(positions).all(axis=1)]):
            place = np.nanmean(positions[areas == area], axis=0)
            ax.text(*place, plain_text(shortened(area)), zorder=3, fontsize=6.5, ha="center", va="center")
        draw_values(ax, positions, values, size, label if legend else None)
    ax.set_aspect("equal", adjustable="datalim")  # the Axes keep their size, so that legends have room
    ax.margins(0.06)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax


def draw_areas(ax: Any, positions: Any, areas: Any, size: Any, legend: bool) -> None:
    """Draw electrodes colored by area, all in one color without areas."""
    if areas is None:
        ax.scatter(*positions.T, s=size, color=LINES[0], zorder=2, **EDGE)
        return
    for n, area in enumerate(dict.fromkeys([*(name for name in AREAS if name in areas), *areas])):
        name, color = AREAS.get(area, ("", LINES[n % len(LINES)]))
        text = f"{area}: {name}" if name else area or "no area"
        look = {"s": size, "color": color, "label": plain_text(shortened(text, 40))}
        look["marker"] = "o" if area in AREAS else "osD^vP"[n // len(LINES) % 6]  # no two areas look alike
        ax.scatter(*positions[areas == area].T, zorder=2, **look, **EDGE)
    if legend:
        legend_above(ax)


def draw_values(ax: Any, positions: Any, values: Any, size: Any, label: Any) -> None:
    """Draw one value on each electrode, with a scale or legend unless `label` is None."""
    values = np.ma.asarray(values)
    unknown = np.ma.getmaskarray(values)
    look = {"s": size, "zorder": 2, **EDGE}
    if values.dtype.kind == "b":
        colors = np.where(unknown, UNKNOWN, np.where(values.data, ON, OFF))
        ax.scatter(*positions.T, color=colors, **look)
        if label is not None:
            legend_above(ax, on_off_patches(bool(unknown.any())))
        return
    numbers = np.where(unknown, np.nan, values.data.astype(float))
    look |= {"cmap": diverging(), "plotnonfinite": True, **symmetric(numbers)}
    points = ax.scatter(*positions.T, c=numbers, **look)
    if label is not None:
        draw_scale(ax, points, plain_text(label))
