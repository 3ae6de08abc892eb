"""The figures of the page: a chart, with a still picture and a text for print, screen readers and without scripts."""

import base64
import io
from typing import Any

import numpy as np

from boolcp import plotting
from boolcp.extras import load_extra
from boolcp.report import charts
from boolcp.report.assets import to_json
from boolcp.report.ordering import bands, group_name
from boolcp.report.story import real_sizes
from boolcp.report.tested import p_words
from boolcp.report.words import adjective, has_shares, on_text, result_error, unit_of
from boolcp.result.atoms import BooleanCP
from boolcp.result.summary import percent

PANEL, IMAGE = (3.4, 2.3), (4.2, 2.3)  # inches
MAX_ROWS = 8  # of a chart of usual height
MAX_PRODUCTS = 4  # of an atom that are drawn side by side
DPI, IMAGE_DPI = 150, 75  # of images within the vector pictures; images of noise are large
SETTINGS = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "svg.hashsalt": "boolcp",  # equal reports are equal files
    "svg.fonttype": "path",
}


def fit_figures(W: BooleanCP, history: Any, residual: Any = None) -> Any:
    """Return the figures of the whole fit: error path, shares of variance, certificates, residual."""
    figures = []
    names = [f"atom {k}" for k in range(W.n_atoms)]
    errors = [plotting.relative_error(step) for step in history]
    if errors:
        text = ", ".join(f"{error:.4f}" for error in errors)
        caption = "Relative error after each atom of the pursuit"
        if result_error(W) is not None:
            caption += "; the circle is the result"
        chart, alt = charts.path_chart(W, errors), f"{caption}: {text}"
        figures.append(figure(chart, alt, caption, lambda ax: draw_path(W, errors, ax)))
    if has_shares(W):
        if W.deviance is None:
            shares, caption, label = W.explained_alone(), "Variance that each atom explains alone", "alone"
        else:
            shares, caption, label = W.explained_unique(), "Deviance that is lost without each atom", "unique"
        figures.append(_share_figure(W, names, shares, caption, label))
    certificates = np.array([atom.certificate for atom in W.atoms], dtype=float)
    if np.isfinite(certificates).any():
        figures.append(_share_figure(W, names, certificates, "Certificate of each atom", "certificate"))
    if residual is not None:
        caption = "Quantiles of the residual against normal noise (dashed)"
        alt = f"{caption}, from {residual.quantiles[0]:.2f} to {residual.quantiles[-1]:.2f} root mean squares"
        chart = charts.residual_chart(residual)
        figures.append(figure(chart, alt, caption, lambda ax: plotting.plot_residual(residual, ax)))
    return figures


def _share_figure(W: BooleanCP, names: Any, values: Any, caption: str, label: Any) -> Any:
    text = ", ".join(f"{name} {percent(value)}" for name, value in zip(names, values, strict=True))
    chart = charts.share_chart(W, names, values, label)
    return figure(chart, f"{caption}: {text}", caption, lambda ax: draw_shares(W, values, label, ax))


def atom_figures(W: BooleanCP, k: int) -> Any:
    """Return the figures of one atom, one for each mode and one for an image of its real part."""
    return [atom_figure(W, k, mode) for mode in plotting.atom_panels(W, k)]


def atom_figure(W: BooleanCP, k: int, mode: int) -> Any:
    """Return one panel of an atom."""
    atom = W.atoms[k]
    name = "" if isinstance(mode, tuple) else plotting.mode_text(W, mode)
    if mode == atom.mode:
        alt, caption = f"Atom {k} along {name}, on: {on_text(W, k)}", f"{name}: yellow on, blue off{doubt_text(W)}"
        chart, is_banded = charts.boolean_chart(W, k), bool(bands(W, mode)) and plotting.positions_of(W, mode) is None
        caption += sorted_text(W, mode) if is_banded else ""
        legend = charts.band_legend(W, mode) if is_banded else []
        return figure(chart, alt, caption, lambda ax: plotting.plot_boolean(W, k, ax), legend=legend)
    if isinstance(mode, tuple):
        caption = f"real part, {' by '.join(plotting.mode_text(W, n) for n in mode)}"
        chart, is_averaged = charts.image_chart(W, k, mode)
        note = "".join(sorted_text(W, n) for n in mode) + " (neighbors averaged on the screen)" * is_averaged
        alt = f"Atom {k}, {caption}"
        return figure(chart, alt, caption + note, lambda ax: plotting.plot_real(W, k, mode, ax), size=IMAGE)
    W, is_leading = with_leading(W, k, mode)
    sizes = real_sizes(W, k, mode, {})
    kind = "leading pattern" if is_leading else "real part"
    alt = f"Atom {k}, {kind} along {name}"
    if sizes.any():
        peak = int(np.argmax(sizes))
        alt += f", largest at {plotting.coordinate_text(W, mode)[peak]} {unit_of(W, mode)}".rstrip()
    note = f" (smallest and largest of each {-(-2 * len(sizes) // charts.MAX_POINTS)} points)"
    caption = f"{name}: {kind}" + (note if len(sizes) > charts.MAX_POINTS else "")
    chart = charts.real_chart(W, k, mode)
    caption += sorted_text(W, mode) if chart["layout"].get("shapes") else ""
    legend = charts.band_legend(W, mode) if chart["layout"].get("shapes") else []
    color = charts.atom_colors(W.n_atoms)[k]
    return figure(chart, alt, caption, lambda ax: plotting.plot_real(W, k, mode, ax, color=color), legend=legend)


