"""The golden table: loss, bits, certificates and processor seconds of fits that every change of the fit is judged by.

    python benchmarks/golden.py --write        # make results/golden.csv
    python benchmarks/golden.py [--only syn]   # fit again and compare with it

A cell is one fit, or several seeds of the same kind added up. Losses are |X - W|^2 / |X|^2 over the observed entries,
with weights, or the mean deviance. Where a search may fail, `limit` is the loss of a plain descent that begins at
the truth, and a failure is a fit that ends above it. The comparison ends with status 1 if a cell has more wrong
bits or failures, or if more than two have a higher loss. Recordings are in the folder named by BOOLCP_DATA; events of
eeglab_epochs at half samples were cut one sample later in the first table: on that tensor the losses agree.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
import hashlib
import inspect
import shlex
import sys
import tempfile
import time
import warnings
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import real_data
from common import RESULTS, commit, environment

import boolcp
from boolcp import BMP
from boolcp.datasets import load_syn, make_boolean_cp
from boolcp.metrics import hamming_error
from boolcp.result.atoms import Atom, BooleanCP

PLACE = RESULTS / "golden.csv"
EQUAL, EQUAL_DEVIANCE = 1e-6, 1e-3  # relative loss above which a fit is worse; scales of other losses are estimated
MOST_WORSE, SLOW = 2, 1.5
QUICK = 2.0  # seconds of a cell below which it is timed three times
SAME_LOSS = 0.01  # of the variance of the noise: a loss above the limit by more is a failure of the search
FIRST_SEED = 30000
SHAPE = (20, 22, 24)
BATTERY = {  # shape, atoms, options of the data
    "150^3, 15 atoms, p = 0.1": ((150, 150, 150), 15, {"p": 0.1}),
    "150^3, 15 atoms, p = 0.9": ((150, 150, 150), 15, {"p": 0.9}),
    "60^3, 9 atoms, p = 0.1": ((60, 60, 60), 9, {"p": 0.1}),
    "150^3, 30 atoms": ((150, 150, 150), 30, {}),
    "30x40x50, 9 atoms": ((30, 40, 50), 9, {}),
    "20^3, 15 atoms": ((20, 20, 20), 15, {}),
    "10x400x60, 9 atoms": ((10, 400, 60), 9, {}),
    "10x400x60, 6 atoms, p = 0.3": ((10, 400, 60), 6, {"p": 0.3}),
    "40^3, 9 atoms, sigma = 3": ((40, 40, 40), 9, {"noise": 3.0}),
    "20^4, 12 atoms": ((20, 20, 20, 20), 12, {}),
    "60^3, 9 atoms, weights 1 to 10": ((60, 60, 60), 9, {"weights": np.geomspace(1, 10, 9) / np.sqrt(10)}),
    "60^3, 9 atoms, one Boolean mode": ((60, 60, 60), 9, {"boolean_modes": [0]}),
    "60^3, 9 atoms, one Boolean mode, p = 0.9": ((60, 60, 60), 9, {"boolean_modes": [1], "p": 0.9}),
}


class Case(NamedTuple):
    """A fit: the data, parameters of BMP and of fit, and what is known of the answer."""

    X: object
    options: dict
    truth: BooleanCP | None = None
    given: dict = {}  # noqa: RUF012, mask or weights
    sigma: float | None = None  # of the noise, where failures are counted
    dense: np.ndarray | None = None  # X itself, if it is on disk


def estimator(n_atoms, **options):
    """Return a BMP; commit 34bffee, the first of the table, has a background and writes None for "block"."""
    if "background" in inspect.signature(BMP).parameters:
        options = {"background": None} | options
        if options.get("atom_rank") == "block":
            options["atom_rank"] = None
    return BMP(n_atoms, random_state=0, **options)


# losses


def log_above(m, floor):
    """Return log m, continued below the floor by its parabola."""
    step = np.minimum(m - floor, 0) / floor
    return np.log(np.maximum(m, floor)) + step - step**2 / 2


def deviances(loss, x, m, sigma=1.0):
    """Return the deviance of each entry; the threshold of Huber's loss is 1.5 sigma."""
    if loss == "huber":
        r, c = np.abs(x - m), 1.5 * sigma
        return np.where(r < c, r**2, 2 * c * r - c**2)
    if loss == "poisson":
        floor = 1e-3 * x.mean()
        return 2 * (x * (log_above(x, floor) - log_above(m, floor)) + m - x)
    floor = 1e-3 * min(x.mean(), 1 - x.mean())
    return -2 * (x * log_above(m, floor) + (1 - x) * log_above(1 - m, floor))


