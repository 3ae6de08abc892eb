"""Storage of the numbers of a tensor: an array, a mask, a list of entries, a file, a cluster, a small core.

Checked arrays enter. Small dense answers to the questions of `protocol` leave, the same for every storage.
Nothing in this room knows which question comes next, or why.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from boolcp.checks import find_map, is_lazy
from boolcp.memory import float_bytes, read_memory
from boolcp.storage.dense import DenseTensor
from boolcp.storage.lazy import LazyTensor
from boolcp.storage.observed import SPARSE, ListedTensor, MaskedTensor, WeightedTensor
from boolcp.storage.protocol import Storage
from boolcp.storage.tucker import TuckerTensor, compress

__all__ = [
    "DenseTensor",
    "ListedTensor",
    "MaskedTensor",
    "TuckerTensor",
    "WeightedTensor",
    "complete_tensor",
    "compress",
    "make_storage",
]


def make_storage(
    X: np.ndarray, observed: np.ndarray | None = None, weights: np.ndarray | None = None
) -> DenseTensor | MaskedTensor | ListedTensor:
    """Return the storage of an array: weighted, dense if complete, masked or, if few entries are observed, listed.

    Weights that are all equal where they are not zero are a mask.
    """
    if weights is not None:
        weights = weights if observed is None else weights * observed
        known = weights > 0
        if weights.max() > weights.min(where=known, initial=np.inf):
            return WeightedTensor(X, weights)
        observed = None if known.all() else known
    if observed is None:
        return DenseTensor(X)
    if np.count_nonzero(observed) >= SPARSE * X.size:
        return MaskedTensor(X, observed)
    return ListedTensor(np.argwhere(observed), X[observed], X.shape)


def stays_out(X: Any, max_memory: float | str | None = None) -> bool:
    """Return True if an array is read in slabs: it is lazy, or a memory map of more than half the memory."""
    return is_lazy(X) or (find_map(X) is not None and 2 * float_bytes(X.shape, X.dtype) > read_memory(max_memory))


def listed_or_masked(
    indices: np.ndarray, values: np.ndarray, shape: Sequence[int], weights: np.ndarray | None = None
) -> DenseTensor | MaskedTensor | ListedTensor:
    """Return the storage of a list of observed entries; a list that is not sparse becomes an array."""
    if weights is not None:
        known = weights > 0
        indices, values, weights = indices[known], values[known], weights[known]
    if is_sparse(len(values), shape):
        return ListedTensor(indices, values, tuple(shape), weights)
    X, observed = np.zeros(shape, dtype=values.dtype), np.zeros(shape, dtype=bool)
    X[tuple(indices.T)], observed[tuple(indices.T)] = values, True
    if weights is None:
        return make_storage(X, None if observed.all() else observed)
    all_weights = np.zeros(shape)
    all_weights[tuple(indices.T)] = weights
    return make_storage(X, None, all_weights)


def is_sparse(n_observed: int, shape: Sequence[int]) -> bool:
    """Return True if so few entries are observed that they are listed."""
    return n_observed < SPARSE * float(np.prod(shape, dtype=float))


def complete_tensor(data: Any, rank: int, is_compressed: bool = True) -> Storage:
    """Return the complete tensor on which starts are compared: `data`, zeros filled in if needed, compressed."""
    full = data if data.is_complete else data.filled()
    if not is_compressed:
        return full
    return full.compressed(rank) if isinstance(full, LazyTensor) else compress(full, rank)
