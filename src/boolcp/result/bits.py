"""How certain is each bit? The log odds that it is right, given the other atoms, from the rise of the loss if it flips.

Seen from an atom z (x) V, slice i of the data without the other atoms is z_i V plus noise: a point x_i that belongs to
the real part V or to zero. With V known, the rise of the loss when the bit is flipped, divided by 2 sigma^2, is the log
odds. But V is estimated, from the slices that are on, the slice in question among them. The bit is therefore judged by
the density of the slice given V as *the other* slices show it,

    log odds of on  =  log N(x_i | s V_-i, sigma^2 (1 + u) I)  -  log N(x_i | 0, sigma^2 I)  +  log prior odds,

with V_-i the mean of the k other slices that are on, shrunk by s = k S / (k S + p sigma^2), u = s / k for the
uncertainty of V, and S the squared size of V without the part that noise adds [1]_. The slices count in the p
dimensions in which V can vary: all of them for a block, the tangent space of tensors of the same rank otherwise.
Orthogonal to V, where the rise does not depend on them, they have the expected norm. The share of ones among the other
bits gives the prior odds. All of this holds given the other bits and atoms, which are estimated from the same data. The
log odds are therefore multiplied by the cosine between V and its estimate, sqrt(S) / |V|, which is 1 without noise, and
once more if V is a tensor of low rank, which was searched among many. Without it, bits given as 90 to 95 % certain are
wrong in 10 % of the cases at high noise, where 7 % are expected; both were chosen with benchmarks/bench_trust.py on
seeds 10000 to 10079.

References
----------
.. [1] M. Gavish, D. L. Donoho, "Optimal shrinkage of singular values", IEEE Trans. Inf. Theory 63 (2017).
"""

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from boolcp.result.atoms import Atom

EXTRA_NOISE = 3.0  # standard errors by which the spread along an atom must exceed the noise; not tuned
ROUNDING = 1e-12  # share of |V|^2 that counts as none, of an observed slice or of a variance


def real_dims(atom: "Atom") -> int:
    """Return the number p of dimensions in which the real part of an atom is free to move."""
    return min(math.prod(atom.real_shape), atom.n_parameters)


def bend(atom: "Atom") -> float:
    """Return the number of products of a move of V along one mode with one along a different mode; 0 for a block."""
    if atom.rank is None:
        return 0.0
    sizes = np.array(atom.real_shape, dtype=float)
    return atom.rank**2 * (sizes.sum() ** 2 - (sizes**2).sum()) / 2


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
    p, noise2 = real_dims(atom), max(sigma**2, ROUNDING * size2)
    along2 = noise_along(inner / share / np.sqrt(size2) - z * np.sqrt(size2), share, noise2)
    square = inner**2 / size2 + (p - 1) * noise2 * share * (1 - z * share / n_on)  # |x_i|^2
    # V_-i: its size, and the coordinate of x_i along it
    others = np.maximum(n_on - z * share, 0.0)
    sum2 = np.maximum(n_on**2 * size2 - 2 * z * n_on * inner + z * square, 0.0)
    size = np.sqrt(sum2) / np.maximum(others, ROUNDING)
    along = (n_on * inner - z * square) / np.sqrt(np.maximum(sum2, ROUNDING * n_on**2 * size2)) / share
    across2 = np.maximum(square / share**2 - along**2, 0.0)
    signal2 = signal(size2, noise2 / n_on, p, bend(atom))
    u = signal2 / (signal2 * others + p * noise2) * share
    gain = along**2 - (along - u * others / share * size) ** 2 / (1 + u)
    evidence = gain * share / (2 * along2) + across2 * share / (2 * noise2) * u / (1 + u) - p / 2 * np.log1p(u)
    ones = z.sum() - z
    cosine = np.sqrt(min(signal2 / size2, 1.0))
    return cosine ** (2 if bend(atom) else 1) * (2 * z - 1) * (evidence + np.log((ones + 0.5) / (len(z) - ones - 0.5)))


def signal(size2: float, noise2: float, p: int, bent: float) -> float:
    """Return <V, V^> for an estimate V^ of squared size `size2` with noise of variance `noise2`; 0 if it is all noise.

    For matrices of rank one it is the singular value times its optimal shrinkage.
    """
    fitted = max(size2 - p * noise2, 0.0)
    return float(np.sqrt(max(fitted**2 - 4 * bent * noise2**2, 0.0)))


def noise_along(spread: np.ndarray, share: np.ndarray, noise2: float) -> float:
    """Return the variance of the noise along V: more than in all directions if slices spread so for certain."""
    n = max(len(spread) - 1, 1)
    along2 = float(share @ spread**2) / n
    return along2 if along2 > noise2 * (1 + EXTRA_NOISE * np.sqrt(2 / n)) else noise2
