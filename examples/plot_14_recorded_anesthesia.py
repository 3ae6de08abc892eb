"""
Recorded data: the monkey cortex under propofol
===============================================

Power spectra of 128 ECoG electrodes while a monkey is awake, under propofol, and recovering. Which electrodes change
together? The spectra are those of NeuroTycho's anesthesia task (Yanagawa et al. 2013) as computed by the Voytek lab.
They are not part of the library: to run this example, let the environment variable ``BOOLCP_DATA`` name the folder that
holds them.
"""

# %%
# Channel x frequency x state, as logarithm and minus the mean over the states, so that what differs between states is
# left. Positions and areas of the electrodes come from a table.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr

import boolcp

folder = Path(os.environ["BOOLCP_DATA"])
states = ["EyesOpen", "EyesClosed", "Anes", "RecEyesClosed", "RecEyesOpen"]
spectra = [np.load(folder / "spectralca_nt" / f"nt_lfpca{n}_{state}.npz")["psd"] for n, state in enumerate(states)]
electrodes = pd.read_csv(folder / "neurotycho_maps" / "electrodes_Chibi.csv")
X = xr.DataArray(
    np.log10(np.stack(spectra, axis=2)[:, 1:]),
    coords={
        "channel": np.arange(1, 129),
        "frequency": ("frequency", np.arange(1, 200), {"units": "Hz"}),
        "state": ["eyes open", "eyes closed", "propofol", "recovery closed", "recovery open"],
        "x": ("channel", electrodes["x_px"]),
        "y": ("channel", -electrodes["y_px"]),
        "area": ("channel", electrodes["area8"].to_numpy(str)),
    },
    dims=("channel", "frequency", "state"),
    name="log10 power",
).drop_sel(channel=63)  # broken in the source
X = X - X.mean("state")
print(dict(X.sizes))

# %%
# Two atoms, Boolean in space: a set of electrodes, and what the spectra of these do in each state. The real
# part, frequency x state, is a sum of two products.

W = boolcp.decompose(X, n_atoms=2, boolean_modes=["channel"], atom_rank=2, random_state=0)
print(W.summary())

# %%
# Where (on is yellow), and what. Red: more power than on average over the states.

figure, axes = plt.subplots(2, 2, figsize=(10, 6.4), layout="constrained", width_ratios=(1, 1.3))
for k, row in enumerate(axes):
    boolcp.plotting.plot_boolean(W, k, ax=row[0])
    block = W.weights[k] * W.atoms[k].dense_block()
    limit = np.abs(block).max()
    image = row[1].pcolormesh(X["frequency"], range(5), block.T, cmap="RdBu_r", vmin=-limit, vmax=limit)
    row[1].set_yticks(range(5), X["state"].values)
    row[1].set(xlabel="frequency (Hz)", title=f"atom {k}")
    figure.colorbar(image, ax=row[1], label="change of log10 power")

# %%
# The areas of the electrodes: medial and lateral prefrontal (MP, LP), premotor, motor and somatosensory (PM, MS),
# parietal and temporal (PC, TC), higher and lower visual cortex (HV, LV).

areas = ["MP", "LP", "PM", "MS", "PC", "TC", "HV", "LV"]
for k, atom in enumerate(W.atoms):
    counts = [
        f"{area} {int(atom.z[X['area'].values == area].sum())}/{(X['area'].values == area).sum()}" for area in areas
    ]
    print(f"atom {k}:", ", ".join(counts))

# %%
# One monkey, one session: a picture of these data, no result on anesthesia.
#
# **Try next:** ``boolcp.replication(X, 2, mode="frequency", boolean_modes=["channel"], atom_rank=2)``.
