"""Labels from other arrays of a file, tables of trials and of electrodes; trials of unequal length."""

import re
import warnings
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.checks import BoolcpWarning
from boolcp.io.arrays import NamedArrays, read_variable
from boolcp.io.errors import FileError, check_exists, reading, refusing
from boolcp.prepare import add_table, set_events, stack_trials
from boolcp.prepare.tables import ONSETS, read_columns
from boolcp.system import load_extra

MISSING = ["", "n/a", "N/A", "nan", "NaN"]  # not "NA" or "None", which may be conditions


def add_coords(X: Any, coords: Mapping[str, Any], arrays: NamedArrays, path: Path) -> Any:
    """Return X with coordinates by name: values, the name of an array of the file, or (mode, one of these)."""
    for name, source in coords.items():
        dim = name if name in X.dims else None
        if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], str):
            dim, source = source
        values = np.asarray(arrays.read_named(source, "a coordinate") if isinstance(source, str) else source)
        if sum(size > 1 for size in values.shape) > 1:
            raise FileError(path, f"the coordinate {name!r} has {values.ndim} modes", "Give a vector.")
        values = read_columns({name: values.ravel()})[name]
        fitting = [str(d) for d in X.dims if X.sizes[d] == len(values)]
        dim = fitting[0] if dim is None and len(fitting) == 1 else dim
        if dim not in fitting:
            sizes = ", ".join(f"{n} {d}" for d, n in X.sizes.items())
            where = f"do not fit the mode {dim!r}" if dim else f"fit {'several modes' if fitting else 'no mode'}"
            problem = f"the coordinate {name!r} has {len(values)} values, which {where} ({sizes})"
            raise FileError(path, problem, f"Say which: coords={{{name!r}: (mode, ..)}}, --coord {name}:MODE=..")
        X = X.assign_coords({name: (dim, values)})
    return X


def with_electrodes(X: Any, electrodes: str | Path, path: Path) -> Any:
    """Return X with the coordinates x, y and area of its channels, matched by label, or by order without labels."""
    found = read_electrodes(electrodes)
    if "channel" not in X.dims:
        problem = f"has no mode 'channel' for the positions in {electrodes}"
        raise FileError(path, problem, f"Its modes are {', '.join(map(str, X.dims))}: name them (dims=, --dims).")
    if "channel" not in X.coords:
        if len(found) != X.sizes["channel"]:
            problem = f"has {X.sizes['channel']} channels without labels, but {electrodes} lists {len(found)}"
            raise FileError(path, problem, "Give the labels of the channels (coords=, --coord channel=..).")
        X = X.assign_coords(channel=("channel", found.index.tolist()))
    labels, known = [str(label) for label in X["channel"].values], set(map(str, found.index))
    missing = [label for label in labels if label not in known]
    if len(missing) == len(labels):
        example = f"{labels[0]} here, {found.index[0]} there"
        raise FileError(electrodes, f"lists none of the channels of {path.name} ({example})", "Use the same labels.")
    if missing:
        text = f"{electrodes} has no positions for {len(missing)} channels: {', '.join(missing[:5])}."
        warnings.warn(text, BoolcpWarning, stacklevel=3)
    X = X.drop_vars([name for name in ("x", "y", "z", "area") if name in X.coords])
    return X.assign_coords(place_coords(found.set_axis(found.index.map(str)).reindex(labels)))


def place_coords(places: Any) -> dict[str, Any]:
    """Return the coordinates x, y and, where there is one, area of the channels, from a table of electrodes."""
    areas = places["area"].fillna("").tolist()
    coords = {name: ("channel", places[name].to_numpy()) for name in ("x", "y")}
    return coords | ({"area": ("channel", areas)} if any(areas) else {})


def read_electrodes(path: Any) -> Any:
    """Return the electrodes of a map as a DataFrame with x (to the right), y (upward) and area, by channel.

    The map is a .csv with columns channel, x.., y.. and maybe area.. (x_px, y_px: pixels), or a .mat of NeuroTycho.
    """
    path, pandas = check_exists(path), load_extra("pandas", "files")
    if path.suffix.lower() == ".mat":
        with reading(path, "map of electrodes"):
            x, y = (np.ravel(read_variable(path, name)).astype(float) for name in ("X", "Y"))
            return pandas.DataFrame({"x": x, "y": -y, "area": ""}, index=np.arange(1, len(x) + 1))
    table, names = read_table(path, dtype=str).fillna(""), {}
    for kind in ("channel", "x", "y"):
        names[kind] = next((name for name in table if re.fullmatch(f"{kind}(_.*)?", name, re.IGNORECASE)), "")
        if not names[kind]:
            raise FileError(path, f"has no column {kind!r}", f"Its columns are {', '.join(table)}.")
    area = next((name for name in table if name.lower().startswith("area")), None)
    with reading(path, "table of electrodes"):
        labels = [int(label) if label.isdigit() else label for label in table[names["channel"]].str.strip()]
        if repeated := [label for label in labels if labels.count(label) > 1]:
            raise ValueError(f"channel {repeated[0]} appears twice")
        up = -1 if names["y"].lower().endswith("_px") else 1  # pixels of an image count downward
        columns = {"x": table[names["x"]].astype(float), "y": up * table[names["y"]].astype(float)}
        return pandas.DataFrame(columns | {"area": table[area].str.strip() if area else ""}).set_axis(labels)


