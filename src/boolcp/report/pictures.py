"""The figures of the page: a chart, and its still picture and text for print, for readers and without scripts."""

import base64
import io

import numpy as np

from boolcp import plotting
from boolcp.extras import load_extra
from boolcp.report import charts
from boolcp.report.assets import to_json
from boolcp.report.words import find_groups, has_shares, on_text, percent, result_error, unit_of

PANEL, IMAGE = (3.4, 2.3), (4.2, 2.3)  # inches
DPI, IMAGE_DPI = 150, 75  # of what is an image within the vector pictures; images of noise are large
SETTINGS = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "svg.hashsalt": "boolcp",  # equal reports are equal files
    "svg.fonttype": "path",
}


def fit_figures(W, history, residual=None):
    """Return the figures of the whole fit: error path, shares of variance, certificates, residual."""
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
    if residual is not None:
        caption = "Quantiles of the residual against normal noise (dashed)"
        alt = f"{caption}, from {residual.quantiles[0]:.2f} to {residual.quantiles[-1]:.2f} root mean squares"
        chart = charts.residual_chart(residual)
        figures.append(figure(chart, alt, caption, lambda ax: plotting.plot_residual(residual, ax)))
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
    for mode, name in find_groups(W):
        means = plotting.condition_means(W, mode, name)
        rows, figures = [], []
        for is_boolean, what in ((True, "share of ones"), (False, "mean of the real part")):
            members = np.flatnonzero(means.is_boolean == is_boolean).tolist()
            write = _whole_percent if is_boolean else "{:.3g}".format
            cells = {k: ["-" if np.isnan(v) else write(v) for v in means.mean[k]] for k in members}
            rows += [(k, cells[k], what) for k in members]
            if members:
                chart = charts.groups_chart(means, is_boolean)
                figures.append(figure(chart, f"{what} by {name}; the numbers are in the table", f"{what} by {name}"))
        place = plotting.mode_text(W, mode)
        title = f"By {name}" if place == name else f"By {name} along {place}"
        heads = list(zip(means.conditions, means.counts.tolist(), strict=True))
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
    colors = [charts.COLORS[atom.mode % len(charts.COLORS)] for atom in W.atoms]
    ax.bar(np.arange(W.n_atoms), 100 * np.nan_to_num(values), width=0.7, color=colors)
    ax.set(xlabel="atom", ylabel=f"{label} (%)")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.spines[["top", "right"]].set_visible(False)


def _whole_percent(share):
    return f"{100 * share:.0f} %"
