"""Figure 1 with K-bar read as atoms of each mode, not in total: 9, 27 and 45 atoms in all."""

import fig1
from tables import main

from boolcp.datasets.synthetic import SYN_ATOMS

SCRIPTS = ("fig1.py",)
TRUE_ATOMS = {f"Syn{which} x 3": 3 * n_atoms for which, n_atoms in enumerate(SYN_ATOMS)}
NUMBERS = (1, 3, 6, 9, 15, 20, 27, 36, 45, 60)
QUICK_NUMBERS = (1, 3, 9, 20)


def plan(*, quick=False, seeds=None, size=None):
    """Return the jobs: dataset x task x seed x method, at size 150 (quick: 40, and 9 atoms) in each mode."""
    jobs = fig1.plan(quick=quick, seeds=1 if seeds is None else seeds, size=size)
    jobs = [job for job in jobs if job["dataset"] == "Syn0"] if quick else jobs
    return [job | {"dataset": f"{job['dataset']} x 3"} for job in jobs]


def run(job):
    """Yield the errors of one method on one tensor for each number of atoms, as Figure 1 does."""
    n_true = TRUE_ATOMS[job["dataset"]]
    numbers = [n for n in (NUMBERS if job["size"] >= 150 else QUICK_NUMBERS) if n <= 2 * n_true]
    yield from fig1.run_tensor(job, n_true, numbers)


def draw(table):
    """Return the figure of all datasets with 9, 27 and 45 true atoms."""
    return fig1.draw(table, TRUE_ATOMS)


if __name__ == "__main__":
    main("per_mode")
