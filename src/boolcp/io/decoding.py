"""From the Dataset of a file to a decomposition: a file may be damaged or malicious, so everything is checked."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.deviance import Deviance
from boolcp.result.labels import Labels, plain_values
from boolcp.result.trust import Trust

LARGEST_CERTIFICATE = 1 + 1e-6  # a share of a bound, up to rounding
LARGEST_NOISE = 1e150  # its square is a number
NUMBER, NUMBERS = (int, float), [(int, float)]
REAL, WHOLE = float | np.floating, int | np.integer  # of attributes
# what the parts of a provenance are, as far as others rely on it: a type, or [the type of all items]
STEP = {"relative_error": NUMBER}
STABILITY = {"recurrence": NUMBERS, "bit_probability": [list], "n_fits": int, "scheme": str}
RESIDUAL = {"mode_names": [str], "structure": NUMBERS, "lag_correlation": NUMBERS, "rms": NUMBER, "kurtosis": NUMBER}
RESIDUAL |= {"quantiles": NUMBERS, "normal_quantiles": NUMBERS}
PROVENANCE: dict[str, Any] = {"data": {}, "parameters": {}, "versions": {}, "history": [STEP], "stability": STABILITY}
PROVENANCE |= {"residual_check": RESIDUAL, "method": str, "command": str, "stop_reason": str}
DATA = {"n_missing": int, "preparation": list, "source": str, "dtype": str, "fingerprint": str}


def read_decomposition(dataset: Any) -> BooleanCP:
    """Return the BooleanCP of a Dataset that `save` made."""
    dims = tuple(json.loads(attribute(dataset, "dims", str)))
    if not all(isinstance(dim, str) and dim in dataset.sizes for dim in dims) or not dims:
        raise ValueError(f"its modes are {dims}")
    shape = tuple(dataset.sizes[dim] for dim in dims)
    take = Variables(dataset, str(dataset.attrs.get("prefix", "")))
    weights = take("weight", (None,), "f")
    K = len(weights)
    marks = {n: take(f"undetermined_{dim}", (shape[n],), "biu", None) for n, dim in enumerate(dims)}
    undetermined = {n: mark.astype(bool) for n, mark in marks.items() if mark is not None}
    return BooleanCP(
        shape,
        tuple(_atoms(take, dims, shape, K, undetermined)),
        weights,
        _labels(dataset, dims) if attribute(dataset, "is_labelled", WHOLE) else None,
        data_norm2=attribute(dataset, "data_norm2", REAL, None),
        data_inner=take("data_inner", (K,), "f", None),
        data_gram=take("data_gram", (K, K), "f", None),
        undetermined=undetermined or None,
        trust=_trust(dataset, take, dims, shape, K) if "has_trust" in dataset.attrs else None,
        deviance=_deviance(dataset, K) if "deviance" in dataset.attrs else None,
    )


def _deviance(dataset: Any, K: int) -> Deviance:
    """Return the deviance that `save` stored in a Dataset."""
    parts = json.loads(attribute(dataset, "deviance", str))
    without = np.array(parts["without"], dtype=float)
    if without.shape != (K,):
        raise ValueError(f"it has {K} atoms, but the deviance without each of {len(without)}")
    return Deviance(str(parts["loss"]), float(parts["scale"]), float(parts["total"]), float(parts["null"]), without)


def _trust(dataset: Any, take: "Variables", dims: tuple[str, ...], shape: tuple[int, ...], K: int) -> Trust:
    """Return the measures of trust that `save` stored in a Dataset."""
    modes = take("boolean_mode_index", (K,), "iu").tolist()

    def bits(name: str) -> tuple[np.ndarray, ...] | None:
        columns = [take(f"{name}_{dims[n]}", (shape[n], K), "f", None) for n in modes]
        return None if any(values is None for values in columns) else tuple(A[:, k] for k, A in enumerate(columns))

    sigma = attribute(dataset, "noise_sigma", REAL, None)
    return Trust(
        rise=bits("bit_rise"),
        share=bits("bit_share"),
        sigma=None if sigma is None else float(sigma),
        p_value=take("p_value", (K,), "f", None),
        p_adjusted=take("p_adjusted", (K,), "f", None),
        tested_by=str(dataset.attrs.get("tested_by", "")),
        stability=take("stability", (K,), "f", None),
        stable_over=str(dataset.attrs.get("stable_over", "")),
        is_limited=bool(attribute(dataset, "is_limited", WHOLE, 0)),
        **{name: int(attribute(dataset, name, WHOLE, 0)) for name in ("n_agree", "n_rivals", "n_asked")},
    )


def _atoms(
    take: "Variables", dims: tuple[str, ...], shape: tuple[int, ...], K: int, undetermined: dict[int, np.ndarray]
) -> Iterator[Atom]:
    """Yield the atoms of a Dataset that `save` made."""
    ranks, modes = take("rank", (K,), "iu"), take("boolean_mode_index", (K,), "iu")
    certificates = take("certificate", (K,), "f")
    if not (np.all(ranks >= 0) and np.all((modes >= 0) & (modes < len(dims)))):
        raise ValueError(f"an atom has rank {ranks.min()} or lies along mode {modes.min()} or {modes.max()}")
    starts = np.concatenate([[0], np.cumsum(np.maximum(ranks, 1))]).astype(int)
    matrices = [take(f"factor_{dim}", (d, starts[-1]), "f") for dim, d in zip(dims, shape, strict=True)]
    for k, (mode, rank) in enumerate(zip(modes.tolist(), ranks.tolist(), strict=True)):
        z, columns = matrices[mode][:, starts[k]], slice(starts[k], starts[k + 1])
        if rank == 0:
            others = tuple(d for n, d in enumerate(shape) if n != mode)
            yield Atom(mode, z, block=take(f"block_{k}", others, "f"), certificate=float(certificates[k]))
            continue
        factors = {n: A[:, columns].copy() for n, A in enumerate(matrices) if n != mode}
        for n, A in factors.items():
            if n in undetermined:
                A[undetermined[n]] = 0.0  # NaN in the file: what no observed entry determines
        yield Atom(mode, z, tuple(factors.values()), certificate=float(certificates[k]))


class Variables:
    """The variables of a Dataset by their names without the prefix, each checked as it is taken."""

    def __init__(self, dataset: Any, prefix: str) -> None:
        self._dataset, self._prefix = dataset, prefix

    def __call__(self, name: str, shape: tuple[int | None, ...], kinds: str, *default: None) -> Any:
        """Return the values of a variable with this shape (None: any size) and one of these kinds of numbers."""
        if f"{self._prefix}{name}" not in self._dataset.variables:
            if default:
                return default[0]
            raise ValueError(f"it has no {name}")
        values = self._dataset[f"{self._prefix}{name}"].values
        is_fitting = len(shape) == values.ndim and all(d in (None, m) for d, m in zip(shape, values.shape, strict=True))
        if not is_fitting or values.dtype.kind not in kinds:
            raise ValueError(f"{name} is an array {values.shape} of {values.dtype}")
        return values


def attribute(dataset: Any, name: str, kind: Any, *default: Any) -> Any:
    """Return an attribute of a Dataset that is of a type; the default, if there is one, without the attribute."""
    value = dataset.attrs.get(name)
    if default and name not in dataset.attrs:
        return default[0]
    if not isinstance(value, kind):
        raise ValueError(f"its attribute {name} is {'missing' if value is None else str(value)[:40]}")
    return value


def _has_coordinate(dataset: Any, dim: str) -> bool:
    return dim in dataset.coords and dataset.coords[dim].dims == (dim,)  # version 1 may have a variable of that name


def _labels(dataset: Any, dims: tuple[str, ...]) -> Labels:
    coords = {dim: plain_values(dataset.coords[dim].values) for dim in dims if _has_coordinate(dataset, dim)}
    extra = {}
    for name, coord in dataset.coords.items():
        if name not in dims and coord.ndim == 1 and coord.dims[0] in dims:
            extra[str(name)] = str(coord.dims[0]), plain_values(coord.values)
    units = {str(n): str(c.attrs["units"]) for n, c in dataset.coords.items() if "units" in c.attrs}
    name, unit = attribute(dataset, "tensor_name", str), dataset.attrs.get("tensor_unit")
    return Labels(dims, coords, units, extra, name or None, unit or None)


def check_decomposition(W: BooleanCP) -> BooleanCP:
    """Return the decomposition, or raise a ValueError if it cannot be the result of a fit."""
    check_finite("the weights", W.weights)
    for k, atom in enumerate(W.atoms):
        if not atom.n_ones:
            raise ValueError(f"atom {k} has no entry that is on")
        if not (np.isnan(atom.certificate) or 0 <= atom.certificate <= LARGEST_CERTIFICATE):
            raise ValueError(f"the certificate of atom {k} is {atom.certificate:g}, not between 0 and 1")
        for part in (atom.block,) if atom.factors is None else atom.factors:
            check_finite(f"the real part of atom {k}", part)
        check_shape(k, atom, W.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(BooleanCP(W.shape, (atom,), W.weights[[k]]).squared_norm):
                raise ValueError(f"atom {k} is too large")
    K = W.n_atoms
    for name, size in (("data_norm2", ()), ("data_inner", (K,)), ("data_gram", (K, K))):
        value = getattr(W, name)
        if value is not None:
            check_finite(name, value)
            check_size(name, value, size)
    if W.data_norm2 is not None and W.data_norm2 < 0:
        raise ValueError(f"the squared norm of the data is {W.data_norm2:g}")
    if W.trust is not None:
        check_trust(W.trust, [len(atom.z) for atom in W.atoms])
    if W.deviance is not None:
        numbers = W.deviance.scale, W.deviance.total, W.deviance.null, *W.deviance.without
        check_finite("its deviance", np.array(numbers))
    return W


def check_shape(k: int, atom: Atom, shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless the real part of an atom has the sizes of the other modes."""
    others = [d for n, d in enumerate(shape) if n != atom.mode]
    found = atom.block.shape if atom.block is not None else [part.shape for part in atom.factors or ()]
    due = tuple(others) if atom.block is not None else [(d, atom.rank) for d in others]
    if found != due:
        raise ValueError(f"the real part of atom {k} has the shape {found}, not {due}")


