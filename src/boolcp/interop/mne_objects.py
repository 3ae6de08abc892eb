"""From MNE objects to labelled tensors, in microvolts, with events and the table of trials; and bits back to MNE."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from boolcp.checks import BoolcpWarning
from boolcp.prepare import add_table, set_events
from boolcp.result.atoms import BooleanCP
from boolcp.result.events import bids_events
from boolcp.result.labels import label_text
from boolcp.system import load_extra

CHUNK_SECONDS = 60  # of a continuous recording read at a time
UNITS = {"mag": ("fT", 1e15), "grad": ("fT/cm", 1e13), "hbo": ("µM", 1e6), "hbr": ("µM", 1e6), "csd": ("mV/m²", 1e3)}
UNITS |= dict.fromkeys(("eeg", "ecog", "seeg", "dbs", "eog", "ecg", "emg", "bio"), ("µV", 1e6))
NAMES = {"eeg": "EEG", "ecog": "ECoG", "seeg": "sEEG", "dbs": "DBS", "mag": "MEG", "grad": "MEG", "csd": "CSD"}


def from_mne(inst: Any, *, picks: str | list = "data", reject: bool = False) -> Any:
    """Return an MNE object as a DataArray, in microvolts (fT, fT/cm), with channel names and positions.

    Parameters
    ----------
    inst : Raw, Epochs, Evoked, list of Evoked, EpochsTFR, AverageTFR, RawTFR, EpochsSpectrum or Spectrum
        The recording: channel x time, "frequency" after "channel" for power, and last "trial" for epochs, "condition"
        for a list of Evoked. A Raw is read in pieces.
    picks : str or list
        Which channels, as in MNE. Channels marked as bad are dropped unless they are named.
    reject : bool
        Set the samples of a Raw under BAD annotations to NaN, that is, missing. (Epochs are rejected by MNE.)

    Returns
    -------
    DataArray
        In float32, with positions "x", "y", "z" (m). Epochs have the names of their events as the coordinate
        "condition", and their `metadata`; Raw has its annotations as events, and those with a duration as conditions.

    Examples
    --------
    >>> import mne
    >>> raw = mne.io.RawArray(np.full((2, 100), 1e-6), mne.create_info(["Fz", "Cz"], 100.0, "eeg"), verbose=False)
    >>> X = boolcp.interop.from_mne(raw)
    >>> dict(X.sizes), float(X[0, 0]), X.attrs["units"]
    ({'channel': 2, 'time': 100}, 1.0, 'µV')
    """
    mne = load_extra("mne", "mne")
    if isinstance(inst, list | tuple):
        return _from_evoked(mne, inst, picks)
    if not isinstance(getattr(inst, "info", None), mne.Info) or not hasattr(inst, "get_data"):
        kinds = "Raw, Epochs, a list of Evoked, TFR or Spectrum objects of MNE"
        raise TypeError(f"from_mne takes {kinds}, got {type(inst).__name__}.")
    is_raw = isinstance(inst, mne.io.BaseRaw)
    with mne.use_log_level("ERROR"):
        inst, before = inst.copy(), set(inst.info["bads"])
        if hasattr(inst, "load_data") and hasattr(inst, "event_id"):
            inst.load_data()
        inst.pick(picks, exclude="bads" if isinstance(picks, str) else ())
        bads = sorted(before - set(inst.ch_names))
        factors, unit, name = _scale(inst)
        X = _labelled(inst, _read_raw(inst, factors, reject) if is_raw else _read(inst, factors))
        X = X.assign_attrs(units=unit).rename(name)
        if "trial" in X.dims:
            X = _with_trials(inst, X)
        elif is_raw:
            X = _with_annotations(inst, X)
        if bads:
            X.attrs |= {"left_out": bads, "preparation": [f"channels marked as bad left out: {', '.join(bads)}"]}
        return X


def to_annotations(W: BooleanCP, *, orig_time: Any = None) -> Any:
    """Return where atoms are on along time, or in trials with onsets, as mne.Annotations "atom_0", "atom_1", ..

    Examples
    --------
    >>> X = xr.DataArray(np.outer([1, 0, 0, 1, 1, 0], [1, 2, 3.0]), {"time": np.arange(6) / 10}, ("time", "channel"))
    >>> W = boolcp.decompose(X, 1, boolean_modes=["time"], random_state=0)
    >>> boolcp.interop.to_annotations(W).onset.round(1).tolist()
    [0.0, 0.3]
    """
    table = bids_events(W)
    columns = (table[name].to_numpy() for name in ("onset", "duration", "trial_type"))
    return load_extra("mne", "mne").Annotations(*columns, orig_time=orig_time)


def add_metadata(epochs: Any, W: BooleanCP) -> Any:
    """Return a copy of MNE Epochs whose metadata have a Boolean column atom_k for each atom along the trials.

    ``epochs["atom_1"]`` are then the epochs in which atom 1 is on. Trials are matched by their number (`selection`).

    Examples
    --------
    >>> import mne
    >>> info = mne.create_info(2, 100.0, "eeg")
    >>> values = 1e-6 * np.array([1, 0, 1, 0])[:, None, None] * np.ones((4, 2, 30))
    >>> epochs = mne.EpochsArray(values, info, verbose=False)
    >>> X = boolcp.interop.from_mne(epochs)
    >>> W = boolcp.decompose(X, 1, boolean_modes=["trial"], random_state=0)
    >>> len(boolcp.interop.add_metadata(epochs, W)["atom_0"])
    2
    """
    if W.dims is None or "trial" not in W.dims:
        raise ValueError("The decomposition has no mode 'trial': fit the DataArray that from_mne returns.")
    mode = W.dims.index("trial")
    known = W.labels.coords.get("trial", np.arange(W.shape[mode]))  # type: ignore[union-attr]
    places = {label_text(label): n for n, label in enumerate(known)}
    if missing := [str(label) for label in epochs.selection if label_text(label) not in places]:
        raise ValueError(f"{len(missing)} of the epochs are no trials of the fit, for example {missing[0]}.")
    order = [places[label_text(label)] for label in epochs.selection]
    columns = {f"atom_{k}": atom.z[order] for k, atom in enumerate(W.atoms) if atom.mode == mode}
    copy, pandas = epochs.copy(), load_extra("pandas", "files")
    rows = pandas.DataFrame(index=range(len(epochs))) if epochs.metadata is None else epochs.metadata
    with load_extra("mne", "mne").use_log_level("ERROR"):
        copy.metadata = rows.assign(**columns)
    return copy


def _scale(inst: Any) -> tuple[np.ndarray, str, str]:
    """Return each channel's factor to the displayed unit, this unit, and the name of the quantity."""
    kinds = inst.get_channel_types()
    looks = [UNITS.get(kind, ("SI", 1.0)) for kind in kinds]
    factors, units = np.array([factor for _, factor in looks]), list(dict.fromkeys(unit for unit, _ in looks))
    names = list(dict.fromkeys(NAMES.get(kind, kind) for kind in kinds))
    if len(units) > 1:
        words = f"The channels have different units ({', '.join(units)})"
        warnings.warn(f"{words}: choose one kind (picks=), or use prepare.zscore.", BoolcpWarning, stacklevel=4)
    unit, name = ", ".join(units), " and ".join(names)
    if not hasattr(inst, "freqs"):  # of power
        return factors, unit, name
    if getattr(inst, "baseline", None) is not None:  # a ratio or a difference: MNE does not say
        return np.ones(len(kinds)), "relative to baseline", f"{name} power"
    return factors**2, f"{unit}²" if hasattr(inst, "times") else f"{unit}²/Hz", f"{name} power"


