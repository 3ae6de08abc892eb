"""A decomposition as named arrays or as an xarray Dataset, and back: files and checkpoints hold nothing else."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from numbers import Integral
from typing import Any

import numpy as np

from boolcp.extras import load_extra
from boolcp.result.atom import Atom
from boolcp.result.atoms import BooleanCP
from boolcp.result.deviance import Deviance
from boolcp.result.labels import Labels, atom_table, mode_names, plain_values
from boolcp.result.trust import Trust, log_odds

PREFIX = "boolcp_"
LARGEST_CERTIFICATE = 1 + 1e-6  # a share of a bound, up to rounding
BIT_PARTS = {"rise": "bit_rise", "share": "bit_share"}  # parts of Trust with one vector for each atom
BY_MODE = ("factor", "undetermined", "bit_confidence", *BIT_PARTS.values())  # names that end in a mode
ATOM, TERM, OTHER = "\0atom", "\0term", "\0other_atom"  # dimensions of a Dataset; the tensor has no such names

Arrays = dict[str, np.ndarray]


def to_arrays(W: BooleanCP) -> Arrays:
    """Return a decomposition, without its labels, as arrays by name; `from_arrays` restores it exactly.

    Each atom has as many columns in `factor_<n>` as its rank. A block atom (rank 0) has one, its Boolean vector, which
    is nan along the other modes, and its real part is `block_<k>`.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.result.encode import from_arrays, to_arrays
    >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
    >>> arrays = to_arrays(truth)
    >>> arrays["factor_0"].shape, bool((from_arrays(arrays).to_tensor() == truth.to_tensor()).all())
    ((8, 2), True)
    """
    arrays = {
        "shape": np.array(W.shape, dtype=int),
        "weight": np.asarray(W.weights),
        "certificate": np.array([atom.certificate for atom in W.atoms], dtype=float),
        "boolean_mode_index": W.boolean_mode,
        "rank": np.array([atom.rank or 0 for atom in W.atoms], dtype=int),
    }
    for n, d in enumerate(W.shape):
        arrays[f"factor_{n}"] = np.hstack([np.zeros((d, 0)), *(_columns(atom, n, d) for atom in W.atoms)])
    arrays |= {f"block_{k}": np.asarray(atom.block) for k, atom in enumerate(W.atoms) if atom.block is not None}
    arrays |= {f"undetermined_{n}": np.asarray(known, dtype=bool) for n, known in (W.undetermined or {}).items()}
    for name in ("data_norm2", "data_inner", "data_gram", "mean"):
        if getattr(W, name, None) is not None:
            arrays[name] = np.asarray(getattr(W, name))
    if getattr(W, "parameters", None) is not None:
        arrays["parameters"] = np.array(json.dumps(W.parameters, default=to_plain))  # type: ignore[attr-defined]
    for part, known in (("trust", W.trust), ("deviance", W.deviance)):
        for field in () if known is None else fields(known):
            value = getattr(known, field.name)
            if field.name in BIT_PARTS and value is not None:
                arrays |= _bit_matrices(W, BIT_PARTS[field.name], value)
            elif value is not None:
                arrays[f"{part}_{field.name}"] = np.asarray(value)
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray]) -> BooleanCP:
    """Return the decomposition of `to_arrays`; raise a ValueError if the arrays do not fit together."""
    shape = tuple(int(d) for d in _take(arrays, "shape", (None,), "iu"))
    weights = _take(arrays, "weight", (None,), "f")
    K = len(weights)
    ranks, modes = _take(arrays, "rank", (K,), "iu"), _take(arrays, "boolean_mode_index", (K,), "iu")
    if not (np.all(ranks >= 0) and np.all((modes >= 0) & (modes < len(shape)))):
        raise ValueError(f"an atom has rank {ranks.min()} or lies along mode {modes.min()} or {modes.max()}")
    certificates = _take(arrays, "certificate", (K,), "f", is_finite=False)
    if np.any((certificates < 0) | (certificates > LARGEST_CERTIFICATE)):
        raise ValueError("a certificate is not between 0 and 1")
    ends = np.cumsum(np.maximum(ranks, 1), dtype=int)
    matrices = [
        _take(arrays, f"factor_{n}", (d, int(max(ends, default=0))), "f", is_finite=False) for n, d in enumerate(shape)
    ]
    atoms = []
    for k, (n, rank) in enumerate(zip(modes.tolist(), ranks.tolist(), strict=True)):
        others = [m for m in range(len(shape)) if m != n]
        own = slice(ends[k] - max(rank, 1), ends[k])
        real: dict[str, Any] = {"factors": tuple(np.ascontiguousarray(matrices[m][:, own]) for m in others)}
        if rank == 0:
            real = {"block": _take(arrays, f"block_{k}", tuple(shape[m] for m in others), "f")}
        elif not all(np.isfinite(A).all() for A in real["factors"]):
            raise ValueError(f"the real part of atom {k} must be finite numbers")
        atoms.append(Atom(n, matrices[n][:, own.start], **real, certificate=float(certificates[k])))
        if not atoms[-1].n_ones:
            raise ValueError(f"atom {k} has no entry that is on")
    known: dict[str, Any] = {
        "data_norm2": _take(arrays, "data_norm2", (), "fiu", None),
        "data_inner": _take(arrays, "data_inner", (K,), "f", None),
        "data_gram": _take(arrays, "data_gram", (K, K), "f", None),
        "mean": _take(arrays, "mean", None, "f", None),
        "parameters": json.loads(str(arrays["parameters"])) if "parameters" in arrays else None,
    }
    if known["data_norm2"] is not None:
        known["data_norm2"] = float(known["data_norm2"])
    marks = {n: _take(arrays, f"undetermined_{n}", (d,), "biu", None) for n, d in enumerate(shape)}
    known["undetermined"] = {n: mark.astype(bool) for n, mark in marks.items() if mark is not None} or None
    known["trust"] = _unpack(Trust, arrays, "trust", shape, modes)
    known["deviance"] = _unpack(Deviance, arrays, "deviance", shape, modes)
    names = {field.name for field in fields(BooleanCP)}
    return BooleanCP(shape, tuple(atoms), weights, **{name: value for name, value in known.items() if name in names})


def _columns(atom: Atom, mode: int, size: int) -> np.ndarray:
    """Return the columns of one atom along a mode, (d_n, rank); nan where a block atom has none."""
    if atom.factors is not None:
        return atom.columns(mode)
    return atom.z[:, None].astype(float) if mode == atom.mode else np.full((size, 1), np.nan)


def _bit_matrices(W: BooleanCP, name: str, columns: Any) -> Arrays:
    """Return one vector for each atom as matrices (d_n, K) by Boolean mode, nan for atoms that are real there."""
    matrices = {}
    for n, members in W.members.items():
        matrices[f"{name}_{n}"] = np.full((W.shape[n], W.n_atoms), np.nan)
        for k in members:
            matrices[f"{name}_{n}"][:, k] = columns[k]
    return matrices


def _unpack(kind: Any, arrays: Mapping[str, np.ndarray], part: str, shape: tuple[int, ...], modes: np.ndarray) -> Any:
    """Return the Trust or Deviance among arrays, None if there is none."""
    known: dict[str, Any] = {}
    for field in fields(kind):
        name = f"{part}_{field.name}"
        if field.name in BIT_PARTS:
            named = [(f"{BIT_PARTS[field.name]}_{n}", shape[n]) for n in modes.tolist()]
            if named and all(full in arrays for full, _ in named):
                columns = [
                    _take(arrays, full, (d, len(modes)), "f", is_finite=False)[:, k]
                    for k, (full, d) in enumerate(named)
                ]
                if not np.isfinite(np.concatenate(columns)).all():
                    raise ValueError(f"the {field.name} of its bits must be finite numbers")
                known[field.name] = tuple(columns)
        elif name in arrays:
            value = np.asarray(arrays[name])
            known[field.name] = value.item() if value.ndim == 0 else _take(arrays, name, (len(modes),), "fiub")
    return kind(**known) if any(name.startswith(f"{part}_") for name in arrays) else None


def _take(
    arrays: Mapping[str, np.ndarray], name: str, shape: Any, kinds: str, *default: None, is_finite: bool = True
) -> Any:
    """Return an array that has this shape (None: any size) and one of these kinds of numbers."""
    if name not in arrays:
        if default:
            return default[0]
        raise ValueError(f"it has no {name}")
    values = np.asarray(arrays[name])
    is_fitting = shape is None or (
        len(shape) == values.ndim and all(d in (None, m) for d, m in zip(shape, values.shape, strict=True))
    )
    if not is_fitting or values.dtype.kind not in kinds:
        raise ValueError(f"{name} is an array {values.shape} of {values.dtype}")
    if is_finite and not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite numbers")
    return values


def to_xarray(W: BooleanCP) -> Any:
    """Return a decomposition as an xarray Dataset with the dims and coordinates of its tensor.

    It holds the arrays of `to_arrays`, with the names of the modes for their numbers and single values as attributes,
    and for each atom `boolean_mode`, `n_ones`, `verdict` and, after a fit, `alone` and `unique` (shares of variance)
    and `bit_confidence_<mode>`, the probability that each bit is right. Boolean columns are exactly 0 and 1. Atoms of
    rank one have one column each, along `atom`; otherwise columns run along `term`, and `term_atom` is the atom of
    each. Entries that no observed entry of the tensor determines are nan. If a mode or coordinate of the tensor has
    one of these names, all of them begin with the attribute `prefix`: `boolcp_weight`, ..
    """
    xarray = load_extra("xarray", "labels")
    dims, arrays = mode_names(W), to_arrays(W)
    if log_odds(W) is not None:
        arrays |= _bit_matrices(W, "bit_confidence", W.bit_confidence())
    ranks = np.maximum(arrays.pop("rank"), 1)
    column_dim = ATOM if np.all(ranks == 1) else TERM
    for n, known in (W.undetermined or {}).items():
        arrays[f"factor_{n}"][np.ix_(known, np.repeat(W.boolean_mode != n, ranks))] = np.nan
    variables: dict[str, Any] = {"rank": (ATOM, np.array([atom.rank or 0 for atom in W.atoms], dtype=int))}
    variables |= {"term_atom": (TERM, np.repeat(np.arange(W.n_atoms), ranks))} if column_dim == TERM else {}
    attrs: dict[str, Any] = {"dims": json.dumps(dims), "is_labelled": int(W.labels is not None)}
    for name, values in list(arrays.items())[1:]:  # the first is the shape
        kind, _, number = name.rpartition("_")
        if kind in BY_MODE:
            along = {"factor": (column_dim,), "undetermined": ()}.get(kind, (ATOM,))
            variables[f"{kind}_{dims[int(number)]}"] = (dims[int(number)], *along), values
        elif kind == "block":
            variables[name] = tuple(dim for n, dim in enumerate(dims) if n != W.atoms[int(number)].mode), values
        elif name == "mean":
            variables[name] = _mean_dims(W, dims, values.shape), values
        elif values.ndim:
            variables[name] = (ATOM, OTHER)[: values.ndim], values
        else:
            attrs[name] = int(values) if values.dtype.kind == "b" else values.item()
    variables |= {name: (ATOM, values) for name, values in atom_table(W).items()}
    prefix = _prefix(W.labels, {*variables, *(mark[1:] for mark in (ATOM, TERM, OTHER))})
    named = {
        f"{prefix}{name}": (
            [dim.replace("\0", prefix) for dim in ([along] if isinstance(along, str) else along)],
            values,
        )
        for name, (along, values) in variables.items()
    }
    if W.labels is not None:
        attrs |= {"tensor_name": W.labels.name or "", "tensor_unit": W.labels.value_unit or ""}
    coords = {f"{prefix}atom": np.arange(W.n_atoms)} | _coords(W.labels)
    return xarray.Dataset(named, coords, attrs | {"prefix": prefix})


def from_xarray(dataset: Any) -> BooleanCP:
    """Return the decomposition of the Dataset that `to_xarray` made."""
    dims = tuple(json.loads(attribute(dataset, "dims", str)))
    if not dims or not all(isinstance(dim, str) and dim in dataset.sizes for dim in dims):
        raise ValueError(f"its modes are {dims}")
    prefix = attribute(dataset, "prefix", str)
    arrays = {"shape": np.array([dataset.sizes[dim] for dim in dims])}
    arrays |= {name: np.asarray(value) for name, value in dataset.attrs.items()}
    own = {str(name).removeprefix(prefix): v for name, v in dataset.data_vars.items() if str(name).startswith(prefix)}
    by_mode = {f"{kind}_{dim}": f"{kind}_{n}" for n, dim in enumerate(dims) for kind in BY_MODE}
    arrays |= {by_mode.get(name, name): variable.values for name, variable in own.items()}
    for n in range(len(dims)):
        if f"undetermined_{n}" in arrays and f"factor_{n}" in arrays:  # nan in the Dataset
            rows = arrays[f"undetermined_{n}"].astype(bool)
            arrays[f"factor_{n}"] = np.where(rows[:, None], np.nan_to_num(arrays[f"factor_{n}"]), arrays[f"factor_{n}"])
    W = from_arrays(arrays)
    return replace(W, labels=_labels(dataset, dims)) if attribute(dataset, "is_labelled", Integral) else W


def attribute(dataset: Any, name: str, kind: Any) -> Any:
    """Return an attribute of a Dataset, which must be of a type."""
    value = dataset.attrs.get(name)
    if not isinstance(value, kind):
        raise ValueError(f"its attribute {name} is {'missing' if value is None else str(value)[:40]}")
    return value


def _mean_dims(W: BooleanCP, dims: tuple[str, ...], shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the modes of the mean: all but the Boolean one if its shape says so, else names of its own."""
    mode = int(W.boolean_mode[0]) if W.n_atoms else -1
    rest = tuple(n for n in range(W.ndim) if n != mode)
    is_plain = shape == tuple(W.shape[n] for n in rest)
    return tuple(dims[n] for n in rest) if is_plain else tuple(f"\0mean_{n}" for n in range(len(shape)))


