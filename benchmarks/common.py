"""What the benchmarks share: versions, timing, markdown tables."""

import datetime
import os
import platform
import subprocess
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

RESULTS = Path(__file__).parent / "results"


def environment(*packages):
    """Return one line with commit, date, cores, Python and library versions."""
    found = []
    for name in ("boolcp", "numpy", "scipy", *packages):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} absent")
    made = f"commit {commit()}, {datetime.datetime.now(datetime.UTC).date()}"
    return f"{made}, {os.cpu_count()} cores, Python {platform.python_version()}, {', '.join(found)}"


@cache
def commit():
    """Return the commit of the code, with a plus if files were changed since; tables of this run change nothing."""
    command = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty=+", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def timed(function, *args, **options):
    """Return the result of a call and its seconds."""
    start = time.perf_counter()
    result = function(*args, **options)
    return result, time.perf_counter() - start


def on_processor(function, *args, **options):
    """Return the result of a call with one BLAS thread and its processor seconds."""
    with threadpool_limits(1):
        start = time.process_time()
        result = function(*args, **options)
        return result, time.process_time() - start


def processor_time(function, n_repeats=3):
    """Return the least processor time of several runs with one BLAS thread, in seconds."""
    times = []
    with threadpool_limits(1):
        for _ in range(n_repeats):
            start = time.process_time()
            function()
            times.append(time.process_time() - start)
    return min(times)


def best_time(function, n_repeats=3):
    """Return the shortest of several runs, in seconds."""
    return min(timed(function)[1] for _ in range(n_repeats))


def spread(values, digits=3):
    """Return mean and standard deviation as text."""
    values = np.asarray(values, dtype=float)
    return f"{values.mean():.{digits}g} ± {values.std(ddof=1):.1g}" if len(values) > 1 else f"{values[0]:.{digits}g}"


def table(head, rows):
    """Return a markdown table."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines)


def write(name, command, parts, *packages):
    """Write and print a results page made of text parts."""
    title, *rest = parts
    page = "\n\n".join([title, f"Made by `{command}` ({environment(*packages)}).", *rest]) + "\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text(page)
    print(page)
