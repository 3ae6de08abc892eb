"""`boolcp convert`, `complete` and `transform`: data that are written, filled, or projected on a result."""

import re
from pathlib import Path
from typing import Any

from boolcp.bmp import BMP
from boolcp.checks import check_mode
from boolcp.cli.answers import answer, note
from boolcp.cli.data import DataOptions, load_data, load_weights
from boolcp.cli.folders import check_output
from boolcp.cli.options import ModelOptions, make_model
from boolcp.cli.testing import fitted_with
from boolcp.io import load, load_provenance
from boolcp.io.arrays import write_tensor
from boolcp.io.atomic import write_text
from boolcp.io.reading import sizes_text
from boolcp.result.labels import aligned


def run_complete(
    data: DataOptions, model: ModelOptions, n_atoms: int, out: Path, *, is_forced: bool, as_json: bool
) -> None:
    """Write the tensor with its missing entries filled."""
    check_output(out, data.files, is_forced=is_forced, endings=(".nc", ".npy"))
    make_model(model, n_atoms)
    X = load_data(data)
    n_missing = int(X.isnull().sum())
    if n_missing == 0:
        raise ValueError(f"{data.files[0]}: no entry is missing (NaN), so there is nothing to complete.")
    bmp = make_model(model, n_atoms, X.dims).fit(X, **load_weights(data, X))
    write_tensor(bmp.complete(X), out, overwrite=is_forced)
    text = f"{bmp.decomposition_.summary()}\n{out}: {n_missing} entries filled"
    answer(text, {"path": out, "n_filled": n_missing, "explained": bmp.decomposition_.explained()}, as_json=as_json)


def run_convert(data: DataOptions, out: Path, *, is_forced: bool, as_json: bool) -> None:
    """Write the prepared tensor."""
    check_output(out, data.files, is_forced=is_forced, endings=(".nc", ".npy"))
    if data.weights is not None:
        raise ValueError("--weights: convert writes the tensor without weights. Pass them to boolcp fit.")
    X = load_data(data, is_fitted=False)
    write_tensor(X, out, overwrite=is_forced)
    answer(f"{out}: {sizes_text(X)}", {"path": out, "sizes": dict(X.sizes)}, as_json=as_json)


def run_transform(
    result: Path, data: DataOptions, out: Path, *, mode: str | None, is_forced: bool, as_json: bool
) -> None:
    """Write the factor of new data along one mode, with the other factors of a saved result fixed."""
    check_output(out, data.files, is_forced=is_forced, endings=(".csv", ".tsv", ".nc"))
    W, X = load(result), load_data(data)
    warn_of_preparation(load_provenance(result), X)
    dims = W.dims or tuple(map(str, X.dims))
    chosen = check_mode(("trial" if "trial" in dims else W.ndim - 1) if mode is None else mode, W.ndim, dims)
    if W.labels is not None:
        X = aligned(X, W.labels, name="The new data", free=[dims[chosen]])
    model = BMP(max(W.n_atoms, 1), **fitted_with({}, result))
    model.decomposition_ = W
    rows = labelled(model.transform(X, mode=chosen, **load_weights(data, X)), W, X, chosen)
    write_rows(rows, out, is_forced=is_forced)
    dim = rows.dims[0]
    shares = {str(k): float(v) for k, v in zip(rows["atom"].values, rows.mean(dim).values, strict=True)}
    kinds = zip(shares.items(), rows["is_boolean"].values, strict=True)
    words = [f"atom {k}: " + (f"on in {100 * x:.0f} %" if is_on else f"mean {x:.4g}") for (k, x), is_on in kinds]
    split = f" in {len(words)} columns" if len(words) > W.n_atoms else ""  # products of atoms of a higher rank
    text = "\n".join([f"{out}: {rows.sizes[dim]} {dim}s, {W.n_atoms} atoms{split}", *words])
    answer(text, {"path": out, "mode": dim, "n_entries": rows.sizes[dim], "mean": shares}, as_json=as_json)


def labelled(values: Any, W: Any, X: Any, mode: int) -> Any:
    """Return the factor of new data along a mode as a DataArray, mode x atom, with the labels of the new data."""
    import numpy as np
    import xarray

    owner = [k for k, atom in enumerate(W.atoms) for _ in range(1 if atom.mode == mode else atom.rank or 1)]
    names = [f"{k}" if owner.count(k) == 1 else f"{k}.{owner[:n].count(k)}" for n, k in enumerate(owner)]
    dim = X.dims[mode]
    coords = {name: coord for name, coord in X.coords.items() if coord.dims == (dim,)}
    coords |= {"atom": ("atom", np.array(names, dtype=str))}
    coords |= {"is_boolean": ("atom", np.array([W.atoms[k].mode == mode for k in owner], dtype=bool))}
    return xarray.DataArray(values, coords, (dim, "atom"), name="factor")


def warn_of_preparation(provenance: dict[str, Any], X: Any) -> None:
    """Warn if the new data were prepared differently from those of the fit."""
    before = provenance.get("data", {}).get("preparation")
    steps = [_comparable(before or []), _comparable(X.attrs.get("preparation", []))]
    if before is not None and steps[0] != steps[1]:
        texts = ["; ".join(one) or "nothing" for one in steps]
        note(
            f"boolcp: warning: the new data were prepared differently ({texts[1]}) from those of the fit ({texts[0]})."
        )


def _comparable(steps: Any) -> list[str]:
    """Return the steps that change the numbers, without those that choose trials."""
    steps = [steps] if isinstance(steps, str) else [str(step) for step in steps]
    chosen = ("condition ", "table of ", "reject", "select ", "join ")
    return [re.sub(r"\d+ trials", "trials", step) for step in steps if not step.startswith(chosen)]


def write_rows(rows: Any, out: Path, *, is_forced: bool) -> None:
    """Write a table with one row for each entry, its labels first, or a netCDF file."""
    if out.suffix.lower() == ".nc":
        write_tensor(rows, out, overwrite=is_forced)
        return
    import pandas

    dim = rows.dims[0]
    labels = {str(name): coord.values for name, coord in rows.coords.items() if coord.dims == (dim,)}
    own = {dim: labels.pop(dim, range(rows.sizes[dim]))}
    columns = {
        f"atom_{k}": rows.values[:, n].astype(int if is_boolean else float)
        for n, (k, is_boolean) in enumerate(zip(rows["atom"].values, rows["is_boolean"].values, strict=True))
    }
    table = pandas.DataFrame(own | labels | columns)
    separator = "\t" if out.suffix.lower() == ".tsv" else ","
    write_text(out, table.to_csv(index=False, sep=separator), overwrite=is_forced)
