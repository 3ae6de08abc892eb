"""Eq. (3) beside BMP on Syn0, Syn1 and Syn2: proved gap, atoms, bits, error before and after debiasing, time.

Run `python benchmarks/bench_convex.py --size 60 150`; the table is printed and written to
`benchmarks/results/convex.md`. BMP is told the number of atoms, Eq. (3) is told the noise level. Beyond size 100 the
steps with blocks are limited to 10, and blocks are not debiased, which would solve the program again.
"""

import argparse
import itertools
import time

import numpy as np
from common import table, write
from threadpoolctl import threadpool_limits

from boolcp import BMP, AtomicNorm
from boolcp.datasets import make_boolean_cp
from boolcp.metrics import hamming_error, rmse

SEED = 20261117
LARGE = 100
HEAD = ["data", "noise", "method", "atoms", "wrong bits, %", "RMSE", "debiased", "proved gap, %", "s"]


def methods(n_atoms, sigma, size):
    """Return the estimators by name."""
    options = {"sigma": sigma, "random_state": 0, "max_iter": 60}
    return {
        "BMP": BMP(n_atoms, random_state=0),
        "Eq. (3), blocks": AtomicNorm(**options | {"max_iter": 10 if size > LARGE else 60}),
        "Eq. (3), rank one": AtomicNorm(atom_rank=1, **options),
    }


def judge(model, data):
    """Return number of atoms, wrong bits in percent if the numbers agree, error, error debiased, gap and seconds."""
    start = time.process_time()
    W = model.fit(data.X).decomposition_
    seconds = time.process_time() - start
    wrong = f"{100 * hamming_error(W, data.truth):.2f}" if W.n_atoms == data.truth.n_atoms else "-"
    debiased, gap = "", ""
    if isinstance(model, AtomicNorm):
        gap = "" if np.isnan(model.duality_gap_) else f"{100 * model.duality_gap_:.2f}"
    if isinstance(model, AtomicNorm) and (model.atom_rank == 1 or max(data.X.shape) <= LARGE):
        again = type(model)(**model.get_params() | {"debias": True}).fit(data.X).decomposition_
        wrong = f"{100 * hamming_error(again, data.truth):.2f}" if again.n_atoms == data.truth.n_atoms else "-"
        debiased = f"{rmse(again, data.clean):.4f}"
    return [W.n_atoms, wrong, f"{rmse(W, data.clean):.4f}", debiased, gap, f"{seconds:.1f}"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, nargs="+", default=[150], help="sizes of each mode")
    parser.add_argument("--atoms", type=int, nargs="+", default=[3, 9, 15], help="numbers of atoms")
    parser.add_argument("--noise", type=float, nargs="+", default=[1.0, 5.0], help="noise levels")
    args = parser.parse_args()
    rows = []
    with threadpool_limits(1):
        for size, n_atoms, sigma in itertools.product(args.size, args.atoms, args.noise):
            data = make_boolean_cp((size,) * 3, n_atoms, noise=sigma, random_state=SEED + n_atoms)
            for name, model in methods(n_atoms, sigma, size).items():
                rows.append([f"{size}^3, {n_atoms} atoms", sigma, name, *judge(model, data)])
                print(rows[-1], flush=True)
    command = f"python benchmarks/bench_convex.py --size {' '.join(map(str, args.size))}"
    text = "One tensor for each row, drawn as Syn0, Syn1 and Syn2 are. Wrong bits of Eq. (3) are those after debiasing."
    write("convex.md", command, ["# Eq. (3) beside BMP", text, table(HEAD, rows)])


if __name__ == "__main__":
    main()