def loss_of(case, W):
    """Return the loss of a decomposition, relative to that of zero, or the mean deviance."""
    X = case.X if case.dense is None else case.dense
    m, loss = W.to_tensor(), case.options.get("loss", "squared")
    observed = ~np.isnan(X)
    x, m = X[observed], np.nan_to_num(m[observed])
    if loss != "squared":
        return float(deviances(loss, x, m).mean())
    w = np.broadcast_to(case.given.get("weights", 1.0), X.shape)[observed]
    return float((w * (x - m) ** 2).sum() / (w * x**2).sum())


def limit_of(case, n_sweeps=200):
    """Return |X - W|^2 / |X|^2 after descending from the truth: each row in turn has the best bits and real entries."""
    X, modes = case.X, case.truth.boolean_mode
    A = [np.array(B) for B in case.truth.factors]
    for k, n in enumerate(modes):
        A[(n + 1) % X.ndim][:, k] *= case.truth.weights[k]
    last = np.inf
    for _ in range(n_sweeps):
        for n in range(X.ndim):
            others = [B for m, B in enumerate(A) if m != n]
            M = others[0]
            for B in others[1:]:
                M = (M[:, None] * B).reshape(-1, M.shape[1])
            H, P = M.T @ M, np.moveaxis(X, n, 0).reshape(len(A[n]), -1) @ M
            A[n] = best_rows(H, P, np.flatnonzero(modes != n), np.flatnonzero(modes == n))
        loss = float((X**2).sum() - 2 * (A[-1] * P).sum() + (A[-1] @ H * A[-1]).sum())
        if last - loss < 1e-10 * loss:
            break
        last = loss
    return loss / float((X**2).sum())


def best_rows(H, P, real, bits):
    """Return the rows a that minimize a'Ha - 2 p'a, real at some places and bits at the others, by trying all bits."""
    best, rows = np.full(len(P), np.inf), np.zeros(P.shape)
    for z in product((0.0, 1.0), repeat=len(bits)):
        a = np.zeros(P.shape)
        a[:, bits] = z
        if len(real):
            Q = P[:, real] - a[:, bits] @ H[np.ix_(bits, real)]
            a[:, real] = np.linalg.lstsq(H[np.ix_(real, real)], Q.T)[0].T
        value = ((a @ H) * a).sum(axis=1) - 2 * (a * P).sum(axis=1)
        rows[value < best], best = a[value < best], np.minimum(value, best)
    return rows


# cells


def planted(shape, n_atoms, seed, data=None, sigma=None, boolean_modes=None, **options):
    """Return the fit of a tensor with known atoms, by default with noise 1."""
    more = {} if boolean_modes is None else {"boolean_modes": boolean_modes}
    data = {"noise": 1.0} | (data or {}) | more
    X, _, truth = make_boolean_cp(shape, n_atoms, random_state=seed, **data)
    return Case(X, {"n_atoms": truth.n_atoms, "atom_rank": 1} | more | options, truth, sigma=sigma)


def syn(which, sigma):
    X, _, truth = load_syn(which, noise=sigma, random_state=0)
    return [Case(X, {"n_atoms": truth.n_atoms, "atom_rank": 1}, truth)]


def battery(name):
    shape, n_atoms, data = BATTERY[name]
    data = dict(data)
    modes = data.pop("boolean_modes", None)
    return [planted(shape, n_atoms, 0, data, boolean_modes=modes)]


def high_noise(n_atoms, sigma, n_seeds=5):
    seeds = range(FIRST_SEED, FIRST_SEED + n_seeds)
    return [planted((60, 60, 60), n_atoms, seed, {"noise": sigma}, sigma) for seed in seeds]


def matrices(n_atoms, n_seeds=10):
    return [planted((60, 80), n_atoms, seed, sigma=1.0) for seed in range(n_seeds)]


