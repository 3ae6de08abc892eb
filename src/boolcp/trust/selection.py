"""The number of atoms, chosen by the error on held-out entries or slabs."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from sklearn.base import clone

from boolcp import checks
from boolcp.bmp import BMP, check_options
from boolcp.checks import BoolcpWarning
from boolcp.fit.finish import have_same_bits
from boolcp.fit.losses import Loss
from boolcp.result.atoms import BooleanCP
from boolcp.trust.repeated_fits import (
    fit_again,
    hold_out_lazily,
    make_model,
    read_data,
    read_lazy,
    read_weights,
    run_all,
)

SELECTION_SCHEMES = ("entries", "slabs")
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
    >>> selection = boolcp.select_n_atoms(X, 3, splits=2, random_state=0)
    >>> selection
    Selection(n_atoms=2 of at most 3, entries, 2 splits)
    >>> selection.errors.shape
    (2, 4)
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
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
        >>> selection = boolcp.select_n_atoms(X, 3, splits=2, random_state=0)
        >>> print(selection.summary())
        held-out error (entries, 2 splits)
        atoms          rmse        s.e.
            0      0.516163     0.00026
            1      0.506179     0.00078
            2      0.493956      0.0019  <- chosen
            3      0.493956      0.0019
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
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
        >>> selection = boolcp.select_n_atoms(X, 3, splits=2, random_state=0)
        >>> ax = selection.plot()
        >>> ax.get_xlabel()
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
        The tensor. One that is not in memory stays there: entries are held out chunk by chunk, and each split takes
        four passes, its estimates being those of the compressed tensor.
    max_atoms : int
        Largest number of atoms tried. Each split is fitted as `BMP.fit` does with 1, 2, .. atoms, until three in a
        row do not lower its error or a fit leaves the added atom out; larger numbers count as the last one. A warning
        says if `max_atoms` is chosen.
    splits : int
        Number of random splits.
    scheme : {"entries", "slabs"}
        Hold out single entries, or whole slabs along `mode` (trials, say). The factor of a held-out slab is solved
        from a random half of its entries and judged on the other half.
    mode : int
        The mode of the slabs.
    held_out : float
        Share of the observed entries, or of the slabs, that is held out.
    rule : {"one-se", "min"}
        The smallest number of atoms within one standard error of the lowest mean error, or the lowest itself.
    mask : array-like of bool, optional
        True where X is observed.
    weights : array-like, dict or str, optional
        How much each entry counts, as in `BMP.fit`, in the fits and in the held-out error.
    n_jobs : int
        Number of processes. The result does not depend on it. With an active `dask.distributed.Client` the fits are
        tasks of its cluster instead.
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
    check_options(select_n_atoms, options)
    checks.check_integer(max_atoms, "max_atoms", 1)
    checks.check_integer(splits, "splits", 1)
    checks.check_choice(scheme, "scheme", SELECTION_SCHEMES)
    checks.check_choice(rule, "rule", ("one-se", "min"))
    checks.check_number(held_out, "held_out", positive=True)
    if held_out >= 1:
        raise ValueError(f"held_out is the share held out: it must be below 1, got {held_out}.")
    lazy = read_lazy(X, mask, options, is_loaded=scheme == "slabs" or weights is not None)
    values, observed, _, dims = read_data(X, mask) if lazy is None else lazy
    at = checks.check_mode(mode, values.ndim, dims)
    model = make_model(max_atoms, options, values.shape, dims)
    weights = read_weights(model, X, mask, weights, dims)
    split: Any = hold_out_lazily
    if lazy is None:
        split = hold_out_entries if scheme == "entries" else hold_out_slabs
        observed = usable_entries(values.shape, observed, weights, scheme, at)
    seeds = checks.make_generator(random_state).spawn(splits)
    tasks = [(model, values, observed, weights, at, held_out, rng) for rng in seeds]
    errors = np.array(run_all(split, tasks, n_jobs, verbose, "splits"))
    measure = "rmse" if model.loss == "squared" else "deviance"
    selection = Selection(choose(errors, rule), errors, scheme, rule, measure)
    if selection.is_at_edge:
        warnings.warn(
            f"The number of atoms chosen is the largest one tried, {max_atoms}: try a larger max_atoms. If the error "
            f"keeps falling, the data have no sharp number of atoms.",
            BoolcpWarning,
            stacklevel=2,
        )
    return selection


def usable_entries(
    shape: Sequence[int], observed: np.ndarray | None, weights: np.ndarray | None, scheme: str, mode: int
) -> np.ndarray:
    """Return which entries are observed and count; raise if nothing can be held out."""
    known = np.ones(tuple(shape), dtype=bool) if observed is None else observed
    if weights is not None:
        known = known & (weights > 0)
    if scheme == "slabs" and (n_usable := len(usable_slabs(known, mode))) < 2:
        raise ValueError(
            f"Holding out slabs along mode {mode} needs two or more slabs with two or more observed entries each, and "
            f'there are {n_usable}: hold out slabs along a different mode, or entries (scheme="entries").'
        )
    if scheme == "entries" and np.count_nonzero(known) < 2:
        raise ValueError("Holding out entries needs two or more observed entries.")
    return known


def choose(errors: np.ndarray, rule: str) -> int:
    """Return the number of atoms: of the lowest mean error, or the smallest within one standard error of it."""
    mean = errors.mean(axis=0)
    best = int(np.argmin(mean))
    if rule == "min" or len(errors) == 1:
        return best
    limit = mean[best] + errors[:, best].std(ddof=1) / np.sqrt(len(errors))
    return int(np.flatnonzero(mean <= limit)[0])


def hold_out_entries(
    model: BMP, values: np.ndarray, observed: np.ndarray, weights: Any, mode: int, held_out: float, rng: Generator
) -> np.ndarray:
    """Return the errors on a random share of the observed entries, fitted on the others."""
    places = np.flatnonzero(observed)
    test = np.sort(rng.choice(places, max(1, int(held_out * len(places))), replace=False))
    train = observed.copy().reshape(-1)
    train[test] = False
    truth, indices = values.reshape(-1)[test], np.stack(np.unravel_index(test, values.shape), axis=1)
    counts = None if weights is None else weights.reshape(-1)[test]

    def judge(W: BooleanCP) -> float:
        return error(W, truth, np.nan_to_num(W.at(indices)), counts)  # 0 where nothing is known

    return errors_until(fits(model, values, train.reshape(values.shape), weights, rng), judge, model.n_atoms)


def hold_out_slabs(
    model: BMP, values: np.ndarray, observed: np.ndarray, weights: Any, mode: int, held_out: float, rng: Generator
) -> np.ndarray:
    """Return the errors on half of the entries of held-out slabs, whose factors are solved from the other half."""
    d, usable = values.shape[mode], usable_slabs(observed, mode)
    test = np.sort(rng.choice(usable, min(max(1, int(held_out * d)), len(usable) - 1), replace=False))
    train = np.setdiff1d(np.arange(d), test)
    parts = (None, None) if weights is None else (weights.take(train, axis=mode), weights.take(test, axis=mode))
    slabs, known = values.take(test, axis=mode), observed.take(test, axis=mode)
    given = random_half(known, mode, rng)
    judged = known & ~given
    counts = None if parts[1] is None else parts[1][judged]

    def judge(W: BooleanCP) -> float:
        fitted = clone(model)
        fitted.decomposition_ = W
        factor = fitted.transform(np.where(given, slabs, np.nan), mode=mode, weights=parts[1])
        predicted = np.nan_to_num(fitted.inverse_transform(factor, mode=mode))
        return error(W, slabs[judged], predicted[judged], counts)

    found = fits(model, values.take(train, axis=mode), observed.take(train, axis=mode), parts[0], rng)
    return errors_until(found, judge, model.n_atoms)


def usable_slabs(observed: np.ndarray, mode: int) -> np.ndarray:
    """Return the slabs that can be held out: they need one entry for the factor and another to judge it."""
    others = tuple(n for n in range(observed.ndim) if n != mode)
    return np.flatnonzero(observed.sum(axis=others) >= 2)


def random_half(known: np.ndarray, mode: int, rng: Generator) -> np.ndarray:
    """Return True for a random half of the known entries; each slab gives one or more and keeps one or more."""
    given = known & (rng.random(known.shape) < 0.5)
    for part, whole in zip(np.moveaxis(given, mode, 0), np.moveaxis(known, mode, 0), strict=True):
        if part.any() and (part != whole).any():
            continue
        place = rng.choice(np.flatnonzero(whole))
        part.flat[place] = not part.any()
    return given


def fits(
    model: BMP, values: np.ndarray, observed: np.ndarray, weights: np.ndarray | None, rng: Generator
) -> Iterator[BooleanCP]:
    """Yield the decompositions that `fit` makes with 0, 1, .. atoms; one that leaves the added atom out is the last."""
    mask, seed = None if observed.all() else observed, int(rng.integers(2**32))
    W = clone(model).set_params(n_atoms=1, random_state=seed).fit_path(values, mask=mask, weights=weights)[0]
    yield W
    for k in range(1, model.n_atoms + 1):
        before, W = W, fit_again(clone(model).set_params(n_atoms=k), values, mask, seed, weights)
        yield W
        if W.n_atoms < k and have_same_bits(before, W):
            return


def errors_until(found: Iterator[BooleanCP], judge: Callable[[BooleanCP], float], max_atoms: int) -> np.ndarray:
    """Return the errors of decompositions with 0, 1, .. atoms, the last one repeated once they have ceased to fall."""
    errors: list[float] = []
    for W in found:
        errors.append(judge(W))
        if len(errors) > PATIENCE + int(np.argmin(errors)):
            break
    return np.array(errors + [errors[-1]] * (max_atoms + 1 - len(errors)))


def error(W: BooleanCP, truth: np.ndarray, predicted: np.ndarray, weights: np.ndarray | None) -> float:
    """Return the root mean square error, or the mean deviance under a loss that is not the sum of squares."""
    if W.deviance is None:
        return float(np.sqrt(np.average(np.square(truth - predicted, dtype=float), weights=weights)))
    loss = Loss(W.deviance.loss, W.deviance.scale)
    mean = np.full(len(truth), loss.null(truth, weights)) if W.n_atoms == 0 else predicted.astype(float)
    return float(np.average(loss.deviance(truth.astype(float), mean), weights=weights))
