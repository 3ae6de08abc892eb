"""Methods compared at equal numbers of real parameters, and of degrees of freedom, in denoising recordings.

Figure 2 compares K atoms with K components. A block atom has many more real numbers than a component of CP, so CP and
Tucker are here also given as many as blocks have; principal components of an unfolding, cut or optimally shrunk
(Gavish and Donoho), stand beside them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from boolcp.baselines import CP, Tucker
from boolcp.experiments import _recordings, _style
from boolcp.experiments._methods import BLOCKS, DEFAULT, PUBLISHED, RANK_ONE, Estimate, estimates
from boolcp.experiments._table import Job, Row, seed_of
from boolcp.fit.noise import noise_level
from boolcp.fit.shrinkage import shrink_matrix
from boolcp.metrics import rmse
from boolcp.storage import DenseTensor

USES = ("boolcp.metrics", "boolcp.experiments._recordings", "boolcp.baselines.cp", "boolcp.baselines.tucker")
PCA, SHRINKAGE = "PCA, best mode", "shrunk PCA, best mode"
OURS = (DEFAULT, RANK_ONE, BLOCKS, PUBLISHED, "LFM")
METHODS = (*OURS, "CP", "Tucker", PCA, SHRINKAGE)
NUMBERS = (1, 2, 3, 5, 10)
CP_NUMBERS = (1, 2, 3, 5, 10, 20, 40, 80)
TUCKER_NUMBERS = (1, 2, 3, 5, 10, 15, 20, 30)
PCA_NUMBERS = (1, 2, 3, 5, 8, 12, 20)


def plan(*, quick: bool = False, seeds: int | None = None) -> list[Job]:
    """Return the jobs: recording x seed x method; quick has the smallest recording and few methods."""
    names = _recordings.sources(real_names=_recordings.REAL_NAMES)
    names = names[:1] if quick else [name for name in names if name[1] not in ("anesthesia", "recovery")]
    return [
        {"group": group, "condition": condition, "size": 64 if quick else 128, "seed": seed, "method": method}
        for seed in range((1 if quick else 2) if seeds is None else seeds)
        for group, condition in names
        for method in METHODS
    ]


def run(job: Job) -> Iterator[Row]:
    """Yield error, real parameters, bits and degrees of freedom for each number of atoms, components or directions.

    The degrees of freedom are Efron's: the inner product of noise and estimate over the variance of the noise. That of
    the noise and the clean tensor has mean zero, and is taken off.
    """
    clean = np.ascontiguousarray(_recordings.load(job["group"], job["condition"], job["size"]).to_numpy(), dtype=float)
    rng = np.random.default_rng(seed_of("fig2", job["condition"], "denoise", job["seed"]))
    noise = rng.standard_normal(clean.shape)
    for n_atoms, found in candidates(job["method"], clean + noise, seed_of(*job.values()), quick=job["size"] < 128):
        tensor, n_parameters, n_bits = min(found, key=lambda option: rmse(option[0], clean))
        values = {"rmse": rmse(tensor, clean), "parameters": n_parameters, "bits": n_bits}
        values |= {"freedom": float(np.vdot(noise, tensor - clean))}
        for metric, value in values.items():
            yield {"n_atoms": n_atoms, "metric": metric, "value": value}


Counted = tuple[np.ndarray, int, int]  # an estimate, its real parameters and its bits


def candidates(method: str, X: np.ndarray, seed: int, *, quick: bool) -> Iterator[tuple[int, list[Counted]]]:
    """Yield (n_atoms, counted estimates); there is one for each mode where the best mode is reported."""
    if method in OURS:
        for n_atoms, found in estimates(method, X, NUMBERS[:3] if quick else NUMBERS, seed):
            yield n_atoms, [counted(one) for one in found]
    elif method in ("CP", "Tucker"):
        for n_atoms in (1, 5) if quick else CP_NUMBERS if method == "CP" else TUCKER_NUMBERS:
            model = CP(n_atoms, random_state=seed) if method == "CP" else Tucker(n_atoms)
            W = model.fit(X).decomposition_
            yield n_atoms, [(W.to_tensor(), cp_parameters(W) if method == "CP" else tucker_parameters(W), 0)]
    elif method == PCA:
        for rank in PCA_NUMBERS:
            yield rank, [cut(X, mode, rank) for mode in range(X.ndim) if rank <= min(X.shape[mode], X[0].size)]
    else:
        sigma = noise_level(DenseTensor(X))
        yield 0, [shrunk(X, mode, sigma) for mode in range(X.ndim)]


def counted(one: Estimate) -> Counted:
    """Return the tensor of an estimate with atoms, its real parameters and its bits."""
    beside = 0 if one.background is None else one.background.n_parameters
    return one.to_tensor(), one.W.n_parameters + beside, one.W.n_bits


def cp_parameters(W: Any) -> int:
    """Return the real parameters of CP: each component has one scale less for each mode but one."""
    return int(W.n_atoms * (sum(W.shape) - len(W.shape) + 1))


def tucker_parameters(W: Any) -> int:
    """Return the real parameters of Tucker: the core, and one subspace for each mode."""
    ranks = W.core.shape
    return int(W.core.size + sum(r * (d - r) for r, d in zip(ranks, W.shape, strict=True)))


def refold(matrix: np.ndarray, mode: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the tensor whose unfolding along a mode is this matrix."""
    others = shape[:mode] + shape[mode + 1 :]
    return np.moveaxis(matrix.reshape(shape[mode], *others), 0, mode)


