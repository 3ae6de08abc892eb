"""Counts that are read in passes, one pass for each sweep under their loss.

A pass decides the rows of the mode of the cut slab by slab, by steps that never raise the loss. It ends with weighted
squares that have the gradient of the loss and about its curvature: their normal equations decide the other modes before
the next pass, which first measures the loss. If it has risen, half of the way is taken.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from boolcp.contractions import gram_product
from boolcp.fit import losses
from boolcp.fit.job import Job, Step
from boolcp.fit.loss_search import oriented
from boolcp.fit.loss_sweeps import ROUNDING, flip, update_rows
from boolcp.fit.loss_sweeps import Step as RowStep
from boolcp.fit.polish import PASS_GAIN, balance_real, decide_signed
from boolcp.fit.relax import Sweeps, begin
from boolcp.fit.state import State
from boolcp.fit.watch import progress
from boolcp.result.columns import Columns, to_columns
from boolcp.storage.dense import Contracted
from boolcp.storage.equations import Equations
from boolcp.storage.lazy import SlabTensor
from boolcp.storage.observed import WeightedTensor
from boolcp.storage.protocol import Factors, Storage
from boolcp.storage.slabs import Parts, Rows, with_rows

N_STEPS = 2  # steps of the rows of a slab in one pass; not tuned
SHORT = 1 / 32  # share of the way to other columns below which they are given up; not tuned


def loss_of(job: Job) -> losses.Loss:
    """Return the loss of counts, with the scale that their mean asks for."""
    return losses.make_loss(job.settings.loss, np.array([cast(SlabTensor, job.data).entry_range[2]]))


def count_stage(job: Job, state: State) -> Iterator[Step]:
    """Sweep under the loss from the fit of squares; each step is (sweeps, the columns of the next pass, their share).

    The loss of the sweeps never rises: columns of a pass whose loss has risen are not taken.
    """
    first, data, loss = state.done["pursuit"][1], cast(SlabTensor, job.data), loss_of(job)
    if first.n_atoms == 0:
        return
    start = balanced(data, oriented(to_columns(first), job.settings.nonnegative))
    here, ahead, share, is_still = (begin(start), start, 1.0, False) if state.here is None else state.here
    worth = PASS_GAIN / 2 * len(start.owner) * sum(data.shape)
    while here.n_done < job.settings.max_iter and not here.is_settled:
        before, found, known, rises = count_pass(data, ahead, loss, is_still)
        if before > here.W.loss * (1 + ROUNDING):
            share /= 2
            here = Sweeps(here.W, here.n_done + 1, share < SHORT)
            ahead = halfway(data, here.W, ahead)
        else:
            is_changed = not same_bits(here.W, found)
            is_low = here.W.loss - found.loss <= worth and not is_changed
            ahead, share = flipped(found, rises) if is_low and rises else next_columns(data, found, known), 1.0
            here = Sweeps(found, here.n_done + 1, is_low and is_still and same_bits(found, ahead))
            is_still = not is_changed
        yield (here, ahead, share, is_still), progress("loss", here.n_done, job.settings.max_iter, here.W.loss, 0.0)


def count_pass(
    data: SlabTensor, W: Columns, loss: losses.Loss, is_flipped: bool
) -> tuple[float, Columns, Equations, dict[int, np.ndarray]]:
    """Return the loss of W, the columns with new rows along the cut and their loss, equations of the other modes.

    If asked, the rises of the loss when a bit of another mode is flipped come along, (d_n, bits) by mode.
    """
    cut = data.direction()
    others = [n for n in range(data.ndim) if n != cut]
    factors = [None if n == cut else A for n, A in enumerate(W.matrices)]
    asked = [n for n in others if is_flipped and (W.column_mode == n).any()]
    sums, (A,) = data.ask(cut, ask_counts, (cut, W, factors, loss, asked), (W.matrices[cut],))
    before, after, blocks, *parts = sums
    found = W.with_matrices([A if n == cut else B for n, B in enumerate(W.matrices)], after)
    known = Equations(found.matrices, dict(zip(others, parts, strict=False)), {}, (), Contracted(blocks, cut))
    return float(before), found, known, dict(zip(asked, parts[len(others) :], strict=True))


def ask_counts(
    data: Storage,
    rows: Rows,
    cut: int,
    W: Columns,
    others: Sequence[np.ndarray | None],
    loss: losses.Loss,
    asked: Sequence[int],
) -> Parts:
    """Return what `count_pass` makes of a slab: losses, weighted squares contracted, and row matrices."""
    problem = losses.Problem(data, loss, tuple(range(data.ndim)))
    factors = with_rows(others, cut, rows[0])
    before = problem.value(W.with_matrices(factors))
    factors = list(factors)
    for _ in range(N_STEPS):
        factors[cut], _ = update_rows(problem, factors, cut, W)
    factors[cut], _ = flip(problem, factors, cut, np.flatnonzero(W.column_mode == cut))
    m = problem.means(W.with_matrices(factors))
    near, modes = near_squares(problem, m), [n for n in range(data.ndim) if n != cut]
    sums: list[Any] = [before, problem.total(m), np.ascontiguousarray(near.contract(cut, factors[cut]))]
    sums += [near.row_grams(factors, n) for n in modes]
    sums += [RowStep(problem, factors, n).rises(np.flatnonzero(W.column_mode == n)) for n in asked]
    return sums, [factors[cut]]


def near_squares(problem: losses.Problem, m: np.ndarray) -> WeightedTensor:
    """Return weighted squares with the gradient of the loss at means m (n,), and its curvature or the mean one.

    The larger of the two: sweeps with the mean curvature alone can swing.
    """
    loss, (values, weights), shape = problem.loss, problem.entries, problem.data.shape
    above = np.maximum(m, loss.scale)
    curvature = np.maximum(1 / above, values / above**2)
    targets = m - loss.terms(values, m)[1] / curvature
    if problem.is_full:
        return WeightedTensor(targets.reshape(shape), (weights * curvature).reshape(shape))
    Y, counts = np.zeros((2, *shape))
    Y.flat[problem.places], counts.flat[problem.places] = targets, weights * curvature
    return WeightedTensor(Y, counts)


def next_columns(data: SlabTensor, W: Columns, known: Equations) -> Columns:
    """Return the columns with the factors of all modes but that of the cut decided one after the other.

    The right-hand sides are exact, the matrices only where no other of these factors has changed.
    """
    assert known.contracted is not None
    factors = list(W.matrices)
    for mode in known.others:
        S, boolean = W.ties(mode)
        H, P = known.grams[mode] * changes(known.factors, factors, mode), known.contracted.mttkrp(factors, mode)
        factors[mode] = decide_signed(H, S, boolean, np.asarray(P, dtype=float), factors[mode])
    return balanced(data, W.with_matrices(factors))


def changes(before: Factors, after: Factors, mode: int) -> np.ndarray:
    """Return by what row matrices of nonnegative factors change, (K, K), if weights change them as equal ones would."""
    G = gram_product(before, mode)
    return np.where(G > 0, gram_product(after, mode) / np.where(G > 0, G, 1.0), 1.0)


def balanced(data: SlabTensor, W: Columns) -> Columns:
    """Return the columns with real ones of norm one, but those along the cut if they are real, else one more."""
    cut, factors = data.direction(), list(W.matrices)
    others = [n for n in range(data.ndim) if n != cut]
    for mode in others:
        balance_real(factors, W.column_mode, mode, [*others, cut])
    return W.with_matrices(factors)


def halfway(data: SlabTensor, W: Columns, ahead: Columns) -> Columns:
    """Return W with its real columns halfway to others."""
    pairs = enumerate(zip(balanced(data, W).matrices, ahead.matrices, strict=True))
    return W.with_matrices([np.where(W.column_mode == n, A, (A + B) / 2) for n, (A, B) in pairs])


def flipped(W: Columns, rises: dict[int, np.ndarray]) -> Columns:
    """Return the columns with the one bit of each row flipped that lowers the loss most, along some modes."""
    factors = [np.array(A) for A in W.matrices]
    for mode, rise in rises.items():
        bits, best = np.flatnonzero(W.column_mode == mode), np.argmin(rise, axis=1)
        rows = np.flatnonzero(rise[np.arange(len(rise)), best] < -ROUNDING * (1 + np.abs(rise).max()))
        factors[mode][rows, bits[best[rows]]] = 1 - factors[mode][rows, bits[best[rows]]]
    return W.with_matrices(factors)


def same_bits(W: Columns, V: Columns) -> bool:
    """Return True if all bits are the same."""
    own = partial(np.equal, W.column_mode)
    pairs = enumerate(zip(W.matrices, V.matrices, strict=True))
    return all(np.array_equal(A[:, own(n)], B[:, own(n)]) for n, (A, B) in pairs)
