"""What BMP is given: parameters that are checked, and a tensor of any kind that becomes a storage."""

from sklearn.utils.validation import validate_data

from boolcp import checks
from boolcp.fit.plan import open_lazy
from boolcp.memory import read_memory
from boolcp.result.labels import read_labels
from boolcp.storage import listed_or_masked, make_storage, stays_out
from boolcp.storage.lazy import look_at, make_source
from boolcp.storage.sources import load


def check_parameters(model):
    """Raise unless the parameters of a BMP are such as a fit needs."""
    checks.check_integer(model.n_atoms, "n_atoms", 1)
    checks.check_atom_rank(model.atom_rank)
    checks.check_choice(vars(model)["score"], "score", checks.SCORES)
    checks.check_number(model.alpha, "alpha")
    checks.check_number(model.tol, "tol")
    checks.check_integer(model.n_init, "n_init", 1)
    checks.check_integer(model.max_iter, "max_iter", 1)
    if model.sigma is not None:
        checks.check_number(model.sigma, "sigma")
    read_memory(model.max_memory)
    if model.atom_rank == "auto" and not model.refine:
        raise ValueError('atom_rank="auto" chooses ranks while back-fitting: it needs refine=True.')


def read_tensor(model, X, mask, *, reset):
    """Return the storage of X and its labels; `reset` says that X is what is fitted, not new data."""
    if checks.is_listed(X):
        indices, values, shape = checks.check_listed(X)
        return listed_or_masked(indices, values, shape), None
    given = X
    X, labels = read_labels(X)
    if not reset:
        check_dims(model.decomposition_, labels)
    if stays_out(X, model.max_memory):
        data = _read_lazy(model, X, mask, labels, reset=reset)
        if data is not None:
            return data, labels
        X = load(X)
    X, observed = checks.check_tensor(X, mask)
    validate_data(model, given if labels is None else X, reset=reset, skip_check_array=True)
    return make_storage(X, observed), labels


def _read_lazy(model, X, mask, labels, *, reset):
    """Return the storage of a lazy array, or None if these parameters need it in memory."""
    checks.check_lazy(X, mask)
    validate_data(model, X, reset=reset, skip_check_array=True)
    if not reset:
        return look_at(make_source(X, mask, model.max_memory), read_memory(model.max_memory))
    checks.check_modes(model.boolean_modes, X.shape, None if labels is None else labels.dims)
    return open_lazy(model, X, mask)


def check_dims(W, labels):
    """Raise if new data has names of modes, and others, or in another order, than those that were fitted."""
    if labels is not None and W.dims is not None and labels.dims != W.dims:
        raise ValueError(
            f"X has the modes {', '.join(labels.dims)}, but {', '.join(W.dims)} were fitted: bring them in that order, "
            f"e.g. X.transpose({', '.join(map(repr, W.dims))})."
        )


def check_shape(W, shape, mode):
    """Raise unless a shape is that of the decomposition W, but for one mode (None: in all modes)."""
    if len(shape) != W.ndim or any(d != shape[n] for n, d in enumerate(W.shape) if n != mode):
        allowed = "give data of that shape" if mode is None else f"only mode {mode} may differ"
        raise ValueError(f"X has shape {tuple(shape)}, but {W.shape} was fitted: {allowed}.")
