"""Fitted atoms against data: the factor along one mode that fits new data best, and fills of missing entries."""

from functools import partial

import numpy as np

from boolcp.checks import warn_clipped, warn_mean
from boolcp.fit.blocks import block_equations
from boolcp.fit.remainder import remainder
from boolcp.fit.sweep import decide
from boolcp.result.atoms import BooleanCP
from boolcp.storage.dense import quadratic
from boolcp.storage.protocol import Storage
from boolcp.storage.weighted import Weighted

EXACT = 1e-8  # share of variance not explained that counts as none; above the rounding of inner products, not tuned
OUTSIDE = 0.1  # share of the range of the data by which a fill may leave it without a warning; not tuned
LITTLE = 0.1  # of what is filled in that is left when it is shrunk towards the mean: worth a warning; not tuned
CLEARLY, MIN_LEFT = 1.25, 0.1  # spread of fills that is too large; share of the entries that counts as unused
N_SWEEPS = 50  # under a loss, at most; not tuned


def solve_factor(data: Storage, W: BooleanCP, mode: int) -> tuple[np.ndarray, float]:
    """Return the factor (d_n, columns) of new data along one mode, bits where the atoms are Boolean, and the loss."""
    blocks, boolean = design(W, mode)
    if W.noise is not None and len(blocks):
        blocks = np.moveaxis(W.noise.whiten(np.moveaxis(blocks, 0, mode)), mode, 0)
    A = np.zeros((data.shape[mode], len(blocks)))
    if not len(blocks):
        return A, data.squared_norm
    rule = partial(decide, None, boolean, None, mode in data.nonnegative, (0.0, 0.0), 0.0)
    if isinstance(data, Weighted) and data.loss.name != "squared":
        return solve_under_loss(data, blocks, mode, rule)
    H, P = block_equations(data, data.weights, mode, blocks)
    A = rule(H, P, A)
    return A, data.squared_norm - 2 * float(np.vdot(P, A)) + quadratic(H, A)


def solve_under_loss(
    data: Weighted, blocks: np.ndarray, mode: int, rule: "partial[np.ndarray]"
) -> tuple[np.ndarray, float]:
    """Return the factor and its deviance: least squares first, then sweeps in which rows move if their loss falls."""
    total, squares = np.inf, Weighted(data.x, data.w, nonnegative=data.nonnegative)
    A = rule(*block_equations(squares, squares.weights, mode, blocks), np.zeros((data.shape[mode], len(blocks))))
    for _ in range(N_SWEEPS):
        before, (A, total) = total, data.step(A, blocks.reshape(len(blocks), -1), mode, rule)
        if before - total <= 1e-9 * total:
            break
    return A, total


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
            text = f"The block atoms are dense along mode {mode}, so there is no factor of that mode to solve for."
            raise ValueError(f"{text} Fit with an integer atom_rank, or choose a Boolean mode.")
        terms = BooleanCP(W.shape, (atom,), [weight]).rank_one_terms()
        for term, size in zip(terms.atoms, terms.weights, strict=True):
            one = BooleanCP(W.shape, (term,), [size])
            column = np.asarray(one.factors[mode][:, 0], dtype=float)
            blocks.append(one.contract(mode, column[:, None])[0])
            boolean.append(False)
    return np.array(blocks).reshape(len(blocks), *others), np.array(boolean, dtype=bool)


def column_names(W: BooleanCP, mode: int) -> list[str]:
    """Return the names of the columns of a factor along a mode: atom_0, or atom_0.0, atom_0.1 for products."""
    widths = [1 if atom.mode == mode else atom.rank or 1 for atom in W.atoms]
    return [f"atom_{k}" + f".{n}" * (width > 1) for k, width in enumerate(widths) for n in range(width)]


# missing entries


def fills(W: BooleanCP, values: np.ndarray, observed: np.ndarray, *, is_shrunk: bool) -> np.ndarray:
    """Return the missing entries: atoms and a low-rank remainder, clipped to the known range, shrunk to the mean.

    A warning says if some were far outside. What explains the observed entries to the tolerance stays as it is.
    """
    estimate, dof = W.to_array(), float(W.n_parameters + W.n_bits)
    known = values[observed]
    is_exact = W.data_norm2 and W.data_inner is not None and 1 - W.explained() <= EXACT
    if is_exact or not len(known):
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

    The error of m + a (F - m) is lowest at a = (<F - m, X - m> - sigma^2 dof) / |F - m|^2, kept between 0 and 1.
    It is smaller where F clearly strays further from m at missing entries than at known ones: that is noise. A warning
    says if little is left.
    """
    mean = known.mean(dtype=float)
    left = float(np.sum(np.square(known - fitted, dtype=float)))
    size = float(np.sum(np.square(fitted - mean, dtype=float)))
    inner = float(np.vdot(fitted - mean, known - mean))
    is_filled = ~np.isnan(fills)
    variance = left / max(len(known) - dof, MIN_LEFT * len(known), 1)
    share = float(np.clip((inner - variance * dof) / size, 0.0, 1.0)) if size > 0 else 0.0
    spread = len(known) * float(np.mean(np.square(fills[is_filled] - mean, dtype=float))) if is_filled.any() else 0.0
    share *= CLEARLY * size / spread if spread > CLEARLY * size else 1.0
    if share < LITTLE and size > 0:
        warn_mean(share)
    return mean + share * (fills - mean)
