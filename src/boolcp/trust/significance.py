"""Is an atom more than noise? Data thinning: atoms come from one part of the data, the test from an independent one.

Adding and subtracting the same noise splits X into two independent parts with the same signal (Neufeld et al., "Data
thinning for convolution-closed distributions", J. Mach. Learn. Res. 25, 2024). The atoms of a fit to the first are
fixed directions for the second, where their least-squares weights have a known distribution. The real parts of the
others have errors, which an atom of noise would correct: each is fitted beside all that the others could take up of it.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.stats
from numpy.random import Generator

from boolcp import checks
from boolcp.fit.certify import noise_left
from boolcp.plotting.mode_labels import mode_text
from boolcp.result.atoms import Atom, BooleanCP, inner_with_atoms
from boolcp.result.trust import p_text
from boolcp.storage import make_storage
from boolcp.trust.degeneracy import match
from boolcp.trust.repeated_fits import Repeat, fit_model, prepare, without_mean
from boolcp.trust.tables import table_text

NOISES = ("normal", "poisson")
SHARE = 0.8  # of the data in the first part: a larger one finds weaker atoms, a smaller one tests them with more power
EXPLAINED = 1e-8  # share of an atom beside the others that is rounding
UNEQUAL, BY_CHANCE = 0.05, 3.0  # spread of log noise levels that counts, and the same over the spread by chance
LEAST, MOST = 8, 100  # rows that a slice needs, and rows and columns of it that are looked at
ALIKE = 0.5  # similarity from which an atom of the part is the same as one of the whole; not tuned


@dataclass(frozen=True, eq=False)
class Significance:
    """For each atom of a decomposition, a test whether it is more than noise.

    Attributes
    ----------
    decomposition : BooleanCP
        The decomposition of all data.
    p_value : ndarray of shape (K,)
        Probability of a weight at least as large in the second part of the data if the atom were noise; 1 for atoms
        that the fit to the first part did not find.
    p_adjusted : ndarray of shape (K,)
        The same with the false discovery rate controlled over the atoms (Benjamini and Hochberg).
    score : ndarray of shape (K,)
        Weight in the second part over its standard error; NaN for atoms that were not found.
    part_p_value : ndarray of shape (K,)
        The p-values of all atoms of the fit to the first part, uniform if all of them are noise.
    noise : str
        The distribution that was assumed, "normal" or "poisson".
    sigma : float
        Standard deviation of the noise, given or estimated; NaN for counts.
    unequal : tuple of int
        Modes along which the noise was found to differ between slices, and was split and tested accordingly.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=1, random_state=0)
    >>> boolcp.significance(X, 3, random_state=0)
    Significance(2 of 3 atoms are more than noise, normal)
    """

    decomposition: BooleanCP
    p_value: np.ndarray
    p_adjusted: np.ndarray
    score: np.ndarray
    part_p_value: np.ndarray
    noise: str
    sigma: float
    unequal: tuple[int, ...] = ()

    def is_significant(self, alpha: float = 0.05) -> np.ndarray:
        """Return which atoms are more than noise at a false discovery rate of `alpha`, (K,).

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=1, random_state=0)
        >>> boolcp.significance(X, 3, random_state=0).is_significant().tolist()
        [True, True, False]
        """
        return self.p_adjusted <= alpha

    @property
    def unequal_words(self) -> str:
        """Return along which modes the noise was unequal, in words, or nothing."""
        names = [mode_text(self.decomposition, mode) for mode in self.unequal]
        return f", unequal along {' and '.join(names)}" if names else ""

    def summary(self) -> str:
        """Return a table as text: score and p-value of each atom.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=1, random_state=0)
        >>> print(boolcp.significance(X, 3, random_state=0).summary())
        is each atom more than noise? (data thinning, normal noise, sigma 1)
        atom  mode  score        p  p adjusted
           0     0   29.7  <0.0001     <0.0001
           1     1   27.5  <0.0001     <0.0001
           2     2      -        1           1
        """
        level = "" if np.isnan(self.sigma) else f", sigma {self.sigma:.3g}{self.unequal_words}"
        rows = [["atom", "mode", "score", "p", "p adjusted"]]
        for k, atom in enumerate(self.decomposition.atoms):
            score = "-" if np.isnan(self.score[k]) else f"{self.score[k]:.1f}"
            name = self.decomposition.mode_name(atom.mode)
            rows.append([str(k), name, score, p_text(self.p_value[k]), p_text(self.p_adjusted[k])])
        return table_text(f"is each atom more than noise? (data thinning, {self.noise} noise{level})", rows)

    def __repr__(self) -> str:
        n, total = int(self.is_significant().sum()), self.decomposition.n_atoms
        return f"Significance({n} of {total} atoms are more than noise, {self.noise})"


def significance(
    X: Any,
    n_atoms: int = 10,
    *,
    reference: BooleanCP | None = None,
    noise: str = "normal",
    sigma: float | None = None,
    mask: Any = None,
    weights: Any = None,
    random_state: Any = None,
    **options: Any,
) -> Significance:
    """Return for each atom whether it is more than noise, by data thinning, as a Significance.

    X is split into two independent parts. Bits and pattern of every atom come from a fit to the first, the test from
    the second: is its weight there, next to the other atoms with free real parts, larger than zero?
    Noise is assumed to be independent between entries: what neighbors have in common counts as signal. Where its level
    differs clearly between slices of a complete tensor, it is estimated for each (`unequal`); else it is assumed to be
    equal, or as `weights` say.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The tensor, in memory.
    n_atoms : int
        Number of atoms. Not used with a `reference`.
    reference : BooleanCP, optional
        The decomposition of X whose atoms are tested; by default a new fit.
    noise : {"normal", "poisson"}
        Normal noise, or counts. The atoms of counts are tested against a constant rate.
    sigma : float, optional
        Standard deviation of normal noise of equal variance; by default estimated from the residual of the reference.
    mask, weights, random_state, **options
        As in `select_n_atoms`. The variance of normal noise is sigma^2 over the weight of an entry; parameters of BMP
        are by default those of the fit of the reference.

    Examples
    --------
    >>> import numpy as np, boolcp
    >>> X = np.random.default_rng(0).standard_normal((12, 13, 14))
    >>> boolcp.significance(X, 2, random_state=0)
    Significance(0 of 2 atoms are more than noise, normal)
    """
    checks.check_choice(noise, "noise", NOISES)
    data = prepare(significance, X, n_atoms, options, mask=mask, weights=weights, W=reference)
    check_thinned(data, noise)
    rng, *rngs = checks.make_generator(random_state).spawn(3)
    values, observed, counts = data.values, data.observed, data.weights
    W = fit_model(data, rngs[0]).decomposition_ if reference is None else reference
    ratios: dict[int, np.ndarray] = {}
    variance: float | np.ndarray | None = None
    if noise == "poisson":
        sigma, (first, second) = np.nan, thin_counts(values, SHARE, rng)
    else:
        if sigma is None:
            centered, atoms = without_mean(values, W)
            sigma = noise_left(make_storage(centered, observed, counts), atoms)
            ratios = noise_ratios(centered - atoms.to_array()) if observed is None and counts is None else {}
        level: Any = sigma
        for mode, ratio in ratios.items():
            level = level * ratio.reshape(-1, *(1,) * (values.ndim - 1 - mode))
        variance = (1 - SHARE) * (np.broadcast_to(level, values.shape) if ratios else sigma) ** 2
        level = level if counts is None else level / np.sqrt(np.where(counts > 0, counts, np.inf))
        first, second = thin_normal(values, level, SHARE, rng)
    part = fit_model(data._replace(values=first), rngs[1]).decomposition_
    second = second if part.mean is None else second - (1 - SHARE) / SHARE * part.mean
    counts = observed if counts is None else counts if observed is None else counts * observed
    scores = weight_scores(second, counts, part, variance)
    part_p = scipy.stats.norm.sf(scores)  # false discoveries are controlled over all of the part: no match adds one
    adjusted = scipy.stats.false_discovery_control(part_p) if len(part_p) else part_p
    p, p_adjusted, score = found = np.tile([[1.0], [1.0], [np.nan]], W.n_atoms)
    for k, (partner, similarity) in enumerate(match(W, part)):
        if partner is not None and similarity >= ALIKE:
            found[:, k] = part_p[partner], adjusted[partner], scores[partner]
    W = replace(W, labels=data.labels or W.labels)
    return Significance(W, p, p_adjusted, score, part_p, noise, float(sigma), tuple(ratios))


def check_thinned(data: Repeat, noise: str) -> None:
    """Raise if data that are fitted with this loss cannot be split into independent parts with the given noise."""
    loss = data.model.loss
    due = {"squared": NOISES, "poisson": ("poisson",)}.get(loss, ())
    if noise not in due:
        advice = f'use noise="{due[0]}"' if due else 'leave it out: boolcp.assess(X, W, tests=["stability"], ..)'
        raise ValueError(f'noise="{noise}" does not describe data that are fitted with loss="{loss}": {advice}.')
    known = data.values if data.observed is None else data.values[data.observed]
    if noise == "poisson" and ((known < 0).any() or (known != np.round(known)).any()):
        raise ValueError('noise="poisson" is for counts, but X has negative or fractional numbers: use noise="normal".')


def thin_normal(X: np.ndarray, sigma: Any, share: float, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return two independent parts of X = signal + noise: the share e of both, and the rest, with their sum X."""
    first = share * X + np.sqrt(share * (1 - share)) * sigma * rng.standard_normal(X.shape)
    return first, X - first


