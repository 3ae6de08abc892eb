import mne
import numpy as np
import pandas as pd
import pytest
import pyttb
import tensorly
import xarray as xr
from samples import random_decomposition

import boolcp
from boolcp import interop


def to_pyttb(W):
    """Return a ktensor, as the changelog writes it."""
    weights, factors = W.rank_one_terms()
    return pyttb.ktensor([np.asfortranarray(A) for A in factors], weights.copy())


PACKAGES = {
    "tensorly": (interop.to_tensorly, lambda K: tensorly.cp_to_tensor(K)),
    "pyttb": (to_pyttb, lambda K: K.full().data),
}


@pytest.fixture
def truth(rng):
    return boolcp.datasets.make_boolean_cp((7, 8, 9), 6, random_state=rng).truth


def columns_of(K):
    return K.factor_matrices if hasattr(K, "factor_matrices") else K.factors


@pytest.mark.parametrize("package", PACKAGES)
def test_round_trip_through_the_real_package(package, truth):
    to, full = PACKAGES[package]
    K, before = to(truth), truth.to_tensor()
    np.testing.assert_allclose(full(K), truth.to_tensor(), atol=1e-12)
    for k, atom in enumerate(truth.atoms):
        np.testing.assert_array_equal(columns_of(K)[atom.mode][:, k], atom.z)
    W = interop.from_tensorly(K)
    np.testing.assert_allclose(W.to_tensor(), truth.to_tensor(), atol=1e-12)
    np.testing.assert_allclose(W.weights, truth.weights)
    for first, second in zip(W.atoms, truth.atoms, strict=True):
        assert first.mode == second.mode
        np.testing.assert_array_equal(first.z, second.z)
    for A in columns_of(K):
        A *= 2
    np.testing.assert_array_equal(truth.to_tensor(), before, "the original is not shared")


@pytest.mark.parametrize("package", PACKAGES)
def test_atoms_of_rank_two_become_two_columns_and_blocks_are_refused(package, rng):
    to, full = PACKAGES[package]
    W = random_decomposition((4, 5, 6), "rank two", rng)
    np.testing.assert_allclose(full(to(W)), W.to_tensor(), atol=1e-12)
    assert interop.from_tensorly(to(W)).n_atoms == 2 * W.n_atoms
    with pytest.raises(ValueError, match="not sums of products"):
        to(random_decomposition((4, 5, 6), "block", rng))


def test_normalized_columns_are_understood_and_what_is_not_boolean_is_refused(truth, rng):
    W = interop.from_tensorly(tensorly.cp_normalize(interop.to_tensorly(truth)))
    np.testing.assert_allclose(W.to_tensor(), truth.to_tensor(), atol=1e-12)
    assert W.boolean_mode.tolist() == truth.boolean_mode.tolist()
    factors = [rng.standard_normal((d, 2)) for d in (3, 4, 5)]
    with pytest.raises(ValueError, match="not Boolean along any mode"):
        interop.from_tensorly((None, factors))
    with pytest.raises(ValueError, match="Column 0 is not Boolean along mode 1"):
        interop.from_tensorly((None, factors), boolean_modes=[1, 1])
    with pytest.raises(ValueError, match="2 columns but 1"):
        interop.from_tensorly((None, factors), boolean_modes=[1])


def epochs(rng, n_trials=3, **options):
    info = mne.create_info(["Fz", "Cz", "Pz", "EOG"], 100.0, ["eeg", "eeg", "eeg", "eog"])
    events = np.column_stack([10 + 50 * np.arange(n_trials), np.zeros(n_trials, int), np.resize([1, 2, 1], n_trials)])
    values = 1e-6 * rng.standard_normal((n_trials, 4, 50))
    array = mne.EpochsArray(values, info, events, -0.1, {"go": 1, "stop": 2}, verbose="ERROR", **options)
    return array.set_montage("standard_1020", on_missing="ignore", verbose="ERROR")


def test_epochs_become_a_labelled_tensor_in_microvolts(rng):
    table = pd.DataFrame({"rt": [0.1, 0.2, 0.3], "correct": [True, False, True], "x": ["a", "b", None], "trial": 1})
    inst = epochs(rng, metadata=table)
    X = interop.from_mne(inst)
    assert X.dims == ("channel", "time", "trial") and X["channel"].values.tolist() == ["Fz", "Cz", "Pz"]
    np.testing.assert_allclose(X.values, 1e6 * inst.get_data(picks="eeg").transpose(1, 2, 0), rtol=1e-6)
    assert X.attrs["units"] == "µV" and X.name == "EEG" and X.dtype == np.float32
    assert X["condition"].values.tolist() == ["go", "stop", "go"] and float(X["time"][0]) == -0.1
    assert X["z"].dims == ("channel",) and X["x"].attrs["units"] == "m"
    assert X["rt"].values.tolist() == [0.1, 0.2, 0.3] and X["correct"].dtype == bool
    assert X["trial_x"].values.tolist() == ["a", "b", ""], "x is the place of a channel"
    assert inst.ch_names == ["Fz", "Cz", "Pz", "EOG"], "the original keeps its channels"
    W = boolcp.decompose(X, 2, random_state=0)
    assert W.labels.extra["condition"][0] == W.labels.extra["correct"][0] == "trial"


