"""Completion against TensorLy's masked parafac, tensortools' mcp_als and iterated singular values, in one run.

paper    the paper's completion: noiseless, 10 % of the entries removed
share    success against the share observed
real     real tensors, 10, 50 and 80 % hidden: `BMP.complete`, 3 and 8 atoms, beside others at the same rank
"""

import argparse
import itertools
import time
import warnings

import numpy as np
import real_data
import tensorly
from common import on_processor, spread, table, write
from tensorly.decomposition import parafac
from threadpoolctl import threadpool_limits

from boolcp import BMP
from boolcp.datasets import load_syn, make_boolean_cp
from boolcp.metrics import hamming_error, rmse

COMMAND = "python benchmarks/bench_completion.py"
FIRST = 7311  # seed
MAX_ENTRIES = 150_000  # of a real tensor, for the time of the other methods


def fill_with_tensorly(X, rank, seed):
    """Return the tensor completed by TensorLy: SVD start, mask as it wants it, missing entries zero."""
    mask = ~np.isnan(X)
    options = {"mask": mask, "init": "svd", "tol": 1e-8, "n_iter_max": 200, "random_state": seed}
    return tensorly.cp_to_tensor(parafac(np.where(mask, X, 0.0), rank, **options))


def fill_with_tensortools(X, rank, seed):
    """Return the tensor completed by tensortools' masked alternating least squares."""
    from tensortools.optimize import mcp_als

    fit = getattr(mcp_als, "mcp_als", mcp_als)
    mask = ~np.isnan(X)
    options = {"random_state": seed, "tol": 1e-6, "max_iter": 200, "verbose": False}
    return fit(np.where(mask, X, 0.0), rank, mask, **options).factors.full()


def papers_completion(seeds, n_peer_seeds):
    rows, n_seeds = [], len(seeds)
    for which in (0, 1, 2):
        errors, wrong, seconds = [], [], []
        peers = {"TensorLy": ([], []), "tensortools": ([], [])}
        for seed in seeds:
            X, clean, truth = load_syn(which, noise=0.0, missing=0.1, random_state=seed)
            model, time = on_processor(BMP(truth.n_atoms, random_state=seed).fit, X)
            errors.append(rmse(model.decomposition_, clean))
            wrong.append(hamming_error(model.decomposition_, truth))
            seconds.append(time)
            if seed in seeds[:n_peer_seeds]:
                for name, method in [("TensorLy", fill_with_tensorly), ("tensortools", fill_with_tensortools)]:
                    estimate, time = on_processor(method, X, truth.n_atoms, seed)
                    peers[name][0].append(float(np.sqrt(np.mean((estimate - clean) ** 2))))
                    peers[name][1].append(time)
                    print(which, seed, name, peers[name][0][-1], time, seconds[-1], flush=True)
        good = sum(e <= 1e-6 and w == 0 for e, w in zip(errors, wrong, strict=True))
        faster = min(np.median(times) for _, times in peers.values())
        ours = np.median(seconds)
        row = [f"Syn{which}", f"{good} of {n_seeds}", f"{max(errors):.1e}", f"{ours:.2f}"]
        for peer_errors, times in peers.values():
            row += [", ".join(f"{e:.1e}" for e in peer_errors), f"{np.median(times):.1f}"]
        rows.append([*row, f"{ours / faster:.3f}"])
        print(rows[-1], flush=True)
    head = ["data", "RMSE <= 1e-6 and no wrong bit", "largest RMSE", "median processor s"]
    head += [f"TensorLy RMSE ({n_peer_seeds} seed)", "median processor s"]
    return table([*head, "tensortools RMSE", "median processor s", "time / faster peer"], rows)


