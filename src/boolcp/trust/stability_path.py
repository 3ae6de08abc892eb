"""Loss and similarity over seeds against the number of atoms, which show where fits stop agreeing."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from boolcp import checks
from boolcp.bmp import BMP
from boolcp.result.atoms import BooleanCP
from boolcp.trust.matching import match
from boolcp.trust.repeated_fits import make_model, read_data, run_all


@dataclass(frozen=True, eq=False)
class StabilityPath:
    """Relative errors of fits with several seeds, and how similar they are, for each number of atoms.

    Attributes
    ----------
    n_atoms : ndarray of shape (M,)
        The numbers of atoms.
    errors : ndarray of shape (M, n_runs)
        Relative error |X - W| / |X| of each fit, from the smallest.
    similarity : ndarray of shape (M, n_runs)
        Mean similarity of the atoms of each fit to those of the best one, from 0 to 1; 1 for the best itself.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((12, 13, 14), 2, noise=0.5, random_state=0)
    >>> path = boolcp.stability_path(X, 3, n_runs=2, random_state=0)
    >>> path.errors.shape, path.similarity[1].round(2).tolist()
    ((3, 2), [1.0, 1.0])
    """

    n_atoms: np.ndarray
    errors: np.ndarray
    similarity: np.ndarray

    def plot(self, axes: Any = None) -> Any:
        """Draw errors and similarities against the number of atoms, one below the other, and return the two Axes.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((12, 13, 14), 2, noise=0.5, random_state=0)
        >>> above, below = boolcp.stability_path(X, 3, n_runs=2, random_state=0).plot()
        >>> above.get_ylabel(), below.get_xlabel()
        ('relative error', 'number of atoms')
        """
        from boolcp.plotting import plot_stability_path

        return plot_stability_path(self, axes)

    def __repr__(self) -> str:
        runs = self.errors.shape[1]
        return f"StabilityPath({self.n_atoms[0]} to {self.n_atoms[-1]} atoms, {runs} seeds each)"


def stability_path(
    X: Any,
    max_atoms: int = 10,
    *,
    n_runs: int = 4,
    mask: Any = None,
    n_jobs: int = 1,
    random_state: Any = None,
    verbose: int = 0,
    **options: Any,
) -> StabilityPath:
    """Return errors and similarities of fits with several seeds for 1, 2, .., max_atoms atoms, as a StabilityPath.

    With too many atoms the fits of different seeds have nearly the same error and different atoms.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The tensor.
    max_atoms : int
        Largest number of atoms.
    n_runs : int
        Number of seeds, at least 2.
    mask, n_jobs, random_state, verbose, **options
        As in `select_n_atoms`.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((12, 13, 14), 2, noise=0.5, random_state=0)
    >>> boolcp.stability_path(X, 3, n_runs=2, random_state=0)
    StabilityPath(1 to 3 atoms, 2 seeds each)
    """
    checks.check_integer(max_atoms, "max_atoms", 1)
    checks.check_integer(n_runs, "n_runs", 2)
    values, observed, _, dims = read_data(X, mask)
    seeds = checks.make_generator(random_state).spawn(max_atoms * n_runs)
    tasks = []
    for k in range(1, max_atoms + 1):
        model = make_model(k, options, values.shape, dims)
        tasks += [(model, values, observed, seeds.pop()) for _ in range(n_runs)]
    fits = run_all(fit_once, tasks, n_jobs, verbose, "fits")
    errors, similarity = np.empty((2, max_atoms, n_runs))
    for k in range(max_atoms):
        group = sorted(fits[k * n_runs : (k + 1) * n_runs], key=relative_error)
        errors[k] = [relative_error(W) for W in group]
        similarity[k] = [1.0] + [mean_similarity(group[0], W) for W in group[1:]]
    return StabilityPath(np.arange(1, max_atoms + 1), errors, similarity)


def fit_once(model: BMP, values: np.ndarray, observed: np.ndarray | None, rng: np.random.Generator) -> BooleanCP:
    """Return the decomposition of X that one seed gives."""
    return clone(model).set_params(random_state=rng).fit(values, mask=observed).decomposition_


def relative_error(W: BooleanCP) -> float:
    """Return |X - W| / |X| over the observed entries."""
    return float(np.sqrt(max(1 - W.explained(), 0.0)))


def mean_similarity(first: BooleanCP, second: BooleanCP) -> float:
    """Return the mean similarity of the best pairs of atoms of two decompositions; 0 for an atom without partner."""
    n = max(first.n_atoms, second.n_atoms)
    return sum(alike for _, alike in match(first, second)) / n if n else 1.0
