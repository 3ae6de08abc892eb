"""The figures of the page: a still picture with its text, for print and without scripts, and the chart that replaces it."""

import base64
import io

import numpy as np

from boolcp import plotting
from boolcp.extras import load_extra
from boolcp.report import charts
from boolcp.report.assets import to_json
from boolcp.report.words import find_groups, group_values, has_shares, on_text, percent, result_error, unit_of

PANEL, IMAGE = (3.4, 2.3), (4.2, 2.3)  # inches
DPI, IMAGE_DPI = 150, 100  # of what is an image within the vector pictures; images of noise are large
SETTINGS = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "svg.hashsalt": "boolcp",  # equal reports are equal files
    "svg.fonttype": "path",
}


def fit_figures(W, history):
    """Return the figures of the whole fit: error path, shares of variance, certificates."""
    figures = []
    names = [f"atom {k}" for k in range(W.n_atoms)]
    errors = [plotting.relative_error(step) for step in history]
    if errors:
        text = ", ".join(f"{error:.4f}" for error in errors)
        caption = "Relative error after each atom of the pursuit"
        if has_shares(W):
            caption += "; the circle is the result"
        chart = charts.path_chart(W, errors)
        figures.append(figure(chart, f"{caption}: {text}", caption, lambda ax: draw_path(W, errors, ax)))
    if has_shares(W):
        shares = W.explained_alone()
        figures.append(_share_figure(W, names, shares, "Variance that each atom explains alone", "alone"))
    certificates = np.array([atom.certificate for atom in W.atoms], dtype=float)
    if np.isfinite(certificates).any():
        figures.append(_share_figure(W, names, certificates, "Certificate of each atom", "certificate"))
    return figures


def _share_figure(W, names, values, caption, label):
    text = ", ".join(f"{name} {percent(value)}" for name, value in zip(names, values, strict=True))
    chart = charts.share_chart(W, names, values, label)
    return figure(chart, f"{caption}: {text}", caption, lambda ax: draw_shares(W, values, label, ax))


def atom_figures(W, k, stability=None):
    """Return the figures of one atom, one for each mode and one for an image of its real part."""
    return [atom_figure(W, k, mode, stability) for mode in plotting.atom_panels(W, k)]


def atom_figure(W, k, mode, stability=None):
    """Return one panel of an atom."""
    atom = W.atoms[k]
    name = "" if isinstance(mode, tuple) else plotting.mode_text(W, mode)
    if mode == atom.mode:
        alt, caption = f"Atom {k} along {name}, on: {on_text(W, k)}", f"{name}: yellow on, blue off"
        chart = charts.boolean_chart(W, k, stability)
        return figure(chart, alt, caption, lambda ax: plotting.plot_boolean(W, k, ax))
    if isinstance(mode, tuple):
        caption = f"real part, {' by '.join(plotting.mode_text(W, n) for n in mode)}"
        chart, is_averaged = charts.image_chart(W, k, mode)
        note = " (neighbors averaged on the screen)" if is_averaged else ""
        alt = f"Atom {k}, {caption}"
        return figure(chart, alt, caption + note, lambda ax: plotting.plot_real(W, k, mode, ax), size=IMAGE)
    columns = plotting.real_columns(W, k)[mode]
    kind = "leading pattern" if atom.block is not None and W.ndim > 2 else "real part"
    alt = f"Atom {k}, {kind} along {name}"
    if np.isfinite(columns).any():
        peak = int(np.nanargmax(np.abs(columns).max(axis=1)))
        alt += f", largest at {plotting.coordinate_text(W, mode)[peak]} {unit_of(W, mode)}".rstrip()
    note = f" (least and largest of each {-(-2 * len(columns) // charts.MAX_POINTS)} points)"
    caption = f"{name}: {kind}" + (note if len(columns) > charts.MAX_POINTS else "")
    return figure(charts.real_chart(W, k, mode), alt, caption, lambda ax: plotting.plot_real(W, k, mode, ax))


def together_figures(W):
    """Return the figures of all atoms together, for each mode; they have no still picture, the cards have."""
    figures = []
    for mode in range(W.ndim):
        name = plotting.mode_text(W, mode)
        for kind, chart in charts.together_charts(W, mode).items():
            members = ", ".join(str(trace["meta"]["atom"]) for trace in chart["data"])
            caption = f"{name}: {'yellow on, blue off' if kind == 'boolean' else 'real parts, largest entry one'}"
            alt = f"Atoms {members} along {name}, drawn together; each is described in its card"
            figures.append(figure(chart, alt, caption))
    return figures


def group_parts(W):
    """Return for each coordinate with a few groups a table and charts of the atoms in them."""
    parts = []
    for group in find_groups(W):
        boolean, real = group_values(W, group)
        rows = [(k, [_text(value, "{:.0f} %") for value in boolean[k]], "share of ones") for k in boolean]
        rows += [(k, [_text(value, "{:.3g}") for value in real[k]], "mean") for k in real]
        mode = plotting.mode_text(W, group.mode)
        figures = []
        for values, what in ((boolean, "share that is on"), (real, "mean of the real part, largest entry one")):
            if values:
                chart = charts.groups_chart(W, group, values, values is boolean)
                figures.append(figure(chart, f"{what} by {group.name}; the numbers are in the table", what))
        title = f"By {group.name}" if mode == group.name else f"By {group.name} along {mode}"
        sizes = np.bincount(group.member, minlength=len(group.names)).tolist()
        heads = list(zip(group.names, sizes, strict=True))
        parts.append({"title": title, "heads": heads, "rows": rows, "figures": figures})
    return parts


def figure(chart, alt, caption, draw=None, size=PANEL):
    """Return a chart as JSON with its text alternative, its caption and, if it can be drawn so, a still picture."""
    source = None if draw is None else still_picture(draw, size)
    words = {"alt": alt, "caption": caption, "is_wide": size == IMAGE or draw is None}
    return {"source": source, "chart": to_json(chart)} | words


def still_picture(draw, size):
    """Return a picture drawn on one Axes, as a data address."""
    load_extra("matplotlib.figure", "report")
    canvas = load_extra("matplotlib", "report").figure.Figure(figsize=size, layout="constrained")
    draw(canvas.subplots())
    buffer = io.BytesIO()
    canvas.savefig(
        buffer, format="svg", dpi=IMAGE_DPI if size == IMAGE else DPI, metadata={"Date": None, "Creator": None}
    )
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def draw_path(W, errors, ax):
    """Draw the error path, and the result as a circle."""
    plotting.plot_error_path(errors, ax)
    error = result_error(W)
    if error is not None:
        ax.plot([W.n_atoms], [error], "o", markersize=8, markerfacecolor="none", color=plotting.ORANGE)
        ax.set_ylim(0, 1.05 * max([*errors, error]) or 1.0)
        ax.set_xlim(0.5, max(len(errors), W.n_atoms) + 0.5)


def draw_shares(W, values, label, ax):
    """Draw one bar for each atom, colored by its Boolean mode."""
    colors = [charts.LINES[atom.mode % len(charts.LINES)] for atom in W.atoms]
    ax.bar(np.arange(W.n_atoms), 100 * np.nan_to_num(values), width=0.7, color=colors)
    ax.set(xlabel="atom", ylabel=f"{label} (%)")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.spines[["top", "right"]].set_visible(False)


def _text(value, pattern):
    return "-" if value is None else pattern.format(value)
