"""Time of an atom of the pursuit against the Gram matrices it needs, against the number of atoms and the size."""

import numpy as np
from common import best_time, table, write

from boolcp import BMP, contractions
from boolcp.datasets import load_syn, make_boolean_cp
from boolcp.system import one_thread

COMMAND = "python benchmarks/bench_bmp.py"


def three_grams(X):
    """Return the seconds of the Gram matrices of all unfoldings, on as many threads as the fit uses."""
    with one_thread():
        return best_time(lambda: [contractions.gram(X, mode) for mode in range(X.ndim)], 5)


def per_atom(model, X):
    """Return the median seconds of the atoms after the first, over the fastest of three fits."""
    runs = []
    for _ in range(3):
        model.fit(X)
        runs.append(np.median([record.seconds for record in model.history_[1:]]))
    return min(runs)


def atoms_against_grams():
    X = load_syn(2, random_state=0).X
    grams = three_grams(X)
    rows = []
    for name, model in [
        ("BMP.as_published", BMP.as_published(15, random_state=0)),
        ("pursuit, rank-one atoms (refine=False)", BMP(15, refine=False, random_state=0)),
        ("default (on the compressed tensor, refined)", BMP(15, random_state=0)),
    ]:
        seconds = per_atom(model, X)
        rows.append([name, f"{1e3 * seconds:.1f}", f"{1e3 * grams:.1f}", f"{seconds / grams:.2f}"])
        print(rows[-1], flush=True)
    return table(["150^3, 15 atoms", "ms per atom", "ms for the three Grams", "ratio"], rows)


def growth():
    rows = []
    for d, n_atoms in [(50, 10), (100, 10), (150, 10), (200, 10), (150, 5), (150, 20), (150, 40)]:
        X = make_boolean_cp((d, d, d), n_atoms, noise=1.0, random_state=0).X
        published = best_time(lambda X=X, K=n_atoms: BMP.as_published(K, random_state=0).fit(X), 2)
        pursuit = best_time(lambda X=X, K=n_atoms: BMP(K, refine=False, random_state=0).fit(X), 2)
        rows.append([f"{d}^3", n_atoms, *(f"{1e3 * t / n_atoms:.1f}" for t in (published, pursuit))])
        print(rows[-1], flush=True)
    return table(["size", "atoms", "as published, ms per atom", "rank one, ms per atom"], rows)


def main():
    load = make_boolean_cp((30, 30, 30), 3, noise=1.0, random_state=0).X
    for model in (BMP(3), BMP.as_published(3)):
        model.fit(load)  # compile before timing
    parts = ["# The pursuit, atom by atom", "## An atom against the Grams it needs", atoms_against_grams()]
    write("bmp.md", COMMAND, [*parts, "## Growth", growth()])


if __name__ == "__main__":
    main()
