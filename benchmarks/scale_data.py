"""Large tensors on disk with known atoms, written slab by slab."""

import os
import time
from pathlib import Path

import numpy as np

from boolcp import Atom, BooleanCP

BLOCK = 2**23  # entries written or read at a time


def make_truth(shape, n_atoms, rng, modes=None):
    """Return a BooleanCP of rank-one atoms, each on in half of its Boolean mode, all of a size near the noise's."""
    modes = range(len(shape)) if modes is None else modes
    atoms = []
    for k in range(n_atoms):
        mode = list(modes)[k % len(list(modes))]
        z = rng.random(shape[mode]) < 0.5
        factors = [rng.standard_normal((d, 1)) for n, d in enumerate(shape) if n != mode]
        atoms.append(Atom(mode, z, factors=tuple(A / np.linalg.norm(A) for A in factors)))
    others = [np.prod(shape, dtype=float) / shape[atom.mode] for atom in atoms]
    return BooleanCP(shape, tuple(atoms), np.sqrt(others))


def write_npy(path, shape, n_atoms, *, seed=0, noise=1.0, missing=0.0, modes=None):
    """Write a noisy tensor as .npy and return its truth; nothing as large as the tensor is held in memory."""
    rng = np.random.default_rng(seed)
    truth = make_truth(shape, n_atoms, rng, modes)
    A = [np.asarray(B, dtype=float) for B in truth.factors]
    A[0] = A[0] * truth.weights
    rest = A[1]
    for B in A[2:]:
        rest = (rest[:, None, :] * B[None]).reshape(-1, n_atoms)
    step = max(1, BLOCK // len(rest))
    header = np.lib.format.header_data_from_array_1_0(np.empty(0)) | {"shape": tuple(shape)}
    with Path(path).open("wb") as file:
        np.lib.format.write_array_header_2_0(file, header)
        for start in range(0, shape[0], step):
            slab = A[0][start : start + step] @ rest.T
            slab += noise * rng.standard_normal(slab.shape)
            if missing:
                slab[rng.random(slab.shape) < missing] = np.nan
            file.write(np.ascontiguousarray(slab).data)
        file.flush()
        os.fsync(file.fileno())
    return truth


def forget(path):
    """Ask the system to drop the file from its cache, so that the next reading comes from the disk."""
    with Path(path).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def reading_time(path):
    """Return the seconds of reading a file once from the disk."""
    forget(path)
    start = time.perf_counter()
    buffer = bytearray(8 * BLOCK)
    with Path(path).open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start
