"""All atoms of a decomposition in one figure."""

import numbers
from typing import Any

from boolcp.extras import load_extra
from boolcp.plotting._conditions import condition_patches
from boolcp.plotting._parts import plot_boolean, plot_real, shading
from boolcp.plotting.look import need, on_off_patches, plain_text
from boolcp.plotting.mode_labels import has_places, mode_text, positions_of
from boolcp.result.atoms import BooleanCP


def plot_atoms(W: BooleanCP, atoms: Any = None, figure: Any = None) -> Any:
    """Draw a decomposition: one row for each atom, one column for each mode, and one for images of block atoms.

    Parameters
    ----------
    W : BooleanCP
        The decomposition, of any order.
    atoms : int or list of int, optional
        The atoms to draw; all if None.
    figure : matplotlib Figure or SubFigure, optional
        Where to draw; a new figure of suitable size if None.

    Returns
    -------
    matplotlib Figure
        The figure.

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
    is_plain = W.labels is None or all(positions_of(W, n) is None and has_places(W, n) for n in range(W.ndim))
    height = 1.8 if is_plain else 2.3
    if figure is None:
        pyplot = load_extra("matplotlib.pyplot", "plot")
        size = (2.9 * n_columns, height * max(len(panels), 1) + 0.5)
        figure = pyplot.figure(figsize=size, layout="constrained")
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
                plot_panel(W, k, mode, ax)
                ax.tick_params(labelsize=7)
                if ax.get_legend() and not ax.get_legend_handles_labels()[0]:
                    ax.get_legend().remove()  # the legend of the conditions is below all rows
    has_doubt = any(shading(W, k).min() < 0.9 for k in chosen)
    handles = on_off_patches(bool(W.undetermined), has_doubt)
    handles += [patch for n in range(W.ndim) for patch in condition_patches(W, n)]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure


def atom_panels(W: BooleanCP, k: int) -> Any:
    """Return the panels of one atom: each mode, and a pair of modes for the image of a part that is not rank one."""
    panels: list = list(range(W.ndim))
    is_product = W.atoms[k].rank == 1 or W.ndim < 3 or (W.ndim > 3 and W.atoms[k].block is None)
    return panels if is_product else [*panels, image_modes(W, k)]


def image_modes(W: BooleanCP, k: int) -> Any:
    """Return the two modes of the image of an atom: the longest real ones; the longest is last and horizontal."""
    others = [n for n in range(W.ndim) if n != W.atoms[k].mode]
    if len(others) < 2:
        raise ValueError(f"Atom {k} has one real mode, so its real part is a line: use plot_real.")
    return tuple(sorted(others, key=lambda n: W.shape[n])[-2:])


def plot_panel(W: BooleanCP, k: int, mode: int, ax: Any = None) -> Any:
    """Draw one panel of an atom, Boolean or real, and return the Axes."""
    return plot_boolean(W, k, ax) if mode == W.atoms[k].mode else plot_real(W, k, mode, ax)


def atom_title(W: BooleanCP, k: int) -> Any:
    """Describe an atom in one line: its number, Boolean mode, ones, and share of variance if known."""
    atom = W.atoms[k]
    title = f"atom {k}: Boolean along {mode_text(W, atom.mode)}, on in {atom.n_ones} of {len(atom.z)}"
    if not W.data_norm2 or W.data_inner is None or W.deviance is not None:
        return title
    return f"{title}, {100 * W.explained_alone()[k]:.1f} % of the variance alone"
