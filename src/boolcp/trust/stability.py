"""Can atoms be trusted: how often each comes back in other fits (seeds, bootstrap samples, halves), bit by bit."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from boolcp import checks
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import read_labels
from boolcp.trust.repeated_fits import make_model, run_all

STABILITY_SCHEMES = ("seeds", "bootstrap", "split-half")


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
    mode = checks.check_mode(mode, values.ndim, dims)
    model = make_model(n_atoms, options, values.shape, dims)
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
