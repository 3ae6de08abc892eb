"""
How many atoms?
===============

More atoms always fit the data better, so the fit itself cannot tell when to stop. Trials that the fit has not seen
can.
"""

# %%
# A tensor with four patterns, and noise.

import matplotlib.pyplot as plt
import numpy as np

import boolcp

X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 4, noise=1.5, random_state=0)

# %%
# ``select_n_atoms`` fits 1, 2, .. atoms to halves of the data, eight times, and counts the atoms that come
# back. The choice is the largest number all of whose atoms do.

selection = boolcp.select_n_atoms(X, max_atoms=7, random_state=0)
print(selection.summary())

# %%
# Atoms that come back, and the error of the fit, which goes on falling.

path = boolcp.BMP(7, certify=False, random_state=0).fit(X).path_
fitted = [np.sqrt(np.mean((X - W.to_tensor()) ** 2)) for W in path]
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.plot(range(1, 8), selection.n_replicated, "o-", label="atoms that come back")
left.axvline(selection.n_atoms, color="black", linewidth=0.8, linestyle=":", label="chosen")
left.set_xlabel("number of atoms")
left.legend(frameon=False)
right.plot(range(len(fitted)), fitted, "s--", color="gray", markersize=4, label="error of the fit")
right.axhline(1.5, color="black", linewidth=0.8, linestyle=":", label="noise")
right.set_xlabel("number of atoms")
right.legend(frameon=False)

# %%
# Which of them?
# --------------
# Ask for two atoms more than there are: real patterns come back, those made of noise do not.

found = boolcp.replication(X, 6, n_init=3, random_state=0)
print(found.summary())

# %%
# **Try next:** ``boolcp.consensus(X, 6)``, which returns only the atoms that come back; ``mode=`` for parts along
# another mode; ``n_jobs=4`` for four processes, with the same result.