def cut(X: np.ndarray, mode: int, rank: int) -> Counted:
    """Return the best matrix of a rank to one unfolding of X."""
    A = DenseTensor(X).unfold(mode)
    U = np.linalg.eigh(A @ A.T)[1][:, -rank:]
    return refold(U @ (U.T @ A), mode, X.shape), rank * (sum(A.shape) - rank), 0


def shrunk(X: np.ndarray, mode: int, sigma: float) -> Counted:
    """Return one unfolding of X with its singular values shrunk as is optimal for the noise."""
    A = DenseTensor(X).unfold(mode)
    found = shrink_matrix(A, sigma, A.shape)
    if found is None:
        return np.zeros_like(X), 0, 0
    (left, right), _ = found
    rank = left.shape[1]
    return refold(left @ right.T, mode, X.shape), rank * (sum(A.shape) - rank), 0


LOOKS: dict[str, dict[str, Any]] = {
    **{method: _style.LOOKS[method] for method in (*OURS, "CP", "Tucker")},
    PCA: {"color": _style.YELLOW, "marker": "h", "markeredgecolor": "0.3", "markeredgewidth": 0.4},
    SHRINKAGE: {"color": _style.BLACK, "marker": "x", "linestyle": "none", "markersize": 5},
}
LEAST_SHOWN = {"freedom": 1000}  # the standard error of an estimate is 300 to 900
AXES = {"n_atoms": "atoms, components", "parameters": "real parameters", "freedom": "degrees of freedom"}


@_style.styled
def draw(table: Any) -> Any:
    """Return the figure: a row for each recording, the error against atoms, parameters and degrees of freedom."""
    names = list(dict.fromkeys(zip(table["group"], table["condition"], strict=True)))
    canvas, axes = _style.figure(len(names), len(AXES), _style.PAGE, 1.0 + 1.9 * len(names), sharey="row")
    for n, (line, (group, condition)) in enumerate(zip(axes, names, strict=True)):
        rows = table[(table["group"] == group) & (table["condition"] == condition)]
        wide = rows.pivot_table(index=["method", "n_atoms"], columns="metric", values="value").reset_index()
        for ax, (x, label) in zip(line, AXES.items(), strict=True):
            for method, look in LOOKS.items():
                part = wide[wide["method"] == method].sort_values(x)
                part = part[part[x] >= LEAST_SHOWN.get(x, 0)]
                if len(part) and not (x == "n_atoms" and method == SHRINKAGE):
                    ax.plot(part[x], part["rmse"], label=method, **look)
            ax.set(xscale="log", xlabel=label if n == len(names) - 1 else None)
            ax.xaxis.set_minor_formatter("")  # labels of an axis within two decades would overlap
        line[0].set_title(f"{group}: {condition}")
        line[0].set_ylabel("denoising RMSE (s.d.)")
    _style.letter(axes)
    _style.legend_below(canvas, axes, 5)
    _style.note(
        canvas,
        f"Unit noise added to standardized recordings, mean over {_style.n_seeds(table)}. Bits are no real "
        f"parameters; degrees of freedom count what\nthe choice of bits, modes and ranks costs "
        f"as well; those below {LEAST_SHOWN['freedom']} are not shown.",
    )
    return canvas
