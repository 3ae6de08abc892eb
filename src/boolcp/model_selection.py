"""How many atoms, and can they be trusted: held-out entries, held-out slabs, stability across runs."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from boolcp import checks
from boolcp.atoms import Atom, BooleanCP
from boolcp.bmp import BMP
from boolcp.labels import read_labels

SELECTION_SCHEMES = ("entries", "slabs")
STABILITY_SCHEMES = ("seeds", "bootstrap", "split-half")


@dataclass(frozen=True, eq=False)
class Selection:
    """Held-out error for each number of atoms, and the number chosen.

    Attributes
    ----------
    n_atoms : int
        The choice.
    errors : ndarray of shape (n_splits, max_atoms + 1)
        Root mean square error on the held-out entries of each split, for 0, 1, .., max_atoms atoms.
    scheme, rule : str
        How entries were held out, and how the choice was made.

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

    @property
    def mean(self):
        """Return the mean error for each number of atoms."""
        return self.errors.mean(axis=0)

    @property
    def standard_error(self):
        """Return the standard error of the mean for each number of atoms."""
        return self.errors.std(axis=0, ddof=1) / np.sqrt(len(self.errors)) if len(self.errors) > 1 else 0 * self.mean

    def summary(self):
        """Return the table as text: number of atoms, mean held-out error, standard error.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
        >>> selection = boolcp.select_n_atoms(X, 3, splits=2, random_state=0)
        >>> print(selection.summary())
        held-out error (entries, 2 splits)
        atoms          rmse        s.e.
            0      0.874882      0.0087
            1      0.681576       0.025
            2      0.493994      0.0019  <- chosen
            3      0.501986      0.0021
        """
        rows = [
            f"{k:5d}  {mean:12.6g}  {error:10.2g}{'  <- chosen' if k == self.n_atoms else ''}"
            for k, (mean, error) in enumerate(zip(self.mean, self.standard_error, strict=True))
        ]
        title = f"held-out error ({self.scheme}, {len(self.errors)} splits)"
        return "\n".join([title, "atoms          rmse        s.e.", *rows])

    def plot(self, ax=None):
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

    def __repr__(self):
        most = len(self.mean) - 1
        return f"Selection(n_atoms={self.n_atoms} of at most {most}, {self.scheme}, {len(self.errors)} splits)"


