"""Is an atom on and off, or graded? Two groups of amplitudes against one hump.

The amplitude of an atom in a slice is that of its pattern, which comes from a fit that has not seen the slice. If the
atom is switched on and off, amplitudes are two normal groups of equal spread; if it is graded, they form one hump:
normal, heavy-tailed (Student) or skewed (normal plus exponential). Schwarz's criterion (BIC) compares them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, log_ndtr

LEAST = 10.0  # difference of the BIC from which an atom is on/off: "very strong" evidence by custom
SMALLEST, SHARE = 5, 0.05  # slices, and share of them, that the smaller group has at least
MAX_AMPLITUDES = 2000  # that densities are fitted to
N_STEPS, FLOOR = 200, 0.01  # of expectation maximization; variance of a group over that of all, at least


class OnOff(NamedTuple):
    """Two groups of amplitudes: means, standard deviation, share of the upper one, and the evidence for them.

    It is the BIC of the best single hump minus that of two groups. Numbers, or arrays with one for each atom.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.standard_normal(100)
    >>> pair = noise + 5 * (rng.random(100) < 0.4), noise
    >>> [boolcp.trust.on_off.two_groups(x).evidence > 10 for x in pair]
    [True, False]
    """

    evidence: Any
    low: Any
    high: Any
    spread: Any
    share: Any

    @property
    def d_prime(self) -> Any:
        """Return the distance of the groups in standard deviations."""
        return (self.high - self.low) / self.spread

    def log_odds(self, a: np.ndarray) -> np.ndarray:
        """Return the log odds that amplitudes belong to the upper group."""
        middle, gap = (self.low + self.high) / 2, self.high - self.low
        return (a - middle) * gap / self.spread**2 + np.log(self.share / (1 - self.share))


def two_groups(a: np.ndarray) -> OnOff:
    """Return the evidence that amplitudes are two groups, and the groups."""
    n, center, size = len(a), float(a.mean()), float(a.std())
    if n < 2 * SMALLEST or not size > 0:
        return OnOff(np.nan, center, center, 1.0, 0.5)
    some = a if n <= MAX_AMPLITUDES else np.random.default_rng(0).choice(a, MAX_AMPLITUDES, replace=False)
    x = (some - center) / size
    likelihood, low, high, spread, share = best_mixture(x)
    normal = len(x) * np.log(2 * np.pi * np.mean(x**2)) + len(x) + 2 * np.log(len(x))
    hump = min(normal, *(bic(x, law, start) for law, starts in HUMPS.items() for start in starts))
    two = -2 * likelihood + 4 * np.log(len(x))
    return OnOff(float(hump - two), center + size * low, center + size * high, size * spread, share)


def is_on_off(evidence: float, n_smaller: int, n: int) -> bool:
    """Return True if the evidence shows two groups, and the smaller one is not a handful of outliers."""
    return bool(evidence >= LEAST and n_smaller >= max(SMALLEST, SHARE * n))


def best_mixture(x: np.ndarray) -> tuple[float, float, float, float, float]:
    """Return the log likelihood of two normal groups of equal variance, their means, spread and the upper share."""
    n, ordered, best = len(x), np.sort(x), (-np.inf, 0.0, 0.0, 1.0, 0.5)
    for quantile in (0.1, 0.25, 0.5, 0.75, 0.9):
        cut = min(max(int(quantile * n), 2), n - 2)
        means, shares = np.array([ordered[:cut].mean(), ordered[cut:].mean()]), np.array([cut, n - cut]) / n
        variance, total = 0.3, -np.inf
        for _ in range(N_STEPS):
            logs = np.log(shares / np.sqrt(2 * np.pi * variance))[:, None] - (x - means[:, None]) ** 2 / (2 * variance)
            each = np.logaddexp(*logs)
            before, total = total, float(each.sum())
            parts = np.exp(logs - each)
            sizes = np.clip(parts.sum(axis=1), 1.5, n - 1.5)
            shares, means = sizes / sizes.sum(), parts @ x / sizes
            variance = max(float(np.sum(parts * (x - means[:, None]) ** 2)) / n, FLOOR)
            if total - before < 1e-6:
                break
        if total > best[0]:
            up = int(np.argmax(means))
            best = (total, float(means[1 - up]), float(means[up]), float(np.sqrt(variance)), float(shares[up]))
    return best


def student(x: np.ndarray, shape: float) -> np.ndarray:
    """Return log densities of Student's distribution with exp(shape) degrees of freedom."""
    nu = np.exp(np.clip(shape, -2.0, 8.0))
    return gammaln((nu + 1) / 2) - gammaln(nu / 2) - np.log(np.pi * nu) / 2 - (nu + 1) / 2 * np.log1p(x**2 / nu)


def skewed(x: np.ndarray, shape: float) -> np.ndarray:
    """Return log densities of a standard normal plus an exponential variable of mean |shape|, with the sign of it."""
    tail = max(abs(shape), 0.05)
    x = x if shape > 0 else -x
    return 0.5 / tail**2 - x / tail - np.log(tail) + log_ndtr(x - 1 / tail)


HUMPS: dict[Callable[..., np.ndarray], tuple[tuple[float, ...], ...]] = {
    student: ((0.0, -0.2, np.log(4.0)),),  # location, logarithm of the scale, and the shape
    skewed: ((-0.6, -0.4, 1.0), (0.6, -0.4, -1.0), (-0.9, -1.5, 4.0), (0.9, -1.5, -4.0)),
}


def bic(x: np.ndarray, law: Callable[..., np.ndarray], start: tuple[float, ...]) -> float:
    """Return the BIC of a distribution with location, scale and shape fitted to x."""

    def cost(parameters: np.ndarray) -> float:
        place, scale, shape = parameters
        return float(len(x) * scale - law((x - place) * np.exp(-scale), shape).sum())

    found = minimize(cost, start, method="Nelder-Mead", options={"maxiter": 300, "xatol": 1e-2, "fatol": 1e-2})
    return float(2 * found.fun + len(start) * np.log(len(x)))
