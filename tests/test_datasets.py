import naive
import numpy as np
import pytest
from scipy import signal

import boolcp
from boolcp import prepare
from boolcp.datasets import load_syn, make_boolean_cp, simulate_ecog, simulate_recording
from boolcp.datasets.ecog import AREAS, CONDITIONS, cortex
from boolcp.result.atoms import BooleanCP


def columns_have_norm_one(W):
    return all(np.allclose(np.linalg.norm(A, axis=0), 1) for atom in W.atoms for A in atom.factors)


@pytest.mark.parametrize("shape", [(5, 6), (4, 5, 6), (3, 4, 2, 5)])
def test_the_truth_is_the_clean_tensor_in_the_library_s_convention(shape, rng):
    X, clean, truth = make_boolean_cp(shape, 5, random_state=rng)
    assert isinstance(truth, BooleanCP) and truth.shape == X.shape == shape
    np.testing.assert_allclose(naive.tensor(truth), clean, atol=1e-12)
    np.testing.assert_array_equal(X, clean)
    assert not np.shares_memory(X, clean)
    assert columns_have_norm_one(truth)
    assert (truth.weights > 0).all()


def test_atoms_go_to_the_allowed_modes_in_turn_or_as_counted():
    def modes(n_atoms, **options):
        return make_boolean_cp((4, 5, 6), n_atoms, random_state=0, **options).truth.boolean_mode.tolist()

    assert modes(5) == [0, 1, 2, 0, 1]
    assert modes(3, boolean_modes=[2, 0]) == [2, 0, 2]
    assert modes([1, 0, 2]) == [0, 2, 2]
    assert modes(0) == []


def test_bits_are_on_with_probability_p_and_columns_are_normal():
    _, _, truth = make_boolean_cp((400, 300, 2), 100, p=0.3, boolean_modes=[0], random_state=0)
    Z = truth.factors[0]
    assert Z.mean() == pytest.approx(0.3, abs=0.01)
    few = make_boolean_cp((3, 4, 5), 200, p=0.01, random_state=0).truth
    assert min(atom.n_ones for atom in few.atoms) == 1, "no atom is empty"
    sizes = truth.weights**2  # |u|^2 |w|^2, chi-squared with 300 and 2 degrees of freedom
    assert sizes.mean() == pytest.approx(600, rel=0.3)


def test_noise_has_the_standard_deviation_asked_for_and_leaves_the_truth_alone():
    quiet = make_boolean_cp((30, 31, 32), 4, random_state=5)
    noisy = make_boolean_cp((30, 31, 32), 4, noise=3.0, missing=0.2, random_state=5)
    np.testing.assert_array_equal(noisy.clean, quiet.clean)
    error = (noisy.X - noisy.clean)[~np.isnan(noisy.X)]
    assert np.isnan(noisy.X).sum() == round(0.2 * noisy.X.size)
    assert error.std() == pytest.approx(3, rel=0.02) and abs(error.mean()) < 0.1


