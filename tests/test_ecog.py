import numpy as np
import pytest
from scipy import signal

import boolcp
from boolcp import prepare
from boolcp.datasets.ecog import AREAS, CONDITIONS, cortex


@pytest.fixture(scope="module")
def simulation():
    return boolcp.datasets.simulate_ecog(n_trials=6, trial_ms=1000, random_state=1)


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
    quiet = boolcp.datasets.simulate_ecog(16, 4, trial_ms=500, noise=0, reference=0, random_state=3)
    for condition, W in quiet.truth.items():
        np.testing.assert_allclose(quiet.tensor(condition).values, W.to_tensor(), atol=1e-3)
    reference = boolcp.datasets.simulate_ecog(16, 4, trial_ms=500, noise=0, reference=2, random_state=3)
    added = reference.tensor("rest").values - quiet.tensor("rest").values
    np.testing.assert_allclose(added, np.broadcast_to(added[:1], added.shape), atol=1e-3)
    assert added.std() > 30


def test_the_background_falls_with_frequency(simulation):
    x = prepare.common_average(simulation.sessions["rest"]).values
    frequencies, power = signal.welch(x, 1000, nperseg=1000)
    band = (frequencies > 20) & (frequencies < 100)
    slope = np.polyfit(np.log(frequencies[band]), np.log(power.mean(axis=0)[band]), 1)[0]
    assert -1.5 < slope < -0.5


def test_equal_seeds_give_equal_recordings(simulation):
    again = boolcp.datasets.simulate_ecog(n_trials=6, trial_ms=1000, random_state=1)
    np.testing.assert_array_equal(again.sessions["anesthesia"].values, simulation.sessions["anesthesia"].values)


def test_the_patterns_are_found(simulation):
    X = prepare.common_average(prepare.select_condition(simulation.sessions["anesthesia"], CONDITIONS["anesthesia"][0]))
    X = prepare.cut_trials(prepare.resample(X, 100), 1000)
    W = boolcp.decompose(X, 3, atom_rank=1, random_state=0)  # "auto" fits the ongoing activity, too
    for atom in simulation.truth["anesthesia"].atoms:
        z = atom.z[:: len(atom.z) // W.shape[atom.mode]]
        wrong = min((int(np.sum(z != found.z)) for found in W.atoms if found.mode == atom.mode), default=len(z))
        assert wrong <= 0.03 * len(z)


@pytest.mark.parametrize("bad", [{"n_channels": 4}, {"n_trials": 1}, {"trial_ms": 10}, {"n_trials": 2.5}])
def test_sizes_are_checked(bad):
    with pytest.raises(ValueError, match="must be an integer"):
        boolcp.datasets.simulate_ecog(**bad)
