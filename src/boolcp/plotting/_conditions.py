"""Conditions along a mode (states, stimuli): their colors, and in which of them each atom is on."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from boolcp.checks import check_mode
from boolcp.plotting.look import GROUPS as COLORS
from boolcp.plotting.look import finish, legend_above, make_axes, make_patch, plain_text, shortened
from boolcp.plotting.mode_labels import condition_of, further_names, group_names, mode_text, undetermined_of
from boolcp.plotting.patterns import leading_column
from boolcp.result.atoms import BooleanCP

SMALL = 0.01  # height of an empty bar, so that it is visible


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
    >>> import boolcp
    >>> from boolcp.plotting import condition_means
    >>> truth = boolcp.datasets.make_boolean_cp((6, 7, 8), 2, random_state=0).truth
    >>> means = condition_means(truth, 0, ["rest"] * 3 + ["task"] * 3)
    >>> means.conditions, means.mean.shape
    (('rest', 'task'), (2, 2))
    """
    mode = check_mode(mode, W.ndim, W.dims)
    place, labels = mode_text(W, mode), condition_of(W, mode, condition) if isinstance(condition, str) else condition
    if labels is None:
        others = ", ".join(further_names(W, mode)) or "no other coordinates"
        raise ValueError(
            f"condition names the coordinate {condition!r}, but {place} has {others}: pass one of its names, or one "
            f"label for each entry."
        )
    if len(labels) != W.shape[mode]:
        raise ValueError(f"condition has {len(labels)} labels, but {place} has {W.shape[mode]} entries.")
    labels = np.array([str(label) for label in labels])
    names = tuple(group_names(labels))
    known = ~undetermined_of(W, mode)
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


def plot_conditions(W: BooleanCP, mode: int, condition: Any = "condition", *, ax: Any = None) -> Any:
    """Draw the mean of each atom along a mode under each condition: which atom is on in which state.

    Bars show the share of ones of atoms that are Boolean along the mode. Points show the mean factor of the
    others, scaled to a largest entry of one, with one standard deviation to each side.

    Parameters
    ----------
    W : BooleanCP
        The decomposition.
    mode : int or str
        The mode, by index or name: trials, say, or states.
    condition : str or sequence
        The name of a coordinate along the mode, or one label for each entry.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_conditions
    >>> truth = boolcp.datasets.make_boolean_cp((6, 7, 8), 3, random_state=0).truth
    >>> ax = plot_conditions(truth, 0, ["rest"] * 3 + ["task"] * 3)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['rest (3)', 'task (3)']
    """
    mode = check_mode(mode, W.ndim, W.dims)
    means = condition_means(W, mode, condition)
    n, boolean, atoms = len(means.conditions), means.is_boolean, np.arange(W.n_atoms)
    width = 0.8 / n
    ax = make_axes(ax, width=max(3.35, 0.12 * W.n_atoms * n + 1))
    for c in range(n):
        color, at = COLORS[c % len(COLORS)], atoms + (c - (n - 1) / 2) * width
        mean, spread = means.mean[:, c], means.spread[:, c]
        if boolean.any():
            heights = np.where(mean[boolean] == 0, SMALL, mean[boolean])
            ax.bar(at[boolean], heights, 0.9 * width, color=color, edgecolor="0.25", linewidth=0.4)
        if not boolean.all():
            look = {"fmt": "o", "color": color, "markersize": 3.5, "capsize": 1.5, "linewidth": 1.0}
            ax.errorbar(at[~boolean], mean[~boolean], spread[~boolean], **look)
    for edge in atoms[1:] - 0.5:
        ax.axvline(edge, color="0.9", linewidth=0.6, zorder=0)
    ax.axhline(0, color="0.6", linewidth=0.6, zorder=0)
    ax.set_xticks(atoms, atoms if W.n_atoms <= 30 else ["" for _ in atoms])
    ax.set_xlim(-0.5, max(W.n_atoms, 1) - 0.5)
    name = plain_text(shortened(mode_text(W, mode), 20))
    bars, points = f"share of ones along {name}", f"mean along {name}\n(± s.d., largest = 1)"
    mixed = f"bars: share on; points:\n{points}"
    finish(ax, "atom", bars if boolean.all() else mixed if boolean.any() else points)
    texts = [f"{shortened(name, 20)} ({count})" for name, count in zip(means.conditions, means.counts, strict=True)]
    legend_above(ax, [make_patch(COLORS[c % len(COLORS)], text) for c, text in enumerate(texts)])
    return ax


def condition_colors(W: BooleanCP, mode: int) -> Any:
    """Return the color of each condition along a mode, {condition: color}; empty if there is one, or many."""
    labels = condition_of(W, mode)
    names = [] if labels is None else group_names(labels)
    return dict(zip(names, COLORS, strict=False)) if 2 <= len(names) <= len(COLORS) else {}


def condition_patches(W: BooleanCP, mode: int) -> Any:
    """Return the legend entries of the conditions along a mode."""
    return [make_patch(color, shortened(name, 20)) for name, color in condition_colors(W, mode).items()]


def draw_conditions(ax: Any, W: BooleanCP, mode: int, places: Any, *, is_strip: bool = False) -> None:
    """Draw a band with the colors of the conditions, if the mode has any, at the bottom of the Axes."""
    colors = condition_colors(W, mode)
    if not colors:
        return
    labels = condition_of(W, mode)
    places = np.arange(len(labels), dtype=float) if places is None else places
    ends = np.exp(middles(np.log(places))) if ax.get_xscale() == "log" else middles(places)
    runs = [0, *(np.flatnonzero(labels[1:] != labels[:-1]) + 1), len(labels)]
    low, high = (0, 1) if is_strip else ax.get_ylim()
    share = 0.18 if is_strip else 0.06
    ax.set_ylim(low - share * 1.3 * (high - low), high)  # the band lies below the numbers
    for name, color in colors.items():
        spans = [(ends[start], ends[stop] - ends[start]) for start, stop in pairwise(runs) if labels[start] == name]
        band = {"transform": ax.get_xaxis_transform(), "facecolors": color, "linewidth": 0, "zorder": 3}
        ax.broken_barh(spans, (0, share), **band)
    if ax.get_legend() is None:
        legend_above(ax, condition_patches(W, mode))


def middles(places: Any) -> Any:
    """Return the edges of the cells around positions, (n + 1,)."""
    if len(places) == 1:
        return places[0] + np.array([-0.5, 0.5])
    inner = (places[1:] + places[:-1]) / 2
    return np.concatenate([[2 * places[0] - inner[0]], inner, [2 * places[-1] - inner[-1]]])
