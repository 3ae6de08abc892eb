"""Entries that do not count alike: missing ones, weights, and losses as weighted squares near the present estimate."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from boolcp.contractions import CHUNK, gram_product, khatri_rao, mttkrp
from boolcp.result.atoms import BooleanCP
from boolcp.storage._row_kernels import flip_sums, near_rates, row_sums
from boolcp.storage.dense import Array, Dense, Equations, quadratic, unfold
from boolcp.storage.protocol import Decide, Factors, Storage, Tensor


@dataclass(frozen=True)
class Loss:
    """A loss of entries x with means m, and its scale: the threshold of Huber's loss, or the floor of logarithms.

    Below the floor a logarithm is continued by its parabola. The loss of squares is (x - m)^2 / 2.
    """

    name: str = "squared"
    scale: float = 1.0

    @property
    def is_rate(self) -> bool:
        """Return True for counts and bits: their means are rates and probabilities, never negative."""
        return self.name in ("poisson", "bernoulli")

    @property
    def kind(self) -> int:
        """Return the number by which the kernels know the loss."""
        return ("squared", "huber", "poisson", "bernoulli").index(self.name)

    def value(self, x: np.ndarray, m: np.ndarray) -> np.ndarray:
        """Return the loss of each entry above that of a perfect mean, half its deviance."""
        x, means = (np.ascontiguousarray(A, dtype=float).reshape(-1, 1) for A in (x, m))
        return row_sums(self.kind, self.scale, x, EMPTY, means).reshape(np.shape(m))

    def deviance(self, x: np.ndarray, m: np.ndarray) -> np.ndarray:
        """Return twice the loss above a perfect mean's, entry by entry."""
        return 2 * self.value(x, m)

    def near(self, x: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return targets t and weights v of the squares v (t - m)^2 / 2 that touch the loss at m; v is None if it is 1.

        v (t - m) is the negative derivative, v the second derivative to expect.
        """
        if self.name == "squared":
            return x, None
        if self.name == "huber":
            return m + np.clip(x - m, -self.scale, self.scale), None
        t, v = near_rates(self.kind, self.scale, np.ravel(x), np.ravel(m))
        return t.reshape(m.shape), v.reshape(m.shape)

    def null(self, x: np.ndarray, weights: np.ndarray | None = None) -> float:
        """Return the mean without any atom: 0, or the mean of the data where zero cannot be one."""
        return float(np.average(x, weights=weights)) if self.is_rate else 0.0


SQUARES, EMPTY = Loss(), np.zeros((0, 0))  # the latter for weights that are all one
MAD = 1.4826  # standard deviations of normal noise in its median absolute deviation
CLIPPED = 5.0  # such standard deviations of the data at which a first fit under Huber's loss cuts them off; not tuned
ROUNDING = 1e-28  # part of |X|^2 around the mean that counts as none: all entries are equal
STEPS = (1.0, 0.5, 0.1, 0.02)  # parts of a step that are tried in a row until the loss falls; not tuned


def spread(x: np.ndarray) -> float:
    """Return the standard deviation of normal noise with the median absolute deviation of x."""
    return MAD * float(np.median(np.abs(x - np.median(x))))


class Weighted(Array, Storage):
    """Entries X with weights w, 0 where they are missing, None if all count alike; the loss is the sum of w l(x, m).

    Under any loss the equations are those of weighted squares that touch it at the present factors. The `loss` of
    columns is the weighted deviance: twice the loss above that of perfect means, which for squares is their sum.
    """

    n_passes = 0

    def __init__(
        self,
        X: np.ndarray,
        weights: np.ndarray | None = None,
        loss: Loss = SQUARES,
        *,
        center: int | None = None,
        nonnegative: tuple[int, ...] = (),
    ) -> None:
        X = np.ascontiguousarray(X, dtype=float)
        self.w = None if weights is None else np.ascontiguousarray(weights, dtype=float)
        self.x = X if self.w is None else np.where(self.w > 0, X, 0.0)
        is_mask = self.w is None or bool(np.all((self.w == 0) | (self.w == 1)))
        super().__init__(self.x if is_mask else self.w * self.x)  # what all questions of a Tensor are about
        self.loss, self.center, self.nonnegative = loss, center, nonnegative
        self.n_seen = X.size if self.w is None else int(np.count_nonzero(self.w))
        self._rows: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.weights = None if self.w is None else Dense(self.w)

    @cached_property
    def squared_norm(self) -> float:
        """The weighted sum of squares around the mean over the `center`, or the deviance of a mean of zero."""
        if self.loss == SQUARES and self.center is None:
            return float(np.vdot(self._array, self.x))
        found, least = self.total(np.zeros(self.shape)), ROUNDING * float(np.vdot(self._array, self.x))
        return 0.0 if self.center is not None and found <= least else found

    def total(self, m: np.ndarray) -> float:
        """Return the deviance of means m, and of the mean over the `center` that fits best."""
        return 2 * float(self.slice_sums(m if self.center is None else m + self.mean_left(m), 0).sum())

    def slice_sums(self, m: np.ndarray, mode: int) -> np.ndarray:
        """Return half the deviance of each slice along one mode, (d_n,)."""
        return row_sums(self.loss.kind, self.loss.scale, *self.rows(mode), unfold(m, mode))

    def rows(self, mode: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the unfoldings of entries and weights, of small data once; the latter is empty if all are one."""
        rows = self._rows.get(mode) or (unfold(self.x, mode), EMPTY if self.w is None else unfold(self.w, mode))
        return self._rows.setdefault(mode, rows) if self.x.size <= CHUNK else rows

    def near(self, m: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return targets and weights of the squares that touch the loss at means m; the weights are None if all are 1.

        With a `center`, the mean of X - W over this mode is no part of m, and is taken from the targets.
        """
        t, v = self.loss.near(self.x, m) if self.center is None else (self.x - self.mean_left(m), None)
        return t, v if self.w is None else self.w if v is None else self.w * v

    def mean_left(self, m: np.ndarray) -> np.ndarray:
        """Return the weighted mean of X - m over the `center`, which stays as a mode of one entry."""
        w = np.ones(self.shape) if self.w is None else self.w
        total = w.sum(axis=self.center, keepdims=True)
        return (w * (self.x - m)).sum(axis=self.center, keepdims=True) / np.where(total > 0, total, 1.0)

    def equations(self, factors: Factors, mode: int) -> Equations:
        """Return the equations of each row, or one of all rows if all entries count alike, and the loss."""
        if self.loss == SQUARES and self.center is None:
            H, P = products(self.weights, factors, mode), np.asarray(self.mttkrp(factors, mode), dtype=float)
            A = factors[mode]
            return Equations(H, P, self.squared_norm - 2 * float(np.vdot(P, A)) + quadratic(H, A))
        m = full(factors)
        V = khatri_rao([B for n, B in enumerate(factors) if n != mode]).T
        t, v = self.near(m)
        return Equations(*row_equations(unfold(t, mode), None if v is None else unfold(v, mode), V), self.total(m))

    def update(self, factors: Factors, mode: int, decide: Decide) -> tuple[np.ndarray, float, Any]:
        """Return the factor decided for one mode, rows as they were where the loss would rise, the loss, and itself."""
        old = factors[mode]
        if self.loss == SQUARES:
            H, P, before = self.equations(factors, mode)
            A = decide(H, P, old)
            return A, before - 2 * float(np.vdot(P, A - old)) + quadratic(H, A) - quadratic(H, old), self
        return *self.step(old, khatri_rao([B for n, B in enumerate(factors) if n != mode]).T, mode, decide), self

    def step(self, first: np.ndarray, blocks: np.ndarray, mode: int, decide: Decide) -> tuple[np.ndarray, float]:
        """Return the decided rows that lower the loss, others part of the way or as they were; then one bit flipped.

        Squares that touch a loss are no guide for bits: a mean of zero that becomes one costs them far too much.
        """
        (X, W), V = self.rows(mode), np.ascontiguousarray(blocks)
        how, (t, v) = (self.loss.kind, self.loss.scale, X, W), self.loss.near(X, M := first @ V)
        A = decide(*row_equations(t, v if not len(W) else W if v is None else v * W, V), first)
        best, is_bit = np.array(first), ((first == 0) | (first == 1)).all(axis=0)
        lowest, left = row_sums(*how, M), np.flatnonzero((A != first).any(axis=1))
        for part in STEPS:  # over the rows whose loss has not fallen yet
            if not len(left):
                break
            trial = A[left] if part == 1 else np.where(is_bit, first[left], first[left] + part * (A - first)[left])
            sums = row_sums(*how, trial @ V, left, lowest[left])
            is_better = sums < lowest[left]
            best[left[is_better]], lowest[left[is_better]] = trial[is_better], sums[is_better]
            left = left[~is_better]
        bits = np.flatnonzero(is_bit & ((A == 0) | (A == 1)).all(axis=0))
        if len(bits):
            flips = flip_sums(*how, best @ V, V[bits], np.ascontiguousarray(best[:, bits]), lowest)
            best, lowest = with_flips(best, bits, flips, lowest)
        return best, 2 * float(lowest.sum())

    def residual(self, W: BooleanCP) -> Tensor:
        """Return the negative gradient of the loss at W: w (x - W) for squares."""
        m = W.to_array()
        m[np.isnan(m)] = 0.0
        t, v = self.near(m)
        np.subtract(t, m, out=m)
        return Dense(m if v is None else np.multiply(v, m, out=m))


def with_flips(A: np.ndarray, bits: np.ndarray, flips: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows with the bit flipped that lowers their loss most, and the losses, given those of each flip."""
    A, k, rows = np.array(A), np.argmin(flips, axis=1), np.arange(len(A))
    rows = rows[flips[rows, k] < losses]
    A[rows, bits[k[rows]]] = 1 - A[rows, bits[k[rows]]]
    return A, np.minimum(losses, flips.min(axis=1))


def products(weights: Tensor | None, factors: Factors, mode: int) -> np.ndarray:
    """Return H (K, K) of all rows or, with weights, H_i (d_n, K, K) of each: products of columns over its entries."""
    if weights is None:
        return gram_product(factors, mode)
    K = factors[0].shape[1]
    first, second = np.triu_indices(K)
    H = np.empty((weights.shape[mode], K, K))
    pairs = weights.mttkrp([A[:, first] * A[:, second] for A in factors], mode)
    H[:, first, second] = H[:, second, first] = pairs
    return H


def row_equations(t: np.ndarray, v: np.ndarray | None, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return H and P of rows a that minimize the sum of v (t - aV)^2 for targets (d, c); one H if v is None."""
    factors = [V.T[:0], V.T]
    return products(None if v is None else Dense(v), factors, 0), mttkrp(t if v is None else v * t, factors, 0)


def full(factors: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum of the products of columns as an array."""
    return (factors[0] @ khatri_rao(factors[1:]).T).reshape([len(A) for A in factors])
