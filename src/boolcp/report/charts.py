"""The charts of the page as Plotly reads them, with caption and text alternative; labels and values show on hover."""

import colorsys
from collections.abc import Sequence
from typing import Any

import numpy as np

from boolcp.plotting.head import interpolate, outline
from boolcp.plotting.look import BLUE, LINES, MAX_TICKS_UPWARD, OFF, ON, ORANGE, UNKNOWN, shortened, symmetric
from boolcp.plotting.look import GROUPS as GROUP_COLORS
from boolcp.plotting.mode_labels import (
    coordinate_text,
    coordinates_of,
    even_places,
    is_date,
    is_geometric,
    is_head,
    is_unordered,
    line_places,
    mode_text,
    positions_of,
    unit_of,
)
from boolcp.plotting.patterns import (
    atom_panels,
    block_image,
    carrier_mode,
    leading_column,
    mean_of,
    only_leading,
    real_columns,
)
from boolcp.report.assets import plain, to_json
from boolcp.report.conditions import bands, group_name
from boolcp.report.words import on_text, result_error, value_label
from boolcp.result.atoms import BooleanCP

MAX_POINTS = 20_000  # of a line; beyond, the smallest and largest of each interval are kept
MAX_CELLS = 25_000  # of an image; beyond, neighbors are averaged
MAX_MARKERS = 60
MAX_ROWS = 8  # of a chart of usual height
MAX_PRODUCTS = 4  # of an atom that are drawn side by side
MAX_TICKS = 15  # upright names that fit below an image beside its scale, on a phone too
MAX_ELECTRODE_NAMES = 34
FEW, LETTERS = 8, 20  # up to this many names are shown with this many letters
COLORS = (*LINES[:6], "#8A8A8A")  # without black, which a dark page would hide
DASHES = ("solid", "dash", "dot", "dashdot")  # of the products of an atom
SYMBOLS = ("circle", "diamond-open", "cross", "square-open")
OUTLINE, ZERO = "#6B6B6B", "#9A9A9A"
BITS = [[0, OFF], [0.5, UNKNOWN], [1, ON]]
DIVERGING = [[0, "#2166AC"], [0.25, "#92C5DE"], [0.5, "#F7F7F7"], [0.75, "#F4A582"], [1, "#B2182B"]]
BAND = (1.03, 1.12)  # height of the colors of conditions above a chart, as a share of it

Chart = dict[str, Any]
Figure = dict[str, Any]


def atom_colors(n_atoms: int) -> list[str]:
    """Return one color for each atom, no two of them equal.

    Examples
    --------
    >>> from boolcp.report.charts import atom_colors
    >>> len(set(atom_colors(50)))
    50
    """
    return list(COLORS[:n_atoms]) if n_atoms <= len(COLORS) else _shades(n_atoms, 0.65)


def group_colors(n_groups: int) -> list[str]:
    """Return one color for each group, no two of them equal, none that of an atom."""
    return list(GROUP_COLORS[:n_groups]) if n_groups <= len(GROUP_COLORS) else _shades(n_groups, 0.35)


def _shades(n: int, saturation: float) -> list[str]:
    """Return different colors: neighbors differ in hue, the same hue differs in lightness."""
    lights = (0.40, 0.55, 0.70)
    shades = [colorsys.hls_to_rgb(137.508 * k % 360 / 360, lights[k % len(lights)], saturation) for k in range(n)]
    return ["#" + "".join(f"{round(255 * part):02X}" for part in shade) for shade in shades]


def figure(chart: Chart, alt: str, caption: str, **look: Any) -> Figure:
    """Return a chart as JSON with its text alternative, its caption and its look: is_wide, is_high, legend."""
    return {
        "chart": to_json(chart),
        "alt": alt,
        "caption": caption,
        "is_wide": False,
        "is_high": False,
        "legend": [],
    } | look


