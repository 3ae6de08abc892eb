"""Atom and BooleanCP: the two frozen values that results are made of."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from boolcp import contractions
from boolcp.labels import Labels


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

    def to_tensor(self):
        """Return W as a dense array, NaN in slices that no observed entry determines.

        Examples
        --------
        >>> import boolcp
        >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
        >>> truth.to_tensor().shape
        (8, 9, 10)
        >>> truth[[0]].to_tensor().shape  # one atom alone
        (8, 9, 10)
        """
        W = np.zeros(self.shape)
        if self.n_atoms and not self.is_block:
            first = self._columns[0] * self._column_weights
            np.matmul(first, contractions.khatri_rao(self._columns[1:]).T, out=W.reshape(self.shape[0], -1))
        elif self.n_atoms:
            for n, (Z, blocks) in self._groups.items():
                W += np.moveaxis(np.tensordot(Z, blocks, axes=1), 0, n)
        for mode, slices in (self.undetermined or {}).items():
            np.moveaxis(W, mode, 0)[slices] = np.nan
        return W

    def at(self, indices):
        """Return the entries of W at the rows of `indices` (n, N), (n,).

        Examples
        --------
        >>> import boolcp
        >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
        >>> bool(abs(truth.at([[1, 2, 3]])[0] - truth.to_tensor()[1, 2, 3]) < 1e-12)
        True
        """
        indices = np.asarray(indices)
        values = np.zeros(len(indices))
        if not self.is_block:
            for start in range(0, len(indices), contractions.CHUNK // 8):
                part = slice(start, start + contractions.CHUNK // 8)
                products = np.tile(self._column_weights, (len(values[part]), 1))
                for n, A in enumerate(self._columns):
                    products *= A[indices[part, n]]
                values[part] = products.sum(axis=1)
            return values
        for atom, weight in zip(self.atoms, self.weights, strict=True):
            others = tuple(indices[:, n] for n in range(self.ndim) if n != atom.mode)
            values += weight * atom.z[indices[:, atom.mode]] * atom.dense_block()[others]
        return values

    def gram(self, mode):
        """Return W_n W_n' (d_n, d_n), W_n the unfolding of W along `mode`.

        Examples
        --------
        >>> import boolcp
        >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
        >>> truth.gram(1).shape
        (9, 9)
        """
        if not self.is_block:
            A = self._columns[mode] * self._column_weights
            return A @ contractions.gram_product(self._columns, mode) @ A.T
        d, groups = self.shape[mode], self._groups
        total = np.zeros((d, d))
        for m, (Z, blocks) in groups.items():
            for l, (Y, others) in groups.items():
                if m == l == mode:
                    total += Z @ (blocks.reshape(len(blocks), -1) @ others.reshape(len(others), -1).T) @ Y.T
                elif m == l:
                    rows = np.moveaxis(blocks, 1 + mode - (mode > m), 0).reshape(d, len(blocks), -1)
                    total += np.einsum("ikr,jkr->ij", np.einsum("ikr,kl->ilr", rows, Z.T @ Y), rows, optimize=True)
                elif l == mode:
                    total += self._cross_gram(m, l, mode)
                elif m != mode and m < l:
                    cross = self._cross_gram(m, l, mode)
                    total += cross + cross.T
        if mode in groups:  # the transposes of the pairs (m, mode)
            for m in groups:
                if m != mode:
                    total += self._cross_gram(m, mode, mode).T
        return total

    def _cross_gram(self, m, l, mode):
        """Return the product of the unfoldings along `mode` of the atoms of Boolean modes m and l, m != l."""
        (Z, blocks), (Y, others) = self._groups[m], self._groups[l]
        V = np.tensordot(blocks, Y, axes=([1 + l - (l > m)], [0]))  # (K_m, rest without m and l, K_l)
        U = np.tensordot(others, Z, axes=([1 + m - (m > l)], [0]))  # (K_l, rest without l and m, K_m)
        rest = [n for n in range(self.ndim) if n not in (m, l)]
        if mode == l:
            # the pair meets in the modes of `rest`; mode l stays open in V's place through `blocks`
            open_blocks = np.moveaxis(blocks, 1 + l - (l > m), 0).reshape(self.shape[l], -1)
            kernel = np.moveaxis(U, -1, 0).reshape(Z.shape[1], Y.shape[1], -1).transpose(0, 2, 1)
            return open_blocks @ kernel.reshape(-1, Y.shape[1]) @ Y.T
        at = 1 + rest.index(mode)
        left = np.moveaxis(V, at, 0).reshape(self.shape[mode], V.shape[0], -1, V.shape[-1])
        right = np.moveaxis(U, at, 0).reshape(self.shape[mode], U.shape[0], -1, U.shape[-1])
        return np.einsum("ikrl,jlrk->ij", left, right, optimize=True)

    def contract(self, mode, Z):
        """Return sum_i W[.., i, ..] Z[i, k], (K', other modes), for Z (d_n, K').

        Examples
        --------
        >>> import numpy as np, boolcp
        >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
        >>> truth.contract(0, np.ones((8, 1))).shape  # the sum over mode 0
        (1, 9, 10)
        """
        others = self.shape[:mode] + self.shape[mode + 1 :]
        Z = np.asarray(Z, dtype=float)
        if not self.is_block:
            coefficients = Z.T @ (self._columns[mode] * self._column_weights)
            first, *rest = (A for m, A in enumerate(self._columns) if m != mode)
            if not rest:
                return coefficients @ first.T
            product = contractions.khatri_rao(rest).T
            return np.stack([(first * row) @ product for row in coefficients]).reshape(-1, *others)
        total = np.zeros((Z.shape[1], *others))
        for m, (Y, blocks) in self._groups.items():
            if m == mode:
                total += np.tensordot(Z.T @ Y, blocks, axes=1)
            else:
                part = np.tensordot(Z.T, blocks, axes=([1], [1 + mode - (mode > m)]))  # (K', K_m, rest)
                total += np.moveaxis(np.tensordot(part, Y, axes=([1], [1])), -1, 1 + m - (m > mode))
        return total

    def project(self, mode, blocks):
        """Return W_n vec(V_k) (d_n, K') for blocks V_k of the other modes, (K', other modes).

        Examples
        --------
        >>> import numpy as np, boolcp
        >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
        >>> truth.project(0, np.ones((1, 9, 10))).shape
        (8, 1)
        """
        blocks = np.asarray(blocks, dtype=float)
        if not self.is_block:
            rest = [A for m, A in enumerate(self._columns) if m != mode]
            inner = contractions.khatri_rao(rest).T @ blocks.reshape(len(blocks), -1).T
            return (self._columns[mode] * self._column_weights) @ inner
        total = np.zeros((self.shape[mode], len(blocks)))
        for m, (Y, own) in self._groups.items():
            if m == mode:
                total += Y @ (own.reshape(len(own), -1) @ blocks.reshape(len(blocks), -1).T)
            else:
                part = np.tensordot(Y, blocks, axes=([0], [1 + m - (m > mode)]))  # (K_m, K', rest)
                own = np.moveaxis(own, 1 + mode - (mode > m), 0).reshape(self.shape[mode], -1)
                part = np.moveaxis(part, 1, -1).reshape(-1, len(blocks))
                total += own @ part
        return total

    def mttkrp(self, factors, mode):
        """Return W_n (khatri-rao of `factors` without `mode`), (d_n, K').

        Examples
        --------
        >>> import boolcp
        >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
        >>> truth.mttkrp(truth.factors, 0).shape
        (8, 2)
        """
        if self.is_block:
            rest = [A for m, A in enumerate(factors) if m != mode]
            shape = [len(A) for A in rest]
            return self.project(mode, contractions.khatri_rao(rest).T.reshape(-1, *shape))
        inner = contractions.gram_product(self._columns, mode, factors)
        return (self._columns[mode] * self._column_weights) @ inner

    def inner_products(self, atoms=None):
        """Return <M_k, M_l> (K, K') between the atoms of this decomposition and `atoms` (its own by default).

        Examples
        --------
        >>> import boolcp
        >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
        >>> truth.inner_products().round(2).tolist()  # the diagonal has the numbers of ones
        [[3.0, -0.1], [-0.1, 3.0]]
        """
        own = atoms is None
        atoms = self.atoms if own else tuple(atoms)
        if not atoms or not self.atoms:
            return np.zeros((self.n_atoms, len(atoms)))
        if self.is_block or any(atom.block is not None for atom in atoms):
            return np.array([[_inner(first, second) for second in atoms] for first in self.atoms])
        second = self if own else BooleanCP(self.shape, atoms, np.ones(len(atoms)))
        H = contractions.gram_product(self._columns, None, second._columns)
        return _sum_groups(_sum_groups(H, [a.rank for a in self.atoms]).T, [a.rank for a in atoms]).T

    def inner(self, X):
        """Return <W, X> for an array or another BooleanCP.

        Examples
        --------
        >>> import boolcp
        >>> truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, random_state=0).truth
        >>> bool(abs(truth.inner(truth) - truth.norm() ** 2) < 1e-9)
        True
        """
        if isinstance(X, BooleanCP):
            return float(self.weights @ self.inner_products(X.atoms) @ X.weights)
        X = np.asarray(X)
        X = X if X.dtype.kind == "f" else X.astype(float)  # sums of small integers overflow, of bools saturate
        if X.shape != self.shape:
            raise ValueError(f"X has shape {X.shape}, the decomposition has {self.shape}.")
        return float(self.weights @ inner_with_atoms(X, self.atoms))

    # what a person reads

    def explained(self):
        """Return the share of |X|^2 (over the observed entries) that is explained, 1 - |X - W|^2 / |X|^2.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
        >>> W = boolcp.decompose(X, 2, random_state=0)
        >>> round(W.explained(), 2)
        0.99
        """
        G = self._observed_gram()
        loss = self.data_norm2 - 2 * self.weights @ self.data_inner + self.weights @ G @ self.weights
        return float(1 - max(loss, 0.0) / self.data_norm2) if self.data_norm2 else 1.0

    def explained_alone(self):
        """Return for each atom the share of |X|^2 that it would explain alone, (K,).

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
        >>> W = boolcp.decompose(X, 2, random_state=0)
        >>> W.explained_alone().round(2).tolist()
        [0.68, 0.28]
        """
        G = self._observed_gram()
        return self.data_inner**2 / np.diag(G) / self.data_norm2

    def explained_unique(self):
        """Return for each atom the share of |X|^2 lost without it, the other weights solved anew, (K,).

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
        >>> W = boolcp.decompose(X, 2, random_state=0)
        >>> W.explained_unique().round(2).tolist()
        [0.71, 0.31]
        """
        G = self._observed_gram()
        best = _quadratic_form(G, self.data_inner)
        keep = ~np.eye(self.n_atoms, dtype=bool)
        without = [_quadratic_form(G[np.ix_(k, k)], self.data_inner[k]) for k in keep]
        return np.array([max(best - value, 0.0) for value in without]) / self.data_norm2

    def _observed_gram(self):
        """Return <M_k, M_l> over the entries of the data, (K, K)."""
        self._need_data()
        return self.inner_products() if self.data_gram is None else self.data_gram

    def _need_data(self):
        if self.data_norm2 is None or self.data_inner is None:
            raise ValueError("Shares of variance need the data: only a decomposition that was fitted has them.")

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

    def summary(self):
        """Return a table as text: mode, ones, weight, explained and unique share, certificate of each atom.

        *alone* is the share of variance that the atom explains by itself, *unique* the share that is lost
        without it, and *certificate* says which part of the best possible score its z is proved to reach.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
        >>> W = boolcp.decompose(X, 2, random_state=0)
        >>> print(W.summary())
        2 atoms of a 8 x 9 x 10 tensor, 98.70 % of the variance explained
        atom  mode  ones  rank  weight   alone  unique  certificate
           0     1   3/9     1   11.26  67.6 %  71.0 %       99.8 %
           1     0   3/8     1   7.451  27.7 %  31.1 %       99.5 %
        """
        has_data = self.data_norm2 is not None and self.data_inner is not None and self.n_atoms > 0
        alone = self.explained_alone() if has_data else np.full(self.n_atoms, np.nan)
        unique = self.explained_unique() if has_data else np.full(self.n_atoms, np.nan)
        head = ("atom", "mode", "ones", "rank", "weight", "alone", "unique", "certificate")
        rows = [head]
        for k, atom in enumerate(self.atoms):
            rank = "block" if atom.rank is None else str(atom.rank)
            ones = f"{atom.n_ones}/{len(atom.z)}"
            shares = [_percent(alone[k]), _percent(unique[k]), _percent(atom.certificate)]
            rows.append((str(k), self.mode_name(atom.mode), ones, rank, f"{self.weights[k]:.4g}", *shares))
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
        share = "" if self.data_gram is None else " of the observed entries"
        total = f", {100 * self.explained():.2f} % of the variance{share} explained" if has_data else ""
        return "\n".join([f"{self._count_text()} of a {self._shape_text()} tensor{total}", *lines])

    # files and tables

    def to_xarray(self):
        """Return the decomposition as an xarray Dataset with the dims and coordinates of its tensor.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
        >>> W = boolcp.decompose(X, 2, random_state=0)
        >>> sorted(W.to_xarray().data_vars)[:3]
        ['alone', 'boolean_mode', 'certificate']
        >>> W.to_xarray()["factor_mode0"].shape
        (8, 2)
        """
        from boolcp.labels import to_xarray

        return to_xarray(self)

    def to_dataframe(self):
        """Return one row for each atom as a pandas DataFrame.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
        >>> W = boolcp.decompose(X, 2, random_state=0)
        >>> W.to_dataframe().columns.tolist()
        ['boolean_mode', 'n_ones', 'size', 'rank', 'weight', 'certificate', 'alone', 'unique']
        """
        from boolcp.labels import to_dataframe

        return to_dataframe(self)

    def save(self, path, *, overwrite=False):
        """Save the decomposition in one netCDF file, which `boolcp.load` reads.

        Examples
        --------
        >>> import tempfile, boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
        >>> W = boolcp.decompose(X, 2, random_state=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     W.save(f"{folder}/result.nc")
        ...     boolcp.load(f"{folder}/result.nc")
        BooleanCP(8 x 9 x 10, 2 atoms: 1 along mode 0, 1 along mode 1, 0 along mode 2, explained 0.9870)
        """
        from boolcp.io.results import save

        save(self, path, overwrite=overwrite)

    def plot(self, atoms=None):
        """Draw all atoms, or those listed, and return the matplotlib Figure: one row for each, one column per mode.

        Examples
        --------
        >>> import boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
        >>> W = boolcp.decompose(X, 2, random_state=0)
        >>> len(W.plot().axes) >= 6  # two atoms, three modes
        True
        """
        from boolcp.plotting import plot_atoms

        return plot_atoms(self, atoms)

    def report(self, path, *, force=False):
        """Write one self-contained HTML page on the decomposition.

        Examples
        --------
        >>> import tempfile, boolcp
        >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
        >>> W = boolcp.decompose(X, 2, random_state=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     W.report(f"{folder}/report.html")
        ...     "<html" in open(f"{folder}/report.html", encoding="utf-8").read()
        True
        """
        from boolcp.report import write_report

        write_report(self, path, force=force)

    def _count_text(self):
        return "1 atom" if self.n_atoms == 1 else f"{self.n_atoms} atoms"

    def _shape_text(self):
        sizes = [f"{d} {name}" for d, name in zip(self.shape, self.dims, strict=True)] if self.dims else self.shape
        return " x ".join(str(size) for size in sizes)

    def __repr__(self):
        counts = [f"{(self.boolean_mode == n).sum()} along mode {self.mode_name(n)}" for n in range(self.ndim)]
        explained = f", explained {self.explained():.4f}" if self.data_norm2 and self.data_inner is not None else ""
        return f"BooleanCP({self._shape_text()}, {self._count_text()}: {', '.join(counts)}{explained})"


def inner_with_atoms(X, atoms):
    """Return <X, M_k> (K,) for a dense array or anything that answers `contract`."""
    inner = np.empty(len(atoms))
    for mode in {atom.mode for atom in atoms}:
        members = [k for k, atom in enumerate(atoms) if atom.mode == mode]
        Z = np.stack([atoms[k].z for k in members], axis=1).astype(float)
        blocks = (
            contractions.contract(np.ascontiguousarray(X), mode, Z)
            if isinstance(X, np.ndarray)
            else X.contract(mode, Z)
        )
        for k, block in zip(members, blocks, strict=True):
            inner[k] = np.vdot(block, atoms[k].dense_block())
    return inner


def _inner(first, second):
    """Return <M, M'> of two atoms through their dense blocks."""
    V, U = first.dense_block(), second.dense_block()
    if first.mode == second.mode:
        return float(first.z @ second.z.astype(float)) * float(np.vdot(V, U))
    V = np.tensordot(V, second.z.astype(float), axes=([second.mode - (second.mode > first.mode)], [0]))
    U = np.tensordot(U, first.z.astype(float), axes=([first.mode - (first.mode > second.mode)], [0]))
    return float(np.vdot(V, U))


def _sum_groups(H, sizes):
    """Return H with consecutive groups of rows summed."""
    return np.add.reduceat(H, np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int), axis=0)


def _quadratic_form(G, b):
    """Return b' G^+ b."""
    return float(b @ np.linalg.lstsq(G, b, rcond=None)[0]) if len(b) else 0.0


def _percent(share):
    return "-" if np.isnan(share) else f"{100 * share:.1f} %"


def _read_only(array):
    view = array.view()
    view.flags.writeable = False
    return view
