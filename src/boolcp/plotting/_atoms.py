"""Atoms: one part of an atom, all atoms in one figure, their means under conditions, small plots for notebooks."""

import base64
import importlib.util
import io
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from boolcp.checks import check_mode
from boolcp.plotting import look
from boolcp.plotting import mode_labels as modes
from boolcp.plotting.maps import draw_head, draw_head_values, plot_electrodes
from boolcp.plotting.patterns import atom_panels, bit_values, block_image, carrier_mode, leading_column, real_columns
from boolcp.result.atoms import BooleanCP
from boolcp.result.summary import mean_words
from boolcp.result.trust import group_density
from boolcp.system import load_extra

MARKERS = ("o", "D", "P", "s")  # of the products of an atom along a mode with names
VISIBLE = 0.2  # opacity of a bit that is a toss-up
MAX_SHOWN, DPI = 4, 80  # atoms in a notebook, and their resolution


def plot_boolean(W: BooleanCP, k: int = 0, ax: Any = None) -> Any:
    """Draw where atom k is on: an electrode map if its mode has positions, otherwise a strip; yellow on, blue off.

    Positions are additional coordinates `x` and `y` along the mode; a coordinate `condition` is drawn as a band of
    colors below the strip. Slices without any observed entry are gray. Bits that the data leave uncertain
    (`BooleanCP.bit_confidence`) are pale.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((6, 7, 8), 2, random_state=0).truth
    >>> ax = boolcp.plotting.plot_boolean(truth, 0)
    >>> bool((ax.images[0].get_array()[0] == truth.atoms[0].z).all())
    True
    """
    mode, z = W.atoms[k].mode, W.atoms[k].z
    positions = modes.positions_of(W, mode)
    bits, alpha = np.ma.masked_array(z, modes.undetermined_of(W, mode)), shading(W, k)
    if positions is not None:
        ax = plot_electrodes(positions, bits, legend=False, ax=ax)
        ax.collections[-1].set_alpha(alpha)
        if modes.is_head(W, mode):
            draw_head(ax, positions, modes.coordinate_text(W, mode))
        ax.set_xlabel(look.plain_text(modes.mode_text(W, mode)), fontsize=8)
        return ax
    ax = look.make_axes(ax, 6, 1.4)
    places, extent = modes.even_places(W, mode)
    colors = load_extra("matplotlib.colors", "plot").ListedColormap([look.OFF, look.ON]).with_extremes(bad=look.UNKNOWN)
    style = {"cmap": colors, "vmin": 0, "vmax": 1, "interpolation_stage": "rgba"}  # thin lines fade, none vanishes
    ax.imshow(bits[None, :].astype(float), aspect="auto", extent=(*extent, 0, 1), alpha=alpha[None, :], **style)
    ax.set(yticks=[], xlim=extent)
    modes.label_mode(ax, W, mode, places)
    ax.tick_params(labelsize=7)
    draw_conditions(ax, W, mode, places, is_strip=True)
    return ax


def shading(W: BooleanCP, k: int) -> Any:
    """Return the opacity of each bit of atom k, (d_n,): 1 if it is certain or nothing is known, pale if uncertain."""
    opacity = VISIBLE + (1 - VISIBLE) * np.abs(2 * bit_values(W, k) - 1)
    return np.where(modes.undetermined_of(W, W.atoms[k].mode), 1.0, opacity)