def atom_figures(W: BooleanCP, k: int) -> list[Figure]:
    """Return the figures of one atom: where it is on, its real part along each mode, and an image of a dense one."""
    figures = []
    for mode in atom_panels(W, k):
        if isinstance(mode, tuple):
            title = f"real part, {' by '.join(mode_text(W, n) for n in mode)}"
            figures.append(_image_figure(W, block_image(W, k, mode), mode, f"Atom {k}, {title}", title))
        else:
            figures.append(_boolean_figure(W, k) if mode == W.atoms[k].mode else _real_figure(W, k, mode))
    return figures


def mean_figures(W: BooleanCP) -> list[Figure]:
    """Return a figure of the mean over the Boolean mode, as a list; empty if W has no mean."""
    M = mean_of(W)
    if M is None:
        return []
    modes = [n for n in range(W.ndim) if n != M.atoms[0].mode]
    title = f"mean over {mode_text(W, M.atoms[0].mode)}"
    if len(modes) == 1:
        return [_real_figure(M, 0, modes[0]) | {"alt": f"The {title}", "caption": title}]
    shown = sorted(sorted(modes, key=lambda n: W.shape[n])[-2:], key=lambda n: W.shape[n])
    image = M.atoms[0].dense_block().mean(axis=tuple(i for i, n in enumerate(modes) if n not in shown))
    image = image if shown[0] < shown[1] else image.T
    return [_image_figure(W, image, tuple(shown), f"The {title}", title)]


def _boolean_figure(W: BooleanCP, k: int) -> Figure:
    """Return where an atom is on: an electrode map if its mode has positions, else a strip; gray where uncertain."""
    mode, values, texts = W.atoms[k].mode, bit_values(W, k), bit_texts(W, k)
    positions, caption = positions_of(W, mode), f"{mode_text(W, mode)}: yellow on, blue off{_gray_text(W)}"
    alt = f"Atom {k} along {mode_text(W, mode)}, on: {on_text(W, k)}"
    if positions is not None:
        colors = {"color": values, "colorscale": BITS, "cmin": 0, "cmax": 1}
        return figure(_map(W, mode, positions, texts, colors), alt, caption)
    layout = _layout(xaxis=_axis(W, mode, is_even=True), yaxis={"visible": False, "fixedrange": True})
    return _banded(W, mode, [_bits(values, texts) | _span(W, mode, "x")], layout, alt, caption)


def _gray_text(W: BooleanCP) -> str:
    """Return what gray means in pictures of bits, if there is gray."""
    if W.trust is not None and W.trust.rise is not None:
        return ", gray uncertain"
    return ", gray without data" if W.undetermined else ""


def bit_values(W: BooleanCP, k: int) -> np.ndarray:
    """Return the probability that each entry of an atom is on, if known; 0.5 without data."""
    atom = W.atoms[k]
    values = atom.z.astype(float)
    if W.trust is not None and W.trust.rise is not None:
        sure = np.clip(W.bit_confidence()[k], 0.5, 1.0)
        values = np.where(atom.z, sure, 1 - sure)
    return np.where(_unknown(W, atom.mode), 0.5, values)


def bit_texts(W: BooleanCP, k: int) -> list[str]:
    """Return a text for each bit of an atom: on or off, and how certain that is."""
    atom, texts = W.atoms[k], []
    is_known = W.trust is not None and W.trust.rise is not None
    parts = zip(hover_labels(W, atom.mode), atom.z, bit_values(W, k), _unknown(W, atom.mode), strict=True)
    for label, is_on, value, is_unknown in parts:
        chance = f", {100 * max(value, 1 - value):.0f} % sure" if is_known else ""
        texts.append(f"{label}: no data" if is_unknown else f"{label}: {'on' if is_on else 'off'}{chance}")
    return texts


def _unknown(W: BooleanCP, mode: int) -> np.ndarray:
    return np.asarray((W.undetermined or {}).get(mode, np.zeros(W.shape[mode], dtype=bool)))


