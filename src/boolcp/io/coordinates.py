"""Coordinates from other arrays of a file (labels, conditions) or from a table of electrodes (positions, areas)."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.checks import BoolcpWarning
from boolcp.io.electrodes import Electrode, read_electrodes
from boolcp.io.errors import FileError
from boolcp.prepare.tables import read_columns

DataArray = Any


def add_coords(X: DataArray, coords: Mapping[str, Any], arrays: Any, path: Path) -> DataArray:
    """Return X with coordinates: values, the name of an array of the file, or (mode, one of these).

    A name that is a mode labels that mode. Any other is an additional coordinate of the mode with its length.
    """
    for name, source in coords.items():
        dim = None
        if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], str):
            dim, source = source
        values = _vector(_read(source, arrays, path), name, path)
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


def _read(source: Any, arrays: Any, path: Path) -> Any:
    """Return the array of that name, or the given values."""
    if not isinstance(source, str):
        return source
    names = [str(name) for name in (arrays.variables if hasattr(arrays, "data_vars") else arrays.table)]
    if source not in names:
        shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        raise FileError(path, f"has no variable {source!r} for a coordinate", f"It holds {shown}.")
    return arrays[source].values if hasattr(arrays, "data_vars") else arrays.read(source)


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
        warnings.warn(
            f"{electrodes} has no positions for {len(missing)} channels: {', '.join(missing[:5])}.",
            BoolcpWarning,
            stacklevel=3,
        )
    places = [Electrode(np.nan, np.nan) if place is None else place for place in known]
    X = X.drop_vars([name for name in ("x", "y", "z", "area") if name in X.coords])
    X = X.assign_coords(x=("channel", [p.x for p in places]), y=("channel", [p.height for p in places]))
    areas = [place.area for place in places]
    return X.assign_coords(area=("channel", areas)) if any(areas) else X