def _prefix(labels: Labels | None, own: set[str]) -> str:
    """Return the prefix of the names in a Dataset: empty, unless the tensor uses one of them."""
    names = set() if labels is None else {*labels.dims, *labels.coords, *labels.extra}
    if not names & own:
        return ""
    prefix = PREFIX
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def _coords(labels: Labels | None) -> dict[str, Any]:
    """Return the coordinates of Labels in the form that xarray accepts."""
    if labels is None:
        return {}
    along = {name: (name, values) for name, values in labels.coords.items()} | dict(labels.extra)
    attrs = {name: {"units": unit} for name, unit in labels.units.items()}
    return {name: (dim, values, attrs.get(name, {})) for name, (dim, values) in along.items()}


def _labels(dataset: Any, dims: tuple[str, ...]) -> Labels:
    """Return the Labels of a Dataset."""
    coords = {name: c for name, c in dataset.coords.items() if c.ndim == 1 and c.dims[0] in dims}
    along = {dim: plain_values(coords[dim].values) for dim in dims if dim in coords}
    extra = {str(n): (str(c.dims[0]), plain_values(c.values)) for n, c in coords.items() if n not in dims}
    units = {str(name): str(c.attrs["units"]) for name, c in coords.items() if "units" in c.attrs}
    name, unit = (attribute(dataset, f"tensor_{part}", str) for part in ("name", "unit"))
    return Labels(dims, along, units, extra, name or None, unit or None)


def to_plain(value: Any) -> Any:
    """Return a number, list or text for a value that JSON does not know."""
    if isinstance(value, np.generic):
        return value.item()
    return value.tolist() if isinstance(value, np.ndarray) else repr(value)
