"""Stability of an atom: the share of other fits in which it comes back. The scheme names the fits.

They are fits to halves of the data, to bootstrap samples, or to the same data with other seeds. `stability_path` shows
loss and similarity over seeds against the number of atoms: where fits stop agreeing, there are too many.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from boolcp import checks
from boolcp.bmp import BMP
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.trust.degeneracy import match, take_slices
from boolcp.trust.repeated_fits import (
    check_reference,
    fit_again,
    make_model,
    read_data,
    read_lazy,
    read_weights,
    run_all,
)

STABILITY_SCHEMES = ("halves", "bootstrap", "seeds")


@dataclass(frozen=True, eq=False)
class Stability:
    """How often each atom of a decomposition comes back in other fits, and how often each of its bits.

    Attributes
    ----------
    decomposition : BooleanCP
        The reference fit on all data.
    similarity : ndarray of shape (n_fits, K)
        Similarity of each atom to its match in each other fit, from 0 to 1.
    recurrence : ndarray of shape (K,)
        The stability: the share of the fits in which the atom comes back, with the same Boolean mode and a
        similarity of at least `threshold`.
    bit_probability : tuple of ndarray, (d_n,) each
        For each atom the share of fits, among those in which it came back, that have each entry of z on; NaN where
        no such fit saw the entry.
    scheme : str
        Which other fits: "halves", "bootstrap" or "seeds".
    mode : str
        The name of the mode along which slices were drawn; "" for seeds.
    threshold : float
        The similarity from which an atom counts as found again.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    >>> result = boolcp.stability(X, 2, n_runs=2, random_state=0)
    >>> result
    Stability(4 fits to halves along mode 2; atoms come back in 100 %, 100 %)
    >>> [len(p) for p in result.bit_probability]
    [20, 25]
    """

    decomposition: BooleanCP
    similarity: np.ndarray
    recurrence: np.ndarray
    bit_probability: tuple[np.ndarray, ...]
    scheme: str
    mode: str
    threshold: float

    @property
    def over(self) -> str:
        """Return which fits, in words."""
        n = len(self.similarity)
        fits = f"{n} fit{'s' if n != 1 else ''}"
        if self.scheme == "seeds":
            return f"{fits} with other seeds"
        return f"{fits} to {'halves' if self.scheme == 'halves' else 'bootstrap samples'} along {self.mode}"

    def summary(self) -> str:
        """Return a table as text: how often each atom came back, how similar, and how many of its bits are sure.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
        >>> result = boolcp.stability(X, 2, n_runs=2, random_state=0)
        >>> print(result.summary())
        stability over 4 fits to halves along mode 2
        atom  mode  came back  similarity  stable bits
           0     0      100 %       1.000      100.0 %
           1     1      100 %       0.999      100.0 %
        """
        rows = ["atom  mode  came back  similarity  stable bits"]
        for k, atom in enumerate(self.decomposition.atoms):
            p = self.bit_probability[k]
            same = np.mean((p <= 0.05) | (p >= 0.95)) if np.isfinite(p).any() else np.nan
            name = self.decomposition.mode_name(atom.mode)
            came_back, alike = f"{100 * self.recurrence[k]:7.0f} %", f"{self.similarity[:, k].mean():10.3f}"
            stable = "          -" if np.isnan(same) else f"{100 * same:9.1f} %"
            rows.append(f"{k:4d}  {name:>4}  {came_back}  {alike}  {stable}")
        return "\n".join([f"stability over {self.over}", *rows])

    def plot(self, atom: int = 0, ax: Any = None) -> Any:
        """Draw the probability of each bit of one atom and return the Axes.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
        >>> result = boolcp.stability(X, 2, n_runs=2, random_state=0)
        >>> ax = result.plot(atom=0)
        >>> ax.get_ylabel()
        'probability of on'
        """
        from boolcp.plotting import plot_bit_probability

        return plot_bit_probability(self, atom, ax=ax)

    def __repr__(self) -> str:
        shares = ", ".join(f"{100 * share:.0f} %" for share in self.recurrence)
        return f"Stability({self.over}; atoms come back in {shares})"

    def _repr_html_(self) -> str:
        from boolcp.plotting import plot_stability, with_picture

        return with_picture(self.summary(), lambda ax: plot_stability(self, ax), repr(self))


def stability(
    X: Any,
    n_atoms: int = 10,
    *,
    n_runs: int = 5,
    scheme: str = "halves",
    mode: int | str = -1,
    threshold: float = 0.8,
    mask: Any = None,
    weights: Any = None,
    n_jobs: int = 1,
    random_state: Any = None,
    verbose: int = 0,
    reference: BooleanCP | None = None,
    **options: Any,
) -> Stability:
    """Return how often each atom comes back in other fits, and how often each of its bits, as a Stability.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The tensor. One that is not in memory stays there.
    n_atoms : int
        Number of atoms. Not used with a `reference`.
    n_runs : int
        Number of other fits; for halves, the number of random halvings with two fits each.
    scheme : {"halves", "bootstrap", "seeds"}
        Fits to random halves of the slices along `mode`, to slices drawn with replacement, or to the same data with
        other seeds. Halves and bootstrap samples ask whether the data hold the atom, seeds only whether the search
        finds it again.
    mode : int or str
        The mode along which slices are drawn (trials, say); the last by default.
    threshold : float
        Similarity from which an atom counts as found again. The similarity of two atoms that are Boolean along
        the same mode is the overlap of their bits (Jaccard) times the |cosine| of their real parts.
    reference : BooleanCP, optional
        The decomposition of X whose atoms are sought in the other fits; by default a new fit.
    mask, weights, n_jobs, random_state, verbose, **options
        As in `select_n_atoms`.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    >>> boolcp.stability(X, 2, n_runs=3, random_state=0).recurrence.tolist()
    [1.0, 1.0]
    """
    checks.check_integer(n_runs, "n_runs", 1)
    checks.check_choice(scheme, "scheme", STABILITY_SCHEMES)
    checks.check_number(threshold, "threshold", positive=True)
    values, observed, labels, dims = read_lazy(X, mask, options, is_loaded=weights is not None) or read_data(X, mask)
    at = checks.check_mode(mode, values.ndim, dims)
    check_reference(reference, values.shape)
    model = make_model(n_atoms if reference is None else reference.n_atoms, options, values.shape, dims, reference)
    counts = read_weights(model, X, mask, weights, dims)
    rng, *seeds = checks.make_generator(random_state).spawn(1 + n_runs)
    if reference is None:
        reference = fit_again(model, values, observed, rng, counts)
    draws = [places for seed in seeds for places in draw_slices(values.shape[at], scheme, seed)]
    rngs = [child for seed in seeds for child in seed.spawn(len(draws) // n_runs)]
    tasks = [(model, values, observed, counts, at, places, child) for places, child in zip(draws, rngs, strict=True)]
    fits = run_all(fit_slices, tasks, n_jobs, verbose, "fits")
    matches = [match_slices(reference, W, at, places, threshold) for W, places in zip(fits, draws, strict=True)]
    similarity = np.array([[s for s, _ in found] for found in matches]).reshape(len(fits), reference.n_atoms)
    came_back = np.array([[z is not None for _, z in found] for found in matches]).reshape(similarity.shape)
    bits = tuple(
        bit_probability(atom, at, [(found[k][1], places) for found, places in zip(matches, draws, strict=True)])
        for k, atom in enumerate(reference.atoms)
    )
    name = "" if scheme == "seeds" else f"mode {at}" if dims is None or dims[at] == f"mode{at}" else str(dims[at])
    reference = replace(reference, labels=labels)
    return Stability(reference, similarity, came_back.mean(axis=0), bits, scheme, name, threshold)


def draw_slices(d: int, scheme: str, rng: Generator) -> list[np.ndarray]:
    """Return the slices (indices along the mode) of each fit of one run."""
    if scheme == "seeds":
        return [np.arange(d)]
    if scheme == "bootstrap":
        return [np.sort(rng.integers(d, size=d))]
    order = rng.permutation(d)
    return [np.sort(order[: d // 2]), np.sort(order[d // 2 :])]


def fit_slices(
    model: BMP, values: Any, observed: Any, weights: Any, mode: int, places: np.ndarray, rng: Generator
) -> BooleanCP:
    """Return the decomposition of the chosen slices along one mode."""
    given = (values, observed, weights)  # of numpy or dask
    values, mask, counts = (None if A is None else np.take(A, places, axis=mode) for A in given)
    return fit_again(model, values, mask, rng, counts)


def match_slices(
    reference: BooleanCP, W: BooleanCP, mode: int, places: np.ndarray, threshold: float
) -> list[tuple[float, np.ndarray | None]]:
    """Return for each reference atom its similarity in W and, if it came back, the bits it has there (else None)."""
    atoms = tuple(take_slices(atom, mode, places) for atom in reference.atoms)
    part = BooleanCP(W.shape, atoms, reference.weights)
    found: list[tuple[float, np.ndarray | None]] = []
    for atom, (partner, similarity) in zip(atoms, match(part, W), strict=True):
        other = None if partner is None else W.atoms[partner]
        came_back = other is not None and similarity >= threshold and other.mode == atom.mode
        found.append((similarity, other.z if came_back and other is not None else None))
    return found


def bit_probability(atom: Atom, mode: int, bits: list[tuple[np.ndarray | None, np.ndarray]]) -> np.ndarray:
    """Return the share of fits with each bit on, (d_n,), from pairs (bits in the fit or None, its slices)."""
    on, seen = np.zeros(len(atom.z)), np.zeros(len(atom.z))
    for z, places in bits:
        if z is None:
            continue
        where = places if atom.mode == mode else np.arange(len(atom.z))
        np.add.at(on, where, z)
        np.add.at(seen, where, 1)
    return np.where(seen > 0, on / np.maximum(seen, 1), np.nan)


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
    values, observed, _, dims = read_lazy(X, mask, options) or read_data(X, mask)
    seeds = checks.make_generator(random_state).spawn(max_atoms * n_runs)
    tasks = []
    for k in range(1, max_atoms + 1):
        model = make_model(k, options, values.shape, dims)
        tasks += [(model, values, observed, seeds.pop()) for _ in range(n_runs)]
    fits = run_all(fit_again, tasks, n_jobs, verbose, "fits")
    errors, similarity = np.empty((2, max_atoms, n_runs))
    for k in range(max_atoms):
        group = sorted(fits[k * n_runs : (k + 1) * n_runs], key=relative_error)
        errors[k] = [relative_error(W) for W in group]
        similarity[k] = [1.0] + [mean_similarity(group[0], W) for W in group[1:]]
    return StabilityPath(np.arange(1, max_atoms + 1), errors, similarity)


def relative_error(W: BooleanCP) -> float:
    """Return |X - W| / |X| over the observed entries."""
    return float(np.sqrt(max(1 - W.explained(), 0.0)))


def mean_similarity(first: BooleanCP, second: BooleanCP) -> float:
    """Return the mean similarity of the best pairs of atoms of two decompositions; 0 for an atom without partner."""
    n = max(first.n_atoms, second.n_atoms)
    return sum(alike for _, alike in match(first, second)) / n if n else 1.0
