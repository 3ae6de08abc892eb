"""Pictures, one Axes each: a function draws given numbers and returns the Axes; the caller composes figures."""

import numpy as np

from boolcp.atoms import BooleanCP
from boolcp.extras import load_extra

__all__ = [
    "plot_atoms",
    "plot_bit_probability",
    "plot_boolean",
    "plot_certificates",
    "plot_error_path",
    "plot_real",
    "plot_selection",
]

# of the Okabe-Ito palette, safe for the colorblind
BLUE, ORANGE, YELLOW = "#0072B2", "#E69F00", "#F0E442"
LINES = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
ON, OFF, UNKNOWN = YELLOW, BLUE, "#BBBBBB"
DIVERGING = "RdBu_r"
LONG = 1000  # a line with more points is an image in vector formats
MAX_TICKS, MAX_TICKS_UPWARD, MAX_LETTERS = 20, 8, 14
MAX_SWEEPS = 200


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


def plot_error_path(history, ax=None):
    """Draw the relative error |X - W^k| / |X| of the pursuit against the number k of atoms.

    Parameters
    ----------
    history : sequence
        `BMP.history_`, the history in the provenance of a result file, or the relative errors for 1, 2, .. atoms.
    ax : matplotlib Axes, optional
        Where to draw; a new figure if None.

    Returns
    -------
    matplotlib Axes
        The Axes drawn on.

    Examples
    --------
    >>> from boolcp.plotting import plot_error_path
    >>> ax = plot_error_path([0.8, 0.5, 0.4])
    >>> [float(error) for error in ax.lines[0].get_ydata()]
    [0.8, 0.5, 0.4]
    """
    ax = _axes(ax, figsize=(4.5, 3))
    errors = [relative_error(step) for step in history]
    ax.plot(np.arange(1, len(errors) + 1), errors, color=BLUE, marker="o", markersize=4)
    ax.set(xlabel="number of atoms", ylabel="relative error", xlim=(0.5, max(len(errors), 1) + 0.5))
    ax.set_ylim(0, 1.05 * max([e for e in errors if np.isfinite(e)], default=1.0) or 1.0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_boolean(W, k=0, ax=None):
    """Draw where atom k is on: an electrode map if its mode has positions, else a strip; yellow on, blue off.

    Positions are further coordinates `x` and `y` along the mode. Slices without any observed entry are gray.

    Parameters
    ----------
    W : BooleanCP or Atom
        The decomposition; a single atom has no labels.
    k : int
        The atom.
    ax : matplotlib Axes, optional
        Where to draw; a new figure if None.

    Returns
    -------
    matplotlib Axes
        The Axes drawn on.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_boolean
    >>> truth = boolcp.datasets.make_boolean_cp((6, 7, 8), 2, random_state=0).truth
    >>> ax = plot_boolean(truth, 0)
    >>> bool((ax.images[0].get_array()[0] == truth.atoms[0].z).all())
    True
    """
    W = W if isinstance(W, BooleanCP) else _alone(W)
    mode, z = W.atoms[k].mode, W.atoms[k].z
    unknown = (W.undetermined or {}).get(mode, np.zeros(len(z), dtype=bool))
    positions = _positions(W, mode)
    if positions is not None:
        ax = _axes(ax, figsize=(3.2, 3))
        colors = np.where(unknown, UNKNOWN, np.where(z, ON, OFF))
        _draw_electrodes(ax, positions, mode_text(W, mode), color=colors)
        return ax
    ax = _axes(ax, figsize=(6, 1.4))
    colors = load_extra("matplotlib.colors", "plot").ListedColormap([OFF, ON], bad=UNKNOWN)
    places, extent = _even_places(W, mode)
    bits = np.ma.masked_array(z[None, :].astype(float), unknown[None, :])
    look = {"cmap": colors, "vmin": 0, "vmax": 1, "interpolation_stage": "rgba"}  # thin lines fade, none is lost
    ax.imshow(bits, aspect="auto", extent=(*extent, 0, 1), **look)
    ax.set(yticks=[], xlim=extent)
    _label_mode(ax, W, mode, places)
    return ax


def plot_real(W, k, mode, ax=None):
    """Draw the real part of atom k along one mode as a line, or over a pair of modes as an image.

    The columns of all real modes are scaled to a largest entry of one, except along the longest, which carries the
    size: where the atom is on, its entries are the products of what is shown. An atom of rank L has L lines. Of a
    block, the line is its leading pattern (that of its best approximation of rank one), and the image is the block
    with its weight; of a block over more than two modes, the others are contracted with their leading patterns.
    A mode with positions `x` and `y` is drawn as an electrode map.

    Parameters
    ----------
    W : BooleanCP
        The decomposition.
    k : int
        The atom.
    mode : int or pair of int
        The mode, or the two modes of an image (vertical and horizontal axis).
    ax : matplotlib Axes, optional
        Where to draw; a new figure if None.

    Returns
    -------
    matplotlib Axes
        The Axes drawn on.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.plotting import plot_real
    >>> truth = boolcp.datasets.make_boolean_cp((6, 7, 8), 2, random_state=0).truth
    >>> float(abs(plot_real(truth, 0, 1).lines[0].get_ydata()).max())
    1.0
    >>> plot_real(truth, 0, (1, 2)).images[0].get_array().shape
    (7, 8)
    """
    modes = tuple(int(m) for m in np.atleast_1d(mode))
    if len(set(modes)) != len(modes) or len(modes) > 2 or not all(0 <= m < W.ndim for m in modes):
        raise ValueError(f"mode must be one of 0 to {W.ndim - 1} or two of them, but it is {mode!r}.")
    if W.atoms[k].mode in modes:
        raise ValueError(f"Atom {k} is Boolean along mode {W.atoms[k].mode}: use plot_boolean.")
    if len(modes) == 2:
        return _draw_image(W, k, modes, _axes(ax, figsize=(4.5, 3)))
    columns = real_columns(W, k)[modes[0]]
    positions = _positions(W, modes[0])
    if positions is not None and columns.shape[1] == 1:
        ax = _axes(ax, figsize=(3.6, 3))
        look = {"c": columns[:, 0], "cmap": _diverging(), "plotnonfinite": True, **_symmetric(columns)}
        points = _draw_electrodes(ax, positions, mode_text(W, modes[0]), **look)
        _draw_scale(ax, points, _size_label(W, k, modes[0]))
        return ax
    return _draw_lines(W, k, modes[0], columns, _axes(ax, figsize=(4.5, 2.5)))


def plot_certificates(W, ax=None):
    """Draw the certificate of each atom in percent, colored by its Boolean mode; an atom without one has a dash.

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
    ax = _axes(ax, figsize=(4.5, 3))
    values = 100 * np.array([atom.certificate for atom in W.atoms], dtype=float)
    for n in sorted(set(W.boolean_mode.tolist())):
        members = np.flatnonzero((W.boolean_mode == n) & np.isfinite(values))
        if len(members):
            ax.bar(members, values[members], width=0.7, color=LINES[n % len(LINES)], label=mode_text(W, n))
    for k in np.flatnonzero(np.isnan(values)):
        ax.text(k, 1, "-", ha="center")
    ax.set(xlabel="atom", ylabel="certificate (%)", ylim=(0, 105), xlim=(-0.6, max(W.n_atoms, 1) - 0.4))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.spines[["top", "right"]].set_visible(False)
    if np.isfinite(values).any():
        _legend_above(ax, title="Boolean along")
    return ax


def plot_atoms(W, atoms=None, figure=None):
    """Draw a decomposition: one row for each atom, one column for each mode, and one for images of block atoms.

    Parameters
    ----------
    W : BooleanCP
        The decomposition, of any order.
    atoms : list of int, optional
        The atoms to draw; all if None.
    figure : matplotlib Figure or SubFigure, optional
        Where to draw; a new figure of a fitting size if None.

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
    chosen = range(W.n_atoms) if atoms is None else [range(W.n_atoms)[k] for k in atoms]
    panels = {k: atom_panels(W, k) for k in chosen}
    n_columns = W.ndim + any(len(row) > W.ndim for row in panels.values())
    is_plain = W.labels is None or all(_positions(W, n) is None and _has_places(W, n) for n in range(W.ndim))
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
        row.suptitle(_plain_text(atom_title(W, k)), fontsize=9, fontweight="bold", x=0.01, ha="left")
        for ax, mode in zip(row.subplots(1, n_columns, squeeze=False)[0], [*modes, None], strict=False):
            if mode is None:
                ax.set_axis_off()
            else:
                plot_panel(W, k, mode, ax)
                ax.tick_params(labelsize=7)
    handles = [_patch(ON, "on"), _patch(OFF, "off")] + ([_patch(UNKNOWN, "no data")] if W.undetermined else [])
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def atom_panels(W, k):
    """Return the panels of one atom: each mode, and the pair of an image if its real part is more than a product."""
    panels: list = list(range(W.ndim))
    atom = W.atoms[k]
    others = [n for n in panels if n != atom.mode]
    if len(others) == 2 and atom.rank != 1:
        panels.append(tuple(sorted(others, key=lambda n: W.shape[n])))  # the longest is horizontal
    elif len(others) > 2 and atom.block is not None:
        panels.append(tuple(sorted(others, key=lambda n: W.shape[n])[-2:]))
    return panels


def plot_panel(W, k, mode, ax=None):
    """Draw one panel of an atom, Boolean or real, and return the Axes."""
    return plot_boolean(W, k, ax) if mode == W.atoms[k].mode else plot_real(W, k, mode, ax)


def atom_title(W, k):
    """Return one line on an atom: its number, Boolean mode, ones, and shares of variance if known."""
    atom = W.atoms[k]
    title = f"atom {k}: Boolean along {mode_text(W, atom.mode)}, on in {atom.n_ones} of {len(atom.z)}"
    if not W.data_norm2 or W.data_inner is None:
        return title
    return f"{title}, {100 * W.explained_alone()[k]:.1f} % of the variance alone"


def real_columns(W, k):
    """Return the columns of atom k by real mode, {mode: (d, L)}, as `plot_real` draws them; NaN where undetermined."""
    atom = W.atoms[k]
    modes = [n for n in range(W.ndim) if n != atom.mode]
    factors = [np.array(A, dtype=float) for A in atom.factors or _leading_patterns(atom.block)]
    unknown = [(W.undetermined or {}).get(n, np.zeros(W.shape[n], dtype=bool)) for n in modes]
    for A, slices in zip(factors, unknown, strict=True):
        A[slices] = 0
    carrier = modes.index(_carrier(W, k))
    sizes = np.full(factors[0].shape[1], float(W.weights[k]))
    for n, A in enumerate(factors):
        if n != carrier:
            peaks = A[np.argmax(np.abs(A), axis=0), np.arange(A.shape[1])]
            A /= np.where(peaks == 0, 1.0, peaks)
            sizes *= peaks
    factors[carrier] *= sizes
    for A, slices in zip(factors, unknown, strict=True):
        A[slices] = np.nan
    return dict(zip(modes, factors, strict=True))


def mode_text(W, mode):
    """Return what to call a mode in a text: its name, or mode 0, mode 1, .."""
    return W.mode_name(mode) if W.dims else f"mode {mode}"


def relative_error(step):
    """Return the relative error of a step of a history: a record, a dict or the number itself."""
    if isinstance(step, dict):
        return float(step["relative_error"])
    return float(getattr(step, "relative_error", step))


def coordinate_text(W, mode, digits=6):
    """Return the coordinates along a mode as text, their index where there are none."""
    values = _coords(W, mode)
    if values is None:
        return [str(i) for i in range(W.shape[mode])]
    return [f"{value:.{digits}g}" if values.dtype.kind == "f" else str(value) for value in values]


def _leading_patterns(block):
    """Return the columns of the best product u (x) w (x) .. of a block, found by alternating projections, with size."""
    # from the fibers through the largest entry
    start = np.unravel_index(int(np.argmax(np.abs(block))), block.shape)
    vectors = [block[(*start[:n], slice(None), *start[n + 1 :])].astype(float) for n in range(block.ndim)]
    vectors = [v / (np.linalg.norm(v) or 1.0) for v in vectors]
    size = 0.0
    for _ in range(MAX_SWEEPS):
        before = size
        for n in range(block.ndim):
            v = _contract_others(block, vectors, (n,))
            size = float(np.linalg.norm(v))
            vectors[n] = v / (size or 1.0)
        if size - before <= 1e-12 * size:
            break
    vectors[0] = vectors[0] * size
    return [v[:, None] for v in vectors]


def _contract_others(block, vectors, keep):
    """Return the block contracted with vectors along all modes but those to keep."""
    for n in reversed(range(block.ndim)):
        if n not in keep:
            block = np.tensordot(block, vectors[n], axes=([n], [0]))
    return block


def _draw_lines(W, k, mode, columns, ax):
    """Draw the columns along a mode: bars if it has names and there is one column, else lines."""
    places = _line_places(W, mode)
    has_names = places is None and _coords(W, mode) is not None
    places = np.arange(len(columns)) if places is None else places
    if has_names and columns.shape[1] == 1:
        ax.bar(places, columns[:, 0], width=0.8, color=BLUE, rasterized=len(columns) > LONG)
    else:
        marker = "." if len(columns) <= 60 else None
        for n, column in enumerate(columns.T):
            look = {"color": LINES[n % len(LINES)], "linewidth": 1.0, "marker": marker, "markersize": 4}
            ax.plot(places, column, rasterized=len(column) > LONG, label=f"product {n}", **look)
        if 1 < columns.shape[1] <= 4:
            _legend_above(ax)
    ax.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    ax.set_ylabel(_size_label(W, k, mode), fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    low, high = min(places[0], places[-1]), max(places[0], places[-1])
    if _is_geometric(places):
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
        ratio = (high / low) ** (0.5 / (len(places) - 1))
        ax.set_xlim(low / ratio, high * ratio)
    else:
        step = (high - low) / max(len(places) - 1, 1) or 1.0
        ax.set_xlim(low - step / 2, high + step / 2)
    _label_mode(ax, W, mode, None if _line_places(W, mode) is None else places)
    return ax


def _draw_image(W, k, modes, ax):
    """Draw the real part with its weight over two modes, the first vertical."""
    atom = W.atoms[k]
    others = [n for n in range(W.ndim) if n != atom.mode]
    block = atom.dense_block()
    if block.ndim > 2:
        vectors = [v[:, 0] / (np.linalg.norm(v) or 1.0) for v in _leading_patterns(block)]
        block = _contract_others(block, vectors, [others.index(n) for n in modes])
    image = W.weights[k] * (block if modes[0] < modes[1] else block.T)
    for n, slices in (W.undetermined or {}).items():
        if n in modes:
            image[(slice(None),) * modes.index(n) + (slices,)] = np.nan
    (y_places, y_extent), (x_places, x_extent) = (_even_places(W, n) for n in modes)
    extent = (*x_extent, y_extent[1], y_extent[0])
    picture = ax.imshow(image, aspect="auto", extent=extent, cmap=_diverging(), **_symmetric(image))
    _label_mode(ax, W, modes[1], x_places)
    _label_mode(ax, W, modes[0], y_places, is_vertical=True)
    _draw_scale(ax, picture, _value_text(W))
    return ax


def _legend_above(ax, **options):
    look = {"frameon": False, "fontsize": 7, "title_fontsize": 7, "handlelength": 1.2, "columnspacing": 1.0}
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, borderaxespad=0.2, **look, **options)


def _diverging():
    return load_extra("matplotlib", "plot").colormaps[DIVERGING].with_extremes(bad=UNKNOWN)


def _draw_scale(ax, picture, label):
    scale = ax.figure.colorbar(picture, ax=ax, shrink=0.9)
    scale.set_label(label, fontsize=8)
    scale.ax.tick_params(labelsize=7)


def _draw_electrodes(ax, positions, name, **colors):
    x, y = positions
    spacing = np.sqrt(120 / len(x))
    points = ax.scatter(x, y, s=min(40.0, 22 * spacing), edgecolor="0.25", linewidth=0.4, **colors)
    ax.set_aspect("equal")
    ax.margins(0.06)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.set_xlabel(_plain_text(name), fontsize=8)
    return points


def _symmetric(values):
    top = float(np.nanmax(np.abs(values), initial=0.0)) if np.isfinite(values).any() else 0.0
    return {"vmin": -(top or 1.0), "vmax": top or 1.0}


def _coords(W, mode):
    return None if W.labels is None else W.labels.coords.get(W.labels.dims[mode])


def _positions(W, mode):
    """Return the coordinates x and y along a mode if there are such, else None."""
    if W.labels is None:
        return None
    found = [W.labels.extra.get(name, (None, None)) for name in ("x", "y")]
    if any(dim != W.labels.dims[mode] or np.asarray(values).dtype.kind not in "fiu" for dim, values in found):
        return None
    x, y = (np.asarray(values, dtype=float) for _, values in found)
    return (x, y) if np.isfinite(x + y).any() else None


def _line_places(W, mode):
    """Return the coordinates along a mode if they are numbers in order, else None."""
    values = _coords(W, mode)
    if values is None or values.dtype.kind not in "fiu" or not np.isfinite(values.astype(float)).all():
        return None
    steps = np.diff(values.astype(float))
    return values.astype(float) if (steps > 0).all() or (steps < 0).all() else None


def _has_places(W, mode):
    return _coords(W, mode) is None or _even_places(W, mode)[0] is not None


def _is_geometric(places):
    """Return True for three or more places with a constant ratio, such as frequencies by octaves."""
    if len(places) < 3 or places.min() <= 0:
        return False
    ratios = places[1:] / places[:-1]
    is_even = np.allclose(np.diff(places), places[1] - places[0], rtol=0.01, atol=0)
    return bool(np.allclose(ratios, ratios[0], rtol=0.01)) and not is_even


def _even_places(W, mode):
    """Return places along a mode, None if they are indices, and the two ends of an image of it."""
    places = _line_places(W, mode)
    if places is not None and len(places) > 1:
        step = (places[-1] - places[0]) / (len(places) - 1)
        if np.allclose(np.diff(places), step, rtol=0.01, atol=0):
            return places, (places[0] - step / 2, places[-1] + step / 2)
    return None, (-0.5, W.shape[mode] - 0.5)


def _label_mode(ax, W, mode, places, *, is_vertical=False):
    """Write name and unit of a mode at an axis, and its coordinates where the places are indices."""
    axis = ax.yaxis if is_vertical else ax.xaxis
    axis.set_label_text(_plain_text(_mode_label(W, mode)), fontsize=8)
    if places is None and _coords(W, mode) is not None:
        names = [_plain_text(_short(text)) for text in coordinate_text(W, mode, digits=3)]
        ticks = np.arange(0, len(names), -(-len(names) // (MAX_TICKS_UPWARD if is_vertical else MAX_TICKS)))
        is_long = max(len(names[i]) for i in ticks) > 2 and not is_vertical
        axis.set_ticks(ticks, [names[i] for i in ticks], fontsize=7, rotation=90 if is_long else 0)
    elif axis.get_scale() == "linear":
        axis.get_major_locator().set_params(integer=places is None or bool(np.all(places == np.rint(places))))


def _mode_label(W, mode):
    unit = "" if W.labels is None else W.labels.units.get(W.labels.dims[mode], "")
    return f"{mode_text(W, mode)} ({unit})" if unit else mode_text(W, mode)


def _carrier(W, k):
    """Return the real mode that carries the size of an atom: the longest."""
    return max((n for n in range(W.ndim) if n != W.atoms[k].mode), key=lambda n: W.shape[n])


def _size_label(W, k, mode):
    return _value_text(W) if mode == _carrier(W, k) else "relative size"


def _value_text(W):
    name = None if W.labels is None else W.labels.name
    return _plain_text(_short(name)) if name else "size"


def _short(text):
    return text if len(text) <= MAX_LETTERS else f"{text[: MAX_LETTERS - 1]}…"


def _plain_text(text):
    return str(text).replace("$", r"\$")  # a label is never a formula


def _patch(color, label):
    return load_extra("matplotlib.patches", "plot").Patch(facecolor=color, edgecolor="0.25", linewidth=0.4, label=label)


def _alone(atom):
    """Return an atom as a decomposition without labels."""
    shape = list(atom.block.shape if atom.factors is None else [len(A) for A in atom.factors])
    shape.insert(atom.mode, len(atom.z))
    return BooleanCP(tuple(shape), (atom,), np.ones(1))
