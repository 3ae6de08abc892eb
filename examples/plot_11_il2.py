"""
Real data: four modes and missing entries
=========================================

How strongly do eight kinds of immune cells respond to 13 variants of interleukin-2, at 12 doses and 4 times? The
tensor ligand x time x dose x cell has four modes, and 4 % of it were never measured.
"""

# %%
# The data come with TensorLy (Orcutt-Jahns et al. 2021), scaled to 0 .. 1. NaN is missing; nothing has to be done
# about it.

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from tensorly.datasets import load_IL2data
from tensorly.decomposition import parafac

import boolcp

table = load_IL2data()
X = xr.DataArray(
    np.asarray(table.tensor),
    coords={
        "ligand": table.ticks[0],
        "time": ("time", table.ticks[1], {"units": "h"}),
        "dose": ("dose", np.asarray(table.ticks[2]), {"units": "nM"}),
        "cell": table.ticks[3],
    },
    dims=("ligand", "time", "dose", "cell"),
    name="response",
)
print(dict(X.sizes), f"{100 * float(X.isnull().mean()):.1f} % missing")

# %%
# Two atoms that are Boolean along the cells: which kinds of cells respond, and how.

W = boolcp.decompose(X, n_atoms=2, boolean_modes=["cell"], random_state=0)
print(W.summary())
for k, atom in enumerate(W.atoms):
    print(f"atom {k} is on in", ", ".join(X["cell"].values[atom.z]))

# %%
# One atom is the response of all cells. The other is that of regulatory T cells alone (Treg), which carry more of the
# high-affinity receptor: they respond to low doses already, and to the variants made for them.

figure, axes = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained", width_ratios=(1, 1.5))
for k, (color, name) in enumerate((("#0072B2", "all cells"), ("#E69F00", "Treg only"))):
    ligand, time, dose = (A[:, 0] for A in W.atoms[k].factors)
    sign = np.sign(ligand.sum()), np.sign(dose.sum())
    axes[0].semilogx(X["dose"], sign[1] * dose / np.abs(dose).max(), "o-", color=color, label=name)
    places = np.arange(13) + 0.4 * k - 0.2
    axes[1].barh(places, sign[0] * ligand / np.abs(ligand).max(), 0.38, color=color)
axes[0].set(xlabel="dose (nM)", ylabel="relative response")
axes[0].legend(frameon=False)
axes[1].set_yticks(range(13), table.ticks[0])
axes[1].invert_yaxis()
axes[1].set(xlabel="relative response", title="ligand")

# %%
# How good is the filling in?
# ---------------------------
# Hide another 10 % of the measured entries, fit the rest, and look at the error on what was hidden. CP needs fewer
# atoms here: all modes of these data vary smoothly. It is the reading, "which cells", for which one pays a little.

rng = np.random.default_rng(0)
hidden = ~np.isnan(X.values) & (rng.random(X.shape) < 0.1)
shown = X.where(~hidden)
numbers = range(1, 4)
figure, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
for name, color, marker in (("CP", "#D55E00", "s"), ("boolcp", "#0072B2", "o")):
    errors = []
    for k in numbers:
        if name == "CP":
            seen = ~np.isnan(shown.values)
            W_k = parafac(np.where(seen, shown, 0.0), k, mask=seen, init="random", random_state=0, n_iter_max=1000)
        else:
            W_k = boolcp.decompose(shown, k, boolean_modes=["cell"], certify=False, random_state=0)
        errors.append(boolcp.metrics.rmse(np.asarray(W_k.to_tensor())[hidden], X.values[hidden]))
    ax.plot(numbers, errors, marker=marker, color=color, label=name)
ax.axhline(X.values[hidden].std(), color="gray", linestyle=":", label="mean value")
ax.set(xlabel="number of atoms", ylabel="RMSE at hidden entries", xticks=numbers, ylim=(0, None))
ax.legend(frameon=False)

# %%
# **Try next:** ``boolean_modes=["ligand"]``; ``boolcp.select_n_atoms(X)``.
