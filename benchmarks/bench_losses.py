"""Weights, nonnegative parts and losses: wrong bits, errors and times, beside TensorLy, tensortools and pyttb.

    python benchmarks/bench_losses.py weights huber

Parts that are left out keep their last table in results/losses.md; without names all are run. Settings were
chosen on seeds 100 to 189, 300 to 335, 400 to 439, 500 to 527 and 600 to 659, on splits 7700 to 7702 of the spikes
and 7800 to 7803 of the ECoG and, for the confidence of bits, on seeds 20000 to 20019; the tables use others.
"""

import argparse
import contextlib
import io
import logging
import time
import warnings
from itertools import pairwise

import numpy as np
from bench_trust import EDGES, calibration_cells, pairs
from common import spread, table, write_section
from golden import deviances
from real_data import data_folder, missing_reason

import boolcp
from boolcp import Atom, BooleanCP
from boolcp.metrics import hamming_error, rmse

SEEDS = (9000, 9001, 9002)
SHAPE = (20, 22, 24)
BIT_SEEDS = range(9200, 9220)
KINDS = ("huber", "poisson", "bernoulli")
QUICK = 1.0  # seconds of a call below which it is timed three times
N_STARTS = 10  # of pyttb, as many as boolcp has at most


def quiet(function, *args, **options):
    """Return the result of a call; what it prints is not shown."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


def timed(function, *args, **options):
    """Return the result of a call and its processor time, the least of three if it is short."""
    times = []
    while not times or (len(times) < 3 and times[0] < QUICK):
        start = time.process_time()
        result = quiet(function, *args, **options)
        times.append(time.process_time() - start)
    return result, min(times)


def n_wrong(W, truth):
    """Return the number of wrong bits."""
    return round(hamming_error(W, truth) * sum(len(atom.z) for atom in truth.atoms))


def positive(rng, n_atoms=3):
    """Return atoms along each mode in turn with nonnegative parts (gamma draws) and equal means, of mean one."""
    atoms, shape = [], SHAPE
    for k in range(n_atoms):
        mode = k % len(shape)
        parts = [rng.gamma(2.0, size=(d, 1)) for n, d in enumerate(shape) if n != mode]
        atoms.append(Atom(mode, rng.random(shape[mode]) < 0.5, tuple(A / np.linalg.norm(A) for A in parts)))
    sizes = [BooleanCP(shape, (atom,), [1.0]).to_tensor().mean() for atom in atoms]
    return BooleanCP(shape, tuple(atoms), 1 / (n_atoms * np.array(sizes)))


def scaled(W, size):
    """Return a decomposition times a number."""
    return BooleanCP(W.shape, W.atoms, W.weights * size)


def bench_weights():
    """Noise that differs tenfold between channels; repeated slices; masks."""
    rows = []
    for seed in SEEDS:
        _, clean, truth = boolcp.datasets.make_boolean_cp((40, 50, 60), 4, random_state=seed)
        rng = np.random.default_rng(seed)
        sigma = 2 * rng.permutation(np.geomspace(0.5, 5, 40))[:, None, None]
        X = clean + sigma * rng.standard_normal(clean.shape)
        known = np.broadcast_to(sigma**-2, X.shape)
        fits = [quiet(boolcp.decompose, X, 4, weights=w, random_state=0) for w in (None, known)]
        errors = [f"{np.sqrt(np.mean(((W.to_tensor() - clean) / sigma) ** 2)):.4f}" for W in fits]
        rows.append([seed, *(n_wrong(W, truth) for W in fits), *errors])
    X, clean, _ = boolcp.datasets.make_boolean_cp(SHAPE, 3, noise=1, random_state=SEEDS[0])
    counts = np.arange(SHAPE[2]) % 3 + 1
    Y, last = np.repeat(X, counts, axis=2), np.cumsum(counts) - 1
    one = boolcp.decompose(X, 3, weights=np.broadcast_to(1.0 * counts, SHAPE), random_state=0)
    other = boolcp.decompose(Y, 3, random_state=0)
    same = np.abs(one.to_tensor() - other.to_tensor()[:, :, last]).max()
    mask = np.random.default_rng(0).random(X.shape) < 0.7
    zero = boolcp.decompose(X, 3, weights=mask.astype(float), random_state=0).to_tensor()
    masked = np.abs(zero - boolcp.decompose(X, 3, mask=mask, random_state=0).to_tensor()).max()
    return [
        "Errors are root mean squares in units of the noise of each entry.",
        table(["seed", "wrong bits: no weights", "weights", "error: no weights", "weights"], rows),
        f"Integer weights against repeated slices: largest difference {same:.1e}. Weights 0 and 1 against a mask: "
        f"{masked:.1e}.",
    ]


def bench_nonnegative():
    """Recovery of nonnegative tensors beside nonnegative CP."""
    added = "With added noise of 1 the data have negative entries; the other methods get them cut at zero."
    times = "Data times gamma noise (mean 1, variance 0.25), which have no negative entries: all methods get the same."
    both = [added, nonnegative_table(False), times, nonnegative_table(True)]
    return both


def nonnegative_table(is_positive):
    """Return errors and times with noise that is added, or multiplied so that all data are positive."""
    import tensorly
    import tensortools
    from tensorly.decomposition import non_negative_parafac_hals

    found = {}
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        truth = positive(rng)
        clean = truth.to_tensor()
        X = clean * rng.gamma(4.0, 0.25, SHAPE) if is_positive else clean + rng.standard_normal(SHAPE)
        options = {"random_state": 0}
        fits = {
            "boolcp, squares": timed(boolcp.decompose, X, 3, **options),
            "boolcp, nonnegative": timed(boolcp.decompose, X, 3, nonnegative=True, **options),
            "TensorLy `non_negative_parafac_hals`": timed(
                non_negative_parafac_hals, np.maximum(X, 0), 3, n_iter_max=200, random_state=0
            ),
            "tensortools `ncp_hals`": timed(
                tensortools.ncp_hals, np.maximum(X, 0), 3, random_state=0, max_iter=200, verbose=False
            ),
        }
        for name, (fit, seconds) in fits.items():
            if name.startswith("boolcp"):
                estimate, wrong = fit.to_tensor(), n_wrong(fit, truth)
            else:
                is_lists = name.startswith("tensortools")
                estimate = fit.factors.full() if is_lists else tensorly.cp_to_tensor(fit)
                wrong = "-"
            found.setdefault(name, []).append((rmse(estimate, clean), wrong, seconds))
    rows = []
    for name, runs in found.items():
        errors, wrong, seconds = zip(*runs, strict=True)
        rows.append([name, spread(errors), ", ".join(map(str, wrong)), spread(seconds, 2)])
    return table(["method", "RMSE", "wrong bits", "seconds"], rows)


def bench_huber():
    """Artifacts of 50 standard deviations in 2 % of the entries, and clean data."""
    rows = []
    for seed in SEEDS:
        _, clean, truth = boolcp.datasets.make_boolean_cp((40, 50, 60), 3, random_state=seed)
        rng = np.random.default_rng(seed)
        X = clean + rng.standard_normal(clean.shape)
        hit = rng.random(clean.shape) < 0.02
        options = {"random_state": 0}
        for name, Y in (("clean", X), ("artifacts", np.where(hit, 50 * rng.standard_normal(clean.shape), X))):
            plain, t = timed(boolcp.decompose, Y, 3, **options)
            robust, s = timed(boolcp.decompose, Y, 3, loss="huber", **options)
            errors = rmse(plain, clean), rmse(robust, clean)
            wrong = n_wrong(plain, truth), n_wrong(robust, truth)
            ratios = f"{errors[1] / errors[0]:.3f}", f"{s / t:.1f}"
            rows.append([seed, name, *wrong, *(f"{e:.4f}" for e in errors), *ratios])
    head = ["seed", "data", "wrong bits: squares", "Huber", "RMSE: squares", "Huber", "ratio", "time ratio"]
    return [table(head, rows)]


def deviance(loss, x, m):
    """Return the mean deviance of predictions, with a floor at a thousandth of the mean."""
    return float(np.mean(deviances(loss, x.ravel(), np.asarray(m, dtype=float).ravel())))


def pyttb_best(X, rank, name, mask=None):
    """Return the means of the best of several starts of pyttb, by the deviance of the data that are fitted."""
    known = np.ones(X.shape, dtype=bool) if mask is None else mask
    fits = [pyttb_fit(X, rank, name, mask, seed) for seed in range(N_STARTS)]
    return min(fits, key=lambda m: deviance(name, X[known], m[known]))


def pyttb_fit(X, rank, name, mask=None, seed=0):
    """Return the means of a CP decomposition of pyttb under a loss."""
    import pyttb
    from pyttb.gcp.handles import Objectives
    from pyttb.gcp.optimizers import LBFGSB

    np.random.seed(seed)  # noqa: NPY002, from where pyttb draws its start
    kind = {"poisson": Objectives.POISSON, "bernoulli": Objectives.BERNOULLI_ODDS}[name]
    more = {} if mask is None else {"mask": mask.astype(float)}
    M, *_ = pyttb.gcp_opt(pyttb.tensor(X), rank, kind, LBFGSB(maxiter=300, iprint=-1), printitn=0, **more)
    m = M.full().data
    return m if name == "poisson" else m / (1 + m)


def bench_counts(name, sizes):
    """Simulated counts or bits: wrong bits of squares and of the loss, deviance beside pyttb."""
    rows = []
    for size in sizes:
        for seed in SEEDS:
            rng = np.random.default_rng(seed)
            truth = positive(rng)
            mean = scaled(truth, size).to_tensor()
            if name == "bernoulli":
                mean = mean * min(1.0, 0.95 / mean.max())
            X = (rng.poisson(mean) if name == "poisson" else rng.random(SHAPE) < mean).astype(float)
            plain, t = timed(boolcp.decompose, X, 3, random_state=0)
            W, s = timed(boolcp.decompose, X, 3, loss=name, random_state=0)
            other, o = timed(pyttb_best, X, 3, name)
            x = X.ravel()
            devs = [deviance(name, x, V) for V in (plain.to_tensor(), W.to_tensor(), other)]
            errors = [rmse(V, mean) / mean.mean() for V in (plain, W, other)]
            wrong = n_wrong(plain, truth), n_wrong(W, truth)
            seconds = f"{t:.2f}", f"{s:.2f}", f"{o:.2f}", f"{s / t:.1f}"
            numbers = [f"{d:.4f}" for d in devs] + [f"{e:.3f}" for e in errors]
            rows.append([f"{mean.mean():.2f}", seed, *wrong, *numbers, *seconds])
    head = ["mean", "seed", "wrong bits: squares", name, "deviance: squares", name, "pyttb"]
    head += ["error / mean: squares", name, "pyttb", "seconds: squares", name, "pyttb"]
    head += ["time ratio"]
    return [
        "pyttb fits a nonnegative CP of rank 3 with `gcp_opt` (L-BFGS-B): as many columns, all of them real "
        "where boolcp has bits. Deviances are those of the data that were fitted: lower is closer, not better.",
        table(head, rows),
        "Squares may predict negative means, which the deviance punishes hard: compare their bits and errors, not "
        "their deviance. pyttb has the best of 10 starts of at most 300 steps, its time is that of all of them; boolcp "
        "has at most 10. The size is one at which squares err; in trials with other seeds at 40 x 50 x 60 they found "
        "all bits, too.",
    ]


def counts_of_spikes(n_trials=50):
    """Return counts of 20 ms, unit x time x trial."""
    with np.load(data_folder() / "affinewarp_spikes" / "motor_ctx_data.npz") as file:
        units, trials, times = file["neuron_ids"], file["trial_ids"], file["spiketimes"]
    keep, X = trials < n_trials, np.zeros((units.max() + 1, 100, n_trials))
    np.add.at(X, (units[keep], np.minimum(times[keep] // 20, 99).astype(int), trials[keep]), 1)
    return X


def bench_confidence():
    """Share of wrong bits among those said to be so sure, for counts and binary data."""
    rows = []
    for name, size in (("poisson", 0.05), ("poisson", 0.1), ("poisson", 0.3), ("bernoulli", 0.06)):
        confidence, right, n_matched = [np.zeros(0)], [np.zeros(0, dtype=bool)], 0
        for seed in BIT_SEEDS:
            rng = np.random.default_rng(seed)
            truth = positive(rng)
            mean = scaled(truth, size).to_tensor()
            mean = mean * min(1.0, 0.95 / mean.max()) if name == "bernoulli" else mean
            X = (rng.poisson(mean) if name == "poisson" else rng.random(SHAPE) < mean).astype(float)
            W = quiet(boolcp.decompose, X, 3, loss=name, random_state=seed)
            for i, j in pairs(W, truth.atoms):
                n_matched += 1
                confidence.append(W.bit_confidence()[i])
                right.append(W.atoms[i].z == truth.atoms[j].z)
        p, ok = np.concatenate(confidence), np.concatenate(right)
        found = [*calibration_cells(p, ok), f"{np.sum(~ok)} / {np.sum(1 - p):.1f}"]
        rows.append([name, size, f"{n_matched} of {3 * len(BIT_SEEDS)}", *found])
    heads = ["", "mean", "atoms matched", *(f"{100 * a:.0f} to {100 * b:.0f} %" for a, b in pairwise(EDGES))]
    return [
        f"Bits of the atoms that match a true one (cosine of the real parts above 1/2), seeds {BIT_SEEDS[0]} to "
        f"{BIT_SEEDS[-1]}. In each cell: wrong bits in percent of all bits with this confidence (what it promises; how "
        "many bits).",
        table([*heads, "wrong / said"], rows),
    ]


def bench_spikes():
    """Held-out deviance of the counts of rat motor cortex, beside pyttb with fewer and with more parameters."""
    X = counts_of_spikes()
    rows = []
    for seed in SEEDS:
        mask = np.random.default_rng(seed).random(X.shape) < 0.9
        x = X[~mask]
        options = {"mask": mask, "random_state": 0}
        plain, t = timed(boolcp.decompose, X, 4, **options)
        W, s = timed(boolcp.decompose, X, 4, loss="poisson", **options)
        more = quiet(boolcp.decompose, X, 5, loss="poisson", **options)
        row, seconds = [], [t, s]
        for V in (W, more):
            row += [f"{deviance('poisson', x, V.to_tensor()[~mask]):.4f}", V.n_parameters]
        for rank in (3, 4):
            other, o = timed(pyttb_best, X, rank, "poisson", mask)
            row += [f"{deviance('poisson', x, other[~mask]):.4f}"]
            seconds.append(o)
        squares = f"{deviance('poisson', x, plain.to_tensor()[~mask]):.4f}"
        rows.append([seed, squares, *row, *(f"{each:.1f}" for each in seconds), f"{s / t:.1f}"])
    head = ["seed", "squares", "Poisson, 4 atoms", "its parameters", "5 atoms", "its parameters"]
    head += ["pyttb, rank 3 (534)", "pyttb, rank 4 (712)"]
    head += ["seconds: squares", "Poisson", "pyttb 3", "pyttb 4", "time ratio"]
    text = (
        "Mean deviance of 10 % of the entries, which were held out. That of squares is large because they predict "
        "negative counts: it is no comparison. The bits of boolcp come on top of its real parameters."
    )
    return [text, table(head, rows)]


def bench_artifact():
    """A recording with one artifact on all channels: error of other trials by squares, Huber, and without the trial."""
    with np.load(data_folder() / "neurotycho_food_tracking" / "food_tracking_B_64ch_250Hz_300s.npz") as file:
        signal = file["data"].astype(float).reshape(64, -1, 10).mean(axis=2)[:, :2500]
    signal /= 1.4826 * np.median(np.abs(signal - np.median(signal, axis=1, keepdims=True)), axis=1)[:, None]
    X = (signal - signal.mean(axis=0)).reshape(64, 100, 25).transpose(0, 2, 1)
    is_bad = np.abs(X).max(axis=(0, 1)) > 10
    rows = []
    for seed in SEEDS:
        mask = np.random.default_rng(seed).random(X.shape) < 0.9
        options = {"boolean_modes": [2], "random_state": 0}
        fits = [
            timed(boolcp.decompose, X, 4, mask=mask, **options),
            timed(boolcp.decompose, X, 4, mask=mask, loss="huber", **options),
            timed(boolcp.decompose, X, 4, mask=mask & ~is_bad, **options),
        ]
        hidden = ~mask & ~is_bad
        errors = [f"{rmse(W.to_tensor()[hidden], X[hidden]):.4f}" for W, _ in fits]
        ones = [" ".join(str(n) for n in sorted(atom.n_ones for atom in W.atoms)) for W, _ in fits]
        (_, t), (_, s), _ = fits
        rows.append([seed, *errors, *ones, f"{t:.2f}", f"{s:.2f}", f"{s / t:.1f}"])
    head = ["seed", "RMSE: squares", "Huber", "squares without the trial", "on in so many trials: squares", "Huber"]
    head += ["squares without the trial", "seconds: squares", "Huber", "time ratio"]
    text = (
        "ECoG of the food-tracking task, 64 channels x 1 s at 25 Hz x 100 trials, common average as reference. "
        f"Atoms are on or off along trials. {np.count_nonzero(is_bad)} trial holds an artifact of up to "
        f"{np.abs(X).max():.0f} standard deviations on all channels. RMSE of 10 % of the entries of the other "
        "trials, which were held out."
    )
    return [text, table(head, rows)]


PARTS = {
    "weights": bench_weights,
    "nonnegative": bench_nonnegative,
    "huber": bench_huber,
    "poisson": lambda: bench_counts("poisson", (0.1, 0.3, 1.0)),
    "bernoulli": lambda: bench_counts("bernoulli", (0.1,)),
    "confidence": bench_confidence,
    "spikes": bench_spikes,
    "artifact": bench_artifact,
}
TITLES = {
    "weights": "Weights: noise from 1 to 10 along mode 0 of 40 x 50 x 60, 4 atoms",
    "nonnegative": "Nonnegative parts: 20 x 22 x 24, 3 atoms, mean 1",
    "huber": "Huber: 40 x 50 x 60, 3 atoms, noise 1, 2 % replaced by artifacts of 50",
    "poisson": "Poisson: 20 x 22 x 24, 3 atoms",
    "bernoulli": "Bernoulli: 20 x 22 x 24, 3 atoms",
    "confidence": "Confidence of bits under a loss: 20 x 22 x 24, 3 atoms",
    "spikes": "Spikes of motor cortex (30 units x 100 bins x 50 trials), 4 atoms",
    "artifact": "Huber on a recording with an artifact, 4 atoms",
}


def warm_up():
    """Load the compiled kernels of all losses, so that no time includes that."""
    rng = np.random.default_rng(0)
    X, mask = (rng.random(SHAPE) < 0.3).astype(float), rng.random(SHAPE) < 0.9
    for options in ({}, {"nonnegative": True}, *({"loss": each} for each in KINDS)):
        for known in (None, mask):
            timed(boolcp.decompose, X, 3, mask=known, random_state=0, **options)


def main():
    """Compute tables and put them into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], help="which parts; all by default")
    names = parser.parse_args().parts or list(PARTS)
    if missing_reason():
        print(f"Recordings are left out: {missing_reason()}.")
        names = [name for name in names if name not in ("spikes", "artifact")]
    warm_up()
    logging.disable(logging.WARNING)  # of pyttb, one for each step
    titles = ["Weights, nonnegative parts, losses", *TITLES.values()]
    for name in names:
        command = f"python benchmarks/bench_losses.py {name}"
        parts = [TITLES[name], *PARTS[name]()]
        write_section("losses.md", titles, command, parts, "tensorly", "tensortools", "pyttb")


if __name__ == "__main__":
    main()
