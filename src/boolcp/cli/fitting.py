"""The work of `boolcp fit`: read, fit, save, and stop on Ctrl-C with the atoms so far."""

import json
import shlex
import signal
import sys
import threading
import time
from pathlib import Path

from boolcp.cli import INTERRUPTED
from boolcp.cli.data import load_data
from boolcp.io.reading import sizes_text

OWN_PARAMETERS = ("n_atoms", "random_state", "verbose", "certify")  # of the fit itself, not of those that test it
RESULT, SUMMARY, LOG, REPORT = "decomposition.nc", "summary.csv", "fit.log", "report.html"


def run_fit(data, parameters, out, *, n_stability=0, is_forced=False, checkpoint=None, is_resumed=False):
    """Fit a BMP to the data and save result, table and log in the folder `out`; return the exit code."""
    out = Path(f"{data.files[0].name.partition('.')[0]}-boolcp") if out is None else out
    check_folder(out, is_forced=is_forced)
    check_checkpoint(checkpoint, is_resumed=is_resumed)
    X = load_data(data)
    print(f"{data.files[0]}: {sizes_text(X)}", flush=True)
    from boolcp.bmp import BMP

    model = BMP(**parse_parameters(parameters), verbose=1)
    start = time.perf_counter()
    try:
        is_partial = fit_until_stopped(model, X, checkpoint=checkpoint)
    except KeyboardInterrupt:
        if checkpoint is not None:
            print(f"\nThe same command goes on from {checkpoint}.", file=sys.stderr, flush=True)
        raise
    seconds = time.perf_counter() - start
    notes = {"is_partial": is_partial}
    if n_stability and not is_partial:
        notes["stability"] = find_stability(model, X, n_stability)
    write_result(model, X, out, seconds=seconds, notes=notes, is_forced=is_forced)
    print(model.decomposition_.summary())
    pictures = shlex.join(["boolcp", "report", str(out)])
    print(f"{seconds:.1f} s; saved in {out}: {RESULT}, {SUMMARY}, {LOG}. Pictures: {pictures}")
    if is_partial:
        atoms = f"{model.decomposition_.n_atoms} of {parameters['n_atoms']} atoms"
        print(f"Stopped by Ctrl-C: a valid but partial result, {atoms}.")
        if checkpoint is not None:
            print(f"The same command with --force goes on from {checkpoint}.")
        return INTERRUPTED
    return 0


def check_checkpoint(checkpoint, *, is_resumed=False):
    """Raise an error if a fit is to be resumed and there is nothing to go on from."""
    if not is_resumed:
        return
    if checkpoint is None:
        raise ValueError("--resume needs --checkpoint PATH, the file to go on from.")
    from boolcp.fit.checkpoint import Checkpoint
    from boolcp.io.errors import FileError

    files = Checkpoint(checkpoint)
    if not (files.path.exists() or files.previous.exists()):
        raise FileError(checkpoint, "there is no such checkpoint", "Leave out --resume to begin one.")


def fit_until_stopped(model, X, *, checkpoint=None):
    """Fit the model and return True if Ctrl-C made the result partial.

    Ctrl-C in the pursuit ends it after the present atom, and the atoms so far are refined. Ctrl-C in the refinement
    ends it after the present start or sweep with the best so far. Once more leaves at once, without a result.
    """
    from boolcp.fit.state import STOP_REASONS

    with Stopper() as stopper:
        model.fit(X, checkpoint=checkpoint, callback=stopper.answer)
    return model.stop_reason_ == STOP_REASONS["stopped"]


class Stopper:
    """While it is entered, Ctrl-C makes `answer`, the callback of a fit, end the pursuit, then everything.

    One more Ctrl-C interrupts as usual.
    """

    def __init__(self):
        self.is_asked = self.is_refining = self.is_stopped = False

    def __enter__(self):
        self.is_main = threading.current_thread() is threading.main_thread()
        self.before = signal.signal(signal.SIGINT, self.stop) if self.is_main else None
        return self

    def __exit__(self, *error):
        if self.is_main:
            signal.signal(signal.SIGINT, self.before)

    def answer(self, progress):
        """Return what a fit is to do after a step: go on (None), refine the atoms so far, or stop (True)."""
        if self.is_stopped:
            return True
        is_over = progress.stage != "pursuit" or progress.step == progress.n_steps
        self.is_refining = is_over or self.is_asked
        return "refine" if self.is_asked and not is_over else None

    def stop(self, number, frame):
        """Handle Ctrl-C."""
        if self.is_stopped:
            raise KeyboardInterrupt
        if self.is_asked or self.is_refining:
            self.is_stopped = True
            text = "Stopping after this step; the best result so far will be saved. Ctrl-C again: now, no result."
        else:
            self.is_asked = True
            text = "Stopping after this atom; the atoms so far will be refined and saved. Ctrl-C again: not refined."
        print(f"\n{text}", file=sys.stderr, flush=True)


def check_folder(out, *, is_forced=False):
    """Raise a FileError if results would be overwritten, before any work is done."""
    from boolcp.io.atomic import check_free
    from boolcp.io.errors import FileError

    if out.exists() and not out.is_dir():
        raise FileError(out, "is a file, not a folder", "Name a folder (--out).")
    for name in (RESULT, SUMMARY, LOG):
        check_free(out / name, overwrite=is_forced)


