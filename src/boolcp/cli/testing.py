"""The work of `boolcp select`: how many atoms the data support."""

from pathlib import Path
from typing import Any

from boolcp.cli.answers import answer
from boolcp.cli.data import DataOptions, load_data
from boolcp.cli.folders import check_output
from boolcp.cli.options import ModelOptions, make_model


def run_select(
    data: DataOptions,
    model: ModelOptions,
    out: Path | None,
    *,
    is_forced: bool = False,
    as_json: bool = False,
    **options: Any,
) -> None:
    """Print the held-out error for each number of atoms, and write it as a table if asked."""
    if out is not None:
        check_output(out, data.files, is_forced=is_forced)
    make_model(model, options["max_atoms"])
    X = load_data(data)
    from boolcp.io.atomic import write_text
    from boolcp.trust.selection import select_n_atoms

    found = select_n_atoms(X, verbose=1, **model.parameters(), **options)
    rows = [
        {"n_atoms": k, "rmse": float(mean), "standard_error": float(error), "is_chosen": int(k == found.n_atoms)}
        for k, (mean, error) in enumerate(zip(found.mean, found.standard_error, strict=True))
    ]
    if out is not None:
        lines = [",".join(rows[0]), *(",".join(f"{value:.10g}" for value in row.values()) for row in rows)]
        write_text(out, "\n".join([*lines, ""]), overwrite=is_forced)
    text = f"{found.summary()}\n{found.n_atoms} atoms (rule {found.rule})"
    answer(text, {"n_atoms": found.n_atoms, "rule": found.rule, "table": rows}, as_json=as_json)
