"""How long Ctrl-C takes in every kind of fit: signals at even moments of it, and the stages that they hit.

python benchmarks/bench_interrupt.py
"""

import argparse
import signal
import time
import traceback
import warnings

import numpy as np
from common import table, write

import boolcp
from boolcp.datasets import make_boolean_cp, simulate_recording


def lazy(X):
    """Return a dask array."""
    import dask.array as da

    return da.from_array(X, chunks=(10, *X.shape[1:]))


def cases():
    """Return the calls to interrupt, by name."""
    X = make_boolean_cp((60, 60, 60), 6, noise=6.0, random_state=0).X
    gaps = make_boolean_cp((30, 30, 30), 4, noise=2.0, missing=0.3, random_state=0).X
    long = make_boolean_cp((20_000, 20, 20), 3, noise=1.0, random_state=0).X
    activity = simulate_recording(noise=1.5, random_state=0).X
    holes = np.where(np.random.default_rng(0).random(activity.shape) < 0.2, np.nan, activity)[:, ::4]
    counts = np.random.default_rng(0).poisson(1.0, (20, 25, 30)).astype(float)
    small = make_boolean_cp((20, 25, 30), 3, noise=2.0, random_state=0).X
    fit = {"random_state": 0}
    return {
        "rank one, much noise": lambda: boolcp.BMP(6, atom_rank=1, **fit).fit(X),
        "blocks": lambda: boolcp.BMP(3, atom_rank="auto", background=None, **fit).fit(activity),
        "dense blocks": lambda: boolcp.BMP(3, atom_rank=None, **fit).fit(activity),
        "background": lambda: boolcp.BMP(3, background="auto", **fit).fit(activity),
        "as published": lambda: boolcp.BMP.as_published(5).fit(X),
        "missing entries": lambda: boolcp.BMP(4, atom_rank=1, **fit).fit(gaps),
        "missing entries, blocks": lambda: boolcp.BMP(3, **fit).fit(holes),
        "weights": lambda: boolcp.BMP(4, **fit).fit(X[:30, :30, :30], weights={0: np.linspace(0.5, 2, 30)}),
        "counts": lambda: boolcp.BMP(2, loss="poisson", **fit).fit(counts),
        "dask": lambda: boolcp.BMP(3, **fit).fit(lazy(X)),
        "dask, missing entries": lambda: boolcp.BMP(3, **fit).fit(lazy(gaps)),
        "a mode of 20,000": lambda: boolcp.BMP(3, **fit).fit(long),
        "certificates": lambda: boolcp.decompose(X, 3, atom_rank=1, **fit).certify(X, effort="thorough"),
        "selection": lambda: boolcp.select_n_atoms(small, max_atoms=3, splits=2, **fit),
        "stability": lambda: boolcp.stability(small, 3, n_runs=2, **fit),
    }


def interrupt(call, delay):
    """Return the seconds from a signal to the end of a call, and the stage it hit; None if the call ended before."""

    def stop(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    due = time.perf_counter() + delay
    signal.setitimer(signal.ITIMER_REAL, delay)
    try:
        call()
    except KeyboardInterrupt as error:
        late = time.perf_counter() - due
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__) if "boolcp" in frame.filename]
        stages = [name.removesuffix("_stage").replace("told", "pursuit") for name in names]
        return late, next((one for one, name in zip(stages, names, strict=True) if one != name), names[0])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", type=int, default=8, help="signals for each kind of fit")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name, call in cases().items():
        call()  # compiles
        begin = time.perf_counter()
        call()
        seconds = time.perf_counter() - begin
        found = [interrupt(call, seconds * (n + 0.5) / options.signals) for n in range(options.signals)]
        hit = [one for one in found if one is not None]
        stages = ", ".join(dict.fromkeys(stage for _, stage in hit))
        rows.append([name, f"{seconds:.2f}", len(hit), f"{max((late for late, _ in hit), default=np.nan):.3f}", stages])
        print(rows[-1], flush=True)
    heads = ["fit", "seconds", "signals", "longest until it ends (s)", "where they hit"]
    write("interrupt.md", "python benchmarks/bench_interrupt.py", ["# Ctrl-C", table(heads, rows)])


if __name__ == "__main__":
    main()
