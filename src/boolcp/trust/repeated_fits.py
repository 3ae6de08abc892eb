"""One way to fit again: checked data in the units of the fit, the parameters of the fit, and processes."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from boolcp import checks
from boolcp.bmp import BMP, check_options
from boolcp.fit.neighbors import part_of, plain_graphs, read_graphs
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import read_aligned
from boolcp.storage import stays_out
from boolcp.system import float_bytes, memory_text

UNITS = ("trial", "epoch", "subject", "session", "animal", "participant", "patient", "sweep")  # modes of repeats
QUICK = 1.0  # seconds of a fit below which processes do not pay


class Repeat(NamedTuple):
    """Checked data, whitened if the fit has been, and the model of all fits to them."""

    values: np.ndarray
    observed: np.ndarray | None
    weights: np.ndarray | None
    model: BMP


def prepare(
    function: Callable[..., Any], X: Any, W: Any, options: Mapping[str, Any], *, mask: Any, weights: Any, seed: Any
) -> tuple[Repeat, BooleanCP]:
    """Return the checked data with the model of a function that fits again, and the decomposition that it judges.

    W is that decomposition, the BMP that found it, or a number of atoms for a new fit. Options that are not given are
    those that W was fitted with.
    """
    check_options(function, options)
    name = function.__name__
    if isinstance(X, BooleanCP | BMP):
        raise TypeError(f"{name}: the tensor X comes first, then its decomposition, but X is a {type(X).__name__}.")
    if isinstance(W, BMP):
        check_is_fitted(W, msg=f"{name}: this BMP is not fitted yet: call its fit(X) first.")
        W = W.decomposition_
    like = W.labels if isinstance(W, BooleanCP) else None
    values, mask, weights, labels = read_aligned(X, mask, weights, like=like)
    if not checks.is_listed(values) and stays_out(values, options.get("max_memory")):
        size = memory_text(float_bytes(values.shape, values.dtype))
        text = f"{name} fits X many times and needs it in memory, but it is on disk ({size}). Load it, np.asarray(X),"
        advice = "or choose the number of atoms and test them on a part, such as some of the trials"
        raise MemoryError(f"{text} {advice}: np.asarray(X[..., :100]).")
    values, observed = checks.check_tensor(values, mask)
    dims = None if labels is None else labels.dims
    counts = None if weights is None else checks.check_weights(weights, values.shape)
    if isinstance(W, int | np.integer) and not isinstance(W, bool):
        W = fit_quietly(BMP(int(W), **options, random_state=seed), X, mask=mask, weights=weights).decomposition_
        options = {}
    if not isinstance(W, BooleanCP):
        raise TypeError(f"{name}: the tensor X comes first, then its decomposition, but that is a {type(W).__name__}.")
    if W.shape != values.shape:
        raise ValueError(f"W has shape {W.shape}, but X has shape {values.shape}: pass a decomposition of X.")
    known = dict(W.parameters or inferred(W)) | dict(options)
    if known.get("boolean_modes") is not None:  # parts of X have no names
        known["boolean_modes"] = list(checks.check_modes(known["boolean_modes"], values.shape, dims or W.dims))
    if not isinstance(known.get("nonnegative", False), bool):
        known["nonnegative"] = checks.check_nonnegative(known["nonnegative"], values.shape, dims or W.dims)
    if known.get("adjacency"):
        known["adjacency"] = plain_graphs(read_graphs(known["adjacency"], values.shape, labels or W.labels))
    known |= {"noise": "white", "certify": False}
    values = values if W.noise is None else W.noise.whiten(values)
    return Repeat(values, observed, counts, BMP(max(W.n_atoms, 1), **known)), W


def inferred(W: BooleanCP) -> dict[str, Any]:
    """Return what can be seen of the parameters of a decomposition that was not fitted here."""
    ranks = [atom.rank or 0 for atom in W.atoms]  # None is a block
    known: dict[str, Any] = {"atom_rank": max(ranks, default=1) if all(ranks) else "block"}
    known |= {} if W.deviance is None else {"loss": W.deviance.loss}
    return known if W.mean is None else known | {"mean": True, "boolean_modes": [int(W.boolean_mode[0])]}


def fit_quietly(model: BMP, *data: Any, **how: Any) -> BMP:
    """Return the fitted model, without warnings about atoms or slices that a part of the data lacks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", checks.BoolcpWarning)
        return model.fit(*data, **how)


def fit_part(data: Repeat, mode: int, places: np.ndarray | None, seed: Any) -> BMP:
    """Return the model fitted to some slices along one mode, or to all."""
    parts, model = [data.values, data.observed, data.weights], clone(data.model).set_params(random_state=seed)
    if places is not None:
        parts = [A if A is None else A.take(places, axis=mode) for A in parts]
        model.set_params(adjacency=part_of(model.adjacency, mode, places, data.values.shape))
    return fit_quietly(model, parts[0], mask=parts[1], weights=parts[2])


def unit_mode(W: BooleanCP, mode: int | str | None) -> int:
    """Return the mode along which the data are split: the given one, the trials, the only Boolean one, the last."""
    if mode is not None:
        return checks.check_mode(mode, W.ndim, W.dims)
    named = [n for n, name in enumerate(W.dims or ()) if str(name).lower().rstrip("s") in UNITS]
    allowed = W.members if W.parameters is None else W.parameters["boolean_modes"] or ()  # not where atoms happen to be
    return (named or (list(allowed) if len(allowed) == 1 else [W.ndim - 1]))[0]


def run_all(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], n_jobs: int | None, show: Any) -> list[Any]:
    """Return function(*task) for all tasks, in order, with a progress bar.

    `n_jobs` processes of joblib; None takes all cores if the first task takes longer than a second.
    """
    from joblib import Parallel, delayed
    from tqdm.auto import tqdm

    with tqdm(total=len(tasks), desc="fits", disable=None if show else True) as bar:
        found, start = [], perf_counter()
        if n_jobs is None and tasks:
            found.append(function(*tasks[0]))
            bar.update()
            n_jobs = -1 if perf_counter() - start > QUICK else 1
        rest = tasks[len(found) :]
        for result in Parallel(n_jobs=n_jobs, return_as="generator")(delayed(function)(*task) for task in rest):
            found.append(result)
            bar.update()
    return found


def table_text(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a title and, below it, rows of cells aligned to the right; the first row are the heads."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join([title, *("  ".join(map(str.rjust, row, widths)) for row in rows)])
