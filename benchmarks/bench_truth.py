"""Is the signal nearer to the truth, are patterns there again, do codes mean something? Real noise, real rivals.

No noise is added. Every method sees the same tensor, samples x .. x .., minus its mean over the samples, which is
added again (NMF: minus its least entry instead, one component more; k-means: one cluster more); K = 5, codes have 10.
CP, NMF and k-means have as many starts as the search of boolcp made on the same tensor, five at least.
PCA and LFM have the mode, sliceTCA the shares of the modes with the lowest *error*: the truth chooses for them.

repeats   The tensor is the mean of three trials of each condition; the truth is the mean of all other trials of it.
thinned   Each count goes to one of two independent parts; the fit sees one, the truth is the other.
halves    Fits to two random halves of the samples. A pattern recurs if the best matching pairs it with one of the
          other half at a cosine of at least 0.8, as it is or reversed.
labels    Codes of the samples, found without their classes: balanced accuracy of a logistic regression, 5 folds.

Errors are squared distances to the truth (repeats: less the noise of the truth itself, so that they may fall below zero
by chance) over those of a constant; *mean* is the mean over the samples alone.

`python benchmarks/bench_truth.py` writes results/truth.csv and truth.md.
"""

import argparse
import itertools
from functools import cache
from typing import NamedTuple

import numpy as np
import real_data
import scipy.io
import scipy.signal
from common import RESULTS, collect, count_starts, seed_of, table, write
from cp_tucker import CP, Tucker
from scipy.optimize import linear_sum_assignment

from boolcp import BMP, baselines

N_ATOMS, N_CODES, N_SHOWN = 5, 10, 3
SAME = 0.8  # cosine of patterns that recur
FIRST_SEED = 100  # seed 0 was seen while the tests were made
PACKAGES = ("tensorly", "scikit-learn", "scikit-image", "tensorly-viz", "eofs")


class Fit(NamedTuple):
    """An estimate of the tensor, a code for each sample (d_1, K), and the pattern of each code (K, rest)."""

    estimate: np.ndarray
    codes: np.ndarray
    patterns: np.ndarray


# data: samples are mode 0


