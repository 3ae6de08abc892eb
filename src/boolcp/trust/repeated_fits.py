"""One way to fit again: checked data, the parameters of the fit that is judged, and the processes."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from boolcp import checks
from boolcp.bmp import BMP, check_options
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import Labels, read_labels
from boolcp.storage import stays_out
from boolcp.system import float_bytes, memory_text


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
    """Return the checked data and the model of a function that fits again; options not given follow from W."""
    check_options(function, options)
    name = function.__name__
    if isinstance(X, BooleanCP | BMP):
        raise TypeError(f"{name}: the tensor X comes first, then its decomposition, but X is a {type(X).__name__}.")
    if W is not None and not isinstance(W, BooleanCP):
        own = ": pass model.decomposition_" if isinstance(W, BMP) else ": the tensor X comes first, then W"
        raise TypeError(f"{name}: the decomposition must be a BooleanCP, but it is a {type(W).__name__}{own}.")
    values, labels = read_labels(X)
    if not checks.is_listed(values) and stays_out(values, options.get("max_memory")):
        size = memory_text(float_bytes(values.shape, values.dtype))
        raise MemoryError(
            f"{name} fits X many times and needs it in memory, but it is on disk ({size}). Load it, np.asarray(X), or "
            f"choose the number of atoms and test them on a part, such as some of the trials: np.asarray(X[..., :100])."
        )
    values, observed = checks.check_tensor(values, mask)
    if W is not None and W.shape != values.shape:
        raise ValueError(f"W has shape {W.shape}, but X has shape {values.shape}: pass a decomposition of X.")
    dims = None if labels is None else labels.dims
    model = make_model(n_atoms if W is None else W.n_atoms, options, values.shape, dims, W)
    counts = None if weights is None else checks.check_weights(weights, values.shape, dims)
    return Repeat(values, observed, counts, labels, dims, model)


def make_model(
    n_atoms: int, options: Mapping[str, Any], shape: Sequence[int], dims: Sequence[str] | None, W: BooleanCP | None
) -> BMP:
    """Return the BMP of all fits; its modes are indices, as the parts of X that it sees have no names."""
    known: dict[str, Any] = {"certify": False}
    if W is not None and W.n_atoms:
        ranks = [atom.rank or 0 for atom in W.atoms]  # None is a block
        known |= {"atom_rank": max(ranks) if all(ranks) else "block"}
        known |= {} if W.deviance is None else {"loss": W.deviance.loss}
        known |= {} if W.mean is None else {"mean": True, "boolean_modes": [int(W.boolean_mode[0])]}
    known |= options
    names = dims if dims is not None or W is None else W.dims
    if known.get("boolean_modes") is not None:
        known["boolean_modes"] = checks.check_modes(known["boolean_modes"], shape, names)
    if not isinstance(known.get("nonnegative", False), bool):
        known["nonnegative"] = checks.check_nonnegative(known["nonnegative"], shape, names)
    return BMP(n_atoms, **known)


def fit_model(data: Repeat, seed: Any, **parameters: Any) -> BMP:
    """Return the model fitted to the data, without warnings about atoms or slices that a part of the data lacks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", checks.DegenerateAtomsWarning)
        warnings.filterwarnings("ignore", message=r".*slice\(s\) along mode")
        model = clone(data.model).set_params(random_state=seed, **parameters)
        return model.fit(data.values, mask=data.observed, weights=data.weights)


def take_slices(data: Repeat, mode: int, places: np.ndarray) -> Repeat:
    """Return the data on some slices along one mode."""
    parts = {name: getattr(data, name) for name in ("values", "observed", "weights")}
    return data._replace(**{name: A.take(places, axis=mode) for name, A in parts.items() if A is not None})


def without_mean(values: np.ndarray, W: BooleanCP) -> tuple[np.ndarray, BooleanCP]:
    """Return X minus the mean that W has beside its atoms, and W without it."""
    return (values, W) if W.mean is None else (values - W.mean, replace(W, mean=None))


def run_all(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], n_jobs: int, verbose: int) -> list[Any]:
    """Return function(*task) for all tasks, in order, with a progress bar, on `n_jobs` processes of joblib."""
    from joblib import Parallel, delayed
    from tqdm.auto import tqdm

    calls = Parallel(n_jobs=n_jobs, return_as="generator")(delayed(function)(*task) for task in tasks)
    return list(tqdm(calls, total=len(tasks), desc="fits", disable=None if verbose else True))
