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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.stats
from numpy.random import Generator

from boolcp import checks
from boolcp.bmp import BMP
from boolcp.fit.certify import noise_left
from boolcp.fit.pursuit import atom_system
from boolcp.memory import read_memory
from boolcp.result.atoms import Atom, BooleanCP, inner_with_atoms
from boolcp.result.trust import p_text
from boolcp.storage import make_storage
from boolcp.storage.lazy import look_at, make_source
from boolcp.storage.protocol import Storage
from boolcp.trust.degeneracy import match
from boolcp.trust.repeated_fits import check_reference, fit_again, make_model, read_data, read_lazy, read_weights
from boolcp.trust.unequal import noise_ratios

NOISES = ("normal", "poisson")
EXPLAINED = 1e-8  # share of an atom beside the others that is rounding
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
        atom  mode   score         p  p adjusted
           0     0    29.7   <0.0001     <0.0001
           1     1    27.5   <0.0001     <0.0001
           2     2       -         1           1
        """
        level = "" if np.isnan(self.sigma) else f", sigma {self.sigma:.3g}{unequal_words(self)}"
        rows = ["atom  mode   score         p  p adjusted"]
        for k, atom in enumerate(self.decomposition.atoms):
            score = "     -" if np.isnan(self.score[k]) else f"{self.score[k]:6.1f}"
            name = self.decomposition.mode_name(atom.mode)
            rows.append(f"{k:4d}  {name:>4}  {score}  {p_text(self.p_value[k]):>8}  {p_text(self.p_adjusted[k]):>10}")
        return "\n".join([f"is each atom more than noise? (data thinning, {self.noise} noise{level})", *rows])

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
        The tensor. One that is not in memory is read in passes, if its noise is normal and there are no weights.
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
    weights : array-like, dict or str, optional
        As in `BMP.fit`. The variance of normal noise is then sigma^2 over the weight of an entry.
    random_state : int, Generator or None
        Seed.
    **options
        Parameters of BMP.

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
    lazy = read_lazy(X, mask, options, is_loaded=noise != "normal" or weights is not None)
    values, observed, labels, dims = lazy or read_data(X, mask)
    check_reference(reference, values.shape)
    model = make_model(n_atoms if reference is None else reference.n_atoms, options, values.shape, dims, reference)
    check_thinned(model.loss, noise)
    rng, *rngs = checks.make_generator(random_state).spawn(3)
    if lazy:
        reference = reference or fit_again(model, values, observed, rngs[0])
        sigma, part, scores = scores_in_passes(model, values, observed, reference, sigma, share, (rng, rngs[1]))
        return _judge(replace(reference, labels=labels), part, scores, noise, sigma, share)
    counts = read_weights(model, X, mask, weights, dims)
    if reference is None:
        reference = fit_again(model, values, observed, rngs[0], counts)
    ratios: dict[int, np.ndarray] = {}
    variance: float | np.ndarray | None = None
    if noise == "poisson":
        check_counts(values, observed)
        sigma, (first, second) = np.nan, thin_counts(values, share, rng)
    else:
        if sigma is None:
            data = make_storage(values, observed, counts)
            sigma = noise_left(data, reference)
            ratios = noise_ratios(data.residual(reference).to_array()) if observed is None and counts is None else {}
        level = levels_of(sigma, values.shape, ratios)
        variance = (1 - share) * level**2
        level = level if counts is None else level / np.sqrt(np.where(counts > 0, counts, np.inf))
        first, second = thin_normal(values, level, share, rng)
    part = fit_again(model, first, observed, rngs[1], counts)
    counts = observed if counts is None else counts if observed is None else counts * observed
    scores = weight_scores(second, counts, part, variance)
    found = _judge(replace(reference, labels=labels), part, scores, noise, sigma, share)
    return replace(found, unequal=tuple(ratios))


def levels_of(sigma: float, shape: tuple[int, ...], ratios: dict[int, np.ndarray]) -> float | np.ndarray:
    """Return the noise level of all entries, or of each if it differs along some modes, with root mean square sigma."""
    if not ratios:
        return sigma
    levels = np.full(shape, sigma)
    for mode, ratio in ratios.items():
        levels *= ratio.reshape(-1, *(1,) * (len(shape) - 1 - mode))
    return levels


def unequal_words(tested: Significance) -> str:
    """Say along which modes the noise was unequal, or nothing."""
    W = tested.decomposition
    names = [W.mode_name(mode) if W.dims else f"mode {mode}" for mode in tested.unequal]
    return f", unequal along {' and '.join(names)}" if names else ""


def _judge(W: BooleanCP, part: BooleanCP, scores: np.ndarray, noise: str, sigma: float, share: float) -> Significance:
    """Return the Significance of the atoms of W, each by its partner in the decomposition of the first part.

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
    return Significance(W, p_value, p_adjusted, score, alike, p, noise, float(sigma), share)


