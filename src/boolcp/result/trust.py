"""Measures of trust: numbers about each atom and bit from a fit and from the tests of a result."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boolcp.result.bits import bit_log_odds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolcp.result.atoms import Atom, BooleanCP

ABOVE_FLOOR = 3.0  # standard deviations: noise alone gets there in one of a hundred cases


@dataclass(frozen=True, eq=False)
class Trust:
    """Numbers for each atom, and for each of its bits; None where they have not been computed.

    Attributes
    ----------
    rise : tuple of ndarray, (d_n,) each
        For each atom the rise of the loss |X - W|^2 when one bit is flipped and nothing else changes. Under a different
        loss that of the deviance, other atoms fitted again in the slice.
    share : tuple of ndarray, (d_n,) each
        For each atom the observed part of the squared norm of its real part in each slice; None if X is complete.
        Under a different loss the rise to expect, over the squared weight.
    sigma : float
        Standard deviation of the noise, estimated from the residual; 1 for counts and bits.
    p_value, p_adjusted : ndarray of shape (K,)
        Of the test whether the atom is more than noise, and with the false discovery rate controlled over the atoms.
    tested_by : str
        How: the scheme of the test.
    stability : ndarray of shape (K,)
        Share of other fits in which the atom came back.
    stable_over : str
        Which other fits: the scheme, their number and the mode.
    n_agree : int
        How many starts of the search led to the solution; 0 if unknown.
    n_rivals : int
        How many other solutions the search found, with other atoms and a loss higher by at most 0.5 %.
    n_asked : int
        How many atoms were asked for, if fewer were found; otherwise 0.
    is_limited : bool
        True if the caller named the modes that may be Boolean (`boolean_modes`).

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=1, random_state=0)
    >>> trust = boolcp.decompose(X, 2, random_state=0).trust
    >>> [len(rise) for rise in trust.rise], round(trust.sigma, 1), trust.stability
    ([9, 8], 1.0, None)
    """

    rise: tuple[np.ndarray, ...] | None = None
    share: tuple[np.ndarray, ...] | None = None
    sigma: float | None = None
    p_value: np.ndarray | None = None
    p_adjusted: np.ndarray | None = None
    tested_by: str = ""
    stability: np.ndarray | None = None
    stable_over: str = ""
    n_agree: int = 0
    n_rivals: int = 0
    n_asked: int = 0
    is_limited: bool = False

    def take(self, positions: "Sequence[int] | np.ndarray") -> "Trust":
        """Return the measures of some of the atoms.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=1, random_state=0)
        >>> len(boolcp.decompose(X, 2, random_state=0).trust.take([1]).rise)
        1
        """
        some: dict[str, Any] = {}
        for name in ("rise", "share", "p_value", "p_adjusted", "stability"):
            values = getattr(self, name)
            if values is not None:
                some[name] = tuple(values[k] for k in positions) if isinstance(values, tuple) else values[positions]
        return replace(self, **some)


def rival_words(known: Trust) -> str:
    """Say that the data allow other solutions, nothing without a sign of it or if it is known which atoms come back."""
    if known.stability is not None:
        return ""
    if known.n_rivals:
        many = "1 other solution has" if known.n_rivals == 1 else f"{known.n_rivals} other solutions have"
        return f"Other atoms fit as well: {many} a loss within 0.5 % of the best one. See boolcp.stability."
    if known.n_agree == 1:
        return "Other atoms may fit as well: no two starts of the search agree. See boolcp.stability."
    return ""


class UncertainBit(NamedTuple):
    """One bit that the data do not decide.

    Attributes
    ----------
    atom, entry : int
        Which atom, and which entry along its Boolean mode.
    label : str
        The name of the mode and the coordinate of the entry, or its number.
    is_on : bool
        What the decomposition has.
    confidence : float
        The probability that this is right.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=4, random_state=0)
    >>> bit = boolcp.decompose(X, 2, random_state=0).uncertain_bits()[0]
    >>> 0 < bit.confidence < 0.95
    True
    """

    atom: int
    entry: int
    label: str
    is_on: bool
    confidence: float


def log_odds(W: "BooleanCP", sigma: float | None = None, *, refit: bool = True) -> tuple[np.ndarray, ...] | None:
    """Return for each atom the log odds that each of its bits is right, (d_n,) each; None if unknown."""
    known = W.trust
    if known is None or known.rise is None or known.sigma is None:
        return None
    sigma = max(known.sigma if sigma is None else float(sigma), np.finfo(float).tiny ** 0.25)
    if not refit:
        return tuple(rise / (2 * sigma**2) for rise in known.rise)
    shares = known.share or tuple(np.ones(len(atom.z)) for atom in W.atoms)
    parts = zip(W.atoms, W.weights, known.rise, shares, strict=True)
    return tuple(bit_log_odds(atom, float(weight), rise, share, sigma) for atom, weight, rise, share in parts)


def bit_confidence(W: "BooleanCP", sigma: float | None, *, refit: bool) -> tuple[np.ndarray, ...]:
    """Return the probability that each bit is right; raise if it has not been computed from the data."""
    odds = log_odds(W, sigma, refit=refit)
    if odds is None:
        raise ValueError(
            "The confidence of bits needs the data: a fitted decomposition has it, otherwise call "
            "W = boolcp.assess(X, W)."
        )
    return tuple(np.exp(-np.logaddexp(0.0, -each)) for each in odds)


def uncertain_bits(W: "BooleanCP", below: float) -> list[UncertainBit]:
    """Return the bits with a confidence below a limit, the least certain first."""
    found = []
    for k, p in enumerate(bit_confidence(W, None, refit=True)):
        atom = W.atoms[k]
        for entry in np.flatnonzero(p < below):
            label = entry_label(W, atom.mode, int(entry))
            found.append(UncertainBit(k, int(entry), label, bool(atom.z[entry]), float(p[entry])))
    return sorted(found, key=lambda bit: bit.confidence)


def sure_share(W: "BooleanCP", least: float = 0.95) -> np.ndarray | None:
    """Return for each atom the share of bits with a confidence of at least 95 %, (K,); None if unknown."""
    odds = log_odds(W)
    limit = np.log(least / (1 - least))
    return None if odds is None else np.array([np.mean(each >= limit) for each in odds], dtype=float)


def noise_floor(atom: "Atom") -> float:
    """Return the largest norm, on average, that an atom of this kind can explain of white noise of unit variance.

    It is a bound on the expectation of the largest <E, M> over all atoms M of norm one, the sum of the square roots of
    the sizes for rank one [1]_; noise exceeds it by t with probability exp(-t^2 / 2) at most.

    References
    ----------
    .. [1] S. Chevet, "Series de variables aleatoires gaussiennes a valeurs dans E (x) F" (1977); R. Vershynin,
       "High-Dimensional Probability" (2018), section 8.7.
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


def entry_label(W: "BooleanCP", mode: int, entry: int) -> str:
    """Return the mode and the coordinate of an entry along it as text, or its number."""
    if W.labels is None:
        return f"mode {mode}, entry {entry}"
    name = W.labels.dims[mode]
    value = W.labels.coords[name][entry] if name in W.labels.coords else entry
    return f"{name} {value:.6g}" if isinstance(value, float | np.floating) else f"{name} {value}"


def p_text(p: float) -> str:
    """Return a p-value as text."""
    return "<0.0001" if p < 1e-4 else f"{p:.2g}"
