"""The bits of a decomposition as intervals: a table of them, their statistics, transitions, and events of BIDS."""

from typing import Any

import numpy as np

from boolcp.checks import check_mode
from boolcp.result.atoms import BooleanCP
from boolcp.result.labels import Labels, mode_names
from boolcp.system import load_extra

SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6}
ONSETS = ("time_zero", "onset")  # coordinates of trials: where time 0 is in the recording
GAP = 1.5  # steps between two times from which they do not follow each other


def events(W: BooleanCP, mode: int | str | None = None) -> Any:
    """Return the intervals in which atoms are on as a DataFrame; see `BooleanCP.events`."""
    rows: list[tuple[Any, ...]] = []
    for k in atoms_along(W, mode):
        starts, stops = edges_of(W, W.atoms[k].mode)
        name = mode_names(W)[W.atoms[k].mode]
        rows += [(starts[a], stops[b], stops[b] - starts[a], k, f"atom_{k}", name) for a, b in runs(W, k)]
    columns = ["start", "stop", "duration", "atom", "label", "mode"]
    table = load_extra("pandas", "files").DataFrame(rows, columns=columns)
    return table.sort_values(["mode", "start", "atom"], ignore_index=True)


def occurrences(W: BooleanCP, mode: int | str | None = None, by: str | None = None) -> Any:
    """Return how often and how long each atom is on as a DataFrame; see `BooleanCP.occurrences`."""
    atoms, groups = atoms_along(W, mode), events(W, mode).groupby("atom")["duration"]
    lengths = np.array([np.sum(np.subtract(*edges_of(W, W.atoms[k].mode)[::-1])) for k in atoms])
    table = groups.agg(occurrences="size", mean_duration="mean", coverage="sum").reindex(atoms)
    table["coverage"], table["rate"] = table["coverage"] / lengths, table["occurrences"] / lengths
    for label in [] if by is None else np.unique(np.concatenate([condition_column(W, k, by) for k in atoms])):
        table[f"{by}={label}"] = [int(W.atoms[k].z[condition_column(W, k, str(by)) == label].sum()) for k in atoms]
    return table


def transitions(W: BooleanCP, mode: int | str | None = None) -> Any:
    """Return how often an atom goes off as another goes on, as a DataFrame; see `BooleanCP.transitions`."""
    atoms, pandas = atoms_along(W, mode), load_extra("pandas", "files")
    modes = sorted({W.atoms[k].mode for k in atoms})
    if len(modes) != 1:
        names = ", ".join(mode_names(W)[n] for n in modes) or "no mode"
        raise ValueError(f"Transitions are counted along one mode, but atoms are Boolean along {names}: pass mode=.")
    Z, is_next = np.stack([W.atoms[k].z for k in atoms], axis=1), ~breaks_of(W, modes[0])[:, None]
    off, on = (is_next & Z[:-1] & ~Z[1:]).astype(int), (is_next & ~Z[:-1] & Z[1:]).astype(int)
    rows, columns = (pandas.Index(atoms, name=name) for name in ("from", "to"))
    return pandas.DataFrame(off.T @ on, index=rows, columns=columns)


def bids_events(W: BooleanCP) -> Any:
    """Return the table of a BIDS events.tsv: onset and duration in seconds, trial_type is the atom.

    Atoms that are on or off along time give their intervals; along a mode with a coordinate "time_zero" or "onset",
    such as trials that were cut from a recording, each trial in which an atom is on gives an event of its length.
    """
    names, labels, found = mode_names(W), W.labels or Labels(()), list[tuple[float, float, str]]()
    is_timed = "time" in names and edges_of(W, names.index("time"))[0].dtype.kind == "f"
    scale = SECONDS.get(labels.units.get("time", "s"), 0.0) if is_timed else 0.0
    mode, onsets = next((labels.extra[name] for name in ONSETS if name in labels.extra), ("", np.zeros(0)))
    for k, atom in enumerate(W.atoms if scale else ()):
        starts, stops = (scale * edge for edge in edges_of(W, names.index("time")))
        if names[atom.mode] == "time":
            found += [(starts[a], stops[b] - starts[a], f"atom_{k}") for a, b in runs(W, k)]
        elif names[atom.mode] == mode:
            found += [(onset + starts[0], stops[-1] - starts[0], f"atom_{k}") for onset in onsets[atom.z]]
    if not found:
        advice = "fit labelled data, cut by prepare.cut_trials, or with time among the Boolean modes"
        raise ValueError(f"Events in seconds need atoms along time, or along trials with onsets: {advice}.")
    return load_extra("pandas", "files").DataFrame(sorted(found), columns=["onset", "duration", "trial_type"])


def atoms_along(W: BooleanCP, mode: int | str | None) -> list[int]:
    """Return the atoms that are Boolean along a mode; None: all."""
    n = None if mode is None else check_mode(mode, W.ndim, W.dims)
    return [k for k, atom in enumerate(W.atoms) if n is None or atom.mode == n]


def edges_of(W: BooleanCP, mode: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where each entry of a mode starts and stops: times that increase, else positions (integers)."""
    given = None if W.labels is None or W.labels.dims[mode] != "time" else W.labels.coords.get("time")
    is_known = given is not None and given.dtype.kind in "fiu" and len(given) > 1
    times = np.zeros(2) if given is None or not is_known else given.astype(float)
    steps = np.diff(times)
    step = np.median(steps)
    if not step > 0 or not np.isfinite(steps).all():
        return np.arange(W.shape[mode]), np.arange(1, W.shape[mode] + 1)
    return times, times + np.append(np.where(steps > GAP * step, step, steps), step)


def breaks_of(W: BooleanCP, mode: int) -> np.ndarray:
    """Return True where an entry of a mode and the next do not follow each other: a gap, or another segment."""
    starts, stops = edges_of(W, mode)
    dim, segment = (W.labels or Labels(())).extra.get("segment", ("", np.zeros(0)))
    is_new = segment[1:] != segment[:-1] if dim == mode_names(W)[mode] else np.zeros(len(starts) - 1, dtype=bool)
    return is_new | (starts[1:] > stops[:-1]) | (starts[1:] < starts[:-1])


def runs(W: BooleanCP, k: int) -> list[tuple[int, int]]:
    """Return the first and last entry of each stretch in which an atom is on."""
    z, breaks = W.atoms[k].z, breaks_of(W, W.atoms[k].mode)
    firsts = np.flatnonzero(z & np.append(True, ~z[:-1] | breaks))
    lasts = np.flatnonzero(z & np.append(~z[1:] | breaks, True))
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def condition_column(W: BooleanCP, k: int, by: str) -> np.ndarray:
    """Return a coordinate of the entries along the Boolean mode of an atom, as text."""
    name, extra = mode_names(W)[W.atoms[k].mode], (W.labels or Labels(())).extra
    known = {column: values for column, (dim, values) in extra.items() if dim == name}
    if by not in known:
        raise ValueError(f"Mode {name} has no coordinate {by!r} to count by; it has {', '.join(known) or 'none'}.")
    return known[by].astype(str)
