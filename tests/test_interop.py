import mne
import numpy as np
import pytest
import pyttb
import tensorly
import tensortools
import xarray as xr
from samples import random_decomposition

import boolcp
from boolcp import interop

PACKAGES = {
    "tensorly": (interop.to_tensorly, interop.from_tensorly, lambda K: tensorly.cp_to_tensor(K)),
    "pyttb": (interop.to_pyttb, interop.from_pyttb, lambda K: K.full().data),
    "tensortools": (interop.to_tensortools, interop.from_tensortools, lambda K: K.full()),
}


@pytest.fixture
def truth(rng):
    return boolcp.datasets.make_boolean_cp((7, 8, 9), 6, random_state=rng).truth


def columns_of(K):
    return K.factor_matrices if hasattr(K, "factor_matrices") else K.factors


@pytest.mark.parametrize("package", PACKAGES)
def test_round_trip_through_the_real_package(package, truth):
    to, back, full = PACKAGES[package]
    K = to(truth)
    np.testing.assert_allclose(full(K), truth.to_tensor(), atol=1e-12)
    for k, atom in enumerate(truth.atoms):
        np.testing.assert_array_equal(columns_of(K)[atom.mode][:, k], atom.z)
    W = back(K)
    np.testing.assert_allclose(W.to_tensor(), truth.to_tensor(), atol=1e-12)
    np.testing.assert_allclose(W.weights, truth.weights)
    for first, second in zip(W.atoms, truth.atoms, strict=True):
        assert first.mode == second.mode
        np.testing.assert_array_equal(first.z, second.z)


@pytest.mark.parametrize("package", PACKAGES)
def test_atoms_of_rank_two_become_two_columns_and_blocks_are_refused(package, rng):
    to, back, full = PACKAGES[package]
    W = random_decomposition((4, 5, 6), "rank two", rng)
    np.testing.assert_allclose(full(to(W)), W.to_tensor(), atol=1e-12)
    assert back(to(W)).n_atoms == 2 * W.n_atoms
    with pytest.raises(ValueError, match="not sums of products"):
        to(random_decomposition((4, 5, 6), "block", rng))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_original_is_not_shared(package, truth):
    before = truth.to_tensor()
    K = PACKAGES[package][0](truth)
    for A in columns_of(K):
        A *= 2
    np.testing.assert_array_equal(truth.to_tensor(), before)


def test_normalized_columns_of_others_are_understood(truth):
    normalized = tensorly.cp_normalize(interop.to_tensorly(truth))
    W = interop.from_tensorly(normalized)
    np.testing.assert_allclose(W.to_tensor(), truth.to_tensor(), atol=1e-12)
    assert W.boolean_mode.tolist() == truth.boolean_mode.tolist()


def test_exact_ones_are_preferred_to_a_lone_entry():
    factors = [np.array([[0.0], [0.5]]), np.array([[1.0], [0.0], [1.0]]), np.array([[1.0], [2.0]])]
    assert interop.from_tensorly((None, factors)).boolean_mode.tolist() == [1]


def test_what_is_not_boolean_is_refused(rng):
    factors = [rng.standard_normal((d, 2)) for d in (3, 4, 5)]
    with pytest.raises(ValueError, match="Boolean along no mode"):
        interop.from_tensorly((None, factors))
    with pytest.raises(ValueError, match="Column 0 is not Boolean along mode 1"):
        interop.from_tensorly((None, factors), boolean_modes=[1, 1])
    with pytest.raises(ValueError, match="2 columns but 1"):
        interop.from_tensorly((None, factors), boolean_modes=[1])


def test_a_result_is_a_cp_tensor_by_itself(truth):
    np.testing.assert_allclose(tensorly.cp_to_tensor(truth), truth.to_tensor(), atol=1e-12)


def test_the_packages_are_the_real_ones():
    assert pyttb.ktensor and tensortools.KTensor and tensorly.cp_tensor


def epochs(rng):
    info = mne.create_info(["Fz", "Cz", "EOG"], 100.0, ["eeg", "eeg", "eog"])
    events = np.array([[10, 0, 1], [60, 0, 2], [99, 0, 1]])
    array = mne.EpochsArray(rng.standard_normal((3, 3, 50)), info, events, -0.1, {"go": 1, "stop": 2}, verbose="ERROR")
    return array.set_montage("standard_1020", on_missing="ignore", verbose="ERROR")


def test_epochs_become_a_labelled_tensor(rng):
    inst = epochs(rng)
    X = interop.from_mne(inst)
    assert X.dims == ("channel", "time", "trial") and X["channel"].values.tolist() == ["Fz", "Cz"]
    np.testing.assert_allclose(X.values, inst.get_data(picks="eeg").transpose(1, 2, 0), rtol=1e-6)
    assert X["condition"].values.tolist() == ["go", "stop", "go"] and float(X["time"][0]) == -0.1
    assert X["z"].dims == ("channel",) and X["x"].attrs["units"] == "m"
    assert inst.ch_names == ["Fz", "Cz", "EOG"], "the original keeps its channels"
    W = boolcp.decompose(X, 2, random_state=0)
    assert W.labels.extra["condition"][0] == "trial"


def test_raw_is_read_in_pieces_with_its_annotations(rng, monkeypatch):
    monkeypatch.setattr(interop, "CHUNK_SECONDS", 1.5)
    info = mne.create_info(2, 100.0, "eeg")
    raw = mne.io.RawArray(rng.standard_normal((2, 1000)), info, verbose="ERROR")
    raw.set_annotations(mne.Annotations([2.0, 5.0], [3.0, 0.0], ["rest", "click"]))
    X = interop.from_mne(raw.crop(1.0))
    np.testing.assert_allclose(X.values, raw.get_data(), rtol=1e-6)
    assert boolcp.prepare.list_conditions(X) == [("rest", 1.0, 4.0)]
    assert isinstance(X, xr.DataArray) and X.attrs["sampling_rate"] == 100


def test_a_report_gets_the_summary_and_the_figure(truth):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure = pyplot.figure()
    report = interop.add_to_report(truth, mne.Report(verbose="ERROR"), title="Found", figure=figure)
    pyplot.close(figure)
    assert "6 atoms of a 7 x 8 x 9 tensor" in report.html[0] and "Found: factors" in report.html[1]
