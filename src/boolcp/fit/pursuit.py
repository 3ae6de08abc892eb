"""Algorithm 1 as printed: one atom after the other, the weights of all corrected by normal equations that grow."""

from dataclasses import dataclass, field

import numpy as np
import scipy.linalg

from boolcp.fit.atom_search import Candidate
from boolcp.fit.certify import atom_products
from boolcp.result.atoms import Atom, BooleanCP, inner_with_atoms
from boolcp.storage.protocol import Storage

DEPENDENT = 1e-10  # squared distance to the span of the active atoms, relative to |M|^2, that counts as none


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
