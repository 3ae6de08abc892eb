"""`boolcp fit`: read, fit, save, and stop on Ctrl-C with the atoms found so far."""

import shlex
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from boolcp.checks import warn_no_atom
from boolcp.cli import INTERRUPTED
from boolcp.cli.answers import answer, atom_rows, note
from boolcp.cli.data import DataOptions, load_data, load_weights
from boolcp.cli.folders import LOG, RESULT, SUMMARY, check_folder, write_result
from boolcp.cli.options import ModelOptions, make_model
from boolcp.cli.testing import check_columns, plain_test, seeded
from boolcp.fit.checkpoint import Checkpoint
from boolcp.fit.state import STOP_REASONS
from boolcp.fit.watch import Stop
from boolcp.io.errors import FileError
from boolcp.trust.assess import assess
from boolcp.trust.conditions import run_tests
from boolcp.trust.selection import select_n_atoms

N_RUNS = 5  # random halvings, if their number is not given


def run_fit(
    data: DataOptions,
    model: ModelOptions,
    n_atoms: str,
    out: Path | None,
    *,
    is_assessed: bool,
    n_stability: int,
    tested: Sequence[str],
    blocks: str | None,
    is_forced: bool,
    checkpoint: Path | None,
    is_resumed: bool,
    as_json: bool,
) -> int:
    """Fit a BMP to the data and save result, table and log in the folder `out`; return the exit code."""
    out = Path(f"{data.files[0].name.partition('.')[0]}-boolcp") if out is None else out
    check_folder(out, is_forced=is_forced)
    check_checkpoint(checkpoint, is_resumed=is_resumed)
    is_auto = n_atoms == "auto"
    bmp = make_model(model, 1 if is_auto else read_number(n_atoms))
    if data.weights is not None and (is_assessed or n_stability):
        raise ValueError("--weights: --assess and --stability test fits without weights. Leave one of them out.")
    X = load_data(data)
    check_columns(X, tested, blocks)
    start = time.perf_counter()
    given = load_weights(data, X)
    notes: dict[str, Any] = {"n_atoms_chosen_by": choose_number(bmp, X, given)} if is_auto else {}
    try:
        is_partial = fit_until_stopped(bmp, X, checkpoint=checkpoint, **given)
    except KeyboardInterrupt:
        if checkpoint is not None:
            note(f"\nThe same command resumes from {checkpoint}.")
        raise
    seconds = time.perf_counter() - start
    if (is_assessed or n_stability) and not is_partial:
        bmp.decomposition_ = try_to_assess(bmp, X, n_stability, is_assessed=is_assessed)
    W = bmp.decomposition_
    tests = find_tests(W, tested, blocks)
    notes["is_partial"] = is_partial
    notes |= {"tests": {column: plain_test(test, blocks) for column, test in tests.items()}} if tests else {}
    write_result(bmp, X, out, seconds=seconds, notes=notes, is_forced=is_forced)
    lines = [W.summary(), *(f"{column}, {test.summary()}" for column, test in tests.items())]
    lines += [f"Fitted in {seconds:.1f} s; saved in {out}: {RESULT}, {SUMMARY}, {LOG}."]
    lines.append(f"Plots: {shlex.join(['boolcp', 'report', str(out)])}")
    if is_partial:
        lines.append(f"Stopped by Ctrl-C: a valid but partial result, {W.n_atoms} of {bmp.n_atoms} atoms.")
        lines += [] if checkpoint is None else [f"The same command with --force resumes from {checkpoint}."]
    values = {"folder": out, "result": out / RESULT, "seconds": seconds, "explained": W.explained()}
    values |= {"is_partial": is_partial, "shape": W.shape, "dims": W.dims, "atoms": atom_rows(W)}
    answer("\n".join(lines), values | {"tests": notes.get("tests", {})}, as_json=as_json)
    return INTERRUPTED if is_partial else 0


def read_number(text: str) -> int:
    """Return the number of atoms."""
    if not text.lstrip("-").isdigit():
        raise ValueError(f"--n-atoms takes a number, or auto, got {text!r}.")
    return int(text)


def choose_number(model: Any, X: Any, given: dict[str, Any]) -> str:
    """Set the number of atoms that predicts held-out entries best, and return in words how it was chosen."""
    found = select_n_atoms(X, **given, **seeded(model))
    if not found.n_atoms:
        warn_no_atom()
    model.set_params(n_atoms=max(found.n_atoms, 1))
    edge = ", the largest number tried: a larger one may be better" if found.is_at_edge else ""
    how = f"error on held-out {found.scheme}, rule {found.rule}, 0 to {found.errors.shape[1] - 1} atoms tried{edge}"
    note(f"Number of atoms: {model.n_atoms} ({how}).")
    return how


def try_to_assess(model: Any, X: Any, n_stability: int, *, is_assessed: bool) -> Any:
    """Return the decomposition with its test results, or unchanged if they fail or Ctrl-C stops them."""
    tests = ("significance", "stability") if is_assessed else ("stability",)
    try:
        return assess(X, model.decomposition_, tests=tests, n_runs=n_stability or N_RUNS, **seeded(model))
    except (KeyboardInterrupt, MemoryError, TypeError, ValueError) as error:
        note(f"\nSaved without the tests of the atoms: {str(error) or 'they were stopped by Ctrl-C.'}")
        return model.decomposition_


def find_tests(W: Any, columns: Sequence[str], blocks: str | None) -> dict[str, Any]:
    """Return the tests of the atoms against columns; an impossible test does not cost the result."""
    try:
        return run_tests(W, columns, blocks)
    except ValueError as error:  # if all trials of a condition lack data, say
        note(f"Not tested: {error}")
        return {}


def check_checkpoint(checkpoint: Path | None, *, is_resumed: bool) -> None:
    """Raise an error if a fit should be resumed but there is nothing to resume from."""
    if not is_resumed:
        return
    if checkpoint is None:
        raise ValueError("--resume needs --checkpoint PATH, the file to resume from.")
    files = Checkpoint(checkpoint)
    if not (files.path.exists() or files.previous.exists()):
        raise FileError(checkpoint, "there is no such checkpoint", "Omit --resume to start one.")


def fit_until_stopped(model: Any, X: Any, **given: Any) -> bool:
    """Fit the model and return True if Ctrl-C made the result partial.

    Ctrl-C abandons the present step at once. In the pursuit, the atoms found so far are then refined; later, the best
    so far is the result. The third Ctrl-C ends without a result.
    """
    with Stopper():
        model.fit(X, **given)
    return model.stop_reason_ == STOP_REASONS["stopped"]


class Stopper:
    """In this context, Ctrl-C ends the pursuit of a fit, then everything; the third time it interrupts as usual."""

    def __init__(self) -> None:
        self.n_asked = 0

    def __enter__(self) -> "Stopper":
        self.is_main = threading.current_thread() is threading.main_thread()
        self.before = signal.signal(signal.SIGINT, self.stop) if self.is_main else None
        return self

    def __exit__(self, *error: object) -> None:
        if self.is_main:
            signal.signal(signal.SIGINT, self.before)

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C."""
        self.n_asked += 1
        if self.n_asked > 2:
            raise KeyboardInterrupt
        note("\nStopping: the atoms found so far are refined and saved.")
        note("Press Ctrl-C again to skip the refinement, a third time to quit without a result.")
        raise Stop
