"""
Denoise, and compare with CP
============================

A decomposition with few atoms keeps what repeats and leaves the noise behind. If patterns are on or off, saying so
leaves fewer numbers to estimate, and the estimate has less noise than that of a plain CP decomposition.
"""

# %%
# A tensor of 40 x 50 x 60 with six on/off patterns and noise as strong as the patterns.

import matplotlib.pyplot as plt
import numpy as np
from tensorly.decomposition import parafac

import boolcp

X, clean, truth = boolcp.datasets.make_boolean_cp((40, 50, 60), 6, noise=2.0, random_state=0)
print("signal to noise ratio (variance):", round(float(clean.var() / (X - clean).var()), 2))

# %%
# Fit both with the true number of atoms. CP is TensorLy's alternating least squares, the best of three starts. *Known
# bits* is least squares with the true bits given: nobody who has to find the bits can do better on average.


def fit_cp(k):
    """Return the estimate of CP with k terms."""
    starts = ("svd", 0), ("random", 1), ("random", 2)
    found = [parafac(X, k, init=init, random_state=seed, n_iter_max=200).to_tensor() for init, seed in starts]
    return min(found, key=lambda estimate: np.sum((X - estimate) ** 2))


W = boolcp.decompose(X, 6, random_state=0)
cp = fit_cp(6)
n_real = sum(sum(d for n, d in enumerate(X.shape) if n != atom.mode) - 1 for atom in truth.atoms)
print(f"boolcp      {boolcp.metrics.rmse(W, clean):.4f}")
print(f"CP          {boolcp.metrics.rmse(cp, clean):.4f}")
print(f"known bits  {2.0 * np.sqrt(n_real / X.size):.4f} (expected)")
print("wrong bits:", boolcp.metrics.hamming_error(W, truth))

# %%
# If the number of atoms is not known
# -----------------------------------
# ``path_`` has the estimates with 0, 1, 2, .. atoms. With too few atoms a part of the signal is missing; with
# too many the noise comes in, here more slowly with Boolean atoms.

numbers = np.arange(1, 11)
path = boolcp.BMP(10, certify=False, random_state=0).fit(X).path_
ours = [boolcp.metrics.rmse(W_k, clean) for W_k in path[1:]]
theirs = [boolcp.metrics.rmse(fit_cp(k), clean) for k in numbers]

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
axes[0].semilogy(numbers, theirs, "s-", color="#D55E00", label="CP")
axes[0].semilogy(numbers[: len(ours)], ours, "o-", color="#0072B2", label="boolcp")
axes[0].axvline(6, color="gray", linestyle=":", label="true number")
axes[0].set(xlabel="number of atoms", ylabel="RMSE to the clean tensor")
axes[0].legend(frameon=False)

bins = np.linspace(-0.8, 0.8, 81)
for estimate, name, color in ((cp, "CP", "#D55E00"), (W.to_tensor(), "boolcp", "#0072B2")):
    errors = (estimate - clean).ravel()
    axes[1].hist(errors, bins, density=True, histtype="step", linewidth=1.6, color=color, label=name)
axes[1].set(xlabel="error of an entry (noise had s.d. 2)", ylabel="density", title="6 atoms")
axes[1].legend(frameon=False)

# %%
# The gain is one of the model, not of a better optimizer: patterns that vary smoothly along every mode are no on/off
# patterns, and there CP needs fewer atoms than boolcp.
#
# **Try next:** noise of 0.5 or 5; ``p=0.1`` in ``make_boolean_cp``, for patterns that are on in few places.
