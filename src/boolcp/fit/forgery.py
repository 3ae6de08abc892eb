"""Checks of a checkpoint before a fit resumes from it: a file may be damaged or malicious.

Each part of a value must have the type that its class declares. Arrays must hold numbers, results must be possible
results of a fit, and the columns of a sum of atoms must fit together.
"""

from collections.abc import Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from boolcp.fit.relax import Sweeps
from boolcp.fit.starts import ObservedSearch, Search
from boolcp.fit.state import STOP_REASONS, Pursuit, State
from boolcp.fit.uncertain import LastSearch
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.columns import Columns
from boolcp.result.labels import from_arrays, to_arrays
from boolcp.storage import TuckerTensor

# what stages lead to, where it is one thing
KINDS: dict[str, Any] = {"pursuit": Pursuit | tuple, "path": Pursuit, "start": BooleanCP, "search": Search}
KINDS |= {"polish": Sweeps, "ridge": Sweeps, "observed": ObservedSearch, "last": LastSearch}
KINDS |= {"core": TuckerTensor}


def check_header(header: Any) -> None:
    """Raise a ValueError if the header of a checkpoint lacks what a resumed fit reads from it."""
    for name in ("parameters", "data", "random_state"):
        if not isinstance(header.get(name), dict):
            raise ValueError(f"it has no {name}")
    if "random_state" not in header["parameters"]:
        raise ValueError("its parameters have no random_state")
    shape = header["data"].get("shape")
    if not isinstance(shape, list):
        raise ValueError("its data have no shape")
    for name in ("boolean_modes", "nonnegative"):
        modes = header["parameters"].get(name)
        for mode in modes if isinstance(modes, list) else [] if modes is None or isinstance(modes, bool) else [modes]:
            if not (isinstance(mode, str) or (is_of(mode, int) and -len(shape) <= mode < len(shape))):
                raise ValueError(f"its data have no mode {str(mode)[:40]!r}")


def check_place(state: State, names: Sequence[str]) -> None:
    """Raise a ValueError if a state is not one that the stages of a plan lead to."""
    stage, done = state.stage, state.done
    due = {"result"} if stage == len(names) else set(names[:stage])  # and what a warm start had before the first stage
    if not 0 <= stage <= len(names) or set(done) & set(names) != due:
        raise ValueError(f"it is at stage {stage} of {len(names)} after {', '.join(done) or 'none'}")
    if stage == len(names):
        match done["result"]:
            case (Pursuit(stop_reason=reason), BooleanCP()) if reason in STOP_REASONS:
                return
        raise ValueError("it has no result of a fit")
    for name, value in (done | {names[stage]: state.here}).items():
        if value is not None and not isinstance(value, KINDS.get(name, object)):
            raise ValueError(f"the outcome of its stage {name} is a {type(value).__name__}")


def check_value(value: Any) -> None:
    """Raise a ValueError if a value, or a part of it, is not what its class declares."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub":
            raise ValueError(f"an array holds {value.dtype}, not numbers")
    elif isinstance(value, dict):
        for part in value.values():
            check_value(part)
    elif is_dataclass(value) or hasattr(value, "_fields"):
        check_parts(value)
    elif isinstance(value, list | tuple):
        for part in value:
            check_value(part)


def check_parts(value: Any) -> None:
    """Raise a ValueError if a part of a dataclass or named tuple is not what its annotation says."""
    if isinstance(value, BooleanCP):
        table, header = to_arrays(value)
        from_arrays({name: values for name, (_, values) in table.items()}, header)
    if isinstance(value, Columns):
        check_columns(value)
    if isinstance(value, Search) and value.best is not None and not value.best.n_atoms:
        raise ValueError("its search found no atom")
    for name, hint in () if isinstance(value, BooleanCP | Atom) else get_type_hints(type(value)).items():
        part = getattr(value, name)
        if not is_of(part, hint):
            raise ValueError(f"the part {name} of its {type(value).__name__} is {str(part)[:40]!r}")
        check_value(part)


def check_sizes(value: Any, shape: tuple[int, ...]) -> None:
    """Raise a ValueError if the atoms or columns in a value are not those of a tensor with this shape."""
    if isinstance(value, BooleanCP | Columns):
        found = value.shape if isinstance(value, BooleanCP) else tuple(map(len, value.matrices))
        if found != shape:
            raise ValueError(f"it has atoms of the shape {found}, not {shape}")
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            check_sizes(part, shape)
    elif is_dataclass(value):
        for name in get_type_hints(type(value)):
            check_sizes(getattr(value, name), shape)


def check_finite(what: str, values: Any) -> None:
    """Raise a ValueError unless all values are finite numbers."""
    if np.asarray(values).dtype.kind not in "fiub" or not np.isfinite(values).all():
        raise ValueError(f"{what} must be finite numbers")


def check_columns(W: Columns) -> None:
    """Raise a ValueError if matrices, owners and Boolean modes do not fit together."""
    K, R, N = len(W.boolean_mode), len(W.owner), len(W.matrices)
    if not (((0 <= W.boolean_mode) & (W.boolean_mode < N)).all() and ((0 <= W.owner) & (W.owner < K)).all()):
        raise ValueError(f"its columns do not belong to {K} atoms along {N} modes")
    if len(set(W.owner.tolist())) < K:
        raise ValueError(f"one of its {K} atoms has no column")
    for n, A in enumerate(W.matrices):
        check_finite("the columns", A)
        if A.ndim != 2 or A.shape[1] != R:
            raise ValueError(f"its columns along mode {n} are {A.shape}, not {R}")
    with np.errstate(over="ignore", invalid="ignore"):  # numbers whose squares are infinite
        check_finite("the sizes of atoms", W.sizes())


def is_of(value: Any, hint: Any) -> bool:
    """Return True if a value is of an annotated type, as far as that is a type, a union or a tuple of one type."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(is_of(value, kind) for kind in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(is_of(item, inner[0]) for item in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    kind = origin or hint
    return isinstance(value, kind) if isinstance(kind, type) else True
