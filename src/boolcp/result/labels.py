"""Names, coordinates and units of the modes: they travel beside the array, never through the algorithm."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp.checks import is_lazy
from boolcp.extras import load_extra
from boolcp.result.trust import Trust, log_odds, sure_share

if TYPE_CHECKING:
    from boolcp.result.atoms import Atom, BooleanCP

UNWRITABLE = re.compile("[\0\ud800-\udfff]")
# variables and dimensions of a result that are not named after a mode
RESERVED = {"atom", "term", "other_atom", "weight", "boolean_mode", "boolean_mode_index", "n_ones", "rank"}
RESERVED |= {"certificate", "alone", "unique", "term_atom", "data_inner", "data_gram"}
RESERVED |= {"sure_bits", "stability", "p_value", "p_adjusted", "degeneracy", "verdict"}
MODE_KINDS = ("factor", "undetermined", "bit_confidence", "bit_rise", "bit_share")  # and those that are, with its name
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


def to_xarray(W: "BooleanCP") -> Any:
    """Return a decomposition as an xarray Dataset with the dims and coordinates of its tensor.

    It holds `weight`, `boolean_mode`, `n_ones`, `certificate` and, after a fit, `alone` and `unique` (shares of
    variance) for each atom, and the factor matrices `factor_<mode>`; a Boolean column is exactly 0 and 1. Atoms of rank
    one have one column each, along the dimension `atom`. Otherwise the columns run along `term`, and `term_atom` is
    the atom of each. A block atom has one term, its Boolean vector (nan in the other modes), and its real
    part is `block_<atom>`. Entries that no observed entry of the tensor determines are nan. The measures of
    trust in atoms and bits are included: `bit_confidence_<mode>` has the probability that each bit is right,
    `bit_rise_<mode>` the rise of the loss when it is flipped and, if entries are missing, `bit_share_<mode>` the
    observed part of the real part of its slice; nan for atoms that are real along the mode. If a mode or coordinate of
    the tensor has one of these names, all of them begin with the attribute `prefix`: `boolcp_weight`, ..
    """
    xarray = load_extra("xarray", "labels")
    dims, prefix = mode_names(W), name_prefix(W)
    atom_dim, term_dim = f"{prefix}atom", f"{prefix}term"
    ranks = [1 if atom.rank is None else atom.rank for atom in W.atoms]
    column_dim = atom_dim if all(rank == 1 for rank in ranks) else term_dim
    variables: dict[str, Any] = {f"{prefix}{name}": (atom_dim, values) for name, values in atom_table(W).items()}
    if column_dim == term_dim:
        variables[f"{prefix}term_atom"] = term_dim, np.repeat(np.arange(W.n_atoms), ranks)
    for n, dim in enumerate(dims):
        columns = [_columns(atom, n, W.shape[n]) for atom in W.atoms]
        matrix = np.hstack(columns) if columns else np.zeros((W.shape[n], 0))
        if W.undetermined and n in W.undetermined:
            real = np.repeat(W.boolean_mode != n, ranks)
            matrix[np.ix_(W.undetermined[n], real)] = np.nan
        variables[f"{prefix}factor_{dim}"] = (dim, column_dim), matrix
    for name, (mode, bits) in bit_matrices(W).items():
        variables[f"{prefix}{name}"] = (dims[mode], atom_dim), bits
    for k, atom in enumerate(W.atoms):
        if atom.block is not None:
            variables[f"{prefix}block_{k}"] = tuple(dim for n, dim in enumerate(dims) if n != atom.mode), atom.block
    coords = {atom_dim: np.arange(W.n_atoms)} | _coords(W.labels)
    known = W.trust or Trust()
    attrs = {"noise_sigma": known.sigma, "stable_over": known.stable_over, "tested_by": known.tested_by}
    attrs |= {"n_agree": known.n_agree or None, "n_rivals": known.n_rivals or None, "prefix": prefix}
    attrs |= {"n_asked": known.n_asked or None, "is_limited": int(known.is_limited) or None}
    return xarray.Dataset(variables, coords, {name: value for name, value in attrs.items() if value not in (None, "")})


def name_prefix(W: "BooleanCP") -> str:
    """Return the prefix of the names in the Dataset of a decomposition: empty, unless the tensor uses one of them.

    Examples
    --------
    >>> import boolcp
    >>> from boolcp.result.labels import Labels, name_prefix
    >>> [name_prefix(boolcp.BooleanCP((2, 3), labels=Labels(dims))) for dims in (("x", "y"), ("weight", "y"))]
    ['', 'boolcp_']
    """
    if W.labels is None:
        return ""
    reserved = RESERVED | {f"{kind}_{dim}" for kind in MODE_KINDS for dim in W.labels.dims}
    reserved |= {f"block_{k}" for k in range(W.n_atoms)}
    names = {*W.labels.dims, *W.labels.coords, *W.labels.extra}
    if not names & reserved:
        return ""
    prefix = PREFIX
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def bit_matrices(W: "BooleanCP") -> dict[str, tuple[int, np.ndarray]]:
    """Return the measures of the bits along each Boolean mode, {name: (n, (d_n, K))}; nan for atoms real there."""
    known = W.trust or Trust()
    confidence = () if log_odds(W) is None else W.bit_confidence()
    found = {"bit_confidence": confidence, "bit_rise": known.rise or (), "bit_share": known.share or ()}
    matrices = {}
    for name, columns in found.items():
        for mode in sorted(set(W.boolean_mode[: len(columns)].tolist())):
            values = np.full((W.shape[mode], W.n_atoms), np.nan)
            for k in np.flatnonzero(W.boolean_mode == mode):
                values[:, k] = columns[k]
            matrices[f"{name}_{mode_names(W)[mode]}"] = mode, values
    return matrices


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


def _columns(atom: "Atom", mode: int, size: int) -> np.ndarray:
    """Return the columns of one atom along a mode, (d_n, rank); nan where a block atom has none."""
    if atom.factors is not None:
        return atom.columns(mode)
    return atom.z[:, None].astype(float) if mode == atom.mode else np.full((size, 1), np.nan)


def _coords(labels: Labels | None) -> dict[str, Any]:
    """Return the coordinates of Labels in the form that xarray accepts."""
    if labels is None:
        return {}
    along = {name: (name, values) for name, values in labels.coords.items()} | dict(labels.extra)
    attrs = {name: {"units": unit} for name, unit in labels.units.items()}
    return {name: (dim, values, attrs.get(name, {})) for name, (dim, values) in along.items()}
