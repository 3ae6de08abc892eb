"""Plots of tests: selection, residual, replication, on/off or graded."""

from typing import Any

import numpy as np

from boolcp.plotting import look
from boolcp.result.trust import group_density


def plot_selection(selection: Any, ax: Any = None) -> Any:
    """Draw how many atoms of a Selection come back against the number of atoms, mark the choice; return the Axes.

    Examples
    --------
    >>> import boolcp, numpy as np
    >>> selection = boolcp.Selection(1, (np.array([1.0]), np.array([1.0, 0.2])), "8 fits")
    >>> boolcp.plotting.plot_selection(selection).get_ylabel()
    'atoms that come back'
    """
    look.need(selection, "n_replicated", "a Selection, boolcp.select_n_atoms(X)")
    ax = look.make_axes(ax)
    numbers = np.arange(1, len(selection.shares) + 1)
    ax.plot(numbers, numbers, color="0.5", linestyle="--", linewidth=1.0, label="all of them")
    ax.plot(numbers, selection.n_replicated, color=look.BLUE, marker="o", markersize=4)
    edge = ", the largest tried" if selection.is_at_edge else ""
    ax.axvline(selection.n_atoms, color=look.ORANGE, linestyle=":", label=f"chosen: {selection.n_atoms}{edge}")
    look.finish(ax, "number of atoms", "atoms that come back")
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_major_locator().set_params(integer=True)
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


def plot_replication(replication: Any, ax: Any = None) -> Any:
    """Draw how often each atom of a Replication came back (bars), and its mean |cosine| (diamonds); return the Axes.

    Examples
    --------
    >>> import boolcp
    >>> X = boolcp.datasets.make_boolean_cp((8, 9, 20), 2, boolean_modes=[2], noise=0.1, random_state=0).X
    >>> found = boolcp.replication(X, 2, boolean_modes=[2], n_parts=2, random_state=0)
    >>> [round(bar.get_height()) for bar in boolcp.plotting.plot_replication(found).patches]
    [100, 100]
    """
    look.need(replication, "share", "a Replication, boolcp.replication(X, W)")
    n_atoms = len(replication.share)
    ax = look.make_axes(ax, width=max(look.COLUMN, 0.3 * n_atoms + 0.6))
    ax.bar(np.arange(n_atoms), 100 * replication.share, width=0.85, color="0.88", edgecolor="0.6", linewidth=0.5)
    style = {"s": 18, "color": look.ORANGE, "marker": "D", "zorder": 3, "label": "100 x mean |cosine|", **look.EDGE}
    ax.scatter(np.arange(n_atoms), 100 * replication.cosine.mean(axis=0), **style)
    ax.set(xlim=(-0.6, max(n_atoms, 1) - 0.4), ylim=(0, 104))
    look.finish(ax, "atom", f"% of {replication.decomposition.trust.parts}")
    ax.xaxis.get_major_locator().set_params(integer=True)
    look.legend_above(ax, [look.make_patch("0.88", "came back"), *ax.collections])
    return ax


def plot_on_off(W: Any, atom: int = 0, ax: Any = None) -> Any:
    """Draw the amplitudes of one atom in slices that a fit has not seen, with the two groups; return the Axes.

    Two separate humps: the atom is on and off. One hump: nothing shows that it is, its strength may be graded.

    Examples
    --------
    >>> import boolcp
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
