"""Reports on three real recordings, their screenshots, and numbers on what the bits mean: docs/reports.md.

    BOOLCP_DATA=folder/of/recordings python benchmarks/real_reports.py --out reports

All three tensors are channel x frequency x time: power in dB relative to its mean over time, for each channel and
frequency. Atoms are Boolean along time (when a pattern is on) and real along channel and frequency. Up to six atoms,
seed 0; three for five states, whose differences span only four dimensions. Everything else is the default. The fits do
not use the labels of the states; real_reports.md says which choices were made after a first look.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.io
import scipy.signal
import xarray as xr
from common import commit, environment, table
from cp_tucker import CP
from real_data import _food_tracking, data_folder, missing_reason

import boolcp
from boolcp.io.results import make_provenance
from boolcp.report import write_report
from boolcp.trust.residuals import residual_check

DOCS = Path(__file__).parents[1] / "docs"
TEXT = Path(__file__).parent / "real_reports.md"  # the words of the page, with places for the tables
COMMAND = "python benchmarks/real_reports.py"
N_ATOMS, N_STATE_ATOMS, SEED = 6, 3, 0
STATES = {"0_EyesOpen": "eyes open", "1_EyesClosed": "eyes closed", "2_Anes": "anesthetized"}
STATES |= {"3_RecEyesClosed": "recovery closed", "4_RecEyesOpen": "recovery open"}
DRAWN = """[...document.querySelectorAll("figure.chart")].every(
    (figure) => figure.getBoundingClientRect().top > innerHeight || figure.classList.contains("drawn"))"""
FLAGS = "--no-sandbox --headless --disable-gpu --disable-background-networking --disable-sync --no-first-run".split()


def relative_power(signal, rate, low, high, seconds=3, line=None):
    """Return 10 log10 power in 1-Hz steps for each bin of a signal (channels, samples), and the frequencies.

    Welch's method: Hann windows of 1 s that overlap by half. Within 2 Hz of multiples of `line` nothing is kept.
    """
    bins = signal[:, : signal.shape[1] // (seconds * rate) * seconds * rate].reshape(len(signal), -1, seconds * rate)
    frequency, power = scipy.signal.welch(bins, rate, nperseg=rate, axis=2)
    keep = (frequency >= low) & (frequency <= high)
    if line is not None:
        keep &= np.abs(frequency - line * np.maximum(np.rint(frequency / line), 1)) > 2
    return 10 * np.log10(power[:, :, keep]).transpose(0, 2, 1), frequency[keep]


def labelled(values, coords, dims, name, source, steps):
    """Return a tensor with labels, centered over its last mode."""
    X = xr.DataArray(values, coords, dims, name, {"units": "dB", "source": source, "preparation": steps})
    X["frequency"].attrs["units"] = "Hz"
    return X - X.mean(dims[-1])


def propofol_eeg():
    """Return human EEG awake and under two doses of propofol, channel x frequency x bin, (64, 45, 30)."""
    parts = []
    for start in (180, 3070, 4710):
        file = scipy.io.loadmat(data_folder() / "ness_propofol_eeg" / f"eeganes07laplac250_detrend_all_t{start}.mat")
        power, frequency = relative_power(file["y"].T, 250, 1, 45)
        parts.append(power)
    rows, columns = np.nonzero(np.isfinite(file["egrid_0indexed"]))
    channel = file["egrid_0indexed"][rows, columns].astype(int)
    x, y = np.full((2, 64), np.nan)
    x[channel], y[channel] = columns, -rows
    coords = {
        "channel": [f"E{n + 1}" for n in range(64)],
        "frequency": frequency,
        "x": ("channel", x),
        "y": ("channel", y),
        "condition": ("bin", np.repeat(["awake", "low propofol", "high propofol"], 10)),
    }
    steps = ["Laplacian, detrended (source)", "bins of 3 s", "power by Welch's method, 1 to 45 Hz", "10 log10"]
    dims = ("channel", "frequency", "bin")
    return labelled(np.concatenate(parts, axis=2), coords, dims, "EEG power", "human EEG under propofol", steps)


def anesthesia_spectra():
    """Return power spectra of five states of a monkey, channel x frequency x state, (127, 199, 5)."""
    spectra = []
    for name in STATES:
        with np.load(data_folder() / "spectralca_nt" / f"nt_lfpca{name}.npz") as file:
            spectra.append(10 * np.log10(file["psd"][:, 1:]))
            frequency = file["f_axis"][1:]
    electrodes = pd.read_csv(data_folder() / "neurotycho_maps" / "electrodes_Chibi.csv").drop(index=62)
    coords = {
        "channel": [f"ch{n}" for n in electrodes["channel"]],
        "frequency": frequency,
        "state": list(STATES.values()),
        "x": ("channel", electrodes["x_px"].to_numpy(float)),
        "y": ("channel", -electrodes["y_px"].to_numpy(float)),
        "area": ("channel", electrodes["area8"].to_numpy(str)),
    }
    values = np.delete(np.stack(spectra, axis=2), 62, axis=0)
    steps = ["channel 63 dropped (corrupt in the source)", "10 log10"]
    dims = ("channel", "frequency", "state")
    return labelled(values, coords, dims, "ECoG power", "NeuroTycho 20120730PF, monkey Chibi", steps)


def food_tracking():
    """Return ECoG of a monkey that reaches for food, channel x frequency x bin, (63, 99, 100)."""
    power, frequency = relative_power(_food_tracking(), 250, 2, 110, line=50)
    electrodes = pd.read_csv(data_folder() / "neurotycho_food_tracking" / "electrodes_B.csv")[:63]
    coords = {
        "channel": [f"ch{n}" for n in electrodes["channel"]],
        "frequency": frequency,
        "x": ("channel", electrodes["x_px"].to_numpy(float)),
        "y": ("channel", -electrodes["y_px"].to_numpy(float)),
    }
    steps = ["channel 64 dropped (bad)", "common average reference", "bins of 3 s"]
    steps += ["power by Welch's method, 2 to 110 Hz without 50 and 100 Hz (2 Hz around)", "10 log10"]
    dims = ("channel", "frequency", "bin")
    return labelled(power, coords, dims, "ECoG power", "NeuroTycho food tracking, monkey B", steps)


RECORDINGS = {"propofol_eeg": propofol_eeg, "anesthesia_spectra": anesthesia_spectra, "food_tracking": food_tracking}


def fit(X):
    """Return the model, its atoms tested, and the share of variance that plain CP of the same size explains."""
    n_atoms = N_ATOMS if X.shape[2] > 5 else N_STATE_ATOMS
    model = boolcp.BMP(n_atoms, boolean_modes=[X.dims[2]], random_state=SEED).fit(X)
    model.decomposition_ = boolcp.assess(X, model.decomposition_, random_state=SEED)
    plain = CP(n_atoms, random_state=SEED).fit(X.values).decomposition_
    return model, 1 - np.sum((X.values - plain.to_tensor()) ** 2) / np.sum(X.values**2)


def spectrum_text(W, k):
    """Return where the spectrum of an atom, its mean over channels, is highest and lowest."""
    spectrum = W.weights[k] * W.atoms[k].dense_block().mean(axis=0)
    frequency = W.labels.coords["frequency"]
    ends = (int(np.argmax(spectrum)), int(np.argmin(spectrum)))
    return ", ".join(f"{spectrum[i]:+z.1f} dB at {frequency[i]:.0f} Hz" for i in ends)


def atom_rows(W, name_entries=False):
    """Return one row for each atom: where it is on, its shares of variance, its spectrum, the verdict."""
    alone, unique = W.explained_alone(), W.explained_unique()
    rows = []
    for k, atom in enumerate(W.atoms):
        names = W.labels.coords.get(W.labels.dims[2])
        on = ", ".join(map(str, names[atom.z])) if name_entries else f"{atom.n_ones} of {len(atom.z)}"
        shares = [f"{100 * alone[k]:.1f} %", f"{100 * unique[k]:.1f} %"]
        rows.append([k, on, atom.rank or "block", *shares, spectrum_text(W, k), boolcp.verdicts(W)[k].text])
    return rows


def test_rows(W):
    """Return one row for each atom: its shares of bins that are on under each condition, and the test."""
    test = boolcp.compare_conditions(W, "condition")
    rows = [
        [k, *(f"{100 * share:.0f} %" for share in test.mean[k]), f"{test.auc[k]:.2f}", f"{test.p_adjusted[k]:.2g}"]
        for k in range(W.n_atoms)
    ]
    return table(["atom", *test.conditions, "AUC, highest against lowest", "p"], rows)


def write_page(results):
    """Write docs/reports.md from what was found."""
    shares = []
    for name, (X, model, cp) in results.items():
        W = model.decomposition_
        percents = [f"{100 * share:.1f} %" for share in (W.explained(), cp)]
        shares.append([name.replace("_", " "), " x ".join(map(str, X.shape)), W.n_atoms, *percents])
    found = {name: model.decomposition_ for name, (_, model, _) in results.items()}
    text = TEXT.read_text()
    parts = {
        "shares": table(["recording", "shape", "atoms", "they explain", "plain CP"], shares),
        "tests": test_rows(found["propofol_eeg"]),
        "environment": f"commit {commit()}, {environment('itables')}",
    }
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    (DOCS / "reports.md").write_text(text)


def take_pictures(pages):
    """Save pictures of the top of the pages: 1280 pixels wide, the first also 390 and dark."""
    from playwright.sync_api import sync_playwright

    folder = DOCS / "images" / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        for n, (name, path) in enumerate(pages.items()):
            for width, scheme in [(1280, "light"), (390, "light"), (1280, "dark")][: 3 if n == 0 else 1]:
                size = {"width": width, "height": 1500}
                page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
                page.goto(path.resolve().as_uri(), timeout=120_000)
                page.wait_for_selector("html.ready", state="attached", timeout=120_000)
                page.wait_for_function(DRAWN, timeout=120_000)
                page.screenshot(timeout=120_000, path=folder / f"{name}_{width}_{scheme}.png")
                page.context.close()
        browser.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder of the pages")
    options = parser.parse_args()
    if missing_reason():
        raise SystemExit(missing_reason())
    options.out.mkdir(parents=True, exist_ok=True)
    results, pages = {}, {}
    for name, load in RECORDINGS.items():
        X = load()
        model, cp = fit(X)
        W = model.decomposition_
        provenance = make_provenance(model, data=X, notes={"command": COMMAND})
        results[name], pages[name] = (X, model, cp), options.out / f"{name}.html"
        W.save(options.out / f"{name}.nc", overwrite=True)
        write_report(W, pages[name], provenance=provenance, residual=residual_check(X, W), force=True)
        print(f"{name}: {W.summary()}\n", flush=True)
    write_page(results)
    take_pictures(pages)


if __name__ == "__main__":
    main()
