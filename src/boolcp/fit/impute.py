"""Blocks whose rank the noise decides when entries are missing: back-fitting on the tensor completed by the estimate.

Shrinkage needs a complete block. Filling the missing entries with the estimate itself and fitting that complete tensor
never raises the loss over the observed entries (a majorization: the filled entries agree with the estimate at the
start), and its fixed points are those of the exact problem.
"""

import numpy as np

from boolcp.fit.backfit import Backfit, finish, noise_rule, terms_of
from boolcp.fit.finish import fit_weights
from boolcp.fit.noise import noise_level
from boolcp.result.atoms import BooleanCP
from boolcp.storage import DenseTensor
from boolcp.storage.protocol import Storage

MAX_ROUNDS = 20  # a bound on the work, not tuned
SETTLED = 1e-4  # relative fall of the loss in a round that ends the rounds; not tuned


def noise_of_filled(data: Storage, full: Storage) -> float:
    """Return the noise level of a tensor whose missing entries were filled in, and carry no noise."""
    return noise_level(full) * float(np.sqrt(np.prod(data.shape, dtype=float) / data.n_observed))


def fill(data: Storage, W: BooleanCP) -> DenseTensor:
    """Return the complete tensor with the missing entries taken from W."""
    return DenseTensor(np.ascontiguousarray(data.residual(W).to_array() + W.to_tensor(), dtype=float))


def settle(data: Storage, W: BooleanCP, sigma: float, *, tol: float) -> tuple[BooleanCP, float]:
    """Return the estimate after rounds of filling in and back-fitting, and its loss over the observed entries."""
    best, best_loss, is_settled = fit_weights(data, W), np.inf, False
    for _ in range(MAX_ROUNDS):
        full = fill(data, W)
        terms = Backfit(full, noise_rule(full, sigma), tol=tol).backfit(terms_of(W))
        if not terms:
            break
        W = finish(data, terms)
        loss = data.residual(W).squared_norm
        if loss < best_loss:
            is_settled = best_loss - loss <= SETTLED * loss
            best, best_loss = W, loss
        if not loss <= best_loss or is_settled:
            break
    return best, data.residual(best).squared_norm if best_loss == np.inf else best_loss
