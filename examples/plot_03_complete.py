"""
Fill in missing entries
=======================

Electrodes fail, trials are cut short, artifacts are thrown out. NaN means missing, and everything else stays as it
is: ``fit`` uses the observed entries, ``complete`` fills in the others.
"""

# %%
# A tensor with five patterns and some noise. Single entries are missing at random, and so are whole stretches of time
# on some channels, as they are when an electrode comes loose.

import matplotlib.pyplot as plt
import numpy as np

import boolcp

rng = np.random.default_rng(0)
full, clean, truth = boolcp.datasets.make_boolean_cp((30, 60, 40), 5, noise=0.3, random_state=0)
X = full.copy()
X[rng.random(X.shape) < 0.3] = np.nan
for channel, trial in zip(rng.integers(30, size=300), rng.integers(40, size=300), strict=True):
    start = rng.integers(40)
    X[channel, start : start + 20, trial] = np.nan
print(f"{100 * np.isnan(X).mean():.0f} % of the entries are missing")

# %%
# Observed entries come back untouched, the others from the decomposition.

model = boolcp.BMP(n_atoms=5, random_state=0).fit(X)
filled = model.complete(X)
missing = np.isnan(X)
print("observed entries unchanged:", np.array_equal(filled[~missing], X[~missing]))
print(f"error at the missing entries: {boolcp.metrics.rmse(filled[missing], clean[missing]):.3f} (noise 0.3)")

figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained", sharey=True)
colors = plt.get_cmap("RdBu_r").with_extremes(bad="lightgray")
for ax, values, title in zip(axes, (X, filled, clean), ("data, gaps in gray", "filled", "truth"), strict=True):
    image = ax.imshow(values[:, :, 0], cmap=colors, vmin=-4, vmax=4, aspect="auto", origin="lower")
    ax.set(title=title, xlabel="time (index)")
axes[0].set_ylabel("channel (index)")
figure.colorbar(image, ax=axes, label="value")

# %%
# How much may be missing?
# ------------------------
# As long as there are several observed entries for each number to be estimated, a lot. The noise then sets the error,
# which grows as observed entries become few.

shares = (0.2, 0.5, 0.7, 0.8, 0.9)
errors, wrong = [], []
for share in shares:
    gaps = full.copy()
    gaps[rng.random(gaps.shape) < share] = np.nan
    W = boolcp.decompose(gaps, 5, certify=False, random_state=0)
    errors.append(boolcp.metrics.rmse(W, clean))
    wrong.append(boolcp.metrics.hamming_error(W, truth))

figure, ax = plt.subplots(figsize=(4.5, 3), layout="constrained")
ax.semilogy([100 * share for share in shares], errors, "o-", color="#0072B2")
ax.axhline(0.3, color="gray", linestyle=":", label="noise of an entry")
ax.set(xlabel="missing entries (%)", ylabel="RMSE to the clean tensor")
ax.set_title(f"wrong bits: {100 * max(wrong):.1f} % at most")
ax.legend(frameon=False)

# %%
# With fewer than about ten observed entries for each number to be estimated the fit can break down
# (``benchmarks/results/completion_share.md``); here that would be 95 % missing. What cannot be filled at all: a
# channel without a single observed entry. It stays NaN, and a warning says so.
#
# **Try next:** ``mask=`` in place of NaN; ``boolcp complete gaps.npy -k 5 -o filled.npy`` from the command line.
