"""Many atoms of rank one at a time: each start climbs separately, and all share the products with the data."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from boolcp.contractions import CHUNK, middle
from boolcp.fit._kernels import power_sweeps
from boolcp.program.maxcut import best_signed_response
from boolcp.result.atoms import Atom
from boolcp.storage.protocol import Tensor

N_FIRST, N_POWER = 12, 6  # power iterations for new bits, and after each change of them; not tuned
SETTLED = 1e-8  # relative growth of the squared size of a product of vectors that ends them


@dataclass(frozen=True, eq=False)
class Candidates:
    """Atoms z (x) u (x) w (x) .. along one mode, one in each column, and by how much each lowers the loss.

    Attributes
    ----------
    mode : int
        The Boolean mode n.
    Z : ndarray of shape (d_n, B)
        The bits, 0 and 1.
    real : list of ndarray, shapes (d_m, B)
        Columns of norm one for the other modes, in order.
    gains : ndarray of shape (B,)
        <R, M>^2 / |M|^2 on the residual R.
    """

    mode: int
    Z: np.ndarray
    real: list[np.ndarray]
    gains: np.ndarray

    def take(self, chosen: Sequence[int] | np.ndarray) -> "Candidates":
        """Return some of them."""
        return Candidates(self.mode, self.Z[:, chosen], [A[:, chosen] for A in self.real], self.gains[chosen])

    def best(self, n_best: int) -> "Candidates":
        """Return the best that have different bits, the best first."""
        order = np.argsort(-self.gains, kind="stable")
        first: dict[bytes, int] = {}
        for j in order:
            first.setdefault(self.Z[:, j].tobytes(), int(j))
        return self.take(list(first.values())[:n_best])

    def atom(self, j: int) -> tuple[Atom, float]:
        """Return candidate j as an atom with its weight."""
        atom = Atom(self.mode, self.Z[:, j] > 0.5, tuple(A[:, [j]].astype(float) for A in self.real))
        return atom, float(np.sqrt(self.gains[j] / atom.n_ones))


def climb(residual: Tensor, start: Candidates, n_kept: Sequence[int]) -> Candidates:
    """Return the atoms of rank one that starts lead to: real columns and bits are decided in turn.

    After each round only the best `n_kept` continue.
    """
    found = start
    for n_best in n_kept:
        found = follow(residual, found, N_POWER)
        found = found.take(np.argsort(-found.gains, kind="stable")[:n_best])
    return found


def from_bits(residual: Tensor, mode: int, Z: np.ndarray, n_power: int = N_FIRST) -> Candidates:
    """Return candidates with bits Z (d_n, B) and the real columns that fit them."""
    real = [np.zeros((d, Z.shape[1])) for n, d in enumerate(residual.shape) if n != mode]
    return follow(residual, Candidates(mode, Z, real, np.zeros(Z.shape[1])), n_power, is_new=True)


def follow(residual: Tensor, found: Candidates, n_power: int, is_new: bool = False) -> Candidates:
    """Return the candidates after the real columns, and then the bits, are decided once; a part of them at a time."""
    d = residual.shape[found.mode]
    size = max(1, CHUNK * d // int(np.prod(residual.shape, dtype=np.int64)))
    parts = []
    for start in range(0, len(found.gains), size):
        part = found.take(np.arange(start, min(start + size, len(found.gains))))
        T = np.ascontiguousarray(residual.contract(found.mode, part.Z))
        *real, last = power_iterations(T, None if is_new else part.real, n_power)
        real = [*real, normalized(last)]
        P = residual.mttkrp([*real[: found.mode], part.Z, *real[found.mode :]], found.mode)
        parts.append(Candidates(found.mode, *respond(np.asarray(P, dtype=float), real)))
    return Candidates(
        found.mode,
        np.hstack([part.Z for part in parts]),
        [np.hstack(columns) for columns in zip(*(part.real for part in parts), strict=True)],
        np.concatenate([part.gains for part in parts]),
    )


def respond(P: np.ndarray, real: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Return the best bits for the products P (d, B), the real columns with the sign that goes with them, the gains."""
    Z, signs, gains = best_signed_response(P.T)
    return Z.T, [real[0] * signs, *real[1:]], gains


def power_iterations(
    T: np.ndarray, columns: Sequence[np.ndarray] | None, max_iter: int, tol: float = SETTLED
) -> list[np.ndarray]:
    """Return columns (d_m, B) after rounds of the power method for the best product of vectors in each block T (B, ..).

    All but the last have norm one, and the last has the inner product of the block and them for its norm. Rounds end
    when the square of that grows by less than `tol` of the squared norm of the block. Without columns they start from
    the largest fiber along the last mode of each block, which depends on the numbers alone, not on their order.
    """
    shape = T.shape[1:]
    half, sizes = middle(shape), np.array(shape)
    halves = np.ascontiguousarray(T, dtype=float).reshape(len(T), int(np.prod(shape[:half])), -1)
    rows = (
        np.empty((len(T), sizes.sum())) if columns is None else np.ascontiguousarray(np.vstack(columns).T, dtype=float)
    )
    power_sweeps(halves, half, sizes, rows, max_iter, tol, columns is None)
    return np.split(rows.T, np.cumsum(sizes)[:-1])


def normalized(A: np.ndarray) -> np.ndarray:
    """Return columns of norm one, or zero."""
    return A / np.maximum(np.linalg.norm(A, axis=0), np.finfo(A.dtype).tiny)


def similar_triples(C: np.ndarray, n_starts: int) -> np.ndarray:
    """Return sets of three bits (d, n_starts) whose rows of a Gram matrix C are the most alike.

    The most similar pairs are extended by the bit that is most similar to both.
    """
    d = len(C)
    C = C - np.diag(C.diagonal())
    first, second = np.triu_indices(d, 1)
    pairs = np.argsort(-C[first, second], kind="stable")[: 3 * n_starts]
    Z = np.zeros((len(pairs), d), dtype=bool)
    rows = np.arange(len(pairs))
    Z[rows, first[pairs]] = Z[rows, second[pairs]] = True
    if d > 2:
        Z[rows, np.argmax(np.where(Z, -np.inf, C[first[pairs]] + C[second[pairs]]), axis=1)] = True
    Z = np.unique(Z, axis=0)
    values = np.einsum("bi,bi->b", Z @ C, Z)
    return Z[np.argsort(-values, kind="stable")[:n_starts]].T.astype(float)


def flipped(z: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return the bits z (d,) as they are and with one of them flipped, one set in each column."""
    Z = np.tile(z[:, None], len(which))
    Z[which, np.arange(len(which))] = 1 - z[which]
    return np.column_stack([z, Z[:, Z.any(axis=0)]])


def prefixes(p: np.ndarray) -> np.ndarray:
    """Return the bits of the 2, 3, 4, 6, .. largest entries of p, one set in each column, up to half of all."""
    sizes = sorted({s for s in (1, 2, 3, 4, 6, 9, 13, 20, 30, 45, 70) if s <= max(len(p) // 2, 1)})
    ranks = np.argsort(np.argsort(-p, kind="stable"))
    return (ranks[:, None] < np.array(sizes)).astype(float)
