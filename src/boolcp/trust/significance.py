"""Is an atom more than noise? Data thinning: atoms come from one part of the data, the test from an independent one.

Adding and subtracting the same noise splits X into two independent parts with the same signal [1]_: X_1 has the
share e of it and of the variance, X_2 = X - X_1 the rest. Counts are split event by event (binomial thinning). The
atoms of a fit to X_1 are fixed directions for X_2, so their weights in a least-squares fit to X_2 have a known
distribution. The real parts of the other atoms have errors, the noise of X_1, which an atom of noise would correct: the
weight of an atom is therefore fitted beside all that the others could take up of it.

References
----------
.. [1] A. Neufeld, A. Dharamshi, L. L. Gao, D. Witten, "Data thinning for convolution-closed distributions", J. Mach.
   Learn. Res. 25 (2024).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.stats
from numpy.random import Generator

from boolcp import checks
from boolcp.fit.certify import noise_left
from boolcp.result.atoms import Atom, BooleanCP, inner_with_atoms
from boolcp.result.trust import p_text
from boolcp.storage import make_storage
from boolcp.trust.degeneracy import match
from boolcp.trust.repeated_fits import Repeat, fit_again, prepare, without_mean
from boolcp.trust.tables import table_text

NOISES = ("normal", "poisson")
EXPLAINED = 1e-8  # share of an atom beside the others that is rounding
UNEQUAL = 0.05  # spread of the logarithms of noise levels from which it counts; smaller ones hardly change a p-value
BY_CHANCE = 3.0  # the same, over the spread between slices of white noise
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
    similarity : ndarray of shape (K,)
        Similarity with the atom of the first part that was tested, from 0 to 1.
    part_p_value : ndarray of shape (K,)
        The p-values of all atoms of the fit to the first part, uniform if all of them are noise.
    noise : str
        The distribution that was assumed, "normal" or "poisson".
    sigma : float
        Standard deviation of the noise, given or estimated; NaN for counts.
    share : float
        Share of the data that the fit to the first part has seen.
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
    similarity: np.ndarray
    part_p_value: np.ndarray
    noise: str
    sigma: float
    share: float
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
        level = "" if np.isnan(self.sigma) else f", sigma {self.sigma:.3g}{unequal_words(self)}"
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
    share: float = 0.8,
    mask: Any = None,
    weights: Any = None,
    random_state: Any = None,
    **options: Any,
) -> Significance:
    """Return for each atom whether it is more than noise, by data thinning, as a Significance.

    X is split into two independent parts. Bits and pattern of every atom come from a fit to the first, the test from
    the second: is its weight there, next to the other atoms with free real parts, larger than zero? The p-values of
    pure noise are uniform, those of an atom of noise beside atoms with the right bits nearly so.
    Noise is assumed to be independent between entries: what neighbors have in common counts as signal. Where its level
    differs clearly between slices of a complete tensor, it is estimated for each (`unequal`). Otherwise it is assumed
    to be equal, or as `weights` say.

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
    share : float
        Share of the data in the first part: a larger one finds weaker atoms, a smaller one tests them with more power.
    mask : array-like of bool, optional
        True where X is observed.
    weights : array-like, optional
        As in `BMP.fit`. The variance of normal noise is then sigma^2 over the weight of an entry.
    random_state : int, Generator or None
        Seed.
    **options
        Parameters of BMP; by default those of the fit of the reference.

    Examples
    --------
    >>> import numpy as np, boolcp
    >>> X = np.random.default_rng(0).standard_normal((12, 13, 14))
    >>> boolcp.significance(X, 2, random_state=0)
    Significance(0 of 2 atoms are more than noise, normal)
    """
    checks.check_choice(noise, "noise", NOISES)
    checks.check_number(share, "share", positive=True)
    if share >= 1:
        raise ValueError(f"share is the part of the data that is fitted: it must be below 1, got {share}.")
    data = prepare(significance, X, n_atoms, options, mask=mask, weights=weights, W=reference)
    check_thinned(data, noise)
    rng, *rngs = checks.make_generator(random_state).spawn(3)
    values, observed, counts = data.values, data.observed, data.weights
    W = fit_again(data, rngs[0]) if reference is None else reference
    ratios: dict[int, np.ndarray] = {}
    variance: float | np.ndarray | None = None
    if noise == "poisson":
        sigma, (first, second) = np.nan, thin_counts(values, share, rng)
    else:
        if sigma is None:
            sigma, ratios = noise_levels(data, W)
        level: Any = sigma
        for mode, ratio in ratios.items():
            level = level * ratio.reshape(-1, *(1,) * (values.ndim - 1 - mode))
        variance = (1 - share) * (np.broadcast_to(level, values.shape) if ratios else sigma) ** 2
        level = level if counts is None else level / np.sqrt(np.where(counts > 0, counts, np.inf))
        first, second = thin_normal(values, level, share, rng)
    part = fit_again(data._replace(values=first), rngs[1])
    if (mean := getattr(part, "mean", None)) is not None:
        second = second - (1 - share) / share * mean
    counts = observed if counts is None else counts if observed is None else counts * observed
    p, adjusted, score, similarity, part_p = judge(W, part, weight_scores(second, counts, part, variance))
    W = replace(W, labels=data.labels or W.labels)
    return Significance(W, p, adjusted, score, similarity, part_p, noise, float(sigma), share, tuple(ratios))


def noise_levels(data: Repeat, W: BooleanCP) -> tuple[float, dict[int, np.ndarray]]:
    """Return the standard deviation of the noise, and its ratios between slices along modes where they differ."""
    values, atoms = without_mean(data.values, W)
    stored = make_storage(values, data.observed, data.weights)
    is_plain = data.observed is None and data.weights is None
    return noise_left(stored, atoms), noise_ratios(values - atoms.to_tensor()) if is_plain else {}


def unequal_words(tested: Significance) -> str:
    """Say along which modes the noise was unequal, or nothing."""
    W = tested.decomposition
    names = [W.mode_name(mode) if W.dims else f"mode {mode}" for mode in tested.unequal]
    return f", unequal along {' and '.join(names)}" if names else ""


def judge(W: BooleanCP, part: BooleanCP, scores: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return p-values (as they are and adjusted), scores and similarities of the atoms of W, and all p of the part.

    All atoms of the part are tested, and the false discovery rate is controlled over them. Which atom of W each is
    compared with can therefore not add a discovery.
    """
    p = scipy.stats.norm.sf(scores)
    adjusted = scipy.stats.false_discovery_control(p) if len(p) else p
    p_value, p_adjusted, alike = np.ones((3, W.n_atoms))
    score = np.full(W.n_atoms, np.nan)
    for k, (partner, similarity) in enumerate(match(W, part)):
        alike[k] = similarity
        if partner is not None and similarity >= ALIKE:
            p_value[k], p_adjusted[k], score[k] = p[partner], adjusted[partner], scores[partner]
    return p_value, p_adjusted, score, alike, p


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


