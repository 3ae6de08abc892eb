"""The bits of a decomposition as intervals: a table of them, their statistics, transitions, and events of BIDS."""

from typing import Any

import numpy as np

from boolcp.checks import check_mode
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import mode_names
from boolcp.system import load_extra

SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6}
ONSETS = ("time_zero", "onset")  # coordinates of trials: where time 0 is in the recording
GAP = 1.5  # steps between two times from which they do not follow each other


def events(W: BooleanCP, mode: int | str | None = None) -> Any:
    """Return the intervals in which atoms are on as a DataFrame; see `BooleanCP.events`."""
    rows: dict[str, list[Any]] = {name: [] for name in ("start", "stop", "duration", "atom", "label", "mode")}
    for k in atoms_along(W, mode):
        n = W.atoms[k].mode
        starts, stops = edges_of(W, n)
        for first, last in runs(W, k):
            start, stop = starts[first].item(), stops[last].item()
            values = (start, stop, stop - start, k, f"atom_{k}", mode_names(W)[n])
            for column, value in zip(rows.values(), values, strict=True):
                column.append(value)
    table = load_extra("pandas", "files").DataFrame(rows)
    return table.sort_values(["mode", "start", "atom"], ignore_index=True, kind="stable")


def occurrences(W: BooleanCP, mode: int | str | None = None, by: str | None = None) -> Any:
    """Return how often and how long each atom is on as a DataFrame; see `BooleanCP.occurrences`."""
    atoms, table = atoms_along(W, mode), events(W, mode)
    groups, rows = table.groupby("atom")["duration"], []
    for k in atoms:
        atom, (starts, stops) = W.atoms[k], edges_of(W, W.atoms[k].mode)
        length = float((stops - starts).sum())
        known = {"occurrences": int((table["atom"] == k).sum()), "mean_duration": float(groups.mean().get(k, np.nan))}
        known |= {"coverage": float(groups.sum().get(k, 0)) / length, "rate": known["occurrences"] / length}
        if by is not None:
            column = condition_column(W, atom.mode, by)
            known |= {f"{by}={label}": int(atom.z[column == label].sum()) for label in np.unique(column)}
        rows.append(known)
    pandas = load_extra("pandas", "files")
    return pandas.DataFrame(rows, index=pandas.Index(atoms, name="atom"))


def transitions(W: BooleanCP, mode: int | str | None = None) -> Any:
    """Return how often an atom goes off as another goes on, as a DataFrame; see `BooleanCP.transitions`."""
    atoms = atoms_along(W, mode)
    modes = sorted({W.atoms[k].mode for k in atoms})
    if len(modes) > 1:
        names = ", ".join(mode_names(W)[n] for n in modes)
        raise ValueError(f"Transitions are counted along one mode, but atoms are Boolean along {names}: pass mode=.")
    Z = np.stack([W.atoms[k].z for k in atoms], axis=1) if atoms else np.zeros((2, 0), dtype=bool)
    is_next = ~breaks_of(W, modes[0]) if modes else np.ones(1, dtype=bool)
    off, on = (change[is_next].astype(int) for change in (Z[:-1] & ~Z[1:], ~Z[:-1] & Z[1:]))
    pandas = load_extra("pandas", "files")
    rows, columns = (pandas.Index(atoms, name=name) for name in ("from", "to"))
    return pandas.DataFrame(off.T @ on, index=rows, columns=columns)


def bids_events(W: BooleanCP) -> Any:
    """Return the table of a BIDS events.tsv: onset and duration in seconds, trial_type is the atom.

    Atoms that are on or off along time give their intervals; along a mode with a coordinate "time_zero" or "onset",
    such as trials that were cut from a recording, each trial in which an atom is on gives an event of its length.
    """
    labels, found = W.labels, []
    times = labels.coords.get("time") if labels is not None else None
    scale = SECONDS.get(labels.units.get("time", "s")) if labels is not None else None
    if times is not None and scale is not None and "time" in W.dims:  # type: ignore[operator]
        starts, stops = edges_of(W, W.dims.index("time"))  # type: ignore[union-attr]
        mode, onsets = next((labels.extra[name] for name in ONSETS if name in labels.extra), ("", times))  # type: ignore[union-attr]
        for k, atom in enumerate(W.atoms):
            if mode_names(W)[atom.mode] == "time":
                found += [(scale * starts[a], scale * (stops[b] - starts[a]), f"atom_{k}") for a, b in runs(W, k)]
            elif mode_names(W)[atom.mode] == mode:
                length = scale * (stops[-1] - starts[0])
                found += [(onset + scale * starts[0], length, f"atom_{k}") for onset in onsets[atom.z]]
    if not found:
        advice = "fit labelled data, cut by prepare.cut_trials, or with time among the Boolean modes"
        raise ValueError(f"Events in seconds need atoms along time, or along trials with onsets: {advice}.")
    return load_extra("pandas", "files").DataFrame(sorted(found), columns=["onset", "duration", "trial_type"])


def atoms_along(W: BooleanCP, mode: int | str | None) -> list[int]:
    """Return the atoms that are Boolean along a mode; None: all."""
    n = None if mode is None else check_mode(mode, W.ndim, W.dims)
    return [k for k, atom in enumerate(W.atoms) if n is None or atom.mode == n]


def edges_of(W: BooleanCP, mode: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where each entry of a mode starts and stops: times, or positions if it has no numbers as labels."""
    name = mode_names(W)[mode]
    times = None if W.labels is None else W.labels.coords.get(name)
    if name != "time" or times is None or times.dtype.kind not in "fiu" or len(times) < 2:
        return np.arange(W.shape[mode]), np.arange(1, W.shape[mode] + 1)
    steps = np.diff(times)
    step = np.median(steps)
    return times, times + np.append(np.where(steps > GAP * step, step, steps), step)


def breaks_of(W: BooleanCP, mode: int) -> np.ndarray:
    """Return True where an entry of a mode and the next do not follow each other: a gap, or another segment."""
    starts, stops = edges_of(W, mode)
    dim, segment = ("", np.zeros(0)) if W.labels is None else W.labels.extra.get("segment", ("", np.zeros(0)))
    is_new = segment[1:] != segment[:-1] if dim == mode_names(W)[mode] else np.zeros(len(starts) - 1, dtype=bool)
    return is_new | (starts[1:] > stops[:-1]) | (starts[1:] < starts[:-1])


def runs(W: BooleanCP, k: int) -> list[tuple[int, int]]:
    """Return the first and last entry of each stretch in which an atom is on."""
    z, breaks = W.atoms[k].z, breaks_of(W, W.atoms[k].mode)
    firsts = np.flatnonzero(z & np.concatenate([[True], ~z[:-1] | breaks]))
    lasts = np.flatnonzero(z & np.concatenate([~z[1:] | breaks, [True]]))
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def condition_column(W: BooleanCP, mode: int, by: str) -> np.ndarray:
    """Return a coordinate of the entries of a mode, as text."""
    known = {} if W.labels is None else {n: v for n, (dim, v) in W.labels.extra.items() if dim == mode_names(W)[mode]}
    if by not in known:
        listing = ", ".join(known) or "none"
        raise ValueError(f"Mode {mode_names(W)[mode]} has no coordinate {by!r} to count by; it has {listing}.")
    return known[by].astype(str)