def plot_real(W: BooleanCP, k: int, mode: int, ax: Any = None) -> Any:
    """Draw the real part of atom k along one mode as a line, or over two modes (vertical, horizontal) as an image.

    Columns are scaled to a largest entry of one, except along the longest real mode, which carries the size: where the
    atom is on, its entries are the products of what is shown. An atom of rank L has L lines, whose products sum to it,
    the largest first; along two real modes they are orthogonal unless nonnegative. A block shows its leading pattern,
    and as an image the block with its weight, other modes contracted with their leading patterns. A mode with positions
    `x` and `y` is an electrode map; one with a coordinate `condition` has a band of colors.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((6, 7, 8), 2, random_state=0).truth
    >>> float(abs(boolcp.plotting.plot_real(truth, 0, 1).lines[0].get_ydata()).max())
    1.0
    >>> boolcp.plotting.plot_real(truth, 0, (1, 2)).images[0].get_array().shape
    (7, 8)
    """
    chosen = tuple(int(m) for m in np.atleast_1d(mode))
    if len(set(chosen)) != len(chosen) or len(chosen) > 2 or not all(0 <= m < W.ndim for m in chosen):
        raise ValueError(f"mode must be one of 0 to {W.ndim - 1} or two of them, but it is {mode!r}.")
    if W.atoms[k].mode in chosen:
        raise ValueError(f"Atom {k} is Boolean along mode {W.atoms[k].mode}: use plot_boolean.")
    if len(chosen) == 2:
        return draw_image(W, k, chosen, look.make_axes(ax, 4.5, 3))
    columns = real_columns(W, k)[chosen[0]]
    positions = modes.positions_of(W, chosen[0])
    if positions is not None and columns.shape[1] == 1:
        label = size_label(W, k, chosen[0])
        if modes.is_head(W, chosen[0]):
            names = modes.coordinate_text(W, chosen[0])
            return draw_head_values(look.make_axes(ax, height=2.8), positions, columns[:, 0], label, names)
        ax = plot_electrodes(positions, np.ma.masked_invalid(columns[:, 0]), label=label, ax=ax)
        ax.set_xlabel(look.plain_text(modes.mode_text(W, chosen[0])), fontsize=8)
        return ax
    return draw_lines(W, k, chosen[0], columns, look.make_axes(ax, 4.5, 2.5))


def draw_lines(W: BooleanCP, k: int, mode: int, columns: Any, ax: Any) -> Any:
    """Draw the columns along a mode: lines, or along a mode with names bars for one column and points for several."""
    places = modes.line_places(W, mode)
    has_names = modes.is_unordered(W, mode) or modes.has_names(W, mode)
    places = np.arange(len(columns)) if places is None else places
    if has_names and columns.shape[1] == 1:
        ax.bar(places, columns[:, 0], width=0.8, color=look.BLUE, rasterized=len(columns) > look.LONG)
    else:
        marker, is_sum = "." if len(columns) <= 60 else None, columns.shape[1] > 1
        for n, column in enumerate(columns.T):
            style = {"color": look.BLUE, "linewidth": 1.0, "markersize": 4, "rasterized": len(column) > look.LONG}
            style |= {"linestyle": look.DASHES[n % 4], "marker": marker, "label": f"product {n}" if is_sum else None}
            if has_names:  # no line joins them
                style |= {"linestyle": "none", "marker": MARKERS[n % 4], "fillstyle": "none" if n % 2 else "full"}
            ax.plot(places, column, **style)
        if is_sum and columns.shape[1] <= 4:
            look.legend_above(ax)
    ax.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    ax.set_ylabel(look.plain_text(size_label(W, k, mode)), fontsize=8)
    look.finish(ax)
    if modes.is_geometric(places):
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlim(sorted(modes.cell_edges(places)[[0, -1]]))
    places = None if modes.line_places(W, mode) is None else places
    modes.label_mode(ax, W, mode, places)
    draw_conditions(ax, W, mode, places)
    return ax


def draw_image(W: BooleanCP, k: int, pair: Any, ax: Any) -> Any:
    """Draw the real part with its weight over two modes, the first vertical."""
    image = block_image(W, k, pair)
    (y_places, y_extent), (x_places, x_extent) = (modes.even_places(W, n) for n in pair)
    extent = (*x_extent, y_extent[1], y_extent[0])
    picture = ax.imshow(image, aspect="auto", extent=extent, cmap=look.diverging(), **look.symmetric(image))
    modes.label_mode(ax, W, pair[1], x_places)
    modes.label_mode(ax, W, pair[0], y_places, is_vertical=True)
    ax.tick_params(labelsize=7)
    look.draw_scale(ax, picture, look.plain_text(look.shortened(modes.value_label(W), 36)))
    return ax


def size_label(W: BooleanCP, k: int, mode: int) -> Any:
    """Return the label of the numbers along a mode: the measured quantity, or relative to the largest."""
    return look.shortened(modes.value_label(W), 36) if mode == carrier_mode(W, k) else "relative size"


