"""Boolean factors of several atoms side by side, one column for each condition."""

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from boolcp.plotting._conditions import read_conditions
from boolcp.plotting._electrodes import draw_values, point_size
from boolcp.plotting.look import COLUMN, legend_below, make_axes, on_off_patches, plain_text, points_wide, two_colors
from boolcp.plotting.mode_labels import condition_of, mode_index, mode_text, positions_of
from boolcp.result.atoms import BooleanCP

GAP = 0.08  # between the panels, as a share of their size
ORDINALS = ("1st", "2nd", "3rd")


def plot_boolean_map(
    W: BooleanCP,
    mode: int = 0,
    *,
    condition: Any = None,
    positions: Any = None,
    n_atoms: int | None = None,
    ax: Any = None,
) -> Any:
    """Draw where atoms are on, a row for each atom, a column for each condition: yellow 1, blue 0.

    Several decompositions, one for each condition: the atoms that are Boolean along the mode, in the order of their
    weights. One decomposition: its atoms that are Boolean along the mode, with the entries (trials, say) of each
    condition in a separate column. A panel is a map of the electrodes if their positions are known and not divided by
    condition, otherwise a strip.

    Parameters
    ----------
    W : BooleanCP, or dict of str to BooleanCP or to array-like of bool, shape (K, d)
        The decomposition, or one for each condition; arrays of bits also work.
    mode : int or str
        The Boolean mode, by index or name.
    condition : str or sequence, optional
        For one decomposition, the name of a coordinate along the mode, or one label for each entry; by default the
        coordinate "condition", if there is one.
    positions : array-like of shape (d, 2), optional
        Where the entries lie; those of the labels by default.
    n_atoms : int, optional
        The maximal number of rows to draw.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure of suitable size.

    Returns
    -------
    matplotlib Axes
        With an image for each strip or a collection of points for each map, row by row.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_boolean_map
    >>> truth = boolcp.datasets.simulate_ecog(16, 4, trial_ms=500, random_state=0).truth
    >>> ax = plot_boolean_map(truth)
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['rest', 'anesthesia', 'recovery']
    >>> bool((truth["rest"].atoms[0].z == (ax.collections[0].get_facecolors()[:, 2] < 0.5)).all())
    True
    """
    fields, names = one_decomposition(W, mode, condition) if isinstance(W, BooleanCP) else several(W, mode)
    first = W if isinstance(W, BooleanCP) else next(iter(W.values()), None)
    is_divided = isinstance(W, BooleanCP) and len(fields) > 1
    if positions is None and isinstance(first, BooleanCP) and not is_divided:
        positions = positions_of(first, mode_index(first, mode))
    is_map = positions is not None and not is_divided
    positions = np.asarray(positions, dtype=float) if is_map else None
    n_rows = max((len(bits) for bits in fields.values()), default=0)
    names = names[: n_rows if n_atoms is None else n_atoms]
    height = map_height(positions) if is_map else 1.0
    ax = make_axes(ax, max(COLUMN, 1.15 * len(fields) + 0.5), (1.15 if is_map else 0.28) * height * len(names) + 0.8)
    if not names:
        ax.text(0.5, 0.5, "no atom is Boolean along this mode", ha="center", fontsize=8, transform=ax.transAxes)
        ax.set_axis_off()
        return ax
    lefts, widths = columns([bits.shape[1] if is_divided else 1.0 for bits in fields.values()])
    wide, high = points_wide(ax)
    size = point_size((wide / len(fields), high / len(names)), positions) if is_map else 0.0
    for row in range(len(names)):
        for bits, left, width in zip(fields.values(), lefts, widths, strict=True):
            if row < len(bits):
                draw_field(ax, bits[row], (left, width, row * height, height), positions, size)
    titles = field_titles(fields, int(wide / len(fields) / 4.5), is_divided)
    label_fields(ax, (lefts + widths / 2, titles), (np.arange(len(names)) * height, height, names))
    ax.set_xlim(-GAP, lefts[-1] + widths[-1] + GAP)
    if is_map:
        ax.set_aspect("equal")
    elif isinstance(first, BooleanCP):
        n = mode_index(first, mode)
        each = "by condition" if is_divided else f"all {first.shape[n]} in each field"
        ax.set_xlabel(f"{plain_text(mode_text(first, n))} ({each})", fontsize=8)
    has_unknown = any(np.ma.getmaskarray(bits).any() for bits in fields.values())
    legend_below(ax, on_off_patches(has_unknown), ncols=3, down=14 if ax.get_xlabel() else 0)
    return ax


