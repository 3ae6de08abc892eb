"""`boolcp info`: the contents of a file or a result."""

import json
from pathlib import Path
from typing import Any

from boolcp.cli.answers import atom_rows


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
