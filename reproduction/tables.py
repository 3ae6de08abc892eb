"""The tables of the figures: computed job by job, in parallel, and resumed after an interruption.

In each script `plan` lists the jobs, `run` yields the rows of one job, `draw` makes the figure from all rows, and
`summary`, if there is one, the tables that pages quote.
"""

import argparse
import importlib
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "docs" / "reproduction"
sys.path.append(str(ROOT / "benchmarks"))
import cp_tucker  # noqa: E402
from common import collect, count_starts, seed_of, table, write  # noqa: E402

__all__ = ["collect", "count_starts", "cp_tucker", "main", "read", "seed_of", "table"]


def read(path):
    """Return a table as a DataFrame."""
    table = pd.read_csv(path, keep_default_na=False, comment="#")
    return table.astype({"theorem": str}) if "theorem" in table else table


def main(name, argv=None):
    """Make the table and the figure of a script as the command line says."""
    script = importlib.import_module(name)
    parser = argparse.ArgumentParser(description=script.__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller version, in minutes")
    parser.add_argument("--seeds", type=int, help="number of repetitions")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes; the numbers do not depend on it")
    parser.add_argument("-o", "--out", type=Path, default=TABLES, help="folder of table and figure")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    base = options.out / f"{name}{'_quick' * options.quick}"
    command = f"python reproduction/{name}.py{' --quick' * options.quick}"
    command += "" if options.seeds is None else f" --seeds {options.seeds}"
    plan = script.plan(quick=options.quick, seeds=options.seeds)
    collect(script.run, plan, base.with_suffix(".csv"), command, jobs=options.jobs, packages=("tensorly",))
    rows = read(base.with_suffix(".csv"))
    script.draw(rows).savefig(base.with_suffix(".svg"), metadata={"Date": None})
    if hasattr(script, "summary") and not options.quick and options.out == TABLES:
        title = script.__doc__.splitlines()[0].rstrip(".")
        write(f"{name}.md", command, [f"# {title}", *script.summary(rows)], "tensorly")
    print(base.with_suffix(".csv"), base.with_suffix(".svg"), sep="\n")
