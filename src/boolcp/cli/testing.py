"""`boolcp select`, `boolcp stability` and the tests of `boolcp fit`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boolcp.bmp import BMP
from boolcp.cli.answers import answer, plain
from boolcp.cli.data import DataOptions, load_data, load_weights
from boolcp.cli.folders import check_output
from boolcp.cli.options import ModelOptions, make_model
from boolcp.io import load
from boolcp.io.atomic import write_text
from boolcp.io.results import load_provenance
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import read_labels
from boolcp.trust.conditions import run_tests
from boolcp.trust.selection import select_n_atoms
from boolcp.trust.stability import stability

OWN_PARAMETERS = ("n_atoms", "random_state", "verbose", "certify", "warm_start")  # of the fit itself


def run_select(
    data: DataOptions, model: ModelOptions, out: Path | None, *, is_forced: bool, as_json: bool, **options: Any
) -> None:
    """Print the held-out error for each number of atoms, and write it as a table if requested."""
    if out is not None:
        check_output(out, data.files, is_forced=is_forced)
    make_model(model, options["max_atoms"])
    X = load_data(data)
    found = select_n_atoms(X, verbose=1, **load_weights(data, X), **model.parameters(), **options)
    rows = [
        {"n_atoms": k, found.measure: float(mean), "standard_error": float(error), "is_chosen": int(k == found.n_atoms)}
        for k, (mean, error) in enumerate(zip(found.mean, found.standard_error, strict=True))
    ]
    if out is not None:
        lines = [",".join(rows[0]), *(",".join(f"{value:.10g}" for value in row.values()) for row in rows)]
        write_text(out, "\n".join([*lines, ""]), overwrite=is_forced)
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
    bmp = make_model(model, n_atoms)
    if data.weights is not None:
        raise ValueError("--weights: stability compares fits without weights. Leave it out.")
    reference = None if result is None else load(result)
    X = load_data(data)
    found = stability(X, n_atoms, reference=reference, **seeded(fitted_with(bmp, result)), **options)
    W, shares, alike = found.decomposition, found.recurrence.tolist(), found.similarity.mean(axis=0).tolist()
    rows = [
        {"atom": k, "boolean_mode": W.mode_name(atom.mode), "stability": shares[k], "similarity": alike[k]}
        for k, atom in enumerate(W.atoms)
    ]
    if out is not None:
        lines = ["atom,boolean_mode,stability,similarity"]
        lines += [f"{row['atom']},{row['boolean_mode']},{row['stability']:.6g},{row['similarity']:.6g}" for row in rows]
        write_text(out, "\n".join([*lines, ""]), overwrite=is_forced)
    answer(found.summary(), {"scheme": found.scheme, "over": found.over, "table": rows}, as_json=as_json)


def fitted_with(model: Any, result: Path | None) -> Any:
    """Return the model with the parameters of a saved fit, where the command leaves the default."""
    if result is None:
        return model
    known = load_provenance(result)
    if known.get("method") != "BMP":
        return model
    given, usual = model.get_params(), BMP().get_params()
    names = [name for name in known["parameters"] if name in given and name not in OWN_PARAMETERS]
    return model.set_params(**{name: known["parameters"][name] for name in names if given[name] == usual[name]})


def seeded(model: Any) -> dict[str, Any]:
    """Return the seed, progress bar and parameters of a model as arguments for functions that fit again."""
    options = {name: value for name, value in model.get_params().items() if name not in OWN_PARAMETERS}
    return options | {"random_state": model.random_state, "verbose": 1}


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


def plain_test(test: Any, blocks: str | None) -> dict[str, Any]:
    """Return the numbers of a test, ready for JSON."""
    names = ("conditions", "counts", "mean", "effect", "auc", "p_value", "p_adjusted", "n_permutations", "scheme")
    return plain({name: getattr(test, name) for name in names} | {"blocks": blocks})
