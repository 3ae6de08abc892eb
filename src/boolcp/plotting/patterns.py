"""The numbers that plots show: the columns of an atom along each real mode, and images of blocks."""

from dataclasses import replace
from typing import Any

import numpy as np

from boolcp.plotting.mode_labels import undetermined_of
from boolcp.result.atoms import BooleanCP
from boolcp.storage.dense import Dense
from boolcp.storage.tucker import leading_basis

MAX_SWEEPS = 200  # a bound on the work, not tuned
NOTHING = 1e-10  # size of a product, relative to the largest, that is only rounding
EQUAL = 0.9  # entries of at least this share of the largest size count as equally large; not tuned


def real_columns(W: BooleanCP, k: int) -> Any:
    """Return the columns of atom k by real mode, {mode: (d, L)}, as `plot_real` draws them; NaN where undetermined."""
    atom = W.atoms[k]
    modes = [n for n in range(W.ndim) if n != atom.mode]
    factors = [np.array(A, dtype=float) for A in atom.factors or leading_patterns(atom.block)]
    unknown = [undetermined_of(W, n) for n in modes]
    for A, slices in zip(factors, unknown, strict=True):
        A[slices] = 0
    factors = unique_products(factors)
    carrier = modes.index(carrier_mode(W, k))
    sizes = np.full(factors[0].shape[1], float(W.weights[k]))
    for n, A in enumerate(factors):
        if n != carrier:
            peaks = signs_of(A) * np.abs(A).max(axis=0)
            A /= np.where(peaks == 0, 1.0, peaks)
            sizes *= peaks
    factors[carrier] *= sizes
    for A, slices in zip(factors, unknown, strict=True):
        A[slices] = np.nan
    return dict(zip(modes, factors, strict=True))


def unique_products(factors: list[np.ndarray]) -> list[np.ndarray]:
    """Return the products of one real part, the largest first, in a form that does not depend on how it is written.

    Two matrices of columns can be mixed, AB' = (AT)(T^-1 B'): they become the singular vectors of AB'. Nonnegative
    ones stay, and so do products along three and more modes, which (almost always) cannot be mixed.
    """
    if len(factors) == 1:
        return [factors[0].sum(axis=1, keepdims=True)]
    if len(factors) == 2 and factors[0].shape[1] > 1 and min(A.min() for A in factors) < 0:
        (Q, R), (P, S) = map(np.linalg.qr, factors)
        U, sizes, V = np.linalg.svd(R @ S.T, full_matrices=False)
        factors = [Q @ (U * sizes), P @ V.T]
    sizes = np.prod([np.linalg.norm(A, axis=0) for A in factors], axis=0)
    order = np.argsort(-sizes, kind="stable")[: max(1, np.count_nonzero(sizes > NOTHING * sizes.max()))]
    return [A[:, order] for A in factors]


def signs_of(A: np.ndarray) -> np.ndarray:
    """Return the sign of the largest entry of each column, of the first one where several are about as large."""
    sizes = np.abs(A)
    first = np.argmax(sizes >= EQUAL * sizes.max(axis=0), axis=0)
    return np.where(A[first, np.arange(A.shape[1])] < 0, -1.0, 1.0)


def carrier_mode(W: BooleanCP, k: int) -> Any:
    """Return the real mode that carries the size of an atom: the longest."""
    return max((n for n in range(W.ndim) if n != W.atoms[k].mode), key=lambda n: W.shape[n])


def leading_patterns(block: Any) -> Any:
    """Return the columns of the best rank-one approximation of a block, by alternating projections, with its size."""
    data = Dense(np.asarray(block, dtype=float))
    vectors = [leading_basis(data, n, 1)[:, 0] for n in range(block.ndim)]
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


def only_leading(W: BooleanCP, k: int) -> BooleanCP:
    """Return W with the best rank-one approximation of the real part of atom k in place of that."""
    leading = replace(W.atoms[k], factors=tuple(leading_patterns(W.atoms[k].dense_block())), block=None)
    return replace(W, atoms=(*W.atoms[:k], leading, *W.atoms[k + 1 :]))


def contract_others(block: Any, vectors: Any, keep: Any) -> Any:
    """Return the block contracted with vectors along all modes but those to keep."""
    for n in reversed(range(block.ndim)):
        if n not in keep:
            block = np.tensordot(block, vectors[n], axes=([n], [0]))
    return block


def leading_column(W: BooleanCP, k: int, mode: int) -> Any:
    """Return the bits, or the column of the leading pattern of atom k along a mode, scaled to a largest size of one."""
    if W.atoms[k].mode == mode:
        return W.atoms[k].z.astype(float)
    column = real_columns(W if W.atoms[k].rank == 1 else only_leading(W, k), k)[mode][:, 0]
    return column / (np.nanmax(np.abs(column), initial=0.0) or 1.0)


def block_image(W: BooleanCP, k: int, modes: Any) -> Any:
    """Return the weighted real part of atom k over two modes, others contracted with their leading patterns."""
    atom = W.atoms[k]
    others = [n for n in range(W.ndim) if n != atom.mode]
    block = atom.dense_block()
    if block.ndim > 2:
        vectors = [v[:, 0] * signs_of(v) / (np.linalg.norm(v) or 1.0) for v in leading_patterns(block)]
        block = contract_others(block, vectors, [others.index(n) for n in modes])
    image = W.weights[k] * (block if modes[0] < modes[1] else block.T)
    image[undetermined_of(W, modes[0])] = np.nan
    image[:, undetermined_of(W, modes[1])] = np.nan
    return image


def atom_panels(W: BooleanCP, k: int) -> list[Any]:
    """Return the panels of one atom: each mode, and the two longest real modes for the image of a part of rank > 1."""
    atom, panels = W.atoms[k], list(range(W.ndim))
    if atom.rank == 1 or W.ndim < 3 or (W.ndim > 3 and atom.block is None):
        return panels
    others = [n for n in panels if n != atom.mode]
    return [*panels, tuple(sorted(others, key=lambda n: W.shape[n])[-2:])]


def bit_values(W: BooleanCP, k: int) -> np.ndarray:
    """Return the probability that each entry of an atom is on, if known; 0.5 without data."""
    values = W.atoms[k].z.astype(float)
    if W.trust is not None and W.trust.odds is not None:
        values = np.abs(1 - values - np.clip(W.bit_confidence()[k], 0.5, 1.0))
    return np.where(undetermined_of(W, W.atoms[k].mode), 0.5, values)