def select_n_atoms(
    X,
    max_atoms=10,
    *,
    splits=5,
    scheme="entries",
    mode=-1,
    held_out=0.1,
    rule="one-se",
    mask=None,
    n_jobs=1,
    random_state=None,
    verbose=0,
    **options,
):
    """Return the number of atoms with the lowest error on held-out data, as a Selection.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The tensor.
    max_atoms : int
        Largest number of atoms tried. Each split is fitted once for the whole path 1 .. max_atoms.
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
    n_jobs : int
        Number of processes. The result does not depend on it.
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
    checks.check_choice(scheme, "scheme", SELECTION_SCHEMES)
    checks.check_choice(rule, "rule", ("one-se", "min"))
    checks.check_number(held_out, "held_out", positive=True)
    if held_out >= 1:
        raise ValueError(f"held_out is the share held out: it must be below 1, got {held_out}.")
    values, labels = read_labels(X)
    values, observed = checks.check_tensor(values, mask)
    observed = np.ones(values.shape, dtype=bool) if observed is None else observed
    dims = None if labels is None else labels.dims
    mode = checks.check_modes(mode, values.ndim, dims)[0]
    model = make_model(max_atoms, options, values.ndim, dims)
    split = hold_out_entries if scheme == "entries" else hold_out_slabs
    seeds = checks.make_generator(random_state).spawn(splits)
    tasks = [(model, values, observed, mode, held_out, rng) for rng in seeds]
    errors = np.array(run_all(split, tasks, n_jobs, verbose, "splits"))
    return Selection(choose(errors, rule), errors, scheme, rule)


def make_model(n_atoms, options, ndim, dims):
    """Return the BMP to fit, its Boolean modes as indices: the parts of X that it sees have no names."""
    modes = options.get("boolean_modes")
    modes = None if modes is None else checks.check_modes(modes, ndim, dims)
    return BMP(n_atoms, **({"certify": False} | options | {"boolean_modes": modes}))


def choose(errors, rule):
    """Return the number of atoms: of the lowest mean error, or the smallest within one standard error of it."""
    mean = errors.mean(axis=0)
    best = int(np.argmin(mean))
    if rule == "min" or len(errors) == 1:
        return best
    limit = mean[best] + errors[:, best].std(ddof=1) / np.sqrt(len(errors))
    return int(np.flatnonzero(mean <= limit)[0])


def hold_out_entries(model, values, observed, mode, held_out, rng):
    """Return the errors on a random share of the observed entries, fitted on the others."""
    places = np.flatnonzero(observed)
    test = np.sort(rng.choice(places, max(1, int(held_out * len(places))), replace=False))
    train = observed.copy().reshape(-1)
    train[test] = False
    path = fit_path(model, values, train.reshape(values.shape), rng)
    truth, indices = values.reshape(-1)[test], np.stack(np.unravel_index(test, values.shape), axis=1)
    return pad([rms(truth - W.at(indices)) for W in path], model.n_atoms)


def hold_out_slabs(model, values, observed, mode, held_out, rng):
    """Return the errors on half of the entries of held-out slabs, whose factors are solved from the other half."""
    d = values.shape[mode]
    test = np.sort(rng.choice(d, min(max(1, int(held_out * d)), d - 1), replace=False))
    train = np.setdiff1d(np.arange(d), test)
    path = fit_path(model, values.take(train, axis=mode), observed.take(train, axis=mode), rng)
    slabs, known = values.take(test, axis=mode), observed.take(test, axis=mode)
    given = known & (rng.random(known.shape) < 0.5)
    judged = known & ~given
    errors = []
    for W in path:
        fitted = clone(model)
        fitted.decomposition_ = W
        factor = fitted.transform(np.where(given, slabs, np.nan), mode=mode)
        errors.append(rms((slabs - fitted.inverse_transform(factor, mode=mode))[judged]))
    return pad(errors, model.n_atoms)


def fit_path(model, values, observed, rng):
    """Return the refined estimates with 0, 1, .. atoms of one fit."""
    fitted = clone(model).set_params(random_state=rng)
    mask = None if observed.all() else observed
    return fitted.fit_path(values, mask=mask)


def pad(errors, max_atoms):
    """Return the errors with the last one repeated for numbers of atoms that a path did not reach."""
    return np.array(errors + [errors[-1]] * (max_atoms + 1 - len(errors)))


def rms(differences):
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(differences, dtype=float))))


def run_all(function, tasks, n_jobs, verbose, what):
    """Return the results of function(*task) for all tasks, in order, on `n_jobs` processes, with a progress bar."""
    from joblib import Parallel, delayed
    from tqdm import tqdm

    calls = Parallel(n_jobs=n_jobs, return_as="generator")(delayed(function)(*task) for task in tasks)
    return list(tqdm(calls, total=len(tasks), desc=what, disable=None if verbose else True))


@dataclass(frozen=True, eq=False)
class Stability:
    """How often each atom of a decomposition comes back in other fits, and how sure each of its bits is.

    Attributes
    ----------
    decomposition : BooleanCP
        The reference fit on all data.
    similarity : ndarray of shape (n_fits, K)
        Similarity of each atom with the one matched to it in each other fit, from 0 to 1.
    recurrence : ndarray of shape (K,)
        Share of the fits in which the atom comes back: same Boolean mode and similarity of at least `threshold`.
    bit_probability : tuple of ndarray, (d_n,) each
        For each atom the share of fits, among those in which it came back, that have each entry of z on; NaN where
        no such fit has seen the entry.
    scheme : str
        What differed between the fits.
    threshold : float
        The similarity that counts as coming back.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    >>> result = boolcp.stability(X, 2, n_runs=2, random_state=0)
    >>> result
    Stability(seeds, 2 fits; atoms come back in 100 %, 100 %)
    >>> [len(p) for p in result.bit_probability]
    [20, 25]
    """

    decomposition: BooleanCP
    similarity: np.ndarray
    recurrence: np.ndarray
    bit_probability: tuple[np.ndarray, ...]
    scheme: str
    threshold: float

    def summary(self):
        """Return a table as text: how often each atom came back, how similar, and how many of its bits are sure.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
        >>> result = boolcp.stability(X, 2, n_runs=2, random_state=0)
        >>> print(result.summary())
        stability over 2 fits (seeds)
        atom  mode  came back  similarity  sure bits
           0     0      100 %       1.000    100.0 %
           1     1      100 %       1.000    100.0 %
        """
        rows = ["atom  mode  came back  similarity  sure bits"]
        for k, atom in enumerate(self.decomposition.atoms):
            p = self.bit_probability[k]
            sure = np.mean((p <= 0.05) | (p >= 0.95)) if np.isfinite(p).any() else np.nan
            name = self.decomposition.mode_name(atom.mode)
            came_back, alike = f"{100 * self.recurrence[k]:7.0f} %", f"{self.similarity[:, k].mean():10.3f}"
            sure_text = "        -" if np.isnan(sure) else f"{100 * sure:7.1f} %"
            rows.append(f"{k:4d}  {name:>4}  {came_back}  {alike}  {sure_text}")
        return "\n".join([f"stability over {len(self.similarity)} fits ({self.scheme})", *rows])

    def plot(self, atom=0, ax=None):
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

    def __repr__(self):
        shares = ", ".join(f"{100 * share:.0f} %" for share in self.recurrence)
        return f"Stability({self.scheme}, {len(self.similarity)} fits; atoms come back in {shares})"


def stability(
    X,
    n_atoms=10,
    *,
    n_runs=10,
    scheme="seeds",
    mode=-1,
    threshold=0.8,
    mask=None,
    n_jobs=1,
    random_state=None,
    verbose=0,
    reference=None,
    **options,
):
    """Return how often each atom comes back in repeated fits and how stable each of its bits is, as a Stability.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The tensor.
    n_atoms : int
        Number of atoms.
    n_runs : int
        Number of fits beside the reference (twice as many for "split-half": both halves are fitted).
    scheme : {"seeds", "bootstrap", "split-half"}
        What differs: the seed only, slices along `mode` drawn with replacement, or random halves of the slices.
    mode : int
        The mode along which slices are drawn (trials, say); the last by default.
    threshold : float
        Similarity from which an atom counts as having come back. The similarity of two atoms that are Boolean along
        the same mode is the overlap of their bits (Jaccard) times the |cosine| of their real parts.
    reference : BooleanCP, optional
        The decomposition of X whose atoms are looked for in the other fits; a fit of its own if None.
    mask, n_jobs, random_state, verbose, **options
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
    values, labels = read_labels(X)
    values, observed = checks.check_tensor(values, mask)
    dims = None if labels is None else labels.dims
    mode = checks.check_modes(mode, values.ndim, dims)[0]
    model = make_model(n_atoms, options, values.ndim, dims)
    rng, *seeds = checks.make_generator(random_state).spawn(1 + n_runs)
    if reference is None:
        reference = clone(model).set_params(random_state=rng).fit(values, mask=observed).decomposition_
    elif reference.shape != values.shape:
        raise ValueError(f"reference has shape {reference.shape}, but X has shape {values.shape}: pass a fit of X.")
    draws = [places for seed in seeds for places in draw_slices(values.shape[mode], scheme, seed)]
    rngs = [child for seed in seeds for child in seed.spawn(len(draws) // n_runs)]
    tasks = [(model, values, observed, mode, places, child) for places, child in zip(draws, rngs, strict=True)]
    fits = run_all(fit_slices, tasks, n_jobs, verbose, "fits")
    matches = [match_atoms(reference, W, mode, places, threshold) for W, places in zip(fits, draws, strict=True)]
    similarity = np.array([[s for s, _ in match] for match in matches]).reshape(len(fits), reference.n_atoms)
    came_back = np.array([[z is not None for _, z in match] for match in matches]).reshape(similarity.shape)
    bits = tuple(
        bit_probability(atom, mode, [(match[k][1], places) for match, places in zip(matches, draws, strict=True)])
        for k, atom in enumerate(reference.atoms)
    )
    reference = replace(reference, labels=labels)
    return Stability(reference, similarity, came_back.mean(axis=0), bits, scheme, threshold)


def draw_slices(d, scheme, rng):
    """Return the slices (indices along the mode) of each fit of one run."""
    if scheme == "seeds":
        return [np.arange(d)]
    if scheme == "bootstrap":
        return [np.sort(rng.integers(d, size=d))]
    order = rng.permutation(d)
    return [np.sort(order[: d // 2]), np.sort(order[d // 2 :])]


def fit_slices(model, values, observed, mode, places, rng):
    """Return the decomposition of the chosen slices along one mode."""
    mask = None if observed is None else observed.take(places, axis=mode)
    return clone(model).set_params(random_state=rng).fit(values.take(places, axis=mode), mask=mask).decomposition_


def match_atoms(reference, W, mode, places, threshold):
    """Return for each reference atom its similarity in W and, if it came back, the bits it has there (else None)."""
    atoms = [take_slices(atom, mode, places) for atom in reference.atoms]
    table = np.array([[similarity_of(atom, other) for other in W.atoms] for atom in atoms])
    table = table.reshape(len(atoms), W.n_atoms)
    rows, columns = linear_sum_assignment(-table)
    matched = [(0.0, None)] * len(atoms)
    for row, column in zip(rows, columns, strict=True):
        other, value = W.atoms[column], float(table[row, column])
        came_back = value >= threshold and other.mode == reference.atoms[row].mode
        matched[row] = (value, other.z if came_back else None)
    return matched


def take_slices(atom, mode, places):
    """Return the atom on some slices along one mode, its real part scaled to norm one again."""
    if atom.mode == mode:
        return replace(atom, z=atom.z[places])
    at = mode - (mode > atom.mode)
    block = np.take(atom.dense_block(), places, axis=at)
    return Atom(atom.mode, atom.z, block=block / max(np.linalg.norm(block), 1e-300))


def similarity_of(atom, other):
    """Return Jaccard(z, z') |<V, V'>| of atoms with the same Boolean mode, else |cos| of the two as tensors."""
    if atom.mode == other.mode:
        union = np.sum(atom.z | other.z)
        overlap = np.sum(atom.z & other.z) / union if union else 0.0
        return float(overlap * abs(np.vdot(atom.dense_block(), other.dense_block())))
    if not atom.z.any():
        return 0.0
    first, second = (BooleanCP(_shape(one), (one,), np.ones(1)) for one in (atom, other))
    return float(abs(first.inner_products((other,))[0, 0]) / (first.norm() * second.norm()))


def _shape(atom):
    sizes = list(atom.dense_block().shape)
    sizes.insert(atom.mode, len(atom.z))
    return tuple(sizes)


def bit_probability(atom, mode, bits):
    """Return the share of fits with each bit on, (d_n,), from pairs (bits in the fit or None, its slices)."""
    on, seen = np.zeros(len(atom.z)), np.zeros(len(atom.z))
    for z, places in bits:
        if z is None:
            continue
        where = places if atom.mode == mode else np.arange(len(atom.z))
        np.add.at(on, where, z)
        np.add.at(seen, where, 1)
    with np.errstate(invalid="ignore"):
        return np.where(seen > 0, on / np.maximum(seen, 1), np.nan)
