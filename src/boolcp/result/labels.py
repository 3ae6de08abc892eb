"""Names, coordinates and units of the modes: they travel beside the array, never through the algorithm."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp.checks import is_lazy
from boolcp.result.trust import Trust, log_odds, sure_share
from boolcp.system import load_extra

if TYPE_CHECKING:
    from boolcp.result.atoms import Atom, BooleanCP

UNWRITABLE = re.compile("[\0\ud800-\udfff]")
PREFIX = "boolcp_"


@dataclass(frozen=True, eq=False)
class Labels:
    """Names of the modes with, where known, the coordinates along them and their units.

    Parameters
    ----------
    dims : tuple of str
        One name for each mode.
    coords : mapping of str to ndarray
        Coordinates (d_n,) by the name of the mode; not every mode needs them.
    units : mapping of str to str
        Units of the coordinates, by the name of the mode or of the other coordinate.
    extra : mapping of str to (str, ndarray)
        Other coordinates along a mode by their own name, with the name of the mode: the area of each channel, say.
        Plots use three names: "x" and "y", the positions of electrodes, and "condition", the state or stimulus.
    name : str, optional
        The measured quantity.
    value_unit : str, optional
        Their unit.
    """

    dims: tuple[str, ...]
    coords: Mapping[str, np.ndarray] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, tuple[str, np.ndarray]] = field(default_factory=dict)
    name: str | None = None
    value_unit: str | None = None

    def __post_init__(self) -> None:
        if len(set(self.dims)) < len(self.dims):
            raise ValueError(f"Two modes have the same name ({', '.join(map(repr, self.dims))}): give each its own.")
        for what, text in self._texts():
            if UNWRITABLE.search(text):
                problem = "has a character that no file can hold (NUL or half of a surrogate pair)"
                raise ValueError(f"{str(text)!r}, {what}, {problem}: rename it.")

    def _texts(self) -> Iterator[tuple[str, str]]:
        """Yield every text of the labels, with a description."""
        yield from (("the name of a mode", dim) for dim in self.dims)
        yield from (("the name of a coordinate", name) for name in self.extra)
        yield from (("a unit", unit) for unit in (*self.units.values(), self.value_unit) if unit)
        yield "the name of the tensor", self.name or ""
        for name, values in (*self.coords.items(), *((name, found) for name, (_, found) in self.extra.items())):
            if np.asarray(values).dtype.kind in "UT":
                yield from ((f"a value of the coordinate {name!r}", value) for value in values)


def is_labelled(X: Any) -> bool:
    """Return True for an xarray DataArray, without importing xarray."""
    return type(X).__module__.startswith("xarray") and hasattr(type(X), "dims") and hasattr(type(X), "values")


def read_labels(X: Any) -> tuple[Any, Labels | None]:
    """Return the array of X and, for an xarray DataArray, its Labels, else None. A dask array stays lazy.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from boolcp.result.labels import read_labels
    >>> X = xr.DataArray(np.eye(2), {"channel": ["Fz", "Cz"]}, ("channel", "time"))
    >>> array, labels = read_labels(X)
    >>> labels.dims, [str(name) for name in labels.coords["channel"]]
    (('channel', 'time'), ['Fz', 'Cz'])
    """
    if type(X).__module__.startswith("xarray") and hasattr(type(X), "data_vars"):
        names = ", ".join(map(repr, X.data_vars)) or "none"
        raise TypeError(f"X is an xarray Dataset with several arrays ({names}): pass one of them, e.g. X[name].")
    if type(X).__module__.partition(".")[0] in ("zarr", "h5py") and not hasattr(X, "shape"):
        names = ", ".join(map(repr, X)) or "nothing"
        raise TypeError(f"X is a group of arrays ({names}), not an array: pass one of them, e.g. X[name].")
    if not is_labelled(X):
        return X, None
    dims = tuple(str(dim) for dim in X.dims)
    coords, units, extra = {}, {}, {}
    for name, coord in X.coords.items():
        name = str(name)
        if coord.ndim != 1:
            continue
        if name in dims:
            coords[name] = plain_values(coord.values)
        elif str(coord.dims[0]) in dims:
            extra[name] = str(coord.dims[0]), plain_values(coord.values)
        else:
            continue
        if "units" in coord.attrs:
            units[name] = str(coord.attrs["units"])
    name, unit = (None if text is None else str(text) for text in (X.name, X.attrs.get("units")))
    return (X.data if is_lazy(X.data) else X.values), Labels(dims, coords, units, extra, name, unit)


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


def to_dataframe(W: "BooleanCP") -> Any:
    """Return one row for each atom as a pandas DataFrame: mode, ones, rank, weight, shares of variance, trust."""
    pandas = load_extra("pandas", "labels")
    table = atom_table(W)
    ranks = ["block" if atom.rank is None else atom.rank for atom in W.atoms]
    sizes = [W.shape[atom.mode] for atom in W.atoms]
    columns = {"boolean_mode": table.pop("boolean_mode"), "n_ones": table.pop("n_ones"), "size": sizes, "rank": ranks}
    return pandas.DataFrame(columns | table, index=pandas.RangeIndex(W.n_atoms, name="atom"))


def atom_table(W: "BooleanCP") -> dict[str, np.ndarray]:
    """Return the properties of each atom: arrays (K,) by name."""
    dims = mode_names(W)
    table = {
        "weight": np.asarray(W.weights),
        "boolean_mode": np.array([dims[atom.mode] for atom in W.atoms], dtype=str),
        "n_ones": np.array([atom.n_ones for atom in W.atoms], dtype=int),
        "certificate": np.array([atom.certificate for atom in W.atoms], dtype=float),
    }
    if W.data_norm2 and W.data_inner is not None and W.n_atoms:
        table |= {"alone": W.explained_alone(), "unique": W.explained_unique()}
    return table | trust_table(W)


def trust_table(W: "BooleanCP") -> dict[str, np.ndarray]:
    """Return the measures of trust in each atom: arrays (K,) by name, the verdict in words last."""
    from boolcp.trust.degeneracy import degeneracy
    from boolcp.trust.verdict import verdicts

    known = W.trust or Trust()
    found = {
        "sure_bits": sure_share(W),
        "stability": known.stability,
        "p_value": known.p_value,
        "p_adjusted": known.p_adjusted,
        "degeneracy": degeneracy(W).score,
        "verdict": np.array([verdict.text for verdict in verdicts(W)], dtype=str),
    }
    return {name: values for name, values in found.items() if values is not None}


# A decomposition as named arrays with a header, and as a Dataset: files and checkpoints hold nothing else


def to_arrays(W: "BooleanCP") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a decomposition without labels as {name: (axes, array)}, and the rest as a header for JSON.

    Axes are numbers of modes, or "atom", "term", ... Each atom has as many columns in `factor_<n>` as its rank. A block
    (rank 0) has one, z, which is nan along the other modes, and its real part is `block_<k>`.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.result.labels import from_arrays, to_arrays
    >>> table, header = to_arrays(boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth)
    >>> from_arrays({name: values for name, (axes, values) in table.items()}, header).n_atoms
    2
    """
    ranks = np.array([atom.rank or 0 for atom in W.atoms], dtype=int)
    column = "atom" if np.all(ranks < 2) else "term"
    by_atom = {"weight": W.weights, "certificate": np.array([atom.certificate for atom in W.atoms], dtype=float)}
    by_atom |= {"boolean_mode_index": W.boolean_mode, "rank": ranks}
    table: dict[str, Any] = {}
    header: dict[str, Any] = {"shape": W.shape, "data_norm2": W.data_norm2, "trust": None, "deviance": None}
    for n, d in enumerate(W.shape):
        columns = [_columns(atom, n, d) for atom in W.atoms]
        table[f"factor_{n}"] = (n, column), np.hstack([np.zeros((d, 0)), *columns])
    for k, atom in enumerate(W.atoms):
        if atom.block is not None:
            table[f"block_{k}"] = tuple(n for n in range(W.ndim) if n != atom.mode), atom.block
    table |= {f"undetermined_{n}": ((n,), np.asarray(known, dtype=bool)) for n, known in (W.undetermined or {}).items()}
    if W.data_inner is not None:
        by_atom["data_inner"] = W.data_inner
    if W.data_gram is not None:
        table["data_gram"] = ("atom", "other_atom"), W.data_gram
    if (mean := getattr(W, "mean", None)) is not None:  # one long along its Boolean mode
        table["mean"] = tuple(n if size == W.shape[n] else "one" for n, size in enumerate(mean.shape)), mean
    if W.trust is not None:
        header["trust"] = known = {f.name: getattr(W.trust, f.name) for f in fields(W.trust)}
        for name in [name for name, value in known.items() if isinstance(value, tuple)]:
            table |= _bit_matrices(W, f"bit_{name}", known.pop(name))
        by_atom |= {name: known.pop(name) for name in list(known) if isinstance(known[name], np.ndarray)}
    if W.deviance is not None:
        header["deviance"] = asdict(W.deviance) | {"without": np.asarray(W.deviance.without).tolist()}
    return table | {name: (("atom",), np.asarray(values)) for name, values in by_atom.items()}, header


