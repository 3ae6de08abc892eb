"""Larger than memory: equality across storages, a tensor on disk, scaling, faults, selection, a long Boolean mode.

`python benchmarks/bench_scale.py [equality models gaps disk disk_2gb scaling faults long selection] [--small]` writes
one table for each part. With `--resume FILE` rows that an earlier run has written to that file are not made again.
"""

import argparse
import json
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from common import table, write
from scale_child import child
from scale_data import difference, forget, reading_time, write_npy
from scale_faults import faults
from task_graphs import BANDWIDTH, LATENCY, OVERHEAD, Recorder, simulate, typical

import boolcp
from boolcp import memory
from boolcp.metrics import hamming_error
from boolcp.storage import lazy, sources

COMMAND = "python benchmarks/bench_scale.py"
PACKAGES = ("dask", "distributed", "zarr")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"any of {', '.join(PARTS)}")
    parser.add_argument("--small", action="store_true", help="a trial run that writes no tables")
    parser.add_argument("--folder", help="where the large files go; a temporary folder by default")
    parser.add_argument("--resume", type=Path, help="a file of rows that are done, of the same code, to go on with")
    options = parser.parse_args()
    DONE.path = options.resume
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for part in options.parts:
            with slabs_of(2_000_000 if options.small else sources.BLOCK):
                found = PARTS[part](Path(folder), options.small)
                for texts in [found] if isinstance(found, tuple) else found:  # row by row: a run may be interrupted
                    if options.small:
                        print("\n\n".join(texts))
                    else:
                        write(f"scale_{part}.md", f"{COMMAND} {part}", list(texts), *PACKAGES)


class Done:
    """The rows that are done, in a file if there is one, so that a run that was interrupted goes on."""

    path = None

    def rows(self, key, make):
        """Return the rows of a key, made if they are not known."""
        known = json.loads(self.path.read_text()) if self.path is not None and self.path.exists() else {}
        if key not in known:
            known[key] = make()
            if self.path is not None:
                self.path.write_text(json.dumps(known, indent=1))
        for row in known[key]:
            print(*row, flush=True)
        return known[key]


DONE = Done()


@contextmanager
def slabs_of(n_bytes):
    """Make slabs of so many bytes the usual ones within a `with` block."""
    before, sources.BLOCK = sources.BLOCK, n_bytes
    try:
        yield
    finally:
        sources.BLOCK = before


# 1. equality


@slabs_of(2_000_000)  # many slabs of this small tensor
def equality(folder, small):
    """Return the table of differences between storages and chunkings, with and without missing entries."""
    import dask
    import dask.array as da
    import zarr
    from distributed import Client, LocalCluster

    shape, n_atoms = ((60, 70, 80), 3) if small else ((120, 400, 100), 6)
    rows = []
    for missing in (0.0, 0.1):
        path = folder / f"equal{missing}.npy"
        write_npy(path, shape, n_atoms, missing=missing)
        X = np.load(path)
        reference = fit_default(X, n_atoms)

        def compare(name, X, reference=reference, missing=missing, n_atoms=n_atoms):
            model = fit_default(X, n_atoms)
            bits, reals = difference(model.decomposition_, reference.decomposition_)
            share = f"{missing:.0%}"
            rows.append([name, share, bits, f"{reals:.1e}", getattr(model, "n_passes_", "")])
            print(*rows[-1], flush=True)

        compare("memory map", np.load(path, mmap_mode="r"))
        compare("file of its own (.npy)", boolcp.open_tensor(path, lazy=True))
        array = zarr.create_array(folder / f"equal{missing}.zarr", shape=shape, dtype=float, chunks=(40, 100, 25))
        array[:] = X
        compare("zarr, chunks 40 x 100 x 25", array)
        chunkings = [shape, (17, *shape[1:]), (shape[0], 33, shape[2]), (50, 50, 50)]
        for chunks in chunkings:
            name = " x ".join(map(str, chunks))
            compare(f"dask threads, chunks {name}", da.from_array(X, chunks=chunks))
        with dask.config.set(scheduler="synchronous"):
            compare("dask synchronous, chunks 50 x 50 x 50", da.from_array(X, chunks=50))
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
            for chunks in chunkings[1:]:
                name = " x ".join(map(str, chunks))
                compare(f"2-worker cluster, chunks {name}", da.from_array(X, chunks=chunks))
    size = " x ".join(map(str, shape))
    text = (
        f"{size}, {n_atoms} atoms, refined, in slabs of 2 MB: each storage against the numpy array. Bits that differ, "
        "and the largest difference of weights and real factors relative to the largest entry of each."
    )
    head = ["storage", "missing", "bits", "reals", "passes"]
    return "# The same decomposition from every storage", text, table(head, rows)