def _real_figure(W: BooleanCP, k: int, mode: int) -> Figure:
    """Return the real part of an atom along one mode: a map of electrodes, bars for names, or lines in its color.

    Blocks, sums of many products, and maps, which have one value at each position, show the leading pattern.
    """
    atom, positions, kind = W.atoms[k], positions_of(W, mode), "real part"
    is_few = atom.rank is not None and atom.rank <= MAX_PRODUCTS and positions is None
    if not (atom.rank == 1 or W.ndim == 2 or is_few):
        W, kind = only_leading(W, k), "leading pattern"
    columns, texts = real_columns(W, k)[mode], hover_labels(W, mode)
    label = plain(value_label(W) if mode == carrier_mode(W, k) else "relative size")
    sizes, name = np.linalg.norm(np.nan_to_num(columns), axis=1), mode_text(W, mode)
    alt, caption = f"Atom {k}, {kind} along {name}", f"{name}: {kind}"
    if sizes.any():
        alt += f", largest at {coordinate_text(W, mode)[int(np.argmax(sizes))]} {unit_of(W, mode)}".rstrip()
    if len(sizes) > MAX_POINTS:
        caption += f" (smallest and largest of each {-(-2 * len(sizes) // MAX_POINTS)} points)"
    if positions is not None and columns.shape[1] == 1:
        texts = [f"{text}: {value:.4g}" for text, value in zip(texts, columns[:, 0], strict=True)]
        scale = {"colorscale": DIVERGING, "colorbar": _bar(label), **_limits(columns, "c")}
        return figure(_map(W, mode, positions, texts, {"color": columns[:, 0], **scale}), alt, caption)
    layout = _layout(xaxis=_axis(W, mode), yaxis={"title": {"text": label}, "rangemode": "tozero"})
    layout = _with_legend(layout) if 1 < columns.shape[1] <= MAX_PRODUCTS else layout
    return _banded(W, mode, _real_traces(W, k, mode, columns, texts), layout, alt, caption, has_tools=True)


def _real_traces(W: BooleanCP, k: int, mode: int, columns: np.ndarray, texts: Sequence[str]) -> list[Chart]:
    """Return bars for one column over names, points for several, else a line for each column."""
    places, color = places_of(W, mode), atom_colors(W.n_atoms)[k]
    has_names = is_unordered(W, mode) or (places is None and coordinates_of(W, mode) is not None)
    if has_names and columns.shape[1] == 1:
        bars = {"type": "bar", "y": columns[:, 0], "marker": {"color": color}, "hovertext": list(texts)}
        return [bars | ({} if places is None else {"x": places}) | _hover("%{hovertext}: %{y:.4g}")]
    names = [f"product {n}" for n in range(columns.shape[1])] if columns.shape[1] > 1 else [""]
    traces = [line(W, mode, columns[:, n], color, name, texts) for n, name in enumerate(names)]
    for n, trace in enumerate(traces):
        trace["line"]["dash"] = DASHES[n % len(DASHES)]
        if has_names:  # no line joins them
            trace |= {"mode": "markers", "marker": {"size": 7, "color": color, "symbol": SYMBOLS[n % len(SYMBOLS)]}}
    return traces


def line(W: BooleanCP, mode: int, column: np.ndarray, color: str, name: str, texts: Sequence[str]) -> Chart:
    """Return one line over a mode; a very long one keeps the smallest and largest of each interval."""
    places, kept = places_of(W, mode), kept_points(column)
    x = np.arange(len(column)) if places is None else places
    is_even = len(x) > 1 and np.allclose(np.diff(x), _step(x), rtol=1e-6, atol=0)
    start = {"x0": float(x[0]), "dx": _step(x)} if is_even and len(kept) == len(column) else {"x": x[kept]}
    look = {"mode": "lines+markers" if len(kept) <= MAX_MARKERS else "lines", "line": {"color": color, "width": 1.3}}
    who = f"{plain(name)}, " if name else ""
    if _has_names(W, mode):
        hover = {"text": [texts[i] for i in kept]} | _hover(f"{who}%{{text}}: %{{y:.4g}}")
    else:
        hover = _hover(f"{who}{plain(mode_text(W, mode))} %{{x:.6~g}} {plain(unit_of(W, mode))}: %{{y:.4g}}")
    return {"type": "scatter", "y": column[kept], "name": name, "marker": {"size": 4}} | start | look | hover


