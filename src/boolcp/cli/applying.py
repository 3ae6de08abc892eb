"""`boolcp convert`, `complete` and `transform`: data that are written, filled, or projected on a result."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import boolcp
from boolcp.cli.answers import answer, note
from boolcp.cli.data import DataOptions, load_data, load_weights
from boolcp.cli.folders import check_output, csv_text
from boolcp.cli.options import ALL, Atoms, Force, Json, ModelOptions, Result, Tensor, make_model, option


def complete(
    model: ModelOptions,
    data: DataOptions,
    out: Tensor,
    n_atoms: Atoms = 10,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fill the missing entries (NaN) of a tensor from its atoms."""
    check_output(out, data.files, is_forced=force, endings=(".nc", ".npy"))
    make_model(model, n_atoms)
    X = load_data(data)
    n_missing = int(X.isnull().sum())
    if n_missing == 0:
        raise ValueError(f"{data.files[0]}: no entry is missing (NaN), so there is nothing to complete.")
    everywhere = replace(model, boolean_modes=model.boolean_modes or ALL)  # fills need no mode of trials
    bmp = make_model(everywhere, n_atoms, X).fit(X, **load_weights(data, X))
    boolcp.io.arrays.write_tensor(bmp.complete(X), out, overwrite=force)
    text = f"{bmp.decomposition_.summary()}\n{out}: {n_missing} entries filled"
    answer(text, {"path": out, "n_filled": n_missing, "explained": bmp.decomposition_.explained()}, as_json=as_json)


def convert(data: DataOptions, out: Tensor, force: Force = False, as_json: Json = False) -> None:
    """Read, prepare and write a tensor to one file, .nc or .npy."""
    check_output(out, data.files, is_forced=force, endings=(".nc", ".npy"))
    if data.weights is not None:
        raise ValueError("--weights: convert writes the tensor without weights. Pass them to boolcp fit.")
    X = load_data(data, is_fitted=False)
    boolcp.io.arrays.write_tensor(X, out, overwrite=force)
    answer(f"{out}: {boolcp.io.reading.sizes_text(X)}", {"path": out, "sizes": dict(X.sizes)}, as_json=as_json)


def transform(
    result: Result,
    data: DataOptions,
    out: Annotated[Path, option("The table, .csv or .tsv.", "--out", "-o")],
    mode: Annotated[str | None, option("The mode with new entries; by default trial, or the last.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Apply a saved result to new trials: which atoms are on in each.

    The new data need the modes and labels of the fit, except along the new mode, and the same preparation. The
    labels of the new mode and the columns of its table of trials are kept.
    """
    check_output(out, data.files, is_forced=force, endings=(".csv", ".tsv"))
    W, X = boolcp.load(result), load_data(data)
    known = boolcp.io.load_provenance(result)
    warn_of_preparation(known, X)
    dims = W.dims or tuple(map(str, X.dims))
    wanted = mode if mode is not None else "trial" if "trial" in dims else W.ndim - 1
    chosen = boolcp.checks.check_mode(wanted, W.ndim, dims)
    if W.labels is not None:
        X = boolcp.result.labels.aligned(X, W.labels, name="The new data", free=[dims[chosen]])
    saved = known["parameters"] if known.get("method") == "BMP" else {}
    same = {name: saved[name] for name in ModelOptions().parameters() if name in saved}
    model = boolcp.BMP(max(W.n_atoms, 1), **same)
    model.decomposition_ = W
    values = model.transform(X, mode=chosen, **load_weights(data, X))
    table, names = factor_table(values, W, X, chosen)
    separator = "\t" if out.suffix.lower() == ".tsv" else ","
    boolcp.io.atomic.write_text(out, csv_text(table, sep=separator), overwrite=force)
    means = {name.removeprefix("atom_"): float(table[name].mean()) for name in names}
    split = f" in {len(names)} columns" if len(names) > W.n_atoms else ""  # products of atoms of a higher rank
    lines = [f"{out}: {len(table)} {dims[chosen]}s, {W.n_atoms} atoms{split}"]
    for name, mean in means.items():
        is_bit = table[f"atom_{name}"].dtype.kind == "i"
        lines.append(f"atom {name}: " + (f"on in {100 * mean:.0f} %" if is_bit else f"mean {mean:.4g}"))
    found = {"path": out, "mode": dims[chosen], "n_entries": len(table), "mean": means}
    answer("\n".join(lines), found, as_json=as_json)


def factor_table(values: Any, W: Any, X: Any, mode: int) -> tuple[Any, list[str]]:
    """Return a DataFrame with a row for each entry of new data along a mode, labels first, bits as integers; names."""
    import pandas

    dim, names = X.dims[mode], [str(name) for name in values[values.dims[1]].values]
    columns = {name: c.values for name, c in X.coords.items() if c.dims == (dim,) and name != dim}
    for name, column in zip(names, values.values.T, strict=True):
        is_bit = W.atoms[int(name[5:].partition(".")[0])].mode == mode
        columns[name] = column.astype(int if is_bit else float)
    return pandas.DataFrame(columns, X.indexes.get(dim, pandas.RangeIndex(len(values), name=dim))), names


def warn_of_preparation(provenance: dict[str, Any], X: Any) -> None:
    """Warn if the new data were prepared differently from the fitted data, except that other trials were chosen."""
    before = provenance.get("data", {}).get("preparation")
    chosen = ("condition ", "table of ", "reject", "select ", "join ")
    texts = [
        "; ".join(re.sub(r"\d+ trials", "trials", step) for step in steps if not step.startswith(chosen)) or "nothing"
        for steps in (before or [], [str(step) for step in X.attrs.get("preparation", [])])
    ]
    if before is not None and texts[0] != texts[1]:
        text = f"the new data were prepared differently ({texts[1]}) from the fitted data ({texts[0]})."
        note(f"boolcp: warning: {text}")
