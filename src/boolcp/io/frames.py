"""Tables as tensors: long ones with a row for each entry, wide ones, and dictionaries of arrays."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.checks import array_of_listed
from boolcp.io.coordinates import read_table
from boolcp.io.errors import reading, refusing
from boolcp.prepare.tables import plain_column
from boolcp.system import load_extra


def from_dataframe(df: Any, modes: Sequence[str] | None = None, value: str | None = None) -> Any:
    """Return a table as a DataArray, for `BMP.fit`.

    Parameters
    ----------
    df : DataFrame or mapping
        A long table with a row for each entry of the tensor; a wide one, whose rows and columns are the modes; or a
        dictionary of arrays of equal shape, whose keys become the labels of the first mode.
    modes : sequence of str, optional
        The columns of a long table that are modes. For a dictionary of arrays, the names of all modes.
    value : str, optional
        The column with the entries; by default the only column of numbers besides the modes.

    Returns
    -------
    DataArray
        Entries that no row has are NaN. Numbers along a mode are in order, texts as they come. Other columns that say
        one thing about each label of a mode, such as the condition of a trial, are coordinates along it.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = {"person": ["a", "a", "b"], "day": [1, 2, 1], "titer": [3.0, 4.0, 5.0], "sex": ["f", "f", "m"]}
    >>> X = boolcp.from_dataframe(pd.DataFrame(rows), modes=["person", "day"], value="titer")
    >>> X.values.tolist(), X["sex"].values.tolist()
    ([[3.0, 4.0], [5.0, nan]], ['f', 'm'])
    """
    if isinstance(df, Mapping) and any(np.ndim(values) > 1 for values in df.values()):
        return _stacked(df, modes)
    pandas, xarray = load_extra("pandas", "files"), load_extra("xarray", "files")
    table, modes, value = _long(pandas.DataFrame(df)) if modes is None else (pandas.DataFrame(df), list(modes), value)
    if not table.columns.is_unique:
        raise ValueError(f"Two columns of the table have one name; its columns are {', '.join(map(str, table))}.")
    others = [name for name in table if name not in modes]
    numeric = [name for name in others if table[name].dtype.kind in "fiub"]
    value = numeric[0] if value is None and len(numeric) == 1 else value
    if missing := [name for name in (*modes, value) if name not in table]:
        name = missing[0]
        problem = "Say which column has the entries, value=" if name is None else f"The table has no {name!r}"
        raise ValueError(f"{problem}; its columns are {', '.join(map(str, table))}.")
    if value not in numeric or len(modes) < 2:
        raise ValueError(f"A tensor needs two modes and a column of numbers, got {modes} and {value!r}.")
    if table[modes].isna().any(axis=None):
        raise ValueError("Some rows have no label of a mode: drop them first, df.dropna(subset=modes).")
    if len(double := table[table.duplicated(modes)]):
        place = ", ".join(f"{name} {double.iloc[0][name]}" for name in modes)
        raise ValueError(f"{len(double)} entries have several rows, as {place}: average them, or name more modes.")
    found = [pandas.factorize(table[name], sort=table[name].dtype.kind in "fiubmM") for name in modes]
    codes, labels = zip(*found, strict=True)  # numbers in order, texts as they come
    values = array_of_listed((np.stack(codes, 1), table[value].to_numpy(float), [len(label) for label in labels]))
    coords = {name: (name, plain_column(label)) for name, label in zip(modes, labels, strict=True)}
    for name in (name for name in others if name != value and table[name].nunique() > 1):
        groups = ((mode, table[name].groupby(code)) for mode, code in zip(modes, codes, strict=True))
        fitting = [(mode, group.first()) for mode, group in groups if (group.nunique(dropna=False) == 1).all()]
        coords |= {str(name): (mode, plain_column(column)) for mode, column in fitting[:1]}
    return xarray.DataArray(values, coords, modes, value)


def _long(table: Any) -> tuple[Any, list[str], str]:
    """Return a wide table as a long one, its modes and the name of its entries."""
    if not len(table.columns) or any(kind.kind not in "fiub" for kind in table.dtypes):
        texts = ", ".join(str(name) for name, kind in table.dtypes.items() if kind.kind not in "fiub")
        raise ValueError(f"Columns are not numbers: {texts or 'none'}; if rows are entries, pass modes= and value=.")
    for axis, name in ((0, "row"), (1, "column")):
        index = table.axes[axis]
        names = [f"{name}{n or ''}" if level is None else str(level) for n, level in enumerate(index.names)]
        table = table.set_axis(index.set_names(names), axis=axis)
    modes = [*table.index.names, *table.columns.names]
    value = "value" if "value" not in modes else "entry"
    return table.stack(list(table.columns.names), future_stack=True).rename(value).reset_index(), modes, value


def _stacked(arrays: Mapping[Any, Any], modes: Sequence[str] | None) -> Any:
    """Return arrays of equal shape as one, along a new first mode."""
    shapes = {str(name): np.shape(values) for name, values in arrays.items()}
    if len(set(shapes.values())) > 1:
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"The arrays must have one shape, got {found}.")
    values = np.stack([np.asarray(values) for values in arrays.values()])
    names = [f"mode{n}" for n in range(values.ndim)] if modes is None else list(modes)
    return load_extra("xarray", "files").DataArray(values, {names[0]: list(arrays)}, names)


def read_any_table(path: Path) -> Any:
    """Return the DataFrame of a file .csv, .tsv or .parquet."""
    if path.suffix.lower() != ".parquet":
        return read_table(path)
    load_extra("pyarrow", "")
    with reading(path, "table"):
        return load_extra("pandas", "files").read_parquet(path)


def read_frame(path: Path, dims: Sequence[str] | None, variable: str | None) -> Any:
    """Return the tensor of a table file: long if `dims` are given, else wide."""
    table = read_any_table(path)
    with refusing(path, "From a file: dims=, variable= (--dims subject,day --variable titer)."):
        if dims is None and table.dtypes.iloc[0].kind not in "fiub":
            table = table.set_index(table.columns[0])
        return from_dataframe(table, dims, variable)
