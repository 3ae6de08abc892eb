"""Algorithm 2: the atom of steepest descent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from boolcp import contractions
from boolcp.contractions import CHUNK, middle
from boolcp.fit._kernels import power_sweeps
from boolcp.fit.spec import Spec
from boolcp.fit.sweep import relax
from boolcp.program.maxcut import Gram, ThinGram, best_boolean, best_signed_response, maximize
from boolcp.result.atoms import Atom
from boolcp.result.columns import Columns
from boolcp.storage.dense import Dense
from boolcp.storage.protocol import Storage, Tensor
from boolcp.storage.tucker import LONG, Tucker, leading_basis, thin_factor
from boolcp.storage.weighted import Weighted, full

N_FIRST, N_POWER = 12, 6  # power iterations for new bits, and after each change of them; not tuned
SETTLED = 1e-8  # relative growth of the squared size of a product of vectors that ends them
MAX_ALTERNATIONS = 30  # they settle after a few; a bound on the work, not tuned
MAX_SWEEPS = 100  # of the real part of an atom
MAX_BITS = 8  # entries of a mode up to which all bits are tried; not tuned
N_FEW = 1  # power iterations for all of them: four gained more than 0.1 % in 4 of 240 searches on real tensors
N_KEPT = (32, 8, 4)  # of these, after each round; not tuned
# entries of a mode of a compressed tensor above which its program is solved in the coordinates of its basis; not tuned
MANY = 400

Real = tuple[np.ndarray, ...] | np.ndarray  # the real part of an atom: factors (d_m, L) of the other modes, or a block


@dataclass(frozen=True)
class Candidate:
    """An atom with its `descent` <X - W, M> = -<grad F, M> and its value of the criterion."""

    atom: Atom
    descent: float
    value: float


def search_residual(data: Storage, W: Columns) -> tuple[Tensor, float]:
    """Return X - W as the search for atoms takes it, and the mean weight of an entry.

    It is projected onto the bases of a core. Entries that do not count alike are scaled as if they did on average;
    counts and bits count alike, whatever their mean.
    """
    if isinstance(data, Tucker):
        return data.inner_residual(W), 1.0
    if isinstance(data, Weighted) and data.loss.is_rate:
        R = data.x - full(W.matrices)
        return Dense(R if data.w is None else data.w / data.w.mean() * R), 1.0
    R = data.residual(W.to_decomposition())
    if not isinstance(data, Weighted) or data.w is None:
        return R, 1.0
    values, mean = R.to_array(), float(data.w.mean())
    return Dense(np.divide(values, mean, out=values)), mean


def greedy_atom_search(
    residual: Tensor, spec: Spec, rng: np.random.Generator, *, certify: bool = False
) -> Candidate | None:
    """Return the candidate of steepest descent over all allowed modes, Alg. 2, or None; it is quick on a core."""
    how: dict[str, Any] = {"effort": "quick" if residual.bases else "default", "certify": certify}
    how |= {"atom_rank": spec.atom_rank, "criterion": "normalized" if spec.refine else "published"}
    found = filter(None, [steepest_atom(residual, mode, rng, **how) for mode in spec.modes])
    return max(found, key=lambda candidate: candidate.value, default=None)  # line 10


def steepest_atom(
    residual: Tensor,
    mode: int,
    rng: np.random.Generator,
    *,
    atom_rank: int | None = 1,
    criterion: str = "normalized",
    certify: bool = True,
    effort: str = "default",
) -> Candidate | None:
    """Return the candidate z (x) V along one mode: z from the Boolean quadratic program, then V, then both in turn.

    The program maximizes with C = R_n R_n', where the sign makes z'Cz = |G'z|^2. A long mode has C = FF' with a thin F,
    which may hold only the leading directions: then there is no bound, and z is a start.
    """
    is_ratio, bound, is_exact = criterion == "normalized", None, True
    is_short = atom_rank == 1 and residual.shape[mode] <= MAX_BITS and len(residual.shape) > 2 and is_ratio
    if certify or not is_short:
        C, is_exact = residual_gram(residual, mode)
        if not C.diagonal().sum() > 0:
            return None
        solution = maximize(C, rng, certify=certify and is_exact, is_ratio=is_ratio, effort=effort)  # lines 4-6
        z, bound = solution.z, solution.bound
    others = [U for n, U in enumerate(residual.bases) if n != mode]
    residual = residual.opened(mode) if isinstance(residual, Tucker) else residual  # V in coordinates of the bases
    start: Real | None = None
    if is_short:
        d, (n_first, *n_kept) = residual.shape[mode], N_KEPT
        patterns = (np.arange(1, 2**d) >> np.arange(d)[:, None] & 1).astype(float)
        best = climb(residual, from_bits(residual, mode, patterns, N_FEW).best(n_first), n_kept).best(1)
        z, start = best.Z[:, 0] > 0.5, tuple(best.real)
    V = real_part(residual.contract(mode, z[:, None].astype(float))[0], atom_rank, rng, start)  # line 7
    if V is None:
        return None
    if atom_rank is not None or not is_exact:
        z, V = alternate(residual, mode, z, V, atom_rank, criterion, rng)
    descent = float(projection(residual, mode, V) @ z)
    value = descent**2 / int(z.sum()) if is_ratio else descent**2  # of z'Cz, what V reaches
    certificate = min(value / bound, 1.0) if bound else float("nan")  # None or 0: no proof
    if others and isinstance(V, tuple):
        V = tuple(U @ A for U, A in zip(others, V, strict=True))
    real = {"factors": V} if isinstance(V, tuple) else {"block": V}
    return Candidate(Atom(mode, z, certificate=certificate, **real), descent, value)  # line 8


def residual_gram(residual: Tensor, mode: int) -> tuple[Gram, bool]:
    """Return R_n R_n', as a ThinGram for a long mode, and whether that is exact."""
    d = residual.shape[mode]
    if d <= LONG and not (residual.bases and d > max(MANY, 4 * residual.bases[mode].shape[1])):
        return residual.gram(mode), True
    F, is_exact = thin_factor(residual, mode)
    return ThinGram(F), is_exact


