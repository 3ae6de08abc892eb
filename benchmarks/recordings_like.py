"""Tensors like recordings, channel x time x trial: noise that is smooth in space and time, and patterns planted in it.

Noise of simulations is 1/f in time, mixed in space by a smooth matrix between electrodes on a head, plus noise of each
sensor. Surrogates are recordings with random phases: the same for all channels, so that spectra and covariances stay
and nothing else does. Recordings come from the folder named by BOOLCP_DATA.
"""

from functools import cache

import numpy as np
import scipy.io
import scipy.linalg
import scipy.signal
from real_data import _food_tracking, data_folder

from boolcp import Noise, open_tensor, prepare

SHAPE = (16, 40, 80)
SENSOR = 0.1  # noise of each sensor, beside one of all others
REACH = 0.5  # radius over which electrodes share noise, on a head of radius one


def power_law(rng, shape, axis, exponent=1.0):
    """Return noise with a power spectrum of 1 / f^exponent along one axis, a stretch of one twice as long."""
    n = shape[axis]
    long = rng.standard_normal(tuple(2 * d if at == axis else d for at, d in enumerate(shape)))
    gain = np.expand_dims(_gain(n, exponent), [at for at in range(len(shape)) if at != axis])
    found = np.fft.irfft(np.fft.rfft(long, axis=axis) * gain, axis=axis)
    return np.take(found, np.arange(n), axis=axis)


def _gain(n, exponent):
    """Return what multiplies each frequency of 2 n white samples, for noise of variance one."""
    f = np.fft.rfftfreq(2 * n)
    gain = np.zeros(len(f))
    gain[1:] = f[1:] ** (-exponent / 2)
    twice = np.where((f > 0) & (f < 0.5), 2.0, 1.0)
    return gain / np.sqrt(twice @ gain**2 / (2 * n))


def electrodes(rng, n):
    """Return places on the upper half of a sphere, (n, 3)."""
    places = rng.standard_normal((n, 3))
    places[:, 2] = np.abs(places[:, 2])
    return places / np.linalg.norm(places, axis=1, keepdims=True)


def mixing(places):
    """Return the smooth matrix that mixes sources at all places, with rows of norm one."""
    distance = np.linalg.norm(places[:, None] - places, axis=2)
    values, U = np.linalg.eigh(np.exp(-(distance**2) / (2 * REACH**2)))
    return (U * np.sqrt(np.maximum(values, 0))) @ U.T


def colored(rng, shape, mix, exponent=1.0):
    """Return noise of variance one that is 1/f^exponent in time and mixed in space, plus that of the sensors."""
    return np.tensordot(mix, power_law(rng, shape, 1, exponent), 1) + SENSOR * rng.standard_normal(shape)


def smooth_pattern(rng, mix, n_times):
    """Return a channel x time pattern of norm one, in space as smooth as the noise and in time a little smoother."""
    V = np.outer(mix @ rng.standard_normal(len(mix)), power_law(rng, (n_times,), 0, 1.5))
    return V / np.linalg.norm(V)


def ideal_size(V, mix, exponent):
    """Return the d' of a pattern in colored noise for a detector that knows the covariance."""
    n = V.shape[1]
    spectrum = _gain(n, exponent) ** 2
    S_time = scipy.linalg.toeplitz(np.fft.irfft(spectrum)[:n])
    (a, U), (b, Q) = np.linalg.eigh(mix @ mix.T), np.linalg.eigh(S_time)
    return float(np.sqrt(np.sum((U.T @ V @ Q) ** 2 / (np.maximum(np.outer(a, b), 0) + SENSOR**2))))


