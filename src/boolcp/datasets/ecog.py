"""Simulated recordings of brain activity, channels x time x trials, with known patterns."""

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from boolcp.checks import check_integer, check_number
from boolcp.datasets.synthetic import Pattern, sum_of
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import Labels
from boolcp.system import load_extra

AREAS = {  # of a schematic cortex: number of electrodes out of 128, and the center of the area
    "MP": (10, (1.0, 9.0)),
    "LP": (18, (2.0, 4.5)),
    "PM": (14, (6.0, 9.5)),
    "MS": (22, (8.5, 5.0)),
    "PC": (16, (12.5, 9.5)),
    "TC": (14, (8.0, 0.5)),
    "HV": (10, (14.0, 2.0)),
    "LV": (24, (16.5, 6.0)),
}
CONDITIONS = {  # label in files, frequency of its rhythm in Hz, strength of its patterns
    "rest": ("AwakeEyesClosed", 10.0, 1.0),
    "anesthesia": ("Anesthetized", 2.0, 1.6),
    "recovery": ("RecoveryEyesClosed", 5.0, 1.2),
}
SCALE = 30.0  # microvolts of one standard deviation of the background
LEAD = 500  # samples before and after a condition


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording with a known answer.

    Attributes
    ----------
    X, clean, truth : ndarray, ndarray, BooleanCP
        The recording (channel x time x trial), patterns plus background; the patterns alone, and as atoms.
    dims, labels : tuple of str
        The names of the modes, ``("channel", "time", "trial")``, and of the patterns.
    times, positions : ndarray of shape (time,) and (channels, 2)
        Seconds from the onset of the stimulus; electrodes, in units of their spacing.

    Examples
    --------
    >>> recording = boolcp.datasets.simulate_recording(random_state=0)
    >>> recording.X.shape, recording.positions.shape, recording.truth.n_atoms
    ((32, 200, 60), (32, 2), 3)
    """

    X: np.ndarray
    clean: np.ndarray
    truth: BooleanCP
    dims: tuple[str, ...]
    labels: tuple[str, ...]
    times: np.ndarray
    positions: np.ndarray

    def __repr__(self) -> str:
        channels, time, trials = self.X.shape
        return f"Recording({channels} channels x {time} samples x {trials} trials: {', '.join(self.labels)})"


def simulate_recording(
    n_channels: int = 32, n_times: int = 200, n_trials: int = 60, *, noise: float = 1.0, random_state: Any = None
) -> Recording:
    """Return a simulated Recording with patterns that are Boolean in space, in time or in trials.

    Each trial records an electrode grid from 0.2 s before to 0.6 s after a stimulus. There are three patterns:

    - *evoked response* (Boolean in trials): a waveform around one electrode, only in trials with a target;
    - *beta burst* (Boolean in space): 20 Hz on a patch of electrodes, with a different amplitude in each trial;
    - *sustained shift* (Boolean in time): during the stimulus, of opposite sign on the two sides, weaker in each trial.

    The background has a 1/f spectrum and is shared by neighbors; a fifth of its variance is white sensor noise.

    Parameters
    ----------
    n_channels, n_times, n_trials : int
        The sizes of the recording, at least 8, 50 and 4.
    noise, random_state : float, int or Generator or None
        Standard deviation of the background (the patterns have amplitudes of 1 to 3), and seed.

    Examples
    --------
    >>> boolcp.datasets.simulate_recording(random_state=0)
    Recording(32 channels x 200 samples x 60 trials: evoked response, beta burst, sustained shift)
    """
    for name, size, least in (("n_channels", n_channels, 8), ("n_times", n_times, 50), ("n_trials", n_trials, 4)):
        check_integer(size, name, least)
    check_number(noise, "noise")
    rng = np.random.default_rng(random_state)
    rows, columns = np.divmod(np.arange(n_channels), int(np.ceil(np.sqrt(2 * n_channels))))
    positions = np.stack([columns, rows], axis=1).astype(float)  # a grid about twice as wide as high, row by row
    times = np.linspace(-0.2, 0.6, n_times)
    patterns = _recording_patterns(positions, times, n_trials, rng)
    dims = ("channel", "time", "trial")
    truth = sum_of((n_channels, n_times, n_trials), patterns.values(), Labels(dims, {"time": times}, {"time": "s"}))
    clean = truth.to_array()
    X = clean + noise * background(positions, n_times, n_trials, rng)
    return Recording(X, clean, truth, dims, tuple(patterns), times, positions)


def background(positions: np.ndarray, n_times: int, n_trials: int, rng: np.random.Generator) -> np.ndarray:
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


def _recording_patterns(
    positions: np.ndarray, times: np.ndarray, n_trials: int, rng: np.random.Generator
) -> dict[str, Pattern]:
    """Return the mode, the bits and the columns of the three patterns of a recording, by name."""
    places, trials = np.arange(len(positions)), np.arange(n_trials)
    around = 3.0 * _bump(positions[rng.integers(len(positions))][None], positions, 1.5)[0]
    wave = np.exp(-(((times - 0.12) / 0.03) ** 2)) - 0.7 * np.exp(-(((times - 0.22) / 0.06) ** 2))
    targets = np.isin(trials, rng.permutation(n_trials)[: round(0.4 * n_trials)])
    distance2 = ((positions - positions[rng.integers(len(positions))]) ** 2).sum(axis=1)
    patch = np.isin(places, np.argsort(distance2, kind="stable")[: len(positions) // 4])
    burst = np.sin(2 * np.pi * 20 * times) * np.exp(-(((times - 0.35) / 0.12) ** 2))
    amplitudes = rng.gamma(1.0, 1.0, n_trials)
    side = (2 * positions[:, 0] / positions[:, 0].max() - 1) * (1 if rng.random() < 0.5 else -1)
    return {
        "evoked response": (2, targets, [around, wave]),
        "beta burst": (0, patch, [burst, amplitudes]),
        "sustained shift": (1, (times >= 0.05) & (times < 0.45), [side, 1.5 * np.exp(-3 * trials / n_trials)]),
    }


def _bump(centers: np.ndarray, positions: np.ndarray, width: float) -> np.ndarray:
    """Return exp(-|r - r'|^2 / (2 width^2)) (centers, positions)."""
    distance2 = ((centers[:, None, :] - positions[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-distance2 / (2 * width**2))


@dataclass(frozen=True, eq=False)
class EcogSimulation:
    """A simulated ECoG recording with a known answer for each condition.

    Attributes
    ----------
    sessions, truth : dict of str to DataArray, dict of str to BooleanCP
        The voltages (channel x time, microvolts) of each condition, with coordinates "x", "y" and "area"; its patterns,
        for the tensor channel x time x trial that `tensor` returns.
    patterns, trial_ms : tuple of str, float
        The name of each pattern, in the order of the atoms; the length of a trial.

    Examples
    --------
    >>> simulation = boolcp.datasets.simulate_ecog(n_channels=16, n_trials=4, trial_ms=500, random_state=0)
    >>> simulation.patterns, simulation.tensor("anesthesia").shape
    (('area rhythm', 'up state', 'slow wave'), (16, 500, 4))
    >>> import tempfile
    >>> simulation.write_neurotycho(folder := f"{tempfile.mkdtemp()}/recording")
    >>> boolcp.open_tensor(folder, condition="Anesthetized").sizes["channel"]
    16
    """

    sessions: dict[str, Any]
    truth: dict[str, BooleanCP]
    patterns: tuple[str, ...]
    trial_ms: float

    def tensor(self, condition: str) -> Any:
        """Return the recording under one condition, cut into trials: channel x time x trial."""
        from boolcp import prepare

        label = CONDITIONS[condition][0]
        return prepare.cut_trials(prepare.select_condition(self.sessions[condition], label), self.trial_ms)

    def write_neurotycho(self, folder: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the recording as a NeuroTycho folder, one session for each condition."""
        from boolcp.io.neurotycho import write_neurotycho

        write_neurotycho(self.sessions.values(), folder, overwrite=overwrite)

    def __repr__(self) -> str:
        n_channels, _, n_trials = next(iter(self.truth.values())).shape
        what = f"{n_channels} channels, {n_trials} trials of {self.trial_ms:g} ms"
        return f"EcogSimulation({what}: {', '.join(self.truth)})"


def simulate_ecog(
    n_channels: int = 128,
    n_trials: int = 20,
    *,
    trial_ms: int = 3000,
    noise: float = 1.0,
    reference: float = 1.5,
    random_state: Any = None,
) -> EcogSimulation:
    """Return an EcogSimulation, a recording at 1 kHz under rest, anesthesia and recovery, with known patterns.

    Electrodes lie in eight areas of a schematic cortex. Each condition has three patterns that repeat over trials:

    - *area rhythm* (Boolean in space): an oscillation in two areas, with a different size and sign in each trial;
    - *up state* (Boolean in time): a shift that is on in a part of each trial; its strength varies over the cortex;
    - *slow wave* (Boolean in trials): a wave around one electrode, in some of the trials.

    All channels carry the activity of a common reference, which `boolcp.prepare.common_average` removes.

    Parameters
    ----------
    n_channels, n_trials, trial_ms : int
        Number of electrodes (at least 8) and of trials under each condition, length of a trial in ms (at least 100).
    noise, reference, random_state : float, float, int or Generator or None
        Sizes of the background and of the activity of the common reference, and seed.

    Examples
    --------
    >>> boolcp.datasets.simulate_ecog(n_channels=16, n_trials=4, trial_ms=500, random_state=0)
    EcogSimulation(16 channels, 4 trials of 500 ms: rest, anesthesia, recovery)
    """
    for name, size, least in (("n_channels", n_channels, 8), ("n_trials", n_trials, 2), ("trial_ms", trial_ms, 100)):
        check_integer(size, name, least)
    check_number(noise, "noise")
    rng = np.random.default_rng(random_state)
    positions, areas = cortex(n_channels)
    times = np.arange(trial_ms) / 1000
    coords = {"channel": np.arange(1, n_channels + 1), "time": times, "trial": np.arange(n_trials)}
    extra = {"x": ("channel", positions[:, 0]), "y": ("channel", positions[:, 1]), "area": ("channel", areas)}
    labels = Labels(("channel", "time", "trial"), coords, {"time": "s"}, extra, "ECoG")
    sessions, truth = {}, {}
    for condition, (label, frequency, strength) in CONDITIONS.items():
        patterns = _ecog_patterns(positions, areas, times, n_trials, SCALE * strength, frequency, rng)
        truth[condition] = sum_of((n_channels, trial_ms, n_trials), patterns.values(), labels)
        sessions[condition] = _ecog_session(truth[condition], label, noise, reference, rng)
    return EcogSimulation(sessions, truth, tuple(patterns), trial_ms)


def cortex(n_channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions (n_channels, 2) of electrodes on a schematic cortex, and the area of each."""
    total = sum(count for count, _ in AREAS.values())
    ends = np.rint(np.cumsum([count for count, _ in AREAS.values()]) * n_channels / total).astype(int)
    positions, areas = [], []
    for (name, (_, center)), size in zip(AREAS.items(), np.diff(ends, prepend=0), strict=True):
        order = np.arange(size) + 0.5
        angle = np.pi * (3 - np.sqrt(5)) * order  # a sunflower: even spacing on a disk
        disk = 0.55 * np.sqrt(order)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        positions.append(np.array(center) + disk)
        areas += [name] * int(size)
    return np.concatenate(positions), np.array(areas)


def _ecog_patterns(
    positions: np.ndarray, areas: np.ndarray, times: np.ndarray, n_trials: int, size: float, frequency: float, rng: Any
) -> dict[str, Pattern]:
    """Return the mode, the bits and the columns of the three patterns of one condition, by name."""
    length = times[-1] + 1e-3
    pair = rng.choice(np.unique(areas), 2, replace=False)
    rhythm = np.sin(2 * np.pi * frequency * times) * np.exp(-(((times / length - 0.5) / 0.25) ** 2))
    start = rng.uniform(0.1, 0.5) * length
    up = (times >= start) & (times < start + 0.35 * length)
    slope = positions @ rng.standard_normal(2)
    slope = (slope - slope.mean()) / slope.std()
    focus = 3 * _bump(positions[rng.integers(len(positions))][None], positions, 2.5)[0]
    phase = rng.uniform(0.2, 0.4) * length
    wave = np.exp(-(((times - phase) / (0.08 * length)) ** 2))
    wave = wave - 0.7 * np.exp(-(((times - 1.8 * phase) / (0.12 * length)) ** 2))
    sizes = rng.uniform(0.5, 1.5, n_trials) * rng.permutation(np.resize([1, -1], n_trials))
    on = np.isin(np.arange(n_trials), rng.permutation(n_trials)[: max(round(0.4 * n_trials), 1)])
    return {
        "area rhythm": (0, np.isin(areas, pair), [1.5 * size * rhythm, sizes]),
        "up state": (1, up, [0.6 * size * slope, np.linspace(1.5, 0.5, n_trials)]),
        "slow wave": (2, on, [size * focus, wave]),
    }


def _ecog_session(W: BooleanCP, label: str, noise: float, reference: float, rng: np.random.Generator) -> Any:
    """Return a session: patterns in consecutive trials, background and common reference, with LEAD samples around."""
    xarray, extra = load_extra("xarray", "files"), dict(W.labels.extra) if W.labels is not None else {}
    clean = W.to_array().transpose(0, 2, 1).reshape(W.shape[0], -1)
    n_times = clean.shape[1] + 2 * LEAD
    places = np.stack([extra["x"][1], extra["y"][1]], axis=1)
    voltage = SCALE * noise * background(places, n_times, 1, rng)[:, :, 0]
    voltage += SCALE * reference * background(np.zeros((1, 2)), n_times, 1, rng)[0, :, 0]
    voltage[:, LEAD:-LEAD] += clean
    times = (np.arange(n_times) + 1) / 1000
    coords = {"channel": np.arange(1, W.shape[0] + 1), "time": ("time", times, {"units": "s"}), **extra}
    X = xarray.DataArray(voltage.astype(np.float32), coords, ("channel", "time"), name="ECoG")
    X.attrs = {"units": "µV", "sampling_rate": 1000.0, "condition_label": [label]}
    X.attrs |= {"condition_start": [float(times[LEAD])], "condition_stop": [float(times[-LEAD])]}
    return X
