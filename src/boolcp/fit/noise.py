"""Noise and singular values: the noise level, the edge above which a value is signal, its shrinkage.

The data are a signal with a few strong directions plus independent noise of equal variance. The weak singular values
of every unfolding then follow the Marchenko-Pastur law of pure noise. Signal raises them, never lowers them: the
smallest of several estimates is the one that signal has disturbed least.

For a matrix (m, n) of noise with standard deviation sigma the largest singular value is close to the edge
sigma (sqrt(m) + sqrt(n)). Values above it are shrunk optimally in squared error [1]_, and the degrees of freedom of
the result are its divergence [2]_.

References
----------
.. [1] M. Gavish, D. L. Donoho, "Optimal shrinkage of singular values", IEEE Trans. Inf. Theory 63 (2017).
.. [2] E. J. Candes, C. A. Sing-Long, J. D. Trzasko, "Unbiased risk estimates for singular value thresholding and
   spectral estimators", IEEE Trans. Signal Process. 61 (2013).
"""

from functools import lru_cache

import numpy as np

from boolcp.storage.protocol import Storage, n_columns
from boolcp.storage.tucker import LONG, Tucker, unfold

LOW = 0.1  # the quantile of the eigenvalues compared with that of pure noise, for many columns; not tuned
MAX_SIDE = 1024  # longest side of an unfolding whose eigenvalues are computed, if there is a smaller one; not tuned
MAX_ROUNDS = 20  # of shrinking with the noise level of the last round; not tuned
SETTLED = 1e-3  # relative change of the noise level that ends the rounds; not tuned
SMALLEST = 1e-12  # smallest noise level, relative to the root mean square of the data
TINY = 1e-7  # singular values below this share of the largest are rounding errors of the Gram matrix
ZERO = 1e-12  # squared singular values below this part of the largest are zero


def noise_level(data: Storage) -> float:
    """Return an estimate of the standard deviation of the noise of a complete tensor.

    It is the smallest over all unfoldings of two estimates: the low quantile of the eigenvalues over that of pure noise
    of the same shape, and the residual of optimal shrinkage at that level, shrunk again at its own level until both
    agree. For compressed data it is the root mean square of what the compression left out.
    """
    size = float(np.prod(data.shape, dtype=float))
    floor = SMALLEST * float(np.sqrt(data.squared_norm / size))
    if isinstance(data, Tucker):
        return max(float(np.sqrt(data.left_out)), floor)
    levels = [level for values, long in spectra(data) for level in levels_of(values, long, floor)]
    return max(min(levels), floor)


def spectra(data: Storage) -> list[tuple[np.ndarray, int]]:
    """Return the squared singular values of each unfolding, descending, with the length of its longer side.

    Unfoldings with two long sides are skipped if there are others: their eigenvalues take long.
    """
    sides = sorted((min(d, n_columns(data, mode)), mode) for mode, d in enumerate(data.shape))
    modes = [mode for at, (short, mode) in enumerate(sides) if at == 0 or not (short > MAX_SIDE)]
    found: list[tuple[np.ndarray, int]] = []
    for mode in modes:
        d, c = data.shape[mode], n_columns(data, mode)
        if d <= c and d <= LONG:
            values = np.linalg.eigvalsh(data.gram(mode))[::-1]
        else:
            X = unfold(data, mode)
            values = np.linalg.eigvalsh(X.T @ X)[::-1] if c < d else np.linalg.svd(X, compute_uv=False) ** 2
        found.append((without_zeros(values), max(d, c)))
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

    The residual counts for each entry that is not a degree of freedom of the estimate.
    """
    short = len(s)
    for _ in range(MAX_ROUNDS):
        f, slope = shrink_values(s, sigma, long, short)
        n_left = long * short - spectral_dof(s, f, slope, long - short)
        before, sigma = sigma, max(float(np.sqrt(np.sum((s - f) ** 2) / max(n_left, 1.0))), floor)
        if abs(sigma - before) <= SETTLED * before:
            break
    return sigma


@lru_cache(maxsize=128)  # fits of one shape ask for the same ones
def marchenko_pastur_quantile(ratio: float, share: float) -> float:
    """Return a quantile of the Marchenko-Pastur law with unit variance and ratio d / n <= 1."""
    low, high = (1 - np.sqrt(ratio)) ** 2, (1 + np.sqrt(ratio)) ** 2
    angles = np.linspace(0, np.pi, 20001)  # x = middle - radius cos(angle) resolves the edge at zero of a square
    x = (low + high) / 2 - (high - low) / 2 * np.cos((angles[1:] + angles[:-1]) / 2)
    mass = np.cumsum((high - x) * (x - low) / x)  # sqrt((high - x) (x - low)) / x times dx
    return float(x[np.searchsorted(mass, share * mass[-1])])


# shrinkage, and what is left


def shrink_values(s: np.ndarray, sigma: float, long: int, short: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the shrunk singular values f(s) of a (long, short) matrix and the slope f'(s); zero below the edge."""
    scale, ratio = sigma * np.sqrt(long), short / long
    is_signal = s > max(sigma * noise_edge(long, short), TINY * s[0])
    y = np.where(is_signal, s, np.inf) / scale
    f, slope = np.zeros_like(s), np.zeros_like(s)
    y2 = y[is_signal] ** 2
    root = np.sqrt((y2 - ratio - 1) ** 2 - 4 * ratio)
    f[is_signal] = root / y[is_signal] * scale
    slope[is_signal] = 2 * (y2 - ratio - 1) / root - root / y2
    return f, slope


def noise_edge(long: int, short: int, quantile: float = 2.02) -> float:
    """Return the 99 % quantile of the largest singular value of a (long, short) matrix of unit noise.

    Its square is (sqrt(long) + sqrt(short))^2 plus a fluctuation that follows the Tracy-Widom law, given by a quantile.
    """
    edge = np.sqrt(long) + np.sqrt(short)
    return np.sqrt(edge**2 + quantile * edge * (1 / np.sqrt(long) + 1 / np.sqrt(short)) ** (1 / 3))


def spectral_dof(s: np.ndarray, f: np.ndarray, slope: np.ndarray, excess: int) -> float:
    """Return the divergence of B -> U f(s) V' for a matrix whose longer side exceeds the shorter by `excess`."""
    s2 = s[:, None] ** 2 - s[None, :] ** 2
    is_tie = np.abs(s2) <= 1e-9 * s[0] ** 2
    limit = (f + s * slope) / (2 * np.maximum(s, 1e-300))
    pairs = np.where(is_tie, limit[:, None], ((s * f)[:, None] - (s * f)[None, :]) / np.where(is_tie, 1.0, s2))
    np.fill_diagonal(pairs, 0.0)
    return float(slope.sum() + excess * np.sum(f / np.maximum(s, 1e-300)) + pairs.sum())
