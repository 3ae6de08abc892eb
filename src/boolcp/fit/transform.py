"""Fitted atoms against data: the factor along one mode that fits new data best, and fills of missing entries."""

from typing import cast

import numpy as np

from boolcp.checks import warn_clipped, warn_mean
from boolcp.fit._loss_kernels import decide_nonnegative
from boolcp.fit.losses import Loss
from boolcp.fit.polish import decide_rows
from boolcp.fit.relax import quadratic
from boolcp.fit.remainder import remainder
from boolcp.result.atoms import BooleanCP
from boolcp.storage.filling import kept_share
from boolcp.storage.protocol import ObservedStorage, Storage

EXACT = 1e-8  # share of variance not explained that counts as none; above the rounding of inner products, not tuned
OUTSIDE = 0.1  # share of the range of the data by which a fill may leave it without a warning; not tuned
LITTLE = 0.1  # of what is filled in that is left when it is shrunk towards the mean: worth a warning; not tuned


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


def explained_share(data: Storage, W: BooleanCP, A: np.ndarray) -> float:
    """Return the share of |X|^2 that W explains if its factor along mode 0 is A."""
    if not data.squared_norm > 0:
        return 1.0
    H, P = block_equations(data, 0, design(W, 0)[0])
    return float((2 * np.sum(P * A) - quadratic(H, A)) / data.squared_norm)


def explained_deviance(data: Storage, W: BooleanCP, A: np.ndarray) -> float:
    """Return the share of the deviance under the loss of a fit that W explains if its factor along mode 0 is A."""
    assert W.deviance is not None
    loss, (indices, values, weights) = Loss(W.deviance.loss, W.deviance.scale), data.entries()
    weights = np.ones(len(values)) if weights is None else weights
    estimate = np.tensordot(A, design(W, 0)[0], axes=1)[tuple(indices.T)]
    null = np.full(len(values), loss.null(values, weights))
    total, without = (float(weights @ loss.deviance(values, mean)) for mean in (estimate, null))
    return 1 - total / without if without > 0 else 1.0


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


# missing entries


def is_exact(W: BooleanCP) -> bool:
    """Return True if the atoms explain what is observed to the tolerance."""
    return bool(W.data_norm2 and W.data_inner is not None and 1 - W.explained() <= EXACT)


def fills(W: BooleanCP, values: np.ndarray, observed: np.ndarray, *, is_shrunk: bool) -> np.ndarray:
    """Return the missing entries: atoms and a low-rank remainder, clipped to the known range, shrunk to the mean.

    A warning says if some were far outside. What explains the observed entries to the tolerance stays as it is.
    """
    estimate, dof = W.to_tensor(), fitted_freedom(W)
    known = values[observed]
    if is_exact(W) or not len(known):
        return estimate[~observed]
    left = remainder(np.where(observed, values - estimate, 0.0), observed) if is_shrunk else None
    if left is not None:
        estimate, dof = estimate + left[0], dof + left[1]
    unknown = estimate[~observed]
    low, high = known.min(), known.max()
    margin = OUTSIDE * (high - low)
    warn_clipped(np.sum((unknown < low - margin) | (unknown > high + margin)), len(unknown), low, high)
    unknown = np.clip(unknown, low, high)
    return shrink_to_mean(unknown, estimate[observed], known, dof) if is_shrunk else unknown


def shrink_to_mean(fills: np.ndarray, fitted: np.ndarray, known: np.ndarray, dof: float) -> np.ndarray:
    """Return fills scaled towards the mean m of what is known, by the factor that minimizes the estimated risk.

    That of m + a (F - m) is lowest at a = (<F - m, X - m> - sigma^2 dof) / |F - m|^2, which is kept between 0 and 1.
    It is smaller where F clearly strays further from m at missing entries than at known ones. A warning says if little
    is left.
    """
    mean = known.mean(dtype=float)
    left = float(np.sum(np.square(known - fitted, dtype=float)))
    size = float(np.sum(np.square(fitted - mean, dtype=float)))
    inner = float(np.vdot(fitted - mean, known - mean))
    is_filled = ~np.isnan(fills)
    spread = float(np.mean(np.square(fills[is_filled] - mean, dtype=float))) if is_filled.any() else 0.0
    share = float(kept_share(len(known), left, size, inner, spread, dof))
    if share < LITTLE and size > 0:
        warn_mean(share)
    return mean + share * (fills - mean)


def fitted_freedom(W: BooleanCP) -> float:
    """Return the number of free numbers and bits of all atoms."""
    return float(W.n_parameters + W.n_bits)
