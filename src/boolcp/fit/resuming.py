"""What a fit is known by in its checkpoint, and what a fit before leaves to go on from (`warm_start`)."""

import numbers
from dataclasses import replace

import numpy as np

from boolcp.fit.checkpoint import Checkpoint, describe_data
from boolcp.fit.state import Pursuit
from boolcp.fit.steps import get_state, set_state
from boolcp.io.errors import check_exists

FREE = {
    "n_atoms",
    "n_init",
    "max_iter",
    "certify",
    "compression",
    "random_state",
    "verbose",
    "max_memory",
}  # may change when warm
SAME_NORM = 1e-9  # relative difference of |X|^2 that counts as none


def describe_fit(model, data, modes, rng):
    """Return the parameters, the data and the random state of a fit, as JSON can hold them."""
    parameters = model.get_params() | {"random_state": describe_random_state(model.random_state, rng)}
    del parameters["verbose"]
    known = describe_data(data) | {"Boolean modes": list(modes)}
    return {"parameters": parameters, "data": known, "random_state": get_state(rng)}


def describe_random_state(random_state, rng):
    """Return an integer seed or None as it is, and the state of the Generator for anything else."""
    if random_state is None or random_state is np.random:
        return None
    return int(random_state) if isinstance(random_state, numbers.Integral) else get_state(rng)


def read_parameters(path):
    """Return the parameters of the fit whose checkpoint is given."""
    checkpoint = Checkpoint(path)
    found = checkpoint.load()
    if found is None:
        check_exists(checkpoint.path)  # raises
    parameters = found[0]["parameters"]
    state = parameters["random_state"]
    if isinstance(state, dict):
        rng = np.random.Generator(getattr(np.random, state["bit_generator"])())
        set_state(rng, state)
        parameters["random_state"] = rng
    return parameters


def fitted_before(model, data):
    """Return the Pursuit and the decomposition of the fit before, to go on from; None without a warm start."""
    if not (model.warm_start and hasattr(model, "decomposition_")):
        return None
    if model.atom_rank == "auto":
        raise ValueError(
            'warm_start=True needs an atom_rank that is an integer or None: with "auto" several estimates compete, and '
            "only the winner is kept. Set warm_start=False."
        )
    W, old, new = model.decomposition_, model._fitted_parameters, model.get_params()
    changed = sorted(name for name in new if name not in FREE and not same(old[name], new[name]))
    if changed:
        raise ValueError(
            f"warm_start=True goes on from the fit before, but {', '.join(changed)} changed since. "
            f"Set warm_start=False to start over."
        )
    if model.n_atoms < len(model.history_):
        raise ValueError(
            f"n_atoms={model.n_atoms} is less than the {len(model.history_)} atoms fitted before: warm_start=True only "
            f"adds atoms. Fewer are in path_[{model.n_atoms}]; set warm_start=False to start over."
        )
    if data.shape != W.shape or abs(data.squared_norm - W.data_norm2) > SAME_NORM * W.data_norm2:
        raise ValueError(
            "X is not the tensor that was fitted before (another shape or norm): warm_start=True adds atoms on the "
            "same data. Set warm_start=False to start over."
        )
    path = tuple(replace(W_k, labels=None, undetermined=None) for W_k in model.path_)
    return Pursuit(path, model.history_, "n_atoms"), replace(W, labels=None, undetermined=None)


def same(a, b):
    """Return True if two values of a parameter are equal, lists and arrays entry by entry."""
    return np.array_equal(a, b) if isinstance(a, list | tuple | np.ndarray) else a == b
