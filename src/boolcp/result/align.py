"""Labelled arrays meet by their labels, never by position alone."""

from collections.abc import Collection
from typing import Any

import numpy as np

from boolcp.result.labels import is_labelled

CLOSE = 0.01  # of the step between two labels: numbers that differ less are the same label
N_SHOWN = 5  # labels that an error lists


def align(array: Any, like: Any, *, name: str = "The array", free: Collection[str] = (), partial: bool = False) -> Any:
    """Return the values of an array in the order of the labels of another; without labels, as they are.

    Parameters
    ----------
    array : array-like or DataArray
        New data, a mask or weights. Dask arrays stay lazy.
    like : DataArray, Labels or None
        What it must agree with: names of the modes (`dims`) and labels along them (`coords`). Modes that have no labels
        on one of the two sides are compared by position.
    name : str
        What errors call the array.
    free : collection of str
        Modes whose entries may differ, such as new trials.
    partial : bool
        Accept an array over some of the modes; the others get size one, so that it broadcasts.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp.result.align import align
    >>> X = xr.DataArray(np.zeros((2, 3)), {"channel": ["Fz", "Cz"]}, ("channel", "time"))
    >>> weights = xr.DataArray([5.0, 1.0], {"channel": ["Cz", "Fz"]}, ("channel",))
    >>> align(weights, X, partial=True).tolist()
    [[1.0], [5.0]]
    """
    if not is_labelled(array):
        return array if hasattr(array, "shape") else np.asarray(array)
    if getattr(like, "dims", None) is None or is_unnamed(array):
        return array.data
    array = aligned(array, like, name=name, free=free, partial=partial)
    return array.data[tuple(slice(None) if dim in array.dims else None for dim in like.dims)]


def aligned(
    array: Any, like: Any, *, name: str = "The array", free: Collection[str] = (), partial: bool = False
) -> Any:
    """Return a DataArray with modes and labels in the order of another; raise a ValueError that names what differs."""
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
                raise ValueError(f"{name} differs along mode {dim!r}: {difference(wanted, given)}.")
            array = array if np.array_equal(order, np.arange(len(order))) else array.isel({dim: order})
        elif dim not in free and dim in getattr(like, "sizes", {}) and array.sizes[dim] != like.sizes[dim]:
            raise ValueError(f"{name} has {array.sizes[dim]} entries along mode {dim!r} instead of {like.sizes[dim]}.")
    return array


def is_unnamed(array: Any) -> bool:
    """Return True if the modes of a DataArray have the names that xarray gives by default."""
    return all(dim == f"dim_{n}" for n, dim in enumerate(array.dims))


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
    if len(old) != len(new):
        counts = f"it has {len(new)} labels instead of {len(old)}"
    else:
        counts = f"its {len(new)} labels are others, or repeat in another order"
    parts = []
    for text, labels, others in (("lacks", old, set(new)), ("has the unknown", new, set(old))):
        found = [label for label in labels if label not in others]
        if found:
            parts.append(f"it {text} {', '.join(found[:N_SHOWN])}{', ..' if found[N_SHOWN:] else ''}")
    return " and ".join(parts) or counts
