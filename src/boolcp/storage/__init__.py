"""What a tensor can be made of. Each storage answers the same questions with small dense arrays.

========================  =====================================================================
shape, squared_norm       sizes d_n, and |X|^2
gram(mode)                X_n X_n', (d_n, d_n)
contract(mode, Z)         X times the columns of Z along one mode, (K, other modes)
project(mode, blocks)     X_n vec(V_k) for blocks V_k of the other modes, (d_n, K)
mttkrp(factors, mode)     X_n times the Khatri-Rao product of the other factors, (d_n, K)
normal_equations(..)      H and P of the least squares for one factor, given the others
update(factors, mode, f)  complete data: A = f(P, current), decided row by row, and X contracted with A
residual(W)               the storage of X - W
========================  =====================================================================
"""

import numpy as np

from boolcp.checks import is_lazy
from boolcp.memory import float_bytes, read_memory
from boolcp.storage.dense import DenseTensor
from boolcp.storage.observed import SPARSE, ListedTensor, MaskedTensor
from boolcp.storage.sources import find_map
from boolcp.storage.tucker import TuckerTensor, compress

__all__ = ["DenseTensor", "ListedTensor", "MaskedTensor", "TuckerTensor", "complete_tensor", "compress", "make_storage"]


def make_storage(X, observed=None):
    """Return the storage of an array: dense if complete, masked or, if few entries are observed, listed."""
    if observed is None:
        return DenseTensor(X)
    if np.count_nonzero(observed) >= SPARSE * X.size:
        return MaskedTensor(X, observed)
    return ListedTensor(np.argwhere(observed), X[observed], X.shape)


def stays_out(X, max_memory=None):
    """Return True if an array is read in slabs: it is lazy, or a memory map of more than half of the memory."""
    return is_lazy(X) or (find_map(X) is not None and 2 * float_bytes(X.shape, X.dtype) > read_memory(max_memory))


def listed_or_masked(indices, values, shape):
    """Return the storage of a list of observed entries; one that is not sparse becomes an array."""
    size = np.prod(shape, dtype=float)
    if len(values) < SPARSE * size:
        return ListedTensor(indices, values, shape)
    X, observed = np.zeros(shape, dtype=values.dtype), np.zeros(shape, dtype=bool)
    X[tuple(indices.T)], observed[tuple(indices.T)] = values, True
    return make_storage(X, None if observed.all() else observed)


def complete_tensor(data, rank, is_compressed=True):
    """Return the complete tensor on which starts are tried: `data`, zeros filled in if needed, compressed."""
    full = data if data.is_complete else data.filled()
    return compress(full, rank) if is_compressed else full
