"""The style of the figures: Okabe-Ito colors, safe for color-blind readers, one marker per method, print sizes."""

from collections.abc import Callable
from itertools import chain
from string import ascii_lowercase
from typing import Any

from boolcp.experiments import _methods
from boolcp.extras import load_extra

BLACK, ORANGE, SKY, GREEN, YELLOW = "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, GRAY = "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C"
LOOKS: dict[str, dict[str, Any]] = {
    _methods.DEFAULT: {"color": VERMILION, "marker": "o", "linewidth": 1.8, "zorder": 5},
    _methods.RANK_ONE: {"color": ORANGE, "marker": "D", "linewidth": 1.8, "zorder": 4.5},
    _methods.BLOCKS: {"color": VERMILION, "marker": "d", "linestyle": ":", "markerfacecolor": "white", "zorder": 4.8},
    _methods.PUBLISHED: {"color": BLACK, "marker": "s", "linestyle": "-"},
    _methods.PUBLISHED_RANK_ONE: {"color": GRAY, "marker": "s", "linestyle": "--", "markerfacecolor": "white"},
    "LFM": {"color": SKY, "marker": "^", "linestyle": "-"},
    "LFMmix": {"color": SKY, "marker": "v", "linestyle": "--", "markerfacecolor": "white"},
    "Tucker": {"color": GREEN, "marker": "P", "linestyle": "-"},
    "CP": {"color": BLUE, "marker": "X", "linestyle": "-"},
    "SUSTain": {"color": PURPLE, "marker": "*", "linestyle": "-."},
}
LABELS = {"SUSTain": "SUSTain-style"}
PAGE = 7.2  # inches: two columns of a journal
SETTINGS = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "boolcp",
    "savefig.dpi": 150,
    "figure.dpi": 100,
}


def figure(n_rows: int, n_columns: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """Return a Figure in the house style and its Axes as a 2-D array; it belongs to no window."""
    matplotlib = load_extra("matplotlib", "experiments")
    load_extra("matplotlib.figure", "experiments")
    with matplotlib.rc_context(SETTINGS):
        canvas = matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
        return canvas, canvas.subplots(n_rows, n_columns, squeeze=False, **options)


def styled(draw: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Run a draw function, and save its figure, with the settings of the house style."""

    def wrapped(table: Any) -> Any:
        matplotlib = load_extra("matplotlib", "experiments")
        with matplotlib.rc_context(SETTINGS):
            canvas = draw(table)
        save = canvas.savefig

        def savefig(*args: Any, **options: Any) -> None:
            with matplotlib.rc_context(SETTINGS):
                save(*args, **options)

        canvas.savefig = savefig
        return canvas

    wrapped.__doc__ = draw.__doc__
    return wrapped


def curves(axes: Any, rows: Any, *, floor: float | None = None, dodge: float) -> None:
    """Draw for each method the mean over seeds against the atoms, with bars from the lowest to the highest seed.

    Methods whose curves would hide each other are moved sideways by `dodge` of the range of the atoms each.
    """
    shown = [method for method in LOOKS if (rows["method"] == method).any()]
    step = dodge * (rows["n_atoms"].max() - rows["n_atoms"].min()) if len(rows) else 0.0
    for i, method in enumerate(shown):
        values = rows[rows["method"] == method].groupby("n_atoms")["value"]
        mean, low, high = (getattr(values, how)().clip(lower=floor) for how in ("mean", "min", "max"))
        places = mean.index.to_numpy(float) + step * (i - (len(shown) - 1) / 2)
        look = LOOKS[method]
        axes.plot(places, mean.to_numpy(), label=LABELS.get(method, method), **look)
        axes.vlines(places, low, high, color=look["color"], linewidth=2.2, alpha=0.45, zorder=look.get("zorder", 2))


def letter(axes: Any) -> None:
    """Write a, b, c, .. beside the panels that are on, row by row."""
    on = [ax for ax in axes.flat if ax.axison]
    place = {"xy": (0, 1), "xytext": (-4, 4), "xycoords": "axes fraction", "textcoords": "offset points"}
    for name, ax in zip(chain(ascii_lowercase, (f"a{second}" for second in ascii_lowercase)), on, strict=False):
        ax.annotate(name, **place, weight="bold", fontsize=9, ha="right")


def legend_below(canvas: Any, axes: Any, n_columns: int) -> None:
    """Put one legend for all panels below them, with an entry for every label that some panel has."""
    labels, handles = entries(axes)
    canvas.legend(handles, labels, loc="outside lower center", ncols=n_columns)


def legend_in(canvas: Any, axes: Any, free: Any, n_columns: int) -> None:
    """Put the legend of all panels where the first free one is, or below all panels if none is free."""
    if free:
        labels, handles = entries(axes)
        free[0].legend(handles, labels, loc="upper left", borderaxespad=0)
    else:
        legend_below(canvas, axes, n_columns)


def entries(axes: Any) -> tuple[list[str], list[Any]]:
    """Return the labels of all panels, each once, and what they stand for."""
    found: dict[str, Any] = {}
    for one in axes.flat:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found), list(found.values())


def note(canvas: Any, text: str) -> None:
    """Write a note about this run below the panels."""
    canvas.suptitle(text, fontsize=7, x=0.01, ha="left", color="0.3")


def n_seeds(table: Any) -> str:
    """Return how many seeds the methods of a table have, as text."""
    counts = table.groupby("method")["seed"].nunique()
    low, high = int(counts.min()), int(counts.max())
    return f"{low} seed{'s' * (low > 1)}" if low == high else f"{low} to {high} seeds"
