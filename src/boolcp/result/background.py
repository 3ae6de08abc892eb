"""Background: real low-rank structure that no on/off atom describes."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Background:
    """Low-rank structure beside the atoms: its unfolding along one mode is ``left @ right.T``.

    Attributes
    ----------
    shape : tuple of int
        The shape of the tensor.
    mode : int
        The mode of the unfolding.
    left, right : ndarray of shape (d_n, r) and (other modes, r)
        The factors of the matrix.
    degrees_of_freedom : float
        How many free numbers the estimate amounts to; fewer than `n_parameters` if singular values are shrunk.
    share : float
        Share of the variance of the data that is explained by the background beyond the atoms.

    Examples
    --------
    >>> import boolcp
    >>> recording = boolcp.datasets.simulate_recording(random_state=0)
    >>> model = boolcp.BMP(3, background="auto", random_state=0).fit(recording.X)
    >>> model.background_.mode, boolcp.metrics.hamming_error(model.decomposition_, recording.truth)
    (0, 0.0)
    >>> whole = model.decomposition_.to_tensor() + model.background_.to_tensor()
    """

    shape: tuple[int, ...]
    mode: int
    left: np.ndarray
    right: np.ndarray
    degrees_of_freedom: float
    share: float

    @property
    def rank(self) -> int:
        """Return the rank of the matrix."""
        return self.left.shape[1]

    @property
    def n_parameters(self) -> int:
        """Return the number of free real numbers of a matrix of this size and rank."""
        return self.rank * (len(self.left) + len(self.right) - self.rank)

    def to_tensor(self) -> np.ndarray:
        """Return the background as a dense array.

        Examples
        --------
        >>> import numpy as np, boolcp
        >>> boolcp.Background((2, 3), 1, np.ones((3, 1)), np.ones((2, 1)), 4.0, 0.5).to_tensor().shape
        (2, 3)
        """
        others = self.shape[: self.mode] + self.shape[self.mode + 1 :]
        return np.moveaxis((self.left @ self.right.T).reshape(-1, *others), 0, self.mode)

    def __repr__(self) -> str:
        share = f"{100 * self.share:.1f} % of the variance"
        return f"Background(rank {self.rank} along mode {self.mode}, {share}, {self.n_parameters} parameters)"
