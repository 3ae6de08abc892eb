"""BMP on real tensors, in parts: python benchmarks/bench_default.py PART.

complete    real tensors with hidden entries against the mean, TensorLy, tensortools and iterated singular values
labels      bits along images or bins against known classes, beside thresholded CP, NMF and k-means

Recordings come from the folder BOOLCP_DATA, images and counts from the packages scikit-learn, TensorLy, scikit-image
and tlviz, if they are installed. `--data` chooses some, `--seeds` the hidden entries.
"""

import argparse
import importlib.util
import itertools
import time
import warnings
from pathlib import Path

import numpy as np
import real_data
from common import table, write
from threadpoolctl import threadpool_limits

from boolcp import BMP
from boolcp.datasets import make_boolean_cp

MAX_ENTRIES = 150_000  # of a tensor that is completed, for the time of the other methods


# data


def standard(X):
    """Return X with mean zero and variance one, missing entries at the mean."""
    X = np.asarray(X, dtype=float)
    return np.nan_to_num((X - np.nanmean(X)) / np.nanstd(X))


def digits():
    from sklearn.datasets import load_digits

    return standard(load_digits().images[:400])


def pines():
    from tensorly.datasets import load_indian_pines

    return standard(load_indian_pines().tensor[::2, ::2])


def il2():
    from tensorly.datasets import load_IL2data

    return standard(load_IL2data().tensor)


def serology():
    from tensorly.datasets import load_covid19_serology

    return standard(load_covid19_serology().tensor)


def inside(package, path):
    """Return the place of a file in an installed package, without importing it."""
    found = importlib.util.find_spec(package)
    return None if found is None else Path(found.submodule_search_locations[0]) / path


def faces():
    return standard(np.load(inside("skimage", "data/lfw_subset.npy")))


def bikes():
    import xarray

    with xarray.open_dataset(inside("tlviz", "datasets/oslo_bike.nc4"), engine="scipy") as found:
        return standard(found["Bike trips"].values)


WHEELS = {"digits": digits, "faces": faces, "il2": il2, "serology": serology, "pines": pines, "bikes": bikes}
LOADERS = real_data.LOADERS | WHEELS


def available():
    """Return the names of the tensors that can be read here."""
    is_there = {name: real_data.missing_reason() is None for name in real_data.LOADERS} | {
        "faces": inside("skimage", "") is not None,
        "bikes": inside("tlviz", "") is not None,
    }
    return [name for name in LOADERS if is_there.get(name, True)]


def verdict(claim, n_cells, lost):
    """Return in how many cells a claim holds, and where it does not."""
    return f"{claim} in {n_cells - len(lost)} of {n_cells} cells; not in: {', '.join(lost) or 'none'}."


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
    import tensorly
    from tensorly.decomposition import parafac

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


def complete(names, seeds):
    """Yield the table of held-out errors over that of the mean."""
    rows, n_cells, above, lost, slower, times = [], 0, [], [], [], []
    for shape, missing in itertools.product([(15, 16, 17), (9, 8, 7, 6)], [0.1, 0.6]):  # compile before timing
        BMP(2, random_state=0).fit(make_boolean_cp(shape, 3, noise=1.0, missing=missing, random_state=0).X)
    for name in names:
        X = at_most_entries(LOADERS[name](), MAX_ENTRIES)
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
    yield verdict("BMP no worse than the mean", n_cells, above)
    yield verdict("BMP within 3 % of the best", n_cells, lost)
    yield verdict("BMP in at most the time of tensortools, where that does not fail,", len(times), slower)
    ours, theirs = np.array(times).T
    told = f"{ours.sum():.0f} s against {theirs.sum():.0f} s, median ratio {np.median(ours / theirs):.2f}"
    yield f"All these cells together: {told}."


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