def _dims(inst: Any) -> list[str]:
    """Return the modes of an object, in the order of MNE."""
    has = {"trial": "event_id", "frequency": "freqs", "time": "times"}
    return [dim for dim in ("trial", "channel", "frequency", "time") if dim == "channel" or hasattr(inst, has[dim])]


def _read(inst: Any, factors: np.ndarray) -> np.ndarray:
    """Return the numbers of any object but Raw in float32, in the displayed unit."""
    values, dims = inst.get_data(), _dims(inst)
    if np.iscomplexobj(values):
        raise ValueError(f"{type(inst).__name__} holds complex numbers: compute power (output='power') instead.")
    return (values * np.expand_dims(factors, [n for n, dim in enumerate(dims) if dim != "channel"])).astype(np.float32)


def _read_raw(raw: Any, factors: np.ndarray, reject: bool) -> np.ndarray:
    """Return the numbers of a Raw in float32, read in pieces, in the displayed unit."""
    values = np.empty((len(raw.ch_names), len(raw.times)), np.float32)
    step = max(int(CHUNK_SECONDS * raw.info["sfreq"]), 1)
    for start in range(0, values.shape[1], step):
        stop = min(start + step, values.shape[1])
        part = raw.get_data(start=start, stop=stop, reject_by_annotation="NaN" if reject else None)
        values[:, start:stop] = factors[:, None] * part
    return values


