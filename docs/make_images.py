"""Draw the pictures of the written pages: `python docs/make_images.py` writes docs/images/first.png and bits.png."""

import runpy
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import boolcp

IMAGES = Path(__file__).parent / "images"
ON, OFF, FOUND, TRUE = "#E69F00", "#E8E8E8", "#0072B2", "#000000"  # orange and blue of the Okabe-Ito palette
AXIS_LABELS = ("channel (number)", "time (s)", "trial (number)")
PLACES = ("channels", "samples", "trials")
DPI = 160


def draw_bits(ax, z, places):
    """Draw a Boolean vector as a strip: orange where it is on, light gray where it is off."""
    step = places[1] - places[0]
    extent = (places[0] - step / 2, places[-1] + step / 2, 0, 1)
    ax.imshow(z[None, :].astype(float), cmap=matplotlib.colors.ListedColormap([OFF, ON]), aspect="auto", extent=extent)
    ax.set(yticks=[], xlim=extent[:2])


def draw_line(ax, values, truth, places, label):
    """Draw a real column and the true one as lines."""
    ax.plot(places, values, color=FOUND, linewidth=1.6)
    ax.plot(places, truth, color=TRUE, linewidth=0.8, linestyle="--")
    step = places[1] - places[0]
    ax.set(xlim=(places[0] - step / 2, places[-1] + step / 2))
    ax.set_ylabel(label, fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)


def columns_of(W, k):
    """Return the real columns of an atom by mode, one with its largest entry scaled to one, the other with the size.

    The size goes to the time course if that is real, else to the channels. The background of the recording has
    standard deviation one, so that sizes are in these units.
    """
    mode = W.atoms[k].mode
    carrier = 1 if mode != 1 else 0
    other = next(n for n in range(3) if n not in (mode, carrier))
    a, b = W.factors[carrier][:, k], W.factors[other][:, k]
    peak = b[np.argmax(np.abs(b))]
    return {carrier: (a * peak * W.weights[k], "size (noise s.d.)"), other: (b / peak, "relative size")}


def draw_first(recording, W):
    """Return the figure: one row for each atom, one column for each mode."""
    places = (np.arange(W.shape[0]), recording.times, np.arange(W.shape[2]))
    order = {atom.mode: k for k, atom in enumerate(recording.truth.atoms)}
    canvas, rows = plt.subplots(W.n_atoms, 3, figsize=(8.0, 1.7 * W.n_atoms + 0.6), layout="constrained")
    for k, (atom, axes) in enumerate(zip(W.atoms, rows, strict=True)):
        true = order[atom.mode]
        found, known = columns_of(W, k), columns_of(recording.truth, true)
        for mode, ax in enumerate(axes):
            if mode == atom.mode:
                draw_bits(ax, atom.z, places[mode])
            else:
                values, label = found[mode]
                draw_line(ax, values, known[mode][0], places[mode], label)
            ax.tick_params(labelsize=8)
        text = f"atom {k}, {recording.labels[true]}: on in {atom.n_ones} of {len(atom.z)} {PLACES[atom.mode]}"
        axes[0].set_title(text, fontsize=10, fontweight="bold", loc="left").set_in_layout(False)
        axes[1].set_title(" ", fontsize=10)
    for ax, label in zip(rows[-1], AXIS_LABELS, strict=True):
        ax.set_xlabel(label, fontsize=10)
    handles = [
        Patch(color=ON, label="on"),
        Patch(color=OFF, label="off"),
        Line2D([], [], color=FOUND, linewidth=1.6, label="real part, found"),
        Line2D([], [], color=TRUE, linewidth=0.8, linestyle="--", label="simulated pattern"),
    ]
    canvas.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return canvas


def main():
    """Write all pictures."""
    IMAGES.mkdir(exist_ok=True)
    recording = boolcp.datasets.simulate_recording(random_state=0)
    W = boolcp.decompose(recording.X, n_atoms=3, atom_rank=1, random_state=0)
    draw_first(recording, W).savefig(IMAGES / "first.png", dpi=DPI)
    plt.close("all")
    runpy.run_path(str(IMAGES.parents[1] / "examples" / "plot_17_bits_win.py"))
    plt.figure(2).savefig(IMAGES / "bits.png", dpi=DPI)


if __name__ == "__main__":
    main()
