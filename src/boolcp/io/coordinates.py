"""Labels from elsewhere: other arrays of a file, tables of trials and events, tables of electrodes and their pairs."""

import csv
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.checks import BoolcpWarning
from boolcp.extras import load_extra
from boolcp.io.errors import FileError, check_exists, reading
from boolcp.io.matlab import read_variable
from boolcp.prepare import add_table, set_events
from boolcp.prepare.tables import ONSETS, read_columns

NO_GROUP = "NG"  # marks the filler pairs in the published tables
MISSING = ["", "n/a", "N/A", "nan", "NaN"]  # not "NA" or "None", which may be conditions

DataArray = Any
DataFrame = Any


def add_coords(X: DataArray, coords: Mapping[str, Any], arrays: Any, path: Path) -> DataArray:
    """Return X with coordinates: values, the name of an array of the file, or (mode, one of these).

    A name that is a mode labels that mode. Any other is an additional coordinate of the mode with its length.
    """
    for name, source in coords.items():
        dim = None
        if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], str):
            dim, source = source
        source = read_named(source, arrays, path, "a coordinate") if isinstance(source, str) else source
        values = _vector(source, name, path)
        dim = name if dim is None and name in X.dims else dim
        dim = _mode_of(X, name, len(values), path) if dim is None else dim
        if dim not in X.dims:
            problem = f"has no mode {dim!r} for the coordinate {name!r}"
            raise FileError(path, problem, f"Its modes are {', '.join(map(str, X.dims))}.")
        if len(values) != X.sizes[dim]:
            problem = f"the coordinate {name!r} of {dim!r} has {len(values)} values, but the mode has {X.sizes[dim]}"
            raise FileError(path, problem, "Give one value for each.")
        X = X.assign_coords({name: (dim, values)})
    return X


def read_named(name: str, arrays: Any, path: Path, use: str) -> Any:
    """Return the array of that name."""
    names = [str(known) for known in (arrays.variables if hasattr(arrays, "data_vars") else arrays.table)]
    if name not in names:
        shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        raise FileError(path, f"has no variable {name!r} for {use}", f"It holds {shown}.")
    return arrays[name].values if hasattr(arrays, "data_vars") else arrays.read(name)


def _vector(values: Any, name: str, path: Path) -> np.ndarray:
    values = np.asarray(values)
    if sum(size > 1 for size in values.shape) > 1:
        shape = " x ".join(map(str, values.shape))
        raise FileError(path, f"the coordinate {name!r} is {shape}", "Give a vector, one value for each entry.")
    return read_columns({name: values.ravel()})[name]


def _mode_of(X: DataArray, name: str, size: int, path: Path) -> str:
    """Return the one mode of a size."""
    fitting = [str(dim) for dim in X.dims if X.sizes[dim] == size]
    if len(fitting) == 1:
        return fitting[0]
    sizes = ", ".join(f"{n} {dim}" for dim, n in X.sizes.items())
    if fitting:
        advice = f"Say which: coords={{{name!r}: ({fitting[0]!r}, ..)}}, --coord {name}:{fitting[0]}=.."
        raise FileError(path, f"the coordinate {name!r} has {size} values, which fit several modes ({sizes})", advice)
    problem = f"the coordinate {name!r} has {size} values, which fit no mode ({sizes})"
    raise FileError(path, problem, "Give one value for each entry of a mode.")


def with_electrodes(X: DataArray, electrodes: str | Path, path: Path) -> DataArray:
    """Return X with the coordinates x, y and area of its channels, matched by label, or by order without labels."""
    found = read_electrodes(electrodes)
    if "channel" not in X.dims:
        problem = f"has no mode 'channel' for the positions in {electrodes}"
        raise FileError(path, problem, f"Its modes are {', '.join(map(str, X.dims))}: name them (dims=, --dims).")
    table = {str(name): place for name, place in found.items()}
    if "channel" not in X.coords:
        if len(table) != X.sizes["channel"]:
            problem = f"has {X.sizes['channel']} channels without labels, but {electrodes} lists {len(table)}"
            raise FileError(path, problem, "Give the labels of the channels (coords=, --coord channel=..).")
        X = X.assign_coords(channel=("channel", list(found)))
    labels = [str(label) for label in X["channel"].values]
    known = [table.get(label) for label in labels]
    missing = [label for label, place in zip(labels, known, strict=True) if place is None]
    if len(missing) == len(labels):
        example = f"{labels[0]} here, {next(iter(table))} there"
        raise FileError(electrodes, f"lists none of the channels of {path.name} ({example})", "Use the same labels.")
    if missing:
        text = f"{electrodes} has no positions for {len(missing)} channels: {', '.join(missing[:5])}."
        warnings.warn(text, BoolcpWarning, stacklevel=3)
    places = [Electrode(np.nan, np.nan) if place is None else place for place in known]
    X = X.drop_vars([name for name in ("x", "y", "z", "area") if name in X.coords])
    X = X.assign_coords(x=("channel", [p.x for p in places]), y=("channel", [p.height for p in places]))
    areas = [place.area for place in places]
    return X.assign_coords(area=("channel", areas)) if any(areas) else X


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

    The map is a .csv with columns channel, x.., y.. and maybe area.., or one of NeuroTycho (.mat with X and Y, one row
    for each channel from 1). Columns x_px and y_px, and those of NeuroTycho, are pixels of an image.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from boolcp.io.coordinates import read_electrodes
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "electrodes.csv"
    >>> _ = path.write_text("channel,x_px,y_px,area8\n1,519.4,770.2,PC\n")
    >>> read_electrodes(path)
    {1: Electrode(x=519.4, y=770.2, area='PC', is_pixel=True)}
    """
    path = check_exists(path)
    if path.suffix.lower() == ".mat":
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

    They are in a .csv with columns ch_plus and ch_minus, or with the two channels in its first two columns.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from boolcp.io.coordinates import read_pairs
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


def read_table(path: str | Path) -> DataFrame:
    r"""Return a table as a pandas DataFrame: columns separated by commas or semicolons (.csv) or by tabs (.tsv).

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from boolcp.io import read_table
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "trials.csv"
    >>> _ = path.write_text("trial,drug,dose\n0,propofol,1.5\n1,none,\n")
    >>> read_table(path)["drug"].tolist()
    ['propofol', 'none']
    """
    path = Path(check_exists(path))
    if path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        raise FileError(path, f"the ending {path.suffix or '(none)'} is not that of a table", "Use .csv or .tsv.")
    pandas = load_extra("pandas", "labels")
    with reading(path, "table"):
        with path.open(encoding="utf-8-sig") as file:
            head = file.readline()
        separator = max("\t;,", key=head.count)
        options = {"sep": separator, "keep_default_na": False, "na_values": MISSING, "encoding": "utf-8-sig"}
        table = pandas.read_csv(path, skipinitialspace=True, **options)
    if not len(table):
        raise FileError(path, "the table has no rows", "It needs a line of names and one row for each trial.")
    return table


def with_trials(X: DataArray, trials: Any, path: Path) -> DataArray:
    """Return X with a table of trials: coordinates of its trials, or events of a continuous recording."""
    source = path
    if isinstance(trials, str | Path):
        source, trials = Path(trials), read_table(trials)
    names = list(getattr(trials, "columns", trials))
    is_continuous = "time" in X.dims and "trial" not in X.dims
    try:
        if is_continuous and any(name in ONSETS for name in names):
            return set_events(X, trials)
        return add_table(X, trials)
    except (TypeError, ValueError) as error:
        raise FileError(source, str(error).rstrip("."), "Check the table of trials (trials=, --trials).") from error
