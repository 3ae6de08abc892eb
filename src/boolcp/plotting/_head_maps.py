"""Scalp maps: a value at each electrode, interpolated between them by MNE if it is installed."""

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from boolcp.extras import load_extra
from boolcp.plotting.head import RADIUS, interpolate, outline
from boolcp.plotting.look import EDGE, OFF, ON, UNKNOWN, diverging, draw_scale, plain_text, symmetric

MAX_NAMES = 34  # most electrodes whose names are written

Axes = Any


def draw_head_values(
    ax: Axes, positions: np.ndarray, values: np.ndarray, label: str, names: Sequence[str] | None = None
) -> Axes:
    """Draw real values on a head, interpolated between the electrodes."""
    known = np.isfinite(values) & np.isfinite(positions).all(axis=1)
    limits = symmetric(values)
    shown = [plain_text(name) for name in names] if names is not None and len(names) <= MAX_NAMES else None
    if importlib.util.find_spec("mne") is not None and known.sum() >= 4:
        viz = load_extra("mne.viz", "mne")
        picture, _ = viz.plot_topomap(
            values[known],
            positions[known],
            axes=ax,
            show=False,
            cmap=diverging(),
            vlim=(limits["vmin"], limits["vmax"]),
            sphere=(0.0, 0.0, 0.0, RADIUS),
            names=None if shown is None else [name for name, is_known in zip(shown, known, strict=True) if is_known],
            sensors=shown is None,  # a name replaces the point of its electrode
            contours=4,
        )
    else:
        side, image = interpolate(positions, np.where(known, values, np.nan))
        extent = (side[0], side[-1], side[0], side[-1])
        picture = ax.imshow(image, origin="lower", extent=extent, cmap=diverging(), **limits)
        ax.scatter(*positions[known].T, s=4, color="0.2", zorder=3)
        draw_names(ax, positions, shown)
        draw_outline(ax)
    if (~known).any():
        ax.scatter(*positions[~known].T, s=12, color=UNKNOWN, zorder=4, **EDGE)
    for text in ax.texts:
        text.set_fontsize(5)
    finish_head(ax)
    draw_scale(ax, picture, label)
    return ax


def draw_head_bits(
    ax: Axes, positions: np.ndarray, bits: np.ma.MaskedArray, names: Sequence[str] | None, alpha: np.ndarray
) -> Axes:
    """Draw Boolean values on a head: yellow on, blue off, gray without data, pale where uncertain."""
    colors = np.where(np.ma.getmaskarray(bits), UNKNOWN, np.where(bits.data, ON, OFF))
    has_room = names is not None and len(names) <= MAX_NAMES
    ax.scatter(*positions.T, s=60 if has_room else 22, color=colors, alpha=alpha, zorder=3, **EDGE)
    if has_room:
        draw_names(ax, positions, [plain_text(name) for name in names or ()])
    draw_outline(ax)
    finish_head(ax)
    return ax


def draw_names(ax: Axes, positions: np.ndarray, names: Sequence[str] | None) -> None:
    """Write the names of electrodes above them."""
    for (x, y), name in zip(positions, names or (), strict=False):
        ax.annotate(name, (x, y), xytext=(0, 4), textcoords="offset points", fontsize=5, ha="center", zorder=5)


def draw_outline(ax: Axes) -> None:
    """Draw skull, nose and ears."""
    for line in outline().values():
        ax.plot(*line.T, color="0.35", linewidth=0.8, zorder=2)


def finish_head(ax: Axes) -> None:
    """Set equal scales, room for nose and ears, and no frame."""
    ax.set_aspect("equal", adjustable="box")
    ax.set(xticks=[], yticks=[], xlim=(-1.25, 1.25), ylim=(-1.25, 1.25))
    ax.spines[:].set_visible(False)
