"""Losses other than the sum of squares: their scale, a first estimate, and how well a decomposition fits under them."""

from copy import copy

import numpy as np

from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns
from boolcp.result.trust import Deviance, Evidence
from boolcp.storage.dense import Array, Complete, Dense
from boolcp.storage.lazy import LazyWeighted, part_of
from boolcp.storage.protocol import Storage
from boolcp.storage.weighted import CLIPPED, Loss, Weighted, full, spread

THRESHOLD = 1.5  # of Huber's loss, in standard deviations: 96 % of the efficiency of squares for normal noise
SHARP = 1e-6  # smallest threshold, relative to the mean size of the data, for data without noise; not tuned
FLOOR = 1e-3  # mean at which logarithms are continued by a parabola, relative to the mean of the data; not tuned


def make_loss(name: str, x: np.ndarray, m: np.ndarray | float = 0.0) -> Loss:
    """Return a loss with the scale that entries x ask for; `m` are the means of a first fit."""
    if name == "squared":
        return Loss()
    if name == "huber":
        return Loss(name, max(THRESHOLD * spread(x - m), SHARP * float(np.mean(np.abs(x))) or 1.0))
    mean = float(np.mean(x))
    return Loss(name, max(FLOOR * (min(mean, 1 - mean) if name == "bernoulli" else mean), 1e-9))


def with_loss(data: Weighted, loss: Loss) -> Weighted:
    """Return the data under a loss."""
    return Weighted(data.x, data.w, loss, center=data.center, nonnegative=data.nonnegative)


def observed(data: Weighted, array: np.ndarray) -> np.ndarray:
    """Return the entries of an array where the data are observed, (n,)."""
    return array.ravel() if data.w is None else array[data.w > 0]


def entries(data: Weighted | LazyWeighted, W: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Return observed entries and their means (n,): all, or a sample of data on disk."""
    if isinstance(data, LazyWeighted):
        return data.sample(W.matrices)
    return observed(data, data.x), observed(data, full(W.matrices))


def complete(data: Storage) -> Complete:
    """Return data as a complete tensor: missing entries are zero, others larger to compensate, and none is far off."""
    if isinstance(data, Complete):
        if isinstance(data, LazyWeighted):
            return data.start
        if data.nonnegative:  # the search is free: parts are made nonnegative when they meet the data
            data = copy(data)
            data.nonnegative = ()
        return data
    assert isinstance(data, Weighted)
    x, w = data.x, data.w
    if data.loss.name == "huber":
        known = observed(data, x)
        middle, size = np.median(known), CLIPPED * spread(known)
        x = np.clip(x, middle - size, middle + size) if size > 0 else x
    if data.center is not None:
        x = x - Weighted(x, w, center=data.center).mean_left(np.zeros(data.shape))
    if w is not None:
        even = w / np.median(w[w > 0], overwrite_input=True)
        share = np.minimum(even, 1.0, out=even).mean()
        x = np.multiply(even, x, out=even)
        x /= share
    found = Dense(x)
    found.center = data.center
    return found


def deviance_of(data: Weighted | LazyWeighted, W: BooleanCP) -> Deviance:
    """Return the deviance of a decomposition, without each of its atoms, and of the mean of the data."""
    if isinstance(data, LazyWeighted):
        cut = data.cut

        def parts(slab: Weighted, rows: slice) -> tuple[float, float, np.ndarray]:
            found = deviance_of(slab, part_of(W, rows, cut))
            return found.total, found.null, found.without

        return Deviance(data.loss.name, data.loss.scale, *data.ask_observed(parts, None, None, None))

    def total(m: np.ndarray) -> float:
        return 2 * float(data.slice_sums(m, 0).sum())

    x, m = observed(data, data.x), np.nan_to_num(W.to_array())
    without = [total(m - np.nan_to_num(W[[k]].to_array())) for k in range(W.n_atoms)]
    null = total(np.full(data.shape, data.loss.null(x, None if data.w is None else observed(data, data.w))))
    return Deviance(data.loss.name, data.loss.scale, total(m), null, np.array(without))


def judge(data: Weighted | LazyWeighted, W: BooleanCP) -> Evidence:
    """Return for each bit of W the rise of the deviance when it is flipped, and the rise to expect."""
    if isinstance(data, LazyWeighted):
        cut, how = data.cut, [0 if atom.mode == data.cut else None for atom in W.atoms]

        def parts(slab: Weighted, rows: slice) -> tuple[np.ndarray, ...]:
            found = judge(slab, part_of(W, rows, cut))
            return *found.rise, *(found.share or ())

        terms = data.ask_observed(parts, *how, *how)
        return Evidence(rise=terms[: W.n_atoms], share=terms[W.n_atoms :], sigma=data.loss.scale / THRESHOLD)
    m, rise, share = np.nan_to_num(W.to_array()), [], []
    v = data.near(m)[1]
    for atom, weight in zip(W.atoms, W.weights, strict=True):
        V = np.expand_dims(weight * atom.dense_block(), atom.mode)
        step = np.where(atom.z, -1.0, 1.0).reshape([-1 if n == atom.mode else 1 for n in range(m.ndim)])
        rise.append(2 * (data.slice_sums(m + step * V, atom.mode) - data.slice_sums(m, atom.mode)))
        squares = atom.dense_block()[None] ** 2
        share.append(np.full(len(atom.z), squares.sum()) if v is None else Array(v).project(atom.mode, squares)[:, 0])
    sigma = 1.0 if data.loss.is_rate else data.loss.scale / THRESHOLD
    return Evidence(rise=tuple(rise), share=tuple(share), sigma=sigma)