def thin_normal(
    X: np.ndarray, sigma: float | np.ndarray, share: float, rng: Generator
) -> tuple[np.ndarray, np.ndarray]:
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
    """Return the weights of the atoms of W in least-squares fits to independent data over their standard errors, (K,).

    Each is fitted beside the other atoms and what they could take up of it. Each entry counts as `counts` says: True if
    it is observed, or its weight. A weight of an atom is positive if it has the sign of that in W. The
    variance may be that of each entry, of data that count alike. Without one, X is a tensor of counts, whose variance
    is their mean, and a constant is fitted with the atoms.
    """
    X = X if counts is None else np.where(counts > 0, X, 0.0) * counts
    scores = []
    for atoms in beside_others(W):
        atoms = atoms if variance is not None else (*atoms, constant_atom(W.shape))
        if counts is None:
            G = BooleanCP(W.shape, atoms, np.ones(len(atoms))).inner_products()
        else:
            G = weighted_gram(atoms, counts)
        if isinstance(variance, float):
            spread = variance * G
        else:
            spread = weighted_gram(atoms, variance if variance is not None else X if counts is None else X * counts)
        scores.append(score_of(G, inner_with_atoms(X, atoms), spread))
    return np.array(scores) * np.where(W.weights < 0, -1.0, 1.0)


