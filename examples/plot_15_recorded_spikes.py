"""
Recorded data: spikes of the motor cortex
=========================================

30 units in the motor cortex of a rat that taps a lever twice (data of A. Dhawale and B. Ölveczky, distributed with
affinewarp; Williams et al., Neuron 2020). From a list of spikes to a tensor, and to sets of trials in which the units
fire in a common way. The data are not part of the library: to run this example, let the environment
variable ``BOOLCP_DATA`` name the folder that holds them.
"""

# %%
# ``count_events`` bins a list of events: unit x time x trial. Every fourth trial, in bins of 50 ms. The root of a
# count has nearly the same noise at all rates; each unit gets the same weight.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import mannwhitneyu

import boolcp
from boolcp import prepare

with np.load(Path(os.environ["BOOLCP_DATA"]) / "affinewarp_spikes" / "motor_ctx_data.npz") as file:
    keep = file["trial_ids"] % 4 == 0
    units, times, trials = (file[name][keep] for name in ("neuron_ids", "spiketimes", "trial_ids"))
    interval = (file["tap2"] - file["tap1"])[::4]
counts = prepare.count_events(units, times, trials, bin_ms=50, start=0, stop=2000)
X = prepare.zscore(np.sqrt(counts), "unit")
print(dict(X.sizes), f"{int(counts.sum())} spikes")

# %%
# Three atoms that are Boolean in trials. What the units do in these trials is a sum of two products, unit x time.

W = boolcp.decompose(X, n_atoms=3, boolean_modes=["trial"], atom_rank=2, random_state=0)
print(W.summary())

# %%
# Single spikes are noise to such a model, so that it explains a small part of the variance. That part repeats:

figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained", sharey=True)
order = np.argsort((W.weights[0] * W.atoms[0].dense_block()).argmax(axis=1))
for k, ax in enumerate(axes):
    image = ax.pcolormesh(
        1000 * X["time"], range(30), W.weights[k] * W.atoms[k].dense_block()[order], cmap="RdBu_r", vmin=-1, vmax=1
    )
    ax.axvline(500, color="black", linestyle=":")
    ax.set(xlabel="time (ms)", title=f"atom {k}, on in {W.atoms[k].n_ones} of {len(interval)} trials")
axes[0].set_ylabel("unit (ordered by peak in atom 0)")
figure.colorbar(image, ax=axes, label="activity (s.d.)")

# %%
# What is special about these trials?
# -----------------------------------
# The rat takes 0.25 to 1.2 s from the first tap (dotted, above) to the second. The fit does not know it. Is an atom
# on in faster or slower trials?

figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained", sharey=True)
bins = np.arange(200, 1300, 100)
for k, ax in enumerate(axes):
    z = W.atoms[k].z
    test = mannwhitneyu(interval[z], interval[~z])
    print(
        f"atom {k}: median {np.median(interval[z]):.0f} ms when on, {np.median(interval[~z]):.0f} ms when off; "
        f"p = {test.pvalue:.1g} (Mann-Whitney)"
    )
    for on, color in ((True, "#E69F00"), (False, "#0072B2")):
        ax.hist(
            interval[z == on],
            bins,
            density=True,
            histtype="step",
            color=color,
            linewidth=1.8,
            label="on" if on else "off",
        )
    ax.set(xlabel="time between taps (ms)", title=f"atom {k}")
axes[0].set_ylabel("density of trials")
axes[0].legend(frameon=False)

# %%
# **Try next:** ``boolcp.replication`` in parts of the trials; ``boolean_modes=["time"]``, for phases of the
# movement.
