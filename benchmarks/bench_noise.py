"""Where a fit breaks as the noise grows, and where every fit does: wrong bits, error and failures of the search.

Each tensor is fitted by the default, by a polish that starts at the truth, by CP-ALS of TensorLy (the best of three
starts), and its bits are decided with all real columns and weights known. A search failure is a fit whose loss is above
that of the polish from the truth by more than 0.01 sigma^2. The seeds (7000, 7001, ..) were not used in development.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import tensorly
from common import RESULTS, table, timed, write
from tensorly.decomposition import parafac

from boolcp import BMP
from boolcp.datasets import make_boolean_cp
from boolcp.experiments import _style as style
from boolcp.fit.polish import best_bits, polish
from boolcp.metrics import hamming_error, rmse
from boolcp.result.columns import to_columns
from boolcp.storage import DenseTensor

COMMAND = "python benchmarks/bench_noise.py"
FIRST_SEED = 7000
IMAGE = Path(__file__).parents[1] / "docs" / "images" / "noise.png"
DENSE = {60: (4, 8, 12, 16, 22), 150: (10, 20, 30, 40)}
SPARSE = {60: (2, 4, 5, 6, 8), 150: (5, 10, 15, 20)}
# name: size, atoms, share of ones, Boolean modes, noise levels
CASES = {
    f"{d}^3, {K} atoms, p = {p}{', one mode' if modes else ''}": (d, K, p, modes, (DENSE if p == 0.5 else SPARSE)[d])
    for d in (60, 150)
    for K in (3, 9)
    for p in (0.5, 0.1)
    for modes in (None, [0])
}
METHODS = ("default", "known u and w", "from the truth", "CP-ALS")


def known_columns(data, truth):
    """Return the truth with bits decided along each mode while all real columns and all other atoms are known."""
    W = to_columns(truth)
    matrices = list(W.matrices)
    for mode in range(data.ndim):
        own = W.boolean_mode == mode
        if own.any():
            H, P = data.normal_equations(W.matrices, mode)
            Q = P[:, own] - W.matrices[mode][:, ~own] @ H[np.ix_(~own, own)]
            matrices[mode] = W.matrices[mode].copy()
            matrices[mode][:, own] = best_bits(H[np.ix_(own, own)], Q, W.matrices[mode][:, own])
    return W.with_matrices(matrices)


def cp_error(X, clean, rank, seed):
    """Return the RMSE of the CP decomposition with the lowest loss: one SVD start, two random ones."""
    fits = []
    for start in range(3):
        init = "svd" if start == 0 else "random"
        found = tensorly.cp_to_tensor(parafac(X, rank, init=init, random_state=seed + start, tol=1e-6, n_iter_max=100))
        fits.append((np.sum((X - found) ** 2), np.sqrt(np.mean((found - clean) ** 2))))
    return float(min(fits)[1])


def measure(d, n_atoms, p, modes, sigma, seed):
    """Return the wrong bits and errors of all methods on one tensor, and whether the search failed."""
    options = {} if modes is None else {"boolean_modes": modes}
    X, clean, truth = make_boolean_cp((d, d, d), n_atoms, p=p, noise=sigma, random_state=seed, **options)
    data, n_bits = DenseTensor(X), d * n_atoms
    model, seconds = timed(BMP(n_atoms, boolean_modes=modes, random_state=seed).fit, X)
    best = polish(data, to_columns(truth))
    found = model.decomposition_, known_columns(data, truth).to_decomposition(), best.to_decomposition()
    row = {f"wrong bits, {name}": n_bits * hamming_error(W, truth) for name, W in zip(METHODS, found, strict=False)}
    row |= {f"RMSE, {name}": rmse(W, clean) for name, W in zip(METHODS, found, strict=False)}
    row["RMSE, CP-ALS"] = cp_error(X, clean, n_atoms, seed)
    row["failed"] = int(data.residual(model.decomposition_).squared_norm > best.loss + 0.01 * sigma**2)
    return row | {"seconds": seconds}


def run(names, n_seeds, n_large):
    """Yield one row for each tensor."""
    for name in names:
        d, n_atoms, p, modes, levels = CASES[name]
        for sigma in levels:
            for seed in range(FIRST_SEED, FIRST_SEED + (n_seeds if d == 60 else n_large)):
                row = measure(d, n_atoms, p, modes, sigma, seed)
                yield {"case": name, "sigma": sigma, "seed": seed} | row
            print(name, sigma, row, flush=True)


def groups(rows):
    """Return the rows of each case and noise level."""
    found = {}
    for row in rows:
        found.setdefault((row["case"], float(row["sigma"])), []).append(row)
    return found


def mean(rows, column):
    """Return the mean of a column."""
    return float(np.mean([float(row[column]) for row in rows]))


def summarize(rows):
    """Return the table: means over the seeds."""
    lines = []
    for (case, sigma), here in groups(rows).items():
        bits = " / ".join(f"{mean(here, f'wrong bits, {name}'):.3g}" for name in METHODS[:3])
        errors = " / ".join(f"{mean(here, f'RMSE, {name}') + 1e-12:.3g}".replace("1e-12", "0") for name in METHODS)
        failures = f"{100 * mean(here, 'failed'):.0f} %"
        seconds = np.median([float(row["seconds"]) for row in here])
        lines.append([case, f"{sigma:g}", len(here), bits, errors, failures, f"{seconds:.2f}"])
    head = ["case", "sigma", "seeds", f"wrong bits: {' / '.join(METHODS[:3])}", f"RMSE: {' / '.join(METHODS)}"]
    return table([*head, "search failures", "median seconds"], lines)


def draw(rows):
    """Return a figure: wrong bits, and errors, against the noise, one column of panels for each case."""
    found = groups(rows)
    cases = list(dict.fromkeys(case for case, _ in found))
    looks = dict(zip(METHODS, (style.VERMILION, style.GRAY, style.BLACK, style.BLUE), strict=True))
    figure, axes = style.figure(2, len(cases), max(1.7 * len(cases), 3.5), 3.6, sharex="col")
    for column, case in zip(axes.T, cases, strict=True):
        levels = [sigma for name, sigma in found if name == case]
        n_bits = CASES[case][0] * CASES[case][1]
        for name, color in looks.items():
            look = {
                "color": color,
                "marker": "o",
                "linestyle": "--" if name == "from the truth" else "-",
                "label": name,
            }
            if name != "CP-ALS":
                shares = [100 * mean(found[case, sigma], f"wrong bits, {name}") / n_bits for sigma in levels]
                column[0].plot(levels, shares, **look)
            if name != "known u and w":  # its error is that of single bits, or none
                column[1].plot(levels, [mean(found[case, sigma], f"RMSE, {name}") for sigma in levels], **look)
        size, *rest = case.split(", ", 1)
        column[0].set_title(f"${size.replace('^3', '^3$')}\n{rest[0]}", fontsize=7)
        column[0].set_ylim(bottom=-0.5)
        column[1].set_yscale("log")
        column[1].set_xlabel("noise $\\sigma$")
    axes[0, 0].set_ylabel("wrong bits (%)")
    axes[1, 0].set_ylabel("RMSE to the clean tensor")
    handles, labels = axes[1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=7)
    return figure


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", nargs="*", default=[""], help="parts of the names of the cases to run")
    parser.add_argument("--seeds", type=int, default=20, help="seeds at 60^3")
    parser.add_argument("--large-seeds", type=int, default=8, help="seeds at 150^3")
    parser.add_argument("--draw", action="store_true", help="draw the figure from the table of the last run")
    options = parser.parse_args()
    place = RESULTS / "noise.csv"
    if not options.draw:
        names = [name for name in CASES if any(part in name for part in options.cases)]
        rows = list(run(names, options.seeds, options.large_seeds))
        with place.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    with place.open(newline="") as file:
        rows = list(csv.DictReader(file))
    parts = ["# Where it breaks: bits and errors as the noise grows", __doc__.split("\n\n", 1)[1].strip()]
    write("noise.md", COMMAND, [*parts, summarize(rows)], "tensorly")
    draw(rows).savefig(IMAGE, dpi=200)


if __name__ == "__main__":
    main()