def thin_counts(X: np.ndarray, share: float, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return two independent parts of counts: each event belongs to the first with probability `share`; NaN stays."""
    known = np.isfinite(X)
    first = np.full(X.shape, np.nan)
    first[known] = rng.binomial(X[known].astype(np.int64), share)
    return first, X - first


def weight_scores(
    X: np.ndarray, counts: np.ndarray | None, W: BooleanCP, variance: float | np.ndarray | None
) -> np.ndarray:
    """Return the weights of the atoms of W in independent data over their standard errors, (K,), signs as in W.

    Each is fitted beside the other atoms and what they could take up of it; `counts` are the mask, or weights. The
    variance may differ between entries. Without one, X are counts, and a constant is fitted with the atoms.
    """
    X = X if counts is None else np.where(counts > 0, X, 0.0) * counts
    constant = Atom(0, np.ones(W.shape[0], dtype=bool), tuple(np.full((d, 1), d**-0.5) for d in W.shape[1:]))
    scores = np.zeros(W.n_atoms)
    for k, atom in enumerate(W.atoms):
        others = W.atoms[:k] + W.atoms[k + 1 :]
        atoms = (atom, *others, *(taken_up(atom, other) for other in others))
        atoms += () if W.mean is None else tuple(replace(M, z=np.ones_like(M.z)) for M in atoms)
        atoms += () if variance is not None else (constant,)
        V = BooleanCP(W.shape, atoms, np.ones(len(atoms)))
        G = V.inner_products() if counts is None else weighted_gram(atoms, counts)
        if isinstance(variance, float):
            spread = variance * G
        else:
            spread = weighted_gram(atoms, variance if variance is not None else X if counts is None else X * counts)
        c = np.append(1.0, -np.linalg.pinv(G[1:, 1:], rcond=1e-10, hermitian=True) @ G[1:, 0])
        if c @ G @ c > EXPLAINED * G[0, 0]:  # else the others explain the atom
            scores[k] = c @ inner_with_atoms(X, atoms) / np.sqrt(max(c @ spread @ c, np.finfo(float).tiny))
    return scores * np.where(W.weights < 0, -1.0, 1.0)


def taken_up(atom: Atom, other: Atom) -> Atom:
    """Return what another atom could take up of an atom, by a change of its real part: a projection, up to a factor.

    A block may change in any way; else the columns are free along one mode, and in the spans of the factors along the
    others. It counts between disjoint atoms, too, as a third one may overlap with both.
    """
    z = other.z[:, None] / max(other.n_ones, 1)
    if atom.mode == other.mode and (atom.factors is None or other.factors is None):
        return Atom(other.mode, other.z, block=atom.dense_block())
    if atom.factors is None or other.factors is None:
        block = BooleanCP(atom.shape, (atom,), np.ones(1)).contract(other.mode, z)[0]
        return Atom(other.mode, other.z, block=block)
    free = [atom.columns(mode) for mode in range(len(atom.shape)) if mode != other.mode]
    if atom.mode != other.mode:
        free[0] = free[0] * (z.T @ atom.columns(other.mode))
    within = [A @ np.linalg.lstsq(A, F, rcond=None)[0] for A, F in zip(other.factors, free, strict=True)]
    terms = [within] + [[*within[:m], free[m] - within[m], *within[m + 1 :]] for m in range(len(free))]
    return Atom(other.mode, other.z, [np.hstack(each) for each in zip(*terms, strict=True)])


def weighted_gram(atoms: tuple[Atom, ...], D: np.ndarray) -> np.ndarray:
    """Return sum_i D_i M_k,i M_l,i over all entries i, (K, K), for D of the shape of the tensor."""
    tensors = (BooleanCP(D.shape, (atom,), np.ones(1)).to_array() for atom in atoms)
    G = np.stack([inner_with_atoms(D * M, atoms) for M in tensors])
    return (G + G.T) / 2


def noise_ratios(R: np.ndarray) -> dict[int, np.ndarray]:
    """Return how the noise of a residual R differs between slices, (d_n,), for each mode where it clearly does."""
    found = {}
    for mode in range(R.ndim):
        slices = np.moveaxis(R, mode, 0)
        slices = slices.reshape(*slices.shape[:2], -1)
        rows, columns = (-(-d // MOST) for d in slices.shape[1:])
        slices = slices[:, ::rows, ::columns]
        if min(slices.shape[1:]) >= LEAST and len(slices) > 1 and slices.any():
            levels, spread = noise_of_slices(slices)
            chance = noise_of_slices(np.random.default_rng(0).standard_normal(slices.shape))[1]
            if spread > max(UNEQUAL, BY_CHANCE * chance):
                found[mode] = levels / np.sqrt(np.mean(levels**2))
    return found


def noise_of_slices(slices: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the median singular value of each matrix, which low rank hardly changes, and the spread of their logs."""
    short = slices if slices.shape[1] <= slices.shape[2] else slices.transpose(0, 2, 1)
    levels = np.sqrt(np.maximum(np.median(np.linalg.eigvalsh(short @ short.transpose(0, 2, 1)), axis=1), 0.0))
    return levels, float(np.std(np.log(np.maximum(levels, max(1e-3 * levels.max(), 1e-300)))))
