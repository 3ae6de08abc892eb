"""A background beside the atoms: low-rank structure of the residual, found in turn with atoms of rank one."""

import numpy as np

from boolcp.fit.noise import noise_level
from boolcp.fit.shrinkage import shrink_matrix
from boolcp.result.atoms import BooleanCP
from boolcp.result.background import Background
from boolcp.storage import DenseTensor
from boolcp.storage.protocol import Storage


def find_background(data: Storage, W: BooleanCP, kind: str | int, sigma: float | None) -> Background | None:
    """Return the background of the residual, along the unfolding with the lowest risk; None if it is noise.

    Parameters
    ----------
    kind : "auto" or int
        Shrink the singular values optimally for the noise, or keep this many of them.
    sigma : float, optional
        Standard deviation of the noise; estimated from the data by default.
    """
    sigma = noise_level(data) if sigma is None else float(sigma)
    R = data.residual(W).to_array()
    found = [found for mode in range(R.ndim) if (found := along(R, mode, kind, sigma)) is not None]
    if not found:
        return None
    (risk, rest), best = min(found, key=lambda option: option[0])
    left = float(np.vdot(R, R))
    if kind == "auto" and not risk < left:
        return None
    return Background(*best, share=(left - rest) / data.squared_norm)


def along(R: np.ndarray, mode: int, kind: str | int, sigma: float) -> "tuple[tuple[float, float], Parts] | None":
    """Return the risk, the loss and the parts of the background along one mode; None if nothing stands out."""
    unfolded = np.moveaxis(R, mode, 0).reshape(R.shape[mode], -1)
    shrunk = shrink_matrix(unfolded, sigma, unfolded.shape) if kind == "auto" else truncate(unfolded, int(kind))
    if shrunk is None:
        return None
    (A, B), dof = shrunk
    rest = unfolded - A @ B.T
    loss = float(np.vdot(rest, rest))
    return (loss + 2 * sigma**2 * dof, loss), (R.shape, mode, A, B, dof)


Parts = tuple[tuple[int, ...], int, np.ndarray, np.ndarray, float]


def truncate(M: np.ndarray, rank: int) -> tuple[tuple[np.ndarray, ...], float]:
    """Return the factors of the best approximation of a rank, and its number of free parameters."""
    if M.shape[0] > M.shape[1]:
        factors, dof = truncate(M.T, rank)
        return factors[::-1], dof
    rank = min(rank, len(M))
    U = np.linalg.eigh(M @ M.T)[1][:, ::-1][:, :rank]
    return (U, M.T @ U), float(rank * (sum(M.shape) - rank))


def without(data: Storage, background: Background) -> DenseTensor:
    """Return the data without the background."""
    return DenseTensor(np.ascontiguousarray(data.to_array() - background.to_tensor()))
