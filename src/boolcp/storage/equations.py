"""The normal equations of all modes over observed entries, from one pass, and what they tell of nearby factors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from boolcp.contractions import gram_product
from boolcp.storage.dense import Contracted
from boolcp.storage.protocol import Factors

SAME = 1e-12  # difference of two columns of norm one that counts as rounding


@dataclass(frozen=True, eq=False)
class Equations:
    """H (d_n, K, K) and P (d_n, K) by mode for some factors, as one pass over observed entries found them.

    Parameters
    ----------
    factors : sequence of ndarray, shapes (d_n, K)
        The factors.
    grams, products : mapping of int to ndarray
        H and P by mode.
    shares : sequence of ndarray, shapes (d_n,)
        The share of the entries of each slice that is observed.
    contracted : Contracted, optional
        The tensor, zero where it is missing, contracted with one of the factors.
    """

    factors: Factors
    grams: Mapping[int, np.ndarray]
    products: Mapping[int, np.ndarray]
    shares: Sequence[np.ndarray]
    contracted: Contracted | None = None

    def of(self, factors: Factors, mode: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return H and P of one mode for factors whose columns are multiples of these, in any order, else None."""
        found = match(self.factors, factors) if mode in self.grams else None
        if found is None:
            return None
        order, sizes = found
        scale = np.prod([s for n, s in enumerate(sizes) if n != mode], axis=0)
        H = self.grams[mode][:, order[:, None], order] * (scale[:, None] * scale)
        return H, self.products[mode][:, order] * scale

    def is_for(self, factors: Factors) -> bool:
        """Return True if these are just the factors, and the tensor contracted with one of them is known."""
        return self.contracted is not None and all(map(np.array_equal, self.factors, factors))

    @property
    def cut(self) -> int:
        """Return the mode along which the tensor is contracted."""
        assert self.contracted is not None
        return self.contracted.mode

    @property
    def others(self) -> list[int]:
        """Return the other modes."""
        return [n for n in range(len(self.factors)) if n != self.cut]

    def near(self, factors: Factors, mode: int) -> np.ndarray:
        """Return about H of one mode for other factors: what changes in H is taken for that of complete slices.

        It is exact if no other factor has changed, or if nothing is missing.
        """
        change = gram_product(factors, mode) - gram_product(self.factors, mode)
        return self.grams[mode] + self.shares[mode][:, None, None] * change

    def near_equations(self, factors: Factors, mode: int) -> tuple[np.ndarray, np.ndarray]:
        """Return about H, and exactly P, for factors of which that of the contraction has not changed."""
        assert self.contracted is not None
        return self.near(factors, mode), np.asarray(self.contracted.mttkrp(factors, mode), dtype=float)


def match(known: Factors, asked: Factors) -> tuple[np.ndarray, list[np.ndarray]] | None:
    """Return for each asked column which known one it is a multiple of, and by what factor in each mode, else None."""
    before, after = ([np.linalg.norm(A, axis=0) for A in factors] for factors in (known, asked))
    if len(known) != len(asked) or not all(sizes.all() for sizes in (*before, *after)):
        return None
    units = [(A / s, B / t) for A, B, s, t in zip(known, asked, before, after, strict=True)]
    cosines = [B.T @ A for A, B in units]
    order = np.argmax(np.prod(np.abs(cosines), axis=0), axis=1)
    sizes = []
    for (A, B), cosine, s, t in zip(units, cosines, before, after, strict=True):
        sign = np.where(cosine[np.arange(len(order)), order] < 0, -1.0, 1.0)
        if np.abs(A[:, order] * sign - B).max(initial=0.0) > SAME:
            return None
        sizes.append(sign * t / s[order])
    return order, sizes
