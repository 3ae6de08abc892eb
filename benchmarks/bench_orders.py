"""The same numbers in other orders: which atoms of recordings stay the same, and what the canonical order costs.

python benchmarks/bench_orders.py; `--data` chooses recordings of the folder BOOLCP_DATA.
"""

import argparse
import warnings
from unittest.mock import patch

import numpy as np
import real_data
from common import processor_time, table, write
from threadpoolctl import threadpool_limits

from boolcp import BMP
from boolcp.datasets import load_syn
from boolcp.fit import order

N_ATOMS = 6
SEED = 0


def layouts(X, rng):
    """Return what the same numbers may look like: {name: (tensor, rows by mode, modes)}."""
    as_they_are, modes = [np.arange(d) for d in X.shape], tuple(range(X.ndim))
    rows, moved = [rng.permutation(d) for d in X.shape], (*modes[1:], 0)
    wide = np.repeat(X[..., None], 2, axis=-1)
    return {
        "Fortran order": (np.asfortranarray(X), as_they_are, modes),
        "strided": (wide[..., 0], as_they_are, modes),
        "float32": (X.astype(np.float32), as_they_are, modes),
        "permuted rows": (X[np.ix_(*rows)], rows, modes),
        "permuted modes": (X.transpose(moved), as_they_are, moved),
        "both": (X[np.ix_(*rows)].transpose(moved), rows, moved),
    }


def bits(W, rows, modes):
    """Return the modes and bits of the atoms of a tensor in another order, brought back."""
    return {(modes[atom.mode], atom.z[np.argsort(rows[modes[atom.mode]])].tobytes()) for atom in W.atoms}


def same_atoms(X):
    """Return for each layout how many atoms have the bits of the tensor in C order, and the model of that."""
    expected = BMP(N_ATOMS, random_state=SEED).fit(X).decomposition_
    first = {(atom.mode, atom.z.tobytes()) for atom in expected.atoms}
    found = {}
    for name, (Y, rows, modes) in layouts(X, np.random.default_rng(SEED)).items():
        W = BMP(N_ATOMS, random_state=SEED).fit(Y).decomposition_
        found[name] = f"{len(first & bits(W, rows, modes))} of {len(first)}"
    return found, expected


def recordings(names):
    """Return the table of atoms that stay the same."""
    rows = []
    for name in names:
        X = real_data.LOADERS[name]().astype(np.float32).astype(float)  # so that float32 has the same numbers
        found, W = same_atoms(X)
        with patch.multiple(order, MAX_ENTRIES=0, BIG=0):
            before, _ = same_atoms(X)
        told = f"{W.trust.n_agree} agree, {W.trust.n_rivals} rivals" + ", said" * ("Other atoms" in W.summary())
        cells = [f"{now} ({then})" for now, then in zip(found.values(), before.values(), strict=True)]
        rows.append([name, *cells, told])
        print(rows[-1], flush=True)
    return table(["", *found, "starts of the search"], rows)


def cost():
    """Return the table of processor times of a fit, and of the order within it."""
    rows = []
    X = load_syn(2, random_state=SEED).X
    for name, A in {"C order": X, "Fortran order": np.asfortranarray(X)}.items():
        own = processor_time(lambda A=A: order.in_order(A, None, None), 9)
        whole = processor_time(lambda A=A: BMP(15, random_state=SEED).fit(A), 5)
        rows.append([name, f"{whole:.3f}", f"{own:.3f}", f"{100 * own / whole:.1f} %"])
    return table(["Syn2 (150^3, 15 atoms)", "fit, s", "order of it, s", "share"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(real_data.LOADERS), choices=real_data.LOADERS)
    names = parser.parse_args().data
    if reason := real_data.missing_reason():
        parser.exit(message=f"{reason}\n")
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        parts = [
            "# The same numbers in other orders",
            f"Of {N_ATOMS} atoms (`BMP({N_ATOMS}, random_state={SEED})`), how many have the bits of the tensor in C "
            "order and float64, modes and rows brought back; in parentheses, without the canonical order. *Said*: "
            "`summary()` tells that other atoms fit, or may fit, as well.",
            recordings(names),
            "Processor time on one thread, the least of several runs.",
            cost(),
        ]
    write("orders.md", "python benchmarks/bench_orders.py", parts)


if __name__ == "__main__":
    main()