def sorted_text(W: BooleanCP, mode: int) -> str:
    """Return by what the entries of a mode are sorted, if by anything."""
    return f", sorted by {group_name(W, mode)}" if bands(W, mode) else ""


def doubt_text(W: BooleanCP) -> str:
    """Return what gray means in pictures of bits, if there is gray."""
    if W.trust is not None and W.trust.rise is not None:
        return ", gray uncertain"
    return ", gray without data" if W.undetermined else ""


def with_leading(W: BooleanCP, k: int, mode: int) -> Any:
    """Return W with atom k as its leading pattern where that is what a panel shows, and whether it is.

    This is the case for blocks, sums of many products, and maps, which show one value at each position.
    """
    atom = W.atoms[k]
    is_simple = atom.rank == 1 or W.ndim == 2
    is_few = atom.rank is not None and atom.rank <= MAX_PRODUCTS and plotting.positions_of(W, mode) is None
    if is_simple or is_few:
        return W, False
    return plotting.only_leading(W, k), True


def together_figures(W: BooleanCP) -> Any:
    """Return the figures of all atoms together, for each mode; the still pictures are in the cards."""
    kinds = {
        "boolean": f"yellow on, blue off{doubt_text(W)}",
        "real": "real parts, largest size one",
        "image": "real parts, red plus",
    }
    figures = []
    for mode in range(W.ndim):
        name = plotting.mode_text(W, mode)
        for kind, chart in charts.together_charts(W, mode).items():
            members = ", ".join(str(trace["meta"]["atom"]) for trace in chart["data"])
            alt = f"Atoms {members} along {name}, drawn together; each is described in its card"
            rows = 0 if kind == "real" else len(chart["data"])
            legend = charts.band_legend(W, mode) if chart["layout"].get("shapes") else []
            order = sorted_text(W, mode) if chart["layout"].get("shapes") else ""
            figures.append(figure(chart, alt, f"{name}: {kinds[kind]}{order}", rows=rows, legend=legend))
    return figures


def group_parts(W: BooleanCP, tests: Any) -> Any:
    """Return for each coordinate with a few groups a table and charts of the atoms in them, with its test."""
    parts = []
    for mode, name in plotting.groups_of(W, list(tests)):
        means = plotting.condition_means(W, mode, name)
        rows, figures, test = [], [], tests.get(name)
        for is_boolean, what in ((True, "share of ones"), (False, "mean of the real part")):
            members = np.flatnonzero(means.is_boolean == is_boolean).tolist()
            cells = {k: [_cell(means, k, c) for c in range(len(means.conditions))] for k in members}
            rows += [(k, test_cells(test, k) + cells[k], what) for k in members]
            if members:
                spread = "lines: 95 % interval" if is_boolean else "lines: standard deviation"
                spread = f"; {spread}" if max(means.counts) > 1 else ""
                chart, caption = charts.groups_chart(means, is_boolean), f"{what} by {name}{spread}"
                figures.append(figure(chart, f"{caption}; the numbers are in the table", caption))
        place = plotting.mode_text(W, mode)
        title = f"By {name}" if place == name else f"By {name} along {place}"
        heads = [] if test is None else ["effect", "AUC", "p"]
        heads += [f"{one} ({n})" for one, n in zip(means.conditions, means.counts.tolist(), strict=True)]
        note = "" if test is None else test_note(test, name)
        parts.append({"title": title, "heads": heads, "rows": sorted(rows), "figures": figures, "note": note})
    return parts + [covariate_part(W, name, test) for name, test in tests.items() if not test.conditions]


