"""How often select_n_atoms picks the true number of atoms on Syn0-2 (sigma = 1), from at most twice the true number."""

import argparse
from collections import Counter

import numpy as np
from common import on_processor, table, write

from boolcp import select_n_atoms
from boolcp.datasets import load_syn

COMMAND = "python benchmarks/bench_selection.py"
FIRST = 7311  # seed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args()
    rows = []
    for which in (0, 1, 2):
        chosen, seconds = [], []
        for seed in range(FIRST, FIRST + options.seeds):
            X, _, truth = load_syn(which, random_state=seed)
            K = truth.n_atoms
            selection, time = on_processor(select_n_atoms, X, 2 * K, splits=options.splits, random_state=seed)
            chosen.append(selection.n_atoms)
            seconds.append(time)
            print(which, seed, selection.n_atoms, f"{time:.1f} s", flush=True)
        right = sum(k == K for k in chosen)
        counts = ", ".join(f"{k}: {n}" for k, n in sorted(Counter(chosen).items()))
        rows.append([f"Syn{which}", K, 2 * K, f"{right} of {options.seeds}", counts, f"{np.median(seconds):.1f}"])
    head = ["data (sigma = 1)", "true number", "tried up to", "chosen rightly", "choices", "median processor s"]
    text = f"{options.splits} splits of 10 % held-out entries, one-standard-error rule."
    write(
        "selection.md",
        f"{COMMAND} --seeds {options.seeds}",
        ["# The number of atoms by held-out entries", text, table(head, rows)],
    )


if __name__ == "__main__":
    main()
