"""Huber's loss and nonnegative parts of data that are read in passes, one pass for each sweep.

Squares of a complete tensor near W majorize the loss and touch it at W: X with what W leaves cut off at the threshold,
W where X is missing. So a sweep over that tensor never raises the loss. Sweeps begin with the fit of squares.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from boolcp.fit import certify, count_passes, losses
from boolcp.fit.certify import judge_bits
from boolcp.fit.finish import by_size, with_data
from boolcp.fit.job import EXTRA_RANK, Job, Step, ask_for_end
from boolcp.fit.loss_search import oriented
from boolcp.fit.loss_sweeps import Step as RowStep
from boolcp.fit.loss_sweeps import divergences, flipped_rows, trust_of
from boolcp.fit.polish import PASS_FALL, PASS_GAIN, sweep
from boolcp.fit.relax import Sweeps, begin
from boolcp.fit.state import Settings, State
from boolcp.fit.watch import progress
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import to_columns
from boolcp.result.deviance import Deviance
from boolcp.storage.lazy import NearTensor, SlabTensor, look_at
from boolcp.storage.observed import MaskedTensor
from boolcp.storage.protocol import Storage
from boolcp.storage.slabs import Parts, Rows, own_part, with_rows

FINE = 12  # bits of float32 that a histogram ignores: sizes are known to 1 / 4096; not tuned


def without_artifacts(data: Storage, settings: Settings) -> Storage:
    """Return the data without far outliers, after two passes: those a first fit of squares takes."""
    lazy = cast(SlabTensor, data)
    middle, width = spread(lazy, BooleanCP(data.shape))
    low, high = middle - losses.CLIPPED * width, middle + losses.CLIPPED * width
    rank = settings.n_columns + EXTRA_RANK
    return look_at(lazy.source.clipped(low, high), lazy.limit, rank=rank, passes=lazy.facts.passes)


def spread(data: SlabTensor, W: BooleanCP) -> tuple[float, float]:
    """Return the median of X - W, and its standard deviation by the median absolute deviation.

    They come from a histogram, in one pass.
    """
    cut = data.direction()
    counts = data.ask(cut, ask_histogram, (cut, W), (np.arange(data.shape[cut]),), "observed")[0][0]
    some = np.flatnonzero(counts)
    sizes, n = bin_values(some), counts[some]
    middle = middle_of(sizes, n)
    return middle, losses.MAD * middle_of(np.abs(sizes - middle), n)


def ask_histogram(data: MaskedTensor, rows: Rows, cut: int, W: BooleanCP) -> Parts:
    """Return how many entries of X - W have each size, in the order of `bin_values`."""
    R = data.residual(own_part(W, rows[0], cut))
    bits = R.to_array()[R.mask].astype(np.float32).view(np.uint32)
    bits = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))  # in the order of the numbers
    return [np.bincount(bits >> FINE, minlength=2 ** (32 - FINE))], []


def bin_values(bins: np.ndarray) -> np.ndarray:
    """Return the numbers in the middle of bins of the histogram."""
    bits = (bins.astype(np.uint32) << np.uint32(FINE)) + np.uint32(1 << FINE - 1)
    bits = np.where(bits >> 31, bits ^ np.uint32(1 << 31), ~bits)
    return bits.astype(np.uint32).view(np.float32).astype(float)


def middle_of(values: np.ndarray, n: np.ndarray) -> float:
    """Return the median of values that occur n times."""
    order = np.argsort(values, kind="stable")
    return float(values[order][np.searchsorted(np.cumsum(n[order]), n.sum() / 2)])


def threshold(job: Job, W: BooleanCP) -> float:
    """Return the threshold of Huber's loss, from the scale of what W leaves; infinity for squares."""
    if job.settings.loss == "squared":
        return np.inf
    _, width = spread(cast(SlabTensor, job.data), W)
    size = np.sqrt(job.data.squared_norm / job.data.n_observed)
    return max(losses.THRESHOLD * width, losses.SHARP * size or 1.0)