def separable(R, ridge, is_shrunk=False):
    """Return the covariance along the first two modes (flip-flop), shrunk as Ledoit and Wolf have it, plus a ridge."""
    from sklearn.covariance import ledoit_wolf_shrinkage

    found = {}
    for mode in (0, 1, 0, 1):
        Y = Noise({n: S for n, S in found.items() if n != mode}).whiten(R)
        Y = np.moveaxis(Y, mode, -1).reshape(-1, R.shape[mode])
        S = Y.T @ Y / len(Y)
        size = np.trace(S) / len(S)
        share = ledoit_wolf_shrinkage(Y, assume_centered=True) if is_shrunk else 0.0
        S = ((1 - share) * S + share * size * np.eye(len(S))) / (1.0 if mode == 1 else size)
        found[mode] = S + ridge * np.linalg.eigvalsh(S)[-1] * np.eye(len(S))
    return Noise(found)


def p3(seed, shape=(31, 60, 120), size=20.0, noise=8.0, sensor=1.0, exponent=1.0, p=0.35):
    """Return epochs with a P3 of `size` microvolts in some trials and an N1 in all, and which trials have it."""
    rng = np.random.default_rng([seed, 1])
    places = electrodes(rng, shape[0])
    X = noise * np.tensordot(mixing(places), power_law(rng, shape, 1, exponent), 1) + sensor * rng.standard_normal(
        shape
    )
    z, (V, N1) = rng.random(shape[2]) < p, potentials(places, shape[1], size)
    return X + V[:, :, None] * z + N1[:, :, None], z


def potentials(places, n_times, size=20.0):
    """Return the P3 and the N1, channel x time."""
    t, found = np.linspace(-0.2, 0.8, n_times), []
    for center, width, at, spread, high in (
        ((0.0, -0.5, 0.87), 0.6, 0.38, 0.09, size),
        ((0.0, 0.3, 0.95), 0.5, 0.10, 0.03, -6.0),
    ):
        u = np.exp(-np.sum((places - np.array(center)) ** 2, axis=1) / (2 * width**2))
        found.append(high * np.outer(u / u.max(), np.exp(-(((t - at) / spread) ** 2) / 2)))
    return found


def ideal_bits(X, seed, noise=8.0, p=0.35):
    """Return the bits of a `p3` for a detector that knows both potentials, the covariance and the share of ones."""
    places, n = electrodes(np.random.default_rng([seed, 1]), X.shape[0]), X.shape[1]
    (V, N1), mix = potentials(places, n), noise * mixing(places)
    S_time = scipy.linalg.toeplitz(np.fft.irfft(_gain(n, 1.0) ** 2)[:n])
    (a, U), (b, Q) = np.linalg.eigh(mix @ mix.T), np.linalg.eigh(S_time / S_time[0, 0])
    f = U @ (U.T @ V @ Q / (np.maximum(np.outer(a, b), 0) + 1.0)) @ Q.T
    return np.tensordot(f, X - N1[:, :, None], 2) > np.sum(f * V) / 2 + np.log((1 - p) / p)


def planted(seed, kind, size, shape=SHAPE, p=0.35):
    """Return noise with a pattern of d' = `size` in some trials, these, the pattern and the noise alone.

    Kinds: white, pink, brown, and names of SIGNALS for recordings as they are. There d' is that of the separable
    covariance of the stretch with hardly any ridge, in which the pattern is planted.
    """
    rng = np.random.default_rng([seed, 2])
    if kind == "white":
        E, V = rng.standard_normal(shape), np.outer(rng.standard_normal(shape[0]), rng.standard_normal(shape[1]))
        V /= np.linalg.norm(V)
        unit = 1.0
    elif kind in ("pink", "brown"):
        mix, exponent = mixing(electrodes(rng, shape[0])), 1.0 if kind == "pink" else 2.0
        E, V = colored(rng, shape, mix, exponent), smooth_pattern(rng, mix, shape[1])
        unit = ideal_size(V, mix, exponent)
    else:
        E = cut(SIGNALS[kind](), shape, rng)
        known = separable(E - E.mean(axis=2, keepdims=True), 1e-3)
        values, U = np.linalg.eigh(known.covariances[0])
        V = smooth_pattern(rng, (U * np.sqrt(values)) @ U.T, shape[1])
        unit = float(np.linalg.norm(known.whiten(V[:, :, None])))
    z = rng.random(shape[2]) < p
    return E + size / unit * V[:, :, None] * z, z, V, E