def scores_in_passes(
    model: BMP, X: Any, observed: Any, W: BooleanCP, sigma: float | None, share: float, rngs: Sequence[Generator]
) -> tuple[float, BooleanCP, np.ndarray]:
    """Return the noise level of a dask array, the fit to its first part, and the scores of its atoms in the second.

    The noise that splits X is drawn chunk by chunk, the same in every pass. Beside the two fits there are a pass that
    reads X, if the noise level is not given, one over the second part, and one for each atom.
    """
    limit = read_memory(model.max_memory)
    if sigma is None:
        data = look_at(make_source(X, observed, model.max_memory), limit)
        sigma = noise_left(data, W)
    first, second = thin_lazily(X, sigma, share, int(rngs[0].integers(2**63)))
    part = fit_again(model, first, observed, rngs[1])
    if not part.n_atoms:
        return sigma, part, np.zeros(0)
    rest: Storage = look_at(make_source(second, observed, model.max_memory), limit)
    systems = (atom_system(rest, atoms) for atoms in beside_others(part))
    return sigma, part, signed(part, [score_of(G, b, (1 - share) * sigma**2 * G) for G, b in systems])


def thin_lazily(X: Any, sigma: float, share: float, seed: int) -> tuple[Any, Any]:
    """Return the two parts of `thin_normal` of a dask array, as dask arrays."""
    import dask.array as da

    nothing = np.empty((0,) * X.ndim)
    noise = da.map_blocks(draw_noise, seed=seed, chunks=X.chunks, dtype=float, meta=nothing)
    first = share * X + (np.sqrt(share * (1 - share)) * sigma * noise).astype(np.result_type(X.dtype, np.float32))
    return first, X - first


def draw_noise(seed: int, block_info: Any) -> np.ndarray:
    """Return the normal noise of a chunk; always the same for a seed and a place."""
    place = block_info[None]
    return np.random.default_rng([seed, *place["chunk-location"]]).standard_normal(place["chunk-shape"])


def check_thinned(loss: str, noise: str) -> None:
    """Raise unless data that were fitted under a loss can be split into independent parts with the given noise."""
    due = {"squared": NOISES, "poisson": ("poisson",)}.get(loss, ())
    if noise not in due:
        advice = f'use noise="{due[0]}"' if due else 'leave it out: boolcp.assess(X, W, tests=["stability"], ..)'
        raise ValueError(f'noise="{noise}" does not describe data that are fitted with loss="{loss}": {advice}.')


def check_counts(values: np.ndarray, observed: np.ndarray | None) -> None:
    """Raise unless all observed entries are counts."""
    known = values if observed is None else values[observed]
    if (known < 0).any() or (known != np.round(known)).any():
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
    return signed(W, scores)


def signed(W: BooleanCP, scores: list[float]) -> np.ndarray:
    """Return scores (K,), positive where a weight has the sign of that in W."""
    return np.array(scores) * np.where(W.weights < 0, -1.0, 1.0)


def beside_others(W: BooleanCP) -> Iterator[tuple[Atom, ...]]:
    """Yield for each atom: the atom, the other ones, and what each of these could take up of it."""
    for k, atom in enumerate(W.atoms):
        others = W.atoms[:k] + W.atoms[k + 1 :]
        yield atom, *others, *(taken_up(atom, other) for other in others)


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
