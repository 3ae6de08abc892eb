"""Bits as intervals, as annotations and metadata of MNE, as events of BIDS; how often and how long atoms are on."""

import mne
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import boolcp
from boolcp import Atom, BooleanCP, interop
from boolcp.cli import main
from boolcp.result.events import bids_events
from boolcp.result.labels import Labels

RATE = 10.0


def along_time(*bits, **labels):
    """Return a decomposition time x channel with these bits along time, sampled at 10 Hz."""
    d, V = len(bits[0]), np.array([[0.6], [0.8]])
    coords = {"time": np.arange(d) / RATE, "channel": np.array(["Fz", "Cz"])}
    known = {"dims": ("time", "channel"), "coords": coords, "units": {"time": "s"}} | labels
    return BooleanCP((d, 2), [Atom(0, z, (V,)) for z in bits], np.ones(len(bits)), Labels(**known))


def bits_of(table, times, k):
    """Return the bits of an atom from its intervals."""
    own = table.loc[table.atom == k, ["start", "stop"]].values - 1e-9
    return np.any([(times >= start) & (times < stop) for start, stop in own], axis=0)


def test_intervals_are_the_bits(rng):
    Z = rng.random((3, 40)) < 0.4
    W, times = along_time(*Z), np.arange(40) / RATE
    table = W.events()
    assert list(table.columns) == ["start", "stop", "duration", "atom", "label", "mode"]
    for k, z in enumerate(Z):
        np.testing.assert_array_equal(bits_of(table, times, k), z)
    np.testing.assert_allclose(table.duration, table.stop - table.start)
    assert table.label.tolist() == [f"atom_{k}" for k in table.atom] and set(table["mode"]) == {"time"}
    assert len(W.events("channel")) == 0
    plain = BooleanCP((40, 2), W.atoms, W.weights).events()
    np.testing.assert_allclose(plain.start, RATE * table.start, err_msg="positions without times")
    assert plain.start.dtype.kind == "i"
    for bad in (times[::-1], np.arange(40, dtype="u1")[::-1], np.arange(40).astype("M8[Y]")):
        V = along_time(*Z, coords={"time": bad})
        assert V.events().equals(plain.assign(mode="time")), "positions where times do not increase"
        with pytest.raises(ValueError, match="Events in seconds"):
            bids_events(V)


def test_no_interval_crosses_a_gap_or_a_segment():
    times = np.array([0, 0.1, 0.2, 5.0, 5.1, 5.2])
    W = along_time([1] * 6, coords={"time": times})
    np.testing.assert_allclose(W.events()[["start", "stop"]], [[0, 0.3], [5, 5.3]])
    W = along_time([1] * 6, extra={"segment": ("time", np.array([0, 0, 1, 1, 2, 2]))})
    np.testing.assert_allclose(W.events().start, [0, 0.2, 0.4])
    assert W.occurrences().loc[0, "coverage"] == pytest.approx(1)


def test_how_often_and_how_long():
    condition = np.array(["a", "a", "a", "b", "b", "b", "b", "b"])
    W = along_time([1, 1, 0, 0, 1, 0, 0, 0], [0, 0, 1, 1, 0, 1, 0, 0], extra={"condition": ("time", condition)})
    found = W.occurrences(by="condition")
    assert found.occurrences.tolist() == [2, 2] and found["condition=a"].tolist() == [2, 1]
    assert found["condition=b"].tolist() == [1, 2]
    np.testing.assert_allclose(found.mean_duration, 0.15)
    np.testing.assert_allclose(found.coverage, 3 / 8)
    np.testing.assert_allclose(found.rate, 2 / 0.8)
    assert W.transitions().to_numpy().tolist() == [[0, 2], [1, 0]]
    both = along_time([1, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 1])
    assert not both.transitions().to_numpy().any(), "an atom that joins another does not follow it"
    apart = along_time([1, 0, 1, 0], [0, 1, 0, 1], extra={"segment": ("time", np.array([0, 1, 1, 1]))})
    assert apart.transitions().to_numpy().tolist() == [[0, 1], [1, 0]]
    with pytest.raises(ValueError, match="no coordinate 'drug' to count by; it has condition"):
        W.occurrences(by="drug")
    two = BooleanCP((4, 2), [Atom(0, [1, 0, 1, 0], ([[1.0], [0]],)), Atom(1, [1, 0], (np.eye(4, 1),))], [1, 1])
    with pytest.raises(ValueError, match="along one mode"):
        two.transitions()
    assert two.transitions(0).shape == (1, 1) and two.occurrences(1).index.tolist() == [1]


