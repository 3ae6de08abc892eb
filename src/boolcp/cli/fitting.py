"""`boolcp fit`: read, fit, save, and stop on Ctrl-C with the atoms found so far."""

import shlex
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from boolcp.checks import warn_no_atom
from boolcp.cli import INTERRUPTED
from boolcp.cli.answers import answer, atom_rows, note, plain
from boolcp.cli.data import DataOptions, load_data, load_weights
from boolcp.cli.folders import LOG, RESULT, SUMMARY, check_folder, write_result
from boolcp.cli.options import ModelOptions, make_model
from boolcp.cli.testing import check_columns
from boolcp.fit.watch import Stop
from boolcp.trust.assess import assess
from boolcp.trust.conditions import run_tests
from boolcp.trust.selection import select_n_atoms

OF_A_TEST = ("conditions", "counts", "mean", "effect", "auc", "p_value", "p_adjusted", "n_permutations", "scheme")


def run_fit(
    data: DataOptions,
    model: ModelOptions,
    n_atoms: str,
    out: Path | None,
    *,
    is_assessed: bool,
    tested: Sequence[str],
    blocks: str | None,
    is_forced: bool,
    checkpoint: Path | None,
    as_json: bool,
) -> int:
    """Fit a BMP to the data and save result, table and log in the folder `out`; return the exit code."""
    out = Path(f"{data.files[0].name.partition('.')[0]}-boolcp") if out is None else out
    check_folder(out, is_forced=is_forced)
    if not n_atoms.lstrip("-").isdigit() and n_atoms != "auto":
        raise ValueError(f"--n-atoms takes a number, or auto, got {n_atoms!r}.")
    make_model(model, 1 if n_atoms == "auto" else int(n_atoms))
    if data.weights is not None and is_assessed:
        raise ValueError("--weights: --assess tests fits without weights. Leave one of them out.")
    X = load_data(data)
    check_columns(X, tested, blocks)
    start, given, again = time.perf_counter(), load_weights(data, X), model.parameters(X.dims) | {"verbose": 1}
    notes: dict[str, Any] = {}
    if n_atoms == "auto":
        n_atoms, notes["n_atoms_chosen_by"] = choose_number(X, given | again)
    bmp = make_model(model, int(n_atoms), X.dims)
    try:
        with Stopper() as stopper:
            bmp.fit(X, checkpoint=checkpoint, **given)
    except KeyboardInterrupt:
        if checkpoint is not None:
            note(f"\nThe same command resumes from {checkpoint}.")
        raise
    seconds, notes["is_partial"] = time.perf_counter() - start, stopper.n_asked > 0
    if is_assessed and not notes["is_partial"]:
        found = or_without("the assessment of the atoms", assess, X, bmp.decomposition_, n_runs=5, **again)
        bmp.decomposition_ = bmp.decomposition_ if found is None else found
    W = bmp.decomposition_
    tests = or_without("tests of the columns", run_tests, W, tested, blocks) or {}
    known = {column: {name: getattr(test, name) for name in OF_A_TEST} for column, test in tests.items()}
    notes |= {"tests": plain({column: test | {"blocks": blocks} for column, test in known.items()})} if tests else {}
    write_result(bmp, X, out, seconds=seconds, notes=notes, is_forced=is_forced)
    lines = [W.summary(), *(f"{column}, {test.summary()}" for column, test in tests.items())]
    lines += [f"Fitted in {seconds:.1f} s; saved in {out}: {RESULT}, {SUMMARY}, {LOG}."]
    lines.append(f"Plots: {shlex.join(['boolcp', 'report', str(out)])}")
    if notes["is_partial"]:
        lines.append(f"Stopped by Ctrl-C: a valid but partial result, {W.n_atoms} of {bmp.n_atoms} atoms.")
        lines += [] if checkpoint is None else [f"The same command with --force resumes from {checkpoint}."]
    values = {"folder": out, "result": out / RESULT, "seconds": seconds, "explained": W.explained()}
    values |= {"is_partial": notes["is_partial"], "shape": W.shape, "dims": W.dims, "atoms": atom_rows(W)}
    answer("\n".join(lines), values | {"tests": notes.get("tests", {})}, as_json=as_json)
    return INTERRUPTED if notes["is_partial"] else 0


def choose_number(X: Any, options: dict[str, Any]) -> tuple[str, str]:
    """Return the number of atoms that predicts held-out entries best, and in words how it was chosen."""
    found = select_n_atoms(X, **options)
    if not found.n_atoms:
        warn_no_atom()
    edge = ", the largest number tried: a larger one may be better" if found.is_at_edge else ""
    how = f"error on held-out {found.scheme}, rule {found.rule}, 0 to {found.errors.shape[1] - 1} atoms tried{edge}"
    note(f"Number of atoms: {max(found.n_atoms, 1)} ({how}).")
    return str(max(found.n_atoms, 1)), how


def or_without(what: str, act: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the outcome of a test, or None if it fails or Ctrl-C stops it: a test does not cost the result."""
    try:
        return act(*arguments, **options)
    except (KeyboardInterrupt, MemoryError, TypeError, ValueError) as error:
        note(f"\nSaved without {what}: {str(error) or 'it was stopped by Ctrl-C.'}")
        return None


class Stopper:
    """In this context, Ctrl-C ends the pursuit of a fit, then everything; the third time it interrupts as usual.

    It abandons the present step at once. In the pursuit, the atoms found so far are then refined; later, the best
    so far is the result.
    """

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
