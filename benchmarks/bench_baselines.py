"""How often the SUSTain-style baseline finds all bits, from one start and from five, and the default beside it.

And what both do with more atoms than there are: `too_many.md`.
"""

import argparse

import numpy as np
from common import table, write

from boolcp import BMP, significance
from boolcp.baselines import SUSTain
from boolcp.datasets import make_boolean_cp
from boolcp.datasets.synthetic import SYN_ATOMS
from boolcp.metrics import hamming_error, rmse

COMMAND = "python benchmarks/bench_baselines.py"
SHAPE = (40, 40, 40)
METHODS = {
    "SUSTain-style, 1 start": lambda n_atoms, seed: SUSTain(n_atoms, n_init=1, random_state=seed),
    "SUSTain-style, 5 starts": lambda n_atoms, seed: SUSTain(n_atoms, random_state=seed),
    "BMP (default)": lambda n_atoms, seed: BMP(n_atoms, certify=False, random_state=seed),
}


def too_many(n_seeds, n_true=3, n_atoms=20):
    """Write the loss and the error with 20 atoms where there are 3, and what the tests say about them."""
    found = {"SUSTain-style": [], "BMP (default)": [], 'BMP(n_atoms="auto")': []}
    numbers, chosen = [], []
    for seed in range(n_seeds):
        X, clean, _ = make_boolean_cp(SHAPE, n_true, noise=1.0, random_state=seed)
        fits = [SUSTain(n_atoms, random_state=seed), BMP(n_atoms, random_state=seed), BMP("auto", random_state=seed)]
        for name, model in zip(found, fits, strict=True):
            W = model.fit(X).decomposition_.to_tensor()
            found[name].append((rmse(W, clean), float(np.sum((X - W) ** 2)) / 2))
        chosen.append(fits[-1].decomposition_.n_atoms)
        numbers.append(int(np.sum(significance(X, n_atoms, random_state=seed).is_significant())))
    rows = [[name, *(f"{value:.4g}" for value in np.mean(values, axis=0))] for name, values in found.items()]
    text = (
        f"{n_seeds} tensors of {' x '.join(map(str, SHAPE))} with {n_true} atoms, sigma = 1. Of the {n_atoms} atoms of "
        f'the default, {numbers} are significant; `n_atoms="auto"` chooses {chosen}.'
    )
    head = ["method", "RMSE to the clean tensor", "loss"]
    write(
        "too_many.md",
        f"{COMMAND} --part too_many",
        [f"# {n_atoms} atoms where there are {n_true}", text, table(head, rows)],
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--part", choices=["starts", "too_many"], help="both by default")
    options = parser.parse_args()
    if options.part != "starts":
        too_many(min(options.seeds, 5))
    if options.part != "too_many":
        starts(options)


def starts(options):
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