def plot_atoms(W: BooleanCP, atoms: Any = None, figure: Any = None) -> Any:
    """Return a figure: one row for each atom, one column for each mode, and one for images of block atoms.

    `atoms` is the number of an atom, or a list of them; None draws all.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((6, 7, 8, 5), 3, random_state=0).truth
    >>> len(boolcp.plotting.plot_atoms(truth, [0, 2]).axes)
    8
    """
    look.need(W, "atoms", "a BooleanCP")
    atoms = [atoms] if isinstance(atoms, numbers.Integral) else atoms
    chosen = range(W.n_atoms) if atoms is None else [range(W.n_atoms)[k] for k in atoms]
    panels = {k: atom_panels(W, k) for k in chosen}
    n_columns = W.ndim + any(len(row) > W.ndim for row in panels.values())
    if figure is None:
        size = (2.9 * n_columns, (1.8 if W.labels is None else 2.3) * max(len(panels), 1) + 0.5)
        figure = load_extra("matplotlib.pyplot", "plot").figure(figsize=size, layout="constrained")
    if not panels:
        figure.text(0.5, 0.5, "no atoms", ha="center", va="center")
        return figure
    rows = figure.subfigures(len(panels), 1, squeeze=False)[:, 0]
    for row, (k, shown) in zip(rows, panels.items(), strict=True):
        row.suptitle(look.plain_text(atom_title(W, k)), fontsize=9, fontweight="bold", x=0.01, ha="left")
        for ax, mode in zip(row.subplots(1, n_columns, squeeze=False)[0], [*shown, None], strict=False):
            if mode is None:
                ax.set_axis_off()
            else:
                plot_boolean(W, k, ax) if mode == W.atoms[k].mode else plot_real(W, k, mode, ax)
                ax.tick_params(labelsize=7)
                if ax.get_legend() and not ax.get_legend_handles_labels()[0]:
                    ax.get_legend().remove()  # the legend of the conditions is below all rows
    if words := mean_words(W):
        figure.suptitle(look.plain_text(words), fontsize=8)
    has_doubt = any(shading(W, k).min() < 0.9 for k in chosen)
    handles = look.on_off_patches(bool(W.undetermined), has_doubt)
    handles += [patch for n in range(W.ndim) for patch in condition_patches(W, n)]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure


def atom_title(W: BooleanCP, k: int) -> str:
    """Describe an atom in one line: its number, Boolean mode, ones, and share of variance if known."""
    atom = W.atoms[k]
    has_share = W.data_norm2 and W.data_inner is not None and W.deviance is None
    share = f", {100 * W.explained_alone()[k]:.1f} % of the variance alone" if has_share else ""
    return f"atom {k}: Boolean along {modes.mode_text(W, atom.mode)}, on in {atom.n_ones} of {len(atom.z)}{share}"


def atoms_picture(W: BooleanCP) -> str:
    """Return the first atoms of a decomposition as an image in HTML."""
    shown = range(min(W.n_atoms, MAX_SHOWN))
    if not shown or max(W.shape) > 5000:
        return ""
    size = (2.4 * W.ndim, 1.5 * len(shown) + 0.5)
    return picture(lambda figure: plot_atoms(W, list(shown), figure=figure), f"The first {len(shown)} atoms", size)


