"""Side by side, what one would use today in place of Boolean atoms: sliceTCA, forms of CP, NMF, k-means.

Tensors of 40 x 30 x 20 with four overlapping atoms, on or off along the first mode, and noise of deviation sigma: real
parts of rank one (with positive numbers, so that nonnegative methods are not at a disadvantage), or full slices. All
methods are told the number of atoms; of methods with random starts the lowest loss of five counts (sliceTCA: of two,
2000 steps each). Columns of real methods become bits by splitting each into two clusters (its best threshold), and a
column counts as it is or reversed, whichever has fewer wrong bits: that is decided with the truth in hand.

    python benchmarks/bench_rivals.py        # sliceTCA needs torch: pip install torch slicetca
"""

import argparse
import time
import warnings

import numpy as np
import tensorly
from common import table, write
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF
from tensorly.decomposition import constrained_parafac, non_negative_parafac_hals, parafac

from boolcp import BMP

try:
    import slicetca
    import torch
except ImportError:
    slicetca = None

COMMAND = "python benchmarks/bench_rivals.py"
SHAPE, N_ATOMS, N_STARTS = (40, 30, 20), 4, 5
FIRST_SEED = 40000


def make(kind, sigma, seed):
    """Return X, the clean tensor and the true bits (d_1, K)."""
    rng = np.random.default_rng(seed)
    Z = rng.random((SHAPE[0], N_ATOMS)) < 0.4
    if kind == "rank one":
        U, V = (np.abs(rng.standard_normal((d, N_ATOMS))) for d in SHAPE[1:])
        parts = np.einsum("jk,lk->kjl", U, V)
    else:
        parts = np.abs(rng.standard_normal((N_ATOMS, *SHAPE[1:])))
    clean = np.einsum("ik,kjl->ijl", Z, parts)
    return clean + sigma * rng.standard_normal(SHAPE), clean, Z


def split(A):
    """Return each column of A as bits, by the threshold with the lowest variance within its two groups."""
    bits = np.zeros(A.shape, dtype=bool)
    for k, a in enumerate(A.T):
        values = np.unique(a)
        cuts = (values[1:] + values[:-1]) / 2
        if len(cuts):
            cost = [a[a > cut].var() * (a > cut).sum() + a[a <= cut].var() * (a <= cut).sum() for cut in cuts]
            bits[:, k] = a > cuts[int(np.argmin(cost))]
    return bits


def wrong_bits(found, truth):
    """Return the wrong bits after the best matching of columns, each as it is or reversed; missing ones count half."""
    d, K = truth.shape
    cost = np.full((K, max(K, found.shape[1])), d / 2)
    for i, z in enumerate(truth.T):
        for j, w in enumerate(found.T):
            n = np.sum(z != w)
            cost[i, j] = min(n, d - n)
    return cost[linear_sum_assignment(cost)].sum()


def lowest(X, fits):
    """Return the estimate (tensor, columns) with the lowest loss."""
    return min(fits, key=lambda fit: float(np.sum((X - fit[0]) ** 2)))


def of_tensorly(X, fit, seed):
    found = []
    for start in range(N_STARTS):
        estimate = fit(X, start, seed + start)
        found.append((tensorly.cp_to_tensor(estimate), estimate[1][0]))
    return lowest(X, found)


def cp(X, seed):
    def fit(X, start, seed):
        return parafac(X, N_ATOMS, init="random" if start else "svd", random_state=seed, n_iter_max=200, tol=1e-7)

    return of_tensorly(X, fit, seed)


def nonnegative_cp(X, seed):
    def fit(X, start, seed):
        init = "random" if start else "svd"
        return non_negative_parafac_hals(X, N_ATOMS, init=init, random_state=seed, n_iter_max=200, tol=1e-7)

    return of_tensorly(X, fit, seed)


