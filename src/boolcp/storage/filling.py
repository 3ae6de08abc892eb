"""Lazy arrays with their missing entries filled in: dask arrays, computed block by block when they are asked for."""

from dataclasses import replace
from typing import Any

import numpy as np

from boolcp.result.atoms import BooleanCP
from boolcp.storage.sources import Source, as_file, in_slabs, plain
from boolcp.system import load_extra


def filled(X: Any, mask: Any, W: BooleanCP) -> Any:
    """Return a dask array: X with the entries of W, clipped to the observed range, where it is NaN or masked."""
    da, source = load_extra("dask.array", "dask"), Source(X)
    how: dict[str, Any] = {"dtype": source.dtype, "meta": np.empty((0,) * len(source.shape), dtype=source.dtype)}
    X = source.lazy().map_blocks(plain, source.dtype, **how)
    observed = ~da.isnan(X)
    if mask is not None:
        observed = observed & in_slabs(as_file(mask), source.shape, np.dtype(bool), X.chunks)
    low, high = da.where(observed, X, np.inf).min(), da.where(observed, X, -np.inf).max()
    return da.map_blocks(fill_block, X, observed, low, high, W=W, **how)


def fill_block(
    X: np.ndarray, observed: np.ndarray, low: float, high: float, W: BooleanCP, block_info: Any = None
) -> np.ndarray:
    """Return a block with the entries of W, between two bounds, where it is not observed."""
    if observed.all():
        return X
    for mode, bounds in enumerate(block_info[0]["array-location"]):
        W = part_of(W, slice(*bounds), mode)
    return np.where(observed, X, np.clip(W.to_array(), low, high)).astype(X.dtype)


def part_of(W: BooleanCP, rows: slice, mode: int) -> BooleanCP:
    """Return the decomposition of some rows along one mode; its real parts are no longer of norm one."""
    atoms = []
    for atom in W.atoms:
        at = mode - (mode > atom.mode)
        if atom.mode == mode:
            atoms.append(replace(atom, z=atom.z[rows]))
        elif atom.factors is None:
            atoms.append(replace(atom, block=np.moveaxis(np.moveaxis(atom.dense_block(), at, 0)[rows], 0, at)))
        else:
            atoms.append(replace(atom, factors=tuple(A[rows] if n == at else A for n, A in enumerate(atom.factors))))
    shape = [len(range(*rows.indices(d))) if n == mode else d for n, d in enumerate(W.shape)]
    empty = {n: gaps[rows] if n == mode else gaps for n, gaps in (W.undetermined or {}).items()}
    return BooleanCP(shape, tuple(atoms), W.weights, undetermined=empty or None)
