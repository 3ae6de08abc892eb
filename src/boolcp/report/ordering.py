"""Entries of a mode in the order of their conditions, as charts show them."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from boolcp.fit.order import Order
from boolcp.plotting.mode_labels import further_of, group_names, groups_of
from boolcp.result.atoms import BooleanCP

NO_LABEL = "no label"


@dataclass(frozen=True)
class Band:
    """A run of neighbors under one condition: entries start <= i < stop."""

    name: str
    start: int
    stop: int
    number: int


def group_orders(W: BooleanCP) -> dict[int, np.ndarray]:
    """Return for each mode with groups the order that puts each group side by side, entries without a group last."""
    orders = {}
    for mode in range(W.ndim):
        labels = group_labels(W, mode)
        if labels is not None:
            names = [*group_names(labels[labels != NO_LABEL]), NO_LABEL]
            orders[mode] = np.argsort([names.index(label) for label in labels], kind="stable")
    return orders


def bands(W: BooleanCP, mode: int) -> list[Band]:
    """Return the runs of a mode with equal groups; none if it has no groups or they are scattered."""
    labels = group_labels(W, mode)
    if labels is None:
        return []
    edges = [0, *(np.flatnonzero(labels[1:] != labels[:-1]) + 1).tolist(), len(labels)]
    if len(edges) - 1 > len(set(labels.tolist())):
        return []
    return [Band(str(labels[a]), a, b, n) for n, (a, b) in enumerate(pairwise(edges))]


def group_name(W: BooleanCP, mode: int) -> str:
    """Return the name of the first further coordinate of a mode that has a few groups, or nothing."""
    further = [] if W.labels is None else list(W.labels.extra)
    names = [name for n, name in groups_of(W, further) if n == mode and name not in (W.dims or ())]
    return names[0] if names else ""


def group_labels(W: BooleanCP, mode: int) -> np.ndarray | None:
    """Return the group of each entry by the first additional coordinate of a mode that has a few groups, or None."""
    name = group_name(W, mode)
    values = further_of(W, mode, name) if name else None
    return None if values is None else np.array([str(value) or NO_LABEL for value in values])


def reordered(W: BooleanCP, mode: int, order: np.ndarray) -> BooleanCP:
    """Return W with the entries along a mode in a different order."""
    rows = tuple(order if n == mode else np.arange(d) for n, d in enumerate(W.shape))
    (found,) = Order(tuple(range(W.ndim)), rows).decompositions([W])
    if W.labels is None or found is W:
        return found
    labels, dim = W.labels, W.labels.dims[mode]
    coords = {**labels.coords, dim: np.asarray(labels.coords.get(dim, np.arange(W.shape[mode])))[order]}
    extra = {n: (d, np.asarray(v)[order] if d == dim else v) for n, (d, v) in labels.extra.items()}
    return replace(found, labels=replace(labels, coords=coords, extra=extra))
