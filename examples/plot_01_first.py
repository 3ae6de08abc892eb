"""
A first decomposition
=====================

A recording is a block of numbers: channel x time x trial. We look for *atoms*: patterns that are exactly on or off
along one of these modes and real along the others. Here the recording is simulated, so we know what there is to find.
"""

# %%
# The recording
# -------------
# 32 electrodes on a grid, 200 samples around a stimulus, 60 trials. Three patterns lie under ongoing activity as strong
# as they are: an evoked response that comes in some trials only, a burst on some electrodes only, and a shift that is
# there only while the stimulus is shown.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import xarray as xr

import boolcp

recording = boolcp.datasets.simulate_recording(random_state=0)
print(recording)

# %%
# Names and coordinates are optional. Given once, they are on all axes and in all tables. The coordinates "x" and "y"
# along the channels tell where the electrodes lie.

X = xr.DataArray(
    recording.X,
    dims=recording.dims,
    coords={
        "time": ("time", recording.times, {"units": "s"}),
        "x": ("channel", recording.positions[:, 0]),
        "y": ("channel", recording.positions[:, 1]),
    },
    name="voltage",
)

figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained", sharey=True)
for trial, ax in zip((0, 1, 2), axes, strict=True):
    image = ax.pcolormesh(recording.times, range(32), X[:, :, trial], cmap="RdBu_r", vmin=-5, vmax=5)
    ax.set(title=f"trial {trial}", xlabel="time (s)")
axes[0].set_ylabel("channel (number)")
figure.colorbar(image, ax=axes, label="voltage\n(s.d. of the activity)")

# %%
# Three atoms
# -----------
# One line fits. The table says along which mode each atom is Boolean, in how many places it is on, how much of the
# variance it explains, and how near its bits are proved to be to the best possible (the certificate).

W = boolcp.decompose(X, n_atoms=3, random_state=0)
print(W.summary())

# %%
# One row of pictures for each atom. The Boolean mode is drawn as on and off, the real ones as they are.

W.plot()

# %%
# Was it right?
# -------------
# In a simulation this can be checked: no bit is wrong, and the error to the patterns themselves is a few
# percent of the ongoing activity.

print("share of wrong bits:", boolcp.metrics.hamming_error(W, recording.truth))
print("error to the patterns:", round(boolcp.metrics.rmse(W, recording.clean), 3))

# %%
# **Try next:** make the activity stronger (``noise=3``) and see when bits go wrong; allow only trials to be Boolean
# (``boolean_modes=["trial"]``) and see what becomes of the other two patterns.
