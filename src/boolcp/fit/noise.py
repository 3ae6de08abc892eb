"""The level of white noise, and the edge above which a singular value is signal.

The data are a signal with a few strong directions plus independent noise of equal variance. The weak singular values
of every unfolding then follow the Marchenko-Pastur law of pure noise. Signal raises them, never lowers them: the
smallest of several estimates is the one that signal has disturbed least.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from boolcp.storage.dense import n_columns, unfold
from boolcp.storage.protocol import Storage
from boolcp.storage.tucker import LONG

LOW = 0.1  # the quantile of the eigenvalues compared with that of pure noise, for many columns; not tuned
MAX_SIDE = 1024  # longest side of an unfolding whose eigenvalues are computed, if there is a smaller one; not tuned
SMALLEST = 1e-12  # smallest noise level, relative to the root mean square of the data
ZERO = 1e-12  # squared singular values below this part of the largest are zero


def noise_level(data: Storage) -> float:
    """Return an estimate of the standard deviation of the noise of a complete tensor.

    It is the smallest over all unfoldings of the low quantile of the eigenvalues over that of pure noise.
    """
    floor = SMALLEST * float(np.sqrt(data.squared_norm / np.prod(data.shape, dtype=float)))
    levels = []
    for values, long in spectra(data):
        ratio = len(values) / long
        share = LOW + (0.5 - LOW) * ratio  # the median of a square matrix, whose lowest eigenvalues vary much
        low = np.quantile(values, share, method="hazen") / long
        levels.append(float(np.sqrt(low / marchenko_pastur_quantile(ratio, share))))
    return max(min(levels), floor)


def spectra(data: Storage) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the squared singular values of each unfolding, descending, with the length of its longer side.

    Unfoldings with two long sides are skipped if there are others: their eigenvalues take long.
    """
    sides = sorted((min(d, n_columns(data, mode)), mode) for mode, d in enumerate(data.shape))
    for mode in [mode for at, (short, mode) in enumerate(sides) if at == 0 or short <= MAX_SIDE]:
        d, c = data.shape[mode], n_columns(data, mode)
        if d <= c and d <= LONG:
            values = np.linalg.eigvalsh(data.gram(mode))[::-1]
        else:
            X = unfold(data.to_array(), mode)
            values = np.linalg.eigvalsh(X.T @ X)[::-1] if c < d else np.linalg.svd(X, compute_uv=False) ** 2
        yield without_zeros(values), max(d, c)


def without_zeros(values: np.ndarray) -> np.ndarray:
    """Return eigenvalues without the few zeros that centering, a common reference or constant slices leave.

    Where more of them are zero, the data have few directions and no noise.
    """
    n_zeros = int(np.sum(values <= ZERO * values[0]))
    is_few = n_zeros <= max(1, LOW * len(values)) and n_zeros < len(values)
    return np.maximum(values[: len(values) - n_zeros] if is_few else values, 0.0)


@lru_cache(maxsize=128)  # fits of one shape ask for the same ones
def marchenko_pastur_quantile(ratio: float, share: float) -> float:
    """Return a quantile of the Marchenko-Pastur law with unit variance and ratio d / n <= 1."""
    low, high = (1 - np.sqrt(ratio)) ** 2, (1 + np.sqrt(ratio)) ** 2
    angles = np.linspace(0, np.pi, 20001)  # x = middle - radius cos(angle) resolves the edge at zero of a square
    x = (low + high) / 2 - (high - low) / 2 * np.cos((angles[1:] + angles[:-1]) / 2)
    mass = np.cumsum((high - x) * (x - low) / x)  # sqrt((high - x) (x - low)) / x times dx
    return float(x[np.searchsorted(mass, share * mass[-1])])


def noise_edge(long: int, short: int, quantile: float = 2.02) -> float:
    """Return the 99 % quantile of the largest singular value of a (long, short) matrix of unit noise.

    Its square is (sqrt(long) + sqrt(short))^2 plus a fluctuation that follows the Tracy-Widom law, given by a quantile.
    """
    edge = np.sqrt(long) + np.sqrt(short)
    return np.sqrt(edge**2 + quantile * edge * (1 / np.sqrt(long) + 1 / np.sqrt(short)) ** (1 / 3))
