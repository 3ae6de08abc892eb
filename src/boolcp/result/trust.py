"""Measures of trust: numbers about each atom and bit from a fit and from the tests of a result.

How certain is each bit? The log odds that it is right, given the other atoms, from the rise of the loss if it flips.

Seen from an atom z (x) V, slice i of the data without the other atoms is z_i V plus noise: a point x_i that belongs to
the real part V or to zero. With V known, the rise of the loss when the bit is flipped, divided by 2 sigma^2, is the log
odds. But V is estimated, from the slices that are on, the slice in question among them. The bit is therefore judged by
the density of the slice given V as *the other* slices show it,

    log odds of on  =  log N(x_i | s V_-i, sigma^2 (1 + u) I)  -  log N(x_i | 0, sigma^2 I)  +  log prior odds,

with V_-i the mean of the k other slices that are on, shrunk by s = k S / (k S + p sigma^2), u = s / k for the
uncertainty of V, and S the squared size of V without the part that noise adds [1]_. The slices count in the p
dimensions in which V can vary: all of them for a block, the tangent space of tensors of the same rank otherwise.
Orthogonal to V, where the rise does not depend on them, they have the expected norm. The share of ones among the other
bits gives the prior odds. The other bits and atoms are estimated from the same data: the log odds are therefore
multiplied by the cosine between V and its estimate, sqrt(S) / |V|, and once more if V is a tensor of low rank, which
was searched among many (chosen with benchmarks/bench_trust.py on seeds 10000 to 10079).

References
----------
.. [1] M. Gavish, D. L. Donoho, "Optimal shrinkage of singular values", IEEE Trans. Inf. Theory 63 (2017).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from boolcp.result.atoms import Atom, BooleanCP

ABOVE_FLOOR = 3.0  # standard deviations: noise alone gets there in one of a hundred cases
EXTRA_NOISE = 3.0  # standard errors by which the spread along an atom must exceed the noise; not tuned
BITS = ("odds", "amplitude")  # fields of Trust with a number for each bit
ATOMS: tuple[str, ...] = ("stands_out", "smoothness", "replication", "by_session", "same_bits", "on_off", "groups")
ATOMS += ("has_runs", "p_value", "p_adjusted")
ROUNDING = 1e-12  # share of |V|^2 that counts as none, of an observed slice or of a variance


class Evidence(NamedTuple):
    """The evidence for the bits of each atom, from a fit.

    Attributes
    ----------
    rise : tuple of ndarray, (d_n,) each
        For each atom the rise of the loss |X - W|^2 when one bit is flipped and nothing else changes. Under a different
        loss the rise of the deviance, other atoms fitted again in the slice.
    share : tuple of ndarray, (d_n,) each
        For each atom the observed part of the squared norm of its real part in each slice; None if X is complete.
        Under a different loss the rise to expect, over the squared weight.
    sigma : float
        Standard deviation of the noise, estimated from the residual; 1 for counts and bits.
    cost : tuple of ndarray, (d_n,) each, or of 0
        For each atom the rise of what neighbors that differ cost.
    """

    rise: tuple[np.ndarray, ...]
    share: tuple[np.ndarray, ...] | None
    sigma: float
    cost: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class Trust:
    """Numbers for each atom, and for each of its bits; None where they have not been computed.

    Attributes
    ----------
    odds : tuple of ndarray, (d_n,) each
        For each atom the log odds that each bit is right: from the fit, or, where `boolcp.assess` found the atom to be
        on/off, from the two groups of its amplitudes.
    sigma : float
        Standard deviation of the noise in the units of the fit.
    stands_out : ndarray of bool, (K,)
        Which atoms explain more than an atom that is fitted to pure white noise.
    smoothness : ndarray of shape (K,)
        What each pair of neighbors that differ adds to the loss, for atoms along a mode with a graph (`adjacency`).
    correlation : tuple of float
        For each mode that is real in all atoms how far the residual is correlated along it, from 0 to 1.
    replication : ndarray of shape (K,)
        Share of fits to parts of the data in which the pattern of the atom comes back.
    by_session : ndarray of shape (K, S)
        |Cosine| of its pattern and of its match in a fit to each session alone.
    same_bits : ndarray of shape (K,)
        Share of its bits that are the same in those fits.
    amplitude : tuple of ndarray, (d_n,) each
        How strong the atom is in each slice that was held out of a fit, in units of its weight; NaN if unknown.
    on_off : ndarray of shape (K,)
        Evidence that these amplitudes are two groups rather than one hump: difference of the BIC; NaN if not tested.
    groups : ndarray of shape (K, 4)
        Mean of both groups, their standard deviation, and the share of the upper one.
    has_runs : ndarray of bool, (K,)
        Whether amplitudes of neighbors are alike, so that slices are not independent: drift, or a slow state.
    p_value, p_adjusted : ndarray of shape (K,)
        Of the test whether the atom is more than noise that is independent between slices, and with the false discovery
        rate controlled over the atoms; NaN where there is no such test.
    parts, split_mode : str, int
        Which fits: their number, the scheme and the mode; the mode itself, along which alone on/off is tested.
    n_agree, n_rivals, n_asked : int
        How many starts of the search led to the solution (0 if unknown), how many other solutions with other atoms had
        a loss higher by at most 0.5 %, and how many atoms were asked for if fewer were found (otherwise 0).

    Examples
    --------
    >>> X = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=1, random_state=0).X
    >>> trust = boolcp.decompose(X, 2, random_state=0).trust
    >>> [len(odds) for odds in trust.odds], len(trust.take([1]).odds), round(trust.sigma, 1), trust.replication
    ([9, 8], 1, 1.0, None)
    """

    odds: tuple[np.ndarray, ...] | None = None
    sigma: float | None = None
    stands_out: np.ndarray | None = None
    smoothness: np.ndarray | None = None
    correlation: tuple[float, ...] = ()
    replication: np.ndarray | None = None
    by_session: np.ndarray | None = None
    same_bits: np.ndarray | None = None
    amplitude: tuple[np.ndarray, ...] | None = None
    on_off: np.ndarray | None = None
    groups: np.ndarray | None = None
    has_runs: np.ndarray | None = None
    p_value: np.ndarray | None = None
    p_adjusted: np.ndarray | None = None
    parts: str = ""
    split_mode: int | None = None
    n_agree: int = 0
    n_rivals: int = 0
    n_asked: int = 0

    def take(self, positions: Sequence[int] | np.ndarray) -> "Trust":
        """Return the measures of some of the atoms."""
        some: dict[str, Any] = {}
        for name in (*BITS, *ATOMS):
            if (values := getattr(self, name)) is not None:
                some[name] = tuple(values[k] for k in positions) if isinstance(values, tuple) else values[positions]
        return replace(self, **some)


@dataclass(frozen=True, eq=False)
class Deviance:
    """Twice the loss above a perfect fit's, of a decomposition and of what it is compared with.

    `without` (K,) is that without each atom, `null` without all: of the mean of the data for counts and bits, of zero
    otherwise.
    """

    loss: str  # "huber", "poisson" or "bernoulli"
    scale: float  # the threshold of Huber's loss, or the mean below which logarithms are continued by a parabola
    total: float
    null: float
    without: np.ndarray

    @property
    def explained(self) -> float:
        """Return the share of the deviance that is explained."""
        return 1 - self.total / self.null if self.null > 0 else 1.0

    @property
    def unique(self) -> np.ndarray:
        """Return the share of the deviance that is lost without each atom, (K,)."""
        return (self.without - self.total) / self.null if self.null > 0 else np.zeros(len(self.without))

    def take(self, positions: np.ndarray) -> "Deviance | None":
        """Return the deviance of the same atoms in a different order; None for some of them, whose fit is not known."""
        if len(positions) != len(self.without) or len(set(positions.tolist())) != len(positions):
            return None
        return replace(self, without=self.without[positions])


def rival_words(known: Trust) -> str:
    """Say that the data allow other solutions, nothing without a sign of it or if it is known which atoms come back."""
    if known.replication is not None:
        return ""
    if known.n_rivals:
        many = "1 other solution has" if known.n_rivals == 1 else f"{known.n_rivals} other solutions have"
        return f"Other atoms fit as well: {many} a loss within 0.5 % of the best one. See boolcp.replication."
    if known.n_agree == 1:
        return "Other atoms may fit as well: no two starts of the search agree. See boolcp.replication."
    return ""


class UncertainBit(NamedTuple):
    """One bit that the data do not decide: where it is, whether it is on, and the probability that this is right.

    Examples
    --------
    >>> boolcp.UncertainBit(atom=0, entry=3, label="trial 3", is_on=False, confidence=0.8).label
    'trial 3'
    """

    atom: int
    entry: int
    label: str
    is_on: bool
    confidence: float


def bit_log_odds(atom: "Atom", weight: float, rise: np.ndarray, share: np.ndarray, sigma: float) -> np.ndarray:
    """Return the log odds (d_n,) that each bit of an atom is right.

    `rise` (d_n,) is that of the loss |X - W|^2 when the bit is flipped, `share` (d_n,) the observed part of the squared
    norm of V in each slice, `sigma` the standard deviation of the noise.
    """
    if weight == 0:  # such an atom says nothing
        return np.zeros(len(atom.z))
    z, size2 = atom.z.astype(float), max(weight**2, np.finfo(float).tiny)
    share = np.maximum(share, ROUNDING)
    n_on = max(float(z @ share), ROUNDING)
    inner = np.where(atom.z, share * size2 + rise, share * size2 - rise) / 2  # <x_i, V>
    least = max(float(inner @ z) / (n_on * size2), 1.0)  # times V is least squares: fits of missing entries shrink V
    size2, inner = least**2 * size2, least * inner
    p, noise2 = atom.n_parameters, max(sigma**2, ROUNDING * size2)
    spread, n = inner / share / np.sqrt(size2) - z * np.sqrt(size2), max(len(z) - 1, 1)
    along2 = float(share @ spread**2) / n  # the variance along V: more than in all directions if slices spread so
    along2 = along2 if along2 > noise2 * (1 + EXTRA_NOISE * np.sqrt(2 / n)) else noise2
    square = inner**2 / size2 + (p - 1) * noise2 * share * (1 - z * share / n_on)  # |x_i|^2
    # V_-i: its size, and the coordinate of x_i along it
    others = np.maximum(n_on - z * share, 0.0)
    sum2 = np.maximum(n_on**2 * size2 - 2 * z * n_on * inner + z * square, 0.0)
    size = np.sqrt(sum2) / np.maximum(others, ROUNDING)
    along = (n_on * inner - z * square) / np.sqrt(np.maximum(sum2, ROUNDING * n_on**2 * size2)) / share
    across2 = np.maximum(square / share**2 - along**2, 0.0)
    # <V, V^> for an estimate V^; for matrices of rank one, the singular value times its optimal shrinkage
    sizes, fitted = np.array(atom.real_shape, dtype=float), max(size2 - p * noise2 / n_on, 0.0)
    # products of a move of V along one mode with one along a different mode; none in a block
    bent = 0.0 if atom.rank is None else atom.rank**2 * (sizes.sum() ** 2 - (sizes**2).sum()) / 2
    signal2 = float(np.sqrt(max(fitted**2 - 4 * bent * (noise2 / n_on) ** 2, 0.0)))
    u = signal2 / (signal2 * others + p * noise2) * share
    gain = along**2 - (along - u * others / share * size) ** 2 / (1 + u)
    evidence = gain * share / (2 * along2) + across2 * share / (2 * noise2) * u / (1 + u) - p / 2 * np.log1p(u)
    ones = z.sum() - z
    cosine = np.sqrt(min(signal2 / size2, 1.0))
    return cosine ** (2 if bent else 1) * (2 * z - 1) * (evidence + np.log((ones + 0.5) / (len(z) - ones - 0.5)))


def log_odds(W: "BooleanCP", evidence: Evidence) -> tuple[np.ndarray, ...]:
    """Return for each atom the log odds that each of its bits is right, (d_n,) each."""
    sigma = max(evidence.sigma, np.finfo(float).tiny ** 0.25)
    shares = evidence.share or tuple(np.ones(len(atom.z)) for atom in W.atoms)
    parts = zip(W.atoms, W.weights, evidence.rise, shares, evidence.cost or [0.0] * W.n_atoms, strict=True)
    return tuple(bit_log_odds(atom, float(c), rise, h, sigma) + e / (2 * sigma**2) for atom, c, rise, h, e in parts)


def sure_share(W: "BooleanCP", least: float = 0.95) -> np.ndarray | None:
    """Return for each atom the share of bits with a confidence of at least 95 %, (K,); None if unknown."""
    odds = None if W.trust is None else W.trust.odds
    limit = np.log(least / (1 - least))
    return None if odds is None else np.array([np.mean(each >= limit) for each in odds], dtype=float)


def noise_floor(atom: "Atom") -> float:
    """Return the largest norm, on average, that an atom of this kind can explain of white noise of unit variance.

    It is Chevet's bound on the expectation of the largest <E, M> over all atoms M of norm one (R. Vershynin,
    "High-Dimensional Probability", section 8.7); noise exceeds it by t with probability exp(-t^2 / 2) at most.
    """
    sizes = atom.real_shape
    block = np.sqrt(np.prod(sizes, dtype=float))
    real = block if atom.rank is None else min(block, np.sqrt(atom.rank) * np.sum(np.sqrt(sizes)))
    return float(np.sqrt(len(atom.z)) + real)


def stands_out(W: "BooleanCP", sigma: float) -> np.ndarray:
    """Return which atoms explain more than an atom fitted to pure noise can, (K,)."""
    if W.data_norm2 is None or W.data_inner is None or not W.n_atoms:
        return np.ones(W.n_atoms, dtype=bool)
    floors = np.array([noise_floor(atom) for atom in W.atoms]) + ABOVE_FLOOR
    total = W.data_norm2 if W.deviance is None else W.deviance.null
    return np.sqrt(np.maximum(W.explained_unique(), 0) * total) > floors * sigma


def group_density(W: "BooleanCP", k: int) -> tuple[np.ndarray, ...] | None:
    """Return the held-out amplitudes of an atom, edges of bins, and both groups as numbers per bin along a grid.

    None if they have not been computed.
    """
    known = W.trust
    if known is None or known.amplitude is None or known.groups is None or not np.isfinite(known.groups[k]).all():
        return None
    a, (low, high, spread, share) = known.amplitude[k], known.groups[k]
    a = a[np.isfinite(a)]
    edges = np.linspace(a.min(), a.max(), min(max(int(2 * np.sqrt(len(a))), 8), 40) + 1)
    width = edges[1] - edges[0]
    x, scale = np.linspace(edges[0] - width, edges[-1] + width, 200), len(a) * width / (spread * np.sqrt(2 * np.pi))
    curves = [part * scale * np.exp(-0.5 * ((x - m) / spread) ** 2) for m, part in ((low, 1 - share), (high, share))]
    return a, edges, x, *curves


def p_text(p: float) -> str:
    """Return a p-value as text."""
    return "<0.0001" if p < 1e-4 else f"{p:.2g}"
