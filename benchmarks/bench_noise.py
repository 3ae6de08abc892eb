"""Where a fit breaks as the noise grows, and where every fit does: wrong bits, error and failures of the search.

Each tensor is fitted by the default, by a polish that starts at the truth, by CP-ALS of TensorLy (the best of three
starts), and its bits are decided with all real columns and weights known. A search failure is a fit whose loss is above
that of the polish from the truth by more than 0.01 sigma^2. The seeds (30000, 30001, ..) were not used in development.

Rows are written one by one, seed after seed through all cases and levels. A run that is ended continues with the rows
that are missing; `--refit` also repeats what boolcp does in rows of other commits, and keeps CP-ALS; `--anew` begins
again. Each row names the commit it was made with. Seconds are processor time. At 150^3 CP-ALS takes most of the time:
`--large-cp` is the number of seeds on which it is run, and its mean is over these.
"""

import argparse
import csv
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import tensorly
from bench_refine import from_truth
from common import RESULTS, commit, table, write
from golden import best_rows
from matplotlib.figure import Figure
from tensorly.decomposition import parafac

from boolcp import BMP, BooleanCP, contractions
from boolcp.datasets import make_boolean_cp
from boolcp.metrics import hamming_error, rmse

COMMAND = "python benchmarks/bench_noise.py"
FIRST_SEED = 30000
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


def known_columns(X, truth):
    """Return the truth with bits decided along each mode while all real columns and all other atoms are known."""
    A, bits = [np.array(B, dtype=float) for B in truth.factors], {}
    for k, n in enumerate(truth.boolean_mode):
        A[(n + 1) % X.ndim][:, k] *= truth.weights[k]
    for n in range(X.ndim):
        own, rest = np.flatnonzero(truth.boolean_mode == n), np.flatnonzero(truth.boolean_mode != n)
        H, P = contractions.gram_product(A, n), contractions.mttkrp(X, A, n)
        Q = P[:, own] - A[n][:, rest] @ H[np.ix_(rest, own)]
        found = best_rows(H[np.ix_(own, own)], Q, np.zeros(0, dtype=int), np.arange(len(own)))
        bits |= {k: found[:, i] > 0.5 for i, k in enumerate(own)}
    atoms = tuple(replace(atom, z=bits[k]) for k, atom in enumerate(truth.atoms))
    return BooleanCP(truth.shape, atoms, truth.weights)


def cp_error(X, clean, rank, seed):
    """Return the RMSE of the CP decomposition with the lowest loss: one SVD start, two random ones."""
    fits = []
    for start in range(3):
        init = "svd" if start == 0 else "random"
        found = tensorly.cp_to_tensor(parafac(X, rank, init=init, random_state=seed + start, tol=1e-6, n_iter_max=100))
        fits.append((np.sum((X - found) ** 2), np.sqrt(np.mean((found - clean) ** 2))))
    return float(min(fits)[1])


def measure(d, n_atoms, p, modes, sigma, seed, cp=None):
    """Return the wrong bits and errors of all methods on one tensor, and whether the search failed.

    `cp` is the error of CP-ALS, if it is known, or nan to leave it out.
    """
    options = {} if modes is None else {"boolean_modes": modes}
    X, clean, truth = make_boolean_cp((d, d, d), n_atoms, p=p, noise=sigma, random_state=seed, **options)
    n_bits = d * n_atoms
    start = time.process_time()
    model = BMP(n_atoms, boolean_modes=modes, random_state=seed).fit(X)
    seconds = time.process_time() - start
    best, loss = from_truth(X, truth, keeps_bits=False)
    found = model.decomposition_, known_columns(X, truth), best
    row = {f"wrong bits, {name}": n_bits * hamming_error(W, truth) for name, W in zip(METHODS, found, strict=False)}
    row |= {f"RMSE, {name}": rmse(W, clean) for name, W in zip(METHODS, found, strict=False)}
    row["RMSE, CP-ALS"] = cp_error(X, clean, n_atoms, seed) if cp is None else cp
    row["failed"] = int(np.sum((X - found[0].to_tensor()) ** 2) > 2 * loss + 0.01 * sigma**2)
    return row | {"seconds": seconds}


def tasks(names, n_seeds, n_large):
    """Yield case, noise level and seed of each tensor, seed by seed, so that a run that is ended has some of each."""
    for at in range(max(n_seeds, n_large)):
        for name in names:
            if at < (n_seeds if CASES[name][0] == 60 else n_large):
                for sigma in CASES[name][4]:
                    yield name, float(sigma), FIRST_SEED + at


def read(place):
    """Return the rows of a file, none if it is not there."""
    if not place.exists():
        return []
    with place.open(newline="") as file:
        return list(csv.DictReader(file))


def run(wanted, place, is_refit, n_cp):
    """Measure the tensors that are not in the file yet, or that another commit fitted if `is_refit`; save each row.

    CP-ALS is run on the first `n_cp` seeds of 150^3.
    """
    rows, version = {(row["case"], float(row["sigma"]), int(row["seed"])): row for row in read(place)}, commit()
    for name, sigma, seed in wanted:
        old = rows.get((name, sigma, seed))
        if old is not None and not (is_refit and old["commit"] != version):
            continue
        is_left_out = CASES[name][0] > 60 and seed >= FIRST_SEED + n_cp
        cp = float(old["RMSE, CP-ALS"]) if old is not None else np.nan if is_left_out else None
        row = {"case": name, "sigma": sigma, "seed": seed} | measure(*CASES[name][:4], sigma, seed, cp)
        rows[name, sigma, seed] = row | {"commit": version}
        with place.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*row, "commit"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows.values())
        print(name, sigma, seed, row["failed"], f"{row['seconds']:.2f} s", flush=True)