def map_height(positions: Any) -> Any:
    """Return the height of an electrode map of width one, with a margin."""
    width, height = np.nanmax(positions, axis=0) - np.nanmin(positions, axis=0)
    return float(np.clip(height / width if width > 0 else 1.0, 0.3, 1.0)) + GAP


def several(decompositions: Any, mode: int) -> Any:
    """Return the bits (K, d) by condition, and the name of each row."""
    if not isinstance(decompositions, Mapping):
        raise TypeError(f"W must be a BooleanCP or a dict of them, got {type(decompositions).__name__}.")
    fields = {}
    for name, W in decompositions.items():
        if isinstance(W, BooleanCP):
            n = mode_index(W, mode)
            order = [k for k in np.argsort(-np.abs(W.weights), kind="stable") if W.atoms[k].mode == n]
            fields[str(name)] = bits_of(W, n, order)
        else:
            fields[str(name)] = np.ma.atleast_2d(np.ma.asarray(W)).astype(bool)
    most = max((len(bits) for bits in fields.values()), default=0)
    return fields, [f"{ORDINALS[k] if k < 3 else f'{k + 1}th'} atom" for k in range(most)]


def one_decomposition(W: BooleanCP, mode: int, condition: Any) -> Any:
    """Return the bits (K, entries) of each condition, and the name of each row."""
    mode = mode_index(W, mode)
    members = np.flatnonzero(W.boolean_mode == mode)
    bits, names = bits_of(W, mode, members), [f"atom {k}" for k in members]
    labels = condition_of(W, mode) if condition is None else read_conditions(W, mode, condition)
    if labels is None:
        return {"": bits}, names
    return {name: bits[:, labels == name] for name in dict.fromkeys(labels.tolist())}, names


def bits_of(W: BooleanCP, mode: int, atoms: Any) -> Any:
    """Return the Boolean vectors of some atoms, (K, d), masked where undetermined."""
    bits = np.array([W.atoms[k].z for k in atoms], dtype=bool).reshape(len(atoms), W.shape[mode])
    unknown = (W.undetermined or {}).get(mode, np.zeros(W.shape[mode], dtype=bool))
    return np.ma.masked_array(bits, np.broadcast_to(unknown, bits.shape))


def columns(sizes: Any) -> Any:
    """Return the left ends and widths of columns, proportional to their sizes and one on average."""
    widths = np.array(sizes, dtype=float)
    widths *= len(widths) / widths.sum()
    return np.concatenate([[0], np.cumsum(widths + GAP)[:-1]]), widths


def draw_field(ax: Any, bits: Any, place: Any, positions: Any, size: Any) -> None:
    """Draw one Boolean vector at (left, width, top, height): a map if positions are given, otherwise a strip."""
    left, width, top, height = place
    if positions is None:
        look = {"cmap": two_colors(), "vmin": 0, "vmax": 1, "interpolation_stage": "rgba", "aspect": "auto"}
        ax.imshow(bits[None, :].astype(float), extent=(left, left + width, top + (1 - GAP) * height, top), **look)
        return
    low, high = np.nanmin(positions, axis=0), np.nanmax(positions, axis=0)
    scale = (1 - 2 * GAP) / max(np.max(high - low), 1e-12)  # the same in both directions
    flat = (positions - (low + high) / 2) * scale * [1, -1]  # rows count downward, positions upward
    draw_values(ax, np.array([left + width / 2, top + height / 2]) + flat, bits, size, None)


def field_titles(fields: Any, n_letters: Any, is_divided: bool) -> Any:
    """Return the conditions on at most two lines each, with their numbers of entries if these differ."""
    look = {"width": max(n_letters, 6), "max_lines": 2, "placeholder": "…"}
    titles = [plain_text("\n".join(textwrap.wrap(name, **look))) for name in fields]
    counts = [f"\n({bits.shape[1]})" if is_divided else "" for bits in fields.values()]
    return [title + count for title, count in zip(titles, counts, strict=True)]


def label_fields(ax: Any, columns: Any, rows: Any) -> None:
    """Write the conditions above the columns and the atoms beside the rows."""
    (centers, titles), (tops, height, names) = columns, rows
    ax.xaxis.tick_top()
    ax.set_xticks(centers, titles, fontsize=7)
    ax.set_yticks(tops + height * (1 - GAP) / 2, names, fontsize=7)
    ax.set_ylim(tops[-1] + height, tops[0] - GAP * height)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
