"""Pictures, one Axes each: a function draws given numbers and returns the Axes; the caller composes figures."""

import numpy as np

BLUE, ORANGE = "#0072B2", "#E69F00"  # of the Okabe-Ito palette, safe for the colorblind


def _axes(ax, **size):
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install 'boolcp[plot]'.") from error
    return plt.subplots(layout="constrained", **size)[1]


def plot_selection(selection, ax=None):
    """Draw the mean held-out error with its standard error against the number of atoms, the choice marked."""
    ax = _axes(ax, figsize=(4.5, 3))
    numbers = np.arange(len(selection.mean))
    ax.errorbar(numbers, selection.mean, selection.standard_error, color=BLUE, marker="o", markersize=4, capsize=2)
    ax.axvline(selection.n_atoms, color=ORANGE, linestyle="--", label=f"chosen: {selection.n_atoms}")
    ax.set(xlabel="number of atoms", ylabel="held-out RMSE")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False)
    return ax


def plot_bit_probability(stability, atom=0, ax=None):
    """Draw the probability of each entry of one atom's z over repeated fits, entries that are on in blue."""
    ax = _axes(ax, figsize=(6, 2.5))
    z, p = stability.decomposition.atoms[atom].z, stability.bit_probability[atom]
    places = np.arange(len(z))
    ax.bar(places, p, width=1.0, color=np.where(z, BLUE, ORANGE))
    name = stability.decomposition.mode_name(stability.decomposition.atoms[atom].mode)
    came_back = f"came back in {100 * stability.recurrence[atom]:.0f} % of {len(stability.similarity)} fits"
    label = f"mode {name}" if name.isdigit() else name
    ax.set(xlabel=label, ylabel="probability of on", ylim=(0, 1.02), xlim=(-0.5, len(z) - 0.5))
    ax.set_title(f"atom {atom}: {came_back}", fontsize=10)
    return ax
