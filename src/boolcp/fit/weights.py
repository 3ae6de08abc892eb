"""Weight adjustment: least squares over the active atoms, with normal equations that grow (Alg. 1, line 7)."""

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import scipy.linalg

from boolcp.result.atoms import Atom, BooleanCP, inner_with_atoms
from boolcp.storage.protocol import ObservedStorage, Storage

DEPENDENT = 1e-10  # squared distance to the span of the active atoms, relative to |M|^2, that counts as none
MANY_COLUMNS = 3  # for each atom, from which products over observed entries are summed entry by entry; not tuned


def atom_products(data: Storage, atoms: tuple[Atom, ...], atom: Atom) -> tuple[np.ndarray, float]:
    """Return <M_k, M> (K,) of `atoms` with a new atom M, and |M|^2, over the entries of `data`."""
    one = BooleanCP(data.shape, (atom,), np.ones(1))
    if data.is_complete:
        return one.inner_products(atoms)[0], float(atom.n_ones)
    products = inner_with_atoms(cast(ObservedStorage, data).restrict(one), (*atoms, atom))
    return products[:-1], float(products[-1])


def has_many_columns(data: Storage, atoms: tuple[Atom, ...]) -> bool:
    """Return True if each row of normal equations over observed entries is large: then blocks are cheaper."""
    n_columns = sum(atom.rank or 0 for atom in atoms)
    return not data.is_complete and data.n_passes == 0 and n_columns > MANY_COLUMNS * len(atoms)


def atom_system(data: Storage, atoms: tuple[Atom, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return G (K, K) and b (K,) of the weights: <M_k, M_l> and <X, M_k> over the entries of `data`."""
    W = BooleanCP(data.shape, atoms, np.ones(len(atoms)))
    if atoms and not W.is_block and not has_many_columns(data, atoms):
        A = W.matrices[0]
        H, P = data.normal_equations(W.matrices, 0)
        G = A.T @ A * H if H.ndim == 2 else np.einsum("ik,ikl,il->kl", A, H, A)
        first = np.cumsum([0, *(atom.rank for atom in atoms[:-1])])  # column of each atom
        return np.add.reduceat(np.add.reduceat(G, first, axis=0), first, axis=1), np.add.reduceat(
            np.sum(P * A, axis=0), first
        )
    b = inner_with_atoms(data, atoms)
    if data.is_complete:
        return W.inner_products(), b
    G = np.zeros((len(atoms), len(atoms)))
    for k, atom in enumerate(atoms):
        row, size = atom_products(data, atoms[:k], atom)
        G[k, :k] = G[:k, k] = row
        G[k, k] = size
    return G, b


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """G c = b with G_kl = <M_k, M_l> and b_k = <X, M_k>; each atom adds a row to G and to its Cholesky factor."""

    gram: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    rhs: np.ndarray = field(default_factory=lambda: np.zeros(0))
    cholesky: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def extend(self, inner: np.ndarray, squared_norm: float, rhs: float) -> "NormalEquations | None":
        """Return them with an atom of <M_k, M> = `inner`, |M|^2 and <X, M>; None if it depends on the others."""
        L, K = self.cholesky, len(self.rhs)
        row = scipy.linalg.solve_triangular(L, inner, lower=True) if K else np.zeros(0)
        distance2 = squared_norm - row @ row
        if distance2 <= DEPENDENT * squared_norm:
            return None
        cholesky = np.block([[L, np.zeros((K, 1))], [row[None, :], np.sqrt(distance2)]])
        gram = np.block([[self.gram, inner[:, None]], [inner[None, :], squared_norm]])
        return NormalEquations(gram, np.append(self.rhs, rhs), cholesky)

    def solve(self) -> np.ndarray:
        """Return argmin_c |X - sum_k c_k M_k|^2, in closed form."""
        return scipy.linalg.cho_solve((self.cholesky, True), self.rhs)

    def error(self, norm2: float, weights: np.ndarray) -> float:
        """Return |X - W|^2 for weights c: |X|^2 - 2 b'c + c'Gc."""
        return max(float(norm2 - 2 * weights @ self.rhs + weights @ self.gram @ weights), 0.0)
