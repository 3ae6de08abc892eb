"""Processor time and loss of fits beside TensorLy, tensortools and pyttb, all in one run, one thread.

`python benchmarks/bench_speed.py [--only Syn2]` writes results/speed.md. Every method stops as it does by default, from
one start and from ten (the time of all, the loss of the best); boolcp chooses its number of starts itself, and its time
includes certificates. Recordings are in the folder named by BOOLCP_DATA; their rows are medians over all of them.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import contextlib
import io
import warnings

import numpy as np
import real_data
from common import on_processor, table, write

import boolcp
from boolcp.datasets import load_syn, make_boolean_cp

COMMAND = "python benchmarks/bench_speed.py"
PACKAGES = ("tensorly", "tensortools", "pyttb")
N_STARTS = 10
MAX_SECONDS = 12.0  # of one start, above which ten are not run


def eeg_like(shape=(64, 500, 200), n_atoms=10, seed=0):
    """Return pink noise over time that is smooth over the head, white noise, and smooth responses in some trials."""
    rng = np.random.default_rng(seed)
    n_channels, n_times, n_trials = shape
    place = rng.standard_normal((n_channels, 3))
    place /= np.linalg.norm(place, axis=1, keepdims=True)
    near = np.exp(-2 * np.sum((place[:, None] - place) ** 2, axis=2))
    values, U = np.linalg.eigh(near)
    spectrum = np.fft.rfft(rng.standard_normal((n_channels, 2 * n_times, n_trials)), axis=1)
    size = np.maximum(np.arange(spectrum.shape[1]), 1) ** -0.5 * (np.arange(spectrum.shape[1]) > 0)
    pink = np.fft.irfft(spectrum * size[:, None], axis=1)[:, :n_times]
    X = np.tensordot((U * np.sqrt(np.maximum(values, 0))) @ U.T, pink, 1)
    X = X / X.std() + 0.3 * rng.standard_normal(shape)
    t = np.arange(n_times)
    for _ in range(n_atoms):
        u = np.exp(-(((np.arange(n_channels) - rng.uniform(0, n_channels)) / rng.uniform(4, 12)) ** 2))
        w = np.exp(-(((t - rng.uniform(0, n_times)) / rng.uniform(15, 60)) ** 2)) * np.cos(t / rng.uniform(5, 30))
        X += rng.uniform(0.25, 1) * u[:, None, None] * w[:, None] * (rng.random(n_trials) < rng.uniform(0.2, 0.6))
    return X


def cases():
    """Return the data, {name: list of functions that return a tensor and a number of atoms}."""
    found = {
        "Syn2, 150^3, K = 15": [lambda: (load_syn(2, noise=1.0, random_state=0)[0], 15)],
        "60^3, K = 9": [lambda: (make_boolean_cp((60, 60, 60), 9, noise=1.0, random_state=0).X, 9)],
        "EEG-like, 64 x 500 x 200, K = 10": [lambda: (eeg_like(), 10)],
        "matrix, 1000 x 1000, K = 9": [lambda: (make_boolean_cp((1000, 1000), 9, noise=1.0, random_state=0).X, 9)],
        "150^3 of 9 atoms, K = 5": [lambda: (make_boolean_cp((150, 150, 150), 9, noise=1.0, random_state=0).X, 5)],
    }
    if real_data.missing_reason() is None:
        for K in (3, 10):
            loaders = real_data.LOADERS.values()
            found[f"six recordings (median), K = {K}"] = [lambda load=load, K=K: (load(), K) for load in loaders]
    return found


def ours(X, K, seed):
    return boolcp.BMP(K, random_state=seed).fit(X).decomposition_.to_tensor()


def tensorly_with(init):
    def fit(X, K, seed):
        import tensorly as tl
        from tensorly.decomposition import parafac

        return tl.cp_to_tensor(parafac(X, K, init=init, random_state=seed))

    return fit


def tensortools(X, K, seed):
    import tensortools as tt

    return tt.cp_als(X, K, random_state=seed, verbose=False).factors.full()


def pyttb(X, K, seed):
    import pyttb as ttb

    np.random.seed(seed)  # noqa: NPY002, which pyttb draws from
    return ttb.cp_als(ttb.tensor(X), K, printitn=0)[0].full().double()


METHODS = {  # and how many starts
    "boolcp": (ours, 1),
    "TensorLy, SVD": (tensorly_with("svd"), 1),
    "TensorLy, random": (tensorly_with("random"), N_STARTS),
    "tensortools": (tensortools, N_STARTS),
    "pyttb": (pyttb, N_STARTS),
}


def measure(fit, n_starts, X, K):
    """Return seconds and relative loss of one start and of ten; NaN if they were not run, or failed."""
    times, losses = [], []
    for seed in range(n_starts):
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                found, seconds = on_processor(fit, X, K, seed)
            except Exception as error:
                print(f"{fit.__name__}: {error!r}")
                return [np.nan] * 4
        times.append(seconds)
        losses.append(float(np.sum((X - found) ** 2) / np.sum(X**2)))
        if seconds > MAX_SECONDS:
            break
    is_full = len(times) == N_STARTS
    every = [sum(times), min(losses)] if is_full else [np.nan] * 2
    return [np.median(times), np.median(losses), *every]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default="", help="the rows whose names contain this text; prints, and writes no table"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for fit, _ in METHODS.values():  # so that no time is that of an import
        measure(fit, 1, make_boolean_cp((12, 13, 14), 2, noise=1.0, random_state=0).X, 2)
    rows = []
    for name, makers in cases().items():
        if options.only not in name:
            continue
        found = {method: [] for method in METHODS}
        for make in makers:
            X, K = make()
            for method, (fit, n_starts) in METHODS.items():
                found[method].append(measure(fit, n_starts, X, K))
        base = np.array(found["boolcp"])[:, 0]
        for method, cells in found.items():
            cells = np.array(cells)
            ratios = np.median(base / cells[:, 0]), np.median(base / cells[:, 2])
            one, loss, ten, best = np.median(cells, axis=0)
            row = [
                name,
                method,
                f"{one:.2f}",
                f"{loss:.4f}",
                f"{ten:.2f}",
                f"{best:.4f}",
                *(f"{r:.2f}" for r in ratios),
            ]
            rows.append([cell.replace("nan", "-") for cell in row])
            print(*rows[-1], sep="  ", flush=True)
    if options.only:
        return
    text = (
        "Processor seconds and |X - W|^2 / |X|^2 of one start (the median of ten), and of all ten the sum and the "
        "lowest; a ratio below 1 means that boolcp, with all its starts and certificates, takes less time. The others "
        f"have real factors, and so more freedom. Ten starts are not run where one takes more than {MAX_SECONDS:g} s."
    )
    head = ["data", "method", "one start (s)", "loss", "ten starts (s)", "lowest loss", "boolcp / one", "boolcp / ten"]
    write("speed.md", COMMAND, ["# Time beside other packages", text, table(head, rows)], *PACKAGES)


if __name__ == "__main__":
    main()
