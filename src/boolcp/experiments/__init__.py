"""The experiments of the paper, one file for each figure, and its theorems measured.

The name of an experiment and a number of seeds enter. A table (CSV) and a figure leave. In each file `plan` lists the
jobs, `run` yields the rows of one job, one number each, and `draw` makes the figure from the table of all rows.
"""

import importlib
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

from boolcp.experiments._methods import code_of
from boolcp.experiments._table import collect

EXPERIMENTS = {
    "fig1": "fig1_synthetic",
    "per_mode": "per_mode",
    "fig2": "fig2_ecog",
    "parameters": "parameters",
    "fig3": "fig3_electrodes",
    "fig4": "fig4_boolean_maps",
    "theory": "theory",
}

__all__ = ["EXPERIMENTS", "Reproduced", "reproduce"]


@dataclass(frozen=True)
class Reproduced:
    """Where an experiment was written: the table (CSV) and the figures (SVG and PNG).

    Examples
    --------
    >>> from pathlib import Path
    >>> from boolcp.experiments import Reproduced
    >>> Reproduced("fig3", Path("fig3.csv"), (Path("fig3.svg"), Path("fig3.png"))).table.name
    'fig3.csv'
    """

    name: str
    table: Path
    figures: tuple[Path, ...]


def reproduce(
    name: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    out: str | PathLike[str] | None = None,
    jobs: int = 1,
    recording: str | PathLike[str] | None = None,
    keep: bool = False,
) -> Reproduced:
    """Run one of the paper's experiments, write its table, draw its figure, and return their paths, as a Reproduced.

    Each row carries the commit, the date, the versions and a fingerprint of the code that made it. Rows made by the
    same code are not recomputed: an interrupted run resumes where it stopped, and more seeds cost only their own time.
    The numbers do not depend on the number of jobs.

    Parameters
    ----------
    name : {"fig1", "per_mode", "fig2", "parameters", "fig3", "fig4", "theory"}
        Which experiment. "per_mode" is Figure 1 with three times the atoms, "parameters" compares methods with as many
        real parameters as each other.
    quick : bool
        A smaller version that takes less than two minutes; its files have ``_quick`` in their names.
    seeds : int, optional
        Number of repetitions; None takes the experiment's own.
    out : path, optional
        The folder to write to, ``reproduction`` by default.
    jobs : int
        Number of processes.
    recording : path, optional
        A NeuroTycho folder or zip, or another file that `boolcp.open_tensor` reads, for fig2, fig3 and fig4 in place
        of the simulated recording.
    keep : bool
        Keep rows that other code made, and compute only what is missing.

    Examples
    --------
    >>> from boolcp.experiments import reproduce
    >>> done = reproduce("fig3", quick=True, out="reproduction")  # doctest: +SKIP
    >>> done.table.name  # doctest: +SKIP
    'fig3_quick.csv'
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"name must be one of {', '.join(EXPERIMENTS)}, got {name!r}.")
    module = importlib.import_module(f"boolcp.experiments.{EXPERIMENTS[name]}")
    options = {} if recording is None else {"recording": str(recording)}
    if options and name in ("fig1", "per_mode", "theory", "parameters"):
        raise ValueError(f"{name} takes no recording.")
    folder = Path("reproduction" if out is None else out)
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name}{'_quick' if quick else ''}{'_recording' if options else ''}"
    plan = module.plan(quick=quick, seeds=seeds, **options)
    code = partial(code_of, module.__name__)
    table = collect(module.run, plan, folder / f"{stem}.csv", n_jobs=jobs, code=code, keep=keep)
    figure = module.draw(table)
    paths = []
    for kind in ("svg", "png"):
        paths.append(folder / f"{stem}.{kind}")
        figure.savefig(paths[-1], metadata={"Date": None} if kind == "svg" else None)
    return Reproduced(name, folder / f"{stem}.csv", tuple(paths))