def alternate(
    residual: Tensor, mode: int, z: np.ndarray, V: Real, atom_rank: int | None, criterion: str, rng: np.random.Generator
) -> tuple[np.ndarray, Real]:
    """Return z and V after deciding them in turn until z stays; the criterion never falls."""
    for _ in range(MAX_ALTERNATIONS):
        p = projection(residual, mode, V)
        new, sign = best_boolean(p, criterion)
        turned = V if sign > 0 else (-V[0], *V[1:]) if isinstance(V, tuple) else -V
        if np.array_equal(new, z):
            return z, turned
        found = real_part(residual.contract(mode, new[:, None].astype(float))[0], atom_rank, rng, start=turned)
        if found is None:  # p was a rounding error, and nothing is left where the new z is on
            return z, V
        z, V = new, found
    return z, V


def projection(residual: Tensor, mode: int, V: Real) -> np.ndarray:
    """Return R_n vec(V) (d_n,) for a real part given as factors (tuple) or as a block."""
    if isinstance(V, tuple):
        factors = [*V[:mode], np.zeros((residual.shape[mode], V[0].shape[1])), *V[mode:]]
        return residual.mttkrp(factors, mode).sum(axis=1)
    return residual.project(mode, V[None])[:, 0]


def real_part(
    block: np.ndarray, atom_rank: int | None, rng: np.random.Generator, start: Real | None = None
) -> Real | None:
    """Return the best V of norm one for <block, V>: dense (None), or of rank L as factors; None if block is zero."""
    size = np.linalg.norm(block)
    if not size > 0:
        return None
    if block.ndim == 1:
        return ((block / size)[:, None],)
    if atom_rank is None:
        return block / size
    factors = leading_pairs(block, atom_rank) if block.ndim == 2 else leading_products(block, atom_rank, rng, start)
    return factors[0] / np.sqrt(contractions.gram_product(factors).sum()), *factors[1:]


def leading_pairs(block: np.ndarray, rank: int) -> tuple[np.ndarray, ...]:
    """Return the leading `rank` singular pairs of a matrix as two factors; the longer one has the singular values."""
    block = np.asarray(block, dtype=float)
    if block.shape[0] > block.shape[1]:
        return leading_pairs(block.T, rank)[::-1]
    d = len(block)
    rank = min(rank, d)
    U = scipy.linalg.eigh(block @ block.T, subset_by_index=[d - rank, d - 1])[1][:, ::-1]
    return U, block.T @ U


