"""NeuroTycho recordings: a folder or zip of sessions, each with one MATLAB file per channel, or one for all."""

import warnings
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from tqdm import tqdm

from boolcp.checks import BoolcpWarning
from boolcp.extras import load_extra
from boolcp.io.coordinates import read_electrodes
from boolcp.io.errors import FileError
from boolcp.io.matlab import list_variables, read_variable
from boolcp.io.neurotycho_files import (
    choose_session,
    find_sessions,
    first_channel,
    matrix_shape,
    on_disk,
    opened,
    read_event_times,
    read_events,
    read_matrix,
    read_trials,
    read_vector,
)


@dataclass(frozen=True)
class Stretch:
    """A part of a session under one condition: samples start <= n < stop."""

    label: str
    start: int
    stop: int


def read_neurotycho(
    path: str | PathLike[str],
    *,
    condition: Any = None,
    session: Any = None,
    channels: Any = None,
    skip_bad: bool = False,
    sampling_rate: float | None = None,
    electrodes: Any = None,
    progress: bool = False,
) -> Any:
    """Return a NeuroTycho recording as a DataArray channel x time in float32, read channel by channel.

    The options are those of `boolcp.open_tensor`. A condition takes its segments from all sessions; without one, a
    single session is read. Channels that are cut into trials give channel x time x trial. The signal of an Event.mat
    file, or of the last row of a matrix of all channels, is the coordinate "event" along time; `attrs` list the
    conditions.
    """
    with opened(path) as root:
        sessions = choose_session(path, find_sessions(path, root), session)
        if condition is None and len(sessions) > 1:
            names = "; ".join(f"{item.name} ({_labels_text(item)})" for item in sessions)
            raise FileError(path, "has several sessions", f"Choose a session or a condition of {names}.")
        if condition is not None and any(item.trials is not None for item in sessions):
            raise FileError(path, "is cut into trials and has no conditions", "Leave condition= (--condition) out.")
        matrices = {item.name: on_disk(first_channel(item), read_matrix) for item in sessions if item.is_matrix}
        times = [_read_times(item, sampling_rate) for item in sessions]
        stretches = [_read_stretches(item, t) for item, t in zip(sessions, times, strict=True)]
        parts = _find_parts(path, sessions, times, stretches, condition)
        values, numbers, bad = _read_channels(path, parts, channels, skip_bad, progress, matrices)
        found = electrodes if electrodes is not None else next((s.electrodes for s in sessions if s.electrodes), None)
        coords = _channel_coords(numbers, {} if found is None else on_disk(found, read_electrodes))
        dims = ["channel", "time"]
        if sessions[0].trials is None:
            coords |= _time_coords(parts, times, is_split=condition is not None) | _event_coord(parts, matrices)
        else:
            values = values.reshape(len(values), *sessions[0].trials).transpose(0, 2, 1)
            coords |= {"time": ("time", times[0], {"units": "s"}), "trial": ("trial", np.arange(values.shape[2]))}
            dims.append("trial")
    X = load_extra("xarray", "labels").DataArray(values, coords, dims, name="ECoG")
    X.attrs = {"units": "µV", "sampling_rate": sampling_rate or _rate(path, times[0]), "left_out": bad}
    if condition is None:
        X.attrs |= _condition_attrs(stretches[0], times[0])
    else:
        X.attrs["preparation"] = [f"condition {condition}"]
    return X


def _find_parts(path: Any, sessions: Any, times: Any, stretches: Any, condition: Any) -> Any:
    """Return for each session the number of its samples and the slices of them to read."""
    parts = []
    for session, t, s in zip(sessions, times, stretches, strict=True):
        n_samples = _n_samples(session, t)
        slices = [slice(one.start, one.stop) for one in s if one.label.lower() == str(condition).lower()]
        parts.append((session, n_samples, [slice(0, n_samples)] if condition is None else slices))
    if not any(slices for _, _, slices in parts):
        known = sorted({s.label for group in stretches for s in group}) or ["none at all"]
        raise FileError(path, f"has no condition {condition!r}", f"Its conditions are {', '.join(known)}.")
    return parts


def _n_samples(session: Any, times: Any) -> Any:
    """Return how many numbers a channel of a session has."""
    if session.trials is None:
        return len(times)
    if len(times) != session.trials[1]:
        problem = f"has {len(times)} samples, but the trials have {session.trials[1]}"
        raise FileError(session.time, problem, "The two come from different sessions: use the original files.")
    return session.trials[0] * session.trials[1]