def _labelled(inst: Any, values: np.ndarray) -> Any:
    """Return numbers with the labels of channels, frequencies and times, trials last."""
    coords: dict[str, Any] = {"channel": ("channel", np.array(inst.ch_names))}
    places = np.array([channel["loc"][:3] for channel in inst.info["chs"]], dtype=float)
    if np.isfinite(places).all() and places.any(axis=1).all():
        coords |= {axis: ("channel", places[:, n], {"units": "m"}) for n, axis in enumerate("xyz")}
    kinds, dims = inst.get_channel_types(), _dims(inst)
    coords |= {"type": ("channel", np.array(kinds))} if len(set(kinds)) > 1 else {}
    attrs: dict[str, Any] = {}
    if "frequency" in dims:
        coords["frequency"] = "frequency", np.asarray(inst.freqs, dtype=float), {"units": "Hz"}
    if "time" in dims:
        coords["time"] = "time", np.asarray(inst.times), {"units": "s"}
        attrs["sampling_rate"] = float(inst.info["sfreq"])
    X = load_extra("xarray", "files").DataArray(values, coords, dims, attrs=attrs)
    return X.transpose(*[dim for dim in dims if dim != "trial"], ...)


def _with_trials(inst: Any, X: Any) -> Any:
    """Return epochs with the names of their events and the columns of their metadata."""
    names = {code: name for name, code in inst.event_id.items()}
    conditions = np.array([names.get(code, str(code)) for code in inst.events[:, 2]], dtype=str)
    X = X.assign_coords(trial=("trial", np.asarray(inst.selection)), condition=("trial", conditions))
    if (table := getattr(inst, "metadata", None)) is None:
        return X
    columns = {str(n): table[n].to_numpy() for n in table.columns if n != "trial"}
    return add_table(X, columns).drop_attrs(deep=False).assign_attrs(X.attrs)


def _with_annotations(raw: Any, X: Any) -> Any:
    """Return a recording with its annotations as events, in its own time, and those with a duration as conditions."""
    if not len(raw.annotations):
        return X
    onset = raw.annotations.onset - raw.first_time  # MNE counts from the start of the acquisition
    stop, labels = onset + raw.annotations.duration, np.array(raw.annotations.description.tolist())
    X = set_events(X, {"onset": onset, "stop": stop, "condition": labels})
    lasting = raw.annotations.duration > 0
    if lasting.any():
        X.attrs["condition_label"] = labels[lasting].tolist()
        X.attrs["condition_start"], X.attrs["condition_stop"] = onset[lasting].tolist(), stop[lasting].tolist()
    return X


def _from_evoked(mne: Any, evoked: Sequence[Any], picks: str | list) -> Any:
    """Return several Evoked as channel x time x condition."""
    if not evoked or not all(isinstance(one, mne.Evoked) for one in evoked):
        kinds = ", ".join(sorted({type(one).__name__ for one in evoked})) or "nothing"
        raise TypeError(f"A list for from_mne must hold Evoked objects, got {kinds}; stack Epochs with prepare.join.")
    arrays = [from_mne(one, picks=picks) for one in evoked]
    names = [str(one.comment or n) for n, one in enumerate(evoked)]
    names = names if len(set(names)) == len(names) else [f"{n}: {name}" for n, name in enumerate(names)]
    how = {"coords": "minimal", "compat": "override", "combine_attrs": "override", "join": "exact"}
    X = load_extra("xarray", "files").concat(arrays, "condition", **how)
    X = X.transpose("channel", "time", "condition").assign_coords(condition=("condition", np.array(names)))
    return X.assign_coords(n_averaged=("condition", np.array([one.nave for one in evoked])))
