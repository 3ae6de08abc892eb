"""Is the noise equal in all slices? The p-values of `significance` need the level of each."""

import numpy as np

UNEQUAL = 0.05  # spread of the logarithms of noise levels from which it counts; smaller ones hardly change a p-value
BY_CHANCE = 3.0  # the same, over the spread between slices of white noise
LEAST, MOST = 8, 100  # rows that a slice needs, and rows and columns of it that are looked at


def noise_ratios(R: np.ndarray) -> dict[int, np.ndarray]:
    """Return how the noise differs between slices, (d_n,) with mean square one, for each mode where it clearly does.

    The level of a slice of the residual R is the median of its singular values as a matrix, which structure of low
    rank hardly changes. Its spread between slices is compared with that of white noise.

    Examples
    --------
    >>> import numpy as np
    >>> from boolcp.trust.unequal import noise_ratios
    >>> noise = np.random.default_rng(0).standard_normal((10, 20, 30))
    >>> noise_ratios(noise), list(noise_ratios(noise * np.linspace(1, 2, 10)[:, None, None]))
    ({}, [0])
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
