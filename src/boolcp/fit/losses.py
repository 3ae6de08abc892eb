"""Losses other than the sum of squares, and what is asked about them.

Under every loss W is the mean of X. `loss_sweeps` minimizes a loss from where it is, `loss_search` from several starts.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from boolcp.contractions import khatri_rao
from boolcp.fit import _loss_kernels as kernels
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.result.deviance import Deviance
from boolcp.storage import is_sparse, listed_or_masked, make_storage
from boolcp.storage.protocol import Storage

KINDS = {"squared": kernels.SQUARED, "huber": kernels.HUBER, "poisson": kernels.POISSON, "bernoulli": kernels.BERNOULLI}
THRESHOLD = 1.5  # of Huber's loss, in standard deviations: 96 % of the efficiency of squares for normal noise
MAD = 1.4826  # standard deviations of normal noise in its median absolute deviation
# the following were set once: no benchmark compares other values
CLIPPED = 5.0  # median absolute deviations of the data, as standard deviations, at which a first fit cuts them off
FAR = 0.3  # share of entries beyond the threshold above which an estimate is far from its end
SHARP = 1e-6  # smallest threshold, relative to the mean size of the data, for data without noise
FLOOR = 1e-3  # mean at which logarithms are continued by a parabola, relative to the mean of the data


@dataclass(frozen=True)
class Loss:
    """A loss with its scale: the noise of squares, the threshold of Huber's loss, or the floor of logarithms."""

    name: str = "squared"
    scale: float = 1.0

    @property
    def kind(self) -> int:
        """Return the number by which the kernels know the loss."""
        return KINDS[self.name]

    @property
    def is_rate(self) -> bool:
        """Return True for counts and bits: their means are rates and probabilities, never negative."""
        return self.name in ("poisson", "bernoulli")

    def terms(self, x: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the loss of entries x with means m, and its derivative by m."""
        return kernels.all_terms(self.kind, self.scale, np.asarray(x, dtype=float), np.asarray(m, dtype=float))

    def deviance(self, x: np.ndarray, m: np.ndarray) -> np.ndarray:
        """Return twice the loss above that of a perfect mean, entry by entry."""
        return 2 * (self.terms(x, m)[0] - self.terms(x, x)[0])

    def natural(self, m: np.ndarray) -> np.ndarray:
        """Return the natural parameter of means: log m for counts, log m / (1 - m) for bits, otherwise m."""
        if not self.is_rate:
            return m
        other = 1 - m if self.name == "bernoulli" else np.ones(1)
        return np.log(np.maximum(m, self.scale)) - np.log(np.maximum(other, self.scale))

    def null(self, x: np.ndarray, weights: np.ndarray | None = None) -> float:
        """Return the mean without any atom: 0, or that of the data where zero is no mean of them."""
        return float(np.average(x, weights=weights)) if self.is_rate else 0.0


def make_loss(name: str, x: np.ndarray, m: np.ndarray | None = None) -> Loss:
    """Return a loss with the scale that entries x ask for; `m` are the means of a first fit."""
    if name == "huber":
        floor = SHARP * float(np.mean(np.abs(x))) or 1.0
        return Loss(name, max(THRESHOLD * spread(x if m is None else x - m), floor))
    if name == "squared":
        return Loss(name, 1.0 if m is None else float(np.sqrt(np.mean((x - m) ** 2))) or 1.0)
    mean = float(np.mean(x))
    return Loss(name, max(FLOOR * (min(mean, 1 - mean) if name == "bernoulli" else mean), 1e-9))


def spread(x: np.ndarray) -> float:
    """Return the standard deviation of normal noise with the median absolute deviation of x."""
    return MAD * float(np.median(np.abs(x - np.median(x))))


@dataclass(frozen=True)
class Rows:
    """Entries sorted by row along one mode: values and weights (n,), the first of each row (d + 1,).

    Their indices (N, n) are None if none is missing: all rows then have the same products of the other factors.
    """

    indices: np.ndarray | None
    values: np.ndarray
    weights: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class Problem:
    """What a loss is asked about: the data, the loss, and the modes along which real columns are nonnegative."""

    data: Storage
    loss: Loss
    nonnegative: tuple[int, ...]

    @cached_property
    def _listed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        return self.data.entries()

    @cached_property
    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """The observed entries: values and weights (n,)."""
        if self.data.is_complete:
            values, weights = self.data.to_array().ravel(), None
        else:
            _, values, weights = self._listed
        return values.astype(float), np.ones(len(values)) if weights is None else weights

    @property
    def indices(self) -> np.ndarray:
        """The indices of the observed entries, (n, N)."""
        return self._listed[0]

    @property
    def is_full(self) -> bool:
        """Return True if no entry is missing; they are then in the order of their indices."""
        return len(self.entries[0]) == np.prod(self.data.shape, dtype=float)

    @cached_property
    def places(self) -> np.ndarray:
        """The place of each observed entry in the array, flattened."""
        return np.ravel_multi_index(tuple(self.indices.T), self.data.shape)

    def slices(self, mode: int) -> np.ndarray:
        """Return the index of each observed entry along one mode, (n,)."""
        if not self.is_full:
            return self.indices[:, mode]
        shape = self.data.shape
        return np.broadcast_to(np.arange(shape[mode]).reshape(-1, *[1] * (len(shape) - mode - 1)), shape).ravel()

    @cached_property
    def _rows(self) -> dict[int, Rows]:
        return {}

    def rows(self, mode: int) -> Rows:
        """Return the entries that the kernels visit, sorted along one mode; that is done once."""
        if mode not in self._rows:
            self._rows[mode] = rows_of(self, mode)
        return self._rows[mode]

    @cached_property
    def observed(self) -> Storage:
        """The weights of the observed entries of an incomplete tensor."""
        return self.data.observed()  # type: ignore[attr-defined]

    @property
    def variance(self) -> float:
        """Return the unit of the deviance: the variance of the noise, 1 for counts and bits."""
        return 1.0 if self.loss.is_rate else (self.loss.scale / (THRESHOLD if self.loss.name == "huber" else 1.0)) ** 2

    def means(self, W: BooleanCP | Columns) -> np.ndarray:
        """Return the means of the observed entries, (n,)."""
        first, *others = (to_columns(W) if isinstance(W, BooleanCP) else W).matrices
        if is_sparse(len(self.entries[0]), self.data.shape):
            products = first[self.indices[:, 0]]
            for n, A in enumerate(others, 1):
                products = products * A[self.indices[:, n]]
            return products.sum(axis=1)
        m = (first @ khatri_rao(others).T).ravel()
        return m if self.is_full else m[self.places]

    def value(self, W: BooleanCP | Columns) -> float:
        """Return the loss of an estimate."""
        return self.total(self.means(W))

    def total(self, m: np.ndarray) -> float:
        """Return the loss of means of the observed entries, (n,)."""
        return kernels.total_loss(self.loss.kind, self.loss.scale, *self.entries, m)

    def descent(self, W: BooleanCP | Columns) -> Storage:
        """Return -dF/dm as a tensor, the direction of steepest descent at W.

        Of counts and bits it is damped where the mean m is below that of the data (or 1 - m is): x / m - 1 holds for
        steps of the size of m only, and a count where no atom is on would outweigh all others.
        """
        values, weights = self.entries
        m = self.means(W)
        slopes = -weights * self.loss.terms(values, m)[1]
        if self.loss.is_rate:
            mean = np.average(values, weights=weights)
            slopes *= np.clip(m, self.loss.scale, mean) / mean
            if self.loss.name == "bernoulli" and mean < 1:
                slopes *= np.clip(1 - m, self.loss.scale, 1 - mean) / (1 - mean)
        return self.stored(slopes)

    def under(self, name: str, W: BooleanCP) -> "Problem":
        """Return the same data under a loss whose scale is that of what an estimate leaves."""
        values, weights = self.entries
        root = np.sqrt(weights) if name == "squared" else 1.0
        means = root * self.means(W) if name in ("huber", "squared") else None
        return replace(self, loss=make_loss(name, root * values, means))

    def near(self, W: Columns) -> "Problem":
        """Return squares that majorize Huber's loss and touch it at W: those of x cut off at the threshold around W.

        All other losses, and one where much is cut off, are returned as they are: such squares would lead too slowly.
        """
        if self.loss.name != "huber":
            return self
        values, weights = self.entries
        m, c = self.means(W), self.loss.scale
        away = values - m
        cut = np.clip(away, -c, c)
        if np.count_nonzero(cut != away) > FAR * len(away):
            return self
        data = self.stored(m + cut, weights if self.data.is_weighted else None)
        return Problem(data, Loss(), self.nonnegative)

    def without_artifacts(self) -> Storage:
        """Return the data without far outliers: those a first fit of squares takes."""
        values, weights = self.entries
        middle, width = np.median(values), CLIPPED * spread(values)
        near = np.clip(values, middle - width, middle + width)
        return self.stored(near, weights if self.data.is_weighted else None)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the tensor and its weights as arrays, with zeros where entries are missing."""
        X, counts = np.zeros((2, *self.data.shape))
        X.flat[self.places], counts.flat[self.places] = self.entries
        return X, counts

    def stored(self, values: np.ndarray, weights: np.ndarray | None = None) -> Storage:
        """Return a tensor of the same observed entries with other values."""
        shape = self.data.shape
        if self.is_full:
            return make_storage(values.reshape(shape), None, None if weights is None else weights.reshape(shape))
        if weights is not None or is_sparse(len(values), shape):
            return listed_or_masked(self.indices, values, shape, weights)
        X = np.zeros(shape, dtype=values.dtype)
        X.reshape(-1)[self.places] = values
        return make_storage(X, np.asarray(self.data.mask))


def rows_of(problem: Problem, mode: int) -> Rows:
    """Return the entries that the kernels visit: of counts only those above zero."""
    values, weights = problem.entries
    shape, d = problem.data.shape, problem.data.shape[mode]
    is_counted = problem.loss.name == "poisson"
    if problem.is_full and not is_counted:
        first = np.arange(d + 1) * (len(values) // d)
        x, w = (np.moveaxis(each.reshape(shape), mode, 0).ravel() for each in (values, weights))
        return Rows(None, x, w, first)
    indices = problem.indices
    if is_counted:
        some = values > 0
        indices, values, weights = indices[some], values[some], weights[some]
    at = indices[:, mode].astype(np.min_scalar_type(d))  # short numbers are sorted faster
    order = np.argsort(at, kind="stable")
    first = np.searchsorted(at[order], np.arange(d + 1))
    return Rows(np.ascontiguousarray(indices[order].T), values[order], weights[order], first)


def null_value(problem: Problem) -> float:
    """Return the deviance of the estimate without atoms."""
    values, weights = problem.entries
    return float(weights @ problem.loss.deviance(values, np.full(len(values), problem.loss.null(values, weights))))


def judged(problem: Problem, W: BooleanCP) -> BooleanCP:
    """Return W with its deviance, that without atoms, and those without each atom."""
    values, weights = problem.entries

    def deviance(V: BooleanCP) -> float:
        return float(weights @ problem.loss.deviance(values, problem.means(V)))

    without = [deviance(W[np.arange(W.n_atoms) != k]) for k in range(W.n_atoms)]
    found = Deviance(problem.loss.name, problem.loss.scale, deviance(W), null_value(problem), np.array(without))
    return replace(W, deviance=found)


def deviance_of(problem: Problem, W: Columns) -> float:
    """Return the deviance of columns whose loss is known."""
    values, weights = problem.entries
    return max(2 * (W.loss - float(weights @ problem.loss.terms(values, values)[0])), 0.0)
