"""Names, coordinates and units of the modes: they travel beside the array, never through the algorithm."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp.checks import is_lazy
from boolcp.extras import load_extra
from boolcp.result.trust import Trust, sure_share

if TYPE_CHECKING:
    from boolcp.result.atoms import BooleanCP

UNWRITABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, eq=False)
class Labels:
    """Names of the modes with, where known, the coordinates along them and their units.

    Parameters
    ----------
    dims : tuple of str
        One name for each mode.
    coords : mapping of str to ndarray
        Coordinates (d_n,) by the name of the mode; not every mode needs them.
    units : mapping of str to str
        Units of the coordinates, by the name of the mode or of the other coordinate.
    extra : mapping of str to (str, ndarray)
        Other coordinates along a mode by their own name, with the name of the mode: the area of each channel, say.
        Plots use three names: "x" and "y", the positions of electrodes, and "condition", the state or stimulus.
    name : str, optional
        The measured quantity.
    value_unit : str, optional
        Their unit.
    """

    dims: tuple[str, ...]
    coords: Mapping[str, np.ndarray] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, tuple[str, np.ndarray]] = field(default_factory=dict)
    name: str | None = None
    value_unit: str | None = None

    def __post_init__(self) -> None:
        if len(set(self.dims)) < len(self.dims):
            raise ValueError(f"Two modes have the same name ({', '.join(map(repr, self.dims))}): give each its own.")
        for what, text in self._texts():
            if UNWRITABLE.search(text):
                problem = "has a character that no file can hold (NUL or half of a surrogate pair)"
                raise ValueError(f"{str(text)!r}, {what}, {problem}: rename it.")

    def _texts(self) -> Iterator[tuple[str, str]]:
        """Yield every text of the labels, with a description."""
        yield from (("the name of a mode", dim) for dim in self.dims)
        yield from (("the name of a coordinate", name) for name in self.extra)
        yield from (("a unit", unit) for unit in (*self.units.values(), self.value_unit) if unit)
        yield "the name of the tensor", self.name or ""
        for name, values in (*self.coords.items(), *((name, found) for name, (_, found) in self.extra.items())):
            if np.asarray(values).dtype.kind in "UT":
                yield from ((f"a value of the coordinate {name!r}", value) for value in values)


def is_labelled(X: Any) -> bool:
    """Return True for an xarray DataArray, without importing xarray."""
    return type(X).__module__.startswith("xarray") and hasattr(type(X), "dims") and hasattr(type(X), "values")


def read_labels(X: Any) -> tuple[Any, Labels | None]:
    """Return the array of X and, for an xarray DataArray, its Labels, else None. A dask array stays lazy.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp.result.labels import read_labels
    >>> X = xr.DataArray(np.eye(2), {"channel": ["Fz", "Cz"]}, ("channel", "time"))
    >>> array, labels = read_labels(X)
    >>> labels.dims, [str(name) for name in labels.coords["channel"]]
    (('channel', 'time'), ['Fz', 'Cz'])
    """
    if type(X).__module__.startswith("xarray") and hasattr(type(X), "data_vars"):
        names = ", ".join(map(repr, X.data_vars)) or "none"
        raise TypeError(f"X is an xarray Dataset with several arrays ({names}): pass one of them, e.g. X[name].")
    if type(X).__module__.partition(".")[0] in ("zarr", "h5py") and not hasattr(X, "shape"):
        names = ", ".join(map(repr, X)) or "nothing"
        raise TypeError(f"X is a group of arrays ({names}), not an array: pass one of them, e.g. X[name].")
    if not is_labelled(X):
        return X, None
    dims = tuple(str(dim) for dim in X.dims)
    coords, units, extra = {}, {}, {}
    for name, coord in X.coords.items():
        name = str(name)
        if coord.ndim != 1:
            continue
        if name in dims:
            coords[name] = plain_values(coord.values)
        elif str(coord.dims[0]) in dims:
            extra[name] = str(coord.dims[0]), plain_values(coord.values)
        else:
            continue
        if "units" in coord.attrs:
            units[name] = str(coord.attrs["units"])
    name, unit = (None if text is None else str(text) for text in (X.name, X.attrs.get("units")))
    return (X.data if is_lazy(X.data) else X.values), Labels(dims, coords, units, extra, name, unit)


def plain_values(values: ArrayLike) -> np.ndarray:
    """Return coordinates as numbers, dates or strings; objects become numbers if all of them are, else strings."""
    values = np.asarray(values)
    if values.dtype.kind not in "OV":
        return values
    if all(isinstance(value, int | float | np.number) for value in values):
        return values.astype(float)
    return np.array([str(value) for value in values])


def mode_names(W: "BooleanCP") -> tuple[str, ...]:
    """Return one name for each mode of a decomposition: its dimension, or mode0, mode1, .."""
    return tuple(W.dims) if W.dims else tuple(f"mode{n}" for n in range(W.ndim))


def to_dataframe(W: "BooleanCP") -> Any:
    """Return one row for each atom as a pandas DataFrame: mode, ones, rank, weight, shares of variance, trust."""
    pandas = load_extra("pandas", "labels")
    table = atom_table(W)
    ranks = ["block" if atom.rank is None else atom.rank for atom in W.atoms]
    sizes = [W.shape[atom.mode] for atom in W.atoms]
    columns = {"boolean_mode": table.pop("boolean_mode"), "n_ones": table.pop("n_ones"), "size": sizes, "rank": ranks}
    return pandas.DataFrame(columns | table, index=pandas.RangeIndex(W.n_atoms, name="atom"))


def atom_table(W: "BooleanCP") -> dict[str, np.ndarray]:
    """Return the properties of each atom: arrays (K,) by name."""
    dims = mode_names(W)
    table = {
        "weight": np.asarray(W.weights),
        "boolean_mode": np.array([dims[atom.mode] for atom in W.atoms], dtype=str),
        "n_ones": np.array([atom.n_ones for atom in W.atoms], dtype=int),
        "certificate": np.array([atom.certificate for atom in W.atoms], dtype=float),
    }
    if W.data_norm2 and W.data_inner is not None and W.n_atoms:
        table |= {"alone": W.explained_alone(), "unique": W.explained_unique()}
    return table | trust_table(W)


def trust_table(W: "BooleanCP") -> dict[str, np.ndarray]:
    """Return the measures of trust in each atom: arrays (K,) by name, the verdict in words last."""
    from boolcp.trust.degeneracy import degeneracy
    from boolcp.trust.verdict import verdicts

    known = W.trust or Trust()
    found = {
        "sure_bits": sure_share(W),
        "stability": known.stability,
        "p_value": known.p_value,
        "p_adjusted": known.p_adjusted,
        "degeneracy": degeneracy(W).score,
        "verdict": np.array([verdict.text for verdict in verdicts(W)], dtype=str),
    }
    return {name: values for name, values in found.items() if values is not None}