def read_pairs(path: Any) -> list[tuple[str, str]]:
    """Return the pairs of a bipolar reference: columns ch_plus and ch_minus of a .csv, or its first two columns."""
    rows = read_table(path, dtype=str).fillna("").to_dict("records")
    plus, minus = ("ch_plus", "ch_minus") if {"ch_plus", "ch_minus"} <= set(rows[0]) else (*rows[0], "", "")[:2]
    rows = [row for row in rows if "NG" not in row.values()]  # "no group": filler of the published tables
    pairs = [(row[plus].strip(), row[minus].strip()) for row in rows if minus]
    if not pairs:
        raise FileError(path, "holds no pairs", "A table of pairs needs the columns ch_plus and ch_minus.")
    return pairs


def read_table(path: str | Path, **options: Any) -> Any:
    r"""Return a table as a pandas DataFrame: columns separated by commas or semicolons (.csv) or by tabs (.tsv).

    Further options go to `pandas.read_csv`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "trials.csv"
    >>> _ = path.write_text("trial,drug,dose\n0,propofol,1.5\n1,none,\n")
    >>> boolcp.io.read_table(path)["drug"].tolist()
    ['propofol', 'none']
    """
    path = Path(check_exists(path))
    if path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        raise FileError(path, f"{path.suffix or 'no ending'} is not the ending of a table", "Use .csv or .tsv.")
    pandas = load_extra("pandas", "files")
    with reading(path, "table"):
        with path.open(encoding="utf-8-sig") as file:
            head = file.readline()
        options |= {"sep": max("\t;,", key=head.count), "keep_default_na": False, "na_values": MISSING}
        table = pandas.read_csv(path, skipinitialspace=True, encoding="utf-8-sig", **options)
        if not isinstance(table.index, pandas.RangeIndex) and table.iloc[:, -1].isna().all():  # lines end with `sep`
            table = table.reset_index().iloc[:, : len(table.columns)].set_axis(table.columns, axis=1)
    if not len(table):
        raise FileError(path, "the table has no rows", "It needs a line of names and one row for each entry.")
    return table


def with_trials(X: Any, trials: Any, path: Path) -> Any:
    """Return X with a table of trials: coordinates of its trials, or events of a continuous recording."""
    if isinstance(trials, str | Path):
        path, trials = Path(trials), read_table(trials)
    with refusing(path, "Check the table of trials (trials=, --trials)."):
        has_onsets = any(name in ONSETS for name in getattr(trials, "columns", trials))
        is_continuous = "time" in X.dims and "trial" not in X.dims
        return set_events(X, trials) if is_continuous and has_onsets else add_table(X, trials)


def find_trials(arrays: NamedArrays, variable: str | None) -> list[str] | None:
    """Return the names of the arrays that are trials, or of the one cell that holds them; None if there are none."""
    if variable is not None and "*" in variable:
        names = [name for name in arrays.table if fnmatchcase(name, variable)]
        if not names:
            raise FileError(arrays.path, f"has no variables {variable!r}", f"It holds {arrays.listing()}.")
        return sorted(names, key=lambda name: [int(n) if n.isdigit() else n for n in re.split(r"(\d+)", name)])
    is_matlab = arrays.path.suffix.lower() == ".mat"
    cells = [name for name, one in arrays.table.items() if is_matlab and one.kind == "object"]
    if variable is not None:
        return [variable] if variable in cells else None
    cells = [] if arrays.tensors() else [name for name in cells if _matrices(arrays.read(name))]
    return cells if len(cells) == 1 else None


def read_trials(arrays: NamedArrays, names: list[str], dims: Any, sampling_rate: float | None) -> Any:
    """Return trials as a tensor channel x time x trial, with the labels that FieldTrip keeps."""
    values = [arrays.read(name) for name in names]
    trials = _matrices(values[0] if len(values) == 1 and isinstance(values[0], list) else values)
    if not trials:
        problem = f"{names[0]!r} does not hold one matrix for each trial"
        raise FileError(arrays.path, problem, f"It holds {arrays.listing()}.")
    dims = tuple(dims or ("channel", "time"))[:2]
    if sorted(dims) != ["channel", "time"]:
        raise FileError(arrays.path, f"a trial has the modes channel and time, not {', '.join(dims)}", "Change --dims.")
    trials = trials if dims[0] == "channel" else [trial.T for trial in trials]
    prefix = names[0].rpartition(".")[0]
    known = {name.removeprefix(f"{prefix}.").lower(): name for name in arrays.table if name.startswith(prefix)}
    times = [np.ravel(t) for t in _matrices(arrays.read(known["time"]), least=1)] if "time" in known else []
    rate = arrays.rate(known) if sampling_rate is None else sampling_rate
    labels = np.ravel(np.asarray(arrays.read(known["label"]) if "label" in known else []))
    channels = labels if len(labels) == len(trials[0]) else None
    with refusing(arrays.path, "Check the trials, or give --sampling-rate."):
        return stack_trials(trials, sampling_rate=None if times else rate, times=times or None, channels=channels)


def _matrices(values: Any, least: int = 2) -> list[np.ndarray]:
    """Return a list of numeric arrays with at least this many modes, or nothing if it is not such a list."""
    if not isinstance(values, list) or any(isinstance(value, list | dict | str) for value in values):
        return []
    arrays = [np.asarray(value) for value in values]
    return arrays if all(a.dtype.kind in "fiub" and a.ndim >= least for a in arrays) else []
