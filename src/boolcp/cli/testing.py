"""`boolcp select` and the tests of `boolcp fit`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import boolcp
from boolcp.cli.answers import answer
from boolcp.cli.data import DataOptions, load_data, load_weights
from boolcp.cli.folders import check_output
from boolcp.cli.options import Force, Json, ModelOptions, make_model, model_option, option


def select(
    model: ModelOptions,
    data: DataOptions,
    max_atoms: Annotated[int, model_option("Largest number to try.")] = 10,
    splits: Annotated[int, typer.Option(help="Random splits.")] = 5,
    scheme: Annotated[str, typer.Option(help="Hold out entries, or slabs of the last mode.")] = "entries",
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes.")] = 1,
    out: Annotated[Path | None, option("Write the table, .csv.", "--out", "-o")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose the number of atoms by the error on held-out data.

    \b
    Example:
      boolcp select data.nc --max-atoms 15 --jobs 4 -o errors.csv
    """  # noqa: D301
    check_output(out, data.files, is_forced=force, endings=(".csv",))
    make_model(model, max_atoms)
    X = load_data(data)
    options = load_weights(data, X) | model.parameters(X) | {"splits": splits, "scheme": scheme}
    found = boolcp.select_n_atoms(X, max_atoms=max_atoms, n_jobs=jobs, verbose=1, **options)
    rows = [
        {"n_atoms": k, found.measure: float(mean), "standard_error": float(error), "is_chosen": int(k == found.n_atoms)}
        for k, (mean, error) in enumerate(zip(found.mean, found.standard_error, strict=True))
    ]
    if out is not None:
        import pandas

        boolcp.io.atomic.write_text(out, pandas.DataFrame(rows).to_csv(index=False), overwrite=force)
    text = f"{found.summary()}\n{found.n_atoms} atoms (rule {found.rule})"
    answer(text, {"n_atoms": found.n_atoms, "rule": found.rule, "table": rows}, as_json=as_json)


def check_columns(X: Any, columns: Sequence[str], blocks: str | None) -> None:
    """Raise, before a long fit, unless atoms can be tested against these columns of the data."""
    from boolcp.result.labels import read_labels
    from boolcp.trust.conditions import run_tests

    labels = read_labels(X)[1]
    known = list(labels.extra) if labels is not None else []
    for name in (*columns, *([blocks] if blocks else [])):
        if name not in known:
            option = "--test" if name in columns else "--blocks"
            raise ValueError(f"{option} {name}: the data have no such column; they have {', '.join(known) or 'none'}.")
    for column in columns:
        try:
            run_tests(boolcp.BooleanCP(X.shape, labels=labels), [column], blocks)
        except ValueError as error:
            raise ValueError(f"--test {column}: {error}") from error
