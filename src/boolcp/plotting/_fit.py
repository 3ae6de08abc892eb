"""Plots of tests: selection, residual, stability."""

from typing import Any

import numpy as np

from boolcp.plotting import look
from boolcp.plotting.mode_labels import even_places, label_mode

STABILITY = "a Stability, boolcp.stability(X, n_atoms)"


def plot_selection(selection: Any, ax: Any = None) -> Any:
    """Draw the held-out error of a Selection against the number of atoms, mark the choice, and return the Axes.

    Examples
    --------
    >>> import boolcp
    >>> X = boolcp.datasets.make_boolean_cp((8, 9, 10), 1, noise=0.5, random_state=0).X
    >>> ax = boolcp.plotting.plot_selection(boolcp.select_n_atoms(X, 2, splits=2, random_state=0))
    >>> ax.get_ylabel()
    'held-out RMSE'
    """
    look.need(selection, "standard_error", "a Selection, boolcp.select_n_atoms(X)")
    ax = look.make_axes(ax)
    numbers = np.arange(len(selection.mean))
    ax.errorbar(numbers, selection.mean, selection.standard_error, color=look.BLUE, marker="o", markersize=4, capsize=2)
    edge = ", the largest tried" if selection.is_at_edge else ""
    ax.axvline(selection.n_atoms, color=look.ORANGE, linestyle="--", label=f"chosen: {selection.n_atoms}{edge}")
    look.finish(ax, "number of atoms", f"held-out {selection.measure.replace('rmse', 'RMSE')}")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False, fontsize=7)
    return ax


def plot_residual(check: Any, ax: Any = None) -> Any:
    """Draw the quantiles of the residual against those of normal noise, and state its structure.

    `check` is a ResidualCheck. On the dashed line the residual is normal. The text gives for each mode the largest
    singular value, divided by the edge of white noise (above 1: structure is left), and the correlation of neighbors.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    >>> ax = boolcp.plotting.plot_residual(boolcp.residuals.residual_check(X, truth))
    >>> ax.get_ylabel()
    'residual / root mean square'
    """
    look.need(check, "normal_quantiles", "a ResidualCheck, boolcp.residuals.residual_check(X, W)")
    ax = look.make_axes(ax, height=2.8)
    x, y = check.normal_quantiles, check.quantiles
    ends = np.array([x[0], x[-1]])
    ax.plot(ends, ends, color="0.5", linestyle="--", linewidth=1.0)
    ax.plot(x, y, color=look.BLUE, marker="o", markersize=2.5, linewidth=0.8)
    look.finish(ax, "normal quantile", "residual / root mean square")
    names = [look.plain_text(look.shortened(name, 12)) for name in check.mode_names]
    rows = zip(names, check.structure, check.lag_correlation, strict=True)
    lines = [f"{name}: {ratio:.2f}, {round(lag, 2) + 0.0:+.2f}" for name, ratio, lag in rows]
    head = "largest singular value / noise edge,\ncorrelation of neighbors"
    ax.text(0.03, 0.98, "\n".join([head, *lines]), transform=ax.transAxes, va="top", fontsize=6.5)
    verdict = "no structure above white noise" if check.is_noise else "structure is left"
    size = f"root mean square {check.rms:.3g}, excess kurtosis {check.kurtosis:.2f}"
    ax.set_title(f"{verdict}\n{size}", fontsize=8)
    return ax


def plot_stability(stability: Any, ax: Any = None) -> Any:
    """Draw how often each atom of a Stability came back (bars), and its mean similarity (diamonds); return the Axes.

    Examples
    --------
    >>> import boolcp
    >>> X = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0).X
    >>> ax = boolcp.plotting.plot_stability(boolcp.stability(X, 2, n_runs=2, random_state=0))
    >>> [round(bar.get_height()) for bar in ax.patches]
    [100, 100]
    """
    look.need(stability, "recurrence", STABILITY)
    n_atoms = len(stability.recurrence)
    ax = look.make_axes(ax, width=max(look.COLUMN, 0.3 * n_atoms + 0.6))
    ax.bar(np.arange(n_atoms), 100 * stability.recurrence, width=0.85, color="0.88", edgecolor="0.6", linewidth=0.5)
    style = {"s": 18, "color": look.ORANGE, "marker": "D", "zorder": 3, "label": "mean similarity", **look.EDGE}
    ax.scatter(np.arange(n_atoms), 100 * stability.similarity.mean(axis=0), **style)
    ax.set(xlim=(-0.6, max(n_atoms, 1) - 0.4), ylim=(0, 104))
    look.finish(ax, "atom", f"% of {stability.over}")
    ax.xaxis.get_major_locator().set_params(integer=True)
    look.legend_above(ax, [look.make_patch("0.88", "came back"), *ax.collections])
    return ax


def plot_bit_probability(stability: Any, atom: Any = 0, ax: Any = None) -> Any:
    """Draw the probability of each bit of one atom of a Stability, blue where it is on, and return the Axes.

    Examples
    --------
    >>> import boolcp
    >>> X = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0).X
    >>> len(boolcp.plotting.plot_bit_probability(boolcp.stability(X, 2, n_runs=2, random_state=0)).patches)
    9
    """
    look.need(stability, "bit_probability", STABILITY)
    ax = look.make_axes(ax, height=2.0)
    W = stability.decomposition
    one, p = W.atoms[atom], stability.bit_probability[atom]
    places, extent = even_places(W, one.mode)
    width, colors = abs(extent[1] - extent[0]) / len(p), np.where(one.z, look.BLUE, look.ORANGE)
    ax.bar(np.arange(len(p)) if places is None else places, p, width=width, color=colors)
    ax.set(ylim=(0, 1.02), xlim=extent)
    label_mode(ax, W, one.mode, places)
    look.finish(ax, ylabel="probability of on")
    if not np.isfinite(p).any():
        words = {"ha": "center", "fontsize": 7, "transform": ax.transAxes}
        ax.text(0.5, 0.5, "never came back: nothing is known about its bits", **words)
    title = f"atom {atom}: came back in {100 * stability.recurrence[atom]:.0f} % of {stability.over}"
    handles = [look.make_patch(look.BLUE, "on in the reference"), look.make_patch(look.ORANGE, "off")]
    look.legend_above(ax, handles, title=title)
    return ax
