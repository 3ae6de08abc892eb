"""Interactive charts as Plotly reads them: a dict of traces and a layout, with labels and values on hover."""

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
from boolcp.plotting.patterns import block_image, carrier_mode, leading_column, real_columns
from boolcp.report.assets import plain
from boolcp.report.ordering import Band, bands
from boolcp.report.words import result_error, value_label
from boolcp.result.atoms import BooleanCP

MAX_POINTS = 20_000  # of a line; beyond, the smallest and largest of each interval are kept
MAX_CELLS = 25_000  # of an image; beyond, neighbors are averaged
MAX_MARKERS = 60
MAX_TICKS = 15  # upright names that fit below an image beside its scale, on a phone too
MAX_ELECTRODE_NAMES = 34
FEW, LETTERS = 8, 20  # up to this many names are shown with this many letters
LETTERS_ACROSS = 42  # that fit across a narrow chart
COLORS = (*LINES[:6], "#8A8A8A")  # without black, which a dark page would hide
MODE_COLORS = ("#5B7C99", "#B08D57", "#7A9A6D", "#9B6B8E", "#8F8F8F")  # muted: no color of an atom
DASHES = ("solid", "dash", "dot", "dashdot")  # of the products of an atom
SYMBOLS = ("circle", "diamond-open", "cross", "square-open")
OUTLINE, ZERO = "#6B6B6B", "#9A9A9A"
BITS = [[0, OFF], [0.5, UNKNOWN], [1, ON]]
DIVERGING = [[0, "#2166AC"], [0.25, "#92C5DE"], [0.5, "#F7F7F7"], [0.75, "#F4A582"], [1, "#B2182B"]]
BAND = (1.03, 1.12)  # height of the colors of conditions above a chart, as a share of it

Chart = dict[str, Any]


def atom_colors(n_atoms: int) -> list[str]:
    """Return one color for each atom, no two of them equal.

    Examples
    --------
    >>> from boolcp.report.charts import atom_colors
    >>> len(set(atom_colors(50)))
    50
    """
    return list(COLORS[:n_atoms]) if n_atoms <= len(COLORS) else _shades(n_atoms, 0.65)


def _shades(n: int, saturation: float) -> list[str]:
    """Return different colors: neighbors differ in hue, the same hue differs in lightness."""
    lights = (0.40, 0.55, 0.70)
    shades = [colorsys.hls_to_rgb(137.508 * k % 360 / 360, lights[k % len(lights)], saturation) for k in range(n)]
    return ["#" + "".join(f"{round(255 * part):02X}" for part in shade) for shade in shades]


def mode_color(mode: int) -> str:
    """Return the color of atoms that are on or off along a mode, where atoms have no color of their own."""
    return MODE_COLORS[mode % len(MODE_COLORS)]


def group_colors(n_groups: int) -> list[str]:
    """Return one color for each group, no two of them equal, none that of an atom."""
    return list(GROUP_COLORS[:n_groups]) if n_groups <= len(GROUP_COLORS) else _shades(n_groups, 0.35)


def bit_values(W: BooleanCP, k: int) -> np.ndarray:
    """Return the probability that each entry of an atom is on, if known; 0.5 without data."""
    atom = W.atoms[k]
    values = atom.z.astype(float)
    if W.trust is not None and W.trust.rise is not None:
        sure = np.clip(W.bit_confidence()[k], 0.5, 1.0)
        values = np.where(atom.z, sure, 1 - sure)
    unknown = (W.undetermined or {}).get(atom.mode, np.zeros(len(atom.z), dtype=bool))
    return np.where(unknown, 0.5, values)


def bit_texts(W: BooleanCP, k: int) -> list[str]:
    """Return a text for each bit of an atom: on or off, and how certain that is."""
    atom, values = W.atoms[k], bit_values(W, k)
    unknown = (W.undetermined or {}).get(atom.mode, np.zeros(len(atom.z), dtype=bool))
    states = np.where(unknown, "no data", np.where(atom.z, "on", "off"))
    is_known = W.trust is not None and W.trust.rise is not None
    chances = [f", {100 * max(v, 1 - v):.0f} % sure" if is_known else "" for v in values]
    labels = hover_labels(W, atom.mode)
    return [
        f"{label}: {state}{chance if state != 'no data' else ''}"
        for label, state, chance in zip(labels, states, chances, strict=True)
    ]