def check_trust(trust: Trust, sizes: list[int]) -> None:
    """Raise a ValueError unless the measures of trust are numbers for atoms of these sizes, shares from 0 to 1."""
    for parts in (trust.rise, trust.share):
        if parts is not None and [np.shape(part) for part in parts] != [(d,) for d in sizes]:
            raise ValueError("the confidence of its bits is not that of its atoms")
    for values in (*(trust.rise or ()), *(trust.share or ()), *([] if trust.sigma is None else [trust.sigma])):
        check_finite("the confidence of its bits", values)
        if np.any(np.abs(np.asarray(values)) > LARGEST_NOISE):
            raise ValueError("the confidence of its bits is out of range")
    if trust.sigma is not None and not 0 <= trust.sigma <= LARGEST_NOISE:
        raise ValueError(f"the noise level is {trust.sigma:g}")
    for values in (trust.p_value, trust.p_adjusted, trust.stability):
        if values is not None:
            check_size("a p-value or stability", values, (len(sizes),))
        if values is not None and not np.all((values >= 0) & (values <= 1)):
            raise ValueError("a p-value or stability is not between 0 and 1")


def check_size(what: str, values: Any, due: tuple[int, ...]) -> None:
    """Raise a ValueError unless an array has this shape."""
    if np.shape(values) != due:
        raise ValueError(f"{what} has the shape {np.shape(values)}, not {due}")


