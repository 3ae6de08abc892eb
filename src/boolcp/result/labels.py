"""Names, coordinates and units of the modes, which travel beside the array; labelled arrays meet by their labels."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp.checks import check_mask, check_weights, is_lazy
from boolcp.system import load_extra

if TYPE_CHECKING:
    from boolcp.result.atoms import BooleanCP

UNWRITABLE = re.compile("[\0\ud800-\udfff]")
CLOSE = 0.01  # of the step between two labels: numbers that differ less are the same label
N_SHOWN = 5  # labels that an error lists
UNNAMED = "__xarray_dataarray_variable__"  # the name of an array without one in a file that xarray wrote


@dataclass(frozen=True, eq=False)
class Labels:
    """Names of the modes with, where known, the coordinates along them and their units.

    `extra` holds other coordinates along a mode by their own name, with the name of the mode: the area of each channel,
    say. Plots use three names: "x" and "y", the positions of electrodes, and "condition", the state or stimulus.
    """

    dims: tuple[str, ...]  #: One name for each mode.
    coords: Mapping[str, np.ndarray] = field(default_factory=dict)  #: (d_n,) by the name of the mode, where known.
    units: Mapping[str, str] = field(default_factory=dict)  #: Of coordinates, by their names.
    extra: Mapping[str, tuple[str, np.ndarray]] = field(default_factory=dict)
    name: str | None = None  #: The measured quantity.
    value_unit: str | None = None  #: Its unit.

    def __post_init__(self) -> None:
        if len(set(self.dims)) < len(self.dims):
            raise ValueError(f"Two modes have the same name ({', '.join(map(repr, self.dims))}): give each its own.")
        texts = {"the name of a mode": self.dims, "the name of a coordinate": self.extra, "a unit": self.units.values()}
        texts |= {"the unit of the values": [self.value_unit or ""], "the name of the tensor": [self.name or ""]}
        for name, values in (*self.coords.items(), *((name, found) for name, (_, found) in self.extra.items())):
            texts[f"a value of the coordinate {name!r}"] = values if np.asarray(values).dtype.kind in "UT" else ()
        for what, group in texts.items():
            for text in group:
                if UNWRITABLE.search(text):
                    problem = "has a character that no file can hold (NUL or half of a surrogate pair)"
                    raise ValueError(f"{str(text)!r}, {what}, {problem}: rename it.")


def is_labelled(X: Any) -> bool:
    """Return True for an xarray DataArray, without importing xarray."""
    return type(X).__module__.startswith("xarray") and hasattr(type(X), "dims") and hasattr(type(X), "values")


def read_labels(X: Any) -> tuple[Any, Labels | None]:
    """Return the array of X and, for an xarray DataArray, its Labels, else None. A dask array stays lazy."""
    if isinstance(X, np.ndarray):
        return X, None
    if type(X).__module__.startswith("xarray") and hasattr(type(X), "data_vars"):
        names = ", ".join(map(repr, X.data_vars)) or "none"
        raise TypeError(f"X is an xarray Dataset with several arrays ({names}): pass one of them, e.g. X[name].")
    if type(X).__module__.partition(".")[0] in ("zarr", "h5py") and not hasattr(X, "shape"):
        names = ", ".join(map(repr, X)) or "nothing"
        raise TypeError(f"X is a group of arrays ({names}), not an array: pass one of them, e.g. X[name].")
    if not is_labelled(X):
        return X, None
    dims = tuple(str(dim) for dim in X.dims)
    given = None if X.name == UNNAMED else X.name
    name, unit = (None if text is None else str(text) for text in (given, X.attrs.get("units")))
    return (X.data if is_lazy(X.data) else X.values), labels_of(X.coords, dims, name, unit)


def labels_of(coords: Mapping[Any, Any], dims: tuple[str, ...], name: str | None, unit: str | None) -> Labels:
    """Return the Labels of modes from the coordinates of a DataArray or Dataset."""
    own = {str(key): c for key, c in coords.items() if c.ndim == 1 and str(c.dims[0]) in dims}
    along = {key: plain_values(c.values) for key, c in own.items() if key in dims}
    extra = {key: (str(c.dims[0]), plain_values(c.values)) for key, c in own.items() if key not in dims}
    units = {key: str(c.attrs["units"]) for key, c in own.items() if "units" in c.attrs}
    return Labels(dims, along, units, extra, name, unit)


def coordinates(labels: Labels, without: str = "") -> dict[str, Any]:
    """Return coordinates as xarray takes them, {name: (mode, values, attributes)}, except along one mode."""
    along = {name: (name, values) for name, values in labels.coords.items()} | dict(labels.extra)
    units = {name: {"units": unit} for name, unit in labels.units.items()}
    return {name: (dim, values, units.get(name, {})) for name, (dim, values) in along.items() if dim != without}


def labelled(values: np.ndarray, labels: Labels | None, without: str = "") -> Any:
    """Return an array as a DataArray with these labels, except along one mode; as it is if there are no labels."""
    if labels is None:
        return values
    attrs = {"units": labels.value_unit} if labels.value_unit else {}
    xarray = load_extra("xarray", "files")
    return xarray.DataArray(values, coordinates(labels, without), labels.dims, labels.name, attrs)


def labelled_factor(values: np.ndarray, names: list[str], X: Any, mode: int | str) -> Any:
    """Return a factor along a mode of X, one column for each name, as a DataArray if X is one."""
    if not is_labelled(X):
        return values
    dim = mode if isinstance(mode, str) else X.dims[mode]
    atom = "boolcp_atom" if "atom" in (*X.dims, *X.coords) else "atom"
    coords = {name: coord for name, coord in X.coords.items() if coord.dims == (dim,)} | {atom: names}
    return load_extra("xarray", "files").DataArray(values, coords, (dim, atom))


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


def align(array: Any, like: Any, *, name: str = "The array", free: Collection[str] = (), partial: bool = False) -> Any:
    """Return the values of an array in the order of the labels of another; without labels, as they are.

    `like` (a DataArray, Labels or None) has the names of the modes and the labels along them; modes without labels on
    one of the two sides are compared by position. Entries of the modes in `free` may differ, such as new trials. A
    `partial` array has some of the modes only: the others get size one, so that it broadcasts. `name` is for errors.
    """
    if not is_labelled(array):
        return array
    if has_no_names(array, like):
        return array.data
    array = aligned(array, like, name=name, free=free, partial=partial)
    return array.data[tuple(slice(None) if dim in array.dims else None for dim in like.dims)]


def aligned(
    array: Any, like: Any, *, name: str = "The array", free: Collection[str] = (), partial: bool = False
) -> Any:
    """Return a DataArray with modes and labels in the order of another; raise a ValueError that names what differs."""
    if has_no_names(array, like):
        return array
    dims = tuple(str(dim) for dim in like.dims)
    names = tuple(str(dim) for dim in array.dims)
    if not set(names) <= set(dims) or (len(names) < len(dims) and not partial):
        raise ValueError(f"{name} has the modes {', '.join(names)}, but they must be {', '.join(dims)}: rename them.")
    array = array.transpose(*(dim for dim in dims if dim in names))
    for dim in array.dims:
        if dim not in free and dim in array.coords and dim in like.coords:
            wanted, given = np.asarray(like.coords[dim]), array.coords[dim].values
            order = label_order(wanted, given)
            if order is None:
                hint = f" If these are new: transform(X, mode={dim!r})." if name == "X" and free else ""
                raise ValueError(f"{name} differs along mode {dim!r}: {difference(wanted, given)}.{hint}")
            array = array if np.array_equal(order, np.arange(len(order))) else array.isel({dim: order})
        elif dim not in free and dim in getattr(like, "sizes", {}) and array.sizes[dim] != like.sizes[dim]:
            raise ValueError(f"{name} has {array.sizes[dim]} entries along mode {dim!r} instead of {like.sizes[dim]}.")
    return array


def has_no_names(array: Any, like: Any) -> bool:
    """Return True if there is nothing to align by: no names, or those that xarray gives by default."""
    return getattr(like, "dims", None) is None or all(dim == f"dim_{n}" for n, dim in enumerate(array.dims))


def read_aligned(
    X: Any, mask: Any = None, weights: Any = None, *, like: Labels | None = None, free: Collection[str] = ()
) -> tuple[Any, Any, Any, Labels | None]:
    """Return the array of X, its mask, its weights and its Labels; all are in the order of the labels of a fit, `like`.

    A mask and weights with labels are aligned with X, others have its order.
    """
    values, labels = read_labels(X)
    beside = like if labels is None else labels
    mask = None if mask is None else align(mask, beside, name="mask", free=free if labels is None else ())
    if weights is not None:
        weights = align(weights, beside, name="weights", free=free if labels is None else (), partial=True)
    if labels is None or like is None:
        return values, mask, weights, labels
    if mask is not None and not is_lazy(mask):
        mask = check_mask(mask, values.shape)
    weights = None if weights is None else check_weights(weights, values.shape)
    parts = [None if A is None else X.copy(data=A) for A in (values, mask, weights)]
    found = [None if A is None else aligned(A, like, name="X", free=free) for A in parts]
    return *(None if A is None else A.data for A in found), read_labels(found[0])[1]  # type: ignore[return-value]


def label_order(wanted: np.ndarray, given: np.ndarray) -> np.ndarray | None:
    """Return where each wanted label is among the given ones, or None unless they are a permutation."""
    if len(wanted) != len(given):
        return None
    kinds = wanted.dtype.kind + given.dtype.kind
    if len(wanted) > 1 and "f" in kinds and set(kinds) <= set("fiu"):  # times: equal up to rounding
        first, second = np.argsort(wanted, kind="stable"), np.argsort(given, kind="stable")
        step = float(np.median(np.diff(wanted[first])))
        if not np.allclose(wanted[first], given[second], rtol=0, atol=CLOSE * step):
            return None
        order = np.empty(len(first), dtype=int)
        order[first] = second
        return order
    old, new = ([label_text(label) for label in labels] for labels in (wanted, given))
    if old == new:  # labels may repeat
        return np.arange(len(old))
    places = {label: n for n, label in enumerate(new)}
    return np.array([places[label] for label in old]) if set(old) == set(places) and len(places) == len(old) else None


def label_text(label: Any) -> str:
    """Return a label as text, whole numbers without a point: 3 and 3.0 are one trial."""
    is_whole = isinstance(label, float | np.floating) and float(label).is_integer()
    return str(int(label)) if is_whole else str(label)


def difference(wanted: np.ndarray, given: np.ndarray) -> str:
    """Return in words which labels are missing and which are new."""
    old, new = ([label_text(label) for label in labels] for labels in (wanted, given))
    parts = []
    for text, labels, others in (("lacks", old, set(new)), ("has the unknown", new, set(old))):
        found = [label for label in labels if label not in others]
        if found:
            parts.append(f"it {text} {', '.join(found[:N_SHOWN])}{', ..' if found[N_SHOWN:] else ''}")
    if len(old) != len(new) and not parts:
        return f"it has {len(new)} labels instead of {len(old)}"
    return " and ".join(parts) or f"its {len(new)} labels repeat in another order"
