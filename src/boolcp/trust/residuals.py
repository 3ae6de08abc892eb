"""Is the residual of a decomposition noise? Its distribution, its correlations, and the structure left in it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
import scipy.stats
from numpy.typing import ArrayLike

from boolcp import checks
from boolcp.fit.noise import noise_edge
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import read_labels
from boolcp.storage import make_storage
from boolcp.storage.protocol import Tensor

__all__ = ["ResidualCheck", "residual_check"]

N_QUANTILES = 101
MAX_GRAM = 3000  # the Gram matrix of a longer mode is too large to form; not tuned
NOTHING = 1e-12  # a residual below this share of |X|^2 is rounding


@dataclass(frozen=True, eq=False)
class ResidualCheck:
    """The residual X - W of a decomposition against white noise of the same size; `str` of it is a verdict in words.

    Attributes
    ----------
    rms : float
        Root mean square of the residual over the observed entries.
    n_entries, n_sampled : int
        Observed entries, and those that quantiles and correlations are computed from.
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
    >>> import boolcp
    >>> from boolcp.trust.residuals import residual_check
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    >>> print(str(residual_check(X, truth)).split(",")[0])
    Residual: no structure above white noise; root mean square 0.4997
    """

    rms: float
    n_entries: int
    n_sampled: int
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

    def plot(self, ax: Any = None) -> Any:
        """Draw the quantiles against those of normal noise, the numbers beside them, and return the Axes.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
        >>> boolcp.residuals.residual_check(X, truth).plot().get_xlabel()
        'normal quantile'
        """
        from boolcp.plotting import plot_residual

        return plot_residual(self, ax=ax)

    def __str__(self) -> str:
        pairs = zip(self.mode_names, self.structure, self.lag_correlation, strict=True)
        lines = [f"  {name}: {edge:.2f} of the edge of white noise, neighbors {lag:+.2f}" for name, edge, lag in pairs]
        verdict = "no structure above white noise" if self.is_noise else "structure is left"
        head = f"Residual: {verdict}; root mean square {self.rms:.4g}, excess kurtosis {self.kurtosis:.2f}"
        return "\n".join([head, *lines])


def residual_check(
    X: Any, W: BooleanCP, *, mask: ArrayLike | None = None, max_entries: int = 100_000, random_state: Any = 0
) -> ResidualCheck:
    """Return how far the residual X - W is from white noise, as a ResidualCheck.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The decomposed tensor; NaN is missing.
    W : BooleanCP
        Its decomposition.
    mask : array-like of bool, optional
        True where X is observed.
    max_entries : int
        Quantiles and correlations are computed from a random sample of at most this many entries.
    random_state : int, Generator or None
        Seed of the sample.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.trust.residuals import residual_check
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    >>> residual_check(X, truth).is_noise, residual_check(X, truth[:1]).is_noise
    (True, False)
    """
    checks.check_integer(max_entries, "max_entries", 10)
    values, observed = checks.check_tensor(read_labels(X)[0], mask)
    if values.shape != W.shape:
        raise ValueError(f"X has shape {values.shape}, but W is a decomposition of shape {W.shape}.")
    W = replace(W, undetermined=None)  # where nothing is observed nothing is compared
    data = make_storage(values, observed)
    rest = data.residual(W)
    n_entries = values.size if observed is None else int(np.count_nonzero(observed))
    power = rest.squared_norm
    is_exact = power <= NOTHING * data.squared_norm
    rms = 0.0 if is_exact else float(np.sqrt(power / max(n_entries, 1)))
    sigma = float(np.sqrt(power / max(n_entries, 1)))
    rng = checks.make_generator(random_state)
    places = sample_places(values, observed, max_entries, rng)
    sample = differences(values, W, places) / (rms or 1.0) * (not is_exact)
    probabilities = quantile_levels(len(sample))
    structure, lags = [0.0] * W.ndim, [0.0] * W.ndim
    if not is_exact:
        structure = [top_singular(rest, mode) / (sigma * edge(observed, W.shape, mode)) for mode in range(W.ndim)]
        lags = [lag_correlation(values, observed, W, places, mode) for mode in range(W.ndim)]
    return ResidualCheck(
        rms,
        n_entries,
        len(sample),
        scipy.stats.norm.ppf(probabilities),
        np.quantile(sample, probabilities),
        0.0 if is_exact else float(np.mean(sample**4) / np.mean(sample**2) ** 2 - 3),
        tuple(lags),
        tuple(float(value) for value in structure),
        tuple(W.dims) if W.dims else tuple(f"mode {mode}" for mode in range(W.ndim)),
    )


def sample_places(
    values: np.ndarray, observed: np.ndarray | None, max_entries: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the indices (n, N) of observed entries: all of them in order, or a random sample."""
    n_observed = values.size if observed is None else int(np.count_nonzero(observed))
    if n_observed <= max_entries:
        flat = np.arange(values.size) if observed is None else np.flatnonzero(observed)
    elif observed is None:
        flat = np.unique(rng.integers(values.size, size=max_entries))
    else:
        flat = np.sort(rng.choice(np.flatnonzero(observed), max_entries, replace=False))
    return np.stack(np.unravel_index(flat, values.shape), axis=1)


