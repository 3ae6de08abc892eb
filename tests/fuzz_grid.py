"""Fits of all kinds, of data in all kinds of storage, with all kinds of damage: cases of tests/fuzz.py."""

import os
import tempfile
import warnings
from pathlib import Path

import dask
import fuzz
import numpy as np
from samples import assert_identical, on_disk

from boolcp import BMP
from boolcp.datasets import make_boolean_cp

ALONG = {"boolean_modes": [2]}
FITS = {
    "rank one": {},
    "rank two": {"atom_rank": 2},
    "blocks": {"atom_rank": "block"},
    "as published": {"atom_rank": "block", "refine": False},
    "nonnegative": {"nonnegative": True},
    "mean": {"mean": True} | ALONG,
    "noise": {"noise": "separable"} | ALONG,
    "neighbors": {"adjacency": {2: "chain"}} | ALONG,
    "huber": {"loss": "huber"},
    "poisson": {"loss": "poisson"},
    "bernoulli": {"loss": "bernoulli"},
}
STORAGES = ("array", "Fortran order", "float32", "memory map", "zarr", "hdf5", "dask")
ON_DISK = STORAGES[3:]
READ = ("rank one", "rank two", "huber")  # in passes; for other kinds of fit it is loaded
DAMAGE = ("none", "gaps", "weights", "stopped", "broken")


def check_cell(seed):
    """Fit a small tensor; what the result says is true, a stopped fit resumes, and broken data are refused."""
    name, storage, damage = fuzz.cell_of(seed, FITS, STORAGES, DAMAGE)
    rng = np.random.default_rng([fuzz.SEED, 5, seed])
    is_read = storage in ON_DISK and name in READ
    X, mask, weights = draw_tensor(name, damage, rng.integers(*((18, 22) if is_read else (4, 10)), 3), rng)
    parameters = {"n_atoms": int(rng.integers(1, 3)), "n_init": 2, "max_iter": 10, "random_state": 0} | FITS[name]
    parameters |= {"max_memory": 2 * X.nbytes - 1} if is_read else {}  # with more of it, it is loaded
    options = {name: given for name, given in (("mask", mask), ("weights", weights)) if given is not None}
    with tempfile.TemporaryDirectory() as here, dask.config.set(num_workers=1):
        data = store(X, storage, Path(here))
        if damage == "broken":
            storage = "array" if storage == "memory map" and not is_read else storage
            return assert_refused(parameters, data, storage, Path(here))
        try:
            model = fuzz.fit(data, parameters, **options)
        except (ValueError, MemoryError) as error:  # some fits need the data complete, or in memory
            assert "memory" in str(error) or "complete" in str(error), error
            return
        assert not is_read or model.n_passes_, "it was loaded"
        if damage == "stopped":
            assert_resumes(model, parameters, data, Path(here, "fit.npz"), rng)
    X = X.astype("f4").astype(float) if storage == "float32" else X
    if name != "noise":
        fuzz.check_result(model.decomposition_, X, fuzz.entry_weights(X.shape, mask, weights), parameters)


def draw_tensor(name, damage, shape, rng):
    """Return a noisy tensor that the kind of fit takes, a mask or None, and weights or None."""
    X = make_boolean_cp(shape, 2, noise=float(rng.choice([0.1, 1.0])), random_state=rng).X
    X = rng.poisson(np.abs(X)).astype(float) if name == "poisson" else X
    X = (X > 0).astype(float) if name == "bernoulli" else X
    mask = rng.random(shape) < 0.8 if damage == "gaps" else None
    return X, mask, rng.uniform(0.5, 2.0, (1, 1, shape[2])) if damage == "weights" else None


def store(X, storage, folder):
    """Return the tensor as it is stored."""
    in_memory = {"array": X, "Fortran order": np.asfortranarray(X), "float32": X.astype("f4")}
    return in_memory[storage] if storage in in_memory else on_disk(X, storage, folder, (3, *X.shape[1:]))


def assert_refused(parameters, data, storage, folder):
    """An entry is infinite; of files, a part is missing or damaged."""
    if storage == "hdf5":  # which reads zeros where a file has ended
        with (folder / "X.h5").open("r+b") as file:
            file.seek(data.id.get_chunk_info(0).byte_offset)
            file.write(b"broken")
    elif storage in ("memory map", "zarr"):
        path = next(path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "zarr.json")
        os.truncate(path, path.stat().st_size // 2)
    elif storage == "dask":
        data = data.map_blocks(lambda block: np.where(block == block.max(), np.inf, block), dtype=float)
    else:
        data = np.array(data)
        data[1, 2, 3] = np.inf
    try:
        fuzz.fit(data, parameters)
    except (ValueError, OSError, MemoryError):
        return
    raise AssertionError("broken data were fitted")


def assert_resumes(model, parameters, data, path, rng):
    """A fit that is stopped at a random step and resumed ends with the same bits."""
    left = iter(range(int(rng.integers(8)), -1, -1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        BMP(**parameters).fit(data, checkpoint=path, callback=lambda progress: next(left, 0) == 0)
        again = BMP(**parameters).fit(data, checkpoint=path)
    if not model.n_passes_:
        return assert_identical(again, model)
    again, model = again.decomposition_, model.decomposition_  # other passes round otherwise
    for a, b in zip(again.atoms, model.atoms, strict=True):
        assert a.mode == b.mode and np.array_equal(a.z, b.z), "other bits"
    np.testing.assert_allclose(again.weights, model.weights, rtol=1e-9)
