"""Real recordings, from their files to a saved decomposition. They are not part of the project: see BOOLCP_DATA."""

import os
from pathlib import Path

import numpy as np
import pytest

import boolcp
from boolcp import prepare
from boolcp.cli import main
from boolcp.io.coordinates import read_electrodes, read_pairs

DATA = Path(os.environ.get("BOOLCP_DATA", "recordings"))
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no real recordings in {DATA} (set BOOLCP_DATA)")
FOOD, SPECTRA, MAPS = DATA / "neurotycho_food_tracking", DATA / "spectralca_nt", DATA / "neurotycho_maps"


def fit(tmp_path, capsys, *arguments, n_atoms=3):
    """Run the whole command on real files and return the result that it saved."""
    out = tmp_path / "out"
    code = main(["fit", *map(str, arguments), "-k", str(n_atoms), "-o", str(out), "--n-init", "2"])
    assert code == 0, capsys.readouterr().err
    return boolcp.load(out / "decomposition.nc")


def test_food_tracking_from_its_channel_files(tmp_path, capsys):
    options = (
        "--drop channel=64 --reference average --band 8-13 --envelope log --resample 50 --bin-ms 3000 --n-trials 100"
    )
    W = fit(tmp_path, capsys, FOOD, *options.split(), "--zscore")
    assert W.shape == (3, 150, 100) and W.dims == ("channel", "time", "trial") and 0 < W.explained() < 1


def test_the_spectra_of_five_states(tmp_path, capsys):
    options = "-v psd --dims channel,freq --coord freq=f_axis --join state --drop channel=62 --log --center state"
    W = fit(tmp_path, capsys, *sorted(SPECTRA.glob("nt_lfpca*.npz")), *options.split(), n_atoms=5)
    assert W.shape == (127, 200, 5) and W.explained() > 0.8
    assert [name.split("_")[-1] for name in W.labels.coords["state"]][2] == "Anes"


def test_propofol_eeg_of_three_states(tmp_path, capsys):
    files = sorted((DATA / "ness_propofol_eeg").glob("*.mat"))
    options = "-v y --dims time,channel --join trial --envelope log --resample 50 --bin-ms 3000 --zscore"
    W = fit(tmp_path, capsys, *files, *options.split())
    assert W.shape == (64, 150, 30) and len(set(W.labels.extra["part"][1])) == 3


def test_eeglab_epochs_through_mne(tmp_path, capsys):
    W = fit(tmp_path, capsys, DATA / "eeglab_sample" / "eeglab_data_epochs_ica.set", "--zscore")
    assert W.shape == (30, 384, 80) and "rt" in W.labels.extra["condition"][1][0]
    continuous = boolcp.open_tensor(DATA / "eeglab_sample" / "eeglab_data.set")
    assert prepare.cut_trials(continuous, 3000).shape == (32, 384, 79)


def test_spike_counts(tmp_path, capsys):
    file = DATA / "affinewarp_spikes" / "motor_ctx_data.npz"
    W = fit(tmp_path, capsys, file, "--events", "neuron_ids,spiketimes,trial_ids", "--bin-ms", 200, n_atoms=2)
    assert W.shape == (30, 10, 1266) and W.dims == ("unit", "time", "trial")
    with np.load(file) as arrays:
        X = boolcp.open_tensor(file, events=("neuron_ids", "spiketimes", "trial_ids"), bin_ms=200)
        assert X.values.sum() == len(arrays["spiketimes"])


@pytest.mark.parametrize(("animal", "n_pairs"), [("Chibi", 62), ("George", 62), ("Kin2", 63), ("Su", 63)])
def test_maps_and_pairs(animal, n_pairs):
    electrodes, pairs = read_electrodes(MAPS / f"electrodes_{animal}.csv"), read_pairs(MAPS / f"bipolar_{animal}.csv")
    assert len(electrodes) == 128 and len(pairs) == n_pairs
    if (MAPS / f"{animal}Map.mat").exists():
        official = read_electrodes(MAPS / f"{animal}Map.mat")
        assert (abs(official["x"] - electrodes["x"]) < 0.01).all()
