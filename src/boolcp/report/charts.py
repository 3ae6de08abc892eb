"""The charts of the page as Plotly reads them, with caption and text alternative; labels and values show on hover."""

import base64
import colorsys
import html
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from boolcp.fit.neighbors import graph_of
from boolcp.plotting import mode_labels as modes
from boolcp.plotting import patterns
from boolcp.plotting.look import BLUE, GROUPS, LINES, MAX_TICKS_UPWARD, OFF, ON, UNKNOWN, shortened, symmetric
from boolcp.plotting.maps import MAX_NAMES, interpolate, outline
from boolcp.report.conditions import bands, group_name
from boolcp.report.words import on_text
from boolcp.result.atoms import BooleanCP
from boolcp.result.trust import group_density

MAX_POINTS = 20_000  # of a line; beyond, the smallest and largest of each interval are kept
MAX_CELLS = 25_000  # of an image; beyond, neighbors are averaged
MAX_MARKERS, MAX_PRODUCTS = 60, 4  # of a line; products of an atom that are drawn side by side
MAX_TICKS = 15  # upright names that fit below an image beside its scale, on a phone too
FEW, LETTERS = 8, 20  # up to this many names are shown with this many letters
LOW, HIGH = 2, 8  # rows up to which a chart is low, and beyond which it is high
COLORS = (*LINES[:6], "#8A8A8A")  # without black, which a dark page would hide
GROUP_COLORS = GROUPS, 0.35  # and their saturation where they are many: none is that of an atom
DASHES = ("solid", "dash", "dot", "dashdot")  # of the products of an atom
SYMBOLS = ("circle", "diamond-open", "cross", "square-open")
OUTLINE, ZERO, CLEAR = "#6B6B6B", "#9A9A9A", "rgba(0,0,0,0)"
BITS = [[0, OFF], [0.5, UNKNOWN], [1, ON]]
DIVERGING = [[0, "#2166AC"], [0.25, "#92C5DE"], [0.5, "#F7F7F7"], [0.75, "#F4A582"], [1, "#B2182B"]]
DIGITS = 8  # of numbers written as text
BAND = (1.03, 1.12)  # height of the colors of conditions above a chart, as a share of it

Chart = dict[str, Any]


def atom_colors(n: int, few: Sequence[str] = COLORS, saturation: float = 0.65) -> list[str]:
    """Return n different colors, a few of a palette or many that differ in hue and lightness."""
    if n <= len(few):
        return list(few[:n])
    shades = [colorsys.hls_to_rgb(137.508 * k % 360 / 360, (0.40, 0.55, 0.70)[k % 3], saturation) for k in range(n)]
    return ["#" + "".join(f"{round(255 * part):02X}" for part in shade) for shade in shades]


def figure(
    traces: list[Chart], layout: Chart, alt: str, caption: str, *, tools: bool = False, size: str = "", legend: Any = ()
) -> Chart:
    """Return a chart as JSON with its text alternative, caption, size (wide, low, high) and legend."""
    chart = to_json({"data": traces, "layout": layout, "has_tools": tools})
    return {"chart": chart, "alt": alt, "caption": caption, "size": size, "legend": legend}


