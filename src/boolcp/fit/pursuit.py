"""Algorithm 1 as printed: one atom after the other, the weights of all corrected by normal equations that grow."""

from dataclasses import dataclass, field, replace

import numpy as np
import scipy.linalg

from boolcp.fit.atom_search import Candidate
from boolcp.result.atoms import Atom, BooleanCP, inner_with_atoms
from boolcp.storage.dense import Array
from boolcp.storage.protocol import Storage, Tensor
from boolcp.storage.weighted import Weighted

DEPENDENT = 1e-10  # squared distance to the span of the active atoms, relative to |M|^2, that counts as none
UNSEEN = 1e-12  # share of |M|^2 over the observed entries that counts as none: rounding


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """G c = b with G_kl = <M_k, M_l> and b_k = <X, M_k>; each atom adds a row to G and to its Cholesky factor."""

    gram: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    rhs: np.ndarray = field(default_factory=lambda: np.zeros(0))
    cholesky: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def extend(self, data: Storage, atoms: tuple[Atom, ...], atom: Atom) -> "NormalEquations | None":
        """Return them with one atom more than `atoms`; None if it depends on these."""
        inner, squared_norm = atom_products(data, atoms, atom)
        L, K = self.cholesky, len(self.rhs)
        row = scipy.linalg.solve_triangular(L, inner, lower=True) if K else np.zeros(0)
        distance2 = squared_norm - row @ row
        if distance2 <= DEPENDENT * squared_norm:
            return None
        cholesky = np.block([[L, np.zeros((K, 1))], [row[None, :], np.sqrt(distance2)]])
        gram = np.block([[self.gram, inner[:, None]], [inner[None, :], squared_norm]])
        return NormalEquations(gram, np.append(self.rhs, inner_with_atoms(data, (atom,))[0]), cholesky)

    def solve(self) -> np.ndarray:
        """Return argmin_c |X - sum_k c_k M_k|^2, in closed form."""
        return scipy.linalg.cho_solve((self.cholesky, True), self.rhs)

    def error(self, norm2: float, weights: np.ndarray) -> float:
        """Return |X - W|^2 for weights c: |X|^2 - 2 b'c + c'Gc."""
        return max(float(norm2 - 2 * weights @ self.rhs + weights @ self.gram @ weights), 0.0)


def equations_of(data: Storage, atoms: tuple[Atom, ...]) -> NormalEquations:
    """Return the normal equations of atoms that were added one by one: the same numbers as when they were."""
    system = NormalEquations()
    for k, atom in enumerate(atoms):
        longer = system.extend(data, atoms[:k], atom)
        assert longer is not None, "atoms of a pursuit are independent"
        system = longer
    return system


def corrected(
    data: Storage, W: BooleanCP, system: NormalEquations, found: Candidate | None, tol: float
) -> tuple[BooleanCP, NormalEquations, str]:
    """Return the estimate with one atom more and all weights solved for again (lines 7-8), or why there is none."""
    norm2 = data.squared_norm
    if found is None or not found.descent**2 > tol**2 * norm2 * found.atom.n_ones:
        return W, system, "no descent"
    longer = system.extend(data, W.atoms, found.atom)
    if longer is None:
        return W, system, "dependent"
    weights = longer.solve()
    gram = None if data.weights is None else longer.gram
    W = BooleanCP(W.shape, (*W.atoms, found.atom), weights, data_norm2=norm2, data_inner=longer.rhs, data_gram=gram)
    return W, longer, "explained" if longer.error(norm2, weights) <= tol**2 * norm2 else ""


def atom_products(data: Storage, atoms: tuple[Atom, ...], atom: Atom) -> tuple[np.ndarray, float]:
    """Return <M_k, M> (K,) of `atoms` with a new atom M, and |M|^2, over the entries of `data`."""
    one = BooleanCP(data.shape, (atom,), np.ones(1))
    if data.weights is None:
        return one.inner_products(atoms)[0], float(atom.n_ones)
    products = inner_with_atoms(Array(data.weights.to_array() * one.to_tensor()), (*atoms, atom))
    return products[:-1], float(products[-1])


def atom_system(data: Storage, atoms: tuple[Atom, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return G (K, K) and b (K,) of the weights: <M_k, M_l> and <X, M_k> over the entries of `data`."""
    if isinstance(data, Weighted) and data.weights is not None and data.center is not None and atoms:
        return centered_system(data, data.weights, data.center, atoms)
    W = BooleanCP(data.shape, atoms, np.ones(len(atoms)))
    if not atoms or W.is_block:
        b = inner_with_atoms(data, atoms)
        if data.weights is None:
            G = W.inner_products()
            if data.center is not None and atoms:  # the mean over this mode is no part of the data nor of the atoms
                V = np.stack([atom.n_ones * atom.dense_block().ravel() for atom in atoms])
                G = G - V @ V.T / data.shape[data.center]
            return G, b
        G = np.zeros((len(atoms), len(atoms)))
        for k, atom in enumerate(atoms):
            row, size = atom_products(data, atoms[:k], atom)
            G[k, :k] = G[:k, k] = row
            G[k, k] = size
        return G, b
    mode = 1 if data.center == 0 else 0
    A, (H, P, _) = W.matrices[mode], data.equations(W.matrices, mode)
    G = A.T @ A * H if H.ndim == 2 else np.einsum("ik,ikl,il->kl", A, H, A)
    first = np.cumsum([0, *(atom.rank for atom in atoms[:-1])])  # column of each atom
    G = np.add.reduceat(np.add.reduceat(G, first, axis=0), first, axis=1)
    return G, np.add.reduceat(np.sum(P * A, axis=0), first)


def centered_system(
    data: Weighted, weights: Tensor, mode: int, atoms: tuple[Atom, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return G and b where data and atoms, all Boolean along the mode, are without their weighted means over it."""
    Z, V = np.stack([atom.z for atom in atoms], axis=1).astype(float), np.stack([atom.dense_block() for atom in atoms])
    n, S = weights.contract(mode, np.ones((len(Z), 1))), weights.contract(mode, Z) * V
    mean = np.moveaxis(data.mean_left(np.zeros(data.shape)), mode, 0)
    b = (data.contract(mode, Z) * V - S * mean).reshape(len(V), -1).sum(axis=1)
    G = -np.tensordot(S / np.where(n > 0, n, 1.0), S, axes=(range(1, S.ndim), range(1, S.ndim)))
    for k, z in enumerate(Z.T):
        G[k] += (weights.contract(mode, Z * z[:, None]) * V * V[k]).reshape(len(V), -1).sum(axis=1)
    return G, b


def with_system(W: BooleanCP, data: Storage) -> BooleanCP:
    """Return W with |X|^2, <X, M_k> and, unless all entries count alike, <M_k, M_l>, which shares of variance need.

    Atoms that are nonzero only on unobserved entries are dropped.
    """
    if W.is_block and data.weights is None and data.center is None:
        return replace(W, data_norm2=data.squared_norm, data_inner=inner_with_atoms(data, W.atoms))
    G, b = atom_system(data, W.atoms)
    gram = None if data.weights is None and data.center is None else G
    W = replace(W, data_norm2=data.squared_norm, data_inner=b, data_gram=gram)
    seen = np.diag(G) > UNSEEN * np.array([atom.n_ones for atom in W.atoms])
    return W if seen.all() else W[seen]


def by_size(W: BooleanCP) -> BooleanCP:
    """Return W with its atoms sorted from the largest to the smallest norm."""
    sizes = W.weights * np.sqrt([atom.n_ones for atom in W.atoms])
    return W[np.argsort(-sizes, kind="stable")]
