"""
What may I conclude?
====================

Ask for three atoms and you get three, even if the data hold one. Which of them, and which of their bits, can be
trusted?
"""

# %%
# A simulated recording has one pattern that is on in some trials; two others are graded over trials, and all lie under
# ongoing activity. ``assess`` tests each of three atoms, and the table ends with a verdict.

# sphinx_gallery_thumbnail_number = 1
import matplotlib.pyplot as plt
import numpy as np

import boolcp

recording = boolcp.datasets.simulate_recording(random_state=0)
W = boolcp.decompose(recording.X, 3, boolean_modes=[2], mean=True, random_state=0)
W = boolcp.assess(recording.X, W, random_state=0)
print(W.summary())

# %%
# *Replication*: fits to three quarters of the trials, and the share of them in which the pattern comes back. All three
# do, but only atom 0 is on/off: the others describe the graded patterns, whose bits should not be counted. The
# *certificate* is about the search: it says nothing about whether there is something to find.
#
# On and off, or graded?
# ----------------------
# Each fit leaves out a quarter of the trials, and its patterns have an amplitude there. If an atom is switched on and
# off, these amplitudes are two groups. If it is graded, or noise, they are one hump.

figure, axes = plt.subplots(1, W.n_atoms, figsize=(9, 2.8), layout="constrained")
for k, (ax, verdict) in enumerate(zip(axes, boolcp.verdicts(W), strict=True)):
    amplitude, z = W.trust.amplitude[k], W.atoms[k].z
    bins = np.linspace(np.nanmin(amplitude), np.nanmax(amplitude), 21)
    ax.hist([amplitude[z], amplitude[~z]], bins, stacked=True, color=["#E69F00", "#0072B2"], label=["on", "off"])
    what = "passes" if verdict.passes else f"comes back in {100 * W.trust.replication[k]:.0f} %"
    ax.set(title=f"atom {k}: {what}", xlabel="amplitude in unseen trials")
axes[0].set_ylabel("trials")
axes[0].legend(frameon=False)

# %%
# Which bits are sure?
# --------------------
# Each bit has a probability. Pale bits are in doubt.

figure, axes = plt.subplots(W.n_atoms, 1, figsize=(7, 4), layout="constrained")
for k, ax in enumerate(axes):
    boolcp.plotting.plot_boolean(W, k, ax=ax)
    ax.set_title(f"atom {k}, least confidence {W.bit_confidence()[k].min():.2f}", fontsize=8)

# %%
# Does it belong to a condition?
# ------------------------------
# The simulation knows in which trials its pattern is on. Say these were the trials of a task, with two labels wrong.
# The fit has not seen the labels, so a permutation test is fair.

task = next(atom.z for atom in recording.truth.atoms if atom.mode == 2).copy()
task[[3, 40]] = ~task[[3, 40]]
test = boolcp.compare_conditions(W, np.where(task, "task", "rest"), mode=2)
print(test.summary())

# %%
# Pure noise
# ----------
# Three atoms of nothing: none comes back.

noise = np.random.default_rng(0).standard_normal((20, 25, 30))
print(boolcp.assess(noise, boolcp.decompose(noise, 3, random_state=0), random_state=0).summary())

# %%
# **In short:** read atoms that pass, and the bits that are sure. Test what you say about conditions. An atom that fails
# is not wrong, but needs another argument.
#
# **Try next:** ``scheme="halves"``; ``noise="separable"`` in ``decompose``; ``blocks=`` for sessions.