def share_observed(seeds):
    rows, n_seeds = [], len(seeds)
    for which, sigma in [(0, 0.0), (1, 0.0), (2, 0.0), (0, 1.0), (1, 1.0), (2, 1.0)]:
        for missing in (0.9, 0.97, 0.99):
            solved, errors = 0, []
            for seed in seeds:
                X, clean, truth = load_syn(which, noise=sigma, missing=missing, random_state=seed)
                W = BMP(truth.n_atoms, certify=False, random_state=seed).fit(X).decomposition_
                solved += hamming_error(W, truth) == 0
                errors.append(rmse(W, clean))
            free = sum(sum(truth.shape) - 1 for _ in truth.atoms)  # real entries and bits, less the scale
            ratio = (1 - missing) * np.prod(truth.shape) / free
            rows.append(
                [f"Syn{which}", sigma, f"{100 * missing:g} %", f"{ratio:.0f}", f"{solved} of {n_seeds}", spread(errors)]
            )
            print(rows[-1], flush=True)
    return table(["data", "sigma", "missing", "observed entries per free parameter", "no wrong bit", "RMSE"], rows)


def verdict(claim, n_cells, lost):
    """Return a claim, in how many cells it holds, and where it does not."""
    return [claim, f"{n_cells - len(lost)} of {n_cells}", ", ".join(lost)]


