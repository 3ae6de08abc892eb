"""Long modes: X_n X_n' as FF' with a thin F (d_n, p), so that no array of d_n x d_n entries is ever made."""

import numpy as np
import scipy.linalg

from boolcp.contractions import CHUNK
from boolcp.storage.dense import DenseTensor, Difference

LONG = 4096  # a mode with more entries is long: its Gram matrix would have more than 128 MiB
THIN = 256  # columns of an unfolding that is taken as its own factor
N_LEADING = 32  # directions kept of an unfolding with more columns
N_POWER = 3  # power iterations that find them


def is_long(d):
    """Return True if a mode of d entries is worked on through thin factors."""
    return d > LONG


def gram_factor(data, mode):
    """Return F (d_n, p) with X_n X_n' = FF', and whether that holds exactly.

    Exact for compressed tensors less rank-one atoms, p <= rank + atoms, and for unfoldings with at most THIN columns.
    Otherwise F holds the leading directions of the unfolding, FF' = QQ'X_n X_n'QQ', found by power iterations.
    """
    inner, W = (data.data, data.W) if isinstance(data, Difference) else (data, None)
    if hasattr(inner, "gram_factor") and (W is None or not W.is_block):
        return inner.gram_factor(mode, W), True
    if n_columns(data, mode) <= THIN:
        return unfold(data, mode), True
    Q = leading_directions(data, mode, N_LEADING)
    B = np.asarray(data.contract(mode, Q), dtype=float).reshape(Q.shape[1], -1)
    return Q @ square_root(B @ B.T), False


def square_root(M):
    """Return T (n, p) with TT' = M for a positive semidefinite M, without the directions that are rounding errors."""
    values, vectors = np.linalg.eigh(M)
    keep = values > len(M) * np.finfo(float).eps * max(values[-1], 0.0)
    return vectors[:, keep] * np.sqrt(values[keep])


def n_columns(data, mode):
    """Return the number of columns of the unfolding along one mode."""
    return int(np.prod([d for n, d in enumerate(data.shape) if n != mode], dtype=np.int64))


def unfold(data, mode):
    """Return X_n (d_n, columns) in float64, a copy."""
    if isinstance(data, DenseTensor):
        return np.array(np.moveaxis(data.to_array(), mode, 0), dtype=float, order="C").reshape(data.shape[mode], -1)
    others = [d for n, d in enumerate(data.shape) if n != mode]
    blocks = np.eye(n_columns(data, mode)).reshape(-1, *others)
    if not isinstance(data, Difference):
        return np.array(data.project(mode, blocks), dtype=float)
    X = unfold(data.data, mode)
    if data.W.n_atoms:
        X -= data.W.project(mode, blocks)
    return X


def short_gram(data, mode):
    """Return X_n'X_n in float64, (columns, columns), part by part."""
    if hasattr(data, "column_gram"):
        return data.column_gram(mode)
    if not isinstance(data, DenseTensor):
        X = unfold(data, mode)
        return X.T @ X
    array = np.moveaxis(data.to_array(), mode, 0)
    c = n_columns(data, mode)
    total, step = np.zeros((c, c)), max(1, CHUNK // c)
    for start in range(0, len(array), step):
        part = np.asarray(array[start : start + step], dtype=float).reshape(-1, c)
        total += part.T @ part
    return total


def leading_directions(data, mode, rank):
    """Return nearly leading left singular vectors (d_n, rank) of the unfolding, by power iterations on a random block.

    A few more directions are carried along than asked for. The start is the same each time.
    """
    d, others = data.shape[mode], [d for n, d in enumerate(data.shape) if n != mode]
    width = min(rank + 8, d, n_columns(data, mode))
    blocks = np.random.default_rng(0).standard_normal((width, *others))
    for _ in range(N_POWER):
        Q = scipy.linalg.qr(np.asarray(data.project(mode, blocks), dtype=float), mode="economic")[0]
        blocks = np.asarray(data.contract(mode, Q), dtype=float)
    B = blocks.reshape(width, -1)
    return Q @ np.linalg.eigh(B @ B.T)[1][:, ::-1][:, :rank]
