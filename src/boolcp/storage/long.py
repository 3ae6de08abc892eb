"""Long modes: X_n X_n' as FF' with a thin F (d_n, p), so that no array of d_n x d_n entries is formed."""

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

if TYPE_CHECKING:
    from boolcp.storage.protocol import Tensor

LONG = 4096  # a mode with more entries is long: its Gram matrix would take more than 128 MiB
THIN = 256  # an unfolding with at most this many columns is its own factor; not tuned
N_LEADING = 32  # directions kept of an unfolding with more columns; not tuned
N_POWER = 3  # power iterations that find them; not tuned


def is_long(d: int) -> bool:
    """Return True if a mode of d entries is handled through thin factors."""
    return d > LONG


def n_columns(data: "Tensor", mode: int) -> int:
    """Return the number of columns of the unfolding along one mode."""
    return int(np.prod([d for n, d in enumerate(data.shape) if n != mode], dtype=np.int64))


def unit_blocks(data: "Tensor", mode: int) -> np.ndarray:
    """Return the unit blocks of the other modes, (c_n, other modes): X_n times them is X_n."""
    others = [d for n, d in enumerate(data.shape) if n != mode]
    return np.eye(n_columns(data, mode)).reshape(-1, *others)


def thin_factor(data: "Tensor", mode: int) -> tuple[np.ndarray, bool]:
    """Return F (d_n, p) with X_n X_n' = FF', and whether that is exact.

    It is exact for unfoldings with at most THIN columns. Otherwise F holds the leading directions of the unfolding,
    FF' = QQ'X_n X_n'QQ', found by power iterations.
    """
    if n_columns(data, mode) <= THIN:
        return data.unfold(mode), True
    Q = leading_directions(data, mode, N_LEADING)
    B = np.asarray(data.contract(mode, Q), dtype=float).reshape(Q.shape[1], -1)
    return Q @ square_root(B @ B.T), False


def square_root(M: np.ndarray) -> np.ndarray:
    """Return T (n, p) with TT' = M for a positive semidefinite M, without the directions that are rounding errors."""
    values, vectors = np.linalg.eigh(M)
    keep = values > len(M) * np.finfo(float).eps * max(values[-1], 0.0)
    return vectors[:, keep] * np.sqrt(values[keep])


def leading_directions(data: "Tensor", mode: int, rank: int) -> np.ndarray:
    """Return nearly leading left singular vectors (d_n, rank) of the unfolding, by power iterations on a random block.

    The iterations carry a few more directions than requested. They always start from the same block.
    """
    d, others = data.shape[mode], [d for n, d in enumerate(data.shape) if n != mode]
    width = min(rank + 8, d, n_columns(data, mode))
    blocks = np.random.default_rng(0).standard_normal((width, *others))
    for _ in range(N_POWER):
        Q = scipy.linalg.qr(np.asarray(data.project(mode, blocks), dtype=float), mode="economic")[0]
        blocks = np.asarray(data.contract(mode, Q), dtype=float)
    B = blocks.reshape(width, -1)
    return Q @ np.linalg.eigh(B @ B.T)[1][:, ::-1][:, :rank]
