"""The files of the page, and the escaping of JSON and labels."""

import base64
import hashlib
import html
import json
import re
from importlib import resources
from typing import Any

import numpy as np

from boolcp.system import load_extra

DIGITS = 8  # of numbers written as text


def own_file(name: str) -> str:
    """Return a file of this package as text."""
    return resources.files("boolcp.report").joinpath(name).read_text(encoding="utf-8")


def datatables_files() -> list[str]:
    """Return the script and style of DataTables, which sorts and filters the table, from the package itables."""
    folder = resources.files(load_extra("itables", "report")).joinpath("html")
    return [folder.joinpath(f"dt_bundle.{ending}").read_text(encoding="utf-8") for ending in ("js", "css")]


def held_script(name: str, source: str) -> dict[str, str]:
    """Return name, type and text of a script element: unchanged, or as JSON if HTML would misread it."""
    if re.search(r"<!--|</?script", source, re.IGNORECASE):
        return {"name": name, "type": "application/json", "text": to_json(source)}
    return {"name": name, "type": "text/plain", "text": source}


def script_hash(source: str) -> str:
    """Return the hash with which the page allows only this inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def to_json(value: Any) -> str:
    """Return JSON that cannot close its HTML element; arrays become typed arrays of Plotly."""
    text = json.dumps(_compact(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain(text: str) -> str:
    """Return a label that Plotly shows unchanged, although it interprets some HTML tags and templates."""
    return html.escape(str(text), quote=False).replace("%{", "&#37;{")


def _compact(value: Any) -> Any:
    """Return the value with arrays as typed arrays and other numbers rounded."""
    if isinstance(value, dict):
        return {name: _compact(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_compact(part) for part in value]
    if isinstance(value, np.ndarray):  # base64 of small numbers, with the shape if it is not a vector
        kind = {"b": "u1", "i": "i4", "u": "i4"}.get(value.dtype.kind, "f4")
        if kind == "f4" and value.size and np.nanmax(np.abs(value)) > 1e3 * np.ptp(value):
            kind = "f8"  # times far from zero, say, need more than seven digits
        shape = {} if value.ndim == 1 else {"shape": ", ".join(map(str, value.shape))}
        numbers = np.ascontiguousarray(value, dtype=f"<{kind}").tobytes()
        return {"dtype": kind, "bdata": base64.b64encode(numbers).decode()} | shape
    if isinstance(value, float | np.floating):
        return float(f"{value:.{DIGITS}g}")
    return value.item() if isinstance(value, np.generic) else value
