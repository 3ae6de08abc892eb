"""The default of BMP on synthetic and real tensors, in parts: python benchmarks/bench_default.py PART.

synthetic   known atoms in noise: wrong bits, error over that with known bits, ranks, time over that of atom_rank=1
denoise     real tensors with added noise against methods limited to K atoms, and against methods that choose their rank
path        processor time of the path to ten atoms, and of one fit of ten, on real tensors with added noise
complete    real tensors with hidden entries against the mean, TensorLy, tensortools and iterated singular values
noise       the noise level found in real tensors with added noise
labels      bits along images or bins against known classes, beside thresholded CP, NMF and k-means
recordings  atoms of recordings that say little, by seed, and how far the bits of two seeds agree

Recordings come from the folder BOOLCP_DATA, images and counts from the packages scikit-learn, TensorLy, scikit-image
and tlviz, if they are installed. `--data` chooses some, `--seeds` the noise.
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
from boolcp.baselines import LFMmix
from boolcp.datasets import load_syn, make_boolean_cp
from boolcp.fit.noise import noise_level
from boolcp.fit.polish import polish
from boolcp.fit.shrinkage import shrink_matrix, signal_subspaces
from boolcp.metrics import hamming_error
from boolcp.program.maxcut import maximize
from boolcp.result.columns import to_columns
from boolcp.storage import DenseTensor

N_ATOMS = (1, 3, 5, 10)
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


# methods: each returns [(estimate, number of parameters)] for each number of atoms


def by_fit(**options):
    def run(X, clean, seed):
        found = []
        for n_atoms in N_ATOMS:
            model = BMP(n_atoms, certify=False, random_state=seed, **options).fit(X)
            W, B = model.decomposition_, model.background_
            found.append((W.to_tensor(), W.n_parameters) if B is None else with_background(W, B))
        return found

    return run


def as_published(X, clean, seed):
    path = BMP.as_published(max(N_ATOMS), certify=False, random_state=seed).fit(X).path_
    return [(path[min(k, len(path) - 1)].to_tensor(), path[min(k, len(path) - 1)].n_parameters) for k in N_ATOMS]


def by_path(X, clean, seed):
    """The default's estimates with 1, .., 10 atoms from one call, polished but not searched for each number."""
    path, found = BMP(max(N_ATOMS), random_state=seed).fit_path(X), []
    for W in (path[min(k, len(path) - 1)] for k in N_ATOMS):
        B = W.background
        found.append((W.to_tensor(), W.n_parameters) if B is None else with_background(W, B))
    return found


def with_background(W, B):
    return W.to_tensor() + B.to_tensor(), W.n_parameters + B.n_parameters


def lfm_mix(X, clean, seed):
    path = LFMmix(max(N_ATOMS), criterion="normalized", random_state=seed).fit(X).path_
    return [(path[min(k, len(path) - 1)].to_tensor(), path[min(k, len(path) - 1)].n_parameters) for k in N_ATOMS]


def lfm(X, clean, seed):
    """Boolean features of one unfolding, rows by least squares; the mode is chosen with the clean tensor."""
    found, rng = [], np.random.default_rng(seed)
    for mode, d in enumerate(X.shape):
        unfolding, Z, along = np.moveaxis(X, mode, 0).reshape(d, -1), np.zeros((d, 0)), []
        C = unfolding @ unfolding.T
        for _ in range(max(N_ATOMS)):
            P = np.eye(d) - Z @ np.linalg.pinv(Z)
            left = P @ C @ P
            Z = np.column_stack([Z, maximize((left + left.T) / 2, rng, is_ratio=True, certify=False).z])
            along.append(Z)
        estimates = [Z[:, :k] @ (np.linalg.pinv(Z[:, :k]) @ unfolding) for k in N_ATOMS]
        others = [size for n, size in enumerate(X.shape) if n != mode]
        estimates = [np.moveaxis(E.reshape(d, *others), 0, mode) for E in estimates]
        found.append([(E, k * unfolding.shape[1]) for E, k in zip(estimates, N_ATOMS, strict=True)])
    return [min(options, key=lambda option: rmse(option[0], clean)) for options in zip(*found, strict=True)]


