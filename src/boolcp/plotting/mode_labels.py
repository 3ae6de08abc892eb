"""What plots need to know about a mode: its name, unit, coordinates, positions and conditions."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from boolcp.plotting.look import MAX_LETTERS, MAX_TICKS, MAX_TICKS_UPWARD, plain_text, shortened
from boolcp.plotting.maps import flatten
from boolcp.result.atoms import BooleanCP

POSITIONS, CONDITION = ("x", "y"), "condition"  # names of the additional coordinates that plots use
DECIMALS = 3  # digits after the point, if they suffice to distinguish neighbors
MAX_GROUPS, MAX_STATES = 12, 6  # groups of a coordinate; entries of a mode that are each a group
UNORDERED = ("unit", "neuron", "cell", "channel", "electrode", "sensor", "subject", "patient")  # also with numbers
HEADS = ("EEG", "MEG", "CSD")  # quantities that are measured around a head


def mode_text(W: BooleanCP, mode: int) -> Any:
    """Return the name of a mode for texts: its own, or mode 0, mode 1, .."""
    return W.mode_name(mode) if is_named(W, mode) else f"mode {mode}"


def is_named(W: BooleanCP, mode: int) -> bool:
    """Return True if a mode has a name of its own; files without names call their modes mode0, mode1, .."""
    return bool(W.dims) and W.mode_name(mode) != f"mode{mode}"


def plural(W: BooleanCP, mode: int) -> str:
    """Return the plural for entries of a mode."""
    if not is_named(W, mode):
        return f"entries of mode {mode}"
    name = W.mode_name(mode)
    if name == "time":
        return "time points"
    return f"{name[:-1]}ies" if name.endswith("y") else (name if name.endswith("s") else f"{name}s")


def unit_of(W: BooleanCP, mode: int) -> Any:
    """Return the unit of the coordinates along a mode, or nothing if unknown; time differences are in seconds."""
    values = coordinates_of(W, mode)
    if values is not None and values.dtype.kind == "m":
        return "s"
    return "" if W.labels is None else W.labels.units.get(W.labels.dims[mode], "")


def coordinate_text(W: BooleanCP, mode: int) -> list[str]:
    """Return the coordinates along a mode as text, or their indices if there are none."""
    values = coordinates_of(W, mode)
    if values is None:
        return [str(i) for i in range(W.shape[mode])]
    if values.dtype.kind == "m":
        values = values / np.timedelta64(1, "s")
    return number_texts(values) if values.dtype.kind == "f" else [str(value) for value in values]


def number_texts(values: np.ndarray) -> list[str]:
    """Return numbers as text with at most three digits after the point, or as many as distinguish neighbors."""
    known = values[np.isfinite(values)]
    largest = np.abs(known).max(initial=0.0)
    n_different = len(np.unique(known))
    if largest and not 1e-3 <= largest < 1e6:
        return [f"{value:.6g}" for value in values]
    for digits in range(DECIMALS, 9):
        texts = [f"{value:.{digits}f}".rstrip("0").rstrip(".") for value in values]
        if len(set(texts)) >= n_different:
            break
    return ["0" if text == "-0" else text for text in texts]


def quantity_of(W: BooleanCP) -> str:
    """Return the name of the measured quantity, nothing if the array has none or one that every array could have."""
    name = "" if W.labels is None else W.labels.name or ""
    return "" if name.lower() in ("array", "data", "x", "y") else name


def value_label(W: BooleanCP) -> str:
    """Return the name of the measured quantity, with its unit if known."""
    name, unit = quantity_of(W) or "size", "" if W.labels is None else W.labels.value_unit
    return f"{name} ({unit})" if unit else name


def coordinates_of(W: BooleanCP, mode: int) -> Any:
    """Return the coordinates along a mode, None if there are none."""
    return None if W.labels is None else W.labels.coords.get(W.labels.dims[mode])


def has_names(W: BooleanCP, mode: int) -> bool:
    """Return True if the entries of a mode have names, not numbers in order."""
    return coordinates_of(W, mode) is not None and line_places(W, mode) is None


def undetermined_of(W: BooleanCP, mode: int) -> np.ndarray:
    """Return which entries of a mode have no data, (d,)."""
    return np.asarray((W.undetermined or {}).get(mode, np.zeros(W.shape[mode], dtype=bool)))


def further_names(W: BooleanCP, mode: int) -> list[str]:
    """Return the names of the additional coordinates along a mode."""
    return [] if W.labels is None else [name for name, (dim, _) in W.labels.extra.items() if dim == W.mode_name(mode)]


def further_of(W: BooleanCP, mode: int, name: Any) -> Any:
    """Return an additional coordinate along a mode by its name, or None if there is none."""
    if W.labels is None:
        return None
    dim, values = W.labels.extra.get(name, (None, None))
    return np.asarray(values) if dim == W.labels.dims[mode] else None


def positions_of(W: BooleanCP, mode: int) -> np.ndarray | None:
    """Return where to draw the entries of a mode with coordinates x and y, (d, 2), else None; heads are flattened."""
    places = _places(W, mode, (*POSITIONS, "z")) if is_head(W, mode) else None
    return _places(W, mode, POSITIONS) if places is None else flatten(places)


def _places(W: BooleanCP, mode: int, names: tuple[str, ...]) -> np.ndarray | None:
    found = [further_of(W, mode, name) for name in names]
    if any(values is None or values.dtype.kind not in "fiu" for values in found):
        return None
    places = np.stack([np.asarray(values, dtype=float) for values in found], axis=1)
    return places if np.isfinite(places).all(axis=1).any() else None


def is_head(W: BooleanCP, mode: int) -> bool:
    """Return True if the entries of a mode lie around a head: EEG or MEG with positions in space."""
    name = "" if W.labels is None else W.labels.name or ""
    return name.startswith(HEADS) and _places(W, mode, (*POSITIONS, "z")) is not None


def group_names(labels: Any) -> list[str]:
    """Return the different labels as text, without empty ones: numbers by size, names in the order they appear."""
    names = [name for name in dict.fromkeys(str(label) for label in labels) if name]
    with contextlib.suppress(ValueError):
        return sorted(names, key=float)
    return names


def groups_of(W: BooleanCP, first: Sequence[str] = ()) -> list[tuple[int, str]]:
    """Return the coordinates that divide the entries of a mode into a few groups, as pairs of mode and name.

    Those named in `first` come first, then "condition"; of coordinates with the same groups only the first is returned.
    """
    found: dict[tuple[int, tuple[int, ...]], str] = {}
    rank = {name: n for n, name in enumerate(dict.fromkeys([*first, CONDITION]))}
    for n, dim in enumerate(W.labels.dims if W.labels else ()):
        given = {} if coordinates_of(W, n) is None else {dim: coordinates_of(W, n)}
        given |= {name: further_of(W, n, name) for name in further_names(W, n)}
        for name in sorted(given, key=lambda name: rank.get(name, len(rank))):
            values = given[name]
            texts, kind = tuple(str(value) for value in values), np.asarray(values).dtype.kind
            n_groups = len(group_names(texts))
            top = MAX_STATES if n_groups == len(texts) else MAX_GROUPS
            is_code = kind in "iu" and name != dim and 2 * n_groups <= len(texts)  # repeated codes such as 1 and 2
            if (kind in "USb" or is_code) and 2 <= n_groups <= top:
                codes = {text: code for code, text in enumerate(dict.fromkeys(texts))}
                found.setdefault((n, tuple(codes[text] for text in texts)), name)
    return [(n, name) for (n, _), name in found.items()]


def condition_of(W: BooleanCP, mode: int, name: Any = CONDITION) -> Any:
    """Return the condition of each entry along a mode as text: an additional coordinate, or the coordinate itself."""
    values = further_of(W, mode, name)
    if values is None and W.labels is not None and W.labels.dims[mode] == name:
        values = W.labels.coords.get(name)
    return None if values is None else np.array([str(value) for value in values])


def line_places(W: BooleanCP, mode: int) -> Any:
    """Return the coordinates along a mode if they are numbers in order, else None; time differences are in seconds."""
    values = coordinates_of(W, mode)
    if values is None or values.dtype.kind not in "fium":
        return None
    values = (values / np.timedelta64(1, "s") if values.dtype.kind == "m" else values).astype(float)
    steps = np.diff(values)
    is_ordered = np.isfinite(values).all() and ((steps > 0).all() or (steps < 0).all())
    return values if is_ordered else None


def is_unordered(W: BooleanCP, mode: int) -> bool:
    """Return True if neighbors along a mode have nothing to do with each other, so that no line joins them."""
    return W.dims is not None and str(W.mode_name(mode)).lower() in UNORDERED


def is_geometric(places: Any) -> Any:
    """Return True for three or more positions with a constant ratio, such as frequencies in octaves."""
    if len(places) < 3 or places.min() <= 0:
        return False
    ratios = places[1:] / places[:-1]
    is_even = np.allclose(np.diff(places), places[1] - places[0], rtol=0.01, atol=0)
    return bool(np.allclose(ratios, ratios[0], rtol=0.01)) and not is_even


def cell_edges(places: Any) -> Any:
    """Return the edges of the cells around positions along an axis, (n + 1,): halfway, of ratios where it is log."""
    if len(places) == 1:
        return places[0] + np.array([-0.5, 0.5])
    at = np.log(places) if is_geometric(places) else places
    inner = (at[1:] + at[:-1]) / 2
    edges = np.concatenate([[2 * at[0] - inner[0]], inner, [2 * at[-1] - inner[-1]]])
    return np.exp(edges) if is_geometric(places) else edges


def even_places(W: BooleanCP, mode: int) -> Any:
    """Return the positions along a mode, or None if they are indices, and the two ends of an image of it."""
    places = line_places(W, mode)
    if places is not None and len(places) > 1:
        step = (places[-1] - places[0]) / (len(places) - 1)
        if np.allclose(np.diff(places), step, rtol=0.01, atol=0):
            return places, (places[0] - step / 2, places[-1] + step / 2)
    return None, (-0.5, W.shape[mode] - 0.5)


def label_mode(ax: Any, W: BooleanCP, mode: int, places: Any, *, is_vertical: bool = False) -> None:
    """Write the name and unit of a mode at an axis, and its coordinates if the positions are indices."""
    axis = ax.yaxis if is_vertical else ax.xaxis
    name, unit = shortened(mode_text(W, mode), 30), unit_of(W, mode)
    axis.set_label_text(plain_text(f"{name} ({unit})" if unit else name), fontsize=8)
    if places is None and coordinates_of(W, mode) is not None:
        names = coordinate_text(W, mode)
        ticks = np.arange(0, len(names), -(-len(names) // (MAX_TICKS_UPWARD if is_vertical else MAX_TICKS)))
        is_long = max(len(names[i]) for i in ticks) > 2 and not is_vertical
        has_room = len(ticks) <= 6
        turn = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if has_room else {"rotation": 90}
        names = [plain_text(shortened(names[i], MAX_LETTERS + 4 * has_room)) for i in ticks]
        axis.set_ticks(ticks, names, fontsize=7, **(turn if is_long else {}))
    elif axis.get_scale() == "linear":
        axis.get_major_locator().set_params(integer=places is None or bool(np.all(places == np.rint(places))))