def parse_parameters(parameters):
    """Return the parameters of BMP from what the command line gives as text."""
    parameters = dict(parameters)
    modes, rank = parameters["boolean_modes"], parameters["atom_rank"]
    if modes is not None:
        parameters["boolean_modes"] = [int(m) if m.strip().isdigit() else m.strip() for m in modes.split(",")]
    parameters["atom_rank"] = None if rank == "block" else (int(rank) if rank.isdigit() else rank)
    return parameters


def find_stability(model, X, n_runs):
    """Return how often the atoms come back in fits to bootstrap samples of the last mode, as JSON can hold it."""
    import numpy as np

    from boolcp.trust.stability import stability

    options = {name: value for name, value in model.get_params().items() if name not in OWN_PARAMETERS}
    if options["boolean_modes"] is not None:
        modes = np.atleast_1d(np.array(options["boolean_modes"], dtype=object))
        options["boolean_modes"] = [X.dims.index(m) if isinstance(m, str) else m for m in modes]
    W, seed = model.decomposition_, model.random_state
    found = stability(
        X, W.n_atoms, n_runs=n_runs, scheme="bootstrap", reference=W, random_state=seed, verbose=1, **options
    )
    bits = [[None if np.isnan(p) else round(float(p), 4) for p in row] for row in found.bit_probability]
    scheme = f"bootstrap along {X.dims[-1]}"
    return {
        "recurrence": [float(share) for share in found.recurrence],
        "bit_probability": bits,
        "n_fits": len(found.similarity),
        "scheme": scheme,
    }


def check_residual(model, X):
    """Return the numbers of the residual check, as JSON can hold them."""
    from boolcp.trust.residuals import residual_check

    numbers = vars(residual_check(X, model.decomposition_))
    rounded = {name: [float(f"{q:.5g}") for q in numbers[name]] for name in ("normal_quantiles", "quantiles")}
    return numbers | rounded


def write_result(model, X, out, *, seconds, notes=None, is_forced=False):
    """Write the three files of a result."""
    from boolcp.io import save
    from boolcp.io.atomic import write_text
    from boolcp.io.errors import writing
    from boolcp.io.results import make_provenance

    command = shlex.join(["boolcp", *sys.argv[1:]])
    notes = {"command": command, "seconds": round(seconds, 3), "is_partial": False, **(notes or {})}
    notes["residual_check"] = check_residual(model, X)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        if is_forced:
            (out / REPORT).unlink(missing_ok=True)  # that of the result that is replaced
    save(model, out / RESULT, data=X, notes=notes, overwrite=is_forced)
    write_text(out / SUMMARY, model.decomposition_.to_dataframe().to_csv(), overwrite=is_forced)
    short = {name: value for name, value in notes.items() if name not in ("residual_check", "stability")}
    provenance = make_provenance(model, data=X, notes=short)
    log = "\n".join([model.decomposition_.summary(), "", json.dumps(provenance, indent=2), ""])
    write_text(out / LOG, log, overwrite=is_forced)


def run_report(out, *, is_forced=False):
    """Write the report of a result, a folder or a file, and return its path."""
    from boolcp.io import load, load_provenance
    from boolcp.io.atomic import check_free
    from boolcp.io.errors import FileError, check_exists

    out = check_exists(out)
    if out.is_dir() and not (out / RESULT).exists():
        raise FileError(out, f"has no {RESULT}", "Name a folder that boolcp fit wrote, or the file of a result.")
    result = out / RESULT if out.is_dir() else out
    page = result.with_name(REPORT) if result.name == RESULT else result.with_suffix(".html")
    check_free(page, overwrite=is_forced)
    W, provenance = load(result), load_provenance(result)
    from boolcp.report import write_report

    write_report(W, page, provenance=provenance, force=is_forced)
    return page


def run_select(data, out, *, is_forced=False, seed=0, **options):
    """Print the held-out error for each number of atoms, and write it as a table if asked."""
    from boolcp.io.atomic import check_free, write_text

    if out is not None:
        check_free(out, overwrite=is_forced)
    X = load_data(data)
    print(f"{data.files[0]}: {sizes_text(X)}", flush=True)
    from boolcp.trust.selection import select_n_atoms

    selection = select_n_atoms(X, random_state=seed, verbose=1, **options)
    print(selection.summary())
    print(f"{selection.n_atoms} atoms (rule {selection.rule})")
    if out is not None:
        rows = enumerate(zip(selection.mean, selection.standard_error, strict=True))
        lines = ["n_atoms,rmse,standard_error,is_chosen"]
        lines += [f"{k},{mean:.10g},{error:.10g},{int(k == selection.n_atoms)}" for k, (mean, error) in rows]
        write_text(out, "\n".join([*lines, ""]), overwrite=is_forced)


def run_complete(data, out, *, n_atoms, seed=0, is_forced=False):
    """Write the tensor with its missing entries filled."""
    from boolcp.io.atomic import check_free
    from boolcp.io.writing import write_tensor

    check_free(out, overwrite=is_forced)
    X = load_data(data)
    n_missing = int(X.isnull().sum())
    print(f"{data.files[0]}: {sizes_text(X)}, {n_missing} entries missing", flush=True)
    if n_missing == 0:
        raise ValueError(f"{data.files[0]}: no entry is missing (NaN), there is nothing to complete.")
    from boolcp.bmp import BMP

    model = BMP(n_atoms, random_state=seed, verbose=1).fit(X)
    write_tensor(model.complete(X), out, overwrite=is_forced)
    print(model.decomposition_.summary())
    print(f"{out}: {n_missing} entries filled")
