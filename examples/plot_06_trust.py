"""
What may I conclude?
====================

Ask for four atoms and you get four, even if the data hold three. Which of them, and which of their bits, can be
trusted?
"""

# %%
# A simulated recording has three patterns amid ongoing activity. We ask for four atoms, so one has to be made of the
# activity. ``assess`` tests each of them, and the table ends with a verdict.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np

import boolcp

recording = boolcp.datasets.simulate_recording(noise=1.5, random_state=0)
W = boolcp.decompose(recording.X, 4, random_state=0)
W = boolcp.assess(recording.X, W, n_runs=2, random_state=0)
print(W.summary())

# %%
# Atoms 0 to 2 are stable, significant and informative. Atom 3 is more than *independent* noise, but it comes back in
# none of the halves of the trials: it is made of the ongoing activity, in which neighbors are alike. The certificate
# is about 90 % for all four: it says that the search was good, not that there is something to find.
#
# Does it come back?
# ------------------
# Fit random halves of the trials, each on its own. Bars are the share of fits in which each atom comes back, points its
# bits in these fits:

stability = boolcp.stability(recording.X, reference=W, n_runs=2, random_state=0)
boolcp.plotting.plot_stability(stability)

# %%
# Which bits are sure?
# --------------------
# Each bit has a probability, from the rise of the loss when it is flipped. Pale bits are in doubt: atom 3 has most.

figure, axes = plt.subplots(4, 1, figsize=(7, 5), layout="constrained")
for k, ax in enumerate(axes):
    boolcp.plotting.plot_boolean(W, k, ax=ax)
    ax.set_title(f"atom {k}, least confidence {W.bit_confidence()[k].min():.2f}", fontsize=8)

# %%
# Does it belong to a condition?
# ------------------------------
# The simulation knows in which trials its third pattern is on. Say these were the trials of a task, with two labels
# wrong. The fit has not seen the labels, so a permutation test is fair.

task = next(atom.z for atom in recording.truth.atoms if atom.mode == 2).copy()
task[[3, 40]] = ~task[[3, 40]]
test = boolcp.compare_conditions(W, np.where(task, "task", "rest"), mode=2)
print(test.summary())

# %%
# Pure noise
# ----------
# Four atoms of nothing: the summary says so, and does not speak of uniqueness.

noise = np.random.default_rng(0).standard_normal((20, 25, 30))
print(boolcp.decompose(noise, 4, random_state=0).summary())

# %%
# **In short:** read atoms whose verdict is *stable, significant, informative*, and the bits that are sure. Test
# what you say about conditions. An atom that fails is not wrong, but needs another argument.
#
# **Try next:** ``scheme="bootstrap"``; ``noise="poisson"`` for counts; ``blocks=`` for sessions.