def rank_two():
    """Two atoms of rank two: four of rank one, of which two share their bits."""
    shape, rng, atoms = (30, 35, 40), np.random.default_rng(0), []
    for mode in (0, 2):
        parts = [np.linalg.qr(rng.standard_normal((d, 2)))[0] for n, d in enumerate(shape) if n != mode]
        factors = (parts[0] * np.array([1.0, 0.7]), *parts[1:])
        atoms.append(Atom(mode, rng.random(shape[mode]) < 0.5, tuple(np.array(A) / 1.49**0.25 for A in factors)))
    truth = BooleanCP(shape, tuple(atoms), [40.0, 30.0])
    X = truth.to_tensor() + rng.standard_normal(shape)
    return [Case(X, {"n_atoms": 2, "atom_rank": 2}, truth)]


def recording(name, rank):
    return [Case(real_data.LOADERS[name](), {"n_atoms": 6, "atom_rank": rank})]


def positive(shape, rng, n_atoms=3):
    """Return nonnegative atoms (gamma draws) along each mode in turn, all of the same mean; their sum has mean one."""
    atoms = []
    for k in range(n_atoms):
        mode = k % len(shape)
        parts = [rng.gamma(2.0, size=(d, 1)) for n, d in enumerate(shape) if n != mode]
        atoms.append(Atom(mode, rng.random(shape[mode]) < 0.5, tuple(A / np.linalg.norm(A) for A in parts)))
    sizes = [BooleanCP(shape, (atom,), [1.0]).to_tensor().mean() for atom in atoms]
    return BooleanCP(shape, tuple(atoms), 1 / (n_atoms * np.array(sizes)))


def positive_data(kind, size=1.0, seeds=(9000, 9001, 9002)):
    """Nonnegative atoms: counts, probabilities or noise added."""
    cases = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        truth = positive(SHAPE, rng)
        mean = size * truth.to_tensor()
        options = {"n_atoms": 3, "atom_rank": 1}
        if kind == "nonnegative":
            cases.append(Case(mean + rng.standard_normal(SHAPE), options | {"nonnegative": True}, truth))
            continue
        mean = mean * min(1.0, 0.95 / mean.max()) if kind == "bernoulli" else mean
        X = rng.poisson(mean) if kind == "poisson" else rng.random(SHAPE) < mean
        cases.append(Case(X.astype(float), options | {"loss": kind}, truth))
    return cases


def artifacts():
    """Noise 1, and 2 % of the entries replaced by artifacts of 50 standard deviations."""
    X, _, truth = make_boolean_cp((40, 50, 60), 3, noise=1.0, random_state=9000)
    rng = np.random.default_rng(9000)
    X = np.where(rng.random(X.shape) < 0.02, 50 * rng.standard_normal(X.shape), X)
    return [Case(X, {"n_atoms": 3, "atom_rank": 1, "loss": "huber"}, truth)]


def weighted():
    """Noise from 1 to 10 along mode 0."""
    _, clean, truth = make_boolean_cp((40, 50, 60), 4, random_state=9000)
    rng = np.random.default_rng(9000)
    sigma = 2 * rng.permutation(np.geomspace(0.5, 5, 40))[:, None, None]
    X = clean + sigma * rng.standard_normal(clean.shape)
    w = np.array(np.broadcast_to(sigma**-2, X.shape))
    return [Case(X, {"n_atoms": 4, "atom_rank": 1}, truth, {"weights": w})]


def on_disk(folder, missing=0.0):
    import zarr

    X, _, truth = make_boolean_cp((200, 200, 200), 6, noise=1.0, missing=missing, random_state=0)
    z = zarr.open_array(str(folder / f"{missing:g}.zarr"), mode="w", shape=X.shape, chunks=(50, 50, 200), dtype="f8")
    z[:] = X
    return [Case(z, {"n_atoms": 6, "atom_rank": 1}, truth, dense=X)]


