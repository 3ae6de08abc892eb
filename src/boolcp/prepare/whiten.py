"""The covariance of the noise, estimated from the data, and data in which the noise is nearly white."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from boolcp import checks
from boolcp.prepare.common import DataArray, floating, need_mode, noted
from boolcp.result.labels import Labels
from boolcp.result.noise import Noise

RIDGE = 0.005  # share of the largest eigenvalue that all get: benchmarks/results/whitening.md
N_TURNS = 2  # of the estimates, each with the others whitened


def whiten(X: DataArray, modes: Sequence[str] = ("channel", "time"), *, over: str = "trial") -> DataArray:
    """Return X in units of its noise, whose covariance along some modes is estimated from what varies over trials.

    A fit with ``BMP(noise="separable")`` does the same, and its patterns come back in the units of X.

    Examples
    --------
    >>> values = np.random.default_rng(0).standard_normal((3, 40, 50)) * np.array([1.0, 10.0, 100.0])[:, None, None]
    >>> X = xr.DataArray(values, dims=("channel", "time", "trial"))
    >>> boolcp.prepare.whiten(X).std(("time", "trial")).values.round(1).tolist()
    [0.2, 1.1, 1.4]
    """
    for mode in (*modes, over):
        need_mode(X, mode, "whitening")
    X, places = floating(X), [X.dims.index(mode) for mode in modes]
    if not np.isfinite(X.values).all():
        raise ValueError("X has missing entries, and whitening needs complete data: reject or fill these trials.")
    noise = separable_noise(X.values - X.values.mean(X.dims.index(over), keepdims=True), places)
    return noted(X.copy(data=noise.whiten(X.values)), X, f"whitened along {' and '.join(modes)}", "noise")


def separable_noise(R: np.ndarray, modes: Sequence[int]) -> Noise:
    """Return the noise model of residuals R with a covariance along each of these modes.

    Each covariance in turn, the others whitened (flip-flop), shrunk to a multiple of the identity as the number of
    columns asks for [1]_, plus a ridge: directions with hardly any variance, as filters leave them, hold no signal.

    References
    ----------
    .. [1] O. Ledoit, M. Wolf, J. Multivar. Anal. 88 (2004).
    """
    from sklearn.covariance import ledoit_wolf_shrinkage

    found: dict[int, np.ndarray] = {}
    for _ in range(N_TURNS if len(modes) > 1 else 1):
        for mode in modes:
            Y = Noise({n: S for n, S in found.items() if n != mode}).whiten(R)
            Y = np.moveaxis(Y, mode, -1).reshape(-1, R.shape[mode])
            S, share = Y.T @ Y / len(Y), ledoit_wolf_shrinkage(Y, assume_centered=True)
            size = np.trace(S) / len(S)
            if not size > 0:
                raise ValueError("X does not vary over its Boolean mode: there is no noise to estimate.")
            S = (1 - share) * S + share * size * np.eye(len(S))
            found[mode] = with_ridge(S / (1.0 if mode == modes[-1] else size))  # one of them has the scale
    return Noise(found)


def with_ridge(S: np.ndarray) -> np.ndarray:
    """Return a covariance plus a share of its largest eigenvalue in all directions."""
    return np.asarray(S + RIDGE * np.linalg.eigvalsh(S)[-1] * np.eye(len(S)))


def read_noise(
    noise: Any, X: np.ndarray, modes: Sequence[int], labels: Labels | None, weights: np.ndarray | None = None
) -> Noise:
    """Return the noise model of X that the parameter `noise` of a fit with these Boolean modes asks for."""
    dims = None if labels is None else labels.dims
    if isinstance(noise, str):
        checks.check_choice(noise, "noise", ("white", "separable"))
        if len(modes) == X.ndim:
            text = 'noise="separable" whitens the modes that are real in all atoms, and all modes may be Boolean:'
            advice = "name the Boolean one, as in boolean_modes=[2]. A mode that is whitened cannot be Boolean."
            raise ValueError(f"{text} {advice}")
        rest = X - np.average(X, axis=tuple(modes), weights=weights, keepdims=True)
        rest = rest if weights is None else rest * np.sqrt(weights / weights.mean())
        return separable_noise(rest, [n for n in range(X.ndim) if n not in modes])
    if hasattr(noise, "ch_names") and hasattr(noise, "data"):  # of MNE
        names = [] if labels is None else list(labels.coords.get("channel", ()))
        places = [list(noise.ch_names).index(str(name)) for name in names if str(name) in noise.ch_names]
        if len(places) != len(names) or not len(names):
            raise ValueError("noise is a covariance of MNE that lacks some of the channels of X: compute it for these.")
        full = np.diag(noise.data) if np.ndim(noise.data) == 1 else np.asarray(noise.data)
        noise = {"channel": full[np.ix_(places, places)]}
    if not isinstance(noise, Mapping):
        raise TypeError(f'noise must be "white", "separable", covariances by mode or an mne.Covariance, got {noise!r}.')
    found = {}
    for name, given in noise.items():
        mode, S = checks.check_mode(name, X.ndim, dims, name="noise"), np.asarray(given)
        if mode in modes:
            what = f"noise has a covariance along mode {name!r}, which may be Boolean"
            raise ValueError(f"{what}: a mode cannot be both. Leave it out of boolean_modes, or of noise.")
        shape, what = (X.shape[mode],) * 2, "a covariance matrix, finite, not all zero and without negative eigenvalues"
        is_real = S.shape == shape and S.dtype.kind in "fiu" and np.isfinite(S).all() and S.any()
        least = 1e-8 * np.abs(S).max() if is_real else 0.0
        if not is_real or np.abs(S - S.T).max() > least or np.linalg.eigvalsh(S)[0] < -least:
            raise ValueError(f"noise along mode {name!r} must be {what}, of shape {shape}, got {S.shape}.")
        found[mode] = with_ridge(S)
    return Noise(found)