MODELS = {
    "rank one": {"atom_rank": 1},
    "rank 2": {"atom_rank": 2},
    '"auto"': {},
    "background": {"background": "auto"},
    "background of rank 4": {"background": 4},
    "dense blocks beside a background": {"background": "auto", "atom_rank": None},
    "dense blocks": {"atom_rank": None},
    "`refine=False`": {"refine": False},
    "`as_published`": {"refine": False, "atom_rank": None, "criterion": "published"},
    "matrix": {},
    "10 % missing, rank one": {"atom_rank": 1, "missing": 0.1},
    "10 % missing, `refine=False`": {"refine": False, "missing": 0.1},
    "weights of two modes": {"atom_rank": 1},
    "weights of all entries": {"atom_rank": 1},
    "10 % missing, weights of two modes": {"atom_rank": 1, "missing": 0.1},
    "nonnegative parts": {"atom_rank": 1, "nonnegative": True},
    "10 % missing, nonnegative parts": {"atom_rank": 1, "nonnegative": True, "missing": 0.1},
    "Huber's loss": {"atom_rank": 1, "loss": "huber"},
    "10 % missing, Huber's loss": {"atom_rank": 1, "loss": "huber", "missing": 0.1},
    "counts": {"atom_rank": 1, "loss": "poisson"},
    "10 % missing, counts": {"atom_rank": 1, "loss": "poisson", "missing": 0.1},
}


