"""What may be concluded from a result: calibration of bits, p-values of pure noise, power.

    python benchmarks/bench_trust.py calibration null power

Parts that are left out keep their last table in results/trust.md. The seeds are not those by which the formulas were
chosen (10000 to 10079), nor those of earlier tables (60000 to 60039).
"""

import argparse
import re
import warnings
from itertools import pairwise

import numpy as np
import scipy.stats
from common import RESULTS, environment, table
from scipy.optimize import linear_sum_assignment

import boolcp
from boolcp.datasets import make_boolean_cp
from boolcp.result.atoms import Atom

SEED = 70_000
EDGES = (0.0, 0.6, 0.8, 0.9, 0.95, 0.99, 1.0)
SHAPE = (20, 25, 30)
FAST = {"refine": False}  # the test is independent of how atoms were found
CASES = {
    "noise 2": {"noise": 2.0},
    "noise 3.5": {"noise": 3.5},
    "noise 5": {"noise": 5.0},
    "noise 3, half missing": {"noise": 3.0, "missing": 0.5},
    "noise 4, a quarter missing": {"noise": 4.0, "missing": 0.25},
    "noise 4, five atoms": {"noise": 4.0, "n_atoms": 5},
    "noise 4, a quarter of the bits on": {"noise": 4.0, "p": 0.25},
    "noise 5, rank 2": {"noise": 5.0, "rank": 2},
    "noise 6, rank 2": {"noise": 6.0, "rank": 2},
    "noise 7, rank 3": {"noise": 7.0, "rank": 3},
}


def draw(seed, noise, n_atoms=3, missing=0.0, p=0.5, rank=1):
    """Return a tensor with noise and the atoms that it is made of."""
    if rank == 1:
        X, _, truth = make_boolean_cp(SHAPE, n_atoms, noise=noise, missing=missing, p=p, random_state=seed)
        return X, truth.atoms
    rng = np.random.default_rng(seed)
    X, atoms = noise * rng.standard_normal(SHAPE), []
    for k in range(n_atoms):
        mode = k % 3
        z = rng.random(SHAPE[mode]) < p
        atom = Atom(mode, z, tuple(rng.standard_normal((d, rank)) for d in np.delete(SHAPE, mode)))
        X += np.moveaxis(np.multiply.outer(z.astype(float), atom.dense_block()), 0, mode)
        atoms.append(atom)
    return X, atoms


def pairs(W, atoms):
    """Return which fitted atom is which true one: the best assignment, with a cosine of real parts above 1/2."""
    unit = [[a.dense_block() / np.linalg.norm(a.dense_block()) for a in some] for some in (W.atoms, atoms)]
    C = np.array(
        [
            [abs(np.vdot(unit[0][i], unit[1][j])) if a.mode == b.mode else 0.0 for j, b in enumerate(atoms)]
            for i, a in enumerate(W.atoms)
        ]
    )
    return [(i, j) for i, j in zip(*linear_sum_assignment(-C), strict=True) if C[i, j] > 0.5]


def calibration(n_seeds):
    """Return how many bits are wrong among those said to be so sure, case by case."""
    rows = []
    for name, case in CASES.items():
        confidence, right = [np.zeros(0)], [np.zeros(0, dtype=bool)]
        n_atoms, rank = case.get("n_atoms", 3), case.get("rank", 1)
        for seed in range(SEED, SEED + n_seeds):
            X, atoms = draw(seed, **case)
            model = boolcp.BMP(n_atoms, atom_rank=rank, certify=False, random_state=seed)
            W = model.fit(X).decomposition_
            for i, j in pairs(W, atoms):
                confidence.append(W.bit_confidence()[i])
                right.append(W.atoms[i].z == atoms[j].z)
        p, ok = np.concatenate(confidence), np.concatenate(right)
        rows.append((name, p, ok))
    rows.append(("all", *(np.concatenate([row[n] for row in rows]) for n in (1, 2))))
    heads = ["", *(f"{100 * a:.0f} to {100 * b:.0f} %" for a, b in pairwise(EDGES)), "wrong / said"]
    lines = [[name, *calibration_cells(p, ok), f"{np.sum(~ok)} / {np.sum(1 - p):.1f}"] for name, p, ok in rows]
    text = (
        "Bits of the fitted atoms that match a true one (cosine of the real parts above 1/2). Tensors of 20 x 25 x 30 "
        f"with three atoms of rank one and half of the bits on unless said otherwise, {n_seeds} seeds from {SEED}. In "
        "each cell: wrong bits in percent of all bits with this confidence (what it promises; how many bits)."
    )
    return f"{text}\n\n{table(heads, lines)}"


