"""Atom and BooleanCP: a pattern that is on or off along one mode, and the sum of such atoms that a fit returns."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from boolcp import contractions
from boolcp.contractions import gram_product, khatri_rao
from boolcp.result import summary as texts
from boolcp.result.labels import Labels, labelled
from boolcp.result.noise import Noise
from boolcp.result.trust import Deviance, Trust, UncertainBit

ALWAYS_ON = 0.9  # share of ones from which an atom is a baseline; not tuned
# of a decomposition, for the mathematics: tab completion leaves them out
INNER = {"blocks", "column_weights", "contract", "data_gram", "data_inner", "data_norm2", "deviance", "gram"}
INNER |= {"inner", "inner_products", "is_block", "matrices", "members", "mttkrp", "observed_gram", "project"}
INNER |= {"squared_error", "squared_norm", "to_array", "undetermined"}


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a view of an array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


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
    >>> atom = boolcp.Atom(0, [True, False, True], (np.array([[0.6], [0.8]]), np.array([[1.0]])))
    >>> atom, atom.columns(0).tolist(), atom.dense_block().tolist()
    (Atom(mode=0, 2 of 3 on, rank 1), [[1.0], [0.0], [1.0]], [[0.6], [0.8]])
    """

    mode: int
    z: np.ndarray
    factors: tuple[np.ndarray, ...] | None = None
    block: np.ndarray | None = None
    certificate: float = float("nan")
    rank: int | None = field(init=False)  #: The number L of products in the real part; None for a block.
    real_shape: tuple[int, ...] = field(init=False)  #: The sizes of the real modes.
    n_ones: int = field(init=False)  #: The number of entries where the atom is on.

    if TYPE_CHECKING:  # array-likes become read-only arrays

        def __init__(self, mode: int, z: ArrayLike, factors: Any = None, block: Any = None, certificate: Any = 0): ...

    def __post_init__(self) -> None:
        if (self.factors is None) == (self.block is None):
            raise ValueError("An atom has either factors or a block: pass exactly one of the two.")
        z = np.asarray(self.z)
        if z.ndim != 1 or not (z.dtype == bool or np.isin(z, (0, 1)).all()):
            raise ValueError("z must be a vector of zeros and ones.")
        z = read_only(z.astype(bool))
        if self.factors is None:
            block = read_only(np.asarray(self.block))
            found: dict[str, Any] = {"block": block, "rank": None, "real_shape": block.shape}
        else:
            factors = tuple(read_only(np.asarray(A)) for A in self.factors)
            found = {"factors": factors, "rank": factors[0].shape[1], "real_shape": tuple(len(A) for A in factors)}
        self.__dict__.update(found, z=z, n_ones=int(z.sum()))  # the instance is frozen

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the tensor that the atom is a term of."""
        return *self.real_shape[: self.mode], len(self.z), *self.real_shape[self.mode :]

    @property
    def is_baseline(self) -> bool:
        """Return True if the atom is on (almost) everywhere: its bits then say nothing."""
        return self.n_ones >= ALWAYS_ON * len(self.z)

    @property
    def n_parameters(self) -> int:
        """Return the number of free real numbers, the weight included and the bits not.

        Columns scaled against each other, or mixed in two matrices, give the same real part, which is not counted.
        """
        sizes, rank = self.real_shape, self.rank
        if rank is None:
            return math.prod(sizes)
        mixing = rank * (rank - 1) if len(sizes) == 2 else 0  # AB' = (AT)(T^-1 B')
        return min(rank * (sum(sizes) - len(sizes) + 1) - mixing, math.prod(sizes))

    def columns(self, mode: int) -> np.ndarray:
        """Return the columns of the atom along one mode, (d_n, L): its real factor, or z repeated L times."""
        if self.factors is None:
            raise ValueError('A block atom (atom_rank="block") has no columns: use dense_block().')
        if mode == self.mode:
            return np.repeat(self.z[:, None].astype(float), self.factors[0].shape[1], axis=1)
        return self.factors[mode - (mode > self.mode)]

    def dense_block(self) -> np.ndarray:
        """Return the real part V as an array over the other modes."""
        if self.factors is None:
            return np.asarray(self.block)
        return khatri_rao(self.factors).sum(axis=1).reshape(self.real_shape)

    def __repr__(self) -> str:
        kind = "block" if self.rank is None else f"rank {self.rank}"
        return f"Atom(mode={self.mode}, {self.n_ones} of {len(self.z)} on, {kind})"


@dataclass(frozen=True, eq=False)
class BooleanCP:
    """A decomposition W = sum_k c_k z_k (x) V_k: weights c and atoms that are Boolean along one mode each.

    ``W[k]`` is an atom, and ``weights, factors = W`` the pair that functions of TensorLy take, if all atoms have rank
    one. What takes a CP tensor apart by ``cp[0]`` and ``cp[1]``, such as tlviz, needs `boolcp.interop.to_tensorly`.

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
    data_norm2, data_inner : float, ndarray of shape (K,), optional
        |X|^2 and <X, M_k> of the decomposed tensor, which shares of variance need.
    data_gram : ndarray of shape (K, K), optional
        Inner products of the atoms over the observed entries, if some entries are missing.
    undetermined : mapping of int to ndarray of bool, optional
        For each mode, the slices without any observed entry. Their real entries are unknown: `factors` and
        `to_tensor` have NaN there, and z is False.
    trust : Trust, optional
        Measures of trust in atoms and bits, from the fit and `boolcp.assess`.
    mean : ndarray of size 1 along the Boolean mode, optional
        A dense part that is there in every slice, like an intercept. `to_tensor` has it; shares are of what varies.
    noise : Noise, optional
        The covariance of the noise along the real modes, if the fit had one.
    parameters : mapping, optional
        The parameters of the BMP that fitted it, which every function that fits again uses.
    deviance : Deviance, optional
        How well it fits under a loss that is not the sum of squares. Shares are then those of the deviance.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
    >>> W = boolcp.decompose(X, 2, random_state=0)
    >>> weights, factors = W
    >>> [A.shape for A in factors]
    [(8, 2), (9, 2), (10, 2)]

    What it explains of the data, alone and in addition to the other atoms; how sure the bits are; tables and a plot:

    >>> round(W.explained(), 2), W.explained_alone().round(2).tolist(), W.explained_unique().round(2).tolist()
    (0.99, [0.68, 0.28], [0.71, 0.31])
    >>> [round(atom.certificate, 2) for atom in W.certify(X).atoms], [float(p[0].round(2)) for p in W.bit_confidence()]
    ([1.0, 1.0], [1.0, 1.0])
    >>> W.uncertain_bits(), W.to_dataframe().shape, W.to_xarray()["factor_mode0"].shape, len(W.plot([0]).axes)
    ([], (2, 11), (8, 2), 3)

    Where atoms are on: as intervals, how often and how long, from atom to atom along a mode, and as labels:

    >>> W.events().shape, W.occurrences().shape, W.transitions(0).shape, W.where_on(1)
    ((3, 6), (2, 4), (1, 1), [1, 2, 3])

    The sum of its atoms as an array, and products of it that do not form the array:

    >>> W.to_tensor().shape, round(W.norm(), 2), round(W.inner(W), 2)
    ((8, 9, 10), 22.98, 528.13)
    >>> W.gram(1).shape, W.contract(0, np.ones((8, 1))).shape, W.project(0, np.ones((1, 9, 10))).shape
    ((9, 9), (1, 9, 10), (8, 1))
    >>> W.mttkrp(factors, 0).shape, W.inner_products().shape, W.observed_gram().shape
    ((8, 2), (2, 2), (2, 2))
    >>> W.rank_one_terms().n_atoms, W.mode_name(0), W.to_array().shape
    (2, '0', (8, 9, 10))

    Files: a result that `boolcp.load` reads, and a page to look at:

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> W.save(f"{folder}/result.nc")
    >>> W.report(f"{folder}/result.html")
    """

    shape: tuple[int, ...]
    atoms: tuple[Atom, ...] = ()
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0))
    labels: Labels | None = None
    data_norm2: float | None = None
    data_inner: np.ndarray | None = None
    data_gram: np.ndarray | None = None
    undetermined: Mapping[int, np.ndarray] | None = None
    trust: Trust | None = None
    deviance: Deviance | None = None
    mean: np.ndarray | None = None
    noise: Noise | None = None
    parameters: Mapping[str, Any] | None = None
    ndim: int = field(init=False)  #: The order N.
    n_atoms: int = field(init=False)  #: The number K of atoms.
    boolean_mode: np.ndarray = field(init=False)  #: The Boolean mode of each atom, (K,).
    is_block: bool = field(init=False)  #: True if some real part is a dense block rather than a sum of products.
    dims: tuple[str, ...] | None = field(init=False)  #: The names of the modes, or None.

    if TYPE_CHECKING:  # array-likes become read-only arrays

        def __init__(self, shape: Any, atoms: Sequence[Atom] = (), weights: ArrayLike = (), *rest: Any, **how: Any): ...

    def __post_init__(self) -> None:
        shape, atoms = tuple(int(d) for d in self.shape), tuple(self.atoms)
        weights = read_only(np.array(self.weights, dtype=float).reshape(-1))
        if len(weights) != len(atoms):
            raise ValueError(f"There are {len(atoms)} atoms but {len(weights)} weights.")
        for atom in atoms:
            if len(atom.z) != shape[atom.mode]:
                raise ValueError(f"{atom!r} does not fit into the shape {shape}.")
        inner = None if self.data_inner is None else read_only(np.array(self.data_inner, dtype=float))
        modes = read_only(np.array([atom.mode for atom in atoms], dtype=int))
        known = {"shape": shape, "atoms": atoms, "weights": weights, "data_inner": inner, "ndim": len(shape)}
        is_block = any(atom.block is not None for atom in atoms)
        dims = None if self.labels is None else self.labels.dims
        self.__dict__.update(known, n_atoms=len(atoms), boolean_mode=modes, is_block=is_block, dims=dims)

    # what it is

    @property
    def members(self) -> dict[int, np.ndarray]:
        """Return which atoms are Boolean along each mode, in order, for the modes that have some."""
        return {n: np.flatnonzero(self.boolean_mode == n) for n in sorted(set(self.boolean_mode.tolist()))}

    @property
    def n_parameters(self) -> int:
        """Return the number of free real numbers of all atoms, the weights included and the bits not."""
        return sum(atom.n_parameters for atom in self.atoms)

    @property
    def n_bits(self) -> int:
        """Return the number of bits of all atoms."""
        return sum(len(atom.z) for atom in self.atoms)

    @property
    def factors(self) -> list[np.ndarray]:
        """Return the list of factor matrices (d_n, K); Boolean columns are exactly 0 and 1. Atoms of rank one only."""
        if any(atom.rank != 1 for atom in self.atoms):
            advice = "Use atoms[k].factors or atoms[k].dense_block(), or rank_one_terms() for one column per product."
            raise ValueError(f"Atoms that are not of rank one have no factor matrices with one column each. {advice}")
        if not self.undetermined:
            return list(self.matrices)
        factors = [np.array(A) for A in self.matrices]
        for mode, slices in self.undetermined.items():
            factors[mode][np.ix_(slices, self.boolean_mode != mode)] = np.nan
        return [read_only(A) for A in factors]

    def rank_one_terms(self) -> "BooleanCP":
        """Return the same tensor with atoms of rank one: an atom of rank L becomes L atoms with the same z."""
        atoms, weights = [], []
        for atom, weight in zip(self.atoms, self.weights, strict=True):
            if atom.factors is None:
                raise ValueError("Block atoms are not sums of products; fit with an integer atom_rank.")
            for vectors in zip(*(A.T for A in atom.factors), strict=True):
                sizes = [np.linalg.norm(v) for v in vectors]
                if min(sizes) > 0:
                    parts = tuple((v / size)[:, None] for v, size in zip(vectors, sizes, strict=True))
                    atoms.append(replace(atom, factors=parts))
                    weights.append(weight * np.prod(sizes))
        return BooleanCP(self.shape, tuple(atoms), np.array(weights), self.labels)

    def __getitem__(self, index: Any) -> Any:
        """Return an Atom for an integer; some of the atoms as a BooleanCP for a slice, a list of ints or a mask."""
        if isinstance(index, int | np.integer):
            return self.atoms[index]
        positions = np.arange(self.n_atoms)[index]
        parts: dict[str, Any] = {"atoms": tuple(self.atoms[k] for k in positions), "weights": self.weights[positions]}
        if self.data_inner is not None:
            parts["data_inner"] = self.data_inner[positions]
        if self.data_gram is not None:
            parts["data_gram"] = self.data_gram[np.ix_(positions, positions)]
        for name in ("trust", "deviance"):
            if getattr(self, name) is not None:
                parts[name] = getattr(self, name).take(positions)
        return replace(self, **parts)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.weights, self.factors))

    def __len__(self) -> int:
        return self.n_atoms

    def __bool__(self) -> bool:
        return True

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in INNER]

    # what its atoms are made of, as arrays: the mathematics works on these

    @cached_property
    def matrices(self) -> tuple[np.ndarray, ...]:
        """Matrices (d_n, R), one for each mode, whose column products sum to the atoms without their weights.

        R is the sum of the ranks: the L columns of an atom of rank L stand side by side, and along its Boolean mode
        they all are z. Dense blocks have no columns.
        """
        if not self.atoms:
            return tuple(read_only(np.zeros((d, 0))) for d in self.shape)
        return tuple(read_only(np.hstack([atom.columns(n) for atom in self.atoms])) for n in range(self.ndim))

    @cached_property
    def column_weights(self) -> np.ndarray:
        """The weight of each column of `matrices`, that of its atom, (R,)."""
        return np.repeat(self.weights, [atom.rank or 0 for atom in self.atoms])

    @cached_property
    def blocks(self) -> np.ndarray:
        """The sum of the atoms as an array, for blocks, which are as large as that."""
        parts = []
        for n, members in self.members.items():
            Z = np.stack([self.atoms[k].z for k in members], axis=1).astype(float)
            V = np.stack([self.weights[k] * self.atoms[k].dense_block() for k in members])
            right = math.prod(self.shape[n + 1 :])  # the sum is (left, d, right) around the mode
            V = V.reshape(len(members), -1, right)
            part = V[..., 0].T @ Z.T if right == 1 else np.matmul(Z, V.transpose(1, 0, 2))
            parts.append(part.reshape(self.shape))
        return sum(parts[1:], parts[0])

    # the tensor W: the questions that a storage answers, without an array as large as W

    @cached_property
    def squared_norm(self) -> float:
        """|W|^2."""
        return max(float(self.weights @ self.inner_products() @ self.weights), 0.0)

    def norm(self) -> float:
        """Return the Frobenius norm |W|."""
        return float(np.sqrt(self.squared_norm))

    def to_tensor(self) -> Any:
        """Return W as a dense array, NaN in slices that no observed entry determines; a DataArray if W has labels."""
        return labelled(self.to_array(), self.labels)

    def to_array(self) -> np.ndarray:
        """Return W as a dense array without labels."""
        X = np.array(self.blocks) if self.is_block else np.zeros(self.shape)
        if self.atoms and not self.is_block:
            first = self.matrices[0] * self.column_weights
            np.matmul(first, khatri_rao(self.matrices[1:]).T, out=X.reshape(self.shape[0], -1))
        if self.mean is not None:
            X += self.mean
        for mode, slices in (self.undetermined or {}).items():
            np.moveaxis(X, mode, 0)[slices] = np.nan
        return X

    def gram(self, mode: int) -> np.ndarray:
        """Return W_n W_n' (d_n, d_n), where W_n is the unfolding of W along `mode`."""
        if self.is_block:
            return contractions.gram(self.blocks, mode)
        A = self.matrices[mode] * self.column_weights
        return A @ gram_product(self.matrices, mode) @ A.T

    def contract(self, mode: int, Z: ArrayLike) -> np.ndarray:
        """Return sum_i W[.., i, ..] Z[i, k], (K', other modes), for Z (d_n, K')."""
        Z, others = np.asarray(Z, dtype=float), self.shape[:mode] + self.shape[mode + 1 :]
        if self.is_block:
            return contractions.contract(self.blocks, mode, Z)
        coefficients = Z.T @ (self.matrices[mode] * self.column_weights)
        first, *rest = (A for m, A in enumerate(self.matrices) if m != mode)
        if not rest or len(self.column_weights) <= Z.shape[1]:  # products of all others are no larger than the result
            product = khatri_rao([first, *rest])
            # in the memory order that the same answer of an array has
            blocks = (product @ coefficients.T).T if mode == self.ndim - 1 else coefficients @ product.T
        else:
            blocks = (coefficients[:, None] * first) @ khatri_rao(rest).T
        return blocks.reshape(-1, *others)

    def project(self, mode: int, blocks: ArrayLike) -> np.ndarray:
        """Return W_n vec(V_k) (d_n, K') for blocks V_k of the other modes, (K', other modes)."""
        blocks = np.asarray(blocks, dtype=float)
        if self.is_block:
            return contractions.project(self.blocks, mode, blocks)
        rest = [A for m, A in enumerate(self.matrices) if m != mode]
        return (self.matrices[mode] * self.column_weights) @ (khatri_rao(rest).T @ blocks.reshape(len(blocks), -1).T)

    def mttkrp(self, factors: Sequence[np.ndarray], mode: int) -> np.ndarray:
        """Return W_n (khatri-rao of `factors` without `mode`), (d_n, K')."""
        if self.is_block:
            return contractions.mttkrp(self.blocks, factors, mode)
        return (self.matrices[mode] * self.column_weights) @ gram_product(self.matrices, mode, factors)

    def inner_products(self, atoms: Sequence[Atom] | None = None) -> np.ndarray:
        """Return <M_k, M_l> (K, K') between the atoms of this decomposition and `atoms` (its own by default)."""
        other = self if atoms is None else BooleanCP(self.shape, tuple(atoms), np.ones(len(atoms)))
        if not other.atoms or not self.atoms:
            return np.zeros((self.n_atoms, other.n_atoms))
        if self.is_block or other.is_block:
            return np.array([[inner_of_blocks(M, N) for N in other.atoms] for M in self.atoms])
        H = gram_product(self.matrices, None, other.matrices)
        for axis, each in enumerate((self.atoms, other.atoms)):  # sums over the columns of each atom
            H = np.add.reduceat(H, np.cumsum([0, *(atom.rank or 0 for atom in each[:-1])]), axis=axis)
        return H

    def inner(self, X: "ArrayLike | BooleanCP") -> float:
        """Return <W, X> for an array or another BooleanCP."""
        if isinstance(X, BooleanCP):
            return float(self.weights @ self.inner_products(X.atoms) @ X.weights)
        X = np.asarray(X)
        X = X if X.dtype.kind == "f" else X.astype(float)  # sums of small integers overflow, of bools saturate
        if X.shape != self.shape:
            raise ValueError(f"X has shape {X.shape}, but the decomposition has shape {self.shape}.")
        return float(self.weights @ inner_with_atoms(X, self.atoms))

    # what it explains of the data

    @property
    def squared_error(self) -> float:
        """Return |X - W|^2 over the observed entries, from inner products."""
        norm2, b, G = self._fitted_to()
        return max(float(norm2 - 2 * self.weights @ b + self.weights @ G @ self.weights), 0.0)

    def observed_gram(self) -> np.ndarray:
        """Return <M_k, M_l> over the observed entries of the data, (K, K)."""
        return self._fitted_to()[2]

    def explained(self) -> float:
        """Return the share of |X|^2 (over the observed entries) that W explains, 1 - |X - W|^2 / |X|^2."""
        if self.deviance is not None:
            return self.deviance.explained
        error = self.squared_error
        return 1 - error / self.data_norm2 if self.data_norm2 else 1.0

    def explained_alone(self) -> np.ndarray:
        """Return for each atom the share of |X|^2 that it would explain alone, (K,)."""
        if self.deviance is not None:
            return np.full(self.n_atoms, np.nan)
        norm2, b, G = self._fitted_to()
        return b**2 / np.diag(G) / norm2

    def explained_unique(self) -> np.ndarray:
        """Return for each atom how much more of |X|^2 is explained than without it, other weights recomputed, (K,)."""
        if self.deviance is not None:
            return self.deviance.unique
        norm2, b, G = self._fitted_to()
        others = ~np.eye(len(b), dtype=bool)
        without = [b[k] @ np.linalg.lstsq(G[k][:, k], b[k], rcond=None)[0] for k in others]
        return np.maximum(norm2 - self.squared_error - np.array(without), 0.0) / norm2

    def _fitted_to(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Return |X|^2, <X, M_k> and <M_k, M_l> over the observed entries of the data that was fitted."""
        if self.data_norm2 is None or self.data_inner is None:
            raise ValueError("Shares of variance need the data: only a fitted decomposition has them.")
        return self.data_norm2, self.data_inner, self.inner_products() if self.data_gram is None else self.data_gram

    # how sure it is

    def certify(
        self, X: Any, *, mask: ArrayLike | None = None, weights: Any = None, effort: str = "default"
    ) -> "BooleanCP":
        """Return the decomposition with certificates proved on X: the share of the best score that bits reach.

        The bits of each atom are judged on the residual of all other atoms, with the best real part for them. A fit
        proves this with the effort "quick", which is enough where an atom stands out.

        Parameters
        ----------
        X, mask, weights
            The tensor that was fitted, in memory, with its mask (True where observed) and weights.
        effort : {"quick", "default", "thorough"}
            A closed form; a proof down to 0.5 % (1 s for each atom along a mode of 300 entries), or down to 0.01 %.
        """
        from boolcp.fit.certify import certify_on

        return certify_on(self, X, mask, weights, effort)

    def bit_confidence(self) -> tuple[np.ndarray, ...]:
        """Return for each atom the probability that each of its bits is right, given the other atoms, (d_n,) each.

        A value below 0.5 says that the data favor the opposite bit.

        """
        if self.trust is None or self.trust.odds is None:
            raise ValueError("The confidence of bits needs the data: fit it, or call W = boolcp.assess(X, W).")
        return tuple(np.exp(-np.logaddexp(0.0, -each)) for each in self.trust.odds)

    @property
    def replication(self) -> np.ndarray | None:
        """Return the share of fits to parts of the data in which each pattern comes back, (K,); None until `assess`."""
        return None if self.trust is None else self.trust.replication

    @property
    def on_off(self) -> Any:
        """Return the `evidence` for on/off, means `low` and `high`, and `d_prime`, (K,) each; None until `assess`."""
        from boolcp.trust.on_off import OnOff

        known: Any = self.trust or Trust()
        tested = None if known.on_off is None or known.groups is None else np.isfinite(known.on_off)
        return None if tested is None else OnOff(known.on_off, *np.where(tested, known.groups.T, np.nan))

    def uncertain_bits(self, below: float = 0.95) -> list[UncertainBit]:
        """Return the bits whose confidence is below a limit, the least certain first."""
        found = []
        for k, (atom, p) in enumerate(zip(self.atoms, self.bit_confidence(), strict=True)):
            for entry in np.flatnonzero(p < below).tolist():
                label = texts.entry_label(self, atom.mode, entry)
                found.append(UncertainBit(k, entry, label, bool(atom.z[entry]), float(p[entry])))
        return sorted(found, key=lambda bit: bit.confidence)

    # what a person reads

    def summary(self) -> str:
        """Return a table as text: what each atom is, what it explains, how far it can be trusted, and a verdict.

        *alone* is the share of variance that the atom explains by itself, *unique* the share that is lost without it.
        *certificate* is about the search: the part of the best possible score that z provably reaches. *sure bits* is
        the share of bits with a confidence of at least 95 %. `boolcp.assess` adds *replication*, *p* and the verdict.

        Examples
        --------
        >>> X = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0).X
        >>> W = boolcp.decompose(X, 2, random_state=0)
        >>> print(W.summary())
        2 atoms of a 8 x 9 x 10 tensor, 98.7 % of the variance explained
        atom  mode  ones  rank  weight   alone  unique  certificate  sure bits
           0     1   3/9     1   11.26  67.6 %  71.0 %       99.9 %      100 %
           1     0   3/8     1   7.451  27.7 %  31.1 %       99.9 %      100 %
        35 parameters and 17 bits for 720 entries.
        Proved: the bits of every atom reach at least 99.9 % of the best possible score.
        Atoms are not tested yet: W = boolcp.assess(X, W), or boolcp fit --assess.
        """
        return texts.summary(self)

    def __repr__(self) -> str:
        counts = [f"{(self.boolean_mode == n).sum()} along mode {self.mode_name(n)}" for n in range(self.ndim)]
        explained = f", explained {self.explained():.4f}" if self.data_norm2 and self.data_inner is not None else ""
        number = f"{self.n_atoms} atom{'' if self.n_atoms == 1 else 's'}"
        return f"BooleanCP({texts.shape_text(self)}, {number}: {', '.join(counts)}{explained})"

    def _repr_html_(self) -> str:
        from boolcp.plotting import atoms_picture

        return texts.html_text(self) + atoms_picture(self)

    def mode_name(self, mode: int) -> str:
        """Return the name of a mode: its dimension name if it has one, else its index."""
        return str(self.dims[mode]) if self.dims else str(mode)

    # tables, files, pictures

    def to_xarray(self) -> Any:
        """Return the decomposition as an xarray Dataset with the dims and coordinates of its tensor."""
        from boolcp.result.tables import to_xarray

        return to_xarray(self)

    def to_dataframe(self) -> Any:
        """Return a pandas DataFrame with one row for each atom."""
        from boolcp.result.tables import to_dataframe

        return to_dataframe(self)

    def events(self, mode: int | str | None = None) -> Any:
        """Return where atoms are on as a DataFrame of intervals: start, stop (excluded), duration, atom, label, mode.

        Along the mode "time" they are in its unit, and none crosses a gap; along any other mode they are positions.
        With `mode`, only atoms along it. ``pynapple.IntervalSet(table.start, table.stop)`` takes those of one atom.
        """
        from boolcp.result.events import events

        return events(self, mode)

    def occurrences(self, mode: int | str | None = None, by: str | None = None) -> Any:
        """Return a DataFrame with occurrences, mean_duration, coverage (0 to 1) and rate of each atom, from `events`.

        The rate is by unit of time, or by entry of another mode. `by` names a coordinate such as "condition": a column
        for each of its values counts the entries that are on.
        """
        from boolcp.result.events import occurrences

        return occurrences(self, mode, by)

    def transitions(self, mode: int | str | None = None) -> Any:
        """Return a DataFrame (from, to): how often an atom goes off at the very entry at which another goes on."""
        from boolcp.result.events import transitions

        return transitions(self, mode)

    def where_on(self, k: int) -> list[Any]:
        """Return the labels where atom k is on: trials, or channels, as MNE picks them; positions without labels."""
        name, on = self.mode_name(self.atoms[k].mode), np.flatnonzero(self.atoms[k].z)
        labels = None if self.labels is None else self.labels.coords.get(name)
        return (on if labels is None else labels[on]).tolist()

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Save the decomposition in one netCDF file, which `boolcp.load` reads."""
        from boolcp.io.results import save

        save(self, path, overwrite=overwrite)

    def plot(self, atoms: Sequence[int] | None = None) -> Any:
        """Draw all atoms, or those listed, and return the matplotlib Figure: one row per atom, one column per mode."""
        from boolcp.plotting import plot_atoms

        return plot_atoms(self, atoms)

    def report(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write a self-contained HTML page about the decomposition; the ending .html may be left out."""
        from boolcp.report import write_report

        write_report(self, path if Path(path).suffix else Path(path).with_suffix(".html"), force=force)


def part_of_atom(atom: Atom, mode: int, rows: Any) -> Atom:
    """Return an atom at some entries of a mode, in their order; its real part may no longer be of norm one."""
    at = mode - (mode > atom.mode)
    if atom.mode == mode:
        return replace(atom, z=atom.z[rows])
    if atom.factors is None:
        return replace(atom, block=atom.dense_block()[(*[slice(None)] * at, rows)])
    return replace(atom, factors=tuple(A[rows] if n == at else A for n, A in enumerate(atom.factors)))


def inner_with_atoms(X: Any, atoms: Sequence[Atom]) -> np.ndarray:
    """Return <X, M_k> (K,) for a dense array or any storage."""
    inner = np.empty(len(atoms))
    for mode in {atom.mode for atom in atoms}:
        members = [k for k, atom in enumerate(atoms) if atom.mode == mode]
        Z = np.stack([atoms[k].z for k in members], axis=1).astype(float)
        is_array = isinstance(X, np.ndarray)
        blocks = contractions.contract(np.ascontiguousarray(X), mode, Z) if is_array else X.contract(mode, Z)
        for k, block in zip(members, blocks, strict=True):
            inner[k] = np.vdot(block, atoms[k].dense_block())
    return inner


def inner_of_blocks(first: Atom, second: Atom) -> float:
    """Return <M, M'> of two atoms through their dense blocks."""
    (m, z, V), (n, y, U) = ((atom.mode, atom.z.astype(float), atom.dense_block()) for atom in (first, second))
    if m == n:
        return float(z @ y) * float(np.vdot(V, U))
    V, U = np.tensordot(V, y, axes=([n - (n > m)], [0])), np.tensordot(U, z, axes=([m - (m > n)], [0]))
    return float(np.vdot(V, U))


def pattern(atom: Atom, mode: int) -> np.ndarray:
    """Return an atom without one mode, flat, of norm one: its real part, or its leading direction in the others."""
    V = atom.dense_block()
    if atom.mode != mode:
        V = np.moveaxis(V, mode - (mode > atom.mode), -1)
        flat = V.reshape(-1, V.shape[-1])
        lead = V @ np.linalg.eigh(flat.T @ flat)[1][:, -1]
        V = np.multiply.outer(lead, atom.z.astype(float))
        V = np.moveaxis(V, -1, atom.mode - (atom.mode > mode))
    return np.asarray(V.ravel() / max(float(np.linalg.norm(V)), 1e-300))


def with_mean(W: BooleanCP, X: Any, data: Any) -> BooleanCP:
    """Return W with the mean of X - W over the Boolean mode, each atom by the bits or their complement with fewer ones.

    z V and (1 - z) (-V) differ by V in every slice, which the mean takes.
    """
    mode, estimate = data.center, W.to_array()
    if data.weights is None:
        mean = np.asarray(X, dtype=float).mean(axis=mode, keepdims=True) - estimate.mean(axis=mode, keepdims=True)
    else:
        mean = data.mean_left(estimate)
    atoms = list(W.atoms)
    for k, atom in enumerate(W.atoms):
        if 2 * atom.n_ones > len(atom.z):
            mean = mean + W.weights[k] * np.expand_dims(atom.dense_block(), mode)
            block = None if atom.block is None else -atom.block
            factors = None if atom.factors is None else (-atom.factors[0], *atom.factors[1:])
            atoms[k] = replace(atom, z=~atom.z, block=block, factors=factors)
    return replace(W, atoms=tuple(atoms), mean=mean)
