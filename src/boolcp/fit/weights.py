"""Weight adjustment: least squares over the active atoms, with normal equations that grow (Alg. 1, line 7)."""

import numpy as np
import scipy.linalg

from boolcp.result.atoms import BooleanCP, inner_with_atoms

DEPENDENT = 1e-10  # squared distance to the span of the active atoms, relative to |M|^2, that counts as none


def atom_products(data, atoms, atom):
    """Return <M_k, M> (K,) of `atoms` with a new atom M, and |M|^2, over the entries of `data`."""
    one = BooleanCP(data.shape, (atom,), np.ones(1))
    if data.is_complete:
        return one.inner_products(atoms)[0], float(atom.n_ones)
    products = inner_with_atoms(data.restrict(one), (*atoms, atom))
    return products[:-1], float(products[-1])


def atom_system(data, atoms):
    """Return G (K, K) and b (K,) of the weights: <M_k, M_l> and <X, M_k> over the entries of `data`."""
    W = BooleanCP(data.shape, atoms, np.ones(len(atoms)))
    if all(atom.rank == 1 for atom in atoms) and atoms:
        A = W.factors[0]
        H, P = data.normal_equations(W.factors, 0)
        return A.T @ A * H if H.ndim == 2 else np.einsum("ik,ikl,il->kl", A, H, A), np.sum(P * A, axis=0)
    b = inner_with_atoms(data, atoms)
    if data.is_complete:
        return W.inner_products(), b
    G = np.zeros((len(atoms), len(atoms)))
    for k, atom in enumerate(atoms):
        row, size = atom_products(data, atoms[:k], atom)
        G[k, :k] = G[:k, k] = row
        G[k, k] = size
    return G, b


class NormalEquations:
    """G c = b with G_kl = <M_k, M_l> and b_k = <X, M_k>; each atom adds a row to G and to its Cholesky factor."""

    def __init__(self):
        self.gram = np.zeros((0, 0))
        self.rhs = np.zeros(0)
        self._cholesky = np.zeros((0, 0))

    def extend(self, inner, squared_norm, rhs):
        """Add an atom with <M_k, M> = `inner`, |M|^2 and <X, M>; return False, unchanged, if it is dependent."""
        L, K = self._cholesky, len(self.rhs)
        row = scipy.linalg.solve_triangular(L, inner, lower=True) if K else np.zeros(0)
        distance2 = squared_norm - row @ row
        if distance2 <= DEPENDENT * squared_norm:
            return False
        self._cholesky = np.block([[L, np.zeros((K, 1))], [row[None, :], np.sqrt(distance2)]])
        self.gram = np.block([[self.gram, inner[:, None]], [inner[None, :], squared_norm]])
        self.rhs = np.append(self.rhs, rhs)
        return True

    def solve(self, alpha=0.0):
        """Return argmin_c |X - sum_k c_k M_k|^2 / 2 + alpha |c|_1 (alpha = 0: closed form)."""
        if alpha > 0:
            return solve_lasso(self.gram, self.rhs, alpha)
        return scipy.linalg.cho_solve((self._cholesky, True), self.rhs)


def solve_lasso(gram, rhs, alpha):
    """Return argmin_c c'Gc / 2 - b'c + alpha |c|_1, by the homotopy of least-angle regression."""
    from sklearn.linear_model import lars_path_gram

    return lars_path_gram(rhs, gram, n_samples=1, alpha_min=alpha, method="lasso", return_path=False)[2]
