"""`boolcp demo`: all steps on a simulated recording, from files to a result and a page."""

from pathlib import Path
from typing import Annotated, Any

import typer

import boolcp
from boolcp.cli.answers import note
from boolcp.cli.data import DataOptions
from boolcp.cli.fitting import fit
from boolcp.cli.folders import LOG, REPORT, RESULT, SUMMARY, check_folder, check_own, write_page
from boolcp.cli.options import ALL, Force, ModelOptions

CONDITION, LABEL, RATE, N_ATOMS = "anesthesia", "Anesthetized", 100, 3
MARK = "SIMULATED.txt"  # marks a recording that the demo wrote


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="What it writes.", metavar="FOLDER")] = Path("boolcp-demo"),
    seed: Annotated[int, typer.Option(help="Equal seeds give equal results.")] = 0,
    force: Force = False,
) -> None:
    """Run all steps on a simulated recording, from files to a page."""
    folder = out / "recording"
    check_folder(out, is_forced=force)
    check_own(out / REPORT, is_forced=force)
    if folder.exists() and not (folder / MARK).exists():
        advice = "Choose a different folder (--out)."
        raise boolcp.io.FileError(folder, "exists and was not written by boolcp demo", advice)
    simulation = boolcp.datasets.simulate_ecog(n_trials=12, random_state=seed)
    simulation.write_neurotycho(folder, overwrite=force)
    boolcp.io.atomic.write_text(folder / MARK, "Simulated by boolcp demo.\n", overwrite=True)
    note(f"Simulated {simulation} and wrote {folder}, in the layout of a NeuroTycho recording.")
    data = DataOptions([folder], condition=LABEL, reference="average", resample=RATE, bin_ms=simulation.trial_ms)
    fit(context, ModelOptions(boolean_modes=ALL, seed=seed), data, str(N_ATOMS), out, assess=True, force=force)
    W, page = boolcp.load(out / RESULT), write_page(out, is_forced=force)
    print()
    for atom, name in zip(simulation.truth[CONDITION].atoms, simulation.patterns, strict=True):
        print(f"  {name}: {compare(W, atom)}")
    print(f"\nThe result is in {out}: {RESULT}, {SUMMARY}, {LOG}")
    print(f"Open {page} in a browser: the report, one page with plots.")
    print(f"In Python: boolcp.load('{out / RESULT}'). The same from the command:")
    steps = f"--condition {LABEL} --reference average --resample {RATE} --bin-ms {simulation.trial_ms}"
    print(f"  boolcp fit {folder} {steps} --boolean-modes all -k {N_ATOMS} --seed {seed} -o result --assess")


def compare(W: Any, atom: Any) -> str:
    """Describe what was found of a true atom."""
    z = atom.z[:: len(atom.z) // W.shape[atom.mode]]
    wrong = [int((z != found.z).sum()) for found in W.atoms if found.mode == atom.mode]
    said = f"found with {min(wrong)} wrong bits" if wrong else "not found"
    return f"Boolean in {W.mode_name(atom.mode)}, {z.sum()} of {len(z)} on: {said}"