def cells(folder):
    """Return the cells, {name: function that makes its fits}."""
    found = {f"Syn{n}, sigma {s:g}": lambda n=n, s=s: syn(n, s) for s in (1.0, 5.0, 10.0) for n in range(3)}
    found |= {name: lambda name=name: battery(name) for name in BATTERY}
    for K, s in product((3, 9), (10.0, 14.0, 18.0)):
        found[f"60^3, {K} atoms, noise {s:g}"] = lambda K=K, s=s: high_noise(K, s)
    found["10x12x14x16, 4 atoms"] = lambda: [planted((10, 12, 14, 16), 4, 0)]
    found["30x35x40, 2 atoms of rank 2"] = rank_two
    found["60^3, 6 atoms, p = 0.05"] = lambda: [planted((60, 60, 60), 6, 0, {"p": 0.05})]
    found |= {f"matrix 60x80, {K} atoms": lambda K=K: matrices(K) for K in (3, 4, 6, 8)}
    for share in (0.1, 0.5, 0.8):
        gaps = {"missing": share}
        found[f"gaps, {share:.0%}"] = lambda gaps=gaps: [planted((40, 50, 60), 4, 0, gaps)]
    found |= {
        "counts, mean 1": lambda: positive_data("poisson"),
        "counts, mean 0.3": lambda: positive_data("poisson", 0.3),
        "bernoulli": lambda: positive_data("bernoulli", 0.2),
        "nonnegative": lambda: positive_data("nonnegative"),
        "artifacts": artifacts,
        "weights": weighted,
        "disk, 200^3": lambda: on_disk(folder),
    }
    if (why := real_data.missing_reason()) is not None:
        print(f"no recordings: {why}")
        return found
    for name, rank in product(real_data.LOADERS, (1, "block")):
        found[f"{name}, {rank}"] = lambda name=name, rank=rank: recording(name, rank)
    return found


# measures


def fingerprint(decompositions):
    """Return a short hash of the modes and bits of all atoms, in any order."""
    texts = [sorted(f"{a.mode}:{np.packbits(a.z).tobytes().hex()}" for a in W.atoms) for W in decompositions]
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:12]


def fit_all(cases):
    """Return the fitted models of a cell, and its processor seconds."""
    models = [estimator(**case.options) for case in cases]
    begin = time.process_time()
    for case, model in zip(cases, models, strict=True):
        model.fit(case.X, **case.given)
    return models, time.process_time() - begin


def n_wrong(W, truth):
    return hamming_error(W, truth) * sum(len(atom.z) for atom in truth.atoms)


def measure(cases):
    """Return the row of a cell."""
    models, *times = fit_all(cases)
    while len(times) < 3 and times[0] < QUICK:
        times.append(fit_all(cases)[1])
    found = [model.decomposition_ for model in models]
    losses = [loss_of(case, W) for case, W in zip(cases, found, strict=True)]
    certificates = [atom.certificate for W in found for atom in W.atoms]
    certificates = [c for c in certificates if c is not None and not np.isnan(c)]  # losses have none
    row = {"loss": repr(float(np.mean(losses))), "wrong": "", "limit": "", "failures": ""}
    if cases[0].truth is not None:
        row["wrong"] = f"{sum(n_wrong(W, case.truth) for case, W in zip(cases, found, strict=True)):g}"
    if cases[0].sigma is not None:
        limits = [limit_of(case) for case in cases]
        above = [
            loss - limit > SAME_LOSS * case.sigma**2 / float((case.X**2).sum())
            for case, loss, limit in zip(cases, losses, limits, strict=True)
        ]
        row |= {"limit": repr(float(np.mean(limits))), "failures": sum(above)}
    row |= {"atoms": sum(W.n_atoms for W in found), "bits": fingerprint(found)}
    row |= {"least certificate": "", "mean certificate": ""}
    if certificates:
        row |= {"least certificate": f"{min(certificates):.6f}", "mean certificate": f"{np.mean(certificates):.6f}"}
    passes = max(getattr(model, "n_passes_", 0) for model in models)
    return row | {"passes": passes, "fits": len(cases), "seconds": f"{np.median(times):.3f}"}