def label_sets():
    """Yield name, tensor with samples along mode 0, and classes."""
    from sklearn.datasets import load_digits

    yield "digits", digits(), load_digits().target[:400]
    if inside("skimage", "data/lfw_subset.npy") is not None:
        yield "faces", faces(), np.repeat([1, 0], 100)
    if real_data.missing_reason() is None:
        yield "EEG, states of propofol", np.moveaxis(real_data.eeg_raw(), 2, 0), np.repeat([0, 1, 2], 10)
        yield "EEG, awake or drug", np.moveaxis(real_data.eeg_raw(), 2, 0), np.repeat([0, 1, 1], 10)
        yield "spikes, short or long interval of taps", np.moveaxis(real_data.spikes(), 2, 0), tapping(300)


def tapping(n_trials):
    """Return for each trial whether the interval of its two taps is above the median."""
    with np.load(real_data.data_folder() / "affinewarp_spikes" / "motor_ctx_data.npz") as file:
        interval = (file["tap2"] - file["tap1"])[:n_trials]
    return (interval > np.median(interval)).astype(int)


def bits_of_bmp(X, n_bits, seed, atom_rank=1):
    model = BMP(n_bits, boolean_modes=[0], atom_rank=atom_rank, certify=False, random_state=seed)
    return np.stack([atom.z for atom in model.fit(X).decomposition_.atoms], axis=1)


def bits_of_blocks(X, n_bits, seed):
    return bits_of_bmp(X, n_bits, seed, "block")


def bits_of_cp(X, n_bits, seed):
    from tensorly.decomposition import parafac

    A = np.asarray(parafac(X, n_bits, init="random", n_iter_max=100, random_state=seed).factors[0])
    return np.median(A, axis=0) < A


def bits_of_nmf(X, n_bits, seed):
    from sklearn.decomposition import NMF

    A = NMF(n_bits, init="nndsvda", max_iter=500, random_state=seed).fit_transform(X.reshape(len(X), -1) - X.min())
    return np.median(A, axis=0) < A


def bits_of_k_means(X, n_bits, seed):
    from sklearn.cluster import KMeans

    found = KMeans(n_bits, n_init=10, random_state=seed).fit_predict(X.reshape(len(X), -1))
    return np.eye(n_bits, dtype=bool)[found]


CODES = {
    "BMP, blocks": bits_of_blocks,
    "BMP, rank one": bits_of_bmp,
    "CP, median": bits_of_cp,
    "NMF, median": bits_of_nmf,
    "k-means": bits_of_k_means,
}


def labels(names, seeds):
    """Yield the table of balanced accuracies of a logistic regression on the bits."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    rows = []
    for name, X, classes in label_sets():
        for n_bits in (5, 10):
            cells = []
            for code in CODES.values():
                found = []
                for seed in seeds:
                    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
                    bits = code(X, n_bits, seed).astype(float)
                    scores = cross_val_score(
                        LogisticRegression(max_iter=1000), bits, classes, cv=folds, scoring="balanced_accuracy"
                    )
                    found.append(scores.mean())
                cells.append(f"{np.mean(found):.3f}")
            rows.append([name, n_bits, *cells])
            print(rows[-1], flush=True)
    yield table(["", "bits", *CODES], rows)


PARTS = {"complete": complete, "labels": labels}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=PARTS, help="all of them by default")
    parser.add_argument("--data", nargs="+", default=None, choices=LOADERS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[5101, 5102])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in [arguments.part] if arguments.part else PARTS:
        with threadpool_limits(1):
            found = list(PARTS[part](arguments.data or available(), arguments.seeds))
        chosen = f" --data {' '.join(arguments.data)}" if arguments.data else ""
        command = f"python benchmarks/bench_default.py {part}{chosen} --seeds {' '.join(map(str, arguments.seeds))}"
        notes = "Means over the seeds; seconds are processor time on one thread."
        name = "_".join(["default", part, *(arguments.data or [])]) + ".md"
        title = f"# Real tensors: {part}\n\n{notes}"
        write(name, command, [title, *found], "tensorly", "scikit-learn", "tensortools", "scikit-image", "tensorly-viz")


if __name__ == "__main__":
    main()
