"""Conditions along a mode (states, stimuli): their colors, and in which of them each atom is on."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from boolcp.checks import check_mode
from boolcp.plotting.look import GROUPS as COLORS
from boolcp.plotting.look import legend_above, make_patch, shortened
from boolcp.plotting.mode_labels import cell_edges, condition_of, further_names, group_names, mode_text, undetermined_of
from boolcp.plotting.patterns import leading_column
from boolcp.result.atoms import BooleanCP


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
    >>> truth = boolcp.datasets.make_boolean_cp((6, 7, 8), 2, random_state=0).truth
    >>> means = boolcp.plotting.condition_means(truth, 0, ["rest"] * 3 + ["task"] * 3)
    >>> means.conditions, means.mean.shape
    (('rest', 'task'), (2, 2))
    """
    mode = check_mode(mode, W.ndim, W.dims)
    place, labels = mode_text(W, mode), condition_of(W, mode, condition) if isinstance(condition, str) else condition
    if labels is None:
        others = ", ".join(further_names(W, mode)) or "no other coordinates"
        advice = "pass one of its names, or one label for each entry"
        raise ValueError(f"condition names the coordinate {condition!r}, but {place} has {others}: {advice}.")
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
    ends = cell_edges(places)
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
