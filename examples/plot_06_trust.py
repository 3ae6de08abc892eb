"""
What may I conclude?
====================

Ask for three atoms and you get three, even if the data hold one. Which of them, and which of their bits, can be
trusted?
"""

# %%
# A pattern that is on in some of the trials, in noise that neighboring samples and all channels share. We ask for three
# atoms, so two have to be made of noise. ``noise="separable"`` tells the fit that neighbors are alike, and ``assess``
# tests each atom: the table ends with a verdict, and atoms that pass come first.

import matplotlib.pyplot as plt
import numpy as np

import boolcp

rng = np.random.default_rng(0)
on = rng.random(80) < 0.3
noise = rng.standard_normal((16, 40, 80)).cumsum(axis=1)
noise = noise - noise.mean(axis=1, keepdims=True) + 2 * rng.standard_normal((1, 40, 80))
pattern = np.multiply.outer(np.hanning(18)[1:-1], np.hanning(42)[1:-1])
X = noise + 6 * np.multiply.outer(pattern, on)
W = boolcp.decompose(X, 3, boolean_modes=[2], mean=True, noise="separable", random_state=0)
W = boolcp.assess(X, W, random_state=0)
print(W.summary())

# %%
# Does it come back?
# ------------------
# Each of eight fits leaves out a quarter of the trials. In which share of them does each atom come back?

print(boolcp.replication(X, W, random_state=0).summary())

# %%
# Is it on and off, or graded?
# ----------------------------
# How strong is the pattern in trials that a fit has not seen? Two groups: it is on and off.

boolcp.plotting.plot_on_off(W, 0)

# %%
# Which bits are sure?
# --------------------
# Each bit has a probability: for an atom that is on/off from its two groups. Pale bits are in doubt.

figure, axes = plt.subplots(W.n_atoms, 1, figsize=(7, 4), layout="constrained")
for k, ax in enumerate(axes):
    boolcp.plotting.plot_boolean(W, k, ax=ax)
    ax.set_title(f"atom {k}, least confidence {W.bit_confidence()[k].min():.2f}", fontsize=8)

# %%
# Does it belong to a condition?
# ------------------------------
# Say the pattern is on in the trials of a task, with two labels wrong. The fit has not seen the labels, so a
# permutation test is fair.

task = on.copy()
task[[3, 40]] = ~task[[3, 40]]
test = boolcp.compare_conditions(W, np.where(task, "task", "rest"), mode=2)
print(test.summary())

# %%
# Pure noise
# ----------
# Three atoms of the same noise without a pattern: none passes, and the summary says what to try.

nothing = boolcp.decompose(noise, 3, boolean_modes=[2], mean=True, noise="separable", random_state=0)
print(boolcp.assess(noise, nothing, random_state=0).summary())

# %%
# **In short:** read atoms that pass, and the bits that are sure. Test what you say about conditions. An atom that
# fails is not wrong, but needs another argument.
#
# **Try next:** ``noise="white"``, which finds noise; ``scheme="halves"``; ``blocks=`` for sessions.