def check_finite(what: str, values: Any) -> None:
    """Raise a ValueError unless all values are finite numbers."""
    if np.asarray(values).dtype.kind not in "fiub" or not np.isfinite(values).all():
        raise ValueError(f"{what} must be finite numbers")


def check_provenance(provenance: Any) -> dict[str, Any]:
    """Return the provenance, or raise a ValueError if it does not have the structure that `save` gives it."""
    if not isinstance(provenance, dict):
        raise ValueError("its provenance is not a dict")
    for name, due in PROVENANCE.items():
        if name in provenance:
            check_entry(name, provenance[name], due)
    data = provenance.get("data", {})
    for name in DATA.keys() & data.keys():
        check_entry(f"data.{name}", data[name], DATA[name])
    names = [provenance.get("method", "BMP"), *provenance.get("parameters", {})]
    if not all(name.isidentifier() for name in names):  # a report shows them as Python code to run
        raise ValueError("its provenance has a method or parameter that is not a name")
    return provenance


def check_entry(name: str, value: Any, due: Any) -> None:
    """Raise a ValueError unless a value has a type, or is a list or a dict whose items have it."""
    kinds = type(due) if isinstance(due, dict | list) else due
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise ValueError(f"the entry {name!r} of its provenance is {str(value)[:40]!r}")
    if isinstance(due, list):
        for item in value:
            check_entry(name, item, due[0])
    elif isinstance(due, dict) and isinstance(value, dict):
        for part, kind in due.items():
            check_entry(f"{name}.{part}", value.get(part), kind)
