"""Tables of electrodes: positions, areas, and the pairs of a bipolar reference."""

import csv
from dataclasses import dataclass
from typing import Any

import numpy as np

from boolcp.io.errors import FileError, check_exists, reading

NO_GROUP = "NG"  # marks the filler pairs in the published tables


@dataclass(frozen=True)
class Electrode:
    """The position of one electrode, in the units of its table, and its area if known.

    Pixels of an image count downward; `height` counts upward, as plots without the image need it.
    """

    x: float
    y: float
    area: str = ""
    is_pixel: bool = False

    @property
    def height(self) -> float:
        """Return the position upward."""
        return -self.y if self.is_pixel else self.y


def read_electrodes(path: Any) -> Any:
    r"""Return the electrodes of a map by their number or name: {channel: Electrode}.

    Parameters
    ----------
    path : str or path
        A .csv with columns channel, x.., y.. and maybe area.., or a NeuroTycho map (.mat with X and Y, one row for each
        channel from 1). Columns x_px and y_px, and those of the map, are pixels of an image.

    Returns
    -------
    dict of int or str to Electrode
        The electrodes.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from boolcp.io.electrodes import read_electrodes
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "electrodes.csv"
    >>> _ = path.write_text("channel,x_px,y_px,area8\n1,519.4,770.2,PC\n")
    >>> read_electrodes(path)
    {1: Electrode(x=519.4, y=770.2, area='PC', is_pixel=True)}
    """
    path = check_exists(path)
    if path.suffix.lower() == ".mat":
        from boolcp.io.matlab import read_variable

        x, y = (np.ravel(read_variable(path, name)).astype(float) for name in ("X", "Y"))
        if len(x) != len(y):
            raise FileError(path, f"has {len(x)} values of X but {len(y)} of Y", "Use the original map.")
        return {n + 1: Electrode(float(a), float(b), is_pixel=True) for n, (a, b) in enumerate(zip(x, y, strict=True))}
    rows = _read_table(path)
    names = {kind: _column(path, rows[0], kind) for kind in ("channel", "x", "y")}
    area = next((name for name in rows[0] if name.lower().startswith("area")), None)
    with reading(path, "table of electrodes"):
        is_pixel = names["y"].lower().endswith("_px")
        places = {}
        for row in rows:
            place = float(row[names["x"]]), float(row[names["y"]])
            label = row[names["channel"]].strip()
            key = int(label) if label.isdigit() else label
            if key in places:
                raise ValueError(f"channel {label} appears twice")
            places[key] = Electrode(*place, "" if area is None else row[area].strip(), is_pixel)
        return places


def read_pairs(path: Any) -> Any:
    r"""Return the pairs (plus, minus) of a bipolar reference, without the filler rows marked NG (no group).

    Parameters
    ----------
    path : str or path
        A .csv with columns ch_plus and ch_minus, or with the two channels in its first two columns.

    Returns
    -------
    list of (str, str)
        Labels of the two channels of each pair.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from boolcp.io.electrodes import read_pairs
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "pairs.csv"
    >>> _ = path.write_text("pair,ch_plus,ch_minus,group\n1,63,64,MB\n2,51,62,NG\n")
    >>> read_pairs(path)
    [('63', '64')]
    """
    path = check_exists(path)
    rows = _read_table(path)
    columns = list(rows[0])
    if {"ch_plus", "ch_minus"} <= set(columns):
        plus, minus = "ch_plus", "ch_minus"
    elif len(columns) >= 2:
        plus, minus = columns[:2]
    else:
        raise FileError(path, "has only one column", "A table of pairs needs the columns ch_plus and ch_minus.")
    pairs = [(row[plus].strip(), row[minus].strip()) for row in rows if NO_GROUP not in row.values()]
    if not pairs:
        raise FileError(path, "holds no pairs", "A table of pairs needs the columns ch_plus and ch_minus.")
    return pairs


def _read_table(path: Any) -> Any:
    with reading(path, ".csv table"), path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.DictReader(file, restval="") if any(row.values())]
    if not rows:
        raise FileError(path, "the table has no rows", "It needs a header and one row for each electrode or pair.")
    return rows


def _column(path: Any, row: Any, kind: str) -> Any:
    for name in row:
        if name is not None and (name.lower() == kind or name.lower().startswith(f"{kind}_")):
            return name
    raise FileError(path, f"has no column {kind!r}", f"Its columns are {', '.join(map(str, row))}.")
