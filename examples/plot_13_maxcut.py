"""
The mathematics in small: bits and their certificate
====================================================

Every step of the method asks one question: which zeros and ones make z'Cz, or z'Cz / (number of ones), as large as
possible? There are 2^d candidates. This page solves the question for d = 12, where all candidates can be tried, and
shows how a *bound* proves that an answer is good where they cannot.
"""

# %%
# C is the Gram matrix of what is left of the data: C = RR', one row of R for each channel. Here three of twelve
# channels share a signal.

import matplotlib.pyplot as plt
import numpy as np

import boolcp

rng = np.random.default_rng(0)
R = rng.standard_normal((12, 40))
R[[2, 3, 7]] += 0.9 * rng.standard_normal(40)
C = R @ R.T

# %%
# All 4095 candidates, and the answer of the library. Up to 20 bits it tries all candidates itself, so that its bound
# is exact.

every = (np.arange(1, 2**12)[:, None] >> np.arange(12) & 1).astype(float)
values = np.einsum("ki,ij,kj->k", every, C, every)
ratios = values / every.sum(axis=1)
quadratic = boolcp.maximize_boolean_quadratic(C)
rayleigh = boolcp.maximize_boolean_rayleigh(C)
print(f"z'Cz:        best of all {values.max():.2f}, found {quadratic.value:.2f}, bound {quadratic.bound:.2f}")
print(f"z'Cz/|z|^2:  best of all {ratios.max():.2f}, found {rayleigh.value:.2f}, bound {rayleigh.bound:.2f}")
print("channels on, by ratio:", np.flatnonzero(rayleigh.z), "- by z'Cz:", np.flatnonzero(quadratic.z))

# %%
# z'Cz alone prefers many ones: more channels, more energy. Divided by their number it is the true decrease of the
# error, and finds the three channels. ``BMP.as_published`` maximizes the former, ``BMP`` the latter.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for ax, scores, found, label in zip(
    axes, (values, ratios), (quadratic, rayleigh), ("z'Cz", "z'Cz / |z|²"), strict=True
):
    ax.scatter(every.sum(axis=1) + rng.uniform(-0.3, 0.3, len(every)), scores, s=2, color="lightgray")
    ax.plot(found.z.sum(), found.value, "o", color="#0072B2", label="found")
    ax.axhline(found.bound, color="#D55E00", label="bound")
    ax.set(xlabel="number of ones", ylabel=label)
    ax.legend(frameon=False, fontsize="small", loc="center right" if found is rayleigh else "lower right")

# %%
# Where no one can try all
# ------------------------
# With 150 channels there are 10^45 candidates. The bound costs a few milliseconds: it comes from a relaxation in
# which each bit is a vector on a sphere (the MAXCUT program), and is proved by a Cholesky factorization. Value /
# bound is the certificate.

print("    d   z'Cz   ratio   (certificates; nothing but noise, the hardest case)")
sizes, proved = (25, 50, 100, 200, 400), []
for d in sizes:
    R = rng.standard_normal((d, d))
    C = R @ R.T
    pair = boolcp.maximize_boolean_quadratic(C, random_state=0), boolcp.maximize_boolean_rayleigh(C, random_state=0)
    proved.append([result.ratio for result in pair])
    print(f"{d:5d}  {100 * proved[-1][0]:5.1f}%  {100 * proved[-1][1]:5.1f}%")

figure, ax = plt.subplots(figsize=(4.5, 3), layout="constrained")
ax.semilogx(sizes, 100 * np.array(proved), "o-", label=["z'Cz", "z'Cz / |z|²"])
ax.set(xlabel="number of bits d", ylabel="proved share of the best (%)", ylim=(0, 102), xticks=sizes)
ax.xaxis.set_major_formatter("{x:.0f}")
ax.minorticks_off()
ax.legend(frameon=False)

# %%
# A certificate below 100 % does not say that a better z exists, only that none better than the bound does.
#
# **Try next:** the derivations in "The mathematics", sections 2 to 4; ``effort="thorough"``.
