"""Output of the commands: results on standard output, as text or JSON, messages on standard error; `boolcp info`."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def answer(text: str, values: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a result: its text, or its values for scripts."""
    print(json.dumps(plain(values), indent=2) if as_json else text, flush=True)


def note(text: str) -> None:
    """Print a message about the work in progress."""
    print(text, file=sys.stderr, flush=True)


def plain(value: Any) -> Any:
    """Return a value ready for JSON; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # of numpy
        return plain(value.tolist())
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def atom_rows(W: Any) -> list[dict[str, Any]]:
    """Return the table of atoms, one dict for each."""
    table = W.to_dataframe()
    return [{"atom": int(k)} | {name: table.at[k, name] for name in table.columns} for k in table.index]


def describe(path: Path) -> tuple[list[str], dict[str, Any]]:
    """Describe a data file, a recording or a result, as lines of text and as values."""
    from boolcp.io import load, load_provenance, reading
    from boolcp.io.results import is_result

    path = Path(path)
    if path.is_dir() and (path / "decomposition.nc").exists():
        path = path / "decomposition.nc"
    if path.suffix == ".nc" and path.is_file() and is_result(path):
        W, provenance = load(path), load_provenance(path)
        values = {"path": path, "shape": W.shape, "dims": W.dims, "atoms": atom_rows(W), "provenance": provenance}
        return [W.summary(), "", *provenance_lines(provenance)], values
    lines = reading.describe(path)
    return [str(path), *lines], {"path": path, "content": lines}


def provenance_lines(provenance: dict[str, Any]) -> list[str]:
    """Return where a result comes from, one line for each entry."""
    lines = []
    for name, value in provenance.items():
        if name == "tests":
            value = "; ".join(
                f"{column} p = {' '.join(f'{p:.2g}' for p in test['p_adjusted'])}" for column, test in value.items()
            )
            name = "tests of each atom"
        elif name == "residual_check":
            value = ", ".join(
                f"{name} {edge:.2f}" for name, edge in zip(value["mode_names"], value["structure"], strict=True)
            )
            name = "residual, singular value over the edge of noise"
        elif name == "history":
            value = " ".join(f"{step['relative_error']:.4f}" for step in value)
            name = "relative error after each atom"
        lines.append(f"{name}: {value if isinstance(value, str) else json.dumps(value)}")
    return lines
