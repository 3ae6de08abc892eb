"""The work of `boolcp fit`: read, fit, save, and stop on Ctrl-C with the atoms so far."""

import contextlib
import json
import shlex
import signal
import sys
import threading
import time
from pathlib import Path

from boolcp.cli import INTERRUPTED
from boolcp.cli.data import load_data
from boolcp.cli.show import shape_text

RESULT, SUMMARY, LOG = "decomposition.nc", "summary.csv", "fit.log"


def run_fit(data, parameters, out, *, is_forced=False):
    """Fit a BMP to the data and save result, table and log in the folder `out`; return the exit code."""
    out = Path(f"{data.files[0].name.partition('.')[0]}-boolcp") if out is None else out
    check_folder(out, is_forced=is_forced)
    X = load_data(data)
    print(f"{data.files[0]}: {shape_text(X)}", flush=True)
    from boolcp.bmp import BMP

    model = BMP(**parse_parameters(parameters), verbose=1)
    start = time.perf_counter()
    with stopping(model) as was_stopped:
        model.fit(X)
    seconds = time.perf_counter() - start
    is_partial = was_stopped.is_set() and model.decomposition_.n_atoms < model.n_atoms
    write_result(model, X, out, seconds=seconds, is_partial=is_partial, is_forced=is_forced)
    print(model.decomposition_.summary())
    print(f"{seconds:.1f} s; saved in {out}: {RESULT}, {SUMMARY}, {LOG}")
    if is_partial:
        print(f"Stopped by Ctrl-C: a valid result with {model.decomposition_.n_atoms} of {model.n_atoms} atoms.")
        return INTERRUPTED
    return 0


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


@contextlib.contextmanager
def stopping(model):
    """Let the first Ctrl-C end the pursuit after the present atom, and the second end everything."""
    was_stopped = threading.Event()
    show = model._progress

    def until_stopped(steps):
        for step in show(steps):
            if was_stopped.is_set():
                return
            yield step

    def stop(number, frame):
        was_stopped.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("\nStopping: the atoms so far will be saved. Ctrl-C again gives up.", file=sys.stderr, flush=True)

    model._progress = until_stopped
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, stop) if is_main else None
    try:
        yield was_stopped
    finally:
        del model._progress
        if is_main:
            signal.signal(signal.SIGINT, before)


def write_result(model, X, out, *, seconds, is_partial=False, is_forced=False):
    """Write the three files of a result."""
    from boolcp.io import save
    from boolcp.io.atomic import write_text
    from boolcp.io.errors import writing
    from boolcp.io.results import make_provenance

    notes = {"command": shlex.join(["boolcp", *sys.argv[1:]]), "seconds": round(seconds, 3), "is_partial": is_partial}
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    save(model, out / RESULT, data=X, notes=notes, overwrite=is_forced)
    write_text(out / SUMMARY, model.decomposition_.to_dataframe().to_csv(), overwrite=is_forced)
    provenance = make_provenance(model, data=X, notes=notes)
    log = "\n".join([model.decomposition_.summary(), "", json.dumps(provenance, indent=2), ""])
    write_text(out / LOG, log, overwrite=is_forced)