def pca(X, clean, seed):
    """Leading singular vectors of one unfolding; the mode is chosen with the clean tensor."""
    found = []
    for mode, d in enumerate(X.shape):
        M = np.moveaxis(X, mode, 0).reshape(d, -1)
        U = np.linalg.eigh(M @ M.T)[1][:, ::-1]
        others = [size for n, size in enumerate(X.shape) if n != mode]
        estimates = [U[:, :k] @ (U[:, :k].T @ M) for k in N_ATOMS]
        estimates = [np.moveaxis(E.reshape(d, *others), 0, mode) for E in estimates]
        found.append([(E, k * (sum(M.shape) - k)) for E, k in zip(estimates, N_ATOMS, strict=True)])
    return [min(options, key=lambda option: rmse(option[0], clean)) for options in zip(*found, strict=True)]


def cp(X, clean, seed):
    import tensorly
    from tensorly.decomposition import parafac

    found = []
    for k in N_ATOMS:
        starts = [parafac(X, k, init=start, n_iter_max=100, tol=1e-6, random_state=seed) for start in ("svd", "random")]
        W = min((tensorly.cp_to_tensor(start) for start in starts), key=lambda W: np.sum((X - W) ** 2))
        found.append((W, k * (sum(X.shape) - X.ndim + 1)))
    return found


def tucker(X, clean, seed):
    import tensorly
    from tensorly.decomposition import tucker as fit

    found = []
    for k in N_ATOMS:
        ranks = [min(k, d) for d in X.shape]
        size = int(np.prod(ranks)) + sum(r * (d - r) for r, d in zip(ranks, X.shape, strict=True))
        found.append((tensorly.tucker_to_tensor(fit(X, ranks)), size))
    return found


def gavish_donoho(X, clean, seed):
    """Shrunk singular values of one unfolding; the mode is chosen with the clean tensor."""
    sigma, found = noise_level(DenseTensor(X)), []
    for mode, d in enumerate(X.shape):
        M = np.moveaxis(X, mode, 0).reshape(d, -1)
        shrunk = shrink_matrix(M, sigma, M.shape)
        if shrunk is not None:
            (A, B), _ = shrunk
            others = [size for n, size in enumerate(X.shape) if n != mode]
            size = A.shape[1] * (sum(M.shape) - A.shape[1])
            found.append((np.moveaxis((A @ B.T).reshape(d, *others), 0, mode), size))
    return [min(found, key=lambda option: rmse(option[0], clean))] * len(N_ATOMS)


def tucker_above_noise(X, clean, seed):
    storage, ranks = signal_subspaces(DenseTensor(X), noise_level(DenseTensor(X)))[-1]
    size = int(np.prod(ranks)) + sum(r * (d - r) for r, d in zip(ranks, X.shape, strict=True))
    return [(storage.to_array(), size)] * len(N_ATOMS)


LIMITED = {
    "background=None": by_fit(background=None),
    "as published": as_published,
    "LFM, best mode": lfm,
    "LFMmix": lfm_mix,
    "CP": cp,
    "Tucker": tucker,
    "PCA, best mode": pca,
}
FREE = {
    "default": by_fit(),
    "default, one path": by_path,
    "Gavish-Donoho, best mode": gavish_donoho,
    "Tucker above the noise": tucker_above_noise,
}


