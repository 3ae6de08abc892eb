"""Output of the commands: results on standard output, as text or JSON, and messages on standard error."""

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