def test_weights_multiply_the_atoms_and_signs_go_to_the_last_real_mode():
    plain = make_boolean_cp((4, 5, 6), 3, random_state=2).truth
    scaled = make_boolean_cp((4, 5, 6), 3, weights=[2.0, -3.0, 1.0], random_state=2).truth
    np.testing.assert_allclose(scaled.weights, [2, 3, 1] * plain.weights)
    for k, factor in enumerate([2.0, -3.0, 1.0]):
        np.testing.assert_allclose(scaled[[k]].to_tensor(), factor * plain[[k]].to_tensor())
    np.testing.assert_array_equal(scaled.atoms[1].factors[0], plain.atoms[1].factors[0])
    np.testing.assert_allclose(scaled.atoms[1].factors[1], -plain.atoms[1].factors[1], rtol=1e-14)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (5,)}, "shape must hold two or more sizes"),
        ({"shape": (5, 0, 3)}, "shape must hold"),
        ({"shape": (5, 2.5)}, "shape must hold"),
        ({"n_atoms": -1}, "n_atoms must be >= 0"),
        ({"n_atoms": [1, 2]}, "n_atoms must be one number, or one number >= 0 for each of the 3 modes"),
        ({"n_atoms": [1, 2, -1]}, "n_atoms must be one number"),
        ({"n_atoms": [1, 2, 0], "boolean_modes": [0]}, "leave boolean_modes out"),
        ({"boolean_modes": [3]}, "boolean_modes must list one or more modes from 0 to 2"),
        ({"boolean_modes": []}, "boolean_modes must list"),
        ({"p": 0.0}, r"p is the probability .* \(0, 1\], but it is 0.0"),
        ({"p": 1.1}, "p is the probability"),
        ({"noise": -1.0}, "noise must be finite and at least 0"),
        ({"noise": float("nan")}, "noise must be finite"),
        ({"missing": 1.0}, "missing is the share"),
        ({"weights": [1.0]}, "weights must hold one finite nonzero number for each of the 2 atoms"),
        ({"weights": [1.0, 0.0]}, "weights must hold"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    arguments = {"shape": (4, 5, 6), "n_atoms": 2} | arguments
    with pytest.raises(ValueError, match=message):
        make_boolean_cp(arguments.pop("shape"), arguments.pop("n_atoms"), **arguments)


@pytest.mark.parametrize(("which", "per_mode"), [(0, 1), (1, 3), (2, 5)])
def test_syn_has_the_atoms_of_the_paper(which, per_mode):
    X, clean, truth = load_syn(which, random_state=0)
    assert X.shape == (150, 150, 150)
    assert np.bincount(truth.boolean_mode).tolist() == [per_mode] * 3
    assert (X - clean).std() == pytest.approx(1, rel=0.01)
    with pytest.raises(ValueError, match="which must be 0, 1 or 2"):
        load_syn(which - 0.5)


def test_a_recording_is_its_patterns_plus_the_background():
    recording = simulate_recording(noise=0.5, random_state=1)
    truth = recording.truth
    assert recording.X.shape == truth.shape == (32, 200, 60)
    assert recording.dims == truth.dims == ("channel", "time", "trial")
    np.testing.assert_allclose(naive.tensor(truth), recording.clean, atol=1e-12)
    assert (recording.X - recording.clean).std() == pytest.approx(0.5, rel=0.05)
    assert columns_have_norm_one(truth) and (truth.weights > 0).all()
    by_name = dict(zip(recording.labels, truth.boolean_mode.tolist(), strict=True))
    assert by_name == {"evoked response": 2, "beta burst": 0, "sustained shift": 1}
    assert "evoked response" in repr(recording)


def test_the_background_falls_like_one_over_f_and_is_shared_by_neighbors():
    recording = simulate_recording(random_state=0)
    noise = recording.X - recording.clean
    power = (np.abs(np.fft.rfft(noise, axis=1)) ** 2).mean(axis=(0, 2))
    assert power[4:8].mean() / power[16:32].mean() == pytest.approx(4, rel=0.4)  # a quarter of the frequency
    near = np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]
    far = np.corrcoef(noise[0].ravel(), noise[-1].ravel())[0, 1]
    assert near > 0.2 and abs(far) < 0.1
    assert abs(np.corrcoef(noise[:, :, 0].ravel(), noise[:, :, 1].ravel())[0, 1]) < 0.1


def test_a_pattern_in_space_is_a_patch_and_one_in_time_an_interval():
    recording = simulate_recording(20, 100, 30, random_state=3)
    burst, shift = recording.truth.atoms[1], recording.truth.atoms[2]
    patch = recording.positions[burst.z]
    assert len(patch) == 5 and np.ptp(patch, axis=0).max() <= 4
    on = np.flatnonzero(shift.z)
    assert len(on) == on[-1] - on[0] + 1
    assert recording.times[on[0]] >= 0.05 and recording.times[on[-1]] < 0.45


