"""Labels from elsewhere: other arrays of a file, tables of trials and events, electrodes and their pairs.

Trials of unequal length are a cell of matrices (MATLAB, FieldTrip), or arrays with numbered names.
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.checks import BoolcpWarning
from boolcp.extras import load_extra
from boolcp.io.arrays import RATE_NAMES, NamedArrays, read_variable
from boolcp.io.errors import FileError, check_exists, reading
from boolcp.prepare import add_table, set_events, stack_trials
from boolcp.prepare.tables import ONSETS, read_columns

NO_GROUP = "NG"  # marks the filler pairs in the published tables
MISSING = ["", "n/a", "N/A", "nan", "NaN"]  # not "NA" or "None", which may be conditions
CELLS = ("cell", "object")  # kinds of variables that may hold one matrix for each trial
RATES = ("fsample", *RATE_NAMES)

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
        values = np.asarray(source)
        if sum(size > 1 for size in values.shape) > 1:
            shape = " x ".join(map(str, values.shape))
            raise FileError(path, f"the coordinate {name!r} is {shape}", "Give a vector, one value for each entry.")
        values = read_columns({name: values.ravel()})[name]
        fitting = [str(d) for d in X.dims if X.sizes[d] == len(values)]
        dim = name if dim is None and name in X.dims else dim
        if dim is None and len(fitting) != 1:
            sizes = ", ".join(f"{n} {d}" for d, n in X.sizes.items())
            which = "several modes" if fitting else "no mode"
            problem = f"the coordinate {name!r} has {len(values)} values, which fit {which} ({sizes})"
            raise FileError(path, problem, f"Say which: coords={{{name!r}: (mode, ..)}}, --coord {name}:MODE=..")
        dim = fitting[0] if dim is None else dim
        if dim not in X.dims:
            problem = f"has no mode {dim!r} for the coordinate {name!r}"
            raise FileError(path, problem, f"Its modes are {', '.join(map(str, X.dims))}.")
        if dim not in fitting:
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
    rows = _read_rows(path)
    found = {kind: _column(path, rows[0], kind) for kind in ("channel", "x", "y", "area")}
    places = {}
    with reading(path, "table of electrodes"):
        for row in rows:
            label = row[found["channel"]].strip()
            key = int(label) if label.isdigit() else label
            if key in places:
                raise ValueError(f"channel {label} appears twice")
            area, is_pixel = row.get(found["area"], "").strip(), found["y"].lower().endswith("_px")
            places[key] = Electrode(float(row[found["x"]]), float(row[found["y"]]), area, is_pixel)
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
    rows = _read_rows(Path(path))
    if len(rows[0]) < 2:
        raise FileError(path, "has only one column", "A table of pairs needs the columns ch_plus and ch_minus.")
    plus, minus = ("ch_plus", "ch_minus") if {"ch_plus", "ch_minus"} <= set(rows[0]) else list(rows[0])[:2]
    pairs = [(row[plus].strip(), row[minus].strip()) for row in rows if NO_GROUP not in row.values()]
    if not pairs:
        raise FileError(path, "holds no pairs", "A table of pairs needs the columns ch_plus and ch_minus.")
    return pairs


def _read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table as texts by column."""
    return read_table(path, dtype=str).fillna("").to_dict("records")


def _column(path: Path, row: Any, kind: str) -> str:
    """Return the name of the column of a kind: x, x_px, .. The area may be missing, and may have a number."""
    for name in row:
        if name.lower() == kind or name.lower().startswith("area" if kind == "area" else f"{kind}_"):
            return name
    if kind == "area":
        return ""
    raise FileError(path, f"has no column {kind!r}", f"Its columns are {', '.join(map(str, row))}.")


