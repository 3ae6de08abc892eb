"""How the real block of an atom is fitted: dense, of rank L, or of a rank chosen by the noise (`atom_rank="auto"`)."""

from dataclasses import dataclass, replace

import numpy as np

from boolcp.contractions import gram_product
from boolcp.fit.atom_search import real_part
from boolcp.fit.shrinkage import noise_level, shrink_block, signal_subspaces
from boolcp.fit.terms import sum_products


@dataclass(frozen=True)
class BlockRule:
    """How a block is fitted: its rank, and for "auto" sigma and the effective sizes of the modes.

    With `bases` the blocks of a run have the coordinates of these in place of entries.
    """

    atom_rank: int | str | None
    sigma: float = 0.0
    sizes: tuple[int, ...] = ()
    base_dof: float = 0.0
    bases: tuple[np.ndarray, ...] = ()

    def penalty(self, terms):
        """Return 2 sigma^2 (degrees of freedom); zero unless the rank is chosen by the noise."""
        return 2 * self.sigma**2 * sum(term.dof for term in terms)

    def stands_out(self, B, term, n_ones):
        """Return True if the leading product of a block whose bits were chosen exceeds noise, sigma sum_n sqrt(d_n)."""
        if self.atom_rank != "auto":
            return True
        size2 = np.linalg.norm(B, 2) ** 2 / n_ones if B.ndim < 3 else n_ones * gram_product(term.factors).max()
        return size2 > (self.sigma * np.sqrt(self.sizes).sum()) ** 2

    def fit(self, B, term, rng, n_ones):
        """Return `term` with the V that fits B = R x_n z best, n_ones |V|^2 - 2 <B, V> + penalty; None if none does."""
        if self.atom_rank == "auto":
            sizes = self.sizes[: term.mode] + self.sizes[term.mode + 1 :]
            fitted = shrink_block(B / np.sqrt(n_ones), self.sigma, sizes, rng)
            if fitted is None:
                return None
            factors, dof = fitted
            factors = (factors[0] / np.sqrt(n_ones), *factors[1:])
            return term._replace(V=sum_products(factors), factors=factors, dof=dof)
        start = term.factors if B.ndim > 2 else None
        V = real_part(B, self.atom_rank, rng, start=start)
        if V is None:
            return None
        block = sum_products(V) if isinstance(V, tuple) else V
        size = np.vdot(B, block) / n_ones
        factors = (size * V[0], *V[1:]) if isinstance(V, tuple) else None
        return term._replace(V=size * block, factors=factors)

    def expand(self, terms):
        """Return the terms of a run with blocks over the entries of the modes."""
        if not self.bases:
            return terms
        expanded = []
        for term in terms:
            bases = self.bases[: term.mode] + self.bases[term.mode + 1 :]
            factors = tuple(U @ A for U, A in zip(bases, term.factors, strict=True))
            expanded.append(term._replace(V=sum_products(factors), factors=factors))
        return expanded


def competing_starts(data, modes, atom_rank, sigma):
    """Return (data, modes, rule) of the runs whose estimates compete at each number of atoms.

    With "auto" these are runs over all modes and over each alone, on the data and on their projection on the
    singular vectors of each unfolding that stand out of the noise.
    """
    if atom_rank != "auto":
        return [(data, modes, BlockRule(atom_rank))]
    sigma = noise_level(data) if sigma is None else float(sigma)
    starts = []
    for storage, sizes in signal_subspaces(data, sigma):
        base_dof = float(sum(r * (d - r) for r, d in zip(sizes, data.shape, strict=True)))
        rule = BlockRule("auto", sigma, sizes, base_dof)
        choices = {modes, *((mode,) for mode in modes)}
        for choice in sorted(choices, key=lambda c: (-len(c), c)):
            if storage is data or len(choice) > 1:
                starts.append((storage, choice, rule))
            else:
                starts.append((in_coordinates(storage, choice[0]), choice, replace(rule, bases=tuple(storage.bases))))
    return starts


def in_coordinates(small, mode):
    """Return a compressed tensor with the entries of one mode and the coordinates of the bases of all others.

    It is all that a run over one mode alone needs: inner products, norms and singular values are the same.
    """
    tensor = small.core.reduced(mode, small.bases[mode].T)
    tensor.squared_norm = small.squared_norm  # of the full data: losses are then comparable
    return tensor
