"""How often the SUSTain-style baseline and BMP find all bits, the former from one start and from five."""

import argparse

import numpy as np
from common import table, write

from boolcp import BMP
from boolcp.baselines import SUSTain
from boolcp.datasets import make_boolean_cp
from boolcp.datasets.synthetic import SYN_ATOMS
from boolcp.metrics import hamming_error, rmse

COMMAND = "python benchmarks/bench_baselines.py"
SHAPE = (40, 40, 40)
METHODS = {
    "SUSTain-style, 1 start": lambda n_atoms, seed: SUSTain(n_atoms, n_init=1, random_state=seed),
    "SUSTain-style, 5 starts": lambda n_atoms, seed: SUSTain(n_atoms, random_state=seed),
    "BMP": lambda n_atoms, seed: BMP(n_atoms, certify=False, random_state=seed),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    rows = []
    for name, make in METHODS.items():
        row = [name]
        for parts in SYN_ATOMS:
            n_atoms, wrong, errors = int(np.sum(parts)), [], []
            for seed in range(options.seeds):
                X, clean, truth = make_boolean_cp(SHAPE, parts, noise=1.0, random_state=seed)
                W = make(n_atoms, seed).fit(X).decomposition_
                wrong.append(hamming_error(W, truth))
                errors.append(rmse(W.to_tensor(), clean))
            row.append(f"{np.sum(np.equal(wrong, 0))} of {options.seeds} ({np.mean(errors):.3f})")
        rows.append(row)
    head = ["method", *(f"{int(np.sum(parts))} atoms" for parts in SYN_ATOMS)]
    text = (
        f"Noisy tensors of {' x '.join(map(str, SHAPE))}, sigma = 1, seeds 0 to {options.seeds - 1}: runs without a "
        "wrong bit (mean denoising RMSE). The SUSTain-style baseline is told which modes are Boolean, in turn."
    )
    write("baselines.md", COMMAND, ["# One start and several", text, table(head, rows)])


if __name__ == "__main__":
    main()