def picture(draw: Callable[[Any], Any], alt: str, size: tuple[float, float]) -> str:
    """Return the figure that `draw` makes as an image in HTML; nothing without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return ""
    from matplotlib.figure import Figure  # not pyplot: the figure is neither shown twice nor kept

    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'


def plot_on_off(W: Any, atom: int = 0, ax: Any = None) -> Any:
    """Draw the amplitudes of one atom in slices that a fit has not seen, with the two groups; return the Axes.

    Examples
    --------
    >>> X = boolcp.datasets.make_boolean_cp((8, 9, 40), 1, boolean_modes=[2], noise=0.1, random_state=0).X
    >>> W = boolcp.decompose(X, 1, boolean_modes=[2], random_state=0)
    >>> boolcp.plotting.plot_on_off(boolcp.assess(X, W, n_parts=4, random_state=0)).get_xlabel()
    'amplitude in unseen slices (weight = 1)'
    """
    look.need(W, "trust", "a BooleanCP")
    curves = group_density(W, atom)
    if curves is None:
        raise ValueError(f"Atom {atom} has no amplitudes in slices that a fit has not seen: W = boolcp.assess(X, W).")
    a, edges, x, low, high = curves
    ax = look.make_axes(ax)
    ax.hist(a, bins=edges, color="0.85", edgecolor="0.6", linewidth=0.5)
    for name, y, color in (("off", low, look.BLUE), ("on", high, look.ORANGE)):
        ax.plot(x, y, color=color, linewidth=1.5, label=f"group {name}")
    look.finish(ax, "amplitude in unseen slices (weight = 1)", "slices")
    look.legend_above(ax, ax.lines, title=f"atom {atom}: difference of the BIC {W.trust.on_off[atom]:.0f}")
    return ax


@dataclass(frozen=True, eq=False)
class ConditionMeans:
    """The behavior of each of K atoms along one mode under each of C conditions."""

    conditions: tuple[str, ...]  # in the order of their first entry, numbers by size
    counts: np.ndarray  # (C,), entries that have data
    mean: np.ndarray  # (K, C), share of ones of a Boolean atom, else of the factor scaled to a largest entry of one
    spread: np.ndarray  # (K, C), standard deviation of the factor; NaN for Boolean atoms
    is_boolean: np.ndarray  # (K,), whether the atom is Boolean along the mode


def condition_means(W: BooleanCP, mode: int, condition: Any = "condition") -> Any:
    """Return the mean of each atom along a mode under each condition, as ConditionMeans; unknown entries are ignored.

    Examples
    --------
    >>> truth = boolcp.datasets.make_boolean_cp((6, 7, 8), 2, random_state=0).truth
    >>> means = boolcp.plotting.condition_means(truth, 0, ["rest"] * 3 + ["task"] * 3)
    >>> means.conditions, means.mean.shape
    (('rest', 'task'), (2, 2))
    """
    mode = check_mode(mode, W.ndim, W.dims)
    labels = modes.condition_of(W, mode, condition) if isinstance(condition, str) else condition
    place = modes.mode_text(W, mode)
    if labels is None:
        others = ", ".join(modes.further_names(W, mode)) or "no other coordinates"
        advice = "pass one of its names, or one label for each entry"
        raise ValueError(f"condition names the coordinate {condition!r}, but {place} has {others}: {advice}.")
    if len(labels) != W.shape[mode]:
        raise ValueError(f"condition has {len(labels)} labels, but {place} has {W.shape[mode]} entries.")
    labels = np.array([str(label) for label in labels])
    names = tuple(modes.group_names(labels))
    known = ~modes.undetermined_of(W, mode)
    mean, spread = np.full((2, W.n_atoms, len(names)), np.nan)
    for k, atom in enumerate(W.atoms):
        values = leading_column(W, k, mode)
        for c, name in enumerate(names):
            part = values[(labels == name) & known]
            if len(part):
                mean[k, c] = part.mean()
                spread[k, c] = np.nan if atom.mode == mode else part.std(ddof=min(1, len(part) - 1))
    counts = np.array([np.sum((labels == name) & known) for name in names], dtype=int)
    return ConditionMeans(names, counts, mean, spread, W.boolean_mode == mode)


def condition_colors(W: BooleanCP, mode: int) -> Any:
    """Return the color of each condition along a mode, {condition: color}; empty if there is one, or many."""
    labels = modes.condition_of(W, mode)
    names = [] if labels is None else modes.group_names(labels)
    return dict(zip(names, look.GROUPS, strict=False)) if 2 <= len(names) <= len(look.GROUPS) else {}


def condition_patches(W: BooleanCP, mode: int) -> Any:
    """Return the legend entries of the conditions along a mode."""
    return [look.make_patch(color, look.shortened(name, 20)) for name, color in condition_colors(W, mode).items()]


def draw_conditions(ax: Any, W: BooleanCP, mode: int, places: Any, *, is_strip: bool = False) -> None:
    """Draw a band with the colors of the conditions, if the mode has any, at the bottom of the Axes."""
    colors = condition_colors(W, mode)
    if not colors:
        return
    labels = modes.condition_of(W, mode)
    places = np.arange(len(labels), dtype=float) if places is None else places
    ends = modes.cell_edges(places)
    runs = [0, *(np.flatnonzero(labels[1:] != labels[:-1]) + 1), len(labels)]
    low, high = (0, 1) if is_strip else ax.get_ylim()
    share = 0.18 if is_strip else 0.06
    ax.set_ylim(low - share * 1.3 * (high - low), high)  # the band lies below the numbers
    for name, color in colors.items():
        spans = [(ends[start], ends[stop] - ends[start]) for start, stop in pairwise(runs) if labels[start] == name]
        band = {"transform": ax.get_xaxis_transform(), "facecolors": color, "linewidth": 0, "zorder": 3}
        ax.broken_barh(spans, (0, share), **band)
    if ax.get_legend() is None:
        look.legend_above(ax, condition_patches(W, mode))
