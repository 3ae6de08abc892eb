"""
Which atom rank?
================

An atom has a Boolean part, *where* it is on, and a real part, *what* happens there. The real part can be one product
(rank one: one spatial map times one time course), a few products (rank L), or any block of numbers. Which of them is
right depends on the data.
"""

# %%
# Two recordings of 40 trials. In the first, each pattern is one map times one time course. In the second, each
# pattern is a wave that travels over the electrodes: no single map and time course can describe it.

import matplotlib.pyplot as plt
import numpy as np

import boolcp

rng = np.random.default_rng(0)
n_channels, n_times, n_trials = 24, 60, 40
channels, times = np.arange(n_channels)[:, None], np.arange(n_times)[None]
on = rng.random((n_trials, 2)) < 0.5


def standing(center, phase):
    """Return a bump in space times an oscillation."""
    return np.exp(-(((channels - center) / 4) ** 2)) * np.sin(2 * np.pi * times / 20 + phase)


def traveling(speed, delay):
    """Return a bump that moves over the channels."""
    return np.exp(-(((times - delay - channels / speed) / 5) ** 2))


patterns = {
    "standing": [2.5 * standing(6, 0), 2.5 * standing(16, 2)],
    "traveling": [2 * traveling(0.6, 8), -2 * traveling(-0.8, 45)],
}
data = {}
for name, parts in patterns.items():
    clean = sum(np.multiply.outer(part, on[:, k]) for k, part in enumerate(parts))
    data[name] = clean, clean + rng.standard_normal(clean.shape)

# %%
# Fit up to five atoms of every kind, Boolean in trials, and measure the error to the recording without noise.

ranks = {"1": 1, "2": 2, "4": 4, "block": "block"}
figure, axes = plt.subplots(2, 2, figsize=(9, 5.6), layout="constrained")
for row, (name, (clean, X)) in zip(axes, data.items(), strict=True):
    image = row[0].imshow(patterns[name][0], aspect="auto", origin="lower", cmap="RdBu_r", vmin=-2.5, vmax=2.5)
    row[0].set(xlabel="time (samples)", ylabel="channel (number)", title=f"a {name} pattern")
    figure.colorbar(image, ax=row[0], label="value")
    for (label, rank), marker in zip(ranks.items(), "os^D", strict=True):
        model = boolcp.BMP(5, boolean_modes=[2], atom_rank=rank, certify=False, random_state=0)
        path = model.fit(X).path_[1:]
        errors = [boolcp.metrics.rmse(W, clean) for W in path]
        row[1].plot(range(1, len(errors) + 1), errors, marker=marker, label=label)
        print(f"{name:9}  atom_rank={label:5}  lowest error {min(errors):.3f} with {np.argmin(errors) + 1} atoms")
    row[1].set(xlabel="number of atoms", ylabel="RMSE to the clean data", xticks=range(1, 6), ylim=(0, None))
    row[1].legend(title="atom_rank", frameon=False, ncols=2)

# %%
# Standing patterns: rank one has the lowest error, a free block fits noise in all its entries. Traveling waves: atoms
# of rank one need several to build one wave, and each of them repeats the same bits; a higher rank has a lower error.
#
# Rules of thumb. Start with rank one: its atoms are the easiest to read, and unique under mild conditions. If several
# atoms share the same bits, the pattern has a higher rank: try 2 to 4. Blocks (``"block"``) are what the paper's
# Algorithm 2 prints.
#
# **Try next:** noise of 0.3 in place of 1: a free block then costs little.
