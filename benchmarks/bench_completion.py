"""Completion against TensorLy's masked parafac and tensortools' mcp_als, in accuracy and time, in one run.

Parts: the paper's completion (noiseless, 10 % removed); success against the share observed; data with entries that are
missing by nature.
"""

import argparse

import numpy as np
import tensorly
from common import on_processor, spread, table, write
from tensorly.decomposition import parafac

from boolcp import BMP
from boolcp.datasets import load_syn, make_boolean_cp
from boolcp.metrics import hamming_error, rmse

COMMAND = "python benchmarks/bench_completion.py"
FIRST = 7311  # seed


def with_tensorly(X, rank, seed):
    """Return the tensor completed by TensorLy: SVD start, mask as it wants it, missing entries zero."""
    mask = ~np.isnan(X)
    options = {"mask": mask, "init": "svd", "tol": 1e-8, "n_iter_max": 200, "random_state": seed}
    return tensorly.cp_to_tensor(parafac(np.where(mask, X, 0.0), rank, **options))


def with_tensortools(X, rank, seed):
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
                for name, method in [("TensorLy", with_tensorly), ("tensortools", with_tensortools)]:
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
        for missing in (0.5, 0.9, 0.97, 0.985, 0.99):
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


def real_data():
    """Return the held-out error on data with missing entries, 10 % of the observed ones held out, best of ranks 1-6."""
    from tensorly.datasets import load_IL2data, load_kinetic

    rows = []
    bunch = load_kinetic()
    kinetic = np.where(bunch["missing_values_position"], np.nan, np.asarray(bunch.tensor, dtype=float))
    il2 = np.array(load_IL2data().tensor, dtype=float)
    for name, X in [("IL2, 13x4x12x8, 3.9 % NaN", il2), ("Kinetic, 64x12x10x60, 0.4 % missing", kinetic)]:
        rng = np.random.default_rng(0)
        X = X / np.nanstd(X)
        observed = np.flatnonzero(~np.isnan(X))
        methods = {
            "boolcp": lambda train, rank, seed: BMP(rank, random_state=seed).fit(train).decomposition_.to_tensor(),
            "TensorLy": with_tensorly,
            "tensortools": with_tensortools,
        }
        splits = [rng.choice(observed, len(observed) // 10, replace=False) for _ in range(3)]
        for key, method in methods.items():
            means = []
            for rank in (1, 2, 3, 4, 6):
                errors = []
                for seed, test in enumerate(splits):
                    train = X.copy()
                    train.flat[test] = np.nan
                    estimate = method(train, rank, seed)
                    errors.append(np.sqrt(np.mean((estimate.flat[test] - X.flat[test]) ** 2)))
                means.append(np.mean(errors))
            rows.append([name, key, *(f"{value:.3f}" for value in means)])
            print(rows[-1], flush=True)
    return table(["data (scaled to unit deviation)", "method", *(f"K = {k}" for k in (1, 2, 3, 4, 6))], rows)


PARTS = {
    "paper": (
        "The paper's completion: noiseless, 10 % of the entries removed",
        lambda options: papers_completion(range(FIRST, FIRST + options.seeds), options.peer_seeds),
    ),
    "share": (
        "Success against the share observed",
        lambda options: share_observed(range(FIRST, FIRST + options.curve_seeds)),
    ),
    "real": ("Held-out error on real data with missing entries, mean of 3 splits", lambda options: real_data()),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="parts to run, all by default")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--peer-seeds", type=int, default=1)
    parser.add_argument("--curve-seeds", type=int, default=2)
    options = parser.parse_args()
    for missing in (0.1, 0.97):  # compile before timing
        BMP(2, random_state=0).fit(make_boolean_cp((40, 40, 40), 2, missing=missing, random_state=0).X)
    for part in options.parts or PARTS:
        title, run = PARTS[part]
        packages = ("tensorly", "tensortools")
        numbers = {"paper": f" --seeds {options.seeds}", "share": f" --curve-seeds {options.curve_seeds}"}
        command = f"{COMMAND} {part}{numbers.get(part, '')}"
        write(f"completion_{part}.md", command, [f"# {title}", run(options)], *packages)


if __name__ == "__main__":
    main()
