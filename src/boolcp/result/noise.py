"""Correlated noise: a covariance along each real mode, and the change of units from the data to the noise and back.

With a covariance S_channel (x) S_time, least squares of S_channel^-1/2 X S_time^-1/2 are generalized least squares of
X; bits along trials stay bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from boolcp.contractions import along

if TYPE_CHECKING:
    from boolcp.result.atoms import Atom, BooleanCP


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise with a covariance along some modes; along the others it is independent.

    Attributes
    ----------
    covariances : mapping of int to ndarray of shape (d_n, d_n)
        The covariance along each of these modes.

    Examples
    --------
    >>> noise = boolcp.Noise({0: np.array([[4.0, 0.0], [0.0, 1.0]])})
    >>> noise.whiten(np.ones((2, 3))).tolist()
    [[0.5, 0.5, 0.5], [1.0, 1.0, 1.0]]
    >>> W = boolcp.datasets.make_boolean_cp((2, 4), [0, 1], random_state=0).truth
    >>> bool(np.allclose(noise.restore_atoms(noise.whiten_atoms(W)).weights, W.weights))
    True
    """

    covariances: Mapping[int, np.ndarray]

    def whiten(self, X: np.ndarray) -> np.ndarray:
        """Return an array in units of the noise."""
        return self._times(X, -0.5)

    def whiten_atoms(self, W: "BooleanCP") -> "BooleanCP":
        """Return a decomposition in units of the noise."""
        return self._change(W, -0.5)

    def restore_atoms(self, W: "BooleanCP") -> "BooleanCP":
        """Return a decomposition of whitened data in the units of the data."""
        return self._change(W, 0.5)

    def _times(self, X: np.ndarray, exponent: float) -> np.ndarray:
        for mode, S in self.covariances.items():
            X = along(X, power(S, exponent), mode)
        return np.ascontiguousarray(X)

    def _change(self, W: "BooleanCP", exponent: float) -> "BooleanCP":
        roots = {mode: power(S, exponent) for mode, S in self.covariances.items()}
        pairs = [changed(atom, roots) for atom in W.atoms]
        atoms, sizes = tuple(atom for atom, _ in pairs), np.array([size for _, size in pairs])
        mean = None if W.mean is None else self._times(W.mean, exponent)
        return replace(W, atoms=atoms, weights=W.weights * sizes, mean=mean, data_inner=None, data_norm2=None)


def power(S: np.ndarray, exponent: float) -> np.ndarray:
    """Return a power of a positive definite matrix."""
    values, U = np.linalg.eigh(S)
    return np.asarray((U * np.maximum(values, 1e-12 * values[-1]) ** exponent) @ U.T)


def changed(atom: "Atom", roots: Mapping[int, np.ndarray]) -> tuple["Atom", float]:
    """Return an atom whose real part is multiplied along some modes and scaled to norm one, and its norm before."""
    others = [n for n in range(len(atom.shape)) if n != atom.mode]
    if atom.factors is None:
        block = atom.dense_block()
        for at, mode in enumerate(others):
            block = along(block, roots[mode], at) if mode in roots else block
        size = float(np.linalg.norm(block)) or 1.0
        return replace(atom, block=block / size), size
    factors = [roots[mode] @ A if mode in roots else A for mode, A in zip(others, atom.factors, strict=True)]
    size = float(np.sqrt(np.prod([A.T @ A for A in factors], axis=0).sum())) or 1.0
    return replace(atom, factors=(factors[0] / size, *factors[1:])), size
