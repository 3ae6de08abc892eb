"""
How many atoms?
===============

More atoms always fit the data better, so the fit itself cannot tell when to stop. Entries that the fit has not seen
can.
"""

# %%
# A tensor with four patterns, and noise.

import matplotlib.pyplot as plt
import numpy as np

import boolcp

X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 4, noise=1.5, random_state=0)

# %%
# ``select_n_atoms`` hides a tenth of the entries, fits 1, 2, .. atoms to the others and looks at the error on the
# hidden ones; three times, with other entries hidden. The choice is the smallest number within one standard error of
# the lowest.

selection = boolcp.select_n_atoms(X, max_atoms=7, splits=3, random_state=0)
print(selection.summary())

# %%
# The error on the data that were fitted (gray) goes on falling; the held-out error turns.

path = boolcp.BMP(7, certify=False, random_state=0).fit(X).path_
fitted = [np.sqrt(np.mean((X - W.to_tensor()) ** 2)) for W in path]
figure, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
selection.plot(ax=ax)
ax.containers[0].set_label("held-out error")
ax.plot(range(len(fitted)), fitted, "s--", color="gray", markersize=4, label="error of the fit")
ax.axhline(1.5, color="black", linewidth=0.8, linestyle=":", label="noise")
ax.legend(frameon=False)
ax.set_ylim(1.35, None)

# %%
# A second opinion: do the atoms come back?
# -----------------------------------------
# Fit again on random halves of the last mode (trials, say). Real patterns come back, those made of noise do not. Ask
# for two atoms more than there are:

stability = boolcp.stability(X, 6, n_runs=2, scheme="halves", n_init=3, random_state=0)
print(stability.summary())

figure, ax = plt.subplots(figsize=(5, 2.8), layout="constrained")
ax.bar(range(6), 100 * stability.recurrence, color="#0072B2")
ax.set(xlabel="atom", ylabel="came back (% of fits)", ylim=(0, 105), title="6 atoms asked for, 4 are real")

# %%
# **Try next:** ``scheme="slabs"`` holds out whole trials; ``rule="min"`` takes the lowest error itself; ``n_jobs=4``
# uses four processes, with the same result.