def calibration_cells(p, right):
    """Return one text for each range of confidence."""
    cells = []
    for low, high in pairwise(EDGES):
        some = (p >= low) & ((p < high) | (high == 1.0))
        n = int(some.sum())
        cells.append(f"{100 * np.mean(~right[some]):.1f} ({100 * np.mean(1 - p[some]):.1f}; {n})" if n else "- (0)")
    return cells


def null(n_seeds):
    """Return how often pure noise is significant, and whether p-values are uniform."""
    cases = {
        "normal": (lambda rng: rng.standard_normal((8, 9, 10)), FAST),
        "normal, default fit": (lambda rng: rng.standard_normal((8, 9, 10)), {}),
        "normal, 30 % missing": (lambda rng: with_gaps(rng.standard_normal((8, 9, 10)), 0.3, rng), FAST),
        "counts": (lambda rng: rng.poisson(1.0, (8, 9, 10)).astype(float), FAST | {"noise": "poisson"}),
    }
    rows = []
    for name, (make, options) in cases.items():
        found, p = 0, []
        for seed in range(SEED, SEED + n_seeds):
            X = make(np.random.default_rng(seed))
            result = boolcp.significance(X, 3, random_state=seed, **options)
            found += bool(result.is_significant().any())
            p.extend(result.part_p_value)
        share = np.mean(np.array(p)[:, None] <= [0.01, 0.05, 0.2, 0.5], axis=0)
        uniform = scipy.stats.kstest(p, "uniform").pvalue
        rows.append([name, f"{found} of {n_seeds}", *(f"{100 * x:.1f} %" for x in share), f"{uniform:.2f}"])
    heads = ["noise", "runs with a significant atom", *(f"p <= {x}" for x in (0.01, 0.05, 0.2, 0.5)), "uniform? p (KS)"]
    text = (
        f"Three atoms fitted to pure noise, 8 x 9 x 10, {n_seeds} seeds from {SEED}; of rank one with `refine=False` "
        "unless it is the default fit; at a false discovery rate of 5 %."
    )
    return f"{text}\n\n{table(heads, rows)}"


def with_gaps(X, share, rng):
    """Return X with a share of its entries missing."""
    return np.where(rng.random(X.shape) < share, np.nan, X)


def power(n_seeds):
    """Return how often one atom is found and significant, against its size."""
    rows = []
    for size in (6, 8, 10, 12, 15, 20):
        found = n_significant = 0
        for seed in range(SEED, SEED + n_seeds):
            _, clean, truth = make_boolean_cp((12, 13, 14), 1, random_state=seed)
            noise = np.random.default_rng([seed, size]).standard_normal(clean.shape)
            X = clean * size / np.linalg.norm(clean) + noise
            result = boolcp.significance(X, 1, **FAST, random_state=seed)
            found += bool(pairs(result.decomposition, truth.atoms))
            n_significant += bool(result.is_significant().any())
        rows.append([size, f"{100 * found / n_seeds:.0f} %", f"{100 * n_significant / n_seeds:.0f} %"])
    heads = ["norm of the atom / sigma", "found in all data", "significant"]
    text = (
        f"One atom of rank one (`refine=False`) in 12 x 13 x 14, normal noise, {n_seeds} seeds from {SEED}; found: "
        "cosine of the real parts above 1/2."
    )
    return f"{text}\n\n{table(heads, rows)}"


PARTS = {
    "calibration": ("Calibration of bits", calibration, 30),
    "null": ("p-values under pure noise", null, 100),
    "power": ("Power", power, 40),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], help="which parts; all by default")
    parser.add_argument("--runs", type=int, help="seeds of each part, or cuts into halves")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    page = RESULTS / "trust.md"
    before = page.read_text() if page.exists() else ""
    sections = dict(re.findall(r"^## (.*?)\n\n(.*?)(?=\n\n## |\Z)", before.rstrip(), flags=re.S | re.M))
    for name in options.parts or PARTS:
        title, run, usual = PARTS[name]
        n = options.runs or usual
        made = f"Made by `python benchmarks/bench_trust.py {name} --runs {n}` ({environment()})."
        sections[title] = f"{made}\n\n{run(n)}"
        print(sections[title], flush=True)
    titles = [title for title, _, _ in PARTS.values() if title in sections]
    page.write_text("\n\n".join(["# Trust", *(f"## {title}\n\n{sections[title]}" for title in titles)]) + "\n")


if __name__ == "__main__":
    main()
