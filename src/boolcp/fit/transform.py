"""New data against fitted atoms: the factor along one mode that fits it best, the other factors fixed."""

from typing import cast

import numpy as np

from boolcp.fit._loss_kernels import decide_nonnegative
from boolcp.fit.polish import decide_rows
from boolcp.fit.relax import quadratic
from boolcp.result.atoms import BooleanCP
from boolcp.storage.protocol import ObservedStorage, Storage


def solve_factor(data: Storage, W: BooleanCP, mode: int, *, is_nonnegative: bool = False) -> np.ndarray:
    """Return the factor (d_n, columns) of new data along one mode: bits where the atoms are Boolean, else real."""
    blocks, boolean = design(W, mode)
    if not len(blocks):
        return np.zeros((data.shape[mode], 0))
    H, P = block_equations(data, mode, blocks)
    if is_nonnegative:
        A = np.zeros_like(P)
        decide_nonnegative(np.ascontiguousarray(H if H.ndim == 3 else H[None]), P, boolean, ~boolean, A)
        return A
    return decide_rows(H, P, boolean, np.zeros_like(P))


def block_equations(data: Storage, mode: int, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return H and P of the least squares for the factor along `mode` that multiplies given blocks."""
    P = np.asarray(data.project(mode, blocks), dtype=float)
    flat = blocks.reshape(len(blocks), -1)
    if data.is_complete:
        return flat @ flat.T, P
    products = np.einsum("kj,lj->klj", flat, flat).reshape(-1, *blocks.shape[1:])
    observed = cast(ObservedStorage, data).observed()
    return observed.project(mode, products).reshape(-1, len(blocks), len(blocks)), P


def explained_share(data: Storage, W: BooleanCP) -> float:
    """Return the share of |X|^2 that W explains when its factor along mode 0 is recomputed."""
    if data.squared_norm == 0:
        return 1.0
    if data.shape == W.shape and any(atom.rank is None and atom.mode != 0 for atom in W.atoms):
        return 1 - data.residual(W).squared_norm / data.squared_norm
    blocks, boolean = design(W, 0)
    H, P = block_equations(data, 0, blocks)
    A = decide_rows(H, P, boolean, np.zeros_like(P))
    return float((2 * np.sum(P * A) - quadratic(H, A)) / data.squared_norm)


def design(W: BooleanCP, mode: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tensors of the other modes that the factor along `mode` multiplies, and which of them take bits.

    An atom that is Boolean along `mode` gives its weighted real part; one that is real there gives one product for
    each column of its factor along `mode`.
    """
    others = W.shape[:mode] + W.shape[mode + 1 :]
    blocks, boolean = [], []
    for atom, weight in zip(W.atoms, W.weights, strict=True):
        if atom.mode == mode:
            blocks.append(weight * atom.dense_block())
            boolean.append(True)
            continue
        if atom.rank is None:
            raise ValueError(
                f"The block atoms are dense along mode {mode}, so there is no factor of that mode to solve for. "
                f"Fit with an integer atom_rank, or choose a Boolean mode."
            )
        terms = BooleanCP(W.shape, (atom,), [weight]).rank_one_terms()
        for term, size in zip(terms.atoms, terms.weights, strict=True):
            one = BooleanCP(W.shape, (term,), [size])
            column = np.asarray(one.factors[mode][:, 0], dtype=float)
            blocks.append(one.contract(mode, column[:, None])[0])
            boolean.append(False)
    return np.array(blocks).reshape(len(blocks), *others), np.array(boolean, dtype=bool)
