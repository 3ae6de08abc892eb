"""Parts of a recording: by label, by condition."""

import numpy as np

from boolcp.prepare.common import labels_of, need_mode, noted


def select(X, dim, values):
    """Return the part of X at these labels of one mode, in the order given.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.zeros((3, 5)), {"channel": [1, 2, 3]}, ("channel", "time"))
    >>> prepare.select(X, "channel", [3, 1])["channel"].values.tolist()
    [3, 1]
    """
    positions = [_position(X, dim, value) for value in values]
    return noted(X.isel({dim: positions}), X, f"select {dim} {', '.join(map(str, values))}")


def drop(X, dim, values):
    """Return X without these labels of one mode (bad channels, say).

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.zeros((3, 5)), {"channel": [1, 2, 3]}, ("channel", "time"))
    >>> prepare.drop(X, "channel", [2])["channel"].values.tolist()
    [1, 3]
    """
    positions = {_position(X, dim, value) for value in values}
    keep = [n for n in range(X.sizes[dim]) if n not in positions]
    if not keep:
        raise ValueError(f"Nothing is left of mode {dim!r}: all {X.sizes[dim]} labels were dropped.")
    return noted(X.isel({dim: keep}), X, f"drop {dim} {', '.join(map(str, values))}")


def select_condition(X, condition):
    """Return the part of a recording under one condition.

    A condition is a value of the coordinate "condition" along some mode (trials of MNE epochs, states), or a stretch of
    time listed in ``attrs`` (NeuroTycho recordings, MNE annotations). Case does not matter, and of a label with tags
    such as "go/left" one tag is enough.

    Parameters
    ----------
    X : DataArray
        The recording.
    condition : str
        Its label.

    Returns
    -------
    DataArray
        The part; stretches apart in time get a coordinate "segment".

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> X = xr.DataArray(np.zeros((2, 4)), {"condition": ("trial", ["a", "b", "a", "b"])}, ("channel", "trial"))
    >>> prepare.select_condition(X, "b").shape
    (2, 2)
    """
    step = f"condition {condition}"
    if "condition" in X.coords and X.coords["condition"].ndim == 1:
        (dim,) = X.coords["condition"].dims
        known = [str(label) for label in X.coords["condition"].values]
        positions = [n for n, label in enumerate(known) if is_condition(label, condition)]
        if not positions:
            raise ValueError(f"There is no condition {condition!r}; there are {', '.join(sorted(set(known)))}.")
        return noted(X.isel({dim: positions}), X, step)
    stretches = list_conditions(X)
    if not stretches:
        raise ValueError(f"No conditions are known, so {condition!r} cannot be selected.")
    chosen = [(start, stop) for label, start, stop in stretches if is_condition(label, condition)]
    if not chosen:
        known = sorted({label for label, _, _ in stretches})
        raise ValueError(f"There is no condition {condition!r}; there are {', '.join(known)}.")
    times = X["time"].values
    pieces = [np.flatnonzero((times >= start) & (times < stop)) for start, stop in chosen]
    selected = X.isel(time=np.concatenate(pieces))
    if len(pieces) > 1:
        selected = selected.assign_coords(segment=("time", np.repeat(np.arange(len(pieces)), [len(p) for p in pieces])))
    selected = noted(selected, X, step)
    for name in ("condition_label", "condition_start", "condition_stop"):
        selected.attrs.pop(name, None)
    return selected


def is_condition(label, condition):
    """Return True if a label is the condition, or has it as one of its tags."""
    label, condition = label.lower(), condition.lower()
    return condition == label or condition in label.split("/")


def list_conditions(X):
    """Return the stretches of time of a recording: label, first and last second of each.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp import prepare
    >>> attrs = {"condition_label": ["rest"], "condition_start": [0.0], "condition_stop": [2.0]}
    >>> prepare.list_conditions(xr.DataArray(np.zeros((1, 3)), dims=("channel", "time"), attrs=attrs))
    [('rest', 0.0, 2.0)]
    """
    attrs = [np.atleast_1d(X.attrs.get(f"condition_{name}", [])) for name in ("label", "start", "stop")]
    return [(str(label), float(start), float(stop)) for label, start, stop in zip(*attrs, strict=True)]


def _position(X, dim, value):
    """Return the position of a label of one mode; text matches numbers too."""
    need_mode(X, dim, "the selection")
    labels = labels_of(X, dim)
    matches = [n for n, label in enumerate(labels) if str(label) == str(value)]
    if not matches:
        first, last = labels[0], labels[-1]
        raise ValueError(f"Mode {dim!r} has no {value!r}; its labels run from {first} to {last}.")
    return matches[0]
