"""The noise level, from the small singular values of an unfolding and from the residual of their shrinkage.

The data are a signal with a few strong directions plus independent noise of equal variance. The weak singular values
of every unfolding then follow the Marchenko-Pastur law of pure noise. Signal raises them, never lowers them: the
smallest of several estimates is the one that signal has disturbed least.
"""

import numpy as np

from boolcp.fit.shrinkage import shrink_values, spectral_dof
from boolcp.result.columns import Columns
from boolcp.storage.long import is_long, n_columns
from boolcp.storage.protocol import Storage

LOW = 0.1  # the quantile of the eigenvalues compared with that of pure noise, for many columns; not tuned
MAX_SIDE = 1024  # longest side of an unfolding whose eigenvalues are computed, if there is a smaller one; not tuned
MAX_ROUNDS = 20  # of shrinking with the noise level of the last round; not tuned
SETTLED = 1e-3  # relative change of the noise level that ends the rounds; not tuned
SMALLEST = 1e-12  # smallest noise level, relative to the root mean square of the data
MIN_LEFT = 0.1  # smallest share of the observed entries that counts as unused; not tuned
ZERO = 1e-12  # squared singular values below this part of the largest are zero


def noise_level(data: Storage) -> float:
    """Return an estimate of the standard deviation of the noise of a complete tensor.

    It is the smallest over all unfoldings of two estimates: the low quantile of the eigenvalues over that of pure noise
    of the same shape, and the residual of optimal shrinkage at that level, shrunk again at its own level until both
    agree. For compressed data it is the root mean square of what the compression left out.
    """
    size = float(np.prod(data.shape, dtype=float))
    floor = SMALLEST * float(np.sqrt(data.squared_norm / size))
    if data.is_compressed:
        n_left_out = size - np.prod(data.core.shape, dtype=float)
        return max(float(np.sqrt(max(data.left_out, 0.0) / max(n_left_out, 1.0))), floor)
    levels = [level for values, long in spectra(data) for level in levels_of(values, long, floor)]
    return max(min(levels), floor)


def noise_variance(data: Storage, W: Columns) -> float:
    """Return the variance of the noise that a fit over the observed entries leaves, for each entry it has not used."""
    n_free = len(W.owner) * (sum(data.shape) - data.ndim + 1)
    return W.loss / max(data.n_observed - n_free, MIN_LEFT * data.n_observed)


def spectra(data: Storage) -> list[tuple[np.ndarray, int]]:
    """Return the squared singular values of each unfolding, descending, with the length of its longer side.

    Unfoldings with two long sides are skipped if there are others: their eigenvalues take long.
    """
    sides = [(min(d, n_columns(data, mode)), mode) for mode, d in enumerate(data.shape)]
    found: list[tuple[np.ndarray, int]] = []
    for short, mode in sorted(sides):
        if found and (short > MAX_SIDE or is_long(short)):
            break
        d, c = data.shape[mode], n_columns(data, mode)
        gram = data.gram(mode) if d <= c else data.column_gram(mode)
        found.append((without_zeros(np.linalg.eigvalsh(gram)[::-1]), max(d, c)))
    return found


def without_zeros(values: np.ndarray) -> np.ndarray:
    """Return eigenvalues without the few zeros that centering, a common reference or constant slices leave.

    Where more of them are zero, the data have few directions and no noise.
    """
    n_zeros = int(np.sum(values <= ZERO * values[0]))
    is_few = n_zeros <= max(1, LOW * len(values)) and n_zeros < len(values)
    return np.maximum(values[: len(values) - n_zeros] if is_few else values, 0.0)


def levels_of(values: np.ndarray, long: int, floor: float) -> list[float]:
    """Return the two estimates from the squared singular values of one unfolding whose longer side is `long`."""
    ratio = len(values) / long
    share = LOW + (0.5 - LOW) * ratio  # the lowest eigenvalues of a square matrix vary much: there the median is used
    low = np.quantile(values, share, method="hazen") / long
    first = max(float(np.sqrt(low / marchenko_pastur_quantile(ratio, share))), floor)
    return [first, residual_level(np.sqrt(values), long, first, floor)]


def residual_level(s: np.ndarray, long: int, sigma: float, floor: float) -> float:
    """Return the noise level that optimal shrinkage leaves, by iteration from a first guess `sigma`.

    The residual counts for each entry that is not a degree of freedom of the estimate [1]_.

    References
    ----------
    .. [1] M. Gavish, D. L. Donoho, "Optimal shrinkage of singular values", IEEE Trans. Inf. Theory 63 (2017).
    """
    short = len(s)
    for _ in range(MAX_ROUNDS):
        f, slope = shrink_values(s, sigma, long, short)
        n_left = long * short - spectral_dof(s, f, slope, long - short)
        before, sigma = sigma, max(float(np.sqrt(np.sum((s - f) ** 2) / max(n_left, 1.0))), floor)
        if abs(sigma - before) <= SETTLED * before:
            break
    return sigma


def marchenko_pastur_quantile(ratio: float, share: float) -> float:
    """Return a quantile of the Marchenko-Pastur law with unit variance and ratio d / n <= 1."""
    low, high = (1 - np.sqrt(ratio)) ** 2, (1 + np.sqrt(ratio)) ** 2
    angles = np.linspace(0, np.pi, 20001)  # x = middle - radius cos(angle) resolves the edge at zero of a square
    x = (low + high) / 2 - (high - low) / 2 * np.cos((angles[1:] + angles[:-1]) / 2)
    mass = np.cumsum((high - x) * (x - low) / x)  # sqrt((high - x) (x - low)) / x times dx
    return float(x[np.searchsorted(mass, share * mass[-1])])
