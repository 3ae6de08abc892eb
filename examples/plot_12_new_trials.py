"""
New trials for a fitted model
=============================

Fit once, then ask of every new trial which atoms are on: ``transform`` solves one mode and keeps the others as they
are. It is a scikit-learn transformer, so that it can also be a step of a pipeline.
"""

# %%
# Every second trial of a simulated recording is for the fit. The others are new to the model.

import matplotlib.pyplot as plt
import numpy as np

import boolcp

recording = boolcp.datasets.simulate_recording(n_trials=100, random_state=1)
fitted, new = recording.X[:, :, ::2], recording.X[:, :, 1::2]
model = boolcp.BMP(n_atoms=3, random_state=0).fit(fitted)
print(model.decomposition_.summary())

# %%
# One column for each atom: zeros and ones where the atom is Boolean along trials, else its strength in each trial.

rows = model.transform(new, mode=2)
k = int(np.flatnonzero(model.decomposition_.boolean_mode == 2)[0])
truth = recording.truth.atoms[0].z[1::2]
print("evoked response found in the right new trials:", f"{np.mean(rows[:, k] == truth):.3f}")

figure, axes = plt.subplots(3, 1, figsize=(8, 4.2), layout="constrained", sharex=True, height_ratios=(1, 1, 4))
trials = np.arange(1, 100, 2)
axes[0].imshow(truth[None], aspect="auto", cmap="cividis", extent=(0, 100, 0, 1))
axes[0].set(yticks=[], title="evoked response, simulated: yellow in the trials where it is on")
axes[1].imshow(rows[:, k][None], aspect="auto", cmap="cividis", extent=(0, 100, 0, 1))
axes[1].set(yticks=[], title="the same, by transform")
for j in range(3):
    if j != k:
        mode = ("channels", "time")[model.decomposition_.boolean_mode[j]]
        axes[2].plot(trials, rows[:, j], ".-", label=f"atom {j}, Boolean in {mode}")
axes[2].set(xlabel="trial (number)", ylabel="strength")
axes[2].legend(frameon=False, ncols=2, loc="lower right")

# %%
# How much of the new trials do the old patterns explain? As much as of those that were fitted: a fit of noise
# would not carry over.

for name, part in (("fitted", fitted), ("new", new)):
    estimate = model.inverse_transform(model.transform(part, mode=2), mode=2)
    print(f"{name:6} trials: {100 * (1 - np.sum((part - estimate) ** 2) / np.sum(part**2)):.1f} % explained")

# %%
# **Try next:** single trials, ``model.transform(new[:, :, :1], mode=2)``; entries missing in the new trials (NaN).
