"""The methods that the figures compare, by their names in the legend, each asked for several numbers of atoms."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from boolcp import baselines
from boolcp.bmp import BMP
from boolcp.result.atoms import BooleanCP

PUBLISHED = "BMP as published"
PUBLISHED_RANK_ONE = "BMP as published, rank one"
DEFAULT = "BMP (default)"
RANK_ONE = "BMP, rank one"

PATHS: dict[str, Callable[..., Any]] = {  # one fit gives the estimates for all smaller numbers of atoms
    PUBLISHED: BMP.as_published,
    PUBLISHED_RANK_ONE: lambda n_atoms, **options: BMP(
        n_atoms, atom_rank=1, criterion="published", refine=False, **options
    ),
    "LFMmix": baselines.LFMmix,
}
FITS: dict[str, Callable[..., Any]] = {  # a fit for each number of atoms
    DEFAULT: BMP,
    RANK_ONE: lambda n_atoms, **options: BMP(n_atoms, atom_rank=1, **options),
    "Tucker": baselines.Tucker,
    "CP": baselines.CP,
    "SUSTain": baselines.SUSTain,
}
NAMES = (PUBLISHED, PUBLISHED_RANK_ONE, DEFAULT, RANK_ONE, "LFM", "LFMmix", "Tucker", "CP", "SUSTain")


def estimates(
    method: str, X: Any, numbers: Sequence[int], seed: int, mask: np.ndarray | None = None
) -> Iterator[tuple[int, list[Any]]]:
    """Yield (n_atoms, candidates) for each of the numbers of atoms; only LFM has several candidates, one per mode.

    The paper reports the best mode of LFM, best by the error that is plotted: whoever asks takes the best candidate.
    """
    if method in FITS:
        for n_atoms in numbers:
            yield n_atoms, [FITS[method](n_atoms, random_state=seed).fit(X, mask=mask).decomposition_]
        return
    if method == "LFM":
        models = [baselines.LFM(max(numbers), mode=mode, random_state=seed) for mode in range(X.ndim)]
    else:
        options = {} if method == "LFMmix" else {"certify": False}
        models = [PATHS[method](max(numbers), random_state=seed, **options)]
    paths = [model.fit(X, mask=mask).path_ for model in models]
    for n_atoms in numbers:
        yield n_atoms, [path[min(n_atoms, len(path) - 1)] for path in paths]


def has_boolean_factors(candidates: Sequence[Any]) -> bool:
    """Return True if the candidates have Boolean factors to compare."""
    return all(isinstance(W, BooleanCP) for W in candidates)
