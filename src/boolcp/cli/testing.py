"""`boolcp select`, `boolcp stability` and the tests of `boolcp fit`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boolcp.cli.answers import answer
from boolcp.cli.data import DataOptions, load_data, load_weights
from boolcp.cli.folders import check_output
from boolcp.cli.options import ModelOptions, make_model
from boolcp.io import load, load_provenance
from boolcp.io.atomic import write_text
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import read_labels
from boolcp.trust.conditions import run_tests
from boolcp.trust.selection import select_n_atoms
from boolcp.trust.stability import stability


def run_select(
    data: DataOptions, model: ModelOptions, out: Path | None, *, is_forced: bool, as_json: bool, **options: Any
) -> None:
    """Print the held-out error for each number of atoms, and write it as a table if requested."""
    if out is not None:
        check_output(out, data.files, is_forced=is_forced, endings=(".csv",))
    make_model(model, options["max_atoms"])
    X = load_data(data)
    found = select_n_atoms(X, verbose=1, **load_weights(data, X), **model.parameters(X.dims), **options)
    rows = [
        {"n_atoms": k, found.measure: float(mean), "standard_error": float(error), "is_chosen": int(k == found.n_atoms)}
        for k, (mean, error) in enumerate(zip(found.mean, found.standard_error, strict=True))
    ]
    write_table(rows, out, is_forced=is_forced)
    text = f"{found.summary()}\n{found.n_atoms} atoms (rule {found.rule})"
    answer(text, {"n_atoms": found.n_atoms, "rule": found.rule, "table": rows}, as_json=as_json)


def run_stability(
    data: DataOptions,
    model: ModelOptions,
    n_atoms: int,
    *,
    result: Path | None,
    out: Path | None,
    is_forced: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print how often each atom of a saved result or of a new fit comes back in other fits."""
    if out is not None:
        check_output(out, data.files, is_forced=is_forced, endings=(".csv",))
    make_model(model, n_atoms)
    if data.weights is not None:
        raise ValueError("--weights: stability compares fits without weights. Leave it out.")
    reference = None if result is None else load(result)
    X = load_data(data)
    found = stability(
        X, n_atoms, reference=reference, verbose=1, **fitted_with(model.parameters(X.dims), result), **options
    )
    W, shares, alike = found.decomposition, found.recurrence.tolist(), found.similarity.mean(axis=0).tolist()
    rows = [
        {"atom": k, "boolean_mode": W.mode_name(atom.mode), "stability": shares[k], "similarity": alike[k]}
        for k, atom in enumerate(W.atoms)
    ]
    write_table(rows, out, is_forced=is_forced)
    answer(found.summary(), {"scheme": found.scheme, "over": found.over, "table": rows}, as_json=as_json)


def write_table(rows: list[dict[str, Any]], out: Path | None, *, is_forced: bool) -> None:
    """Write rows to a .csv file, if one is named."""
    if out is not None:
        import pandas

        write_text(out, pandas.DataFrame(rows).to_csv(index=False), overwrite=is_forced)


def fitted_with(given: dict[str, Any], result: Path | None) -> dict[str, Any]:
    """Return the parameters of a saved fit, except those that the command gives otherwise than by default."""
    usual = ModelOptions().parameters()
    known = {} if result is None else load_provenance(result)
    saved = known["parameters"] if known.get("method") == "BMP" else {}
    names = [name for name in saved if name in (*usual, "mean") and name != "random_state"]
    return given | {name: saved[name] for name in names if given.get(name, usual.get(name)) == usual.get(name)}


def check_columns(X: Any, columns: Sequence[str], blocks: str | None) -> None:
    """Raise, before a long fit, unless atoms can be tested against these columns of the data."""
    labels = read_labels(X)[1]
    known = list(labels.extra) if labels is not None else []
    for name, column in [*(("--test", column) for column in columns), *([("--blocks", blocks)] if blocks else [])]:
        if column not in known:
            raise ValueError(f"{name} {column}: the data have no such column; they have {', '.join(known) or 'none'}.")
    for column in columns:
        try:
            run_tests(BooleanCP(X.shape, labels=labels), [column], blocks)
        except ValueError as error:
            raise ValueError(f"--test {column}: {error}") from error
