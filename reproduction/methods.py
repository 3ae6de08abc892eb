"""The methods that the figures compare, by their names in the legend, each with several numbers of atoms."""

import numpy as np
from tables import count_starts, cp_tucker

from boolcp import BMP, baselines

PUBLISHED, RANK_ONE, BLOCKS = "BMP as published", "BMP, rank one", "BMP, blocks"
OPTIONS = {RANK_ONE: {"atom_rank": 1}, BLOCKS: {"atom_rank": "block"}}
NAMES = (PUBLISHED, RANK_ONE, BLOCKS, "LFM", "LFMmix", "Tucker", "CP", "SUSTain")


def make(method, n_atoms, seed, **options):
    """Return the estimator of a name."""
    if method == PUBLISHED:
        return BMP.as_published(n_atoms, random_state=seed, **options)
    if method in OPTIONS:
        return BMP(n_atoms, random_state=seed, **OPTIONS[method], **options)
    found = cp_tucker if method in ("CP", "Tucker") else baselines
    return getattr(found, method)(n_atoms, random_state=seed, **options)


def estimates(method, X, numbers, seed, mask=None):
    """Yield (n_atoms, candidates) for each of the numbers of atoms; only LFM has several candidates, one per mode.

    The paper reports the best mode of LFM by the plotted error: the caller takes the best candidate. Methods with a
    path are fitted once, for the largest number. On complete data CP and SUSTain have as many starts as rank one, at
    least five.
    """
    certify = {"certify": False} if method.startswith("BMP") else {}
    if method in (RANK_ONE, "Tucker", "CP", "SUSTain"):
        for n_atoms in numbers:
            options = certify
            if method in ("CP", "SUSTain") and mask is None and not np.isnan(X).any():
                options = {"n_init": max(5, count_starts(make(RANK_ONE, n_atoms, seed, certify=False), X))}
            yield n_atoms, [make(method, n_atoms, seed, **options).fit(X, mask=mask).decomposition_]
        return
    modes = [{"mode": mode} for mode in range(X.ndim)] if method == "LFM" else [{}]
    paths = [make(method, max(numbers), seed, **certify, **mode).fit(X, mask=mask).path_ for mode in modes]
    for n_atoms in numbers:
        yield n_atoms, [path[min(n_atoms, len(path) - 1)] for path in paths]
