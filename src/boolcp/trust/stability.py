"""Stability of an atom: the share of other fits in which it comes back. The scheme names the fits.

They are fits to halves of the data, to bootstrap samples, or to the same data with other seeds.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from boolcp import checks
from boolcp.plotting.mode_labels import mode_text
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.trust.degeneracy import match
from boolcp.trust.repeated_fits import Repeat, fit_model, prepare, run_all, take_slices
from boolcp.trust.tables import table_text


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
        fits = f"{len(self.similarity)} fit{'s' * (len(self.similarity) != 1)}"
        if self.scheme == "seeds":
            return f"{fits} with other seeds"
        return f"{fits} to {self.scheme.replace('bootstrap', 'bootstrap samples')} along {self.mode}"

    def summary(self) -> str:
        """Return a table as text: how often each atom came back, how similar, and how many of its bits are sure.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
        >>> print(boolcp.stability(X, 2, n_runs=2, random_state=0).summary())
        stability over 4 fits to halves along mode 2
        atom  mode  came back  similarity  stable bits
           0     0      100 %       1.000      100.0 %
           1     1      100 %       0.999      100.0 %
        """
        rows = [["atom", "mode", "came back", "similarity", "stable bits"]]
        for k, (atom, p) in enumerate(zip(self.decomposition.atoms, self.bit_probability, strict=True)):
            stable = f"{100 * np.mean((p <= 0.05) | (p >= 0.95)):.1f} %" if np.isfinite(p).any() else "-"
            name, came_back = self.decomposition.mode_name(atom.mode), f"{100 * self.recurrence[k]:.0f} %"
            rows.append([str(k), name, came_back, f"{self.similarity[:, k].mean():.3f}", stable])
        return table_text(f"stability over {self.over}", rows)

    def plot(self, atom: int = 0, ax: Any = None) -> Any:
        """Draw the probability of each bit of one atom and return the Axes.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
        >>> boolcp.stability(X, 2, n_runs=2, random_state=0).plot(atom=0).get_ylabel()
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
        The tensor, in memory.
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
        The decomposition of X whose atoms are sought in the other fits, which have its parameters; by default a new
        fit.
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
    checks.check_choice(scheme, "scheme", ("halves", "bootstrap", "seeds"))
    checks.check_number(threshold, "threshold", positive=True)
    data = prepare(stability, X, n_atoms, options, mask=mask, weights=weights, W=reference)
    at = checks.check_mode(mode, data.values.ndim, data.dims)
    if scheme != "seeds" and data.values.shape[at] < 2:
        advice = 'draw slices along a different mode (mode=), or set scheme="seeds"'
        raise ValueError(f"Mode {mode!r} has a single slice, of which there are no {scheme}: {advice}.")
    rng, *seeds = checks.make_generator(random_state).spawn(1 + n_runs)
    W = fit_model(data, rng).decomposition_ if reference is None else reference
    draws = [np.sort(places) for seed in seeds for places in draw_slices(data.values.shape[at], scheme, seed)]
    rngs = [child for seed in seeds for child in seed.spawn(len(draws) // n_runs)]
    tasks = [(data, at, places, child) for places, child in zip(draws, rngs, strict=True)]
    fits = run_all(fit_slices, tasks, n_jobs, verbose)
    similarity, came_back = np.zeros((2, len(fits), W.n_atoms))
    on, seen = ([np.zeros(len(atom.z)) for atom in W.atoms] for _ in range(2))
    for n, (V, places) in enumerate(zip(fits, draws, strict=True)):
        atoms = tuple(part_of(atom, at, places) for atom in W.atoms)
        for k, (partner, alike) in enumerate(match(BooleanCP(V.shape, atoms, W.weights), V)):
            similarity[n, k] = alike
            if partner is not None and alike >= threshold and V.atoms[partner].mode == W.atoms[k].mode:
                came_back[n, k] = 1
                where = places if W.atoms[k].mode == at else np.arange(len(on[k]))
                np.add.at(on[k], where, V.atoms[partner].z)
                np.add.at(seen[k], where, 1)
    bits = tuple(np.where(m > 0, n / np.maximum(m, 1), np.nan) for n, m in zip(on, seen, strict=True))
    W = replace(W, labels=data.labels or W.labels)
    name = "" if scheme == "seeds" else mode_text(W, at)
    return Stability(W, similarity, came_back.mean(axis=0), bits, scheme, name, threshold)


def fit_slices(data: Repeat, mode: int, places: np.ndarray, seed: Generator) -> BooleanCP:
    """Return the decomposition of some slices along one mode."""
    W: BooleanCP = fit_model(take_slices(data, mode, places), seed).decomposition_
    return W


def draw_slices(d: int, scheme: str, rng: Generator) -> list[np.ndarray]:
    """Return the slices (indices along the mode) of each fit of one run."""
    if scheme == "seeds":
        return [np.arange(d)]
    if scheme == "bootstrap":
        return [rng.integers(d, size=d)]
    order = rng.permutation(d)
    return [order[: d // 2], order[d // 2 :]]


def part_of(atom: Atom, mode: int, places: np.ndarray) -> Atom:
    """Return the atom on some slices along one mode, its real part scaled to norm one again."""
    if atom.mode == mode:
        return replace(atom, z=atom.z[places])
    block = np.take(atom.dense_block(), places, axis=mode - (mode > atom.mode))
    return Atom(atom.mode, atom.z, block=block / max(float(np.linalg.norm(block)), 1e-300))
