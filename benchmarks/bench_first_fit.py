"""Processor seconds of the first fit in a fresh process, import included, of `boolcp demo`, and of later fits.

``--python name=path`` takes the Python of another environment, and several compare these.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile

from common import table, write

CUBE = "import numpy as np, boolcp; X = boolcp.datasets.make_boolean_cp((30, 30, 30), 3, noise=0.1, random_state=0).X; "
GAPS = "X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan; "
COUNTS = "X = np.random.default_rng(0).poisson(np.abs(X)).astype(float); "
FIRST = {
    "import boolcp; boolcp.BMP": "import boolcp; boolcp.BMP",
    "first fit, 30^3, 3 atoms": f"{CUBE}boolcp.decompose(X, 3, random_state=0)",
    "first fit, with gaps": f"{CUBE}{GAPS}boolcp.decompose(X, 3, random_state=0)",
    "first fit, Poisson": f"{CUBE}{COUNTS}boolcp.decompose(X, 3, random_state=0, loss='poisson')",
    "`boolcp demo`": "import sys; from boolcp.cli import run; sys.argv = ['boolcp', 'demo', '--force']; run()",
}
LATER = {
    "Syn2, 15 atoms": ("boolcp.datasets.load_syn(2, random_state=0).X", 15),
    "60^3, 9 atoms": ("boolcp.datasets.make_boolean_cp((60, 60, 60), 9, noise=1.0, random_state=0).X", 9),
    "recording 64 x 500 x 200, 10 atoms": ("boolcp.datasets.simulate_recording(64, 500, 200, random_state=0).X", 10),
}
TIMED = """
import time, warnings, boolcp
warnings.simplefilter("ignore")
boolcp.decompose(boolcp.datasets.make_boolean_cp((20, 20, 20), 3, noise=0.5, random_state=0).X, 3, random_state=0)
X = {data}
times = []
for _ in range({repeats}):
    start = time.process_time()
    boolcp.decompose(X, {n_atoms}, random_state=0)
    times.append(time.process_time() - start)
print(min(times))
"""


def fresh(python, code):
    """Return the processor seconds of code in a process of its own with one thread, and its last line."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg", "NUMBA_CACHE_DIR": folder}  # that of old versions
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [python, "-W", "ignore", "-c", code], cwd=folder, env=os.environ | settings, capture_output=True, text=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(done.stderr)
    lines = done.stdout.splitlines()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, lines[-1] if lines else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", nargs="+", default=[f"here={sys.executable}"], metavar="NAME=PATH")
    pythons = dict(each.split("=", 1) for each in parser.parse_args().python)
    rows = []
    for name, code in FIRST.items():
        rows.append([name, *(f"{fresh(python, code)[0]:.2f}" for python in pythons.values())])
        print(*rows[-1])
    for name, (data, n_atoms) in LATER.items():
        code = TIMED.format(data=data, n_atoms=n_atoms, repeats=2 if "recording" in name else 3)
        rows.append([f"later fit, {name}", *(f"{float(fresh(python, code)[1]):.3f}" for python in pythons.values())])
        print(*rows[-1])
    parts = [
        "# The first fit",
        "Processor seconds, one thread, each line a fresh process.",
        table(["", *pythons], rows),
    ]
    command = f"python benchmarks/bench_first_fit.py --python {' '.join(f'{name}=..' for name in pythons)}"
    write("first_fit.md", command, parts)


if __name__ == "__main__":
    main()
