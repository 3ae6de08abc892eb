"""`boolcp demo`: all steps on a simulated recording, from files to a result and a page."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from boolcp import prepare
from boolcp.cli.answers import note
from boolcp.cli.folders import LOG, REPORT, RESULT, SUMMARY, check_folder, check_own, run_report, write_result
from boolcp.io.atomic import write_text
from boolcp.io.errors import FileError
from boolcp.io.reading import sizes_text

CONDITION, LABEL, RATE, N_ATOMS = "anesthesia", "Anesthetized", 100, 3
MARK = "SIMULATED.txt"  # marks a recording that the demo wrote


def run_demo(out: Path, *, seed: int, is_forced: bool) -> None:
    """Simulate, write, read, prepare, fit, save and report, and print what was done and found."""
    import boolcp

    check_folder(out, is_forced=is_forced)
    check_own(out / REPORT, is_forced=is_forced)
    check_recording(out / "recording")
    start = time.perf_counter()

    def say(text: str) -> None:
        note(f"[{time.perf_counter() - start:5.1f} s] {text}")

    simulation = boolcp.datasets.simulate_ecog(n_trials=12, random_state=seed)
    say(f"simulated {simulation}")
    simulation.write_neurotycho(out / "recording", overwrite=is_forced)
    write_text(out / "recording" / MARK, "Simulated by boolcp demo.\n", overwrite=True)
    say(f"wrote {out / 'recording'}, in the layout of a NeuroTycho recording")
    X = boolcp.open_tensor(out / "recording", condition=LABEL, progress=True)
    X = prepare.cut_trials(prepare.resample(prepare.common_average(X), RATE), simulation.trial_ms)
    say(f"read and prepared {sizes_text(X)}: {'; '.join(X.attrs['preparation'])}")
    before = time.perf_counter()
    model = boolcp.BMP(N_ATOMS, atom_rank=1, random_state=seed, verbose=1).fit(X)
    say("decomposed")
    model.decomposition_ = boolcp.assess(X, model.decomposition_, n_runs=5, random_state=seed)
    say("tested: is each atom more than noise, and does it come back in halves of the data?")
    write_result(model, X, out, seconds=time.perf_counter() - before, is_forced=is_forced)
    W = boolcp.load(out / RESULT)
    print(f"\n{W.summary()}\n")
    for name, line in compare(W, simulation.truth[CONDITION], simulation.patterns).items():
        print(f"  {name}: {line}")
    page = run_report(out, is_forced=is_forced)
    print(f"\nThe result is in {out}: {RESULT}, {SUMMARY}, {LOG}")
    print(f"Open {page} in a browser: the report, one page with plots.")
    print(f"In Python: boolcp.load('{out / RESULT}'). The same from the command:")
    steps = f"--condition {LABEL} --reference average --resample {RATE} --bin-ms {simulation.trial_ms}"
    print(f"  boolcp fit {out / 'recording'} {steps} -k {N_ATOMS} --seed {seed} -o result --assess")


def check_recording(folder: Path) -> None:
    """Raise a FileError if the folder holds a recording that the demo did not write."""
    if folder.exists() and not (folder / MARK).exists():
        raise FileError(folder, "exists and was not written by boolcp demo", "Choose a different folder (--out).")


def compare(W: Any, truth: Any, names: Any) -> dict[str, str]:
    """Describe for each true pattern what was found of it."""
    lines = {}
    for atom, name in zip(truth.atoms, names, strict=True):
        step = len(atom.z) // W.shape[atom.mode]
        z = atom.z[::step]
        wrong = [int(np.sum(z != found.z)) for found in W.atoms if found.mode == atom.mode]
        where = f"Boolean in {truth.mode_name(atom.mode)}, {z.sum()} of {len(z)} on"
        lines[name] = f"{where}: " + (f"found with {min(wrong)} wrong bits" if wrong else "not found")
    return lines
