"""A decomposition as a Dataset of named arrays, which files hold, and as a table with one row for each atom."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels, coordinates, labels_of, mode_names
from boolcp.result.noise import Noise
from boolcp.result.summary import has_shares
from boolcp.result.trust import ATOMS, BITS, Deviance, Trust, sure_share
from boolcp.system import load_extra

PREFIX = "boolcp_"


def to_dataframe(W: BooleanCP) -> Any:
    """Return one row for each atom as a pandas DataFrame: mode, ones, rank, weight, shares of variance, trust."""
    pandas = load_extra("pandas", "files")
    table, ranks = atom_table(W), [atom.rank or "block" for atom in W.atoms]
    sizes = [W.shape[atom.mode] for atom in W.atoms]
    columns = {"boolean_mode": table.pop("boolean_mode"), "n_ones": table.pop("n_ones"), "size": sizes, "rank": ranks}
    return pandas.DataFrame(columns | table, index=pandas.RangeIndex(W.n_atoms, name="atom"))


def atom_table(W: BooleanCP) -> dict[str, np.ndarray]:
    """Return the properties of each atom: arrays (K,) by name, the verdict in words last."""
    from boolcp.trust.degeneracy import degeneracy
    from boolcp.trust.verdict import verdicts

    dims, known, found = mode_names(W), W.trust or Trust(), W.on_off
    table = {
        "weight": np.asarray(W.weights),
        "boolean_mode": np.array([dims[atom.mode] for atom in W.atoms], dtype=str),
        "n_ones": np.array([atom.n_ones for atom in W.atoms], dtype=int),
        "certificate": np.array([atom.certificate for atom in W.atoms], dtype=float),
        "alone": W.explained_alone() if has_shares(W) else None,
        "unique": W.explained_unique() if has_shares(W) else None,
        "sure_bits": sure_share(W),
        "replication": known.replication,
        "on_off": known.on_off,
        "mean_off": found and found.low,
        "mean_on": found and found.high,
        "d_prime": found and found.d_prime,
        "p_value": known.p_value,
        "p_adjusted": known.p_adjusted,
        "degeneracy": degeneracy(W).score,
        "verdict": np.array([verdict.text for verdict in verdicts(W)], dtype=str),
    }
    return {name: values for name, values in table.items() if values is not None}


def to_xarray(W: BooleanCP) -> Any:
    """Return a decomposition as an xarray Dataset with the dims and coordinates of its tensor.

    Each atom has `weight`, `rank` (0 for a block), `boolean_mode`, `n_ones`, `certificate`, `verdict` and, after a fit,
    `alone` and `unique` (shares of variance). `factor_<mode>` holds the columns of all atoms, exactly 0 and 1 along the
    Boolean mode. Atoms of rank one have one column each, along `atom`; otherwise columns run along `term`, and
    `term_atom` is the atom of each. The real part of a block is `block_<k>`. Its columns are nan, as is every entry
    that no observed entry of the tensor determines. `bit_confidence_<mode>` is the probability that each bit is right.
    If a mode or coordinate of the tensor has one of these names, all of them begin with the attribute `prefix`:
    `boolcp_weight`, ..
    """
    xarray = load_extra("xarray", "files")
    dims, labels = mode_names(W), W.labels or Labels(mode_names(W))
    ranks = np.array([atom.rank or 0 for atom in W.atoms], dtype=int)
    terms = np.repeat(np.arange(W.n_atoms), np.maximum(ranks, 1))
    by_atom = {"boolean_mode_index": W.boolean_mode, "rank": ranks, "data_inner": W.data_inner} | atom_table(W)
    bits: dict[str, Any] = {}
    table: dict[str, Any] = {}  # {name: (axes, array)}, where a number is a mode
    header: dict[str, Any] = {"shape": W.shape, "data_norm2": W.data_norm2, "trust": None, "deviance": None}
    header["parameters"] = None if W.parameters is None else dict(W.parameters)
    for n, d in enumerate(W.shape):
        A = np.full((d, len(terms)), np.nan)
        for k, atom in enumerate(W.atoms):
            if atom.factors is not None or atom.mode == n:
                A[:, terms == k] = atom.z[:, None] if atom.mode == n else atom.columns(n)
        if W.undetermined and n in W.undetermined:
            table[f"undetermined_{dims[n]}"] = (n,), np.asarray(W.undetermined[n], dtype=bool)
            A[np.ix_(W.undetermined[n], (W.boolean_mode != n)[terms])] = np.nan
        table[f"factor_{dims[n]}"] = (n, "atom" if len(terms) == W.n_atoms else "term"), A
    for k, atom in enumerate(W.atoms):
        if atom.block is not None:
            table[f"block_{k}"] = tuple(n for n in range(W.ndim) if n != atom.mode), atom.block
    if len(terms) > W.n_atoms:
        table["term_atom"] = ("term",), terms
    if W.data_gram is not None:
        table["data_gram"] = ("atom", "other_atom"), W.data_gram
    if W.mean is not None:  # one long along its Boolean mode
        table["mean"] = tuple(n if size == W.shape[n] else "one" for n, size in enumerate(W.mean.shape)), W.mean
    if W.trust is not None:
        known = {f.name: getattr(W.trust, f.name) for f in fields(W.trust)}
        bits |= {"bit_confidence": W.bit_confidence()} if W.trust.odds is not None else {}
        bits |= {f"bit_{name}": value for name in BITS if (value := known.pop(name)) is not None}
        by_atom |= {name: known.pop(name) for name in ATOMS}
        header["trust"] = known
    if W.noise is not None:
        table |= {f"noise_{dims[n]}": ((n, f"other_{dims[n]}"), S) for n, S in W.noise.covariances.items()}
    if W.deviance is not None:
        header["deviance"] = asdict(W.deviance) | {"without": np.asarray(W.deviance.without).tolist()}
    for name, columns in bits.items():
        for k, atom in enumerate(W.atoms):  # nan for atoms that are real along the mode
            empty = (atom.mode, "atom"), np.full((len(atom.z), W.n_atoms), np.nan)
            table.setdefault(f"{name}_{dims[atom.mode]}", empty)[1][:, k] = columns[k]
    known = {name: np.asarray(values) for name, values in by_atom.items() if values is not None}
    table |= {name: (("atom", f"{name}_column")[: values.ndim], values) for name, values in known.items()}
    used, prefix = {*labels.dims, *labels.coords, *labels.extra}, ""
    while used & {*table, "atom", "term", "other_atom"} if not prefix else any(n.startswith(prefix) for n in used):
        prefix = f"{prefix}_" if prefix else PREFIX
    variables = {
        prefix + name: ([f"{prefix}{axis}" if isinstance(axis, str) else dims[axis] for axis in axes], values)
        for name, (axes, values) in table.items()
    }
    header |= {"dims": dims, "is_labelled": W.labels is not None, "name": labels.name, "unit": labels.value_unit}
    attrs = {"prefix": prefix, "header": json.dumps(header, default=to_plain)}
    return xarray.Dataset(variables, coordinates(labels) | {f"{prefix}atom": np.arange(W.n_atoms)}, attrs)


def from_xarray(dataset: Any) -> BooleanCP:
    """Return the decomposition of the Dataset that `to_xarray` made; raise an error if it is damaged."""
    header, prefix = json.loads(dataset.attrs["header"]), str(dataset.attrs["prefix"])
    dims, shape = tuple(header["dims"]), tuple(int(d) for d in header["shape"])
    if not dims or len(dims) != len(shape) or not all(isinstance(dim, str) and dim in dataset.sizes for dim in dims):
        raise ValueError(f"its modes are {dims}")
    own = {str(name).removeprefix(prefix): v for name, v in dataset.data_vars.items() if str(name).startswith(prefix)}
    arrays: dict[str, np.ndarray] = {name: variable.values for name, variable in own.items()}
    K = len(np.atleast_1d(arrays.get("weight", ())))
    weights = _take(arrays, "weight", (K,), "f")
    ranks, modes = _take(arrays, "rank", (K,), "iu"), _take(arrays, "boolean_mode_index", (K,), "iu").tolist()
    certificates = _take(arrays, "certificate", (K,), "f", is_finite=False).tolist()
    if K and not (min(ranks) >= 0 and 0 <= min(modes) and max(modes) < len(shape)):
        raise ValueError(f"an atom has rank {min(ranks)} or lies along mode {min(modes)} or {max(modes)}")
    ends = np.cumsum(np.maximum(ranks, 1), dtype=int)
    undetermined = {}
    for n, (dim, d) in enumerate(zip(dims, shape, strict=True)):
        A = _take(arrays, f"factor_{dim}", (d, int(ends[-1]) if K else 0), "f", is_finite=False)
        if f"undetermined_{dim}" in arrays:  # nan in the Dataset
            rows = undetermined[n] = _take(arrays, f"undetermined_{dim}", (d,), "biu") != 0
            arrays[f"factor_{dim}"] = np.where(rows[:, None], np.nan_to_num(A), A)
    atoms: list[Atom] = []
    for k, (n, rank, stop, certificate) in enumerate(zip(modes, ranks.tolist(), ends, certificates, strict=True)):
        columns = {name: arrays[name][:, stop - max(rank, 1) : stop] for name in (f"factor_{dim}" for dim in dims)}
        z, others = columns.pop(f"factor_{dims[n]}")[:, 0], [d for m, d in enumerate(shape) if m != n]
        real: dict[str, Any] = {"block": None if rank else _take(arrays, f"block_{k}", tuple(others), "f")}
        if rank:
            real["factors"] = [np.ascontiguousarray(_take(columns, name, None, "f")) for name in columns]
        atoms.append(Atom(n, z, **real, certificate=certificate))
        if not atoms[-1].n_ones:
            raise ValueError(f"atom {k} has no entry that is on")
    wanted = {"data_inner": (K,), "data_gram": (K, K), "mean": None}
    parts: dict[str, Any] = {name: _take(arrays, name, size, "f") for name, size in wanted.items() if name in arrays}
    if header["trust"] is not None:
        known = dict(header["trust"])
        if known["split_mode"] not in (None, *range(len(shape))):
            raise ValueError(f"split_mode is {known['split_mode']!r}, which is no mode")
        for name in ATOMS:
            if name in arrays:
                size = {"groups": (K, 4), "by_session": (K, arrays[name].shape[-1])}.get(name, (K,))
                found = _take(arrays, name, size, "fb", is_finite=False)
                known[name] = found.astype(bool) if name in ("stands_out", "has_runs") else found
        for name in BITS:
            if atoms and f"bit_{name}_{dims[modes[0]]}" in arrays:
                sizes = [(f"bit_{name}_{dims[n]}", (shape[n], K)) for n in modes]
                known[name] = tuple(_take(arrays, *size, "f", is_finite=False)[:, k] for k, size in enumerate(sizes))
                if name == "odds" and not all(np.isfinite(column).all() for column in known[name]):
                    raise ValueError("bit_odds must be finite numbers")
        known["correlation"] = tuple(map(float, known["correlation"]))
        parts["trust"] = Trust(**known)
    if header["deviance"] is not None:
        parts["deviance"] = Deviance(**header["deviance"] | {"without": np.array(header["deviance"]["without"], float)})
    noise = [n for n, dim in enumerate(dims) if f"noise_{dim}" in arrays]
    if noise:
        parts["noise"] = Noise({n: _take(arrays, f"noise_{dims[n]}", (shape[n],) * 2, "f") for n in noise})
    if header["is_labelled"]:
        parts["labels"] = labels_of(dataset.coords, dims, header["name"], header["unit"])
    norm2 = None if header["data_norm2"] is None else float(header["data_norm2"])
    parts |= {"parameters": header["parameters"], "undetermined": undetermined or None}
    return BooleanCP(shape, atoms, weights, data_norm2=norm2, **parts)


def to_plain(value: Any) -> Any:
    """Return a number, list or text for a value that JSON does not know."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else repr(value)


def _take(arrays: Mapping[str, np.ndarray], name: str, shape: Any, kinds: str, *, is_finite: bool = True) -> np.ndarray:
    """Return an array that has this shape (None: any) and one of these kinds of numbers."""
    if name not in arrays:
        raise ValueError(f"it has no {name}")
    values = np.asarray(arrays[name])
    if (shape is not None and values.shape != shape) or values.dtype.kind not in kinds:
        raise ValueError(f"{name} is an array {values.shape} of {values.dtype}")
    if is_finite and not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite numbers")
    return values
