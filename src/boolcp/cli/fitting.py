"""`boolcp fit`: read, fit, save, and stop on Ctrl-C with the atoms found so far; `boolcp select`."""

import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import boolcp
from boolcp.cli import INTERRUPTED
from boolcp.cli.answers import answer, atom_rows, note, plain
from boolcp.cli.data import DataOptions, load_data, load_weights
from boolcp.cli.folders import LOG, RESULT, SUMMARY, check_folder, check_output, write_result
from boolcp.cli.options import Force, Json, ModelOptions, make_model, model_option, option


def fit(
    context: typer.Context,
    model: ModelOptions,
    data: DataOptions,
    n_atoms: Annotated[str, model_option("Number of atoms, or auto.", "--n-atoms", "-k", metavar="N")] = "10",
    out: Annotated[Path | None, option("Folder of the result.", "--out", "-o", metavar="FOLDER")] = None,
    assess: Annotated[bool, option("Test whether atoms come back and are on/off.", "--assess")] = False,
    test: Annotated[list[str], option("Test against this column of the trials. Repeatable.", metavar="COLUMN")] = [],  # noqa: B006
    blocks: Annotated[str | None, option("Permute within groups of this column (sessions).", metavar="COLUMN")] = None,
    unit: Annotated[str | None, option("Test means of its groups (subject, session).", metavar="COLUMN")] = None,
    checkpoint: Annotated[Path | None, option("Progress; resume from it if it exists.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Decompose the data and save the result in a folder.

    The folder holds decomposition.nc (the result, for boolcp.load and xarray), summary.csv (one row for each atom) and
    fit.log (parameters and versions). Ctrl-C abandons the present step and saves what was found before it.

    \b
    Examples:
      boolcp fit data.npy -k 10 -o result
      boolcp fit data.npy --dims channel,time,trial --trials trials.csv --test drug --assess -k 5
      boolcp fit eeg.mat -v y --dims time,channel --sampling-rate 250 --bin-ms 3000 -k 5
      boolcp fit awake.npz asleep.npz -v psd --dims channel,freq --join state --log --center state -k 4
      boolcp fit monday-epo.fif friday-epo.fif -k 4 --assess --test condition --unit session
      boolcp fit raw.fif --cut go --window -200,800ms --reject 150 -k 6 --boolean-modes trial
      boolcp fit spikes.npz --events neuron,time,trial --bin-ms 20 -k 8 --loss poisson
      boolcp fit large.npy -k 40 -o result --checkpoint large.ckpt
    """  # noqa: D301
    out = Path(f"{data.files[0].name.partition('.')[0]}-boolcp") if out is None else out
    with boolcp.io.errors.writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    context.with_resource(boolcp.io.atomic.locked(out))  # another run with this folder ends here, not after its fit
    check_folder(out, is_forced=force)
    if not n_atoms.lstrip("-").isdigit() and n_atoms != "auto":
        raise ValueError(f"--n-atoms takes a number, or auto, got {n_atoms!r}.")
    make_model(model, 1 if n_atoms == "auto" else int(n_atoms))
    X = load_data(data)
    check_columns(X, test, blocks, unit)
    start, given = time.perf_counter(), load_weights(data, X)
    again = given | {"random_state": model.seed, "verbose": 1}
    if data.weights is not None:
        model = replace(model, noise=model.noise or "white")  # a noise model takes weights of trials only
    notes: dict[str, Any] = {}
    if n_atoms == "auto":
        n_atoms, notes["n_atoms_chosen_by"] = choose_number(X, model.parameters(X) | again)
    bmp, asked = make_model(model, int(n_atoms), X), list[int]()
    try:
        with on_ctrl_c(partial(stop_fit, asked)):
            bmp.fit(X, checkpoint=checkpoint, **given)
    except KeyboardInterrupt:
        if checkpoint is not None:
            note(f"\nThe same command resumes from {checkpoint}.")
        raise
    seconds, notes["is_partial"] = time.perf_counter() - start, len(asked) > 0
    if assess and not asked:
        found = or_without("the assessment of the atoms", boolcp.assess, X, bmp.decomposition_, **again)
        bmp.decomposition_ = bmp.decomposition_ if found is None else found
    W = bmp.decomposition_
    tests = or_without("tests of the columns", boolcp.trust.conditions.run_tests, W, test, blocks, unit) or {}
    known = {column: vars(test) | {"blocks": blocks, "unit": unit} for column, test in tests.items()}
    notes |= {"tests": plain(known)} if known else {}
    with on_ctrl_c(signal.SIG_IGN):
        write_result(bmp, X, out, seconds=seconds, notes=notes, is_forced=force)
    lines = [W.summary(), *(f"{column}, {test.summary()}" for column, test in tests.items())]
    lines += [f"Fitted in {seconds:.1f} s; saved in {out}: {RESULT}, {SUMMARY}, {LOG}."]
    lines.append(f"Plots: {shlex.join(['boolcp', 'report', str(out)])}")
    if asked:
        lines.append(f"Stopped by Ctrl-C: a valid but partial result, {W.n_atoms} of {bmp.n_atoms} atoms.")
        lines += [] if checkpoint is None else [f"The same command with --force resumes from {checkpoint}."]
    values = {"folder": out, "result": out / RESULT, "seconds": seconds, "explained": W.explained()}
    values |= {"is_partial": notes["is_partial"], "shape": W.shape, "dims": W.dims, "atoms": atom_rows(W)}
    answer("\n".join(lines), values | {"tests": notes.get("tests", {})}, as_json=as_json)
    if asked:
        raise typer.Exit(INTERRUPTED)


def check_columns(X: Any, columns: Sequence[str], blocks: str | None, unit: str | None) -> None:
    """Raise, before a long fit, unless atoms can be tested against these columns of the data."""
    from boolcp.result.labels import read_labels
    from boolcp.trust.conditions import run_tests

    labels = read_labels(X)[1]
    known = list(labels.extra) if labels is not None else []
    for which, name in [*(("--test", name) for name in columns), ("--blocks", blocks), ("--unit", unit)]:
        if name is not None and name not in known:
            raise ValueError(f"{which} {name}: the data have no such column; they have {', '.join(known) or 'none'}.")
    for column in columns:
        try:
            run_tests(boolcp.BooleanCP(X.shape, labels=labels), [column], blocks, unit)
        except ValueError as error:
            raise ValueError(f"--test {column}: {error}") from error


def select(
    model: ModelOptions,
    data: DataOptions,
    max_atoms: Annotated[int, model_option("Largest number to try.")] = 10,
    parts: Annotated[int, typer.Option(help="Fits to halves of the trials.")] = 8,
    jobs: Annotated[int | None, option("Processes; by default all cores if a fit takes long.", "--jobs", "-j")] = None,
    out: Annotated[Path | None, option("Write the table, .csv.", "--out", "-o")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose the number of atoms that come back in parts of the data.

    \b
    Example:
      boolcp select data.nc --max-atoms 15 --jobs 4 -o numbers.csv
    """  # noqa: D301
    check_output(out, data.files, is_forced=force, endings=(".csv",))
    make_model(model, max_atoms)
    X = load_data(data)
    options = load_weights(data, X) | model.parameters(X) | {"n_parts": parts}
    found = boolcp.select_n_atoms(X, max_atoms=max_atoms, n_jobs=jobs, verbose=1, **options)
    rows = [
        {"n_atoms": k, "n_replicated": n, "least": float(share.min(initial=1.0)), "is_chosen": int(k == found.n_atoms)}
        for k, (n, share) in enumerate(zip(found.n_replicated, found.shares, strict=True), start=1)
    ]
    if out is not None:
        import pandas

        boolcp.io.atomic.write_text(out, pandas.DataFrame(rows).to_csv(index=False), overwrite=force)
    text = f"{found.summary()}\n{found.n_atoms} atoms"
    answer(text, {"n_atoms": found.n_atoms, "parts": found.parts, "table": rows}, as_json=as_json)


def choose_number(X: Any, options: dict[str, Any]) -> tuple[str, str]:
    """Return the largest number of atoms that all come back in parts of the data, and in words how it was chosen."""
    found = boolcp.select_n_atoms(X, **options)
    if not found.n_atoms:
        boolcp.checks.warn_no_atom()
    edge = ", the largest number tried: a larger one may be better" if found.is_at_edge else ""
    how = f"the largest number whose atoms come back in {found.parts}, up to {len(found.shares)} tried{edge}"
    note(f"Number of atoms: {max(found.n_atoms, 1)} ({how}).")
    return str(max(found.n_atoms, 1)), how


def or_without(what: str, act: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the outcome of a test, or None if it fails or Ctrl-C stops it: a test does not cost the result."""
    try:
        return act(*arguments, **options)
    except (KeyboardInterrupt, MemoryError, TypeError, ValueError) as error:
        note(f"\nSaved without {what}: {str(error) or 'it was stopped by Ctrl-C.'}")
        return None


@contextmanager
def on_ctrl_c(handler: Any) -> Iterator[None]:
    """Handle Ctrl-C in this context, as far as this is the main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, handler) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)


def stop_fit(asked: list[int], number: int, frame: object = None) -> None:
    """Abandon the present step and end the pursuit of a fit, the second time everything; the third time interrupt."""
    from boolcp.fit.watch import PRESENT, Stop

    asked.append(number)
    if len(asked) > 2:
        raise KeyboardInterrupt
    note("\nStopping: the atoms found so far are refined and saved.")
    note("Press Ctrl-C again to skip the refinement, a third time to quit without a result.")
    if len(asked) == 1 or PRESENT.seen is not None:  # otherwise the fit is over
        raise Stop
