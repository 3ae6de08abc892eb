"""One part of an atom, Boolean or real."""

from typing import Any

import numpy as np

from boolcp.plotting import mode_labels as modes
from boolcp.plotting._conditions import draw_conditions
from boolcp.plotting._electrodes import plot_electrodes
from boolcp.plotting.head import draw_head, draw_head_values
from boolcp.plotting.look import (
    BLUE,
    DASHES,
    LONG,
    diverging,
    draw_scale,
    finish,
    legend_above,
    make_axes,
    plain_text,
    shortened,
    symmetric,
    two_colors,
)
from boolcp.plotting.patterns import block_image, carrier_mode, real_columns
from boolcp.result.atoms import Atom, BooleanCP

MARKERS = ("o", "D", "P", "s")  # of the products of an atom along a mode with names
VISIBLE = 0.2  # opacity of a bit that is a toss-up


def plot_boolean(W: BooleanCP | Atom, k: int = 0, ax: Any = None) -> Any:
    """Draw where atom k is on: an electrode map if its mode has positions, otherwise a strip; yellow on, blue off.

    Positions are additional coordinates `x` and `y` along the mode; a coordinate `condition` is drawn as a band of
    colors below the strip. Slices without any observed entry are gray. Bits that the data leave uncertain
    (`BooleanCP.bit_confidence`) are pale.

    Parameters
    ----------
    W : BooleanCP or Atom
        The decomposition; a single atom has no labels.
    k : int
        Which atom.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_boolean
    >>> truth = boolcp.datasets.make_boolean_cp((6, 7, 8), 2, random_state=0).truth
    >>> ax = plot_boolean(truth, 0)
    >>> bool((ax.images[0].get_array()[0] == truth.atoms[0].z).all())
    True
    """
    W = W if isinstance(W, BooleanCP) else BooleanCP(W.shape, (W,), np.ones(1))
    mode, z = W.atoms[k].mode, W.atoms[k].z
    positions = modes.positions_of(W, mode)
    bits, alpha = np.ma.masked_array(z, modes.undetermined_of(W, mode)), shading(W, k)
    if positions is not None:
        ax = plot_electrodes(positions, bits, legend=False, ax=ax)
        ax.collections[-1].set_alpha(alpha)
        if modes.is_head(W, mode):
            draw_head(ax, positions, modes.coordinate_text(W, mode))
        ax.set_xlabel(plain_text(modes.mode_text(W, mode)), fontsize=8)
        return ax
    ax = make_axes(ax, 6, 1.4)
    places, extent = modes.even_places(W, mode)
    look = {"cmap": two_colors(), "vmin": 0, "vmax": 1, "interpolation_stage": "rgba"}  # thin lines fade, none vanishes
    ax.imshow(bits[None, :].astype(float), aspect="auto", extent=(*extent, 0, 1), alpha=alpha[None, :], **look)
    ax.set(yticks=[], xlim=extent)
    modes.label_mode(ax, W, mode, places)
    ax.tick_params(labelsize=7)
    draw_conditions(ax, W, mode, places, is_strip=True)
    return ax


def shading(W: BooleanCP, k: int) -> Any:
    """Return the opacity of each bit of atom k, (d_n,): 1 if it is certain or nothing is known, pale if uncertain."""
    mode = W.atoms[k].mode
    if W.trust is None or W.trust.rise is None:
        return np.ones(W.shape[mode])
    opacity = VISIBLE + (1 - VISIBLE) * np.clip(2 * W.bit_confidence()[k] - 1, 0.0, 1.0)
    return np.where(modes.undetermined_of(W, mode), 1.0, opacity)


