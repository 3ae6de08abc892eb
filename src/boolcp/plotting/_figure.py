"""All atoms of a decomposition in one figure, and small plots in the HTML that notebooks show."""

import base64
import importlib.util
import io
import numbers
from collections.abc import Callable
from html import escape
from typing import Any

from boolcp.plotting._conditions import condition_patches
from boolcp.plotting._parts import plot_boolean, plot_real, shading
from boolcp.plotting.look import need, on_off_patches, plain_text
from boolcp.plotting.mode_labels import mode_text
from boolcp.plotting.patterns import atom_panels
from boolcp.result.atoms import BooleanCP
from boolcp.result.summary import mean_words
from boolcp.system import load_extra

MAX_SHOWN, DPI = 4, 80  # atoms in a notebook, and their resolution


def plot_atoms(W: BooleanCP, atoms: Any = None, figure: Any = None) -> Any:
    """Return a figure: one row for each atom, one column for each mode, and one for images of block atoms.

    Parameters
    ----------
    W : BooleanCP
        The decomposition, of any order.
    atoms : int or list of int, optional
        The atoms to draw; all if None.
    figure : matplotlib Figure or SubFigure, optional
        Where to draw; a new figure of suitable size if None.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_atoms
    >>> truth = boolcp.datasets.make_boolean_cp((6, 7, 8, 5), 3, random_state=0).truth
    >>> len(plot_atoms(truth, [0, 2]).axes)
    8
    """
    need(W, "atoms", "a BooleanCP")
    atoms = [atoms] if isinstance(atoms, numbers.Integral) else atoms
    chosen = range(W.n_atoms) if atoms is None else [range(W.n_atoms)[k] for k in atoms]
    panels = {k: atom_panels(W, k) for k in chosen}
    n_columns = W.ndim + any(len(row) > W.ndim for row in panels.values())
    if figure is None:
        size = (2.9 * n_columns, (1.8 if W.labels is None else 2.3) * max(len(panels), 1) + 0.5)
        figure = load_extra("matplotlib.pyplot", "plot").figure(figsize=size, layout="constrained")
    if not panels:
        figure.text(0.5, 0.5, "no atoms", ha="center", va="center")
        return figure
    rows = figure.subfigures(len(panels), 1, squeeze=False)[:, 0]
    for row, (k, modes) in zip(rows, panels.items(), strict=True):
        row.suptitle(plain_text(atom_title(W, k)), fontsize=9, fontweight="bold", x=0.01, ha="left")
        for ax, mode in zip(row.subplots(1, n_columns, squeeze=False)[0], [*modes, None], strict=False):
            if mode is None:
                ax.set_axis_off()
            else:
                plot_boolean(W, k, ax) if mode == W.atoms[k].mode else plot_real(W, k, mode, ax)
                ax.tick_params(labelsize=7)
                if ax.get_legend() and not ax.get_legend_handles_labels()[0]:
                    ax.get_legend().remove()  # the legend of the conditions is below all rows
    if words := mean_words(W):
        figure.suptitle(plain_text(words), fontsize=8)
    has_doubt = any(shading(W, k).min() < 0.9 for k in chosen)
    handles = on_off_patches(bool(W.undetermined), has_doubt)
    handles += [patch for n in range(W.ndim) for patch in condition_patches(W, n)]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure


def atom_title(W: BooleanCP, k: int) -> str:
    """Describe an atom in one line: its number, Boolean mode, ones, and share of variance if known."""
    atom = W.atoms[k]
    has_share = W.data_norm2 and W.data_inner is not None and W.deviance is None
    share = f", {100 * W.explained_alone()[k]:.1f} % of the variance alone" if has_share else ""
    return f"atom {k}: Boolean along {mode_text(W, atom.mode)}, on in {atom.n_ones} of {len(atom.z)}{share}"


def with_picture(text: str, draw: Callable[[Any], Any], alt: str) -> str:
    """Return a preformatted text in HTML, with the plot that `draw` makes on an Axes below it."""
    return f"<pre>{escape(text)}</pre>{picture(lambda figure: draw(figure.subplots()), alt, (4.2, 2.6))}"


def atoms_picture(W: BooleanCP) -> str:
    """Return the first atoms of a decomposition as an image in HTML."""
    shown = range(min(W.n_atoms, MAX_SHOWN))
    if not shown or max(W.shape) > 5000:
        return ""
    size = (2.4 * W.ndim, 1.5 * len(shown) + 0.5)
    return picture(lambda figure: plot_atoms(W, list(shown), figure=figure), f"The first {len(shown)} atoms", size)


def picture(draw: Callable[[Any], Any], alt: str, size: tuple[float, float]) -> str:
    """Return the figure that `draw` makes as an image in HTML; nothing without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return ""
    from matplotlib.figure import Figure  # not pyplot: the figure is neither shown twice nor kept

    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