def spike_counts(n_trials=None, width=40):
    """Return counts of spikes, trial x unit x time, trials in the order of their tapping intervals."""
    with np.load(real_data.data_folder() / "affinewarp_spikes" / "motor_ctx_data.npz") as file:
        units, trials, times = file["neuron_ids"], file["trial_ids"], file["spiketimes"]
    X = np.zeros((trials.max() + 1, units.max() + 1, 2000 // width))
    np.add.at(X, (trials, units, np.minimum(times // width, X.shape[2] - 1).astype(int)), 1)
    return X[:n_trials]


def tapers(signal, rate, n_tapers=5):
    """Return log power of 3-s bins by orthogonal tapers, bin x taper x channel x frequency (1 to 45 Hz).

    White within a band, the estimates of one bin by different tapers are independent: they are its repeats.
    """
    length = 3 * rate
    bins = real_data.cut(signal, length)
    windows = scipy.signal.windows.dpss(length, (n_tapers + 1) / 2, n_tapers)
    power = np.abs(np.fft.rfft(bins[None] * windows[:, None, :, None], axis=2)) ** 2
    step = 6  # 2 Hz, beyond the bandwidth of the tapers
    return np.log(power[:, :, 3 : 3 * 45 : step]).transpose(3, 0, 1, 2)


@cache
def repeated(name):
    """Return trials of each condition, condition x trial x .. x .."""
    if name == "spikes, 40 intervals":
        return spike_counts(1240).reshape(40, 31, 30, 50)
    if name == "ECoG power, 100 bins":
        return tapers(real_data._food_tracking(), 250)
    if name == "EEG power, 30 bins":
        files = (real_data.data_folder() / "ness_propofol_eeg").glob("*.mat")
        return np.concatenate([tapers(scipy.io.loadmat(path)["y"].T.astype(float), 250) for path in sorted(files)])
    X, speed = np.moveaxis(real_data.eeglab_epochs(), 2, 0), real_data.eeglab_stimuli()[2]
    return X[np.argsort(speed, kind="stable")[:72]].reshape(9, 8, *X.shape[1:])  # the fastest eight, the next eight, ..


@cache
def counts(name):
    """Return a tensor of counts, and the share of them that the fit sees."""
    if name.startswith("spikes"):
        return spike_counts()[::4], 0.5
    X = real_data.trips().sum(axis=1)
    return np.rint(X.sum(axis=1 if name.endswith("hour") else 3)).astype(int), 0.02


@cache
def samples(name):
    """Return a tensor with samples along mode 0."""
    X = real_data.load(name)
    return np.moveaxis(X, 2, 0) if name in real_data.LOADERS and name != "anesthesia" else X


@cache
def classes(name):
    """Return a tensor with samples along mode 0, and their classes."""
    if name == "digits":
        from sklearn.datasets import load_digits

        return samples(name), load_digits().target[:400]
    if name == "serology":
        from tensorly.datasets import load_covid19_serology

        return samples(name), np.unique(load_covid19_serology().ticks[0], return_inverse=True)[1]
    if name == "faces":
        return samples(name), np.repeat([1, 0], 100)
    if name == "eeg_raw":
        return samples(name), np.repeat([0, 1, 2], 10)
    X = spike_counts()[::4]  # short, middle and long intervals
    return X, np.arange(len(X)) * 3 // len(X)


# methods


def boolean(atom_rank):
    """Return a method: atoms that are on or off along the samples."""

    def fit(X, K, seed, n_starts):
        model = BMP(K, boolean_modes=[0], atom_rank=atom_rank, mean=True, certify=False, random_state=seed)
        W = model.fit(X).decomposition_
        return of_atoms(W, X)

    return fit


def anywhere(X, K, seed, n_starts):
    """Atoms along any mode; those along the samples have codes."""
    return of_atoms(BMP(K, certify=False, random_state=seed).fit(X).decomposition_, X)


def of_atoms(W, X):
    """Return a Boolean decomposition as a fit; atoms along other modes have no code."""
    own = [atom for atom in W.atoms if atom.mode == 0]
    codes = np.stack([atom.z for atom in own], axis=1) if own else np.zeros((len(X), 0), dtype=bool)
    patterns = [atom.dense_block().ravel() for atom in own]
    return Fit(W.to_tensor(), codes, np.reshape(patterns, (len(own), X[0].size)))


def latent_features(X, K, seed, n_starts):
    """One fit for each mode, that along the samples first."""
    return [of_atoms(baselines.LFM(K, mode=mode, random_state=seed).fit(X).path_[-1], X) for mode in range(X.ndim)]


def mixed_features(X, K, seed, n_starts):
    return of_atoms(baselines.LFMmix(K, random_state=seed).fit(X).path_[-1], X)


def cp(X, K, seed, n_starts):
    W = CP(K, n_init=n_starts, random_state=seed).fit(X).decomposition_
    patterns = W.factors[1]
    for A in W.factors[2:]:
        patterns = (patterns[:, None] * A).reshape(-1, K)
    return Fit(W.to_tensor(), W.factors[0], patterns.T)


def tucker(X, K, seed, n_starts):
    """Patterns are those of its directions along the samples."""
    W = Tucker(K, random_state=seed).fit(X).decomposition_.to_tensor()
    U, s, Vt = np.linalg.svd(W.reshape(len(X), -1), full_matrices=False)
    return Fit(W, (U * s)[:, :K], Vt[:K])


def along(X, mode, K):
    """Return the leading K singular pairs of an unfolding, as a tensor."""
    M = np.moveaxis(X, mode, 0)
    U = np.linalg.eigh(M.reshape(len(M), -1) @ M.reshape(len(M), -1).T)[1][:, ::-1][:, :K]
    return np.moveaxis(np.tensordot(U @ U.T, M, 1), 0, mode)


def pca(X, K, seed, n_starts):
    """One fit for each unfolding, that along the samples first: sliceTCA along one mode has the same optimum."""
    U, s, Vt = np.linalg.svd(X.reshape(len(X), -1), full_matrices=False)
    first = Fit(((U * s)[:, :K] @ Vt[:K]).reshape(X.shape), (U * s)[:, :K], Vt[:K])
    return [first, *(first._replace(estimate=along(X, mode, K)) for mode in range(1, X.ndim))]


def slice_tca(X, K, seed, n_starts):
    """A column times a free slice, along several modes: one fit for each way to share K among the modes.

    For squares each mode is solved by singular values while the others stay (its own optimizer is gradient descent).
    """
    found = []
    for split in itertools.product(range(K + 1), repeat=X.ndim):
        if sum(split) == K:
            parts = [np.zeros(X.shape) for _ in split]
            for _ in range(10):
                for mode, k in enumerate(split):
                    if k:
                        parts[mode] = along(X - sum(parts) + parts[mode], mode, k)
            found.append(Fit(sum(parts), np.zeros((len(X), 0)), np.zeros((0, X[0].size))))
    return found


def nmf(X, K, seed, n_starts):
    from sklearn.decomposition import NMF

    low, found = X.min(), []
    for start in range(n_starts):
        model = NMF(K + 1, init="random" if start else "nndsvda", max_iter=300, random_state=seed + start)
        A = model.fit_transform(X.reshape(len(X), -1) - low)
        found.append((model.reconstruction_err_, Fit(A @ model.components_, A, model.components_)))
    W, A, H = min(found, key=lambda one: one[0])[1]
    return Fit(W.reshape(X.shape) + low, A, H - H.mean(axis=1, keepdims=True))  # all nonnegative maps are alike


def k_means(X, K, seed, n_starts):
    from sklearn.cluster import KMeans

    model = KMeans(K + 1, n_init=n_starts, random_state=seed).fit(X.reshape(len(X), -1))
    centers = model.cluster_centers_
    return Fit(centers[model.labels_].reshape(X.shape), np.eye(K + 1)[model.labels_] > 0, centers)


def sample_mean(X, K, seed, n_starts):
    return Fit(np.zeros(X.shape), np.zeros((len(X), 0), dtype=bool), np.zeros((0, X[0].size)))


METHODS = {
    "boolcp": boolean(1),
    "boolcp, any mode": anywhere,
    "boolcp, blocks": boolean("block"),
    "CP": cp,
    "Tucker": tucker,
    "PCA": pca,
    "sliceTCA": slice_tca,
    "NMF": nmf,
    "k-means": k_means,
    "LFM": latent_features,
    "LFMmix": mixed_features,
    "mean": sample_mean,
}
WITHOUT = {  # methods that a test says nothing of
    "halves": ("boolcp, any mode", "sliceTCA", "LFMmix", "mean"),
    "labels": ("boolcp, any mode", "sliceTCA", "LFMmix", "mean"),
}


# tests


@cache
def n_starts(test, name, seed, K):
    """Return how many starts the search of boolcp made on the tensor of a test."""
    X = tensor_of(test, name, seed)
    model = BMP(K, boolean_modes=[0], mean=True, certify=False, random_state=0)
    return max(5, count_starts(model, X - X.mean(axis=0)))


def tensor_of(test, name, seed):
    """Return the tensor that is fitted."""
    return {"repeats": draw_repeats, "thinned": draw_counts, "halves": draw_halves, "labels": draw_labels}[test](
        name, seed
    )[0]


def draw_repeats(name, seed):
    """Return the tensor, the truth, and the mean squared noise of the truth."""
    trials = repeated(name)
    order = np.random.default_rng(seed).permutation(trials.shape[1])
    shown, hidden = trials[:, order[:N_SHOWN]], trials[:, order[N_SHOWN:]]
    if hidden.shape[1] < 2:
        shown, hidden = trials[:, order[:-2]], trials[:, order[-2:]]
    return shown.mean(axis=1), hidden.mean(axis=1), float(hidden.var(axis=1, ddof=1).mean() / hidden.shape[1])


def draw_counts(name, seed):
    """Return the tensor, the truth, and no correction for its noise, which would need a law of the counts."""
    X, share = counts(name)
    seen = np.random.default_rng(seed).binomial(X.astype(int), share)
    ratio = share / (1 - share)
    return seen.astype(float), ratio * (X - seen), 0.0


def draw_halves(name, seed):
    """Return two random halves of the samples."""
    X = samples(name)
    order = np.random.default_rng(seed).permutation(len(X))
    return X[np.sort(order[: len(X) // 2])], X[np.sort(order[len(X) // 2 :])]


def draw_labels(name, seed):
    """Return the tensor and its classes."""
    return classes(name)


def run(job):
    """Yield the score of a method in a test."""
    test, name, method = job["test"], job["data"], METHODS[job["method"]]
    seed = seed_of(test, name, job["seed"])
    K = N_CODES if test == "labels" else N_ATOMS
    many = n_starts(test, name, seed, K)
    if test in ("repeats", "thinned"):
        X, truth, noise = (draw_repeats if test == "repeats" else draw_counts)(name, seed)
        mean = X.mean(axis=0)
        estimates = [mean + fit.estimate for fit in fits(method, X - mean, K, seed, many)]
        error, base = (min(np.mean((W - truth) ** 2) for W in some) - noise for some in (estimates, [X.mean()]))
        yield {"starts": many, "metric": "error", "value": float(error / base)}
    elif test == "halves":
        parts = [fits(method, X - X.mean(axis=0), K, seed, many)[0].patterns for X in draw_halves(name, seed)]
        yield {"starts": many, "metric": "recur", "value": n_same(*parts)}
    else:
        X, known = classes(name)
        codes = fits(method, X - X.mean(axis=0), K, seed, many)[0].codes
        is_on = codes if codes.dtype == bool else split(codes)
        yield {"starts": many, "metric": "bits", "value": accuracy(is_on, known, seed)}
        yield {"starts": many, "metric": "codes", "value": accuracy(codes, known, seed)}


def fits(method, *data):
    """Return the fits of a method, one or several."""
    found = method(*data)
    return found if isinstance(found, list) else [found]


def n_same(P, Q):
    """Return how many patterns of two fits are the same, after the best matching; at most K."""
    P, Q = (A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-300) for A in (P, Q))
    cosines = np.abs(P @ Q.T)
    return min(int(np.sum(cosines[linear_sum_assignment(-cosines)] >= SAME)), N_ATOMS)


def split(A):
    """Return each column of A as bits, by the threshold with the lowest variance within its two groups."""
    bits = np.zeros(A.shape, dtype=bool)
    for k, a in enumerate(A.T):
        ordered = np.sort(a)
        n = np.arange(1, len(a))
        sums = np.cumsum(ordered)[:-1]
        gain = sums**2 / n + (ordered.sum() - sums) ** 2 / (len(a) - n)
        bits[:, k] = a > ordered[int(np.argmax(gain))]
    return bits


def accuracy(codes, known, seed):
    """Return the balanced accuracy of a logistic regression, cross-validated."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    folds = StratifiedKFold(5, shuffle=True, random_state=seed % 2**31)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return float(cross_val_score(model, codes.astype(float), known, cv=folds, scoring="balanced_accuracy").mean())


# tables


def data_of(test):
    """Return the names of the data of a test that can be read here."""
    there = real_data.available()
    with_recordings = real_data.missing_reason() is None
    found = {
        "repeats": ["spikes, 40 intervals", "ECoG power, 100 bins", "EEG power, 30 bins", "EEGLAB, 9 reaction times"],
        "thinned": ["spikes"],
        "halves": [*real_data.LOADERS, "digits", "faces", "serology", "sst", "heights"],
        "labels": ["spikes", "digits", "faces", "serology", "eeg_raw"],
    }[test]
    if test in ("repeats", "thinned"):
        bikes = ["bikes, station x weekday x hour", "bikes, station x month x weekday"]
        return found * with_recordings + bikes * (test == "thinned" and "bikes" in there)
    return [name for name in found if name in there]


def plan(n_seeds, tests):
    """Return the jobs."""
    return [
        {"test": test, "data": name, "seed": seed, "method": method}
        for test in tests
        for name in data_of(test)
        for seed in range(FIRST_SEED, FIRST_SEED + n_seeds)
        for method in METHODS
        if method not in WITHOUT.get(test, ())
    ]


def summarize(rows, test, metric, digits, total):
    """Return the table of a test: data by methods, and the median or the sum at the end."""
    rows = [row for row in rows if row["test"] == test and row["metric"] == metric]
    methods, data = (list(dict.fromkeys(row[key] for row in rows)) for key in ("method", "data"))
    cell = {}
    for row in rows:
        cell.setdefault((row["data"], row["method"]), []).append(float(row["value"]))
    means = np.array([[np.mean(cell[name, method]) for method in methods] for name in data])
    starts = {name: {row["starts"] for row in rows if row["data"] == name} for name in data}
    lines = [
        [
            name,
            *(f"{value:.{digits}f}" for value in line),
            " to ".join(sorted({min(s, key=int), max(s, key=int)}, key=int)),
        ]
        for name, line, s in zip(data, means, starts.values(), strict=True)
    ]
    last = np.median(means, axis=0) if total == "median" else means.sum(axis=0)
    return table(["", *methods, "starts"], [*lines, [total, *(f"{value:.{digits}f}" for value in last), ""]])


TABLES = {
    ("repeats", "error"): ("Held-out repeats: error over that of a constant", 3, "median"),
    ("thinned", "error"): ("Thinned counts: error over that of a constant", 3, "median"),
    ("halves", "recur"): (f"Two halves of the samples: patterns of {N_ATOMS} that recur", 1, "sum"),
    ("labels", "bits"): (f"Classes from {N_CODES} bits", 3, "median"),
    ("labels", "codes"): (f"Classes from {N_CODES} codes as they are", 3, "median"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="cuts of the trials or counts")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    command = f"python benchmarks/bench_truth.py --seeds {options.seeds}"
    tests = list(dict.fromkeys(test for test, _ in TABLES))
    jobs = plan(options.seeds, tests)
    rows = collect(run, jobs, RESULTS / "truth.csv", command, jobs=options.jobs, packages=PACKAGES)
    parts = ["# Nearer to the truth?", __doc__.partition("\n\n")[2].rpartition("`python")[0].strip()]
    for (test, metric), (title, digits, total) in TABLES.items():
        parts += [f"## {title}", summarize(rows, test, metric, digits, total)]
    write("truth.md", command, parts, *PACKAGES)


if __name__ == "__main__":
    main()
