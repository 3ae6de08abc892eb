"""Plots of tests: on/off or graded."""

from typing import Any

from boolcp.plotting import look
from boolcp.result.trust import group_density


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