def warm_up(folder):
    """Fit tensors of each kind, so that no time is that of compilation."""
    X = make_boolean_cp(SHAPE, 3, noise=1.0, random_state=1).X
    for rank in (1, 2, "block"):
        estimator(3, atom_rank=rank).fit(X)
    estimator(3, atom_rank=1).fit(X[0])
    kinds = [positive_data(kind, 0.3, (1,)) for kind in ("poisson", "bernoulli", "nonnegative")]
    kinds += [artifacts(), weighted(), on_disk(folder), [planted((8, 9, 10, 11), 2, 1)]]
    kinds += [[planted(SHAPE, 3, 1, {"missing": share})] for share in (0.1, 0.8)]
    for cases in (*kinds, high_noise(9, 18.0, 1)):
        fit_all(cases)


def read(place):
    """Return the rows of the table by name."""
    with place.open(newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {row["cell"]: row for row in rows}


def save(rows, place, made_with):
    """Write the table; what it was made with stands in comments."""
    command = " ".join(["python benchmarks/golden.py", *map(shlex.quote, sys.argv[1:])])
    with place.open("w", newline="") as file:
        file.write(
            f"# {command}\n# {made_with}\n# seconds of the processor, one thread; bits: hash of modes and bits\n"
        )
        writer = csv.DictWriter(file, list(next(iter(rows.values()))), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows.values())


def compare(row, old):
    """Print a cell beside the table; return loss ratio - 1, if loss and bits are worse, time ratio and times."""
    is_deviance = row["cell"].startswith(("counts", "bernoulli", "artifacts"))
    ratio = float(row["loss"]) / float(old["loss"]) - 1
    is_worse = ratio > (EQUAL_DEVIANCE if is_deviance else EQUAL)
    is_wrong = any(float(row[name] or 0) > float(old[name] or 0) for name in ("wrong", "failures"))
    times = float(row["seconds"]) / max(float(old["seconds"]), 1e-3)
    same = "same bits" if row["bits"] == old["bits"] else "other bits"
    planted = f"wrong {row['wrong']}/{old['wrong']}" if row["wrong"] else ""
    failed = f"failures {row['failures']}/{old['failures']}" if old["failures"] else ""
    sure = f"certificates {row['mean certificate'] or '-'}/{old['mean certificate'] or '-'}"
    marks = "LOSS " * is_worse + "BITS " * is_wrong + "SLOW" * (times > SLOW)
    parts = f"{ratio:+.1e}", f"{planted:14}", f"{failed:14}", same, sure, f"time {times:.2f}", marks
    print(f"{row['cell']:42}", *parts, flush=True)
    return ratio, is_worse, is_wrong, times, float(row["seconds"]), float(old["seconds"])


def summarize(found):
    """Print the sums over all cells and return True if none is violated."""
    worse, wrong, ratios, now, before = (sum(row[n] for row in found.values()) for n in (1, 2, 3, 4, 5))
    slow = [name for name, row in found.items() if row[3] > SLOW]
    print(f"\n{len(found) - worse} of {len(found)} cells with an equal or lower loss; {wrong} with more wrong bits")
    print(f"seconds: {now:.1f} now, {before:.1f} before, ratio {now / before:.2f}; sum of the ratios {ratios:.1f}")
    print(f"{len(slow)} cells slower than {SLOW} times before{': ' if slow else ''}{'; '.join(slow)}")
    return not wrong and worse <= MOST_WORSE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table instead of comparing with it")
    parser.add_argument("--only", default="", help="run the cells whose names contain this text")
    parser.add_argument("--commit", help="name of the commit of the code that runs, if it is elsewhere (PYTHONPATH)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = read(PLACE) if PLACE.exists() else {}
    if not options.write and not rows:
        parser.error(f"{PLACE} is not there: make it with --write")
    found, made_with = {}, f"commit {options.commit or commit()}, {environment('scikit-learn')}"
    print(f"{Path(boolcp.__file__).parent}, {made_with}")
    with tempfile.TemporaryDirectory() as name:
        chosen = {cell: make for cell, make in cells(Path(name)).items() if options.only.lower() in cell.lower()}
        warm_up(Path(name))
        for cell, make in chosen.items():
            row = {"cell": cell} | measure(make())
            if options.write:
                rows[cell] = row
                print(*row.values(), flush=True)
                save(rows, PLACE, made_with)
            elif cell in rows:
                found[cell] = compare(row, rows[cell])
    if found and not summarize(found):
        sys.exit(1)


if __name__ == "__main__":
    main()
