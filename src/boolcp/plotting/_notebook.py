"""Small plots in the HTML that notebooks show; none without matplotlib."""

import base64
import importlib.util
import io
from collections.abc import Callable
from html import escape
from typing import Any

from boolcp.plotting._figure import plot_atoms
from boolcp.plotting.look import BLUE, GROUPS

MAX_ATOMS = 4
DPI = 80


def with_picture(text: str, draw: Callable[[Any], Any], alt: str) -> str:
    """Return a preformatted text in HTML, with the plot that `draw` makes on an Axes below it."""
    return f"<pre>{escape(text)}</pre>{picture(lambda figure: draw(figure.subplots()), alt, (4.2, 2.6))}"


def atoms_picture(W: Any) -> str:
    """Return the first atoms of a decomposition as an image in HTML."""
    shown = range(min(W.n_atoms, MAX_ATOMS))
    if not shown or max(W.shape) > 5000:
        return ""
    size = (2.4 * W.ndim, 1.5 * len(shown) + 0.5)
    return picture(lambda figure: plot_atoms(W, list(shown), figure=figure), f"The first {len(shown)} atoms", size)


def draw_stability(found: Any, ax: Any) -> None:
    """Draw the share of fits in which each atom comes back."""
    ax.bar(range(len(found.recurrence)), 100 * found.recurrence, color=BLUE)
    ax.axhline(80, color="0.6", linestyle="--", linewidth=0.8)
    ax.set(xlabel="atom", ylabel="comes back (%)", ylim=(0, 105), xticks=range(len(found.recurrence)))


def draw_test(test: Any, ax: Any) -> None:
    """Draw the mean of each atom under each condition, or its rank correlation with a covariate."""
    n = max(len(test.conditions), 1)
    for c in range(n):
        heights = test.mean[:, c] if test.conditions else test.effect
        places = [k + (c - (n - 1) / 2) * 0.8 / n for k in range(len(heights))]
        label = test.conditions[c] if test.conditions else None
        ax.bar(places, heights, width=0.8 / n, color=GROUPS[c % len(GROUPS)], label=label)
    ax.set(xlabel="atom", ylabel="mean" if test.conditions else "rank correlation", xticks=range(len(test.effect)))
    ax.axhline(0, color="0.4", linewidth=0.6)
    if test.conditions:
        ax.legend(fontsize=7, frameon=False)


def picture(draw: Callable[[Any], Any], alt: str, size: tuple[float, float]) -> str:
    """Return the figure that `draw` makes as an image in HTML."""
    if importlib.util.find_spec("matplotlib") is None:
        return ""
    from matplotlib.figure import Figure  # not pyplot: the figure is neither shown twice nor kept

    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
