"""The folder of a result: its files, whether they may be replaced, and how they are written and described."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import boolcp
from boolcp.cli.answers import answer, atom_rows
from boolcp.cli.options import Force, Json, Result, option

RESULT, SUMMARY, LOG, REPORT = "decomposition.nc", "summary.csv", "fit.log", "report.html"
MARKS = {SUMMARY: "atom,boolean_mode,", LOG: '"boolcp": "', REPORT: '<meta name="generator" content="boolcp'}


def check_folder(out: Path, *, is_forced: bool) -> None:
    """Raise a FileError, before any work is done, if files would be replaced that must be kept."""
    if out.exists() and not out.is_dir():
        raise boolcp.io.FileError(out, "is a file, not a folder", "Name a folder (--out).")
    for name in (RESULT, SUMMARY, LOG):
        check_own(out / name, is_forced=is_forced)


def check_own(path: Path, *, is_forced: bool) -> None:
    """Raise a FileError if a file exists, unless replacing is allowed and boolcp wrote it."""
    boolcp.io.atomic.check_free(path, overwrite=is_forced)
    if path.exists() and not is_own(path):
        advice = "--force only replaces results of boolcp: move the file, or choose a different folder (--out)."
        raise boolcp.io.FileError(path, "exists and was not written by boolcp", advice)


def is_own(path: Path) -> bool:
    """Return True if boolcp wrote a file of a result."""
    if path.name == RESULT:
        return boolcp.io.results.is_result(path)
    try:
        return MARKS.get(path.name, MARKS[REPORT]).encode() in path.read_bytes()
    except OSError:
        return False


def check_output(out: Path | None, files: list[Path], *, is_forced: bool, endings: tuple[str, ...]) -> None:
    """Raise a FileError if the output file, if any, exists, is also an input file, or has an unknown ending."""
    if out is None:
        return
    if out.suffix.lower() not in endings:
        what = f"the ending {out.suffix or '(none)'} is not an output format"
        raise boolcp.io.FileError(out, what, f"Use {' or '.join(endings)}.")
    boolcp.io.atomic.check_free(out, overwrite=is_forced)
    if out.exists() and any(file.exists() and out.samefile(file) for file in files):
        raise boolcp.io.FileError(out, "is also the input file", "Write the result elsewhere (--out).")


def write_result(
    model: Any, X: Any, out: Path, *, seconds: float, is_forced: bool, notes: Mapping[str, Any] | None = None
) -> None:
    """Write the three files of a result: all of them, or none if one cannot be written; then remove an old report."""
    command = shlex.join(["boolcp", *sys.argv[1:]])
    full = {"command": command, "seconds": round(seconds, 3), "is_partial": False, **(notes or {})}
    short = {name: value for name, value in full.items() if name != "tests"}
    numbers = vars(boolcp.residuals.residual_check(X, model.decomposition_))
    rounded = {name: [float(f"{q:.5g}") for q in numbers[name]] for name in ("normal_quantiles", "quantiles")}
    full["residual_check"] = numbers | rounded
    with boolcp.io.errors.writing(out):
        out.mkdir(parents=True, exist_ok=True)
    provenance = json.dumps(boolcp.io.results.make_provenance(model, data=X, notes=short), indent=2)
    with (
        boolcp.io.atomic.replacing(out / LOG, overwrite=is_forced) as log_file,
        boolcp.io.atomic.replacing(out / SUMMARY, overwrite=is_forced) as table_file,
        boolcp.io.atomic.replacing(out / RESULT, overwrite=is_forced) as result_file,
    ):
        boolcp.save(model, result_file, data=X, notes=full, overwrite=True)
        table_file.write_text(csv_text(model.decomposition_.to_dataframe()), encoding="utf-8")
        log_file.write_text(f"{model.decomposition_.summary()}\n\n{provenance}\n", encoding="utf-8")
    if is_own(out / REPORT):
        (out / REPORT).unlink()  # of the result that was replaced


def csv_text(table: Any, **how: Any) -> str:
    """Return a DataFrame as CSV; a label that a spreadsheet would run as a formula has an apostrophe before it."""
    cells = table.reset_index()
    safe = cells.rename(columns=_not_formula).apply(lambda column: column.map(_not_formula))
    return str(safe.to_csv(index=False, **how))


def _not_formula(cell: Any) -> Any:
    text = cell.replace("\r", "\n") if isinstance(cell, str) else ""  # a lone "\r" is not quoted, and ends a row
    if not text.startswith(("=", "+", "-", "@", "\t", "\n")):
        return text or cell
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def write_page(out: Path, *, is_forced: bool) -> Path:
    """Write the report of a result, a folder or a file, and return its path."""
    result = boolcp.io.results.find_result(out)
    page = result.with_name(REPORT) if result.name == RESULT else result.with_suffix(".html")
    check_own(page, is_forced=is_forced)
    boolcp.report.write_report(boolcp.load(result), page, provenance=boolcp.io.load_provenance(result), force=is_forced)
    return page


def export(
    result: Result,
    events: Annotated[Path, option("Where atoms are on, in seconds: a BIDS events.tsv.")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write when atoms of a saved result are on (BIDS)."""
    check_output(events, [result], is_forced=force, endings=(".tsv",))
    from boolcp.result.events import bids_events

    table = bids_events(boolcp.load(result))
    boolcp.io.atomic.write_text(events, table.to_csv(sep="\t", index=False), overwrite=force)
    answer(f"{events}: {len(table)} events", {"path": events, "n_events": len(table)}, as_json=as_json)


def report(result: Result, force: Force = False, as_json: Json = False) -> None:
    """Write a saved result as one HTML page with plots."""
    path = write_page(result, is_forced=force)
    answer(str(path), {"path": path}, as_json=as_json)


def info(
    file: Annotated[Path, typer.Argument(help="A data file, a recording, or a result.", metavar="PATH")],
    as_json: Json = False,
) -> None:
    """Describe a data file, a recording or a saved result."""
    from boolcp.fit.checkpoint import is_checkpoint
    from boolcp.io import results

    path = file / RESULT if (file / RESULT).exists() else file
    if path.suffix == ".nc" and path.is_file() and results.is_result(path):
        W, provenance = results.load(path), results.load_provenance(path)
        values = {"path": path, "shape": W.shape, "dims": W.dims, "atoms": atom_rows(W), "provenance": provenance}
        answer("\n".join([W.summary(), "", *provenance_lines(provenance)]), values, as_json=as_json)
        return
    if is_checkpoint(path):
        how = f"the same command (boolcp fit .. --checkpoint {path}), or in Python by boolcp.BMP.resume"
        lines = ["the checkpoint of a fit, not data or a result", f"Resume it by {how}."]
    else:
        lines = boolcp.io.reading.describe(path)
    answer("\n".join([str(path), *lines]), {"path": path, "content": lines}, as_json=as_json)


def provenance_lines(provenance: dict[str, Any]) -> list[str]:
    """Return where a result comes from, one line for each entry; the residual is shown by a report."""
    known = {name: value for name, value in provenance.items() if name != "residual_check"}
    if "tests" in known:
        numbers = {name: " ".join(f"{p:.2g}" for p in test["p_adjusted"]) for name, test in known.pop("tests").items()}
        known["tests of each atom"] = "; ".join(f"{name} p = {text}" for name, text in numbers.items())
    if "history" in known:
        errors = [f"{step['relative_error']:.4f}" for step in known.pop("history")]
        known["relative error after each atom"] = " ".join(errors)
    return [f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in known.items()]