def differences(values: np.ndarray, W: BooleanCP, places: np.ndarray) -> np.ndarray:
    """Return the entries of X - W at some indices."""
    return values[tuple(places.T)].astype(float) - W.at(places)


def quantile_levels(n: int) -> np.ndarray:
    """Return levels for the quantiles of n numbers: dense in the tails, as extreme as n allows."""
    tail = min(0.5 / n, 0.25)
    z = np.linspace(scipy.stats.norm.ppf(tail), -scipy.stats.norm.ppf(tail), min(n, N_QUANTILES))
    return scipy.stats.norm.cdf(z)


def top_singular(rest: Tensor, mode: int) -> float:
    """Return the largest singular value of an unfolding, by its Gram matrix or, for a long mode, by products."""
    d = rest.shape[mode]
    if d <= MAX_GRAM:
        top = scipy.linalg.eigh(rest.gram(mode), eigvals_only=True, subset_by_index=[d - 1, d - 1])[0]
    else:
        product = scipy.sparse.linalg.LinearOperator(
            (d, d), matvec=lambda v: rest.project(mode, rest.contract(mode, v.reshape(d, 1)))[:, 0], dtype=float
        )
        start = np.random.default_rng(0).standard_normal(d)
        top = scipy.sparse.linalg.eigsh(product, k=1, v0=start, tol=1e-4, return_eigenvectors=False)[0]
    return float(np.sqrt(max(float(top), 0.0)))


def edge(observed: np.ndarray | None, shape: tuple[int, ...], mode: int) -> float:
    """Return the edge of unit white noise in an unfolding; with missing entries that of its fullest row and column."""
    if observed is None:
        rows, columns = shape[mode], int(np.prod(shape, dtype=float) / shape[mode])
    else:
        others = tuple(n for n in range(len(shape)) if n != mode)
        rows, columns = int(observed.sum(axis=mode).max()), int(observed.sum(axis=others).max())
    return noise_edge(max(rows, columns), max(min(rows, columns), 1))


def lag_correlation(
    values: np.ndarray, observed: np.ndarray | None, W: BooleanCP, places: np.ndarray, mode: int
) -> float:
    """Return the correlation of neighbors along a mode, over pairs of which both are observed; NaN without any."""
    places = places[places[:, mode] + 1 < W.shape[mode]]
    following = places.copy()
    following[:, mode] += 1
    if observed is not None:
        both = observed[tuple(following.T)]
        places, following = places[both], following[both]
    if len(places) == 0:
        return float("nan")
    first, second = (differences(values, W, part) for part in (places, following))
    size = np.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second / size) if size > 0 else 0.0
