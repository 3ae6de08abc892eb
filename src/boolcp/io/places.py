"""Positions and areas of channels from a table of electrodes, for data of any format."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.io.electrodes import Electrode, read_electrodes
from boolcp.io.errors import FileError

DataArray = Any


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
            f"{electrodes} has no positions for {len(missing)} channels: {', '.join(missing[:5])}.", stacklevel=3
        )
    places = [Electrode(np.nan, np.nan) if place is None else place for place in known]
    X = X.drop_vars([name for name in ("x", "y", "z", "area") if name in X.coords])
    X = X.assign_coords(x=("channel", [p.x for p in places]), y=("channel", [p.height for p in places]))
    areas = [place.area for place in places]
    return X.assign_coords(area=("channel", areas)) if any(areas) else X
