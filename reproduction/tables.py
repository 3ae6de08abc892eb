"""The tables of the figures: computed job by job, in parallel, resumed after an interruption, made by one commit.

In each script `plan` lists the jobs, `run` yields the rows of one job and `draw` makes the figure from all rows.
`python reproduction/tables.py` says which tables are older than the code that makes them.
"""

import argparse
import csv
import datetime
import importlib
import os
import platform
import re
import subprocess
import sys
import zlib
from importlib.metadata import version
from pathlib import Path

import joblib
import pandas as pd
from threadpoolctl import threadpool_limits
from tqdm import tqdm

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "docs" / "reproduction"
SHARED = ("methods.py", "recordings.py")  # of this folder; tables and style change no number
FITS = ("bmp.py", "atomic_norm.py", "contractions.py", "metrics.py", "baselines", "datasets", "fit", "program")
FITS += ("result", "storage")  # of src/boolcp
PACKAGES = ("boolcp", "numpy", "scipy", "numba", "tensorly")


def seed_of(*words):
    """Return a seed that depends only on the words, so that a row is the same in every run."""
    return zlib.crc32("|".join(str(word) for word in words).encode())


def stamp(name):
    """Return the commit that last touched what a script runs, with a plus if files were changed since."""
    script = importlib.import_module(name)
    paths = [f"reproduction/{file}" for file in (f"{name}.py", *SHARED, *getattr(script, "SCRIPTS", ()))]
    paths += [f"src/boolcp/{part}" for part in getattr(script, "RUNS", FITS)]
    last, changed = (git(*command, "--", *paths) for command in (("log", "-1", "--format=%h"), ("status", "-s")))
    return (last or "released") + "+" * bool(changed)


def git(*command):
    """Return what git prints, nothing outside a clone."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def stamp_of(path):
    """Return the commit in the head of a table, None without one."""
    if not path.exists():
        return None
    with path.open(encoding="utf-8") as file:
        found = re.match(r"# commit (\S+),", file.readline())
    return found and found[1]


def head(commit):
    """Return the first line of a table: commit, date and versions."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    today = datetime.datetime.now(datetime.UTC).date()
    return f"# commit {commit}, {today}, python {platform.python_version()}, {versions}\n"


def read(path):
    """Return a table as a DataFrame."""
    table = pd.read_csv(path, skiprows=int(stamp_of(path) is not None), keep_default_na=False)
    return table.astype({"theorem": str}) if "theorem" in table else table


def collect(run, plan, path, commit, jobs=1):
    """Return the table of the rows that `run` yields for each job of the plan, and keep it in a CSV file.

    Jobs whose rows are in the file are not run again, unless the file is of another commit or of changed files. The
    file is replaced as a whole after each job, so that it never holds half a job.
    """
    keys, done = list(plan[0]), {}
    if commit == stamp_of(path) and not commit.endswith("+"):
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file.readlines()[1:]):
                done.setdefault(tuple(row[key] for key in keys), []).append(row)
    todo = [job for job in plan if tuple(map(str, job.values())) not in done]
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    results = parallel(joblib.delayed(rows_of)(run, job) for job in todo)
    for name, rows in tqdm(results, path.stem, len(todo), disable=None):
        done[name] = rows
        order = [name for name in (tuple(map(str, job.values())) for job in plan) if name in done]
        table = pd.DataFrame([row for name in dict.fromkeys([*order, *sorted(done)]) for row in done[name]])
        part = path.with_suffix(".part")
        part.write_text(head(commit) + table.to_csv(index=False, float_format="%.8g"), encoding="utf-8")
        os.replace(part, path)
    return read(path)


def rows_of(run, job):
    """Return the name of a job and its rows, computed with one thread of linear algebra."""
    labels = {key: str(value) for key, value in job.items()}
    with threadpool_limits(1):
        return tuple(labels.values()), [{**labels, **row} for row in run(job)]


def main(name, argv=None):
    """Make the table and the figure of a script as the command line says, and return their paths."""
    script = importlib.import_module(name)
    parser = argparse.ArgumentParser(description=script.__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller version, in minutes")
    parser.add_argument("--seeds", type=int, help="number of repetitions")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes; the numbers do not depend on it")
    parser.add_argument("-o", "--out", type=Path, default=TABLES, help="folder of table and figures")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    base = options.out / f"{name}{'_quick' if options.quick else ''}"
    plan = script.plan(quick=options.quick, seeds=options.seeds)
    table = collect(script.run, plan, base.with_suffix(".csv"), stamp(name), options.jobs)
    paths = [base.with_suffix(f".{kind}") for kind in ("csv", "svg", "png")]
    figure = script.draw(table)
    for path in paths[1:]:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    print(*paths, sep="\n")
    return paths


def old_tables(folder=TABLES):
    """Return a line for each table of a folder that other code has made than the present one."""
    lines = []
    for path in sorted(folder.glob("*.csv")):
        made, now = stamp_of(path), stamp(path.stem.removesuffix("_quick"))
        if made != now:
            lines.append(f"{path.name} is of commit {made or 'unknown'}, what it runs of {now}")
    return lines


if __name__ == "__main__":
    sys.exit("\n".join(old_tables()) or None)
