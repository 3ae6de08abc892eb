"""How often select_n_atoms picks the true number of atoms, and how many atoms of long and real tensors come back.

Syn0-2 (sigma = 1) are tried up to twice the true number, a long tensor and real ones up to six.
"""

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


def of_syn(which):
    """Return the row of one of Syn0-2."""
    chosen, seconds = [], []
    for seed in range(FIRST, FIRST + N_SEEDS[which]):
        X, _, truth = load_syn(which, random_state=seed)
        K = truth.n_atoms
        selection, time = on_processor(select_n_atoms, X, 2 * K, random_state=seed)
        chosen.append(selection.n_atoms)
        seconds.append(time)
        print(which, seed, selection.n_atoms, f"{time:.1f} s", flush=True)
    right = sum(k == K for k in chosen)
    counts = ", ".join(f"{k}: {n}" for k, n in sorted(Counter(chosen).items()))
    return [f"Syn{which}", K, 2 * K, f"{right} of {len(chosen)}", counts, f"{np.median(seconds):.1f}"]


def of_others():
    """Yield the rows of a long tensor and of real ones: how many of 1, 2, .. atoms come back."""
    tensors = {"long, 4 atoms": make_boolean_cp((40, 10000, 12), 4, noise=1.0, random_state=FIRST).X}
    tensors |= {name: real_data.load(name) for name in REAL if name in real_data.available()}
    for name, X in tensors.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BoolcpWarning)  # the largest number may be chosen
            selection, time = on_processor(select_n_atoms, X, MOST, random_state=FIRST)
        print(name, selection.n_atoms, f"{time:.1f} s", flush=True)
        found = [*selection.n_replicated, *["-"] * MOST][:MOST]
        yield [name, " x ".join(map(str, X.shape)), selection.n_atoms, *found, f"{time:.1f}"]


def main():
    head = ["data (sigma = 1)", "true number", "tried up to", "chosen rightly", "choices", "median processor s"]
    syn = table(head, [of_syn(which) for which in (0, 1, 2)])
    head = ["data", "shape", "chosen", *(f"{k}" for k in range(1, MOST + 1)), "processor s"]
    others = table(head, list(of_others()))
    text = "`select_n_atoms`: the largest number of atoms that all come back in 8 fits to halves of a mode. One thread."
    told = "How many come back of 1 to 6 atoms:"
    write("selection.md", COMMAND, ["# The number of atoms by replication", text, syn, told, others])


if __name__ == "__main__":
    main()
