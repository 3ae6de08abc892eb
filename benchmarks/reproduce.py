"""Recompute every table and figure that a page quotes, two at a time: ``make reproduce``.

A table that the present code has made is kept, so that a run that was ended continues. Recordings come from the folder
BOOLCP_DATA. Tables of times are made last and alone. At the end the numbers of the pages are those of the tables.

    python benchmarks/reproduce.py            # all that is not of the present code
    python benchmarks/reproduce.py --list     # what that is, and the minutes it takes on one core
    python benchmarks/reproduce.py fig        # only commands that contain this text
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import quotes
from common import RESULTS, ROOT, is_made

FIGURES = ROOT / "docs" / "reproduction"
LOGS = ROOT / ".reproduce"


class Table(NamedTuple):
    """A command without `python`, the page it writes, and about how many minutes it takes on one core."""

    command: str
    page: str
    minutes: float
    alone: bool = False

    @property
    def path(self):
        """Return the place of the page."""
        return (FIGURES if self.command.startswith("reproduction") else RESULTS) / self.page


TABLES = [
    Table("reproduction/fig1.py", "fig1.csv", 11),
    Table("reproduction/fig2.py", "fig2.csv", 13),
    Table("reproduction/theory.py", "theory.csv", 3),
    Table("reproduction/fig4.py", "fig4.csv", 0.5),
    Table("reproduction/fig3.py", "fig3.csv", 0.2),
    Table("benchmarks/bench_noise.py --seeds 8 --large-seeds 2", "noise.md", 8),
    Table("benchmarks/bench_truth.py --seeds 2", "truth.md", 7),
    Table("benchmarks/bench_trust.py null --runs 20", "trust.md", 20),
    Table("benchmarks/bench_trust.py power --runs 20", "trust.md", 9),
    Table("benchmarks/bench_trust.py recurrence --runs 6", "trust.md", 10),
    Table("benchmarks/bench_trust.py pink --runs 20", "trust.md", 1.5),
    Table("benchmarks/bench_trust.py calibration --runs 30", "trust.md", 2),
    Table("benchmarks/bench_trust.py whitening --runs 10", "whitening.md", 2),
    Table("benchmarks/bench_refine.py synthetic --seeds 5", "refine_synthetic.md", 3),
    Table("benchmarks/bench_refine.py battery --battery-seeds 5", "refine_battery.md", 2),
    Table("benchmarks/bench_completion.py paper --seeds 3", "completion_paper.md", 2),
    Table("benchmarks/bench_completion.py share --seeds 1", "completion_share.md", 4),
    Table("benchmarks/bench_completion.py real --seeds 1", "completion_real.md", 3),
    Table("benchmarks/bench_selection.py", "selection.md", 3),
    Table("benchmarks/bench_neighbors.py regions", "neighbors.md", 2),
    Table("benchmarks/bench_neighbors.py certificates", "neighbors.md", 0.5),
    Table("benchmarks/bench_neighbors.py sessions", "neighbors.md", 1),
    Table("benchmarks/bench_neighbors.py covariances", "neighbors.md", 3),
    Table("benchmarks/bench_neighbors.py replication", "neighbors.md", 1),
    Table("benchmarks/bench_neighbors.py recordings", "neighbors.md", 3),
    Table("benchmarks/bench_neighbors.py maps", "neighbors.md", 2),
    Table("benchmarks/bench_losses.py weights", "losses.md", 0.5),
    Table("benchmarks/bench_losses.py nonnegative", "losses.md", 1),
    Table("benchmarks/bench_losses.py huber", "losses.md", 1.5),
    Table("benchmarks/bench_losses.py poisson", "losses.md", 5),
    Table("benchmarks/bench_losses.py bernoulli", "losses.md", 2),
    Table("benchmarks/bench_losses.py confidence", "losses.md", 3),
    Table("benchmarks/bench_losses.py spikes", "losses.md", 2),
    Table("benchmarks/bench_losses.py artifact", "losses.md", 0.5),
    Table("benchmarks/bench_convex.py --size 60 150", "convex.md", 5),
    Table("benchmarks/bench_bounds.py", "bounds.md", 3),
    Table("benchmarks/bench_maxcut.py", "maxcut.md", 3),
    Table("benchmarks/bench_baselines.py", "baselines.md", 1),
    Table("benchmarks/bench_trust.py cost --runs 1", "trust.md", 1, alone=True),
    Table("benchmarks/bench_refine.py time", "refine_time.md", 2, alone=True),
    Table("benchmarks/bench_refine.py growth", "refine_growth.md", 1, alone=True),
    Table("benchmarks/bench_speed.py", "speed.md", 3, alone=True),
    Table("benchmarks/bench_scale.py disk", "scale_disk.md", 6),
    Table("benchmarks/bench_scale.py long", "scale_long.md", 4),
]


def is_done(one):
    """Return whether the present code has made a table."""
    return is_made(one.path, f"python {one.command}")


def run(one):
    """Make a table in a process of its own, its output in a file, and return whether that worked."""
    LOGS.mkdir(exist_ok=True)
    log = LOGS / f"{one.command.split('/')[1].replace(' ', '_')}.txt"
    more = ["--jobs", "1", "--keep", str(LOGS / "trust")] if "bench_trust" in one.command else []
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    begin = time.perf_counter()
    with log.open("w") as file:
        command = [sys.executable, *one.command.split(), *more]
        done = subprocess.run(command, cwd=ROOT, stdout=file, stderr=file, env=os.environ | threads)
    spent = (time.perf_counter() - begin) / 60
    words = "" if done.returncode == 0 else f": FAILED, see {log.relative_to(ROOT)}"
    print(f"{one.command}: {spent:.1f} min ({one.minutes:g} expected){words}", flush=True)
    return done.returncode == 0


def pages_first(tables):
    """Return lists of tables, longest first; those that share a page are made one after another."""
    groups = {}
    for one in tables:
        groups.setdefault(one.page, []).append(one)
    return sorted(groups.values(), key=lambda group: -sum(one.minutes for one in group))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="?", default="", help="make only tables whose command contains this text")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--list", action="store_true", help="say what would be made")
    options = parser.parse_args()
    todo = [one for one in TABLES if options.only in one.command and not is_done(one)]
    if options.list:
        print(*(f"{one.minutes:5g} min  {one.command}" for one in todo), sep="\n")
        print(f"{sum(one.minutes for one in todo):5g} min of one core in {len(todo)} of {len(TABLES)} tables")
        return
    with ThreadPoolExecutor(options.jobs) as pool:
        groups = pages_first([one for one in todo if not one.alone])
        worked = [all(found) for found in pool.map(lambda group: [run(one) for one in group], groups)]
    worked += [run(one) for one in todo if one.alone]
    quotes.update()
    if not all(worked):
        sys.exit(1)


if __name__ == "__main__":
    main()
