"""Background: real low-rank structure that no on/off atom describes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

LARGE = 0.25  # parameters for each entry; not tuned: recordings have 0.4 to 0.9, activity of low rank less
FREE = 0.6  # degrees of freedom for each observed entry from which it is nearly the data themselves; not tuned


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
        Share of the variance of the data that the background explains beyond the atoms.
    alone : float or None
        The share that it would explain alone, 1 - |X - B|^2 / |X|^2, if X is complete.
    level : float or None
        The noise level that singular values were shrunk by, where entries are missing.
    shrunk_at : float or None
        The noise level that the whole data were shrunk by, if the background is what atoms leave of them.
    n_observed : int or None
        The number of entries that it was fitted to; None for all of them.

    Examples
    --------
    >>> import boolcp
    >>> recording = boolcp.datasets.simulate_recording(random_state=0)
    >>> model = boolcp.BMP(3, random_state=0).fit(recording.X)
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
    level: float | None = None
    alone: float | None = None
    shrunk_at: float | None = None
    n_observed: int | None = None

    @property
    def rank(self) -> int:
        """Return the rank of the matrix."""
        return self.left.shape[1]

    @property
    def n_parameters(self) -> int:
        """Return the number of free real numbers of a matrix of this size and rank."""
        return self.rank * (len(self.left) + len(self.right) - self.rank)

    @property
    def is_large(self) -> bool:
        """Return True if it has so many parameters that it follows nearly any residual.

        Beside such a background atoms would only confirm themselves, and all bits would look certain. It is fitted to
        what the atoms leave, and they are fitted and judged as if it were noise. With a smaller one they take turns.

        Examples
        --------
        >>> import numpy as np, boolcp
        >>> [boolcp.Background((9, 9), 0, np.ones((9, r)), np.ones((9, r)), 0.0, 0.5).is_large for r in (1, 5)]
        [False, True]
        """
        return self.n_parameters > LARGE * len(self.left) * len(self.right)

    @property
    def freedom(self) -> float:
        """Return the degrees of freedom for each observed entry."""
        return self.degrees_of_freedom / (self.n_observed or float(np.prod(self.shape, dtype=float)))

    @property
    def follows_noise(self) -> bool:
        """Return True if it has so many degrees of freedom that it is nearly what atoms leave of the data, with noise.

        Examples
        --------
        >>> import numpy as np, boolcp
        >>> [boolcp.Background((9, 9), 0, np.ones((9, 1)), np.ones((9, 1)), n, 0.5).follows_noise for n in (48, 49)]
        [False, True]
        """
        return self.freedom > FREE

    def to_tensor(self) -> np.ndarray:
        """Return the background as a dense array.

        Examples
        --------
        >>> import numpy as np, boolcp
        >>> boolcp.Background((2, 3), 1, np.ones((3, 1)), np.ones((2, 1)), 4.0, 0.5).to_tensor().shape
        (2, 3)
        """
        others = self.shape[: self.mode] + self.shape[self.mode + 1 :]
        if self.mode == len(others):  # in C order at once
            return (self.right @ self.left.T).reshape(self.shape)
        return np.moveaxis((self.left @ self.right.T).reshape(-1, *others), 0, self.mode)

    def part(self, slices: Sequence[slice]) -> "Background":
        """Return the background of a slab, given by one slice for each mode.

        Examples
        --------
        >>> import numpy as np, boolcp
        >>> ones = boolcp.Background((2, 3), 1, np.ones((3, 1)), np.ones((2, 1)), 4.0, 0.5)
        >>> ones.part([slice(0, 1), slice(0, 2)]).to_tensor().shape
        (1, 2)
        """
        others = [n for n in range(len(self.shape)) if n != self.mode]
        right = self.right.reshape(*(self.shape[n] for n in others), -1)[tuple(slices[n] for n in others)]
        left = self.left[slices[self.mode]]
        shape = tuple(len(range(*part.indices(d))) for part, d in zip(slices, self.shape, strict=True))
        return replace(self, shape=shape, left=left, right=right.reshape(-1, self.rank))

    def at(self, indices: ArrayLike) -> np.ndarray:
        """Return the entries at the rows of `indices` (n, N), (n,).

        Examples
        --------
        >>> import numpy as np, boolcp
        >>> boolcp.Background((2, 3), 1, np.ones((3, 1)), np.ones((2, 1)), 4.0, 0.5).at([[0, 1], [1, 2]]).tolist()
        [1.0, 1.0]
        """
        places = np.asarray(indices).T
        others = [n for n in range(len(self.shape)) if n != self.mode]
        flat = np.ravel_multi_index(tuple(places[n] for n in others), tuple(self.shape[n] for n in others))
        return np.einsum("ir,ir->i", self.left[places[self.mode]], self.right[flat])

    def __repr__(self) -> str:
        share = f"{100 * self.share:.1f} % of the variance"
        noise = ", follows noise" if self.follows_noise else ""
        return f"Background(rank {self.rank} along mode {self.mode}, {share}, {self.n_parameters} parameters{noise})"