@slabs_of(2_000_000)
def models(folder, small):
    """Return the table of differences between storages for every model."""
    import dask.array as da
    import zarr

    n_atoms = 3

    def rows_of(model, options):
        rows, shape = [], (20_000, 60) if model == "matrix" else (60, 200, 50)
        path = folder / f"model{len(list(folder.iterdir()))}.npy"
        missing = options.get("missing", 0.0)
        options = {name: value for name, value in options.items() if name != "missing"}
        write_npy(path, shape, n_atoms, noise=0.5, missing=missing, modes=[0] if model == "matrix" else None)
        X = np.load(path)
        if "background" in model:
            np.save(path, X := X + low_rank(shape))
        if "Huber" in model:
            np.save(path, X := X + artifacts(shape))
        if "nonnegative" in model:
            np.save(path, X := positive(shape, missing))
        if "counts" in model:
            np.save(path, X := counts(shape, missing))
        weights = {n: np.linspace(0.1, 2, shape[n]) for n in (0, 2)} if "weights" in model else None
        if "all entries" in model:
            weights = weights[0][:, None, None] * weights[2] * np.ones(shape)
        array = zarr.create_array(
            path.with_suffix(".zarr"), shape=shape, dtype=float, chunks=(30, 30, 25)[: len(shape)]
        )
        array[:] = X
        options = {"background": None, **options}
        expected = fit_default(X, n_atoms, weights=weights, **options).decomposition_
        lazy_X = da.from_array(X, chunks=tuple(d if d < max(shape) else d // 8 for d in shape))

        def compare(name, X, model=model, options=options, expected=expected, weights=weights):
            found = fit_default(X, 3, **options, max_memory="1GB", weights=weights)
            W = found.decomposition_
            found_atoms, atoms = (sorted(V.atoms, key=lambda a: (a.mode, a.z.tobytes())) for V in (W, expected))
            is_alike = [atom.mode for atom in found_atoms] == [atom.mode for atom in atoms]
            pairs = zip(found_atoms, atoms, strict=True) if is_alike else ()
            bits = sum(int(np.sum(a.z != b.z)) for a, b in pairs) if is_alike else "other modes"
            Y = expected.to_tensor()
            if expected.background is not None and W.background is not None:
                beside = np.abs(W.background.to_tensor() - expected.background.to_tensor()).max()
                name += f" (background {beside / np.abs(expected.background.to_tensor()).max():.1e})"
            rows.append(
                [model, name, bits, f"{np.abs(W.to_tensor() - Y).max() / np.abs(Y).max():.1e}", found.n_passes_]
            )

        compare("file (.npy)", boolcp.open_tensor(path, lazy=True))
        compare("zarr", array)
        compare("dask threads", lazy_X)
        return rows

    rows = []
    for model, options in MODELS.items():
        rows += DONE.rows(f"models {model}", lambda model=model, options=options: rows_of(model, options))
    text = (
        "60 x 200 x 50 (the matrix: 20000 x 60, Boolean along its rows), 3 atoms, noise half as large as the signal "
        "of an atom, `background=None`, in slabs of 2 MB: each storage against the numpy array. Bits that differ, and "
        "the largest difference of entries of the estimate, relative to its largest entry. Dense blocks fit noise as "
        "well, more along some modes than others; the core has little of it, and may lead to other atoms. With a "
        "background, structure of rank 4 along the first mode is added, and the difference of backgrounds is given. "
        'Weights rise from 0.1 to 2; nonnegative parts and counts (`loss="poisson"`) have data with nonnegative '
        "factors, Huber's loss 1 % of entries with noise that is 60 times as large. Rank 2, gaps, weights and losses: "
        "sweeps end when one gains less than "
        "0.05 of the noise variance for each free parameter, which is most of the difference of entries. "
        "`refine=False` and `as_published` decide bits on the core, which has less noise."
    )
    more = (
        "What takes a dask array, here 100 x 300 x 50 (12 MB) with 3 atoms of rank one: its passes, and what happens "
        "when the available memory is 30 MB, less than three copies of the tensor. 0 passes: it is loaded."
    )
    last = table(OTHERS_HEAD, DONE.rows("models others", lambda: others(folder)))
    tables = table(["model", "storage", "bits", "entries", "passes"], rows), more, last
    return "# Every model from every storage", text, *tables


OTHERS_HEAD = ["call", "passes", "with 30 MB"]


def artifacts(shape):
    """Return large noise in one of a hundred entries, zero elsewhere."""
    rng = np.random.default_rng(2)
    return np.where(rng.random(shape) < 0.01, 30 * rng.standard_normal(shape), 0.0)


def positive(shape, missing):
    """Return a tensor of three atoms with nonnegative parts, Boolean along the second mode, with noise and gaps."""
    rng = np.random.default_rng(3)
    factors = [np.abs(rng.standard_normal((d, 3))) for d in shape]
    factors[1] = (factors[1] > 0.7).astype(float)
    X = np.einsum("ir,jr,kr->ijk", *factors) + 0.5 * rng.standard_normal(shape)
    X[rng.random(shape) < missing] = np.nan
    return X


def counts(shape, missing):
    """Return counts whose mean is a sum of three atoms with nonnegative parts, one along each mode, with gaps."""
    rng = np.random.default_rng(4)
    factors = [np.abs(rng.standard_normal((d, 3))) for d in shape]
    for mode, A in enumerate(factors):
        A[:, mode] = A[:, mode] > 0.7
    X = rng.poisson(np.einsum("ir,jr,kr->ijk", *factors)).astype(float)
    X[rng.random(shape) < missing] = np.nan
    return X


def low_rank(shape):
    """Return structure of rank 4 along the first mode, as large as the noise."""
    rng = np.random.default_rng(1)
    low = rng.standard_normal((shape[0], 4)) @ rng.standard_normal((4, int(np.prod(shape[1:])))) / 2
    return low.reshape(shape)


def others(folder):
    """Return rows of calls: passes over a dask array, and what they do without memory for it."""
    import dask.array as da

    write_npy(folder / "others.npy", (100, 300, 50), 3, noise=0.5)
    array = np.load(folder / "others.npy")
    X, alpha = da.from_array(array, chunks=(-1, 40, -1)), 0.9 * boolcp.alpha_max(array)
    counted = da.from_array(counts(array.shape, 0.0), chunks=X.chunks)
    options = {"random_state": 0, "atom_rank": 1, "background": None}
    model = boolcp.BMP(3, **options, max_memory="1GB").fit(X)
    calls = {
        "`BMP.fit`": lambda: boolcp.BMP(3, **options).fit(X),
        "`BMP.fit_path`": lambda: boolcp.BMP(3, **options).fit_path(X),
        "`BMP.transform`": lambda: model.transform(X),
        "`BMP.score`": lambda: model.score(X),
        '`BMP.fit`, `loss="huber"`': lambda: boolcp.BMP(3, **options, loss="huber").fit(X),
        "`BMP.fit`, `nonnegative=True`": lambda: boolcp.BMP(3, **options, nonnegative=True).fit(X),
        "`BMP.fit` with weights": lambda: boolcp.BMP(3, **options).fit(X, weights={0: np.arange(1.0, 101.0)}),
        '`BMP.fit`, `loss="poisson"`': lambda: boolcp.BMP(3, **options, loss="poisson").fit(counted),
        '`BMP.fit`, `loss="bernoulli"`': lambda: boolcp.BMP(3, **options, loss="bernoulli").fit(abs(X) > 1),
        "`select_n_atoms`, 2 splits": lambda: boolcp.select_n_atoms(X, 4, splits=2, **options),
        "`stability`, 2 halves": lambda: boolcp.stability(X, 3, n_runs=1, **options),
        "`significance`": lambda: boolcp.significance(X, 3, **options),
        "`AtomicNorm.fit`": lambda: boolcp.AtomicNorm(alpha, random_state=0).fit(X),
        "`baselines.CP.fit`": lambda: boolcp.baselines.CP(3, random_state=0).fit(X),
    }
    rows = []
    for name, call in calls.items():
        with timed_passes() as seconds:
            call()
        rows.append([name, len(seconds), without_memory(call)])
    return rows


def without_memory(call):
    """Return "the same", or "refused" if a call raises a MemoryError when the machine has 30 MB left."""
    before, memory.available_memory = memory.available_memory, lambda: 3 * 10**7
    try:
        call()
    except MemoryError:
        return "refused"
    finally:
        memory.available_memory = before
    return "the same"


def fit_default(X, n_atoms, weights=None, **options):
    return boolcp.BMP(n_atoms, random_state=0, **options).fit(X, weights=weights)


@slabs_of(2_000_000)
def gaps(folder, small):
    """Return the table of passes where entries are missing in several ways."""
    import dask.array as da

    shape, n_atoms, rows = (60, 200, 50), 4, []
    for seed in range(1 if small else 3):
        for name, (noise, shares) in GAPS.items():
            path = folder / "gaps.npy"
            write_npy(path, shape, n_atoms, noise=noise, seed=seed)
            X, rng = np.load(path), np.random.default_rng(seed)
            X[rng.random([1 if n in shares[1:] else d for n, d in enumerate(shape)]) < shares[0] + np.zeros(shape)] = (
                np.nan
            )
            options = {"atom_rank": 1, "certify": False}
            expected = fit_default(X, n_atoms, **options).decomposition_
            model = fit_default(da.from_array(X, chunks=(-1, 25, -1)), n_atoms, **options, max_memory="1GB")
            rows.append([name, seed, *difference(model.decomposition_, expected), model.n_passes_ or "loaded"])
            rows[-1][3] = f"{rows[-1][3]:.1e}"
            print(*rows[-1], flush=True)
    text = (
        f"{' x '.join(map(str, shape))}, {n_atoms} atoms of rank one, without certificates, in slabs of 2 MB, against "
        "the numpy array: bits that differ, and the largest difference of weights and real factors relative to the "
        "largest entry of each. Noise: as large as the signal of an atom, unless it is none."
    )
    return "# Passes where entries are missing", text, table(["missing", "seed", "bits", "reals", "passes"], rows)


GAPS = {  # name: (noise, (share, modes along which whole fibers are missing))
    "10 % at random": (1.0, (0.1,)),
    "50 % at random": (1.0, (0.5,)),
    "10 % of all fibers along mode 1": (1.0, (0.1, 1)),
    "30 % of all fibers along mode 1": (1.0, (0.3, 1)),
    "10 % of all fibers along mode 2": (1.0, (0.1, 2)),
    "10 % at random, no noise": (0.0, (0.1,)),
    "50 % at random, no noise": (0.0, (0.5,)),
    "90 % at random": (1.0, (0.9,)),
}


# 2. a tensor on disk


FITS = {  # name: (share of missing entries, options)
    '"auto"': (0.0, {"certify": False}),
    "rank one": (0.0, {"atom_rank": 1, "certify": False}),
    "10 % missing": (0.1, {"certify": False}),
}


def disk(folder, small, side=1000):
    """Yield the table of fits of 10^9 numbers on disk within 2 GB, complete and with gaps, after each fit."""
    shape, n_atoms = ((200, 200, 200), 4) if small else ((side, side, side), 10)
    rows = []
    for name in FITS:
        rows += DONE.rows(f"disk {shape} {name}", lambda name=name: [disk_row(folder, shape, n_atoms, name)])
        yield "# A tensor on disk", disk_text(shape, n_atoms), table(["fit", "wrong bits", *COST], rows)


def disk_row(folder, shape, n_atoms, name):
    """Return the row of one fit; the file is written if the last fit had a different one."""
    missing, options = FITS[name]
    path, result = folder / f"disk{missing}.npy", folder / "disk.nc"
    if not path.exists():
        for other in folder.glob("disk*.npy"):
            other.unlink()
        write_npy(path, shape, n_atoms, missing=missing).save(folder / "truth.nc", overwrite=True)
    once = reading_time(path)
    forget(path)
    measured = child(path=str(path), n_atoms=n_atoms, max_memory="2GB", result=str(result), options=options)
    wrong = hamming_error(boolcp.load(result), boolcp.load(folder / "truth.nc"))
    return [name, f"{wrong:g}", *cost(measured, once)]


def disk_text(shape, n_atoms):
    """Return how the table of `disk` was made."""
    size = np.prod(shape, dtype=float) * 8
    return (
        f"{' x '.join(map(str, shape))} float64 ({size / 1e9:.2f} GB), noise as large as the signal of one atom, "
        f'{n_atoms} atoms, refined, without certificates, `max_memory="2GB"`. Resident memory does not include the '
        "pages of the file, which is read, not mapped. One cold reading is measured just before each fit. The machine "
        "was shared with other programs, which lengthens all seconds, those of the reading too; the processor seconds "
        "are those of the fit."
    )


COST = ["resident memory", "of which libraries", "passes", "s", "processor s", "s of one reading", "fit / reading"]


def cost(measured, once):
    """Return the cells of the columns COST."""
    return [
        f"{measured['peak'] / 1e9:.2f} GB",
        f"{measured['before'] / 1e9:.2f} GB",
        measured["passes"],
        f"{measured['seconds']:.0f}",
        f"{measured['busy']:.0f}",
        f"{once:.1f}",
        f"{measured['seconds'] / once:.1f}",
    ]


def selection(folder, small):
    """Return the table of the number of atoms chosen for 2 GB on disk, complete and with gaps."""
    shape, n_atoms = ((60, 80, 70) if small else (630, 630, 630)), 4
    path, rows, head = folder / "selection.npy", [], []
    for missing in (0.0, 0.1):
        write_npy(path, shape, n_atoms, missing=missing)
        once = reading_time(path)
        forget(path)
        measured = child(path=str(path), max_memory="2GB", n_splits=2, n_atoms=n_atoms + 2)
        errors = [f"{error:.5f}" for error in measured["errors"]]
        rows.append([f"{missing:.0%}", measured["chosen"], *errors, *cost(measured, once)])
        print(*rows[-1], flush=True)
        head = [f"error with {k}" for k in range(len(errors))]
    path.unlink()
    text = (
        f"{' x '.join(map(str, shape))} float64, {n_atoms} atoms, noise of variance one; `select_n_atoms` with at most "
        f'{n_atoms + 2} atoms, 2 splits with 10 % of the entries held out, `max_memory="2GB"`. Errors are means over '
        "the splits of the root mean square at the held-out entries. Passes: of both splits together."
    )
    return "# The number of atoms of a tensor on disk", text, table(["missing", "chosen", *head, *COST], rows)


# 3. scaling


def scaling(folder, small):
    """Return the tables of weak and strong scaling, measured on 1 and 2 workers and simulated on more."""
    size, n_atoms = (20 if small else 160), 5
    middle = 60 if small else 400
    families = [(5000, size, size), (2 * middle, middle, middle)]
    measured, recorded = [], None
    for kind, (first, *others) in [("weak", families[0]), ("weak", families[1]), ("strong", families[0])]:
        alone = None
        for n_workers in (1, 2):
            path = folder / "scaling.npy"
            shape = (first * n_workers if kind == "weak" else 2 * first, *others)
            write_npy(path, shape, n_atoms)
            row = measure_cluster(path, n_atoms, n_workers)
            alone = float(row[2]) if alone is None else alone
            share = alone / float(row[2]) / (1 if kind == "weak" else n_workers)
            row.insert(3, f"{share:.2f}")
            measured.append([kind, n_workers, " x ".join(map(str, shape)), *row])
            print(*measured[-1], flush=True)
            if recorded is None:
                recorded = record_passes(path, n_atoms)
            path.unlink()
    costs = typical(recorded[-2])  # a sweep: the pass before the last, which is for shares of variance
    rows, n_slabs = [], count_slabs(recorded[-2])
    alone, fixed = None, tiny_graph(folder, 256 * n_slabs)
    fixed_alone = simulate(fixed, 1, costs)[0]
    for n_workers in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        seconds, moved = simulate(tiny_graph(folder, n_workers * n_slabs), n_workers, costs)
        alone = seconds if alone is None else alone
        data, strong = 8.0 * 5000 * size**2 * n_workers, simulate(fixed, n_workers, costs)[0]
        shares = [f"{alone / seconds:.2f}", f"{fixed_alone / strong / n_workers:.2f}"]
        rows.append(
            [n_workers, f"{data / 1e9:.1f} GB", f"{seconds:.2f}", *shares, f"{moved:.2g}", f"{moved / data:.1e}"]
        )
    head = ["scaling", "workers", "tensor", "s", "passes", "s / pass", "efficiency", "bytes moved / pass"]
    head.append("of the tensor")
    texts = [
        f"**Measured.** A local cluster of workers with one thread each, {n_atoms} atoms; the longest mode (a "
        "recording's time) grows with the workers, or (strong) stays the same. Efficiency: seconds per pass on one "
        "worker over those here, and over the number of workers if the tensor stays the same; the "
        "rest of the fit is the search on the compressed tensor, by the one who called it. Both workers share the disk "
        "and the memory of one machine. The first mode of the second tensor is short enough for a Gram matrix, whose "
        "work per entry grows with it: twice the workers have more than twice the work there.",
        table(head, measured),
        "**Simulated.** The task graph of one sweep with as many slabs, each task with the time and size measured "
        f"above, transfers at {BANDWIDTH / 1e9:g} GB/s and {LATENCY * 1e3:g} ms, and {OVERHEAD * 1e3:g} ms of the "
        "scheduler for each task, one after another; every worker has a disk of its own.",
        table(
            ["workers", "tensor", "s / sweep", "weak", "strong, 256 times the first", "bytes moved", "/ tensor"], rows
        ),
    ]
    return "# Scaling", *texts


def measure_cluster(path, n_atoms, n_workers):
    """Return seconds of the fit, passes, seconds per pass and bytes moved per pass on a local cluster."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        X = boolcp.open_tensor(path, lazy=True)
        client.run(lambda: __import__("boolcp").BMP)  # imports are not timed
        start = time.perf_counter()
        with timed_passes() as seconds_of:
            model = fit_default(X, n_atoms)
        seconds = time.perf_counter() - start
        moved = sum(client.run(sent_bytes).values()) / model.n_passes_
    size = path.stat().st_size
    return [
        f"{seconds:.1f}",
        model.n_passes_,
        f"{sum(seconds_of) / model.n_passes_:.2f}",
        f"{moved:.2g}",
        f"{moved / size:.1e}",
    ]


@contextmanager
def timed_passes():
    """Yield a list that gets the seconds of each pass made within a `with` block."""
    seconds, run_pass = [], lazy.run_pass

    def timed(*args):
        start = time.perf_counter()
        answer = run_pass(*args)
        seconds.append(time.perf_counter() - start)
        return answer

    lazy.run_pass = timed
    try:
        yield seconds
    finally:
        lazy.run_pass = run_pass


def sent_bytes(dask_worker):
    """Return the bytes that a worker has sent, to other workers and to the one who asked."""
    return sum(entry["total"] for entry in dask_worker.transfer_outgoing_log)


def record_passes(path, n_atoms):
    """Return the task graphs of a fit, one for each pass, with the time and size of each task."""
    import dask
    import dask.array as da

    mapped = np.load(path, mmap_mode="r")
    rows = sources.BLOCK // mapped[0].nbytes
    X = da.from_array(sources.mapped_file(mapped), chunks=(rows, -1, -1), asarray=False)
    with Recorder() as recorder, dask.config.set(scheduler="synchronous"):
        fit_default(X, n_atoms)
    return recorder.graphs


def count_slabs(graph):
    return sum(task.kind == "answer" for task in graph.values())


def tiny_graph(folder, n_slabs):
    """Return the task graph of a sweep over a tiny tensor with so many slabs."""
    path, rows, side = folder / "tiny.npy", -(-144 // n_slabs), 72  # large enough not to be loaded
    write_npy(path, (n_slabs * rows, side, side), 1, noise=0.1)
    with slabs_of(8 * rows * side * side):
        graph = record_passes(path, 1)[-2]
    assert count_slabs(graph) == n_slabs
    return graph


# 5. a long mode


def long(folder, small):
    """Return the table of tensors whose Boolean mode has 100 000 and a million entries."""
    shapes = [(50, 10000, 10), (20, 20000, 20)] if small else [(200, 100000, 50), (100, 1000000, 10)]
    n_atoms = 3 if small else 5
    path, result = folder / "long.npy", folder / "long.nc"
    rows = []
    for shape in shapes:
        truth = write_npy(path, shape, n_atoms, modes=[1])
        once = min(reading_time(path) for _ in range(2))
        for place, options in {"disk": {"max_memory": "4GB"}}.items():
            forget(path)
            measured = child(path=str(path), n_atoms=n_atoms, modes=[1], result=str(result), **options)
            rows.append(
                [
                    " x ".join(map(str, shape)),
                    place,
                    f"{hamming_error(boolcp.load(result), truth):.1g}",
                    f"{measured['seconds']:.0f}",
                    f"{measured['busy']:.0f}",
                    f"{measured['seconds'] / once:.1f}",
                    f"{measured['peak'] / 1e9:.2f} GB",
                    measured["passes"],
                ]
            )
        path.unlink()
    text = (
        f'float64, {n_atoms} atoms, Boolean along the longest mode, `max_memory="4GB"` on disk. A Gram matrix of that '
        f"mode would have {' and '.join(f'{8 * shape[1] ** 2 / 1e9:.0f} GB' for shape in shapes)}."
    )
    head = ["tensor", "in", "wrong bits", "s", "processor s", "fit / reading once", "resident memory", "passes"]
    return "# Long Boolean modes", text, table(head, rows)


def disk_of_2_gb(folder, small):
    """Return the table of `disk` for a quarter of the numbers."""
    return disk(folder, small, side=630)


PARTS = {
    "equality": equality,
    "models": models,
    "gaps": gaps,
    "disk": disk,
    "disk_2gb": disk_of_2_gb,
    "scaling": scaling,
    "faults": faults,
    "long": long,
    "selection": selection,
}

if __name__ == "__main__":
    main()