def kept_points(column: np.ndarray) -> np.ndarray:
    """Return which points of a line are drawn: all, or the smallest and largest of each interval of a very long one."""
    if len(column) <= MAX_POINTS:
        return np.arange(len(column))
    stretches, filled = np.array_split(np.arange(len(column)), MAX_POINTS // 2), np.nan_to_num(column)
    return np.unique([(part[np.argmin(filled[part])], part[np.argmax(filled[part])]) for part in stretches])


def _image_figure(W: BooleanCP, image: np.ndarray, modes: tuple[int, int], alt: str, caption: str) -> Figure:
    """Return an image over two modes, the first vertical; neighbors of a large one are averaged."""
    steps = _image_steps(image.shape)
    small = _averaged(image, steps)
    trace = {"type": "heatmap", "z": small, "colorscale": DIVERGING, "colorbar": _bar(plain(value_label(W)))}
    trace |= _limits(image, "z") | _span(W, modes[0], "y", steps[0]) | _span(W, modes[1], "x", steps[1])
    y, x = (f"{plain(mode_text(W, n))} %{{{c}:.6~g}} {plain(unit_of(W, n))}" for n, c in zip(modes, "yx", strict=True))
    place = f"{x}, {y}"
    if steps == (1, 1) and small.size <= MAX_CELLS // 4 and any(_has_names(W, mode) for mode in modes):
        rows, columns = (hover_labels(W, mode) for mode in modes)
        trace["text"], place = [[f"{column}, {row}" for column in columns] for row in rows], "%{text}"
    layout = _layout(xaxis=_axis(W, modes[1], is_even=True), yaxis=_axis(W, modes[0], is_even=True, is_upward=True))
    caption += "".join(_sorted_text(W, n) for n in modes) + " (neighbors averaged)" * (steps != (1, 1))
    return figure({"data": [trace | _hover(f"{place}: %{{z:.4g}}")], "layout": layout}, alt, caption, is_wide=True)


def _image_steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many rows and columns are averaged into one cell."""
    steps = [1, 1]
    while np.prod(cells := [-(-d // s) for d, s in zip(shape, steps, strict=True)]) > MAX_CELLS:
        steps[int(np.argmax(cells))] += 1
    return tuple(steps)


def _averaged(image: np.ndarray, steps: tuple[int, ...]) -> np.ndarray:
    """Return the means of blocks of an image; those at the end may be smaller."""
    for axis, step in enumerate(steps):
        if step > 1:
            starts = np.arange(0, image.shape[axis], step)
            sizes = np.diff([*starts, image.shape[axis]])
            image = np.add.reduceat(image, starts, axis=axis) / np.expand_dims(sizes, 1 - axis)
    return image


def together_figures(W: BooleanCP) -> list[Figure]:
    """Return all atoms along each mode: strips if Boolean; if real, lines, or an image for named entries."""
    figures = []
    for mode in range(W.ndim):
        texts, name = hover_labels(W, mode), mode_text(W, mode)
        boolean = [k for k in range(W.n_atoms) if W.atoms[k].mode == mode]
        real = [k for k in range(W.n_atoms) if W.atoms[k].mode != mode]
        if boolean:
            rows = [_bits(bit_values(W, k), [f"atom {k}, {text}" for text in bit_texts(W, k)]) for k in boolean]
            figures.append(_rows_figure(W, mode, boolean, rows, f"{name}: yellow on, blue off{_gray_text(W)}"))
        columns = {k: leading_column(W, k, mode) for k in real}
        if real and (_has_names(W, mode) or is_unordered(W, mode) or positions_of(W, mode) is not None):
            scale = {"type": "heatmap", "coloraxis": "coloraxis", "hoverongaps": False}
            words = {k: [f"atom {k}, {t}: {v:.3g}" for t, v in zip(texts, columns[k], strict=True)] for k in real}
            rows = [scale | {"z": columns[k][None, :], "text": [words[k]]} | _hover("%{text}") for k in real]
            axis = {"colorscale": DIVERGING, "cmin": -1, "cmax": 1, "colorbar": _bar("relative size")}
            figures.append(_rows_figure(W, mode, real, rows, f"{name}: real parts, red plus", coloraxis=axis))
        elif real:
            colors = atom_colors(W.n_atoms)
            lines = [line(W, mode, columns[k], colors[k], f"atom {k}", texts) | {"meta": {"atom": k}} for k in real]
            layout = _layout(xaxis=_axis(W, mode), yaxis={"title": {"text": "relative size"}, "rangemode": "tozero"})
            chart = {"data": lines, "layout": _with_legend(layout), "has_tools": True}
            caption = f"{name}: real parts, largest size one"
            figures.append(figure(chart, _together_alt(W, mode, real), caption, is_wide=True))
    return figures


def _rows_figure(
    W: BooleanCP, mode: int, atoms: Sequence[int], traces: Sequence[Chart], caption: str, **look: Any
) -> Figure:
    """Return one row of an image for each atom, along a mode."""
    placed = [
        trace | _span(W, mode, "x") | {"y0": row, "dy": 1, "ygap": 3, "meta": {"atom": k}}
        for row, (k, trace) in enumerate(zip(atoms, traces, strict=True))
    ]
    ticks = {"tickvals": list(range(len(atoms))), "ticktext": [f"atom {k}" for k in atoms]}
    axis = {"range": [len(atoms) - 0.5, -0.5], "fixedrange": True, "showgrid": False, "zeroline": False} | ticks
    layout = _layout(xaxis=_axis(W, mode, is_even=True), yaxis=axis, **look)
    found = _banded(W, mode, placed, layout, _together_alt(W, mode, atoms), caption)
    return found | {"is_wide": True, "is_high": len(atoms) > MAX_ROWS}


def _together_alt(W: BooleanCP, mode: int, atoms: Sequence[int]) -> str:
    return f"Atoms {', '.join(map(str, atoms))} along {mode_text(W, mode)}, drawn together; each is in its card"


def group_figures(means: Any, name: str) -> list[Figure]:
    """Return bars (shares of ones) and points (means of real parts) of the atoms in each group, with their spread.

    The lines of shares reach over their 95 % interval (Wilson), those of means one standard deviation to each side.
    """
    figures, colors = [], group_colors(len(means.conditions))
    for is_boolean in sorted(set(means.is_boolean.tolist()), reverse=True):
        what, spread = ("share of ones", "95 % interval") if is_boolean else ("mean of the real part", "s.d.")
        members, scale, traces = np.flatnonzero(means.is_boolean == is_boolean).tolist(), 100 if is_boolean else 1, []
        value = "%{y:.0f} % on" if is_boolean else "mean %{y:.3g}"
        for c, (group, count) in enumerate(zip(means.conditions, means.counts, strict=True)):
            for k in members:
                mean, s = means.mean[k, c], means.spread[k, c]
                low, high = _wilson(mean, count) if is_boolean else (mean - s, mean + s)
                ends = {"array": [scale * (high - mean)], "arrayminus": [scale * (mean - low)]}
                error = {"type": "data", "symmetric": False, "thickness": 1, "width": 2, "color": OUTLINE} | ends
                look = {"type": "bar"} if is_boolean else {"type": "scatter", "mode": "markers"}
                look |= {"marker": {"color": colors[c]}, "offsetgroup": str(c), "meta": {"atom": k}}
                legend = {"name": f"{plain(group)} ({count})", "legendgroup": str(c), "showlegend": k == members[0]}
                hover = _hover(f"atom {k}, {plain(group)} ({count}): {value}")
                traces.append(look | {"x": [f"atom {k}"], "y": [scale * mean], "error_y": error} | legend | hover)
        title = {"text": "on (%)" if is_boolean else "mean (± s.d.)"}
        layout = _with_legend(_layout(xaxis={"type": "category"}, yaxis={"title": title, "rangemode": "tozero"}))
        chart = {"data": traces, "layout": layout | {"barmode": "group", "scattermode": "group"}}
        caption = f"{what} by {name}" + (f"; lines: {spread}" if max(means.counts) > 1 else "")
        figures.append(figure(chart, f"{caption}; the numbers are in the table", caption, is_wide=True))
    return figures


def _wilson(share: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of n."""
    from scipy.stats import binomtest

    if n < 2 or np.isnan(share):
        return share, share
    interval = binomtest(round(share * n), int(n)).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def fit_figures(W: BooleanCP, errors: Sequence[float], residual: Any = None) -> list[Figure]:
    """Return the figures of the whole fit: error after each atom of the pursuit, and quantiles of the residual."""
    figures = []
    if errors:
        path = {"type": "scatter", "mode": "lines+markers", "x": list(range(1, len(errors) + 1)), "y": list(errors)}
        traces = [path | {"line": {"color": BLUE}} | _hover("pursuit, %{x} atoms: %{y:.4f}")]
        caption = "Relative error after each atom of the pursuit"
        if (result := result_error(W)) is not None:
            marker = {"color": "rgba(0,0,0,0)", "size": 13, "line": {"color": ORANGE, "width": 2}}
            point = {"type": "scatter", "mode": "markers", "x": [W.n_atoms], "y": [result], "marker": marker}
            traces, caption = (
                [*traces, point | _hover("result, %{x} atoms: %{y:.4f}")],
                f"{caption}; circle: the result",
            )
        steps = {"dtick": 1} if max(len(errors), W.n_atoms) <= 20 else {}
        y = {"title": {"text": "relative error"}, "rangemode": "tozero"}
        layout = _layout(xaxis={"title": {"text": "number of atoms"}, **steps}, yaxis=y)
        alt = f"{caption}: {', '.join(f'{error:.4f}' for error in errors)}"
        figures.append(figure({"data": traces, "layout": layout}, alt, caption))
    if residual is not None:
        normal, own = residual.normal_quantiles, residual.quantiles
        ends = [float(normal[0]), float(normal[-1])]
        diagonal = {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip"}
        points = {"type": "scatter", "mode": "markers", "x": normal, "y": own, "marker": {"color": BLUE, "size": 5}}
        traces = [
            diagonal | {"line": {"color": ZERO, "width": 1, "dash": "dash"}},
            points | _hover("normal %{x:.2f}, residual %{y:.2f}"),
        ]
        x, y = ({"title": {"text": text}} for text in ("normal quantile", "quantile of the residual"))
        caption = "Quantiles of the residual against normal noise (dashed)"
        alt = f"{caption}, from {own[0]:.2f} to {own[-1]:.2f} root mean squares"
        figures.append(figure({"data": traces, "layout": _layout(xaxis=x, yaxis=y)}, alt, caption))
    return figures


def places_of(W: BooleanCP, mode: int, *, is_even: bool = False) -> np.ndarray | None:
    """Return the coordinates along a mode if they are (evenly spaced) numbers in order; dates are shown as names."""
    if is_date(W, mode):
        return None
    return even_places(W, mode)[0] if is_even else line_places(W, mode)


def hover_labels(W: BooleanCP, mode: int) -> list[str]:
    """Return the hover text of each entry of a mode: its coordinate with unit, and its additional coordinates."""
    labels = [f"{mode_text(W, mode)} {text} {unit_of(W, mode)}".rstrip() for text in coordinate_text(W, mode)]
    extra = {} if W.labels is None else W.labels.extra
    for further, (dim, values) in extra.items():
        if dim == W.mode_name(mode) and further not in ("x", "y"):
            texts = [f"{v:.6g}" if isinstance(v, float) else str(v) for v in np.asarray(values).tolist()]
            labels = [f"{label}, {further} {text}" for label, text in zip(labels, texts, strict=True)]
    return [plain(label) for label in labels]


def _bits(values: np.ndarray, texts: Sequence[str]) -> Chart:
    look = {"colorscale": BITS, "zmin": 0, "zmax": 1, "showscale": False}
    return {"type": "heatmap", "z": values[None, :], "text": [list(texts)]} | look | _hover("%{text}")


def _map(W: BooleanCP, mode: int, positions: np.ndarray, texts: Sequence[str], colors: Chart) -> Chart:
    """Return entries of a mode at their positions: on a head with its outline, or with names where there is room."""
    x, y = positions.T
    names = [plain(text) for text in coordinate_text(W, mode)]
    has_names = len(names) <= MAX_ELECTRODE_NAMES and coordinates_of(W, mode) is not None
    size = float(np.clip(14 * np.sqrt(60 / len(x)), 5, 10 if has_names else 14))
    marker = {"size": size, "line": {"color": OUTLINE, "width": 1}} | colors
    trace = {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker, "hovertext": list(texts)}
    if has_names:  # above in the upper half, below in the lower: outward, where there is room
        sides = ["bottom center" if place < np.nanmedian(y) else "top center" for place in y]
        trace |= {"mode": "markers+text", "text": names, "textposition": sides, "textfont": {"size": 9}}
    under = _head(positions, colors) if is_head(W, mode) else []
    hidden = {"visible": False}
    layout = _layout(xaxis=hidden, yaxis=hidden | {"scaleanchor": "x"}, margin={"l": 8, "r": 8, "t": 14, "b": 8})
    return {"data": [*under, trace | _hover("%{hovertext}")], "layout": layout}


def _head(positions: np.ndarray, colors: Chart) -> list[Chart]:
    """Return the outline of a head and, for real values, the map between the electrodes."""
    silent = {"hoverinfo": "skip", "showlegend": False}
    look = {"type": "scatter", "mode": "lines", "line": {"color": OUTLINE, "width": 1.2}} | silent
    lines = [look | {"x": one[:, 0], "y": one[:, 1]} for one in outline().values()]
    if "colorbar" not in colors:  # bits
        return lines
    side, image = interpolate(positions, np.asarray(colors["color"], dtype=float))
    place = {"x0": float(side[0]), "dx": _step(side), "y0": float(side[0]), "dy": _step(side)}
    scale = {"colorscale": colors["colorscale"], "zmin": colors["cmin"], "zmax": colors["cmax"], "showscale": False}
    shade = {"type": "heatmap", "z": image, "zsmooth": "best", "opacity": 0.85, "hoverongaps": False}
    return [shade | place | scale | silent, *lines]


def _banded(
    W: BooleanCP, mode: int, traces: list[Chart], layout: Chart, alt: str, caption: str, *, has_tools: bool = False
) -> Figure:
    """Return a figure with the colors of the groups of its mode, if any, above the chart and named below it."""
    found, places = bands(W, mode), places_of(W, mode, is_even=True)
    x = np.arange(W.shape[mode], dtype=float) if places is None else places
    half = 0.5 if len(x) < 2 else _step(x) / 2
    box = {"type": "rect", "xref": "x", "yref": "paper", "y0": BAND[0], "y1": BAND[1], "line": {"width": 0}}
    colors = group_colors(len(found))
    shapes = [
        box | {"x0": float(x[band.start] - half), "x1": float(x[band.stop - 1] + half), "fillcolor": color}
        for band, color in zip(found, colors, strict=True)
    ]
    legend = [(color, f"{b.name} ({b.stop - b.start})") for b, color in zip(found, colors, strict=True)]
    chart = {"data": traces, "layout": layout | {"shapes": shapes}, "has_tools": has_tools}
    return figure(chart, alt, caption + _sorted_text(W, mode), legend=legend)


def _sorted_text(W: BooleanCP, mode: int) -> str:
    """Return by what the entries of a mode are sorted, if by anything."""
    return f", sorted by {group_name(W, mode)}" if bands(W, mode) else ""


def _layout(**parts: Any) -> Chart:
    """Return the layout of all charts: no background, so that light and dark pages show through."""
    clear = "rgba(0,0,0,0)"
    axis = {"automargin": True, "zeroline": True, "zerolinecolor": ZERO, "gridcolor": "rgba(128,128,128,0.2)"}
    parts["xaxis"] = axis | {"zeroline": False, "showgrid": False} | parts["xaxis"]
    parts["yaxis"] = axis | parts["yaxis"]
    font = {"family": "system-ui, sans-serif", "size": 12}
    margin = {"l": 48, "r": 8, "t": 30, "b": 40}  # tools have room above the data
    look = {"paper_bgcolor": clear, "plot_bgcolor": clear, "font": font, "margin": margin, "showlegend": False}
    return look | {"hovermode": "closest", "hoverlabel": {"align": "left", "namelength": -1}, "bargap": 0.15} | parts


def _axis(W: BooleanCP, mode: int, *, is_even: bool = False, is_upward: bool = False) -> Chart:
    """Return the axis of a mode: its name and unit, and names as ticks where it has no numbers."""
    name, unit = mode_text(W, mode), unit_of(W, mode)
    axis: dict[str, Any] = {"title": {"text": plain(f"{name} ({unit})" if unit else name)}}
    places = places_of(W, mode, is_even=is_even)
    if places is None and coordinates_of(W, mode) is not None:
        texts = coordinate_text(W, mode)
        names = [plain(shortened(text, LETTERS) if len(texts) <= FEW else shortened(text)) for text in texts]
        step = -(-len(names) // (MAX_TICKS_UPWARD if is_upward else MAX_TICKS))
        axis |= {"tickvals": list(range(0, len(names), step)), "ticktext": names[::step]}
        if not is_upward and (len(names) > FEW or max(map(len, names)) > 3):
            axis |= {"tickangle": -90 if len(names) > FEW else -35, "ticklabeloverflow": "allow"}
    elif places is not None and not is_even and is_geometric(places):
        axis["type"] = "log"
    return axis


def _span(W: BooleanCP, mode: int, name: str, step: int = 1) -> Chart:
    """Return the positions of the cells of an image along a mode."""
    places = places_of(W, mode, is_even=True)
    start, width = (0.0, 1.0) if places is None else (float(places[0]), _step(places))
    return {f"{name}0": start + width * (step - 1) / 2, f"d{name}": width * step}


def _has_names(W: BooleanCP, mode: int) -> bool:
    """Return True if the entries of a mode have names or additional coordinates."""
    has_coords = coordinates_of(W, mode) is not None and places_of(W, mode) is None
    extra = {} if W.labels is None else W.labels.extra
    return has_coords or any(dim == W.mode_name(mode) for dim, _ in extra.values())


def _limits(values: np.ndarray, name: str) -> Chart:
    """Return the limits of a scale with zero in the middle, as cmin and cmax or as zmin and zmax."""
    return {f"{name}{end[1:]}": value for end, value in symmetric(values).items()}


def _with_legend(layout: Chart) -> Chart:
    """Return the layout with a legend below the chart; atoms are selected in the table, not there."""
    place = {"orientation": "h", "y": 0, "yref": "container", "yanchor": "bottom"}
    legend = {"showlegend": True, "legend": place | {"itemclick": False, "itemdoubleclick": False}}
    return layout | legend | {"margin": layout["margin"] | {"b": 84}}


def _bar(label: str) -> Chart:
    return {"title": {"text": label, "side": "right"}, "thickness": 10, "outlinewidth": 0}


def _hover(template: str) -> Chart:
    return {"hovertemplate": f"{template}<extra></extra>"}


def _step(x: np.ndarray) -> float:
    return float((x[-1] - x[0]) / max(len(x) - 1, 1))