def beside_others(W: BooleanCP) -> Iterator[tuple[Atom, ...]]:
    """Yield for each atom: the atom, the other ones, and what each of these, and a mean, could take up of it."""
    for k, atom in enumerate(W.atoms):
        others = W.atoms[:k] + W.atoms[k + 1 :]
        atoms = (atom, *others, *(taken_up(atom, other) for other in others))
        means = () if getattr(W, "mean", None) is None else tuple(replace(M, z=np.ones_like(M.z)) for M in atoms)
        yield atoms + means


def taken_up(atom: Atom, other: Atom) -> Atom:
    """Return what another atom could take up of an atom, by a change of its real part: a projection, up to a factor.

    With z and A_m the bits and factors of the other one, its changes are z (x) V with any V for a matrix or a block;
    else the columns of V are any along one mode, and in the spans of A_m along the others. Between atoms of one mode
    the factor is not z'z': it counts where these are disjoint, too, as a third atom may overlap with both.
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


def score_of(G: np.ndarray, b: np.ndarray, spread: np.ndarray) -> float:
    """Return the weight of the first of several tensors in a least-squares fit over its standard error.

    G are their inner products, b those with the data, and `spread` the covariance of b. The score is 0 if the others
    explain the first one.
    """
    c = np.append(1.0, -np.linalg.pinv(G[1:, 1:], rcond=1e-10, hermitian=True) @ G[1:, 0])
    if c @ G @ c <= EXPLAINED * G[0, 0]:
        return 0.0
    return float(c @ b / np.sqrt(max(c @ spread @ c, np.finfo(float).tiny)))


def constant_atom(shape: tuple[int, ...]) -> Atom:
    """Return the atom that is constant everywhere."""
    return Atom(0, np.ones(shape[0], dtype=bool), tuple(np.full((d, 1), d**-0.5) for d in shape[1:]))


def weighted_gram(atoms: tuple[Atom, ...], D: np.ndarray) -> np.ndarray:
    """Return sum_i D_i M_k,i M_l,i over all entries i, (K, K), for D of the shape of the tensor."""
    tensors = (BooleanCP(D.shape, (atom,), np.ones(1)).to_tensor() for atom in atoms)
    G = np.stack([inner_with_atoms(D * M, atoms) for M in tensors])
    return (G + G.T) / 2


def noise_ratios(R: np.ndarray) -> dict[int, np.ndarray]:
    """Return how the noise differs between slices, (d_n,) with mean square one, for each mode where it clearly does.

    The level of a slice of the residual R is the median of its singular values as a matrix, which structure of low
    rank hardly changes. Its spread between slices is compared with that of white noise.
    """
    found = {}
    for mode in range(R.ndim):
        slices = np.moveaxis(R, mode, 0)
        slices = slices.reshape(*slices.shape[:2], -1)
        rows, columns = (-(-d // MOST) for d in slices.shape[1:])
        slices = slices[:, ::rows, ::columns]
        if min(slices.shape[1:]) < LEAST or len(slices) < 2 or not (levels := middle_values(slices)).any():
            continue
        noise = middle_values(np.random.default_rng(0).standard_normal(slices.shape))
        if log_spread(levels) > max(UNEQUAL, BY_CHANCE * log_spread(noise)):
            found[mode] = levels / np.sqrt(np.mean(levels**2))
    return found


def middle_values(slices: np.ndarray) -> np.ndarray:
    """Return the median singular value of each matrix, (d_n,)."""
    short = slices if slices.shape[1] <= slices.shape[2] else slices.transpose(0, 2, 1)
    squares = np.median(np.linalg.eigvalsh(short @ short.transpose(0, 2, 1)), axis=1)
    return np.sqrt(np.maximum(squares, 0.0))


def log_spread(levels: np.ndarray) -> float:
    """Return the standard deviation of the logarithms of levels; a slice without noise counts as one with little."""
    return float(np.std(np.log(np.maximum(levels, 1e-3 * levels.max()))))
