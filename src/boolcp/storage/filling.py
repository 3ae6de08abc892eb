"""Lazy arrays with their missing entries filled in: dask arrays, computed block by block when they are asked for."""

from typing import Any

import numpy as np

from boolcp.result.atoms import BooleanCP
from boolcp.storage.slabs import part_of
from boolcp.storage.sources import Source

# times the mean square of a fit that chance does not explain; set after a look at spikes with 80 % hidden, of one seed
CLEARLY = 1.25
MIN_LEFT = 0.1  # share of the observed entries that counts as unused at least


def filled_array(X: Any, mask: Any, W: BooleanCP) -> Any:
    """Return a dask array: X with the values of W where it is NaN or the mask is False."""
    return with_estimate(*floats_and_mask(X, mask), W)


def floats_and_mask(X: Any, mask: Any) -> tuple[Any, Any]:
    """Return X as a dask array of floats, and a dask array that is True where it is observed."""
    import dask.array as da

    source = Source(X, mask)
    X, mask = source.lazy(), source.mask
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    return X, ~da.isnan(X) if mask is None else da.asarray(mask).rechunk(X.chunks).astype(bool) & ~da.isnan(X)


def with_estimate(X: Any, observed: Any, W: BooleanCP) -> Any:
    """Return the dask array X with the values of W where it is not observed."""
    import dask.array as da

    how: dict[str, Any] = {"dtype": X.dtype, "meta": np.zeros((0,) * X.ndim, dtype=X.dtype)}
    return da.map_blocks(fill_block, X, observed, W=W, **how)


def filled_in_bounds(X: Any, mask: Any, W: BooleanCP, dof: float | None) -> Any:
    """Return the array of `filled_array`, fills clipped to the range of what is observed and shrunk to the mean.

    `dof` are the degrees of freedom by which they are shrunk; None leaves them. What this needs of all of X is computed
    with the array, in one more pass.
    """
    import dask.array as da

    X, observed = floats_and_mask(X, mask)
    low, high = da.where(observed, X, np.inf).min(), da.where(observed, X, -np.inf).max()
    filled = da.minimum(da.maximum(with_estimate(X, observed, W), low), high)
    if dof is not None:
        n, fitted = observed.sum(), with_estimate(X, da.zeros_like(observed), W).astype(float)
        mean = da.where(observed, X, 0).sum(dtype=float) / da.maximum(n, 1)
        known, off = da.where(observed, X - mean, 0.0), da.where(observed, fitted - mean, 0.0)
        beyond = da.where(observed, np.nan, filled.astype(float) - mean)
        left, size, inner = ((known - off) ** 2).sum(), (off**2).sum(), (known * off).sum()
        spread = da.nansum(beyond**2) / da.maximum((~da.isnan(beyond)).sum(), 1)
        share = da.map_blocks(kept_share, n, left, size, inner, spread, dof=dof, dtype=float)
        filled = da.where(observed, X, mean + share * (filled - mean)).astype(X.dtype)
    return filled


def kept_share(n: Any, left: Any, size: Any, inner: Any, spread: Any, dof: float) -> Any:
    """Return the share a of m + a (F - m) that is lowest in risk, for a fit F of n entries X with mean m.

    It needs left = |X - F|^2, size = |F - m|^2, inner = <F - m, X - m> and the degrees of freedom of F. The mean square
    `spread` of F - m over missing entries should be that over the n: what clearly exceeds it is noise.
    """
    variance = left / np.maximum(np.maximum(n - dof, MIN_LEFT * n), 1)
    share = np.clip((inner - variance * dof) / np.where(size > 0, size, np.inf), 0.0, 1.0)
    return share * np.where(n * spread > CLEARLY * size, CLEARLY * size / np.where(spread > 0, n * spread, 1.0), 1.0)


def fill_block(X: np.ndarray, observed: np.ndarray, W: BooleanCP, block_info: Any = None) -> np.ndarray:
    """Return a block with the values of W where it is not observed."""
    if observed.all():
        return X
    slices = tuple(slice(*bounds) for bounds in block_info[0]["array-location"])
    values = part_of(W, slices).to_tensor()
    return np.where(observed, X, values.astype(X.dtype))