def boolean_chart(W: BooleanCP, k: int) -> Chart:
    """Return where an atom is on: an electrode map if its mode has positions, else a strip; gray where uncertain."""
    atom, values, texts = W.atoms[k], bit_values(W, k), bit_texts(W, k)
    positions = positions_of(W, atom.mode)
    if positions is not None:
        return _map(W, atom.mode, positions, texts, {"color": values, "colorscale": BITS, "cmin": 0, "cmax": 1})
    trace = _bits(values[None, :], texts) | _span(W, atom.mode, "x")
    layout = _layout(xaxis=_axis(W, atom.mode, is_even=True), yaxis={"visible": False, "fixedrange": True})
    return {"data": [trace], "layout": _with_bands(layout, W, atom.mode)}


def real_chart(W: BooleanCP, k: int, mode: int) -> Chart:
    """Return the real part of an atom along one mode: a map of electrodes, bars for names, or lines in its color."""
    columns = real_columns(W, k)[mode]
    label = plain(size_label(W, k, mode))
    texts = hover_labels(W, mode)
    positions = positions_of(W, mode)
    if positions is not None and columns.shape[1] == 1:
        texts = [f"{text}: {value:.4g}" for text, value in zip(texts, columns[:, 0], strict=True)]
        scale = {"colorscale": DIVERGING, "colorbar": _bar(label), **_limits(columns, "c")}
        return _map(W, mode, positions, texts, {"color": columns[:, 0], **scale})
    places = places_of(W, mode)
    is_named = is_unordered(W, mode) or (places is None and coordinates_of(W, mode) is not None)
    layout = _with_bands(
        _layout(xaxis=_axis(W, mode), yaxis={"title": {"text": label}, "rangemode": "tozero"}), W, mode
    )
    color = atom_colors(W.n_atoms)[k]
    if is_named and columns.shape[1] == 1:
        trace = {"type": "bar", "y": columns[:, 0], "marker": {"color": color}, "hovertext": texts}
        trace |= {} if places is None else {"x": places}
        return {"data": [trace | _hover("%{hovertext}: %{y:.4g}")], "layout": layout, "has_tools": True}
    names = [f"product {n}" for n in range(columns.shape[1])] if columns.shape[1] > 1 else [""]
    traces = [line(W, mode, columns[:, n], color, name, texts) for n, name in enumerate(names)]
    for n, trace in enumerate(traces):
        trace["line"]["dash"] = DASHES[n % len(DASHES)]
        if is_named:  # no line joins them
            trace |= {"mode": "markers", "marker": {"size": 7, "color": color, "symbol": SYMBOLS[n % len(SYMBOLS)]}}
    if 1 < len(traces) <= 4:
        layout = _with_legend(layout)
    return {"data": traces, "layout": layout, "has_tools": True}


def image_chart(W: BooleanCP, k: int, modes: Any) -> Any:
    """Return the real part of an atom over two modes, the first vertical, and whether neighbors were averaged."""
    image = block_image(W, k, modes)
    steps = _image_steps(image.shape)
    small = _averaged(image, steps)
    trace = {"type": "heatmap", "z": small, "colorscale": DIVERGING, "colorbar": _bar(plain(value_label(W)))}
    trace |= _limits(image, "z")
    for name, mode, step in zip("yx", modes, steps, strict=True):
        trace |= _span(W, mode, name, step)
    y, x = (plain(mode_text(W, mode)) for mode in modes)
    units = [plain(unit_of(W, mode)) for mode in modes]
    place = f"{x} %{{x:.6~g}} {units[1]}, {y} %{{y:.6~g}} {units[0]}"
    if steps == (1, 1) and small.size <= MAX_CELLS // 4 and any(_has_names(W, mode) for mode in modes):
        rows, columns = (hover_labels(W, mode) for mode in modes)
        trace["text"], place = [[f"{column}, {row}" for column in columns] for row in rows], "%{text}"
    layout = _layout(xaxis=_axis(W, modes[1], is_even=True), yaxis=_axis(W, modes[0], is_even=True, is_upward=True))
    return {"data": [trace | _hover(f"{place}: %{{z:.4g}}")], "layout": layout}, steps != (1, 1)


