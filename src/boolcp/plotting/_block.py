"""The real part of a block atom: an image with its leading patterns along the sides."""

from typing import Any

import numpy as np

from boolcp.plotting._figure import image_modes
from boolcp.plotting._parts import plot_real
from boolcp.plotting.look import LINES, LONG, legend_above, make_axes
from boolcp.plotting.mode_labels import even_places, mode_index
from boolcp.plotting.patterns import block_image, signs_of
from boolcp.result.atoms import BooleanCP


def plot_block(W: BooleanCP, k: int, modes: Any = None, *, n_patterns: int = 2, ax: Any = None) -> Any:
    """Draw the real part of atom k as an image, its leading patterns above and to the right of it.

    The patterns are the leading pairs of singular vectors of the image, each scaled to a largest entry of one; the
    share of the squared entries that a pair explains is written above. An atom of rank one has one pattern.

    Parameters
    ----------
    W : BooleanCP
        The decomposition, of order 3 or more.
    k : int
        The atom: a dense block, or of any rank.
    modes : pair of int or str, optional
        The vertical and the horizontal mode; by default the two longest real ones, the longest horizontal.
    n_patterns : int
        The maximal number of patterns to draw.
    ax : matplotlib Axes, optional
        The Axes of the image; the patterns are insets beside it.

    Returns
    -------
    matplotlib Axes
        The Axes of the image; `child_axes` are those of the patterns, above and right.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_block
    >>> X = boolcp.datasets.make_boolean_cp((6, 7, 8), 2, noise=0.1, random_state=0).X
    >>> W = boolcp.decompose(X, 1, atom_rank="block", random_state=0)
    >>> ax = plot_block(W, 0)
    >>> len(ax.child_axes), ax.images[0].get_array().ndim
    (2, 2)
    """
    modes = image_modes(W, k) if modes is None else tuple(mode_index(W, mode) for mode in modes)
    ax = plot_real(W, k, modes, make_axes(ax, height=2.8))
    image = np.nan_to_num(block_image(W, k, modes))
    U, sizes, V = np.linalg.svd(image, full_matrices=False)
    signs = signs_of(U)
    shares = sizes**2 / max(float(sizes @ sizes), 1e-300)
    n_patterns = max(1, min(n_patterns, int(np.sum(sizes > 1e-8 * max(sizes[0], 1e-300)))))
    above, right = ax.inset_axes([0, 1.03, 1, 0.25], sharex=ax), ax.inset_axes([1.03, 0, 0.25, 1], sharey=ax)
    for n in range(n_patterns):
        u, v = signs[n] * U[:, n], signs[n] * V[n]
        look = {"color": LINES[n], "linewidth": 1.0, "rasterized": max(image.shape) > LONG}
        above.plot(cells(W, modes[1]), v / np.max(np.abs(v)), label=f"{100 * shares[n]:.0f} %", **look)
        right.plot(u / np.max(np.abs(u)), cells(W, modes[0]), **look)
    for side in (above, right):
        side.set_axis_off()
    above.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    right.axvline(0, color="0.8", linewidth=0.6, zorder=0)
    legend_above(above)
    return ax


def cells(W: BooleanCP, mode: int) -> Any:
    """Return the positions of the cells of an image along a mode."""
    places = even_places(W, mode)[0]
    return np.arange(W.shape[mode]) if places is None else places
