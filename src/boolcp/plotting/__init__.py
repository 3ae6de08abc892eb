"""Plots of a decomposition and of tests of it for notebooks and papers, each on one Axes, by matplotlib.

A decomposition, the result of a test or arrays enter; the Axes leave, so that the caller composes figures: those given
as `ax`, or the Axes of a new figure. All numbers drawn can be read back from them.

Plots use the labels of a decomposition. Units of coordinates go to the axes, and three additional coordinates along a
mode have a meaning: `x` and `y` (numbers) are the positions of electrodes, and `condition` is the state or stimulus.
"""

from boolcp.plotting._atoms import atoms_picture as atoms_picture
from boolcp.plotting._atoms import condition_means, plot_atoms, plot_boolean, plot_on_off, plot_real
from boolcp.plotting.look import OFF as OFF
from boolcp.plotting.look import ON as ON
from boolcp.plotting.maps import plot_electrodes

__all__ = [
    "condition_means",
    "plot_atoms",
    "plot_boolean",
    "plot_electrodes",
    "plot_on_off",
    "plot_real",
]