def _read_times(session: Any, sampling_rate: float | None) -> Any:
    """Return the times of the samples of a session, in seconds."""
    file, times = session.time, None
    if file is not None:
        times = np.asarray(on_disk(file, read_vector), dtype=float)
    elif session.event is not None and session.trials is None:
        file, times = session.event, on_disk(session.event, read_event_times)
    if times is None:
        if sampling_rate is None:
            advice = "Copy ECoGTime.mat beside it, or give the sampling rate (sampling_rate=, --sampling-rate)."
            raise FileError(first_channel(session), "has no time file beside it", advice)
        return np.arange(_count(session)) / sampling_rate
    if len(times) < 2 or not np.all(np.diff(times) > 0):
        raise FileError(file, "its times do not increase", "It is not a time file: use the original one.")
    return times


def _count(session: Any) -> Any:
    """Return the number of samples of a session without times, of one trial if it is cut into trials."""
    if session.trials is not None:
        return session.trials[1]
    if session.is_matrix:
        return on_disk(first_channel(session), matrix_shape)[1]
    return len(on_disk(first_channel(session), read_vector))


def _rate(path: Any, times: Any) -> float:
    steps = np.diff(times)
    if np.mean(np.abs(steps - np.median(steps)) > 0.1 * np.median(steps)) > 0.01:
        raise FileError(path, "its times are not evenly spaced", "Give the sampling rate (--sampling-rate).")
    return float(round((len(times) - 1) / (times[-1] - times[0]), 3))


def _read_stretches(session: Any, times: Any) -> Any:
    """Return the conditions of a session as segments of samples, clipped to the recording."""
    if session.condition is None or session.trials is not None:
        return []
    labels, starts = on_disk(session.condition, lambda path: read_conditions(path, times))
    open_at, stretches = {}, []
    for label, sample in zip(labels, starts, strict=True):
        name, _, side = label.rpartition("-")
        if side.lower() == "start":
            open_at[name] = sample
        elif side.lower() == "end":
            stretches.append(Stretch(name, open_at.pop(name, 0), sample + 1))
    stretches += [Stretch(name, start, len(times)) for name, start in open_at.items()]
    clipped = [Stretch(s.label, max(s.start, 0), min(s.stop, len(times))) for s in stretches]
    return [s for s in clipped if s.start < s.stop]


def read_conditions(path: Any, times: Any = None) -> Any:
    """Return the labels of a Condition.mat and the sample (from 0) at which each applies.

    The samples come from ConditionIndex (from 1), or from ConditionTime and the times of the recording; with neither,
    they are the times themselves, in seconds. The three may lie in a struct.
    """
    names = {name.rpartition(".")[2].lower(): name for name in list_variables(path)}
    if "conditionlabel" not in names or not {"conditionindex", "conditiontime"} & set(names):
        advice = "A Condition.mat has ConditionLabel and ConditionIndex or ConditionTime."
        raise FileError(path, "has no conditions", advice)
    labels = np.atleast_1d(np.asarray(read_variable(path, names["conditionlabel"]), dtype=str)).tolist()
    if "conditionindex" in names:
        samples = np.atleast_1d(read_variable(path, names["conditionindex"])).astype(float).round().astype(int) - 1
    else:
        samples = np.atleast_1d(read_variable(path, names["conditiontime"])).astype(float)
        if times is not None:
            samples = np.searchsorted(times - times[0], samples - np.median(np.diff(times)) / 2)
    if len(labels) != len(samples):
        raise FileError(path, f"has {len(labels)} labels but {len(samples)} times", "Use the original file.")
    return labels, samples.tolist()


def _read_channels(path: Any, parts: Any, wanted: Any, skip_bad: bool, progress: bool, matrices: Any) -> Any:
    """Return the requested samples as one array (channels, samples), the channel numbers, and the bad channels."""
    parts = [part for part in parts if part[2]]
    known = sorted(set.intersection(*(set(session.channels) for session, _, _ in parts)))
    numbers = known if wanted is None else [_number(path, item, known) for item in wanted]
    n_samples = sum(s.stop - s.start for _, _, slices in parts for s in slices)
    values = np.empty((len(numbers), n_samples), np.float32)
    good: list[int] = []
    bad: list[int] = []
    for number in tqdm(numbers, desc="channels", disable=None if progress else True):
        try:
            _read_row(values[len(good)], number, parts, matrices)
            good.append(number)
        except FileError as error:
            if not skip_bad:
                advice = f"{error.advice} Or skip the channel (skip_bad=True, --skip-bad)."
                raise FileError(error.path, error.problem, advice) from error
            bad.append(number)
            warnings.warn(f"Skipped channel {number}: {error.path}: {error.problem}.", BoolcpWarning, stacklevel=4)
    if not good:
        raise FileError(path, "has no channel that can be read", "Copy or download it again.")
    return values[: len(good)], good, bad