def covariate_part(W: BooleanCP, name: Any, test: Any) -> Any:
    """Return the table of atoms that follow a covariate."""
    rows = [(k, test_cells(test, k), "bits" if test.is_boolean[k] else "real part") for k in range(W.n_atoms)]
    title = f"With {name} along {plotting.mode_text(W, test.mode)}"
    heads, note = ["rank correlation", "p"], test_note(test, name)
    return {"title": title, "heads": heads, "rows": rows, "figures": [], "note": note}


def test_cells(test: Any, k: int) -> Any:
    """Return effect and p-value of one atom as texts."""
    if test is None:
        return []
    is_share = bool(test.conditions) and test.is_boolean[k]
    effect = f"{100 * test.effect[k]:+.0f} points" if is_share else f"{test.effect[k]:+z.2f}"
    auc = [f"{test.auc[k]:.2f}"] if test.conditions else []
    return [effect, *auc, p_words(test.p_adjusted[k]).removeprefix("p ").removeprefix("= ").replace("< ", "<")]


def test_note(test: Any, name: str) -> str:
    """Describe how a test of a column was made."""
    pair = [adjective(name, one) for one in test.conditions[::-1]]
    ends = ("the highest condition", "the lowest") if len(pair) > 2 else pair
    one, other = ends or ("", "")
    exceeds = f"how often an entry of {one} exceeds one of {other}, equal ones counting half"
    effect = f"Effect: {one} minus {other}; AUC: {exceeds}. "
    return (
        f"{effect if test.conditions else ''}p: from {test.n_permutations} {test.scheme} of the labels, which assume "
        "that entries are independent; the false discovery rate is controlled over all atoms and tests of this page."
    )


def _cell(means: Any, k: int, c: Any) -> str:
    """Return one cell of the table of groups: how many are on, or mean and standard deviation."""
    mean, n = means.mean[k, c], int(means.counts[c])
    if np.isnan(mean):
        return "-"
    if means.is_boolean[k]:
        return f"{round(mean * n)} of {n} ({100 * mean:.0f} %)"
    return f"{mean:z.2f} ± {means.spread[k, c]:.2f}" if n > 1 else f"{mean:z.2f}"


def figure(
    chart: Any, alt: str, caption: str, draw: Any = None, size: Any = PANEL, rows: Any = 0, legend: Any = ()
) -> Any:
    """Return a chart as JSON with its text alternative, its caption and, if possible, a still picture.

    A chart with many rows, one for each atom, is taller.
    """
    source = None if draw is None else still_picture(draw, size)
    words = {"alt": alt, "caption": caption, "is_wide": size == IMAGE or draw is None, "legend": legend}
    return {"source": source, "chart": to_json(chart), "is_high": rows > MAX_ROWS} | words


def still_picture(draw: Any, size: Any) -> str:
    """Return a picture drawn on one Axes, as a data address."""
    load_extra("matplotlib.figure", "report")
    canvas = load_extra("matplotlib", "report").figure.Figure(figsize=size, layout="constrained")
    draw(canvas.subplots())
    buffer = io.BytesIO()
    dpi = IMAGE_DPI if size == IMAGE else DPI
    canvas.savefig(buffer, format="svg", dpi=dpi, metadata={"Date": None, "Creator": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def draw_path(W: BooleanCP, errors: Any, ax: Any) -> None:
    """Draw the error path, and the result as a circle."""
    plotting.plot_error_path(errors, ax)
    error = result_error(W)
    if error is not None:
        ax.plot([W.n_atoms], [error], "o", markersize=8, markerfacecolor="none", color=plotting.ORANGE)
        ax.set_ylim(0, 1.05 * max([*errors, error]) or 1.0)
        ax.set_xlim(0.5, max(len(errors), W.n_atoms) + 0.5)


def draw_shares(W: BooleanCP, values: Any, label: Any, ax: Any) -> None:
    """Draw one bar for each atom, colored by its Boolean mode."""
    modes = dict.fromkeys(atom.mode for atom in W.atoms)
    colors = [charts.mode_color(atom.mode) for atom in W.atoms]
    ax.bar(np.arange(W.n_atoms), 100 * np.nan_to_num(values), width=0.7, color=colors)
    ax.set(xlabel="atom", ylabel=f"{label} (%)")
    names = [plotting.make_patch(charts.mode_color(n), plotting.mode_text(W, n)) for n in modes]
    plotting.legend_above(ax, names)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.spines[["top", "right"]].set_visible(False)
