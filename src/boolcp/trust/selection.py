"""The number of atoms, chosen by the error on held-out entries or slabs."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from sklearn.base import clone

from boolcp import checks
from boolcp.checks import BoolcpWarning
from boolcp.result.atoms import BooleanCP
from boolcp.result.trust import Deviance
from boolcp.storage.weighted import Loss
from boolcp.trust.repeated_fits import Repeat, fit_model, prepare, run_all, take_slices

PATIENCE = 3  # numbers of atoms in a row without a lower error that end a split; one was too few for small tensors


@dataclass(frozen=True, eq=False)
class Selection:
    """Held-out error for each number of atoms, and the number chosen.

    Attributes
    ----------
    n_atoms : int
        The choice.
    errors : ndarray of shape (n_splits, max_atoms + 1)
        Root mean square error (or mean deviance) on the held-out entries of each split, for 0, 1, .., max_atoms atoms.
    scheme, rule : str
        How entries were held out, and how the choice was made.
    measure : str
        What the errors are: "rmse", or "deviance" (its mean) under a loss that is not the sum of squares.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    >>> boolcp.select_n_atoms(X, 3, splits=2, random_state=0)
    Selection(n_atoms=2 of at most 3, entries, 2 splits)
    """

    n_atoms: int
    errors: np.ndarray
    scheme: str
    rule: str
    measure: str = "rmse"

    @property
    def is_at_edge(self) -> bool:
        """Return True if the choice is the largest number tried: a larger one may be better."""
        return self.n_atoms == self.errors.shape[1] - 1

    @property
    def mean(self) -> np.ndarray:
        """Return the mean error for each number of atoms."""
        return self.errors.mean(axis=0)

    @property
    def standard_error(self) -> np.ndarray:
        """Return the standard error of the mean for each number of atoms."""
        return self.errors.std(axis=0, ddof=1) / np.sqrt(len(self.errors)) if len(self.errors) > 1 else 0 * self.mean

    def summary(self) -> str:
        """Return the table as text: number of atoms, mean held-out error, standard error.

        Examples
        --------
        >>> import numpy as np, boolcp
        >>> print(boolcp.Selection(1, np.array([[3.0, 1.0, 1.1], [3.2, 1.2, 1.1]]), "entries", "one-se").summary())
        held-out error (entries, 2 splits)
        atoms          rmse        s.e.
            0           3.1         0.1
            1           1.1         0.1  <- chosen
            2           1.1           0
        """
        rows = [
            f"{k:5d}  {mean:12.6g}  {error:10.2g}{'  <- chosen' if k == self.n_atoms else ''}"
            for k, (mean, error) in enumerate(zip(self.mean, self.standard_error, strict=True))
        ]
        title = f"held-out error ({self.scheme}, {len(self.errors)} splits)"
        edge = ["The choice is the largest number tried: a larger one may be better."] if self.is_at_edge else []
        return "\n".join([title, f"atoms  {self.measure:>12}        s.e.", *rows, *edge])

    def plot(self, ax: Any = None) -> Any:
        """Draw the held-out error against the number of atoms and return the Axes.

        Examples
        --------
        >>> import numpy as np, boolcp
        >>> boolcp.Selection(1, np.array([[3.0, 1.0, 1.1]]), "entries", "min").plot().get_xlabel()
        'number of atoms'
        """
        from boolcp.plotting import plot_selection

        return plot_selection(self, ax=ax)

    def __repr__(self) -> str:
        most = len(self.mean) - 1
        return f"Selection(n_atoms={self.n_atoms} of at most {most}, {self.scheme}, {len(self.errors)} splits)"

    def _repr_html_(self) -> str:
        from boolcp.plotting import with_picture

        return with_picture(self.summary(), self.plot, repr(self))


def select_n_atoms(
    X: Any,
    max_atoms: int = 10,
    *,
    splits: int = 5,
    scheme: str = "entries",
    mode: int | str = -1,
    held_out: float = 0.1,
    rule: str = "one-se",
    mask: Any = None,
    weights: Any = None,
    n_jobs: int = 1,
    random_state: Any = None,
    verbose: int = 0,
    **options: Any,
) -> Selection:
    """Return the number of atoms with the lowest error on held-out data, as a Selection.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The tensor, in memory.
    max_atoms : int
        Largest number of atoms tried. Each split is fitted with 1, 2, .. atoms, until three in a row do not lower its
        error or a fit leaves the added atom out; larger numbers count as the last one. A warning says if `max_atoms`
        is chosen.
    splits : int
        Number of random splits.
    scheme : {"entries", "slabs"}
        Hold out single entries, or whole slabs along `mode` (trials, say). The factor of a held-out slab is solved
        from a random half of its entries and judged on the other half.
    mode : int or str
        The mode of the slabs.
    held_out : float
        Share of the observed entries, or of the slabs, that is held out.
    rule : {"one-se", "min"}
        The smallest number of atoms within one standard error of the lowest mean error, or the lowest itself.
    mask : array-like of bool, optional
        True where X is observed.
    weights : array-like, optional
        How much each entry counts, as in `BMP.fit`, in the fits and in the held-out error.
    n_jobs : int
        Number of processes of joblib (``joblib.parallel_config`` may send them to a cluster). The result does not
        depend on it.
    random_state : int, Generator or None
        Seed.
    verbose : int
        1 shows a progress bar, in a terminal.
    **options
        Parameters of BMP.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    >>> boolcp.select_n_atoms(X, 4, splits=3, random_state=0).n_atoms
    2
    """
    checks.check_integer(max_atoms, "max_atoms", 1)
    checks.check_integer(splits, "splits", 1)
    checks.check_choice(scheme, "scheme", ("entries", "slabs"))
    checks.check_choice(rule, "rule", ("one-se", "min"))
    checks.check_number(held_out, "held_out", positive=True)
    if held_out >= 1:
        raise ValueError(f"held_out is the share held out: it must be below 1, got {held_out}.")
    data = prepare(select_n_atoms, X, max_atoms, options, mask=mask, weights=weights)
    at = checks.check_mode(mode, data.values.ndim, data.dims)
    known = np.ones(data.values.shape, dtype=bool) if data.observed is None else data.observed
    known = known if data.weights is None else known & (data.weights > 0)
    if scheme == "slabs" and (n_usable := len(usable_slabs(known, at))) < 2:
        raise ValueError(
            f"Holding out slabs along mode {at} needs two or more slabs with two or more observed entries each, and "
            f'there are {n_usable}: hold out slabs along a different mode, or entries (scheme="entries").'
        )
    if scheme == "entries" and np.count_nonzero(known) < 2:
        raise ValueError("Holding out entries needs two or more observed entries.")
    split: Any = hold_out_entries if scheme == "entries" else hold_out_slabs
    tasks = [(data, known, at, held_out, rng) for rng in checks.make_generator(random_state).spawn(splits)]
    errors = np.array(run_all(split, tasks, n_jobs, verbose))
    measure = "rmse" if data.model.loss == "squared" else "deviance"
    selection = Selection(int(np.argmin(errors.mean(axis=0))), errors, scheme, rule, measure)
    if rule == "one-se":
        limit = selection.mean.min() + selection.standard_error[selection.n_atoms]
        selection = replace(selection, n_atoms=int(np.flatnonzero(selection.mean <= limit)[0]))
    if selection.is_at_edge:
        warnings.warn(
            f"The number of atoms chosen is the largest one tried, {max_atoms}: try a larger max_atoms. If the error "
            f"keeps falling, the data have no sharp number of atoms.",
            BoolcpWarning,
            stacklevel=2,
        )
    return selection


def hold_out_entries(data: Repeat, known: np.ndarray, mode: int, held_out: float, rng: Generator) -> np.ndarray:
    """Return the errors on a random share of the known entries, fitted on the others."""
    entries = np.flatnonzero(known)
    test = np.zeros(known.shape, dtype=bool)
    test.flat[rng.choice(entries, max(1, int(held_out * len(entries))), replace=False)] = True
    places = np.argwhere(test)
    return split_errors(data, known & ~test, rng, lambda W: W.at(places), data, test)


def hold_out_slabs(data: Repeat, known: np.ndarray, mode: int, held_out: float, rng: Generator) -> np.ndarray:
    """Return the errors on half of the entries of held-out slabs, whose factors are solved from the other half."""
    d, usable = known.shape[mode], usable_slabs(known, mode)
    test = np.sort(rng.choice(usable, min(max(1, int(held_out * d)), len(usable) - 1), replace=False))
    slabs, seen = take_slices(data, mode, test), known.take(test, axis=mode)
    part = take_slices(data, mode, train := np.setdiff1d(np.arange(d), test))
    given = seen & (rng.random(seen.shape) < 0.5)
    for some, whole in zip(np.moveaxis(given, mode, 0), np.moveaxis(seen, mode, 0), strict=True):
        if not some.any() or (some == whole).all():  # each slab gives one or more entries and keeps one or more
            some.flat[rng.choice(np.flatnonzero(whole))] = not some.any()
    judged, half = seen & ~given, np.where(given, slabs.values, np.nan)

    def predict(W: BooleanCP) -> np.ndarray:
        fitted = clone(data.model)
        fitted.decomposition_ = W
        factor = fitted.transform(half, mode=mode, weights=slabs.weights)
        return np.asarray(fitted.inverse_transform(factor, mode=mode)[judged])

    return split_errors(part, known.take(train, axis=mode), rng, predict, slabs, judged)


def usable_slabs(known: np.ndarray, mode: int) -> np.ndarray:
    """Return the slabs that can be held out: they need one entry for the factor and another to judge it."""
    others = tuple(n for n in range(known.ndim) if n != mode)
    return np.flatnonzero(known.sum(axis=others) >= 2)


def split_errors(
    data: Repeat,
    known: np.ndarray,
    rng: Generator,
    predict: Callable[[BooleanCP], np.ndarray],
    held_out: Repeat,
    test: np.ndarray,
) -> np.ndarray:
    """Return the held-out errors of fits with 0, 1, .. atoms to the known entries; the last is repeated at the end."""
    data, seed = data._replace(observed=None if known.all() else known), int(rng.integers(2**32))
    truth, counts = held_out.values[test], None if held_out.weights is None else held_out.weights[test]
    errors: list[float] = []
    for k in range(1, data.model.n_atoms + 1):
        fitted = fit_model(data, seed, n_atoms=k)
        W: BooleanCP = fitted.decomposition_
        for each in (W,) if errors else (fitted.path_[0], W):
            predicted = np.nan_to_num(predict(each))  # 0 where nothing is known
            errors.append(error(truth, predicted, counts, W.deviance, each.n_atoms))
        if W.n_atoms < k or len(errors) > PATIENCE + int(np.argmin(errors)):  # the added atom is left out, or no help
            break
    return np.array(errors + [errors[-1]] * (data.model.n_atoms + 1 - len(errors)))


def error(
    truth: np.ndarray, predicted: np.ndarray, weights: np.ndarray | None, deviance: Deviance | None, n_atoms: int
) -> float:
    """Return the root mean square error, or the mean deviance under a loss that is not the sum of squares."""
    if deviance is None:
        return float(np.sqrt(np.average(np.square(truth - predicted, dtype=float), weights=weights)))
    loss = Loss(deviance.loss, deviance.scale)
    mean = predicted.astype(float) if n_atoms else np.full(len(truth), loss.null(truth, weights))
    return float(np.average(loss.deviance(truth.astype(float), mean), weights=weights))
