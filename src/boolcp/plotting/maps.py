"""Electrodes with a value on each, on a plane or on a head: flattened positions, its outline, and values in between."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from boolcp.plotting import look

SMALLEST, LARGEST = 5.0, 40.0  # points, in square points
RADIUS = 1.0  # of the outline, at the equator of the sphere through the electrodes
REACH = 0.5  # a map says nothing farther than this from all electrodes, where it would only be extrapolated; not tuned
MIN_FIT = 8  # electrodes from which the sphere is fitted
GRID = 84  # cells of a map along each side
MAX_NAMES = 34  # most electrodes whose names are written


def plot_electrodes(
    positions: Any, values: Any, *, label: Any = "value", legend: bool = True, size: Any = None, ax: Any = None
) -> Any:
    """Draw electrodes with a value on each, real (red to blue) or Boolean; return the Axes.

    `positions` (n, 2) are in any unit; electrodes without one (NaN) are omitted. `values` (n,) are Booleans or numbers,
    gray where NaN or masked. `label` is the quantity and unit of real values, for the color scale; `legend=False` omits
    legend and scale. `size` is the area of a point in square points.

    Examples
    --------
    >>> positions, areas = boolcp.datasets.ecog.cortex(128)
    >>> len(boolcp.plotting.plot_electrodes(positions, areas == "LV").collections[-1].get_offsets())
    128
    """
    positions = np.asarray(positions, dtype=float).reshape(len(positions), -1)
    if len(positions) and positions.shape[1] != 2:
        raise ValueError(f"positions must have two columns, x and y, but its shape is {positions.shape}.")
    if len(values) != len(positions):
        raise ValueError(f"values has {len(values)} entries, but there are {len(positions)} positions.")
    ax = look.make_axes(ax, height=2.8)
    size = float(np.clip(2400 / max(len(positions), 1), SMALLEST, LARGEST)) if size is None else size
    draw_values(ax, positions.reshape(-1, 2), values, size, label if legend else None)
    ax.set_aspect("equal", adjustable="datalim")  # the Axes keep their size, so that legends have room
    ax.margins(0.06)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax


def draw_values(ax: Any, positions: Any, values: Any, size: Any, label: Any) -> None:
    """Draw one value on each electrode, with a scale or legend unless `label` is None."""
    values = np.ma.asarray(values)
    unknown = np.ma.getmaskarray(values)
    style = {"s": size, "zorder": 2, **look.EDGE}
    if values.dtype.kind == "b":
        colors = np.where(unknown, look.UNKNOWN, np.where(values.data, look.ON, look.OFF))
        ax.scatter(*positions.T, color=colors, **style)
        if label is not None:
            look.legend_above(ax, look.on_off_patches(bool(unknown.any())))
        return
    numbers = np.where(unknown, np.nan, values.data.astype(float))
    style |= {"cmap": look.diverging(), "plotnonfinite": True, **look.symmetric(numbers)}
    points = ax.scatter(*positions.T, c=numbers, **style)
    if label is not None:
        look.draw_scale(ax, points, look.plain_text(label))


def flatten(places: np.ndarray) -> np.ndarray:
    """Flatten positions around a head (n, 3), x right, y to the nose, z up, by the azimuthal equidistant projection."""
    rays = places - center(places)
    angle = np.arctan2(np.hypot(rays[:, 0], rays[:, 1]), rays[:, 2])
    direction = np.arctan2(rays[:, 1], rays[:, 0])
    return (2 * angle / np.pi)[:, None] * np.stack([np.cos(direction), np.sin(direction)], axis=1)


def center(places: np.ndarray) -> np.ndarray:
    """Return the center of the sphere that fits positions (n, 3) best, or the origin if they are few."""
    known = places[np.isfinite(places).all(axis=1)]
    if len(known) < MIN_FIT or np.linalg.matrix_rank(known - known.mean(axis=0), tol=1e-6) < 3:
        return np.zeros(3)
    design = np.column_stack([2 * known, np.ones(len(known))])  # |p|^2 = 2 p'c + (r^2 - |c|^2)
    return np.linalg.lstsq(design, np.sum(known**2, axis=1), rcond=None)[0][:3]


def outline() -> dict[str, np.ndarray]:
    """Return the lines of a head seen from above: skull, nose, ears, each (n, 2)."""
    turn = np.linspace(0, 2 * np.pi, 73)
    skull = RADIUS * np.stack([np.sin(turn), np.cos(turn)], axis=1)
    nose = RADIUS * np.array([[-0.18, 0.984], [0.0, 1.15], [0.18, 0.984]])
    x = np.array([0.99, 1.03, 1.06, 1.07, 1.06, 1.07, 1.05, 1.02, 0.99])
    y = np.array([0.12, 0.16, 0.15, 0.08, 0.0, -0.1, -0.18, -0.19, -0.15])
    ear = RADIUS * np.stack([x, y], axis=1)
    return {"skull": skull, "nose": nose, "right ear": ear, "left ear": ear * [-1, 1]}


def interpolate(positions: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the grid (n,) and the map (n, n), rows from low to high y, by thin plate splines; NaN far from all."""
    from scipy.interpolate import RBFInterpolator
    from scipy.spatial import KDTree

    known = np.isfinite(values) & np.isfinite(positions).all(axis=1)
    edge = max(RADIUS, 1.05 * float(np.linalg.norm(positions[known], axis=1).max(initial=0.0)))
    side = np.linspace(-edge, edge, GRID)
    cells = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    image = np.full(len(cells), np.nan)
    inside = np.linalg.norm(cells, axis=1) <= edge
    if known.sum() >= 3 and np.linalg.matrix_rank(positions[known] - positions[known].mean(axis=0)) == 2:
        places, rows = np.unique(positions[known], axis=0, return_index=True)
        inside &= KDTree(places).query(cells)[0] <= REACH
        image[inside] = RBFInterpolator(places, values[known][rows], kernel="thin_plate_spline")(cells[inside])
    return side, image.reshape(GRID, GRID)


def draw_head_values(ax: Any, positions: np.ndarray, values: np.ndarray, label: str, names: Sequence[str]) -> Any:
    """Draw real values on a head, interpolated between the electrodes."""
    side, image = interpolate(positions, values)
    extent = (side[0], side[-1], side[0], side[-1])
    ax.imshow(image, origin="lower", extent=extent, cmap=look.DIVERGING, **look.symmetric(values))
    draw_values(ax, positions, np.ma.masked_invalid(values), 9, label)
    draw_head(ax, positions, names)
    return ax


def draw_head(ax: Any, positions: np.ndarray, names: Sequence[str]) -> None:
    """Draw skull, nose and ears, and the names of electrodes if there is room; no frame."""
    for line in outline().values():
        ax.plot(*line.T, color="0.35", linewidth=0.8, zorder=2)
    style = {"textcoords": "offset points", "fontsize": 5, "ha": "center", "zorder": 5}
    for place, name in zip(positions, names if len(names) <= MAX_NAMES else (), strict=False):
        ax.annotate(look.plain_text(name), place, xytext=(0, 4), **style)
    ax.set_aspect("equal", adjustable="box")
    ax.set(xticks=[], yticks=[], xlim=(-1.25, 1.25), ylim=(-1.25, 1.25))
    ax.spines[:].set_visible(False)
