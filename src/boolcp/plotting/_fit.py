"""Plots of a whole fit: error path, certificates, selection, residual."""

from typing import Any

import numpy as np

from boolcp.plotting.look import BLUE, LINES, ORANGE, finish, legend_above, make_axes, need, plain_text, shortened
from boolcp.plotting.mode_labels import mode_text
from boolcp.result.atoms import BooleanCP


def plot_error_path(history: Any, ax: Any = None) -> Any:
    """Draw the relative error |X - W^k| / |X| of the pursuit against the number k of atoms, and return the Axes.

    Parameters
    ----------
    history : sequence
        `BMP.history_`, the history in the provenance of a result file, or the relative errors for 1, 2, .. atoms.
    ax : matplotlib Axes, optional
        Where to draw; a new figure if None.

    Examples
    --------
    >>> from boolcp.plotting import plot_error_path
    >>> ax = plot_error_path([0.8, 0.5, 0.4])
    >>> [float(error) for error in ax.lines[0].get_ydata()]
    [0.8, 0.5, 0.4]
    """
    ax = make_axes(ax)
    errors = [relative_error(step) for step in history]
    draw_path(ax, np.arange(1, len(errors) + 1), errors)
    finish(ax, "number of atoms", "relative error")
    ax.set(xlim=(0.5, max(len(errors), 1) + 0.5))
    ax.set_ylim(0, 1.05 * max([e for e in errors if np.isfinite(e)], default=1.0) or 1.0)
    return ax


def plot_explained_path(history: Any, ax: Any = None) -> Any:
    """Draw the share of variance that the pursuit explains, in percent, against the number of atoms.

    Parameters
    ----------
    history : sequence
        As in `plot_error_path`.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib Axes
        With one line, which starts at zero atoms.

    Examples
    --------
    >>> from boolcp.plotting import plot_explained_path
    >>> ax = plot_explained_path([0.8, 0.6])
    >>> [round(float(share)) for share in ax.lines[0].get_ydata()]
    [0, 36, 64]
    """
    ax = make_axes(ax)
    shares = [0.0] + [100 * (1 - relative_error(step) ** 2) for step in history]
    draw_path(ax, np.arange(len(shares)), shares)
    finish(ax, "number of atoms", "variance explained (%)")
    ax.set(xlim=(-0.5, len(shares) - 0.5), ylim=(min(0.0, *shares, 0.0), 102))
    return ax


def draw_path(ax: Any, numbers: Any, values: Any) -> None:
    """Draw values against the number of atoms."""
    ax.plot(numbers, values, color=BLUE, marker="o", markersize=4)
    ax.xaxis.get_major_locator().set_params(integer=True)


def relative_error(step: Any) -> float:
    """Return the relative error of a step of a history: a record, a dict or the number itself."""
    if isinstance(step, dict):
        return float(step["relative_error"])
    step = getattr(step, "relative_error", step)
    if np.ndim(step) or isinstance(step, str):
        raise TypeError(f"A path plot needs the history of a fit, model.history_, got {type(step).__name__}.")
    return float(step)


def plot_certificates(W: BooleanCP, ax: Any = None) -> Any:
    """Draw the certificate of each atom in percent, colored by its Boolean mode; a dash marks an atom without one.

    Parameters
    ----------
    W : BooleanCP
        The decomposition.
    ax : matplotlib Axes, optional
        Where to draw; a new figure if None.

    Returns
    -------
    matplotlib Axes
        The Axes drawn on.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_certificates
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0)
    >>> len(plot_certificates(boolcp.decompose(X, 2, random_state=0)).patches)
    2
    """
    need(W, "atoms", "a BooleanCP")
    ax = make_axes(ax)
    values = 100 * np.array([atom.certificate for atom in W.atoms], dtype=float)
    for n in sorted(set(W.boolean_mode.tolist())):
        members = np.flatnonzero((W.boolean_mode == n) & np.isfinite(values))
        if len(members):
            ax.bar(members, values[members], width=0.7, color=LINES[n % len(LINES)], label=mode_text(W, n))
    for k in np.flatnonzero(np.isnan(values)):
        ax.text(k, 1, "-", ha="center")
    finish(ax, "atom", "certificate (%)")
    ax.set(ylim=(0, 105), xlim=(-0.6, max(W.n_atoms, 1) - 0.4))
    ax.xaxis.get_major_locator().set_params(integer=True)
    if np.isfinite(values).any():
        legend_above(ax, title="Boolean along")
    return ax


def plot_selection(selection: Any, ax: Any = None) -> Any:
    """Draw the mean held-out error with its standard error against the number of atoms, and mark the choice.

    Parameters
    ----------
    selection : Selection
        What `boolcp.select_n_atoms` returned.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib Axes
        With the errors as one line.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_selection
    >>> X = boolcp.datasets.make_boolean_cp((8, 9, 10), 1, noise=0.5, random_state=0).X
    >>> ax = plot_selection(boolcp.select_n_atoms(X, 2, splits=2, random_state=0))
    >>> ax.get_ylabel()
    'held-out RMSE'
    """
    need(selection, "standard_error", "a Selection, boolcp.select_n_atoms(X)")
    ax = make_axes(ax)
    numbers = np.arange(len(selection.mean))
    ax.errorbar(numbers, selection.mean, selection.standard_error, color=BLUE, marker="o", markersize=4, capsize=2)
    edge = ", the largest tried" if selection.is_at_edge else ""
    ax.axvline(selection.n_atoms, color=ORANGE, linestyle="--", label=f"chosen: {selection.n_atoms}{edge}")
    finish(ax, "number of atoms", f"held-out {selection.measure.replace('rmse', 'RMSE')}")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False, fontsize=7)
    return ax


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