def path_chart(W: BooleanCP, errors: Any) -> Any:
    """Return the relative error after each atom of the pursuit, and that of the result."""
    steps = {"type": "scatter", "mode": "lines+markers", "x": list(range(1, len(errors) + 1)), "y": errors}
    traces = [steps | {"line": {"color": BLUE}} | _hover("pursuit, %{x} atoms: %{y:.4f}")]
    if (result := result_error(W)) is not None:
        marker = {"color": "rgba(0,0,0,0)", "size": 13, "line": {"color": ORANGE, "width": 2}}
        point = {"type": "scatter", "mode": "markers", "x": [W.n_atoms], "y": [result], "marker": marker}
        traces.append(point | _hover("result, %{x} atoms: %{y:.4f}"))
    steps = {"dtick": 1} if max(len(errors), W.n_atoms) <= 20 else {}
    layout = _layout(
        xaxis={"title": {"text": "number of atoms"}, **steps},
        yaxis={"title": {"text": "relative error"}, "rangemode": "tozero"},
    )
    return {"data": traces, "layout": layout}


def residual_chart(check: Any) -> Any:
    """Return the quantiles of the residual against those of normal noise."""
    ends = [float(check.normal_quantiles[0]), float(check.normal_quantiles[-1])]
    diagonal = {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip"}
    points = {"type": "scatter", "mode": "markers", "x": check.normal_quantiles, "y": check.quantiles}
    traces = [
        diagonal | {"line": {"color": ZERO, "width": 1, "dash": "dash"}},
        points | {"marker": {"color": BLUE, "size": 5}} | _hover("normal %{x:.2f}, residual %{y:.2f}"),
    ]
    x, y = ({"title": {"text": text}} for text in ("normal quantile", "quantile of the residual"))
    return {"data": traces, "layout": _layout(xaxis=x, yaxis=y)}


def share_chart(W: BooleanCP, names: Sequence[str], values: np.ndarray, label: str) -> Chart:
    """Return one bar for each atom, colored by its Boolean mode; values are shares, NaN where unknown."""
    traces = []
    for k, atom in enumerate(W.atoms):
        mode = plain(mode_text(W, atom.mode))
        look = {"marker": {"color": mode_color(atom.mode)}, "meta": {"atom": int(k)}}
        is_first = all(other.mode != atom.mode for other in W.atoms[:k])
        legend = {"name": f"on or off along {mode}", "legendgroup": str(atom.mode), "showlegend": is_first}
        share = None if np.isnan(values[k]) else 100 * float(values[k])
        trace = {"type": "bar", "x": [str(k)], "y": [share]} | look | legend
        traces.append(trace | _hover(f"{names[k]}, on or off along {mode}: %{{y:.1f}} %"))
    axis = {"title": {"text": f"{label} (%)"}, "rangemode": "tozero"}
    layout = _layout(xaxis={"type": "category", "title": {"text": "atom"}}, yaxis=axis)
    return {"data": traces, "layout": _with_legend(layout)}


def together_charts(W: BooleanCP, mode: int) -> dict[str, Chart]:
    """Return all atoms along one mode: strips if Boolean; if real, lines, or an image for named entries."""
    texts, charts = hover_labels(W, mode), {}
    boolean = [k for k in range(W.n_atoms) if W.atoms[k].mode == mode]
    real = [k for k in range(W.n_atoms) if W.atoms[k].mode != mode]
    if boolean:
        rows = [_bits(bit_values(W, k)[None, :], [f"atom {k}, {text}" for text in bit_texts(W, k)]) for k in boolean]
        charts["boolean"] = _rows(W, mode, boolean, rows)
    columns = {k: leading_column(W, k, mode) for k in real}
    if real and (_has_names(W, mode) or is_unordered(W, mode) or positions_of(W, mode) is not None):
        scale = {"type": "heatmap", "coloraxis": "coloraxis", "hoverongaps": False}
        words = {k: [f"atom {k}, {t}: {v:.3g}" for t, v in zip(texts, columns[k], strict=True)] for k in real}
        rows = [scale | {"z": columns[k][None, :], "text": [words[k]]} | _hover("%{text}") for k in real]
        charts["image"] = _rows(W, mode, real, rows)
        axis = {"colorscale": DIVERGING, "cmin": -1, "cmax": 1, "colorbar": _bar("relative size")}
        charts["image"]["layout"]["coloraxis"] = axis
    elif real:
        colors = atom_colors(W.n_atoms)
        traces = [line(W, mode, columns[k], colors[k], f"atom {k}", texts) | {"meta": {"atom": k}} for k in real]
        layout = _layout(xaxis=_axis(W, mode), yaxis={"title": {"text": "relative size"}, "rangemode": "tozero"})
        charts["real"] = {"data": traces, "layout": _with_legend(layout), "has_tools": True}
    return charts


def _rows(W: BooleanCP, mode: int, atoms: Sequence[int], traces: Sequence[Chart]) -> Chart:
    """Return one row of an image for each atom, along a mode."""
    placed = [
        trace | _span(W, mode, "x") | {"y0": row, "dy": 1, "ygap": 3, "meta": {"atom": k}}
        for row, (k, trace) in enumerate(zip(atoms, traces, strict=True))
    ]
    ticks = {"tickvals": list(range(len(atoms))), "ticktext": [f"atom {k}" for k in atoms]}
    axis = {"range": [len(atoms) - 0.5, -0.5], "fixedrange": True, "showgrid": False, "zeroline": False} | ticks
    layout = _with_bands(_layout(xaxis=_axis(W, mode, is_even=True), yaxis=axis), W, mode)
    return {"data": placed, "layout": layout}


def groups_chart(means: Any, is_boolean: bool) -> Chart:
    """Return bars (shares of ones) or points (means) of each atom in each group, with their spread.

    The lines of shares reach over their 95 % interval (Wilson), those of means one standard deviation to each side.
    """
    members = np.flatnonzero(means.is_boolean == is_boolean).tolist()
    traces, colors = [], group_colors(len(means.conditions))
    for c, (name, count) in enumerate(zip(means.conditions, means.counts, strict=True)):
        for k in members:
            mean = means.mean[k, c]
            low, high = _wilson(mean, count) if is_boolean else (mean - means.spread[k, c], mean + means.spread[k, c])
            scale = 100 if is_boolean else 1
            spread = {"array": [scale * (high - mean)], "arrayminus": [scale * (mean - low)]}
            error = {"type": "data", "symmetric": False, "thickness": 1, "width": 2, "color": OUTLINE} | spread
            look = {"type": "bar"} if is_boolean else {"type": "scatter", "mode": "markers"}
            legend = {"name": f"{plain(name)} ({count})", "legendgroup": str(c), "showlegend": k == members[0]}
            value = "%{y:.0f} % on" if is_boolean else "mean %{y:.3g}"
            trace = look | {"x": [f"atom {k}"], "y": [scale * mean], "error_y": error, "marker": {"color": colors[c]}}
            where = {"offsetgroup": str(c), "meta": {"atom": k}}
            traces.append(trace | legend | where | _hover(f"atom {k}, {plain(name)} ({count}): {value}"))
    title = "on (%)" if is_boolean else "mean (± s.d.)"
    layout = _layout(xaxis={"type": "category"}, yaxis={"title": {"text": title}, "rangemode": "tozero"})
    grouped = layout | {"barmode": "group", "scattermode": "group"}
    return {"data": traces, "layout": _with_legend(grouped)}


def _wilson(share: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of n."""
    from scipy.stats import binomtest

    if n < 2 or np.isnan(share):
        return share, share
    interval = binomtest(round(share * n), int(n)).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def line(W: BooleanCP, mode: int, column: Any, color: Any, name: Any, texts: Any) -> Any:
    """Return one line over a mode; a very long one keeps the smallest and largest of each interval."""
    places = places_of(W, mode)
    kept = kept_points(column)
    x = np.arange(len(column)) if places is None else places
    start = {"x": x[kept]} if len(kept) < len(column) or not _is_even(x) else {"x0": float(x[0]), "dx": _step(x)}
    look = {"mode": "lines+markers" if len(kept) <= MAX_MARKERS else "lines", "line": {"color": color, "width": 1.3}}
    who = f"{plain(name)}, " if name else ""
    if _has_names(W, mode):
        hover = {"text": [texts[i] for i in kept]} | _hover(f"{who}%{{text}}: %{{y:.4g}}")
    else:
        hover = _hover(f"{who}{plain(mode_text(W, mode))} %{{x:.6~g}} {plain(unit_of(W, mode))}: %{{y:.4g}}")
    return {"type": "scatter", "y": column[kept], "name": name, "marker": {"size": 4}} | start | look | hover


def kept_points(column: Any) -> Any:
    """Return which points of a line are drawn: all, or the smallest and largest of each interval of a very long one."""
    if len(column) <= MAX_POINTS:
        return np.arange(len(column))
    stretches = np.array_split(np.arange(len(column)), MAX_POINTS // 2)
    filled = np.nan_to_num(column)
    ends = [(part[np.argmin(filled[part])], part[np.argmax(filled[part])]) for part in stretches]
    return np.unique(ends)


def places_of(W: BooleanCP, mode: int) -> Any:
    """Return the coordinates along a mode if they are numbers in order, else None; dates are shown as names."""
    return None if is_date(W, mode) else line_places(W, mode)


def even_places_of(W: BooleanCP, mode: int) -> Any:
    """Return the coordinates along a mode if they are evenly spaced numbers, else None."""
    return None if is_date(W, mode) else even_places(W, mode)[0]


def mode_label(W: BooleanCP, mode: int) -> Any:
    """Return the name and unit of a mode."""
    unit = unit_of(W, mode)
    return f"{mode_text(W, mode)} ({unit})" if unit else mode_text(W, mode)


def size_label(W: BooleanCP, k: int, mode: int) -> Any:
    """Return the label of the numbers of an atom along a mode: the measured quantity, or relative to the largest."""
    return value_label(W) if mode == carrier_mode(W, k) else "relative size"


def hover_labels(W: BooleanCP, mode: int) -> Any:
    """Return the hover text of each entry of a mode: its coordinate with unit, and its additional coordinates."""
    unit = unit_of(W, mode)
    name = mode_text(W, mode)
    labels = [f"{name} {text} {unit}".rstrip() for text in coordinate_text(W, mode)]
    extra = {} if W.labels is None else W.labels.extra
    for further, (dim, values) in extra.items():
        if dim == W.mode_name(mode) and further not in ("x", "y"):
            values = np.asarray(values)
            texts = [f"{v:.6g}" if values.dtype.kind == "f" else str(v) for v in values]
            labels = [f"{label}, {further} {text}" for label, text in zip(labels, texts, strict=True)]
    return [plain(label) for label in labels]


def _bits(values: Any, texts: Any) -> Any:
    look = {"colorscale": BITS, "zmin": 0, "zmax": 1, "showscale": False}
    return {"type": "heatmap", "z": values, "text": [texts]} | look | _hover("%{text}")


def _map(W: BooleanCP, mode: int, positions: np.ndarray, texts: Sequence[str], colors: Chart) -> Chart:
    """Return entries of a mode at their positions: on a head with its outline, or with names where there is room."""
    x, y = positions.T
    names = [plain(text) for text in coordinate_text(W, mode)]
    has_names = len(names) <= MAX_ELECTRODE_NAMES and coordinates_of(W, mode) is not None
    marker = {
        "size": float(np.clip(14 * np.sqrt(60 / len(x)), 5, 10 if has_names else 14)),
        "line": {"color": OUTLINE, "width": 1},
    } | colors
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


def band_name(band: Band) -> str:
    """Return name and size of a group."""
    return shortened(f"{band.name} ({band.stop - band.start})", LETTERS)


def _has_room(W: BooleanCP, mode: int, found: Sequence[Band]) -> bool:
    """Return True if no name is wider than the band below it; otherwise a legend has them all."""
    return all((b.stop - b.start) * LETTERS_ACROSS >= W.shape[mode] * len(band_name(b)) for b in found)


def band_legend(W: BooleanCP, mode: int) -> list[tuple[str, str]]:
    """Return color and name of the groups of a mode, if they have no room above their bands."""
    found = bands(W, mode)
    if _has_room(W, mode, found):
        return []
    colors = group_colors(len(found))
    return [(colors[band.number], f"{band.name} ({band.stop - band.start})") for band in found]


def _with_bands(layout: Chart, W: BooleanCP, mode: int) -> Chart:
    """Return the layout with the colors and names of the groups of a mode, if any, above the chart."""
    found = bands(W, mode)
    if not found:
        return layout
    places = even_places_of(W, mode)
    x = np.arange(W.shape[mode], dtype=float) if places is None else places
    half = 0.5 if len(x) < 2 else _step(x) / 2
    shapes, notes, colors, is_named = [], [], group_colors(len(found)), _has_room(W, mode, found)
    for band in found:
        color, ends = colors[band.number], (x[band.start] - half, x[band.stop - 1] + half)
        box = {"type": "rect", "xref": "x", "yref": "paper", "y0": BAND[0], "y1": BAND[1], "line": {"width": 0}}
        shapes.append(box | {"x0": float(ends[0]), "x1": float(ends[1]), "fillcolor": color})
        place = {"xref": "x", "yref": "paper", "x": float(sum(ends) / 2), "y": BAND[1], "yanchor": "bottom"}
        if is_named:
            notes.append(place | {"text": plain(band_name(band)), "showarrow": False, "font": {"size": 10}})
    margin = layout["margin"] | {"t": 44}
    return layout | {"shapes": shapes, "annotations": notes, "margin": margin}


def _layout(**parts: Any) -> Any:
    """Return the layout of all charts: no background, so that light and dark pages show through."""
    clear = "rgba(0,0,0,0)"
    axis = {"automargin": True, "zeroline": True, "zerolinecolor": ZERO, "gridcolor": "rgba(128,128,128,0.2)"}
    parts["xaxis"] = axis | {"zeroline": False, "showgrid": False} | parts["xaxis"]
    parts["yaxis"] = axis | parts["yaxis"]
    font = {"family": "system-ui, sans-serif", "size": 12}
    margin = {"l": 48, "r": 8, "t": 30, "b": 40}  # tools have room above the data
    look = {"paper_bgcolor": clear, "plot_bgcolor": clear, "font": font, "margin": margin, "showlegend": False}
    return look | {"hovermode": "closest", "hoverlabel": {"align": "left", "namelength": -1}, "bargap": 0.15} | parts


def _axis(W: BooleanCP, mode: int, *, is_even: bool = False, is_upward: bool = False) -> Any:
    """Return the axis of a mode: its name and unit, and names as ticks where it has no numbers."""
    axis: dict[str, Any] = {"title": {"text": plain(mode_label(W, mode))}}
    places = even_places_of(W, mode) if is_even else places_of(W, mode)
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


def _span(W: BooleanCP, mode: int, name: Any, step: Any = 1) -> Any:
    """Return the positions of the cells of an image along a mode."""
    places = even_places_of(W, mode)
    start, width = (0.0, 1.0) if places is None else (float(places[0]), _step(places))
    return {f"{name}0": start + width * (step - 1) / 2, f"d{name}": width * step}


def _has_names(W: BooleanCP, mode: int) -> Any:
    """Return True if the entries of a mode have names or additional coordinates."""
    has_coords = coordinates_of(W, mode) is not None and places_of(W, mode) is None
    extra = {} if W.labels is None else W.labels.extra
    return has_coords or any(dim == W.mode_name(mode) for dim, _ in extra.values())


def _image_steps(shape: tuple[int, ...]) -> Any:
    """Return how many rows and columns are averaged into one cell."""
    steps = [1, 1]
    while np.prod([-(-d // s) for d, s in zip(shape, steps, strict=True)]) > MAX_CELLS:
        longest = int(np.argmax([-(-d // s) for d, s in zip(shape, steps, strict=True)]))
        steps[longest] += 1
    return tuple(steps)


def _averaged(image: Any, blocks: Any) -> Any:
    """Return the means of blocks of an image; those at the end may be smaller."""
    for axis, step in enumerate(blocks):
        if step > 1:
            starts = np.arange(0, image.shape[axis], step)
            sizes = np.diff([*starts, image.shape[axis]])
            image = np.add.reduceat(image, starts, axis=axis) / np.expand_dims(sizes, 1 - axis)
    return image


def _limits(values: Any, name: str) -> Any:
    """Return the limits of a scale with zero in the middle, as cmin and cmax or as zmin and zmax."""
    return {f"{name}{end[1:]}": value for end, value in symmetric(values).items()}


def _with_legend(layout: Chart) -> Chart:
    """Return the layout with a legend below the chart; atoms are selected in the table, not there."""
    place = {"orientation": "h", "y": 0, "yref": "container", "yanchor": "bottom"}
    legend = {"showlegend": True, "legend": place | {"itemclick": False, "itemdoubleclick": False}}
    return layout | legend | {"margin": layout["margin"] | {"b": 84}}


def _bar(label: Any) -> Any:
    return {"title": {"text": label, "side": "right"}, "thickness": 10, "outlinewidth": 0}


def _hover(template: Any) -> Any:
    return {"hovertemplate": f"{template}<extra></extra>"}


def _is_even(x: Any) -> Any:
    return len(x) > 1 and np.allclose(np.diff(x), _step(x), rtol=1e-6, atol=0)


def _step(x: Any) -> float:
    return float((x[-1] - x[0]) / max(len(x) - 1, 1))
