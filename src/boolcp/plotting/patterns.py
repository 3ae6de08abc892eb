"""The numbers of an atom that plots show: its columns along each real mode."""

from dataclasses import replace
from typing import Any

import numpy as np

from boolcp.result.atoms import BooleanCP

MAX_SWEEPS = 200  # a bound on the work, not tuned


def real_columns(W: BooleanCP, k: int) -> Any:
    """Return the columns of atom k by real mode, {mode: (d, L)}, as `plot_real` draws them; NaN where undetermined."""
    atom = W.atoms[k]
    modes = [n for n in range(W.ndim) if n != atom.mode]
    factors = [np.array(A, dtype=float) for A in atom.factors or leading_patterns(atom.block)]
    unknown = [(W.undetermined or {}).get(n, np.zeros(W.shape[n], dtype=bool)) for n in modes]
    for A, slices in zip(factors, unknown, strict=True):
        A[slices] = 0
    carrier = modes.index(carrier_mode(W, k))
    sizes = np.full(factors[0].shape[1], float(W.weights[k]))
    for n, A in enumerate(factors):
        if n != carrier:
            peaks = A[np.argmax(np.abs(A), axis=0), np.arange(A.shape[1])]
            A /= np.where(peaks == 0, 1.0, peaks)
            sizes *= peaks
    factors[carrier] *= sizes
    for A, slices in zip(factors, unknown, strict=True):
        A[slices] = np.nan
    return dict(zip(modes, factors, strict=True))


def carrier_mode(W: BooleanCP, k: int) -> Any:
    """Return the real mode that carries the size of an atom: the longest."""
    return max((n for n in range(W.ndim) if n != W.atoms[k].mode), key=lambda n: W.shape[n])


def leading_patterns(block: Any) -> Any:
    """Return the columns of the best rank-one approximation of a block, by alternating projections, with its size."""
    # from the fibers through the largest entry
    start = np.unravel_index(int(np.argmax(np.abs(block))), block.shape)
    vectors = [block[(*start[:n], slice(None), *start[n + 1 :])].astype(float) for n in range(block.ndim)]
    vectors = [v / (np.linalg.norm(v) or 1.0) for v in vectors]
    size = 0.0
    for _ in range(MAX_SWEEPS):
        before = size
        for n in range(block.ndim):
            v = contract_others(block, vectors, (n,))
            size = float(np.linalg.norm(v))
            vectors[n] = v / (size or 1.0)
        if size - before <= 1e-12 * size:
            break
    vectors[0] = vectors[0] * size
    return [v[:, None] for v in vectors]


def contract_others(block: Any, vectors: Any, keep: Any) -> Any:
    """Return the block contracted with vectors along all modes but those to keep."""
    for n in reversed(range(block.ndim)):
        if n not in keep:
            block = np.tensordot(block, vectors[n], axes=([n], [0]))
    return block


def leading_column(W: BooleanCP, k: int, mode: int) -> Any:
    """Return the column of atom k (of its leading pattern if L > 1) along a mode, scaled to a largest size of one.

    Its sign is that of `real_columns`: the mode that carries the size of the atom also carries its sign.
    """
    atom = W.atoms[k]
    if atom.rank == 1:
        column = real_columns(W, k)[mode][:, 0]
    else:
        leading = replace(atom, factors=tuple(leading_patterns(atom.dense_block())), block=None)
        column = real_columns(replace(W[[k]], atoms=(leading,)), 0)[mode][:, 0]
    return column / (np.nanmax(np.abs(column), initial=0.0) or 1.0)


def block_image(W: BooleanCP, k: int, modes: Any) -> Any:
    """Return the real part of atom k with its weight over two modes (rows, columns); NaN where undetermined.

    Other modes are contracted with their leading patterns.
    """
    atom = W.atoms[k]
    others = [n for n in range(W.ndim) if n != atom.mode]
    block = atom.dense_block()
    if block.ndim > 2:
        vectors = [v[:, 0] / (np.linalg.norm(v) or 1.0) for v in leading_patterns(block)]
        block = contract_others(block, vectors, [others.index(n) for n in modes])
    image = W.weights[k] * (block if modes[0] < modes[1] else block.T)
    for n, slices in (W.undetermined or {}).items():
        if n in modes:
            image[(slice(None),) * modes.index(n) + (slices,)] = np.nan
    return image