# recordings


@cache
def eeglab():
    """Return the sample recording of EEGLAB at 32 Hz as one stretch, (32, 7626)."""
    X = open_tensor(data_folder() / "eeglab_sample" / "eeglab_data.set")
    return (np.asarray(prepare.resample(X, 32), dtype=float),)


@cache
def propofol():
    """Return an EEG under propofol at 50 Hz, one stretch for each of three states, (64, 1500) each."""
    names = [f"eeganes07laplac250_detrend_all_t{start}.mat" for start in (180, 3070, 4710)]
    found = [scipy.io.loadmat(data_folder() / "ness_propofol_eeg" / name)["y"].T for name in names]
    return tuple(scipy.signal.decimate(X, 5, ftype="fir", axis=1) for X in found)


@cache
def ecog():
    """Return the ECoG of a monkey at 50 Hz as one stretch, (63, 15000)."""
    return (scipy.signal.decimate(_food_tracking(), 5, ftype="fir", axis=1),)


SIGNALS = {"EEGLAB": eeglab, "propofol": propofol, "ECoG": ecog}


def random_phases(signal, rng):
    """Return a recording (channels, samples) with random phases, the same for all channels."""
    F = np.fft.rfft(signal - signal.mean(axis=1, keepdims=True), axis=1)
    return np.fft.irfft(F * np.exp(2j * np.pi * rng.random(F.shape[1])), n=signal.shape[1], axis=1)


def cut(stretches, shape, rng):
    """Return trials cut from a random place of each stretch, some of the channels, of mean zero and variance one."""
    C, T, N = shape
    channels = np.sort(rng.choice(len(stretches[0]), C, replace=False))
    parts = []
    for n, signal in zip(np.diff(np.linspace(0, N, len(stretches) + 1).astype(int)), stretches, strict=True):
        start = rng.integers(signal.shape[1] - n * T + 1)
        some = signal[channels, start : start + n * T]
        parts.append(some.reshape(C, n, T).transpose(0, 2, 1))
    X = np.concatenate(parts, axis=2)
    X = X - X.mean(axis=(1, 2), keepdims=True)
    return X / X.std(axis=(1, 2), keepdims=True)


# nothing that is on and off


def null(kind, seed, shape=SHAPE):
    """Return a tensor without anything that is on and off along trials."""
    rng = np.random.default_rng([seed, 3])
    if kind == "white":
        return rng.standard_normal(shape)
    if kind == "AR(1)":
        wide = rng.standard_normal((shape[0], shape[1] + 50, shape[2]))
        return scipy.signal.lfilter([1], [1, -0.9], wide, axis=1)[:, 50:]
    if kind in SIGNALS:
        return cut([random_phases(signal, rng) for signal in SIGNALS[kind]()], shape, rng)
    mix = mixing(electrodes(rng, shape[0]))
    E = colored(rng, shape, mix)
    if kind == "1/f":
        return E
    V = smooth_pattern(rng, mix, shape[1])
    return E + 7 / ideal_size(V, mix, 1.0) * V[:, :, None] * AMPLITUDES[kind](rng, shape[2])


def walk(rng, n):
    """Return a random walk of variance one."""
    steps = np.cumsum(rng.standard_normal(n))
    return steps / steps.std()


# in units of d' = 7
AMPLITUDES = {
    "graded, normal": lambda rng, n: 1 + rng.standard_normal(n),
    "graded, exponential": lambda rng, n: rng.exponential(1, n),
    "drift, ramp": lambda rng, n: np.linspace(0, 2, n),
    "drift, random walk": walk,
}
NOISES = ("white", "AR(1)", "1/f", *SIGNALS)  # of which p-values are tested: in the others there is a pattern
NULLS = (*NOISES, *AMPLITUDES)
