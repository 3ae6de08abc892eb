"""Selection and stability of tensors that are not in memory: entries are held out chunk by chunk, without a copy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from boolcp import checks
from boolcp.bmp import BMP
from boolcp.memory import check_memory, float_bytes, read_memory
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import Labels, read_labels
from boolcp.storage import stays_out
from boolcp.storage.sources import Source


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


def take(values: Any, places: np.ndarray, mode: int) -> Any:
    """Return slices of a numpy or dask array, or None for None."""
    if values is None or isinstance(values, np.ndarray):
        return None if values is None else values.take(places, axis=mode)
    import dask.array as da

    return da.take(values, places, axis=mode)


def hold_out_lazily(
    model: BMP, X: Any, mask: Any, weights: None, mode: int, held_out: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the errors on a random share of the entries of each chunk, fitted on the others."""
    import dask.array as da

    seed = int(rng.integers(2**63))
    options: dict[str, Any] = {
        "seed": seed,
        "share": held_out,
        "chunks": X.chunks,
        "dtype": bool,
        "meta": np.empty((0,) * X.ndim, bool),
    }
    train = da.map_blocks(draw_kept, **options)
    path = clone(model).set_params(random_state=rng).fit_path(X, mask=train if mask is None else train & mask)
    known = da.ones(X.shape, chunks=X.chunks, dtype=bool) if mask is None else mask
    nothing = np.empty((0,) * X.ndim, dtype=object)
    sums = da.map_blocks(sum_squares, X, train, known, path=path, dtype=object, chunks=(1,) * X.ndim, meta=nothing)
    total = da.reduction(
        sums, _same, _total, combine=_total, split_every=4, dtype=object, meta=nothing, concatenate=False
    )
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


def sum_squares(
    X: np.ndarray, train: np.ndarray, known: np.ndarray, path: Sequence[BooleanCP], block_info: Any
) -> np.ndarray:
    """Return the number of entries of a chunk that are held out, and the sum of squared errors of each estimate."""
    test = known & ~train
    values: np.ndarray = np.ma.filled(np.ma.asarray(X, dtype=float), np.nan)
    indices = np.argwhere(test & np.isfinite(values))
    truth = values[tuple(indices.T)]
    indices = indices + [start for start, _ in block_info[0]["array-location"]]
    squares = [np.sum((truth - np.nan_to_num(W.at(indices))) ** 2) for W in path]
    found = np.empty((1,) * X.ndim, dtype=object)
    found.flat[0] = np.array([len(truth), *squares], dtype=float)
    return found


def _same(sums: Any, axis: Any, keepdims: bool) -> Any:
    return sums


def _total(parts: Any, axis: Any, keepdims: bool) -> Any:
    """Return the sum of the answers of several chunks, a nested list."""
    from dask.core import flatten

    return sum(flatten(parts, container=list)) if isinstance(parts, list) else parts