@pytest.mark.parametrize("simulate", [simulate_recording, simulate_ecog])
@pytest.mark.parametrize(("name", "value"), [("n_channels", 4), ("n_trials", 1), ("n_trials", 2.5), ("noise", -1.0)])
def test_recordings_check_their_arguments(simulate, name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        simulate(**{name: value})


def test_equal_seeds_give_equal_data():
    for simulate in (
        lambda seed: make_boolean_cp((5, 6, 7), 3, noise=1.0, missing=0.1, random_state=seed).X,
        lambda seed: simulate_recording(random_state=seed).X,
        lambda seed: simulate_ecog(16, 4, trial_ms=500, random_state=seed).sessions["rest"].values,
    ):
        np.testing.assert_array_equal(simulate(3), simulate(3))
        assert not np.array_equal(simulate(3), simulate(4))


# a simulated array on the cortex


@pytest.fixture(scope="module")
def simulation():
    return simulate_ecog(n_trials=6, trial_ms=1000, random_state=1)


def test_128_electrodes_lie_apart_in_eight_areas():
    positions, areas = cortex(128)
    assert {name: int(np.sum(areas == name)) for name in AREAS} == {name: count for name, (count, _) in AREAS.items()}
    distances = np.linalg.norm(positions[:, None] - positions[None], axis=2) + 9 * np.eye(128)
    assert distances.min() > 0.3
    centers = {name: positions[areas == name].mean(axis=0) for name in AREAS}
    nearest = [min(centers, key=lambda name: np.linalg.norm(place - centers[name])) for place in positions]
    assert np.mean(np.array(nearest) == areas) > 0.95


def test_each_condition_has_a_pattern_along_each_mode(simulation):
    assert set(simulation.truth) == {"rest", "anesthesia", "recovery"}
    for condition, W in simulation.truth.items():
        assert W.boolean_mode.tolist() == [0, 1, 2] and W.dims == ("channel", "time", "trial")
        assert all(0 < atom.n_ones < len(atom.z) for atom in W.atoms)
        areas = simulation.sessions[condition]["area"].values
        assert len(set(areas[W.atoms[0].z])) == 2 and np.isin(areas, areas[W.atoms[0].z]).sum() == W.atoms[0].n_ones


def test_the_recording_is_patterns_background_and_reference():
    quiet = simulate_ecog(16, 4, trial_ms=500, noise=0, reference=0, random_state=3)
    for condition, W in quiet.truth.items():
        np.testing.assert_allclose(quiet.tensor(condition).values, W.to_tensor(), atol=1e-3)
    reference = simulate_ecog(16, 4, trial_ms=500, noise=0, reference=2, random_state=3)
    added = reference.tensor("rest").values - quiet.tensor("rest").values
    np.testing.assert_allclose(added, np.broadcast_to(added[:1], added.shape), atol=1e-3)
    assert added.std() > 30


def test_the_background_falls_with_frequency(simulation):
    x = prepare.common_average(simulation.sessions["rest"]).values
    frequencies, power = signal.welch(x, 1000, nperseg=1000)
    band = (frequencies > 20) & (frequencies < 100)
    slope = np.polyfit(np.log(frequencies[band]), np.log(power.mean(axis=0)[band]), 1)[0]
    assert -1.5 < slope < -0.5


def test_the_patterns_are_found(simulation):
    X = prepare.common_average(prepare.select_condition(simulation.sessions["anesthesia"], CONDITIONS["anesthesia"][0]))
    X = prepare.cut_trials(prepare.resample(X, 100), 1000)
    W = boolcp.decompose(X, 3, atom_rank=1, random_state=0)
    for atom in simulation.truth["anesthesia"].atoms:
        z = atom.z[:: len(atom.z) // W.shape[atom.mode]]
        wrong = min((int(np.sum(z != found.z)) for found in W.atoms if found.mode == atom.mode), default=len(z))
        assert wrong <= 0.03 * len(z)
