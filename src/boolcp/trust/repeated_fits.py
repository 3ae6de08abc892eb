"""One way to fit again: checked data, the parameters of the fit that is judged, and the processes."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from boolcp import checks
from boolcp.bmp import BMP, check_options
from boolcp.fit.watch import PRESENT
from boolcp.memory import float_bytes, memory_text
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import Labels, read_labels
from boolcp.storage import stays_out

OWN = ("n_atoms", "certify", "random_state", "verbose")  # parameters that each function sets for its own fits


class Repeat(NamedTuple):
    """Checked data, and the model of all fits to them."""

    values: np.ndarray
    observed: np.ndarray | None
    weights: np.ndarray | None
    labels: Labels | None
    dims: tuple[str, ...] | None
    model: BMP


def prepare(
    function: Callable[..., Any],
    X: Any,
    n_atoms: int,
    options: Mapping[str, Any],
    *,
    mask: Any = None,
    weights: Any = None,
    W: BooleanCP | None = None,
) -> Repeat:
    """Return the data and the model of a function that fits again, checked; errors name the function.

    The parameters are those of the fit of W, if it is given, unless the options differ.
    """
    check_options(function, options)
    check_order(function.__name__, X, W)
    values, labels = read_labels(X)
    check_in_memory(function.__name__, values, options.get("max_memory"))
    values, observed = checks.check_tensor(values, mask)
    check_shape(W, values.shape)
    dims = None if labels is None else labels.dims
    model = make_model(n_atoms if W is None else W.n_atoms, options, values.shape, dims, W)
    counts = None if weights is None else checks.check_weights(weights, values.shape, dims)
    return Repeat(values, observed, counts, labels, dims, model)


def check_order(name: str, X: Any, W: Any) -> None:
    """Raise if X is a decomposition, or W is none: the two are easily confused."""
    if isinstance(X, BooleanCP | BMP):
        raise TypeError(f"{name}: the tensor X comes first, then its decomposition, but X is a {type(X).__name__}.")
    if W is not None and not isinstance(W, BooleanCP):
        own = ": pass model.decomposition_" if isinstance(W, BMP) else ": the tensor X comes first, then W"
        raise TypeError(f"{name}: the decomposition must be a BooleanCP, but it is a {type(W).__name__}{own}.")


def check_shape(W: BooleanCP | None, shape: Sequence[int]) -> None:
    """Raise if W is a decomposition of a tensor with a different shape."""
    if W is not None and W.shape != tuple(shape):
        raise ValueError(f"W has shape {W.shape}, but X has shape {tuple(shape)}: pass a decomposition of X.")


def check_in_memory(name: str, values: Any, max_memory: float | str | None) -> None:
    """Raise if X is on disk: all functions that fit many times need it in memory."""
    if not checks.is_listed(values) and stays_out(values, max_memory):
        size = memory_text(float_bytes(values.shape, values.dtype))
        raise MemoryError(
            f"{name} fits X many times and needs it in memory, but it is on disk ({size}). Choose the number of atoms, "
            f"and test them, on a part that you load, such as some of the trials: np.asarray(X[..., :100])."
        )


def make_model(
    n_atoms: int, options: Mapping[str, Any], shape: Sequence[int], dims: Sequence[str] | None, W: BooleanCP | None
) -> BMP:
    """Return the BMP of all fits; its modes are indices, as the parts of X that it sees have no names."""
    known: dict[str, Any] = {} if W is None else fitted_parameters(W)
    names = dims if dims is not None or W is None else W.dims
    known |= {"certify": False} | dict(options)
    if known.get("boolean_modes") is not None:
        known["boolean_modes"] = checks.check_modes(known["boolean_modes"], shape, names)
    if not isinstance(known.get("nonnegative", False), bool):
        known["nonnegative"] = checks.check_nonnegative(known["nonnegative"], shape, names)
    return BMP(n_atoms, **known)


def fitted_parameters(W: BooleanCP) -> dict[str, Any]:
    """Return the parameters of BMP that W was fitted with; without a record, those that its atoms show."""
    given = getattr(W, "parameters", None)
    if given:
        return {name: value for name, value in given.items() if name not in OWN}
    ranks = [atom.rank or 0 for atom in W.atoms]  # None is a block
    found: dict[str, Any] = {"atom_rank": max(ranks) if all(ranks) else "block"} if ranks else {}
    found |= {} if W.deviance is None else {"loss": W.deviance.loss}
    return found | ({} if getattr(W, "mean", None) is None else {"mean": True})


def fit_model(
    model: BMP, values: np.ndarray, observed: np.ndarray | None, seed: Any, weights: np.ndarray | None = None
) -> BMP:
    """Return the model fitted to other data or with a different seed, without warnings that nobody needs.

    They are about atoms, and about slices that a part of the data does not have.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", checks.DegenerateAtomsWarning)
        warnings.filterwarnings("ignore", message=r".*slice\(s\) along mode")
        return clone(model).set_params(random_state=seed).fit(values, mask=observed, weights=weights)


def fit_again(
    model: BMP, values: np.ndarray, observed: np.ndarray | None, seed: Any, weights: np.ndarray | None = None
) -> BooleanCP:
    """Return the decomposition of other data, or with a different seed."""
    W: BooleanCP = fit_model(model, values, observed, seed, weights).decomposition_
    return W


def fit_slices(data: Repeat, mode: int, places: np.ndarray, seed: Any) -> BooleanCP:
    """Return the decomposition of some slices along one mode."""
    parts = (data.values, data.observed, data.weights)
    values, observed, weights = (None if A is None else np.take(A, places, axis=mode) for A in parts)
    assert values is not None
    return fit_again(data.model, values, observed, seed, weights)


def run_all(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], n_jobs: int, verbose: int, what: str
) -> list[Any]:
    """Return function(*task) for all tasks, in order, with a progress bar, on `n_jobs` processes of joblib."""
    from joblib import Parallel, delayed
    from tqdm import tqdm

    found: list[Any] = []
    calls = Parallel(n_jobs=n_jobs, return_as="generator")(delayed(function)(*task) for task in tasks)
    try:
        PRESENT.part = f"0 of {len(tasks)} {what} done"
        for result in tqdm(calls, total=len(tasks), desc=what, disable=None if verbose else True):
            found.append(result)
            PRESENT.part = f"{len(found)} of {len(tasks)} {what} done"
    finally:
        PRESENT.part = ""
    return found