def plot_real(W: BooleanCP, k: int, mode: int, ax: Any = None, *, color: str = BLUE) -> Any:
    """Draw the real part of atom k along one mode as a line, or over a pair of modes as an image; return the Axes.

    Columns are scaled to a largest entry of one, except along the longest real mode, which carries the size: where the
    atom is on, its entries are the products of what is shown. An atom of rank L has L lines, whose products sum to it,
    the largest first; along two real modes they are orthogonal unless nonnegative. A block shows its leading pattern,
    and as an image the block with its weight, other modes contracted with their leading patterns. A mode with positions
    `x` and `y` is an electrode map; one with a coordinate `condition` has a band of colors.

    Parameters
    ----------
    W : BooleanCP
        The decomposition.
    k : int
        The number of the atom.
    mode : int or pair of int
        The mode, or the two modes of an image (vertical and horizontal axis).
    ax : matplotlib Axes, optional
        Where to draw; a new figure if None.
    color : str
        The color of lines and bars; products differ in their dashes.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_real
    >>> truth = boolcp.datasets.make_boolean_cp((6, 7, 8), 2, random_state=0).truth
    >>> float(abs(plot_real(truth, 0, 1).lines[0].get_ydata()).max())
    1.0
    >>> plot_real(truth, 0, (1, 2)).images[0].get_array().shape
    (7, 8)
    """
    chosen = tuple(int(m) for m in np.atleast_1d(mode))
    if len(set(chosen)) != len(chosen) or len(chosen) > 2 or not all(0 <= m < W.ndim for m in chosen):
        raise ValueError(f"mode must be one of 0 to {W.ndim - 1} or two of them, but it is {mode!r}.")
    if W.atoms[k].mode in chosen:
        raise ValueError(f"Atom {k} is Boolean along mode {W.atoms[k].mode}: use plot_boolean.")
    if len(chosen) == 2:
        return draw_image(W, k, chosen, make_axes(ax, 4.5, 3))
    columns = real_columns(W, k)[chosen[0]]
    positions = modes.positions_of(W, chosen[0])
    if positions is not None and columns.shape[1] == 1:
        label = size_label(W, k, chosen[0])
        if modes.is_head(W, chosen[0]):
            names = modes.coordinate_text(W, chosen[0])
            return draw_head_values(make_axes(ax, height=2.8), positions, columns[:, 0], label, names)
        ax = plot_electrodes(positions, np.ma.masked_invalid(columns[:, 0]), label=label, ax=ax)
        ax.set_xlabel(plain_text(modes.mode_text(W, chosen[0])), fontsize=8)
        return ax
    return draw_lines(W, k, chosen[0], columns, make_axes(ax, 4.5, 2.5), color)


def draw_lines(W: BooleanCP, k: int, mode: int, columns: Any, ax: Any, color: str) -> Any:
    """Draw the columns along a mode: lines, or along a mode with names bars for one column and points for several."""
    places = modes.line_places(W, mode)
    has_names = modes.is_unordered(W, mode) or (places is None and modes.coordinates_of(W, mode) is not None)
    places = np.arange(len(columns)) if places is None else places
    if has_names and columns.shape[1] == 1:
        ax.bar(places, columns[:, 0], width=0.8, color=color, rasterized=len(columns) > LONG)
    else:
        marker, is_sum = "." if len(columns) <= 60 else None, columns.shape[1] > 1
        for n, column in enumerate(columns.T):
            look: dict[str, Any] = {"color": color, "linestyle": DASHES[n % len(DASHES)], "marker": marker}
            look |= {"markersize": 4, "linewidth": 1.0, "rasterized": len(column) > LONG}
            look["label"] = f"product {n}" if is_sum else None
            if has_names:  # no line joins them
                filled = "none" if n % 2 else "full"
                look |= {"linestyle": "none", "marker": MARKERS[n % len(MARKERS)], "fillstyle": filled}
            ax.plot(places, column, **look)
        if is_sum and columns.shape[1] <= 4:
            legend_above(ax)
    ax.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    ax.set_ylabel(size_label(W, k, mode), fontsize=8)
    finish(ax)
    low, high = sorted((places[0], places[-1]))
    if modes.is_geometric(places):
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
        ratio = (high / low) ** (0.5 / (len(places) - 1))
        ax.set_xlim(low / ratio, high * ratio)
    else:
        step = (high - low) / max(len(places) - 1, 1) or 1.0
        ax.set_xlim(low - step / 2, high + step / 2)
    places = None if modes.line_places(W, mode) is None else places
    modes.label_mode(ax, W, mode, places)
    draw_conditions(ax, W, mode, places)
    return ax


def draw_image(W: BooleanCP, k: int, pair: Any, ax: Any) -> Any:
    """Draw the real part with its weight over two modes, the first vertical."""
    image = block_image(W, k, pair)
    (y_places, y_extent), (x_places, x_extent) = (modes.even_places(W, n) for n in pair)
    extent = (*x_extent, y_extent[1], y_extent[0])
    picture = ax.imshow(image, aspect="auto", extent=extent, cmap=diverging(), **symmetric(image))
    modes.label_mode(ax, W, pair[1], x_places)
    modes.label_mode(ax, W, pair[0], y_places, is_vertical=True)
    ax.tick_params(labelsize=7)
    draw_scale(ax, picture, plain_text(shortened(modes.value_label(W), 36)))
    return ax


def size_label(W: BooleanCP, k: int, mode: int) -> Any:
    """Return the label of the numbers along a mode: the measured quantity, or relative to the largest."""
    return plain_text(shortened(modes.value_label(W), 36)) if mode == carrier_mode(W, k) else "relative size"
