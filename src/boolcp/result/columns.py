"""Columns: a sum of atoms of rank 1, 2, .. as the columns of CP factors, which is what a fit works on."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from boolcp.contractions import gram_product
from boolcp.result.atoms import Atom, BooleanCP

DEAD = 1e-12  # size of an atom, relative to the largest, that counts as none


@dataclass(frozen=True, eq=False)
class Columns:
    """A sum of atoms as the columns of CP factors; the columns of one atom share its bits.

    The Boolean columns are exactly 0 and 1, and the size of an atom is in its real columns.
    """

    matrices: tuple[np.ndarray, ...]  #: One factor (d_n, R) for each mode; R is the sum of the ranks of all atoms.
    owner: np.ndarray  #: The atom of each column, (R,), in increasing order; with atoms of rank one 0, .., K - 1.
    boolean_mode: np.ndarray  #: The Boolean mode of each atom, (K,).
    loss: float = float("inf")  #: |X - W|^2 over the observed entries, if known.
    n_atoms: int = field(init=False, repr=False)  #: The number K of atoms.
    column_mode: np.ndarray = field(init=False, repr=False)  #: The Boolean mode of the atom of each column, (R,).
    is_tied: bool = field(init=False, repr=False)  #: True if some atom has several columns, which share their bits.

    def __post_init__(self) -> None:
        # every array is C-ordered from the start, as one that comes from a file: products then round alike
        matrices = tuple(np.ascontiguousarray(A, dtype=float) for A in self.matrices)
        owner, modes = (np.ascontiguousarray(each, dtype=int) for each in (self.owner, self.boolean_mode))
        self.__dict__.update(matrices=matrices, owner=owner, boolean_mode=modes, loss=float(self.loss))
        self.__dict__.update(n_atoms=len(modes), column_mode=modes[owner], is_tied=len(owner) > len(modes))

    def ties(self, mode: int) -> tuple[np.ndarray | None, np.ndarray]:
        """Return S (R, Q) and which of the Q unknowns of a row are bits: columns along `mode` are unknowns times S'.

        A bit is shared by all columns of its atom. S is None where every column is its own unknown.
        """
        boolean = self.column_mode == mode
        if not self.is_tied:
            return None, boolean
        first = np.append(True, np.diff(self.owner) != 0)
        is_new = first | ~boolean  # a column that brings a new unknown
        place = np.cumsum(is_new) - 1
        S = np.zeros((len(boolean), int(is_new.sum())))
        S[np.arange(len(boolean)), place] = 1
        return S, boolean[is_new]

    def with_matrices(self, matrices: Sequence[np.ndarray], loss: float = float("inf")) -> "Columns":
        """Return the same atoms with other factors."""
        return replace(self, matrices=tuple(matrices), loss=loss)

    def plus(self, other: "Columns") -> "Columns":
        """Return the atoms of both."""
        matrices = [np.hstack(pair) for pair in zip(self.matrices, other.matrices, strict=True)]
        owner = np.append(self.owner, self.n_atoms + other.owner)
        return Columns(tuple(matrices), owner, np.append(self.boolean_mode, other.boolean_mode))

    def take(self, atoms: Sequence[int] | np.ndarray) -> "Columns":
        """Return some of the atoms, in the given order."""
        places = [np.flatnonzero(self.owner == k) for k in atoms]
        columns = np.concatenate([np.zeros(0, dtype=int), *places])
        owner = np.repeat(np.arange(len(places)), [len(own) for own in places])
        return Columns(tuple(A[:, columns] for A in self.matrices), owner, self.boolean_mode[np.asarray(atoms, int)])

    def is_dead(self) -> np.ndarray:
        """Return which atoms c_k M_k are empty or without size, (K,)."""
        if self.is_tied:
            same = self.owner[:, None] == self.owner
            squares = np.bincount(self.owner, np.sum(gram_product(self.matrices) * same, axis=1), self.n_atoms)
            sizes = np.sqrt(np.maximum(squares, 0.0))
        else:
            sizes = np.prod([np.linalg.norm(A, axis=0) for A in self.matrices], axis=0)
        return sizes <= DEAD * max(sizes.max(initial=0.0), 1e-300)

    def to_decomposition(self, keep: np.ndarray | None = None) -> BooleanCP:
        """Return the BooleanCP: real parts of norm one, positive weights, dead atoms (and those not to keep) left out.

        The entry of largest magnitude is positive in every real column but that of the longest mode (the last of
        these), which takes the sign; columns without a negative entry stay so.
        """
        chosen = ~self.is_dead() if keep is None else keep & ~self.is_dead()
        rows = [np.ascontiguousarray(A.T) for A in self.matrices]
        is_bits = self.column_mode == np.arange(len(rows))[:, None]
        sizes = np.where(is_bits, 1.0, [np.linalg.norm(A, axis=1) for A in rows])
        largest = np.array([A[np.arange(len(A)), np.argmax(np.abs(A), axis=1)] for A in rows])
        signs = np.where(largest < 0, -1.0, 1.0)
        is_fixed = is_bits | np.array([(A >= 0).all(axis=1) for A in rows])
        lengths = np.where(is_fixed, -1, [[len(A)] for A in self.matrices])
        longest = len(rows) - 1 - np.argmax(lengths[::-1], axis=0), np.arange(len(self.owner))
        signs[longest] = 1.0
        signs[longest] = np.prod(signs, axis=0)
        signed = signs * np.where(sizes > 0, sizes, 1.0)
        columns, norms = [A / size[:, None] for A, size in zip(rows, signed, strict=True)], np.prod(sizes, axis=0)
        atoms, weights = [], []
        for k in np.flatnonzero(chosen):
            mode, own = int(self.boolean_mode[k]), np.flatnonzero((self.owner == k) & (norms > 0))
            own = own[np.argsort(-norms[own], kind="stable")]
            factors = [np.ascontiguousarray(A[own].T) for n, A in enumerate(columns) if n != mode]
            size = norms[own[0]]
            if len(own) > 1:
                factors[0] = factors[0] * norms[own]
                size = np.sqrt(max(gram_product(factors).sum(), 0.0))
                factors[0] = factors[0] / size
            atoms.append(Atom(mode, columns[mode][own[0]] > 0.5, tuple(factors)))
            weights.append(float(size))
        return BooleanCP(tuple(len(A) for A in self.matrices), tuple(atoms), np.array(weights))


def to_columns(W: BooleanCP) -> Columns:
    """Return the atoms of a decomposition as Columns, the weight of each in its first real column."""
    ranks = np.array([atom.rank for atom in W.atoms], dtype=int)
    owner = np.repeat(np.arange(W.n_atoms), ranks)
    matrices = [np.array(A, dtype=float) for A in W.matrices]
    for column, k in enumerate(owner):
        matrices[1 if W.boolean_mode[k] == 0 else 0][:, column] *= W.weights[k]
    return Columns(tuple(matrices), owner, W.boolean_mode.copy())  # kernels take arrays that can be written to
