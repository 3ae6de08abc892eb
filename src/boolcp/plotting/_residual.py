"""The residual against noise."""

from typing import Any

import numpy as np

from boolcp.plotting.look import BLUE, finish, make_axes, need, plain_text, shortened


def plot_residual(check: Any, ax: Any = None) -> Any:
    """Draw the quantiles of the residual against those of normal noise, and state its structure.

    On the dashed line the residual is normal. The text gives for each mode the largest singular value of the residual,
    divided by the edge of white noise (above 1: structure is left), and the correlation of neighbors.

    Parameters
    ----------
    check : ResidualCheck
        What `boolcp.residuals.residual_check` returned.
    ax : matplotlib Axes, optional
        Where to draw; a new figure of column width if None.

    Returns
    -------
    matplotlib Axes
        With two lines: the reference and the quantiles.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_residual
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    >>> ax = plot_residual(boolcp.residuals.residual_check(X, truth))
    >>> ax.get_ylabel()
    'residual / root mean square'
    """
    need(check, "normal_quantiles", "a ResidualCheck, boolcp.residuals.residual_check(X, W)")
    ax = make_axes(ax, height=2.8)
    x, y = check.normal_quantiles, check.quantiles
    ends = np.array([x[0], x[-1]])
    ax.plot(ends, ends, color="0.5", linestyle="--", linewidth=1.0)
    ax.plot(x, y, color=BLUE, marker="o", markersize=2.5, linewidth=0.8)
    finish(ax, "normal quantile", "residual / root mean square")
    names = [plain_text(shortened(name, 12)) for name in check.mode_names]
    rows = zip(names, check.structure, check.lag_correlation, strict=True)
    lines = [f"{name}: {ratio:.2f}, {round(lag, 2) + 0.0:+.2f}" for name, ratio, lag in rows]
    head = "largest singular value / noise edge,\ncorrelation of neighbors"
    ax.text(0.03, 0.98, "\n".join([head, *lines]), transform=ax.transAxes, va="top", fontsize=6.5)
    verdict = "no structure above white noise" if check.is_noise else "structure is left"
    size = f"root mean square {check.rms:.3g}, excess kurtosis {check.kurtosis:.2f}"
    ax.set_title(f"{verdict}\n{size}", fontsize=8)
    return ax
