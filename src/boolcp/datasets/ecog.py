"""A simulated recording of brain activity, channels x time x trials, with patterns that are known."""

from dataclasses import dataclass

import numpy as np

from boolcp.atoms import Atom, BooleanCP
from boolcp.labels import Labels


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording with a known answer.

    Attributes
    ----------
    X : ndarray of shape (channels, time, trials)
        The recording: patterns plus background activity.
    clean : ndarray of shape (channels, time, trials)
        The patterns alone, ``truth.to_tensor()``.
    truth : BooleanCP
        The patterns as atoms.
    dims : tuple of str
        The names of the modes, ``("channel", "time", "trial")``.
    labels : tuple of str
        The name of each pattern.
    times : ndarray of shape (time,)
        Seconds from the onset of the stimulus.
    positions : ndarray of shape (channels, 2)
        Where the electrodes lie, in units of their distance.
    """

    X: np.ndarray
    clean: np.ndarray
    truth: BooleanCP
    dims: tuple[str, ...]
    labels: tuple[str, ...]
    times: np.ndarray
    positions: np.ndarray

    def __repr__(self):
        channels, time, trials = self.X.shape
        return f"Recording({channels} channels x {time} samples x {trials} trials: {', '.join(self.labels)})"


def simulate_recording(n_channels=32, n_times=200, n_trials=60, *, noise=1.0, random_state=None):
    """Return a simulated recording with patterns that are Boolean in space, in time or in trials.

    An electrode grid is recorded from 0.2 s before to 0.6 s after a stimulus, trial after trial:

    - *evoked response* (Boolean in trials): a waveform around one electrode, only in trials with a target;
    - *beta burst* (Boolean in space): a 20 Hz oscillation of equal strength on a patch of electrodes and
      nowhere else, its amplitude different in each trial;
    - *sustained shift* (Boolean in time): a shift of the potential that is on while the stimulus is shown and
      off before and after, up on one side of the grid and down on the other, weaker from trial to trial.

    The background has a spectrum that falls like 1/f, is shared by neighboring electrodes, and is independent
    from trial to trial; a fifth of its variance is white sensor noise.

    Parameters
    ----------
    n_channels, n_times, n_trials : int
        The sizes of the recording, at least 8, 50 and 4.
    noise : float
        Standard deviation of the background; the patterns have amplitudes of 1 to 3.
    random_state : int, numpy.random.Generator or None
        Source of randomness.

    Returns
    -------
    Recording
        With `X`, `clean`, `truth`, `dims`, `labels`, `times` and `positions`.

    Examples
    --------
    >>> from boolcp.datasets import simulate_recording
    >>> recording = simulate_recording(random_state=0)
    >>> recording
    Recording(32 channels x 200 samples x 60 trials: evoked response, beta burst, sustained shift)
    >>> recording.truth.n_atoms, recording.dims
    (3, ('channel', 'time', 'trial'))
    """
    for name, size, least in (
        ("n_channels", n_channels, 8),
        ("n_times", n_times, 50),
        ("n_trials", n_trials, 4),
    ):
        if not isinstance(size, int | np.integer) or size < least:
            raise ValueError(f"{name} must be an integer >= {least}, but it is {size!r}.")
    if not (noise >= 0 and np.isfinite(noise)):
        raise ValueError(f"noise is a standard deviation and must be finite and >= 0, but it is {noise!r}.")
    rng = np.random.default_rng(random_state)
    shape = (int(n_channels), int(n_times), int(n_trials))
    positions = electrode_grid(n_channels)
    times = np.linspace(-0.2, 0.6, n_times)
    patterns = {
        "evoked response": _evoked_response(positions, times, n_trials, rng),
        "beta burst": _beta_burst(positions, times, n_trials, rng),
        "sustained shift": _sustained_shift(positions, times, n_trials, rng),
    }
    dims = ("channel", "time", "trial")
    atoms, weights = zip(*(_unit_atom(mode, columns) for mode, columns in patterns.values()), strict=True)
    labels = Labels(dims, {"time": times}, {"time": "s"})
    truth = BooleanCP(shape, atoms, np.array(weights), labels)
    clean = truth.to_tensor()
    X = clean + noise * background(positions, n_times, n_trials, rng)
    return Recording(X, clean, truth, dims, tuple(patterns), times, positions)


def electrode_grid(n_channels):
    """Return positions (n_channels, 2) on a grid about twice as wide as high, row by row."""
    width = int(np.ceil(np.sqrt(2 * n_channels)))
    rows, columns = np.divmod(np.arange(n_channels), width)
    return np.stack([columns, rows], axis=1).astype(float)


def background(positions, n_times, n_trials, rng):
    """Return background activity of standard deviation one, (channels, time, trials)."""
    shape = (len(positions), n_times, n_trials)
    frequencies = np.fft.rfftfreq(n_times)
    amplitude = 1 / np.sqrt(np.maximum(frequencies, frequencies[2]))  # power 1/f
    amplitude[0] = 0  # no offset: amplifiers pass no constant voltage
    spectrum = np.fft.rfft(rng.standard_normal(shape), axis=1) * amplitude[:, None]
    pink = np.fft.irfft(spectrum, n=n_times, axis=1)
    pink = np.tensordot(_bump(positions, positions, 0.7), pink, axes=1)  # neighbors share it
    pink /= pink.std(axis=(1, 2), keepdims=True)
    return np.sqrt(0.8) * pink + np.sqrt(0.2) * rng.standard_normal(shape)


def _evoked_response(positions, times, n_trials, rng):
    """Return a biphasic wave around one electrode, in about 40 % of the trials."""
    center = positions[rng.integers(len(positions))]
    wave = np.exp(-(((times - 0.12) / 0.03) ** 2)) - 0.7 * np.exp(-(((times - 0.22) / 0.06) ** 2))
    on = np.zeros(n_trials, dtype=bool)
    on[rng.permutation(n_trials)[: round(0.4 * n_trials)]] = True
    return 2, [3.0 * _bump(center[None], positions, 1.5)[0], wave, on]


def _beta_burst(positions, times, n_trials, rng):
    """Return a burst of 20 Hz on the quarter of the electrodes nearest to one of them."""
    center = positions[rng.integers(len(positions))]
    distance2 = ((positions - center) ** 2).sum(axis=1)
    on = np.zeros(len(positions), dtype=bool)
    on[np.argsort(distance2, kind="stable")[: len(positions) // 4]] = True
    burst = np.sin(2 * np.pi * 20 * times) * np.exp(-(((times - 0.35) / 0.12) ** 2))
    return 0, [on, burst, rng.gamma(1.0, 1.0, n_trials)]


def _sustained_shift(positions, times, n_trials, rng):
    """Return a shift while the stimulus is shown, up on one side, down on the other, weaker every trial."""
    side = (2 * positions[:, 0] / positions[:, 0].max() - 1) * (1 if rng.random() < 0.5 else -1)
    on = (times >= 0.05) & (times < 0.45)
    fatigue = 1.5 * np.exp(-3 * np.arange(n_trials) / n_trials)
    return 1, [side, on, fatigue]


def _bump(centers, positions, width):
    """Return exp(-|r - r'|^2 / (2 width^2)) (centers, positions)."""
    distance2 = ((centers[:, None, :] - positions[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-distance2 / (2 * width**2))


def _unit_atom(mode, columns):
    """Return the atom of one column per mode, its real columns scaled to norm one, and its size."""
    real = [column for n, column in enumerate(columns) if n != mode]
    sizes = [np.linalg.norm(column) for column in real]
    factors = tuple((column / size)[:, None] for column, size in zip(real, sizes, strict=True))
    return Atom(mode, columns[mode], factors), float(np.prod(sizes))
