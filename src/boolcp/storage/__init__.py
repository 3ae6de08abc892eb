"""Storage of the numbers of a tensor: an array, weights, a small core, a file.

Input: checked arrays. Output: small dense answers to the questions of `protocol`, the same for every storage.
"""

from typing import Any

import numpy as np

from boolcp.checks import find_map, is_lazy
from boolcp.contractions import centered
from boolcp.storage.dense import Dense, fingerprint, n_observed
from boolcp.storage.protocol import Storage
from boolcp.storage.weighted import SQUARES, Loss, Weighted
from boolcp.system import float_bytes, read_memory


def make_storage(
    X: np.ndarray,
    observed: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    loss: Loss = SQUARES,
    *,
    center: int | None = None,
    nonnegative: tuple[int, ...] = (),
) -> Storage:
    """Return the storage of an array: dense if it is complete, under squares, and all entries count alike."""
    if weights is not None and observed is not None:
        weights = weights * observed
    elif observed is not None:
        weights = observed.astype(float)
    if weights is not None and weights.min() == weights.max() > 0:
        weights = None
    if weights is not None or loss != SQUARES:
        return Weighted(X, weights, loss, center=center, nonnegative=nonnegative)
    data = Dense(X if center is None else centered(X, center))
    data.center, data.nonnegative = center, nonnegative
    return data


def stays_out(X: Any, max_memory: float | str | None = None) -> bool:
    """Return True if an array is read in slabs: it is lazy, or a memory map of more than half the memory."""
    if not isinstance(X, np.ndarray):
        return is_lazy(X)
    return find_map(X) is not None and 2 * float_bytes(X.shape, X.dtype) > read_memory(max_memory)


def describe(data: Storage) -> dict[str, Any]:
    """Return what identifies the data of a fit: of arrays a fingerprint of the entries, of data on disk their norm."""
    known: dict[str, Any] = {"shape": list(data.shape), "dtype": str(data.dtype)}
    if not data.n_passes:
        weights = {} if data.weights is None else {"weights": fingerprint(data.weights.to_array())}
        return known | {"entries": fingerprint(data.to_array())} | weights
    counts: Any = {} if data.weights is None else {"number of observed entries": n_observed(data)}
    return known | {"|X|^2": data.squared_norm} | counts
