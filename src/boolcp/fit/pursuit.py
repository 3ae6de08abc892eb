"""Algorithm 1: Boolean matching pursuit. Its line 7 as printed is least squares with normal equations that grow."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar, cast

import numpy as np
import scipy.linalg

from boolcp.fit.atom_search import Candidate, greedy_atom_search
from boolcp.fit.polish import polish
from boolcp.fit.relax import last
from boolcp.fit.state import Pursuit, record
from boolcp.result.atoms import Atom, BooleanCP, inner_with_atoms
from boolcp.result.columns import to_columns
from boolcp.storage.protocol import ObservedStorage, Storage

N_SWEEPS = 20  # of a polish after each atom; not tuned

Find = Callable[[BooleanCP], Candidate | None]
Found = TypeVar("Found")
DEPENDENT = 1e-10  # squared distance to the span of the active atoms, relative to |M|^2, that counts as none
MANY_COLUMNS = 3  # for each atom, from which products over observed entries are summed entry by entry; not tuned


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


def pursue(
    pursuit: Pursuit, n_atoms: int, find: Callable[[Pursuit], Found], correct: Callable[[Pursuit, Found], Pursuit]
) -> Iterator[Pursuit]:
    """Run Alg. 1: yield the pursuit with one atom more each time, until there are `n_atoms` or it stops.

    `find` is Alg. 2. `correct` is line 7: the weights alone as printed, all factors, or the blocks and their bits.
    """
    while pursuit.n_atoms < n_atoms and not pursuit.stop_reason:
        begin = time.perf_counter()
        found = find(pursuit)  # lines 5-6
        longer = correct(pursuit, found)  # lines 7-8
        if len(longer.history) > len(pursuit.history):
            longer = timed(longer, time.perf_counter() - begin)
        pursuit = longer
        yield pursuit


def timed(pursuit: Pursuit, seconds: float) -> Pursuit:
    """Return the pursuit with the seconds that its last atom took."""
    *before, newest = pursuit.history
    return replace(pursuit, history=(*before, replace(newest, seconds=seconds)))


def boolean_matching_pursuit(
    data: Storage,
    n_atoms: int,
    modes: tuple[int, ...],
    rng: np.random.Generator,
    *,
    start: Pursuit | None = None,
    tol: float = 1e-6,
    polishes: bool = False,
    **options: Any,
) -> Iterator[Pursuit]:
    """Run Alg. 1; after each atom the weights are corrected, as printed, or all factors if it `polishes`.

    The `options` are those of `greedy_atom_search`.
    """

    def find(pursuit: Pursuit) -> Candidate | None:
        return greedy_atom_search(data.inner_residual(pursuit.W), modes, rng, **options)

    first = start if polishes and start is not None else restart(data, start, tol)
    correct = adjust_factors if polishes else adjust_weights
    return chain([first], pursue(first, n_atoms, find, partial(correct, data, tol=tol)))


def adjust_factors(data: Storage, pursuit: Pursuit, found: Candidate | None, *, tol: float) -> Pursuit:
    """Return the pursuit with the atom that was found and all factors polished (line 7), or why it stops."""
    longer, norm2 = append(pursuit, found), data.squared_norm
    if longer.stop_reason:
        return longer
    columns = polish(data, to_columns(longer.W), max_iter=N_SWEEPS)
    W = columns.to_decomposition()
    is_lower = columns.loss < data.residual(pursuit.W).squared_norm - tol**2 * norm2
    if W.n_atoms <= pursuit.n_atoms or not is_lower:
        return replace(pursuit, stop_reason="no descent")
    W = with_system(W, data, *atom_system(data, W.atoms))
    history = (*pursuit.history, record(W.atoms[-1], columns.loss, norm2))
    return Pursuit((*pursuit.path, W), history, "explained" if columns.loss <= tol**2 * norm2 else "")


def restart(data: Storage, start: Pursuit | None, tol: float) -> Pursuit:
    """Return a pursuit as it stands after the atoms of `start`, or before any atom."""
    if start is not None and start.memory is not None:
        return start
    pursuit = Pursuit((estimate(data, (), NormalEquations(), np.zeros(0)),), memory=NormalEquations())
    if not data.squared_norm > 0:
        return replace(pursuit, stop_reason="zero")
    atoms = () if start is None else start.W.atoms
    G, b = atom_system(data, atoms) if atoms else (np.zeros((0, 0)), np.zeros(0))
    for k in range(len(atoms)):
        system = pursuit.memory.extend(G[k, :k], G[k, k], b[k])
        if system is None:
            break
        pursuit = extend(data, pursuit, atoms[k], system, tol)
    return replace(pursuit, history=() if start is None else start.history[: pursuit.n_atoms])


def adjust_weights(data: Storage, pursuit: Pursuit, found: Candidate | None, *, tol: float) -> Pursuit:
    """Return the pursuit with the atom that was found and all weights solved for again (line 7), or why it stops."""
    W, norm2 = pursuit.W, data.squared_norm
    if found is None or not found.descent**2 > tol**2 * norm2 * found.atom.n_ones:
        return replace(pursuit, stop_reason="no descent")
    inner, size = atom_products(data, W.atoms, found.atom)
    system = pursuit.memory.extend(inner, size, float(inner_with_atoms(data, (found.atom,))[0]))
    if system is None:
        return replace(pursuit, stop_reason="dependent")
    return extend(data, pursuit, found.atom, system, tol)


def extend(data: Storage, pursuit: Pursuit, atom: Atom, system: NormalEquations, tol: float) -> Pursuit:
    """Return the pursuit with one atom more, its weights those of the normal equations."""
    norm2, weights = data.squared_norm, system.solve()
    error2 = system.error(norm2, weights)
    W = estimate(data, (*pursuit.W.atoms, atom), system, weights)  # line 8
    history = (*pursuit.history, record(atom, error2, norm2))
    return Pursuit((*pursuit.path, W), history, "explained" if error2 <= tol**2 * norm2 else "", system)


def estimate(data: Storage, atoms: tuple[Atom, ...], system: NormalEquations, weights: np.ndarray) -> BooleanCP:
    """Return W = sum_k c_k M_k with what shares of variance need."""
    gram = None if data.is_complete else system.gram
    return BooleanCP(data.shape, atoms, weights, data_norm2=data.squared_norm, data_inner=system.rhs, data_gram=gram)


def add_greedy(W: BooleanCP, n_atoms: int, find: Find) -> BooleanCP | None:
    """Return W with `n_atoms` more atoms of steepest descent, each with the weight that is best for it alone.

    None if nothing descends.
    """
    first = Pursuit((W,))
    found = last(pursue(first, W.n_atoms + n_atoms, lambda pursuit: find(pursuit.W), append), first)
    return None if found.stop_reason else found.W


def append(pursuit: Pursuit, found: Candidate | None) -> Pursuit:
    """Return the pursuit with the atom that was found, the other weights as they are."""
    if found is None:
        return replace(pursuit, stop_reason="no descent")
    W = pursuit.W
    weights = np.append(W.weights, found.descent / found.atom.n_ones)
    return Pursuit((BooleanCP(W.shape, (*W.atoms, found.atom), weights),))


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
        G, b = np.add.reduceat(np.add.reduceat(G, first, axis=0), first, axis=1), np.sum(P * A, axis=0)
        return G, np.add.reduceat(b, first)
    b = inner_with_atoms(data, atoms)
    if data.is_complete:
        return W.inner_products(), b
    G = np.zeros((len(atoms), len(atoms)))
    for k, atom in enumerate(atoms):
        row, size = atom_products(data, atoms[:k], atom)
        G[k, :k] = G[:k, k] = row
        G[k, k] = size
    return G, b


def with_system(W: BooleanCP, data: Storage, G: np.ndarray, b: np.ndarray) -> BooleanCP:
    """Return W with the inner products <M_k, M_l> and <X, M_k> of its atoms over the entries of `data`."""
    return replace(W, data_norm2=data.squared_norm, data_inner=b, data_gram=None if data.is_complete else G)