def _read_row(row: Any, number: Any, parts: Any, matrices: Any) -> None:
    """Fill one row with the requested samples of one channel."""
    position = 0
    for session, n_times, slices in parts:
        file = session.channels[number]
        if session.is_matrix:
            signal = matrices[session.name][0][number - 1]
        elif session.trials is not None:
            signal = np.ravel(on_disk(file, partial(read_trials, shape=session.trials)))
        else:
            signal = on_disk(file, read_vector)
        if len(signal) != n_times:
            problem = f"has {len(signal)} samples, but the time file has {n_times}"
            raise FileError(file, problem, "The two come from different sessions: use the original files.")
        for part in slices:
            size = part.stop - part.start
            row[position : position + size] = signal[part]
            position += size


def _number(path: Any, item: Any, known: Any) -> int:
    text = str(item)
    if not text.isdigit() or int(text) not in known:
        raise FileError(
            path, f"has no channel {text}", f"Its {len(known)} channels run from {known[0]} to {known[-1]}."
        )
    return int(text)


def _time_coords(parts: Any, times: Any, is_split: bool) -> Any:
    pieces = [(t, part, item.name) for (item, _, slices), t in zip(parts, times, strict=True) for part in slices]
    coords = {"time": ("time", np.concatenate([t[part] for t, part, _ in pieces]), {"units": "s"})}
    if is_split and len(pieces) > 1:
        sizes = [part.stop - part.start for _, part, _ in pieces]
        coords["segment"] = "time", np.repeat(np.arange(len(pieces)), sizes), {}
    return coords


def _event_coord(parts: Any, matrices: Any) -> Any:
    """Return the event signal along time, if every session has one."""
    signals = []
    for session, n_times, slices in parts:
        if session.is_matrix:
            signal = matrices[session.name][1]
        elif session.event is not None:
            signal = on_disk(session.event, partial(read_events, n_times=n_times))
        else:
            return {}
        signals += [signal[part] for part in slices]
    return {"event": ("time", np.concatenate(signals))}


def _channel_coords(numbers: Any, places: Any) -> Any:
    coords = {"channel": ("channel", np.array(numbers))}
    if places and all(number in places for number in numbers):
        for axis, name in (("x", "x"), ("y", "height")):
            coords[axis] = "channel", np.array([getattr(places[number], name) for number in numbers])
        if all(places[number].area for number in numbers):
            coords["area"] = "channel", np.array([places[number].area for number in numbers])
    return coords


def _condition_attrs(stretches: Any, times: Any) -> Any:
    if not stretches:
        return {}
    end = np.append(times, 2 * times[-1] - times[-2])
    return {
        "condition_label": [s.label for s in stretches],
        "condition_start": [float(end[s.start]) for s in stretches],
        "condition_stop": [float(end[s.stop]) for s in stretches],
    }


def _labels_text(session: Any) -> Any:
    if session.condition is None or session.trials is not None:
        return f"{len(session.channels)} channels"
    stretches = _read_stretches(session, _read_times(session, 1000.0))
    return ", ".join(dict.fromkeys(s.label for s in stretches)) or "no conditions"


def describe_recording(path: Any) -> Any:
    """Return the sessions, channels and conditions of a recording as lines of text."""
    lines = []
    with opened(path) as root:
        for session in find_sessions(path, root):
            if session.trials is not None:
                n_trials, size = session.trials
                lines.append(f"{session.name}: {len(session.channels)} channels, {n_trials} trials of {size} samples")
                continue
            times = _read_times(session, 1000.0)
            span = times[-1] - times[0]
            lines.append(f"{session.name}: {len(session.channels)} channels, {len(times)} samples, {span:.1f} s")
            if session.event is not None or session.is_matrix:
                lines.append("  with an event signal")
            for s in _read_stretches(session, times):
                start, stop = times[s.start] - times[0], times[s.stop - 1] - times[0]
                lines.append(f"  {s.label}: {start:.2f} to {stop:.2f} s")
    return lines
