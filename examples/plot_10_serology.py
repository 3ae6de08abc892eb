"""
Real data: antibodies after COVID-19
====================================

438 blood samples, 6 antigens of the virus, 11 kinds of antibodies and receptors (sample x antigen x receptor). Which
samples share a profile? Boolean along the samples, the answer is a list of samples, not a score that needs a
threshold.
"""

# %%
# The data come with TensorLy, centered (measured by Zohar et al., Cell 2020; as a tensor by Tan et al., Molecular
# Systems Biology 2021). Each sample has a label: negative, mild, moderate, severe, deceased. The fit does not see it.

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from tensorly.datasets import load_covid19_serology

import boolcp

table = load_covid19_serology()
status = np.array(table.ticks[0], dtype=str)
X = xr.DataArray(
    np.asarray(table.tensor),
    coords={"sample": np.arange(len(status)), "antigen": table.ticks[1], "receptor": table.ticks[2]},
    dims=("sample", "antigen", "receptor"),
    name="binding",
)
print(dict(X.sizes))

# %%
# Two atoms, Boolean in samples, each with one profile over antigens and one over receptors.

W = boolcp.decompose(X, n_atoms=2, boolean_modes=["sample"], random_state=0)
print(W.summary())

# %%
# What the atoms are: one lowers the binding, the other raises it.

limit = max(np.abs(c * atom.dense_block()).max() for c, atom in zip(W.weights, W.atoms, strict=True))
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
for k, ax in enumerate(axes):
    image = W.weights[k] * W.atoms[k].dense_block()
    picture = ax.imshow(image, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    ax.set(title=f"atom {k}, on in {W.atoms[k].n_ones} samples", xlabel="receptor")
    ax.set_xticks(range(11), table.ticks[2], rotation=60, ha="right")
    ax.set_yticks(range(6), table.ticks[1])
axes[0].set_ylabel("antigen")
figure.colorbar(picture, ax=axes, label="change of binding")

# %%
# Who has them?
# -------------
# All negative samples have the low profile, nearly none the high one. Of the severe cases three in four have the high
# one, of those who died fewer. This describes the samples; it is no statement on causes, since samples were taken on
# different days of the disease.

groups = ["Negative", "Mild", "Moderate", "Severe", "Deceased"]
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for k, (color, name) in enumerate((("#0072B2", "atom 0 (low)"), ("#E69F00", "atom 1 (high)"))):
    shares = [100 * W.atoms[k].z[status == group].mean() for group in groups]
    print(name, dict(zip(groups, np.round(shares).astype(int).tolist(), strict=True)))
    ax.bar(np.arange(5) + 0.4 * k - 0.2, shares, 0.38, color=color, label=name)
ax.set_xticks(range(5), [f"{group}\n(n = {np.sum(status == group)})" for group in groups])
ax.set(xlabel="status", ylabel="on in (% of the samples)", ylim=(0, 118))
ax.legend(frameon=False, ncols=2, loc="upper right")

# %%
# Do they come back?
# ------------------
# The amplitude of each profile in samples that a fit has not seen. Two groups: on and off, not graded. *Comes in runs*
# is no surprise, as the table is sorted by group.

W = boolcp.assess(X, W, random_state=0)
for k, verdict in enumerate(boolcp.verdicts(W)):
    print(f"atom {k}: {verdict.text}")
figure, axes = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained", sharey=True)
for k, ax in enumerate(axes):
    amplitude, z = W.trust.amplitude[k], W.atoms[k].z
    ax.hist([amplitude[z], amplitude[~z]], 30, stacked=True, color=["#E69F00", "#0072B2"], label=["on", "off"])
    ax.set(title=f"atom {k}", xlabel="amplitude in unseen samples")
axes[0].set_ylabel("samples")
axes[0].legend(frameon=False)

# %%
# **Try next:** three atoms; ``scheme="halves"``; ``boolean_modes=["receptor"]``: which receptors go together?
