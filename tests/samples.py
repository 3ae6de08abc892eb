"""Random tensors, atoms and decompositions to test on; two fits compared bit by bit, a storage with an array."""

import hashlib
import json
import zipfile
from dataclasses import asdict, replace

import naive
import numpy as np
import pytest

from boolcp.datasets import make_boolean_cp
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.trust import Trust

KINDS = ("rank one", "rank two", "block", "mixed")


def random_atom(shape, mode, kind, rng):
    """Return an atom with a real part of norm one: 'rank one', 'rank two' or 'block'."""
    z = rng.random(shape[mode]) < 0.6
    z[rng.integers(len(z))] = True
    others = [d for n, d in enumerate(shape) if n != mode]
    if kind == "block":
        V = rng.standard_normal(others)
        return Atom(mode, z, block=V / np.linalg.norm(V))
    factors = [rng.standard_normal((d, 1 if kind == "rank one" else 2)) for d in others]
    V = Atom(mode, z, tuple(factors)).dense_block()
    return Atom(mode, z, (factors[0] / np.linalg.norm(V), *factors[1:]))


def random_decomposition(shape, kind, rng, n_atoms=None):
    """Return a decomposition with atoms along every mode; kind 'mixed' has all three kinds of atoms."""
    n_atoms = 2 * len(shape) + 1 if n_atoms is None else n_atoms
    kinds = KINDS[:3] if kind == "mixed" else (kind,)
    atoms = [random_atom(shape, k % len(shape), kinds[(k // 2) % len(kinds)], rng) for k in range(n_atoms)]
    return BooleanCP(shape, tuple(atoms), rng.standard_normal(n_atoms))


def as_tested(W, replication=None, p=None):
    """Return W as if all tests had been made: atoms come back in a share of the fits, and are on/off."""
    K = W.n_atoms
    known = {"on_off": np.full(K, 50.0), "groups": np.tile([0.0, 1.0, 0.2, 0.5], (K, 1)), "has_runs": np.zeros(K, bool)}
    known |= {"replication": np.ones(K) if replication is None else np.array(replication), "parts": "6 fits"}
    known |= {} if p is None else {"p_value": np.array(p), "p_adjusted": np.array(p)}
    return replace(W, trust=replace(W.trust or Trust(), **known))


def tensor(shape=(12, 14, 16), n_atoms=3, noise=0.3, seed=0, **how):
    """Return a noisy Boolean CP tensor."""
    return make_boolean_cp(shape, n_atoms, noise=noise, random_state=seed, **how).X


def with_gaps(X, share, seed=1):
    """Return a copy of X with NaN in a share of its entries."""
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


def listed(X, share=0.04, seed=1):
    """Return a share of the entries of X as a list of indices, values and shape."""
    indices = np.argwhere(np.random.default_rng(seed).random(X.shape) < share)
    return indices, X[tuple(indices.T)], X.shape


def on_disk(X, kind, folder, chunks):
    """Return X as an array that is not in memory: of dask, zarr, HDF5 with checksums, or a memory map."""
    if kind == "dask":
        return pytest.importorskip("dask.array").from_array(X, chunks=chunks)
    if kind == "zarr":
        return pytest.importorskip("zarr").create_array(folder / "X.zarr", data=X, chunks=chunks, overwrite=True)
    if kind == "hdf5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(folder / "X.h5", "w") as file:
            file.create_dataset("X", data=X, chunks=chunks, fletcher32=True)
        return h5py.File(folder / "X.h5")["X"]
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


def parts(W):
    """Return everything a decomposition is made of, as arrays."""
    found = [W.weights, W.data_norm2, W.data_inner, np.zeros(0) if W.data_gram is None else W.data_gram]
    for atom in W.atoms:
        real = atom.factors if atom.block is None else (atom.block,)
        found += [atom.mode, atom.z, *real, atom.certificate]
    return found


def assert_identical(a, b):
    """Two fitted models are equal in every bit, but for the seconds."""
    for V, W in zip((*a.path_, a.decomposition_), (*b.path_, b.decomposition_), strict=True):
        for x, y in zip(parts(V), parts(W), strict=True):
            np.testing.assert_array_equal(x, y)
    for x, y in zip(a.history_, b.history_, strict=True):
        np.testing.assert_equal(asdict(x) | {"seconds": 0}, asdict(y) | {"seconds": 0})
    assert (a.stop_reason_, a.n_iter_, a.converged_) == (b.stop_reason_, b.n_iter_, b.converged_)


def check_questions(data, X, rng, tolerance=1e-10):
    """Compare every answer of a storage, or of a decomposition, with that of the dense tensor X."""
    close = {"rtol": 0, "atol": tolerance * np.linalg.norm(X)}
    assert data.shape == X.shape
    np.testing.assert_allclose(data.to_array(), X, **close)
    for mode, d in enumerate(X.shape):
        rows = naive.unfold(X, mode)
        Z, blocks = rng.standard_normal((d, 3)), rng.standard_normal((2, *np.delete(X.shape, mode)))
        factors = [rng.standard_normal((size, 3)) for size in X.shape]
        np.testing.assert_allclose(data.gram(mode), rows @ rows.T, rtol=0, atol=tolerance * max(np.sum(X**2), 1e-3))
        np.testing.assert_allclose(data.contract(mode, Z), naive.contract(X, mode, Z), **close)
        np.testing.assert_allclose(data.project(mode, blocks), naive.project(X, mode, blocks), **close)
        np.testing.assert_allclose(data.mttkrp(factors, mode), naive.mttkrp(X, factors, mode), **close)


def forge(path, change):
    """Replace the header of a checkpoint by what a function makes of it, and sign the file again."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["checkpoint.json"] = json.dumps(change(json.loads(members["checkpoint.json"]))).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = b"0" * 64
    content = path.read_bytes()[:-64]
    path.write_bytes(content + hashlib.sha256(content).hexdigest().encode())
