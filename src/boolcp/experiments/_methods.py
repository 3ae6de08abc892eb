"""The methods that the figures compare, by their names in the legend, each with several numbers of atoms."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from boolcp import baselines
from boolcp.bmp import BMP
from boolcp.experiments._table import fingerprint
from boolcp.fit.blocks import block_pursuit
from boolcp.result.atoms import BooleanCP
from boolcp.storage import DenseTensor

PUBLISHED = "BMP as published"
PUBLISHED_RANK_ONE = "BMP as published, rank one"
DEFAULT = "BMP (default)"
RANK_ONE = "BMP, rank one"
BLOCKS = "BMP, blocks"

PATHS: dict[str, Callable[..., Any]] = {  # one fit gives the estimates for all smaller numbers of atoms
    PUBLISHED: BMP.as_published,
    PUBLISHED_RANK_ONE: lambda n_atoms, **options: BMP(
        n_atoms, atom_rank=1, background=None, criterion="published", refine=False, **options
    ),
    "LFMmix": baselines.LFMmix,
}
FITS: dict[str, Callable[..., Any]] = {  # a fit for each number of atoms
    DEFAULT: BMP,
    RANK_ONE: lambda n_atoms, **options: BMP(n_atoms, atom_rank=1, background=None, **options),
    "Tucker": baselines.Tucker,
    "CP": baselines.CP,
    "SUSTain": baselines.SUSTain,
}
NAMES = (PUBLISHED, PUBLISHED_RANK_ONE, DEFAULT, RANK_ONE, BLOCKS, "LFM", "LFMmix", "Tucker", "CP", "SUSTain")
MODULES = {name: f"boolcp.baselines.{name.lower()}" for name in ("CP", "Tucker", "LFM", "SUSTain")}
MODULES["LFMmix"] = MODULES["LFM"]


class Estimate(NamedTuple):
    """A decomposition, and the tensor that the whole estimate is, a background beside the atoms included."""

    W: Any
    background: Any = None

    def to_tensor(self) -> np.ndarray:
        """Return the estimate as a dense array."""
        tensor: np.ndarray = self.W.to_tensor()
        return tensor if self.background is None else tensor + self.background.to_tensor()


def code_of(experiment: str, job: dict[str, Any]) -> str:
    """Return the fingerprint of the code that makes the rows of a job: its method, and what the experiment `USES`."""
    uses = importlib.import_module(experiment).USES
    return fingerprint(experiment, (MODULES.get(job.get("method", ""), "boolcp.bmp"), *uses))


def estimates(
    method: str, X: Any, numbers: Sequence[int], seed: int, mask: np.ndarray | None = None
) -> Iterator[tuple[int, list[Estimate]]]:
    """Yield (n_atoms, candidates) for each of the numbers of atoms; only LFM has several candidates, one per mode.

    The paper reports the best mode of LFM by the plotted error: the caller takes the best candidate.
    """
    if method in FITS:
        for n_atoms in numbers:
            model = FITS[method](n_atoms, random_state=seed).fit(X, mask=mask)
            yield n_atoms, [Estimate(model.decomposition_, getattr(model, "background_", None))]
        return
    if method == "LFM":
        models = [baselines.LFM(max(numbers), mode=mode, random_state=seed) for mode in range(X.ndim)]
        paths: list[Sequence[Any]] = [model.fit(X, mask=mask).path_ for model in models]
    elif method == BLOCKS:
        paths = [block_path(X, max(numbers), seed, mask)]
    else:
        options = {} if method == "LFMmix" else {"certify": False}
        paths = [PATHS[method](max(numbers), random_state=seed, **options).fit(X, mask=mask).path_]
    for n_atoms in numbers:
        yield n_atoms, [Estimate(path[min(n_atoms, len(path) - 1)]) for path in paths]


def block_path(X: Any, n_atoms: int, seed: int, mask: np.ndarray | None) -> Sequence[BooleanCP]:
    """Return the back-fitted block atoms by their number: ranks chosen by the noise, dense if entries are missing."""
    if mask is not None or np.isnan(X).any():
        model = BMP(n_atoms, atom_rank=None, background=None, certify=False, random_state=seed)
        return model.fit(X, mask=mask).path_
    rng = np.random.default_rng(seed)
    steps = block_pursuit(DenseTensor(X), n_atoms, range(X.ndim), rng, atom_rank="auto", certify=False)
    return [pursuit.path for pursuit in steps][-1]
