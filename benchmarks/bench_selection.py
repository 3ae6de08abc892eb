"""How often select_n_atoms picks the true number of atoms, and what it costs on long, 5-way and real tensors.

Syn0-2 (sigma = 1) are tried up to twice the true number, a long tensor and real ones up to six.
"""

import argparse
import warnings
from collections import Counter

import numpy as np
import real_data
from common import on_processor, table, write

from boolcp import BoolcpWarning, select_n_atoms
from boolcp.datasets import load_syn, make_boolean_cp

COMMAND = "python benchmarks/bench_selection.py"
FIRST = 7311  # seed
N_SEEDS = (3, 2, 1)  # of Syn0-2
REAL = ("eeglab_epochs", "anesthesia", "spikes", "faces", "bikes")
MOST = 6  # atoms of long and real tensors


def of_syn(which, splits):
    """Return the row of one of Syn0-2."""
    chosen, seconds = [], []
    for seed in range(FIRST, FIRST + N_SEEDS[which]):
        X, _, truth = load_syn(which, random_state=seed)
        K = truth.n_atoms
        selection, time = on_processor(select_n_atoms, X, 2 * K, splits=splits, random_state=seed)
        chosen.append(selection.n_atoms)
        seconds.append(time)
        print(which, seed, selection.n_atoms, f"{time:.1f} s", flush=True)
    right = sum(k == K for k in chosen)
    counts = ", ".join(f"{k}: {n}" for k, n in sorted(Counter(chosen).items()))
    return [f"Syn{which}", K, 2 * K, f"{right} of {len(chosen)}", counts, f"{np.median(seconds):.1f}"]


def of_others(splits):
    """Yield the rows of a long tensor and of real ones: error of each number relative to that of none."""
    tensors = {"long, 4 atoms": make_boolean_cp((40, 10000, 12), 4, noise=1.0, random_state=FIRST).X}
    tensors |= {name: real_data.load(name) for name in REAL if name in real_data.available()}
    for name, X in tensors.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BoolcpWarning)  # the largest number may be chosen
            selection, time = on_processor(select_n_atoms, X, MOST, splits=splits, random_state=FIRST)
        print(name, selection.n_atoms, f"{time:.1f} s", flush=True)
        errors = [f"{e:.3f}" for e in selection.mean / selection.mean[0]]
        yield [name, " x ".join(map(str, X.shape)), selection.n_atoms, *errors[1:], f"{time:.1f}"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=2)
    splits = parser.parse_args().splits
    head = ["data (sigma = 1)", "true number", "tried up to", "chosen rightly", "choices", "median processor s"]
    syn = table(head, [of_syn(which, splits) for which in (0, 1, 2)])
    head = ["data", "shape", "chosen", *(f"{k}" for k in range(1, MOST + 1)), "processor s"]
    others = table(head, list(of_others(splits)))
    text = f"{splits} splits of 10 % held-out entries, one-standard-error rule, one thread. "
    text += "Each number is fitted as `BMP.fit` does."
    told = "Held-out error with 1 to 6 atoms, relative to that of none:"
    write("selection.md", COMMAND, ["# The number of atoms by held-out entries", text, syn, told, others])


if __name__ == "__main__":
    main()