def test_power_of_epochs_and_its_average(rng):
    inst = epochs(rng)
    tfr = inst.compute_tfr("morlet", freqs=[10.0, 20.0], n_cycles=1, verbose="ERROR")
    X = interop.from_mne(tfr)
    assert X.dims == ("channel", "frequency", "time", "trial") and X.attrs["units"] == "µV²"
    np.testing.assert_allclose(X.values, 1e12 * tfr.data.transpose(1, 2, 3, 0), rtol=1e-5)
    assert X["frequency"].values.tolist() == [10, 20] and X["condition"].values.tolist() == ["go", "stop", "go"]
    mean = interop.from_mne(tfr.average())
    assert mean.dims == ("channel", "frequency", "time")
    np.testing.assert_allclose(mean, X.mean("trial"), rtol=1e-5)
    ratio = tfr.copy().apply_baseline((-0.1, 0), mode="ratio", verbose="ERROR")
    relative = interop.from_mne(ratio)
    np.testing.assert_allclose(relative.values, ratio.data.transpose(1, 2, 3, 0), rtol=1e-5)
    assert relative.attrs["units"] == "relative to baseline"
    psd = inst.compute_psd(verbose="ERROR")
    Y = interop.from_mne(psd)
    assert Y.dims == ("channel", "frequency", "trial") and Y.attrs["units"] == "µV²/Hz"
    np.testing.assert_allclose(Y.values, 1e12 * psd.get_data().transpose(1, 2, 0), rtol=1e-5)
    assert "x" in Y.coords and interop.from_mne(inst.average().compute_psd(verbose="ERROR")).ndim == 2
    with pytest.raises(ValueError, match="compute power"):
        interop.from_mne(inst.compute_tfr("morlet", freqs=[10.0], n_cycles=1, output="complex", verbose="ERROR"))


def test_evoked_responses_side_by_side(rng):
    inst = epochs(rng)
    evoked = [inst[name].average() for name in ("go", "stop")]
    X = interop.from_mne(evoked)
    assert X.dims == ("channel", "time", "condition") and X["condition"].values.tolist() == ["go", "stop"]
    np.testing.assert_allclose(X.values[..., 0], 1e6 * evoked[0].data, rtol=1e-5)
    assert X["n_averaged"].values.tolist() == [2, 1] and {"x", "y", "z"} <= set(X.coords)
    assert interop.from_mne(evoked[0]).dims == ("channel", "time")
    with pytest.raises(ValueError, match="exact"):
        interop.from_mne([evoked[0], evoked[1].copy().crop(0, 0.2)])
    with pytest.raises(TypeError, match="must hold Evoked objects, got EpochsArray"):
        interop.from_mne([inst, inst])
    with pytest.raises(TypeError, match="got ndarray"):
        interop.from_mne(np.ones((2, 3)))


def test_channels_marked_as_bad_and_units_that_differ(rng):
    info = mne.create_info(["E1", "E2", "M1", "G1"], 100.0, ["eeg", "eeg", "mag", "grad"])
    info["bads"] = ["E2"]
    raw = mne.io.RawArray(np.full((4, 50), 1e-12), info, verbose="ERROR")
    with pytest.warns(UserWarning, match=r"different units \(µV, fT, fT/cm\)"):
        X = interop.from_mne(raw)
    assert X["channel"].values.tolist() == ["E1", "M1", "G1"] and X["type"].values.tolist() == ["eeg", "mag", "grad"]
    np.testing.assert_allclose(X.values[:, 0], [1e-6, 1e3, 10.0], rtol=1e-6)
    assert X.attrs["preparation"] == ["channels marked as bad left out: E2"]
    assert interop.from_mne(raw, picks=["E2"])["channel"].values.tolist() == ["E2"]
    with pytest.raises(ValueError, match="picks"):
        interop.from_mne(raw, picks="ecog")


def test_raw_is_read_in_pieces_with_its_annotations(rng, monkeypatch):
    monkeypatch.setattr("boolcp.interop.mne_objects.CHUNK_SECONDS", 1.5)
    info = mne.create_info(2, 100.0, "eeg")
    raw = mne.io.RawArray(1e-6 * rng.standard_normal((2, 1000)), info, verbose="ERROR")
    raw.set_annotations(mne.Annotations([2.0, 5.0], [3.0, 0.0], ["rest", "click"]))
    X = interop.from_mne(raw.crop(1.0))
    np.testing.assert_allclose(X.values, 1e6 * raw.get_data(), rtol=1e-6)
    assert boolcp.prepare.list_conditions(X) == [("rest", 1.0, 4.0)]
    assert boolcp.prepare.list_events(X)["onset"].tolist() == [1.0, 4.0]
    click = boolcp.prepare.cut_trials(X, (-100, 200), events="click")
    np.testing.assert_allclose(click.values[..., 0], 1e6 * raw.get_data()[:, 390:420], rtol=1e-6)
    assert isinstance(X, xr.DataArray) and X.attrs["sampling_rate"] == 100 and not X.isnull().any()
    raw.set_annotations(mne.Annotations([6, 7], [0.5, 1], ["bad", "go"]))
    Y = interop.from_mne(raw, reject=True).values
    assert np.isnan(Y[:, 600:650]).all() and np.isnan(Y).sum() == 100
