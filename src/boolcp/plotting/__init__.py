"""Plots of a decomposition and of tests of it, each on one Axes.

A decomposition, a test result or plain arrays enter. The Axes with the plot leaves, so that the caller composes
figures. All numbers drawn can be read back from it.

Plots use the labels of a decomposition. Units of coordinates go to the axes, and three additional coordinates along a
mode have a meaning: `x` and `y` (numbers) are the positions of electrodes, and `condition` is the state or stimulus.
"""

from boolcp.plotting._block import plot_block
from boolcp.plotting._conditions import condition_means, plot_conditions
from boolcp.plotting._electrodes import plot_electrodes
from boolcp.plotting._figure import atom_panels as atom_panels
from boolcp.plotting._figure import plot_atoms
from boolcp.plotting._figure import plot_panel as plot_panel
from boolcp.plotting._fit import plot_certificates, plot_error_path, plot_explained_path, plot_residual, plot_selection
from boolcp.plotting._fit import relative_error as relative_error
from boolcp.plotting._maps import plot_boolean_map
from boolcp.plotting._notebook import atoms_picture as atoms_picture
from boolcp.plotting._notebook import draw_stability as draw_stability
from boolcp.plotting._notebook import draw_test as draw_test
from boolcp.plotting._notebook import with_picture as with_picture
from boolcp.plotting._parts import plot_boolean, plot_real
from boolcp.plotting._stability import plot_bit_probability, plot_stability
from boolcp.plotting.look import OFF as OFF
from boolcp.plotting.look import ON as ON
from boolcp.plotting.look import ORANGE as ORANGE
from boolcp.plotting.look import legend_above as legend_above
from boolcp.plotting.look import make_patch as make_patch
from boolcp.plotting.mode_labels import coordinate_text as coordinate_text
from boolcp.plotting.mode_labels import coordinates_of as coordinates_of
from boolcp.plotting.mode_labels import groups_of as groups_of
from boolcp.plotting.mode_labels import line_places as line_places
from boolcp.plotting.mode_labels import mode_text as mode_text
from boolcp.plotting.mode_labels import positions_of as positions_of
from boolcp.plotting.patterns import only_leading as only_leading
from boolcp.plotting.patterns import real_columns as real_columns

__all__ = [
    "condition_means",
    "plot_atoms",
    "plot_bit_probability",
    "plot_block",
    "plot_boolean",
    "plot_boolean_map",
    "plot_certificates",
    "plot_conditions",
    "plot_electrodes",
    "plot_error_path",
    "plot_explained_path",
    "plot_real",
    "plot_residual",
    "plot_selection",
    "plot_stability",
]