def loss_stage(job: Job, state: State) -> Iterator[Step]:
    """Sweep under the loss from the fit of squares; each step is (threshold, sweeps)."""
    first, data, signs = state.done["pursuit"][1], job.data, job.settings.nonnegative
    if first.n_atoms == 0:
        return
    if state.here is None:
        size, here = threshold(job, first), begin(oriented(to_columns(first), signs))
    else:
        size, here = state.here
    is_plain = data.is_complete and size == np.inf
    while here.n_done < job.settings.max_iter and not here.is_settled:
        near = data if is_plain else NearTensor(cast(SlabTensor, data), here.W.to_decomposition(), size)
        W, is_changed = sweep(near, here.W, nonnegative=signs)
        before = here.W.loss if is_plain else cast(NearTensor, near).before
        worth = PASS_GAIN * W.loss * len(W.owner) * sum(data.shape) / data.n_observed + PASS_FALL * data.squared_norm
        here = Sweeps(W, here.n_done + 1, bool(before - W.loss <= worth and not is_changed))
        yield (size, here), progress("loss", here.n_done, job.settings.max_iter, W.loss, data.squared_norm)


def finish_loss(job: Job, state: State) -> Iterator[Step]:
    """Yield the pursuit of squares and the decomposition under the loss, with shares and what its bits rest on."""
    (pursuit, W), found = state.done["pursuit"], state.done.get("loss")
    if found is not None:
        sweeps = found[1] if job.settings.loss in ("squared", "huber") else found[0]
        W = by_size(sweeps.result.to_decomposition())
    if W.n_atoms == 0:
        yield (pursuit, W), None
        return
    ask_for_end(job.data, W, pursuit)
    W = with_data(W, job.data)
    if found is not None and job.settings.loss != "squared":
        loss = losses.Loss("huber", found[0]) if job.settings.loss == "huber" else count_passes.loss_of(job)
        W = judged(cast(SlabTensor, job.data), W, loss)
    else:
        W = certify.certify(job.data, W, certify.left_out_weights(W)) if job.settings.certify else W
        W = replace(W, trust=judge_bits(job.data, W))
    yield (pursuit, W), None


def judged(data: SlabTensor, W: BooleanCP, loss: losses.Loss) -> BooleanCP:
    """Return W with deviances, and the rise of the deviance when a bit is flipped, after one pass.

    Slices along the mode of the cut are fitted again for that, others are not: there the rise is one at most.
    """
    cut, factors = data.direction(), to_columns(W).matrices
    null_mean = data.entry_range[2] if loss.is_rate else 0.0
    constants = cut, W, loss, [None if n == cut else A for n, A in enumerate(factors)], null_mean
    sums, rows = data.ask(cut, ask_deviances, constants, (np.arange(data.shape[cut]), factors[cut]))
    total, null, without = (np.asarray(each) for each in sums[:3])
    pairs = {True: iter(rows), False: iter(sums[3:])}
    rises, expected = zip(*((next(pairs[a.mode == cut]), next(pairs[a.mode == cut])) for a in W.atoms), strict=True)
    deviance = Deviance(loss.name, loss.scale, float(total), float(null), without)
    trust = trust_of(losses.Problem(cast(Storage, data), loss, ()), W, rises, expected)
    return replace(W, deviance=deviance, trust=trust)


def ask_deviances(
    data: Storage,
    rows: Rows,
    cut: int,
    W: BooleanCP,
    loss: losses.Loss,
    others: Sequence[np.ndarray | None],
    null_mean: float,
) -> Parts:
    """Return the share of a slab in the deviances, and for each atom in the rises of bits and those to be expected."""
    signs = tuple(range(data.ndim)) if loss.is_rate else ()
    problem, part = losses.Problem(data, loss, signs), own_part(W, rows[0], cut)
    values, weights = problem.entries

    def deviance(V: BooleanCP) -> float:
        return float(weights @ loss.deviance(values, problem.means(V)))

    atoms = np.arange(W.n_atoms)
    sums: list[Any] = [deviance(part), float(weights @ loss.deviance(values, np.full(len(values), null_mean)))]
    sums.append(np.array([deviance(part[atoms != k]) for k in atoms]))
    columns, joined = replace(to_columns(W), matrices=tuple(with_rows(others, cut, rows[1]))), []
    for k, (atom, expected) in enumerate(zip(W.atoms, divergences(problem, part), strict=True)):
        if atom.mode == cut:
            joined += [2 * flipped_rows(problem, columns, k)[1], expected]
        else:
            step = RowStep(problem, columns.matrices, atom.mode)
            sums += [2 * step.rises(np.array([k]))[:, 0], expected]
    return sums, joined
