"""The core of a tensor that is read in passes: leading directions of all modes from one pass, the core from the next.

A pass gives C Q for a narrow block Q of each mode, where C = X_n X_n' is never formed: one step of a power iteration.
Noise raises all eigenvalues of C alike, so the step is taken with C less the smallest eigenvalue that Q shows.
Directions that have not settled are iterated further, in passes that also bring the core.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from boolcp.storage.dense import DenseTensor
from boolcp.storage.tucker import TuckerTensor, leading_basis

if TYPE_CHECKING:
    from boolcp.storage.lazy import LazyTensor

# from the work for each entry and the noise of a sketch; not tuned
EXTRA = 8  # directions of a sketch beyond those asked for
WIDE = 5  # a mode with more than this many times the directions of a sketch is sketched: else its Gram matrix is cheap
MAX_POWER = 3  # passes beyond the first two at most
UNEVEN = 4.0  # how much farther the noise of zeros in the place of missing entries reaches than white noise
SETTLED = 0.1  # sine of the angle between a direction and the next iterate of it below which it is settled


def width(rank: int) -> int:
    """Return the number of directions of a sketch."""
    return rank + EXTRA


def is_sketched(shape: Sequence[int], rank: int, cut: int) -> bool:
    """Return True if a tensor that is cut along one mode has a different mode whose Gram matrix costs too much."""
    return any(d > WIDE * width(rank) for n, d in enumerate(shape) if n != cut)


def first_questions(shape: Sequence[int], rank: int, cut: int, known: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the modes of which the first pass computes Gram matrices, and those of which it computes sketches.

    A mode has one of them unless all its directions are kept, or its Gram matrix is `known` to come along.
    """
    modes = [n for n, d in enumerate(shape) if n != cut and d > rank and n not in known]
    grams = [n for n in modes if shape[n] <= WIDE * width(rank)]
    return grams, [n for n in modes if n not in grams]


def random_block(d: int, rank: int, mode: int) -> np.ndarray:
    """Return an orthonormal block (d, width), always the same for a mode."""
    block = np.random.default_rng([mode, d]).standard_normal((d, width(rank)))
    return scipy.linalg.qr(block, mode="economic")[0]


def compress_in_passes(data: "LazyTensor", rank: int) -> TuckerTensor:
    """Return a tensor that is read in passes projected onto nearly leading directions of each mode.

    The bases of all modes except that of the cut come from what the first pass left; that of the cut from the small
    tensor to which these lead.
    """
    free = data.direction()
    _, modes = first_questions(data.shape, rank, free, data.known_grams)
    sketches = data.sketches({n: random_block(data.shape[n], rank, n) for n in modes})
    short = [n for n, d in enumerate(data.shape) if n not in (free, *modes) and d > rank]
    bases = {n: eigen_basis(data.gram(n), rank) for n in short}
    for n_left in range(MAX_POWER, -1, -1):
        blocks = {n: next_block(Q, CQ) for n, (Q, CQ) in sketches.items()}
        core, sketches, n_columns = data.core_along(bases | blocks, blocks if n_left else {})
        variance = max(data.squared_norm - core.squared_norm, 0.0) / np.prod(data.shape, dtype=float)
        excess = UNEVEN if data.view.kind == "zeros" else 1.0
        if all(is_settled(Q, CQ, n_columns[n], variance, excess) for n, (Q, CQ) in sketches.items()):
            break
    return truncated(core, bases | blocks, rank, data.shape, data.squared_norm)


def eigen_basis(C: np.ndarray, rank: int) -> np.ndarray:
    """Return the leading eigenvectors of a Gram matrix."""
    d = len(C)
    return np.ascontiguousarray(scipy.linalg.eigh(C, subset_by_index=[d - rank, d - 1])[1][:, ::-1])


def next_block(Q: np.ndarray, CQ: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of (C - shift) Q: the shift is the smallest eigenvalue of Q'CQ, that of the noise."""
    shift = np.linalg.eigvalsh(Q.T @ CQ)[0]
    return scipy.linalg.qr(CQ - shift * Q, mode="economic")[0]


def is_settled(Q: np.ndarray, CQ: np.ndarray, n_columns: float, variance: float, excess: float = 1.0) -> bool:
    """Return True if what a block has not captured of one mode, with so many columns, looks like noise of a variance.

    Those of the leading half of its directions that stand out of the noise must be nearly eigenvectors of C. Its
    largest eigenvalue is that of white noise, whose distance from the mean one is multiplied by the `excess`.
    """
    d, c = len(Q), n_columns
    values, V = np.linalg.eigh(Q.T @ CQ)
    leading = values.argsort()[::-1][: max(1, len(values) // 2)]
    errors = np.linalg.norm(CQ @ V - Q @ V * values, axis=0)[leading]
    values = values[leading]
    stands_out = values > variance * (c + excess * (2 * np.sqrt(c * d) + d))
    return bool(np.all(errors[stands_out] <= SETTLED * (values[stands_out] - variance * c)))


def truncated(
    core: DenseTensor, bases: dict[int, np.ndarray], rank: int, shape: Sequence[int], squared_norm: float
) -> TuckerTensor:
    """Return a tensor with bases of some modes compressed to the leading directions of each mode of its core."""
    found = []
    for mode, d in enumerate(shape):
        U = bases.get(mode)
        if d <= rank:
            found.append(np.eye(d))
            continue
        if U is None or U.shape[1] > rank:
            V = leading_basis(core, mode, min(rank, d))
            core, U = core.reduced(mode, V), V if U is None else U @ V
        found.append(U)
    return TuckerTensor(core, found, squared_norm)