def read_table(path: str | Path, **options: Any) -> DataFrame:
    r"""Return a table as a pandas DataFrame: columns separated by commas or semicolons (.csv) or by tabs (.tsv).

    Further options go to `pandas.read_csv`.

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
        options |= {"sep": separator, "keep_default_na": False, "na_values": MISSING, "encoding": "utf-8-sig"}
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


def find_trials(arrays: NamedArrays, variable: str | None) -> list[str] | None:
    """Return the names of the arrays that are trials, or of the one cell that holds them; None if there are none."""
    if variable is not None and "*" in variable:
        names = [name for name in arrays.table if fnmatchcase(name, variable)]
        if not names:
            raise FileError(arrays.path, f"has no variables {variable!r}", f"It holds {arrays.listing()}.")
        return sorted(names, key=_number)
    if arrays.path.suffix.lower() != ".mat":
        return None
    cells = [name for name, one in arrays.table.items() if one.kind in CELLS]
    if variable is not None:
        return [variable] if variable in cells else None
    has_tensor = any(v.is_numeric and sum(size > 1 for size in v.shape) >= 2 for v in arrays.table.values())
    cells = [] if has_tensor else [name for name in cells if _matrices(arrays.read(name))]
    return cells if len(cells) == 1 else None


def read_trials(
    arrays: NamedArrays, names: list[str], dims: Any = None, sampling_rate: float | None = None
) -> DataArray:
    """Return the trials as a tensor channel x time x trial, NaN where a trial has no samples."""
    path = arrays.path
    values = [arrays.read(name) for name in names]
    values = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    trials = _matrices(values)
    if not trials:
        problem = f"{names[0]!r} does not hold one matrix for each trial"
        raise FileError(path, problem, f"It holds {arrays.listing()}.")
    dims = ("channel", "time") if dims is None else tuple(dims)
    if sorted(dims[:2]) != ["channel", "time"] or dims[2:] not in ((), ("trial",)):
        raise FileError(path, f"trials of unequal length have the modes channel and time, not {dims}", "Change --dims.")
    trials = trials if dims[0] == "channel" else [trial.T for trial in trials]
    beside = _read_beside(arrays, names[0])
    times = _matrices(beside.get("time"), least=1)
    rate = sampling_rate if sampling_rate is not None else next((beside[n] for n in RATES if n in beside), None)
    numbers = np.ravel(beside.get("trialinfo", []))
    try:
        X = stack_trials(
            trials,
            sampling_rate=None if times else rate,
            times=[np.ravel(t) for t in times] if times else None,
            channels=_labels(beside.get("label"), len(trials[0])),
        )
        return add_table(X, {"trialinfo": numbers}, "trial") if len(numbers) == len(trials) else X
    except ValueError as error:
        raise FileError(path, str(error).rstrip("."), "Check the trials, or give --sampling-rate.") from error


def _number(name: str) -> tuple[str, int]:
    """Return the key that sorts trial_2 before trial_10."""
    found = re.search(r"(\d+)$", name)
    return (name[: found.start()], int(found[1])) if found else (name, -1)


def _matrices(values: Any, least: int = 2) -> list[np.ndarray]:
    """Return a list of numeric arrays with at least this many modes, or nothing if it is not such a list."""
    if not isinstance(values, list) or not values:
        return []
    arrays = [
        np.asarray(value) if not isinstance(value, list | dict | str) else np.empty(0, object) for value in values
    ]
    return arrays if all(a.dtype.kind in "fiub" and a.ndim >= least for a in arrays) else []


def _read_beside(arrays: NamedArrays, name: str) -> dict[str, Any]:
    """Return what is stored beside a variable and describes it: times, labels, rate, as FieldTrip stores them."""
    prefix = name.rpartition(".")[0]
    found = {}
    for known in ("time", "label", "trialinfo", *RATES):
        full = next((n for n in arrays.table if n.lower() == (f"{prefix}.{known}" if prefix else known).lower()), None)
        if full is not None and full != name:
            value = arrays.read(full)
            found[known] = float(np.ravel(value)[0]) if known in RATES and np.size(value) == 1 else value
    return found


def _labels(values: Any, size: int) -> np.ndarray | None:
    values = None if values is None else np.ravel(np.asarray(values))
    return values if values is not None and len(values) == size else None
