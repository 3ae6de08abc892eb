"""
A NeuroTycho recording, from files to Boolean maps
==================================================

NeuroTycho recordings come as a folder with one file for each channel and a list of conditions. This page goes from
such a folder to a picture of the cortex with electrodes on and off. The recording is simulated and written in that
format, so that nothing has to be downloaded; with a real one only the path changes.
"""

# %%
# The files
# ---------
# 64 electrodes in eight areas of a schematic cortex, at 1 kHz, in three conditions: rest, anesthesia, recovery.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import boolcp
from boolcp import prepare

simulation = boolcp.datasets.simulate_ecog(n_channels=64, n_trials=12, trial_ms=1500, random_state=0)
folder = Path(tempfile.mkdtemp()) / "recording"
simulation.write_neurotycho(folder)
print(sorted(path.name for path in folder.iterdir()))
print(sorted(path.name for path in (folder / "Session1").iterdir())[:4], "..")

# %%
# From files to a tensor
# ----------------------
# Read one condition, subtract the activity that all electrodes share, go from 1000 to 100 samples per second (the
# filter against aliasing is part of it), cut into trials. Every step is written down in the attributes and saved with
# the result.

tensors = {}
for condition, (label, _, _) in boolcp.datasets.ecog.CONDITIONS.items():
    X = boolcp.open_tensor(folder, condition=label)
    X = X.pipe(prepare.common_average).pipe(prepare.resample, 100).pipe(prepare.cut_trials, 1500)
    tensors[condition] = X
print(dict(X.sizes))
print(X.attrs["preparation"])

# %%
# Boolean maps
# ------------
# Three atoms in each condition. We look at the one that is Boolean in space: a rhythm that two areas share.
# Electrodes that are on are yellow.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for ax, (condition, X) in zip(axes, tensors.items(), strict=True):
    W = boolcp.decompose(X, n_atoms=3, random_state=0)
    k = int(np.flatnonzero(W.boolean_mode == 0)[0])
    boolcp.plotting.plot_boolean(W, k, ax=ax)
    truth = simulation.truth[condition].atoms[0].z
    n_wrong = int((W.atoms[k].z != truth).sum())
    areas = sorted(set(X["area"].values[W.atoms[k].z].tolist()))
    ax.set_title(f"{condition}: {', '.join(areas)}\n{n_wrong} of 64 bits wrong")
    print(f"{condition:10}  on in {W.atoms[k].n_ones} electrodes, areas {areas}")

# %%
# The time course of the same atom under the last condition, with its strength in each trial.

W.plot([k])

# %%
# The same by command::
#
#     boolcp fit recording --condition Anesthetized --reference average --resample 100 --bin-ms 1500 -k 3 -o result
#     boolcp report result
#
# **Try next:** a recording of your own; ``prepare.band_pass`` and ``prepare.envelope`` for the power in a band
# instead of the voltage.