def leading_products(
    block: np.ndarray, rank: int, rng: np.random.Generator, start: Sequence[np.ndarray] | np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """Return a rank-`rank` approximation of a block of order >= 3 as factors, by alternating least squares.

    For one column that is the power method. A start may be orthogonal to the block, as happens with bits: then a random
    one follows.
    """
    if start is None and rank <= min(block.shape):
        start, left = [], block  # leading singular vectors, mode after mode from the last, each of what is left
        for _ in range(block.ndim):
            rows = left.reshape(-1, left.shape[-1])
            if min(rows.shape) > LONG:
                U = leading_basis(Dense(rows), 1, rank)
            elif len(rows) < rows.shape[1]:
                U = np.linalg.svd(rows, full_matrices=False)[2][:rank].T
            else:
                U = np.linalg.eigh(rows.T @ rows)[1][:, : -rank - 1 : -1]
            start, left = [U, *start], np.moveaxis(left @ U, -1, 0)
    for _ in range(2):
        if start is None:
            start = [rng.standard_normal((d, rank)) for d in block.shape]
        if rank == 1:
            factors: Sequence[np.ndarray] = power_iterations(block[None], list(start), MAX_SWEEPS)
        else:
            columns = Columns(tuple(start), np.arange(rank), np.zeros(rank))
            factors = relax(Dense(np.ascontiguousarray(block)), columns, max_iter=MAX_SWEEPS, tol=SETTLED).matrices
        if contractions.gram_product(factors).any():
            break
        start = None
    return tuple(factors)


# many atoms of rank one at a time: each start climbs separately, and all share the products with the data


@dataclass(frozen=True, eq=False)
class Candidates:
    """Atoms z (x) u (x) w (x) .. along one mode, one in each column, and by how much each lowers the loss."""

    mode: int  # the Boolean mode n
    Z: np.ndarray  # bits, 0 and 1, (d_n, B)
    real: list[np.ndarray]  # columns of norm one for the other modes, in order, (d_m, B)
    gains: np.ndarray  # <R, M>^2 / |M|^2 on the residual R, (B,)

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
    """Return the atoms of rank one that starts lead to; after each round the best `n_kept` that differ go on."""
    for n_best in n_kept:
        start = follow(residual, start, N_POWER).best(n_best)
    return start


def from_bits(residual: Tensor, mode: int, Z: np.ndarray, n_power: int = N_FIRST) -> Candidates:
    """Return candidates with bits Z (d_n, B) and the real columns that fit them."""
    real = [np.zeros((d, Z.shape[1])) for n, d in enumerate(residual.shape) if n != mode]
    return follow(residual, Candidates(mode, Z, real, np.zeros(Z.shape[1])), n_power, is_new=True)


def follow(residual: Tensor, found: Candidates, n_power: int, is_new: bool = False) -> Candidates:
    """Return the candidates after the real columns, and then the bits, are decided once; a part of them at a time."""
    size = max(1, CHUNK * residual.shape[found.mode] // int(np.prod(residual.shape, dtype=np.int64)))
    parts = []
    for start in range(0, len(found.gains), size):
        part = found.take(np.arange(start, min(start + size, len(found.gains))))
        T = np.ascontiguousarray(residual.contract(found.mode, part.Z))
        *real, last = power_iterations(T, None if is_new else part.real, n_power)
        real = [*real, last / np.maximum(np.linalg.norm(last, axis=0), np.finfo(float).tiny)]
        P = np.asarray(residual.mttkrp([*real[: found.mode], part.Z, *real[found.mode :]], found.mode), dtype=float)
        Z, signs, gains = best_signed_response(P.T)
        parts.append(Candidates(found.mode, Z.T, [real[0] * signs, *real[1:]], gains))
    return Candidates(
        found.mode,
        np.hstack([part.Z for part in parts]),
        [np.hstack(columns) for columns in zip(*(part.real for part in parts), strict=True)],
        np.concatenate([part.gains for part in parts]),
    )


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
    rows = np.empty((sizes.sum(), len(T))) if columns is None else np.vstack(columns)
    rows = np.ascontiguousarray(rows.T, dtype=float)
    power_sweeps(halves, half, sizes, rows, max_iter, tol, columns is None)
    return np.split(rows.T, np.cumsum(sizes)[:-1])


def similar_triples(C: np.ndarray, n_starts: int) -> np.ndarray:
    """Return sets of three bits (d, n_starts) with similar rows of C: the most similar pairs, and the next to both."""
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
