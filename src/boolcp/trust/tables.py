"""Tables as text."""

from collections.abc import Sequence


def table_text(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a title and, below it, rows of cells aligned to the right; the first row are the heads."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join([title, *("  ".join(map(str.rjust, row, widths)) for row in rows)])