def at_most(X, clean, size, seed, known):
    """Return the lowest error of PCA, Tucker and CP over ranks with at most this many parameters, and which.

    All ranks of PCA, ten of Tucker, CP up to rank 60; errors of ranks that were fitted before are in `known`.
    """
    import tensorly
    from tensorly.decomposition import parafac
    from tensorly.decomposition import tucker as fit

    found = [(np.inf, "none")]
    for mode, d in enumerate(X.shape):
        M, C = (np.moveaxis(each, mode, 0).reshape(d, -1) for each in (X, clean))
        U = np.linalg.eigh(M @ M.T)[1][:, ::-1]
        P, Q = U.T @ M, U.T @ C
        errors = np.sum(C**2) + np.cumsum(np.sum(P**2 - 2 * P * Q, axis=1))
        n_free = np.arange(1, d + 1) * (sum(M.shape) - np.arange(1, d + 1))
        found += [(float(np.sqrt(e / X.size)), "PCA") for e in errors[n_free <= size]]
    for share in np.linspace(0.1, 1, 10):
        ranks = tuple(max(1, round(share * d)) for d in X.shape)
        if np.prod(ranks) + sum(k * (d - k) for k, d in zip(ranks, X.shape, strict=True)) <= size:
            if ranks not in known:
                known[ranks] = rmse(tensorly.tucker_to_tensor(fit(X, list(ranks), n_iter_max=10)), clean)
            found.append((known[ranks], "Tucker"))
    largest = int(size // (sum(X.shape) - X.ndim + 1))
    for rank in {min(rank, largest) for rank in (5, 10, 20, 40, 60)} - {0}:
        if rank not in known:
            W = parafac(X, rank, init="random", n_iter_max=50, tol=1e-5, random_state=seed)
            known[rank] = rmse(tensorly.cp_to_tensor(W), clean)
        found.append((known[rank], "CP"))
    return min(found)


def rmse(estimate, clean):
    return float(np.sqrt(np.mean((estimate - clean) ** 2)))


# parts


def synthetic(names, seeds):
    """Yield the table of known atoms in noise."""
    cases = {f"Syn{n}, sigma {s}": (n, s) for n in (0, 1, 2) for s in (1.0, 5.0, 10.0)}
    cases["20^4, 8 atoms, sigma 1"] = None
    rows = []
    for name, case in cases.items():
        found = []
        for seed in seeds:
            if case is None:
                X, clean, truth = make_boolean_cp((20,) * 4, 8, noise=1.0, random_state=seed)
            else:
                X, clean, truth = load_syn(case[0], noise=case[1], random_state=seed)
            known = polish(DenseTensor(X), to_columns(truth), max_iter=50).to_decomposition().to_tensor()
            times, fits = [], []
            for options in ({"atom_rank": 1, "background": None}, {}):
                begin = time.process_time()
                fits.append(BMP(truth.n_atoms, random_state=0, **options).fit(X).decomposition_)
                times.append(time.process_time() - begin)
            W = fits[1]
            is_same = np.array_equal(fits[0].to_tensor(), W.to_tensor())
            wrong = hamming_error(W, truth)
            found.append(
                (wrong, rmse(W.to_tensor(), clean) / rmse(known, clean), is_same, times[1] / times[0], times[1])
            )
        wrong, ratio, same, slower, seconds = np.array(found, dtype=float).T
        rows.append([name, f"{wrong.max():.4f}", f"{ratio.max():.3f}", f"{int(same.sum())} of {len(seeds)}"])
        rows[-1] += [f"{np.median(slower):.2f}", f"{np.median(seconds):.2f}"]
        print(rows[-1], flush=True)
    head = [
        "",
        "wrong bits, most",
        "error / that polished from the truth, most",
        "equal to atom_rank=1, background=None",
        "time / its",
        "s",
    ]
    yield table(head, rows)


def denoise(names, seeds):
    """Yield a table for each tensor and noise, and the cells where the default is not close to the lowest error.

    Ctrl-C ends it after the tables that are done.
    """
    lost, lost_free, lost_equal, lost_alone, n_cells, left_out = [], [], [], [], 0, []
    for name, sigma in ((name, sigma) for name in names for sigma in (1.0, 0.3)):
        clean = LOADERS[name]()
        try:
            found = None if left_out else compare(name, clean, sigma, seeds)
        except KeyboardInterrupt:
            found = None
        if found is None:
            left_out.append(f"{name} {sigma}")
            continue
        errors, sizes, seconds, equal = found
        rows = []
        for method, found in errors.items():
            cells = [f"{e:.3f} ({int(p)})" for e, p in zip(found, sizes[method], strict=True)]
            rows.append([method, *cells, f"{seconds[method]:.1f}"])
        for method, best in equal.items():
            name_of = f"best of PCA, Tucker, CP with at most the parameters of {method}"
            rows.append([name_of, *(f"{e:.3f} ({m})" for e, m in best), ""])
        shape = " x ".join(map(str, clean.shape))
        head = ["", *(f"{k} atoms" for k in N_ATOMS), "s"]
        yield f"## {name} ({shape}), added noise {sigma}\n\n" + table(head, rows)
        lowest = np.min([errors[method] for method in LIMITED], axis=0)
        lowest_free = np.min(list(errors.values()), axis=0)
        n_cells += len(N_ATOMS)
        places = [f"{name} {sigma} at {k}" for k in N_ATOMS]
        for place, low, ours in zip(places, lowest, errors["default"], strict=True):
            lost += [f"{place} ({ours / low:.2f})"] if ours > 1.02 * low else []
        for place, low, ours in zip(places, lowest_free, errors["default"], strict=True):
            lost_free += [f"{place} ({ours / low:.2f})"] if ours > 1.03 * low else []
        for method, cells in (("default", lost_equal), ("background=None", lost_alone)):
            for place, (low, _), ours in zip(places, equal[method], errors[method], strict=True):
                cells += [f"{place} ({ours / low:.2f})"] if ours > 1.02 * low else []
    yield verdict("Default within 2 % of the lowest of the methods limited to K", n_cells, lost)
    yield verdict("Default within 3 % of the lowest of all", n_cells, lost_free)
    rivals = "within 2 % of the best of PCA, Tucker, CP with at most its parameters"
    yield verdict(f"Default {rivals}", n_cells, lost_equal)
    yield verdict(f"`background=None` {rivals}", n_cells, lost_alone)
    if left_out:
        yield f"Left out, because the run was ended: {', '.join(left_out)}."


def path(names, seeds):
    """Yield the table of the time of `fit_path` to ten atoms and of `fit` with ten."""
    n_atoms, rows, slow = max(N_ATOMS), [], []
    for run in (BMP.fit_path, BMP.fit):  # compiles
        run(BMP(2, random_state=0), np.random.default_rng(0).standard_normal((20, 20, 20)))
    for name, sigma in ((name, sigma) for name in names for sigma in (1.0, 0.3)):
        clean, took = LOADERS[name](), []
        for seed in seeds:
            X = clean + sigma * np.random.default_rng([seed, 7]).standard_normal(clean.shape)
            took.append([])
            for run in (BMP.fit_path, BMP.fit):
                begin = time.process_time()
                run(BMP(n_atoms, certify=False, random_state=seed), X)
                took[-1].append(time.process_time() - begin)
        seconds = np.median(took, axis=0)
        rows.append([name, " x ".join(map(str, clean.shape)), sigma, *(f"{each:.2f}" for each in seconds)])
        slow += [f"{name} {sigma} ({seconds[0]:.2f} s)"] if seconds[0] > 1 else []
        print(rows[-1], flush=True)
    yield table(["tensor", "shape", "noise", "s of the path", "s of the fit"], rows)
    yield verdict("Path to 10 atoms within 1 s", len(rows), slow).replace("cells", "tensors")


def compare(name, clean, sigma, seeds):
    """Return errors, numbers of parameters and seconds of all methods, and what others reach with as many of them."""
    errors, sizes, seconds = {}, {}, {}
    for method, run in (LIMITED | FREE).items():
        begin, found = time.process_time(), []
        for seed in seeds:
            X = clean + sigma * np.random.default_rng([seed, 7]).standard_normal(clean.shape)
            found.append([(rmse(E, clean), size) for E, size in run(X, clean, seed)])
        seconds[method] = (time.process_time() - begin) / len(seeds)
        errors[method], sizes[method] = np.array(found).mean(axis=0).T
        print(name, sigma, method, errors[method].round(3), f"{seconds[method]:.1f} s", flush=True)
    X = clean + sigma * np.random.default_rng([seeds[0], 7]).standard_normal(clean.shape)
    known, equal = {}, {}
    for method in ("default", "background=None"):
        equal[method] = [at_most(X, clean, size, seeds[0], known) for size in sizes[method]]
    return errors, sizes, seconds, equal


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
    "default": with_bmp,
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
                ours, best, place = errors["default"], np.nanmin(list(errors.values())), f"{name} {share:.0%} at {rank}"
                n_cells += 1
                above += [f"{place} ({ours:.2f})"] if ours > 1 else []
                lost += [f"{place} ({ours / best:.2f})"] if ours > 1.03 * best else []
                if np.isfinite(errors["tensortools"]):
                    times.append((seconds["default"], seconds["tensortools"]))
                    ratio = times[-1][0] / times[-1][1]
                    slower += [f"{place} ({ratio:.1f})"] if ratio > 1 else []
                shape = " x ".join(map(str, X.shape))
                rows.append([name, shape, f"{share:.0%}", rank, *(cell(errors[m], seconds[m]) for m in FILLERS)])
                print(rows[-1], flush=True)
    yield table(["", "shape", "hidden", "atoms", *FILLERS], rows)
    yield f"Tensors with more than {MAX_ENTRIES} entries: every second slice of the longest mode, as often as needed."
    yield verdict("Default no worse than the mean", n_cells, above)
    yield verdict("Default within 3 % of the best", n_cells, lost)
    yield verdict("Default in at most the time of tensortools, where that does not fail,", len(times), slower)
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


def noise(names, seeds):
    """Yield the table of noise levels found where noise of known level was added."""
    from sklearn.datasets import load_digits

    rows, tensors = [], {name: LOADERS[name] for name in names}
    tensors["digits, all 1797"] = lambda: standard(load_digits().images)
    for name, load in tensors.items():
        clean, cells = load(), []
        for sigma in (0.0, 0.3, 1.0):
            draws = [clean + sigma * np.random.default_rng([seed, 7]).standard_normal(clean.shape) for seed in seeds]
            cells.append(np.mean([noise_level(DenseTensor(X)) for X in draws]))
        expected = [f"{found:.3f} ({np.hypot(cells[0], s):.3f})" for found, s in zip(cells, (0, 0.3, 1), strict=True)]
        rows.append([name, f"{cells[0]:.3f}", *expected[1:]])
        print(rows[-1], flush=True)
    yield "In parentheses: the added level and the one found without it, as one."
    yield table(["", "nothing added", "0.3 added", "1 added"], rows)


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


def bits_of_bmp(X, n_bits, seed, **options):
    W = BMP(n_bits, boolean_modes=[0], certify=False, random_state=seed, **options).fit(X).decomposition_
    return np.stack([atom.z for atom in W.atoms], axis=1)


def bits_of_blocks(X, n_bits, seed):
    """As a code for whole slices atoms are blocks: chosen on the digits 400 to 799, which are not in the table."""
    return bits_of_bmp(X, n_bits, seed, background=None)


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
    "background=None": bits_of_blocks,
    "default": bits_of_bmp,
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


def recordings(names, seeds):
    """Yield the table of atoms that say little, of ten as the command fits them, for recordings as they are."""
    from boolcp import degeneracy
    from boolcp.trust.degeneracy import match

    rows = []
    for name in names:
        begin, fits = time.process_time(), []
        for seed in seeds:
            fits.append(BMP(10, certify=False, random_state=seed).fit(LOADERS[name]()).decomposition_)
        seconds = (time.process_time() - begin) / len(seeds)
        reasons = " ".join(reason for W in fits for reason in degeneracy(W).reasons)
        counts = [reasons.count(word) for word in ("same bits", "canceled", "baseline", "only one")]
        shared = [
            np.mean(atom.z == fits[1].atoms[partner].z)
            for atom, (partner, alike) in zip(fits[0].atoms, match(fits[0], fits[1]), strict=True)
            if alike >= 0.5 and not atom.is_baseline and fits[1].atoms[partner].mode == atom.mode
        ]
        agree = f"{100 * np.mean(shared):.0f} % of {len(shared)} atoms" if shared else "-"
        ranks = "; ".join(", ".join(f"{a.n_ones}/{len(a.z)} ({a.rank})" for a in W.atoms) for W in fits)
        rows.append([name, ranks, *counts, agree, f"{seconds:.1f}"])
        print(rows[-1], flush=True)
    yield "Ones and rank of each atom; the bits of two seeds are compared where atoms, baselines apart, have a partner."
    yield table(["", "atoms by seed", "same bits", "canceled", "baselines", "on once", "bits of two seeds", "s"], rows)


PARTS = {
    "synthetic": synthetic,
    "denoise": denoise,
    "path": path,
    "complete": complete,
    "noise": noise,
    "labels": labels,
    "recordings": recordings,
}


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
        notes = "Means over the seeds; numbers of parameters in parentheses; seconds are processor time on one thread."
        name = "_".join(["default", part, *(arguments.data or [])]) + ".md"
        title = f"# The default: {part}\n\n{notes}"
        write(name, command, [title, *found], "tensorly", "scikit-learn", "tensortools", "scikit-image", "tensorly-viz")


if __name__ == "__main__":
    main()