def from_arrays(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> "BooleanCP":
    """Return the decomposition of `to_arrays`; raise an error if the arrays do not fit together."""
    from boolcp.result.atoms import Atom, BooleanCP
    from boolcp.result.deviance import Deviance

    shape = tuple(int(d) for d in header["shape"])
    K = len(np.atleast_1d(arrays.get("weight", ())))
    weights = _take(arrays, "weight", (K,), "f")
    ranks, modes = _take(arrays, "rank", (K,), "iu"), _take(arrays, "boolean_mode_index", (K,), "iu")
    certificates = _take(arrays, "certificate", (K,), "f", is_finite=False)
    if not (np.all(ranks >= 0) and np.all((modes >= 0) & (modes < len(shape)))):
        raise ValueError(f"an atom has rank {ranks.min()} or lies along mode {modes.min()} or {modes.max()}")
    ends = np.cumsum(np.maximum(ranks, 1), dtype=int)
    sizes = [(d, int(ends[-1]) if K else 0) for d in shape]
    matrices = [_take(arrays, f"factor_{n}", size, "f", is_finite=False) for n, size in enumerate(sizes)]
    atoms: list[Atom] = []
    for n, rank, stop, certificate in zip(modes.tolist(), ranks.tolist(), ends, certificates.tolist(), strict=True):
        k, own = len(atoms), slice(stop - max(rank, 1), stop)
        others = [m for m in range(len(shape)) if m != n]
        columns = {f"factor_{m}": np.ascontiguousarray(matrices[m][:, own]) for m in others}
        if rank:
            factors = tuple(_take(columns, name, None, "f") for name in columns)
            atoms.append(Atom(n, matrices[n][:, own.start], factors, certificate=certificate))
        else:
            block = _take(arrays, f"block_{k}", tuple(shape[m] for m in others), "f")
            atoms.append(Atom(n, matrices[n][:, own.start], block=block, certificate=certificate))
        if not atoms[-1].n_ones:
            raise ValueError(f"atom {k} has no entry that is on")
    known = {"data_inner": (K,), "data_gram": (K, K), "mean": None}
    parts: dict[str, Any] = {name: _take(arrays, name, size, "f") for name, size in known.items() if name in arrays}
    marks = {n: f"undetermined_{n}" for n in range(len(shape)) if f"undetermined_{n}" in arrays}
    parts["undetermined"] = {n: _take(arrays, name, (shape[n],), "biu") != 0 for n, name in marks.items()} or None
    if header["trust"] is not None:
        parts["trust"] = _trust(arrays, header["trust"], shape, modes.tolist())
    if header["deviance"] is not None:
        parts["deviance"] = Deviance(**header["deviance"] | {"without": np.array(header["deviance"]["without"], float)})
    if header["data_norm2"] is not None:
        parts["data_norm2"] = float(header["data_norm2"])
    return BooleanCP(shape, tuple(atoms), weights, **parts)


def to_xarray(W: "BooleanCP") -> Any:
    """Return a decomposition as an xarray Dataset with the dims and coordinates of its tensor.

    It holds the arrays of `to_arrays`, with the names of the modes for their numbers, and for each atom `boolean_mode`,
    `n_ones`, `verdict` and, after a fit, `alone` and `unique` (shares of variance) and `bit_confidence_<mode>`, the
    probability that each bit is right. Boolean columns are exactly 0 and 1. Atoms of rank one have one column each,
    along `atom`; otherwise columns run along `term`, and `term_atom` is the atom of each. Entries that no observed
    entry of the tensor determines are nan. If a mode or coordinate of the tensor has one of these names, all of them
    begin with the attribute `prefix`: `boolcp_weight`, ..
    """
    xarray = load_extra("xarray", "labels")
    dims, (table, header) = mode_names(W), to_arrays(W)
    terms = np.repeat(np.arange(W.n_atoms), np.maximum(table["rank"][1], 1))
    for n, known in (W.undetermined or {}).items():
        table[f"factor_{n}"][1][np.ix_(known, (W.boolean_mode != n)[terms])] = np.nan
    if log_odds(W) is not None:
        table |= _bit_matrices(W, "bit_confidence", W.bit_confidence())
    table |= {name: (("atom",), values) for name, values in atom_table(W).items()}
    table |= {"term_atom": (("term",), terms)} if len(terms) > W.n_atoms else {}
    names = _by_mode(dims)
    labels, own = W.labels or Labels(dims), {*(names.get(name, name) for name in table), "atom", "term", "other_atom"}
    used, prefix = {*labels.dims, *labels.coords, *labels.extra}, ""
    while used & own if not prefix else any(name.startswith(prefix) for name in used):
        prefix = f"{prefix}_" if prefix else PREFIX
    variables = {
        prefix + names.get(name, name): (
            [f"{prefix}{axis}" if isinstance(axis, str) else dims[axis] for axis in axes],
            v,
        )
        for name, (axes, v) in table.items()
    }
    along = {name: (name, values) for name, values in labels.coords.items()} | dict(labels.extra)
    units = {name: {"units": unit} for name, unit in labels.units.items()}
    coords = {name: (dim, values, units.get(name, {})) for name, (dim, values) in along.items()}
    header |= {"dims": dims, "is_labelled": W.labels is not None, "name": labels.name, "unit": labels.value_unit}
    attrs = {"prefix": prefix, "header": json.dumps(header, default=to_plain)}
    return xarray.Dataset(variables, coords | {f"{prefix}atom": np.arange(W.n_atoms)}, attrs)


def from_xarray(dataset: Any) -> "BooleanCP":
    """Return the decomposition of the Dataset that `to_xarray` made; raise an error if it is damaged."""
    header, prefix = json.loads(dataset.attrs["header"]), str(dataset.attrs["prefix"])
    dims = tuple(header["dims"])
    if not dims or not all(isinstance(dim, str) and dim in dataset.sizes for dim in dims):
        raise ValueError(f"its modes are {dims}")
    numbered = {name: number for number, name in _by_mode(dims).items()}
    own = {str(name).removeprefix(prefix): v for name, v in dataset.data_vars.items() if str(name).startswith(prefix)}
    arrays = {numbered.get(name, name): variable.values for name, variable in own.items()}
    for n in range(len(dims)):
        if f"undetermined_{n}" in arrays and f"factor_{n}" in arrays:  # nan in the Dataset
            rows = arrays[f"undetermined_{n}"].astype(bool)[:, None]
            arrays[f"factor_{n}"] = np.where(rows, np.nan_to_num(arrays[f"factor_{n}"]), arrays[f"factor_{n}"])
    W = from_arrays(arrays, header)
    if not header["is_labelled"]:
        return W
    coords = {str(name): c for name, c in dataset.coords.items() if c.ndim == 1 and c.dims[0] in dims}
    along = {dim: plain_values(coords[dim].values) for dim in dims if dim in coords}
    extra = {name: (str(c.dims[0]), plain_values(c.values)) for name, c in coords.items() if name not in dims}
    units = {name: str(c.attrs["units"]) for name, c in coords.items() if "units" in c.attrs}
    return replace(W, labels=Labels(dims, along, units, extra, header["name"], header["unit"]))


def to_plain(value: Any) -> Any:
    """Return a number, list or text for a value that JSON does not know."""
    if isinstance(value, np.generic):
        return value.item()
    return value.tolist() if isinstance(value, np.ndarray) else repr(value)


def _by_mode(dims: tuple[str, ...]) -> dict[str, str]:
    """Return the names in a Dataset of the arrays whose name ends in the number of a mode."""
    kinds = ("factor", "undetermined", "bit_confidence", "bit_rise", "bit_share")
    return {f"{kind}_{n}": f"{kind}_{dim}" for kind in kinds for n, dim in enumerate(dims)}


def _columns(atom: "Atom", mode: int, size: int) -> np.ndarray:
    """Return the columns of one atom along a mode, (d_n, rank); nan where a block atom has none."""
    if atom.factors is not None:
        return atom.columns(mode)
    return atom.z[:, None].astype(float) if mode == atom.mode else np.full((size, 1), np.nan)


def _bit_matrices(W: "BooleanCP", name: str, columns: Any) -> dict[str, Any]:
    """Return one vector for each atom as matrices (d_n, K) by Boolean mode, nan for atoms that are real there."""
    table = {f"{name}_{n}": ((n, "atom"), np.full((W.shape[n], W.n_atoms), np.nan)) for n in W.members}
    for k, atom in enumerate(W.atoms):
        table[f"{name}_{atom.mode}"][1][:, k] = columns[k]
    return table


def _trust(arrays: Mapping[str, np.ndarray], header: Any, shape: tuple[int, ...], modes: list[int]) -> Trust:
    """Return the measures of trust among arrays."""
    known, K = dict(header), len(modes)
    known |= {n: _take(arrays, n, (K,), "f") for n in ("p_value", "p_adjusted", "stability") if n in arrays}
    for name in ("rise", "share"):
        found = [f"bit_{name}_{n}" for n in modes]
        if found and found[0] in arrays:
            parts = [
                (f, _take(arrays, f, (shape[n], K), "f", is_finite=False)) for f, n in zip(found, modes, strict=True)
            ]
            known[name] = tuple(_take({f: A[:, k]}, f, None, "f") for k, (f, A) in enumerate(parts))
    return Trust(**known)


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
