"""`atom_rank="auto"`: refined atoms of rank one and blocks compete by one estimate of the risk.

Blocks are tried only where atoms of rank one leave more than noise, and taken only where the risk is lower: elsewhere
the result is that of rank one, to the last bit.
"""

import numpy as np

from boolcp.fit.backfit import Backfit, noise_rule, terms_of
from boolcp.fit.blocks import assess
from boolcp.fit.noise import MAX_SIDE
from boolcp.fit.shrinkage import noise_edge
from boolcp.result.atoms import BooleanCP
from boolcp.storage.long import is_long, leading_directions, n_columns
from boolcp.storage.protocol import Storage, Tensor
from boolcp.storage.tucker import by_length

MAX_ENTRIES = 2**28  # of a tensor for which blocks are tried; not tuned
RARE = 4.4  # the quantile of the Tracy-Widom law that pure noise exceeds once in ten thousand unfoldings
Ranked = tuple[float, float, BooleanCP]  # risk without bits, loss |X - W|^2, and W


def takes_blocks(data: Storage) -> bool:
    """Return True if blocks may be tried: on data in memory, of which filled copies fit in memory, without weights."""
    return data.n_passes == 0 and not data.is_weighted and np.prod(data.shape, dtype=float) <= MAX_ENTRIES


def is_rank_one(W: BooleanCP) -> bool:
    """Return True if the real parts of all atoms are products of columns."""
    return all(atom.rank == 1 for atom in W.atoms)


def is_noise(residual: Tensor) -> bool:
    """Return True if no unfolding of a residual has a singular value above the edge of noise of the same size.

    Missing entries count as zeros, which lowers the noise equally in all directions. Long modes are not examined.
    """
    deviation = np.sqrt(residual.squared_norm / np.prod(residual.shape, dtype=float))
    for mode in by_length(residual.shape):
        d, c = residual.shape[mode], n_columns(residual, mode)
        if is_long(min(d, c)):
            continue
        if largest_value(residual, mode) > deviation * noise_edge(max(d, c), min(d, c), RARE):
            return False
    return True


def largest_value(residual: Tensor, mode: int) -> float:
    """Return the largest singular value of an unfolding, of one with two long sides as power iterations find it.

    Noise has no gap there, and its largest value is underestimated by some percent; a value clear of it is not.
    """
    d, c = residual.shape[mode], n_columns(residual, mode)
    if min(d, c) > MAX_SIDE:
        Q = leading_directions(residual, mode, 1)
        return float(np.linalg.norm(residual.contract(mode, Q)))
    gram = residual.gram(mode) if d <= c else residual.column_gram(mode)
    return float(np.sqrt(max(np.linalg.eigvalsh(gram)[-1], 0.0)))


def backfit_ranks(data: Storage, W: BooleanCP, sigma: float, *, tol: float) -> Ranked | None:
    """Return the atoms of W after back-fitting, which chooses their ranks by the noise; None if nothing is left."""
    rule = noise_rule(data, sigma)
    terms = Backfit(data, rule, tol=tol).backfit(terms_of(W))
    return assess(data, rule, terms) if terms else None


def risk_of_columns(W: BooleanCP, loss: float, sigma: float) -> float:
    """Return |X - W|^2 + 2 sigma^2 (free real numbers) of atoms that are fitted by least squares."""
    return loss + 2 * sigma**2 * W.n_parameters


def with_bits(risk: float, W: BooleanCP, sigma: float) -> float:
    """Return a risk plus 2 sigma^2 for each bit, which is chosen from the data as well."""
    return risk + 2 * sigma**2 * W.n_bits