def constrained_cp(X, seed):
    """Nonnegative along the first mode, free along the others."""

    def fit(X, start, seed):
        init = "random" if start else "svd"
        options = {"non_negative": {0: True}, "n_iter_max": 100, "n_iter_max_inner": 10}
        return constrained_parafac(X, N_ATOMS, init=init, random_state=seed, **options)

    return of_tensorly(X, fit, seed)


def nmf(X, seed):
    unfolded = np.maximum(X.reshape(len(X), -1), 0)
    found = []
    for start in range(N_STARTS):
        model = NMF(N_ATOMS, init="random" if start else "nndsvda", random_state=seed + start, max_iter=400)
        A = model.fit_transform(unfolded)
        found.append(((A @ model.components_).reshape(X.shape), A))
    return lowest(X, found)


def kmeans(X, seed):
    """One cluster more than atoms: rows with none of them are a cluster of their own."""
    unfolded = X.reshape(len(X), -1)
    model = KMeans(N_ATOMS + 1, n_init=N_STARTS, random_state=seed).fit(unfolded)
    return model.cluster_centers_[model.labels_].reshape(X.shape), np.eye(N_ATOMS + 1)[model.labels_]


def slice_tca(X, seed):
    """Components that are a column along the first mode times a full slice."""
    data, found = torch.tensor(X, dtype=torch.float32), []
    for start in range(2):
        options = {"max_iter": 2000, "learning_rate": 0.02, "progress_bar": False, "batch_prop": 0.5}
        components, model = slicetca.decompose(data, (N_ATOMS, 0, 0), seed=seed + start, **options)
        found.append((model.construct().detach().numpy(), np.asarray(components[0][0]).T))
    return lowest(X, found)


def boolean(atom_rank):
    def fit(X, seed):
        W = BMP(N_ATOMS, boolean_modes=[0], atom_rank=atom_rank, random_state=seed).fit(X).decomposition_
        Z = np.stack([atom.z for atom in W.atoms], axis=1) if W.n_atoms else np.zeros((len(X), 0), dtype=bool)
        return W.to_tensor(), Z

    return fit


METHODS = {
    "boolcp, rank one": boolean(1),
    'boolcp, atom_rank="block" (full slices)': boolean("block"),
    "CP-ALS (TensorLy)": cp,
    "nonnegative CP (TensorLy, HALS)": nonnegative_cp,
    "constrained CP (TensorLy)": constrained_cp,
    "sliceTCA": slice_tca,
    "NMF of the unfolding": nmf,
    "k-means of the rows": kmeans,
}


def measure(kind, sigma, n_seeds):
    rows = []
    for name, fit in METHODS.items():
        if name == "sliceTCA" and slicetca is None:
            rows.append([name, "not installed", "", ""])
            continue
        wrong, errors, begin = [], [], time.process_time()
        for seed in range(FIRST_SEED, FIRST_SEED + n_seeds):
            X, clean, Z = make(kind, sigma, seed)
            estimate, columns = fit(X, seed)
            bits = columns.astype(bool) if columns.dtype == bool else split(np.asarray(columns, dtype=float))
            wrong.append(wrong_bits(bits, Z))
            errors.append(float(np.sqrt(np.mean((estimate - clean) ** 2))))
        seconds = (time.process_time() - begin) / n_seeds
        share = 100 * np.mean(wrong) / (SHAPE[0] * N_ATOMS)
        rows.append([name, f"{share:.1f} %", f"{np.mean(errors):.3f}", f"{seconds:.2f}"])
        print(kind, sigma, rows[-1], flush=True)
    return table(["method", "wrong bits", "RMSE to the clean tensor", "seconds of processor time"], rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = ["# What one would use today instead", __doc__.split("\n\n")[1]]
    for kind, sigma in (("rank one", 1.0), ("rank one", 3.0), ("full slices", 1.0), ("full slices", 3.0)):
        parts += [f"## Real parts: {kind}; sigma = {sigma:g}; {options.seeds} tensors"]
        parts += [measure(kind, sigma, options.seeds)]
    write("rivals.md", COMMAND, parts, "tensorly", "scikit-learn", "torch", "slicetca")


if __name__ == "__main__":
    main()
