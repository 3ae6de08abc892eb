"""Atom and BooleanCP: the two frozen values that results are made of."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from boolcp import contractions
from boolcp.result import exports
from boolcp.result import summary as summaries
from boolcp.result import sums as atom_sums
from boolcp.result.labels import Labels
from boolcp.result.sums import inner_with_atoms as inner_with_atoms


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
        The real part as a sum of L products of columns, one matrix for each other mode in order. None for a block.
    block : ndarray of shape (other modes)
        The real part of a block atom (`atom_rank=None`), dense. None if `factors` is given.
    certificate : float
        The score that z reached divided by an upper bound on the score of any z; nan when it was not computed.

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
    factors: Any = None
    block: Any = None
    certificate: float = float("nan")

    def __post_init__(self):
        if (self.factors is None) == (self.block is None):
            raise ValueError("An atom has either factors or a block: give exactly one of the two.")
        z = np.asarray(self.z)
        if z.ndim != 1 or not np.isin(z, (0, 1)).all():
            raise ValueError("z must be a vector of zeros and ones.")
        object.__setattr__(self, "z", _read_only(z.astype(bool)))
        if self.factors is not None:
            object.__setattr__(self, "factors", tuple(_read_only(np.asarray(A)) for A in self.factors))
        else:
            object.__setattr__(self, "block", _read_only(np.asarray(self.block)))

    @property
    def rank(self):
        """Return the number L of products in the real part, or None for a block."""
        return None if self.factors is None else self.factors[0].shape[1]

    @property
    def n_ones(self):
        """Return the number of entries where the atom is on."""
        return int(self.z.sum())

    def dense_block(self):
        """Return the real part V as an array over the other modes.

        Examples
        --------
        >>> import numpy as np
        >>> from boolcp import Atom
        >>> Atom(0, [True, False], (np.array([[0.6], [0.8]]), np.array([[1.0]]))).dense_block().tolist()
        [[0.6], [0.8]]
        """
        if self.block is not None:
            return self.block
        shape = [len(A) for A in self.factors]
        return contractions.khatri_rao(self.factors).sum(axis=1).reshape(shape)

    def __repr__(self):
        kind = "block" if self.rank is None else f"rank {self.rank}"
        return f"Atom(mode={self.mode}, {self.n_ones} of {len(self.z)} on, {kind})"


@dataclass(frozen=True, eq=False)
class BooleanCP:
    """A decomposition W = sum_k c_k z_k (x) V_k: weights c and atoms that are Boolean along one mode each.

    It can be unpacked as ``weights, factors = decomposition``, as TensorLy and tlviz expect, when all atoms are
    of rank one.

    Parameters
    ----------
    shape : tuple of int
        The shape of the tensor.
    atoms : tuple of Atom
        The atoms, each with a real part of norm one.
    weights : ndarray of shape (K,)
        The weights c.
    labels : Labels, optional
        Names and coordinates of the modes.
    data_norm2 : float, optional
        Squared norm |X|^2 of the decomposed tensor; with `data_inner` it makes shares of variance available.
    data_inner : ndarray of shape (K,), optional
        Inner products <X, M_k> of the decomposed tensor with the atoms.
    data_gram : ndarray of shape (K, K), optional
        Inner products of the atoms over the observed entries, when some are missing.
    undetermined : mapping of int to ndarray of bool, optional
        By mode, the slices without any observed entry. Their real entries are unknown: `factors` and `to_tensor`
        have NaN there, and z is False.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0)
    >>> truth.n_atoms, truth.to_tensor().shape
    (2, (8, 9, 10))
    >>> weights, factors = truth
    >>> [A.shape for A in factors]
    [(8, 2), (9, 2), (10, 2)]
    """

    shape: tuple[int, ...]
    atoms: tuple[Atom, ...] = ()
    weights: Any = field(default_factory=lambda: np.zeros(0))
    labels: Labels | None = None
    data_norm2: Any = None
    data_inner: Any = None
    data_gram: Any = None
    undetermined: Any = None

    def __post_init__(self):
        object.__setattr__(self, "shape", tuple(int(d) for d in self.shape))
        object.__setattr__(self, "atoms", tuple(self.atoms))
        weights = _read_only(np.array(self.weights, dtype=float).reshape(-1))
        object.__setattr__(self, "weights", weights)
        if self.data_inner is not None:
            object.__setattr__(self, "data_inner", _read_only(np.array(self.data_inner, dtype=float)))
        if len(weights) != len(self.atoms):
            raise ValueError(f"There are {len(self.atoms)} atoms but {len(weights)} weights.")
        for atom in self.atoms:
            if len(atom.z) != self.shape[atom.mode]:
                raise ValueError(f"{atom!r} does not fit into the shape {self.shape}.")

    # what it is

    @property
    def n_atoms(self):
        """Return the number K of atoms."""
        return len(self.atoms)

    @property
    def ndim(self):
        """Return the order N."""
        return len(self.shape)

    @property
    def dims(self):
        """Return the names of the modes, or None."""
        return None if self.labels is None else self.labels.dims

    @property
    def boolean_mode(self):
        """Return the Boolean mode of each atom, (K,)."""
        return np.array([atom.mode for atom in self.atoms], dtype=int)

    @property
    def is_block(self):
        """Return True if some real part is a dense block rather than a sum of products."""
        return any(atom.block is not None for atom in self.atoms)

    @property
    def factors(self):
        """Return the list of factor matrices (d_n, K); Boolean columns are exactly 0 and 1. Atoms of rank one only."""
        if any(atom.rank != 1 for atom in self.atoms):
            raise ValueError(
                "These atoms are not of rank one, so they have no factor matrices with one column each. "
                "Use atoms[k].factors or atoms[k].dense_block(), or rank_one_terms() for one column per product."
            )
        if not self.undetermined:
            return list(self._columns)
        factors = [np.array(A) for A in self._columns]
        for mode, slices in self.undetermined.items():
            factors[mode][np.ix_(slices, self.boolean_mode != mode)] = np.nan
        return [_read_only(A) for A in factors]

    def rank_one_terms(self):
        """Return the same tensor with atoms of rank one: an atom of rank L becomes L atoms with the same z.

        Examples
        --------
        >>> import boolcp
        >>> X = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).X
        >>> W = boolcp.decompose(X, 1, atom_rank=2, random_state=0)
        >>> W.n_atoms, W.rank_one_terms().n_atoms
        (1, 2)
        """
        if self.is_block:
            raise ValueError("Block atoms (atom_rank=None) are not sums of products; fit with an integer atom_rank.")
        atoms, weights = [], []
        for atom, weight in zip(self.atoms, self.weights, strict=True):
            for column in range(atom.rank):
                vectors = [A[:, column] for A in atom.factors]
                sizes = [np.linalg.norm(v) for v in vectors]
                if min(sizes) > 0:
                    parts = tuple((v / size)[:, None] for v, size in zip(vectors, sizes, strict=True))
                    atoms.append(replace(atom, factors=parts))
                    weights.append(weight * np.prod(sizes))
        return BooleanCP(self.shape, tuple(atoms), np.array(weights), self.labels)

    def __getitem__(self, index):
        """Return a part of the atoms as a BooleanCP, for a slice, a list of ints or a Boolean mask.

        The integers 0 and 1 give weights and factors, because a CP tensor is a pair to TensorLy and tlviz; a single
        atom is `atoms[k]`, or `decomposition[[k]]` as a decomposition of its own.
        """
        if isinstance(index, int | np.integer):
            return (self.weights, self.factors)[index]
        positions = np.arange(self.n_atoms)[index]
        inner = None if self.data_inner is None else self.data_inner[positions]
        gram = None if self.data_gram is None else self.data_gram[np.ix_(positions, positions)]
        atoms = tuple(self.atoms[k] for k in positions)
        return replace(self, atoms=atoms, weights=self.weights[positions], data_inner=inner, data_gram=gram)

    def __iter__(self):
        yield self.weights
        yield self.factors

    def __len__(self):
        return 2

    # the tensor W and the questions a storage answers (section "The way of the data" of docs/architecture.md)

    @cached_property
    def _columns(self):
        """The matrices (d_n, R), R = sum of ranks, whose column products sum to the atoms without weights."""
        columns = []
        for n, d in enumerate(self.shape):
            parts = []
            for atom in self.atoms:
                if atom.mode == n:
                    parts.append(np.repeat(atom.z[:, None].astype(float), atom.rank, axis=1))
                else:
                    parts.append(atom.factors[n - (n > atom.mode)])
            columns.append(_read_only(np.hstack(parts)) if parts else np.zeros((d, 0)))
        return columns

    @cached_property
    def _column_weights(self):
        return np.repeat(self.weights, [atom.rank for atom in self.atoms])

    @cached_property
    def _groups(self):
        """Block atoms by Boolean mode: {n: (Z (d_n, K_n), weighted blocks (K_n, other modes))}."""
        groups = {}
        for n in sorted(set(self.boolean_mode.tolist())):
            members = np.flatnonzero(self.boolean_mode == n)
            Z = np.stack([self.atoms[k].z for k in members], axis=1).astype(float)
            groups[n] = Z, np.stack([self.weights[k] * self.atoms[k].dense_block() for k in members])
        return groups

    @cached_property
    def squared_norm(self):
        """|W|^2."""
        return max(float(self.weights @ self.inner_products() @ self.weights), 0.0)

    def norm(self):
        """Return the Frobenius norm |W|.

        Examples
        --------
        >>> import boolcp
        >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
        >>> bool(abs(truth.norm() - (truth.to_tensor() ** 2).sum() ** 0.5) < 1e-12)
        True
        """
        return float(np.sqrt(self.squared_norm))

    to_tensor, at = atom_sums.to_tensor, atom_sums.at
    gram, contract, project, mttkrp = atom_sums.gram, atom_sums.contract, atom_sums.project, atom_sums.mttkrp
    inner_products, inner = atom_sums.inner_products, atom_sums.inner

    # what a person reads

    explained, explained_alone = summaries.explained, summaries.explained_alone
    explained_unique, summary = summaries.explained_unique, summaries.summary
    __repr__, _repr_html_ = summaries.repr_text, summaries.html_text
    _observed_gram = summaries.observed_gram

    def mode_name(self, mode):
        """Return the name of a mode: its dimension name if there is one, else its index.

        Examples
        --------
        >>> import boolcp
        >>> X = boolcp.datasets.simulate_ecog(16, 4, trial_ms=200, random_state=0).tensor("rest")
        >>> boolcp.decompose(X, 1, random_state=0).mode_name(0)
        'channel'
        """
        return str(self.dims[mode]) if self.dims else str(mode)

    # files, tables, pictures

    to_xarray, to_dataframe, save = exports.to_xarray, exports.to_dataframe, exports.save
    plot, report = exports.plot, exports.report


def _read_only(array):
    view = array.view()
    view.flags.writeable = False
    return view
