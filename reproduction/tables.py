"""The tables of the figures: computed job by job, in parallel, and resumed after an interruption.

In each script `plan` lists the jobs, `run` yields the rows of one job and `draw` makes the figure from all rows.
"""

import argparse
import importlib
import os
import subprocess
import warnings
import zlib
from pathlib import Path

import joblib
import pandas as pd
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from boolcp import BoolcpWarning

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "docs" / "reproduction"
CODE = ("src/boolcp", "reproduction")


def seed_of(*words):
    """Return a seed that depends only on the words, so that a row is the same in every run."""
    return zlib.crc32("|".join(map(str, words)).encode())


def commit():
    """Return the commit that last touched the code, with a plus if files were changed since."""
    words = (("log", "-1", "--format=%h"), ("status", "-s"))
    last, changed = (
        subprocess.run(["git", "-C", ROOT, *word, "--", *CODE], capture_output=True, text=True).stdout for word in words
    )
    return (last.strip() or "released") + "+" * bool(changed)


def read(path):
    """Return a table as a DataFrame."""
    table = pd.read_csv(path, keep_default_na=False)
    return table.astype({"theorem": str}) if "theorem" in table else table


def collect(run, plan, path, *, jobs=1, keep=False):
    """Return the table of the rows that `run` yields for each job of the plan, and keep it in a CSV file.

    Jobs whose rows are in the file are not run again if this code made them, or with `keep`. The file is replaced as
    a whole after each job, so that it never holds half a job.
    """
    now, done = commit(), {}
    if path.exists():
        for row in pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records"):
            if keep or (row["commit"] == now and not now.endswith("+")):
                done.setdefault(name_of(row, plan[0]), []).append(row)
    names = [name_of(job, plan[0]) for job in plan]
    todo = [job for name, job in zip(names, plan, strict=True) if name not in done]
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    results = parallel(joblib.delayed(rows_of)(run, job) for job in todo)
    for job, rows in tqdm(results, path.stem, len(todo), disable=None):
        done[name_of(job, plan[0])] = [job | row | {"commit": now} for row in rows]
        table = pd.DataFrame([row for name in [*names, *sorted(set(done) - set(names))] for row in done.get(name, [])])
        part = path.with_suffix(".part")
        table.to_csv(part, index=False, float_format="%.8g")
        os.replace(part, path)
    return read(path)


def name_of(row, keys):
    """Return the values of the keys of a job as text."""
    return tuple(str(row[key]) for key in keys)


def rows_of(run, job):
    """Return a job and its rows, computed with one thread of linear algebra."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", BoolcpWarning)
        return job, list(run(job))


def main(name, argv=None):
    """Make the table and the figure of a script as the command line says, and return their paths."""
    script = importlib.import_module(name)
    parser = argparse.ArgumentParser(description=script.__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller version, in minutes")
    parser.add_argument("--seeds", type=int, help="number of repetitions")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes; the numbers do not depend on it")
    parser.add_argument("--keep", action="store_true", help="also keep rows that other code has made")
    parser.add_argument("-o", "--out", type=Path, default=TABLES, help="folder of table and figure")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    base = options.out / f"{name}{'_quick' * options.quick}"
    plan = script.plan(quick=options.quick, seeds=options.seeds)
    table = collect(script.run, plan, base.with_suffix(".csv"), jobs=options.jobs, keep=options.keep)
    script.draw(table).savefig(base.with_suffix(".svg"), metadata={"Date": None})
    print(base.with_suffix(".csv"), base.with_suffix(".svg"), sep="\n")