def groups(rows):
    """Return the rows of each case and noise level."""
    found = {}
    for row in rows:
        found.setdefault((row["case"], float(row["sigma"])), []).append(row)
    return found


def mean(rows, column):
    """Return the mean of a column, over the rows that have it."""
    return float(np.nanmean([float(row[column]) for row in rows]))


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
    """Return a figure of the cases with atoms along all modes: wrong bits, and below them errors, against the noise."""
    found = groups(rows)
    cases = [case for case in dict.fromkeys(case for case, _ in found) if "one mode" not in case]
    looks = dict(zip(METHODS, ("#D55E00", "#8C8C8C", "#000000", "#0072B2"), strict=True))
    n_bands, n_across = -(-len(cases) // 4), min(len(cases), 4)
    figure = Figure(figsize=(7.2, 2.9 * n_bands), layout="constrained")
    axes = figure.subplots(2 * n_bands, n_across, squeeze=False)
    for at, case in enumerate(cases):
        top, bottom = axes[2 * (at // 4) : 2 * (at // 4) + 2, at % 4]
        levels, n_bits = [sigma for name, sigma in found if name == case], CASES[case][0] * CASES[case][1]
        for name, color in looks.items():
            look = {"color": color, "marker": "o", "markersize": 3, "linewidth": 1.2, "clip_on": False, "label": name}
            look["linestyle"] = "--" if name == "from the truth" else "-"
            if name != "CP-ALS":
                shares = [mean(found[case, sigma], f"wrong bits, {name}") / n_bits for sigma in levels]
                top.plot(levels, 100 * np.array(shares), **look)
            if name != "known u and w":  # its error is that of single bits, or none
                errors = [[mean(found[case, sigma], f"RMSE, {one}") for sigma in levels] for one in (name, METHODS[2])]
                bottom.plot(levels, np.divide(*errors), **look)
        size, rest = case.split(", ", 1)
        top.set_title(f"${size[:-2]}^3$, {rest}", fontsize=7.5)
        top.set_ylim(-1, 40)
        bottom.set_ylim(0.95, 2.2)
        bottom.set_xlabel("noise $\\sigma$", fontsize=7)
    for band in range(n_bands):
        axes[2 * band, 0].set_ylabel("wrong bits (%)", fontsize=7)
        axes[2 * band + 1, 0].set_ylabel("RMSE, truth-started = 1", fontsize=7)
    for unused in axes.reshape(n_bands, 2, n_across)[-1, :, len(cases) - 4 * (n_bands - 1) :].flat:
        unused.remove()
    handles = {line.get_label(): line for ax in axes[:2, 0] for line in ax.lines}
    figure.legend(
        [handles[name] for name in METHODS], METHODS, loc="outside lower center", ncols=4, fontsize=7.5, frameon=False
    )
    return figure


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", nargs="*", default=[""], help="parts of the names of the cases to run")
    parser.add_argument("--seeds", type=int, default=20, help="seeds at 60^3")
    parser.add_argument("--large-seeds", type=int, default=8, help="seeds at 150^3")
    parser.add_argument("--large-cp", type=int, default=8, help="seeds of CP-ALS at 150^3")
    parser.add_argument("--anew", action="store_true", help="forget the rows of earlier runs")
    parser.add_argument("--refit", action="store_true", help="fit again where a row is of another commit")
    parser.add_argument("--draw", action="store_true", help="make table and figure of the rows that are there")
    options = parser.parse_args()
    place = RESULTS / "noise.csv"
    if options.anew:
        place.unlink(missing_ok=True)
    if not options.draw:
        names = [name for name in CASES if any(part in name for part in options.cases)]
        run(tasks(names, options.seeds, options.large_seeds), place, options.refit, options.large_cp)
    order = list(CASES)
    rows = sorted(read(place), key=lambda row: (order.index(row["case"]), float(row["sigma"]), int(row["seed"])))
    text = __doc__.split("\n\n", 1)[1].strip()
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    n_cp = sum(row["RMSE, CP-ALS"] != "nan" for row in rows)
    made = f"The {len(rows)} rows of `noise.csv` were made with commits {commits}; {n_cp} have CP-ALS."
    asked = [shlex.quote(word) for word in sys.argv[1:]]
    parts = ["# Where it breaks: bits and errors as the noise grows", text, made, failures(rows), summarize(rows)]
    write("noise.md", " ".join([COMMAND, *asked]), parts, "tensorly")
    draw(rows).savefig(IMAGE, dpi=200)


def failures(rows):
    """Return a table of the share of search failures by density of the bits and noise."""
    lines = []
    kinds = (0.5, np.inf, "p = 0.5"), (0.1, 6.0, "p = 0.1, sigma at most 6"), (0.1, np.inf, "p = 0.1")
    for p, highest, words in kinds:
        for d in (60, 150):
            here = [r for r in rows if CASES[r["case"]][0] == d and CASES[r["case"]][2] == p]
            here = [r for r in here if float(r["sigma"]) <= highest]
            if here:
                n_failed = sum(int(r["failed"]) for r in here)
                lines.append([f"{d}^3", words, len(here), n_failed, f"{100 * n_failed / len(here):.1f} %"])
    return table(["size", "tensors of", "number", "search failures", "share"], lines)


if __name__ == "__main__":
    main()
