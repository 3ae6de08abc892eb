"""From spikes and other events to counts: a tensor unit x time x trial."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp.checks import BoolcpWarning
from boolcp.prepare.common import DataArray
from boolcp.prepare.tables import Table, add_table, read_events
from boolcp.prepare.trials import padded, spans
from boolcp.system import load_extra

SLACK = 1e-6  # of a bin, so that rounding does not move an event across an edge


def count_events(
    units: Any, times: Any, trials: Any, *, bin_ms: float, start: float | None = None, stop: float | None = None
) -> DataArray:
    """Return the number of spikes of each unit in each bin of each trial: a tensor unit x time x trial.

    The time of a bin is its left edge, in seconds.

    Parameters
    ----------
    units, times, trials : array-like of shape (n_events,)
        Unit, time (ms) and trial of each event.
    bin_ms : float
        Length of the bins.
    start, stop : float, optional
        First and last time (ms); by default 0 or the first event if that is earlier, and the last event.

    Examples
    --------
    >>> from boolcp import prepare
    >>> X = prepare.count_events([0, 0, 1], [1.0, 7.0, 12.0], [0, 0, 1], bin_ms=5, stop=15)
    >>> X.sel(unit=0, trial=0).values.tolist()
    [1.0, 1.0, 0.0]
    """
    units, times, trials = (np.ravel(values) for values in (units, times, trials))
    if not len(units) == len(times) == len(trials) or not len(units):
        sizes = f"{len(units)}, {len(times)} and {len(trials)}"
        raise ValueError(f"The vectors of events must be equally long and not empty, got {sizes}.")
    if not bin_ms > 0 or not np.isfinite(times.astype(float)).all():
        raise ValueError("Events need finite times and bins of positive length.")
    start = min(0.0, float(times.min())) if start is None else float(start)
    bins = np.floor((times - start) / bin_ms + SLACK).astype(int)
    n_bins = int(bins.max()) + 1 if stop is None else max(int(np.ceil((stop - start) / bin_ms - SLACK)), 1)
    inside = (bins >= 0) & (bins < n_bins) & (times < (np.inf if stop is None else stop))
    if np.sum(inside) > 1 and np.ptp(bins[inside]) == 0:
        text = f"All events lie in one bin of {bin_ms:g} ms, from {times.min():g} to {times.max():g} ms."
        warnings.warn(f"{text} Times are in ms: multiply seconds by 1000.", BoolcpWarning, stacklevel=2)
    unit_names, unit_index = np.unique(units[inside], return_inverse=True)
    trial_names, trial_index = np.unique(trials[inside], return_inverse=True)
    counts = np.zeros((len(unit_names), n_bins, len(trial_names)))
    np.add.at(counts, (unit_index, bins[inside], trial_index), 1)
    return _labelled(counts, unit_names, trial_names, start + bin_ms * np.arange(n_bins), bin_ms, "events")


def count_spikes(
    spike_times: Sequence[Any] | Mapping[Any, Any],
    events: Table,
    *,
    bin_ms: float,
    window_ms: tuple[float, float] | float | None = None,
    align: str | ArrayLike | None = None,
    units: ArrayLike | None = None,
) -> DataArray:
    """Return the number of spikes of each unit in each bin of each trial, from spike times of the whole session.

    Parameters
    ----------
    spike_times : sequence of array-like, or mapping of unit to array-like
        For each unit the times of its spikes in the session, in seconds.
    events : DataFrame or mapping
        One row for each trial, as in `cut_trials`.
    bin_ms : float
        Length of the bins.
    window_ms, align
        As `ms` and `align` in `cut_trials`. Bins beyond the ends of a trial are NaN, which counts as missing.
    units : sequence, optional
        Labels of the units.

    Examples
    --------
    >>> from boolcp import prepare
    >>> X = prepare.count_spikes([[1.01, 1.02, 3.2], [3.0]], {"onset": [1.0, 3.0], "stop": [1.2, 3.3]}, bin_ms=100)
    >>> X.sel(unit=0).values.T.tolist()
    [[2.0, 0.0, nan], [0.0, 0.0, 1.0]]
    """
    if isinstance(spike_times, Mapping):
        units, spike_times = list(spike_times), list(spike_times.values())
    trains = [np.sort(np.ravel(train).astype(float)) for train in spike_times]
    if not trains or not bin_ms > 0:
        raise ValueError(f"Counting needs units and bins of positive length, got {len(trains)} units and {bin_ms} ms.")
    columns, width = read_events(events), bin_ms / 1000
    zero, before, after = spans(columns, window_ms, align)
    firsts, lasts = np.ceil(before / width - SLACK), np.floor(after / width + SLACK)
    kept = np.flatnonzero(lasts > firsts)
    if not len(kept):
        raise ValueError(f"No trial is as long as one bin of {bin_ms:g} ms.")
    if len(kept) < len(zero):
        text = f"{len(zero) - len(kept)} of {len(zero)} trials are shorter than one bin."
        warnings.warn(text, BoolcpWarning, stacklevel=2)
    pieces = []
    for n in kept:
        edges = zero[n] + width * (np.arange(firsts[n], lasts[n] + 1) - SLACK)
        pieces.append(np.array([np.diff(np.searchsorted(train, edges)) for train in trains], dtype=float))
    counts, first = padded(pieces, firsts[kept].astype(int).tolist())
    names = np.arange(len(trains)) if units is None else np.asarray(units)
    lefts = (first + np.arange(counts.shape[1])) * bin_ms
    X = _labelled(counts, names, np.arange(len(kept)), lefts, bin_ms, "spikes")
    return add_table(X, {name: values[kept] for name, values in columns.items()}, "trial")


def _labelled(
    counts: np.ndarray, units: np.ndarray, trials: np.ndarray, ms: np.ndarray, bin_ms: float, what: str
) -> DataArray:
    """Return counts with their labels; `ms` are the left edges of the bins."""
    coords = {"unit": units, "time": ("time", ms / 1000, {"units": "s"}), "trial": trials}
    X = load_extra("xarray", "labels").DataArray(counts, coords, ("unit", "time", "trial"), name="count")
    X.attrs = {"preparation": [f"count {what} in bins of {bin_ms:g} ms"], "sampling_rate": 1000 / bin_ms}
    return X
