"""Methods compared at equal numbers of real parameters, and of degrees of freedom, in denoising recordings.

Figure 2 compares K atoms with K components. A block atom has many more real numbers than a component of CP, so CP and
Tucker are here also given as many as blocks have; principal components of an unfolding, cut or optimally shrunk
(Gavish and Donoho, with the level of the noise known), are compared as well.
"""

import numpy as np
import recordings
import style
from methods import BLOCKS, PUBLISHED, RANK_ONE, estimates
from tables import main, seed_of

from boolcp.metrics import rmse

PCA, SHRINKAGE = "PCA, best mode", "shrunk PCA, best mode"
OURS = (RANK_ONE, BLOCKS, PUBLISHED, "LFM")
METHODS = (*OURS, "CP", "Tucker", PCA, SHRINKAGE)
NUMBERS = {method: (1, 2, 3, 5, 10) for method in OURS}
NUMBERS |= {"CP": (1, 2, 3, 5, 10, 20, 40, 80), "Tucker": (1, 2, 3, 5, 10, 15, 20, 30), PCA: (1, 2, 3, 5, 8, 12, 20)}
QUICK_NUMBERS = (1, 3)
LOOKS = {method: style.LOOKS[method] for method in (*OURS, "CP", "Tucker")}
LOOKS[PCA] = {"color": style.YELLOW, "marker": "h", "markeredgecolor": "0.3", "markeredgewidth": 0.4}
LOOKS[SHRINKAGE] = {"color": style.BLACK, "marker": "x", "linestyle": "none", "markersize": 5}
LEAST_SHOWN = {"freedom": 1000}  # the standard error of an estimate is 300 to 900
AXES = {"n_atoms": "atoms, components", "parameters": "real parameters", "freedom": "degrees of freedom"}


def plan(*, quick=False, seeds=None):
    """Return the jobs: recording x seed x method; quick has one recording and few numbers."""
    names = [name for name in recordings.sources() if name[1] not in ("anesthesia", "recovery")]
    return [
        {"group": group, "condition": condition, "size": 64 if quick else 128, "seed": seed, "method": method}
        for seed in range((1 if quick else 2) if seeds is None else seeds)
        for group, condition in names[: 1 if quick else None]
        for method in METHODS
    ]


def run(job):
    """Yield error, real parameters, bits and degrees of freedom for each number of atoms, components or directions.

    The degrees of freedom are Efron's: the inner product of noise and estimate over the variance of the noise. That of
    the noise and the clean tensor has mean zero, and is taken off.
    """
    clean = recordings.load(job["group"], job["condition"], job["size"])
    rng = np.random.default_rng(seed_of("fig2", job["condition"], "denoise", job["seed"]))
    noise = rng.standard_normal(clean.shape)
    numbers = QUICK_NUMBERS if job["size"] < 128 else NUMBERS.get(job["method"], ())
    for n_atoms, found in candidates(job["method"], clean + noise, numbers, seed_of(*job.values())):
        tensor, n_parameters, n_bits = min(found, key=lambda option: rmse(option[0], clean))
        values = {"rmse": rmse(tensor, clean), "parameters": n_parameters, "bits": n_bits}
        values["freedom"] = float(np.vdot(noise, tensor - clean))
        for metric, value in values.items():
            yield {"n_atoms": n_atoms, "metric": metric, "value": value}


def candidates(method, X, numbers, seed):
    """Yield (n_atoms, [(estimate, real parameters, bits)]): one for each mode where the best mode is reported."""
    if method == SHRINKAGE:
        yield 0, [shrunk(X, mode) for mode in range(X.ndim)]
    elif method == PCA:
        for rank in numbers:
            yield rank, [cut(X, mode, rank) for mode in range(X.ndim) if rank <= min(X.shape[mode], X[0].size)]
    else:
        for n_atoms, found in estimates(method, X, numbers, seed):
            yield n_atoms, [(W.to_tensor(), n_parameters(W), getattr(W, "n_bits", 0)) for W in found]


def n_parameters(W):
    """Return the free real parameters of a decomposition; those of CP and Tucker less scales and rotations."""
    if hasattr(W, "core"):
        return int(W.core.size + sum(r * (d - r) for r, d in zip(W.core.shape, W.shape, strict=True)))
    return W.n_parameters if hasattr(W, "n_bits") else W.n_atoms * (sum(W.shape) - len(W.shape) + 1)


def unfold(X, mode):
    """Return the unfolding of X along a mode."""
    return np.moveaxis(X, mode, 0).reshape(X.shape[mode], -1)


def refold(matrix, mode, shape):
    """Return the tensor whose unfolding along a mode is this matrix."""
    return np.moveaxis(matrix.reshape(shape[mode], *shape[:mode], *shape[mode + 1 :]), 0, mode)


def cut(X, mode, rank):
    """Return the best matrix of a rank to one unfolding of X."""
    A = unfold(X, mode)
    U = np.linalg.eigh(A @ A.T)[1][:, -rank:]
    return refold(U @ (U.T @ A), mode, X.shape), rank * (sum(A.shape) - rank), 0


def shrunk(X, mode, sigma=1.0):
    """Return one unfolding of X with its singular values shrunk as is optimal for noise of this level."""
    A = unfold(X, mode)
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    ratio, y = min(A.shape) / max(A.shape), s / (sigma * np.sqrt(max(A.shape)))
    rank = int(np.sum(y > 1 + np.sqrt(ratio)))
    y = y[:rank]
    s = sigma * np.sqrt(max(A.shape)) * np.sqrt((y**2 - ratio - 1) ** 2 - 4 * ratio) / y
    return refold((U[:, :rank] * s) @ Vt[:rank], mode, X.shape), rank * (sum(A.shape) - rank), 0


def draw(table):
    """Return the figure: a row for each recording, the error against atoms, parameters and degrees of freedom."""
    names = list(dict.fromkeys(zip(table["group"], table["condition"], strict=True)))
    canvas, axes = style.figure(len(names), len(AXES), 1.0 + 1.9 * len(names), sharey="row")
    for n, (line, (group, condition)) in enumerate(zip(axes, names, strict=True)):
        rows = table[(table["group"] == group) & (table["condition"] == condition)]
        wide = rows.pivot_table(index=["method", "n_atoms"], columns="metric", values="value").reset_index()
        for ax, (x, label) in zip(line, AXES.items(), strict=True):
            for method, look in LOOKS.items():
                part = wide[(wide["method"] == method) & (wide[x] >= LEAST_SHOWN.get(x, 0))].sort_values(x)
                if len(part) and not (x == "n_atoms" and method == SHRINKAGE):
                    ax.plot(part[x], part["rmse"], label=method, **look)
            ax.set(xscale="log", xlabel=label if n == len(names) - 1 else None)
            ax.xaxis.set_minor_formatter("")  # labels of an axis within two decades would overlap
        line[0].set(title=f"{group}: {condition}", ylabel="denoising RMSE (s.d.)")
    text = (
        f"Unit noise added to standardized recordings, mean over {style.n_seeds(table)}. Bits are no real "
        f"parameters; degrees of freedom count what\nthe choice of bits, modes and ranks costs "
        f"as well; those below {LEAST_SHOWN['freedom']} are not shown."
    )
    return style.finish(canvas, axes.flat, 5, text)


if __name__ == "__main__":
    main("parameters")
