"""
Data larger than memory
=======================

A recording of hours does not fit into memory. ``BMP.fit`` also takes arrays that are read piece by piece: dask, zarr,
HDF5, memory maps. It reads them a few times from start to end and gives the same atoms. Here the file is small, so
that the two ways can be compared.
"""

# %%
# A file on disk
# --------------
# 24 channels, 12,000 samples and 20 trials in float32, written piece by piece as a recorder would. Two patterns: one
# on some channels, one in some trials.

import tempfile
from pathlib import Path

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np

import boolcp

rng = np.random.default_rng(0)
n_channels, n_times, n_trials = 24, 12_000, 20
times = np.arange(n_times) / 1000
channels = rng.random(n_channels) < 0.4
trials = rng.random(n_trials) < 0.5
rhythm = np.sin(2 * np.pi * 0.8 * times)
wave = np.exp(-(((times - 6) / 1.5) ** 2))
strength, weights = rng.uniform(0.5, 1.5, n_trials), rng.standard_normal(n_channels)

path = Path(tempfile.mkdtemp()) / "recording.npy"
file = np.lib.format.open_memmap(path, "w+", np.float32, (n_channels, n_times, n_trials))
for start in range(0, n_times, 2000):
    part = slice(start, start + 2000)
    clean = np.einsum("i,j,k->ijk", channels, rhythm[part], strength) + np.einsum(
        "i,j,k->ijk", weights, wave[part], trials
    )
    file[:, part] = clean + rng.standard_normal(clean.shape)
file.flush()
print(f"{path.stat().st_size / 2**20:.0f} MiB")

# %%
# As a dask array
# ---------------
# Chunks are short along the longest mode and whole along the others. Nothing is read yet.

X = da.from_array(np.load(path, mmap_mode="r"), chunks=(-1, 1000, -1))
print(X)

# %%
# The fit is the same line. ``n_passes_`` counts how often the file was read; it does not depend on the number of
# atoms.

model = boolcp.BMP(n_atoms=2, random_state=0).fit(X)
W = model.decomposition_
print(W.summary())
print("passes over the file:", model.n_passes_)

# %%
# The same file in memory gives the same bits.

in_memory = boolcp.decompose(np.load(path), n_atoms=2, random_state=0)
print("same bits:", all(np.array_equal(a.z, b.z) for a, b in zip(W.atoms, in_memory.atoms, strict=True)))
by_mode = sorted(W.atoms, key=lambda atom: atom.mode)
for name, atom, truth in zip(("channels", "trials"), by_mode, (channels, trials), strict=True):
    print(f"wrong bits, {name}: {np.sum(atom.z != truth)} of {len(truth)}")

# %%
# The time courses of the two atoms, 12,000 samples each.

figure, axes = plt.subplots(2, 1, figsize=(8, 4), layout="constrained", sharex=True)
for ax, atom, truth, name in zip(
    axes, by_mode, (rhythm, wave), ("on in some channels", "on in some trials"), strict=True
):
    course = atom.factors[0 if atom.mode == 0 else 1][:, 0]
    course = course * np.sign(course @ truth) / np.linalg.norm(course) * np.linalg.norm(truth)
    ax.plot(times, course, color="#0072B2", linewidth=0.8, label="found")
    ax.plot(times, truth, color="black", linestyle="--", linewidth=1, label="simulated")
    ax.set(ylabel="relative size", title=name)
axes[1].set_xlabel("time (s)")
axes[1].legend(frameon=False, loc="upper right")

# %%
# ``max_memory="2GB"`` sets a limit: a fit that cannot keep it is refused, with what it needs and what to do.
#
# **Try next:** ``dask.distributed.Client()`` before the fit, for several processes or machines; a zarr or HDF5 file
# in place of the memory map, which needs no dask array around it.
