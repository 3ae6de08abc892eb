"""The style of plots: colors, scales, legends and texts."""

from typing import Any

import numpy as np

from boolcp.system import load_extra

# of the Okabe-Ito palette, safe for the colorblind
BLUE, ORANGE, YELLOW = "#0072B2", "#E69F00", "#F0E442"
LINES = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
DASHES = ("-", "--", ":", "-.")
ON, OFF, UNKNOWN = YELLOW, BLUE, "#BBBBBB"
# of groups: Tol's muted palette, neither on nor off nor a color of an atom
GROUPS = ("#AA4499", "#999933", "#CC6677", "#44AA99", "#7A68C8", "#8C564B", "#777777")
DIVERGING = "RdBu_r"
LONG = 1000  # a line with more points is an image in vector formats
MAX_TICKS, MAX_TICKS_UPWARD, MAX_LETTERS = 20, 8, 14
COLUMN = 8.5 / 2.54  # inches: one column of a journal
EDGE = {"edgecolor": "0.25", "linewidth": 0.4}


def make_axes(ax: Any, width: float = COLUMN, height: float = 2.4) -> Any:
    """Return the given Axes, or the Axes of a new figure of this size in inches."""
    if ax is not None:
        return ax
    pyplot = load_extra("matplotlib.pyplot", "plot")
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def finish(ax: Any, xlabel: Any = None, ylabel: Any = None) -> None:
    """Label a chart in sizes that are readable in a journal column, without the upper and right frame."""
    for axis, label in ((ax.xaxis, xlabel), (ax.yaxis, ylabel)):
        if label is not None:
            axis.set_label_text(label, fontsize=8)
    ax.tick_params(labelsize=7)
    ax.spines[["top", "right"]].set_visible(False)


def legend_above(ax: Any, handles: Any = None, **options: Any) -> None:
    """Put the legend above the Axes, where it hides nothing, in as many columns as fit."""
    handles = ax.get_legend_handles_labels()[0] if handles is None else handles
    widest = 18 + 3.6 * max((len(handle.get_label()) for handle in handles), default=0)
    points_wide = ax.get_window_extent().width * 72 / ax.figure.dpi  # before labels are laid out
    ncols = max(1, min(len(handles), int(points_wide // widest)))
    look = {"frameon": False, "fontsize": 7, "title_fontsize": 7, "handlelength": 1.2, "columnspacing": 1.0}
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "borderaxespad": 0.2}
    ax.legend(handles=handles, ncols=ncols, **place, **look, **options)


def diverging() -> Any:
    """Return the colormap of real values, zero in the middle, gray where unknown."""
    return load_extra("matplotlib", "plot").colormaps[DIVERGING].with_extremes(bad=UNKNOWN)


def draw_scale(ax: Any, picture: Any, label: Any) -> None:
    """Draw a colorbar next to the Axes."""
    scale = ax.figure.colorbar(picture, ax=ax, shrink=0.9)
    scale.set_label(label, fontsize=8)
    scale.ax.tick_params(labelsize=7)


def symmetric(values: Any) -> Any:
    """Return the limits of a scale with zero in the middle."""
    top = float(np.nanmax(np.abs(values), initial=0.0)) if np.isfinite(values).any() else 0.0
    return {"vmin": -(top or 1.0), "vmax": top or 1.0}


def shortened(text: str, letters: int = MAX_LETTERS) -> str:
    """Return a text shortened in its middle: similar names often differ at their ends."""
    return text if len(text) <= letters else f"{text[: letters // 2]}…{text[len(text) - (letters - 1) // 2 :]}"


def plain_text(text: str) -> Any:
    """Return a text that matplotlib never parses as a formula."""
    return str(text).replace("$", r"\$")


def make_patch(color: Any, label: Any) -> Any:
    """Return a legend entry: a colored patch."""
    return load_extra("matplotlib.patches", "plot").Patch(facecolor=color, label=plain_text(label), **EDGE)


def on_off_patches(has_unknown: bool, has_doubt: bool = False) -> Any:
    """Return the legend entries of Boolean values."""
    patches = [make_patch(ON, "on"), make_patch(OFF, "off")]
    patches += [make_patch("white", "pale: uncertain")] if has_doubt else []
    return patches + ([make_patch(UNKNOWN, "no data")] if has_unknown else [])


def need(value: Any, attribute: Any, what: Any) -> None:
    """Raise if a value lacks what the plot needs; `what` says what to pass."""
    if not hasattr(value, attribute):
        raise TypeError(f"This plot needs {what}, got {type(value).__name__}.")
