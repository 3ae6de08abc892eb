"""Is the residual of a decomposition noise? Its distribution, its correlations, and the structure left in it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
import scipy.stats
from numpy.typing import ArrayLike

from boolcp import checks
from boolcp.contractions import gram
from boolcp.fit.certify import units_of_fit
from boolcp.fit.noise import noise_edge
from boolcp.plotting.mode_labels import mode_text
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import read_aligned

__all__ = ["ResidualCheck", "residual_check"]

N_QUANTILES = 101
SAMPLE = 100_000  # entries that quantiles are computed from; not tuned
MAX_GRAM = 3000  # the Gram matrix of a longer mode is too large to form; not tuned
NOTHING = 1e-12  # a residual below this share of |X|^2 is rounding


@dataclass(frozen=True, eq=False)
class ResidualCheck:
    """The residual X - W of a decomposition against white noise of the same size; `str` of it is a verdict in words.

    Attributes
    ----------
    rms : float
        Root mean square of the residual over the observed entries.
    n_entries : int
        Number of observed entries.
    normal_quantiles, quantiles : ndarray of shape (Q,)
        Quantiles of the normal distribution and of the residual divided by its root mean square.
    kurtosis : float
        Excess kurtosis of the residual, 0 for normal noise.
    lag_correlation : tuple of float
        For each mode the correlation of neighbors along it, 0 for white noise.
    structure : tuple of float
        For each mode the largest singular value of the unfolded residual divided by the edge of white noise, which
        noise of equal variance exceeds in one of a hundred cases: above 1, structure is left.
    mode_names : tuple of str
        The modes.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    >>> print(str(boolcp.residuals.residual_check(X, truth)).split(",")[0])
    Residual: no structure above white noise; root mean square 0.4997
    """

    rms: float
    n_entries: int
    normal_quantiles: np.ndarray
    quantiles: np.ndarray
    kurtosis: float
    lag_correlation: tuple[float, ...]
    structure: tuple[float, ...]
    mode_names: tuple[str, ...]

    @property
    def is_noise(self) -> bool:
        """Return True if no mode has structure above the edge of white noise."""
        return max(self.structure) <= 1

    def __str__(self) -> str:
        pairs = zip(self.mode_names, self.structure, self.lag_correlation, strict=True)
        lines = [f"  {name}: {edge:.2f} of the edge of white noise, neighbors {lag:+.2f}" for name, edge, lag in pairs]
        verdict = "no structure above white noise" if self.is_noise else "structure is left"
        head = f"Residual: {verdict}; root mean square {self.rms:.4g}, excess kurtosis {self.kurtosis:.2f}"
        return "\n".join([head, *lines])


def residual_check(X: Any, W: BooleanCP, *, mask: ArrayLike | None = None) -> ResidualCheck:
    """Return how far the residual X - W is from white noise, as a ResidualCheck.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The decomposed tensor, in memory; NaN is missing.
    W : BooleanCP
        Its decomposition.
    mask : array-like of bool, optional
        True where X is observed.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    >>> boolcp.residuals.residual_check(X, truth).is_noise, boolcp.residuals.residual_check(X, truth[:1]).is_noise
    (True, False)
    """
    values, mask, *_ = read_aligned(X, mask, like=W.labels)
    values, observed = checks.check_tensor(values, mask)
    checks.check_shape(values.shape, W.shape, None)
    known = np.ones(values.shape, dtype=bool) if observed is None else observed
    values, atoms = units_of_fit(values, replace(W, undetermined=None))  # where nothing is observed nothing is compared
    R = np.where(known, values - atoms.to_array(), 0.0)
    n_entries = int(np.count_nonzero(known))
    if np.sum(R**2) <= NOTHING * np.sum(values**2, where=known):
        R[...] = 0.0
    rms = float(np.sqrt(np.sum(R**2) / max(n_entries, 1)))
    scaled = R / (rms or 1.0)
    sample = scaled[known]
    sample = sample if n_entries <= SAMPLE else np.random.default_rng(0).choice(sample, SAMPLE)
    tail = scipy.stats.norm.ppf(min(0.5 / len(sample), 0.25))  # dense in the tails, as extreme as the numbers allow
    normal = np.linspace(tail, -tail, min(len(sample), N_QUANTILES))
    quantiles = np.quantile(sample, scipy.stats.norm.cdf(normal))
    kurtosis = float(np.sum(scaled**4) / max(n_entries, 1) - 3) if rms else 0.0
    lags = tuple(lag_correlation(scaled, known, mode) if rms else 0.0 for mode in range(W.ndim))
    structure = tuple(top_singular(scaled, mode) / edge(known, mode) for mode in range(W.ndim))
    names = tuple(mode_text(W, mode) for mode in range(W.ndim))
    return ResidualCheck(rms, n_entries, normal, quantiles, kurtosis, lags, structure, names)


def top_singular(R: np.ndarray, mode: int) -> float:
    """Return the largest singular value of an unfolding, by its Gram matrix or, for a long mode, by products."""
    d = R.shape[mode]
    if not R.any():
        return 0.0
    if d > MAX_GRAM:
        unfolded = np.moveaxis(R, mode, 0).reshape(d, -1)
        start = np.random.default_rng(0).standard_normal(min(unfolded.shape))
        return float(scipy.sparse.linalg.svds(unfolded, 1, v0=start, tol=1e-4, return_singular_vectors=False)[0])
    top = scipy.linalg.eigh(gram(R, mode), eigvals_only=True, subset_by_index=[d - 1, d - 1])[0]
    return float(np.sqrt(max(float(top), 0.0)))


def edge(known: np.ndarray, mode: int) -> float:
    """Return the edge of unit white noise in an unfolding; with missing entries that of its fullest row and column."""
    others = tuple(n for n in range(known.ndim) if n != mode)
    sides = int(known.sum(axis=mode).max()), int(known.sum(axis=others).max())
    return float(noise_edge(max(sides), max(min(sides), 1)))


def lag_correlation(R: np.ndarray, known: np.ndarray, mode: int) -> float:
    """Return the correlation of neighbors along a mode, over pairs of which both are observed; NaN without any."""
    R, known = np.moveaxis(R, mode, 0), np.moveaxis(known, mode, 0)
    both = known[:-1] & known[1:]
    first, second = R[:-1][both], R[1:][both]
    size = np.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second / size) if size > 0 else float("nan") if not both.any() else 0.0