def to_json(value: Any) -> str:
    """Return JSON that cannot close its HTML element; arrays become typed arrays of Plotly."""
    text = json.dumps(_compact(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain(text: str) -> str:
    """Return a label that Plotly shows unchanged, although it interprets some HTML tags and templates."""
    return html.escape(str(text), quote=False).replace("%{", "&#37;{")


def _compact(value: Any) -> Any:
    """Return the value with arrays as typed arrays and other numbers rounded."""
    if isinstance(value, dict):
        return {name: _compact(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_compact(part) for part in value]
    if isinstance(value, np.ndarray):  # base64 of small numbers, with the shape if it is not a vector
        kind = {"b": "u1", "i": "i4", "u": "i4"}.get(value.dtype.kind, "f4")
        if kind == "f4" and value.size and np.nanmax(np.abs(value)) > 1e3 * np.ptp(value):
            kind = "f8"  # times far from zero, say, need more than seven digits
        shape = {} if value.ndim == 1 else {"shape": ", ".join(map(str, value.shape))}
        numbers = np.ascontiguousarray(value, dtype=f"<{kind}").tobytes()
        return {"dtype": kind, "bdata": base64.b64encode(numbers).decode()} | shape
    if isinstance(value, float | np.floating):
        return float(f"{value:.{DIGITS}g}")
    return value.item() if isinstance(value, np.generic) else value


def atom_figures(W: BooleanCP, k: int) -> list[Chart]:
    """Return the figures of one atom: where it is on, its real part along each mode, and an image of a dense one."""
    last = patterns.atom_panels(W, k)[-1]
    figures = [_boolean_figure(W, k) if n == W.atoms[k].mode else _real_figure(W, k, n) for n in range(W.ndim)]
    figures += [_image_figure(W, k, last)] if isinstance(last, tuple) else []
    return figures + _on_off_figures(W, k)


def _on_off_figures(W: BooleanCP, k: int) -> list[Chart]:
    """Return a histogram of the amplitudes of an atom in entries that a fit has not seen, with both groups."""
    if W.atoms[k].is_baseline or (found := group_density(W, k)) is None:
        return []
    a, edges, x, low, high = found
    counts, width, name = np.histogram(a, edges)[0], edges[1] - edges[0], modes.plural(W, W.atoms[k].mode)
    bars = {"type": "bar", "x": edges[:-1] + width / 2, "y": counts, "width": width, "marker": {"color": "#B8B8B8"}}
    traces = [bars | {"name": name} | _hover(f"amplitude %{{x:.2f}}: %{{y}} {plain(name)}")]
    for group, y, color in (("off", low, OFF), ("on", high, ON)):
        line = {"color": color, "width": 2.5}
        traces.append({"type": "scatter", "mode": "lines", "x": x, "y": y, "name": group, "line": line} | _hover(group))
    layout = _layout(xaxis={"title": {"text": "amplitude"}}, yaxis={"title": {"text": plain(name)}}, has_legend=True)
    caption = f"amplitude in {name} that the fit had not seen, as a share of its weight; lines: two groups"
    return [figure(traces, layout, f"Atom {k}, {caption}", caption)]


def _boolean_figure(W: BooleanCP, k: int) -> Chart:
    """Return where an atom is on: an electrode map if its mode has positions, else a strip; gray where uncertain."""
    mode, values, texts = W.atoms[k].mode, patterns.bit_values(W, k), bit_texts(W, k)
    positions, caption = modes.positions_of(W, mode), _bits_caption(W, mode, [values])
    alt = f"Atom {k} along {modes.mode_text(W, mode)}, on: {on_text(W, k)}"
    if positions is not None:
        colors = {"color": values, "colorscale": BITS, "cmin": 0, "cmax": 1}
        traces, layout = _map(W, mode, positions, texts, colors)
        return figure([_links(W, k, positions), *traces], layout, alt, f"{caption}; lines join neighbors that are on")
    layout = _layout(xaxis=_axis(W, mode, is_even=True), yaxis={"visible": False, "fixedrange": True})
    return _banded(W, mode, [_bits(values, texts) | _span(W, mode, "x")], layout, alt, caption)


def _bits_caption(W: BooleanCP, mode: int, rows: list[np.ndarray]) -> str:
    """Return what the colors of bits mean; gray only if there is any."""
    is_gray = any(((row > 0.1) & (row < 0.9)).any() for row in rows)
    unknown = "without data" if modes.undetermined_of(W, mode).any() else "uncertain"
    return f"{modes.mode_text(W, mode)}: yellow on, blue off" + f", gray {unknown}" * is_gray


def bit_texts(W: BooleanCP, k: int) -> list[str]:
    """Return a text for each bit of an atom: on or off, and how certain that is."""
    atom, values, texts = W.atoms[k], patterns.bit_values(W, k), []
    is_known = W.trust is not None and W.trust.odds is not None
    parts = zip(hover_labels(W, atom.mode), atom.z, values, modes.undetermined_of(W, atom.mode), strict=True)
    for label, is_on, value, is_unknown in parts:
        chance = f", {100 * max(value, 1 - value):.0f} % sure" if is_known else ""
        texts.append(f"{label}: no data" if is_unknown else f"{label}: {'on' if is_on else 'off'}{chance}")
    return texts


def _real_figure(W: BooleanCP, k: int, mode: int) -> Chart:
    """Return the real part of an atom, or its leading pattern, along one mode: a map, bars for names, or lines."""
    atom, positions, kind = W.atoms[k], modes.positions_of(W, mode), "real part"
    is_few = atom.rank is not None and atom.rank <= MAX_PRODUCTS and positions is None
    if not (atom.rank == 1 or W.ndim == 2 or is_few):
        W, kind = patterns.only_leading(W, k), "leading pattern"
    columns, texts, name = patterns.real_columns(W, k)[mode], hover_labels(W, mode), modes.mode_text(W, mode)
    label = plain(modes.value_label(W) if mode == patterns.carrier_mode(W, k) else "relative size")
    top = modes.coordinate_text(W, mode)[int(np.argmax(np.linalg.norm(np.nan_to_num(columns), axis=1)))]
    alt = f"Atom {k}, {kind} along {name}, largest at {top} {modes.unit_of(W, mode)}".rstrip()
    caption = f"{name}: {kind}"
    if len(columns) > MAX_POINTS:
        caption += f" (smallest and largest of each {-(-2 * len(columns) // MAX_POINTS)} points)"
    if positions is not None and columns.shape[1] == 1:
        texts = [f"{text}: {value:.4g}" for text, value in zip(texts, columns[:, 0], strict=True)]
        end = symmetric(columns)["vmax"]
        colors = {"color": columns[:, 0], "colorscale": DIVERGING, "colorbar": _bar(label), "cmin": -end, "cmax": end}
        return figure(*_map(W, mode, positions, texts, colors), alt, caption)
    y = {"title": {"text": label}, "rangemode": "tozero"}
    layout = _layout(xaxis=_axis(W, mode), yaxis=y, has_legend=columns.shape[1] > 1)
    return _banded(W, mode, _real_traces(W, k, mode, columns, texts), layout, alt, caption, tools=True)


def _real_traces(W: BooleanCP, k: int, mode: int, columns: np.ndarray, texts: Sequence[str]) -> list[Chart]:
    """Return bars for one column over names, points for several, else a line for each column."""
    places, color = modes.line_places(W, mode), atom_colors(W.n_atoms)[k]
    has_names = modes.is_unordered(W, mode) or modes.has_names(W, mode)
    if has_names and columns.shape[1] == 1:
        bars = {"type": "bar", "y": columns[:, 0], "marker": {"color": color}, "hovertext": list(texts)}
        return [bars | ({} if places is None else {"x": places}) | _hover("%{hovertext}: %{y:.4g}")]
    traces = []
    for n, column in enumerate(columns.T):
        trace = line(W, mode, column, color, f"product {n}" * (columns.shape[1] > 1), texts)
        trace["line"]["dash"] = DASHES[n % len(DASHES)]
        if has_names:  # no line joins them
            trace |= {"mode": "markers", "marker": {"size": 7, "color": color, "symbol": SYMBOLS[n % len(SYMBOLS)]}}
        traces.append(trace)
    return traces


def line(W: BooleanCP, mode: int, column: np.ndarray, color: str, name: str, texts: Sequence[str]) -> Chart:
    """Return one line over a mode; a very long one keeps the smallest and largest of each interval."""
    places, kept = modes.line_places(W, mode), kept_points(column)
    x = (np.arange(len(column)) if places is None else places)[kept]
    who = f"{plain(name)}, " if name else ""
    if _has_names(W, mode):
        hover = {"text": [texts[i] for i in kept]} | _hover(f"{who}%{{text}}: %{{y:.4g}}")
    else:
        hover = _hover(f"{who}{_place(W, mode, 'x')}: %{{y:.4g}}")
    look = {"mode": "lines+markers" if len(kept) <= MAX_MARKERS else "lines", "line": {"color": color, "width": 1.3}}
    return {"type": "scatter", "x": x, "y": column[kept], "name": name, "marker": {"size": 4}} | look | hover


def kept_points(column: np.ndarray) -> np.ndarray:
    """Return which points of a line are drawn: all, or the smallest and largest of each interval of a very long one."""
    if len(column) <= MAX_POINTS:
        return np.arange(len(column))
    stretches, filled = np.array_split(np.arange(len(column)), MAX_POINTS // 2), np.nan_to_num(column)
    return np.unique([(part[np.argmin(filled[part])], part[np.argmax(filled[part])]) for part in stretches])


def _image_figure(W: BooleanCP, k: int, pair: tuple[int, int]) -> Chart:
    """Return the real part of an atom over two modes, the first vertical; neighbors of a large image are averaged."""
    image, steps = averaged(patterns.block_image(W, k, pair))
    trace = {"type": "heatmap", "z": image, "colorscale": DIVERGING, "colorbar": _bar(plain(modes.value_label(W)))}
    end = symmetric(image)["vmax"]
    trace |= {"zmin": -end, "zmax": end} | _span(W, pair[0], "y", steps[0]) | _span(W, pair[1], "x", steps[1])
    place = f"{_place(W, pair[1], 'x')}, {_place(W, pair[0], 'y')}"
    if steps == (1, 1) and image.size <= MAX_CELLS // 4 and any(_has_names(W, mode) for mode in pair):
        rows, columns = (hover_labels(W, mode) for mode in pair)
        trace["text"], place = [[f"{column}, {row}" for column in columns] for row in rows], "%{text}"
    layout = _layout(xaxis=_axis(W, pair[1], is_even=True), yaxis=_axis(W, pair[0], is_even=True, is_upward=True))
    title = f"real part, {' by '.join(modes.mode_text(W, n) for n in pair)}"
    caption = title + "".join(_sorted_text(W, n) for n in pair) + " (neighbors averaged)" * (steps != (1, 1))
    return figure([trace | _hover(f"{place}: %{{z:.4g}}")], layout, f"Atom {k}, {title}", caption, size="wide")


def averaged(image: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return an image of at most MAX_CELLS cells, means of neighbors, and how many of them in both directions."""
    steps = [1, 1]
    while np.prod(cells := [-(-d // s) for d, s in zip(image.shape, steps, strict=True)]) > MAX_CELLS:
        steps[int(np.argmax(cells))] += 1
    for axis, step in enumerate(steps):
        starts = np.arange(0, image.shape[axis], step)
        sizes = np.diff([*starts, image.shape[axis]])
        image = np.add.reduceat(image, starts, axis=axis) / np.expand_dims(sizes, 1 - axis)
    return image, tuple(steps)


def together_figures(W: BooleanCP) -> list[Chart]:
    """Return all atoms along each mode: strips if Boolean; if real, lines, or an image for named entries."""
    figures = []
    for mode in range(W.ndim):
        texts, name = hover_labels(W, mode), modes.mode_text(W, mode)
        boolean = [k for k in range(W.n_atoms) if W.atoms[k].mode == mode]
        real = [k for k in range(W.n_atoms) if W.atoms[k].mode != mode]
        if boolean:
            values = [patterns.bit_values(W, k) for k in boolean]
            words = [[f"atom {k}, {text}" for text in bit_texts(W, k)] for k in boolean]
            rows = list(map(_bits, values, words))
            figures.append(_rows_figure(W, mode, boolean, rows, _bits_caption(W, mode, values)))
        columns = {k: patterns.leading_column(W, k, mode) for k in real}
        if real and (_has_names(W, mode) or modes.is_unordered(W, mode) or modes.positions_of(W, mode) is not None):
            scale = {"type": "heatmap", "coloraxis": "coloraxis", "hoverongaps": False, **_hover("%{text}")}
            words = [[f"atom {k}, {t}: {v:.3g}" for t, v in zip(texts, columns[k], strict=True)] for k in real]
            rows = [scale | {"z": columns[k][None, :], "text": [said]} for k, said in zip(real, words, strict=True)]
            axis = {"colorscale": DIVERGING, "cmin": -1, "cmax": 1, "colorbar": _bar("relative size")}
            figures.append(_rows_figure(W, mode, real, rows, f"{name}: real parts, red plus", coloraxis=axis))
        elif real:
            colors = atom_colors(W.n_atoms)
            lines = [line(W, mode, columns[k], colors[k], f"atom {k}", texts) | {"meta": {"atom": k}} for k in real]
            y = {"title": {"text": "relative size"}, "rangemode": "tozero"}
            layout, caption = _layout(xaxis=_axis(W, mode), yaxis=y, has_legend=True), "real parts, largest size one"
            figures.append(figure(lines, layout, _alt(W, mode, real), f"{name}: {caption}", tools=True, size="wide"))
    return figures


def _rows_figure(W: BooleanCP, mode: int, atoms: list[int], traces: list[Chart], caption: str, **look: Any) -> Chart:
    """Return one row of an image for each atom, along a mode."""
    place = _span(W, mode, "x") | {"dy": 1, "ygap": 3}
    placed = [trace | place | {"y0": row, "meta": {"atom": atoms[row]}} for row, trace in enumerate(traces)]
    axis = {"range": [len(atoms) - 0.5, -0.5], "fixedrange": True, "showgrid": False, "zeroline": False}
    axis |= {"tickvals": list(range(len(atoms))), "ticktext": [f"atom {k}" for k in atoms]}
    layout = _layout(xaxis=_axis(W, mode, is_even=True), yaxis=axis, **look)
    size = "wide low" if len(atoms) <= LOW else "wide high" if len(atoms) > HIGH else "wide"
    return _banded(W, mode, placed, layout, _alt(W, mode, atoms), caption, size=size)


def _alt(W: BooleanCP, mode: int, atoms: Sequence[int]) -> str:
    return f"Atoms {', '.join(map(str, atoms))} along {modes.mode_text(W, mode)}, drawn together; each is in its card"


def group_figures(means: Any, name: str) -> list[Chart]:
    """Return bars (shares of ones) and points (means of real parts, with their s.d.) of the atoms in each group."""
    figures, colors = [], atom_colors(len(means.conditions), *GROUP_COLORS)
    for is_boolean in sorted(set(means.is_boolean.tolist()), reverse=True):
        members, traces = np.flatnonzero(means.is_boolean == is_boolean), []
        for c, group in enumerate(means.conditions):
            mean, legend = means.mean[members, c], f"{plain(group)} ({means.counts[c]})"
            spread = {"array": means.spread[members, c], "color": OUTLINE, "thickness": 1, "width": 2}
            look = {"type": "scatter", "mode": "markers", "y": mean, "error_y": spread | {"type": "data"}}
            look = {"type": "bar", "y": 100 * mean} if is_boolean else look
            hover = _hover(f"%{{x}}, {legend}: " + ("%{y:.0f} % on" if is_boolean else "mean %{y:.3g}"))
            places = {"x": [f"atom {k}" for k in members], "name": legend, "offsetgroup": str(c)}
            traces.append(look | places | {"marker": {"color": colors[c]}} | hover)
        y = {"title": {"text": "on (%)" if is_boolean else "mean (± s.d.)"}, "rangemode": "tozero"}
        groups = {"barmode": "group", "scattermode": "group"}
        layout = _layout(xaxis={"type": "category"}, yaxis=y, has_legend=True, **groups)
        caption = f"share of ones by {name}" if is_boolean else f"mean of the real part by {name}; lines: s.d."
        figures.append(figure(traces, layout, f"{caption}; the numbers are in the table", caption, size="wide"))
    return figures


def path_figure(errors: Sequence[float]) -> Chart:
    """Return the error after each atom of the pursuit."""
    look = {"type": "scatter", "mode": "lines+markers", "line": {"color": BLUE}, "y": list(errors)}
    traces = [look | {"x": list(range(1, len(errors) + 1))} | _hover("pursuit, %{x} atoms: %{y:.4f}")]
    caption = "Relative error after each atom of the pursuit"
    x = {"title": {"text": "number of atoms"}} | ({"dtick": 1} if len(errors) <= 20 else {})
    layout = _layout(xaxis=x, yaxis={"title": {"text": "relative error"}, "rangemode": "tozero"})
    return figure(traces, layout, f"{caption}: {', '.join(f'{e:.4f}' for e in errors)}", caption)


def hover_labels(W: BooleanCP, mode: int) -> list[str]:
    """Return the hover text of each entry of a mode: its coordinate with unit, and its additional coordinates."""
    name, unit = modes.mode_text(W, mode), modes.unit_of(W, mode)
    labels = [f"{name} {text} {unit}".rstrip() for text in modes.coordinate_text(W, mode)]
    for further in modes.further_names(W, mode):
        if further not in ("x", "y"):
            values = modes.further_of(W, mode, further).tolist()
            texts = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in values]
            labels = [f"{label}, {further} {text}" for label, text in zip(labels, texts, strict=True)]
    return [plain(label) for label in labels]


def _place(W: BooleanCP, mode: int, letter: str) -> str:
    """Return the hover text of a position along a mode, on the axis x or y."""
    return f"{plain(modes.mode_text(W, mode))} %{{{letter}:.6~g}} {plain(modes.unit_of(W, mode))}"


def _bits(values: np.ndarray, texts: Sequence[str]) -> Chart:
    look = {"colorscale": BITS, "zmin": 0, "zmax": 1, "showscale": False}
    return {"type": "heatmap", "z": values[None, :], "text": [list(texts)]} | look | _hover("%{text}")


def _map(W: BooleanCP, mode: int, places: np.ndarray, texts: list[str], colors: Chart) -> tuple[list[Chart], Chart]:
    """Return entries of a mode at their positions: on a head with its outline, or with names where there is room."""
    x, y = places.T
    names = [plain(text) for text in modes.coordinate_text(W, mode)]
    has_names = len(names) <= MAX_NAMES and modes.coordinates_of(W, mode) is not None
    size = float(np.clip(14 * np.sqrt(60 / len(x)), 5, 10 if has_names else 14))
    marker = {"size": size, "line": {"color": OUTLINE, "width": 1}} | colors
    trace = {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker, "hovertext": list(texts)}
    if has_names:  # above in the upper half, below in the lower: outward, where there is room
        sides = ["bottom center" if height < np.nanmedian(y) else "top center" for height in y]
        trace |= {"mode": "markers+text", "text": names, "textposition": sides, "textfont": {"size": 9}}
    under = _head(places, colors) if modes.is_head(W, mode) else []
    hidden = {"visible": False}
    layout = _layout(xaxis=hidden, yaxis=hidden | {"scaleanchor": "x"}, margin={"l": 8, "r": 8, "t": 14, "b": 8})
    return [*under, trace | _hover("%{hovertext}")], layout


def _links(W: BooleanCP, k: int, places: np.ndarray) -> Chart:
    """Return lines between neighbors that are both on, which make regions visible."""
    A, z = graph_of(W, W.atoms[k].mode), W.atoms[k].z & (not W.atoms[k].is_baseline)
    pairs = [] if A is None else [(i, j) for i, j in zip(*A.tocoo().coords, strict=True) if i < j and z[i] and z[j]]
    x, y = ([end for i, j in pairs for end in (float(axis[i]), float(axis[j]), None)] for axis in places.T)
    look = {"type": "scatter", "mode": "lines", "line": {"color": ON, "width": 5}, "hoverinfo": "skip"}
    return look | {"x": x, "y": y, "showlegend": False}


def _head(positions: np.ndarray, colors: Chart) -> list[Chart]:
    """Return the outline of a head and, for real values, the map between the electrodes."""
    silent = {"hoverinfo": "skip", "showlegend": False}
    look = {"type": "scatter", "mode": "lines", "line": {"color": OUTLINE, "width": 1.2}} | silent
    lines = [look | {"x": one[:, 0], "y": one[:, 1]} for one in outline().values()]
    if "colorbar" not in colors:  # bits
        return lines
    side, image = interpolate(positions, np.asarray(colors["color"], dtype=float))
    scale = {"colorscale": colors["colorscale"], "zmin": colors["cmin"], "zmax": colors["cmax"], "showscale": False}
    shade = {"type": "heatmap", "x": side, "y": side, "z": image, "zsmooth": "best", "opacity": 0.85}
    return [shade | scale | silent, *lines]


def _banded(W: BooleanCP, mode: int, traces: list[Chart], layout: Chart, alt: str, caption: str, **look: Any) -> Chart:
    """Return a figure with the colors of the groups of its mode, if any, above the chart and named below it."""
    found, (first, width) = bands(W, mode), _cells(W, mode)
    box = {"type": "rect", "xref": "x", "yref": "paper", "y0": BAND[0], "y1": BAND[1], "line": {"width": 0}}
    shapes, legend = [], []
    for (name, start, stop), color in zip(found, atom_colors(len(found), *GROUP_COLORS), strict=True):
        ends = {"x0": first + width * (start - 0.5), "x1": first + width * (stop - 0.5)}
        shapes.append(box | ends | {"fillcolor": color})
        legend.append((color, f"{name} ({stop - start})"))
    return figure(traces, layout | {"shapes": shapes}, alt, caption + _sorted_text(W, mode), legend=legend, **look)


def _sorted_text(W: BooleanCP, mode: int) -> str:
    """Return by what the entries of a mode are sorted, if by anything."""
    return f", sorted by {group_name(W, mode)}" if bands(W, mode) else ""


def _layout(*, has_legend: bool = False, **parts: Any) -> Chart:
    """Return the layout of all charts: clear, so that light and dark pages show through; legends are below."""
    axis = {"automargin": True, "zeroline": True, "zerolinecolor": ZERO, "gridcolor": "rgba(128,128,128,0.2)"}
    parts["xaxis"] = axis | {"zeroline": False, "showgrid": False} | parts["xaxis"]
    parts["yaxis"] = axis | parts["yaxis"]
    font = {"family": "system-ui, sans-serif", "size": 12}
    margin = {"l": 48, "r": 8, "t": 30, "b": 40}  # tools have room above the data
    if has_legend:  # atoms are selected in the table, not there
        place = {"orientation": "h", "y": 0, "yref": "container", "yanchor": "bottom"}
        parts["legend"] = place | {"itemclick": False, "itemdoubleclick": False}
        margin["b"] = 84 if "title" in parts["xaxis"] else 60
    look = {"paper_bgcolor": CLEAR, "plot_bgcolor": CLEAR, "font": font, "margin": margin, "showlegend": has_legend}
    return look | {"hovermode": "closest", "hoverlabel": {"align": "left", "namelength": -1}, "bargap": 0.15} | parts


def _axis(W: BooleanCP, mode: int, *, is_even: bool = False, is_upward: bool = False) -> Chart:
    """Return the axis of a mode: its name and unit, and names as ticks where it has no numbers."""
    name, unit = modes.mode_text(W, mode), modes.unit_of(W, mode)
    axis: dict[str, Any] = {"title": {"text": plain(f"{name} ({unit})" if unit else name)}}
    places = modes.even_places(W, mode)[0] if is_even else modes.line_places(W, mode)
    if places is None and modes.coordinates_of(W, mode) is not None:
        texts = modes.coordinate_text(W, mode)
        names = [plain(shortened(text, LETTERS) if len(texts) <= FEW else shortened(text)) for text in texts]
        step = -(-len(names) // (MAX_TICKS_UPWARD if is_upward else MAX_TICKS))
        axis |= {"tickvals": list(range(0, len(names), step)), "ticktext": names[::step]}
        if not is_upward and (len(names) > FEW or max(map(len, names)) > 3):
            axis |= {"tickangle": -90 if len(names) > FEW else -35, "ticklabeloverflow": "allow"}
    elif places is not None and not is_even and modes.is_geometric(places):
        axis["type"] = "log"
    return axis


def _span(W: BooleanCP, mode: int, name: str, step: int = 1) -> Chart:
    """Return the positions of the cells of an image along a mode."""
    start, width = _cells(W, mode)
    return {f"{name}0": start + width * (step - 1) / 2, f"d{name}": width * step}


def _has_names(W: BooleanCP, mode: int) -> bool:
    """Return True if the entries of a mode have names or additional coordinates."""
    return modes.has_names(W, mode) or bool(modes.further_names(W, mode))


def _bar(label: str) -> Chart:
    return {"title": {"text": label, "side": "right"}, "thickness": 10, "outlinewidth": 0}


def _hover(template: str) -> Chart:
    return {"hovertemplate": f"{template}<extra></extra>"}


def _cells(W: BooleanCP, mode: int) -> tuple[float, float]:
    """Return the first position along a mode and the distance of neighbors, in an image."""
    low, high = modes.even_places(W, mode)[1]
    width = float(high - low) / max(W.shape[mode], 1)
    return float(low) + width / 2, width
