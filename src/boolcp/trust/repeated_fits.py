"""What functions share that fit repeatedly: reading X, in memory or not, the model of all fits, and the processes."""

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from boolcp import checks
from boolcp.bmp import BMP
from boolcp.fit.watch import PRESENT
from boolcp.memory import check_memory, float_bytes, read_memory
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import Labels, read_labels
from boolcp.storage import stays_out
from boolcp.storage.slabs import Parcel, aligned, same
from boolcp.storage.sources import Source
from boolcp.threads import shared_thread


def read_data(X: Any, mask: Any) -> tuple[np.ndarray, np.ndarray | None, Labels | None, tuple[str, ...] | None]:
    """Return the checked array of X, its mask (None if it is complete), its labels and the names of its modes."""
    values, labels = read_labels(X)
    values, observed = checks.check_tensor(values, mask)
    return values, observed, labels, None if labels is None else labels.dims


def make_model(
    n_atoms: int, options: dict[str, Any], shape: Sequence[int], dims: Sequence[str] | None, W: BooleanCP | None = None
) -> BMP:
    """Return the BMP of all fits, its Boolean modes as indices: the parts of X that it sees have no names.

    Atoms and loss of a given decomposition W decide the rank and the loss, unless the options do.
    """
    modes = options.get("boolean_modes")
    modes = None if modes is None else checks.check_modes(modes, shape, dims)
    known: dict[str, Any] = {"certify": False}
    if W is not None:
        ranks = {atom.rank for atom in W.atoms}
        known |= {"atom_rank": "block" if None in ranks else max(int(r or 1) for r in ranks)} if ranks else {}
        known |= {} if W.deviance is None else {"loss": W.deviance.loss}
    return BMP(n_atoms, **(known | options | {"boolean_modes": modes}))


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
    model: BMP, values: np.ndarray, observed: np.ndarray | None, seed: Any, weights: np.ndarray | None = None
) -> BooleanCP:
    """Return a fit to other data or with a different seed, without the warnings about its atoms: nobody reads these."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", checks.DegenerateAtomsWarning)
        return clone(model).set_params(random_state=seed).fit(values, mask=observed, weights=weights).decomposition_


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
        calls = (future.result().value for future in futures)
    found = []
    PRESENT.part = f"0 of {len(tasks)} {what} done"
    for result in tqdm(calls, total=len(tasks), desc=what, disable=None if verbose else True):
        found.append(result)
        PRESENT.part = f"{len(found)} of {len(tasks)} {what} done"
    PRESENT.part = ""
    return found


def _fit_parts(function: Callable[..., Any], *task: Any) -> Parcel:
    """Return function(*task) on a worker: parts that were sent before arrive as they are."""
    with shared_thread():  # of a worker that may fit others at the same time
        return Parcel(_fit_part(function, tuple(map(aligned, task))))


def active_client() -> Any:
    """Return the client of `dask.distributed` that is active in this process, None without one."""
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.get_client()
    except ValueError:
        return None


def read_lazy(
    X: Any, mask: Any, options: dict[str, Any], *, is_loaded: bool = False
) -> tuple[Any, Any, Labels | None, tuple[str, ...] | None] | None:
    """Return X and its mask as dask arrays, labels and names of the modes; None if X is in memory, or has to be.

    Weights, losses and nonnegative parts need it in memory, and so does what the caller says (`is_loaded`).
    """
    if checks.is_listed(X):
        return None
    values, labels = read_labels(X)
    limit = options.get("max_memory")
    if not stays_out(values, limit):
        return None
    checks.check_lazy(values, mask)
    if is_loaded or options.get("loss", "squared") != "squared" or np.any(options.get("nonnegative", False)):
        needs = {"the tensor in memory, with copies": 5.0 * float_bytes(values.shape, float)}
        advice = (
            "Held-out slabs, weights, losses and nonnegative parts need X in memory: raise max_memory, or use none of "
            'them (scheme="entries").'
        )
        check_memory(needs, read_memory(limit), advice)
        return None
    import dask.array as da

    values = Source(values).lazy()
    mask = None if mask is None else da.asarray(mask).rechunk(values.chunks)
    return values, mask, labels, None if labels is None else labels.dims


def hold_out_lazily(
    model: BMP, X: Any, mask: Any, weights: None, mode: int, held_out: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the errors on a random share of the entries of each chunk, fitted on the others."""
    import dask.array as da

    seed, empty = int(rng.integers(2**63)), np.empty((0,) * X.ndim, bool)
    train = da.map_blocks(draw_kept, seed=seed, share=held_out, chunks=X.chunks, dtype=bool, meta=empty)
    path = clone(model).set_params(random_state=rng).fit_path(X, mask=train if mask is None else train & mask)
    known = da.ones(X.shape, chunks=X.chunks, dtype=bool) if mask is None else mask
    kind: dict[str, Any] = {"dtype": object, "meta": empty.astype(object)}
    sums = da.map_blocks(sum_squares, X, train, known, path=Parcel(path), chunks=(1,) * X.ndim, **kind)
    total = da.reduction(sums, same, _total, combine=_total, split_every=4, concatenate=False, **kind)
    n_entries, *squares = total.to_delayed().item().compute().item()
    if n_entries == 0:
        raise ValueError("Holding out entries needs two or more observed entries.")
    errors = np.sqrt(np.array(squares) / n_entries)
    return np.append(errors, np.full(model.n_atoms + 1 - len(errors), errors[-1]))


def draw_kept(seed: int, share: float, block_info: Any) -> np.ndarray:
    """Return which entries of a chunk are not held out; always the same for a seed and a place."""
    place = block_info[None]
    rng = np.random.default_rng([seed, *place["chunk-location"]])
    return rng.random(place["chunk-shape"], dtype=np.float32) >= share


def sum_squares(X: np.ndarray, train: np.ndarray, known: np.ndarray, path: Parcel, block_info: Any) -> np.ndarray:
    """Return the number of entries of a chunk that are held out, and the sum of squared errors of each estimate."""
    test = known & ~train
    values: np.ndarray = np.ma.filled(np.ma.asarray(X, dtype=float), np.nan)
    indices = np.argwhere(test & np.isfinite(values))
    truth = values[tuple(indices.T)]
    indices = indices + [start for start, _ in block_info[0]["array-location"]]
    squares = [np.sum((truth - np.nan_to_num(W.at(indices))) ** 2) for W in path.value]
    found = np.empty((1,) * X.ndim, dtype=object)
    found.flat[0] = np.array([len(truth), *squares], dtype=float)
    return found


def _total(parts: Any, axis: Any, keepdims: bool) -> Any:
    """Return the sum of the answers of several chunks, a nested list."""
    from dask.core import flatten

    return sum(flatten(parts, container=list)) if isinstance(parts, list) else parts
