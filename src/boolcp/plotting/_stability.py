"""The stability of a decomposition: its bits and atoms over repeated fits."""

from typing import Any

import numpy as np

from boolcp.plotting.look import BLUE, LONG, ORANGE, finish, legend_above, make_axes, make_patch, need
from boolcp.plotting.mode_labels import even_places, label_mode

STABILITY = "a Stability, boolcp.stability(X, n_atoms)"

SPREAD = 0.7  # width that the bits of one atom take on the axis


def plot_stability(stability: Any, ax: Any = None) -> Any:
    """Draw how often each atom came back in other fits, how similar it was, and how certain each of its bits is.

    A bar is the share of fits in which the atom came back, a diamond its mean similarity. A point is one bit, in its
    order along the Boolean mode from the left to the right of the bar: the share of fits that agree with it, among
    those in which the atom came back.

    Parameters
    ----------
    stability : Stability
        What `boolcp.stability` returned.
    ax : matplotlib Axes, optional
        Where to draw; by default a figure that is wide enough for all atoms.

    Returns
    -------
    matplotlib Axes
        With a bar for each atom, and two collections: bits and similarities.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_stability
    >>> X = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0).X
    >>> ax = plot_stability(boolcp.stability(X, 2, n_runs=2, random_state=0))
    >>> [round(bar.get_height()) for bar in ax.patches]
    [100, 100]
    """
    need(stability, "bit_probability", STABILITY)
    W = stability.decomposition
    ax = make_axes(ax, width=max(3.35, 0.3 * W.n_atoms + 0.6))
    numbers = np.arange(W.n_atoms)
    ax.bar(numbers, 100 * stability.recurrence, width=0.85, color="0.88", edgecolor="0.6", linewidth=0.5)
    places, shares = [np.zeros(0)], [np.zeros(0)]
    for k, atom in enumerate(W.atoms):
        p = stability.bit_probability[k]
        places.append(k + SPREAD * ((np.arange(len(p)) + 0.5) / len(p) - 0.5))
        shares.append(100 * np.where(atom.z, p, 1 - p))
    x, y = np.concatenate(places), np.concatenate(shares)
    ax.scatter(x, y, s=4, color=BLUE, linewidth=0, zorder=2, rasterized=len(x) > LONG)
    similarity = 100 * stability.similarity.mean(axis=0)
    ax.scatter(numbers, similarity, s=18, color=ORANGE, marker="D", edgecolor="0.25", linewidth=0.4, zorder=3)
    ax.set(xlim=(-0.6, max(W.n_atoms, 1) - 0.4), ylim=(0, 104))
    finish(ax, "atom", f"% of {stability.over}")
    ax.xaxis.get_major_locator().set_params(integer=True)
    for points, label in zip(ax.collections, ("bits that agree", "mean similarity"), strict=True):
        points.set_label(label)
    legend_above(ax, [make_patch("0.88", "came back"), *ax.collections])
    return ax


def plot_bit_probability(stability: Any, atom: Any = 0, ax: Any = None) -> Any:
    """Draw the probability of each bit of one atom over repeated fits; bits that are on are blue.

    Parameters
    ----------
    stability : Stability
        What `boolcp.stability` returned.
    atom : int
        The atom.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib Axes
        With one bar for each entry; no bar where no fit saw the entry.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_bit_probability
    >>> X = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0).X
    >>> len(plot_bit_probability(boolcp.stability(X, 2, n_runs=2, random_state=0)).patches)
    9
    """
    need(stability, "bit_probability", STABILITY)
    ax = make_axes(ax, height=2.0)
    W = stability.decomposition
    one, p = W.atoms[atom], stability.bit_probability[atom]
    places, extent = even_places(W, one.mode)
    width = abs(extent[1] - extent[0]) / len(p)
    ax.bar(np.arange(len(p)) if places is None else places, p, width=width, color=np.where(one.z, BLUE, ORANGE))
    ax.set(ylim=(0, 1.02), xlim=extent)
    label_mode(ax, W, one.mode, places)
    finish(ax, ylabel="probability of on")
    if not np.isfinite(p).any():
        words = {"ha": "center", "fontsize": 7, "transform": ax.transAxes}
        ax.text(0.5, 0.5, "never came back: nothing is known about its bits", **words)
    title = f"atom {atom}: came back in {100 * stability.recurrence[atom]:.0f} % of {stability.over}"
    legend_above(ax, [make_patch(BLUE, "on in the reference"), make_patch(ORANGE, "off")], title=title)
    return ax
