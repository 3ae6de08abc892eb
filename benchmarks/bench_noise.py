"""Where a fit breaks as the noise grows, and where every fit does: wrong bits, error and failures of the search.

Each tensor is fitted by the default, by a polish that starts at the truth, by CP-ALS of TensorLy with as many starts as
the search of the default made (at least five), and its bits are decided with all real columns and weights known. A
search failure is a fit whose loss is above that of the polish from the truth by more than 0.01 sigma^2. The seeds
(30000, 30001, ..) were not used in development. Seconds are processor time. At 150^3 CP-ALS is run on the first seed
alone.

sigma* = |atom| / (sum of sqrt(d) over the real modes + sqrt(0.405 d_n)) is the noise at which the best atom of pure
noise is as large as the median atom: a dotted line in the figure. About there the default begins to lose atoms; a fit
from the truth may still keep them, above all where bits are sparse.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from bench_refine import from_truth
from common import RESULTS, collect, count_starts, table, write
from cp_tucker import CP
from golden import best_rows
from matplotlib.figure import Figure

from boolcp import BMP, BooleanCP, contractions
from boolcp.datasets import make_boolean_cp
from boolcp.metrics import hamming_error, rmse

COMMAND = "python benchmarks/bench_noise.py"
FIRST_SEED = 30000
LOST = 0.05  # share of bits
IMAGE = Path(__file__).parents[1] / "docs" / "images" / "noise.png"
DENSE = {60: (4, 8, 12, 16, 22), 150: (20, 30, 40, 50)}
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


def breakdown(truth):
    """Return sigma*, at which the best atom of pure noise has the norm of the median atom."""
    norms = np.abs(truth.weights) * np.sqrt([atom.n_ones for atom in truth.atoms])
    d, n = np.array(truth.shape), truth.atoms[0].mode
    edge = np.sum(np.sqrt(np.delete(d, n))) + np.sqrt(0.405 * d[n])
    return float(np.median(norms) / edge)


def measure(job):
    """Yield the wrong bits and errors of all methods on one tensor, and whether the search failed."""
    d, n_atoms, p, modes, _ = CASES[job["case"]]
    sigma, seed = job["sigma"], job["seed"]
    options = {} if modes is None else {"boolean_modes": modes}
    X, clean, truth = make_boolean_cp((d, d, d), n_atoms, p=p, noise=sigma, random_state=seed, **options)
    n_bits = d * n_atoms
    start = time.process_time()
    model = BMP(n_atoms, boolean_modes=modes, random_state=seed)
    n_starts = count_starts(model, X)
    seconds = time.process_time() - start
    best, loss = from_truth(X, truth, keeps_bits=False)
    found = model.decomposition_, known_columns(X, truth), best
    row = {f"wrong bits, {name}": n_bits * hamming_error(W, truth) for name, W in zip(METHODS, found, strict=False)}
    row |= {f"RMSE, {name}": rmse(W, clean) for name, W in zip(METHODS, found, strict=False)}
    row["RMSE, CP-ALS"] = np.nan
    if d <= 60 or seed == FIRST_SEED:
        row["RMSE, CP-ALS"] = rmse(CP(n_atoms, n_init=max(5, n_starts), random_state=seed).fit(X).decomposition_, clean)
    row["failed"] = int(np.sum((X - found[0].to_tensor()) ** 2) > 2 * loss + 0.01 * sigma**2)
    yield row | {"starts": n_starts, "sigma*": breakdown(truth), "seconds": seconds}


def plan(n_seeds, n_large):
    """Return case, noise level and seed of each tensor."""
    return [
        {"case": name, "sigma": float(sigma), "seed": FIRST_SEED + at}
        for name, (d, _, _, _, levels) in CASES.items()
        for sigma in levels
        for at in range(n_seeds if d == 60 else n_large)
    ]


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


def all_levels(found, case):
    """Return the rows of all noise levels of a case."""
    return [row for (name, _), rows in found.items() if name == case for row in rows]


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
        for ax in (top, bottom):
            ax.axvline(mean(all_levels(found, case), "sigma*"), color="0.5", linestyle=":", label="$\\sigma^*$")
            ax.tick_params(labelsize=7)
            ax.spines[["top", "right"]].set_visible(False)
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
    names = [*METHODS, "$\\sigma^*$"]
    figure.legend(
        [handles[name] for name in names], names, loc="outside lower center", ncols=5, fontsize=7.5, frameon=False
    )
    return figure


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10, help="seeds at 60^3")
    parser.add_argument("--large-seeds", type=int, default=3, help="seeds at 150^3")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    command = f"{COMMAND} --seeds {options.seeds} --large-seeds {options.large_seeds}"
    jobs = plan(options.seeds, options.large_seeds)
    rows = collect(measure, jobs, RESULTS / "noise.csv", command, jobs=options.jobs, packages=("tensorly",))
    text = __doc__.split("\n\n", 1)[1].strip()
    parts = ["# Where it breaks: bits and errors as the noise grows", text]
    parts += [failures(rows), predictions(rows), summarize(rows)]
    write("noise.md", command, parts, "tensorly")
    draw(rows).savefig(IMAGE, dpi=300)


def predictions(rows):
    """Return a table of what sigma* predicts: below it hardly a bit is lost by the search, above it many are."""
    found, lines, total = groups(rows), [], np.zeros(2, dtype=int)
    for case, (d, n_atoms, *_) in CASES.items():
        levels = {sigma: here for (name, sigma), here in found.items() if name == case}
        shares = {
            sigma: (mean(here, "wrong bits, default") - mean(here, "wrong bits, known u and w")) / (d * n_atoms)
            for sigma, here in levels.items()
        }
        limit = mean(all_levels(found, case), "sigma*")
        right = sum((share >= LOST) == (sigma > limit) for sigma, share in shares.items())
        total += right, len(shares)
        cells = ", ".join(f"{sigma:g}: {100 * share:.1f} %" for sigma, share in shares.items())
        lines.append([case, f"{limit:.1f}", cells, f"{right} of {len(shares)}"])
    lines.append(["all", "", "", f"{total[0]} of {total[1]}"])
    lost = "bits lost beyond those with known columns, by sigma"
    return table(["case", "sigma*", lost, "levels on the predicted side of 5 %"], lines)


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
