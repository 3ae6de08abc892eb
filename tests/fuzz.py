"""Random fits against plain numpy, flipped bytes in files of all formats, and fits that are killed.

`make fuzz` runs all of it for at most half an hour and writes the counts to `benchmarks/results/fuzz.md`;
`tests/test_fuzz.py` runs a short version. `python tests/fuzz.py fits --first 1234 --count 1` repeats one case.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
SEED = 20261116

# Random fits


def draw_case(seed):
    """Return a random tensor, its mask or None, and parameters of a fit."""
    rng = np.random.default_rng([SEED, seed])
    order = int(rng.integers(2, 7))
    shape = tuple(rng.integers(1 if order > 2 else 2, (24, 12, 7, 5, 4)[order - 2] + 1, order).tolist())
    shape = shape if max(shape) > 1 else (2, *shape[1:])
    X = draw_layout(draw_values(shape, rng), rng)
    return X, draw_mask(X, rng), draw_parameters(shape, rng)


def draw_values(shape, rng):
    """Return noise, a noisy Boolean CP, counts, bits, rounded numbers or a constant, of some dtype and scale."""
    kind = rng.choice(["noise", "atoms", "counts", "bits", "rounded", "constant"], p=[0.2, 0.4, 0.1, 0.1, 0.15, 0.05])
    if kind == "noise":
        X = rng.standard_normal(shape)
    elif kind == "atoms":
        X = rng.choice([0.0, 0.1, 1.0]) * rng.standard_normal(shape)
        for _ in range(rng.integers(1, 4)):
            columns = [rng.standard_normal(d) for d in shape]
            mode = rng.integers(len(shape))
            columns[mode] = (rng.random(shape[mode]) < 0.5).astype(float)
            X = X + outer(columns)
    elif kind == "counts":
        return rng.poisson(rng.uniform(0.05, 4.0), shape).astype(rng.choice(["i4", "i8", "u1"]))
    elif kind == "bits":
        return rng.random(shape) < rng.uniform(0.1, 0.9)
    else:
        X = np.round(rng.standard_normal(shape)) if kind == "rounded" else np.full(shape, 3.0)
    X = X * 10.0 ** rng.choice([0, 0, 0, -8, 8])
    return X.astype("f4") if rng.random() < 0.2 else X


def draw_layout(X, rng):
    """Return the same numbers in C order, Fortran order, another order of the axes, with gaps, or read-only."""
    kind = rng.integers(5)
    if kind == 1:
        X = np.asfortranarray(X)
    elif kind == 2:
        order = rng.permutation(X.ndim)
        X = np.ascontiguousarray(X.transpose(order)).transpose(np.argsort(order))
    elif kind == 3:
        wide = np.zeros((*X.shape[:-1], 2 * X.shape[-1]), dtype=X.dtype)
        wide[..., ::2] = X
        X = wide[..., ::2]
    else:
        X.flags.writeable = False
    return X


def draw_mask(X, rng):
    """Return no mask, a random one, or one that hides a whole slice; at least one entry is observed."""
    kind = rng.integers(4)
    if kind < 2:
        return None
    mask = rng.random(X.shape) < rng.uniform(0.3, 0.98)
    if kind == 3:
        mode = int(rng.integers(X.ndim))
        np.moveaxis(mask, mode, 0)[int(rng.integers(X.shape[mode]))] = False
    mask.flat[0] = True
    return mask


def draw_parameters(shape, rng):
    """Return parameters of BMP."""
    modes = [n for n, d in enumerate(shape) if d > 1]
    rank = [1, 1, 1, 2, 3, None, "auto"][rng.integers(7)]
    return {
        "n_atoms": int(rng.integers(1, 6)),
        "atom_rank": rank,
        "criterion": str(rng.choice(["normalized", "normalized", "published"])),
        "refine": bool(rng.random() < 0.8) or rank == "auto",
        "compression": bool(rng.random() < 0.7),
        "boolean_modes": None if rng.random() < 0.6 else sorted(rng.permutation(modes)[: rng.integers(1, 4)].tolist()),
        "n_init": int(rng.integers(1, 6)),
        "random_state": int(rng.integers(1000)),
    }


def outer(columns):
    X = np.ones(())
    for column in columns:
        X = np.multiply.outer(X, column)
    return X


def check_fit(seed):
    """Fit a random case and compare what the result says with plain numpy; AssertionError if they differ."""
    from boolcp import BMP

    X, mask, parameters = draw_case(seed)
    before, mask_before = X.copy(), None if mask is None else mask.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        model = BMP(**parameters).fit(X, mask=mask)
        W = model.decomposition_
        text = W.summary()
    assert np.array_equal(X, before) and (mask is None or np.array_equal(mask, mask_before)), "input was changed"
    assert str(W.n_atoms) in text and W.n_atoms <= parameters["n_atoms"]
    check_atoms(W, parameters)
    check_numbers(W, X, np.ones(X.shape, dtype=bool) if mask is None else mask, parameters)


def dense(W):
    """Return W and its atoms as arrays, slices without data as zeros."""
    atoms = []
    for atom in W.atoms:
        if atom.block is not None:
            V = atom.block
        else:
            V = sum(outer([column[:, r] for column in atom.factors]) for r in range(atom.rank))
        atoms.append(np.nan_to_num(np.moveaxis(np.multiply.outer(atom.z.astype(float), V), 0, atom.mode)))
    return np.einsum("k,k...->...", W.weights, np.array(atoms)), atoms


def check_atoms(W, parameters):
    modes = parameters["boolean_modes"]
    for atom in W.atoms:
        assert atom.z.dtype == bool and atom.z.any(), "bits"
        assert modes is None or atom.mode in modes, "mode"
        assert np.isnan(atom.certificate) or 0 <= atom.certificate <= 1, "certificate"
    assert np.isfinite(W.weights).all(), "weights"


def check_numbers(W, X, mask, parameters):
    """Compare norm, inner products, loss and shares with sums over observed entries, and certificates with all z."""
    if W.n_atoms == 0:
        return
    X = np.where(mask, X, 0).astype(float)
    total, atoms = dense(W)
    norm2, tol = float(np.sum(X**2)), 1e-4
    loss = float(np.sum(np.where(mask, X - total, 0.0) ** 2))
    assert np.isclose(W.data_norm2, norm2, rtol=1e-5), "norm"
    inner = np.array([np.sum(X * atom) for atom in atoms])
    assert np.allclose(W.data_inner, inner, atol=tol * np.sqrt(norm2 * np.max([np.sum(a**2) for a in atoms]))), "inner"
    assert abs(W.explained() - (1 - loss / norm2)) < tol, f"explained {W.explained()} instead of {1 - loss / norm2}"
    assert loss <= norm2 * (1 + tol), "worse than zero"
    if mask.all() and parameters["refine"]:
        check_certificates(W, X, total, atoms)


def check_certificates(W, X, total, atoms):
    for c, atom, M in zip(W.weights, W.atoms, atoms, strict=True):
        if np.isnan(atom.certificate) or len(atom.z) > 10:
            continue
        R = np.moveaxis(X - total + c * M, atom.mode, 0).reshape(len(atom.z), -1)
        every = np.array(list(itertools.product([0, 1], repeat=len(atom.z))))[1:]
        values = np.sum((every @ R) ** 2, axis=1) / every.sum(axis=1)
        share = np.sum((atom.z @ R) ** 2) / atom.z.sum() / max(values.max(), 1e-300)
        assert atom.certificate <= share + 1e-5 or values.max() <= 1e-9 * np.sum(X**2), (
            f"certificate {atom.certificate} of a share of {share}"
        )


# Flipped bytes


def write_files(folder):
    """Write one file of each format, a result and a checkpoint; return how to read each."""
    import h5py
    import scipy.io
    import xarray as xr

    import boolcp
    from boolcp.io import load, open_tensor, save

    X = boolcp.datasets.make_boolean_cp((6, 7, 8), 2, noise=0.5, random_state=0).X
    np.save(folder / "a.npy", X)
    np.savez(folder / "a.npz", X=X)
    np.savez_compressed(folder / "b.npz", X=X)
    scipy.io.savemat(folder / "a.mat", {"X": X})
    scipy.io.savemat(folder / "b.mat", {"X": X}, do_compression=True)
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("X", data=X, compression="gzip")
    xr.DataArray(X, dims=("channel", "time", "trial"), name="X").to_netcdf(folder / "a.nc")
    model = boolcp.BMP(2, random_state=0)
    save(model.fit(X, checkpoint=folder / "fit.checkpoint"), folder / "result.nc", data=X)
    readers = dict.fromkeys(("a.npy", "a.npz", "b.npz", "a.mat", "b.mat", "a.h5", "a.nc"), open_tensor)
    resume = boolcp.BMP.resume
    return readers | {"result.nc": load, "fit.checkpoint": lambda path: resume(path, X)}


def flip_bytes(first, count):
    """Read files with one to three flipped bytes; every one is read, or refused in one line."""
    from boolcp.io import FileError

    outcomes = {"read": 0, "refused": 0}
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        readers = write_files(folder)
        sound = {file: (folder / file).read_bytes() for file in readers}
        for seed in range(first, first + count):
            rng = np.random.default_rng([SEED, 1, seed])
            file = list(readers)[seed % len(readers)]
            content = bytearray(sound[file])
            for place in rng.integers(len(content), size=rng.integers(1, 4)):
                content[place] ^= 1 << int(rng.integers(8))
            (folder / file).write_bytes(content)
            try:
                readers[file](folder / file)
                outcomes["read"] += 1
            except FileError as error:
                assert "\n" not in str(error).strip(), f"{file}, seed {seed}: more than one line: {error}"
                outcomes["refused"] += 1
            except (ValueError, TypeError) as error:
                raise AssertionError(f"{file}, seed {seed}: {type(error).__name__}: {error}") from error
            (folder / file).write_bytes(sound[file])
    return outcomes


# All of it


def run_fits(first, count, seconds=np.inf):
    """Check cases until the time is over; return how many, and the seeds and reasons of those that failed."""
    end, failed = time.monotonic() + seconds, {}
    for seed in range(first, first + count):
        if time.monotonic() > end:
            return seed - first, failed
        try:
            check_fit(seed)
        except Exception as error:
            failed[seed] = f"{type(error).__name__}: {error}"
            print(f"fit {seed}: {failed[seed]}", flush=True)
    return count, failed


def in_children(what, count, size, seconds=np.inf):
    """Run cases in other processes, which may crash; return how many were run and what failed."""
    end, done, failed = time.monotonic() + seconds, 0, {}
    for first in range(0, count, size):
        if time.monotonic() > end:
            break
        command = [sys.executable, __file__, what, "--first", str(first), "--count", str(size)]
        child = subprocess.run(command, capture_output=True, text=True)
        done += size
        if child.returncode:
            failed[first] = f"exit {child.returncode}: {(child.stderr or child.stdout).strip().splitlines()[-1:]}"
            print(f"{what} from {first}: {failed[first]}", flush=True)
    return done, failed


def run_kills(count):
    """Kill fits at random moments; each ends with the bits of one that was left alone."""
    sys.path.insert(0, str(ROOT / "tests" / "fit"))
    from test_resuming import assert_killed_fits_go_on

    with tempfile.TemporaryDirectory() as name:
        assert_killed_fits_go_on(Path(name), count, 2.0)
    return count, {}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="?", default="all", choices=["all", "fits", "bytes"])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1800.0, help="time for all of it, about")
    args = parser.parse_args()
    if args.what == "fits":
        sys.exit(bool(run_fits(args.first, args.count, args.seconds)[1]))
    if args.what == "bytes":
        print(flip_bytes(args.first, args.count))
        return
    parts = {"kills": run_kills(100), "flipped bytes": in_children("bytes", 2000, 100, 0.3 * args.seconds)}
    parts["fits"] = run_fits(args.first, args.count, 0.6 * args.seconds)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from common import table, write

    rows = [[what, done, len(failed)] for what, (done, failed) in parts.items()]
    lines = [f"- {what} {seed}: {text}" for what, (_, failed) in parts.items() for seed, text in failed.items()]
    head = f"Seed {SEED}, {time.strftime('%Y-%m-%d')}."
    write("fuzz.md", "make fuzz", ["# Fuzzing", head, table(["what", "cases", "failed"], rows), "\n".join(lines)])
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