def test_annotations_and_back(rng):
    Z = rng.random((2, 60)) < 0.5
    raw = mne.io.RawArray(np.zeros((2, 60)), mne.create_info(["Fz", "Cz"], RATE, "eeg"), first_samp=30, verbose="ERROR")
    raw.set_annotations(interop.to_annotations(along_time(*Z)))
    X = interop.from_mne(raw)
    table = boolcp.prepare.list_events(X)
    for k, z in enumerate(Z):
        on = table["condition"] == f"atom_{k}"
        found = pd.DataFrame({"start": table["onset"][on], "stop": table["stop"][on], "atom": k})
        np.testing.assert_array_equal(bits_of(found, X["time"].values, k), z)


def test_metadata_select_epochs(rng):
    values = 1e-6 * rng.standard_normal((6, 2, 30))
    epochs = mne.EpochsArray(values, mne.create_info(["Fz", "Cz"], 100.0, "eeg"), verbose="ERROR")
    epochs.drop([1], verbose="ERROR")
    X = interop.from_mne(epochs)
    trials, u, v = X["trial"].values, np.eye(2, 1), np.eye(30, 1)
    atoms = [Atom(2, z, (u, v)) for z in ([1, 0, 1, 1, 0], [0, 1, 0, 0, 0])]
    atoms.append(Atom(0, [1, 0], (v, np.eye(5, 1))))
    W = BooleanCP(X.shape, atoms, np.ones(3), boolcp.result.labels.read_labels(X)[1])
    assert trials.tolist() == [0, 2, 3, 4, 5] and W.where_on(0) == [0, 3, 4] and W.where_on(2) == ["Fz"]
    found = interop.add_metadata(epochs, W)
    assert found["atom_0"].selection.tolist() == [0, 3, 4] and found["atom_1"].selection.tolist() == [2]
    assert list(found.metadata.columns) == ["atom_0", "atom_1"] and epochs.metadata is None
    again = interop.add_metadata(found[[2, 0]], W)
    assert again["atom_0 and not atom_1"].selection.tolist() == [3, 0], "any order and part of the trials"
    assert epochs.copy().pick(W.where_on(2)).ch_names == ["Fz"]
    more = mne.EpochsArray(np.zeros((8, 2, 30)), epochs.info, verbose="ERROR")
    with pytest.raises(ValueError, match="3 of the epochs are no trials of the fit, for example 1"):
        interop.add_metadata(more, W)


@pytest.mark.parametrize("align", [None, "go"])
def test_trials_with_onsets_become_events_of_bids(align, tmp_path, rng, capsys):
    values = rng.standard_normal((2, 300))
    recording = xr.DataArray(values, {"time": np.arange(300) / 100}, ("channel", "time"))
    table = {"onset": [0.5, 1.0, 2.0], "go": [0.7, 1.2, 2.3]}
    X = boolcp.prepare.cut_trials(recording, (-100, 300), events=table, align=align)
    labels = boolcp.result.labels.read_labels(X)[1]
    W = BooleanCP(X.shape, [Atom(2, [1, 0, 1], (np.eye(2, 1), np.eye(40, 1)))], [1.0], labels)
    W.save(tmp_path / "result.nc")
    assert main(["export", str(tmp_path / "result.nc"), "--events", str(tmp_path / "out.tsv")]) == 0
    found = pd.read_csv(tmp_path / "out.tsv", sep="\t")
    assert list(found.columns) == ["onset", "duration", "trial_type"] and set(found.trial_type) == {"atom_0"}
    np.testing.assert_allclose(found.onset, np.array([0.5, 2.0] if align is None else [0.7, 2.3]) - 0.1)
    np.testing.assert_allclose(found.duration, 0.4)
    for onset, trial in zip(found.onset, (0, 2), strict=True):
        first = round(100 * onset)
        np.testing.assert_array_equal(recording.values[:, first : first + 40], X.values[:, :, trial])


def test_events_without_seconds_say_what_is_missing(tmp_path, capsys):
    BooleanCP((3, 2), [Atom(0, [1, 0, 1], (np.eye(2, 1),))], [1.0]).save(tmp_path / "result.nc")
    assert main(["export", str(tmp_path / "result.nc"), "--events", str(tmp_path / "out.tsv")]) == 2
    assert "Events in seconds need atoms along time, or along trials with onsets" in capsys.readouterr().err
