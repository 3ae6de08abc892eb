"""From the Dataset of a file to a decomposition: every variable is checked as it is taken."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.background import Background
from boolcp.result.deviance import Deviance
from boolcp.result.labels import Labels, plain_values
from boolcp.result.trust import Trust


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
    norm2 = attribute(dataset, "data_norm2", float | np.floating) if "data_norm2" in dataset.attrs else None
    return BooleanCP(
        shape,
        tuple(_atoms(take, dims, shape, K, undetermined)),
        weights,
        _labels(dataset, dims) if attribute(dataset, "is_labelled", int | np.integer) else None,
        data_norm2=norm2,
        data_inner=take("data_inner", (K,), "f", None),
        data_gram=take("data_gram", (K, K), "f", None),
        undetermined=undetermined or None,
        trust=_trust(dataset, take, dims, shape, K) if "has_trust" in dataset.attrs else None,
        background=_background(dataset, take, shape) if "background_mode" in dataset.attrs else None,
        deviance=_deviance(dataset, K) if "deviance" in dataset.attrs else None,
    )


def _background(dataset: Any, take: "Variables", shape: tuple[int, ...]) -> Background:
    """Return the background of a Dataset that `save` made."""
    left, right = (take(f"background_{side}", (None, None), "f") for side in ("left", "right"))
    dof, share = (float(attribute(dataset, f"background_{name}", float | np.floating)) for name in ("dof", "share"))
    return Background(shape, int(attribute(dataset, "background_mode", int | np.integer)), left, right, dof, share)


def _deviance(dataset: Any, K: int) -> Deviance:
    """Return the deviance that `save` stored in a Dataset."""
    parts = json.loads(attribute(dataset, "deviance", str))
    without = np.array(parts["without"], dtype=float)
    if without.shape != (K,):
        raise ValueError(f"it has {K} atoms, but deviances without {len(without)}")
    return Deviance(str(parts["loss"]), float(parts["scale"]), float(parts["total"]), float(parts["null"]), without)


def _trust(dataset: Any, take: "Variables", dims: tuple[str, ...], shape: tuple[int, ...], K: int) -> Trust:
    """Return the measures of trust that `save` stored in a Dataset."""
    modes = take("boolean_mode_index", (K,), "iu").tolist()

    def bits(name: str) -> tuple[np.ndarray, ...] | None:
        columns = [take(f"{name}_{dims[n]}", (shape[n], K), "f", None) for n in modes]
        return None if any(values is None for values in columns) else tuple(A[:, k] for k, A in enumerate(columns))

    def count(name: str) -> int:
        return int(attribute(dataset, name, int | np.integer)) if name in dataset.attrs else 0

    has_noise = "noise_sigma" in dataset.attrs
    return Trust(
        rise=bits("bit_rise"),
        share=bits("bit_share"),
        sigma=float(attribute(dataset, "noise_sigma", float | np.floating)) if has_noise else None,
        p_value=take("p_value", (K,), "f", None),
        p_adjusted=take("p_adjusted", (K,), "f", None),
        tested_by=str(dataset.attrs.get("tested_by", "")),
        stability=take("stability", (K,), "f", None),
        stable_over=str(dataset.attrs.get("stable_over", "")),
        n_agree=count("n_agree"),
        n_rivals=count("n_rivals"),
        n_asked=count("n_asked"),
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


def attribute(dataset: Any, name: str, kind: Any) -> Any:
    """Return an attribute of a Dataset that is of a type."""
    value = dataset.attrs.get(name)
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
