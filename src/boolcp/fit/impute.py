"""Block atoms when entries are missing: back-fitting on the tensor completed by the current estimate.

For the real block of one atom the exact least squares over observed entries has no small normal equations when its
rank is bounded. Filling the missing entries with the estimate itself and fitting that complete tensor never raises
the loss over the observed entries (a majorization: what is filled in agrees with the estimate at the start), and its
fixed points are those of the exact problem.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from boolcp.fit.block_rules import competing_starts
from boolcp.fit.blocks import Run, block_pursuit
from boolcp.fit.pursuit import estimate, record
from boolcp.fit.relax import solve_rows
from boolcp.fit.shrinkage import noise_level
from boolcp.fit.state import Pursuit
from boolcp.fit.steps import Steps
from boolcp.fit.terms import finish, terms_of
from boolcp.fit.weights import NormalEquations, atom_system
from boolcp.storage import DenseTensor, ListedTensor

MAX_ROUNDS = 20
SETTLED = 1e-4  # fall of the loss in a round, relative to it, that ends the rounds
MAX_ENTRIES = 2**28  # of a tensor that may be filled in memory


def observed_block_pursuit(data, n_atoms, modes, rng, *, atom_rank, sigma=None, steps=None, start=None, **options):
    """Return the Pursuit of block atoms over the observed entries; parameters as in `block_pursuit`.

    The pursuit is run on the tensor with zeros filled in and, for a rank chosen by the noise, once more on the
    tensor filled by its result; then each estimate of the path is back-fitted, filled in and back-fitted again.
    A `start` is continued on the tensor filled by its last estimate.
    """
    steps = Steps() if steps is None else steps
    size = int(np.prod(data.shape, dtype=np.int64))
    if isinstance(data, ListedTensor) and size > MAX_ENTRIES:
        raise ValueError(
            f"X has {size} entries of which few are observed: with atom_rank={atom_rank!r} the missing ones would be "
            f"filled in memory. Use atom_rank=1."
        )
    is_new = start is None or not start.history
    filled = DenseTensor(as_array(data.filled())) if is_new else fill(data, start.path[-1])
    search = partial(block_pursuit, n_atoms=n_atoms, modes=modes, rng=rng, atom_rank=atom_rank, steps=steps, **options)
    pursuit = steps.do("filled", partial(search, filled, sigma=sigma, start=start), rng)
    if atom_rank == "auto" and sigma is None:
        full = fill(data, pursuit.path[-1])
        sigma = noise_level(full) * np.sqrt(size / data.n_observed)  # the entries filled in carry no noise
        if not steps.is_cut:
            pursuit = steps.do("filled again", partial(search, full, sigma=sigma), rng)
    norm2 = data.squared_norm
    path, history = [estimate(data, (), NormalEquations(), np.zeros(0))], []
    if not is_new:
        path, history = list(start.path), list(start.history)
    for k in range(len(history), len(pursuit.history)):
        found = steps.do(
            f"settle {k}", partial(settle, data, pursuit.path[k + 1], modes, rng, atom_rank, sigma, options, steps), rng
        )
        W, loss = found
        path.append(W)
        history.append(record(W.atoms[-1], loss, norm2, pursuit.history[k].seconds))
        steps.report("settle", k + 1, len(pursuit.history), loss, norm2)
    return Pursuit(tuple(path), tuple(history), pursuit.stop_reason)


def settle(data, W, modes, rng, atom_rank, sigma, options, steps):
    """Return the estimate after rounds of filling in and back-fitting, and its loss over the observed entries.

    If `steps` is stopped, there are no rounds: only the weights are fitted to the observed entries.
    """
    if steps.is_stopped:
        G, b = atom_system(data, W.atoms)
        W = replace(W, weights=solve_rows(G, b[None])[0], data_norm2=data.squared_norm, data_inner=b, data_gram=G)
        return W, data.residual(W).squared_norm
    keep = {name: options[name] for name in ("score", "tol", "certify")}
    best, best_loss, is_settled = None, np.inf, False
    for _ in range(MAX_ROUNDS):
        full = fill(data, W)
        storage, _, rule = competing_starts(full, tuple(modes), atom_rank, sigma)[0]
        terms = Run(storage, modes, rule, rng, **keep).backfit(terms_of(W))
        if not terms:
            break
        W = finish(data, terms)
        loss = data.residual(W).squared_norm
        if loss < best_loss:
            is_settled = best_loss - loss <= SETTLED * loss
            best, best_loss = W, loss
        if not loss <= best_loss or is_settled:
            break
    return (W, data.residual(W).squared_norm) if best is None else (best, best_loss)


def fill(data, W):
    """Return the complete tensor with the missing entries taken from W."""
    return DenseTensor(as_array(data.residual(W)) + W.to_tensor())


def as_array(data):
    """Return a masked or listed tensor as an array with zeros in the missing places."""
    if isinstance(data, ListedTensor):
        X = np.zeros(data.shape)
        X[tuple(data.indices.T)] = data.values
        return X
    return data.to_array().astype(float)
