"""Atom: one pattern that is on or off along one mode and real along the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from boolcp import contractions

ALWAYS_ON = 0.9  # share of ones from which an atom is a baseline; not tuned


@dataclass(frozen=True, eq=False)
class Atom:
    """One atom z (x) V: Boolean along `mode`, real along the other modes, with a real part V of norm one.

    Parameters
    ----------
    mode : int
        The Boolean mode n.
    z : ndarray of bool, shape (d_n,)
        Where the atom is on.
    factors : tuple of ndarray, shapes (d_m, L)
        The real part as a sum of L products of columns: one matrix for each of the other modes, in order. None for a
        block.
    block : ndarray of shape (other modes)
        The real part of a block atom (`atom_rank="block"`) as a dense array. None if `factors` is given.
    certificate : float
        The score of z divided by an upper bound on the score of every z; NaN if it was not computed.

    Examples
    --------
    >>> import numpy as np
    >>> from boolcp import Atom
    >>> atom = Atom(0, [True, False, True], (np.array([[0.6], [0.8]]), np.array([[1.0]])))
    >>> atom
    Atom(mode=0, 2 of 3 on, rank 1)
    >>> atom.z.tolist(), atom.rank
    ([True, False, True], 1)
    """

    mode: int
    z: np.ndarray
    factors: tuple[np.ndarray, ...] | None = None
    block: np.ndarray | None = None
    certificate: float = float("nan")

    if TYPE_CHECKING:  # array-likes become read-only arrays

        def __init__(
            self,
            mode: int,
            z: ArrayLike,
            factors: Sequence[ArrayLike] | None = None,
            block: ArrayLike | None = None,
            certificate: float = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if (self.factors is None) == (self.block is None):
            raise ValueError("An atom has either factors or a block: pass exactly one of the two.")
        z = np.asarray(self.z)
        if z.ndim != 1 or not (z.dtype == bool or np.isin(z, (0, 1)).all()):
            raise ValueError("z must be a vector of zeros and ones.")
        object.__setattr__(self, "z", read_only(z.astype(bool)))
        if self.factors is not None:
            object.__setattr__(self, "factors", tuple(read_only(np.asarray(A)) for A in self.factors))
        else:
            object.__setattr__(self, "block", read_only(np.asarray(self.block)))

    @property
    def rank(self) -> int | None:
        """Return the number L of products in the real part, or None for a block."""
        return None if self.factors is None else self.factors[0].shape[1]

    @property
    def real_shape(self) -> tuple[int, ...]:
        """Return the sizes of the real modes."""
        return self.dense_block().shape if self.factors is None else tuple(len(A) for A in self.factors)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the tensor that the atom is a term of."""
        return *self.real_shape[: self.mode], len(self.z), *self.real_shape[self.mode :]

    @property
    def n_ones(self) -> int:
        """Return the number of entries where the atom is on."""
        return int(self.z.sum())

    @property
    def is_baseline(self) -> bool:
        """Return True if the atom is on (almost) everywhere: its bits then say nothing."""
        return self.n_ones >= ALWAYS_ON * len(self.z)

    @property
    def n_parameters(self) -> int:
        """Return the number of free real numbers, the weight included and the bits not.

        Columns scaled against each other, or two matrices of columns that are mixed, give the same real part:
        this freedom is not counted.
        """
        if self.factors is None:
            return int(self.dense_block().size)
        sizes, rank = self.real_shape, self.factors[0].shape[1]
        mixing = rank * (rank - 1) if len(sizes) == 2 else 0  # AB' = (AT)(T^-1 B')
        return rank * (sum(sizes) - len(sizes) + 1) - mixing

    def columns(self, mode: int) -> np.ndarray:
        """Return the columns of the atom along one mode, (d_n, L): its real factor, or z repeated L times.

        Examples
        --------
        >>> import numpy as np
        >>> from boolcp import Atom
        >>> atom = Atom(0, [True, False], (np.array([[0.6], [0.8]]), np.array([[1.0]])))
        >>> atom.columns(0).tolist(), atom.columns(1).tolist()
        ([[1.0], [0.0]], [[0.6], [0.8]])
        """
        if self.factors is None:
            raise ValueError('A block atom (atom_rank="block") has no columns: use dense_block().')
        if mode == self.mode:
            return np.repeat(self.z[:, None].astype(float), self.factors[0].shape[1], axis=1)
        return self.factors[mode - (mode > self.mode)]

    def dense_block(self) -> np.ndarray:
        """Return the real part V as an array over the other modes.

        Examples
        --------
        >>> import numpy as np
        >>> from boolcp import Atom
        >>> Atom(0, [True, False], (np.array([[0.6], [0.8]]), np.array([[1.0]]))).dense_block().tolist()
        [[0.6], [0.8]]
        """
        if self.factors is None:
            return np.asarray(self.block)
        return contractions.khatri_rao(self.factors).sum(axis=1).reshape(self.real_shape)

    def __repr__(self) -> str:
        kind = "block" if self.rank is None else f"rank {self.rank}"
        return f"Atom(mode={self.mode}, {self.n_ones} of {len(self.z)} on, {kind})"


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a view of an array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
