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
matplotlib.rcParams["font.sans-serif"] = ["Arial", "Helvetica", "DejaVu Sans"]
SIZES = {"font.size": 8, "axes.titlesize": 9, "legend.fontsize": 7.5, "lines.linewidth": 1.2, "lines.markersize": 3.5}
matplotlib.rcParams.update(SIZES | {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
matplotlib.rcParams.update(
    {"svg.fonttype": "none", "svg.hashsalt": "boolcp", "xtick.labelsize": 7, "ytick.labelsize": 7}
)


def figure(n_rows, n_columns, height, width=7.2, **options):
    """Return a Figure as wide as a page and its Axes as a 2-D array; it belongs to no window."""
    canvas = Figure(figsize=(width, height), layout="constrained")
    return canvas, canvas.subplots(n_rows, n_columns, squeeze=False, **options)


def curves(axes, rows, *, x="n_atoms", floor=None):
    """Draw for each method the mean over seeds against the atoms, with bars from the lowest to the highest seed."""
    for method, look in LOOKS.items():
        groups = rows[rows["method"] == method].groupby("n_atoms")
        mean, low, high = (getattr(groups["value"], how)().clip(lower=floor) for how in ("mean", "min", "max"))
        places = mean.index.to_numpy(float) if x == "n_atoms" else groups[x].mean().to_numpy()
        if len(places):
            axes.plot(places, mean.to_numpy(), label=LABELS.get(method, method), **look)
            axes.vlines(places, low, high, color=look["color"], linewidth=2.2, alpha=0.45, zorder=look.get("zorder", 2))


def finish(canvas, axes, n_columns, text=""):
    """Write a, b, c, .. beside the panels, one legend below, and a note about this run."""
    place = {"xy": (0, 1), "xytext": (-10, 7), "xycoords": "axes fraction", "textcoords": "offset points"}
    found = {}
    for n, ax in enumerate(axes):
        name = "a" * (n // 26) + ascii_lowercase[n % 26]
        ax.annotate(name, **place, weight="bold", fontsize=9, ha="right")
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    canvas.legend(found.values(), found.keys(), loc="outside lower center", ncols=n_columns)
    canvas.suptitle(text, fontsize=7, x=0.01, ha="left", color="0.3")
    return canvas


def n_seeds(table):
    """Return how many seeds the methods of a table have, as text."""
    counts = table.groupby("method")["seed"].nunique()
    low, high = int(counts.min()), int(counts.max())
    return f"{low} seed{'s' * (low > 1)}" if low == high else f"{low} to {high} seeds"
