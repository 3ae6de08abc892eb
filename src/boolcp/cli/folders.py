"""The folder of a result: its files, whether they may be replaced, and how they are written."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boolcp.io import load, load_provenance, save
from boolcp.io.atomic import check_free, replacing
from boolcp.io.errors import FileError, writing
from boolcp.io.results import RESULT, find_result, is_result, make_provenance
from boolcp.report import write_report
from boolcp.trust.residuals import residual_check

SUMMARY, LOG, REPORT = "summary.csv", "fit.log", "report.html"
MARKS = {SUMMARY: "atom,boolean_mode,", LOG: '"boolcp": "', REPORT: '<meta name="generator" content="boolcp'}


def check_folder(out: Path, *, is_forced: bool) -> None:
    """Raise a FileError, before any work is done, if files would be replaced that must be kept."""
    if out.exists() and not out.is_dir():
        raise FileError(out, "is a file, not a folder", "Name a folder (--out).")
    for name in (RESULT, SUMMARY, LOG):
        check_own(out / name, is_forced=is_forced)


def check_own(path: Path, *, is_forced: bool) -> None:
    """Raise a FileError if a file exists, unless replacing is allowed and boolcp wrote it."""
    check_free(path, overwrite=is_forced)
    if path.exists() and not is_own(path):
        advice = "--force only replaces results of boolcp: move the file, or choose a different folder (--out)."
        raise FileError(path, "exists and was not written by boolcp", advice)


def is_own(path: Path) -> bool:
    """Return True if boolcp wrote a file of a result."""
    if path.name == RESULT:
        return is_result(path)
    try:
        return MARKS.get(path.name, MARKS[REPORT]).encode() in path.read_bytes()
    except OSError:
        return False


def check_output(out: Path, files: list[Path], *, is_forced: bool, endings: tuple[str, ...] = ()) -> None:
    """Raise a FileError if the output file exists, is also an input file, or has an unknown ending."""
    if endings and out.suffix.lower() not in endings:
        problem = f"the ending {out.suffix or '(none)'} is not an output format"
        raise FileError(out, problem, f"Use {', '.join(endings[:-1])} or {endings[-1]}.")
    check_free(out, overwrite=is_forced)
    if out.exists() and any(file.exists() and out.samefile(file) for file in files):
        raise FileError(out, "is also the input file", "Write the result elsewhere (--out).")


def write_result(
    model: Any, X: Any, out: Path, *, seconds: float, is_forced: bool, notes: Mapping[str, Any] | None = None
) -> None:
    """Write the three files of a result: all of them, or none if one cannot be written; then remove an old report."""
    command = shlex.join(["boolcp", *sys.argv[1:]])
    full = {"command": command, "seconds": round(seconds, 3), "is_partial": False, **(notes or {})}
    full["residual_check"] = check_residual(model, X)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    short = {name: value for name, value in full.items() if name not in ("residual_check", "tests")}
    provenance = make_provenance(model, data=X, notes=short)
    log = "\n".join([model.decomposition_.summary(), "", json.dumps(provenance, indent=2), ""])
    with (
        replacing(out / LOG, overwrite=is_forced) as log_file,
        replacing(out / SUMMARY, overwrite=is_forced) as table_file,
        replacing(out / RESULT, overwrite=is_forced) as result_file,
    ):
        save(model, result_file, data=X, notes=full, overwrite=True)
        table_file.write_text(model.decomposition_.to_dataframe().to_csv(), encoding="utf-8")
        log_file.write_text(log, encoding="utf-8")
    if is_own(out / REPORT):
        (out / REPORT).unlink()  # of the result that was replaced


def check_residual(model: Any, X: Any) -> dict[str, Any]:
    """Return the numbers of the residual check, ready for JSON."""
    numbers = vars(residual_check(X, model.decomposition_))
    rounded = {name: [float(f"{q:.5g}") for q in numbers[name]] for name in ("normal_quantiles", "quantiles")}
    return numbers | rounded


def run_report(out: Path, *, is_forced: bool) -> Path:
    """Write the report of a result, a folder or a file, and return its path."""
    result = find_result(out)
    page = result.with_name(REPORT) if result.name == RESULT else result.with_suffix(".html")
    check_own(page, is_forced=is_forced)
    W, provenance = load(result), load_provenance(result)
    write_report(W, page, provenance=provenance, force=is_forced)
    return page
