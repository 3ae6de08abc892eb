"""Deviance: how well a decomposition fits under a loss that is not the sum of squares."""

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class Deviance:
    """Twice the loss above that of a perfect fit, of a decomposition and of what it is compared with.

    Parameters
    ----------
    loss : str
        "huber", "poisson" or "bernoulli".
    scale : float
        The threshold of Huber's loss, or the mean below which logarithms are continued by a parabola.
    total : float
        The deviance of the decomposition.
    null : float
        That without atoms: of the mean of the data for counts and bits, of zero otherwise.
    without : ndarray of shape (K,)
        That of the decomposition without each atom.
    """

    loss: str
    scale: float
    total: float
    null: float
    without: np.ndarray

    @property
    def explained(self) -> float:
        """Return the share of the deviance that is explained."""
        return 1 - self.total / self.null if self.null > 0 else 1.0

    @property
    def unique(self) -> np.ndarray:
        """Return the share of the deviance that is lost without each atom, (K,)."""
        return (self.without - self.total) / self.null if self.null > 0 else np.zeros(len(self.without))

    def take(self, positions: np.ndarray) -> "Deviance | None":
        """Return the deviance of the same atoms in a different order; None for some of them, whose fit is not known."""
        if len(positions) != len(self.without) or len(set(positions.tolist())) != len(positions):
            return None
        return replace(self, without=self.without[positions])
