"""Larger than memory: a tensor on disk, a long Boolean mode.

`python benchmarks/bench_scale.py [disk long] [--small]` writes one table for each part. Each fit of a large
file runs in a process of its own, whose memory is its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import table, write
from scale_data import forget, reading_time, write_npy

import boolcp
from boolcp.metrics import hamming_error

COMMAND = "python benchmarks/bench_scale.py"
PACKAGES = ("dask", "distributed", "zarr")
COST = ["wrong bits", "resident memory", "of which libraries", "passes", "s", "processor s", "s of one reading"]
COST += ["fit / reading"]


def run_child(job):
    """Fit as the job says; print passes, seconds and peak memory."""
    X, before = boolcp.open_tensor(job["path"], lazy=True), peak_memory()
    model = boolcp.BMP(job["n_atoms"], boolean_modes=job["modes"], max_memory=job["max_memory"], random_state=0)
    start, busy = time.perf_counter(), time.process_time()
    model.fit(X)
    measured = {"seconds": time.perf_counter() - start, "busy": time.process_time() - busy}
    measured |= {"before": before, "peak": peak_memory(), "passes": model.n_passes_}
    model.decomposition_.save(job["result"], overwrite=True)
    print(json.dumps(measured))


def peak_memory():
    """Return the largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(path, truth, *, n_atoms, max_memory, modes=None):
    """Return the cells of the columns COST of a fit in a fresh process."""
    once, result = reading_time(path), path.with_suffix(".nc")
    forget(path)
    job = {"path": str(path), "n_atoms": n_atoms, "max_memory": max_memory, "modes": modes, "result": str(result)}
    done = subprocess.run([sys.executable, __file__, "--child", json.dumps(job)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    sizes = [f"{found[name] / 1e9:.2f} GB" for name in ("peak", "before")]
    times = f"{found['seconds']:.0f}", f"{found['busy']:.0f}", f"{once:.1f}", f"{found['seconds'] / once:.1f}"
    return [f"{hamming_error(boolcp.load(result), truth):g}", *sizes, found["passes"], *times]


def disk(folder, small):
    """Return the table of fits of 10^9 numbers on disk within 2 GB, complete and with gaps."""
    shape, n_atoms = ((200, 200, 200), 4) if small else ((1000, 1000, 1000), 10)
    rows, path = [], folder / "disk.npy"
    for name, missing in (("complete", 0.0), ("10 % missing", 0.1)):
        truth = write_npy(path, shape, n_atoms, missing=missing)
        rows.append([name, *measure(path, truth, n_atoms=n_atoms, max_memory="2GB")])
    text = (
        f"{' x '.join(map(str, shape))} float64 ({np.prod(shape, dtype=float) * 8 / 1e9:.2f} GB), noise as large as "
        f'the signal of one atom, {n_atoms} atoms of rank one, refined, `max_memory="2GB"`. Resident memory does not '
        "include the pages of the file, which is read, not mapped. One cold reading is measured just before each fit."
    )
    return "# A tensor on disk", text, table(["fit", *COST], rows)


def long(folder, small):
    """Return the table of tensors whose Boolean mode has 100 000 and a million entries."""
    shapes = [(50, 10000, 10), (20, 20000, 20)] if small else [(200, 100000, 50), (100, 1000000, 10)]
    n_atoms, path, rows = 3 if small else 5, folder / "long.npy", []
    for shape in shapes:
        truth = write_npy(path, shape, n_atoms, modes=[1])
        cells = measure(path, truth, n_atoms=n_atoms, max_memory="4GB", modes=[1])
        rows.append([" x ".join(map(str, shape)), *cells])
    text = (
        f'float64, {n_atoms} atoms, Boolean along the longest mode, `max_memory="4GB"`. A Gram matrix of that '
        f"mode would have {' and '.join(f'{8 * shape[1] ** 2 / 1e9:.0f} GB' for shape in shapes)}."
    )
    return "# Long Boolean modes", text, table(["tensor", *COST], rows)


PARTS = {"disk": disk, "long": long}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"any of {', '.join(PARTS)}")
    parser.add_argument("--small", action="store_true", help="a trial run that writes no tables")
    parser.add_argument("--folder", help="where the large files go; a temporary folder by default")
    parser.add_argument("--child", type=json.loads, help="a fit in this process, used by the script itself")
    options = parser.parse_args()
    if options.child:
        run_child(options.child)
        return
    for part in options.parts:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            texts = PARTS[part](Path(folder), options.small)
        if options.small:
            print("\n\n".join(texts))
        else:
            write(f"scale_{part}.md", f"{COMMAND} {part}", list(texts), *PACKAGES)


if __name__ == "__main__":
    main()
