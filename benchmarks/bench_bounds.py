"""How close the bounds on the ratio z'Cz / |z|^2 are, what they cost, and what certificates add to a fit.

Run `python benchmarks/bench_bounds.py` (about ten minutes); the tables are printed and written to
`benchmarks/results/bounds.md`. With BOOLCP_DATA, the matrices of recordings are among them.
"""

import time

import numpy as np
import real_data
from common import table, write
from threadpoolctl import threadpool_limits

from boolcp import BMP
from boolcp.datasets import load_syn
from boolcp.program import bounds
from boolcp.program.maxcut import maximize_boolean_rayleigh

SEED = 20261116
LATER = (0, 1, 3, 8)  # greedy atoms that were taken away before
RECORDINGS = ("ecog_raw", "eeg_raw", "spikes", "anesthesia")


def synthetic(d, n_atoms, rng):
    """Return a tensor d x 30 x 40 of rank-one atoms along all modes, with unit noise."""
    shape = (d, 30, 40)
    X = rng.standard_normal(shape)
    for k in range(n_atoms):
        columns = [rng.standard_normal(size) for size in shape]
        columns[k % 3] = (rng.random(shape[k % 3]) < 0.5).astype(float)
        X += np.einsum("i,j,k->ijk", *columns)
    return X


def residual_grams(X):
    """Yield C = RR' and good bits of the residual of X along mode 0, after some greedy atoms with dense blocks."""
    R = X.reshape(len(X), -1).copy()
    for k in range(max(LATER) + 1):
        C = R @ R.T
        z = maximize_boolean_rayleigh(C, random_state=k, certify=False).z
        if k in LATER:
            yield C, z
        R[z] -= R[z].mean(axis=0)


def splitting(C, z):
    """Return the bound of the splitting without triangles."""
    first, bounds.FIRST_CUTS = bounds.FIRST_CUTS, 10**9
    try:
        return bounds.prove_ratio(C, z, effort="default")
    finally:
        bounds.FIRST_CUTS = first


def closed_form(C, z):
    """Return the bound of the closed form."""
    value = float(z @ C @ z) / z.sum()
    return bounds.prove(C, value, bounds.closed_form(C / value, z))


METHODS = {
    "largest eigenvalue": lambda C, z: bounds.prove(C, np.trace(C), bounds.Multipliers(np.zeros(C.shape))),
    "closed form": closed_form,
    "splitting": splitting,
    "with triangles (default)": lambda C, z: bounds.prove_ratio(C, z, effort="default"),
    "with triangles (thorough)": lambda C, z: bounds.prove_ratio(C, z, effort="thorough"),
}


def families():
    """Yield the name and the matrices with good bits of each family."""
    for d, n_tensors in ((50, 3), (150, 3), (300, 2), (1000, 1)):
        rng = np.random.default_rng([SEED, d])
        found = [pair for n in range(n_tensors) for pair in residual_grams(synthetic(d, 8 + 7 * (n % 2), rng))]
        yield f"synthetic, d = {d}", found
    if real_data.missing_reason() is None:
        for name in RECORDINGS:
            X = getattr(real_data, name)()
            yield f"{name}, d = {len(X)}", list(residual_grams(X))


def compare():
    """Return table rows: value / bound, median and least, and the median processor time in milliseconds."""
    rows = []
    for name, pairs in families():
        for method, prove in METHODS.items():
            if method.endswith("(thorough)") and len(pairs[0][1]) >= 1000:
                continue  # minutes
            ratios, spent = [], []
            for C, z in pairs:
                start = time.process_time()
                proof = prove(C, z)
                spent.append(time.process_time() - start)
                ratios.append(0.0 if proof is None else float(z @ C @ z) / z.sum() / proof.bound)
            numbers = [f"{np.median(ratios):.4f}", f"{min(ratios):.4f}", f"{1e3 * np.median(spent):.3g}"]
            rows.append([f"{name} ({len(pairs)})", method, *numbers])
            print(rows[-1], flush=True)
    return rows


def cost_of_certificates():
    """Return table rows: processor time of a fit of Syn2 with certificates over that without, and what is proved."""
    rows = []
    for seed in range(3):
        X = load_syn(2, noise=1.0, random_state=SEED + seed).X
        times = {}
        for certify in (False, True, False, True):
            model = BMP(15, atom_rank=1, certify=certify, random_state=0)
            start = time.process_time()
            model.fit(X)
            times.setdefault(certify, []).append(time.process_time() - start)
        least = min(atom.certificate for atom in model.decomposition_.atoms)
        without, with_them = min(times[False]), min(times[True])
        rows.append([seed, f"{without:.2f}", f"{with_them:.2f}", f"{with_them / without:.2f}", f"{least:.4f}"])
    return rows


def main():
    with threadpool_limits(1):
        bounds.prove_ratio(*next(residual_grams(synthetic(60, 3, np.random.default_rng(0)))), effort="thorough")
        close = table(["matrices", "bound", "value / bound, median", "least", "ms"], compare())
        cost = table(["seed", "without, s", "with, s", "ratio", "least certificate"], cost_of_certificates())
    text = (
        "Residual Gram matrices after 0, 1, 3 and 8 greedy atoms; z from the default search. All bounds are proved. "
        "Median processor time, one thread."
    )
    parts = ["# Bounds on the ratio", text, close, "## Certificates of a default fit, Syn2, noise 1", cost]
    write("bounds.md", "python benchmarks/bench_bounds.py", parts)


if __name__ == "__main__":
    main()
