"""Helpers of functions that fit repeatedly: reading X, the model of all fits, and the processes."""

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from boolcp import checks
from boolcp.bmp import BMP
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import Labels, read_labels


def read_data(X: Any, mask: Any) -> tuple[np.ndarray, np.ndarray | None, Labels | None, tuple[str, ...] | None]:
    """Return the checked array of X, its mask (None if it is complete), its labels and the names of its modes."""
    values, labels = read_labels(X)
    values, observed = checks.check_tensor(values, mask)
    return values, observed, labels, None if labels is None else labels.dims


def make_model(
    n_atoms: int, options: dict[str, Any], shape: Sequence[int], dims: Sequence[str] | None, W: BooleanCP | None = None
) -> BMP:
    """Return the BMP of all fits, its Boolean modes as indices: the parts of X that it sees have no names.

    Atoms, background and loss of a given decomposition W decide the rank, the background and the loss, unless the
    options do.
    """
    modes = options.get("boolean_modes")
    modes = None if modes is None else checks.check_modes(modes, shape, dims)
    rank: dict[str, Any] = {} if W is None or not W.n_atoms else {"atom_rank": common_rank(W)}
    if W is not None:
        rank |= {"background": None} if W.background is None else {"atom_rank": "auto"}
    rank |= {} if W is None or W.deviance is None else {"loss": W.deviance.loss}
    return BMP(n_atoms, **({"certify": False} | rank | options | {"boolean_modes": modes}))


def common_rank(W: BooleanCP) -> int | str | None:
    """Return the rank of all atoms, "auto" if they differ."""
    ranks = {atom.rank for atom in W.atoms}
    return ranks.pop() if len(ranks) == 1 else "auto"


def check_reference(W: BooleanCP | None, shape: Sequence[int]) -> None:
    """Raise unless a decomposition, if one is given, is one of a tensor with this shape."""
    if W is not None and not isinstance(W, BooleanCP):
        raise TypeError(f"W must be a BooleanCP, but it is a {type(W).__name__}.")
    if W is not None and W.shape != tuple(shape):
        raise ValueError(f"W has shape {W.shape}, but X has shape {tuple(shape)}: pass a decomposition of X.")


def read_weights(model: BMP, X: Any, mask: Any, weights: Any, dims: Sequence[str] | None) -> np.ndarray | None:
    """Return the checked weights of all entries, estimated if they are the name of a mode; None if there are none."""
    if isinstance(weights, str | int):
        weights = model.noise_weights(X, weights, mask=mask)
    return None if weights is None else checks.check_weights(weights, np.shape(read_labels(X)[0]), dims)


def fit_again(
    model: BMP,
    values: np.ndarray,
    observed: np.ndarray | None,
    rng: np.random.Generator | int,
    weights: np.ndarray | None = None,
) -> BooleanCP:
    """Return what the model makes of other data or of another seed; the atoms that are reported are warned of alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", checks.DegenerateAtomsWarning)
        return clone(model).set_params(random_state=rng).fit(values, mask=observed, weights=weights).decomposition_


def _fit_part(function: Callable[..., Any], task: tuple[Any, ...]) -> Any:
    """Return function(*task) without warnings about slices that a part of the data leaves empty."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*slice\(s\) along mode")
        return function(*task)


def run_all(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], n_jobs: int, verbose: int, what: str
) -> list[Any]:
    """Return the results of function(*task) for all tasks, in order, with a progress bar.

    They run on `n_jobs` processes or, with an active `dask.distributed.Client`, as tasks of its cluster.
    """
    from tqdm import tqdm

    client = active_client()
    if client is None:
        from joblib import Parallel, delayed

        calls = Parallel(n_jobs=n_jobs, return_as="generator")(delayed(_fit_part)(function, task) for task in tasks)
    else:
        shared = {id(part): part for task in tasks for part in task if isinstance(part, np.ndarray)}
        sent = dict(zip(shared, client.scatter(list(shared.values()), hash=False) if shared else (), strict=True))
        futures = [
            client.submit(_fit_parts, function, *(sent.get(id(part), part) for part in task), pure=False)
            for task in tasks
        ]
        calls = (future.result() for future in futures)
    return list(tqdm(calls, total=len(tasks), desc=what, disable=None if verbose else True))


def _fit_parts(function: Callable[..., Any], *task: Any) -> Any:
    """Return function(*task) on a worker: parts that were sent before arrive as they are."""
    return _fit_part(function, task)


def active_client() -> Any:
    """Return the client of `dask.distributed` that is active in this process, None without one."""
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.get_client()
    except ValueError:
        return None
