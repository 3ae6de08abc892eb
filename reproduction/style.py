"""The style of the figures: Okabe-Ito colors, safe for color-blind readers, one marker per method, print sizes."""

from string import ascii_lowercase

import matplotlib
from matplotlib.figure import Figure
from methods import BLOCKS, PUBLISHED, RANK_ONE

BLACK, ORANGE, SKY, GREEN, YELLOW = "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, GRAY = "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C"
LOOKS = {
    RANK_ONE: {"color": VERMILION, "marker": "o", "linewidth": 1.8, "zorder": 5},
    BLOCKS: {"color": ORANGE, "marker": "D", "linewidth": 1.8, "zorder": 4.5},
    PUBLISHED: {"color": BLACK, "marker": "s"},
    "LFM": {"color": SKY, "marker": "^"},
    "LFMmix": {"color": SKY, "marker": "v", "linestyle": "--", "markerfacecolor": "white"},
    "Tucker": {"color": GREEN, "marker": "P"},
    "CP": {"color": BLUE, "marker": "X"},
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
matplotlib.rcParams.update(SETTINGS)


def figure(n_rows, n_columns, height, **options):
    """Return a Figure as wide as a page and its Axes as a 2-D array; it belongs to no window."""
    canvas = Figure(figsize=(PAGE, height), layout="constrained")
    return canvas, canvas.subplots(n_rows, n_columns, squeeze=False, **options)


def curves(axes, rows, *, floor=None, dodge):
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


def finish(canvas, axes, n_columns, text=""):
    """Write a, b, c, .. beside the panels, one legend in the first free panel or below, and a note about this run."""
    on = [ax for ax in axes if ax.axison]
    free = [ax for ax in axes if not ax.axison]
    names = [*ascii_lowercase, *(f"a{second}" for second in ascii_lowercase)]
    place = {"xy": (0, 1), "xytext": (-4, 4), "xycoords": "axes fraction", "textcoords": "offset points"}
    found = {}
    for name, ax in zip(names, on, strict=False):
        ax.annotate(name, **place, weight="bold", fontsize=9, ha="right")
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if free:
        free[0].legend(found.values(), found.keys(), loc="upper left", borderaxespad=0)
    else:
        canvas.legend(found.values(), found.keys(), loc="outside lower center", ncols=n_columns)
    if text:
        canvas.suptitle(text, fontsize=7, x=0.01, ha="left", color="0.3")
    return canvas


def n_seeds(table):
    """Return how many seeds the methods of a table have, as text."""
    counts = table.groupby("method")["seed"].nunique()
    low, high = int(counts.min()), int(counts.max())
    return f"{low} seed{'s' * (low > 1)}" if low == high else f"{low} to {high} seeds"