def iterated_svd(X, observed, rank, seed):
    """Return the best over modes (by held-out tenth) of the singular values iterated on the filled unfolding."""
    rng, best = np.random.default_rng(seed), (np.inf, X)
    known = np.flatnonzero(observed)
    test = rng.choice(known, len(known) // 10, replace=False)
    for mode in range(X.ndim):
        seen = observed.copy()
        seen.flat[test] = False
        error = rms(svd_filled(X, seen, rank, mode).flat[test] - X.flat[test])
        if error < best[0]:
            best = (error, mode)
    return svd_filled(X, observed, rank, best[1])


def svd_filled(X, seen, rank, mode):
    filled = np.where(seen, X, X[seen].mean())
    for _ in range(100):
        M = np.moveaxis(filled, mode, 0).reshape(X.shape[mode], -1)
        U = np.linalg.eigh(M @ M.T)[1][:, ::-1][:, :rank]
        others = [size for n, size in enumerate(X.shape) if n != mode]
        E = np.moveaxis((U @ (U.T @ M)).reshape(-1, *others), 0, mode)
        after = np.where(seen, X, E)
        if np.linalg.norm(after - filled) <= 1e-4 * np.linalg.norm(filled):
            break
        filled = after
    return filled


def rms(x):
    return float(np.sqrt(np.mean(np.square(x))))


def with_tensorly(X, observed, rank, seed):
    filled = np.where(observed, X, 0.0)
    return tensorly.cp_to_tensor(parafac(filled, rank, mask=observed, init="random", n_iter_max=100, random_state=seed))


def with_tensortools(X, observed, rank, seed):
    from tensortools.optimize import mcp_als

    state = np.random.RandomState(seed)
    return mcp_als(np.where(observed, X, 0.0), rank, observed, verbose=False, random_state=state).factors.full()


def with_bmp(X, observed, rank, seed):
    model = BMP(rank, certify=False, random_state=seed).fit(X, mask=observed)
    return model.complete(np.where(observed, X, np.nan))


FILLERS = {
    "BMP": with_bmp,
    "TensorLy": with_tensorly,
    "tensortools": with_tensortools,
    "iterated SVD": iterated_svd,
}


def real(names, seeds):
    """Yield the table of held-out errors over that of the mean."""
    rows, n_cells, above, lost, slower, times = [], 0, [], [], [], []
    for shape, missing in itertools.product([(15, 16, 17), (9, 8, 7, 6)], [0.1, 0.6]):  # compile before timing
        BMP(2, random_state=0).fit(make_boolean_cp(shape, 3, noise=1.0, missing=missing, random_state=0).X)
    for name in names:
        X = at_most_entries(real_data.load(name), MAX_ENTRIES)
        for share in (0.1, 0.5, 0.8):
            for rank in (3, 8):
                errors, seconds = {}, {}
                for method, run in FILLERS.items():
                    found, begin = [], time.process_time()
                    for seed in seeds:
                        observed = np.random.default_rng([seed, 8]).random(X.shape) >= share
                        found.append(hidden_error(run, X, observed, rank, seed))
                    errors[method], seconds[method] = np.mean(found), (time.process_time() - begin) / len(seeds)
                ours, best, place = errors["BMP"], np.nanmin(list(errors.values())), f"{name} {share:.0%} at {rank}"
                n_cells += 1
                above += [f"{place} ({ours:.2f})"] if ours > 1 else []
                lost += [f"{place} ({ours / best:.2f})"] if ours > 1.03 * best else []
                if np.isfinite(errors["tensortools"]):
                    times.append((seconds["BMP"], seconds["tensortools"]))
                    ratio = times[-1][0] / times[-1][1]
                    slower += [f"{place} ({ratio:.1f})"] if ratio > 1 else []
                shape = " x ".join(map(str, X.shape))
                rows.append([name, shape, f"{share:.0%}", rank, *(cell(errors[m], seconds[m]) for m in FILLERS)])
                print(rows[-1], flush=True)
    yield table(["", "shape", "hidden", "atoms", *FILLERS], rows)
    yield f"Tensors with more than {MAX_ENTRIES} entries: every second slice of the longest mode, as often as needed."
    ours, theirs = np.array(times).T
    spent = f"{ours.sum():.0f} s against {theirs.sum():.0f} s"
    claims = [
        verdict("no worse than the mean", n_cells, above),
        verdict("within 3 % of the best", n_cells, lost),
        verdict("in at most the time of tensortools, where that does not fail", len(times), slower),
        ["time beside tensortools, where that does not fail", spent, f"median ratio {np.median(ours / theirs):.2f}"],
    ]
    yield table(["BMP", "cells", "not in"], claims)


def at_most_entries(X, limit):
    """Return every second slice along the longest mode, again and again, until the tensor is small enough."""
    while X.size > limit:
        X = X.take(range(0, max(X.shape), 2), axis=int(np.argmax(X.shape)))
    return X


def hidden_error(run, X, observed, rank, seed):
    """Return the error of a method on hidden entries over that of the mean of the others, NaN if it fails."""
    try:
        filled = run(X, observed, rank, seed)
    except np.linalg.LinAlgError:
        return np.nan
    return rms((filled - X)[~observed]) / rms((X[observed].mean() - X)[~observed])


def cell(error, seconds):
    """Return an error and seconds as text; errors far above that of the mean are not told apart."""
    text = "fails" if np.isnan(error) else f"{error:.3f}" if error < 10 else "> 10"
    return f"{text} ({seconds:.1f} s)"


PARTS = {
    "paper": (
        "The paper's completion: noiseless, 10 % of the entries removed",
        lambda seeds: [papers_completion(range(FIRST, FIRST + seeds), 1)],
        5,
    ),
    "share": (
        "Success against the share observed",
        lambda seeds: [share_observed(range(FIRST, FIRST + seeds))],
        1,
    ),
    "real": (
        "Real tensors with hidden entries: error over that of the mean (processor seconds)",
        lambda seeds: real(real_data.available(), range(7601, 7601 + seeds)),
        1,
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="parts to run, all by default")
    parser.add_argument("--seeds", type=int, help="of each part")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.parts or PARTS:
        title, run, usual = PARTS[name]
        seeds = options.seeds or usual
        with threadpool_limits(1):
            parts = [f"# {title}", *run(seeds)]
        packages = ("tensorly", "tensortools", "scikit-learn", "scikit-image", "tensorly-viz", "eofs")
        write(f"completion_{name}.md", f"{COMMAND} {name} --seeds {seeds}", parts, *packages)


if __name__ == "__main__":
    main()
