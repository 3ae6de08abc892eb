"""
How many atoms?
===============

More atoms always fit the data better, so the fit itself cannot tell when to stop. Trials that a fit has not seen can:
patterns come back in them, noise does not.
"""

# %%
# A tensor with four patterns, and noise.

import matplotlib.pyplot as plt
import numpy as np

import boolcp

X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 4, noise=1.5, random_state=0)

# %%
# ``select_n_atoms`` fits up to seven atoms to all data and to random three quarters of the slices along the last mode
# (trials, say). The choice is the largest number whose atoms all come back in at least 60 % of these fits.

selection = boolcp.select_n_atoms(X, max_atoms=7, n_parts=8, random_state=0)
print(selection.summary())

# %%
# The error of the fit goes on falling past the four true patterns; the atoms that come back do not become more.

path = boolcp.BMP(7, certify=False, random_state=0).fit(X).path_
fitted = [np.sqrt(np.mean((X - W.to_tensor()) ** 2)) for W in path]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
n_back = [int((share >= 0.6).sum()) for share in selection.shares]
axes[0].plot(range(1, 8), n_back, "o-", color="#0072B2", label="come back")
axes[0].plot(range(1, 8), range(1, 8), ":", color="gray", label="all of them")
axes[0].set(xlabel="number of atoms", ylabel="atoms that come back")
axes[0].legend(frameon=False)
axes[1].plot(range(len(fitted)), fitted, "s--", color="gray", markersize=4, label="error of the fit")
axes[1].axhline(1.5, color="black", linewidth=0.8, linestyle=":", label="noise")
axes[1].set(xlabel="number of atoms", ylabel="root mean square residual")
axes[1].legend(frameon=False)

# %%
# Which atoms come back?
# ----------------------
# Ask for two atoms more than there are. ``replication`` says of each how often it came back, and ``boolcp.consensus``
# returns only those that did, where all atoms are Boolean along the mode of the parts.

found = boolcp.replication(X, 6, random_state=0)
print(found.summary())

figure, ax = plt.subplots(figsize=(5, 2.8), layout="constrained")
ax.bar(range(6), 100 * found.share, color="#0072B2")
ax.axhline(60, color="black", linewidth=0.8, linestyle=":")
ax.set(xlabel="atom", ylabel="came back (% of fits)", ylim=(0, 105), title="6 atoms asked for, 4 are real")

# %%
# **Try next:** ``scheme="halves"`` is harder, ``scheme="seeds"`` asks only whether the search is stable; ``n_jobs=4``
# uses four processes, with the same result.
